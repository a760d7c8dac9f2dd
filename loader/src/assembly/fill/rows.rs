//! Rows of numbers: copied one by one, column after column, so that each loop is short enough for the processor to
//! have many cache misses under way at once.

use crate::{
    Error,
    assembly::{block_types::LoadedRun, slab::COLUMNS},
    input::block_rows::BlockRows,
    order::WindowPlace,
    quarantine::Quarantine,
};

use super::filler::{Filled, Filler, columns_of, target_bits};

/// Fills `x` and `y` and notes the places. A row that must not be used is replaced by the next good one of its block,
/// going round: the same on every rank and in any world, since nothing but the block decides.
pub(super) fn fill(
    filler: &Filler,
    filled: &mut Filled,
    features: usize,
    columns: [&mut [u8]; COLUMNS],
) -> Result<(), Error> {
    let [x, y, ..] = columns;
    let Filled {
        runs,
        places,
        substituted,
        ..
    } = filled;
    let mut to: &mut [f32] = bytemuck::cast_slice_mut(x);
    let mut to_targets: &mut [u32] = bytemuck::cast_slice_mut(y);
    let (mut blocks, mut targets) = (Vec::new(), Vec::new());
    for run in &*runs {
        let first = places.len();
        find(filler, run, places, substituted)?;
        let places = &places[first..];
        let (here, rest) = to.split_at_mut(places.len() * features);
        to = rest;
        columns_of(&run.window, &mut blocks, |rows| match rows {
            BlockRows::Dense(rows) => Some(&rows.x[..]),
            _ => None,
        })?;
        if to_targets.is_empty() {
            for (to, place) in here.chunks_exact_mut(features).zip(places) {
                let start = place.row as usize * features;
                copy(to, &blocks[place.block as usize][start..start + features]);
            }
            continue;
        }
        columns_of(&run.window, &mut targets, |rows| match rows {
            BlockRows::Dense(rows) => target_bits(&rows.y),
            _ => None,
        })?;
        let width = filler.target_words();
        let (y, rest) = to_targets.split_at_mut(places.len() * width);
        to_targets = rest;
        if width > 1 {
            let rows = here
                .chunks_exact_mut(features)
                .zip(y.chunks_exact_mut(width));
            for ((to, y), place) in rows.zip(places) {
                let (block, row) = (place.block as usize, place.row as usize);
                y.copy_from_slice(&targets[block][row * width..(row + 1) * width]);
                copy(to, &blocks[block][row * features..(row + 1) * features]);
            }
            continue;
        }
        // The miss of the target is under way together with those of the row.
        for ((to, y), place) in here.chunks_exact_mut(features).zip(y).zip(places) {
            let start = place.row as usize * features;
            *y = targets[place.block as usize][place.row as usize];
            copy(to, &blocks[place.block as usize][start..start + features]);
        }
    }
    Ok(())
}

/// Appends the positions of the rows of a run, and the indices of those that replace a row that
/// must not be used.
pub(super) fn find(
    filler: &Filler,
    run: &LoadedRun,
    places: &mut Vec<WindowPlace>,
    substituted: &mut Vec<usize>,
) -> Result<(), Error> {
    let first = places.len();
    run.places(places);
    if !filler.quarantine.is_empty() {
        let replaced = replace_bad(&filler.quarantine, run, &mut places[first..])?;
        substituted.extend(replaced.into_iter().map(|row| first + row));
    }
    Ok(())
}

/// Puts good rows in the place of bad ones. Returns the indices of those that hold another row than the order says, also
/// because their whole block is damaged.
fn replace_bad(
    quarantine: &Quarantine,
    run: &LoadedRun,
    places: &mut [WindowPlace],
) -> Result<Vec<usize>, Error> {
    let mut replaced = Vec::new();
    for (number, place) in places.iter_mut().enumerate() {
        let block = run.window.block(place.block);
        let bad = block.rows.bad();
        let is_bad = |row: u32| bad.binary_search_by_key(&row, |bad| bad.row).is_ok();
        if !is_bad(place.row) {
            if run.window.is_replaced(place.block) {
                replaced.push(number);
            }
            continue;
        }
        let rows = u32::try_from(block.rows.rows()).unwrap_or(u32::MAX);
        let good = (place.row..rows)
            .chain(0..place.row)
            .find(|row| !is_bad(*row));
        place.row = good.ok_or_else(|| quarantine.hopeless(block.source, block.block))?;
        replaced.push(number);
    }
    Ok(replaced)
}

/// Copies a row, in whole cache lines where it has only those: a call of `memcpy` costs as much as the line itself.
pub(super) fn copy(to: &mut [f32], from: &[f32]) {
    let ((to_lines, to_rest), (lines, rest)) = (to.as_chunks_mut::<16>(), from.as_chunks::<16>());
    if rest.is_empty() {
        for (to, line) in to_lines.iter_mut().zip(lines) {
            *to = *line;
        }
    } else {
        to_lines.copy_from_slice(lines);
        to_rest.copy_from_slice(rest);
    }
}
