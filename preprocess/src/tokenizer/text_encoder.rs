//! Encoding of new texts to token ids, by the vocabulary that a run was trained on, and decoding of ids.
//!
//! A text is normalised and redacted by `[dataset.text]`, then encoded by the fitted characters or
//! the tokenizer of the run: nothing is fitted on new texts. Quality filters only choose training
//! documents, and are not applied.

use feedline_schemas::{
    config::{Normalization, PersonalData},
    ids::Hash128,
    manifest::Manifest,
    transform::{TransformArtefact, UNKNOWN_ID},
};
use feedline_storage::Store;

use crate::{
    Error, Fault,
    operators::{
        content_column::{document_fault, prompt_fault},
        document,
    },
    shards::manifest::tokenizer_path,
    tokenizer::Tokenizer,
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
    Characters {
        ids: Characters,
        /// Characters by id, from the one after [`UNKNOWN_ID`] on.
        known: Vec<char>,
    },
    Tokens {
        tokenizer: Box<Tokenizer>,
        /// The `tokenizer.json`.
        file: Vec<u8>,
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
            let vocabulary = Vocabulary::Characters {
                ids: characters,
                known: fitted.characters.clone(),
            };
            return Ok(of_text(&fitted.column, vocabulary));
        }
        let Some(fitted) = &artefact.tokens else {
            return Err(Error::input(
                "the dataset",
                "it holds no texts alone",
                "models read texts alone of `dataset.kind = \"tokens\"` or `\"characters\"`",
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
            file,
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
        let name = format!("column `{}`", self.column);
        let mut encoded = self.encoded(text, &name, document_fault)?;
        encoded.ids.extend(self.end());
        Ok(encoded)
    }

    /// Encodes the beginning of a text, without the id behind a text.
    ///
    /// # Errors
    /// As [`encode`](Self::encode).
    pub fn encode_prompt(&self, text: &str) -> Result<EncodedText, Fault> {
        self.encoded(Some(text), "the prompt", prompt_fault)
    }

    /// Encodes a text, which errors call `name`, unless it has a `fault`.
    fn encoded(
        &self,
        text: Option<&str>,
        name: &str,
        fault: fn(Option<&str>) -> Option<(&'static str, String)>,
    ) -> Result<EncodedText, Fault> {
        let prepared = text.map(|text| self.prepare(text));
        if let Some((reason, found)) = fault(prepared.as_deref()) {
            let detail = match found.is_empty() {
                true => format!("{name} is empty or missing"),
                false => format!("{name} has {found}"),
            };
            return Err(Fault::new(reason, detail));
        }
        let text = prepared.unwrap_or_default();
        let mut ids = Vec::new();
        let unknown = match &self.vocabulary {
            Vocabulary::Characters { ids: known, .. } => known.encode(&text, &mut ids),
            Vocabulary::Tokens { tokenizer, .. } => {
                let encoded = tokenizer.encode(&text, &mut ids);
                encoded.map_err(|detail| Fault::new(NOT_ENCODED, detail))?;
                tokenizer.unknown(&ids)
            }
        };
        Ok(EncodedText { ids, unknown })
    }

    /// A text normalized and redacted as those of the dataset.
    #[must_use]
    pub fn prepare(&self, text: &str) -> String {
        document::prepare(text, self.form, &self.redact)
    }

    /// Id behind each text.
    #[must_use]
    pub const fn end(&self) -> Option<u32> {
        match &self.vocabulary {
            Vocabulary::Characters { .. } => None,
            Vocabulary::Tokens { end, .. } => *end,
        }
    }

    /// Ids that are no piece of a text: tokens that were added to the vocabulary, and the unknown one.
    #[must_use]
    pub fn special(&self) -> Vec<u32> {
        match &self.vocabulary {
            Vocabulary::Characters { .. } => vec![UNKNOWN_ID],
            Vocabulary::Tokens { tokenizer, .. } => special_ids(tokenizer),
        }
    }

    /// Opens the decoder of the same ids.
    ///
    /// # Errors
    /// [`Error::Input`] for a `tokenizer.json` that the library does not read.
    pub fn decoder(&self) -> Result<TextDecoder, Error> {
        Ok(TextDecoder(match &self.vocabulary {
            Vocabulary::Characters { known, .. } => Decoding::Characters(known.clone()),
            Vocabulary::Tokens { file, .. } => {
                let library = tokenizers::Tokenizer::from_bytes(file).map_err(|error| {
                    Error::input(
                        "the tokenizer",
                        error.to_string(),
                        "repair its `tokenizer.json`",
                    )
                })?;
                Decoding::Tokens(Box::new(library))
            }
        }))
    }
}

/// Ids of the tokens that were added to a tokenizer's vocabulary, and of its unknown one.
pub(crate) fn special_ids(tokenizer: &Tokenizer) -> Vec<u32> {
    let mut special: Vec<u32> = tokenizer.added().iter().map(|(_, id)| *id).collect();
    special.extend(tokenizer.unknown_id());
    special
}

/// Decoder of ids to texts.
#[derive(Debug)]
pub struct TextDecoder(Decoding);

#[derive(Debug)]
enum Decoding {
    Characters(Vec<char>),
    Tokens(Box<tokenizers::Tokenizer>),
}

impl TextDecoder {
    /// The text of some ids; bytes that are no UTF-8, such as those of half a character, become U+FFFD.
    ///
    /// # Errors
    /// The library's message.
    pub fn decode(&self, ids: &[u32]) -> Result<String, String> {
        match &self.0 {
            Decoding::Characters(known) => {
                let character = |id: &u32| {
                    let place = id.checked_sub(UNKNOWN_ID + 1)?;
                    known.get(usize::try_from(place).ok()?).copied()
                };
                let unknown = char::REPLACEMENT_CHARACTER;
                let characters = ids.iter().map(|id| character(id).unwrap_or(unknown));
                Ok(characters.collect())
            }
            Decoding::Tokens(library) => library
                .decode(ids, false)
                .map_err(|error| error.to_string()),
        }
    }

    /// Begins a text whose ids come one after another, the first ones being `prompt`.
    #[must_use]
    pub fn begin(&self, prompt: &[u32]) -> DecodedStream<'_> {
        DecodedStream {
            decoder: self,
            ids: prompt.to_vec(),
            prompt: prompt.len(),
            written: 0,
        }
    }
}

/// A text whose ids come one after another.
#[derive(Debug)]
pub struct DecodedStream<'a> {
    decoder: &'a TextDecoder,
    ids: Vec<u32>,
    /// Ids of the prompt.
    prompt: usize,
    /// Ids after the prompt whose text was given out.
    written: usize,
}

/// Ids before a piece of text that are decoded with it: whether a word begins with a space depends on the one before it.
const DECODED_BEFORE: usize = 8;

impl DecodedStream<'_> {
    /// Adds an id. Returns the text that is complete with it: none while a character lacks bytes.
    ///
    /// # Errors
    /// The library's message.
    pub fn push(&mut self, id: u32) -> Result<String, String> {
        self.ids.push(id);
        let text = self.pending()?;
        if text.ends_with(char::REPLACEMENT_CHARACTER) {
            return Ok(String::new());
        }
        self.written = self.ids.len() - self.prompt;
        Ok(text)
    }

    /// The text of the last ids, whose character is not complete.
    ///
    /// # Errors
    /// The library's message.
    pub fn finish(self) -> Result<String, String> {
        self.pending()
    }

    /// Text that was not given out yet.
    fn pending(&self) -> Result<String, String> {
        let begin = self.prompt + self.written;
        if begin == self.ids.len() {
            return Ok(String::new());
        }
        let before = begin.saturating_sub(DECODED_BEFORE);
        let known = self.decoder.decode(&self.ids[before..begin])?;
        let text = self.decoder.decode(&self.ids[before..])?;
        match text.strip_prefix(known.as_str()) {
            Some(text) => Ok(text.to_owned()),
            None => self.decoder.decode(&self.ids[begin..]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn library() -> tokenizers::Tokenizer {
        let file = serde_json::to_vec(&crate::tokenizer::testing::small()).unwrap();
        tokenizers::Tokenizer::from_bytes(file).unwrap()
    }

    #[test]
    fn characters_come_out_when_their_bytes_are_complete() {
        let decoder = TextDecoder(Decoding::Tokens(Box::new(library())));
        let ids = |text: &str| {
            let encoded = library().encode_fast(text, false).unwrap();
            encoded.get_ids().to_vec()
        };
        let mut stream = decoder.begin(&ids("K"));
        let o = ids("ö");
        assert_eq!(o.len(), 2);
        assert_eq!(stream.push(o[0]).unwrap(), "");
        assert_eq!(stream.push(o[1]).unwrap(), "ö");
        let mut written = String::new();
        for id in ids("ln hello, 北京") {
            written.push_str(&stream.push(id).unwrap());
        }
        assert_eq!(written, "ln hello, 北京");
        assert_eq!(stream.push(o[0]).unwrap(), "");
        // What is half a character at the end is not dropped.
        assert_eq!(stream.finish().unwrap(), "\u{fffd}");
    }

    #[test]
    fn characters_of_a_fitted_vocabulary_are_those_of_their_ids() {
        let decoder = TextDecoder(Decoding::Characters(vec!['a', 'é', '京']));
        assert_eq!(
            decoder.decode(&[1, 2, 3, 0, 9]).unwrap(),
            "aé京\u{fffd}\u{fffd}"
        );
        let mut stream = decoder.begin(&[1]);
        assert_eq!(stream.push(3).unwrap(), "京");
        assert_eq!(stream.finish().unwrap(), "");
    }
}
