//! Features against a plain reference, and what they may depend on.
#![expect(
    clippy::cast_precision_loss,
    reason = "times and counts of tests are small"
)]

use std::sync::Arc;

use arrow::{
    array::{
        ArrayRef, AsArray, FixedSizeBinaryArray, Float64Array, Int64Array, RecordBatch,
        StringArray, UInt64Array,
    },
    datatypes::{DataType, Field, Float64Type, Int64Type, Schema},
};
use feedline_schemas::{
    config::Closed,
    record::ColumnType::{self, Float64, Int64, Utf8},
};
use proptest::prelude::*;

use super::{
    features::{Feature, FeatureKind, REACH},
    operator::Operator,
    window::Span,
    *,
};
use crate::{
    Error,
    schema::{
        column_roles,
        landed_columns::MergedColumn,
        reject_reason::{self, Reason},
        system_columns::{self, column},
    },
    testing::pipeline,
};

const LANDED: [(&str, ColumnType); 5] = [
    ("t", Int64),
    ("when", Utf8),
    ("v", Float64),
    ("y", Float64),
    ("who", Utf8),
];
pub(super) const TIMED: &str =
    "split = { by = \"range\" }\nseries = { time = \"t\", unit = \"us\", entity = [\"who\"]";

pub(super) fn resolved(dataset: &str) -> Result<Arc<Series>, Error> {
    let columns = LANDED.map(|(name, r#type)| MergedColumn {
        name: name.into(),
        r#type,
    });
    let config = pipeline(dataset).dataset.unwrap();
    column_roles::resolve(&config, &columns).map(|spec| spec.series.unwrap())
}

/// Series with these further keys and features.
fn series(keys: &str, features: &[&str]) -> Arc<Series> {
    let features: Vec<String> = features
        .iter()
        .enumerate()
        .map(|(i, feature)| format!("{{ name = \"f{i}\", {feature} }}"))
        .collect();
    let features = features.join(", ");
    resolved(&format!("{TIMED}{keys} }}\nfeature = [{features}]")).unwrap()
}

/// A row: its entity, its time and its value.
type Reading = (u8, i64, Option<f64>);

fn batch(rows: &[Reading], first: usize) -> RecordBatch {
    let entities = rows.iter().map(|row| [row.0; 16]);
    let origins = (first..first + rows.len()).map(|origin| origin as u64);
    let columns: Vec<(&str, ArrayRef)> = vec![
        (
            system_columns::ORIGIN,
            Arc::new(UInt64Array::from_iter_values(origins)),
        ),
        (
            system_columns::REJECT,
            Arc::new(StringArray::new_null(rows.len())),
        ),
        (
            ENTITY,
            Arc::new(FixedSizeBinaryArray::try_from_iter(entities).unwrap()),
        ),
        (
            TIME,
            Arc::new(rows.iter().map(|row| Some(row.1)).collect::<Int64Array>()),
        ),
        (
            "_series_0",
            Arc::new(rows.iter().map(|row| row.2).collect::<Float64Array>()),
        ),
    ];
    let columns = columns.into_iter().map(|(name, cells)| (name, cells, true));
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

/// Runs the operator over rows, which are in order and come in batches of `size`.
fn run(series: &Arc<Series>, rows: &[Reading], size: usize) -> Result<RecordBatch, Error> {
    let input = batch(&rows[..1], 0).schema();
    let schema = Arc::new(series.schema(&input));
    let mut operator = Operator::new(Arc::clone(series), Arc::clone(&schema));
    let mut made = Vec::new();
    for (i, chunk) in rows.chunks(size).enumerate() {
        made.extend(operator.take(batch(chunk, i * size))?);
    }
    made.extend(operator.finish()?);
    Ok(arrow::compute::concat_batches(&schema, &made).unwrap())
}

fn cells(batch: &RecordBatch, name: &str) -> Vec<Option<f64>> {
    column(batch, name)
        .as_primitive::<Float64Type>()
        .iter()
        .collect()
}

fn bits(cells: &[Option<f64>]) -> Vec<Option<u64>> {
    cells.iter().map(|cell| cell.map(f64::to_bits)).collect()
}

/// The feature over readings of one entity at times 0, 10, 20, ...
fn check(feature: &str, values: &[Option<f64>], expected: &[Option<f64>]) {
    let rows: Vec<Reading> = (0..).zip(values).map(|(i, v)| (1, i * 10, *v)).collect();
    let made = run(&series("", &[feature]), &rows, 2).unwrap();
    assert_eq!(cells(&made, "f0"), expected, "{feature}");
}

const KINDS: [&str; 17] = [
    "type = \"rolling_mean\", column = \"v\", rows = 3, min_periods = 1",
    "type = \"rolling_mean\", column = \"v\", window = \"40us\", closed = \"right\"",
    "type = \"rolling_std\", column = \"v\", rows = 5, min_periods = 2",
    "type = \"rolling_std\", column = \"v\", window = \"60us\"",
    "type = \"rolling_min\", column = \"v\", rows = 4, min_periods = 2",
    "type = \"rolling_max\", column = \"v\", window = \"35us\"",
    "type = \"momentum\", column = \"v\", rows = 4, min_periods = 2",
    "type = \"momentum\", column = \"v\", window = \"50us\", closed = \"right\"",
    "type = \"lag\", column = \"v\", rows = 2",
    "type = \"lag\", column = \"v\", window = \"25us\"",
    "type = \"difference\", column = \"v\", rows = 2",
    "type = \"difference\", column = \"v\", window = \"25us\", closed = \"right\"",
    "type = \"forward_fill\", column = \"v\"",
    "type = \"forward_fill\", column = \"v\", rows = 2",
    "type = \"interpolate\", column = \"v\", window = \"30us\"",
    "type = \"interpolate\", column = \"v\", rows = 3",
    "type = \"calendar\", part = \"second\"",
];

/// The same, the long way: every window is looked up and summed again.
fn reference(feature: &Feature, rows: &[Reading], i: usize) -> Option<f64> {
    let place = |i: usize| match feature.span {
        Some(Span::Rows(_)) => i64::try_from(i).unwrap(),
        _ => rows[i].1,
    };
    let length = match feature.span {
        Some(Span::Rows(length) | Span::Time(length)) => length,
        None => i64::MAX / 4,
    };
    let right = feature.closed == Closed::Right;
    let in_window = |j: &usize| match right {
        true => *j <= i && place(*j) > place(i) - length,
        false => *j < i && place(*j) >= place(i) - length,
    };
    let window: Vec<f64> = (0..rows.len())
        .filter(in_window)
        .filter_map(|j| rows[j].2)
        .collect();
    let count = window.len() as f64;
    let mean = window.iter().sum::<f64>() / count;
    let lag = |i: usize| {
        let mut old = (0..i).rev();
        old.find(|j| place(*j) <= place(i) - length)
            .and_then(|j| rows[j].2)
    };
    let fits = window.len() >= feature.least;
    match feature.kind {
        FeatureKind::RollingMean => fits.then_some(mean),
        FeatureKind::RollingStd => {
            let squares: f64 = window.iter().map(|v| (v - mean) * (v - mean)).sum();
            fits.then(|| (squares / (count - 1.0)).sqrt())
        }
        FeatureKind::RollingMin => window.iter().copied().reduce(f64::min).filter(|_| fits),
        FeatureKind::RollingMax => window.iter().copied().reduce(f64::max).filter(|_| fits),
        FeatureKind::Momentum => fits.then(|| window[window.len() - 1] - window[0]),
        FeatureKind::Lag => lag(i),
        FeatureKind::Difference => {
            let at = if right { Some(i) } else { i.checked_sub(1) }?;
            Some(rows[at].2? - lag(at)?)
        }
        FeatureKind::ForwardFill | FeatureKind::Interpolate => {
            let near = |j: &usize| place(i) - place(*j) <= length;
            let mut seen = (0..i)
                .rev()
                .filter(|j| rows[*j].2.is_some() && near(j))
                .map(|j| rows[j]);
            let here = rows[i].2;
            let (a, b) = (seen.next(), seen.next());
            let line = |a: Reading, b: Reading| {
                let slope = (a.2? - b.2?) / (a.1 - b.1) as f64;
                Some(a.2? + slope * (rows[i].1 - a.1) as f64)
            };
            here.or_else(|| match feature.kind {
                FeatureKind::ForwardFill => a?.2,
                _ => line(a?, b?),
            })
        }
        FeatureKind::Calendar(_) => Some(rows[i].1.div_euclid(1_000_000).rem_euclid(60) as f64),
    }
}

/// Readings of one entity in order, and where they are cut into batches.
fn readings() -> impl Strategy<Value = (Vec<Reading>, usize)> {
    let value = prop_oneof![
        1 => Just(None),
        4 => (-1000.0..1000.0_f64).prop_map(Some),
    ];
    let step = prop_oneof![4 => 1..20_i64, 1 => 20..200_i64];
    let rows = prop::collection::vec((step, value), 1..60).prop_map(|rows| {
        let mut time = 0;
        let timed = rows.into_iter().map(|(step, value)| {
            time += step;
            (1, time, value)
        });
        timed.collect::<Vec<Reading>>()
    });
    (rows, 1..20_usize)
}

proptest! {
    #[test]
    fn features_are_those_of_windows_that_are_summed_anew((rows, size) in readings()) {
        let series = series("", &KINDS);
        let made = run(&series, &rows, size).unwrap();
        for feature in &series.features {
            let found = cells(&made, &feature.name);
            for (i, found) in found.iter().enumerate() {
                let expected = reference(feature, &rows, i);
                prop_assert_eq!(found.is_some(), expected.is_some(), "{:?} row {}", feature, i);
                let (found, expected) = (found.unwrap_or(0.0), expected.unwrap_or(0.0));
                // Values are up to 1,000, a line through two of them goes further.
                let limit = 1e-9 * expected.abs().max(1e3);
                prop_assert!((found - expected).abs() <= limit, "{:?}: {} {}", feature, found, expected);
            }
        }
    }

    #[test]
    fn trap_23_rows_from_an_instant_on_change_no_feature_before_it(
        (rows, size) in readings(),
        (others, other_size) in readings(),
        at in 0..60_usize,
    ) {
        let series = series("", &KINDS);
        let kept = at.min(rows.len());
        let now = rows[..kept].last().map_or(0, |row| row.1);
        let mut changed = rows[..kept].to_vec();
        changed.extend(others.iter().map(|(who, time, value)| (*who, now + time, *value)));
        let (one, other) = (run(&series, &rows, size).unwrap(), run(&series, &changed, other_size).unwrap());
        for feature in &series.features {
            let [one, other] = [&one, &other].map(|made| bits(&cells(made, &feature.name)[..kept]));
            prop_assert_eq!(one, other, "{:?}", feature);
        }
    }
}

#[test]
fn what_has_left_a_window_leaves_no_trace() {
    let inf = f64::INFINITY;
    let values = [1.0, 2.0, 3.0, 1e16, 5.0, 6.0, 7.0, 8.0].map(Some);
    let mean = "type = \"rolling_mean\", column = \"v\", rows = 3, closed = \"right\"";
    let made = [None, None, Some(2.0)];
    let rows: Vec<Reading> = (0..).zip(values).map(|(i, v)| (1, i, v)).collect();
    let found = cells(&run(&series("", &[mean]), &rows, 3).unwrap(), "f0");
    assert_eq!(found[..3], made);
    assert_eq!(found[6..], [Some(6.0), Some(7.0)]);
    let deviation = "type = \"rolling_std\", column = \"v\", rows = 3, closed = \"right\"";
    let found = cells(&run(&series("", &[deviation]), &rows, 3).unwrap(), "f0");
    assert_eq!(found[6..], [Some(1.0), Some(1.0)]);
    let values = [Some(1.0), Some(inf), Some(3.0), Some(5.0), Some(7.0)];
    let pair = "column = \"v\", rows = 2, min_periods = 2";
    check(
        &format!("type = \"rolling_mean\", {pair}"),
        &values,
        &[None, None, Some(inf), Some(inf), Some(4.0)],
    );
    check(
        &format!("type = \"rolling_std\", {pair}"),
        &values,
        &[None, None, None, None, Some(2.0_f64.sqrt())],
    );
}

#[test]
fn trap_26_windows_are_of_time_and_too_few_values_make_none() {
    let series = series(
        "",
        &["type = \"rolling_mean\", column = \"v\", window = \"10us\", min_periods = 2"],
    );
    // Nothing is within reach behind the gap, whatever came before it.
    let rows: Vec<Reading> = [0, 5, 10, 100, 101, 102]
        .map(|time| (1, time, Some(time as f64)))
        .to_vec();
    let found = cells(&run(&series, &rows, 4).unwrap(), "f0");
    let expected = [None, None, Some(2.5), None, None, Some(100.5)];
    assert_eq!(found, expected);
}

#[test]
fn a_gap_beyond_the_longest_begins_the_series_anew_or_stops() {
    let lag = "type = \"lag\", column = \"v\", rows = 1";
    let rows = [
        (1, 0, Some(1.0)),
        (1, 5, Some(2.0)),
        (1, 16, Some(3.0)),
        (1, 26, None),
    ];
    let found = run(&series(", max_gap = \"10us\"", &[lag]), &rows, 2).unwrap();
    assert_eq!(cells(&found, "f0"), [None, Some(1.0), None, Some(3.0)]);
    let error = run(
        &series(", max_gap = \"10us\", gaps = \"error\"", &[lag]),
        &rows,
        2,
    );
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("row 1 of batch 0 of source 0 and row 2"),
        "{error}"
    );
}

#[test]
fn both_values_of_a_line_are_near_and_an_embargo_as_long_as_the_window_is_enough() {
    let of = |span: &str| format!("type = \"interpolate\", column = \"v\", {span}");
    let values = [Some(0.0), Some(1.0), None, None, None];
    let line = |last: [Option<f64>; 3]| [Some(0.0), Some(1.0), last[0], last[1], last[2]];
    check(&of("rows = 2"), &values, &line([Some(2.0), None, None]));
    let expected = line([Some(2.0), Some(3.0), None]);
    check(&of("window = \"30us\""), &values, &expected);
    check(&of("window = \"39us\""), &values, &expected);
    let rows: Vec<Reading> = (0..).zip(values).map(|(i, v)| (1, i * 10, v)).collect();
    let made = run(&series("", &[&of("window = \"30us\"")]), &rows, 2).unwrap();
    let reaches = column(&made, REACH).as_primitive::<Int64Type>().iter();
    for (row, reach) in rows.iter().zip(reaches) {
        assert!(reach.is_none_or(|reach| row.1 - reach <= 30), "{row:?}");
    }
}

#[test]
fn entities_do_not_see_each_other() {
    let rows = [
        (1, 0, Some(1.0)),
        (1, 5, Some(2.0)),
        (2, 6, Some(3.0)),
        (2, 7, Some(4.0)),
    ];
    let found = run(
        &series(
            "",
            &["type = \"rolling_max\", column = \"v\", window = \"1s\""],
        ),
        &rows,
        3,
    );
    assert_eq!(
        cells(&found.unwrap(), "f0"),
        [None, Some(1.0), None, Some(3.0)]
    );
}

#[test]
fn two_rows_at_one_instant_are_named_by_source_and_entity() {
    let mut series = series("", &["type = \"lag\", column = \"v\", rows = 1"]);
    Arc::make_mut(&mut series).sources = vec!["meters".into()];
    let rows = batch(&[(1, 0, Some(1.0)), (1, 5, None), (1, 5, None)], 0);
    let who: ArrayRef = Arc::new(StringArray::from(vec!["Ada", "Bo", "Bo"]));
    let fields = rows.schema();
    let fields = fields.fields().iter().map(|field| field.as_ref().clone());
    let input = Schema::new(
        fields
            .chain([Field::new("who", DataType::Utf8, true)])
            .collect::<Vec<_>>(),
    );
    let columns = rows.columns().iter().cloned().chain([who]).collect();
    let rows = RecordBatch::try_new(Arc::new(input.clone()), columns).unwrap();
    let schema = Arc::new(series.schema(&input));
    let error = Operator::new(series, schema).take(rows).unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("two rows of one entity (who = `Bo`) are at 1970-01-01T00:00:00.000005Z")
            && error.contains("(row 1 of batch 0 of `meters` and row 2 of batch 0 of `meters`)"),
        "{error}"
    );
}

#[test]
fn trap_25_rows_at_one_instant_are_one_by_rule() {
    let lag = "type = \"lag\", column = \"v\", rows = 1";
    let rows = [
        (1, 0, Some(1.0)),
        (1, 5, Some(2.0)),
        (1, 5, Some(4.0)),
        (1, 5, None),
        (1, 9, Some(7.0)),
    ];
    let error = run(&series("", &[lag]), &rows, 2).unwrap_err().to_string();
    assert!(
        error.contains("1970-01-01T00:00:00.000005Z")
            && error.contains("dataset.series.duplicates"),
        "{error}"
    );
    for (rule, stands) in [("first", 2.0), ("last", 2.0), ("mean", 3.0)] {
        for size in 1..6 {
            let series = series(&format!(", duplicates = \"{rule}\""), &[lag]);
            let made = run(&series, &rows, size).unwrap();
            let expected = [None, Some(1.0), None, None, Some(stands)];
            assert_eq!(cells(&made, "f0"), expected, "{rule} {size}");
            let reasons = column(&made, system_columns::REJECT).as_string::<i32>();
            let left: Vec<bool> = reasons.iter().map(|reason| reason.is_some()).collect();
            assert_eq!(left, [false, false, true, true, false]);
            assert_eq!(
                Reason::from_json(reasons.value(2)).reason,
                reject_reason::SAME_TIME
            );
        }
    }
}

#[test]
fn calendar_parts_end_with_the_year_9999() {
    const LAST: i64 = 253_402_300_799_999_999;
    let series = series(
        "",
        &[
            "type = \"calendar\", part = \"year\"",
            "type = \"calendar\", part = \"day\"",
            "type = \"calendar\", part = \"second\"",
        ],
    );
    let rows: Vec<Reading> = [LAST, LAST + 1].map(|time| (1, time, Some(1.0))).to_vec();
    let made = run(&series, &rows, 2).unwrap();
    for (name, part) in [("f0", 9999.0), ("f1", 31.0), ("f2", 59.0)] {
        assert_eq!(cells(&made, name), [Some(part), None], "{name}");
    }
}

#[test]
fn how_far_a_row_looks_back_is_told() {
    let series = series(
        "",
        &[
            "type = \"lag\", column = \"v\", rows = 1",
            "type = \"rolling_mean\", column = \"v\", window = \"8us\"",
            "type = \"calendar\", part = \"hour\"",
        ],
    );
    let rows: Vec<Reading> = [0, 5, 9, 30].map(|time| (1, time, Some(1.0))).to_vec();
    let made = run(&series, &rows, 9).unwrap();
    let reach = column(&made, REACH).as_primitive::<Int64Type>();
    let reach: Vec<Option<i64>> = reach.iter().collect();
    assert_eq!(reach, [None, Some(0), Some(5), Some(9)]);
}
