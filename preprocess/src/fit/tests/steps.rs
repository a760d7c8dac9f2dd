//! Scales, powers and neighbours.
#![expect(clippy::float_cmp, reason = "what is promised is exact")]

use arrow::array::{FixedSizeBinaryArray, UInt64Array};
use feedline_schemas::{
    config::PowerMethod,
    transform::{FittedNeighbours, FittedPower, FittedRobust},
};

use super::*;
use crate::schema::system_columns;

fn robust_of(artefact: &TransformArtefact) -> &[FittedRobust] {
    match &artefact.steps[..] {
        [.., FittedStep::Robust { columns }] => columns,
        other => panic!("{other:?}"),
    }
}

fn power_of(artefact: &TransformArtefact) -> &[FittedPower] {
    match &artefact.steps[..] {
        [FittedStep::Power { columns }, ..] => columns,
        other => panic!("{other:?}"),
    }
}

fn neighbours_of(artefact: &TransformArtefact) -> &[FittedNeighbours] {
    match &artefact.steps[..] {
        [FittedStep::Knn { columns, .. }, ..] => columns,
        other => panic!("{other:?}"),
    }
}

fn power(method: PowerMethod, columns: &[&str]) -> StepConfig {
    step_with("power", columns, json!({ "method": method }))
}

fn knn(columns: &[&str]) -> StepConfig {
    knn_with(columns, "indicator", json!(false))
}

fn knn_with(columns: &[&str], key: &str, value: Value) -> StepConfig {
    let keys = json!({ "strategy": "knn", "neighbours": 2, key: value });
    step_with("impute", columns, keys)
}

/// Rows `order` of numeric columns, with columns that make rows distinct.
fn keyed<'a>(columns: &[(&'a str, Vec<Option<f64>>)], order: &[usize]) -> Vec<(&'a str, ArrayRef)> {
    let mut table: Vec<(&str, ArrayRef)> = columns
        .iter()
        .map(|(name, cells)| (*name, floats(order.iter().map(|row| cells[*row]))))
        .collect();
    let hashes = order
        .iter()
        .map(|row| (*row as u128 * 0x9e37_79b9_7f4a_7c15).to_be_bytes());
    let hashes = FixedSizeBinaryArray::try_from_iter(hashes).unwrap();
    let origins = order.iter().map(|row| *row as u64).collect::<UInt64Array>();
    table.push((system_columns::HASH, Arc::new(hashes)));
    table.push((system_columns::ORIGIN, Arc::new(origins)));
    table
}

/// Fits `steps` to the columns of [`keyed`].
async fn fitted_keyed(
    table: &[(&str, ArrayRef)],
    steps: Vec<StepConfig>,
    partitions: usize,
) -> Result<TransformArtefact, Error> {
    let folder = tempfile::tempdir().unwrap();
    let train = split(table, partitions).in_folder(folder.path());
    let numbers: Vec<(&str, ArrayRef)> = table[..table.len() - 2].to_vec();
    fit(&train, &spec(&numbers, steps)).await
}

#[tokio::test]
async fn robust_scales_by_the_distance_of_percentiles() {
    let table = [
        ("a", floats([1.0, 2.0, 3.0, 4.0, 1000.0].map(Some))),
        ("b", floats([7.0, 7.0, 7.0, 7.0, 9.0].map(Some))),
    ];
    let artefact = fitted(&table, vec![step("robust", &["a", "b"])]).await;
    let [a, b] = robust_of(&artefact) else {
        panic!("two columns")
    };
    assert_eq!((a.median, a.low, a.high, a.scale), (3.0, 2.0, 4.0, 2.0));
    assert_eq!((a.lower, a.upper, a.constant), (0.25, 0.75, false));
    assert_eq!((b.median, b.scale, b.constant), (7.0, 1.0, true));
    let x = applied(&artefact, &table).x;
    assert_eq!(x[8..], [498.5, 2.0]);
}

#[tokio::test]
async fn the_widest_spread_does_not_overflow() {
    let table = [("a", floats([-f64::MAX, 0.0, f64::MAX].map(Some)))];
    let whole = step_with("robust", &["a"], json!({ "lower": 0.0, "upper": 1.0 }));
    let artefact = fitted(&table, vec![whole]).await;
    assert_eq!(robust_of(&artefact)[0].scale, f64::MAX);
    assert_eq!(applied(&artefact, &table).x, [-1.0, 0.0, 1.0]);
}

#[tokio::test]
async fn logarithms_of_what_has_none_are_refused() {
    let table = [("a", floats([Some(-1.0), Some(3.0), None]))];
    assert_eq!(
        failure(&table, vec![step("log1p", &["a"])]).await,
        "`dataset.step`: cannot take the logarithm of 1 plus column `a`: its smallest training value is -1, it must be \
         above -1; use a `power` step, or cap it by a `winsorize` step before"
    );
    let table = [("a", floats([Some(0.0), Some(3.0), None]))];
    let artefact = fitted(&table, vec![step("log1p", &["a"])]).await;
    let later = [("a", floats([Some(3.0), Some(-2.0)]))];
    let applied = applied(&artefact, &later);
    close(f64::from(applied.x[0]), f64::from(4f32.ln()));
    assert_eq!(applied.bad[0].1, "not_finite");
}

#[tokio::test]
async fn powers_make_symmetric_what_is_symmetric_on_another_scale() {
    let steps = (-20..=20).map(|i| f64::from(i) / 7.0);
    let steps: Vec<f64> = steps.collect();
    let table = [
        ("log", floats(steps.iter().map(|x| Some(x.exp())))),
        ("same", floats(steps.iter().map(|x| Some(*x)))),
    ];
    let artefact = fitted(&table, vec![power(PowerMethod::BoxCox, &["log"])]).await;
    let lambda = power_of(&artefact)[0].lambda;
    assert!(lambda.abs() < 1e-11, "{lambda:e}");
    let artefact = fitted(&table, vec![power(PowerMethod::YeoJohnson, &["same"])]).await;
    let lambda = power_of(&artefact)[0].lambda;
    assert!((lambda - 1.0).abs() < 1e-11, "{lambda:e}");
}

#[tokio::test]
async fn powers_of_numbers_that_differ_little_lose_no_digits() {
    // From decimals of 60 digits. Without a unit of its own the column's power comes out wrong from the sixth digit on.
    const LAMBDA: f64 = -3.595_637_376_245_789;
    let cells = (0..150).map(|i: u32| f64::from(150 + (i % 17).pow(2) / 4));
    let cells: Vec<f64> = cells.collect();
    let table = [
        ("above", floats(cells.iter().map(|x| Some(*x)))),
        ("less", floats(cells.iter().map(|x| Some(*x - 1.0)))),
    ];
    let artefact = fitted(&table, vec![power(PowerMethod::BoxCox, &["above"])]).await;
    let lambda = power_of(&artefact)[0].lambda;
    assert!((lambda - LAMBDA).abs() < 1e-10, "{lambda}");
    let artefact = fitted(&table, vec![power(PowerMethod::YeoJohnson, &["less"])]).await;
    let lambda = power_of(&artefact)[0].lambda;
    assert!((lambda - LAMBDA).abs() < 1e-10, "{lambda}");
}

#[tokio::test]
async fn powers_of_a_constant_column_change_nothing() {
    let table = [("a", floats([Some(5.0), None, Some(5.0)]))];
    let artefact = fitted(&table, vec![step("power", &["a"])]).await;
    let fitted = &power_of(&artefact)[0];
    assert_eq!((fitted.lambda, fitted.constant), (1.0, true));
    let applied = applied(&artefact, &table);
    assert_eq!(applied.x[0], 5.0);
}

#[tokio::test]
async fn powers_of_extreme_numbers_end_at_a_limit_and_stay_finite() {
    let table = [
        ("a", floats([1.0, 1.0, 1.0, 1.0, 1e300].map(Some))),
        ("b", floats([-1e300, 1.0, 2.0, 3.0, 4.0].map(Some))),
    ];
    let artefact = fitted(&table, vec![step("power", &["a", "b"])]).await;
    for column in power_of(&artefact) {
        assert!(column.lambda.abs() <= 32.0, "{column:?}");
    }
    assert_eq!(applied(&artefact, &table).bad, []);
}

#[tokio::test]
async fn a_box_cox_power_of_zero_is_refused() {
    let table = [("a", floats([Some(0.0), Some(3.0)]))];
    assert_eq!(
        failure(&table, vec![power(PowerMethod::BoxCox, &["a"])]).await,
        "`dataset.step`: cannot fit `box_cox` to column `a`: its smallest training value is 0, all must be above 0; use \
         `method = \"yeo_johnson\"`"
    );
}

#[tokio::test]
async fn columns_without_a_value_have_no_scale_no_power_and_no_neighbours() {
    let rows: Vec<usize> = (0..3).collect();
    let table = keyed(&[("a", vec![None; 3])], &rows);
    for (step, name) in [
        (step("robust", &["a"]), "robust"),
        (step("log1p", &["a"]), "log1p"),
        (step("power", &["a"]), "power"),
        (knn(&["a"]), "impute"),
    ] {
        let error = fitted_keyed(&table, vec![step], 1).await.unwrap_err();
        let message = error.to_string();
        assert!(
            message.contains(&format!("cannot fit `{name}` to column `a`")),
            "{message}"
        );
    }
}

/// Columns with gaps; the second follows the first.
fn gaps(rows: u32) -> [(&'static str, Vec<Option<f64>>); 2] {
    let (a, b) = (messy(rows, 1), messy(rows, 5));
    let b = a
        .iter()
        .zip(b)
        .map(|(a, b)| b.map(|b| 0.25 * b + a.unwrap_or(1.0)));
    [("a", a.clone()), ("b", b.collect())]
}

#[tokio::test]
async fn neighbours_and_powers_are_the_same_bytes_for_any_partitions_and_order() {
    let columns = gaps(300);
    let orders: [Vec<usize>; 2] = [(0..300).collect(), (0..300).rev().collect()];
    let steps = || {
        vec![
            knn_with(&["a", "b"], "reference_rows", json!(50)),
            step("power", &["a", "b"]),
            step("robust", &["a"]),
            step("standardize", &["b"]),
        ]
    };
    let mut hashes = Vec::new();
    for (partitions, order) in [(1, 0), (2, 0), (8, 0), (8, 1)] {
        let table = keyed(&columns, &orders[order]);
        let artefact = fitted_keyed(&table, steps(), partitions).await.unwrap();
        assert_eq!(neighbours_of(&artefact)[0].reference.len(), 50);
        hashes.push(artefact.hash);
    }
    assert!(hashes.iter().all(|hash| *hash == hashes[0]), "{hashes:?}");
}

#[tokio::test]
async fn what_stands_behind_neighbours_is_fitted_on_what_they_filled() {
    let columns = [
        (
            "a",
            vec![Some(1.0), Some(2.0), Some(3.0), Some(10.0), Some(2.0)],
        ),
        (
            "b",
            vec![Some(10.0), Some(20.0), Some(30.0), Some(100.0), None],
        ),
    ];
    let rows: Vec<usize> = (0..5).collect();
    let table = keyed(&columns, &rows);
    let indicator = knn_with(&["a", "b"], "indicator", json!(true));
    let steps = vec![
        indicator,
        step("min_max", &["b"]),
        step("standardize", &["b"]),
    ];
    let artefact = fitted_keyed(&table, steps, 2).await.unwrap();
    assert_eq!(neighbours_of(&artefact)[1].missing, 1);
    assert_eq!(neighbours_of(&artefact)[1].mean, 40.0);
    // The gap is 20 and one of 10 and 30, which are equally far: 15 or 25.
    let FittedStep::Standardize { columns: scaled } = &artefact.steps[2] else {
        panic!("{:?}", artefact.steps)
    };
    let filled = [15.0, 25.0].map(|gap| ((160.0 + gap) / 5.0 - 10.0) / 90.0);
    let close = |mean: &f64| (mean - scaled[0].mean).abs() < 1e-15;
    assert!(filled.iter().any(close), "{scaled:?}");
    let names: Vec<&str> = artefact.features.iter().map(|f| f.name.as_str()).collect();
    assert_eq!(names, ["a", "a__missing", "b", "b__missing"]);
    let x = applied(&artefact, &table).x;
    assert_eq!((x[4 * 4 + 1], x[4 * 4 + 3]), (0.0, 1.0));
    let mean: f32 = x.chunks(4).map(|row| row[2]).sum();
    assert!(mean.abs() < 1e-6, "{mean}");
}

#[tokio::test]
async fn neighbours_of_one_column_are_warned_of_and_those_of_several_are_not() {
    let rows: Vec<usize> = (0..300).collect();
    let table = keyed(&gaps(300), &rows);
    for (columns, expected) in [(&["a"][..], true), (&["a", "b"][..], false)] {
        let artefact = fitted_keyed(&table, vec![knn(columns)], 2).await.unwrap();
        let warnings = crate::warnings::of_transform(&artefact, &[], |_| false);
        let mut warnings = warnings.iter();
        let found = warnings.find(|warning| warning.code == "knn_of_one_column");
        assert_eq!(found.is_some(), expected, "{columns:?}");
        if let Some(found) = found {
            assert_eq!(found.key.as_deref(), Some("dataset.step"));
            let part = "in the only column of a step: `a`;";
            assert!(found.message.contains(part), "{found:?}");
        }
    }
}

#[tokio::test]
async fn too_large_a_reference_is_refused_and_says_what_to_lower() {
    let rows: Vec<usize> = (0..1001).collect();
    let cells = vec![Some(1.0); 1001];
    let names: Vec<String> = (0..5000).map(|i| format!("c{i}")).collect();
    let columns: Vec<(&str, Vec<Option<f64>>)> = names
        .iter()
        .map(|name| (name.as_str(), cells.clone()))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let table = keyed(&columns, &rows);
    let error = fitted_keyed(&table, vec![knn(&names)], 1)
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "`dataset.step`: 1001 reference rows of 5000 columns are 5005000 cells, more than 5000000: lower \
         `reference_rows`, or name fewer `columns`"
    );
}

#[tokio::test]
async fn numbers_come_back_in_their_units() {
    let values = [0.5, 1.0, 2.0, 4.0, 8.0];
    let rows: Vec<usize> = (0..5).collect();
    let cells = values.map(Some).to_vec();
    let table = keyed(&[("a", cells)], &rows);
    let distance = knn_with(&["a"], "weights", json!("distance"));
    let steps = vec![
        step("log1p", &["a"]),
        distance,
        step("power", &["a"]),
        step("robust", &["a"]),
        step("min_max", &["a"]),
    ];
    let artefact = fitted_keyed(&table, steps, 1).await.unwrap();
    let x = applied(&artefact, &table).x;
    let transform = Transform::new(artefact).unwrap();
    let back = transform.invert(&x);
    assert_eq!(back[0].0, "a");
    for (back, value) in back[0].1.iter().zip(values) {
        assert!((back - value).abs() < 1e-5 * value, "{back} {value}");
    }
}

#[tokio::test]
async fn a_row_alone_gets_the_bits_it_has_among_all() {
    let columns = gaps(200);
    let rows: Vec<usize> = (0..200).collect();
    let table = keyed(&columns, &rows);
    let steps = vec![
        step("standardize", &["a", "b"]),
        knn(&["a", "b"]),
        step("power", &["a", "b"]),
    ];
    let artefact = fitted_keyed(&table, steps, 4).await.unwrap();
    let all = applied(&artefact, &table).x;
    let transform = Transform::new(artefact).unwrap();
    let whole = batch(&table);
    for row in 0..200 {
        let one = transform.apply(&whole.slice(row, 1)).unwrap().x;
        let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&one), bits(&all[2 * row..2 * row + 2]), "row {row}");
    }
}

#[tokio::test]
async fn the_median_behind_caps_is_that_of_the_capped_cells() {
    let ordinary = |i: i32| Some(f64::from(i * i % 97) - 40.0);
    let gaps = |i: i32| ordinary(i).filter(|_| i % 7 != 3);
    let infinite = |i: i32| match i % 5 {
        0 => Some(f64::INFINITY),
        _ => ordinary(i),
    };
    for (values, lower, upper) in [
        ((0..101).map(ordinary).collect::<Vec<_>>(), 0.01, 0.99),
        ((0..100).map(gaps).collect(), 0.1, 0.9),
        // The caps are on one side of the median, or where an infinity becomes a number and moves
        // it.
        ((0..100).map(gaps).collect(), 0.6, 0.9),
        ((0..100).map(gaps).collect(), 0.1, 0.3),
        ((0..100).map(infinite).collect(), 0.01, 0.99),
        (vec![Some(1.0), None, Some(3.0)], 0.49, 0.51),
        (vec![Some(2.0), None], 0.01, 0.99),
    ] {
        let caps = json!({ "lower": lower, "upper": upper });
        let winsorize = step_with("winsorize", &["x"], caps);
        let steps = vec![winsorize, impute("median", &["x"])];
        let both = fitted(&[("x", floats(values.clone()))], steps).await;
        let [
            FittedStep::Winsorize { columns: caps },
            FittedStep::Impute { columns: filled },
        ] = both.steps.as_slice()
        else {
            panic!("two steps")
        };
        let capped = values
            .iter()
            .map(|x| x.map(|x| x.clamp(caps[0].low, caps[0].high)));
        let steps = vec![impute("median", &["x"])];
        let alone = fitted(&[("x", floats(capped))], steps).await;
        let [FittedStep::Impute { columns: expected }] = alone.steps.as_slice() else {
            panic!("one step")
        };
        let found = (filled[0].value.to_bits(), filled[0].missing);
        let expected = (expected[0].value.to_bits(), expected[0].missing);
        assert_eq!(found, expected, "{values:?} {lower} {upper}");
    }
}
