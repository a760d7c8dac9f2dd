//! Filling a piece of a slab from windows in memory: what a task of the pool does.

mod images;
mod multi;
mod places;
mod rows;
mod tokens;

pub(crate) use places::PlaceKind;

use std::sync::Arc;

use feedline_schemas::manifest::TargetKind;

use crate::{
    BatchKind, Error, TokensConfig,
    block::{BlockRows, BlockTarget},
    device,
    image::{self, ImageConfig, MixedBy},
    kind::{MIXES, TARGET},
    loaded::{LoadedBlock, LoadedRun, LoadedWindow},
    mixing::Mixing,
    order::WindowPlace,
    quarantine::Quarantine,
    slab::{COLUMNS, Piece},
};

/// Settings of filling a loader's batches. Shared by all tasks.
#[derive(Clone, Debug)]
pub(crate) struct Filler {
    /// Kind of a row; with `places`, as many words as a row's places take.
    pub(crate) kind: BatchKind,
    pub(crate) target: TargetKind,
    pub(crate) images: Option<ImageConfig>,
    pub(crate) tokens: Option<TokensConfig>,
    /// Of random augmentations.
    pub(crate) seed: u64,
    pub(crate) quarantine: Arc<Quarantine>,
    /// Set when rows are not copied, but their positions on a device are noted.
    pub(crate) places: Option<PlaceKind>,
}

/// Memory that a thread keeps from task to task.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    image: image::Scratch,
    /// An image as it was before it was mixed.
    unmixed: Vec<u8>,
}

/// Record of filling a piece.
#[derive(Debug, Default)]
pub(crate) struct Filled {
    /// First row of the piece in the slab.
    first: usize,
    /// Windows of the rows, run after run.
    runs: Vec<LoadedRun>,
    /// Position of each row in the window of its run; of a row with several documents, the first.
    places: Vec<WindowPlace>,
    /// Rows of the piece that hold another sample than the order says.
    substituted: Vec<usize>,
}

impl Filler {
    /// Words of the targets of a row.
    fn target_words(&self) -> usize {
        self.kind.row_bytes(self.target)[TARGET] / size_of::<u32>()
    }

    /// Bytes that a row takes in each column of a slab.
    pub(crate) fn row_bytes(&self) -> [usize; COLUMNS] {
        let mut bytes = self.kind.row_bytes(self.target);
        let mix = self.images.as_ref().and_then(|images| images.mix);
        if mix.is_some_and(|mix| mix.mixed_by == MixedBy::Caller) {
            bytes[MIXES] = device::Mix::BYTES;
        }
        bytes
    }

    /// Fills a piece with the samples of `runs`, which are as many as it has rows.
    ///
    /// # Errors
    /// [`Error::TooManyBad`], when more samples cannot be used than is allowed; [`Error::Worker`] for our own bugs.
    pub(crate) fn fill(
        &self,
        piece: &mut Piece,
        runs: Vec<LoadedRun>,
        mixing: Option<&Mixing>,
        scratch: &mut Scratch,
    ) -> Result<Filled, Error> {
        debug_assert_eq!(runs.iter().map(LoadedRun::len).sum::<usize>(), piece.rows);
        let mut filled = Filled {
            first: piece.first,
            places: Vec::with_capacity(piece.rows),
            runs,
            substituted: Vec::new(),
        };
        let columns = piece.columns();
        if let Some(kind) = self.places {
            places::fill(self, kind, &mut filled, columns)?;
            return Ok(filled);
        }
        match self.kind {
            BatchKind::Rows { features } => {
                rows::fill(self, &mut filled, features, columns)?;
            }
            BatchKind::Images { .. } => {
                images::fill(self, &mut filled, columns, mixing, scratch)?;
            }
            BatchKind::Tokens { .. } => {
                tokens::fill(self, &mut filled, columns)?;
            }
            BatchKind::Multi {
                features, length, ..
            } => {
                multi::fill(self, &mut filled, [features, length], columns, scratch)?;
            }
        }
        Ok(filled)
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

    /// The last upload of the blocks that the rows are from.
    pub(crate) fn uploads(&self) -> u64 {
        let uploads = self.runs.iter().map(|run| run.window.uploads);
        uploads.max().unwrap_or(0)
    }

    /// Calls `each` with every row's place in its window and its run.
    fn each_place(&self, mut each: impl FnMut(&LoadedRun, WindowPlace)) {
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
fn foreign(block: &LoadedBlock) -> Error {
    Error::Worker {
        stage: crate::pool::STAGE,
        reason: format!(
            "block {} of source {} holds another kind of record than its input says",
            block.block, block.source
        ),
    }
}

/// Puts a column of every block of a window into `columns`; an empty one for blocks that are not in memory. So what a
/// row is copied from is found in one step, not in the four from window to column.
fn columns_of<'a, T>(
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
fn target_bits(target: &BlockTarget) -> Option<&[u32]> {
    match target {
        BlockTarget::Regression(y) => Some(bytemuck::cast_slice(&y[..])),
        BlockTarget::Classification(y) => Some(bytemuck::cast_slice(&y[..])),
        BlockTarget::None => None,
    }
}

/// Copies the targets of all places.
fn gather_targets(
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
