//! Rows of a query, with the types of its columns and without them; the formats of its sources are known.

use arrow::array::TimestampMicrosecondArray;

use super::*;
use crate::query_types;

#[test]
fn numbers_of_a_query_are_read_by_the_number_format_of_its_sources() {
    let csv = CsvConfig {
        delimiter: Some(";".into()),
        decimal_separator: Some(','),
        thousands_separator: Some('.'),
        ..CsvConfig::default()
    };
    let reading_of_query = RowsReading {
        csv,
        landed: BTreeMap::new(),
        ..reading(FileFormat::Csv, 10)
    };
    let text = "size;rooms;kind;new\n1.432,5;3;z;true\n1.432;3;z;true\n1.5;3;z;true\n";
    let (x, bad, _) = read_all(text.into(), &reading_of_query).unwrap();
    let plain = "size,rooms,kind,new\n1432.5,3,z,true\n1432,3,z,true\n";
    let (expected, _, _) = read_all(plain.into(), &reading(FileFormat::Csv, 10)).unwrap();
    assert_eq!(bits(&x[..2]), bits(&expected));
    // A number in another format is none that is guessed.
    assert_eq!(bad.keys().copied().collect::<Vec<_>>(), [2]);
    assert_eq!(bad[&2].reason, "type_conflict");
    let detail = "column `size` is number, the value is text `\"1.5\"`";
    assert!(bad[&2].detail.contains(detail), "{}", bad[&2].detail);
    assert!(!bad[&2].is_unread_time);
}

#[test]
fn timestamps_of_a_query_are_the_categories_that_they_were_in_the_build() {
    const DAY: i64 = 86_400_000_000;
    let columns = [("at", ColumnType::Timestamp), ("price", Float64)];
    let rows = (0..200_i32).map(|i| vec![json!(i64::from(i % 4) * DAY), json!(f64::from(i))]);
    let dataset = "sources = [\"a\"]\ntarget = \"price\"\n";
    let built = built(&columns, dataset, rows.collect());
    let reading = |format| RowsReading {
        landed: BTreeMap::new(),
        contracts: vec![ContractConfig {
            dates: vec!["%d.%m.%Y".to_owned()],
            ..ContractConfig::default()
        }],
        ..reading(format, 10)
    };
    let csv = "at\n01.01.1970\n1970-01-02T00:00:00Z\n1970-01-03\nsoon\n";
    let times = TimestampMicrosecondArray::from(vec![Some(0), Some(DAY), Some(2 * DAY)]);
    let times: ArrayRef = Arc::new(times);
    let batch = RecordBatch::try_from_iter_with_nullable([("at", times, true)]).unwrap();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    let parquet = writer.into_inner().unwrap();
    let expected: Vec<Vec<f32>> = (0..3).map(|row| built.x[&row].clone()).collect();
    for (format, bytes) in [
        (FileFormat::Csv, csv.as_bytes().to_vec()),
        (FileFormat::Parquet, parquet),
    ] {
        let (x, bad, _) = read_with(&built.transform, bytes, &reading(format)).unwrap();
        assert_eq!(bad, BTreeMap::new(), "{format:?}");
        assert_eq!(bits(&x[..3]), bits(&expected), "{format:?}");
    }
}

#[test]
fn a_text_that_is_no_time_is_marked_beside_its_reason() {
    let columns = [("at", ColumnType::Timestamp), ("price", Float64)];
    let rows = (0..200_i32).map(|i| vec![json!(i64::from(i % 4)), json!(f64::from(i))]);
    let dataset = "sources = [\"a\"]\ntarget = \"price\"\n";
    let built = built(&columns, dataset, rows.collect());
    let reading = RowsReading {
        landed: BTreeMap::from([("at".to_owned(), ColumnType::Timestamp)]),
        contracts: vec![ContractConfig::default()],
        ..reading(FileFormat::Ndjson, 10)
    };
    let rows = "{\"at\":\"1970-01-01T00:00:00Z\"}\n{\"at\":\"soon\"}\n{\"at\":7}\n";
    let (_, bad, _) = read_with(&built.transform, rows.into(), &reading).unwrap();
    let found = bad.iter();
    let found = found.map(|(row, fault)| (*row, fault.reason, fault.is_unread_time));
    let expected = [(1, "type_conflict", true), (2, "type_conflict", false)];
    assert_eq!(found.collect::<Vec<_>>(), expected);
}

#[test]
fn a_cell_that_is_not_of_the_type_of_its_column_of_the_query_rejects_its_row() {
    let columns = [("size", Float64), ("new", Bool), ("price", Float64)];
    let rows: Vec<Cells> = (0..60_i32)
        .map(|i| {
            let number = f64::from(i);
            vec![json!(number / 4.0), json!(i % 2 == 0), json!(number)]
        })
        .collect();
    let sql = |query: &str| format!("sources = [\"a\"]\nsql = \"{query}\"\ntarget = \"price\"\n");
    let dataset = sql("select size, new, size > 3 as large, price from a");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (transform, landed) = runtime.block_on(async {
        let root = Store::memory();
        LandingZone::new(&root, "a", &columns).batch(&rows).await;
        build_with(&root, &dataset, 2).await.unwrap();
        let store = root.child("dataset");
        let manifest = read_manifest(&store).await.unwrap();
        let (context, _scratch) = crate::testing::context(&root, 2);
        let config = crate::testing::pipeline(&dataset);
        let landed = query_types(&config, &manifest, &context).await;
        // Another query than in the build says nothing of its columns.
        let other = crate::testing::pipeline(&sql("select price, price as size from a"));
        let of_other = query_types(&other, &manifest, &context).await;
        assert_eq!(of_other, BTreeMap::new());
        let artefact = read_transform(&store, &manifest).await.unwrap();
        (Transform::new(artefact).unwrap(), landed)
    });
    let types = [
        ("size", Float64),
        ("new", Bool),
        ("large", Bool),
        ("price", Float64),
    ];
    let types = types.map(|(name, r#type)| (name.to_owned(), r#type));
    assert_eq!(landed, BTreeMap::from(types));
    let csv = "size,new,large\noops,true,true\n1.5,true,false\n1.5,7,false\n";
    let ndjson = concat!(
        "{\"size\":\"1,5\",\"new\":true,\"large\":true}\n",
        "{\"size\":\"1.5\",\"new\":true,\"large\":false}\n",
        "{\"size\":true,\"new\":true,\"large\":false}\n",
    );
    for (format, text) in [(FileFormat::Csv, csv), (FileFormat::Ndjson, ndjson)] {
        let reading = RowsReading {
            landed: landed.clone(),
            ..reading(format, 10)
        };
        let (_, bad, _) = read_with(&transform, text.into(), &reading).unwrap();
        let found: Vec<(u64, &str)> = bad.iter().map(|(row, bad)| (*row, bad.reason)).collect();
        assert_eq!(found, [(0, "type_conflict"), (2, "type_conflict")]);
        let detail = "column `size` is float, the value is text";
        assert!(bad[&0].detail.contains(detail), "{}", bad[&0].detail);
    }
}
