//! `run.json` and `report.html` of a run: begun with it, updated while it runs, closed when it
//! ends.

use std::{sync::Arc, time::Duration};

use feedline_schemas::{
    Classified as _, ErrorKind, Versioned as _, encode,
    manifest::{Split, report_path},
    report::TrainReport,
    run::{ContinuedFrom, RunRecord, RunState},
};
use feedline_storage::{Store, clock::Clock};
use tokio::{sync::oneshot, task::JoinHandle};

use super::{
    index,
    links::relative,
    paths::{RECORD_PATH, REPORT_PATH, TOKENIZER_PATH, TRANSFORM_PATH},
    report,
    status::Tracker,
    timestamp::now_ms,
};
use crate::{
    Context, Resume,
    checkpoint::run_folder::RunFolder,
    error::Error,
    reporting::metrics_log,
    session::{opened_dataset::OpenedDataset, prolong::RunStart},
};

/// Time for the list of runs.
const INDEX_TIME: Duration = Duration::from_secs(20);

/// The record of a run in progress. A task of its own writes it every
/// [`HEARTBEAT_MS`](RunRecord::HEARTBEAT_MS), so that a long step looks alive and a killed process
/// does not.
#[derive(Debug)]
pub(crate) struct Recorder {
    folder: RunFolder,
    tracker: Arc<Tracker>,
    clock: Arc<dyn Clock>,
    continued_from: Option<ContinuedFrom>,
    dataset: Store,
    /// Folder of all runs.
    runs: Store,
    /// Dropped, it ends the heartbeat.
    stop: oneshot::Sender<()>,
    heartbeat: JoinHandle<RunRecord>,
}

impl Recorder {
    /// Writes the record of a run that begins or resumes, and beside it a copy of the transform: its model can be used on new
    /// rows even if the dataset changes.
    ///
    /// # Errors
    /// [`Error::Storage`].
    pub(crate) fn begin(
        opened: &OpenedDataset,
        resume: Resume,
        context: &Context,
        tracker: &Arc<Tracker>,
        start: &RunStart,
    ) -> Result<Self, Error> {
        let folder = opened.folder.clone();
        let clock = Arc::clone(&context.clock);
        let mut record = new_record(opened, now_ms(&*clock));
        if resume != Resume::Fresh
            && let Some(before) = read_record(&folder)?
        {
            record.started_ms = before.started_ms;
            record.continued_from = before.continued_from;
            (record.test, record.baseline) = (before.test, before.baseline);
            record.diagnostics = before.diagnostics;
            record.performance = before.performance;
            record.mixture = before.mixture;
            record.quarantined = before.quarantined;
        }
        match start {
            RunStart::Other(from) => record.continued_from = Some(from.clone()),
            RunStart::Nothing(_) => record.continued_from = None,
            RunStart::Own => {}
        }
        folder.put(TRANSFORM_PATH, encode(&opened.transform))?;
        if let Some(tokenizer) = &opened.tokenizer {
            folder.put(TOKENIZER_PATH, tokenizer.clone())?;
        }
        let continued_from = record.continued_from.clone();
        update(&mut record, tracker, &*clock);
        let runtime = opened.runtime.handle();
        runtime.block_on(write(folder.store(), &record))?;
        let (stop, stopped) = oneshot::channel();
        let heartbeat = runtime.spawn(beat(
            record,
            folder.store().clone(),
            Arc::clone(tracker),
            Arc::clone(&clock),
            stopped,
        ));
        Ok(Self {
            folder,
            tracker: Arc::clone(tracker),
            clock,
            continued_from,
            dataset: context.dataset.clone(),
            runs: context.runs.clone(),
            stop,
            heartbeat,
        })
    }

    /// The checkpoint of another run that this one began with.
    pub(crate) const fn continued_from(&self) -> Option<&ContinuedFrom> {
        self.continued_from.as_ref()
    }

    /// Writes how the run ended, and its page. The run's own result is valid even if this fails.
    pub(crate) fn end(self, result: &Result<Option<TrainReport>, Error>) {
        let Self {
            folder,
            tracker,
            clock,
            dataset,
            runs,
            stop,
            heartbeat,
            ..
        } = self;
        drop(stop);
        let beaten = folder.wait_for(RECORD_PATH, async { Ok(heartbeat.await) });
        let Ok(Ok(mut record)) = beaten else {
            tracing::warn!(
                run = folder.url(),
                "the record of the run was lost; `run.json` stays as it was"
            );
            return;
        };
        update(&mut record, &tracker, &*clock);
        record.ended_ms = Some(record.updated_ms);
        match result {
            Ok(report) => {
                record.state = RunState::Finished;
                if let Some(report) = report {
                    (record.test, record.baseline) = (report.test.clone(), report.baseline.clone());
                    record.diagnostics.clone_from(&report.test_diagnostics);
                    record.mixture.clone_from(&report.mixture);
                    record.quarantined = report.quarantined;
                }
            }
            Err(error) if error.kind() == ErrorKind::Cancelled && tracker.hopeless() => {
                record.state = RunState::Pruned;
            }
            Err(error) if error.kind() == ErrorKind::Cancelled => {
                record.state = RunState::Interrupted;
            }
            Err(error) => {
                record.state = RunState::Failed;
                record.reason = Some(error.to_string());
            }
        }
        let written = folder.put(RECORD_PATH, encode(&record)).and_then(|()| {
            let lines = folder.get_opt(metrics_log::PATH)?.unwrap_or_default();
            let links = links(&record, &folder, &dataset, &runs);
            let page = report::page(&record, &String::from_utf8_lossy(&lines), &links);
            folder.put(REPORT_PATH, page.into_bytes())
        });
        if let Err(error) = written {
            tracing::warn!(%error, run = folder.url(), "how the run ended could not be written down");
        }
        // A search writes the index once, with its last training.
        if !tracker.is_trial() {
            write_index(&folder, &dataset, &runs, now_ms(&*clock));
        }
    }
}

/// Links from the page of a run; to the dataset's only where there is one.
fn links(record: &RunRecord, folder: &RunFolder, dataset: &Store, runs: &Store) -> report::Links {
    let path = report_path(record.fingerprint);
    let exists = folder.wait_for(&path, dataset.size(&path)).is_ok();
    let to = |url: String| relative(&folder.url(), &url);
    report::Links {
        index: to(runs.url_of(index::PATH)),
        dataset: exists.then(|| to(dataset.url_of(&path))).flatten(),
    }
}

/// Writes the list of runs. It is a convenience: a training does not fail or wait long for it.
fn write_index(folder: &RunFolder, dataset: &Store, runs: &Store, now_ms: u64) {
    let written =
        async { Ok(tokio::time::timeout(INDEX_TIME, index::write(runs, dataset, now_ms)).await) };
    match folder.wait_for(index::PATH, written) {
        Ok(Ok(Ok(()))) => {}
        Ok(Err(_)) => {
            tracing::warn!(
                runs = runs.url(),
                "the list of runs took too long; `index.html` stays as it was"
            );
        }
        Ok(Ok(Err(error))) | Err(error) => {
            tracing::warn!(%error, runs = runs.url(), "the list of runs could not be written");
        }
    }
}

fn new_record(opened: &OpenedDataset, now_ms: u64) -> RunRecord {
    let plan = &opened.plan;
    let manifest = opened.loaders.manifest();
    let content = |split| Some((split, manifest.split_content(split)?));
    RunRecord {
        format: RunRecord::TAG.format.to_owned(),
        version: RunRecord::TAG.version,
        name: opened.name(),
        program: env!("CARGO_PKG_VERSION").to_owned(),
        dataset: plan.dataset_url.clone(),
        fingerprint: plan.fingerprint,
        transform: Some(opened.transform.hash),
        columns_hash: manifest.columns_hash,
        layout: Some(plan.layout.clone()),
        splits: Split::ALL.into_iter().filter_map(content).collect(),
        continued_from: None,
        classes: plan.task.classes().to_vec(),
        targets: plan.task.targets(),
        config: plan.settings.config().clone(),
        state: RunState::Running,
        reason: None,
        started_ms: now_ms,
        updated_ms: now_ms,
        ended_ms: None,
        step: 0,
        dropped_steps: 0,
        steps_planned: 0,
        epochs: 0,
        parameters: 0,
        data_wait_share: 0.0,
        performance: None,
        best: None,
        images: plan.images.clone(),
        mixture: Vec::new(),
        quarantined: 0,
        left_out_shards: opened.loaders.left_out_shards(),
        test: crate::evaluation::metrics::Metrics::new(),
        baseline: crate::evaluation::metrics::Metrics::new(),
        diagnostics: None,
    }
}

/// The record in a folder; `None` where there is none, or none that can be read.
///
/// # Errors
/// [`Error::Storage`].
pub(crate) fn read_record(folder: &RunFolder) -> Result<Option<RunRecord>, Error> {
    let Some(bytes) = folder.get_opt(RECORD_PATH)? else {
        return Ok(None);
    };
    let record = feedline_schemas::decode(&folder.url_of(RECORD_PATH), &bytes);
    Ok(record
        .inspect_err(
            |error| tracing::warn!(%error, "cannot read the record of the run: it is ignored"),
        )
        .ok())
}

async fn beat(
    mut record: RunRecord,
    store: Store,
    tracker: Arc<Tracker>,
    clock: Arc<dyn Clock>,
    mut stopped: oneshot::Receiver<()>,
) -> RunRecord {
    let every = Duration::from_millis(RunRecord::HEARTBEAT_MS);
    while tokio::time::timeout(every, &mut stopped).await.is_err() {
        update(&mut record, &tracker, &*clock);
        if let Err(error) = write(&store, &record).await {
            tracing::warn!(%error, "the record of the run could not be written; trying again");
        }
    }
    record
}

async fn write(store: &Store, record: &RunRecord) -> Result<(), Error> {
    Ok(store.put(RECORD_PATH, encode(record).into()).await?)
}

fn update(record: &mut RunRecord, tracker: &Tracker, clock: &dyn Clock) {
    let status = tracker.status();
    record.updated_ms = now_ms(clock);
    record.step = status.step;
    record.dropped_steps = status.dropped_steps;
    record.steps_planned = status.steps_planned;
    record.epochs = status.epochs;
    record.parameters = status.parameters;
    record.data_wait_share = status.data_wait_share;
    if let Some(performance) = tracker.performance.report() {
        record.performance = Some(performance);
    }
    record.best = status.best;
}
