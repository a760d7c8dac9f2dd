//! Rows of objects, and cells whose text depends on the format of the file.

use super::*;

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
