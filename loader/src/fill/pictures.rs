//! Pictures: each decoded straight into its slot.

use crate::{
    Error,
    block::BlockRows,
    guard::catching,
    loaded::LoadedBlock,
    picture::{self, SampleRandom},
    slab::COLUMNS,
};

use super::{Filled, Filler, Scratch, foreign, gather_targets};

/// Fills pixels and `y` and notes the places. A picture that cannot be used is replaced by the next good one of its
/// block, going round: the same on every rank and in any world, since nothing but the block decides.
pub(super) fn fill(
    filler: &Filler,
    filled: &mut Filled,
    columns: [&mut [u8]; COLUMNS],
    scratch: &mut Scratch,
) -> Result<(), Error> {
    let [pixels, y, _] = columns;
    let config = filler.pictures.as_ref().ok_or_else(|| Error::Worker {
        stage: crate::pool::STAGE,
        reason: "pictures without settings".into(),
    })?;
    let mut done = 0;
    let mut slots = pixels.chunks_exact_mut(config.bytes());
    for run in &filled.runs {
        let window = &run.window.window;
        let first = filled.places.len();
        window.places(run.positions.clone(), &mut filled.places);
        for (place, slot) in filled.places[first..].iter_mut().zip(slots.by_ref()) {
            let block = run.window.block(place.block);
            let row = decode(filler, block, place.row, window.epoch, scratch, slot)?;
            if row != place.row {
                filled.substituted.push(done);
            }
            place.row = row;
            done += 1;
        }
    }
    gather_targets(filled, y, |rows| match rows {
        BlockRows::Pictures(rows) => Some(&rows.y),
        _ => None,
    })
}

/// Decodes the picture at `row` of a block, or the first good one after it. Returns its row.
fn decode(
    filler: &Filler,
    block: &LoadedBlock,
    row: u32,
    epoch: u64,
    scratch: &mut Scratch,
    slot: &mut [u8],
) -> Result<u32, Error> {
    let (BlockRows::Pictures(rows), Some(config)) = (&block.rows, &filler.pictures) else {
        return Err(foreign(block));
    };
    let count = rows.keys.len();
    for step in 0..count {
        let number = (row as usize + step) % count;
        let row = u32::try_from(number).unwrap_or(u32::MAX);
        if filler.quarantine.has(block.source, block.block, row) {
            continue;
        }
        let mut random = SampleRandom::new(filler.seed, epoch, rows.keys[number]);
        let decoded = catching(|| {
            picture::decode_into(
                config,
                rows.picture(number),
                &mut random,
                &mut scratch.picture,
                slot,
            )
        });
        let reason = match decoded {
            Ok(Ok(())) => return Ok(row),
            Ok(Err(error)) => error.to_string(),
            Err(panic) => {
                scratch.picture = picture::Scratch::default();
                format!("the decoder panicked: {panic}")
            }
        };
        filler
            .quarantine
            .add_row(block.source, block.block, row, reason)?;
    }
    Err(filler.quarantine.hopeless(block.source, block.block))
}
