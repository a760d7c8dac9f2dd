//! `[source.for_each]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::Name;

/// `[source.for_each]`: requests a `rest` source once for each value of a list, and with `slices`
/// all slices for each value.
///
/// Either `values`, or `source` and `column`, is given. Values are read in their order, each once;
/// with `refresh` every run requests all of them again, and with `incremental` the new records of
/// each, from its own watermark on. The list may change between runs: new values
/// are read after the others, and those that have left it are not requested any more, with a
/// warning. One that returns is read from its beginning, or with `incremental` from its watermark
/// on. The landing folder keeps the list in `values/`.
///
/// A value whose requests fail does not stop the others: the run reads them, and ends with an error
/// that names those that failed, which the next run requests again. Ten values that fail in a row
/// end the source, and so do refused credentials (status 401, 403) and rate limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ForEachConfig {
    /// Query parameter for a value. If `url` contains `{param}` with this name in it, the value
    /// replaces that placeholder instead, as one segment of the path: `/` is sent as `%2F`. In
    /// `{+param}` it keeps its slashes, so `owner/name` is two segments.
    pub param: String,
    /// The values, without duplicates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
    /// Source of the same pipeline whose landed rows provide the values; it runs first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<Name>,
    /// Column of `source` with the values, text or integers. Each distinct value is used once, in
    /// the order of landing; null and empty text are skipped. Memory holds all values, about 60
    /// bytes each. Each run reads the landed files of `source` at its beginning. Values that land
    /// later are requested by the next run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<String>,
    /// Column that is added to each record with the value of its request, unless the record has a
    /// column of this name. Empty text adds none; equal records of two values may then be dropped
    /// as duplicates. Default: the name in `param`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r#as: Option<String>,
    /// Action for status 404 of the first page of a value, or of a slice of it, and with `skip` also
    /// for a failure beside an empty list there (`error_path`): `stop` (default, the value fails) or
    /// `skip`. `skip` suits lists with values that the API no longer has. Such a value has no
    /// records, and the report counts it as `not_found`.
    #[serde(default, skip_serializing_if = "is_stop")]
    pub missing: MissingValue,
}

/// Action for a value that the API does not know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MissingValue {
    /// The value fails: the others are read, and the run ends with an error.
    #[default]
    Stop,
    /// Continue with the next value.
    Skip,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
fn is_stop(missing: &MissingValue) -> bool {
    *missing == MissingValue::Stop
}
