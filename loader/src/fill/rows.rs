//! Rows of numbers: copied one by one, column after column, so that each loop is short enough for the processor to
//! have many cache misses under way at once.

use crate::{Error, block::BlockRows, slab::COLUMNS};

use super::{Filled, foreign, gather_targets};

/// Fills `x` and `y` and notes the places.
pub(super) fn fill(
    filled: &mut Filled,
    features: usize,
    columns: [&mut [u8]; COLUMNS],
) -> Result<(), Error> {
    let [x, y, _] = columns;
    let mut to: &mut [f32] = bytemuck::cast_slice_mut(x);
    for run in &filled.runs {
        let first = filled.places.len();
        run.window
            .window
            .places(run.positions.clone(), &mut filled.places);
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
