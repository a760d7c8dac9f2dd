//! What every model has: named parameters in one flat bucket, initial values, a forward pass.

use std::{fmt::Debug, ops::Range};

use burn::tensor::Tensor;
use feedline_schemas::{
    config::{ModelConfig, ModelKind},
    ids::Seed,
};

use crate::{error::Error, mlp::Mlp, random::Stream};

/// One parameter's place in the bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parameter {
    /// Name, such as `layer.0.weight`.
    pub(crate) name: String,
    /// Shape; the bucket holds it row-major.
    pub(crate) shape: Vec<usize>,
    /// Elements of the bucket.
    pub(crate) range: Range<usize>,
    /// Whether weight decay applies to it.
    pub(crate) decays: bool,
}

/// Number of elements in the bucket of `parameters`.
pub(crate) fn bucket_len(parameters: &[Parameter]) -> usize {
    parameters.last().map_or(0, |p| p.range.end)
}

/// A network.
pub(crate) trait Model: Debug + Send + Sync {
    /// The parameters in bucket order, without gaps.
    fn parameters(&self) -> &[Parameter];

    /// The initial bucket: a pure function of the seed.
    fn initial(&self, seed: Seed) -> Vec<f32>;

    /// Computes `[rows, outputs]` from `x: [rows, inputs]`. `weights[i]` is parameter i, flat. Dropout applies where
    /// given, that is, in training only.
    fn forward(&self, weights: &[Tensor<1>], x: Tensor<2>, dropout: Option<Dropout>) -> Tensor<2>;

    /// Share of activations dropped in training.
    fn dropout(&self) -> f64;
}

/// Randomness of one forward pass over a part of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dropout {
    /// The step's stream.
    pub(crate) stream: Stream,
    /// Row of the batch that this part begins with; the mask of a row does not depend on how the batch is cut.
    pub(crate) first_row: usize,
}

/// Most parameters a model may have: 2^31, 8 GiB of weights, with moments and gradient 32 GiB.
const PARAMETERS_MAX: u64 = 1 << 31;

/// Builds the model that `config` describes, from `inputs` features to `outputs` numbers.
///
/// # Errors
/// [`Error::Config`] when it would have more than 2^31 parameters.
pub(crate) fn build(
    config: &ModelConfig,
    inputs: usize,
    outputs: usize,
) -> Result<Box<dyn Model>, Error> {
    let model = match config.r#type {
        ModelKind::Mlp => {
            let widths: Vec<usize> = config.hidden.iter().map(|&w| w as usize).collect();
            Mlp::new(inputs, &widths, outputs, config.dropout)
        }
    };
    let count = bucket_len(model.parameters()) as u64;
    if count > PARAMETERS_MAX {
        let reason = format!(
            "the model would have {count} parameters, at most {PARAMETERS_MAX} are allowed; use narrower layers"
        );
        return Err(crate::error::config("model.hidden", reason));
    }
    Ok(Box::new(model))
}
