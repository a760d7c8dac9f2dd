//! Parts of a batch, computed on several threads.
//!
//! The CPU backend runs element-wise operations on one thread, so a batch is cut. Each thread is a rayon pool of its own:
//! what the backend gives to rayon inside a part runs on the part's thread, where it neither competes with other parts
//! nor, waiting for its own work, starts one of them while the backend holds a lock.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::{
    data::{Inputs, Samples},
    model::Shape,
};

/// Fewest rows of numbers in a part.
pub(super) const PART_ROWS: usize = 128;

/// Fewest pictures in a part; batch norm normalises over them.
const PART_PICTURES: usize = 32;

/// Fewest token ids in a part.
const PART_TOKENS: usize = 1024;

/// Most parts of a batch.
const PARTS_MAX: usize = 32;

/// Parameters above which a batch of rows of numbers is one part. The products of so large a model are worth several
/// threads each, and dwarf the element-wise work.
const PARTED_PARAMETERS_MAX: usize = 1 << 20;

/// Threads for parts of batches.
#[derive(Debug)]
pub(super) struct Workers {
    /// Pools of one thread.
    pools: Vec<ThreadPool>,
}

impl Workers {
    /// This many threads; fewer where the machine has no more.
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

    /// Applies `work` to each part and its first row, and `take` to the results in part order. A result waits for those
    /// before it, so that there are hardly more of them than threads.
    pub(super) fn for_each_part<'s, T: Send>(
        &self,
        samples: Samples<'s>,
        parameters: usize,
        work: impl Fn(Samples<'s>, usize) -> T + Sync,
        mut take: impl FnMut(T) + Send,
    ) {
        let rows = samples.rows();
        let size = part_rows(shape(samples), rows, parameters);
        let parts = rows.div_ceil(size);
        if parts <= 1 {
            return take(work(samples, 0));
        }
        let next = AtomicUsize::new(0);
        let results = Mutex::new((0, BTreeMap::new(), take));
        let take_parts = || {
            loop {
                let part = next.fetch_add(1, Ordering::Relaxed);
                if part >= parts {
                    return;
                }
                let first = part * size;
                let result = work(samples.slice(first..(first + size).min(rows)), first);
                let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
                let (taken, waiting, take) = &mut *results;
                waiting.insert(part, result);
                while let Some(result) = waiting.remove(taken) {
                    take(result);
                    *taken += 1;
                }
            }
        };
        if self.pools.is_empty() {
            take_parts();
        }
        on_each(&self.pools, &take_parts);
    }
}

/// What the samples of a batch look like.
fn shape(samples: Samples<'_>) -> Shape {
    let Inputs {
        features,
        sides: [height, width],
        length,
        ..
    } = samples.inputs;
    if height > 0 {
        Shape::Pictures { height, width }
    } else if length > 0 {
        Shape::Tokens {
            length: length - 1,
            vocabulary: 0,
        }
    } else {
        Shape::Rows { features }
    }
}

/// Rows of each part, but the last, of a batch of `rows` samples of a shape, for a model with so many parameters. Parts
/// are about as large as each other: what batch norm makes of a part of few rows is noise.
pub(crate) fn part_rows(shape: Shape, rows: usize, parameters: usize) -> usize {
    let least = match shape {
        Shape::Pictures { .. } => PART_PICTURES,
        Shape::Tokens { length, .. } => (PART_TOKENS / length.max(1)).max(1),
        Shape::Rows { .. } if parameters > PARTED_PARAMETERS_MAX => rows.max(1),
        Shape::Rows { .. } => PART_ROWS,
    };
    let parts = (rows / least).clamp(1, PARTS_MAX);
    rows.div_ceil(parts).max(1)
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
    use super::*;

    /// Rows of each part.
    fn check(shape: Shape, rows: usize, parameters: usize, expected: &[usize]) {
        let size = part_rows(shape, rows, parameters);
        let parts = (0..rows).step_by(size).map(|first| size.min(rows - first));
        assert_eq!(parts.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn parts_are_about_as_large_as_each_other() {
        let rows = Shape::Rows { features: 3 };
        check(rows, 0, 10, &[]);
        check(rows, 1, 10, &[1]);
        check(rows, 255, 10, &[255]);
        check(rows, 256, 10, &[128, 128]);
        check(rows, 257, 10, &[129, 128]);
        check(rows, 1 << 20, 10, &[1 << 15; 32]);
        check(rows, 1000, 1 << 21, &[1000]);
        let (height, width) = (8, 8);
        check(Shape::Pictures { height, width }, 70, 1 << 21, &[35, 35]);
        let (length, vocabulary) = (512, 9);
        check(Shape::Tokens { length, vocabulary }, 5, 1 << 21, &[3, 2]);
        let length = 4096;
        check(Shape::Tokens { length, vocabulary }, 2, 1 << 21, &[1, 1]);
    }
}
