//! Duplicates among rows, found by 24 bytes of each: its content hash and its origin.
//!
//! Tuples are partitioned by the first byte of the hash, so that equal ones are in one part, and
//! each part is sorted on its own, which stays in the cache. The result is a set of origins: it
//! depends on the rows alone, not on the workers.

use std::thread;

/// Parts, by the first byte of a hash.
const PARTS: usize = 256;

/// Memory that a row takes while copies are looked for, in bytes: its tuple, the room that a growing list has left over, and the
/// origin that its piece keeps.
pub(super) const ROW_BYTES: u64 = 40;

/// Tuples that are beside one another at most and at least.
const CHUNK: [usize; 2] = [1 << 12, 1 << 5];

/// Bits of the filter for each copy.
const FILTER_BITS: usize = 16;

/// The two halves of a hash, and an origin. Sorts by content, then by place.
type Tuple = [u64; 3];

/// The tuples that one worker saw.
#[derive(Debug)]
pub(super) struct DedupTuples {
    good: Vec<List>,
    bad: Vec<List>,
}

/// Tuples in chunks, so that more of them move none.
#[derive(Clone, Debug, Default)]
struct List {
    full: Vec<Vec<Tuple>>,
    last: Vec<Tuple>,
    count: usize,
}

impl List {
    #[inline]
    fn push(&mut self, tuple: Tuple) {
        if self.last.len() == self.last.capacity() {
            self.grow();
        }
        self.last.push(tuple);
    }

    #[cold]
    fn grow(&mut self) {
        self.count += self.last.len();
        let [most, least] = CHUNK;
        let next = Vec::with_capacity((self.count / 4).clamp(least, most));
        let full = std::mem::replace(&mut self.last, next);
        self.full.push(full);
    }

    fn len(&self) -> usize {
        self.count + self.last.len()
    }

    fn into_chunks(self) -> impl Iterator<Item = Vec<Tuple>> {
        self.full.into_iter().chain([self.last])
    }
}

impl Default for DedupTuples {
    fn default() -> Self {
        Self {
            good: vec![List::default(); PARTS],
            bad: vec![List::default(); PARTS],
        }
    }
}

impl DedupTuples {
    /// Takes a row that can be used, or that cannot.
    #[inline]
    pub(super) fn push(&mut self, hash: &[u8; 16], origin: u64, is_good: bool) {
        let value = u128::from_be_bytes(*hash);
        #[expect(clippy::cast_possible_truncation, reason = "the two halves of it")]
        let tuple = [(value >> 64) as u64, value as u64, origin];
        let parts = match is_good {
            true => &mut self.good,
            false => &mut self.bad,
        };
        parts[usize::from(hash[0])].push(tuple);
    }
}

/// Of the rows with one content all but one are copies: the one with the smallest origin that can be used is none, and where
/// none can, the one with the smallest origin. The work is shared by `threads` threads.
pub(super) fn copies(workers: Vec<DedupTuples>, threads: usize) -> DuplicateOrigins {
    let mut parts: Vec<Part> = (0..PARTS).map(|_| Part::default()).collect();
    for worker in workers {
        for (part, (good, bad)) in parts
            .iter_mut()
            .zip(worker.good.into_iter().zip(worker.bad))
        {
            part.good.push(good);
            part.bad.push(bad);
        }
    }
    let share = PARTS.div_ceil(threads.clamp(1, PARTS));
    let mut origins: Vec<u64> = Vec::new();
    let mut repeated: Option<Repeated> = None;
    thread::scope(|scope| {
        let shares: Vec<_> = parts
            .chunks_mut(share)
            .map(|parts| {
                scope.spawn(move || {
                    let (mut origins, mut repeated) = (Vec::new(), None);
                    for part in parts {
                        part.copies(&mut origins, &mut repeated);
                    }
                    (origins, repeated)
                })
            })
            .collect();
        for share in shares {
            let (found, most) = share.join().expect("sorting numbers cannot fail");
            origins.extend(found);
            repeated = Repeated::more_of(repeated, most);
        }
    });
    DuplicateOrigins {
        repeated,
        ..DuplicateOrigins::new(origins)
    }
}

/// Content of the most rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Repeated {
    /// Rows with it.
    pub(crate) rows: u64,
    /// Smallest packed origin of them.
    pub(crate) first: u64,
}

impl Repeated {
    /// Content of more rows; between equal counts, the one that landed first.
    fn more_of(a: Option<Self>, b: Option<Self>) -> Option<Self> {
        a.into_iter()
            .chain(b)
            .max_by_key(|repeated| (repeated.rows, std::cmp::Reverse(repeated.first)))
    }
}

/// Tuples of all workers that begin alike.
#[derive(Debug, Default)]
struct Part {
    good: Vec<List>,
    bad: Vec<List>,
}

impl Part {
    /// Adds the origins of the copies, and replaces `repeated` by a content of more rows. The tuples are given up.
    fn copies(&mut self, copies: &mut Vec<u64>, repeated: &mut Option<Repeated>) {
        let (good, bad) = (sorted(&mut self.good), sorted(&mut self.bad));
        let mut count = |rows: usize, first: u64| {
            let rows = rows as u64;
            if rows > 1 {
                *repeated = Repeated::more_of(*repeated, Some(Repeated { rows, first }));
            }
        };
        for same in good.chunk_by(|a, b| a[..2] == b[..2]) {
            copies.extend(same[1..].iter().map(|tuple| tuple[2]));
            let others = run_of(&bad, same[0]);
            let first = others
                .first()
                .map_or(same[0][2], |other| other[2].min(same[0][2]));
            count(same.len() + others.len(), first);
        }
        for same in bad.chunk_by(|a, b| a[..2] == b[..2]) {
            let kept = good.binary_search_by(|tuple| tuple[..2].cmp(&same[0][..2]));
            let from = usize::from(kept.is_err());
            copies.extend(same[from..].iter().map(|tuple| tuple[2]));
            if kept.is_err() {
                count(same.len(), same[0][2]);
            }
        }
    }
}

/// The tuples with the content of `tuple` among sorted ones.
fn run_of(sorted: &[Tuple], tuple: Tuple) -> &[Tuple] {
    let start = sorted.partition_point(|other| other[..2] < tuple[..2]);
    let rest = &sorted[start..];
    let count = rest
        .iter()
        .take_while(|other| other[..2] == tuple[..2])
        .count();
    &rest[..count]
}

fn sorted(lists: &mut Vec<List>) -> Vec<Tuple> {
    let mut all = Vec::with_capacity(lists.iter().map(List::len).sum());
    let chunks = lists.drain(..).flat_map(List::into_chunks);
    chunks.for_each(|chunk| all.extend(chunk));
    all.sort_unstable();
    all
}

/// A set of origins.
#[derive(Debug)]
pub(super) struct DuplicateOrigins {
    origins: Vec<u64>,
    /// Bloom filter: it excludes most origins that are not in the set.
    filter: Vec<u64>,
    /// Content of the most rows, if any has several.
    pub(super) repeated: Option<Repeated>,
}

impl DuplicateOrigins {
    fn new(mut origins: Vec<u64>) -> Self {
        origins.sort_unstable();
        let words = (origins.len() * FILTER_BITS)
            .div_ceil(64)
            .next_power_of_two();
        let mut copies = Self {
            filter: vec![0; words],
            origins,
            repeated: None,
        };
        for i in 0..copies.origins.len() {
            let (word, bit) = copies.place(copies.origins[i]);
            copies.filter[word] |= bit;
        }
        copies
    }

    /// Number of origins.
    pub(super) fn len(&self) -> usize {
        self.origins.len()
    }

    #[inline]
    pub(super) fn contains(&self, origin: u64) -> bool {
        let (word, bit) = self.place(origin);
        self.filter[word] & bit != 0 && self.origins.binary_search(&origin).is_ok()
    }

    /// Fibonacci hashing: the upper bits of a product.
    #[inline]
    fn place(&self, origin: u64) -> (usize, u64) {
        let mixed = origin.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let word = usize::try_from(mixed >> 6).expect("26 bits fit") & (self.filter.len() - 1);
        (word, 1 << (mixed & 63))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    /// A row: number of its content, whether it can be used, the worker that sees it.
    type Row = (u8, bool, usize);

    fn found(rows: &[Row], threads: usize) -> BTreeSet<u64> {
        let mut workers: Vec<DedupTuples> = (0..3).map(|_| DedupTuples::default()).collect();
        for (origin, (content, is_good, worker)) in (0..).zip(rows) {
            let hash = u128::from(*content).wrapping_mul(0x0123_4567_89ab_cdef_1122_3344_5566_7788);
            workers[*worker].push(&hash.to_be_bytes(), origin, *is_good);
        }
        let copies = copies(workers, threads);
        let origins: BTreeSet<u64> = (0..rows.len() as u64 + 50)
            .filter(|origin| copies.contains(*origin))
            .collect();
        assert_eq!(origins.len(), copies.len());
        assert_eq!(copies.repeated, most_repeated(rows));
        origins
    }

    /// Plain reference: the content of the most rows, of as many that which came first.
    fn most_repeated(rows: &[Row]) -> Option<Repeated> {
        let mut contents: BTreeMap<u8, Vec<u64>> = BTreeMap::new();
        for (origin, (content, ..)) in (0..).zip(rows) {
            contents.entry(*content).or_default().push(origin);
        }
        let repeated = contents.into_values().filter(|origins| origins.len() > 1);
        let mut repeated: Vec<Repeated> = repeated
            .map(|origins| Repeated {
                rows: origins.len() as u64,
                first: origins[0],
            })
            .collect();
        repeated.sort_unstable_by_key(|one| (std::cmp::Reverse(one.rows), one.first));
        repeated.first().copied()
    }

    /// Plain reference: the rows of a content in the order in which they are preferred.
    fn expected(rows: &[Row]) -> BTreeSet<u64> {
        let mut contents: BTreeMap<u8, Vec<(bool, u64)>> = BTreeMap::new();
        for (origin, (content, is_good, _)) in (0..).zip(rows) {
            contents
                .entry(*content)
                .or_default()
                .push((!is_good, origin));
        }
        let copies = contents.into_values().flat_map(|mut rows| {
            rows.sort_unstable();
            rows.split_off(1)
        });
        copies.map(|(_, origin)| origin).collect()
    }

    #[test]
    fn the_first_row_that_can_be_used_is_kept() {
        let rows = [
            (7, false, 0),
            (7, true, 1),
            (7, true, 2),
            (8, false, 0),
            (8, false, 1),
            (9, true, 0),
        ];
        assert_eq!(found(&rows, 2), BTreeSet::from([0, 2, 4]));
    }

    #[test]
    fn a_list_keeps_its_order_and_leaves_a_quarter_unused_at_most() {
        let mut list = List::default();
        for count in 1..=20_000 {
            list.push([1, 2, count]);
            assert_eq!(list.len() as u64, count);
            let chunks = list.full.iter().chain([&list.last]);
            let room: usize = chunks.map(Vec::capacity).sum();
            assert!(room <= list.len() + list.len() / 4 + CHUNK[1]);
        }
        assert!(list.full.len() > 10);
        let all: Vec<u64> = list.into_chunks().flatten().map(|tuple| tuple[2]).collect();
        assert!(all.into_iter().eq(1..=20_000));
    }

    #[test]
    fn without_copies_nothing_is_found() {
        assert_eq!(found(&[], 1), BTreeSet::new());
        assert_eq!(
            found(&[(1, true, 0), (2, false, 0), (3, true, 1)], 8),
            BTreeSet::new()
        );
    }

    proptest! {
        #[test]
        fn whoever_sees_which_row_the_copies_are_the_same(
            rows in prop::collection::vec((0u8..40, any::<bool>(), 0usize..3), 0..300),
            threads in 1usize..5,
        ) {
            prop_assert_eq!(found(&rows, threads), expected(&rows));
        }
    }
}
