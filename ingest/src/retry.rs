//! Trying again: which wait comes before the next try, and when to give up.
//!
//! Waits follow "full jitter": before retry n (from 0) a random time from `[0, min(cap_ms, base_ms * 2^n)]`. A wait the server
//! asks for with `Retry-After` is never shortened; one longer than `max_wait_s` ends the run as deferred. `max_elapsed_s`
//! bounds all tries of a request and their waits together: a wait that would end later is not begun.

use std::{
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use feedline_schemas::config::RetryConfig;
use feedline_storage::clock::Clock;
use tokio::{sync::watch, time::Instant};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::{context::Context, error::Error};

/// Why a try failed.
#[derive(Debug)]
pub(crate) struct Failure {
    /// What to say if no further try succeeds.
    pub error: Box<Error>,
    /// Whether a further try makes sense.
    pub again: Again,
}

/// Whether and when to try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    /// The answer would be the same.
    Never,
    /// Neither: the server does not know (any more) what it was asked for (status 400 or 410).
    Gone,
    /// After our own backoff.
    Backoff,
    /// Not before the time that the server asked for.
    After(Duration),
}

/// Runs tries of requests, one request at a time.
#[derive(Debug)]
pub(crate) struct Retry {
    source: String,
    settings: RetryConfig,
    clock: Arc<dyn Clock>,
    cancel: watch::Receiver<bool>,
    jitter: Jitter,
    retries: u64,
}

impl Retry {
    /// An executor for the source called `source`.
    ///
    /// # Errors
    /// [`Error::Config`] when a setting is out of its range.
    pub(crate) fn new(
        source: &str,
        settings: &RetryConfig,
        context: &Context,
    ) -> Result<Self, Error> {
        if !(1..=100).contains(&settings.max_tries) {
            let reason = format!("{} is out of range, use 1 to 100", settings.max_tries);
            return Err(Error::config("retry.max_tries", reason));
        }
        Ok(Self {
            source: source.to_owned(),
            settings: settings.clone(),
            clock: Arc::clone(&context.clock),
            cancel: context.cancel.clone(),
            // Processes that hit the same server draw different waits, and a run's waits can be told from its id.
            jitter: Jitter::new(xxh3_64(format!("{}/{source}", context.run_id).as_bytes())),
            retries: 0,
        })
    }

    /// An executor for requests beside those of this one; `number` tells it from others.
    pub(crate) fn beside(&self, number: u64) -> Self {
        let seed = xxh3_64_with_seed(&number.to_le_bytes(), self.jitter.seed);
        Self {
            source: self.source.clone(),
            settings: self.settings.clone(),
            clock: Arc::clone(&self.clock),
            cancel: self.cancel.clone(),
            jitter: Jitter::new(seed),
            retries: 0,
        }
    }

    /// Tries beyond the first of all requests so far.
    pub(crate) fn retries(&self) -> u64 {
        self.retries
    }

    /// Calls `attempt` until it succeeds, fails for good, or `max_tries` or `max_elapsed_s` is reached.
    ///
    /// # Errors
    /// The last try's error; [`Error::Deferred`]; [`Error::Cancelled`] as soon as the run should stop, in the middle of
    /// a try or of a wait.
    pub(crate) async fn run<T, F>(&mut self, mut attempt: impl FnMut() -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let mut tries = 1;
        let begin = Instant::now();
        loop {
            let failure = match unless_cancelled(&mut self.cancel, attempt()).await? {
                Ok(value) => return Ok(value),
                Err(failure) => failure,
            };
            let wait = self.wait(&failure, tries)?;
            let Some(wait) = wait.filter(|_| tries < self.settings.max_tries) else {
                return Err(out_of_tries(failure, tries, ""));
            };
            let longest = Duration::from_secs(self.settings.max_elapsed_s);
            if begin.elapsed().saturating_add(wait) > longest {
                if let Again::After(asked) = failure.again {
                    return Err(self.deferred(asked, "than is left of", "max_elapsed_s", &failure));
                }
                let over = ", `retry.max_elapsed_s` is over";
                return Err(out_of_tries(failure, tries, over));
            }
            let wait_ms = wait.as_millis();
            tracing::warn!(source = self.source, tries, %wait_ms, error = %failure.error, "will try again");
            unless_cancelled(&mut self.cancel, tokio::time::sleep(wait)).await?;
            tries += 1;
            self.retries += 1;
        }
    }

    /// How long to wait after try number `tries` (from 1) failed; `None` when there is nothing to wait for.
    fn wait(&mut self, failure: &Failure, tries: u32) -> Result<Option<Duration>, Error> {
        Ok(match failure.again {
            Again::Never | Again::Gone => None,
            Again::Backoff => Some(self.backoff(tries - 1)),
            Again::After(asked) if asked.as_secs() > self.settings.max_wait_s => {
                return Err(self.deferred(asked, "than", "max_wait_s", failure));
            }
            // Everybody was told the same moment: the jitter keeps us from all coming back in it.
            Again::After(asked) => Some(asked.saturating_add(self.backoff(0))),
        })
    }

    /// The end of a run that is asked to wait longer than `key` lets it.
    fn deferred(&self, asked: Duration, than: &str, key: &str, failure: &Failure) -> Error {
        let until = self.clock.unix().saturating_add(asked);
        let most = match key {
            "max_wait_s" => self.settings.max_wait_s,
            _ => self.settings.max_elapsed_s,
        };
        Error::Deferred {
            r#source: self.source.clone(),
            until_unix_s: until.as_secs().saturating_add(1),
            reason: format!(
                "the server asks to wait {} s, longer {than} `retry.{key}` = {most} ({})",
                asked.as_secs(),
                failure.error
            ),
        }
    }

    fn backoff(&mut self, exponent: u32) -> Duration {
        let RetryConfig {
            base_ms, cap_ms, ..
        } = self.settings;
        let longest = base_ms
            .saturating_mul(1u64.checked_shl(exponent).unwrap_or(u64::MAX))
            .min(cap_ms);
        Duration::from_millis(self.jitter.up_to(longest))
    }
}

/// A seeded generator of waits: the n-th draw is a hash of n.
#[derive(Debug)]
pub(crate) struct Jitter {
    seed: u64,
    draws: u64,
}

impl Jitter {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, draws: 0 }
    }

    /// A number from `0..=longest`.
    pub(crate) fn up_to(&mut self, longest: u64) -> u64 {
        self.draws += 1;
        let hash = xxh3_64_with_seed(&self.draws.to_le_bytes(), self.seed);
        let scaled = (u128::from(hash) * (u128::from(longest) + 1)) >> 64;
        u64::try_from(scaled).expect("below longest + 1")
    }
}

/// The wait a `Retry-After` header asks for; `None` for zero, a time that has passed and anything that is neither
/// seconds nor an HTTP date: then our own backoff applies.
///
/// A date is compared to the response's `Date` (`date`) if it has one, so that a wrong clock on either side does no
/// harm, otherwise to `now` (since 1970). Seconds beyond 64 bits count as the longest time there is.
pub(crate) fn retry_after(value: &str, date: Option<&str>, now: Duration) -> Option<Duration> {
    let unix = |text: &str| {
        httpdate::parse_http_date(text)
            .ok()?
            .duration_since(UNIX_EPOCH)
            .ok()
    };
    let wait = if let Some(seconds) = whole_seconds(value.trim()) {
        Duration::from_secs(seconds)
    } else {
        unix(value.trim())?.checked_sub(date.and_then(unix).unwrap_or(now))?
    };
    (!wait.is_zero()).then_some(wait)
}

/// Seconds, rounded up: some servers send `0.7`, which the standard does not know.
fn whole_seconds(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) {
        return None;
    }
    let up = u64::from(fraction.bytes().any(|b| b != b'0'));
    Some(whole.parse::<u64>().unwrap_or(u64::MAX).saturating_add(up))
}

/// The last error; `over` says what ended the tries, if not their number.
fn out_of_tries(failure: Failure, tries: u32, over: &str) -> Error {
    let tried = match (tries, over) {
        (1, "") => String::new(),
        (1, over) => format!(" (the first try{over})"),
        (tries, over) => format!(" (the last of {tries} tries{over})"),
    };
    match *failure.error {
        Error::Http { url, what, advice } => Error::Http {
            url,
            what: what + &tried,
            advice,
        },
        Error::Body { url, reason } => Error::Body {
            url,
            reason: reason + &tried,
        },
        other => other,
    }
}

async fn unless_cancelled<T>(
    cancel: &mut watch::Receiver<bool>,
    work: impl Future<Output = T>,
) -> Result<T, Error> {
    tokio::select! {
        biased;
        // A dropped sender can no longer cancel anything: the branch is disabled and the work goes on.
        Ok(_) = cancel.wait_for(|cancelled| *cancelled) => Err(Error::Cancelled),
        done = work => Ok(done),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::http::testing;

    fn retry(settings: RetryConfig) -> Retry {
        Retry::new("quotes", &settings, &testing::context()).unwrap()
    }

    fn failure(again: Again) -> Failure {
        let error = Error::Http {
            url: "http://api.example/".into(),
            what: "it failed".into(),
            advice: "mend it".into(),
        };
        Failure {
            error: Box::new(error),
            again,
        }
    }

    /// Runs tries with the given failures, then success; gives the outcome, the number of tries and the waited time.
    async fn tried(retry: &mut Retry, failures: &[Again]) -> (Result<(), Error>, u32, Duration) {
        let begin = Instant::now();
        let mut tries = 0;
        let mut script: VecDeque<Again> = failures.iter().copied().collect();
        let outcome = retry
            .run(|| {
                tries += 1;
                let next = script.pop_front();
                async move { next.map_or(Ok(()), |again| Err(failure(again))) }
            })
            .await;
        (outcome, tries, begin.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn transient_failures_are_tried_again_with_bounded_backoff() {
        let mut retry = retry(RetryConfig {
            base_ms: 1_000,
            cap_ms: 3_000,
            ..RetryConfig::default()
        });
        let (outcome, tries, waited) = tried(&mut retry, &[Again::Backoff; 5]).await;
        assert!(outcome.is_ok());
        assert_eq!((tries, retry.retries()), (6, 5));
        assert!(
            waited > Duration::ZERO
                && waited <= Duration::from_millis(1_000 + 2_000 + 3 * 3_000 + 5),
            "{waited:?}"
        );
    }

    #[test]
    fn backoff_uses_the_whole_range_and_repeats_with_its_seed() {
        let draws = |seed| {
            let mut jitter = Jitter::new(seed);
            (0..1_000).map(|_| jitter.up_to(9)).collect::<Vec<_>>()
        };
        assert_eq!(draws(7), draws(7));
        assert_ne!(draws(7), draws(8));
        for value in 0..=9 {
            let share = draws(7).iter().filter(|&&d| d == value).count();
            assert!(
                (60..140).contains(&share),
                "{value} came {share} times of 1000"
            );
        }
        assert!((0..100).all(|_| Jitter::new(1).up_to(0) == 0));
        let mut huge = retry(RetryConfig {
            base_ms: u64::MAX,
            cap_ms: 10,
            ..RetryConfig::default()
        });
        assert!(huge.backoff(99) <= Duration::from_millis(10));
    }

    #[tokio::test(start_paused = true)]
    async fn tries_run_out_and_the_message_says_so() {
        let mut retry = retry(RetryConfig {
            max_tries: 3,
            ..RetryConfig::default()
        });
        let (outcome, tries, _) = tried(&mut retry, &[Again::Backoff; 9]).await;
        assert_eq!(tries, 3);
        let message = outcome.unwrap_err().to_string();
        assert_eq!(
            message,
            "cannot fetch `http://api.example/`: it failed (the last of 3 tries); mend it"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_terminal_failure_is_not_tried_again() {
        let (outcome, tries, waited) =
            tried(&mut retry(RetryConfig::default()), &[Again::Never]).await;
        assert_eq!((tries, waited), (1, Duration::ZERO));
        assert!(!outcome.unwrap_err().to_string().contains("tries"));
    }

    #[tokio::test(start_paused = true)]
    async fn fault_13_an_asked_wait_is_never_shortened() {
        let settings = RetryConfig {
            base_ms: 100,
            cap_ms: 200,
            ..RetryConfig::default()
        };
        let asked = Duration::from_secs(250);
        let (outcome, _, waited) = tried(&mut retry(settings), &[Again::After(asked)]).await;
        assert!(outcome.is_ok());
        assert!(
            waited >= asked && waited <= asked + Duration::from_millis(102),
            "{waited:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn fault_14_a_wait_over_the_limit_defers_without_waiting() {
        for seconds in [301, u64::MAX] {
            let asked = Again::After(Duration::from_secs(seconds));
            let (outcome, tries, waited) =
                tried(&mut retry(RetryConfig::default()), &[asked]).await;
            assert_eq!((tries, waited), (1, Duration::ZERO));
            let Err(Error::Deferred { until_unix_s, .. }) = outcome else {
                panic!("{outcome:?}")
            };
            assert!(until_unix_s >= seconds);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_tries_of_a_request_have_a_budget_of_time() {
        let settings = RetryConfig {
            base_ms: 40_000,
            cap_ms: 40_000,
            max_tries: 100,
            max_elapsed_s: 120,
            ..RetryConfig::default()
        };
        let mut retry = retry(settings);
        let (outcome, tries, waited) = tried(&mut retry, &[Again::Backoff; 99]).await;
        assert!((3..50).contains(&tries), "{tries}");
        assert!(waited <= Duration::from_secs(120), "{waited:?}");
        let message = outcome.unwrap_err().to_string();
        let end = format!("(the last of {tries} tries, `retry.max_elapsed_s` is over); mend it");
        assert!(message.ends_with(&end), "{message}");
        // A server that says when to come back is come back to, by a later run.
        let asked = Again::After(Duration::from_secs(121));
        let (outcome, tries, waited) = tried(&mut retry, &[asked]).await;
        assert_eq!((tries, waited), (1, Duration::ZERO));
        let message = outcome.unwrap_err().to_string();
        assert!(
            message.contains("longer than is left of `retry.max_elapsed_s` = 120"),
            "{message}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_ends_waits_and_tries_at_once() {
        for hangs_in_try in [false, true] {
            let (stop, cancel) = watch::channel(false);
            let context = Context {
                cancel,
                ..testing::context()
            };
            let mut retry = Retry::new("quotes", &RetryConfig::default(), &context).unwrap();
            let begin = Instant::now();
            let run = retry.run(|| async move {
                if hangs_in_try {
                    std::future::pending::<()>().await;
                }
                Err::<(), _>(failure(Again::After(Duration::from_secs(300))))
            });
            let stopper = async {
                tokio::time::sleep(Duration::from_secs(1)).await;
                stop.send(true).unwrap();
            };
            let (outcome, ()) = tokio::join!(run, stopper);
            assert!(matches!(outcome, Err(Error::Cancelled)), "{outcome:?}");
            assert!(begin.elapsed() < Duration::from_secs(2));
        }
    }

    #[test]
    fn retry_after_is_understood_in_both_forms() {
        let now = Duration::from_secs(784_111_777); // Sun, 06 Nov 1994 08:49:37 GMT
        let check = |value: &str, date: Option<&str>, seconds: Option<u64>| {
            assert_eq!(
                retry_after(value, date, now),
                seconds.map(Duration::from_secs),
                "{value} {date:?}"
            );
        };
        check("7", None, Some(7));
        check(" 120 ", None, Some(120));
        check("1.5", None, Some(2));
        check("1000000000000", None, Some(1_000_000_000_000));
        check("99999999999999999999999", None, Some(u64::MAX));
        check("Sun, 06 Nov 1994 08:50:07 GMT", None, Some(30));
        check("Sunday, 06-Nov-94 08:50:07 GMT", None, Some(30));
        // The server's clock is an hour behind ours.
        check(
            "Sun, 06 Nov 1994 07:50:07 GMT",
            Some("Sun, 06 Nov 1994 07:49:37 GMT"),
            Some(30),
        );
        check("Sun, 06 Nov 1994 08:50:07 GMT", Some("yesterday"), Some(30));
        check("Sun, 06 Nov 1994 08:49:07 GMT", None, None);
        check(
            "Sun, 06 Nov 1994 09:50:07 GMT",
            Some("Sun, 06 Nov 1994 10:49:37 GMT"),
            None,
        );
        for garbage in ["0", "0.0", "-5", "soon", "", ".", ".5", "1e3", "+3", "inf"] {
            check(garbage, None, None);
        }
    }
}
