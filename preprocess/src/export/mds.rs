//! MDS, the format of MosaicML Streaming, version 2.
//!
//! A shard is: number of samples `n` (`u32`), `n + 1` offsets (`u32`, from the file's beginning; the last is the file's
//! length), the writer's settings as JSON, and the samples. A sample is the lengths (`u32`) of its columns that have no fixed
//! size, then the columns' values, in the order of their names. All numbers are little endian. `index.json` names the shards, and
//! of a dataset the roles of the columns under a key that readers pass over.

use std::sync::Arc;

use arrow::{
    array::{Array as _, ArrayRef, ArrowPrimitiveType, AsArray as _, RecordBatch},
    datatypes::{
        ArrowNativeType, DataType, Float32Type, Float64Type, Int32Type, Int64Type, ToByteSlice,
        UInt16Type, UInt32Type, UInt64Type,
    },
    error::ArrowError,
};
use feedline_image::Format;
use feedline_schemas::{
    count::counted,
    export::{ExportedRoles, ROLES},
    ids::Hash128,
    manifest::Split,
};
use serde_json::{Value, json};

use super::{
    cells::{bytes_of, is_text_in_json, unknown, write_as_text, write_json},
    file_names::INDEX,
    files::{FileLimits, PartFiles, PartWriter},
    out::{OutFolder, StoredFile},
    table::{ColumnFacts, ExportColumn, ExportTable},
};
use crate::Error;

const LEVEL: i32 = 3;
const COMPRESSION: &str = "zstd:3";
/// Largest limit of a shard. Its offsets have 32 bits, and the row that reaches the limit is in the shard.
pub(super) const MOST_BYTES: u64 = 1 << 31;

/// Encoding of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
enum MdsEncoding {
    /// One number; its name in MDS and its bytes.
    Number(&'static str, u32),
    /// A list of numbers of always the same length.
    Array(&'static str, u32, u32),
    /// A list of numbers.
    List(&'static str),
    /// Text, or a value that is text here.
    Text(&'static str),
    /// Bytes, or an image.
    Bytes(&'static str),
    /// Any value, or null.
    Json,
}

impl MdsEncoding {
    /// Name in the index.
    fn name(&self) -> String {
        match self {
            Self::Number(name, _) | Self::Text(name) | Self::Bytes(name) => (*name).to_owned(),
            Self::Array(number, _, length) => format!("ndarray:{number}:{length}"),
            Self::List(number) => format!("ndarray:{number}"),
            Self::Json => "json".to_owned(),
        }
    }

    /// Bytes of a value, if that is always the same.
    const fn size(&self) -> Option<u32> {
        match self {
            Self::Number(_, bytes) => Some(*bytes),
            Self::Array(_, bytes, length) => Some(*bytes * *length),
            _ => None,
        }
    }
}

/// A column of the samples.
#[derive(Clone, Debug)]
struct MdsColumn {
    name: String,
    /// Its index in the table.
    place: usize,
    encoding: MdsEncoding,
}

/// The columns of a table, sorted by name as the format wants them.
pub(super) struct MdsColumns {
    all: Arc<Vec<MdsColumn>>,
    /// Roles of the columns, for the index.
    roles: Option<ExportedRoles>,
    /// Columns that differ from those of the table, with the reason.
    pub(super) converted: Vec<(String, String)>,
}

impl MdsColumns {
    /// `facts` are those of the columns of `table`.
    pub(super) fn new(table: &ExportTable, facts: &[ColumnFacts]) -> Result<Self, Error> {
        let mut all = Vec::with_capacity(facts.len());
        let mut converted = Vec::new();
        for (place, (column, facts)) in table.columns.iter().zip(facts).enumerate() {
            let (encoding, reason) = choose(column, facts)?;
            if let Some(reason) = reason {
                converted.push((column.name.clone(), reason));
            }
            all.push(MdsColumn {
                name: column.name.clone(),
                place,
                encoding,
            });
        }
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Self {
            all: Arc::new(all),
            roles: table.roles.clone(),
            converted,
        })
    }
}

/// Encoding of a column, and the reason if its values change their type.
fn choose(
    column: &ExportColumn,
    facts: &ColumnFacts,
) -> Result<(MdsEncoding, Option<String>), Error> {
    let nulls = facts.nulls;
    if column.is_binary() {
        return Ok(choose_bytes(column, facts));
    }
    if let DataType::List(item) = &column.r#type
        && let (0, Some((number, _))) = (nulls, number(item.data_type()))
        && matches!(item.data_type(), DataType::UInt16 | DataType::UInt32)
    {
        return Ok((MdsEncoding::List(number), None));
    }
    let is_text = is_text_in_json(&column.r#type);
    if nulls > 0 {
        let text = if is_text { " of text" } else { "" };
        let are = if nulls == 1 { "is" } else { "are" };
        let values = counted(nulls, "value");
        let reason = format!("JSON{text}, since {values} {are} null and MDS knows no null");
        return Ok((MdsEncoding::Json, Some(reason)));
    }
    Ok(match &column.r#type {
        DataType::Utf8 | DataType::LargeUtf8 => (MdsEncoding::Text("str"), None),
        DataType::Decimal128(..) => (MdsEncoding::Text("str_decimal"), None),
        DataType::Timestamp(..) => (
            MdsEncoding::Text("str"),
            Some("text in ISO 8601, since MDS knows no timestamps".to_owned()),
        ),
        DataType::Boolean => (
            MdsEncoding::Json,
            Some("JSON, since MDS knows no booleans".to_owned()),
        ),
        DataType::List(_) => (
            MdsEncoding::Json,
            Some(
                "JSON, since arrays of MDS hold neither text nor nulls and are never empty"
                    .to_owned(),
            ),
        ),
        DataType::FixedSizeList(item, length) => match number(item.data_type()) {
            Some((number, bytes)) => {
                let length = u32::try_from(*length).unwrap_or_default();
                (MdsEncoding::Array(number, bytes, length), None)
            }
            None => return Err(unknown(&column.r#type)),
        },
        other => match number(other) {
            Some((number, bytes)) => (MdsEncoding::Number(number, bytes), None),
            None => return Err(unknown(other)),
        },
    })
}

fn choose_bytes(column: &ExportColumn, facts: &ColumnFacts) -> (MdsEncoding, Option<String>) {
    if facts.nulls > 0 {
        let nulls = match facts.nulls {
            1 => "1 null is".to_owned(),
            nulls => format!("{nulls} nulls are"),
        };
        let reason = format!("{nulls} empty bytes, since MDS knows no null");
        return (MdsEncoding::Bytes("bytes"), Some(reason));
    }
    if !facts.are_images(column) {
        return (MdsEncoding::Bytes("bytes"), None);
    }
    let mixed = (facts.others > 0).then(|| {
        let others = match facts.others {
            1 => "1 has another format".to_owned(),
            others => format!("{others} have other formats"),
        };
        format!("named after the first image; {others}, which readers detect")
    });
    match facts.first {
        Some(Format::Jpeg) | None => (MdsEncoding::Bytes("jpeg"), mixed),
        Some(Format::Png) => (MdsEncoding::Bytes("png"), mixed),
        Some(_) => {
            let reason = "bytes of image files, since MDS names only JPEG and PNG";
            (MdsEncoding::Bytes("bytes"), Some(reason.to_owned()))
        }
    }
}

/// Name and bytes of a number in MDS.
const fn number(r#type: &DataType) -> Option<(&'static str, u32)> {
    Some(match r#type {
        DataType::Int32 => ("int32", 4),
        DataType::Int64 => ("int64", 8),
        DataType::UInt16 => ("uint16", 2),
        DataType::UInt32 => ("uint32", 4),
        DataType::UInt64 => ("uint64", 8),
        DataType::Float32 => ("float32", 4),
        DataType::Float64 => ("float64", 8),
        _ => return None,
    })
}

/// Shards of a part.
pub(super) struct MdsParts {
    out: OutFolder,
    columns: Arc<Vec<MdsColumn>>,
    roles: Option<ExportedRoles>,
    split: Option<Split>,
    limits: FileLimits,
    compresses: bool,
    /// Settings in every shard.
    config: Vec<u8>,
    /// Samples of the shard being filled, and their ends.
    samples: Vec<u8>,
    ends: Vec<usize>,
    files: Vec<StoredFile>,
    shards: Vec<Value>,
    not_finite: u64,
}

impl MdsParts {
    pub(super) fn new(
        out: OutFolder,
        columns: &MdsColumns,
        split: Option<Split>,
        (limits, compresses): (FileLimits, bool),
    ) -> Self {
        let (columns, roles) = (Arc::clone(&columns.all), columns.roles.clone());
        let config = settings(&columns, &limits, compresses).to_string();
        Self {
            out,
            columns,
            roles,
            split,
            limits,
            compresses,
            config: config.into_bytes(),
            samples: Vec::new(),
            ends: Vec::new(),
            files: Vec::new(),
            shards: Vec::new(),
            not_finite: 0,
        }
    }

    /// Bytes of the shard with its samples.
    fn bytes(&self) -> u64 {
        (8 + 4 * self.ends.len() + self.config.len() + self.samples.len()) as u64
    }

    fn put_sample(&mut self, rows: &RecordBatch, row: usize) -> Result<(), Error> {
        let lengths = self.samples.len();
        let variable = self.columns.iter();
        let variable = variable.filter(|column| column.encoding.size().is_none());
        self.samples.resize(lengths + 4 * variable.count(), 0);
        let mut next = lengths;
        for column in self.columns.iter() {
            let begin = self.samples.len();
            let cells = rows.column(column.place);
            put_value(
                &column.encoding,
                cells,
                row,
                &mut self.samples,
                &mut self.not_finite,
            )?;
            if column.encoding.size().is_none() {
                let length = u32::try_from(self.samples.len() - begin).unwrap_or(u32::MAX);
                self.samples[next..next + 4].copy_from_slice(&length.to_le_bytes());
                next += 4;
            }
        }
        self.ends.push(self.samples.len());
        Ok(())
    }

    /// Writes the shard.
    fn end(&mut self) -> Result<(), Error> {
        let (raw, count) = self.shard()?;
        let folder = self.split.map_or("", Split::as_str);
        let name = format!("shard.{:05}.mds", self.shards.len());
        let (stored, zip) = match self.compresses {
            false => (None, Value::Null),
            true => {
                let packed = zstd::bulk::compress(&raw, LEVEL);
                let packed = packed.map_err(|e| Error::Arrow(ArrowError::from(e)))?;
                let described = described(&format!("{name}.zstd"), &packed);
                (Some(packed), described)
            }
        };
        let mut shard = settings(&self.columns, &self.limits, self.compresses);
        shard["samples"] = json!(count);
        shard["raw_data"] = described(&name, &raw);
        shard["zip_data"] = zip;
        self.shards.push(shard);
        let name = if stored.is_some() {
            format!("{name}.zstd")
        } else {
            name
        };
        let mut file = self.out.create(folder)?;
        file.put(stored.as_deref().unwrap_or(&raw))?;
        let path = in_folder(folder, &name);
        self.files.push(file.store_as(path, (self.split, count))?);
        Ok(())
    }

    /// The filled shard, and the number of its samples.
    fn shard(&mut self) -> Result<(Vec<u8>, u64), Error> {
        let samples = std::mem::take(&mut self.samples);
        let ends = std::mem::take(&mut self.ends);
        let count = ends.len();
        let head = 4 * (count + 2) + self.config.len();
        let too_large = || {
            Error::input(
                "the rows of an MDS shard",
                format!(
                    "they have {} bytes, more than the 4 GiB that offsets of 32 bits reach",
                    head + samples.len()
                ),
                "lower `--rows-per-file` or `--max-bytes`, or export as Parquet",
            )
        };
        let narrow = |number: usize| u32::try_from(number).map_err(|_| too_large());
        let mut raw = Vec::with_capacity(head + samples.len());
        raw.extend_from_slice(&narrow(count)?.to_le_bytes());
        for end in std::iter::once(0).chain(ends) {
            raw.extend_from_slice(&narrow(head + end)?.to_le_bytes());
        }
        raw.extend_from_slice(&self.config);
        raw.extend_from_slice(&samples);
        Ok((raw, count as u64))
    }
}

impl PartWriter for MdsParts {
    fn write(&mut self, rows: &RecordBatch) -> Result<(), Error> {
        for row in 0..rows.num_rows() {
            self.put_sample(rows, row)?;
            if self.ends.len() as u64 >= self.limits.rows || self.bytes() >= self.limits.bytes {
                self.end()?;
            }
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<PartFiles, Error> {
        if !self.ends.is_empty() {
            self.end()?;
        }
        let folder = self.split.map_or("", Split::as_str);
        let mut index = json!({ "version": 2, "shards": self.shards });
        if let Some(roles) = &self.roles {
            index[ROLES] = json!(roles);
        }
        Ok(PartFiles {
            files: self.files,
            closing: vec![(in_folder(folder, INDEX), index.to_string().into_bytes())],
            not_finite: self.not_finite,
        })
    }
}

fn in_folder(folder: &str, name: &str) -> String {
    match folder {
        "" => name.to_owned(),
        folder => format!("{folder}/{name}"),
    }
}

/// Settings that shards and the index repeat.
fn settings(columns: &[MdsColumn], limits: &FileLimits, compresses: bool) -> Value {
    let names: Vec<&str> = columns.iter().map(|c| c.name.as_str()).collect();
    let encodings: Vec<String> = columns.iter().map(|c| c.encoding.name()).collect();
    let sizes: Vec<Option<u32>> = columns.iter().map(|c| c.encoding.size()).collect();
    json!({
        "version": 2,
        "format": "mds",
        "compression": compresses.then_some(COMPRESSION),
        "hashes": ["xxh128"],
        "size_limit": limits.bytes,
        "column_names": names,
        "column_encodings": encodings,
        "column_sizes": sizes,
    })
}

fn described(name: &str, bytes: &[u8]) -> Value {
    json!({
        "basename": name,
        "bytes": bytes.len(),
        "hashes": { "xxh128": Hash128::of(bytes).to_string() },
    })
}

fn put_value(
    encoding: &MdsEncoding,
    cells: &ArrayRef,
    row: usize,
    out: &mut Vec<u8>,
    not_finite: &mut u64,
) -> Result<(), Error> {
    match encoding {
        MdsEncoding::Number(..) => put_numbers(cells, row, 1, out),
        MdsEncoding::Array(..) => {
            let items = cells.as_fixed_size_list().value(row);
            put_numbers(&items, 0, items.len(), out)
        }
        MdsEncoding::List(_) => {
            let items = cells.as_list::<i32>().value(row);
            put_shape(items.len(), out);
            put_numbers(&items, 0, items.len(), out)
        }
        MdsEncoding::Text(_) => write_as_text(cells, row, out),
        MdsEncoding::Bytes(_) => {
            out.extend_from_slice(bytes_of(cells, row).unwrap_or_default());
            Ok(())
        }
        MdsEncoding::Json => write_json(cells, row, out, not_finite),
    }
}

/// Shape of an array of one dimension: its number of dimensions and the code of the type of lengths, then the length.
fn put_shape(length: usize, out: &mut Vec<u8>) {
    const ONE_DIMENSION: u8 = 1 << 2;
    if let Ok(length) = u8::try_from(length) {
        out.extend_from_slice(&[ONE_DIMENSION, length]);
    } else if let Ok(length) = u16::try_from(length) {
        out.push(ONE_DIMENSION | 1);
        out.extend_from_slice(&length.to_le_bytes());
    } else {
        out.push(ONE_DIMENSION | 2);
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        out.extend_from_slice(&length.to_le_bytes());
    }
}

/// Appends `count` numbers from `at` on.
fn put_numbers(cells: &ArrayRef, at: usize, count: usize, out: &mut Vec<u8>) -> Result<(), Error> {
    match cells.data_type() {
        DataType::Int32 => put_all::<Int32Type>(cells, at, count, out),
        DataType::Int64 => put_all::<Int64Type>(cells, at, count, out),
        DataType::UInt16 => put_all::<UInt16Type>(cells, at, count, out),
        DataType::UInt32 => put_all::<UInt32Type>(cells, at, count, out),
        DataType::UInt64 => put_all::<UInt64Type>(cells, at, count, out),
        DataType::Float32 => put_all::<Float32Type>(cells, at, count, out),
        DataType::Float64 => put_all::<Float64Type>(cells, at, count, out),
        other => return Err(unknown(other)),
    }
    Ok(())
}

/// The machines that feedline runs on are little endian.
fn put_all<T: ArrowPrimitiveType>(cells: &ArrayRef, at: usize, count: usize, out: &mut Vec<u8>)
where
    T::Native: ArrowNativeType,
{
    let numbers = &cells.as_primitive::<T>().values()[at..at + count];
    out.extend_from_slice(numbers.to_byte_slice());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(nulls: u64, first: Option<Format>) -> ColumnFacts {
        ColumnFacts {
            nulls,
            values: 10,
            images: if first.is_some() { 10 } else { 0 },
            first,
            others: 0,
        }
    }

    fn check(r#type: DataType, facts: &ColumnFacts, expected: &str, is_converted: bool) {
        let column = ExportColumn::plain("c", r#type, true);
        let (encoding, reason) = choose(&column, facts).unwrap();
        assert_eq!(encoding.name(), expected, "{column:?}");
        assert_eq!(reason.is_some(), is_converted, "{reason:?}");
    }

    #[test]
    fn encodings_follow_types_and_nulls() {
        let (full, gaps) = (facts(0, None), facts(1, None));
        let time = DataType::Timestamp(arrow::datatypes::TimeUnit::Microsecond, Some("UTC".into()));
        let floats = DataType::new_fixed_size_list(DataType::Float32, 5, true);
        check(DataType::Int64, &full, "int64", false);
        check(DataType::Int64, &gaps, "json", true);
        check(DataType::Float64, &full, "float64", false);
        check(DataType::Boolean, &full, "json", true);
        check(DataType::Utf8, &full, "str", false);
        check(DataType::Utf8, &gaps, "json", true);
        check(DataType::Decimal128(38, 18), &full, "str_decimal", false);
        check(time, &full, "str", true);
        check(floats, &full, "ndarray:float32:5", false);
        check(
            DataType::new_list(DataType::UInt16, true),
            &full,
            "ndarray:uint16",
            false,
        );
        check(
            DataType::new_list(DataType::Int64, true),
            &full,
            "json",
            true,
        );
        check(DataType::Binary, &full, "bytes", false);
        check(DataType::Binary, &gaps, "bytes", true);
        check(
            DataType::Binary,
            &facts(0, Some(Format::Jpeg)),
            "jpeg",
            false,
        );
        let mixed = ColumnFacts {
            others: 3,
            ..facts(0, Some(Format::Jpeg))
        };
        check(DataType::Binary, &mixed, "jpeg", true);
        check(
            DataType::Binary,
            &facts(0, Some(Format::WebP)),
            "bytes",
            true,
        );
    }

    #[test]
    fn shapes_have_the_narrowest_type() {
        let shape = |length| {
            let mut out = Vec::new();
            put_shape(length, &mut out);
            out
        };
        assert_eq!(shape(3), [4, 3]);
        assert_eq!(shape(256), [5, 0, 1]);
        assert_eq!(shape(65_536), [6, 0, 0, 1, 0]);
    }
}
