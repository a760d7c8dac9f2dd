//! Columns and types that a survey found.

use std::collections::{BTreeMap, BTreeSet};

use feedline_schemas::{record::ColumnType, report::Warning};
use serde::Serialize;

/// Planned types of columns, by name.
pub(crate) type Types = BTreeMap<String, ColumnType>;

/// Columns that have landed before a survey.
#[derive(Clone, Debug, Default)]
pub(crate) struct LandedTypes {
    /// Their types, and planned types of columns without a value so far.
    pub(crate) types: Types,
    /// Columns of integers that have landed an integer beyond 2^53.
    pub(crate) large_integers: BTreeSet<String>,
}

/// Result of inference.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inferred {
    /// Types of the columns that have any.
    pub(crate) types: Types,
    /// All columns, in the order of their first appearance.
    pub(crate) columns: Vec<FoundColumn>,
    /// Number of examined records.
    pub(crate) rows: u64,
    pub(crate) warnings: Vec<Warning>,
    /// True if `csv.thousands_separator = "."`, with the decimal comma, reads numbers that land as text.
    pub(crate) has_grouped_commas: bool,
}

/// An inferred column, for previews.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundColumn {
    pub(crate) name: String,
    /// Inferred type; `None` if no value determines one.
    pub(crate) r#type: Option<ColumnType>,
    /// Records in which it is missing, null or absent.
    pub(crate) missing: u64,
    /// Records without it, neither with a value nor with a null.
    pub(crate) absent: u64,
    /// A few of its values.
    pub(crate) samples: Vec<String>,
    /// Lines of `csv` that read the text column as numbers.
    pub(crate) number_settings: Vec<String>,
    /// Cells that show its decimal separator, or leave it open.
    pub(crate) separators: SeparatorSamples,
    /// Evidence for its separators, if its type depends on them.
    pub(crate) numbers: Option<NumberEvidence>,
    /// True for numbers with a decimal comma in some rows and a decimal point in others.
    pub(crate) has_mixed_decimals: bool,
    /// True for strings, other than CSV cells, that are dates or times of ISO 8601.
    pub(crate) are_times: bool,
    /// Integers of a column of integers or decimals that no 64-bit float holds.
    pub(crate) large_integers: Option<LargeIntegers>,
}

/// Cells of a column of numbers that show its decimal separator, or leave it open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeparatorSamples {
    /// A cell whose decimal separator is certainly the comma, such as `58,05` and `18.194.000`.
    pub comma: Option<String>,
    /// A cell such as `18.194` and the number that it is read as, if no cell shows the separator.
    pub open: Option<(String, String)>,
}

/// Separators that the cells of a column are read with, and the evidence for them. Cells of a text column that are
/// numbers in another notation have no separators.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NumberEvidence {
    /// True if `contract.column.<name>.type` declares the type of the column.
    pub is_type_declared: bool,
    /// Decimal separator that the cells are read with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decimal_separator: Option<char>,
    /// Thousands separator that the cells are read with, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thousands_separator: Option<char>,
    /// Origin of the separators (`declared` or `default`), and the cells that show or contradict them.
    pub reason: String,
    /// A cell with a separator or another sign.
    pub cell: String,
    /// Place of the cell, such as `` line 7 of `b.csv` ``, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// Number that the cell is read as; none if it is text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number: Option<String>,
}

/// Integers beyond 2^53, which 64-bit floats do not hold exactly.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LargeIntegers {
    /// Number of such values.
    pub count: u64,
    /// One of them.
    pub sample: String,
}
