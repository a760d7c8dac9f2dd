//! Extents of several blocks: their requests, and the handling of a damaged part.

use std::collections::BTreeSet;

use super::network::{Remote, is_block, quick};
use crate::{
    collect, config, of_rank, open,
    server::{Asked, Fault},
};
use feedline_loader::{FetchError, LoaderConfig};

/// All blocks of a shard are an extent.
fn joined() -> LoaderConfig {
    LoaderConfig {
        extent_bytes: 1 << 20,
        ..quick()
    }
}

/// The requests for blocks, without those for heads.
fn blocks(log: &[Asked]) -> Vec<&Asked> {
    log.iter().filter(|asked| is_block(asked)).collect()
}

/// Bytes of an extent of `blocks` blocks of 40 samples.
async fn extent_bytes(remote: &Remote, blocks: usize) -> u64 {
    let shard = &remote.manifest.splits[0].shards[0];
    shard.blocks[blocks].offset - shard.blocks[0].offset
}

#[tokio::test]
async fn an_extent_is_one_request() {
    let remote = Remote::new().await;
    for (blocks_each, requests) in [(0, 31), (1, 31), (4, 4 + 3 + 2), (100, 3)] {
        let config = LoaderConfig {
            extent_bytes: match blocks_each {
                0 | 1 => blocks_each,
                100 => 1 << 20,
                n => extent_bytes(&remote, usize::try_from(n).unwrap()).await,
            },
            ..quick()
        };
        let plan = open(&remote.plain, &config).await.plan();
        assert_eq!(plan.requests, requests, "{blocks_each}");
        let nothing = |_: &Asked| Fault::None;
        let look = |loader: &feedline_loader::Loader, log: &[Asked]| {
            // Where two domains meet in an extent, one asks for its first blocks and the other for the rest.
            let found = blocks(log).len() as u64;
            let most = requests + u64::from(loader.plan().domains - 1);
            assert!((requests..=most).contains(&found), "{blocks_each}: {found}");
            let fetches = loader.metrics().fetches;
            assert_eq!(fetches.requests, found + 1, "and a head");
            assert_eq!(fetches.extents, fetches.requests);
            assert_eq!(loader.metrics().blocks, 31);
        };
        remote.survives(&config, nothing, look).await;
        // In shard order there is nothing to be cut.
        let loader = open(&remote.http(), &config).await;
        remote.server.forget();
        collect(loader.sequential().unwrap());
        assert_eq!(blocks(&remote.server.log()).len() as u64, requests);
    }
}

#[tokio::test]
async fn a_rank_asks_for_its_part_of_an_extent_only() {
    let remote = Remote::new().await;
    let config = joined();
    let whole = open(&remote.plain, &config).await;
    let expected = collect(whole.epoch(whole.start_state()).unwrap());
    let mut seen = vec![Vec::new(); expected.len()];
    let mut parts = 0;
    for rank in 0..5 {
        let loader = open(&remote.http(), &of_rank(&config, rank, 5)).await;
        remote.server.forget();
        let batches = collect(loader.epoch(loader.start_state()).unwrap());
        let bytes: u64 = blocks(&remote.server.log())
            .iter()
            .map(|asked| {
                asked
                    .range
                    .clone()
                    .map_or(0, |range| range.end - range.start)
            })
            .sum();
        let metrics = loader.metrics();
        assert_eq!(
            bytes, metrics.block_bytes,
            "not a byte more than its blocks"
        );
        assert!(metrics.blocks < 31);
        assert!(metrics.fetches.requests < metrics.blocks);
        parts += blocks(&remote.server.log())
            .iter()
            .filter_map(|asked| Some(asked.range.as_ref()?.start))
            .collect::<BTreeSet<_>>()
            .len();
        seen.iter_mut()
            .zip(batches)
            .for_each(|(seen, batch)| seen.extend(batch));
    }
    assert_eq!(seen, expected);
    assert!(parts > 5, "{parts}");
}

#[tokio::test]
async fn fault_02_a_damaged_block_of_an_extent_is_asked_for_again_by_itself() {
    let remote = Remote::new().await;
    let place = remote.manifest.splits[0].shards[1].blocks[4].clone();
    let bytes = u64::from(place.metadata_bytes) + place.body_bytes;
    let (offset, end) = (place.offset, place.offset + bytes);
    let flip = move |asked: &Asked| match &asked.range {
        Some(range)
            if range.start < offset && end <= range.end && super::network::in_second(asked) =>
        {
            Fault::Flip(usize::try_from(offset - range.start + 100).unwrap())
        }
        _ => Fault::None,
    };
    remote
        .survives(&joined(), flip, |loader, log| {
            let metrics = loader.metrics();
            assert_eq!((metrics.fetches.crc_failures, metrics.refetches), (1, 1));
            let alone = |asked: &&Asked| asked.range == Some(offset..end);
            assert_eq!(log.iter().filter(alone).count(), 1);
        })
        .await;
}

#[tokio::test]
async fn fault_04_an_extent_that_broke_off_is_continued_in_the_middle_of_a_block() {
    let remote = Remote::new().await;
    let cut = |asked: &Asked| match asked.earlier == 0 && is_block(asked) && !is_rest(asked) {
        true => Fault::Cut(3000),
        false => Fault::None,
    };
    remote
        .survives(&joined(), cut, |loader, log| {
            let fetches = loader.metrics().fetches;
            assert!(fetches.retries.broken >= 3, "{fetches:?}");
            assert_eq!(fetches.resumed_bodies, fetches.retries.broken);
            let rests = blocks(log).into_iter().filter(|asked| is_rest(asked));
            assert_eq!(rests.count() as u64, fetches.resumed_bodies);
        })
        .await;
}

/// Returns true if a request begins inside a block: blocks begin at multiples of 64 bytes.
fn is_rest(asked: &Asked) -> bool {
    asked
        .range
        .as_ref()
        .is_some_and(|range| !range.start.is_multiple_of(64))
}

#[tokio::test]
async fn fault_01_blocks_before_the_cut_of_a_shard_are_still_delivered() {
    let remote = Remote::of(&[&[40; 16]]).await;
    let shard = &remote.manifest.splits[0].shards[0];
    let cut = usize::try_from(shard.blocks[9].offset + 10).unwrap();
    let whole = remote.server.object(&shard.path);
    let loader = open(
        &remote.http(),
        &LoaderConfig {
            global_batch: 40,
            ..joined()
        },
    )
    .await;
    remote.server.put(&shard.path, whole.slice(..cut));
    let mut batches = loader.sequential().unwrap();
    for _ in 0..9 {
        batches.next().unwrap().unwrap();
    }
    let error = batches.next().unwrap().unwrap_err();
    assert!(
        matches!(error, feedline_loader::Error::ShardTruncated { .. }),
        "{error:?}"
    );
}

#[tokio::test]
async fn fault_05_refusals_of_extents_are_waited_out_and_told_with_their_range() {
    let remote = Remote::new().await;
    let mut config = joined();
    let busy = |asked: &Asked| match asked.earlier < 2 && is_block(asked) {
        true => Fault::Status(503, None),
        false => Fault::None,
    };
    remote
        .survives(&config, busy, |loader, _| {
            let fetches = loader.metrics().fetches;
            assert!(fetches.retries.throttled >= 6, "{fetches:?}");
        })
        .await;
    config.fetch.deadline = std::time::Duration::from_secs(4);
    let always = |asked: &Asked| match is_block(asked) {
        true => Fault::Status(503, None),
        false => Fault::None,
    };
    let error = remote.fails(&config, always).await;
    let FetchError::Unavailable { range, .. } = super::network::fetch_error(&error) else {
        unreachable!("{error:?}")
    };
    assert!(range.end - range.start > 10_000, "{range:?}");
}

/// A budget that lets only part of an extent be read ahead, and one of nothing.
#[tokio::test]
async fn extents_that_exceed_the_budget_are_read_all_the_same() {
    let remote = Remote::new().await;
    for prefetch_bytes in [0, 5000, 40_000] {
        let config = LoaderConfig {
            prefetch_bytes,
            ..joined()
        };
        let nothing = |_: &Asked| Fault::None;
        remote.survives(&config, nothing, |_, _| {}).await;
    }
}

#[tokio::test]
async fn blocks_of_an_extent_are_given_up_one_by_one() {
    let remote = Remote::new().await;
    let whole = open(&remote.plain, &config(16)).await.plan().bytes;
    let config = LoaderConfig {
        domains: 1,
        window_blocks: 4,
        extent_bytes: extent_bytes(&remote, 4).await,
        prefetch_bytes: whole / 2,
        ..quick()
    };
    let loader = open(&remote.http(), &config).await;
    collect(loader.epoch(loader.start_state()).unwrap());
    let peak = loader.metrics().peak_bytes;
    assert!(peak <= whole / 2, "{peak} of {whole}");
}
