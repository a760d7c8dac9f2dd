//! Landed records that a page run may return again.

use std::{
    cmp::Ordering,
    collections::{BTreeSet, HashSet},
    time::Duration,
};

use feedline_schemas::{
    commit::{CommitEntry, DataFile, PageRun, Position},
    log_effect::holder,
};
use feedline_storage::Store;

use crate::{
    dedup::read_hashes_of,
    error::Error,
    log_entries::FilesBefore,
    watermark::{Incremental, Mark},
};

/// The page run that is in progress after the entry `last`, or that begins then: `None` if there is
/// none, or it is another kind of source. `highs` are the highest cursors of the log. `is_again` is
/// true if a finished source is read again.
///
/// # Errors
/// [`Error::Config`].
pub(super) fn page_run(
    last: Option<&CommitEntry>,
    incremental: Option<&Incremental>,
    highs: &[String],
    is_again: bool,
    now: Duration,
) -> Result<Option<PageRun>, Error> {
    Ok(match (last.map(|last| &last.state.position), incremental) {
        (Some(Position::Done { run, .. }), Some(incremental)) => {
            Some(incremental.next_run(run, highs, now)?)
        }
        // Every page is read again: no record is below a bound.
        (Some(Position::Done { run, .. }), None) if is_again => Some(PageRun {
            number: run.number + 1,
            ..PageRun::default()
        }),
        (Some(Position::Page { run, .. }), _) => Some(run.clone()),
        _ => None,
    })
}

/// Content hashes of records that were ahead of the cursors of the run.
pub(super) fn ahead(run: &PageRun) -> HashSet<u128> {
    let hashes = run.ahead.iter().filter_map(|ahead| ahead.hash);
    hashes.map(|hash| hash.get()).collect()
}

/// Returns true if records of earlier page runs that may come again have cursors at or after a bound.
pub(super) fn is_bounded(run: &PageRun) -> bool {
    run.since.is_some() && run.ahead.iter().all(|ahead| ahead.hash.is_some())
}

/// Number of the page run of an entry.
pub(super) fn run_number(entry: &CommitEntry) -> u64 {
    entry.state.position.run().map_or(0, |run| run.number)
}

/// Returns true if the entry is of an earlier page run than `run`.
pub(super) fn is_earlier(entry: &CommitEntry, run: &PageRun) -> bool {
    run_number(entry) < run.number
}

/// Returns true if the entry and all before it have no record that may come again in `run`, which is
/// bounded.
pub(super) fn is_below_bound(entry: &CommitEntry, run: &PageRun) -> bool {
    let own = entry.state.position.run();
    let high = own.and_then(|own| own.high.as_deref());
    is_earlier(entry, run) && is_below(high, run.since.as_deref())
}

/// Loads the content hashes of landed records that the bounded page run `run` may return again: those
/// at or after its bound. `entries` are the newest ones of the log, from one that is below the bound
/// on or from the first one. Also returns the data files from the first entry with such records on.
///
/// The result depends only on the log, the configuration and, for cursors ahead of it, the time. So a
/// resumed run skips the same records as an uninterrupted one.
///
/// # Errors
/// [`Error::Landed`], [`Error::Storage`].
pub(super) async fn known_from_bound(
    landing: &Store,
    entries: &[CommitEntry],
    run: &PageRun,
) -> Result<(HashSet<u128>, Vec<DataFile>), Error> {
    let mut known = HashSet::new();
    let before = entries.iter().take_while(|entry| is_earlier(entry, run));
    let before: Vec<&CommitEntry> = before.collect();
    let count = before.len();
    let mut first = count;
    for entry in before.into_iter().rev() {
        if is_below_bound(entry, run) {
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
    let files = entries.iter().skip(first).flat_map(|entry| &entry.files);
    Ok((known, files.cloned().collect()))
}

/// Loads the content hashes of all landed records of earlier page runs, which `files` have.
///
/// # Errors
/// [`Error::Landed`], [`Error::Storage`].
pub(super) async fn known_of_all(
    landing: &Store,
    files: &FilesBefore,
) -> Result<HashSet<u128>, Error> {
    let mut known = HashSet::new();
    for file in files.first() {
        let is_earlier = |own: u64| own < files.ends.get();
        let hashes = read_hashes_of(landing, file, is_earlier).await?;
        known.extend(hashes.into_iter().map(|hash| hash.get()));
    }
    Ok(known)
}

/// Returns true if the highest cursor of an entry and all before it is below the bound.
fn is_below(high: Option<&str>, since: Option<&str>) -> bool {
    let (Some(high), Some(since)) = (high, since) else {
        return false;
    };
    let marks = Mark::parse(high).and_then(|high| high.compare(&Mark::parse(since)?));
    marks == Ok(Ordering::Less)
}
