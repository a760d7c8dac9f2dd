//! Text of a CSV file whose rows do not land, such as one of new rows to predict.

use std::io::Read;

use feedline_schemas::{config::CsvConfig, report::Warning};

use crate::{csv_dialect, notices::Notices};

/// A reader of UTF-8.
type Utf8 = Box<dyn Read + Send>;

/// Decodes the CSV file `name` as ingest does: by its byte order mark, else by `encoding`
/// (`csv.encoding`), else as UTF-8. Returns the text without the mark, and the decisions to review.
/// Blocks; of a pipe it waits for the first 64 KiB or the end.
///
/// # Errors
/// A message that names the reason why the file is unreadable, and a remedy. The returned reader
/// fails at bytes that are none of another encoding than UTF-8.
pub fn csv_text(
    reader: Box<dyn Read + Send>,
    encoding: Option<&str>,
    name: &str,
) -> Result<(Utf8, Vec<Warning>), String> {
    let config = CsvConfig {
        encoding: encoding.map(ToOwned::to_owned),
        ..CsvConfig::default()
    };
    let notices = Notices::default();
    // The delimiter is none of its matters: it is given, so it is not looked for.
    let delimiter = b',';
    let (text, _) = csv_dialect::open(
        reader,
        &config,
        (Some(delimiter), delimiter),
        name,
        &notices,
    )?;
    Ok((text, notices.all()))
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn read(bytes: &[u8], encoding: Option<&str>) -> Result<(String, usize), String> {
        let reader = Box::new(Cursor::new(bytes.to_vec()));
        let (mut text, warnings) = csv_text(reader, encoding, "a.csv")?;
        let mut found = String::new();
        let read = text.read_to_string(&mut found);
        read.map_err(|e| e.to_string())?;
        Ok((found, warnings.len()))
    }

    #[test]
    fn text_is_decoded_by_its_mark_or_by_the_configured_encoding() {
        let plain = ("a;ä\n".to_owned(), 0);
        assert_eq!(read("a;ä\n".as_bytes(), None).unwrap(), plain);
        assert_eq!(read("\u{feff}a;ä\n".as_bytes(), None).unwrap(), plain);
        let latin = b"a;\xe4\n";
        assert_eq!(read(latin, Some("latin-1")).unwrap(), plain);
        let wide: Vec<u8> = "\u{feff}a;ä\n"
            .encode_utf16()
            .flat_map(u16::to_le_bytes)
            .collect();
        // The mark decides, with a warning.
        assert_eq!(read(&wide, None).unwrap(), ("a;ä\n".to_owned(), 1));
        let error = read(&wide[2..], None).unwrap_err();
        assert!(error.contains("set `csv.encoding`"), "{error}");
    }
}
