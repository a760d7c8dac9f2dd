//! Ids of the classes of a target.

use std::collections::BTreeMap;

use arrow::{array::AsArray, datatypes::Int32Type};
use feedline_schemas::{
    config::ClassLabel,
    manifest::{ClassCounts, Split},
    record::ColumnType::{Float64, Int64, Utf8},
    transform::FittedTarget,
};
use feedline_storage::Store;
use serde_json::{Value, json};

use crate::pipeline::*;
use crate::{
    read_manifest, read_transform,
    testing::{Cells, LandingZone, blocks, build_with, context, pipeline},
};

const DATASET: &str =
    "sources = [\"a\"]\ntarget = \"y\"\ntask = \"classification\"\nfeatures = [\"x\"]\n";

fn row(i: u64, label: Value) -> Cells {
    #[expect(clippy::cast_precision_loss, reason = "a few rows")]
    let x = i as f64;
    vec![json!(x), label]
}

/// Rows with these labels, in turns.
fn rows(from: u64, count: u64, labels: &[Value]) -> Vec<Cells> {
    let label = |i: u64| labels[usize::try_from(i).unwrap() % labels.len()].clone();
    (from..from + count).map(|i| row(i, label(i))).collect()
}

async fn landed(root: &Store, rows: &[Cells]) -> LandingZone {
    let label = rows[0][1].is_string();
    let columns = [("x", Float64), ("y", if label { Utf8 } else { Int64 })];
    let mut zone = LandingZone::new(root, "a", &columns);
    zone.batch(rows).await;
    zone
}

async fn names(root: &Store) -> Vec<String> {
    let dataset = root.child("dataset");
    let manifest = read_manifest(&dataset).await.unwrap();
    let artefact = read_transform(&dataset, &manifest).await.unwrap();
    let names: Vec<String> = manifest
        .counts
        .classes
        .into_iter()
        .map(|c| c.name)
        .collect();
    let Some(FittedTarget::Classification { classes, .. }) = artefact.target else {
        panic!("{:?}", artefact.target)
    };
    assert_eq!(names, classes);
    names
}

/// Checks the manifest's counts against the shards, for every class in every split.
async fn check_counts(root: &Store) -> Vec<ClassCounts> {
    let dataset = root.child("dataset");
    let mut found: BTreeMap<(Split, i32), u64> = BTreeMap::new();
    for (split, batch) in blocks(&dataset).await {
        for id in batch["y"].as_primitive::<Int32Type>().values() {
            *found.entry((split, *id)).or_default() += 1;
        }
    }
    let classes = read_manifest(&dataset).await.unwrap().counts.classes;
    let mut counted = BTreeMap::new();
    for (id, class) in (0..).zip(&classes) {
        let rows = [class.train, class.validation, class.test];
        for (split, rows) in Split::ALL.into_iter().zip(rows) {
            if rows > 0 {
                counted.insert((split, id), rows);
            }
        }
    }
    assert_eq!(counted, found);
    classes
}

#[tokio::test]
async fn labels_0_to_9_are_their_own_ids_whatever_their_counts() {
    let root = Store::memory();
    // The ninth comes most often, then the eighth.
    let labels: Vec<Value> = (0..10_i64)
        .flat_map(|label| (0..=label).map(move |_| json!(label)))
        .collect();
    landed(&root, &rows(0, 2000, &labels)).await;
    build_with(&root, DATASET, 2).await.unwrap();
    let own: Vec<String> = (0..10).map(|label| label.to_string()).collect();
    assert_eq!(names(&root).await, own);
    let classes = check_counts(&root).await;
    assert!(classes[9].train > classes[0].train);
}

#[tokio::test]
async fn a_label_that_is_not_listed_is_rejected_with_its_reason_count_and_warning() {
    let root = Store::memory();
    let labels = [json!("no"), json!("yes"), json!("yes")];
    let odd = rows(600, 9, &[json!("maybe")]);
    landed(&root, &[rows(0, 600, &labels), odd].concat()).await;
    let listed = format!("{DATASET}classes = [\"yes\", \"no\", \"never\"]\n");
    let report = build_with(&root, &listed, 2).await.unwrap();
    assert_eq!(names(&root).await, ["yes", "no", "never"]);
    let classes = check_counts(&root).await;
    assert_eq!(report.classes, classes);
    assert_eq!(
        classes[2].train + classes[2].validation + classes[2].test,
        0
    );
    assert_eq!(
        report.rejected_by_reason,
        [("unlisted_class".to_owned(), 9)].into()
    );
    let sample = report.reject_sample.unwrap();
    assert!(sample.contains("\"value\":\"maybe\""), "{sample}");
    let warning = |code: &str| {
        let mut warnings = report.warnings.iter();
        let found = warnings.find(|warning| warning.code == code);
        let found = found.unwrap_or_else(|| panic!("{code}"));
        assert_eq!(found.key.as_deref(), Some("dataset.classes"));
        found.message.clone()
    };
    let unlisted = warning("unlisted_classes");
    assert!(
        unlisted.starts_with("9 rows, beside the 600 that were kept (1.5 %), have a label of `y`"),
        "{unlisted}"
    );
    assert!(
        unlisted.contains("listed classes `yes`, `no`, `never`"),
        "{unlisted}"
    );
    assert!(warning("classes_without_rows").ends_with(": `never`"));
}

#[tokio::test]
async fn classes_are_listed_as_texts_numbers_or_booleans() {
    let root = Store::memory();
    landed(&root, &rows(0, 600, &[json!(0), json!(1), json!(2)])).await;
    let listed = format!("{DATASET}classes = [2, 1.0, \"0\"]\n");
    build_with(&root, &listed, 2).await.unwrap();
    assert_eq!(names(&root).await, ["2", "1", "0"]);
    let config = pipeline(&format!("{DATASET}classes = [true, false]\n"));
    let labels = config.dataset.unwrap().classes;
    assert_eq!(
        labels,
        [ClassLabel::Boolean(true), ClassLabel::Boolean(false)]
    );
}

#[tokio::test]
async fn a_list_of_classes_that_cannot_be_meant_is_refused() {
    let root = Store::memory();
    landed(&root, &rows(0, 600, &[json!("no"), json!("yes")])).await;
    for (list, reason) in [
        ("[\"no\"]", "it lists 1 class, allowed are 2 to 100000"),
        ("[\"no\", \"yes\", \"no\"]", "`no` is listed twice"),
        ("[1, 1.0]", "`1` is listed twice"),
        (
            "[\"no\", \" \"]",
            "` ` is read as a missing value, so no row has it",
        ),
    ] {
        let error = build_with(&root, &format!("{DATASET}classes = {list}\n"), 2).await;
        let expected = format!("`dataset.classes`: {reason}");
        assert_eq!(error.unwrap_err().to_string(), expected);
    }
    let regression = "sources = [\"a\"]\ntarget = \"x\"\nclasses = [\"no\", \"yes\"]\n";
    let error = build_with(&root, regression, 2).await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("a number to predict has no classes"),
        "{error}"
    );
}

#[tokio::test]
async fn appended_rows_keep_the_ids_and_are_counted_by_class() {
    let root = Store::memory();
    let mut zone = landed(&root, &rows(0, 600, &[json!("a"), json!("c")])).await;
    let dataset = format!("{DATASET}max_reject_fraction = 0.2\n");
    build_with(&root, &dataset, 2).await.unwrap();
    let before = check_counts(&root).await;
    zone.batch(&rows(600, 300, &[json!("c"), json!("b"), json!("c")]))
        .await;
    let report = build_with(&root, &dataset, 2).await.unwrap();
    assert_eq!(report.rejected_by_reason["unknown_class"], 100);
    let after = check_counts(&root).await;
    assert_eq!(names(&root).await, ["a", "c"]);
    let all = |class: &ClassCounts| class.train + class.validation + class.test;
    assert_eq!(all(&after[0]), all(&before[0]));
    assert_eq!(all(&after[1]), all(&before[1]) + 200);
}

#[tokio::test]
async fn a_refit_gives_a_new_class_its_place_and_names_the_ids_that_move() {
    let root = Store::memory();
    let mut zone = landed(&root, &rows(0, 600, &[json!("a"), json!("c")])).await;
    build_with(&root, DATASET, 2).await.unwrap();
    zone.batch(&rows(600, 300, &[json!("b")])).await;
    let (context, _scratch) = context(&root, 2);
    let report = refit(&pipeline(DATASET), &context).await.unwrap();
    assert_eq!(names(&root).await, ["a", "b", "c"]);
    check_counts(&root).await;
    let moved = |report: &DatasetReport| {
        let mut warnings = report.warnings.iter();
        let moved = warnings.find(|warning| warning.code == "class_ids_moved");
        moved.map(|warning| warning.message.clone())
    };
    let message = moved(&report).unwrap();
    let expected = "1 class of `y` has another id than in the dataset before: `c` from 1 to 2;";
    assert!(message.starts_with(expected), "{message}");
    let listed = format!("{DATASET}classes = [\"a\", \"b\", \"c\"]\n");
    let report = refit(&pipeline(&listed), &context).await.unwrap();
    assert_eq!(moved(&report), None);
}
