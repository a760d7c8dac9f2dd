//! Batches built on the device, from shards to kernels, beside the same batches in host memory.

use std::sync::Arc;

use cudarc::driver::CudaStream;
use feedline_loader::{
    Batch, Error, Loader, LoaderConfig, Target, TokenLayout, TokensConfig,
    device::{BuiltOn, DeviceBatches, DeviceConfig, DeviceFault, HostLock, Unfit, cuda::Cuda},
};
use feedline_schemas::{
    ids::Seed,
    manifest::{Layout, Split, TargetKind, TokenType},
};
use feedline_storage::{
    Store,
    clock::{Clock as _, SystemClock},
};
use serde_json::json;

use crate::{Report, dataset, runtime};

const BLOCK_ROWS: u32 = 8_192;

pub(crate) fn check(cuda: &Cuda, report: &mut Report, is_quick: bool) -> Result<(), Error> {
    let rows = Layout::Dense {
        features: 100,
        target: TargetKind::Classification { classes: 10 },
    };
    let config = LoaderConfig::new(Split::Train, Seed::new(1), 16_384);
    let loader = open(cuda, rows, &config, is_quick)?;
    equal(cuda, &loader, report, "rows")?;
    rate(cuda, &loader, report, is_quick)?;
    for (name, id, layout) in [
        ("stream_u16", TokenType::U16, TokenLayout::Stream),
        ("stream_u32", TokenType::U32, TokenLayout::Stream),
        ("documents", TokenType::U16, TokenLayout::Documents),
    ] {
        let vocabulary = 50_000;
        let tokens = TokensConfig {
            padding_id: 49_999,
            ..TokensConfig::new(257).with_layout(layout)
        };
        let config = LoaderConfig {
            tokens: Some(tokens),
            ..LoaderConfig::new(Split::Train, Seed::new(1), 512)
        };
        let loader = open(cuda, Layout::Tokens { id, vocabulary }, &config, true)?;
        equal(cuda, &loader, report, name)?;
    }
    Ok(())
}

fn open(
    cuda: &Cuda,
    layout: Layout,
    config: &LoaderConfig,
    is_small: bool,
) -> Result<Loader, Error> {
    let runtime = runtime()?;
    let mut blocks = vec![BLOCK_ROWS; if is_small { 4 } else { 32 }];
    // Blocks need not be alike.
    blocks.push(BLOCK_ROWS - 777);
    let shards = [&blocks[..]; 4];
    let loader = runtime.block_on(async {
        let store = Store::memory();
        dataset::publish_layout(&store, layout, &[(Split::Train, &shards)]).await;
        Loader::open(&store, config, Arc::new(SystemClock)).await
    })?;
    let lock: Arc<dyn HostLock> = Arc::new(cuda.clone());
    loader.lock_batches(lock);
    Ok(loader)
}

fn pass(
    cuda: &Cuda,
    loader: &Loader,
    stream: &Arc<CudaStream>,
    window_bytes: u64,
) -> Result<DeviceBatches<Cuda>, Error> {
    let unfit = match window_bytes {
        0 => Unfit::Copy,
        _ => Unfit::Refuse,
    };
    let config = DeviceConfig {
        window_bytes,
        unfit,
        ..DeviceConfig::default()
    };
    let cuda = Arc::new(cuda.clone());
    loader.device_epoch(loader.start_state(), &cuda, Arc::clone(stream), &config)
}

/// Every byte of an epoch is what the processor makes of it.
fn equal(cuda: &Cuda, loader: &Loader, report: &mut Report, kind: &str) -> Result<(), Error> {
    let stream = cuda.compute_stream()?;
    let mut expected = loader.epoch(loader.start_state())?;
    let mut batches = pass(cuda, loader, &stream, 4 << 30)?;
    let is_gathered = matches!(batches.built_on(), BuiltOn::Device { .. });
    let (mut count, mut wrong) = (0_u64, 0_u64);
    for batch in batches.by_ref() {
        let batch = batch?;
        let mut found = Vec::new();
        for part in batch.parts() {
            found.extend(cuda.read(batch.memory(), part.clone(), &stream)?);
        }
        let expected = expected.next().transpose()?;
        let is_right = expected.is_some_and(|expected| {
            found == bytes(&expected) && batch.info().state == *expected.state()
        });
        wrong += u64::from(!is_right);
        count += 1;
    }
    let is_whole = expected.next().is_none();
    let details = json!({
        "kind": kind, "batches": count, "wrong": wrong, "gathered": is_gathered, "whole": is_whole,
        "bytes_sent": batches.totals().bytes,
    });
    let passes = wrong == 0 && count > 0 && is_gathered && is_whole;
    report.must("gathered_on_device", passes, details);
    Ok(())
}

/// The parts of a batch, one behind another.
fn bytes(batch: &Batch) -> Vec<u8> {
    let mut bytes = bytemuck::cast_slice::<f32, u8>(batch.x()).to_vec();
    bytes.extend_from_slice(bytemuck::cast_slice(batch.tokens()));
    match batch.y() {
        Target::None => {}
        Target::Regression(y) | Target::Regressions { y, .. } => {
            bytes.extend_from_slice(bytemuck::cast_slice(y))
        }
        Target::Classification(y) => bytes.extend_from_slice(bytemuck::cast_slice(y)),
    }
    bytes
}

/// Bytes of batches per second of epochs whose blocks are in host memory, built on the device and on the processor, and
/// how that is beside the link.
fn rate(cuda: &Cuda, loader: &Loader, report: &mut Report, is_quick: bool) -> Result<(), Error> {
    let stream = cuda.compute_stream()?;
    let probe = cuda.probe_host_to_device(16 << 20, if is_quick { 4 } else { 100 })?;
    let measure = |window_bytes| {
        let batches = pass(cuda, loader, &stream, window_bytes)?;
        let (mut bytes, since) = (0, SystemClock.monotonic());
        for batch in batches {
            bytes += batch?.parts().iter().map(|part| part.len()).sum::<usize>();
        }
        let done = stream.synchronize();
        done.map_err(|error| DeviceFault::new("wait for an epoch", error.to_string()))?;
        let seconds = SystemClock.monotonic().saturating_sub(since).as_secs_f64();
        Ok::<f64, Error>(bytes as f64 / seconds)
    };
    let gathered = measure(4 << 30)?;
    let copied = measure(0)?;
    report.note("gathered_batches", gathered / 1e9, "GB/s of batches");
    report.note("copied_batches", copied / 1e9, "GB/s of batches");
    report.note("gathered_beside_probe", gathered / probe, "share");
    Ok(())
}
