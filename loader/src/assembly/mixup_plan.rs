//! Images of a batch that a rank holds when images are mixed, and their partners.
//!
//! Slots `2i` and `2i + 1` of the global batch are partners. A rank whose share begins or ends
//! inside a pair reads and decodes the other slot's image as well, at most two a batch, so that
//! every world size mixes alike; none where the share of each rank is even. Held images are stored
//! in a slab in slot order, in complete pairs, with the rank's own among them.

use std::ops::Range;

use crate::{
    image::{ImageConfig, Mix, MixConfig, mix_batch},
    index::index,
    order::RankShare,
};

/// Mixing of one batch.
#[derive(Clone, Debug)]
pub(crate) struct MixupPlan {
    config: MixConfig,
    /// Seed, epoch and number of the batch.
    batch: (u64, u64, u64),
    batch_slots: usize,
    /// Height and width.
    sides: [u32; 2],
    /// Slots whose images are held.
    held: Range<usize>,
    own: Range<usize>,
}

impl MixupPlan {
    /// Mixing of a batch of `batch_slots` slots by `share`; none when `images` has no `mix`.
    pub(crate) fn new(
        images: &ImageConfig,
        batch: (u64, u64, u64),
        batch_slots: u64,
        share: RankShare,
    ) -> Option<Self> {
        let range = |slots: Range<u64>| index(slots.start)..index(slots.end);
        Some(Self {
            config: images.mix?,
            batch,
            batch_slots: index(batch_slots),
            sides: [images.height, images.width],
            held: range(share.reads(batch_slots)),
            own: range(share.slots(batch_slots)),
        })
    }

    /// Places of the rank's own images among those held.
    pub(crate) fn own(&self) -> Range<usize> {
        self.own.start - self.held.start..self.own.end - self.held.start
    }

    /// Draws the mixes of the images at `places`; partners are places too.
    pub(crate) fn draw(&self, places: Range<usize>) -> Vec<Mix> {
        let slots = self.held.start + places.start..self.held.start + places.end;
        let mut mixes = mix_batch(
            &self.config,
            self.batch,
            slots,
            self.batch_slots,
            self.sides,
        );
        for mix in &mut mixes {
            mix.partner -= self.held.start;
        }
        mixes
    }
}
