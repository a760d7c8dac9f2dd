//! A line of TOML with a suggested pagination.

use super::Total;

/// An inline table that is being written.
pub(super) struct Line {
    pub(super) text: String,
    /// Query parameter of the page number, if the number of the first page is not known.
    pub(super) unnumbered: Option<String>,
    /// Parameter and value that ask for the records behind the last one, if it is by their order alone.
    pub(super) after_last: Option<(String, String)>,
}

impl Line {
    pub(super) fn new(kind: &str) -> Self {
        Self {
            text: format!("pagination = {{ type = {}", quoted(kind)),
            unnumbered: None,
            after_last: None,
        }
    }

    /// The complete line.
    pub(super) fn into_text(self) -> String {
        self.text + " }"
    }

    pub(super) fn with(mut self, key: &str, text: &str) -> Self {
        self.text += &format!(", {key} = {}", quoted(text));
        self
    }

    pub(super) fn with_number(mut self, key: &str, number: u64) -> Self {
        self.text += &format!(", {key} = {number}");
        self
    }

    /// Adds the number of the first page, which comes before page `next`.
    pub(super) fn before_page(self, next: u64) -> Self {
        match next {
            1 => self.with_number("first_page", 0),
            _ => self,
        }
    }

    /// Adds the path of the total number of records.
    pub(super) fn with_total(self, total: Option<&Total<'_>>) -> Self {
        match total {
            Some(Total { key, place, .. }) => self.with(key, place),
            None => self,
        }
    }
}

/// A basic string of TOML.
pub(super) fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
