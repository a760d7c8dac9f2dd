//! New rows far outside of the training rows.

use feedline_schemas::transform::{FittedCapGroups, FittedCaps, FittedRobust};

use super::*;

#[test]
fn new_rows_beyond_caps_are_found_and_those_far_outside_of_them() {
    let mut caps = clip("a", 1.0, 2.0);
    if let FittedStep::Winsorize { columns } = &mut caps {
        columns[0].clipped_high = 1;
    }
    let transform = transform(vec![numeric("a")], vec![caps], None);
    let cells = floats(&[Some(1.5), Some(0.5), Some(2.0), Some(9.0), None]);
    let [far, capped] = transform.rows_outside(&batch(&[("a", cells)])).unwrap();
    assert_eq!(far["a"], [3]);
    assert_eq!(capped["a"], [1, 3]);
    let of_caps = ["a", "b"].map(|name| transform.has_caps_as_bounds(name));
    assert_eq!(of_caps, [true, false]);
    // One row was fitted.
    let artefact = transform.artefact();
    let trained = ["a", "b"].map(|name| crate::capped_in_train(artefact, name).to_bits());
    assert_eq!(trained, [1.0_f64, 0.0].map(f64::to_bits));
}

#[test]
fn new_rows_are_compared_with_the_caps_of_their_group() {
    let mut caps = clip("a", 0.0, 10.0);
    if let FittedStep::Winsorize { columns } = &mut caps {
        let own = FittedCaps {
            rows: 9,
            low: 1000.0,
            high: 2000.0,
            clipped_low: 0,
            clipped_high: 0,
        };
        columns[0].groups = Some(FittedCapGroups {
            by: "g".into(),
            min_count: 1,
            caps: [("x".to_owned(), own)].into(),
        });
    }
    let groups = categories("g", &["x"], CategoryEncoding::OneHot);
    let transform = transform(
        vec![numeric("a"), categorical("g")],
        vec![caps, groups],
        None,
    );
    let cells = floats(&[Some(1500.0), Some(-5.0), Some(1500.0), Some(5.0), Some(5.0)]);
    let of = texts(&[Some("x"), Some("x"), Some("y"), Some("y"), None]);
    let rows = batch(&[("a", cells), ("g", of)]);
    let [far, capped] = transform.rows_outside(&rows).unwrap();
    assert_eq!(far["a"], [1, 2]);
    assert!(capped.is_empty());
    assert!(transform.has_caps_as_bounds("a"));
}

#[test]
fn caps_after_a_step_that_knows_the_range_are_no_bounds() {
    let min_max = FittedStep::MinMax {
        columns: vec![FittedMinMax {
            name: "a".into(),
            min: 0.0,
            max: 1.0,
            clip: false,
        }],
    };
    let transform = transform(vec![numeric("a")], vec![min_max, clip("a", 0.2, 0.8)], None);
    assert!(!transform.has_caps_as_bounds("a"));
}

/// Rows of `cells` that are far outside of `fitted_rows` training rows by `step`.
fn far_outside(step: FittedStep, fitted_rows: u64, cells: &[f64]) -> Vec<usize> {
    let mut fitted = artefact(vec![numeric("a")], vec![step], None);
    fitted.fitted_rows = fitted_rows;
    fitted.hash = fitted.compute_hash();
    let cells: Vec<Option<f64>> = cells.iter().map(|cell| Some(*cell)).collect();
    let rows = batch(&[("a", floats(&cells))]);
    let [mut far, _] = Transform::new(fitted).unwrap().rows_outside(&rows).unwrap();
    far.remove("a").unwrap_or_default()
}

#[test]
fn a_rare_1_of_a_column_of_0_and_1_is_inside() {
    // One row of a thousand, and one of a million, has a 1.
    for mean in [1e-3_f64, 1e-6] {
        let step = standardize("a", mean, (mean * (1.0 - mean)).sqrt());
        assert_eq!(far_outside(step, 100, &[0.0, 1.0, 2.5, -1.5]), [2, 3]);
    }
}

#[test]
fn bounds_of_standardize_have_all_training_rows_inside() {
    // One row of a thousand has 7, the others 0.
    let (mean, rest) = (7.0_f64 / 1000.0, 999.0_f64 / 1000.0);
    let deviation = 7.0 * (rest / 1000.0).sqrt();
    let step = standardize("a", mean, deviation);
    assert_eq!(far_outside(step, 1000, &[0.0, 7.0, 8.0]), [2]);
    // Of few rows the bounds are 10 deviations away, of very many 100.
    for (rows, deviations) in [(4, 10.0), (1_000_000, 100.0)] {
        let step = standardize("a", 0.0, 1.0);
        let cells = [deviations - 0.5, deviations + 0.5];
        assert_eq!(far_outside(step, rows, &cells), [1], "{rows}");
    }
}

fn robust(constant: bool) -> FittedStep {
    let column = FittedRobust {
        name: "a".into(),
        lower: 0.25,
        upper: 0.75,
        median: 1.0,
        low: 0.5,
        high: 2.0,
        scale: 1.5,
        constant,
    };
    FittedStep::Robust {
        columns: vec![column],
    }
}

#[test]
fn numbers_a_thousand_spreads_of_robust_from_the_median_are_far_outside() {
    let cells = [1.0, 1500.0, 1502.0, -1498.0, -1500.0];
    assert_eq!(far_outside(robust(false), 100, &cells), [2, 4]);
    assert!(far_outside(robust(true), 100, &[1e6]).is_empty());
}

#[test]
fn bounds_of_standardize_are_better_than_those_of_robust_before_it() {
    let steps = vec![robust(false), standardize("a", 0.0, 2.0)];
    let mut fitted = artefact(vec![numeric("a")], steps, None);
    fitted.fitted_rows = 100;
    fitted.hash = fitted.compute_hash();
    // 10 deviations of the number that `robust` gives, which is 20 spreads.
    let rows = batch(&[("a", floats(&[Some(30.0), Some(32.0)]))]);
    let [far, _] = Transform::new(fitted).unwrap().rows_outside(&rows).unwrap();
    assert_eq!(far["a"], [1]);
}
