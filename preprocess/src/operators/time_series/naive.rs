//! Naive forecasts without a model: the last value, and that of a season before.

use std::collections::VecDeque;

use feedline_schemas::manifest::{NaiveForecast, NaiveMethod, NaiveMetrics, Split};

use super::sequence::Sequence;

/// Rows back from the row of the target, in its entity, that naive forecasts take its value from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NaiveLags {
    /// The newest row that is known when the forecast is made.
    pub(crate) last: u32,
    /// The newest row of the same place in the season that is known then.
    pub(crate) season: Option<u32>,
}

impl NaiveLags {
    /// Of windows, or of rows where there are none.
    pub(crate) fn new(sequence: Option<Sequence>) -> Self {
        // The target of a row's own is not known with the row.
        let ahead = sequence.map_or(1, |sequence| sequence.horizon.max(1));
        let season = sequence.and_then(|sequence| sequence.season);
        Self {
            last: ahead,
            season: season.map(|rows| rows * ahead.div_ceil(rows)),
        }
    }

    fn longest(self) -> u32 {
        self.season.unwrap_or(0).max(self.last)
    }
}

/// The newest targets of an entity, whose rows come in the order of time.
#[derive(Debug)]
pub(crate) struct KnownTargets {
    lags: NaiveLags,
    entity: Vec<u8>,
    /// Place of each row, and its target.
    values: VecDeque<(i64, f64)>,
}

impl KnownTargets {
    pub(crate) fn new(lags: NaiveLags) -> Self {
        Self {
            lags,
            entity: Vec::new(),
            values: VecDeque::new(),
        }
    }

    /// Takes the next row.
    pub(crate) fn push(&mut self, entity: &[u8], place: i64, target: Option<f64>) {
        if self.entity != entity {
            self.entity.clear();
            self.entity.extend_from_slice(entity);
            self.values.clear();
        }
        let first = place.saturating_sub(i64::from(self.lags.longest()));
        while self.values.front().is_some_and(|(at, _)| *at < first) {
            self.values.pop_front();
        }
        self.values.extend(target.map(|target| (place, target)));
    }

    /// The naive forecasts of the target at `place` of the entity that came last: the last value, and that of the season.
    pub(crate) fn forecasts(&self, entity: &[u8], place: i64) -> [Option<f64>; 2] {
        let at = |lag: u32| self.at(entity, place.checked_sub(i64::from(lag))?);
        [at(self.lags.last), self.lags.season.and_then(at)]
    }

    fn at(&self, entity: &[u8], place: i64) -> Option<f64> {
        if self.entity != entity {
            return None;
        }
        let found = self.values.binary_search_by_key(&place, |(at, _)| *at);
        found.ok().map(|at| self.values[at].1)
    }
}

/// Errors of naive forecasts in each split.
#[derive(Debug)]
pub(crate) struct NaiveErrors {
    lags: NaiveLags,
    /// Of the last value, and of the season.
    sums: [[Sums; 3]; 2],
}

/// Sums over windows.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    windows: u64,
    squares: f64,
    absolutes: f64,
    /// Mean of the targets, and their squared differences from it (Welford 1962).
    mean: f64,
    spread: f64,
}

impl NaiveErrors {
    pub(crate) fn new(sequence: Sequence) -> Self {
        Self {
            lags: NaiveLags::new(Some(sequence)),
            sums: [[Sums::default(); 3]; 2],
        }
    }

    /// Adds a window of `split` with this target.
    pub(crate) fn add(&mut self, split: Split, target: Option<f64>, naive: [Option<f64>; 2]) {
        let place = Split::ALL.into_iter().position(|one| one == split);
        for (sums, naive) in self.sums.iter_mut().zip(naive) {
            if let Some(((place, target), naive)) = place.zip(target).zip(naive) {
                sums[place].add(target, naive);
            }
        }
    }

    /// The forecasts that any split has.
    pub(crate) fn into_forecasts(self) -> Vec<NaiveForecast> {
        let lags = [
            (NaiveMethod::LastValue, Some(self.lags.last)),
            (NaiveMethod::Seasonal, self.lags.season),
        ];
        let found = lags
            .into_iter()
            .zip(self.sums)
            .filter_map(|((method, lag), sums)| {
                let splits = Split::ALL.into_iter().zip(sums);
                let splits = splits.filter_map(|(split, sums)| Some((split, sums.metrics()?)));
                Some(NaiveForecast {
                    method,
                    lag: lag?,
                    splits: splits.collect(),
                })
            });
        found.filter(|found| !found.splits.is_empty()).collect()
    }
}

impl Sums {
    #[expect(clippy::cast_precision_loss, reason = "counts stay below 2^53")]
    fn add(&mut self, target: f64, naive: f64) {
        self.windows += 1;
        let error = target - naive;
        self.squares += error * error;
        self.absolutes += error.abs();
        let from_mean = target - self.mean;
        self.mean += from_mean / self.windows as f64;
        self.spread += from_mean * (target - self.mean);
    }

    /// None of no window, and where numbers overflow.
    #[expect(clippy::cast_precision_loss, reason = "counts stay below 2^53")]
    fn metrics(self) -> Option<NaiveMetrics> {
        let windows = self.windows as f64;
        let r2 = 1.0 - self.squares / self.spread;
        let metrics = NaiveMetrics {
            windows: self.windows,
            rmse: (self.squares / windows).sqrt(),
            mae: self.absolutes / windows,
            r2: Some(r2).filter(|r2| self.spread > 0.0 && r2.is_finite()),
        };
        (metrics.rmse.is_finite() && metrics.mae.is_finite()).then_some(metrics)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_value_and_that_of_the_season_are_known_when_the_forecast_is_made() {
        let lags = |horizon, season| {
            let sequence = Sequence::testing(4, horizon, season);
            let lags = NaiveLags::new(Some(sequence));
            (lags.last, lags.season)
        };
        assert_eq!(lags(1, Some(24)), (1, Some(24)));
        assert_eq!(lags(24, Some(24)), (24, Some(24)));
        // The value of one season before is not known yet.
        assert_eq!(lags(25, Some(24)), (25, Some(48)));
        assert_eq!(lags(0, Some(1)), (1, Some(1)));
        assert_eq!(lags(3, None), (3, None));
        assert_eq!(NaiveLags::new(None).last, 1);
    }

    #[test]
    fn values_are_those_of_the_place_and_entity_alone() {
        let mut known = KnownTargets::new(NaiveLags {
            last: 2,
            season: Some(4),
        });
        for place in 0..10_i32 {
            // Place 7 has no target, and place 5 no row.
            if place != 5 {
                let target = (place != 7).then(|| f64::from(place));
                known.push(b"a", i64::from(place), target);
            }
        }
        let found = |place| known.forecasts(b"a", place);
        assert_eq!(found(10), [Some(8.0), Some(6.0)]);
        assert_eq!(found(11), [Some(9.0), None]);
        assert_eq!(found(9), [None, None]);
        assert_eq!(known.forecasts(b"b", 10), [None, None]);
        assert!(known.values.len() <= 5, "{known:?}");
        known.push(b"b", 0, Some(1.0));
        assert_eq!(known.forecasts(b"b", 2), [Some(1.0), None]);
        assert_eq!(known.forecasts(b"a", 10), [None, None]);
    }
}
