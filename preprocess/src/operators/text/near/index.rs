//! Index of a collection of documents: sketches in, clusters out.

use std::{
    fs,
    path::{Path, PathBuf},
};

use feedline_schemas::config::NearDupConfig;

use super::{
    alike::Alike,
    bands::{Band, Bands},
    clusters::{Clustering, Clusters, Entries},
    entry::Entry,
    forest::Forest,
    sets::Sets,
    sign::Sketch,
};
use crate::Error;

/// Takes sketches in any order; bands and sets that do not fit in memory go to a folder of its own, which it removes.
#[derive(Debug)]
pub struct Index {
    entries: Entries,
    sets: Sets,
    bands: Bands,
    threshold: f64,
    alike: Alike,
    folder: Folder,
}

impl Index {
    /// Creates an empty index with `folder` for data beyond the memory of the settings.
    ///
    /// # Errors
    /// [`Error::Scratch`] when the folder cannot be made.
    pub fn new(config: &NearDupConfig, folder: &Path) -> Result<Self, Error> {
        Self::of(
            Alike::Jaccard,
            config.threshold,
            config.memory.bytes(),
            folder,
        )
    }

    /// An empty index of vectors, near where their cosine is at least `threshold`; the set of a sketch holds two 32-bit
    /// floats in each member. What does not fit in `memory` bytes goes to `folder`.
    ///
    /// # Errors
    /// [`Error::Scratch`] when the folder cannot be made.
    pub(crate) fn of_vectors(threshold: f64, memory: u64, folder: &Path) -> Result<Self, Error> {
        Self::of(Alike::Cosine, threshold, memory, folder)
    }

    fn of(alike: Alike, threshold: f64, memory: u64, folder: &Path) -> Result<Self, Error> {
        let folder = Folder::new(folder)?;
        Ok(Self {
            entries: Entries::default(),
            sets: Sets::new(&folder.0, memory / 2),
            bands: Bands::new(&folder.0, memory / 2),
            threshold,
            alike,
            folder,
        })
    }

    /// Adds a document. `key` should be a hash of its content: among documents of one hub it decides which are compared.
    ///
    /// # Errors
    /// [`Error::Scratch`] when the disk fails, [`Error::Input`] for more than 2^32 - 1 documents.
    ///
    /// # Panics
    /// For a group of 128 or more.
    pub fn add(&mut self, entry: Entry, key: u64, sketch: &Sketch) -> Result<(), Error> {
        let full = |_| {
            let advice = "deduplicate it in parts";
            Error::input(
                "the collection",
                "it has more than 2^32 - 1 documents",
                advice,
            )
        };
        let document = u32::try_from(self.sets.len() + 1).map_err(full)? - 1;
        self.sets.push(&sketch.set)?;
        self.entries.ids.push(entry.id);
        self.entries.marks.push(entry.mark());
        for hash in &sketch.bands {
            self.bands.push(Band {
                hash: *hash,
                key,
                document,
            })?;
        }
        Ok(())
    }

    /// Joins documents that share a band and are as similar as the threshold says.
    ///
    /// # Errors
    /// [`Error::Scratch`] when the disk fails.
    pub fn cluster(self) -> Result<Clusters, Error> {
        let documents = u32::try_from(self.sets.len()).unwrap_or(u32::MAX);
        let clustering = Clustering {
            entries: self.entries,
            sets: self.sets,
            threshold: self.threshold,
            alike: self.alike,
            forest: Forest::new(documents),
            verified: 0,
            hubs: 0,
            held: None,
            left: Vec::new(),
            right: Vec::new(),
        };
        let clusters = clustering.run(&self.bands.sort()?);
        drop(self.folder);
        clusters
    }
}

/// A folder that is removed with all that is in it.
#[derive(Debug)]
struct Folder(PathBuf);

impl Folder {
    fn new(path: &Path) -> Result<Self, Error> {
        fs::create_dir_all(path).map_err(|e| Error::scratch(path, e))?;
        Ok(Self(path.to_owned()))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            tracing::warn!(folder = %self.0.display(), %error, "scratch folder was left behind");
        }
    }
}
