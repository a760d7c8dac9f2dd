//! One source that runs repeatedly by its schedule.

use std::{sync::Arc, time::Duration};

use feedline_http::{SecretMasks, meter::Cause};
use feedline_schemas::{
    config::{Overlap, PipelineConfig, SourceScheduleConfig},
    ids::Name,
    lease::{LastRun, RunOutcome},
    report::IngestReport,
};
use tokio::{
    sync::{AcquireError, Semaphore, SemaphorePermit, watch},
    time::{Instant, MissedTickBehavior, interval_at, sleep},
};

use super::{
    lease::{Lease, TTL, Taken},
    schedule_status::{ScheduleStatus, ServedSource},
};
use crate::{
    context::Context,
    due_times::{DueTimes, jitter},
    error::{Error, innermost_cause},
    landing_folder::landing,
    run::ingest,
    status::{is_deferred_by_log, read_log_totals},
};

/// Longest sleep between two checks of the wall clock: it may jump, and a machine may be suspended.
const NAP: Duration = Duration::from_secs(20);
/// A clock that goes back by more than this has been set back.
const SET_BACK: Duration = Duration::from_secs(2);
/// Pause after a failure of the store.
const STORE_FAILED: Duration = Duration::from_secs(30);

/// A source, its schedule and its resources.
#[derive(Debug)]
pub(super) struct SourceRunner {
    pub(super) config: Arc<PipelineConfig>,
    pub(super) source: Name,
    pub(super) schedule: SourceScheduleConfig,
    pub(super) ticks: DueTimes,
    pub(super) context: Context,
    /// Permits for concurrent runs, over all sources.
    pub(super) places: Arc<Semaphore>,
    pub(super) board: Arc<ScheduleStatus>,
    /// Its index on the board.
    pub(super) number: usize,
}

/// Known past runs of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Past {
    /// The last time it was due that is dealt with.
    pub(super) handled: Option<i64>,
    /// Time when a deferred run may resume.
    pub(super) resumes: Option<i64>,
}

impl Past {
    /// State of the last run for a program that starts at `now`.
    pub(super) fn at_start(
        last: Option<&LastRun>,
        ticks: &DueTimes,
        catch_up: bool,
        now: i64,
    ) -> Result<Self, Error> {
        let missed = ticks.until(now)?;
        let mut past = Self::default();
        if let Some(last) = last {
            past.heard(last, now);
            past.correct(ticks, now)?;
        }
        if !catch_up && past.handled < missed {
            past.handled = missed;
        }
        Ok(past)
    }

    /// Treats a run whose due time is ahead of the schedule as one of now: the clock was wrong then.
    pub(super) fn correct(&mut self, ticks: &DueTimes, now: i64) -> Result<(), Error> {
        if let Some(due) = self.handled
            && is_ahead(due, ticks, now)?
        {
            tracing::warn!(
                due,
                now,
                "the last run has a future timestamp; it is treated as one of now"
            );
            self.handled = ticks.until(now)?;
        }
        Ok(())
    }

    /// Updates the state by the outcome of a run that ended.
    pub(super) fn heard(&mut self, last: &LastRun, now: i64) {
        // A run that was stopped is still due.
        let stopped = i64::from(last.outcome == RunOutcome::Stopped);
        self.handled = Some(last.due_unix_s - stopped);
        // At most the delay that the server asked for, whatever clock wrote the end of the run.
        self.resumes = last.until_unix_s.map(|until| {
            let asked = until.saturating_sub(last.ended_unix_s).max(0);
            until.min(now.saturating_add(asked))
        });
    }

    /// Returns the next due time, and the earliest start of its run. Both may be past; `None` if
    /// nothing is due any more.
    pub(super) fn next(&self, ticks: &DueTimes, now: i64) -> Result<Option<(i64, i64)>, Error> {
        let missed = ticks
            .until(now)?
            .filter(|tick| self.handled.is_none_or(|handled| *tick > handled));
        let next = match (missed, self.handled) {
            (Some(tick), _) => Some(tick),
            (None, Some(handled)) => ticks.after(handled)?,
            (None, None) => ticks.after(now)?,
        };
        let resumed = self
            .resumes
            .zip(self.handled)
            .map(|(from, due)| (due, from));
        Ok(match (resumed, next) {
            // The tick comes first, but the server named a later time.
            (Some((_, from)), Some(tick)) if tick <= from => Some((tick, from)),
            (Some(resumed), _) => Some(resumed),
            (None, next) => next.map(|tick| (tick, tick)),
        })
    }
}

/// Returns true if a due time is later than the next two times of the schedule: it comes from a clock
/// that was ahead.
fn is_ahead(due: i64, ticks: &DueTimes, now: i64) -> Result<bool, Error> {
    let Some(next) = ticks.after(now)? else {
        return Ok(false);
    };
    let second = ticks.after(next)?;
    Ok(second.is_some_and(|second| due > second))
}

/// End of a wait for a due time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitEnd {
    Due,
    Stopped,
    /// The wall clock was set back, so the due time may be wrong.
    ClockSetBack,
}

impl SourceRunner {
    /// Name of its pipeline.
    pub(super) fn pipeline(&self) -> &str {
        self.config.pipeline.name.as_str()
    }

    /// Runs the source when it is due, until a stop is requested.
    pub(super) async fn serve(self) {
        let landing = landing(&self.context.root, &self.source);
        let holder = &self.context.run_id;
        let mut lease = Lease::new(landing, &self.source, holder, TTL, &self.context.clock);
        let mut past = None;
        let mut runs = 0;
        while !self.context.is_cancelled() {
            match self.turn(&mut lease, &mut past, &mut runs).await {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    let error = self.describe(&error);
                    tracing::warn!(source = %self.source, error, "its schedule cannot continue; will retry");
                    self.show(|served| {
                        served.waits_for = Some(error.clone());
                        served.store_failures += 1;
                        served.store_error = Some(error);
                        *served.runs.entry(RunOutcome::Failed).or_default() += 1;
                    });
                    self.nap(STORE_FAILED).await;
                }
            }
        }
    }

    /// Waits for the next time and runs the source; false when there will be none.
    pub(super) async fn turn(
        &self,
        lease: &mut Lease,
        known: &mut Option<Past>,
        runs: &mut u64,
    ) -> Result<bool, Error> {
        let past = match known {
            Some(past) => past,
            None => known.insert(self.load_past(lease).await?),
        };
        past.correct(&self.ticks, self.now())?;
        let Some((due, from)) = past.next(&self.ticks, self.now())? else {
            return Ok(false);
        };
        let late = jitter(self.source.as_str(), due, self.schedule.jitter_s.get());
        let is_deferred = past.resumes.is_some();
        match self.wait_until(from, late, is_deferred).await? {
            WaitEnd::Due => {}
            WaitEnd::Stopped => return Ok(true),
            WaitEnd::ClockSetBack => {
                tracing::warn!(source = %self.source, due, "the clock was set back; the next run is computed from it");
                *known = None;
                return Ok(true);
            }
        }
        let Some(place) = self.acquire_place().await else {
            return Ok(true);
        };
        // It is never closed.
        let Ok(place) = place else { return Ok(false) };
        let taken = lease.take().await?;
        self.note_store_works();
        if let Taken::By(other) = taken {
            drop(place);
            self.wait_for_lease(lease, &other, past).await?;
        } else if !self.is_run_by_another(lease, due, past).await? {
            *runs += 1;
            self.run_due(lease, due, *runs, past).await?;
        }
        Ok(true)
    }

    /// Loads the known past runs of the source, and shows the last one.
    async fn load_past(&self, lease: &mut Lease) -> Result<Past, Error> {
        let last = lease.last().await?;
        let known = Past::at_start(
            last.as_ref(),
            &self.ticks,
            self.schedule.catch_up,
            self.now(),
        )?;
        self.show(|served| tell(served, last));
        self.note_store_works();
        // Makes metrics agree with the log before the first run, which reports problems of
        // the log.
        let log = landing(&self.context.root, &self.source);
        if let Ok(Some(totals)) = read_log_totals(&log).await {
            self.context
                .metrics
                .of(self.source.as_str())
                .record_totals(totals);
        }
        Ok(known)
    }

    /// Waits for a place among the concurrent runs; `None` if a stop is requested meanwhile.
    async fn acquire_place(&self) -> Option<Result<SemaphorePermit<'_>, AcquireError>> {
        let meter = self.context.metrics.of(self.source.as_str());
        let others = || "a free place: others run".to_owned();
        self.show(|served| served.waits_for = Some(others()));
        let _waiting = meter.wait(Cause::Place, others());
        let cancelled = self.cancelled();
        tokio::select! {
            place = self.places.acquire() => Some(place),
            () = cancelled => None,
        }
    }

    /// Waits for a part of the time that another program holds the lease, and notes its last run.
    async fn wait_for_lease(
        &self,
        lease: &mut Lease,
        other: &str,
        past: &mut Past,
    ) -> Result<(), Error> {
        let held = format!("the lease of `{other}`, which runs it");
        self.show(|served| served.waits_for = Some(held.clone()));
        let meter = self.context.metrics.of(self.source.as_str());
        let waiting = meter.wait(Cause::Lease, held);
        self.nap(lease.ttl() / 4).await;
        drop(waiting);
        if let Some(last) = lease.last().await? {
            past.heard(&last, self.now());
            self.show(|served| tell(served, Some(last)));
        }
        Ok(())
    }

    /// Returns true if another program was quicker and has done the run that is due. The lease is
    /// then given back.
    async fn is_run_by_another(
        &self,
        lease: &mut Lease,
        due: i64,
        past: &mut Past,
    ) -> Result<bool, Error> {
        if let Some(last) = lease.last().await?
            && last.due_unix_s >= due
            && last.outcome != RunOutcome::Stopped
            && past.resumes.is_none()
            && !is_ahead(last.due_unix_s, &self.ticks, self.now())?
        {
            past.heard(&last, self.now());
            lease.give_back(last.clone()).await?;
            self.show(|served| tell(served, Some(last)));
            return Ok(true);
        }
        Ok(false)
    }

    /// Does the run that is due, and gives the lease back.
    async fn run_due(
        &self,
        lease: &mut Lease,
        due: i64,
        number: u64,
        past: &mut Past,
    ) -> Result<(), Error> {
        let before = lease.last().await?.map_or(0, |last| last.failures);
        let mut last = self.run(lease, due, number).await;
        last.failures = match last.outcome {
            RunOutcome::Complete => 0,
            RunOutcome::Failed => before.saturating_add(1),
            RunOutcome::Deferred | RunOutcome::Stopped => before,
        };
        past.heard(&last, self.now());
        if self.schedule.overlap == Overlap::Skip && last.outcome != RunOutcome::Stopped {
            past.handled = past.handled.max(self.ticks.until(last.ended_unix_s)?);
        }
        self.show(|served| tell(served, Some(last.clone())));
        let has_failed = last.outcome == RunOutcome::Failed;
        match lease.give_back(last).await {
            // The run counts as failed already, and the lease expires.
            Err(error) if has_failed => {
                tracing::warn!(source = %self.source, %error, "its lease could not be given back");
                Ok(())
            }
            given => given,
        }
    }

    /// Resets the count and the error of runs that could not begin: the store works.
    fn note_store_works(&self) {
        self.show(|served| (served.store_failures, served.store_error) = (0, None));
    }

    /// Runs the source once, with the lease renewed meanwhile.
    async fn run(&self, lease: &mut Lease, due_unix_s: i64, number: u64) -> LastRun {
        let began_unix_s = self.now();
        self.show(|served| {
            (served.waits_for, served.next_unix_s) = (None, None);
            served.running_since_unix_s = Some(began_unix_s);
        });
        tracing::info!(source = %self.source, due_unix_s, "its run begins");
        let (stop, cancel) = watch::channel(self.context.is_cancelled());
        let context = Context {
            run_id: format!("{}-{number}", self.context.run_id),
            cancel,
            ..self.context.clone()
        };
        // Boxed: the future of a run is large.
        let mut run = Box::pin(ingest(&self.config, Some(&self.source), &context));
        let mut heartbeat = interval_at(Instant::now() + lease.ttl() / 3, lease.ttl() / 3);
        // After a suspend, one heartbeat is enough.
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut asked = Box::pin(self.cancelled());
        let mut is_asked = false;
        let ended = loop {
            tokio::select! {
                ended = &mut run => break ended,
                () = &mut asked, if !is_asked => {
                    is_asked = true;
                    stop.send_replace(true);
                }
                _ = heartbeat.tick() => match lease.renew().await {
                    Ok(true) => {}
                    Ok(false) => {
                        tracing::warn!(source = %self.source, "another program took its lease over; this run ends");
                        stop.send_replace(true);
                    }
                    Err(error) if lease.is_expired() => {
                        tracing::warn!(source = %self.source, %error, "its lease could not be renewed for as long as it holds, and another program may have taken it; this run ends");
                        stop.send_replace(true);
                    }
                    // The commit log separates two writers if both run.
                    Err(error) => tracing::warn!(source = %self.source, %error, "its lease could not be renewed"),
                },
            }
        };
        self.ended(ended, due_unix_s, began_unix_s)
    }

    /// Text of an error with its cause, and a mask in place of each secret of the source.
    fn describe(&self, error: &Error) -> String {
        let mut sources = self.config.source.iter();
        let config = sources.find(|config| config.name == self.source);
        let masks = config.map(|config| SecretMasks::configured(config, &*self.context.secrets));
        masks.unwrap_or_default().mask_message(&with_cause(error))
    }

    fn ended(
        &self,
        ended: Result<IngestReport, Error>,
        due_unix_s: i64,
        began_unix_s: i64,
    ) -> LastRun {
        let (outcome, reason, until_unix_s) = match &ended {
            Ok(_) => (RunOutcome::Complete, None, None),
            Err(error @ Error::Deferred { until_unix_s, .. }) => (
                RunOutcome::Deferred,
                Some(self.describe(error)),
                Some(i64::try_from(*until_unix_s).unwrap_or(i64::MAX)),
            ),
            Err(Error::Cancelled) => (RunOutcome::Stopped, None, None),
            Err(error) => (RunOutcome::Failed, Some(self.describe(error)), None),
        };
        match &reason {
            None => {
                tracing::info!(source = %self.source, outcome = outcome.name(), "its run ended")
            }
            Some(reason) => {
                tracing::warn!(source = %self.source, outcome = outcome.name(), reason, "its run ended")
            }
        }
        self.show(|served| {
            *served.runs.entry(outcome).or_default() += 1;
            served.running_since_unix_s = None;
            if let Ok(report) = ended {
                served.report = report.sources.into_iter().next();
            }
        });
        LastRun {
            due_unix_s,
            began_unix_s,
            ended_unix_s: self.now(),
            outcome,
            reason,
            failures: 0,
            until_unix_s,
        }
    }

    /// Sleeps until the wall clock reaches `from` plus `late`, or until `ingest resume` ends the
    /// deferral of a waiting run.
    async fn wait_until(
        &self,
        from: i64,
        late: Duration,
        is_deferred: bool,
    ) -> Result<WaitEnd, Error> {
        let log = landing(&self.context.root, &self.source);
        let from = Duration::from_secs(from.try_into().unwrap_or(0)).saturating_add(late);
        let shown = i64::try_from(from.as_secs()).ok();
        self.show(|served| (served.next_unix_s, served.waits_for) = (shown, None));
        let mut least = Duration::MAX;
        while !self.context.is_cancelled() {
            let left = from.saturating_sub(self.context.clock.unix());
            if left.is_zero() {
                return Ok(WaitEnd::Due);
            }
            if left > least.saturating_add(SET_BACK) {
                return Ok(WaitEnd::ClockSetBack);
            }
            least = least.min(left);
            if is_deferred && !is_deferred_by_log(&log).await? {
                self.release_host();
                return Ok(WaitEnd::Due);
            }
            self.nap(left.min(NAP)).await;
        }
        Ok(WaitEnd::Stopped)
    }

    /// Clears the delay that the host of the source asked for.
    fn release_host(&self) {
        let mut sources = self.config.source.iter();
        let url = sources.find(|source| source.name == self.source);
        if let Some(url) = url.and_then(|source| url::Url::parse(&source.url).ok()) {
            self.context.hosts.release(&url.origin());
        }
    }

    async fn nap(&self, time: Duration) {
        tokio::select! {
            () = sleep(time) => {}
            () = self.cancelled() => {}
        }
    }

    /// Completes when a stop is requested.
    async fn cancelled(&self) {
        let mut cancel = self.context.cancel.clone();
        if cancel.wait_for(|cancelled| *cancelled).await.is_err() {
            // The sender is gone, so no stop can be requested.
            std::future::pending::<()>().await;
        }
    }

    fn now(&self) -> i64 {
        i64::try_from(self.context.clock.unix().as_secs()).unwrap_or(i64::MAX)
    }

    fn show(&self, change: impl FnOnce(&mut ServedSource)) {
        self.board.update(self.number, change);
    }
}

/// The text of an error with its innermost cause, without queries of URLs. A store keeps its causes
/// out of its own text.
fn with_cause(error: &Error) -> String {
    let text = error.to_string();
    let cause = innermost_cause(error);
    if text.contains(&cause) {
        return text;
    }
    let words = cause.split(' ').map(|word| match word.split_once('?') {
        Some((url, _)) if url.contains("://") => url,
        _ => word,
    });
    format!("{text}: {}", words.collect::<Vec<_>>().join(" "))
}

fn tell(served: &mut ServedSource, last: Option<LastRun>) {
    if let Some(last) = &last
        && last.outcome == RunOutcome::Complete
    {
        served.complete_unix_s = Some(last.ended_unix_s);
    }
    served.last = last;
}
