//! Binary columns of Parquet.

use arrow::array::BinaryArray;

use super::*;

#[test]
fn bytes_of_a_column_that_is_declared_text_are_read_as_text() {
    let cells: [&[u8]; 2] = [b"north", b"\xff"];
    let shop: ArrayRef = Arc::new(BinaryArray::from_iter_values(cells));
    let batch = RecordBatch::try_from_iter([("shop", shop)]).unwrap();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    let bytes = writer.into_inner().unwrap();
    let mut artefact = BUILT.transform.artefact().clone();
    artefact.inputs = vec![InputColumn {
        name: "shop".to_owned(),
        kind: InputKind::Categorical,
    }];
    let read = |contract: &str| {
        let reading = RowsReading {
            landed: BTreeMap::from([("shop".to_owned(), Utf8)]),
            contracts: vec![serde_json::from_str(contract).unwrap()],
            ..reading(FileFormat::Parquet, 9)
        };
        let source = RowSource::Stream(Box::new(Cursor::new(bytes.clone())));
        let mut rows = RowsIn::open(source, &reading, &artefact).unwrap();
        rows.next_rows().unwrap().unwrap()
    };
    let found = read(r#"{"column":{"shop":{"type":"text"}}}"#);
    let cells = arrow::array::AsArray::as_string::<i32>(found.inputs.column(0));
    assert_eq!(cells.value(0), "north");
    let bad: Vec<_> = found.bad.keys().copied().collect();
    assert_eq!(bad, [1]);
    let detail = &found.bad[&1].detail;
    assert!(detail.contains("bytes that are no UTF-8"), "{detail}");
    // Such a column has landed as hexadecimal digits.
    assert_eq!(read("{}").bad.len(), 2);
}
