use std::collections::BTreeMap;

use feedline_schemas::{
    manifest::{ConflictCounts, Split},
    report::{WarnedColumn, WarnedRows, Warning},
};

use super::{
    EqualParts, TARGET_REPEATS_EXTREME, TEXTS_NOT_NUMBERS, are_many, columns_dropped,
    duplicates_dropped, equal_rows, key_is_feature, labels_differ,
    message::toml_string,
    mostly_capped, near_labels_differ,
    spelling::{alike, is_number, remedy},
    target_leakage, unknown_categories, with_appended,
};
use crate::{
    schema::no_feature::NoFeatureReason,
    statistics::target_leakage::{Leak, SumRows},
};

#[test]
fn numbers_are_told_in_the_signs_of_people() {
    for number in [
        "1",
        "-2.5",
        " 3 ",
        "1,5",
        "1.234,56",
        "17%",
        "17,5 %",
        "+4",
        "1e6",
        "0.5",
        "1,234,567",
    ] {
        assert!(is_number(number), "{number}");
    }
    for text in [
        "",
        "-",
        "a",
        "NA",
        "1a",
        "a1",
        "%",
        "2024-01-01",
        "inf",
        "12:30",
        "06672",
        "12.01.2020",
        "1.2.3",
    ] {
        assert!(!is_number(text), "{text}");
    }
}

#[test]
fn values_are_alike_in_blanks_and_case_and_nothing_else() {
    let values: Vec<String> = ["a", "A ", "b", " b", "B", "c", "c d", "C  d"]
        .map(str::to_owned)
        .into();
    let found = alike(values.iter().zip(1..));
    assert_eq!(
        found,
        [
            "`C  d` (8 rows) and `c d` (7 rows)",
            "`B` (5 rows) and ` b` (4 rows) and `b` (3 rows)",
            "`A ` (2 rows) and `a` (1 row)",
        ]
    );
    assert!(alike(["a".to_owned(), "ä".to_owned()].iter().zip(1..)).is_empty());
}

#[test]
fn values_that_look_the_same_are_shown_with_their_difference() {
    let values: Vec<String> = ["Z\u{fc}rich", "Zu\u{308}rich", "New York", "New\u{a0}York"]
        .map(str::to_owned)
        .into();
    let found = alike(values.iter().zip(1..));
    let expected = [
        r"`New\u{a0}York` (4 rows) and `New York` (3 rows)",
        r"`Zu\u{308}rich` (2 rows) and `Zürich` (1 row)",
    ];
    assert_eq!(found, expected);
    assert!(remedy(&found).contains("chr(160)"));
    let cases = ["Z\u{fc}rich".to_owned(), "z\u{fc}rich".to_owned()];
    let found = alike(cases.iter().zip(1..));
    assert_eq!(found, ["`zürich` (2 rows) and `Zürich` (1 row)"]);
    assert!(remedy(&found).contains("lower(trim(...))"));
}

#[test]
fn images_with_several_labels_are_counted_in_singular_and_plural() {
    for (contents, rows, start) in [
        (
            1,
            2,
            "1 image appears in 2 rows with different values of `y`",
        ),
        (
            3,
            7,
            "3 images appear in 7 rows with different values of `y`",
        ),
    ] {
        let found = labels_differ(ConflictCounts { contents, rows }, "y", "").unwrap();
        assert!(found.message.starts_with(start), "{found:?}");
    }
}

#[test]
fn near_duplicates_with_several_labels_are_counted_in_singular_and_plural() {
    for (contents, rows, start) in [
        (
            1,
            2,
            "1 cluster of near-duplicates, in 2 rows, has different values of `y`",
        ),
        (
            3,
            7,
            "3 clusters of near-duplicates, in 7 rows, have different values of `y`",
        ),
    ] {
        let found = near_labels_differ(ConflictCounts { contents, rows }, "y", "").unwrap();
        assert!(found.message.starts_with(start), "{found:?}");
    }
    assert_eq!(near_labels_differ(ConflictCounts::default(), "y", ""), None);
}

#[test]
fn one_per_cent_of_duplicates_is_not_yet_many() {
    assert!(!are_many(0, 0));
    assert!(!are_many(10, 1000));
    assert!(are_many(11, 1000));
    assert_eq!(
        duplicates_dropped((10, 1000), EqualParts::Document, None),
        None
    );
}

#[test]
fn columns_that_are_not_compared_are_named_with_the_dropped_duplicates() {
    let ignored = ["id".to_owned(), "at".to_owned()];
    for (ignored, has_conflicts, part, key) in [
        (
            &ignored[..],
            false,
            "in every column but `id`, `at` (`dataset.dedup_ignore`); where",
            "dataset.dedup_ignore",
        ),
        (
            &ignored[..1],
            true,
            "but `id` (`dataset.dedup_ignore`) and the target (`dataset.conflicts`); where",
            "dataset.dedup_ignore",
        ),
        (
            &ignored[..0],
            true,
            "in every column but the target (`dataset.conflicts`); where",
            "dataset.conflicts",
        ),
    ] {
        let equal = EqualParts::Columns {
            ignored,
            has_conflicts,
        };
        let found = duplicates_dropped((641, 700), equal, None).unwrap();
        assert_eq!(found.key.as_deref(), Some(key));
        assert!(
            found.message.starts_with("641 of 700 rows (91.6 %)") && found.message.contains(part),
            "{found:?}"
        );
    }
}

#[test]
fn columns_in_advice_are_strings_of_toml() {
    for (name, expected) in [
        ("a b", r#""a b""#),
        (r"x\.y", r#""x\\.y""#),
        (r#"a "q" b"#, r#""a \"q\" b""#),
        ("a\nb", r#""a\u000Ab""#),
        ("Größe (m²)", r#""Größe (m²)""#),
    ] {
        assert_eq!(toml_string(name), expected, "{name}");
    }
    let column = r"x\.y".to_owned();
    let leak = |leak: Leak| target_leakage("y", &[leak]).remove(0).message;
    let (correlation, residual) = (1.0, 0.0);
    let terms = vec![(column.clone(), 1.0)];
    let alone = leak(Leak::Line {
        column: column.clone(),
        correlation,
    });
    let rows = SumRows {
        known: 90,
        compared: 70,
        equal: 69,
    };
    let sum = leak(Leak::Sum {
        terms,
        residual,
        rows,
    });
    for part in [
        "a sum of features in 69 of 70 training rows compared, ",
        "those of 90 training rows looked at that ",
    ] {
        assert!(sum.contains(part), "{part}: {sum}");
    }
    for message in [alone, sum] {
        assert!(
            message.ends_with(r#"`dataset.drop = ["x\\.y"]`"#),
            "{message}"
        );
    }
    let columns = (&[column][..], &["id".to_owned()][..]);
    let equal = equal_rows([(5, 10), (0, 10)], columns, (false, false)).unwrap();
    // The value takes the place of the one that is set.
    assert!(
        equal
            .message
            .contains(r#"`dataset.dedup_ignore = ["id", "x\\.y"]`"#),
        "{equal:?}"
    );
}

#[test]
fn caps_are_warned_of_where_they_change_far_more_than_of_the_rows_of_the_fit() {
    let is_warned = |validation: u64, fitted: f64| {
        let cells = BTreeMap::from([("x".to_owned(), [90, validation, 0])]);
        let beside = [Split::Validation, Split::Test];
        mostly_capped(&cells, [100; 3], &beside, |_| fitted).is_some()
    };
    assert!(is_warned(20, 0.02));
    assert!(!is_warned(19, 0.02));
    assert!(!is_warned(49, 0.1) && is_warned(50, 0.1));
    // Half of a few rows may be chance.
    let cells = BTreeMap::from([("x".to_owned(), [0, 9, 0])]);
    assert_eq!(
        mostly_capped(&cells, [100, 18, 0], &Split::ALL, |_| 0.02),
        None
    );
}

#[test]
fn figures_of_rows_appended_before_are_no_longer_those_of_the_rows_appended_last() {
    let warned = |message: &str| vec![Warning::new(TARGET_REPEATS_EXTREME, message)];
    let messages = |found: &[Warning]| -> Vec<String> {
        found.iter().map(|found| found.message.clone()).collect()
    };
    let built = warned("9 rows have the target `y`");
    let both = with_appended(&built, warned("2 rows have the target `y`"));
    let expected =
        "9 rows have the target `y`; in the rows appended last: 2 rows have the target `y`";
    assert_eq!(messages(&both), [expected]);
    let third = with_appended(&both, warned("4 rows have the target `y`"));
    assert_eq!(messages(&third), [expected.replace('2', "4")]);
    assert_eq!(with_appended(&both, Vec::new()), built);

    let alone = with_appended(&[], warned("2 rows have the target `y`"));
    let expected = "in the rows appended last: 2 rows have the target `y`";
    assert_eq!(messages(&alone), [expected]);
    let second = with_appended(&alone, warned("4 rows have the target `y`"));
    assert_eq!(messages(&second), [expected.replace('2', "4")]);
    assert_eq!(with_appended(&alone, Vec::new()), []);
}

#[test]
fn appended_figures_of_a_column_join_its_own_warning_whatever_the_messages_say() {
    let warned = |column: &str, message: &str| {
        let warning = Warning::new(TEXTS_NOT_NUMBERS, message);
        warning.with_columns(vec![WarnedColumn::new(column)])
    };
    let sample = "column `b` has texts such as `x; in the rows appended last: y`";
    let built = [warned("a", "2 cells of `a`"), warned("b", sample)];
    let appended = vec![
        warned("b", "1 cell of `b`"),
        warned("c", "beside `a`, 4 cells of `c`"),
    ];
    let found = with_appended(&built, appended);
    let messages: Vec<&str> = found.iter().map(|found| found.message.as_str()).collect();
    let both = format!("{sample}; in the rows appended last: 1 cell of `b`");
    let expected = [
        "2 cells of `a`",
        &both,
        "in the rows appended last: beside `a`, 4 cells of `c`",
    ];
    assert_eq!(messages, expected);
    let rows: Vec<Option<WarnedRows>> = found.iter().map(|found| found.rows.clone()).collect();
    let of_b = WarnedRows::BuiltAndAppended(sample.to_owned());
    assert_eq!(rows, [None, Some(of_b), Some(WarnedRows::Appended)]);
    assert_eq!(with_appended(&found, Vec::new()), built);
}

#[test]
fn columns_of_both_are_named_until_rows_are_appended_again() {
    let cells = |column: &str| BTreeMap::from([(column.to_owned(), [0, 3, 0])]);
    let warned = |column: &str| unknown_categories(&cells(column), [10; 3], &Split::ALL).unwrap();
    let built = [warned("a")];
    let both = with_appended(&built, vec![warned("b")]);
    let [warning] = &both[..] else {
        panic!("{both:?}")
    };
    assert!(warning.is_about("a") && warning.is_about("b"), "{both:?}");
    assert_eq!(with_appended(&both, Vec::new()), built);
}

#[test]
fn columns_of_a_warning_have_their_own_names_whatever_signs_these_have() {
    let name = "a`b\n";
    let warning = key_is_feature(name, "dataset.features");
    assert!(warning.is_about(name), "{warning:?}");
    let cells = BTreeMap::from([(name.to_owned(), [0, 3, 0])]);
    let warning = unknown_categories(&cells, [10; 3], &Split::ALL).unwrap();
    let columns: Vec<&WarnedColumn> = warning.columns().collect();
    let expected = WarnedColumn::with_found(name, "3 of 10 validation rows, 30.0 %");
    assert_eq!(columns, [&expected]);
    let part = "`a`b\\n` (3 of 10 validation rows, 30.0 %);";
    assert!(warning.message.contains(part), "{warning:?}");
}

#[test]
fn columns_that_are_no_features_are_warned_of_by_reason_but_for_those_with_another_use() {
    let dropped = [
        ("at", NoFeatureReason::OwnTimes),
        ("id", NoFeatureReason::NamedIn("dataset.passthrough")),
        ("list", NoFeatureReason::Lists),
        ("name", NoFeatureReason::ManyTexts),
        ("rare", NoFeatureReason::NoTrainValue),
        ("time of text", NoFeatureReason::Lists),
    ];
    let dropped = dropped.map(|(name, reason)| (name.to_owned(), reason));
    let found = columns_dropped(&dropped.into());
    let found: Vec<(Vec<&str>, Option<&str>)> = found
        .iter()
        .map(|warning| {
            let columns = warning.columns().map(|column| column.name.as_str());
            (columns.collect(), warning.key.as_deref())
        })
        .collect();
    let expected = [
        (vec!["at"], Some("dataset.drop")),
        (vec!["list", "time of text"], Some("dataset.drop")),
        (vec!["name"], Some("dataset.categorical")),
    ];
    assert_eq!(found, expected);
}

#[test]
fn warnings_of_the_fit_say_so_once_rows_were_appended() {
    let warned = |code: &str| Warning::new(code, format!("{code} of `x`"));
    let codes = ["constant_columns", "mostly_capped", "columns_dropped"];
    let built: Vec<Warning> = codes.map(warned).to_vec();
    let expected = [
        "in the rows that the dataset was fitted on: constant_columns of `x`",
        "in the rows that the dataset was fitted on: mostly_capped of `x`",
        "columns_dropped of `x`",
    ];
    let messages = |found: &[Warning]| -> Vec<String> {
        found.iter().map(|found| found.message.clone()).collect()
    };
    let first = with_appended(&built, Vec::new());
    assert_eq!(messages(&first), expected);
    let second = with_appended(&first, vec![warned("mostly_capped")]);
    let appended = "; in the rows appended last: mostly_capped of `x`";
    let capped = format!("{}{appended}", expected[1]);
    assert_eq!(messages(&second), [expected[0], &capped, expected[2]]);
    assert_eq!(messages(&with_appended(&second, Vec::new())), expected);
    // Manifests of earlier builds have the words, and no `rows`.
    let earlier = first.into_iter().map(|warning| Warning {
        rows: None,
        ..warning
    });
    let earlier: Vec<Warning> = earlier.collect();
    assert_eq!(messages(&with_appended(&earlier, Vec::new())), expected);
}

#[test]
fn a_refit_is_advised_for_categories_of_appended_rows_alone() {
    let cells = BTreeMap::from([("kind".to_owned(), [4, 1, 0])]);
    let message = |splits: &[Split]| {
        let found = unknown_categories(&cells, [10; 3], splits);
        found.unwrap().message
    };
    let appended = message(&Split::ALL);
    assert!(
        appended.contains("`kind` (4 of 10 train rows, 40.0 %;") && appended.contains("--refit"),
        "{appended}"
    );
    let built = message(&[Split::Validation, Split::Test]);
    assert!(
        built.contains("not known from training rows") && !built.contains("--refit"),
        "{built}"
    );
    // In one step the two keys are an error.
    let part = "`unknown = \"reject\"` of a `categories` step without `min_count`,";
    assert!(built.contains(part), "{built}");
}
