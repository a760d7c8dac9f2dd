//! Tokens: a document a row.

use crate::{
    Error,
    block::{BlockRows, TokenIds, TokenRows},
    kind::BatchKind,
    loaded::LoadedBlock,
    slab::COLUMNS,
};

use super::{Filled, Filler, foreign};

/// Fills ids and notes the places.
pub(super) fn fill(
    filler: &Filler,
    filled: &mut Filled,
    columns: [&mut [u8]; COLUMNS],
) -> Result<(), Error> {
    let BatchKind::Tokens { length, .. } = filler.kind else {
        return Ok(());
    };
    let padding = filler.tokens.as_ref().map_or(0, |tokens| tokens.padding_id);
    let [ids, ..] = columns;
    let mut ids = bytemuck::cast_slice_mut::<u8, u32>(ids).chunks_exact_mut(length);
    for run in &filled.runs {
        let first = filled.places.len();
        run.window
            .window
            .places(run.positions.clone(), &mut filled.places);
        for (place, ids) in filled.places[first..].iter().zip(ids.by_ref()) {
            let rows = tokens(run.window.block(place.block))?;
            let document = rows.document(place.row as usize);
            let used = document.len().min(length);
            copy(&mut ids[..used], &rows.ids, document.start);
            ids[used..].fill(padding);
        }
    }
    Ok(())
}

fn tokens(block: &LoadedBlock) -> Result<&TokenRows, Error> {
    match &block.rows {
        BlockRows::Tokens(rows) => Ok(rows),
        _ => Err(foreign(block)),
    }
}

fn copy(to: &mut [u32], ids: &TokenIds, start: usize) {
    match ids {
        TokenIds::U32(ids) => to.copy_from_slice(&ids[start..start + to.len()]),
        TokenIds::U16(ids) => {
            for (to, id) in to.iter_mut().zip(&ids[start..]) {
                *to = u32::from(*id);
            }
        }
    }
}
