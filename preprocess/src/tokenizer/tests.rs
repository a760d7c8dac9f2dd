use std::{fs::File, io::Read};

use flate2::read::GzDecoder;
use proptest::prelude::*;
use serde_json::json;

use super::{
    testing::{gpt2, small, tiny_shakespeare},
    *,
};
use crate::testing::{shared, unpacked};

fn ids(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    let mut ids = Vec::new();
    tokenizer.encode(text, &mut ids).unwrap();
    ids
}

#[test]
fn a_file_that_the_library_panics_on_is_refused() {
    for file in ["merge-longer-than-tokens", "merge-shorter-than-prefix"] {
        let path = format!(
            "{}/../fuzz/corpus/tokenizer/{file}",
            env!("CARGO_MANIFEST_DIR")
        );
        let refused = Tokenizer::new(&std::fs::read(path).unwrap()).unwrap_err();
        let expected = "the tokenizers library failed on it: ";
        assert!(refused.starts_with(expected), "{refused}");
    }
}

#[test]
fn ids_of_gpt_2_are_the_published_ones() {
    let (Some(file), Some(reference)) = (gpt2(), shared("tokenizer/gpt2/reference_ids.jsonl.gz"))
    else {
        return;
    };
    let ours = Tokenizer::new(&file).unwrap();
    assert_eq!((ours.library_reason(), ours.vocabulary()), (None, 50_257));
    let library = Tokenizer::by_library(&file).unwrap();
    let mut tokens = 0;
    for row in unpacked(&reference).lines() {
        let row: Value = serde_json::from_str(row).unwrap();
        let text = row["text"].as_str().unwrap();
        let expected: Vec<u32> = serde_json::from_value(row["ids"].clone()).unwrap();
        assert_eq!(ids(&ours, text), expected, "{text:?}");
        assert_eq!(ids(&library, text), expected, "{text:?}");
        tokens += expected.len();
    }
    assert_eq!(tokens, 18_788);
}

#[test]
fn ours_gives_the_ids_of_the_library_on_whole_texts() {
    let (Some(file), Some(text)) = (gpt2(), tiny_shakespeare()) else {
        return;
    };
    let ours = Tokenizer::new(&file).unwrap();
    let library = Tokenizer::by_library(&file).unwrap();
    // nanoGPT's cut: the first nine tenths of the characters.
    let (train, validation) = text.split_at(1_003_854);
    for (part, tokens) in [(train, 301_966), (validation, 36_059)] {
        let found = ids(&ours, part);
        assert_eq!(found.len(), tokens);
        assert!(found == ids(&library, part));
    }
    for path in [
        "text/sms_spam_collection.tsv.gz",
        "text/licence_texts.jsonl.gz",
        "text/cora/cora.csv.gz",
        "text/dblp_acm/dblp.csv.gz",
        "text/dblp_acm/acm.csv.gz",
    ] {
        let Some(path) = shared(path) else { continue };
        let mut bytes = Vec::new();
        GzDecoder::new(File::open(&path).unwrap())
            .read_to_end(&mut bytes)
            .unwrap();
        let text = String::from_utf8_lossy(&bytes);
        assert!(
            ids(&ours, &text) == ids(&library, &text),
            "{}",
            path.display()
        );
    }
}

#[test]
fn one_long_word_takes_no_square_of_its_length() {
    let ours = Tokenizer::new(small().to_string().as_bytes()).unwrap();
    let found = ids(&ours, &"a".repeat(1_000_000));
    assert_eq!(found.len(), 250_000);
    let found = ids(&ours, &" ".repeat(300_000));
    assert_eq!(found.len(), 150_000);
}

#[test]
fn what_is_not_of_gpt_2s_kind_is_for_the_library() {
    let reason = |change: fn(&mut Value)| {
        let mut file = small();
        change(&mut file);
        let tokenizer = Tokenizer::new(file.to_string().as_bytes()).unwrap();
        tokenizer.library_reason().map(str::to_owned)
    };
    assert_eq!(reason(|_| ()), None);
    let check = |change, expected: &str| assert_eq!(reason(change).unwrap(), expected);
    check(
        |file| file["normalizer"] = json!({ "type": "Lowercase" }),
        "it has a normalizer",
    );
    check(
        |file| file["pre_tokenizer"]["add_prefix_space"] = true.into(),
        "it puts a blank before texts",
    );
    check(
        |file| file["pre_tokenizer"]["use_regex"] = false.into(),
        "it does not divide texts into words",
    );
    check(
        |file| file["pre_tokenizer"] = json!({ "type": "Whitespace" }),
        "its `pre_tokenizer` is not `ByteLevel`",
    );
    check(
        |file| file["model"]["ignore_merges"] = true.into(),
        "its model has `ignore_merges`",
    );
    check(
        |file| file["added_tokens"][0]["special"] = false.into(),
        "it adds token \"<|endoftext|>\", which is no special one",
    );
    check(
        |file| {
            file["model"] =
                json!({ "type": "WordLevel", "vocab": { "a": 0, "?": 7 }, "unk_token": "?" });
        },
        "its model is not `BPE`",
    );
}

#[test]
fn what_is_no_tokenizer_is_told() {
    let error = |file: &[u8]| Tokenizer::new(file).unwrap_err();
    assert!(error(b"{").starts_with("it is not JSON"));
    assert!(!error(b"{}").is_empty());
    let mut file = small();
    file["model"]["merges"] = json!([["x", "yz"]]);
    let error = error(file.to_string().as_bytes());
    assert!(error.contains("out of vocabulary"), "{error}");
}

#[test]
fn special_tokens_in_a_text_are_text() {
    let file = small().to_string();
    for tokenizer in [Tokenizer::new, Tokenizer::by_library] {
        let tokenizer = tokenizer(file.as_bytes()).unwrap();
        assert_eq!(tokenizer.added(), [("<|endoftext|>".to_owned(), 300)]);
        assert_eq!(tokenizer.vocabulary(), 301);
        assert!(ids(&tokenizer, "a<|endoftext|>").iter().all(|id| *id < 300));
    }
}

#[test]
fn a_tokenizer_that_was_learnt_is_read_by_ours_and_by_the_library() {
    let mut counts = WordCounts::default();
    let text = "the cat sat on the mat, the rat sat on the cat. Äh, 12 cats!\n".repeat(3);
    counts.add(&text, &[0; 16], &Sample::new(1, 1, 0));
    let file = learnt(counts.clone(), 270, "<|end|>").unwrap();
    assert_eq!(file, learnt(counts.clone(), 270, "<|end|>").unwrap());
    assert!(learnt(counts, 270, "the").unwrap_err().contains("`the`"));
    let ours = Tokenizer::new(&file).unwrap();
    assert_eq!((ours.library_reason(), ours.vocabulary()), (None, 270));
    assert_eq!(ours.added(), [("<|end|>".to_owned(), 269)]);
    let found = ids(&ours, &text);
    assert!(found.len() * 2 < text.len(), "{}", found.len());
    let library = tokenizers::Tokenizer::from_bytes(&file).unwrap();
    assert_eq!(
        library.encode(text.as_str(), false).unwrap().get_ids(),
        found
    );
    assert_eq!(library.decode(&found, false).unwrap(), text);
    assert_eq!(library.id_to_token(269).unwrap(), "<|end|>");
}

/// Text that is rich in what words end at.
fn text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        any::<char>().prop_map(String::from),
        "[ \t\n\r\u{a0}\u{3000}\u{85}]{1,4}",
        "[a-zA-Zéß]{1,20}",
        "'(s|t|re|ve|m|ll|d|S|x)",
        "[0-9²٣]{1,5}",
        "[!-/]{1,4}",
        "(hello|aaaaaaa|<\\|endoftext\\|>)",
    ];
    proptest::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn ours_gives_the_ids_of_the_library_on_any_text(texts in proptest::collection::vec(text(), 1..8)) {
        let file = small().to_string();
        let ours = Tokenizer::new(file.as_bytes()).unwrap();
        let library = Tokenizer::by_library(file.as_bytes()).unwrap();
        prop_assert!(ours.library_reason().is_none());
        for text in texts {
            prop_assert_eq!(ids(&ours, &text), ids(&library, &text), "{:?}", text);
        }
    }
}
