//! Caps and scales by group.
#![expect(clippy::float_cmp, reason = "what is promised is exact")]

use std::collections::BTreeMap;

use feedline_schemas::transform::{
    FittedCapGroups, FittedCaps, FittedScaleGroups, FittedStandardize, FittedWinsorize,
};

use super::*;

fn grouped(kind: &str, columns: &[&str], fewest: u64) -> StepConfig {
    step_with(kind, columns, json!({ "by": "g", "min_count": fewest }))
}

fn caps_of(artefact: &TransformArtefact) -> (&FittedWinsorize, &FittedCapGroups) {
    let FittedStep::Winsorize { columns } = &artefact.steps[0] else {
        panic!("{:?}", artefact.steps)
    };
    (&columns[0], columns[0].groups.as_ref().unwrap())
}

fn scales_of(step: &FittedStep) -> (&FittedStandardize, &FittedScaleGroups) {
    let FittedStep::Standardize { columns } = step else {
        panic!("{step:?}")
    };
    (&columns[0], columns[0].groups.as_ref().unwrap())
}

/// Fits a training split whose rows can be rewritten.
async fn fitted_anew(
    table: &Table<'_>,
    steps: Vec<StepConfig>,
    partitions: usize,
) -> TransformArtefact {
    let folder = tempfile::tempdir().unwrap();
    let train = split(table, partitions).in_folder(folder.path());
    fit(&train, &spec(table, steps)).await.unwrap()
}

/// Groups of very different level, a small one, and rows without any.
fn levels(rows: u32) -> (Vec<Option<f64>>, Vec<Option<String>>) {
    let values = messy(rows, 1).into_iter().zip(0..rows);
    let row = |(value, i): (Option<f64>, u32)| {
        let group = match i % 7 {
            _ if i < 3 => Some("small".to_owned()),
            0 => None,
            odd if odd % 2 == 1 => Some("high".to_owned()),
            _ => Some("low".to_owned()),
        };
        let level = if group.as_deref() == Some("high") {
            1e6
        } else {
            0.0
        };
        (value.map(|value| value + level), group)
    };
    values.map(row).unzip()
}

fn table_of(values: &[Option<f64>], groups: &[Option<String>]) -> Vec<(&'static str, ArrayRef)> {
    let groups: Vec<Option<&str>> = groups.iter().map(Option::as_deref).collect();
    vec![("a", floats(values.iter().copied())), ("g", texts(&groups))]
}

#[tokio::test]
async fn caps_of_a_group_are_those_of_its_rows_alone() {
    let (values, groups) = levels(1500);
    let table = table_of(&values, &groups);
    let artefact = fitted(
        &table,
        vec![grouped("winsorize", &["a"], 10), step("categories", &["g"])],
    )
    .await;
    let (all, by_group) = caps_of(&artefact);
    assert_eq!(by_group.caps.keys().collect::<Vec<_>>(), ["high", "low"]);
    assert_eq!((by_group.by.as_str(), by_group.min_count), ("g", 10));
    // A fit to the rows of one group alone is the reference.
    for (group, caps) in &by_group.caps {
        let own = values.iter().zip(&groups);
        let own = own
            .filter(|(_, g)| g.as_ref() == Some(group))
            .map(|(x, _)| *x);
        let own: Vec<Option<f64>> = own.collect();
        let alone = [("a", floats(own.iter().copied()))];
        let alone = fitted(&alone, vec![step("winsorize", &["a"])]).await;
        let FittedStep::Winsorize { columns } = &alone.steps[0] else {
            panic!("{:?}", alone.steps)
        };
        let expected = FittedCaps {
            rows: own.iter().flatten().count() as u64,
            low: columns[0].low,
            high: columns[0].high,
            clipped_low: columns[0].clipped_low,
            clipped_high: columns[0].clipped_high,
        };
        assert_eq!(*caps, expected, "{group}");
    }
    let whole = fitted(
        &table,
        vec![step("winsorize", &["a"]), step("categories", &["g"])],
    )
    .await;
    let FittedStep::Winsorize { columns: whole } = &whole.steps[0] else {
        panic!("{:?}", whole.steps)
    };
    assert_eq!((all.low, all.high), (whole[0].low, whole[0].high));
    let rest = values.iter().zip(&groups);
    let rest = rest.filter(|(_, g)| g.as_deref().is_none_or(|g| g == "small"));
    let rest: Vec<f64> = rest.filter_map(|(x, _)| *x).collect();
    let hits = |odd: &dyn Fn(f64) -> bool| rest.iter().filter(|x| odd(**x)).count() as u64;
    let expected = (hits(&|x| x < all.low), hits(&|x| x > all.high));
    assert_eq!((all.clipped_low, all.clipped_high), expected);
}

#[tokio::test]
async fn a_group_that_is_small_new_or_missing_uses_the_numbers_of_all_rows() {
    let values: Vec<Option<f64>> = (0..60).map(|i| Some(f64::from(i))).collect();
    let groups = (0..60).map(|i| Some(if i < 50 { "big" } else { "few" }.to_owned()));
    let groups: Vec<Option<String>> = groups.collect();
    let table = table_of(&values, &groups);
    let steps = vec![
        grouped("standardize", &["a"], 20),
        step("categories", &["g"]),
    ];
    let artefact = fitted(&table, steps).await;
    let (all, by_group) = scales_of(&artefact.steps[0]);
    assert_eq!(all.mean, 29.5);
    assert_eq!(by_group.moments.len(), 1);
    let big = by_group.moments["big"];
    assert_eq!((big.rows, big.mean, big.constant), (50, 24.5, false));
    let later = [
        ("a", floats([30.0; 4].map(Some))),
        ("g", texts(&[Some("big"), Some("few"), Some("new"), None])),
    ];
    let x = applied(&artefact, &later).x;
    let width = x.len() / 4;
    let scaled = |mean: f64, scale: f64| {
        #[expect(clippy::cast_possible_truncation, reason = "as features are")]
        let short = ((30.0 - mean) / scale) as f32;
        short
    };
    let expected = [
        (24.5, big.scale),
        (29.5, all.scale),
        (29.5, all.scale),
        (29.5, all.scale),
    ];
    for (row, (mean, scale)) in x.chunks(width).zip(expected) {
        assert_eq!(row[0], scaled(mean, scale));
    }
}

#[tokio::test]
async fn a_constant_group_is_centred_and_not_blown_up() {
    let values: Vec<Option<f64>> = (0..40).map(|i| Some(f64::from(i % 2 * i))).collect();
    let groups = (0..40).map(|i| Some(["flat", "wide"][i % 2].to_owned()));
    let groups: Vec<Option<String>> = groups.collect();
    let table = table_of(&values, &groups);
    let steps = vec![grouped("standardize", &["a"], 5)];
    let steps = [steps, vec![step("categories", &["g"])]].concat();
    let artefact = fitted(&table, steps).await;
    let flat = scales_of(&artefact.steps[0]).1.moments["flat"];
    assert_eq!((flat.scale, flat.mean, flat.constant), (1.0, 0.0, true));
    let x = applied(&artefact, &table).x;
    let width = x.len() / 40;
    assert!(x.chunks(2 * width).all(|rows| rows[0] == 0.0));
}

#[tokio::test]
async fn the_transform_counts_the_cells_that_the_fit_has_capped() {
    let (values, groups) = levels(1500);
    let table = table_of(&values, &groups);
    for winsorize in [step("winsorize", &["a"]), grouped("winsorize", &["a"], 10)] {
        let artefact = fitted(&table, vec![winsorize, step("categories", &["g"])]).await;
        let clipped = crate::steps::clipped_in_train(&artefact.steps, "a");
        assert!(clipped > 0, "{:?}", artefact.steps);
        let applied = applied(&artefact, &table);
        assert_eq!(applied.capped, BTreeMap::from([("a".to_owned(), clipped)]));
    }
}

#[tokio::test]
async fn steps_behind_groups_see_what_they_left_and_bytes_do_not_depend_on_partitions() {
    let (values, groups) = levels(900);
    let steps = || {
        vec![
            grouped("winsorize", &["a"], 10),
            impute("median", &["a"]),
            grouped("standardize", &["a"], 10),
            step("min_max", &["a"]),
            step("categories", &["g"]),
        ]
    };
    let table = table_of(&values, &groups);
    let first = fitted_anew(&table, steps(), 1).await;
    for partitions in [2, 8] {
        let other = fitted_anew(&table, steps(), partitions).await;
        assert_eq!(other.hash, first.hash, "{partitions}");
    }
    let turned = |i: usize| values.len() - 1 - i;
    let values: Vec<_> = (0..values.len()).map(|i| values[turned(i)]).collect();
    let groups: Vec<_> = (0..groups.len())
        .map(|i| groups[turned(i)].clone())
        .collect();
    let reversed = fitted_anew(&table_of(&values, &groups), steps(), 3).await;
    assert_eq!(reversed.hash, first.hash);
    // What is written has the range that was fitted, so the fit saw what the steps before it leave.
    let x = applied(&first, &table).x;
    let width = x.len() / values.len();
    let a: Vec<f32> = x.chunks(width).map(|row| row[0]).collect();
    let least = a.iter().copied().fold(f32::INFINITY, f32::min);
    let most = a.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    assert_eq!((least, most), (0.0, 1.0));
}

#[tokio::test]
async fn trap_41_a_row_alone_gets_the_bits_of_its_group() {
    let (values, groups) = levels(200);
    let table = table_of(&values, &groups);
    let steps = vec![
        impute("median", &["a"]),
        grouped("winsorize", &["a"], 5),
        grouped("standardize", &["a"], 5),
        step("categories", &["g"]),
    ];
    let artefact = fitted_anew(&table, steps, 2).await;
    let all = applied(&artefact, &table).x;
    let transform = Transform::new(artefact).unwrap();
    let (whole, width) = (batch(&table), transform.features());
    for row in 0..200 {
        let one = transform.apply(&whole.slice(row, 1)).unwrap().x;
        let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(
            bits(&one),
            bits(&all[width * row..width * (row + 1)]),
            "row {row}"
        );
    }
}

#[tokio::test]
async fn groups_are_undone_where_they_are_known() {
    let (values, groups) = levels(300);
    let values: Vec<Option<f64>> = values.iter().map(|x| Some(x.unwrap_or(3.0))).collect();
    let table = table_of(&values, &groups);
    let steps = vec![
        grouped("standardize", &["a"], 10),
        step("min_max", &["a"]),
        step("categories", &["g"]),
    ];
    let artefact = fitted_anew(&table, steps, 2).await;
    let x = applied(&artefact, &table).x;
    let transform = Transform::new(artefact).unwrap();
    assert_eq!(transform.invert(&x), []);
    let back = transform.invert_rows(&x, &batch(&table)).unwrap();
    assert_eq!(back[0].0, "a");
    for (back, value) in back[0].1.iter().zip(values) {
        let value = value.unwrap();
        assert!(
            (back - value).abs() < 1e-4 * value.abs().max(1e3),
            "{back} {value}"
        );
    }
    let error = transform
        .invert_rows(&x, &batch(&table).slice(0, 3))
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("there are 3, and features of 300"),
        "{error}"
    );
    let blind = batch(&[("a", floats([Some(1.0)]))]);
    let error = transform.apply(&blind).unwrap_err().to_string();
    assert!(error.contains("they lack column `g`"), "{error}");
}

#[tokio::test]
async fn too_many_groups_and_groups_of_numbers_are_refused() {
    let groups: Vec<Option<String>> = (0..10_001).map(|i| Some(format!("g{i}"))).collect();
    let table = table_of(&vec![Some(1.0); 10_001], &groups);
    let steps = vec![grouped("winsorize", &["a"], 1)];
    let encoded = step("categories", &["g"]);
    assert_eq!(
        failure(&table, [steps.clone(), vec![encoded]].concat()).await,
        "`dataset.step`: column `g` has more than 10000 groups in the training split, each with numbers of its own in the \
         artefact; group `by` a coarser column, or leave `by` out"
    );
    let numbers = [("a", floats([Some(1.0)])), ("g", floats([Some(1.0)]))];
    let message = failure(&numbers, steps).await;
    assert!(message.contains("column `g` is no category"), "{message}");
}

#[tokio::test]
async fn infinities_are_capped_and_counted_in_their_group() {
    let finite = (0..100).map(|i| Some(f64::from(i)));
    let odd = [f64::INFINITY, f64::NEG_INFINITY, f64::INFINITY].map(Some);
    let values: Vec<Option<f64>> = finite.chain(odd).collect();
    let groups: Vec<Option<String>> = vec![Some("x".to_owned()); 103];
    let table = table_of(&values, &groups);
    let steps = vec![grouped("winsorize", &["a"], 1), step("categories", &["g"])];
    let artefact = fitted(&table, steps).await;
    let (all, by_group) = caps_of(&artefact);
    let expected = FittedCaps {
        rows: 100,
        low: 0.99,
        high: 98.01,
        clipped_low: 2,
        clipped_high: 3,
    };
    assert_eq!(by_group.caps, BTreeMap::from([("x".to_owned(), expected)]));
    assert_eq!((all.clipped_low, all.clipped_high), (0, 0));
    assert_eq!(applied(&artefact, &table).bad, []);
}
