//! A first line of CSV that names the delimiter.

use feedline_schemas::csv_cell::DELIMITERS;

use super::shown;
use crate::notices::Notices;

/// A first line such as `sep=;`, which names the delimiter for spreadsheets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DelimiterLine {
    pub(super) delimiter: u8,
    /// Length of the line with its end.
    pub(super) bytes: usize,
}

impl DelimiterLine {
    /// The one that `sample` begins with.
    pub(super) fn of(sample: &[u8]) -> Option<Self> {
        let end = sample.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
        let (line, rest) = sample.split_at(end.unwrap_or(sample.len()));
        let quoted = line.strip_prefix(b"\"");
        let quoted = quoted.and_then(|line| line.strip_suffix(b"\""));
        let (key, delimiter) = quoted.unwrap_or(line).split_at_checked(4)?;
        let end_bytes = match rest {
            [b'\r', b'\n', ..] => 2,
            _ => rest.len().min(1),
        };
        match delimiter {
            [one] if key.eq_ignore_ascii_case(b"sep=") && DELIMITERS.contains(one) => Some(Self {
                delimiter: *one,
                bytes: line.len() + end_bytes,
            }),
            _ => None,
        }
    }

    /// Checks that the delimiter is the configured one, if there is one.
    ///
    /// # Errors
    /// Both delimiters and the remedies.
    pub(super) fn check(self, configured: Option<u8>) -> Result<(), String> {
        match configured {
            Some(configured) if configured != self.delimiter => Err(format!(
                "its first line `sep={}` names another delimiter than `csv.delimiter = \"{}\"`; remove the key, so that each \
                 file is read by the delimiter of its own, or remove or correct the line",
                shown(self.delimiter),
                shown(configured)
            )),
            _ => Ok(()),
        }
    }
}

/// Notes that the file `name` is read with the delimiter that its first line names. It is one of the lines that
/// `csv.skip_rows` passes over, if there are any.
pub(super) fn note(delimiter: u8, skip_rows: u64, name: &str, notices: &Notices) {
    let shown = shown(delimiter);
    let counted = match skip_rows {
        0 => "",
        1 => {
            ", and is skipped without `csv.skip_rows` too, which skips a line of each file without such a line"
        }
        _ => ", and is one of the lines that `csv.skip_rows` skips",
    };
    let message = format!(
        "`{name}` is read with the delimiter `{shown}`, which its first line `sep={shown}` names; that line is no header and no row{counted}"
    );
    notices.push("csv_delimiter", "csv.delimiter", message);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_line_for_spreadsheets_names_the_delimiter() {
        for (text, expected) in [
            ("sep=;\r\nid;y\r\n", Some((b';', 7))),
            ("SEP=,\nid,y\n", Some((b',', 6))),
            ("sep=\t\rid\ty\r", Some((b'\t', 6))),
            ("\"sep=|\"\nid|y\n", Some((b'|', 8))),
            ("sep=;", Some((b';', 5))),
            ("sep=a\n", None),
            ("\"sep=;\n", None),
            ("sep=;;\n", None),
            ("sep;y\n", None),
            ("id;y\nsep=;\n", None),
            ("", None),
        ] {
            let found = DelimiterLine::of(text.as_bytes());
            let found = found.map(|line| (line.delimiter, line.bytes));
            assert_eq!(found, expected, "{text:?}");
        }
    }
}
