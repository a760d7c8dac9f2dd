//! A dataset opened for a run on it: its loaders, the plan of the run, its folder, and the engine of its model.

use std::{num::NonZero, thread};

use feedline_schemas::{
    config::{ImagesConfig, TrainConfig},
    manifest::Split,
    report::Warning,
    transform::TransformArtefact,
};
use tokio::runtime::Runtime;

use crate::{
    Context,
    checkpoint::run_folder::{RunFolder, runtime},
    config::settings::{self, TrainSettings},
    data::{
        images,
        loaders::{Loaders, Purpose, settled},
        mixture,
        task::Task,
        transform_artefact::read_transform,
    },
    device::Backend,
    error::Error,
    model::{
        engine::ModelEngine,
        init::Weights,
        input::Normalisation,
        interface::{self, Build},
        models,
    },
    optim::optimizer,
    parallel::Group,
    plan::{RunPlan, feature_names},
    session::initial_weights::init_target,
    summary::{self, Machine},
};

/// A dataset and the folder of a run on it. The runtime comes last: it must outlive the loaders.
pub(crate) struct OpenedDataset {
    pub(crate) group: Group,
    pub(crate) plan: RunPlan,
    /// The transform of the dataset.
    pub(crate) transform: TransformArtefact,
    /// The tokenizer of the dataset, where it has one that a run keeps.
    pub(crate) tokenizer: Option<Vec<u8>>,
    /// A warning of a mixture that may hold rows which are measured.
    pub(crate) leak: Option<Warning>,
    /// Weights to begin with, where there are some.
    weights: Option<Weights>,
    pub(crate) loaders: Loaders,
    pub(crate) folder: RunFolder,
    pub(crate) runtime: Runtime,
}

impl OpenedDataset {
    /// Checks the configuration, then opens `splits` of the dataset to train.
    ///
    /// # Errors
    /// [`Error::Config`] for a value that is out of range; what dataset and storage say.
    pub(crate) fn open(
        config: &TrainConfig,
        context: &Context,
        splits: &[Split],
    ) -> Result<Self, Error> {
        Self::open_for(Purpose::Training, config, context, splits)
    }

    /// The same for a purpose.
    ///
    /// # Errors
    /// [`Error::Config`] for a value that is out of range; what dataset and storage say.
    pub(crate) fn open_for(
        purpose: Purpose,
        config: &TrainConfig,
        context: &Context,
        splits: &[Split],
    ) -> Result<Self, Error> {
        settings::check(config)?;
        let runtime = runtime()?;
        let config = &runtime.block_on(settled(config, &context.dataset))?;
        let loaders = runtime.block_on(Loaders::open(
            &context.dataset,
            config,
            (purpose, splits),
            &context.group,
            &context.clock,
        ))?;
        let manifest = loaders.manifest();
        images::check_layout(&config.images, &manifest.layout)?;
        let config = &images::of_layout(config, &manifest.layout);
        let artefact = runtime.block_on(read_transform(&context.dataset, manifest))?;
        let tokenizer = match (&manifest.tokens, purpose) {
            (Some(tokens), Purpose::Training) => {
                runtime.block_on(context.dataset.get_opt(&tokens.tokenizer))?
            }
            _ => None,
        };
        let dataset_url = context.dataset.url();
        let refused = |reason| Error::Dataset {
            url: dataset_url.clone(),
            reason,
        };
        let kind = config.model.r#type;
        let task = Task::of(kind, &manifest.layout, &artefact).map_err(refused)?;
        let task = task.of_manifest(manifest);
        let settings = TrainSettings::resolve(config, &task)?;
        let weights = match &config.init {
            Some(init) => Some(runtime.block_on(Weights::read(init, context))?),
            None => None,
        };
        let leak = match &config.mixture {
            Some(mixture) if purpose == Purpose::Training => {
                let found = mixture::leak_warning(mixture, &context.dataset, manifest);
                runtime.block_on(found)?
            }
            _ => None,
        };
        let (statistics, by) = images::statistics(config, &artefact, weights.as_ref())?;
        let settings = settings.normalising(statistics);
        let images = images::report(&settings.config().images, by, &manifest.layout);
        let init = weights.as_ref().map(|weights| weights.hash);
        let name = settings.run_name(manifest.fingerprint, init);
        let store = context.runs.child(&name);
        let folder = RunFolder::new(runtime.handle().clone(), store);
        let (layout, fingerprint) = (manifest.layout.clone(), manifest.fingerprint);
        let is_of_query = manifest.counts.are_of_query();
        Ok(Self {
            group: context.group.clone(),
            plan: RunPlan {
                settings,
                task,
                features: feature_names(&layout, &artefact),
                layout,
                fingerprint,
                init,
                dataset_url,
                images,
                is_of_query,
            },
            transform: artefact,
            tokenizer: tokenizer.map(|file| file.to_vec()),
            leak,
            weights,
            loaders,
            folder,
            runtime,
        })
    }

    /// Lets go of all. What a folder that was too slow still does is not waited for.
    pub(crate) fn close(self) {
        let Self {
            folder,
            loaders,
            runtime,
            ..
        } = self;
        drop(loaders);
        if folder.is_late() {
            runtime.shutdown_background();
        }
    }

    /// The bucket that the run begins with, and warnings about the file of weights that it is from.
    ///
    /// # Errors
    /// As [`Weights::put`].
    pub(crate) fn initial(&self, engine: &ModelEngine) -> Result<(Vec<f32>, Vec<Warning>), Error> {
        let config = self.plan.settings.config();
        let mut warnings = Vec::new();
        let mut bucket = engine.model().initial(config.seed);
        if let (Some(init), Some(weights)) = (&config.init, &self.weights) {
            let targets = self.plan.task.targets();
            let (task, features) = (&self.plan.task, &self.plan.features);
            let target = init_target(task, self.plan.outputs(), features, &targets);
            warnings = weights.put(init, engine.model().layout(), &target, &mut bucket)?;
        }
        Ok((bucket, warnings))
    }

    /// The folder of another run.
    pub(crate) fn folder_of(&self, run: &str, context: &Context) -> RunFolder {
        RunFolder::new(self.runtime.handle().clone(), context.runs.child(run))
    }

    /// Name of the run.
    pub(crate) fn name(&self) -> String {
        self.plan
            .settings
            .run_name(self.plan.fingerprint, self.plan.init)
    }

    /// Warnings of too little memory, and of numbers that depend on the ranks.
    ///
    /// # Errors
    /// None that [`engine`](Self::engine) has not said.
    pub(crate) fn fit_warnings(
        &self,
        engine: &ModelEngine,
        context: &Context,
    ) -> Result<Vec<Warning>, Error> {
        let config = self.plan.settings.config();
        let machine = Machine::of(config, &context.group);
        let (model, shape) = (engine.model(), self.plan.shape());
        let describe = |config: &TrainConfig| summary::of_model(config, model, shape, &machine);
        Ok(summary::fit_of(config, &machine, &describe)?.warnings())
    }

    /// An engine for the model that `build` makes, or the configured one.
    ///
    /// # Errors
    /// As [`engine_of`].
    pub(crate) fn engine(&self, build: Option<&Build<'_>>) -> Result<ModelEngine, Error> {
        let train = self.loaders.manifest().split(Split::Train);
        let rows = train.map_or(u64::MAX, |split| split.rows);
        engine_of(&self.plan, rows, &self.group, build)
    }
}

/// An engine for the model of a plan that `build` makes, or the configured one, to train on `rows` training rows.
///
/// # Errors
/// [`Error::Config`] when the model would be too large, or a group of `train.optimizer` names no parameter of it.
pub(crate) fn engine_of(
    plan: &RunPlan,
    rows: u64,
    group: &Group,
    build: Option<&Build<'_>>,
) -> Result<ModelEngine, Error> {
    let (shape, outputs) = (plan.shape(), plan.outputs());
    let config = plan.settings.config();
    let model = match build {
        Some(build) => build(shape, outputs).map_err(|error| *error)?,
        None => models::build(&config.model, shape, outputs)?,
    };
    let model = interface::adapted(model, config.lora.as_ref())?;
    let passes = settings::passes(config, model.layout())?;
    optimizer::check_groups(&config.optimizer, &passes.trained(model.layout()))?;
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    let threads = group.threads_of(processors);
    let images = &config.images;
    let [mean, deviation] = ImagesConfig::IMAGENET;
    let normalisation = Normalisation {
        channels: images.channels as usize,
        mean: images.mean.unwrap_or(mean),
        deviation: images.deviation.unwrap_or(deviation),
    };
    let backend = Backend::choose(config.device, group.local_rank())?;
    let (backend, warning) = match backend.check(config.precision) {
        Err(refusal) if config.device.is_auto() => {
            tracing::warn!(key = "train.device", %refusal, "computing on the processor");
            (Backend::cpu(), Some(not_on_gpu(&backend, &refusal)))
        }
        checked => (checked.map(|()| backend)?, None),
    };
    let engine = ModelEngine::with_threads(model, plan.settings.loss().clone(), threads);
    Ok(engine
        .with_normalisation(normalisation)
        .with_passes(passes)
        .with_cut(plan.settings.cut(group.place(), rows))
        .on(backend)
        .warning_of_device(warning))
}

/// The warning that `train.device = "auto"` did not take a GPU.
fn not_on_gpu(gpu: &Backend, refusal: &Error) -> Warning {
    let message = format!(
        "`auto` computed on the processor, although there is {}: {refusal}",
        gpu.name
    );
    Warning::new("computed_on_processor", message).with_key("train.precision")
}
