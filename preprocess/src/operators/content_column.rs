//! Payload of image and text rows: one column in place of numbers, stored as it landed.
//!
//! Such a row is its payload: two rows with the same image or text are duplicates, whatever their
//! other columns hold. A document may be divided into one part per split, so that one long text can
//! be trained on and measured. It is divided by characters, the training part first, so no window
//! of one part reads another.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, StringArray, new_null_array},
    datatypes::DataType,
};
use datafusion::error::Result as EngineResult;
use feedline_readers::image_signature::image_format;
use feedline_schemas::{
    config::{DatasetConfig, DatasetKind, SplitBy, SplitConfig, Task},
    manifest::Split,
    pnm::{self, Pnm},
    record::ColumnType,
};
use serde::{Deserialize, Serialize};

use crate::{
    Error,
    engine::scalar_function::RowFunction,
    operators::{
        images::{self, Images},
        split::range::Ends,
    },
    schema::{
        landed_columns::{MergedColumn, find},
        reject_reason,
        system_columns::check_reserved,
    },
};

/// Most characters of a document: it is one row of a block, which is read whole.
const CHARACTERS: usize = 1 << 28;

/// Type of the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContentKind {
    Image,
    Text,
}

/// The column that rows are about.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ContentColumn {
    pub(crate) column: String,
    pub(crate) kind: ContentKind,
    /// Steps for images; none where they are stored unchanged.
    pub(crate) images: Option<Images>,
}

/// The payload of a dataset; none for rows of numbers.
///
/// # Errors
/// [`Error::Config`] for keys that another kind has, and for a column that holds something else.
pub(crate) fn resolve(
    config: &DatasetConfig,
    columns: &[MergedColumn],
) -> Result<Option<ContentColumn>, Error> {
    check_columns(config)?;
    let (kind, usual, r#type) = match config.kind {
        DatasetKind::Rows => {
            check_rows(config)?;
            return Ok(None);
        }
        DatasetKind::Multi => {
            check_range(&config.split, None)?;
            return Ok(None);
        }
        DatasetKind::Images => (ContentKind::Image, "image", ColumnType::Binary),
        DatasetKind::Characters | DatasetKind::Tokens => {
            (ContentKind::Text, "text", ColumnType::Utf8)
        }
    };
    check_keys(config, kind)?;
    check_range(&config.split, Some(kind))?;
    let column = config.content.as_deref().unwrap_or(usual);
    payload("dataset.content", config, columns, (kind, column, r#type)).map(Some)
}

/// The parts that rows have beside their numbers, images first; none but for [`DatasetKind::Multi`].
///
/// # Errors
/// As [`resolve`].
pub(crate) fn parts(
    config: &DatasetConfig,
    columns: &[MergedColumn],
) -> Result<Vec<ContentColumn>, Error> {
    if config.kind != DatasetKind::Multi {
        return Ok(Vec::new());
    }
    let refuse = |key: &str, reason: &str| Err(Error::config(format!("dataset.{key}"), reason));
    let (image, text) = (&config.image_column, &config.text_column);
    if config.content.is_some() {
        return refuse(
            "content",
            "rows of several parts name them with `image_column` and `text_column`; remove it",
        );
    }
    if image.is_none() && text.is_none() {
        return refuse(
            "kind",
            "rows of several parts have an image or a text: name its column with `image_column` or `text_column`, or \
             use `rows`",
        );
    }
    if image.is_none() && config.image.is_some() {
        return refuse(
            "image",
            "the rows have no image: name its column with `image_column`, or remove this table",
        );
    }
    let mut parts = image.iter().chain(text);
    if parts.any(|part| config.is_target(part)) {
        return refuse(
            "target",
            "it is also the payload of the rows, so the target would leak into the input; name another column",
        );
    }
    let of_image = image
        .iter()
        .map(|column| (ContentKind::Image, column, ColumnType::Binary));
    let of_text = text
        .iter()
        .map(|column| (ContentKind::Text, column, ColumnType::Utf8));
    let mut parts = Vec::new();
    for (kind, column, r#type) in of_image.chain(of_text) {
        let key = match kind {
            ContentKind::Image => "dataset.image_column",
            ContentKind::Text => "dataset.text_column",
        };
        parts.push(payload(key, config, columns, (kind, column, r#type))?);
    }
    Ok(parts)
}

/// Checks that `column`, which the configuration has at `key`, can be a payload.
fn payload(
    key: &str,
    config: &DatasetConfig,
    columns: &[MergedColumn],
    (kind, column, r#type): (ContentKind, &str, ColumnType),
) -> Result<ContentColumn, Error> {
    let inside = format!("{column}.bytes");
    let column = match kind {
        ContentKind::Image if holds_files_inside(column, &inside, columns) => inside.as_str(),
        _ => column,
    };
    let found = find(key, column, columns)?.r#type;
    if found != r#type {
        let what = match kind {
            ContentKind::Image => "image files (bytes)",
            ContentKind::Text => "text",
        };
        let landed = match (kind, found) {
            (ContentKind::Image, ColumnType::Utf8) => {
                "; where it is a Parquet column whose bytes landed as text of hexadecimal digits, declare it with \
                 `contract.column.<name>.type = \"bytes\"` and run `feedline ingest reset PIPELINE.toml SOURCE`"
            }
            _ => "",
        };
        return Err(Error::config(
            key,
            format!("column `{column}` does not hold {what}; name the one that does{landed}"),
        ));
    }
    check_reserved(key, column)?;
    Ok(ContentColumn {
        column: column.to_owned(),
        kind,
        images: match kind {
            ContentKind::Image => images::resolve(config, column, columns)?,
            ContentKind::Text => None,
        },
    })
}

/// True if `column` is an object with the bytes of a file, as image columns of Hugging Face are: `inside` holds them.
fn holds_files_inside(column: &str, inside: &str, columns: &[MergedColumn]) -> bool {
    let is_bytes = |c: &MergedColumn| c.name == inside && c.r#type == ColumnType::Binary;
    columns.iter().all(|c| c.name != column) && columns.iter().any(is_bytes)
}

/// Keys of rows of several parts.
fn check_columns(config: &DatasetConfig) -> Result<(), Error> {
    let given = [
        ("image_column", config.image_column.is_some()),
        ("text_column", config.text_column.is_some()),
    ];
    match given.into_iter().find(|(_, given)| *given) {
        Some((key, _)) if config.kind != DatasetKind::Multi => Err(Error::config(
            format!("dataset.{key}"),
            "it is for `dataset.kind = \"multi\"`: set that, or remove this key",
        )),
        _ => Ok(()),
    }
}

fn check_rows(config: &DatasetConfig) -> Result<(), Error> {
    if config.image.is_some() {
        return Err(Error::config(
            "dataset.image",
            "rows of numbers have no images: set `dataset.kind = \"images\"`, or remove this table",
        ));
    }
    if config.content.is_some() {
        return Err(Error::config(
            "dataset.content",
            "rows of numbers have no such column: set `dataset.kind`, or remove this key",
        ));
    }
    check_range(&config.split, None)
}

/// Keys that have no meaning beside a payload.
fn check_keys(config: &DatasetConfig, kind: ContentKind) -> Result<(), Error> {
    let is_text = kind == ContentKind::Text;
    let odd = [
        ("features", !config.features.is_empty()),
        ("drop", !config.drop.is_empty()),
        ("categorical", !config.categorical.is_empty()),
        ("step", config.step.is_some()),
        ("target", is_text && config.target.is_some()),
        ("image", is_text && config.image.is_some()),
        (
            "task",
            is_text && config.task == Task::Classification && config.target.is_none(),
        ),
    ];
    match odd.into_iter().find(|(_, given)| *given) {
        None => Ok(()),
        Some((key, _)) => Err(Error::config(
            format!("dataset.{key}"),
            "a dataset of this `dataset.kind` has no use for it; remove it",
        )),
    }
}

fn check_range(split: &SplitConfig, kind: Option<ContentKind>) -> Result<(), Error> {
    let SplitBy::Range { embargo } = split.by else {
        return Ok(());
    };
    if embargo > 0 && kind.is_some() {
        let reason = "it counts rows, and documents have a part in every split; remove it";
        return Err(Error::config("dataset.split.embargo", reason));
    }
    if kind == Some(ContentKind::Image) {
        let reason = "images have no order to be split by; use `key`";
        return Err(Error::config("dataset.split.by", reason));
    }
    Ok(())
}

/// The cells of a column where they are of the type of the payload, else nulls.
fn cells(column: &ArrayRef, r#type: &DataType) -> ArrayRef {
    if column.data_type() == r#type {
        Arc::clone(column)
    } else {
        new_null_array(r#type, column.len())
    }
}

/// The image of a row.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Image;

impl RowFunction for Image {
    const NAME: &'static str = "feedline_image";
    const RETURNS: DataType = DataType::Binary;

    fn call(&self, columns: &[ArrayRef], _: usize) -> EngineResult<ArrayRef> {
        Ok(cells(&columns[0], &DataType::Binary))
    }
}

/// The text of a row.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Text;

impl RowFunction for Text {
    const NAME: &'static str = "feedline_text";
    const RETURNS: DataType = DataType::Utf8;

    fn call(&self, columns: &[ArrayRef], _: usize) -> EngineResult<ArrayRef> {
        Ok(cells(&columns[0], &DataType::Utf8))
    }
}

/// The part of a document that belongs to a split; null when that is empty.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Part {
    split: Split,
    ends: Ends,
}

impl Part {
    /// `config`'s fractions are in 0 to 1 and add up to 1.
    pub(crate) fn new(config: &SplitConfig, split: Split) -> Self {
        Self {
            split,
            ends: Ends::new(config),
        }
    }

    /// Range of the part among `characters`.
    fn range(&self, characters: usize) -> std::ops::Range<usize> {
        let ends = self.ends.among(characters as u64);
        let [train, validation] = ends.map(|end| usize::try_from(end).unwrap_or(characters));
        match self.split {
            Split::Train => 0..train,
            Split::Validation => train..validation,
            Split::Test => validation..characters,
        }
    }

    fn of<'a>(&self, text: &'a str) -> Option<&'a str> {
        let range = self.range(text.chars().count());
        let place = |character: usize| {
            let mut places = text.char_indices();
            places.nth(character).map_or(text.len(), |(at, _)| at)
        };
        let part = &text[place(range.start)..place(range.end)];
        (!part.is_empty()).then_some(part)
    }
}

impl RowFunction for Part {
    const NAME: &'static str = "feedline_part";
    const RETURNS: DataType = DataType::Utf8;

    fn call(&self, columns: &[ArrayRef], _: usize) -> EngineResult<ArrayRef> {
        let texts = columns[0].as_string::<i32>().iter();
        let parts = texts.map(|text| text.and_then(|text| self.of(text)));
        Ok(Arc::new(parts.collect::<StringArray>()))
    }
}

/// Rows that cannot be used: which, why, and what was found.
type Faults = Vec<(usize, &'static str, String)>;

/// Rows whose cell is no image file that can be stored.
pub(crate) fn image_faults(column: &ArrayRef) -> Faults {
    let images = cells(column, &DataType::Binary);
    let images = images.as_binary::<i32>().iter().enumerate();
    images
        .filter_map(|(row, image)| {
            let fault = match image {
                None => Some("there is no image".to_owned()),
                Some(bytes) => image_fault(bytes),
            };
            fault.map(|fault| (row, reject_reason::NOT_AN_IMAGE, fault))
        })
        .collect()
}

/// Rows without a file to decode; the decoder checks the content.
pub(crate) fn missing_images(column: &ArrayRef) -> Faults {
    let images = cells(column, &DataType::Binary);
    let missing = (0..images.len()).filter(|row| images.is_null(*row));
    missing
        .map(|row| {
            (
                row,
                reject_reason::NOT_AN_IMAGE,
                "there is no image".to_owned(),
            )
        })
        .collect()
}

/// Fault of an image file, as far as its beginning shows; raw pixels are checked completely.
pub(crate) fn image_fault(bytes: &[u8]) -> Option<String> {
    if pnm::is_pnm(bytes) {
        return Pnm::parse(bytes).err().map(|error| error.to_string());
    }
    let is_webp = bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP");
    let known = bytes.starts_with(b"\xff\xd8") || bytes.starts_with(b"\x89PNG\r\n\x1a\n");
    (!known && !is_webp).then(|| match image_format(bytes) {
        Some(format) => format!(
            "it is a {format}, which shards do not hold as it came: set `dataset.image.store`, such as `\"png\"`"
        ),
        None => format!(
            "it begins with `{:02x?}`, as no JPEG, PNG, WebP, PGM or PPM does",
            &bytes[..bytes.len().min(8)]
        ),
    })
}

/// Rows whose cell is no document.
pub(crate) fn document_faults(column: &ArrayRef) -> Faults {
    let texts = cells(column, &DataType::Utf8);
    let texts = texts.as_string::<i32>().iter().enumerate();
    texts
        .filter_map(|(row, text)| document_fault(text).map(|(reason, found)| (row, reason, found)))
        .collect()
}

/// Reason for which a cell is no document, and what was found. A text of blanks alone is none.
pub(crate) fn document_fault(text: Option<&str>) -> Option<(&'static str, String)> {
    prompt_fault(text.filter(|text| !text.trim().is_empty()))
}

/// As [`document_fault`], of a prompt: it may begin with a line break and have nothing else.
pub(crate) fn prompt_fault(text: Option<&str>) -> Option<(&'static str, String)> {
    match text {
        None | Some("") => Some((reject_reason::NO_TEXT, String::new())),
        // Fewer bytes are fewer characters.
        Some(text) if text.len() <= CHARACTERS => None,
        Some(text) => Some(text.chars().count())
            .filter(|found| *found > CHARACTERS)
            .map(|found| {
                (
                    reject_reason::DOCUMENT_TOO_LONG,
                    format!("{found} characters"),
                )
            }),
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::BinaryArray;

    use super::*;

    fn shares(train: f64, validation: f64, test: f64) -> SplitConfig {
        SplitConfig {
            by: SplitBy::Range { embargo: 0 },
            train,
            validation,
            test,
            ..SplitConfig::default()
        }
    }

    fn parts(config: &SplitConfig, text: &str) -> [Option<String>; 3] {
        Split::ALL.map(|split| Part::new(config, split).of(text).map(str::to_owned))
    }

    fn check(config: &SplitConfig, text: &str, expected: [&str; 3]) {
        let expected = expected.map(|part| (!part.is_empty()).then(|| part.to_owned()));
        assert_eq!(parts(config, text), expected);
    }

    #[test]
    fn a_document_is_cut_in_order_by_characters() {
        check(&shares(0.8, 0.1, 0.1), "0123456789", ["01234567", "8", "9"]);
        check(&shares(0.5, 0.5, 0.0), "äöüß", ["äö", "üß", ""]);
        check(&shares(0.9, 0.1, 0.0), "a", ["a", "", ""]);
        check(&shares(0.01, 0.0, 0.99), "abc", ["a", "", "bc"]);
        check(&shares(1.0, 0.0, 0.0), "abc", ["abc", "", ""]);
    }

    #[test]
    fn parts_put_together_are_the_document_whatever_the_shares() {
        let text = "a€b\u{1f600}\n".repeat(40);
        for train in 1..=20_u32 {
            for validation in 0..=20 - train {
                let share = |parts: u32| f64::from(parts) / 20.0;
                let test = 20 - train - validation;
                let config = shares(share(train), share(validation), share(test));
                let found = parts(&config, &text);
                assert_eq!(found.iter().flatten().cloned().collect::<String>(), text);
                assert!(test > 0 || found[2].is_none());
                assert!(validation > 0 || found[1].is_none());
            }
        }
    }

    #[test]
    fn what_is_no_image_is_told() {
        let images: ArrayRef = Arc::new(BinaryArray::from(vec![
            Some(&b"P5\n1 1\n255\nx"[..]),
            Some(b"\xff\xd8..."),
            None,
            Some(b""),
            Some(b"P5\n2 1\n255\nx"),
            Some(b"GIF89a..."),
        ]));
        let faults = image_faults(&images);
        let rows: Vec<usize> = faults.iter().map(|(row, ..)| *row).collect();
        assert_eq!(rows, [2, 3, 4, 5]);
        assert_eq!(faults[2].2, "it ends before its last pixel");
        let gif = "it is a GIF, which shards do not hold as it came: set `dataset.image.store`";
        assert!(faults[3].2.starts_with(gif), "{}", faults[3].2);
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["P5\n1 1\n255\nx"]));
        assert_eq!(image_faults(&texts).len(), 1);
    }

    #[test]
    fn what_is_no_document_is_told() {
        let texts = [Some("a"), Some(""), None, Some(" \u{a0}\t\n"), Some(" a")];
        let texts: ArrayRef = Arc::new(StringArray::from(texts.to_vec()));
        let rows: Vec<usize> = document_faults(&texts)
            .iter()
            .map(|(row, ..)| *row)
            .collect();
        assert_eq!(rows, [1, 2, 3]);
        assert_eq!(prompt_fault(Some("\n")), None);
    }
}
