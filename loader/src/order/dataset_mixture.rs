//! Mixing of several sources: by weight, exactly, and so that any position is found without going
//! through those before it.
//!
//! An epoch is divided into cells. After `x` samples of an epoch, where a cell begins, source `k`
//! of weight `w` (all weights together 1) has given `floor(w x)` samples, and those with the
//! largest remainders one more, so that the sum is `x`: no source is ever a whole sample away from
//! its weight at that point. In a cell, a keyed permutation deals the sources to positions, so that
//! a batch is as random as one drawn by weight; with [`MixtureConfig::stratified`] a cell is a
//! batch and each batch has the same make-up.
//!
//! A source that stops ends a segment of the epoch exactly when its last sample is given; the
//! others continue by their weights in the next segment.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use super::permutation::{Permutation, PermutationKey};
use crate::index::index;

/// Positions of a cell that is not a batch.
const CELL: u64 = 4096;

/// The largest cell that a small weight may ask for.
const LARGEST_CELL: u64 = 1 << 22;

/// Weights given as fractions are kept as parts of this.
const WHOLE: f64 = (1u64 << 30) as f64;

/// Positions between two known counts in a cell.
const STEP: u64 = 64;

/// Cells that are kept at a time.
const CELLS_KEPT: usize = 8;

/// Mixing of the samples of several sources.
///
/// An epoch is `samples_per_epoch` samples. Without it, an epoch lasts until every source that stops has ended; when
/// all repeat, it has as many samples as all sources together, so that with weights by size it is each sample once.
/// Sources that repeat continue in the next epoch from their position; each round through a source
/// has another order.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use feedline_loader::{Error, Loader, LoaderConfig, MixtureConfig, Seed, SourceWeight, Split};
/// use feedline_storage::{Store, clock::SystemClock};
///
/// # async fn example(web: Store, books: Store) -> Result<(), Error> {
/// let weight = |share| SourceWeight { weight: Some(share), ..SourceWeight::default() };
/// let mixture = MixtureConfig {
///     sources: vec![weight(0.7), weight(0.3)],
///     stratified: true,
///     samples_per_epoch: Some(1_000_000),
/// };
/// let config = LoaderConfig::new(Split::Train, Seed::new(7), 256);
/// let config = LoaderConfig { mixture: Some(mixture), ..config };
/// let loader = Loader::open_mixture(&[web, books], &config, Arc::new(SystemClock)).await?;
/// assert_eq!(loader.sources().count(), 2);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MixtureConfig {
    /// Order, but for the weights: the sources' weights, in the order in which the sources are given. Either all of
    /// them or none have a weight.
    pub sources: Vec<SourceWeight>,
    /// Order: whether each global batch has the same make-up, to one sample of a source. Each weight must then be at
    /// least two samples of a batch. Default false: batches vary as if each sample were drawn by weight.
    pub stratified: bool,
    /// Order: samples in an epoch, at least 1. Default: see above.
    pub samples_per_epoch: Option<u64>,
}

/// Weight of a source in a mixture.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SourceWeight {
    /// Share of the samples relative to those of other sources: finite and not negative; 0 leaves the source out.
    /// Kept to one part in 2^30 of all weights together. Default: the number of the source's samples. May be another
    /// when a run is resumed; the state then says from where on.
    pub weight: Option<f64>,
    /// Order: what comes after the source's last sample. Default: its first, in a new order.
    pub end: SourceEnd,
}

/// Behaviour of a source when all its samples were given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SourceEnd {
    /// It begins again, in a new order.
    #[default]
    Repeat,
    /// It gives nothing more in this epoch; the others fill its place by their weights.
    Stop,
}

/// The sources of a mixture, by number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mixture {
    seed: u64,
    /// Samples of each source.
    sizes: Vec<u64>,
    /// True for each source that stops.
    stops: Vec<bool>,
    /// Least positions of a cell; none when a cell is a batch.
    batch_cells: Option<u64>,
    samples_per_epoch: Option<u64>,
}

impl MixtureConfig {
    /// The weights as integers, of sources with `sizes` samples.
    ///
    /// # Errors
    /// Description of the error in them.
    pub(crate) fn parts(&self, sizes: &[u64]) -> Result<Vec<u64>, String> {
        if self.sources.len() != sizes.len() {
            return Err(format!(
                "it has `{}` weights for `{}` sources, give each source one",
                self.sources.len(),
                sizes.len()
            ));
        }
        let weights: Vec<f64> = self.sources.iter().filter_map(|s| s.weight).collect();
        if weights.is_empty() {
            return Ok(sizes.to_vec());
        }
        if weights.len() < sizes.len() {
            return Err("some sources have a weight and some have none, give all or none".into());
        }
        parts(&weights)
    }

    /// For each source 1 when it stops, 0 when it repeats.
    pub(crate) fn stops(&self) -> Vec<u64> {
        let stops = self.sources.iter().map(|s| s.end == SourceEnd::Stop);
        stops.map(u64::from).collect()
    }

    /// The mixture of sources with `sizes` samples.
    pub(crate) fn mixture(&self, sizes: &[u64], seed: u64, global_batch: u32) -> Mixture {
        Mixture {
            seed,
            sizes: sizes.to_vec(),
            stops: self
                .sources
                .iter()
                .map(|source| source.end == SourceEnd::Stop)
                .collect(),
            batch_cells: self.stratified.then_some(global_batch.into()),
            samples_per_epoch: self.samples_per_epoch,
        }
    }
}

/// Weights as parts of about 2^30.
///
/// # Errors
/// Description of the error in them.
pub(super) fn parts(weights: &[f64]) -> Result<Vec<u64>, String> {
    if let Some(weight) = weights.iter().find(|w| !w.is_finite() || **w < 0.0) {
        return Err(format!("weight `{weight}` is not a number of at least 0"));
    }
    let sum: f64 = weights.iter().sum();
    if sum <= 0.0 || !sum.is_finite() {
        return Err("all weights together are 0 or infinite, give at least one a weight".into());
    }
    Ok(weights.iter().map(|weight| part(*weight, sum)).collect())
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is between 0 and 2^30"
)]
fn part(weight: f64, sum: f64) -> u64 {
    let part = (weight / sum * WHOLE).round() as u64;
    part.max(u64::from(weight > 0.0))
}

impl Mixture {
    /// The schedule of the rest of epoch `epoch`, by weights `parts`; the sources have given `used`
    /// samples of it.
    ///
    /// # Errors
    /// Description of the error in the weights or the length of the epoch.
    pub(crate) fn schedule(
        &self,
        parts: &[u64],
        used: &[u64],
        epoch: u64,
    ) -> Result<MixtureCells, String> {
        let begun: u64 = used.iter().sum();
        let any_stops = self
            .stops
            .iter()
            .zip(parts)
            .any(|(stops, part)| *stops && *part > 0);
        let wanted = match self.samples_per_epoch {
            Some(0) => return Err("`samples_per_epoch` is `0`, use at least `1`".into()),
            Some(samples) => Some(samples),
            None if any_stops => None,
            None => Some(self.sizes.iter().sum()),
        };
        let mut parts = parts.to_vec();
        let mut segments: Vec<WeightSegment> = Vec::new();
        let mut given = used.to_vec();
        let mut position = begun;
        loop {
            for (source, part) in parts.iter_mut().enumerate() {
                if self.stops[source] && given[source] >= self.sizes[source] {
                    *part = 0;
                }
            }
            let total: u64 = parts.iter().sum();
            let more_to_stop = self
                .stops
                .iter()
                .zip(&parts)
                .any(|(s, part)| *s && *part > 0);
            let over = wanted.map_or(!more_to_stop, |wanted| position >= wanted);
            if over {
                break;
            }
            if total == 0 {
                let wanted = wanted.unwrap_or(0);
                return Err(format!(
                    "`samples_per_epoch` is `{wanted}` and all sources stop after `{position}` samples"
                ));
            }
            let segment = self.segment(&parts, &given, position, wanted)?;
            given.clone_from(&segment.after);
            position = segment.end;
            segments.push(segment);
        }
        Ok(MixtureCells {
            key: [self.seed, epoch],
            begun,
            used: used.to_vec(),
            segments,
            kept: Mutex::default(),
        })
    }

    /// The segment from `start` on, up to where the first source stops.
    fn segment(
        &self,
        parts: &[u64],
        given: &[u64],
        start: u64,
        wanted: Option<u64>,
    ) -> Result<WeightSegment, String> {
        let total: u64 = parts.iter().sum();
        let least = parts
            .iter()
            .copied()
            .filter(|part| *part > 0)
            .min()
            .unwrap_or(1);
        let cell = self.cell((2 * total).div_ceil(least))?;
        let left = |source: usize| self.sizes[source] - given[source];
        let until_stop = |source: usize| {
            let samples = u128::from(left(source)) * u128::from(total) / u128::from(parts[source]);
            u64::try_from(samples).unwrap_or(u64::MAX)
        };
        let first = (0..parts.len())
            .filter(|source| self.stops[*source] && parts[*source] > 0)
            .min_by_key(|source| until_stop(*source));
        let length = first.map_or(u64::MAX, until_stop);
        let rest = wanted.map_or(u64::MAX, |wanted| wanted - start);
        let shares = Shares { parts, total };
        let (length, counts) = match first {
            Some(source) if length <= rest => {
                (length, shares.counts_with(length, source, left(source)))
            }
            _ => (rest, shares.counts(rest)),
        };
        Ok(WeightSegment {
            start,
            end: start.saturating_add(length),
            before: given.to_vec(),
            after: given.iter().zip(counts).map(|(g, c)| g + c).collect(),
            parts: parts.to_vec(),
            total,
            cell,
        })
    }

    /// Positions of a cell in which the smallest weight has two samples when there are `least`.
    fn cell(&self, least: u64) -> Result<u64, String> {
        match self.batch_cells {
            Some(batch) if least > batch => Err(format!(
                "the smallest weight is less than two samples of a batch of `{batch}`, which stratified batches need; \
                 use batches of `{least}`, a larger weight, or no `stratified`"
            )),
            Some(batch) => Ok(batch),
            None if least > LARGEST_CELL => Err(format!(
                "the smallest weight is less than two samples in `{LARGEST_CELL}`; use a larger weight, or 0"
            )),
            None => Ok(least.max(CELL)),
        }
    }
}

/// Weights as integers and their sum.
#[derive(Clone, Copy)]
struct Shares<'a> {
    parts: &'a [u64],
    total: u64,
}

impl Shares<'_> {
    /// The samples of each source among the first `samples`: largest remainders, ties to the first source.
    fn counts(self, samples: u64) -> Vec<u64> {
        self.rounded(samples, samples, None)
    }

    /// The same, when `source` has `fixed`.
    fn counts_with(self, samples: u64, source: usize, fixed: u64) -> Vec<u64> {
        let mut counts = self.rounded(samples, samples - fixed, Some(source));
        counts[source] = fixed;
        counts
    }

    /// The counts of all sources but `without`, rounded so that they are `sum` together.
    fn rounded(self, samples: u64, sum: u64, without: Option<usize>) -> Vec<u64> {
        let mut counts = vec![0; self.parts.len()];
        let mut remainders = Vec::with_capacity(counts.len());
        let mut missing = sum;
        for (source, part) in self.parts.iter().enumerate() {
            if *part == 0 || Some(source) == without {
                continue;
            }
            let exact = u128::from(samples) * u128::from(*part);
            let total = u128::from(self.total);
            counts[source] = u64::try_from(exact / total).unwrap_or(u64::MAX);
            missing -= counts[source];
            remainders.push((exact % total, source));
        }
        remainders.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
        // Few are missing: each remainder is below one sample.
        for (_, source) in remainders.iter().take(index(missing)) {
            counts[*source] += 1;
        }
        counts
    }
}

/// A part of an epoch with the same weights.
#[derive(Debug)]
struct WeightSegment {
    start: u64,
    end: u64,
    /// Samples of each source in the epoch before it, and after it.
    before: Vec<u64>,
    after: Vec<u64>,
    parts: Vec<u64>,
    total: u64,
    /// Positions of every cell but the last, which has the rest too.
    cell: u64,
}

impl WeightSegment {
    fn cells(&self) -> u64 {
        ((self.end - self.start) / self.cell).max(1)
    }

    /// The cell of a position in the segment.
    fn cell_of(&self, position: u64) -> u64 {
        ((position - self.start) / self.cell).min(self.cells() - 1)
    }

    fn cell_start(&self, cell: u64) -> u64 {
        if cell == self.cells() {
            self.end
        } else {
            self.start + cell * self.cell
        }
    }

    /// Samples of each source in the epoch before a cell.
    fn before_cell(&self, cell: u64) -> Vec<u64> {
        if cell == self.cells() {
            return self.after.clone();
        }
        let shares = Shares {
            parts: &self.parts,
            total: self.total,
        };
        let counts = shares.counts(cell * self.cell);
        self.before.iter().zip(counts).map(|(b, c)| b + c).collect()
    }
}

/// Source of each position of an epoch, or of its rest.
#[derive(Debug)]
pub(crate) struct MixtureCells {
    /// Seed and epoch.
    key: [u64; 2],
    begun: u64,
    used: Vec<u64>,
    segments: Vec<WeightSegment>,
    kept: Mutex<VecDeque<(usize, u64, Arc<MixtureCell>)>>,
}

/// One cell.
#[derive(Debug)]
struct MixtureCell {
    /// Samples of each source in the epoch before it.
    before: Vec<u64>,
    /// Source of each position.
    sources: Vec<u16>,
    /// Samples of each source in the cell before every 64th position, one after another.
    steps: Vec<u32>,
}

impl MixtureCells {
    /// Samples of the epoch.
    pub(crate) fn samples(&self) -> u64 {
        self.segments.last().map_or(self.begun, |last| last.end)
    }

    /// Samples of each source in the whole epoch.
    pub(crate) fn totals(&self) -> &[u64] {
        self.segments.last().map_or(&self.used, |last| &last.after)
    }

    /// Samples of each source in the epoch before `position`, which is not before where the weights began to hold.
    pub(crate) fn before(&self, position: u64) -> Vec<u64> {
        let number = self.segments.partition_point(|s| s.end <= position);
        let Some(segment) = self.segments.get(number) else {
            return self.totals().to_vec();
        };
        let cell = segment.cell_of(position.max(segment.start));
        let start = segment.cell_start(cell);
        if position <= start {
            return segment.before_cell(cell);
        }
        self.cell(number, cell).before(position - start)
    }

    fn cell(&self, segment: usize, cell: u64) -> Arc<MixtureCell> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = kept.iter().find(|(s, c, _)| (*s, *c) == (segment, cell)) {
            return Arc::clone(&found.2);
        }
        if kept.len() == CELLS_KEPT {
            kept.pop_front();
        }
        let made = Arc::new(self.make(segment, cell));
        kept.push_back((segment, cell, Arc::clone(&made)));
        made
    }

    fn make(&self, number: usize, cell: u64) -> MixtureCell {
        let segment = &self.segments[number];
        let before = segment.before_cell(cell);
        let after = segment.before_cell(cell + 1);
        let dealt: Vec<u16> = (0u16..)
            .zip(before.iter().zip(&after))
            .flat_map(|(source, (b, a))| std::iter::repeat_n(source, index(a - b)))
            .collect();
        let [seed, epoch] = self.key;
        let key = PermutationKey::derive(seed, "cell", &[epoch, segment.start, cell]);
        let mut made = MixtureCell {
            before,
            sources: Vec::with_capacity(dealt.len()),
            steps: Vec::new(),
        };
        let mut counts = vec![0u32; after.len()];
        Permutation::new(dealt.len() as u64, key).for_each(0..dealt.len() as u64, |at| {
            if (made.sources.len() as u64).is_multiple_of(STEP) {
                made.steps.extend_from_slice(&counts);
            }
            let source = dealt[index(at)];
            counts[usize::from(source)] += 1;
            made.sources.push(source);
        });
        made
    }

    /// A position not after that of the sample of `source` that comes after `given` others of it in this epoch, and
    /// one not before it.
    pub(crate) fn positions_around(&self, source: usize, given: u64) -> (u64, u64) {
        let number = self.segments.partition_point(|s| s.after[source] <= given);
        let Some(segment) = self.segments.get(number) else {
            return (self.samples(), self.samples());
        };
        let here = given.saturating_sub(segment.before[source]);
        let (part, total) = (u128::from(segment.parts[source]), u128::from(segment.total));
        // Where cells begin, counts are less than one sample off; in a cell, of up to two lengths, they may be anywhere.
        let at = |samples: u64| {
            let positions = u128::from(samples) * total / part.max(1);
            segment
                .start
                .saturating_add(u64::try_from(positions).unwrap_or(u64::MAX))
        };
        let low = at(here.saturating_sub(1)).saturating_sub(2 * segment.cell);
        let high = at(here + 2).saturating_add(2 * segment.cell);
        (low.max(segment.start), high.min(segment.end - 1))
    }
}

impl MixtureCell {
    fn before(&self, position: u64) -> Vec<u64> {
        let step = position / STEP;
        let known = &self.steps[index(step) * self.before.len()..][..self.before.len()];
        let mut counts: Vec<u64> = self
            .before
            .iter()
            .zip(known)
            .map(|(before, here)| before + u64::from(*here))
            .collect();
        for source in &self.sources[index(step * STEP)..index(position)] {
            counts[usize::from(*source)] += 1;
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn config(weights: &[f64], stop: &[bool]) -> MixtureConfig {
        MixtureConfig {
            sources: weights
                .iter()
                .zip(stop)
                .map(|(weight, stop)| SourceWeight {
                    weight: Some(*weight),
                    end: if *stop {
                        SourceEnd::Stop
                    } else {
                        SourceEnd::Repeat
                    },
                })
                .collect(),
            ..MixtureConfig::default()
        }
    }

    fn cells(config: &MixtureConfig, sizes: &[u64], batch: u32) -> Result<MixtureCells, String> {
        let parts = config.parts(sizes)?;
        let used = vec![0; sizes.len()];
        config.mixture(sizes, 3, batch).schedule(&parts, &used, 0)
    }

    /// Counts never fall, sum to the position, and stay near the weights where a cell begins.
    fn check(cells: &MixtureCells, every: u64) {
        let mut earlier = cells.before(cells.begun);
        let mut position = cells.begun;
        while position < cells.samples() {
            let start = position;
            position = (position + every).min(cells.samples());
            let counts = cells.before(position);
            assert_eq!(counts.iter().sum::<u64>(), position);
            for (source, (before, count)) in earlier.iter().zip(&counts).enumerate() {
                assert!(count >= before);
                for given in [*before, count.saturating_sub(1)] {
                    if given < *count && given >= *before {
                        let (low, high) = cells.positions_around(source, given);
                        assert!(low < position && high >= start, "{source} {given}");
                        assert!(cells.before(low)[source] <= given);
                        assert!(cells.before(high + 1)[source] > given);
                    }
                }
            }
            earlier = counts;
        }
        assert_eq!(earlier, cells.totals());
        for segment in &cells.segments {
            for cell in 0..segment.cells() {
                let position = segment.cell_start(cell);
                for (source, count) in cells.before(position).into_iter().enumerate() {
                    let exact = (position - segment.start) as f64 * segment.parts[source] as f64
                        / segment.total as f64;
                    let given = (count - segment.before[source]) as f64;
                    assert!((given - exact).abs() < 1.0, "{given} of {exact}");
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]
        #[test]
        fn counts_follow_the_weights_and_no_sample_of_a_source_is_left_out(
            sizes in prop::collection::vec(1u64..6000, 1..6),
            weights in prop::collection::vec(0.01f64..1.0, 6), stop in prop::collection::vec(any::<bool>(), 6),
            every in 1u64..700,
        ) {
            let config = config(&weights[..sizes.len()], &stop[..sizes.len()]);
            let cells = cells(&config, &sizes, 256).unwrap();
            check(&cells, every);
            for (source, size) in sizes.iter().enumerate() {
                if stop[source] {
                    prop_assert_eq!(cells.totals()[source], *size, "a source that stops is given whole");
                }
            }
        }
    }

    #[test]
    fn weights_by_size_give_each_sample_once() {
        let sizes = [10_000_000_000, 3, 123_456];
        let config = MixtureConfig {
            sources: vec![SourceWeight::default(); 3],
            ..MixtureConfig::default()
        };
        // The source of three samples is too small for any cell.
        assert!(cells(&config, &sizes, 256).is_err());
        let sizes = [10_000, 30, 123_456];
        let cells = cells(&config, &sizes, 256).unwrap();
        assert_eq!(cells.totals(), sizes);
        check(&cells, 977);
    }

    #[test]
    fn stratified_batches_have_the_same_make_up() {
        let config = MixtureConfig {
            stratified: true,
            samples_per_epoch: Some(256 * 50),
            ..config(&[0.5, 0.3, 0.2], &[false; 3])
        };
        let cells = cells(&config, &[1000, 1000, 1000], 256).unwrap();
        let mut earlier = vec![0; 3];
        for batch in 1..=50 {
            let counts = cells.before(batch * 256);
            let of_batch: Vec<u64> = counts.iter().zip(&earlier).map(|(a, b)| a - b).collect();
            assert!((127..=129).contains(&of_batch[0]), "{of_batch:?}");
            assert!((75..=78).contains(&of_batch[1]));
            earlier = counts;
        }
        check(&cells, 256);
    }

    #[test]
    fn batches_that_are_not_stratified_vary_as_draws_do() {
        let config = MixtureConfig {
            samples_per_epoch: Some(256 * 2000),
            ..config(&[0.5, 0.5], &[false; 2])
        };
        let cells = cells(&config, &[10, 10], 256).unwrap();
        let mut earlier = 0;
        let mut squares = 0.0;
        for batch in 1..=2000 {
            let now = cells.before(batch * 256)[0];
            squares += ((now - earlier) as f64 - 128.0).powi(2);
            earlier = now;
        }
        // Without replacement from cells of 4096: 256 / 4 * (1 - 256 / 4096) = 60.
        let variance = squares / 2000.0;
        assert!((54.0..66.0).contains(&variance), "{variance}");
        assert_eq!(cells.kept.lock().unwrap().len(), CELLS_KEPT);
    }

    #[test]
    fn what_cannot_be_mixed_is_refused() {
        let refuse = |config: MixtureConfig, sizes: &[u64], message: &str| {
            assert_eq!(cells(&config, sizes, 64).unwrap_err(), message);
        };
        refuse(
            config(&[1.0], &[false]),
            &[1, 2],
            "it has `1` weights for `2` sources, give each source one",
        );
        refuse(
            config(&[1.0, -0.5], &[false; 2]),
            &[1, 2],
            "weight `-0.5` is not a number of at least 0",
        );
        refuse(
            config(&[0.0, 0.0], &[false; 2]),
            &[1, 2],
            "all weights together are 0 or infinite, give at least one a weight",
        );
        refuse(
            MixtureConfig {
                stratified: true,
                ..config(&[1.0, 0.01], &[false; 2])
            },
            &[10, 20],
            "the smallest weight is less than two samples of a batch of `64`, which stratified batches need; use \
             batches of `203`, a larger weight, or no `stratified`",
        );
        for tiny in [1e-8, 1e-15] {
            refuse(
                config(&[1.0, tiny], &[false; 2]),
                &[10, 20],
                "the smallest weight is less than two samples in `4194304`; use a larger weight, or 0",
            );
        }
        refuse(
            MixtureConfig {
                samples_per_epoch: Some(40),
                ..config(&[1.0, 1.0], &[true; 2])
            },
            &[10, 20],
            "`samples_per_epoch` is `40` and all sources stop after `30` samples",
        );
        let mut some = config(&[1.0, 1.0], &[false; 2]);
        some.sources[0].weight = None;
        refuse(
            some,
            &[1, 2],
            "some sources have a weight and some have none, give all or none",
        );
    }

    #[test]
    fn a_source_of_weight_0_gives_nothing_and_holds_nothing_up() {
        let cells = cells(
            &config(&[0.0, 1.0, 3.0], &[true, true, false]),
            &[50, 100, 10],
            64,
        )
        .unwrap();
        assert_eq!(cells.totals(), [0, 100, 300]);
        check(&cells, 13);
    }
}
