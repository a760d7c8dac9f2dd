//! Flipped bits, cuts and exchanges in our own shards: all of them are caught before a row is handed out.

use std::ops::Range;

use bytes::Bytes;
use feedline_schemas::manifest::{Layout, Manifest, RowTokens, Split, TargetKind, TokenType};
use feedline_storage::Store;

use super::{classes, documents, extents, image_files, numbers, open};
use crate::{
    dataset::publish_layout,
    input::{block_rows::BlockRows, config::InputConfig},
};

const CHANGES: u64 = 2_000;
const SHAPE: &[&[u32]] = &[&[9, 9, 9], &[9, 9, 4]];

/// A generator of numbers that are the same on every run: `SplitMix64`.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ z >> 31) % end as u64).unwrap()
    }
}

struct Dataset {
    store: Store,
    /// Store of damaged copies of the files.
    damaged: Store,
    manifest: Manifest,
    files: Vec<Bytes>,
    /// Rows of every block, as text; of numbers too, for there is no NaN in them.
    rows: Vec<String>,
}

async fn dataset(layout: Layout) -> Dataset {
    let store = Store::memory();
    let manifest = publish_layout(&store, layout, &[(Split::Train, SHAPE)]).await;
    let mut files = Vec::new();
    for shard in &manifest.splits[0].shards {
        files.push(store.get(&shard.path).await.unwrap());
    }
    let rows = read(&store, &store).await;
    let rows = rows.into_iter().map(Result::unwrap).collect();
    Dataset {
        store,
        damaged: Store::memory(),
        manifest,
        files,
        rows,
    }
}

/// Opens the dataset in `store` and reads its blocks from `files`.
async fn read(store: &Store, files: &Store) -> Vec<Result<String, String>> {
    let input = open(store, &InputConfig::default()).await;
    let extents = extents(files);
    let mut blocks = Vec::new();
    for block in 0..input.block_table().block_count() {
        let rows = input.read(block, 0, &extents).await;
        blocks.push(rows.map(|rows| text(&rows)).map_err(|e| e.to_string()));
    }
    blocks
}

fn text(rows: &BlockRows) -> String {
    let (keys, origins) = (rows.keys(), rows.origins());
    let rows = std::slice::from_ref(rows);
    match &rows[0] {
        BlockRows::Dense(_) => {
            format!(
                "{:?} {:?} {keys:?} {origins:?}",
                numbers(rows),
                classes(rows)
            )
        }
        BlockRows::Images(_) => {
            format!(
                "{:?} {:?} {keys:?} {origins:?}",
                image_files(rows),
                classes(rows)
            )
        }
        BlockRows::Tokens(_) => format!("{:?} {keys:?} {origins:?}", documents(rows)),
        BlockRows::Multi(multi) => {
            let images: Vec<_> = (0..keys.len()).map(|row| rows[0].image(row)).collect();
            let (x, tokens) = (&multi.x, &multi.tokens);
            format!(
                "{x:?} {images:?} {tokens:?} {:?} {keys:?} {origins:?}",
                classes(rows)
            )
        }
    }
}

/// Changes the files in one way of six; says which.
fn change(numbers: &mut Numbers, dataset: &Dataset, files: &mut [Vec<u8>]) -> String {
    let shard = numbers.below(files.len());
    let blocks = &dataset.manifest.splits[0].shards[shard].blocks;
    let file = &mut files[shard];
    let length = file.len();
    match numbers.below(6) {
        0 => {
            let bit = numbers.below(length * 8);
            file[bit / 8] ^= 1 << (bit % 8);
            format!("bit {bit} of shard {shard} flipped")
        }
        1 => {
            let to = numbers.below(length);
            file.truncate(to);
            format!("shard {shard} cut to {to}")
        }
        2 => {
            let (a, b) = (numbers.below(blocks.len()), numbers.below(blocks.len()));
            let range = |block: usize| -> Range<usize> {
                let block = &blocks[block];
                let start = usize::try_from(block.offset).unwrap();
                let body = usize::try_from(block.body_bytes).unwrap();
                start..start + block.metadata_bytes as usize + body
            };
            exchange(file, range(a), range(b));
            format!("blocks {a} and {b} of shard {shard} exchanged")
        }
        3 => {
            files.reverse();
            "the two shards exchanged".into()
        }
        4 => {
            let (a, b) = (numbers.below(length), numbers.below(length));
            file.swap(a, b);
            format!("bytes {a} and {b} of shard {shard} exchanged")
        }
        _ => {
            let run = 1 + numbers.below(64);
            let (a, b) = (numbers.below(length - run), numbers.below(length - run));
            exchange(file, a..a + run, b..b + run);
            format!("{run} bytes at {a} and {b} of shard {shard} exchanged")
        }
    }
}

fn exchange(file: &mut [u8], a: Range<usize>, b: Range<usize>) {
    let (first, second) = (file[a.clone()].to_vec(), file[b.clone()].to_vec());
    let length = first.len().min(second.len());
    file[a.start..a.start + length].copy_from_slice(&second[..length]);
    file[b.start..b.start + length].copy_from_slice(&first[..length]);
}

/// Tests that the head of its shard and the bytes of block `block` of the split are intact.
fn is_whole(dataset: &Dataset, files: &[Vec<u8>], block: usize) -> [bool; 2] {
    let shards = dataset.manifest.splits[0].shards.iter();
    let blocks = shards.enumerate().flat_map(|(shard, entry)| {
        let heads = entry.blocks.iter().map(move |_| 0..entry.blocks[0].offset);
        heads.zip(&entry.blocks).map(move |(head, block)| {
            let end = block.offset + u64::from(block.metadata_bytes) + block.body_bytes;
            (shard, head, block.offset..end)
        })
    });
    let (shard, head, body) = blocks.into_iter().nth(block).unwrap();
    [head, body].map(|range| {
        let range = usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap();
        files[shard].get(range.clone()) == dataset.files[shard].get(range)
    })
}

#[tokio::test]
async fn two_thousand_flips_cuts_and_exchanges_are_caught_before_delivery() {
    let target = TargetKind::Classification { classes: 5 };
    let datasets = [
        dataset(Layout::Dense {
            features: 3,
            target,
        })
        .await,
        dataset(Layout::Images { target }).await,
        dataset(Layout::Tokens {
            id: TokenType::U16,
            vocabulary: 100,
        })
        .await,
        dataset(Layout::Multi {
            features: 3,
            images: true,
            tokens: Some(RowTokens {
                id: TokenType::U32,
                vocabulary: 100,
                length: 24,
            }),
            target,
        })
        .await,
    ];
    let mut random = Numbers(7);
    let (mut caught, mut harmless) = (0, 0);
    for round in 0..CHANGES {
        let dataset = &datasets[usize::try_from(round).unwrap() % datasets.len()];
        let mut files: Vec<_> = dataset.files.iter().map(|file| file.to_vec()).collect();
        let what = change(&mut random, dataset, &mut files);
        let shards = &dataset.manifest.splits[0].shards;
        for (shard, file) in shards.iter().zip(&files) {
            dataset
                .damaged
                .put(&shard.path, file.clone().into())
                .await
                .unwrap();
        }
        let mut is_caught = false;
        for (block, read) in read(&dataset.store, &dataset.damaged)
            .await
            .into_iter()
            .enumerate()
        {
            // The head of one shard gives the columns of all that have the same.
            let [is_head_whole, is_whole] = is_whole(dataset, &files, block);
            match read {
                Ok(rows) => {
                    assert!(is_whole, "{round}: {what}: block {block} was handed out");
                    assert_eq!(rows, dataset.rows[block], "{round}: {what}");
                }
                Err(error) => {
                    assert!(
                        !is_whole || !is_head_whole,
                        "{round}: {what}: block {block} was refused: {error}"
                    );
                    is_caught = true;
                }
            }
        }
        if is_caught {
            caught += 1;
        } else {
            harmless += 1;
        }
    }
    assert_eq!(caught + harmless, CHANGES);
    // What did no harm hit the footer, or exchanged equal bytes.
    assert!(
        caught > CHANGES * 2 / 3,
        "{caught} caught, {harmless} harmless"
    );
}
