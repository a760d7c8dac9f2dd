//! Weights measured on a split.

use feedline_schemas::{
    ids::{Epoch, Step},
    manifest::Split,
    progress::Event,
};

use super::{Session, step::not_finite};
use crate::{
    data::{Batch, Data},
    engine::Engine,
    error::Error,
    loss,
    metrics::Evaluation,
    plan::Plan,
};

impl<D: Data> Session<'_, D> {
    /// Measures weights on a split; `None` when the stop flag was set meanwhile.
    pub(super) fn evaluate(
        &self,
        bucket: &[f32],
        split: Split,
    ) -> Result<Option<Evaluation>, Error> {
        let stage = format!("evaluate {split}");
        let report = |rows| {
            self.watch.progress.report(Event {
                stage: &stage,
                done: rows,
                total: None,
                unit: "rows",
                note: "",
            })
        };
        let at = (self.position.step, self.position.epoch);
        evaluate(
            self.plan,
            &self.engine,
            self.data,
            bucket,
            split,
            at,
            |rows| {
                report(rows);
                !self.stopping()
            },
        )
    }
}

/// Measures weights on all rows of a split. `go_on` hears the number of rows after each batch and may end the pass;
/// then the result is `None`.
///
/// # Errors
/// [`Error::NotFinite`] when a loss is NaN or infinite, [`Error::Dataset`] for a split without rows, or what the data
/// says.
pub(crate) fn evaluate<D: Data>(
    plan: &Plan,
    engine: &Engine,
    data: &D,
    bucket: &[f32],
    split: Split,
    at: (Step, Epoch),
    go_on: impl Fn(u64) -> bool,
) -> Result<Option<Evaluation>, Error> {
    let mut evaluation = Evaluation::new(&plan.task);
    for batch in data.sequential(split)? {
        let batch = batch?;
        let samples = batch.samples();
        plan.check_targets(samples, batch.keys())?;
        let prediction = engine.predict(bucket, samples);
        let loss = loss::sum(&prediction.losses);
        if !loss.is_finite() {
            return Err(not_finite(
                at,
                "loss",
                loss,
                split,
                &prediction.losses,
                batch.keys(),
            ));
        }
        evaluation.add(&prediction, samples.targets);
        evaluation.add_worst(&prediction.losses, batch.keys(), batch.origins());
        if !go_on(evaluation.rows()) {
            return Ok(None);
        }
    }
    if evaluation.rows() == 0 {
        return Err(plan.dataset_error(format!(
            "its {split} split has no rows; give it a larger share, or add data"
        )));
    }
    Ok(Some(evaluation))
}
