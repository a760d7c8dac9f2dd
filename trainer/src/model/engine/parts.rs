//! Parts of a batch, computed on several threads.
//!
//! The CPU backend runs element-wise operations on one thread, so a batch is split. Each thread is
//! a rayon pool of its own: work that the backend gives to rayon inside a part runs on the part's
//! thread, where it neither competes with other parts nor, waiting for its own work, starts one of
//! them while the backend holds a lock.

use std::{
    ops::Range,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use rayon::{ThreadPool, ThreadPoolBuilder};

use super::sections::InOrder;
use crate::{
    data::samples::{ModelInputs, Samples},
    float_casts::{exact_len, single},
    model::{
        interface::Shape,
        layers::{Ghosts, Layout},
        models::{GHOST_IMAGES, GHOST_ROWS},
    },
    parallel::RankPlace,
};

/// Fewest rows of numbers in a part.
pub(super) const PART_ROWS: usize = 128;

/// Fewest images in a part.
const PART_IMAGES: usize = 32;

/// Fewest token ids in a part.
const PART_TOKENS: usize = 1024;

/// Most parts of a batch.
const PARTS_MAX: usize = 32;

/// Parameters above which a batch of rows of numbers is one part. The products of so large a model are worth several
/// threads each, and dwarf the element-wise work.
const PARTED_PARAMETERS_MAX: usize = 1 << 20;

/// Threads for parts of batches.
#[derive(Debug)]
pub(super) struct PartWorkers {
    /// Pools of one thread.
    pools: Vec<ThreadPool>,
}

impl PartWorkers {
    /// This many threads; fewer where the machine has no more, and with none the caller's.
    pub(super) fn new(threads: usize) -> Self {
        let name = |_| "trainer-part".to_owned();
        let pool = |_| {
            ThreadPoolBuilder::new()
                .num_threads(1)
                .thread_name(name)
                .build()
                .ok()
        };
        Self {
            pools: (0..threads).filter_map(pool).collect(),
        }
    }

    /// Applies `work` to each part and its number, and `take` to the results in part order; `None`
    /// is a part without rows. A result waits for those before it, so that there are hardly more of
    /// them than threads.
    pub(super) fn for_each_part<'s, T: Send>(
        &self,
        samples: Samples<'s>,
        parts: &[Range<usize>],
        work: impl Fn(usize, Samples<'s>) -> T + Sync,
        mut take: impl FnMut(Option<T>) + Send,
    ) {
        let work = |number: usize, part: &Range<usize>| {
            let some = !part.is_empty();
            some.then(|| work(number, samples.slice(part.clone())))
        };
        if let [part] = parts {
            return take(work(0, part));
        }
        let next = AtomicUsize::new(0);
        let results = Mutex::new((InOrder::default(), take));
        let take_parts = || {
            while let number = next.fetch_add(1, Ordering::Relaxed)
                && let Some(part) = parts.get(number)
            {
                let result = work(number, part);
                let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
                let (order, take) = &mut *results;
                order.put(number, result, |_, result| take(result));
            }
        };
        if self.pools.is_empty() {
            take_parts();
        }
        on_each(&self.pools, &take_parts);
    }
}

/// Division of batches into parts.
///
/// A global batch has a number of parts that is a power of two and follows from its shape, with
/// boundaries at `floor(part * rows / parts)`; the short batch at the end of an epoch has as many
/// as the others. Where the ranks divide the parts, each rank has so many complete ones, since its
/// rows begin at `floor(rank * rows / ranks)`. Where they do not, each splits its own rows as if
/// they were a batch.
///
/// A model that normalises over rows does so over ghost batches, whose number is a power of two that follows from its
/// configuration and the rows of a full batch. A part is one of them or several, on every machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchCut {
    /// Fewest parts of a global batch, a power of two.
    pub(crate) least: usize,
    /// True when the shape may ask for more of them: a batch that several threads compute is split.
    pub(crate) by_shape: bool,
    /// Most rows of a part, at least 1.
    pub(crate) rows_max: usize,
    /// Rows of a global batch: a smaller one has as many parts, so that ranks which divide those of one divide those of all.
    pub(crate) whole: usize,
    /// Whose parts.
    pub(crate) place: RankPlace,
    /// True for a model that normalises over rows.
    pub(crate) normalises: bool,
    /// Rows of a full batch, which give the number of ghost batches; 0 where each batch has its own
    /// number.
    pub(crate) full: usize,
    /// Fewest rows of a ghost batch of a full batch; 0 for those of the shape.
    pub(crate) ghost_rows: usize,
}

impl BatchCut {
    /// The shape's parts, on one rank.
    pub(crate) const BY_SHAPE: Self = Self {
        least: 1,
        by_shape: true,
        rows_max: usize::MAX,
        whole: 0,
        place: RankPlace::ALONE,
        normalises: false,
        full: 0,
        ghost_rows: 0,
    };

    /// The same for a model with this layout.
    pub(crate) fn of_model(self, layout: &Layout) -> Self {
        let normalises = layout.len() > layout.trained_len();
        Self { normalises, ..self }
    }

    /// The share of a full batch that a batch of `rows` is, at most 1.
    pub(super) fn share_of_full(self, rows: usize) -> f32 {
        if rows < self.full {
            single(exact_len(rows) / exact_len(self.full))
        } else {
            1.0
        }
    }

    /// Fewest rows of a ghost batch of a full batch, for a model that normalises over rows.
    pub(crate) fn ghost_rows(self, shape: Shape) -> Option<usize> {
        let usual = || {
            let images = shape.parts().into_iter();
            let images = images.filter(|shape| matches!(shape, Shape::Images { .. }));
            match images.count() {
                0 => GHOST_ROWS as usize,
                _ => GHOST_IMAGES as usize,
            }
        };
        self.normalises.then(|| match self.ghost_rows {
            0 => usual(),
            rows => rows,
        })
    }

    /// Ghost batches of a batch of `rows`, a power of two, in `least` parts at least; 1 for a model that normalises over none.
    fn ghost_count(self, shape: Shape, rows: usize, least: usize) -> usize {
        let Some(each) = self.ghost_rows(shape) else {
            return 1;
        };
        let count = (rows / each).max(1);
        (1 << count.ilog2()).max(least)
    }

    /// Rows that decide the division of a batch of `rows`.
    fn deciding(self, rows: usize) -> usize {
        rows.max(if self.normalises {
            self.full
        } else {
            self.whole
        })
    }

    /// Fewest parts of a batch of `rows`, a power of two.
    pub(crate) fn least(self, rows: usize) -> usize {
        let parts = rows.div_ceil(self.rows_max).next_power_of_two();
        self.least.max(parts)
    }

    /// Parts of a global batch of `rows`, where the ranks divide them; so many then whatever the ranks, and the same bits.
    pub(crate) fn shared(self, shape: Shape, rows: usize, parameters: usize) -> Option<usize> {
        let parts = self.of_batch(shape, rows, parameters);
        parts.is_multiple_of(self.place.world).then_some(parts)
    }

    /// Parts of a global batch of `rows`, whatever the ranks.
    pub(crate) fn of_batch(self, shape: Shape, rows: usize, parameters: usize) -> usize {
        let rows = self.deciding(rows);
        self.count(shape, rows, parameters, self.least(rows))
    }

    /// The same for a rank that takes its own rows as a batch.
    fn alone(self) -> Self {
        Self {
            least: 1,
            whole: 0,
            full: self.full.div_ceil(self.place.world),
            ..self
        }
    }

    /// The ghost batches of a batch, for a model with so many parameters.
    pub(super) fn ghosts(self, samples: Samples<'_>, parameters: usize) -> Ghosts {
        let shape = shape(samples);
        let (cut, first_row, rows) = match self.shared(shape, samples.global_rows(), parameters) {
            Some(_) => (self, 0, samples.global_rows()),
            None => (self.alone(), samples.first_row(), samples.rows()),
        };
        let deciding = cut.deciding(rows);
        Ghosts {
            first_row,
            rows,
            count: cut.ghost_count(shape, deciding, cut.least(deciding)),
        }
    }

    /// Parts of a rank of a global batch of `rows`, and the most rows that one has.
    pub(crate) fn of_rank(self, shape: Shape, rows: usize, parameters: usize) -> [usize; 2] {
        let world = self.place.world;
        if let Some(parts) = self.shared(shape, rows, parameters) {
            return [parts / world, rows.div_ceil(parts)];
        }
        let rows = rows.div_ceil(world);
        let parts = self.own(shape, rows, parameters);
        [parts, rows.div_ceil(parts)]
    }

    /// Parts of a rank's `rows`, cut as if they were a batch.
    fn own(self, shape: Shape, rows: usize, parameters: usize) -> usize {
        let alone = self.alone();
        let rows = alone.deciding(rows);
        alone.count(shape, rows, parameters, alone.least(rows))
    }

    fn count(self, shape: Shape, rows: usize, parameters: usize, least: usize) -> usize {
        let parts = if self.by_shape {
            part_count(shape, rows, parameters, least)
        } else {
            least
        };
        if self.normalises {
            parts.min(self.ghost_count(shape, rows, least))
        } else {
            parts
        }
    }

    /// This rank's parts, in rows of `samples`, for a model with so many parameters. Some may be without rows.
    pub(super) fn parts(self, samples: Samples<'_>, parameters: usize) -> Vec<Range<usize>> {
        let (shape, rows) = (shape(samples), samples.rows());
        let RankPlace { rank, world } = self.place;
        let (first, of) = (samples.first_row(), samples.global_rows());
        if let Some(parts) = self.shared(shape, of, parameters) {
            let each = parts / world;
            let border = |part: usize| (part * of / parts).saturating_sub(first).min(rows);
            let parts = rank * each..(rank + 1) * each;
            parts.map(|p| border(p)..border(p + 1)).collect()
        } else {
            let parts = self.own(shape, rows, parameters);
            let border = |part: usize| part * rows / parts;
            (0..parts).map(|p| border(p)..border(p + 1)).collect()
        }
    }
}

/// Shape of the samples of a batch.
fn shape(samples: Samples<'_>) -> Shape {
    let ModelInputs {
        features,
        sides: [height, width],
        length,
        lengths,
        ..
    } = samples.inputs;
    if lengths.is_some() || (height > 0 && features > 0) {
        Shape::Multi {
            features,
            images: (height > 0).then_some([3, height, width]),
            tokens: (length > 0).then_some([length, 0]),
        }
    } else if height > 0 {
        Shape::Images {
            channels: 3,
            height,
            width,
        }
    } else if length > 0 {
        Shape::Tokens {
            length: length - 1,
            vocabulary: 0,
        }
    } else {
        Shape::Rows { features }
    }
}

/// Parts of a batch of `rows` samples of a shape, for a model with so many parameters; at least `least`.
pub(super) fn part_count(shape: Shape, rows: usize, parameters: usize, least: usize) -> usize {
    let least_rows = |shape: Shape| match shape {
        Shape::Images { .. } => PART_IMAGES,
        Shape::Tokens { length, .. } => (PART_TOKENS / length.max(1)).max(1),
        Shape::Rows { .. } if parameters > PARTED_PARAMETERS_MAX => rows.max(1),
        Shape::Rows { .. } | Shape::Multi { .. } => PART_ROWS,
    };
    // Of several parts the dearest decides.
    let least_rows = shape.parts().into_iter().map(least_rows).min();
    let least_rows = least_rows.unwrap_or(PART_ROWS);
    let parts = (rows / least_rows).clamp(1, PARTS_MAX);
    (1 << parts.ilog2()).max(least)
}

/// Runs `work` on all workers at once and waits for them.
fn on_each(workers: &[ThreadPool], work: &(dyn Fn() + Sync)) {
    if let Some((first, rest)) = workers.split_first() {
        first.in_place_scope(|scope| {
            scope.spawn(|_| work());
            on_each(rest, work);
        });
    }
}

#[cfg(test)]
mod tests {
    use feedline_schemas::config::{ModelConfig, NormKind, TrainConfig};

    use super::*;
    use crate::data::samples::Targets;
    use crate::model::models;

    const ROWS: Shape = Shape::Rows { features: 1 };

    #[test]
    fn the_number_of_parts_is_a_power_of_two_that_follows_from_the_shape() {
        let of = |shape, rows, parameters| part_count(shape, rows, parameters, 1);
        let found = [0, 1, 255, 256, 383, 512, 1 << 20].map(|rows| of(ROWS, rows, 10));
        assert_eq!(found, [1, 1, 1, 2, 2, 4, 32]);
        assert_eq!(of(ROWS, 1000, 1 << 21), 1);
        let (height, width) = (8, 8);
        let images = Shape::Images {
            channels: 3,
            height,
            width,
        };
        assert_eq!(of(images, 140, 1 << 21), 4);
        let tokens = |length| Shape::Tokens {
            length,
            vocabulary: 9,
        };
        assert_eq!(of(tokens(512), 5, 1 << 21), 2);
        assert_eq!(of(tokens(4096), 2, 1 << 21), 2);
        assert_eq!(part_count(ROWS, 3, 10, 8), 8);
    }

    #[test]
    fn what_is_computed_whole_is_cut_where_that_is_asked_for_only() {
        let x = vec![0.0; 1000];
        let samples = Samples::of_rows(&x, 1, Targets::Numbers(&x));
        let parts = |least| {
            let cut = BatchCut {
                least,
                by_shape: false,
                ..BatchCut::BY_SHAPE
            };
            cut.parts(samples, 10).len()
        };
        assert_eq!([parts(1), parts(2)], [1, 2]);
        assert_eq!(BatchCut::BY_SHAPE.parts(samples, 10).len(), 4);
    }

    /// First rows in the global batch, and rows, of the parts of all ranks.
    fn parts_of_all(rows: usize, least: usize, world: usize) -> Vec<[usize; 2]> {
        let x = vec![0.0; rows];
        let rank_parts = |rank: usize| {
            let first = rank * rows / world;
            let len = (rank + 1) * rows / world - first;
            let place = RankPlace { rank, world };
            let samples = Samples::of_rows(&x[..len], 1, Targets::Numbers(&x[..len]));
            let cut = BatchCut {
                least,
                place,
                ..BatchCut::BY_SHAPE
            };
            let parts = cut.parts(samples.within(first, rows), 10);
            let parts = parts.into_iter();
            parts.map(move |part| [first + part.start, part.len()])
        };
        (0..world).flat_map(rank_parts).collect()
    }

    #[test]
    fn ranks_that_divide_the_parts_have_those_of_one_rank() {
        for (rows, least) in [(1000, 1), (1030, 8), (5, 8), (0, 4), (37, 4)] {
            let alone = parts_of_all(rows, least, 1);
            assert_eq!(alone.iter().map(|[_, rows]| rows).sum::<usize>(), rows);
            let most = alone.len().ilog2();
            for world in (0..=most).map(|bits| 1 << bits) {
                let together = parts_of_all(rows, least, world);
                assert_eq!(together, alone, "{rows} rows on {world} ranks");
            }
        }
    }

    #[test]
    fn a_short_batch_has_the_parts_of_a_whole_one() {
        let x = vec![0.0; 228];
        let parts = |whole| {
            let samples = Samples::of_rows(&x, 1, Targets::Numbers(&x));
            let cut = BatchCut {
                whole,
                ..BatchCut::BY_SHAPE
            };
            cut.parts(samples, 10).len()
        };
        assert_eq!([parts(0), parts(228), parts(512)], [1, 1, 4]);
    }

    /// The cut of a perceptron with this norm, where a full batch has `full` rows.
    fn with_norm(norm: NormKind, full: usize, ghost_batch: Option<u32>) -> BatchCut {
        let config = TrainConfig {
            model: ModelConfig {
                norm: Some(norm),
                ghost_batch,
                ..ModelConfig::default()
            },
            ..TrainConfig::default()
        };
        let filled = models::filled(&config);
        let cut = BatchCut {
            whole: full,
            full,
            ghost_rows: filled.ghost_batch.unwrap_or(0) as usize,
            ..BatchCut::BY_SHAPE
        };
        cut.of_model(models::build(&filled, ROWS, 1).unwrap().layout())
    }

    #[test]
    fn a_batch_of_a_model_that_normalises_has_the_ghost_batches_of_a_full_one() {
        let x = vec![0.0; 512];
        let of = |cut: BatchCut, rows: usize| {
            let samples = Samples::of_rows(&x[..rows], 1, Targets::Numbers(&x[..rows]));
            [cut.parts(samples, 10).len(), cut.ghosts(samples, 10).count]
        };
        let batch = |ghost| with_norm(NormKind::Batch, 512, ghost);
        assert_eq!([512, 500, 2].map(|rows| of(batch(None), rows)), [[4, 4]; 3]);
        // A part may be several ghost batches, and no ghost batch is split.
        assert_eq!(of(batch(Some(16)), 512), [4, 32]);
        assert_eq!(of(batch(Some(512)), 512), [1, 1]);
        let whole = BatchCut {
            by_shape: false,
            ..batch(None)
        };
        assert_eq!(of(whole, 512), [1, 4], "a GPU has the same ones");
        let small = BatchCut {
            rows_max: 64,
            ..batch(None)
        };
        assert_eq!(of(small, 512), [8, 8]);
        // A split with fewer rows than a batch is a full batch.
        assert_eq!(of(with_norm(NormKind::Batch, 100, None), 100), [1, 1]);
        assert_eq!(of(with_norm(NormKind::Layer, 512, None), 2), [4, 1]);
    }

    #[test]
    fn ghost_batches_of_ranks_are_those_of_one() {
        let x = vec![0.0; 515];
        let ghosts_of_all = |rows: usize, world: usize| {
            let of_rank = |rank: usize| {
                let first = rank * rows / world;
                let len = (rank + 1) * rows / world - first;
                let samples = Samples::of_rows(&x[..len], 1, Targets::Numbers(&x[..len]));
                let samples = samples.within(first, rows);
                let cut = BatchCut {
                    place: RankPlace { rank, world },
                    ..with_norm(NormKind::Batch, 512, Some(32))
                };
                let ghosts = cut.ghosts(samples, 10);
                let of_part = |part: Range<usize>| {
                    let begin = first + part.start;
                    let found = ghosts.within(begin, part.len()).into_iter();
                    let moved = found.map(move |ghost| [begin + ghost.start, ghost.len()]);
                    moved.collect::<Vec<_>>()
                };
                let parts = cut.parts(samples, 10).into_iter();
                parts.flat_map(of_part).collect::<Vec<_>>()
            };
            (0..world).flat_map(of_rank).collect::<Vec<_>>()
        };
        for rows in [512, 500, 37] {
            let alone = ghosts_of_all(rows, 1);
            assert_eq!(alone.len(), 16, "{rows}");
            assert_eq!(alone.iter().map(|[_, rows]| rows).sum::<usize>(), rows);
            for world in [2, 4] {
                assert_eq!(ghosts_of_all(rows, world), alone, "{rows} on {world}");
            }
            let three = ghosts_of_all(rows, 3);
            assert_eq!(three.iter().map(|[_, rows]| rows).sum::<usize>(), rows);
        }
    }

    #[test]
    fn a_short_batch_weighs_as_much_as_it_has_rows() {
        let cut = with_norm(NormKind::Batch, 256, None);
        let shares = [2, 128, 256, 300].map(|rows| cut.share_of_full(rows).to_bits());
        let expected = [1.0 / 128.0, 0.5, 1.0, 1.0].map(f32::to_bits);
        assert_eq!(shares, expected);
    }

    #[test]
    fn parts_have_at_most_the_rows_of_a_micro_batch() {
        for (rows, rows_max, world, expected) in [
            (1000, 40, 1, 32),
            (1000, 100, 2, 8),
            (1000, 100, 3, 4),
            (7, 1, 1, 8),
            (5, 9, 1, 1),
        ] {
            let x = vec![0.0; rows / world];
            let samples = Samples::of_rows(&x, 1, Targets::Numbers(&x)).within(0, rows);
            let place = RankPlace { rank: 0, world };
            let cut = BatchCut {
                rows_max,
                place,
                ..BatchCut::BY_SHAPE
            };
            let parts = cut.parts(samples, 10);
            assert!(parts.iter().all(|part| part.len() <= rows_max), "{parts:?}");
            assert_eq!(parts.len(), expected);
        }
    }

    #[test]
    fn other_ranks_cut_their_own_rows() {
        let third = [[0, 166], [166, 167], [333, 166], [499, 167]];
        let parts = parts_of_all(1000, 1, 3);
        assert_eq!(parts[..4], third);
        assert_eq!(
            parts_of_all(100, 1, 4),
            [[0, 25], [25, 25], [50, 25], [75, 25]]
        );
    }
}
