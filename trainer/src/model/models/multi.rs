//! Branches over parts of a sample, joined: `hidden` layers over what all branches put out, side by side.
//!
//! A part that no branch reads is left alone, so one dataset serves a model of each of its parts and one of all.

use burn::tensor::Tensor;
use feedline_schemas::config::ModelConfig;

use super::{
    blocks::{Dense, Style, sizes},
    branch::{Branch, usual},
};
use crate::{
    error::Error,
    model::{
        interface::{Input, Model, Shape},
        layers::{Builder, Gain, Layout, Linear, Pass},
    },
};

/// Branches joined.
#[derive(Clone, Debug)]
pub(super) struct Multi {
    layout: Layout,
    branches: Vec<Branch>,
    hidden: Dense,
    last: Linear,
}

impl Multi {
    /// For samples that have all of `shapes`.
    ///
    /// # Errors
    /// [`Error::Config`] for branches over what the samples do not have.
    pub(super) fn new(
        config: &ModelConfig,
        shapes: &[Shape],
        outputs: usize,
    ) -> Result<Self, Error> {
        let mut b = Builder::new();
        let usual = || shapes.iter().map(usual).collect();
        let given = config.branches.clone().filter(|given| !given.is_empty());
        let mut branches = Vec::new();
        for (i, branch) in given.unwrap_or_else(usual).iter().enumerate() {
            let branch = b.within(&format!("branch.{i}"), |b| {
                Branch::new(b, config, branch, shapes)
            })?;
            branches.push(branch);
        }
        let joined = branches.iter().map(Branch::output).sum();
        let widths = sizes(config.hidden.as_deref());
        let (hidden, last) = b.within("joined", |b| {
            let hidden = Dense::new(b, joined, &widths, Style::plain(config));
            let from = [hidden.output()];
            (hidden, Linear::new(b, "last", &from, outputs, Gain::Glorot))
        });
        Ok(Self {
            layout: b.finish(),
            branches,
            hidden,
            last,
        })
    }
}

impl Model for Multi {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn forward(&self, pass: &mut Pass<'_>, input: &Input) -> Tensor<2> {
        let mut outputs = Vec::with_capacity(self.branches.len());
        for branch in &self.branches {
            outputs.push(branch.forward(pass, input));
        }
        let x = self.hidden.forward(pass, Tensor::cat(outputs, 1));
        self.last.forward(pass, x)
    }
}
