use std::slice;

use feedline_schemas::{expect::Expectations, transform::InputKind};

use super::{
    far::{FarColumns, far_from_training_rows},
    *,
};
use crate::warnings::with_appended;

#[test]
fn numbers_are_shown_without_the_digits_that_32_bits_have_made() {
    for (number, rounding, expected) in [
        (-0.000_000_102_938, 1e-6, "0"),
        (-199.999_991, 1e-4, "-200"),
        (0.500_000_02, 1e-6, "0.5"),
        (1234.5, 1e-4, "1234.5"),
    ] {
        assert_eq!(shown(number, rounding), expected);
    }
}

/// The message about a target that is -200 in `repeated` of 1,000 rows, and from 0 to `largest`
/// in the others.
fn warned(repeated: u16, largest: f32) -> Option<String> {
    warned_beside(repeated, largest, &[])
}

/// As [`warned`], where columns are `expected`.
fn warned_beside(repeated: u16, largest: f32, expected: &[ExpectedColumn]) -> Option<String> {
    warned_of(-200.0, repeated, largest, expected)
}

/// As [`warned_beside`], where `number` is repeated.
fn warned_of(
    number: f32,
    repeated: u16,
    largest: f32,
    expected: &[ExpectedColumn],
) -> Option<String> {
    let mut extremes = Extremes::default();
    let mut moments = ExactMoments::default();
    for row in 0..1000_u16 {
        let y = match row < repeated {
            true => number,
            false => f32::from(row % 11) / 10.0 * largest,
        };
        extremes.add_target(0, y);
        moments.add(f64::from(y));
    }
    let target = FittedTarget::Regression {
        column: "co".to_owned(),
        mean: 0.0,
        scale: 1.0,
        offset: 0.0,
    };
    let ends = extremes.targets[0].unwrap();
    let found = repeated_end(&target, (&ends, &moments), expected, "training row");
    found.map(|warning| warning.message)
}

#[test]
fn a_bound_that_allows_the_repeated_number_turns_the_warning_off() {
    let expected = |name: &str, min: Option<f64>, max: Option<f64>| ExpectedColumn {
        name: name.to_owned(),
        kind: InputKind::Numeric,
        required: false,
        min,
        max,
        max_missing_fraction: None,
        unique: false,
        values: None,
    };
    let is_warned = |expected: ExpectedColumn| warned_beside(180, 12.0, &[expected]).is_some();
    assert!(!is_warned(expected("co", Some(-200.0), None)));
    assert!(!is_warned(expected("co", Some(-500.0), Some(12.0))));
    // Such a row violates it, where it is kept with a warning.
    assert!(is_warned(expected("co", Some(0.0), None)));
    assert!(is_warned(expected("co", None, Some(12.0))));
    assert!(is_warned(expected("no", Some(-200.0), None)));
}

/// The columns of the lines that a message advises to write.
fn advised(message: &str) -> Vec<ExpectedColumn> {
    let (_, advice) = message.split_once("write the lines ").unwrap();
    let lines: Vec<&str> = advice.split('`').skip(1).step_by(2).collect();
    assert_eq!(lines[0], "[[column]]");
    Expectations::parse(&lines.join("\n")).unwrap().column
}

#[test]
fn the_lines_that_the_warning_advises_are_an_expectation_that_turns_it_off() {
    let expected = advised(&warned(180, 12.0).unwrap());
    assert_eq!(warned_beside(180, 12.0, &expected), None);
}

#[test]
fn an_advised_bound_allows_a_number_of_many_digits() {
    for number in [
        -999.1234_f64,
        999.1234,
        -999.999_96,
        -5_000_000.5,
        -9999.001,
    ] {
        #[expect(clippy::cast_possible_truncation, reason = "a target has 32 bits")]
        let stored = number as f32;
        let expected = advised(&warned_of(stored, 100, 12.0, &[]).unwrap());
        let [column] = &expected[..] else {
            panic!("{expected:?}")
        };
        assert!(column.min.is_none_or(|min| min <= number), "{column:?}");
        assert!(column.max.is_none_or(|max| max >= number), "{column:?}");
        assert_eq!(warned_of(stored, 100, 12.0, &expected), None);
    }
    assert_eq!(bound_that_allows(-999.1234, 1e-4, true), "-999.124");
    assert_eq!(bound_that_allows(999.1234, 1e-4, false), "999.124");
    assert_eq!(bound_that_allows(-0.3, 1e-8, true), "-0.300001");
    // The nearest integer is within the rounding, and would reject the number.
    assert_eq!(bound_that_allows(-9999.001, 1e-3, true), "-9999.01");
    assert_eq!(bound_that_allows(-9999.0, 1e-3, true), "-9999");
    assert_eq!(bound_that_allows(9999.0, 1e-3, false), "9999");
}

#[test]
fn a_repeated_number_far_from_all_others_may_mean_a_missing_target() {
    let message = warned(180, 12.0).unwrap();
    assert!(
        message.starts_with(
            "180 training rows have the target `co` of about -200, and all others are from about 0 to 12:"
        ),
        "{message}"
    );
    assert_eq!(warned(9, 12.0), None);
    assert_eq!(warned(600, 12.0), None);
    assert_eq!(warned(180, 100.0), None);
}

#[test]
fn the_ends_of_a_target_count_their_rows() {
    let mut end = RangeEnd::of(3.0);
    for number in [2.0, 5.0, 2.0, 4.0, 1.0, 1.0] {
        end.add(number);
    }
    assert_eq!((end.number.to_bits(), end.rows), (1.0_f32.to_bits(), 2));
    assert_eq!(end.next.map(f32::to_bits), Some(2.0_f32.to_bits()));
}

#[test]
fn a_number_far_beyond_those_of_the_training_rows_is_named_with_both() {
    let extremes = |cells: &[f32]| {
        let mut extremes = Extremes::default();
        extremes.add(cells);
        extremes
    };
    let names = ["a", "b", "c", "d"].map(|name| Some(name.to_owned()));
    let train = TrainingNumbers::of(&extremes(&[-20.0, 0.1, 5.0, 3.0]), &[]);
    let test = extremes(&[-4e7, 999.0, 5000.0, 2999.0]);
    assert_eq!(
        test.beyond_training((&train, "train"), &names, Split::Test),
        [
            WarnedColumn::with_found("a", "4.0e7 in test, 2.0e1 in train"),
            WarnedColumn::with_found("c", "5.0e3 in test, 5.0e0 in train"),
        ]
    );
    // A standardized column has a bound of its own.
    let [_, b, c, d] = names.clone();
    let others = [None, b, c, d];
    let found = test.beyond_training((&train, "train"), &others, Split::Test);
    assert_eq!(found.len(), 1);
    // Rows of windows are no columns.
    assert!(
        test.beyond_training((&train, "train"), &names[..3], Split::Test)
            .is_empty()
    );
}

#[test]
fn standardized_and_other_features_far_out_are_one_warning_also_of_appended_rows() {
    let far = |others: &[WarnedColumn]| FarColumns {
        standardized: vec![WarnedColumn::with_found("a", "90 deviations in test")],
        others: others.to_vec(),
        targets: Vec::new(),
    };
    let beyond = [WarnedColumn::with_found(
        "b",
        "5.0e3 in test, 5.0e0 in train",
    )];
    assert_eq!(far_from_training_rows(FarColumns::default()), None);
    let both = far_from_training_rows(far(&beyond)).unwrap();
    assert_eq!(both.key.as_deref(), Some("dataset.step"));
    for part in [
        "range of the training rows in `a` (90 deviations in test), and rows have numbers over 1000 times",
        " in `b` (5.0e3 in test, 5.0e0 in train): what a model predicts",
        "`robust` and `power`, have no bounds",
    ] {
        assert!(both.message.contains(part), "{part}: {both:?}");
    }
    assert!(both.is_about("a") && both.is_about("b"), "{both:?}");
    let alone = far_from_training_rows(far(&[])).unwrap();
    assert!(!alone.message.contains("no bounds"), "{alone:?}");

    let appended = with_appended(slice::from_ref(&alone), vec![both.clone()]);
    let messages: Vec<&str> = appended.iter().map(|w| w.message.as_str()).collect();
    let joined = format!(
        "{}; in the rows appended last: {}",
        alone.message, both.message
    );
    assert_eq!(messages, [joined.as_str()]);
    assert!(appended[0].is_about("b"), "{appended:?}");
    assert_eq!(with_appended(&appended, Vec::new()), [alone]);
}
