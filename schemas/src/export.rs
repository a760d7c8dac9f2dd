//! Record of an export, `_feedline_export.json` in its folder, and the report of the command.
//!
//! Order of writes: the record as `writing`, files with rows under names that no reader takes for files of its format
//! (`.train-000000.tar.incoming`), their own names once all rows are written, the index or card of the format, the record as
//! `complete`. So a folder whose record says `writing` belongs to an export that is in progress or was killed, and a folder
//! without a record is not ours.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    config::ImageBackground,
    format::{EXPORT, versioned},
    ids::{Hash128, Name, Sequence, TableName},
    split::Split,
    warning::Warning,
};

/// Name of the record in the folder of an export. Readers of Parquet folders skip names that begin with `_`.
pub const RECORD: &str = "_feedline_export.json";

/// Key of [`ExportedRoles`] in the metadata of Parquet files, and in the index of MDS shards.
pub const ROLES: &str = "feedline.columns";

/// Name of the first member of an archive, which has [`ExportedRoles`]. Readers of WebDataset pass over such names.
pub const ROLES_MEMBER: &str = "__feedline__";

/// Roles of the columns of an exported dataset, as JSON in its files. A reader passes over fields that it does not know.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportedRoles {
    /// Features, in the order of the elements of a row: numbers, or lists of one fixed length.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<String>,
    /// Image files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Colour that transparent pixels of images are blended onto, as in the build; absent if `dataset.image` names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background: Option<ImageBackground>,
    /// Lists of token ids.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<String>,
    /// Targets, in the order of the dataset.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<String>,
    /// Names of the classes by id, if the target is a class.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<String>,
    /// First 8 bytes of the hash of a row's content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// Record of an export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExportRecord {
    /// `feedline.export`.
    pub format: String,
    /// Format version.
    pub version: u32,
    /// The pipeline.
    pub pipeline: Name,
    /// Exported rows.
    pub of: ExportedRows,
    /// Format of the files.
    pub files_format: ExportFormat,
    /// State of the folder.
    pub state: ExportState,
    /// Files, in the order of their rows, then those that describe them; empty while the export is in progress.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<ExportedFile>,
}
versioned!(ExportRecord, EXPORT);

/// State of the folder of an export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "is", deny_unknown_fields)]
pub enum ExportState {
    /// The export is in progress, or was killed.
    Writing {
        /// Id of the process.
        run: String,
    },
    /// All files are complete.
    Complete,
}

/// Rows of an export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "kind", deny_unknown_fields)]
pub enum ExportedRows {
    /// Landed rows of a source, or of a child table.
    Source {
        /// The table.
        name: TableName,
        /// Last log entry that counts.
        sequence: Sequence,
        /// xxh3-128 of that entry.
        entry_hash: Hash128,
        /// True for only the latest version of each key.
        latest: bool,
    },
    /// A built dataset.
    Dataset {
        /// Its name.
        name: Name,
        /// Fingerprint of its manifest.
        fingerprint: Hash128,
        /// Hash of its transform artefact.
        transform: Hash128,
    },
}

/// A file of an export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExportedFile {
    /// Path in the folder.
    pub path: String,
    /// Its split; absent for landed rows, and for files without rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<Split>,
    /// Rows; 0 for a file that describes others.
    pub rows: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// xxh3-128 of the file.
    pub hash: Hash128,
}

/// Format of exported files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ExportFormat {
    /// Parquet files.
    Parquet,
    /// Parquet files with a card, as `datasets.load_dataset` reads them.
    HuggingFace,
    /// Tar files of samples.
    WebDataset,
    /// Shards of MosaicML Streaming.
    Mds,
}

impl ExportFormat {
    /// Its name for people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Parquet => "Parquet",
            Self::HuggingFace => "Hugging Face",
            Self::WebDataset => "WebDataset",
            Self::Mds => "MDS",
        }
    }
}

/// Report of `export`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DataExportReport {
    /// Exported rows.
    pub of: ExportedRows,
    /// Format of the files.
    pub format: ExportFormat,
    /// Folder that was written.
    pub url: String,
    /// Rows written: as many as the log or the manifest has.
    pub rows: u64,
    /// Of a dataset, the rows of each split; a split without rows has no file.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub splits: BTreeMap<Split, u64>,
    /// Landed rows that a later version of their key replaces; they were left out.
    #[serde(default)]
    pub older_versions: u64,
    /// Columns written.
    pub columns: u64,
    /// Files with rows.
    pub files: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Columns whose values have another type or name in the files than before, and the reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub converted: BTreeMap<String, String>,
    /// Columns whose values are JSON text, as they landed: lists, and objects whose keys are data.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub json_text: Vec<String>,
    /// NaN and infinite numbers in JSON, written as Python's `json` does. Standard JSON has no such
    /// numbers.
    #[serde(default)]
    pub not_finite: u64,
    /// Columns that were left out, and the reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub left_out: BTreeMap<String, String>,
    /// True when a finished export was replaced.
    #[serde(default)]
    pub replaced: bool,
    /// Observations about the exported rows, such as `dataset_settings_changed`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
}
