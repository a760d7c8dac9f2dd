//! Sums and lengths of vectors, in an order that follows from their lengths.
//!
//! With n threads, each takes in every n-th number of the vector, so that neighbours read neighbours.
//! Their results are reduced in the same way, until one number is left.

use burn::tensor::Tensor as DeviceTensor;
use cubecl::prelude::*;

use super::launched;

/// Numbers that a thread takes in.
const RUN: usize = 128;

/// The sum of a vector, `[1]`.
pub(crate) fn total(x: &DeviceTensor<1>) -> Option<DeviceTensor<1>> {
    let device = x.device();
    let mut x = launched::of(x)?;
    let mut len = x.meta.shape().num_elements();
    if len == 0 {
        return None;
    }
    while len > 1 {
        let threads = len.div_ceil(RUN);
        let sums = launched::empty(threads, &device)?;
        let (cubes, dim) = launched::threads(&sums, threads);
        add_runs::launch(
            &sums.client,
            cubes,
            dim,
            x.into_tensor_arg(),
            sums.clone().into_tensor_arg(),
        );
        (x, len) = (sums, threads);
    }
    Some(launched::tensor(x))
}

/// The Euclidean length of a vector, `[1]`. Not finite when an element is not; elements up to the largest f32 do not
/// overflow.
pub(crate) fn length(x: &DeviceTensor<1>) -> Option<DeviceTensor<1>> {
    let device = x.device();
    let x = launched::of(x)?;
    let len = x.meta.shape().num_elements();
    if len == 0 {
        return None;
    }
    let mut threads = len.div_ceil(RUN);
    let empty = |threads| {
        Some([
            launched::empty(threads, &device)?,
            launched::empty(threads, &device)?,
        ])
    };
    let [mut largest, mut squares] = empty(threads)?;
    let (cubes, dim) = launched::threads(&largest, threads);
    measure_runs::launch(
        &largest.client,
        cubes,
        dim,
        x.into_tensor_arg(),
        largest.clone().into_tensor_arg(),
        squares.clone().into_tensor_arg(),
    );
    loop {
        let merged = threads.div_ceil(RUN);
        let [new_largest, new_squares] = empty(merged)?;
        let (cubes, dim) = launched::threads(&new_largest, merged);
        merge_runs::launch(
            &new_largest.client,
            cubes,
            dim,
            largest.into_tensor_arg(),
            squares.into_tensor_arg(),
            new_largest.clone().into_tensor_arg(),
            new_squares.clone().into_tensor_arg(),
            merged == 1,
        );
        if merged == 1 {
            return Some(launched::tensor(new_squares));
        }
        (largest, squares, threads) = (new_largest, new_squares, merged);
    }
}

/// Sum of each thread's numbers.
#[cube(launch)]
fn add_runs(x: &Tensor<f32>, sums: &mut Tensor<f32>) {
    let threads = sums.len();
    if ABSOLUTE_POS >= threads {
        terminate!();
    }
    let mut sum = x[ABSOLUTE_POS];
    let mut i = ABSOLUTE_POS + threads;
    while i < x.len() {
        sum += x[i];
        i += threads;
    }
    sums[ABSOLUTE_POS] = sum;
}

/// Size of each thread's largest number, and the sum of the squares of its numbers divided by it.
#[cube(launch)]
fn measure_runs(x: &Tensor<f32>, largest: &mut Tensor<f32>, squares: &mut Tensor<f32>) {
    let threads = largest.len();
    if ABSOLUTE_POS >= threads {
        terminate!();
    }
    let mut most = max(x[ABSOLUTE_POS].abs(), f32::MIN_POSITIVE);
    let mut i = ABSOLUTE_POS + threads;
    while i < x.len() {
        most = max(most, x[i].abs());
        i += threads;
    }
    let first = x[ABSOLUTE_POS] / most;
    let mut sum = first * first;
    i = ABSOLUTE_POS + threads;
    while i < x.len() {
        let share = x[i] / most;
        sum += share * share;
        i += threads;
    }
    largest[ABSOLUTE_POS] = most;
    squares[ABSOLUTE_POS] = sum;
}

/// The same of what other threads found; in the last stage the length.
#[cube(launch)]
fn merge_runs(
    of_largest: &Tensor<f32>,
    of_squares: &Tensor<f32>,
    largest: &mut Tensor<f32>,
    squares: &mut Tensor<f32>,
    #[comptime] is_last: bool,
) {
    let threads = largest.len();
    if ABSOLUTE_POS >= threads {
        terminate!();
    }
    let mut most = of_largest[ABSOLUTE_POS];
    let mut i = ABSOLUTE_POS + threads;
    while i < of_largest.len() {
        most = max(most, of_largest[i]);
        i += threads;
    }
    let first = of_largest[ABSOLUTE_POS] / most;
    let mut sum = of_squares[ABSOLUTE_POS] * first * first;
    i = ABSOLUTE_POS + threads;
    while i < of_largest.len() {
        let share = of_largest[i] / most;
        sum += of_squares[i] * share * share;
        i += threads;
    }
    largest[ABSOLUTE_POS] = most;
    if comptime!(is_last) {
        squares[ABSOLUTE_POS] = sum.sqrt() * most;
    } else {
        squares[ABSOLUTE_POS] = sum;
    }
}
