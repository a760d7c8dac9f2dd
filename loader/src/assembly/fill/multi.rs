//! Rows of several parts: each part as rows of its own kind are filled, all of one row of a block.

use crate::{
    Error,
    assembly::{block_types::LoadedBlock, slab::COLUMNS},
    batch_kind::{DATA, IDS, LENGTHS, PIXELS, TARGET},
    input::block_rows::{BlockRows, MultiRows},
};

use super::{
    filler::{FillScratch, Filled, Filler, foreign, gather_targets},
    images,
    rows::{self, copy},
    tokens,
};

/// Id of places behind a text.
const PADDING: u32 = 0;

/// Fills the parts that rows have and notes the places. A row that must not be used, and one whose image cannot be, is
/// replaced as a whole by the next good one of its block.
pub(super) fn fill(
    filler: &Filler,
    filled: &mut Filled,
    [features, length]: [usize; 2],
    mut columns: [&mut [u8]; COLUMNS],
    scratch: &mut FillScratch,
) -> Result<(), Error> {
    find(
        filler,
        filled,
        std::mem::take(&mut columns[PIXELS]),
        scratch,
    )?;
    let mut x = bytemuck::cast_slice_mut::<u8, f32>(std::mem::take(&mut columns[DATA]))
        .chunks_exact_mut(features.max(1));
    let ids = bytemuck::cast_slice_mut(std::mem::take(&mut columns[IDS]));
    let mut ids = ids.chunks_exact_mut(length.max(1));
    let mut lengths =
        bytemuck::cast_slice_mut::<u8, u32>(std::mem::take(&mut columns[LENGTHS])).iter_mut();
    let mut places = filled.places.iter();
    for run in &filled.runs {
        for place in places.by_ref().take(run.len()) {
            let rows = multi(run.window.block(place.block))?;
            let row = place.row as usize;
            if let Some(x) = x.next() {
                copy(x, &rows.x[row * features..(row + 1) * features]);
            }
            if let (Some(ids), Some(length)) = (ids.next(), lengths.next()) {
                *length = text(rows, row, ids);
            }
        }
    }
    gather_targets(filled, columns[TARGET], |rows| match rows {
        BlockRows::Multi(rows) => Some(&rows.y),
        _ => None,
    })
}

/// Notes which row fills each place, and decodes its image, if rows have one.
fn find(
    filler: &Filler,
    filled: &mut Filled,
    pixels: &mut [u8],
    scratch: &mut FillScratch,
) -> Result<(), Error> {
    let image = filler.kind.row_bytes(filler.target)[PIXELS];
    let mut slots = pixels.chunks_exact_mut(image.max(1));
    let Filled {
        runs,
        places,
        substituted,
        ..
    } = filled;
    for run in &*runs {
        let first = places.len();
        rows::find(filler, run, places, substituted)?;
        if image == 0 {
            continue;
        }
        let window = &run.window.window;
        let here = run.positions.clone().zip(first..).zip(slots.by_ref());
        for ((position, at), slot) in here {
            let place = &mut places[at];
            // One that comes several times in an epoch is another image each time.
            let epoch = images::epoch(window.epoch, window.again(position));
            let block = run.window.block(place.block);
            let row = images::decode(filler, block, place.row, epoch, scratch, slot)?;
            if row != place.row {
                place.row = row;
                substituted.push(at);
            }
        }
    }
    substituted.sort_unstable();
    substituted.dedup();
    Ok(())
}

/// Writes the ids of a row, and padding behind them. Returns how many they are.
fn text(rows: &MultiRows, row: usize, to: &mut [u32]) -> u32 {
    let Some((ids, offsets)) = &rows.tokens else {
        to.fill(PADDING);
        return 0;
    };
    let [start, end] = [offsets[row], offsets[row + 1]].map(|at| usize::try_from(at).unwrap_or(0));
    let used = (end - start).min(to.len());
    tokens::copy(&mut to[..used], ids, start);
    to[used..].fill(PADDING);
    u32::try_from(used).unwrap_or(u32::MAX)
}

fn multi(block: &LoadedBlock) -> Result<&MultiRows, Error> {
    match &block.rows {
        BlockRows::Multi(rows) => Ok(rows),
        _ => Err(foreign(block)),
    }
}
