//! The slabs of a loader, going round: free, being filled, ready, in use, free again.
//!
//! A slab's state is its place. Free slabs are in the ring's queue; taking one out gives a
//! [`SlabLease`], which moves from the filling of a batch through the queue of batches (ready) to the
//! caller (in use) and puts the slab back when it is dropped, wherever that happens. So no slab can
//! be lost or filled twice at a time.

use super::{
    slab::{Slab, SlabShape},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
        channel::{Receiver, Sender, bounded},
    },
};
use crate::device::{HostLock, Pinning, allocate_slabs};

/// Some slabs of one shape. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Ring {
    free: Receiver<Slab>,
    back: Sender<Slab>,
    in_use: Arc<AtomicU32>,
    slabs: u32,
    shape: SlabShape,
    pinning: Pinning,
}

impl Ring {
    /// Allocates `slabs` slabs, or fewer where `lock` cannot page-lock as many.
    pub(crate) fn new(shape: SlabShape, slabs: u32, lock: Option<&Arc<dyn HostLock>>) -> Self {
        let (memories, pinning) = allocate_slabs(slabs, shape.bytes(), lock);
        let slabs = u32::try_from(memories.len()).unwrap_or(slabs);
        let (back, free) = bounded(memories.len());
        for memory in memories {
            back.send(Slab::new(shape, memory))
                .expect("the other end is held here");
        }
        Self {
            free,
            back,
            in_use: Arc::new(AtomicU32::new(0)),
            slabs,
            shape,
            pinning,
        }
    }

    /// Number of slabs.
    pub(crate) fn slabs(&self) -> u32 {
        self.slabs
    }

    /// Capacity of each slab.
    pub(crate) fn shape(&self) -> SlabShape {
        self.shape
    }

    /// Extent of page-locking of the slabs.
    pub(crate) fn pinning(&self) -> Pinning {
        self.pinning
    }

    /// Slabs that the caller holds.
    pub(crate) fn in_use(&self) -> u32 {
        self.in_use.load(SeqCst)
    }

    /// Queue of free slabs; a slab taken out belongs into [`Ring::lease`].
    pub(crate) fn free(&self) -> &Receiver<Slab> {
        &self.free
    }

    /// Takes charge of a slab.
    pub(crate) fn lease(&self, slab: Slab) -> SlabLease {
        SlabLease {
            slab: Some(slab),
            back: self.back.clone(),
            in_use: None,
        }
    }

    /// Notes that a lease is handed to the caller.
    pub(crate) fn hand_out(&self, lease: &mut SlabLease) {
        self.in_use.fetch_add(1, SeqCst);
        lease.in_use = Some(Arc::clone(&self.in_use));
    }
}

/// A slab outside the queue of free ones; returns there when dropped.
#[derive(Debug)]
pub(crate) struct SlabLease {
    slab: Option<Slab>,
    back: Sender<Slab>,
    in_use: Option<Arc<AtomicU32>>,
}

impl SlabLease {
    pub(crate) fn slab(&self) -> &Slab {
        self.slab.as_ref().expect("only `drop` takes the slab")
    }

    pub(crate) fn slab_mut(&mut self) -> &mut Slab {
        self.slab.as_mut().expect("only `drop` takes the slab")
    }

    /// Gives up a slab with lost parts. The ring is then one short.
    pub(crate) fn discard(mut self) {
        self.slab = None;
    }
}

impl Drop for SlabLease {
    fn drop(&mut self) {
        if let Some(in_use) = &self.in_use {
            in_use.fetch_sub(1, SeqCst);
        }
        if let Some(slab) = self.slab.take() {
            // The queue has room for every slab; without a ring left, the memory goes with the error.
            self.back.try_send(slab).ok();
        }
    }
}
