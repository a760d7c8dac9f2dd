//! Batches on their way to a device, with the twin that has none.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use feedline_loader::{
    Loader,
    device::{HostDriver, HostLock, LockRefused, Pinning, Uploader},
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

async fn loader(slabs: u32) -> Loader {
    let store = Store::memory();
    dataset::publish_train(&store, SHARDS).await;
    let mut config = config(100);
    config.slabs = slabs;
    open(&store, &config).await
}

/// The first column of all batches of an epoch, as the device has it.
fn on_the_device(loader: &Loader) -> Vec<u8> {
    let pass = loader.epoch(loader.start_state()).unwrap();
    let uploader = Uploader::of_pass(Arc::new(HostDriver), (), pass, 2).unwrap();
    let mut bytes = Vec::new();
    for batch in uploader {
        let batch = batch.unwrap();
        assert_eq!(batch.parts().len(), 2, "features and targets");
        let (x, y) = (&batch.parts()[0], &batch.parts()[1]);
        assert_eq!(
            (x.len(), y.len()),
            (12 * batch.info().rows, 4 * batch.info().rows)
        );
        bytes.extend(batch.memory().to_vec(x.clone()));
    }
    bytes
}

fn in_host_memory(loader: &Loader) -> Vec<u8> {
    let mut bytes = Vec::new();
    for batch in loader.epoch(loader.start_state()).unwrap() {
        bytes.extend(batch.unwrap().x().iter().flat_map(|x| x.to_le_bytes()));
    }
    bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn the_device_gets_the_batches_of_the_loader_in_order() {
    for slabs in [2, 3, 7] {
        let loader = loader(slabs).await;
        let expected = in_host_memory(&loader);
        assert_eq!(expected.len(), 1_221 * 12);
        assert!(on_the_device(&loader) == expected, "{slabs} slabs");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_uploader_that_is_dropped_in_mid_pass_gives_its_slabs_back() {
    let loader = loader(3).await;
    let expected = in_host_memory(&loader);
    for taken in 0..6 {
        let pass = loader.epoch(loader.start_state()).unwrap();
        let uploader = Uploader::of_pass(Arc::new(HostDriver), (), pass, 2).unwrap();
        assert_eq!(uploader.take(taken).filter_map(Result::ok).count(), taken);
    }
    assert!(on_the_device(&loader) == expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_29_refused_page_locking_costs_speed_and_not_batches() {
    for (left, pinning, slabs) in [
        (9, Pinning::Whole, 4),
        (3, Pinning::Fewer, 3),
        (1, Pinning::Refused, 4),
        (0, Pinning::Refused, 4),
    ] {
        let loader = loader(4).await;
        let expected = in_host_memory(&self::loader(4).await);
        let lock = Arc::new(Limited {
            left: AtomicUsize::new(left),
            locked: AtomicUsize::new(0),
        });
        loader.lock_batches(Arc::<Limited>::clone(&lock));
        assert!(on_the_device(&loader) == expected, "{pinning:?}");
        assert_eq!(loader.metrics().pinning, pinning);
        let expected = if pinning == Pinning::Refused {
            0
        } else {
            slabs
        };
        assert_eq!(lock.locked.load(SeqCst), expected);
        drop(loader);
        assert_eq!(lock.locked.load(SeqCst), 0, "all is unlocked in the end");
    }
}
