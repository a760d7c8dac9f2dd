//! An opened split, and datasets that cannot be opened.

use std::sync::Arc;

use feedline_schemas::{config::ImageBackground, ids::Hash128};

use super::{config::InputFormat, record::RowContent};
use crate::block_table::BlockTable;

/// Incomplete shards, which are left out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Skipped {
    /// Their rows.
    pub(crate) rows: u64,
    /// Their paths, relative to the dataset folder.
    pub(crate) paths: Vec<String>,
}

/// A split of some format, opened.
pub(super) struct OpenedInput<T> {
    pub(super) record: RowContent,
    pub(super) block_table: Arc<BlockTable>,
    pub(super) fingerprint: Hash128,
    /// Names of the classes by id, where the files of an export have them; a manifest has them itself.
    pub(super) classes: Vec<String>,
    /// Colour that transparent pixels are blended onto, where the files of an export have it; a transform has it itself.
    pub(super) background: Option<ImageBackground>,
    pub(super) format: T,
}

/// Reason that a folder with a dataset of shards in a folder below it is none, and advice; `url` is that of the dataset.
pub(super) fn below(url: &str) -> String {
    format!(
        "there is a dataset of feedline in `{url}`, so other files, such as landed rows before their preprocessing, are not \
         read by default; give that URL, or set `format` to read them"
    )
}

/// Reason that the rows of a folder with a table of `format` are no dataset by default, and advice: its log names the files
/// that count.
pub(super) fn of_table(format: &str) -> String {
    format!(
        "it is a table of {format}, whose log names the files that count, and all `*.parquet` are read, also those that the \
         table has replaced or deleted; write its current rows as Parquet to another folder"
    )
}

/// Part that a folder lacks to be a dataset, and advice.
pub(super) fn absent(format: InputFormat, is_empty: bool) -> String {
    let lacks = match format {
        _ if is_empty => {
            "the folder is missing or empty; check the path, or build the dataset first"
        }
        InputFormat::Shards => "it has no `CURRENT`; check the path, or build the dataset first",
        InputFormat::Detect => {
            "it has no `CURRENT` (shards of feedline), no `index.json` (MDS), no `*.parquet` and no `*.tar`; check the \
             path, or build the dataset first"
        }
        InputFormat::Parquet => "it has no `*.parquet`; check the path and `format`",
        InputFormat::WebDataset => "it has no `*.tar`; check the path and `format`",
        InputFormat::Mds => {
            "it has no `index.json`, also not in a folder of a split; check the path and `format`"
        }
    };
    lacks.to_owned()
}
