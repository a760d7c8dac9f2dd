//! Landing a batch: its files first, then the entry of the log that names them.

use std::{
    collections::{BTreeMap, HashSet},
    mem,
};

use feedline_schemas::{
    commit::{BatchCounts, ChildTable, DataFile, Ledger, Position, SourceState},
    config::SourceKind,
    csv_cell::CellFormat,
    ids::{Name, Sequence},
    record::ColumnType,
    report::{Warning, replace_warning},
};
use tokio::time::Instant;
use tracing::{info, warn};

use super::{
    reading::GatheredPages,
    source_run::{NotBefore, Run},
    superseded::Superseded,
};
use crate::{
    batch::{Batch, Decided, Encoded},
    batch_counts::{subtract, sum},
    blocking::computing,
    commit_log::Commit,
    contract::{self, Before},
    error::Error,
    file_marks::Folded,
    infer::{self, Types},
    raw::{self, Exchange},
    report::reject_sample,
    superseded_files, warnings,
};

/// Records after which the fraction of rejects is checked at every batch; before, only at the end.
const JUDGED_AFTER: u64 = 1_000;

/// A batch ready to be written.
pub(super) struct Prepared {
    pub(super) decided: Decided,
    /// Planned types of columns without a value so far.
    pub(super) planned: Types,
    pub(super) data: Option<Encoded>,
    pub(super) rejects: Option<Encoded>,
    frontier: Option<Encoded>,
    pub(super) validators: Option<Encoded>,
    pub(super) raw: Option<Encoded>,
    pub(super) children: BTreeMap<Name, (ChildTable, Option<Encoded>)>,
}

impl Run<'_> {
    /// Lands a batch: its files first, then the entry that names them and the delay, if there is
    /// one.
    pub(super) async fn commit(
        &mut self,
        pages: GatheredPages,
        mut position: Position,
        not_before: Option<NotBefore>,
    ) -> Result<(), Error> {
        let GatheredPages {
            batch,
            answers,
            warnings,
        } = pages;
        if !self.knows && batch.len() > 0 {
            self.know().await?;
        }
        let began = Instant::now();
        let sequence = self.log.next_sequence();
        let mut batch = batch;
        let (parts, superseded) = batch.take_parts();
        batch.set_files(&self.config.url, &parts);
        let Superseded {
            replaced,
            child_rows,
            rejected_by_reason,
            warnings: about_files,
        } = self.supersede(&superseded).await?;
        batch.warn(about_files);
        self.recall(&position).await?;
        let Prepared {
            decided,
            planned,
            data,
            rejects,
            frontier,
            validators,
            raw,
            children: child_files,
        } = self.prepare(batch, answers, sequence).await?;
        let mut counts = decided.counts();
        counts.superseded = replaced.iter().map(|replaced| replaced.rows).sum();
        let known = self.known_warnings();
        let mut warnings = warnings::apply(known.clone(), warnings);
        let is_still =
            counts.rows + counts.rejected == 0 && not_before.is_none() && warnings == known;
        // Each batch of an archive becomes an entry, so the two logs correspond.
        let is_replay = self.tape.is_some();
        if is_still && !is_replay && is_no_news(&self.position(), &position) {
            for (reason, count) in counts.skipped {
                *self.unlanded.entry(reason).or_default() += count;
            }
            self.unlanded_warnings.extend(decided.warnings);
            let (source, duplicates) = (&self.config.name, counts.duplicates);
            info!(%source, duplicates, "nothing new");
            return Ok(());
        }
        let mut totals = sum(self.totals(), &counts);
        let rejected: u64 = rejected_by_reason.values().sum();
        totals.rejected = totals.rejected.saturating_sub(rejected);
        subtract(&mut totals.rejected_by_reason, &rejected_by_reason);
        for (name, rows) in child_rows {
            let total = totals.children.entry(name.to_string()).or_default();
            *total = total.saturating_sub(rows);
        }
        let is_done = matches!(position, Position::Done { .. });
        if let Position::Done { pages, .. } = &mut position {
            *pages = totals.pages;
        }
        self.judge(&totals, is_done, &decided).await?;
        let files = self.put(data).await?;
        let rejects = self.put(rejects).await?;
        let frontier = self.put(frontier).await?;
        let validators = self.put(validators).await?;
        let raw = self.put(raw).await?;
        let (marks, all_marks) = match self.folded.take() {
            Some(Folded { encoded, all }) => (self.put(encoded).await?, all),
            None => (Vec::new(), self.marks()),
        };
        let mut children = BTreeMap::new();
        for (name, (table, encoded)) in child_files {
            self.put(encoded).await?;
            children.insert(name, table);
        }
        let (rows, rejected, pages) = (counts.rows, counts.rejected, counts.pages);
        let presence = decided.presence;
        for warning in decided.warnings {
            if !warnings.contains(&warning) {
                warn!(source = %self.config.name, "{}", warning.message);
            }
            replace_warning(&mut warnings, warning);
        }
        self.warn_of_position(&mut warnings, &position);
        let state = SourceState {
            totals,
            position,
            not_before_unix_s: not_before.map(|wait| wait.until_unix_s),
            not_before_wait_s: not_before.map(|wait| wait.wait_s),
            presence,
            planned,
            warnings,
            marks: all_marks,
        };
        self.log
            .append(Commit {
                schema: decided.schema,
                files,
                rejects,
                frontier,
                validators,
                raw,
                children,
                parts,
                replaced,
                compacted: Vec::new(),
                marks,
                counts,
                settings: None,
                withdrawn: Vec::new(),
                reset_to: None,
                rewound_to: None,
                expired: Vec::new(),
                state,
            })
            .await?;
        let gone = self.log.take_gone();
        superseded_files::set_aside(self.log.landing(), &gone).await?;
        self.log.snapshot_if_due().await;
        self.committed(began.elapsed());
        info!(source = %self.config.name, %sequence, rows, rejected, pages, "batch landed");
        self.warn(sequence);
        Ok(())
    }

    /// Returns the warnings of the last entry that still hold. Those about files hold for the run
    /// that read the files, those about types of columns until a reset.
    fn known_warnings(&self) -> Vec<Warning> {
        let Some(last) = self.log.last() else {
            return Vec::new();
        };
        let is_files = self.config.r#type == SourceKind::Files;
        let mut known = last.state.warnings.clone();
        if is_files && last.run_id != self.context.run_id {
            let cut = [contract::DIGITS_CUT];
            let codes = [&infer::TYPE_WARNINGS[..], &contract::IMAGE_WARNINGS, &cut].concat();
            known.retain(|warning| codes.contains(&warning.code.as_str()));
        }
        known
    }

    /// Warns of values that the last batch has lost.
    pub(super) fn warn(&self, sequence: Sequence) {
        let mut newest = self.log.entries().iter().rev();
        let newest = [newest.next(), newest.next()];
        for kind in contract::ALARMS {
            let [now, before] =
                newest.map(|entry| entry.and_then(|entry| entry.counts.decisions.get(kind)));
            for (column, noted) in now.into_iter().flatten() {
                // Logged once while it lasts.
                if before.is_none_or(|before| !before.contains_key(column)) {
                    let what = kind.replace('_', " ");
                    warn!(source = %self.config.name, %sequence, "column `{column}` {what}: {}", noted.sample);
                }
            }
        }
    }

    /// Decides and encodes a batch. After an error the window is void: the run is over.
    pub(super) async fn prepare(
        &mut self,
        mut batch: Batch,
        answers: Vec<Exchange>,
        sequence: Sequence,
    ) -> Result<Prepared, Error> {
        // An entry without columns landed nothing: the first columns make the first version.
        let before = self.log.last().map(|entry| Before {
            schema: entry.schema.clone(),
            presence: entry.state.presence.clone(),
        });
        let before = before.filter(|before| !before.schema.columns.is_empty());
        let children = self.log.last().map(|entry| entry.children.clone());
        batch.follow(children.unwrap_or_default());
        let config = self.config.clone();
        let last = self.log.last();
        let mut planned = last.map(|entry| entry.state.planned.clone());
        let sample = self.sample.clone();
        let mut window = mem::take(&mut self.window);
        let work = move || {
            let mut planned = planned.take().unwrap_or_default();
            match &before {
                None => {
                    let found = infer::of_first(batch.records(), &config, sample.as_deref());
                    planned = found.types;
                    batch.warn(found.warnings);
                }
                Some(before) => {
                    let columns = before.schema.columns.iter();
                    let columns = columns.map(|column| column.name.as_str());
                    let known: HashSet<&str> =
                        columns.chain(planned.keys().map(String::as_str)).collect();
                    let found = infer::of_new_columns(batch.records(), &config, &known);
                    planned.extend(found.types);
                    batch.warn(found.warnings);
                }
            }
            batch.plan(planned.clone(), CellFormat::new(&config.csv));
            let (name, contract) = (&config.name, &config.contract);
            let decided = batch.decide(name.as_str(), contract, before.as_ref(), &mut window)?;
            let made = &decided.schema.columns;
            let is_open = |name: &String| {
                let found = made.iter().find(|column| column.name == *name);
                found.is_none_or(|column| column.r#type == ColumnType::Null)
            };
            planned.retain(|name, _| is_open(name));
            let data = decided.data_file(sequence)?;
            let settled = window.settle(data.as_ref().map(|data| &data.bytes));
            settled.map_err(|reason| Error::Landed {
                url: format!("the data file of batch {sequence}"),
                reason,
            })?;
            let rejects = decided.rejects_file(sequence)?;
            let frontier = decided.frontier_file(sequence)?;
            let validators = decided.validators_file(sequence)?;
            let raw = raw::file(&answers, sequence)?;
            let children = decided.child_files(sequence)?;
            Ok((
                window,
                Prepared {
                    decided,
                    planned,
                    data,
                    rejects,
                    frontier,
                    validators,
                    raw,
                    children,
                },
            ))
        };
        let (window, prepared) = computing(work).await?;
        self.window = window;
        Ok(prepared)
    }

    pub(super) async fn put(&mut self, encoded: Option<Encoded>) -> Result<Vec<DataFile>, Error> {
        let Some(encoded) = encoded else {
            return Ok(Vec::new());
        };
        let file = encoded.file.clone();
        self.log.put(encoded).await?;
        Ok(vec![file])
    }

    /// Stops the run when too many records are rejected.
    async fn judge(
        &self,
        totals: &BatchCounts,
        is_done: bool,
        decided: &Decided,
    ) -> Result<(), Error> {
        let records = totals.rows + totals.duplicates + totals.rejected;
        let max_share = self.config.contract.max_reject_fraction.get();
        let is_over = share(totals.rejected, records) > max_share;
        if !is_over || (records < JUDGED_AFTER && !is_done) {
            return Ok(());
        }
        // The most frequent reason; of equally frequent ones the last in the alphabet.
        let most = totals
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
        Err(Error::TooManyRejects {
            source: self.config.name.to_string(),
            rejected: totals.rejected,
            records,
            max_share,
            reason,
            sample: sample.unwrap_or_default(),
        })
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
