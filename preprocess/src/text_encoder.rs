//! Encoding of new texts to token ids, by the vocabulary that a run was trained on.
//!
//! A text is normalised and redacted by `[dataset.text]`, then encoded by the fitted characters or
//! the tokenizer of the run: nothing is fitted on new texts. Quality filters only choose training
//! documents, and are not applied.

use feedline_schemas::{
    config::{Normalization, PersonalData},
    ids::Hash128,
    manifest::Manifest,
    transform::TransformArtefact,
};
use feedline_storage::Store;

use crate::{
    Error, Fault, document, manifest::tokenizer_path, payload::document_fault, tokens::Tokenizer,
    transform::Characters,
};

/// Reason of a text that the tokenizer has no ids for.
const NOT_ENCODED: &str = "text_not_encoded";

/// Encoder of new texts.
#[derive(Debug)]
pub struct TextEncoder {
    column: String,
    form: Normalization,
    redact: Vec<PersonalData>,
    vocabulary: Vocabulary,
}

#[derive(Debug)]
enum Vocabulary {
    Characters(Characters),
    Tokens {
        tokenizer: Box<Tokenizer>,
        /// Id behind each text.
        end: Option<u32>,
    },
}

/// A text as ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EncodedText {
    /// Its ids, including that of the end of a text where the dataset has one.
    pub ids: Vec<u32>,
    /// Number of unknown ids among them.
    pub unknown: u64,
}

impl TextEncoder {
    /// Opens the encoder of `artefact` for texts that are prepared as those of the dataset of `manifest`, in the folder
    /// `dataset`. `tokenizer` is the `tokenizer.json` that the run has kept; without it the dataset's is used, if it is the same.
    ///
    /// # Errors
    /// [`Error::Input`] for an artefact of other data, and where its tokenizer is not found; failures of the store.
    pub async fn open(
        artefact: &TransformArtefact,
        tokenizer: Option<Vec<u8>>,
        manifest: &Manifest,
        dataset: &Store,
    ) -> Result<Self, Error> {
        let text = manifest.text.as_ref();
        let of_text = |column: &str, vocabulary| Self {
            column: column.to_owned(),
            form: text.map_or(Normalization::None, |text| text.normalize),
            redact: text.map(|text| text.redact.clone()).unwrap_or_default(),
            vocabulary,
        };
        if let (Some(fitted), Some(characters)) = (&artefact.characters, Characters::of(artefact)?)
        {
            return Ok(of_text(&fitted.column, Vocabulary::Characters(characters)));
        }
        let Some(fitted) = &artefact.tokens else {
            return Err(Error::input(
                "the dataset",
                "it holds no texts alone",
                "texts are scored for `dataset.kind = \"tokens\"` or `\"characters\"`",
            ));
        };
        let path = tokenizer_path(fitted.tokenizer);
        let file = match tokenizer {
            Some(file) => Some(file),
            None => dataset.get_opt(&path).await?.map(|file| file.to_vec()),
        };
        let file = file.filter(|file| Hash128::of(file) == fitted.tokenizer);
        let lost = |reason: String| {
            Error::input(
                format!("tokenizer `{}`", dataset.url_of(&path)),
                reason,
                "restore the file, or train a model on the dataset as it is now",
            )
        };
        let file = file.ok_or_else(|| {
            lost("the run was trained on its ids, and it is missing or another".to_owned())
        })?;
        let tokenizer = Tokenizer::new(&file).map_err(lost)?;
        let vocabulary = Vocabulary::Tokens {
            tokenizer: Box::new(tokenizer),
            end: fitted.end_of_text,
        };
        Ok(of_text(&fitted.column, vocabulary))
    }

    /// Column of the texts.
    #[must_use]
    pub fn column(&self) -> &str {
        &self.column
    }

    /// Encodes a text.
    ///
    /// # Errors
    /// The reason why it is no document, or has no ids.
    pub fn encode(&self, text: Option<&str>) -> Result<EncodedText, Fault> {
        let prepared = text.map(|text| document::prepare(text, self.form, &self.redact));
        if let Some((reason, found)) = document_fault(prepared.as_deref()) {
            let detail = match found.is_empty() {
                true => format!("column `{}` is empty or missing", self.column),
                false => format!("column `{}` has {found}", self.column),
            };
            return Err(Fault { reason, detail });
        }
        let text = prepared.unwrap_or_default();
        let mut ids = Vec::new();
        let unknown = match &self.vocabulary {
            Vocabulary::Characters(characters) => characters.encode(&text, &mut ids),
            Vocabulary::Tokens { tokenizer, end } => {
                let encoded = tokenizer.encode(&text, &mut ids);
                encoded.map_err(|detail| Fault {
                    reason: NOT_ENCODED,
                    detail,
                })?;
                let unknown = tokenizer.unknown(&ids);
                ids.extend(end);
                unknown
            }
        };
        Ok(EncodedText { ids, unknown })
    }
}
