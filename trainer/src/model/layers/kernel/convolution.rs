//! Convolution of images as products of matrices.
//!
//! An image is padded, and each of the `channels * size * size` places of the window gives one row
//! of a matrix: the pixels under that place as the window moves (Chellapilla, Puri, Simard 2006).
//! At stride 1 that is one run of the padded plane, which costs a few columns more than outputs,
//! those where the window reaches over a line's end; they are left out of the output and are 0 in
//! its gradient. Several small images are placed side by side in one matrix.
//!
//! The matrix is made again for the gradients rather than kept: it is `size * size` times as large as the images.
//! Gradients of the weights are added image by image, in order.

use burn::{
    backend::{Flex, flex::FlexTensor, ops::FloatTensorOps},
    tensor::{Tensor, module, ops::ConvOptions},
};
use macerator::{AutoArch, Simd, WithSimd};

use super::{
    super::window::SlidingWindow, Kernel, Operand, apply, contiguous, math, shape, tensor,
};
use crate::float_casts::single;

/// Columns that a matrix has at least, where there are images enough.
const COLUMNS: usize = 256;

/// A convolution of `[rows, in, height, width]` by `[out, in, size, size]`, with `[out]` added: `[rows, out, ..]`.
pub(in super::super) fn convolve(
    x: Tensor<4>,
    weight: Tensor<4>,
    bias: Option<Tensor<1>>,
    window: SlidingWindow,
) -> Tensor<4> {
    let kernel = Convolution(window);
    let of_bias = bias.as_ref().map(Operand::of);
    match (Operand::of(&x), Operand::of(&weight), of_bias) {
        (Some(x), Some(weight), None) => apply(&kernel, [x, weight]),
        (Some(x), Some(weight), Some(Some(bias))) => apply(&kernel, [x, weight, bias]),
        _ => {
            let (stride, padding) = ([window.stride; 2], [window.padding; 2]);
            let options = ConvOptions::new(stride, padding, [1, 1], 1);
            module::conv2d(x, weight, bias, options)
        }
    }
}

#[derive(Clone, Debug)]
struct Convolution(SlidingWindow);

impl Kernel<2> for Convolution {
    type Kept = [FlexTensor; 2];

    fn value(&self, [x, weight]: [FlexTensor; 2]) -> (FlexTensor, [FlexTensor; 2]) {
        let (x, weight) = (contiguous(x), contiguous(weight));
        (forward(self.0, &x, &weight, None), [x, weight])
    }

    fn gradients(
        &self,
        kept: [FlexTensor; 2],
        gradient: FlexTensor,
        wanted: [bool; 2],
    ) -> [Option<FlexTensor>; 2] {
        backward(self.0, &kept, &contiguous(gradient), wanted)
    }
}

impl Kernel<3> for Convolution {
    type Kept = [FlexTensor; 2];

    fn value(&self, [x, weight, bias]: [FlexTensor; 3]) -> (FlexTensor, [FlexTensor; 2]) {
        let (x, weight) = (contiguous(x), contiguous(weight));
        (
            forward(self.0, &x, &weight, Some(contiguous(bias).storage())),
            [x, weight],
        )
    }

    fn gradients(
        &self,
        kept: [FlexTensor; 2],
        gradient: FlexTensor,
        [x, weight, bias]: [bool; 3],
    ) -> [Option<FlexTensor>; 3] {
        let gradient = contiguous(gradient);
        let of_bias = bias.then(|| sums_of_channels(&gradient));
        let [x, weight] = backward(self.0, &kept, &gradient, [x, weight]);
        [x, weight, of_bias]
    }
}

/// Layout of images as columns.
#[derive(Clone, Copy, Debug)]
struct ColumnPlan {
    window: SlidingWindow,
    channels: usize,
    sides: [usize; 2],
    padded: [usize; 2],
    outputs: usize,
    output_sides: [usize; 2],
    /// Columns from one line of the output to the next.
    pitch: usize,
    /// Columns of an image.
    columns: usize,
    /// Images in a matrix.
    together: usize,
}

impl ColumnPlan {
    fn new(window: SlidingWindow, x: &FlexTensor, weight: &FlexTensor) -> Self {
        let [_, channels, height, width] = shape(x);
        let [outputs, ..] = shape::<4>(weight);
        let sides = [height, width];
        let padded = sides.map(|side| side + 2 * window.padding);
        let output_sides = sides.map(|side| window.places(side));
        let [down, across] = output_sides;
        let pitch = if window.stride == 1 {
            padded[1]
        } else {
            across
        };
        let columns = (down - 1) * pitch + across;
        Self {
            window,
            channels,
            sides,
            padded,
            outputs,
            output_sides,
            pitch,
            columns,
            together: (COLUMNS / columns).max(1),
        }
    }

    /// Rows of the matrix.
    const fn rows(&self) -> usize {
        self.channels * self.window.size * self.window.size
    }

    /// Numbers of an image.
    const fn image(&self) -> usize {
        self.channels * self.sides[0] * self.sides[1]
    }

    /// Numbers of an image's output.
    const fn output(&self) -> usize {
        self.outputs * self.output_sides[0] * self.output_sides[1]
    }

    /// Numbers of a padded image.
    const fn padded(&self) -> usize {
        self.channels * self.padded[0] * self.padded[1]
    }

    /// The matrix of the weights, `[outputs, rows]`.
    fn weights(&self, weight: &FlexTensor) -> FlexTensor {
        weight.reshape([self.outputs, self.rows()].into())
    }

    /// For each line of an image: where it begins, and where in the padded one.
    fn lines(&self) -> impl Iterator<Item = [usize; 2]> {
        let [height, width] = self.sides;
        let ([down, across], padding) = (self.padded, self.window.padding);
        (0..self.channels * height).map(move |line| {
            let (channel, y) = (line / height, line % height);
            [
                line * width,
                (channel * down + y + padding) * across + padding,
            ]
        })
    }

    /// For each row of the matrix, where in a padded image it begins.
    fn begins(&self) -> impl Iterator<Item = usize> {
        let ([down, across], size) = (self.padded, self.window.size);
        (0..self.rows()).map(move |row| {
            let (channel, place) = (row / (size * size), row % (size * size));
            (channel * down + place / size) * across + place % size
        })
    }

    /// Fills the columns of a matrix with images. `padded` is one padded image.
    fn fill(&self, images: &[f32], padded: &mut [f32], matrix: &mut [f32]) {
        let width = matrix.len() / self.rows();
        for (i, image) in images.chunks_exact(self.image()).enumerate() {
            for [plain, at] in self.lines() {
                let line = &image[plain..plain + self.sides[1]];
                padded[at..at + line.len()].copy_from_slice(line);
            }
            for (begin, row) in self.begins().zip(matrix.chunks_exact_mut(width)) {
                let row = &mut row[i * self.columns..(i + 1) * self.columns];
                let seen = &padded[begin..];
                if self.window.stride == 1 {
                    row.copy_from_slice(&seen[..self.columns]);
                } else {
                    for (y, line) in row.chunks_exact_mut(self.pitch).enumerate() {
                        let seen = seen[y * self.window.stride * self.padded[1]..].iter();
                        for (number, seen) in line.iter_mut().zip(seen.step_by(self.window.stride))
                        {
                            *number = *seen;
                        }
                    }
                }
            }
        }
    }

    /// The reverse of [`fill`](Self::fill): adds the columns of a matrix where they came from. `padded` is memory of one
    /// padded image.
    fn add_up(&self, matrix: &[f32], padded: &mut [f32], images: &mut [f32]) {
        let width = matrix.len() / self.rows();
        for (i, image) in images.chunks_exact_mut(self.image()).enumerate() {
            padded.fill(0.0);
            for (begin, row) in self.begins().zip(matrix.chunks_exact(width)) {
                let row = &row[i * self.columns..(i + 1) * self.columns];
                let seen = &mut padded[begin..];
                if self.window.stride == 1 {
                    for (seen, number) in seen.iter_mut().zip(row) {
                        *seen += number;
                    }
                } else {
                    for (y, line) in row.chunks_exact(self.pitch).enumerate() {
                        let seen = seen[y * self.window.stride * self.padded[1]..].iter_mut();
                        for (seen, number) in seen.step_by(self.window.stride).zip(line) {
                            *seen += number;
                        }
                    }
                }
            }
            for [plain, at] in self.lines() {
                let line = &mut image[plain..plain + self.sides[1]];
                line.copy_from_slice(&padded[at..at + self.sides[1]]);
            }
        }
    }

    /// For each line of images' outputs: its channel, where it begins, and where it begins in a matrix of `width`.
    fn output_lines(&self, images: usize, width: usize) -> impl Iterator<Item = [usize; 3]> {
        let [down, across] = self.output_sides;
        (0..images * self.outputs * down).map(move |line| {
            let (y, plane) = (line % down, line / down);
            let (channel, image) = (plane % self.outputs, plane / self.outputs);
            let at = channel * width + image * self.columns + y * self.pitch;
            [channel, line * across, at]
        })
    }
}

fn forward(
    window: SlidingWindow,
    x: &FlexTensor,
    weight: &FlexTensor,
    bias: Option<&[f32]>,
) -> FlexTensor {
    let plan = ColumnPlan::new(window, x, weight);
    let weights = plan.weights(weight);
    let rows = shape::<4>(x)[0];
    let mut values = vec![0.0; rows * plan.output()];
    let mut padded = vec![0.0; plan.padded()];
    let mut matrix = Matrix::new(plan.rows());
    // The library chooses how it multiplies by the number of columns, so the last matrix has those of the others: an image
    // has the same bits wherever it is.
    let width = plan.together.min(rows) * plan.columns;
    let images = x.storage::<f32>().chunks(plan.together * plan.image());
    for (images, values) in images.zip(values.chunks_mut(plan.together * plan.output())) {
        let count = images.len() / plan.image();
        let columns = matrix.of(width);
        AutoArch::new().dispatch(ColumnFill(
            &plan,
            images,
            &mut padded,
            columns.storage_mut(),
        ));
        let product = Flex::float_matmul(weights.clone(), columns.clone());
        let found: &[f32] = product.storage();
        for [channel, to, from] in plan.output_lines(count, width) {
            let across = plan.output_sides[1];
            let bias = bias.map_or(0.0, |bias| bias[channel]);
            let line = values[to..to + across].iter_mut();
            for (value, found) in line.zip(&found[from..from + across]) {
                *value = found + bias;
            }
        }
    }
    let [down, across] = plan.output_sides;
    tensor(values, [rows, plan.outputs, down, across])
}

/// The gradients of the input and of the weights.
fn backward(
    window: SlidingWindow,
    [x, weight]: &[FlexTensor; 2],
    gradient: &FlexTensor,
    wanted: [bool; 2],
) -> [Option<FlexTensor>; 2] {
    let plan = ColumnPlan::new(window, x, weight);
    let across = plan.output_sides[1];
    let transposed = Flex::float_swap_dims(plan.weights(weight), 0, 1);
    let mut of_x = vec![
        0.0;
        if wanted[0] {
            x.storage::<f32>().len()
        } else {
            0
        }
    ];
    let mut of_weight = vec![0.0; plan.outputs * plan.rows()];
    let mut padded = vec![0.0; plan.padded()];
    let mut summed = vec![0.0; plan.padded()];
    let mut matrix = Matrix::new(plan.rows());
    let mut outputs = Matrix::new(plan.outputs);
    let gradients = gradient
        .storage::<f32>()
        .chunks(plan.together * plan.output());
    let images = x.storage::<f32>().chunks(plan.together * plan.image());
    for (i, (images, gradients)) in images.zip(gradients).enumerate() {
        let count = images.len() / plan.image();
        let width = count * plan.columns;
        let spread = outputs.of(width);
        let numbers: &mut [f32] = spread.storage_mut();
        for [_, from, to] in plan.output_lines(count, width) {
            numbers[to..to + across].copy_from_slice(&gradients[from..from + across]);
        }
        if wanted[1] {
            let columns = matrix.of(width);
            AutoArch::new().dispatch(ColumnFill(
                &plan,
                images,
                &mut padded,
                columns.storage_mut(),
            ));
            let seen = Flex::float_swap_dims(columns.clone(), 0, 1);
            let product = Flex::float_matmul(spread.clone(), seen);
            AutoArch::new().dispatch(Add(product.storage(), &mut of_weight));
        }
        if wanted[0] {
            let product = Flex::float_matmul(transposed.clone(), spread.clone());
            let begin = i * plan.together * plan.image();
            let of_images = &mut of_x[begin..begin + images.len()];
            AutoArch::new().dispatch(AddUp(&plan, product.storage(), &mut summed, of_images));
        }
    }
    [
        wanted[0].then(|| tensor(of_x, shape::<4>(x))),
        wanted[1].then(|| tensor(of_weight, shape::<4>(weight))),
    ]
}

/// The sum of each channel of `[rows, channels, height, width]`, planes in f32 and over them in f64.
fn sums_of_channels(x: &FlexTensor) -> FlexTensor {
    let [_, channels, height, width] = shape(x);
    let mut sums = vec![0.0_f64; channels];
    for image in x.storage::<f32>().chunks_exact(channels * height * width) {
        for (sum, plane) in sums.iter_mut().zip(image.chunks_exact(height * width)) {
            *sum += f64::from(AutoArch::new().dispatch(SimdSum(plane)));
        }
    }
    tensor(sums.into_iter().map(single).collect(), [channels])
}

/// Memory of a matrix, for one after another.
struct Matrix {
    rows: usize,
    memory: FlexTensor,
}

impl Matrix {
    fn new(rows: usize) -> Self {
        let memory = tensor(Vec::new(), [rows, 0]);
        Self { rows, memory }
    }

    /// `[rows, columns]`: 0, or what it held before when it had as many columns.
    fn of(&mut self, columns: usize) -> &mut FlexTensor {
        if shape(&self.memory) != [self.rows, columns] {
            self.memory = tensor(vec![0.0; self.rows * columns], [self.rows, columns]);
        }
        &mut self.memory
    }
}

struct ColumnFill<'a>(&'a ColumnPlan, &'a [f32], &'a mut [f32], &'a mut [f32]);

impl WithSimd for ColumnFill<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self) {
        self.0.fill(self.1, self.2, self.3);
    }
}

struct AddUp<'a>(&'a ColumnPlan, &'a [f32], &'a mut [f32], &'a mut [f32]);

impl WithSimd for AddUp<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self) {
        self.0.add_up(self.1, self.2, self.3);
    }
}

struct Add<'a>(&'a [f32], &'a mut [f32]);

impl WithSimd for Add<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self) {
        for (sum, number) in self.1.iter_mut().zip(self.0) {
            *sum += number;
        }
    }
}

struct SimdSum<'a>(&'a [f32]);

impl WithSimd for SimdSum<'_> {
    type Output = f32;

    #[inline(always)]
    fn with_simd<S: Simd>(self) -> f32 {
        math::sum(self.0)
    }
}
