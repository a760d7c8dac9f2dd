//! `[source.contract]`: what happens to records that change their shape, and to JSON that is odd.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Bounded, Bytes, Count, Fraction};
use crate::{ids::Name, record::ColumnType};

/// `[source.contract]`.
///
/// All of it may change between runs: what has landed stays as it is, and what lands from then on follows the new rules.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ContractConfig {
    /// When a value does not fit its column: `quarantine_row` (default), `null_value`, `widen` or `freeze` (stop).
    /// A value that converts without loss (`"12"` in an integer column) is converted and counted in every mode.
    pub types: TypeContract,
    /// When a record has a key that is no column yet: `evolve` (default, a new column), `freeze` (stop),
    /// `quarantine_row` or `null_value` (the value is left out, counted). The first batch of a source makes columns in
    /// every mode, and so do the names in `contract.column` and `contract.required`.
    #[serde(skip_serializing_if = "is_default")]
    pub columns: ColumnsContract,
    /// Columns that must hold a value in every record, such as `["id"]`. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub required: Vec<String>,
    /// When a column that is in `required`, or that held a value in each of the 1,000 or more records before the batch,
    /// is null or absent: `warn` (default, counted with a sample), `quarantine_row` or `freeze` (stop).
    #[serde(skip_serializing_if = "is_default")]
    pub nulls: NullContract,
    /// When a column that most records had is absent in a whole batch: `warn` (default, counted) or `freeze` (stop).
    #[serde(skip_serializing_if = "is_default")]
    pub missing_columns: MissingColumns,
    /// Rise of a column's share of missing values (null or absent), in a batch against all batches before, that is told
    /// as an alarm, 0 to 1. Default 0.5; 1 tells of none. Lower it for columns that a model needs.
    #[serde(skip_serializing_if = "is_half")]
    pub null_drift: Fraction,
    /// Rules of single columns by name, such as `[source.contract.column."book.bid"]`. The name is the path of keys joined with
    /// `.`; a `.` inside a key, or in the header of a CSV file, is written `\.`: the column `pm2.5` of a file is
    /// `[source.contract.column.'pm2\.5']` here and `"pm2\.5"` in SQL. `feedline preview` shows the names. Default: none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub column: BTreeMap<String, ColumnContract>,
    /// What becomes of lists: `json` (default, their JSON text) or `list` (an Arrow list where all items are scalars of
    /// one type, otherwise JSON text). Choose `list` to read items without parsing.
    #[serde(skip_serializing_if = "is_default")]
    pub lists: ListContract,
    /// Lists that become tables of their own, by the table's name, such as `[source.contract.children.items]`: a row for
    /// each item, landed in one step with the record it is in, instead of a column. A dataset reads one as
    /// `<source>.<table>`. At most 100. Default: none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub children: BTreeMap<Name, ChildConfig>,
    /// When an object has a key twice: `reject` (default, the record is set aside) or `last` (the last value counts, and
    /// each is counted).
    #[serde(skip_serializing_if = "is_default")]
    pub duplicate_keys: DuplicateKeys,
    /// Formats of points in time, tried in order: `rfc3339` or a pattern of `strptime` such as `"%d.%m.%Y %H:%M"`. A column
    /// whose texts fit one of them becomes a timestamp; text without an offset is read as UTC. Default: none; then a CSV column
    /// of ISO 8601 dates, with a time of day or without, becomes a timestamp, and other dates stay text. CSV cells as in ISO 8601 are
    /// read beside those of the formats, unless a format has `%Y-%d`. Set it where
    /// `01/02/2020` must not be confused with `02/01/2020`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dates: Vec<String>,
    /// Most columns of a source, 1 to 10,000. Default 1,000: keys used as data must not explode the schema.
    pub max_columns: Bounded<u32, 1, 10_000>,
    /// Most columns made of the keys of one nested object, 1 to 10,000. An object with more, in one record or in all, is
    /// kept as JSON text in one column from then on: its keys are data. Default 256.
    #[serde(skip_serializing_if = "is_256")]
    pub max_keys: Bounded<u32, 1, 10_000>,
    /// Deepest nesting that becomes columns, 1 to 64; deeper values are kept as JSON text. Default 8.
    pub max_depth: Bounded<u32, 1, 64>,
    /// Largest share of rejected records, 0 to 1; above it the run stops. Default 0.2.
    pub max_reject_fraction: Fraction,
    /// Bounds on JSON.
    #[serde(skip_serializing_if = "is_default")]
    pub json: JsonConfig,
}

impl Default for ContractConfig {
    fn default() -> Self {
        Self {
            types: TypeContract::QuarantineRow,
            columns: ColumnsContract::Evolve,
            required: Vec::new(),
            nulls: NullContract::Warn,
            missing_columns: MissingColumns::Warn,
            null_drift: Fraction::literal(0.5),
            column: BTreeMap::new(),
            lists: ListContract::Json,
            children: BTreeMap::new(),
            duplicate_keys: DuplicateKeys::Reject,
            dates: Vec::new(),
            max_columns: Bounded::literal::<1_000>(),
            max_keys: Bounded::literal::<256>(),
            max_depth: Bounded::literal::<8>(),
            max_reject_fraction: Fraction::literal(0.2),
            json: JsonConfig::default(),
        }
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[expect(clippy::float_cmp, reason = "the default is exactly one half")]
#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_half(value: &Fraction) -> bool {
    value.get() == 0.5
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_256(value: &Bounded<u32, 1, 10_000>) -> bool {
    value.get() == 256
}

/// `[source.contract.column."<name>"]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ColumnContract {
    /// Type of the column; it never becomes another. A column that has landed already may only get a wider one. Default:
    /// a type that holds the values of the first batch, and of `files` those of a sample of all files; see `[source.infer]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r#type: Option<DeclaredType>,
    /// What `contract.types` is for this column. Default: that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub types: Option<TypeContract>,
    /// What `contract.nulls` is for this column. Default: that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nulls: Option<NullContract>,
}

/// `[source.contract.children.<table>]`: a list in each record whose items become the rows of a table.
///
/// The modes of `[source.contract]` hold for its columns too where it has none of its own, and a value in conflict sets its whole record aside: a record
/// lands with all of its items or not at all. A list that is absent, null or empty has no rows. What is no list where one
/// should be, and an object among scalars or a scalar among objects, is a conflict that `types` settles: the
/// record is set aside, or with `null_value` the list is left out, or the item lands without values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ChildConfig {
    /// Path of the list, keys joined with `.`, such as `"owner.tags"`: in the record, or with `of` in an item of that
    /// table. Default: the table's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The table whose items the list is in, for a list inside a list. Default: none, it is in the record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<Name>,
    /// Columns that each row gets from its record, such as `{ order_id = "id" }`: name of the column, and path of the value
    /// in the record. With them rows can be joined, grouped or split by what their record is. Default: none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub parent: BTreeMap<String, String>,
    /// What `contract.types` is for this table. Default: that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub types: Option<TypeContract>,
    /// What `contract.columns` is for this table. Default: that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub columns: Option<ColumnsContract>,
    /// What `contract.nulls` is for this table. Default: that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nulls: Option<NullContract>,
    /// What `contract.missing_columns` is for this table. Default: that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing_columns: Option<MissingColumns>,
    /// What `contract.required` is for columns of this table. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub required: Vec<String>,
    /// What `contract.column` is for columns of this table. Default: none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub column: BTreeMap<String, ColumnContract>,
}

/// Type that a column is declared to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeclaredType {
    /// True or false.
    Bool,
    /// 64-bit integer.
    Int,
    /// 64-bit float.
    Float,
    /// Decimal number with up to 20 digits before the point and 18 behind it, exact.
    Decimal,
    /// Point in time, in microseconds since 1970 UTC, read by `contract.dates` (`rfc3339` when that is empty).
    Timestamp,
    /// Text; a number stays as it is written.
    Text,
    /// Lists and objects as JSON text; an object gives no columns of its own.
    Json,
    /// Bytes, such as image files in a column of Parquet; text is none.
    Bytes,
}

impl DeclaredType {
    /// The column's type.
    #[must_use]
    pub const fn column_type(self) -> ColumnType {
        match self {
            Self::Bool => ColumnType::Bool,
            Self::Int => ColumnType::Int64,
            Self::Float => ColumnType::Float64,
            Self::Decimal => ColumnType::Decimal,
            Self::Timestamp => ColumnType::Timestamp,
            Self::Text => ColumnType::Utf8,
            Self::Json => ColumnType::Json,
            Self::Bytes => ColumnType::Binary,
        }
    }
}

/// What to do with a value that does not fit its column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TypeContract {
    /// Set the record aside in `rejects/`.
    #[default]
    QuarantineRow,
    /// Land the record with a null in that column; counted.
    NullValue,
    /// Make a new schema version with a wider type (integer, float, decimal, text).
    Widen,
    /// Stop the run.
    Freeze,
}

/// What to do with a key that is no column yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ColumnsContract {
    /// Make a new schema version with a column for it.
    #[default]
    Evolve,
    /// Stop the run.
    Freeze,
    /// Set the record aside in `rejects/`.
    QuarantineRow,
    /// Land the record without it; counted.
    NullValue,
}

/// What to do when a column that always held a value holds none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NullContract {
    /// Land the record; counted.
    #[default]
    Warn,
    /// Set the record aside in `rejects/`.
    QuarantineRow,
    /// Stop the run.
    Freeze,
}

/// What to do when a column is absent in a whole batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MissingColumns {
    /// Land the batch; counted.
    #[default]
    Warn,
    /// Stop the run.
    Freeze,
}

/// What becomes of lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ListContract {
    /// Their JSON text.
    #[default]
    Json,
    /// A list column where all items are scalars of one type, otherwise their JSON text.
    List,
}

/// What to do with a key that an object has twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DuplicateKeys {
    /// Set the record aside in `rejects/`.
    #[default]
    Reject,
    /// The last value counts; counted.
    Last,
}

/// `[source.contract.json]`: bounds on JSON from `rest` and `files`. `retry.max_body_bytes` bounds a page as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct JsonConfig {
    /// Deepest nesting of a document, 1 to 128; a record with more is set aside. Default 128.
    pub max_depth: Bounded<u32, 1, 128>,
    /// Most keys of one object, at least 1; a record with an object of more is set aside. Default 100,000.
    pub max_keys: Count<1>,
    /// Most items of one list, at least 1, the records of a page among them; a document with a longer one is refused.
    /// Default 1,000,000.
    pub max_items: Count<1>,
    /// Most bytes of one text; a record with a longer one is set aside. Default 64 MiB.
    pub max_text_bytes: Bytes<1>,
}

impl Default for JsonConfig {
    fn default() -> Self {
        Self {
            max_depth: Bounded::literal::<128>(),
            max_keys: Bounded::literal::<100_000>(),
            max_items: Bounded::literal::<1_000_000>(),
            max_text_bytes: Bounded::literal::<{ 64 << 20 }>(),
        }
    }
}
