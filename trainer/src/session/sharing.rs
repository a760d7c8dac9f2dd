//! How the work of a step is shared among ranks: the gradient, and with `train.parallel.shard_optimizer` the optimizer's.

use std::ops::Range;

use crate::{
    clip,
    error::Error,
    model::Parameter,
    optimizer::{self, StateBucket, StateLayout},
    parallel::{Borders, Place, Ranks, Wire},
    session::shares,
    settings::Settings,
};

/// Who does what.
#[derive(Debug)]
pub(super) struct Sharing {
    /// What is trained, in bucket order.
    trained: Vec<Parameter>,
    /// Numbers of it.
    len: usize,
    /// Which of it each rank moves, where the optimizer's work is shared out.
    shares: Option<Vec<Range<usize>>>,
    rank: usize,
    wire: Wire,
}

impl Sharing {
    /// The sharing of these parameters.
    pub(super) fn new(trained: Vec<Parameter>, settings: &Settings, place: Place) -> Self {
        let parallel = &settings.config().parallel;
        let shares = (parallel.shard_optimizer && place.world > 1)
            .then(|| optimizer::shares(&trained, place.world));
        Self {
            len: trained.iter().map(|p| p.range.len()).sum(),
            trained,
            shares,
            rank: place.rank,
            wire: Wire::of_gradients(parallel.compress),
        }
    }

    /// All that is trained.
    pub(super) fn trained(&self) -> &[Parameter] {
        &self.trained
    }

    /// What this rank's optimizer moves.
    pub(super) fn own(&self) -> &[Parameter] {
        match &self.shares {
            Some(shares) => &self.trained[shares[self.rank].clone()],
            None => &self.trained,
        }
    }

    /// Whether each rank's optimizer moves a share only.
    pub(super) const fn shares_optimizer(&self) -> bool {
        self.shares.is_some()
    }

    /// Which numbers of each bucket of the optimizer's state this rank holds.
    pub(super) fn state_ranges(&self, settings: &Settings) -> Vec<Range<usize>> {
        let begin = self
            .shares
            .as_ref()
            .map_or(0, |shares| shares[self.rank].start);
        let before = settings.optimizer_state(&self.trained[..begin]);
        let own = settings.optimizer_state(self.own());
        let len = |layout: &StateLayout, i: usize| layout.get(i).map_or(0, |(_, len)| *len);
        let all = settings.optimizer_state(&self.trained);
        let ranges = (0..all.len()).map(|i| len(&before, i)..len(&before, i) + len(&own, i));
        ranges.collect()
    }

    /// This rank's numbers of whole buckets of state.
    pub(super) fn cut(
        &self,
        mut state: Vec<StateBucket>,
        ranges: &[Range<usize>],
    ) -> Vec<StateBucket> {
        if self.shares_optimizer() {
            for (bucket, range) in state.iter_mut().zip(ranges) {
                bucket.values = bucket.values[range.clone()].to_vec();
            }
        }
        state
    }

    /// Makes of this rank's gradient that of the global batch, as far as this rank needs it.
    pub(super) fn reduce(&self, ranks: &Ranks, gradient: &mut [f32]) -> Result<(), Error> {
        self.packed(gradient, |packed| match self.borders() {
            Some(borders) => ranks.reduce_scatter(packed, &borders, self.wire),
            None => ranks.all_reduce(packed, self.wire),
        })
    }

    /// The norm of the global batch's gradient, as [`reduce`](Self::reduce) left it.
    pub(super) fn norm(&self, ranks: &Ranks, gradient: &[f32]) -> Result<f64, Error> {
        let own = self.own().iter();
        let squares: Vec<f64> = own
            .flat_map(|p| clip::squares(&gradient[p.range.clone()]))
            .collect();
        let squares = match self.shares {
            Some(_) => shares::of_all(ranks, &squares)?,
            None => squares,
        };
        Ok(clip::norm(&squares))
    }

    /// Gives every rank the weights that the others have moved.
    pub(super) fn gather(&self, ranks: &Ranks, bucket: &mut [f32]) -> Result<(), Error> {
        let Some(borders) = self.borders() else {
            return Ok(());
        };
        self.packed(bucket, |packed| {
            ranks.all_gather(packed, &borders, Wire::Full)
        })
    }

    /// Whose the trained numbers are, one after the other, where the optimizer's work is shared out.
    fn borders(&self) -> Option<Borders> {
        let shares = self.shares.as_ref()?;
        let mut end = 0;
        Some(Borders::ending_at(shares.iter().map(|share| {
            let share = self.trained[share.clone()].iter();
            end += share.map(|p| p.range.len()).sum::<usize>();
            end
        })))
    }

    /// Does `work` to what of a bucket is trained; what is frozen does not travel.
    fn packed(
        &self,
        bucket: &mut [f32],
        work: impl FnOnce(&mut [f32]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let end = self.trained.last().map_or(0, |p| p.range.end);
        if end == self.len {
            return work(&mut bucket[..end]);
        }
        let ranges = || self.trained.iter().map(|p| p.range.clone());
        let mut packed = Vec::with_capacity(self.len);
        ranges().for_each(|range| packed.extend_from_slice(&bucket[range]));
        work(&mut packed)?;
        let mut rest = packed.as_slice();
        for range in ranges() {
            let (part, behind) = rest.split_at(range.len());
            bucket[range].copy_from_slice(part);
            rest = behind;
        }
        Ok(())
    }
}
