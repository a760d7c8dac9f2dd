//! Time of the servers of a source, beside that of this machine.
//!
//! A wall clock that is ahead makes the future look finished. So wherever "now" decides what counts
//! as read, the earlier of two clocks applies. One is that of this machine, the other that of the
//! API, from the `Date` of its responses.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, UNIX_EPOCH},
};

use feedline_schemas::report::Warning;
use reqwest::header::{AGE, DATE, HeaderMap};

/// Difference between two clocks that counts as none; a larger one causes a warning.
pub const TOLERANCE: Duration = Duration::from_secs(300);

/// Clock of the servers, according to their newest response.
#[derive(Debug, Default)]
pub struct ServerTime(Mutex<Option<Noted>>);

#[derive(Clone, Copy, Debug)]
struct Noted {
    /// Time of the response by the server's clock, since 1970-01-01 UTC.
    server: Duration,
    /// Time of the response by this machine's clock.
    local: Duration,
}

impl ServerTime {
    /// Records a response that arrived at `local` by this machine's clock. Ignores one without a
    /// readable `Date`. `Age` is the time since a cache received the response.
    pub(crate) fn note(&self, headers: &HeaderMap, local: Duration) {
        let Some(server) = date_of(headers) else {
            return;
        };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Noted { server, local });
    }

    fn noted(&self) -> Option<Noted> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Time of the newest response by the server's clock.
    #[must_use]
    pub fn server(&self) -> Option<Duration> {
        self.noted().map(|noted| noted.server)
    }

    /// Warning about clocks that differed by more than [`TOLERANCE`] at the newest response.
    #[must_use]
    pub fn warning(&self) -> Option<Warning> {
        let Noted { server, local } = self.noted()?;
        let apart = server.abs_diff(local);
        let (side, effect) = if local > server {
            (
                "ahead of",
                "slices and cursors end at the time of the server",
            )
        } else {
            (
                "behind",
                "slices and cursors end at the time of this machine, and the rest is read when its clock is right",
            )
        };
        (apart > TOLERANCE).then(|| {
            let message = format!(
                "this machine's clock is {} s {side} that of the server (`Date` of its response): {effect}; set the clock",
                apart.as_secs()
            );
            Warning::new("clock_differs", message)
        })
    }
}

/// Clocks when a response came, since 1970-01-01 UTC.
#[derive(Clone, Copy, Debug)]
pub struct Clocks {
    /// This machine's.
    pub local: Duration,
    /// The server's, if known.
    pub server: Option<Duration>,
}

impl Clocks {
    /// The earlier one: it can be trusted not to be ahead.
    #[must_use]
    pub fn earlier(self) -> Duration {
        self.server
            .map_or(self.local, |server| server.min(self.local))
    }
}

/// Time of a response by the server's clock, since 1970-01-01 UTC; `None` without a readable
/// `Date`.
#[must_use]
pub fn date_of(headers: &HeaderMap) -> Option<Duration> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let date = text(DATE).and_then(|date| httpdate::parse_http_date(date).ok())?;
    let date = date.duration_since(UNIX_EPOCH).ok()?;
    let age = text(AGE).and_then(|age| age.trim().parse().ok());
    Some(date.saturating_add(Duration::from_secs(age.unwrap_or(0))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(headers: &[(&str, &str)], local: u64) -> ServerTime {
        let time = ServerTime::default();
        let headers = headers.iter().map(|(name, value)| {
            (
                name.parse::<reqwest::header::HeaderName>().unwrap(),
                value.parse().unwrap(),
            )
        });
        time.note(&headers.collect(), Duration::from_secs(local));
        time
    }

    #[test]
    fn the_earlier_clock_is_trusted_and_a_difference_of_minutes_is_said() {
        let date = ("date", "Sun, 06 Nov 1994 08:49:37 GMT");
        let at = 784_111_777;
        let check = |headers: &[(&str, &str)], local: u64, trusted: u64, warning: Option<&str>| {
            let time = time(headers, local);
            let local = Duration::from_secs(local);
            let server = time.server();
            let earlier = Clocks { local, server }.earlier();
            assert_eq!(earlier.as_secs(), trusted);
            let found = time.warning().map(|warning| warning.message);
            match warning {
                None => assert_eq!(found, None),
                Some(part) => assert!(found.as_ref().unwrap().contains(part), "{found:?}"),
            }
        };
        check(&[], 5, 5, None);
        check(&[("date", "yesterday")], 5, 5, None);
        check(&[date], at + 300, at, None);
        check(&[date], at + 86_400, at, Some("86400 s ahead of"));
        check(&[date], at - 86_400, at - 86_400, Some("86400 s behind"));
        // A response that a cache has held for an hour is an hour old.
        check(&[date, ("age", "3600")], at + 3_600, at + 3_600, None);
    }
}
