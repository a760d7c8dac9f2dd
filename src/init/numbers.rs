//! Numbers in the columns of a table, as numbers and as text.

use feedline_ingest::{ColumnPreview, SourcePreview};
use feedline_schemas::{count::first_counted, record::ColumnType};

/// Most columns that a decision names.
const MOST_NAMED: usize = 5;

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

/// Returns true if the texts of column `name` are numbers with a decimal comma in some rows and a decimal point
/// in others.
pub(super) fn has_mixed_decimals(name: &str, preview: &SourcePreview) -> bool {
    let mut columns = preview.columns.iter();
    columns.any(|column| column.name == name && column.has_mixed_decimals)
}

/// Returns true if some files have a decimal comma and others a decimal point, so that the columns of numbers with
/// separators need several sources.
pub(super) fn has_split_decimals(preview: &SourcePreview) -> bool {
    let mut warnings = preview.warnings.iter();
    warnings.any(|warning| {
        let is_split = warning.key.as_deref() == Some("dataset.sources");
        warning.code == "mixed_decimal_separators" && is_split
    })
}

/// Names the columns of numbers whose separator may be either one, how they are read, and the column that decides
/// it; `None` if no separator is set. The lines `settings` of `csv` are for the numbers of `column`.
pub(crate) fn describe_open_numbers(
    format: NumberFormat,
    settings: &[String],
    column: Option<&str>,
    preview: &SourcePreview,
) -> Option<String> {
    let sets = |key: &str| settings.iter().any(|line| line.starts_with(key));
    let has_comma = format != NumberFormat::Point || sets("decimal_separator");
    if !has_comma && !sets("thousands_separator") {
        return None;
    }
    let columns = preview.columns.iter();
    let columns = columns.filter(|found| is_number(found) && column != Some(found.name.as_str()));
    let open: Vec<String> = columns
        .filter_map(|found| {
            let (cell, number) = found.separators.open.as_ref()?;
            Some(format!("`{}` (`{cell}` is read as {number})", found.name))
        })
        .collect();
    if open.is_empty() {
        return None;
    }
    let named = first_counted(&open, MOST_NAMED, "column");
    let mut columns = preview.columns.iter();
    let certain = columns.find_map(|found| Some((found.separators.comma.as_ref()?, &found.name)));
    let reason = match (certain, column) {
        (Some((cell, name)), _) if has_comma => {
            format!("`{cell}` in `{name}` decides that the comma is the decimal separator")
        }
        (_, Some(name)) => format!("the separators of `{name}` decide it"),
        _ => "the other numbers decide it".to_owned(),
    };
    Some(format!(
        "a separator before three digits may be a decimal one or one of thousands in {named}: {reason}; if that column has \
         codes or sizes rather than numbers, change `csv.decimal_separator` and `csv.thousands_separator`"
    ))
}

fn is_number(column: &ColumnPreview) -> bool {
    column.column_type.is_some_and(ColumnType::is_number)
}

/// Key that reads the text of column `name` as numbers: that of the warning about the column, and otherwise the first
/// setting that reads it, since no warning is about cells of several notations.
pub(super) fn number_key(name: &str, preview: &SourcePreview) -> Option<String> {
    let codes = [
        "looks_like_decimal_comma",
        "looks_like_decimal_point",
        "looks_like_coded_amounts",
        "looks_like_thousands",
        "looks_like_spaced_thousands",
        "looks_like_apostrophe_thousands",
        "looks_like_percent",
        "looks_like_currency",
        "leading_zeros",
    ];
    let mut warnings = preview.warnings.iter();
    let warning =
        warnings.find(|warning| codes.contains(&warning.code.as_str()) && warning.is_about(name));
    let key = warning.and_then(|warning| warning.key.as_deref());
    let mut columns = preview.columns.iter();
    let column = columns.find(|column| column.name == name);
    let has_settings = column.is_none_or(|column| !column.number_settings.is_empty());
    // Beside decimal points of other columns, no setting reads `1.234,56`.
    let key = match key {
        Some("csv.decimal_separator") if !has_settings => Some("dataset.sql"),
        key => key,
    };
    key.map(|key| key.replace("<name>", name)).or_else(|| {
        let column = column?;
        let (key, _) = column.number_settings.first()?.split_once(" = ")?;
        Some(format!("csv.{key}"))
    })
}

#[cfg(test)]
mod tests {
    use feedline_ingest::SeparatorSamples;
    use feedline_schemas::report::{WarnedColumn, Warning};

    use super::*;

    /// Warning about these columns, whose message names them in other words.
    fn warning(code: &str, columns: &[&str]) -> Warning {
        let columns = columns.iter().map(|name| WarnedColumn::new(name));
        Warning::new(code, "numbers").with_columns(columns.collect())
    }

    #[test]
    fn a_column_without_a_warning_has_the_key_of_its_settings() {
        let column = |name: &str, setting: Option<&str>| ColumnPreview {
            name: name.to_owned(),
            number_settings: setting.map(str::to_owned).into_iter().collect(),
            ..ColumnPreview::default()
        };
        let zeros = warning("leading_zeros", &["a", "b", "c", "d", "e", "h"]);
        let preview = SourcePreview {
            columns: vec![
                column("a", Some("currency = \"$\"")),
                column("f", Some("thousands_separator = \",\"")),
                column("g", None),
            ],
            warnings: vec![zeros.with_key("contract.column.<name>.type")],
            ..SourcePreview::default()
        };
        let keys = ["a", "f", "g", "h"].map(|name| number_key(name, &preview));
        let keys = keys.each_ref().map(Option::as_deref);
        let set = Some("csv.thousands_separator");
        let declared = ["contract.column.a.type", "contract.column.h.type"].map(Some);
        assert_eq!(keys, [declared[0], set, None, declared[1]]);
    }

    #[test]
    fn a_column_that_no_setting_reads_has_the_key_of_a_query() {
        let column = |name: &str, setting: Option<&str>| ColumnPreview {
            name: name.to_owned(),
            number_settings: setting.map(str::to_owned).into_iter().collect(),
            ..ColumnPreview::default()
        };
        let decimal = warning("looks_like_decimal_comma", &["a", "b"]);
        let coded = warning("looks_like_coded_amounts", &["c"]);
        let preview = SourcePreview {
            columns: vec![
                column("a", None),
                column("b", Some("decimal_separator = \",\"")),
                column("c", None),
            ],
            warnings: vec![
                decimal.with_key("csv.decimal_separator"),
                coded.with_key("dataset.sql"),
            ],
            ..SourcePreview::default()
        };
        let keys = ["a", "b", "c"].map(|name| number_key(name, &preview));
        let keys = keys.each_ref().map(Option::as_deref);
        let [sql, set] = [Some("dataset.sql"), Some("csv.decimal_separator")];
        assert_eq!(keys, [sql, set, sql]);
    }

    #[test]
    fn numbers_with_either_separator_are_named_with_the_column_that_decides_it() {
        let column = |name: &str, comma: Option<&str>, open: Option<(&str, &str)>| ColumnPreview {
            name: name.to_owned(),
            column_type: Some(ColumnType::Float64),
            separators: SeparatorSamples {
                comma: comma.map(str::to_owned),
                open: open.map(|(cell, number)| (cell.to_owned(), number.to_owned())),
            },
            ..ColumnPreview::default()
        };
        let preview = SourcePreview {
            columns: vec![
                column("id", None, None),
                column("weight", None, Some(("3.287", "3287"))),
                column("codes", Some("88,54"), None),
            ],
            ..SourcePreview::default()
        };
        let grouped = NumberFormat::GroupedComma;
        let said = describe_open_numbers(grouped, &[], None, &preview).unwrap();
        for part in [
            "in `weight` (`3.287` is read as 3287): ",
            "`88,54` in `codes` decides that the comma is the decimal separator",
            "change `csv.decimal_separator` and `csv.thousands_separator`",
        ] {
            assert!(said.contains(part), "{said}");
        }
        let thousands = ["thousands_separator = \",\"".to_owned()];
        let said = describe_open_numbers(NumberFormat::Point, &thousands, Some("y"), &preview);
        assert!(said.unwrap().contains("the separators of `y` decide it"));
        let of_itself =
            describe_open_numbers(NumberFormat::Point, &thousands, Some("weight"), &preview);
        assert_eq!(of_itself, None);
        let point = NumberFormat::Point;
        assert_eq!(describe_open_numbers(point, &[], None, &preview), None);
    }
}
