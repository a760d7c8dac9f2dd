//! Branches over parts of a sample, joined: `hidden` layers over what all branches put out, side by side.
//!
//! A branch over numbers is fully connected layers over some of the features, or all; one over pictures is convolutions
//! with pools, then fully connected layers.

use burn::tensor::Tensor;
use feedline_schemas::config::{ActivationKind, BranchConfig, ModelConfig, NormKind, PoolKind};

use super::{
    blocks::{Dense, Style, sizes},
    cnn::Trunk,
};
use crate::{
    error::{Error, config as wrong},
    layers::{Builder, Gain, Layout, Linear, Pass},
    model::{Input, Model, Shape},
};

#[derive(Clone, Debug)]
enum Branch {
    Numbers { columns: [usize; 2], dense: Dense },
    Pictures { trunk: Trunk, dense: Dense },
}

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

/// The branch over a part of the samples when the configuration names none.
fn usual(shape: &Shape) -> BranchConfig {
    let pictures = matches!(shape, Shape::Pictures { .. });
    BranchConfig {
        columns: None,
        channels: pictures.then(|| vec![32, 64]),
        hidden: None,
    }
}

impl Branch {
    fn new(
        b: &mut Builder,
        config: &ModelConfig,
        branch: &BranchConfig,
        shapes: &[Shape],
    ) -> Result<Self, Error> {
        let widths = branch.hidden.clone().unwrap_or_else(|| vec![64]);
        let widths = sizes(Some(&widths));
        let refused = |reason: String| wrong("model.branches", reason);
        if let Some(channels) = &branch.channels {
            let sides = shapes.iter().find_map(|shape| match *shape {
                Shape::Pictures {
                    channels,
                    height,
                    width,
                } => Some([channels, height, width]),
                _ => None,
            });
            let sides = sides.ok_or_else(|| {
                refused("a branch has `channels`, but the dataset holds no pictures".into())
            })?;
            let convolutional = ModelConfig {
                norm: Some(NormKind::Batch),
                activation: Some(ActivationKind::Relu),
                pool: Some(PoolKind::Max),
                ..config.clone()
            };
            let trunk = Trunk::new(b, &convolutional, &sizes(Some(channels)), sides)?;
            let dense = Dense::new(b, trunk.output(), &widths, Style::plain(config));
            return Ok(Self::Pictures { trunk, dense });
        }
        let features = shapes.iter().find_map(|shape| match *shape {
            Shape::Rows { features } => Some(features),
            _ => None,
        });
        let features = features.ok_or_else(|| {
            refused("a branch has no `channels`, but the dataset holds no rows of numbers".into())
        })?;
        let columns = branch
            .columns
            .map_or([0, features], |columns| columns.map(|at| at as usize));
        if columns[1] > features {
            let reason = format!("it names column {}, rows have {features}", columns[1] - 1);
            return Err(refused(reason));
        }
        let dense = Dense::new(b, columns[1] - columns[0], &widths, Style::plain(config));
        Ok(Self::Numbers { columns, dense })
    }

    const fn output(&self) -> usize {
        match self {
            Self::Numbers { dense, .. } | Self::Pictures { dense, .. } => dense.output(),
        }
    }

    fn forward(&self, pass: &mut Pass<'_>, input: &Input) -> Tensor<2> {
        match self {
            Self::Numbers {
                columns: [first, end],
                dense,
            } => dense.forward(pass, input.rows().narrow(1, *first, end - first)),
            Self::Pictures { trunk, dense } => {
                let x = trunk.forward(pass, input.pictures());
                dense.forward(pass, x)
            }
        }
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
