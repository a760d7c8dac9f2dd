//! Status, lag and next run of sources: from their logs, and what runs store beside them, without a
//! request.

mod next_run;

use std::time::Duration;

use feedline_http::{SecretMasks, Secrets};
use feedline_schemas::{
    commit::{CommitEntry, Position},
    config::{PipelineConfig, SourceConfig},
    decode,
    ids::Name,
    log_snapshot::LogSums,
    report::{IngestReport, SourceReport, Standing},
};
use feedline_storage::{
    Store,
    log::{entry_path, newest_sequence},
};

pub(crate) use self::next_run::describe_next_run;
use self::next_run::not_before;
use crate::{
    backfill,
    context::Context,
    delta,
    error::{Error, describe_with_cause},
    failures,
    landed_time::{committed_unix_s, landed_unix_s},
    landing_files::report_damage,
    landing_folder::landing,
    log_entries::{Kept, LogEntries},
    metrics::LogTotals,
    report::{add, source_report},
    run::required_columns::MissingRequired,
    run_warnings::{self, FoundWarnings},
    schedule::lease,
    settings::looks_for_more,
    source::Requests,
    warnings::mask_warning,
    watermark::{Incremental, Mark},
};

/// Reports what the pipeline's sources have landed, from their commit logs alone.
///
/// # Errors
/// [`Error::Log`] for a damaged log, [`Error::Storage`].
pub async fn status(config: &PipelineConfig, root: &Store) -> Result<IngestReport, Error> {
    report_sources(config, root, None).await
}

/// Reports what the pipeline's sources have landed, and their lag at `now` (since 1970-01-01 UTC),
/// with the warnings of their last runs that the logs do not have. Sends a few more requests per
/// source to the store than [`status`](crate::status).
///
/// # Errors
/// [`Error::Log`] for a damaged log, [`Error::Contract`] for a lease, failed runs or warnings that
/// cannot be read, [`Error::Storage`].
pub async fn status_with_lag(
    config: &PipelineConfig,
    root: &Store,
    now: Duration,
) -> Result<IngestReport, Error> {
    report_sources(config, root, Some(now)).await
}

/// Masks the secrets of `config` that can be found now, in what `report` has of records: landed
/// rejects contain the secrets that a server repeated.
pub fn mask_secrets(config: &PipelineConfig, secrets: &dyn Secrets, report: &mut IngestReport) {
    for source in &mut report.sources {
        let mut known = config.source.iter();
        if let Some(known) = known.find(|known| known.name.as_str() == source.name) {
            mask_report(known, secrets, source);
        }
    }
}

/// Returns `message` with a mask in place of each secret of `config` that can be found now.
#[must_use]
pub fn mask_message(config: &PipelineConfig, secrets: &dyn Secrets, message: &str) -> String {
    let mut masked = message.to_owned();
    for source in &config.source {
        masked = SecretMasks::configured(source, secrets).mask_message(&masked);
    }
    masked
}

fn mask_report(config: &SourceConfig, secrets: &dyn Secrets, report: &mut SourceReport) {
    let masks = SecretMasks::configured(config, secrets);
    let failures = report.standing.as_mut();
    let failures = failures.and_then(|standing| standing.failures.as_mut());
    for warning in &mut report.warnings {
        mask_warning(warning, &masks);
    }
    let errors = report.error.iter_mut();
    for text in errors.chain(failures.map(|failures| &mut failures.error)) {
        *text = masks.mask_message(text);
    }
    if let Some(text) = &mut report.reject_sample {
        *text = masks.mask(text);
    }
}

/// Reports all sources; with their lag at `now`, if it is given.
async fn report_sources(
    config: &PipelineConfig,
    root: &Store,
    now: Option<Duration>,
) -> Result<IngestReport, Error> {
    let mut report = IngestReport {
        url: root.url_of("landing"),
        ..IngestReport::default()
    };
    for source in &config.source {
        let folder = landing(root, &source.name);
        let mut entries = LogEntries::open(&folder, &source.name, Kept::All).await?;
        let sums = entries.sums().await?;
        let last_rejected = match now {
            Some(_) => rejected_by_newest_run(&entries).await?,
            None => None,
        };
        let last = entries.last();
        let none = Requests::default();
        let mut status = source_report(source, &folder, last, sums.clone(), none).await;
        status.warnings.extend(entries.warning());
        let missing = last.and_then(|entry| {
            let decisions = &entry.state.totals.decisions;
            MissingRequired::landed(source, decisions).warning_of_landed(&source.name)
        });
        status.warnings.extend(missing);
        if let Some(now) = now {
            let standing = read_lag(source, &folder, &entries, &sums, now.as_secs()).await?;
            if standing.not_before_unix_s.is_some() && looks_for_more(source) {
                "deferred".clone_into(&mut status.status);
            }
            status.standing = Some(Standing {
                last_rejected,
                run_warnings: run_warnings::add_to(&mut status.warnings, &folder).await?,
                ..standing
            });
            status.delta = delta::status(&folder, &source.name, entries.all()).await?;
        }
        report_damage(&folder, &mut entries, &mut status).await?;
        add(&mut report, status);
    }
    Ok(report)
}

/// Records that the newest run with a batch rejected; `None` before the first batch. Reads older
/// entries only where that run may have made them.
async fn rejected_by_newest_run(entries: &LogEntries) -> Result<Option<u64>, Error> {
    let newest = entries.all().iter().rfind(|entry| entry.is_batch());
    let Some(run) = newest.map(|entry| entry.run_id.clone()) else {
        return Ok(None);
    };
    let is_earlier = |entry: &CommitEntry| entry.is_batch() && entry.run_id != run;
    let rejected = |all: &[CommitEntry]| -> u64 {
        let of_run = all.iter().filter(|entry| entry.run_id == run);
        of_run.map(|entry| entry.counts.rejected).sum()
    };
    if entries.all().iter().any(is_earlier) {
        return Ok(Some(rejected(entries.all())));
    }
    let mut older = entries.clone();
    older.load_until(is_earlier).await?;
    Ok(Some(rejected(older.all())))
}

/// Report of a source whose run ended with `error`, with the warnings that it `found`.
pub(crate) async fn report_failed_run(
    config: &SourceConfig,
    error: &Error,
    found: &FoundWarnings,
    context: &Context,
) -> SourceReport {
    // An unreadable log is the subject of this error or of the next one.
    let read = read_for_report(&context.root, &config.name).await;
    let (last, sums) = read.unwrap_or_default();
    let requests = requests_of(context, &config.name);
    let folder = landing(&context.root, &config.name);
    let mut report = source_report(config, &folder, last.as_ref(), sums, requests).await;
    note_new(context, &mut report);
    match error {
        Error::Cancelled => {}
        Error::Deferred { .. } => "deferred".clone_into(&mut report.status),
        _ => "failed".clone_into(&mut report.status),
    }
    if !matches!(error, Error::Cancelled) {
        report.error = Some(describe_with_cause(error));
    }
    found.report_in(&mut report.warnings);
    mask_report(config, &*context.secrets, &mut report);
    report
}

/// Newest entry of a source's log, and the sums over all entries.
async fn read_for_report(
    root: &Store,
    source: &Name,
) -> Result<(Option<CommitEntry>, LogSums), Error> {
    let mut entries = LogEntries::open(&landing(root, source), source, Kept::All).await?;
    let sums = entries.sums().await?;
    Ok((entries.last().cloned(), sums))
}

/// Requests of a source in this process.
fn requests_of(context: &Context, source: &Name) -> Requests {
    let metrics = context.metrics.of(source.as_str()).read();
    Requests {
        requests: metrics.requests.values().sum(),
        retries: metrics.retries,
    }
}

/// Notes the rows that this process landed of a source, and the records that it rejected.
fn note_new(context: &Context, report: &mut SourceReport) {
    let metrics = context.metrics.of(&report.name).read();
    report.new_rows = Some(metrics.rows);
    report.new_rejected = Some(metrics.rejected);
}

/// Totals of the newest entry of a log, and the time of the newest batch with rows; `None` for an
/// empty log.
///
/// # Errors
/// [`Error::Contract`] for an entry that cannot be read, [`Error::Log`] for a damaged log,
/// [`Error::Storage`].
pub(crate) async fn read_log_totals(landing: &Store) -> Result<Option<LogTotals>, Error> {
    let Some(newest) = newest_sequence(landing).await? else {
        return Ok(None);
    };
    let path = entry_path(newest);
    let bytes = landing.get(&path).await?;
    let entry: CommitEntry = decode(&landing.url_of(&path), &bytes)?;
    let committed = match (entry.counts.rows, entry.state.totals.rows) {
        (_, 0) => None,
        (0, _) => {
            let entries = LogEntries::open(landing, &entry.source, Kept::Newest).await?;
            landed_unix_s(landing, &entries).await?
        }
        _ => Some(committed_unix_s(landing, entry.sequence).await?),
    };
    Ok(Some(LogTotals::of(&entry, committed)))
}

/// Returns true if the newest entry of a log defers requests to its server; reads only the bytes of
/// that entry.
///
/// # Errors
/// Like [`read_log_totals`].
pub(crate) async fn is_deferred_by_log(landing: &Store) -> Result<bool, Error> {
    let Some(newest) = newest_sequence(landing).await? else {
        return Ok(false);
    };
    let path = entry_path(newest);
    let bytes = landing.get(&path).await?;
    let entry: CommitEntry = decode(&landing.url_of(&path), &bytes)?;
    Ok(entry.state.not_before_unix_s.is_some())
}

/// Lag, lease and next run of a source at `now_s`.
async fn read_lag(
    config: &SourceConfig,
    landing: &Store,
    entries: &LogEntries,
    sums: &LogSums,
    now_s: u64,
) -> Result<Standing, Error> {
    let committed_unix_s = landed_unix_s(landing, entries).await?;
    let last = entries.last();
    let position = last.map(|entry| &entry.state.position);
    let mut value_cursors = backfill::report_cursors(config, landing, position).await;
    let run = position.and_then(Position::run);
    let cursor = run.and_then(|run| run.high.clone());
    let now = i64::try_from(now_s).unwrap_or(i64::MAX);
    // A cursor in the future gives no lag: it does not show how far the source has been read.
    let now_time = Duration::from_secs(now_s);
    let incremental = config.incremental.as_ref().map(Incremental::new);
    let incremental = incremental.and_then(Result::ok);
    let is_ahead = |cursor: &str| {
        let incremental = incremental.as_ref();
        incremental.is_some_and(|incremental| incremental.is_ahead(cursor, now_time))
    };
    let lag_of = |cursor: &str| {
        let at = Mark::parse(cursor).ok()?.unix_s();
        let at = at.filter(|_| !is_ahead(cursor));
        at.map(|at| u64::try_from(now.saturating_sub(at)).unwrap_or(0))
    };
    let cursor_lag = cursor.as_deref().and_then(lag_of);
    let ends = value_cursors.iter_mut();
    for end in ends.flat_map(|cursors| [&mut cursors.smallest, &mut cursors.greatest]) {
        end.lag_s = lag_of(&end.cursor);
    }
    let lease = lease(landing).await?;
    Ok(Standing {
        committed_unix_s,
        lag_s: committed_unix_s.map(|at| now_s.saturating_sub(at)),
        last_rejected: None,
        cursor,
        cursor_lag_s: cursor_lag,
        value_cursors,
        not_before_unix_s: not_before(last.map(|entry| &entry.state), now_s),
        held_by: lease
            .as_ref()
            .filter(|lease| lease.held)
            .map(|lease| lease.holder.clone()),
        failures: failures::read(landing).await?,
        run_warnings: None,
        last_run: lease.and_then(|lease| lease.last),
        schema_versions: u32::try_from(sums.schema_versions.len()).unwrap_or(u32::MAX),
        columns: last.map_or(0, |entry| entry.schema.columns.len() as u64),
        next: describe_next_run(config, last.map(|entry| &entry.state), &sums.highs, now_s),
    })
}
