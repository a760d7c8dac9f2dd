//! Errors in a configuration, with the line they are about.

use std::{fmt, ops::Range};

use crate::{Classified, ErrorKind};

/// Line of a pipeline file, with the columns of the key or value that an error is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkedLine {
    /// Number, from 1.
    pub number: usize,
    /// First marked column, in characters, from 1.
    pub column: usize,
    /// Count of marked columns, at least 1.
    pub width: usize,
    /// Text of the line.
    pub text: String,
}

/// An error in a configuration, with its place.
///
/// `Display` writes one line; [`ConfigError::with_excerpt`] adds the line of text with a mark under the key or value.
///
/// ```
/// use feedline_schemas::config::load;
///
/// let text = "[pipeline]\nname = 'trades'\n[train]\nepoch = 30\n";
/// let error = load("trades.toml", text, &[]).unwrap_err();
/// assert_eq!(error.key, "train.epoch");
/// assert!(error.reason.contains("did you mean `epochs`?"));
/// let excerpt = "  |\n4 | epoch = 30\n  | ^^^^^";
/// assert!(error.with_excerpt().ends_with(excerpt));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// File.
    pub file: String,
    /// Line; absent when the key is not in the file.
    pub line: Option<MarkedLine>,
    /// Key path.
    pub key: String,
    /// Reason, and what to do.
    pub reason: String,
}

impl Classified for ConfigError {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Config
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)?;
        if let Some(line) = &self.line {
            write!(f, ":{}", line.number)?;
        }
        if !self.key.is_empty() {
            write!(f, ": `{}`", self.key)?;
        }
        write!(f, ": {}", self.reason)
    }
}

impl std::error::Error for ConfigError {}

impl ConfigError {
    /// The message with file, line and column, followed by the line of text and a mark under the key or value.
    #[must_use]
    pub fn with_excerpt(&self) -> String {
        let Some(line) = &self.line else {
            return self.to_string();
        };
        let MarkedLine {
            number,
            column,
            width,
            ..
        } = *line;
        let place = format!("{}:{number}:{column}", self.file);
        let key = match self.key.as_str() {
            "" => String::new(),
            key => format!(": `{key}`"),
        };
        let (text, column) = line.window();
        let number = number.to_string();
        let margin = " ".repeat(number.len());
        let before = " ".repeat(column - 1);
        let mark = "^".repeat(width.clamp(1, MAX_EXCERPT - column + 1));
        format!(
            "{place}{key}: {}\n{margin} |\n{number} | {text}\n{margin} | {before}{mark}",
            self.reason
        )
    }
}

/// Most characters of a line that are shown.
const MAX_EXCERPT: usize = 120;

impl MarkedLine {
    /// The line that has the bytes `span` of `text`.
    pub(super) fn of(text: &str, span: Range<usize>) -> Self {
        let floor = |at: usize| {
            let at = at.min(text.len());
            (0..=at)
                .rev()
                .find(|at| text.is_char_boundary(*at))
                .unwrap_or(0)
        };
        let (start, end) = (floor(span.start), floor(span.end));
        let first = text[..start].rfind('\n').map_or(0, |at| at + 1);
        let last = text[start..].find('\n').map_or(text.len(), |at| start + at);
        let line = text[first..last].trim_end();
        let end = end.clamp(start, (first + line.len()).max(start));
        Self {
            number: text[..first].matches('\n').count() + 1,
            column: text[first..start].chars().count() + 1,
            width: text[start..end].chars().count().max(1),
            text: line.replace('\t', " "),
        }
    }

    /// The part of the line that is shown, and the marked column in it.
    fn window(&self) -> (String, usize) {
        let count = self.text.chars().count();
        if count <= MAX_EXCERPT {
            return (self.text.clone(), self.column.min(MAX_EXCERPT));
        }
        let skipped = self.column.saturating_sub(MAX_EXCERPT / 3);
        let shown = self.text.chars().skip(skipped).take(MAX_EXCERPT);
        (shown.collect(), self.column - skipped)
    }

    /// The line with the contents of its strings masked. A line without a quote may be a part of a
    /// string, so its value is masked.
    pub(super) fn masked(mut self) -> Self {
        let mut quote = None;
        let mut is_escaped = false;
        let is_header = self.text.trim_start().starts_with('[');
        let has_quote = self.text.contains(['"', '\'']) || is_header;
        let mut is_value = !has_quote && !self.text.contains('=');
        let text = self.text.chars().map(|c| match quote {
            None if !has_quote => {
                is_value |= c == '=';
                if is_value && c.is_alphanumeric() {
                    '*'
                } else {
                    c
                }
            }
            None => {
                quote = matches!(c, '"' | '\'').then_some(c);
                c
            }
            Some(open) if c == open && !is_escaped => {
                quote = None;
                c
            }
            Some(open) => {
                is_escaped = open == '"' && c == '\\' && !is_escaped;
                '*'
            }
        });
        self.text = text.collect();
        self
    }

    /// Returns true if another key of the line may hold credentials, as in an inline table or a URL.
    pub(super) fn may_have_secret(&self) -> bool {
        let text = self.text.to_ascii_lowercase();
        let names = [
            "auth", "header", "params", "secret", "password", "token", "cookie",
        ];
        names.iter().any(|name| text.contains(name)) || (text.contains("://") && text.contains('@'))
    }
}
