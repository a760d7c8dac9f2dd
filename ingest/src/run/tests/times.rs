//! Dates and timestamps of Parquet files.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, Date32Array, Int64Array, StringArray, Time64MicrosecondArray,
    TimestampMicrosecondArray, TimestampNanosecondArray,
};
use feedline_schemas::{
    config::{ColumnContract, DeclaredType},
    record::ColumnType,
};

use super::*;
use feedline_readers::testing::parquet_file as file;

/// 2024-01-01 in seconds since 1970.
const NEW_YEAR: i64 = 1_704_067_200;

fn write(folder: &std::path::Path, name: &str, columns: Vec<(&str, ArrayRef)>) {
    std::fs::write(folder.join(name), file(columns)).unwrap();
}

fn micros(rows: i64) -> TimestampMicrosecondArray {
    let values = (0..rows).map(|i| (NEW_YEAR + i) * 1_000_000 + 5);
    TimestampMicrosecondArray::from_iter_values(values)
}

async fn land(config: &PipelineConfig, root: &Store) -> (Vec<(String, ColumnType)>, SourceReport) {
    let mut report = ingest(config, None, &context(root)).await.unwrap();
    let landed = landed(root, &config.source[0].name).await;
    let landed = landed.unwrap().unwrap();
    let columns = &landed.entries.last().unwrap().schema.columns;
    let columns = columns.iter().map(|c| (c.name.clone(), c.r#type));
    (columns.collect(), report.sources.remove(0))
}

fn codes(report: &SourceReport) -> Vec<&str> {
    let warnings = report.warnings.iter();
    warnings.map(|warning| warning.code.as_str()).collect()
}

#[tokio::test]
async fn dates_and_timestamps_land_as_timestamps_and_a_time_of_day_as_text() {
    let folder = tempfile::tempdir().unwrap();
    let nanos = (0..300).map(|i| (NEW_YEAR + i) * 1_000_000_000 + 123_456_789);
    let days = (0..300).map(|i| (i % 3 != 0).then_some(19_000 + i));
    write(
        folder.path(),
        "a.parquet",
        vec![
            ("us", Arc::new(micros(300))),
            (
                "ns",
                Arc::new(TimestampNanosecondArray::from_iter_values(nanos)),
            ),
            ("tz", Arc::new(micros(300).with_timezone("+02:00"))),
            ("day", Arc::new(Date32Array::from_iter(days))),
            (
                "time",
                Arc::new(Time64MicrosecondArray::from_iter_values(0..300)),
            ),
            ("n", Arc::new(Int64Array::from_iter_values(0..300))),
        ],
    );
    let mut config = pipeline(&format!("{}/*.parquet", folder.path().display()));
    // A declared type and a format for other cells change nothing.
    let declared = ColumnContract {
        r#type: Some(DeclaredType::Timestamp),
        ..ColumnContract::default()
    };
    config.source[0]
        .contract
        .column
        .insert("us".into(), declared);
    config.source[0].contract.dates = vec!["%Y-%d-%m".into()];
    let (columns, report) = land(&config, &Store::memory()).await;
    let expected = [
        ("us", ColumnType::Timestamp),
        ("ns", ColumnType::Timestamp),
        ("tz", ColumnType::Timestamp),
        ("day", ColumnType::Timestamp),
        ("time", ColumnType::Utf8),
        ("n", ColumnType::Int64),
    ];
    assert_eq!(columns, expected.map(|(name, of)| (name.to_owned(), of)));
    assert_eq!((report.rows, report.rejected), (300, 0));
    assert_eq!(codes(&report), ["local_times", "timestamp_digits_cut"]);
    let cut = &report.decisions["timestamp_digits_cut"];
    let counts: Vec<(&str, u64)> = cut.iter().map(|(n, c)| (n.as_str(), c.count)).collect();
    assert_eq!(counts, [("ns", 300)]);
    assert_eq!(cut["ns"].sample, "`2024-01-01T00:00:00.123456789`");
}

#[tokio::test]
async fn the_last_day_of_the_calendar_lands_as_a_timestamp() {
    const LAST_DAY: i32 = 2_932_896;
    let folder = tempfile::tempdir().unwrap();
    let end = i64::from(LAST_DAY + 1) * 86_400_000_000 - 1;
    let micros = TimestampMicrosecondArray::from(vec![NEW_YEAR * 1_000_000, end]);
    write(
        folder.path(),
        "a.parquet",
        vec![
            ("us", Arc::new(micros.clone())),
            ("tz", Arc::new(micros.with_timezone("+02:00"))),
            ("day", Arc::new(Date32Array::from(vec![19_000, LAST_DAY]))),
        ],
    );
    let config = pipeline(&format!("{}/*.parquet", folder.path().display()));
    let (columns, report) = land(&config, &Store::memory()).await;
    let expected = ["us", "tz", "day"].map(|name| (name.to_owned(), ColumnType::Timestamp));
    assert_eq!(columns, expected);
    assert_eq!((report.rows, report.rejected), (2, 0));
    assert_eq!(codes(&report), ["local_times"]);
}

#[tokio::test]
async fn a_column_that_landed_as_text_stays_text_and_rejects_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["soon", "later"]));
    write(folder.path(), "a.parquet", vec![("at", texts)]);
    let config = pipeline(&format!("{}/*.parquet", folder.path().display()));
    let root = Store::memory();
    land(&config, &root).await;
    write(
        folder.path(),
        "b.parquet",
        vec![("at", Arc::new(micros(4)))],
    );
    let (columns, report) = land(&config, &root).await;
    assert_eq!(columns, [("at".to_owned(), ColumnType::Utf8)]);
    assert_eq!((report.rows, report.rejected), (6, 0));
}
