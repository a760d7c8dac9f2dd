use std::{collections::BTreeMap, path::Path};

use feedline_schemas::config::load;
use feedline_storage::Store;

use super::*;
use crate::{
    files::tests::Folder,
    run::ingest,
    testing::{Scripted, context, ok},
};

/// All files below a folder.
fn tree(folder: &Path) -> Vec<String> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        all.push(path.display().to_string());
        if path.is_dir() {
            all.extend(tree(&path));
        }
    }
    all
}

fn pipeline(url: &str, more: &str) -> PipelineConfig {
    let text = format!(
        "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"files\"\nurl = '{url}'\n{more}"
    );
    load("p", &text, &[]).unwrap().config
}

#[tokio::test]
async fn a_preview_shows_what_lands_and_writes_nothing() {
    let table = b"id,price,when,kind\n1,NA,2024-01-31,a\n2,1.5,2024-02-01,NA\n3,2,,b\n4,x\n";
    let folder = Folder::new(&[("a.csv", table)]);
    let config = pipeline(&folder.path("a.csv"), "contract.max_reject_fraction = 1\n");
    let root = tempfile::tempdir().unwrap();
    let url = root.path().join("root").display().to_string();
    let context = Context {
        root: Store::open(&url, &Default::default()).unwrap(),
        ..context()
    };
    let before = tree(root.path());
    let found = preview(&config, None, 0, &context).await.unwrap().remove(0);
    assert_eq!(tree(root.path()), before);
    assert_eq!((found.rows, found.is_all, found.bad), (3, true, 1));
    assert!(found.bad_sample.unwrap().contains("line 5"));
    let shown: Vec<_> = found
        .columns
        .iter()
        .map(|c| (c.name.as_str(), c.r#type, c.missing, c.samples.join(" ")))
        .collect();
    let expected = [
        ("id", "int", 0, "1 2 3"),
        ("price", "float", 1, "2 1.5"),
        ("when", "timestamp", 1, "2024-01-31 2024-02-01"),
        ("kind", "text", 0, "a b NA"),
    ];
    assert_eq!(shown, expected.map(|(n, t, m, s)| (n, t, m, s.to_owned())));
    let codes: Vec<_> = found.warnings.iter().map(|w| w.code.as_str()).collect();
    assert_eq!(codes, ["missing_spellings", "missing_words"]);

    let report = ingest(&config, None, &context).await.unwrap();
    assert_eq!(report.sources[0].warnings, found.warnings);
    let landed = crate::landed(&context.root, &config.source[0].name).await;
    let entries = landed.unwrap().unwrap().entries;
    let types: BTreeMap<_, _> = entries[0]
        .schema
        .columns
        .iter()
        .map(|c| (c.name.as_str(), type_name(Some(c.r#type))))
        .collect();
    assert!(
        found
            .columns
            .iter()
            .all(|c| types[c.name.as_str()] == c.r#type)
    );
}

#[tokio::test]
async fn a_preview_of_what_cannot_be_read_says_why() {
    let folder = Folder::new(&[("a.csv", b"a,a\n1,2\n")]);
    let config = pipeline(&folder.path("a.csv"), "");
    let found = preview(&config, None, 0, &context())
        .await
        .unwrap()
        .remove(0);
    assert!(found.error.unwrap().contains("`a` twice"));
    let none = pipeline(&folder.path("b.csv"), "");
    let error = preview(&none, None, 0, &context())
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("`source.0.url`: file or folder"),
        "{error}"
    );
}

#[tokio::test]
async fn texts_are_looked_at_in_many_files() {
    let texts: Vec<String> = (10..100).map(|number| format!("{number}.txt")).collect();
    let mut files = vec![("0.txt", b" \n".as_slice()), ("1.txt", b"\xff".as_slice())];
    let others = texts.iter();
    files.extend(others.map(|name| (name.as_str(), b"some text".as_slice())));
    for (count, expected) in [(12, (10, 1, 10, true)), (92, (62, 1, 62, false))] {
        let folder = Folder::new(&files[..count]);
        let config = pipeline(&folder.path("*.txt"), "format = \"text\"\n");
        let found = preview(&config, None, 0, &context()).await.unwrap();
        let SourcePreview {
            rows,
            bad,
            decided,
            is_all,
            ..
        } = found[0];
        assert_eq!((rows, bad, decided, is_all), expected);
    }
}

#[tokio::test]
async fn distinct_values_are_those_of_all_files_of_the_sample() {
    let folder = Folder::new(&[
        ("1.csv", b"id,kind\n1,a\n2,b\n"),
        ("2.csv", b"id,kind,late\n3,a\n4,c,x\n5,a,y\n"),
    ]);
    let config = pipeline(&folder.path("*.csv"), "contract.max_reject_fraction = 1\n");
    let found = preview(&config, None, 0, &context()).await.unwrap();
    let columns = found[0].columns.iter();
    let counts: Vec<_> = columns
        .map(|c| (c.name.as_str(), c.compared, c.distinct))
        .collect();
    assert_eq!(counts, [("id", 4, 4), ("kind", 4, 3), ("late", 2, 2)]);
}

#[tokio::test]
async fn integers_that_restart_with_each_group_number_its_rows() {
    let mut text = "trial,sample,hour,gap\n".to_owned();
    let rows = [("a", 70), ("b", 120), ("c", 95)].into_iter();
    let rows = rows.flat_map(|(trial, rows)| (1..=rows).map(move |sample| (trial, sample)));
    for (row, (trial, sample)) in rows.enumerate() {
        let gap = if row == 200 {
            String::new()
        } else {
            sample.to_string()
        };
        text += &format!("{trial},{sample},{},{gap}\n", row % 24);
    }
    let folder = Folder::new(&[("a.csv", text.as_bytes())]);
    let config = pipeline(&folder.path("a.csv"), "");
    let found = preview(&config, None, 0, &context()).await.unwrap();
    let columns = found[0].columns.iter().filter(|column| column.numbers_rows);
    let names: Vec<&str> = columns.map(|column| column.name.as_str()).collect();
    assert_eq!(names, ["sample"]);
}

#[tokio::test]
async fn lists_that_land_as_child_tables_are_counted_and_are_no_columns() {
    let lines = br#"{"id":1,"tags":[1],"items":[{"sku":"a","parts":["x","y"]},{"sku":"b"}]}
{"id":2,"tags":[2],"items":[{"sku":"c","parts":["z"]}]}
{"id":3,"tags":[3],"items":[]}
"#;
    let folder = Folder::new(&[("a.ndjson", lines)]);
    let config = pipeline(
        &folder.path("a.ndjson"),
        "[source.contract.children]\nitems = {}\nparts = { of = \"items\" }\n",
    );
    let context = context();
    let found = preview(&config, None, 0, &context).await.unwrap().remove(0);
    let columns: Vec<_> = found.columns.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(columns, ["id", "tags"]);
    let rows = [("items".to_owned(), 3), ("parts".to_owned(), 3)];
    assert_eq!(found.children, BTreeMap::from(rows));
    let report = ingest(&config, None, &context).await.unwrap();
    assert_eq!(report.sources[0].children, found.children);
}

#[tokio::test]
async fn landed_columns_decide_about_the_files_that_the_next_run_reads() {
    let table = |ids: std::ops::Range<u32>, zip: &str| {
        let rows = ids.map(|id| format!("{id},{zip}{id}\n"));
        format!("id,zip\n{}", rows.collect::<String>())
    };
    let folder = Folder::new(&[("a.csv", table(10..40, "640").as_bytes())]);
    let loose = "contract.max_reject_fraction = 1\n";
    let config = pipeline(&folder.path("*.csv"), loose);
    let context = context();
    let seen = async |config: &PipelineConfig| {
        let found = preview(config, None, 0, &context).await;
        found.unwrap().remove(0)
    };
    let zip = |found: &SourcePreview| found.columns[1].r#type;
    let codes = |found: &SourcePreview| -> Vec<String> {
        let codes = found.warnings.iter().map(|warning| warning.code.clone());
        codes.collect()
    };

    let first = seen(&config).await;
    assert_eq!((first.landed, first.decided, zip(&first)), (0, 30, "int"));
    ingest(&config, None, &context).await.unwrap();
    let same = seen(&config).await;
    assert_eq!((same.landed, same.decided, same.rejected), (30, 30, 0));
    assert_eq!(same.warnings, []);

    folder.write("b.csv", table(40..60, "08").as_bytes());
    let found = seen(&config).await;
    assert_eq!((found.rows, found.is_all, zip(&found)), (50, true, "int"));
    assert_eq!((found.decided, found.rejected), (20, 20));
    let sample = found.rejected_sample.clone().unwrap();
    assert!(sample.contains("column `zip` is integer"), "{sample}");
    assert_eq!(codes(&found), ["other_types_landed"]);
    let message = &found.warnings[0].message;
    let start = "`zip` (landed as integer, but the rows looked at read as text, such as `0840`";
    assert!(message.starts_with(start), "{message}");

    // A declared type decides, and a source of another name has landed nothing.
    let declared = format!("{loose}contract.column.zip.type = \"text\"\n");
    let found = seen(&pipeline(&folder.path("*.csv"), &declared)).await;
    assert_eq!((found.rejected, zip(&found)), (0, "text"));
    assert_eq!(codes(&found), [""; 0]);
    // So does what the contract of the column does with other values.
    let widened = format!("{loose}contract.column.zip.types = \"widen\"\n");
    let found = seen(&pipeline(&folder.path("*.csv"), &widened)).await;
    assert_eq!((found.rejected, zip(&found)), (0, "text"));
    assert!(!codes(&found).contains(&"other_types_landed".to_owned()));
    let mut other = config.clone();
    other.source[0].name = Name::new("other").unwrap();
    let found = seen(&other).await;
    assert_eq!((found.landed, found.rejected, zip(&found)), (0, 0, "text"));

    let next = Context {
        run_id: "next".into(),
        ..context.clone()
    };
    let report = ingest(&config, None, &next).await.unwrap();
    assert_eq!(report.sources[0].rejected, 20);
}

#[tokio::test]
async fn landed_columns_that_cannot_be_read_are_a_warning() {
    let folder = Folder::new(&[("a.csv", b"id\n1\n2\n")]);
    let config = pipeline(&folder.path("a.csv"), "");
    let context = context();
    ingest(&config, None, &context).await.unwrap();
    let entry = feedline_storage::log::entry_path(0);
    let entry = format!("landing/s/{entry}");
    context.root.put(&entry, "{".into()).await.unwrap();
    let found = preview(&config, None, 0, &context).await.unwrap().remove(0);
    assert_eq!((found.landed, found.columns[0].r#type), (0, "int"));
    let [warning] = &found.warnings[..] else {
        panic!("{:?}", found.warnings);
    };
    assert_eq!(warning.code, "landed_not_read");
    assert_eq!(warning.key.as_deref(), Some("pipeline.root"));
}

#[tokio::test]
async fn landed_child_tables_and_columns_decide_about_new_files() {
    let landed = br#"{"id":1,"items":[{"n":1}]}
{"id":2,"items":[{"n":2}]}
"#;
    let folder = Folder::new(&[("a.ndjson", landed)]);
    let settings = "contract.max_reject_fraction = 1\ncontract.columns = \"quarantine_row\"\n\
        contract.children.items = {}\n";
    let config = pipeline(&folder.path("*.ndjson"), settings);
    let context = context();
    ingest(&config, None, &context).await.unwrap();
    let new = br#"{"id":3,"items":[{"n":"x"}]}
{"id":4,"items":[{"n":4}],"late":1}
{"id":5,"items":[]}
"#;
    folder.write("b.ndjson", new);
    let found = preview(&config, None, 0, &context).await.unwrap().remove(0);
    assert_eq!((found.landed, found.decided, found.rejected), (2, 3, 2));
    let next = Context {
        run_id: "next".into(),
        ..context.clone()
    };
    let report = ingest(&config, None, &next).await.unwrap();
    assert_eq!((report.sources[0].rows, report.sources[0].rejected), (3, 2));
    // Rejected records have been read, too.
    let found = preview(&config, None, 0, &context).await.unwrap().remove(0);
    assert_eq!(found.landed, 5);
}

#[tokio::test]
async fn a_changed_file_that_the_next_run_refuses_is_the_stop_of_a_preview() {
    let folder = Folder::new(&[("a.csv", b"id\n1\n2\n")]);
    let config = pipeline(&folder.path("a.csv"), "files.changed = \"refuse\"\n");
    let context = context();
    ingest(&config, None, &context).await.unwrap();
    folder.write("a.csv", b"id\n7\n8\n9\n");
    let found = preview(&config, None, 0, &context).await.unwrap().remove(0);
    assert_eq!((found.landed, found.rows, found.decided), (2, 3, 3));
    let stop = found.stop.unwrap();
    assert!(stop.contains("`files.changed` is `refuse`"), "{stop}");
}

#[tokio::test]
async fn the_first_sampled_file_that_cannot_be_opened_is_the_stop_of_a_preview() {
    let long = (0..30_000)
        .map(|i| format!("{i},{i}\n"))
        .collect::<String>();
    let folder = Folder::new(&[
        ("a.csv", b"a,b\n1,2\n"),
        // Longer than its share of the sample, which takes parts of it.
        ("b.csv", format!("a,b\n{long}").as_bytes()),
        ("c.csv", b"sep=;\na;b\n3;4\n"),
        ("d.csv", b"sep=|\na|b\n5|6\n"),
    ]);
    let config = pipeline(
        &folder.path("*.csv"),
        "csv.delimiter = \",\"\ninfer.rows = 100\n",
    );
    let context = context();
    let found = preview(&config, None, 0, &context).await.unwrap().remove(0);
    let stop = found.stop.unwrap();
    let part =
        "c.csv`: its first line `sep=;` names another delimiter than `csv.delimiter = \",\"`";
    assert!(stop.contains(part), "{stop}");
    assert_eq!((found.error, found.decided), (None, 1));
    // As a run ends.
    let error = ingest(&config, None, &context).await.unwrap_err();
    assert!(error.to_string().contains(part), "{error}");
}

#[tokio::test]
async fn skipped_rows_that_are_wrong_for_some_files_are_refused_before_anything_lands() {
    let folder = Folder::new(&[("a.csv", b"a,b\n1,2\n"), ("b.csv", b"sep=;\na;b\n3;4\n")]);
    let config = pipeline(&folder.path("*.csv"), "csv.skip_rows = 1\n");
    let context = context();
    let refused = [
        preview(&config, None, 0, &context).await.map(drop),
        ingest(&config, None, &context).await.map(drop),
    ];
    for refused in refused {
        let Err(Error::Config { key, reason }) = refused else {
            panic!("not refused");
        };
        assert_eq!(key, "source.0.csv.skip_rows");
        for part in [
            "/b.csv`, which names",
            "/a.csv`, which has no",
            "remove the key",
        ] {
            assert!(reason.contains(part), "{reason}");
        }
    }
    let config = pipeline(&folder.path("*.csv"), "");
    assert_eq!(
        ingest(&config, None, &context).await.unwrap().sources[0].rows,
        2
    );
}

#[tokio::test]
async fn skipped_rows_of_a_long_file_are_those_of_its_beginning() {
    let title = "t".repeat(2000);
    let rows: String = (0..30_000).map(|i| format!("{i};{i}\n")).collect();
    let folder = Folder::new(&[
        ("a.csv", b"sep=;\nt\nt\na;b\n1;2\n"),
        // Longer than its share of the sample, whose parts are shorter than its first line.
        ("b.csv", format!("{title}\nt\nt\na;b\n{rows}").as_bytes()),
    ]);
    let more = "csv.skip_rows = 3\ninfer.rows = 100\n";
    let config = pipeline(&folder.path("*.csv"), more);
    let found = preview(&config, None, 0, &context()).await;
    let found = found.unwrap().remove(0);
    assert_eq!((found.error, found.stop), (None, None));
}

#[tokio::test]
async fn files_that_landed_with_another_delimiter_are_not_compared() {
    let folder = Folder::new(&[("x.csv", b"a,b,c\n1,2,3\n")]);
    let context = context();
    let config = pipeline(&folder.path("*.csv"), "");
    ingest(&config, None, &context).await.unwrap();
    folder.write("y.csv", b"a;b;c\n4;5;6\n");
    for more in ["", "infer.rows = 0\n"] {
        let more = format!("csv.delimiter = \";\"\n{more}");
        let config = pipeline(&folder.path("*.csv"), &more);
        // The second time, both files have landed.
        for run_id in ["second", "third"] {
            let found = preview(&config, None, 0, &context).await.unwrap().remove(0);
            assert_eq!((found.error, found.stop), (None, None), "{more}");
            let next = Context {
                run_id: run_id.into(),
                ..context.clone()
            };
            ingest(&config, None, &next).await.unwrap();
        }
    }
}

#[tokio::test]
async fn landed_records_that_are_looked_at_again_count_once_in_warnings() {
    let table = b"id,sub,share\n1,a,5%\n2,,0.05\n3,c,7%\n";
    let folder = Folder::new(&[("a.csv", table)]);
    let more = "key = [\"id\", \"sub\"]\ncsv = { percent = true }\n";
    let config = pipeline(&folder.path("*.csv"), more);
    let context = context();
    let counts = async || {
        let previews = preview(&config, None, 0, &context).await.unwrap();
        let warnings = previews[0].warnings.iter();
        let messages = warnings.map(|warning| warning.message.clone());
        messages.collect::<Vec<_>>().join("\n")
    };
    let check = |messages: &str, parts: [&str; 2]| {
        for part in parts {
            assert!(messages.contains(part), "{part} in {messages}");
        }
    };
    let once = ["some of 3 records: `sub` in 1. A null", "`share` (2 of 3 "];
    check(&counts().await, once);
    ingest(&config, None, &context).await.unwrap();
    check(&counts().await, once);
    folder.write("b.csv", b"id,sub,share\n4,,5%\n");
    check(
        &counts().await,
        ["some of 4 records: `sub` in 2. A null", "`share` (3 of 4 "],
    );
}

#[tokio::test]
async fn a_rejected_list_leaves_a_column_the_type_that_lands() {
    let rows = (0..40).map(|id| format!(r#"{{"id":{id},"text":"text {id}","x":{id}}}"#));
    let mut lines: Vec<String> = rows.collect();
    lines.insert(20, r#"{"id":90,"text":["a","b"],"x":1}"#.to_owned());
    lines.push(r#"{"id":91,"text":"last","x":[1]}"#.to_owned());
    let shown = async |types: &str| {
        let folder = Folder::new(&[("a.ndjson", lines.join("\n").as_bytes())]);
        let more = format!("contract = {{ max_reject_fraction = 1, types = \"{types}\" }}\n");
        let config = pipeline(&folder.path("a.ndjson"), &more);
        let context = context();
        let found = preview(&config, None, 0, &context).await.unwrap().remove(0);
        ingest(&config, None, &context).await.unwrap();
        let landed = crate::landed(&context.root, &config.source[0].name).await;
        let entries = landed.unwrap().unwrap().entries;
        let landed = entries[0].schema.columns.iter();
        let landed: Vec<_> = landed.map(|c| type_name(Some(c.r#type))).collect();
        let columns = found.columns.iter().map(|c| c.r#type);
        assert_eq!(columns.collect::<Vec<_>>(), landed, "{types}");
        (found.rejected, landed)
    };
    for (types, rejected) in [("quarantine_row", 2), ("null_value", 0), ("widen", 2)] {
        let expected = (rejected, vec!["int", "text", "int"]);
        assert_eq!(shown(types).await, expected, "{types}");
    }
}

#[tokio::test]
async fn a_secret_that_a_server_repeats_is_masked_in_all_that_a_preview_shows() {
    let body =
        r#"{"items": [{"id": 1, "kind": "secret-CANARY"}, {"id": "secret-CANARY", "kind": "b"}]}"#;
    let server = Scripted::start([ok(body)]).await;
    let text = format!(
        "[pipeline]\nname = 'p'\n[[source]]\nname = 's'\ntype = 'rest'\nurl = '{}'\nrecords = 'items'\n\
         pagination.type = 'none'\nheaders.X-A = {{ env = 'CANARY' }}\ncontract.column.id.type = 'int'\n",
        server.url
    );
    let config = load("p", &text, &[]).unwrap().config;
    let found = preview(&config, None, 2, &context()).await.unwrap();
    assert_eq!((found[0].records.len(), found[0].rejected), (2, 1));
    assert!(found[0].rejected_sample.as_ref().unwrap().contains("***"));
    let shown = format!("{found:?}");
    assert!(!shown.contains("CANARY"), "{shown}");
}

#[tokio::test]
async fn a_preview_shows_the_separators_of_numbers_with_their_evidence() {
    let folder = Folder::new(&[("a.csv", b"id;price;size\n1;1.234,56;38\n2;3.287;40\n")]);
    let look = async |keys: &str| {
        let csv = format!("csv = {{ delimiter = \";\"{keys} }}\n");
        let config = pipeline(&folder.path("a.csv"), &csv);
        preview(&config, None, 0, &context())
            .await
            .unwrap()
            .remove(0)
    };
    let found = look("").await;
    assert!(found.has_grouped_commas);
    let numbers = found.columns[1].numbers.as_ref().unwrap();
    assert_eq!(numbers.cell, "1.234,56");
    assert_eq!((numbers.decimal_separator, &numbers.number), (None, &None));
    let found = look(", decimal_separator = \",\", thousands_separator = \".\"").await;
    assert!(!found.has_grouped_commas);
    let columns = found.columns.iter();
    let shown: Vec<_> = columns.map(|column| column.numbers.is_some()).collect();
    assert_eq!(shown, [false, true, false]);
    let json = serde_json::to_value(&found.columns[1]).unwrap();
    let expected = serde_json::json!({
        "is_type_declared": false,
        "decimal_separator": ",",
        "thousands_separator": ".",
        "reason": "declared; 1 value with a decimal comma such as `1.234,56`",
        "cell": "3.287",
        "number": "3287",
    });
    assert_eq!(json["numbers"], expected);
}
