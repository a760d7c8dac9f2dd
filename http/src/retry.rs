//! Retries: the wait before the next try, and the decision to give up.
//!
//! Waits follow "full jitter": before retry n (from 0) a random time from 0 to
//! `min(cap_ms, base_ms * 2^n)`. A wait the server asks for with `Retry-After` is never shortened; one longer than
//! `max_wait_s` ends the run as deferred. `max_elapsed_s` bounds all tries of a request and their
//! waits together: a wait that would end later is not begun.

pub mod failed_try;

use std::{sync::Arc, time::Duration};

use feedline_schemas::config::RetryConfig;
use tokio::{sync::watch, time::Instant};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use self::failed_try::{Again, Failure, TriedError, out_of_tries};
use crate::{
    backoff::{Jitter, doubled},
    clock::Clock,
    context::RequestContext,
    error::Error,
    http_cause::HttpCause,
    meter::{Cause, RequestMeter, clock_time, seconds},
};

/// Runs tries of requests, one request at a time.
#[derive(Debug)]
pub struct Retry {
    source: String,
    settings: RetryConfig,
    clock: Arc<dyn Clock>,
    cancel: watch::Receiver<bool>,
    jitter: Jitter,
    meter: Arc<RequestMeter>,
    retries: u64,
}

impl Retry {
    /// An executor for the source called `source`.
    #[must_use]
    pub fn new(source: &str, settings: &RetryConfig, context: &RequestContext) -> Self {
        Self {
            source: source.to_owned(),
            settings: settings.clone(),
            clock: Arc::clone(&context.clock),
            cancel: context.cancel.clone(),
            // Processes that hit the same server draw different waits, and the run id reproduces a
            // run's waits.
            jitter: Jitter::new(xxh3_64(format!("{}/{source}", context.run_id).as_bytes())),
            meter: Arc::clone(&context.meter),
            retries: 0,
        }
    }

    /// Creates an executor for concurrent requests; `number` distinguishes it from others.
    #[must_use]
    pub fn beside(&self, number: u64) -> Self {
        let seed = xxh3_64_with_seed(&number.to_le_bytes(), self.jitter.seed());
        Self {
            source: self.source.clone(),
            settings: self.settings.clone(),
            clock: Arc::clone(&self.clock),
            cancel: self.cancel.clone(),
            jitter: Jitter::new(seed),
            meter: Arc::clone(&self.meter),
            retries: 0,
        }
    }

    /// Tries beyond the first of all requests so far.
    #[must_use]
    pub fn retries(&self) -> u64 {
        self.retries
    }

    /// Calls `attempt` until it succeeds, fails for good, or `max_tries` or `max_elapsed_s` is
    /// reached.
    ///
    /// # Errors
    /// The last try's error; [`Error::Deferred`]; [`Error::Cancelled`] as soon as the run should
    /// stop, in the middle of a try or of a wait.
    pub async fn run<T, E, F>(&mut self, mut attempt: impl FnMut() -> F) -> Result<T, E>
    where
        E: TriedError,
        F: Future<Output = Result<T, Failure<E>>>,
    {
        let mut tries = 1;
        let begin = Instant::now();
        loop {
            let tried = unless_cancelled(&mut self.cancel, attempt()).await;
            let failure = match tried.ok_or(Error::Cancelled)? {
                Ok(value) => return Ok(value),
                Err(failure) => failure,
            };
            let wait = self.wait(&failure, tries)?;
            let Some(wait) = wait.filter(|_| tries < self.settings.max_tries.get()) else {
                return Err(out_of_tries(failure, tries, ""));
            };
            let longest = self.settings.max_elapsed_s.duration();
            if begin.elapsed().saturating_add(wait) > longest {
                if let Again::After(asked) = failure.again {
                    let deferred =
                        self.deferred(asked, "than is left of", "max_elapsed_s", &failure);
                    return Err(deferred.into());
                }
                let over = ", `retry.max_elapsed_s` is over";
                return Err(out_of_tries(failure, tries, over));
            }
            let wait_ms = wait.as_millis();
            tracing::warn!(source = self.source, tries, %wait_ms, error = %failure.error, "will retry");
            let (cause, what) = self.told(&failure, wait, tries + 1);
            let waiting = self.meter.wait(cause, what);
            let waited = unless_cancelled(&mut self.cancel, tokio::time::sleep(wait)).await;
            waited.ok_or(Error::Cancelled)?;
            drop(waiting);
            tries += 1;
            self.retries += 1;
            self.meter.tried_again();
        }
    }

    /// Describes the reason for `wait` before this try.
    fn told<E: TriedError>(
        &self,
        failure: &Failure<E>,
        wait: Duration,
        next: u32,
    ) -> (Cause, String) {
        let Self { settings, .. } = self;
        let (url, cause) = (failure.error.failed_request()).unwrap_or(("", HttpCause::Other));
        let (place, status) = (host_of(url), cause.status());
        if let Again::After(_) = failure.again {
            let now = self.clock.unix();
            let until = clock_time(now.saturating_add(wait), now);
            let what = match status {
                None => format!("{place} asked for a delay until {until}"),
                Some(status) => format!("{status} until {until}"),
            };
            return (Cause::Asked, what);
        }
        let tries = format!("{} (try {next} of {})", seconds(wait), settings.max_tries);
        if cause == HttpCause::CircuitOpen {
            return (Cause::Circuit, format!("circuit of {place} open: {tries}"));
        }
        let what = status.map_or_else(|| "a failure".to_owned(), |status| status.to_string());
        (Cause::Backoff, format!("backoff after {what}: {tries}"))
    }

    /// Wait after try number `tries` (from 1) failed; `None` if there is no retry.
    fn wait<E: TriedError>(
        &mut self,
        failure: &Failure<E>,
        tries: u32,
    ) -> Result<Option<Duration>, Error> {
        Ok(match failure.again {
            Again::Never | Again::Gone | Again::Absent | Again::End => None,
            Again::Backoff | Again::Unprocessed => Some(self.backoff(tries - 1)),
            Again::After(asked) if asked.as_secs() > self.settings.max_wait_s => {
                return Err(self.deferred(asked, "than", "max_wait_s", failure));
            }
            // All clients got the same time: jitter keeps them from all returning at once.
            Again::After(asked) => Some(asked.saturating_add(self.backoff(0))),
        })
    }

    /// Error of a run with a wait longer than the limit `key`.
    fn deferred<E: TriedError>(
        &self,
        asked: Duration,
        than: &str,
        key: &str,
        failure: &Failure<E>,
    ) -> Error {
        let longest = self.settings.max_deferral_s.get();
        let wait = asked.min(Duration::from_secs(longest));
        let until = self.clock.unix().saturating_add(wait);
        let capped = if wait < asked {
            format!("; the next request is allowed after `retry.max_deferral_s` = {longest} s")
        } else {
            String::new()
        };
        let most = match key {
            "max_wait_s" => self.settings.max_wait_s,
            _ => self.settings.max_elapsed_s.get(),
        };
        Error::Deferred {
            r#source: self.source.clone(),
            until_unix_s: until.as_secs().saturating_add(1),
            wait_s: wait.as_secs().saturating_add(1),
            reason: format!(
                "the server asks to wait {} s, longer {than} `retry.{key}` = {most} ({}){capped}",
                asked.as_secs(),
                failure.error
            ),
        }
    }

    fn backoff(&mut self, exponent: u32) -> Duration {
        let RetryConfig {
            base_ms, cap_ms, ..
        } = self.settings;
        let longest = doubled(base_ms, exponent, cap_ms);
        Duration::from_millis(self.jitter.up_to(longest))
    }
}

/// The host of a URL, as a message shows it.
fn host_of(url: &str) -> &str {
    let behind = url.split_once("://").map_or(url, |(_, behind)| behind);
    behind.split(['/', '?']).next().unwrap_or_default()
}

/// Returns the result of `work`; `None` if the run should stop before.
async fn unless_cancelled<T>(
    cancel: &mut watch::Receiver<bool>,
    work: impl Future<Output = T>,
) -> Option<T> {
    tokio::select! {
        biased;
        // A dropped sender can no longer cancel anything: the branch is disabled and the work
        // continues.
        Ok(_) = cancel.wait_for(|cancelled| *cancelled) => None,
        done = work => Some(done),
    }
}

#[cfg(test)]
mod tests;
