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
    /// Whether it is an error when the model has a tensor that the file has not, or the file one that the model has not;
    /// else they are counted and named in the log, and begin as usual. Default true.
    #[serde(default = "yes")]
    pub strict: bool,
    /// Names of tensors of the model that begin as usual whatever the file holds, such as `["last.*"]` for another
    /// number of classes. Default none.
    #[serde(default)]
    pub replace: Vec<String>,
}

const fn yes() -> bool {
    true
}
