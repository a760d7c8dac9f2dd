//! Columns of dates that land as text until the source has their format.

use feedline_ingest::SourcePreview;
use feedline_schemas::{
    record::ColumnType,
    report::{WarnedColumn, Warning},
};

/// A column whose texts look like dates.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TextDates {
    pub(super) column: String,
    /// Setting of the source that makes timestamps of them, with the format if it is certain.
    pub(super) setting: String,
}

/// Returns true if a warning of the preview takes the texts of column `name` for dates.
pub(super) fn looks_like_dates(name: &str, preview: &SourcePreview) -> bool {
    find_dates(name, preview).is_some()
}

/// First column but the `target` whose texts look like dates.
pub(super) fn find_text_dates(preview: &SourcePreview, target: Option<&str>) -> Option<TextDates> {
    let mut texts = preview.columns.iter().filter(|column| {
        column.column_type == Some(ColumnType::Utf8) && target != Some(column.name.as_str())
    });
    texts.find_map(|column| {
        // Formats that fit all values; none or several leave it open.
        let setting = match find_dates(&column.name, preview)?.values.as_slice() {
            [format] => format!("contract.dates = [{}]", toml::Value::from(format.as_str())),
            _ => "contract.dates".to_owned(),
        };
        Some(TextDates {
            column: column.name.clone(),
            setting,
        })
    })
}

/// The column `name` in a warning about texts that look like dates.
fn find_dates<'a>(name: &str, preview: &'a SourcePreview) -> Option<&'a WarnedColumn> {
    let warnings = preview.warnings.iter();
    let warnings = warnings.filter(|warning| warning.code == "looks_like_dates");
    let mut columns = warnings.flat_map(Warning::columns);
    columns.find(|column| column.name == name)
}
