//! A file of weights, and the names and statistics that it holds besides.

use std::collections::HashMap;

use bytes::Bytes;
use feedline_schemas::{
    checkpoint::{TextIds, TransformHashes},
    config::{InitConfig, WeightLayout},
    ids::Hash128,
};
use feedline_storage::Store;
use safetensors::SafeTensors;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    Context,
    checkpoint::METADATA_KEY,
    error::{Error, config as wrong},
    model::input::Statistics,
};

/// Metadata entry of an export: mean and deviation that images were normalised by, as two JSON lists in one.
pub(crate) const STATISTICS_KEY: &str = "images";

/// Metadata entry of an export: the names of the classes by output, as a JSON list.
pub(crate) const CLASSES_KEY: &str = "classes";

/// Metadata entry of an export: the names of the features of a row in order, as a JSON list.
pub(crate) const FEATURES_KEY: &str = "features";

/// Metadata entry of an export: the names of several targets by output, as a JSON list.
pub(crate) const TARGETS_KEY: &str = "targets";

/// Metadata entry of an export: the meaning of the token ids of a text, as JSON.
pub(crate) const TEXT_IDS_KEY: &str = "text_ids";

/// Metadata entry of an export: hashes of the transform that makes features and targets, as JSON.
pub(crate) const TRANSFORM_KEY: &str = "transform";

/// Metadata entry of an export: the layout of its matrices, as in the configuration.
pub(crate) const LAYOUT_KEY: &str = "feedline.layout";

/// A file of weights.
#[derive(Clone, Debug)]
pub(crate) struct Weights {
    pub(super) url: String,
    pub(super) bytes: Bytes,
    /// Hash of its bytes.
    pub(crate) hash: Hash128,
}

/// The classes that a file's outputs are for.
pub(super) enum FileClasses {
    /// These, by output.
    Named(Vec<String>),
    /// The file is a run's and names none.
    Unnamed,
    /// The file is no run's and names none.
    Foreign,
}

impl Weights {
    /// Reads the file that `config` names.
    ///
    /// # Errors
    /// [`Error::Config`] when the context has no store for it, and as [`read_from`](Self::read_from).
    pub(crate) async fn read(config: &InitConfig, context: &Context) -> Result<Self, Error> {
        let Some(store) = &context.weights else {
            return Err(wrong("init.from", "the store of the file was not opened"));
        };
        Self::read_from(config, store).await
    }

    /// The same from the folder of the file.
    ///
    /// # Errors
    /// [`Error::Config`] for a file that does not exist; [`Error::Storage`].
    pub(crate) async fn read_from(config: &InitConfig, folder: &Store) -> Result<Self, Error> {
        let (_, name) = split(&config.from);
        let url = folder.url_of(name);
        let Some(bytes) = folder.get_opt(name).await? else {
            let reason = format!(
                "`{url}` does not exist; check the path, which is read from the folder that the command is started in if it is \
                 relative"
            );
            return Err(wrong("init.from", reason));
        };
        Ok(Self {
            url,
            hash: Hash128::of(&bytes),
            bytes,
        })
    }

    /// The tensors of the file.
    ///
    /// # Errors
    /// [`Error::Config`] for a file of another format.
    pub(super) fn tensors(&self) -> Result<SafeTensors<'_>, Error> {
        let file = SafeTensors::deserialize(&self.bytes);
        file.map_err(|e| self.refused(&format!("it is not a safetensors file: {e}")))
    }

    /// Checks that the file is one of safetensors.
    ///
    /// # Errors
    /// [`Error::Config`] for a file of another format.
    pub(crate) fn check_format(&self) -> Result<(), Error> {
        self.tensors().map(|_| ())
    }

    /// The features that the weights are for, as the file says.
    pub(super) fn named_features(&self) -> Option<Vec<String>> {
        self.value_of(FEATURES_KEY)
            .filter(|names: &Vec<String>| !names.is_empty())
    }

    /// Meaning of the token ids that the weights are for, as the file says.
    pub(super) fn text_ids(&self) -> Option<TextIds> {
        self.value_of(TEXT_IDS_KEY)
    }

    /// Hashes of the transform that the weights were trained with, as the file says.
    pub(super) fn transform_hashes(&self) -> Option<TransformHashes> {
        self.value_of(TRANSFORM_KEY)
    }

    /// The layout that the file names; a run's is the program's own.
    pub(super) fn stated_layout(&self) -> Option<WeightLayout> {
        let entries = self.metadata();
        match entries.get(LAYOUT_KEY).map(String::as_str) {
            Some("torch") => Some(WeightLayout::Torch),
            Some("feedline") => Some(WeightLayout::Feedline),
            _ if entries.contains_key(METADATA_KEY) => Some(WeightLayout::Feedline),
            _ => None,
        }
    }

    /// The value that the file has at `key`, in the header of a run or in the metadata of an export.
    fn value_of<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        let entries = self.metadata();
        let Some(header) = entries.get(METADATA_KEY) else {
            return serde_json::from_str(entries.get(key)?).ok();
        };
        let header: Value = serde_json::from_str(header).ok()?;
        serde_json::from_value(header.get(key)?.clone()).ok()
    }

    pub(super) fn metadata(&self) -> HashMap<String, String> {
        let metadata = SafeTensors::read_metadata(&self.bytes).ok();
        let entries = metadata.and_then(|(_, metadata)| metadata.metadata().clone());
        entries.unwrap_or_default()
    }

    /// Mean and deviation that the images of the run were normalised by that the weights are of; `None` where the file
    /// does not say them.
    pub(crate) fn statistics(&self) -> Option<Statistics> {
        let entries = self.metadata();
        if let Some(text) = entries.get(STATISTICS_KEY) {
            return serde_json::from_str(text).ok();
        }
        let header: Value = serde_json::from_str(entries.get(METADATA_KEY)?).ok()?;
        let images = header.get("config")?.get("images")?;
        let of = |key: &str| serde_json::from_value(images.get(key)?.clone()).ok();
        let found: Statistics = [of("mean")?, of("deviation")?];
        let [mean, deviation] = &found;
        let usable = mean.iter().all(|m| m.is_finite())
            && deviation.iter().all(|d| d.is_finite() && *d > 0.0);
        usable.then_some(found)
    }

    /// Names of the outputs that the file has at `key`, in the header of a run or in the metadata of an export.
    pub(super) fn names(&self, key: &str) -> Option<Vec<String>> {
        self.value_of(key)
    }

    /// The classes that the file's outputs are for, as the file says.
    pub(super) fn classes(&self) -> FileClasses {
        let entries = self.metadata();
        let entry = |key: &str| entries.get(key);
        let names = |value: Value| serde_json::from_value::<Vec<String>>(value).ok();
        if let Some(header) = entry(METADATA_KEY) {
            let header: Value = serde_json::from_str(header).unwrap_or_default();
            let own = header.get("classes").cloned().and_then(names);
            return own.map_or(FileClasses::Unnamed, FileClasses::Named);
        }
        let own = entry(CLASSES_KEY).and_then(|text| serde_json::from_str(text).ok());
        match (own, entries.contains_key(TARGETS_KEY)) {
            (Some(own), _) => FileClasses::Named(own),
            (None, true) => FileClasses::Unnamed,
            (None, false) => FileClasses::Foreign,
        }
    }

    /// An error about the file.
    pub(super) fn refused(&self, reason: &str) -> Error {
        wrong("init.from", format!("cannot use `{}`: {reason}", self.url))
    }
}

/// The folder and the name of a file.
#[must_use]
pub fn split(url: &str) -> (&str, &str) {
    url.rsplit_once('/').unwrap_or((".", url))
}
