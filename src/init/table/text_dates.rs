//! Columns of dates that land as text until the source has their format.

use feedline_ingest::SourcePreview;
use feedline_schemas::record::ColumnType;

/// A column whose texts look like dates.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TextDates {
    pub(super) column: String,
    /// Setting of the source that makes timestamps of them, with the format if it is certain.
    pub(super) setting: String,
}

/// Returns true if a warning of the preview takes the texts of column `name` for dates.
pub(super) fn looks_like_dates(name: &str, preview: &SourcePreview) -> bool {
    describe_dates(name, preview).is_some()
}

/// First column but the `target` whose texts look like dates.
pub(super) fn find_text_dates(preview: &SourcePreview, target: Option<&str>) -> Option<TextDates> {
    let mut texts = preview.columns.iter().filter(|column| {
        column.column_type == Some(ColumnType::Utf8) && target != Some(column.name.as_str())
    });
    texts.find_map(|column| {
        let described = describe_dates(&column.name, preview)?;
        let setting = match certain_format(described) {
            Some(format) => format!("contract.dates = [{}]", toml::Value::from(format)),
            None => "contract.dates".to_owned(),
        };
        Some(TextDates {
            column: column.name.clone(),
            setting,
        })
    })
}

/// Samples and formats of the dates in column `name`, from the warning about them.
fn describe_dates<'a>(name: &str, preview: &'a SourcePreview) -> Option<&'a str> {
    let item = format!("`{name}` (");
    let warnings = preview.warnings.iter();
    let mut dates = warnings.filter(|warning| warning.code == "looks_like_dates");
    dates.find_map(|warning| Some(warning.message.split_once(&item)?.1))
}

/// The format that fits all dates, if there is one alone.
fn certain_format(described: &str) -> Option<&str> {
    let (item, _) = described.split_once(')')?;
    let mut notes = item.split("; ");
    let format = notes.find_map(|note| note.strip_suffix("` fits all"))?;
    format.strip_prefix('`')
}
