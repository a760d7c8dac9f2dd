//! Requests and waits of a source. Observability only: no control flow reads these values.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Cause of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// A delay that the server asked for: Retry-After, or a used-up quota.
    Asked,
    /// Before another try, after a failure.
    Backoff,
    /// The pause before another try at a host whose circuit is open.
    Circuit,
    /// A token of `limits.requests_per_s`.
    Budget,
    /// The end of other requests to the same host.
    Concurrency,
    /// The pause between two requests of a crawl to one host: `crawl.delay_ms`, or the Crawl-delay
    /// of robots.txt.
    CrawlDelay,
    /// Another program, which holds the lease of the source.
    Lease,
    /// Other sources of this program: only some run at a time.
    Place,
}

impl Cause {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Asked,
        Self::Backoff,
        Self::Circuit,
        Self::Budget,
        Self::Concurrency,
        Self::CrawlDelay,
        Self::Lease,
        Self::Place,
    ];

    /// Its name in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Backoff => "backoff",
            Self::Circuit => "circuit",
            Self::Budget => "budget",
            Self::Concurrency => "concurrency",
            Self::CrawlDelay => "crawl_delay",
            Self::Lease => "lease",
            Self::Place => "place",
        }
    }
}

/// Requests and waits of one source since this program began.
#[derive(Debug, Default)]
pub struct RequestMeter(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    requests: BTreeMap<Option<u16>, u64>,
    retries: u64,
    /// Waits that have ended.
    waited: BTreeMap<Cause, Duration>,
    /// Current waits, in the order in which they began.
    waits: BTreeMap<u64, Wait>,
    begun: u64,
}

#[derive(Debug)]
struct Wait {
    cause: Cause,
    what: String,
    since: Instant,
}

/// Snapshot of a [`RequestMeter`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestReading {
    /// Requests by the status of their responses; `None` for those without one.
    pub requests: BTreeMap<Option<u16>, u64>,
    /// Tries beyond the first.
    pub retries: u64,
    /// Time waited, summed over concurrent requests; current waits count so far.
    pub waited: BTreeMap<Cause, Duration>,
    /// Description of the current wait, the longest of several.
    pub waits_for: Option<String>,
}

impl RequestMeter {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a snapshot.
    #[must_use]
    pub fn read(&self) -> RequestReading {
        let now = Instant::now();
        let state = self.state();
        let mut waited = state.waited.clone();
        for wait in state.waits.values() {
            *waited.entry(wait.cause).or_default() += now - wait.since;
        }
        RequestReading {
            requests: state.requests.clone(),
            retries: state.retries,
            waited,
            waits_for: state.waits_for(),
        }
    }

    /// Returns the description of the current wait.
    #[must_use]
    pub fn waits_for(&self) -> Option<String> {
        self.state().waits_for()
    }

    /// Records that the source waits for `what`, until the returned value is dropped.
    #[must_use]
    pub fn wait(self: &Arc<Self>, cause: Cause, what: String) -> MeteredWait {
        let mut state = self.state();
        let number = state.begun;
        state.begun += 1;
        let since = Instant::now();
        state.waits.insert(number, Wait { cause, what, since });
        MeteredWait {
            meter: Arc::clone(self),
            number,
        }
    }

    /// Records a request and the status of its response.
    pub fn asked(&self, status: Option<u16>) {
        *self.state().requests.entry(status).or_default() += 1;
    }

    /// Records a try beyond the first.
    pub fn tried_again(&self) {
        self.state().retries += 1;
    }
}

impl State {
    fn waits_for(&self) -> Option<String> {
        let (_, longest) = self.waits.first_key_value()?;
        Some(longest.what.clone())
    }
}

/// A wait in progress.
#[derive(Debug)]
pub struct MeteredWait {
    meter: Arc<RequestMeter>,
    number: u64,
}

impl Drop for MeteredWait {
    fn drop(&mut self) {
        let mut state = self.meter.state();
        if let Some(wait) = state.waits.remove(&self.number) {
            *state.waited.entry(wait.cause).or_default() += wait.since.elapsed();
        }
    }
}

/// Formats a time of day in UTC for messages, with its date unless that is today's. `at` and `now`
/// are since 1970-01-01 UTC.
#[must_use]
pub fn clock_time(at: Duration, now: Duration) -> String {
    let time = |at: Duration| {
        let seconds = i64::try_from(at.as_secs()).ok()?;
        let zoned = jiff::Timestamp::from_second(seconds).ok()?;
        Some(zoned.to_zoned(jiff::tz::TimeZone::UTC).datetime())
    };
    match (time(at), time(now)) {
        (Some(at), Some(now)) if at.date() == now.date() => format!("{} UTC", at.time()),
        (Some(at), _) => format!("{} {} UTC", at.date(), at.time()),
        (None, _) => format!("Unix time {}", at.as_secs()),
    }
}

/// Formats a wait in seconds, short ones with tenths.
#[must_use]
pub fn seconds(wait: Duration) -> String {
    let tenths = wait.as_millis().div_ceil(100);
    match (tenths / 10, tenths % 10) {
        (whole, 0) => format!("{whole} s"),
        (whole @ 0..10, tenth) => format!("{whole}.{tenth} s"),
        (whole, _) => format!("{} s", whole + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn waits_are_told_while_they_last_and_counted_by_their_cause() {
        let meter = Arc::new(RequestMeter::default());
        let budget = meter.wait(Cause::Budget, "budget of h: 3 s".into());
        tokio::time::advance(Duration::from_secs(1)).await;
        let backoff = meter.wait(Cause::Backoff, "backoff".into());
        tokio::time::advance(Duration::from_secs(2)).await;
        let reading = meter.read();
        assert_eq!(reading.waits_for.as_deref(), Some("budget of h: 3 s"));
        let waited = |seconds: [u64; 2]| {
            let seconds = seconds.map(Duration::from_secs);
            BTreeMap::from([(Cause::Backoff, seconds[0]), (Cause::Budget, seconds[1])])
        };
        assert_eq!(reading.waited, waited([2, 3]));
        drop(budget);
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(meter.waits_for().as_deref(), Some("backoff"));
        drop(backoff);
        tokio::time::advance(Duration::from_secs(60)).await;
        let reading = meter.read();
        assert_eq!((reading.waits_for, reading.waited), (None, waited([7, 3])));
    }

    #[test]
    fn times_and_spans_are_short() {
        let day = Duration::from_secs(1_780_000_000);
        let at = |seconds| clock_time(day + Duration::from_secs(seconds), day);
        assert_eq!(at(70), "20:27:50 UTC");
        assert_eq!(at(86_400), "2026-05-29 20:26:40 UTC");
        let seconds = |ms| seconds(Duration::from_millis(ms));
        assert_eq!(seconds(3_000), "3 s");
        assert_eq!(seconds(250), "0.3 s");
        assert_eq!(seconds(59_999), "60 s");
        assert_eq!(seconds(12_300), "13 s");
    }
}
