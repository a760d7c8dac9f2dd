//! Properties of every model.

mod causal;
mod gpu;
mod samples;
mod sections;
mod small;

use feedline_schemas::{
    config::{BranchConfig, BranchKind, DatasetKind, ImagesConfig, LossKind, TrainConfig},
    ids::{Seed, Step},
};

use self::{samples::Data, small::small_models};
use super::*;
use crate::{
    data::samples::{ModelInputs, Samples, Targets},
    model::engine::ModelEngine,
    optim::loss,
    random::Stream,
    testing::uniform,
};

const ROWS: Shape = Shape::Rows { features: 6 };
const IMAGES: Shape = Shape::Images {
    channels: 3,
    height: 8,
    width: 8,
};
const TOKENS: Shape = Shape::Tokens {
    length: 5,
    vocabulary: 7,
};

const PARTS: Shape = Shape::Multi {
    features: 3,
    images: Some([3, 8, 8]),
    tokens: Some([5, 7]),
};

/// A model of small branches of these types.
fn branches(kinds: &[BranchKind]) -> ModelConfig {
    let branch = |kind: &BranchKind| {
        let is_wide = !matches!(kind, BranchKind::Dense | BranchKind::Cnn);
        let has_layers = matches!(kind, BranchKind::Vit | BranchKind::Transformer);
        BranchConfig {
            r#type: Some(*kind),
            channels: (*kind == BranchKind::Cnn).then(|| vec![3]),
            hidden: Some(vec![4]),
            width: is_wide.then_some(8),
            layers: has_layers.then_some(1),
            heads: has_layers.then_some(2),
            ..BranchConfig::default()
        }
    };
    ModelConfig {
        r#type: ModelKind::Multi,
        hidden: Some(vec![5]),
        branches: Some(kinds.iter().map(branch).collect()),
        ..ModelConfig::default()
    }
}

fn resnet(depth: u32) -> ModelConfig {
    ModelConfig {
        r#type: ModelKind::Resnet,
        depth: Some(depth),
        small_images: Some(true),
        ..ModelConfig::default()
    }
}

fn resolved(model: &ModelConfig) -> ModelConfig {
    let config = TrainConfig {
        model: model.clone(),
        images: ImagesConfig {
            height: 8,
            width: 8,
            ..ImagesConfig::default()
        },
        ..TrainConfig::default()
    };
    check(model).unwrap();
    filled(&config)
}

fn engine(model: &ModelConfig, data: &Data) -> ModelEngine {
    let model = build(&resolved(model), data.shape, data.outputs).unwrap();
    ModelEngine::new(model, LossKind::CrossEntropy.into())
}

fn stream() -> Stream {
    Stream::dropout(Seed::new(1), Step::new(1))
}

/// A bucket in which no parameter is special.
fn bucket(engine: &ModelEngine) -> Vec<f32> {
    let mut bucket = engine.model().initial(Seed::new(2));
    let trained = engine.model().layout().trained_len();
    let noise = uniform(trained, 91);
    for (value, noise) in bucket[..trained].iter_mut().zip(noise) {
        *value += 0.1 * noise;
    }
    bucket
}

/// Compares the slope along random directions with the gradient, in f32: what is not connected to the loss, or twice,
/// shows. The layers' own tests compare every element.
fn check_direction(name: &str, model: &ModelConfig, shape: Shape) {
    let data = Data::new(shape);
    let engine = engine(model, &data);
    let bucket = bucket(&engine);
    let mut gradient = vec![0.0; bucket.len()];
    engine.loss_and_gradient(&bucket, data.samples(), (stream(), 1.0), &mut gradient);
    let layout = engine.model().layout();
    for entry in &layout.entries()[..layout.trained()] {
        // Along the gradient the slope is its length, which rounding cannot hide.
        let slice = &gradient[entry.range.clone()];
        let norm = slice
            .iter()
            .map(|g| f64::from(*g).powi(2))
            .sum::<f64>()
            .sqrt();
        assert!(norm.is_finite(), "{name}: {}", entry.name);
        if norm < 1e-3 {
            continue;
        }
        let shift = (1e-2 / norm.sqrt()).min(3e-2);
        let at = |sign: f64| {
            let mut moved = bucket.clone();
            let range = entry.range.clone();
            for (value, g) in moved[range].iter_mut().zip(slice) {
                #[expect(clippy::cast_possible_truncation, reason = "test data")]
                let step = (sign * shift * f64::from(*g) / norm) as f32;
                *value += step;
            }
            let mut unused = vec![0.0; bucket.len()];
            let computed =
                engine.loss_and_gradient(&moved, data.samples(), (stream(), 1.0), &mut unused);
            loss::sum(&computed.losses) / computed.weight
        };
        let slope = (at(1.0) - at(-1.0)) / (2.0 * shift);
        assert!(
            (slope - norm).abs() < 0.05 * norm + 2e-4,
            "{name}, {}: slope {slope}, length of the gradient {norm}",
            entry.name
        );
    }
}

#[test]
fn gradients_of_every_model_have_the_slope_of_its_loss() {
    for (name, shape, config) in small_models() {
        check_direction(name, &config, shape);
    }
}

#[test]
fn gradients_with_dropout_have_the_slope_of_the_loss() {
    for (name, shape, config) in small_models() {
        let config = ModelConfig {
            dropout: 0.3,
            ..config
        };
        check_direction(name, &config, shape);
    }
}

#[test]
fn every_parameter_takes_part() {
    for (name, shape, config) in small_models() {
        let data = Data::new(shape);
        let engine = engine(&config, &data);
        let bucket = bucket(&engine);
        let mut gradient = vec![0.0; bucket.len()];
        let computed =
            engine.loss_and_gradient(&bucket, data.samples(), (stream(), 1.0), &mut gradient);
        let layout = engine.model().layout();
        let trained = layout.trained_len();
        for entry in &layout.entries()[..layout.trained()] {
            // Before a batch norm a bias changes nothing, and keys' biases do not change a softmax.
            let moves = gradient[entry.range.clone()].iter().any(|g| g.abs() > 0.0);
            assert!(
                moves || entry.name.ends_with("bias"),
                "{name}: {}",
                entry.name
            );
        }
        assert!(gradient[trained..].iter().all(|g| g.to_bits() == 0));
        assert_eq!(computed.buffers.len(), layout.len() - trained, "{name}");
        let predicted = engine.predict(&engine.weights(&bucket), data.samples());
        assert_eq!(predicted.losses.len(), computed.losses.len(), "{name}");
        let facts = layout
            .facts()
            .iter()
            .map(|facts| facts.parameters)
            .sum::<usize>();
        assert_eq!(facts, trained, "{name}: parameters in its summary");
    }
}

#[test]
fn a_model_that_cannot_read_a_kind_of_dataset_is_refused_without_data() {
    let kinds = [
        (DatasetKind::Rows, ROWS),
        (DatasetKind::Images, IMAGES),
        (DatasetKind::Tokens, TOKENS),
        (DatasetKind::Characters, TOKENS),
        (DatasetKind::Multi, PARTS),
    ];
    let mut refused = 0;
    for (name, own, config) in small_models() {
        for (kind, shape) in kinds {
            let found = check_kind(&config, kind);
            if own == shape {
                assert!(found.is_ok(), "{name}, {kind:?}");
            }
            // An lstm without a context would read tokens, and is for rows of numbers.
            if found.is_err() && (config.r#type, shape) != (ModelKind::Lstm, TOKENS) {
                assert!(
                    build(&resolved(&config), shape, 3).is_err(),
                    "{name}, {kind:?}"
                );
                refused += 1;
            }
        }
    }
    assert!(refused > 40, "{refused}");
    let mlp = check_kind(&ModelConfig::default(), DatasetKind::Tokens);
    assert_eq!(
        mlp.unwrap_err().to_string(),
        "cannot use `train.model.type`: the dataset holds tokens; use `transformer`, or `lstm` with `train.model.context`"
    );
}

#[test]
fn muon_updates_the_matrices_between_tables_and_the_last_layer() {
    let hidden = |name: &str| -> Vec<String> {
        let (_, shape, config) = small_models()
            .into_iter()
            .find(|(n, ..)| *n == name)
            .unwrap();
        let engine = engine(&config, &Data::new(shape));
        let entries = engine.model().layout().entries().iter();
        let hidden = entries.filter(|entry| entry.is_hidden);
        hidden.map(|entry| entry.name.clone()).collect()
    };
    let of_blocks = ["attention.qkv", "attention.out", "up", "out"];
    let blocks: Vec<String> = (0..2)
        .flat_map(|i| of_blocks.map(|layer| format!("block.{i}.{layer}.weight")))
        .collect();
    // Scores are those of the embedding, or of a last layer.
    for name in ["transformer", "transformer, untied", "transformer, rotary"] {
        assert_eq!(hidden(name), blocks, "{name}");
    }
    assert_eq!(hidden("mlp, layer"), ["layer.0.weight", "layer.1.weight"]);
    let cnn = ["conv.0.conv.weight", "conv.1.conv.weight", "layer.0.weight"];
    assert_eq!(hidden("cnn, layer"), cnn);
    let lstm = [
        "lstm.0.input",
        "lstm.0.state",
        "lstm.1.input",
        "lstm.1.state",
    ];
    assert_eq!(hidden("lstm, tokens"), lstm);
    assert_eq!(hidden("vit")[0], "patches.weight");
}

#[test]
fn residual_networks_have_the_parameters_of_the_paper_and_gradients() {
    // torchvision's resnet18, 34 and 50 with 1000 classes.
    for (depth, count) in [(18, 11_689_512), (34, 21_797_672), (50, 25_557_032)] {
        let config = ModelConfig {
            small_images: Some(false),
            ..resnet(depth)
        };
        let shape = Shape::Images {
            channels: 3,
            height: 224,
            width: 224,
        };
        let model = build(&resolved(&config), shape, 1000).unwrap();
        assert_eq!(model.layout().trained_len(), count, "{depth}");
        let outputs: Vec<_> = model
            .layout()
            .facts()
            .iter()
            .map(|f| f.output.clone())
            .collect();
        let places = outputs[outputs.len() - 2].clone();
        assert_eq!(places[1..], [7, 7], "{depth}");
    }
    let data = Data::new(IMAGES);
    let engine = engine(&resnet(18), &data);
    let bucket = bucket(&engine);
    let mut gradient = vec![0.0; bucket.len()];
    let computed =
        engine.loss_and_gradient(&bucket, data.samples(), (stream(), 1.0), &mut gradient);
    assert!(computed.losses.iter().all(|loss| loss.is_finite()));
    for entry in &engine.model().layout().entries()[..engine.model().layout().trained()] {
        let moves = gradient[entry.range.clone()].iter().any(|g| g.abs() > 0.0);
        assert!(moves, "{}", entry.name);
    }
}

#[test]
fn a_model_for_other_samples_is_refused_with_those_that_fit() {
    let config = resolved(&resnet(18));
    let error = build(&config, ROWS, 1).unwrap_err().to_string();
    assert_eq!(
        error,
        "cannot use `train.model.type`: `resnet` does not read rows of numbers, which the dataset holds; use `mlp`, \
         `lstm`, `autoencoder` or `multi`"
    );
}

#[test]
fn sizes_that_do_not_fit_the_samples_are_refused() {
    let refused =
        |config: &ModelConfig, shape| build(&resolved(config), shape, 2).unwrap_err().to_string();
    let cnn = ModelConfig {
        r#type: ModelKind::Cnn,
        channels: Some(vec![2; 4]),
        ..ModelConfig::default()
    };
    assert!(refused(&cnn, IMAGES).contains("`train.model.channels`: images of 8x8"));
    let vit = ModelConfig {
        r#type: ModelKind::Vit,
        patch: Some(3),
        ..ModelConfig::default()
    };
    assert!(refused(&vit, IMAGES).contains("`train.model.patch`: it is 3"));
    let lstm = ModelConfig {
        r#type: ModelKind::Lstm,
        steps: Some(4),
        ..ModelConfig::default()
    };
    assert!(refused(&lstm, ROWS).contains("`train.model.steps`: it is 4"));
}

#[test]
fn branches_over_numbers_and_images_are_joined() {
    let shapes = [ROWS, IMAGES];
    let config = ModelConfig {
        r#type: ModelKind::Multi,
        ..ModelConfig::default()
    };
    let model = multi::Multi::new(&resolved(&config), &shapes, 3).unwrap();
    let engine = ModelEngine::new(Box::new(model), LossKind::CrossEntropy.into());
    let (rows, images) = (Data::new(ROWS), Data::new(IMAGES));
    let bucket = bucket(&engine);
    let joined = |rows: &Data, images: &Data| {
        let inputs = ModelInputs {
            pixels: &images.pixels,
            sides: [8, 8],
            ..rows.samples().inputs
        };
        let samples = Samples::new(Data::ROWS, inputs, Targets::Classes(&rows.classes));
        let mut gradient = vec![0.0; bucket.len()];
        engine.loss_and_gradient(&bucket, samples, (stream(), 1.0), &mut gradient);
        assert!(gradient.iter().all(|g| g.is_finite()));
        engine.predict(&engine.weights(&bucket), samples).outputs
    };
    let plain = joined(&rows, &images);
    let mut other = Data::new(ROWS);
    other.x[0] += 1.0;
    let by_rows = joined(&other, &images);
    assert_ne!(plain[..3], by_rows[..3]);
    assert_eq!(plain[3..], by_rows[3..]);
    let mut other = Data::new(IMAGES);
    other.pixels[0] ^= 128;
    let by_images = joined(&rows, &other);
    assert_ne!(plain[..3], by_images[..3]);
    assert_eq!(plain[3..], by_images[3..]);
}

/// Outputs for samples of three parts, one number of one part changed or none.
fn of_parts(model: &ModelConfig, change: impl Fn(&mut Data)) -> Vec<f32> {
    let mut data = Data::new(PARTS);
    let engine = engine(model, &data);
    let bucket = bucket(&engine);
    change(&mut data);
    engine
        .predict(&engine.weights(&bucket), data.samples())
        .outputs
}

#[test]
fn every_part_of_a_row_that_has_a_branch_counts_and_padding_does_not() {
    use BranchKind::{Cnn, Dense, Embedding, Transformer};
    for text in [Embedding, Transformer] {
        let joined = branches(&[Dense, Cnn, text]);
        let plain = of_parts(&joined, |_| {});
        let changes: [fn(&mut Data); 3] = [
            |data| data.x[0] += 1.0,
            |data| data.pixels[0] ^= 128,
            // The only token of the first row.
            |data| data.tokens[0] = (data.tokens[0] + 1) % 7,
        ];
        for change in changes {
            let changed = of_parts(&joined, change);
            assert_ne!(plain[..3], changed[..3], "{text:?}");
            assert_eq!(plain[3..], changed[3..], "{text:?}");
        }
        // The rest of its place is padding.
        let padded = of_parts(&joined, |data| data.tokens[1..5].fill(6));
        assert_eq!(plain, padded, "{text:?}");
        let alone = branches(&[text]);
        let moved = of_parts(&alone, |data| data.x.iter_mut().for_each(|x| *x += 1.0));
        assert_eq!(of_parts(&alone, |_| {}), moved);
    }
}

#[test]
fn an_embedding_does_not_know_the_order_of_tokens_and_a_transformer_does() {
    let swapped = |kind| {
        let model = branches(&[kind]);
        // The last row has one token, the fifth all of its five.
        let plain = of_parts(&model, |data| data.tokens[20..22].copy_from_slice(&[1, 2]));
        let swapped = of_parts(&model, |data| data.tokens[20..22].copy_from_slice(&[2, 1]));
        let differences = plain.iter().zip(&swapped).map(|(a, b)| (a - b).abs());
        differences.fold(0.0, f32::max)
    };
    assert!(swapped(BranchKind::Embedding) < 1e-6);
    assert!(swapped(BranchKind::Transformer) > 1e-4);
}

#[test]
fn a_residual_branch_over_images_takes_part() {
    let model = ModelConfig {
        branches: Some(vec![BranchConfig {
            r#type: Some(BranchKind::Resnet),
            ..BranchConfig::default()
        }]),
        ..branches(&[])
    };
    let plain = of_parts(&model, |_| {});
    let changed = of_parts(&model, |data| data.pixels[0] ^= 128);
    assert_ne!(plain[..3], changed[..3]);
    assert_eq!(plain[3..], changed[3..]);
}

#[test]
fn branches_that_do_not_fit_are_refused() {
    let refused = |branch: BranchConfig, shape| {
        let model = ModelConfig {
            branches: Some(vec![branch]),
            ..branches(&[])
        };
        let refused = check(&model).and_then(|()| build(&filled_in(&model), shape, 2).map(|_| ()));
        refused.unwrap_err().to_string()
    };
    let of = |kind| BranchConfig {
        r#type: Some(kind),
        ..BranchConfig::default()
    };
    assert_eq!(
        refused(of(BranchKind::Transformer), ROWS),
        "cannot use `train.model.branches`: a branch of type `transformer` reads texts, which the dataset does not hold"
    );
    let odd = BranchConfig {
        patch: Some(4),
        ..of(BranchKind::Embedding)
    };
    assert_eq!(
        refused(odd, PARTS),
        "cannot use `train.model.branches`: `patch` is not a key of such a branch, which knows `type`, `hidden` and `width`; \
         take it out, or set the branch's `type`"
    );
    let heads = BranchConfig {
        heads: Some(5),
        ..of(BranchKind::Vit)
    };
    assert!(
        refused(heads, PARTS).contains("the `heads` of a branch, 5, must divide its width, 64")
    );
    let error = build(&resolved(&resnet(18)), PARTS, 1).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("rows of several parts, which the dataset holds; use `multi`")
    );
}

fn filled_in(model: &ModelConfig) -> ModelConfig {
    filled(&TrainConfig {
        model: model.clone(),
        ..TrainConfig::default()
    })
}
