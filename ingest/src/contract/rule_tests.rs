//! The contract beyond single values: keys, nulls, missing columns, declared types, lists, wide
//! objects.

use feedline_schemas::config::Bounded;
use feedline_schemas::config::{
    ColumnContract, ColumnsContract, DeclaredType, ListContract, MissingColumns, NullContract,
};

use super::{tests::entries, *};

/// Decides batches one after another. For each record: `+` landed, `x` rejected with its reason,
/// `!` stopped with its key; at the end the columns and the decisions.
struct Story {
    config: ContractConfig,
    before: Option<Before>,
    decisions: Decisions,
}

impl Story {
    fn of(change: impl FnOnce(&mut ContractConfig)) -> Self {
        let mut config = ContractConfig::default();
        change(&mut config);
        Self {
            config,
            before: None,
            decisions: Decisions::new(),
        }
    }

    fn batch(&mut self, records: &[&str]) -> Vec<String> {
        let before = self.before.take();
        let mut contract = Contract::new(&self.config, before.as_ref()).unwrap();
        let mut verdicts: Vec<String> = records
            .iter()
            .map(|record| match contract.admit(entries(record)) {
                Verdict::Land { .. } => "+".into(),
                Verdict::Reject(r) => format!("x {} {}", r.reason, r.path),
                Verdict::Stop(key, r) => format!("! {key} {}", r.path),
            })
            .collect();
        match contract.close() {
            Ok(closed) => {
                self.decisions = closed.decisions;
                self.before = Some(Before {
                    schema: closed.schema,
                    presence: closed.presence,
                });
            }
            Err((key, r)) => {
                verdicts.push(format!("! {key} {}", r.path));
                self.before = before;
            }
        }
        verdicts
    }

    fn many(&mut self, record: &str, times: usize) {
        let verdicts = self.batch(&vec![record; times]);
        assert!(
            verdicts.iter().all(|verdict| verdict == "+"),
            "{verdicts:?}"
        );
    }

    fn columns(&self) -> Vec<(&str, ColumnType)> {
        let columns = &self.before.as_ref().unwrap().schema.columns;
        columns
            .iter()
            .map(|c| (c.name.as_str(), c.r#type))
            .collect()
    }

    /// `kind path count` of each.
    fn decided(&self) -> Vec<String> {
        let kinds = self.decisions.iter();
        let told = kinds.flat_map(|(kind, paths)| {
            let paths = paths.iter();
            paths.map(move |(path, noted)| format!("{kind} {path} {}", noted.count))
        });
        told.collect()
    }

    fn sample(&self, kind: &str, path: &str) -> &str {
        &self.decisions[kind][path].sample
    }
}

#[test]
fn integers_beyond_2_to_the_53_of_an_earlier_batch_never_become_floats() {
    let id = r#"{"v":9007199254740993,"small":1}"#;
    let later = [r#"{"v":0.5,"small":0.5}"#, r#"{"small":1.5}"#, r#"{"v":3}"#];
    let mut strict = Story::of(|_| {});
    assert_eq!(strict.batch(&[id]), ["+"]);
    // A batch without such an integer carries the mark on.
    assert_eq!(strict.batch(&[r#"{"v":1}"#]), ["+"]);
    assert_eq!(strict.batch(&later), ["x type_conflict v", "+", "+"]);
    let types = [("v", ColumnType::Int64), ("small", ColumnType::Float64)];
    assert_eq!(strict.columns(), types);
    let mut wide = Story::of(|config| config.types = TypeContract::Widen);
    assert_eq!(wide.batch(&[id]), ["+"]);
    assert_eq!(wide.batch(&later), ["+"; 3]);
    assert_eq!(wide.columns()[0], ("v", ColumnType::Decimal));
    let mut lists = Story::of(|config| config.lists = ListContract::List);
    assert_eq!(lists.batch(&[r#"{"v":[9007199254740993]}"#]), ["+"]);
    assert_eq!(lists.batch(&[r#"{"v":[2.5]}"#]), ["+"]);
    assert_eq!(lists.columns(), [("v", ColumnType::Json)]);
}

/// The new key comes before the known one.
const NEW_KEY: &str = r#"{"b":{"c":"x"},"a":1}"#;

#[test]
fn a_key_that_is_no_column_yet_is_handled_by_contract() {
    let story = |columns: ColumnsContract| {
        let mut story = Story::of(|config| config.columns = columns);
        // The first batch makes columns in every mode.
        assert_eq!(story.batch(&[r#"{"a":0}"#, r#"{"z":0}"#]), ["+", "+"]);
        let verdicts = story.batch(&[NEW_KEY, r#"{"a":2}"#]);
        (story, verdicts)
    };
    let (evolved, verdicts) = story(ColumnsContract::Evolve);
    assert_eq!(verdicts, ["+", "+"]);
    assert_eq!(evolved.columns()[2], ("b.c", ColumnType::Utf8));
    assert_eq!(evolved.decided()[0], "new_column b.c 1");
    assert_eq!(evolved.sample("new_column", "b.c"), "text `\"x\"`");
    let (_, verdicts) = story(ColumnsContract::Freeze);
    assert_eq!(verdicts, ["! columns b.c", "+"]);
    let (kept, verdicts) = story(ColumnsContract::QuarantineRow);
    assert_eq!(verdicts, ["x unknown_column b.c", "+"]);
    assert_eq!(kept.columns().len(), 2);
    let (dropped, verdicts) = story(ColumnsContract::NullValue);
    assert_eq!(verdicts, ["+", "+"]);
    assert_eq!(dropped.columns().len(), 2);
    assert_eq!(dropped.decided()[0], "dropped b.c 1");
}

#[test]
fn names_in_the_configuration_are_known_keys() {
    let mut story = Story::of(|config| {
        config.columns = ColumnsContract::QuarantineRow;
        config.required = vec!["id".into()];
        let text = ColumnContract {
            r#type: Some(DeclaredType::Text),
            ..ColumnContract::default()
        };
        config.column.insert("b.c".into(), text);
    });
    story.many(r#"{"id":1}"#, 1);
    assert_eq!(story.batch(&[r#"{"id":2,"b":{"c":7}}"#]), ["+"]);
    assert_eq!(story.columns()[1], ("b.c", ColumnType::Utf8));
}

#[test]
fn a_dropped_value_of_a_rejected_record_is_not_counted() {
    let mut story = Story::of(|config| config.columns = ColumnsContract::NullValue);
    story.many(r#"{"a":1}"#, 1);
    assert_eq!(story.batch(&[r#"{"a":"x","b":1}"#]), ["x type_conflict a"]);
    assert!(story.decided().is_empty());
}

#[test]
fn a_required_column_that_is_null_is_handled_by_contract() {
    let story = |nulls: NullContract| {
        let mut story = Story::of(|config| {
            config.nulls = nulls;
            config.required = vec!["id".into(), "k".into()];
        });
        let records = [
            r#"{"k":1,"id":1}"#,
            r#"{"id":null,"k":2}"#,
            r#"{"k":3}"#,
            r#"{"id":4}"#,
        ];
        let verdicts = story.batch(&records);
        (story, verdicts)
    };
    let (warned, verdicts) = story(NullContract::Warn);
    assert_eq!(verdicts, ["+", "+", "+", "+"]);
    assert_eq!(warned.decided(), ["turned_null id 2", "turned_null k 1"]);
    assert_eq!(
        warned.sample("turned_null", "id"),
        "4 records, 1 with null and 1 without it"
    );
    let (_, verdicts) = story(NullContract::QuarantineRow);
    assert_eq!(
        verdicts,
        [
            "+",
            "x missing_value id",
            "x missing_value id",
            "x missing_value k"
        ]
    );
    let (_, verdicts) = story(NullContract::Freeze);
    assert_eq!(verdicts[1..], ["! nulls id", "! nulls id", "! nulls k"]);
}

#[test]
fn nulls_of_a_single_column_are_handled_by_its_own_contract() {
    let story = |own: &[(&str, NullContract)]| {
        let mut story = Story::of(|config| {
            config.required = vec!["id".into(), "k".into(), "none".into()];
            for (name, nulls) in own {
                let column = ColumnContract {
                    nulls: Some(*nulls),
                    ..ColumnContract::default()
                };
                config.column.insert((*name).into(), column);
            }
        });
        let verdicts = story.batch(&[
            r#"{"id":1,"k":1}"#,
            r#"{"id":2,"k":null}"#,
            r#"{"k":3}"#,
            r#"{"z":4}"#,
        ]);
        (story.decided(), verdicts)
    };
    let is_absent = |decided: &[String], rows: u64| {
        let line = format!("required_absent none {rows}");
        decided.contains(&line)
    };
    let (decided, verdicts) = story(&[]);
    assert_eq!(verdicts, ["+", "+", "+", "+"]);
    assert_eq!(decided.len(), 3, "{decided:?}");
    assert!(is_absent(&decided, 4), "{decided:?}");
    let (decided, verdicts) = story(&[("k", NullContract::QuarantineRow)]);
    assert_eq!(
        verdicts,
        ["+", "x missing_value k", "+", "x missing_value k"]
    );
    assert!(is_absent(&decided, 2), "{decided:?}");
    // A column that no record has counts too, and a stop has priority.
    let (_, verdicts) = story(&[("none", NullContract::QuarantineRow)]);
    assert_eq!(verdicts, ["x missing_value none"; 4]);
    let (_, verdicts) = story(&[
        ("id", NullContract::QuarantineRow),
        ("k", NullContract::Freeze),
    ]);
    assert_eq!(
        verdicts,
        ["+", "! nulls k", "x missing_value id", "! nulls k"]
    );
}

#[test]
fn a_column_that_a_thousand_records_had_is_known_to_have_no_nulls() {
    for (records, verdict) in [(999, "+"), (1000, "x missing_value a")] {
        let mut story = Story::of(|config| config.nulls = NullContract::QuarantineRow);
        story.many(r#"{"a":1,"b":1}"#, records - 1);
        story.many(r#"{"a":1}"#, 1);
        assert_eq!(
            story.batch(&[r#"{"a":null}"#, r#"{"a":1,"b":null}"#]),
            [verdict, "+"]
        );
    }
}

#[test]
fn fault_35_a_vanished_column_and_one_that_turns_null_are_told_apart() {
    let mut story = Story::of(|_| {});
    story.many(r#"{"a":1,"b":1,"c":1}"#, 60);
    story.many(r#"{"a":1,"b":null,"d":1}"#, 40);
    let decided = story.decided();
    assert_eq!(
        decided,
        ["new_column d 1", "null_drift b 40", "vanished c 40"]
    );
    assert_eq!(
        story.sample("null_drift", "b"),
        "40 records, 40 with null and 0 without it; before, 60 records, 0 with null and 0 without it"
    );
    assert_eq!(
        story.sample("vanished", "c"),
        "40 records, 0 with null and 40 without it; before, 60 records, 0 with null and 0 without it"
    );
    // An alarm ends when its change has become usual.
    story.many(r#"{"a":1,"b":1}"#, 40);
    assert_eq!(story.decided(), ["vanished c 40"]);
    story.many(r#"{"a":1,"b":1}"#, 40);
    assert!(story.decided().is_empty(), "{:?}", story.decided());
    let presence = &story.before.as_ref().unwrap().presence;
    let missing = |column: &str| {
        (
            presence.missing(column).absent,
            presence.missing(column).null,
        )
    };
    assert_eq!(presence.rows, 180);
    assert_eq!(
        [missing("a"), missing("b"), missing("c"), missing("d")],
        [(0, 0), (0, 40), (120, 0), (140, 0)]
    );
    assert!(!presence.missing.contains_key("a"));
}

#[test]
fn a_rare_column_and_a_small_batch_raise_no_alarm() {
    let mut story = Story::of(|_| {});
    let mut records = vec![r#"{"a":1}"#; 30];
    records.extend([r#"{"a":1,"often":1}"#; 70]);
    story.batch(&records);
    story.many(r#"{"a":1}"#, 3);
    assert!(story.decided().is_empty(), "{:?}", story.decided());
    story.many(r#"{"a":1}"#, 20);
    assert_eq!(story.decided(), ["vanished often 20"]);
}

#[test]
fn a_vanished_column_stops_a_frozen_source() {
    let mut story = Story::of(|config| config.missing_columns = MissingColumns::Freeze);
    story.many(r#"{"a":1,"b":1}"#, 20);
    assert_eq!(
        story.batch(&[r#"{"a":1}"#; 10])[10..],
        ["! missing_columns b"]
    );
}

#[test]
fn single_columns_have_rules_of_their_own() {
    let mut story = Story::of(|config| {
        config.types = TypeContract::NullValue;
        let frozen = ColumnContract {
            types: Some(TypeContract::Freeze),
            ..ColumnContract::default()
        };
        config.column.insert("book.bid".into(), frozen);
    });
    let records = [
        r#"{"book":{"bid":1,"ask":1}}"#,
        r#"{"book":{"ask":"x"}}"#,
        r#"{"book":{"bid":"x"}}"#,
    ];
    assert_eq!(story.batch(&records), ["+", "+", "! types book.bid"]);
    assert_eq!(story.decided(), ["nulled book.ask 1"]);
    assert_eq!(story.sample("nulled", "book.ask"), "`\"x\"`");
}

fn declaring(r#type: DeclaredType) -> Story {
    Story::of(|config| {
        config.types = TypeContract::Widen;
        let column = ColumnContract {
            r#type: Some(r#type),
            ..ColumnContract::default()
        };
        config.column.insert("v".into(), column);
    })
}

#[test]
fn a_declared_type_is_the_columns_type_whatever_comes() {
    let check = |r#type: DeclaredType, values: &[&str], rejected: usize| {
        let mut story = declaring(r#type);
        let records: Vec<String> = values.iter().map(|v| format!(r#"{{"v":{v}}}"#)).collect();
        let records: Vec<&str> = records.iter().map(String::as_str).collect();
        let verdicts = story.batch(&records);
        let expected = values.len() - rejected;
        assert!(
            verdicts[..expected].iter().all(|v| v == "+"),
            "{type:?} {verdicts:?}"
        );
        assert!(
            verdicts[expected..]
                .iter()
                .all(|v| v == "x type_conflict v"),
            "{type:?} {verdicts:?}"
        );
        assert_eq!(story.columns(), [("v", r#type.column_type())]);
    };
    check(
        DeclaredType::Int,
        &["null", "1", "\"2\"", "2.5", "\"x\""],
        2,
    );
    check(DeclaredType::Float, &["1", "2.5", "9007199254740993"], 1);
    check(
        DeclaredType::Decimal,
        &[
            "1",
            "2.5",
            "18446744073709551615",
            "\"0.10\"",
            "1e-30",
            "-0",
        ],
        2,
    );
    check(
        DeclaredType::Text,
        &["1", "\"x\"", "true", "18446744073709551615", "[1]"],
        1,
    );
    check(DeclaredType::Bool, &["true", "1"], 1);
    check(
        DeclaredType::Timestamp,
        &["\"2024-01-01T00:00:00Z\"", "\"soon\"", "1"],
        2,
    );
    check(DeclaredType::Json, &["{\"a\":{\"b\":1}}", "[1]", "1"], 1);
}

#[test]
fn a_declared_type_may_widen_what_has_landed_and_not_narrow_it() {
    let mut story = Story::of(|_| {});
    story.many(r#"{"v":1.5}"#, 1);
    let before = story.before.take();
    let text = declaring(DeclaredType::Text);
    let contract = Contract::new(&text.config, before.as_ref()).unwrap();
    assert_eq!(
        contract.close().unwrap().schema.columns[0].r#type,
        ColumnType::Utf8
    );
    let int = declaring(DeclaredType::Int);
    let error = Contract::new(&int.config, before.as_ref())
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("`contract.column.\"v\".type`: the column has landed as float already"),
        "{error}"
    );
}

#[test]
fn fault_39_an_object_of_too_many_keys_is_kept_whole_from_then_on() {
    let mut story = Story::of(|config| config.max_keys = Bounded::literal::<3>());
    story.many(r#"{"m":{"a":1,"b":{"x":1}},"n":1}"#, 1);
    let wide = r#"{"m":{"c":1,"d":2},"n":2}"#;
    assert_eq!(
        story.batch(&[wide, r#"{"m":{"a":3},"n":3}"#, r#"{"m":{},"n":3}"#]),
        ["+"; 3]
    );
    let names: Vec<&str> = story.columns().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["m.a", "m.b.x", "n", "m"]);
    assert!(story.before.as_ref().unwrap().schema.columns[3].whole);
    assert_eq!(story.decided()[0], "kept_whole m 1");
    // A later batch knows it from the schema.
    story.many(r#"{"m":{"e":{"f":1}},"n":4}"#, 30);
    assert_eq!(story.columns().len(), 4);
    assert!(story.decided().is_empty(), "{:?}", story.decided());
}

#[test]
fn fault_39_fifty_thousand_keys_make_one_column() {
    let keys: Vec<String> = (0..50_000)
        .map(|i| format!("\"user-{i}\":{{\"n\":{i}}}"))
        .collect();
    let record = format!("{{\"id\":1,\"users\":{{{}}}}}", keys.join(","));
    let mut story = Story::of(|_| {});
    assert_eq!(story.batch(&[&record]), ["+"]);
    assert_eq!(
        story.columns(),
        [("id", ColumnType::Int64), ("users", ColumnType::Json)]
    );
    // Few keys at a time explode it no less.
    let mut story = Story::of(|config| config.max_keys = Bounded::literal::<100>());
    let records: Vec<String> = (0..5_000)
        .map(|i| format!("{{\"by\":{{\"{i}\":{{\"n\":{i}}}}}}}"))
        .collect();
    let records: Vec<&str> = records.iter().map(String::as_str).collect();
    assert!(story.batch(&records).iter().all(|verdict| verdict == "+"));
    assert_eq!(story.columns().len(), 101);
}

#[test]
fn a_rejected_record_makes_nothing_whole() {
    let mut story = Story::of(|config| config.max_keys = Bounded::literal::<2>());
    story.many(r#"{"n":1}"#, 1);
    let verdicts = story.batch(&[
        r#"{"m":{"a":1,"b":1,"c":1},"n":"x"}"#,
        r#"{"m":{"a":1},"n":2}"#,
    ]);
    assert_eq!(verdicts, ["x type_conflict n", "+"]);
    assert_eq!(story.columns()[1], ("m.a", ColumnType::Int64));
}

fn lists(values: &[&str], types: TypeContract) -> (ColumnType, Vec<String>) {
    let mut story = Story::of(|config| {
        config.lists = ListContract::List;
        config.types = types;
    });
    let records: Vec<String> = values.iter().map(|v| format!(r#"{{"v":{v}}}"#)).collect();
    let records: Vec<&str> = records.iter().map(String::as_str).collect();
    let verdicts = story.batch(&records);
    let column = story.columns()[0].1;
    (column, verdicts)
}

#[test]
fn fault_36_a_list_stays_undecided_until_an_item_tells_its_type() {
    let check = |values: &[&str], r#type: ColumnType| {
        let (found, verdicts) = lists(values, TypeContract::QuarantineRow);
        assert_eq!(
            (found, verdicts),
            (r#type, vec!["+".to_owned(); values.len()]),
            "{values:?}"
        );
    };
    check(&["null", "[]", "[null]"], ColumnType::List);
    check(&["[]", "[1,null]", "[2]"], ColumnType::ListInt64);
    check(&["[1]", "[2.5,1]"], ColumnType::ListFloat64);
    check(&["[1.5]", "[2]"], ColumnType::ListFloat64);
    check(&["[9007199254740993]", "[2.5]"], ColumnType::Json);
    check(&["[1.5]", "[9007199254740993]"], ColumnType::Json);
    check(&["[\"a\"]", "[]"], ColumnType::ListUtf8);
    check(&["[true]", "[1]"], ColumnType::Json);
    check(&["[1,\"a\"]"], ColumnType::Json);
    check(&["[[1]]"], ColumnType::Json);
    check(&["[{\"a\":1}]", "[1]"], ColumnType::Json);
    check(&["[18446744073709551615]"], ColumnType::Json);
}

#[test]
fn fault_36_an_object_beside_a_list_has_columns_of_its_own() {
    let mut story = Story::of(|config| config.lists = ListContract::List);
    let verdicts = story.batch(&[
        r#"{"v":[1]}"#,
        r#"{"v":{"x":1}}"#,
        r#"{"v":2}"#,
        r#"{"v":{}}"#,
    ]);
    assert_eq!(verdicts, ["+", "+", "x type_conflict v", "+"]);
    assert_eq!(
        story.columns(),
        [("v", ColumnType::Json), ("v.x", ColumnType::Int64)]
    );
}

#[test]
fn a_list_of_another_type_stops_a_frozen_column() {
    let (r#type, verdicts) = lists(&["[]", "[1]", "[2.5]"], TypeContract::Freeze);
    assert_eq!(
        (r#type, verdicts[2].as_str()),
        (ColumnType::ListInt64, "! types v")
    );
}

#[test]
fn dates_make_timestamps_only_where_they_are_declared() {
    let story = |dates: &[&str], types: TypeContract| {
        let mut story = Story::of(|config| {
            config.types = types;
            config.dates = dates.iter().map(|d| (*d).to_owned()).collect();
        });
        let records = [
            r#"{"at":"2024-02-29T00:00:00Z"}"#,
            r#"{"at":"29.02.2024"}"#,
            r#"{"at":"24:00"}"#,
        ];
        let verdicts = story.batch(&records);
        (story.columns()[0].1, verdicts.join(","))
    };
    let quarantine = TypeContract::QuarantineRow;
    assert_eq!(story(&[], quarantine), (ColumnType::Utf8, "+,+,+".into()));
    let rejected = (
        ColumnType::Timestamp,
        "+,x type_conflict at,x type_conflict at".into(),
    );
    assert_eq!(story(&["rfc3339"], quarantine), rejected);
    let mut open = Story::of(|config| config.dates = vec!["rfc3339".into(), "%Y-%m-%d".into()]);
    let verdicts = open.batch(&[r#"{"at":"9999-12-31T00:00:00Z"}"#, r#"{"at":"9999-12-31"}"#]);
    assert_eq!(
        (open.columns()[0].1, verdicts.join(",").as_str()),
        (ColumnType::Timestamp, "+,+")
    );
    let both = (ColumnType::Timestamp, "+,+,x type_conflict at".into());
    assert_eq!(story(&["rfc3339", "%d.%m.%Y"], quarantine), both);
    assert_eq!(
        story(&["rfc3339"], TypeContract::Widen),
        (ColumnType::Utf8, "+,+,+".into())
    );
}

#[test]
fn a_time_that_no_format_of_the_dates_reads_is_rejected_with_the_format_that_does() {
    let detail = |dates: &[&str], record: &str| {
        let mut config = ContractConfig {
            dates: dates.iter().map(|d| (*d).to_owned()).collect(),
            ..ContractConfig::default()
        };
        let column = config.column.entry("at".to_owned()).or_default();
        column.r#type = Some(DeclaredType::Timestamp);
        let mut contract = Contract::new(&config, None).unwrap();
        match contract.admit(entries(record)) {
            Verdict::Reject(rejection) => rejection.detail,
            _ => "landed".to_owned(),
        }
    };
    let time = r#"{"at":"2026-11-01T10:00:00Z"}"#;
    let found = detail(&["%d.%m.%Y"], time);
    let expected = "`; to read it, add `rfc3339` to `contract.dates`";
    assert!(found.ends_with(expected), "{found}");
    assert_eq!(detail(&["%d.%m.%Y", "rfc3339"], time), "landed");
    let other = detail(&["%d.%m.%Y"], r#"{"at":"soon"}"#);
    assert!(!other.contains("contract.dates"), "{other}");
}
