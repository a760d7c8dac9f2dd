//! Waits that a server requested from an earlier run, safe against wall clocks that jump.
//!
//! The log records the end of a wait, and its length when the entry was written. A clock that was
//! ahead recorded an end that may be years away. So no run waits longer than the requested length,
//! counted from now.

use feedline_http::server_time::TOLERANCE;
use feedline_schemas::config::SourceConfig;

use super::{
    batch_reader::GatheredPages,
    source_run::{NotBefore, Run},
};
use crate::{batch::Batch, commit_log::CommitLog, context::Context, error::Error};
use feedline_storage::log::entry_path;

/// Remaining wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    Over,
    /// Wait until this time.
    Until(u64),
    /// The logged time is wrong; the correct one is at most so many seconds from now.
    Wrong(u64),
}

/// Returns the wait that remains at `now`, for a wait until `until`. The server asked for `asked`
/// when the entry was `written`; all are in seconds.
fn left(until: u64, asked: Option<u64>, written: u64, now: u64) -> Wait {
    let is_later = written > now.saturating_add(TOLERANCE.as_secs());
    // An entry without the length: if `written` is ahead of now, the same clock wrote `until`.
    let asked = asked.or_else(|| until.checked_sub(written).filter(|_| is_later));
    let ends = match asked {
        Some(asked) if written <= now => until.min(written.saturating_add(asked)),
        _ => until,
    };
    match asked {
        _ if ends <= now => Wait::Over,
        Some(asked) if ends - now > asked.saturating_add(TOLERANCE.as_secs()) => Wait::Wrong(asked),
        _ => Wait::Until(ends),
    }
}

/// Ends a run that begins before the end of a requested delay.
///
/// # Errors
/// [`Error::Deferred`]. A time from a wrong clock is corrected in the log first.
pub(super) async fn check_deferral(
    config: &SourceConfig,
    context: &Context,
    log: CommitLog,
) -> Result<CommitLog, Error> {
    let now = context.clock.unix().as_secs();
    let Some(last) = log.last() else {
        return Ok(log);
    };
    let until = last.state.not_before_unix_s.filter(|until| *until > now);
    let Some(until) = until else { return Ok(log) };
    let asked = last.state.not_before_wait_s;
    let path = entry_path(last.sequence.get());
    let written = log.landing().modified(&path).await?.as_secs();
    let (until_unix_s, more) = match left(until, asked, written, now) {
        Wait::Over => return Ok(log),
        Wait::Until(until) => (until, ""),
        Wait::Wrong(asked) => {
            let until = now.saturating_add(asked);
            tracing::warn!(source = %config.name, asked, "a clock that was ahead recorded the end of the server's delay; the delay now starts at the present time");
            let mut run = Run::begin(config, context, log).await?;
            let position = run.position();
            let nothing = GatheredPages {
                batch: Batch::default(),
                answers: Vec::new(),
                warnings: Vec::new(),
                cursors: None,
            };
            let not_before = NotBefore {
                until_unix_s: until,
                wait_s: asked,
            };
            run.commit(nothing, position, Some(not_before)).await?;
            (
                until,
                ", since a clock that was ahead wrote a later time into the log",
            )
        }
    };
    Err(Error::Deferred {
        source: config.name.to_string(),
        until_unix_s,
        wait_s: until_unix_s - now,
        reason: format!(
            "the server asked an earlier run to wait, {} s of it are left{more}, so no request was sent",
            until_unix_s - now
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_never_longer_than_was_asked_for() {
        let year = 31_536_000;
        let now = 1_800_000_000;
        let check = |until: u64, asked: Option<u64>, written: u64, expected: Wait| {
            assert_eq!(left(until, asked, written, now), expected);
        };
        check(
            now + 7_000,
            Some(7_200),
            now - 200,
            Wait::Until(now + 7_000),
        );
        check(now - 1, Some(7_200), now - 7_201, Wait::Over);
        // The clock was a year ahead, and that of the store with it.
        let ahead = now + year;
        check(ahead + 7_200, Some(7_200), ahead, Wait::Wrong(7_200));
        check(ahead + 7_200, None, ahead, Wait::Wrong(7_200));
        // The store has a clock of its own, which was right.
        check(
            ahead + 7_200,
            Some(7_200),
            now - 200,
            Wait::Until(now + 7_000),
        );
        check(ahead + 7_200, Some(7_200), now - 9_000, Wait::Over);
        // An older entry, in a store with its own clock, has no length.
        check(ahead, None, now - 200, Wait::Until(ahead));
    }
}
