//! `[train.init]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `[train.init]`: weights to begin with, from a safetensors file: one of a run (`best.safetensors`), an export, or one
/// from elsewhere. Its tensors may be f32, f16 or bf16. The run is named after the bytes of the file, not its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InitConfig {
    /// URL or path of the file.
    pub from: String,
    /// For names from elsewhere: pairs of a pattern and what a name that it describes becomes; the first that describes
    /// a name counts. The `*` of the second stand for the texts that those of the first found, in order, as in
    /// `["encoder.layer.*.mlp.*", "block.*.*"]`. Default none.
    #[serde(default)]
    pub rename: Vec<[String; 2]>,
    /// Layout of the matrices of fully connected and LSTM layers in the file. Runs and exports name theirs. Default: as the file
    /// says; of other files as the shapes say, where no matrix is square.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<WeightLayout>,
    /// Whether it is an error when the model has a tensor that the file has not, or the file one that the model has not;
    /// else they are counted and named in the log, and begin as usual. Default true.
    #[serde(default = "yes")]
    pub strict: bool,
    /// Names of tensors of the model that begin as usual whatever the file holds, such as its output layer for other
    /// classes: `["last.*"]` in `cnn`, `resnet`, `vit` and an `lstm` over rows, `["joined.last.*"]` in `multi`, and in an
    /// `mlp` the layer after the hidden ones, `["layer.2.*"]` behind two. `feedline plan` and the error messages name it.
    /// Default none.
    #[serde(default)]
    pub replace: Vec<String>,
    /// Names of the classes that the file's outputs are for, in their order. The files of runs and exports say it
    /// themselves; for others it is taken that they follow the dataset's ids, with a warning. Outputs of the same classes
    /// in another order than the dataset's are put in its order. Default: as the file says.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<String>,
}

/// Layout and names of weights in a safetensors file.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum WeightLayout {
    /// Matrices are `[in, out]`, as in this program, in TensorFlow and JAX, and in `Conv1D` of Hugging Face's GPT-2.
    #[default]
    Feedline,
    /// Matrices are `[out, in]`, as `torch.nn.Linear` and `torch.nn.LSTM` hold them.
    Torch,
}

impl WeightLayout {
    /// Its name in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Feedline => "feedline",
            Self::Torch => "torch",
        }
    }

    /// The other one.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Feedline => Self::Torch,
            Self::Torch => Self::Feedline,
        }
    }

    /// Order of the sizes of a matrix.
    #[must_use]
    pub const fn sizes(self) -> &'static str {
        match self {
            Self::Feedline => "[in, out]",
            Self::Torch => "[out, in]",
        }
    }
}

const fn yes() -> bool {
    true
}
