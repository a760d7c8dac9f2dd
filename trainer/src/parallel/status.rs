//! Status of a rank, to find out which one hangs.

use std::{
    fmt,
    sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed},
};

use serde::{Deserialize, Serialize};

/// Phase of a rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Phase {
    /// Opening the dataset, reading a checkpoint.
    #[default]
    Starting,
    /// Waiting for a batch.
    Loading,
    /// Computing losses and gradient.
    Computing,
    /// Exchanging sums with other ranks.
    Exchanging,
    /// Moving the weights.
    Updating,
    /// Measuring a split.
    Evaluating,
    /// Writing a checkpoint.
    Saving,
}

const PHASES: [Phase; 7] = [
    Phase::Starting,
    Phase::Loading,
    Phase::Computing,
    Phase::Exchanging,
    Phase::Updating,
    Phase::Evaluating,
    Phase::Saving,
];

/// Step and phase of a rank at some instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Whereabouts {
    /// Steps taken.
    pub step: u64,
    /// Its phase.
    pub phase: Phase,
    /// Number of its last exchange with the others.
    pub exchange: u64,
    /// Steps of the newest checkpoint that it knew of.
    pub saved: u64,
}

/// Last known status of a rank.
#[derive(Debug, Default)]
pub(super) struct Status {
    step: AtomicU64,
    phase: AtomicU8,
    /// Number of collective operations, by messages and of tensors.
    collective: AtomicU64,
    /// Steps of the newest checkpoint; only known of this process.
    saved: AtomicU64,
}

impl Status {
    pub(super) fn set(&self, step: u64, phase: Phase) {
        self.step.store(step, Relaxed);
        self.phase.store(phase as u8, Relaxed);
    }

    /// There is a checkpoint of so many steps.
    pub(super) fn saved(&self, steps: u64) {
        self.saved.store(steps, Relaxed);
    }

    /// Current step and phase of the rank.
    pub(super) fn whereabouts(&self) -> Whereabouts {
        let phase = PHASES.get(usize::from(self.phase.load(Relaxed)));
        Whereabouts {
            step: self.step.load(Relaxed),
            phase: phase.copied().unwrap_or_default(),
            exchange: self.collective.load(Relaxed),
            saved: self.saved.load(Relaxed),
        }
    }

    /// Counts a collective operation.
    pub(super) fn next_collective(&self) {
        self.collective.fetch_add(1, Relaxed);
    }

    /// The status as a message holds it.
    pub(super) fn to_bytes(&self) -> [u8; 17] {
        let mut bytes = [0; 17];
        bytes[..8].copy_from_slice(&self.step.load(Relaxed).to_le_bytes());
        bytes[8..16].copy_from_slice(&self.collective.load(Relaxed).to_le_bytes());
        bytes[16] = self.phase.load(Relaxed);
        bytes
    }

    /// Takes over what [`Status::to_bytes`] made; anything else is left out.
    pub(super) fn take(&self, bytes: &[u8]) {
        let number = |at: usize| {
            let bytes = bytes.get(at..at + 8)?.try_into().ok()?;
            Some(u64::from_le_bytes(bytes))
        };
        if let (Some(step), Some(collective), Some(phase)) = (number(0), number(8), bytes.get(16)) {
            self.step.store(step, Relaxed);
            self.collective.store(collective, Relaxed);
            self.phase.store(*phase, Relaxed);
        }
    }
}

impl fmt::Display for Whereabouts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let phase = format!("{:?}", self.phase).to_lowercase();
        let Self { step, exchange, .. } = self;
        write!(f, "step {step}, {phase}, exchange {exchange}")
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.whereabouts().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_survives_its_journey() {
        let (here, there) = (Status::default(), Status::default());
        for phase in PHASES {
            here.set(7, phase);
            here.next_collective();
            there.take(&here.to_bytes());
            assert_eq!(there.to_string(), here.to_string());
        }
        assert_eq!(there.to_string(), "step 7, saving, exchange 7");
        there.take(&[1, 2, 3]);
        assert_eq!(there.to_string(), here.to_string());
    }
}
