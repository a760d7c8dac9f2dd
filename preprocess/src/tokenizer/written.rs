//! The `tokenizer.json` of a learnt tokenizer, as the `tokenizers` library writes one of GPT-2's
//! kind.

use serde::{Serialize, Serializer};

use super::{
    alphabet::{characters, spelled},
    learn::Learnt,
};

/// The bytes in the order of their characters, as GPT-2's vocabulary has them.
pub(super) fn bytes() -> [u8; 256] {
    let characters = characters();
    let mut bytes = std::array::from_fn(|byte| u8::try_from(byte).expect("there are 256 bytes"));
    bytes.sort_unstable_by_key(|byte| characters[usize::from(*byte)]);
    bytes
}

/// The file; `end` becomes a special token with the id after all others.
///
/// # Errors
/// When `end` is one of the others.
pub(super) fn file(learnt: &Learnt, end: &str) -> Result<Vec<u8>, String> {
    let characters = characters();
    let spelled: Vec<String> = learnt
        .tokens
        .iter()
        .map(|bytes| spelled(&characters, bytes))
        .collect();
    if spelled.iter().any(|token| token == end) {
        return Err(format!(
            "`{end}` is a piece of the texts; choose a text that no word holds"
        ));
    }
    let part = |id: u32| spelled[id as usize].as_str();
    let words = ByteLevel {
        r#type: "ByteLevel",
        add_prefix_space: false,
        trim_offsets: true,
        use_regex: true,
    };
    let file = File {
        version: "1.0",
        truncation: (),
        padding: (),
        added_tokens: [Added {
            id: spelled.len(),
            content: end,
            single_word: false,
            lstrip: false,
            rstrip: false,
            normalized: false,
            special: true,
        }],
        normalizer: (),
        pre_tokenizer: words,
        post_processor: words,
        decoder: words,
        model: Model {
            r#type: "BPE",
            dropout: (),
            unk_token: (),
            continuing_subword_prefix: (),
            end_of_word_suffix: (),
            fuse_unk: false,
            byte_fallback: false,
            ignore_merges: false,
            vocab: Vocabulary(&spelled),
            merges: learnt.merges.iter().map(|pair| pair.map(part)).collect(),
        },
    };
    Ok(serde_json::to_vec(&file).expect("a struct of texts and numbers has no other way out"))
}

#[derive(Serialize)]
struct File<'a> {
    version: &'static str,
    truncation: (),
    padding: (),
    added_tokens: [Added<'a>; 1],
    normalizer: (),
    pre_tokenizer: ByteLevel,
    post_processor: ByteLevel,
    decoder: ByteLevel,
    model: Model<'a>,
}

#[derive(Serialize)]
struct Added<'a> {
    id: usize,
    content: &'a str,
    single_word: bool,
    lstrip: bool,
    rstrip: bool,
    normalized: bool,
    special: bool,
}

#[derive(Clone, Copy, Serialize)]
struct ByteLevel {
    r#type: &'static str,
    add_prefix_space: bool,
    trim_offsets: bool,
    use_regex: bool,
}

#[derive(Serialize)]
struct Model<'a> {
    r#type: &'static str,
    dropout: (),
    unk_token: (),
    continuing_subword_prefix: (),
    end_of_word_suffix: (),
    fuse_unk: bool,
    byte_fallback: bool,
    ignore_merges: bool,
    vocab: Vocabulary<'a>,
    merges: Vec<[&'a str; 2]>,
}

/// Tokens by their ids, in the order of the ids.
struct Vocabulary<'a>(&'a [String]);

impl Serialize for Vocabulary<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().zip(0_u32..))
    }
}
