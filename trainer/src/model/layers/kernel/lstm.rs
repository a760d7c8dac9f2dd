//! All steps of an LSTM layer.
//!
//! Work that does not depend on the step before is one product over all steps: the inputs by their
//! weights, and in the backward pass every gradient of a weight.

use std::sync::Arc;

use burn::{
    backend::{Flex, flex::FlexTensor, ops::FloatTensorOps},
    tensor::Tensor,
};
use macerator::{AutoArch, Simd, WithSimd};

use super::{
    Kernel, Operand, apply, contiguous,
    math::{sigmoid, tanh},
    product::Packed,
    shape, tensor,
};

/// The states `[rows, steps, width]` after each step, from `x: [rows, steps, in]`, `input: [in, 4 width]`,
/// `state: [width, 4 width]` and `bias: [4 width]`, as [`Lstm`](crate::model::layers::Lstm) says. `starts` gives for each row
/// and step, `[rows, steps]`, if the state begins there; it may be empty.
///
/// `None` for what is left to the library.
pub(in super::super) fn lstm(
    x: &Tensor<3>,
    [input, state]: [&Tensor<2>; 2],
    bias: &Tensor<1>,
    starts: impl FnOnce() -> Arc<[bool]>,
) -> Option<Tensor<3>> {
    let weights = [Operand::of(input)?, Operand::of(state)?];
    let ([input, state], x, bias) = (weights, Operand::of(x)?, Operand::of(bias)?);
    let kernel = Lstm { starts: starts() };
    Some(apply(&kernel, [x, input, state, bias]))
}

#[derive(Clone, Debug)]
struct Lstm {
    starts: Arc<[bool]>,
}

/// Values that the gradients are computed from.
#[derive(Clone, Debug)]
struct LstmValues {
    x: FlexTensor,
    weights: [FlexTensor; 2],
    /// The gates of each row and step, `[rows * steps, 4 width]`.
    gates: FlexTensor,
    /// `[rows, steps, width]`.
    cells: FlexTensor,
    /// `[rows, steps, width]`.
    states: FlexTensor,
}

fn flat(x: &FlexTensor, sizes: [usize; 2]) -> FlexTensor {
    x.reshape(sizes.into())
}

fn turned(x: FlexTensor) -> FlexTensor {
    Flex::float_swap_dims(x, 0, 1)
}

impl Kernel<4> for Lstm {
    type Kept = LstmValues;

    fn value(&self, inputs: [FlexTensor; 4]) -> (FlexTensor, LstmValues) {
        let [x, input, state, bias] = inputs.map(contiguous);
        let [rows, steps, from] = shape(&x);
        let [width, _] = shape(&state);
        let mut gates = Flex::float_matmul(flat(&x, [rows * steps, from]), input.clone());
        let mut cells = vec![0.0; rows * steps * width];
        let mut states = vec![0.0; rows * steps * width];
        let packed = Packed::of(state.storage(), [width, 4 * width]);
        let mut recurrent = vec![0.0; rows * 4 * width];
        let mut after = vec![0.0; rows * width];
        for step in 0..steps {
            if step > 0 {
                packed.multiply(&after, &mut recurrent);
            }
            AutoArch::new().dispatch(Forward {
                place: StepPlace { step, steps, width },
                starts: &self.starts,
                gates: gates.storage_mut(),
                recurrent: &recurrent,
                bias: bias.storage(),
                cells: &mut cells,
                states: &mut states,
                after: &mut after,
            });
        }
        let states = tensor(states, [rows, steps, width]);
        let kept = LstmValues {
            x,
            weights: [input, state],
            gates,
            cells: tensor(cells, [rows, steps, width]),
            states: states.clone(),
        };
        (states, kept)
    }

    fn gradients(
        &self,
        kept: LstmValues,
        gradient: FlexTensor,
        wanted: [bool; 4],
    ) -> [Option<FlexTensor>; 4] {
        let gradient = contiguous(gradient);
        let [rows, steps, from] = shape(&kept.x);
        let [_, _, width] = shape(&kept.states);
        let [input, state] = kept.weights;
        let packed = Packed::of_turned(state.storage(), [width, 4 * width]);
        let mut gates = kept.gates;
        let zeros = vec![0.0; width];
        let mut of_cells = vec![0.0; rows * width];
        let mut of_states = vec![0.0; rows * width];
        let mut of_gates = vec![0.0; rows * 4 * width];
        for step in (0..steps).rev() {
            AutoArch::new().dispatch(Backward {
                place: StepPlace { step, steps, width },
                starts: &self.starts,
                gradient: gradient.storage(),
                of_states: &of_states,
                cells: kept.cells.storage(),
                of_cells: &mut of_cells,
                gates: gates.storage_mut(),
                of_gates: &mut of_gates,
                zeros: &zeros,
            });
            if step > 0 {
                packed.multiply(&of_gates, &mut of_states);
            }
        }
        // What were gates are their gradients now.
        let of_gates = gates;
        let mut of_bias = vec![0.0; 4 * width];
        AutoArch::new().dispatch(ColumnSums(of_gates.storage(), &mut of_bias));
        let x = turned(flat(&kept.x, [rows * steps, from]));
        let mut before = shifted(kept.states.storage(), steps * width, width);
        for (before, starts) in before.chunks_exact_mut(width).zip(&*self.starts) {
            if *starts {
                before.fill(0.0);
            }
        }
        let before = turned(tensor(before, [rows * steps, width]));
        let of_x = wanted[0].then(|| {
            let of_x = Flex::float_matmul(of_gates.clone(), turned(input));
            of_x.reshape([rows, steps, from].into())
        });
        [
            of_x,
            Some(Flex::float_matmul(x, of_gates.clone())),
            Some(Flex::float_matmul(before, of_gates)),
            Some(tensor(of_bias, [4 * width])),
        ]
    }
}

/// Rows of `row` numbers moved on by `by`, with 0 in front.
fn shifted(x: &[f32], row: usize, by: usize) -> Vec<f32> {
    let mut shifted = vec![0.0; x.len()];
    for (to, from) in shifted.chunks_exact_mut(row).zip(x.chunks_exact(row)) {
        to[by..].copy_from_slice(&from[..row - by]);
    }
    shifted
}

/// Position of a step's numbers.
#[derive(Clone, Copy)]
struct StepPlace {
    step: usize,
    steps: usize,
    width: usize,
}

impl StepPlace {
    /// Start of those of a row in `[rows, steps, width]`.
    #[inline(always)]
    const fn begin(self, row: usize) -> usize {
        (row * self.steps + self.step) * self.width
    }

    /// Returns true if the state of a row begins again at this step, after the first.
    #[inline(always)]
    fn restarts(self, starts: &[bool], row: usize) -> bool {
        let at = row * self.steps + self.step;
        self.step > 0 && starts.get(at) == Some(&true)
    }
}

struct Forward<'a> {
    place: StepPlace,
    starts: &'a [bool],
    /// Products of the inputs, which become the gates.
    gates: &'a mut [f32],
    /// Product of the states before, `[rows, 4 width]`.
    recurrent: &'a [f32],
    bias: &'a [f32],
    cells: &'a mut [f32],
    states: &'a mut [f32],
    /// The states after, `[rows, width]`.
    after: &'a mut [f32],
}

impl WithSimd for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self) {
        let (place, width) = (self.place, self.place.width);
        for (row, after) in self.after.chunks_exact_mut(width).enumerate() {
            let begin = place.begin(row);
            let restarts = place.restarts(self.starts, row);
            let gates = &mut self.gates[4 * begin..4 * (begin + width)];
            for (gate, bias) in gates.iter_mut().zip(self.bias) {
                *gate += bias;
            }
            if !restarts {
                let recurrent = &self.recurrent[row * 4 * width..(row + 1) * 4 * width];
                for (gate, recurrent) in gates.iter_mut().zip(recurrent) {
                    *gate += recurrent;
                }
            }
            let (sigmoids, rest) = gates.split_at_mut(2 * width);
            let (candidates, outputs) = rest.split_at_mut(width);
            for gate in sigmoids.iter_mut().chain(&mut *outputs) {
                *gate = sigmoid(*gate);
            }
            for gate in &mut *candidates {
                *gate = tanh(*gate);
            }
            let (inputs, forgets) = sigmoids.split_at(width);
            let (done, cells) = self.cells.split_at_mut(begin);
            let cells = &mut cells[..width];
            for ((cell, input), candidate) in cells.iter_mut().zip(inputs).zip(&*candidates) {
                *cell = input * candidate;
            }
            if place.step > 0 && !restarts {
                let before = &done[begin - width..];
                for ((cell, forget), before) in cells.iter_mut().zip(forgets).zip(before) {
                    *cell += forget * before;
                }
            }
            for ((after, output), cell) in after.iter_mut().zip(&*outputs).zip(&*cells) {
                *after = output * tanh(*cell);
            }
            self.states[begin..begin + width].copy_from_slice(after);
        }
    }
}

struct Backward<'a> {
    place: StepPlace,
    starts: &'a [bool],
    /// Of all states, `[rows, steps, width]`.
    gradient: &'a [f32],
    /// Of the states after this step, by the step that follows, `[rows, width]`.
    of_states: &'a [f32],
    cells: &'a [f32],
    /// Of the cells after this step, which become those of the cells before it.
    of_cells: &'a mut [f32],
    /// The gates, which become their gradients.
    gates: &'a mut [f32],
    /// The same gradients of this step, `[rows, 4 width]`.
    of_gates: &'a mut [f32],
    /// `[width]`
    zeros: &'a [f32],
}

impl WithSimd for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self) {
        let (place, width) = (self.place, self.place.width);
        for (row, of_cells) in self.of_cells.chunks_exact_mut(width).enumerate() {
            let begin = place.begin(row);
            let gates = &mut self.gates[4 * begin..4 * (begin + width)];
            let cells = &self.cells[begin..begin + width];
            let gradient = &self.gradient[begin..begin + width];
            let of_states = &self.of_states[row * width..(row + 1) * width];
            let restarts = place.restarts(self.starts, row);
            let before = match place.step == 0 || restarts {
                true => &self.zeros[..width],
                false => &self.cells[begin - width..begin],
            };
            let (inputs, rest) = gates.split_at_mut(width);
            let (forgets, rest) = rest.split_at_mut(width);
            let (candidates, outputs) = rest.split_at_mut(width);
            let outputs = &mut outputs[..width];
            for i in 0..width {
                let of_state = gradient[i] + of_states[i];
                let (input, forget) = (inputs[i], forgets[i]);
                let (candidate, output) = (candidates[i], outputs[i]);
                let of_tanh = tanh(cells[i]);
                let of_cell = of_cells[i] + of_state * output * (1.0 - of_tanh * of_tanh);
                inputs[i] = of_cell * candidate * (input * (1.0 - input));
                forgets[i] = of_cell * before[i] * (forget * (1.0 - forget));
                candidates[i] = of_cell * input * (1.0 - candidate * candidate);
                outputs[i] = of_state * of_tanh * (output * (1.0 - output));
                of_cells[i] = of_cell * forget;
            }
            let of_gates = &mut self.of_gates[row * 4 * width..(row + 1) * 4 * width];
            if restarts {
                // Nothing before has a part in this step.
                of_gates.fill(0.0);
                of_cells.fill(0.0);
            } else {
                of_gates.copy_from_slice(gates);
            }
        }
    }
}

/// Adds up the columns of a matrix.
struct ColumnSums<'a>(&'a [f32], &'a mut [f32]);

impl WithSimd for ColumnSums<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self) {
        for row in self.0.chunks_exact(self.1.len()) {
            for (sum, number) in self.1.iter_mut().zip(row) {
                *sum += number;
            }
        }
    }
}
