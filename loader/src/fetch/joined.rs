//! Extents that touch, as one request asks for them.
//!
//! The bytes of each go to memory of its own and are checked on their own, so that a block which came with others can be
//! refused, asked for again and given up without them.

use std::sync::Arc;

use super::{
    Extent,
    memory::{MemoryPool, PooledMemory},
};

/// Extents of a request.
#[derive(Clone, Debug)]
pub(super) struct Joined {
    /// All of it.
    pub(super) whole: Extent,
    /// Bytes of each extent.
    lengths: Vec<usize>,
}

/// The bytes of one of the extents, as far as they have come.
#[derive(Debug)]
pub(super) struct ExtentPiece {
    pub(super) memory: PooledMemory,
    /// CRC32C of what has come.
    pub(super) crc32c: u32,
}

/// The pieces of a request, filled from the first to the last.
#[derive(Debug)]
pub(super) struct JoinedPieces {
    pieces: Vec<ExtentPiece>,
    /// The one that is being filled, and the bytes in it.
    current: (usize, usize),
    /// Bytes in all of them.
    pub(super) filled: usize,
    bytes: usize,
}

impl From<&Extent> for Joined {
    fn from(extent: &Extent) -> Self {
        Self {
            whole: extent.clone(),
            lengths: vec![extent.bytes()],
        }
    }
}

impl Joined {
    /// The extents of `run`, which touch; `None` for none.
    pub(super) fn of(run: &[Extent]) -> Option<Self> {
        let (first, last) = (run.first()?, run.last()?);
        debug_assert!(run.is_sorted_by(|a, b| a.path == b.path && a.range.end == b.range.start));
        Some(Self {
            whole: Extent {
                range: first.range.start..last.range.end,
                crc32c: None,
                ..first.clone()
            },
            lengths: run.iter().map(Extent::bytes).collect(),
        })
    }

    /// Memory for all of it, and nothing in it yet.
    pub(super) fn pieces(&self, pool: &Arc<MemoryPool>) -> JoinedPieces {
        let piece = |bytes: &usize| ExtentPiece {
            memory: pool.take(*bytes),
            crc32c: 0,
        };
        JoinedPieces {
            pieces: self.lengths.iter().map(piece).collect(),
            current: (0, 0),
            filled: 0,
            bytes: self.lengths.iter().sum(),
        }
    }
}

impl JoinedPieces {
    /// Appends what came; `sum` adds it to a CRC32C while it is at hand. Nothing is taken of more than was asked for:
    /// `false` says so.
    pub(super) fn append(&mut self, mut bytes: &[u8], sum: impl Fn(u32, &[u8]) -> u32) -> bool {
        if bytes.len() > self.bytes - self.filled {
            return false;
        }
        self.filled += bytes.len();
        while !bytes.is_empty() {
            let (number, from) = self.current;
            let piece = &mut self.pieces[number];
            let place = &mut piece.memory.as_mut_slice()[from..];
            let (now, later) = bytes.split_at(place.len().min(bytes.len()));
            place[..now.len()].copy_from_slice(now);
            piece.crc32c = sum(piece.crc32c, now);
            self.current = if now.len() == place.len() {
                (number + 1, 0)
            } else {
                (number, from + now.len())
            };
            bytes = later;
        }
        true
    }

    /// Returns true if all bytes have arrived.
    pub(super) fn is_whole(&self) -> bool {
        self.filled == self.bytes
    }

    /// The pieces, in the order of the extents.
    pub(super) fn into_pieces(self) -> Vec<ExtentPiece> {
        self.pieces
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Identity, *};

    #[test]
    fn what_comes_is_cut_where_one_extent_ends_and_the_next_begins() {
        let bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
        let cuts = [0, 1, 1, 30_000, 65_536, 100_000];
        let extent = |cut: &[usize]| Extent {
            path: "x".into(),
            range: cut[0] as u64 + 7..cut[1] as u64 + 7,
            crc32c: None,
            identity: Identity::Checksum,
            first: 3,
        };
        let run: Vec<_> = cuts.windows(2).map(extent).collect();
        let joined = Joined::of(&run).unwrap();
        assert_eq!(
            (joined.whole.range.clone(), joined.whole.first),
            (7..100_007, 3)
        );
        for chunk in [1, 999, 30_000, 65_537, 100_000] {
            let mut pieces = joined.pieces(&Arc::default());
            for part in bytes.chunks(chunk) {
                assert!(!pieces.is_whole());
                assert!(pieces.append(part, crc32c::crc32c_append));
            }
            assert!(pieces.is_whole());
            assert!(
                !pieces.append(&[0], crc32c::crc32c_append),
                "it is more than was asked for"
            );
            for (piece, cut) in pieces.into_pieces().into_iter().zip(cuts.windows(2)) {
                let expected = &bytes[cut[0]..cut[1]];
                assert_eq!(piece.memory.as_ref(), expected);
                assert_eq!(piece.crc32c, crc32c::crc32c(expected));
            }
        }
        let mut pieces = joined.pieces(&Arc::default());
        assert!(!pieces.append(&[bytes.as_slice(), &[0]].concat(), crc32c::crc32c_append));
        assert_eq!(pieces.filled, 0);
    }
}
