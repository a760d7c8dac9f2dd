//! Times of the parts of training steps.

use std::time::Duration;

use feedline_schemas::performance::StepTime;

use crate::float_casts::exact_len;

/// Counts waiting for batches and computing, since the start and since the last line of metrics.
#[derive(Clone, Debug)]
pub(crate) struct StepMeter {
    last: Duration,
    window: Spent,
    total: Spent,
    exchanging: Duration,
    hidden: Duration,
    own: Own,
    /// Since the start, of the time that counts as computing.
    apart: Apart,
}

/// Parts of the time that counts as computing.
#[derive(Clone, Copy, Debug, Default)]
struct Apart {
    exchanging: Duration,
    stalled: Duration,
}

/// Steps of this rank, and the time of those in which it did not wait for others.
#[derive(Clone, Copy, Debug, Default)]
struct Own {
    spent: Duration,
    exchanging: Duration,
    steps: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    waiting: Duration,
    computing: Duration,
    saving: Duration,
    samples: usize,
}

/// Rates and times between two lines of metrics.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct MeterWindow {
    /// Samples per second of waiting and computing.
    pub(crate) samples_per_s: f64,
    /// Share of that time spent waiting for batches.
    pub(crate) data_wait_share: f64,
    /// Seconds that training stood still for checkpoints.
    pub(crate) save_stall_s: f64,
}

impl StepMeter {
    /// Starts at `now`.
    pub(crate) fn new(now: Duration) -> Self {
        Self {
            last: now,
            window: Spent::default(),
            total: Spent::default(),
            exchanging: Duration::ZERO,
            hidden: Duration::ZERO,
            own: Own::default(),
            apart: Apart::default(),
        }
    }

    /// Time until now belongs to no step.
    pub(crate) fn begin(&mut self, now: Duration) {
        self.last = now;
    }

    /// Time until now was spent on what follows a step: lines of metrics, progress, comparisons.
    pub(crate) fn noted(&mut self, now: Duration) {
        let spent = now.saturating_sub(self.last);
        self.window.computing += spent;
        self.total.computing += spent;
        self.own.spent += spent;
        self.last = now;
    }

    /// Time until now was spent waiting for a batch.
    pub(crate) fn waited(&mut self, now: Duration) {
        let spent = now.saturating_sub(self.last);
        self.window.waiting += spent;
        self.total.waiting += spent;
        self.own.spent += spent;
        self.last = now;
    }

    /// Time until now was spent on a step.
    pub(crate) fn computed(&mut self, now: Duration, samples: usize) {
        let spent = now.saturating_sub(self.last);
        for part in [&mut self.window, &mut self.total] {
            part.computing += spent;
            part.samples += samples;
        }
        self.own.spent += spent;
        self.own.steps += 1;
        self.last = now;
    }

    /// So long were gradients exchanged beside the backward pass.
    pub(crate) fn hidden(&mut self, spent: Duration) {
        self.hidden += spent;
    }

    /// So much of the time of steps was spent on exchanges alone.
    pub(crate) fn exchanged(&mut self, spent: Duration) {
        self.exchanging += spent;
        self.own.exchanging += spent;
        self.apart.exchanging += spent;
    }

    /// Seconds of steps spent on exchanges alone, and of exchanges beside the backward pass, since the last call.
    pub(crate) fn take_exchange(&mut self) -> (f64, f64) {
        let spent = [&mut self.exchanging, &mut self.hidden].map(std::mem::take);
        let [alone, hidden] = spent.map(|spent| spent.as_secs_f64());
        (alone, hidden)
    }

    /// Mean seconds of this rank's steps since the last call, without exchanges; `None` before there are so many.
    #[expect(clippy::cast_precision_loss, reason = "step counts are far below 2^53")]
    pub(crate) fn take_own_step(&mut self, least: u64) -> Option<f64> {
        if self.own.steps < least {
            return None;
        }
        let own = std::mem::take(&mut self.own);
        let seconds = own.spent.saturating_sub(own.exchanging).as_secs_f64();
        Some(seconds / own.steps as f64)
    }

    /// Training stood still for a checkpoint from `begun` until now.
    pub(crate) fn saved(&mut self, begun: Duration, now: Duration) {
        let spent = now.saturating_sub(begun);
        self.window.saving += spent;
        self.total.saving += spent;
        self.last = now;
    }

    /// Of the time that the next step counts as computing, so much was spent on waiting for a copy for a checkpoint.
    pub(crate) fn stalled(&mut self, waited: Duration) {
        self.window.saving += waited;
        self.total.saving += waited;
        self.apart.stalled += waited;
    }

    /// Rates and times since the last call.
    pub(crate) fn take_window(&mut self) -> MeterWindow {
        let window = std::mem::take(&mut self.window);
        MeterWindow {
            samples_per_s: window.samples_per_s(),
            data_wait_share: window.wait_share(),
            save_stall_s: window.saving.as_secs_f64(),
        }
    }

    /// Waiting share since the start.
    pub(crate) fn total_wait_share(&self) -> f64 {
        self.total.wait_share()
    }

    /// Time of the steps since the start, by use.
    pub(crate) fn total_time(&self) -> StepTime {
        let Apart {
            exchanging,
            stalled,
        } = self.apart;
        let computing = self.total.computing.saturating_sub(exchanging + stalled);
        StepTime {
            data_wait_s: self.total.waiting.as_secs_f64(),
            compute_s: computing.as_secs_f64(),
            communication_s: exchanging.as_secs_f64(),
            checkpoint_s: self.total.saving.as_secs_f64(),
        }
    }

    /// Samples per second of waiting and computing since the start.
    pub(crate) fn total_samples_per_s(&self) -> f64 {
        self.total.samples_per_s()
    }
}

impl Spent {
    /// 0 when no time passed.
    fn samples_per_s(&self) -> f64 {
        let seconds = (self.waiting + self.computing).as_secs_f64();
        if seconds > 0.0 {
            exact_len(self.samples) / seconds
        } else {
            0.0
        }
    }

    /// From 0 to 1; 0 when no time passed.
    fn wait_share(&self) -> f64 {
        let all = (self.waiting + self.computing).as_secs_f64();
        if all > 0.0 {
            self.waiting.as_secs_f64() / all
        } else {
            0.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn window(samples_per_s: f64, data_wait_share: f64, save_stall_s: f64) -> MeterWindow {
        MeterWindow {
            samples_per_s,
            data_wait_share,
            save_stall_s,
        }
    }

    #[test]
    fn time_between_epochs_counts_for_neither_waiting_nor_computing() {
        let at = Duration::from_secs;
        let mut meter = StepMeter::new(at(0));
        meter.begin(at(100));
        meter.waited(at(101));
        meter.computed(at(104), 8);
        assert_eq!(meter.take_window(), window(2.0, 0.25, 0.0));
        meter.begin(at(200));
        meter.waited(at(200));
        meter.computed(at(204), 8);
        assert_eq!(meter.take_window(), window(2.0, 0.0, 0.0));
        assert_eq!(meter.total_wait_share().to_bits(), 0.125_f64.to_bits());
    }

    #[test]
    fn time_after_a_step_is_no_waiting_for_the_next_batch() {
        let at = Duration::from_secs;
        let mut meter = StepMeter::new(at(0));
        meter.waited(at(1));
        meter.computed(at(3), 8);
        meter.noted(at(4));
        meter.waited(at(4));
        meter.computed(at(8), 8);
        assert_eq!(meter.take_window(), window(2.0, 0.125, 0.0));
    }

    #[test]
    fn time_for_checkpoints_is_neither_waiting_nor_computing() {
        let at = Duration::from_secs;
        let mut meter = StepMeter::new(at(0));
        meter.computed(at(3), 6);
        meter.saved(at(3), at(5));
        meter.waited(at(6));
        assert_eq!(meter.take_window(), window(1.5, 0.25, 2.0));
    }

    #[test]
    fn a_ranks_own_time_is_that_without_exchanges() {
        let at = Duration::from_secs;
        let mut meter = StepMeter::new(at(0));
        for step in 0..4 {
            assert_eq!(meter.take_own_step(4), None);
            meter.begin(at(100 * step));
            meter.waited(at(100 * step + 1));
            meter.exchanged(at(5));
            meter.computed(at(100 * step + 8), 8);
        }
        assert_eq!(meter.take_own_step(4), Some(3.0));
        assert_eq!(meter.take_own_step(1), None);
    }

    #[test]
    fn time_since_the_start_is_divided_by_use_and_counted_once() {
        let at = Duration::from_secs;
        let mut meter = StepMeter::new(at(0));
        meter.waited(at(2));
        meter.exchanged(at(3));
        meter.stalled(at(1));
        meter.computed(at(12), 60);
        meter.saved(at(12), at(17));
        meter.take_window();
        meter.take_exchange();
        let found = meter.total_time();
        let expected = StepTime {
            data_wait_s: 2.0,
            compute_s: 6.0,
            communication_s: 3.0,
            checkpoint_s: 6.0,
        };
        assert_eq!(found, expected);
        assert_eq!(found.total_s().to_bits(), 17.0_f64.to_bits());
        assert_eq!(meter.total_samples_per_s().to_bits(), 5.0_f64.to_bits());
    }

    #[test]
    fn no_time_at_all_is_no_rate() {
        let window = window(0.0, 0.0, 0.0);
        assert_eq!(StepMeter::new(Duration::ZERO).take_window(), window);
    }
}
