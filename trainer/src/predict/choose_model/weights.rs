//! Weights that a run has kept: its best ones, or those of its newest checkpoint.

use feedline_schemas::{checkpoint::CheckpointHeader, report::Warning};

use crate::{
    checkpoint::{BEST_PATH, Checkpoints, Snapshot, run_folder::RunFolder},
    error::Error,
    model::engine::ModelEngine,
    plan::RunPlan,
};

/// Code of the warning of weights of before the end of a run.
const EARLIER_WEIGHTS: &str = "earlier_weights";

/// The snapshot that holds the best weights of the run in `folder`, of the checkpoints that are `usable`, where it is, and
/// warnings of damaged ones.
///
/// # Errors
/// [`Error::NoCheckpoint`], or what storage says.
pub(crate) fn read_kept_weights(
    plan: &RunPlan,
    folder: &RunFolder,
    engine: &ModelEngine,
    usable: &dyn Fn(&Snapshot) -> Result<(), String>,
) -> Result<(String, Snapshot, Vec<Warning>), Error> {
    let parameters = engine.model().layout().entries();
    let state = plan.settings.optimizer_state(&engine.trained());
    let config = plan.settings.config();
    let checkpoints = Checkpoints::new(folder.clone(), parameters, state, config);
    let newest = checkpoints.newest(usable);
    match checkpoints.best() {
        // A process that died between the two writes left a best file that is older than what the newest knows of.
        Ok(Some(snapshot)) if !is_stale(&snapshot, &newest) => {
            return Ok((folder.url_of(BEST_PATH), snapshot, checkpoints.warnings()));
        }
        Ok(_) => {}
        Err(error @ Error::Damaged { .. }) => {
            tracing::warn!(%error, "the best weights cannot be read; taking them from the newest checkpoint");
            checkpoints.pass_over(&error);
        }
        Err(other) => return Err(other),
    }
    let snapshot = newest?.ok_or_else(|| Error::NoCheckpoint { url: folder.url() })?;
    let url = checkpoints.url(snapshot.header.step);
    Ok((url, snapshot, checkpoints.warnings()))
}

/// Returns true if the newest checkpoint records better weights, of a later step than those of `best`. One of an earlier
/// step knows nothing of them: newer checkpoints were removed or are damaged.
fn is_stale(best: &Snapshot, newest: &Result<Option<Snapshot>, Error>) -> bool {
    let Ok(Some(newest)) = newest else {
        return false;
    };
    let known = newest.header.early_stopping.best.as_ref();
    known.is_some_and(|known| known.step > best.header.step)
}

/// The warning of the run `name`, which has finished, where its weights at `url` are of a checkpoint of before its end.
pub(crate) fn earlier_weights(name: &str, url: &str, header: &CheckpointHeader) -> Option<Warning> {
    if url.ends_with(BEST_PATH) || header.early_stopping.finished {
        return None;
    }
    let message = format!(
        "run `{name}` has finished, but its `{BEST_PATH}` and newest checkpoint cannot be used: the weights are the best ones up to \
         step `{}`, of `{url}`; restore the files from a copy, or resume the run to train the rest again",
        header.step
    );
    tracing::warn!(code = EARLIER_WEIGHTS, "{message}");
    Some(Warning::new(EARLIER_WEIGHTS, message))
}
