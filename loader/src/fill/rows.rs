//! Rows of numbers: copied one by one, column after column, so that each loop is short enough for the processor to
//! have many cache misses under way at once.

use crate::{Error, block::BlockRows, slab::COLUMNS};

use super::{Filled, Filler, foreign, gather_targets};

/// Fills `x` and `y` and notes the places. A row that must not be used is replaced by the next good one of its block,
/// going round: the same on every rank and in any world, since nothing but the block decides.
pub(super) fn fill(
    filler: &Filler,
    filled: &mut Filled,
    features: usize,
    columns: [&mut [u8]; COLUMNS],
) -> Result<(), Error> {
    let [x, y, _] = columns;
    let mut to: &mut [f32] = bytemuck::cast_slice_mut(x);
    for run_number in 0..filled.runs.len() {
        let run = &filled.runs[run_number];
        let first = filled.places.len();
        run.window
            .window
            .places(run.positions.clone(), &mut filled.places);
        if !filler.quarantine.is_empty() {
            replace_bad(filler, filled, run_number)?;
        }
        let run = &filled.runs[run_number];
        let places = &filled.places[first..];
        let (here, rest) = to.split_at_mut(places.len() * features);
        to = rest;
        for (to, place) in here.chunks_exact_mut(features).zip(places) {
            let block = run.window.block(place.block);
            let BlockRows::Dense(rows) = &block.rows else {
                return Err(foreign(block));
            };
            let start = place.row as usize * features;
            copy(to, &rows.x[start..start + features]);
        }
    }
    gather_targets(filled, y, |block| match &block.rows {
        BlockRows::Dense(rows) => Some(&rows.y),
        _ => None,
    })
}

/// Puts good rows in the place of bad ones among the places of a run, which were the last to be noted.
fn replace_bad(filler: &Filler, filled: &mut Filled, run: usize) -> Result<(), Error> {
    let run = &filled.runs[run];
    let first = filled.places.len() - run.len();
    for (number, place) in filled.places.iter_mut().enumerate().skip(first) {
        let block = run.window.block(place.block);
        let (bad, rows) = (block.rows.bad(), block.rows.rows());
        let is_bad = |row: u32| bad.binary_search_by_key(&row, |bad| bad.row).is_ok();
        if !is_bad(place.row) {
            continue;
        }
        let rows = u32::try_from(rows).unwrap_or(u32::MAX);
        let good = (place.row..rows)
            .chain(0..place.row)
            .find(|row| !is_bad(*row));
        place.row = good.ok_or_else(|| filler.quarantine.hopeless(block.source, block.block))?;
        filled.substituted.push(number);
    }
    Ok(())
}

/// Copies a row, in whole cache lines where it has only those: a call of `memcpy` costs as much as the line itself.
fn copy(to: &mut [f32], from: &[f32]) {
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
