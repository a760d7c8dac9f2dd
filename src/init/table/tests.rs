//! Roles of the columns of small previews.

use feedline_ingest::LargeIntegers;
use feedline_schemas::report::{WarnedColumn, Warning};

use super::*;

/// Warning about these columns, whose message names them in other words.
fn warning(code: &str, columns: &[&str]) -> Warning {
    let columns = columns.iter().map(|name| WarnedColumn::new(name));
    Warning::new(code, "some columns").with_columns(columns.collect())
}

fn column(name: &str, kind: ColumnType, compared: u64, distinct: u64) -> ColumnPreview {
    ColumnPreview {
        name: name.into(),
        compared,
        distinct,
        column_type: Some(kind),
        ..ColumnPreview::default()
    }
}

fn preview(columns: Vec<ColumnPreview>) -> SourcePreview {
    SourcePreview {
        columns,
        rows: 100,
        is_all: true,
        ..SourcePreview::default()
    }
}

#[test]
fn a_column_is_constant_only_if_all_rows_were_compared() {
    let dropped = |is_all: bool, compared: u64, missing: u64| {
        let mut table = preview(vec![
            column("shop", ColumnType::Utf8, compared, 1),
            column("age", ColumnType::Int64, 100, 40),
            column("price", ColumnType::Int64, 100, 90),
        ]);
        table.is_all = is_all;
        table.columns[0].missing = missing;
        let found = ColumnRoles::decide(&table, Some("price")).unwrap();
        found.dropped.iter().any(|dropped| dropped.column == "shop")
    };
    assert!(dropped(true, 100, 0));
    // The missing cells may be what a model needs.
    assert!(!dropped(true, 60, 40));
    // The first page of more, and the first file of several.
    assert!(!dropped(true, 60, 0));
    // A first page of `N/A`, with values behind it.
    assert!(!dropped(true, 60, 90));
    assert!(!dropped(false, 100, 0));
}

#[test]
fn identifiers_timestamps_and_free_text_are_no_features_and_an_entity_is_the_key() {
    let table = preview(vec![
        column("id", ColumnType::Int64, 100, 100),
        column("customer_id", ColumnType::Int64, 100, 12),
        column("when", ColumnType::Timestamp, 100, 100),
        column("note", ColumnType::Utf8, 100, 100),
        column("city", ColumnType::Utf8, 100, 7),
        column("one", ColumnType::Int64, 100, 1),
        column("income", ColumnType::Int64, 100, 100),
        column("churn", ColumnType::Bool, 100, 2),
        column("age", ColumnType::Int64, 100, 40),
    ]);
    let found = ColumnRoles::decide(&table, None).unwrap();
    let dropped: Vec<&str> = found.dropped.iter().map(|d| d.column.as_str()).collect();
    assert_eq!(dropped, ["id", "customer_id", "when", "note", "one"]);
    assert_eq!(found.dropped[4].reason, "one value in all 100 rows");
    assert_eq!(
        (found.target.as_deref(), found.is_class),
        (Some("churn"), true)
    );
    assert_eq!(found.entity.as_deref(), Some("customer_id"));
    assert_eq!(found.time.as_deref(), Some("when"));
    // A target decides no split.
    let found = ColumnRoles::decide(&table, Some("customer_id")).unwrap();
    assert_eq!(found.entity, None);
}

#[test]
fn without_a_telling_name_the_last_column_that_can_be_is_the_target() {
    let table = preview(vec![
        column("a", ColumnType::Float64, 100, 90),
        column("b", ColumnType::Int64, 100, 90),
        column("remark", ColumnType::Utf8, 100, 60),
    ]);
    let found = ColumnRoles::decide(&table, None).unwrap();
    assert_eq!(
        (found.target.as_deref(), found.is_class),
        (Some("b"), false)
    );
    assert!(
        found.decisions[0].contains("because it is the last column that can be one"),
        "{:?}",
        found.decisions
    );
}

#[test]
fn a_table_without_features_is_landed_and_trains_nothing() {
    let table = preview(vec![
        column("label", ColumnType::Utf8, 100, 2),
        column("message", ColumnType::Utf8, 100, 100),
    ]);
    let found = ColumnRoles::decide(&table, None).unwrap();
    assert_eq!(found.target, None);
    assert!(found.decisions[0].contains("`dataset.features`"));
    // The constant one is not `a`, which could be the target or a feature of another.
    let table = preview(vec![
        column("a", ColumnType::Int64, 100, 100),
        column("y", ColumnType::Int64, 100, 1),
    ]);
    let found = ColumnRoles::decide(&table, None).unwrap();
    assert_eq!(found.target, None);
    assert!(
        found.decisions[0].starts_with("no column besides `a` can be a feature or the target"),
        "{:?}",
        found.decisions
    );
}

#[test]
fn numbers_that_land_as_text_are_dropped_until_the_key_that_reads_them_is_set() {
    let reasons = |code: &str, key: &str| {
        let mut table = preview(vec![
            column("qty", ColumnType::Utf8, 1000, 900),
            column("quantity", ColumnType::Utf8, 1000, 900),
            column("price", ColumnType::Float64, 1000, 900),
            column("age", ColumnType::Int64, 1000, 40),
        ]);
        table.warnings = vec![warning(code, &["qty"]).with_key(key)];
        let found = ColumnRoles::decide(&table, Some("price")).unwrap();
        let reasons = found.dropped.into_iter().map(|dropped| dropped.reason);
        reasons.collect::<Vec<_>>()
    };
    let text = "text with too many distinct values for a category";
    let numbers = "numbers that land as text until `csv.thousands_separator` is set; then remove it from `dataset.drop`";
    assert_eq!(
        reasons("looks_like_thousands", "csv.thousands_separator"),
        [numbers, text]
    );
    let declared = "numbers that land as text until `contract.column.qty.type` is set; then remove it from `dataset.drop`";
    assert_eq!(
        reasons("leading_zeros", "contract.column.<name>.type"),
        [declared, text]
    );
    let dates = "dates that land as text until `contract.dates` is set; as timestamps they are no feature either";
    assert_eq!(reasons("looks_like_dates", "contract.dates"), [dates, text]);
}

#[test]
fn texts_without_features_are_for_a_language_model() {
    let with = |texts: &[&str]| ColumnPreview {
        samples: texts.iter().map(|text| (*text).to_owned()).collect(),
        ..column("message", ColumnType::Utf8, 100, 100)
    };
    let found = |message: ColumnPreview| {
        let label = column("label", ColumnType::Utf8, 100, 2);
        ColumnRoles::decide(&preview(vec![label, message]), None).unwrap()
    };
    let texts = found(with(&["how are you", "call me tomorrow", "ok"]));
    assert_eq!(
        (texts.text.as_deref(), texts.target),
        (Some("message"), None)
    );
    let codes = found(with(&["1.234,56", "A-7", "9"]));
    assert_eq!(codes.text, None);
    let both = preview(vec![
        column("label", ColumnType::Utf8, 100, 2),
        with(&["how are you"]),
    ]);
    let named = ColumnRoles::decide(&both, Some("label")).unwrap();
    assert_eq!((named.text, named.target), (None, None));
}

#[test]
fn a_named_target_is_taken_and_one_that_is_not_there_refused() {
    let table = preview(vec![
        column("a", ColumnType::Float64, 100, 90),
        column("kind", ColumnType::Int64, 100, 3),
    ]);
    let found = ColumnRoles::decide(&table, Some("a")).unwrap();
    assert_eq!(
        (found.target.as_deref(), found.is_class),
        (Some("a"), false)
    );
    let found = ColumnRoles::decide(&table, Some("kind")).unwrap();
    assert!(found.is_class);
    let error = ColumnRoles::decide(&table, Some("c"))
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "column `c` does not exist; the columns are `a`, `kind`"
    );
}

#[test]
fn integers_that_no_float_holds_are_no_features_unless_they_are_few() {
    let dropped = |count: u64| {
        let large = ColumnPreview {
            large_integers: Some(LargeIntegers {
                count,
                sample: "9007199254740995".to_owned(),
            }),
            ..column("account", ColumnType::Int64, 100, 90)
        };
        let table = preview(vec![
            large,
            column("age", ColumnType::Int64, 100, 40),
            column("price", ColumnType::Float64, 100, 90),
        ]);
        let found = ColumnRoles::decide(&table, Some("price")).unwrap();
        assert_eq!(found.reads_as_number("account"), found.dropped.is_empty());
        found
            .dropped
            .into_iter()
            .map(|dropped| dropped.reason)
            .next()
    };
    let reason = dropped(100).unwrap();
    assert!(
        reason.contains("beyond 2^53, such as `9007199254740995`"),
        "{reason}"
    );
    assert_eq!(dropped(1), None);
}

#[test]
fn row_numbers_of_groups_are_dropped_by_their_name_and_reviewed_without_one() {
    let numbered = |name: &str, numbers_rows: bool| ColumnPreview {
        numbers_rows,
        ..column(name, ColumnType::Int64, 100, 40)
    };
    let table = preview(vec![
        numbered("Sample Number", true),
        numbered("cycle", true),
        numbered("seq", false),
        column("price", ColumnType::Float64, 100, 90),
    ]);
    let found = ColumnRoles::decide(&table, Some("price")).unwrap();
    let [dropped] = &found.dropped[..] else {
        panic!("{:?}", found.dropped)
    };
    assert_eq!(
        (dropped.column.as_str(), dropped.reason.as_str()),
        ("Sample Number", "a row number by its name")
    );
    let decisions = found.decisions.iter();
    let reviewed: Vec<&String> = decisions
        .filter(|decision| decision.contains("row number of a group"))
        .collect();
    assert_eq!(reviewed.len(), 1, "{:?}", found.decisions);
    assert!(reviewed[0].starts_with("`cycle` counts up by one and restarts"));
}

#[test]
fn dates_that_land_as_text_are_no_categories() {
    let mut table = preview(vec![
        column("date", ColumnType::Utf8, 9000, 150),
        column("city", ColumnType::Utf8, 9000, 150),
        column("price", ColumnType::Float64, 9000, 900),
    ]);
    table.warnings = vec![warning("looks_like_dates", &["date"])];
    let found = ColumnRoles::decide(&table, Some("price")).unwrap();
    let dropped: Vec<&str> = found.dropped.iter().map(|d| d.column.as_str()).collect();
    assert_eq!(dropped, ["date"]);
}

/// A table of images as Hugging Face stores them, with these columns beside them.
fn image_table(others: Vec<ColumnPreview>) -> SourcePreview {
    let mut columns = vec![
        column("image.bytes", ColumnType::Binary, 100, 99),
        column("image.path", ColumnType::Utf8, 100, 100),
        column("image", ColumnType::Null, 0, 0),
    ];
    columns.extend(others);
    SourcePreview {
        warnings: vec![warning("image_as_bytes", &["scan", "image.bytes"])],
        ..preview(columns)
    }
}

#[test]
fn a_table_with_a_column_of_images_is_for_a_model_of_images() {
    let table = image_table(vec![
        column("caption", ColumnType::Utf8, 100, 15),
        column("label", ColumnType::Int64, 100, 100),
        column("width", ColumnType::Float64, 100, 30),
    ]);
    let found = ColumnRoles::decide(&table, None).unwrap();
    assert_eq!(found.images.as_deref(), Some("image.bytes"));
    // More integers than the classes of a table without images.
    assert_eq!(
        (found.target.as_deref(), found.is_class),
        (Some("label"), true)
    );
    let dropped = found.dropped.iter().map(|d| d.column.as_str());
    let others = ["image.path", "image", "width", "caption"];
    assert_eq!(dropped.collect::<Vec<_>>(), others);
    let decision = found.decisions.last().unwrap();
    assert!(
        decision.starts_with("`image.bytes` holds image files"),
        "{decision}"
    );
    // No quantity is guessed to be the target, and the one that is named is no class.
    let sizes = image_table(vec![column("width", ColumnType::Float64, 100, 30)]);
    let found = ColumnRoles::decide(&sizes, None).unwrap();
    assert_eq!(
        (found.target, found.images.as_deref()),
        (None, Some("image.bytes"))
    );
    let found = ColumnRoles::decide(&sizes, Some("width")).unwrap();
    assert_eq!(
        (found.target.as_deref(), found.is_class),
        (Some("width"), false)
    );
}

#[test]
fn bytes_that_are_no_images_beside_a_path_are_no_reason_for_a_model_of_images() {
    let mut table = image_table(vec![column("label", ColumnType::Int64, 100, 4)]);
    table.columns.remove(1);
    assert_eq!(ColumnRoles::decide(&table, None).unwrap().images, None);
    for warnings in [vec![], vec![warning("image_as_bytes", &["scan"])]] {
        let mut table = image_table(vec![column("label", ColumnType::Int64, 100, 4)]);
        table.warnings = warnings;
        assert_eq!(ColumnRoles::decide(&table, None).unwrap().images, None);
    }
}

#[test]
fn a_split_by_dates_that_land_as_text_needs_their_format() {
    let found = |formats: &[&str]| {
        let mut table = preview(vec![
            column("day", ColumnType::Utf8, 100, 90),
            column("rides", ColumnType::Int64, 100, 90),
            column("price", ColumnType::Float64, 100, 90),
        ]);
        let day = WarnedColumn {
            values: formats.iter().map(|format| (*format).to_owned()).collect(),
            ..WarnedColumn::new("day")
        };
        let dates = Warning::new("looks_like_dates", "some columns");
        table.warnings = vec![dates.with_columns(vec![WarnedColumn::new("other"), day])];
        let found = ColumnRoles::decide(&table, Some("price")).unwrap();
        assert_eq!(found.time.as_deref(), Some("day"));
        (
            found.dates.unwrap(),
            found.decisions.last().unwrap().clone(),
        )
    };
    let (setting, decision) = found(&["%m/%d/%Y"]);
    assert_eq!(setting, "contract.dates = [\"%m/%d/%Y\"]");
    assert!(
        decision.contains(
            "not by `day`; to test on the newest rows, set `contract.dates = [\"%m/%d/%Y\"]`"
        ),
        "{decision}"
    );
    // The order of day and month is not certain.
    assert_eq!(found(&["%d/%m/%Y", "%m/%d/%Y"]).0, "contract.dates");
    assert_eq!(found(&[]).0, "contract.dates");
}

#[test]
fn the_identifier_that_repeats_is_the_key_in_any_order_and_equal_rows_are_no_repeats() {
    let row = column("row_id", ColumnType::Int64, 101, 100);
    let account = column("account_id", ColumnType::Int64, 101, 30);
    let key = |columns: [&ColumnPreview; 2], repeated: u64| {
        let mut all: Vec<ColumnPreview> = columns.into_iter().cloned().collect();
        all.push(column("age", ColumnType::Int64, 101, 40));
        all.push(column("price", ColumnType::Float64, 101, 90));
        let table = SourcePreview {
            rows: 101,
            repeated,
            ..preview(all)
        };
        ColumnRoles::decide(&table, Some("price")).unwrap().entity
    };
    for repeated in [0, 1] {
        assert_eq!(key([&row, &account], repeated).unwrap(), "account_id");
        assert_eq!(key([&account, &row], repeated).unwrap(), "account_id");
    }
    let other = column("city", ColumnType::Utf8, 101, 5);
    assert_eq!(key([&row, &other], 1), None);
    assert_eq!(key([&row, &other], 0).unwrap(), "row_id");
}

#[test]
fn other_identifiers_that_repeat_are_named() {
    let table = preview(vec![
        column("shop_id", ColumnType::Int64, 100, 30),
        column("customer_id", ColumnType::Int64, 100, 40),
        column("age", ColumnType::Int64, 100, 40),
        column("price", ColumnType::Float64, 100, 90),
    ]);
    let found = ColumnRoles::decide(&table, Some("price")).unwrap();
    assert_eq!(found.entity.as_deref(), Some("shop_id"));
    let mut decisions = found.decisions.iter();
    let named = "changes it, also to `customer_id`, in which rows repeat too";
    assert!(
        decisions.any(|decision| decision.ends_with(named)),
        "{:?}",
        found.decisions
    );
}

#[test]
fn a_first_column_without_a_name_is_a_row_number_where_the_others_have_one() {
    let dropped = |second: &str| {
        let mut table = preview(vec![
            column("column_1", ColumnType::Int64, 100, 100),
            column(second, ColumnType::Int64, 100, 40),
            column("price", ColumnType::Float64, 100, 90),
        ]);
        if second == "column_2" {
            table.columns[2].name = "column_3".to_owned();
        }
        let found = ColumnRoles::decide(&table, None).unwrap();
        let dropped = found.dropped.into_iter();
        dropped.map(|dropped| dropped.reason).collect::<Vec<_>>()
    };
    assert_eq!(dropped("age"), ["a row number by its empty header"]);
    assert_eq!(dropped("column_2"), [""; 0]);
    // That of three files, each from 0 on.
    for restarts_index in [true, false] {
        let index = ColumnPreview {
            restarts_index,
            ..column("column_1", ColumnType::Int64, 90, 30)
        };
        let table = preview(vec![
            index,
            column("age", ColumnType::Int64, 90, 40),
            column("price", ColumnType::Float64, 90, 90),
        ]);
        let found = ColumnRoles::decide(&table, None).unwrap();
        assert_eq!(found.dropped.len(), usize::from(restarts_index));
    }
}

#[test]
fn the_index_of_pandas_is_no_feature_by_its_name_or_by_integers_that_rise() {
    let dropped = |name: &str, has_rising_index: bool, kind: ColumnType| {
        let index = ColumnPreview {
            has_rising_index,
            ..column(name, kind, 90, 40)
        };
        let table = preview(vec![
            column("age", ColumnType::Int64, 90, 40),
            index,
            column("price", ColumnType::Float64, 90, 90),
        ]);
        let found = ColumnRoles::decide(&table, Some("price")).unwrap();
        let mut dropped = found.dropped.into_iter();
        dropped.next().map(|dropped| dropped.reason)
    };
    let by_name = Some("the index that pandas writes, by its name".to_owned());
    let rising = Some("a row number by its name".to_owned());
    let int = ColumnType::Int64;
    assert_eq!(dropped("__index_level_0__", false, int), by_name);
    // A level of several may have other values than row numbers.
    let level = dropped("__index_level_1__", false, ColumnType::Float64);
    assert_eq!(level, None);
    for name in ["index", "Unnamed: 0", "Unnamed: 0.1"] {
        assert_eq!(dropped(name, true, int), rising, "{name}");
        assert_eq!(dropped(name, false, int), None, "{name}");
    }
    assert_eq!(dropped("year", true, int), None);
}

#[test]
fn strings_of_iso_dates_are_the_time_of_a_split_and_no_feature() {
    let dates = ColumnPreview {
        are_times: true,
        ..column("when", ColumnType::Utf8, 100, 90)
    };
    let table = preview(vec![
        dates,
        column("age", ColumnType::Int64, 100, 40),
        column("price", ColumnType::Float64, 100, 90),
    ]);
    let found = ColumnRoles::decide(&table, Some("price")).unwrap();
    assert_eq!(found.dropped[0].column, "when");
    assert_eq!((found.time.as_deref(), found.dates), (Some("when"), None));
}

#[test]
fn integers_in_the_range_of_times_are_reviewed() {
    let reviewed = |samples: [&str; 2]| {
        let column_of_samples = ColumnPreview {
            samples: samples.map(str::to_owned).to_vec(),
            ..column("when", ColumnType::Int64, 100, 90)
        };
        let table = preview(vec![
            column_of_samples,
            column("price", ColumnType::Float64, 100, 90),
        ]);
        let found = ColumnRoles::decide(&table, Some("price")).unwrap();
        assert!(found.dropped.is_empty());
        let mut decisions = found.decisions.into_iter();
        decisions.find(|decision| decision.contains("since 1970"))
    };
    let milliseconds = reviewed(["1704067200000", "1735603200000"]).unwrap();
    assert!(milliseconds.contains("of milliseconds since 1970, such as `1704067200000`"));
    assert!(
        reviewed(["1704067200", "1735603200"])
            .unwrap()
            .contains("of seconds since")
    );
    assert_eq!(reviewed(["12", "1704067200"]), None);
}

#[test]
fn few_whole_numbers_are_classes_in_any_notation() {
    let task = |values: &[&str]| {
        let counts = values.iter().map(|value| ((*value).to_owned(), 50));
        let target = ColumnPreview {
            value_counts: Some(counts.collect()),
            ..column("y", ColumnType::Float64, 100, values.len() as u64)
        };
        let table = preview(vec![column("age", ColumnType::Int64, 100, 40), target]);
        let found = ColumnRoles::decide(&table, Some("y")).unwrap();
        (found.is_class, found.decisions[0].clone())
    };
    for values in [&["0.0", "1.0"][..], &["0", "0.0", "1", "1.0"]] {
        let (is_class, decision) = task(values);
        assert!(is_class, "{values:?}");
        let begin = "`y` has 2 distinct whole numbers in 100 rows, so the task is classification";
        assert!(decision.starts_with(begin), "{decision}");
    }
    let (is_class, decision) = task(&["0.5", "1.0"]);
    assert!(!is_class);
    let begin = "`y` has 2 distinct numbers, not all whole, in 100 rows, so the task is regression";
    assert!(decision.starts_with(begin), "{decision}");
}

#[test]
fn a_target_with_both_decimal_separators_gets_the_query_that_reads_both() {
    let with = |has_mixed_decimals: bool| {
        let target = ColumnPreview {
            samples: vec!["EUR 1,5".to_owned(), "EUR 23,75".to_owned()],
            has_mixed_decimals,
            ..column("y", ColumnType::Utf8, 1000, 900)
        };
        // A warning names the first columns alone.
        let table = preview(vec![column("age", ColumnType::Int64, 1000, 40), target]);
        let found = ColumnRoles::decide(&table, Some("y")).unwrap();
        found.decisions.concat()
    };
    let mixed = with(true);
    assert!(
        mixed.contains("`try_cast(replace(\"y\", ',', '.') as double)` reads both")
            && !mixed.contains("regexp_like("),
        "{mixed}"
    );
    assert!(with(false).contains("regexp_like("));
}

#[test]
fn a_target_of_files_with_different_decimal_separators_gets_the_advice_of_two_sources() {
    let target = ColumnPreview {
        has_mixed_decimals: true,
        ..column("y", ColumnType::Utf8, 1000, 900)
    };
    let mut table = preview(vec![column("age", ColumnType::Int64, 1000, 40), target]);
    let message = "`y` (`1,5`, `1.5`): numbers";
    table.warnings =
        vec![Warning::new("mixed_decimal_separators", message).with_key("dataset.sources")];
    let found = ColumnRoles::decide(&table, Some("y")).unwrap();
    let said = found.decisions.concat();
    assert!(said.contains("a `[[source]]` of their own"), "{said}");
    assert!(!said.contains("try_cast("), "{said}");
}

#[test]
fn an_identifier_that_may_be_missing_wherever_there_is_a_target_is_no_key() {
    let key = |without_target: u64| {
        let house = ColumnPreview {
            missing: 54,
            ..column("house_id", ColumnType::Int64, 46, 20)
        };
        let price = ColumnPreview {
            missing: without_target,
            ..column("price", ColumnType::Float64, 50, 50)
        };
        let table = preview(vec![
            house,
            column("age", ColumnType::Int64, 100, 40),
            price,
        ]);
        ColumnRoles::decide(&table, Some("price")).unwrap().entity
    };
    assert_eq!(key(46), None);
    assert_eq!(key(30).as_deref(), Some("house_id"));
}
