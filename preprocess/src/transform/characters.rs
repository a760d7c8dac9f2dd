//! Encoding of a document as ids of its characters.

use std::collections::HashMap;

use feedline_schemas::transform::{TransformArtefact, UNKNOWN_ID};

use super::artefact_error::damaged;
use crate::Error;

/// Fitted ids of characters, ready to be applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Characters {
    ids: HashMap<char, u32>,
}

/// Number of ids that an artefact's tokenizer or characters make, the unknown one included; 0 when it has none.
pub(crate) fn vocabulary_of(artefact: &TransformArtefact) -> usize {
    match (&artefact.tokens, &artefact.characters) {
        (Some(tokens), _) => tokens.vocabulary as usize,
        (None, Some(fitted)) => fitted.characters.len() + 1,
        (None, None) => 0,
    }
}

impl Characters {
    /// The ids of an artefact; none if it has none.
    ///
    /// # Errors
    /// [`Error::Input`] when a character is there twice.
    pub(crate) fn of(artefact: &TransformArtefact) -> Result<Option<Self>, Error> {
        let Some(fitted) = &artefact.characters else {
            return Ok(None);
        };
        let known = fitted.characters.iter().copied();
        let ids: HashMap<char, u32> = known.zip(UNKNOWN_ID + 1..).collect();
        if ids.len() != fitted.characters.len() {
            return Err(damaged("it names a character twice".to_owned()));
        }
        Ok(Some(Self { ids }))
    }

    /// Number of ids, the unknown one included.
    pub(crate) fn vocabulary(&self) -> u32 {
        u32::try_from(self.ids.len() + 1).expect("there are fewer than 2^21 characters")
    }

    /// Appends one id for each character of `text` to `ids`. Returns the number of unknown ones.
    pub(crate) fn encode(&self, text: &str, ids: &mut Vec<u32>) -> u64 {
        let start = ids.len();
        let id = |character: char| self.ids.get(&character).copied().unwrap_or(UNKNOWN_ID);
        ids.extend(text.chars().map(id));
        ids[start..].iter().filter(|id| **id == UNKNOWN_ID).count() as u64
    }
}
