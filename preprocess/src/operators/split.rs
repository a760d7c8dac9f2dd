//! Split of a row: by hash a pure function of its key (or content) and the salt, so adding rows
//! moves none with the same content; otherwise by its [`Rule`].
//!
//! The hash is `xxh3-64("feedline.split" | salt length u64 | salt | group hash)`, its upper 53 bits compared with the cumulative
//! shares. The shuffle has another prefix, so the two orders are independent.

pub(crate) mod frozen;
pub(crate) mod integers;
pub(crate) mod lookback_leak;
pub(crate) mod missing;
pub(crate) mod named;
pub(crate) mod range;
mod rule;
mod shares;
pub(crate) mod time;
pub(crate) mod time_order;

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, UInt8Array, UInt64Array},
    datatypes::DataType,
};
use datafusion::error::Result;
use feedline_schemas::{config::SplitConfig, ids::Seed, manifest::Split};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

pub(crate) use frozen::apart;
pub(crate) use named::{ByName, names_as_written};
pub(crate) use rule::{Rule, check_images, check_key, resolve};
pub(crate) use shares::{SPLIT_MISSES_SHARE, SplitSizes, check_shares};
pub(crate) use time::{TimeRule, advice_on};

use crate::engine::scalar_function::RowFunction;

/// Upper limit of hash values: a float holds all smaller integers exactly.
const RANGE: f64 = 9_007_199_254_740_992.0;

/// Assigns splits to group hashes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Splitter {
    prefix: Vec<u8>,
    /// Rows below go to train.
    train_end: u64,
    /// Other rows below go to validation, the rest to test.
    validation_end: u64,
}

impl Splitter {
    /// `config`'s fractions are in 0 to 1 and add up to 1.
    pub(crate) fn new(config: &SplitConfig) -> Self {
        // A split of share 0 must stay empty whatever the shares' rounding leaves at the end.
        let train = if config.validation > 0.0 || config.test > 0.0 {
            config.train
        } else {
            1.0
        };
        let validation = if config.test > 0.0 {
            config.train + config.validation
        } else {
            1.0
        };
        Self {
            prefix: prefix("feedline.split", config.salt.as_bytes()),
            train_end: threshold(train),
            validation_end: threshold(validation),
        }
    }

    pub(crate) fn split_of(&self, group: &[u8]) -> Split {
        let at = keyed(&self.prefix, group) >> 11;
        if at < self.train_end {
            Split::Train
        } else if at < self.validation_end {
            Split::Validation
        } else {
            Split::Test
        }
    }
}

/// Position of `split` in [`Split::ALL`], as stored in the `_split` column.
pub(crate) const fn code(split: Split) -> u8 {
    split as u8
}

impl RowFunction for Splitter {
    const NAME: &'static str = "feedline_split";
    const RETURNS: DataType = DataType::UInt8;

    fn call(&self, columns: &[ArrayRef], _: usize) -> Result<ArrayRef> {
        let groups = columns[0].as_fixed_size_binary();
        let codes = (0..groups.len()).map(|row| code(self.split_of(groups.value(row))));
        Ok(Arc::new(UInt8Array::from_iter_values(codes)))
    }
}

/// Place of a row in the shuffled order: `xxh3-64("feedline.order" | 8 | seed u64 | content hash)`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct ShuffleKey {
    prefix: Vec<u8>,
}

impl ShuffleKey {
    pub(crate) fn new(seed: Seed) -> Self {
        Self {
            prefix: prefix("feedline.order", &seed.get().to_le_bytes()),
        }
    }

    /// The place of the row with this content hash.
    pub(crate) fn key(&self, hash: &[u8]) -> u64 {
        keyed(&self.prefix, hash)
    }

    /// Key of the order that picks rows as candidates for neighbours.
    pub(crate) fn of_reference() -> Self {
        Self {
            prefix: prefix("feedline.reference", &[]),
        }
    }
}

impl RowFunction for ShuffleKey {
    const NAME: &'static str = "feedline_order";
    const RETURNS: DataType = DataType::UInt64;

    fn call(&self, columns: &[ArrayRef], _: usize) -> Result<ArrayRef> {
        let hashes = columns[0].as_fixed_size_binary();
        let keys = (0..hashes.len()).map(|row| self.key(hashes.value(row)));
        Ok(Arc::new(UInt64Array::from_iter_values(keys)))
    }
}

/// Part of the training split that a row belongs to: `xxh3-64("feedline.fold" | 0 | content hash)`, scaled to the number of
/// parts. Duplicates share one, and it is independent of the row's split and place.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Folds {
    prefix: Vec<u8>,
    count: u32,
}

impl Folds {
    pub(crate) fn new(count: u32) -> Self {
        Self {
            prefix: prefix("feedline.fold", &[]),
            count,
        }
    }

    /// The fold, from 0, of the row whose content has this hash.
    pub(crate) fn of(&self, hash: &[u8]) -> usize {
        let scaled = u128::from(keyed(&self.prefix, hash)) * u128::from(self.count);
        usize::try_from(scaled >> 64).expect("below the count, which has 32 bits")
    }
}

fn prefix(purpose: &str, salt: &[u8]) -> Vec<u8> {
    [purpose.as_bytes(), &(salt.len() as u64).to_le_bytes(), salt].concat()
}

fn keyed(prefix: &[u8], hash: &[u8]) -> u64 {
    const SHORT: usize = 128;
    let length = prefix.len() + hash.len();
    let mut short = [0; SHORT];
    if let Some(bytes) = short.get_mut(..length) {
        bytes[..prefix.len()].copy_from_slice(prefix);
        bytes[prefix.len()..].copy_from_slice(hash);
        return xxh3_64(bytes);
    }
    xxh3_64(&[prefix, hash].concat())
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of 2^53 fits"
)]
fn threshold(share: f64) -> u64 {
    (share.clamp(0.0, 1.0) * RANGE).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(config: &SplitConfig, rows: u64) -> [u64; 3] {
        let splitter = Splitter::new(config);
        let mut counts = [0; 3];
        for row in 0..rows {
            let split = splitter.split_of(&u128::from(row).to_be_bytes());
            counts[usize::from(code(split))] += 1;
        }
        counts
    }

    #[test]
    fn codes_are_positions_in_manifest_order() {
        for (i, split) in Split::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(code(split)), i);
        }
    }

    #[test]
    fn shares_are_met() {
        let [train, validation, test] = counts(&SplitConfig::default(), 100_000);
        // Five standard deviations of the binomial.
        assert!(
            train.abs_diff(80_000) < 640
                && validation.abs_diff(10_000) < 480
                && test.abs_diff(10_000) < 480
        );
    }

    #[test]
    fn a_share_of_zero_gets_nothing_in_spite_of_rounding() {
        let config = SplitConfig {
            train: 0.7,
            validation: 0.3 - 1e-12,
            test: 0.0,
            ..Default::default()
        };
        assert_eq!(counts(&config, 50_000)[2], 0);
        let config = SplitConfig {
            train: 1.0 - 1e-12,
            validation: 0.0,
            test: 0.0,
            ..Default::default()
        };
        assert_eq!(counts(&config, 50_000), [50_000, 0, 0]);
        let config = SplitConfig {
            train: 0.5,
            validation: 0.0,
            test: 0.5,
            ..Default::default()
        };
        assert_eq!(counts(&config, 50_000)[1], 0);
    }

    #[test]
    fn another_salt_makes_another_split() {
        let (a, b) = (
            Splitter::new(&SplitConfig::default()),
            Splitter::new(&SplitConfig {
                salt: "x".into(),
                ..Default::default()
            }),
        );
        let moved = (0..1000u128)
            .filter(|row| a.split_of(&row.to_be_bytes()) != b.split_of(&row.to_be_bytes()))
            .count();
        assert!(moved > 200, "{moved}");
    }

    #[test]
    fn trap_55_folds_are_even_and_independent_of_the_split() {
        let (splitter, folds) = (Splitter::new(&SplitConfig::default()), Folds::new(5));
        let mut train = [0_u32; 5];
        for row in 0..50_000u128 {
            let hash = row.to_be_bytes();
            if splitter.split_of(&hash) == Split::Train {
                train[folds.of(&hash)] += 1;
            }
        }
        // Five standard deviations of the binomial.
        assert!(
            train.iter().all(|rows| rows.abs_diff(8000) < 410),
            "{train:?}"
        );
    }

    #[test]
    fn a_long_salt_is_hashed_as_a_short_one_is() {
        for length in [0, 90, 91, 200] {
            let prefix = prefix("feedline.split", &vec![7; length]);
            let expected = xxh3_64(&[prefix.as_slice(), &[9; 16]].concat());
            assert_eq!(keyed(&prefix, &[9; 16]), expected, "{length}");
        }
    }

    #[test]
    fn trap_55_the_order_of_rows_is_independent_of_their_split() {
        let (splitter, order) = (
            Splitter::new(&SplitConfig::default()),
            ShuffleKey::new(Seed::new(0)),
        );
        let rows = (0..20_000u128).map(|row| row.to_be_bytes());
        let early = rows
            .filter(|hash| {
                splitter.split_of(hash) == Split::Test && keyed(&order.prefix, hash) < u64::MAX / 2
            })
            .count();
        assert!(early.abs_diff(1000) < 160, "{early}");
    }
}
