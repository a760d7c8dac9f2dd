//! Convolution and pooling over `[rows, channels, height, width]`.

use burn::tensor::{Tensor, module, ops::AvgPoolOptions};

use super::{Builder, Gain, Initial, Pass, Slot, in_f32, kernel, window::SlidingWindow};

/// A convolution: `weight: [out, in, size, size]`, `bias: [out]` if it has one.
#[derive(Clone, Debug)]
pub struct Conv2d {
    weight: Slot,
    bias: Option<Slot>,
    window: SlidingWindow,
    output: [usize; 3],
}

impl Conv2d {
    /// A convolution of images `[channels, height, width]` to `out` channels by a window
    /// `[size, stride]`: so many pixels a side, moved by so many. The image is padded with zeros by
    /// `size / 2`, so that an odd size at stride 1 keeps its sides. It has a bias.
    pub fn new(
        builder: &mut Builder,
        name: &str,
        sizes: [usize; 3],
        out: usize,
        window: [usize; 2],
        gain: Gain,
    ) -> Self {
        let window = SlidingWindow::centred(window);
        Self::build(builder, name, sizes, out, window, gain, true)
    }

    /// The same without a bias, for a convolution before a norm, which has one.
    pub fn without_bias(
        builder: &mut Builder,
        name: &str,
        sizes: [usize; 3],
        out: usize,
        window: [usize; 2],
        gain: Gain,
    ) -> Self {
        let window = SlidingWindow::centred(window);
        Self::build(builder, name, sizes, out, window, gain, false)
    }

    /// Cuts images into patches of `size` pixels a side, next to each other, and maps each to `out` numbers.
    pub fn patches(
        builder: &mut Builder,
        name: &str,
        sizes: [usize; 3],
        out: usize,
        size: usize,
        gain: Gain,
    ) -> Self {
        let window = SlidingWindow::inside([size; 2]);
        Self::build(builder, name, sizes, out, window, gain, true)
    }

    fn build(
        builder: &mut Builder,
        name: &str,
        [channels, height, width]: [usize; 3],
        out: usize,
        window: SlidingWindow,
        gain: Gain,
        bias: bool,
    ) -> Self {
        let size = window.size;
        let (fan_in, fan_out) = (channels * size * size, out * size * size);
        let initial = gain.initial(fan_in, fan_out);
        let (weight, bias) = builder.within(name, |b| {
            let weight = b.parameter("weight", &[out, channels, size, size], true, initial);
            let bias = bias.then(|| b.parameter("bias", &[out], false, Initial::Constant(0.0)));
            (weight, bias)
        });
        let output = [out, window.places(height), window.places(width)];
        let parameters = out * fan_in + if bias.is_some() { out } else { 0 };
        let kind = if window.stride > 1 {
            format!("conv {size}x{size} /{}", window.stride)
        } else {
            format!("conv {size}x{size}")
        };
        builder.note(name, kind, &output, parameters, channels * height * width);
        Self {
            weight,
            bias,
            window,
            output,
        }
    }

    /// Sizes of the output for one sample, `[channels, height, width]`.
    #[must_use]
    pub const fn output(&self) -> [usize; 3] {
        self.output
    }

    /// `[rows, in, height, width]` to `[rows, out, ..]`.
    #[must_use]
    pub fn forward(&self, pass: &Pass<'_>, x: Tensor<4>) -> Tensor<4> {
        let given = x.dtype();
        let bias = self.bias.map(|slot| pass.for_product(pass.parameter(slot)));
        let weight = pass.for_product(pass.parameter(self.weight));
        kernel::convolve(pass.for_product(x), weight, bias, self.window).cast(given)
    }
}

/// The largest number of each window.
#[derive(Clone, Copy, Debug)]
pub struct MaxPool {
    window: SlidingWindow,
    output: [usize; 3],
}

impl MaxPool {
    /// Over windows of `size` pixels a side that move by `stride`, with a padding of `padding`, at
    /// most half of the size, that no window takes its number from.
    pub fn new(
        builder: &mut Builder,
        name: &str,
        sizes: [usize; 3],
        [size, stride, padding]: [usize; 3],
    ) -> Self {
        let window = SlidingWindow {
            size,
            stride,
            padding,
        };
        let output = pooled(builder, name, "max", sizes, window);
        Self { window, output }
    }

    /// Sizes of the output for one sample.
    #[must_use]
    pub const fn output(&self) -> [usize; 3] {
        self.output
    }

    /// Pools `[rows, channels, height, width]`.
    #[must_use]
    pub fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        kernel::largest(x, self.window)
    }
}

/// The mean of each window.
#[derive(Clone, Copy, Debug)]
pub struct AveragePool {
    window: SlidingWindow,
    output: [usize; 3],
}

impl AveragePool {
    /// Over windows `[size, stride]`: of so many pixels a side, moved by so many.
    pub fn new(builder: &mut Builder, name: &str, sizes: [usize; 3], window: [usize; 2]) -> Self {
        let window = SlidingWindow::inside(window);
        let output = pooled(builder, name, "average", sizes, window);
        Self { window, output }
    }

    /// Sizes of the output for one sample.
    #[must_use]
    pub const fn output(&self) -> [usize; 3] {
        self.output
    }

    /// Pools `[rows, channels, height, width]`.
    #[must_use]
    pub fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let SlidingWindow { size, stride, .. } = self.window;
        module::avg_pool2d(x, AvgPoolOptions::new([size; 2]).with_stride([stride; 2]))
    }
}

fn pooled(
    builder: &mut Builder,
    name: &str,
    kind: &str,
    [channels, height, width]: [usize; 3],
    window: SlidingWindow,
) -> [usize; 3] {
    let output = [channels, window.places(height), window.places(width)];
    let kind = format!("{kind} pool {0}x{0} /{1}", window.size, window.stride);
    builder.note(name, kind, &output, 0, channels * height * width);
    output
}

/// The mean of each channel, `[rows, channels]`.
#[must_use]
pub fn global_average(x: Tensor<4>) -> Tensor<2> {
    let given = x.dtype();
    let [rows, channels, height, width] = x.dims();
    in_f32(x)
        .reshape([rows, channels, height * width])
        .mean_dim(2)
        .reshape([rows, channels])
        .cast(given)
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;
    use crate::model::layers::check::{self, check};

    #[test]
    fn gradients_of_convolutions_equal_finite_differences() {
        check(
            [2, 2, 5, 4],
            |b| Conv2d::new(b, "c", [2, 5, 4], 3, [3, 1], Gain::He),
            |c, pass, x| c.forward(pass, x),
        );
        // More images than are computed together, and a rest.
        check(
            [21, 2, 3, 4],
            |b| Conv2d::without_bias(b, "c", [2, 3, 4], 2, [3, 1], Gain::He),
            |c, pass, x| c.forward(pass, x),
        );
        // Stride 2 over an even and an odd side, where the last window ends before and at the edge.
        check(
            [2, 2, 6, 5],
            |b| Conv2d::without_bias(b, "c", [2, 6, 5], 2, [3, 2], Gain::He),
            |c, pass, x| c.forward(pass, x),
        );
        check(
            [2, 3, 4, 4],
            |b| Conv2d::without_bias(b, "c", [3, 4, 4], 2, [1, 2], Gain::Glorot),
            |c, pass, x| c.forward(pass, x),
        );
        check(
            [2, 1, 4, 6],
            |b| Conv2d::patches(b, "c", [1, 4, 6], 3, 2, Gain::Glorot),
            |c, pass, x| c.forward(pass, x),
        );
    }

    #[test]
    fn gradients_of_pools_equal_finite_differences() {
        check(
            [2, 2, 6, 4],
            |b| MaxPool::new(b, "p", [2, 6, 4], [2, 2, 0]),
            |p, _, x| p.forward(x),
        );
        check(
            [2, 2, 5, 6],
            |b| MaxPool::new(b, "p", [2, 5, 6], [3, 2, 1]),
            |p, _, x| p.forward(x),
        );
        // A line and a column that no window covers.
        check(
            [2, 2, 5, 7],
            |b| MaxPool::new(b, "p", [2, 5, 7], [2, 2, 0]),
            |p, _, x| p.forward(x),
        );
        check(
            [2, 2, 6, 4],
            |b| AveragePool::new(b, "p", [2, 6, 4], [2, 2]),
            |p, _, x| p.forward(x),
        );
        check([2, 3, 4, 4], |_| (), |(), _, x| global_average(x));
    }

    #[test]
    fn the_largest_is_nan_where_a_window_holds_one() {
        let mut values = vec![1.0_f32; 16];
        values[6] = f32::NAN;
        for (sizes, expected) in [([2, 2, 0], 1..2), ([3, 1, 0], 0..4)] {
            let x = Tensor::<1>::from_floats(values.as_slice(), &Device::flex());
            let pool = MaxPool::new(&mut Builder::new(), "p", [1, 4, 4], sizes);
            let y = pool.forward(x.reshape([1, 1, 4, 4])).into_data();
            for (i, y) in y.try_into_vec::<f32>().unwrap().iter().enumerate() {
                assert_eq!(y.is_nan(), expected.contains(&i), "{sizes:?} {i}");
            }
        }
    }

    #[test]
    fn outputs_are_those_of_the_definition() {
        let sizes = [2, 5, 6];
        let build = |b: &mut Builder| Conv2d::new(b, "c", sizes, 2, [3, 2], Gain::He);
        let (bucket, x, y) = check::outputs([1, 2, 5, 6], build, |c, pass, x| c.forward(pass, x));
        let mut expected = Vec::new();
        for out in 0..2 {
            for (row, column) in
                (0..3_usize).flat_map(|i| (0..3_usize).map(move |j| (2 * i, 2 * j)))
            {
                let mut sum = bucket[2 * 2 * 9 + out];
                for (channel, i, j) in (0..2).flat_map(|c| (0..9).map(move |k| (c, k / 3, k % 3))) {
                    let (Some(at), Some(left)) =
                        ((row + i).checked_sub(1), (column + j).checked_sub(1))
                    else {
                        continue;
                    };
                    if at < 5 && left < 6 {
                        let weight = bucket[((out * 2 + channel) * 3 + i) * 3 + j];
                        sum += weight * x[(channel * 5 + at) * 6 + left];
                    }
                }
                expected.push(sum);
            }
        }
        check::assert_near(&y, &expected, 1e-9);
    }

    #[test]
    fn sizes_of_outputs_are_those_that_the_layers_say() {
        for (size, stride) in [(3, 1), (3, 2), (7, 2), (1, 2)] {
            let mut output = [0; 3];
            let build = |b: &mut Builder| {
                Conv2d::without_bias(b, "c", [1, 9, 8], 2, [size, stride], Gain::He)
            };
            output.copy_from_slice(&build(&mut Builder::new()).output());
            let (_, _, y) = check::outputs([1, 1, 9, 8], build, |c, pass, x| {
                assert_eq!(c.forward(pass, x.clone()).dims()[1..], c.output());
                c.forward(pass, x)
            });
            assert_eq!(y.len(), output.iter().product::<usize>());
        }
    }
}
