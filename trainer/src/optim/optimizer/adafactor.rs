//! Adafactor (Shazeer and Stern 2018, arXiv 1804.04235, algorithm 4) in PyTorch's form.
//!
//! A parameter of shape `[.., rows, columns]` keeps one second moment per row and one per column of each of its
//! matrices, and their product over the rows' mean approximates all of them; a vector keeps one per
//! element. With
//! `t` the step: the decay is `1 - t ^ beta2_decay`, the rate `min(rate, 1 / sqrt(t))` times the root mean square of
//! the weights, at least `epsilon_scale`; an update whose root mean square is above `update_clip` is scaled down to
//! it. Epsilon is that of f32; its square bounds the second moment from below.

use burn::tensor::Tensor;
use rayon::prelude::*;

use super::{
    algorithm::{Algorithm, DeviceUpdate, PIECE, Penalty, Update},
    device_sums,
};
use crate::{
    float_casts::{exact, single},
    model::interface::Parameter,
    optim::clip::sum_of_squares,
};

/// The algorithm.
#[derive(Clone, Copy, Debug)]
pub(super) struct Adafactor {
    pub(super) beta2_decay: f64,
    pub(super) epsilon_scale: f64,
    pub(super) update_clip: f64,
}

/// The last two sizes of a shape, and how many matrices of them there are; `None` for a vector.
fn matrices(shape: &[usize]) -> Option<(usize, usize, usize)> {
    let [front @ .., rows, columns] = shape else {
        return None;
    };
    Some((front.iter().product(), *rows, *columns))
}

impl Algorithm for Adafactor {
    fn state(&self, parameter: &Parameter) -> Vec<(&'static str, usize)> {
        let [rows, columns, elements] = match matrices(&parameter.shape) {
            Some((count, rows, columns)) => [count * rows, count * columns, 0],
            None => [0, 0, parameter.range.len()],
        };
        vec![
            ("row_moment", rows),
            ("column_moment", columns),
            ("second_moment", elements),
        ]
    }

    fn step(&self, of: &Update<'_>, weights: &mut [f32], state: &mut [&mut [f32]]) {
        let [rows, columns, elements] = state else {
            unreachable!("three moments")
        };
        let count = exact(weights.len() as u64);
        let t = exact(of.step);
        let one_minus_beta2 = single(t.powf(self.beta2_decay));
        let rms = (sum_of_squares(weights) / count).sqrt();
        let step_size = rms.max(self.epsilon_scale) * of.rate.min(1.0 / t.sqrt());
        let keep = single(1.0 - of.rate * of.weight_decay);

        // The gradient is that of the weights before decay, as with the other optimizers.
        let mut update = of.gradient.to_vec();
        penalize(&mut update, weights, of.penalty);
        weights
            .par_chunks_mut(PIECE)
            .for_each(|piece| piece.iter_mut().for_each(|w| *w *= keep));
        match matrices(of.shape) {
            Some((_, 0, _) | (_, _, 0)) => return,
            Some((_, height, width)) => {
                let size = height * width;
                let of_rows = rows.chunks_exact_mut(height);
                let of_columns = columns.chunks_exact_mut(width);
                for ((matrix, rows), columns) in
                    update.chunks_exact_mut(size).zip(of_rows).zip(of_columns)
                {
                    factored(matrix, rows, columns, one_minus_beta2);
                }
            }
            None => whole(&mut update, elements, one_minus_beta2),
        }
        let rms = (sum_of_squares(&update) / count).sqrt();
        let scale = single(step_size / (rms / self.update_clip).max(1.0));
        weights
            .par_chunks_mut(PIECE)
            .zip(update.par_chunks(PIECE))
            .for_each(|(weights, update)| {
                for (w, u) in weights.iter_mut().zip(update) {
                    *w -= scale * u;
                }
            });
    }

    fn step_on_device(
        &self,
        of: DeviceUpdate<'_>,
        weights: Tensor<1>,
        state: &mut [Tensor<1>],
    ) -> Tensor<1> {
        let device = weights.device();
        let t = exact(of.step);
        let share = t.powf(self.beta2_decay);
        let (mut updates, mut moments) = (Vec::new(), [Vec::new(), Vec::new(), Vec::new()]);
        for (entry, member) in of.members.iter().enumerate() {
            if of.pack.len_of(entry) == 0 {
                continue;
            }
            let view = |i: usize| of.places[i].view(&state[i], entry);
            let gradient = of.pack.view(&of.gradient, entry);
            let update = match matrices(&member.shape) {
                Some(sizes) => {
                    let [rows, columns, update] =
                        factored_on_device(gradient, sizes, [view(0), view(1)], share);
                    moments[0].push((entry, rows));
                    moments[1].push((entry, columns));
                    update
                }
                None => {
                    let square = gradient.clone() * gradient.clone();
                    let moment = view(2).clone() + (square - view(2)) * share;
                    moments[2].push((entry, moment.clone()));
                    gradient / moment.clamp_min(FLOOR).sqrt()
                }
            };
            let rate = (of.rate * member.rate_factor).min(1.0 / t.sqrt());
            let rms = root_mean_square(of.pack.view(&weights, entry));
            let step_size = rms.clamp_min(self.epsilon_scale) * rate;
            let too_long = root_mean_square(update.clone()) / self.update_clip;
            updates.push((entry, update * (step_size / too_long.clamp_min(1.0))));
        }
        for (i, moments) in moments.into_iter().enumerate() {
            state[i] = of.places[i].join(moments, &device);
        }
        of.decayed(weights) - of.pack.join(updates, &device)
    }
}

fn penalize(gradient: &mut [f32], weights: &[f32], penalty: Penalty) {
    gradient
        .par_chunks_mut(PIECE)
        .zip(weights.par_chunks(PIECE))
        .for_each(|(gradients, weights)| {
            for (g, &w) in gradients.iter_mut().zip(weights) {
                *g = penalty.gradient(*g, w);
            }
        });
}

/// Moves `moment` towards `value`.
fn approach(moment: &mut f32, value: f64, share: f32) {
    *moment += share * (single(value) - *moment);
}

/// Divides a gradient by the root of its second moment, after that has learnt of it.
fn whole(gradient: &mut [f32], moments: &mut [f32], share: f32) {
    gradient
        .par_chunks_mut(PIECE)
        .zip(moments.par_chunks_mut(PIECE))
        .for_each(|(gradients, moments)| {
            for (g, v) in gradients.iter_mut().zip(moments) {
                approach(v, f64::from(*g) * f64::from(*g), share);
                *g /= v.max(FLOOR).sqrt();
            }
        });
}

/// Second moments of rows and columns of `count` matrices of `height` times `width`, and the gradient divided by the root
/// of what these make of its second moment; all flat.
fn factored_on_device(
    gradient: Tensor<1>,
    (count, height, width): (usize, usize, usize),
    [rows, columns]: [Tensor<1>; 2],
    share: f64,
) -> [Tensor<1>; 3] {
    let len = count * height * width;
    let gradient = gradient.reshape([count, height, width]);
    let square = gradient.clone() * gradient.clone();
    let rows = rows.reshape([count, height, 1]);
    let rows = rows.clone() + (square.clone().mean_dim(2) - rows) * share;
    let columns = columns.reshape([count, 1, width]);
    let columns = columns.clone() + (square.mean_dim(1) - columns) * share;
    let mean = rows.clone().mean_dim(1).clamp_min(f32::EPSILON);
    let moment = rows.clone() / mean * columns.clone();
    let update = gradient / moment.clamp_min(FLOOR).sqrt();
    [
        rows.reshape([count * height]),
        columns.reshape([count * width]),
        update.reshape([len]),
    ]
}

fn root_mean_square(x: Tensor<1>) -> Tensor<1> {
    let count = exact(x.dims()[0] as u64);
    (device_sums::total(x.clone() * x) / count).sqrt()
}

const FLOOR: f32 = f32::EPSILON * f32::EPSILON;

/// The same for a matrix, whose second moment is `rows * columns / mean(rows)`.
fn factored(matrix: &mut [f32], rows: &mut [f32], columns: &mut [f32], share: f32) {
    let width = columns.len();
    let (height, exact_width) = (exact(rows.len() as u64), exact(width as u64));
    rows.par_iter_mut()
        .zip(matrix.par_chunks_exact(width))
        .for_each(|(moment, row)| approach(moment, squares(row) / exact_width, share));
    // Each task adds up some columns, row after row.
    columns
        .par_chunks_mut(64)
        .enumerate()
        .for_each(|(i, moments)| {
            let mut sums = [0.0_f64; 64];
            for row in matrix.chunks_exact(width) {
                for (sum, &g) in sums.iter_mut().zip(&row[64 * i..]) {
                    *sum += f64::from(g) * f64::from(g);
                }
            }
            for (moment, sum) in moments.iter_mut().zip(sums) {
                approach(moment, sum / height, share);
            }
        });
    let mean = rows.iter().map(|&r| f64::from(r)).sum::<f64>() / height;
    let mean = single(mean).max(f32::EPSILON);
    let columns = &*columns;
    matrix
        .par_chunks_exact_mut(width)
        .zip(&*rows)
        .for_each(|(row, of_row)| {
            for (g, of_column) in row.iter_mut().zip(columns) {
                *g /= (of_row * of_column / mean).max(FLOOR).sqrt();
            }
        });
}

fn squares(row: &[f32]) -> f64 {
    row.iter().map(|&g| f64::from(g) * f64::from(g)).sum()
}
