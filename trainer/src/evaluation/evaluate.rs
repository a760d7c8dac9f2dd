//! Measures the kept weights of a run on one split.

use feedline_schemas::{
    config::TrainConfig,
    manifest::Split,
    report::{EvalReport, Warning},
    run::RunState,
};

use crate::{
    Context, Group,
    checkpoint::{Snapshot, run_folder::runtime},
    data::{
        loaders::{Loaders, Purpose},
        task::Task,
        transform_artefact::encoded_by_target,
    },
    error::Error,
    evaluation::{baseline, metrics::Evaluation},
    model::{engine::ModelEngine, interface::Build},
    parallel::Ranks,
    plan::RunPlan,
    predict::{
        choose_model::{
            self, Choice, ChosenRun, Dataset, KeptModel, Use, earlier_weights, read_kept_weights,
        },
        predictor::MeasuredRows,
    },
    reporting::{record::read_record, status::Tracker},
    session::{self, MeasuredBatch, opened_dataset::OpenedDataset, run_context::Watch},
};

/// Measures the best weights of a run on one split: of the run that `config` and the dataset name, or where nothing was
/// trained by it, of the newest finished one that fits the dataset.
///
/// They are those of `best.safetensors`, or where it is absent or damaged, those the newest checkpoint keeps. Blocks
/// until done; call it from a thread that may block.
///
/// # Errors
/// [`Error::NoCheckpoint`] when nothing was trained yet, [`Error::NoFittingRun`], [`Error::Config`],
/// [`Error::Interrupted`] when the stop flag was set, or what dataset and storage say.
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
    let chosen = choose_model::choose(config, &Choice::Fitting, Use::Shards, context)?;
    evaluate_run(&chosen, build, split, context)
}

/// Measures the best weights of a run that was chosen for the shards of the context's dataset.
///
/// ```no_run
/// use feedline_schemas::{config::TrainConfig, manifest::Split};
/// use feedline_trainer::{Choice, Context, Error, Use, choose, evaluate_run};
///
/// # fn example(config: &TrainConfig, context: &Context) -> Result<(), Error> {
/// let name = Choice::Named("b3cf76d3e05b9840".to_owned());
/// let run = choose(config, &name, Use::Shards, context)?;
/// let report = evaluate_run(&run, None, Split::Validation, context)?;
/// println!("{}: {:?}", run.used().name, report.metrics);
/// # Ok(()) }
/// ```
///
/// # Errors
/// As [`evaluate_with`].
pub fn evaluate_run(
    chosen: &ChosenRun,
    build: Option<&Build<'_>>,
    split: Split,
    context: &Context,
) -> Result<EvalReport, Error> {
    measure(chosen, build, split, context, None)
}

/// Measures as [`evaluate_run`] does, and gives `each` all rows of the split with their predictions, in the order in which the
/// dataset stores them. It stops with [`Error::Interrupted`] where `each` returns `false`.
///
/// # Errors
/// As [`evaluate_run`], and [`Error::Config`] for a model that predicts no value per row.
pub fn evaluate_rows(
    chosen: &ChosenRun,
    split: Split,
    context: &Context,
    each: &mut dyn FnMut(MeasuredRows) -> bool,
) -> Result<EvalReport, Error> {
    measure(chosen, None, split, context, Some(each))
}

/// Receives all rows of a split with their predictions; `false` stops the measuring.
type EachRows<'e> = &'e mut dyn FnMut(MeasuredRows) -> bool;

fn measure(
    chosen: &ChosenRun,
    build: Option<&Build<'_>>,
    split: Split,
    context: &Context,
    each: Option<EachRows<'_>>,
) -> Result<EvalReport, Error> {
    // One rank measures: no other waits for it.
    let context = &Context {
        group: Group::alone(),
        ..context.clone()
    };
    // It outlives the loaders.
    let runtime = runtime()?;
    let loaders = runtime.block_on(Loaders::open(
        &context.dataset,
        chosen.config(),
        (Purpose::Measuring, &[split]),
        &context.group,
        &context.clock,
    ))?;
    let dataset = runtime.block_on(Dataset::of(loaders.manifest().clone(), context))?;
    choose_model::check_unchanged(chosen, &dataset)?;
    let _runtime = runtime.enter();
    let kept = KeptModel::open(chosen, Some(&dataset), build, context, &runtime)?;
    if each.is_some() {
        check_rows_have_predictions(&kept.plan.task)?;
    }
    let measured = measure_split(&kept, &loaders, split, context, each)?;
    let Some(evaluation) = measured else {
        return Err(Error::Interrupted {
            checkpoint: kept.checkpoint,
        });
    };
    let mut report = report_of(chosen, &kept, split, &evaluation);
    report.warnings = loaders.unusable().warnings(None);
    report.warnings.extend(loaders.left_out_warnings());
    let behind = compare_with_baselines(&kept.plan, &loaders, split, &report);
    report.warnings.extend(behind);
    if split == Split::Train {
        report
            .warnings
            .extend(encoded_by_target(dataset.artefact()));
    }
    report.warnings.extend(kept.warnings);
    Ok(report)
}

/// Checks that a model predicts a value of each row.
fn check_rows_have_predictions(task: &Task) -> Result<(), Error> {
    if !matches!(task, Task::NextToken { .. }) {
        return Ok(());
    }
    let reason = "it predicts the next token of texts that share rows, so a text has no prediction of its own; leave out \
                  `--predictions`";
    Err(crate::error::config("model.type", reason))
}

/// Measures the weights of a run on a split; `None` when it was stopped.
fn measure_split(
    kept: &KeptModel,
    loaders: &Loaders,
    split: Split,
    context: &Context,
    mut each: Option<EachRows<'_>>,
) -> Result<Option<Evaluation>, Error> {
    let ranks = Ranks::alone();
    let watch = Watch {
        progress: &*context.progress,
        clock: &*context.clock,
        stop: &context.stop,
        tracker: &Tracker::default(),
        ranks: &ranks,
    };
    let mut each_batch = |batch: MeasuredBatch<'_>| match &mut each {
        Some(each) => each(MeasuredRows::of(&kept.plan.task, batch)),
        None => true,
    };
    session::evaluate_each(
        &kept.plan,
        &kept.engine,
        loaders,
        (&kept.bucket, split),
        kept.at,
        watch,
        &mut each_batch,
    )
}

/// Warnings of a model that is no better than one that looks at no feature, or than a naive forecast.
fn compare_with_baselines(
    plan: &RunPlan,
    loaders: &Loaders,
    split: Split,
    report: &EvalReport,
) -> Vec<Warning> {
    let config = plan.settings.config();
    let behind = baseline::of_split(config, split, [&report.metrics, &report.baseline]);
    let naive = &loaders.manifest().naive;
    let of_naive = baseline::of_naive(config, naive, (split, report.rows, &report.metrics));
    behind.into_iter().chain(of_naive).collect()
}

/// The report of a split, without warnings.
fn report_of(
    chosen: &ChosenRun,
    kept: &KeptModel,
    split: Split,
    evaluation: &Evaluation,
) -> EvalReport {
    EvalReport {
        split: split.to_string(),
        rows: evaluation.rows(),
        quarantined: evaluation.left_out(),
        classes: kept.plan.task.classes().to_vec(),
        targets: kept.plan.task.targets(),
        tokens: evaluation.tokens(),
        metrics: evaluation.metrics(),
        baseline: evaluation.baseline(),
        warnings: Vec::new(),
        worst: evaluation.worst(),
        diagnostics: evaluation.diagnostics(),
        checkpoint: kept.checkpoint.clone(),
        dataset: kept.plan.dataset_url.clone(),
        run: Some(chosen.used().clone()),
        predictions: None,
    }
}

/// The snapshot that holds the best weights of a run, its place, and warnings of damaged or missing files of the weights.
///
/// # Errors
/// [`Error::NoCheckpoint`], or what storage says.
pub(crate) fn best(
    opened: &OpenedDataset,
    engine: &ModelEngine,
) -> Result<(String, Snapshot, Vec<Warning>), Error> {
    let usable = |snapshot: &Snapshot| opened.plan.accepts(snapshot);
    let (checkpoint, snapshot, mut warnings) =
        read_kept_weights(&opened.plan, &opened.folder, engine, &usable)?;
    let record = read_record(&opened.folder)?;
    if record.is_none_or(|record| record.state == RunState::Finished) {
        let earlier = earlier_weights(&opened.name(), &checkpoint, &snapshot.header);
        warnings.extend(earlier);
    }
    Ok((checkpoint, snapshot, warnings))
}
