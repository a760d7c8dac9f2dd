//! Landed records that a page run may return again.

use std::{
    cmp::Ordering,
    collections::{BTreeSet, HashSet},
    time::Duration,
};

use feedline_schemas::{
    commit::{CommitEntry, PageRun, Position},
    log_effect::holder,
};
use feedline_storage::Store;

use crate::{
    dedup::read_hashes_of,
    error::Error,
    watermark::{Incremental, Mark, highs},
};

/// Loads the content hashes of landed records that the current page run may return again. These are
/// all records that may be at or after its bound, or all records if a finished source is read again
/// (`is_again`). The first page run has none. Also returns the index of their first entry.
///
/// The result depends only on the log, the configuration and, for cursors ahead of it, the time
/// `now`. So a resumed run skips the same records as an uninterrupted one.
///
/// # Errors
/// [`Error::Landed`], [`Error::Storage`], [`Error::Config`].
pub(crate) async fn known(
    landing: &Store,
    entries: &[CommitEntry],
    incremental: Option<&Incremental>,
    is_again: bool,
    now: Duration,
) -> Result<(HashSet<u128>, usize), Error> {
    let mut known = HashSet::new();
    let run = match (entries.last().map(|last| &last.state.position), incremental) {
        (Some(Position::Done { run, .. }), Some(incremental)) => {
            incremental.next_run(run, &highs(entries), now)?
        }
        // Every page is read again: no record is below a bound.
        (Some(Position::Done { run, .. }), None) if is_again => PageRun {
            number: run.number + 1,
            ..PageRun::default()
        },
        (Some(Position::Page { run, .. }), _) => run.clone(),
        _ => return Ok((known, entries.len())),
    };
    let number = |entry: &CommitEntry| entry.state.position.run().map_or(0, |run| run.number);
    let before = entries
        .iter()
        .take_while(|entry| number(entry) < run.number);
    let before: Vec<&CommitEntry> = before.collect();
    known.extend(run.ahead.iter().filter_map(|ahead| Some(ahead.hash?.get())));
    let has_unknown = run.ahead.iter().any(|ahead| ahead.hash.is_none());
    let count = before.len();
    let mut first = count;
    for entry in before.into_iter().rev() {
        let high = entry
            .state
            .position
            .run()
            .and_then(|run| run.high.as_deref());
        if !has_unknown && is_below(high, run.since.as_deref()) {
            break;
        }
        first -= 1;
    }
    // A compaction may have merged rows of these batches into the files of a later one.
    let wanted = first..count;
    let begins = entries.get(first).map_or(0, |entry| entry.sequence.get());
    let ends = entries
        .get(count)
        .map_or(u64::MAX, |entry| entry.sequence.get());
    let holders: BTreeSet<usize> = wanted.map(|index| holder(entries, index)).collect();
    for file in holders.iter().flat_map(|index| &entries[*index].files) {
        let hashes = read_hashes_of(landing, file, |own| (begins..ends).contains(&own)).await?;
        known.extend(hashes.into_iter().map(|hash| hash.get()));
    }
    Ok((known, first))
}

/// Returns true if the highest cursor of an entry and all before it is below the bound.
fn is_below(high: Option<&str>, since: Option<&str>) -> bool {
    let (Some(high), Some(since)) = (high, since) else {
        return false;
    };
    let marks = Mark::parse(high).and_then(|high| high.compare(&Mark::parse(since)?));
    marks == Ok(Ordering::Less)
}
