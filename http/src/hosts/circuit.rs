//! The circuit to a host: closed, open after failures in a row, half open while one request probes
//! it.

use std::time::Duration;

use tokio::time::Instant;

use crate::backoff::{Jitter, doubled};

/// Longest time between two probes, unless the first one is longer.
const LONGEST: Duration = Duration::from_secs(600);

#[derive(Clone, Debug)]
pub(super) struct Settings {
    /// Failures in a row that open it; 0 for never.
    pub(super) failures: u32,
    /// Time from opening to the first probe.
    pub(super) cooldown: Duration,
    pub(super) seed: u64,
}

/// Decision of the circuit about a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Closed,
    /// Send the request as the probe.
    Probe,
    /// Failures in a row, and the time to the next probe; zero while one is on its way.
    Down(u32, Duration),
}

#[derive(Debug, Default)]
pub(super) struct Circuit {
    /// Consecutive failures.
    failures: u32,
    /// Time of the next probe; `None` while it is closed.
    until: Option<Instant>,
    /// Probes that failed in a row.
    probes: u32,
    is_probing: bool,
}

impl Circuit {
    pub(super) fn is_closed(&self) -> bool {
        self.failures == 0
    }

    /// Returns the decision without reserving the probe.
    pub(super) fn look(&self, now: Instant) -> Asked {
        match self.until {
            None => Asked::Closed,
            Some(_) if self.is_probing => Asked::Down(self.failures, Duration::ZERO),
            Some(until) if until > now => Asked::Down(self.failures, until - now),
            Some(_) => Asked::Probe,
        }
    }

    /// Returns the decision and reserves the probe if it is granted: only to a request that may be one.
    pub(super) fn ask(&mut self, now: Instant, may_probe: bool) -> Asked {
        let asked = match self.look(now) {
            Asked::Probe if !may_probe => Asked::Down(self.failures, Duration::ZERO),
            asked => asked,
        };
        self.is_probing |= asked == Asked::Probe;
        asked
    }

    pub(super) fn succeeded(&mut self) {
        *self = Self::default();
    }

    /// Releases a request that gave no evidence whether the host is up.
    pub(super) fn released(&mut self, is_probe: bool) {
        self.is_probing &= !is_probe;
    }

    pub(super) fn failed(&mut self, settings: &Settings, is_probe: bool, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        self.released(is_probe);
        match self.until {
            Some(_) if is_probe => self.probes += 1,
            // It had been sent before the circuit opened.
            Some(_) => return,
            None if settings.failures == 0 || self.failures < settings.failures => return,
            None => self.probes = 0,
        }
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let most = LONGEST.max(settings.cooldown);
        let wait_ms = doubled(ms(settings.cooldown), self.probes, ms(most));
        // Up to a quarter longer, so that processes do not return together.
        let seed = settings.seed ^ u64::from(self.failures);
        let more_ms = Jitter::new(seed).up_to(wait_ms / 4);
        self.until = Some(now + Duration::from_millis(wait_ms) + Duration::from_millis(more_ms));
    }
}
