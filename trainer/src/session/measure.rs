//! Weights measured on a split.

use std::sync::atomic::Ordering;

use feedline_schemas::{
    ids::{Epoch, Step},
    manifest::Split,
    progress::Event,
};

use super::{DeviceFeed, TrainSession, own_rows::OwnRows, shares::Shares, step::names_of};
use crate::{
    data::samples::{Data, RankBatch, Samples},
    error::Error,
    evaluation::metrics::Evaluation,
    model::{
        engine::{ModelEngine, Prediction},
        input,
    },
    optim::loss,
    parallel::{Phase, Ranks},
    plan::RunPlan,
    session::run_context::Watch,
};

impl<D: Data> TrainSession<'_, D> {
    /// Measures weights on a split; `None` when the stop flag was set meanwhile.
    pub(super) fn evaluate(
        &self,
        bucket: &[f32],
        split: Split,
    ) -> Result<Option<Evaluation>, Error> {
        self.at(Phase::Evaluating);
        let at = (self.position.step, self.position.epoch);
        evaluate(
            self.plan,
            &self.engine,
            self.data,
            bucket,
            split,
            at,
            self.watch,
        )
    }
}

/// Rows that were measured, and the outputs of the model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MeasuredBatch<'a> {
    /// The rows with their targets.
    pub(crate) samples: Samples<'a>,
    /// `[rows, outputs]`, row-major; empty where the target is the sample itself.
    pub(crate) outputs: &'a [f32],
    /// Loss of each row.
    pub(crate) losses: &'a [f32],
    /// Keys of the rows.
    pub(crate) keys: &'a [u64],
    /// Packed origins of the rows.
    pub(crate) origins: &'a [u64],
}

/// Receives the rows of a split in stored order; `false` stops the measuring.
pub(crate) type EachBatch<'e> = dyn FnMut(MeasuredBatch<'_>) -> bool + 'e;

/// Measures weights on all rows of a split but those that hold another sample than the order names. Ranks share the rows, and each measures all that they found. `None` when the
/// stop flag of one of them was set.
///
/// # Errors
/// [`Error::LossNotFinite`] when a loss is NaN or infinite, [`Error::Dataset`] for a split without rows, or what the data
/// says.
pub(crate) fn evaluate<D: Data>(
    plan: &RunPlan,
    engine: &ModelEngine,
    data: &D,
    bucket: &[f32],
    split: Split,
    at: (Step, Epoch),
    watch: Watch<'_>,
) -> Result<Option<Evaluation>, Error> {
    evaluate_each(plan, engine, data, (bucket, split), at, watch, &mut |_| {
        true
    })
}

/// The same, which also gives `each` the rows of this rank.
///
/// # Errors
/// As [`evaluate`].
pub(crate) fn evaluate_each<D: Data>(
    plan: &RunPlan,
    engine: &ModelEngine,
    data: &D,
    (bucket, split): (&[f32], Split),
    at: (Step, Epoch),
    watch: Watch<'_>,
    each: &mut EachBatch<'_>,
) -> Result<Option<Evaluation>, Error> {
    let stage = format!("evaluate {split}");
    let mut evaluation = no_rows(plan);
    let weights = engine.weights(bucket);
    let feed = DeviceFeed::new(engine, plan.settings.config().loader.device_prefetch);
    let is_whole = feed.feed(data.sequential(split)?, |batches| {
        for batch in batches {
            let batch = batch?;
            let samples = batch.samples();
            plan.check_targets(samples, batch.keys())?;
            let prediction = engine.predict(&weights, samples);
            let own = OwnRows::of(&batch);
            count_own_ids(&mut evaluation, samples, &own);
            let goes_on = give_own_rows(&batch, &prediction, &own, each);
            let stop = !goes_on || watch.stop.load(Ordering::Relaxed);
            let gathered = (watch.ranks.are_many() || !own.are_all()).then(|| {
                Shares::of(engine, &prediction, &batch, &own, stop).gather(engine, watch.ranks)
            });
            let gathered = gathered.transpose()?;
            evaluation.leave_out(gathered.as_ref().map_or(0, |all| all.substituted));
            let (prediction, targets, keys, origins, stop) = match &gathered {
                None => (
                    &prediction,
                    samples.targets,
                    batch.keys(),
                    batch.origins(),
                    stop,
                ),
                Some(all) => (
                    &all.prediction,
                    all.targets.borrowed(),
                    all.keys.as_slice(),
                    all.origins.as_slice(),
                    all.stop,
                ),
            };
            check_losses(&prediction.losses, keys, (at.0, split))?;
            evaluation.add(prediction, targets);
            evaluation.add_worst(prediction, targets, keys, origins);
            watch.progress.report(Event {
                stage: &stage,
                done: evaluation.rows(),
                total: None,
                unit: "rows",
                note: "",
            });
            if stop {
                return Ok(false);
            }
        }
        Ok(true)
    })?;
    if !is_whole {
        return Ok(None);
    }
    if let Some(counts) = evaluation.id_counts().filter(|_| watch.ranks.are_many()) {
        sum_counts(counts, watch.ranks)?;
    }
    if evaluation.rows() == 0 {
        return Err(plan.dataset_error(match evaluation.left_out() {
            0 => format!("its {split} split has no rows; give it a larger share, or add data"),
            bad => format!(
                "none of the {bad} samples of its {split} split can be used; build it again"
            ),
        }));
    }
    Ok(Some(evaluation))
}

/// Refuses losses whose sum is not finite, of weights after this step on this split.
///
/// # Errors
/// [`Error::LossNotFinite`].
fn check_losses(losses: &[f32], keys: &[u64], (step, split): (Step, Split)) -> Result<(), Error> {
    let value = loss::sum(losses);
    if value.is_finite() {
        return Ok(());
    }
    Err(Error::LossNotFinite {
        step,
        split,
        value,
        keys: names_of(losses, keys),
    })
}

/// An evaluation without rows.
fn no_rows(plan: &RunPlan) -> Evaluation {
    let evaluation = Evaluation::new(&plan.task).with_loss(plan.settings.loss());
    evaluation.of_query(plan.is_of_query)
}

/// Counts the ids that are to be predicted in rows that hold their own samples.
fn count_own_ids(evaluation: &mut Evaluation, samples: Samples<'_>, own: &OwnRows) {
    if evaluation.id_counts().is_none() {
        return;
    }
    for rows in own.ranges() {
        let next = input::next_tokens(samples.slice(rows.clone()));
        evaluation.count_ids(&next.ids);
    }
}

/// Adds up counts, as many on every rank.
///
/// # Errors
/// [`Error::Rank`].
fn sum_counts(counts: &mut [u64], ranks: &Ranks) -> Result<(), Error> {
    let own = counts.iter().flat_map(|count| count.to_le_bytes());
    let all = ranks.gather(own.collect())?;
    counts.fill(0);
    for bytes in &all {
        let (of_rank, _) = bytes.as_chunks::<8>();
        for (count, bytes) in counts.iter_mut().zip(of_rank) {
            *count += u64::from_le_bytes(*bytes);
        }
    }
    Ok(())
}

/// Gives `each` the rows of a batch that hold their own samples; false where it stops the measuring.
fn give_own_rows(
    batch: &impl RankBatch,
    prediction: &Prediction,
    own: &OwnRows,
    each: &mut EachBatch<'_>,
) -> bool {
    own.ranges().iter().all(|rows| {
        each(MeasuredBatch {
            samples: match own.are_all() {
                true => batch.samples(),
                false => batch.samples().slice(rows.clone()),
            },
            outputs: own.part(&prediction.outputs, rows),
            losses: own.part(&prediction.losses, rows),
            keys: own.part(batch.keys(), rows),
            origins: own.part(batch.origins(), rows),
        })
    })
}
