//! What a loader reads: one split of a dataset, as blocks of rows.

pub(crate) mod columns;
mod shards;

use std::sync::Arc;

use feedline_schemas::{
    ids::Hash128,
    manifest::{Layout, Manifest, Split, TargetKind, TokenType},
};
use feedline_storage::Store;

use crate::{
    Error,
    block::BlockRows,
    fetch::Extents,
    geometry::{BlockId, Geometry},
};
use shards::Shards;

/// What one row holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// Numbers.
    Dense { features: u32, target: TargetKind },
    /// An encoded picture.
    Pictures { target: TargetKind },
    /// A document; ids are below `vocabulary`.
    Tokens { id: TokenType, vocabulary: u32 },
}

impl From<&Layout> for Record {
    fn from(layout: &Layout) -> Self {
        match *layout {
            Layout::Dense { features, target } => Self::Dense { features, target },
            Layout::Pictures { target } => Self::Pictures { target },
            Layout::Tokens { id, vocabulary } => Self::Tokens { id, vocabulary },
        }
    }
}

/// One opened split. Shared by all passes over it.
#[derive(Debug)]
pub(crate) struct Input {
    record: Record,
    geometry: Arc<Geometry>,
    fingerprint: Hash128,
    format: Format,
}

#[derive(Debug)]
enum Format {
    Shards(Shards),
}

impl Input {
    /// Opens a split of the dataset in `store`.
    ///
    /// # Errors
    /// [`Error::NoDataset`], [`Error::EmptySplit`], or what is wrong with the dataset's description.
    pub(crate) async fn open(store: &Store, split: Split) -> Result<Self, Error> {
        let shards = Shards::open(store, split).await?;
        Ok(Self {
            record: Record::from(&shards.manifest().layout),
            geometry: Arc::clone(shards.geometry()),
            fingerprint: shards.manifest().fingerprint,
            format: Format::Shards(shards),
        })
    }

    /// What a row holds.
    pub(crate) fn record(&self) -> &Record {
        &self.record
    }

    /// Which rows lie in which block.
    pub(crate) fn geometry(&self) -> &Arc<Geometry> {
        &self.geometry
    }

    /// A hash that changes when the dataset does; states carry it.
    pub(crate) fn fingerprint(&self) -> Hash128 {
        self.fingerprint
    }

    /// The manifest, if the dataset has one.
    pub(crate) fn manifest(&self) -> Option<&Manifest> {
        match &self.format {
            Format::Shards(shards) => Some(shards.manifest()),
        }
    }

    /// Reads a block, which batch `first` is the first to need.
    ///
    /// # Errors
    /// [`Error`], when its file is missing or short, has other columns, or the block is damaged or unreadable twice.
    pub(crate) async fn read(
        &self,
        block: BlockId,
        first: u64,
        extents: &dyn Extents,
    ) -> Result<BlockRows, Error> {
        match &self.format {
            Format::Shards(shards) => shards.read(block, first, extents).await,
        }
    }

    /// Bytes that a block takes while it is held.
    pub(crate) fn block_bytes(&self, block: BlockId) -> u64 {
        let range = self.geometry.byte_range(block);
        range.end - range.start
    }

    /// Parts of files that were read a second time because what came made no sense.
    pub(crate) fn rereads(&self) -> u64 {
        match &self.format {
            Format::Shards(shards) => shards.rereads(),
        }
    }
}
