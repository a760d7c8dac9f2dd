//! Number of concurrent requests, found out while running.
//!
//! The limit begins low and doubles with every round of responses until the store shows that it is
//! too much; from then on it grows by one per round of at least 64 responses. It is halved when
//! more than one in twenty of a round, and more than two, ask for it (429, 503). It is also halved
//! when all times to the first byte have moved up: the 95th percentile to twice and the median to
//! one and a half times what they were at best. A single refusal changes nothing: one in a hundred
//! is usual for a large store, and halving for each would hold the limit at about a dozen, whatever
//! the store can do.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::oneshot;

use super::latency::{Quantiles, quantiles};

/// Limit at the start.
const START: u32 = 16;
/// Responses in a round, at least: fewer are too few to measure a rate of a few percent.
const ROUND: u32 = 64;

/// Permits for requests; the smallest number waits least.
pub(crate) struct Permits {
    state: Mutex<PermitState>,
}

#[derive(Debug)]
struct PermitState {
    control: Control,
    in_flight: u32,
    waiting: BTreeMap<(u64, u64), oneshot::Sender<Permit>>,
    arrivals: u64,
}

/// The right to one request.
pub(crate) struct Permit {
    permits: Arc<Permits>,
    /// Halvings before it was granted.
    cuts: u64,
}

impl Permits {
    pub(crate) fn new(most: u32) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(PermitState {
                control: Control::new(most),
                in_flight: 0,
                waiting: BTreeMap::new(),
                arrivals: 0,
            }),
        })
    }

    /// Waits for a permit; whoever has the smallest `first` is served first.
    pub(crate) async fn take(self: &Arc<Self>, first: u64) -> Permit {
        let granted = {
            let mut state = self.lock();
            if state.in_flight < state.control.limit && state.waiting.is_empty() {
                return state.grant(self);
            }
            state.control.was_full = true;
            let (sender, granted) = oneshot::channel();
            state.arrivals += 1;
            let place = (first, state.arrivals);
            state.waiting.insert(place, sender);
            granted
        };
        match granted.await {
            Ok(permit) => permit,
            // Senders are only dropped with the permits they send; this is a way out that is never taken.
            Err(_) => self.lock().grant(self),
        }
    }

    /// Permits there are.
    pub(crate) fn limit(&self) -> u32 {
        self.lock().control.limit
    }

    fn release(self: &Arc<Self>) {
        let mut granted = Vec::new();
        let mut state = self.lock();
        state.in_flight -= 1;
        while state.in_flight < state.control.limit
            && let Some((_, sender)) = state.waiting.pop_first()
        {
            granted.push((sender, state.grant(self)));
        }
        drop(state);
        for (sender, permit) in granted {
            // If its waiter is gone, the permit is dropped and passes to the next one.
            drop(sender.send(permit));
        }
    }

    fn lock(&self) -> MutexGuard<'_, PermitState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PermitState {
    fn grant(&mut self, permits: &Arc<Permits>) -> Permit {
        self.in_flight += 1;
        Permit {
            permits: Arc::clone(permits),
            cuts: self.control.cuts,
        }
    }
}

impl Permit {
    /// Records a response and the time to its first byte.
    pub(crate) fn answered(&self, time: Duration) {
        self.permits.lock().control.answered(time);
    }

    /// Records that the store asked for fewer requests.
    pub(crate) fn throttled(&self) {
        self.permits.lock().control.throttled(self.cuts);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.permits.release();
    }
}

impl fmt::Debug for Permits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Permits").field(&*self.lock()).finish()
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Permit")
    }
}

/// Additive increase, multiplicative decrease.
#[derive(Debug)]
struct Control {
    limit: u32,
    most: u32,
    is_starting: bool,
    /// Halvings so far. What a request from before the last one meets says nothing about the new limit.
    cuts: u64,
    /// True if a request had to wait in this round; else a higher limit would mean nothing.
    was_full: bool,
    throttled: u32,
    times: Vec<f32>,
    /// Times when the store was quickest.
    usual: Option<Quantiles>,
}

impl Control {
    fn new(most: u32) -> Self {
        Self {
            limit: START.min(most),
            most,
            is_starting: true,
            cuts: 0,
            was_full: false,
            throttled: 0,
            times: Vec::new(),
            usual: None,
        }
    }

    fn round(&self) -> u32 {
        self.limit.max(ROUND)
    }

    fn answered(&mut self, time: Duration) {
        self.times.push(time.as_secs_f32());
        if self.times.len() >= self.round() as usize {
            self.end_round();
        }
    }

    fn throttled(&mut self, cuts: u64) {
        if cuts < self.cuts {
            return;
        }
        self.throttled += 1;
        if self.throttled > (self.round() / 20).max(2) {
            self.cut();
        }
    }

    fn end_round(&mut self) {
        let now = quantiles(std::mem::take(&mut self.times));
        // A long tail moves the 95th percentile alone. Too many requests move the median as well.
        let has_risen = |usual: Quantiles| now.p95 > 2.0 * usual.p95 && now.p50 > 1.5 * usual.p50;
        if self.usual.is_some_and(has_risen) {
            self.cut();
            // If the times stay as they are, it was not the number of requests that moved them.
            self.usual = None;
            return;
        }
        // Slowly forgets how quick the store once was.
        self.usual = Some(self.usual.map_or(now, |usual| Quantiles {
            p50: now.p50.min(usual.p50 * 1.05),
            p95: now.p95.min(usual.p95 * 1.05),
            p99: now.p99,
        }));
        if self.was_full {
            let grown = if self.is_starting {
                self.limit * 2
            } else {
                self.limit + 1
            };
            self.limit = grown.min(self.most);
        }
        self.start_round();
    }

    fn cut(&mut self) {
        self.limit = (self.limit / 2).max(1);
        self.is_starting = false;
        self.cuts += 1;
        self.start_round();
    }

    fn start_round(&mut self) {
        self.throttled = 0;
        self.was_full = false;
        self.times.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUICK: Duration = Duration::from_millis(10);

    /// A round of responses that all take `time`.
    fn round(control: &mut Control, time: Duration) {
        control.was_full = true;
        for _ in 0..control.round() {
            control.answered(time);
        }
    }

    #[test]
    fn fault_05_a_storm_of_refusals_halves_the_limit_and_single_ones_do_not() {
        let mut control = Control::new(128);
        for limit in [32, 64, 128, 128] {
            round(&mut control, QUICK);
            assert_eq!(control.limit, limit, "doubles until something happens");
        }
        for _ in 0..50 {
            control.throttled(0);
            round(&mut control, QUICK);
        }
        assert_eq!(control.limit, 128, "one in a hundred");
        for _ in 0..7 {
            control.throttled(0);
        }
        assert_eq!(control.limit, 64);
        for _ in 0..100 {
            control.throttled(0);
        }
        assert_eq!(
            control.limit, 64,
            "they were sent before the limit was halved"
        );
        round(&mut control, QUICK);
        assert_eq!(control.limit, 65, "then one by one");
        for _ in 0..100 {
            control.throttled(control.cuts);
        }
        assert_eq!(control.limit, 1, "but never none");
    }

    #[test]
    fn the_limit_falls_when_all_become_slow_and_stays_when_a_few_do() {
        let mut control = Control::new(64);
        for _ in 0..3 {
            round(&mut control, QUICK);
        }
        let mut tail = Control::new(64);
        std::mem::swap(&mut control, &mut tail);
        tail.was_full = true;
        for number in 0..64 {
            tail.answered(if number % 10 == 0 { QUICK * 30 } else { QUICK });
        }
        assert_eq!(tail.limit, 64, "a long tail");
        round(&mut tail, QUICK * 3);
        assert_eq!(tail.limit, 32, "all are slow");
        round(&mut tail, QUICK * 3);
        assert_eq!(tail.limit, 33, "and stay so: the limit is not the cause");
        tail.was_full = false;
        for _ in 0..ROUND {
            tail.answered(QUICK);
        }
        assert_eq!(
            tail.limit, 33,
            "no request waited, so more would change nothing"
        );
    }

    #[tokio::test]
    async fn permits_go_to_the_first_needed_and_none_is_lost() {
        let permits = Permits::new(1);
        let held = permits.take(0).await;
        let wait = |first| {
            let permits = Arc::clone(&permits);
            tokio::spawn(async move {
                let _permit = permits.take(first).await;
                first
            })
        };
        let (late, gone, soon) = (wait(9), wait(1), wait(3));
        tokio::task::yield_now().await;
        assert_eq!(permits.lock().waiting.len(), 3);
        gone.abort();
        assert!(gone.await.is_err());
        drop(held);
        assert_eq!(soon.await.unwrap(), 3);
        assert_eq!(late.await.unwrap(), 9);
        assert_eq!(permits.lock().in_flight, 0);
    }
}
