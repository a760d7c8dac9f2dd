//! The engine's memory: a limit that operators which can spill cannot use up for those that cannot.
//!
//! With one pool for all, sorts fill the limit and the merge above them, which needs little and cannot spill, fails or
//! not by the timing of the threads. So half is kept for what
//! cannot spill; a sort that is about to spill needs it too, for the keys of what it merges.

use std::fmt;

use datafusion::{
    error::Result,
    execution::memory_pool::{
        FairSpillPool, GreedyMemoryPool, MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation,
    },
};

/// A limit in bytes, half of it shared evenly by what can spill.
#[derive(Debug)]
pub(crate) struct BoundedPool {
    bytes: usize,
    spilling: FairSpillPool,
    fixed: GreedyMemoryPool,
}

impl BoundedPool {
    pub(crate) fn new(bytes: usize) -> Self {
        let fixed = bytes / 2;
        Self {
            bytes,
            spilling: FairSpillPool::new(bytes - fixed),
            fixed: GreedyMemoryPool::new(fixed),
        }
    }

    fn part(&self, consumer: &MemoryConsumer) -> &dyn MemoryPool {
        if consumer.can_spill() {
            &self.spilling
        } else {
            &self.fixed
        }
    }
}

impl fmt::Display for BoundedPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes: {}, {}", self.bytes, self.spilling, self.fixed)
    }
}

impl MemoryPool for BoundedPool {
    fn name(&self) -> &'static str {
        "bounded"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.part(consumer).register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.part(consumer).unregister(consumer);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.part(reservation.consumer())
            .grow(reservation, additional);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.part(reservation.consumer())
            .shrink(reservation, shrink);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        self.part(reservation.consumer())
            .try_grow(reservation, additional)
    }

    fn reserved(&self) -> usize {
        self.spilling.reserved() + self.fixed.reserved()
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Finite(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn what_can_spill_leaves_half_to_what_cannot() {
        let pool: Arc<dyn MemoryPool> = Arc::new(BoundedPool::new(1000));
        let sort = MemoryConsumer::new("sort")
            .with_can_spill(true)
            .register(&pool);
        let merge = MemoryConsumer::new("merge").register(&pool);
        assert!(sort.try_grow(501).is_err());
        sort.try_grow(500).unwrap();
        merge.try_grow(500).unwrap();
        assert!(merge.try_grow(1).is_err());
        assert_eq!(pool.reserved(), 1000);
        drop((sort, merge));
        assert_eq!(pool.reserved(), 0);
    }
}
