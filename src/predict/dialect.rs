//! Dialect of new rows in CSV: that of the dataset's sources.

use std::{io::Read, path::Path};

use anyhow::bail;
use feedline_preprocess::{CsvReading, RowFormat};
use feedline_schemas::{
    config::{CsvConfig, FileFormat, SourceConfig},
    csv_cell::CellFormat,
};

/// Settings for reading new rows of CSV like the files of `sources`. A source of another format
/// has no say, unless all are. `is_csv` is true if the new rows are known to be CSV.
///
/// # Errors
/// CSV, and sources with different dialects: the one of the new rows is unknown.
pub(super) fn csv_reading<'a>(
    sources: impl Iterator<Item = &'a SourceConfig> + Clone,
    is_csv: bool,
) -> anyhow::Result<CsvReading> {
    let mut own: Vec<&SourceConfig> = sources.clone().filter(|source| has_csv(source)).collect();
    if own.is_empty() {
        own = sources.collect();
    }
    let null_values = own.iter().flat_map(|source| source.csv.null_values.clone());
    let null_values = null_values.collect();
    let mut delimiters: Vec<u8> = own
        .iter()
        .filter_map(|source| source.csv.delimiter.as_deref()?.as_bytes().first().copied())
        .collect();
    delimiters.sort_unstable();
    delimiters.dedup();
    let reading = CsvReading {
        delimiter: delimiters
            .first()
            .copied()
            .filter(|_| delimiters.len() == 1),
        null_values,
        decode: Some(decoded),
        ..CsvReading::default()
    };
    let Some((first, others)) = own.split_first() else {
        return Ok(reading);
    };
    let different = others
        .iter()
        .find_map(|other| Some((other, differing_key(&first.csv, &other.csv)?)));
    if let Some((other, key)) = different {
        if is_csv {
            bail!(
                "the sources `{}` and `{}` of the dataset differ in `{key}`, so it is unknown how a CSV file of new rows is \
                 written; give the new rows as NDJSON or Parquet, or make the sources alike",
                first.name,
                other.name
            );
        }
        return Ok(reading);
    }
    let csv = first.csv.clone();
    Ok(CsvReading {
        format: CellFormat::new(&csv),
        quote: csv.quote,
        comment: csv.comment,
        skip_rows: csv.skip_rows,
        is_without_header: !csv.header,
        columns: csv.columns,
        encoding: csv.encoding,
        ..reading
    })
}

/// Returns true if the new rows at `place` are CSV, by the option `--format` or by their name.
pub(super) fn is_csv(format: Option<RowFormat>, place: Option<&str>) -> bool {
    let file = place.filter(|place| !Path::new(place).is_dir());
    format.or_else(|| RowFormat::of_name(file?)) == Some(RowFormat::Csv)
}

/// Returns true for a source that reads CSV, by its settings or by its URL.
fn has_csv(source: &SourceConfig) -> bool {
    if source.csv != CsvConfig::default() {
        return true;
    }
    let path = source.url.split(['?', '#']).next().unwrap_or_default();
    match source.format {
        FileFormat::Csv => true,
        FileFormat::Auto => RowFormat::of_name(path) == Some(RowFormat::Csv),
        _ => false,
    }
}

/// Key of `csv` with different values, other than the delimiter, which is detected, and
/// `null_values`, which are united.
fn differing_key(one: &CsvConfig, other: &CsvConfig) -> Option<&'static str> {
    [
        (one.header != other.header, "csv.header"),
        (one.columns != other.columns, "csv.columns"),
        (one.encoding != other.encoding, "csv.encoding"),
        (one.quote != other.quote, "csv.quote"),
        (one.comment != other.comment, "csv.comment"),
        (one.skip_rows != other.skip_rows, "csv.skip_rows"),
        (
            one.decimal_separator != other.decimal_separator,
            "csv.decimal_separator",
        ),
        (
            one.thousands_separator != other.thousands_separator,
            "csv.thousands_separator",
        ),
        (one.percent != other.percent, "csv.percent"),
        (
            one.null_spellings != other.null_spellings,
            "csv.null_spellings",
        ),
    ]
    .into_iter()
    .find_map(|(is_different, key)| is_different.then_some(key))
}

/// Decodes a file as ingest does, and warns of a decision about its encoding.
fn decoded(
    bytes: Box<dyn Read + Send>,
    encoding: Option<&str>,
    name: &str,
) -> Result<Box<dyn Read + Send>, String> {
    let (text, warnings) = feedline_readers::csv_text::csv_text(bytes, encoding, name)?;
    for warning in warnings {
        let key = warning.key.unwrap_or_default();
        tracing::warn!(code = warning.code, key, "{}", warning.message);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use feedline_schemas::config::{PipelineConfig, load};

    use super::*;

    fn pipeline(sources: &[(&str, &str)]) -> PipelineConfig {
        let mut text = "[pipeline]\nname = \"p\"\n".to_owned();
        for (number, (url, csv)) in sources.iter().enumerate() {
            text += &format!(
                "[[source]]\nname = \"s{number}\"\ntype = \"files\"\nurl = \"{url}\"\n{csv}\n"
            );
        }
        load("p.toml", &text, &[]).unwrap().config
    }

    #[test]
    fn new_rows_of_csv_have_the_dialect_of_the_sources() {
        let dialect = "csv = { quote = \"'\", comment = \"#\", skip_rows = 2, header = false, columns = [\"a\"], encoding = \"latin-1\" }";
        let config = pipeline(&[("a.csv", dialect), ("b.ndjson", "")]);
        let read = csv_reading(config.source.iter(), true).unwrap();
        assert_eq!(
            (read.quote.as_deref(), read.comment.as_deref()),
            (Some("'"), Some("#"))
        );
        assert_eq!((read.skip_rows, read.is_without_header), (2, true));
        assert_eq!(read.columns, ["a"]);
        assert_eq!(read.encoding.as_deref(), Some("latin-1"));
    }

    #[test]
    fn csv_of_an_unknown_dialect_is_refused() {
        let config = pipeline(&[("a.csv", "csv = { quote = \"'\" }"), ("b.csv", "")]);
        let error = csv_reading(config.source.iter(), true).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("differ in `csv.quote`"), "{error}");
        // Rows of another format have no dialect.
        assert!(csv_reading(config.source.iter(), false).is_ok());
        assert!(is_csv(None, Some("new.csv.gz")) && is_csv(Some(RowFormat::Csv), None));
        assert!(!is_csv(None, Some("new.ndjson")) && !is_csv(None, None));
        // One delimiter of several is found in the file.
        let config = pipeline(&[
            ("a.csv", "csv = { delimiter = \";\" }"),
            ("b.csv", "csv = { delimiter = \"|\" }"),
        ]);
        let read = csv_reading(config.source.iter(), true).unwrap();
        assert_eq!(read.delimiter, None);
    }

    #[test]
    fn another_encoding_than_utf_8_is_decoded() {
        let read = |bytes: &[u8], encoding: Option<&str>| {
            let bytes = Box::new(std::io::Cursor::new(bytes.to_vec()));
            let mut text = String::new();
            decoded(bytes, encoding, "a.csv")?
                .read_to_string(&mut text)
                .map_err(|e| e.to_string())?;
            Ok::<_, String>(text)
        };
        assert_eq!(read(b"\xe4\n", Some("latin-1")).as_deref(), Ok("ä\n"));
        assert_eq!(read(b"\xff\xfea\0\n\0", None).as_deref(), Ok("a\n"));
        assert!(read(b"a\0;\0b\0\n\0", None).is_err());
    }
}
