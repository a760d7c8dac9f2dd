//! Apache Parquet as an input: a block is a row group, and only the wanted columns are read.
//!
//! Footers are read when the dataset is opened. Columns are found in the first file; every other must have them with the
//! same types. Pages with a CRC-32 are checked against it, see [`super::pages`].

mod choice;
mod columns;
mod convert;
mod pages;

use std::{ops::Range, sync::Arc};

use arrow::{array::RecordBatch, compute::concat_batches};
use bytes::{Buf, Bytes};
use feedline_schemas::{export::ROLES, ids::Hash128, manifest::Split};
use feedline_storage::{Listed, Store};
use futures::{StreamExt, TryStreamExt, stream};
use parquet::{
    arrow::{
        ProjectionMask,
        arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder},
    },
    errors::ParquetError,
    file::{
        metadata::{ParquetMetaDataReader, RowGroupMetaData},
        reader::{ChunkReader, Length},
    },
};

use super::block_rows::BlockRows;
use super::{
    config::InputConfig,
    foreign::{BlockSize, Foreign, OPEN_READS, RefusedBytes, origins},
    opened::OpenedInput,
    record::RowContent,
    roles::{class_names, complete_columns, image_background},
    warnings::Warnings,
};
use crate::{
    Error,
    block_table::{BlockId, BlockTable},
    fetch::Extents,
    guard::catching,
};
use columns::ChosenParquetColumns;

/// Trailer of a file: length of the footer (4 bytes) and magic.
const TRAILER: u64 = 8;
/// Footers up to this length come with the first read.
const FOOTER_GUESS: u64 = 64 << 10;
/// Longest footer that is read.
const MOST_FOOTER: u64 = 256 << 20;
/// Columns with fewer unwanted bytes between them are read together.
const GAP: u64 = 256 << 10;

/// The files of a dataset.
#[derive(Debug)]
pub(super) struct Parquet {
    foreign: Foreign,
    block_table: Arc<BlockTable>,
    wanted: Arc<ChosenParquetColumns>,
    footers: Vec<Footer>,
}

#[derive(Clone, Debug)]
struct Footer {
    metadata: ArrowReaderMetadata,
    mask: ProjectionMask,
    /// Leaf columns that are read.
    leaves: Arc<[usize]>,
    hash: Hash128,
}

impl Parquet {
    /// Reads the footers of the files `listed`.
    pub(super) async fn open(
        store: &Store,
        (split, folder): (Split, &str),
        listed: Vec<Listed>,
        config: &InputConfig,
        warnings: &Arc<Warnings>,
    ) -> Result<OpenedInput<Self>, Error> {
        let foreign = Foreign::new(store, folder, listed);
        let count = u32::try_from(foreign.files().len()).unwrap_or(u32::MAX);
        let reads = (0..count).map(|file| read_footer(&foreign, file));
        let read: Vec<(ArrowReaderMetadata, Hash128)> = stream::iter(reads)
            .buffered(OPEN_READS)
            .try_collect()
            .await?;
        let mut of_files = (0_u32..).zip(&read);
        let with_rows = of_files.find(|(_, (metadata, _))| has_rows(metadata));
        let Some((first_file, (first, _))) = with_rows else {
            return Err(Error::File {
                url: store.url_of(folder),
                reason: "none of its files has a row".into(),
            });
        };
        let refuse = |reason| Error::File {
            url: store.url_of(folder),
            reason,
        };
        let named = roles_in(first);
        let chosen = complete_columns(config, named, warnings).map_err(refuse)?;
        let classes = class_names(&chosen, named);
        let background = image_background(named);
        if config.columns.names_no_part() {
            check_same_roles(&foreign, &read, named)?;
        }
        let (wanted, record) =
            ChosenParquetColumns::find(first, read.iter().map(|(m, _)| m), &chosen, warnings)
                .map_err(refuse)?;
        let mut footers = Vec::with_capacity(read.len());
        let mut blocks = Vec::with_capacity(read.len());
        for (file, (metadata, hash)) in (0..).zip(read) {
            let footer = select(&wanted, metadata, hash).map_err(|difference| {
                let first = foreign.url(first_file);
                foreign.refuse(file, format!("{difference} in `{first}`"))
            })?;
            let sizes = block_sizes(&footer, &record, foreign.file(file).bytes);
            blocks.push(sizes.map_err(|reason| foreign.refuse(file, reason))?);
            footers.push(footer);
        }
        let block_table = foreign.block_table(split, &blocks)?;
        let mut identity = format!("parquet {config:?}\n").into_bytes();
        for (file, footer) in foreign.files().iter().zip(&footers) {
            identity.extend(format!("{} {} {}\n", file.path, file.bytes, footer.hash).bytes());
        }
        Ok(OpenedInput {
            record,
            block_table: Arc::clone(&block_table),
            fingerprint: Hash128::of(&identity),
            classes,
            background,
            format: Self {
                foreign,
                block_table,
                wanted: Arc::new(wanted),
                footers,
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

    /// Byte ranges of the wanted columns of a row group.
    pub(super) fn ranges(&self, block: BlockId) -> Vec<Range<u64>> {
        let footer = &self.footers[self.block_table.file_number(block) as usize];
        let group = self.block_table.number(block) as usize;
        let group = footer.metadata.metadata().row_group(group);
        merged(footer.leaves.iter().map(|leaf| chunk(group, *leaf)))
    }

    /// Reads a row group.
    pub(super) async fn read(
        &self,
        block: BlockId,
        first: u64,
        extents: &dyn Extents,
    ) -> Result<BlockRows, Error> {
        let file = self.block_table.file_number(block);
        let group = self.block_table.number(block);
        let footer = &self.footers[file as usize];
        let ranges = self.ranges(block);
        let before = &footer.metadata.metadata().row_groups()[..group as usize];
        let first_row = before.iter().map(rows_of).sum::<u64>();
        let rows = self.block_table.rows(block) as usize;
        let task = DecodeTask {
            footer: footer.clone(),
            wanted: Arc::clone(&self.wanted),
            group: group as usize,
            starts: ranges.iter().map(|range| range.start).collect(),
            bytes: self.foreign.file(file).bytes,
            rows,
        };
        let task = Arc::new(task);
        let decode = move |parts| task.decode(parts);
        let (mut rows_read, keyed) = self
            .foreign
            .read(extents, (file, group), &ranges, first, decode)
            .await?;
        let keys = (!keyed).then(|| self.foreign.keys(file, first_row, rows));
        rows_read.name(keys, origins(file, first_row, rows));
        Ok(rows_read)
    }
}

/// Inputs of decoding, which runs on another thread than reading.
struct DecodeTask {
    footer: Footer,
    wanted: Arc<ChosenParquetColumns>,
    group: usize,
    starts: Vec<u64>,
    bytes: u64,
    rows: usize,
}

impl DecodeTask {
    fn decode(&self, parts: Vec<Bytes>) -> Result<(BlockRows, bool), RefusedBytes> {
        let parts = FileParts {
            parts: self.starts.iter().copied().zip(parts).collect(),
            bytes: self.bytes,
        };
        let row_group = self.footer.metadata.metadata().row_group(self.group);
        for leaf in self.footer.leaves.iter() {
            let chunk = chunk(row_group, *leaf);
            let bytes = parts.slice(chunk.start, chunk.end - chunk.start);
            pages::check(&bytes.ok_or_else(|| "a column is outside the file".to_owned())?)
                .map_err(|reason| {
                    let column = row_group.column(*leaf).column_path();
                    format!("column `{column}`: {reason}")
                })?;
        }
        let batch = self.batch(parts).map_err(|e| e.to_string())?;
        if batch.num_rows() != self.rows {
            let found = batch.num_rows();
            return Err(
                format!("it has `{found}` rows and the footer says `{}`", self.rows).into(),
            );
        }
        self.wanted
            .check_nulls(&batch)
            .map_err(RefusedBytes::Content)?;
        self.wanted.rows(&batch)
    }

    fn batch(&self, parts: FileParts) -> Result<RecordBatch, ParquetError> {
        let reader =
            ParquetRecordBatchReaderBuilder::new_with_metadata(parts, self.footer.metadata.clone());
        let reader = reader
            .with_projection(self.footer.mask.clone())
            .with_row_groups(vec![self.group])
            .with_batch_size(self.rows)
            .build()?;
        let batches = reader.collect::<Result<Vec<_>, _>>()?;
        match batches.as_slice() {
            [one] => Ok(one.clone()),
            [] => Err(ParquetError::EOF("there are no rows".into())),
            [first, ..] => Ok(concat_batches(&first.schema(), &batches)?),
        }
    }
}

/// Parts of a file, with where they begin in it.
struct FileParts {
    parts: Vec<(u64, Bytes)>,
    bytes: u64,
}

impl FileParts {
    fn slice(&self, start: u64, length: u64) -> Option<Bytes> {
        let number = self.parts.partition_point(|(begin, _)| *begin <= start);
        let (begin, bytes) = self.parts.get(number.checked_sub(1)?)?;
        let from = usize::try_from(start - begin).ok()?;
        let to = from.checked_add(usize::try_from(length).ok()?)?;
        (to <= bytes.len()).then(|| bytes.slice(from..to))
    }
}

impl Length for FileParts {
    fn len(&self) -> u64 {
        self.bytes
    }
}

impl ChunkReader for FileParts {
    type T = bytes::buf::Reader<Bytes>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        let number = self.parts.partition_point(|(begin, _)| *begin <= start);
        let part = number
            .checked_sub(1)
            .and_then(|number| self.parts.get(number));
        let (begin, bytes) = part.ok_or_else(outside)?;
        let from = usize::try_from(start - begin).map_err(|_| outside())?;
        if from > bytes.len() {
            return Err(outside());
        }
        Ok(bytes.slice(from..).reader())
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        self.slice(start, length as u64).ok_or_else(outside)
    }
}

fn outside() -> ParquetError {
    ParquetError::EOF("a page is outside its column".into())
}

async fn read_footer(
    foreign: &Foreign,
    file: u32,
) -> Result<(ArrowReaderMetadata, Hash128), Error> {
    let bytes = foreign.file(file).bytes;
    let refuse = |reason: String| foreign.refuse(file, reason);
    if bytes < TRAILER + 4 {
        return Err(refuse(format!(
            "its `{bytes}` bytes are too few for a Parquet file"
        )));
    }
    let mut tail = foreign
        .get_range(file, bytes.saturating_sub(FOOTER_GUESS)..bytes)
        .await?;
    let trailer = tail.slice(tail.len() - 8..);
    if &trailer[4..] != b"PAR1" {
        return Err(refuse(
            "it does not end as a Parquet file does; it is damaged, truncated, or encrypted".into(),
        ));
    }
    let length = u64::from(u32::from_le_bytes([
        trailer[0], trailer[1], trailer[2], trailer[3],
    ]));
    if length + TRAILER + 4 > bytes || length > MOST_FOOTER {
        return Err(refuse(format!(
            "its footer of `{length}` bytes cannot be right"
        )));
    }
    if length + TRAILER > tail.len() as u64 {
        tail = foreign
            .get_range(file, bytes - TRAILER - length..bytes)
            .await?;
    }
    let end = tail.len() - 8;
    let start = end - usize::try_from(length).unwrap_or(end);
    let footer = tail.slice(start..end);
    let metadata = catching(|| {
        let metadata = ParquetMetaDataReader::decode_metadata(&footer)?;
        ArrowReaderMetadata::try_new(Arc::new(metadata), ArrowReaderOptions::new())
    });
    let metadata = metadata.and_then(|result| result.map_err(|e| e.to_string()));
    let metadata = metadata.map_err(|e| refuse(format!("its footer cannot be read: {e}")))?;
    Ok((metadata, Hash128::of(&footer)))
}

/// Returns true if a file has a row, and not only a schema or empty row groups.
fn has_rows(metadata: &ArrowReaderMetadata) -> bool {
    let mut groups = metadata.metadata().row_groups().iter();
    groups.any(|group| group.num_rows() > 0)
}

/// Roles of the columns that the footer of an export names, as JSON.
fn roles_in(metadata: &ArrowReaderMetadata) -> Option<&str> {
    let pairs = metadata.metadata().file_metadata().key_value_metadata()?;
    let pair = pairs.iter().find(|pair| pair.key == ROLES)?;
    pair.value.as_deref()
}

/// Checks that the files with rows name the same roles: others are of another export, whose values may mean something else.
fn check_same_roles(
    foreign: &Foreign,
    read: &[(ArrowReaderMetadata, Hash128)],
    named: Option<&str>,
) -> Result<(), Error> {
    for (file, (metadata, _)) in (0..).zip(read) {
        if has_rows(metadata) && roles_in(metadata) != named {
            let reason = format!(
                "it names other columns as features and target in `{ROLES}` than the first file does: it is of another export; \
                 read each export by itself, or name the columns in `columns`"
            );
            return Err(foreign.refuse(file, reason));
        }
    }
    Ok(())
}

/// Finds what is wanted in one file.
fn select(
    wanted: &ChosenParquetColumns,
    metadata: ArrowReaderMetadata,
    hash: Hash128,
) -> Result<Footer, String> {
    wanted.compare(metadata.schema())?;
    let schema = metadata.parquet_schema();
    let leaves: Vec<usize> = (0..schema.num_columns())
        .filter(|leaf| wanted.has_leaf(schema.column(*leaf).path().parts()))
        .collect();
    Ok(Footer {
        mask: ProjectionMask::leaves(schema, leaves.iter().copied()),
        leaves: leaves.into(),
        metadata,
        hash,
    })
}

/// Checks that the wanted columns of every row group are inside the file, and returns the memory
/// that its rows take.
fn block_sizes(footer: &Footer, record: &RowContent, bytes: u64) -> Result<Vec<BlockSize>, String> {
    let groups = footer.metadata.metadata().row_groups().iter();
    let size = |(number, group): (usize, &RowGroupMetaData)| {
        let rows = u32::try_from(group.num_rows())
            .map_err(|_| format!("row group `{number}` says `{}` rows", group.num_rows()))?;
        let mut held = 0;
        for leaf in footer.leaves.iter() {
            let column = group.column(*leaf);
            let chunk = catching(|| chunk(group, *leaf));
            let chunk = chunk.ok().filter(|c| c.start <= c.end && c.end <= bytes);
            let Some(_) = chunk else {
                let path = column.column_path();
                return Err(format!(
                    "column `{path}` of row group `{number}` is outside the file's `{bytes}` bytes; it is truncated"
                ));
            };
            held += u64::try_from(column.uncompressed_size()).unwrap_or(0);
        }
        if let RowContent::Dense { features, .. } = record {
            held = u64::from(rows) * (u64::from(*features) * 4 + 20);
        }
        Ok(BlockSize { rows, bytes: held })
    };
    groups.enumerate().map(size).collect()
}

fn rows_of(group: &RowGroupMetaData) -> u64 {
    u64::try_from(group.num_rows()).unwrap_or(0)
}

/// Byte range of a column of a row group in the file.
fn chunk(group: &RowGroupMetaData, leaf: usize) -> Range<u64> {
    let (start, length) = group.column(leaf).byte_range();
    start..start.saturating_add(length)
}

/// Ranges in order, those that nearly touch as one.
fn merged(ranges: impl Iterator<Item = Range<u64>>) -> Vec<Range<u64>> {
    let mut ranges: Vec<_> = ranges.collect();
    ranges.sort_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end + GAP => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_that_nearly_touch_are_read_together() {
        let far = 10 + GAP + 1;
        assert_eq!(
            merged([far..far + 5, 0..4, 6..10, 2..5].into_iter()),
            [0..10, far..far + 5]
        );
        let near = merged([0..10, 10 + GAP..far].into_iter());
        assert_eq!((near.len(), near[0].end), (1, far));
    }
}
