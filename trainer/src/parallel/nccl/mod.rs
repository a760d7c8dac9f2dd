//! Sums by NCCL, between GPUs; each rank has its own.
//!
//! Ranks meet over TCP as always, exchange all but long sums there, and find out there who is lost. The order of NCCL's
//! sums is its own and depends on the machine: they equal those of other collectives up to rounding, and have the same
//! bits on all ranks.

#[cfg(feature = "nvidia")]
pub(super) mod device;

#[cfg(feature = "nvidia")]
use std::time::Duration;

use feedline_schemas::config::{Collective, ParallelConfig};

use super::Ranks;
#[cfg(feature = "nvidia")]
use super::{Wire, inbox::Patience};
use crate::error::{Error, config as wrong};

impl Ranks {
    /// The same, whose long sums are taken by what `config` says; this rank computes on GPU number `gpu`, or on the
    /// processor.
    ///
    /// # Errors
    /// [`Error::Config`] when NCCL is to take them and cannot; as [`Ranks::all_reduce`].
    pub(crate) fn adding_up(
        mut self,
        config: &ParallelConfig,
        gpu: Option<u32>,
    ) -> Result<Self, Error> {
        if config.collective == Collective::Nccl && self.are_many() {
            self.start_nccl(config, gpu)
                .inspect_err(|error| self.abort(error))?;
        }
        Ok(self)
    }

    #[cfg(not(feature = "nvidia"))]
    fn start_nccl(&mut self, _: &ParallelConfig, _: Option<u32>) -> Result<(), Error> {
        Err(refused(
            "`nccl` adds up between GPUs, and this program was built without them: build it with `--features cuda`",
        ))
    }

    #[cfg(feature = "nvidia")]
    fn start_nccl(&mut self, config: &ParallelConfig, gpu: Option<u32>) -> Result<(), Error> {
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
        let nccl = device::Nccl::start(gpu, self.place, &id).map_err(|e| refused(&e))?;
        nccl.wait(&self.inbox, until_met)
            .map_err(|failure| self.error(failure))?;
        self.nccl = Some(nccl);
        Ok(())
    }

    /// The sums of `values` of all ranks, by NCCL; what goes in and what comes out are numbers that `wire` can carry.
    #[cfg(feature = "nvidia")]
    pub(super) fn sum_by(
        &self,
        nccl: &device::Nccl,
        values: &[f32],
        wire: Wire,
    ) -> Result<Vec<f32>, Error> {
        // NCCL would wait for ever; over TCP who is late or lost has a name.
        self.barrier()?;
        let sum = nccl.sum(wire.rounded(values.to_vec()), &self.inbox, self.patience);
        sum.map(|sum| wire.rounded(sum))
            .map_err(|failure| self.error(failure))
    }
}

fn refused(reason: &str) -> Error {
    wrong(
        "parallel.collective",
        format!("{reason}, or set it to `tcp`"),
    )
}
