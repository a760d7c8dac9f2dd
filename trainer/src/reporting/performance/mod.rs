//! Speed of a run in progress and use of its device: the arithmetic of its steps beside the device's peak, and what the
//! driver of an NVIDIA GPU measures.

mod flops;
#[cfg(feature = "nvidia")]
mod nvml;
/// No GPU of NVIDIA is opened by a program that was built without them.
#[cfg(not(feature = "nvidia"))]
mod nvml {
    use super::GpuReading;

    pub(super) const LIBRARY: &str = "NVML";

    pub(super) fn read_each(
        library: &str,
        _: u32,
        _: impl FnMut(GpuReading) -> bool,
    ) -> Result<(), String> {
        Err(format!("this program was built without {library}"))
    }
}
mod peak;
mod sampler;

use std::sync::{Mutex, MutexGuard, PoisonError};

use feedline_schemas::{
    config::Precision,
    performance::{GpuUse, MeanAndPeak, Performance, StepTime},
};
use serde::Serialize;

pub(crate) use self::sampler::GpuSampler;
use crate::{
    float_casts::{exact, exact_len},
    model::engine::ModelEngine,
    parallel::Group,
};

/// One value for each figure of a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct GpuFigures<T> {
    /// Percent of the time that a kernel ran.
    pub(crate) utilization_percent: T,
    /// Bytes of memory in use.
    pub(crate) memory_bytes: T,
    /// Watts.
    pub(crate) power_w: T,
    /// Degrees Celsius.
    pub(crate) temperature_c: T,
}

/// Figures at one instant, as far as the GPU reports them.
pub(crate) type GpuReading = GpuFigures<Option<f64>>;

/// Readings of one figure.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    sum: f64,
    peak: f64,
    count: u64,
}

/// Fields of a `step` line about the device. Those that are not known are absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct DeviceFields {
    /// Floating-point operations per second as a fraction of the peak of the devices of all ranks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) flops_share: Option<f64>,
    /// Mean since the last line; the newest reading where none came since then. So are the others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) gpu_utilization_percent: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) gpu_memory_bytes: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) gpu_power_w: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) gpu_temperature_c: Option<f64>,
}

/// Speed of a run in progress, updated by the session and by the thread that reads the GPU.
#[derive(Debug, Default)]
pub(crate) struct PerformanceMeter(Mutex<PerformanceState>);

#[derive(Clone, Copy, Debug, Default)]
struct PerformanceState {
    flops_per_sample: f64,
    /// Operations per second of the devices of all ranks, where that is known.
    peak: Option<f64>,
    step_time: StepTime,
    samples_per_s: f64,
    newest: GpuReading,
    readings: u64,
    total: GpuFigures<Tally>,
    /// Since the last line.
    window: GpuFigures<Tally>,
}

impl PerformanceMeter {
    /// Sets the arithmetic of a training sample, and the peak of the devices of all ranks, which are taken to be as this
    /// one.
    pub(crate) fn set_arithmetic(&self, engine: &ModelEngine, precision: Precision, group: &Group) {
        let flops = flops::of_training_sample(engine.model().layout(), &engine.trained());
        let gpu = engine.kind().cuda();
        let peak = gpu.and_then(|_| peak::of(engine.device_model(), precision));
        let ranks = exact_len(group.place().world);
        self.set(flops, peak.map(|peak| peak * ranks));
    }

    fn set(&self, flops_per_sample: f64, peak: Option<f64>) {
        let mut state = self.state();
        (state.flops_per_sample, state.peak) = (flops_per_sample, peak);
    }

    /// Sets the time of the steps since the start, and their rate.
    pub(crate) fn set_steps(&self, step_time: StepTime, samples_per_s: f64) {
        let mut state = self.state();
        (state.step_time, state.samples_per_s) = (step_time, samples_per_s);
    }

    /// Adds a reading of the GPU.
    pub(crate) fn add(&self, reading: GpuReading) {
        let mut state = self.state();
        state.newest = reading;
        state.readings += 1;
        state.total.add(reading);
        state.window.add(reading);
    }

    /// Fields of the `step` line of a window in which so many samples were trained on per second. Begins the next window.
    pub(crate) fn take_line(&self, samples_per_s: f64) -> DeviceFields {
        let mut state = self.state();
        let window = std::mem::take(&mut state.window);
        let mean = |tally: Tally, newest: Option<f64>| tally.mean().or(newest);
        let newest = state.newest;
        DeviceFields {
            flops_share: state.share(samples_per_s),
            gpu_utilization_percent: mean(window.utilization_percent, newest.utilization_percent),
            gpu_memory_bytes: mean(window.memory_bytes, newest.memory_bytes).map(f64::round),
            gpu_power_w: mean(window.power_w, newest.power_w),
            gpu_temperature_c: mean(window.temperature_c, newest.temperature_c),
        }
    }

    /// The newest reading of the GPU, and the share of the peak since the start.
    pub(crate) fn newest(&self) -> (GpuReading, Option<f64>) {
        let state = self.state();
        (state.newest, state.share(state.samples_per_s))
    }

    /// The speed since the start; `None` before the first step.
    pub(crate) fn report(&self) -> Option<Performance> {
        let state = self.state();
        (state.step_time.total_s() > 0.0).then(|| Performance {
            step_time: state.step_time,
            samples_per_s: state.samples_per_s,
            flops_per_sample: state.flops_per_sample,
            flops_per_s: state.flops_per_sample * state.samples_per_s,
            peak_flops_per_s: state.peak,
            flops_share: state.share(state.samples_per_s),
            gpu: (state.readings > 0).then(|| state.gpu()),
        })
    }

    /// Numbers are complete at every instant, also when another thread has panicked.
    fn state(&self) -> MutexGuard<'_, PerformanceState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PerformanceState {
    fn share(&self, samples_per_s: f64) -> Option<f64> {
        Some(self.flops_per_sample * samples_per_s / self.peak?)
    }

    fn gpu(&self) -> GpuUse {
        let of = |tally: Tally| {
            let (mean, peak) = (tally.mean()?, tally.peak);
            Some(MeanAndPeak { mean, peak })
        };
        GpuUse {
            readings: self.readings,
            utilization_percent: of(self.total.utilization_percent),
            memory_bytes: of(self.total.memory_bytes),
            power_w: of(self.total.power_w),
            temperature_c: of(self.total.temperature_c),
        }
    }
}

impl GpuFigures<Tally> {
    fn add(&mut self, reading: GpuReading) {
        self.utilization_percent.add(reading.utilization_percent);
        self.memory_bytes.add(reading.memory_bytes);
        self.power_w.add(reading.power_w);
        self.temperature_c.add(reading.temperature_c);
    }
}

impl Tally {
    fn add(&mut self, value: Option<f64>) {
        if let Some(value) = value {
            self.sum += value;
            self.peak = self.peak.max(value);
            self.count += 1;
        }
    }

    fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / exact(self.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(utilization_percent: f64, power_w: Option<f64>) -> GpuReading {
        GpuReading {
            utilization_percent: Some(utilization_percent),
            power_w,
            ..GpuReading::default()
        }
    }

    #[test]
    fn lines_hold_means_of_their_window_and_the_report_those_of_the_run() {
        let meter = PerformanceMeter::default();
        meter.set(2e9, Some(1e12));
        assert_eq!(meter.report(), None, "no step was taken");
        meter.add(reading(40.0, Some(100.0)));
        meter.add(reading(60.0, None));
        let line = meter.take_line(50.0);
        assert_eq!(line.gpu_utilization_percent, Some(50.0));
        assert_eq!(line.gpu_power_w, Some(100.0));
        assert_eq!((line.gpu_memory_bytes, line.flops_share), (None, Some(0.1)));
        // No reading since then: the newest one, which has no power.
        let line = meter.take_line(100.0);
        assert_eq!(line.gpu_utilization_percent, Some(60.0));
        assert_eq!((line.gpu_power_w, line.flops_share), (None, Some(0.2)));
        meter.add(reading(80.0, Some(300.0)));
        assert_eq!(meter.take_line(1.0).gpu_utilization_percent, Some(80.0));
        let step_time = StepTime {
            compute_s: 3.0,
            ..StepTime::default()
        };
        meter.set_steps(step_time, 250.0);
        let report = meter.report().unwrap();
        let [mean, peak] = [60.0, 80.0];
        let gpu = report.gpu.unwrap();
        assert_eq!(gpu.utilization_percent, Some(MeanAndPeak { mean, peak }));
        let [mean, peak] = [200.0, 300.0];
        assert_eq!(gpu.power_w, Some(MeanAndPeak { mean, peak }));
        assert_eq!((gpu.readings, gpu.memory_bytes), (3, None));
        assert_eq!((report.flops_per_s, report.flops_share), (5e11, Some(0.5)));
    }

    #[test]
    fn what_is_not_known_is_absent_of_a_line() {
        let line = PerformanceMeter::default().take_line(5.0);
        assert_eq!(serde_json::to_string(&line).unwrap(), "{}");
    }
}
