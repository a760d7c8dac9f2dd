//! Tokenizers and texts for tests.

use serde_json::{Value, json};

use super::alphabet;
use crate::testing::{shared, unpacked};

/// A tokenizer.json of GPT-2's kind.
fn file(vocabulary: &Value, merges: &[(String, String)], end: u32) -> Value {
    json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null,
        "added_tokens": [{
            "id": end, "content": "<|endoftext|>", "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true,
        }],
        "pre_tokenizer": { "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true },
        "post_processor": { "type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false, "use_regex": true },
        "decoder": { "type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true },
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": "",
            "end_of_word_suffix": "", "fuse_unk": false, "vocab": vocabulary, "merges": merges,
        },
    })
}

/// GPT-2's tokenizer.
pub(crate) fn gpt2() -> Option<Vec<u8>> {
    let vocabulary = shared("tokenizer/gpt2/vocab.json.gz")?;
    let merges = shared("tokenizer/gpt2/merges.txt.gz")?;
    let vocabulary: Value = serde_json::from_str(&unpacked(&vocabulary)).unwrap();
    let merges: Vec<(String, String)> = unpacked(&merges)
        .lines()
        .skip(1)
        .filter_map(|line| line.split_once(' '))
        .map(|(left, right)| (left.to_owned(), right.to_owned()))
        .collect();
    assert_eq!(merges.len(), 50_000);
    Some(serde_json::to_vec(&file(&vocabulary, &merges, 50_256)).unwrap())
}

/// A vocabulary of all bytes and some merges among them.
pub(crate) fn small() -> Value {
    let characters = alphabet::characters();
    let mut vocabulary: Vec<String> = characters.iter().map(char::to_string).collect();
    let space = characters[usize::from(b' ')];
    let merges = [
        ("h", "e"),
        ("l", "l"),
        ("he", "ll"),
        ("hell", "o"),
        ("\u{120}", "\u{120}"),
        ("\u{c3}", "\u{a9}"),
        ("a", "a"),
        ("aa", "aa"),
    ];
    assert_eq!(space, '\u{120}');
    let merges = merges.map(|(left, right)| (left.to_owned(), right.to_owned()));
    vocabulary.extend(merges.iter().map(|(left, right)| format!("{left}{right}")));
    let ids = vocabulary
        .iter()
        .zip(0..)
        .map(|(token, id)| (token.clone(), json!(id)));
    file(&Value::Object(ids.collect()), &merges, 300)
}

/// The plays of Shakespeare, as one text.
pub(crate) fn tiny_shakespeare() -> Option<String> {
    Some(unpacked(&shared("text/tiny_shakespeare.txt.gz")?))
}
