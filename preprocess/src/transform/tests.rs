use std::sync::Arc;

use datafusion::arrow::{
    array::{ArrayRef, Float64Array, StringArray},
    compute::cast,
    datatypes::DataType,
};
use feedline_schemas::{
    decode,
    format::TRANSFORM,
    transform::{
        CategoryEncoding, FittedCategories, FittedFrequency, FittedImpute, FittedMinMax,
        FittedStandardize, FittedStep, FittedWinsorize, ImputeStatistic, InputColumn, InputKind,
    },
};

use super::*;

mod far_outside;

fn numeric(name: &str) -> InputColumn {
    InputColumn {
        name: name.into(),
        kind: InputKind::Numeric,
    }
}

fn categorical(name: &str) -> InputColumn {
    InputColumn {
        name: name.into(),
        kind: InputKind::Categorical,
    }
}

fn fill(name: &str, value: f64, indicator: bool) -> FittedStep {
    let columns = vec![FittedImpute {
        name: name.into(),
        value,
        statistic: ImputeStatistic::Constant,
        missing: 0,
        indicator,
    }];
    FittedStep::Impute { columns }
}

fn clip(name: &str, low: f64, high: f64) -> FittedStep {
    let columns = vec![FittedWinsorize {
        name: name.into(),
        lower: 0.01,
        upper: 0.99,
        low,
        high,
        clipped_low: 0,
        clipped_high: 0,
        groups: None,
    }];
    FittedStep::Winsorize { columns }
}

fn standardize(name: &str, mean: f64, scale: f64) -> FittedStep {
    FittedStep::Standardize {
        columns: vec![FittedStandardize {
            name: name.into(),
            mean,
            deviation: scale,
            scale,
            constant: false,
            groups: None,
        }],
    }
}

fn categories(name: &str, values: &[&str], encoding: CategoryEncoding) -> FittedStep {
    let values: Vec<String> = values.iter().map(|v| (*v).to_owned()).collect();
    FittedStep::Categories {
        columns: vec![FittedCategories::new(
            name.into(),
            values.clone(),
            vec![1; values.len()],
            encoding,
        )],
    }
}

fn artefact(
    inputs: Vec<InputColumn>,
    steps: Vec<FittedStep>,
    target: Option<FittedTarget>,
) -> TransformArtefact {
    let mut artefact = TransformArtefact {
        format: TRANSFORM.format.into(),
        version: TRANSFORM.version,
        hash: feedline_schemas::ids::Hash128::new(0),
        fitted_rows: 1,
        null_values: vec![],
        missing_values: vec![],
        features: layout(&inputs, &steps).unwrap(),
        inputs,
        steps,
        target,
        other_targets: Vec::new(),
        characters: None,
        images: None,
        tokens: None,
        signs: None,
    };
    artefact.hash = artefact.compute_hash();
    artefact
}

fn transform(
    inputs: Vec<InputColumn>,
    steps: Vec<FittedStep>,
    target: Option<FittedTarget>,
) -> Transform {
    Transform::new(artefact(inputs, steps, target)).unwrap()
}

fn floats(values: &[Option<f64>]) -> ArrayRef {
    Arc::new(Float64Array::from(values.to_vec()))
}

fn texts(values: &[Option<&str>]) -> ArrayRef {
    Arc::new(StringArray::from(values.to_vec()))
}

fn batch(columns: &[(&str, ArrayRef)]) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(
        columns
            .iter()
            .map(|(name, array)| (*name, Arc::clone(array), true)),
    )
    .unwrap()
}

fn reasons(applied: &Applied) -> Vec<(usize, &'static str)> {
    applied
        .bad
        .iter()
        .map(|(row, reason, _)| (*row, *reason))
        .collect()
}

#[test]
fn columns_are_bound_by_name_and_laid_out_in_the_order_of_the_inputs() {
    let steps = vec![
        fill("b", 7.0, true),
        clip("b", 0.0, 8.0),
        standardize("b", 1.0, 2.0),
        categories("c", &["x", "y"], CategoryEncoding::OneHot),
        categories("d", &["p"], CategoryEncoding::Ordinal),
    ];
    let inputs = vec![
        categorical("c"),
        numeric("b"),
        categorical("d"),
        numeric("a"),
    ];
    let transform = transform(inputs, steps, None);
    let names: Vec<&str> = transform
        .artefact()
        .features
        .iter()
        .map(|f| f.name.as_str())
        .collect();
    assert_eq!(
        names,
        [
            "c=__unknown__",
            "c=__null__",
            "c=x",
            "c=y",
            "b",
            "b__missing",
            "d",
            "a"
        ]
    );
    let applied = transform
        .apply(&batch(&[
            ("a", floats(&[Some(1.5), Some(-0.0), Some(3.0)])),
            ("unused", floats(&[None, None, None])),
            ("b", floats(&[Some(5.0), None, Some(f64::INFINITY)])),
            ("c", texts(&[Some("y"), None, Some("z")])),
            ("d", texts(&[Some("p"), None, Some("q")])),
        ]))
        .unwrap();
    #[rustfmt::skip]
    let expected = [
        0.0, 0.0, 0.0, 1.0, 2.0, 0.0, 2.0, 1.5,
        0.0, 1.0, 0.0, 0.0, 3.0, 1.0, 1.0, 0.0,
        1.0, 0.0, 0.0, 0.0, 3.5, 0.0, 0.0, 3.0,
    ];
    let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&applied.x), bits(&expected), "{:?}", applied.x);
    assert_eq!((applied.bad, applied.y), (vec![], None));
}

#[test]
fn trap_41_one_row_gives_the_bits_of_the_whole_batch() {
    let steps = vec![
        fill("a", 0.1, false),
        clip("a", -0.9, 0.9),
        standardize("a", 0.123, 0.456),
    ];
    let transform = transform(vec![numeric("a")], steps, None);
    let values: Vec<Option<f64>> = (0..1000)
        .map(|i| (i % 11 > 0).then(|| f64::from(i).sin()))
        .collect();
    let whole = transform.apply(&batch(&[("a", floats(&values))])).unwrap();
    for (row, value) in values.iter().enumerate() {
        let single = transform
            .apply(&batch(&[("a", floats(&[*value]))]))
            .unwrap();
        assert_eq!(single.x[0].to_bits(), whole.x[row].to_bits(), "{row}");
    }
    // A slice of a batch starts inside its buffers.
    let sliced = transform
        .apply(&batch(&[("a", floats(&values))]).slice(13, 40))
        .unwrap();
    assert_eq!(sliced.x, whole.x[13..53]);
}

#[test]
fn cells_that_cannot_be_stored_make_their_row_bad_and_leave_no_trace() {
    let transform = transform(
        vec![numeric("a"), numeric("b")],
        vec![standardize("b", 0.0, 1e-30)],
        None,
    );
    let applied = transform
        .apply(&batch(&[
            (
                "a",
                floats(&[
                    Some(1.0),
                    None,
                    Some(f64::NAN),
                    Some(f64::NEG_INFINITY),
                    Some(1e39),
                    None,
                ]),
            ),
            (
                "b",
                floats(&[
                    Some(1e-30),
                    Some(0.0),
                    Some(0.0),
                    Some(0.0),
                    Some(0.0),
                    Some(1e30),
                ]),
            ),
        ]))
        .unwrap();
    assert_eq!(
        reasons(&applied),
        [
            (1, "missing_value"),
            (2, "missing_value"),
            (3, "not_finite"),
            (4, "too_large"),
            (5, "missing_value")
        ]
    );
    assert_eq!(
        applied.x,
        [1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    );
    assert_eq!(
        applied.bad[0].2,
        "column `a` has no value and no `impute` step fills it"
    );
    assert_eq!(
        applied.bad[3].2,
        "column `a` is `1e39` after all steps, beyond the range of 32-bit floats"
    );
}

#[test]
fn a_regression_target_is_scaled_and_can_be_unscaled() {
    let target = FittedTarget::Regression {
        column: "y".into(),
        mean: 10.0,
        scale: 4.0,
        offset: 10.0,
    };
    let transform = transform(vec![numeric("a")], vec![], Some(target.clone()));
    let a = || ("a", floats(&[Some(0.0); 4]));
    let y = (
        "y",
        floats(&[Some(18.0), Some(f64::INFINITY), None, Some(10.0)]),
    );
    let applied = transform.apply(&batch(&[a(), y])).unwrap();
    assert_eq!(
        applied.y,
        Some(TargetValues::Regression(vec![2.0, 0.0, 0.0, 0.0]))
    );
    assert_eq!(
        reasons(&applied),
        [(1, "not_finite"), (2, "target_missing")]
    );
    assert_eq!(transform.apply(&batch(&[a()])).unwrap().y, None);
    assert_eq!(transform.unscale(2.0), Some(18.0));
}

#[test]
fn a_class_that_was_not_in_train_makes_the_row_bad() {
    let target = FittedTarget::Classification {
        column: "y".into(),
        classes: vec!["no".into(), "yes".into()],
        counts: vec![2, 1],
    };
    let transform = transform(vec![numeric("a")], vec![], Some(target));
    let y = texts(&[Some("yes"), Some("maybe"), None, Some("no")]);
    let applied = transform
        .apply(&batch(&[("a", floats(&[Some(0.0); 4])), ("y", y)]))
        .unwrap();
    assert_eq!(
        applied.y,
        Some(TargetValues::Classification(vec![1, 0, 0, 0]))
    );
    assert_eq!(
        reasons(&applied),
        [(1, "unknown_class"), (2, "target_missing")]
    );
    assert_eq!(
        applied.bad[0].2,
        "column `y`: class `maybe` does not occur in the training split"
    );
}

#[test]
fn a_batch_without_a_column_or_with_another_type_is_refused() {
    let transform = transform(vec![numeric("a")], vec![], None);
    let message = |batch: &RecordBatch| transform.apply(batch).unwrap_err().to_string();
    assert_eq!(
        message(&batch(&[("b", floats(&[None]))])),
        "cannot use the rows to transform: they lack column `a`, which the transform was fitted on; give all columns of \
         the training data, with null where a value is missing"
    );
    let wrong = message(&batch(&[("a", texts(&[Some("1")]))]));
    assert!(
        wrong.contains("column `a` is Utf8, the transform was fitted on a column of 64-bit floats"),
        "{wrong}"
    );
}

#[test]
fn text_of_every_layout_is_read_alike() {
    let transform = transform(
        vec![categorical("c")],
        vec![categories("c", &["x"], CategoryEncoding::Ordinal)],
        None,
    );
    for layout in [DataType::Utf8View, DataType::LargeUtf8] {
        let column = cast(&texts(&[Some("x"), None, Some("")]), &layout).unwrap();
        assert_eq!(
            transform.apply(&batch(&[("c", column)])).unwrap().x,
            [2.0, 1.0, 0.0]
        );
    }
}

#[test]
fn an_empty_batch_gives_nothing() {
    let transform = transform(vec![numeric("a")], vec![], None);
    let applied = transform.apply(&batch(&[("a", floats(&[]))])).unwrap();
    assert_eq!(
        applied,
        Applied {
            x: vec![],
            y: None,
            bad: vec![],
            infinite: BTreeMap::new(),
            capped: BTreeMap::new(),
            unknown: BTreeMap::new(),
        }
    );
}

#[test]
fn an_edited_artefact_is_refused() {
    let good = artefact(vec![numeric("a")], vec![standardize("a", 1.0, 2.0)], None);
    let mut edited = good.clone();
    edited.steps = vec![standardize("a", 1.0, 2.5)];
    let message = Transform::new(edited).unwrap_err().to_string();
    assert!(
        message.starts_with("cannot use the transform artefact: its content has hash `"),
        "{message}"
    );
    let mut contradictory = good;
    contradictory.features[0].name = "b".into();
    contradictory.hash = contradictory.compute_hash();
    let message = Transform::new(contradictory).unwrap_err().to_string();
    assert!(
        message.contains("its features are not those its steps make"),
        "{message}"
    );
}

#[test]
fn an_artefact_survives_its_file_bit_by_bit() {
    // Numbers whose shortest decimal form a hasty parser misses by one bit.
    let numbers = (0..2000u64).map(|i| {
        f64::from_bits(0x3fe0_0000_0000_0000 ^ i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 3)
    });
    let steps: Vec<FittedStep> = numbers
        .filter(|x| x.is_finite())
        .map(|x| standardize("a", x, 5e-324))
        .collect();
    let original = artefact(vec![numeric("a")], steps, None);
    let read: TransformArtefact =
        decode("transform.json", &feedline_schemas::encode(&original)).unwrap();
    assert_eq!(read, original);
    assert!(Transform::new(read).is_ok());
}

#[test]
fn features_that_would_share_a_name_are_refused() {
    let layout = layout(
        &[numeric("a"), numeric("a__missing")],
        &[fill("a", 0.0, true)],
    );
    assert_eq!(
        layout,
        Err("two features would be named `a__missing`".to_owned())
    );
    let plain = super::layout(&[categorical("c")], &[]);
    assert_eq!(
        plain,
        Err("no step turns the text of column `c` into numbers".to_owned())
    );
}

#[test]
fn values_of_a_category_that_spell_another_feature_are_refused_where_they_are_fitted() {
    let c = |values: &[&str]| categories("c", values, CategoryEncoding::OneHot);
    let check = |inputs: &[InputColumn], steps: &[FittedStep], expected: &str| {
        let found = new_layout(inputs, steps).unwrap_err();
        assert!(found.starts_with(expected), "{found}");
    };
    check(
        &[categorical("c")],
        &[c(&["a", "__null__"])],
        "two features would be named `c=__null__`: missing values of column `c` and the value `__null__` of column `c`; ",
    );
    check(
        &[numeric("c=b"), categorical("c")],
        &[c(&["b"])],
        "two features would be named `c=b`: column `c=b` and the value `b` of column `c`; ",
    );
    check(
        &[numeric("a"), numeric("a__missing")],
        &[fill("a", 0.0, true)],
        "two features would be named `a__missing`: the indicator of missing cells of column `a` and column `a__missing`; leave one \
         of the columns out with `dataset.drop`, rename it, or remove `indicator = true`",
    );
    let inputs = [numeric("c=d"), categorical("c")];
    assert_eq!(
        new_layout(&inputs, &[c(&["b"])]),
        layout(&inputs, &[c(&["b"])])
    );
    // Existing artefacts of this kind stay usable.
    let there = artefact(
        vec![numeric("c=b"), categorical("c")],
        vec![c(&["b"])],
        None,
    );
    assert!(Transform::new(there).is_ok());
}

#[test]
fn a_finite_cell_that_a_logarithm_cannot_take_is_bad_for_that_reason() {
    use feedline_schemas::{
        config::PowerMethod,
        transform::{FittedLog1p, FittedPower},
    };
    let log = || FittedStep::Log1p {
        columns: vec![FittedLog1p { name: "a".into() }],
    };
    let power = |method, lambda| FittedStep::Power {
        columns: vec![FittedPower {
            name: "a".into(),
            method,
            lambda,
            constant: false,
        }],
    };
    let check = |steps: Vec<FittedStep>, cell: f64, expected: &str| {
        let transform = transform(vec![numeric("a")], steps, None);
        let rows = batch(&[("a", floats(&[Some(2.0), Some(cell)]))]);
        let applied = transform.apply(&rows).unwrap();
        assert_eq!(reasons(&applied), [(1, "not_finite")]);
        assert!(
            applied.bad[0].2.starts_with(expected),
            "{:?}",
            applied.bad[0]
        );
    };
    let log1p = "column `a` is `-5.0` where `log1p` takes it, which knows only numbers above -1; ";
    check(vec![log()], -5.0, log1p);
    check(vec![standardize("a", 0.0, 2.0), log()], -10.0, log1p);
    let box_cox = |cell: &str| {
        format!(
            "column `a` is `{cell}` where `box_cox` takes it, which knows only numbers above 0; "
        )
    };
    let steps = || vec![power(PowerMethod::BoxCox, 0.0), standardize("a", 1.0, 2.0)];
    check(steps(), -1.0, &box_cox("-1.0"));
    check(steps(), 0.0, &box_cox("0.0"));
    check(
        vec![log()],
        f64::INFINITY,
        "column `a` is infinite and nothing caps it",
    );
    check(
        vec![power(PowerMethod::YeoJohnson, 9.0)],
        1e300,
        "column `a` is `1e300` as it landed and becomes infinite in the steps",
    );
}

#[test]
fn min_max_of_a_flat_column_is_zero() {
    let flat = FittedStep::MinMax {
        columns: vec![FittedMinMax {
            name: "a".into(),
            min: 3.0,
            max: 3.0,
            clip: false,
        }],
    };
    let transform = transform(vec![numeric("a")], vec![flat], None);
    assert_eq!(
        transform
            .apply(&batch(&[("a", floats(&[Some(3.0), Some(99.0)]))]))
            .unwrap()
            .x,
        [0.0, 0.0]
    );
}

#[test]
fn trap_05_rows_to_predict_with_an_unknown_category_are_bad_where_the_step_says_so() {
    let long = "w".repeat(1000);
    let rows = batch(&[("k", texts(&[Some("x"), None, Some("new"), Some(&long)]))]);
    for encoding in [
        CategoryEncoding::OneHot,
        CategoryEncoding::Ordinal,
        CategoryEncoding::Frequency,
    ] {
        let mut step = categories("k", &["x"], encoding);
        if let FittedStep::Categories { columns } = &mut step {
            columns[0].rejects_unknown = true;
            columns[0].frequency = Some(FittedFrequency {
                rows: 2,
                missing: 1,
            });
        }
        let transform = transform(vec![categorical("k")], vec![step], None);
        let applied = transform.apply(&rows).unwrap();
        assert_eq!(
            reasons(&applied),
            [(2, "unknown_category"), (3, "unknown_category")]
        );
        let details: Vec<&str> = applied.bad.iter().map(|bad| bad.2.as_str()).collect();
        assert_eq!(
            details[0],
            "column `k`: category `new` does not occur in the training split"
        );
        assert!(details[1].len() < 200, "{details:?}");
    }
}
