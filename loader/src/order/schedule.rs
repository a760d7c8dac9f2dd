//! How many samples each source gives to each batch of a pass.

use super::batches::Batches;

/// The batches of a pass and what they are made of.
#[derive(Debug)]
pub(crate) struct Schedule {
    batches: Batches,
    /// Samples the source has given before the pass.
    before: u64,
}

impl Schedule {
    /// All samples of one source once, after `epochs` such passes.
    pub(crate) fn single(batches: Batches, epochs: u64) -> Self {
        Self {
            batches,
            before: epochs * batches.samples(),
        }
    }

    /// The batches of the pass.
    pub(crate) fn batches(&self) -> Batches {
        self.batches
    }

    /// Writes into `counts`, for each source, the samples it has given before `batch`, in all passes.
    pub(crate) fn before(&self, batch: u64, counts: &mut Vec<u64>) {
        let ours = batch.saturating_mul(self.batches.full());
        counts.clear();
        counts.push(self.before + ours.min(self.batches.samples()));
    }

    /// A batch that is not after the one in which `source` gives its sample `sample`, and one that is not before it.
    pub(crate) fn batches_around(&self, source: usize, sample: u64) -> (u64, u64) {
        debug_assert_eq!(source, 0, "there is one source");
        let batch = sample.saturating_sub(self.before) / self.batches.full();
        (batch, batch)
    }
}
