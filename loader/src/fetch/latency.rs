//! Latencies of requests by size, from the latest of them.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// Samples kept for each size class.
const KEPT: usize = 512;
/// Below so many, nothing is known.
const LEAST: usize = 32;
/// Quantiles are recomputed after so many.
const EVERY: usize = 16;

/// Latencies by size class; a class holds sizes up to twice its smallest.
#[derive(Debug)]
pub(crate) struct Latencies {
    classes: Mutex<Vec<Ring>>,
}

#[derive(Clone, Debug, Default)]
struct Ring {
    seconds: Vec<f32>,
    next: usize,
    since: usize,
    known: Option<Quantiles>,
}

/// Seconds that a share of the requests did not exceed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Quantiles {
    pub(crate) p50: f32,
    pub(crate) p95: f32,
    pub(crate) p99: f32,
}

impl Latencies {
    pub(crate) fn new() -> Self {
        Self {
            classes: Mutex::new(vec![Ring::default(); u64::BITS as usize]),
        }
    }

    /// Adds how long a request for `bytes` took; one that was given up counts with the time until then.
    pub(crate) fn add(&self, bytes: u64, time: Duration) {
        let mut classes = self.classes.lock().unwrap_or_else(PoisonError::into_inner);
        classes[class(bytes)].add(time.as_secs_f32());
    }

    /// The quantiles for requests of `bytes`, once there have been enough.
    pub(crate) fn quantiles(&self, bytes: u64) -> Option<Quantiles> {
        let classes = self.classes.lock().unwrap_or_else(PoisonError::into_inner);
        classes[class(bytes)].known
    }
}

fn class(bytes: u64) -> usize {
    bytes.max(1).ilog2() as usize
}

impl Ring {
    fn add(&mut self, seconds: f32) {
        if self.seconds.len() < KEPT {
            self.seconds.push(seconds);
        } else {
            self.seconds[self.next] = seconds;
            self.next = (self.next + 1) % KEPT;
        }
        self.since += 1;
        if self.seconds.len() >= LEAST && (self.known.is_none() || self.since >= EVERY) {
            self.since = 0;
            self.known = Some(quantiles(self.seconds.clone()));
        }
    }
}

/// The quantiles of at least one number.
pub(crate) fn quantiles(mut seconds: Vec<f32>) -> Quantiles {
    seconds.sort_unstable_by(f32::total_cmp);
    let at = |permille: usize| seconds[(seconds.len() - 1) * permille / 1000];
    Quantiles {
        p50: at(500),
        p95: at(950),
        p99: at(990),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_latest_requests_of_that_size() {
        let latencies = Latencies::new();
        let add = |bytes, millis| latencies.add(bytes, Duration::from_millis(millis));
        for _ in 0..LEAST - 1 {
            add(1 << 20, 10);
        }
        assert_eq!(latencies.quantiles(1 << 20), None, "too few");
        add(1_100_000, 10);
        assert!((latencies.quantiles(1 << 20).unwrap().p95 - 0.01).abs() < 1e-6);
        assert_eq!(latencies.quantiles(1 << 21), None, "another class");
        for millis in 1..=KEPT as u64 {
            add(1 << 20, millis);
        }
        let Quantiles { p50, p95, p99 } = latencies.quantiles(1 << 20).unwrap();
        assert!((p50 - 0.256).abs() < 0.002, "{p50}");
        assert!((p95 - 0.486).abs() < 0.002, "{p95}");
        assert!((p99 - 0.506).abs() < 0.002, "{p99}");
    }
}
