//! Rows of the training split, which alone can be fitted on.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use datafusion::prelude::DataFrame;
use feedline_schemas::manifest::Split;

use crate::{
    Error,
    staging::{SpilledRows, Staged},
};

/// Rows of the training split: the only input that statistics can be fitted on, and made only from
/// the splitter's output. Nothing else makes one:
///
/// ```compile_fail,E0451
/// fn leaks(frame: datafusion::prelude::DataFrame) -> feedline_preprocess::TrainSplit {
///     feedline_preprocess::TrainSplit { frame, rows: 1, folder: "".into(), pieces: None }
/// }
/// ```
#[derive(Clone, Debug)]
pub struct TrainSplit {
    frame: DataFrame,
    rows: u64,
    folder: PathBuf,
    pieces: Option<(Arc<SpilledRows>, usize)>,
}

impl TrainSplit {
    pub(crate) fn of(staged: &Staged) -> Result<Self, Error> {
        Ok(Self {
            frame: staged.frame(Split::Train)?,
            rows: staged.rows(Split::Train),
            folder: staged.folder().to_owned(),
            pieces: staged.pieces(),
        })
    }

    /// A training split of a test's own making.
    #[cfg(test)]
    pub(crate) fn from_frame(frame: DataFrame, rows: u64) -> Self {
        Self {
            frame,
            rows,
            folder: PathBuf::new(),
            pieces: None,
        }
    }

    /// The same, with `folder` for rewritten rows.
    #[cfg(test)]
    pub(crate) fn in_folder(self, folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            ..self
        }
    }

    /// Folder for rows that steps have changed.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Numeric inputs as `Float64` (null = missing, infinities kept), categories as `Utf8` (null = missing), the target
    /// (`Float64` or `Utf8`, never null), `_origin`, `_hash`, `_split`.
    pub(crate) fn frame(&self) -> DataFrame {
        self.frame.clone()
    }

    /// The rows themselves, and on how many threads to look at them, where that can be done without the engine.
    pub(crate) fn pieces(&self) -> Option<(Arc<SpilledRows>, usize)> {
        self.pieces.clone()
    }

    /// Rows of the split.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }
}
