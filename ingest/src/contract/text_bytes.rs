//! Text in binary columns of Parquet files, without a mark that it is text, as Hive, Impala and older
//! versions of Spark write it.
//!
//! Nothing in the file separates such a column from one of bytes that happen to be UTF-8. So it lands as
//! hexadecimal digits, with a warning, until the contract declares the column.

use std::collections::BTreeMap;

use feedline_readers::value::{Value, one_line, shorten};
use feedline_schemas::{
    commit::{Decisions, Noted, note},
    config::{ContractConfig, DeclaredType},
    count::counted,
    record::split_path,
    report::Warning,
};

use super::cut_digits::list_columns;

/// Kind of decision: a cell of bytes that is text and lands as hexadecimal digits; also the code of
/// the warning about it. A column keeps its type, so it holds until a reset.
pub(crate) const TEXT_AS_HEX: &str = "text_as_hex";
/// Kind of decision: any other cell of bytes that lands as hexadecimal digits.
const BYTES_AS_HEX: &str = "bytes_as_hex";

/// Most characters of a sample.
const SAMPLE: usize = 40;
/// Fraction of the cells that are text in a column that the warning names, in tenths.
const TENTHS: u64 = 9;

/// Replaces bytes by their text where they are UTF-8 and the column has a declared type other than bytes. So
/// a reject has the text too, and lands it when it is retried.
pub(crate) fn read_declared_bytes(record: &mut Value, config: &ContractConfig) {
    if config.column.is_empty() || !has_byte_cell(record) {
        return;
    }
    for (name, column) in &config.column {
        let declared = column.r#type;
        if declared.is_none_or(|declared| declared == DeclaredType::Bytes) {
            continue;
        }
        let Some(value) = value_at(record, &split_path(name)) else {
            continue;
        };
        let text = match value {
            Value::ByteCell(bytes) => std::str::from_utf8(bytes).ok().map(ToOwned::to_owned),
            _ => None,
        };
        if let Some(text) = text {
            *value = Value::Text(text);
        }
    }
}

fn has_byte_cell(value: &Value) -> bool {
    match value {
        Value::ByteCell(_) => true,
        Value::Object(entries) => entries.iter().any(|(_, value)| has_byte_cell(value)),
        _ => false,
    }
}

/// The value at a path of keys.
fn value_at<'v>(value: &'v mut Value, keys: &[String]) -> Option<&'v mut Value> {
    let Some((key, rest)) = keys.split_first() else {
        return Some(value);
    };
    let Value::Object(entries) = value else {
        return None;
    };
    let (_, below) = entries.iter_mut().find(|(name, _)| name == key)?;
    value_at(below, rest)
}

/// Decision about a cell that lands as hexadecimal digits, with a sample; none for an empty cell.
pub(super) fn decision_of(bytes: &[u8]) -> Option<(&'static str, String)> {
    if bytes.is_empty() {
        return None;
    }
    Some(match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains(is_binary) => {
            let sample = shorten(text, SAMPLE);
            (TEXT_AS_HEX, format!("`{}`", one_line(&sample)))
        }
        _ => (BYTES_AS_HEX, counted(bytes.len() as u64, "byte")),
    })
}

/// Returns true for a character that text does not have.
fn is_binary(character: char) -> bool {
    character.is_control() && !matches!(character, '\t' | '\n' | '\r')
}

/// Notes cells of text as other bytes in columns that are not mostly text: a few bytes happen to be
/// text too.
pub(super) fn settle_hex(decisions: &mut Decisions) {
    let Some(columns) = decisions.remove(TEXT_AS_HEX) else {
        return;
    };
    let others = |name: &str| {
        let others = decisions.get(BYTES_AS_HEX);
        let noted = others.and_then(|columns| columns.get(name));
        noted.map_or(0, |noted| noted.count)
    };
    let is_text = |name: &str, count: u64| count * 10 >= (count + others(name)) * TENTHS;
    let (texts, bytes): (BTreeMap<_, _>, BTreeMap<_, _>) = columns
        .into_iter()
        .partition(|(name, noted)| is_text(name, noted.count));
    if !texts.is_empty() {
        decisions.insert(TEXT_AS_HEX.to_owned(), texts);
    }
    for (name, Noted { count, sample }) in bytes {
        note(decisions, BYTES_AS_HEX, &name, count, || sample);
    }
}

/// The warning about text that landed as hexadecimal digits in a batch, from its settled decisions.
pub(crate) fn hex_warning(decisions: &Decisions) -> Option<Warning> {
    let shown = list_columns(decisions.get(TEXT_AS_HEX)?);
    let message = format!(
        "{shown}: text in a binary column lands as hexadecimal digits, since nothing in the file marks it as text; to \
         land the text declare the column `text`, to land its bytes `bytes`, and where rows have landed run `feedline ingest \
         reset PIPELINE.toml SOURCE`, which re-reads everything"
    );
    Some(Warning::new(TEXT_AS_HEX, message).with_key("contract.column.<name>.type"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_differs_from_other_bytes_and_an_empty_cell_is_neither() {
        let kind = |bytes: &[u8]| decision_of(bytes).map(|(kind, _)| kind);
        assert_eq!(kind(b""), None);
        for text in ["north", "two\nlines\tand\r", "Größe"] {
            assert_eq!(kind(text.as_bytes()), Some(TEXT_AS_HEX), "{text}");
        }
        for bytes in [&b"\x01"[..], b"a\0b", b"\xff\xd8", b"Gr\xf6\xdfe"] {
            assert_eq!(kind(bytes), Some(BYTES_AS_HEX), "{bytes:?}");
        }
        let (_, sample) = decision_of(b"north").unwrap();
        assert_eq!(sample, "`north`");
    }

    #[test]
    fn bytes_of_declared_columns_become_text_by_their_paths() {
        let cell = |bytes: &[u8]| Value::ByteCell(bytes.to_vec());
        let object = |entries: Vec<(&str, Value)>| {
            let entries = entries.into_iter();
            let entries = entries.map(|(key, value)| (key.to_owned(), value));
            Value::Object(entries.collect())
        };
        let mut config = ContractConfig::default();
        for (name, declared) in [
            ("text", DeclaredType::Text),
            ("deep.text", DeclaredType::Text),
            ("bytes", DeclaredType::Bytes),
            ("absent", DeclaredType::Text),
            ("none", DeclaredType::Text),
        ] {
            let column = config.column.entry(name.to_owned()).or_default();
            column.r#type = Some(declared);
        }
        let mut record = object(vec![
            ("text", cell(b"a")),
            ("deep", object(vec![("text", cell(b"b"))])),
            ("bytes", cell(b"c")),
            ("none", cell(b"\xff")),
            ("open", cell(b"d")),
        ]);
        read_declared_bytes(&mut record, &config);
        let text = |text: &str| Value::Text(text.to_owned());
        let expected = object(vec![
            ("text", text("a")),
            ("deep", object(vec![("text", text("b"))])),
            ("bytes", cell(b"c")),
            ("none", cell(b"\xff")),
            ("open", cell(b"d")),
        ]);
        assert_eq!(record, expected);
    }

    #[test]
    fn the_warning_names_columns_that_are_mostly_text() {
        let mut decisions = Decisions::new();
        assert_eq!(hex_warning(&decisions), None);
        let mut add = |kind, name: &str, count| {
            note(&mut decisions, kind, name, count, || "`a`".to_owned());
            let mut settled = decisions.clone();
            settle_hex(&mut settled);
            hex_warning(&settled)
        };
        assert_eq!(add(BYTES_AS_HEX, "code", 2), None);
        assert_eq!(add(TEXT_AS_HEX, "code", 17), None);
        let warning = add(TEXT_AS_HEX, "shop", 1).unwrap();
        let begin = "`shop` (1 value of a batch, such as `a`): text in a binary column lands";
        assert!(warning.message.starts_with(begin), "{}", warning.message);
        assert_eq!(warning.key.as_deref(), Some("contract.column.<name>.type"));
        let warning = add(TEXT_AS_HEX, "code", 1).unwrap();
        let begin = "`code` (18 values of a batch, such as `a`), `shop` (";
        assert!(warning.message.starts_with(begin), "{}", warning.message);
    }
}
