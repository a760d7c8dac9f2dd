//! Images: each decoded straight into its slot.

use crate::{
    Error,
    assembly::{block_types::LoadedBlock, mixup_plan::MixupPlan, slab::COLUMNS},
    guard::catching,
    image::{self, Mix, SampleRandom},
    input::block_rows::BlockRows,
};

use super::filler::{FillScratch, Filled, Filler, foreign, gather_targets};

/// Bits of the epoch in its number; the others count earlier uses of an image.
const EPOCH_BITS: u32 = 32;

/// Fills pixels and `y` and notes the places. An image that cannot be used is replaced by the next good one of its
/// block, going round: the same on every rank and in any world, since nothing but the block decides.
pub(super) fn fill(
    filler: &Filler,
    filled: &mut Filled,
    columns: [&mut [u8]; COLUMNS],
    mixing: Option<&MixupPlan>,
    scratch: &mut FillScratch,
) -> Result<(), Error> {
    let [pixels, y, ..] = columns;
    let config = filler.images.as_ref().ok_or_else(|| Error::Worker {
        stage: crate::assembly::pool::STAGE,
        reason: "images without settings".into(),
    })?;
    let rows = pixels.len() / config.bytes();
    let pairs = mixing.map(|mixing| Pairs::new(mixing, filled.first, rows));
    let mut done = 0;
    let mut slots = pixels.chunks_exact_mut(config.bytes());
    for run in &filled.runs {
        let window = &run.window.window;
        let first = filled.places.len();
        run.places(&mut filled.places);
        let places = filled.places[first..].iter_mut().zip(slots.by_ref());
        for (position, (place, slot)) in run.positions.clone().zip(places) {
            let block = run.window.block(place.block);
            if pairs.as_ref().is_some_and(|pairs| !pairs.needs(done)) {
                slot.fill(0);
                done += 1;
                continue;
            }
            // One that comes several times in an epoch is another image each time.
            let epoch = epoch(window.epoch, window.again(position));
            let row = decode(filler, block, place.row, epoch, scratch, slot)?;
            if row != place.row || run.window.is_replaced(place.block) {
                filled.substituted.push(done);
            }
            place.row = row;
            done += 1;
        }
    }
    if let Some(pairs) = &pairs {
        pairs.apply(pixels, config.width, &mut scratch.unmixed);
    }
    gather_targets(filled, y, |rows| match rows {
        BlockRows::Images(rows) => Some(&rows.y),
        _ => None,
    })
}

/// The number of an epoch, with how often a sample came in it before.
pub(super) fn epoch(epoch: u64, again: u32) -> u64 {
    epoch | u64::from(again) << EPOCH_BITS
}

/// Mixes of the images of a piece, which consists of complete pairs.
struct Pairs<'a> {
    mixing: &'a MixupPlan,
    /// Place of the first.
    first: usize,
    mixes: Vec<Mix>,
}

impl<'a> Pairs<'a> {
    fn new(mixing: &'a MixupPlan, first: usize, rows: usize) -> Self {
        debug_assert!(first.is_multiple_of(2), "a piece begins with a pair");
        let mixes = mixing.draw(first..first + rows);
        Self {
            mixing,
            first,
            mixes,
        }
    }

    /// Returns true if the image in `row` is the rank's own, or mixed into one that is.
    fn needs(&self, row: usize) -> bool {
        self.is_own(row) || self.mixes.get(row ^ 1).is_some_and(Mix::is_mixed)
    }

    fn is_own(&self, row: usize) -> bool {
        self.mixing.own().contains(&(self.first + row))
    }

    /// Mixes the rank's own images. `unmixed` is memory to work in.
    fn apply(&self, pixels: &mut [u8], width: u32, unmixed: &mut Vec<u8>) {
        let image = pixels.len() / self.mixes.len().max(1);
        if image == 0 {
            return;
        }
        for (pair, mixes) in pixels
            .chunks_exact_mut(2 * image)
            .zip(self.mixes.chunks_exact(2))
        {
            let (a, b) = pair.split_at_mut(image);
            // A guest is changed too, for nothing: that happens twice a batch at most.
            if mixes[1].is_mixed() {
                unmixed.clear();
                unmixed.extend_from_slice(a);
            }
            image::apply_mix(&mixes[0], a, b, width);
            if mixes[1].is_mixed() {
                image::apply_mix(&mixes[1], b, unmixed, width);
            }
        }
    }
}

/// Decodes the image at `row` of a block, or the first good one after it. Returns its row.
pub(super) fn decode(
    filler: &Filler,
    block: &LoadedBlock,
    row: u32,
    epoch: u64,
    scratch: &mut FillScratch,
    slot: &mut [u8],
) -> Result<u32, Error> {
    let Some(config) = &filler.images else {
        return Err(foreign(block));
    };
    let background = filler.background(block.source);
    let keys = block.rows.keys();
    let count = keys.len();
    for step in 0..count {
        let number = (row as usize + step) % count;
        let row = u32::try_from(number).unwrap_or(u32::MAX);
        if filler.quarantine.has(block.source, block.block, row) {
            continue;
        }
        let image = block.rows.image(number).ok_or_else(|| foreign(block))?;
        let mut random = SampleRandom::new(filler.seed, epoch, keys[number]);
        let decoded = catching(|| {
            let memory = &mut scratch.image;
            image::decode_into(config, background, image, &mut random, memory, slot)
        });
        let reason = match decoded {
            Ok(Ok(())) => return Ok(row),
            Ok(Err(error)) => error.to_string(),
            Err(panic) => {
                scratch.image = image::DecodeScratch::default();
                format!("the decoder panicked: {panic}")
            }
        };
        filler
            .quarantine
            .add_row(block.source, block.block, (row, Some(keys[number])), reason)?;
    }
    Err(filler.quarantine.hopeless(block.source, block.block))
}
