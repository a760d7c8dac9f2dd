//! Inputs without a value in rows of a series, in their windows, and in whole files.

use std::{collections::BTreeMap, sync::Arc};

use feedline_schemas::{
    record::ColumnType::{self, Float64, Utf8},
    report::Warning,
};
use feedline_storage::Store;
use serde_json::{Value, json};

use super::{ALL, COLUMNS, SERIES, WINDOWS, built, landed, reading, readings, rows_of};
use crate::{
    Error, LandedRows, SeriesRequest, Transform, read_manifest, read_transform, series_rows,
    testing::{Cells, LandingZone, context, pipeline},
};

/// Findings about new rows.
#[derive(Debug)]
struct FoundInputs {
    missing: BTreeMap<String, Vec<usize>>,
    absent: Vec<String>,
    unknown_entities: Option<Warning>,
}

/// Reads all rows of `request`, which are one batch.
async fn found(root: &Store, dataset: &str, request: SeriesRequest) -> Result<FoundInputs, Error> {
    let (context, _scratch) = context(root, 2);
    let store = root.child("dataset");
    let manifest = read_manifest(&store).await?;
    let transform = Transform::new(read_transform(&store, &manifest).await?)?;
    let config = pipeline(dataset);
    let rows = series_rows(&config, &manifest, Arc::new(transform), request, &context);
    let mut rows = Box::pin(rows).await?;
    let absent = rows.absent().to_vec();
    let batch = rows.next().await?.unwrap_or_default();
    assert_eq!(rows.next().await?, None);
    Ok(FoundInputs {
        missing: batch.unusual.missing,
        absent,
        unknown_entities: rows.unknown_entities(),
    })
}

fn request_of(rows: LandedRows) -> SeriesRequest {
    SeriesRequest {
        rows: Some(rows),
        ..SeriesRequest::default()
    }
}

/// A dataset of 60 hours of two entities.
async fn build_readings(dataset: &str) -> Store {
    let root = Store::memory();
    LandingZone::new(&root, "a", &COLUMNS)
        .batch(&readings(0..60))
        .await;
    built(&root, dataset).await;
    root
}

/// Three hours of `e0` after those that have landed, without a target; the first has no `v`.
fn next_hours() -> Vec<Cells> {
    let row = |hour: i64| {
        let mut row = reading(0, hour);
        row[3] = Value::Null;
        if hour == 60 {
            row[2] = Value::Null;
        }
        row
    };
    (60..63).map(row).collect()
}

fn missing(columns: &[(&str, &[usize])]) -> BTreeMap<String, Vec<usize>> {
    let columns = columns.iter();
    columns
        .map(|(name, rows)| ((*name).to_owned(), rows.to_vec()))
        .collect()
}

#[tokio::test]
async fn missing_cells_of_rows_and_features_without_earlier_values_are_found() {
    let dataset = format!("{SERIES}{ALL}");
    let root = build_readings(&dataset).await;
    let new = landed(&root, "new", &next_hours()).await;
    let rows = Box::pin(found(&root, &dataset, request_of(new)))
        .await
        .unwrap();
    // The mean is that of three hours: the new ones have no `y`.
    let expected = missing(&[("mean", &[1, 2]), ("v", &[0])]);
    assert_eq!(rows.missing, expected);
    assert_eq!(rows.unknown_entities, None);
    assert!(rows.absent.is_empty(), "{rows:?}");
}

#[tokio::test]
async fn windows_have_the_missing_cells_of_all_their_rows() {
    let dataset = format!("{SERIES}{ALL}{WINDOWS}");
    let root = build_readings(&dataset).await;
    let new = landed(&root, "new", &next_hours()).await;
    let windows = Box::pin(found(&root, &dataset, request_of(new)))
        .await
        .unwrap();
    let expected = missing(&[("mean", &[1, 2, 2]), ("v", &[0, 1, 2])]);
    assert_eq!(windows.missing, expected);
}

#[tokio::test]
async fn entities_that_only_new_rows_have_are_warned_of() {
    let dataset = format!("{SERIES}{ALL}");
    let root = build_readings(&dataset).await;
    let mut rows = next_hours();
    rows[2][0] = json!("e9");
    let new = landed(&root, "new", &rows).await;
    let rows = Box::pin(found(&root, &dataset, request_of(new.clone()))).await;
    let warning = rows.unwrap().unknown_entities.unwrap();
    let begin =
        "1 entity has no rows but the new ones, such as `e9` in `who`, so 1 row is predicted";
    assert!(warning.message.starts_with(begin), "{}", warning.message);
    // A history without rows is a warning of its own.
    let empty = LandedRows {
        is_empty: true,
        ..new.clone()
    };
    let request = SeriesRequest {
        history: Some(empty),
        ..request_of(new)
    };
    let rows = Box::pin(found(&root, &dataset, request)).await.unwrap();
    assert_eq!(rows.unknown_entities, None);
}

/// One row of a file with these columns, entity and time first.
async fn land_row(root: &Store, name: &str, columns: &[(&str, ColumnType)]) -> LandedRows {
    let mut row = vec![json!("e0"), json!("2024-01-03 12:00:00")];
    row.resize(columns.len(), json!(1.0));
    LandingZone::new(root, name, columns).batch(&[row]).await;
    rows_of(root, name)
}

#[tokio::test]
async fn a_file_without_a_needed_column_is_refused_if_its_format_lists_them() {
    let dataset = format!("{SERIES}{ALL}");
    let root = build_readings(&dataset).await;
    let columns = [("who", Utf8), ("at", Utf8), ("V", Float64)];
    let other = land_row(&root, "other", &columns).await;
    let refused = Box::pin(found(&root, &dataset, request_of(other.clone()))).await;
    let expected = "cannot use `other.csv`: it lacks 1 of the 3 needed columns: `v`; did you mean `V`?; give all columns";
    let error = refused.unwrap_err().to_string();
    assert!(error.starts_with(expected), "{error}");
    let objects = LandedRows {
        lists_columns: false,
        ..other
    };
    let rows = Box::pin(found(&root, &dataset, request_of(objects)))
        .await
        .unwrap();
    assert_eq!(rows.absent, ["v"]);
    assert_eq!(rows.missing, missing(&[("v", &[0])]));

    // New rows need no target, and their past does.
    let columns = [("who", Utf8), ("at", Utf8), ("v", Float64)];
    let new = land_row(&root, "new", &columns).await;
    let rows = Box::pin(found(&root, &dataset, request_of(new.clone()))).await;
    assert!(rows.unwrap().absent.is_empty());
    let request = SeriesRequest {
        history: Some(land_row(&root, "past", &columns).await),
        ..request_of(new)
    };
    let refused = Box::pin(found(&root, &dataset, request)).await;
    let error = refused.unwrap_err().to_string();
    let expected = "cannot use `past.csv`: it lacks 1 of the 3 needed columns: `y`;";
    assert!(error.starts_with(expected), "{error}");
}
