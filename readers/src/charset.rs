//! Encoding of a page, and of a table that a response declares one for.
//!
//! The encoding of a page comes from the byte order mark, else from the `Content-Type` header, else from a
//! `meta` element in the first 1,024 bytes (HTML standard, 13.2.3.2, which lets a scan stop there),
//! else from the bytes themselves. Invalid bytes become U+FFFD.

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE};

use crate::notices::Notices;

/// Fewest characters of UTF-8 that show it beside a declared encoding of several bytes a character,
/// where a few may be chance.
const SURE_CHARACTERS: usize = 3;

const SCANNED: usize = 1_024;

/// The decoded bytes of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodedPage {
    /// The text, with U+FFFD for invalid bytes.
    pub text: String,
    /// Name of the encoding in which some bytes are invalid.
    pub invalid_in: Option<&'static str>,
}

/// Decodes `bytes`; `content_type` is the value of that header.
pub fn decode(bytes: &[u8], content_type: &str) -> DecodedPage {
    let declared = || label(content_type).or_else(|| meta(bytes));
    // A byte order mark wins over all of them: `decode` sees to it.
    let encoding = declared().unwrap_or_else(|| guess(bytes));
    let (text, used, has_errors) = encoding.decode(bytes);
    DecodedPage {
        text: text.into_owned(),
        invalid_in: has_errors.then(|| used.name()),
    }
}

/// Returns the encoding named after `charset=`.
pub fn label(text: &str) -> Option<&'static Encoding> {
    let lower = text.to_ascii_lowercase();
    let value = lower.split_once("charset")?.1.trim_start();
    let value = value.strip_prefix('=')?.trim_start();
    let name = value.trim_start_matches(['"', '\'']);
    let end = name.find(|c: char| c.is_whitespace() || "\"';>/".contains(c));
    Encoding::for_label(&name.as_bytes()[..end.unwrap_or(name.len())])
}

/// Returns the encoding of a table whose `Content-Type` declares one, as a value of `csv.encoding`.
/// `None` where the bytes are UTF-8: many servers declare a fixed encoding for all files. A notice
/// about the table `name` reports that.
pub fn table_encoding(
    bytes: &[u8],
    content_type: &str,
    name: &str,
    notices: &Notices,
) -> Option<String> {
    let declared = label(content_type).filter(|declared| *declared != UTF_8)?;
    let is_plain = bytes.is_ascii() && declared.is_ascii_compatible();
    if is_plain || Encoding::for_bom(bytes).is_some() {
        return None;
    }
    let value = declared.name().to_ascii_lowercase();
    let text = std::str::from_utf8(bytes).unwrap_or_default();
    let foreign = text.chars().filter(|c| !c.is_ascii()).count();
    let enough = match declared.is_single_byte() {
        true => 1,
        false => SURE_CHARACTERS,
    };
    if foreign < enough {
        return Some(value);
    }
    let message = format!(
        "the `Content-Type` of `{name}` declares `{value}`, but its bytes are UTF-8 and are decoded as such; set `csv.encoding` to `utf-8` to keep it, or to `{value}`"
    );
    notices.push("csv_encoding", "csv.encoding", message);
    None
}

fn meta(bytes: &[u8]) -> Option<&'static Encoding> {
    let start = bytes[..bytes.len().min(SCANNED)].to_ascii_lowercase();
    let start = String::from_utf8_lossy(&start).into_owned();
    let mut rest = start.as_str();
    while let Some((_, after)) = rest.split_once("<meta") {
        let tag = after.split('>').next().unwrap_or_default();
        if let Some(encoding) = label(tag) {
            // A declaration that is readable as ASCII is not UTF-16.
            let is_utf_16 = encoding == UTF_16LE || encoding == UTF_16BE;
            return Some(if is_utf_16 { UTF_8 } else { encoding });
        }
        rest = after;
    }
    None
}

fn guess(bytes: &[u8]) -> &'static Encoding {
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Deny);
    detector.feed(bytes, true);
    detector.guess(None, Utf8Detection::Allow)
}

#[cfg(test)]
mod tests {
    use encoding_rs::{SHIFT_JIS, WINDOWS_1251, WINDOWS_1252};

    use super::*;

    #[test]
    fn the_mark_then_the_header_then_the_meta_element_then_the_bytes_decide() {
        let page = |charset: &str| {
            format!("<!doctype html><meta name=x><META charset='{charset}'><p>Grün")
        };
        let latin = |text: &str| WINDOWS_1252.encode(text).0.into_owned();
        let check = |bytes: &[u8], header: &str| {
            let text = decode(bytes, header).text;
            assert!(text.ends_with("Grün"), "{text} {header}");
        };
        check(&latin(&page("iso-8859-1")), "text/html");
        check(page("utf-8").as_bytes(), "text/html; charset=UTF-8");
        check(
            page("iso-8859-1").as_bytes(),
            "text/html; charset=\"utf-8\"",
        );
        check(&latin(&page("utf-8")), "text/html;charset=windows-1252");
        let marked = [b"\xef\xbb\xbf".as_slice(), page("iso-8859-1").as_bytes()].concat();
        check(&marked, "text/html; charset=iso-8859-1");
        check(page("utf-16").as_bytes(), "text/html");
        let old = "<meta http-equiv=Content-Type content=\"text/html; charset=iso-8859-1\"><p>Grün";
        check(&latin(old), "text/html");
        check("<p>Grün".as_bytes(), "");
        let wide: Vec<u8> = "\u{feff}Grün"
            .encode_utf16()
            .flat_map(u16::to_le_bytes)
            .collect();
        check(&wide, "text/html; charset=utf-8");
    }

    #[test]
    fn tables_have_the_declared_encoding_unless_their_bytes_are_utf8() {
        let check = |bytes: &[u8], header: &str, expected: Option<&str>, notices: usize| {
            let found = Notices::default();
            let value = table_encoding(bytes, header, "s", &found);
            assert_eq!(value.as_deref(), expected, "{header}");
            assert_eq!(found.all().len(), notices, "{header}");
        };
        let latin = &WINDOWS_1252.encode("a\nGrün\n").0[..];
        check(
            latin,
            "text/csv; charset=ISO-8859-1",
            Some("windows-1252"),
            0,
        );
        check(latin, "text/csv; charset=utf-8", None, 0);
        check(latin, "text/csv", None, 0);
        check("a\nGrün\n".as_bytes(), "text/csv; charset=latin1", None, 1);
        check(b"a\nb\n", "text/csv; charset=latin1", None, 0);
        check(
            b"a\0\n\0",
            "text/csv; charset=utf-16le",
            Some("utf-16le"),
            0,
        );
        check(b"\xff\xfea\0", "text/csv; charset=latin1", None, 0);
        check(b"\xef\xbb\xbfa", "text/csv; charset=utf-16le", None, 0);
        // Two bytes of Shift_JIS can be a character of UTF-8 by chance.
        check(
            "a\nü\n".as_bytes(),
            "text/csv; charset=shift_jis",
            Some("shift_jis"),
            0,
        );
        check(
            "a\nüüü\n".as_bytes(),
            "text/csv; charset=shift_jis",
            None,
            1,
        );
    }

    #[test]
    fn undeclared_pages_are_told_by_their_bytes() {
        let russian = "Это обычная страница на русском языке, без объявления кодировки.";
        let cyrillic = decode(&WINDOWS_1251.encode(russian).0, "");
        assert_eq!(
            (cyrillic.text.as_str(), cyrillic.invalid_in),
            (russian, None)
        );
        let japanese = "これは文字コードを宣言していない普通のページです。日本語の文章。";
        assert_eq!(decode(&SHIFT_JIS.encode(japanese).0, "").text, japanese);
    }

    #[test]
    fn what_means_nothing_is_marked_and_unknown_names_are_not_believed() {
        let check = |bytes: &[u8], header: &str, text: &str, invalid_in: Option<&str>| {
            let page = decode(bytes, header);
            assert_eq!((page.text.as_str(), page.invalid_in), (text, invalid_in));
        };
        let utf8 = "text/html; charset=utf-8";
        check(b"a\xffb", utf8, "a\u{fffd}b", Some("UTF-8"));
        // A character that the page itself has.
        check("\u{fffd}".as_bytes(), utf8, "\u{fffd}", None);
        check("ä".as_bytes(), "text/html; charset=klingon", "ä", None);
        check(b"", "", "", None);
    }
}
