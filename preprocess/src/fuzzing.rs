//! Fuzz targets of foreign files of a build.
//!
//! They are built for tests, which replay `fuzz/corpus/`, and for `cargo fuzz`, which sets
//! `cfg(fuzzing)`.

#![expect(
    clippy::missing_panics_doc,
    reason = "a panic is the finding of a target"
)]

use crate::Tokenizer;

/// A `tokenizer.json`, and texts that it encodes. Each id is in the vocabulary, and our own encoder
/// gives the ids of the library.
pub fn tokenizer(data: &[u8]) {
    let tokenizer = match Tokenizer::new(data) {
        Ok(tokenizer) => tokenizer,
        Err(reason) => {
            assert!(!reason.is_empty());
            return;
        }
    };
    let is_ours = tokenizer.library_reason().is_none();
    let library = is_ours.then(|| Tokenizer::by_library(data).ok()).flatten();
    for text in [
        "",
        "hello  hell\u{e9}o aaaa",
        "<|endoftext|>1\n\n\u{1f600} It's",
    ] {
        let mut ids = Vec::new();
        if tokenizer.encode(text, &mut ids).is_err() {
            continue;
        }
        assert!(ids.iter().all(|id| *id < tokenizer.vocabulary()), "{ids:?}");
        if let Some(library) = &library {
            let mut theirs = Vec::new();
            if library.encode(text, &mut theirs).is_ok() {
                assert_eq!(ids, theirs, "{text}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    feedline_testkit::fuzz_replay::replays! { tokenizer }
}
