//! Which format a file has.

use feedline_schemas::config::{FileFormat, SourceConfig};

use crate::error::Error;

/// How the records of a file are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// CSV with a header line.
    Csv {
        /// Field separator.
        delimiter: u8,
    },
    /// One JSON document.
    Json,
    /// One JSON object per line.
    Ndjson,
    /// Parquet.
    Parquet,
}

/// How a file is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    /// Not.
    Plain,
    /// gzip, one or more members.
    Gzip,
    /// Zstandard, one or more frames.
    Zstd,
}

/// Format of the file called `name`: as configured, or by its ending; packing always by its ending. `None` when the
/// ending says nothing.
///
/// # Errors
/// [`Error::Config`] for a delimiter that is not one ASCII character.
pub(crate) fn of(name: &str, config: &SourceConfig) -> Result<Option<(Kind, Packing)>, Error> {
    let name = name.to_ascii_lowercase();
    let (stem, packing) = match name.rsplit_once('.') {
        Some((stem, "gz")) => (stem, Packing::Gzip),
        Some((stem, "zst")) => (stem, Packing::Zstd),
        _ => (name.as_str(), Packing::Plain),
    };
    let ending = stem.rsplit_once('.').map_or("", |(_, ending)| ending);
    let separator = if ending == "tsv" { b'\t' } else { b',' };
    let csv = Kind::Csv {
        delimiter: delimiter(config)?.unwrap_or(separator),
    };
    let kind = match (config.format, ending) {
        (FileFormat::Csv, _) | (FileFormat::Auto, "csv" | "tsv") => Some(csv),
        (FileFormat::Json, _) | (FileFormat::Auto, "json" | "geojson") => Some(Kind::Json),
        (FileFormat::Ndjson, _) | (FileFormat::Auto, "ndjson" | "jsonl") => Some(Kind::Ndjson),
        (FileFormat::Parquet, _) | (FileFormat::Auto, "parquet") => Some(Kind::Parquet),
        (FileFormat::Auto, _) => None,
    };
    Ok(kind.map(|kind| (kind, packing)))
}

fn delimiter(config: &SourceConfig) -> Result<Option<u8>, Error> {
    match config.csv.delimiter.as_deref().map(str::as_bytes) {
        None => Ok(None),
        Some(&[byte]) if byte.is_ascii() && !matches!(byte, b'"' | b'\n' | b'\r') => Ok(Some(byte)),
        Some(_) => Err(Error::config(
            "csv.delimiter",
            "use one ASCII character that is no quote and no line end, such as `;`",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::tests::source;

    fn check(name: &str, format: FileFormat, expected: Option<(Kind, Packing)>) {
        let config = SourceConfig {
            format,
            ..source(name)
        };
        assert_eq!(of(name, &config).unwrap(), expected, "{name}");
    }

    #[test]
    fn names_tell_the_format() {
        let comma = Kind::Csv { delimiter: b',' };
        check("a.csv", FileFormat::Auto, Some((comma, Packing::Plain)));
        check(
            "A.TSV.GZ",
            FileFormat::Auto,
            Some((Kind::Csv { delimiter: b'\t' }, Packing::Gzip)),
        );
        check(
            "a.b.jsonl.zst",
            FileFormat::Auto,
            Some((Kind::Ndjson, Packing::Zstd)),
        );
        check(
            "a.json",
            FileFormat::Auto,
            Some((Kind::Json, Packing::Plain)),
        );
        check(
            "a.parquet",
            FileFormat::Auto,
            Some((Kind::Parquet, Packing::Plain)),
        );
        check("a.txt", FileFormat::Auto, None);
        check("a.gz", FileFormat::Auto, None);
        check("a.txt.gz", FileFormat::Csv, Some((comma, Packing::Gzip)));
    }

    #[test]
    fn a_delimiter_is_one_ascii_character() {
        let with = |delimiter: &str| {
            let mut config = source("a.csv");
            config.csv.delimiter = Some(delimiter.to_owned());
            of("a.csv", &config).map(|found| found.map(|(kind, _)| kind))
        };
        assert_eq!(with(";").unwrap(), Some(Kind::Csv { delimiter: b';' }));
        for bad in ["", ";;", "é", "\"", "\n"] {
            assert!(
                with(bad)
                    .unwrap_err()
                    .to_string()
                    .starts_with("`csv.delimiter`: use one ASCII"),
                "{bad}"
            );
        }
    }
}
