//! Datasets whose documents somebody edits.

use std::{collections::BTreeMap, fs};

use arrow::{array::AsArray, datatypes::UInt16Type};
use bytes::Bytes;
use feedline_schemas::{
    ids::Seed,
    record::ColumnType::{Float64, Utf8},
};
use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::{
    build,
    testing::{Cells, LandingZone, blocks, contents, context, flip_bit, pipeline},
    tokenizer::testing::small,
    verify,
};

const RULE: EditRule = EditRule {
    threshold: 0.99,
    temperature: 1.0,
    top_k: None,
    top_p: None,
    seed: Seed::new(0),
};

/// Small blocks and shards, other than by default.
const SIZES: &str = "shards = { block_bytes = \"4 KiB\", shard_bytes = \"64 KiB\" }\n";

fn prior() -> PriorReference {
    PriorReference {
        run: "transformer-1".into(),
        weights: Hash128::new(5),
        context: 16,
    }
}

/// A dataset of 300 texts, with `kind` in its section.
async fn texts(kind: &str) -> (Store, TempDir) {
    let root = Store::memory();
    let words = ["hello", "shell", "well...", "café", "0123"];
    let text = |i: usize| {
        let words = (0..i % 7 + 100).map(|at| words[(i / 5 + at * at) % words.len()]);
        format!("{i}: {}", words.collect::<Vec<_>>().join(" "))
    };
    let rows: Vec<Cells> = (0..300).map(|i| vec![json!(text(i))]).collect();
    let mut zone = LandingZone::new(&root, "a", &[("text", Utf8)]);
    zone.batch(&rows).await;
    let (context, scratch) = context(&root, 2);
    let config = format!("sources = [\"a\"]\n{kind}\n{SIZES}");
    build(&pipeline(&config), &context).await.unwrap();
    (root, scratch)
}

/// Dataset of tokens.
async fn tokens() -> (Store, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tokenizer.json");
    fs::write(&file, small().to_string()).unwrap();
    let kind = format!(
        "kind = \"tokens\"\ntokens = {{ tokenizer = '{}' }}",
        file.display()
    );
    texts(&kind).await
}

async fn edited(
    source: &Store,
    target: &Store,
    edit: impl AsyncFnMut(Documents) -> Result<Vec<u32>, Error>,
) -> Result<EditReport, Error> {
    let (context, _scratch) = context(source, 1);
    let source = EditSource::open(source).await?;
    let shards = source.write(target, &context, edit).await?;
    let measures = EditMeasures {
        counts: EditCounts {
            predicted: 9,
            ..EditCounts::default()
        },
        ..EditMeasures::default()
    };
    source
        .publish(target, shards, (RULE, prior()), measures)
        .await
}

fn is_shard(path: &str) -> bool {
    path.starts_with("shards/")
}

async fn shards(store: &Store) -> BTreeMap<String, Bytes> {
    let mut found = contents(store).await;
    found.retain(|path, _| is_shard(path));
    found
}

async fn documents_of(store: &Store, split: Split) -> Vec<Vec<u32>> {
    let mut found = Vec::new();
    for (_, batch) in blocks(store).await.iter().filter(|(s, _)| *s == split) {
        for ids in batch["tokens"].as_list::<i32>().iter().flatten() {
            let ids = ids.as_primitive::<UInt16Type>().values().to_vec();
            found.push(ids.into_iter().map(u32::from).collect());
        }
    }
    found
}

#[tokio::test]
async fn an_edit_that_changes_nothing_writes_the_same_shards() {
    for kind in ["kind = \"characters\"\n", ""] {
        let (root, _scratch) = match kind {
            "" => tokens().await,
            kind => texts(kind).await,
        };
        let (source, target) = (root.child("dataset"), Store::memory());
        let same = async |documents: Documents| Ok(documents.ids);
        let report = edited(&source, &target, same).await.unwrap();
        let (before, after) = (shards(&source).await, shards(&target).await);
        assert!(before.len() >= 10, "several shards: {:?}", before.keys());
        assert_eq!(before, after);
        assert!(verify(&target).await.unwrap().problems.is_empty());
        let before = read_manifest(&source).await.unwrap();
        let after = read_manifest(&target).await.unwrap();
        assert_eq!(before.splits, after.splits);
        assert_eq!((before.counts, before.layout), (after.counts, after.layout));
        assert_eq!(before.tokens, after.tokens);
        let edit = after.edit.unwrap();
        assert_eq!(edit.source, before.fingerprint);
        assert_eq!(edit.before, edit.after);
        assert!(edit.before.bigrams.total > 1000);
        assert_eq!(edit, report.edit);
        assert!(report.warnings.is_empty() && !report.up_to_date);
    }
}

#[tokio::test]
async fn an_edit_reaches_the_training_split_alone() {
    let (root, _scratch) = tokens().await;
    let (source, target) = (root.child("dataset"), Store::memory());
    let special = EditSource::open(&source).await.unwrap().special().to_vec();
    // The end of a text and the other added token of the small tokenizer.
    assert!(special.contains(&300), "{special:?}");
    let same = |id: u32| {
        if id.is_multiple_of(3) && id < 300 {
            7
        } else {
            id
        }
    };
    let mut seen = Vec::new();
    let edit = async |documents: Documents| {
        seen.extend(documents.keys);
        Ok(documents.ids.into_iter().map(same).collect())
    };
    let report = edited(&source, &target, edit).await.unwrap();
    assert!(verify(&target).await.unwrap().problems.is_empty());
    for split in Split::ALL {
        let mut expected = documents_of(&source, split).await;
        assert!(!expected.is_empty());
        if split == Split::Train {
            expected.iter_mut().flatten().for_each(|id| *id = same(*id));
            assert_eq!(seen.len(), expected.len());
        }
        assert_eq!(documents_of(&target, split).await, expected, "{split}");
    }
    let tokens = read_manifest(&target).await.unwrap().counts.tokens.unwrap();
    let counts = report.edit.counts;
    assert_eq!((counts.tokens, counts.predicted), (tokens.train, 9));
    assert_eq!(counts.documents, seen.len() as u64);
    // A third of the ids became one.
    assert!(report.edit.after.bigrams.distinct < report.edit.before.bigrams.distinct);
    assert!(report.warnings.len() >= 2, "{:?}", report.warnings);
}

#[tokio::test]
async fn ids_that_are_missing_or_unknown_are_never_published() {
    let (root, _scratch) = tokens().await;
    let source = root.child("dataset");
    let check = async |spoil: fn(&mut Vec<u32>)| {
        let target = Store::memory();
        let edit = async |mut documents: Documents| {
            spoil(&mut documents.ids);
            Ok(documents.ids)
        };
        let error = edited(&source, &target, edit).await.unwrap_err();
        assert!(matches!(error, Error::Lost { .. }), "{error}");
        assert!(target.get_opt("CURRENT").await.unwrap().is_none());
    };
    check(|ids| {
        ids.pop();
    })
    .await;
    check(|ids| ids.push(1)).await;
    check(|ids| ids[0] = 60_000).await;
}

#[tokio::test]
async fn an_edit_that_died_leaves_no_dataset_and_the_next_one_writes_the_whole() {
    let (root, _scratch) = tokens().await;
    let source = root.child("dataset");
    let add = |documents: Documents| documents.ids.into_iter().map(|id| id % 256).collect();
    let expected = Store::memory();
    let undisturbed = async |documents: Documents| Ok(add(documents));
    edited(&source, &expected, undisturbed).await.unwrap();
    let expected = contents(&expected).await;
    let target = Store::memory();
    for dies_at in [0, 1, 5, 11] {
        let mut left = dies_at;
        let edit = async |documents: Documents| {
            if left == 0 {
                return Err(Error::config("killed", "here"));
            }
            left -= 1;
            Ok(add(documents))
        };
        assert!(edited(&source, &target, edit).await.is_err());
        assert!(target.get_opt("CURRENT").await.unwrap().is_none());
    }
    edited(&source, &target, undisturbed).await.unwrap();
    assert_eq!(contents(&target).await, expected);
    // And once more: it is found.
    let opened = EditSource::open(&source).await.unwrap();
    opened.check_target(&target).await.unwrap();
    let found = opened.found(&target, &RULE, &prior()).await.unwrap();
    assert!(found.is_some_and(|report| report.up_to_date));
    let other = EditRule {
        threshold: 0.9,
        ..RULE
    };
    let found = opened.found(&target, &other, &prior()).await.unwrap();
    assert!(found.is_none());
    assert_eq!(contents(&target).await, expected);
}

#[tokio::test]
async fn what_cannot_be_edited_is_refused() {
    let (root, _scratch) = tokens().await;
    let source = root.child("dataset");
    let refused = |error: Error, part: &str| {
        let message = error.to_string();
        assert!(message.contains(part), "{message}");
    };
    // Nothing, and a dataset of numbers.
    let nothing = EditSource::open(&Store::memory()).await;
    refused(nothing.unwrap_err(), "no finished build");
    let numbers = Store::memory();
    let rows: Vec<Cells> = (0..200).map(|i| vec![json!(f64::from(i))]).collect();
    let mut zone = LandingZone::new(&numbers, "a", &[("x", Float64)]);
    zone.batch(&rows).await;
    let (on_numbers, _scratch) = context(&numbers, 1);
    build(&pipeline("sources = [\"a\"]"), &on_numbers)
        .await
        .unwrap();
    let rows = EditSource::open(&numbers.child("dataset")).await;
    refused(rows.unwrap_err(), "no documents to edit");
    // A model of other ids.
    let (other, _scratch) = texts("kind = \"characters\"").await;
    let opened = EditSource::open(&source).await.unwrap();
    opened.check_ids_of(&source).await.unwrap();
    let error = opened.check_ids_of(&other.child("dataset")).await;
    refused(error.unwrap_err(), "another tokenizer or vocabulary");
    // The source itself, and any dataset that is not an edited one.
    for taken in [&source, &other.child("dataset")] {
        let error = opened.check_target(taken).await;
        refused(error.unwrap_err(), "a dataset of its own");
    }
    opened.check_target(&Store::memory()).await.unwrap();
    // A damaged shard.
    let manifest = read_manifest(&source).await.unwrap();
    for split in [0, 2] {
        let shard = &manifest.splits[split].shards[0];
        flip_bit(&source, &shard.path, 700).await;
        let target = Store::memory();
        let same = async |documents: Documents| Ok(documents.ids);
        let error = edited(&source, &target, same).await.unwrap_err();
        refused(error, "its hash is not the one");
        assert!(target.get_opt("CURRENT").await.unwrap().is_none());
        flip_bit(&source, &shard.path, 700).await;
    }
}

#[tokio::test]
async fn a_dataset_that_was_edited_before_says_so() {
    let (root, _scratch) = tokens().await;
    let (once, twice) = (Store::memory(), Store::memory());
    let same = async |documents: Documents| Ok(documents.ids);
    edited(&root.child("dataset"), &once, same).await.unwrap();
    let report = edited(&once, &twice, same).await.unwrap();
    let codes = report.warnings.iter().map(|warning| &warning.code);
    assert_eq!(codes.collect::<Vec<_>>(), ["edited_before"]);
    let source = EditSource::open(&once).await.unwrap();
    assert!(source.check_target(&once).await.is_err());
}
