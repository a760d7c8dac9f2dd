//! Parts of messages that several warnings share.

pub(super) use feedline_schemas::count::first_of;
use feedline_schemas::report::{WarnedColumn, Warning};

use crate::schema::landed_columns::shown;

/// Groups of values that one warning names.
pub(super) const GROUPS: usize = 5;

/// Columns that one warning names.
pub(super) const COLUMNS: usize = 10;

/// Characters of a value that a message shows.
pub(super) const SHOWN: usize = 40;

/// Makes warning `code`, about `key`.
pub(super) fn warning(code: &str, key: &str, message: String) -> Warning {
    Warning::new(code, message).with_key(key)
}

/// The columns of a warning, by their names alone.
pub(super) fn warned_columns<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<WarnedColumn> {
    names.into_iter().map(WarnedColumn::new).collect()
}

/// The columns in a message, `most` of them, each with its figures in parentheses.
pub(crate) fn list_columns(columns: &[WarnedColumn], most: usize) -> String {
    let described = columns
        .iter()
        .map(|column| format!("`{}` ({})", shown(&column.name), column.found));
    first_of(&described.collect::<Vec<_>>(), most)
}

/// Formats a fraction as a percentage.
pub(super) fn percent(part: u64, whole: u64) -> String {
    format!("{:.1} %", share(part, whole) * 100.0)
}

#[expect(clippy::cast_precision_loss, reason = "a share needs no 53 bits")]
pub(super) fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

/// Quotes a value in backticks, shortened.
pub(super) fn quoted(value: &str) -> String {
    let short: String = value.chars().take(SHOWN).collect();
    let more = if short.len() < value.len() { "..." } else { "" };
    format!("`{}{more}`", shown(&short))
}

/// Formats a column name as a string of TOML, to be copied into a pipeline.
pub(crate) fn toml_string(name: &str) -> String {
    let mut text = String::from("\"");
    for c in name.chars() {
        match c {
            '"' | '\\' => text.extend(['\\', c]),
            c if c.is_control() => text += &format!("\\u{:04X}", u32::from(c)),
            c => text.push(c),
        }
    }
    text + "\""
}
