//! Sums by NCCL, between GPUs; each rank has its own.
//!
//! Ranks meet over TCP as always, exchange all but the sums of a step there, and find out there who is lost. NCCL sums
//! gradients in the memory of the GPUs. The order of its sums is its own and depends on the machine: they equal those of
//! other collectives up to rounding, and have the same bits on all ranks.

#[cfg(feature = "nvidia")]
pub(super) mod device;

#[cfg(feature = "nvidia")]
use std::{sync::Arc, time::Duration};

use feedline_schemas::config::{Collective, ParallelConfig};

use super::Ranks;
#[cfg(feature = "nvidia")]
use super::recv_queue::Patience;
use crate::error::{Error, config as wrong};

impl Ranks {
    /// The same, whose gradients are summed by what `config` says; this rank computes on GPU number `gpu`, or on the
    /// processor.
    ///
    /// # Errors
    /// [`Error::Config`] when NCCL is to sum them and cannot; as [`Ranks::all_reduce`].
    pub(crate) fn adding_up(
        self,
        config: &ParallelConfig,
        gpu: Option<u32>,
    ) -> Result<Self, Error> {
        if config.collective != Collective::Nccl || !self.are_many() {
            return Ok(self);
        }
        self.with_nccl(config, gpu)
    }

    #[cfg(not(feature = "nvidia"))]
    fn with_nccl(self, _: &ParallelConfig, _: Option<u32>) -> Result<Self, Error> {
        let error = refused(
            "`nccl` adds up between GPUs, and this program was built without them: build it with `--features cuda`",
        );
        self.abort(&error);
        Err(error)
    }

    #[cfg(feature = "nvidia")]
    fn with_nccl(mut self, config: &ParallelConfig, gpu: Option<u32>) -> Result<Self, Error> {
        let nccl = self.start_nccl(config, gpu);
        let nccl = nccl.inspect_err(|error| self.abort(error))?;
        self.tensors = Some(Arc::new(nccl));
        Ok(self)
    }

    /// NCCL of these ranks.
    #[cfg(feature = "nvidia")]
    fn start_nccl(&self, config: &ParallelConfig, gpu: Option<u32>) -> Result<device::Nccl, Error> {
        let gpu = gpu.ok_or_else(|| {
            refused("`nccl` adds up between GPUs, and this rank computes on the processor: set `train.device` to `cuda`")
        })?;
        if !feedline_loader::device::cuda::nccl_is_installed() {
            return Err(refused(
                "NCCL (`libnccl.so`) is not found: install the package `libnccl2`, or add its folder to LD_LIBRARY_PATH",
            ));
        }
        let until_met = Patience {
            message: Duration::from_secs(config.rendezvous_timeout_s),
            ..self.patience
        };
        let id = self
            .leads()
            .then(device::new_id)
            .transpose()
            .map_err(|e| refused(&e))?;
        let id = self.broadcast(id)?;
        let queue = Arc::clone(&self.recv_queue);
        let nccl = device::Nccl::start(gpu, self.place, &id, queue).map_err(|e| refused(&e))?;
        nccl.meet(until_met)
            .map_err(|failure| self.error(failure))?;
        Ok(nccl)
    }
}

fn refused(reason: &str) -> Error {
    wrong(
        "parallel.collective",
        format!("{reason}, or set it to `tcp`"),
    )
}
