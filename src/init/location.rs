//! The kind of data behind a URL or a path.

use std::{fmt, fs, path::Path};

use anyhow::bail;
use feedline_readers::file_format::{
    ARCHIVE_ENDINGS, TABLE_ENDINGS, known_endings, workbook_remedy,
};

use super::{ColumnRoles, NumberFormat, folder::of_folder, pipeline::image_sides};
use crate::{output::counted, user_info};

/// Endings of images.
const IMAGES: [&str; 10] = [
    "jpg", "jpeg", "png", "gif", "bmp", "webp", "tif", "tiff", "ppm", "pgm",
];
/// Extensions of texts.
const TEXTS: [&str; 2] = ["txt", "md"];

/// Kind of the data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// Rows of files: CSV, JSON, NDJSON, Parquet.
    Table,
    /// Images in a folder for each class, or without classes.
    Images {
        /// True if the images are in folders below the given one.
        has_classes: bool,
    },
    /// Text files, each one document, or one long text.
    Texts {
        /// True for a single file.
        is_single: bool,
    },
    /// Pages of an API with JSON.
    Api,
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Table => "a table",
            Self::Images { has_classes: true } => "images in a folder for each class",
            Self::Images { has_classes: false } => "images",
            Self::Texts { is_single: true } => "a text",
            Self::Texts { is_single: false } => "texts, a document in each file",
            Self::Api => "an API that returns JSON",
        })
    }
}

impl Content {
    /// Returns true if the pipeline trains a model: tables and APIs need a target for that.
    pub(crate) fn trains(&self, columns: Option<&ColumnRoles>) -> bool {
        match self {
            Self::Table | Self::Api => {
                columns.is_some_and(|columns| columns.target.is_some() || columns.text.is_some())
            }
            Self::Images { has_classes } => *has_classes,
            Self::Texts { .. } => true,
        }
    }
}

/// Data as a user named it, and as a source reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    /// `source.url`.
    pub(crate) url: String,
    pub(crate) content: Content,
    /// Name of pipeline and source.
    pub(crate) name: String,
    /// Median of the shorter sides of some images, in pixels; none if no header could be read.
    pub(crate) shorter_side: Option<u32>,
    /// Environment variable of a bearer token.
    pub(crate) bearer: Option<String>,
    /// Format of numbers in CSV cells.
    pub(crate) number_format: NumberFormat,
    /// Encoding of CSV that is no UTF-8.
    pub(crate) encoding: Option<String>,
    /// True if quotes in quoted fields of CSV are behind a backslash.
    pub(crate) has_escapes: bool,
    /// Path of the list of records in a document of JSON.
    pub(crate) records: Option<String>,
    /// Column whose text `number_settings` read as numbers.
    pub(crate) number_column: Option<String>,
    /// Lines of `csv` for the numbers of that column.
    pub(crate) number_settings: Vec<String>,
    /// Columns of numbers with either separator, how they are read, and the reason.
    pub(crate) open_numbers: Option<String>,
    /// Number of columns, if the contract has to allow them.
    pub(crate) max_columns: Option<usize>,
    /// Files of a folder that the pattern in `url` does not match, for a message.
    pub(crate) left_out: Option<String>,
    /// Files of a folder that are read though they are other tables, for a message.
    pub(crate) other_tables: Option<String>,
    /// True if texts of an archive are in folders.
    pub(crate) has_folders: bool,
    /// Members of an archive that are read as texts without the extension of one, for a message.
    pub(crate) other_members: Option<String>,
    /// Images outside of the folders of classes.
    pub(crate) unlabelled: Option<UnlabelledImages>,
}

/// Images in no folder, beside others in a folder for each class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnlabelledImages {
    pub(super) count: u64,
    /// All images that were looked at.
    pub(super) all: u64,
    /// One of them, if its name is known.
    pub(super) example: Option<String>,
}

impl UnlabelledImages {
    /// Returns true if nearly all images are in folders, so that these are classes.
    pub(super) const fn are_few(&self) -> bool {
        self.count * 10 <= self.all
    }

    /// Treatment of these images, with the key that changes it.
    pub(super) fn decision(&self) -> String {
        let Self { count, all, .. } = self;
        let example = self.example.iter();
        let example: String = example.map(|name| format!(", such as `{name}`")).collect();
        let are = if *count == 1 { "is" } else { "are" };
        let rest = match self.are_few() {
            true => {
                ": without a class, a build rejects them; move each into the folder of its class, see `dataset.target`"
            }
            false => {
                ", so folders are not taken as classes; if they are, move each image into the folder of its class, and set \
                 `dataset.target = \"folder\"` and `dataset.task = \"classification\"`"
            }
        };
        let all = counted(*all, "image");
        format!("{count} of {all} {are} in no folder{example}{rest}")
    }
}

impl Location {
    /// Decisions by the data itself, each with its key.
    pub(crate) fn decisions(&self) -> Vec<String> {
        let mut decisions: Vec<String> = self.left_out.iter().cloned().collect();
        decisions.extend(self.other_tables.clone());
        decisions.extend(self.other_members.clone());
        decisions.extend(self.unlabelled.as_ref().map(UnlabelledImages::decision));
        if let Some(encoding) = &self.encoding {
            decisions.push(format!(
                "the text is read as `{encoding}`, the likely encoding of its bytes; `csv.encoding` changes it"
            ));
        }
        if self.has_escapes {
            decisions.push(
                "quotes in the text of the file are behind a backslash, so `csv.escape` is set; without it such text is damaged"
                    .to_owned(),
            );
        }
        if let Some(records) = &self.records {
            decisions.push(format!(
                "the records are those of the list at `{records}`, the longest list of objects; `source.records` changes it"
            ));
        }
        if let Some(column) = &self.number_column {
            let settings = self.number_settings.iter();
            let settings: Vec<String> = settings.map(|line| format!("`csv.{line}`")).collect();
            let other = match settings.contains(&"`csv.thousands_separator = \",\"`".to_owned()) {
                true => "; if `1,234` is 1.234 there, set `csv.decimal_separator = \",\"` instead",
                false => "",
            };
            decisions.push(format!(
                "`{column}` is read as numbers by {}, which holds for all columns{other}; see `source.csv`",
                settings.join(" and ")
            ));
        }
        if let Some(columns) = self.max_columns {
            decisions.push(format!(
                "`contract.max_columns = {columns}` allows the columns that the table has; the limit is for names of columns that \
                 are data"
            ));
        }
        match self.number_format {
            NumberFormat::Point => {}
            NumberFormat::Comma => decisions.push(
                "numbers are written with a decimal comma; `csv.decimal_separator` changes it"
                    .to_owned(),
            ),
            NumberFormat::GroupedComma => decisions.push(
                "numbers are written as `1.234,56`; `csv.decimal_separator` and `csv.thousands_separator` change it"
                    .to_owned(),
            ),
        }
        decisions.extend(self.open_numbers.clone());
        if self.content == (Content::Images { has_classes: true }) {
            let (stored, trained) = image_sides(self.shorter_side);
            decisions.push(format!(
                "images are stored with a shorter side of {stored} pixels and trained at {trained}; `dataset.image.size` and \
                 `train.images` change it"
            ));
        }
        if self.content == (Content::Texts { is_single: false })
            && (self.url.contains("/**/") || self.has_folders)
        {
            decisions.push(
                "one language model is trained on the documents of all folders; to predict the folder of a document, set \
                 `dataset.kind = \"multi\"`, `dataset.task = \"classification\"`, `dataset.text_column = \"text\"`, \
                 `dataset.target = \"folder\"`, `dataset.drop = [\"path\"]` and \
                 `dataset.dedup_ignore = [\"path\"]`"
                    .to_owned(),
            );
        }
        decisions
    }

    /// Takes the name of the pipeline from its file: two pipelines for one location have two folders
    /// then.
    pub(crate) fn name_after(&mut self, file: &Path) {
        if let Some(stem) = file.file_stem() {
            self.name = name_of(&stem.to_string_lossy());
        }
    }

    /// Returns true for an API or a file on a web server.
    pub(crate) fn is_web(&self) -> bool {
        let scheme = self.url.split_once("://").map(|(scheme, _)| scheme);
        scheme.is_some_and(|scheme| {
            ["http", "https"]
                .iter()
                .any(|web| scheme.eq_ignore_ascii_case(web))
        })
    }

    /// Returns true for an archive, whose members may be tables or images.
    pub(crate) fn is_archive(&self) -> bool {
        class_of(&self.url) == Some(FileClass::Archive)
    }

    /// Finds out the kind of data by the name, and of a folder by the names in it.
    ///
    /// # Errors
    /// A message for a path that does not exist, and for a folder without files of a known kind.
    pub(crate) fn new(given: &str) -> anyhow::Result<Self> {
        let is_url = given.contains("://");
        let remedy = "write a pipeline with the URL without them and `auth` for its source, or name a bearer token by `--bearer`";
        if let Some(refusal) = user_info::refusal(given, remedy) {
            bail!(refusal);
        }
        if is_url {
            let path = given.split(['?', '#']).next().unwrap_or(given);
            let content = match class_of(path) {
                // A path such as `/items.json` may be a page of an API as well as a file; a query
                // suggests the former.
                Some(FileClass::Table) if !path.ends_with(".json") || !given.contains('?') => {
                    Content::Table
                }
                _ => Content::Api,
            };
            let host = url::Url::parse(given).ok();
            let host = host
                .as_ref()
                .and_then(url::Url::host_str)
                .unwrap_or_default();
            let last = path.trim_end_matches('/').rsplit('/').next();
            let last = last.filter(|last| !last.is_empty() && *last != host);
            return Ok(Self::plain(given, content, name_of(last.unwrap_or(host))));
        }
        let path = Path::new(given);
        let Ok(metadata) = fs::metadata(path) else {
            bail!(
                "file or folder `{given}` does not exist; check the path, and begin a URL with `https://`"
            );
        };
        let name = path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        let name = name_of(&name.unwrap_or_else(|| "data".to_owned()));
        if metadata.is_file() {
            let content = match class_of(given) {
                Some(FileClass::Image) => Content::Images { has_classes: false },
                // Its members decide; `init` reads it as tables first.
                Some(FileClass::Archive) => Content::Table,
                Some(FileClass::Text) => Content::Texts { is_single: true },
                Some(FileClass::Table) => Content::Table,
                None => bail!(
                    "the ending of `{given}` is of no known format; {}; known are {}, .{} and .{}",
                    workbook_remedy(given).unwrap_or("save the file in a known one"),
                    known_endings(),
                    IMAGES.join(", ."),
                    TEXTS.join(", .")
                ),
            };
            return Ok(Self::plain(given, content, name));
        }
        of_folder(path, given, name)
    }

    /// Data that are read without further settings.
    pub(super) fn plain(url: &str, content: Content, name: String) -> Self {
        Self {
            url: url.to_owned(),
            content,
            name,
            shorter_side: None,
            bearer: None,
            number_format: NumberFormat::Point,
            encoding: None,
            has_escapes: false,
            records: None,
            number_column: None,
            number_settings: Vec::new(),
            open_numbers: None,
            max_columns: None,
            left_out: None,
            other_tables: None,
            has_folders: false,
            other_members: None,
            unlabelled: None,
        }
    }
}

/// Class of a file by its ending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileClass {
    Table,
    Image,
    Text,
    Archive,
}

/// Returns true if the ending of `name` is that of a table, an image or an archive.
pub(crate) fn is_data_file(name: &str) -> bool {
    matches!(
        class_of(name),
        Some(FileClass::Table | FileClass::Image | FileClass::Archive)
    )
}

/// Class of the file called `name`; `None` for another ending.
pub(super) fn class_of(name: &str) -> Option<FileClass> {
    let name = name.to_lowercase();
    let has = |endings: &[&str]| endings.iter().any(|end| name.ends_with(&format!(".{end}")));
    if has(&ARCHIVE_ENDINGS) {
        return Some(FileClass::Archive);
    }
    let plain = name
        .strip_suffix(".gz")
        .or_else(|| name.strip_suffix(".zst"));
    let plain = plain.unwrap_or(&name);
    let has = |endings: &[&str]| {
        endings
            .iter()
            .any(|end| plain.ends_with(&format!(".{end}")))
    };
    match () {
        () if has(&TABLE_ENDINGS) => Some(FileClass::Table),
        () if has(&IMAGES) => Some(FileClass::Image),
        () if has(&TEXTS) => Some(FileClass::Text),
        () => None,
    }
}

/// A name for a pipeline and a source: lower case, digits, `-` and `_`, 40 characters at most.
fn name_of(text: &str) -> String {
    let text = text.to_lowercase();
    let stem = text.split('.').next().unwrap_or_default();
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let name: String = stem
        .chars()
        .map(|c| if fits(c) || c == '_' { c } else { '-' })
        .collect();
    let name: String = name.trim_matches(['-', '_']).chars().take(40).collect();
    match name.is_empty() {
        true => "data".to_owned(),
        false => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_tables_by_their_ending_and_apis_otherwise() {
        let of = |url: &str| {
            let found = Location::new(url).unwrap();
            (found.content, found.name)
        };
        assert_eq!(
            of("https://a.org/x/Houses%20.csv.gz"),
            (Content::Table, "houses-20".into())
        );
        assert_eq!(
            of("https://a.org/v1/items?page=1"),
            (Content::Api, "items".into())
        );
        assert_eq!(
            of("https://a.org/v1/items.json?page=1"),
            (Content::Api, "items".into())
        );
        assert_eq!(of("https://api.a.org/"), (Content::Api, "api".into()));
    }

    #[test]
    fn texts_in_folders_are_reported_with_the_keys_that_predict_these() {
        let decisions = |url: &str| {
            let texts = Content::Texts { is_single: false };
            Location::plain(url, texts, "notes".to_owned()).decisions()
        };
        assert!(decisions("notes/*.txt").is_empty());
        let found = decisions("notes/**/*.txt");
        assert!(
            found[0].contains("`dataset.target = \"folder\"`"),
            "{found:?}"
        );
        let ignored = "`dataset.dedup_ignore = [\"path\"]`";
        assert!(found[0].ends_with(ignored), "{found:?}");
        assert!(!found[0].contains("  "), "{found:?}");
        let archive = Location {
            has_folders: true,
            ..Location::plain(
                "notes.zip",
                Content::Texts { is_single: false },
                "notes".to_owned(),
            )
        };
        assert_eq!(archive.decisions(), found);
    }

    #[test]
    fn images_in_no_folder_are_counted_with_their_treatment() {
        let decision = |count: u64, example: Option<&str>| {
            let images = UnlabelledImages {
                count,
                all: 40,
                example: example.map(str::to_owned),
            };
            images.decision()
        };
        let few = decision(4, Some("6.jpg"));
        let part = "4 of 40 images are in no folder, such as `6.jpg`: without a class, a build rejects them;";
        assert!(few.starts_with(part), "{few}");
        let many = decision(5, None);
        let part = "5 of 40 images are in no folder, so folders are not taken as classes;";
        assert!(many.starts_with(part), "{many}");
        assert!(many.contains("`dataset.target = \"folder\"`"), "{many}");
    }

    #[test]
    fn what_is_not_there_or_of_no_known_format_is_refused() {
        let error = Location::new("no/such").unwrap_err().to_string();
        assert!(
            error.contains("file or folder `no/such` does not exist"),
            "{error}"
        );
        let file = tempfile::Builder::new().suffix(".xyz").tempfile().unwrap();
        let error = Location::new(&file.path().display().to_string())
            .unwrap_err()
            .to_string();
        assert!(error.contains("is of no known format"), "{error}");
        for part in [".csv, ", ".feather, ", ".tgz, ", ".txt"] {
            assert!(error.contains(part), "{error}");
        }
        let file = tempfile::Builder::new().suffix(".xlsx").tempfile().unwrap();
        let error = Location::new(&file.path().display().to_string())
            .unwrap_err()
            .to_string();
        let remedy = "save each sheet of the workbook as CSV";
        assert!(error.contains(remedy), "{error}");
    }
}
