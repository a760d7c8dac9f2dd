//! `[[dataset.step]]` of `type = "categories"`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    config::{
        bounded::{Bounded, NotNegative},
        tagged::{KeyError, Tagged, Variant, plain},
    },
    transform::CategoryEncoding,
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
