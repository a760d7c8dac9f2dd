//! `categories`: encode categories.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::is_false;
use crate::config::{
    bounded::{Bounded, NotNegative},
    tagged::{KeyError, Tagged, Variant, plain},
};

/// `categories`, by its encoding.
#[derive(Clone, Debug, PartialEq)]
pub enum Categories {
    /// One element per known value.
    OneHot(VocabularyCategories),
    /// The id of the value.
    Ordinal(VocabularyCategories),
    /// The fraction of training rows with the value.
    Frequency(VocabularyCategories),
    /// One element per id; several values share an id.
    Hash(HashBuckets),
    /// The mean target of the value's training rows.
    Target(TargetEncoding),
}

impl Default for Categories {
    fn default() -> Self {
        Self::OneHot(VocabularyCategories::default())
    }
}

impl Categories {
    /// The encoding.
    #[must_use]
    pub const fn encoding(&self) -> CategoryEncoding {
        match self {
            Self::OneHot(_) => CategoryEncoding::OneHot,
            Self::Ordinal(_) => CategoryEncoding::Ordinal,
            Self::Frequency(_) => CategoryEncoding::Frequency,
            Self::Hash(_) => CategoryEncoding::Hash,
            Self::Target(_) => CategoryEncoding::Target,
        }
    }

    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::OneHot(_) => "one_hot",
            Self::Ordinal(_) => "ordinal",
            Self::Frequency(_) => "frequency",
            Self::Hash(_) => "hash",
            Self::Target(_) => "target",
        }
    }

    /// The known values; hashed ones have none.
    #[must_use]
    pub const fn vocabulary(&self) -> Option<&VocabularyCategories> {
        match self {
            Self::OneHot(vocabulary) | Self::Ordinal(vocabulary) | Self::Frequency(vocabulary) => {
                Some(vocabulary)
            }
            Self::Target(target) => Some(&target.vocabulary),
            Self::Hash(_) => None,
        }
    }

    /// Largest number of known values, with a lower default where each makes the row longer; `None`
    /// for hashed ones.
    #[must_use]
    pub fn max_values(&self) -> Option<u32> {
        let default = match self {
            Self::OneHot(_) | Self::Ordinal(_) | Self::Hash(_) => 100,
            Self::Frequency(_) | Self::Target(_) => 10_000,
        };
        let vocabulary = self.vocabulary()?;
        Some(vocabulary.max_values.map_or(default, Bounded::get))
    }
}

impl Tagged for Categories {
    const TAG: &'static str = "encoding";
    const DOC: &'static str = "Encoding of categories. `one_hot` (default): one element per id, \
                               including the reserved ones. `ordinal`: the id as a number. \
                               `frequency`: the fraction of training rows with the value; missing \
                               counts as a value, and unknown is 0. `hash`: one element per id, by \
                               a hash of the string; nothing is fitted, so no value is unknown. \
                               `target`: the mean target of the training rows with the value, \
                               shrunk towards the mean of all rows by `smoothing`; for classes the \
                               fraction of each.";
    const DEFAULT: Option<&'static str> = Some("one_hot");

    fn variants() -> Vec<Variant<Self>> {
        vec![
            plain("one_hot", Self::OneHot),
            plain("ordinal", Self::Ordinal),
            plain("frequency", Self::Frequency),
            plain("hash", Self::Hash),
            plain("target", Self::Target),
        ]
    }
}

/// Encode categories by known values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "VocabularyKeys")]
#[schemars(with = "VocabularyKeys")]
pub struct VocabularyCategories {
    /// Largest number of known values; rarer ones become unknown.
    pub max_values: Option<Bounded<u32, 1, 100_000>>,
    /// Fewest training rows of a known value; rarer ones become unknown.
    pub min_count: Option<Bounded<u64, 1, { u64::MAX }>>,
    /// Treatment of rows with a value that the training split lacks.
    pub unknown: Option<UnknownCategories>,
}

/// Keys of known values.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct VocabularyKeys {
    /// Largest number of known values, 1 to 100,000; rarer ones become unknown. Default 100; 10,000
    /// for `frequency` and `target`, which take one element for any number of values.
    max_values: Option<Bounded<u32, 1, 100_000>>,
    /// Fewest training rows of a known value; rarer ones become unknown. Raise it where rare values
    /// are noise. Default 1.
    min_count: Option<Bounded<u64, 1, { u64::MAX }>>,
    /// Treatment of rows with a value that the training split lacks: `accept` (default) or
    /// `reject`. With `accept` the value has the reserved id of unknown values. With `reject` the
    /// row is rejected as `unknown_category` and counts towards `max_reject_fraction`, in the
    /// splits, in appended rows and in rows to predict. Use `reject` where a new value is a fault
    /// of the source. Then every training value is known, and the build stops if there are more
    /// than `max_values`.
    unknown: Option<UnknownCategories>,
}

impl TryFrom<VocabularyKeys> for VocabularyCategories {
    type Error = KeyError;

    fn try_from(keys: VocabularyKeys) -> Result<Self, KeyError> {
        let VocabularyKeys {
            max_values,
            min_count,
            unknown,
        } = keys;
        let rejects = unknown == Some(UnknownCategories::Reject);
        if rejects && min_count.is_some_and(|fewest| fewest.get() > 1) {
            let reason = "it makes rare training values unknown, and `unknown = \"reject\"` rejects unknown ones; remove one of \
                          the two";
            return Err(KeyError::new("min_count", reason));
        }
        Ok(Self {
            max_values,
            min_count,
            unknown,
        })
    }
}

/// Treatment of a row with a category that the training split lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UnknownCategories {
    /// The row is kept, and the value has the reserved id of unknown values.
    #[default]
    Accept,
    /// The row is rejected.
    Reject,
}

/// Encode categories by a hash of their text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HashBuckets {
    /// Number of ids that the values share, 1 to 65,536. With more ids, fewer values share one, and
    /// the row is longer. Default 64.
    pub buckets: Bounded<u32, 1, 65_536>,
}

impl Default for HashBuckets {
    fn default() -> Self {
        Self {
            buckets: Bounded::literal::<64>(),
        }
    }
}

/// Encode categories by the target.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(try_from = "TargetKeys")]
#[schemars(with = "TargetKeys")]
pub struct TargetEncoding {
    /// The known values.
    pub vocabulary: VocabularyCategories,
    /// Number of folds of the training split.
    pub folds: Bounded<u32, 2, 100>,
    /// Number of rows with the mean over all rows that are added to those of each value.
    pub smoothing: NotNegative,
}

impl Default for TargetEncoding {
    fn default() -> Self {
        Self {
            vocabulary: VocabularyCategories::default(),
            folds: Bounded::literal::<5>(),
            smoothing: NotNegative::literal(10.0),
        }
    }
}

/// Keys of `encoding = "target"`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TargetKeys {
    /// Largest number of known values, 1 to 100,000; rarer ones become unknown. Default 10,000.
    max_values: Option<Bounded<u32, 1, 100_000>>,
    /// Fewest training rows of a known value; rarer ones become unknown. Raise it where rare values
    /// are noise. Default 1.
    min_count: Option<Bounded<u64, 1, { u64::MAX }>>,
    /// Treatment of rows with a value that the training split lacks: `accept` (default) or
    /// `reject`, as with the other encodings of known values.
    unknown: Option<UnknownCategories>,
    /// Number of folds of the training split, 2 to 100, chosen by a keyed hash of the rows'
    /// content. The encoding of a training row is computed from the other folds; fewer folds make
    /// it noisier. Default 5.
    folds: Option<Bounded<u32, 2, 100>>,
    /// Number of rows with the mean over all rows that are added to those of each value. Raise it
    /// where values with few rows are noisy. Default 10.
    smoothing: Option<NotNegative>,
}

impl TryFrom<TargetKeys> for TargetEncoding {
    type Error = KeyError;

    fn try_from(keys: TargetKeys) -> Result<Self, KeyError> {
        let plain = Self::default();
        let vocabulary = VocabularyKeys {
            max_values: keys.max_values,
            min_count: keys.min_count,
            unknown: keys.unknown,
        };
        Ok(Self {
            vocabulary: vocabulary.try_into()?,
            folds: keys.folds.unwrap_or(plain.folds),
            smoothing: keys.smoothing.unwrap_or(plain.smoothing),
        })
    }
}

/// Fitted categories of a column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FittedCategories {
    /// Column.
    pub name: String,
    /// Known values; the first has id 2. None for `hash`.
    pub values: Vec<String>,
    /// Training rows of each known value.
    pub counts: Vec<u64>,
    /// Encoding of the id in the feature vector.
    pub encoding: CategoryEncoding,
    /// Fewest training rows of a known value, where that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_count: Option<u64>,
    /// True when a row with another value is rejected. Then every training value is known.
    #[serde(default, skip_serializing_if = "is_false")]
    pub rejects_unknown: bool,
    /// `hash`: ids that values share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buckets: Option<u32>,
    /// `frequency`: what shares are of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frequency: Option<FittedFrequency>,
    /// `target`: what the target is like in the rows of each value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcomes: Option<FittedOutcomes>,
}

impl FittedCategories {
    /// Categories of these values, which have `counts` training rows each, and of nothing else.
    #[must_use]
    pub const fn new(
        name: String,
        values: Vec<String>,
        counts: Vec<u64>,
        encoding: CategoryEncoding,
    ) -> Self {
        Self {
            name,
            values,
            counts,
            encoding,
            min_count: None,
            rejects_unknown: false,
            buckets: None,
            frequency: None,
            outcomes: None,
        }
    }
}

/// Mean target in the rows of each value of a category. With `n` rows of a value, the sum `s` of
/// their targets and the mean `p` over all rows it is `(s + smoothing * p) / (n + smoothing)`, and
/// where the target is stored standardized, that less the mean, divided by the deviation of the
/// same rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FittedOutcomes {
    /// Parts of the training split. A row's is `xxh3-64("feedline.fold" | 0 as u64 | hash) * folds / 2^64`, with the hash that
    /// `fold_by` names.
    pub folds: u32,
    /// Rows that share a fold. Absent: those of equal content.
    #[serde(default, skip_serializing_if = "FoldBy::is_content")]
    pub fold_by: FoldBy,
    /// Rows of the mean that are added to those of each value.
    pub smoothing: f64,
    /// One for a number to predict; one per class, by bytes, without the first where there are two.
    pub elements: Vec<FittedOutcome>,
}

/// Rows of the training split that are in one fold, so that none gets a number made of the targets of the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FoldBy {
    /// Rows of equal content, by their content hash.
    #[default]
    Content,
    /// Rows of one group of the split, by the hash of `dataset.split.key` or of their cluster of near-duplicates.
    Group,
}

impl FoldBy {
    /// Returns whether rows of equal content share a fold, and no others.
    #[must_use]
    pub const fn is_content(&self) -> bool {
        matches!(self, Self::Content)
    }
}

/// One element of a category that became what the target is like.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FittedOutcome {
    /// The class whose share it is; absent for a number to predict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// By id, what rows outside of the training split get: from all training rows. Unknown values get the mean.
    pub all: Vec<f64>,
    /// Per fold, by id, what its rows get: from the training rows of all other folds.
    pub others: Vec<Vec<f64>>,
}

/// Rows that the shares of categories are computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FittedFrequency {
    /// Rows of the training split, above 0.
    pub rows: u64,
    /// Those of them whose cell is missing.
    pub missing: u64,
}

/// Reserved id of a category not seen in the training split.
pub const UNKNOWN_ID: u32 = 0;
/// Reserved id of a missing category.
pub const NULL_ID: u32 = 1;
/// Id of the first known category.
pub const FIRST_KNOWN_ID: u32 = 2;

/// Encoding of a category id in the feature vector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CategoryEncoding {
    /// One element per id, the reserved ones included.
    #[default]
    OneHot,
    /// One element: the id as a number.
    Ordinal,
    /// One element: the share of the training rows that have the value, missing counted as a value. 0 where unknown.
    Frequency,
    /// One element per id; a value's id is 2 + xxh3-64 (seed 0) of its text after Unicode's NFC, modulo `buckets`. Nothing
    /// is fitted, so no value is unknown: id 0 is reserved and never used, id 1 is null.
    Hash,
    /// One element: the mean target of the training rows that have the value, drawn to the mean of
    /// all by `smoothing`; for classes the share of each, an element per class, or one of two.
    /// Training rows get it from the other `folds`, so that no row sees its own target; all other
    /// rows from all training rows. Unknown values get the mean of all.
    Target,
}
