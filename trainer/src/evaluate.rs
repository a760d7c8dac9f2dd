//! Measures the kept weights of a run on one split.

use feedline_schemas::{config::TrainConfig, manifest::Split, report::EvalReport};

use crate::{
    Context, Group,
    checkpoint::{BEST_PATH, Checkpoints, Snapshot},
    engine::Engine,
    error::Error,
    loaders::Purpose,
    model::Build,
    parallel::Ranks,
    plan::Plan,
    run_folder::RunFolder,
    session::{self, Watch},
    track::status::Tracker,
    train::Opened,
};

/// Measures the best weights of the run that `config` and the dataset name on one split.
///
/// They are those of `best.safetensors`, or where it is absent or damaged, those the newest checkpoint keeps. Blocks
/// until done; call it from a thread that may block.
///
/// # Errors
/// [`Error::NoCheckpoint`] when nothing was trained yet, [`Error::Config`], [`Error::Interrupted`] when the stop flag
/// was set, or what dataset and storage say.
pub fn evaluate(
    config: &TrainConfig,
    split: Split,
    context: &Context,
) -> Result<EvalReport, Error> {
    evaluate_with(config, None, split, context)
}

/// Measures a model of one's own that [`train_with`](crate::train_with) trained.
///
/// # Errors
/// As [`evaluate`], and what `build` says.
pub fn evaluate_with(
    config: &TrainConfig,
    build: Option<&Build<'_>>,
    split: Split,
    context: &Context,
) -> Result<EvalReport, Error> {
    // One rank measures: nobody waits for it.
    let context = &Context {
        group: Group::alone(),
        ..context.clone()
    };
    let opened = Opened::open_for(Purpose::Measuring, config, context, &[split])?;
    let _runtime = opened.runtime.enter();
    let engine = opened.engine(build)?;
    let (checkpoint, snapshot) = best(&opened, &engine)?;
    let bucket = snapshot.best.unwrap_or(snapshot.parameters);
    let at = (snapshot.header.step, snapshot.header.epoch);
    let ranks = Ranks::alone();
    let watch = Watch {
        progress: &*context.progress,
        clock: &*context.clock,
        stop: &context.stop,
        tracker: &Tracker::default(),
        ranks: &ranks,
    };
    let evaluation = session::evaluate(
        &opened.plan,
        &engine,
        &opened.loaders,
        &bucket,
        split,
        at,
        watch,
    )?;
    let Some(evaluation) = evaluation else {
        return Err(Error::Interrupted { checkpoint });
    };
    Ok(EvalReport {
        split: split.to_string(),
        rows: evaluation.rows(),
        classes: opened.plan.task.classes().to_vec(),
        metrics: evaluation.metrics(),
        baseline: evaluation.baseline(),
        worst: evaluation.worst(),
        checkpoint,
    })
}

/// The snapshot that holds the best weights of a run, and where it is.
///
/// # Errors
/// [`Error::NoCheckpoint`], or what storage says.
pub(crate) fn best(opened: &Opened, engine: &Engine) -> Result<(String, Snapshot), Error> {
    let config = opened.plan.settings.config();
    let parameters = engine.model().layout().entries();
    let state = opened.plan.settings.optimizer_state(&engine.trained());
    let checkpoints = Checkpoints::new(opened.folder.clone(), parameters, state, config);
    kept(&opened.plan, &opened.folder, &checkpoints)
}

/// The snapshot that holds the best weights, and where it is.
fn kept(
    plan: &Plan,
    folder: &RunFolder,
    checkpoints: &Checkpoints,
) -> Result<(String, Snapshot), Error> {
    let newest = checkpoints.newest(|snapshot| plan.accepts(snapshot));
    match checkpoints.best() {
        // A process that died between the two writes left a best file that is older than what the newest knows of.
        Ok(Some(snapshot)) if !is_stale(&snapshot, &newest) => {
            return Ok((folder.url_of(BEST_PATH), snapshot));
        }
        Ok(_) => {}
        Err(error @ Error::Damaged { .. }) => {
            tracing::warn!(%error, "the best weights cannot be read; taking them from the newest checkpoint");
        }
        Err(other) => return Err(other),
    }
    let snapshot = newest?.ok_or_else(|| Error::NoCheckpoint { url: folder.url() })?;
    Ok((checkpoints.url(snapshot.header.step), snapshot))
}

/// Whether the newest checkpoint knows of better weights than `best` holds.
fn is_stale(best: &Snapshot, newest: &Result<Option<Snapshot>, Error>) -> bool {
    let Ok(Some(newest)) = newest else {
        return false;
    };
    let known = newest.header.early_stopping.best.as_ref();
    known.is_some_and(|known| known.step != best.header.step)
}
