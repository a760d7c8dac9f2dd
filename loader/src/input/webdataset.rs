//! WebDataset as an input: tar files in which consecutive members with one name, up to its first dot after the last
//! slash, make a sample. `a/0001.jpg` and `a/0001.cls` are the image and the class of sample `a/0001`. In place of images,
//! rows of numbers are read from the `json` members, where the settings or an export of feedline name their keys.
//!
//! Rules: members that are no files, and files whose name has no dot or begins with one, are passed
//! over. Every sample must have one image or row, and a label if any sample has one. A member that comes
//! twice in a sample is refused, and so is a key that comes back later in the same file: a writer
//! that sorted differently would lose one of the two. An archive must end as archives do, so that a
//! truncated one is noticed.
//!
//! Opening walks all headers, which reads small members whole; a block is about 1 MiB of consecutive samples, and its
//! headers are walked again when it is read. So the index has three numbers a block.

mod decode;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod label;
mod members;
mod rows;
mod walk;

use std::{
    collections::{BTreeSet, HashSet},
    ops::Range,
    sync::Arc,
};

use bytes::Bytes;
use feedline_schemas::{
    ids::Hash128,
    manifest::{Split, TargetKind},
};
use feedline_storage::{Listed, Store, tar::BLOCK};
use futures::{StreamExt, TryStreamExt, stream};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use self::{
    decode::SampleDecoder,
    label::Labels,
    members::{IMAGES, SampleMembers},
    rows::JsonRow,
    walk::{ArchiveWindow, Problem, roles_in, walk},
};
use super::block_rows::BlockRows;
use super::{
    config::{ColumnMap, InputConfig, check_target},
    foreign::{BlockSize, Foreign, OPEN_READS, origins},
    names::{TARGETS, UNKNOWN_CLASSES},
    opened::OpenedInput,
    record::RowContent,
    roles::{class_names, complete_columns, image_background, warn_of_target_in_features},
    splits::list,
    warnings::Warnings,
};
use crate::{
    Error,
    block_table::{BlockId, BlockTable},
    fetch::Extents,
};

/// A block ends with the sample that reaches this size.
const BLOCK_BYTES: u64 = 1 << 20;
/// Bytes of the first archive that are read for its roles of columns.
const FIRST_BYTES: u64 = 64 << 10;
/// Extensions that are remembered, to name them.
const MOST_EXTENSIONS: usize = 100;

/// The archives of a dataset.
#[derive(Debug)]
pub(super) struct WebDataset {
    foreign: Foreign,
    block_table: Arc<BlockTable>,
    decoder: SampleDecoder,
    /// Blocks of every archive.
    blocks: Vec<Vec<TarBlock>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct TarBlock {
    bytes: Range<u64>,
    rows: u32,
}

/// Result of walking an archive.
#[derive(Debug, Default)]
struct ArchiveIndex {
    blocks: Vec<TarBlock>,
    labels: Labels,
    /// Extensions of members.
    extensions: BTreeSet<String>,
    /// Numbers of the first row, where rows are read.
    width: Option<usize>,
    /// Roles of the columns of an export, as JSON.
    roles: Option<Bytes>,
    hash: u128,
}

impl WebDataset {
    /// Walks the headers of the archives `listed`.
    pub(super) async fn open(
        store: &Store,
        (split, folder): (Split, &str),
        listed: Vec<Listed>,
        config: &InputConfig,
        warnings: &Arc<Warnings>,
    ) -> Result<OpenedInput<Self>, Error> {
        let foreign = Foreign::new(store, folder, listed);
        let refuse = |reason| Error::File {
            url: store.url_of(folder),
            reason,
        };
        let named = first_roles(&foreign).await?;
        let text = named.as_ref().map(|text| String::from_utf8_lossy(text));
        let chosen = complete_columns(config, text.as_deref(), warnings).map_err(refuse)?;
        let classes = class_names(&chosen, text.as_deref());
        let wanted = members_to_read(&config.columns, &chosen).map_err(refuse)?;
        let count = u32::try_from(foreign.files().len()).unwrap_or(u32::MAX);
        let scans = (0..count).map(|file| scan(&foreign, file, &wanted));
        let indices: Vec<ArchiveIndex> = stream::iter(scans)
            .buffered(OPEN_READS)
            .try_collect()
            .await?;
        if config.columns.names_no_part() {
            check_same_roles(&foreign, &indices, named.as_ref())?;
        }
        let target = target(&indices, chosen.target, wanted.label.as_deref()).map_err(refuse)?;
        say(&indices, (target, chosen.target), &wanted, warnings);
        let features = width(&indices).map_err(refuse)?;
        let decoder = SampleDecoder {
            wanted: Arc::new(wanted),
            target,
            features,
            warnings: Arc::clone(warnings),
        };
        let record = decoder.record().map_err(refuse)?;
        let sizes: Vec<Vec<BlockSize>> = indices
            .iter()
            .map(|index| index.blocks.iter().map(|b| decoder.size(b)).collect())
            .collect();
        let block_table = foreign.block_table(split, &sizes)?;
        let mut identity = format!("webdataset {config:?}\n").into_bytes();
        for (file, index) in foreign.files().iter().zip(&indices) {
            let line = format!("{} {} {:032x}\n", file.path, file.bytes, index.hash);
            identity.extend(line.bytes());
        }
        Ok(OpenedInput {
            record,
            block_table: Arc::clone(&block_table),
            fingerprint: Hash128::of(&identity),
            classes,
            background: image_background(text.as_deref()),
            format: Self {
                foreign,
                block_table,
                decoder,
                blocks: indices.into_iter().map(|index| index.blocks).collect(),
            },
        })
    }

    pub(super) fn foreign(&self) -> &Foreign {
        &self.foreign
    }

    /// Names of the elements of `x`; `None` where samples are images, or a key of a row has a list.
    pub(super) fn column_names(&self) -> Option<Vec<Option<String>>> {
        let names = &self.decoder.wanted.row.as_ref()?.x;
        let are_numbers = names.len() == self.decoder.features;
        are_numbers.then(|| names.iter().cloned().map(Some).collect())
    }

    /// Byte range of the samples of a block.
    pub(super) fn range(&self, block: BlockId) -> Range<u64> {
        let blocks = &self.blocks[self.block_table.file_number(block) as usize];
        blocks[self.block_table.number(block) as usize]
            .bytes
            .clone()
    }

    /// Reads a block of samples.
    pub(super) async fn read(
        &self,
        block: BlockId,
        first: u64,
        extents: &dyn Extents,
    ) -> Result<BlockRows, Error> {
        let file = self.block_table.file_number(block);
        let number = self.block_table.number(block);
        let blocks = &self.blocks[file as usize];
        let TarBlock { bytes, rows } = blocks[number as usize].clone();
        let before = &blocks[..number as usize];
        let first_row = before.iter().map(|block| u64::from(block.rows)).sum();
        let (decoder, start) = (self.decoder.clone(), bytes.start);
        let seed = xxh3_64(self.foreign.file(file).path.as_bytes());
        let decode = move |parts: Vec<Bytes>| {
            let bytes = parts.into_iter().next().unwrap_or_default();
            Ok(decoder.decode(&bytes, start, rows, seed)?)
        };
        let mut read = self
            .foreign
            .read(extents, (file, number), &[bytes], first, decode)
            .await?;
        read.name(None, origins(file, first_row, rows as usize));
        Ok(read)
    }
}

/// Decides what the target is.
fn target(
    indices: &[ArchiveIndex],
    asked: Option<TargetKind>,
    named: Option<&str>,
) -> Result<TargetKind, String> {
    let sum = |count: fn(&Labels) -> u64| indices.iter().map(|i| count(&i.labels)).sum::<u64>();
    let (samples, labelled) = (sum(|l| l.samples), sum(|l| l.labelled));
    let is_fraction = indices.iter().any(|index| index.labels.is_fraction);
    let most = indices
        .iter()
        .map(|index| index.labels.most)
        .max()
        .unwrap_or(0);
    check_target(asked)?;
    if asked == Some(TargetKind::None) {
        return Ok(TargetKind::None);
    }
    let in_json = sum(|l| l.in_json);
    if in_json > 0 && in_json < labelled {
        return Err(format!(
            "`{in_json}` of its `{samples}` samples have their label in `json` and others in `cls`; name one in `columns.y`"
        ));
    }
    let keys = json_keys(indices);
    if keys.len() > 1 {
        return Err(format!(
            "its samples have their label in `json` under different keys, {}; name one in `columns.y`",
            list(keys.into_iter())
        ));
    }
    if let (0, Some(name)) = (labelled, named) {
        return Err(format!(
            "no sample has a member or a key in `json` called `{name}`, which `columns.y` names; its members are {}",
            members(indices)
                .into_iter()
                .map(|name| format!("`{name}`"))
                .collect::<Vec<_>>()
                .join(", ")
        ));
    }
    match (labelled, asked) {
        (0, None) => Ok(TargetKind::None),
        (0, Some(_)) => {
            Err("none of its samples has a label; name its extension in `columns.y`".into())
        }
        _ if labelled < samples => Err(format!(
            "`{labelled}` of its `{samples}` samples have a label; set `target` to none, or label all of them"
        )),
        (_, Some(TargetKind::Classification { .. })) if is_fraction => {
            Err("its labels are not all integers, so they are not classes".into())
        }
        (_, Some(asked)) => Ok(asked),
        (_, None) if is_fraction => Ok(TargetKind::Regression),
        (_, None) => Ok(TargetKind::Classification {
            classes: u32::try_from(most.saturating_add(1)).unwrap_or(UNKNOWN_CLASSES),
        }),
    }
}

impl SampleDecoder {
    /// Content of a row.
    fn record(&self) -> Result<RowContent, String> {
        let target = self.target;
        if self.wanted.row.is_none() {
            return Ok(RowContent::Images { target });
        }
        let features = u32::try_from(self.features);
        let features = features.map_err(|_| "its rows have more than 2^32 numbers")?;
        Ok(RowContent::Dense { features, target })
    }

    /// Rows of a block, and the bytes that they take.
    fn size(&self, block: &TarBlock) -> BlockSize {
        let rows = u64::from(block.rows);
        BlockSize {
            rows: block.rows,
            bytes: match self.wanted.row {
                Some(_) => rows * (self.features as u64 * 4 + 20),
                None => block.bytes.end - block.bytes.start,
            },
        }
    }
}

/// Members that are read, by the columns that the settings name and those that an export adds.
///
/// # Errors
/// A message for columns that samples cannot have.
fn members_to_read(named: &ColumnMap, chosen: &InputConfig) -> Result<SampleMembers, String> {
    let reads_labels = chosen.target != Some(TargetKind::None);
    let chosen = &chosen.columns;
    let reads_rows = !chosen.x.is_empty();
    let unknown = [
        ("tokens", named.tokens.is_some()),
        ("key", named.key.is_some() && !reads_rows),
    ];
    if let Some((name, _)) = unknown.iter().find(|(_, is_named)| *is_named) {
        return Err(format!(
            "`columns.{name}` is named, and of WebDataset an image and a label are read, or numbers of the `json` member; \
             leave it out"
        ));
    }
    named.check()?;
    if chosen.tokens.is_some() {
        return Err(
            "its samples are documents of token ids, and of WebDataset images and rows of numbers are read; export it as \
             Parquet or MDS, or read the dataset itself"
                .into(),
        );
    }
    Ok(SampleMembers {
        image: named.image.clone(),
        reads_labels,
        // An export has its target in the `json` member, whatever its name is.
        label: named
            .y
            .clone()
            .or_else(|| Some(format!("json.{}", chosen.y.as_deref()?))),
        key: chosen.key.clone().filter(|_| !reads_rows),
        row: reads_rows.then(|| JsonRow {
            x: chosen.x.clone(),
            key: chosen.key.clone(),
        }),
    })
}

/// Roles of the columns that the first archive names.
async fn first_roles(foreign: &Foreign) -> Result<Option<Bytes>, Error> {
    let bytes = foreign.files().first().map_or(0, |file| file.bytes);
    let bytes = bytes.min(FIRST_BYTES);
    if bytes < BLOCK {
        return Ok(None);
    }
    let mut window = ArchiveWindow {
        source: Some((foreign, 0)),
        start: 0,
        bytes: foreign.get_range(0, 0..bytes).await?,
        end: foreign.file(0).bytes,
    };
    roles_in(&mut window).await
}

/// Checks that the archives name the same roles: others are of another export, whose values may mean something else.
fn check_same_roles(
    foreign: &Foreign,
    indices: &[ArchiveIndex],
    named: Option<&Bytes>,
) -> Result<(), Error> {
    for (file, index) in (0..).zip(indices) {
        if !index.blocks.is_empty() && index.roles.as_ref() != named {
            let reason = "its first member names other columns as features and target than that of the first archive: it is of \
                          another export; read each export by itself, or name the columns in `columns`";
            return Err(foreign.refuse(file, reason));
        }
    }
    Ok(())
}

/// Numbers of a row; 0 where images are read.
fn width(indices: &[ArchiveIndex]) -> Result<usize, String> {
    let mut widths = indices.iter().filter_map(|index| index.width);
    let Some(first) = widths.next() else {
        return Ok(0);
    };
    if first == 0 {
        return Err(
            "the lists that `columns.x` names are empty, so its rows have no numbers".into(),
        );
    }
    match widths.find(|width| *width != first) {
        None => Ok(first),
        Some(other) => Err(format!(
            "the rows of one archive have `{first}` numbers, and those of another `{other}`"
        )),
    }
}

/// Extensions of all members.
fn members(indices: &[ArchiveIndex]) -> BTreeSet<&str> {
    let all = indices.iter().flat_map(|index| &index.extensions);
    all.map(String::as_str).collect()
}

/// Keys of the labels that are read from `json` members, though none is asked for.
fn json_keys(indices: &[ArchiveIndex]) -> BTreeSet<&'static str> {
    let keys = indices.iter().flat_map(|index| &index.labels.json_keys);
    keys.copied().collect()
}

/// Says what was decided about members that are not named.
fn say(
    indices: &[ArchiveIndex],
    (target, asked): (TargetKind, Option<TargetKind>),
    wanted: &SampleMembers,
    warnings: &Warnings,
) {
    let has_labels = |name: &str| name == "json" || name == "txt";
    if target == TargetKind::None && asked.is_none() && members(indices).into_iter().any(has_labels)
    {
        warnings.add(&format!(
            "no target is read, since no sample has a member `cls` or a number called {} in `json`; name the member or the \
             key in `columns.y`, or set `target` to none",
            list(TARGETS.iter().copied())
        ));
    }
    let in_json = json_keys(indices).pop_first();
    if let Some(key) = in_json {
        warnings.add(&format!(
            "labels are read from the `json` members, where their key is `{key}`; name the key in `columns.y`, or set `target` \
             to none"
        ));
    }
    let named = wanted.label.as_deref();
    let named = named.map(|label| label.strip_prefix("json.").unwrap_or(label));
    if let (Some(row), Some(y)) = (&wanted.row, named.or(in_json)) {
        warn_of_target_in_features(y, &row.x, warnings);
    }
    if wanted.image.is_some() || wanted.row.is_some() {
        return;
    }
    let is_image = |name: &&str| {
        let last = name.rsplit('.').next().unwrap_or(name);
        IMAGES.contains(&last) && !IMAGES.contains(name)
    };
    let others: Vec<&str> = members(indices).into_iter().filter(is_image).collect();
    if !others.is_empty() {
        warnings.add(&format!(
            "one image of a sample is read, and {} are not; name the extension of another in `columns.image`",
            list(others.into_iter())
        ));
    }
}

/// Walks an archive and cuts its samples into blocks.
async fn scan(foreign: &Foreign, file: u32, wanted: &SampleMembers) -> Result<ArchiveIndex, Error> {
    let mut window = ArchiveWindow {
        source: Some((foreign, file)),
        start: 0,
        bytes: Bytes::new(),
        end: foreign.file(file).bytes,
    };
    let mut index = ArchiveIndex::default();
    let mut keys = HashSet::new();
    let mut hash = Xxh3::new();
    index.roles = roles_in(&mut window).await?;
    hash.update(index.roles.as_deref().unwrap_or_default());
    let width = &mut index.width;
    let labels = &mut index.labels;
    let blocks = &mut index.blocks;
    let extensions = &mut index.extensions;
    let walked = walk(&mut window, wanted, &mut hash, |sample| {
        if !keys.insert(xxh3_64(sample.key.as_bytes())) {
            return Err(format!(
                "key `{}` comes twice, with other samples in between; sort the archive by name",
                sample.key
            ));
        }
        labels.take(sample.label, sample.json_label);
        if let (None, Some(row), Some(json)) = (&width, &wanted.row, &sample.json) {
            let read = row.width(json);
            *width = Some(read.map_err(|reason| format!("sample `{}`: {reason}", sample.key))?);
        }
        for extension in &sample.extensions {
            if extensions.len() < MOST_EXTENSIONS && !extensions.contains(extension) {
                extensions.insert(extension.clone());
            }
        }
        match blocks.last_mut() {
            Some(block) if block.bytes.end - block.bytes.start < BLOCK_BYTES => {
                block.bytes.end = sample.bytes.end;
                block.rows += 1;
            }
            _ => blocks.push(TarBlock {
                bytes: sample.bytes,
                rows: 1,
            }),
        }
        Ok(())
    });
    match walked.await {
        Ok(()) => {}
        Err(Problem::Read(error)) => return Err(error),
        Err(Problem::Content(reason)) => return Err(foreign.refuse(file, reason)),
    }
    // The last member's padding may be missing where nothing follows.
    let end = foreign.file(file).bytes;
    if let Some(last) = index.blocks.last_mut() {
        last.bytes.end = last.bytes.end.min(end);
    }
    index.hash = hash.digest128();
    Ok(index)
}
