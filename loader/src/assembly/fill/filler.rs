//! Settings, memory and record of filling a piece.

use std::sync::Arc;

use feedline_schemas::manifest::TargetKind;

use crate::{
    BatchKind, Error, TokensConfig,
    assembly::{
        block_types::{LoadedBlock, LoadedRun, LoadedWindow},
        slab::COLUMNS,
    },
    batch_kind::TARGET,
    image::{self, ImageConfig},
    input::block_rows::{BlockRows, BlockTarget},
    order::WindowPlace,
    quarantine::Quarantine,
};

/// Settings of filling a loader's batches. Shared by all tasks.
#[derive(Clone, Debug)]
pub(crate) struct Filler {
    /// Kind of a row.
    pub(crate) kind: BatchKind,
    pub(crate) target: TargetKind,
    pub(crate) images: Option<ImageConfig>,
    /// Colour that transparent pixels of each source are blended onto; `None` where their alpha is dropped.
    pub(crate) backgrounds: Vec<Option<[u8; 3]>>,
    pub(crate) tokens: Option<TokensConfig>,
    /// Of random augmentations.
    pub(crate) seed: u64,
    pub(crate) quarantine: Arc<Quarantine>,
}

/// Memory that a thread keeps from task to task.
#[derive(Debug, Default)]
pub(crate) struct FillScratch {
    pub(super) image: image::DecodeScratch,
    /// An image as it was before it was mixed.
    pub(super) unmixed: Vec<u8>,
}

/// Record of filling a piece.
#[derive(Debug, Default)]
pub(crate) struct Filled {
    /// First row of the piece in the slab.
    pub(super) first: usize,
    /// Windows of the rows, run after run.
    pub(super) runs: Vec<LoadedRun>,
    /// Position of each row in the window of its run; of a row with several documents, the first.
    pub(super) places: Vec<WindowPlace>,
    /// Rows of the piece that hold another sample than the order says.
    pub(super) substituted: Vec<usize>,
    /// Rows that hold the beginning of a longer document.
    pub(super) truncated: usize,
}

impl Filler {
    /// Colour that transparent pixels of a source are blended onto.
    pub(super) fn background(&self, source: u32) -> Option<[u8; 3]> {
        let background = self.backgrounds.get(source as usize);
        background.copied().flatten()
    }

    /// Words of the targets of a row.
    pub(super) fn target_words(&self) -> usize {
        self.kind.row_bytes(self.target)[TARGET] / size_of::<u32>()
    }

    /// Bytes that a row takes in each column of a slab.
    pub(crate) fn row_bytes(&self) -> [usize; COLUMNS] {
        self.kind.row_bytes(self.target)
    }
}

impl Filled {
    /// First row in the slab.
    pub(crate) fn first(&self) -> usize {
        self.first
    }

    /// Rows of the slab that hold another sample than the order says.
    pub(crate) fn substituted(&self) -> impl Iterator<Item = usize> {
        self.substituted.iter().map(|row| self.first + row)
    }

    /// Number of rows that hold the beginning of a longer document.
    pub(crate) const fn truncated(&self) -> usize {
        self.truncated
    }

    /// Calls `each` with every row's place in its window and its run.
    pub(super) fn each_place(&self, mut each: impl FnMut(&LoadedRun, WindowPlace)) {
        let mut places = self.places.iter();
        for run in &self.runs {
            for place in places.by_ref().take(run.len()) {
                each(run, *place);
            }
        }
    }

    /// Appends the key and origin of every row.
    pub(crate) fn append_identities(&self, keys: &mut Vec<u64>, origins: &mut Vec<u64>) {
        self.each_place(|run, place| {
            let rows = &run.window.block(place.block).rows;
            keys.push(rows.keys()[place.row as usize]);
            origins.push(rows.origins()[place.row as usize]);
        });
    }
}

/// A block of another record than the input was opened with.
pub(super) fn foreign(block: &LoadedBlock) -> Error {
    Error::Worker {
        stage: crate::assembly::pool::STAGE,
        reason: format!(
            "block {} of source {} holds another kind of record than its input says",
            block.block, block.source
        ),
    }
}

/// Puts a column of every block of a window into `columns`; an empty one for blocks that are not in memory. So what a
/// row is copied from is found in one step, not in the four from window to column.
pub(super) fn columns_of<'a, T>(
    window: &'a LoadedWindow,
    columns: &mut Vec<&'a [T]>,
    column: impl Fn(&'a BlockRows) -> Option<&'a [T]>,
) -> Result<(), Error> {
    columns.clear();
    for block in &window.blocks {
        columns.push(match block {
            Some(block) => column(&block.rows).ok_or_else(|| foreign(block))?,
            None => &[],
        });
    }
    Ok(())
}

/// The targets of a block. Both kinds have four bytes, which are all that matters here.
pub(super) fn target_bits(target: &BlockTarget) -> Option<&[u32]> {
    match target {
        BlockTarget::Regression(y) => Some(bytemuck::cast_slice(&y[..])),
        BlockTarget::Classification(y) => Some(bytemuck::cast_slice(&y[..])),
        BlockTarget::None => None,
    }
}

/// Copies the targets of all places.
pub(super) fn gather_targets(
    filled: &Filled,
    y: &mut [u8],
    target: impl Fn(&BlockRows) -> Option<&BlockTarget>,
) -> Result<(), Error> {
    if y.is_empty() {
        return Ok(());
    }
    let mut to = bytemuck::cast_slice_mut::<u8, u32>(y);
    let mut places = &filled.places[..];
    let width = to.len() / places.len().max(1);
    let mut blocks: Vec<&[u32]> = Vec::new();
    for run in &filled.runs {
        let (here, others) = places.split_at(run.len());
        let (rows, rest) = to.split_at_mut(run.len() * width);
        (places, to) = (others, rest);
        columns_of(&run.window, &mut blocks, |rows| target_bits(target(rows)?))?;
        for (to, place) in rows.chunks_exact_mut(width.max(1)).zip(here) {
            let first = place.row as usize * width;
            to.copy_from_slice(&blocks[place.block as usize][first..first + width]);
        }
    }
    Ok(())
}
