//! Report of a run or of `status` about a source.

use std::collections::BTreeMap;

use arrow::array::{Array, AsArray};
use feedline_schemas::{
    commit::{BatchCounts, CommitEntry, DataFile, Position},
    config::SourceConfig,
    log_snapshot::LogSums,
    report::{IngestReport, SourceReport, Warning},
};
use feedline_storage::Store;

use crate::{
    backfill::{ListedValues, slices_report},
    batch::rejects::{self, ENCODING, describe, keys_of},
    column_warnings::{RecordColumns, warn_of_columns},
    error::Error,
    held_warnings::holding,
    landed_file,
    plain_secrets::warn_of_plain_secrets,
    settings::failed_pages,
    source::Requests,
    source_table::source_type,
};

/// Adds a source to the pipeline's sums.
pub(crate) fn add(report: &mut IngestReport, source: SourceReport) {
    report.rows += source.rows;
    report.duplicates += source.duplicates;
    report.rejected += source.rejected;
    if let Some(rows) = source.new_rows {
        *report.new_rows.get_or_insert(0) += rows;
    }
    if let Some(rejected) = source.new_rejected {
        *report.new_rejected.get_or_insert(0) += rejected;
    }
    report.requests += source.requests;
    report.retries += source.retries;
    report.batches += source.batches;
    report.sources.push(source);
}

/// Builds the report of a source from the newest entry of its log, the sums over all entries, and the
/// requests of this run.
pub(crate) async fn source_report(
    config: &SourceConfig,
    landing: &Store,
    last: Option<&CommitEntry>,
    sums: LogSums,
    requests: Requests,
) -> SourceReport {
    let totals = last
        .map(|entry| entry.state.totals.clone())
        .unwrap_or_default();
    let status = match last.map(|entry| &entry.state.position) {
        None => "empty",
        Some(position @ Position::Done { .. }) if !position.has_failures() => "complete",
        Some(_) if last.is_some_and(|entry| entry.state.not_before_unix_s.is_some()) => "deferred",
        Some(_) => "partial",
    };
    // The counts are worth having even if the sample cannot be read.
    let sample = reject_sample(landing, sums.rejects.as_ref())
        .await
        .unwrap_or_else(|e| Some(e.to_string()));
    let dropped = duplicates_dropped(config, &totals);
    let position = last.map(|entry| &entry.state.position);
    let listed = ListedValues::read(config, landing, position).await;
    SourceReport {
        name: config.name.to_string(),
        status: status.to_owned(),
        rows: totals.rows,
        new_rows: None,
        recheck_keys: Vec::new(),
        children: totals.children,
        duplicates: totals.duplicates,
        rejected: totals.rejected,
        new_rejected: None,
        reject_keys: reject_keys(
            totals.rejected_by_reason.keys(),
            may_set_encoding(config, last),
        ),
        rejected_by_reason: totals.rejected_by_reason,
        reject_sample: sample,
        skipped: totals.skipped,
        failed_pages: position.map_or(0, failed_pages),
        coerced: totals.coerced.values().sum(),
        nulled: totals.nulled.values().sum(),
        decisions: totals.decisions,
        warnings: last
            .map_or_else(Vec::new, |entry| holding(config, &entry.state.warnings))
            .into_iter()
            .chain(warn_of_plain_secrets(config))
            .chain(dropped)
            .chain(last.map_or_else(Vec::new, |entry| {
                warn_of_columns(config, &RecordColumns::of(entry))
            }))
            .collect(),
        slices: slices_report(config, position, listed.as_ref()),
        batches: sums.batches,
        pages: totals.pages,
        requests: requests.requests,
        retries: requests.retries,
        bytes: sums.bytes,
        files: sums.files,
        compared_files: 0,
        compacted: None,
        schema_version: last.map_or(0, |entry| entry.schema.version.get()),
        url: landing.url(),
        damage: Vec::new(),
        settings_changed: sums.change,
        standing: None,
        delta: Vec::new(),
        error: None,
    }
}

/// Configuration keys of those of the `reasons` that have some; `csv.encoding` only for records
/// that it decodes.
fn reject_keys<'a>(
    reasons: impl Iterator<Item = &'a String>,
    may_set_encoding: bool,
) -> BTreeMap<String, Vec<String>> {
    let keys = reasons.map(|reason| {
        let keys = keys_of(reason).iter();
        let keys = keys.filter(|key| may_set_encoding || **key != ENCODING);
        let keys = keys.map(|key| (*key).to_owned());
        (reason.clone(), keys.collect::<Vec<_>>())
    });
    keys.filter(|(_, keys)| !keys.is_empty()).collect()
}

/// Returns true if some records of a source may come from CSV, by its URL, its settings, and the
/// files or the responses that were read.
fn may_set_encoding(config: &SourceConfig, last: Option<&CommitEntry>) -> bool {
    let kind = source_type(config);
    match last.map(|entry| &entry.state) {
        Some(state) => kind.decodes_csv(config, &state.warnings, &state.position),
        None => kind.decodes_csv(config, &[], &Position::Start),
    }
}

/// Warns of dropped duplicates if they exceed one record in a hundred and no setting explains them
/// as an overlap. Such settings are a key, and a range or feed that is requested again.
fn duplicates_dropped(config: &SourceConfig, totals: &BatchCounts) -> Option<Warning> {
    let is_expected = !config.key.is_empty()
        || config.incremental.is_some()
        || config.slices.is_some()
        || !config.refresh.is_never()
        || !config.crawl.refresh.is_never()
        || config.batch.dedup_window.is_some();
    let records = totals.rows + totals.superseded + totals.duplicates;
    if is_expected || totals.duplicates * 100 <= records {
        return None;
    }
    let message = format!(
        "{} of {records} records did not land, since records of equal content had landed shortly before: right where pages overlap, a loss where equal records are different ones",
        totals.duplicates
    );
    Some(Warning::new("duplicates_dropped", message).with_key("batch.dedup_window"))
}

/// Reads the first record of a rejects file, for display.
pub(crate) async fn reject_sample(
    landing: &Store,
    file: Option<&DataFile>,
) -> Result<Option<String>, Error> {
    let Some(file) = file else {
        return Ok(None);
    };
    let rows = landed_file::read(
        landing,
        file,
        &[rejects::REASON, rejects::DETAIL, rejects::RAW],
        Some(1),
    )
    .await?;
    let text = |name: &str| {
        let column = rows
            .first()
            .and_then(|batch| batch.column_by_name(name))
            .and_then(|c| c.as_string_opt::<i32>());
        column
            .filter(|c| !c.is_empty())
            .map(|c| c.value(0))
            .unwrap_or_default()
    };
    Ok(Some(describe(
        text(rejects::REASON),
        text(rejects::DETAIL),
        text(rejects::RAW),
    )))
}

#[cfg(test)]
mod tests {
    use feedline_schemas::config::load;

    use super::*;

    #[test]
    fn the_key_of_an_encoding_is_named_for_csv_alone() {
        let keys = |url: &str, more: &str| {
            let text = format!(
                "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"files\"\nurl = '{url}'\n{more}"
            );
            let config = load("p", &text, &[]).unwrap().config.source.remove(0);
            let reason = "invalid_utf8".to_owned();
            let reasons = [&reason].into_iter();
            let keys = reject_keys(reasons, may_set_encoding(&config, None));
            keys.get("invalid_utf8").cloned().unwrap_or_default()
        };
        assert_eq!(keys("in/*.csv", ""), ["csv.encoding"]);
        assert_eq!(keys("in/*.txt", "format = 'csv'\n"), ["csv.encoding"]);
        assert!(keys("in/*.ndjson", "").is_empty());
        assert!(keys("in/*.txt", "format = 'text'\n").is_empty());
    }
}
