//! Images that are decoded while rows are staged: stored in the size and format that
//! `[dataset.image]` sets, or rejected with a description of the fault.
//!
//! Each good row gets `_sums`, the sums that the moments of channels are fitted from, and where duplicates are looked
//! for `_pixels` and `_looks`, the hashes of [`feedline_image::ImageHashes`]; boxes that are carried along become
//! `_boxes` and `_boxes_counts`.

mod boxes;
mod embedding;
mod image_steps;
mod isolated;
mod settings;

use std::{collections::BTreeMap, sync::Arc};

use arrow::{
    array::{
        Array, ArrayRef, AsArray, BinaryBuilder, FixedSizeBinaryBuilder, RecordBatch, StringArray,
        StringBuilder, UInt32Array,
    },
    compute::take_record_batch,
    datatypes::SchemaRef,
};
use feedline_image::{Bound, ChannelSums, ImageError, Looks, Preparation, Prepared, Preparer};
use feedline_schemas::config::BoxesOn;

use self::{
    boxes::Boxes,
    image_steps::{COUNTS_BYTES, KEY, SUMS_BYTES},
    isolated::Isolated,
};
pub(crate) use self::{
    embedding::{Neighbours, Seen},
    image_steps::Images,
    settings::{background, resolve},
};
use crate::{
    Error,
    operators::dedup::content_hash::HASH_BYTES,
    schema::{
        reject_reason,
        system_columns::{self, column},
    },
};

/// Rows are handed on when their images have this many bytes.
const PART_BYTES: usize = 64 << 20;

/// Decodes the images of one partition.
#[derive(Debug)]
pub(crate) struct Converter {
    decoder: Decoder,
    how: Preparation,
    column: String,
    /// Image that the boxes refer to, if there are boxes.
    boxes: Option<BoxesOn>,
    has_embeddings: bool,
    /// Embeddings by their length.
    lengths: BTreeMap<usize, u64>,
    transparent: TransparentImages,
    /// Schema of what is handed on.
    schema: SchemaRef,
}

/// Decoded images, and those of them with pixels that are not opaque. Equal files count once where duplicates are dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TransparentImages {
    pub(crate) transparent: u64,
    pub(crate) decoded: u64,
}

impl TransparentImages {
    fn add(&mut self, image: &Prepared) {
        self.decoded += 1;
        self.transparent += u64::from(image.is_transparent);
    }

    /// Adds the counts of other images.
    pub(crate) fn merge(&mut self, other: Self) {
        self.decoded += other.decoded;
        self.transparent += other.transparent;
    }
}

/// Place of the decoder: this process or one of its own.
#[derive(Debug)]
enum Decoder {
    Here(Preparer),
    Apart(Isolated),
}

/// A column of texts that the plan made.
fn texts(rows: &RecordBatch, name: &str) -> StringArray {
    column(rows, name).as_string::<i32>().clone()
}

fn cell(texts: &StringArray, row: usize) -> Option<&str> {
    texts.is_valid(row).then(|| texts.value(row))
}

/// An image that cannot be used: its row, the reason's name, and what was found.
pub(crate) type Fault = (usize, String, String);

impl Converter {
    /// `schema` is that of staged rows.
    pub(crate) fn new(images: &Images, schema: &SchemaRef) -> Self {
        Self {
            decoder: match &images.program {
                None => Decoder::Here(Preparer::new(images.how)),
                Some(program) => Decoder::Apart(Isolated::new(program.clone(), images.how)),
            },
            how: images.how,
            column: images.column.clone(),
            boxes: images.boxes_on(),
            has_embeddings: images.config.embeddings.is_some(),
            lengths: BTreeMap::new(),
            transparent: TransparentImages::default(),
            schema: Arc::clone(schema),
        }
    }

    /// The column of images.
    pub(crate) fn column(&self) -> &str {
        &self.column
    }

    /// Embeddings by their length, and the counts of transparent images.
    pub(crate) fn into_counts(self) -> (BTreeMap<usize, u64>, TransparentImages) {
        (self.lengths, self.transparent)
    }

    /// Prepares the images of `rows` and hands the good rows to `take`, some at a time. The bad ones are returned.
    ///
    /// # Errors
    /// Those of `take`, and [`Error::Scratch`] for a process that cannot be started.
    pub(crate) fn convert(
        &mut self,
        rows: &RecordBatch,
        mut take: impl FnMut(RecordBatch) -> Result<(), Error>,
    ) -> Result<Vec<Fault>, Error> {
        let files = Arc::clone(column(rows, &self.column));
        let files = files.as_binary::<i32>();
        let marks = self
            .boxes
            .map(|on| (texts(rows, system_columns::BOXES), on));
        let embeddings = self
            .has_embeddings
            .then(|| texts(rows, system_columns::EMBEDDING));
        let mut faults = Vec::new();
        let mut part = Part::default();
        for (row, file) in files.iter().enumerate() {
            let file = file.unwrap_or_default();
            let prepared = match &mut self.decoder {
                Decoder::Here(preparer) => preparer.prepare(file),
                Decoder::Apart(isolated) => isolated.prepare(file)?,
            };
            let prepared = match prepared {
                Ok(prepared) => prepared,
                Err(error) => {
                    let found = describe_fault(&error, self.how.encoding.is_none());
                    faults.push((row, format!("image_{}", error.code()), found));
                    continue;
                }
            };
            self.transparent.add(&prepared);
            let embedding = embeddings.as_ref().and_then(|cells| cell(cells, row));
            match embedding::parsed(embedding) {
                Ok(Some(numbers)) => *self.lengths.entry(numbers.len()).or_default() += 1,
                Ok(None) => {}
                Err(fault) => {
                    let detail = format!("its embedding: {fault}");
                    faults.push((row, reject_reason::BAD_EMBEDDING.to_owned(), detail));
                    continue;
                }
            }
            let moved = |(cells, on): &(StringArray, BoxesOn)| {
                boxes::moved(cell(cells, row), *on, &prepared.mapping)
            };
            match marks.as_ref().map(moved).transpose() {
                Ok(boxes) => part.push(row, file, &prepared, boxes)?,
                Err(fault) => faults.push((
                    row,
                    reject_reason::BAD_BOXES.to_owned(),
                    format!("its boxes: {fault}"),
                )),
            }
            if part.bytes >= PART_BYTES {
                take(std::mem::take(&mut part).rows(rows, self)?)?;
            }
        }
        if !part.rows.is_empty() {
            take(part.rows(rows, self)?)?;
        }
        Ok(faults)
    }
}

/// Describes the fault of an image with the keys of this stage. `as_it_came` is true where it would be stored so.
pub(crate) fn describe_fault(error: &ImageError, as_it_came: bool) -> String {
    match error {
        ImageError::TooLarge {
            bound,
            found,
            limit,
        } => {
            let key = match bound {
                Bound::EncodedBytes => "max_bytes",
                Bound::Side => "max_side",
                Bound::Pixels => "max_pixels",
                Bound::DecoderBytes => "max_decoder_bytes",
            };
            let what = bound.what();
            format!("it has {found} {what} and the limit is {limit} (`{KEY}.{key}`)")
        }
        ImageError::Unsupported { reason } if as_it_came => {
            format!("it is {reason}, which shards do not hold as it came: set `{KEY}.store`")
        }
        ImageError::Unsupported { reason } => format!("it is {reason}, which is not supported"),
        other => other.to_string(),
    }
}

/// Good rows that are gathered.
struct Part {
    rows: Vec<u32>,
    files: BinaryBuilder,
    sums: FixedSizeBinaryBuilder,
    pixels: FixedSizeBinaryBuilder,
    looks: FixedSizeBinaryBuilder,
    boxes: StringBuilder,
    counts: FixedSizeBinaryBuilder,
    bytes: usize,
}

impl Default for Part {
    fn default() -> Self {
        Self {
            rows: Vec::new(),
            files: BinaryBuilder::new(),
            sums: FixedSizeBinaryBuilder::new(SUMS_BYTES),
            pixels: FixedSizeBinaryBuilder::new(HASH_BYTES),
            looks: FixedSizeBinaryBuilder::new(HASH_BYTES),
            boxes: StringBuilder::new(),
            counts: FixedSizeBinaryBuilder::new(COUNTS_BYTES),
            bytes: 0,
        }
    }
}

impl Part {
    fn push(
        &mut self,
        row: usize,
        original: &[u8],
        prepared: &Prepared,
        boxes: Option<Boxes>,
    ) -> Result<(), Error> {
        let file = prepared.file.as_deref().unwrap_or(original);
        self.rows
            .push(u32::try_from(row).expect("a batch has fewer than 2^32 rows"));
        self.files.append_value(file);
        self.bytes += file.len();
        self.sums.append_value(sums_to_bytes(&prepared.sums))?;
        if let Some(hashes) = &prepared.hashes {
            self.pixels.append_value(hashes.pixels.to_be_bytes())?;
            match hashes.looks {
                Some(looks) => self.looks.append_value(looks_to_bytes(looks))?,
                None => self.looks.append_null(),
            }
        }
        if let Some(boxes) = boxes {
            self.bytes += boxes.text.len();
            self.boxes.append_value(&boxes.text);
            let counts = [boxes.kept, boxes.lost].map(u32::to_le_bytes);
            self.counts.append_value(counts.as_flattened())?;
        }
        Ok(())
    }

    /// The rows with their new columns.
    fn rows(mut self, all: &RecordBatch, converter: &Converter) -> Result<RecordBatch, Error> {
        let kept = take_record_batch(all, &UInt32Array::from(self.rows))?;
        let schema = kept.schema();
        let mut columns: Vec<ArrayRef> = kept.columns().to_vec();
        let at = schema.index_of(&converter.column)?;
        columns[at] = Arc::new(self.files.finish());
        columns.push(Arc::new(self.sums.finish()));
        if converter.how.hashes {
            columns.push(Arc::new(self.pixels.finish()));
            columns.push(Arc::new(self.looks.finish()));
        }
        if converter.boxes.is_some() {
            columns[schema.index_of(system_columns::BOXES)?] = Arc::new(self.boxes.finish());
            columns.push(Arc::new(self.counts.finish()));
        }
        Ok(RecordBatch::try_new(
            Arc::clone(&converter.schema),
            columns,
        )?)
    }
}

/// `pixels u64 | levels 3 u64 | squares 3 u64`, little endian.
fn sums_to_bytes(sums: &ChannelSums) -> Vec<u8> {
    let numbers = std::iter::once(&sums.pixels)
        .chain(&sums.levels)
        .chain(&sums.squares);
    numbers.flat_map(|number| number.to_le_bytes()).collect()
}

/// Adds what a `_sums` cell holds.
pub(crate) fn add_sums(total: &mut ChannelSums, cell: &[u8]) {
    let numbers = cell.as_chunks::<8>().0;
    assert_eq!(numbers.len(), 7, "a cell holds seven sums");
    let number = |at: usize| u64::from_le_bytes(numbers[at]);
    total.add(&ChannelSums {
        pixels: number(0),
        levels: [number(1), number(2), number(3)],
        squares: [number(4), number(5), number(6)],
    });
}

/// Numbers of kept and of lost boxes from a `_boxes_counts` cell.
pub(crate) fn box_counts(cell: &[u8]) -> [u64; 2] {
    let numbers = cell.as_chunks::<4>().0;
    assert_eq!(numbers.len(), 2, "a cell holds two counts");
    [0, 1].map(|at: usize| u32::from_le_bytes(numbers[at]).into())
}

/// `phash u64 | dhash u64`, big endian.
fn looks_to_bytes(looks: Looks) -> Vec<u8> {
    [looks.phash.to_be_bytes(), looks.dhash.to_be_bytes()].concat()
}
