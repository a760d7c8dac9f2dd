//! Choice of the device that computes a model.
//!
//! A GPU is looked for before the tensor library touches it: the library panics where there is no driver.

#[cfg(feature = "cuda")]
use burn::tensor::Device;
use feedline_schemas::config::DeviceChoice;

#[cfg(feature = "cuda")]
use super::DeviceKind;
use super::{Backend, wgpu};
use crate::error::{Error, config as wrong};

impl Backend {
    /// Device that `train.device` asks for; `local_rank` is the process's number among those of its
    /// machine.
    ///
    /// # Errors
    /// [`Error::Config`] when a GPU is asked for and this build knows none, or there is no driver, compiler or GPU of that
    /// number.
    pub(crate) fn choose(choice: DeviceChoice, local_rank: u32) -> Result<Self, Error> {
        let backend = Self::find(choice, local_rank)?;
        tracing::info!(device = backend.name, "computing");
        Ok(backend)
    }

    /// The same, and nothing is said of it in the log.
    ///
    /// # Errors
    /// As [`choose`](Self::choose).
    pub(crate) fn find(choice: DeviceChoice, local_rank: u32) -> Result<Self, Error> {
        let refused = |reason| wrong("device", format!("{reason}, or set it to `cpu`"));
        match choice {
            DeviceChoice::Cpu => Ok(Self::cpu()),
            DeviceChoice::Cuda(number) => cuda(number.unwrap_or(local_rank)).map_err(refused),
            DeviceChoice::Wgpu(number) => {
                let adapter = wgpu::adapter(number.unwrap_or(local_rank));
                adapter.map_err(refused)
            }
            DeviceChoice::Auto => Ok(cuda(local_rank).unwrap_or_else(|reason| {
                tracing::debug!(reason, "computing on the processor");
                Self::cpu()
            })),
        }
    }
}

/// Returns true unless `train.device` leads to the processor: `auto` does without an NVIDIA GPU.
pub(crate) fn may_be_gpu(choice: DeviceChoice) -> bool {
    match choice {
        DeviceChoice::Cpu => false,
        DeviceChoice::Cuda(_) | DeviceChoice::Wgpu(_) => true,
        DeviceChoice::Auto => cuda(0).is_ok(),
    }
}

/// Number of the NVIDIA GPU that `train.device` names, should there be one; `local_rank` is the process's number among those
/// of its machine.
#[cfg(feature = "cuda")]
pub(crate) fn cuda_of(choice: DeviceChoice, local_rank: u32) -> Option<u32> {
    match choice {
        DeviceChoice::Cpu | DeviceChoice::Wgpu(_) => None,
        DeviceChoice::Cuda(number) => Some(number.unwrap_or(local_rank)),
        DeviceChoice::Auto => Some(local_rank),
    }
}

/// GPU number `ordinal`, or why there is none and what to do.
#[cfg(not(feature = "cuda"))]
fn cuda(_ordinal: u32) -> Result<Backend, String> {
    Err("no GPU: this program was built without them; build it with `--features cuda`".to_owned())
}

/// GPU number `ordinal`, or why there is none and what to do.
#[cfg(feature = "cuda")]
fn cuda(ordinal: u32) -> Result<Backend, String> {
    use feedline_loader::device::cuda::{Cuda, compiler_is_installed};

    let absent = |what: &str| format!("no GPU: {what}");
    let open =
        Cuda::open(ordinal as usize).and_then(|cuda| Ok((cuda.name()?, cuda.free_bytes().ok())));
    let (model, memory_bytes) = open.map_err(|error| match error {
        feedline_loader::Error::NoDevice { reason } => absent(&format!(
            "{reason}; install the driver, or choose one of the GPUs that `nvidia-smi` lists"
        )),
        other => absent(&format!("{other}; look at `nvidia-smi`")),
    })?;
    // Kernels are compiled when they are first used.
    let headers = cubecl::cuda::install::cuda_path().map(|path| path.join("include"));
    if !headers.is_some_and(|path| path.join("cuda_runtime.h").exists()) {
        return Err(absent(
            "the headers of CUDA, which its compiler reads, are not in `$CUDA_PATH/include` or `/usr/local/cuda/include`; \
             install the packages `cuda-nvrtc` and `cuda-cudart-dev`, or set CUDA_PATH",
        ));
    }
    if !compiler_is_installed() {
        return Err(absent(
            "its compiler (`libnvrtc.so`) is not found; install the package `cuda-nvrtc`, or add its folder to \
             LD_LIBRARY_PATH",
        ));
    }
    Ok(Backend {
        device: Device::cuda(ordinal as usize),
        name: format!("{model} (cuda:{ordinal})"),
        model,
        kind: DeviceKind::Cuda(ordinal),
        memory_bytes,
    })
}

#[cfg(test)]
mod tests {
    use feedline_schemas::{Classified as _, ErrorKind};

    use super::{super::DeviceKind, *};

    #[test]
    fn the_processor_is_always_there() {
        let backend = Backend::choose(DeviceChoice::Cpu, 3).unwrap();
        assert_eq!(backend.name, "cpu");
        assert_eq!(backend.kind, DeviceKind::Processor);
    }

    /// A machine with a GPU would have number 4,000,000 no more than one without.
    #[test]
    fn a_gpu_that_is_not_there_is_refused_with_what_to_do() {
        let refusal = Backend::choose(DeviceChoice::Cuda(Some(4_000_000)), 0).unwrap_err();
        let message = refusal.to_string();
        for part in ["`train.device`", "no GPU", "`cpu`"] {
            assert!(message.contains(part), "{message}");
        }
        assert_eq!(refusal.kind(), ErrorKind::Config);
    }
}
