//! Warnings of default decisions of a build, with figures and the key that changes each.

mod extremes;
mod no_rows;
mod rows;

use feedline_schemas::{
    record::ColumnType::{self, Float64, Int64, Null, Timestamp, Utf8},
    report::{DatasetReport, Warning},
    transform::FittedStep,
};
use feedline_storage::Store;
use serde_json::{Value, json};

use crate::pipeline::build;
use crate::{
    read_manifest, read_transform,
    testing::{Cells, LandingZone, build_with, context, pipeline},
};

/// Split with all rows in training, so that figures follow from the rows alone.
const ALL_TRAIN: &str = "split = { train = 1.0, validation = 0.0, test = 0.0 }\n";

async fn landed(columns: &[(&str, ColumnType)], rows: &[Cells]) -> (Store, LandingZone) {
    let root = Store::memory();
    let mut zone = LandingZone::new(&root, "a", columns);
    zone.batch(rows).await;
    (root, zone)
}

/// Builds source `a` and returns the report. Any number of partitions gives the same warnings, and
/// the manifest has them too.
async fn report_of(root: &Store, dataset: &str) -> DatasetReport {
    let dataset = format!("sources = [\"a\"]\n{dataset}");
    let report = build_with(root, &dataset, 1).await.unwrap();
    let manifest = read_manifest(&root.child("dataset")).await.unwrap();
    assert_eq!(manifest.warnings, report.warnings);
    assert_eq!(manifest.dropped_columns, report.dropped_columns);
    let again = build_with(root, &dataset, 4).await.unwrap();
    assert!(again.up_to_date);
    assert_eq!(again.warnings, report.warnings);
    report
}

fn of_code<'a>(report: &'a DatasetReport, code: &str) -> Vec<&'a Warning> {
    let warnings = report.warnings.iter();
    warnings.filter(|warning| warning.code == code).collect()
}

/// Checks that exactly one warning has this code, contains all of `parts` and names `key`.
fn check_warning(report: &DatasetReport, code: &str, key: &str, parts: &[&str]) {
    let found = of_code(report, code);
    let [warning] = found[..] else {
        panic!("{code}: {:?}", report.warnings)
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

fn check_none(report: &DatasetReport, code: &str) {
    assert_eq!(of_code(report, code), Vec::<&Warning>::new());
}

#[tokio::test]
async fn duplicates_that_are_dropped_above_one_per_cent_are_warned_of_with_a_row() {
    let row = |i: u64| vec![json!(i % 5), json!(i % 3), json!(0.5)];
    let columns = [("a", Int64), ("b", Int64), ("y", Float64)];
    let rows: Vec<Cells> = (0..500).map(row).collect();
    let (root, _) = landed(&columns, &rows).await;
    let dataset = format!("target = \"y\"\n{ALL_TRAIN}");
    let report = report_of(&root, &dataset).await;
    assert_eq!((report.rows_in, report.duplicates), (500, 485));
    check_warning(
        &report,
        "duplicates_dropped",
        "dataset.dedup",
        &[
            "485 of 500 rows (97.0 %) were dropped",
            "row 0 of batch 0 of `a`, from 0 (a = 0.0, b = 0.0, y = 0.5), which occurs 34 times",
            "`dataset.dedup = \"none\"`",
            "all copies of a row are then in one split",
        ],
    );
    let kept = report_of(&root, &format!("{dataset}dedup = \"none\"\n")).await;
    assert_eq!((kept.duplicates, kept.train), (0, 500));
    check_none(&kept, "duplicates_dropped");
}

#[tokio::test]
async fn few_duplicates_and_older_versions_of_a_key_are_nothing_to_warn_of() {
    let columns = [("id", Int64), ("x", Float64), ("y", Float64)];
    let row = |i: u64| vec![json!(i), json!(i % 7), json!(0.5)];
    let rows: Vec<Cells> = (0..500).chain(0..4).map(row).collect();
    let (root, mut zone) = landed(&columns, &rows).await;
    let dataset = "target = \"y\"\ndrop = [\"id\"]\n";
    let report = report_of(&root, dataset).await;
    assert_eq!(report.duplicates, 4);
    check_none(&report, "duplicates_dropped");
    // Each record appears again with another value.
    let newer = |i: u64| vec![json!(i), json!(i % 7 + 1), json!(0.5)];
    zone.batch(&(0..500).map(newer).collect::<Vec<_>>()).await;
    let mut config = pipeline(&format!("sources = [\"a\"]\n{dataset}"));
    config.source[0].key = vec!["id".to_owned()];
    let (context, _scratch) = context(&root, 2);
    let report = build(&config, &context).await.unwrap();
    assert!(report.duplicates >= 500, "{report:?}");
    check_none(&report, "duplicates_dropped");
}

#[tokio::test]
async fn duplicates_among_rows_that_are_added_are_warned_of() {
    let columns = [("x", Float64), ("y", Float64)];
    let row = |i: u64| vec![json!(i as f64 / 8.0), json!(0.5)];
    let rows: Vec<Cells> = (0..500).map(row).collect();
    let (root, mut zone) = landed(&columns, &rows).await;
    let dataset = "sources = [\"a\"]\ntarget = \"y\"\n";
    check_none(
        &build_with(&root, dataset, 2).await.unwrap(),
        "duplicates_dropped",
    );
    zone.batch(&(450..550).map(row).collect::<Vec<_>>()).await;
    let report = build_with(&root, dataset, 2).await.unwrap();
    assert!(report.added.is_some());
    check_warning(
        &report,
        "duplicates_dropped",
        "dataset.dedup",
        &["50 of 600 rows (8.3 %) were dropped"],
    );
}

#[tokio::test]
async fn a_category_that_is_cut_says_how_many_rows_became_unknown() {
    let columns = [("zip", Utf8), ("x", Float64), ("y", Float64)];
    // Value i appears i + 1 times, so the numbers identify the most frequent values.
    let zips = (0..150_usize).flat_map(|zip| std::iter::repeat_n(zip as u64, zip + 1));
    let row = |(i, zip): (usize, u64)| {
        vec![
            json!(format!("z{zip:03}")),
            json!(i as f64 / 7.0),
            json!(0.5),
        ]
    };
    let rows: Vec<Cells> = zips.enumerate().map(row).collect();
    let all = rows.len() as u64;
    let (root, _) = landed(&columns, &rows).await;
    let report = report_of(&root, &format!("target = \"y\"\n{ALL_TRAIN}")).await;
    let unknown: u64 = (0..50).map(|zip| zip + 1).sum();
    check_warning(
        &report,
        "categories_cut",
        "dataset.step.max_values",
        &[
            "column `zip` has 150 values in the training split and the 100 most frequent are known",
            &format!("{unknown} of {all} train rows (11.3 %) became unknown"),
        ],
    );
    // With validation and test rows, each split has its own count.
    let report = report_of(&root, "target = \"y\"\n").await;
    let manifest = read_manifest(&root.child("dataset")).await.unwrap();
    let artefact = read_transform(&root.child("dataset"), &manifest)
        .await
        .unwrap();
    let known = artefact.steps.iter().find_map(|step| match step {
        FittedStep::Categories { columns } => Some(columns[0].counts.iter().sum::<u64>()),
        _ => None,
    });
    let train = report.train - known.unwrap();
    check_warning(
        &report,
        "categories_cut",
        "dataset.step.max_values",
        &[
            &format!("{train} of {} train rows", report.train),
            &format!("of {} validation rows", report.validation),
            &format!("of {} test rows", report.test),
        ],
    );
    let step = "step = [{ type = \"categories\", max_values = 200 }]\n";
    let whole = report_of(&root, &format!("target = \"y\"\n{ALL_TRAIN}{step}")).await;
    check_none(&whole, "categories_cut");
}

#[tokio::test]
async fn columns_that_are_no_features_are_listed_with_the_reason() {
    let columns = [
        ("nothing", Null),
        ("name", Utf8),
        ("x", Float64),
        ("out", Null),
        ("y", Float64),
    ];
    let row = |i: u64| {
        vec![
            Value::Null,
            json!(format!("name {i}")),
            json!(i as f64 / 3.0),
            Value::Null,
            json!(0.5),
        ]
    };
    let rows: Vec<Cells> = (0..200).map(row).collect();
    let (root, _) = landed(&columns, &rows).await;
    let report = report_of(&root, "target = \"y\"\ndrop = [\"out\"]\n").await;
    let dropped: Vec<(&str, &str)> = report
        .dropped_columns
        .iter()
        .map(|(column, reason)| (column.as_str(), reason.as_str()))
        .collect();
    assert_eq!(
        dropped,
        [
            (
                "name",
                "holds a text of its own in (nearly) each training row"
            ),
            ("nothing", "holds no value in any row"),
        ]
    );
    let messages: Vec<&str> = of_code(&report, "columns_dropped")
        .into_iter()
        .map(|warning| warning.message.as_str())
        .collect();
    assert_eq!(
        messages,
        [
            "column `name` is no feature: it holds a text of its own in (nearly) each training row; list it in \
             `dataset.categorical` to have it as a category, or in `dataset.drop`",
            "column `nothing` is no feature: it holds no value in any row; list it in `dataset.drop` to say that this is meant",
        ]
    );
    let warned = of_code(&report, "columns_dropped").into_iter();
    for (warning, column) in warned.zip(["name", "nothing"]) {
        assert!(warning.is_about(column), "{warning:?}");
    }
    // An explicit choice gives no warning.
    let chosen = report_of(&root, "target = \"y\"\nfeatures = [\"x\"]\n").await;
    assert!(chosen.dropped_columns.is_empty(), "{chosen:?}");
    check_none(&chosen, "columns_dropped");
    // A key that names a column for another use is reported without a warning.
    let carried = "target = \"y\"\ndrop = [\"out\", \"nothing\"]\npassthrough = [\"name\"]\n";
    let carried = report_of(&root, carried).await;
    let reason = "is named in `dataset.passthrough`, and `dataset.features` does not list it";
    assert_eq!(carried.dropped_columns["name"], reason);
    assert_eq!(carried.dropped_columns.len(), 1);
    check_none(&carried, "columns_dropped");
}

#[tokio::test]
async fn times_and_numbers_that_became_categories_are_warned_of() {
    let columns = [
        ("at", Timestamp),
        ("day", Utf8),
        ("income", Utf8),
        ("share", Utf8),
        ("kind", Utf8),
        ("x", Float64),
        ("y", Float64),
    ];
    let row = |i: u64| {
        let income = match i % 20 {
            0 => json!("NA"),
            n => json!((100 + n).to_string()),
        };
        vec![
            json!(1_700_000_000_000_000_i64 + (i % 30) as i64 * 86_400_000_000),
            json!(format!("2024-01-{:02}", i % 28 + 1)),
            income,
            json!(format!("{},5 %", i % 12)),
            json!(["x", "y", "z"][(i % 3) as usize]),
            json!(i as f64 / 3.0),
            json!(0.5),
        ]
    };
    let rows: Vec<Cells> = (0..400).map(row).collect();
    let (root, _) = landed(&columns, &rows).await;
    let report = report_of(&root, &format!("target = \"y\"\n{ALL_TRAIN}")).await;
    let messages = |code: &str| -> Vec<String> {
        let found = of_code(&report, code).into_iter();
        found.map(|warning| warning.message.clone()).collect()
    };
    let [at, day] = &messages("times_as_categories")[..] else {
        panic!("{:?}", report.warnings)
    };
    assert!(
        at.contains("column `at` holds times") && at.contains("30 values"),
        "{at}"
    );
    assert!(
        day.contains("column `day` holds times such as `2024-01-"),
        "{day}"
    );
    let [income, share] = &messages("numbers_as_categories")[..] else {
        panic!("{:?}", report.warnings)
    };
    assert!(
        income.contains("column `income`") && income.contains("the others are `NA`"),
        "{income}"
    );
    assert!(
        income.contains("19 of its 20 known values look like numbers"),
        "{income}"
    );
    assert!(
        share.contains("column `share`") && share.contains("`csv.percent`"),
        "{share}"
    );
    // A column named in `categorical` is a category.
    let named = "categorical = [\"at\", \"day\", \"income\", \"share\"]\n";
    let report = report_of(&root, &format!("target = \"y\"\n{ALL_TRAIN}{named}")).await;
    check_none(&report, "times_as_categories");
    check_none(&report, "numbers_as_categories");
}

#[tokio::test]
async fn labels_that_differ_in_blanks_or_case_only_are_warned_of_with_their_rows() {
    let columns = [("x", Float64), ("town", Utf8), ("status", Utf8)];
    let row = |i: u64| {
        let status = ["good", "good ", "bad", "Bad", "fair"][(i % 5) as usize];
        let town = ["Rome", "ROME", "Oslo"][(i % 3) as usize];
        vec![json!(i as f64 / 3.0), json!(town), json!(status)]
    };
    let rows: Vec<Cells> = (0..300).map(row).collect();
    let (root, _) = landed(&columns, &rows).await;
    let target = "target = \"status\"\ntask = \"classification\"\n";
    let report = report_of(&root, &format!("{target}{ALL_TRAIN}")).await;
    check_warning(
        &report,
        "labels_alike",
        "dataset.sql",
        &[
            "labels of `status`",
            "`Bad` (60 rows) and `bad` (60 rows)",
            "`good` (60 rows) and `good ` (60 rows)",
        ],
    );
    check_warning(
        &report,
        "categories_alike",
        "dataset.sql",
        &["column `town`", "`ROME` (100 rows) and `Rome` (100 rows)"],
    );
}

#[tokio::test]
async fn a_classification_of_numbers_and_classes_that_no_training_row_has_are_warned_of() {
    let columns = [("x", Float64), ("price", Int64)];
    let target = "target = \"price\"\ntask = \"classification\"\nmax_reject_fraction = 1.0\n";
    // A scale of ten grades is a classification target, although the grades are numbers.
    let grades = |i: u64| vec![json!(i as f64 / 3.0), json!(i % 10)];
    let (root, _) = landed(&columns, &(0..600).map(grades).collect::<Vec<_>>()).await;
    let few = report_of(&root, target).await;
    check_none(&few, "many_classes");
    check_none(&few, "unknown_classes");
    let prices = |i: u64| vec![json!(i as f64 / 3.0), json!(i % 400)];
    let (root, _) = landed(&columns, &(0..600).map(prices).collect::<Vec<_>>()).await;
    let report = report_of(&root, target).await;
    let unknown = report.rejected_by_reason["unknown_class"];
    assert!(unknown > 20, "{report:?}");
    let rows = format!("classes in {} training rows, 1 row a class", report.train);
    check_warning(
        &report,
        "many_classes",
        "dataset.task",
        &[
            "target `price` has ",
            &rows,
            "`dataset.task = \"regression\"`",
        ],
    );
    let kept = report.train + report.validation + report.test;
    let text = format!("{unknown} rows, beside the {kept} that were kept");
    check_warning(
        &report,
        "unknown_classes",
        "dataset.classes",
        &[&text, "`unknown_class`"],
    );
}

#[tokio::test]
async fn an_integer_that_differs_in_all_rows_is_said_to_look_like_an_identifier() {
    let columns = [
        ("id", Int64),
        ("age", Int64),
        ("x", Float64),
        ("y", Float64),
    ];
    let row = |i: u64| {
        vec![
            json!(9000 - i),
            json!(i % 80),
            json!(i as f64 / 3.0),
            json!(0.5),
        ]
    };
    let rows: Vec<Cells> = (0..300).map(row).collect();
    let (root, _) = landed(&columns, &rows).await;
    let report = report_of(&root, "target = \"y\"\n").await;
    let text = format!(
        "a different integer in each of {} training rows",
        report.train
    );
    check_warning(
        &report,
        "looks_like_identifier",
        "dataset.drop",
        &[&text, "`id`;"],
    );
    for said in ["drop = [\"id\"]\n", "features = [\"id\", \"age\", \"x\"]\n"] {
        let report = report_of(&root, &format!("target = \"y\"\n{said}")).await;
        check_none(&report, "looks_like_identifier");
    }
}

#[tokio::test]
async fn columns_that_are_constant_or_made_so_by_caps_are_warned_of() {
    let columns = [
        ("same", Int64),
        ("rare", Float64),
        ("x", Float64),
        ("y", Float64),
    ];
    let row = |i: u64| {
        let rare = if i.is_multiple_of(300) { 5.0 } else { 0.0 };
        vec![json!(7), json!(rare), json!(i as f64 / 3.0), json!(0.5)]
    };
    let rows: Vec<Cells> = (0..600).map(row).collect();
    let (root, _) = landed(&columns, &rows).await;
    let report = report_of(&root, &format!("target = \"y\"\n{ALL_TRAIN}")).await;
    check_warning(
        &report,
        "constant_columns",
        "dataset.drop",
        &["cannot learn from it: `same`;"],
    );
    check_warning(
        &report,
        "constant_by_caps",
        "dataset.step",
        &["`rare` (2 rows);"],
    );
}

#[tokio::test]
async fn a_target_that_is_stored_as_it_is_and_rounded_is_warned_of() {
    let columns = [("v", Int64), ("y", Int64)];
    let rows = |base: i64| -> Vec<Cells> {
        let row = |i: i64| vec![json!(i * i % 97), json!(base + i)];
        (0..200).map(row).collect()
    };
    let (root, _zone) = landed(&columns, &rows(1_700_000_000)).await;
    let plain = format!("{ALL_TRAIN}target = \"y\"\nscale_target = false\n");
    let report = report_of(&root, &plain).await;
    check_warning(
        &report,
        "target_rounded",
        "dataset.scale_target",
        &[
            "the target `y` is stored as it is",
            "(1700000",
            "about 2.0e2 apart",
        ],
    );
    let (root, _zone) = landed(&columns, &rows(1_700_000_000)).await;
    let scaled = format!("{ALL_TRAIN}target = \"y\"\n");
    check_none(&report_of(&root, &scaled).await, "target_rounded");
    let (root, _zone) = landed(&columns, &rows(1_000)).await;
    check_none(&report_of(&root, &plain).await, "target_rounded");
}

#[tokio::test]
async fn infinite_cells_that_are_capped_are_counted_by_split() {
    let columns = [("a", Utf8), ("i", Float64), ("y", Float64)];
    let row = |i: u64| {
        let a = match i % 100 {
            0 => "inf".to_owned(),
            1 => "-inf".to_owned(),
            n => n.to_string(),
        };
        vec![json!(a), json!(i as f64 / 3.0), json!(0.5)]
    };
    let rows: Vec<Cells> = (0..600).map(row).collect();
    let (root, _) = landed(&columns, &rows).await;
    let steps = "step = [{ type = \"winsorize\", columns = [\"a\"] }]\n";
    let report = report_of(&root, &format!("target = \"y\"\n{ALL_TRAIN}{steps}")).await;
    check_warning(
        &report,
        "infinite_capped",
        "dataset.step",
        &["`a` (12 train, 0 validation, 0 test)"],
    );
}

#[tokio::test]
async fn new_rows_that_differ_are_warned_of_where_a_profile_has_all_rows_fitted_anew() {
    let columns = [("income", Float64), ("kind", Utf8), ("y", Float64)];
    let row = |i: u64, times: f64, kind: &str| {
        vec![
            json!((i % 97) as f64 * times),
            json!(kind),
            json!(i as f64 / 7.0),
        ]
    };
    let rows: Vec<Cells> = (0..800)
        .map(|i| row(i, 1.0, ["a", "b"][(i % 2) as usize]))
        .collect();
    let (root, mut zone) = landed(&columns, &rows).await;
    let dataset = "sources = [\"a\"]\ntarget = \"y\"\nprofile = true\n";
    let first = build_with(&root, dataset, 2).await.unwrap();
    check_none(&first, "new_rows_differ");
    let alike: Vec<Cells> = (800..1000)
        .map(|i| row(i - 800 + 1, 1.0, ["a", "b"][(i % 2) as usize]))
        .collect();
    // The target continues as before, without a shift of its own.
    let alike: Vec<Cells> = alike
        .into_iter()
        .enumerate()
        .map(|(i, cells)| {
            vec![
                cells[0].clone(),
                cells[1].clone(),
                json!(i as f64 * 0.57 + 0.01),
            ]
        })
        .collect();
    zone.batch(&alike).await;
    let second = build_with(&root, dataset, 2).await.unwrap();
    assert!(second.anew.is_some() && !second.up_to_date);
    check_none(&second, "new_rows_differ");
    let other: Vec<Cells> = (0..200)
        .map(|i| {
            vec![
                json!(f64::from(i % 97) * 5.0),
                json!("b"),
                json!(f64::from(i) * 0.57 + 0.02),
            ]
        })
        .collect();
    zone.batch(&other).await;
    let third = build_with(&root, dataset, 2).await.unwrap();
    assert!(third.anew.is_some());
    check_warning(
        &third,
        "new_rows_differ",
        "dataset.profile",
        &[
            "`income` has mean",
            "`kind=b` has mean 1.0000",
            "train again",
        ],
    );
    let page = third.report.unwrap();
    let (_, name) = page.rsplit_once('/').unwrap();
    let page = root.child("dataset").get(name).await.unwrap();
    assert!(String::from_utf8_lossy(&page).contains("new_rows_differ"));
}

#[tokio::test]
async fn warnings_are_no_part_of_the_fingerprint() {
    let columns = [("nothing", Null), ("x", Float64), ("y", Float64)];
    let row = |i: u64| vec![Value::Null, json!(i as f64 / 3.0), json!(0.5)];
    let rows: Vec<Cells> = (0..200).map(row).collect();
    let (root, _) = landed(&columns, &rows).await;
    report_of(&root, "target = \"y\"\n").await;
    let mut manifest = read_manifest(&root.child("dataset")).await.unwrap();
    assert!(!manifest.warnings.is_empty() && !manifest.dropped_columns.is_empty());
    manifest.warnings.clear();
    manifest.dropped_columns.clear();
    assert_eq!(manifest.compute_fingerprint(), manifest.fingerprint);
}

#[tokio::test]
async fn a_file_with_another_delimiter_is_recognised_by_its_only_column() {
    let row = |i: u64| vec![json!(format!("{i};2;3"))];
    let rows: Vec<Cells> = (0..50).map(row).collect();
    for (name, shown) in [
        ("Status;Age;Price", ";"),
        ("Status\tPrice", "\\t"),
        ("Status|Price", "|"),
    ] {
        let (root, _) = landed(&[(name, Utf8)], &rows).await;
        let dataset = "sources = [\"a\"]\ntarget = \"Price\"\n";
        let error = build_with(&root, dataset, 1).await.unwrap_err().to_string();
        let hint = format!("set `csv.delimiter = \"{shown}\"` of its source");
        assert!(error.contains(&hint), "{error}");
    }
    let (root, _) = landed(
        &[("a;b", Utf8), ("c", Utf8)],
        &[vec![json!("1"), json!("2")]],
    )
    .await;
    let error = build_with(&root, "sources = [\"a\"]\ntarget = \"Price\"\n", 1)
        .await
        .unwrap_err();
    assert!(!error.to_string().contains("delimiter"), "{error}");
}

#[tokio::test]
async fn texts_that_are_no_times_name_the_keys_that_say_how_they_are_written() {
    let row = |i: u64| {
        let day = match i % 2 {
            0 => format!("{:02}/01/2020", i % 28 + 1),
            _ => format!("2020-01-{:02}", i % 28 + 1),
        };
        vec![json!(day), json!(i as f64), json!(0.5)]
    };
    let rows: Vec<Cells> = (0..50).map(row).collect();
    let (root, _) = landed(&[("day", Utf8), ("x", Float64), ("y", Float64)], &rows).await;
    let split = "split = { by = \"time\", time = \"day\" }\n";
    let dataset = format!("sources = [\"a\"]\ntarget = \"y\"\n{split}");
    let error = build_with(&root, &dataset, 1)
        .await
        .unwrap_err()
        .to_string();
    for part in [
        "`01/01/2020` is no time",
        "`contract.dates`",
        "`dataset.series.format`",
        "ISO 8601",
    ] {
        assert!(error.contains(part), "{error}");
    }
}

#[tokio::test]
async fn integers_that_a_feature_rounds_are_reported_unless_a_step_scales_them() {
    let root = Store::memory();
    let columns = [("sec", Int64), ("n", Int64), ("y", Float64)];
    let row = |i: u32| {
        vec![
            json!(1_700_000_001_u64 + u64::from(i)),
            json!(i % 7),
            json!(f64::from(i % 5)),
        ]
    };
    let rows: Vec<Cells> = (0..200).map(row).collect();
    LandingZone::new(&root, "a", &columns).batch(&rows).await;
    for (step, is_rounded) in [("impute", true), ("standardize", false)] {
        let dataset =
            format!("sources = [\"a\"]\ntarget = \"y\"\nstep = [{{ type = \"{step}\" }}]\n");
        build_with(&root, &dataset, 2).await.unwrap();
        let manifest = read_manifest(&root.child("dataset")).await.unwrap();
        let found = manifest.warnings.iter();
        let found: Vec<&str> = found
            .filter(|warning| warning.code == "integers_rounded")
            .map(|warning| warning.message.as_str())
            .collect();
        assert_eq!(found.len(), usize::from(is_rounded), "{step} {found:?}");
        assert!(
            found
                .iter()
                .all(|m| m.contains("`sec` (") && !m.contains("`n`"))
        );
    }
}

#[tokio::test]
async fn floats_that_become_equal_as_features_are_reported_unless_a_step_scales_them() {
    let root = Store::memory();
    let columns = [("sec", Float64), ("x", Float64), ("y", Float64)];
    let row = |i: u32| {
        vec![
            json!(1_700_000_000.5 + f64::from(i)),
            json!(f64::from(i) / 7.0),
            json!(f64::from(i % 5)),
        ]
    };
    let rows: Vec<Cells> = (0..200).map(row).collect();
    LandingZone::new(&root, "a", &columns).batch(&rows).await;
    for (step, is_rounded) in [("impute", true), ("standardize", false)] {
        let dataset =
            format!("sources = [\"a\"]\ntarget = \"y\"\nstep = [{{ type = \"{step}\" }}]\n");
        let report = build_with(&root, &dataset, 2).await.unwrap();
        let found = of_code(&report, "floats_rounded");
        assert_eq!(found.len(), usize::from(is_rounded), "{step} {found:?}");
        let names_sec_only = |m: &str| m.contains("`sec` (") && !m.contains("`x`");
        assert!(found.iter().all(|found| names_sec_only(&found.message)));
    }
}

#[tokio::test]
async fn columns_that_sources_type_differently_are_a_warning_with_an_example_of_each() {
    let root = Store::memory();
    let row = |i: i64, day: Value, code: Value| vec![day, code, json!(i % 7), json!(i % 3)];
    let columns = |day, code| [("day", day), ("code", code), ("n", Int64), ("y", Int64)];
    let micros = |i: i64| json!(1_767_225_600_000_000_i64 + (i % 5) * 86_400_000_000);
    let rows: Vec<Cells> = (0..60).map(|i| row(i, micros(i), json!(i % 9))).collect();
    LandingZone::new(&root, "a", &columns(Timestamp, Int64))
        .batch(&rows)
        .await;
    let day = |i: i64| json!(format!("2026-01-0{}", 1 + i % 5));
    let rows = (0..60).map(|i| row(i, day(i), json!(format!("0{}", i % 9))));
    LandingZone::new(&root, "b", &columns(Utf8, Utf8))
        .batch(&rows.collect::<Vec<_>>())
        .await;
    let report = async |dataset: &str| {
        let dataset = format!("sources = [\"a\", \"b\"]\ntarget = \"y\"\n{ALL_TRAIN}{dataset}");
        build_with(&root, &dataset, 2).await.unwrap()
    };
    let found = report("").await;
    check_warning(
        &found,
        "mixed_types",
        "contract.column",
        &[
            "`day` (timestamps in `a`, such as `2026-01-01T00:00:00Z`; text in `b`, such as `2026-01-01`), `code` (integers in `a`, such \
             as `0`; text in `b`, such as `00`);",
            "`contract.column.\"day\".type = \"text\"` of source `a`",
        ],
    );
    let unused = "drop = [\"day\", \"code\"]\ndedup_ignore = [\"day\", \"code\"]\n";
    check_none(&report(unused).await, "mixed_types");
}
