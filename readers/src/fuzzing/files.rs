//! Targets of formats of files: the records of a file.

use std::{io::Read, sync::LazyLock};

use crate::{
    csv_dialect,
    file_bytes::{Begin, FileBytes},
    file_format::{Kind, Packing},
    notices::Notices,
    parquet_rows::ParquetRows,
    record::Record,
    rows::{self, Layout, Rows},
    value::Value,
};
use feedline_schemas::config::{
    ArchiveConfig, Bounded, CsvConfig, FileFormat, JsonConfig, TextConfig,
};
use feedline_storage::Store;
use tokio::runtime::Runtime;

use super::{check_printed, tight};

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.build().expect("a runtime without I/O")
});

/// Most bytes of a member of an archive here.
const MEMBER: u64 = 64 << 10;
/// Most members of an archive here.
const MEMBERS: u64 = 64;
/// Bytes that any archive may unpack to.
const FREE: u64 = 16 << 20;

fn layout(kind: Kind) -> Layout {
    Layout {
        kind,
        packing: Packing::Plain,
        name: "file".to_owned(),
        notices: Notices::default(),
        format: FileFormat::Auto,
        csv: CsvConfig::default(),
        delimiter: None,
        known_columns: Vec::new(),
        sample_bytes: None,
        records: String::new(),
        json: JsonConfig::default(),
        text: TextConfig::default(),
        archive: ArchiveConfig {
            member: None,
            max_members: Bounded::literal::<MEMBERS>(),
            max_member_bytes: Bounded::literal::<MEMBER>(),
            max_ratio: Bounded::literal::<2>(),
        },
    }
}

fn file(data: &[u8]) -> FileBytes {
    let store = Store::memory();
    let opened = async {
        store.put("file", data.to_vec().into()).await?;
        FileBytes::open(&store, "file", "memory://file", None).await
    };
    RUNTIME
        .block_on(opened)
        .expect("a store in memory does not fail")
}

/// The records of a file, and the error that ends them.
#[derive(Debug, PartialEq)]
struct Found {
    records: Vec<Record>,
    error: Option<String>,
}

fn found(rows: Result<Box<dyn Rows>, String>) -> Found {
    let mut records = Vec::new();
    let read = || {
        let mut rows = rows?;
        while let Some(record) = rows.next()? {
            check_record(&record);
            records.push(record);
        }
        Ok(())
    };
    let error: Result<(), String> = read();
    if let Err(reason) = &error {
        assert!(!reason.is_empty());
    }
    Found {
        error: error.err(),
        records,
    }
}

fn check_record(record: &Record) {
    match record {
        Record::Bad { detail, reason, .. } => {
            assert!(!detail.is_empty() && !reason.is_empty());
        }
        record => {
            let value = record
                .value()
                .expect("a record that is not bad has a value");
            assert!(matches!(&*value, Value::Object(_)), "{value:?}");
            if is_finite(&value) {
                check_printed(&value);
            }
        }
    }
}

/// Returns true if JSON has all numbers of a value: a Parquet file may have others.
fn is_finite(value: &Value) -> bool {
    match value {
        Value::Float(number) => number.is_finite(),
        Value::List(items) => items.iter().all(is_finite),
        Value::Object(entries) => entries.iter().all(|(_, value)| is_finite(value)),
        _ => true,
    }
}

/// Gives one to seven bytes at a time.
struct Chunks(Vec<u8>, usize);

impl Read for Chunks {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let rest = &self.0[self.1..];
        let count = rest.len().min(out.len()).min(1 + self.1 % 7);
        out[..count].copy_from_slice(&rest[..count]);
        self.1 += count;
        Ok(count)
    }
}

/// Checks that a file in small chunks gives the records of the whole file; returns them.
fn check_chunks(data: &[u8], layout: &Layout) -> Found {
    let whole = found(rows::one_pass::of_reader(
        Box::new(std::io::Cursor::new(data.to_vec())),
        layout,
    ));
    let chunks = found(rows::one_pass::of_reader(
        Box::new(Chunks(data.to_vec(), 0)),
        layout,
    ));
    assert_eq!(chunks, whole);
    whole
}

/// Checks that a file that has grown gives the records of its beginning, and then those after it.
fn check_growth(data: &[u8], layout: &Layout) {
    let whole_file = file(data);
    let whole = found(rows::open::open(
        &whole_file,
        None,
        layout,
        Begin::default(),
        0,
    ));
    if whole.error.is_some() {
        return;
    }
    let ends = (0..data.len()).filter(|at| data[*at] == b'\n').take(2);
    for end in ends {
        let first = found(rows::open::open(
            &file(&data[..=end]),
            None,
            layout,
            Begin::default(),
            0,
        ));
        if first.error.is_some() {
            continue;
        }
        let begin = whole_file.begin(end as u64 + 1).expect("it is in memory");
        let rest = found(rows::open::open(&whole_file, None, layout, begin, 0));
        assert_eq!(rest.error, None, "read on from byte {}", end + 1);
        let both = first.records.iter().chain(&rest.records);
        assert!(both.eq(&whole.records), "read on from byte {}", end + 1);
    }
}

/// A file of JSON lines, within bounds and beyond them.
pub fn ndjson(data: &[u8]) {
    for json in [JsonConfig::default(), tight()] {
        let layout = Layout {
            json,
            ..layout(Kind::Ndjson)
        };
        let found = check_chunks(data, &layout);
        let lines = data.split(|byte| *byte == b'\n').count();
        assert!(found.records.len() <= lines);
        check_growth(data, &layout);
    }
}

/// A file that is one JSON document.
pub fn json_file(data: &[u8]) {
    for records in ["", "a.b"] {
        let layout = Layout {
            records: records.to_owned(),
            ..layout(Kind::Json)
        };
        check_chunks(data, &layout);
    }
}

/// A CSV file: with its dialect found out, without a header, without quotes, and in another
/// encoding.
pub fn csv(data: &[u8]) {
    let kind = Kind::Csv { delimiter: b',' };
    let usual = CsvConfig::default();
    let plain = CsvConfig {
        delimiter: Some(",".to_owned()),
        encoding: Some("utf-8".to_owned()),
        ..usual.clone()
    };
    let configs = [
        usual.clone(),
        CsvConfig {
            header: false,
            comment: Some("#".to_owned()),
            ..usual.clone()
        },
        CsvConfig {
            quote: Some(String::new()),
            skip_rows: 1,
            ..usual.clone()
        },
        CsvConfig {
            encoding: Some("shift_jis".to_owned()),
            ..usual
        },
        plain,
    ];
    for csv in configs {
        let is_plain = csv.encoding.as_deref() == Some("utf-8");
        let layout = Layout {
            delimiter: csv.delimiter.as_ref().map(|text| text.as_bytes()[0]),
            csv,
            ..layout(kind)
        };
        let found = check_chunks(data, &layout);
        if is_plain && found.error.is_none() {
            check_written(&found.records, &layout);
            if csv_dialect::can_be_continued(&layout.csv, data) {
                check_growth(data, &layout);
            }
        }
    }
}

/// Writes rows as CSV with a quote around each field, and reads the same rows from it.
fn check_written(records: &[Record], layout: &Layout) {
    let rows = records.iter().filter_map(|record| match record {
        Record::Value(Value::Object(entries)) => Some(entries),
        _ => None,
    });
    let rows: Vec<&Vec<(String, Value)>> = rows.collect();
    let Some(first) = rows.first() else {
        return;
    };
    let mut writer = csv::WriterBuilder::new()
        .quote_style(csv::QuoteStyle::Always)
        .from_writer(Vec::new());
    let mut write = |fields: &mut dyn Iterator<Item = &str>| {
        writer.write_record(fields).expect("it is in memory");
    };
    write(&mut first.iter().map(|(name, _)| name.as_str()));
    for row in &rows {
        write(&mut row.iter().map(|(_, value)| match value {
            Value::Cell(text) => text.as_str(),
            _ => "",
        }));
    }
    let text = writer.into_inner().expect("it is in memory");
    let found = found(rows::one_pass::of_reader(
        Box::new(std::io::Cursor::new(text)),
        layout,
    ));
    assert_eq!(found.error, None);
    let found: Vec<&Vec<(String, Value)>> = found
        .records
        .iter()
        .map(|record| match record {
            Record::Value(Value::Object(entries)) => entries,
            other => unreachable!("{other:?}"),
        })
        .collect();
    assert_eq!(found, rows);
}

/// A file of idx images. Its header decides the size of each record, and so its length.
pub fn idx(data: &[u8]) {
    let found = found(rows::open::open(
        &file(data),
        None,
        &layout(Kind::Idx),
        Begin::default(),
        0,
    ));
    let bytes: u64 = found.records.iter().map(Record::size).sum();
    assert!(bytes <= data.len() as u64 + 64 * found.records.len() as u64);
    assert!(found.error.is_none() || found.records.is_empty());
}

/// A tar archive, packed or not: of images, and of tables.
pub fn tar(data: &[u8]) {
    let packing = match data {
        [0x1f, 0x8b, ..] => Packing::Gzip,
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Packing::Zstd,
        _ => Packing::Plain,
    };
    archive(data, Kind::Tar, packing);
}

/// A zip archive: of images, and of tables.
pub fn zip(data: &[u8]) {
    archive(data, Kind::Zip, Packing::Plain);
}

/// Checks that an archive gives no more than its bounds allow.
fn archive(data: &[u8], kind: Kind, packing: Packing) {
    let file = file(data);
    for (format, member) in [
        (FileFormat::Image, None),
        (FileFormat::Auto, Some("**".to_owned())),
    ] {
        let mut layout = Layout {
            packing,
            format,
            ..layout(kind)
        };
        layout.archive.member = member;
        let found = found(rows::open::open(&file, None, &layout, Begin::default(), 0));
        if format != FileFormat::Image {
            continue;
        }
        assert!(found.records.len() as u64 <= MEMBERS);
        let mut bytes = 0;
        for record in &found.records {
            let Some(value) = record.value() else {
                continue;
            };
            if let Some(Value::Bytes(image)) = value.at("image") {
                assert!(image.len() as u64 <= MEMBER);
                bytes += image.len() as u64;
            }
        }
        assert!(bytes <= FREE.max(2 * data.len() as u64));
    }
}

/// A file or a stream of Arrow IPC.
pub fn arrow(data: &[u8]) {
    let layout = Layout {
        archive: ArchiveConfig {
            max_ratio: Bounded::literal::<2>(),
            ..layout(Kind::Arrow).archive
        },
        ..layout(Kind::Arrow)
    };
    let found = check_chunks(data, &layout);
    let bytes: u64 = found.records.iter().map(Record::size).sum();
    assert!(bytes <= 16 * FREE, "{bytes} bytes");
}

/// A Parquet file: its footer and its rows.
pub fn parquet(data: &[u8]) {
    let found = found(ParquetRows::boxed(
        bytes::Bytes::copy_from_slice(data),
        0,
        2,
    ));
    let bytes: u64 = found.records.iter().map(Record::size).sum();
    // A number has the size of the text that it becomes.
    assert!(bytes <= 16 * FREE, "{bytes} bytes");
}
