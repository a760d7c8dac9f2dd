//! AdamW over the flat bucket (Loshchilov and Hutter 2019, arXiv 1711.05101, algorithm 2, with the schedule multiplier
//! inside the rate, as PyTorch has it: decay is `rate * weight_decay`, epsilon is added outside the root).

use rayon::prelude::*;

use crate::model::Parameter;

/// Elements one task updates; elements do not depend on each other, so the size is free.
const PIECE: usize = 1 << 14;

/// Settings of AdamW.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct AdamWSettings {
    /// Decay of the first moment.
    pub(crate) beta1: f64,
    /// Decay of the second moment.
    pub(crate) beta2: f64,
    /// Added to the root of the second moment.
    pub(crate) epsilon: f64,
    /// Decoupled decay of the parameters marked for it.
    pub(crate) weight_decay: f64,
}

/// The optimizer and its moments.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AdamW {
    settings: AdamWSettings,
    first_moment: Vec<f32>,
    second_moment: Vec<f32>,
}

/// One step's constants, in the precision of the bucket.
#[derive(Clone, Copy)]
struct Constants {
    gradient_scale: f32,
    beta1: f32,
    one_minus_beta1: f32,
    beta2: f32,
    one_minus_beta2: f32,
    epsilon: f32,
    step_size: f32,
    second_root_scale: f32,
}

impl AdamW {
    /// An optimizer of `len` parameters with zero moments.
    pub(crate) fn new(settings: AdamWSettings, len: usize) -> Self {
        Self {
            settings,
            first_moment: vec![0.0; len],
            second_moment: vec![0.0; len],
        }
    }

    /// An optimizer that goes on from saved moments.
    pub(crate) fn resume(
        settings: AdamWSettings,
        first_moment: Vec<f32>,
        second_moment: Vec<f32>,
    ) -> Self {
        assert_eq!(
            first_moment.len(),
            second_moment.len(),
            "moments have the bucket's length"
        );
        Self {
            settings,
            first_moment,
            second_moment,
        }
    }

    /// First and second moment.
    pub(crate) fn moments(&self) -> (&[f32], &[f32]) {
        (&self.first_moment, &self.second_moment)
    }

    /// Takes step number `step` (the first is 1) along `gradient * gradient_scale` with learning rate `rate`.
    ///
    /// # Panics
    /// When the buckets differ in length, or `step` is 0.
    pub(crate) fn step(
        &mut self,
        parameters: &[Parameter],
        bucket: &mut [f32],
        gradient: &[f32],
        step: u64,
        rate: f64,
        gradient_scale: f64,
    ) {
        assert!(step > 0, "steps count from 1");
        assert!(
            bucket.len() == gradient.len() && bucket.len() == self.first_moment.len(),
            "one bucket length"
        );
        let constants = self.constants(step, rate, gradient_scale);
        for parameter in parameters {
            let decay = if parameter.decays {
                rate * self.settings.weight_decay
            } else {
                0.0
            };
            let keep = single(1.0 - decay);
            let range = parameter.range.clone();
            let weights = bucket[range.clone()].par_chunks_mut(PIECE);
            let gradients = gradient[range.clone()].par_chunks(PIECE);
            let first = self.first_moment[range.clone()].par_chunks_mut(PIECE);
            let second = self.second_moment[range].par_chunks_mut(PIECE);
            weights.zip(gradients).zip(first).zip(second).for_each(
                |(((weights, gradients), first), second)| {
                    update(weights, gradients, first, second, keep, constants);
                },
            );
        }
    }

    fn constants(&self, step: u64, rate: f64, gradient_scale: f64) -> Constants {
        let AdamWSettings {
            beta1,
            beta2,
            epsilon,
            ..
        } = self.settings;
        #[expect(
            clippy::cast_precision_loss,
            reason = "step counts stay far below 2^53"
        )]
        let step = step as f64;
        let (correction1, correction2) = (1.0 - beta1.powf(step), 1.0 - beta2.powf(step));
        Constants {
            gradient_scale: single(gradient_scale),
            beta1: single(beta1),
            one_minus_beta1: single(1.0 - beta1),
            beta2: single(beta2),
            one_minus_beta2: single(1.0 - beta2),
            epsilon: single(epsilon),
            step_size: single(rate / correction1),
            second_root_scale: single(1.0 / correction2.sqrt()),
        }
    }
}

fn update(
    weights: &mut [f32],
    gradients: &[f32],
    first: &mut [f32],
    second: &mut [f32],
    keep: f32,
    c: Constants,
) {
    for (((w, &g), m), v) in weights.iter_mut().zip(gradients).zip(first).zip(second) {
        let g = g * c.gradient_scale;
        *m = c.beta1 * *m + c.one_minus_beta1 * g;
        *v = c.beta2 * *v + c.one_minus_beta2 * (g * g);
        *w = *w * keep - c.step_size * (*m / (v.sqrt() * c.second_root_scale + c.epsilon));
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "rounding to f32 is what is wanted"
)]
const fn single(value: f64) -> f32 {
    value as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: AdamWSettings = AdamWSettings {
        beta1: 0.9,
        beta2: 0.99,
        epsilon: 1e-8,
        weight_decay: 0.1,
    };

    fn bucket_of(decaying: usize, plain: usize) -> Vec<Parameter> {
        let parameter = |name: &str, range: std::ops::Range<usize>, decays| Parameter {
            name: name.into(),
            shape: vec![range.len()],
            range,
            decays,
        };
        vec![
            parameter("weight", 0..decaying, true),
            parameter("bias", decaying..decaying + plain, false),
        ]
    }

    /// The paper's algorithm for one weight, in f64, written for reading.
    struct Reference {
        theta: f64,
        m: f64,
        v: f64,
        t: i32,
        lambda: f64,
    }

    impl Reference {
        fn step(&mut self, g: f64, rate: f64) {
            let AdamWSettings {
                beta1,
                beta2,
                epsilon,
                ..
            } = SETTINGS;
            self.t += 1;
            self.m = beta1 * self.m + (1.0 - beta1) * g;
            self.v = beta2 * self.v + (1.0 - beta2) * g * g;
            let m_hat = self.m / (1.0 - beta1.powi(self.t));
            let v_hat = self.v / (1.0 - beta2.powi(self.t));
            self.theta -= rate * (m_hat / (v_hat.sqrt() + epsilon) + self.lambda * self.theta);
        }
    }

    #[test]
    fn first_step_moves_every_weight_by_the_rate_against_its_gradient() {
        // At the first step the corrected moments are g and g², so the step is rate * sign(g), decay apart.
        let mut bucket = [1.0, 1.0, 1.0];
        let mut optimizer = AdamW::new(SETTINGS, 3);
        optimizer.step(
            &bucket_of(1, 2),
            &mut bucket,
            &[0.5, 0.5, -7.0],
            1,
            0.01,
            1.0,
        );
        let expected = [1.0 - 0.01 - 0.01 * 0.1, 1.0 - 0.01, 1.0 + 0.01];
        for (found, expected) in bucket.iter().zip(expected) {
            assert!(
                (f64::from(*found) - expected).abs() < 1e-6,
                "{found}, expected {expected}"
            );
        }
    }

    #[test]
    fn many_steps_follow_the_reference() {
        let mut bucket = [0.7, -0.3];
        let mut optimizer = AdamW::new(SETTINGS, 2);
        let reference = |theta, lambda| Reference {
            theta,
            m: 0.0,
            v: 0.0,
            t: 0,
            lambda,
        };
        let (mut weight, mut bias) = (reference(0.7, SETTINGS.weight_decay), reference(-0.3, 0.0));
        for step in 1..=50_u64 {
            let rate = 0.01 / f64::from(u32::try_from(step).unwrap());
            let g = (f64::from(u32::try_from(step).unwrap()) * 0.9).sin();
            #[expect(clippy::cast_possible_truncation, reason = "test data")]
            optimizer.step(
                &bucket_of(1, 1),
                &mut bucket,
                &[g as f32, 2.0 * g as f32],
                step,
                rate,
                0.5,
            );
            weight.step(0.5 * g, rate);
            bias.step(g, rate);
        }
        assert!(
            (f64::from(bucket[0]) - weight.theta).abs() < 1e-6,
            "{} {}",
            bucket[0],
            weight.theta
        );
        assert!(
            (f64::from(bucket[1]) - bias.theta).abs() < 1e-6,
            "{} {}",
            bucket[1],
            bias.theta
        );
    }

    #[test]
    fn a_zero_gradient_only_decays_what_decays() {
        let mut bucket = [1.0, 1.0];
        AdamW::new(SETTINGS, 2).step(&bucket_of(1, 1), &mut bucket, &[0.0, 0.0], 1, 0.5, 1.0);
        assert!((bucket[0] - 0.95).abs() < 1e-7);
        assert_eq!(bucket[1].to_bits(), 1.0_f32.to_bits());
    }

    #[test]
    fn the_step_is_the_same_on_any_number_of_threads() {
        let n = 3 * PIECE + 17;
        let gradient = crate::testing::uniform(n, 90);
        let on = |threads| {
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .build()
                .unwrap();
            pool.install(|| {
                let mut bucket = gradient.clone();
                AdamW::new(SETTINGS, n).step(
                    &bucket_of(n - 5, 5),
                    &mut bucket,
                    &gradient,
                    1,
                    0.1,
                    1.0,
                );
                bucket.iter().map(|w| w.to_bits()).collect::<Vec<_>>()
            })
        };
        assert_eq!(on(1), on(3));
    }
}
