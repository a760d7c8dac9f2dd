//! `[train.init]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `[train.init]`: initial weights from a safetensors file of a run (`best.safetensors`), an export
/// or another program. Its tensors may be f32, f16 or bf16. The name of the run depends on the
/// bytes of the file, not on its path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InitConfig {
    /// URL or path of the file.
    pub from: String,
    /// Renames tensors of files from other programs: pairs of a pattern and the new name. The first
    /// pattern that matches a name is used. Each `*` of the new name is replaced by the text that
    /// the `*` of the pattern matched, in order, as in `["encoder.layer.*.mlp.*", "block.*.*"]`.
    /// Default: none.
    #[serde(default)]
    pub rename: Vec<[String; 2]>,
    /// Layout of the matrices of fully connected and LSTM layers in the file. Files of runs and
    /// exports record their layout. Default: the recorded one; for other files it follows from the
    /// shapes, if no matrix is square.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<WeightLayout>,
    /// If true, a tensor that is only in the model or only in the file is an error. If false, such
    /// tensors are counted and named in a warning, and those of the model are initialized as usual.
    /// Default true.
    #[serde(default = "yes")]
    pub strict: bool,
    /// Names of tensors of the model that are initialized as usual even if the file has them, such
    /// as the output layer for other classes. It is `["last.*"]` in `cnn`, `resnet`, `vit` and an
    /// `lstm` over rows, and `["joined.last.*"]` in `multi`. In an `mlp` it is the layer after the
    /// hidden ones, `["layer.2.*"]` after two. `feedline plan` and the error messages name it.
    /// Default: none.
    #[serde(default)]
    pub replace: Vec<String>,
    /// Names of the classes of the file's outputs, in their order. Files of runs and exports record
    /// them. For other files, the order of the dataset's ids is assumed, with a warning. Outputs of
    /// the same classes in another order are reordered to that of the dataset. Default: as recorded
    /// in the file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<String>,
    /// If true, weights that were trained on features or targets of another transform than that of
    /// the dataset (other means, scales, fill values or categories) give no warning. Default false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_other_transform: bool,
}

/// Layout and names of weights in a safetensors file.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum WeightLayout {
    /// Matrices are `[in, out]`, as in this program, in TensorFlow and JAX, and in `Conv1D` of
    /// Hugging Face's GPT-2.
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

    /// The other layout.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Feedline => Self::Torch,
            Self::Torch => Self::Feedline,
        }
    }

    /// Order of the dimensions of a matrix.
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
