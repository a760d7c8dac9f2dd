use std::collections::BTreeMap;

use feedline_schemas::{
    manifest::Split,
    profile::{DatasetProfile, MissingCells, NumericCells, OutsideCells},
    record::ColumnType::{Float64, Int64, Utf8},
};
use feedline_storage::Store;
use serde_json::{Value, json};

use super::*;
use crate::{
    read_manifest, read_profile,
    testing::{Cells, LandingZone, build_with, contents, written},
    verify,
};

const DATASET: &str = "sources = [\"a\"]\ntarget = \"price\"\ndrop = [\"id\"]\nprofile = true\n";

/// Row `i`: every ninth size is missing, one in fifty is infinite, kinds are seldom `z`.
fn row(i: u64) -> Cells {
    let size = match i {
        _ if i.is_multiple_of(9) => Value::Null,
        _ => json!(((i * 7919) % 1000) as f64 / 3.0),
    };
    let kind = match i % 10 {
        0 => Value::Null,
        1..=5 => json!("x"),
        6..=8 => json!("y"),
        _ => json!("z"),
    };
    vec![json!(i), size, json!(5), kind, json!(i as f64)]
}

async fn market() -> Store {
    let root = Store::memory();
    let columns = [
        ("id", Int64),
        ("size", Float64),
        ("same", Int64),
        ("kind", Utf8),
        ("price", Float64),
    ];
    let mut zone = LandingZone::new(&root, "a", &columns);
    let rows: Vec<Cells> = (0..1200).map(row).collect();
    for part in rows.chunks(400) {
        zone.batch(part).await;
    }
    root
}

async fn profile_of(root: &Store) -> DatasetProfile {
    let dataset = root.child("dataset");
    let manifest = read_manifest(&dataset).await.unwrap();
    read_profile(&dataset, &manifest).await.unwrap().unwrap()
}

/// The 20-quantile `i`, as numpy does by default.
fn quantile(sorted: &[f64], i: usize) -> f64 {
    let at = i * (sorted.len() - 1);
    let (low, part) = (at / 20, at % 20);
    let high = sorted[(low + 1).min(sorted.len() - 1)];
    sorted[low] + (high - sorted[low]) * (part as f64 / 20.0)
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_are_those_of_the_rows_of_each_split() {
    let root = market().await;
    build_with(&root, DATASET, 2).await.unwrap();
    let found = profile_of(&root).await;
    let mut sizes: BTreeMap<Split, Vec<Option<f64>>> = BTreeMap::new();
    let mut kinds: BTreeMap<Split, BTreeMap<Option<String>, u64>> = BTreeMap::new();
    for written in written(&root.child("dataset")).await {
        let at = written.origin.sequence().get() * 400 + written.origin.row();
        let cells = row(at);
        sizes
            .entry(written.split)
            .or_default()
            .push(cells[1].as_f64());
        let kind = cells[3].as_str().map(str::to_owned);
        *kinds
            .entry(written.split)
            .or_default()
            .entry(kind)
            .or_default() += 1;
    }
    let names: Vec<_> = found
        .numeric
        .iter()
        .map(|c| (c.name.as_str(), c.target))
        .collect();
    assert_eq!(names, [("size", false), ("same", false), ("price", true)]);
    let size = &found.numeric[0];
    let mut train: Vec<f64> = sizes[&Split::Train].iter().flatten().copied().collect();
    train.sort_by(f64::total_cmp);
    let edges: Vec<f64> = (1..20).map(|i| quantile(&train, i)).collect();
    assert!(
        size.edges
            .iter()
            .zip(&edges)
            .all(|(a, b)| (a - b).abs() < 1e-9),
        "{edges:?}"
    );
    for cells in &size.splits {
        let values = &sizes[&cells.split];
        let there: Vec<f64> = values.iter().flatten().copied().collect();
        assert_eq!(cells.cells(), values.len() as u64);
        assert_eq!(cells.finite, there.len() as u64);
        let bin = |i: usize| {
            let above = |x: &&f64| i == 0 || **x > size.edges[i - 1];
            let below = |x: &&f64| i == size.edges.len() || **x <= size.edges[i];
            there.iter().filter(above).filter(below).count() as u64
        };
        assert_eq!(cells.bins, (0..20).map(bin).collect::<Vec<_>>());
        assert_eq!(cells.histogram.iter().sum::<u64>(), cells.finite);
    }
    let kind = &found.categorical[0];
    assert_eq!(kind.values, ["x", "y", "z"]);
    for cells in &kind.splits {
        let of = |value: &str| kinds[&cells.split][&Some(value.to_owned())];
        assert_eq!(cells.counts, [of("x"), of("y"), of("z")]);
        assert_eq!(
            (cells.missing, cells.other),
            (kinds[&cells.split][&None], 0)
        );
        assert_eq!(cells.distinct, 3);
    }
    let after = size.after.as_ref().unwrap();
    assert_eq!(
        (after.counts.iter().sum::<u64>(), after.missing),
        (sizes[&Split::Train].len() as u64, 0)
    );
    assert!(
        after.range[0] < 0.0 && after.range[1] > 0.0,
        "it is standardized"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn any_number_of_partitions_gives_the_same_profile_and_no_profile_changes_nothing() {
    let mut found = Vec::new();
    for partitions in [1, 2, 8] {
        let root = market().await;
        build_with(&root, DATASET, partitions).await.unwrap();
        found.push(contents(&root.child("dataset")).await);
    }
    assert!(found[0].keys().any(|path| path.starts_with("profile-")));
    assert!(found.iter().all(|f| *f == found[0]));
    let root = market().await;
    build_with(&root, &DATASET.replace("profile = true", ""), 2)
        .await
        .unwrap();
    let plain = contents(&root.child("dataset")).await;
    assert!(
        !plain
            .keys()
            .any(|path| path.starts_with("profile-") || path.starts_with("report-"))
    );
    let manifest = String::from_utf8(plain["manifest-000001.json"].to_vec()).unwrap();
    assert!(!manifest.contains("profile"), "{manifest}");
    let others = plain
        .keys()
        .filter(|path| path.contains('/') || path.starts_with("transform"));
    assert!(others.into_iter().all(|path| plain[path] == found[0][path]));
}

#[tokio::test]
async fn constant_and_empty_columns_have_few_bins_and_no_range() {
    let root = Store::memory();
    let columns = [("a", Float64), ("b", Float64), ("c", Float64)];
    let rows: Vec<Cells> = (0..40)
        .map(|i| vec![json!(i), json!(5.5), Value::Null])
        .collect();
    LandingZone::new(&root, "a", &columns).batch(&rows).await;
    let steps = "step = [{ type = \"impute\", strategy = \"constant\", value = 0.0 }]\n";
    let split = "split = { train = 1.0, validation = 0.0, test = 0.0 }\n";
    let dataset = format!("sources = [\"a\"]\nprofile = true\n{split}{steps}");
    build_with(&root, &dataset, 2).await.unwrap();
    let found = profile_of(&root).await;
    let [_, same, empty] = &found.numeric[..] else {
        panic!("{found:?}")
    };
    assert_eq!(format!("{:?}", same.edges), "[5.5]");
    assert_eq!(same.splits[0].bins, [40, 0]);
    assert_eq!(same.splits[0].histogram, [0, 40, 0]);
    assert_eq!((empty.edges.len(), empty.range), (0, None));
    assert_eq!((empty.splits[0].missing, empty.splits[0].mean), (40, None));
    assert_eq!(empty.splits[1].cells(), 0, "a split without rows");
}

#[tokio::test]
async fn a_damaged_profile_is_found_and_built_again() {
    let root = market().await;
    build_with(&root, DATASET, 2).await.unwrap();
    let dataset = root.child("dataset");
    assert!(build_with(&root, DATASET, 2).await.unwrap().up_to_date);
    let manifest = read_manifest(&dataset).await.unwrap();
    let path = manifest.profile.unwrap().path;
    let text = String::from_utf8(dataset.get(&path).await.unwrap().to_vec()).unwrap();
    dataset
        .put(&path, text.replace("\"size\"", "\"sise\"").into())
        .await
        .unwrap();
    let problems = verify(&dataset).await.unwrap().problems;
    assert!(problems[0].contains("the manifest says"), "{problems:?}");
    assert!(!build_with(&root, DATASET, 2).await.unwrap().up_to_date);
    assert_eq!(
        verify(&dataset).await.unwrap().problems,
        Vec::<String>::new()
    );
}

/// A profile with one column of numbers in these bins.
fn profile_with(train: &[u64], test: &[u64]) -> DatasetProfile {
    let cells = |split: Split, bins: &[u64]| NumericCells {
        split,
        finite: bins.iter().sum(),
        missing: 0,
        low_infinite: 0,
        high_infinite: 0,
        min: None,
        max: None,
        mean: None,
        deviation: None,
        bins: bins.to_vec(),
        histogram: Vec::new(),
        outside: None,
    };
    let column = NumericProfile {
        name: "a".into(),
        target: false,
        edges: vec![1.0],
        range: None,
        splits: vec![cells(Split::Train, train), cells(Split::Test, test)],
        after: None,
    };
    DatasetProfile {
        format: PROFILE.format.to_owned(),
        version: PROFILE.version,
        hash: Hash128::new(0),
        numeric: vec![column],
        categorical: Vec::new(),
        missing: Vec::new(),
    }
}

#[test]
fn drift_between_splits_is_told_by_column_and_split() {
    let found = drift::of_splits(&profile_with(&[500, 500], &[900, 100]));
    assert_eq!(
        (found[0].column.as_str(), found[0].with.as_str()),
        ("a", "test")
    );
    assert_eq!(found[0].drift.shift(), drift::Shift::Strong);
    assert!(drift::of_splits(&profile_with(&[5, 5], &[0, 0])).is_empty());
}

/// 400 rows, the first half for training: numbers from 0 to 99, and every second one of the test split far above.
async fn shifted(steps: &str) -> (DatasetProfile, String) {
    let root = Store::memory();
    let rows: Vec<Cells> = (0..400)
        .map(|i| {
            let is_far = i >= 300 && i % 2 == 0;
            vec![json!(i), json!(if is_far { 1000 + i } else { i % 100 })]
        })
        .collect();
    let mut zone = LandingZone::new(&root, "a", &[("id", Int64), ("size", Float64)]);
    zone.batch(&rows).await;
    let split = "split = { by = \"range\", train = 0.5, validation = 0.25, test = 0.25 }\n";
    let dataset = format!("sources = [\"a\"]\ndrop = [\"id\"]\nprofile = true\n{split}{steps}");
    build_with(&root, &dataset, 2).await.unwrap();
    let dataset = root.child("dataset");
    let manifest = read_manifest(&dataset).await.unwrap();
    let path = crate::dataset_report::path_of(manifest.fingerprint);
    let page = dataset.get(&path).await.unwrap().to_vec();
    (profile_of(&root).await, String::from_utf8(page).unwrap())
}

#[tokio::test]
async fn trap_42_cells_outside_of_the_caps_are_counted_in_each_split_and_far_more_are_told() {
    let (found, page) = shifted("").await;
    let outside: Vec<_> = found.numeric[0].splits.iter().map(|s| s.outside).collect();
    let cells = |below, above| Some(OutsideCells { below, above });
    assert_eq!(outside, [cells(2, 2), cells(1, 1), cells(0, 51)]);
    let far = outside::far(&found);
    let told: Vec<_> = far.iter().map(|f| (f.column.as_str(), f.split)).collect();
    assert_eq!(told, [("size", Split::Test)]);
    assert!(
        page.contains("is outside in test than in train: 51.00 %, not 2.00 %"),
        "{page}"
    );
    assert!(page.contains("<td class=\"number\">51.00 %</td>"), "{page}");
}

#[tokio::test]
async fn trap_42_without_caps_cells_outside_of_the_training_range_are_counted() {
    let (found, _) = shifted("step = [{ type = \"standardize\" }]\n").await;
    let outside: Vec<_> = found.numeric[0].splits.iter().map(|s| s.outside).collect();
    let cells = |below, above| Some(OutsideCells { below, above });
    assert_eq!(outside, [None, None, cells(0, 50)]);
    assert_eq!(outside::far(&found).len(), 1);
    let text = serde_json::to_string(&found.numeric[0].splits[0]).unwrap();
    assert!(!text.contains("outside"), "{text}");
    let back: NumericCells = serde_json::from_str(&text).unwrap();
    assert_eq!(back.outside, None);
}

#[tokio::test]
async fn trap_06_missing_cells_are_told_apart_as_they_landed() {
    let root = Store::memory();
    let columns = [("id", Int64), ("size", Utf8), ("kind", Utf8)];
    let mut zone = LandingZone::new(&root, "a", &columns);
    let sizes = [
        json!(null),
        json!("NaN"),
        json!(""),
        json!("N/A"),
        json!("-1"),
        json!("big"),
        json!("7"),
    ];
    let row = |i: usize| {
        let kind = ["x", " ", "N/A", "NaN"][i % 4];
        vec![json!(i), sizes[i % 7].clone(), json!(kind)]
    };
    zone.batch(&(0..140).map(row).collect::<Vec<_>>()).await;
    // Without `kind`, and with a column that comes later.
    zone.evolve(&[("id", Int64), ("size", Utf8), ("late", Float64)]);
    let later = |i: usize| vec![json!(i), json!("7"), json!(i)];
    zone.batch(&(140..150).map(later).collect::<Vec<_>>()).await;
    let steps = "step = [{ type = \"impute\", columns = [\"size\", \"late\"] }, { type = \"categories\", columns = [\"kind\"] }]\n";
    let declared = "null_values = [\"N/A\"]\nmissing_values = [-1]\nprofile = true\n";
    let all = "split = { train = 1.0, validation = 0.0, test = 0.0 }\n";
    let dataset = format!("sources = [\"a\"]\ndrop = [\"id\"]\n{declared}{all}{steps}");
    build_with(&root, &dataset, 2).await.unwrap();
    let found = profile_of(&root).await;
    let cells = |name: &str, [null, nan, empty, declared, no_number]: [u64; 5]| MissingCells {
        name: name.into(),
        null,
        nan,
        empty,
        declared,
        no_number,
    };
    let expected = [
        cells("size", [20, 20, 20, 40, 20]),
        cells("late", [140, 0, 0, 0, 0]),
        cells("kind", [10, 0, 35, 35, 0]),
    ];
    assert_eq!(found.missing, expected);
    let typed = found.numeric.iter().map(|column| column.splits[0].missing);
    assert_eq!(typed.collect::<Vec<_>>(), [120, 140]);
    assert_eq!(found.categorical[0].splits[0].missing, 80);
    let text = serde_json::to_string(&found.missing[1]).unwrap();
    assert_eq!(text, r#"{"name":"late","null":140}"#);
    let manifest = read_manifest(&root.child("dataset")).await.unwrap();
    let path = crate::dataset_report::path_of(manifest.fingerprint);
    let page = root.child("dataset").get(&path).await.unwrap().to_vec();
    let page = String::from_utf8(page).unwrap();
    assert!(page.contains("What missing cells were"), "{page}");
}
