//! WebDataset as an input: tar files in which consecutive members with one name, up to its first dot after the last
//! slash, make a sample. `a/0001.jpg` and `a/0001.cls` are the image and the class of sample `a/0001`.
//!
//! Rules: members that are no files, and files whose name has no dot or begins with one, are passed
//! over. Every sample must have one image, and a label if any sample has one. A member that comes
//! twice in a sample is refused, and so is a key that comes back later in the same file: a writer
//! that sorted differently would lose one of the two. An archive must end as archives do, so that a
//! truncated one is noticed.
//!
//! Opening walks all headers, which reads small members whole; a block is about 1 MiB of consecutive samples, and its
//! headers are walked again when it is read. So the index has three numbers a block.

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod label;
mod members;
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
use feedline_storage::{Listed, Store};
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use xxhash_rust::xxh3::{Xxh3, xxh3_64, xxh3_64_with_seed};

use self::{
    label::{Label, Labels},
    members::{IMAGES, SampleMembers},
    walk::{ArchiveWindow, Problem, walk},
};
use super::block_rows::{BlockRows, BlockTarget, ImageRows, Spans};
use super::{
    config::{ColumnMap, InputConfig, check_target},
    foreign::{BlockSize, Foreign, OPEN_READS, origins},
    names::UNKNOWN_CLASSES,
    opened::OpenedInput,
    record::RowContent,
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
/// Extensions that are remembered, to name them.
const MOST_EXTENSIONS: usize = 100;

/// The archives of a dataset.
#[derive(Debug)]
pub(super) struct WebDataset {
    foreign: Foreign,
    block_table: Arc<BlockTable>,
    wanted: Arc<SampleMembers>,
    target: TargetKind,
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
    hash: u128,
}

impl WebDataset {
    /// Walks the headers of the archives `listed`.
    pub(super) async fn open(
        store: &Store,
        (split, folder): (Split, &str),
        listed: Vec<Listed>,
        config: &InputConfig,
        warnings: &Warnings,
    ) -> Result<OpenedInput<Self>, Error> {
        let foreign = Foreign::new(store, folder, listed);
        let refuse = |reason| Error::File {
            url: store.url_of(folder),
            reason,
        };
        check(&config.columns).map_err(refuse)?;
        let wanted = SampleMembers {
            image: config.columns.image.clone(),
            label: config.columns.y.clone(),
        };
        let count = u32::try_from(foreign.files().len()).unwrap_or(u32::MAX);
        let scans = (0..count).map(|file| scan(&foreign, file, &wanted));
        let indices: Vec<ArchiveIndex> = stream::iter(scans)
            .buffered(OPEN_READS)
            .try_collect()
            .await?;
        let target = target(&indices, config.target, wanted.label.as_deref()).map_err(refuse)?;
        say(&indices, target, &wanted, warnings);
        let size = |block: &TarBlock| BlockSize {
            rows: block.rows,
            bytes: block.bytes.end - block.bytes.start,
        };
        let sizes = indices
            .iter()
            .map(|index| index.blocks.iter().map(size).collect());
        let block_table = foreign.block_table(split, &sizes.collect::<Vec<_>>())?;
        let mut identity = format!("webdataset {config:?}\n").into_bytes();
        for (file, index) in foreign.files().iter().zip(&indices) {
            let line = format!("{} {} {:032x}\n", file.path, file.bytes, index.hash);
            identity.extend(line.bytes());
        }
        Ok(OpenedInput {
            record: RowContent::Images { target },
            block_table: Arc::clone(&block_table),
            fingerprint: Hash128::of(&identity),
            format: Self {
                foreign,
                block_table,
                wanted: Arc::new(wanted),
                target,
                blocks: indices.into_iter().map(|index| index.blocks).collect(),
            },
        })
    }

    pub(super) fn foreign(&self) -> &Foreign {
        &self.foreign
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
        let (wanted, target, start) = (Arc::clone(&self.wanted), self.target, bytes.start);
        let seed = xxh3_64(self.foreign.file(file).path.as_bytes());
        let decode = move |parts: Vec<Bytes>| {
            let bytes = parts.into_iter().next().unwrap_or_default();
            Ok(images(&bytes, start, rows, &wanted, target, seed)?)
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
            classes: u32::try_from(most + 1).unwrap_or(UNKNOWN_CLASSES),
        }),
    }
}

/// Refuses names of columns that samples cannot have.
fn check(columns: &ColumnMap) -> Result<(), String> {
    let unknown = [
        ("x", !columns.x.is_empty()),
        ("tokens", columns.tokens.is_some()),
        ("key", columns.key.is_some()),
    ];
    match unknown.iter().find(|(_, is_named)| *is_named) {
        None => Ok(()),
        Some((name, _)) => Err(format!(
            "`columns.{name}` is named, and of WebDataset an image and a label are read; leave it out"
        )),
    }
}

/// Extensions of all members.
fn members(indices: &[ArchiveIndex]) -> BTreeSet<&str> {
    let all = indices.iter().flat_map(|index| &index.extensions);
    all.map(String::as_str).collect()
}

/// Says what was decided about members that are not named.
fn say(indices: &[ArchiveIndex], target: TargetKind, wanted: &SampleMembers, warnings: &Warnings) {
    if target != TargetKind::None && indices.iter().any(|index| index.labels.in_json > 0) {
        warnings.add(
            "labels are read from the `json` members; name the key in `columns.y`, or set `target` to none",
        );
    }
    if wanted.image.is_some() {
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

/// The rows of a block whose bytes begin at `start` of the archive. Images stay where they are.
fn images(
    bytes: &Bytes,
    start: u64,
    rows: u32,
    wanted: &SampleMembers,
    target: TargetKind,
    seed: u64,
) -> Result<BlockRows, String> {
    let count = rows as usize;
    let mut window = ArchiveWindow {
        source: None,
        start,
        bytes: bytes.clone(),
        end: start + bytes.len() as u64,
    };
    let (mut spans, mut keys) = (Vec::with_capacity(count), Vec::with_capacity(count));
    let (mut numbers, mut classes) = (Vec::new(), Vec::new());
    let mut unused = Xxh3::new();
    let walked = walk(&mut window, wanted, &mut unused, |sample| {
        let image = sample.image.unwrap_or(0..0);
        let at = |offset: u64| usize::try_from(offset - start).unwrap_or(usize::MAX);
        spans.push((at(image.start), at(image.end)));
        keys.push(xxh3_64_with_seed(sample.key.as_bytes(), seed));
        match (target, sample.label.or(sample.json_label)) {
            (TargetKind::None | TargetKind::Regressions { .. }, _) => {}
            (TargetKind::Regression, Some(label)) => numbers.push(label.as_number()),
            (TargetKind::Classification { .. }, Some(Label::Integer(class))) => {
                // What does not fit is out of range, and -1 is so too.
                classes.push(i32::try_from(class).unwrap_or(-1));
            }
            _ => return Err(format!("sample `{}` has no label that fits", sample.key)),
        }
        Ok(())
    });
    match walked.now_or_never() {
        Some(Ok(())) => {}
        Some(Err(Problem::Content(reason))) => return Err(reason),
        Some(Err(Problem::Read(_))) | None => return Err("a member is outside its block".into()),
    }
    if spans.len() != count {
        let found = spans.len();
        return Err(format!(
            "it has `{found}` samples, and had `{rows}` when the archive was opened"
        ));
    }
    Ok(BlockRows::Images(ImageRows {
        bytes: bytes.clone().into(),
        spans: Spans::Apart(spans),
        y: match target {
            TargetKind::None | TargetKind::Regressions { .. } => BlockTarget::None,
            TargetKind::Regression => BlockTarget::Regression(numbers.into()),
            TargetKind::Classification { .. } => BlockTarget::Classification(classes.into()),
        },
        keys: keys.into(),
        origins: Vec::new().into(),
        bad: Vec::new(),
    }))
}
