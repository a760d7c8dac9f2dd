//! Plain text as records: a file is one document, or several with a separator between them.
//!
//! A record is `text`, the unchanged characters, and where the bytes are those of a file its `path`
//! and `folder`, as images have them.

use std::borrow::Cow;

use encoding_rs::{Encoding, UTF_8};

use crate::{
    image_rows::path_columns, likely_encoding::wide_encoding, record::Record, rows::Rows,
    value::Value,
};

/// Reads documents; a record is an object with `text`, the unchanged characters of the file. The
/// file is UTF-8, or UTF-16 with a byte order mark.
#[derive(Debug)]
pub struct TextRows {
    /// Without a byte order mark; UTF-16 as UTF-8.
    bytes: Vec<u8>,
    separator: Option<Vec<u8>>,
    /// Offset of the next document; past the end after the last.
    at: usize,
    /// Length of the removed byte order mark, for messages.
    mark: usize,
    /// Offset of the last document.
    start: usize,
    /// Reason why a file with a byte order mark is not decoded: all of it is one document then.
    not_decoded: Option<&'static str>,
    /// Columns of the file that each record has beside its text.
    file: Vec<(String, Value)>,
}

/// A part of a text file that is no text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadText {
    /// Reason as the files of rejects have it.
    pub reason: &'static str,
    /// Place and details.
    pub detail: String,
}

/// Splits the bytes of a text file into documents, like a source of `format = "text"`. Without a
/// `separator` the file is one document; a line end in it matches CRLF too. Parts without a visible
/// character are skipped.
///
/// ```
/// use feedline_readers::text_rows::text_documents;
///
/// let file = b"First text.\n---\n \n---\nSecond text.\n---\n\xff".to_vec();
/// let mut documents = text_documents(file, Some("\n---\n"));
/// assert_eq!(documents.next(), Some(Ok("First text.".to_owned())));
/// assert_eq!(documents.next(), Some(Ok("Second text.".to_owned())));
/// let bad = documents.next().and_then(Result::err).map(|bad| bad.reason);
/// assert_eq!(bad, Some("invalid_utf8"));
/// ```
pub fn text_documents(
    bytes: Vec<u8>,
    separator: Option<&str>,
) -> impl Iterator<Item = Result<String, BadText>> {
    let separator = separator.filter(|separator| !separator.is_empty());
    let mut rows = TextRows::new(bytes, separator);
    std::iter::from_fn(move || {
        rows.next_part().map(|(start, end)| {
            rows.text(start, end)
                .map(str::to_owned)
                .map_err(|detail| BadText {
                    reason: INVALID_UTF8,
                    detail,
                })
        })
    })
}

/// Reason of a document that is no UTF-8.
const INVALID_UTF8: &str = "invalid_utf8";

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Byte order marks of UTF-32. The first one begins with that of UTF-16.
const UTF32_MARKS: [&[u8]; 2] = [b"\xff\xfe\0\0", b"\0\0\xfe\xff"];

const NOT_UTF32: &str = "the file begins with a byte order mark of UTF-32; convert it to UTF-8";

const NOT_UTF16: &str =
    "the file begins with a byte order mark of UTF-16 but is not valid UTF-16; repair it";

const NOT_MARKED: &str = "nearly every other byte of the file is zero or one control character, as in UTF-16 without a byte order mark; convert it to UTF-8";

/// Bytes of a file that show UTF-16 without a byte order mark.
const SAMPLE: usize = 4 << 10;

/// Fewest characters that show a script in UTF-16.
const WIDE_LEAST: usize = 4;

/// The text of a file that begins with a byte order mark of UTF-16, or the reason why it is not
/// decoded; none of a file that shows neither UTF-16 nor UTF-32.
fn decode_wide(bytes: &[u8]) -> Option<Result<String, &'static str>> {
    if UTF32_MARKS.iter().any(|mark| bytes.starts_with(mark)) {
        return Some(Err(NOT_UTF32));
    }
    let sample = &bytes[..bytes.len().min(SAMPLE)];
    let is_wide = || wide_encoding(sample).is_some() || is_wide_script(sample);
    if Encoding::for_bom(bytes).is_none() && is_wide() {
        return Some(Err(NOT_MARKED));
    }
    let (encoding, mark) = Encoding::for_bom(bytes).filter(|(encoding, _)| *encoding != UTF_8)?;
    let text = encoding.decode_without_bom_handling_and_without_replacement(&bytes[mark..]);
    Some(text.map(Cow::into_owned).ok_or(NOT_UTF16))
}

/// Returns true if the sample is text in UTF-16 of a script whose characters share a first byte, such as
/// 0x04 of Cyrillic: nearly every other byte is zero or one control character, as in no other text.
/// White space may alternate with one digit, so with it there are further control characters.
fn is_wide_script(sample: &[u8]) -> bool {
    [0, 1].into_iter().any(|from| {
        let every_other = |from: usize| sample.iter().skip(from).step_by(2);
        let mut counts = [0_usize; 32];
        for byte in every_other(from) {
            if let Some(count) = counts.get_mut(usize::from(*byte)) {
                *count += 1;
            }
        }
        let script = (2..=0x1b_u8).max_by_key(|byte| counts[usize::from(*byte)]);
        let (half, script) = (sample.len() / 2, script.unwrap_or_default());
        let shared = counts[usize::from(script)];
        let is_control = |byte: &&u8| byte.is_ascii_control() && !is_white(**byte);
        let controls = every_other(1 - from).filter(is_control).count();
        half >= WIDE_LEAST
            && shared > 0
            && (counts[0] + shared) * 10 >= half * 8
            && (!is_white(script) || (counts[0] + controls) * 20 > half)
    })
}

/// Returns true for control characters that are white space: tab, line feed, vertical tab, form feed and
/// carriage return.
fn is_white(byte: u8) -> bool {
    matches!(byte, b'\t'..=b'\r')
}

/// Length of the `separator` that `bytes` begin with. CRLF counts as a line end.
fn separator_length(bytes: &[u8], separator: &[u8]) -> Option<usize> {
    let mut length = 0;
    for expected in separator {
        let rest = bytes.get(length..)?;
        length += match rest.first()? {
            byte if byte == expected => 1,
            b'\r' if *expected == b'\n' && rest.get(1) == Some(expected) => 2,
            _ => return None,
        };
    }
    Some(length)
}

impl TextRows {
    /// The documents of a file's bytes. `separator` has at least one character.
    pub fn new(mut bytes: Vec<u8>, separator: Option<&str>) -> Self {
        let mut not_decoded = None;
        match decode_wide(&bytes) {
            Some(Ok(text)) => bytes = text.into_bytes(),
            Some(Err(reason)) => not_decoded = Some(reason),
            None => {}
        }
        // Parts of such bytes may happen to be UTF-8.
        let separator = separator.filter(|_| not_decoded.is_none());
        let mark = if bytes.starts_with(BYTE_ORDER_MARK) {
            BYTE_ORDER_MARK.len()
        } else {
            0
        };
        bytes.drain(..mark);
        Self {
            bytes,
            separator: separator.map(|text| text.as_bytes().to_vec()),
            at: 0,
            mark,
            start: 0,
            not_decoded,
            file: Vec::new(),
        }
    }

    /// Adds the path of the file and the name of its direct folder to each record.
    pub(crate) fn with_path(mut self, path: &str, folder: Option<&str>) -> Self {
        self.file = path_columns(path.to_owned(), folder).into();
        self
    }

    /// Returns the end of the document that begins at `at`, and the start of the next one.
    fn end(&self, at: usize) -> (usize, usize) {
        let found = self.separator.as_ref().and_then(|separator| {
            (at..self.bytes.len()).find_map(|end| {
                let length = separator_length(&self.bytes[end..], separator)?;
                Some((end, end + length))
            })
        });
        found.unwrap_or((self.bytes.len(), self.bytes.len() + 1))
    }

    /// Start and end of the next document.
    fn next_part(&mut self) -> Option<(usize, usize)> {
        while self.at <= self.bytes.len() {
            let start = self.at;
            let (end, next) = self.end(start);
            self.at = next;
            if !self.bytes[start..end].trim_ascii().is_empty() {
                return Some((start, end));
            }
        }
        None
    }

    /// Returns the text of a document, or the reason why it is invalid.
    fn text(&self, start: usize, end: usize) -> Result<&str, String> {
        if let Some(reason) = self.not_decoded {
            return Err(reason.to_owned());
        }
        std::str::from_utf8(&self.bytes[start..end]).map_err(|e| {
            format!(
                "the document that begins at byte {}: byte {} of the file is not UTF-8; convert the file to UTF-8",
                self.mark + start,
                self.mark + start + e.valid_up_to()
            )
        })
    }

    fn record(&self, start: usize, end: usize) -> Record {
        match self.text(start, end) {
            Ok(text) => {
                let text = ("text".to_owned(), Value::Text(text.to_owned()));
                let file = self.file.iter().cloned();
                Record::Value(Value::Object(std::iter::once(text).chain(file).collect()))
            }
            Err(detail) => Record::Bad {
                raw: String::from_utf8_lossy(&self.bytes[start..end]).into_owned(),
                reason: INVALID_UTF8,
                detail,
            },
        }
    }
}

impl Rows for TextRows {
    fn next(&mut self) -> Result<Option<Record>, String> {
        let part = self.next_part();
        self.start = part.map_or(self.start, |(start, _)| start);
        Ok(part.map(|(start, end)| self.record(start, end)))
    }

    fn place(&self) -> String {
        format!(
            "the document that begins at byte {}",
            self.mark + self.start
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8], separator: Option<&str>) -> Vec<String> {
        let mut rows = TextRows::new(bytes.to_vec(), separator);
        let mut records = Vec::new();
        while let Some(record) = rows.next().unwrap() {
            records.push(match record {
                record @ (Record::Value(_) | Record::Json(_)) => record.canonical(),
                Record::Bad { raw, detail, .. } => format!("{detail} | {raw}"),
            });
        }
        records
    }

    #[test]
    fn a_file_is_one_document_as_it_stands() {
        assert_eq!(
            read(b"\xef\xbb\xbf a\r\n\n\xc3\xa4\n", None),
            [r#"{"text":" a\r\n\nä\n"}"#]
        );
        assert!(read(b" \n\t", None).is_empty());
        assert!(read(b"", None).is_empty());
    }

    #[test]
    fn each_document_of_a_file_has_its_path_and_its_folder() {
        let rows = TextRows::new(b"a--b".to_vec(), Some("--"));
        let mut rows = rows.with_path("in/spam/1.txt", Some("spam"));
        for text in ["a", "b"] {
            let record = rows.next().unwrap().unwrap();
            assert_eq!(
                record.canonical(),
                format!(r#"{{"folder":"spam","path":"in/spam/1.txt","text":"{text}"}}"#)
            );
        }
    }

    #[test]
    fn a_file_of_utf16_with_a_byte_order_mark_is_decoded() {
        let wide = |to_bytes: fn(u16) -> [u8; 2]| {
            let units = "\u{feff}a|\u{e4}\u{1f600}".encode_utf16();
            units.flat_map(to_bytes).collect::<Vec<u8>>()
        };
        let expected = [r#"{"text":"a"}"#, "{\"text\":\"\u{e4}\u{1f600}\"}"];
        assert_eq!(read(&wide(u16::to_le_bytes), Some("|")), expected);
        assert_eq!(read(&wide(u16::to_be_bytes), Some("|")), expected);
    }

    #[test]
    fn a_damaged_file_of_utf16_is_one_reject_with_or_without_a_separator() {
        // Half a character at the end, and half a pair of surrogates.
        for bytes in [
            &b"\xff\xfea\0|\0b\0c"[..],
            &b"\xfe\xff\0a\0|\0b\0"[..],
            &b"\xff\xfea\0|\0\0\xd8"[..],
        ] {
            for separator in [Some("|"), None] {
                let found = read(bytes, separator);
                assert_eq!(found.len(), 1, "{found:?}");
                assert!(found[0].contains("is not valid UTF-16"), "{found:?}");
            }
        }
    }

    #[test]
    fn a_file_of_utf32_is_one_reject_that_names_its_encoding() {
        let wide = |to_bytes: fn(u32) -> [u8; 4]| {
            let units = "\u{feff}a|b".chars().map(u32::from);
            units.flat_map(to_bytes).collect::<Vec<u8>>()
        };
        for bytes in [wide(u32::to_le_bytes), wide(u32::to_be_bytes)] {
            let found = read(&bytes, Some("|"));
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(
                found[0].contains("UTF-32; convert it to UTF-8"),
                "{found:?}"
            );
            let bad = text_documents(bytes, None).next().and_then(Result::err);
            assert_eq!(bad.map(|bad| bad.reason), Some("invalid_utf8"));
        }
    }

    #[test]
    fn documents_stand_between_separators_and_blank_ones_are_none() {
        let expected = [r#"{"text":"a\nb"}"#, r#"{"text":"\nc"}"#, r#"{"text":"d"}"#];
        assert_eq!(read(b"a\nb\n\n\nc\n\n  \n\nd", Some("\n\n")), expected);
        assert_eq!(
            read(b"--a----b--", Some("--")),
            [r#"{"text":"a"}"#, r#"{"text":"b"}"#]
        );
    }

    #[test]
    fn a_line_end_of_a_separator_matches_crlf() {
        let expected = ["a\r\nb", "c", "d"].map(|text| format!("{{\"text\":{text:?}}}"));
        assert_eq!(
            read(b"a\r\nb\r\n\r\nc\n\r\n\r\n\r\nd\r\n\r\n", Some("\n\n")),
            expected
        );
        assert_eq!(
            read(b"a\r\n---\r\nb\n---\nc", Some("\n---\n")),
            [r#"{"text":"a"}"#, r#"{"text":"b"}"#, r#"{"text":"c"}"#]
        );
        // Where a separator has them, both characters are needed.
        assert_eq!(
            read(b"a\nb\r\nc", Some("\r\n")),
            [r#"{"text":"a\nb"}"#, r#"{"text":"c"}"#]
        );
    }

    #[test]
    fn a_file_of_utf16_without_a_byte_order_mark_is_one_reject() {
        for to_bytes in [u16::to_le_bytes, u16::to_be_bytes] {
            let units = "Plain words.\n\nMore.".encode_utf16();
            let bytes: Vec<u8> = units.flat_map(to_bytes).collect();
            for separator in [Some("\n\n"), None] {
                let found = read(&bytes, separator);
                assert_eq!(found.len(), 1, "{found:?}");
                assert!(found[0].contains("as in UTF-16"), "{found:?}");
            }
        }
        assert_eq!(read(b"a\0b c", None), [r#"{"text":"a\u0000b c"}"#]);
    }

    #[test]
    fn a_file_of_utf16_in_another_script_is_one_reject_and_text_with_control_characters_is_none() {
        let texts = ["Привет мир. ", "أهلا بكم", "नमस्ते दुनिया ", "ภาษาไทย"];
        for to_bytes in [u16::to_le_bytes, u16::to_be_bytes] {
            for text in texts {
                let units = text.encode_utf16();
                let bytes: Vec<u8> = units.flat_map(to_bytes).collect();
                assert!(bytes.is_ascii(), "{text}");
                let found = read(&bytes, None);
                assert!(found[0].contains("as in UTF-16"), "{found:?}");
            }
        }
        for text in [
            "1\t2\t3\t4\n5\t6\t7\t8\n",
            "8=FIX.4.2\u{1}9=65\u{1}35=A\u{1}49=A\u{1}",
            "N\u{8}NA\u{8}AM\u{8}ME\u{8}E",
            "\u{1b}[31ma\u{1b}[0m\u{1b}[32mb\u{1b}[0m",
            "1\u{1}2\u{1}3\u{1}4\n5\u{1}6\u{1}7\u{1}8\n",
        ] {
            let found = read(text.as_bytes(), None);
            assert!(found[0].starts_with("{\"text\""), "{found:?}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_set_aside_with_their_place() {
        assert_eq!(
            read(b"\xef\xbb\xbfab|c\xffd|e", Some("|")),
            [
                r#"{"text":"ab"}"#,
                "the document that begins at byte 6: byte 7 of the file is not UTF-8; convert the file to UTF-8 | c\u{fffd}d",
                r#"{"text":"e"}"#
            ]
        );
    }
}
