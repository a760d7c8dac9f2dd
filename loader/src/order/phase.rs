//! From when on which weights hold.

use feedline_schemas::loader_state::LastBatch;

use super::{
    batches::Batches,
    dataset_mixture::{Mixture, MixtureCells},
    schedule::Schedule,
};

/// The weights that hold from a batch on, and what the sources gave before it. So any later position follows from the
/// phase alone, whatever weights held before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Phase {
    /// Epoch in which it begins.
    pub(crate) epoch: u64,
    /// Its first batch of that epoch.
    pub(crate) batch: u64,
    /// Weights.
    pub(crate) parts: Vec<u64>,
    /// Samples of each source before the epoch.
    pub(crate) before: Vec<u64>,
    /// Samples of each source in the epoch before the phase.
    pub(crate) used: Vec<u64>,
}

impl Phase {
    /// The first phase of a run.
    pub(crate) fn first(parts: Vec<u64>) -> Self {
        Self {
            epoch: 0,
            batch: 0,
            before: vec![0; parts.len()],
            used: vec![0; parts.len()],
            parts,
        }
    }

    /// The schedule of an epoch, which is not before that of the phase. In that of the phase it holds from its first
    /// batch on.
    ///
    /// # Errors
    /// Reason that the weights cannot be used.
    pub(crate) fn schedule(
        &self,
        mixture: &Mixture,
        epoch: u64,
        global_batch: u32,
        last: LastBatch,
    ) -> Result<Schedule, String> {
        let (before, cells) = self.cells(mixture, epoch)?;
        let batches = Batches::new(cells.samples(), global_batch, last);
        Ok(Schedule::mixed(batches, before, cells))
    }

    /// The phase in which other weights hold from batch `batch` of epoch `epoch` on.
    ///
    /// # Errors
    /// Reason that the weights of this phase cannot be used.
    pub(crate) fn change(
        &self,
        mixture: &Mixture,
        (epoch, batch): (u64, u64),
        global_batch: u32,
        parts: Vec<u64>,
    ) -> Result<Self, String> {
        let (before, cells) = self.cells(mixture, epoch)?;
        let position = batch.saturating_mul(global_batch.into());
        Ok(Self {
            epoch,
            batch,
            parts,
            before,
            used: cells.before(position.min(cells.samples())),
        })
    }

    fn cells(&self, mixture: &Mixture, epoch: u64) -> Result<(Vec<u64>, MixtureCells), String> {
        let begun = mixture.schedule(&self.parts, &self.used, self.epoch)?;
        let Some(epochs) = epoch.checked_sub(self.epoch + 1) else {
            return Ok((self.before.clone(), begun));
        };
        let none = vec![0; self.parts.len()];
        let cells = mixture.schedule(&self.parts, &none, epoch)?;
        let before = (self.before.iter().zip(begun.totals()).zip(cells.totals()))
            .map(|((before, begun), each)| before + begun + epochs * each)
            .collect();
        Ok((before, cells))
    }
}
