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

/// Number of columns of numbers.
pub(crate) fn numbers(preview: &SourcePreview) -> usize {
    preview.columns.iter().filter(|c| is_number(c)).count()
}

/// Returns true if the column `name` is one of numbers.
pub(crate) fn is_number_column(preview: &SourcePreview, name: &str) -> bool {
    let mut columns = preview.columns.iter();
    columns.any(|column| column.name == name && is_number(column))
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

/// Settings of a dataset that make a number of the digits in the text column `name`.
pub(super) fn number_by_sql(name: &str, source: &str) -> String {
    let number = format!("{} number", name.trim());
    let sql = format!(
        "select *, cast(regexp_replace({}, '[^0-9.-]', '', 'g') as double) as {} from {}",
        identifier(name),
        identifier(&number),
        identifier(source)
    );
    let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
    format!(
        "if it is a number with other characters, set `dataset.sql = {}`, `dataset.target = {}` and `{name}` in `dataset.drop`",
        quoted(&sql),
        quoted(&number)
    )
}

/// A name in double quotes of SQL.
fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use feedline_schemas::config::load;

    use super::*;

    #[test]
    fn the_query_that_makes_a_number_of_a_text_is_valid_toml() {
        let advice = number_by_sql(" price \"x\" ", "shop");
        let settings: Vec<&str> = advice.split('`').skip(1).step_by(2).collect();
        let settings = settings[..2].join("\n");
        let text = format!("{settings}\n[pipeline]\nname = \"p\"\n");
        let dataset = load("p.toml", &text, &[]).unwrap().config.dataset.unwrap();
        assert_eq!(dataset.targets(), ["price \"x\" number"]);
        let expected = r#"select *, cast(regexp_replace(" price ""x"" ", '[^0-9.-]', '', 'g') as double) as "price ""x"" number" from "shop""#;
        assert_eq!(dataset.sql.as_deref(), Some(expected));
    }
}
