//! Communication of ranks that train one model together.
//!
//! Ranks are threads of one process or processes with connections to each other; [`Group`] says which before they have
//! met, [`Ranks`] is what they do afterwards. Sums are taken in a [`Tree`] over the ranks.
//!
//! A rank that is lost, silent or late ends the run on all ranks, with an error that names it and says where each was.

mod collectives;
mod frame;
mod group;
mod guests;
mod hello;
mod identity;
#[cfg(feature = "mpi")]
mod mpi;
mod nccl;
mod on_device;
mod recv_queue;
mod rendezvous;
mod resume_code;
mod secret;
mod status;
mod tcp;
mod threads;
mod tree;
mod wire;

#[cfg(test)]
mod tests;

pub(crate) use self::{
    collectives::Ranks,
    frame::largest_message,
    on_device::{ExchangeTotals, TensorOp, TensorSender},
    tcp::narrow,
    tree::Tree,
    wire::{RankBounds, Wire},
};
pub use self::{
    group::Group,
    status::{Phase, Whereabouts},
};

/// This process among those that train together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RankPlace {
    /// From 0.
    pub(crate) rank: usize,
    /// Number of ranks, at least 1.
    pub(crate) world: usize,
}

impl RankPlace {
    /// The only one.
    pub(crate) const ALONE: Self = Self { rank: 0, world: 1 };
}
