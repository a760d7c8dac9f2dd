//! Datasets of tokens.

use std::fs;

use arrow::{
    array::{AsArray, RecordBatch},
    datatypes::UInt16Type,
};
use feedline_schemas::{
    config::PackMode,
    ids::Hash128,
    manifest::{Layout, TokenCounts, TokenType},
    record::ColumnType::{Int64, Utf8},
};
use feedline_storage::Store;
use serde_json::json;
use tempfile::TempDir;

use crate::pipeline::*;
use crate::{
    Tokenizer, read_manifest, read_transform,
    testing::{Cells, LandingZone, blocks, build_with, contents, flip_bit},
    tokenizer::testing::{gpt2, small, tiny_shakespeare},
    verify,
};

const TOKENS: &str = "sources = [\"a\"]\nkind = \"tokens\"\n";
/// Id of the end of a text in the small tokenizer.
const END: u32 = 300;

async fn build_tokens(
    root: &Store,
    dataset: &str,
    partitions: usize,
) -> Result<DatasetReport, Error> {
    build_with(root, &format!("{TOKENS}{dataset}"), partitions).await
}

async fn documents(root: &Store, documents: &[String]) {
    let mut zone = LandingZone::new(root, "a", &[("text", Utf8)]);
    let rows: Vec<Cells> = documents.iter().map(|text| vec![json!(text)]).collect();
    zone.batch(&rows).await;
}

/// Some hundred texts of a few words.
fn texts() -> Vec<String> {
    let words = [
        "hello",
        "aaaa",
        "shell",
        "café",
        "well...",
        "<|endoftext|>",
        "0123",
    ];
    let text = |i: usize| {
        let words = (0..=i % 5).map(|at| words[(i / 5 + at * at) % words.len()]);
        format!("{i}: {}", words.collect::<Vec<_>>().join(" "))
    };
    (0..300).map(text).collect()
}

/// The small tokenizer in a folder, and the key that names it.
fn given() -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tokenizer.json");
    fs::write(&file, small().to_string()).unwrap();
    let key = format!("tokenizer = '{}'", file.display());
    (folder, key)
}

fn ids_of(batch: &RecordBatch) -> Vec<Vec<u32>> {
    let documents = batch["tokens"].as_list::<i32>().iter().flatten();
    let ids = documents.map(|ids| {
        let ids = ids.as_primitive::<UInt16Type>().values().to_vec();
        ids.into_iter().map(u32::from).collect()
    });
    ids.collect()
}

/// The documents of each split, as ids.
async fn stored(dataset: &Store) -> [Vec<Vec<u32>>; 3] {
    let mut stored = [const { Vec::new() }; 3];
    for (split, batch) in blocks(dataset).await {
        stored[split as usize].extend(ids_of(&batch));
    }
    stored
}

#[tokio::test]
async fn every_document_is_stored_once_as_its_tokens_with_an_end() {
    let root = Store::memory();
    documents(&root, &texts()).await;
    let (_folder, key) = given();
    let config = format!("tokens = {{ {key}, window = 64, pack = \"fill\" }}");
    let report = build_tokens(&root, &config, 2).await.unwrap();
    let dataset = root.child("dataset");
    let manifest = read_manifest(&dataset).await.unwrap();
    let layout = Layout::Tokens {
        id: TokenType::U16,
        vocabulary: END + 1,
    };
    assert_eq!(manifest.layout, layout);
    let tokens = manifest.tokens.as_ref().unwrap();
    assert_eq!(tokens.end_of_text, Some(END));
    assert_eq!((tokens.window, tokens.pack), (Some(64), PackMode::Fill));
    let file = dataset.get(&tokens.tokenizer).await.unwrap();
    assert_eq!(file, small().to_string());
    assert_eq!(tokens.hash, Hash128::of(&file));
    let artefact = read_transform(&dataset, &manifest).await.unwrap();
    let fitted = artefact.tokens.unwrap();
    assert_eq!((fitted.tokenizer, fitted.learnt_bytes), (tokens.hash, None));

    let tokenizer = Tokenizer::new(&file).unwrap();
    let mut expected: Vec<Vec<u32>> = texts()
        .iter()
        .map(|text| {
            let mut ids = Vec::new();
            tokenizer.encode(text, &mut ids).unwrap();
            assert!(!ids.contains(&END));
            ids.push(END);
            ids
        })
        .collect();
    let stored = stored(&dataset).await;
    let counts = stored
        .each_ref()
        .map(|s| s.iter().map(|ids| ids.len() as u64).sum::<u64>());
    let [train, validation, test] = counts;
    let found = TokenCounts {
        train,
        validation,
        test,
        unknown: 0,
    };
    assert_eq!(report.tokens, Some(found));
    let mut stored = stored.concat();
    stored.sort();
    expected.sort();
    assert_eq!(stored, expected);
    assert!(verify(&dataset).await.unwrap().problems.is_empty());
}

#[tokio::test]
async fn a_tokenizer_is_learnt_from_the_first_part_of_a_text_alone() {
    let mut files = Vec::new();
    for rest in ["zzzz ".repeat(100), "yyyyy".repeat(100)] {
        let root = Store::memory();
        let text = format!("{}{rest}", "the cat and the rat ".repeat(75));
        documents(&root, std::slice::from_ref(&text)).await;
        let config = "tokens = { vocabulary = 280 }\nsplit = { by = \"range\", train = 0.75, validation = 0.1, test = 0.15 }";
        let report = build_tokens(&root, config, 2).await.unwrap();
        let dataset = root.child("dataset");
        let manifest = read_manifest(&dataset).await.unwrap();
        let tokens = manifest.tokens.unwrap();
        // A part of a document does not end it.
        assert_eq!(tokens.end_of_text, None);
        let file = dataset.get(&tokens.tokenizer).await.unwrap();
        let tokenizer = tokenizers::Tokenizer::from_bytes(&file).unwrap();
        assert!(tokenizer.token_to_id("\u{120}the").is_some());
        assert!(
            tokenizer
                .token_to_id("zz")
                .or(tokenizer.token_to_id("yy"))
                .is_none()
        );
        let parts = stored(&dataset)
            .await
            .map(|documents| tokenizer.decode(&documents.concat(), false).unwrap());
        assert_eq!(parts.concat(), text);
        assert_eq!(report.tokens.unwrap().unknown, 0);
        files.push(file);
    }
    assert!(files[0] == files[1]);
}

#[tokio::test]
async fn what_is_learnt_hangs_neither_on_partitions_nor_on_the_order_of_documents() {
    let mut found = Vec::new();
    let mut tokenizers = Vec::new();
    for (partitions, reversed) in [(1, false), (3, false), (2, true)] {
        let root = Store::memory();
        let mut texts = texts();
        if reversed {
            texts.reverse();
        }
        documents(&root, &texts).await;
        let config = "tokens = { vocabulary = 400, sample_bytes = \"2 KiB\", seed = 3 }";
        build_tokens(&root, config, partitions).await.unwrap();
        let dataset = root.child("dataset");
        let manifest = read_manifest(&dataset).await.unwrap();
        let artefact = read_transform(&dataset, &manifest).await.unwrap();
        let learnt = artefact.tokens.unwrap().learnt_bytes.unwrap();
        assert!((500..4000).contains(&learnt), "{learnt}");
        tokenizers.push(manifest.tokens.unwrap().hash);
        if !reversed {
            found.push(contents(&dataset).await);
        }
    }
    assert!(found[0] == found[1]);
    assert!(tokenizers.iter().all(|hash| *hash == tokenizers[0]));
}

#[tokio::test]
async fn a_tokenizer_that_is_damaged_or_changed_is_noticed() {
    let root = Store::memory();
    documents(&root, &texts()).await;
    let (folder, key) = given();
    let config = format!("tokens = {{ {key} }}");
    build_tokens(&root, &config, 1).await.unwrap();
    assert!(build_tokens(&root, &config, 1).await.unwrap().up_to_date);
    let dataset = root.child("dataset");
    let manifest = read_manifest(&dataset).await.unwrap();
    let path = manifest.tokens.unwrap().tokenizer;
    flip_bit(&dataset, &path, 100).await;
    let problems = verify(&dataset).await.unwrap().problems;
    assert!(
        problems[0].contains("is damaged: its hash is"),
        "{problems:?}"
    );
    assert!(!build_tokens(&root, &config, 1).await.unwrap().up_to_date);
    dataset.delete(&path).await.unwrap();
    let problems = verify(&dataset).await.unwrap().problems;
    assert!(problems[0].contains("does not exist"), "{problems:?}");
    assert!(!build_tokens(&root, &config, 1).await.unwrap().up_to_date);
    assert!(verify(&dataset).await.unwrap().problems.is_empty());

    // The same key, another file.
    let mut other = small();
    other["added_tokens"][0]["id"] = 290.into();
    fs::write(folder.path().join("tokenizer.json"), other.to_string()).unwrap();
    assert!(!build_tokens(&root, &config, 1).await.unwrap().up_to_date);
}

#[tokio::test]
async fn a_tokenizer_of_the_library_makes_tokens_too() {
    let root = Store::memory();
    documents(&root, &texts()).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("words.json");
    let words = json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "post_processor": null,
        "decoder": null, "added_tokens": [], "pre_tokenizer": { "type": "Whitespace" },
        "model": { "type": "WordLevel", "vocab": { "hello": 0, "shell": 1, "?": 2 }, "unk_token": "?" },
    });
    fs::write(&file, words.to_string()).unwrap();
    let key = format!("tokenizer = '{}'", file.display());
    let error = build_tokens(&root, &format!("tokens = {{ {key} }}"), 1)
        .await
        .unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("`dataset.tokens.end_of_text`") && error.contains("(none)"),
        "{error}"
    );
    let config = format!("tokens = {{ {key}, end_of_text = \"\" }}");
    let tokens = build_tokens(&root, &config, 2)
        .await
        .unwrap()
        .tokens
        .unwrap();
    let stored = stored(&root.child("dataset")).await.concat().concat();
    assert_eq!(tokens.total(), stored.len() as u64);
    assert_eq!(
        tokens.unknown,
        stored.iter().filter(|id| **id == 2).count() as u64
    );
    assert!(stored.contains(&0) && stored.contains(&1));
}

#[tokio::test]
async fn tiny_shakespeare_has_as_many_tokens_of_gpt_2_as_others_count() {
    let (Some(tokenizer), Some(text)) = (gpt2(), tiny_shakespeare()) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tokenizer.json");
    fs::write(&file, tokenizer).unwrap();
    let root = Store::memory();
    documents(&root, &[text]).await;
    let config = format!(
        "tokens = {{ tokenizer = '{}' }}\nsplit = {{ by = \"range\", train = 0.9, validation = 0.1, test = 0.0 }}",
        file.display()
    );
    let tokens = build_tokens(&root, &config, 2)
        .await
        .unwrap()
        .tokens
        .unwrap();
    assert_eq!(
        (tokens.train, tokens.validation, tokens.test),
        (301_966, 36_059, 0)
    );
}

#[tokio::test]
async fn keys_that_make_no_sense_are_refused() {
    let root = Store::memory();
    let mut zone = LandingZone::new(&root, "a", &[("text", Utf8), ("n", Int64)]);
    zone.batch(&[vec![json!("x"), json!(1)]]).await;
    let (_folder, key) = given();
    for (config, expected) in [
        (
            "tokens = { sample_bytes = \"0 B\" }",
            "`dataset.tokens.sample_bytes`: no tokenizer",
        ),
        (
            &*format!("tokens = {{ {key}, seed = 1 }}"),
            "`dataset.tokens.seed`: it is for a tokenizer that is learnt",
        ),
        (
            &format!(
                "tokens = {{ {key}, end_of_text = \"x\" }}\nsplit = {{ train = 1.0, validation = 0.0, test = 0.0 }}"
            ),
            "the tokenizer has no special token `x`; name one of its own (`<|endoftext|>`)",
        ),
        ("target = \"n\"", "`dataset.target`: a dataset of this"),
        ("content = \"n\"", "does not hold text"),
    ] {
        let found = build_tokens(&root, config, 1)
            .await
            .unwrap_err()
            .to_string();
        assert!(found.contains(expected), "{config}: {found}");
    }
    let characters = "sources = [\"a\"]\nkind = \"characters\"\ntokens = { window = 8 }";
    let error = build_with(&root, characters, 1).await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("it is for `dataset.kind = \"tokens\"`"),
        "{error}"
    );
}
