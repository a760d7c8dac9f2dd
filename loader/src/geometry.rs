//! Which block lies where in which shard: the blocks of one split.

use std::ops::Range;

use feedline_schemas::manifest::{Block, Shard, SplitShards};

/// Number of a block in its split, in shard order, from 0; blocks without rows are not counted.
pub(crate) type BlockId = u32;

/// Most bytes before the first block of a shard: the schema, which is read whole.
const MOST_HEAD_BYTES: u64 = 16 << 20;

/// The blocks of a split, in shard order.
#[derive(Clone, Debug)]
pub(crate) struct Geometry {
    shards: Vec<Shard>,
    /// Shard and index in the shard, of every block.
    blocks: Vec<(u32, u32)>,
    samples: u64,
}

impl Geometry {
    /// Checks the block table of `split` against itself and sums it up.
    ///
    /// # Errors
    /// What in the manifest does not fit together.
    pub(crate) fn new(split: &SplitShards) -> Result<Self, String> {
        let mut geometry = Self {
            shards: split.shards.clone(),
            blocks: Vec::new(),
            samples: 0,
        };
        let mut samples = 0;
        for (shard_number, shard) in (0..).zip(&split.shards) {
            check_shard(shard)?;
            for (block_number, block) in (0..).zip(&shard.blocks) {
                if block.rows > 0 {
                    samples += u64::from(block.rows);
                    geometry.blocks.push((shard_number, block_number));
                }
            }
        }
        if samples != split.rows {
            return Err(format!(
                "split `{}` says `{}` rows and its blocks hold `{samples}`",
                split.split, split.rows
            ));
        }
        geometry.samples = samples;
        match BlockId::try_from(geometry.blocks.len()) {
            Ok(_) => Ok(geometry),
            Err(_) => Err(format!("split `{}` has more than 2^32 blocks", split.split)),
        }
    }

    /// Samples in the split.
    pub(crate) fn samples(&self) -> u64 {
        self.samples
    }

    /// Blocks with rows.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "`new` refuses more than `BlockId` counts"
    )]
    pub(crate) fn block_count(&self) -> u32 {
        self.blocks.len() as u32
    }

    /// The shard of a block and its number among the shards.
    pub(crate) fn shard(&self, block: BlockId) -> (&Shard, usize) {
        let number = self.blocks[block as usize].0 as usize;
        (&self.shards[number], number)
    }

    /// Number of the shard that holds a block.
    pub(crate) fn file_number(&self, block: BlockId) -> u32 {
        self.blocks[block as usize].0
    }

    /// A block's entry in the block table and its number in the shard.
    pub(crate) fn block(&self, block: BlockId) -> (&Block, u32) {
        let (shard, number) = self.blocks[block as usize];
        (&self.shards[shard as usize].blocks[number as usize], number)
    }

    /// Number of shards, those without rows included.
    #[cfg(test)]
    pub(crate) fn shard_count(&self) -> usize {
        self.shards.len()
    }

    /// Samples in a block.
    pub(crate) fn rows(&self, block: BlockId) -> u32 {
        self.block(block).0.rows
    }

    /// First block of every extent, and the number of blocks: runs of blocks of one shard with up to `bytes` from the
    /// first byte to the last. None when every block is alone.
    pub(crate) fn extents(&self, bytes: u64) -> Option<Vec<BlockId>> {
        let mut firsts = Vec::new();
        let mut open: Option<(u32, u64)> = None;
        for block in 0..self.block_count() {
            let (shard, range) = (self.blocks[block as usize].0, self.byte_range(block));
            let fits = open.is_some_and(|(of, from)| of == shard && range.end - from <= bytes);
            if !fits {
                firsts.push(block);
                open = Some((shard, range.start));
            }
        }
        if firsts.len() == self.blocks.len() {
            return None;
        }
        firsts.push(self.block_count());
        Some(firsts)
    }

    /// Whether the blocks from `first` to `next` follow each other in one shard without a gap before `next`, and are
    /// together no longer than `bytes`.
    pub(crate) fn joins(&self, first: BlockId, next: BlockId, bytes: u64) -> bool {
        let range = self.byte_range(next);
        first < next
            && self.file_number(first) == self.file_number(next)
            && self.byte_range(next - 1).end == range.start
            && range.end - self.byte_range(first).start <= bytes
    }

    /// Requests for all blocks when those that touch are asked for together, up to `joined_bytes` at a time.
    pub(crate) fn requests(&self, joined_bytes: u64) -> u64 {
        let mut first = None;
        let mut requests = 0;
        for block in 0..self.block_count() {
            if !first.is_some_and(|first| self.joins(first, block, joined_bytes)) {
                first = Some(block);
                requests += 1;
            }
        }
        requests
    }

    /// Where a block lies in its shard: metadata and body.
    pub(crate) fn byte_range(&self, block: BlockId) -> Range<u64> {
        let block = self.block(block).0;
        block.offset..block.offset + u64::from(block.metadata_bytes) + block.body_bytes
    }
}

fn check_shard(shard: &Shard) -> Result<(), String> {
    let path = &shard.path;
    if path.is_empty()
        || path
            .split('/')
            .any(|segment| matches!(segment, "" | "." | ".."))
    {
        return Err(format!(
            "shard path `{path}` does not stay inside the dataset folder"
        ));
    }
    let rows: u64 = shard.blocks.iter().map(|block| u64::from(block.rows)).sum();
    if rows != shard.rows {
        return Err(format!(
            "shard `{path}` says `{}` rows and its blocks hold `{rows}`",
            shard.rows
        ));
    }
    if let Some(first) = shard
        .blocks
        .first()
        .filter(|first| first.offset > MOST_HEAD_BYTES)
    {
        return Err(format!(
            "shard `{path}` has a head of `{}` bytes, more than `{MOST_HEAD_BYTES}`",
            first.offset
        ));
    }
    let mut free_from = 0;
    for (number, block) in shard.blocks.iter().enumerate() {
        let end = block
            .offset
            .checked_add(u64::from(block.metadata_bytes))
            .and_then(|end| end.checked_add(block.body_bytes))
            .filter(|end| {
                block.offset >= free_from && *end <= shard.bytes && i64::try_from(*end).is_ok()
            });
        let Some(end) = end else {
            return Err(format!(
                "block `{number}` of shard `{path}` overlaps another or ends after the shard's `{}` bytes",
                shard.bytes
            ));
        };
        if (1..8).contains(&block.metadata_bytes) || i32::try_from(block.metadata_bytes).is_err() {
            return Err(format!(
                "block `{number}` of shard `{path}` has a metadata length of `{}` bytes",
                block.metadata_bytes
            ));
        }
        free_from = end;
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
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
        }
    }

    /// The geometry of [`split_of`].
    pub(crate) fn geometry_of(shards: &[&[u32]]) -> Geometry {
        Geometry::new(&split_of(shards)).unwrap()
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
        let geometry = geometry_of(&[&[3, 0, 1], &[], &[2]]);
        assert_eq!(
            (
                geometry.samples(),
                geometry.block_count(),
                geometry.shard_count()
            ),
            (6, 3, 3)
        );
        let rows: Vec<_> = (0..3).map(|block| geometry.rows(block)).collect();
        assert_eq!(rows, [3, 1, 2]);
        assert_eq!(
            (geometry.shard(2).0.path.as_str(), geometry.block(1).1),
            ("s2", 2)
        );
        assert_eq!(geometry.byte_range(1), 204..272);
    }

    #[test]
    fn extents_are_runs_of_blocks_of_one_shard() {
        // Blocks of 3 rows take 76 bytes.
        let geometry = geometry_of(&[&[3, 3, 3, 0, 3], &[3, 3], &[500, 3]]);
        assert_eq!(geometry.extents(0), None);
        assert_eq!(geometry.extents(151), None);
        assert_eq!(geometry.extents(152), Some(vec![0, 2, 3, 4, 6, 7, 8]));
        assert_eq!(geometry.extents(1 << 20), Some(vec![0, 4, 6, 8]));
        assert_eq!(geometry.requests(151), 8);
        assert_eq!(geometry.requests(152), 6);
        // A block without rows is not read, and what is behind it does not touch what is before.
        assert_eq!(geometry.requests(1 << 20), 4);
    }

    #[test]
    fn a_block_table_that_contradicts_itself_is_refused() {
        let refuse = |change: fn(&mut SplitShards), message: &str| {
            let mut split = split_of(&[&[3, 1], &[2]]);
            change(&mut split);
            assert_eq!(Geometry::new(&split).unwrap_err(), message);
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
}
