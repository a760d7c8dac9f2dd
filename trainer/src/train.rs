//! Training of a run, from its opened dataset to its report.

use std::sync::Arc;

use feedline_schemas::{config::TrainConfig, manifest::Split, report::TrainReport};

use crate::{
    Context, Resume, baseline, checkpoint,
    data::Data as _,
    error::Error,
    model::Build,
    opened::Opened,
    parallel::largest_message,
    performance::GpuSampler,
    prolong::{self, Start},
    run_context::Watch,
    session::Session,
    settings,
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
