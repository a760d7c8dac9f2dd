//! New rows against the build: the same cells, features and reasons, in any format and in batches of any size.

mod byte_columns;
mod conflicts;
mod joins;
mod objects;
mod passthrough;
mod pauses;
mod queries;

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    io::Cursor,
    sync::{Arc, LazyLock},
};

use arrow::array::{ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray};
use feedline_schemas::{
    config::{ArchiveConfig, ContractConfig, CsvConfig, FileFormat},
    record::ColumnType::{self, Bool, Float64, Int64, Utf8},
};
use feedline_storage::Store;
use parquet::arrow::ArrowWriter;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{
    Transform, read_manifest, read_transform,
    testing::{Cells, LandingZone, build_with, written},
};

const COLUMNS: [(&str, ColumnType); 6] = [
    ("id", Int64),
    ("size", Float64),
    ("rooms", Int64),
    ("kind", Utf8),
    ("new", Bool),
    ("price", Float64),
];
/// `rooms` is a category of numbers, `kind` one of text that looks like numbers.
const DATASET: &str = "sources = [\"a\"]\ntarget = \"price\"\ndrop = [\"id\"]\ncategorical = [\"rooms\"]\nnull_values = [\"?\"]\nmissing_values = [-1]\nmax_reject_fraction = 1.0\n";

fn row(i: u32) -> Cells {
    let size = match i % 11 {
        0 => Value::Null,
        3 => json!(-1.0),
        _ => json!(f64::from(i) / 7.0),
    };
    let kind = ["01", "1", "x,\"y\"", "?", "z"][(i % 5) as usize];
    vec![
        json!(i),
        size,
        json!(i % 4),
        json!(kind),
        if i.is_multiple_of(13) {
            Value::Null
        } else {
            json!(i.is_multiple_of(2))
        },
        json!(f64::from(i) * 2.0 + 1.0),
    ]
}

/// A dataset of 400 rows, the transform of it, and the types that its columns have landed as.
struct Built {
    transform: Transform,
    landed: BTreeMap<String, ColumnType>,
    /// Features of the rows by number.
    x: BTreeMap<u32, Vec<f32>>,
}

static BUILT: LazyLock<Built> =
    LazyLock::new(|| built(&COLUMNS, DATASET, (0..400).map(row).collect()));

/// The dataset of these rows of a source that landed them.
fn built(columns: &[(&str, ColumnType)], dataset: &str, rows: Vec<Cells>) -> Built {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let root = Store::memory();
        LandingZone::new(&root, "a", columns).batch(&rows).await;
        build_with(&root, dataset, 2).await.unwrap();
        let dataset = root.child("dataset");
        let manifest = read_manifest(&dataset).await.unwrap();
        let landed = landed_types(&root, &manifest).await.unwrap();
        let artefact = read_transform(&dataset, &manifest).await.unwrap();
        let rows = written(&dataset).await.into_iter();
        Built {
            transform: Transform::new(artefact).unwrap(),
            landed,
            x: rows
                .map(|row| (u32::try_from(row.origin.row()).unwrap(), row.x))
                .collect(),
        }
    })
}

fn reading(format: FileFormat, batch_rows: usize) -> RowsReading {
    RowsReading {
        format,
        csv: CsvConfig::default(),
        records: String::new(),
        archive: ArchiveConfig::default(),
        landed: BUILT.landed.clone(),
        contracts: Vec::new(),
        names_as_written: false,
        keep: Vec::new(),
        max_missing_fraction: None,
        batch_rows,
        joins: None,
        pause: None,
    }
}

/// Features, faults by row, and what was kept.
type Read = (Vec<Vec<f32>>, BTreeMap<u64, Fault>, Vec<Option<String>>);

fn read_all(bytes: Vec<u8>, reading: &RowsReading) -> Result<Read, Error> {
    read_with(&BUILT.transform, bytes, reading)
}

fn read_with(transform: &Transform, bytes: Vec<u8>, reading: &RowsReading) -> Result<Read, Error> {
    let stream = RowSource::Stream(Box::new(Cursor::new(bytes)));
    let mut rows = RowsIn::open(stream, reading, transform.artefact())?;
    let (mut x, mut bad, mut kept) = (Vec::new(), BTreeMap::new(), Vec::new());
    while let Some(found) = rows.next_rows()? {
        assert!(found.inputs.num_rows() <= reading.batch_rows);
        let features = found.features(transform)?;
        assert_eq!(features.first, x.len() as u64);
        bad.extend(
            features
                .bad
                .into_iter()
                .map(|(row, fault)| (features.first + row as u64, fault)),
        );
        x.extend(
            features
                .x
                .chunks_exact(transform.features())
                .map(<[f32]>::to_vec),
        );
        kept.extend(features.kept.into_iter().next().unwrap_or_default());
    }
    Ok((x, bad, kept))
}

fn text(cell: &Value) -> String {
    match cell {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn csv_of(rows: impl Iterator<Item = Cells>) -> Vec<u8> {
    let mut out = csv::Writer::from_writer(Vec::new());
    // Another order than in the dataset, without the target, and a column that nothing asks for.
    out.write_record(["kind", "note", "new", "rooms", "size", "id"])
        .unwrap();
    for row in rows {
        let cells = [3, 5, 4, 2, 1, 0].map(|i| if i == 5 { "n".into() } else { text(&row[i]) });
        out.write_record(cells).unwrap();
    }
    out.into_inner().unwrap()
}

fn ndjson_of(rows: impl Iterator<Item = Cells>) -> Vec<u8> {
    let mut out = String::new();
    for row in rows {
        let object: serde_json::Map<String, Value> = COLUMNS
            .iter()
            .zip(row)
            .map(|((name, _), cell)| ((*name).to_owned(), cell))
            .filter(|(_, cell)| !cell.is_null())
            .collect();
        writeln!(out, "{}\n", Value::Object(object)).unwrap();
    }
    out.into_bytes()
}

fn json_of(rows: impl Iterator<Item = Cells>) -> Vec<u8> {
    let lines = String::from_utf8(ndjson_of(rows)).unwrap();
    let objects: Vec<&str> = lines.split_whitespace().collect();
    format!("{{\"data\":[{}]}}", objects.join(",")).into_bytes()
}

fn arrow_of(rows: impl Iterator<Item = Cells>) -> Vec<u8> {
    let batch = batch_of(rows);
    let schema = batch.schema();
    let mut writer = arrow::ipc::writer::StreamWriter::try_new(Vec::new(), &schema).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    writer.into_inner().unwrap()
}

fn parquet_of(rows: impl Iterator<Item = Cells>) -> Vec<u8> {
    let batch = batch_of(rows);
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.into_inner().unwrap()
}

fn batch_of(rows: impl Iterator<Item = Cells>) -> RecordBatch {
    let rows: Vec<Cells> = rows.collect();
    let cells = |i: usize| rows.iter().map(move |row| row[i].clone());
    let columns: [(&str, ArrayRef); 5] = [
        (
            "id",
            Arc::new(cells(0).map(|c| c.as_i64()).collect::<Int64Array>()),
        ),
        (
            "new",
            Arc::new(cells(4).map(|c| c.as_bool()).collect::<BooleanArray>()),
        ),
        (
            "kind",
            Arc::new(
                cells(3)
                    .map(|c| c.as_str().map(str::to_owned))
                    .collect::<StringArray>(),
            ),
        ),
        (
            "rooms",
            Arc::new(cells(2).map(|c| c.as_i64()).collect::<Int64Array>()),
        ),
        (
            "size",
            Arc::new(cells(1).map(|c| c.as_f64()).collect::<Float64Array>()),
        ),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, c)| (n, c, true)))
        .unwrap()
}

fn bits(x: &[Vec<f32>]) -> Vec<Vec<u32>> {
    let row = |row: &Vec<f32>| row.iter().map(|x| x.to_bits()).collect();
    x.iter().map(row).collect()
}

#[test]
fn the_landed_rows_read_as_new_ones_are_those_of_the_shards_in_every_format() {
    let expected: Vec<Vec<f32>> = BUILT.x.values().cloned().collect();
    assert_eq!(expected.len(), 400);
    assert_eq!(BUILT.landed.len(), COLUMNS.len());
    type Make = fn(std::iter::Map<std::ops::Range<u32>, fn(u32) -> Cells>) -> Vec<u8>;
    let makes: [(FileFormat, Make); 5] = [
        (FileFormat::Csv, csv_of),
        (FileFormat::Ndjson, ndjson_of),
        (FileFormat::Json, json_of),
        (FileFormat::Parquet, parquet_of),
        (FileFormat::Arrow, arrow_of),
    ];
    for (format, make) in makes {
        let bytes = make((0..400).map(row as fn(u32) -> Cells));
        let reading = RowsReading {
            records: "data".to_owned(),
            ..reading(format, 64)
        };
        let (x, bad, _) = read_all(bytes, &reading).unwrap();
        assert_eq!(bad, BTreeMap::new(), "{format:?}");
        assert_eq!(bits(&x), bits(&expected), "{format:?}");
    }
}

#[test]
fn local_files_are_read_by_their_names() {
    let expected: Vec<Vec<f32>> = BUILT.x.values().take(20).cloned().collect();
    let folder = tempfile::tempdir().unwrap();
    let rows = || (0..20).map(row as fn(u32) -> Cells);
    let gzip = |bytes: Vec<u8>| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut encoder, &bytes).unwrap();
        encoder.finish().unwrap()
    };
    for (name, bytes) in [
        ("a.csv", csv_of(rows())),
        ("b.jsonl.gz", gzip(ndjson_of(rows()))),
        (
            "c.json.zst",
            zstd::encode_all(&*json_of(rows()), 1).unwrap(),
        ),
        ("d.parquet", parquet_of(rows())),
        ("e.parquet.gz", gzip(parquet_of(rows()))),
        ("f.feather", arrow_of(rows())),
    ] {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let reading = RowsReading {
            records: "data".to_owned(),
            ..reading(FileFormat::Auto, 64)
        };
        let artefact = BUILT.transform.artefact();
        let mut rows = RowsIn::open(RowSource::File(path), &reading, artefact).unwrap();
        let found = rows.next_rows().unwrap().unwrap();
        let found = found.features(&BUILT.transform).unwrap();
        assert_eq!(found.bad, BTreeMap::new(), "{name}");
        let expected = expected.iter().flatten().map(|x| x.to_bits());
        assert!(found.x.iter().map(|x| x.to_bits()).eq(expected), "{name}");
        assert!(rows.next_rows().unwrap().is_none());
    }
    for (name, part) in [
        ("a.zip", "it is an archive"),
        ("a.tar.gz", "it is an archive"),
        ("a.xlsx", "its name has no known extension (csv, tsv, json"),
        ("none.csv", "No such file"),
    ] {
        let path = folder.path().join(name);
        if name != "none.csv" {
            std::fs::write(&path, "a").unwrap();
        }
        let reading = reading(FileFormat::Auto, 64);
        let artefact = BUILT.transform.artefact();
        let error = RowsIn::open(RowSource::File(path), &reading, artefact).unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn objects_have_the_bounds_of_the_contract() {
    let contract = |text: &str| -> ContractConfig { serde_json::from_str(text).unwrap() };
    let lines = "{\"kind\":\"z\",\"new\":true,\"rooms\":1,\"size\":2,\"more\":[[[1]]]}\n";
    let shallow = contract(r#"{"json":{"max_depth":2}}"#);
    for (contracts, is_bad) in [
        (vec![shallow.clone()], true),
        (vec![shallow.clone(), shallow.clone()], true),
        // They differ, so the usual ones hold.
        (vec![shallow, contract("{}")], false),
    ] {
        let reading = RowsReading {
            contracts,
            ..reading(FileFormat::Ndjson, 9)
        };
        let (_, bad, _) = read_all(lines.into(), &reading).unwrap();
        assert_eq!(bad.contains_key(&0), is_bad, "{bad:?}");
    }
}

#[test]
fn a_ragged_row_does_not_hide_the_delimiter_that_the_columns_show() {
    let csv = "kind;new;rooms;size\nz;true;1\nz;true;1;2\n";
    let stream = RowSource::Stream(Box::new(Cursor::new(csv)));
    let reading = reading(FileFormat::Csv, 9);
    let artefact = BUILT.transform.artefact();
    let mut rows = RowsIn::open(stream, &reading, artefact).unwrap();
    let warnings = rows.warnings();
    assert_eq!(warnings[0].code, "csv_delimiter");
    let part = "is read with the delimiter `;`, which splits its header into known columns";
    assert!(warnings[0].message.contains(part), "{warnings:?}");
    let found = rows.next_rows().unwrap().unwrap();
    let bad: Vec<_> = found
        .bad
        .iter()
        .map(|(row, fault)| (*row, fault.reason))
        .collect();
    assert_eq!(bad, [(0, "ragged_row")]);
}

#[test]
fn columns_of_objects_are_read_by_their_paths_in_tables_too() {
    use arrow::{
        array::StructArray,
        datatypes::{DataType, Field},
    };

    let numbers = |from: i64| -> ArrayRef { Arc::new(Int64Array::from(vec![from, from + 1])) };
    let field = |name: &str| Arc::new(Field::new(name, DataType::Int64, true));
    let inner = StructArray::from(vec![(field("h"), numbers(1)), (field("x"), numbers(9))]);
    let columns: [(&str, ArrayRef); 3] =
        [("y", numbers(5)), ("n", Arc::new(inner)), ("z", numbers(7))];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    let parquet = writer.into_inner().unwrap();
    let mut writer =
        arrow::ipc::writer::StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    let stream = writer.into_inner().unwrap();
    let open = |format, bytes: &[u8], names: &[&str]| {
        let mut artefact = BUILT.transform.artefact().clone();
        let input = |name: &&str| InputColumn {
            name: (*name).to_owned(),
            kind: InputKind::Numeric,
        };
        artefact.inputs = names.iter().map(input).collect();
        let source = RowSource::Stream(Box::new(Cursor::new(bytes.to_vec())));
        RowsIn::open(source, &reading(format, 9), &artefact)
    };
    for (format, bytes) in [(FileFormat::Parquet, parquet), (FileFormat::Arrow, stream)] {
        let mut rows = open(format, &bytes, &["n.h", "y"]).unwrap();
        assert_eq!(rows.ignored(), ["z"]);
        let found = rows.next_rows().unwrap().unwrap().inputs;
        let cells = found.columns().iter().map(|column| {
            let cells =
                arrow::array::AsArray::as_primitive::<arrow::datatypes::Float64Type>(column);
            cells.iter().flatten().collect::<Vec<_>>()
        });
        assert_eq!(cells.collect::<Vec<_>>(), [[1.0, 2.0], [5.0, 6.0]]);
        // A key that no object has is reported, as of objects of JSON.
        let mut rows = open(format, &bytes, &["n.h", "n.q"]).unwrap();
        while rows.next_rows().unwrap().is_some() {}
        assert_eq!(rows.absent(), ["n.q"]);
        // A column that holds no objects has nothing below it.
        let error = open(format, &bytes, &["y.h"]).unwrap_err().to_string();
        assert!(
            error.contains("it lacks the needed column: `y.h`"),
            "{error}"
        );
    }
}

#[test]
fn timestamps_of_parquet_need_no_format() {
    let micros = [1_735_603_200_000_000_i64];
    let at: ArrayRef = Arc::new(arrow::array::TimestampMicrosecondArray::from(
        micros.to_vec(),
    ));
    let batch = RecordBatch::try_from_iter([("at", at)]).unwrap();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    let bytes = writer.into_inner().unwrap();
    let mut artefact = BUILT.transform.artefact().clone();
    artefact.inputs = vec![InputColumn {
        name: "at".to_owned(),
        kind: InputKind::Categorical,
    }];
    let contract = serde_json::from_str(r#"{"dates":["%d.%m.%Y"]}"#).unwrap();
    let reading = RowsReading {
        landed: BTreeMap::from([("at".to_owned(), ColumnType::Timestamp)]),
        contracts: vec![contract],
        ..reading(FileFormat::Parquet, 9)
    };
    let source = RowSource::Stream(Box::new(Cursor::new(bytes)));
    let mut rows = RowsIn::open(source, &reading, &artefact).unwrap();
    let found = rows.next_rows().unwrap().unwrap();
    assert_eq!(found.bad, BTreeMap::new());
    let cells = arrow::array::AsArray::as_string::<i32>(found.inputs.column(0));
    assert_eq!(cells.value(0), "2024-12-31T00:00:00Z");
}

#[test]
fn duplicate_keys_are_settled_as_the_contract_says() {
    let lines = "{\"kind\":\"z\",\"new\":true,\"rooms\":9,\"size\":2,\"rooms\":1}\n";
    let (_, bad, _) = read_all(lines.into(), &reading(FileFormat::Ndjson, 9)).unwrap();
    assert_eq!(bad[&0].reason, "duplicate_key");
    let part = "line 1: key `rooms` twice in one object";
    assert!(bad[&0].detail.starts_with(part), "{:?}", bad[&0]);
    let contract: ContractConfig = serde_json::from_str(r#"{"duplicate_keys":"last"}"#).unwrap();
    let keeping = RowsReading {
        contracts: vec![contract],
        ..reading(FileFormat::Ndjson, 9)
    };
    let (x, bad, _) = read_all(lines.into(), &keeping).unwrap();
    let once = "{\"kind\":\"z\",\"new\":true,\"rooms\":1,\"size\":2}\n";
    let (expected, _, _) = read_all(once.into(), &keeping).unwrap();
    assert_eq!((bits(&x), bad.len()), (bits(&expected), 0));
}

#[test]
fn without_the_landing_zone_types_follow_from_the_known_categories() {
    let expected: Vec<Vec<f32>> = BUILT.x.values().cloned().collect();
    let reading = RowsReading {
        landed: BTreeMap::new(),
        ..reading(FileFormat::Csv, 100)
    };
    let (x, bad, _) = read_all(csv_of((0..400).map(row)), &reading).unwrap();
    assert_eq!(bad, BTreeMap::new());
    assert_eq!(bits(&x), bits(&expected));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    /// Good and bad lines in any order, in batches of any size.
    #[test]
    fn trap_41_one_row_and_many_have_the_same_bits_whatever_the_batches(
        lines in prop::collection::vec((0_u32..400, 0_u8..8), 1..60),
        batch_rows in 1_usize..70,
    ) {
        let mut bytes = Vec::new();
        for (i, kind) in &lines {
            match kind {
                0 => bytes.extend(b"{\"size\":\n"),
                1 => bytes.extend(b"[1]\n"),
                2 => bytes.extend(b"{\"rooms\":1,\"rooms\":2}\n"),
                3 => bytes.extend(b"{\"size\":9007199254740993}\n"),
                4 => bytes.extend(b"{\"kind\":[1]}\n"),
                _ => bytes.extend(ndjson_of(std::iter::once(row(*i)))),
            }
        }
        let whole = read_all(bytes.clone(), &reading(FileFormat::Ndjson, 1000)).unwrap();
        let found = read_all(bytes, &reading(FileFormat::Ndjson, batch_rows)).unwrap();
        prop_assert_eq!(bits(&found.0), bits(&whole.0));
        prop_assert_eq!(found.1, whole.1.clone());
        prop_assert_eq!(whole.0.len(), lines.len());
        let reasons = ["malformed_line", "not_an_object", "duplicate_key", "type_conflict", "type_conflict"];
        for (at, (i, kind)) in lines.iter().enumerate() {
            let fault = whole.1.get(&(at as u64)).map(|fault| fault.reason);
            prop_assert_eq!(fault, reasons.get(usize::from(*kind)).copied());
            if fault.is_none() {
                prop_assert_eq!(&whole.0[at], &BUILT.x[i]);
            }
        }
    }
}

#[test]
fn rows_that_cannot_be_read_keep_their_place_and_tell_their_line() {
    let csv =
        b"kind,new,rooms,size\nx,true,1,2\n\nx,true,1\nz,false,\xff,1\nx,true,1,inf\n".to_vec();
    let (x, bad, _) = read_all(csv, &reading(FileFormat::Csv, 2)).unwrap();
    assert_eq!(x.len(), 4);
    let found: Vec<(u64, &str)> = bad
        .iter()
        .map(|(row, fault)| (*row, fault.reason))
        .collect();
    let reasons = ["ragged_row", "invalid_utf8", "type_conflict"];
    assert_eq!(
        found,
        [1, 2, 3].into_iter().zip(reasons).collect::<Vec<_>>()
    );
    assert!(bad[&1].detail.starts_with("line "), "{:?}", bad[&1]);
    assert!(
        bad[&1].detail.ends_with(": 3 fields, the header has 4"),
        "{:?}",
        bad[&1]
    );
}

#[test]
fn another_delimiter_is_found_by_the_columns_of_the_training_data() {
    let usual = b"kind,new,rooms,size\nz,true,1,2\n".to_vec();
    let (expected, _, _) = read_all(usual, &reading(FileFormat::Csv, 9)).unwrap();
    for delimiter in [";", "\t", "|"] {
        let csv = "kind,new,rooms,size\nz,true,1,2\n".replace(',', delimiter);
        let (x, bad, _) = read_all(csv.clone().into(), &reading(FileFormat::Csv, 9)).unwrap();
        assert_eq!((x, bad.len()), (expected.clone(), 0), "{delimiter:?}");
        let mut given = reading(FileFormat::Csv, 9);
        given.csv.delimiter = Some(",".into());
        assert!(read_all(csv.into(), &given).is_err(), "{delimiter:?}");
    }
}

#[test]
fn unknown_categories_have_the_reserved_id_and_sparse_rows_are_told() {
    let csv = b"kind,new,rooms,size\nnever seen,,,\n".to_vec();
    let (x, bad, _) = read_all(csv.clone(), &reading(FileFormat::Csv, 9)).unwrap();
    assert_eq!(bad, BTreeMap::new());
    let names = BUILT
        .transform
        .artefact()
        .features
        .iter()
        .map(|feature| &feature.name);
    let at = names
        .into_iter()
        .position(|name| name == "kind=__unknown__")
        .unwrap();
    assert_eq!(x[0][at].to_bits(), 1.0_f32.to_bits());
    let sparse = RowsReading {
        max_missing_fraction: Some(0.5),
        ..reading(FileFormat::Csv, 9)
    };
    let (_, bad, _) = read_all(csv, &sparse).unwrap();
    assert_eq!(bad[&0].reason, "too_many_missing");
    assert_eq!(bad[&0].detail, "line 2: 3 of 4 features are missing");
}

#[test]
fn columns_are_carried_along_and_others_are_ignored() {
    let keeping = |format| RowsReading {
        keep: vec!["id".into()],
        ..reading(format, 3)
    };
    let expected: Vec<Option<String>> = (0..7).map(|i: u32| Some(i.to_string())).collect();
    let kept = read_all(csv_of((0..7).map(row)), &keeping(FileFormat::Csv))
        .unwrap()
        .2;
    assert_eq!(kept, expected);
    let kept = read_all(ndjson_of((0..7).map(row)), &keeping(FileFormat::Ndjson))
        .unwrap()
        .2;
    assert_eq!(kept, expected);
    let kept = read_all(parquet_of((0..7).map(row)), &keeping(FileFormat::Parquet))
        .unwrap()
        .2;
    assert_eq!(kept, expected);
    let stream = RowSource::Stream(Box::new(Cursor::new(csv_of((0..1).map(row)))));
    let rows = RowsIn::open(
        stream,
        &reading(FileFormat::Csv, 3),
        BUILT.transform.artefact(),
    )
    .unwrap();
    assert_eq!(rows.ignored(), ["note", "id"]);
}

#[test]
fn a_file_that_lacks_columns_is_refused_with_all_of_their_names() {
    let csv = b"kind,room,size\nx,1,2\n".to_vec();
    let error = read_all(csv, &reading(FileFormat::Csv, 9))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("it lacks 2 of the 4 needed columns: `rooms`, `new`; did you mean `room`?"),
        "{error}"
    );
    assert!(!error.contains("--passthrough"), "{error}");
    let carrying = RowsReading {
        keep: vec!["qqq".into()],
        ..reading(FileFormat::Csv, 9)
    };
    let error = read_all(csv_of((0..1).map(row)), &carrying)
        .unwrap_err()
        .to_string();
    let expected = "`qqq`; give all columns of the training data and those of `--passthrough`";
    assert!(error.contains(expected), "{error}");
    let lines = b"{\"other\":1}\n".to_vec();
    let error = read_all(lines, &reading(FileFormat::Ndjson, 9))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("its first object has none of the columns"),
        "{error}"
    );
}

#[test]
fn a_quote_that_is_left_open_ends_the_reading() {
    let csv = b"kind,new,rooms,size\nx,true,1,2\n\"x,true,1,2\nz,true,1,2\n".to_vec();
    let error = read_all(csv, &reading(FileFormat::Csv, 9))
        .unwrap_err()
        .to_string();
    assert!(error.contains("a quote is not closed"), "{error}");
}

#[test]
fn keys_of_nested_objects_are_columns_by_their_path() {
    let lines = "{\"a\":{\"b\":1,\"c.d\":2},\"a.b\":3}\n{\"a\":null}\n";
    let found = cells_of(lines, &["a.b", r"a.c\.d", r"a\.b"], false);
    assert_eq!(
        found,
        [[Some(1.0), None], [Some(2.0), None], [Some(3.0), None]]
    );
    assert_eq!(cells_of(lines, &["a.b"], false), [[Some(1.0), None]]);
}

/// The cells of these columns of NDJSON, all of them numbers.
fn cells_of(lines: &'static str, names: &[&str], as_written: bool) -> Vec<Vec<Option<f64>>> {
    let wanted: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut artefact = BUILT.transform.artefact().clone();
    let input = |name: &String| InputColumn {
        name: name.clone(),
        kind: InputKind::Numeric,
    };
    artefact.inputs = wanted.iter().map(input).collect();
    let reading = RowsReading {
        names_as_written: as_written,
        ..reading(FileFormat::Ndjson, 9)
    };
    let stream = RowSource::Stream(Box::new(Cursor::new(lines)));
    let mut rows = RowsIn::open(stream, &reading, &artefact).unwrap();
    let found = rows.next_rows().unwrap().unwrap().inputs;
    let columns = found.columns().iter();
    let columns = columns.map(|column| {
        let numbers = arrow::array::AsArray::as_primitive::<arrow::datatypes::Float64Type>(column);
        numbers.iter().collect()
    });
    columns.collect()
}

#[test]
fn a_name_with_a_dot_that_no_landing_escaped_is_a_key_of_its_own() {
    let both = "{\"a\":{\"b\":1},\"a.b\":3}\n{\"a\":{\"b\":1}}\n";
    // What is meant comes first, a nested key where it is absent.
    assert_eq!(cells_of(both, &["a.b"], true), [[Some(3.0), Some(1.0)]]);
    assert_eq!(cells_of(both, &[r"a\.b"], true), [[Some(3.0), None]]);
    let landed = cells_of(both, &["a.b", r"a\.b"], true);
    assert_eq!(landed, [[Some(1.0), Some(1.0)], [Some(3.0), None]]);
    let slash = "{\"c\\\\d\":5}\n";
    assert_eq!(cells_of(slash, &[r"c\d"], true), [[Some(5.0)]]);
    assert_eq!(cells_of(slash, &[r"c\\d"], false), [[Some(5.0)]]);
}

#[test]
fn columns_of_other_names_are_read_from_csv_and_parquet_too() {
    let csv = "z,a.b,c\\d\n9,1,2\n";
    let fields = [("z", 9), ("a.b", 1), ("c\\d", 2)];
    let columns = fields.map(|(name, value)| {
        let cells: ArrayRef = Arc::new(Int64Array::from(vec![value]));
        (name, cells, true)
    });
    let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    let parquet = writer.into_inner().unwrap();
    for names in [["a.b", r"c\d"], [r"a\.b", r"c\\d"]] {
        let mut artefact = BUILT.transform.artefact().clone();
        artefact.inputs = names
            .map(|name| InputColumn {
                name: name.into(),
                kind: InputKind::Numeric,
            })
            .to_vec();
        let files = [
            (FileFormat::Csv, csv.as_bytes().to_vec()),
            (FileFormat::Parquet, parquet.clone()),
        ];
        for (format, bytes) in files {
            let stream = RowSource::Stream(Box::new(Cursor::new(bytes)));
            let reading = RowsReading {
                keep: vec![names[0].to_owned()],
                ..reading(format, 9)
            };
            let mut rows = RowsIn::open(stream, &reading, &artefact).unwrap();
            assert_eq!(rows.ignored(), ["z"]);
            let found = rows.next_rows().unwrap().unwrap();
            assert_eq!(found.kept, [[Some("1".to_owned())]], "{format:?}");
            let cells = found.inputs.columns().iter().map(|column| {
                arrow::array::AsArray::as_primitive::<arrow::datatypes::Float64Type>(column)
                    .value(0)
            });
            assert_eq!(cells.collect::<Vec<_>>(), [1.0, 2.0], "{format:?}");
        }
    }
}

#[tokio::test]
async fn trap_39_rows_to_predict_are_read_by_the_signs_of_the_build() {
    let root = Store::memory();
    let mut zone = LandingZone::new(&root, "a", &[("a", Utf8), ("b", Int64)]);
    let rows: Vec<Cells> = (0..40)
        .map(|i| vec![json!(format!("{}.000,5", i + 1)), json!(i)])
        .collect();
    zone.batch(&rows).await;
    let dataset = "sources = [\"a\"]\ndecimal_separator = \",\"\nthousands_separator = \".\"\n\
                   split = { train = 1.0, validation = 0.0, test = 0.0 }\n\
                   step = [{ type = \"impute\", columns = [\"a\", \"b\"] }]\n";
    build_with(&root, dataset, 2).await.unwrap();
    let store = root.child("dataset");
    let manifest = read_manifest(&store).await.unwrap();
    let transform = Transform::new(read_transform(&store, &manifest).await.unwrap()).unwrap();
    let csv = "a;b\n1.234,5;1\n-2,25;2\n1.234;3\n1,2,3;4\n";
    let ndjson = "{\"a\":\"1.234,5\",\"b\":1}\n{\"a\":-2.25,\"b\":2}\n{\"a\":\"1.234\",\"b\":3}\n{\"a\":\"1,2,3\",\"b\":4}\n";
    let known = landed_types(&root, &manifest).await.unwrap();
    assert_eq!(known["a"], Utf8);
    for (format, text, landed) in [
        (FileFormat::Csv, csv, known),
        (FileFormat::Csv, csv, BTreeMap::new()),
        (FileFormat::Ndjson, ndjson, BTreeMap::new()),
    ] {
        let reading = RowsReading {
            csv: CsvConfig {
                delimiter: Some(";".into()),
                ..CsvConfig::default()
            },
            landed,
            ..reading(format, 10)
        };
        let stream = RowSource::Stream(Box::new(Cursor::new(text.as_bytes())));
        let mut rows = RowsIn::open(stream, &reading, transform.artefact()).unwrap();
        let found = rows.next_rows().unwrap().unwrap();
        let found = found.features(&transform).unwrap();
        assert!(found.bad.is_empty(), "{:?}", found.bad);
        // What is no number becomes the median.
        let expected: [f32; 8] = [1234.5, 1.0, -2.25, 2.0, 1234.0, 3.0, 20500.5, 4.0];
        let bits: Vec<u32> = found.x.iter().map(|x| x.to_bits()).collect();
        assert_eq!(bits, expected.map(f32::to_bits), "{format:?}");
    }
}

#[test]
fn csv_is_read_by_the_quote_the_comment_and_the_skipped_rows_of_the_source() {
    let read = |csv: CsvConfig, text: &'static str| {
        let reading = RowsReading {
            csv,
            ..reading(FileFormat::Csv, 10)
        };
        let stream = RowSource::Stream(Box::new(Cursor::new(text.as_bytes())));
        let mut rows = RowsIn::open_texts(stream, &reading, "a").unwrap();
        let found = rows.next_rows().unwrap().unwrap();
        let texts = found.into_texts().texts;
        texts.into_iter().flatten().collect::<Vec<_>>()
    };
    let dialect = CsvConfig {
        quote: Some("'".into()),
        comment: Some("#".into()),
        skip_rows: 2,
        ..CsvConfig::default()
    };
    let text = "made by hand\n\n# a comment\na,b\n'x,y',1\n# another\n\"z\",2\n";
    assert_eq!(read(dialect, text), ["x,y", "\"z\""]);
    let without = CsvConfig {
        quote: Some(String::new()),
        ..CsvConfig::default()
    };
    assert_eq!(read(without, "a,b\n\"x,1\n"), ["\"x"]);
}

#[test]
fn csv_is_read_by_the_names_and_the_encoding_of_the_source() {
    let read = |column: &str, csv: CsvConfig, bytes: &[u8]| {
        let reading = RowsReading {
            csv,
            ..reading(FileFormat::Csv, 10)
        };
        let stream = RowSource::Stream(Box::new(Cursor::new(bytes.to_vec())));
        let mut rows = RowsIn::open_texts(stream, &reading, column).map_err(|e| e.to_string())?;
        let found = rows.next_rows().map_err(|e| e.to_string())?;
        let found = found.ok_or("no rows")?;
        let bad: Vec<String> = found.bad.values().map(|f| f.detail.clone()).collect();
        Ok::<_, String>((found.into_texts().texts, bad))
    };
    let of = |columns: &[&str], header: bool| CsvConfig {
        columns: columns.iter().map(|name| (*name).to_owned()).collect(),
        header,
        ..CsvConfig::default()
    };
    let texts = |texts: &[&str]| {
        let texts = texts.iter().map(|text| Some((*text).to_owned()));
        Ok((texts.collect::<Vec<_>>(), Vec::<String>::new()))
    };
    // The first row is one, and the names are given or counted.
    let found = read("b", of(&["a", "b"], false), b"1,x\n2,y\n");
    assert_eq!(found, texts(&["x", "y"]));
    let found = read("column_2", of(&[], false), b"1;x\n2;y\n");
    assert_eq!(found, texts(&["x", "y"]));
    // Names that replace those of the header.
    let found = read("b", of(&["a", "b"], true), b"p;q\n1;x\n");
    assert_eq!(found, texts(&["x"]));
    let error = read("b", of(&["a", "b"], false), b"1,x,3\n").unwrap_err();
    assert!(
        error.contains("3 fields, and `csv.columns` names 2"),
        "{error}"
    );
    let skipping = CsvConfig {
        skip_rows: 2,
        ..of(&["a", "b"], false)
    };
    for (text, byte) in [("!\n!\n1,x\n2\n", 8), ("!\r\n!\r\n1,x\r\n2\r\n", 11)] {
        let (_, bad) = read("b", skipping.clone(), text.as_bytes()).unwrap();
        let detail = format!("line 4 (byte {byte} of the file): 1 field, the first row has 2");
        assert_eq!(bad, [detail]);
    }
    let decoding = CsvConfig {
        encoding: Some("latin-1".into()),
        ..CsvConfig::default()
    };
    assert_eq!(read("ä", decoding, b"\xe4\n\xf6\n"), texts(&["ö"]));
    // UTF-16 is known by its mark.
    let found = read("a", CsvConfig::default(), b"\xff\xfea\0\n\0x\0\n\0");
    assert_eq!(found, texts(&["x"]));
}

#[test]
fn points_in_time_of_every_unit_and_zone_are_the_categories_that_the_build_has() {
    use arrow::{
        compute::cast,
        datatypes::{DataType, TimeUnit},
    };

    let mut columns: Vec<(String, ArrayRef, bool)> = Vec::new();
    let mut expected = Vec::new();
    for (unit, units) in [
        (TimeUnit::Second, 1),
        (TimeUnit::Millisecond, 1_000),
        (TimeUnit::Microsecond, 1_000_000),
        (TimeUnit::Nanosecond, 1_000_000_000),
    ] {
        for zone in [None, Some("UTC"), Some("Europe/Berlin")] {
            let seconds = (0..60).map(|i| 1_704_067_200 + i % 5 * 86_400);
            let cells: ArrayRef =
                Arc::new(seconds.map(|s| Some(s * units)).collect::<Int64Array>());
            let r#type = DataType::Timestamp(unit, zone.map(Into::into));
            let name = format!("{units}{}", zone.unwrap_or_default());
            let end = if zone.is_some() { "Z" } else { "" };
            expected.extend((1..6).map(|day| format!("{name}=2024-01-{day:02}T00:00:00{end}")));
            columns.push((name, cast(&cells, &r#type).unwrap(), true));
        }
    }
    let y: ArrayRef = Arc::new((0..60).map(Some).collect::<Int64Array>());
    columns.push(("y".to_owned(), y, true));
    let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    let bytes = writer.into_inner().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    std::fs::write(&path, &bytes).unwrap();

    let root = Store::memory();
    let text = format!(
        "[pipeline]\nname = \"p\"\n[dataset]\nfiles = '{}'\ntarget = \"y\"\ndedup = \"none\"\n\
         split = {{ train = 1.0, validation = 0.0, test = 0.0 }}\n",
        path.display()
    );
    let config = feedline_schemas::config::load("p.toml", &text, &[]).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (transform, mut rows) = runtime.block_on(async {
        let (context, _scratch) = crate::testing::context(&root, 2);
        crate::build(&config.config, &context).await.unwrap();
        let store = root.child("dataset");
        let manifest = read_manifest(&store).await.unwrap();
        let artefact = read_transform(&store, &manifest).await.unwrap();
        (Transform::new(artefact).unwrap(), written(&store).await)
    });
    let features = transform.artefact().features.iter();
    let found: Vec<&str> = features.map(|feature| feature.name.as_str()).collect();
    for name in &expected {
        assert!(found.contains(&name.as_str()), "{name} {found:?}");
    }
    rows.sort_by_key(|row| row.origin);
    let built: Vec<Vec<f32>> = rows.into_iter().map(|row| row.x).collect();

    let reading = RowsReading {
        landed: BTreeMap::new(),
        names_as_written: true,
        ..reading(FileFormat::Parquet, 100)
    };
    let stream = RowSource::Stream(Box::new(Cursor::new(bytes)));
    let mut rows = RowsIn::open(stream, &reading, transform.artefact()).unwrap();
    let read = rows.next_rows().unwrap().unwrap();
    let read = read.features(&transform).unwrap();
    assert_eq!(read.bad, BTreeMap::new());
    let read = read.x.chunks_exact(transform.features());
    let read: Vec<Vec<f32>> = read.map(<[f32]>::to_vec).collect();
    assert_eq!(bits(&read), bits(&built));
}
