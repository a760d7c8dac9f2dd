//! Positions of rows and tokens on a device: the input of the kernel that builds the batch. Nothing
//! is copied, and the blocks in host memory are looked at only where a row cannot be used or a
//! document begins.

use crate::{
    Error, TokenLayout,
    assembly::{
        block_types::{LoadedRun, LoadedWindow},
        slab::COLUMNS,
    },
    device::{PADDING, TokenPiece},
};

use super::{
    filler::{Filled, Filler, PlaceKind},
    rows, tokens,
};

/// Fills the first column with places.
pub(super) fn fill(
    filler: &Filler,
    kind: PlaceKind,
    filled: &mut Filled,
    [column, ..]: [&mut [u8]; COLUMNS],
) -> Result<(), Error> {
    let words: &mut [u32] = bytemuck::cast_slice_mut(column);
    match kind {
        PlaceKind::Row => fill_rows(filler, filled, words),
        PlaceKind::Tokens { length, pieces } => {
            let (rows, _) = words.as_chunks_mut::<4>();
            let first = u32::try_from(filled.first).unwrap_or(u32::MAX);
            let mut to = PlacedPieces {
                rows: rows.chunks_exact_mut(pieces as usize),
                length,
                start: first.saturating_mul(length),
            };
            match filler.tokens.map(|tokens| tokens.layout) {
                Some(TokenLayout::Stream) => to.stream(filled),
                Some(TokenLayout::Documents) => to.documents(filled),
                Some(
                    TokenLayout::Packed | TokenLayout::PackedOverlapping | TokenLayout::Filled,
                )
                | None => Err(bug("these rows have no places")),
            }
        }
    }
}

fn fill_rows(filler: &Filler, filled: &mut Filled, words: &mut [u32]) -> Result<(), Error> {
    let (mut to, _) = words.as_chunks_mut::<2>();
    let Filled {
        runs,
        places,
        substituted,
        ..
    } = filled;
    for run in &*runs {
        let first = places.len();
        rows::find(filler, run, places, substituted)?;
        let (here, rest) = to.split_at_mut(run.len());
        to = rest;
        for (to, place) in here.iter_mut().zip(&places[first..]) {
            *to = [slot(&run.window, place.block)?, place.row];
        }
    }
    Ok(())
}

/// The slot of a block that a batch reads.
fn slot(window: &LoadedWindow, block: u32) -> Result<u32, Error> {
    match window.slots.get(block as usize) {
        Some(slot) if *slot != PADDING => Ok(*slot),
        _ => Err(bug("a batch reads a block that has no slot on the device")),
    }
}

/// The pieces of some rows.
struct PlacedPieces<'a> {
    rows: std::slice::ChunksExactMut<'a, TokenPiece>,
    /// Ids in a row.
    length: u32,
    /// First id of the next row, counted in the batch.
    start: u32,
}

impl<'a> PlacedPieces<'a> {
    fn stream(&mut self, filled: &Filled) -> Result<(), Error> {
        let mut found = Vec::new();
        for run in &filled.runs {
            let LoadedRun { window, positions } = run;
            found.clear();
            window.window.token_places(positions.clone(), &mut found);
            for place in &found {
                let mut row = self.next()?;
                let mut result = Ok(());
                tokens::read_on(window, *place, self.length as usize, |number, _, at, to| {
                    if result.is_ok() && !to.is_empty() {
                        result = slot(window, number).and_then(|slot| row.push(slot, at, to.len()));
                    }
                })?;
                result?;
                row.pad()?;
            }
        }
        Ok(())
    }

    fn documents(&mut self, filled: &mut Filled) -> Result<(), Error> {
        let Filled { runs, places, .. } = filled;
        for run in runs {
            let first = places.len();
            run.places(places);
            for place in &places[first..] {
                let mut row = self.next()?;
                let rows = tokens::tokens(run.window.block(place.block))?;
                let document = rows.document(place.row as usize);
                let used = document.len().min(self.length as usize);
                row.push(slot(&run.window, place.block)?, document.start, used)?;
                row.pad()?;
            }
        }
        Ok(())
    }

    fn next(&mut self) -> Result<RowPieces<'a>, Error> {
        let pieces = self
            .rows
            .next()
            .ok_or_else(|| bug("there are more rows than places"))?;
        let (at, end) = (self.start, self.start.saturating_add(self.length));
        self.start = end;
        Ok(RowPieces {
            pieces: pieces.iter_mut(),
            at,
            end,
        })
    }
}

/// The pieces of one row.
struct RowPieces<'a> {
    pieces: std::slice::IterMut<'a, TokenPiece>,
    /// Place of the next id in the batch, and of the end of the row.
    at: u32,
    end: u32,
}

impl RowPieces<'_> {
    /// Adds `count` tokens from token `first` of a slot on.
    fn push(&mut self, slot: u32, first: usize, count: usize) -> Result<(), Error> {
        let piece = self
            .pieces
            .next()
            .ok_or_else(|| bug("a row reads from more blocks than its places hold"))?;
        let (first, count) = (u32::try_from(first), u32::try_from(count));
        let (Ok(first), Ok(count)) = (first, count) else {
            return Err(bug("a block has more tokens than 32 bits count"));
        };
        let end = self.at + count;
        *piece = [slot, first, self.at, end];
        self.at = end;
        Ok(())
    }

    /// Pads the rest of the row.
    fn pad(&mut self) -> Result<(), Error> {
        for piece in &mut self.pieces {
            *piece = [PADDING, 0, self.at, self.end];
            self.at = self.end;
        }
        match self.at == self.end {
            true => Ok(()),
            false => Err(bug("a row has no place left for its padding")),
        }
    }
}

fn bug(reason: &str) -> Error {
    Error::Worker {
        stage: crate::assembly::pool::STAGE,
        reason: reason.into(),
    }
}
