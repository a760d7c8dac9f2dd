//! A rank of a test with NCCL and memory of the driver.

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream};
use feedline_schemas::config::ParallelConfig;
use tokio::runtime::Handle;

use super::{
    Nccl,
    runs::{DeviceRuns, DeviceSlice, RunType},
};
use crate::{
    error::Error,
    parallel::{Group, Ranks, TensorOp, Wire},
};

/// Bytes around a run, which no sum may change.
const MARGIN: usize = 512;

/// Their content.
const UNTOUCHED: u8 = 0xA5;

/// Numbers, their use, and what carries them.
pub(super) type RunWork = (TensorOp, Vec<f32>, Wire);

/// A rank, NCCL, and a stream of its GPU.
pub(super) struct RankOnGpu {
    pub(super) ranks: Ranks,
    pub(super) nccl: Nccl,
    stream: Arc<CudaStream>,
}

impl RankOnGpu {
    /// Meets the others of a group, each on the GPU of its number.
    pub(super) fn start(
        group: &Group,
        config: &ParallelConfig,
        runtime: &Handle,
    ) -> Result<Self, Error> {
        let gpu = group.local_rank();
        let ranks = group.join("the same", config, runtime)?;
        let nccl = ranks.start_nccl(config, Some(gpu));
        let nccl = nccl.inspect_err(|error| ranks.abort(error))?;
        let context = CudaContext::new(gpu as usize).unwrap();
        let stream = context.new_stream().unwrap();
        Ok(Self {
            ranks,
            nccl,
            stream,
        })
    }

    /// Runs after their exchange among all ranks.
    pub(super) fn run(&self, runs: &[RunWork]) -> Result<Vec<Vec<f32>>, Error> {
        self.finish(self.begin(runs))
    }

    /// Begins an exchange. Returns its number.
    pub(super) fn begin(&self, runs: &[RunWork]) -> u64 {
        let slices = runs
            .iter()
            .map(|(op, values, wire)| self.upload(*op, values, *wire));
        self.nccl.begin_runs(DeviceRuns::Slices(slices.collect()))
    }

    /// Runs of an exchange after its end.
    pub(super) fn finish(&self, number: u64) -> Result<Vec<Vec<f32>>, Error> {
        let done = self.nccl.finish_runs(&self.ranks, number);
        let (runs, times) = done.inspect_err(|error| self.ranks.abort(error))?;
        assert!(
            times.computed <= times.begun && times.begun <= times.ended,
            "{times:?}"
        );
        let DeviceRuns::Slices(slices) = runs else {
            panic!("{runs:?}");
        };
        Ok(slices.iter().map(|slice| self.download(slice)).collect())
    }

    fn upload(&self, op: TensorOp, values: &[f32], wire: Wire) -> DeviceSlice {
        let kind = match wire {
            Wire::Full => RunType::F32,
            Wire::Bf16 => RunType::Bf16,
        };
        let margin = vec![UNTOUCHED; MARGIN];
        let bytes = [margin.clone(), wire.encode(values), margin].concat();
        let mut memory = self.stream.alloc_zeros(bytes.len()).unwrap();
        // What fails on the GPU is found by whoever waits for it.
        self.stream.memcpy_htod(&bytes, &mut memory).ok();
        DeviceSlice {
            memory,
            begin: MARGIN,
            len: values.len(),
            kind,
            op,
        }
    }

    fn download(&self, slice: &DeviceSlice) -> Vec<f32> {
        let bytes = self.stream.clone_dtoh(&slice.memory).unwrap();
        let wire = match slice.kind {
            RunType::F32 => Wire::Full,
            RunType::Bf16 => Wire::Bf16,
        };
        let end = bytes.len() - MARGIN;
        let margins = bytes[..MARGIN].iter().chain(&bytes[end..]);
        assert!(margins.into_iter().all(|byte| *byte == UNTOUCHED));
        wire.decode(&bytes[MARGIN..end])
    }
}
