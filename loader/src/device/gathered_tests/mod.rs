//! Batches built on the device beside those of the processor.

mod sides;
mod stories;
mod unfit;

use std::sync::Arc;

use feedline_schemas::{
    ids::Rank,
    loader_state::{LastBatch, LoaderState},
    manifest::{Layout, Split, TargetKind, TokenType},
};
use feedline_storage::{Store, clock::SystemClock};

use super::*;
use crate::{
    ClassBalance, Loader, LoaderConfig, Seed, TokenLayout, TokensConfig,
    dataset::publish_layout,
    device::{BuiltOn, DeviceConfig, HostDriver, Unfit},
};

/// Blocks of unequal size in three shards, 611 samples.
const SHARDS: &[&[u32]] = &[&[20; 16], &[13; 10], &[20, 7, 40, 40, 21, 33]];

fn config(batch: u32) -> LoaderConfig {
    LoaderConfig {
        domains: 3,
        window_blocks: 2,
        threads: 2,
        ..LoaderConfig::new(Split::Train, Seed::new(7), batch)
    }
}

fn open(layout: Layout, config: &LoaderConfig) -> Loader {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let opened = runtime.unwrap().block_on(async {
        let store = Store::memory();
        publish_layout(&store, layout, &[(Split::Train, SHARDS)]).await;
        Loader::open(&store, config, Arc::new(SystemClock)).await
    });
    opened.unwrap()
}

const ROWS: Layout = Layout::Dense {
    features: 3,
    target: TargetKind::Classification { classes: 5 },
};

fn tokens(id: TokenType) -> Layout {
    Layout::Tokens {
        id,
        vocabulary: 60_000,
    }
}

fn with_tokens(length: u32, layout: TokenLayout) -> LoaderConfig {
    LoaderConfig {
        tokens: Some(TokensConfig {
            padding_id: 77_777,
            ..TokensConfig::new(length).with_layout(layout)
        }),
        ..config(16)
    }
}

/// Bytes and description of a batch.
type Content = (Vec<Vec<u8>>, usize, usize, LoaderState);

fn of_the_processor(loader: &Loader, start: LoaderState) -> Vec<Content> {
    let batches = loader.epoch(start).unwrap();
    let content = |batch: Result<Batch, Error>| {
        let batch = batch.unwrap();
        let arrays = batch.arrays().iter().map(|array| array.to_vec()).collect();
        (arrays, batch.rows(), batch.padding(), batch.state().clone())
    };
    batches.map(content).collect()
}

fn of_the_twin(loader: &Loader, start: LoaderState, config: &DeviceConfig) -> Vec<Content> {
    let driver = Arc::new(HostDriver);
    let batches = loader.device_epoch(start, &driver, (), config).unwrap();
    assert!(matches!(batches.built_on(), BuiltOn::Device { .. }));
    let content = |batch: Result<DeviceBatch<HostDriver, BatchInfo>, Error>| {
        let batch = batch.unwrap();
        let info = batch.info();
        assert_eq!((info.kind, loader.kind()), (loader.kind(), info.kind));
        let part = |part: &Range<usize>| batch.memory().to_vec(part.clone());
        let parts = batch.parts().iter().map(part).collect();
        (parts, info.rows, info.padding, info.state.clone())
    };
    batches.map(content).collect()
}

/// Batches built on the device are those of the processor, also from the middle of the epoch and for any world size.
fn check(layout: &Layout, config: &LoaderConfig, window_bytes: u64) {
    let device = DeviceConfig {
        window_bytes,
        unfit: Unfit::Refuse,
        ..DeviceConfig::default()
    };
    for (rank, world_size) in [(0, 1), (0, 3), (1, 3), (2, 3), (4, 7)] {
        let config = LoaderConfig {
            rank: Rank::new(rank),
            world_size,
            ..config.clone()
        };
        let loader = open(layout.clone(), &config);
        let expected = of_the_processor(&loader, loader.start_state());
        assert!(expected.len() > 5, "{}", expected.len());
        let found = of_the_twin(&loader, loader.start_state(), &device);
        assert!(found == expected, "rank {rank} of {world_size}");
        // All blocks are in memory by now, and the pass begins elsewhere.
        for at in [0, 3, expected.len() - 1] {
            let found = of_the_twin(&loader, expected[at].3.clone(), &device);
            assert!(found == expected[at + 1..], "after batch {at}");
        }
        let again = of_the_processor(&loader, loader.start_state());
        assert!(again == expected, "the processor's memory is its own");
    }
}

#[test]
fn rows_built_on_the_device_are_those_of_the_processor() {
    for last_batch in [LastBatch::Keep, LastBatch::Pad, LastBatch::Drop] {
        let config = LoaderConfig {
            last_batch,
            ..config(50)
        };
        check(&ROWS, &config, 1 << 20);
    }
    for (features, target) in [
        (4, TargetKind::None),
        (1, TargetKind::Regression),
        (2, TargetKind::Regressions { targets: 3 }),
    ] {
        check(&Layout::Dense { features, target }, &config(33), 1 << 20);
    }
}

#[test]
fn rows_of_balanced_classes_built_on_the_device_are_those_of_the_processor() {
    let config = LoaderConfig {
        class_balance: Some(ClassBalance::Equal),
        ..config(33)
    };
    check(&ROWS, &config, 1 << 20);
}

#[test]
fn tokens_built_on_the_device_are_those_of_the_processor() {
    for id in [TokenType::U16, TokenType::U32] {
        check(
            &tokens(id),
            &with_tokens(12, TokenLayout::Documents),
            1 << 20,
        );
        check(&tokens(id), &with_tokens(33, TokenLayout::Stream), 1 << 20);
    }
}

/// The least window that a pass fits in, as it is said when it does not.
fn least_window(loader: &Loader, start: &LoaderState) -> u64 {
    let parts = loader.parts(start.clone(), None).unwrap();
    let config = |window_bytes| DeviceConfig {
        window_bytes,
        ..DeviceConfig::default()
    };
    let fit = |bytes| DeviceFit::new(&parts.engine, &parts.order, parts.start, &config(bytes));
    let slot = fit(1 << 30).unwrap().slot_bytes as u64;
    let least = (1..).find(|slots| fit(slots * slot).is_ok()).unwrap();
    least * slot
}

#[test]
fn holding_every_device_batch_is_said_and_nothing_is_lost() {
    let loader = open(ROWS, &config(50));
    let expected = of_the_processor(&loader, loader.start_state());
    let config = DeviceConfig {
        buffers: 2,
        ..DeviceConfig::default()
    };
    let driver = Arc::new(HostDriver);
    let mut batches = loader.device_batches(&driver, (), &config).unwrap();
    let first = batches.next().unwrap().unwrap();
    let second = batches.next().unwrap().unwrap();
    for _ in 0..2 {
        let held = batches.next();
        assert!(matches!(held, Some(Err(Error::DeviceBatchesHeld))));
    }
    drop(first);
    let third = batches.next().unwrap().unwrap();
    assert_eq!(third.info().state, expected[2].3);
    drop((second, third));
    let rest = batches.by_ref().map(|batch| batch.unwrap().info().rows);
    assert_eq!(rest.count(), expected.len() - 3);
    assert!(batches.next().is_none());
    let metrics = loader.metrics();
    let bytes: usize = expected
        .iter()
        .flat_map(|batch| &batch.0)
        .map(Vec::len)
        .sum();
    assert_eq!(metrics.batch_bytes, 2 * bytes as u64, "both passes");
}

#[test]
fn each_block_goes_to_the_device_once() {
    let loader = open(ROWS, &config(50));
    let driver = Arc::new(HostDriver);
    let config = DeviceConfig::default();
    let mut batches = loader.device_batches(&driver, (), &config).unwrap();
    let rows: usize = batches
        .by_ref()
        .map(|batch| batch.unwrap().info().rows)
        .sum();
    assert_eq!(rows, 611);
    let totals = batches.totals();
    // Three features and a target of four bytes, and eight bytes of places.
    assert_eq!((totals.bytes, totals.batches), (611 * (16 + 8), 13));
}
