//! Three ranks of one training, each with its share of every batch, as async streams: together they see each sample
//! once.
//!
//! `cargo run -p feedline-loader --example ranks`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::{collections::BTreeSet, sync::Arc};

use feedline_loader::{Batch, Error, Loader, LoaderConfig, Rank, Seed, Split};
use feedline_storage::{Store, clock::SystemClock};
use feedline_testkit::numbered_dataset as dataset;
use futures::TryStreamExt as _;

const RANKS: u32 = 3;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let store = Store::memory();
    dataset::publish_train(&store, &[&[50; 40]]).await;
    let ranks = (0..RANKS).map(|rank| epoch(&store, rank));
    let shares = futures::future::try_join_all(ranks).await?;
    for (rank, (batches, samples)) in shares.iter().enumerate() {
        println!("rank {rank}: {batches} batches, {} samples", samples.len());
    }
    let all: BTreeSet<u64> = shares
        .into_iter()
        .flat_map(|(_, samples)| samples)
        .collect();
    println!("{} different samples", all.len());
    assert_eq!(all.len(), 2000);
    Ok(())
}

/// Counts the batches of a rank in an epoch, and lists its samples.
async fn epoch(store: &Store, rank: u32) -> Result<(usize, Vec<u64>), Error> {
    let config = LoaderConfig {
        rank: Rank::new(rank),
        world_size: RANKS,
        ..LoaderConfig::new(Split::Train, Seed::new(7), 64)
    };
    let loader = Loader::open(store, &config, Arc::new(SystemClock)).await?;
    let seen = loader.stream()?.try_fold(
        (0, Vec::new()),
        async |(batches, mut samples), batch: Batch| {
            samples.extend_from_slice(batch.origins());
            Ok((batches + 1, samples))
        },
    );
    seen.await
}
