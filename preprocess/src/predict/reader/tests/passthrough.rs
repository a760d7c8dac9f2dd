//! Types of passthrough columns, by the schema of a file or by contracts.

use feedline_schemas::config::{ColumnContract, DeclaredType};

use super::*;
use crate::Column;

/// The rows of `bytes` with these passthrough columns.
fn open(format: FileFormat, bytes: Vec<u8>, contracts: &[ContractConfig]) -> RowsIn {
    let keep = ["id", "new", "size", "kind"];
    let reading = RowsReading {
        keep: keep.map(str::to_owned).to_vec(),
        contracts: contracts.to_vec(),
        ..reading(format, 100)
    };
    let stream = RowSource::Stream(Box::new(Cursor::new(bytes)));
    RowsIn::open(stream, &reading, BUILT.transform.artefact()).unwrap()
}

/// The passthrough columns of all rows, and the cells that do not fit their types.
fn columns(mut rows: RowsIn) -> (Vec<Column>, Vec<(usize, String)>) {
    let types = rows.passthrough_types().to_vec();
    let batch = rows.next_rows().unwrap().unwrap();
    let kept = batch.features(&BUILT.transform).unwrap().kept;
    assert_eq!(rows.next_rows().unwrap().map(|_| ()), None);
    let mut misfits = Vec::new();
    let columns = types.into_iter().zip(kept).map(|(own, cells)| {
        let (column, found) = own.column(cells);
        misfits.extend(found);
        column
    });
    (columns.collect(), misfits)
}

#[test]
fn passthrough_columns_have_the_types_that_a_file_declares() {
    let rows = || (1..4).map(row);
    let expected = vec![
        Column::Integers(vec![Some(1), Some(2), Some(3)]),
        Column::Bools(vec![Some(false), Some(true), Some(false)]),
        Column::Long(vec![Some(1.0 / 7.0), Some(2.0 / 7.0), Some(-1.0)]),
        Column::Text(
            ["1", "x,\"y\"", "?"]
                .map(|cell| Some(cell.to_owned()))
                .to_vec(),
        ),
    ];
    for (format, bytes) in [
        (FileFormat::Parquet, parquet_of(rows())),
        (FileFormat::Arrow, arrow_of(rows())),
    ] {
        let found = columns(open(format, bytes, &[]));
        assert_eq!(found, (expected.clone(), Vec::new()), "{format:?}");
    }
}

#[test]
fn passthrough_columns_that_land_as_decimals_or_texts_keep_all_digits_of_json() {
    let landed = [
        ("id", ColumnType::Decimal),
        ("kind", Utf8),
        ("size", Float64),
    ];
    let reading = RowsReading {
        keep: ["id", "kind", "size", "note"].map(str::to_owned).to_vec(),
        landed: landed.map(|(name, own)| (name.to_owned(), own)).into(),
        ..reading(FileFormat::Ndjson, 100)
    };
    let digits = "0.1234567890123456789012";
    let row = format!(
        r#"{{"id":{digits},"kind":{digits},"size":{digits},"note":{digits},"rooms":1,"new":true}}"#
    );
    let stream = RowSource::Stream(Box::new(Cursor::new(row.into_bytes())));
    let rows = RowsIn::open(stream, &reading, BUILT.transform.artefact()).unwrap();
    let text = |text: &str| Column::Text(vec![Some(text.to_owned())]);
    let (exact, rounded) = (text(digits), text("0.12345678901234568"));
    let expected = vec![exact.clone(), exact, rounded.clone(), rounded];
    assert_eq!(columns(rows), (expected, Vec::new()));
}

#[test]
fn passthrough_columns_of_csv_and_json_are_text_unless_a_contract_declares_their_types() {
    let declared = ColumnContract {
        r#type: Some(DeclaredType::Int),
        ..ColumnContract::default()
    };
    let contract = ContractConfig {
        column: [("id".to_owned(), declared)].into(),
        ..ContractConfig::default()
    };
    let rows = || (1..4).map(row);
    for (format, bytes) in [
        (FileFormat::Csv, csv_of(rows())),
        (FileFormat::Ndjson, ndjson_of(rows())),
    ] {
        let (texts, misfits) = columns(open(format, bytes.clone(), &[]));
        let is_text = |column: &Column| matches!(column, Column::Text(_));
        assert!(texts.iter().all(is_text), "{texts:?}");
        assert!(misfits.is_empty(), "{misfits:?}");
        let (found, misfits) = columns(open(format, bytes, std::slice::from_ref(&contract)));
        assert_eq!(found[0], Column::Integers(vec![Some(1), Some(2), Some(3)]));
        assert_eq!(found[1..], texts[1..]);
        assert!(misfits.is_empty(), "{misfits:?}");
    }
    let csv = b"id,new,kind,rooms,size\n1,true,z,1,2.5\nA2,true,z,1,2.5\n".to_vec();
    let (found, misfits) = columns(open(FileFormat::Csv, csv, &[contract]));
    assert_eq!(found[0], Column::Integers(vec![Some(1), None]));
    assert_eq!(misfits, [(1, "A2".to_owned())]);
}
