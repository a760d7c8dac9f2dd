//! Runs sources when they are due, each by one program at a time.

mod lease;
mod runner;
mod schedule_status;

#[cfg(test)]
mod tests;

use std::{collections::HashSet, sync::Arc};

use feedline_schemas::config::{PipelineConfig, SourceKind};
use tokio::{sync::Semaphore, task::JoinSet};
use tracing::{Instrument as _, Span};

pub(crate) use self::lease::{Holding, lease};
use self::runner::SourceRunner;
pub use self::schedule_status::{ScheduleStatus, ServedSource};
use crate::{
    context::Context,
    due_times::{DueTimes, warn_of_past_schedule},
    error::Error,
    settings::{choose, looks_for_more},
};

/// Runs every source with a `[source.schedule]` when it is due.
///
/// ```no_run
/// use feedline_ingest::{Context, Error, Scheduler};
/// use feedline_schemas::config::PipelineConfig;
///
/// # async fn example(config: PipelineConfig, context: Context) -> Result<(), Error> {
/// let mut scheduler = Scheduler::new(4);
/// scheduler.add(config, &context)?;
/// let board = scheduler.board();
/// let running = tokio::spawn(scheduler.run());
/// for served in board.read() {
///     let requests: u64 = served.meter.read().requests.values().sum();
///     println!("{}: {requests} requests", served.source);
/// }
/// # drop(running);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Scheduler {
    runners: Vec<SourceRunner>,
    places: Arc<Semaphore>,
    board: Arc<ScheduleStatus>,
}

impl Scheduler {
    /// A scheduler that runs at most `at_once` sources at a time, at least one.
    #[must_use]
    pub fn new(at_once: usize) -> Self {
        Self {
            runners: Vec::new(),
            places: Arc::new(Semaphore::new(at_once.max(1))),
            board: Arc::default(),
        }
    }

    /// Adds the sources of a pipeline that have a schedule.
    ///
    /// # Errors
    /// [`Error::Config`] for wrong settings of a source, for an impossible schedule, if no source has
    /// one, or if the scheduler has a pipeline of this name.
    pub fn add(&mut self, config: PipelineConfig, context: &Context) -> Result<(), Error> {
        let config = Arc::new(config);
        let name = config.pipeline.name.to_string();
        if self.board.has(&name) {
            return Err(Error::config(
                "pipeline.name",
                format!(
                    "`{name}` is served already, and the metrics of two pipelines of one name would be mixed: name each file once, and give each pipeline a name of its own"
                ),
            ));
        }
        let known = self.runners.len();
        for (index, source) in choose(&config, None)? {
            let Some(schedule) = &source.schedule else {
                continue;
            };
            let ticks = DueTimes::new(schedule).map_err(|e| e.under(&format!("source.{index}")))?;
            if let Some(warning) = warn_of_past_schedule(source, context) {
                tracing::warn!(source = %source.name, "{}", warning.message);
            }
            let has_fixed_list = source
                .for_each
                .as_ref()
                .is_some_and(|each| each.source.is_none());
            let is_read_once = has_fixed_list
                && source.slices.is_none()
                && source.incremental.is_none()
                && source.refresh.is_never();
            if is_read_once || !looks_for_more(source) {
                let but = match source.r#type {
                    SourceKind::Html => " but failed pages of a crawl",
                    SourceKind::Rest | SourceKind::Files => "",
                };
                tracing::warn!(source = %source.name, "once it is complete, its runs ask for nothing{but}: give it `incremental` or `refresh`, or `crawl.refresh` for pages");
            }
            let number = self.board.add(ServedSource {
                pipeline: name.clone(),
                source: source.name.to_string(),
                since_unix_s: context.clock.unix().as_secs(),
                meter: context.metrics.of(source.name.as_str()),
                ..ServedSource::default()
            });
            self.runners.push(SourceRunner {
                config: Arc::clone(&config),
                source: source.name.clone(),
                schedule: schedule.clone(),
                ticks,
                context: context.clone(),
                places: Arc::clone(&self.places),
                board: Arc::clone(&self.board),
                number,
            });
        }
        if self.runners.len() == known {
            return Err(Error::config(
                "source",
                "none has a `[source.schedule]`, so there is nothing to serve; add one with `cron` or `every_s`",
            ));
        }
        Ok(())
    }

    /// Returns the current state of its sources.
    #[must_use]
    pub fn board(&self) -> Arc<ScheduleStatus> {
        Arc::clone(&self.board)
    }

    /// Runs the sources until `cancel` of their contexts becomes true. A failed run is reported in
    /// the log and on the board, and the source runs again at its next tick; a deferred one as soon
    /// as its server allows. On a stop, the pages read before it are committed. Lines of the log name
    /// the pipeline if there are several.
    pub async fn run(self) {
        let mut tasks = JoinSet::new();
        let mut numbers = Vec::new();
        let pipelines = self.runners.iter().map(SourceRunner::pipeline);
        let has_several = pipelines.collect::<HashSet<_>>().len() > 1;
        for line in self.runners {
            let number = line.number;
            // A span of errors is shown at every level of the log.
            let span = match has_several {
                true => tracing::error_span!("serve", pipeline = %line.pipeline()),
                false => Span::none(),
            };
            let task = tasks.spawn(line.serve().instrument(span));
            numbers.push((task.id(), number));
        }
        while let Some(ended) = tasks.join_next().await {
            if let Err(error) = ended
                && let Some((_, number)) = numbers.iter().find(|(id, _)| *id == error.id())
            {
                tracing::error!(%error, "a source is not served any more; this is a bug");
                self.board
                    .update(*number, |served| served.dead = Some(error.to_string()));
            }
        }
    }
}
