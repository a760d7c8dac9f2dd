//! Landing a batch: its files first, then the entry of the log that names them.

use std::{collections::BTreeMap, mem};

use feedline_schemas::{
    commit::{
        BatchCounts, ChildTable, CommitEntry, DataFile, FilePart, Ledger, Position, SourceState,
    },
    config::CsvConfig,
    ids::{Name, Sequence},
    report::{Warning, replace_warning},
};
use tokio::time::Instant;
use tracing::{info, warn};

use super::{
    batch_reader::GatheredPages,
    prepare::Prepared,
    source_run::{NotBefore, Run},
    superseded::Superseded,
};
use crate::{
    batch::{Decided, Encoded},
    batch_counts::{subtract, sum},
    commit_log::Commit,
    contract,
    error::Error,
    file_marks::Folded,
    infer,
    report::reject_sample,
    source_table::unit_of,
    source_type::ReadUnit,
    superseded_files, warnings,
};

/// Records after which the fraction of rejects is checked at every batch; before, only at the end.
pub const JUDGED_AFTER: u64 = 1_000;

/// Number of rejects of a run at which its own fraction is checked too: fewer are no trend.
const RUN_REJECTS: u64 = 20;

/// Rejected records among those that landed or were rejected. Duplicates are neither: without them,
/// records that are read again in a lookback or an overlap of pages do not change the fraction.
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

    /// Returns true if enough was read to know the fraction, and it is more than `max_share`.
    fn is_above(&self, max_share: f64, is_done: bool) -> bool {
        let is_due = is_done || self.records >= JUDGED_AFTER;
        is_due && share(self.rejected, self.records) > max_share
    }
}

/// A decided batch that has not landed yet.
struct PendingBatch {
    sequence: Sequence,
    prepared: Prepared,
    counts: BatchCounts,
    /// Files that its records come from.
    parts: Vec<FilePart>,
    superseded: Superseded,
    /// Position after it.
    position: Position,
    not_before: Option<NotBefore>,
    /// Warnings of the entry before, and those after the pages of the batch.
    known_warnings: Vec<Warning>,
    warnings: Vec<Warning>,
}

/// Files of a batch, once they are written.
struct WrittenFiles {
    data: Vec<DataFile>,
    rejects: Vec<DataFile>,
    frontier: Vec<DataFile>,
    validators: Vec<DataFile>,
    raw: Vec<DataFile>,
    children: BTreeMap<Name, ChildTable>,
    /// New marks of read files.
    marks: Vec<DataFile>,
    /// All marks of read files that count after the batch.
    all_marks: Vec<DataFile>,
}

impl PendingBatch {
    /// Returns true if the batch has no records, and neither a delay nor a change of warnings.
    fn is_still(&self) -> bool {
        self.counts.rows + self.counts.rejected == 0
            && self.not_before.is_none()
            && self.warnings == self.known_warnings
    }

    /// Returns the totals of the source after this batch, from those `before` it.
    fn totals(&self, before: BatchCounts) -> BatchCounts {
        let mut totals = sum(before, &self.counts);
        let rejected_by_reason = &self.superseded.rejected_by_reason;
        let rejected: u64 = rejected_by_reason.values().sum();
        totals.rejected = totals.rejected.saturating_sub(rejected);
        subtract(&mut totals.rejected_by_reason, rejected_by_reason);
        for (name, rows) in &self.superseded.child_rows {
            let total = totals.children.entry(name.to_string()).or_default();
            *total = total.saturating_sub(*rows);
        }
        totals
    }

    /// The entry of the log for this batch.
    fn into_commit(self, totals: BatchCounts, files: WrittenFiles) -> Commit {
        let Prepared {
            decided, planned, ..
        } = self.prepared;
        let state = SourceState {
            totals,
            position: self.position,
            not_before_unix_s: self.not_before.map(|wait| wait.until_unix_s),
            not_before_wait_s: self.not_before.map(|wait| wait.wait_s),
            presence: decided.presence,
            planned,
            warnings: self.warnings,
            marks: files.all_marks,
        };
        Commit {
            schema: decided.schema,
            files: files.data,
            rejects: files.rejects,
            frontier: files.frontier,
            validators: files.validators,
            raw: files.raw,
            children: files.children,
            parts: self.parts,
            replaced: self.superseded.replaced,
            compacted: Vec::new(),
            marks: files.marks,
            counts: self.counts,
            settings: None,
            withdrawn: Vec::new(),
            reset_to: None,
            rewound_to: None,
            expired: Vec::new(),
            state,
        }
    }
}

impl Run<'_> {
    /// Lands a batch: its files first, then the entry that names them and the delay, if there is
    /// one.
    pub(super) async fn commit(
        &mut self,
        pages: GatheredPages,
        position: Position,
        not_before: Option<NotBefore>,
    ) -> Result<(), Error> {
        if !self.repeats.is_loaded() && pages.batch.len() > 0 {
            self.load_repeats().await?;
        }
        let began = Instant::now();
        let mut pending = self.decide_pages(pages, position, not_before).await?;
        // Each batch of an archive becomes an entry, so the two logs correspond.
        let is_replay = self.tape.is_some();
        if pending.is_still() && !is_replay && is_no_news(&self.position(), &pending.position) {
            self.note_unlanded(pending);
            return Ok(());
        }
        let totals = pending.totals(self.totals());
        let is_done = matches!(pending.position, Position::Done { .. });
        if let Position::Done { pages, .. } = &mut pending.position {
            *pages = totals.pages;
        }
        self.judge(&totals, &pending.counts, is_done, &pending.prepared.decided)
            .await?;
        let files = self.write_files(&mut pending.prepared).await?;
        self.update_warnings(&mut pending);
        self.missing_required
            .add(self.config, &pending.counts.decisions);
        let (sequence, counts) = (pending.sequence, &pending.counts);
        let (rows, rejected, pages) = (counts.rows, counts.rejected, counts.pages);
        self.log.append(pending.into_commit(totals, files)).await?;
        let gone = self.log.take_gone();
        superseded_files::set_aside(self.log.landing(), &gone).await?;
        self.log.snapshot_if_due().await;
        self.record_commit(began.elapsed());
        info!(source = %self.config.name, %sequence, rows, rejected, pages, "batch landed");
        self.warn(sequence);
        Ok(())
    }

    /// Decides the records of pages, and prepares the files of their batch.
    async fn decide_pages(
        &mut self,
        pages: GatheredPages,
        position: Position,
        not_before: Option<NotBefore>,
    ) -> Result<PendingBatch, Error> {
        let GatheredPages {
            mut batch,
            answers,
            warnings,
        } = pages;
        let sequence = self.log.next_sequence();
        let (parts, urls) = batch.take_parts();
        batch.set_files(&self.config.url, &parts);
        let mut superseded = self.supersede(&urls).await?;
        batch.warn(mem::take(&mut superseded.warnings));
        self.repeats
            .load_for_slices(self.config, &mut self.log, &mut self.window, &position)
            .await?;
        let is_csv_used =
            self.config.csv != CsvConfig::default() && infer::has_cells(batch.records());
        let prepared = self.prepare(batch, answers, sequence).await;
        let mut prepared = prepared.map_err(|error| self.mask_error(error))?;
        let mut counts = prepared.decided.counts();
        self.mask_secrets(&mut prepared.decided.warnings, &mut counts);
        counts.superseded = superseded
            .replaced
            .iter()
            .map(|replaced| replaced.rows)
            .sum();
        let known_warnings = self.known_warnings();
        let mut warnings = warnings::apply(known_warnings.clone(), warnings);
        if is_csv_used {
            // Those of earlier batches, and of a sample of other files.
            for held in [&mut warnings, &mut prepared.decided.warnings] {
                held.retain(|warning| warning.code != infer::CSV_NOT_USED);
            }
        }
        Ok(PendingBatch {
            sequence,
            prepared,
            counts,
            parts,
            superseded,
            position,
            not_before,
            warnings,
            known_warnings,
        })
    }

    /// Masks the secrets that a server repeated in its records.
    fn mask_secrets(&self, warnings: &mut [Warning], counts: &mut BatchCounts) {
        for warning in warnings {
            warning.message = self.masks.mask(&warning.message);
        }
        let decisions = counts.decisions.values_mut();
        for noted in decisions.flat_map(BTreeMap::values_mut) {
            noted.sample = self.masks.mask(&noted.sample);
        }
    }

    /// Masks the secrets in the record of an error.
    fn mask_error(&self, error: Error) -> Error {
        match error {
            Error::Frozen {
                source,
                key,
                detail,
                record,
            } => Error::Frozen {
                source,
                key,
                detail: self.masks.mask(&detail),
                record: self.masks.mask(&record),
            },
            error => error,
        }
    }

    /// Keeps the counts and warnings of a batch that is not worth an entry.
    fn note_unlanded(&mut self, pending: PendingBatch) {
        let PendingBatch {
            counts, prepared, ..
        } = pending;
        for (reason, count) in counts.skipped {
            *self.unlanded.entry(reason).or_default() += count;
        }
        self.unlanded_warnings.extend(prepared.decided.warnings);
        let (source, duplicates) = (&self.config.name, counts.duplicates);
        info!(%source, duplicates, "nothing new");
    }

    /// Writes the files of a batch.
    async fn write_files(&mut self, prepared: &mut Prepared) -> Result<WrittenFiles, Error> {
        let data = self.put(prepared.data.take()).await?;
        let rejects = self.put(prepared.rejects.take()).await?;
        let frontier = self.put(prepared.frontier.take()).await?;
        let validators = self.put(prepared.validators.take()).await?;
        let raw = self.put(prepared.raw.take()).await?;
        let (marks, all_marks) = match self.folded.take() {
            Some(Folded { encoded, all }) => (self.put(encoded).await?, all),
            None => (Vec::new(), self.marks()),
        };
        let mut children = BTreeMap::new();
        for (name, (table, encoded)) in mem::take(&mut prepared.children) {
            self.put(encoded).await?;
            children.insert(name, table);
        }
        Ok(WrittenFiles {
            data,
            rejects,
            frontier,
            validators,
            raw,
            children,
            marks,
            all_marks,
        })
    }

    /// Adds the warnings about the records of a batch and about its position, and logs new ones.
    fn update_warnings(&self, pending: &mut PendingBatch) {
        // Warnings about the first columns are about all columns of a sample.
        let has_landed = |last: &CommitEntry| !last.schema.columns.is_empty();
        let has_columns = self.log.last().is_some_and(has_landed);
        for warning in mem::take(&mut pending.prepared.decided.warnings) {
            if self.is_logged(&warning) && !pending.warnings.contains(&warning) {
                warn!(source = %self.config.name, "{}", warning.message);
            }
            match has_columns {
                true => infer::add_column_warning(&mut pending.warnings, warning),
                false => replace_warning(&mut pending.warnings, warning),
            }
        }
        self.warn_of_position(&mut pending.warnings, &pending.position);
    }

    /// Returns false for a warning about types of columns that a trial has or the dataset expects.
    fn is_logged(&self, warning: &Warning) -> bool {
        let name = self.config.name.as_str();
        let is_trial = self.context.is_trial && infer::is_about_types(warning);
        !is_trial && !self.context.formatted_dates.cover(name, warning)
    }

    /// Returns the warnings of the last entry that still hold. Those about files hold for the run
    /// that read the files, those about types of columns until a reset.
    fn known_warnings(&self) -> Vec<Warning> {
        let Some(last) = self.log.last() else {
            return Vec::new();
        };
        let is_files = unit_of(self.config) == ReadUnit::File;
        let mut known = last.state.warnings.clone();
        if is_files && last.run_id != self.context.run_id {
            let cells = [contract::DIGITS_CUT, contract::TEXT_AS_HEX];
            let codes = [&infer::TYPE_WARNINGS[..], &contract::IMAGE_WARNINGS, &cells].concat();
            known.retain(|warning| codes.contains(&warning.code.as_str()));
        }
        known
    }

    /// Warns of values that the last batch has lost.
    pub(super) fn warn(&self, sequence: Sequence) {
        let mut newest = self.log.entries().iter().rev();
        let now = newest.next();
        let before = newest.next();
        let before = before.filter(|before| before.run_id == self.context.run_id);
        for kind in contract::ALARMS {
            let [now, before] =
                [now, before].map(|entry| entry.and_then(|entry| entry.counts.decisions.get(kind)));
            for (column, noted) in now.into_iter().flatten() {
                // Logged once in each run while it lasts.
                if before.is_none_or(|before| !before.contains_key(column)) {
                    let what = kind.replace('_', " ");
                    warn!(source = %self.config.name, %sequence, "column `{column}` {what}: {}", noted.sample);
                }
            }
        }
    }

    pub(super) async fn put(&mut self, encoded: Option<Encoded>) -> Result<Vec<DataFile>, Error> {
        let Some(encoded) = encoded else {
            return Ok(Vec::new());
        };
        let file = encoded.file.clone();
        self.log.put(encoded).await?;
        Ok(vec![file])
    }

    /// Stops the run when too many records are rejected: of all that ever landed or were rejected, or of
    /// those that are new in this run, whose fraction a long history would hide.
    async fn judge(
        &self,
        totals: &BatchCounts,
        batch: &BatchCounts,
        is_done: bool,
        decided: &Decided,
    ) -> Result<(), Error> {
        let max_share = self.config.contract.max_reject_fraction.get();
        let all = RejectFraction::new(totals.rows, totals.rejected, "records");
        let of_run = RejectFraction::new(
            self.log.appended_rows() + batch.rows,
            self.log.appended_rejects() + batch.rejected,
            "new records of this run",
        );
        let is_run_over = of_run.rejected >= RUN_REJECTS && of_run.is_above(max_share, is_done);
        let (over, reasons) = match all.is_above(max_share, is_done) {
            true => (all, totals),
            false if is_run_over && batch.rejected > 0 => (of_run, batch),
            false if is_run_over => (of_run, totals),
            false => return Ok(()),
        };
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

/// Returns true if a finished source is unchanged. Each check would otherwise add an entry to its
/// log.
fn is_no_news(from: &Position, to: &Position) -> bool {
    match (from, to) {
        (Position::Done { run: before, .. }, Position::Done { run: after, .. }) => {
            let is_same = before.high == after.high && before.ahead == after.ahead;
            match (&before.ledger, &after.ledger) {
                // Only time may have extended the range; the finished part has not changed.
                (Some(before), Some(after)) => is_same_ledger(before, after),
                _ => is_same && after.number > before.number,
            }
        }
        _ => false,
    }
}

fn is_same_ledger(before: &Ledger, after: &Ledger) -> bool {
    let what = |ledger: &Ledger| {
        let Ledger {
            done,
            values,
            values_hash,
            absent,
            ..
        } = ledger.clone();
        (done, values, values_hash, absent)
    };
    what(before) == what(after)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a share of counts far below 2^53"
)]
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}
