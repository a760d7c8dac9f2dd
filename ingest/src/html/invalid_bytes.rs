//! Pages with bytes that their encoding does not have.

use feedline_readers::{record::Record, value::Value};
use feedline_schemas::report::Warning;

use super::reader::Contents;

/// Pages of a crawl whose records have U+FFFD in place of invalid bytes.
#[derive(Debug, Default)]
pub(super) struct InvalidBytes {
    pages: u64,
    /// The first one: its address and its encoding.
    first: Option<(String, &'static str)>,
}

impl InvalidBytes {
    /// Counts a page if one of its records has U+FFFD in place of bytes that are invalid in its encoding.
    /// Returns the warning about all pages of this run so far.
    pub(super) fn count(&mut self, url: &str, contents: &Contents) -> Option<Warning> {
        let encoding = contents.invalid_in?;
        if !contents.records.iter().any(has_replacement) {
            return None;
        }
        let (first, encoding) = &*self.first.get_or_insert((url.to_owned(), encoding));
        self.pages += 1;
        let pages = match self.pages {
            1 => "1 page has".to_owned(),
            many => format!("{many} pages have"),
        };
        let message = format!(
            "{pages} bytes that are invalid in the encoding of the page, such as `{first}` ({encoding}), as counted in one run: the records have U+FFFD in place of each; exclude such pages with `page.land`, or correct them at the server"
        );
        Some(Warning::new("invalid_bytes", message).with_key("page.land"))
    }
}

/// Returns true if a record has U+FFFD.
fn has_replacement(record: &Record) -> bool {
    match record {
        Record::Value(value) => has_replacement_in(value),
        _ => false,
    }
}

fn has_replacement_in(value: &Value) -> bool {
    let is_in = |text: &str| text.contains(char::REPLACEMENT_CHARACTER);
    match value {
        Value::Text(text) | Value::Cell(text) => is_in(text),
        Value::List(items) => items.iter().any(has_replacement_in),
        Value::Object(entries) => entries
            .iter()
            .any(|(key, value)| is_in(key) || has_replacement_in(value)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page with the encoding `invalid_in` whose record has the text `text`.
    fn page(invalid_in: Option<&'static str>, text: &str) -> Contents {
        let text = ("text".to_owned(), Value::Text(text.to_owned()));
        Contents {
            records: vec![Record::Value(Value::Object(vec![text]))],
            invalid_in,
            ..Contents::default()
        }
    }

    #[test]
    fn bytes_outside_of_the_records_are_no_warning() {
        let mut invalid = InvalidBytes::default();
        let outside = page(Some("UTF-8"), "Cafe");
        assert!(invalid.count("http://h/a", &outside).is_none());
        let inside = invalid.count("http://h/b", &page(Some("UTF-8"), "Caf\u{fffd}"));
        let message = inside.unwrap().message;
        assert!(message.starts_with("1 page has"), "{message}");
    }

    #[test]
    fn the_warning_counts_pages_and_names_the_first() {
        let mut invalid = InvalidBytes::default();
        let mut count = |url: &str, encoding: Option<&'static str>| {
            invalid.count(url, &page(encoding, "Caf\u{fffd}"))
        };
        assert!(count("http://h/a", None).is_none());
        let one = count("http://h/b", Some("UTF-8")).unwrap();
        assert!(one.message.starts_with("1 page has"), "{}", one.message);
        assert!(count("http://h/c", None).is_none());
        let two = count("http://h/d", Some("Shift_JIS")).unwrap();
        assert!(two.message.starts_with("2 pages have"), "{}", two.message);
        assert!(
            two.message.contains("such as `http://h/b` (UTF-8)"),
            "{}",
            two.message
        );
        assert_eq!(
            (two.code.as_str(), two.key.as_deref()),
            ("invalid_bytes", Some("page.land"))
        );
    }
}
