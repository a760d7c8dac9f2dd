//! `[train.model]` and `[train.images]`.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize};

use super::{
    augment::{Augmentation, ImageMixConfig, NormaliseBy},
    tagged::KeyTable,
};

/// `[train.model]`. A key that the chosen type does not have is refused; an absent key has the
/// default of the type.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ModelConfig {
    /// Kind of the model: `mlp`, `cnn`, `resnet`, `lstm`, `transformer`, `vit`, `autoencoder` or
    /// `multi`. Default `mlp`.
    pub r#type: ModelKind,
    /// Widths of fully connected layers, 1 to 65,536 each. `mlp`: all hidden layers (`[]` is a
    /// linear model, default `[128, 128]`). `cnn`: those after the convolutions (default `[128]`).
    /// `autoencoder`: those before the narrowest, mirrored after it (default `[128]`). `multi`:
    /// those after the branches are joined (default `[128]`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hidden: Option<Vec<u32>>,
    /// Fraction of activations dropped in training, 0 to below 1. Default 0.
    pub dropout: f64,
    /// Names of blocks with activation checkpointing: their activations are not stored for the
    /// backward pass, which recomputes them from the input of the block. It takes less memory and
    /// about a third more time, and the weights are byte-identical. `*` matches any text, and
    /// `["*"]` all blocks: `block.N` of a `transformer` or `vit`, `stage.N.M` of a `resnet`,
    /// `conv.N` of a `cnn`, and the hidden `layer.N`. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub checkpoint: Vec<String>,
    /// `mlp`, `cnn`: normalisation before each activation function: `none`, `batch`, `layer`,
    /// `group` or, for `mlp`, `rms`. Default `none` for `mlp`, `batch` for `cnn`. `transformer`:
    /// normalisation before attention, before the feed-forward layers and before the output:
    /// `layer` or `rms`. Default `layer`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub norm: Option<NormKind>,
    /// `mlp` and `cnn` with `norm = "batch"`, `resnet`, `multi`: number of rows that batch norm
    /// normalises together in training (a ghost batch), 2 to 1,048,576. A full batch is divided
    /// into the largest power of two of ghost batches with at least this many rows each; a shorter
    /// batch is divided into the same number. It is part of the model: CPUs, GPUs and ranks whose
    /// number divides the ghost batches compute the same ones, and the program reports where this
    /// is not so. Default 32 if the model reads images, otherwise 128.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ghost_batch: Option<u32>,
    /// `mlp`: if true, a hidden layer as wide as the previous one adds the output of that layer to
    /// its own. Default false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skip: Option<bool>,
    /// `mlp`, `cnn`, `autoencoder`, `transformer`: activation function: `gelu`, `relu` or `silu`.
    /// Default `gelu`, for `cnn` `relu`. A `transformer` also has `swiglu`: its feed-forward layers
    /// have a gate, and are 8/3 of the width, rounded up to a multiple of 16, instead of 4 times
    /// the width, so that the number of parameters is about the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activation: Option<ActivationKind>,
    /// `cnn`: channels of each convolution, 1 to 65,536. Default `[32, 64]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channels: Option<Vec<u32>>,
    /// `cnn`: side of a convolution kernel in pixels, odd, 1 to 15. Default 3.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<u32>,
    /// `cnn`: pooling that halves the output of each convolution: `max`, `average` or `none` (not
    /// halved). Default `max`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<PoolKind>,
    /// `resnet`: layers, 18, 34 or 50. Default 18.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth: Option<u32>,
    /// `resnet`: if true, the first layer suits images of about 32 pixels: a 3x3 convolution. If
    /// false, it is a 7x7 convolution and a pooling layer, which together leave a sixteenth of the
    /// pixels. Default: true if a side is below 64 pixels, otherwise false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub small_images: Option<bool>,
    /// `transformer`, `vit`, `lstm`: number of layers, 1 to 256. Default 4, for `lstm` 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layers: Option<u32>,
    /// `transformer`, `vit`, `lstm`: size of the vector at each position, 1 to 65,536;
    /// `autoencoder`: width of the narrowest layer. Default 128, for `autoencoder` 16.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub width: Option<u32>,
    /// `transformer`, `vit`: number of attention heads, a divisor of the width. Default 4.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heads: Option<u32>,
    /// `transformer`: number of heads of keys and values, a divisor of `heads`, whose queries share
    /// them in equal groups (grouped-query attention). 1 is multi-query attention. Default: as many
    /// as `heads`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv_heads: Option<u32>,
    /// `transformer`: encoding of positions: `learned` (a vector for each position, added to that of
    /// the token) or `rotary` (queries and keys are rotated by angles that follow from the position;
    /// base 10,000). `rotary` needs an even number of values in each head. Default `learned`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub positions: Option<PositionKind>,
    /// `transformer`: if false, the linear layers of its blocks have no bias. Default true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bias: Option<bool>,
    /// `transformer`, `lstm`: number of token ids that the model reads of a row, 1 to 65,536.
    /// Default 128 for `transformer`. An `lstm` with this key reads tokens, otherwise rows of
    /// numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<u32>,
    /// `transformer`: if true, the output layer shares its weights with the token embedding.
    /// Default true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tied: Option<bool>,
    /// `lstm` on rows of numbers: number of time steps in a row, a divisor of the number of
    /// features; the features are stored step by step. Default: the length of a window
    /// (`dataset.sequence.length`), otherwise one step per feature.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<u32>,
    /// `vit`: side of a patch in pixels, a divisor of both sides of the image. Default 16, below 64
    /// pixels 4.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patch: Option<u32>,
    /// `multi`: branches of the model, at least one. Default: one for each part of the samples.
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
            &[
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
    /// Convolutions and pooling, then fully connected layers, on images.
    Cnn,
    /// Residual network, on images.
    Resnet,
    /// Long short-term memory, on rows of numbers that are time series, or on tokens to predict the
    /// next one.
    Lstm,
    /// Decoder of the GPT-2 kind, on tokens to predict the next one.
    Transformer,
    /// Vision transformer, on images.
    Vit,
    /// Fully connected layers that reconstruct their input through a narrow layer, on rows of
    /// numbers.
    Autoencoder,
    /// Branches over parts of the samples, joined.
    Multi,
}

/// Kind of normalisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NormKind {
    /// None.
    None,
    /// Batch norm.
    Batch,
    /// Layer norm; in a `cnn`, group norm with one group.
    Layer,
    /// Group norm, with the largest number of groups, up to 32, that divides the channels and
    /// leaves at least 16 numbers in each.
    Group,
    /// Root-mean-square norm: divided by the root of the mean square, then scaled; without a shift.
    /// Not in a `cnn`.
    Rms,
}

/// Kind of an activation function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ActivationKind {
    /// `x` times the normal distribution function of `x`.
    Gelu,
    /// `max(x, 0)`.
    Relu,
    /// `x sigmoid(x)`.
    Silu,
    /// `silu(gate(x)) up(x)`, where `gate` and `up` are linear layers. Only in a `transformer`.
    Swiglu,
}

/// Kind of an encoding of positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PositionKind {
    /// A learned vector for each position, added to that of the token.
    Learned,
    /// Rotation of queries and keys by angles that follow from the position.
    Rotary,
}

/// Kind of pooling.
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

/// A branch of `multi`: layers that read a part of each row, then fully connected layers. A key
/// that its type does not have is refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BranchConfig {
    /// Kind of the branch: `dense` over numbers, `cnn`, `resnet` or `vit` over images, `embedding`
    /// or `transformer` over texts. Default: `cnn` if `channels` are given, otherwise `dense`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub r#type: Option<BranchKind>,
    /// `dense`: range of features that the branch reads, from the first to one past the last, such
    /// as `[0, 12]`. Default: all.
    pub columns: Option<[u32; 2]>,
    /// `cnn`: channels of each convolution. Default `[32, 64]`.
    pub channels: Option<Vec<u32>>,
    /// Widths of its fully connected layers, at least one. Default `[64]`.
    pub hidden: Option<Vec<u32>>,
    /// `embedding`, `transformer`, `vit`: size of the vector at each position, 1 to 65,536. Default
    /// 64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub width: Option<u32>,
    /// `transformer`, `vit`: number of layers, 1 to 256. Default 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layers: Option<u32>,
    /// `transformer`, `vit`: number of attention heads, a divisor of the width. Default 4.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heads: Option<u32>,
    /// `vit`: side of a patch in pixels, a divisor of both sides of the image. Default 16, below 64
    /// pixels 4.
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

/// Kind of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BranchKind {
    /// Only fully connected layers, over numbers.
    Dense,
    /// Convolutions and pooling, over images.
    Cnn,
    /// Residual network, over images.
    Resnet,
    /// Vision transformer, over images.
    Vit,
    /// The mean of a learnt vector for each token, over texts; the order of the tokens is ignored.
    Embedding,
    /// Transformer of the GPT-2 kind, over texts, and the mean over the positions of the text.
    Transformer,
}

/// `[train.images]`: preparation of encoded images for the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ImagesConfig {
    /// Height of the images, in pixels, 1 to 8,192. Default 224.
    pub height: u32,
    /// Width of the images, in pixels, 1 to 8,192. Default 224.
    pub width: u32,
    /// Channels of the model's input: 3 (red, green and blue), or 1, the brightness (ITU-R 601-2).
    /// The brightness of a grey image is the value itself. One channel makes the first layer three
    /// times cheaper. Default 3.
    #[serde(skip_serializing_if = "is_colour")]
    pub channels: u32,
    /// Random changes of training images. `true` applies the usual ones for photographs: a random
    /// crop, mirrored half of the time. A list of steps such as
    /// `[{ type = "rotate", degrees = [-15, 15] }]` is applied in its order. Evaluation never
    /// augments, also on the training split: the complete image is resized. Default false.
    pub augment: Augmentation,
    /// Mixing of training images in pairs: mixup and CutMix. Evaluation never mixes. Default: no
    /// mixing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mix: Option<ImageMixConfig>,
    /// Statistics that images are normalised by: `"dataset"` or `"imagenet"`; must be absent if
    /// `mean` and `deviation` are given. The report names the statistics that were used.
    ///
    /// Default: with weights of a run in `train.init`, the statistics that they were trained with;
    /// with other weights, `"imagenet"`. Without `train.init`, `"dataset"` if the dataset has
    /// statistics, otherwise `"imagenet"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub normalize: Option<NormaliseBy>,
    /// Mean of red, green and blue that is subtracted, as a fraction of 255; with one channel, the
    /// first value is used. Default: that of `normalize`.
    pub mean: Option<[f32; 3]>,
    /// Standard deviation of red, green and blue that values are divided by, as a fraction of 255,
    /// above 0; with one channel, the first value is used. Default: that of `normalize`.
    pub deviation: Option<[f32; 3]>,
}

impl ImagesConfig {
    /// Mean and standard deviation of red, green and blue of ImageNet's training split, as
    /// fractions of 255.
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
