//! Passthrough columns of shards, read back as text in the order of the rows.

use std::{collections::VecDeque, io::Cursor};

use arrow::{
    array::{Array, ArrayRef, AsArray},
    compute::cast,
    datatypes::{DataType, UInt64Type},
    error::ArrowError,
    ipc::reader::FileReader,
};
use bytes::Bytes;
use feedline_schemas::{
    ids::{Hash128, Origin},
    manifest::{Manifest, Shard, Split},
};
use feedline_storage::Store;

use crate::Error;

/// Rows of a split with their passthrough columns, in the order in which the dataset stores them.
/// It holds one shard at a time.
#[derive(Debug)]
pub struct PassthroughRows {
    store: Store,
    shards: VecDeque<Shard>,
    names: Vec<String>,
    ready: VecDeque<PassthroughRow>,
}

/// Passthrough columns of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassthroughRow {
    /// Landing position of the row.
    pub origin: Origin,
    /// Cells in the order of [`PassthroughRows::names`]; `None` where missing.
    pub cells: Vec<Option<String>>,
}

impl PassthroughRows {
    /// The rows of `split`; `None` for shards without passthrough columns.
    #[must_use]
    pub fn of(dataset: &Store, manifest: &Manifest, split: Split) -> Option<Self> {
        let names: Vec<String> = manifest.kept.iter().map(|kept| kept.name.clone()).collect();
        let of_split = manifest.splits.iter().find(|shards| shards.split == split);
        (!names.is_empty()).then(|| Self {
            store: dataset.clone(),
            shards: of_split
                .map(|split| split.shards.clone().into())
                .unwrap_or_default(),
            names,
            ready: VecDeque::new(),
        })
    }

    /// Names of the columns.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The next row; `None` at the end.
    ///
    /// # Errors
    /// Failures of storage; [`Error::Input`] for a shard that is not the one of the manifest.
    pub async fn next(&mut self) -> Result<Option<PassthroughRow>, Error> {
        while self.ready.is_empty() {
            let Some(shard) = self.shards.pop_front() else {
                return Ok(None);
            };
            let bytes = self.store.get(&shard.path).await?;
            let (names, url) = (self.names.clone(), self.store.url_of(&shard.path));
            let read = tokio::task::spawn_blocking(move || read(&bytes, &shard, &names, url)).await;
            self.ready = read??.into();
        }
        Ok(self.ready.pop_front())
    }
}

fn read(
    bytes: &Bytes,
    shard: &Shard,
    names: &[String],
    url: String,
) -> Result<Vec<PassthroughRow>, Error> {
    let found = Hash128::of(bytes);
    if found != shard.hash {
        return Err(Error::input(
            format!("`{url}`"),
            format!(
                "its content has hash {found}, the manifest says {}",
                shard.hash
            ),
            "restore it, or build the dataset again with `--refit`",
        ));
    }
    let reader = FileReader::try_new(Cursor::new(bytes), None)?;
    let schema = reader.schema();
    let column = |name: &str| schema.index_of(name);
    let origin = column("origin")?;
    let places = names.iter().map(|name| column(name));
    let places = places.collect::<Result<Vec<_>, ArrowError>>()?;
    let mut rows = Vec::new();
    for batch in reader {
        let batch = batch?;
        let origins = batch.column(origin).as_primitive::<UInt64Type>();
        let cells = places
            .iter()
            .map(|place| cast(batch.column(*place), &DataType::Utf8));
        let cells = cells.collect::<Result<Vec<_>, ArrowError>>()?;
        rows.extend(origins.values().iter().enumerate().map(|(row, origin)| {
            let cell = |cells: &ArrayRef| {
                let cells = cells.as_string::<i32>();
                cells.is_valid(row).then(|| cells.value(row).to_owned())
            };
            PassthroughRow {
                origin: Origin::from_packed(*origin),
                cells: cells.iter().map(cell).collect(),
            }
        }));
    }
    Ok(rows)
}
