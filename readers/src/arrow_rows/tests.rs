use std::sync::Arc;

use arrow::{
    array::{ArrayRef, DictionaryArray, Int64Array, NullArray, StringArray, StructArray},
    datatypes::{DataType, Field, Int32Type},
    ipc::{
        CompressionType,
        writer::{FileWriter, IpcWriteOptions, StreamWriter},
    },
};

use super::*;

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, c)| (n, c, true)))
        .unwrap()
}

fn numbers(from: i64, to: i64) -> RecordBatch {
    let texts =
        StringArray::from_iter((from..to).map(|i| (i % 3 > 0).then(|| format!("text {i}"))));
    batch(vec![
        ("n", Arc::new(Int64Array::from_iter_values(from..to))),
        ("t", Arc::new(texts)),
    ])
}

fn file(batches: &[RecordBatch], compression: Option<CompressionType>) -> Vec<u8> {
    let options = IpcWriteOptions::default()
        .try_with_compression(compression)
        .unwrap();
    let schema = batches[0].schema();
    let mut writer = FileWriter::try_new_with_options(Vec::new(), &schema, options).unwrap();
    batches
        .iter()
        .for_each(|batch| writer.write(batch).unwrap());
    writer.finish().unwrap();
    writer.into_inner().unwrap()
}

fn stream(batches: &[RecordBatch]) -> Vec<u8> {
    let mut writer = StreamWriter::try_new(Vec::new(), &batches[0].schema()).unwrap();
    batches
        .iter()
        .for_each(|batch| writer.write(batch).unwrap());
    writer.finish().unwrap();
    writer.into_inner().unwrap()
}

/// The rows up to the error, and the error.
fn read(bytes: &[u8], max_ratio: u64) -> (Vec<String>, Option<String>) {
    let mut texts = Vec::new();
    let mut read = || {
        let mut rows = ArrowRows::boxed(io::Cursor::new(bytes.to_vec()), max_ratio)?;
        while let Some(record) = rows.next()? {
            texts.push(record.value().unwrap().canonical());
        }
        Ok(())
    };
    let error: Result<(), String> = read();
    (texts, error.err())
}

fn expected(rows: i64) -> Vec<String> {
    let row = |i: i64| match i % 3 {
        0 => format!(r#"{{"n":{i},"t":null}}"#),
        _ => format!(r#"{{"n":{i},"t":"text {i}"}}"#),
    };
    (0..rows).map(row).collect()
}

#[test]
fn files_and_streams_have_their_rows_in_order() {
    let batches = [
        numbers(0, 3_000),
        numbers(3_000, 3_000),
        numbers(3_000, 3_001),
    ];
    for bytes in [
        stream(&batches),
        file(&batches, None),
        file(&batches, Some(CompressionType::LZ4_FRAME)),
        file(&batches, Some(CompressionType::ZSTD)),
    ] {
        let (rows, error) = read(&bytes, 200);
        assert_eq!(error, None);
        assert!(rows == expected(3_001), "{} rows", rows.len());
    }
}

#[test]
fn rows_without_bytes_are_rows() {
    let nulls = batch(vec![("a", Arc::new(NullArray::new(2)))]);
    let bytes = stream(&[nulls.clone(), nulls]);
    assert_eq!(
        read(&bytes, 200),
        (vec![r#"{"a":null}"#.to_owned(); 4], None)
    );
}

#[test]
fn dictionaries_and_structs_become_their_values() {
    let keys = |texts: [&str; 2]| -> RecordBatch {
        let column = DictionaryArray::<Int32Type>::from_iter(texts);
        let inner: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
        let field = Arc::new(Field::new("j", DataType::Int64, true));
        batch(vec![
            ("d", Arc::new(column)),
            ("s", Arc::new(StructArray::from(vec![(field, inner)]))),
        ])
    };
    let expected = |texts: [&str; 2]| {
        let row = |(i, text)| format!(r#"{{"d":"{text}","s":{{"j":{i}}}}}"#);
        (1..).zip(texts).map(row).collect::<Vec<_>>()
    };
    let bytes = file(&[keys(["x", "y"])], None);
    assert_eq!(read(&bytes, 200), (expected(["x", "y"]), None));
    // A stream replaces a dictionary.
    let bytes = stream(&[keys(["x", "y"]), keys(["u", "u"])]);
    let both = [expected(["x", "y"]), expected(["u", "u"])].concat();
    assert_eq!(read(&bytes, 200), (both, None));
}

#[test]
fn a_part_of_a_file_is_refused_wherever_it_ends() {
    let batches = [numbers(0, 10), numbers(10, 20)];
    for bytes in [file(&batches, None), stream(&batches)] {
        for end in 0..bytes.len() {
            let (rows, error) = read(&bytes[..end], 200);
            assert!(rows.len() <= 20 && expected(20).starts_with(&rows));
            assert!(error.is_some(), "{end} of {} bytes", bytes.len());
        }
        let (_, error) = read(&[&*bytes, b"more"].concat(), 200);
        assert!(error.unwrap().starts_with("it is damaged: it"));
    }
}

#[test]
fn a_damaged_file_is_an_error_and_no_abort() {
    let bytes = file(&[numbers(0, 50)], Some(CompressionType::LZ4_FRAME));
    let mut refused = 0;
    for at in 0..bytes.len() {
        for bit in [0, 3, 7] {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << bit;
            refused += u32::from(read(&damaged, 200).1.is_some());
        }
    }
    assert!(refused > 100, "{refused}");
}

#[test]
fn sizes_that_are_stated_are_checked_before_memory_is_allocated() {
    let bytes = file(&[numbers(0, 5_000)], Some(CompressionType::LZ4_FRAME));
    // The stated size of a decompressed buffer: 40,000 bytes of numbers.
    let stated = 40_000_i64.to_le_bytes();
    let at = bytes
        .windows(8)
        .position(|window| window == stated)
        .unwrap();
    let mut bomb = bytes;
    bomb[at..at + 8].copy_from_slice(&(1_i64 << 45).to_le_bytes());
    let (rows, error) = read(&bomb, 200);
    assert!(rows.is_empty());
    let error = error.unwrap();
    assert!(error.starts_with("a record batch of 3518437"), "{error}");
    // Many rows of one text: bounded by the size of the file.
    let text: ArrayRef = Arc::new(StringArray::from(vec!["z".repeat(100_000)]));
    let keys = arrow::array::Int32Array::from(vec![0; 100_000]);
    let column = DictionaryArray::<Int32Type>::try_new(keys, text).unwrap();
    let (rows, error) = read(&file(&[batch(vec![("d", Arc::new(column))])], None), 10);
    assert!((1_000..2_000).contains(&rows.len()), "{}", rows.len());
    assert!(error.unwrap().contains("`archive.max_ratio`"));
}

#[test]
fn other_files_are_refused_by_their_first_bytes() {
    let (_, error) = read(b"id,price\n1,2\n", 200);
    assert_eq!(
        error.unwrap(),
        "it is no Arrow IPC file and no Arrow IPC stream by its first bytes"
    );
    let (_, error) = read(b"FEA1\0\0\0\0", 200);
    assert!(error.unwrap().contains("version 2"));
    let twice = RecordBatch::try_new(
        Arc::new(arrow::datatypes::Schema::new(vec![
            Field::new("a", DataType::Int64, true),
            Field::new("a", DataType::Int64, true),
        ])),
        vec![
            Arc::new(Int64Array::from(vec![1])),
            Arc::new(Int64Array::from(vec![2])),
        ],
    );
    let (_, error) = read(&stream(&[twice.unwrap()]), 200);
    assert!(error.unwrap().starts_with("it has column `a` twice"));
}

#[test]
fn files_of_another_program_are_read() {
    let files: [&[u8]; 3] = [
        include_bytes!("../../../fuzz/corpus/arrow/file"),
        include_bytes!("../../../fuzz/corpus/arrow/feather-lz4"),
        include_bytes!("../../../fuzz/corpus/arrow/feather-zstd"),
    ];
    for bytes in files {
        let (rows, error) = read(bytes, 200);
        assert_eq!((rows.len(), error), (3, None));
        let expected = [
            r#"{"at":"1970-01-01T00:00:00Z","b":"00ff","d":"x","l":[1,2],"n":1,"s":{"j":1.5},"t":"a"}"#,
            r#"{"at":"1970-01-01T00:00:00.000001Z","b":"","d":"y","l":null,"n":null,"s":null,"t":"b"}"#,
            r#"{"at":null,"b":null,"d":"x","l":[],"n":3,"s":{"j":null},"t":null}"#,
        ];
        assert_eq!(rows, expected);
    }
    let (rows, error) = read(include_bytes!("../../../fuzz/corpus/arrow/stream"), 200);
    assert_eq!((rows.len(), error), (5, None));
}
