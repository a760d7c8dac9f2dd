//! Speed of a training and use of its device.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Speed of the training steps of one process, and use of its device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Performance {
    /// Time of the training steps, by use.
    pub step_time: StepTime,
    /// Training samples per second of waiting and computing, of all ranks together.
    pub samples_per_s: f64,
    /// Floating-point operations of one training sample, forward and backward pass: an estimate from the matrix products
    /// of the layers.
    pub flops_per_sample: f64,
    /// Floating-point operations per second, of all ranks together.
    pub flops_per_s: f64,
    /// Published peak of the devices of all ranks, without sparsity; absent where it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_flops_per_s: Option<f64>,
    /// `flops_per_s` as a fraction of the peak; absent where the peak is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flops_share: Option<f64>,
    /// Figures of the NVIDIA GPU of this rank; absent without one, and where the driver gives none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<GpuUse>,
}

/// Seconds of training steps, by use. Validation and the test split are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepTime {
    /// Waiting for batches.
    pub data_wait_s: f64,
    /// Computing, with exchanges that ran beside the backward pass.
    pub compute_s: f64,
    /// Exchanges between ranks that nothing ran beside; 0 with one rank.
    pub communication_s: f64,
    /// Waiting for checkpoints.
    pub checkpoint_s: f64,
}

impl StepTime {
    /// Sum of all uses, in seconds.
    #[must_use]
    pub const fn total_s(self) -> f64 {
        self.data_wait_s + self.compute_s + self.communication_s + self.checkpoint_s
    }
}

/// Figures of an NVIDIA GPU, read about once a second while a run trained and was measured. They are those of the GPU,
/// other processes on it included. A figure that the GPU does not report is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GpuUse {
    /// Times that the figures were read.
    pub readings: u64,
    /// Percent of the time that a kernel ran, whatever part of the GPU it kept busy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilization_percent: Option<MeanAndPeak>,
    /// Bytes of memory in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<MeanAndPeak>,
    /// Power draw in watts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_w: Option<MeanAndPeak>,
    /// Temperature in degrees Celsius.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature_c: Option<MeanAndPeak>,
}

/// Mean and largest value of a figure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MeanAndPeak {
    /// Mean of the readings.
    pub mean: f64,
    /// Largest reading.
    pub peak: f64,
}
