//! Text behind the closing quote of a CSV field. The parser joins it to the field and drops the
//! quote, so the cell is not what was written.
//!
//! Bytes are scanned as they are read, up to the first such quote. Where lines may be comments they
//! are not.

use crate::csv_dialect::Dialect;

/// Most bytes of an example on each side of the quote.
const SHOWN: usize = 24;

/// A closing quote with text behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LooseQuote {
    /// Bytes before it.
    pub(super) byte: u64,
    /// The field up to it, and the text behind it.
    pub(super) example: String,
    /// True if a backslash precedes it.
    pub(super) has_backslash: bool,
}

/// Scan of the bytes of a file for the first [`LooseQuote`], and for an open quote at the end.
#[derive(Debug)]
pub(super) struct QuoteScan {
    /// The quote; `None` where nothing is scanned.
    quote: Option<u8>,
    delimiter: u8,
    escape: Option<u8>,
    is_quoted: bool,
    /// True if the last byte may be the closing quote.
    is_closing: bool,
    /// True if a backslash precedes that.
    has_backslash: bool,
    /// True if the next byte is escaped.
    is_escaped: bool,
    last: u8,
    /// Bytes before the next ones.
    before: u64,
    found: Option<LooseQuote>,
}

impl QuoteScan {
    /// Scans from the beginning of a row.
    pub(super) fn new(dialect: &Dialect) -> Self {
        Self {
            quote: dialect.quote.filter(|_| dialect.comment.is_none()),
            delimiter: dialect.delimiter,
            // An escape that is the quote itself is a doubled quote.
            escape: dialect.escape.filter(|_| dialect.escape != dialect.quote),
            is_quoted: false,
            is_closing: false,
            has_backslash: false,
            is_escaped: false,
            last: b'\n',
            before: 0,
            found: None,
        }
    }

    /// The first one among the bytes so far.
    pub(super) const fn found(&self) -> Option<&LooseQuote> {
        self.found.as_ref()
    }

    /// Returns true if the bytes so far end within a quoted field.
    pub(super) const fn is_open(&self) -> bool {
        self.is_quoted && !self.is_closing
    }

    /// Scans the next bytes.
    pub(super) fn scan(&mut self, bytes: &[u8]) {
        let Some(quote) = self.quote else { return };
        let Some(last) = bytes.last() else { return };
        let is_plain = !self.is_closing && !self.is_escaped && !bytes.contains(&quote);
        // An escape at the end of a plain part would be missed.
        if !is_plain || self.is_quoted && self.escape.is_some() {
            self.scan_quotes(bytes, quote);
        }
        self.last = *last;
        self.before += bytes.len() as u64;
    }

    fn scan_quotes(&mut self, bytes: &[u8], quote: u8) {
        let mut opened = 0;
        let mut last = self.last;
        for (at, byte) in bytes.iter().copied().enumerate() {
            if std::mem::take(&mut self.is_closing) {
                self.is_quoted = byte == quote;
                // The parser continues such a field without quotes.
                if !self.is_quoted && !self.ends_field(byte) && self.found.is_none() {
                    self.found = Some(self.loose_quote(bytes, opened, at));
                }
            } else if self.is_quoted {
                let is_escaped = std::mem::take(&mut self.is_escaped);
                self.is_closing = byte == quote && !is_escaped;
                self.is_escaped = self.escape == Some(byte) && !is_escaped;
                self.has_backslash = last == b'\\';
            } else if byte == quote && self.ends_field(last) {
                (self.is_quoted, opened) = (true, at);
            }
            last = byte;
        }
    }

    const fn ends_field(&self, byte: u8) -> bool {
        byte == self.delimiter || matches!(byte, b'\n' | b'\r')
    }

    /// The quote before the byte `at`, in a field that was `opened` there or before these bytes.
    fn loose_quote(&self, bytes: &[u8], opened: usize, at: usize) -> LooseQuote {
        let begin = opened.max(at.saturating_sub(SHOWN));
        let shown = &bytes[begin..bytes.len().min(at + SHOWN)];
        let end = shown
            .iter()
            .skip(at - begin)
            .position(|byte| *byte == b'\n');
        let shown = &shown[..end.map_or(shown.len(), |end| at - begin + end)];
        let example = String::from_utf8_lossy(shown);
        LooseQuote {
            byte: (self.before + at as u64).saturating_sub(1),
            // A character may be cut at both ends.
            example: example.trim_matches(['\u{fffd}', '\r']).to_owned(),
            has_backslash: self.has_backslash,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dialect(escape: Option<u8>) -> Dialect {
        Dialect {
            delimiter: b',',
            quote: Some(b'"'),
            escape,
            comment: None,
            has_header: true,
            columns: Vec::new(),
            base_byte: Some(0),
            base_line: 0,
            base_feeds: 0,
        }
    }

    fn find(text: &str, part: usize, dialect: &Dialect) -> Option<(u64, bool)> {
        let mut scan = QuoteScan::new(dialect);
        for bytes in text.as_bytes().chunks(part) {
            scan.scan(bytes);
        }
        scan.found().map(|found| (found.byte, found.has_backslash))
    }

    #[test]
    fn text_behind_a_closing_quote_is_found_wherever_the_bytes_are_divided() {
        for (text, byte) in [
            ("a,b\n\"x\" y,1\n", Some(6)),
            ("a,b\n1,\"Keep \"in touch\" x\"\n", Some(12)),
            ("a,b\n1,\"say \\\"hi\\\" 0\"\n", Some(12)),
            ("\"a\" b\n", Some(2)),
            ("a,b\n\"x\",\"y, \"\"z\"\"\"\r\n\"\",\"a\nb\"\n", None),
            ("a,b\n5\" disk,6\"\n", None),
            ("a,b\n \"x\" y,1\n", None),
        ] {
            for part in 1..=text.len() {
                let found = find(text, part, &dialect(None));
                assert_eq!(found.map(|(byte, _)| byte), byte, "{text:?} by {part}");
            }
        }
    }

    #[test]
    fn escaped_quotes_close_nothing_and_those_behind_a_backslash_are_marked() {
        let text = "a,b\n\"say \\\"hi\\\\\",\"\\\\\"\n";
        for part in 1..=text.len() {
            assert_eq!(find(text, part, &dialect(Some(b'\\'))), None, "{part}");
        }
        for part in 1..=text.len() {
            assert_eq!(find(text, part, &dialect(None)), Some((10, true)), "{part}");
        }
        let doubled = "a,b\n\"say \"\"hi\"\"\",1\n";
        assert_eq!(find(doubled, 5, &dialect(Some(b'"'))), None);
        let comments = Dialect {
            comment: Some(b'#'),
            ..dialect(None)
        };
        assert_eq!(find(text, 100, &comments), None);
    }

    #[test]
    fn a_field_is_open_up_to_its_closing_quote() {
        for (text, is_open) in [
            ("a,b\n1,\"\n", true),
            ("a,b\n1,\"\n\"\n", false),
            ("a,b\n\"x \"5,\"\n", true),
            ("a,b\n\"x \"5\",1\n", false),
            ("a\n\"\"\n\"\n", true),
            ("a,b\n1,\"x\"\"\n", true),
            ("a,b\n1,\"x\"", false),
            ("a,b\n1,2\n", false),
        ] {
            for part in 1..=text.len() {
                let mut scan = QuoteScan::new(&dialect(None));
                text.as_bytes()
                    .chunks(part)
                    .for_each(|bytes| scan.scan(bytes));
                assert_eq!(scan.is_open(), is_open, "{text:?} by {part}");
            }
        }
    }

    #[test]
    fn an_example_has_the_field_and_the_text_behind_its_quote() {
        let mut scan = QuoteScan::new(&dialect(None));
        scan.scan("n,t\n1,\"a \\\"ü\\\" b\"\n2,x\n".as_bytes());
        assert_eq!(scan.found().unwrap().example, "\"a \\\"ü\\\" b\"");
    }
}
