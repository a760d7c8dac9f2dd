//! Landing a batch: its files first, then the entry of the log that names them.

use std::{collections::BTreeMap, mem};

use feedline_schemas::{
    commit::{
        BatchCounts, ChildTable, CommitEntry, DataFile, FilePart, Ledger, Position, SourceState,
    },
    config::CsvConfig,
    ids::{Hash128, Name, Sequence},
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
    backfill::{CursorLines, write_cursors},
    batch::Encoded,
    batch_counts::{subtract, sum},
    commit_log::Commit,
    contract,
    error::Error,
    file_marks::Folded,
    held_warnings::without_users,
    infer,
    source_table::unit_of,
    source_type::ReadUnit,
    superseded_files, warnings,
};

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
        mut pages: GatheredPages,
        position: Position,
        not_before: Option<NotBefore>,
    ) -> Result<(), Error> {
        let cursors = pages.cursors.take();
        if !self.repeats.is_loaded() && pages.batch.len() > 0 {
            self.load_repeats().await?;
        }
        let began = Instant::now();
        let mut pending = self.decide_pages(pages, position, not_before).await?;
        // Each batch of an archive becomes an entry, so the two logs correspond.
        let is_replay = self.tape.is_some();
        let is_repeated = !self.config.crawl.refresh.is_never();
        let is_no_news = !is_repeated && is_no_news(&self.position(), &pending.position);
        let ends_deferral = pending.position.has_failures() && self.is_deferred();
        let needs_entry = is_replay || ends_deferral;
        if pending.is_still() && !needs_entry && is_no_news && !self.has_new(cursors.as_ref()) {
            self.note_unlanded(pending);
            return Ok(());
        }
        let totals = pending.totals(self.totals());
        let is_done = matches!(pending.position, Position::Done { .. });
        if let Position::Done { pages, .. } = &mut pending.position {
            *pages = totals.pages;
        }
        self.check_rejects(&totals, &pending.counts, is_done, &pending.prepared.decided)
            .await?;
        let files = self.write_files(&mut pending.prepared).await?;
        self.write_cursors(cursors, &mut pending.position).await?;
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

    /// Returns true if the last entry has a delay.
    fn is_deferred(&self) -> bool {
        let last = self.log.last();
        last.is_some_and(|entry| entry.state.not_before_unix_s.is_some())
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
            cursors: _,
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
            warnings::mask_warning(warning, &self.masks);
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
                detail: self.masks.mask_message(&detail),
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

    /// Returns true if the newest cursors of the values of a list are not those of the log: of a setting
    /// that has changed, or without their file.
    fn has_new(&self, cursors: Option<&CursorLines>) -> bool {
        let position = self.position();
        let saved = position.ledger().and_then(|ledger| ledger.cursors);
        cursors.is_some_and(|cursors| {
            cursors.is_lost || saved != Some(Hash128::of(cursors.text.as_bytes()))
        })
    }

    /// Writes the newest cursors of the values of a list, for `position` to name their file.
    async fn write_cursors(
        &self,
        cursors: Option<CursorLines>,
        position: &mut Position,
    ) -> Result<(), Error> {
        let is_done = matches!(position, Position::Done { .. });
        if let (Some(lines), Some(ledger)) = (cursors, position.ledger_mut()) {
            let written = write_cursors(self.log.landing(), lines.text, is_done);
            ledger.cursors = Some(written.await?);
        }
        Ok(())
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
        let known = last.state.warnings.iter().cloned();
        let mut known: Vec<Warning> = known.map(without_users).collect();
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
}

/// Returns true if a finished source is unchanged. Each check would otherwise add an entry to its
/// log.
fn is_no_news(from: &Position, to: &Position) -> bool {
    match (from, to) {
        (Position::Done { run: before, .. }, Position::Done { run: after, .. }) => {
            let is_same = before.high == after.high
                && before.ahead == after.ahead
                && before.interrupted == after.interrupted;
            match (&before.ledger, &after.ledger) {
                // Only time may have extended the range; the finished part has not changed.
                (Some(before), Some(after)) => is_same_ledger(before, after),
                // All failed pages of a crawl have failed again.
                _ if !before.failed_pages.is_default() => before.failed_pages == after.failed_pages,
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
            failed,
            ..
        } = ledger.clone();
        (done, values, values_hash, absent, failed)
    };
    what(before) == what(after)
}
