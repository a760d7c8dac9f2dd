//! Warnings of numbers far from all others, in features and targets.

use feedline_schemas::record::ColumnType::{self, Float64};
use serde_json::json;

use super::{ALL_TRAIN, check_none, check_warning, landed, report_of};
use crate::testing::{Cells, build_with};

const COLUMNS: [(&str, ColumnType); 3] = [("x", Float64), ("s", Float64), ("y", Float64)];

/// Split of the rows as they landed: 400 of 500 train.
const BY_RANGE: &str =
    "split = { by = \"range\", train = 0.8, validation = 0.1, test = 0.1 }\ntarget = \"y\"\n";

/// 500 rows of distinct numbers, as `change` makes them.
fn rows(change: impl Fn(u32, &mut [f64; 3])) -> Vec<Cells> {
    let row = |i: u32| {
        let mut cells = [1, 2, 3].map(|column| f64::from(i * (36 + column) % 499) / 99.0);
        cells[2] += f64::from(i) / 1000.0;
        change(i, &mut cells);
        cells.map(|cell| json!(cell)).to_vec()
    };
    (0..500).map(row).collect()
}

#[tokio::test]
async fn numbers_that_a_scale_makes_equal_are_warned_of_in_features_and_targets() {
    let huge = |i: u32, cells: &mut [f64; 3]| {
        if i.is_multiple_of(50) {
            cells[0] = 1e9 + f64::from(i) * 1e7;
            cells[2] = 1e9 + f64::from(i) * 1e7;
        }
    };
    let (root, _) = landed(&COLUMNS, &rows(huge)).await;
    let dataset = format!("{ALL_TRAIN}target = \"y\"\n");
    let report = report_of(&root, &dataset).await;
    check_warning(
        &report,
        "floats_rounded",
        "dataset.step",
        &[
            "`x` (",
            " distinct numbers in 500 training rows become ",
            "`robust`",
        ],
    );
    check_warning(
        &report,
        "target_rounded",
        "dataset.expect",
        &[
            "the target `y` ",
            "500 distinct numbers in 500 training rows become ",
        ],
    );
    // Neither the scale of the middle rows nor ordinary numbers make them equal.
    let (root, _) = landed(&COLUMNS, &rows(huge)).await;
    let robust = format!("{dataset}step = [{{ type = \"robust\" }}]\n");
    check_none(&report_of(&root, &robust).await, "floats_rounded");
    let (root, _) = landed(&COLUMNS, &rows(|_, _| ())).await;
    let report = report_of(&root, &dataset).await;
    check_none(&report, "floats_rounded");
    check_none(&report, "target_rounded");
}

#[tokio::test]
async fn one_far_target_of_a_validation_row_and_far_test_rows_are_warned_of() {
    const CODE: &str = "far_from_training_rows";
    let (root, _) = landed(
        &COLUMNS,
        &rows(|i, cells| {
            if i == 410 {
                cells[2] = 1e7;
            }
        }),
    )
    .await;
    let report = report_of(&root, BY_RANGE).await;
    let parts = [
        "targets are far",
        "`y` (",
        " deviations in validation)",
        "`min` or `max`",
    ];
    check_warning(&report, CODE, "dataset.expect", &parts);
    // The bound is that of `predict`, not a million deviations.
    let far = |i: u32, cells: &mut [f64; 3]| {
        if i > 450 && i.is_multiple_of(2) {
            cells[0] = 1e5;
        }
    };
    let (root, _) = landed(&COLUMNS, &rows(far)).await;
    let standardized = format!("{BY_RANGE}step = [{{ type = \"standardize\" }}]\n");
    let report = report_of(&root, &standardized).await;
    let parts = ["`x` (", " deviations in test)", "`winsorize`"];
    check_warning(&report, CODE, "dataset.step", &parts);
    let (root, _) = landed(&COLUMNS, &rows(|_, _| ())).await;
    check_none(&report_of(&root, &standardized).await, CODE);
}

#[tokio::test]
async fn far_targets_of_appended_rows_are_warned_of() {
    let (root, mut zone) = landed(&COLUMNS, &rows(|_, _| ())).await;
    let dataset = "sources = [\"a\"]\ntarget = \"y\"\n";
    let report = build_with(&root, dataset, 2).await.unwrap();
    check_none(&report, "far_from_training_rows");
    let far = (0..8).map(|i| {
        let cells = [1.5, 2.5, 1e6 + f64::from(i)];
        cells.map(|cell| json!(cell)).to_vec()
    });
    zone.batch(&far.collect::<Vec<_>>()).await;
    let report = build_with(&root, dataset, 2).await.unwrap();
    assert!(report.added.is_some(), "{report:?}");
    let parts = [
        "in the rows appended last: targets are far",
        "`y` (",
        " deviations in train)",
    ];
    check_warning(&report, "far_from_training_rows", "dataset.expect", &parts);
}

#[tokio::test]
async fn a_number_that_means_missing_is_named_in_features_unless_it_is_expected() {
    const CODE: &str = "feature_repeats_extreme";
    let marked = |i: u32, cells: &mut [f64; 3]| {
        if i.is_multiple_of(10) {
            cells[0] = -999.0;
        }
        if i.is_multiple_of(7) {
            cells[1] = 9999.0;
        }
    };
    let dataset = format!("{ALL_TRAIN}target = \"y\"\n");
    let (root, _) = landed(&COLUMNS, &rows(marked)).await;
    let report = report_of(&root, &dataset).await;
    check_warning(
        &report,
        CODE,
        "dataset.missing_values",
        &[
            "`x` (-999 in 50 of 500 training rows, all others from ",
            "`s` (9999 in 72 of 500 training rows, ",
            "`name = \"x\"`, `kind = \"numeric\"` and `min = -999` (or less)",
        ],
    );
    let (root, _) = landed(&COLUMNS, &rows(marked)).await;
    let listed = format!("{dataset}missing_values = [-999, 9999]\n");
    check_none(&report_of(&root, &listed).await, CODE);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("expect.toml");
    let text = "[[column]]\nname = \"x\"\nkind = \"numeric\"\nmin = -999\n\
                [[column]]\nname = \"s\"\nkind = \"numeric\"\nmax = 9999\n";
    std::fs::write(&file, text).unwrap();
    let (root, _) = landed(&COLUMNS, &rows(marked)).await;
    let expected = format!("{dataset}expect = {{ file = \"{}\" }}\n", file.display());
    check_none(&report_of(&root, &expected).await, CODE);
}

#[tokio::test]
async fn a_number_that_means_missing_is_named_in_appended_rows() {
    const CODE: &str = "feature_repeats_extreme";
    let (root, mut zone) = landed(&COLUMNS, &rows(|_, _| ())).await;
    let dataset = "sources = [\"a\"]\ntarget = \"y\"\n";
    check_none(&build_with(&root, dataset, 2).await.unwrap(), CODE);
    let marked = rows(|i, cells| {
        cells[1] += 0.001;
        if i.is_multiple_of(5) {
            cells[0] = -999.0;
        }
    });
    zone.batch(&marked).await;
    let report = build_with(&root, dataset, 2).await.unwrap();
    assert!(report.added.is_some(), "{report:?}");
    let parts = [
        "in the rows appended last: many rows",
        "`x` (-999 in ",
        " appended training rows,",
    ];
    check_warning(&report, CODE, "dataset.missing_values", &parts);
}
