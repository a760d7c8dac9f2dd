//! Tests of the blocks of a split, and splits for the tests of others.

use feedline_schemas::{ids::Hash128, manifest::Split};

use super::*;

/// A split whose shards have blocks of these numbers of rows.
pub(crate) fn split_of(shards: &[&[u32]]) -> SplitShards {
    let shards: Vec<_> = shards
        .iter()
        .enumerate()
        .map(|(i, rows)| shard_of(&format!("s{i}"), rows))
        .collect();
    SplitShards {
        split: Split::Train,
        rows: shards.iter().map(|s| s.rows).sum(),
        shards,
        table: None,
    }
}

/// The block table of [`split_of`].
pub(crate) fn block_table_of(shards: &[&[u32]]) -> BlockTable {
    BlockTable::new(&split_of(shards)).unwrap()
}

fn shard_of(path: &str, rows: &[u32]) -> Shard {
    let mut offset = 64;
    let blocks: Vec<_> = rows
        .iter()
        .map(|rows| {
            let block = Block {
                offset,
                metadata_bytes: 64,
                body_bytes: u64::from(*rows) * 4,
                rows: *rows,
                crc32c: 0,
                tokens: None,
            };
            offset += 64 + block.body_bytes;
            block
        })
        .collect();
    let rows = blocks.iter().map(|b| u64::from(b.rows)).sum();
    Shard {
        path: path.into(),
        rows,
        bytes: offset,
        hash: Hash128::new(0),
        blocks,
        head_crc32c: None,
        lengths: None,
    }
}

#[test]
fn blocks_without_rows_are_not_counted() {
    let block_table = block_table_of(&[&[3, 0, 1], &[], &[2]]);
    assert_eq!(
        (
            block_table.samples(),
            block_table.block_count(),
            block_table.shard_count()
        ),
        (6, 3, 3)
    );
    let rows: Vec<_> = (0..3).map(|block| block_table.rows(block)).collect();
    assert_eq!(rows, [3, 1, 2]);
    let files: Vec<_> = (0..3).map(|block| block_table.file_number(block)).collect();
    assert_eq!(files, [0, 0, 2]);
    assert_eq!(block_table.path(2), "s2");
    let numbers: Vec<_> = (0..3).map(|block| block_table.number(block)).collect();
    assert_eq!(numbers, [0, 2, 0]);
    assert_eq!(block_table.byte_range(1), 204..272);
    assert_eq!(block_table.bytes(), 76 + 64 + 68 + 72);
}

/// Blocks of all kinds: with gaps, without rows, with tokens, in shards with and without what is optional.
#[test]
fn every_block_comes_back_as_it_was_described() {
    let mut split = split_of(&[&[3, 0, 0, 70_000], &[], &[0], &[2, 2], &[9]]);
    split.shards[0].blocks[3].tokens = Some(u64::MAX >> 1);
    split.shards[0].blocks[3].offset += 8;
    split.shards[0].bytes += 80;
    split.shards[3].lengths = Some(Lengths {
        path: "s3.lengths".into(),
        crc32c: u32::MAX,
    });
    for (number, shard) in (0..).zip(&mut split.shards) {
        shard.head_crc32c = (number % 2 == 0).then_some(number << 30);
        for block in &mut shard.blocks {
            block.crc32c = block.rows ^ u32::MAX;
        }
    }
    let block_table = BlockTable::new(&split).unwrap();
    let mut block = 0;
    for (number, shard) in (0..).zip(&split.shards) {
        assert_eq!(block_table.path(number), shard.path);
        assert_eq!(block_table.shard_bytes(number), shard.bytes);
        let head = shard.blocks.first().map_or(0, |first| first.offset);
        assert_eq!(block_table.head(number), (head, shard.head_crc32c));
        assert_eq!(block_table.lengths(number), shard.lengths);
        let first = block;
        for (in_shard, expected) in (0..).zip(&shard.blocks).filter(|(_, b)| b.rows > 0) {
            assert_eq!(&block_table.block(block), expected);
            assert_eq!(block_table.number(block), in_shard);
            assert_eq!(block_table.file_number(block), number);
            block += 1;
        }
        assert_eq!(block_table.blocks_of(number), first..block);
    }
    assert_eq!(block_table.block_count(), block);
}

/// 10^10 samples in 10^6 shards of 10 blocks each must fit in 200 MB, with the order and what else a process has.
#[test]
fn fault_36_a_million_shards_of_ten_blocks_fit_in_memory() {
    const SHARDS: usize = 20_000;
    let mut block_table = BlockTable::default();
    for number in 0..SHARDS {
        let rows = [1100, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 900];
        let mut shard = shard_of(
            &format!("shards/train/{number:05}-0123456789abcdef.arrow"),
            &rows,
        );
        for (at, block) in shard.blocks.iter_mut().enumerate() {
            block.crc32c = crc32c::crc32c(&[number.to_le_bytes(), at.to_le_bytes()].concat());
            block.body_bytes -= number as u64 % 3;
        }
        shard.head_crc32c = Some(17);
        block_table.push(&shard).unwrap();
    }
    let block_table = block_table
        .finish(Split::Train, SHARDS as u64 * 10_000)
        .unwrap();
    assert_eq!(block_table.block_count() as usize, 10 * SHARDS);
    let most = SHARDS * (10 * (4 + 2 + 4 + 2) + 22 + 3 * 4);
    let held = held_bytes(&block_table);
    assert!(held <= most, "{held} bytes of {most}");
    assert!(held / SHARDS * 1_000_000 < 160_000_000, "{held} bytes");
}

#[test]
fn extents_are_runs_of_blocks_of_one_shard() {
    // Blocks of 3 rows take 76 bytes.
    let block_table = block_table_of(&[&[3, 3, 3, 0, 3], &[3, 3], &[500, 3]]);
    assert_eq!(block_table.extents(0), None);
    assert_eq!(block_table.extents(151), None);
    assert_eq!(block_table.extents(152), Some(vec![0, 2, 3, 4, 6, 7, 8]));
    assert_eq!(block_table.extents(1 << 20), Some(vec![0, 4, 6, 8]));
    assert_eq!(block_table.requests(151), 8);
    assert_eq!(block_table.requests(152), 6);
    // A block without rows is not read, and what is behind it does not touch what is before.
    assert_eq!(block_table.requests(1 << 20), 4);
}

#[test]
fn a_block_table_that_contradicts_itself_is_refused() {
    let refuse = |change: fn(&mut SplitShards), message: &str| {
        let mut split = split_of(&[&[3, 1], &[2]]);
        change(&mut split);
        assert_eq!(BlockTable::new(&split).unwrap_err(), message);
    };
    refuse(
        |s| s.rows = 7,
        "split `train` says `7` rows and its blocks hold `6`",
    );
    refuse(
        |s| s.shards[0].rows = 5,
        "shard `s0` says `5` rows and its blocks hold `4`",
    );
    refuse(
        |s| s.shards[1].path = "../x".into(),
        "shard path `../x` does not stay inside the dataset folder",
    );
    refuse(
        |s| s.shards[1].path = "/x".into(),
        "shard path `/x` does not stay inside the dataset folder",
    );
    refuse(
        |s| s.shards[0].blocks[1].offset -= 1,
        "block `1` of shard `s0` overlaps another or ends after the shard's `208` bytes",
    );
    refuse(
        |s| s.shards[0].bytes -= 1,
        "block `1` of shard `s0` overlaps another or ends after the shard's `207` bytes",
    );
    refuse(
        |s| s.shards[0].blocks[1].body_bytes = u64::MAX,
        "block `1` of shard `s0` overlaps another or ends after the shard's `208` bytes",
    );
    refuse(
        |s| s.shards[0].blocks[0].metadata_bytes = 7,
        "block `0` of shard `s0` has a metadata length of `7` bytes",
    );
}

/// Bytes held.
fn held_bytes(block_table: &BlockTable) -> usize {
    let TableShards {
        paths,
        bytes,
        firsts,
        heads,
        head_sums,
        ends,
        lengths,
        lengths_sums,
    } = &block_table.shards;
    let shards = [bytes, heads, head_sums, ends, lengths_sums];
    let of = &block_table.blocks;
    let blocks = [
        &*of.rows,
        &of.offsets,
        &of.metadata,
        &of.gaps,
        &of.sums,
        &of.tokens,
    ];
    let numbers = shards.into_iter().chain(blocks).map(CompactNumbers::bytes);
    let names = paths.bytes() + lengths.bytes();
    numbers.sum::<usize>() + names + 4 * firsts.capacity() + of.passed_over.bytes()
}
