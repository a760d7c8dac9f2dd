//! Filling a piece of a slab from windows in memory: what a task of the pool does.

mod filler;
mod images;
mod multi;
mod rows;
mod tokens;

pub(crate) use filler::{FillScratch, Filled, Filler};

use super::{block_types::LoadedRun, mixup_plan::MixupPlan, slab::SlabPiece};
use crate::{BatchKind, Error};

impl Filler {
    /// Fills a piece with the samples of `runs`, which are as many as it has rows.
    ///
    /// # Errors
    /// [`Error::TooManyBad`], when more samples cannot be used than is allowed; [`Error::Worker`] for our own bugs.
    pub(crate) fn fill(
        &self,
        piece: &mut SlabPiece,
        runs: Vec<LoadedRun>,
        mixing: Option<&MixupPlan>,
        scratch: &mut FillScratch,
    ) -> Result<Filled, Error> {
        debug_assert_eq!(runs.iter().map(LoadedRun::len).sum::<usize>(), piece.rows);
        let mut filled = Filled {
            first: piece.first,
            places: Vec::with_capacity(piece.rows),
            runs,
            substituted: Vec::new(),
            truncated: 0,
        };
        let columns = piece.columns();
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
