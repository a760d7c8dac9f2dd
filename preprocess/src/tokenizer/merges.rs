//! Merges of pairs: from the bytes of a word to ids.
//!
//! Of all neighbours with a known merge, those of the merge learnt first are merged, the leftmost
//! first, until none is left (Sennrich, Haddow, Birch 2016, arXiv 1508.07909, algorithm 1,
//! applied). A short word is scanned again for each merge; a long one keeps its pairs in a heap, so
//! that one word of many megabytes takes `n log n` steps.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    hash::{BuildHasherDefault, Hasher},
};

/// Longest word that is gone through again for each merge, in bytes.
const SHORT: usize = 48;

/// Parts of a word that memory is kept for.
const KEPT: usize = 1 << 16;

const NO_RANK: u32 = u32::MAX;
const NONE: u32 = u32::MAX;

/// Merge of two neighbours.
#[derive(Clone, Copy, Debug)]
struct Merge {
    rank: u32,
    id: u32,
}

/// The merges of a vocabulary.
#[derive(Debug)]
pub(super) struct Merges {
    /// Id of each byte.
    bytes: [u32; 256],
    pairs: HashMap<u64, Merge, BuildHasherDefault<PairHasher>>,
}

/// Memory of a thread that merges.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    parts: Vec<Part>,
    heap: BinaryHeap<Reverse<(u32, u32)>>,
}

impl Scratch {
    /// Gives back what one very long word took.
    pub(super) fn shrink(&mut self) {
        self.parts.clear();
        self.parts.shrink_to(KEPT);
        self.heap.clear();
        self.heap.shrink_to(KEPT);
    }
}

#[derive(Clone, Copy, Debug)]
struct Part {
    id: u32,
    /// Merge with the following part; [`NO_RANK`] if the two do not merge.
    with_next: Merge,
    /// Long words: the neighbours, [`NONE`] at the ends.
    before: u32,
    next: u32,
}

impl Merges {
    /// `merges`, first learnt first: left and right id, and the id they become.
    pub(super) fn new(bytes: [u32; 256], merges: impl Iterator<Item = [u32; 3]>) -> Self {
        let ranked = merges.zip(0..);
        let pairs = ranked.map(|([left, right, id], rank)| (pair(left, right), Merge { rank, id }));
        Self {
            bytes,
            pairs: pairs.collect(),
        }
    }

    /// Appends the ids of `word`.
    pub(super) fn encode(&self, word: &[u8], scratch: &mut Scratch, ids: &mut Vec<u32>) {
        if word.len() <= SHORT {
            self.encode_short(word, &mut scratch.parts, ids);
        } else {
            self.encode_long(word, scratch, ids);
        }
    }

    fn merge(&self, left: u32, right: u32) -> Merge {
        let found = self.pairs.get(&pair(left, right)).copied();
        found.unwrap_or(Merge {
            rank: NO_RANK,
            id: 0,
        })
    }

    /// The parts of a word, each with its neighbours.
    fn fill(&self, word: &[u8], parts: &mut Vec<Part>) {
        parts.clear();
        let mut before = NONE;
        for (at, byte) in (0..).zip(word) {
            let id = self.bytes[usize::from(*byte)];
            if let Some(left) = parts.last_mut() {
                left.with_next = self.merge(left.id, id);
                left.next = at;
            }
            parts.push(Part {
                id,
                with_next: Merge {
                    rank: NO_RANK,
                    id: 0,
                },
                before,
                next: NONE,
            });
            before = at;
        }
    }

    fn encode_short(&self, word: &[u8], parts: &mut Vec<Part>, ids: &mut Vec<u32>) {
        self.fill(word, parts);
        loop {
            let (mut at, mut rank) = (0, NO_RANK);
            for (i, part) in parts.iter().enumerate() {
                if part.with_next.rank < rank {
                    (at, rank) = (i, part.with_next.rank);
                }
            }
            if rank == NO_RANK {
                break;
            }
            let merged = parts[at].with_next.id;
            parts.remove(at + 1);
            parts[at].id = merged;
            parts[at].with_next = match parts.get(at + 1) {
                Some(right) => self.merge(merged, right.id),
                None => Merge {
                    rank: NO_RANK,
                    id: 0,
                },
            };
            if let Some(left) = at.checked_sub(1) {
                parts[left].with_next = self.merge(parts[left].id, merged);
            }
        }
        ids.extend(parts.iter().map(|part| part.id));
    }

    fn encode_long(&self, word: &[u8], scratch: &mut Scratch, ids: &mut Vec<u32>) {
        let Scratch { parts, heap } = scratch;
        self.fill(word, parts);
        heap.clear();
        let ranks = (0..).zip(parts.iter().map(|part| part.with_next.rank));
        heap.extend(
            ranks
                .filter(|(_, rank)| *rank != NO_RANK)
                .map(|(at, rank)| Reverse((rank, at))),
        );
        while let Some(Reverse((rank, at))) = heap.pop() {
            // Something merged there in between, or the part is gone: its rank is then none.
            let part = parts[at as usize];
            if part.with_next.rank != rank {
                continue;
            }
            let gone = parts[part.next as usize];
            parts[part.next as usize].with_next.rank = NO_RANK;
            parts[at as usize].id = part.with_next.id;
            parts[at as usize].next = gone.next;
            if gone.next != NONE {
                parts[gone.next as usize].before = at;
            }
            for left in [part.before, at] {
                self.look_again(left, parts, heap);
            }
        }
        let mut at = 0;
        while at != NONE {
            ids.push(parts[at as usize].id);
            at = parts[at as usize].next;
        }
    }

    /// Recomputes the merge of the part at `left` with the following one.
    fn look_again(
        &self,
        left: u32,
        parts: &mut [Part],
        heap: &mut BinaryHeap<Reverse<(u32, u32)>>,
    ) {
        if left == NONE {
            return;
        }
        let part = parts[left as usize];
        let merge = match part.next {
            NONE => Merge {
                rank: NO_RANK,
                id: 0,
            },
            next => self.merge(part.id, parts[next as usize].id),
        };
        parts[left as usize].with_next = merge;
        if merge.rank != NO_RANK {
            heap.push(Reverse((merge.rank, left)));
        }
    }
}

fn pair(left: u32, right: u32) -> u64 {
    u64::from(left) << 32 | u64::from(right)
}

/// Mixes a pair of ids: they come from a vocabulary, not from an adversary.
#[derive(Debug, Default)]
struct PairHasher(u64);

impl Hasher for PairHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte) ^ self.0);
        }
    }

    fn write_u64(&mut self, pair: u64) {
        let mixed = pair.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = (mixed ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    }

    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 29
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Bytes have their own number as id.
    fn merges(pairs: &[[u32; 3]]) -> Merges {
        let bytes = std::array::from_fn(|byte| u32::try_from(byte).unwrap());
        Merges::new(bytes, pairs.iter().copied())
    }

    fn check(merges: &Merges, word: &[u8], expected: &[u32]) {
        let (mut short, mut long) = (Vec::new(), Vec::new());
        let mut scratch = Scratch::default();
        merges.encode_short(word, &mut scratch.parts, &mut short);
        merges.encode_long(word, &mut scratch, &mut long);
        assert_eq!((&*short, &*long), (expected, expected));
    }

    #[test]
    fn the_merge_learnt_first_goes_first_and_the_leftmost_of_equals() {
        let merges = merges(&[[2, 3, 10], [1, 2, 11], [11, 3, 12], [1, 10, 13], [1, 1, 14]]);
        check(&merges, &[1], &[1]);
        check(&merges, &[1, 2, 3], &[13]);
        check(&merges, &[1, 2, 2, 3], &[11, 10]);
        check(&merges, &[1, 1, 1], &[14, 1]);
        check(&merges, &[1, 1, 1, 2], &[14, 11]);
    }

    proptest! {
        #[test]
        fn a_long_word_is_merged_as_a_short_one(
            learnt in proptest::collection::vec((0..40u32, 0..40u32), 1..60),
            word in proptest::collection::vec(0..6u8, 1..200),
        ) {
            let learnt: Vec<[u32; 3]> = learnt
                .iter()
                .zip(6..)
                .map(|((left, right), id)| [left % id, right % id, id])
                .collect();
            let merges = merges(&learnt);
            let (mut short, mut long) = (Vec::new(), Vec::new());
            let mut scratch = Scratch::default();
            merges.encode_short(&word, &mut scratch.parts, &mut short);
            merges.encode_long(&word, &mut scratch, &mut long);
            prop_assert_eq!(short, long);
        }
    }
}
