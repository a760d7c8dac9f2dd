//! The model that a run has kept, opened for the data that it is used on.

use feedline_schemas::{
    checkpoint::CheckpointHeader,
    config::ModelKind,
    ids::{Epoch, Step},
    manifest::Layout,
    report::{NormalizedBy, Warning},
    transform::TransformArtefact,
};
use tokio::runtime::Runtime;

use super::{
    ChosenRun,
    dataset::Dataset,
    weights::{earlier_weights, read_kept_weights},
};
use crate::{
    Context,
    checkpoint::{Snapshot, run_folder::RunFolder},
    config::settings::TrainSettings,
    data::{images, task::Task},
    error::Error,
    model::{
        class_outputs::{self, OutputHead, Outputs, match_classes_of},
        engine::ModelEngine,
        interface::Build,
        layers,
    },
    plan::{RunPlan, feature_names},
    session::opened_dataset::engine_of,
};

/// A model that a run has kept.
pub(crate) struct KeptModel {
    pub(crate) engine: ModelEngine,
    pub(crate) bucket: Vec<f32>,
    /// The plan of the data that it is used on.
    pub(crate) plan: RunPlan,
    /// Place of the weights.
    pub(crate) checkpoint: String,
    /// Step and epoch of the weights.
    pub(crate) at: (Step, Epoch),
    /// Warnings of damaged checkpoints, and of weights of before the end of the run.
    pub(crate) warnings: Vec<Warning>,
}

impl KeptModel {
    /// Opens the model of a run for the data that it was trained on, or for the shards of a dataset.
    ///
    /// # Errors
    /// [`Error::NoCheckpoint`], [`Error::UnfitRun`] for other classes, what `build` and storage say.
    pub(crate) fn open(
        chosen: &ChosenRun,
        dataset: Option<&Dataset>,
        build: Option<&Build<'_>>,
        context: &Context,
        runtime: &Runtime,
    ) -> Result<Self, Error> {
        let (kind, url) = (chosen.config.model.r#type, &chosen.used.dataset);
        let trained = read_task(kind, &chosen.layout, &chosen.transform, url)?;
        let plan = plan_for(chosen, &trained, dataset)?;
        // Nothing is trained: no batch depends on the number of training rows.
        let engine = engine_of(&plan, u64::MAX, &context.group, build)?;
        let folder = context.runs.child(&chosen.used.name);
        let folder = RunFolder::new(runtime.handle().clone(), folder);
        let usable = |snapshot: &Snapshot| check_snapshot(snapshot, chosen, &trained);
        let (checkpoint, snapshot, mut warnings) =
            read_kept_weights(&plan, &folder, &engine, &usable)?;
        if chosen.used.unfinished.is_none() {
            let name = &chosen.used.name;
            warnings.extend(earlier_weights(name, &checkpoint, &snapshot.header));
        }
        let at = (snapshot.header.step, snapshot.header.epoch);
        let mut bucket = snapshot.best.unwrap_or(snapshot.parameters);
        let matched = match_outputs(&trained, &plan, engine.model().layout(), &mut bucket);
        matched.map_err(|reason| Error::UnfitRun {
            run: chosen.used.name.clone(),
            dataset: plan.dataset_url.clone(),
            reason,
        })?;
        Ok(Self {
            engine,
            bucket,
            plan,
            checkpoint,
            at,
            warnings,
        })
    }
}

/// The task of a dataset, which `url` names in an error.
fn read_task(
    kind: ModelKind,
    layout: &Layout,
    transform: &TransformArtefact,
    url: &str,
) -> Result<Task, Error> {
    Task::of(kind, layout, transform).map_err(|reason| Error::Dataset {
        url: url.to_owned(),
        reason,
    })
}

/// The plan of the data that the model is used on: those it was trained on, or a dataset.
fn plan_for(
    chosen: &ChosenRun,
    trained: &Task,
    dataset: Option<&Dataset>,
) -> Result<RunPlan, Error> {
    let (task, layout, url) = match dataset {
        None => (trained.clone(), &chosen.layout, &chosen.used.dataset),
        Some(dataset) => {
            let (manifest, kind) = (&dataset.manifest, chosen.config.model.r#type);
            let task = read_task(kind, &manifest.layout, &dataset.artefact, &dataset.url)?;
            // The baseline is that of the training rows as they are now.
            (task.of_manifest(manifest), &manifest.layout, &dataset.url)
        }
    };
    let settings = TrainSettings::resolve(&chosen.config, &task)?;
    // The configuration of a run has the statistics that its images were normalised by.
    let images = images::report(
        &settings.config().images,
        NormalizedBy::Given,
        &chosen.layout,
    );
    Ok(RunPlan {
        settings,
        task,
        layout: layout.clone(),
        features: feature_names(layout, &chosen.transform),
        fingerprint: chosen.fingerprint,
        init: None,
        dataset_url: url.clone(),
        images,
        is_of_query: dataset.is_some_and(|dataset| dataset.manifest.counts.are_of_query()),
    })
}

/// Checks that a checkpoint is of the run that its folder is named after, with the average of its weights if it keeps one.
fn check_snapshot(snapshot: &Snapshot, chosen: &ChosenRun, task: &Task) -> Result<(), String> {
    check_header(&snapshot.header, chosen, task)?;
    match snapshot.average.is_some() == chosen.config.average.is_some() {
        true => Ok(()),
        false => Err("the average of the weights is missing, or one too many".to_owned()),
    }
}

/// Checks that a checkpoint is of the run that its folder is named after.
fn check_header(header: &CheckpointHeader, chosen: &ChosenRun, task: &Task) -> Result<(), String> {
    if header.fingerprint != chosen.fingerprint || header.layout != chosen.layout {
        return Err(format!(
            "it belongs to the dataset with fingerprint `{}`",
            header.fingerprint
        ));
    }
    if header.classes != task.classes() || header.targets != task.targets() {
        return Err(
            "its outputs are for other classes or targets, or for the same in another order"
                .to_owned(),
        );
    }
    Ok(())
}

/// Moves the outputs of a model to the classes of the data that it is used on.
///
/// # Errors
/// Text that says why the outputs are for other data.
fn match_outputs(
    trained: &Task,
    plan: &RunPlan,
    layout: &layers::Layout,
    bucket: &mut [f32],
) -> Result<(), String> {
    if trained.targets() != plan.task.targets() {
        return Err(format!(
            "it predicts {}, and the dataset has {}",
            class_outputs::list(&trained.targets()),
            class_outputs::list(&plan.task.targets())
        ));
    }
    let outputs = match_classes_of("the run", trained.classes(), plan.task.classes())?;
    if let Outputs::Moved(places) = outputs {
        let head = OutputHead::of(layout, plan.outputs()).ok_or(
            "its classes are the dataset's in another order, and the model has no last layer with an output for each",
        )?;
        head.arrange(&places, bucket, |_| true);
    }
    Ok(())
}
