//! Columns that the plan adds to the rows, and the table of the names that are reserved for them.

use arrow::array::{ArrayRef, RecordBatch};

use crate::Error;

/// `u64`, [`feedline_schemas::ids::Origin`].
pub(crate) const ORIGIN: &str = "_origin";
/// `fixed_size_binary(16)`, content hash.
pub(crate) const HASH: &str = "_hash";
/// `u8`, position in [`feedline_schemas::manifest::Split::ALL`].
pub(crate) const SPLIT: &str = "_split";
/// `utf8`, reason of the rejection; null for accepted rows.
pub(crate) const REJECT: &str = "_reject";
/// `fixed_size_binary(16)`, hash of the split's key columns.
pub(crate) const GROUP: &str = "_group";
/// `fixed_size_binary(56)`, sums over the pixels of an image.
pub(crate) const SUMS: &str = "_sums";
/// `fixed_size_binary(16)`, hash of the pixels of an image.
pub(crate) const PIXELS: &str = "_pixels";
/// `fixed_size_binary(16)`, how an image looks; null for one of one colour.
pub(crate) const LOOKS: &str = "_looks";
/// `utf8`, the boxes of an image: as they landed, then as they are stored.
pub(crate) const BOXES: &str = "_boxes";
/// `fixed_size_binary(8)`, how many of them are there and how many were lost, two little-endian `u32`.
pub(crate) const BOXES_COUNTS: &str = "_boxes_counts";
/// `utf8`, the embedding of an image, a JSON list.
pub(crate) const EMBEDDING: &str = "_embedding";
/// `utf8`, text that near-duplicates are compared by, where it is no column of documents.
pub(crate) const TEXT: &str = "_text";
/// `u64`, how much was redacted in the document.
pub(crate) const REDACTED: &str = "_redacted";
/// `i64`, the time that decides the split; null where the row has none.
pub(crate) const TIME: &str = "_time";

/// All of them.
const ALL: [&str; 14] = [
    TIME,
    ORIGIN,
    HASH,
    SPLIT,
    REJECT,
    GROUP,
    SUMS,
    PIXELS,
    LOOKS,
    BOXES,
    BOXES_COUNTS,
    EMBEDDING,
    TEXT,
    REDACTED,
];

/// First part of the name of a passthrough column in the plan.
pub(crate) const PASSTHROUGH: &str = "_keep_";

/// Returns true if no column of this name can be a feature or a target.
fn is_reserved(name: &str) -> bool {
    ALL.contains(&name) || name.starts_with(PASSTHROUGH)
}

/// Checks that a column which the configuration has at `key` can keep its name in the plan.
///
/// # Errors
/// [`Error::Config`] for a name in the table of reserved ones.
pub(crate) fn check_reserved(key: &str, name: &str) -> Result<(), Error> {
    if is_reserved(name) {
        return Err(Error::config(
            key,
            format!(
                "column `{name}` has a name that the build itself uses; drop it, or rename it in the source"
            ),
        ));
    }
    Ok(())
}

/// A column the plan made.
pub(crate) fn column<'a>(batch: &'a RecordBatch, name: &str) -> &'a ArrayRef {
    batch
        .column_by_name(name)
        .expect("the plan makes this column")
}
