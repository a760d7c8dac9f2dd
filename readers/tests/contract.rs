//! Promises of every reader, whatever its format.
//!
//! | promise | test |
//! |---|---|
//! | a file that is compressed has the same records | `compression_changes_no_record` |
//! | reading resumes after any record | `records_after_a_skip_are_those_of_the_whole_file` |
//! | records do not depend on the pieces that bytes come in | `pieces_of_bytes_change_no_record` |
//! | a truncated file loses its end alone, or is an error | `a_truncated_file_never_has_other_records` |
//! | damage is a record, a bad record or an error, and never a panic | `damaged_files_are_read_or_refused` |
//! | each record has a place of its own | `each_record_has_a_place_of_its_own` |
//! | columns of a table are those of each record, in order | `columns_are_those_of_each_record` |
//! | selected columns are those of the whole rows | `selected_columns_are_those_of_the_whole_rows` |
//! | records are the same if those before are dropped | `dropped_records_change_no_other` |
//! | cells of a row are those of its record | `cells_of_rows_are_those_of_their_records` |
//! | an end stays one | `an_end_stays_an_end` |

#![expect(clippy::unwrap_used, reason = "a failure is a failed test")]

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{Cursor, Read, Write},
    sync::Arc,
};

use arrow::{
    array::{ArrayRef, Int64Array, RecordBatch, StringArray},
    ipc::writer::{FileWriter, StreamWriter},
};
use feedline_readers::{
    file_bytes::{Begin, FileBytes},
    file_format::{Kind, Packing},
    notices::Notices,
    record::Record,
    rows::{Layout, NextRow, Rows, one_pass::of_reader, open::open},
    testing::parquet_file,
    value::Value,
    value_view::ValueView,
};
use feedline_schemas::config::{ArchiveConfig, CsvConfig, FileFormat, JsonConfig, TextConfig};
use feedline_storage::Store;

/// Records of each sample.
const RECORDS: usize = 7;

/// A file of [`RECORDS`] records.
struct Sample {
    name: &'static str,
    kind: Kind,
    bytes: Vec<u8>,
    /// True if it is read in one pass, from bytes that come one after another.
    is_one_pass: bool,
}

fn byte(number: usize) -> u8 {
    u8::try_from(number).unwrap()
}

fn batch() -> RecordBatch {
    let columns = columns().map(|(name, column)| (name, column, true));
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

fn columns() -> [(&'static str, ArrayRef); 2] {
    let texts = (0..RECORDS).map(|i| (i % 3 > 0).then(|| format!("text {i}")));
    [
        (
            "n",
            Arc::new(Int64Array::from_iter_values(0..RECORDS as i64)),
        ),
        ("t", Arc::new(texts.collect::<StringArray>())),
    ]
}

fn tar(members: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, content) in members {
        let mut header = tar::Header::new_ustar();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, name, &**content).unwrap();
    }
    builder.into_inner().unwrap()
}

fn zip(members: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in members {
        let options = zip::write::SimpleFileOptions::default();
        writer.start_file(*name, options).unwrap();
        writer.write_all(content).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

/// A sample of every format.
fn samples() -> Vec<Sample> {
    let numbers = || 0..RECORDS;
    let csv = |from: usize, to: usize| {
        let rows = (from..to).map(|i| format!("{i},\"a,{i}\"\n"));
        format!("n,t\n{}", rows.collect::<String>()).into_bytes()
    };
    let object = |i: usize| format!("{{\"n\":{i},\"t\":{{\"u\":[{i},null]}}}}");
    let objects: Vec<String> = numbers().map(object).collect();
    let stream = {
        let mut writer = StreamWriter::try_new(Vec::new(), &batch().schema()).unwrap();
        writer.write(&batch()).unwrap();
        writer.finish().unwrap();
        writer.into_inner().unwrap()
    };
    let arrow = {
        let mut writer = FileWriter::try_new(Vec::new(), &batch().schema()).unwrap();
        writer.write(&batch().slice(0, 3)).unwrap();
        writer.write(&batch().slice(3, RECORDS - 3)).unwrap();
        writer.finish().unwrap();
        writer.into_inner().unwrap()
    };
    let documents: Vec<String> = numbers().map(|i| format!("document {i}\n")).collect();
    let mut idx = vec![0, 0, 8, 3, 0, 0, 0, byte(RECORDS), 0, 0, 0, 1, 0, 0, 0, 2];
    idx.extend((0..2 * RECORDS).map(byte));
    let images: Vec<(String, Vec<u8>)> = numbers()
        .map(|i| (format!("c/{i}.png"), vec![byte(i); 5]))
        .collect();
    let images: Vec<(&str, Vec<u8>)> = images
        .iter()
        .map(|(name, bytes)| (name.as_str(), bytes.clone()))
        .collect();
    let tables = [("a.csv", csv(0, 4)), ("b.csv", csv(4, RECORDS))];
    let comma = Kind::Csv { delimiter: b',' };
    let sample = |name, kind, bytes, is_one_pass| Sample {
        name,
        kind,
        bytes,
        is_one_pass,
    };
    vec![
        sample("a.csv", comma, csv(0, RECORDS), true),
        sample(
            "a.ndjson",
            Kind::Ndjson,
            (objects.join("\n") + "\n").into_bytes(),
            true,
        ),
        sample(
            "a.json",
            Kind::Json,
            format!("[{}]", objects.join(",")).into_bytes(),
            true,
        ),
        sample(
            "a.parquet",
            Kind::Parquet,
            parquet_file(columns().to_vec()),
            true,
        ),
        sample("a.arrows", Kind::Arrow, stream, true),
        sample("a.arrow", Kind::Arrow, arrow, true),
        sample(
            "a.txt",
            Kind::Text,
            documents.join("--\n").into_bytes(),
            true,
        ),
        sample("a-idx3-ubyte", Kind::Idx, idx, false),
        sample("a.tar", Kind::Tar, tar(&images), false),
        sample("b.zip", Kind::Zip, zip(&images), false),
        sample("tables.tar", Kind::Tar, tar(&tables), false),
        sample("tables.zip", Kind::Zip, zip(&tables), false),
    ]
}

impl Sample {
    fn layout(&self, packing: Packing) -> Layout {
        let is_images = !self.name.starts_with("tables") && !self.is_one_pass;
        Layout {
            kind: self.kind,
            packing,
            name: self.name.to_owned(),
            notices: Notices::default(),
            format: match is_images {
                true => FileFormat::Image,
                false => FileFormat::Auto,
            },
            csv: CsvConfig::default(),
            delimiter: None,
            known_columns: Vec::new(),
            sample_bytes: None,
            records: String::new(),
            json: JsonConfig::default(),
            text: TextConfig {
                separator: Some("--".to_owned()),
            },
            archive: ArchiveConfig::default(),
        }
    }

    /// Runs `read` with the reader of `bytes` without the first `skip` records.
    fn opened<T: Send + 'static>(
        &self,
        bytes: Vec<u8>,
        packing: Packing,
        skip: u64,
        read: impl FnOnce(Result<Box<dyn Rows>, String>) -> T + Send + 'static,
    ) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let layout = self.layout(packing);
        let file = runtime.block_on(async {
            let store = Store::memory();
            store.put("file", bytes.into()).await.unwrap();
            FileBytes::open(&store, "file", "memory://file", None)
                .await
                .unwrap()
        });
        // Readers block, and must not do so on a thread of the runtime.
        let thread =
            std::thread::spawn(move || read(open(&file, None, &layout, Begin::default(), skip)));
        thread.join().unwrap()
    }

    fn read(&self, bytes: Vec<u8>, packing: Packing, skip: u64) -> Outcome {
        self.opened(bytes, packing, skip, Outcome::of)
    }

    fn whole(&self) -> Outcome {
        self.read(self.bytes.clone(), Packing::Plain, 0)
    }
}

/// Records of a file, and the error that ended it.
#[derive(Debug, PartialEq)]
struct Outcome {
    records: Vec<Record>,
    places: Vec<String>,
    error: Option<String>,
}

impl Outcome {
    fn of(rows: Result<Box<dyn Rows>, String>) -> Self {
        let mut found = Self {
            records: Vec::new(),
            places: Vec::new(),
            error: None,
        };
        let read = || {
            let mut rows = rows?;
            while let Some(record) = rows.next()? {
                found.records.push(record);
                found.places.push(rows.place());
            }
            Ok(())
        };
        let ended: Result<(), String> = read();
        found.error = ended.err();
        found
    }

    fn values(&self) -> Vec<String> {
        let text = |record: &Record| match record {
            Record::Bad { raw, detail, .. } => format!("{raw}: {detail}"),
            good => good.canonical(),
        };
        self.records.iter().map(text).collect()
    }

    /// Without the path of the file, which its bytes alone do not have.
    fn without_path(mut self) -> Self {
        for record in &mut self.records {
            if let Record::Value(Value::Object(columns)) = record {
                columns.retain(|(name, _)| name != "path" && name != "folder");
            }
        }
        self
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn compression_changes_no_record() {
    for sample in samples() {
        let whole = sample.whole();
        assert_eq!(
            (whole.records.len(), &whole.error),
            (RECORDS, &None),
            "{}",
            sample.name
        );
        let zstd = zstd::encode_all(&*sample.bytes, 1).unwrap();
        for (bytes, packing) in [(gzip(&sample.bytes), Packing::Gzip), (zstd, Packing::Zstd)] {
            let packed = sample.read(bytes, packing, 0);
            match sample.kind {
                // It has an index at its end, and its members are compressed already.
                Kind::Zip => assert!(packed.error.unwrap().contains("packed already")),
                _ => assert_eq!(packed, whole, "{} {packing:?}", sample.name),
            }
        }
    }
}

#[test]
fn records_after_a_skip_are_those_of_the_whole_file() {
    for sample in samples() {
        let whole = sample.whole();
        for skip in 0..=RECORDS {
            let rest = sample.read(sample.bytes.clone(), Packing::Plain, skip as u64);
            assert_eq!(rest.error, None, "{} {skip}", sample.name);
            assert_eq!(
                rest.records,
                whole.records[skip..],
                "{} {skip}",
                sample.name
            );
            assert_eq!(rest.places, whole.places[skip..], "{} {skip}", sample.name);
        }
    }
}

/// Gives its bytes in pieces of one to seven.
struct Pieces(Vec<u8>, usize);

impl Read for Pieces {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let rest = &self.0[self.1..];
        let count = rest.len().min(out.len()).min(1 + self.1 % 7);
        out[..count].copy_from_slice(&rest[..count]);
        self.1 += count;
        Ok(count)
    }
}

#[test]
fn pieces_of_bytes_change_no_record() {
    let samples = samples().into_iter().filter(|sample| sample.is_one_pass);
    for sample in samples {
        let pieces = Box::new(Pieces(sample.bytes.clone(), 0));
        let read = Outcome::of(of_reader(pieces, &sample.layout(Packing::Plain)));
        assert_eq!(read, sample.whole().without_path(), "{}", sample.name);
    }
}

#[test]
fn a_truncated_file_never_has_other_records() {
    for sample in samples() {
        let whole = sample.whole().values();
        for end in 0..sample.bytes.len() {
            let cut = sample.read(sample.bytes[..end].to_vec(), Packing::Plain, 0);
            let mut values = cut.values();
            // Only the last record of a text can be another one: nothing shows that it is incomplete.
            let is_text = matches!(sample.kind, Kind::Csv { .. } | Kind::Ndjson | Kind::Text);
            if is_text && values.last() != whole.get(values.len().wrapping_sub(1)) {
                values.pop();
            }
            let case = format!("{} of {end} bytes: {cut:?}", sample.name);
            assert!(whole.starts_with(&values), "{case}");
            if !is_text && values.len() < RECORDS {
                assert!(cut.error.is_some(), "{case}");
            }
        }
    }
}

#[test]
fn damaged_files_are_read_or_refused() {
    for sample in samples() {
        let mut seed = 1_u64;
        for _ in 0..300 {
            let mut bytes = sample.bytes.clone();
            for _ in 0..3 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let at = (seed >> 33) as usize % bytes.len();
                bytes[at] ^= seed.to_le_bytes()[4];
            }
            let read = sample.read(bytes, Packing::Plain, 0);
            for record in &read.records {
                if let Record::Bad { reason, detail, .. } = record {
                    assert!(!reason.is_empty() && !detail.is_empty());
                }
            }
            assert_ne!(read.error.as_deref(), Some(""), "{}", sample.name);
        }
    }
}

#[test]
fn each_record_has_a_place_of_its_own() {
    for sample in samples() {
        let places = sample.whole().places;
        let distinct: BTreeSet<&String> = places.iter().collect();
        assert_eq!(distinct.len(), RECORDS, "{}: {places:?}", sample.name);
    }
}

#[test]
fn columns_are_those_of_each_record() {
    let mut tables = BTreeMap::new();
    for sample in samples() {
        let found = sample.opened(sample.bytes.clone(), Packing::Plain, 0, |rows| {
            let mut rows = rows?;
            let columns = rows.columns()?;
            let records = Outcome::of(Ok(rows)).records;
            Ok::<_, String>((columns, records))
        });
        let (columns, records) = found.unwrap();
        assert_eq!(records.len(), RECORDS, "{}", sample.name);
        let Some(columns) = columns else { continue };
        for record in records {
            let value = record.into_value().unwrap();
            let Value::Object(entries) = value else {
                panic!("{}", sample.name)
            };
            let keys: Vec<String> = entries.into_iter().map(|(key, _)| key).collect();
            assert_eq!(keys, columns, "{}", sample.name);
        }
        tables.insert(sample.name, columns);
    }
    let names: Vec<&str> = tables.into_keys().collect();
    assert_eq!(names, ["a.arrow", "a.arrows", "a.csv", "a.parquet"]);
}

#[test]
fn selected_columns_are_those_of_the_whole_rows() {
    for sample in samples() {
        let whole = sample.whole();
        let found = sample.opened(sample.bytes.clone(), Packing::Plain, 0, |rows| {
            let mut rows = rows?;
            let is_selected = rows.select(&BTreeSet::from([1]))?;
            Ok::<_, String>((is_selected, Outcome::of(Ok(rows))))
        });
        let (is_selected, found) = found.unwrap();
        assert_eq!(found.places, whole.places, "{}", sample.name);
        assert_eq!(is_selected, sample.kind == Kind::Parquet, "{}", sample.name);
        if !is_selected {
            assert_eq!(found, whole, "{}", sample.name);
            continue;
        }
        for (part, record) in found.records.iter().zip(&whole.records) {
            let (part, record) = (part.value().unwrap(), record.value().unwrap());
            assert_eq!(part.at("t"), record.at("t"));
            assert_eq!(part.at("n"), None);
        }
    }
}

#[test]
fn dropped_records_change_no_other() {
    for sample in samples() {
        let kept = sample.whole().values();
        let read = sample.opened(sample.bytes.clone(), Packing::Plain, 0, |rows| {
            let mut rows = rows?;
            let mut texts = Vec::new();
            while let Some(record) = rows.next()? {
                texts.push(record.canonical());
            }
            Ok::<_, String>(texts)
        });
        assert_eq!(read.unwrap(), kept, "{}", sample.name);
    }
}

#[test]
fn cells_of_rows_are_those_of_their_records() {
    let mut of_cells = Vec::new();
    for sample in samples() {
        let whole = sample.whole();
        let found = sample.opened(sample.bytes.clone(), Packing::Plain, 0, |rows| {
            let mut rows = rows?;
            let (mut cells, mut records, mut places) = (Vec::new(), Vec::new(), Vec::new());
            while let Some(row) = rows.next_row()? {
                places.push(rows.place());
                match row {
                    NextRow::Cells { bytes } => {
                        assert!(bytes > 0);
                        assert_eq!(rows.cell(2), ValueView::Null);
                        cells.push([0, 1].map(|index| format!("{:?}", rows.cell(index))));
                    }
                    NextRow::Record(record) => records.push(record),
                }
            }
            Ok::<_, String>((cells, records, places))
        });
        let (cells, records, places) = found.unwrap();
        assert_eq!(places, whole.places, "{}", sample.name);
        if cells.is_empty() {
            assert_eq!(records, whole.records, "{}", sample.name);
            continue;
        }
        let values = whole.records.iter().map(|record| {
            let value = record.value().unwrap();
            ["n", "t"].map(|name| format!("{:?}", value.at(name).unwrap().view()))
        });
        assert_eq!(cells, values.collect::<Vec<_>>(), "{}", sample.name);
        of_cells.push(sample.name);
    }
    assert_eq!(of_cells, ["a.csv", "a.parquet", "a.arrows", "a.arrow"]);
}

#[test]
fn bad_rows_of_cells_are_those_of_records() {
    let samples = samples();
    let csv = samples
        .iter()
        .find(|sample| sample.name == "a.csv")
        .unwrap();
    let bytes = b"n,t\n1,a\n2\n3,\xff\n4,\xc3\xa4\n".to_vec();
    let whole = csv.read(bytes.clone(), Packing::Plain, 0);
    let bad = csv.opened(bytes, Packing::Plain, 0, |rows| {
        let mut rows = rows.unwrap();
        let mut bad = Vec::new();
        while let Some(row) = rows.next_row().unwrap() {
            if let NextRow::Record(record) = row {
                bad.push(record);
            }
        }
        bad
    });
    assert_eq!(bad, whole.records[1..3]);
    let reasons = bad.iter().map(|record| match record {
        Record::Bad { reason, .. } => *reason,
        good => panic!("{good:?}"),
    });
    assert_eq!(reasons.collect::<Vec<_>>(), ["ragged_row", "invalid_utf8"]);
}

#[test]
fn files_of_another_format_are_named() {
    let named = |name: &str, bytes: &[u8]| -> String {
        let samples = samples();
        let sample = samples.iter().find(|sample| sample.name == name).unwrap();
        let read = sample.read(bytes.to_vec(), Packing::Plain, 0);
        read.error
            .unwrap_or_else(|| panic!("{name}: {:?}", read.records))
    };
    let archive = tar(&[("a.csv", b"a\n1\n".to_vec())]);
    assert!(named("a.csv", &archive).contains("it is a tar archive by its first bytes"));
    assert!(named("a.csv", &gzip(b"a\n1\n")).contains("it is a gzip file"));
    assert!(named("a.parquet", &gzip(b"a\n")).contains("it is a gzip file by its first bytes"));
    assert!(named("a.parquet", b"a,b\n1,2\n").contains("no Parquet file by its first bytes"));
    for text in ["\u{feff}{\"a\":1}\n{\"a\":2}\n", "{\"a\":1}\n{\"a\":2}\n"] {
        let wide: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert!(named("a.ndjson", &wide).contains("it is UTF-16"), "{text}");
    }
    let nested = named("a.json", b"{\"data\":{\"items\":[],\"of\":1},\"x.y\":[]}");
    assert!(
        nested.contains("(lists in it: `data.items`, `x\\.y`)"),
        "{nested}"
    );
    let single = named("a.json", b"{\"a\":1}");
    assert!(single.contains("an object without a list"), "{single}");
}

#[test]
fn elements_of_a_document_without_faults_are_records_of_it_and_no_trees() {
    let samples = samples();
    let sample = samples.iter().find(|sample| sample.name == "a.json");
    let sample = sample.unwrap();
    let read = |text: &str| sample.read(text.as_bytes().to_vec(), Packing::Plain, 0);
    let rows = r#"{"a":1,"b":{"c":"x\n"}},3,{"a":2.5,"b":[{}]}"#;
    let sound = read(&format!("[{rows}]"));
    assert_eq!(sound.records.len(), 3);
    let is_json = |record: &Record| matches!(record, Record::Json(_));
    assert!(is_json(&sound.records[0]) && is_json(&sound.records[2]));
    let trees = read(&format!(r#"[{rows},{{"a":1,"a":2}}]"#));
    assert!(!trees.records.iter().any(is_json));
    assert_eq!(sound.values(), trees.values()[..3]);
    assert_eq!(sound.places, trees.places[..3]);
    assert_eq!(sound.records[1], trees.records[1]);
    assert_eq!(read("[]").records, []);
}

#[test]
fn an_end_stays_an_end() {
    for sample in samples() {
        let is_ended = sample.opened(sample.bytes.clone(), Packing::Plain, 0, |rows| {
            let mut rows = rows.unwrap();
            while rows.next().unwrap().is_some() {}
            (0..3).all(|_| rows.next().unwrap().is_none())
        });
        assert!(is_ended, "{}", sample.name);
    }
}
