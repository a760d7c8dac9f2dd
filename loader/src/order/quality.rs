//! Quality of an order's shuffle, found by simulating it on the worst case: a source sorted by
//! class.

use std::collections::HashSet;

use serde::Serialize;

use super::{Blocks, LastBatch, Orders, ShuffleWindow, Units};

/// Quality of the mix of batches when the samples are sorted by class, in classes of equal size:
/// that is, when nothing but the order mixes them. A source that was shuffled when it was written
/// is better than this.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ShuffleQuality {
    /// Classes that the samples are taken to be sorted by.
    pub classes: u64,
    /// True where the dataset names no classes, and this number was assumed.
    pub classes_assumed: bool,
    /// Batches that were looked at.
    pub batches: u64,
    /// Mean number of distinct classes in a batch.
    pub classes_per_batch: f64,
    /// The same for samples drawn independently: the best there can be.
    pub ideal_classes_per_batch: f64,
    /// Standard deviation of the mean class of a batch, relative to that of samples drawn independently: 1 is ideal,
    /// more means that batches differ from each other.
    pub spread: f64,
}

/// Classes that the shuffle is judged by where the dataset names none.
const ASSUMED_CLASSES: u64 = 1000;

/// Simulates up to `most_batches` batches, evenly chosen, of the first epoch over the first source.
pub(crate) fn shuffle_quality(
    orders: &Orders,
    known_classes: Option<u64>,
    most_batches: u64,
) -> ShuffleQuality {
    let classes = known_classes.unwrap_or(ASSUMED_CLASSES);
    let spec = super::OrderSpec {
        last_batch: LastBatch::Keep,
        ..orders.spec()
    };
    // Whatever the samples are, the order deals and shuffles them as if they were rows of their blocks.
    let blocks = orders.first_blocks();
    let before = before(&blocks);
    let samples = blocks.samples();
    let batch = f64::from(spec.global_batch);
    let order = Orders::single(spec, Units::Rows(blocks))
        .and_then(|orders| orders.epoch(0, None))
        .expect("a source with samples has batches when the last is kept");
    let full = (samples / u64::from(spec.global_batch)).max(1);
    let looked_at = full.min(most_batches).max(1);
    let mut cursor = order.cursor();
    let (mut distinct, mut squares) = (0.0, 0.0);
    let middle = (classes - 1) as f64 / 2.0;
    for number in (0..looked_at).map(|at| at * full / looked_at) {
        let mut runs = Vec::new();
        cursor.runs(number, 0..order.rows(number), &mut runs);
        let mut seen = HashSet::new();
        let mut sum = 0.0;
        for run in runs {
            for sample in numbers(&run.window, run.positions, &before) {
                let class = u128::from(sample) * u128::from(classes) / u128::from(samples);
                sum += class as f64;
                seen.insert(class);
            }
        }
        distinct += seen.len() as f64;
        squares += (sum / order.rows(number) as f64 - middle).powi(2);
    }
    let count = classes as f64;
    let independent = (count * count - 1.0) / 12.0 / batch.min(samples as f64);
    ShuffleQuality {
        classes,
        classes_assumed: known_classes.is_none(),
        batches: looked_at,
        classes_per_batch: distinct / looked_at as f64,
        ideal_classes_per_batch: count * (1.0 - (1.0 - 1.0 / count).powf(batch)),
        spread: if independent > 0.0 {
            (squares / looked_at as f64 / independent).sqrt()
        } else {
            1.0
        },
    }
}

fn before(blocks: &Blocks) -> Vec<u64> {
    let rows = (0..blocks.block_count()).map(|block| u64::from(blocks.rows(block)));
    rows.scan(0, |sum, rows| {
        *sum += rows;
        Some(*sum - rows)
    })
    .collect()
}

fn numbers(
    window: &ShuffleWindow,
    positions: std::ops::Range<u64>,
    before: &[u64],
) -> impl Iterator<Item = u64> {
    let mut places = Vec::new();
    window.places(positions, &mut places);
    places.into_iter().map(move |place| {
        let block = window.blocks[place.block as usize];
        before[block as usize] + u64::from(place.row)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::order::OrderSpec;

    fn quality(rows: Vec<u32>, domains: u32, window_blocks: u32) -> ShuffleQuality {
        let spec = OrderSpec {
            seed: 11,
            domains,
            window_blocks,
            global_batch: 256,
            last_batch: LastBatch::Keep,
        };
        let orders = Orders::single(spec, Units::Rows(Arc::new(Blocks::new(rows)))).unwrap();
        shuffle_quality(&orders, None, 1000)
    }

    /// 1,281,167 images of 100 KB in 1,000 classes, sorted by class, in blocks of 1 MiB; windows of 1 GiB.
    #[test]
    fn an_imagenet_sorted_by_class_is_mixed_with_a_window_of_one_gibibyte() {
        let mut rows = vec![10; 128_116];
        rows.push(7);
        let quality = quality(rows, 64, 16);
        assert!(quality.classes_per_batch >= 200.0, "{quality:?}");
        assert!(quality.spread <= 1.15, "{quality:?}");
        assert!((quality.ideal_classes_per_batch - 226.0).abs() < 0.5);
    }

    #[test]
    fn one_window_of_everything_is_ideal_and_a_small_one_is_not() {
        let ideal = quality(vec![100; 2000], 1, 2000);
        assert!((ideal.classes_per_batch - 226.0).abs() < 1.5, "{ideal:?}");
        assert!((0.9..1.1).contains(&ideal.spread), "{ideal:?}");
        let poor = quality(vec![100; 2000], 1, 4);
        assert!(
            poor.classes_per_batch < 40.0 && poor.spread > 5.0,
            "{poor:?}"
        );
    }
}
