//! The seam to the tensor library: samples in; losses, outputs and one flat gradient bucket out.
//!
//! Nothing here keeps state between calls, and every result is a pure function of the arguments: matrix products add
//! along k in one order whatever the number of threads, element-wise work has no order, and sums whose order could
//! depend on threads (such as the mean of the losses) are taken outside.
//!
//! A batch is cut into parts that are computed on several threads, because the CPU backend runs element-wise operations
//! on one. The cut depends on shapes only, and the parts' gradients are added in part order, so the bits do not depend
//! on the threads either. Each thread is a rayon pool of its own: what the backend gives to rayon inside a part runs on
//! the part's thread, where it neither competes with other parts nor, waiting for its own work, starts one of them
//! while the backend holds a lock.

use std::{
    num::NonZero,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use burn::tensor::{Device, Tensor, TensorData};
use feedline_schemas::config::LossKind;
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::{
    data::Samples,
    loss,
    model::{Dropout, Model, bucket_len},
    random::Stream,
};

/// Fewest rows of a part.
const PART_ROWS: usize = 128;

/// Most parts of a batch: each has a gradient of its own in memory.
const PARTS_MAX: usize = 32;

/// Parameters above which a batch is one part. The products of so large a model are worth several threads each, and
/// dwarf the element-wise work.
const PARTED_PARAMETERS_MAX: usize = 1 << 20;

/// Runs a model forward and backward.
#[derive(Debug)]
pub(crate) struct Engine {
    model: Box<dyn Model>,
    loss: LossKind,
    device: Device,
    /// Pools of one thread.
    workers: Vec<ThreadPool>,
}

/// What a model says about some rows.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Prediction {
    /// `[rows, outputs]`, row-major.
    pub(crate) outputs: Vec<f32>,
    /// Loss of each row.
    pub(crate) losses: Vec<f32>,
}

impl Engine {
    /// An engine on the CPU.
    pub(crate) fn new(model: Box<dyn Model>, loss: LossKind) -> Self {
        Self::with_threads(
            model,
            loss,
            thread::available_parallelism().map_or(1, NonZero::get),
        )
    }

    /// An engine on the CPU with this many threads for parts of batches; with fewer where the machine has no more.
    fn with_threads(model: Box<dyn Model>, loss: LossKind, threads: usize) -> Self {
        let name = |_| "trainer-part".to_owned();
        let pool = |_| {
            ThreadPoolBuilder::new()
                .num_threads(1)
                .thread_name(name)
                .build()
                .ok()
        };
        Self {
            model,
            loss,
            device: Device::flex(),
            workers: (0..threads).filter_map(pool).collect(),
        }
    }

    /// The model.
    pub(crate) fn model(&self) -> &dyn Model {
        &*self.model
    }

    /// Computes the loss of each row and writes the gradient of their mean into `gradient`.
    ///
    /// `dropout` is the step's random stream; it is not used by a model without dropout.
    pub(crate) fn loss_and_gradient(
        &self,
        bucket: &[f32],
        samples: Samples<'_>,
        dropout: Stream,
        gradient: &mut [f32],
    ) -> Vec<f32> {
        let parts = self.for_each_part(samples, |part, first_row| {
            let dropout = (self.model.dropout() > 0.0).then_some(Dropout {
                stream: dropout,
                first_row,
            });
            self.part_gradient(bucket, part, samples.rows(), dropout)
        });
        let mut losses = Vec::with_capacity(samples.rows());
        for (i, (part_losses, part_gradient)) in parts.into_iter().enumerate() {
            losses.extend(part_losses);
            if i == 0 {
                gradient.copy_from_slice(&part_gradient);
            } else {
                add(gradient, &part_gradient);
            }
        }
        losses
    }

    /// Computes outputs and losses, without dropout.
    pub(crate) fn predict(&self, bucket: &[f32], samples: Samples<'_>) -> Prediction {
        let parts = self.for_each_part(samples, |part, _| {
            let outputs = self.model.forward(
                &self.weights(bucket, &self.device),
                self.features(part, &self.device),
                None,
            );
            let losses = loss::per_sample(self.loss, outputs.clone(), part.targets, &self.device);
            (numbers(outputs), numbers(losses))
        });
        let mut prediction = Prediction {
            outputs: Vec::new(),
            losses: Vec::with_capacity(samples.rows()),
        };
        for (outputs, losses) in parts {
            prediction.outputs.extend(outputs);
            prediction.losses.extend(losses);
        }
        prediction
    }

    /// Losses of a part of a batch of `rows` rows, and the part's share of the gradient of the batch's mean loss.
    fn part_gradient(
        &self,
        bucket: &[f32],
        part: Samples<'_>,
        rows: usize,
        dropout: Option<Dropout>,
    ) -> (Vec<f32>, Vec<f32>) {
        let device = self.device.clone().autodiff();
        let weights: Vec<_> = self
            .weights(bucket, &device)
            .into_iter()
            .map(Tensor::require_grad)
            .collect();
        let outputs = self
            .model
            .forward(&weights, self.features(part, &device), dropout);
        let losses = loss::per_sample(self.loss, outputs, part.targets, &device);
        let values = numbers(losses.clone().inner());
        let mut gradients = (losses.sum() / exact(rows)).backward();
        let mut gradient = Vec::with_capacity(bucket.len());
        for weight in &weights {
            let of_weight = weight
                .grad_remove(&mut gradients)
                .expect("every parameter takes part in the outputs");
            gradient.extend(numbers(of_weight));
        }
        (values, gradient)
    }

    fn weights(&self, bucket: &[f32], device: &Device) -> Vec<Tensor<1>> {
        let tensor = |values: &[f32]| {
            Tensor::from_data(TensorData::new(values.to_vec(), [values.len()]), device)
        };
        self.model
            .parameters()
            .iter()
            .map(|p| tensor(&bucket[p.range.clone()]))
            .collect()
    }

    fn features(&self, samples: Samples<'_>, device: &Device) -> Tensor<2> {
        Tensor::from_data(
            TensorData::new(samples.x.to_vec(), [samples.rows(), samples.features]),
            device,
        )
    }

    /// Applies `work` to each part and its first row; results come in part order.
    fn for_each_part<'s, T: Send>(
        &self,
        samples: Samples<'s>,
        work: impl Fn(Samples<'s>, usize) -> T + Sync,
    ) -> Vec<T> {
        let rows = samples.rows();
        let size = self.part_rows(rows);
        let parts = rows.div_ceil(size);
        if parts <= 1 {
            return vec![work(samples, 0)];
        }
        let next = AtomicUsize::new(0);
        let results = Mutex::new(Vec::with_capacity(parts));
        let take_parts = || {
            loop {
                let part = next.fetch_add(1, Ordering::Relaxed);
                if part >= parts {
                    return;
                }
                let first = part * size;
                let result = work(samples.slice(first..(first + size).min(rows)), first);
                results
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push((part, result));
            }
        };
        if self.workers.is_empty() {
            take_parts();
        }
        on_each(&self.workers, &take_parts);
        let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
        results.sort_by_key(|(part, _)| *part);
        results.into_iter().map(|(_, result)| result).collect()
    }

    /// Rows of each part, but the last, of a batch of `rows`.
    fn part_rows(&self, rows: usize) -> usize {
        if bucket_len(self.model.parameters()) > PARTED_PARAMETERS_MAX {
            return rows.max(1);
        }
        rows.div_ceil(PARTS_MAX).max(PART_ROWS)
    }
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

fn numbers<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor
        .into_data()
        .try_into_vec()
        .expect("tensors here are f32")
}

fn add(sum: &mut [f32], part: &[f32]) {
    for (sum, part) in sum.iter_mut().zip(part) {
        *sum += part;
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "batches are far below 2^53 rows"
)]
const fn exact(n: usize) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use feedline_schemas::{
        config::ModelConfig,
        ids::{Rank, Seed, Step},
    };

    use super::*;
    use crate::{data::Targets, model, testing::uniform};

    /// A perceptron in plain f64, written for reading. Dropout is given as one mask per hidden layer.
    struct Reference {
        widths: Vec<usize>,
    }

    impl Reference {
        fn outputs(&self, bucket: &[f64], x: &[f64], masks: &[Vec<f64>]) -> Vec<f64> {
            let mut x = x.to_vec();
            let mut rest = bucket;
            for (layer, pair) in self.widths.windows(2).enumerate() {
                let (from, to) = (pair[0], pair[1]);
                let (weight, after) = rest.split_at(from * to);
                let (bias, after) = after.split_at(to);
                rest = after;
                let dot =
                    |j: usize| bias[j] + (0..from).map(|i| x[i] * weight[i * to + j]).sum::<f64>();
                x = (0..to).map(dot).collect();
                if layer + 2 < self.widths.len() {
                    x = x
                        .iter()
                        .map(|z| 0.5 * z * (1.0 + erf(z / 2.0_f64.sqrt())))
                        .collect();
                    if let Some(mask) = masks.get(layer) {
                        x.iter_mut().zip(mask).for_each(|(x, m)| *x *= m);
                    }
                }
            }
            x
        }

        fn loss(&self, bucket: &[f64], samples: Samples<'_>) -> f64 {
            let rows = samples.rows();
            let loss = |row: usize| {
                let x = &samples.x[row * samples.features..(row + 1) * samples.features];
                let x: Vec<f64> = x.iter().map(|&v| v.into()).collect();
                let outputs = self.outputs(bucket, &x, &[]);
                match samples.targets {
                    Targets::Numbers(y) => (outputs[0] - f64::from(y[row])).powi(2),
                    Targets::Classes(y) => {
                        let sum: f64 = outputs.iter().map(|o| o.exp()).sum();
                        sum.ln() - outputs[usize::try_from(y[row]).unwrap()]
                    }
                }
            };
            (0..rows).map(loss).sum::<f64>() / exact(rows)
        }
    }

    /// The error function by its Taylor series, which is good to f64 for small arguments.
    fn erf(x: f64) -> f64 {
        let (mut term, mut sum) = (x, x);
        for n in 1..60 {
            term *= -x * x / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        sum * 2.0 / std::f64::consts::PI.sqrt()
    }

    fn engine(
        inputs: usize,
        hidden: &[u32],
        outputs: usize,
        dropout: f64,
        loss: LossKind,
    ) -> Engine {
        let config = ModelConfig {
            hidden: hidden.to_vec(),
            dropout,
            ..ModelConfig::default()
        };
        Engine::new(model::build(&config, inputs, outputs).unwrap(), loss)
    }

    fn stream(step: u64) -> Stream {
        Stream::dropout(Seed::new(1), Rank::new(0), Step::new(step))
    }

    /// Compares the gradient with central differences of the reference, every element.
    fn check_gradient(hidden: &[u32], outputs: usize, loss: LossKind, targets: Targets<'_>) {
        let (inputs, rows) = (3, targets.len());
        let engine = engine(inputs, hidden, outputs, 0.0, loss);
        let mut widths = vec![inputs];
        widths.extend(hidden.iter().map(|&w| w as usize));
        widths.push(outputs);
        let reference = Reference { widths };
        let mut bucket = engine.model().initial(Seed::new(2));
        // Biases start at 0: move them, so that they are tested away from it.
        bucket
            .iter_mut()
            .zip(uniform(10_000, 50))
            .for_each(|(w, u)| *w += 0.1 * u);
        let x = uniform(rows * inputs, 51);
        let samples = Samples {
            x: &x,
            features: inputs,
            targets,
        };

        let mut gradient = vec![0.0; bucket.len()];
        let losses = engine.loss_and_gradient(&bucket, samples, stream(0), &mut gradient);
        let wide: Vec<f64> = bucket.iter().map(|&w| w.into()).collect();
        let expected = reference.loss(&wide, samples);
        assert!(
            (loss::mean(&losses) - expected).abs() < 1e-6,
            "loss {} {expected}",
            loss::mean(&losses)
        );
        for i in 0..bucket.len() {
            let at = |shift: f64| {
                let mut moved = wide.clone();
                moved[i] += shift;
                reference.loss(&moved, samples)
            };
            let difference = (at(1e-5) - at(-1e-5)) / 2e-5;
            let found = f64::from(gradient[i]);
            assert!(
                (found - difference).abs() < 2e-6 + 2e-5 * difference.abs(),
                "element {i}: {found} {difference}"
            );
        }
    }

    #[test]
    fn gradient_of_squared_error_equals_finite_differences() {
        let y = uniform(7, 52);
        check_gradient(&[5, 4], 1, LossKind::Mse, Targets::Numbers(&y));
        check_gradient(&[], 1, LossKind::Mse, Targets::Numbers(&y));
    }

    #[test]
    fn gradient_of_cross_entropy_equals_finite_differences() {
        let y = [0, 2, 1, 2, 3, 0, 0, 1];
        check_gradient(&[6], 4, LossKind::CrossEntropy, Targets::Classes(&y));
        check_gradient(&[3, 3, 3], 4, LossKind::CrossEntropy, Targets::Classes(&y));
    }

    #[test]
    fn gradient_of_a_batch_in_parts_equals_finite_differences() {
        let y = uniform(2 * PART_ROWS + 3, 53);
        check_gradient(&[2], 1, LossKind::Mse, Targets::Numbers(&y));
    }

    /// Losses and gradient of one step on a batch of several parts, as bits.
    fn bits(threads: usize, rows: usize, dropout: f64) -> Vec<u32> {
        let model = engine(24, &[256, 256], 1, dropout, LossKind::Mse).model;
        let engine = Engine::with_threads(model, LossKind::Mse, threads);
        let bucket = engine.model().initial(Seed::new(2));
        let (x, y) = (uniform(24 * rows, 54), uniform(rows, 55));
        let samples = Samples {
            x: &x,
            features: 24,
            targets: Targets::Numbers(&y),
        };
        let mut gradient = vec![0.0; bucket.len()];
        let losses = engine.loss_and_gradient(&bucket, samples, stream(3), &mut gradient);
        losses
            .iter()
            .chain(&gradient)
            .map(|v| v.to_bits())
            .collect()
    }

    #[test]
    fn gradient_has_the_same_bits_in_every_run_and_on_any_number_of_threads() {
        for rows in [2 * PART_ROWS + 100, 37] {
            let first = bits(1, rows, 0.2);
            for threads in [0, 1, 2, 3, 4, 2, 2] {
                assert!(
                    bits(threads, rows, 0.2) == first,
                    "{threads} threads, {rows} rows"
                );
            }
            for pool in [1, 2, 5] {
                let pool = ThreadPoolBuilder::new().num_threads(pool).build().unwrap();
                assert!(pool.install(|| bits(1, rows, 0.2)) == first, "{pool:?}");
            }
        }
    }

    #[test]
    fn dropout_follows_the_step_and_is_off_in_prediction() {
        let engine = engine(8, &[64], 1, 0.5, LossKind::Mse);
        let bucket = engine.model().initial(Seed::new(2));
        let (x, y) = (uniform(8 * 16, 56), uniform(16, 57));
        let samples = Samples {
            x: &x,
            features: 8,
            targets: Targets::Numbers(&y),
        };
        let losses = |step| {
            engine.loss_and_gradient(&bucket, samples, stream(step), &mut vec![0.0; bucket.len()])
        };
        assert_eq!(losses(1), losses(1));
        assert_ne!(losses(1), losses(2));
        assert_eq!(
            engine.predict(&bucket, samples),
            engine.predict(&bucket, samples)
        );
        assert_ne!(engine.predict(&bucket, samples).losses, losses(1));
    }

    #[test]
    fn prediction_of_many_rows_comes_in_row_order() {
        let engine = engine(1, &[], 1, 0.0, LossKind::Mse);
        let rows = u16::try_from(5 * PART_ROWS + 1).unwrap();
        let x: Vec<f32> = (0..rows).map(f32::from).collect();
        let samples = Samples {
            x: &x,
            features: 1,
            targets: Targets::Numbers(&x),
        };
        assert_eq!(engine.predict(&[1.0, 0.0], samples).outputs, x);
    }

    #[test]
    #[ignore = "a measurement, not a check"]
    fn steps_per_second() {
        use crate::optimizer::{AdamW, AdamWSettings};
        use feedline_storage::clock::{Clock, SystemClock};
        let clock = SystemClock;
        for (threads, rows, dropout) in [
            (1, 256, 0.0),
            (2, 256, 0.0),
            (1, 4096, 0.0),
            (2, 4096, 0.0),
            (2, 4096, 0.1),
        ] {
            let model = engine(64, &[256, 256], 1, dropout, LossKind::Mse).model;
            let engine = Engine::with_threads(model, LossKind::Mse, threads);
            let mut bucket = engine.model().initial(Seed::new(2));
            let (x, y) = (uniform(64 * rows, 54), uniform(rows, 55));
            let samples = Samples {
                x: &x,
                features: 64,
                targets: Targets::Numbers(&y),
            };
            let mut gradient = vec![0.0; bucket.len()];
            let settings = AdamWSettings {
                beta1: 0.9,
                beta2: 0.999,
                epsilon: 1e-8,
                weight_decay: 0.01,
            };
            let mut optimizer = AdamW::new(settings, bucket.len());
            let steps = if rows > 1000 { 30 } else { 300 };
            let (mut engine_time, mut rest) = (0.0, 0.0);
            for step in 1..=steps {
                let start = clock.monotonic();
                engine.loss_and_gradient(&bucket, samples, stream(step), &mut gradient);
                let middle = clock.monotonic();
                crate::clip::global_norm(&gradient);
                optimizer.step(
                    engine.model().parameters(),
                    &mut bucket,
                    &gradient,
                    step,
                    1e-3,
                    1.0,
                );
                engine_time += (middle - start).as_secs_f64();
                rest += (clock.monotonic() - middle).as_secs_f64();
            }
            let per = 1e3 / f64::from(u32::try_from(steps).unwrap());
            println!(
                "threads {threads}, rows {rows}, dropout {dropout}: {:.2} ms gradient, {:.2} ms optimizer",
                engine_time * per,
                rest * per
            );
        }
    }
}
