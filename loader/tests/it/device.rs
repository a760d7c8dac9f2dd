//! Batches on their way to a device, with the twin that has none.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use feedline_loader::{
    BadValues, Loader, LoaderConfig, Target,
    device::{
        BuiltOn, DeviceBatches, DeviceConfig, HostDriver, HostLock, LockRefused, Pinning, Unfit,
        Uploader,
    },
};
use feedline_storage::Store;

use crate::{
    SHARDS, config, dataset,
    faults::{
        input::{with, with_bad_rows},
        pipeline::damage,
    },
    of_rank, open,
};

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

pub(crate) fn in_host_memory(loader: &Loader) -> Vec<u8> {
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

/// Bytes of all parts of the batches that a pass builds on the device, batch by batch.
fn gathered(batches: DeviceBatches<HostDriver>) -> Vec<Vec<u8>> {
    assert!(matches!(batches.built_on(), BuiltOn::Device { .. }));
    let bytes = |batch: Result<_, _>| -> Vec<u8> {
        let batch: feedline_loader::device::DeviceBatch<HostDriver, _> = batch.unwrap();
        let parts = batch.parts().iter().cloned();
        parts.flat_map(|part| batch.memory().to_vec(part)).collect()
    };
    batches.map(bytes).collect()
}

/// The same of batches in host memory.
fn filled(loader: &Loader) -> Vec<Vec<u8>> {
    let bytes = |batch: Result<feedline_loader::Batch, _>| {
        let batch = batch.unwrap();
        let y: Vec<u8> = match batch.y() {
            Target::None => Vec::new(),
            Target::Regression(y) | Target::Regressions { y, .. } => {
                y.iter().flat_map(|y| y.to_le_bytes()).collect()
            }
            Target::Classification(y) => y.iter().flat_map(|y| y.to_le_bytes()).collect(),
        };
        let x = batch.x().iter().flat_map(|x| x.to_le_bytes());
        x.chain(y).collect()
    };
    let batches = loader.epoch(loader.start_state()).unwrap();
    batches.map(bytes).collect()
}

async fn check_stand_ins(store: &Store, config: &LoaderConfig) {
    let device = DeviceConfig {
        unfit: Unfit::Refuse,
        ..DeviceConfig::default()
    };
    for world in [1, 2, 5] {
        let mut quarantined = 0;
        for rank in 0..world {
            let config = of_rank(config, rank, world);
            let loader = open(store, &config).await;
            let driver = Arc::new(HostDriver);
            let found = gathered(loader.device_batches(&driver, (), &device).unwrap());
            quarantined += loader.metrics().quarantined;
            let expected = filled(&open(store, &config).await);
            assert!(found == expected, "{rank} of {world}");
        }
        assert!(quarantined > 0, "some ranks met what cannot be used");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_26_rows_that_stand_in_for_bad_ones_are_the_same_on_the_device() {
    check_stand_ins(&with_bad_rows().await, &with(BadValues::Skip)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_02_blocks_that_stand_in_for_damaged_ones_are_the_same_on_the_device() {
    let store = Store::memory();
    let manifest = dataset::publish_train(&store, SHARDS).await;
    damage(&store, &manifest, 0, &[3, 4, 15]).await;
    let config = LoaderConfig {
        max_bad_fraction: 0.14,
        ..config(96)
    };
    check_stand_ins(&store, &config).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_position_moves_along_with_batches_on_the_device() {
    let loader = loader(3).await;
    let whole = filled(&loader);
    let (driver, device) = (Arc::new(HostDriver), DeviceConfig::default());
    let mut state = loader.start_state();
    for batch in loader.device_batches(&driver, (), &device).unwrap().take(4) {
        state = batch.unwrap().info().state.clone();
    }
    loader.resume(state).unwrap();
    let rest = gathered(loader.device_batches(&driver, (), &device).unwrap());
    assert!(rest == whole[4..]);
    let next = gathered(loader.device_batches(&driver, (), &device).unwrap());
    assert_eq!(next.len(), whole.len());
    assert!(next != whole, "another epoch is another order");
    assert_eq!(loader.state().epoch.get(), 2);
}
