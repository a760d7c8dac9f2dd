//! Documents of shards, block by block, checked.

use std::io::Cursor;

use arrow::{
    array::{Array as _, AsArray as _, RecordBatch},
    compute::cast,
    datatypes::{DataType, UInt32Type, UInt64Type},
    ipc::reader::FileReader,
};
use bytes::Bytes;
use feedline_schemas::{edit::Documents, ids::Hash128, manifest::Shard};
use feedline_storage::Store;

use crate::Error;

/// A block of documents.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub(super) documents: Documents,
    /// Origin of each document.
    pub(super) origins: Vec<u64>,
}

/// The bytes of a shard.
///
/// # Errors
/// [`Error::Input`] when they are not those that the manifest describes.
pub(super) async fn whole(dataset: &Store, shard: &Shard) -> Result<Bytes, Error> {
    let bytes = dataset.get(&shard.path).await?;
    if Hash128::of(&bytes) == shard.hash {
        return Ok(bytes);
    }
    Err(Error::input(
        format!("shard `{}`", dataset.url_of(&shard.path)),
        "its hash is not the one that the manifest says",
        "restore it from a copy, or rebuild the dataset",
    ))
}

/// The blocks of a shard with these bytes, whose ids are to be below `vocabulary`.
pub(super) fn documents_in<'a>(
    bytes: &'a [u8],
    shard: &'a Shard,
    vocabulary: u32,
) -> Result<impl Iterator<Item = Result<Block, Error>> + 'a, Error> {
    let refuse = move |reason: &str| {
        Error::input(
            format!("shard `{}`", shard.path),
            reason,
            "build the dataset again",
        )
    };
    let reader = FileReader::try_new(Cursor::new(bytes), None)?;
    Ok(reader.map(move |batch| {
        let block =
            block(&batch?)?.ok_or_else(|| refuse("its columns are not those of documents"))?;
        if block.documents.ids.iter().any(|id| *id >= vocabulary) {
            return Err(refuse("it has an id that is not in the vocabulary"));
        }
        Ok(block)
    }))
}

/// `None` for a batch with other columns than documents have.
fn block(batch: &RecordBatch) -> Result<Option<Block>, Error> {
    let numbers = |name| {
        let column = batch.column_by_name(name)?;
        let column = column.as_primitive_opt::<UInt64Type>()?;
        Some(column.values().to_vec())
    };
    let lists = batch
        .column_by_name("tokens")
        .and_then(|column| column.as_list_opt::<i32>());
    let (Some(lists), Some(keys), Some(origins)) = (lists, numbers("key"), numbers("origin"))
    else {
        return Ok(None);
    };
    let offsets = lists.offsets();
    let (first, last) = (offsets.first().copied(), offsets.last().copied());
    let values = lists.values().slice(
        usize::try_from(first.unwrap_or(0)).unwrap_or(0),
        usize::try_from(last.unwrap_or(0) - first.unwrap_or(0)).unwrap_or(0),
    );
    let ids = cast(&values, &DataType::UInt32)?;
    let lengths: Result<Vec<u32>, _> = offsets.lengths().map(u32::try_from).collect();
    let Ok(lengths) = lengths else {
        return Ok(None);
    };
    Ok(Some(Block {
        documents: Documents {
            keys,
            lengths,
            ids: ids.as_primitive::<UInt32Type>().values().to_vec(),
        },
        origins,
    }))
}
