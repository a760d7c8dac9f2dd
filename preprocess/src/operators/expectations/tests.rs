use std::collections::BTreeMap;

use arrow::array::Float64Array;
use feedline_schemas::{
    record::ColumnType::{Float64, Utf8},
    transform::InputKind,
};
use feedline_storage::Store;
use serde_json::{Value, json};

use super::*;
use crate::{
    Error, read_manifest,
    testing::{Cells, LandingZone, build_with, config_key, contents, context, pipeline, written},
};

const COLUMNS: [(&str, feedline_schemas::record::ColumnType); 3] =
    [("size", Float64), ("kind", Utf8), ("price", Float64)];
const DATASET: &str = "sources = [\"a\"]\ntarget = \"price\"\n";

fn row(i: u64) -> Cells {
    let size = if i.is_multiple_of(10) {
        Value::Null
    } else {
        json!(i as f64)
    };
    vec![
        size,
        json!(["x", "y"][(i % 2) as usize]),
        json!(i as f64 * 2.0),
    ]
}

/// 400 good rows, then `odd` ones.
async fn market(odd: &[Cells]) -> Store {
    let root = Store::memory();
    let mut zone = LandingZone::new(&root, "a", &COLUMNS);
    zone.batch(&(0..400).map(row).collect::<Vec<_>>()).await;
    if !odd.is_empty() {
        zone.batch(odd).await;
    }
    root
}

fn odd() -> Vec<Cells> {
    vec![
        vec![json!(-1.0), json!("x"), json!(1.5)],
        vec![json!(1e9), json!("x"), json!(2.5)],
        vec![json!(5.5), json!("new"), json!(3.5)],
        vec![json!(6.5), Value::Null, json!(4.5)],
    ]
}

struct File {
    path: String,
    _folder: tempfile::TempDir,
}

fn file(text: &str) -> File {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("expect.toml");
    std::fs::write(&path, text).unwrap();
    File {
        path: path.display().to_string(),
        _folder: folder,
    }
}

fn dataset(file: &File, on_violation: &str) -> String {
    format!(
        "{DATASET}expect = {{ file = \"{}\", on_violation = \"{on_violation}\" }}\n",
        file.path
    )
}

/// Infers from 400 good rows.
async fn inferred() -> String {
    let root = market(&[]).await;
    build_with(&root, &format!("{DATASET}profile = true\n"), 2)
        .await
        .unwrap();
    infer_expectations(&root.child("dataset"))
        .await
        .unwrap()
        .to_toml()
}

#[tokio::test(flavor = "multi_thread")]
async fn inferred_expectations_hold_for_what_they_come_from_and_set_odd_rows_aside() {
    let file = file(&inferred().await);
    let root = market(&[]).await;
    let plain = build_with(&root, DATASET, 2).await.unwrap();
    let same = build_with(&root, &dataset(&file, "reject"), 2)
        .await
        .unwrap();
    assert_eq!(
        (plain.train, plain.test, same.rejected),
        (same.train, same.test, 0)
    );
    let mut found = Vec::new();
    for partitions in [1, 4] {
        let root = market(&odd()).await;
        let report = build_with(&root, &dataset(&file, "reject"), partitions)
            .await
            .unwrap();
        let reasons: Vec<_> = report.rejected_by_reason.into_iter().collect();
        let expected = [
            "expected_max",
            "expected_min",
            "expected_required",
            "expected_values",
        ];
        assert_eq!(reasons, expected.map(|reason| (reason.to_owned(), 1)));
        assert_eq!(written(&root.child("dataset")).await.len(), 400);
        found.push(contents(&root.child("dataset")).await);
    }
    assert!(found[0] == found[1]);
}

#[tokio::test]
async fn a_file_is_checked_before_anything_has_landed() {
    let (context, _scratch) = context(&Store::memory(), 1);
    let check = async |path: &str, is_offline: bool| {
        let config = pipeline(&format!("{DATASET}expect = {{ file = \"{path}\" }}\n"));
        let checked = check_expectations(&config, &context, is_offline).await;
        checked.map_err(|error| (config_key(&error).map(str::to_owned), error.to_string()))
    };
    let refused = async |path: &str, part: &str| {
        let (key, reason) = check(path, true).await.unwrap_err();
        assert_eq!(key.as_deref(), Some("dataset.expect.file"));
        assert!(reason.contains(part), "{reason}");
    };
    let usable = file("[[column]]\nname = \"unknown\"\nkind = \"numeric\"\n");
    assert_eq!(check(&usable.path, true).await, Ok(()));
    refused(&format!("{}.old", usable.path), "does not exist").await;
    let kindless = file("[[column]]\nname = \"size\"\n");
    refused(&kindless.path, "missing field `kind`").await;
    refused(&file("garbage ]]").path, "cannot use `").await;
    // One that is not on this machine is not asked for.
    let remote = "memory:///expect.toml";
    assert_eq!(check(remote, true).await, Ok(()));
    assert!(check(remote, false).await.is_err());
    let without = check_expectations(&pipeline(DATASET), &context, false).await;
    assert!(without.is_ok());
}

#[tokio::test]
async fn a_build_that_is_to_stop_publishes_nothing_and_says_what_is_odd() {
    let file = file(&inferred().await);
    let root = market(&odd()).await;
    let error = build_with(&root, &dataset(&file, "stop"), 2)
        .await
        .unwrap_err()
        .to_string();
    for part in ["4 rows", "expected_min", "expect.toml", "\"value\":\"-1\""] {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert!(read_manifest(&root.child("dataset")).await.is_err());
}

#[tokio::test]
async fn rows_that_are_only_warned_of_are_kept_and_counted() {
    let file = file(&inferred().await);
    let root = market(&odd()).await;
    let report = build_with(&root, &dataset(&file, "warn"), 2).await.unwrap();
    assert_eq!(
        (
            report.rejected,
            report.train + report.validation + report.test
        ),
        (0, 404)
    );
    let counts = read_manifest(&root.child("dataset"))
        .await
        .unwrap()
        .counts
        .unexpected;
    let counts: Vec<_> = counts
        .iter()
        .map(|(path, rows)| (path.as_str(), *rows))
        .collect();
    assert_eq!(
        counts,
        [
            ("kind.required", 1),
            ("kind.values", 1),
            ("size.max", 1),
            ("size.min", 1)
        ]
    );
}

/// Expectations of the rows of [`market`]; hundreds of rows violate two or three at once.
const OVERLAPPING: &str = r#"
[[column]]
name = "size"
kind = "numeric"
required = true
min = 20.0
max = 300.0

[[column]]
name = "kind"
kind = "categorical"
values = ["x"]

[[column]]
name = "price"
kind = "numeric"
max = 500.0
"#;

/// Number of `rows` that violate each of [`OVERLAPPING`].
fn overlapping(rows: &[Cells]) -> Vec<(String, u64)> {
    let count = |path: &str, violates: &dyn Fn(&Cells) -> bool| {
        let rows = rows.iter().filter(|row| violates(row)).count();
        (path.to_owned(), rows as u64)
    };
    let is = |cell: &Value, odd: fn(f64) -> bool| cell.as_f64().is_some_and(odd);
    vec![
        count("kind.values", &|row| row[1] != json!("x")),
        count("price.max", &|row| is(&row[2], |price| price > 500.0)),
        count("size.max", &|row| is(&row[0], |size| size > 300.0)),
        count("size.min", &|row| is(&row[0], |size| size < 20.0)),
        count("size.required", &|row| row[0].is_null()),
    ]
}

async fn unexpected(root: &Store) -> Vec<(String, u64)> {
    let manifest = read_manifest(&root.child("dataset")).await.unwrap();
    manifest.counts.unexpected.into_iter().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_is_warned_of_counts_for_each_expectation_that_it_violates() {
    let file = file(OVERLAPPING);
    let expected = overlapping(&(0..400).map(row).collect::<Vec<_>>());
    for partitions in [1, 4] {
        let root = market(&[]).await;
        let dataset = dataset(&file, "warn");
        let report = build_with(&root, &dataset, partitions).await.unwrap();
        assert_eq!(report.rejected, 0);
        assert_eq!(unexpected(&root).await, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_is_set_aside_is_so_for_the_first_expectation_in_the_file() {
    let file = file(OVERLAPPING);
    let violated: BTreeMap<_, _> = overlapping(&(0..400).map(row).collect::<Vec<_>>())
        .into_iter()
        .collect();
    let root = market(&[]).await;
    let dataset = format!("{}max_reject_fraction = 1.0\n", dataset(&file, "reject"));
    let reasons = build_with(&root, &dataset, 2).await.unwrap();
    let reasons = reasons.rejected_by_reason;
    assert_eq!(
        (reasons["expected_required"], reasons["expected_min"]),
        (violated["size.required"], violated["size.min"])
    );
    assert!(reasons["expected_values"] < violated["kind.values"]);
    assert!(reasons.values().sum::<u64>() < 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_are_added_count_for_each_expectation_too() {
    let file = file(OVERLAPPING);
    let root = Store::memory();
    let mut zone = LandingZone::new(&root, "a", &COLUMNS);
    let all: Vec<Cells> = (0..500).map(row).collect();
    zone.batch(&all[..400]).await;
    build_with(&root, &dataset(&file, "warn"), 2).await.unwrap();
    zone.batch(&all[400..]).await;
    let report = build_with(&root, &dataset(&file, "warn"), 2).await.unwrap();
    assert!(report.added.is_some());
    assert_eq!(unexpected(&root).await, overlapping(&all));
}

#[tokio::test]
async fn violations_of_a_column_show_the_first_cell_in_landing_order_wherever_it_was_counted() {
    let rules = [ExpectedColumn {
        name: "size".to_owned(),
        kind: InputKind::Numeric,
        required: true,
        min: Some(0.0),
        max: Some(9.0),
        max_missing_fraction: None,
        unique: false,
        values: None,
    }];
    let rules = Rows::new(&rules);
    let counted = |origins: &[u64], cells: Vec<Option<f64>>| {
        let mut found = columns::Faults::default();
        let cells: ArrayRef = Arc::new(Float64Array::from(cells));
        found.count(&rules, origins, &[cells]);
        found
    };
    let mut found = counted(&[8, 3, 5], vec![Some(-8.0), Some(-3.0), Some(50.0)]);
    found.merge(counted(&[9, 1, 7], vec![Some(-9.0), Some(-1.0), None]));
    let found = found.named(&rules).into_iter();
    let found: Vec<_> = found.map(|v| (v.path, v.rows, v.sample)).collect();
    let fault = |path: &str, rows, sample: &str| (path.to_owned(), rows, sample.to_owned());
    assert_eq!(
        found,
        [
            fault("size.max", 1, "50"),
            fault("size.min", 4, "-1"),
            fault("size.required", 1, "")
        ]
    );
}

#[tokio::test]
async fn a_build_that_is_to_stop_says_what_is_odd_however_many_rows_are() {
    let file = file(OVERLAPPING);
    let root = market(&[]).await;
    for limit in ["", "max_reject_fraction = 0.9\n"] {
        let dataset = format!("{}{limit}", dataset(&file, "stop"));
        let error = build_with(&root, &dataset, 2).await.unwrap_err();
        assert!(matches!(error, Error::Unexpected { .. }), "{error}");
        let message = error.to_string();
        assert!(message.contains("expected_min: 18"), "{message}");
        assert!(!message.contains("max_reject_fraction"), "{message}");
    }
    let error = build_with(&root, &dataset(&file, "reject"), 2).await;
    assert!(matches!(error, Err(Error::TooManyRejects { .. })));
}

#[tokio::test]
async fn columns_that_are_not_as_expected_stop_a_build() {
    let name = "[[column]]\nname = \"size\"\nkind = \"numeric\"\n";
    let few = file(&format!("{name}max_missing_fraction = 0.05\n"));
    let root = market(&[]).await;
    let error = build_with(&root, &dataset(&few, "reject"), 2)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("size.max_missing_fraction") && error.contains("40 of 400"),
        "{error}"
    );
    let unique = file("[[column]]\nname = \"kind\"\nkind = \"categorical\"\nunique = true\n");
    let error = build_with(&root, &dataset(&unique, "stop"), 2)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("kind.unique")
            && error.contains("hold 2 different values); correct the source"),
        "{error}"
    );
}

#[tokio::test]
async fn files_that_do_not_fit_are_refused_with_the_key() {
    let root = market(&[]).await;
    for (text, expected) in [
        (
            "[[column]]\nname = \"siz\"\nkind = \"numeric\"\n",
            "neither a feature nor the target",
        ),
        (
            "[[column]]\nname = \"size\"\nkind = \"categorical\"\n",
            "should be categorical and is numeric",
        ),
        ("x = 1\n", "unknown field"),
    ] {
        let error = build_with(&root, &dataset(&file(text), "reject"), 2)
            .await
            .unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(config_key(&error), Some("dataset.expect.file"));
    }
    let absent = file("");
    std::fs::remove_file(&absent.path).unwrap();
    let error = build_with(&root, &dataset(&absent, "warn"), 2)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("dataset.expect.file") && error.contains("shards expect"),
        "{error}"
    );
    build_with(&root, DATASET, 2).await.unwrap();
    let error = infer_expectations(&root.child("dataset"))
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("`dataset.profile`"), "{error}");
}

#[tokio::test]
async fn another_file_is_another_dataset() {
    let root = market(&[]).await;
    let text = "[[column]]\nname = \"size\"\nkind = \"numeric\"\nmax = 1000.0\n";
    let first = file(text);
    build_with(&root, &dataset(&first, "reject"), 2)
        .await
        .unwrap();
    assert!(
        build_with(&root, &dataset(&first, "reject"), 2)
            .await
            .unwrap()
            .up_to_date
    );
    std::fs::write(&first.path, text.replace("1000", "900")).unwrap();
    assert!(
        !build_with(&root, &dataset(&first, "reject"), 2)
            .await
            .unwrap()
            .up_to_date
    );
}
