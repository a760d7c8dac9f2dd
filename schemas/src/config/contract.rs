//! `[source.contract]`: rules for changes of the schema of records, and for unusual JSON.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Bounded, BoundedCount, Bytes, Fraction};
use crate::{ids::Name, record::ColumnType};

/// `[source.contract]`.
///
/// All of these keys may change between runs. Landed rows are not changed; later rows follow the
/// new rules.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ContractConfig {
    /// Action for a value that does not fit its column: `quarantine_row` (default), `null_value`,
    /// `widen` or `freeze` (stop). A value that converts without loss (`"12"` in an integer column)
    /// is converted and counted in every mode. In every mode but `freeze`, a float makes an integer
    /// column one of floats, unless its type is declared or it holds an integer beyond 2^53.
    pub types: TypeContract,
    /// Action for a key that is not a column yet: `evolve` (default, a new column), `freeze`
    /// (stop), `quarantine_row` or `null_value` (the value is dropped and counted). In every mode,
    /// the first batch of a source creates columns. So do the names in `contract.column` and
    /// `contract.required`.
    #[serde(skip_serializing_if = "is_default")]
    pub columns: ColumnsContract,
    /// Columns that should hold a value in every record, such as `["id"]`. By default a record
    /// without one lands, and each run that lands some warns (`required_missing`) with their count
    /// and a sample. `contract.nulls = "quarantine_row"` rejects such records, and `"freeze"` stops
    /// the run. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub required: Vec<String>,
    /// Action for a null or absent value in a column that should have one: `warn` (default,
    /// counted, with a sample), `quarantine_row` or `freeze` (stop). It applies to columns in
    /// `required`, and to columns with a value in each of the 1,000 or more records before the
    /// batch.
    #[serde(skip_serializing_if = "is_default")]
    pub nulls: NullContract,
    /// Action for a column that most records had and that is absent in a complete batch: `warn`
    /// (default, counted) or `freeze` (stop).
    #[serde(skip_serializing_if = "is_default")]
    pub missing_columns: MissingColumns,
    /// Rise of the fraction of missing values (null or absent) of a column that raises an alarm, 0
    /// to 1. A batch is compared with all batches before it. Default 0.5; 1 raises no alarm. Lower
    /// it for columns that a model needs.
    #[serde(skip_serializing_if = "is_half")]
    pub null_drift: Fraction,
    /// Rules of single columns by name, such as `[source.contract.column."book.bid"]`. The name is
    /// the path of keys joined with `.`. A `.` inside a key, or in the header of a CSV file, is
    /// written `\.`: the column `pm2.5` of a file is `[source.contract.column.'pm2\.5']` here and
    /// `"pm2\.5"` in SQL. `feedline preview` shows the names. Default: none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub column: BTreeMap<String, ColumnContract>,
    /// Type of lists: `json` (default, their JSON text) or `list` (an Arrow list if all items are
    /// scalars of one type, otherwise JSON text). Choose `list` to read items without parsing.
    #[serde(skip_serializing_if = "is_default")]
    pub lists: ListContract,
    /// Lists that become child tables, by the name of the table, such as
    /// `[source.contract.children.items]`. Each item is a row, committed together with its record,
    /// in place of a column. A dataset reads such a table as `<source>.<table>`. At most 100.
    /// Default: none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub children: BTreeMap<Name, ChildConfig>,
    /// Action for an object that has a key twice: `reject` (default, the record is rejected) or
    /// `last` (the last value is used, and each case is counted).
    #[serde(skip_serializing_if = "is_default")]
    pub duplicate_keys: DuplicateKeys,
    /// Formats of timestamps, tried in order: `rfc3339` or a pattern of `strptime` such as
    /// `"%d.%m.%Y %H:%M"`. A column whose values fit one of them becomes a timestamp; text without
    /// an offset is read as UTC. Default: none. A CSV column of ISO 8601 dates, with or without a
    /// time of day, then becomes a timestamp, and other dates stay text. ISO 8601 values in CSV
    /// files are also read where formats are given, unless a format has `%Y-%d`. Set it where
    /// `01/02/2020` must not be confused with `02/01/2020`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dates: Vec<String>,
    /// Most columns of a source, 1 to 10,000. Default 1,000. The limit protects the schema from
    /// keys that are data.
    pub max_columns: Bounded<u32, 1, 10_000>,
    /// Most columns made of the keys of one nested object, 1 to 10,000. An object with more keys,
    /// in one record or in all records together, is data: from then on it is stored as JSON text in
    /// one column. Default 256.
    #[serde(skip_serializing_if = "is_256")]
    pub max_keys: Bounded<u32, 1, 10_000>,
    /// Deepest nesting that becomes columns, 1 to 64; deeper values are stored as JSON text.
    /// Default 8.
    pub max_depth: Bounded<u32, 1, 64>,
    /// Largest fraction of rejected records, 0 to 1; above it the run stops. Default 0.2. The fraction
    /// is of the records that landed or were rejected; duplicates do not count. It has to be exceeded
    /// by the new records of a run and, if fewer than 20 of them are rejected, by those of all runs
    /// together. A check takes place at the end of a run, and at each batch from 1,000 records on.
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
    /// Type of the column, which then never changes. A column that has already landed may only get
    /// a wider type. Default: a type that holds the values of the first batch, and for `files`
    /// those of a sample of all files; see `[source.infer]`. In a child table, the type of the
    /// column's first value: declare it where later values are of another type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r#type: Option<DeclaredType>,
    /// Value of `contract.types` for this column. Default: that of the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub types: Option<TypeContract>,
    /// Value of `contract.nulls` for this column. Default: that of the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nulls: Option<NullContract>,
}

/// `[source.contract.children.<table>]`: a list in each record whose items become the rows of a
/// table.
///
/// The modes of `[source.contract]` apply to its columns too, unless the table has a mode for that
/// key. A value in conflict rejects its complete record: a record lands with all of its items or
/// not at all. A list that is absent, null or empty has no rows.
///
/// A value that should be a list and is not, an object among scalars, and a scalar among objects
/// are conflicts that `types` resolves. The record is rejected; with `null_value`, the list is
/// dropped, or the item lands without values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ChildConfig {
    /// Path of the list, keys joined with `.`, such as `"owner.tags"`. It begins at the record, or
    /// with `of` at an item of that table. Default: the name of the table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Parent table for a list inside a list: each of its items has the list. Default: none, the
    /// list is in the record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<Name>,
    /// Columns that each row gets from its record, such as `{ order_id = "id" }`: the name of the
    /// column, and the path of the value in the record. With these columns, rows can be joined,
    /// grouped or split by their record. Default: none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub parent: BTreeMap<String, String>,
    /// Value of `contract.types` for this table. Default: that of the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub types: Option<TypeContract>,
    /// Value of `contract.columns` for this table. Default: that of the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub columns: Option<ColumnsContract>,
    /// Value of `contract.nulls` for this table. Default: that of the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nulls: Option<NullContract>,
    /// Value of `contract.missing_columns` for this table. Default: that of the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing_columns: Option<MissingColumns>,
    /// Columns of this table that should hold a value, as `contract.required` for the source.
    /// Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub required: Vec<String>,
    /// Rules of single columns of this table, as `contract.column` for the source. Default: none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub column: BTreeMap<String, ColumnContract>,
}

/// Declared type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeclaredType {
    /// True or false.
    Bool,
    /// 64-bit integer.
    Int,
    /// 64-bit float.
    Float,
    /// Exact decimal number with up to 20 digits before the decimal point and 18 after it.
    Decimal,
    /// Timestamp in microseconds since 1970 UTC, read by `contract.dates` (`rfc3339` when that is
    /// empty).
    Timestamp,
    /// Text; a number keeps the characters of the source. Bytes of Parquet or Arrow that are UTF-8 are
    /// read as text, also for every other type than `bytes`; other bytes do not fit.
    Text,
    /// Lists and objects as JSON text; an object adds no other columns.
    Json,
    /// Bytes, such as image files in a column of Parquet; text does not fit.
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

/// Action for a value that does not fit its column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TypeContract {
    /// Write the record to `rejects/`.
    #[default]
    QuarantineRow,
    /// Land the record with a null in that column; counted.
    NullValue,
    /// Create a new schema version with a wider type (integer, float, decimal, text).
    Widen,
    /// Stop the run.
    Freeze,
}

/// Action for a key that is not a column yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ColumnsContract {
    /// Create a new schema version with a column for it.
    #[default]
    Evolve,
    /// Stop the run.
    Freeze,
    /// Write the record to `rejects/`.
    QuarantineRow,
    /// Land the record without the value; counted.
    NullValue,
}

/// Action for a missing value in a column that always held one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NullContract {
    /// Land the record; counted.
    #[default]
    Warn,
    /// Write the record to `rejects/`.
    QuarantineRow,
    /// Stop the run.
    Freeze,
}

/// Action for a column that is absent in a complete batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MissingColumns {
    /// Land the batch; counted.
    #[default]
    Warn,
    /// Stop the run.
    Freeze,
}

/// Type of lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ListContract {
    /// Their JSON text.
    #[default]
    Json,
    /// A list column if all items are scalars of one type, otherwise their JSON text.
    List,
}

/// Action for an object that has a key twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DuplicateKeys {
    /// Write the record to `rejects/`.
    #[default]
    Reject,
    /// Use the last value; counted.
    Last,
}

/// `[source.contract.json]`: bounds on JSON from `rest` and `files`. `retry.max_body_bytes` bounds
/// the size of a page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct JsonConfig {
    /// Deepest nesting of a document, 1 to 128; a record with more is rejected. Default 128.
    pub max_depth: Bounded<u32, 1, 128>,
    /// Most keys of one object, at least 1; a record with a larger object is rejected. Default
    /// 100,000.
    pub max_keys: BoundedCount<1>,
    /// Most items of one list, at least 1; the list of records of a page is bounded too. A document
    /// with a longer list is refused. Default 1,000,000.
    pub max_items: BoundedCount<1>,
    /// Most bytes of one text, at least 1 B; a record with a longer text is rejected. Default 64
    /// MiB.
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
