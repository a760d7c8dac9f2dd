//! Leaks between splits, and of the target into a feature: found, prevented or reported with
//! figures.
#![expect(
    clippy::cast_precision_loss,
    reason = "counts and numbers of tests are small"
)]

use std::collections::{BTreeMap, HashMap};

use feedline_schemas::{
    manifest::Split,
    record::ColumnType::{self, Float64, Int64, Utf8},
    report::{DatasetReport, Warning},
    transform::{FittedStep, FoldBy},
};
use feedline_storage::Store;
use serde_json::{Value, json};

use crate::{
    read_manifest, read_transform,
    testing::{Cells, LandingZone, Written, build_with, written},
};

/// A number from -0.5 to 0.5 that follows from two others.
fn noise(seed: u64, at: u64) -> f64 {
    let mut state = ((seed << 32) | at)
        .wrapping_add(1)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for _ in 0..3 {
        state ^= state >> 29;
        state = state.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    }
    (state >> 11) as f64 / (1_u64 << 53) as f64 - 0.5
}

async fn zone(root: &Store, source: &str, columns: &[(&str, ColumnType)], rows: &[Cells]) {
    LandingZone::new(root, source, columns).batch(rows).await;
}

async fn landed(columns: &[(&str, ColumnType)], rows: &[Cells]) -> Store {
    let root = Store::memory();
    zone(&root, "a", columns, rows).await;
    root
}

/// Builds source `a`; any number of partitions gives the same warnings.
async fn report_of(root: &Store, dataset: &str) -> DatasetReport {
    let dataset = format!("sources = [\"a\"]\n{dataset}");
    let report = build_with(root, &dataset, 1).await.unwrap();
    let manifest = read_manifest(&root.child("dataset")).await.unwrap();
    assert_eq!(manifest.warnings, report.warnings);
    let again = build_with(root, &dataset, 4).await.unwrap();
    assert!(again.up_to_date);
    report
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

/// The share of the variance of `rows` that the line through `of` explains: features are the first `width` numbers of a row.
fn r2(rows: &[Written], targets: &HashMap<u64, f64>, width: usize) -> f64 {
    let of = |split: Split| {
        let rows = rows.iter().filter(move |row| row.split == split);
        rows.map(|row| {
            let mut x: Vec<f64> = row.x[..width].iter().map(|x| f64::from(*x)).collect();
            x.push(1.0);
            (x, targets[&row.origin.packed()])
        })
        .collect::<Vec<_>>()
    };
    let (train, test) = (of(Split::Train), of(Split::Test));
    let size = width + 1;
    // The normal equations, solved by elimination.
    let mut equations = vec![vec![0.0; size + 1]; size];
    for (x, y) in &train {
        for (at, equation) in equations.iter_mut().enumerate() {
            (0..size).for_each(|other| equation[other] += x[at] * x[other]);
            equation[size] += x[at] * y;
        }
    }
    for at in 0..size {
        let base = equations[at].clone();
        for (other, equation) in equations.iter_mut().enumerate() {
            if other != at {
                let share = equation[at] / base[at];
                equation
                    .iter_mut()
                    .zip(&base)
                    .for_each(|(e, b)| *e -= share * b);
            }
        }
    }
    let factors: Vec<f64> = (0..size)
        .map(|at| equations[at][size] / equations[at][at])
        .collect();
    let mean = test.iter().map(|(_, y)| y).sum::<f64>() / test.len() as f64;
    let error = |(x, y): &(Vec<f64>, f64)| {
        let predicted: f64 = x.iter().zip(&factors).map(|(x, factor)| x * factor).sum();
        (y - predicted).powi(2)
    };
    let errors: f64 = test.iter().map(error).sum();
    1.0 - errors / test.iter().map(|(_, y)| (y - mean).powi(2)).sum::<f64>()
}

/// Rows of customers, eight each, whose target is half a feature and half the customer; two customers live in a city.
fn customers() -> (Vec<Cells>, HashMap<u64, f64>) {
    let mut targets = HashMap::new();
    let rows = (0..4000_u64).map(|row| {
        let customer = row / 8;
        let x = noise(1, row);
        let y = x + 1.2 * noise(2, customer) + 0.5 * noise(3, row);
        targets.insert(row, y);
        let city = format!("city {}", customer / 2);
        vec![
            json!(x),
            json!(city),
            json!(format!("c{customer}")),
            json!(y),
        ]
    });
    let rows = rows.collect();
    (rows, targets)
}

const CUSTOMERS: [(&str, ColumnType); 4] = [
    ("x", Float64),
    ("city", Utf8),
    ("customer", Utf8),
    ("y", Float64),
];
const OF_TARGET: &str = "target = \"y\"\nsplit = { key = [\"customer\"], train = 0.6, validation = 0.2, test = 0.2 }\n\
    step = [{ type = \"categories\", encoding = \"target\", columns = [\"city\"], max_values = 1000, smoothing = 1.0 }]\n";

#[expect(clippy::cast_possible_truncation, reason = "a small number")]
const fn integer(value: f64) -> i64 {
    value as i64
}

#[tokio::test]
async fn target_encoding_is_out_of_fold_by_the_key_of_the_split() {
    let (rows, targets) = customers();
    let root = landed(&CUSTOMERS, &rows).await;
    report_of(&root, OF_TARGET).await;
    let dataset = root.child("dataset");
    let manifest = read_manifest(&dataset).await.unwrap();
    let artefact = read_transform(&dataset, &manifest).await.unwrap();
    let rows = written(&dataset).await;
    let (with, without) = (r2(&rows, &targets, 2), r2(&rows, &targets, 1));
    eprintln!("test r2 with the city {with:.3}, without {without:.3}");
    let outcomes = artefact.steps.iter().find_map(|step| match step {
        FittedStep::Categories { columns } => columns[0].outcomes.as_ref(),
        _ => None,
    });
    assert_eq!(outcomes.unwrap().fold_by, FoldBy::Group);
    // Rows of a customer are in one fold, so they get one number.
    let mut of_customer: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
    for row in &rows {
        let numbers = of_customer.entry(row.origin.packed() / 8).or_default();
        numbers.push(row.x[1].to_bits());
        numbers.dedup();
    }
    assert!(of_customer.values().all(|numbers| numbers.len() == 1));
    assert!(with > without - 0.03, "{with} {without}");
}

#[tokio::test]
async fn target_encoding_is_out_of_fold_by_the_clusters_that_share_a_split() {
    let columns = [
        ("x", Float64),
        ("city", Utf8),
        ("text", Utf8),
        ("y", Float64),
    ];
    // Texts of 30 words: three rows each differ in one.
    let row = |row: u64| {
        let cluster = row / 3;
        let words = (0..30_u64).map(|word| match word {
            7 => format!("own{row}"),
            word => format!("w{cluster}x{word}"),
        });
        let text = words.collect::<Vec<_>>().join(" ");
        vec![
            json!(noise(5, row)),
            json!(format!("c{}", cluster % 10)),
            json!(text),
            json!(noise(6, cluster)),
        ]
    };
    let root = landed(&columns, &(0..600).map(row).collect::<Vec<_>>()).await;
    let config = "target = \"y\"\ndrop = [\"text\"]\nnear_dup = { column = \"text\", keep = \"all\", ngram = 1 }\n\
        step = [{ type = \"categories\", encoding = \"target\", columns = [\"city\"] }]\n";
    let report = report_of(&root, config).await;
    assert_eq!(
        report.near_dup.map(|near| near.clusters),
        Some(200),
        "{report:?}"
    );
    let mut of_cluster: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
    for row in written(&root.child("dataset")).await {
        let numbers = of_cluster.entry(row.origin.packed() / 3).or_default();
        numbers.push(row.x[1].to_bits());
    }
    of_cluster.values_mut().for_each(Vec::dedup);
    assert!(of_cluster.values().all(|numbers| numbers.len() == 1));
}

#[tokio::test]
async fn target_encoding_without_a_key_is_out_of_fold_by_row() {
    let (rows, _) = customers();
    let root = landed(&CUSTOMERS, &rows).await;
    let config = OF_TARGET.replace("key = [\"customer\"], ", "") + "drop = [\"customer\"]\n";
    report_of(&root, &config).await;
    let dataset = root.child("dataset");
    let manifest = read_manifest(&dataset).await.unwrap();
    let bytes = dataset.get(&manifest.transform.path).await.unwrap();
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    assert!(!text.contains("fold_by"), "an artefact by row is as it was");
}

const NUMBERS: [(&str, ColumnType); 5] = [
    ("id", Int64),
    ("a", Float64),
    ("b", Float64),
    ("kind", Utf8),
    ("y", Float64),
];

/// `count` random rows, each `times` with another id.
fn copies(count: u64, times: u64) -> Vec<Cells> {
    let row = |id: u64| {
        let of = id % count;
        let [a, b, y] = [11, 12, 13].map(|seed| json!(noise(seed, of)));
        vec![json!(id), a, b, json!(format!("k{}", of % 4)), y]
    };
    (0..count * times).map(row).collect()
}

#[tokio::test]
async fn copies_under_another_id_are_counted_and_the_key_that_drops_them_is_named() {
    let root = landed(&NUMBERS, &copies(600, 5)).await;
    let report = report_of(&root, "target = \"y\"\ndrop = [\"id\"]\n").await;
    assert_eq!(
        (
            report.duplicates,
            report.train + report.validation + report.test
        ),
        (0, 3000)
    );
    let rows = written(&root.child("dataset")).await;
    let of = |row: &Written| row.origin.packed() % 600;
    let train = rows.iter().filter(|row| row.split == Split::Train);
    let train: std::collections::BTreeSet<u64> = train.map(of).collect();
    let test = rows
        .iter()
        .filter(|row| row.split == Split::Test && train.contains(&of(row)));
    let test = test.count();
    assert!(test as u64 * 10 > report.test * 9, "{test}");
    check_warning(
        &report,
        "equal_rows",
        "dataset.dedup_ignore",
        &[
            &format!("{test} of {} test rows", report.test),
            "equal a training row in every feature, as they landed, and in the target",
            "`dataset.dedup_ignore = [\"id\"]`",
            "where they are different observations, nothing is wrong",
        ],
    );
    let remedy = "target = \"y\"\ndrop = [\"id\"]\ndedup_ignore = [\"id\"]\n";
    let report = report_of(&root, remedy).await;
    assert_eq!(
        (
            report.duplicates,
            report.train + report.validation + report.test
        ),
        (2400, 600)
    );
    check_none(&report, "equal_rows");
}

#[tokio::test]
async fn copies_are_seen_whatever_folds_and_ways_to_stage_make_of_their_numbers() {
    let root = landed(&NUMBERS, &copies(300, 3)).await;
    let encoded =
        "step = [{ type = \"categories\", encoding = \"target\", columns = [\"kind\"] }]\n";
    for (keys, columns) in [
        (format!("drop = [\"id\"]\n{encoded}"), "`id`"),
        ("passthrough = [\"id\"]\n".to_owned(), "`id`"),
        ("split = { key = [\"id\"] }\n".to_owned(), "`id`"),
        (
            "drop = [\"id\"]\nshards = { shuffle = false }\n".to_owned(),
            "`id`",
        ),
        (
            "drop = [\"id\"]\ndedup = \"none\"\n".to_owned(),
            "and `dataset.dedup = \"exact\"`",
        ),
    ] {
        let report = report_of(&root, &format!("target = \"y\"\n{keys}")).await;
        check_warning(&report, "equal_rows", "dataset.dedup_ignore", &[columns]);
    }
}

#[tokio::test]
async fn rows_that_only_steps_make_equal_are_no_copies() {
    let columns = [
        ("id", Int64),
        ("a", Float64),
        ("kind", Utf8),
        ("y", Float64),
    ];
    let row = |i: u64| {
        let kind = json!(format!("k{i}"));
        vec![json!(i), json!(noise(24, i)), kind, json!(i % 2)]
    };
    let rows: Vec<Cells> = (0..2000).map(row).collect();
    let root = landed(&columns, &rows).await;
    // Four of five cells are beyond the caps, and all categories but one are unknown.
    let capped =
        "step = [{ type = \"winsorize\", lower = 0.4, upper = 0.6 }]\ndrop = [\"id\", \"kind\"]\n";
    let unknown = "step = [{ type = \"categories\", max_values = 1 }]\nfeatures = [\"kind\"]\n";
    for steps in [capped, unknown] {
        for staged in ["", "shards = { shuffle = false }\n"] {
            let dataset = format!("target = \"y\"\n{staged}{steps}");
            check_none(&report_of(&root, &dataset).await, "equal_rows");
        }
    }
}

#[tokio::test]
async fn rows_that_no_column_tells_apart_but_features_are_no_copies() {
    // Few values in few columns: equal rows are dropped where no column makes them different.
    let row = |i: u64| {
        vec![
            json!(i),
            json!(noise(21, i)),
            json!(noise(22, i)),
            json!("k"),
            json!(noise(23, i)),
        ]
    };
    let rows: Vec<Cells> = (0..500).map(row).collect();
    let root = landed(&NUMBERS, &rows).await;
    let report = report_of(&root, "target = \"y\"\ndrop = [\"id\"]\n").await;
    check_none(&report, "equal_rows");
}

#[tokio::test]
async fn rows_that_differ_in_the_word_for_a_missing_value_are_equal_rows_and_no_duplicates() {
    let columns = [("a", Float64), ("kind", Utf8), ("y", Float64)];
    let row = |i: u64, word: &str| {
        let kind = match i % 2 {
            0 => format!("k{}", i % 4),
            _ => word.to_owned(),
        };
        vec![json!(noise(71, i)), json!(kind), json!(i % 3)]
    };
    let words = ["-", "n/a"];
    let rows = words.iter().flat_map(|word| (0..600).map(|i| row(i, word)));
    let root = landed(&columns, &rows.collect::<Vec<_>>()).await;
    let dataset = "target = \"y\"\nnull_values = [\"-\", \"n/a\"]\n";
    let report = report_of(&root, dataset).await;
    assert_eq!((report.rows_in, report.duplicates), (1200, 300));
    check_warning(
        &report,
        "equal_rows",
        "dataset.split.key",
        &[
            "equal a training row in every feature, as it is read, and in the target",
            "`csv.null_values`",
        ],
    );
    // As text the words are two categories.
    check_none(&report_of(&root, "target = \"y\"\n").await, "equal_rows");
}

const PATIENTS: [(&str, ColumnType); 4] = [
    ("x", Float64),
    ("patient", Utf8),
    ("t", Int64),
    ("y", Float64),
];

/// Rows of patients, six each, about 30 % without their patient.
fn patients(count: u64) -> (Vec<Cells>, u64) {
    let has_none = |i: u64| noise(31, i) < -0.2;
    let row = |i: u64| {
        let patient = match has_none(i) {
            true => [Value::Null, json!(""), json!("n/a")][(i % 3) as usize].clone(),
            false => json!(format!("p{}", i % (count / 6))),
        };
        vec![json!(noise(32, i)), patient, json!(i), json!(noise(33, i))]
    };
    let without = (0..count).filter(|i| has_none(*i)).count() as u64;
    ((0..count).map(row).collect(), without)
}

#[tokio::test]
async fn rows_without_a_key_are_groups_of_their_own_and_counted() {
    let (rows, without) = patients(6000);
    let root = landed(&PATIENTS, &rows).await;
    let keyed = |more: &str| {
        format!(
            "target = \"y\"\ndrop = [\"t\"]\nnull_values = [\"n/a\"]\nsplit = {{ key = [\"patient\"]{more} }}\n"
        )
    };
    let report = report_of(&root, &keyed("")).await;
    let share = |report: &DatasetReport, rows: u64| {
        rows as f64 / (report.train + report.validation + report.test) as f64
    };
    for (rows, expected) in [
        (report.train, 0.8),
        (report.validation, 0.1),
        (report.test, 0.1),
    ] {
        assert!((share(&report, rows) - expected).abs() < 0.03, "{report:?}");
    }
    check_warning(
        &report,
        "missing_keys",
        "dataset.split.missing_key",
        &[
            &format!("{without} of 6000 rows"),
            "have no value in `patient`",
            "each is a group of its own",
            "`dataset.split.missing_key = \"one\"`",
            "`\"reject\"`",
            "say that this is meant with `\"own\"`",
        ],
    );
    let rejecting = format!(
        "max_reject_fraction = 0.5\n{}",
        keyed(", missing_key = \"reject\"")
    );
    let report = report_of(&root, &rejecting).await;
    assert_eq!(
        report.rejected_by_reason,
        BTreeMap::from([("missing_key".to_owned(), without)])
    );
    // A written value is a decision, whatever it is.
    check_none(&report, "missing_keys");
    for missing in ["own", "one"] {
        let report = report_of(&root, &keyed(&format!(", missing_key = \"{missing}\""))).await;
        check_none(&report, "missing_keys");
    }
}

#[tokio::test]
async fn appended_rows_without_a_key_are_counted_beside_those_before() {
    let root = Store::memory();
    let mut zone = LandingZone::new(&root, "a", &PATIENTS);
    let (rows, before) = patients(600);
    zone.batch(&rows).await;
    let dataset = "sources = [\"a\"]\ntarget = \"y\"\ndrop = [\"t\"]\nnull_values = [\"n/a\"]\nsplit = { key = [\"patient\"] }\n";
    build_with(&root, dataset, 2).await.unwrap();
    let new = |i: u64| vec![json!(noise(35, i)), Value::Null, json!(i), json!(0.5)];
    zone.batch(&(0..25).map(new).collect::<Vec<_>>()).await;
    let report = build_with(&root, dataset, 2).await.unwrap();
    assert!(report.added.is_some(), "{report:?}");
    check_warning(
        &report,
        "missing_keys",
        "dataset.split.missing_key",
        &[
            &format!("{before} of 600 rows"),
            "in the rows appended last: 25 of 25 rows",
        ],
    );
}

#[tokio::test]
async fn a_group_without_a_key_straddles_no_border_in_time() {
    let (rows, without) = patients(4000);
    let root = landed(&PATIENTS, &rows).await;
    let dataset = "target = \"y\"\nnull_values = [\"n/a\"]\nsplit = { by = \"time\", time = \"t\", key = [\"patient\"] }\n";
    let report = report_of(&root, dataset).await;
    let straddling = report.filtered.get("group_straddles").copied().unwrap_or(0);
    let kept = report.train + report.validation + report.test;
    assert_eq!(kept + straddling, 4000);
    // Each patient has rows in all splits, and those of the last split stay; rows without one all stay.
    assert!(kept > without && straddling <= 4000 - without, "{report:?}");
    check_warning(
        &report,
        "missing_keys",
        "dataset.split.missing_key",
        &[&format!("{without} of {kept} rows")],
    );
}

#[tokio::test]
async fn a_frozen_row_without_a_key_takes_no_other_row_out() {
    let root = Store::memory();
    let (rows, without) = patients(600);
    zone(&root, "a", &PATIENTS, &rows).await;
    let frozen =
        (0..40_u64).map(|i| vec![json!(9.0 + noise(34, i)), Value::Null, json!(i), json!(0.5)]);
    zone(&root, "b", &PATIENTS, &frozen.collect::<Vec<_>>()).await;
    let dataset = "sources = [\"a\"]\ntarget = \"y\"\nnull_values = [\"n/a\"]\n\
        split = { key = [\"patient\"], frozen = \"b\", train = 0.8, validation = 0.2, test = 0.0 }\n";
    let report = build_with(&root, dataset, 2).await.unwrap();
    assert_eq!(
        (report.train + report.validation, report.test),
        (600, 40),
        "{report:?}"
    );
    check_warning(
        &report,
        "missing_keys",
        "dataset.split.missing_key",
        &[&format!("{} of 640 rows", without + 40)],
    );
}

#[tokio::test]
async fn a_key_of_several_columns_holds_rows_together_by_those_that_are_known() {
    let columns = [("x", Float64), ("site", Utf8), ("patient", Int64)];
    let row = |i: u64| {
        let patient = if i.is_multiple_of(2) {
            Value::Null
        } else {
            json!(i % 40)
        };
        let site = if i.is_multiple_of(10) {
            Value::Null
        } else {
            json!(format!("s{}", i % 7))
        };
        vec![json!(noise(41, i)), site, patient]
    };
    let root = landed(&columns, &(0..2000).map(row).collect::<Vec<_>>()).await;
    let report = report_of(&root, "split = { key = [\"site\", \"patient\"] }\n").await;
    check_warning(
        &report,
        "missing_keys",
        "dataset.split.missing_key",
        &["200 of 2000 rows (10.0 %)"],
    );
    check_warning(
        &report,
        "keys_incomplete",
        "dataset.split.key",
        &["800 of 2000 landed rows (40.0 %) have a value in some of the columns `site`, `patient`"],
    );
    let split_of: HashMap<u64, Split> = written(&root.child("dataset"))
        .await
        .into_iter()
        .map(|row| (row.origin.packed(), row.split))
        .collect();
    for i in (0..2000_u64).filter(|i| i % 2 == 0 && i % 10 != 0) {
        let first = (0..2000)
            .find(|j| j % 2 == 0 && j % 10 != 0 && j % 7 == i % 7)
            .unwrap();
        assert_eq!(split_of[&i], split_of[&first], "{i}");
    }
}

const DEVICES: [(&str, ColumnType); 3] = [("t", Int64), ("device", Utf8), ("v", Float64)];

#[tokio::test]
async fn a_reading_without_an_entity_is_rejected_and_in_no_series() {
    // Two devices whose id is missing, at the levels 100 and 200, and one that has an id.
    let readings = (0..300_u64).flat_map(|t| {
        let level = |level: f64, seed: u64| json!(level + noise(seed, t));
        [
            vec![json!(t), json!("known"), level(0.0, 51)],
            vec![json!(t), Value::Null, level(100.0, 52)],
            vec![json!(t), json!(" "), level(200.0, 53)],
        ]
    });
    let root = landed(&DEVICES, &readings.collect::<Vec<_>>()).await;
    let dataset = "max_reject_fraction = 1.0\nsplit = { by = \"time\", time = \"t\", embargo = 5 }\n\
        series = { time = \"t\", unit = \"us\", entity = [\"device\"] }\n\
        feature = [{ name = \"before\", type = \"lag\", column = \"v\", rows = 1 }]\n";
    let report = report_of(&root, dataset).await;
    assert_eq!(
        report.rejected_by_reason,
        BTreeMap::from([("missing_entity".to_owned(), 600)])
    );
    let sample = report.reject_sample.unwrap();
    assert!(
        sample.contains("\"column\":\"device\",\"value\":\"no value\""),
        "{sample}"
    );
    let rows = written(&root.child("dataset")).await;
    assert!(rows.iter().all(|row| row.origin.packed() % 3 == 0));
    // By default so many rejects end the build.
    let limited = dataset.replace("max_reject_fraction = 1.0\n", "sources = [\"a\"]\n");
    let error = build_with(&root, &limited, 2)
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("missing_entity"), "{error}");
}

#[tokio::test]
async fn readings_of_one_instant_in_several_splits_are_no_mean_of_both() {
    let columns = [("t", Int64), ("v", Float64), ("fold", Utf8)];
    let readings = (0..200_u64).flat_map(|t| {
        let fold = if t < 150 { "train" } else { "test" };
        [
            vec![json!(t), json!(1.0 + (t % 2) as f64), json!(fold)],
            vec![json!(t), json!(3.0 + (t % 2) as f64), json!(fold)],
            vec![
                json!(t),
                json!(1000.0),
                json!(if t < 150 { "test" } else { "train" }),
            ],
        ]
    });
    let root = landed(&columns, &readings.collect::<Vec<_>>()).await;
    let dataset = "split = { by = \"column\", column = \"fold\" }\nstep = []\n\
        series = { time = \"t\", unit = \"us\", duplicates = \"mean\" }\n";
    let report = report_of(&root, dataset).await;
    assert_eq!((report.train, report.test), (150, 50));
    assert_eq!(report.filtered["same_time"], 400);
    let rows = written(&root.child("dataset")).await;
    assert!(
        rows.iter().all(|row| (2.0..=3.0).contains(&row.x[0])),
        "{:?}",
        rows[0]
    );
}

#[tokio::test]
async fn keys_and_categories_that_differ_in_spelling_only_are_warned_of() {
    let columns = [("x", Float64), ("patient", Utf8), ("town", Utf8)];
    let row = |i: u64| {
        let patient = match i % 50 {
            7 if i > 100 => "p7 ".to_owned(),
            8 if i > 100 => "P8".to_owned(),
            9 if i > 100 => "jose\u{301}".to_owned(),
            9 => "jos\u{e9}".to_owned(),
            n => format!("p{n}"),
        };
        let town = ["M\u{fc}nchen", "Mu\u{308}nchen", "Rome"][(i % 3) as usize];
        vec![json!(noise(61, i)), json!(patient), json!(town)]
    };
    let root = landed(&columns, &(0..600).map(row).collect::<Vec<_>>()).await;
    let report = report_of(&root, "split = { key = [\"patient\"] }\n").await;
    check_warning(
        &report,
        "keys_alike",
        "dataset.split.key",
        &[
            "values of column `patient` differ in blanks, letter case or Unicode form only",
            "(3 cases)",
            "`P8` and `p8`",
            "`p7` and `p7 `",
        ],
    );
    check_warning(
        &report,
        "categories_alike",
        "dataset.sql",
        &["Unicode form", "M\u{fc}nchen"],
    );
}

#[tokio::test]
async fn a_feature_that_is_the_target_in_other_words_is_named_with_its_figure() {
    let columns = [
        ("size", Float64),
        ("copy", Float64),
        ("town", Utf8),
        ("price", Float64),
    ];
    let row = |i: u64| {
        let price = 100.0 + (80.0 * noise(71, i)).round();
        vec![
            json!(noise(72, i) + 0.001 * price),
            json!(2.0 * price + 1.0),
            json!(format!("t{}", i % 5)),
            json!(price),
        ]
    };
    let root = landed(&columns, &(0..1000).map(row).collect::<Vec<_>>()).await;
    let report = report_of(&root, "target = \"price\"\n").await;
    check_warning(
        &report,
        "target_leakage",
        "dataset.drop",
        &[
            "target `price`",
            "`copy` (correlation 1.000000)",
            "`dataset.drop = [\"copy\"]`",
        ],
    );
    let report = report_of(&root, "target = \"price\"\ndrop = [\"copy\"]\n").await;
    check_none(&report, "target_leakage");
    // The other way to stage rows sees the same.
    let report = report_of(&root, "target = \"price\"\nshards = { shuffle = false }\n").await;
    check_warning(
        &report,
        "target_leakage",
        "dataset.drop",
        &["`copy` (correlation 1.000000)"],
    );
}

#[tokio::test]
async fn features_that_the_target_is_the_sum_of_are_named() {
    let columns = [
        ("hour", Int64),
        ("casual", Int64),
        ("registered", Int64),
        ("count", Int64),
    ];
    let row = |i: u64| {
        let [casual, registered] =
            [(81, 200.0), (82, 600.0)].map(|(seed, most)| (most * (noise(seed, i) + 0.5)).round());
        vec![
            json!(i % 24),
            json!(integer(casual)),
            json!(integer(registered)),
            json!(integer(casual + registered)),
        ]
    };
    let root = landed(&columns, &(0..2000).map(row).collect::<Vec<_>>()).await;
    let report = report_of(&root, "target = \"count\"\n").await;
    check_warning(
        &report,
        "target_is_sum",
        "dataset.drop",
        &[
            "1 x `casual` + 1 x `registered`",
            " training rows compared, to 0.001 of its standard deviation",
            "`dataset.drop = [\"casual\", \"registered\"]`",
        ],
    );
    let report = report_of(&root, "target = \"count\"\ndrop = [\"casual\"]\n").await;
    check_none(&report, "target_is_sum");
    check_none(&report, "target_leakage");
}

#[tokio::test]
async fn a_category_that_is_the_class_is_named() {
    let columns = [("x", Float64), ("grade", Utf8), ("status", Utf8)];
    let row = |i: u64| {
        let grade = ["A", "B", "C"][((i * i) % 7 % 3) as usize];
        vec![
            json!(noise(91, i)),
            json!(grade),
            json!(["good", "bad", "fair"][((i * i) % 7 % 3) as usize]),
        ]
    };
    let root = landed(&columns, &(0..600).map(row).collect::<Vec<_>>()).await;
    let report = report_of(&root, "target = \"status\"\ntask = \"classification\"\n").await;
    check_warning(
        &report,
        "target_leakage",
        "dataset.drop",
        &["`grade` (one class for each value in 100.00 % of the rows)"],
    );
}

#[tokio::test]
async fn a_number_that_is_missing_where_the_class_has_a_value_is_named_if_a_step_fills_it() {
    let columns = [("x", Float64), ("refund", Float64), ("label", Utf8)];
    let row = |i: u64| {
        let is_refunded = (i * i) % 7 < 3;
        vec![
            json!(noise(92, i)),
            json!(is_refunded.then(|| noise(93, i))),
            json!(if is_refunded { "yes" } else { "no" }),
        ]
    };
    let rows: Vec<Cells> = (0..600).map(row).collect();
    let dataset = "target = \"label\"\ntask = \"classification\"\n";
    for steps in [
        "",
        "step = [{ type = \"impute\", indicator = true }, { type = \"standardize\" }]\n",
    ] {
        let root = landed(&columns, &rows).await;
        let report = report_of(&root, &format!("{dataset}{steps}")).await;
        check_warning(
            &report,
            "target_leakage",
            "dataset.drop",
            &[
                "`refund` (one class where it is missing, and one where it is not, in 100.00 % of the rows)",
                "`dataset.drop = [\"refund\"]`",
            ],
        );
    }
    let root = landed(&columns, &rows).await;
    let report = report_of(&root, &format!("{dataset}drop = [\"refund\"]\n")).await;
    check_none(&report, "target_leakage");
}

const COUNTS: [(&str, ColumnType); 4] = [
    ("t", Int64),
    ("station", Utf8),
    ("n", Int64),
    ("temp", Float64),
];

async fn counts() -> Store {
    let row = |t: u64| {
        vec![
            json!(t),
            json!(format!("s{}", t % 3)),
            json!(integer(100.0 * (noise(95, t) + 0.5))),
            json!(noise(96, t)),
        ]
    };
    landed(&COUNTS, &(0..400).map(row).collect::<Vec<_>>()).await
}

#[tokio::test]
async fn a_query_that_sees_other_rows_is_said_to_be_outside_of_the_checks() {
    let root = counts().await;
    let of = |select: &str, split: &str| {
        format!("target = \"n\"\nsql = \"\"\"select {select}\"\"\"\n{split}")
    };
    let by_time = "split = { by = \"time\", time = \"t\", embargo = 30 }\n";
    for (select, split, parts) in [
        (
            "n, temp, lag(n, -1) over (order by t) as tomorrow from a",
            "",
            &["`tomorrow` by `lag(n, -1)` of rows that come later"][..],
        ),
        (
            "n, t, lead(n) over (order by t) as tomorrow from a",
            by_time,
            &["`tomorrow` by `lead(n)` of rows that come later"],
        ),
        (
            "n, temp, lag(n, 24) over (order by t desc) as later from a",
            "",
            &["`later` by `lag(n, 24)` of rows that come later"],
        ),
        (
            "n, temp, lag(n, 24) over (order by t) as day from a",
            "",
            &["`day` by `lag(n, 24)` of rows before it"],
        ),
        (
            "n, temp, avg(n) over (partition by station) as level from a",
            "",
            &["`level` by `avg(n)` of all rows"],
        ),
        (
            "n, t, avg(n) over (order by t rows between 3 preceding and 3 following) as smooth from a",
            by_time,
            &["`smooth` by `avg(n)` of rows that come later"],
        ),
        (
            "n, temp, (select avg(n) from a) as mean from a",
            "",
            &["`mean` by a subquery over the same table"],
        ),
        (
            "a.n, a.temp, s.level from a join (select station, avg(n) as level from a group by station) s on a.station = s.station",
            "",
            &["`level` by an aggregate over `a`, joined to its rows of all rows"],
        ),
        (
            "a.n, a.temp, b.n as other from a join a as b on a.t = b.t + 1",
            "",
            &["`other` by a join of `a` with itself"],
        ),
    ] {
        let report = report_of(&root, &of(select, split)).await;
        check_warning(&report, "sql_sees_other_rows", "dataset.sql", parts);
        check_warning(
            &report,
            "sql_sees_other_rows",
            "dataset.sql",
            &["no check of the splits sees", "`[[dataset.feature]]`"],
        );
    }
}

#[tokio::test]
async fn plain_queries_and_windows_that_an_embargo_keeps_apart_are_nothing_to_warn_of() {
    let root = counts().await;
    let by_time = "split = { by = \"time\", time = \"t\", embargo = 30 }\n";
    for (select, split) in [
        (
            "n, temp, temp * 2 as twice, case when n > 3 then 'x' else 'y' end as kind from a where temp > -0.4",
            "",
        ),
        (
            "station, sum(n) as n, avg(temp) as temp, t / 4 as part from a group by station, t / 4",
            "",
        ),
        (
            "n, temp from (select n, temp, row_number() over (partition by station, t order by n desc) as place from a) where place = 1",
            "",
        ),
        ("n, temp from a order by t limit 300", ""),
        ("distinct n, temp from a", ""),
        ("n, t, lag(n, 24) over (order by t) as day from a", by_time),
        (
            "n, t as t, avg(n) over (partition by station order by t rows between 9 preceding and 1 preceding) as mean from a",
            by_time,
        ),
        (
            "lead(n, 24) over (order by t) as n, temp, t from a",
            by_time,
        ),
    ] {
        let dataset = format!(
            "target = \"n\"\nsql = \"\"\"select {select}\"\"\"\nmax_reject_fraction = 0.5\n{split}"
        );
        let report = report_of(&root, &dataset).await;
        check_none(&report, "sql_sees_other_rows");
    }
}
