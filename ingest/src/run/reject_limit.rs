//! Ends a run that rejects too many records.
//!
//! A run may end for records that its own read rejected, never for those of earlier reads alone. A read
//! goes from one position at the end of a source to the next, over any number of runs: a run that
//! continues an interrupted read counts its rejects too, or running again would pass the limit.

use feedline_schemas::commit::{BatchCounts, CommitEntry, Position};

use super::source_run::Run;
use crate::{batch::Decided, dedup::count_current_rejects, error::Error, report::reject_sample};

/// Records after which the fraction of rejects is checked at every batch; before, only at the end.
const JUDGED_AFTER: u64 = 1_000;

/// Number of rejects of a read at which its own fraction ends the run: fewer are no trend, and count
/// with those of all reads.
pub const READ_REJECTS: u64 = 20;

/// Records that landed and were rejected by the runs before this one of the same read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReadBefore {
    rows: u64,
    rejected: u64,
}

impl ReadBefore {
    fn add(&mut self, entry: &CommitEntry) {
        match entry.state.position {
            Position::Done { .. } => *self = Self::default(),
            _ => {
                self.rows += entry.counts.rows;
                self.rejected += entry.counts.rejected;
            }
        }
    }
}

/// Rejected records among those that landed or were rejected. Duplicates are neither: without them,
/// records that are read again in a lookback or an overlap of pages do not change the fraction.
#[derive(Clone, Copy, Debug)]
struct RejectFraction {
    rejected: u64,
    records: u64,
    /// Name of the records in messages.
    scope: &'static str,
}

impl RejectFraction {
    fn new(landed: u64, rejected: u64, scope: &'static str) -> Self {
        Self {
            rejected,
            records: landed + rejected,
            scope,
        }
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "a share of counts far below 2^53"
    )]
    fn share(self) -> f64 {
        match self.records {
            0 => 0.0,
            records => self.rejected as f64 / records as f64,
        }
    }

    /// Returns true if enough was read to know the fraction, and it is more than `max_share`.
    fn is_above(self, max_share: f64, is_done: bool) -> bool {
        let is_due = is_done || self.records >= JUDGED_AFTER;
        is_due && self.share() > max_share
    }
}

impl Run<'_> {
    /// Ends the run when its read rejects too many records: so many that the limit is exceeded by
    /// the records of the read, and by those of all reads too where few of this one are rejected.
    pub(super) async fn check_rejects(
        &mut self,
        totals: &BatchCounts,
        batch: &BatchCounts,
        is_done: bool,
        decided: &Decided,
    ) -> Result<(), Error> {
        let max_share = self.config.contract.max_reject_fraction.get();
        let before = self.read_before(totals).await?;
        let rejected = before.rejected + self.log.appended_rejects() + batch.rejected;
        let of_read = RejectFraction::new(
            before.rows + self.log.appended_rows() + batch.rows,
            // Retried ones are not rejected any more.
            rejected.min(totals.rejected),
            "new records",
        );
        if of_read.share() <= max_share {
            return Ok(());
        }
        let all = self.all_records(totals, batch, max_share, is_done).await?;
        let is_read_over = of_read.rejected >= READ_REJECTS && of_read.is_above(max_share, is_done);
        let over = match all.is_above(max_share, is_done) {
            true => all,
            false if is_read_over => of_read,
            false => return Ok(()),
        };
        let reasons = if batch.rejected > 0 { batch } else { totals };
        let (reason, sample) = self.most_frequent_reject(reasons, decided).await?;
        Err(Error::TooManyRejects {
            source: self.config.name.to_string(),
            rejected: over.rejected,
            records: over.records,
            scope: over.scope,
            max_share,
            reason,
            sample: self.masks.mask(&sample.unwrap_or_default()),
        })
    }

    /// Counts of the interrupted runs of the read that this run continues.
    async fn read_before(&mut self, totals: &BatchCounts) -> Result<ReadBefore, Error> {
        if let Some(before) = self.read_before {
            return Ok(before);
        }
        let is_new = matches!(self.position(), Position::Done { .. });
        if is_new || totals.rejected == 0 {
            return Ok(ReadBefore::default());
        }
        let mut before = self.log.fold(ReadBefore::default, ReadBefore::add).await?;
        before.rows = before.rows.saturating_sub(self.log.appended_rows());
        let own = self.log.appended_rejects();
        before.rejected = before.rejected.saturating_sub(own);
        self.read_before = Some(before);
        Ok(before)
    }

    /// The fraction of all reads. With `key`, a reject of an earlier batch does not count once its key
    /// has landed or was rejected again.
    async fn all_records(
        &mut self,
        totals: &BatchCounts,
        batch: &BatchCounts,
        max_share: f64,
        is_done: bool,
    ) -> Result<RejectFraction, Error> {
        let all = RejectFraction::new(totals.rows, totals.rejected, "records");
        let key = &self.config.key;
        if key.is_empty() || !all.is_above(max_share, is_done) {
            return Ok(all);
        }
        self.log.load_all().await?;
        let current = count_current_rejects(self.log.landing(), self.log.entries(), key).await?;
        let rejected = totals.rejected.min(current + batch.rejected);
        Ok(RejectFraction::new(totals.rows, rejected, all.scope))
    }

    /// Returns the most frequent reason of the rejects in `counts`, and one of them, of that reason if
    /// the batch has any.
    async fn most_frequent_reject(
        &self,
        counts: &BatchCounts,
        decided: &Decided,
    ) -> Result<(String, Option<String>), Error> {
        // Of equally frequent ones the last in the alphabet.
        let most = counts
            .rejected_by_reason
            .iter()
            .max_by_key(|(_, count)| **count);
        let reason = most.map(|(reason, _)| reason.clone()).unwrap_or_default();
        let sample = decided
            .rejects()
            .iter()
            .find(|reject| reject.reason == reason);
        let sample = match sample.or(decided.rejects().first()) {
            Some(reject) => Some(reject.sample()),
            None => {
                let rejects = self.log.known_sums().rejects;
                reject_sample(self.log.landing(), rejects.as_ref()).await?
            }
        };
        Ok((reason, sample))
    }
}
