//! Tokenizers: from texts to ids, by any `tokenizer.json`.
//!
//! A tokenizer of GPT-2's kind (byte-level pairs, GPT-2's words, no normalization) is run by our
//! own encoder, which gives the ids of the `tokenizers` library some ten times as fast; the library
//! runs all others. Special tokens have no meaning in texts: where one is spelled out, it is
//! ordinary text.

mod alphabet;
mod byte_level;
mod cache;
mod encoder;
mod learn;
mod merges;
pub(crate) mod text_encoder;
mod words;
mod written;

use std::fmt;

use feedline_schemas::{guard::catching, ids::Hash128};
use serde_json::Value;

use self::byte_level::ByteLevel;
pub(crate) use self::{
    encoder::{Encoded, Encoder, units},
    learn::{Sample, WordCounts},
};

/// Turns texts into token ids.
///
/// ```
/// use feedline_preprocess::Tokenizer;
///
/// let file = br#"{
///     "version": "1.0", "added_tokens": [], "pre_tokenizer": { "type": "Whitespace" },
///     "model": {
///         "type": "WordLevel", "unk_token": "[UNK]", "vocab": { "[UNK]": 0, "the": 1, "cat": 2 }
///     }
/// }"#;
/// let tokenizer = Tokenizer::new(file)?;
/// let mut ids = Vec::new();
/// tokenizer.encode("the cat sat", &mut ids)?;
/// assert_eq!(ids, [1, 2, 0]);
/// assert_eq!(tokenizer.vocabulary(), 3);
/// # Ok::<(), String>(())
/// ```
pub struct Tokenizer {
    engine: Engine,
    hash: Hash128,
    vocabulary: u32,
    /// Id of what the vocabulary does not have.
    unknown: Option<u32>,
    added: Vec<(String, u32)>,
}

enum Engine {
    /// Ours.
    ByteLevel(Box<ByteLevel>),
    Library {
        tokenizer: Box<tokenizers::Tokenizer>,
        /// Reason why our encoder cannot read it.
        reason: String,
    },
}

impl Tokenizer {
    /// Loads a `tokenizer.json` from its bytes.
    ///
    /// # Errors
    /// A message about the fault.
    pub fn new(file: &[u8]) -> Result<Self, String> {
        let parsed: Value =
            serde_json::from_slice(file).map_err(|error| format!("it is not JSON: {error}"))?;
        let engine = match ByteLevel::new(&parsed) {
            Ok(ours) => Engine::ByteLevel(Box::new(ours)),
            Err(reason) => Engine::Library {
                tokenizer: Box::new(library(file)?),
                reason,
            },
        };
        let added = added(&parsed);
        let known = vocabulary(&parsed["model"]["vocab"]);
        let largest = known
            .into_iter()
            .chain(added.iter().map(|(_, id)| *id))
            .max();
        let vocabulary = largest.and_then(|id| id.checked_add(1));
        Ok(Self {
            engine,
            hash: Hash128::of(file),
            vocabulary: vocabulary.ok_or("it has no vocabulary")?,
            unknown: unknown(&parsed["model"]),
            added,
        })
    }

    /// As [`Self::new`], but always with the library; for comparison with our own encoder.
    ///
    /// # Errors
    /// As [`Self::new`].
    #[doc(hidden)]
    pub fn by_library(file: &[u8]) -> Result<Self, String> {
        let engine = Engine::Library {
            tokenizer: Box::new(library(file)?),
            reason: "it was asked for".into(),
        };
        Ok(Self {
            engine,
            ..Self::new(file)?
        })
    }

    /// Appends the ids of `text`.
    ///
    /// # Errors
    /// A message with the reason; then `ids` holds nothing of use.
    pub fn encode(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), String> {
        match &self.engine {
            Engine::ByteLevel(ours) => ours.encode(text, ids),
            Engine::Library { tokenizer, .. } => {
                let encoded = guarded(|| tokenizer.encode_fast(text, false))?;
                ids.extend_from_slice(encoded.get_ids());
                Ok(())
            }
        }
    }

    /// Number of `ids` that are the unknown token.
    pub(crate) fn unknown(&self, ids: &[u32]) -> u64 {
        let unknown = |id: &&u32| Some(**id) == self.unknown;
        ids.iter().filter(unknown).count() as u64
    }

    /// The id of what the vocabulary does not have.
    pub(crate) fn unknown_id(&self) -> Option<u32> {
        self.unknown
    }

    /// One more than the largest id.
    #[must_use]
    pub fn vocabulary(&self) -> u32 {
        self.vocabulary
    }

    /// xxh3-128 of the file.
    #[must_use]
    pub fn hash(&self) -> Hash128 {
        self.hash
    }

    /// Reason for encoding with the library; `None` with our own encoder.
    #[must_use]
    pub fn library_reason(&self) -> Option<&str> {
        match &self.engine {
            Engine::ByteLevel(_) => None,
            Engine::Library { reason, .. } => Some(reason),
        }
    }

    /// The tokens that were added to the vocabulary, such as `<|endoftext|>`, and their ids, in the file's order.
    #[must_use]
    pub fn added(&self) -> &[(String, u32)] {
        &self.added
    }
}

/// Learns a tokenizer of GPT-2's kind from counted words: up to `vocabulary` ids, with `end` as the
/// last. The file is a pure function of all three.
///
/// # Errors
/// When `end` is a token of the text.
pub(crate) fn learnt(counts: WordCounts, vocabulary: u32, end: &str) -> Result<Vec<u8>, String> {
    let most = vocabulary.saturating_sub(1) as usize;
    written::file(&learn::learn(counts, &written::bytes(), most), end)
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokenizer")
            .field("hash", &self.hash)
            .field("vocabulary", &self.vocabulary)
            .field("library_reason", &self.library_reason())
            .finish_non_exhaustive()
    }
}

/// The library's tokenizer, which cuts nothing off, fills nothing up and takes special tokens for text.
fn library(file: &[u8]) -> Result<tokenizers::Tokenizer, String> {
    let mut tokenizer = guarded(|| tokenizers::Tokenizer::from_bytes(file))?;
    tokenizer.with_padding(None);
    tokenizer
        .with_truncation(None)
        .map_err(|error| error.to_string())?;
    tokenizer.set_encode_special_tokens(true);
    Ok(tokenizer)
}

/// Runs `work` with the library, which panics on some files that are not consistent.
fn guarded<T>(work: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, String> {
    match catching(work) {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(panic) => Err(format!("the tokenizers library failed on it: {panic}")),
    }
}

/// `added_tokens` of the file.
fn added(file: &Value) -> Vec<(String, u32)> {
    let tokens = file["added_tokens"].as_array().into_iter().flatten();
    let token = |token: &Value| {
        let id = u32::try_from(token["id"].as_u64()?).ok()?;
        Some((token["content"].as_str()?.to_owned(), id))
    };
    tokens.filter_map(token).collect()
}

/// Ids of a vocabulary: its numbers, or the places in a list.
fn vocabulary(vocabulary: &Value) -> Vec<u32> {
    let narrow = |id: u64| u32::try_from(id).ok();
    match vocabulary {
        Value::Object(ids) => ids
            .values()
            .filter_map(Value::as_u64)
            .filter_map(narrow)
            .collect(),
        Value::Array(list) => (0..list.len() as u64).filter_map(narrow).collect(),
        _ => Vec::new(),
    }
}

/// Id of what a model does not know: of `unk_token`, or `unk_id`.
fn unknown(model: &Value) -> Option<u32> {
    let id = match &model["unk_token"] {
        Value::String(token) => model["vocab"][token].as_u64(),
        _ => model["unk_id"].as_u64(),
    };
    u32::try_from(id?).ok()
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
