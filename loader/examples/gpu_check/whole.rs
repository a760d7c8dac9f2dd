//! The loader itself, from shards to the device.

use std::sync::Arc;

use feedline_loader::{
    Error, Loader, LoaderConfig,
    device::{HostLock, Pinning, Uploader, cuda::Cuda},
};
use feedline_schemas::{
    ids::Seed,
    manifest::{Split, TargetKind},
};
use feedline_storage::{
    Store,
    clock::{Clock as _, SystemClock},
};
use serde_json::json;

use crate::{Report, dataset, runtime};

const FEATURES: u32 = 32;
const BLOCK_ROWS: u32 = 8_192;
const BATCH: u32 = 65_536;

pub(crate) fn check(cuda: &Cuda, report: &mut Report, is_quick: bool) -> Result<(), Error> {
    let runtime = runtime()?;
    let blocks = vec![BLOCK_ROWS; if is_quick { 4 } else { 64 }];
    let shards = [&blocks[..]; 4];
    let loader = runtime.block_on(async {
        let store = Store::memory();
        dataset::publish(
            &store,
            FEATURES,
            TargetKind::Regression,
            &[(Split::Train, &shards)],
        )
        .await;
        let config = LoaderConfig::new(Split::Train, Seed::new(1), BATCH);
        Loader::open(&store, &config, Arc::new(SystemClock)).await
    })?;
    let lock: Arc<dyn HostLock> = Arc::new(cuda.clone());
    loader.lock_batches(lock);

    let stream = cuda.compute_stream()?;
    let upload = || {
        Uploader::of_pass(
            Arc::new(cuda.clone()),
            Arc::clone(&stream),
            loader.epoch(loader.start_state())?,
            3,
        )
    };
    let mut expected = loader.epoch(loader.start_state())?;
    let (mut batches, mut wrong) = (0_u64, 0_u64);
    for batch in upload()? {
        let (batch, expected) = (batch?, expected.next().transpose()?);
        let found = cuda.read(batch.memory(), batch.parts()[0].clone(), &stream)?;
        let is_right =
            expected.is_some_and(|expected| found == bytemuck::cast_slice::<f32, u8>(expected.x()));
        wrong += u64::from(!is_right);
        batches += 1;
    }
    drop(expected);
    let pinning = loader.metrics().pinning;
    let details = json!({ "batches": batches, "wrong": wrong, "pinning": pinning });
    report.must(
        "loader_to_device",
        wrong == 0 && batches > 0 && pinning == Pinning::Whole,
        details,
    );

    let since = SystemClock.monotonic();
    let mut rows = 0_u64;
    for batch in upload()? {
        rows += batch?.info().rows as u64;
    }
    let seconds = SystemClock.monotonic().saturating_sub(since).as_secs_f64();
    report.note(
        "loader_rows_to_device",
        rows as f64 / seconds / 1e6,
        "million rows of 32 f32 per second",
    );
    Ok(())
}
