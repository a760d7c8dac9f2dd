//! An exponential moving average of the bucket (Polyak and Juditsky 1992 in the form that TensorFlow and others use):
//! after step `t`, `average = d * average + (1 - d) * bucket`, with `d = decay`, or with the warm-up
//! `min(decay, (1 + t) / (10 + t))`. It starts at the initial weights and covers the running statistics too.

use feedline_schemas::{config::AverageConfig, ids::Step};
use rayon::prelude::*;

/// Elements one task updates.
const PIECE: usize = 1 << 14;

/// The average.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Average {
    config: AverageConfig,
    weights: Vec<f32>,
}

impl Average {
    /// An average that is at `weights`.
    pub(crate) const fn new(config: AverageConfig, weights: Vec<f32>) -> Self {
        Self { config, weights }
    }

    /// The averaged weights.
    pub(crate) fn weights(&self) -> &[f32] {
        &self.weights
    }

    /// The averaged weights, to be written by what averages elsewhere.
    pub(crate) fn weights_mut(&mut self) -> &mut [f32] {
        &mut self.weights
    }

    /// By how much it moves after `step` steps.
    pub(crate) fn share(&self, step: Step) -> f32 {
        share(&self.config, step)
    }

    /// Takes in the weights after `step` steps.
    pub(crate) fn update(&mut self, step: Step, bucket: &[f32]) {
        let share = self.share(step);
        self.weights
            .par_chunks_mut(PIECE)
            .zip(bucket.par_chunks(PIECE))
            .for_each(|(average, bucket)| {
                for (average, weight) in average.iter_mut().zip(bucket) {
                    *average += share * (weight - *average);
                }
            });
    }
}

/// By how much the average moves: `1 - d`.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "step counts stay far below 2^53, and rounding to f32 is what is wanted"
)]
fn share(config: &AverageConfig, step: Step) -> f32 {
    let t = step.get() as f64;
    let decay = if config.warmup {
        config.decay.min((1.0 + t) / (10.0 + t))
    } else {
        config.decay
    };
    (1.0 - decay) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_average_follows_its_formula() {
        for (warmup, decays) in [(true, [2.0 / 11.0, 0.25, 0.3]), (false, [0.3; 3])] {
            let config = AverageConfig { decay: 0.3, warmup };
            let mut average = Average::new(config, vec![1.0; PIECE + 1]);
            let mut expected = 1.0;
            for (step, decay) in (1..).zip(decays) {
                let weight = 10.0 * f64::from(u8::try_from(step).unwrap());
                #[expect(clippy::cast_possible_truncation, reason = "test data")]
                average.update(Step::new(step), &vec![weight as f32; PIECE + 1]);
                expected = decay * expected + (1.0 - decay) * weight;
            }
            for found in [average.weights()[0], average.weights()[PIECE]] {
                assert!(
                    (f64::from(found) - expected).abs() < 1e-5,
                    "{found} {expected}"
                );
            }
        }
    }
}
