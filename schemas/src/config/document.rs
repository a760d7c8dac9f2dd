//! `[dataset.text]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::near_dup::Normalization;

/// `[dataset.text]`: preparation of documents before they are compared, split and tokenized.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DocumentConfig {
    /// Unicode normalization form: `nfc` (default), `nfkc` or `none`.
    pub normalize: Normalization,
    /// Kinds of personal data to redact: any of `email`, `phone`, `card`. Each occurrence is
    /// replaced by its kind in brackets, such as `[email]`, and counted. `phone` replaces numbers
    /// with a prefix (`+`, `00` or `0`) and North American ones in groups of 3, 3 and 4; a number
    /// without either, such as `5551234567`, stays, since it may be any number. Default none.
    pub redact: Vec<PersonalData>,
    /// Filters of documents. Absent: no document is filtered out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quality: Option<QualityConfig>,
}

/// Kinds of personal data.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum PersonalData {
    /// Addresses such as `name@example.org`.
    Email,
    /// Telephone numbers: international ones (`+` or `00`), those with an area code that starts
    /// with 0, and North American ones in groups of 3, 3 and 4. A number without groups or prefix
    /// is not recognized.
    Phone,
    /// Payment cards: 13 to 19 digits that begin with 2 to 6 and have a correct check digit (Luhn).
    /// They are in one group, in groups of 4, or in groups of 4, 6 and 5, as some cards print them.
    Card,
}

/// `[dataset.text.quality]`: filters of documents, independent of the language. A document that
/// fails a filter is filtered out under the name of that filter.
///
/// Defaults are those of Gopher (Rae and others 2021, appendix A.1), FineWeb (Penedo and others
/// 2024, 3.6) and C4 (Raffel and others 2020, 2.2), as marked. Words are separated by spaces, and
/// punctuation around them is not part of them. In a document mostly of scripts without spaces
/// every character is a word, and filters of word length do not apply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct QualityConfig {
    /// Fewest words. Default 50 (Gopher); 0 for no limit.
    pub min_words: u64,
    /// Most words. Default 100,000 (Gopher).
    pub max_words: u64,
    /// Fewest characters. Default 0, no limit.
    pub min_characters: u64,
    /// Most characters. Absent: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_characters: Option<u64>,
    /// Smallest mean length of a word, in characters. Default 3 (Gopher).
    pub min_mean_word: f64,
    /// Largest mean length of a word, in characters. Default 10 (Gopher).
    pub max_mean_word: f64,
    /// Longest word, in characters. Default 1,000 (C4).
    pub max_word: u64,
    /// Most `#`, and most ellipses, for each word. Default 0.1 (Gopher).
    pub max_symbols: f64,
    /// Largest fraction of lines that begin with a bullet. Default 0.9 (Gopher).
    pub max_bullet_lines: f64,
    /// Largest fraction of lines that end with an ellipsis. Default 0.3 (Gopher).
    pub max_ellipsis_lines: f64,
    /// Smallest fraction of words that contain a letter. Default 0.8 (Gopher).
    pub min_alphabetic_words: f64,
    /// Fewest sentences, counted by their ends. Default 5 (C4).
    pub min_sentences: u64,
    /// Smallest fraction of lines that end as a sentence or a quotation does. Default 0.12
    /// (FineWeb).
    pub min_punctuated_lines: f64,
    /// Largest fraction of lines of up to 30 characters. Default 0.67 (FineWeb).
    pub max_short_lines: f64,
    /// Most line breaks for each word. Default 0.3 (FineWeb).
    pub max_line_breaks: f64,
    /// Largest fraction of lines that repeat an earlier one. Default 0.3 (Gopher).
    pub max_repeated_lines: f64,
    /// Largest fraction of characters in lines that repeat an earlier one. Default 0.1 (FineWeb;
    /// its code has 0.01, Gopher 0.2).
    pub max_repeated_line_characters: f64,
    /// Largest fraction of paragraphs that repeat an earlier one. Default 0.3 (Gopher).
    pub max_repeated_paragraphs: f64,
    /// Largest fraction of characters in paragraphs that repeat an earlier one. Default 0.2
    /// (Gopher).
    pub max_repeated_paragraph_characters: f64,
    /// Largest fraction of characters in the most frequent run of 2, 3 and 4 words. Default
    /// `[0.2, 0.18, 0.16]` (Gopher).
    pub max_top_ngrams: [f64; 3],
    /// Largest fraction of characters in runs of 5, 6, 7, 8, 9 and 10 words that repeat an earlier
    /// one. Default `[0.15, 0.14, 0.13, 0.12, 0.11, 0.1]` (Gopher).
    pub max_repeated_ngrams: [f64; 6],
}

impl Default for QualityConfig {
    fn default() -> Self {
        Self {
            min_words: 50,
            max_words: 100_000,
            min_characters: 0,
            max_characters: None,
            min_mean_word: 3.0,
            max_mean_word: 10.0,
            max_word: 1000,
            max_symbols: 0.1,
            max_bullet_lines: 0.9,
            max_ellipsis_lines: 0.3,
            min_alphabetic_words: 0.8,
            min_sentences: 5,
            min_punctuated_lines: 0.12,
            max_short_lines: 0.67,
            max_line_breaks: 0.3,
            max_repeated_lines: 0.3,
            max_repeated_line_characters: 0.1,
            max_repeated_paragraphs: 0.3,
            max_repeated_paragraph_characters: 0.2,
            max_top_ngrams: [0.2, 0.18, 0.16],
            max_repeated_ngrams: [0.15, 0.14, 0.13, 0.12, 0.11, 0.1],
        }
    }
}
