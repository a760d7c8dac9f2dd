//! Memory pool of the engine: operators that can spill cannot use up the limit for those that
//! cannot.
//!
//! With a single pool, sorts fill the limit, and the merge above them, which needs little and
//! cannot spill, fails or succeeds by the timing of the threads. So half is reserved for
//! reservations that cannot spill; a sort that is about to spill needs it too, for the keys of its
//! merge. Of several nested sorts the lowest would take all of that half for its merge of files,
//! which goes as wide as it can, and the in-memory merge of another could not begin. The memory of
//! such a merge belongs to its sort and is counted twice. So each reservation may still grow to the
//! share of one that can spill when nothing is left, and all of them together up to a quarter above
//! the limit. Merges of sorts have a share by the number of sorts, so that one that began early, and is
//! wide, leaves enough to each other.
//!
//! A share shrinks when another operator begins, and a sort that holds more than that cannot give
//! back a part: it may not even grow by the few bytes that it needs to spill. So a refusal must not
//! depend on when others begin. Whatever can spill may hold the bytes of a merge at any time. It may
//! also begin with a batch, and grow by a few bytes, as long as all of it is up to three quarters of
//! the limit.

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

/// Part of the bytes that a sort reserves for its merge: it may grow by one in so many for the padding of its rows. A batch is
/// larger.
const PADDING: usize = 128;

/// Memory of a first batch, at most, in units of the bytes that a sort reserves for its merge.
const FIRST_BATCH: usize = 8;

/// Beginning of the name of a reservation for the merge of a sort of the engine.
const MERGE: &str = "ExternalSorterMerge";

/// Beginning of the name of a reservation for the merge of all partitions.
const MERGE_OF_PARTITIONS: &str = "SortPreservingMergeExec";

/// A limit in bytes, half of it shared evenly by what can spill.
#[derive(Debug)]
pub(crate) struct BoundedPool {
    bytes: usize,
    /// Bytes that a sort reserves for its merge.
    least: usize,
    /// Number of consumers that share the half for those that can spill.
    sharing: AtomicUsize,
    /// Number of sorts, each with a merge.
    sorts: AtomicUsize,
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
            sorts: AtomicUsize::new(0),
            spilling: FairSpillPool::new(bytes - fixed),
            fixed: GreedyMemoryPool::new(fixed),
        }
    }

    /// Returns true if a reservation that cannot spill may grow by `additional` even when no memory
    /// is left.
    fn is_due(&self, reservation: &MemoryReservation, additional: usize) -> bool {
        let wanted = reservation.size().saturating_add(additional);
        let all = self.fixed.reserved().saturating_add(additional);
        let name = reservation.consumer().name();
        let share = self.share(&self.sharing);
        // Half of what a sort holds are its rows, which the merge in memory has too, and a batch more.
        let eighth = self.bytes / 8;
        let (share, most) = match name.starts_with(MERGE) {
            true => (share / 8 * 5, self.bytes + eighth),
            false => (share, self.bytes + 2 * eighth),
        };
        if wanted <= share.max(self.least) {
            return all <= most;
        }
        // The merge of all partitions has a batch of each, for which those of sorts leave an eighth.
        if name.starts_with(MERGE_OF_PARTITIONS) {
            return wanted <= eighth && all <= most;
        }
        let share = self.share(&self.sorts) / 4 * 3;
        name.starts_with(MERGE) && wanted <= share && all <= self.bytes - eighth
    }

    /// Lets a reservation grow by `additional` as long as memory is left.
    fn grow_by_rest(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        let consumer = reservation.consumer();
        let all = self.fixed.reserved().saturating_add(additional);
        // A merge of files needs no more than its share, and others cannot do with less.
        if consumer.name().starts_with(MERGE) && all > self.bytes / 4 {
            let [more, has] = [additional, reservation.size()].map(human_readable_size);
            return Err(DataFusionError::ResourcesExhausted(format!(
                "Failed to allocate additional {more} for {} with {has} already allocated for this reservation",
                consumer.name()
            )));
        }
        self.part(consumer).try_grow(reservation, additional)
    }

    /// Half of the limit, divided by so many.
    fn share(&self, by: &AtomicUsize) -> usize {
        let half = self.bytes - self.bytes / 2;
        half / by.load(Ordering::Relaxed).max(1)
    }

    /// Returns true if a reservation that can spill may grow by `additional` beyond its share.
    fn is_tolerated(&self, reservation: &MemoryReservation, additional: usize) -> bool {
        let wanted = reservation.size().saturating_add(additional);
        if wanted <= self.least {
            return true;
        }
        let is_padding = additional <= self.least / PADDING;
        let is_first_batch =
            reservation.size() == 0 && additional <= self.least.saturating_mul(FIRST_BATCH);
        // Not more than the half and half of it again.
        let all = self.spilling.reserved().saturating_add(additional);
        (is_padding || is_first_batch) && all <= self.bytes - self.bytes / 4
    }

    /// Limit in MiB to try next after a reservation could not grow by `additional`: at least twice
    /// this one.
    fn next_limit_mib(&self, reservation: &MemoryReservation, additional: usize) -> usize {
        let half = if reservation.consumer().can_spill() {
            let wanted = reservation.size().saturating_add(additional);
            wanted.saturating_mul(self.sharing.load(Ordering::Relaxed))
        } else {
            self.fixed.reserved().saturating_add(additional)
        };
        half.max(self.bytes).saturating_mul(2).div_ceil(1 << 20)
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
        let sorts = usize::from(consumer.name().starts_with(MERGE));
        self.sorts.fetch_add(sorts, Ordering::Relaxed);
        self.part(consumer).register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        let fewer = usize::from(consumer.can_spill());
        self.sharing.fetch_sub(fewer, Ordering::Relaxed);
        let sorts = usize::from(consumer.name().starts_with(MERGE));
        self.sorts.fetch_sub(sorts, Ordering::Relaxed);
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
        let is_granted = if consumer.can_spill() {
            self.is_tolerated(reservation, additional)
        } else {
            self.is_due(reservation, additional)
        };
        if is_granted {
            self.part(consumer).grow(reservation, additional);
            return Ok(());
        }
        let grown = self.grow_by_rest(reservation, additional);
        grown.map_err(|error| match error {
            DataFusionError::ResourcesExhausted(reason) => {
                let limit = human_readable_size(self.bytes);
                let next = self.next_limit_mib(reservation, additional);
                DataFusionError::ResourcesExhausted(format!(
                    "{reason}, of the limit of {limit} (try `--memory {next}`)"
                ))
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

    use datafusion::{
        execution::{
            disk_manager::{DiskManagerBuilder, DiskManagerMode},
            runtime_env::RuntimeEnvBuilder,
        },
        prelude::{SessionConfig, SessionContext},
    };

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
        let expected = "of the limit of 1000.0 B (try `--memory 1`)";
        assert!(error.ends_with(expected), "{error}");
        assert_eq!(pool.reserved(), 1000);
        // Where nothing is left, others have the share of a sort, and no more.
        for merge in [&above, &beside] {
            merge.try_grow(250).unwrap();
            assert!(merge.try_grow(1).is_err());
        }
        // All of them together have a quarter above the limit.
        last.try_grow(250).unwrap();
        let [more]: [_; 1] = registered(&pool, "merge", false);
        assert!(more.try_grow(1).is_err());
        drop((sorts, wide, above, beside, last, more));
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

    #[test]
    fn a_wide_merge_leaves_enough_to_the_merge_of_each_other_sort() {
        let pool: Arc<dyn MemoryPool> = Arc::new(BoundedPool::new(80_000, 100));
        let _spilling: [_; 40] = registered(&pool, "sort or repartition", true);
        let merges: [_; 10] = registered(&pool, "ExternalSorterMerge[0]", false);
        let [wide, others @ ..] = &merges;
        assert!(wide.try_grow(20_001).is_err());
        wide.try_grow(20_000).unwrap();
        for merge in others {
            assert!(merge.try_grow(3_001).is_err());
            merge.try_grow(3_000).unwrap();
        }
        // Others have the share of what can spill.
        let [other]: [_; 1] = registered(&pool, "series", false);
        assert!(other.try_grow(1_001).is_err());
        other.try_grow(1_000).unwrap();
    }

    #[test]
    fn a_sort_whose_share_shrinks_may_still_grow_by_padding() {
        let pool: Arc<dyn MemoryPool> = Arc::new(BoundedPool::new(100_000, 12_800));
        let [sort]: [_; 1] = registered(&pool, "sort", true);
        sort.try_grow(50_000).unwrap();
        let _later: [_; 9] = registered(&pool, "later", true);
        // The share is a tenth of what the sort holds, so it must spill before it takes a batch.
        assert!(sort.try_grow(101).is_err());
        sort.try_grow(100).unwrap();
        // Padding has an end, too.
        while sort.try_grow(100).is_ok() {}
        assert_eq!(pool.reserved(), 75_000);
    }

    #[test]
    fn a_sort_begins_with_a_batch_above_its_share_while_there_is_room() {
        let pool: Arc<dyn MemoryPool> = Arc::new(BoundedPool::new(100_000, 1_000));
        let sorts: [_; 100] = registered(&pool, "sort", true);
        // The share is 500 bytes, less than the bytes of a merge and than a batch.
        for sort in &sorts[..9] {
            assert!(sort.try_grow(8_001).is_err());
            sort.try_grow(8_000).unwrap();
            assert!(sort.try_grow(1_000).is_err());
        }
        // No other batch has room, and each sort still has the bytes of a merge.
        let error = sorts[9].try_grow(8_000).unwrap_err().to_string();
        assert!(error.ends_with("(try `--memory 2`)"), "{error}");
        sorts[9].try_grow(1_000).unwrap();
    }

    /// Rows of a sorted join of sorted inputs with cells of 300 bytes, in 4 MiB and two partitions.
    async fn count_sorted_rows(spill: &std::path::Path) -> Result<usize> {
        const BYTES: usize = 4 << 20;
        let reserve = BYTES / 32;
        let mut config = SessionConfig::new()
            .with_target_partitions(2)
            .with_batch_size(170);
        config.options_mut().optimizer.prefer_hash_join = false;
        config.options_mut().sql_parser.map_string_types_to_utf8view = false;
        config.options_mut().execution.sort_spill_reservation_bytes = reserve;
        let disk = DiskManagerBuilder::default()
            .with_mode(DiskManagerMode::Directories(vec![spill.to_owned()]));
        let runtime = RuntimeEnvBuilder::new()
            .with_disk_manager_builder(disk)
            .with_memory_pool(Arc::new(BoundedPool::new(BYTES, reserve)))
            .build_arc()?;
        let session = SessionContext::new_with_config_rt(config, runtime);
        let wide = "x".repeat(300);
        let query = format!(
            "select a.k, a.v, a.t, b.w from \
             (select value v, value * 7919 % 40000 k, '{wide}' || cast(value % 7 as varchar) t from generate_series(1, 40000)) a \
             join (select value * 31 % 40000 k, value w from generate_series(1, 40000)) b on a.k = b.k \
             order by a.t, a.k, a.v"
        );
        let batches = session.sql(&query).await?.collect().await?;
        Ok(batches.iter().map(|batch| batch.num_rows()).sum())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn sorts_above_sorts_of_wide_rows_end_whatever_begins_first() {
        let spill = tempfile::tempdir().unwrap();
        for _ in 0..2 {
            assert_eq!(count_sorted_rows(spill.path()).await.unwrap(), 40_000);
        }
    }
}
