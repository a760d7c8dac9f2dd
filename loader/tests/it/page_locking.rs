//! Page-locked batches, with a lock that refuses memory.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use feedline_loader::{
    Loader,
    device::{HostLock, LockRefused, Pinning},
};
use feedline_storage::Store;

use crate::{SHARDS, config, dataset, open};

/// Locks so many pieces of memory and refuses more.
#[derive(Debug)]
struct Limited {
    left: AtomicUsize,
    locked: AtomicUsize,
}

impl HostLock for Limited {
    fn lock(&self, _: usize, _: usize) -> Result<(), LockRefused> {
        self.left
            .fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1))
            .map_err(|_| LockRefused::new("enough"))?;
        self.locked.fetch_add(1, SeqCst);
        Ok(())
    }

    fn unlock(&self, _: usize) {
        self.locked.fetch_sub(1, SeqCst);
    }
}

pub(crate) async fn loader(slabs: u32) -> Loader {
    let store = Store::memory();
    dataset::publish_train(&store, SHARDS).await;
    let mut config = config(100);
    config.slabs = slabs;
    open(&store, &config).await
}

/// Features of an epoch, and the number of batches whose features are page-locked.
pub(crate) fn features(loader: &Loader) -> (Vec<u32>, usize) {
    let (mut features, mut locked) = (Vec::new(), 0);
    for batch in loader.epoch(loader.start_state()).unwrap() {
        let batch = batch.unwrap();
        features.extend(batch.x().iter().map(|x| x.to_bits()));
        let bytes: &[u8] = bytemuck::cast_slice(batch.x());
        locked += usize::from(batch.is_page_locked(bytes));
    }
    (features, locked)
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_29_refused_page_locking_costs_speed_and_not_batches() {
    let (expected, none) = features(&loader(4).await);
    assert_eq!((expected.len(), none), (1_221 * 3, 0));
    for (left, pinning, slabs) in [
        (9, Pinning::Whole, 4),
        (3, Pinning::Fewer, 3),
        (1, Pinning::Refused, 0),
        (0, Pinning::Refused, 0),
    ] {
        let loader = loader(4).await;
        let lock = Arc::new(Limited {
            left: AtomicUsize::new(left),
            locked: AtomicUsize::new(0),
        });
        loader.lock_batches(Arc::<Limited>::clone(&lock));
        let (found, locked) = features(&loader);
        assert!(found == expected, "{pinning:?}");
        assert_eq!(loader.metrics().pinning, pinning);
        assert_eq!(lock.locked.load(SeqCst), slabs);
        assert_eq!(locked, if slabs > 0 { 13 } else { 0 });
        drop(loader);
        assert_eq!(lock.locked.load(SeqCst), 0, "all is unlocked in the end");
    }
}
