//! Rows of objects, and cells whose text depends on the format of the file.

use arrow::array::TimestampMicrosecondArray;

use super::*;

#[test]
fn keys_of_objects_that_nothing_uses_are_ignored_columns() {
    let lines = b"{\"size\":1,\"z\":{\"a\":1}}\n{\"y\":1,\"rooms\":1,\"z\":2}\n{\"x\":\"\\ud800\"}\n\n{\"size\":1,\"w\":1,\"w\":2}\n";
    let document = b"[{\"size\":1,\"z\":{\"a\":1}},{\"y\":1,\"rooms\":1,\"z\":2}]";
    for (format, bytes) in [
        (FileFormat::Ndjson, &lines[..]),
        (FileFormat::Json, document),
    ] {
        let stream = RowSource::Stream(Box::new(Cursor::new(bytes.to_vec())));
        let reading = RowsReading {
            keep: vec!["id".into()],
            ..reading(format, 1)
        };
        let mut rows = RowsIn::open(stream, &reading, BUILT.transform.artefact()).unwrap();
        assert!(rows.ignored().is_empty(), "{format:?}");
        while rows.next_rows().unwrap().is_some() {}
        assert_eq!(rows.ignored(), ["z", "y"], "{format:?}");
    }
}

#[test]
fn a_number_beyond_64_bits_is_called_one() {
    let line = b"{\"size\":1e400,\"kind\":18446744073709551616,\"id\":-9223372036854775809}\n";
    let reading = RowsReading {
        keep: vec!["id".into()],
        ..reading(FileFormat::Ndjson, 9)
    };
    let (_, bad, kept) = read_all(line.to_vec(), &reading).unwrap();
    assert_eq!(
        bad[&0].detail,
        "line 1: column `size` is float, the value is a number beyond 64 bits `\"1e400\"`"
    );
    assert_eq!(kept, [Some("-9223372036854775809".to_owned())]);
}

#[test]
fn a_timestamp_that_is_carried_along_is_the_landed_one_in_any_format() {
    let zoned = "2024-01-31T12:30:00.25+02:00";
    let reading = |format| RowsReading {
        keep: vec!["at".into()],
        landed: BTreeMap::from([("at".to_owned(), ColumnType::Timestamp)]),
        ..reading(format, 9)
    };
    let micros = 1_706_697_000_250_000;
    let at: ArrayRef = Arc::new(
        TimestampMicrosecondArray::from(vec![Some(micros), None]).with_timezone("Europe/Berlin"),
    );
    let no_cells = || -> ArrayRef { Arc::new(StringArray::from(vec![None::<&str>, None])) };
    let mut columns: Vec<(&str, ArrayRef)> = vec![("at", at)];
    columns.extend(["size", "rooms", "kind", "new"].map(|name| (name, no_cells())));
    let batch = RecordBatch::try_from_iter_with_nullable(
        columns
            .into_iter()
            .map(|(name, column)| (name, column, true)),
    )
    .unwrap();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    let parquet = writer.into_inner().unwrap();
    let csv = format!("at,size,rooms,kind,new\n{zoned},,,,\nNA,,,,\n").into_bytes();
    let ndjson = format!("{{\"at\":\"{zoned}\",\"size\":null}}\n{{\"size\":1}}\n").into_bytes();
    for (format, bytes) in [
        (FileFormat::Csv, csv),
        (FileFormat::Ndjson, ndjson),
        (FileFormat::Parquet, parquet),
    ] {
        let kept = read_all(bytes, &reading(format)).unwrap().2;
        let landed = "2024-01-31T10:30:00.250Z".to_owned();
        assert_eq!(kept, [Some(landed), None], "{format:?}");
    }
    // A cell that could not land stays, and its row is predicted.
    let csv = b"at,size,rooms,kind,new\nsoon,1,1,z,true\n".to_vec();
    let (_, bad, kept) = read_all(csv, &reading(FileFormat::Csv)).unwrap();
    assert_eq!(bad, BTreeMap::new());
    assert_eq!(kept, [Some("soon".to_owned())]);
}
