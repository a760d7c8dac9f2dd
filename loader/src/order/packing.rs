//! Documents packed into bins of equal length, from their lengths alone.
//!
//! A document longer than a bin is split into full bins and a rest. The documents and rests of one
//! extent are put into bins by best fit decreasing: longest first, ties in stored order, each into
//! the fullest bin that has room, a new one if none has. Pieces of a document may overlap by one
//! token, where each but the first is to be predicted. Otherwise every token is in exactly one
//! place of one bin. The number of bins of an extent does not depend on the epoch: bins are then
//! dealt and shuffled like rows.
//!
//! Counting the bins takes about 100 ns a document, once when a loader is opened; afterwards four bytes for each block
//! are kept, and the bins of a window, 16 bytes a document, while it is in use.

use std::{fmt, sync::Arc};

use super::blocks::Blocks;
use crate::{block_table::BlockId, index::index};

/// Lengths of documents.
pub(crate) trait Lengths: fmt::Debug + Send + Sync {
    /// Appends the tokens of each document of `block`, in row order.
    fn append(&self, block: BlockId, lengths: &mut Vec<u32>);
}

/// A part of a bin: some tokens of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BinPiece {
    /// Index of the document's block among [`ShuffleWindow::blocks`](super::ShuffleWindow::blocks).
    pub(crate) block: u32,
    /// The document's row in the block.
    pub(crate) row: u32,
    /// First token, counted in the document.
    pub(crate) start: u32,
    /// Number of tokens, at least 1.
    pub(crate) len: u32,
}

/// A source's documents in bins.
#[derive(Debug)]
pub(crate) struct PackedBins {
    bin_tokens: u32,
    /// Tokens that a piece of a document shares with the next, 0 or 1.
    overlap: u32,
    lengths: Arc<dyn Lengths>,
    /// Bins of each extent, as rows of its first block.
    blocks: Arc<Blocks>,
}

/// Some bins.
#[derive(Debug, Default)]
pub(crate) struct Bins {
    pieces: Vec<BinPiece>,
    /// Pieces up to the end of each bin.
    ends: Vec<u32>,
}

impl PackedBins {
    /// Packs the documents of the extents of `documents`, whose rows are documents, into bins of `bin_tokens`, at least
    /// 1 and at most 2^24. Pieces of a document share `overlap` tokens, fewer than a bin has.
    pub(crate) fn new(
        documents: &Blocks,
        lengths: Arc<dyn Lengths>,
        (bin_tokens, overlap): (u32, u32),
    ) -> Self {
        let mut packer = Packer::new(bin_tokens, overlap);
        let mut rows = vec![0; index(documents.block_count().into())];
        for unit in 0..documents.unit_count() {
            let blocks = documents.unit(unit);
            rows[blocks.start as usize] = packer.pack(&*lengths, blocks.clone(), 0).count();
        }
        Self {
            bin_tokens,
            overlap,
            lengths,
            blocks: Arc::new(documents.with_rows(rows)),
        }
    }

    /// Bins of each extent, as rows of its first block.
    pub(crate) fn blocks(&self) -> &Arc<Blocks> {
        &self.blocks
    }

    /// A packer of bins like these.
    pub(crate) fn packer(&self) -> Packer {
        Packer::new(self.bin_tokens, self.overlap)
    }

    /// The bins of a unit; the first of its blocks is `index` in the window.
    pub(crate) fn pack(&self, packer: &mut Packer, unit: u32, index: u32) -> Bins {
        packer.pack(&*self.lengths, self.blocks.unit(unit), index)
    }
}

impl Bins {
    /// Number of bins.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a bin has a piece, and pieces are counted in 32 bits"
    )]
    pub(crate) fn count(&self) -> u32 {
        self.ends.len() as u32
    }

    /// The pieces of a bin.
    pub(crate) fn bin(&self, number: usize) -> &[BinPiece] {
        let start = number.checked_sub(1).map_or(0, |n| self.ends[n]);
        &self.pieces[start as usize..self.ends[number] as usize]
    }

    /// Appends other bins.
    pub(crate) fn extend(&mut self, other: &Self) {
        let before = u32::try_from(self.pieces.len()).expect("a window's pieces fit in 32 bits");
        self.pieces.extend_from_slice(&other.pieces);
        self.ends.extend(other.ends.iter().map(|end| before + end));
    }
}

/// Packs one extent after another, in memory that is used again.
#[derive(Debug)]
pub(crate) struct Packer {
    bin_tokens: u32,
    overlap: u32,
    lengths: Vec<u32>,
    /// Pieces, and the bin of each.
    pieces: Vec<(BinPiece, u32)>,
    /// First open bin with as much space left as its place says, and whether there is one, a bit each.
    first_with: Vec<u32>,
    occupied: Vec<u64>,
    /// Next open bin with the same space left.
    next: Vec<u32>,
}

const NO_BIN: u32 = u32::MAX;

impl Packer {
    fn new(bin_tokens: u32, overlap: u32) -> Self {
        let spaces = bin_tokens as usize + 1;
        Self {
            bin_tokens,
            overlap,
            lengths: Vec::new(),
            pieces: Vec::new(),
            first_with: vec![NO_BIN; spaces],
            occupied: vec![0; spaces.div_ceil(64)],
            next: Vec::new(),
        }
    }

    fn pack(
        &mut self,
        lengths: &dyn Lengths,
        blocks: std::ops::Range<BlockId>,
        index: u32,
    ) -> Bins {
        self.pieces.clear();
        self.next.clear();
        for (block, at) in blocks.zip(index..) {
            self.lengths.clear();
            lengths.append(block, &mut self.lengths);
            for row in 0..self.lengths.len() {
                self.cut(at, row);
            }
        }
        // Stable, so that ties stay in stored order.
        self.pieces
            .sort_by_key(|(piece, _)| std::cmp::Reverse(piece.len));
        for at in 0..self.pieces.len() {
            self.pieces[at].1 = self.best_fit(self.pieces[at].0.len);
        }
        self.pieces.sort_by_key(|(_, bin)| *bin);
        let bins = self.bins();
        self.first_with.fill(NO_BIN);
        self.occupied.fill(0);
        bins
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "a block has fewer than 2^32 rows"
    )]
    fn cut(&mut self, block: u32, row: usize) {
        let length = self.lengths[row];
        let mut start = 0;
        while start < length {
            let len = (length - start).min(self.bin_tokens);
            let piece = BinPiece {
                block,
                row: row as u32,
                start,
                len,
            };
            self.pieces.push((piece, NO_BIN));
            let end = start + len;
            if end == length {
                break;
            }
            start = end - self.overlap;
        }
    }

    /// Puts a piece into a bin.
    fn best_fit(&mut self, len: u32) -> u32 {
        let (bin, space) = match self.space_from(len) {
            Some(space) => {
                let bin = self.first_with[space as usize];
                self.first_with[space as usize] = self.next[bin as usize];
                if self.next[bin as usize] == NO_BIN {
                    self.occupied[space as usize / 64] &= !(1 << (space % 64));
                }
                (bin, space)
            }
            None => {
                let bin = u32::try_from(self.next.len()).expect("a piece each, counted in 32 bits");
                self.next.push(NO_BIN);
                (bin, self.bin_tokens)
            }
        };
        let left = (space - len) as usize;
        self.next[bin as usize] = self.first_with[left];
        self.first_with[left] = bin;
        self.occupied[left / 64] |= 1 << (left % 64);
        bin
    }

    /// The least space of at least `len` that an open bin has left.
    fn space_from(&self, len: u32) -> Option<u32> {
        let first = len as usize / 64;
        let masked = self.occupied[first] & (u64::MAX << (len % 64));
        let later = self.occupied[first + 1..].iter().copied();
        std::iter::once(masked)
            .chain(later)
            .zip(len / 64..)
            .find(|(bits, _)| *bits != 0)
            .map(|(bits, word)| word * 64 + bits.trailing_zeros())
    }

    fn bins(&self) -> Bins {
        let mut bins = Bins::default();
        for (piece, bin) in &self.pieces {
            bins.pieces.push(*piece);
            let end = u32::try_from(bins.pieces.len()).expect("pieces are counted in 32 bits");
            if *bin == bins.count() {
                bins.ends.push(end);
            } else {
                bins.ends[*bin as usize] = end;
            }
        }
        bins
    }
}
