//! One pass over a column for [`super::Search`]: counts or keys below given prefixes, mergeable through bytes.
//!
//! Bytes: the [`Tally`], then per prefix smallest and largest key (u64 each), number of non-empty buckets (u32)
//! and for each bucket its index (u16) and count (u64); or the keys (u64). All little-endian.

use super::{RADIX_BITS, Tally, key};

/// Buckets of one prefix.
const BUCKETS: usize = 1 << RADIX_BITS;
/// Memory that counting below one prefix takes.
pub(crate) const PREFIX_BYTES: usize = BUCKETS * size_of::<u64>();
/// Most values a scan collects: as much memory as the counters of one prefix.
pub(crate) const COLLECT_LIMIT: u64 = 1 << RADIX_BITS;

/// Action of a scan on a value with a wanted prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScanMode {
    /// Counts it by its next 16 bits.
    Count,
    /// Keeps its key.
    Collect,
}

/// Prefixes that a scan looks at, and its mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScanSpec {
    pub(crate) mode: ScanMode,
    /// Length of the prefixes in units of 16 bits, 0 to 3.
    pub(crate) depth: u32,
    /// Wanted prefixes, ascending and distinct; at depth 0 the only prefix is 0, for every value.
    pub(crate) prefixes: Vec<u64>,
}

impl ScanSpec {
    /// As the literal argument that carries it through a plan.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mode = u8::from(self.mode == ScanMode::Collect);
        let depth = u8::try_from(self.depth).expect("depth is at most 3");
        let mut bytes = vec![mode, depth];
        bytes.extend(self.prefixes.iter().flat_map(|prefix| prefix.to_le_bytes()));
        bytes
    }

    /// Reads what [`Self::to_bytes`] wrote; `None` for other bytes.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (head, prefixes) = bytes.split_first_chunk::<2>()?;
        let mode = match head[0] {
            0 => ScanMode::Count,
            1 => ScanMode::Collect,
            _ => return None,
        };
        let prefixes = read_all(prefixes)?;
        (head[1] < 4 && prefixes.is_sorted()).then_some(Self {
            mode,
            depth: u32::from(head[1]),
            prefixes,
        })
    }
}

/// Counts below one prefix.
#[derive(Clone, Debug)]
struct Counters {
    smallest: u64,
    largest: u64,
    /// Empty until a value is counted, then one per bucket.
    counts: Vec<u64>,
}

impl Counters {
    const NONE: Self = Self {
        smallest: u64::MAX,
        largest: 0,
        counts: Vec::new(),
    };

    /// Makes room for counts.
    fn open(&mut self) {
        if self.counts.is_empty() {
            self.counts = vec![0; BUCKETS];
        }
    }

    #[inline]
    fn add(&mut self, key: u64, bucket: u64) {
        let bucket = (bucket & 0xffff) as usize;
        self.counts[bucket] += 1;
        self.smallest = self.smallest.min(key);
        self.largest = self.largest.max(key);
    }
}

/// State of one scan.
#[derive(Clone, Debug)]
pub(crate) struct Scan {
    spec: ScanSpec,
    tally: Tally,
    counters: Vec<Counters>,
    keys: Vec<u64>,
}

impl Scan {
    /// A scan that has seen nothing.
    pub(crate) fn new(spec: ScanSpec) -> Self {
        let counted = if spec.mode == ScanMode::Count {
            spec.prefixes.len()
        } else {
            0
        };
        Self {
            counters: vec![Counters::NONE; counted],
            spec,
            tally: Tally::default(),
            keys: Vec::new(),
        }
    }

    /// Looks at values; only finite ones count.
    pub(crate) fn add_all(&mut self, values: &[f64]) {
        let Self {
            spec,
            tally,
            counters,
            keys,
        } = self;
        let below = 64 - RADIX_BITS * spec.depth;
        match (spec.mode, spec.depth) {
            // At depth 0 everything is wanted.
            (ScanMode::Collect, 0) => tally.add_all(values, |value| keys.push(key(value))),
            (ScanMode::Collect, _) => tally.add_all(values, |value| {
                let key = key(value);
                if spec.prefixes.contains(&(key >> below)) {
                    keys.push(key);
                }
            }),
            (ScanMode::Count, 0) => {
                let Some(counters) = counters.first_mut() else {
                    return;
                };
                counters.open();
                tally.add_all(values, |value| {
                    let key = key(value);
                    counters.add(key, key >> (64 - RADIX_BITS));
                });
            }
            (ScanMode::Count, _) => {
                counters.iter_mut().for_each(Counters::open);
                tally.add_all(values, |value| {
                    let key = key(value);
                    // There are few prefixes and most values match none: a plain loop beats a search.
                    if let Some(place) = spec
                        .prefixes
                        .iter()
                        .position(|wanted| *wanted == key >> below)
                    {
                        counters[place].add(key, key >> (below - RADIX_BITS));
                    }
                });
            }
        }
    }

    /// Looks at `count` missing cells.
    pub(crate) fn add_missing(&mut self, count: u64) {
        self.tally.missing += count;
    }

    /// Returns true if more keys were collected than a correct plan can give.
    pub(crate) fn is_over_limit(&self) -> bool {
        super::as_count(self.keys.len()) > COLLECT_LIMIT
    }

    /// Cells looked at, by kind.
    pub(crate) fn tally(&self) -> Tally {
        self.tally
    }

    /// Counts of the `place`-th prefix, one per bucket; empty when there was no value.
    pub(crate) fn counts(&self, place: usize) -> &[u64] {
        &self.counters[place].counts
    }

    /// The key that all values of the `place`-th prefix have in common, if they do.
    pub(crate) fn only_key(&self, place: usize) -> Option<u64> {
        let counters = &self.counters[place];
        (counters.smallest == counters.largest).then_some(counters.smallest)
    }

    /// The collected keys in ascending order.
    pub(crate) fn into_sorted_keys(mut self) -> Vec<u64> {
        self.keys.sort_unstable();
        self.keys
    }

    /// Bytes held.
    pub(crate) fn size(&self) -> usize {
        let counts: usize = self
            .counters
            .iter()
            .map(|counters| counters.counts.capacity())
            .sum();
        size_of::<Self>() + (counts + self.keys.capacity()) * size_of::<u64>()
    }

    /// The state as bytes.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.tally.to_bytes();
        for counters in &self.counters {
            let filled = || {
                (0u16..=u16::MAX)
                    .zip(&counters.counts)
                    .filter(|(_, count)| **count > 0)
            };
            bytes.extend(counters.smallest.to_le_bytes());
            bytes.extend(counters.largest.to_le_bytes());
            bytes.extend(
                u32::try_from(filled().count())
                    .expect("at most 65,536")
                    .to_le_bytes(),
            );
            for (bucket, count) in filled() {
                bytes.extend(bucket.to_le_bytes());
                bytes.extend(count.to_le_bytes());
            }
        }
        bytes.extend(self.keys.iter().flat_map(|key| key.to_le_bytes()));
        bytes
    }

    /// Adds the state of another scan with the same specification; `None` when `bytes` are not such a state.
    pub(crate) fn merge_bytes(&mut self, bytes: &[u8]) -> Option<()> {
        let (tally, mut rest) = Tally::take(bytes)?;
        self.tally.merge(&tally);
        for counters in &mut self.counters {
            counters.smallest = counters.smallest.min(take_u64(&mut rest)?);
            counters.largest = counters.largest.max(take_u64(&mut rest)?);
            let filled = u32::from_le_bytes(take(&mut rest)?);
            if filled > 0 {
                counters.open();
            }
            for _ in 0..filled {
                let bucket = usize::from(u16::from_le_bytes(take(&mut rest)?));
                counters.counts[bucket] += take_u64(&mut rest)?;
            }
        }
        match self.spec.mode {
            ScanMode::Count => rest.is_empty().then_some(()),
            ScanMode::Collect => {
                self.keys.extend(read_all(rest)?);
                Some(())
            }
        }
    }
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*first)
}

fn take_u64(bytes: &mut &[u8]) -> Option<u64> {
    take(bytes).map(u64::from_le_bytes)
}

fn read_all(bytes: &[u8]) -> Option<Vec<u64>> {
    let chunks = bytes.chunks_exact(8);
    chunks.remainder().is_empty().then(|| {
        chunks
            .map(|chunk| u64::from_le_bytes(chunk.try_into().expect("chunks of 8 bytes")))
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_bytes_are_refused() {
        let spec = ScanSpec {
            mode: ScanMode::Count,
            depth: 0,
            prefixes: vec![0],
        };
        let mut scan = Scan::new(spec.clone());
        scan.add_all(&[1.5]);
        let bytes = scan.to_bytes();
        for length in 0..bytes.len() {
            assert_eq!(
                Scan::new(spec.clone()).merge_bytes(&bytes[..length]),
                None,
                "{length}"
            );
        }
        assert_eq!(ScanSpec::from_bytes(&[2, 0]), None);
        assert_eq!(ScanSpec::from_bytes(&[0, 4]), None);
        assert_eq!(ScanSpec::from_bytes(&[0, 0, 1]), None);
    }

    #[test]
    fn values_with_other_prefixes_are_seen_and_left() {
        let wanted = key(1.0) >> 48;
        let mut scan = Scan::new(ScanSpec {
            mode: ScanMode::Collect,
            depth: 1,
            prefixes: vec![wanted],
        });
        scan.add_all(&[
            1.0,
            f64::INFINITY,
            1.01,
            2.0,
            f64::NEG_INFINITY,
            f64::NAN,
            -1.0,
        ]);
        assert_eq!(
            scan.tally(),
            Tally {
                finite: 4,
                missing: 1,
                low_infinite: 1,
                high_infinite: 1
            }
        );
        assert_eq!(scan.into_sorted_keys(), [key(1.0), key(1.01)]);
    }
}
