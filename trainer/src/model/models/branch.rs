//! A branch over a part of each row: what reads the part, then fully connected layers.

use burn::tensor::Tensor;
use feedline_schemas::config::{
    ActivationKind, BranchConfig, BranchKind, ModelConfig, NormKind, PoolKind,
};

use super::{
    blocks::{Dense, Style, sizes},
    cnn,
    limits::{widths, within},
    resnet,
    text::Pooled,
    vit,
};
use crate::{
    error::{Error, config as wrong},
    model::{
        interface::{Input, Shape},
        layers::{Builder, Pass},
    },
};

const KEY: &str = "model.branches";
/// Sides below this count as small.
const SMALL_SIDE: usize = 64;

/// Model that reads the part.
#[derive(Clone, Debug)]
enum BranchTrunk {
    Numbers([usize; 2]),
    Cnn(cnn::CnnTrunk),
    Resnet(resnet::ResnetTrunk),
    Vit(vit::VitTrunk),
    Text(Pooled),
}

/// A branch.
#[derive(Clone, Debug)]
pub(super) struct Branch {
    trunk: BranchTrunk,
    dense: Dense,
}

/// Default kind of a branch.
fn kind(branch: &BranchConfig) -> BranchKind {
    let usual = match branch.channels {
        Some(_) => BranchKind::Cnn,
        None => BranchKind::Dense,
    };
    branch.r#type.unwrap_or(usual)
}

/// The keys that a type of branch knows, besides `type` and `hidden`.
const fn keys(kind: BranchKind) -> &'static [&'static str] {
    match kind {
        BranchKind::Dense => &["columns"],
        BranchKind::Cnn => &["channels"],
        BranchKind::Resnet => &["depth"],
        BranchKind::Vit => &["width", "layers", "heads", "patch"],
        BranchKind::Embedding => &["width"],
        BranchKind::Transformer => &["width", "layers", "heads"],
    }
}

/// Checks the keys of branches that need no dataset.
///
/// # Errors
/// [`Error::Config`] for the first key that a branch does not know or whose value is out of range.
pub(super) fn check(branches: &[BranchConfig]) -> Result<(), Error> {
    for branch in branches {
        check_keys(branch)?;
        widths("branches", branch.hidden.as_deref())?;
        widths("branches", branch.channels.as_deref())?;
        if branch.columns.is_some_and(|[first, end]| first >= end) {
            let reason = "the first of its `columns` must be below the second".to_owned();
            return Err(wrong(KEY, reason));
        }
        if branch.hidden.as_deref() == Some(&[]) || branch.channels.as_deref() == Some(&[]) {
            let reason = "a branch's `hidden` and `channels` must not be empty".to_owned();
            return Err(wrong(KEY, reason));
        }
        within("branches", branch.width, 1, 65_536)?;
        within("branches", branch.layers, 1, 256)?;
        within("branches", branch.heads, 1, 65_536)?;
        within("branches", branch.patch, 1, 8192)?;
        let filled = filled(branch, &ModelConfig::default(), SMALL_SIDE);
        if let (Some(width), Some(heads)) = (filled.width, filled.heads)
            && keys(kind(branch)).contains(&"heads")
            && !width.is_multiple_of(heads)
        {
            let reason =
                format!("the `heads` of a branch, {heads}, must divide its width, {width}");
            return Err(wrong(KEY, reason));
        }
        if let Some(depth) = branch.depth.filter(|depth| ![18, 34, 50].contains(depth)) {
            let reason = format!("the `depth` of a branch is {depth} and must be 18, 34 or 50");
            return Err(wrong(KEY, reason));
        }
    }
    Ok(())
}

fn check_keys(branch: &BranchConfig) -> Result<(), Error> {
    let given = [
        ("columns", branch.columns.is_some()),
        ("channels", branch.channels.is_some()),
        ("width", branch.width.is_some()),
        ("layers", branch.layers.is_some()),
        ("heads", branch.heads.is_some()),
        ("patch", branch.patch.is_some()),
        ("depth", branch.depth.is_some()),
    ];
    let known = keys(kind(branch));
    let odd = given
        .into_iter()
        .find(|(key, given)| *given && !known.contains(key));
    let Some((key, _)) = odd else {
        return Ok(());
    };
    let known: Vec<String> = known.iter().map(|key| format!("`{key}`")).collect();
    let reason = format!(
        "`{key}` is not a key of such a branch, which knows `type`, `hidden` and {}; take it out, or set the branch's `type`",
        known.join(", ")
    );
    Err(wrong(KEY, reason))
}

/// The branch over a part of the samples when the configuration names none.
pub(super) fn usual(shape: &Shape) -> BranchConfig {
    let kind = match shape {
        Shape::Images { .. } => BranchKind::Cnn,
        Shape::Tokens { .. } => BranchKind::Embedding,
        Shape::Rows { .. } | Shape::Multi { .. } => BranchKind::Dense,
    };
    BranchConfig {
        r#type: Some(kind),
        ..BranchConfig::default()
    }
}

/// The keys of a branch as those of a model of its own, with defaults filled in, for images whose shorter side is `side`.
fn filled(branch: &BranchConfig, config: &ModelConfig, side: usize) -> ModelConfig {
    let small = side < SMALL_SIDE;
    ModelConfig {
        channels: branch.channels.clone().or_else(|| Some(vec![32, 64])),
        norm: Some(NormKind::Batch),
        activation: Some(ActivationKind::Relu),
        pool: Some(PoolKind::Max),
        width: branch.width.or(Some(64)),
        layers: branch.layers.or(Some(2)),
        heads: branch.heads.or(Some(4)),
        patch: branch.patch.or(Some(if small { 4 } else { 16 })),
        depth: branch.depth.or(Some(18)),
        small_images: Some(small),
        ..config.clone()
    }
}

impl BranchTrunk {
    fn new(
        b: &mut Builder,
        config: &ModelConfig,
        branch: &BranchConfig,
        shapes: &[Shape],
    ) -> Result<Self, Error> {
        let kind = kind(branch);
        let missing = |what: &str| {
            let name = match kind {
                BranchKind::Dense => "dense",
                BranchKind::Cnn => "cnn",
                BranchKind::Resnet => "resnet",
                BranchKind::Vit => "vit",
                BranchKind::Embedding => "embedding",
                BranchKind::Transformer => "transformer",
            };
            wrong(
                KEY,
                format!("a branch of type `{name}` reads {what}, which the dataset does not hold"),
            )
        };
        match kind {
            BranchKind::Dense => {
                let features = shapes.iter().find_map(|shape| match *shape {
                    Shape::Rows { features } => Some(features),
                    _ => None,
                });
                numbers(branch, features.ok_or_else(|| missing("numbers"))?)
            }
            BranchKind::Cnn | BranchKind::Resnet | BranchKind::Vit => {
                let sides = shapes.iter().find_map(|shape| match *shape {
                    Shape::Images {
                        channels,
                        height,
                        width,
                    } => Some([channels, height, width]),
                    _ => None,
                });
                let sides = sides.ok_or_else(|| missing("images"))?;
                let config = filled(branch, config, sides[1].min(sides[2]));
                Ok(match kind {
                    BranchKind::Resnet => Self::Resnet(resnet::ResnetTrunk::new(b, &config, sides)),
                    BranchKind::Vit => Self::Vit(vit::VitTrunk::new(b, &config, sides)?),
                    _ => {
                        let channels = sizes(config.channels.as_deref());
                        Self::Cnn(cnn::CnnTrunk::new(b, &config, &channels, sides)?)
                    }
                })
            }
            BranchKind::Embedding | BranchKind::Transformer => {
                let text = shapes.iter().find_map(|shape| match *shape {
                    Shape::Tokens { length, vocabulary } => Some([length, vocabulary]),
                    _ => None,
                });
                let text = text.ok_or_else(|| missing("texts"))?;
                let config = filled(branch, config, SMALL_SIDE);
                Ok(Self::Text(match kind {
                    BranchKind::Embedding => Pooled::embedding(b, &config, text),
                    _ => Pooled::transformer(b, &config, text),
                }))
            }
        }
    }

    const fn output(&self) -> usize {
        match self {
            Self::Numbers([first, end]) => *end - *first,
            Self::Cnn(trunk) => trunk.output(),
            Self::Resnet(trunk) => trunk.output(),
            Self::Vit(trunk) => trunk.output(),
            Self::Text(text) => text.output(),
        }
    }
}

fn numbers(branch: &BranchConfig, features: usize) -> Result<BranchTrunk, Error> {
    let columns = branch
        .columns
        .map_or([0, features], |columns| columns.map(|at| at as usize));
    if columns[1] > features {
        let reason = format!("it names column {}, rows have {features}", columns[1] - 1);
        return Err(wrong(KEY, reason));
    }
    Ok(BranchTrunk::Numbers(columns))
}

impl Branch {
    /// A branch over samples that have all of `shapes`.
    ///
    /// # Errors
    /// [`Error::Config`] for one over what the samples do not have.
    pub(super) fn new(
        b: &mut Builder,
        config: &ModelConfig,
        branch: &BranchConfig,
        shapes: &[Shape],
    ) -> Result<Self, Error> {
        let hidden = branch.hidden.clone().unwrap_or_else(|| vec![64]);
        let trunk = BranchTrunk::new(b, config, branch, shapes)?;
        let dense = Dense::new(
            b,
            trunk.output(),
            &sizes(Some(&hidden)),
            Style::plain(config),
        );
        Ok(Self { trunk, dense })
    }

    /// Numbers that come out.
    pub(super) const fn output(&self) -> usize {
        self.dense.output()
    }

    /// `[rows, output]`.
    pub(super) fn forward(&self, pass: &mut Pass<'_>, input: &Input) -> Tensor<2> {
        let x = match &self.trunk {
            BranchTrunk::Numbers([first, end]) => input.rows().narrow(1, *first, end - first),
            BranchTrunk::Cnn(trunk) => trunk.forward(pass, input.images()),
            BranchTrunk::Resnet(trunk) => trunk.forward(pass, input.images()),
            BranchTrunk::Vit(trunk) => trunk.forward(pass, input.images()),
            BranchTrunk::Text(text) => text.forward(pass, input.tokens()),
        };
        self.dense.forward(pass, x)
    }
}
