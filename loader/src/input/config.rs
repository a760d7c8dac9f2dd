//! Choice of the dataset and its columns.

use feedline_schemas::manifest::TargetKind;

use crate::Error;

/// Choice of the dataset at the URL and of its columns. All of it is part of the order: it must be
/// the same on every rank and when resuming.
///
/// Our own shards need none of this, and `columns` and `target` are refused for them. Exports of feedline name their columns
/// themselves. For the other formats the split is found in the names of folders and files, see
/// [`SplitChoice`](crate::SplitChoice).
///
/// ```no_run
/// use feedline_loader::{BadValues, ColumnMap, InputConfig, InputFormat, Loader, Target};
///
/// let columns = ColumnMap {
///     x: vec!["area".to_owned(), "rooms".to_owned()],
///     y: Some("price".to_owned()),
///     ..ColumnMap::default()
/// };
/// let (format, bad_values) = (InputFormat::Parquet, BadValues::Skip);
/// let input = InputConfig { format, columns, bad_values, ..InputConfig::new() };
/// let loader = Loader::builder("houses/train").input(input).open_blocking()?;
/// for batch in loader.batches()? {
///     let batch = batch?;
///     assert_eq!(batch.features(), 2);
///     assert!(matches!(batch.y(), Target::Regression(prices) if prices.len() == batch.rows()));
/// }
/// # Ok::<(), feedline_loader::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InputConfig {
    /// Format. Default: detected from the files at the URL.
    pub format: InputFormat,
    /// Columns of the dataset.
    pub columns: ColumnMap,
    /// Kind of target. Default: none where there is no target column; a number where the column
    /// holds floats; otherwise a class, where any class below 2^31 is accepted if the format does
    /// not give their number.
    pub target: Option<TargetKind>,
    /// Handling of rows that hold NaN or infinity, or a class out of range. Default: the read
    /// fails.
    pub bad_values: BadValues,
}

impl InputConfig {
    /// The defaults.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            format: InputFormat::Detect,
            columns: ColumnMap {
                x: Vec::new(),
                y: None,
                image: None,
                tokens: None,
                key: None,
            },
            target: None,
            bad_values: BadValues::Fail,
        }
    }

    /// Refuses settings that have no effect on shards of our own.
    ///
    /// # Errors
    /// [`Error::Config`] with the setting.
    pub(super) fn check_shards(&self) -> Result<(), Error> {
        let refuse = |key, names: &str| {
            let reason = format!(
                "the dataset has shards of feedline, whose manifest names {names}; remove the setting, or change `[dataset]` of \
                 the pipeline and build the dataset again"
            );
            Err(Error::Config { key, reason })
        };
        if self.columns != ColumnMap::default() {
            return refuse("columns", "the columns");
        }
        if self.target.is_some() {
            return refuse("target", "the target");
        }
        Ok(())
    }

    /// Refuses settings that contradict each other for formats other than ours.
    ///
    /// # Errors
    /// [`Error::Config`] with the setting.
    pub(super) fn check_foreign(&self) -> Result<(), Error> {
        match (&self.columns.y, self.target) {
            (Some(name), Some(TargetKind::None)) => Err(Error::Config {
                key: "columns.y",
                reason: format!(
                    "it names the target `{name}`, and `target` is none, so that column would not be read; remove one of the two"
                ),
            }),
            _ => Ok(()),
        }
    }

    /// Refuses a target of documents, whose token ids are in column `tokens`.
    ///
    /// # Errors
    /// The setting that names a target, with what to do.
    pub(super) fn check_documents(&self, tokens: &str) -> Result<(), String> {
        let is_target = self.target.is_some_and(|kind| kind != TargetKind::None);
        let setting = match (&self.columns.y, is_target) {
            (Some(_), _) => "columns.y",
            (None, true) => "target",
            (None, false) => return Ok(()),
        };
        Err(format!(
            "`{setting}` asks for a target, and its rows are documents of the token ids in column `{tokens}`, which have none; \
             remove the setting, or name the numbers to read as rows in `columns.x`"
        ))
    }
}

/// A format of datasets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InputFormat {
    /// Ours where there is a `CURRENT`, MDS where there is an `index.json`, Parquet where there are files `*.parquet`,
    /// WebDataset where there are files `*.tar`.
    #[default]
    Detect,
    /// Our own shards: a folder with a manifest.
    Shards,
    /// Apache Parquet: one file, or all `*.parquet` below a folder in the order of their paths.
    Parquet,
    /// Tar files in which members with one name up to the first dot make a sample; all `*.tar` below a folder in the
    /// order of their paths.
    WebDataset,
    /// MosaicML streaming, version 2: an `index.json` and its shards.
    Mds,
}

/// Columns of a dataset to read, by name. Without any name given, a dataset with a column of images
/// (`image`, `jpg`, `jpeg`, `png` or `img`) gives images, one with a list of integers `tokens` or
/// `input_ids` gives tokens, and any other gives rows of numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ColumnMap {
    /// Numbers, in the order of the elements of a row: scalars, or lists of one fixed length; in WebDataset, keys of the
    /// `json` member. Default: the features of an export of feedline; else all numeric columns but the target, the key and
    /// those that are called `_feedline_*`, `*__landed` or, by pandas, `__index_level_*`, in the dataset's order.
    pub x: Vec<String>,
    /// Target. Default: that of an export of feedline; else the first of `y`, `label`, `target` and `cls` that exists. In WebDataset, the extension of the
    /// member, or the key in its `json` member, also as `json.KEY`; default the member `cls`, or the first of these keys
    /// that is a number in the `json` member.
    pub y: Option<String>,
    /// Encoded images: bytes, or a struct whose field `bytes` has them. In WebDataset, the extension of the member
    /// (default: `jpg`, `jpeg`, `png` or `webp`).
    pub image: Option<String>,
    /// Token ids: lists of integers, one document a row.
    pub tokens: Option<String>,
    /// Key of a row: an unsigned or signed integer, or text or bytes that are hashed. Default: that of an export of feedline;
    /// else a hash of the file's name and the row, of WebDataset of the sample's name.
    pub key: Option<String>,
}

impl ColumnMap {
    /// Returns true if it names neither numbers nor images nor tokens.
    pub(super) const fn names_no_part(&self) -> bool {
        self.x.is_empty() && self.image.is_none() && self.tokens.is_none()
    }

    /// Checks that no more is named than a row of a format other than ours can hold.
    ///
    /// # Errors
    /// The two names.
    pub(super) fn check(&self) -> Result<(), String> {
        let named = [
            ("x", !self.x.is_empty()),
            ("image", self.image.is_some()),
            ("tokens", self.tokens.is_some()),
        ];
        let named: Vec<_> = named.iter().filter(|(_, is)| *is).collect();
        if let [(first, _), (second, _), ..] = named[..] {
            return Err(format!(
                "`columns.{first}` and `columns.{second}` are both named, and a row of this format gives numbers, an image or \
                 tokens; leave one out, or build a dataset of `kind = \"multi\"` with both"
            ));
        }
        if self.tokens.is_some() && self.y.is_some() {
            return Err(
                "`columns.tokens` and `columns.y` are both named, and documents have no target; leave one out".into(),
            );
        }
        Ok(())
    }
}

/// Refuses several targets, which only datasets of feedline's own shards have.
///
/// # Errors
/// The reason, with what to ask for.
pub(super) fn check_target(asked: Option<TargetKind>) -> Result<(), String> {
    match asked {
        Some(TargetKind::Regressions { .. }) => {
            Err("`target` asks for several numbers, and rows of this format have one target; ask for `regression`".into())
        }
        _ => Ok(()),
    }
}

/// Handling of rows with values that no model should see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BadValues {
    /// The read fails with an error that says where the row is.
    #[default]
    Fail,
    /// The row is rejected and counted, and another one takes its place.
    Skip,
    /// Values are not looked at, except classes.
    Keep,
}
