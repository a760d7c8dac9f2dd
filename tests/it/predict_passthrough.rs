//! Passthrough columns of predictions in Parquet, and cells of new rows that are not as expected.

use std::{fmt::Write as _, fs, path::Path};

use feedline_preprocess::{Column, RowFormat, RowsOut};
use feedline_readers::{
    file_format::{Kind, Packing},
    notices::Notices,
    rows::{Layout, Rows, open::open_local},
    value_view::ValueView,
};
use feedline_schemas::{
    config::{ArchiveConfig, CsvConfig, FileFormat, JsonConfig, TextConfig},
    record::ColumnType,
};
use serde_json::Value;

use crate::support::{pipeline, run};

const PIPELINE: &str = r#"
[pipeline]
name = "homes"
root = "out"

[[source]]
name = "homes"
type = "files"
url = "homes.csv"
contract = { column = { id = { type = "int" } } }

[dataset]
target = "price"
drop = ["id"]
expect = { file = "expect.toml" }
split = { train = 0.6, validation = 0.2, test = 0.2 }

[train]
model = { type = "mlp", hidden = [4] }
batch_size = 20
epochs = 1
"#;

const EXPECT: &str = "[[column]]\nname = \"size\"\nkind = \"numeric\"\nmax = 200.0\n";

/// A trained pipeline in `folder`.
fn trained(folder: &Path) -> &'static str {
    let mut csv = "id,size,garden,price\n".to_owned();
    for id in 0..120 {
        let size = 20 + id * 7 % 90;
        writeln!(csv, "{id},{size},{},{}", id % 3 == 0, size * 3 + id % 5).unwrap();
    }
    fs::write(folder.join("homes.csv"), csv).unwrap();
    fs::write(folder.join("expect.toml"), EXPECT).unwrap();
    let file = pipeline(folder, PIPELINE);
    run(folder, &["run", file]).expect(0);
    file
}

fn open_parquet(path: &Path) -> Box<dyn Rows> {
    let layout = Layout {
        kind: Kind::Parquet,
        packing: Packing::Plain,
        name: path.display().to_string(),
        notices: Notices::default(),
        format: FileFormat::Parquet,
        csv: CsvConfig::default(),
        delimiter: None,
        known_columns: Vec::new(),
        sample_bytes: None,
        records: String::new(),
        json: JsonConfig::default(),
        text: TextConfig::default(),
        archive: ArchiveConfig::default(),
    };
    open_local(path, &layout).unwrap()
}

/// The only warning of the report with this code.
fn message<'r>(report: &'r Value, code: &str) -> &'r str {
    let warnings = report["warnings"].as_array().unwrap().iter();
    let found: Vec<&Value> = warnings.filter(|found| found["code"] == code).collect();
    assert_eq!(found.len(), 1, "{code}: {report}");
    found[0]["message"].as_str().unwrap()
}

#[test]
fn passthrough_columns_keep_the_types_of_the_input_in_parquet() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let file = trained(folder);
    check_types_of_parquet(folder, file);
    check_declared_type_of_csv(folder, file);
    check_names_of_predictions(folder, file);
}

/// A column that is called as one of the predictions has another name in their file.
fn check_names_of_predictions(folder: &Path, file: &str) {
    let new = "size,garden,row,error\n50,true,77,none\n";
    fs::write(folder.join("named.csv"), new).unwrap();
    let predict = ["predict", file, "named.csv", "--passthrough", "row"];
    let to = ["--passthrough", "error", "--to", "named-out.csv"];
    run(folder, &[&predict[..], &to].concat()).expect(0);
    let written = fs::read_to_string(folder.join("named-out.csv")).unwrap();
    let lines: Vec<&str> = written.lines().collect();
    let header = "kept=row,kept=error,row,prediction,error,detail";
    assert_eq!(lines[0], header, "{written}");
    assert!(lines[1].starts_with("77,none,0,"), "{written}");
}

fn check_types_of_parquet(folder: &Path, file: &str) {
    let names = ["id", "size", "garden", "note"].map(str::to_owned);
    let mut bytes = Vec::new();
    let mut out = RowsOut::new(&mut bytes, RowFormat::Parquet, &names).unwrap();
    out.write(vec![
        Column::Integers(vec![Some(-3), None]),
        Column::Long(vec![Some(50.5), Some(60.0)]),
        Column::Bools(vec![Some(true), Some(false)]),
        Column::Text(vec![Some("01".to_owned()); 2]),
    ])
    .unwrap();
    out.finish().unwrap();
    fs::write(folder.join("new.parquet"), bytes).unwrap();
    let kept = ["id", "size", "garden", "note"];
    let mut predict = vec!["predict", file, "new.parquet", "--to", "typed.parquet"];
    predict.extend(kept.iter().flat_map(|name| ["--passthrough", *name]));
    run(folder, &predict).expect(0);
    let mut rows = open_parquet(&folder.join("typed.parquet"));
    assert_eq!(rows.columns().unwrap().unwrap()[..4], kept);
    let types = (0..4).map(|place| rows.declared_type(place, &[]));
    let expected = [
        ColumnType::Int64,
        ColumnType::Float64,
        ColumnType::Bool,
        ColumnType::Utf8,
    ];
    assert_eq!(types.collect::<Vec<_>>(), expected.map(Some));
    assert!(rows.next_row().unwrap().is_some());
    assert_eq!(rows.cell(0), ValueView::Int(-3));
    assert!(rows.next_row().unwrap().is_some());
    assert_eq!(rows.cell(0), ValueView::Null);
}

/// A cell that is not of the declared type is in `detail` and in a warning.
fn check_declared_type_of_csv(folder: &Path, file: &str) {
    fs::write(
        folder.join("new.csv"),
        "id,size,garden\n5,50,true\nA7,60,false\n",
    )
    .unwrap();
    let predict = ["predict", file, "new.csv", "--passthrough", "id", "--json"];
    let report = run(folder, &[&predict[..], &["--to", "typed.parquet"]].concat());
    let report = report.expect(0).json();
    assert_eq!(report["untyped_cells"]["id"], 1, "{report}");
    let found = message(&report, "passthrough_not_typed");
    assert!(
        found.starts_with("1 cell of the passthrough column `id` is"),
        "{found}"
    );
    let mut rows = open_parquet(&folder.join("typed.parquet"));
    let names = rows.columns().unwrap().unwrap();
    let place = |name: &str| names.iter().position(|own| own == name).unwrap();
    assert_eq!(
        rows.declared_type(place("id"), &[]),
        Some(ColumnType::Int64)
    );
    assert!(rows.next_row().unwrap().is_some());
    assert_eq!(rows.cell(place("id")), ValueView::Int(5));
    assert!(rows.next_row().unwrap().is_some());
    assert_eq!(rows.cell(place("id")), ValueView::Null);
    assert_ne!(rows.cell(place("prediction")), ValueView::Null);
    let detail = format!("{:?}", rows.cell(place("detail")));
    assert!(detail.contains("`A7`"), "{detail}");
    // Text loses nothing, so it needs no warning.
    let report = run(folder, &[&predict[..], &["--to", "plain.csv"]].concat());
    assert_eq!(report.expect(0).json()["warnings"], Value::Null);
    let plain = fs::read_to_string(folder.join("plain.csv")).unwrap();
    assert!(
        plain.lines().nth(2).unwrap().starts_with("A7,1,"),
        "{plain}"
    );
}

#[test]
fn new_rows_that_are_not_as_expected_are_predicted_with_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let file = trained(folder);
    fs::write(
        folder.join("new.csv"),
        "size,garden\n50,true\n900,true\n800,false\n",
    )
    .unwrap();
    let predict = ["predict", file, "new.csv", "--to", "new.ndjson", "--json"];
    let report = run(folder, &predict).expect(0).json();
    assert_eq!(report["rejected"], 0, "{report}");
    let found = message(&report, "unexpected_rows");
    let begin = "2 new rows are not as `size.max` in `";
    assert!(
        found.starts_with(begin) && found.contains("such as `900`"),
        "{found}"
    );
    // A model is used without the file, too.
    fs::remove_file(folder.join("expect.toml")).unwrap();
    let report = run(folder, &predict).expect(0).json();
    let found = message(&report, "expectations_unread");
    assert!(found.contains("does not exist"), "{found}");
}
