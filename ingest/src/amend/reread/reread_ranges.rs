//! Re-reading a range of slices, or an incremental source from a cursor on.

use std::collections::BTreeSet;

use feedline_schemas::{
    amendment::AmendReport,
    commit::{CommitEntry, PageRun, Position},
    config::SourceConfig,
};

use super::reread_batches::{RereadPlan, retried_with};
use crate::{
    backfill::{self, BatchRange, ListHistory},
    error::Error,
    watermark::Mark,
};

/// Advice for a source whose last run has not ended.
const FINISH: &str =
    "has an unfinished page run: run `feedline ingest` first, then rerun this command";

/// Lower and upper end of a range, as they are given.
type GivenRange<'a> = (Option<&'a str>, Option<&'a str>);

/// Re-reads the slices of a range. Without a `key`, so are the batches that share slices with it.
/// Rows of values that have left the list of the source stay.
pub(super) fn plan_slices(
    config: &SourceConfig,
    entries: &[CommitEntry],
    (position, history): (&Position, &ListHistory),
    (from, to): GivenRange<'_>,
    report: &mut AmendReport,
) -> Result<Option<RereadPlan>, Error> {
    let Some(ledger) = position.ledger().filter(|_| is_finished(position)) else {
        return Err(Error::config("slices", FINISH));
    };
    let range = backfill::range_of(config, from, to, ledger)?;
    let has_key = !config.key.is_empty();
    let widened = match has_key {
        true => BatchRange::of(range),
        false => backfill::widen(entries, range, history, &mut |batches| {
            retried_with(entries, batches)
        }),
    };
    if widened.is_empty(ledger) {
        return Ok(None);
    }
    check_left(&widened)?;
    report.ranges = backfill::show_ranges(config, &widened, ledger)?;
    let note = match has_key {
        true => {
            "the source has a `key`: landed rows stay, and a dataset reads the latest version of each key"
        }
        false => "batches are re-read completely, with all of their slices",
    };
    report.notes.push(note.into());
    let left = history.left_values();
    if !left.is_empty() {
        let shown = backfill::show_values(&left);
        let note = format!(
            "values that have left the list are not requested, and their landed rows stay: {shown}"
        );
        report.notes.push(note);
    }
    let mut run = position.run().cloned().unwrap_or_default();
    run.ledger = Some(Box::new(backfill::undone(ledger, &widened)));
    let Position::Done { pages, .. } = position else {
        return Ok(None);
    };
    Ok(Some(RereadPlan {
        position: Position::Done {
            pages: *pages,
            files: Vec::new(),
            run,
        },
        batches: widened.batches,
    }))
}

/// Refuses to withdraw rows that would not be read again.
///
/// # Errors
/// [`Error::Config`].
fn check_left(range: &BatchRange) -> Result<(), Error> {
    if range.left.is_empty() {
        return Ok(());
    }
    let left: Vec<String> = range.left.iter().cloned().collect();
    let shown = backfill::show_values(&left);
    let reason = format!(
        "batches of this range also have rows of values that have left the list ({shown}), which would be withdrawn and not requested again; put these values back into the list, or set the source's `key`: then landed rows stay, and a dataset reads the latest version of each key"
    );
    Err(Error::config("for_each", reason))
}

/// Re-reads an incremental source from a cursor on.
pub(super) fn plan_incremental(
    config: &SourceConfig,
    position: &Position,
    (from, to): GivenRange<'_>,
    report: &mut AmendReport,
) -> Result<RereadPlan, Error> {
    if config.for_each.is_some() {
        let reason = "has a bound for each value of `for_each`, and `--from` is one for all: run once with a longer lookback, such as `feedline ingest PIPELINE.toml --set source.0.incremental.lookback=30d` with the number of the source, from 0";
        return Err(Error::config("incremental", reason));
    }
    if to.is_some() {
        let reason = "has a lower bound only, so `--to` does not apply: remove it";
        return Err(Error::config("incremental", reason));
    }
    let Some(from) = from else {
        return Err(Error::config(
            "incremental",
            "set the cursor to begin at with `--from`",
        ));
    };
    Mark::parse(from).map_err(|reason| Error::config("--from", reason))?;
    let Some(run) = position.run().filter(|_| is_finished(position)) else {
        return Err(Error::config("incremental", FINISH));
    };
    if config.dedup_window() == 0 {
        let reason = "is 0, which keeps equal records: all of them would land twice; set it";
        return Err(Error::config("batch.dedup_window", reason));
    }
    report.ranges = vec![format!("from `{from}` on")];
    report.notes.push("landed records are skipped as duplicates, and changed ones land in addition to the old ones; with a `key` a dataset reads the latest versions".into());
    Ok(RereadPlan {
        position: restart_at(from, run),
        batches: BTreeSet::new(),
    })
}

/// The first page of a run after `run` that begins at a cursor.
fn restart_at(from: &str, run: &PageRun) -> Position {
    Position::Page {
        page: 0,
        cursor: None,
        run: PageRun {
            number: run.number + 1,
            restarted: true,
            since: Some(from.to_owned()),
            high: run.high.clone(),
            ahead: run.ahead.clone(),
            interrupted: run.interrupted.clone(),
            ..PageRun::default()
        },
    }
}

fn is_finished(position: &Position) -> bool {
    matches!(position, Position::Done { .. })
}
