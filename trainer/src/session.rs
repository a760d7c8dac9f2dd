//! A run in progress: epochs of steps, validation after each, early stopping, checkpoints.
//!
//! Between two steps a run is its [`Position`], the bucket, the optimizer's state and the best weights; a checkpoint
//! holds just these, and every step is a pure function of them and of its batch.

mod device_feed;
pub(crate) mod device_state;
mod epochs;
mod exchange;
mod guarding;
pub(crate) mod initial_weights;
pub(crate) mod loss_guard;
mod measure;
mod on_device;
pub(crate) mod opened_dataset;
mod own_rows;
mod placement;
pub(crate) mod prolong;
pub(crate) mod run_context;
mod saves;
mod saving;
mod section_exchange;
mod shares;
mod sharing;
mod step;
mod stragglers;
pub(crate) mod train;

use feedline_schemas::{
    checkpoint::{EarlyStopping, GuardState, Plateau, RunningLoss},
    count::counted,
    ids::{Epoch, Step},
    progress::Event,
    report::Warning,
};

pub(crate) use self::device_feed::DeviceFeed;
#[cfg(test)]
use self::measure::evaluate;
pub(crate) use self::{
    measure::{MeasuredBatch, evaluate_each},
    own_rows::OwnRows,
};
use self::{placement::stays_on_device, saves::Saving, sharing::Sharing};
use crate::{
    checkpoint::{Checkpoints, Numbers, Saver, run_folder::RunFolder},
    data::samples::Data,
    error::Error,
    model::engine::{ModelEngine, sections::Sections},
    optim::{average::Average, loss_scale, optimizer::Optimizer, schedule::Schedule},
    parallel::Phase,
    plan::{Position, RunPlan},
    reporting::{
        metrics_log::{MetricsLine, MetricsLog},
        step_times::StepMeter,
    },
    session::{
        device_state::{DeviceState, StepReport},
        run_context::Watch,
    },
};

/// A run in progress.
#[derive(Debug)]
pub(crate) struct TrainSession<'a, D> {
    plan: &'a RunPlan,
    data: &'a D,
    folder: &'a RunFolder,
    watch: Watch<'a>,
    engine: ModelEngine,
    /// The way of batches to the device of the engine.
    feed: DeviceFeed,
    sharing: Sharing,
    sections: Sections,
    /// Sections of the gradient where ranks sum it on their devices.
    device_sections: section_exchange::DeviceSections,
    schedule: Schedule,
    saving: Saving,
    log: MetricsLog<'a>,
    position: Position,
    bucket: Vec<f32>,
    optimizer: Optimizer,
    /// The average of the weights, where one is kept.
    average: Option<Average>,
    /// Best weights, once an epoch has been measured.
    best: Option<Numbers>,
    gradient: Vec<f32>,
    /// True where weights, average and optimizer stay on a device.
    stays_on_device: bool,
    /// These, where they stay there; what is above of them is a copy.
    device_state: Option<DeviceState>,
    /// The last step on the device, whose numbers were not yet looked at.
    pending: Option<Pending>,
    meter: StepMeter,
    /// The ranks agreed in the last step to stop.
    agreed_to_stop: bool,
    /// Warning that the ranks compute on different devices.
    device_warning: Option<Warning>,
}

/// A step whose numbers are still to be looked at.
#[derive(Debug)]
struct Pending {
    report: StepReport,
    /// Steps before it.
    taken: Step,
    /// Rows of the global batch.
    rows: usize,
    rate: f64,
    /// Divisor of the computed gradient.
    nominal: f64,
    /// Scale of the loss that it was computed with.
    loss_scale: f64,
    /// Divisor of the sum of the losses of this rank.
    weight: f64,
    keys: Vec<u64>,
    origins: Vec<u64>,
}

/// A warning of a warm-up that is as long as the run.
fn warning_of(schedule: &Schedule) -> Option<Warning> {
    let (warmup, total) = (schedule.warmup_steps, schedule.total_steps);
    (warmup >= total).then(|| {
        let message = format!(
            "the run has {} and its warm-up {warmup}: it ends before the learning rate has reached its peak",
            counted(total, "step")
        );
        Warning::new("long_warmup", message).with_key("train.schedule.warmup_steps")
    })
}

impl<'a, D: Data> TrainSession<'a, D> {
    /// A run at its start, with these weights.
    ///
    /// # Errors
    /// [`Error::Rank`].
    pub(crate) fn start(
        plan: &'a RunPlan,
        data: &'a D,
        (engine, bucket): (ModelEngine, Vec<f32>),
        folder: &'a RunFolder,
        watch: Watch<'a>,
    ) -> Result<Self, Error> {
        let len = bucket.len();
        let (stays_on_device, device_warning) = stays_on_device(&engine, watch.ranks)?;
        // What one rank computes stays on its device, and what ranks sum there.
        let are_many = watch.ranks.are_many();
        let needs_gradient = !stays_on_device || (are_many && !watch.ranks.sum_on_devices());
        let now = watch.clock.monotonic();
        let average = plan.settings.config().average.clone();
        let loss_scale = plan.settings.config().loss_scale.as_ref();
        let sharing = Sharing::new(engine.trained(), &plan.settings, watch.ranks.place());
        let layout = engine.model().layout();
        let sections = plan.settings.sections(layout);
        let device_sections = sharing.device_sections(layout, plan.settings.section_bytes_max());
        let optimizer = plan.settings.optimizer(sharing.own());
        let state = plan.settings.optimizer_state(sharing.trained());
        let schedule = plan.settings.schedule(data.batches_per_epoch());
        if let Some(warning) = warning_of(&schedule) {
            tracing::warn!(code = warning.code, "{}", warning.message);
        }
        let checkpoints = Checkpoints::new(
            folder.clone(),
            engine.model().parameters(),
            state,
            plan.settings.config(),
        );
        {
            let mut status = watch.tracker.change();
            status.steps_planned = schedule.total_steps;
            status.parameters = engine.trained_len();
        }
        Ok(Self {
            saving: Saving::new(Saver::new(folder.clone(), checkpoints)),
            log: MetricsLog::new(folder.clone(), watch),
            position: Position {
                step: Step::new(0),
                epoch: Epoch::new(0),
                loader: data.start(),
                early_stopping: EarlyStopping::default(),
                plateau: Plateau::default(),
                loss_scale: loss_scale.map(loss_scale::start),
                running: RunningLoss::default(),
                guard: GuardState::default(),
            },
            optimizer,
            average: average.map(|config| Average::new(config, bucket.clone())),
            best: None,
            gradient: vec![0.0; if needs_gradient { len } else { 0 }],
            stays_on_device,
            device_state: None,
            pending: None,
            meter: StepMeter::new(now),
            agreed_to_stop: false,
            device_warning,
            plan,
            data,
            folder,
            watch,
            feed: DeviceFeed::new(&engine, plan.settings.config().loader.device_prefetch),
            engine,
            sharing,
            sections,
            device_sections,
            schedule,
            bucket,
        })
    }

    /// Returns true if steps stay on the device: those of one rank, and of several that sum on their devices.
    fn steps_on_device(&self) -> bool {
        let ranks = self.watch.ranks;
        self.stays_on_device && (!ranks.are_many() || ranks.sum_on_devices())
    }

    /// The weights that are measured and kept.
    fn weights(&self) -> &[f32] {
        self.average.as_ref().map_or(&self.bucket, Average::weights)
    }

    /// Says where this rank is.
    fn at(&self, phase: Phase) {
        self.watch.ranks.at(self.position.step.get(), phase);
    }

    /// Adds a line of metrics, on the rank that writes them.
    fn write_line(&mut self, line: &MetricsLine) {
        if self.watch.ranks.leads() {
            self.log.add(line, self.watch.clock.monotonic());
        }
    }

    fn report(&self, loss: f64) {
        let tracker = self.watch.tracker;
        tracker.at(self.position.step, self.position.epoch);
        let (time, rate) = (self.meter.total_time(), self.meter.total_samples_per_s());
        tracker.performance.set_steps(time, rate);
        {
            let mut status = tracker.change();
            (status.loss, status.data_wait_share) = (Some(loss), self.meter.total_wait_share());
            let guard = &self.position.guard;
            status.skipped_steps = guard.dropped;
            status.dropped_steps = self.position.dropped_steps();
            status.rollbacks = guard.rollbacks.len() as u64;
        }
        let epoch = self.position.epoch.next();
        let note = format!(
            "epoch {epoch} of {}, loss {loss:.4}",
            self.plan.settings.config().epochs
        );
        self.watch.progress.report(Event {
            stage: "train",
            done: self.position.step.get(),
            total: Some(self.schedule.total_steps),
            unit: "steps",
            note: &note,
        });
    }
}

#[cfg(test)]
mod tests;
