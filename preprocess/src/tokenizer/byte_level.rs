//! Our own encoder for tokenizers of GPT-2's kind: its words, its spelling of bytes, pairs merged
//! within words.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    alphabet,
    cache::{Cache, Short},
    merges::{Merges, Scratch},
    words::Words,
};

/// Encodes without the library.
#[derive(Debug)]
pub(super) struct ByteLevel {
    merges: Merges,
    /// Bytes of each token, by id; 0 for tokens without bytes.
    bytes: Vec<u32>,
    /// Sessions that no thread uses at the moment.
    idle: Mutex<Vec<Session>>,
}

/// State of a thread that encodes.
#[derive(Debug, Default)]
struct Session {
    cache: Cache,
    scratch: Scratch,
}

/// `model` of a tokenizer.json, of type `BPE`.
#[derive(Deserialize)]
struct Model {
    vocab: HashMap<String, u32>,
    merges: Vec<Pair>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Pair {
    Two(String, String),
    Joined(String),
}

impl Pair {
    fn parts(&self) -> Option<(&str, &str)> {
        match self {
            Self::Two(left, right) => Some((left, right)),
            Self::Joined(text) => text.split_once(' '),
        }
    }
}

impl ByteLevel {
    /// Takes a tokenizer.json into use.
    ///
    /// # Errors
    /// A message with the reason why it is not of GPT-2's kind; the library then encodes.
    pub(super) fn new(file: &Value) -> Result<Self, String> {
        check(file)?;
        let model = Model::deserialize(&file["model"])
            .map_err(|error| format!("its model cannot be read: {error}"))?;
        let characters = alphabet::characters();
        let id = |token: &str| {
            let found = model.vocab.get(token).copied();
            found.ok_or_else(|| format!("its vocabulary lacks `{token}`"))
        };
        let mut bytes = [0; 256];
        for (to, character) in bytes.iter_mut().zip(characters) {
            *to = id(character.encode_utf8(&mut [0; 4]))?;
        }
        let mut merges = Vec::with_capacity(model.merges.len());
        for pair in &model.merges {
            let (left, right) = pair.parts().ok_or("a merge is no pair of tokens")?;
            merges.push([id(left)?, id(right)?, id(&format!("{left}{right}"))?]);
        }
        Ok(Self {
            merges: Merges::new(bytes, merges.into_iter()),
            bytes: lengths(&model.vocab, &characters)?,
            idle: Mutex::default(),
        })
    }

    /// Appends the ids of `text`.
    ///
    /// # Errors
    /// If the ids do not decode to as many bytes as the text has.
    pub(super) fn encode(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), String> {
        let start = ids.len();
        let mut session = self.lock().pop().unwrap_or_default();
        let Session { cache, scratch } = &mut session;
        for word in Words::of(text) {
            let short = Short::of(word);
            if let Some(found) = short.and_then(|short| cache.find(short)) {
                ids.extend_from_slice(found);
                continue;
            }
            let first = ids.len();
            self.merges.encode(word, scratch, ids);
            if let Some(short) = short {
                cache.keep(short, &ids[first..]);
            }
        }
        scratch.shrink();
        self.lock().push(session);
        let bytes = ids[start..]
            .iter()
            .map(|id| self.bytes[*id as usize] as usize);
        match bytes.sum::<usize>() {
            held if held == text.len() => Ok(()),
            held => Err(format!(
                "its ids decode to {held} bytes of {}; this is a defect of the encoder",
                text.len()
            )),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Session>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Refuses what words, spelling and merges alone do not describe.
fn check(file: &Value) -> Result<(), String> {
    let part = |value: &'_ Value, key: &str| match &value[key] {
        Value::Object(part) => part.clone(),
        _ => Map::new(),
    };
    if !file["normalizer"].is_null() {
        return Err("it has a normalizer".into());
    }
    let words = part(file, "pre_tokenizer");
    if words.get("type") != Some(&"ByteLevel".into()) {
        return Err("its `pre_tokenizer` is not `ByteLevel`".into());
    }
    if words.get("add_prefix_space") != Some(&false.into()) {
        return Err("it puts a blank before texts".into());
    }
    if words.get("use_regex").is_some_and(|given| *given != true) {
        return Err("it does not divide texts into words".into());
    }
    let model = part(file, "model");
    if model.get("type").is_some_and(|given| *given != "BPE") {
        return Err("its model is not `BPE`".into());
    }
    let empty = [Value::Null, false.into(), "".into(), 0.0.into()];
    let odd = [
        "dropout",
        "continuing_subword_prefix",
        "end_of_word_suffix",
        "ignore_merges",
    ];
    let is_set = |key: &&str| model.get(*key).is_some_and(|value| !empty.contains(value));
    if let Some(key) = odd.into_iter().find(is_set) {
        return Err(format!("its model has `{key}`"));
    }
    let added = file["added_tokens"].as_array().into_iter().flatten();
    match added.into_iter().find(|token| token["special"] != true) {
        Some(token) => Err(format!(
            "it adds token {}, which is no special one",
            token["content"]
        )),
        None => Ok(()),
    }
}

/// Bytes of each token, by id: as many as it has characters.
fn lengths(
    vocabulary: &HashMap<String, u32>,
    characters: &[char; 256],
) -> Result<Vec<u32>, String> {
    let largest = vocabulary.values().copied().max().unwrap_or(0) as usize;
    if largest >= 1 << 28 {
        return Err(format!("it has token id {largest}"));
    }
    let mut lengths = vec![0; largest + 1];
    for (token, id) in vocabulary {
        if token
            .chars()
            .all(|character| characters.contains(&character))
        {
            lengths[*id as usize] = u32::try_from(token.chars().count()).unwrap_or(u32::MAX);
        }
    }
    Ok(lengths)
}
