//! Measures how fast the rows of a table are read, as records and as cells of wanted columns.
//!
//! `cargo bench -p feedline-readers --bench rows [-- ROWS]`, by default 500,000 rows of ten columns, four of them wanted. A
//! file of each format is read from memory. Records are trees with their keys; cells are not copied. Prints a line of JSON
//! for each format.
#![expect(
    clippy::unwrap_used,
    reason = "a failed step of the setup ends the bench"
)]
#![expect(clippy::cast_precision_loss, reason = "counts are small")]
#![expect(clippy::print_stdout, reason = "results are for a person")]

use std::{collections::BTreeSet, fmt::Write as _, io::Cursor, sync::Arc, time::Instant};

use arrow::{
    array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray},
    ipc::writer::StreamWriter,
};
use feedline_readers::{
    file_format::{Kind, Packing},
    json::WantedPaths,
    notices::Notices,
    record::Record,
    rows::{Layout, NextRow, Rows, one_pass::of_reader},
    testing::parquet_file,
    value_view::ValueView,
};
use feedline_schemas::config::{ArchiveConfig, CsvConfig, FileFormat, JsonConfig, TextConfig};

/// Kinds of columns: integers, floats and texts.
const COLUMNS: [&str; 10] = [
    "id", "size", "city", "rooms", "price", "note", "year", "tax", "street", "floor",
];

/// Indexes of the wanted columns.
const WANTED: [usize; 4] = [1, 2, 3, 6];

const WORDS: [&str; 5] = [
    "north",
    "old town",
    "harbour",
    "a longer name of a place",
    "x",
];

fn int(row: usize, column: usize) -> i64 {
    i64::try_from((row * 31 + column * 7) % 2000).unwrap()
}

fn float(row: usize, column: usize) -> f64 {
    ((row * 131 + column) % 100_000) as f64 / 8.0
}

fn csv(rows: usize) -> Vec<u8> {
    let mut out = COLUMNS.join(",");
    for row in 0..rows {
        for column in 0..COLUMNS.len() {
            out.push(if column == 0 { '\n' } else { ',' });
            match column % 3 {
                0 => write!(out, "{}", int(row, column)).unwrap(),
                1 => write!(out, "{:?}", float(row, column)).unwrap(),
                _ => out.push_str(WORDS[(row + column) % WORDS.len()]),
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
            write!(out, "{begin}\"{name}\":").unwrap();
            match column % 3 {
                0 => write!(out, "{}", int(row, column)).unwrap(),
                1 => write!(out, "{:?}", float(row, column)).unwrap(),
                _ => write!(out, "\"{}\"", WORDS[(row + column) % WORDS.len()]).unwrap(),
            }
        }
        out.push_str("}\n");
    }
    out.into_bytes()
}

fn columns(rows: usize) -> Vec<(&'static str, ArrayRef)> {
    let array = |column: usize| -> ArrayRef {
        let all = 0..rows;
        match column % 3 {
            0 => Arc::new(Int64Array::from_iter_values(
                all.map(|row| int(row, column)),
            )),
            1 => Arc::new(Float64Array::from_iter_values(
                all.map(|row| float(row, column)),
            )),
            _ => Arc::new(StringArray::from_iter_values(
                all.map(|row| WORDS[(row + column) % WORDS.len()]),
            )),
        }
    };
    let names = COLUMNS.iter().enumerate();
    names.map(|(column, name)| (*name, array(column))).collect()
}

fn arrow(rows: usize) -> Vec<u8> {
    let batch = RecordBatch::try_from_iter(columns(rows)).unwrap();
    let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    writer.into_inner().unwrap()
}

fn layout(kind: Kind) -> Layout {
    Layout {
        kind,
        packing: Packing::Plain,
        name: "rows".to_owned(),
        notices: Notices::default(),
        format: FileFormat::Auto,
        csv: CsvConfig::default(),
        delimiter: None,
        known_columns: Vec::new(),
        sample_bytes: None,
        records: String::new(),
        json: JsonConfig::default(),
        text: TextConfig::default(),
        archive: ArchiveConfig::default(),
    }
}

/// Adds up the bytes of a value, so that it is read.
fn read_value(value: &ValueView<'_>) -> usize {
    match value {
        ValueView::Text(text) => text.len(),
        ValueView::Cell(text) | ValueView::Time(text) | ValueView::Digits(text) => text.len(),
        ValueView::Null => 0,
        _ => 8,
    }
}

/// Reads all records as trees. Returns their number and size.
fn read_records(mut rows: Box<dyn Rows>) -> (usize, usize) {
    let (mut count, mut bytes) = (0, 0);
    while let Some(record) = rows.next().unwrap() {
        let value = record.into_value().unwrap();
        let found = WANTED
            .iter()
            .filter_map(|column| value.at(COLUMNS[*column]));
        bytes += found.map(|value| read_value(&value.view())).sum::<usize>();
        count += 1;
    }
    (count, bytes)
}

/// Reads the wanted columns of all rows as cells. Returns the number of rows and the size of the cells.
fn read_cells(mut rows: Box<dyn Rows>) -> (usize, usize) {
    let is_part = rows.select(&BTreeSet::from(WANTED)).unwrap();
    let mut paths = WantedPaths::default();
    let paths_of = WANTED.map(|column| paths.add([COLUMNS[column]]));
    let (mut count, mut bytes) = (0, 0);
    while let Some(row) = rows.next_row().unwrap() {
        for index in 0..WANTED.len() {
            let column = if is_part { index } else { WANTED[index] };
            bytes += match &row {
                NextRow::Cells { .. } => read_value(&rows.cell(column)),
                NextRow::Record(Record::Json(record)) => {
                    if index == 0 {
                        assert!(paths.find(record).count() <= COLUMNS.len());
                    }
                    let place = paths.place(paths_of[index]);
                    place.map_or(0, |place| read_value(&record.tape.view(place)))
                }
                NextRow::Record(record) => unreachable!("{record:?}"),
            };
        }
        count += 1;
    }
    (count, bytes)
}

#[expect(clippy::disallowed_methods, reason = "a bench measures time")]
fn main() {
    let is_bench = std::env::args().any(|a| a == "--bench");
    let mut arguments = std::env::args().skip(1).filter(|a| a != "--bench");
    let rows = arguments.next().and_then(|a| a.parse().ok());
    let rows: usize = rows.unwrap_or(if is_bench { 500_000 } else { 50 });
    for (name, kind, file) in [
        ("csv", Kind::Csv { delimiter: b',' }, csv(rows)),
        ("ndjson", Kind::Ndjson, ndjson(rows)),
        ("parquet", Kind::Parquet, parquet_file(columns(rows))),
        ("arrow", Kind::Arrow, arrow(rows)),
    ] {
        let measure = |read: fn(Box<dyn Rows>) -> (usize, usize)| {
            let opened = of_reader(Box::new(Cursor::new(file.clone())), &layout(kind)).unwrap();
            let began = Instant::now();
            let found = read(opened);
            (rows as f64 / began.elapsed().as_secs_f64(), found)
        };
        let (records_s, records) = measure(read_records);
        let (cells_s, cells) = measure(read_cells);
        assert_eq!(records, cells, "{name}");
        println!(
            "{{\"format\":\"{name}\",\"rows\":{rows},\"bytes\":{},\"records_per_s\":{records_s:.0},\"cells_per_s\":{cells_s:.0}}}",
            file.len()
        );
    }
}
