//! `[source.for_each]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::Name;

/// `[source.for_each]`: a `rest` source is asked once for each value of a list, and with `slices` for each value all slices.
///
/// Either `values`, or `source` and `column`, is given. Values are read in their order, and what is done is kept as a
/// number of values and a hash of them, so the state stays small however many there are. A list may so grow at its end only;
/// another change of it is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ForEachConfig {
    /// Query parameter that a value is sent in; or, where `url` has `{param}` with this name in it, what stands there.
    pub param: String,
    /// The values, no two alike. To a list that has been read others are added at the end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
    /// Source of the same pipeline whose landed rows give the values; it is run first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<Name>,
    /// Column of `source` that has them, text or integers: each distinct value once, in the order in which they landed; no
    /// value and empty text are left out. All values are held in memory, about 60 bytes each, and the landed files of
    /// `source` are read when a run begins. Values that land later are asked for by the next run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<String>,
    /// Column that is added to each record with the value it was asked for with, unless the record has one of this name.
    /// Empty text adds none; equal records of two values may then be left out as duplicates. Default: the name in `param`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r#as: Option<String>,
    /// What to do when the first page of a value, or of a slice of it, is answered with 404: `stop` (default, the run ends
    /// with an error) or `skip`, for lists with values that the API no longer has: there are no records, and the report
    /// counts them as `not_found`.
    #[serde(default, skip_serializing_if = "is_stop")]
    pub missing: MissingValue,
}

/// What to do about a value that an API does not know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MissingValue {
    /// End the run with an error.
    #[default]
    Stop,
    /// Go on with the next one.
    Skip,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
fn is_stop(missing: &MissingValue) -> bool {
    *missing == MissingValue::Stop
}
