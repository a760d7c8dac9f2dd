//! A complete shard in the store: its path, and the lengths of its rows beside it.

use bytes::Bytes;
use feedline_schemas::{
    ids::Hash128,
    manifest::{Lengths, Shard, Split},
};
use feedline_storage::Store;

use crate::Error;

/// Index of a shard in its split, its manifest entry, and its buffer.
pub(super) type Stored = (usize, Shard, Vec<u8>);

/// Writes the lengths of the documents of the shard at `shard`.
pub(super) async fn put_lengths(
    store: &Store,
    shard: &str,
    lengths: &[u32],
) -> Result<Lengths, Error> {
    let bytes: Vec<u8> = lengths.iter().flat_map(|n| n.to_le_bytes()).collect();
    let lengths = Lengths {
        path: lengths_path(shard),
        crc32c: crc32c::crc32c(&bytes),
    };
    store.put(&lengths.path, Bytes::from(bytes)).await?;
    Ok(lengths)
}

/// Path of the lengths of the documents of the shard at `shard`.
pub(super) fn lengths_path(shard: &str) -> String {
    format!("{}.lengths", shard.trim_end_matches(".arrow"))
}

/// Folder of the shards of a split.
pub(super) fn folder_of(split: Split) -> String {
    format!("shards/{split}")
}

/// Path of a shard, which holds its hash.
pub(super) fn path_of(split: Split, index: usize, hash: Hash128) -> String {
    format!("{}/{index:05}-{}.arrow", folder_of(split), hash.short())
}
