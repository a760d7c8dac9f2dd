//! Agreement of ranks in a step: sums, the stop flag, and equality of their weights.

use std::{collections::BTreeMap, sync::atomic::Ordering, time::Duration};

use burn::tensor::Tensor;
use feedline_storage::clock::Clock;
use xxhash_rust::xxh3::xxh3_128;

use super::{TrainSession, saves::live, shares, sharing::Sharing};
use crate::{
    data::samples::{Data, RankBatch, Samples},
    error::Error,
    model::engine::{Computed, ModelEngine, sections::Sections},
    parallel::{Phase, Ranks, Wire},
    random::Stream,
    session::run_context::Watch,
};

/// Rows that identify a bad batch.
pub(super) struct RowsOfAll {
    /// Of each row, or of each predicted token.
    pub(super) losses: Vec<f32>,
    pub(super) keys: Vec<u64>,
    /// Packed.
    pub(super) origins: Vec<u64>,
}

/// Result of the exchange of a gradient.
#[derive(Debug, Default)]
struct Exchanged {
    failed: Option<Error>,
    /// Time for it alone.
    waited: Duration,
    /// Time beside the backward pass.
    hidden: Duration,
}

/// A loss and its gradient; the ranks exchange its sections meanwhile.
fn exchanging(
    engine: &ModelEngine,
    weights: (&[f32], &[Tensor<1>]),
    samples: Samples<'_>,
    randomness: (Stream, f64),
    gradient: &mut [f32],
    sections: &Sections,
    (ranks, sharing, clock): (&Ranks, &Sharing, &dyn Clock),
) -> (Computed, Exchanged) {
    let mut failed = None;
    let mut spent = Duration::ZERO;
    let exchange = |section, values: &mut [f32]| {
        if failed.is_none() {
            let begun = clock.monotonic();
            let first = sections.range(section).start;
            failed = sharing.reduce(ranks, first, values).err();
            spent += clock.monotonic().saturating_sub(begun);
        }
    };
    let mut all_computed = Duration::ZERO;
    let done = || all_computed = clock.monotonic();
    let overlapped = Some((exchange, done));
    let computed = engine.loss_and_sections(
        weights,
        samples,
        randomness,
        gradient,
        sections.clone(),
        overlapped,
    );
    let waited = clock.monotonic().saturating_sub(all_computed);
    let exchanged = Exchanged {
        failed,
        waited,
        hidden: spent.saturating_sub(waited),
    };
    (computed, exchanged)
}

impl<D: Data> TrainSession<'_, D> {
    /// Computes this rank's rows of a batch, whose loss is multiplied by `loss_scale`. Ranks
    /// exchange each section of the gradient as soon as all of them have it, while the backward
    /// pass continues in the layers before. A checkpoint that is due begins meanwhile.
    pub(super) fn compute(
        &mut self,
        samples: Samples<'_>,
        loss_scale: f64,
    ) -> Result<Computed, Error> {
        self.at(Phase::Computing);
        let seed = self.plan.settings.config().seed;
        let randomness = (Stream::dropout(seed, self.position.step), loss_scale);
        let Watch { ranks, clock, .. } = self.watch;
        let weights = ranks.are_many().then(|| self.weights_of_step());
        let due = self.saving.due.take();
        let mut work = || {
            let (engine, bucket) = (&self.engine, &self.bucket);
            let gradient = &mut self.gradient;
            if let Some(weights) = &weights {
                let over = (ranks, &self.sharing, clock);
                exchanging(
                    engine,
                    (bucket, weights),
                    samples,
                    randomness,
                    gradient,
                    &self.sections,
                    over,
                )
            } else {
                let computed = engine.loss_and_gradient(bucket, samples, randomness, gradient);
                (computed, Exchanged::default())
            }
        };
        let (computed, exchanged) = match due {
            Some(due) => {
                let live = live(&self.bucket, self.average.as_ref(), &self.optimizer, &due);
                let snapshots = &mut self.saving.snapshots;
                let mut copied = None;
                let (done, found) = rayon::in_place_scope(|scope| {
                    scope.spawn(|_| copied = Some(snapshots.copy(live)));
                    let found = work();
                    (clock.monotonic(), found)
                });
                self.meter.stalled(clock.monotonic().saturating_sub(done));
                self.saving.saver.start(due.with(copied));
                found
            }
            None => work(),
        };
        if !ranks.are_many() {
            return Ok(computed);
        }
        self.meter.exchanged(exchanged.waited);
        self.meter.hidden(exchanged.hidden);
        match exchanged.failed {
            Some(error) => Err(error),
            None => self.exchange(computed),
        }
    }

    /// Makes of this rank's buffers and sums those of the global batch, and finds out whether any rank is to stop. What
    /// only concerns this rank's rows stays.
    fn exchange(&mut self, computed: Computed) -> Result<Computed, Error> {
        let ranks = self.watch.ranks;
        let stop = self.watch.stop.load(Ordering::Relaxed);
        self.at(Phase::Exchanging);
        let start = self.watch.clock.monotonic();
        let stop = if stop { 1.0 } else { 0.0 };
        let sums = [
            computed.loss_sum,
            computed.unsmoothed_sum,
            computed.weight,
            stop,
        ];
        let [loss_sum, unsmoothed_sum, weight, stops] = ranks.sums(sums)?;
        let mut buffers = computed.buffers;
        if !buffers.is_empty() {
            ranks.all_reduce(&mut buffers, Wire::Full)?;
        }
        self.agreed_to_stop = stops > 0.0;
        let spent = self.watch.clock.monotonic().saturating_sub(start);
        self.meter.exchanged(spent);
        Ok(Computed {
            loss_sum,
            unsmoothed_sum,
            weight,
            buffers,
            ..computed
        })
    }

    /// Gives all ranks the weights that each has moved, where each moves a share.
    pub(super) fn gather_weights(&mut self) -> Result<(), Error> {
        let start = self.watch.clock.monotonic();
        self.sharing.gather(self.watch.ranks, &mut self.bucket)?;
        let spent = self.watch.clock.monotonic().saturating_sub(start);
        self.meter.exchanged(spent);
        Ok(())
    }

    /// Returns true to stop after a step: the agreement of many ranks in it, or the stop flag of
    /// one alone.
    pub(super) fn stopping(&self) -> bool {
        if self.watch.ranks.are_many() {
            self.agreed_to_stop
        } else {
            self.watch.stop.load(Ordering::Relaxed)
        }
    }

    /// Rows of the whole batch, from this rank's own losses and the rows of its batch.
    pub(super) fn of_all(
        &self,
        losses: &[f32],
        batch: &impl RankBatch,
    ) -> Result<RowsOfAll, Error> {
        self.gather_rows(&RowsOfAll {
            losses: losses.to_vec(),
            keys: batch.keys().to_vec(),
            origins: batch.origins().to_vec(),
        })
    }

    /// Rows of the whole batch, from those of this rank.
    pub(super) fn gather_rows(&self, own: &RowsOfAll) -> Result<RowsOfAll, Error> {
        let ranks = self.watch.ranks;
        Ok(RowsOfAll {
            losses: shares::of_all(ranks, &own.losses)?,
            keys: shares::of_all(ranks, &own.keys)?,
            origins: shares::of_all(ranks, &own.origins)?,
        })
    }

    /// Compares the weights of all ranks, bit by bit.
    ///
    /// # Errors
    /// [`Error::WeightsDiffer`], the same on all ranks.
    pub(super) fn compare_weights(&mut self) -> Result<(), Error> {
        let ranks = self.watch.ranks;
        if !ranks.are_many() {
            return Ok(());
        }
        self.fetch()?;
        let hash = xxh3_128(bytemuck::cast_slice(&self.bucket));
        let hashes = ranks.gather(hash.to_le_bytes().to_vec())?;
        // Who is fast has just waited here for the others.
        self.meter.begin(self.watch.clock.monotonic());
        let odd = odd_ones(&hashes);
        if odd.is_empty() {
            return Ok(());
        }
        let odd: Vec<String> = odd.iter().map(ToString::to_string).collect();
        Err(Error::WeightsDiffer {
            step: self.position.step,
            ranks: odd.join(", "),
        })
    }
}

/// The places that do not hold what more than half of all hold; all where there is no such majority.
fn odd_ones<T: Ord>(values: &[T]) -> Vec<usize> {
    let mut counts = BTreeMap::new();
    for value in values {
        *counts.entry(value).or_insert(0_usize) += 1;
    }
    let most = counts.into_iter().find(|(_, n)| 2 * n > values.len());
    let ranks = values.iter().enumerate();
    let odd = ranks.filter(|(_, value)| most.is_none_or(|(most, _)| most != *value));
    odd.map(|(rank, _)| rank).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_minority_is_odd_and_without_a_majority_all_are() {
        assert_eq!(odd_ones(&[1, 1]), [0; 0]);
        assert_eq!(odd_ones(&[1, 2]), [0, 1]);
        assert_eq!(odd_ones(&[1, 1, 2]), [2]);
        assert_eq!(odd_ones(&[2, 1, 1, 1, 3]), [0, 4]);
        assert_eq!(odd_ones(&[1, 1, 2, 2]), [0, 1, 2, 3]);
    }
}
