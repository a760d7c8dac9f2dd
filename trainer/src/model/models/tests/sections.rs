//! Gradients in sections.

use std::collections::BTreeSet;

use feedline_schemas::config::LoraConfig;

use super::*;
use crate::{
    config::settings,
    model::{engine::parts::BatchCut, interface::adapted, layers::Layout},
    parallel::RankPlace,
};

/// All small models and a residual network.
fn all() -> Vec<(&'static str, Shape, ModelConfig)> {
    let mut all = small_models();
    all.push(("resnet", IMAGES, resnet(18)));
    all
}

/// An engine on so many threads that cuts a batch into so many parts.
fn engine_of(config: &TrainConfig, data: &Data, threads: usize, parts: usize) -> ModelEngine {
    let model = build(&config.model, data.shape, data.outputs).unwrap();
    let model = adapted(model, config.lora.as_ref()).unwrap();
    let passes = settings::passes(config, model.layout()).unwrap();
    ModelEngine::with_threads(model, LossKind::CrossEntropy.into(), threads)
        .with_passes(passes)
        .with_cut(BatchCut {
            least: parts,
            ..BatchCut::BY_SHAPE
        })
}

fn same(found: &[f32], expected: &[f32]) -> bool {
    let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    bits(found) == bits(expected)
}

/// The configuration of a model whose segments are computed again, or not.
fn config_of(model: &ModelConfig, layout: &Layout, again: bool) -> TrainConfig {
    let again = again && !layout.segments().is_empty();
    let model = ModelConfig {
        dropout: 0.2,
        checkpoint: again.then(|| "*".into()).into_iter().collect(),
        ..model.clone()
    };
    TrainConfig {
        model: resolved(&model),
        ..TrainConfig::default()
    }
}

#[test]
fn sections_of_every_model_are_the_gradient_of_the_library_in_pieces() {
    for (name, shape, model) in all() {
        let data = Data::new(shape);
        let layout = engine(&model, &data).model().layout().clone();
        let len = layout.trained_len() * size_of::<f32>();
        let few = name == "resnet";
        for parts in if few { &[1][..] } else { &[1, 2, 8] } {
            let plain = engine_of(&config_of(&model, &layout, false), &data, 1, *parts);
            let bucket = bucket(&plain);
            let expected = plain.by_leaves(&bucket, data.samples(), stream());
            for again in [false, true] {
                let config = config_of(&model, &layout, again);
                let sizes = [0, len / 5, len / 2, usize::MAX];
                for (threads, bytes_max) in [0, 1, 2, 3].into_iter().zip(sizes) {
                    if few && threads != 1 {
                        continue;
                    }
                    let engine = engine_of(&config, &data, threads, *parts);
                    let found = engine.in_sections(&bucket, data.samples(), stream(), bytes_max);
                    let case = format!("{name}, {parts} parts, again {again}, {bytes_max} bytes");
                    assert!(same(&found, &expected), "{case}");
                    let mut whole = vec![0.0; bucket.len()];
                    engine.loss_and_gradient(&bucket, data.samples(), (stream(), 1.0), &mut whole);
                    assert!(same(&whole, &expected), "{case}, whole");
                }
            }
        }
    }
}

#[test]
fn sections_of_what_is_frozen_are_zeros_and_those_of_adapters_their_gradients() {
    let (_, shape, model) = small_models().swap_remove(11);
    let data = Data::new(shape);
    let layout = engine(&model, &data).model().layout().clone();
    let freeze = vec!["block.0.*".to_owned(), "tokens.*".to_owned()];
    let lora = LoraConfig {
        targets: vec!["*".into()],
        ..LoraConfig::default()
    };
    for (freeze, lora) in [(freeze, None), (Vec::new(), Some(lora))] {
        let config = TrainConfig {
            freeze,
            lora,
            ..config_of(&model, &layout, false)
        };
        let engine = engine_of(&config, &data, 2, 4);
        let bucket = bucket(&engine);
        let expected = engine.by_leaves(&bucket, data.samples(), stream());
        let found = engine.in_sections(&bucket, data.samples(), stream(), 0);
        assert!(same(&found, &expected));
        let moved = engine.model().layout().trained_entries().iter().enumerate();
        for (i, entry) in moved {
            let zero = found[entry.range.clone()].iter().all(|v| *v == 0.0);
            let trains = engine.trained().contains(entry);
            assert!(trains || zero, "{i}: {}", entry.name);
        }
    }
}

#[test]
fn adapters_of_a_model_of_several_parts_are_those_of_the_layers_that_are_named() {
    let mut models = small_models().into_iter();
    let of_tokens = |name: &str| name == "multi, transformers over patches and tokens";
    let (_, shape, model) = models.find(|(name, ..)| of_tokens(name)).unwrap();
    let data = Data::new(shape);
    let layout = engine(&model, &data).model().layout().clone();
    let plain = config_of(&model, &layout, false);
    let targets = ["branch.1.*.qkv", "joined.last"];
    let config = TrainConfig {
        lora: Some(LoraConfig {
            targets: targets.map(str::to_owned).to_vec(),
            ..LoraConfig::default()
        }),
        ..plain.clone()
    };
    let engine = engine_of(&config, &data, 2, 4);
    let bucket = bucket(&engine);
    let gradient = engine.by_leaves(&bucket, data.samples(), stream());
    let mut named = BTreeSet::new();
    for entry in engine.trained() {
        let (layer, part) = entry.name.rsplit_once('.').unwrap();
        assert!(matches!(part, "lora_a" | "lora_b"), "{}", entry.name);
        // The other factor begins as zeros, so only this one moves in the first step.
        if part == "lora_b" {
            let moves = gradient[entry.range.clone()].iter().any(|v| *v != 0.0);
            assert!(moves, "{}", entry.name);
            named.insert(layer.to_owned());
        }
    }
    let found: Vec<&str> = named.iter().map(String::as_str).collect();
    assert_eq!(found, ["branch.1.block.0.attention.qkv", "joined.last"]);
    let unknown = LoraConfig {
        targets: vec!["branch.3.*".into()],
        ..LoraConfig::default()
    };
    let refused = layout.adapted(&unknown).unwrap_err().to_string();
    assert!(refused.contains("`branch.3.*` names no"), "{refused}");
}

#[test]
fn ranks_without_rows_give_sections_of_zeros() {
    let (_, shape, model) = small_models().swap_remove(0);
    let data = Data::new(shape);
    let layout = engine(&model, &data).model().layout().clone();
    let config = config_of(&model, &layout, false);
    let place = RankPlace { rank: 7, world: 8 };
    let engine = engine_of(&config, &data, 1, 8).with_cut(BatchCut {
        least: 8,
        place,
        ..BatchCut::BY_SHAPE
    });
    let bucket = bucket(&engine);
    let none = data.samples().slice(Data::ROWS..Data::ROWS);
    let found = engine.in_sections(&bucket, none, stream(), 64);
    assert!(same(&found, &vec![0.0; bucket.len()]));
}

/// The layer of a parameter: its name up to the first number, or else up to the first dot.
fn layer(name: &str) -> String {
    let parts: Vec<&str> = name.split('.').collect();
    let number = parts.iter().position(|part| part.parse::<u32>().is_ok());
    parts[..=number.unwrap_or(0)].join(".")
}

/// The layers of parameters that come in this order, down to the first segment.
fn layers<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut layers: Vec<String> = names.map(layer).collect();
    layers.dedup();
    let first = |layer: &String| ["stem", "patches", "positions", "tokens"].contains(&&**layer);
    let end = layers.iter().position(first).unwrap_or(layers.len());
    layers.truncate(end);
    layers
}

/// The branch that a parameter is of, with a dot behind it; empty for those of none. Branches do not wait for each other.
fn branch(name: &str) -> &str {
    let end = name
        .strip_prefix("branch.")
        .and_then(|rest| rest.find('.'))
        .map_or(0, |end| "branch.".len() + end + 1);
    &name[..end]
}

#[test]
fn a_backward_pass_completes_later_layers_first() {
    for (name, shape, model) in all() {
        let data = Data::new(shape);
        let layout = engine(&model, &data).model().layout().clone();
        let expected: Vec<&str> = layout
            .trained_entries()
            .iter()
            .rev()
            .map(|e| &*e.name)
            .collect();
        assert!(layers(expected.iter().copied()).len() > 1, "{name}");
        for again in [false, true] {
            let engine = engine_of(&config_of(&model, &layout, again), &data, 1, 1);
            let order = engine.completion(&bucket(&engine), data.samples(), stream());
            assert_eq!(order.len(), layout.trained(), "{name}: before its end");
            let found: Vec<&str> = order.iter().map(|&i| &*layout.entries()[i].name).collect();
            for branch in expected.iter().map(|name| branch(name)) {
                let [found, expected] = [&found, &expected].map(|names| {
                    let own = names.iter().filter(|name| self::branch(name) == branch);
                    layers(own.map(|name| &name[branch.len()..]))
                });
                assert_eq!(found, expected, "{name}, {branch}, again {again}");
            }
        }
    }
}
