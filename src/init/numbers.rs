//! Numbers in the columns of a table, as numbers and as text.

use feedline_ingest::{ColumnPreview, SourcePreview};
use feedline_schemas::record::ColumnType;

/// Separators of the numbers in CSV cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum NumberFormat {
    /// A decimal point.
    #[default]
    Point,
    /// A decimal comma: `1234,56`.
    Comma,
    /// A decimal comma, and points between thousands: `1.234,56`.
    GroupedComma,
}

impl NumberFormat {
    /// Keys of `csv` that read such numbers; none for the default.
    pub(crate) const fn keys(self) -> Option<&'static str> {
        match self {
            Self::Point => None,
            Self::Comma => Some("decimal_separator = \",\""),
            Self::GroupedComma => Some("decimal_separator = \",\", thousands_separator = \".\""),
        }
    }
}

/// Returns true if columns look like numbers with a decimal comma.
pub(crate) fn has_decimal_commas(preview: &SourcePreview) -> bool {
    let mut keys = preview.warnings.iter().map(|warning| warning.code.as_str());
    keys.any(|code| code == "looks_like_decimal_comma")
}

/// Returns true if such numbers may have points between thousands.
pub(crate) fn has_grouped_commas(preview: &SourcePreview) -> bool {
    let mut warnings = preview.warnings.iter();
    warnings.any(|warning| {
        warning.code == "looks_like_decimal_comma"
            && warning.message.contains("set `csv.")
            && warning
                .message
                .contains("`csv.thousands_separator = \".\"`")
    })
}

/// Number of columns of numbers.
pub(crate) fn numbers(preview: &SourcePreview) -> usize {
    preview.columns.iter().filter(|c| is_number(c)).count()
}

/// Returns true if the column `name` is one of numbers.
pub(crate) fn is_number_column(preview: &SourcePreview, name: &str) -> bool {
    let mut columns = preview.columns.iter();
    columns.any(|column| column.name == name && is_number(column))
}

/// Returns true if the texts of column `name` are numbers with a decimal comma in some rows and a decimal point
/// in others.
pub(super) fn has_mixed_decimals(name: &str, preview: &SourcePreview) -> bool {
    let item = format!("`{name}` (");
    let mut warnings = preview.warnings.iter();
    warnings.any(|warning| {
        warning.code == "mixed_decimal_separators" && warning.message.contains(&item)
    })
}

fn is_number(column: &ColumnPreview) -> bool {
    matches!(
        column.column_type,
        Some(ColumnType::Int64 | ColumnType::Float64 | ColumnType::Decimal)
    )
}

/// Key that reads the text of column `name` as numbers, where a warning of the preview names both.
pub(super) fn number_key(name: &str, preview: &SourcePreview) -> Option<String> {
    let codes = [
        "looks_like_decimal_comma",
        "looks_like_thousands",
        "looks_like_spaced_thousands",
        "looks_like_percent",
        "looks_like_currency",
        "leading_zeros",
    ];
    let item = format!("`{name}` (");
    let mut warnings = preview.warnings.iter();
    let warning = warnings.find(|warning| {
        codes.contains(&warning.code.as_str()) && warning.message.contains(&item)
    })?;
    let key = warning.key.as_deref()?;
    Some(key.replace("<name>", name))
}
