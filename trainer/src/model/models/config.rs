//! Keys of each model type, their defaults and ranges.

use feedline_schemas::config::{
    ActivationKind, ModelConfig, ModelKind, NormKind, PoolKind, PositionKind, TrainConfig,
};

use super::{
    branch,
    limits::{WIDTH_MAX, widths, within},
};
use crate::error::{Error, config as wrong};

/// Rows of numbers that batch norm normalises over together, where none are given.
pub(crate) const GHOST_ROWS: u32 = 128;
/// Images that batch norm normalises over together, where none are given.
pub(crate) const GHOST_IMAGES: u32 = 32;
/// Sides below this count as small.
const SMALL_SIDE: u32 = 64;

/// The word for a type.
pub(crate) const fn name(kind: ModelKind) -> &'static str {
    match kind {
        ModelKind::Mlp => "mlp",
        ModelKind::Cnn => "cnn",
        ModelKind::Resnet => "resnet",
        ModelKind::Lstm => "lstm",
        ModelKind::Transformer => "transformer",
        ModelKind::Vit => "vit",
        ModelKind::Autoencoder => "autoencoder",
        ModelKind::Multi => "multi",
    }
}

/// The keys that a type knows, besides `type` and `dropout`.
const fn keys(kind: ModelKind) -> &'static [&'static str] {
    match kind {
        ModelKind::Mlp => &["hidden", "norm", "ghost_batch", "skip", "activation"],
        ModelKind::Cnn => &[
            "channels",
            "kernel",
            "norm",
            "ghost_batch",
            "pool",
            "activation",
            "hidden",
        ],
        ModelKind::Resnet => &["depth", "small_images", "ghost_batch"],
        ModelKind::Lstm => &["layers", "width", "steps", "context"],
        ModelKind::Transformer => &[
            "layers",
            "width",
            "heads",
            "kv_heads",
            "positions",
            "norm",
            "activation",
            "bias",
            "context",
            "tied",
        ],
        ModelKind::Vit => &["layers", "width", "heads", "patch"],
        ModelKind::Autoencoder => &["hidden", "width", "activation"],
        ModelKind::Multi => &["branches", "hidden", "ghost_batch"],
    }
}

/// Returns true if a model is for tokens: a `transformer`, and an `lstm` that is given a `context`.
pub(crate) fn reads_tokens(config: &ModelConfig) -> bool {
    match config.r#type {
        ModelKind::Transformer => true,
        ModelKind::Lstm => config.context.is_some(),
        _ => false,
    }
}

/// The keys that are given.
fn given(config: &ModelConfig) -> impl Iterator<Item = &'static str> {
    [
        ("hidden", config.hidden.is_some()),
        ("norm", config.norm.is_some()),
        ("ghost_batch", config.ghost_batch.is_some()),
        ("skip", config.skip.is_some()),
        ("activation", config.activation.is_some()),
        ("channels", config.channels.is_some()),
        ("kernel", config.kernel.is_some()),
        ("pool", config.pool.is_some()),
        ("depth", config.depth.is_some()),
        ("small_images", config.small_images.is_some()),
        ("layers", config.layers.is_some()),
        ("width", config.width.is_some()),
        ("heads", config.heads.is_some()),
        ("kv_heads", config.kv_heads.is_some()),
        ("positions", config.positions.is_some()),
        ("bias", config.bias.is_some()),
        ("context", config.context.is_some()),
        ("tied", config.tied.is_some()),
        ("steps", config.steps.is_some()),
        ("patch", config.patch.is_some()),
        ("branches", config.branches.is_some()),
    ]
    .into_iter()
    .filter_map(|(key, given)| given.then_some(key))
}

/// The model's configuration with the defaults of its type filled in; `steps` and `branches` follow from the dataset.
pub(crate) fn filled(config: &TrainConfig) -> ModelConfig {
    let small = config.images.height.min(config.images.width) < SMALL_SIDE;
    let model = config.model.clone();
    let knows = |key| keys(model.r#type).contains(&key);
    let kind = model.r#type;
    let (is_cnn, is_lstm) = (kind == ModelKind::Cnn, kind == ModelKind::Lstm);
    let hidden = if kind == ModelKind::Mlp {
        vec![128, 128]
    } else {
        vec![128]
    };
    let norm = if is_cnn {
        NormKind::Batch
    } else {
        NormKind::None
    };
    let activation = if is_cnn {
        ActivationKind::Relu
    } else {
        ActivationKind::Gelu
    };
    let width = if kind == ModelKind::Autoencoder {
        16
    } else {
        128
    };
    let is_transformer = kind == ModelKind::Transformer;
    let norm = default(knows("norm") && !is_transformer, model.norm, norm);
    let normalises = norm == Some(NormKind::Batch) || kind == ModelKind::Resnet;
    let ghost_batch = match kind {
        ModelKind::Mlp => GHOST_ROWS,
        _ => GHOST_IMAGES,
    };
    ModelConfig {
        hidden: default(knows("hidden"), model.hidden, hidden),
        norm,
        ghost_batch: default(normalises, model.ghost_batch, ghost_batch),
        skip: default(knows("skip"), model.skip, false),
        activation: default(
            knows("activation") && !is_transformer,
            model.activation,
            activation,
        ),
        channels: default(knows("channels"), model.channels, vec![32, 64]),
        kernel: default(knows("kernel"), model.kernel, 3),
        pool: default(knows("pool"), model.pool, PoolKind::Max),
        depth: default(knows("depth"), model.depth, 18),
        small_images: default(knows("small_images"), model.small_images, small),
        layers: default(knows("layers"), model.layers, if is_lstm { 1 } else { 4 }),
        width: default(knows("width"), model.width, width),
        heads: default(knows("heads"), model.heads, 4),
        context: default(is_transformer, model.context, 128),
        tied: default(knows("tied"), model.tied, true),
        patch: default(knows("patch"), model.patch, if small { 4 } else { 16 }),
        ..model
    }
}

fn default<T>(known: bool, given: Option<T>, usual: T) -> Option<T> {
    if known { given.or(Some(usual)) } else { given }
}

/// Checks every key that needs no dataset.
///
/// # Errors
/// [`Error::Config`] for the first key that the type does not know or whose value is out of range.
pub(crate) fn check(config: &ModelConfig) -> Result<(), Error> {
    let known = keys(config.r#type);
    if let Some(key) = given(config).find(|key| !known.contains(key)) {
        let known: Vec<String> = known.iter().map(|key| format!("`{key}`")).collect();
        let reason = format!(
            "it is not a key of a model of type `{}`, which knows {} and `dropout`; take it out, or set \
             `train.model.type`",
            name(config.r#type),
            known.join(", ")
        );
        return Err(wrong(&format!("model.{key}"), reason));
    }
    widths("hidden", config.hidden.as_deref())?;
    widths("channels", config.channels.as_deref())?;
    if config.channels.as_deref() == Some(&[]) {
        return Err(wrong("model.channels", "it is empty, give at least one"));
    }
    within("kernel", config.kernel, 1, 15)?;
    if config.kernel.is_some_and(|kernel| kernel % 2 == 0) {
        return Err(wrong("model.kernel", "it is even and must be odd"));
    }
    if let Some(depth) = config.depth.filter(|depth| ![18, 34, 50].contains(depth)) {
        let reason = format!("it is {depth} and must be 18, 34 or 50");
        return Err(wrong("model.depth", reason));
    }
    within("ghost_batch", config.ghost_batch, 2, 1 << 20)?;
    let has_other_norm = match config.r#type {
        ModelKind::Mlp => config.norm != Some(NormKind::Batch),
        ModelKind::Cnn => config.norm.is_some_and(|norm| norm != NormKind::Batch),
        _ => false,
    };
    if config.ghost_batch.is_some() && has_other_norm {
        let reason = "only batch norm has it; set `train.model.norm = \"batch\"`, or take it out";
        return Err(wrong("model.ghost_batch", reason));
    }
    check_kinds(config)?;
    within("layers", config.layers, 1, 256)?;
    within("width", config.width, 1, WIDTH_MAX)?;
    within("heads", config.heads, 1, WIDTH_MAX)?;
    within("kv_heads", config.kv_heads, 1, WIDTH_MAX)?;
    within("context", config.context, 1, WIDTH_MAX)?;
    within("steps", config.steps, 1, WIDTH_MAX)?;
    if config.steps.is_some() && reads_tokens(config) {
        let reason = "it is for rows of numbers, and `train.model.context` is for tokens; take one of them out";
        return Err(wrong("model.steps", reason));
    }
    within("patch", config.patch, 1, 8192)?;
    check_heads(config)?;
    branch::check(config.branches.as_deref().unwrap_or_default())?;
    let dropout = config.dropout;
    if !(dropout.is_finite() && (0.0..1.0).contains(&dropout)) {
        let reason = format!("it is {dropout} and must be at least 0 and below 1");
        return Err(wrong("model.dropout", reason));
    }
    Ok(())
}

/// Checks that the type has the norm and the activation that are given.
fn check_kinds(config: &ModelConfig) -> Result<(), Error> {
    let kind = config.r#type;
    let reason = match (kind, config.norm) {
        (ModelKind::Transformer, Some(NormKind::None | NormKind::Batch | NormKind::Group)) => {
            "a `transformer` has `layer` or `rms`"
        }
        (ModelKind::Cnn, Some(NormKind::Rms)) => "a `cnn` has `none`, `batch`, `layer` or `group`",
        _ => "",
    };
    if !reason.is_empty() {
        return Err(wrong("model.norm", reason));
    }
    if kind != ModelKind::Transformer && config.activation == Some(ActivationKind::Swiglu) {
        let reason = format!(
            "only a `transformer` has `swiglu`; a model of type `{}` has `gelu`, `relu` or `silu`",
            name(kind)
        );
        return Err(wrong("model.activation", reason));
    }
    Ok(())
}

fn check_heads(config: &ModelConfig) -> Result<(), Error> {
    if !keys(config.r#type).contains(&"heads") {
        return Ok(());
    }
    let (width, heads) = (config.width.unwrap_or(128), config.heads.unwrap_or(4));
    if !width.is_multiple_of(heads) {
        let reason = format!("it is {heads} and must divide the width, {width}");
        return Err(wrong("model.heads", reason));
    }
    if let Some(keys) = config.kv_heads.filter(|keys| !heads.is_multiple_of(*keys)) {
        let reason = format!("it is {keys} and must divide the number of heads, {heads}");
        return Err(wrong("model.kv_heads", reason));
    }
    let inside = width / heads;
    if config.positions == Some(PositionKind::Rotary) && inside % 2 == 1 {
        let reason = format!(
            "`rotary` needs an even number of values in each head, and {width} / {heads} is {inside}; change \
             `train.model.width` or `train.model.heads`"
        );
        return Err(wrong("model.positions", reason));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(config: ModelConfig) -> String {
        check(&config).unwrap_err().to_string()
    }

    #[test]
    fn a_key_of_another_type_is_refused_and_the_known_ones_are_named() {
        let config = ModelConfig {
            r#type: ModelKind::Transformer,
            kernel: Some(3),
            ..ModelConfig::default()
        };
        assert_eq!(
            refused(config),
            "cannot use `train.model.kernel`: it is not a key of a model of type `transformer`, which knows `layers`, \
             `width`, `heads`, `kv_heads`, `positions`, `norm`, `activation`, `bias`, `context`, `tied` and `dropout`; take it out, or set `train.model.type`"
        );
    }

    #[test]
    fn heads_must_divide_the_width() {
        let config = ModelConfig {
            r#type: ModelKind::Vit,
            width: Some(100),
            heads: Some(3),
            ..ModelConfig::default()
        };
        assert_eq!(
            refused(config),
            "cannot use `train.model.heads`: it is 3 and must divide the width, 100"
        );
    }

    #[test]
    fn choices_that_do_not_go_together_are_refused() {
        let transformer = || ModelConfig {
            r#type: ModelKind::Transformer,
            width: Some(12),
            heads: Some(4),
            ..ModelConfig::default()
        };
        let keys = ModelConfig {
            kv_heads: Some(3),
            ..transformer()
        };
        assert_eq!(
            refused(keys),
            "cannot use `train.model.kv_heads`: it is 3 and must divide the number of heads, 4"
        );
        let lstm = ModelConfig {
            r#type: ModelKind::Lstm,
            steps: Some(8),
            context: Some(64),
            ..ModelConfig::default()
        };
        assert_eq!(
            refused(lstm),
            "cannot use `train.model.steps`: it is for rows of numbers, and `train.model.context` is for tokens; take one of \
             them out"
        );
        let rotary = ModelConfig {
            positions: Some(PositionKind::Rotary),
            ..transformer()
        };
        assert_eq!(
            refused(rotary),
            "cannot use `train.model.positions`: `rotary` needs an even number of values in each head, and 12 / 4 is 3; \
             change `train.model.width` or `train.model.heads`"
        );
        let norm = ModelConfig {
            norm: Some(NormKind::Batch),
            ..transformer()
        };
        assert_eq!(
            refused(norm),
            "cannot use `train.model.norm`: a `transformer` has `layer` or `rms`"
        );
        let gated = ModelConfig {
            activation: Some(ActivationKind::Swiglu),
            ..ModelConfig::default()
        };
        assert_eq!(
            refused(gated),
            "cannot use `train.model.activation`: only a `transformer` has `swiglu`; a model of type `mlp` has `gelu`, \
             `relu` or `silu`"
        );
    }

    #[test]
    fn values_out_of_range_are_named() {
        let of = |kind, change: fn(&mut ModelConfig)| {
            let mut config = ModelConfig {
                r#type: kind,
                ..ModelConfig::default()
            };
            change(&mut config);
            refused(config)
        };
        let cases = [
            ("kernel", of(ModelKind::Cnn, |c| c.kernel = Some(4))),
            (
                "channels",
                of(ModelKind::Cnn, |c| c.channels = Some(vec![])),
            ),
            (
                "channels",
                of(ModelKind::Cnn, |c| c.channels = Some(vec![0])),
            ),
            ("depth", of(ModelKind::Resnet, |c| c.depth = Some(19))),
            ("layers", of(ModelKind::Lstm, |c| c.layers = Some(0))),
            (
                "context",
                of(ModelKind::Transformer, |c| c.context = Some(0)),
            ),
            ("patch", of(ModelKind::Vit, |c| c.patch = Some(0))),
        ];
        for (key, message) in cases {
            assert!(
                message.contains(&format!("`train.model.{key}`")),
                "{message}"
            );
        }
    }

    #[test]
    fn a_default_written_out_is_the_same_model() {
        let plain = filled(&TrainConfig::default());
        assert_eq!(plain.hidden, Some(vec![128, 128]));
        let written = TrainConfig {
            model: plain.clone(),
            ..TrainConfig::default()
        };
        assert_eq!(filled(&written), plain);
        assert!(check(&plain).is_ok());
    }
}
