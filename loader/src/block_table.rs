//! Block table of one split: the shard and offset of each block.
//!
//! Everything is in columns: for 10^6 shards with 10 blocks each they take about 10 bytes a block (2 for its rows, 4 for its
//! place, 4 for its checksum) and 40 a shard.

use std::{ops::Range, sync::Arc};

use feedline_schemas::manifest::{Block, Lengths, Shard, Split, SplitShards};

use crate::compact::{CompactNumbers, Names};

/// Number of a block in its split, in shard order, from 0; blocks without rows are not counted.
pub(crate) type BlockId = u32;

/// Most bytes before the first block of a shard: the schema, which is read whole.
const MOST_HEAD_BYTES: u64 = 16 << 20;

/// A checksum is known: this and the checksum. Otherwise 0.
const KNOWN: u64 = 1 << 32;

/// The blocks of a split, in shard order.
#[derive(Clone, Debug, Default)]
pub(crate) struct BlockTable {
    shards: TableShards,
    blocks: Blocks,
    samples: u64,
    bytes: u64,
    /// Rows of shards that were left out.
    skipped_rows: u64,
}

/// Of every shard.
#[derive(Clone, Debug, Default)]
struct TableShards {
    paths: Names,
    bytes: CompactNumbers,
    /// First block of each, and at the end the number of blocks.
    firsts: Vec<BlockId>,
    /// Bytes before the first block, and [`KNOWN`] checksums of them.
    heads: CompactNumbers,
    head_sums: CompactNumbers,
    /// End of the last block with rows.
    ends: CompactNumbers,
    /// Empty where there are none.
    lengths: Names,
    lengths_sums: CompactNumbers,
}

/// Of every block with rows.
#[derive(Clone, Debug, Default)]
struct Blocks {
    rows: Arc<CompactNumbers>,
    offsets: CompactNumbers,
    metadata: CompactNumbers,
    /// Bytes between its end and the next block of its shard: mostly none, so that offsets give
    /// lengths.
    gaps: CompactNumbers,
    sums: CompactNumbers,
    /// One more than its tokens, or 0 where that is not known.
    tokens: CompactNumbers,
    /// Blocks without rows before it in its shard.
    passed_over: CompactNumbers,
}

impl BlockTable {
    /// Checks the block table of `split` against itself and sums it up.
    ///
    /// # Errors
    /// Description of the contradiction in the manifest.
    pub(crate) fn new(split: &SplitShards) -> Result<Self, String> {
        let mut block_table = Self::default();
        for shard in &split.shards {
            block_table.push(shard)?;
        }
        block_table.finish(split.split, split.rows)
    }

    /// Checks a shard against itself and appends it.
    ///
    /// # Errors
    /// Description of the contradiction in the manifest.
    pub(crate) fn push(&mut self, shard: &Shard) -> Result<(), String> {
        check_shard(shard)?;
        if self.blocks.rows.len() + shard.blocks.len() >= BlockId::MAX as usize {
            return Err("it has 2^32 blocks or more".into());
        }
        let of = &mut self.shards;
        of.firsts.push(first_of(&self.blocks));
        of.paths.push(&shard.path);
        of.bytes.push(shard.bytes);
        of.heads
            .push(shard.blocks.first().map_or(0, |first| first.offset));
        of.head_sums
            .push(shard.head_crc32c.map_or(0, |sum| KNOWN | u64::from(sum)));
        let lengths = shard.lengths.as_ref();
        of.lengths.push(lengths.map_or("", |l| &l.path));
        of.lengths_sums.push(lengths.map_or(0, |l| l.crc32c.into()));
        let end = self.blocks.push_all(shard);
        of.ends.push(end);
        self.samples += shard.rows;
        self.bytes += shard.blocks.iter().map(Block::bytes).sum::<u64>();
        Ok(())
    }

    /// Leaves out an incomplete shard.
    pub(crate) fn skip(&mut self, shard: &Shard) {
        self.skipped_rows += shard.rows;
    }

    /// Compares the sum of all shards with what the split says.
    ///
    /// # Errors
    /// They differ.
    pub(crate) fn finish(mut self, split: Split, rows: u64) -> Result<Self, String> {
        let found = self.samples + self.skipped_rows;
        if found != rows {
            return Err(format!(
                "split `{split}` says `{rows}` rows and its blocks hold `{found}`"
            ));
        }
        self.shards.firsts.push(first_of(&self.blocks));
        self.shards.shrink();
        self.blocks.shrink();
        Ok(self)
    }

    /// Samples in the split.
    pub(crate) fn samples(&self) -> u64 {
        self.samples
    }

    /// Bytes of all blocks.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Blocks with rows.
    pub(crate) fn block_count(&self) -> u32 {
        first_of(&self.blocks)
    }

    /// Number of shards, those without rows included.
    pub(crate) fn shard_count(&self) -> usize {
        self.shards.bytes.len()
    }

    /// Number of the shard that holds a block.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "there are at most as many shards with blocks as blocks"
    )]
    pub(crate) fn file_number(&self, block: BlockId) -> u32 {
        let firsts = &self.shards.firsts;
        (firsts.partition_point(|first| *first <= block) - 1) as u32
    }

    /// Path of a shard, relative to the dataset folder.
    pub(crate) fn path(&self, shard: u32) -> String {
        self.shards.paths.get(shard as usize)
    }

    /// Size that the file of a shard should have.
    pub(crate) fn shard_bytes(&self, shard: u32) -> u64 {
        self.shards.bytes.get(shard as usize)
    }

    /// Bytes before the first block of a shard, and their checksum.
    pub(crate) fn head(&self, shard: u32) -> (u64, Option<u32>) {
        let sum = known(self.shards.head_sums.get(shard as usize));
        (self.shards.heads.get(shard as usize), sum)
    }

    /// File of the lengths of a shard's documents.
    pub(crate) fn lengths(&self, shard: u32) -> Option<Lengths> {
        let path = self.shards.lengths.get(shard as usize);
        (!path.is_empty()).then(|| Lengths {
            path,
            crc32c: narrow(self.shards.lengths_sums.get(shard as usize)),
        })
    }

    /// The blocks with rows of a shard.
    pub(crate) fn blocks_of(&self, shard: u32) -> Range<BlockId> {
        self.shards.firsts[shard as usize]..self.shards.firsts[shard as usize + 1]
    }

    /// A block's number in its shard.
    pub(crate) fn number(&self, block: BlockId) -> u32 {
        let first = self.blocks_of(self.file_number(block)).start;
        block - first + narrow(self.blocks.passed_over.get(block as usize))
    }

    /// A block as the manifest describes it.
    pub(crate) fn block(&self, block: BlockId) -> Block {
        let (range, at) = (self.byte_range(block), block as usize);
        let metadata_bytes = self.blocks.metadata.get(at);
        Block {
            offset: range.start,
            metadata_bytes: narrow(metadata_bytes),
            body_bytes: range.end - range.start - metadata_bytes,
            rows: self.rows(block),
            crc32c: self.crc32c(block),
            tokens: self.tokens(block),
        }
    }

    /// Samples in a block.
    pub(crate) fn rows(&self, block: BlockId) -> u32 {
        narrow(self.blocks.rows.get(block as usize))
    }

    /// Samples in every block.
    pub(crate) fn all_rows(&self) -> &Arc<CompactNumbers> {
        &self.blocks.rows
    }

    /// Checksum of a block.
    pub(crate) fn crc32c(&self, block: BlockId) -> u32 {
        narrow(self.blocks.sums.get(block as usize))
    }

    /// Token ids in a block, if that is known before it is read.
    pub(crate) fn tokens(&self, block: BlockId) -> Option<u64> {
        self.blocks.tokens.get(block as usize).checked_sub(1)
    }

    /// First block of every extent, and the number of blocks: runs of blocks of one shard with up to `bytes` from the
    /// first byte to the last. None when every block is alone.
    pub(crate) fn extents(&self, bytes: u64) -> Option<Vec<BlockId>> {
        let mut firsts = Vec::new();
        for (shard, blocks) in self.shards.firsts.windows(2).enumerate() {
            let mut from = None;
            for block in blocks[0]..blocks[1] {
                let range = self.range_in(shard, block);
                if from.is_none_or(|from| range.end - from > bytes) {
                    firsts.push(block);
                    from = Some(range.start);
                }
            }
        }
        if firsts.len() == self.block_count() as usize {
            return None;
        }
        firsts.push(self.block_count());
        Some(firsts)
    }

    /// Returns true if the blocks from `first` to `next` follow each other in one shard without a
    /// gap before `next`, and are together no longer than `bytes`.
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

    /// Byte range of a block in its shard: metadata and body.
    pub(crate) fn byte_range(&self, block: BlockId) -> Range<u64> {
        self.range_in(self.file_number(block) as usize, block)
    }

    fn range_in(&self, shard: usize, block: BlockId) -> Range<u64> {
        let at = block as usize;
        let next = if block + 1 < self.shards.firsts[shard + 1] {
            self.blocks.offsets.get(at + 1)
        } else {
            self.shards.ends.get(shard)
        };
        self.blocks.offsets.get(at)..next - self.blocks.gaps.get(at)
    }
}

impl TableShards {
    fn shrink(&mut self) {
        self.firsts.shrink_to_fit();
        self.paths.shrink();
        self.lengths.shrink();
        for column in [
            &mut self.bytes,
            &mut self.heads,
            &mut self.head_sums,
            &mut self.ends,
            &mut self.lengths_sums,
        ] {
            column.shrink();
        }
    }
}

impl Blocks {
    /// Appends the blocks with rows of a shard. Returns where the last of them ends.
    fn push_all(&mut self, shard: &Shard) -> u64 {
        let rows = Arc::make_mut(&mut self.rows);
        let mut end = None;
        let mut empty = 0;
        for block in &shard.blocks {
            if block.rows == 0 {
                empty += 1;
                continue;
            }
            if let Some(end) = end {
                self.gaps.push(block.offset - end);
            }
            end = Some(block.offset + block.bytes());
            rows.push(block.rows.into());
            self.offsets.push(block.offset);
            self.metadata.push(block.metadata_bytes.into());
            self.sums.push(block.crc32c.into());
            self.tokens
                .push(block.tokens.map_or(0, |tokens| tokens.saturating_add(1)));
            self.passed_over.push(empty);
        }
        if end.is_some() {
            self.gaps.push(0);
        }
        end.unwrap_or(0)
    }

    fn shrink(&mut self) {
        Arc::make_mut(&mut self.rows).shrink();
        for column in [
            &mut self.offsets,
            &mut self.metadata,
            &mut self.gaps,
            &mut self.sums,
            &mut self.tokens,
            &mut self.passed_over,
        ] {
            column.shrink();
        }
    }
}

/// Number of the block that comes next.
#[expect(
    clippy::cast_possible_truncation,
    reason = "`BlockTable::push` refuses more than `BlockId` counts"
)]
fn first_of(blocks: &Blocks) -> BlockId {
    blocks.rows.len() as u32
}

fn known(sum: u64) -> Option<u32> {
    sum.checked_sub(KNOWN).map(narrow)
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "columns hold it in 64 bits, it had 32 when it was put there"
)]
fn narrow(number: u64) -> u32 {
    number as u32
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
#[path = "block_table/tests.rs"]
pub(crate) mod tests;
