//! Retries rejected records under the current contract.
//!
//! Some files of rejected records make a batch. Its landed and rejected records are committed by an
//! ordinary entry that withdraws the files that they came from. So a kill leaves each record either
//! in its old place or in its new one, and the reject fraction counts only the remaining rejects.

use std::collections::{BTreeMap, HashSet};

use arrow::{
    array::{Array, AsArray},
    datatypes::UInt32Type,
};
use feedline_readers::{
    record::Record,
    value::{Value, one_line, shorten},
};
use feedline_schemas::{
    amendment::{AmendReport, Withdrawn, WithdrawnReason},
    commit::{BatchCounts, CommitEntry, DataFile, FilePart},
    config::{PipelineConfig, SourceConfig},
    count::counted,
    ids::{Hash128, Name, Sequence},
    record::system,
};
use feedline_storage::Store;

use super::{
    overtaken::{LandingOrder, find_overtaken},
    prepare::Prepared,
    source_run::Run,
};
use crate::{
    amend::withdrawn_files::sweep,
    batch::{Batch, rejects},
    batch_counts::{subtract, sum},
    commit_log::{Commit, CommitLog},
    context::Context,
    dedup::read_hashes,
    error::Error,
    file_marks::expand,
    landed_file,
    setting_changes::adopt,
    settings::{config_hash, one},
    source::{Crawled, Page, PagePart},
    source_table::{source_type, unit_of},
    source_type::ReadUnit,
    status::describe_next_run,
    watermark::highs,
};

/// Reasons of records that could not be read, which stay with them.
const KNOWN_REASONS: [&str; 16] = [
    "malformed_line",
    "not_an_object",
    "ragged_row",
    "empty_row",
    "unreadable_image",
    "not_fetched",
    "unreachable",
    "robots_unreachable",
    "unusable_answer",
    "refused",
    "bad_sitemap",
    "too_large",
    "too_many_attributes",
    "extraction_failed",
    "took_too_long",
    "host_too_slow",
];
/// Reasons of records with a value that is stored cut, or with U+FFFD in place of what cannot be read. No
/// contract accepts them: the stored value would land as if it were that of the source.
const CHANGED_REASONS: [&str; 5] = [
    "lone_surrogate",
    "invalid_utf8",
    "text_too_long",
    "too_deep",
    "too_wide",
];
/// Reason for records that were rejected with another one and are still unreadable.
const UNREADABLE: &str = "unreadable";

/// Retries the rejected records of a source under its current contract. Matching ones land, the
/// others stay rejected. With `dry_run` nothing is changed, and the result is only counted.
///
/// # Errors
/// [`Error::Config`], [`Error::Frozen`] if the contract stops at a record, [`Error::Log`] and
/// [`Error::Landed`] for damaged data, [`Error::Fenced`] if a run committed meanwhile,
/// [`Error::Storage`].
pub async fn retry_rejects(
    config: &PipelineConfig,
    source: &Name,
    context: &Context,
    dry_run: bool,
) -> Result<AmendReport, Error> {
    let (index, config) = one(config, source)?;
    let under = |error: Error| error.under(&format!("source.{index}"));
    let hash = config_hash(config);
    let log = CommitLog::open(&context.root, &config.name, &context.run_id, hash).await?;
    let mut log = log.with_delta(context);
    if !dry_run {
        let adopted = adopt(config, &mut log, &*context.secrets).await;
        adopted.map_err(under)?;
    }
    let mut report = AmendReport {
        command: "retry-rejects".to_owned(),
        source: config.name.to_string(),
        dry_run,
        ..AmendReport::default()
    };
    let has_rejects = log.entries().iter().any(|entry| !entry.rejects.is_empty());
    if has_rejects {
        let cells = match log.last() {
            Some(last) => {
                let read = expand(log.landing(), &last.state).await?;
                source_type(config)
                    .rejects_have_cells(config, &last.state.warnings, &read)
                    .map_err(under)?
            }
            None => false,
        };
        let mut run = Run::begin(config, context, log).await?;
        let retried = Box::pin(run.retry(cells, dry_run, &mut report)).await;
        report
            .notes
            .extend(retried.map_err(under)?.note(config, dry_run));
        log = run.log;
        if !dry_run {
            sweep(log.landing(), log.entries()).await?;
            log.cover_amendments().await;
        }
    } else {
        report.notes.push("no rejected records exist".to_owned());
    }
    if report.still_rejected > 0 {
        report.notes.push("remaining rejects stay in `rejects/`: change the contract and rerun this command, or, for lines that could not be parsed and values that are stored changed (not UTF-8, too long, too deep or too wide), correct the source or `contract.json` and re-read it (`feedline ingest reread`)".to_owned());
    }
    let warnings = log.delta_warnings();
    report
        .notes
        .extend(warnings.map(|warning| warning.message.clone()));
    let state = log.last().map(|last| last.state.clone());
    let highs = highs(log.entries());
    report.next = describe_next_run(
        config,
        state.as_ref(),
        &highs,
        context.clock.unix().as_secs(),
    );
    Ok(report)
}

/// A rejected record.
struct RetriedRecord {
    record: Record,
    /// Its place in the order of landing.
    order: LandingOrder,
    /// `files`: its file.
    url: Option<String>,
}

/// Files of rejected records that make a batch.
#[derive(Default)]
struct Retried {
    records: Vec<RetriedRecord>,
    withdrawn: Vec<Withdrawn>,
    by_reason: BTreeMap<String, u64>,
    rejected: u64,
    bytes: u64,
}

/// Rejected records that do not land, since their key has landed after they were rejected.
#[derive(Default)]
struct Overtaken {
    count: u64,
    /// The first one.
    sample: Option<String>,
}

impl Overtaken {
    fn add(&mut self, other: Self) {
        self.count += other.count;
        self.sample = self.sample.take().or(other.sample);
    }

    /// Note of the report about them.
    fn note(&self, config: &SourceConfig, dry_run: bool) -> Option<String> {
        let sample = self.sample.as_deref()?;
        let records = counted(self.count, "rejected record");
        let (land, end) = match (dry_run, self.count) {
            (true, _) => ("would not land", "would no longer count as rejected"),
            (false, 1) => ("does not land", "no longer counts as rejected"),
            (false, _) => ("do not land", "no longer count as rejected"),
        };
        let row = match config.version {
            Some(_) => "a row of the same `key` and `version`",
            None => "a row of the same `key`",
        };
        Some(format!(
            "{records} {land} and {end}, such as {}: {row} has landed after the rejection, and a dataset would read the retried record in its place",
            one_line(&shorten(sample, 200))
        ))
    }
}

/// The file of the record with the number `row` in a batch that was read from `parts`.
fn url_of(parts: &[FilePart], row: u64) -> Option<String> {
    let mut end = 0;
    let of = parts.iter().find(|part| {
        end += part.records;
        row < end
    });
    of.map(|part| part.url.clone())
}

/// The files of `records`, in their order.
fn parts_of(records: &[RetriedRecord]) -> Vec<PagePart> {
    let mut parts: Vec<PagePart> = Vec::new();
    for url in records.iter().filter_map(|record| record.url.as_ref()) {
        match parts.last_mut().filter(|last| last.part.url == *url) {
            Some(last) => last.part.records += 1,
            None => parts.push(PagePart {
                part: FilePart {
                    url: url.clone(),
                    records: 1,
                },
                supersedes: false,
                place: None,
            }),
        }
    }
    parts
}

impl Run<'_> {
    async fn retry(
        &mut self,
        cells: bool,
        dry_run: bool,
        report: &mut AmendReport,
    ) -> Result<Overtaken, Error> {
        // Each of them is decided again.
        self.window.know_rejects(HashSet::new());
        let of_entry = |entry: &CommitEntry| {
            let (sequence, parts) = (entry.sequence, entry.parts.clone());
            let files = entry.rejects.clone().into_iter();
            files.map(move |file| (sequence, parts.clone(), file))
        };
        let all: Vec<_> = self.log.entries().iter().flat_map(of_entry).collect();
        let mut waiting = all.into_iter().peekable();
        let mut overtaken = Overtaken::default();
        while waiting.peek().is_some() {
            let mut retried = Retried::default();
            while let Some((sequence, parts, file)) = waiting.next_if(|(.., file)| {
                retried.rejected == 0
                    || retried.rejected + file.rows <= self.config.batch.rows.get()
            }) {
                report.batches.push(sequence.get());
                retried.bytes += file.bytes;
                self.read_rejects(sequence, &file, &parts, cells, &mut retried)
                    .await?;
                retried.withdrawn.push(Withdrawn {
                    sequence,
                    reason: WithdrawnReason::Retried,
                    files: vec![file.path],
                });
            }
            let dropped = self.drop_overtaken(&mut retried).await?;
            self.retry_batch(retried, dropped.count, dry_run, report)
                .await?;
            overtaken.add(dropped);
        }
        Ok(overtaken)
    }

    /// Removes the records whose key has landed since they were rejected.
    async fn drop_overtaken(&self, retried: &mut Retried) -> Result<Overtaken, Error> {
        let records = retried.records.iter();
        let records: Vec<_> = records.map(|one| (&one.record, one.order)).collect();
        let (landing, entries) = (self.log.landing(), self.log.entries());
        let is_overtaken = find_overtaken(self.config, landing, entries, &records).await?;
        let mut dropped = Overtaken::default();
        let all = std::mem::take(&mut retried.records).into_iter();
        for (one, is_overtaken) in all.zip(is_overtaken) {
            if is_overtaken {
                dropped.add(Overtaken {
                    count: 1,
                    sample: Some(one.record.canonical()),
                });
            } else {
                retried.records.push(one);
            }
        }
        Ok(dropped)
    }

    async fn read_rejects(
        &self,
        sequence: Sequence,
        file: &DataFile,
        parts: &[FilePart],
        cells: bool,
        retried: &mut Retried,
    ) -> Result<(), Error> {
        let columns = [system::ROW, rejects::REASON, rejects::DETAIL, rejects::RAW];
        for batch in landed_file::read(self.log.landing(), file, &columns, None).await? {
            let text = |name: &str| {
                let column = batch.column_by_name(name);
                column.and_then(|column| column.as_string_opt::<i32>())
            };
            let columns = (
                text(rejects::REASON),
                text(rejects::DETAIL),
                text(rejects::RAW),
            );
            let numbers = batch.column_by_name(system::ROW);
            let numbers = numbers.and_then(|column| column.as_primitive_opt::<UInt32Type>());
            let (Some(numbers), (Some(reasons), Some(details), Some(raws))) = (numbers, columns)
            else {
                return Err(Error::Landed {
                    url: self.log.landing().url_of(&file.path),
                    reason: "its columns are not those of rejected records".into(),
                });
            };
            for row in 0..raws.len() {
                let (reason, raw) = (reasons.value(row), raws.value(row));
                *retried.by_reason.entry(reason.to_owned()).or_default() += 1;
                retried.rejected += 1;
                let number = u64::from(numbers.value(row));
                retried.records.push(RetriedRecord {
                    record: record(self.config, reason, details.value(row), raw, cells),
                    order: (sequence.get(), number),
                    url: url_of(parts, number),
                });
            }
        }
        Ok(())
    }

    async fn retry_batch(
        &mut self,
        retried: Retried,
        overtaken: u64,
        dry_run: bool,
        report: &mut AmendReport,
    ) -> Result<(), Error> {
        let Some(last) = self.log.last().cloned() else {
            return Ok(());
        };
        let parts = parts_of(&retried.records);
        let records = retried.records.into_iter().map(|one| one.record);
        let records: Vec<Record> = records.collect();
        if self.config.dedup_window() > 0 && unit_of(self.config) != ReadUnit::File {
            let known = landed_of(self.log.landing(), self.log.entries(), &records).await?;
            self.window.know(known);
        }
        let mut batch = Batch::default();
        batch.push(Page {
            records,
            next: last.state.position.clone(),
            // No page was read for it.
            crawled: Some(Crawled::default()),
            parts,
        })?;
        let (parts, _) = batch.take_parts();
        let sequence = self.log.next_sequence();
        let Prepared {
            decided,
            data,
            rejects,
            children: child_files,
            ..
        } = self.prepare(batch, Vec::new(), sequence).await?;
        let mut counts = decided.counts();
        counts.duplicates += overtaken;
        report.rejected += retried.rejected;
        report.landed += counts.rows;
        report.duplicates += counts.duplicates;
        report.still_rejected += counts.rejected;
        for (reason, count) in &counts.rejected_by_reason {
            *report.rejected_by_reason.entry(reason.clone()).or_default() += count;
        }
        if dry_run || counts.rows + counts.duplicates == 0 {
            return Ok(());
        }
        report.bytes += retried.bytes;
        let mut totals = last.state.totals.clone();
        totals.rejected = totals.rejected.saturating_sub(retried.rejected);
        subtract(&mut totals.rejected_by_reason, &retried.by_reason);
        let totals: BatchCounts = sum(totals, &counts);
        let files = self.put(data).await?;
        let rejects = self.put(rejects).await?;
        let mut children = BTreeMap::new();
        for (name, (table, encoded)) in child_files {
            self.put(encoded).await?;
            children.insert(name, table);
        }
        let mut commit = Commit {
            schema: decided.schema,
            files,
            rejects,
            children,
            counts,
            parts,
            withdrawn: retried.withdrawn,
            ..Commit::amending(&last)
        };
        commit.state.totals = totals;
        commit.state.presence = decided.presence;
        self.log.append(commit).await?;
        report.sequence = Some(sequence.get());
        Ok(())
    }
}

/// Rebuilds a rejected record as the source would return it now.
fn record(config: &SourceConfig, reason: &str, detail: &str, raw: &str, cells: bool) -> Record {
    let is_changed = CHANGED_REASONS.contains(&reason);
    let mut known = KNOWN_REASONS.iter().chain(&CHANGED_REASONS);
    let known = known.find(|known| **known == reason);
    let bad = || Record::Bad {
        raw: raw.to_owned(),
        reason: known.copied().unwrap_or(UNREADABLE),
        detail: detail.to_owned(),
    };
    // A line of a table may look like JSON.
    if is_changed || cells && known.is_some() {
        return bad();
    }
    match Value::parse_within(raw.as_bytes(), &config.contract.json, 0) {
        Ok(Value::Object(fields)) if cells => Record::Value(Value::Object(
            fields
                .into_iter()
                .map(|(name, value)| (name, cell(config, value)))
                .collect(),
        )),
        Ok(object @ Value::Object(_)) => Record::Value(object),
        Ok(_) | Err(_) => bad(),
    }
}

/// Converts strings back to cells.
fn cell(config: &SourceConfig, value: Value) -> Value {
    match value {
        Value::Text(text) => {
            let is_missing = config
                .csv
                .null_values
                .iter()
                .any(|null| null.trim() == text.trim());
            if is_missing {
                Value::Null
            } else {
                Value::Cell(text)
            }
        }
        Value::Object(fields) => {
            let fields = fields.into_iter();
            Value::Object(
                fields
                    .map(|(name, value)| (name, cell(config, value)))
                    .collect(),
            )
        }
        other => other,
    }
}

/// Content hashes of the landed ones among `records`.
async fn landed_of(
    landing: &Store,
    entries: &[CommitEntry],
    records: &[Record],
) -> Result<HashSet<u128>, Error> {
    let hashes: HashSet<u128> = records
        .iter()
        .filter(|record| matches!(record, Record::Value(_)))
        .map(|record| Hash128::of(record.canonical().as_bytes()).get())
        .collect();
    let mut landed = HashSet::new();
    for file in entries.iter().flat_map(|entry| &entry.files) {
        let of_file = read_hashes(landing, file).await?;
        landed.extend(
            of_file
                .into_iter()
                .map(Hash128::get)
                .filter(|hash| hashes.contains(hash)),
        );
    }
    Ok(landed)
}

#[cfg(test)]
mod tests {
    use feedline_schemas::config::PaginationKind;

    use super::*;

    #[test]
    fn a_page_that_was_not_read_keeps_its_reason() {
        let config = crate::testing::config("http://h/", PaginationKind::None);
        for (reason, expected) in [
            ("robots_unreachable", "robots_unreachable"),
            ("unreachable", "unreachable"),
            ("type_conflict", UNREADABLE),
        ] {
            match record(&config, reason, "503", "http://h/a", false) {
                Record::Bad { reason, .. } => assert_eq!(reason, expected),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn a_value_that_is_stored_changed_does_not_land() {
        let config = crate::testing::config("http://h/", PaginationKind::None);
        let read = |reason: &str, cells: bool| record(&config, reason, "", r#"{"b":"x"}"#, cells);
        for changed in CHANGED_REASONS {
            for cells in [false, true] {
                match read(changed, cells) {
                    Record::Bad { reason, .. } => assert_eq!(reason, changed),
                    other => panic!("{other:?}"),
                }
            }
        }
        let duplicate = read("duplicate_key", false);
        assert!(matches!(duplicate, Record::Value(_)), "{duplicate:?}");
    }
}
