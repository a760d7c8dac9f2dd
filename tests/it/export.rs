//! `feedline export`, read back by the tools whose formats it writes.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use serde_json::{Map, Value, json};

use crate::support::{
    feedline, files, finish, kill_when, pipeline, python, python_with_torch, run, shared_data,
    start,
};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/export.py");
const RECORD: &str = "_feedline_export.json";

const EVOLVED: &str = r#"
[pipeline]
name = "evolved"
root = "out"

[[source]]
name = "s"
type = "files"
url = "in/*.ndjson"
contract = { types = "widen", lists = "list", dates = ["rfc3339"] }
"#;

/// Rows by day: wider numbers, new columns, nulls, lists, also after nulls alone, and text beyond ASCII.
const DAYS: [&str; 3] = [
    r#"{"id": 1, "amount": 10, "big": 9007199254740993, "seen": true, "sizes": [1, 2], "tags": null, "text": "Zoë 😀"}
{"id": 2, "amount": 20, "big": 2, "seen": false, "sizes": [], "text": "two\nlines, \"quoted\""}
"#,
    r#"{"id": 3, "amount": 2.5, "big": 3, "seen": true, "sizes": [3], "text": "", "note": "a"}
"#,
    r#"{"id": 4, "amount": 18446744073709551615, "big": 4, "at": "2026-01-02T03:04:05.25Z", "tags": [1], "text": "four"}
"#,
];

/// Those rows with one schema, as `export.py` shows them.
fn evolved_rows() -> Vec<Value> {
    let row = |id: u64, batch: u64, place: u32, amount: &str, rest: Value| {
        let mut row: Map<String, Value> = serde_json::from_value(rest).unwrap();
        row.insert("_feedline_seq".to_owned(), batch.into());
        row.insert("_feedline_row".to_owned(), place.into());
        row.insert("id".to_owned(), id.into());
        row.insert("amount".to_owned(), format!("decimal:{amount}").into());
        Value::Object(row)
    };
    vec![
        row(
            1,
            0,
            0,
            "10",
            json!({"big": 9_007_199_254_740_993_u64, "seen": true, "sizes": [1, 2],
                   "tags": null, "text": "Zoë 😀", "note": null, "at": null}),
        ),
        row(
            2,
            0,
            1,
            "20",
            json!({"big": 2, "seen": false, "sizes": [],
                   "tags": null, "text": "two\nlines, \"quoted\"", "note": null, "at": null}),
        ),
        row(
            3,
            1,
            0,
            "2.5",
            json!({"big": 3, "seen": true, "sizes": [3], "tags": null, "text": "", "note": "a", "at": null}),
        ),
        row(
            4,
            2,
            0,
            "18446744073709551615",
            json!({"big": 4, "seen": null, "sizes": null,
                   "tags": [1], "text": "four", "note": null, "at": "2026-01-02T03:04:05.250000"}),
        ),
    ]
}

/// A folder with the landed rows of all [`DAYS`], and the name of the pipeline file in it.
fn evolved() -> (tempfile::TempDir, &'static str) {
    landed(EVOLVED, &DAYS)
}

/// A folder where the pipeline `config` has landed a file for each day, one after another, and the name of its file.
fn landed(config: &str, days: &[&str]) -> (tempfile::TempDir, &'static str) {
    let folder = tempfile::tempdir().unwrap();
    let file = pipeline(folder.path(), config);
    fs::create_dir(folder.path().join("in")).unwrap();
    for (day, text) in days.iter().enumerate() {
        land(folder.path(), file, day, text);
    }
    (folder, file)
}

/// Lands the records of a day.
fn land(folder: &Path, file: &str, day: usize, text: &str) {
    fs::write(folder.join(format!("in/{day}.ndjson")), text).unwrap();
    run(folder, &["ingest", file]).expect(0);
}

/// Removes the mark of columns with integers beyond 2^53 from the first entry of the log, which
/// earlier builds did not write.
fn forget_large_integers(folder: &Path) {
    let path = folder.join("out/landing/s/log/00000000000000000000.json");
    let mut entry: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let mut removed = 0;
    let mut values = vec![&mut entry];
    while let Some(value) = values.pop() {
        if let Value::Object(fields) = value {
            removed += usize::from(fields.remove("large_integers").is_some());
            values.extend(fields.values_mut());
        }
    }
    assert!(removed > 0);
    fs::write(path, serde_json::to_vec(&entry).unwrap()).unwrap();
}

/// Exports with these options to the folder `to`, and returns the report.
fn export(folder: &Path, file: &str, to: &str, options: &[&str]) -> Value {
    let mut arguments = vec!["export", file, "--to", to, "--json"];
    arguments.extend(options);
    run(folder, &arguments).expect(0).json()
}

/// Error of an export, which must end with exit code `code`.
fn refused(folder: &Path, file: &str, to: &str, options: &[&str], code: i32) -> String {
    let mut arguments = vec!["export", file, "--to", to];
    arguments.extend(options);
    run(folder, &arguments).expect(code).stderr
}

/// Rows that `reader` of `export.py` reads; `None` without a Python with `modules`.
fn read(folder: &Path, modules: &str, arguments: &[&str]) -> Option<Vec<Value>> {
    let mut python = match modules {
        "streaming" => python_with_streaming()?,
        modules => python(modules)?,
    };
    python.current_dir(folder).arg(SCRIPT).args(arguments);
    python.env("HF_HUB_OFFLINE", "1");
    let ended = finish(python.output().unwrap()).expect(0);
    Some(serde_json::from_value(ended.json()).unwrap())
}

/// The Python of [`python_with_torch`], if it has MosaicML Streaming too.
fn python_with_streaming() -> Option<Command> {
    let python = python_with_torch()?;
    let mut check = Command::new(python.get_program());
    let works = check.args(["-c", "import streaming"]).output();
    if works.is_ok_and(|output| output.status.success()) {
        return Some(python);
    }
    eprintln!("skipped: `FEEDLINE_TORCH_PYTHON` has no mosaicml-streaming");
    None
}

/// `rows` with `change` made to each.
fn changed(rows: &[Value], change: impl Fn(&mut Map<String, Value>)) -> Vec<Value> {
    let rows = rows.iter().cloned().map(|mut row| {
        change(row.as_object_mut().unwrap());
        row
    });
    rows.collect()
}

/// Replaces the marks of `export.py` by the texts that a format without such a type has.
fn as_text(row: &mut Map<String, Value>, column: &str) {
    let Some(text) = row[column].as_str() else {
        return;
    };
    let text = match text.strip_prefix("decimal:") {
        Some(digits) => digits.to_owned(),
        None => text.replace("250000", "250Z"),
    };
    row.insert(column.to_owned(), text.into());
}

#[test]
fn landed_rows_of_all_types_are_equal_in_parquet() {
    let (folder, file) = evolved();
    let folder = folder.path();
    let report = export(folder, file, "parquet", &["--format", "parquet"]);
    assert_eq!((&report["rows"], &report["files"]), (&4.into(), &1.into()));
    assert_eq!(report["of"]["sequence"], 2);
    assert!(report["left_out"]["_feedline_hash"].is_string(), "{report}");
    let expected = evolved_rows();
    let amount = report["converted"]["amount"].as_str().unwrap();
    assert!(
        amount.contains("`Int64`") && amount.ends_with("here all `Decimal128(38, 18)`"),
        "{report}"
    );
    for reader in ["pyarrow", "polars", "duckdb"] {
        if let Some(rows) = read(folder, reader, &["rows", reader, "parquet"]) {
            assert_eq!(rows, expected, "{reader}");
        }
    }
}

#[test]
fn lists_that_landed_as_json_text_are_named_as_such() {
    let (folder, file) = landed(&EVOLVED.replace("lists = \"list\", ", ""), &DAYS[..1]);
    let folder = folder.path();
    let report = export(folder, file, "hub", &["--format", "huggingface"]);
    assert_eq!(report["json_text"], json!(["sizes"]));
    let card = fs::read_to_string(folder.join("hub/README.md")).unwrap();
    let note = "JSON text, as it landed: `sizes`.";
    assert!(card.contains(note), "{card}");
    let arguments = ["export", file, "--to", "parquet", "--format", "parquet"];
    let text = run(folder, &arguments).expect(0).stdout;
    assert!(
        text.contains("`sizes`, as landed; `contract.lists"),
        "{text}"
    );
    if let Some(rows) = read(folder, "pyarrow", &["rows", "pyarrow", "parquet"]) {
        let sizes: Vec<&Value> = rows.iter().map(|row| &row["sizes"]).collect();
        assert_eq!(sizes, ["[1,2]", "[]"]);
    }
}

#[test]
fn integers_that_a_later_float_rounds_are_counted_once_with_the_remedy() {
    let days = [
        r#"{"id": 1, "big": 9007199254740993, "bigs": [1, -9007199254740993], "small": 1}
{"id": 2, "big": 9007199254740992, "bigs": null, "small": 2}
"#,
        r#"{"id": 3, "big": 2.5, "bigs": [0.5], "small": 0.5}
"#,
    ];
    let (folder, file) = landed(EVOLVED, &days[..1]);
    let folder = folder.path();
    forget_large_integers(folder);
    land(folder, file, 1, days[1]);
    // MDS reads all rows twice.
    for format in ["parquet", "mds"] {
        let report = export(folder, file, format, &["--format", format]);
        let note = |column: &str| report["converted"][column].as_str().unwrap();
        for (column, first, types) in [
            ("big", "9007199254740993", "`decimal` or `text`"),
            ("bigs", "-9007199254740993", "`json`"),
        ] {
            let expected = format!(
                "; rounded integers beyond 2^53: 1, the first is `{first}`; to export all of their digits, declare \
                 `contract.column.{column}.type` as {types}, and ingest again into another root"
            );
            assert!(note(column).ends_with(&expected), "{report}");
        }
        assert!(note("small").ends_with("here all `Float64`"), "{report}");
    }
}

#[test]
fn landed_rows_of_all_types_are_equal_in_hugging_face() {
    let (folder, file) = evolved();
    let folder = folder.path();
    let options = ["--format", "huggingface", "--rows-per-file", "3"];
    let report = export(folder, file, "hub", &options);
    assert_eq!((&report["rows"], &report["files"]), (&4.into(), &2.into()));
    let names: Vec<String> = files(&folder.join("hub"))
        .into_iter()
        .map(|f| f.0)
        .collect();
    let expected = [
        "README.md",
        RECORD,
        "data/train-00000-of-00002.parquet",
        "data/train-00001-of-00002.parquet",
    ];
    assert_eq!(names, expected);
    if let Some(rows) = read(folder, "datasets", &["rows", "huggingface", "hub"]) {
        assert_eq!(rows, evolved_rows());
    }
}

#[test]
fn landed_rows_of_all_types_are_equal_in_webdataset() {
    let (folder, file) = evolved();
    let folder = folder.path();
    let report = export(folder, file, "tars", &["--format", "webdataset"]);
    let converted = report["converted"].as_object().unwrap();
    let names: Vec<&String> = converted.keys().collect();
    assert_eq!(names, ["amount", "at", "text"], "{report}");
    let Some(rows) = read(folder, "webdataset, PIL", &["rows", "webdataset", "tars"]) else {
        return;
    };
    let expected = changed(&evolved_rows(), |row| {
        as_text(row, "amount");
        as_text(row, "at");
        let text = row.remove("text").unwrap();
        row.insert("txt".to_owned(), text);
    });
    assert_eq!(rows, expected);
}

#[test]
fn landed_rows_of_all_types_are_equal_in_mds() {
    let (folder, file) = evolved();
    let folder = folder.path();
    let options = ["--format", "mds", "--rows-per-file", "3"];
    let report = export(folder, file, "plain", &options);
    assert_eq!(report["files"], 2);
    let converted = &report["converted"];
    assert!(
        converted["note"]
            .as_str()
            .unwrap()
            .contains("3 values are null"),
        "{report}"
    );
    let packed = [&options[..], &["--compression", "zstd"]].concat();
    export(folder, file, "packed", &packed);
    assert!(folder.join("packed/shard.00001.mds.zstd").exists());
    let expected = changed(&evolved_rows(), |row| as_text(row, "at"));
    for to in ["plain", "packed"] {
        let modules = "numpy, pyarrow, PIL";
        if let Some(rows) = read(folder, modules, &["rows", "mds", to]) {
            assert_eq!(rows, expected, "{to}");
        }
        if let Some(rows) = read(folder, "streaming", &["rows", "streaming", to]) {
            assert_eq!(rows, expected, "{to}");
        }
    }
}

const KEYED: &str = r#"
[pipeline]
name = "keyed"
root = "out"

[[source]]
name = "orders"
type = "files"
url = "in/*.ndjson"
key = ["id"]

[source.contract.children]
items = { parent = { order = "id" } }
"#;

/// Two versions of one order, and one of another, with their items.
const ORDERS: [&str; 2] = [
    "{\"id\": 1, \"price\": 5, \"items\": [{\"sku\": \"a\"}, {\"sku\": \"b\"}]}\n\
     {\"id\": 2, \"price\": 6, \"items\": [{\"sku\": \"c\"}]}\n",
    "{\"id\": 1, \"price\": 7, \"items\": [{\"sku\": \"d\"}]}\n",
];

#[test]
fn only_latest_versions_of_keys_are_exported_unless_all_are_wanted() {
    let (folder, file) = landed(KEYED, &ORDERS);
    let folder = folder.path();
    let parquet = ["--format", "parquet"];
    let report = export(folder, file, "latest", &parquet);
    assert_eq!(
        (&report["rows"], &report["older_versions"]),
        (&2.into(), &1.into())
    );
    assert_eq!(report["of"]["latest"], true);
    let all = export(
        folder,
        file,
        "all",
        &[&parquet[..], &["--all-versions"]].concat(),
    );
    assert_eq!(
        (&all["rows"], &all["older_versions"]),
        (&3.into(), &0.into())
    );
    let items = [&parquet[..], &["--source", "orders.items"]].concat();
    let report = export(folder, file, "items", &items);
    assert_eq!(
        (&report["rows"], &report["older_versions"]),
        (&2.into(), &2.into())
    );
    let column = |to: &str, column: &str| {
        let rows = read(folder, "pyarrow", &["rows", "pyarrow", to])?;
        let cells = rows.iter().map(|row| row[column].clone());
        Some(cells.collect::<Vec<_>>())
    };
    if let Some(prices) = column("latest", "price") {
        assert_eq!(prices, [6, 7]);
        assert_eq!(column("all", "price").unwrap(), [5, 6, 7]);
        assert_eq!(column("items", "sku").unwrap(), ["c", "d"]);
    }
}

#[test]
fn files_that_were_superseded_after_the_log_was_read_are_exported() {
    let (folder, file) = landed(KEYED, &ORDERS);
    let folder = folder.path();
    let exports = |to: &str| {
        let sources: [&[&str]; 3] = [&[], &["--all-versions"], &["--source", "orders.items"]];
        let written = sources.iter().enumerate().map(|(place, source)| {
            let to = format!("{to}-{place}");
            let options = [&["--format", "parquet"], *source].concat();
            export(folder, file, &to, &options);
            files(&folder.join(to))
        });
        written.collect::<Vec<_>>()
    };
    let before = exports("before");
    // A compaction moves them so after it has written its log entry, which an export that is in progress has not read.
    let landing = folder.join("out/landing/orders");
    fs::create_dir_all(landing.join("superseded")).unwrap();
    for moved in ["data", "children"] {
        fs::rename(landing.join(moved), landing.join("superseded").join(moved)).unwrap();
    }
    assert!(exports("after") == before);
}

#[test]
fn superseded_rows_are_not_exported() {
    let (folder, file) = evolved();
    let folder = folder.path();
    let changed = "{\"id\": 9, \"amount\": 1, \"text\": \"new\"}\n";
    fs::write(folder.join("in/0.ndjson"), changed).unwrap();
    run(folder, &["ingest", file]).expect(0);
    let report = export(folder, file, "parquet", &["--format", "parquet"]);
    assert_eq!(report["rows"], 3);
    if let Some(rows) = read(folder, "pyarrow", &["rows", "pyarrow", "parquet"]) {
        let ids: Vec<&Value> = rows.iter().map(|row| &row["id"]).collect();
        assert_eq!(ids, [3, 4, 9]);
    }
}

const HOMES: &str = r#"
[pipeline]
name = "homes"
root = "out"

[[source]]
name = "homes"
type = "files"
url = "homes.csv"

[dataset]
target = "kind"
task = "classification"
passthrough = ["id", "area", "note"]
features = ["area", "city"]
split = { train = 0.7, validation = 0.15, test = 0.15 }
shards = { block_bytes = "4 KiB", shard_bytes = "64 KiB" }
"#;

/// A folder with a dataset of classes, and the name of the pipeline file in it.
fn homes(rows: u32) -> (tempfile::TempDir, &'static str) {
    let folder = tempfile::tempdir().unwrap();
    let mut csv = "id,area,city,note,kind\n".to_owned();
    for i in 0..rows {
        let (area, city) = (20 + i * 37 % 101, ["Rome", "Köln", ""][(i % 3) as usize]);
        let note = if i % 5 == 0 {
            String::new()
        } else {
            format!("n{i}")
        };
        let kind = ["flat", "house"][usize::from(area > 60)];
        csv += &format!("{i},{area}.5,{city},{note},{kind}\n");
    }
    fs::write(folder.path().join("homes.csv"), csv).unwrap();
    let file = pipeline(folder.path(), HOMES);
    run(folder.path(), &["ingest", file]).expect(0);
    run(folder.path(), &["shards", "build", file]).expect(0);
    (folder, file)
}

/// The manifest of the dataset.
fn manifest(folder: &Path) -> Value {
    let name = fs::read_to_string(folder.join("out/dataset/CURRENT")).unwrap();
    let text = fs::read(folder.join("out/dataset").join(name.trim())).unwrap();
    serde_json::from_slice(&text).unwrap()
}

/// Rows of a split as its shards hold them, with the columns of an export.
fn shard_rows(folder: &Path, split: &str, target: &str) -> Option<Vec<Value>> {
    let rows = read(folder, "pyarrow", &["shards", "out/dataset", split])?;
    let manifest = manifest(folder);
    let transform = manifest["transform"]["path"].as_str().unwrap();
    let transform = fs::read(folder.join("out/dataset").join(transform)).unwrap();
    let transform: Value = serde_json::from_slice(&transform).unwrap();
    let features = transform["features"].as_array().unwrap().clone();
    let rows = changed(&rows, |row| {
        let x = row.remove("x").unwrap();
        if let Some(area) = row.remove("area") {
            row.insert("area__landed".to_owned(), area);
        }
        for (feature, value) in features.iter().zip(x.as_array().unwrap()) {
            let name = feature["name"].as_str().unwrap();
            row.insert(name.to_owned(), value.clone());
        }
        for (own, name) in [
            ("y", target),
            ("key", "_feedline_key"),
            ("origin", "_feedline_origin"),
        ] {
            let value = row.remove(own).unwrap();
            row.insert(name.to_owned(), value);
        }
    });
    Some(rows)
}

#[test]
fn splits_of_a_dataset_are_equal_in_every_format() {
    let (folder, file) = homes(4000);
    let folder = folder.path();
    let shards = manifest(folder)["splits"][0]["shards"].clone();
    assert!(shards.as_array().unwrap().len() > 1, "{shards}");
    let splits = ["train", "validation", "test"];
    let cases = [
        ("parquet", "pyarrow", "pyarrow"),
        ("huggingface", "huggingface", "datasets"),
        ("webdataset", "webdataset", "webdataset, PIL"),
        ("mds", "mds", "numpy, pyarrow, PIL"),
        ("mds", "streaming", "streaming"),
    ];
    for (format, reader, modules) in cases {
        let options = ["--format", format, "--rows-per-file", "1000", "--overwrite"];
        let report = export(folder, file, format, &options);
        assert_eq!(report["rows"], 4000, "{report}");
        assert_eq!(report["of"]["kind"], "dataset");
        assert_eq!(
            report["converted"]["area"]
                .as_str()
                .map(|t| t.contains("area__landed")),
            Some(true)
        );
        for split in splits {
            let Some(expected) = shard_rows(folder, split, "kind") else {
                return;
            };
            assert!(expected.len() > 300, "{split}: {}", expected.len());
            let Some(rows) = read(folder, modules, &["rows", reader, format, split]) else {
                continue;
            };
            assert_eq!(rows, expected, "{reader} {split}");
        }
    }
    // Our own loader reads it too, and compares the hashes.
    run(folder, &["bench", "loader", "mds", "--split", "train"]).expect(0);
}

#[test]
fn rows_of_numbers_images_and_tokens_are_equal_in_every_format() {
    let (folder, file, _) = crate::multi::prepared();
    let folder = folder.path();
    let Some(expected) = shard_rows(folder, "train", "price") else {
        return;
    };
    let image = |column: &'static str| {
        changed(&expected, |row| {
            let bytes = row.remove("image").unwrap();
            assert!(
                bytes.as_str().unwrap().starts_with("bytes:89504e47"),
                "{bytes}"
            );
            row.insert(column.to_owned(), "image:RGB:8x8".into());
        })
    };
    for (format, reader, modules, expected) in [
        ("parquet", "pyarrow", "pyarrow", expected.clone()),
        (
            "huggingface",
            "huggingface",
            "datasets, PIL",
            image("image"),
        ),
        ("webdataset", "webdataset", "webdataset, PIL", image("png")),
        ("mds", "mds", "numpy, pyarrow, PIL", image("image")),
        ("mds", "streaming", "streaming", image("image")),
    ] {
        let options = ["--format", format, "--max-bytes", "16 KiB", "--overwrite"];
        let report = export(folder, file, format, &options);
        assert!(report["files"].as_u64().unwrap() > 3, "{report}");
        assert!(
            folder
                .join(format)
                .join("_feedline_tokenizer.json")
                .exists()
        );
        if let Some(rows) = read(folder, modules, &["rows", reader, format, "train"]) {
            assert_eq!(rows, expected, "{reader}");
        }
    }
}

#[test]
fn windows_stay_lists_in_every_format() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut csv = "at,warmth,load\n".to_owned();
    for hour in 0..400_u32 {
        let (day, of_day) = (1 + hour / 24, hour % 24);
        let load = of_day * 10 + hour % 5;
        csv += &format!("2024-01-{day:02} {of_day:02}:00:00,{},{load}\n", hour % 7);
    }
    fs::write(folder.join("power.csv"), csv).unwrap();
    let text = "[pipeline]\nname = \"power\"\nroot = \"out\"\n\
        [[source]]\nname = \"power\"\ntype = \"files\"\nurl = \"power.csv\"\n\
        contract.column.at.type = \"text\"\n\
        [dataset]\ntarget = \"load\"\nfeatures = [\"warmth\", \"load\"]\n\
        split = { by = \"range\", train = 0.6, validation = 0.2, test = 0.2, embargo = 10 }\n\
        series = { time = \"at\" }\n\
        [dataset.sequence]\nlength = 6\nhorizon = 3\n";
    let file = pipeline(folder, text);
    run(folder, &["ingest", file]).expect(0);
    run(folder, &["shards", "build", file]).expect(0);
    let Some(shards) = read(folder, "pyarrow", &["shards", "out/dataset", "test"]) else {
        return;
    };
    let expected = changed(&shards, |row| {
        assert_eq!(row["x"].as_array().map(Vec::len), Some(12));
        for (own, name) in [
            ("y", "load"),
            ("key", "_feedline_key"),
            ("origin", "_feedline_origin"),
        ] {
            let value = row.remove(own).unwrap();
            row.insert(name.to_owned(), value);
        }
    });
    for (format, reader, modules) in [
        ("parquet", "pyarrow", "pyarrow"),
        ("huggingface", "huggingface", "datasets"),
        ("webdataset", "webdataset", "webdataset, PIL"),
        ("mds", "mds", "numpy, pyarrow, PIL"),
    ] {
        let report = export(folder, file, format, &["--format", format]);
        let load = report["converted"]["load"].as_str().unwrap();
        let expected_note = "the target 3 rows after the last of the window, ";
        assert!(load.starts_with(expected_note), "{report}");
        if let Some(rows) = read(folder, modules, &["rows", reader, format, "test"]) {
            assert_eq!(rows, expected, "{reader}");
        }
    }
}

#[test]
fn classes_are_a_feature_of_hugging_face_and_the_card_names_the_transform() {
    let (folder, file) = homes(100);
    let folder = folder.path();
    export(folder, file, "hub", &["--format", "huggingface"]);
    let card = fs::read_to_string(folder.join("hub/README.md")).unwrap();
    assert!(
        card.contains("- split: validation\n    path: data/validation-*"),
        "{card}"
    );
    assert!(card.contains("after the transform `"), "{card}");
    assert!(folder.join("hub/_feedline_transform.json").exists());
    let Some(mut python) = python("datasets") else {
        return;
    };
    python.current_dir(folder).env("HF_HUB_OFFLINE", "1");
    let ended = finish(python.args([SCRIPT, "features", "hub"]).output().unwrap()).expect(0);
    assert_eq!(ended.json()["kind"], "ClassLabel(names=['flat', 'house'])");
}

const ALBUM: &str = r#"
[pipeline]
name = "album"
root = "out"

[[source]]
name = "album"
type = "files"
format = "image"
url = "album"

[dataset]
kind = "images"
target = "folder"
task = "classification"
split = { train = 0.6, validation = 0.2, test = 0.2 }
"#;

#[test]
fn images_are_images_in_every_format() {
    let Some(photos) = shared_data("images/photos") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (at, entry) in fs::read_dir(photos).unwrap().enumerate() {
        let path = entry.unwrap().path();
        let to = folder.join("album").join(["a", "b"][at % 2]);
        fs::create_dir_all(&to).unwrap();
        fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
    let file = pipeline(folder, ALBUM);
    run(folder, &["ingest", file]).expect(0);
    run(folder, &["shards", "build", file]).expect(0);
    let landed = ["--source", "album"];
    for (format, reader, modules, column) in [
        ("huggingface", "huggingface", "datasets, PIL", "image"),
        ("webdataset", "webdataset", "webdataset, PIL", "jpg"),
        ("mds", "mds", "numpy, pyarrow, PIL", "image"),
        ("mds", "streaming", "streaming", "image"),
    ] {
        for (from, options, split) in [
            ("dataset", &["--dataset"][..], Some("train")),
            ("landed", &landed[..], None),
        ] {
            let to = format!("{format}-{from}");
            let options = [&["--format", format, "--overwrite"], options].concat();
            let report = export(folder, file, &to, &options);
            let mut arguments = vec!["rows", reader, &to];
            arguments.extend(split);
            let Some(rows) = read(folder, modules, &arguments) else {
                continue;
            };
            let expected = match split {
                Some(split) => &report["splits"][split],
                None => &report["rows"],
            };
            assert_eq!(&Value::from(rows.len()), expected, "{to}");
            for row in &rows {
                let image = row[column].as_str().unwrap_or_default();
                assert!(image.starts_with("image:"), "{to}: {row}");
            }
        }
    }
}

#[test]
fn a_folder_of_others_and_a_finished_export_are_not_replaced() {
    let (folder, file) = evolved();
    let folder = folder.path();
    let parquet = ["--format", "parquet"];
    fs::create_dir(folder.join("mine")).unwrap();
    fs::write(folder.join("mine/notes.txt"), "mine").unwrap();
    let error = refused(folder, file, "mine", &parquet, 1);
    assert!(
        error.contains("it has `notes.txt`, and no record"),
        "{error}"
    );
    export(folder, file, "out-1", &parquet);
    let before = files(&folder.join("out-1"));
    let error = refused(folder, file, "out-1", &parquet, 1);
    assert!(error.contains("`--overwrite`"), "{error}");
    let other = fs::read_to_string(folder.join(file)).unwrap();
    fs::write(
        folder.join("other.toml"),
        other.replace("\"evolved\"", "\"other\""),
    )
    .unwrap();
    let overwrite = [&parquet[..], &["--overwrite"]].concat();
    let error = refused(folder, "other.toml", "out-1", &overwrite, 1);
    assert!(
        error.contains("an export of the pipeline `evolved`"),
        "{error}"
    );
    fs::write(folder.join("out-1/notes.txt"), "mine").unwrap();
    let error = refused(folder, file, "out-1", &overwrite, 1);
    assert!(
        error.contains("`notes.txt`, which no export wrote"),
        "{error}"
    );
    fs::remove_file(folder.join("out-1/notes.txt")).unwrap();
    assert_eq!(files(&folder.join("out-1")), before);
    let report = export(folder, file, "out-1", &overwrite);
    assert_eq!(report["replaced"], true);
    assert_eq!(files(&folder.join("out-1")), before);
}

#[test]
fn sources_without_rows_and_damaged_files_are_errors_that_finish_no_export() {
    let (folder, file) = evolved();
    let folder = folder.path();
    let parquet = ["--format", "parquet"];
    let damaged = fs::read_dir(folder.join("out/landing/s/data")).unwrap();
    let damaged = damaged.map(|entry| entry.unwrap().path()).max().unwrap();
    let mut bytes = fs::read(&damaged).unwrap();
    bytes[10] ^= 1;
    fs::write(&damaged, bytes).unwrap();
    let error = refused(folder, file, "new", &parquet, 1);
    let name = damaged.file_name().unwrap().to_str().unwrap();
    assert!(
        error.contains(name) && error.contains("was changed or damaged"),
        "{error}"
    );
    let record = fs::read_to_string(folder.join("new").join(RECORD)).unwrap();
    assert!(record.contains("\"is\": \"writing\""), "{record}");
    fs::write(folder.join("in/0.ndjson"), "").unwrap();
    let other = "[pipeline]\nname = \"empty\"\nroot = \"empty\"\n\
         [[source]]\nname = \"s\"\ntype = \"files\"\nurl = \"in/0.ndjson\"\n";
    fs::write(folder.join("empty.toml"), other).unwrap();
    let error = refused(folder, "empty.toml", "none", &parquet, 1);
    assert!(error.contains("run `feedline ingest` first"), "{error}");
    run(folder, &["ingest", "empty.toml"]);
    let error = refused(folder, "empty.toml", "none", &parquet, 1);
    assert!(error.contains("no rows have landed"), "{error}");
    assert!(!folder.join("none").exists());
    let zstd = ["--format", "webdataset", "--compression", "zstd"];
    let error = refused(folder, file, "none", &zstd, 2);
    assert!(error.contains("readers know no zstd"), "{error}");
    let error = refused(
        folder,
        file,
        "none",
        &["--format", "parquet", "--source", "t"],
        2,
    );
    assert!(error.contains("source `t` does not exist"), "{error}");
    let child = ["--format", "parquet", "--source", "s.items"];
    let error = refused(folder, file, "none", &child, 2);
    assert!(error.contains("source `s` has no child tables"), "{error}");
    let error = refused(
        folder,
        file,
        "none",
        &["--format", "parquet", "--dataset"],
        2,
    );
    assert!(error.contains("has no `[dataset]`"), "{error}");
}

#[test]
fn killed_exports_are_restarted_and_end_with_the_same_bytes() {
    let (folder, file) = homes(20_000);
    let folder = folder.path();
    for format in ["parquet", "huggingface", "webdataset", "mds"] {
        let arguments = |to| {
            let sizes = ["--rows-per-file", "500", "--format", format];
            [&["export", file, "--to", to][..], &sizes].concat()
        };
        run(folder, &arguments(format)).expect(0);
        let undisturbed = files(&folder.join(format));
        let to = format!("{format}-killed");
        let mut killed = 0;
        for round in 0..6_u64 {
            let child = start(folder, &arguments(&to));
            let data = folder.join(&to);
            let was_killed = kill_when(child, Duration::from_millis(round * 7), || {
                data.join(RECORD).exists()
            });
            killed += u32::from(was_killed);
            if !was_killed {
                fs::remove_dir_all(&data).unwrap();
            }
        }
        assert!(killed > 0, "{format}: no export was killed");
        run(folder, &arguments(&to)).expect(0);
        assert!(files(&folder.join(&to)) == undisturbed, "{format}");
        let left = fs::read_dir(folder.join(&to)).unwrap();
        let left = left.filter(|entry| {
            let name = entry.as_ref().unwrap().file_name();
            name.to_string_lossy().starts_with(".tmp-")
        });
        assert_eq!(left.count(), 0, "{format}");
    }
}

#[test]
fn an_interrupted_export_is_not_taken_for_a_finished_one() {
    let (folder, file) = homes(20_000);
    let folder = folder.path();
    let arguments = [
        "export",
        file,
        "--to",
        "tars",
        "--format",
        "webdataset",
        "--rows-per-file",
        "50",
    ];
    let child = feedline(folder)
        .args(arguments)
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let record = folder.join("tars").join(RECORD);
    while !record.exists() {
        crate::support::wait(Duration::from_millis(1));
    }
    let id = child.id().to_string();
    let signal = Command::new("kill").args(["-INT", &id]).status();
    assert!(signal.unwrap().success());
    let ended = finish(child.wait_with_output().unwrap()).expect(1);
    assert!(ended.stderr.contains("interrupted"), "{ended:?}");
    let text = fs::read_to_string(&record).unwrap();
    assert!(text.contains("\"is\": \"writing\""), "{text}");
    let left = files(&folder.join("tars"));
    let is_tar = |(path, _): &(String, Vec<u8>)| path.ends_with(".tar");
    assert!(
        !left.iter().any(is_tar),
        "readers would take it for all rows"
    );
    // A file of the user that came later is not removed.
    fs::write(folder.join("tars/mine.tar"), "mine").unwrap();
    let error = run(folder, &arguments).expect(1).stderr;
    assert!(
        error.contains("`mine.tar`, which no export wrote"),
        "{error}"
    );
    fs::remove_file(folder.join("tars/mine.tar")).unwrap();
    run(folder, &arguments).expect(0);
    let text = fs::read_to_string(&record).unwrap();
    assert!(text.contains("\"is\": \"complete\""), "{text}");
}
