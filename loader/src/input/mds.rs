//! MDS, the format of MosaicML streaming, version 2, as an input.
//!
//! `index.json` names the shards. A shard is: number of samples `n` (`u32`), `n + 1` offsets (`u32`, from the file's
//! beginning; the last is the file's length), the writer's settings as JSON, and the samples. A sample is the lengths
//! (`u32`) of its columns that have no fixed size, then the columns' values, in the order of the index. All numbers are
//! little endian.
//!
//! Blocks are about 1 MiB of consecutive samples, cut by their number, so that opening reads nothing but the index. The
//! table of offsets is read when a shard is first touched. A shard compressed with zstd is one block. Hashes of shards by
//! xxh3 (64 or 128 bits) are compared: of a compressed shard whenever it is read, of a plain one when it is first touched,
//! which reads it once more; other hashes are not compared, and a warning says so.

mod choice;
mod column;
mod encoding;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod index;

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use feedline_schemas::{ids::Hash128, manifest::Split};
use feedline_storage::{Listed, Store};
use tokio::sync::OnceCell;

use super::block_rows::BlockRows;
use super::{
    config::InputConfig,
    foreign::{BlockSize, Foreign, origins},
    opened::OpenedInput,
    record::RowContent,
    roles::{class_names, complete_columns, image_background},
    warnings::Warnings,
};
use crate::{
    Error,
    block_table::{BlockId, BlockTable},
    fetch::{Extents, Identity},
};
use column::ChosenMdsColumns;
use index::{Digest, MdsIndex, ShardEntry};

/// Size that blocks have about.
const BLOCK_BYTES: u64 = 1 << 20;
/// Bytes that are read at once while a hash is computed.
const HASH_BYTES: u64 = 8 << 20;

/// The shards of a dataset.
#[derive(Debug)]
pub(super) struct Mds {
    foreign: Foreign,
    block_table: Arc<BlockTable>,
    wanted: Arc<ChosenMdsColumns>,
    shards: Vec<MdsShard>,
}

#[derive(Debug)]
struct MdsShard {
    entry: ShardEntry,
    /// Samples in every block but the last.
    block_rows: u32,
    /// Starts of all blocks, and the end of the last; read when first needed.
    bounds: OnceCell<Arc<[u64]>>,
}

impl Mds {
    /// Opens the dataset whose index is `folder/index.json`.
    pub(super) async fn open(
        store: &Store,
        (split, folder): (Split, &str),
        config: &InputConfig,
        warnings: &Arc<Warnings>,
    ) -> Result<OpenedInput<Self>, Error> {
        let path = join(folder, "index.json");
        let url = store.url_of(&path);
        let text = store.get(&path).await.map_err(|source| Error::Storage {
            url: url.clone(),
            source: Box::new(source),
        })?;
        let refuse = |reason| Error::File {
            url: url.clone(),
            reason,
        };
        let index = MdsIndex::read(&text).map_err(refuse)?;
        let listed = index.shards.iter().map(|shard| Listed {
            etag: None,
            modified: None,
            path: join(folder, &shard.stored().basename),
            bytes: shard.stored().bytes,
        });
        let foreign = Foreign::new(store, folder, listed.collect());
        let named = index.roles.as_ref().map(ToString::to_string);
        let chosen = complete_columns(config, named.as_deref(), warnings).map_err(refuse)?;
        let classes = class_names(&chosen, named.as_deref());
        let (wanted, record) = ChosenMdsColumns::find(&index, &chosen, warnings).map_err(refuse)?;
        if let Some(shard) = index.unchecked_hashes() {
            warnings.add(&format!(
                "hashes of shard `{shard}` in its index are of kinds that are not compared, so that damage may stay unnoticed; \
                 write the dataset with `hashes=[\"xxh3_64\"]`"
            ));
        }
        let shards: Vec<_> = index.shards.into_iter().map(MdsShard::new).collect();
        let sizes: Vec<_> = shards.iter().map(|shard| shard.sizes(&record)).collect();
        let block_table = foreign.block_table(split, &sizes)?;
        let mut identity = format!("mds {folder} {config:?}\n").into_bytes();
        identity.extend_from_slice(&text);
        Ok(OpenedInput {
            record,
            block_table: Arc::clone(&block_table),
            fingerprint: Hash128::of(&identity),
            classes,
            background: image_background(named.as_deref()),
            format: Self {
                foreign,
                block_table,
                wanted: Arc::new(wanted),
                shards,
            },
        })
    }

    pub(super) fn foreign(&self) -> &Foreign {
        &self.foreign
    }

    /// Names of the elements of `x`.
    pub(super) fn column_names(&self) -> Option<Vec<Option<String>>> {
        self.wanted.column_names()
    }

    /// Byte range of the samples of a block, once the table at the beginning of its shard was read.
    pub(super) fn range(&self, block: BlockId) -> Option<Range<u64>> {
        let shard = &self.shards[self.block_table.file_number(block) as usize];
        if shard.entry.zip_data.is_some() {
            return Some(0..shard.entry.stored().bytes);
        }
        let number = self.block_table.number(block) as usize;
        let bounds = shard.bounds.get()?;
        Some(bounds[number]..bounds[number + 1])
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
        let rows = self.block_table.rows(block) as usize;
        let shard = &self.shards[file as usize];
        let wanted = Arc::clone(&self.wanted);
        let (mut read, keyed) = if shard.entry.zip_data.is_some() {
            let range = 0..shard.entry.stored().bytes;
            let entry = shard.entry.clone();
            let decode = move |parts: Vec<Bytes>| {
                let raw = unpack(&parts[0], &entry)?;
                let bounds = bounds(&raw, &entry, entry.samples)?;
                Ok(wanted.rows(&raw.slice(at(bounds[0])..), rows)?)
            };
            self.foreign
                .read(extents, (file, number), &[range], first, decode)
                .await?
        } else {
            let bounds = self.bounds(file, number, first, extents).await?;
            let range = bounds[number as usize]..bounds[number as usize + 1];
            let decode = move |parts: Vec<Bytes>| Ok(wanted.rows(&parts[0], rows)?);
            self.foreign
                .read(extents, (file, number), &[range], first, decode)
                .await?
        };
        let first_row = u64::from(number) * u64::from(shard.block_rows);
        let keys = (!keyed).then(|| self.foreign.keys(file, first_row, rows));
        read.name(keys, origins(file, first_row, rows));
        Ok(read)
    }

    /// Bounds of the blocks of a plain shard. Checks the shard's hash if it has one.
    async fn bounds(
        &self,
        file: u32,
        block: u32,
        first: u64,
        extents: &dyn Extents,
    ) -> Result<Arc<[u64]>, Error> {
        let shard = &self.shards[file as usize];
        let read = || async {
            self.check_hash(file, block, first, extents).await?;
            let head = 0..index::head_bytes(shard.entry.samples);
            let (entry, rows) = (shard.entry.clone(), shard.block_rows);
            let decode = move |parts: Vec<Bytes>| Ok(bounds(&parts[0], &entry, rows)?);
            self.foreign
                .read(extents, (file, block), &[head], first, decode)
                .await
        };
        shard.bounds.get_or_try_init(read).await.cloned()
    }

    /// Bounds of the parts in which a shard is hashed: the parts that are read of it later, if
    /// these stay available until then.
    async fn hash_cuts(
        &self,
        file: u32,
        block: u32,
        first: u64,
        extents: &dyn Extents,
    ) -> Result<(Vec<u64>, Identity), Error> {
        let shard = &self.shards[file as usize];
        let (entry, end) = (&shard.entry, shard.entry.raw_data.bytes);
        if extents.keeps() {
            let head = index::head_bytes(entry.samples);
            let part = (0..head, Identity::Version);
            let table = self.foreign.glance(extents, (file, block), part, first);
            // A table that makes no sense is damaged, as the hash will show.
            if let Ok(bounds) = bounds(&table.await?, entry, shard.block_rows) {
                let mut cuts = vec![0, head];
                cuts.extend(bounds.iter());
                cuts.dedup();
                return Ok((cuts, Identity::Version));
            }
        }
        let cuts = (0..end).step_by(at(HASH_BYTES)).chain([end]);
        Ok((cuts.collect(), Identity::Passing))
    }

    async fn check_hash(
        &self,
        file: u32,
        block: u32,
        first: u64,
        extents: &dyn Extents,
    ) -> Result<(), Error> {
        let entry = &self.shards[file as usize].entry;
        let Some(mut digest) = Digest::of(&entry.raw_data) else {
            return Ok(());
        };
        let (cuts, identity) = self.hash_cuts(file, block, first, extents).await?;
        for cut in cuts.windows(2) {
            let part = (cut[0]..cut[1], identity);
            let bytes = self.foreign.glance(extents, (file, block), part, first);
            digest.update(&bytes.await?);
        }
        digest.finish().map_err(|reason| Error::Corrupt {
            shard: self.foreign.url(file),
            block,
            reason,
        })
    }
}

impl MdsShard {
    fn new(entry: ShardEntry) -> Self {
        let blocks = match entry.zip_data {
            Some(_) => 1,
            None => entry.raw_data.bytes.div_ceil(BLOCK_BYTES).max(1),
        };
        let rows = u64::from(entry.samples).div_ceil(blocks).max(1);
        Self {
            block_rows: u32::try_from(rows).unwrap_or(u32::MAX),
            bounds: OnceCell::new(),
            entry,
        }
    }

    fn sizes(&self, record: &RowContent) -> Vec<BlockSize> {
        let mean = self.entry.raw_data.bytes / u64::from(self.entry.samples.max(1));
        let row_bytes = match record {
            RowContent::Dense { features, .. } => u64::from(*features) * 4 + 20,
            _ => mean + 20,
        };
        let starts = (0..self.entry.samples).step_by(self.block_rows as usize);
        let rows = starts.map(|start| self.block_rows.min(self.entry.samples - start));
        rows.map(|rows| BlockSize {
            rows,
            bytes: u64::from(rows) * row_bytes,
        })
        .collect()
    }
}

/// Reads the table of offsets at the beginning of a shard; returns where every run of `block_rows` samples begins, and
/// the end.
fn bounds(head: &[u8], entry: &ShardEntry, block_rows: u32) -> Result<Arc<[u64]>, String> {
    let numbers = head
        .chunks_exact(4)
        .map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    let mut numbers = numbers.take(entry.samples as usize + 2);
    if numbers.next() != Some(entry.samples) {
        return Err(format!(
            "it does not begin with its `{}` samples",
            entry.samples
        ));
    }
    let offsets: Vec<u32> = numbers.collect();
    let least = index::head_bytes(entry.samples);
    let is_sorted = offsets.is_sorted() && offsets.first().is_some_and(|o| u64::from(*o) >= least);
    if offsets.len() != entry.samples as usize + 1
        || !is_sorted
        || offsets.last().map(|last| u64::from(*last)) != Some(entry.raw_data.bytes)
    {
        return Err("its table of offsets does not fit its size".into());
    }
    let starts = offsets[..entry.samples as usize]
        .iter()
        .step_by(block_rows.max(1) as usize);
    Ok(starts
        .chain(offsets.last())
        .map(|offset| u64::from(*offset))
        .collect())
}

/// Decompresses a shard, comparing the hashes of both forms.
fn unpack(stored: &Bytes, entry: &ShardEntry) -> Result<Bytes, String> {
    if let Some(zip) = &entry.zip_data {
        Digest::check(zip, stored)?;
    }
    let bytes = entry.raw_data.bytes;
    let raw = zstd::bulk::decompress(stored, at(bytes))
        .map_err(|e| format!("it cannot be decompressed: {e}"))?;
    if raw.len() as u64 != bytes {
        return Err(format!(
            "it has `{}` bytes and its index says `{bytes}`",
            raw.len()
        ));
    }
    Digest::check(&entry.raw_data, &raw)?;
    Ok(raw.into())
}

fn at(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}

fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() {
        name.to_owned()
    } else {
        format!("{folder}/{name}")
    }
}
