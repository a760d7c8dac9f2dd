//! Small models of every type, and of each choice that changes what is computed.

use feedline_schemas::config::{ActivationKind, NormKind, PoolKind, PositionKind};

use super::*;

/// Name, samples and configuration of a small model.
type SmallModel = (&'static str, Shape, ModelConfig);

/// A small model of each type, and of each choice that changes what is computed.
pub(super) fn small_models() -> Vec<SmallModel> {
    let mut models = normed_mlps();
    models.extend(convolutions());
    models.push(("vit", IMAGES, small_vit()));
    models.extend(lstms());
    models.extend(transformers());
    models.push(("mlp, rms", ROWS, mlp(NormKind::Rms, ActivationKind::Relu)));
    models.push(("autoencoder", ROWS, small_autoencoder()));
    models.extend(several_branches());
    models
}

fn model_of(r#type: ModelKind) -> ModelConfig {
    ModelConfig {
        r#type,
        ..ModelConfig::default()
    }
}

fn mlp(norm: NormKind, activation: ActivationKind) -> ModelConfig {
    ModelConfig {
        hidden: Some(vec![5, 5]),
        norm: Some(norm),
        skip: Some(true),
        activation: Some(activation),
        ..model_of(ModelKind::Mlp)
    }
}

fn normed_mlps() -> Vec<SmallModel> {
    use ActivationKind::{Gelu, Silu};
    vec![
        ("mlp, batch", ROWS, mlp(NormKind::Batch, Gelu)),
        ("mlp, layer", ROWS, mlp(NormKind::Layer, Silu)),
        ("mlp, group", ROWS, mlp(NormKind::Group, Gelu)),
        ("mlp, images", IMAGES, mlp(NormKind::Layer, Gelu)),
    ]
}

fn small_autoencoder() -> ModelConfig {
    ModelConfig {
        hidden: Some(vec![5]),
        width: Some(2),
        ..model_of(ModelKind::Autoencoder)
    }
}

fn cnn(norm: NormKind, pool: PoolKind) -> ModelConfig {
    ModelConfig {
        channels: Some(vec![4, 3]),
        norm: Some(norm),
        pool: Some(pool),
        activation: Some(ActivationKind::Silu),
        hidden: Some(vec![5]),
        ..model_of(ModelKind::Cnn)
    }
}

fn convolutions() -> Vec<SmallModel> {
    use PoolKind::{Average, Max};
    vec![
        ("cnn, batch", IMAGES, cnn(NormKind::Batch, Average)),
        ("cnn, layer", IMAGES, cnn(NormKind::Layer, Max)),
        ("cnn, group", IMAGES, cnn(NormKind::Group, PoolKind::None)),
        ("cnn, none", IMAGES, cnn(NormKind::None, Average)),
    ]
}

fn attention(kind: ModelKind) -> ModelConfig {
    ModelConfig {
        layers: Some(2),
        width: Some(8),
        heads: Some(2),
        ..model_of(kind)
    }
}

fn small_vit() -> ModelConfig {
    ModelConfig {
        patch: Some(4),
        ..attention(ModelKind::Vit)
    }
}

fn lstms() -> Vec<SmallModel> {
    let lstm = ModelConfig {
        layers: Some(2),
        width: Some(4),
        ..model_of(ModelKind::Lstm)
    };
    let over_rows = ModelConfig {
        steps: Some(3),
        ..lstm.clone()
    };
    let over_tokens = ModelConfig {
        context: Some(5),
        ..lstm
    };
    vec![
        ("lstm, rows", ROWS, over_rows),
        ("lstm, tokens", TOKENS, over_tokens),
    ]
}

fn transformers() -> Vec<SmallModel> {
    let plain = attention(ModelKind::Transformer);
    let untied = ModelConfig {
        tied: Some(false),
        ..plain.clone()
    };
    let rotary = ModelConfig {
        heads: Some(4),
        kv_heads: Some(2),
        positions: Some(PositionKind::Rotary),
        norm: Some(NormKind::Rms),
        activation: Some(ActivationKind::Swiglu),
        bias: Some(false),
        ..plain.clone()
    };
    vec![
        ("transformer", TOKENS, plain),
        ("transformer, untied", TOKENS, untied),
        ("transformer, rotary", TOKENS, rotary),
    ]
}

fn several_branches() -> Vec<SmallModel> {
    let rows = ModelConfig {
        hidden: Some(vec![5]),
        ..model_of(ModelKind::Multi)
    };
    vec![
        ("multi, rows", ROWS, rows),
        (
            "multi, numbers, convolutions and embedded tokens",
            PARTS,
            branches(&[BranchKind::Dense, BranchKind::Cnn, BranchKind::Embedding]),
        ),
        (
            "multi, transformers over patches and tokens",
            PARTS,
            branches(&[BranchKind::Vit, BranchKind::Transformer]),
        ),
    ]
}
