//! Formats of files, by configuration or name.

use feedline_schemas::config::{FileFormat, SourceConfig};

use crate::{csv_dialect, invalid_key::InvalidKey};

/// Format of the records of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
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
    /// Arrow IPC.
    Arrow,
    /// idx images.
    Idx,
    /// Plain text.
    Text,
    /// An image file.
    Image,
    /// A tar archive.
    Tar,
    /// A zip archive.
    Zip,
}

/// Endings of files of records, before `.gz` and `.zst`.
pub const TABLE_ENDINGS: [&str; 11] = [
    "csv", "tsv", "json", "geojson", "ndjson", "jsonl", "parquet", "arrow", "arrows", "feather",
    "ipc",
];

/// Endings of archives.
pub const ARCHIVE_ENDINGS: [&str; 5] = ["zip", "tar", "tgz", "tar.gz", "tar.zst"];

/// Endings of workbooks, which are not read.
const WORKBOOK_ENDINGS: [&str; 5] = ["xlsx", "xls", "xlsm", "xlsb", "ods"];

/// Endings of files of records, for messages.
#[must_use]
pub fn table_endings() -> String {
    format!(".{}", TABLE_ENDINGS.join(", ."))
}

/// Endings of files of records and of archives, for messages.
#[must_use]
pub fn known_endings() -> String {
    let (tables, archives) = (table_endings(), ARCHIVE_ENDINGS.join(", ."));
    format!("{tables}, each also with .gz or .zst, .{archives}")
}

/// The remedy for a file whose ending is unknown, if it is a workbook.
#[must_use]
pub fn workbook_remedy(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase();
    let is_workbook = WORKBOOK_ENDINGS.contains(&ending(stem(&name).0));
    is_workbook.then_some("save each sheet of the workbook as CSV")
}

/// Compression of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// Uncompressed.
    Plain,
    /// gzip, one or more members.
    Gzip,
    /// Zstandard, one or more frames.
    Zstd,
}

/// Format of the file called `name`: as configured, or by its extension; compression always by its
/// extension. `None` for an unknown extension.
///
/// # Errors
/// [`InvalidKey`] for a delimiter that is not one ASCII character.
pub fn of(name: &str, config: &SourceConfig) -> Result<Option<(Kind, Packing)>, InvalidKey> {
    check_details(config)?;
    Ok(named(name, config.format, delimiter(config)?))
}

/// Format of the file called `name`, read as `format`, with this CSV delimiter (default: by its
/// extension).
pub fn named(name: &str, format: FileFormat, delimiter: Option<u8>) -> Option<(Kind, Packing)> {
    let name = name.to_ascii_lowercase();
    let (stem, packing) = stem(&name);
    let ending = ending(stem);
    let separator = if ending == "tsv" { b'\t' } else { b',' };
    let csv = Kind::Csv {
        delimiter: delimiter.unwrap_or(separator),
    };
    let kind = match (format, ending) {
        (FileFormat::Idx, _) => Some(Kind::Idx),
        (_, "tar") => Some(Kind::Tar),
        (_, "zip") => Some(Kind::Zip),
        (FileFormat::Csv, _) | (FileFormat::Auto, "csv" | "tsv") => Some(csv),
        (FileFormat::Json, _) | (FileFormat::Auto, "json" | "geojson") => Some(Kind::Json),
        (FileFormat::Ndjson, _) | (FileFormat::Auto, "ndjson" | "jsonl") => Some(Kind::Ndjson),
        (FileFormat::Parquet, _) | (FileFormat::Auto, "parquet") => Some(Kind::Parquet),
        (FileFormat::Arrow, _) | (FileFormat::Auto, "arrow" | "arrows" | "feather" | "ipc") => {
            Some(Kind::Arrow)
        }
        (FileFormat::Text, _) => Some(Kind::Text),
        (FileFormat::Image, _) => Some(Kind::Image),
        (FileFormat::Auto, _) => None,
    };
    kind.map(|kind| (kind, packing))
}

/// Format of a body with this `Content-Type`.
pub fn of_media_type(content_type: &str) -> Option<FileFormat> {
    let kind = content_type.split(';').next().unwrap_or_default().trim();
    match kind.to_ascii_lowercase().as_str() {
        "text/csv" | "application/csv" | "text/tab-separated-values" => Some(FileFormat::Csv),
        "application/json" => Some(FileFormat::Json),
        "application/x-ndjson" | "application/jsonl" | "application/ndjson" => {
            Some(FileFormat::Ndjson)
        }
        "application/vnd.apache.parquet" => Some(FileFormat::Parquet),
        "application/vnd.apache.arrow.file" | "application/vnd.apache.arrow.stream" => {
            Some(FileFormat::Arrow)
        }
        _ => None,
    }
}

impl Kind {
    /// Returns true for a format of tables or objects.
    #[must_use]
    pub const fn is_table(self) -> bool {
        matches!(
            self,
            Self::Csv { .. } | Self::Json | Self::Ndjson | Self::Parquet | Self::Arrow
        )
    }

    /// Returns true if records may hold bytes.
    pub const fn has_bytes(self) -> bool {
        matches!(self, Self::Image | Self::Idx | Self::Parquet | Self::Arrow)
    }
}

/// Returns true if a file of this name, found in a folder, matches the configured format. Image
/// sources take only images and archives. Table sources skip archives, which may duplicate the
/// tables.
pub fn is_meant(name: &str, config: &SourceConfig) -> bool {
    let is_archive = is_archive(name);
    match config.format {
        FileFormat::Image => is_archive || is_image(name),
        FileFormat::Auto => !is_archive || config.archive.member.is_some(),
        _ => true,
    }
}

/// Returns true if a file of this name, compressed or not, is an archive.
pub fn is_archive(name: &str) -> bool {
    matches!(ending(stem(&name.to_ascii_lowercase()).0), "tar" | "zip")
}

/// Returns true if a file of this name, compressed or not, is an image.
pub fn is_image(name: &str) -> bool {
    const ENDINGS: [&str; 11] = [
        "jpg", "jpeg", "png", "webp", "gif", "bmp", "tif", "tiff", "pgm", "ppm", "jfif",
    ];
    ENDINGS.contains(&ending(stem(&name.to_ascii_lowercase()).0))
}

fn ending(name: &str) -> &str {
    name.rsplit_once('.').map_or("", |(_, ending)| ending)
}

/// Returns the compression of the file called `name`.
pub fn packing(name: &str) -> Packing {
    stem(&name.to_ascii_lowercase()).1
}

fn stem(name: &str) -> (&str, Packing) {
    match name.rsplit_once('.') {
        // `.tar.gz` in one.
        Some((_, "tgz")) => ("a.tar", Packing::Gzip),
        Some((stem, "gz")) => (stem, Packing::Gzip),
        Some((stem, "zst")) => (stem, Packing::Zstd),
        _ => (name, Packing::Plain),
    }
}

/// Details that have no meaning for the format are mistakes.
fn check_details(config: &SourceConfig) -> Result<(), InvalidKey> {
    if config.idx.labels.is_some() && config.format != FileFormat::Idx {
        let reason = "labels belong to images: set `format = \"idx\"`, or remove this key";
        return Err(InvalidKey::new("idx.labels", reason));
    }
    let archive = &config.archive;
    if let Some(member) = &archive.member {
        if member.is_empty() {
            let reason =
                "no member has such a name; give a pattern such as `*.csv`, or remove this key";
            return Err(InvalidKey::new("archive.member", reason));
        }
        if config.format == FileFormat::Idx {
            let reason = "idx files are not read from archives; unpack them, or remove this key";
            return Err(InvalidKey::new("archive.member", reason));
        }
    }
    csv_dialect::check(&config.csv)?;
    match config.text.separator.as_deref() {
        Some(_) if config.format != FileFormat::Text => Err(InvalidKey::new(
            "text.separator",
            "it belongs to plain text: set `format = \"text\"`, or remove this key",
        )),
        Some("") => Err(InvalidKey::new(
            "text.separator",
            "an empty separator matches everywhere; set a non-empty one, or remove this key",
        )),
        _ => Ok(()),
    }
}

/// Returns the configured CSV delimiter.
///
/// # Errors
/// [`InvalidKey`] if it is not one ASCII character.
pub fn delimiter(config: &SourceConfig) -> Result<Option<u8>, InvalidKey> {
    match config.csv.delimiter.as_deref().map(str::as_bytes) {
        None => Ok(None),
        Some(&[byte]) if byte.is_ascii() && !matches!(byte, b'"' | b'\n' | b'\r') => Ok(Some(byte)),
        Some(_) => Err(InvalidKey::new(
            "csv.delimiter",
            "use one ASCII character that is no quote and no line end, such as `;`",
        )),
    }
}

#[cfg(test)]
mod tests {
    use feedline_schemas::config::load;

    use super::*;

    /// A `files` source called `s`.
    fn source(url: &str) -> SourceConfig {
        let text = format!(
            "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"files\"\nurl = '{url}'\n"
        );
        load("p", &text, &[]).unwrap().config.source.remove(0)
    }

    fn check(name: &str, format: FileFormat, expected: Option<(Kind, Packing)>) {
        let config = SourceConfig {
            format,
            ..source(name)
        };
        assert_eq!(of(name, &config).unwrap(), expected, "{name}");
    }

    #[test]
    fn files_with_the_endings_of_tables_have_a_format() {
        for ending in TABLE_ENDINGS {
            let name = format!("a.{ending}.gz");
            let (kind, packing) = named(&name, FileFormat::Auto, None).unwrap();
            assert!(!matches!(kind, Kind::Tar | Kind::Zip), "{ending}");
            assert_eq!(packing, Packing::Gzip);
        }
    }

    #[test]
    fn messages_have_the_endings_that_name_a_format() {
        let endings = known_endings();
        let endings = endings.split(", ");
        for ending in endings.filter_map(|part| part.strip_prefix('.')) {
            let name = format!("a.{ending}");
            assert!(named(&name, FileFormat::Auto, None).is_some(), "{ending}");
            assert_eq!(workbook_remedy(&name), None, "{ending}");
        }
        for name in ["a.XLSX", "a.xls", "a.ods"] {
            assert_eq!(named(name, FileFormat::Auto, None), None, "{name}");
            assert!(workbook_remedy(name).unwrap().ends_with("as CSV"));
        }
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
        check(
            "a.txt",
            FileFormat::Text,
            Some((Kind::Text, Packing::Plain)),
        );
        for (name, kind, packing) in [
            ("a.jpg", Kind::Image, Packing::Plain),
            ("a.zip", Kind::Zip, Packing::Plain),
            ("a.tar", Kind::Tar, Packing::Plain),
            ("A.TGZ", Kind::Tar, Packing::Gzip),
            ("a.tar.gz", Kind::Tar, Packing::Gzip),
            ("a.tar.zst", Kind::Tar, Packing::Zstd),
        ] {
            check(name, FileFormat::Image, Some((kind, packing)));
        }
        check(
            "train-images-idx3-ubyte.gz",
            FileFormat::Idx,
            Some((Kind::Idx, Packing::Gzip)),
        );
    }

    #[test]
    fn settings_of_csv_for_another_format_are_not_refused() {
        for format in [FileFormat::Ndjson, FileFormat::Text] {
            let mut config = SourceConfig {
                format,
                ..source("a.txt")
            };
            config.csv.encoding = Some("latin-1".into());
            config.csv.percent = true;
            assert!(of("a.txt", &config).is_ok(), "{format:?}");
        }
    }

    #[test]
    fn details_of_another_format_are_refused() {
        let refused = |change: fn(&mut SourceConfig)| {
            let mut config = source("a.csv");
            change(&mut config);
            of("a.csv", &config).unwrap_err().to_string()
        };
        let labels = refused(|c| c.idx.labels = Some("l".into()));
        assert!(labels.starts_with("`idx.labels`: labels belong to images"));
        let separator = refused(|c| c.text.separator = Some("--".into()));
        assert!(separator.starts_with("`text.separator`: it belongs to plain text"));
        let empty = refused(|c| {
            c.format = FileFormat::Text;
            c.text.separator = Some(String::new());
        });
        assert!(empty.starts_with("`text.separator`: an empty separator"));
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
