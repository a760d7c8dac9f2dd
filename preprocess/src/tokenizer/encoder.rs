//! Encoding of documents as ids of their characters or tokens.

use std::sync::Arc;

use arrow::array::StringArray;
use feedline_schemas::{config::DatasetKind, manifest::TokenType};

use super::Tokenizer;
use crate::{Error, transform::Characters};

/// Turns documents into ids.
#[derive(Debug)]
pub(crate) enum Encoder {
    Characters(Characters),
    Tokens {
        tokenizer: Arc<Tokenizer>,
        /// Id behind each document.
        end: Option<u32>,
    },
}

/// Documents as ids.
#[derive(Debug, Default)]
pub(crate) struct Encoded {
    ids: Vec<u32>,
    /// `[documents]`: ids up to the end of each.
    ends: Vec<usize>,
    /// Ids of characters or tokens that the training split lacks.
    pub(crate) unknown: u64,
    /// [`units`] of the documents.
    pub(crate) units: u64,
}

impl Encoded {
    /// The ids of a document.
    pub(crate) fn document(&self, row: usize) -> &[u32] {
        let start = row.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.ids[start..self.ends[row]]
    }
}

/// Units of a text that are counted so that no loss goes unseen: characters where each of them is
/// an id, else bytes.
pub(crate) fn units(kind: DatasetKind, text: &str) -> u64 {
    match kind {
        DatasetKind::Characters => text.chars().count() as u64,
        _ => text.len() as u64,
    }
}

impl Encoder {
    /// Number of ids there are.
    pub(crate) fn vocabulary(&self) -> u32 {
        match self {
            Self::Characters(characters) => characters.vocabulary(),
            Self::Tokens { tokenizer, .. } => tokenizer.vocabulary(),
        }
    }

    /// The narrowest type that holds every id.
    pub(crate) fn id_type(&self) -> TokenType {
        if self.vocabulary() <= 1 << 16 {
            TokenType::U16
        } else {
            TokenType::U32
        }
    }

    /// Ids of documents, none of them null.
    ///
    /// # Errors
    /// [`Error::Input`] for a text that the tokenizer has no ids for.
    pub(crate) fn encode(&self, texts: &StringArray) -> Result<Encoded, Error> {
        let mut encoded = Encoded::default();
        for text in texts.iter().map(Option::unwrap_or_default) {
            match self {
                Self::Characters(characters) => {
                    let start = encoded.ids.len();
                    encoded.unknown += characters.encode(text, &mut encoded.ids);
                    encoded.units += (encoded.ids.len() - start) as u64;
                }
                Self::Tokens { tokenizer, end } => {
                    let start = encoded.ids.len();
                    let ids = tokenizer.encode(text, &mut encoded.ids);
                    ids.map_err(|reason| unfit(text, reason))?;
                    encoded.unknown += tokenizer.unknown(&encoded.ids[start..]);
                    encoded.ids.extend(end);
                    encoded.units += units(DatasetKind::Tokens, text);
                }
            }
            encoded.ends.push(encoded.ids.len());
        }
        Ok(encoded)
    }
}

fn unfit(text: &str, reason: String) -> Error {
    let beginning: String = text.chars().take(40).collect();
    Error::input(
        format!("the tokenizer on the document that begins with {beginning:?}"),
        reason,
        "choose a tokenizer for such texts with `dataset.tokens.tokenizer`",
    )
}
