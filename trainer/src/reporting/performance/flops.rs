//! Floating-point operations of training, estimated from the layers.
//!
//! The forward pass of a matrix takes two operations for each of its numbers and each place it is applied at; the backward
//! pass takes as many for the gradient of its inputs, and again for its own. So a model whose matrices are all trained and
//! used once per token takes `6 N` operations per token (Kaplan et al. 2020, arXiv 2001.08361, section 2.1). Attention
//! adds its two products over all pairs of positions, masked ones included (Chowdhery et al. 2022, arXiv 2204.02311,
//! appendix B). Everything else, and what activation checkpointing computes again, is not counted.

use crate::{
    float_casts::exact_len,
    model::{
        interface::Parameter,
        layers::{LayerFacts, Layout},
    },
};

/// Operations of one multiplication and addition.
const MULTIPLY_ADD: f64 = 2.0;

/// Operations of the forward and backward pass of one training sample, with gradients of `trained`.
pub(crate) fn of_training_sample(layout: &Layout, trained: &[Parameter]) -> f64 {
    let facts = layout.facts();
    // No gradient goes below the first layer that is trained.
    let holds_trained =
        |layer: &LayerFacts| trained.iter().any(|p| is_inside(&p.name, &layer.name));
    let first = facts.iter().position(holds_trained).unwrap_or(facts.len());
    let below = |number: usize| number < first;
    let parameters = layout.trained_entries().iter();
    let matrices = parameters.filter(|entry| entry.shape.len() > 1);
    let of_matrices: f64 = matrices
        .filter_map(|matrix| {
            let (number, places) = places(matrix, facts)?;
            let passes = match trained.iter().any(|p| p.name == matrix.name) {
                true => 3.0,
                false if below(number) => 1.0,
                false => 2.0,
            };
            Some(exact_len(matrix.range.len()) * places * passes)
        })
        .sum();
    let of_others: f64 = facts
        .iter()
        .enumerate()
        .map(|(number, layer)| products(layer) * if below(number) { 1.0 } else { 3.0 })
        .sum();
    MULTIPLY_ADD * (of_matrices + of_others)
}

fn is_inside(parameter: &str, layer: &str) -> bool {
    let rest = parameter.strip_prefix(layer);
    rest.is_some_and(|rest| rest.starts_with('.'))
}

/// Number of the layer that a matrix belongs to, and the places that it is applied at for one sample; `None` for a table,
/// whose rows are only looked up.
fn places(matrix: &Parameter, facts: &[LayerFacts]) -> Option<(usize, f64)> {
    let own = facts
        .iter()
        .enumerate()
        .filter(|(_, layer)| layer.parameters > 0 && is_inside(&matrix.name, &layer.name));
    let Some((number, layer)) = own.max_by_key(|(_, layer)| layer.name.len()) else {
        // A layer of one's own that describes nothing.
        return matrix.is_hidden.then_some((facts.len(), 1.0));
    };
    let output = layer.output.as_slice();
    let places: usize = match (layer.kind.as_str(), matrix.shape.len(), output) {
        ("embedding", ..) => return None,
        // A kernel: `[channels, height, width]`.
        (_, 4, [_, places @ ..]) | (_, _, [places @ .., _]) => places.iter().product(),
        (_, _, []) => 1,
    };
    Some((number, exact_len(places)))
}

/// Multiplications of a layer's forward pass for one sample that are with no matrix of its own.
fn products(layer: &LayerFacts) -> f64 {
    let [length, width] = *layer.output.as_slice() else {
        return 0.0;
    };
    if layer.kind == "linear, tied" {
        // By the table that embeds: `kept` is its input, the width the number of ids.
        return exact_len(layer.kept) * exact_len(width);
    }
    if layer.scores == 0 {
        return 0.0;
    }
    // Queries with keys, and scores with values: over all heads the width.
    2.0 * exact_len(length) * exact_len(length) * exact_len(width)
}

#[cfg(test)]
mod tests {
    use feedline_schemas::config::{LoraConfig, ModelConfig, ModelKind, TrainConfig};

    use super::*;
    use crate::model::{
        interface::{self, Model, Shape},
        models,
    };

    fn flops(model: &dyn Model) -> f64 {
        let layout = model.layout();
        of_training_sample(layout, layout.trained_entries())
    }

    /// The model of `config`, with the defaults of its type.
    fn build(config: ModelConfig, shape: Shape, outputs: usize) -> Box<dyn Model> {
        let config = models::filled(&TrainConfig {
            model: config,
            ..TrainConfig::default()
        });
        models::build(&config, shape, outputs).unwrap()
    }

    /// Fully connected layers of 4, 16, 8 and 3.
    fn connected() -> Box<dyn Model> {
        let config = ModelConfig {
            hidden: Some(vec![16, 8]),
            ..ModelConfig::default()
        };
        build(config, Shape::Rows { features: 4 }, 3)
    }

    #[test]
    fn a_network_of_full_connections_takes_six_operations_for_each_weight() {
        let model = connected();
        let weights = 4.0 * 16.0 + 16.0 * 8.0 + 8.0 * 3.0;
        assert_eq!(flops(&*model).to_bits(), f64::to_bits(6.0 * weights));
    }

    /// The formula of PaLM's appendix B: `6 N + 12 layers * width * length` per token, with the matrices alone as `N`.
    #[test]
    fn a_transformer_takes_what_the_formula_of_palm_says() {
        for tied in [true, false] {
            let config = ModelConfig {
                r#type: ModelKind::Transformer,
                width: Some(32),
                heads: Some(4),
                layers: Some(3),
                tied: Some(tied),
                ..ModelConfig::default()
            };
            let (length, vocabulary) = (16, 100);
            let model = build(config, Shape::Tokens { length, vocabulary }, vocabulary);
            let entries = model.layout().entries().iter();
            let matrices = entries.filter(|p| p.shape.len() > 1 && p.is_hidden);
            let inside: usize = matrices.map(|p| p.range.len()).sum();
            let weights = exact_len(inside + 32 * vocabulary);
            let tokens = exact_len(length);
            let expected = tokens * (6.0 * weights + 12.0 * 3.0 * 32.0 * tokens);
            assert_eq!(flops(&*model).to_bits(), expected.to_bits(), "tied: {tied}");
        }
    }

    /// Of the forward pass, torchvision's table of models has 1.81 and 4.09 billion multiplications.
    #[test]
    fn residual_networks_take_what_others_publish() {
        for (depth, published) in [(18, 1.81e9), (50, 4.09e9)] {
            let config = ModelConfig {
                r#type: ModelKind::Resnet,
                depth: Some(depth),
                ..ModelConfig::default()
            };
            let shape = Shape::Images {
                channels: 3,
                height: 224,
                width: 224,
            };
            let forward = flops(&*build(config, shape, 1000)) / 6.0;
            assert!(
                (forward / published - 1.0).abs() < 0.01,
                "{depth}: {forward}"
            );
        }
    }

    #[test]
    fn frozen_matrices_take_no_gradient_of_their_own() {
        let plain = connected();
        let layout = plain.layout();
        let named = |layout: &Layout, part: &str| -> Vec<Parameter> {
            let all = layout.trained_entries().iter();
            all.filter(|p| p.name.contains(part)).cloned().collect()
        };
        let found = of_training_sample(layout, &named(layout, "layer.1."));
        let expected = 2.0 * (4.0 * 16.0) + 6.0 * (16.0 * 8.0) + 4.0 * (8.0 * 3.0);
        assert_eq!(found.to_bits(), f64::to_bits(expected));

        let lora = LoraConfig {
            rank: 2,
            ..LoraConfig::default()
        };
        let adapted = interface::adapted(plain, Some(&lora)).unwrap();
        let layout = adapted.layout();
        let adapters = named(layout, ".lora_");
        let numbers: usize = adapters.iter().map(|p| p.range.len()).sum();
        assert!(numbers > 0, "there are adapters");
        let base = 4.0 * 16.0 + 16.0 * 8.0 + 8.0 * 3.0;
        let expected = 4.0 * base + 6.0 * exact_len(numbers);
        let found = of_training_sample(layout, &adapters);
        assert_eq!(found.to_bits(), expected.to_bits());
    }
}
