//! Lines of `metrics.jsonl`.

use feedline_schemas::ids::{Epoch, Sequence, Step};
use serde::Serialize;

use crate::{
    evaluation::metrics::Metrics,
    reporting::{performance::DeviceFields, rank_speeds::RankPace},
};

/// One line.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum MetricsLine {
    /// One step.
    Step {
        /// Steps taken, this one included.
        step: Step,
        /// Epoch in progress.
        epoch: Epoch,
        /// Mean loss of the batch, in units of the stored target.
        loss: f64,
        /// Global norm of its gradient before clipping.
        gradient_norm: f64,
        /// Learning rate of the step.
        learning_rate: f64,
        /// Samples per second since the last line.
        samples_per_s: f64,
        /// Share of that time spent waiting for batches.
        data_wait_share: f64,
        /// Seconds since the last line that training stood still for checkpoints.
        save_stall_s: f64,
        /// Seconds of that time spent on exchanges alone; absent with one rank.
        #[serde(skip_serializing_if = "Option::is_none")]
        communication_s: Option<f64>,
        /// Seconds of exchanges that ran beside the backward pass; absent with one rank.
        #[serde(skip_serializing_if = "Option::is_none")]
        hidden_communication_s: Option<f64>,
        /// Bytes the process holds in memory; absent where the system does not report it.
        #[serde(skip_serializing_if = "Option::is_none")]
        memory_bytes: Option<u64>,
        /// Bytes from host memory to the device since the last line; absent on the processor.
        #[serde(skip_serializing_if = "Option::is_none")]
        bytes_to_device: Option<u64>,
        /// Bytes from the device to host memory since the last line; absent on the processor.
        #[serde(skip_serializing_if = "Option::is_none")]
        bytes_from_device: Option<u64>,
        /// Share of the device's peak, and figures of a GPU.
        #[serde(flatten)]
        device: DeviceFields,
        /// Speed of each rank over the last 20 or more steps; absent with one rank, and before
        /// there are so many.
        #[serde(flatten)]
        pace: Option<RankPace>,
    },
    /// A checkpoint could not be written; the one before it is kept.
    SaveFailed {
        /// Steps taken when that was noticed.
        step: Step,
        /// Epoch in progress.
        epoch: Epoch,
        /// Reason.
        reason: String,
    },
    /// A batch was left out, since this said something that is not finite.
    Skipped {
        /// The step that it was.
        step: Step,
        /// Epoch in progress.
        epoch: Epoch,
        /// Subject.
        what: &'static str,
        /// `NaN`, `inf` or `-inf`.
        value: String,
        /// A few of its samples: those whose own loss is not finite, or else the first.
        samples: Vec<NamedSample>,
    },
    /// A step was left out, since its gradient overflowed f16.
    Dropped {
        /// The step that it was.
        step: Step,
        /// Epoch in progress.
        epoch: Epoch,
        /// Mean loss of the batch.
        loss: f64,
        /// Scale of the loss in that step.
        loss_scale: f64,
    },
    /// Something is far over its mean.
    Alarm {
        /// Step.
        step: Step,
        /// Epoch in progress.
        epoch: Epoch,
        /// `loss` or `gradient norm`.
        what: &'static str,
        /// It.
        value: f64,
        /// Mean of those before.
        mean: f64,
    },
    /// The loss diverged: after this step the weights are those of an earlier one.
    Rollback {
        /// Step.
        step: Step,
        /// Epoch in progress.
        epoch: Epoch,
        /// The loss.
        loss: f64,
        /// Mean of the losses before it rose.
        mean: f64,
        /// Step whose weights were taken.
        to: Step,
    },
    /// One epoch.
    Epoch {
        /// The epoch.
        epoch: Epoch,
        /// Steps taken.
        step: Step,
        /// Mean of the training losses while the weights moved; absent where all batches of the epoch were skipped.
        #[serde(skip_serializing_if = "Option::is_none")]
        train_loss: Option<f64>,
        /// The same without label smoothing, as validation measures it; absent where there is none.
        #[serde(skip_serializing_if = "Option::is_none")]
        unsmoothed_train_loss: Option<f64>,
        /// Mean validation loss of the weights after the epoch.
        validation_loss: f64,
        /// True when it is the lowest so far.
        best: bool,
        /// Samples that this rank found to be unusable since the training began or resumed; absent where there are none.
        #[serde(skip_serializing_if = "Option::is_none")]
        quarantined: Option<u64>,
        /// `validation_<metric>`, in the target's units.
        #[serde(flatten)]
        validation: Metrics,
    },
}

/// A sample and where it came from.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct NamedSample {
    /// Its key, 16 hexadecimal digits.
    pub(crate) key: String,
    /// Index of its source in the manifest's `sources`; absent, as are `sequence` and `row`, where `dataset.sql` made the rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) source: Option<u64>,
    /// Log sequence of the batch of that source that it was landed with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sequence: Option<Sequence>,
    /// Its row in that batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) row: Option<u64>,
}
