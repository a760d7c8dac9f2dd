//! Fully connected layers.
//!
//! Layer i computes `x W + b` with `layer.i.weight: [in, out]` and `layer.i.bias: [out]`. After every layer but the
//! last: the norm if there is one, the nonlinearity, dropout, and the layer's input added where `skip` says so.
//!
//! Hidden weights begin as for a rectifier (He), those of the last layer as Glorot's, biases as 0.

use burn::tensor::Tensor;
use feedline_schemas::config::ModelConfig;

use super::blocks::{Dense, Style, sizes};
use crate::model::{
    interface::{Input, Model},
    layers::{Builder, Gain, Layout, Linear, Pass},
};

/// A multi-layer perceptron; without hidden layers it is a linear model.
#[derive(Clone, Debug)]
pub(super) struct Mlp {
    layout: Layout,
    hidden: Dense,
    last: Linear,
}

impl Mlp {
    /// Layers `inputs -> hidden.. -> outputs`.
    pub(super) fn new(config: &ModelConfig, inputs: usize, outputs: usize) -> Self {
        let mut builder = Builder::new();
        let widths = sizes(config.hidden.as_deref());
        let hidden = Dense::new(&mut builder, inputs, &widths, Style::of(config));
        let name = format!("layer.{}", widths.len());
        let last = Linear::new(
            &mut builder,
            &name,
            &[hidden.output()],
            outputs,
            Gain::Glorot,
        );
        Self {
            layout: builder.finish(),
            hidden,
            last,
        }
    }
}

impl Model for Mlp {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn forward(&self, pass: &mut Pass<'_>, input: &Input) -> Tensor<2> {
        let x = self.hidden.forward(pass, input.numbers());
        self.last.forward(pass, x)
    }
}

#[cfg(test)]
mod tests {
    use feedline_schemas::ids::Seed;

    use super::*;

    fn mlp(inputs: usize, hidden: &[u32], outputs: usize) -> Mlp {
        let config = ModelConfig {
            hidden: Some(hidden.to_vec()),
            ..ModelConfig::default()
        };
        Mlp::new(&config, inputs, outputs)
    }

    #[test]
    fn parameters_are_named_by_layer_and_lie_without_gaps() {
        let mlp = mlp(3, &[4, 5], 2);
        let found: Vec<_> = mlp
            .parameters()
            .iter()
            .map(|p| (p.name.as_str(), p.range.clone(), p.decays))
            .collect();
        let expected = [
            ("layer.0.weight", 0..12, true),
            ("layer.0.bias", 12..16, false),
            ("layer.1.weight", 16..36, true),
            ("layer.1.bias", 36..41, false),
            ("layer.2.weight", 41..51, true),
            ("layer.2.bias", 51..53, false),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn no_hidden_layers_is_a_linear_model() {
        assert_eq!(mlp(3, &[], 1).layout().len(), 4);
    }

    #[test]
    fn initial_weights_fill_their_bounds_and_biases_are_zero() {
        let mlp = mlp(6, &[1000], 500);
        let bucket = mlp.initial(Seed::new(3));
        let largest = |i: usize| {
            bucket[mlp.parameters()[i].range.clone()]
                .iter()
                .fold(0.0_f32, |m, v| m.max(v.abs()))
        };
        assert!((0.99..=1.0).contains(&largest(0)), "He: {}", largest(0));
        let glorot = (6.0_f32 / 1500.0).sqrt();
        assert!(
            (0.99 * glorot..=glorot).contains(&largest(2)),
            "Glorot: {}",
            largest(2)
        );
        assert_eq!((largest(1).to_bits(), largest(3).to_bits()), (0, 0));
        assert_ne!(bucket, mlp.initial(Seed::new(4)));
    }
}
