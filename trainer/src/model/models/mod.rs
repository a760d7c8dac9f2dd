//! The models that a configuration can name, each in a file of its own.
//!
//! | type | samples | what it is |
//! |---|---|---|
//! | `mlp` | rows, images | fully connected layers |
//! | `cnn` | images | convolutions and pools, then fully connected layers |
//! | `resnet` | images | residual network of 18, 34 or 50 layers |
//! | `vit` | images | transformer over patches |
//! | `lstm` | rows as time series, tokens | long short-term memory |
//! | `transformer` | tokens | decoder that predicts the next token |
//! | `autoencoder` | rows | gives its input back through a narrow layer |
//! | `multi` | rows, images, rows of several parts | branches over parts of a sample, joined |

mod autoencoder;
mod blocks;
mod branch;
mod cnn;
mod config;
mod limits;
mod lstm;
mod mlp;
mod multi;
mod resnet;
mod text;
mod transformer;
mod vit;

#[cfg(test)]
mod tests;

use feedline_schemas::config::{DatasetKind, ModelConfig, ModelKind};

pub(crate) use self::config::{GHOST_IMAGES, GHOST_ROWS, check, filled, name, reads_tokens};
use crate::{
    error::{Error, config as wrong},
    model::interface::{Model, PARAMETERS_MAX, Shape},
};

/// Advice when the dataset holds tokens and the model reads none.
pub(crate) const ON_TOKENS: &str =
    "the dataset holds tokens; use `transformer`, or `lstm` with `train.model.context`";

/// Builds the model that `config`, with all defaults filled in, describes for samples of this shape.
///
/// # Errors
/// [`Error::Config`] for a type that does not read such samples, sizes that do not fit, or more than 2^31 parameters.
pub(crate) fn build(
    config: &ModelConfig,
    shape: Shape,
    outputs: usize,
) -> Result<Box<dyn Model>, Error> {
    let model: Box<dyn Model> = match (config.r#type, shape) {
        (ModelKind::Mlp, Shape::Rows { features }) => {
            Box::new(mlp::Mlp::new(config, features, outputs))
        }
        (
            ModelKind::Mlp,
            Shape::Images {
                channels,
                height,
                width,
            },
        ) => Box::new(mlp::Mlp::new(config, channels * height * width, outputs)),
        (ModelKind::Autoencoder, Shape::Rows { features }) => {
            Box::new(autoencoder::Autoencoder::new(config, features))
        }
        (ModelKind::Lstm, Shape::Rows { features }) => {
            Box::new(lstm::RowSeries::new(config, features, outputs)?)
        }
        (ModelKind::Lstm, Shape::Tokens { length, vocabulary }) => {
            Box::new(lstm::Language::new(config, length, vocabulary))
        }
        (ModelKind::Transformer, Shape::Tokens { length, vocabulary }) => {
            Box::new(transformer::Transformer::new(config, length, vocabulary))
        }
        (
            ModelKind::Cnn,
            Shape::Images {
                channels,
                height,
                width,
            },
        ) => Box::new(cnn::Cnn::new(config, [channels, height, width], outputs)?),
        (
            ModelKind::Resnet,
            Shape::Images {
                channels,
                height,
                width,
            },
        ) => Box::new(resnet::Resnet::new(
            config,
            [channels, height, width],
            outputs,
        )),
        (
            ModelKind::Vit,
            Shape::Images {
                channels,
                height,
                width,
            },
        ) => Box::new(vit::Vit::new(config, [channels, height, width], outputs)?),
        (ModelKind::Multi, Shape::Rows { .. } | Shape::Images { .. } | Shape::Multi { .. }) => {
            Box::new(multi::Multi::new(config, &shape.parts(), outputs)?)
        }
        (kind, shape) => return Err(wrong("model.type", misfit(kind, shape))),
    };
    let count = model.layout().len();
    if count > PARAMETERS_MAX {
        let reason = format!(
            "the model would have {count} parameters, at most {PARAMETERS_MAX} are allowed; use narrower layers"
        );
        return Err(wrong("model", reason));
    }
    Ok(model)
}

/// Checks that a model of this type reads what a dataset of this kind holds.
///
/// # Errors
/// [`Error::Config`] with the types that fit.
pub(crate) fn check_kind(config: &ModelConfig, dataset: DatasetKind) -> Result<(), Error> {
    use ModelKind::{Autoencoder, Cnn, Lstm, Mlp, Multi, Resnet, Vit};
    let (fitting, shape): (&[ModelKind], Shape) = match dataset {
        DatasetKind::Tokens | DatasetKind::Characters => {
            return match reads_tokens(config) {
                true => Ok(()),
                false => Err(wrong("model.type", ON_TOKENS)),
            };
        }
        DatasetKind::Rows => (
            &[Mlp, Lstm, Autoencoder, Multi],
            Shape::Rows { features: 1 },
        ),
        DatasetKind::Images => (
            &[Mlp, Cnn, Resnet, Vit, Multi],
            Shape::Images {
                channels: 3,
                height: 1,
                width: 1,
            },
        ),
        DatasetKind::Multi => (
            &[Multi],
            Shape::Multi {
                features: 0,
                images: None,
                tokens: None,
            },
        ),
    };
    match fitting.contains(&config.r#type) {
        true => Ok(()),
        false => Err(wrong("model.type", misfit(config.r#type, shape))),
    }
}

fn misfit(kind: ModelKind, shape: Shape) -> String {
    let kind = name(kind);
    let (found, fitting) = match shape {
        Shape::Rows { .. } => ("rows of numbers", "`mlp`, `lstm`, `autoencoder` or `multi`"),
        Shape::Images { .. } => ("images", "`mlp`, `cnn`, `resnet`, `vit` or `multi`"),
        Shape::Tokens { .. } => ("tokens", "`transformer` or `lstm`"),
        Shape::Multi { .. } => ("rows of several parts", "`multi`"),
    };
    format!("`{kind}` does not read {found}, which the dataset holds; use {fitting}")
}
