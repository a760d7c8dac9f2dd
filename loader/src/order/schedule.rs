//! Number of samples that each source gives to each batch of a pass.

use super::{batches::Batches, dataset_mixture::MixtureCells};

/// The batches of a pass and what they are made of.
#[derive(Debug)]
pub(crate) struct Schedule {
    batches: Batches,
    /// Samples each source has given before the pass.
    before: Vec<u64>,
    /// Source of each sample; none for a single source.
    cells: Option<MixtureCells>,
}

impl Schedule {
    /// All samples of one source once, after `epochs` such passes.
    pub(crate) fn single(batches: Batches, epochs: u64) -> Self {
        Self {
            batches,
            before: vec![epochs * batches.samples()],
            cells: None,
        }
    }

    /// Some samples of some sources, which gave `before` before this epoch.
    pub(crate) fn mixed(batches: Batches, before: Vec<u64>, cells: MixtureCells) -> Self {
        Self {
            batches,
            before,
            cells: Some(cells),
        }
    }

    /// The batches of the pass.
    pub(crate) fn batches(&self) -> Batches {
        self.batches
    }

    /// For each source, the samples it has given before `batch`, in all passes.
    pub(crate) fn before(&self, batch: u64) -> Vec<u64> {
        let ours = batch.saturating_mul(self.batches.full());
        let ours = ours.min(self.batches.samples());
        match &self.cells {
            None => vec![self.before[0] + ours],
            Some(cells) => {
                let mut counts = cells.before(ours);
                counts
                    .iter_mut()
                    .zip(&self.before)
                    .for_each(|(c, b)| *c += b);
                counts
            }
        }
    }

    /// A batch that is not after the one in which `source` gives its sample `sample`, and one that is not before it.
    pub(crate) fn batches_around(&self, source: usize, sample: u64) -> (u64, u64) {
        let given = sample.saturating_sub(self.before[source]);
        let (low, high) = match &self.cells {
            None => (given, given),
            Some(cells) => cells.positions_around(source, given),
        };
        (low / self.batches.full(), high / self.batches.full())
    }
}
