//! `[train.model]` and `[train.images]`.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize};

use super::{
    augment::{Augmentation, ImageMixConfig, NormaliseBy},
    tagged::KeyTable,
};

/// `[train.model]`. A key that the chosen type does not know is refused; a key left out has the type's default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ModelConfig {
    /// `mlp`, `cnn`, `resnet`, `lstm`, `transformer`, `vit`, `autoencoder` or `multi`. Default `mlp`.
    pub r#type: ModelKind,
    /// Widths of fully connected layers, 1 to 65,536 each: `mlp`, all hidden ones (`[]` is a linear model, default
    /// `[128, 128]`); `cnn`, those after the convolutions (default `[128]`); `autoencoder`, those before the narrowest,
    /// mirrored after it (default `[128]`); `multi`, those after the branches are joined (default `[128]`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hidden: Option<Vec<u32>>,
    /// Share of activations dropped in training, 0 to below 1. Default 0.
    pub dropout: f64,
    /// Names of blocks whose activations are not kept for the backward pass, which computes them again from the block's
    /// input: less memory for about a third more time, and the same weights to the bit. `*` stands for any text, and
    /// `["*"]` for all blocks: `block.N` of a `transformer` or `vit`, `stage.N.M` of a `resnet`, `conv.N` of a `cnn`,
    /// and the hidden `layer.N`. Default none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub checkpoint: Vec<String>,
    /// `mlp`, `cnn`: what is done before each nonlinearity. Default `none` for `mlp`, `batch` for `cnn`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub norm: Option<NormKind>,
    /// `mlp` and `cnn` with `norm = "batch"`, `resnet`, `multi`: rows that batch norm normalises over together in training (a
    /// ghost batch), 2 to 1,048,576. A full batch consists of the largest power of two of ghost batches with at least so
    /// many rows, and a shorter batch of as many. It is part of the model: processors, GPUs and
    /// ranks whose number divides the ghost batches compute the same ones; the program says where it does not. Default 32 where the model reads images, else 128.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ghost_batch: Option<u32>,
    /// `mlp`: whether a hidden layer as wide as the one before adds that one's output to its own. Default false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skip: Option<bool>,
    /// `mlp`, `cnn`, `autoencoder`: the nonlinearity. Default `gelu`, for `cnn` `relu`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activation: Option<ActivationKind>,
    /// `cnn`: channels of each convolution, 1 to 65,536. Default `[32, 64]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channels: Option<Vec<u32>>,
    /// `cnn`: pixels of a convolution's side, odd, 1 to 15. Default 3.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<u32>,
    /// `cnn`: how each convolution's output is halved. Default `max`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<PoolKind>,
    /// `resnet`: layers, 18, 34 or 50. Default 18.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth: Option<u32>,
    /// `resnet`: whether it begins for images of some 32 pixels, with a 3x3 convolution, in place of a 7x7 one and a
    /// pool that leave a sixteenth of the pixels. Default: whether a side is below 64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub small_images: Option<bool>,
    /// `transformer`, `vit`, `lstm`: number of layers, 1 to 256. Default 4, for `lstm` 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layers: Option<u32>,
    /// `transformer`, `vit`, `lstm`: numbers per position, 1 to 65,536; `autoencoder`: width of the narrowest layer.
    /// Default 128, for `autoencoder` 16.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub width: Option<u32>,
    /// `transformer`, `vit`: attention heads; they divide the width. Default 4.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heads: Option<u32>,
    /// `transformer`, `lstm`: ids that the model reads of a row, 1 to 65,536. Default 128 for `transformer`; an `lstm`
    /// reads tokens where it is given, else rows of numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<u32>,
    /// `transformer`: whether the scores of ids come from the table that embeds them. Default true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tied: Option<bool>,
    /// `lstm` on rows: time steps of a row, step by step in the row; they divide the features. Default: those of a window
    /// (`dataset.sequence.length`), else one per feature.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<u32>,
    /// `vit`: pixels of a patch's side; it divides the image's sides. Default 16, below 64 pixels 4.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patch: Option<u32>,
    /// `multi`: the branches, at least one. Default: one for each part that the samples have.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "read_branches"
    )]
    #[schemars(schema_with = "branches_schema")]
    pub branches: Option<Vec<BranchConfig>>,
}

/// The keys of each type.
const KEYS: KeyTable = KeyTable {
    tag: "type",
    default: "mlp",
    common: &["dropout", "checkpoint"],
    variants: &[
        (
            "mlp",
            &["hidden", "norm", "ghost_batch", "skip", "activation"],
        ),
        (
            "cnn",
            &[
                "channels",
                "kernel",
                "norm",
                "ghost_batch",
                "pool",
                "activation",
                "hidden",
            ],
        ),
        ("resnet", &["depth", "small_images", "ghost_batch"]),
        ("lstm", &["layers", "width", "steps", "context"]),
        (
            "transformer",
            &["layers", "width", "heads", "context", "tied"],
        ),
        ("vit", &["layers", "width", "heads", "patch"]),
        ("autoencoder", &["hidden", "width", "activation"]),
        ("multi", &["branches", "hidden", "ghost_batch"]),
    ],
};

/// Reads the section, and refuses a key of another type.
pub(super) fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ModelConfig, D::Error> {
    KEYS.read(deserializer)
}

pub(super) fn schema(generator: &mut SchemaGenerator) -> Schema {
    KEYS.schema::<ModelConfig>(generator)
}

/// Kind of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ModelKind {
    /// Fully connected layers, on rows of numbers.
    #[default]
    Mlp,
    /// Convolutions and pools, then fully connected layers, on images.
    Cnn,
    /// Residual network, on images.
    Resnet,
    /// Long short-term memory, on rows of numbers that are time series, or on tokens to predict the next.
    Lstm,
    /// Decoder of the GPT-2 kind, on tokens to predict the next.
    Transformer,
    /// Vision transformer, on images.
    Vit,
    /// Fully connected layers that give their input back through a narrow one, on rows of numbers.
    Autoencoder,
    /// Branches over parts of the samples, joined.
    Multi,
}

/// Kind of a norm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NormKind {
    /// None.
    None,
    /// Batch norm.
    Batch,
    /// Layer norm; in a `cnn`, group norm with one group.
    Layer,
    /// Group norm, with as many groups up to 32 as divide the channels and leave 16 numbers in each.
    Group,
}

/// Kind of a nonlinearity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ActivationKind {
    /// `x` times the normal distribution function of `x`.
    Gelu,
    /// `max(x, 0)`.
    Relu,
    /// `x sigmoid(x)`.
    Silu,
}

/// Kind of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PoolKind {
    /// None.
    None,
    /// The largest of 2x2.
    Max,
    /// The mean of 2x2.
    Average,
}

/// A branch of `multi`: what reads a part of each row, then fully connected layers. A key that its type does not know is
/// refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BranchConfig {
    /// What reads the part: `dense` over numbers, `cnn`, `resnet` or `vit` over images, `embedding` or `transformer` over
    /// texts. Default: `cnn` where `channels` are given, else `dense`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub r#type: Option<BranchKind>,
    /// `dense`: first and one past the last of the features that the branch reads, such as `[0, 12]`. Default: all.
    pub columns: Option<[u32; 2]>,
    /// `cnn`: channels of each convolution. Default `[32, 64]`.
    pub channels: Option<Vec<u32>>,
    /// Widths of its fully connected layers, at least one. Default `[64]`.
    pub hidden: Option<Vec<u32>>,
    /// `embedding`, `transformer`, `vit`: numbers per position, 1 to 65,536. Default 64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub width: Option<u32>,
    /// `transformer`, `vit`: number of layers, 1 to 256. Default 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layers: Option<u32>,
    /// `transformer`, `vit`: attention heads; they divide the width. Default 4.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heads: Option<u32>,
    /// `vit`: pixels of a patch's side; it divides the image's sides. Default 16, below 64 pixels 4.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch: Option<u32>,
    /// `resnet`: layers, 18, 34 or 50. Default 18.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<u32>,
}

/// The keys of each type of branch.
const BRANCH_KEYS: KeyTable = KeyTable {
    tag: "type",
    default: "",
    common: &["hidden"],
    variants: &[
        ("dense", &["columns"]),
        ("cnn", &["channels"]),
        ("resnet", &["depth"]),
        ("vit", &["width", "layers", "heads", "patch"]),
        ("embedding", &["width"]),
        ("transformer", &["width", "layers", "heads"]),
        ("", &["columns", "channels"]),
    ],
};

fn read_branches<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Vec<BranchConfig>>, D::Error> {
    BRANCH_KEYS.read_list(deserializer)
}

fn branches_schema(generator: &mut SchemaGenerator) -> Schema {
    let branch = BRANCH_KEYS.schema::<BranchConfig>(generator);
    schemars::json_schema!({ "type": ["array", "null"], "items": branch })
}

/// What a branch reads its part with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BranchKind {
    /// Nothing before its fully connected layers, over numbers.
    Dense,
    /// Convolutions and pools, over images.
    Cnn,
    /// Residual network, over images.
    Resnet,
    /// Vision transformer, over images.
    Vit,
    /// The mean of a learnt vector for each token, over texts: their order does not count.
    Embedding,
    /// Transformer of the GPT-2 kind and the mean over the positions of the text.
    Transformer,
}

/// `[train.images]`: how encoded images become what a model sees.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ImagesConfig {
    /// Height of the images, in pixels, 1 to 8,192. Default 224.
    pub height: u32,
    /// Width of the images, in pixels, 1 to 8,192. Default 224.
    pub width: u32,
    /// Colours that a model sees: 3 (red, green and blue), or 1, their brightness (ITU-R 601-2), which for a grey image
    /// is the value itself and makes the first layer three times cheaper. Default 3.
    #[serde(skip_serializing_if = "is_colour")]
    pub channels: u32,
    /// Random changes of training images: `true` for the usual ones of photographs (a random part is cut out, and mirrored
    /// half of the time), or a list of steps such as `[{ type = "rotate", degrees = [-15, 15] }]`, applied in its order.
    /// Evaluation never augments, also of the training split: the whole image is resized. Default false.
    pub augment: Augmentation,
    /// Mixing of training images in pairs: mixup and CutMix. Evaluation never mixes. Default not at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mix: Option<ImageMixConfig>,
    /// Statistics that images are normalised by: `"dataset"` or `"imagenet"`; left out where `mean` and `deviation` are
    /// given. Default: those that the weights of `train.init` were trained with, where they are of a run; for other weights
    /// of `train.init` `"imagenet"`; else `"dataset"`, where that has them, and `"imagenet"` where it has not. The report
    /// says which it were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub normalize: Option<NormaliseBy>,
    /// Mean of red, green and blue, as shares of 255, that is subtracted; of one channel, the first. Default: as `normalize`
    /// says.
    pub mean: Option<[f32; 3]>,
    /// Standard deviation that is divided by, as a share of 255, above 0; of one channel, the first. Default: as `normalize`
    /// says.
    pub deviation: Option<[f32; 3]>,
}

impl ImagesConfig {
    /// Mean and standard deviation of red, green and blue of ImageNet's training split, as shares of 255.
    pub const IMAGENET: [[f32; 3]; 2] = [[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]];
}

/// Red, green and blue.
const COLOURS: u32 = 3;

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands out references"
)]
const fn is_colour(channels: &u32) -> bool {
    *channels == COLOURS
}

impl Default for ImagesConfig {
    fn default() -> Self {
        Self {
            height: 224,
            width: 224,
            channels: COLOURS,
            augment: Augmentation::default(),
            mix: None,
            normalize: None,
            mean: None,
            deviation: None,
        }
    }
}
