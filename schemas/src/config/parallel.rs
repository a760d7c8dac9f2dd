//! `[train.parallel]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::ByteSize;

/// `[train.parallel]`: how a batch is shared among threads and ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ParallelConfig {
    /// Fewest parts that a batch is cut into, a power of two up to 1,024; larger batches are cut into more by their
    /// shape. Runs on 1, 2, 4 and so on up to this many ranks end with the same bits. Changing it makes another run.
    /// Default 1.
    pub parts: u32,
    /// Most bytes of gradient that travel between ranks at one time, a parameter that is larger on its own apart: layers whose
    /// gradients are complete are exchanged while the backward pass goes on in those before them. 0 exchanges everything
    /// behind the backward pass. The same on all ranks. Default 25 MiB.
    pub bucket_bytes: ByteSize,
    /// Keeps the state of the optimizer in shares, one on each rank (the first stage of `ZeRO`; Rajbhandari, Rasley, Ruwase,
    /// He 2020, arXiv 1910.02054): it takes as much less memory as there are ranks. A rank has whole parameters. The run ends
    /// with the same bits. Default false.
    pub shard_optimizer: bool,
    /// How gradients travel between ranks. With `bf16` they take half the bytes and are rounded before and after they are
    /// added up in f32, so what a run ends with depends on the number of ranks; changing it makes another run. Default
    /// `none`.
    pub compress: Compression,
    /// Steps between comparisons of the ranks' weights, at least 1; they are also compared before each checkpoint.
    /// Default 100.
    pub check_every: u64,
    /// Seconds that a rank waits for another in one exchange before the run ends and names it, at least 1. Default 600.
    pub timeout_s: u64,
    /// Seconds without a sign of life after which a process counts as lost, at least 3: one gives a sign each second,
    /// whatever it computes. Default 8.
    pub heartbeat_timeout_s: u64,
    /// Seconds within which all processes must have come together, at least 1. Default 300.
    pub rendezvous_timeout_s: u64,
    /// Most times in a row that ranks of `--ranks` are started again after one failed, without a new checkpoint in
    /// between; 0 never. Default 3.
    pub restarts: u64,
    /// What carries sums between processes. Default `auto`.
    #[serde(skip_serializing_if = "Collective::is_auto")]
    pub collective: Collective,
}

/// What carries sums between processes. It has no effect on a process that is alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Collective {
    /// MPI where `mpirun` has started the processes, else TCP.
    #[default]
    Auto,
    /// Connections from each to each.
    Tcp,
    /// MPI, in programs that were built with it.
    Mpi,
    /// NCCL between GPUs, of which each rank has its own; TCP carries what is left. Its sums are in an order of its own, so
    /// that weights equal those of the others up to rounding. In programs that were built for GPUs.
    Nccl,
}

impl Collective {
    /// Whether it follows from how the processes were started.
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
    /// These settings as far as they decide what a run computes; the rest has its defaults.
    #[must_use]
    pub fn numbers(&self) -> Self {
        Self {
            parts: self.parts,
            compress: self.compress,
            ..Self::default()
        }
    }
}

/// How gradients travel between ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Compression {
    /// As f32.
    #[default]
    None,
    /// As bf16.
    Bf16,
}
