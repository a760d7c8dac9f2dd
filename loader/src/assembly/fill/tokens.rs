//! Tokens: a document a row, several packed into one, or pieces of all of them in a row.

use std::ops::Range;

use crate::{
    Error, TokenLayout,
    assembly::{
        block_types::{LoadedBlock, LoadedRun, LoadedWindow},
        slab::COLUMNS,
    },
    batch_kind::BatchKind,
    input::block_rows::{BlockRows, TokenIds, TokenRows},
    order::{TokenPlace, WindowPlace},
};

use super::filler::{Filled, Filler, foreign};

/// Fills ids, and segments and positions when packed, and notes the places.
pub(super) fn fill(
    filler: &Filler,
    filled: &mut Filled,
    columns: [&mut [u8]; COLUMNS],
) -> Result<(), Error> {
    let (BatchKind::Tokens { length, .. }, Some(config)) = (filler.kind, &filler.tokens) else {
        return Ok(());
    };
    let columns = columns.map(|column| bytemuck::cast_slice_mut(column).chunks_exact_mut(length));
    let rows = RowsToFill {
        columns,
        padding: config.padding_id,
    };
    match config.layout {
        TokenLayout::Documents => rows.documents(filled),
        TokenLayout::Packed | TokenLayout::PackedOverlapping => rows.packed(filled),
        TokenLayout::Stream | TokenLayout::Filled => rows.stream(filled),
    }
}

/// Rows to be filled.
struct RowsToFill<'a> {
    columns: [std::slice::ChunksExactMut<'a, u32>; COLUMNS],
    padding: u32,
}

impl RowsToFill<'_> {
    fn documents(self, filled: &mut Filled) -> Result<(), Error> {
        let [mut ids, ..] = self.columns;
        let Filled {
            runs,
            places,
            substituted,
            truncated,
            ..
        } = filled;
        for run in runs {
            let first = places.len();
            run.window.window.places(run.positions.clone(), places);
            for (at, (place, ids)) in (first..).zip(places[first..].iter().zip(ids.by_ref())) {
                if run.window.is_replaced(place.block) {
                    substituted.push(at);
                }
                let rows = tokens(run.window.block(place.block))?;
                let document = rows.document(place.row as usize);
                let used = document.len().min(ids.len());
                *truncated += usize::from(used < document.len());
                copy(&mut ids[..used], &rows.ids, document.start);
                ids[used..].fill(self.padding);
            }
        }
        Ok(())
    }

    fn packed(self, filled: &mut Filled) -> Result<(), Error> {
        let [mut ids, mut segments, mut positions, ..] = self.columns;
        let Filled {
            runs,
            places,
            substituted,
            ..
        } = filled;
        for run in runs {
            let LoadedRun {
                window,
                positions: bins,
            } = run;
            for (bin, ids) in bins.clone().zip(ids.by_ref()) {
                let row = [Some(ids), segments.next(), positions.next()];
                let [Some(ids), Some(segments), Some(positions)] = row else {
                    unreachable!("the columns of a slab have the same rows")
                };
                let pieces = window.window.bin(bin);
                let mut used = 0;
                for (number, piece) in (1..).zip(pieces) {
                    let rows = tokens(window.block(piece.block))?;
                    // In a block that replaces a damaged one, a document may be shorter.
                    let document = rows.document(piece.row as usize);
                    let start = document.end.min(document.start + piece.start as usize);
                    let end = used + (piece.len as usize).min(document.end - start);
                    copy(&mut ids[used..end], &rows.ids, start);
                    segments[used..end].fill(number);
                    for (to, position) in positions[used..end].iter_mut().zip(piece.start..) {
                        *to = position;
                    }
                    used = end;
                }
                ids[used..].fill(self.padding);
                segments[used..].fill(0);
                positions[used..].fill(0);
                if pieces.iter().any(|piece| window.is_replaced(piece.block)) {
                    substituted.push(places.len());
                }
                let first = pieces.first().expect("a bin has a piece");
                places.push(WindowPlace {
                    block: first.block,
                    row: first.row,
                });
            }
        }
        Ok(())
    }

    /// The columns of segments and positions hold nothing where they are not wanted.
    fn stream(self, filled: &mut Filled) -> Result<(), Error> {
        let [mut ids, mut segments, mut positions, ..] = self.columns;
        let Filled {
            runs,
            places,
            substituted,
            ..
        } = filled;
        let mut found = Vec::new();
        for run in runs {
            found.clear();
            run.window
                .window
                .token_places(run.positions.clone(), &mut found);
            for (place, ids) in found.iter().zip(ids.by_ref()) {
                let mut marks = segments.next().zip(positions.next());
                let mut documents = 0;
                let read = read_on(&run.window, *place, ids.len(), |rows, start, to| {
                    copy(&mut ids[to.clone()], &rows.ids, start);
                    if let Some((segments, positions)) = &mut marks {
                        let marks = [&mut segments[to.clone()], &mut positions[to]];
                        mark(rows, start, marks, &mut documents);
                    }
                })?;
                let used = read.tokens;
                if read.is_replaced {
                    substituted.push(places.len());
                }
                ids[used..].fill(self.padding);
                if let Some((segments, positions)) = marks {
                    segments[used..].fill(0);
                    positions[used..].fill(0);
                }
                places.push(WindowPlace {
                    block: place.block,
                    row: document_at(tokens(run.window.block(place.block))?, place.start),
                });
            }
        }
        Ok(())
    }
}

/// Writes the number of each token's document in its row, from `start` on, and the token's position
/// in that document; `before` documents of the row are in other blocks, and those of this one are
/// added to them.
fn mark(rows: &TokenRows, start: usize, [segments, positions]: [&mut [u32]; 2], before: &mut u32) {
    let mut row = document_at(rows, u32::try_from(start).unwrap_or(u32::MAX)) as usize;
    let mut used = 0;
    while used < segments.len() {
        let document = rows.document(row);
        row += 1;
        let first = start + used;
        let end = segments
            .len()
            .min(used + document.end.saturating_sub(first));
        if end == used {
            continue;
        }
        *before += 1;
        segments[used..end].fill(*before);
        let places = first - document.start..;
        for (to, place) in positions[used..end].iter_mut().zip(places) {
            *to = u32::try_from(place).unwrap_or(u32::MAX);
        }
        used = end;
    }
}

/// Tokens of a row that were found.
struct TokensRead {
    tokens: usize,
    /// True if some of them are of a block that replaces another one.
    is_replaced: bool,
}

/// Finds the first tokens at `place`, up to `most`, which may continue in the blocks that follow.
/// Calls `each` for the part in every block: its documents, the first token in it, and the range of
/// that part among all.
fn read_on(
    window: &LoadedWindow,
    place: TokenPlace,
    most: usize,
    mut each: impl FnMut(&TokenRows, usize, Range<usize>),
) -> Result<TokensRead, Error> {
    let wanted = most.min(place.tokens as usize);
    let (mut block, mut start, mut used) = (Some(place.block), place.start as usize, 0);
    let mut is_replaced = false;
    while used < wanted
        && let Some(number) = block
    {
        let rows = tokens(window.block(number))?;
        is_replaced |= window.is_replaced(number);
        let here = (rows.ids.len() - start).min(wanted - used);
        each(rows, start, used..used + here);
        used += here;
        start = 0;
        block = window.window.next_block(number);
    }
    Ok(TokensRead {
        tokens: used,
        is_replaced,
    })
}

/// The document that holds token `token` of a block.
fn document_at(rows: &TokenRows, token: u32) -> u32 {
    let ends = &rows.offsets[1..];
    let row = ends.partition_point(|end| u32::try_from(*end).unwrap_or(0) <= token);
    u32::try_from(row).unwrap_or(u32::MAX)
}

pub(super) fn tokens(block: &LoadedBlock) -> Result<&TokenRows, Error> {
    match &block.rows {
        BlockRows::Tokens(rows) => Ok(rows),
        _ => Err(foreign(block)),
    }
}

pub(super) fn copy(to: &mut [u32], ids: &TokenIds, start: usize) {
    match ids {
        TokenIds::U32(ids) => to.copy_from_slice(&ids[start..start + to.len()]),
        TokenIds::U16(ids) => {
            for (to, id) in to.iter_mut().zip(&ids[start..]) {
                *to = u32::from(*id);
            }
        }
    }
}
