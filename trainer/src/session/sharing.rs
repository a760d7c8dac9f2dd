//! Division of the work of a step among ranks: the gradient, and with
//! `train.parallel.shard_optimizer` the optimizer's.

use std::ops::Range;

use crate::{
    config::settings::TrainSettings,
    error::Error,
    model::{interface::Parameter, layers::Layout},
    optim::{
        clip,
        optimizer::{self, StateBucket, StateLayout},
    },
    parallel::{RankBounds, RankPlace, Ranks, Wire},
    session::{device_state::RankShares, section_exchange::DeviceSections, shares},
};

/// Division of the work.
#[derive(Debug)]
pub(super) struct Sharing {
    /// Trained parameters, in bucket order.
    trained: Vec<Parameter>,
    /// Range of them that each rank moves, where the optimizer's work is shared out.
    shares: Option<Vec<Range<usize>>>,
    rank: usize,
    wire: Wire,
}

impl Sharing {
    /// The sharing of these parameters.
    pub(super) fn new(trained: Vec<Parameter>, settings: &TrainSettings, place: RankPlace) -> Self {
        let parallel = &settings.config().parallel;
        let shares = (parallel.shard_optimizer && place.world > 1)
            .then(|| optimizer::shares(&trained, place.world));
        Self {
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

    /// Parameters that this rank's optimizer moves.
    pub(super) fn own(&self) -> &[Parameter] {
        match &self.shares {
            Some(shares) => &self.trained[shares[self.rank].clone()],
            None => &self.trained,
        }
    }

    /// The shares of ranks that exchange them on their devices; `None` where each moves everything.
    pub(super) fn rank_shares(&self) -> Option<RankShares> {
        let shares = self.shares.as_ref()?;
        Some(RankShares::new(&self.trained, shares, self.rank))
    }

    /// Sections of the gradient that ranks exchange on their devices.
    pub(super) fn device_sections(&self, layout: &Layout, bytes_max: usize) -> DeviceSections {
        DeviceSections::new(layout, &self.trained, self.shares.as_deref(), bytes_max)
    }

    /// Encoding of gradients between ranks.
    pub(super) const fn wire(&self) -> Wire {
        self.wire
    }

    /// Returns true if each rank's optimizer moves a share only.
    pub(super) const fn shares_optimizer(&self) -> bool {
        self.shares.is_some()
    }

    /// Ranges of each bucket of the optimizer's state that this rank holds.
    pub(super) fn state_ranges(&self, settings: &TrainSettings) -> Vec<Range<usize>> {
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

    /// Makes of a section of this rank's gradient, which begins at `first` of the bucket, that of the global batch, as far as
    /// this rank needs it.
    pub(super) fn reduce(
        &self,
        ranks: &Ranks,
        first: usize,
        section: &mut [f32],
    ) -> Result<(), Error> {
        let within = first..first + section.len();
        self.packed(within.clone(), section, |packed| {
            match self.borders(within) {
                Some(borders) => ranks.reduce_scatter(packed, &borders, self.wire),
                None => ranks.all_reduce(packed, self.wire),
            }
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
        let all = 0..bucket.len();
        let Some(borders) = self.borders(all.clone()) else {
            return Ok(());
        };
        self.packed(all, bucket, |packed| {
            ranks.all_gather(packed, &borders, Wire::Full)
        })
    }

    /// Parameters of a run of them inside a range of the bucket, which splits none.
    fn within(&self, run: Range<usize>, range: &Range<usize>) -> &[Parameter] {
        let run = &self.trained[run];
        let begin = run.partition_point(|p| p.range.end <= range.start);
        let end = run.partition_point(|p| p.range.start < range.end);
        &run[begin.min(end)..end]
    }

    /// Whose the trained numbers within a range of the bucket are, where the optimizer's work is shared out.
    fn borders(&self, range: Range<usize>) -> Option<RankBounds> {
        let shares = self.shares.as_ref()?;
        let mut end = 0;
        Some(RankBounds::ending_at(shares.iter().map(|share| {
            let share = self.within(share.clone(), &range).iter();
            end += share.map(|p| p.range.len()).sum::<usize>();
            end
        })))
    }

    /// Does `work` to what of a range of the bucket is trained; what is frozen does not travel.
    fn packed(
        &self,
        range: Range<usize>,
        section: &mut [f32],
        work: impl FnOnce(&mut [f32]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let trained = self.within(0..self.trained.len(), &range).iter();
        let ranges = trained.map(|p| p.range.start - range.start..p.range.end - range.start);
        let len = ranges.clone().map(|range| range.len()).sum();
        // All that is trained comes first where nothing between is frozen.
        if ranges
            .clone()
            .next_back()
            .is_none_or(|last| last.end == len)
        {
            return work(&mut section[..len]);
        }
        let mut packed = Vec::with_capacity(len);
        ranges
            .clone()
            .for_each(|range| packed.extend_from_slice(&section[range]));
        work(&mut packed)?;
        let mut rest = packed.as_slice();
        for range in ranges {
            let (part, behind) = rest.split_at(range.len());
            section[range].copy_from_slice(part);
            rest = behind;
        }
        Ok(())
    }
}
