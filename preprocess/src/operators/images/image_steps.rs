//! Steps for the images of a dataset, and the columns that they add to staged rows.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow::datatypes::{DataType, Field, Schema};
use feedline_image::Preparation;
use feedline_schemas::config::{BoxesOn, ImageDuplicates, StoredImageConfig};

use super::embedding::Neighbours;
use crate::{Error, operators::dedup::content_hash::HASH_BYTES, schema::system_columns};

/// Key of the settings in the configuration.
pub(super) const KEY: &str = "dataset.image";

/// Least cosine of two embeddings that are near, where nothing is said.
pub(super) const COSINE: f64 = 0.95;

/// Steps for the images of a dataset.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Images {
    /// The column of files.
    pub(crate) column: String,
    /// As it was configured.
    pub(crate) config: StoredImageConfig,
    pub(crate) how: Preparation,
    /// The program that decodes them in a process of its own; none: this one does.
    pub(super) program: Option<PathBuf>,
}

impl Images {
    /// Has them decoded by `program` in processes of their own where that is asked for, or nothing is said and they are
    /// `foreign`; a warning says where the latter cannot be.
    ///
    /// # Errors
    /// [`Error::Config`] where it is asked for and there is no such program.
    pub(crate) fn isolated(&mut self, foreign: bool, program: Option<&Path>) -> Result<(), Error> {
        self.program = match (self.config.isolate, program) {
            (Some(true), None) => {
                return Err(Error::config(
                    format!("{KEY}.isolate"),
                    "only the program `feedline` can decode images in another process; remove this key",
                ));
            }
            (isolate, Some(program)) if isolate.unwrap_or(foreign) => Some(program.to_owned()),
            (None, None) if foreign => {
                tracing::warn!(
                    "images from the web are decoded in this process, whose memory a decoder may exhaust: only the \
                     program `feedline` decodes them in another; set `{KEY}.isolate = false` where that is meant"
                );
                None
            }
            _ => None,
        };
        Ok(())
    }

    /// Image that the boxes refer to, if there are boxes.
    pub(crate) fn boxes_on(&self) -> Option<BoxesOn> {
        let config = &self.config;
        let on = || config.boxes_on.unwrap_or_default();
        config.boxes.as_ref().map(|_| on())
    }

    /// Search for images with similar embeddings, if requested. `lengths` counts the embeddings by
    /// their length. Those of the most frequent length are compared; of equally frequent lengths
    /// the shortest counts.
    ///
    /// # Errors
    /// [`Error::Scratch`] when `folder` cannot be made.
    pub(crate) fn neighbours(
        &self,
        lengths: &BTreeMap<usize, u64>,
        folder: &Path,
    ) -> Result<Option<Neighbours>, Error> {
        if self.config.duplicates != ImageDuplicates::Embeddings {
            return Ok(None);
        }
        let cosine = self.config.embedding_cosine.unwrap_or(COSINE);
        // Of those that are as many the last is taken.
        let usual = lengths.iter().rev().max_by_key(|(_, count)| **count);
        let length = usual.map_or(1, |(length, _)| *length);
        Neighbours::new(cosine, length, folder).map(Some)
    }

    /// The landed columns that come along, and what the plan calls them.
    pub(crate) fn beside(&self) -> impl Iterator<Item = (&str, &'static str)> {
        let config = &self.config;
        let boxes = config
            .boxes
            .as_deref()
            .map(|name| (name, system_columns::BOXES));
        let embeddings = config.embeddings.as_deref();
        let embeddings = embeddings.map(|name| (name, system_columns::EMBEDDING));
        boxes.into_iter().chain(embeddings)
    }

    /// Schema of staged rows, for a plan with the columns of `plan`.
    pub(crate) fn staged(&self, plan: &Schema) -> Schema {
        let mut fields = plan.fields().to_vec();
        let mut add = |name: &str, bytes: i32, nullable: bool| {
            let r#type = DataType::FixedSizeBinary(bytes);
            fields.push(Arc::new(Field::new(name, r#type, nullable)));
        };
        add(system_columns::SUMS, SUMS_BYTES, false);
        if self.how.hashes {
            add(system_columns::PIXELS, HASH_BYTES, false);
            add(system_columns::LOOKS, HASH_BYTES, true);
        }
        if self.boxes_on().is_some() {
            add(system_columns::BOXES_COUNTS, COUNTS_BYTES, false);
        }
        Schema::new(fields)
    }
}

/// Bytes of the seven sums of an image.
pub(super) const SUMS_BYTES: i32 = 56;

/// Bytes of the two counts of boxes.
pub(super) const COUNTS_BYTES: i32 = 8;
