//! Input of a loader: one split of a dataset, as blocks of rows.
//!
//! Our own shards have a checksum for every block. The other formats mostly have none: see [`foreign`] for what is done
//! instead. A dataset in any format has a fingerprint, which changes when its files or their descriptions do.

pub(crate) mod block_rows;
pub(crate) mod columns;
pub(crate) mod config;
mod foreign;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod labels;
mod lengths;
mod manifest;
mod mds;
mod names;
mod opened;
mod parquet;
mod record;
mod roles;
mod shards;
pub(crate) mod splits;
#[cfg(test)]
mod tests;
mod values;
mod warnings;
mod webdataset;

#[cfg(any(test, fuzzing))]
pub(crate) use self::{mds::fuzzing as mds_fuzzing, webdataset::fuzzing as webdataset_fuzzing};

use std::sync::Arc;

use feedline_schemas::{
    config::ImageBackground,
    count::counted,
    ids::Hash128,
    manifest::{Manifest, Split},
};
use feedline_storage::{Listed, Store};

use crate::{
    Error,
    block_table::{BlockId, BlockTable},
    config::BadShards,
    fetch::{Extent, Extents},
    input::block_rows::BlockRows,
};
use config::{BadValues, InputConfig, InputFormat};
pub(crate) use lengths::DocumentLengths;
pub use manifest::read as read_manifest;
pub(crate) use manifest::read_transform;
use mds::Mds;
use opened::OpenedInput;
pub(crate) use opened::Skipped;
use parquet::Parquet;
pub(crate) use record::RowContent;
use shards::Shards;
use splits::{SplitChoice, SplitFiles};
use warnings::Warnings;
use webdataset::WebDataset;

/// One opened split. Shared by all passes over it.
#[derive(Debug)]
pub(crate) struct OpenedSplit {
    split: Split,
    record: RowContent,
    block_table: Arc<BlockTable>,
    fingerprint: Hash128,
    /// Names of the classes by id, where the files of an export have them.
    exported_classes: Vec<String>,
    /// Colour that transparent pixels are blended onto, where the files of an export have it.
    exported_background: Option<ImageBackground>,
    format: Format,
    bad_values: BadValues,
    skipped: Skipped,
    warnings: Arc<Warnings>,
}

#[derive(Debug)]
enum Format {
    Shards(Box<Shards>),
    Parquet(Box<Parquet>),
    WebDataset(Box<WebDataset>),
    Mds(Box<Mds>),
}

impl OpenedSplit {
    fn new<T>(
        opened: OpenedInput<T>,
        (split, bad_values): (Split, BadValues),
        warnings: Arc<Warnings>,
        format: impl FnOnce(T) -> Format,
    ) -> Self {
        Self {
            split,
            record: opened.record,
            block_table: opened.block_table,
            fingerprint: opened.fingerprint,
            exported_classes: opened.classes,
            exported_background: opened.background,
            format: format(opened.format),
            bad_values,
            skipped: Skipped::default(),
            warnings,
        }
    }

    /// Opens a split of the dataset in `store`.
    ///
    /// Of our own shards it reads the manifest and looks up their sizes; `bad_shards` says what happens to those that are
    /// not as long as they should be. Of MDS it reads the index, of Parquet every footer, of WebDataset every header.
    ///
    /// # Errors
    /// [`Error::NoDataset`], [`Error::EmptySplit`], or what is wrong with the dataset's description.
    pub(crate) async fn open(
        store: &Store,
        split: impl Into<SplitChoice>,
        config: &InputConfig,
        bad_shards: BadShards,
    ) -> Result<Self, Error> {
        let choice = split.into();
        let warnings = Arc::new(Warnings::new(store.url()));
        let found = find(store, choice, config.format, &warnings).await?;
        let bad = config.bad_values;
        let (
            format,
            SplitFiles {
                split,
                files,
                folder,
                left_out,
            },
        ) = match found {
            FoundContent::Shards => {
                config.check_shards()?;
                let split = choice.of_manifest();
                let (opened, skipped) = Shards::open(store, split, bad_shards).await?;
                let wrap = |shards| Format::Shards(Box::new(shards));
                let input = Self::new(opened, (split, bad), warnings, wrap);
                return Ok(Self { skipped, ..input });
            }
            FoundContent::Foreign(format, files) => (format, files),
        };
        config.check_foreign()?;
        if !left_out.is_empty() {
            let names = splits::list(left_out.iter().map(String::as_str));
            warnings.add(&format!(
                "split `{split}` is read, without {} whose names mention no split or several: {names}; name them after their \
                 split, or move them to a folder of their own and give that as the URL",
                counted(left_out.len() as u64, "file")
            ));
        }
        if let Some(missing) = splits::missing_parts(files.iter().map(|file| file.path.as_str())) {
            let names: Vec<_> = missing
                .names
                .iter()
                .map(|name| format!("`{name}`"))
                .collect();
            let more = if missing.count > names.len() as u64 {
                ", .."
            } else {
                ""
            };
            warnings.add(&format!(
                "split `{split}` lacks {} of its parts by the numbers in their names, and only the others are read: {}{more}; \
                 fetch them, or give the parts that are meant names without a total (`-of-`)",
                missing.count,
                names.join(", ")
            ));
        }
        let place = (split, folder.as_str());
        let rules = (split, bad);
        Ok(match format {
            ForeignFormat::Parquet => {
                let opened = Parquet::open(store, place, files, config, &warnings).await?;
                Self::new(opened, rules, warnings, |parquet| {
                    Format::Parquet(Box::new(parquet))
                })
            }
            ForeignFormat::WebDataset => {
                let opened = WebDataset::open(store, place, files, config, &warnings).await?;
                Self::new(opened, rules, warnings, |tar| {
                    Format::WebDataset(Box::new(tar))
                })
            }
            ForeignFormat::Mds => {
                let opened = Mds::open(store, place, config, &warnings).await?;
                Self::new(opened, rules, warnings, |mds| Format::Mds(Box::new(mds)))
            }
        })
    }

    /// Decisions about the dataset that its user should know of, so far.
    pub(crate) fn warnings(&self) -> Vec<String> {
        self.warnings.list()
    }

    /// Adds a sentence about the dataset to the warnings, and logs it.
    pub(crate) fn warn(&self, text: &str) {
        self.warnings.add(text);
    }

    /// Warns of documents that are longer than rows of `length` ids.
    pub(crate) fn warn_of_truncated(&self, rows: &BlockRows, length: u32) {
        let BlockRows::Tokens(documents) = rows else {
            return;
        };
        let is_longer = |row: &usize| documents.document(*row).len() > length as usize;
        let count = (0..documents.keys.len()).filter(is_longer).count();
        self.warnings.add_truncated(length, count as u64);
    }

    /// Number of warnings.
    pub(crate) fn warning_count(&self) -> usize {
        self.warnings.count()
    }

    /// The split.
    pub(crate) const fn split(&self) -> Split {
        self.split
    }

    /// Content of a row.
    pub(crate) fn record(&self) -> &RowContent {
        &self.record
    }

    /// Block table of the rows.
    pub(crate) fn block_table(&self) -> &Arc<BlockTable> {
        &self.block_table
    }

    /// A hash that changes when the dataset does; states carry it.
    pub(crate) fn fingerprint(&self) -> Hash128 {
        self.fingerprint
    }

    /// The shards that are left out.
    pub(crate) fn skipped(&self) -> &Skipped {
        &self.skipped
    }

    /// The manifest, if the dataset has one.
    pub(crate) fn manifest(&self) -> Option<&Manifest> {
        match &self.format {
            Format::Shards(shards) => Some(shards.manifest()),
            _ => None,
        }
    }

    /// Names of the classes by id; `None` where the target is no class, or the format has no names.
    pub(crate) fn class_names(&self) -> Option<Vec<&str>> {
        let classes = &self.manifest()?.counts.classes;
        let names = classes.iter().map(|class| class.name.as_str());
        (!classes.is_empty()).then(|| names.collect())
    }

    /// As [`class_names`](Self::class_names), with the names that an export gives.
    pub(crate) fn known_class_names(&self) -> Option<Vec<&str>> {
        let exported = self.exported_classes.iter().map(String::as_str);
        match self.exported_classes.is_empty() {
            true => self.class_names(),
            false => Some(exported.collect()),
        }
    }

    /// Colour that transparent pixels are blended onto, where the files of an export have it.
    pub(crate) const fn exported_background(&self) -> Option<ImageBackground> {
        self.exported_background
    }

    /// Names of the elements of `x` by their columns in other formats than ours; an element of a list has none. `None` where
    /// rows are no numbers.
    pub(crate) fn column_names(&self) -> Option<Vec<Option<String>>> {
        match &self.format {
            Format::Shards(_) => None,
            Format::Parquet(parquet) => parquet.column_names(),
            Format::WebDataset(tar) => tar.column_names(),
            Format::Mds(mds) => mds.column_names(),
        }
    }

    /// Reads a block, which batch `first` is the first to need. Notes its rejected rows.
    ///
    /// Decoding another format than ours happens on the runtime's threads for blocking work.
    ///
    /// # Errors
    /// [`Error`], when its file is missing or short, has other columns, or the block is damaged or unreadable twice;
    /// [`Error::BadValue`] for a value that no model should see, if those are to fail.
    pub(crate) async fn read(
        &self,
        block: BlockId,
        first: u64,
        extents: &dyn Extents,
    ) -> Result<BlockRows, Error> {
        let mut rows = match &self.format {
            Format::Shards(shards) => shards.read(block, first, extents).await?,
            Format::Parquet(parquet) => parquet.read(block, first, extents).await?,
            Format::WebDataset(tar) => tar.read(block, first, extents).await?,
            Format::Mds(mds) => mds.read(block, first, extents).await?,
        };
        values::check(&mut rows, &self.record, self.bad_values).map_err(|bad| {
            values::error(self.url_of(block), self.block_table.number(block), bad)
        })?;
        Ok(rows)
    }

    /// Extents to read for a block that batch `first` is the first to need, in the order of its
    /// file. None where they are not known before something else of its file was read.
    pub(crate) fn parts(&self, block: BlockId, first: u64) -> Vec<Extent> {
        let (foreign, ranges) = match &self.format {
            Format::Shards(shards) => return vec![shards.extent(block, first)],
            Format::Parquet(parquet) => (parquet.foreign(), parquet.ranges(block)),
            Format::WebDataset(tar) => (tar.foreign(), vec![tar.range(block)]),
            Format::Mds(mds) => (mds.foreign(), mds.range(block).into_iter().collect()),
        };
        let file = self.block_table.file_number(block);
        let parts = ranges.into_iter();
        parts
            .map(|range| foreign.extent(file, range, first))
            .collect()
    }

    /// Lengths of all documents, for packing.
    ///
    /// # Errors
    /// [`Error`], when the dataset has no lengths apart from its documents, or they cannot be read.
    pub(crate) async fn lengths(&self, extents: &dyn Extents) -> Result<DocumentLengths, Error> {
        match &self.format {
            Format::Shards(shards) => shards.lengths(extents).await,
            _ => Err(Error::File {
                url: self.url_of(0),
                reason: "its format does not tell how long documents are before they are read; \
                         convert the dataset to shards of ours to pack it"
                    .into(),
            }),
        }
    }

    /// The class of every row of a block, read apart from the rest where the format allows that. Those are not checked
    /// against the block's checksum: what they are used for has to be compared with the block when it is read.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(crate) async fn classes(
        &self,
        block: BlockId,
        extents: &dyn Extents,
    ) -> Result<Vec<i32>, Error> {
        if let Format::Shards(shards) = &self.format
            && let Some(classes) = shards.classes(block, extents).await?
        {
            return Ok(classes);
        }
        Ok(self.read(block, 0, extents).await?.classes().to_vec())
    }

    /// The key of every row of a block, as [`classes`](Self::classes).
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(crate) async fn keys(
        &self,
        block: BlockId,
        extents: &dyn Extents,
    ) -> Result<Vec<u64>, Error> {
        if let Format::Shards(shards) = &self.format
            && let Some(keys) = shards.keys(block, extents).await?
        {
            return Ok(keys);
        }
        Ok(self.read(block, 0, extents).await?.keys().to_vec())
    }

    /// Token ids in a block, if that is known before it is read.
    pub(crate) fn tokens(&self, block: BlockId) -> Option<u64> {
        self.block_table.tokens(block)
    }

    /// Bytes that a block takes while it is held.
    pub(crate) fn block_bytes(&self, block: BlockId) -> u64 {
        let range = self.block_table.byte_range(block);
        range.end - range.start
    }

    /// Parts of files that were read a second time because what came made no sense.
    pub(crate) fn rereads(&self) -> u64 {
        match &self.format {
            Format::Shards(shards) => shards.rereads(),
            Format::Parquet(parquet) => parquet.foreign().rereads(),
            Format::WebDataset(tar) => tar.foreign().rereads(),
            Format::Mds(mds) => mds.foreign().rereads(),
        }
    }

    /// URL of a block's file, for messages.
    pub(crate) fn url_of(&self, block: BlockId) -> String {
        let file = self.block_table.file_number(block);
        match &self.format {
            Format::Shards(shards) => shards.url_of(block),
            Format::Parquet(parquet) => parquet.foreign().url(file),
            Format::WebDataset(tar) => tar.foreign().url(file),
            Format::Mds(mds) => mds.foreign().url(file),
        }
    }
}

/// Content of a URL.
enum FoundContent {
    Shards,
    /// Files of a split, or the indices of one.
    Foreign(ForeignFormat, SplitFiles),
}

/// A format that is not ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ForeignFormat {
    Mds,
    Parquet,
    WebDataset,
}

impl ForeignFormat {
    /// In the order in which they are looked for.
    const ALL: [Self; 3] = [Self::Mds, Self::Parquet, Self::WebDataset];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Mds => "MDS",
            Self::Parquet => "Parquet",
            Self::WebDataset => "WebDataset",
        }
    }

    fn is_asked_for(self, format: InputFormat) -> bool {
        match format {
            InputFormat::Detect => true,
            InputFormat::Shards => false,
            InputFormat::Parquet => self == Self::Parquet,
            InputFormat::WebDataset => self == Self::WebDataset,
            InputFormat::Mds => self == Self::Mds,
        }
    }

    /// Returns true if a file is one of those that the format is recognised by.
    fn has(self, path: &str) -> bool {
        // Hidden files and folders are what other tools keep beside the data.
        if path
            .split('/')
            .any(|segment| segment.starts_with(['.', '_']))
        {
            return false;
        }
        match self {
            // One in a folder that names no split is a part of a dataset.
            Self::Mds => {
                path == "index.json"
                    || path.ends_with("/index.json") && splits::split_in(path).is_some()
            }
            Self::Parquet => path.ends_with(".parquet"),
            Self::WebDataset => path.ends_with(".tar"),
        }
    }
}

/// Finds the format and the files of a split.
async fn find(
    store: &Store,
    choice: SplitChoice,
    format: InputFormat,
    warnings: &Warnings,
) -> Result<FoundContent, Error> {
    let storage = |source| Error::Storage {
        url: store.url(),
        source: Box::new(source),
    };
    let has_pointer = async || store.get_opt("CURRENT").await.map(|found| found.is_some());
    if format == InputFormat::Shards
        || format == InputFormat::Detect && has_pointer().await.map_err(storage)?
    {
        return Ok(FoundContent::Shards);
    }
    let url = store.url();
    let listed = store.list("").await.map_err(storage)?;
    let below = listed
        .iter()
        .find_map(|file| file.path.strip_suffix("/CURRENT"));
    if let Some(folder) = below.filter(|_| format == InputFormat::Detect) {
        return Err(Error::NoDataset {
            reason: opened::below(&store.url_of(folder)),
            url,
        });
    }
    for kind in ForeignFormat::ALL {
        if !kind.is_asked_for(format) {
            continue;
        }
        let files = listed.iter().filter(|file| kind.has(&file.path));
        let files: Vec<_> = files.cloned().collect();
        if files.is_empty() {
            continue;
        }
        if kind == ForeignFormat::Parquet
            && let Some(table) = table_format(&listed)
        {
            let reason = opened::of_table(table);
            if format == InputFormat::Detect {
                let reason = format!("{reason}, or set `format` to read all of them");
                return Err(Error::NoDataset { url, reason });
            }
            warnings.add(&reason);
        }
        if format == InputFormat::Detect {
            warn_of_other_formats(kind, &listed, warnings);
        }
        let mut chosen = splits::choose(&url, files, choice)?;
        if kind == ForeignFormat::Mds {
            chosen.folder = folder_of_index(&url, &chosen)?;
            chosen.left_out.clear();
        }
        return Ok(FoundContent::Foreign(kind, chosen));
    }
    Err(Error::NoDataset {
        url,
        reason: opened::absent(format, listed.is_empty()),
    })
}

/// Format of the table that a folder has a log of, which names those of its files that count.
fn table_format(listed: &[Listed]) -> Option<&'static str> {
    let format_of = |path: &str| {
        let mut folders = splits::folder_of(path).split('/');
        let is_iceberg =
            path.ends_with(".metadata.json") && folders.clone().next_back() == Some("metadata");
        match folders.any(|folder| folder == "_delta_log") {
            true => Some("Delta Lake"),
            false => is_iceberg.then_some("Iceberg"),
        }
    };
    listed.iter().find_map(|file| format_of(&file.path))
}

/// Warns of files of other formats than the one that is read because it is looked for first.
fn warn_of_other_formats(read: ForeignFormat, listed: &[Listed], warnings: &Warnings) {
    let others = ForeignFormat::ALL.into_iter().filter(|kind| *kind != read);
    for other in others {
        let paths = listed.iter().map(|file| file.path.as_str());
        let paths: Vec<&str> = paths.filter(|path| other.has(path)).collect();
        if !paths.is_empty() {
            warnings.add(&format!(
                "it is read as {}, and its files of {} are not read: {}; set `format` to read those",
                read.as_str(),
                other.as_str(),
                splits::list(paths.iter().copied())
            ));
        }
    }
}

/// The folder of the one index of a split.
fn folder_of_index(url: &str, chosen: &SplitFiles) -> Result<String, Error> {
    match chosen.files.as_slice() {
        [index] => Ok(splits::folder_of(&index.path).to_owned()),
        several => {
            let names = splits::list(several.iter().map(|file| file.path.as_str()));
            let split = chosen.split;
            Err(Error::Config {
                key: "split",
                reason: format!(
                    "`{url}` has several MDS datasets for `{split}`: {names}; give the folder of one as the URL"
                ),
            })
        }
    }
}
