//! Delays before a request is retried.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use super::FetchConfig;

/// Full jitter: a time drawn evenly between nothing and a bound that doubles with every retry, so that many who failed
/// together do not come back together (M. Brooker, "Exponential Backoff And Jitter", 2015).
#[derive(Debug)]
pub(crate) struct Backoff {
    base: Duration,
    most: Duration,
    state: AtomicU64,
}

impl Backoff {
    pub(crate) const fn new(config: &FetchConfig) -> Self {
        Self {
            base: config.backoff,
            most: config.backoff_most,
            state: AtomicU64::new(config.seed),
        }
    }

    /// Time to wait before retry `number`, counted from 0. What the server asked for is never shortened: the random
    /// time comes on top.
    pub(crate) fn wait(&self, number: u32, retry_after: Option<Duration>) -> Duration {
        let bound = self
            .base
            .saturating_mul(1_u32.checked_shl(number).unwrap_or(u32::MAX))
            .min(self.most);
        let asked = retry_after.unwrap_or_default();
        asked.saturating_add(bound.mul_f64(self.draw()))
    }

    /// A number from 0 to 1 (splitmix64).
    fn draw(&self) -> f64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut z = self.state.fetch_add(STEP, Relaxed).wrapping_add(STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
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
