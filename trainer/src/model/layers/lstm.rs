//! Long short-term memory.

use std::sync::Arc;

use crate::float_casts::exact_len;
use burn::tensor::{Int, Tensor, activation, module};

use super::{Builder, Initial, Pass, Slot, in_f32, kernel};

/// An LSTM layer (Hochreiter and Schmidhuber 1997) with a forget gate (Gers, Schmidhuber, Cummins 2000):
///
/// ```text
/// i, f, g, o = x W_in + h W_state + bias          each [rows, width]
/// cell = sigmoid(f) cell + sigmoid(i) tanh(g)
/// h    = sigmoid(o) tanh(cell)
/// ```
///
/// from `h = cell = 0`. `input: [in, 4 width]`, `state: [width, 4 width]`, `bias: [4 width]`, gates in the order written.
/// Weights begin uniform in `±1 / sqrt(width)`, biases as 0, but 1 for the forget gate, so that it begins by remembering
/// (Jozefowicz, Zaremba, Sutskever 2015, section 2.2).
#[derive(Clone, Debug)]
pub struct Lstm {
    input: Slot,
    state: Slot,
    biases: [Slot; 3],
    width: usize,
}

impl Lstm {
    /// From `[steps, in]` to `[steps, width]`.
    pub fn new(builder: &mut Builder, name: &str, [steps, from]: [usize; 2], width: usize) -> Self {
        let initial = Initial::Uniform {
            bound: 1.0 / exact_len(width).sqrt(),
        };
        let layer = builder.within(name, |b| Self {
            input: b.parameter("input", &[from, 4 * width], true, initial),
            state: b.parameter("state", &[width, 4 * width], true, initial),
            biases: [
                ("bias.input", width, 0.0),
                ("bias.forget", width, 1.0),
                ("bias.cell_output", 2 * width, 0.0),
            ]
            .map(|(name, len, value)| b.parameter(name, &[len], false, Initial::Constant(value))),
            width,
        });
        let parameters = 4 * width * (from + width + 1);
        let kept = steps * (from + 6 * width);
        builder.note(name, "lstm".into(), &[steps, width], parameters, kept);
        layer
    }

    /// `[rows, steps, in]` to the state after each step, `[rows, steps, width]`.
    #[must_use]
    pub fn forward(&self, pass: &Pass<'_>, x: Tensor<3>) -> Tensor<3> {
        self.forward_documents(pass, x, None)
    }

    /// The same for rows of documents: at each position 0 of `positions`, `[rows, steps]`, state and cell begin as 0.
    #[must_use]
    pub(crate) fn forward_documents(
        &self,
        pass: &Pass<'_>,
        x: Tensor<3>,
        positions: Option<&Tensor<2, Int>>,
    ) -> Tensor<3> {
        let given = x.dtype();
        let x = pass.for_product(x);
        let product = |slot| -> Tensor<2> { pass.for_product(pass.parameter(slot)) };
        let (input, state) = (product(self.input), product(self.state));
        let bias = Tensor::cat(self.biases.map(|slot| pass.parameter(slot)).to_vec(), 0);
        let bias = pass.for_product(bias);
        let starts = || positions.map_or_else(Arc::default, starts);
        let states = kernel::lstm(&x, [&input, &state], &bias, starts)
            .unwrap_or_else(|| self.by_library(pass, x, ([input, state], &bias), positions));
        states.cast(given)
    }

    /// Step by step: the gradient of taking one out of a tensor is as large as that tensor, and over all steps would cost
    /// their number squared.
    fn by_library(
        &self,
        pass: &Pass<'_>,
        x: Tensor<3>,
        ([input, recurrent], bias): ([Tensor<2>; 2], &Tensor<1>),
        positions: Option<&Tensor<2, Int>>,
    ) -> Tensor<3> {
        // 1 where the state of the step before is kept, and 0 where a document begins.
        let keeps = positions.map(|positions| positions.clone().greater_elem(0_i32).float());
        let mut before: Option<[Tensor<2>; 2]> = None;
        let mut states = Vec::new();
        for (step, x) in unstack(x).into_iter().enumerate() {
            if let Some(keeps) = &keeps {
                let keep = keeps.clone().narrow(1, step, 1);
                before = before.map(|pair| {
                    pair.map(|of_state| {
                        let dtype = of_state.dtype();
                        of_state * keep.clone().cast(dtype)
                    })
                });
            }
            let mut gates = in_f32(module::linear(x, input.clone(), Some(bias.clone())));
            if let Some([state, _]) = &before {
                let state = pass.for_product(state.clone());
                gates = gates + in_f32(state.matmul(recurrent.clone()));
            }
            let gate = |i: usize| gates.clone().narrow(1, i * self.width, self.width);
            let mut cell = activation::sigmoid(gate(0)) * gate(2).tanh();
            if let Some([_, before]) = before {
                cell = cell + activation::sigmoid(gate(1)) * before;
            }
            let state = activation::sigmoid(gate(3)) * cell.clone().tanh();
            states.push(state.clone());
            before = Some([state, cell]);
        }
        Tensor::stack(states, 1)
    }
}

/// For each of `positions` true if it is 0.
fn starts(positions: &Tensor<2, Int>) -> Arc<[bool]> {
    let positions = positions.clone().into_data();
    positions.iter::<i64>().map(|at| at == 0).collect()
}

/// The steps of `[rows, steps, width]`.
fn unstack(x: Tensor<3>) -> Vec<Tensor<2>> {
    let [rows, steps, width] = x.dims();
    (0..steps)
        .map(|step| x.clone().narrow(1, step, 1).reshape([rows, width]))
        .collect()
}

#[cfg(test)]
mod tests {
    use burn::tensor::TensorData;

    use super::*;
    use crate::model::layers::check::{self, check};

    #[test]
    fn gradients_equal_finite_differences() {
        check(
            [2, 4, 3],
            |b| {
                let first = Lstm::new(b, "a", [4, 3], 5);
                (first, Lstm::new(b, "b", [4, 5], 2))
            },
            |(first, second), pass, x| {
                let states = first.forward(pass, x);
                second.forward(pass, states)
            },
        );
    }

    fn positions_beside(x: &Tensor<3>, positions: &[i32]) -> Tensor<2, Int> {
        let [rows, steps, _] = x.dims();
        let data = TensorData::new(positions.to_vec(), [rows, steps]);
        Tensor::from_data(data, &x.device())
    }

    #[test]
    fn gradients_within_documents_equal_finite_differences() {
        check(
            [2, 4, 3],
            |b| {
                let first = Lstm::new(b, "a", [4, 3], 5);
                (first, Lstm::new(b, "b", [4, 5], 2))
            },
            |(first, second), pass, x| {
                let positions = positions_beside(&x, &[0, 1, 0, 1, 0, 0, 1, 2]);
                let states = first.forward_documents(pass, x, Some(&positions));
                second.forward_documents(pass, states, Some(&positions))
            },
        );
    }

    #[test]
    fn documents_of_a_row_have_the_states_that_each_has_alone() {
        let build = |b: &mut Builder| Lstm::new(b, "l", [3, 2], 1);
        let (_, _, packed) = check::outputs([1, 3, 2], build, |l, pass, x| {
            let positions = positions_beside(&x, &[0, 0, 1]);
            l.forward_documents(pass, x, Some(&positions))
        });
        let (_, _, alone) = check::outputs([1, 3, 2], build, |l, pass, x| {
            let first = l.forward(pass, x.clone().narrow(1, 0, 1));
            let second = l.forward(pass, x.narrow(1, 1, 2));
            Tensor::cat(vec![first, second], 1)
        });
        check::assert_near(&packed, &alone, 1e-12);
    }

    #[test]
    fn the_forget_gate_begins_open() {
        let mut builder = Builder::new();
        Lstm::new(&mut builder, "l", [1, 1], 2);
        let bucket = builder
            .finish()
            .initial(feedline_schemas::ids::Seed::new(1));
        let biases: Vec<f32> = bucket[8 + 16..].to_vec();
        assert_eq!(biases, [0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn states_are_those_of_the_definition() {
        let build = |b: &mut Builder| Lstm::new(b, "l", [3, 2], 1);
        let (bucket, x, y) = check::outputs([1, 3, 2], build, |l, pass, x| l.forward(pass, x));
        let sigmoid = |v: f64| 1.0 / (1.0 + (-v).exp());
        let (mut state, mut cell) = (0.0, 0.0);
        let mut expected = Vec::new();
        for x in x.chunks(2) {
            let gate = |g: usize| {
                x[0] * bucket[g] + x[1] * bucket[4 + g] + state * bucket[8 + g] + bucket[12 + g]
            };
            let [i, f, g, o] = [gate(0), gate(1), gate(2), gate(3)];
            cell = sigmoid(f) * cell + sigmoid(i) * g.tanh();
            state = sigmoid(o) * cell.tanh();
            expected.push(state);
        }
        check::assert_near(&y, &expected, 1e-9);
    }
}
