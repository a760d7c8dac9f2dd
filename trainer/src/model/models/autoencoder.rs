//! An autoencoder: fully connected layers to a narrow one, and mirrored back to the input.
//!
//! `hidden` widths, then `width` numbers without a nonlinearity, then the hidden widths in reverse, then the input. The
//! loss of a row is the mean over its features of the squared error; the dataset's target is not looked at.

use burn::tensor::Tensor;
use feedline_schemas::config::ModelConfig;

use super::blocks::{Dense, Style, size, sizes};
use crate::model::{
    interface::{Input, Model, Objective},
    layers::{Builder, Gain, Layout, Linear, Pass},
};

/// Gives rows back.
#[derive(Clone, Debug)]
pub(super) struct Autoencoder {
    layout: Layout,
    encoder: Dense,
    narrowest: Linear,
    decoder: Dense,
    last: Linear,
}

impl Autoencoder {
    /// For rows of `features`.
    pub(super) fn new(config: &ModelConfig, features: usize) -> Self {
        let mut b = Builder::new();
        let style = Style::plain(config);
        let mut widths = sizes(config.hidden.as_deref());
        let width = size(config.width);
        let (encoder, narrowest) = b.within("encoder", |b| {
            let encoder = Dense::new(b, features, &widths, style);
            let from = [encoder.output()];
            (
                encoder,
                Linear::new(b, "narrowest", &from, width, Gain::Glorot),
            )
        });
        widths.reverse();
        let (decoder, last) = b.within("decoder", |b| {
            let decoder = Dense::new(b, width, &widths, style);
            let from = [decoder.output()];
            (
                decoder,
                Linear::new(b, "last", &from, features, Gain::Glorot),
            )
        });
        Self {
            layout: b.finish(),
            encoder,
            narrowest,
            decoder,
            last,
        }
    }
}

impl Model for Autoencoder {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn forward(&self, pass: &mut Pass<'_>, input: &Input) -> Tensor<2> {
        let x = self.encoder.forward(pass, input.rows());
        let x = self.narrowest.forward(pass, x);
        let x = self.decoder.forward(pass, x);
        self.last.forward(pass, x)
    }

    fn objective(&self) -> Objective {
        Objective::Input
    }
}
