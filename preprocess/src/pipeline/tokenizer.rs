//! The tokenizer of a dataset: given by a file, or learnt from the training split; stored beside the shards.

use std::sync::Arc;

use bytes::Bytes;
use feedline_schemas::{
    config::{Bounded, DatasetConfig, DatasetKind, PackMode, TokensConfig},
    manifest::TokensReference,
    transform::FittedTokens,
};
use feedline_storage::Store;

use crate::{
    Context, Error, TrainSplit,
    fit::{LearnSpec, learn_tokenizer},
    shards::manifest::tokenizer_path,
    tokenizer::{Encoder, Tokenizer},
};

/// Settings and file of the tokenizer of a dataset.
#[derive(Default)]
pub(super) struct TokenizerInput {
    /// Settings, for documents that become tokens.
    pub(super) settings: Option<TokensConfig>,
    /// The tokenizer, where one is given.
    pub(super) given: Option<TokenizerFile>,
}

impl TokenizerInput {
    /// Resolves the section, and reads the file that it names.
    ///
    /// # Errors
    /// As [`resolve`] and [`TokenizerFile::read`].
    pub(super) async fn read(dataset: &DatasetConfig, context: &Context) -> Result<Self, Error> {
        let settings = resolve(dataset)?;
        let location = settings.as_ref().and_then(|s| s.tokenizer.as_deref());
        let given = match location {
            Some(location) => Some(TokenizerFile::read(location, context).await?),
            None => None,
        };
        Ok(Self { settings, given })
    }
}

const VOCABULARY: u32 = 8192;
const SAMPLE_BYTES: u64 = 1 << 30;
/// Most ids of a row that has other parts too.
const ROW_LENGTH: u32 = 128;

/// Special tokens that usually end a text.
const ENDS: [&str; 4] = ["<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"];

/// The keys of the section, checked; none for a dataset of another kind.
///
/// # Errors
/// [`Error::Config`] for a value out of range and for keys that do not go together.
pub(super) fn resolve(config: &DatasetConfig) -> Result<Option<TokensConfig>, Error> {
    let refuse = |key: &str, reason: &str| Err(Error::config(key, reason));
    let is_multi = config.kind == DatasetKind::Multi && config.text_column.is_some();
    if config.kind != DatasetKind::Tokens && !is_multi {
        return match config.tokens {
            None => Ok(None),
            Some(_) => refuse(
                "dataset.tokens",
                "it is for `dataset.kind = \"tokens\"`, or `multi` with a `text_column`: set that, or remove this section",
            ),
        };
    }
    let tokens = config.tokens.clone().unwrap_or_default();
    if is_multi && tokens.pack != PackMode::default() {
        return refuse(
            "dataset.tokens.pack",
            "the text of a row stays in its row; remove it",
        );
    }
    if tokens.sample_bytes.is_some_and(|bytes| bytes.bytes() == 0) {
        return refuse(
            "dataset.tokens.sample_bytes",
            "no tokenizer can be learnt without text: use some megabytes",
        );
    }
    let learning = [
        ("vocabulary", tokens.vocabulary.is_some()),
        ("sample_bytes", tokens.sample_bytes.is_some()),
        ("seed", tokens.seed.is_some()),
    ];
    let given = learning.into_iter().find(|(_, given)| *given);
    match given.filter(|_| tokens.tokenizer.is_some()) {
        Some((key, _)) => refuse(
            &format!("dataset.tokens.{key}"),
            "it is for a tokenizer that is learnt, and `dataset.tokens.tokenizer` gives one; remove one of them",
        ),
        None => Ok(Some(tokens)),
    }
}

/// Most ids of a row that has other parts too.
pub(super) fn row_length(config: Option<&TokensConfig>) -> u32 {
    config
        .and_then(|config| config.window)
        .map_or(ROW_LENGTH, Bounded::get)
}

/// A tokenizer and the file it is.
#[derive(Clone, Debug)]
pub(super) struct TokenizerFile {
    bytes: Bytes,
    pub(super) tokenizer: Arc<Tokenizer>,
    /// Bytes of text that it was learnt from.
    learnt_bytes: Option<u64>,
}

impl TokenizerFile {
    fn new(bytes: Bytes, learnt_bytes: Option<u64>) -> Result<Self, String> {
        let tokenizer = Arc::new(Tokenizer::new(&bytes)?);
        Ok(Self {
            bytes,
            tokenizer,
            learnt_bytes,
        })
    }

    /// Reads the file that is given.
    ///
    /// # Errors
    /// [`Error::Input`] when it is no tokenizer, and failures of the store.
    pub(super) async fn read(location: &str, context: &Context) -> Result<Self, Error> {
        let (folder, name) = match location.rsplit_once('/') {
            None => (".", location),
            Some(("", name)) => ("/", name),
            Some(parts) => parts,
        };
        let store = Store::open(folder, &context.store_options)?;
        let bytes = store.get(name).await?;
        let file = Self::new(bytes, None).map_err(|reason| {
            Error::input(
                format!("tokenizer `{}`", store.url_of(name)),
                reason,
                "name a `tokenizer.json` as the `tokenizers` library writes it with `dataset.tokens.tokenizer`",
            )
        })?;
        match file.tokenizer.library_reason() {
            None => {
                tracing::info!(tokenizer = %store.url_of(name), "our own encoder runs the tokenizer")
            }
            Some(reason) => tracing::warn!(
                tokenizer = %store.url_of(name), reason,
                "the tokenizer is run by the `tokenizers` library, some ten times slower than our own encoder, which is for \
                 byte-level pairs with GPT-2's words"
            ),
        }
        Ok(file)
    }

    /// Learns one from the training split.
    ///
    /// # Errors
    /// As [`learn_tokenizer`].
    pub(super) async fn learn(
        train: &TrainSplit,
        config: &TokensConfig,
        column: &str,
        context: &Context,
    ) -> Result<Self, Error> {
        let end = config.end_of_text.as_deref().filter(|end| !end.is_empty());
        let spec = LearnSpec {
            column: column.to_owned(),
            vocabulary: config.vocabulary.map_or(VOCABULARY, Bounded::get),
            sample_bytes: config
                .sample_bytes
                .map_or(SAMPLE_BYTES, |bytes| bytes.bytes()),
            seed: config.seed.map_or(0, |seed| seed.get()),
            end: end.unwrap_or(ENDS[0]).to_owned(),
        };
        let (bytes, learnt_bytes) = learn_tokenizer(train, &spec, context.partitions).await?;
        let file = Self::new(bytes.into(), Some(learnt_bytes))
            .expect("what was just written is a tokenizer");
        let ids = file.tokenizer.vocabulary();
        tracing::info!(ids, learnt_bytes, "a tokenizer was learnt");
        Ok(file)
    }

    /// Id behind each document.
    ///
    /// # Errors
    /// [`Error::Config`] when the tokenizer has no such token.
    fn end(&self, config: &TokensConfig, is_divided: bool) -> Result<Option<u32>, Error> {
        if config.end_of_text.as_deref() == Some("") || is_divided {
            return Ok(None);
        }
        let added = self.tokenizer.added();
        let id = |end: &str| {
            added
                .iter()
                .find(|(token, _)| token == end)
                .map(|(_, id)| *id)
        };
        let found = match &config.end_of_text {
            Some(end) => id(end),
            None => ENDS.into_iter().find_map(id),
        };
        if found.is_some() {
            return Ok(found);
        }
        let wanted = match &config.end_of_text {
            Some(end) => format!("no special token `{end}`"),
            None => "no special token that usually ends a text".to_owned(),
        };
        let there: Vec<String> = added
            .iter()
            .take(20)
            .map(|(token, _)| format!("`{token}`"))
            .collect();
        let there = if there.is_empty() {
            "none".to_owned()
        } else {
            there.join(", ")
        };
        Err(Error::config(
            "dataset.tokens.end_of_text",
            format!(
                "the tokenizer has {wanted}; name one of its own ({there}), or `\"\"` to put nothing behind documents"
            ),
        ))
    }

    /// Description for the artefact; `is_divided` is true if each document has a part in every split.
    ///
    /// # Errors
    /// [`Error::Config`] when it lacks the end of a text.
    pub(super) fn fitted(
        &self,
        column: &str,
        config: &TokensConfig,
        is_divided: bool,
    ) -> Result<FittedTokens, Error> {
        Ok(FittedTokens {
            column: column.to_owned(),
            tokenizer: self.tokenizer.hash(),
            vocabulary: self.tokenizer.vocabulary(),
            end_of_text: self.end(config, is_divided)?,
            learnt_bytes: self.learnt_bytes,
        })
    }

    /// Encoder of documents into ids.
    pub(super) fn encoder(&self, fitted: &FittedTokens) -> Encoder {
        Encoder::Tokens {
            tokenizer: Arc::clone(&self.tokenizer),
            end: fitted.end_of_text,
        }
    }

    /// Writes the file and says how a manifest refers to it.
    pub(super) async fn put(
        &self,
        store: &Store,
        config: &TokensConfig,
        fitted: &FittedTokens,
    ) -> Result<TokensReference, Error> {
        let hash = self.tokenizer.hash();
        let path = tokenizer_path(hash);
        store.put(&path, self.bytes.clone()).await?;
        Ok(TokensReference {
            tokenizer: path,
            hash,
            end_of_text: fitted.end_of_text,
            window: config.window.map(Bounded::get),
            pack: config.pack,
        })
    }
}
