//! Sets the knobs of a loader so that the caller hardly ever waits, with the fewest threads.
//!
//! Every [`INTERVAL`] it looks at where the time of the interval was spent and moves one knob by
//! one step. Up, when the caller waited more than [`MOST_WAIT`] of the time: the knob of the stage
//! that the others waited for. Down, one thread at a time, when no stage waited for some intervals
//! and the threads had much idle time; a step down that made the caller wait is taken back and not
//! tried again for twice as long as before.

use std::time::Duration;

/// Time between decisions.
pub(crate) const INTERVAL: Duration = Duration::from_secs(2);

/// Share of the time that the caller may wait for batches.
const MOST_WAIT: f64 = 0.005;

/// Intervals without waiting before a thread is taken away, at first.
const PATIENCE: u32 = 3;

/// And at most.
const MOST_PATIENCE: u32 = 1 << 10;

/// A thread is spare when the others would be busy for at most this share of their time.
const MOST_BUSY: f64 = 0.85;

/// Adjustable values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Knobs {
    /// Reads under way at one time.
    pub(crate) reads: u32,
    /// Threads that fill batches.
    pub(crate) threads: u32,
    /// Batches filled or ready at one time.
    pub(crate) ahead: u32,
}

/// Totals since the loader was opened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    /// On the loader's clock.
    pub(crate) now: Duration,
    /// The caller waited for a batch.
    pub(crate) consumer_wait: Duration,
    /// Nothing could be filled because a block was missing.
    pub(crate) block_wait: Duration,
    /// No read could start because the budget of bytes was used up.
    pub(crate) budget_wait: Duration,
    /// Nothing could be filled because so many batches were under way.
    pub(crate) slab_wait: Duration,
    /// Threads were filling, summed over all.
    pub(crate) busy: Duration,
}

/// The controller of one loader.
#[derive(Debug)]
pub(crate) struct Controller {
    knobs: Knobs,
    most: Knobs,
    before: Option<Totals>,
    /// Intervals in a row without waiting.
    calm: u32,
    patience: u32,
    /// The last move took a thread away.
    lowered: bool,
}

impl Controller {
    /// A controller that begins with `knobs` and never exceeds `most`.
    pub(crate) fn new(knobs: Knobs, most: Knobs) -> Self {
        Self {
            knobs,
            most,
            before: None,
            calm: 0,
            patience: PATIENCE,
            lowered: false,
        }
    }

    /// The present setting.
    pub(crate) fn knobs(&self) -> Knobs {
        self.knobs
    }

    /// Returns true if an interval is over at `now`.
    pub(crate) fn is_due(&self, now: Duration) -> bool {
        self.before
            .is_none_or(|before| now.saturating_sub(before.now) >= INTERVAL)
    }

    /// Decides about the interval that ends with `totals`. The first call begins the first interval.
    pub(crate) fn decide(&mut self, totals: Totals) -> Knobs {
        let Some(before) = self.before.replace(totals) else {
            return self.knobs;
        };
        let time = totals.now.saturating_sub(before.now).as_secs_f64();
        if time <= 0.0 {
            return self.knobs;
        }
        let share = |of: fn(&Totals) -> Duration| {
            of(&totals).saturating_sub(of(&before)).as_secs_f64() / time
        };
        let waited = share(|t| t.consumer_wait);
        if waited > MOST_WAIT {
            self.calm = 0;
            self.relieve(
                share(|t| t.block_wait),
                share(|t| t.budget_wait),
                share(|t| t.busy),
                share(|t| t.slab_wait),
            );
        } else {
            self.calm += 1;
            self.lower(share(|t| t.busy));
        }
        self.knobs
    }

    /// Opens up the stage that holds up the others.
    fn relieve(&mut self, block_wait: f64, budget_wait: f64, busy: f64, slab_wait: f64) {
        if std::mem::take(&mut self.lowered) {
            self.patience = (self.patience * 2).min(MOST_PATIENCE);
            self.knobs.threads = (self.knobs.threads + 1).min(self.most.threads);
            return;
        }
        let saturated = busy >= MOST_BUSY * f64::from(self.knobs.threads);
        if block_wait > slab_wait && block_wait > MOST_WAIT && !saturated {
            // With the budget used up, more reads would only queue for it.
            if budget_wait < block_wait {
                let step = (self.knobs.reads / 2).max(1);
                self.knobs.reads = self.knobs.reads.saturating_add(step).min(self.most.reads);
            }
        } else if saturated && self.knobs.threads < self.most.threads {
            self.knobs.threads += 1;
        } else {
            self.knobs.ahead = (self.knobs.ahead + 1).min(self.most.ahead);
        }
    }

    /// Takes a thread away that is not needed.
    fn lower(&mut self, busy: f64) {
        let others = self.knobs.threads.saturating_sub(1);
        let spare = others > 0 && busy <= MOST_BUSY * f64::from(others);
        if self.calm >= self.patience && spare {
            self.knobs.threads = others;
            self.calm = 0;
            self.lowered = true;
        } else if self.calm >= self.patience {
            self.lowered = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Knobs = Knobs {
        reads: 16,
        threads: 4,
        ahead: 2,
    };
    const MOST: Knobs = Knobs {
        reads: 64,
        threads: 8,
        ahead: 4,
    };

    /// A loader whose stages behave as `model` says: from the knobs to the seconds per second of an interval.
    fn run(intervals: u32, model: impl Fn(Knobs) -> Totals) -> Vec<Knobs> {
        let mut controller = Controller::new(START, MOST);
        let mut totals = Totals::default();
        controller.decide(totals);
        (0..intervals)
            .map(|_| {
                assert!(!controller.is_due(totals.now));
                let more = model(controller.knobs());
                totals.now += INTERVAL;
                totals.consumer_wait += more.consumer_wait;
                totals.block_wait += more.block_wait;
                totals.budget_wait += more.budget_wait;
                totals.slab_wait += more.slab_wait;
                totals.busy += more.busy;
                assert!(controller.is_due(totals.now));
                let before = controller.knobs();
                let after = controller.decide(totals);
                let moved = u32::from(before.reads != after.reads)
                    + u32::from(before.threads != after.threads)
                    + u32::from(before.ahead != after.ahead);
                assert!(moved <= 1, "one knob at a time: {before:?} to {after:?}");
                after
            })
            .collect()
    }

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    /// Decoding takes `work` seconds of threads in a second of training.
    fn decoding(work: f64) -> impl Fn(Knobs) -> Totals {
        move |knobs| {
            let threads = f64::from(knobs.threads);
            let late = (work / threads - 1.0).max(0.0);
            Totals {
                consumer_wait: seconds(2.0 * late / (1.0 + late)),
                busy: seconds(2.0 * (work / (1.0 + late)).min(threads)),
                slab_wait: seconds(if late > 0.0 { 0.0 } else { 1.0 }),
                ..Totals::default()
            }
        }
    }

    #[test]
    fn slow_decoding_gets_threads_until_nobody_waits() {
        let last = run(20, decoding(5.5)).pop().unwrap();
        assert_eq!(last, Knobs { threads: 6, ..last });
        assert_eq!((last.reads, last.ahead), (START.reads, START.ahead));
    }

    #[test]
    fn the_caps_hold() {
        let last = run(50, decoding(100.0)).pop().unwrap();
        assert!(
            last.threads == MOST.threads && last.ahead <= MOST.ahead,
            "{last:?}"
        );
    }

    #[test]
    fn spare_threads_go_and_the_last_stays() {
        assert_eq!(run(40, decoding(0.5)).pop().unwrap().threads, 1);
        assert_eq!(run(40, decoding(1.5)).pop().unwrap().threads, 2);
        // Steps so slow that nothing is to be done for a while.
        assert_eq!(run(40, decoding(0.0)).pop().unwrap().threads, 1);
    }

    #[test]
    fn a_step_down_that_hurts_is_taken_back_and_tried_ever_more_rarely() {
        // Bursts: with fewer than four threads the caller waits, although on average they are half idle.
        let bursts = |knobs: Knobs| Totals {
            consumer_wait: seconds(if knobs.threads < 4 { 0.1 } else { 0.0 }),
            busy: seconds(2.0 * 1.5),
            ..Totals::default()
        };
        let settings = run(400, bursts);
        let low = settings.iter().filter(|knobs| knobs.threads < 4).count();
        assert!(
            (2..10).contains(&low),
            "{low} of 400 intervals were too low"
        );
        assert_eq!(settings.last().unwrap().reads, START.reads);
    }

    #[test]
    fn slow_reads_get_permits_but_not_beyond_the_budget_of_bytes() {
        let latency = |budget_wait| {
            move |knobs: Knobs| {
                let waits = seconds(if knobs.reads < 40 { 0.5 } else { 0.0 });
                Totals {
                    consumer_wait: waits,
                    block_wait: waits,
                    budget_wait: seconds(budget_wait),
                    busy: seconds(6.4),
                    ..Totals::default()
                }
            }
        };
        let knobs = run(10, latency(0.0)).pop().unwrap();
        assert_eq!((knobs.reads, knobs.threads), (54, START.threads));
        assert_eq!(run(10, latency(2.0)).pop().unwrap().reads, START.reads);
    }

    #[test]
    fn uneven_batches_get_more_slabs() {
        let uneven = |knobs: Knobs| Totals {
            consumer_wait: seconds(if knobs.ahead < 4 { 0.05 } else { 0.0 }),
            slab_wait: seconds(0.5),
            busy: seconds(6.6),
            ..Totals::default()
        };
        let last = run(10, uneven).pop().unwrap();
        assert_eq!((last.ahead, last.threads), (4, START.threads));
    }
}
