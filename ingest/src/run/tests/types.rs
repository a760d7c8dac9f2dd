//! Types that are inferred before anything lands, of complete sources.

use feedline_schemas::{
    config::{Bounded, Real, load},
    record::ColumnType,
    report::Warning,
};
use std::{collections::BTreeSet, io::Read as _, path::PathBuf};

use arrow::util::display::array_value_to_string;

use super::*;
use crate::{files::tests::Folder, landed_file};

/// Shuffles lines by a seed (splitmix64).
fn shuffled(lines: &[String], seed: u64) -> Vec<String> {
    let mut state = seed;
    let mut below = |bound: usize| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % bound as u64).unwrap()
    };
    let mut lines = lines.to_vec();
    for at in (1..lines.len()).rev() {
        lines.swap(at, below(at + 1));
    }
    lines
}

/// Landed data of a file, regardless of the order of its rows.
#[derive(Debug, PartialEq)]
struct Outcome {
    columns: Vec<(String, ColumnType)>,
    rows: BTreeSet<String>,
    warnings: Vec<Warning>,
    rejected: BTreeMap<String, u64>,
    missing: BTreeMap<String, u64>,
}

impl Outcome {
    fn type_of(&self, name: &str) -> ColumnType {
        let mut columns = self.columns.iter();
        columns.find(|(column, _)| column == name).unwrap().1
    }

    fn codes(&self) -> Vec<&str> {
        self.warnings.iter().map(|w| w.code.as_str()).collect()
    }
}

/// A warning without the places of values, which depend on the order of rows.
fn placeless(warning: &Warning) -> Warning {
    let mut parts = warning.message.split(", the first in line ");
    let mut message = parts.next().unwrap().to_owned();
    for part in parts {
        let (number, rest) = part.split_at(part.find(|c: char| !c.is_ascii_digit()).unwrap());
        assert!(!number.is_empty(), "{}", warning.message);
        message += rest;
    }
    // The message has the findings.
    Warning {
        message,
        findings: Vec::new(),
        ..warning.clone()
    }
}

async fn outcome(config: &PipelineConfig) -> Outcome {
    let root = Store::memory();
    let report = ingest(config, None, &context(&root)).await.unwrap();
    let source = &report.sources[0];
    let landed = landed(&root, &config.source[0].name)
        .await
        .unwrap()
        .unwrap();
    let last = landed.entries.last().unwrap();
    let columns = last.schema.columns.iter();
    let names: Vec<String> = columns.clone().map(|column| column.name.clone()).collect();
    let mut rows = BTreeSet::new();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let folder = landing(&root, &config.source[0].name);
    for file in landed.entries.iter().flat_map(|entry| &entry.files) {
        for batch in landed_file::read(&folder, file, &names, None)
            .await
            .unwrap()
        {
            for row in 0..batch.num_rows() {
                let cells = batch.columns().iter();
                let cells = cells.map(|c| array_value_to_string(c, row).unwrap());
                rows.insert(cells.collect::<Vec<_>>().join("|"));
            }
        }
    }
    let missing = source
        .decisions
        .get("read_as_missing")
        .into_iter()
        .flatten();
    Outcome {
        columns: columns.map(|c| (c.name.clone(), c.r#type)).collect(),
        rows,
        warnings: source.warnings.iter().map(placeless).collect(),
        rejected: source.rejected_by_reason.clone(),
        missing: missing
            .map(|(path, noted)| (path.clone(), noted.count))
            .collect(),
    }
}

/// Lands a table in ten orders, and with the lines that `is_odd` selects first, in the middle and
/// last: all land the same.
async fn check_orders(header: &str, lines: &[String], is_odd: impl Fn(&str) -> bool) -> Outcome {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.csv");
    let mut config = pipeline(&path.display().to_string());
    let source = &mut config.source[0];
    // Several batches, so that the first one does not have all rows.
    source.batch.rows = Bounded::literal::<150>();
    source.batch.dedup_window = Some(0);
    source.contract.max_reject_fraction = Real::literal(1.0);
    let (odd, plain): (Vec<String>, Vec<String>) =
        lines.iter().cloned().partition(|line| is_odd(line));
    let (before, behind) = plain.split_at(plain.len() / 2);
    let mut orders = vec![
        [odd.clone(), plain.clone()].concat(),
        [before.to_vec(), odd.clone(), behind.to_vec()].concat(),
        [plain.clone(), odd].concat(),
    ];
    orders.extend((0..10).map(|seed| shuffled(lines, seed)));
    let mut first = None;
    for (number, order) in orders.into_iter().enumerate() {
        std::fs::write(&path, format!("{header}\n{}\n", order.join("\n"))).unwrap();
        let found = outcome(&config).await;
        match &first {
            None => first = Some(found),
            Some(first) => assert_eq!(*first, found, "order {number}"),
        }
    }
    first.unwrap()
}

/// 1,000 rows with the cells that once turned a numeric column into a category if they came first.
fn applicants() -> Vec<String> {
    let line = |i: u32| {
        let income = match i % 12 {
            0 => "NA".to_owned(),
            _ => (900 + i % 700).to_string(),
        };
        let expenses = match i {
            500 => "unknown".to_owned(),
            _ => format!("{}.5", i % 90),
        };
        let cells = [
            i.to_string(),
            income,
            expenses,
            ["None", "good", "bad", "NA"][(i % 4) as usize].to_owned(),
            format!("{},{:02}", 1000 + i, i % 100),
            format!("{}%", i % 50),
            format!("2024-03-{:02}", 1 + i % 30),
            format!("{:02}/{:02}/2024", 1 + i % 28, 1 + i % 12),
        ];
        cells.map(|cell| format!("\"{cell}\"")).join(",")
    };
    (0..1000).map(line).collect()
}

#[tokio::test]
async fn s1_types_do_not_depend_on_the_order_of_rows() {
    use ColumnType::{Float64, Int64, Timestamp, Utf8};
    let header = "id,Income,Expenses,Status,Ratio,pct,day,seen";
    let is_odd = |line: &str| line.contains("NA") || line.contains("unknown");
    let found = check_orders(header, &applicants(), is_odd).await;
    for (name, expected) in [
        ("id", Int64),
        ("Income", Int64),
        ("Expenses", Float64),
        ("Status", Utf8),
        ("Ratio", Utf8),
        ("pct", Utf8),
        ("day", Timestamp),
        ("seen", Utf8),
    ] {
        assert_eq!(found.type_of(name), expected, "{name}");
    }
    assert_eq!(
        found.rejected,
        BTreeMap::from([("type_conflict".to_owned(), 1)])
    );
    assert_eq!(found.missing, BTreeMap::from([("Income".to_owned(), 84)]));
    assert_eq!(
        found.codes(),
        [
            "missing_spellings",
            "odd_values",
            "missing_words",
            "looks_like_decimal_comma",
            "looks_like_percent",
            "looks_like_dates"
        ]
    );
    assert!(found.rows.iter().any(|row| row.contains("|None|")));
}

fn table(name: &str) -> Option<(String, Vec<String>)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/tabular");
    let path = folder.join(name);
    let Ok(packed) = std::fs::read(&path) else {
        eprintln!("skipped: there is no `{}`", path.display());
        return None;
    };
    let mut text = String::new();
    flate2::read::MultiGzDecoder::new(&packed[..])
        .read_to_string(&mut text)
        .unwrap();
    let mut lines = text.lines().map(ToOwned::to_owned);
    let header = lines.next().unwrap();
    Some((header, lines.collect()))
}

#[tokio::test]
async fn real_tables_land_alike_in_any_order() {
    use ColumnType::{Float64, Int64, Timestamp, Utf8};
    let Some((header, lines)) = table("penguins_raw.csv.gz") else {
        return;
    };
    let found = check_orders(&header, &lines, |line| line.contains("NA")).await;
    for (name, expected) in [
        ("Sample Number", Int64),
        ("Culmen Length (mm)", Float64),
        ("Delta 15 N (o/oo)", Float64),
        ("Date Egg", Timestamp),
        ("Sex", Utf8),
    ] {
        assert_eq!(found.type_of(name), expected, "{name}");
    }
    assert_eq!((found.rows.len(), found.rejected.len()), (344, 0));
    let Some((header, mut lines)) = table("birdstrikes.csv.gz") else {
        return;
    };
    lines.truncate(400);
    let found = check_orders(&header, &lines, |line| line.ends_with(',')).await;
    assert_eq!(found.type_of("Effect Amount of damage"), Utf8);
    assert!(found.rows.iter().any(|row| row.contains("|None|")));
    assert_eq!(found.type_of("Speed IAS in knots"), Int64);
}

#[tokio::test]
async fn s2_decimal_commas_and_percentages_are_numbers_when_they_are_declared() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.csv");
    std::fs::write(
        &path,
        "id;Ratio;pct;code\n1;1.000,14;17%;3,5\n2;2,5;18 %;x\n3;NA;;y\n",
    )
    .unwrap();
    let mut config = pipeline(&path.display().to_string());
    let csv = &mut config.source[0].csv;
    csv.delimiter = Some(";".into());
    csv.decimal_separator = Some(',');
    csv.thousands_separator = Some('.');
    csv.percent = true;
    let found = outcome(&config).await;
    assert_eq!(found.type_of("Ratio"), ColumnType::Float64);
    assert_eq!(found.type_of("pct"), ColumnType::Int64);
    let rows: Vec<&str> = found.rows.iter().map(String::as_str).collect();
    assert_eq!(rows, ["1|1000.14|17|3,5", "2|2.5|18|x", "3|||y"]);
    assert_eq!(found.codes(), ["missing_spellings"]);
}

#[tokio::test]
async fn a_number_by_other_signs_than_declared_does_not_fit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.csv");
    let rows: Vec<String> = (0..200).map(|i| format!("{i},5")).collect();
    std::fs::write(&path, format!("x\n\"{}\"\n\"1.5\"\n", rows.join("\"\n\""))).unwrap();
    let mut config = pipeline(&path.display().to_string());
    config.source[0].csv.decimal_separator = Some(',');
    let found = outcome(&config).await;
    assert_eq!(
        found.rejected,
        BTreeMap::from([("type_conflict".to_owned(), 1)])
    );
    assert_eq!((found.rows.len(), found.codes()), (200, vec!["odd_values"]));
}

/// API pages with a column that is false or a float, as a comment is edited or not.
fn edited() -> Scripted {
    let page = |page: u32| {
        let row = |i: u32| {
            let edited = if i % 10 == 3 {
                format!("15039594{i:02}.5")
            } else {
                "false".into()
            };
            record(&format!(r#"{{"id":{i},"data":{{"edited":{edited}}}}}"#))
        };
        (page * 25..page * 25 + 25).map(row).collect()
    };
    Scripted {
        pages: (0..4).map(page).collect(),
        broken: None,
    }
}

#[tokio::test]
async fn false_or_a_float_lands_as_text_and_is_said() {
    let root = Store::memory();
    let config = SourceConfig {
        batch: Default::default(),
        ..config()
    };
    run(&root, &config, &mut edited()).await.unwrap();
    let entries = entries(&root).await;
    let [entry] = &entries[..] else {
        panic!("{entries:?}")
    };
    assert_eq!((entry.counts.rows, entry.counts.rejected), (100, 0));
    let columns = &entry.schema.columns;
    assert_eq!(columns[1].name, "data.edited");
    assert_eq!(columns[1].r#type, ColumnType::Utf8);
    let warnings = &entry.state.warnings;
    assert_eq!(warnings[0].code, "mixed_types");
    assert!(
        warnings[0].message.starts_with(
            "`data.edited` (90 booleans such as `false`, 10 floats such as `1503959403.5`"
        ),
        "{}",
        warnings[0].message
    );
    // Interrupted and resumed, it is decided alike.
    let resumed = Store::memory();
    let mut broken = edited();
    broken.broken = Some(2);
    run(&resumed, &config, &mut broken).await.unwrap_err();
    run(&resumed, &config, &mut edited()).await.unwrap();
    assert_eq!(snapshot(&root).await, snapshot(&resumed).await);
}

#[tokio::test]
async fn a_column_that_comes_late_begins_with_the_type_that_was_planned() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.ndjson");
    let line = |i: u32| match i {
        0..150 => format!(r#"{{"id":{i}}}"#),
        // By the first value only it would be boolean, and the others would be rejected.
        150..160 => format!(r#"{{"id":{i},"late":false}}"#),
        _ => format!(r#"{{"id":{i},"late":{i}.5}}"#),
    };
    let lines: Vec<String> = (0..300).map(line).collect();
    std::fs::write(&path, lines.join("\n")).unwrap();
    let mut config = pipeline(&path.display().to_string());
    config.source[0].batch.rows = Bounded::literal::<50>();
    let root = Store::memory();
    let report = ingest(&config, None, &context(&root)).await.unwrap();
    assert_eq!((report.rows, report.rejected), (300, 0));
    let landed = landed(&root, &config.source[0].name)
        .await
        .unwrap()
        .unwrap();
    let first: CommitEntry = serde_json::from_slice(
        &root
            .get("landing/s/log/00000000000000000000.json")
            .await
            .unwrap(),
    )
    .unwrap();
    assert_eq!(
        first.state.planned,
        BTreeMap::from([("late".to_owned(), ColumnType::Utf8)])
    );
    let last = landed.entries.last().unwrap();
    assert!(last.state.planned.is_empty());
    assert_eq!(last.schema.columns[1].r#type, ColumnType::Utf8);
}

#[tokio::test]
async fn a_long_file_is_looked_at_in_parts_all_over_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.csv");
    // Text appears in the last fifth only.
    let line = |i: u32| match i {
        0..2_400 => format!("{i},x\n"),
        _ => format!("n{i},x\n"),
    };
    let text: String = (0..3_000).map(line).collect();
    std::fs::write(&path, format!("id,pad\n{text}")).unwrap();
    let mut config = pipeline(&path.display().to_string());
    config.source[0].batch.rows = Bounded::literal::<1_500>();
    config.source[0].infer.rows = Bounded::literal::<400>();
    let root = Store::memory();
    let report = ingest(&config, None, &context(&root)).await.unwrap();
    assert_eq!((report.rows, report.rejected), (3_000, 0));
    assert_eq!(report.sources[0].warnings[0].code, "mixed_types");
    // Without a sample the first batch decides, and the others do not fit.
    config.source[0].infer.rows = Bounded::literal::<0>();
    config.source[0].contract.max_reject_fraction = Real::literal(1.0);
    let report = ingest(&config, None, &context(&Store::memory()))
        .await
        .unwrap();
    assert_eq!(report.rejected, 600);
}

#[tokio::test]
async fn a_warning_about_a_type_holds_until_the_source_is_reset() {
    let folder = tempfile::tempdir().unwrap();
    let config = pipeline(&format!("{}/*.csv", folder.path().display()));
    let root = Store::memory();
    let land = async |name: &str, lines: &str| {
        std::fs::write(folder.path().join(name), lines).unwrap();
        let report = ingest(&config, None, &context(&root)).await.unwrap();
        report.sources[0].warnings.clone()
    };
    let first = land("a.csv", "id;price\n1;2,5\n2;3,5\n").await;
    let codes = |warnings: &[Warning]| {
        let codes = warnings.iter().map(|warning| warning.code.clone());
        codes.collect::<BTreeSet<_>>()
    };
    let expected = ["csv_delimiter", "looks_like_decimal_comma"].map(str::to_owned);
    assert_eq!(codes(&first), BTreeSet::from(expected));
    // The second run reads another file: its delimiter is configured, the type of the column is the
    // same.
    let second = land("b.csv", "id,price\n3,4\n4,5\n").await;
    let expected = ["looks_like_decimal_comma".to_owned()];
    assert_eq!(codes(&second), BTreeSet::from(expected));
    let status = status(&config, &root).await.unwrap();
    assert_eq!(codes(&status.sources[0].warnings), codes(&second));
}

#[tokio::test]
async fn numbers_and_numbers_in_strings_have_the_type_that_holds_both() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.ndjson");
    let config = pipeline(&path.display().to_string());
    for (in_string, expected) in [
        ("12.25", ColumnType::Float64),
        ("12", ColumnType::Int64),
        ("9007199254740993.5", ColumnType::Decimal),
    ] {
        let line = |i: u32| match i % 10 {
            0 => format!(r#"{{"price":{i}}}"#),
            _ => format!(r#"{{"price":"{in_string}"}}"#),
        };
        let lines: Vec<String> = (0..200).map(line).collect();
        std::fs::write(&path, lines.join("\n")).unwrap();
        let found = outcome(&config).await;
        assert_eq!(found.type_of("price"), expected, "{in_string}");
        assert_eq!(found.rejected, BTreeMap::new(), "{in_string}");
    }
}

#[tokio::test]
async fn numbers_that_a_float_cannot_hold_and_codes_are_not_changed_in_silence() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.csv");
    let config = pipeline(&path.display().to_string());
    let line = |i: u32| {
        let code = if i.is_multiple_of(3) {
            format!("1{i:02}E4")
        } else {
            format!("{}", 10_000 + i)
        };
        format!("0.12345678901234{i:04},{code},+2990000{i},+0.69486{i},1.5e3")
    };
    let lines: Vec<String> = (10..90).map(line).collect();
    let text = format!("long,code,phone,sign,power\n{}\n", lines.join("\n"));
    std::fs::write(&path, text).unwrap();
    let found = outcome(&config).await;
    assert_eq!(found.type_of("long"), ColumnType::Float64);
    assert_eq!(found.type_of("code"), ColumnType::Utf8);
    assert_eq!(found.type_of("phone"), ColumnType::Utf8);
    assert_eq!(found.type_of("sign"), ColumnType::Float64);
    assert_eq!(found.type_of("power"), ColumnType::Float64);
    let codes = found.codes();
    assert!(
        codes.contains(&"digits_rounded") && codes.contains(&"mixed_types"),
        "{codes:?}"
    );
}

#[tokio::test]
async fn a_column_of_a_later_file_has_the_type_of_all_its_rows() {
    let folder = tempfile::tempdir().unwrap();
    let config = pipeline(&format!("{}/*.csv", folder.path().display()));
    let root = Store::memory();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("a.csv", "id\n1\n2\n");
    ingest(&config, None, &context(&root)).await.unwrap();
    write(
        "b.csv",
        "id,day,n,code\n3,2026-01-01,NA,0\n4,2026-01-02,7,005\n5,2026-01-03,8,A6\n",
    );
    let report = ingest(&config, None, &context(&root)).await.unwrap();
    assert_eq!((report.sources[0].rows, report.sources[0].rejected), (5, 0));
    let landed = landed(&root, &config.source[0].name)
        .await
        .unwrap()
        .unwrap();
    let columns = &landed.entries.last().unwrap().schema.columns;
    let types: Vec<ColumnType> = columns.iter().map(|column| column.r#type).collect();
    let expected = [
        ColumnType::Int64,
        ColumnType::Timestamp,
        ColumnType::Int64,
        ColumnType::Utf8,
    ];
    assert_eq!(types, expected);
}

#[tokio::test]
async fn notices_of_many_files_are_counted_over_all_batches() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a", "b", "c"] {
        let rows: Vec<String> = (0..200).map(|i| format!("{i};{name}")).collect();
        let text = format!("id;name\n{}\n", rows.join("\n"));
        std::fs::write(folder.path().join(format!("{name}.csv")), text).unwrap();
    }
    let mut config = pipeline(&format!("{}/*.csv", folder.path().display()));
    config.source[0].batch.rows = Bounded::literal::<150>();
    let found = outcome(&config).await;
    assert_eq!(found.codes(), ["csv_delimiter"]);
    let message = &found.warnings[0].message;
    assert!(
        message.ends_with("(and the same of 2 other files)"),
        "{message}"
    );
}

#[tokio::test]
async fn a_format_that_is_declared_for_one_column_leaves_dates_as_in_iso_8601_of_another() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.csv");
    let line = |i: u32| format!("2024-03-{:02},{:02}/03/2024", 1 + i % 30, 1 + i % 30);
    let lines: Vec<String> = (0..60).map(line).collect();
    std::fs::write(&path, format!("day,seen\n{}\n", lines.join("\n"))).unwrap();
    let mut config = pipeline(&path.display().to_string());
    config.source[0].batch.dedup_window = Some(0);
    config.source[0].contract.dates = vec!["%d/%m/%Y".to_owned()];
    let found = outcome(&config).await;
    for name in ["day", "seen"] {
        assert_eq!(found.type_of(name), ColumnType::Timestamp, "{name}");
    }
    assert_eq!(found.rejected, BTreeMap::new());
    assert_eq!(found.codes(), Vec::<&str>::new());
}

/// A source of the files `in/*` with more lines, and the report of its run.
async fn report_of(files: &[(&str, &[u8])], more: &str) -> IngestReport {
    let folder = Folder::new(files);
    let url = folder.path("*");
    let text = format!(
        "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"files\"\nurl = '{url}'\n{more}"
    );
    let config = load("p", &text, &[]).unwrap().config;
    ingest(&config, None, &context(&Store::memory()))
        .await
        .unwrap()
}

#[tokio::test]
async fn values_of_another_type_are_named_with_the_place_of_the_first_one() {
    let one: &[u8] = b"n,m\n1,1\n2,2\n3,3\n";
    let two: &[u8] = b"n,m\n4,4\n5,x\n6,y\n";
    let report = report_of(&[("a.csv", one), ("b.csv", two)], "").await;
    let message = &report.sources[0].warnings[0].message;
    let part = "(4 integers such as `1`, `2`, `3`, the first in line 2 of `a.csv`, 2 texts such as `x`, `y`, the first in line 3 of `b.csv`)";
    assert!(message.contains(part), "{message}");

    let declared = "contract = { max_reject_fraction = 1, column.m.type = \"int\" }\n";
    let report = report_of(&[("a.csv", one), ("b.csv", two)], declared).await;
    let sample = report.sources[0].reject_sample.clone().unwrap();
    let start = "`type_conflict`: `b.csv`: line 3: column `m` is integer";
    assert!(sample.starts_with(start), "{sample}");

    let returns: &[u8] = b"n,m\r\n4,4\r\n5,x\r\n6,y\r\n";
    let report = report_of(&[("a.csv", one), ("b.csv", returns)], declared).await;
    let sample = report.sources[0].reject_sample.clone().unwrap();
    assert!(sample.starts_with(start), "{sample}");

    // A cell of two lines: the number of a line is not known, that of the record is.
    let tall: &[u8] = b"n,m\n4,\"4\"\n\"5\n5\",x\n6,y\n";
    let report = report_of(&[("a.csv", one), ("b.csv", tall)], declared).await;
    let sample = report.sources[0].reject_sample.clone().unwrap();
    assert!(sample.contains("`b.csv`: record 2: column"), "{sample}");

    let lines: &[u8] = b"{\"m\":1}\n{\"m\":\"x\"}\n";
    let report = report_of(&[("a.ndjson", lines)], declared).await;
    let sample = report.sources[0].reject_sample.clone().unwrap();
    assert!(sample.contains("`a.ndjson`: line 2: column"), "{sample}");
}
