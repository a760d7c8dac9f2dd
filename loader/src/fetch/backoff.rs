//! Delays before a request is retried.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use feedline_storage::backoff::{Jitter, doubled};

use super::FetchConfig;

/// Full jitter, drawn for all requests in turn: many that failed together do not come back together.
#[derive(Debug)]
pub(crate) struct Backoff {
    base_ns: u64,
    most_ns: u64,
    jitter: Mutex<Jitter>,
}

impl Backoff {
    pub(crate) fn new(config: &FetchConfig) -> Self {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Self {
            base_ns: nanos(config.backoff),
            most_ns: nanos(config.backoff_most),
            jitter: Mutex::new(Jitter::new(config.seed)),
        }
    }

    /// Time to wait before retry `number`, counted from 0. The delay that the server asked for is never shortened: the
    /// random time comes on top.
    pub(crate) fn wait(&self, number: u32, retry_after: Option<Duration>) -> Duration {
        let longest_ns = doubled(self.base_ns, number, self.most_ns);
        let mut jitter = self.jitter.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = retry_after.unwrap_or_default();
        asked.saturating_add(Duration::from_nanos(jitter.up_to(longest_ns)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_are_spread_and_never_cut_what_the_server_asked_for() {
        let config = FetchConfig::new();
        let backoff = Backoff::new(&config);
        for (number, bound) in [(0, 50), (3, 400), (20, 10_000), (40, 10_000)] {
            let bound = Duration::from_millis(bound);
            let waits: Vec<_> = (0..200).map(|_| backoff.wait(number, None)).collect();
            assert!(waits.iter().all(|wait| *wait <= bound), "{number}");
            assert!(
                waits.iter().any(|wait| *wait > bound.mul_f64(0.9)),
                "{number}"
            );
            assert!(
                waits.iter().any(|wait| *wait < bound.mul_f64(0.1)),
                "{number}"
            );
        }
        let asked = Duration::from_secs(3);
        assert!(backoff.wait(0, Some(asked)) >= asked);
        let longest = Duration::from_secs(u64::MAX);
        assert!(backoff.wait(9, Some(longest)) >= longest);
        let same = |_| Backoff::new(&config).wait(1, None);
        assert_eq!(same(()), same(()), "the seed decides");
    }
}
