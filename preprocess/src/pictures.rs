//! Pictures that are decoded while rows are staged: stored in the size and format that `[dataset.picture]` asks for, or
//! set aside with what is wrong with them.
//!
//! Each good row gets `_sums`, the sums that the moments of channels are fitted from, and where duplicates are looked
//! for `_pixels` and `_looks`, the hashes of [`feedline_picture::PictureHashes`].

mod isolated;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow::{
    array::{ArrayRef, AsArray, BinaryBuilder, FixedSizeBinaryBuilder, RecordBatch, UInt32Array},
    compute::take_record_batch,
    datatypes::{DataType, Field, Schema, SchemaRef},
};
use feedline_picture::{
    Bound, ChannelSums, Encoding, Filter, Looks, MOST_BITS, PictureError, PictureLimits,
    Preparation, Prepared, Preparer, Sizing,
};
use feedline_schemas::config::{
    DatasetConfig, PictureDuplicates, PictureFilter, PictureResize, PictureSize, PictureStore,
    StoredPictureConfig,
};

use self::isolated::Isolated;
use crate::{Error, columns::system, content::HASH_BYTES, stage::column};

const KEY: &str = "dataset.picture";
/// Largest side of a picture.
const SIDE: u32 = 1 << 14;
/// Bytes of the seven sums of a picture.
const SUMS_BYTES: i32 = 56;
/// Rows are handed on when their pictures have this many bytes.
const PART_BYTES: usize = 64 << 20;

/// What is done to the pictures of a dataset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pictures {
    /// The column of files.
    pub(crate) column: String,
    /// As it was configured.
    pub(crate) config: StoredPictureConfig,
    pub(crate) how: Preparation,
    /// The program that decodes them in a process of its own; none: this one does.
    program: Option<PathBuf>,
}

/// What is done to the pictures of a dataset; `None` where they are stored as they came.
///
/// # Errors
/// [`Error::Config`] for a setting out of its range, and for settings that do not go together.
pub(crate) fn resolve(config: &DatasetConfig, column: &str) -> Result<Option<Pictures>, Error> {
    let Some(picture) = &config.picture else {
        return Ok(None);
    };
    let within = |key: &str, value: u64, least: u64, most: u64| {
        if (least..=most).contains(&value) {
            return Ok(());
        }
        let reason = format!("it is `{value}`, use `{least}` to `{most}`");
        Err(Error::config(format!("{KEY}.{key}"), reason))
    };
    within("quality", picture.quality.into(), 1, 100)?;
    within(
        "look_alike_bits",
        picture.look_alike_bits.into(),
        0,
        MOST_BITS.into(),
    )?;
    within("max_bytes", picture.max_bytes.bytes(), 1, 1 << 30)?;
    within("max_side", picture.max_side.into(), 1, SIDE.into())?;
    within("max_pixels", picture.max_pixels, 1, 1 << 28)?;
    within(
        "max_decoder_bytes",
        picture.max_decoder_bytes.bytes(),
        1,
        1 << 36,
    )?;
    let how = Preparation {
        sizing: sizing(picture)?,
        filter: match picture.filter {
            PictureFilter::Bilinear => Filter::Bilinear,
            PictureFilter::Bicubic => Filter::Bicubic,
            PictureFilter::Lanczos => Filter::Lanczos,
        },
        encoding: match picture.store {
            PictureStore::Original => None,
            PictureStore::Jpeg => Some(Encoding::Jpeg {
                quality: picture.quality,
            }),
            PictureStore::Png => Some(Encoding::Png),
            PictureStore::Raw => Some(Encoding::Raw),
        },
        keep_original: picture.keep_original,
        limits: limits(picture),
        // What comes out of a reduced decode depends on the library that the program was built with.
        scaled_decoding: false,
        hashes: picture.duplicates != PictureDuplicates::Bytes,
    };
    Ok(Some(Pictures {
        column: column.to_owned(),
        config: picture.clone(),
        how,
        program: None,
    }))
}

fn limits(picture: &StoredPictureConfig) -> PictureLimits {
    PictureLimits {
        encoded_bytes: u32::try_from(picture.max_bytes.bytes()).unwrap_or(u32::MAX),
        side: picture.max_side,
        pixels: picture.max_pixels,
        decoder_bytes: picture.max_decoder_bytes.bytes(),
    }
}

fn sizing(picture: &StoredPictureConfig) -> Result<Sizing, Error> {
    let refuse = |key: &str, reason: &str| Err(Error::config(format!("{KEY}.{key}"), reason));
    if picture.resize != PictureResize::Crop && picture.shorter_side.is_some() {
        return refuse(
            "shorter_side",
            "it belongs to `resize = \"crop\"`; remove it",
        );
    }
    if picture.resize == PictureResize::None {
        return match picture.size {
            None => Ok(Sizing::Original),
            Some(_) => refuse(
                "size",
                "it has no meaning without `resize`; set that, or remove it",
            ),
        };
    }
    if picture.store == PictureStore::Original {
        return refuse(
            "resize",
            "a file that is stored as it came keeps its size; set `store` to `jpeg`, `png` or `raw`",
        );
    }
    let Some(size) = picture.size else {
        return refuse("size", "`resize` needs it: pixels, such as `size = 256`");
    };
    let [height, width] = match size {
        PictureSize::Side(side) => [side; 2],
        PictureSize::Sides(_) if picture.resize == PictureResize::ShorterSide => {
            return refuse("size", "`resize = \"shorter_side\"` takes one number");
        }
        PictureSize::Sides(sides) => sides,
    };
    let most = SIDE.min(picture.max_side);
    if ![height, width].iter().all(|side| (1..=most).contains(side)) {
        let told = match size {
            PictureSize::Side(side) => format!("`{side}`"),
            PictureSize::Sides([height, width]) => format!("`[{height}, {width}]`"),
        };
        let reason = format!("it is {told}, use `1` to `{most}` (`max_side`) for each side");
        return refuse("size", &reason);
    }
    Ok(match picture.resize {
        PictureResize::None | PictureResize::ShorterSide => Sizing::ShorterSide(height),
        PictureResize::Exact => Sizing::Exact { width, height },
        PictureResize::Pad => Sizing::Pad { width, height },
        PictureResize::Crop => {
            let least = width.max(height);
            let shorter_side = picture.shorter_side.unwrap_or(least);
            if !(least..=SIDE).contains(&shorter_side) {
                let reason = format!(
                    "it is `{shorter_side}`, use `{least}` (the larger of `size`) to `{SIDE}`"
                );
                return refuse("shorter_side", &reason);
            }
            Sizing::Crop {
                width,
                height,
                shorter_side,
            }
        }
    })
}

impl Pictures {
    /// Has them decoded by `program` in processes of their own where that is asked for, or nothing is said and they are
    /// `foreign`; a warning says where the latter cannot be.
    ///
    /// # Errors
    /// [`Error::Config`] where it is asked for and there is no such program.
    pub(crate) fn isolated(&mut self, foreign: bool, program: Option<&Path>) -> Result<(), Error> {
        self.program = match (self.config.isolate, program) {
            (Some(true), None) => {
                return Err(Error::config(
                    format!("{KEY}.isolate"),
                    "only the program `feedline` can decode pictures in another process; remove this key",
                ));
            }
            (isolate, Some(program)) if isolate.unwrap_or(foreign) => Some(program.to_owned()),
            (None, None) if foreign => {
                tracing::warn!(
                    "pictures from the web are decoded in this process, whose memory a decoder may exhaust: only the \
                     program `feedline` decodes them in another; set `{KEY}.isolate = false` where that is meant"
                );
                None
            }
            _ => None,
        };
        Ok(())
    }

    /// The schema of staged rows, of which the plan makes the columns of `plan`.
    pub(crate) fn staged(&self, plan: &Schema) -> Schema {
        let mut fields = plan.fields().to_vec();
        let mut add = |name: &str, bytes: i32, nullable: bool| {
            let r#type = DataType::FixedSizeBinary(bytes);
            fields.push(Arc::new(Field::new(name, r#type, nullable)));
        };
        add(system::SUMS, SUMS_BYTES, false);
        if self.how.hashes {
            add(system::PIXELS, HASH_BYTES, false);
            add(system::LOOKS, HASH_BYTES, true);
        }
        Schema::new(fields)
    }
}

/// Decodes the pictures of one partition.
#[derive(Debug)]
pub(crate) struct Converter {
    decoder: Decoder,
    how: Preparation,
    column: String,
    /// Schema of what is handed on.
    schema: SchemaRef,
}

/// Where pictures are decoded.
#[derive(Debug)]
enum Decoder {
    Here(Preparer),
    Apart(Isolated),
}

/// A picture that cannot be used: its row, the reason's name, and what was found.
pub(crate) type Fault = (usize, String, String);

impl Converter {
    /// `schema` is that of staged rows.
    pub(crate) fn new(pictures: &Pictures, schema: &SchemaRef) -> Self {
        Self {
            decoder: match &pictures.program {
                None => Decoder::Here(Preparer::new(pictures.how)),
                Some(program) => Decoder::Apart(Isolated::new(program.clone(), pictures.how)),
            },
            how: pictures.how,
            column: pictures.column.clone(),
            schema: Arc::clone(schema),
        }
    }

    /// The column of pictures.
    pub(crate) fn column(&self) -> &str {
        &self.column
    }

    /// Prepares the pictures of `rows` and hands the good rows to `take`, some at a time. The bad ones are returned.
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
        let mut faults = Vec::new();
        let mut part = Part::default();
        for (row, file) in files.iter().enumerate() {
            let file = file.unwrap_or_default();
            let prepared = match &mut self.decoder {
                Decoder::Here(preparer) => preparer.prepare(file),
                Decoder::Apart(isolated) => isolated.prepare(file)?,
            };
            match prepared {
                Ok(prepared) => part.push(row, file, &prepared)?,
                Err(error) => {
                    faults.push((row, format!("picture_{}", error.kind()), self.told(&error)))
                }
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

    /// What is wrong with a picture, with the keys of this stage.
    fn told(&self, error: &PictureError) -> String {
        match error {
            PictureError::TooLarge {
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
            PictureError::Unsupported { reason } if self.how.encoding.is_none() => {
                format!("it is {reason}, which shards do not hold as it came: set `{KEY}.store`")
            }
            PictureError::Unsupported { reason } => format!("it is {reason}, which is not read"),
            other => other.to_string(),
        }
    }
}

/// Good rows that are gathered.
struct Part {
    rows: Vec<u32>,
    files: BinaryBuilder,
    sums: FixedSizeBinaryBuilder,
    pixels: FixedSizeBinaryBuilder,
    looks: FixedSizeBinaryBuilder,
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
            bytes: 0,
        }
    }
}

impl Part {
    fn push(&mut self, row: usize, original: &[u8], prepared: &Prepared) -> Result<(), Error> {
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

/// `phash u64 | dhash u64`, big endian.
fn looks_to_bytes(looks: Looks) -> Vec<u8> {
    [looks.phash.to_be_bytes(), looks.dhash.to_be_bytes()].concat()
}
