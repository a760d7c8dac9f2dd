//! Where the time of training steps goes.

use std::time::Duration;

/// Counts waiting for batches and computing, since the start and since the last line of metrics.
#[derive(Clone, Debug)]
pub(crate) struct Meter {
    last: Duration,
    window: Spent,
    total: Spent,
}

#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    waiting: Duration,
    computing: Duration,
    samples: usize,
}

impl Meter {
    /// Starts at `now`.
    pub(crate) fn new(now: Duration) -> Self {
        Self {
            last: now,
            window: Spent::default(),
            total: Spent::default(),
        }
    }

    /// Time until now belongs to no step.
    pub(crate) fn begin(&mut self, now: Duration) {
        self.last = now;
    }

    /// Time until now was spent waiting for a batch.
    pub(crate) fn waited(&mut self, now: Duration) {
        let spent = now.saturating_sub(self.last);
        self.window.waiting += spent;
        self.total.waiting += spent;
        self.last = now;
    }

    /// Time until now was spent on a step.
    pub(crate) fn computed(&mut self, now: Duration, samples: usize) {
        let spent = now.saturating_sub(self.last);
        for part in [&mut self.window, &mut self.total] {
            part.computing += spent;
            part.samples += samples;
        }
        self.last = now;
    }

    /// Samples per second and waiting share since the last call.
    #[expect(clippy::cast_precision_loss, reason = "row counts are far below 2^53")]
    pub(crate) fn take_window(&mut self) -> (f64, f64) {
        let window = std::mem::take(&mut self.window);
        let seconds = (window.waiting + window.computing).as_secs_f64();
        let rate = if seconds > 0.0 {
            window.samples as f64 / seconds
        } else {
            0.0
        };
        (rate, window.wait_share())
    }

    /// Waiting share since the start.
    pub(crate) fn total_wait_share(&self) -> f64 {
        self.total.wait_share()
    }
}

impl Spent {
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

    #[test]
    fn time_between_epochs_counts_for_neither_waiting_nor_computing() {
        let at = Duration::from_secs;
        let mut meter = Meter::new(at(0));
        meter.begin(at(100));
        meter.waited(at(101));
        meter.computed(at(104), 8);
        assert_eq!(meter.take_window(), (2.0, 0.25));
        meter.begin(at(200));
        meter.waited(at(200));
        meter.computed(at(204), 8);
        assert_eq!(meter.take_window(), (2.0, 0.0));
        assert_eq!(meter.total_wait_share().to_bits(), 0.125_f64.to_bits());
    }

    #[test]
    fn no_time_at_all_is_no_rate() {
        assert_eq!(Meter::new(Duration::ZERO).take_window(), (0.0, 0.0));
    }
}
