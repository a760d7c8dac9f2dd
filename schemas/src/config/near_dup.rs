//! `[dataset.near_dup]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ids::Name, units::ByteSize};

/// `[dataset.near_dup]`: detection of near-duplicate documents by the Jaccard similarity of their
/// sets of n-grams.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NearDupConfig {
    /// Text column to compare. Default: the column of documents; required for `kind = "rows"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<String>,
    /// Smallest Jaccard similarity of two near-duplicates, 0.2 to 1. Default 0.8. At least 92 of
    /// 100 pairs at the threshold are found, and at least 97 of 100 pairs 0.05 above it (98 at
    /// 0.85). Among more than 64 documents made from one template fewer are found. No pair below
    /// the threshold is ever joined.
    pub threshold: f64,
    /// Number of hashes of a signature, 16 to 1,024. Default 112: at 0.8 they are 14 bands of 8.
    /// More hashes find more of the pairs near the threshold and take time and disk in proportion:
    /// 256 find 99.7 of 100 at 0.8. Fewer hashes make shorter bands, so more pairs are compared
    /// without a match.
    pub hashes: u32,
    /// Unit of n-grams: `auto` (default), `words` or `characters`.
    pub unit: NearDupUnit,
    /// Number of words of an n-gram, 1 to 100. Default 5. Fewer words find looser duplicates.
    pub ngram: usize,
    /// Number of characters of an n-gram, 1 to 100. Default 8, about five words of Chinese; use 24
    /// for scripts with spaces.
    pub ngram_characters: usize,
    /// Unicode normalization of the compared text: `nfc` (default), `nfkc` (full-width as
    /// half-width) or `none`.
    pub normalize: Normalization,
    /// If true, letters are compared in lower case. Default true.
    pub lowercase: bool,
    /// Treatment of punctuation and symbols: `space` (default), `remove` or `keep`.
    pub punctuation: Punctuation,
    /// Treatment of digits: `keep` (default), or `zero`, which makes all numbers equal.
    pub digits: Digits,
    /// Documents of a cluster to keep: `first` (default) or `all`.
    pub keep: NearDupKeep,
    /// Sources with frozen documents, such as the test set of a benchmark. They are not part of the
    /// dataset. Documents that are near-duplicates of one, or are in one cluster with it, are
    /// filtered out. Default none.
    pub against: Vec<Name>,
    /// Memory for sorting and for sets of n-grams before they spill to the scratch folder, 1 MiB or
    /// more. Default 1 GiB. The index takes another 21 bytes per document and about 50 per
    /// duplicate. So 100 million documents, a tenth of them duplicates, fit in 4 GiB.
    pub memory: ByteSize,
    /// Largest fraction of all documents in one cluster, above 0 and at most 1. A larger cluster of
    /// more than 1,000 documents stops the build, because it is likely to be boilerplate that
    /// chains documents together. Default 0.05.
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

/// Unit of n-grams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NearDupUnit {
    /// Characters for a document whose letters are mostly of scripts without spaces (Han, Kana,
    /// Thai, Lao, Khmer, Myanmar, Tibetan), words for any other.
    #[default]
    Auto,
    /// Runs of letters, marks, numbers and `_`.
    Words,
    /// Characters that are not spaces.
    Characters,
}

/// Unicode normalization form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Normalization {
    /// Canonical composition: `e` with a combining accent is `é`.
    #[default]
    Nfc,
    /// Compatibility composition: full-width letters, ligatures and circled digits become plain
    /// ones, too.
    Nfkc,
    /// No normalization.
    None,
}

/// Treatment of punctuation and symbols in words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Punctuation {
    /// They end a word: `don't` is `don`, `t`.
    #[default]
    Space,
    /// They are removed: `don't` is `dont`.
    Remove,
    /// They are part of the word.
    Keep,
}

/// Treatment of digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Digits {
    /// Digits are compared as they are.
    #[default]
    Keep,
    /// Every run of digits is `0`, so dates and numbers make no difference.
    Zero,
}

/// Documents of a cluster to keep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NearDupKeep {
    /// The document that landed first; the others are filtered out.
    #[default]
    First,
    /// All documents, in the split of the one that landed first.
    All,
}
