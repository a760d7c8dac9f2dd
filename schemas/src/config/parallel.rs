//! `[train.parallel]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::ByteSize;

/// `[train.parallel]`: distribution of a batch over threads and ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ParallelConfig {
    /// Smallest number of parts of a batch, a power of two up to 1,024; larger batches have more
    /// parts, by their shape. Runs on 1, 2, 4 and so on up to this many ranks end with the same
    /// bits. Changing it makes another run. Default 1.
    pub parts: u32,
    /// Most bytes of gradients that are exchanged between ranks at a time; a larger parameter is
    /// exchanged by itself. Layers with complete gradients are exchanged while the backward pass
    /// computes the layers before them. 0 exchanges all gradients after the backward pass; with
    /// `nccl` and `shard_optimizer`, those of each rank's parameters at once. It must be the same on
    /// all ranks. Default 25 MiB.
    pub bucket_bytes: ByteSize,
    /// If true, each rank keeps only its part of the optimizer state (the first stage of `ZeRO`;
    /// Rajbhandari, Rasley, Ruwase, He 2020, arXiv 1910.02054). The memory for the state is divided
    /// by the number of ranks. Each parameter belongs to one rank. The run ends with the same bits.
    /// Default false.
    pub shard_optimizer: bool,
    /// Number type of gradients that ranks exchange: `none` (f32) or `bf16`. With `bf16` they take
    /// half the bytes and are rounded before and after they are summed in f32, with NCCL after each
    /// addition. The result of a run then depends on the number of ranks; changing the key makes
    /// another run. Default `none`.
    pub compress: Compression,
    /// Number of steps between comparisons of the weights of all ranks, at least 1; they are also
    /// compared before each checkpoint. Default 100.
    pub check_every: u64,
    /// Seconds that a rank waits for another in one exchange before the run ends and names that
    /// rank, at least 1. Default 600.
    pub timeout_s: u64,
    /// Seconds without a heartbeat after which a process counts as lost, at least 3. A process
    /// sends one each second, also while it computes. Default 8.
    pub heartbeat_timeout_s: u64,
    /// Seconds within which all processes must have connected, at least 1. Default 300.
    pub rendezvous_timeout_s: u64,
    /// Most restarts of the ranks of `--ranks` after failures without a new checkpoint in between;
    /// 0 disables restarts. The second failure of the same kind in a row at the same step ends the
    /// run earlier. Default 3.
    pub restarts: u64,
    /// Collective communication between processes: `auto`, `tcp`, `mpi` or `nccl`. Default `auto`.
    #[serde(skip_serializing_if = "Collective::is_auto")]
    pub collective: Collective,
}

/// Collective communication between processes. It has no effect on a single process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Collective {
    /// MPI if `mpirun` has started the processes, otherwise TCP.
    #[default]
    Auto,
    /// TCP connections between all pairs of processes.
    Tcp,
    /// MPI, in programs that were built with it.
    Mpi,
    /// NCCL between GPUs of one kind, with one GPU for each rank; TCP carries the other messages.
    /// Gradients are summed in the memory of the GPUs, section by section (`bucket_bytes`). Its sums
    /// have another order, so the weights equal those of the other choices only up to rounding. In
    /// programs that were built for GPUs.
    Nccl,
}

impl Collective {
    /// Returns true if it follows from the way in which the processes were started.
    #[must_use]
    pub const fn is_auto(&self) -> bool {
        matches!(self, Self::Auto)
    }
}

impl Default for ParallelConfig {
    fn default() -> Self {
        Self {
            parts: 1,
            bucket_bytes: ByteSize::mib(25),
            shard_optimizer: false,
            compress: Compression::None,
            check_every: 100,
            timeout_s: 600,
            heartbeat_timeout_s: 8,
            rendezvous_timeout_s: 300,
            restarts: 3,
            collective: Collective::Auto,
        }
    }
}

impl ParallelConfig {
    /// Returns these settings with only the keys that determine the result of a run; the others
    /// have their defaults.
    #[must_use]
    pub fn numbers(&self) -> Self {
        Self {
            parts: self.parts,
            compress: self.compress,
            ..Self::default()
        }
    }
}

/// Number type of gradients that ranks exchange.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Compression {
    /// f32.
    #[default]
    None,
    /// bf16.
    Bf16,
}
