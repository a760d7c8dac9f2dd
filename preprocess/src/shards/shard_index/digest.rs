//! Digest of a shard for appending rows, in a file beside it: `<shard>.keys`.
//!
//! Layout, all little endian: `FLKEYS02` | hash of the shard u128 | rows u64 | features u64 | key of each row u64 | of each feature
//! count, sum, sum of squares, least and greatest cell f64 | xxh3-128 of all before u128. Only shards of the training split have
//! features.
//!
//! No manifest names it, and losing it only costs time: a file that is absent, damaged or of
//! another shard or version is rebuilt from the shard, with the same bytes.

use feedline_schemas::{ids::Hash128, manifest::Shard};

const MAGIC: &[u8; 8] = b"FLKEYS02";

/// Bytes before the keys, and behind the features.
const HEAD: usize = 40;
const TAIL: usize = 16;

/// Numbers of a feature, and their bytes.
const NUMBERS: usize = 5;
const FEATURE: usize = 8 * NUMBERS;

/// Sums over cells, and the range of these.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Moments {
    pub(super) count: f64,
    sum: f64,
    squares: f64,
    /// Infinite without a cell.
    pub(super) least: f64,
    /// Negative infinity without a cell.
    pub(super) greatest: f64,
}

impl Default for Moments {
    fn default() -> Self {
        Self {
            count: 0.0,
            sum: 0.0,
            squares: 0.0,
            least: f64::INFINITY,
            greatest: f64::NEG_INFINITY,
        }
    }
}

impl Moments {
    pub(super) fn add(&mut self, cell: f32) {
        let cell = f64::from(cell);
        self.count += 1.0;
        self.sum += cell;
        self.squares += cell * cell;
        self.least = self.least.min(cell);
        self.greatest = self.greatest.max(cell);
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.count += other.count;
        self.sum += other.sum;
        self.squares += other.squares;
        self.least = self.least.min(other.least);
        self.greatest = self.greatest.max(other.greatest);
    }

    pub(super) fn mean(self) -> f64 {
        self.sum / self.count
    }

    pub(super) fn variance(self) -> f64 {
        (self.squares / self.count - self.mean() * self.mean()).max(0.0)
    }
}

/// Keys and features of a shard.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Digest {
    pub(super) keys: Vec<u64>,
    pub(super) moments: Vec<Moments>,
}

impl Digest {
    /// Path of the digest of the shard at `path`.
    pub(super) fn path_of(path: &str) -> String {
        format!("{}.keys", path.trim_end_matches(".arrow"))
    }

    pub(super) fn encode(&self, shard: &Shard) -> Vec<u8> {
        let length = HEAD + 8 * self.keys.len() + FEATURE * self.moments.len() + TAIL;
        let mut file = Vec::with_capacity(length);
        file.extend(MAGIC);
        file.extend(shard.hash.get().to_le_bytes());
        file.extend((self.keys.len() as u64).to_le_bytes());
        file.extend((self.moments.len() as u64).to_le_bytes());
        for key in &self.keys {
            file.extend(key.to_le_bytes());
        }
        for moments in &self.moments {
            for number in [
                moments.count,
                moments.sum,
                moments.squares,
                moments.least,
                moments.greatest,
            ] {
                file.extend(number.to_le_bytes());
            }
        }
        let hash = Hash128::of(&file);
        file.extend(hash.get().to_le_bytes());
        file
    }

    /// The digest in a file, if it is one of `shard`.
    pub(super) fn decode(file: &[u8], shard: &Shard) -> Option<Self> {
        let (body, tail) = file.split_last_chunk::<TAIL>()?;
        if Hash128::of(body) != Hash128::new(u128::from_le_bytes(*tail)) {
            return None;
        }
        let (magic, rest) = body.split_first_chunk::<8>()?;
        let (hash, rest) = rest.split_first_chunk::<16>()?;
        let is_of_shard = u128::from_le_bytes(*hash) == shard.hash.get();
        let (numbers, []) = rest.as_chunks::<8>() else {
            return None;
        };
        let [rows, features, numbers @ ..] = numbers else {
            return None;
        };
        let (rows, features) = (u64::from_le_bytes(*rows), u64::from_le_bytes(*features));
        if magic != MAGIC || !is_of_shard || rows != shard.rows {
            return None;
        }
        let (keys, sums) = numbers.split_at_checked(usize::try_from(rows).ok()?)?;
        let (sums, []) = sums.as_chunks::<NUMBERS>() else {
            return None;
        };
        let number = |bytes: [u8; 8]| f64::from_le_bytes(bytes);
        let of_feature = |[count, sum, squares, least, greatest]: &[[u8; 8]; NUMBERS]| Moments {
            count: number(*count),
            sum: number(*sum),
            squares: number(*squares),
            least: number(*least),
            greatest: number(*greatest),
        };
        let moments = sums.iter().map(of_feature);
        let found = Self {
            keys: keys.iter().map(|key| u64::from_le_bytes(*key)).collect(),
            moments: moments.collect(),
        };
        (found.moments.len() as u64 == features).then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shard(rows: u64) -> Shard {
        Shard {
            path: "shards/train/00000-ab.arrow".into(),
            rows,
            bytes: 0,
            hash: Hash128::new(7),
            blocks: Vec::new(),
            head_crc32c: None,
            lengths: None,
        }
    }

    fn digest() -> Digest {
        let mut moments = [Moments::default(); 2];
        moments[0].add(2.5);
        moments[1].add(-4.0);
        Digest {
            keys: vec![3, u64::MAX, 3],
            moments: moments.to_vec(),
        }
    }

    #[test]
    fn what_is_written_is_read() {
        for digest in [
            digest(),
            Digest {
                moments: Vec::new(),
                ..digest()
            },
        ] {
            let file = digest.encode(&shard(3));
            let length = HEAD + 24 + FEATURE * digest.moments.len() + TAIL;
            assert_eq!(file.len(), length);
            assert_eq!(Digest::decode(&file, &shard(3)), Some(digest));
        }
        let path = Digest::path_of(&shard(3).path);
        assert_eq!(path, "shards/train/00000-ab.keys");
    }

    #[test]
    fn what_is_damaged_cut_or_of_another_shard_is_not_read() {
        let file = digest().encode(&shard(3));
        for at in 0..file.len() {
            let mut damaged = file.clone();
            damaged[at] ^= 1;
            assert_eq!(Digest::decode(&damaged, &shard(3)), None, "{at}");
            assert_eq!(Digest::decode(&file[..at], &shard(3)), None, "{at}");
        }
        assert_eq!(Digest::decode(&file, &shard(2)), None);
        let other = Shard {
            hash: Hash128::new(8),
            ..shard(3)
        };
        assert_eq!(Digest::decode(&file, &other), None);
    }
}
