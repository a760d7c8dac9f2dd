//! One pass over a split: shuffled, or in shard order.

use std::{ops::Range, sync::Arc};

use crate::{
    batches::{Batches, Share},
    geometry::{Geometry, Place},
    order::{EpochOrder, Walker},
    plan::{EpochPlan, Need, sequential_plan},
};

/// What a pass goes through. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) enum Pass {
    /// An epoch in the order that its seed gives.
    Epoch(Arc<EpochOrder>),
    /// Every sample in shard order.
    Sequential {
        /// The split.
        geometry: Arc<Geometry>,
        /// How it is cut.
        batches: Batches,
    },
}

impl Pass {
    /// The pass's batches.
    pub(crate) fn batches(&self) -> Batches {
        match self {
            Self::Epoch(order) => order.batches(),
            Self::Sequential { batches, .. } => *batches,
        }
    }

    /// The blocks that `share` needs from batch `start` on, in the order of their first need.
    pub(crate) fn plan(&self, start: u64, share: Share) -> Box<dyn Iterator<Item = Need> + Send> {
        match self {
            Self::Epoch(order) => Box::new(EpochPlan::new(Arc::clone(order), start, share)),
            Self::Sequential { geometry, batches } => Box::new(sequential_plan(
                Arc::clone(geometry),
                *batches,
                start,
                share,
            )),
        }
    }

    /// Starts looking up places.
    pub(crate) fn places(&self) -> Places {
        match self {
            Self::Epoch(order) => Places::Epoch(Walker::new(Arc::clone(order))),
            Self::Sequential { geometry, batches } => Places::Sequential {
                geometry: Arc::clone(geometry),
                batches: *batches,
            },
        }
    }
}

/// Looks up where the samples of a batch lie.
#[derive(Debug)]
pub(crate) enum Places {
    /// See [`Pass::Epoch`].
    Epoch(Walker),
    /// See [`Pass::Sequential`].
    Sequential {
        /// The split.
        geometry: Arc<Geometry>,
        /// How it is cut.
        batches: Batches,
    },
}

impl Places {
    /// Appends to `places` where the samples in `slots` of batch `batch` lie, in slot order.
    pub(crate) fn append(&mut self, batch: u64, slots: Range<u64>, places: &mut Vec<Place>) {
        match self {
            Self::Epoch(walker) => walker.places(batch, slots, places),
            Self::Sequential { geometry, batches } => {
                let first = batch * batches.full();
                shard_order(geometry, first + slots.start..first + slots.end, places);
            }
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the rows of a block fit in 32 bits"
)]
fn shard_order(geometry: &Geometry, mut samples: Range<u64>, places: &mut Vec<Place>) {
    while !samples.is_empty() {
        let block = geometry.block_of(samples.start);
        let before = geometry.first_sample(block);
        let end = samples.end.min(before + u64::from(geometry.rows(block)));
        let rows = (samples.start - before) as u32..(end - before) as u32;
        places.extend(rows.map(|row| Place { block, row }));
        samples.start = end;
    }
}

#[cfg(test)]
mod tests {
    use feedline_schemas::ids::Rank;

    use super::*;
    use crate::geometry::tests::geometry_of;

    #[test]
    fn a_sequential_pass_is_in_shard_order_on_any_number_of_ranks() {
        let geometry = Arc::new(geometry_of(&[&[5, 1], &[], &[7, 3]]));
        let batches = Batches::new(geometry.samples(), 6);
        let pass = Pass::Sequential {
            geometry: Arc::clone(&geometry),
            batches,
        };
        for world in 1..5 {
            let mut places = Vec::new();
            for batch in 0..pass.batches().count() {
                for rank in 0..world {
                    let slots = Share::new(Rank::new(rank), world).slots(batches.rows(batch));
                    pass.places().append(batch, slots, &mut places);
                }
            }
            assert!(
                places
                    .iter()
                    .map(|p| geometry.first_sample(p.block) + u64::from(p.row))
                    .eq(0..16)
            );
        }
    }
}
