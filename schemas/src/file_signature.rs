//! Formats of files that are no text tables, by the first bytes.

/// First bytes of formats, and their names.
const SIGNATURES: [(&[u8], &str); 12] = [
    (
        b"PK\x03\x04",
        "a ZIP archive, such as a workbook of Excel (`.xlsx`)",
    ),
    (
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
        "an old document of Office, such as `.xls`",
    ),
    (b"%PDF-", "a PDF document"),
    (b"PAR1", "a Parquet file"),
    (b"ARROW1", "an Arrow file"),
    (b"SQLite format 3\0", "an SQLite database"),
    (b"\x1f\x8b", "a gzip file"),
    (b"\x28\xb5\x2f\xfd", "a Zstandard file"),
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"<!doctype html", "a page of HTML"),
    (b"<html", "a page of HTML"),
];

/// Bytes of a tar archive at [`TAR_AT`].
const TAR: &[u8] = b"ustar";

/// Offset of [`TAR`].
const TAR_AT: usize = 257;

/// Name of the format of a file that begins with `start`, if it is one that is often given another
/// ending: archives, workbooks, documents, images, and pages of HTML, which servers send in place
/// of a file. `None` for everything else.
///
/// ```
/// use feedline_schemas::file_signature::format_by_signature;
///
/// assert_eq!(format_by_signature(b"%PDF-1.7\n"), Some("a PDF document"));
/// assert_eq!(format_by_signature(b"id,price\n1,2\n"), None);
/// ```
#[must_use]
pub fn format_by_signature(start: &[u8]) -> Option<&'static str> {
    if start.get(TAR_AT..TAR_AT + TAR.len()) == Some(TAR) {
        return Some("a tar archive");
    }
    let text = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start);
    let text = text.trim_ascii_start();
    let found = SIGNATURES.iter().find(|(signature, _)| {
        let is_markup = signature[0] == b'<';
        let start = if is_markup { text } else { start };
        let head = start.get(..signature.len());
        head.is_some_and(|head| match is_markup {
            true => head.eq_ignore_ascii_case(signature),
            false => head == *signature,
        })
    });
    found.map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archives_and_pages_are_named_and_tables_are_not() {
        for (start, name) in [
            (&b"PK\x03\x04\x14\0\x06\0"[..], "workbook"),
            (b"\xef\xbb\xbf \n<!DOCTYPE HTML><html>", "HTML"),
            (b"<HTML lang=en>", "HTML"),
            (b"PAR1\x15", "Parquet"),
        ] {
            let found = format_by_signature(start).unwrap_or_default();
            assert!(found.contains(name), "{start:?}: {found}");
        }
        let mut tar = vec![0; 512];
        tar[TAR_AT..TAR_AT + TAR.len()].copy_from_slice(TAR);
        assert_eq!(format_by_signature(&tar), Some("a tar archive"));
        for start in [
            &b""[..],
            b"PK,price\n",
            b"\xef\xbb\xbfid;price\n",
            b"<id>,price",
            b"\xff\xfei\0d\0",
            b" PAR1",
        ] {
            assert_eq!(format_by_signature(start), None, "{start:?}");
        }
    }
}
