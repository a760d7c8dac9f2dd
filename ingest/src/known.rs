//! Which landed records a run of pages may bring again.

use std::{cmp::Ordering, collections::HashSet, time::Duration};

use feedline_schemas::commit::{CommitEntry, PageRun, Position};
use feedline_storage::Store;

use crate::{
    dedup::read_hashes,
    error::Error,
    watermark::{Incremental, Mark, highs},
};

/// Content hashes of the records that landed before the run of pages that comes after `entries`, or that they are in:
/// all that may lie at or after its bound, or all there are where a finished source is read again (`is_again`). None where that is the first run of pages.
///
/// It is a function of the log, the configuration and, for cursors ahead of it, the time `now` alone, so a resumed run leaves out what one that never stopped does.
///
/// # Errors
/// [`Error::Landed`], [`Error::Storage`], [`Error::Config`].
///
/// Also the number of the first entry that they are of.
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
        // Every page comes again: nothing lies below a bound.
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
    let mut first = before.len();
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
        for file in &entry.files {
            let hashes = read_hashes(landing, file).await?;
            known.extend(hashes.into_iter().map(|hash| hash.get()));
        }
    }
    Ok((known, first))
}

/// Whether the highest cursor of an entry and all before it lies below the bound.
fn is_below(high: Option<&str>, since: Option<&str>) -> bool {
    let (Some(high), Some(since)) = (high, since) else {
        return false;
    };
    let marks = Mark::parse(high).and_then(|high| high.compare(&Mark::parse(since)?));
    marks == Ok(Ordering::Less)
}
