//! Measures how fast new rows are read as inputs of a transform, as `predict` reads them.
//!
//! `cargo bench -p feedline-preprocess --bench new_rows [-- ROWS]`, by default 500,000 rows of eight columns, four of them
//! inputs and one carried along, as CSV, NDJSON and Parquet from memory. Prints a line of JSON for each format.
#![expect(
    clippy::unwrap_used,
    reason = "a failed step of the setup ends the bench"
)]
#![expect(clippy::cast_precision_loss, reason = "counts are small")]
#![expect(clippy::print_stdout, reason = "results are for a person")]

use std::{collections::BTreeMap, fmt::Write as _, io::Cursor, sync::Arc, time::Instant};

use arrow::array::{ArrayRef, Float64Array, RecordBatch, StringArray};
use feedline_preprocess::{RowSource, RowsIn, RowsReading};
use feedline_schemas::{
    config::{ArchiveConfig, CsvConfig, FileFormat},
    format::TRANSFORM,
    ids::Hash128,
    record::ColumnType,
    transform::{InputColumn, InputKind, TransformArtefact},
};
use parquet::arrow::ArrowWriter;

/// Numbers, then texts.
const COLUMNS: [&str; 8] = [
    "size", "rooms", "price", "tax", "city", "street", "note", "id",
];

/// Number of columns of numbers.
const NUMBERS: usize = 4;

const INPUTS: [(&str, InputKind); 4] = [
    ("city", InputKind::Categorical),
    ("size", InputKind::Numeric),
    ("rooms", InputKind::Numeric),
    ("tax", InputKind::Numeric),
];

const WORDS: [&str; 5] = [
    "north",
    "old town",
    "harbour",
    "a longer name of a place",
    "x",
];

fn number(row: usize, column: usize) -> f64 {
    ((row * 131 + column) % 100_000) as f64 / 8.0
}

fn word(row: usize, column: usize) -> &'static str {
    WORDS[(row + column) % WORDS.len()]
}

fn csv(rows: usize) -> Vec<u8> {
    let mut out = COLUMNS.join(",");
    for row in 0..rows {
        for column in 0..COLUMNS.len() {
            out.push(if column == 0 { '\n' } else { ',' });
            match column < NUMBERS {
                true => write!(out, "{:?}", number(row, column)).unwrap(),
                false => out.push_str(word(row, column)),
            }
        }
    }
    out.push('\n');
    out.into_bytes()
}

fn ndjson(rows: usize) -> Vec<u8> {
    let mut out = String::new();
    for row in 0..rows {
        for (column, name) in COLUMNS.iter().enumerate() {
            let begin = if column == 0 { '{' } else { ',' };
            match column < NUMBERS {
                true => write!(out, "{begin}\"{name}\":{:?}", number(row, column)).unwrap(),
                false => write!(out, "{begin}\"{name}\":\"{}\"", word(row, column)).unwrap(),
            }
        }
        out.push_str("}\n");
    }
    out.into_bytes()
}

fn parquet(rows: usize) -> Vec<u8> {
    let array = |column: usize| -> ArrayRef {
        let all = 0..rows;
        match column < NUMBERS {
            true => Arc::new(Float64Array::from_iter_values(
                all.map(|row| number(row, column)),
            )),
            false => Arc::new(StringArray::from_iter_values(
                all.map(|row| word(row, column)),
            )),
        }
    };
    let columns = COLUMNS.iter().enumerate();
    let columns = columns.map(|(column, name)| (*name, array(column)));
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.into_inner().unwrap()
}

fn artefact() -> TransformArtefact {
    let input = |(name, kind): &(&str, InputKind)| InputColumn {
        name: (*name).to_owned(),
        kind: *kind,
    };
    TransformArtefact {
        format: TRANSFORM.format.to_owned(),
        version: TRANSFORM.version,
        hash: Hash128::new(0),
        fitted_rows: 0,
        null_values: Vec::new(),
        missing_values: Vec::new(),
        inputs: INPUTS.iter().map(input).collect(),
        steps: Vec::new(),
        features: Vec::new(),
        target: None,
        other_targets: Vec::new(),
        characters: None,
        images: None,
        tokens: None,
        signs: None,
    }
}

fn reading(format: FileFormat) -> RowsReading {
    let landed = INPUTS.iter().map(|(name, kind)| {
        let landed = match kind {
            InputKind::Numeric => ColumnType::Float64,
            InputKind::Categorical => ColumnType::Utf8,
        };
        ((*name).to_owned(), landed)
    });
    RowsReading {
        format,
        csv: CsvConfig::default(),
        records: String::new(),
        archive: ArchiveConfig::default(),
        landed: landed.collect::<BTreeMap<_, _>>(),
        contracts: Vec::new(),
        names_as_written: false,
        keep: vec!["id".to_owned()],
        max_missing_fraction: None,
        batch_rows: 8192,
        joins: None,
        pause: None,
    }
}

#[expect(clippy::disallowed_methods, reason = "a bench measures time")]
fn main() {
    let is_bench = std::env::args().any(|a| a == "--bench");
    let mut arguments = std::env::args().skip(1).filter(|a| a != "--bench");
    let rows = arguments.next().and_then(|a| a.parse().ok());
    let rows: usize = rows.unwrap_or(if is_bench { 500_000 } else { 50 });
    for (name, format, file) in [
        ("csv", FileFormat::Csv, csv(rows)),
        ("ndjson", FileFormat::Ndjson, ndjson(rows)),
        ("parquet", FileFormat::Parquet, parquet(rows)),
    ] {
        let bytes = file.len();
        let source = RowSource::Stream(Box::new(Cursor::new(file)));
        let began = Instant::now();
        let mut new_rows = RowsIn::open(source, &reading(format), &artefact()).unwrap();
        let mut count = 0;
        while let Some(found) = new_rows.next_rows().unwrap() {
            count += found.into_texts().texts.len();
        }
        assert_eq!(count, rows, "{name}");
        let rows_s = rows as f64 / began.elapsed().as_secs_f64();
        println!(
            "{{\"format\":\"{name}\",\"rows\":{rows},\"bytes\":{bytes},\"rows_per_s\":{rows_s:.0}}}"
        );
    }
}
