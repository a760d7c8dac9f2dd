//! Training of a run, from its opened dataset to its report.

use std::{net::SocketAddr, sync::Arc};

use feedline_schemas::{
    config::TrainConfig,
    manifest::Split,
    report::{TrainReport, Warning},
};

use crate::{
    Context, Resume, checkpoint,
    config::{no_effect, settings},
    data::{loaders::Loaders, quarantine::UnusableSamples, samples::Data as _},
    error::Error,
    evaluation::baseline,
    model::{engine::ModelEngine, interface::Build},
    parallel::{Ranks, largest_message},
    reporting::{page::MetricsPage, performance::GpuSampler, record::Recorder, status::Tracker},
    session::{
        TrainSession,
        opened_dataset::OpenedDataset,
        prolong::{self, RunStart},
        run_context::Watch,
    },
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
/// [`Error::NotFinite`] when a loss or gradient is NaN or infinite, with the weights as before; [`Error::LossNotFinite`] for
/// such a loss on the validation split; [`Error::NoUpdate`] or [`Error::OnlySkipped`] when no step moved the weights; what
/// dataset and storage say.
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
    let opened = OpenedDataset::open(config, context, &Split::ALL)?;
    let report = train_opened(&opened, build, resume, context, &Arc::default());
    opened.close();
    Ok(report?.expect("the test split was opened"))
}

/// Trains the opened data, with reports to `tracker`, and measures it on the test split if that was
/// opened.
///
/// # Errors
/// As [`train_with`].
pub(crate) fn train_opened(
    opened: &OpenedDataset,
    build: Option<&Build<'_>>,
    resume: Resume,
    context: &Context,
    tracker: &Arc<Tracker>,
) -> Result<Option<TrainReport>, Error> {
    let _runtime = opened.runtime.enter();
    let training = OpenedTraining {
        opened,
        resume,
        context,
        tracker,
    };
    training.lock_batches();
    training.prepare_first_batches();
    let model = training.build_model(build)?;
    let ranks = training.join_ranks(&model.engine)?;
    let report = training.train_locked(&ranks, model);
    if let Err(error) = &report {
        ranks.abort(error);
    }
    report
}

/// Opened data to train on, and where the training reports to.
struct OpenedTraining<'a> {
    opened: &'a OpenedDataset,
    resume: Resume,
    context: &'a Context,
    tracker: &'a Arc<Tracker>,
}

/// A model before its training.
struct UntrainedModel {
    engine: ModelEngine,
    /// The bucket that the training begins with.
    initial: Vec<f32>,
    /// Warnings of its memory, and of the file that its weights are from.
    warnings: Vec<Warning>,
}

impl OpenedTraining<'_> {
    /// Page-locks the memory of batches if the model will be computed on an NVIDIA GPU, before any of it is allocated.
    #[cfg(feature = "cuda")]
    fn lock_batches(&self) {
        use feedline_loader::device::{HostLock, cuda::Cuda};

        let device = self.opened.plan.settings.config().device;
        let local_rank = self.context.group.local_rank();
        let Some(gpu) = crate::device::cuda_of(device, local_rank) else {
            return;
        };
        match Cuda::open(gpu as usize) {
            Ok(cuda) => {
                let lock: Arc<dyn HostLock> = Arc::new(cuda);
                self.opened.loaders.lock_batches(&lock);
            }
            // The choice of the device says why there is none.
            Err(error) => tracing::debug!(%error, "batches are not page-locked"),
        }
    }

    #[cfg(not(feature = "cuda"))]
    fn lock_batches(&self) {}

    /// Begins to read the blocks of a whole shuffle window while the model is made: a training that begins needs them before
    /// its first batch. One that resumes may need others.
    ///
    /// An error is reported by the pass itself, once the ranks have met and all learn of it.
    fn prepare_first_batches(&self) {
        let is_new = || {
            checkpoint::exist_in(&self.opened.folder).is_ok_and(|has_checkpoint| !has_checkpoint)
        };
        if self.resume != Resume::Fresh && !is_new() {
            return;
        }
        let loaders = &self.opened.loaders;
        if let Err(error) = loaders.prepare_from(&loaders.start()) {
            tracing::debug!(%error, "the first batches were not prepared");
        }
    }

    /// Builds the model with the weights that its training begins with.
    fn build_model(&self, build: Option<&Build<'_>>) -> Result<UntrainedModel, Error> {
        let (opened, group) = (self.opened, &self.context.group);
        let engine = opened.engine(build)?;
        let mut warnings = match group.local_rank() {
            0 => opened.fit_warnings(&engine, self.context)?,
            _ => Vec::new(),
        };
        let settings = &opened.plan.settings;
        if group.local_rank() == 0 {
            let (config, batches) = (settings.config(), opened.loaders.batches_per_epoch());
            let schedule = settings.schedule(batches);
            let layout = engine.model().layout();
            warnings.extend(no_effect::warnings(config, &schedule, layout));
            let counts = &opened.loaders.manifest().counts;
            warnings.extend(no_effect::of_batch(config, counts, batches));
            warnings.extend(no_effect::of_smoothing(settings.loss(), &opened.plan.task));
        }
        let (initial, of_init) = opened.initial(&engine)?;
        warnings.extend(of_init);
        let precision = opened.plan.settings.config().precision;
        self.tracker
            .performance
            .set_arithmetic(&engine, precision, group);
        Ok(UntrainedModel {
            engine,
            initial,
            warnings,
        })
    }

    /// Meets the other ranks.
    fn join_ranks(&self, engine: &ModelEngine) -> Result<Ranks, Error> {
        let plan = &self.opened.plan;
        let parallel = &plan.settings.config().parallel;
        let largest = largest_message(engine.model().layout().len(), plan.outputs_of_a_batch());
        let group = self.context.group.clone().with_largest_message(largest);
        let group = group.with_stop(&self.context.stop).with_resume(self.resume);
        let runtime = self.opened.runtime.handle();
        let ranks = group.join(&plan.identity(), parallel, runtime)?;
        ranks.adding_up(parallel, engine.kind().cuda())
    }

    /// Serves the metrics of the run, on one rank and where the configuration asks for it.
    fn serve_metrics(&self, ranks: &Ranks) -> Result<Option<(MetricsPage, SocketAddr)>, Error> {
        let runtime = self.opened.runtime.handle();
        settings::metrics_listen(self.opened.plan.settings.config())?
            .filter(|_| ranks.leads())
            .map(|address| MetricsPage::serve(runtime, address, Arc::clone(self.tracker)))
            .transpose()
    }

    /// As [`train_on`](Self::train_on), with the folder locked and the metrics served by the rank that writes them.
    fn train_locked(
        &self,
        ranks: &Ranks,
        model: UntrainedModel,
    ) -> Result<Option<TrainReport>, Error> {
        let folder = &self.opened.folder;
        let lock = ranks.leads().then(|| folder.lock()).transpose()?;
        if let Some(Some(_)) = &lock {
            folder.remove_incomplete();
        }
        let _page = self.serve_metrics(ranks)?;
        self.train_on(ranks, model)
    }

    /// Trains the model together with the other ranks.
    fn train_on(&self, ranks: &Ranks, model: UntrainedModel) -> Result<Option<TrainReport>, Error> {
        let UntrainedModel {
            engine,
            initial,
            warnings,
        } = model;
        let gpu = engine.kind().cuda();
        let (session, start) = self.start_session(ranks, engine, initial)?;
        let sampler = GpuSampler::start(gpu, self.tracker);
        // One rank writes the record.
        let recorder = ranks
            .leads()
            .then(|| Recorder::begin(self.opened, self.resume, self.context, self.tracker, &start))
            .transpose()?;
        let mut report = session.run(self.opened.loaders.has(Split::Test));
        // What ran by then is read.
        drop(sampler);
        if let Ok(Some(report)) = &mut report {
            let unusable = self.unusable_samples(ranks);
            report.quarantined = unusable.count();
            report
                .warnings
                .extend(unusable.warnings(Some(Split::Train)));
            self.add_warnings(report, warnings);
            report.performance = self.tracker.performance.report();
        }
        if let Some(recorder) = recorder {
            if let Ok(Some(report)) = &mut report {
                report.continued_from = recorder.continued_from().cloned();
                report.started_over = start.nothing();
            }
            recorder.end(&report);
        }
        report
    }

    /// Samples that cannot be used, of all ranks; only those of this one where another is gone by now.
    fn unusable_samples(&self, ranks: &Ranks) -> UnusableSamples {
        let own = self.opened.loaders.unusable();
        own.clone().gather(ranks).unwrap_or_else(|error| {
            tracing::warn!(%error, "samples that other ranks could not use are not counted");
            own
        })
    }

    /// Starts the session at the start that all ranks agree on: the beginning, or a checkpoint.
    fn start_session<'s>(
        &'s self,
        ranks: &'s Ranks,
        engine: ModelEngine,
        initial: Vec<f32>,
    ) -> Result<(TrainSession<'s, Loaders>, RunStart), Error> {
        let (opened, context) = (self.opened, self.context);
        let start = match self.resume {
            Resume::Prolong => prolong::start(opened, &engine, context, ranks)?,
            Resume::Fresh | Resume::Continue => RunStart::Own,
        };
        let watch = Watch {
            progress: &*context.progress,
            clock: &*context.clock,
            stop: &context.stop,
            tracker: self.tracker,
            ranks,
        };
        let session = TrainSession::start(
            &opened.plan,
            &opened.loaders,
            (engine, initial),
            &opened.folder,
            watch,
        )?;
        let session = match (self.resume, &start) {
            (Resume::Fresh, _) => session.fresh(),
            (_, RunStart::Other(from)) => {
                session.prolong(&opened.folder_of(&from.run, context), from)
            }
            _ => session.resume(),
        };
        let session = session?;
        session.prepare()?;
        Ok((session, start))
    }

    /// Adds warnings of a model that is no better than a naive one, of left-out shards, of a mixture, and these.
    fn add_warnings(&self, report: &mut TrainReport, warnings: Vec<Warning>) {
        let config = self.opened.plan.settings.config();
        let manifest = self.opened.loaders.manifest();
        let rows = manifest.split(Split::Test).map_or(0, |split| split.rows);
        let test = (Split::Test, rows, &report.test);
        let of_naive = baseline::of_naive(config, &manifest.naive, test);
        report.warnings.extend(of_naive);
        let loaders = &self.opened.loaders;
        report.warnings.extend(loaders.left_out_warnings());
        report.warnings.extend(self.opened.leak.clone());
        report.warnings.extend(loaders.locking_warning());
        report.warnings.extend(warnings);
    }
}
