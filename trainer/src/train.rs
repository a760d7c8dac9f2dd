//! Opens what a run needs and starts it.

use std::{num::NonZero, sync::Arc, thread};

use feedline_schemas::{
    config::{ImagesConfig, TrainConfig},
    manifest::{Manifest, Split},
    report::{TrainReport, Warning},
    transform::{FittedStep, TransformArtefact},
};
use feedline_storage::Store;
use tokio::runtime::Runtime;

use crate::{
    Context, Resume, baseline, checkpoint,
    data::Data as _,
    device::Backend,
    engine::Engine,
    error::Error,
    images,
    init::{InitTarget, Weights},
    input::Normalisation,
    loaders::{Loaders, Purpose, settled},
    mixture,
    model::{self, Build},
    models, optimizer,
    parallel::{Group, largest_message},
    performance::GpuSampler,
    plan::{Plan, feature_names},
    prolong::{self, Start},
    run_folder::{RunFolder, runtime},
    session::{Session, Watch},
    settings::{self, Settings},
    summary::{self, Machine},
    task::Task,
    track::{page::MetricsPage, record::Recorder, status::Tracker},
};

/// Trains the model of `config` on the dataset and reports how good it is.
///
/// Blocks until done; call it from a thread that may block, not from an async task. The run's folder follows from the
/// configuration and the dataset, so the same call finds its own checkpoints again: with [`Resume::Continue`] a run
/// that was stopped or killed resumes and ends with the same bits as one that never was; one that
/// had ended is only
/// measured again. With [`Resume::Prolong`] a run without checkpoints continues the newest run that differs only in its
/// length or learning rate; its record and its report name that run.
///
/// # Errors
/// [`Error::Config`] before anything is read, when a value is out of range; [`Error::RunExists`] for a fresh start
/// where a run has been; [`Error::Interrupted`] when the stop flag was set, with everything saved;
/// [`Error::NotFinite`] when a loss or gradient is NaN or infinite, with the weights as before; what dataset and
/// storage say.
pub fn train(
    config: &TrainConfig,
    resume: Resume,
    context: &Context,
) -> Result<TrainReport, Error> {
    train_with(config, None, resume, context)
}

/// Trains a model of one's own, that `build` makes for the dataset's samples and the number of outputs; `None` is the
/// one of `config`. Everything else is as in [`train`].
///
/// `config` and the dataset name the run, as always; `train.model` is not looked at otherwise, but must name a type for
/// such samples. When the code of the model changes, change the seed, or remove the run's folder.
///
/// # Errors
/// As [`train`], and errors of `build`.
///
/// # Panics
/// Never: the test split, which the report needs, is opened.
pub fn train_with(
    config: &TrainConfig,
    build: Option<&Build<'_>>,
    resume: Resume,
    context: &Context,
) -> Result<TrainReport, Error> {
    let opened = Opened::open(config, context, &Split::ALL)?;
    let report = go(&opened, build, resume, context, &Arc::default());
    opened.close();
    Ok(report?.expect("the test split was opened"))
}

/// Trains the opened data, with reports to `tracker`, and measures it on the test split if that was
/// opened.
///
/// # Errors
/// As [`train_with`].
pub(crate) fn go(
    opened: &Opened,
    build: Option<&Build<'_>>,
    resume: Resume,
    context: &Context,
    tracker: &Arc<Tracker>,
) -> Result<Option<TrainReport>, Error> {
    let _runtime = opened.runtime.enter();
    let config = opened.plan.settings.config();
    // A training that begins needs the blocks of a whole shuffle window before its first batch: they are read while the
    // model is made. One that resumes may need others.
    // An error is reported by the pass itself, once the ranks have met and all learn of it.
    if resume == Resume::Fresh || checkpoint::exist_in(&opened.folder).is_ok_and(|any| !any) {
        let begun = opened.loaders.prepare_from(&opened.loaders.start());
        if let Err(error) = begun {
            tracing::debug!(%error, "the first batches were not prepared");
        }
    }
    let engine = opened.engine(build)?;
    let fit = match context.group.local_rank() {
        0 => opened.fit_warnings(&engine, context)?,
        _ => Vec::new(),
    };
    let (initial, of_init) = opened.initial(&engine)?;
    let gpu = engine.kind().cuda();
    let precision = config.precision;
    tracker
        .performance
        .set_arithmetic(&engine, precision, &context.group);
    let largest = largest_message(
        engine.model().layout().len(),
        opened.plan.outputs_of_a_batch(),
    );
    let group = context.group.clone().with_largest_message(largest);
    let ranks = group.join(
        &opened.plan.identity(),
        &config.parallel,
        opened.runtime.handle(),
    )?;
    let ranks = ranks.adding_up(&config.parallel, engine.kind().cuda())?;
    let _lock = ranks.leads().then(|| opened.folder.lock()).transpose()?;
    let page = settings::metrics_listen(config)?
        .filter(|_| ranks.leads())
        .map(|address| MetricsPage::serve(opened.runtime.handle(), address, Arc::clone(tracker)));
    let _page = page.transpose()?;
    let watch = Watch {
        progress: &*context.progress,
        clock: &*context.clock,
        stop: &context.stop,
        tracker,
        ranks: &ranks,
    };
    let start = match resume {
        Resume::Prolong => prolong::start(opened, &engine, context, &ranks),
        Resume::Fresh | Resume::Continue => Ok(Start::Own),
    };
    let begun = start.and_then(|start| {
        let session = Session::start(
            &opened.plan,
            &opened.loaders,
            (engine, initial),
            &opened.folder,
            watch,
        )?;
        let session = match (resume, &start) {
            (Resume::Fresh, _) => session.fresh(),
            (_, Start::Other(from)) => session.prolong(&opened.folder_of(&from.run, context), from),
            _ => session.resume(),
        };
        let session = session?;
        session.prepare()?;
        Ok((session, start))
    });
    let report = begun.and_then(|(session, start)| {
        let sampler = GpuSampler::start(gpu, tracker);
        // One rank writes the record.
        let recorder = ranks
            .leads()
            .then(|| Recorder::begin(opened, resume, context, tracker, &start))
            .transpose()?;
        let mut report = session.run(opened.loaders.has(Split::Test));
        if let Ok(Some(report)) = &mut report {
            let naive = &opened.loaders.manifest().naive;
            let of_naive = baseline::of_naive(config, naive, Split::Test, &report.test);
            report.warnings.extend(of_naive);
            report.warnings.extend(opened.leak.clone());
            report.warnings.extend(fit.into_iter().chain(of_init));
        }
        // What ran by then is read.
        drop(sampler);
        if let Ok(Some(report)) = &mut report {
            report.performance = tracker.performance.report();
        }
        if let Some(recorder) = recorder {
            if let Ok(Some(report)) = &mut report {
                report.continued_from = recorder.continued_from().cloned();
                report.started_over = start.nothing();
            }
            recorder.end(&report);
        }
        report
    });
    if let Err(error) = &report {
        ranks.abort(error);
    }
    report
}

/// A dataset and the folder of a run on it. The runtime comes last: it must outlive the loaders.
pub(crate) struct Opened {
    pub(crate) group: Group,
    pub(crate) plan: Plan,
    /// The transform of the dataset.
    pub(crate) transform: TransformArtefact,
    /// The tokenizer of the dataset, where it has one that a run keeps.
    pub(crate) tokenizer: Option<Vec<u8>>,
    /// A warning of a mixture that may hold rows which are measured.
    leak: Option<Warning>,
    /// Weights to begin with, where there are some.
    weights: Option<Weights>,
    pub(crate) loaders: Loaders,
    pub(crate) folder: RunFolder,
    pub(crate) runtime: Runtime,
}

impl Opened {
    /// Checks the configuration, then opens `splits` of the dataset to train.
    ///
    /// # Errors
    /// As [`train`].
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
    /// As [`train`].
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
        let settings = Settings::resolve(config, &task)?;
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
        Ok(Self {
            group: context.group.clone(),
            plan: Plan {
                settings,
                task,
                features: feature_names(&layout, &artefact),
                layout,
                fingerprint,
                init,
                dataset_url,
                images,
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
    fn close(self) {
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
    fn initial(&self, engine: &Engine) -> Result<(Vec<f32>, Vec<Warning>), Error> {
        let config = self.plan.settings.config();
        let mut warnings = Vec::new();
        let mut bucket = engine.model().initial(config.seed);
        if let (Some(init), Some(weights)) = (&config.init, &self.weights) {
            let targets = self.plan.task.targets();
            let target = InitTarget {
                outputs: self.plan.outputs(),
                classes: self.plan.task.classes(),
                features: &self.plan.features,
                reconstructs: matches!(self.plan.task, Task::Reconstruction { .. }),
                targets: &targets,
            };
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
    fn fit_warnings(&self, engine: &Engine, context: &Context) -> Result<Vec<Warning>, Error> {
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
    pub(crate) fn engine(&self, build: Option<&Build<'_>>) -> Result<Engine, Error> {
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
    plan: &Plan,
    rows: u64,
    group: &Group,
    build: Option<&Build<'_>>,
) -> Result<Engine, Error> {
    let (shape, outputs) = (plan.shape(), plan.outputs());
    let config = plan.settings.config();
    let model = match build {
        Some(build) => build(shape, outputs).map_err(|error| *error)?,
        None => models::build(&config.model, shape, outputs)?,
    };
    let model = model::adapted(model, config.lora.as_ref())?;
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
    let engine = Engine::with_threads(model, plan.settings.loss().clone(), threads);
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

/// The warning of training rows that are measured: what the target says of their categories is taken from other rows than for
/// the rows of other splits.
pub(crate) fn encoded_by_target(artefact: &TransformArtefact) -> Option<Warning> {
    let columns = artefact.steps.iter().flat_map(|step| match step {
        FittedStep::Categories { columns } => columns.as_slice(),
        _ => &[],
    });
    let encoded = columns.filter(|column| column.outcomes.is_some());
    let columns: Vec<String> = encoded.map(|column| format!("`{}`", column.name)).collect();
    if columns.is_empty() {
        return None;
    }
    let message = format!(
        "categories of {} are encoded by the target: training rows have out-of-fold numbers, rows of other splits those of \
         all training rows, so metrics of the training split are not the ones that the model would have there with the \
         numbers it predicts from",
        columns.join(", ")
    );
    let warning = Warning::new("target_encoded_training_rows", message);
    Some(warning.with_key("dataset.step"))
}

/// Reads the transform artefact that the manifest names.
///
/// # Errors
/// [`Error::Dataset`] when it is another, or what storage says.
pub(crate) async fn read_transform(
    dataset: &Store,
    manifest: &Manifest,
) -> Result<TransformArtefact, Error> {
    let path = &manifest.transform.path;
    let bytes = dataset.get(path).await?;
    let artefact: TransformArtefact = feedline_schemas::decode(&dataset.url_of(path), &bytes)?;
    if artefact.compute_hash() != manifest.transform.hash {
        let reason = format!(
            "its transform `{path}` has hash `{}`, its manifest says `{}`; build it again",
            artefact.compute_hash(),
            manifest.transform.hash
        );
        return Err(Error::Dataset {
            url: dataset.url(),
            reason,
        });
    }
    Ok(artefact)
}
