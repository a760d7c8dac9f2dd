//! Memory pool of the engine: operators that can spill cannot use up the limit for those that
//! cannot.
//!
//! With a single pool, sorts fill the limit, and the merge above them, which needs little and
//! cannot spill, fails or succeeds by the timing of the threads. So half is reserved for
//! reservations that cannot spill; a sort that is about to spill needs it too, for the keys of its
//! merge. Of several nested sorts the lowest would take all of that half for its merge of files,
//! which goes as wide as it can, and the in-memory merge of another could not begin. The memory of
//! such a merge belongs to its sort and is counted twice. So each reservation may still grow to the
//! share of one that can spill when nothing is left, and all of them together up to the limit
//! again.

use std::{
    fmt,
    sync::atomic::{AtomicUsize, Ordering},
};

use datafusion::{
    error::{DataFusionError, Result},
    execution::memory_pool::{
        FairSpillPool, GreedyMemoryPool, MemoryConsumer, MemoryLimit, MemoryPool,
        MemoryReservation, human_readable_size,
    },
};

/// A limit in bytes, half of it shared evenly by what can spill.
#[derive(Debug)]
pub(crate) struct BoundedPool {
    bytes: usize,
    /// Bytes that a sort sets aside for its merge.
    least: usize,
    /// Number of consumers that share the half for those that can spill.
    sharing: AtomicUsize,
    spilling: FairSpillPool,
    fixed: GreedyMemoryPool,
}

impl BoundedPool {
    pub(crate) fn new(bytes: usize, least: usize) -> Self {
        let fixed = bytes / 2;
        Self {
            bytes,
            least,
            sharing: AtomicUsize::new(0),
            spilling: FairSpillPool::new(bytes - fixed),
            fixed: GreedyMemoryPool::new(fixed),
        }
    }

    /// Returns true if a reservation that cannot spill may grow by `additional` even when no memory
    /// is left.
    fn is_due(&self, reservation: &MemoryReservation, additional: usize) -> bool {
        let half = self.bytes - self.bytes / 2;
        let share = half / self.sharing.load(Ordering::Relaxed).max(1);
        let wanted = reservation.size().saturating_add(additional);
        let all = self.fixed.reserved().saturating_add(additional);
        wanted <= share.max(self.least) && all <= self.bytes
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
        let more = usize::from(consumer.can_spill());
        self.sharing.fetch_add(more, Ordering::Relaxed);
        self.part(consumer).register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        let fewer = usize::from(consumer.can_spill());
        self.sharing.fetch_sub(fewer, Ordering::Relaxed);
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
        let consumer = reservation.consumer();
        if !consumer.can_spill() && self.is_due(reservation, additional) {
            self.fixed.grow(reservation, additional);
            return Ok(());
        }
        let grown = self.part(consumer).try_grow(reservation, additional);
        grown.map_err(|error| match error {
            DataFusionError::ResourcesExhausted(reason) => {
                let limit = human_readable_size(self.bytes);
                DataFusionError::ResourcesExhausted(format!("{reason}, of the limit of {limit}"))
            }
            other => other,
        })
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

    fn registered<const N: usize>(
        pool: &Arc<dyn MemoryPool>,
        name: &str,
        can_spill: bool,
    ) -> [MemoryReservation; N] {
        let one = || MemoryConsumer::new(name).with_can_spill(can_spill);
        std::array::from_fn(|_| one().register(pool))
    }

    #[test]
    fn what_can_spill_leaves_half_to_what_cannot() {
        let pool: Arc<dyn MemoryPool> = Arc::new(BoundedPool::new(1000, 10));
        let sorts: [_; 2] = registered(&pool, "sort", true);
        for sort in &sorts {
            assert!(sort.try_grow(251).is_err());
            sort.try_grow(250).unwrap();
        }
        let [wide, above, beside, last]: [_; 4] = registered(&pool, "merge", false);
        wide.try_grow(500).unwrap();
        let error = wide.try_grow(1).unwrap_err().to_string();
        assert!(error.ends_with("of the limit of 1000.0 B"), "{error}");
        assert_eq!(pool.reserved(), 1000);
        // Where nothing is left, others have the share of a sort, and no more.
        for merge in [&above, &beside] {
            merge.try_grow(250).unwrap();
            assert!(merge.try_grow(1).is_err());
        }
        // All of them together have as much again.
        assert!(last.try_grow(1).is_err());
        drop((sorts, wide, above, beside, last));
        assert_eq!(pool.reserved(), 0);
    }

    #[test]
    fn a_merge_has_what_a_sort_sets_aside_for_it_however_many_share() {
        let pool: Arc<dyn MemoryPool> = Arc::new(BoundedPool::new(1000, 80));
        let _sorts: [_; 20] = registered(&pool, "sort", true);
        let [wide, above]: [_; 2] = registered(&pool, "merge", false);
        wide.try_grow(500).unwrap();
        above.try_grow(80).unwrap();
        assert!(above.try_grow(1).is_err());
    }
}
