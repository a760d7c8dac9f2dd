//! Text cells of landed rows by their position, for predictions that name the files they are about.

use std::collections::BTreeMap;

use arrow::{
    array::{Array, AsArray},
    compute::cast,
    datatypes::{DataType, UInt64Type},
};
use feedline_schemas::{
    config::SourceConfig,
    manifest::Manifest,
    record::system::{ROW, SEQUENCE},
};
use feedline_storage::Store;
use parquet::arrow::{ProjectionMask, arrow_reader::ParquetRecordBatchReaderBuilder};
use serde::Deserialize;

use crate::{
    Error,
    source::{landing_zone::Landed, superseded_files},
};

/// Sequence of a batch, and the row in it.
pub type LandedPlace = (u64, u64);

/// Positions of the rows that `source` has landed in `root`, in their order, with the text of the
/// column `name` where it has one. Holds one data file at a time in memory.
///
/// # Errors
/// [`Error::Input`] for a source that has landed nothing, and for damaged files; failures of the store.
pub async fn landed_texts(
    root: &Store,
    source: &SourceConfig,
    name: &str,
) -> Result<BTreeMap<LandedPlace, Option<String>>, Error> {
    let landed = Landed::read(root, source, None).await?;
    let mut found = BTreeMap::new();
    for file in landed.generations.iter().flat_map(|g| &g.files) {
        let bytes = superseded_files::get(&landed.store, &file.path).await?;
        let unreadable = |reason: String| {
            Error::input(
                landed.store.url_of(&file.path),
                reason,
                "land the file again",
            )
        };
        let builder = ParquetRecordBatchReaderBuilder::try_new(bytes);
        let builder = builder.map_err(|e| unreadable(e.to_string()))?;
        // A dot in the name of a column leads to no field below it.
        let columns = builder.schema().fields().iter().enumerate();
        let is_read = |column: &str| [SEQUENCE, ROW, name].contains(&column);
        let roots = columns.filter_map(|(i, field)| is_read(field.name()).then_some(i));
        let mask = ProjectionMask::roots(builder.parquet_schema(), roots);
        let rows = builder.with_projection(mask).build();
        for batch in rows.map_err(|e| unreadable(e.to_string()))? {
            let batch = batch.map_err(|e| unreadable(e.to_string()))?;
            let numbers = |name: &str| {
                let column = batch.column_by_name(name);
                let column =
                    column.ok_or_else(|| unreadable(format!("it has no column `{name}`")))?;
                Ok::<_, Error>(cast(column, &DataType::UInt64)?)
            };
            let (sequences, rows) = (numbers(SEQUENCE)?, numbers(ROW)?);
            let (sequences, rows) = (
                sequences.as_primitive::<UInt64Type>(),
                rows.as_primitive::<UInt64Type>(),
            );
            let texts = batch.column_by_name(name);
            let texts = texts
                .map(|texts| cast(texts, &DataType::Utf8))
                .transpose()?;
            for row in 0..batch.num_rows() {
                let text = texts.as_ref().filter(|texts| texts.is_valid(row));
                let text = text.map(|texts| texts.as_string::<i32>().value(row).to_owned());
                found.insert((sequences.value(row), rows.value(row)), text);
            }
        }
    }
    Ok(found)
}

/// Reason for which a build rejected a row.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct RejectedRow {
    /// Sequence of its batch.
    pub sequence: u64,
    /// Row in the batch.
    pub row: u64,
    /// Name of the reason.
    pub reason: String,
    /// Column that it is about; may be empty.
    pub column: String,
    /// Value, or further words.
    pub value: String,
}

/// The rows that the build of `manifest` rejected, in landing order.
///
/// # Errors
/// [`Error::Input`] for a damaged file; failures of the store.
pub async fn rejected_rows(
    dataset: &Store,
    manifest: &Manifest,
) -> Result<BTreeMap<LandedPlace, RejectedRow>, Error> {
    read_rejects(dataset, manifest.rejects.iter()).await
}

/// The rows that builds in `dataset` rejected, in landing order, those of a build that published nothing among them.
///
/// # Errors
/// As [`rejected_rows`].
pub async fn all_rejected_rows(
    dataset: &Store,
) -> Result<BTreeMap<LandedPlace, RejectedRow>, Error> {
    let listed = dataset.list("rejects/").await?;
    read_rejects(dataset, listed.iter().map(|file| &file.path)).await
}

async fn read_rejects(
    dataset: &Store,
    paths: impl Iterator<Item = &String>,
) -> Result<BTreeMap<LandedPlace, RejectedRow>, Error> {
    let mut found = BTreeMap::new();
    for path in paths {
        let bytes = dataset.get(path).await?;
        for line in bytes.split(|byte| *byte == b'\n').filter(|l| !l.is_empty()) {
            let row: RejectedRow = serde_json::from_slice(line).map_err(|e| {
                Error::input(
                    dataset.url_of(path),
                    e.to_string(),
                    "build the dataset again",
                )
            })?;
            found.insert((row.sequence, row.row), row);
        }
    }
    Ok(found)
}
