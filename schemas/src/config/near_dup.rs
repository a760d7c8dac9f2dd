//! `[dataset.near_dup]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ids::Name, units::ByteSize};

/// `[dataset.near_dup]`: documents that are nearly the same, by the Jaccard similarity of their sets of n-grams.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NearDupConfig {
    /// Column of texts to compare. Default: the column of documents; rows of numbers must name one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<String>,
    /// Jaccard similarity from which two documents are near-duplicates, 0.2 to 1. Default 0.8. Of the pairs at the
    /// threshold at least 92 of 100 are found, of those 0.05 above it at least 97 (98 at 0.85), fewer among more than 64
    /// documents made of one template; no pair below it is ever joined.
    pub threshold: f64,
    /// Hashes of a signature, 16 to 1,024. Default 112: at 0.8 they are 14 bands of 8. More find more of the pairs near the
    /// threshold and take time and disk in proportion: 256 find 99.7 of 100 at 0.8. Fewer make shorter bands, so that more
    /// pairs are compared in vain.
    pub hashes: u32,
    /// What n-grams are made of: `auto` (default), `words` or `characters`.
    pub unit: NearDupUnit,
    /// Words of an n-gram, 1 to 100. Default 5. Fewer find looser copies.
    pub ngram: usize,
    /// Characters of an n-gram, 1 to 100. Default 8, about five words of Chinese; take 24 for scripts with spaces.
    pub ngram_characters: usize,
    /// Unicode normalization of the compared text: `nfc` (default), `nfkc` (full-width as half-width) or `none`.
    pub normalize: Normalization,
    /// Whether letters are compared in lower case. Default true.
    pub lowercase: bool,
    /// What punctuation and symbols do: `space` (default), `remove` or `keep`.
    pub punctuation: Punctuation,
    /// What becomes of digits: `keep` (default), or `zero`: every number is one.
    pub digits: Digits,
    /// What becomes of a cluster: `first` (default) or `all`.
    pub keep: NearDupKeep,
    /// Sources whose documents are frozen, such as the test set of a benchmark: they are not part of the dataset, and
    /// whatever is nearly one of them, or in one cluster with it, is left out. Default none.
    pub against: Vec<Name>,
    /// Memory for sorting and for sets of n-grams before they go to the scratch folder, 1 MiB or more. Default 1 GiB.
    /// The index takes 21 bytes a document beyond it, and about 50 a copy, so that 100 million documents, a tenth of them
    /// copies, fit in 4 GiB.
    pub memory: ByteSize,
    /// Largest share of all documents one cluster may hold, above 0 and at most 1; a larger one of more than 1,000
    /// documents stops the build, as boilerplate that chains documents together. Default 0.05.
    pub max_cluster_fraction: f64,
}

impl Default for NearDupConfig {
    fn default() -> Self {
        Self {
            column: None,
            threshold: 0.8,
            hashes: 112,
            unit: NearDupUnit::Auto,
            ngram: 5,
            ngram_characters: 8,
            normalize: Normalization::Nfc,
            lowercase: true,
            punctuation: Punctuation::Space,
            digits: Digits::Keep,
            keep: NearDupKeep::First,
            against: Vec::new(),
            memory: ByteSize::mib(1024),
            max_cluster_fraction: 0.05,
        }
    }
}

/// What n-grams are made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NearDupUnit {
    /// Characters for a document whose letters are mostly of scripts without spaces (Han, Kana, Thai, Lao, Khmer,
    /// Myanmar, Tibetan), words for any other.
    #[default]
    Auto,
    /// Runs of letters, marks, numbers and `_`.
    Words,
    /// Characters that are no spaces.
    Characters,
}

/// Unicode normalization form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Normalization {
    /// Canonical composition: `e` with a combining accent is `é`.
    #[default]
    Nfc,
    /// Compatibility composition: full-width letters, ligatures and circled digits are plain ones too.
    Nfkc,
    /// As it is.
    None,
}

/// What punctuation and symbols do to words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Punctuation {
    /// They end a word: `don't` is `don`, `t`.
    #[default]
    Space,
    /// They vanish: `don't` is `dont`.
    Remove,
    /// They belong to it.
    Keep,
}

/// What becomes of digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Digits {
    /// They count.
    #[default]
    Keep,
    /// Every run of digits is `0`, so that dates and numbers make no difference.
    Zero,
}

/// What becomes of a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NearDupKeep {
    /// The document that landed first is kept, the others are set aside.
    #[default]
    First,
    /// All are kept, in the split of the one that landed first.
    All,
}
