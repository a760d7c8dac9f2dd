mod bins;
mod categories;
mod groups;
mod outcomes;
mod steps;
mod warnings;

use std::sync::Arc;

use datafusion::{
    arrow::array::{ArrayRef, Float64Array, RecordBatch, StringArray},
    datasource::MemTable,
    execution::runtime_env::RuntimeEnvBuilder,
    prelude::{SessionConfig, SessionContext},
};
use feedline_schemas::transform::{CategoryEncoding, FittedStep, ImputeStatistic, InputColumn};
use serde_json::{Value, json};

use super::*;
use crate::{Applied, Transform, transform::op_chain};

/// A table of named columns whose kinds follow from their arrays.
type Table<'a> = [(&'a str, ArrayRef)];

fn floats(values: impl IntoIterator<Item = Option<f64>>) -> ArrayRef {
    Arc::new(values.into_iter().collect::<Float64Array>())
}

fn texts(values: &[Option<&str>]) -> ArrayRef {
    Arc::new(StringArray::from(values.to_vec()))
}

fn batch(table: &Table<'_>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(table.iter().map(|(n, a)| (*n, Arc::clone(a), true)))
        .unwrap()
}

/// A training split in `partitions` partitions of small batches.
fn split(table: &Table<'_>, partitions: usize) -> TrainSplit {
    let config = SessionConfig::new()
        .with_target_partitions(partitions)
        .with_batch_size(16);
    let whole = batch(table);
    let mut chunks = vec![Vec::new(); partitions];
    for (i, start) in (0..whole.num_rows()).step_by(10).enumerate() {
        chunks[i % partitions].push(whole.slice(start, 10.min(whole.num_rows() - start)));
    }
    let memory = MemTable::try_new(whole.schema(), chunks).unwrap();
    let frame = SessionContext::new_with_config(config)
        .read_table(Arc::new(memory))
        .unwrap();
    TrainSplit::from_frame(frame, whole.num_rows() as u64)
}

fn spec(table: &Table<'_>, steps: Vec<StepConfig>) -> FitSpec {
    let kind = |array: &ArrayRef| match array.data_type() {
        DataType::Float64 => InputKind::Numeric,
        _ => InputKind::Categorical,
    };
    let inputs = table.iter().filter(|(name, _)| *name != "y");
    FitSpec {
        inputs: inputs
            .map(|(name, array)| InputColumn {
                name: (*name).into(),
                kind: kind(array),
            })
            .collect(),
        left_out: BTreeMap::new(),
        joined: BTreeMap::new(),
        steps,
        target: None,
        other_targets: vec![],
        null_values: vec![],
        missing_values: vec![],
        signs: None,
    }
}

fn step(kind: &str, columns: &[&str]) -> StepConfig {
    step_with(kind, columns, json!({}))
}

/// A step as a file writes it, with `keys` beside its columns.
fn step_with(kind: &str, columns: &[&str], keys: Value) -> StepConfig {
    let mut written = json!({ "type": kind, "columns": columns });
    let Value::Object(keys) = keys else {
        panic!("{keys}")
    };
    written.as_object_mut().unwrap().extend(keys);
    serde_json::from_value(written).unwrap()
}

fn impute(strategy: &str, columns: &[&str]) -> StepConfig {
    step_with("impute", columns, json!({ "strategy": strategy }))
}

async fn fitted(table: &Table<'_>, steps: Vec<StepConfig>) -> TransformArtefact {
    fit(&split(table, 3), &spec(table, steps)).await.unwrap()
}

async fn failure(table: &Table<'_>, steps: Vec<StepConfig>) -> String {
    fit(&split(table, 3), &spec(table, steps))
        .await
        .unwrap_err()
        .to_string()
}

/// The target `y` of `table`, fitted.
async fn target(table: &Table<'_>, task: Task, scale: bool) -> Result<FittedTarget, String> {
    let spec = FitSpec {
        target: Some(TargetSpec {
            column: "y".into(),
            task,
            scale,
            classes: vec![],
        }),
        ..spec(table, vec![])
    };
    fit(&split(table, 2), &spec)
        .await
        .map(|a| a.target.unwrap())
        .map_err(|e| e.to_string())
}

fn applied(artefact: &TransformArtefact, table: &Table<'_>) -> Applied {
    Transform::new(artefact.clone())
        .unwrap()
        .apply(&batch(table))
        .unwrap()
}

fn close(a: f64, b: f64) {
    assert!(
        (a - b).abs() <= 1e-12 * b.abs().max(1e-300),
        "{a:e} is not {b:e}"
    );
}

/// Plain reference of the default steps on one column: sorted vectors and naive sums.
fn reference(values: &[Option<f64>]) -> (f64, f64, f64, f64, f64) {
    let sorted = |mut v: Vec<f64>| {
        v.sort_by(f64::total_cmp);
        v
    };
    let observed = sorted(values.iter().flatten().copied().collect());
    let median = (observed[(observed.len() - 1) / 2] + observed[observed.len() / 2]) / 2.0;
    let full = sorted(values.iter().map(|x| x.unwrap_or(median)).collect());
    let percentile = |share: f64| {
        #[expect(clippy::cast_precision_loss, reason = "few rows")]
        let index = (full.len() - 1) as f64 * share;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "an index"
        )]
        let low = index.floor() as usize;
        let high = (low + 1).min(full.len() - 1);
        full[low] + (full[high] - full[low]) * index.fract()
    };
    let (low, high) = (percentile(0.01), percentile(0.99));
    let capped: Vec<f64> = full.iter().map(|x| x.clamp(low, high)).collect();
    #[expect(clippy::cast_precision_loss, reason = "few rows")]
    let n = capped.len() as f64;
    let mean = capped.iter().sum::<f64>() / n;
    let deviation = (capped.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n).sqrt();
    (median, low, high, mean, deviation)
}

/// Heavy-tailed values with gaps.
fn messy(rows: u32, shift: u32) -> Vec<Option<f64>> {
    let value = |i: u32| {
        let spread = f64::from(i.wrapping_mul(2_654_435_761) >> 8) / f64::from(1 << 24);
        (i % 13 != shift)
            .then(|| (1.0 - spread).powf(-0.9) * if i.is_multiple_of(3) { -1.0 } else { 10.0 })
    };
    (0..rows).map(value).collect()
}

fn default_steps(columns: &[&str]) -> Vec<StepConfig> {
    ["impute", "winsorize", "standardize"]
        .map(|kind| step(kind, columns))
        .to_vec()
}

#[tokio::test]
async fn the_default_steps_agree_with_sorted_vectors_and_naive_sums() {
    let (a, b) = (messy(997, 1), messy(997, 5));
    let table = [("a", floats(a.clone())), ("b", floats(b.clone()))];
    let artefact = fitted(&table, default_steps(&["a", "b"])).await;
    let [
        FittedStep::Impute { columns: imputed },
        FittedStep::Winsorize { columns: capped },
        FittedStep::Standardize { columns: scaled },
    ] = &artefact.steps[..]
    else {
        panic!("{:?}", artefact.steps)
    };
    for (i, values) in [a, b].iter().enumerate() {
        let (median, low, high, mean, deviation) = reference(values);
        assert_eq!(imputed[i].value.to_bits(), median.to_bits());
        assert_eq!(
            imputed[i].missing,
            values.iter().filter(|x| x.is_none()).count() as u64
        );
        close(capped[i].low, low);
        close(capped[i].high, high);
        assert_eq!((capped[i].clipped_low, capped[i].clipped_high), (10, 10));
        close(scaled[i].mean, mean);
        close(scaled[i].deviation, deviation);
        assert_eq!(
            (scaled[i].scale, scaled[i].constant),
            (scaled[i].deviation, false)
        );
    }
    assert_eq!(artefact.fitted_rows, 997);
}

#[tokio::test]
async fn partitions_and_row_order_do_not_change_a_byte() {
    let table = |reverse: bool| {
        let mut a = messy(600, 2);
        let mut c: Vec<Option<&str>> = (0..600usize)
            .map(|i| [Some("x"), Some("ü"), None, Some("y")][i * i % 4])
            .collect();
        if reverse {
            a.reverse();
            c.reverse();
        }
        [
            ("a", floats(a.clone())),
            ("c", texts(&c)),
            ("y", floats(a.iter().map(|x| Some(x.unwrap_or(1e16))))),
        ]
    };
    let steps = || {
        vec![
            step("min_max", &["a"]),
            impute("mean", &["a"]),
            step("winsorize", &["a"]),
            step("standardize", &["a"]),
            step("categories", &["c"]),
        ]
    };
    let mut hashes = Vec::new();
    for (partitions, reverse) in [(1, false), (2, false), (8, false), (8, true)] {
        let table = table(reverse);
        let target = Some(TargetSpec {
            column: "y".into(),
            task: Task::Regression,
            scale: true,
            classes: vec![],
        });
        let spec = FitSpec {
            target,
            ..spec(&table, steps())
        };
        hashes.push(fit(&split(&table, partitions), &spec).await.unwrap().hash);
    }
    assert!(hashes.iter().all(|hash| *hash == hashes[0]), "{hashes:?}");
}

#[tokio::test]
async fn each_step_is_fitted_on_the_output_of_the_one_before() {
    let values = (1..=100).map(f64::from).chain([1e6]).map(Some);
    let table = [("a", floats(values))];
    let caps = step_with("winsorize", &["a"], json!({ "upper": 0.5 }));
    let artefact = fitted(
        &table,
        vec![caps, step("min_max", &["a"]), step("standardize", &["a"])],
    )
    .await;
    let [
        FittedStep::Winsorize { columns: caps },
        FittedStep::MinMax { columns: range },
        FittedStep::Standardize { columns: scaled },
    ] = &artefact.steps[..]
    else {
        panic!("{:?}", artefact.steps)
    };
    assert_eq!(
        (
            caps[0].low,
            caps[0].high,
            caps[0].clipped_low,
            caps[0].clipped_high
        ),
        (2.0, 51.0, 1, 50)
    );
    assert_eq!((range[0].min, range[0].max), (2.0, 51.0));
    assert!(
        scaled[0].mean > 0.7 && scaled[0].mean < 0.8,
        "{}",
        scaled[0].mean
    );
    let x = applied(&artefact, &table).x;
    let mean = x.iter().map(|x| f64::from(*x)).sum::<f64>() / 101.0;
    assert!(mean.abs() < 1e-6, "{mean}");
}

#[tokio::test]
async fn a_column_without_values_is_named_with_advice() {
    let table = [
        ("a", floats([Some(1.0), Some(2.0)])),
        ("b", floats([None, Some(f64::INFINITY)])),
    ];
    assert_eq!(
        failure(&table, default_steps(&["a", "b"])).await,
        "`dataset.step`: cannot fit `impute` to column `b`: none of its 2 training rows has a finite value; fill it with an \
         `impute` step of `strategy = \"constant\"` and a `value`, or leave it out with `dataset.drop`"
    );
    let constant = json!({ "strategy": "constant", "value": -0.0 });
    let constant = step_with("impute", &["b"], constant);
    let artefact = fitted(&table[1..], vec![constant]).await;
    let applied = applied(&artefact, &table[1..]);
    assert_eq!(applied.x, [0.0, 0.0]);
    assert_eq!(applied.bad[0].1, "not_finite");
}

#[tokio::test]
async fn infinities_take_no_part_and_are_capped() {
    let values =
        (0..=100)
            .map(f64::from)
            .chain([f64::INFINITY, f64::NEG_INFINITY, f64::INFINITY, f64::NAN]);
    let table = [("a", floats(values.map(Some)))];
    let artefact = fitted(&table, default_steps(&["a"])).await;
    let [
        FittedStep::Impute { columns: filled },
        FittedStep::Winsorize { columns: caps },
        _,
    ] = &artefact.steps[..]
    else {
        panic!("{:?}", artefact.steps)
    };
    assert_eq!((filled[0].value, filled[0].missing), (50.0, 1));
    assert_eq!((caps[0].clipped_low, caps[0].clipped_high), (3, 4));
    let applied = applied(&artefact, &table);
    assert_eq!(applied.bad, []);
    let largest = applied.x.iter().copied().fold(f32::MIN, f32::max);
    assert_eq!(applied.x[101].to_bits(), largest.to_bits());
}

#[tokio::test]
async fn constant_and_nearly_constant_columns_are_not_blown_up() {
    let jitter = (0..64).map(|i| Some(1e8 + if i % 2 == 0 { 1.5e-8 } else { 0.0 }));
    let table = [
        ("a", floats([Some(0.1); 64])),
        ("b", floats(jitter)),
        ("c", floats((0..64).map(|i| Some(f64::from(i))))),
    ];
    let artefact = fitted(&table, vec![step("standardize", &["a", "b", "c"])]).await;
    let FittedStep::Standardize { columns } = &artefact.steps[0] else {
        panic!("{:?}", artefact.steps)
    };
    assert_eq!(
        columns.iter().map(|c| c.constant).collect::<Vec<_>>(),
        [true, true, false]
    );
    assert_eq!(
        (columns[0].mean, columns[0].scale, columns[0].deviation),
        (0.1, 1.0, 0.0)
    );
    let x = applied(&artefact, &table).x;
    assert!(x.chunks(3).all(|row| row[0] == 0.0 && row[1].abs() < 1e-7));
}

#[tokio::test]
async fn mostly_zero_columns_get_equal_caps_and_no_division_by_zero() {
    let mut values = vec![0.0; 990];
    values.extend([1.0, 2.0, -3.0, 4.0]);
    let table = [("a", floats(values.into_iter().map(Some)))];
    let artefact = fitted(&table, default_steps(&["a"])).await;
    let FittedStep::Winsorize { columns } = &artefact.steps[1] else {
        panic!("{:?}", artefact.steps)
    };
    assert_eq!((columns[0].low, columns[0].high), (0.0, 0.0));
    assert_eq!((columns[0].clipped_low, columns[0].clipped_high), (1, 3));
    assert!(
        applied(&artefact, &table)
            .x
            .iter()
            .all(|x| x.to_bits() == 0)
    );
}

#[tokio::test]
async fn the_most_frequent_value_is_the_smallest_of_several() {
    let values = [Some(3.0), Some(-0.0), Some(3.0), Some(0.0), Some(7.0), None];
    let values = values
        .into_iter()
        .chain([Some(f64::INFINITY); 3])
        .chain([Some(f64::NEG_INFINITY); 3]);
    let table = [("a", floats(values))];
    let artefact = fitted(&table, vec![impute("most_frequent", &["a"])]).await;
    let FittedStep::Impute { columns } = &artefact.steps[0] else {
        panic!("{:?}", artefact.steps)
    };
    assert_eq!(
        (columns[0].value.to_bits(), columns[0].missing),
        (0.0f64.to_bits(), 1)
    );
    assert_eq!(columns[0].statistic, ImputeStatistic::MostFrequent);
}

#[tokio::test]
async fn categories_stand_by_falling_count_then_by_bytes_and_rare_ones_are_unknown() {
    let values = [
        Some("b"),
        Some("a"),
        None,
        Some("z"),
        Some("z"),
        Some("ä"),
        Some("Z"),
        Some(""),
    ];
    let table = [("c", texts(&values))];
    let categories = step_with("categories", &["c"], json!({ "max_values": 4 }));
    let artefact = fitted(&table, vec![categories]).await;
    let FittedStep::Categories { columns } = &artefact.steps[0] else {
        panic!("{:?}", artefact.steps)
    };
    assert_eq!(
        (columns[0].values.join("|"), &columns[0].counts[..]),
        ("z||Z|a".to_owned(), &[2, 1, 1, 1][..])
    );
    assert_eq!(columns[0].encoding, CategoryEncoding::OneHot);
    let x = applied(&artefact, &table).x;
    let ids: Vec<usize> = x
        .chunks(6)
        .map(|row| row.iter().position(|x| *x > 0.0).unwrap())
        .collect();
    assert_eq!(ids, [0, 5, 1, 2, 2, 0, 4, 3]);
}

#[tokio::test]
async fn more_columns_than_one_query_may_count_are_fitted_in_several() {
    let names: Vec<String> = (0..80).map(|i| format!("c{i}")).collect();
    let column = |i: u32| floats([Some(f64::from(i)), None, Some(f64::from(i + 2))]);
    let table: Vec<(&str, ArrayRef)> = names
        .iter()
        .zip(0..)
        .map(|(name, i)| (name.as_str(), column(i)))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let spec = spec(&table, vec![step("impute", &names)]);
    let artefact = fit(&split(&table, 8), &spec).await.unwrap();
    let FittedStep::Impute { columns } = &artefact.steps[0] else {
        panic!("{:?}", artefact.steps)
    };
    for (i, (column, name)) in (0u32..).zip(columns.iter().zip(names)) {
        let expected = f64::from(i + 1);
        assert_eq!(
            (column.name.as_str(), column.value.to_bits(), column.missing),
            (name, expected.to_bits(), 1)
        );
    }
    assert_eq!(columns.len(), 80);
}

#[tokio::test]
async fn counters_stay_inside_a_small_memory_limit() {
    // Too many values to collect, so each column is counted, with 512 KiB of counters in each state: 10 MiB at once.
    let names: Vec<String> = (0..20).map(|i| format!("c{i}")).collect();
    let column = floats((0..70_001).map(|i| Some(f64::from(i))));
    let table: Vec<(&str, ArrayRef)> = names
        .iter()
        .map(|name| (name.as_str(), Arc::clone(&column)))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let whole = batch(&table);
    let parts = [0, 35_000].map(|start| vec![whole.slice(start, (70_001 - start).min(35_000))]);
    let rest = vec![whole.slice(70_000, 1)];
    let memory =
        MemTable::try_new(whole.schema(), parts.into_iter().chain([rest]).collect()).unwrap();
    let runtime = RuntimeEnvBuilder::new()
        .with_memory_limit(8 << 20, 1.0)
        .build_arc()
        .unwrap();
    let config = SessionConfig::new().with_target_partitions(2);
    let frame = SessionContext::new_with_config_rt(config, runtime)
        .read_table(Arc::new(memory))
        .unwrap();
    let spec = spec(&table, vec![step("impute", &names)]);
    let artefact = fit(&TrainSplit::from_frame(frame, 70_001), &spec)
        .await
        .unwrap();
    let FittedStep::Impute { columns } = &artefact.steps[0] else {
        panic!("{:?}", artefact.steps)
    };
    assert!(
        columns
            .iter()
            .all(|c| c.value.to_bits() == 35_000f64.to_bits()),
        "{columns:?}"
    );
}

#[tokio::test]
async fn column_names_need_no_escaping() {
    let table = [
        ("Price.\"USD\" (€)", floats([Some(1.0), None, Some(3.0)])),
        ("value", texts(&[None, Some("x"), None])),
    ];
    let steps = vec![
        impute("most_frequent", &["Price.\"USD\" (€)"]),
        step("min_max", &["Price.\"USD\" (€)"]),
        step("categories", &["value"]),
    ];
    let artefact = fitted(&table, steps).await;
    assert_eq!(
        applied(&artefact, &table).x,
        [0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 0.0]
    );
}

#[tokio::test]
async fn a_category_that_is_always_null_still_has_its_reserved_ids() {
    let table = [("c", texts(&[None, None]))];
    let artefact = fitted(&table, vec![step("categories", &["c"])]).await;
    assert_eq!(applied(&artefact, &table).x, [0.0, 1.0, 0.0, 1.0]);
}

#[tokio::test]
async fn a_regression_target_is_fitted_exactly() {
    let table = |y: &[f64]| {
        [
            ("a", floats(vec![Some(0.0); y.len()])),
            ("y", floats(y.iter().copied().map(Some))),
        ]
    };
    let regression = |mean, scale, offset| FittedTarget::Regression {
        column: "y".into(),
        mean,
        scale,
        offset,
    };
    let spread = table(&[1.0, 3.0, 1.0, 3.0]);
    assert_eq!(
        target(&spread, Task::Regression, true).await,
        Ok(regression(2.0, 1.0, 2.0))
    );
    assert_eq!(
        target(&table(&[10.0, 30.0]), Task::Regression, true).await,
        Ok(regression(20.0, 10.0, 20.0))
    );
    assert_eq!(
        target(&table(&[10.0, 30.0]), Task::Regression, false).await,
        Ok(regression(20.0, 1.0, 0.0))
    );
    assert_eq!(
        target(&table(&[5.0, 5.0]), Task::Regression, true).await,
        Ok(regression(5.0, 1.0, 5.0))
    );
}

#[tokio::test]
async fn classes_follow_the_order_of_their_labels_whatever_their_counts() {
    for (labels, classes, counts) in [
        (["no", "b", "no", "a"], ["a", "b", "no"], [1, 1, 2]),
        (["10", "10", "9", "2"], ["2", "9", "10"], [1, 1, 2]),
        (["9", "10", "9", "2"], ["2", "9", "10"], [1, 2, 1]),
    ] {
        let table = [
            ("a", floats([Some(0.0); 4])),
            ("y", texts(&labels.map(Some))),
        ];
        let expected = FittedTarget::Classification {
            column: "y".into(),
            classes: classes.map(str::to_owned).to_vec(),
            counts: counts.to_vec(),
        };
        assert_eq!(
            target(&table, Task::Classification, false).await,
            Ok(expected)
        );
    }
}

#[tokio::test]
async fn a_text_target_of_a_regression_is_refused_with_a_sample() {
    let table = [
        ("a", floats([Some(0.0); 2])),
        ("y", texts(&[Some("much"), Some("little")])),
    ];
    assert_eq!(
        target(&table, Task::Regression, true).await,
        Err("`dataset.target`: column `y` is not numeric, one of its values is `little`; name a column of numbers, or set \
             `dataset.task = \"classification\"` to predict it as a class"
            .to_owned())
    );
}

#[tokio::test]
async fn steps_on_the_wrong_columns_are_refused() {
    let table = [("a", floats([Some(1.0)])), ("c", texts(&[Some("x")]))];
    let all = || step("categories", &["c"]);
    for (steps, expected) in [
        (vec![step("impute", &["b"])], "column `b` is not a feature"),
        (vec![step("impute", &["c"])], "column `c` is text"),
        (vec![step("categories", &["a"])], "column `a` is numeric"),
        (
            vec![all(), step("min_max", &["a", "a"])],
            "column `a` is listed twice",
        ),
        (vec![], "no step turns the text of column `c` into numbers"),
    ] {
        let message = failure(&table, steps).await;
        assert!(
            message.starts_with("`dataset.step`: ") && message.contains(expected),
            "{message}"
        );
    }
}

#[tokio::test]
async fn a_split_without_rows_is_refused() {
    let table = [("a", floats([]))];
    let message = failure(&table, vec![]).await;
    assert!(
        message.starts_with("cannot use the training split: it has no rows; "),
        "{message}"
    );
}

#[tokio::test]
async fn a_split_of_another_length_than_announced_is_refused() {
    let table = [("a", floats([Some(1.0), Some(2.0)]))];
    let split = TrainSplit::from_frame(split(&table, 1).frame(), 3);
    let message = fit(&split, &spec(&table, default_steps(&["a"])))
        .await
        .unwrap_err()
        .to_string();
    assert!(
        message.contains("its rows changed while it was read: a pass saw 2 rows, the split has 3"),
        "{message}"
    );
}

#[tokio::test]
async fn the_plan_and_the_transform_compute_the_same_cells() {
    let values = messy(500, 4);
    let table = [("a", floats(values))];
    let artefact = fitted(&table, default_steps(&["a"])).await;
    let plan = aggregates::cell(ident("a"), &op_chain(&artefact.steps, "a")).alias("a");
    let rows = split(&table, 1)
        .frame()
        .select(vec![plan])
        .unwrap()
        .collect()
        .await
        .unwrap();
    let of_plan: Vec<f64> = rows
        .iter()
        .flat_map(|b| crate::transform::cells(floats_of(b)).into_iter())
        .collect();
    let x = applied(&artefact, &table).x;
    #[expect(clippy::cast_possible_truncation, reason = "the transform rounds so")]
    let rounded: Vec<u32> = of_plan.iter().map(|x| (*x as f32).to_bits()).collect();
    assert_eq!(rounded, x.iter().map(|x| x.to_bits()).collect::<Vec<_>>());
}

fn floats_of(batch: &RecordBatch) -> &Float64Array {
    batch.column(0).as_any().downcast_ref().unwrap()
}
