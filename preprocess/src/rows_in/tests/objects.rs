//! Rows of objects, and cells whose text depends on the format of the file.

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
