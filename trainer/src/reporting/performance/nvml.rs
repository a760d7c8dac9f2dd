//! Figures of an NVIDIA GPU by NVML, the driver's library that `nvidia-smi` reads too. It is loaded when a run begins to
//! train on a GPU, and a machine without it has no figures.

use std::ffi::OsStr;

use feedline_loader::device::cuda::Cuda;
use nvml_wrapper::{Device, Nvml, enum_wrappers::device::TemperatureSensor, error::NvmlError};

use super::GpuReading;
use crate::float_casts::exact;

/// Name that the driver installs.
pub(super) const LIBRARY: &str = "libnvidia-ml.so.1";

/// One GPU, by names that mean the same to CUDA and to NVML. Their numbers differ: CUDA's follow `CUDA_VISIBLE_DEVICES`
/// and `CUDA_DEVICE_ORDER`.
#[derive(Clone, Debug)]
struct GpuName {
    uuid: String,
    pci_bus_id: Option<String>,
}

/// Gives `each` the figures of NVIDIA GPU number `gpu` of this process, until it returns false.
///
/// # Errors
/// Reason that there are none.
pub(super) fn read_each(
    library: impl AsRef<OsStr>,
    gpu: u32,
    each: impl FnMut(GpuReading) -> bool,
) -> Result<(), String> {
    let name = GpuName::of(gpu).map_err(|error| error.to_string())?;
    read_named(library, &name, each)
}

fn read_named(
    library: impl AsRef<OsStr>,
    name: &GpuName,
    mut each: impl FnMut(GpuReading) -> bool,
) -> Result<(), String> {
    let library = library.as_ref();
    let nvml = Nvml::builder().lib_path(library).init();
    let nvml = nvml.map_err(|error| format!("NVML (`{}`): {error}", library.display()))?;
    let device = name.find(&nvml)?;
    let mut failed = FailedFigures::default();
    while each(failed.read(&device)) {}
    Ok(())
}

impl GpuName {
    /// Names of GPU number `gpu` of those that are visible to the process.
    fn of(gpu: u32) -> Result<Self, feedline_loader::Error> {
        let cuda = Cuda::open(gpu as usize)?;
        Ok(Self {
            uuid: cuda.uuid()?,
            pci_bus_id: cuda.pci_bus_id().ok(),
        })
    }

    /// The GPU of this UUID, or else at this address.
    fn find<'n>(&self, nvml: &'n Nvml) -> Result<Device<'n>, String> {
        let by_uuid = nvml.device_by_uuid(self.uuid.as_str());
        let by_address = |id: &str| nvml.device_by_pci_bus_id(id);
        by_uuid.or_else(|error| {
            let found = self.pci_bus_id.as_deref().map(by_address);
            found
                .and_then(Result::ok)
                .ok_or_else(|| format!("NVML does not find GPU `{}`: {error}", self.uuid))
        })
    }
}

/// Figures that could not be read; each is logged once.
#[derive(Debug, Default)]
struct FailedFigures(Vec<&'static str>);

impl FailedFigures {
    fn read(&mut self, device: &Device<'_>) -> GpuReading {
        let utilization = device.utilization_rates().map(|rates| rates.gpu);
        let power = device
            .power_usage()
            .map(|milliwatts| f64::from(milliwatts) / 1e3);
        let temperature = device.temperature(TemperatureSensor::Gpu);
        let memory = device.memory_info().map(|memory| exact(memory.used));
        GpuReading {
            utilization_percent: self.note("utilization", utilization.map(f64::from)),
            memory_bytes: self.note("memory", memory),
            power_w: self.note("power", power),
            temperature_c: self.note("temperature", temperature.map(f64::from)),
        }
    }

    fn note(&mut self, figure: &'static str, read: Result<f64, NvmlError>) -> Option<f64> {
        let error = match read {
            Ok(value) => return Some(value),
            Err(error) => error,
        };
        if !self.0.contains(&figure) {
            self.0.push(figure);
            tracing::debug!(figure, %error, "the GPU does not report it");
        }
        None
    }
}

#[cfg(test)]
mod tests;
