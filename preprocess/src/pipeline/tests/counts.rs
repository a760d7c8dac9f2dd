//! Cells that a build reads as something else, counted and said: NaN, unknown categories, keys that are features, rejects of
//! appended rows.

use std::collections::BTreeMap;

use feedline_schemas::{
    record::ColumnType::{self, Float64, Int64, Utf8},
    report::{DatasetReport, Warning},
};
use feedline_storage::Store;
use serde_json::{Value, json};

use crate::{
    Error,
    testing::{Cells, LandingZone, build_with},
};

const COLUMNS: [(&str, ColumnType); 4] = [
    ("id", Int64),
    ("x", Float64),
    ("kind", Utf8),
    ("y", Float64),
];

/// Row `i`; the text `NaN` in `x` is a NaN.
fn row(i: u32, kind: &str) -> Cells {
    let x = f64::from(i * 7919 % 1000) / 7.0;
    vec![
        json!(i),
        json!(x),
        json!(kind),
        json!(x * 2.0 + f64::from(i % 5)),
    ]
}

fn of_code<'a>(report: &'a DatasetReport, code: &str) -> Vec<&'a Warning> {
    let warnings = report.warnings.iter();
    warnings.filter(|warning| warning.code == code).collect()
}

#[track_caller]
fn check_warning(report: &DatasetReport, code: &str, key: &str, parts: &[&str]) {
    let found = of_code(report, code);
    let [warning] = found[..] else {
        panic!("{code}: {:#?}", report.warnings)
    };
    assert_eq!(warning.key.as_deref(), Some(key), "{warning:?}");
    for part in parts {
        assert!(
            warning.message.contains(part),
            "`{part}`: {}",
            warning.message
        );
    }
}

#[track_caller]
fn check_none(report: &DatasetReport, code: &str) {
    assert_eq!(of_code(report, code), Vec::<&Warning>::new());
}

async fn landed(root: &Store, rows: &[Cells]) -> LandingZone {
    let mut zone = LandingZone::new(root, "a", &COLUMNS);
    zone.batch(rows).await;
    zone
}

const PLAIN: &str = "sources = [\"a\"]\ntarget = \"y\"\ndrop = [\"id\"]\n";

#[tokio::test]
async fn nan_cells_of_numbers_are_counted_in_a_build_and_in_appended_rows_and_nulls_are_not() {
    let root = Store::memory();
    let with = |i: u32, x: Value| {
        let mut cells = row(i, "a");
        cells[1] = x;
        cells
    };
    let rows = |from: u32, nan: u32| {
        let rows = (from..from + 200).map(|i| match i - from {
            at if at < nan => with(i, json!("NaN")),
            at if at < nan + 5 => with(i, Value::Null),
            _ => row(i, "a"),
        });
        rows.collect::<Vec<_>>()
    };
    let mut zone = landed(&root, &rows(0, 0)).await;
    let report = build_with(&root, PLAIN, 2).await.unwrap();
    check_none(&report, "nan_missing");
    zone.batch(&rows(200, 7)).await;
    let report = build_with(&root, PLAIN, 2).await.unwrap();
    assert!(report.added.is_some(), "{report:?}");
    check_warning(
        &report,
        "nan_missing",
        "dataset.step",
        &["`x` (7 of 200)", "were imputed"],
    );
    let unfilled =
        format!("{PLAIN}max_reject_fraction = 1.0\nstep = [{{ type = \"categories\" }}]\n");
    for partitions in [1, 3] {
        let report = build_with(&root, &unfilled, partitions).await.unwrap();
        let expected = ["`x` (7 of 400)", "rejected as `missing_value`"];
        check_warning(&report, "nan_missing", "dataset.step", &expected);
    }
}

#[tokio::test]
async fn categories_that_training_lacks_are_counted_in_each_split_and_in_appended_rows() {
    let root = Store::memory();
    let rows: Vec<Cells> = (0..600)
        .map(|i| row(i, if i < 400 { "old" } else { "new" }))
        .collect();
    let mut zone = landed(&root, &rows).await;
    let dataset = format!(
        "{PLAIN}split = {{ by = \"range\", train = 0.5, validation = 0.25, test = 0.25 }}\n"
    );
    let report = build_with(&root, &dataset, 2).await.unwrap();
    check_warning(
        &report,
        "unknown_categories",
        "dataset.step.unknown",
        &["`kind` (50 of 150 validation rows, 33.3 %; 150 of 150 test rows, 100.0 %)"],
    );
    let by_content = format!("{PLAIN}split = {{ train = 0.6, validation = 0.2, test = 0.2 }}\n");
    let report = build_with(&root, &by_content, 2).await.unwrap();
    check_none(&report, "unknown_categories");
    zone.batch(&(600..640).map(|i| row(i, "newest")).collect::<Vec<_>>())
        .await;
    let report = build_with(&root, &by_content, 2).await.unwrap();
    let added = report.added.clone().unwrap();
    assert_eq!(added.train + added.validation + added.test, 40);
    let parts = [
        format!("{} of {} train rows, 100.0 %", added.train, added.train),
        format!("{} of {} test rows, 100.0 %", added.test, added.test),
    ];
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    check_warning(
        &report,
        "unknown_categories",
        "dataset.step.unknown",
        &parts,
    );
}

/// Row `i`, where `x` rises.
fn rising(i: u32) -> Cells {
    let mut cells = row(i, "a");
    cells[1] = json!(f64::from(i) / 3.0);
    cells
}

#[tokio::test]
async fn cells_that_caps_change_are_counted_where_a_column_leaves_its_training_range() {
    const CODE: &str = "mostly_capped";
    let rows: Vec<Cells> = (0..600).map(rising).collect();
    let by_range = "split = { by = \"range\", train = 0.5, validation = 0.25, test = 0.25 }\n";
    // Caps of a column that the step lists are meant.
    let listed =
        "step = [{ type = \"winsorize\", columns = [\"x\"] }, { type = \"categories\" }]\n";
    for (more, is_warned) in [
        (by_range.to_owned(), true),
        (String::new(), false),
        (format!("{by_range}{listed}"), false),
    ] {
        let root = Store::memory();
        landed(&root, &rows).await;
        let dataset = format!("{PLAIN}{more}");
        let report = build_with(&root, &dataset, 2).await.unwrap();
        if !is_warned {
            check_none(&report, CODE);
            continue;
        }
        let parts = [
            "`x` (100.0 % of 150 validation rows, 100.0 % of 150 test rows; 2.0 % of the rows",
            "write `[[dataset.step]]` without `winsorize`",
        ];
        check_warning(&report, CODE, "dataset.step", &parts);
    }
}

#[tokio::test]
async fn capped_cells_of_appended_rows_are_counted_in_all_splits() {
    const CODE: &str = "mostly_capped";
    let root = Store::memory();
    let rows: Vec<Cells> = (0..600).map(|i| row(i, "a")).collect();
    let mut zone = landed(&root, &rows).await;
    let report = build_with(&root, PLAIN, 2).await.unwrap();
    check_none(&report, CODE);
    // All other rows have at most 143.
    zone.batch(&(600..700).map(rising).collect::<Vec<_>>())
        .await;
    let report = build_with(&root, PLAIN, 2).await.unwrap();
    let added = report.added.clone().unwrap();
    let parts = [
        "in the rows appended last: caps of `winsorize`",
        &format!("`x` (100.0 % of {} train rows", added.train),
        "--refit",
    ];
    check_warning(&report, CODE, "dataset.step", &parts);
}

#[tokio::test]
async fn appended_rows_far_from_the_training_rows_are_warned_of_in_all_splits() {
    const CODE: &str = "far_from_training_rows";
    let far = |i: u32| {
        let mut cells = row(i, "a");
        cells[1] = json!(1e11 + f64::from(i));
        cells
    };
    for (scale, parts) in [
        (
            "standardize",
            [" deviations in train)", " deviations in test)"],
        ),
        ("robust", [" in train, ", " in the training rows before)"]),
    ] {
        let root = Store::memory();
        let rows: Vec<Cells> = (0..600).map(|i| row(i, "a")).collect();
        let mut zone = landed(&root, &rows).await;
        let dataset = format!(
            "sources = [\"a\"]\ntarget = \"y\"\nfeatures = [\"x\"]\nstep = [{{ type = \"{scale}\" }}]\n"
        );
        check_none(&build_with(&root, &dataset, 2).await.unwrap(), CODE);
        zone.batch(&(600..700).map(far).collect::<Vec<_>>()).await;
        let report = build_with(&root, &dataset, 2).await.unwrap();
        assert!(report.added.is_some(), "{scale}");
        let [first, second] = parts;
        let parts = ["in the rows appended last: rows ", first, second];
        check_warning(&report, CODE, "dataset.step", &parts);
        // Those of the append before are not among the last.
        zone.batch(&(700..800).map(|i| row(i, "a")).collect::<Vec<_>>())
            .await;
        let report = build_with(&root, &dataset, 2).await.unwrap();
        assert!(report.added.is_some(), "{scale}");
        check_none(&report, CODE);
    }
}

#[tokio::test]
async fn a_key_of_the_split_that_is_a_category_is_named_with_the_way_out() {
    let root = Store::memory();
    let kinds: Vec<String> = (0..12).map(|kind| format!("k{kind}")).collect();
    let rows: Vec<Cells> = (0..600)
        .map(|i| row(i, &kinds[(i % 12) as usize]))
        .collect();
    landed(&root, &rows).await;
    let keyed = "sources = [\"a\"]\ntarget = \"y\"\nsplit = { key = [\"kind\"], train = 0.6, validation = 0.2, test = 0.2 }\n";
    for (listed, key) in [
        ("features = [\"x\", \"kind\"]\n", "dataset.features"),
        (
            "drop = [\"id\"]\ncategorical = [\"kind\"]\n",
            "dataset.categorical",
        ),
    ] {
        let report = build_with(&root, &format!("{keyed}{listed}"), 2).await;
        let report = report.unwrap();
        let parts = [
            "column `kind` is the key of the split",
            &format!("take it out of `{key}`"),
        ];
        check_warning(&report, "key_is_feature", key, &parts);
        check_none(&report, "unknown_categories");
    }
    let report = build_with(&root, &format!("{keyed}drop = [\"id\"]\n"), 2).await;
    check_none(&report.unwrap(), "key_is_feature");
}

#[tokio::test]
async fn appended_rows_with_many_rejects_are_a_warning_of_the_report_until_all_rows_are_above_the_limit()
 {
    let root = Store::memory();
    let rows: Vec<Cells> = (0..600).map(|i| row(i, "a")).collect();
    let mut zone = landed(&root, &rows).await;
    build_with(&root, PLAIN, 2).await.unwrap();
    let unpriced = |from: u32, to: u32| -> Vec<Cells> {
        let rows = (from..to).map(|i| {
            let mut cells = row(i, "a");
            cells[3] = Value::Null;
            cells
        });
        rows.collect()
    };
    let good: Vec<Cells> = (610..620).map(|i| row(i, "a")).collect();
    zone.batch(&[unpriced(600, 610), good].concat()).await;
    let report = build_with(&root, PLAIN, 2).await.unwrap();
    assert!(report.added.is_some());
    check_warning(
        &report,
        "many_rejects",
        "dataset.max_reject_fraction",
        &[
            "10 of the 20 rows appended last (50.0 %)",
            "10 as `target_missing`",
        ],
    );
    zone.batch(&unpriced(700, 750)).await;
    let error = build_with(&root, PLAIN, 2).await.unwrap_err();
    assert!(matches!(error, Error::TooManyRejects { .. }), "{error}");
}

/// 400 rows from `from` on; every fifth has the target -20,000 if `is_marked`.
fn with_marked_targets(from: u32, is_marked: bool) -> Vec<Cells> {
    let rows = (from..from + 400).map(|i| {
        let mut cells = row(i, "a");
        if is_marked && i.is_multiple_of(5) {
            cells[3] = json!(-20_000.0);
        }
        cells
    });
    rows.collect()
}

#[tokio::test]
async fn a_target_repeated_far_from_all_others_is_found_in_appended_rows_and_may_be_expected() {
    const CODE: &str = "target_repeats_extreme";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("expect.toml");
    let text = "[[column]]\nname = \"y\"\nkind = \"numeric\"\nmin = -20000.0\n";
    std::fs::write(&file, text).unwrap();
    let expected = format!("{PLAIN}expect = {{ file = \"{}\" }}\n", file.display());
    for (dataset, is_warned) in [(PLAIN, true), (expected.as_str(), false)] {
        let root = Store::memory();
        let mut zone = landed(&root, &with_marked_targets(0, false)).await;
        let report = build_with(&root, dataset, 2).await.unwrap();
        check_none(&report, CODE);
        zone.batch(&with_marked_targets(400, true)).await;
        let report = build_with(&root, dataset, 2).await.unwrap();
        assert!(report.added.is_some(), "{report:?}");
        if !is_warned {
            check_none(&report, CODE);
            continue;
        }
        let parts = [
            "appended training rows have the target `y` of about -20000,",
            "`dataset.expect = { file = \"expect.toml\" }`",
            // A target that is stored in deviations is rounded, and the bound allows that.
            "`[[column]]`, `name = \"y\"`, `kind = \"numeric\"` and `min = -20000.1` (or less)",
        ];
        check_warning(&report, CODE, "dataset.missing_values", &parts);
    }
}

#[tokio::test]
async fn appended_rows_with_a_repeated_target_are_counted_beside_those_of_the_build() {
    const CODE: &str = "target_repeats_extreme";
    let root = Store::memory();
    let mut zone = landed(&root, &with_marked_targets(0, true)).await;
    let first = build_with(&root, PLAIN, 2).await.unwrap();
    let found = of_code(&first, CODE);
    let [before] = found[..] else {
        panic!("{:#?}", first.warnings)
    };
    assert!(before.message.contains(" training rows have the target"));
    zone.batch(&with_marked_targets(400, true)).await;
    let report = build_with(&root, PLAIN, 2).await.unwrap();
    let parts = [
        before.message.as_str(),
        "; in the rows appended last: ",
        " appended training rows have the target `y`",
    ];
    check_warning(&report, CODE, "dataset.missing_values", &parts);
}

#[tokio::test]
async fn rows_rejected_for_their_missing_key_are_held_to_the_limit_of_rejects() {
    let root = Store::memory();
    let kinds: Vec<String> = (0..40).map(|kind| format!("k{kind}")).collect();
    let rows: Vec<Cells> = (0..600)
        .map(|i| {
            row(
                i,
                if i % 10 == 0 {
                    ""
                } else {
                    &kinds[(i % 40) as usize]
                },
            )
        })
        .collect();
    landed(&root, &rows).await;
    let dataset = "sources = [\"a\"]\ntarget = \"y\"\ndrop = [\"id\", \"kind\"]\n\
        split = { key = [\"kind\"], missing_key = \"reject\" }\n";
    let error = build_with(&root, dataset, 2).await.unwrap_err().to_string();
    for part in [
        "60 of 600 rows were rejected",
        "missing_key: 60",
        "`dataset.split.missing_key = \"own\"`",
    ] {
        assert!(error.contains(part), "{error}");
    }
    let report = build_with(&root, &format!("{dataset}max_reject_fraction = 0.2\n"), 2).await;
    let expected = BTreeMap::from([("missing_key".to_owned(), 60)]);
    assert_eq!(report.unwrap().rejected_by_reason, expected);
}
