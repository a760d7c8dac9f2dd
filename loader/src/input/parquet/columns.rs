//! Choice of the columns of a Parquet dataset, and their conversion to rows.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, RecordBatch, StructArray},
    buffer::ScalarBuffer,
    compute::{CastOptions, cast_with_options},
    datatypes::{
        DataType, Field, Float32Type, Int32Type, Int64Type, Schema, UInt16Type, UInt32Type,
        UInt64Type,
    },
};
use feedline_schemas::manifest::{TargetKind, TokenType};
use parquet::{arrow::arrow_reader::ArrowReaderMetadata, file::statistics::Statistics};
use xxhash_rust::xxh3::xxh3_64;

use super::super::{
    config::{ColumnMap, InputConfig, check_target},
    names::{IMAGES, TARGETS, TOKENS, UNKNOWN_CLASSES},
    record::Record,
    warnings::Warnings,
};
use crate::input::block_rows::{
    BlockRows, BlockTarget, DenseRows, ImageRows, Spans, TokenIds, TokenRows,
};

/// Rows whose numbers are put in place together, so that a row's cache lines are still near when its next column comes.
const TILE: usize = 256;

/// The columns that are read.
#[derive(Debug)]
pub(super) struct Wanted {
    payload: Payload,
    y: Option<Field>,
    target: TargetKind,
    key: Option<Field>,
    warnings: Arc<Warnings>,
}

#[derive(Debug)]
enum Payload {
    /// Columns and the elements of a row that each gives.
    Dense(Vec<(Field, usize)>),
    Images(Field),
    Tokens(Field, TokenType),
}

impl Wanted {
    /// Finds the columns in the first file with rows; `all` are the footers of every file.
    pub(super) fn find<'a>(
        first: &ArrowReaderMetadata,
        all: impl Iterator<Item = &'a ArrowReaderMetadata>,
        config: &InputConfig,
        warnings: &Arc<Warnings>,
    ) -> Result<(Self, Record), String> {
        let map = &config.columns;
        map.check()?;
        check_target(config.target)?;
        let schema = first.schema();
        let key = map
            .key
            .as_deref()
            .map(|name| column(schema, name))
            .transpose()?;
        let y = match (&map.y, config.target) {
            (Some(name), _) => Some(column(schema, name)?),
            (None, Some(TargetKind::None)) => None,
            (None, _) => TARGETS.iter().find_map(|name| column(schema, name).ok()),
        };
        let payload = payload(first, map, y.as_ref(), key.as_ref())?;
        warn_of_left_out(schema, &payload, map, [&y, &key], warnings);
        let target = match (&payload, &y) {
            (Payload::Tokens(..), _) | (_, None) => TargetKind::None,
            (_, Some(y)) => target(y, all, config.target)?,
        };
        if target == TargetKind::None && config.target.is_some_and(|t| t != TargetKind::None) {
            return Err("it has no target column; name it in `columns.y`".into());
        }
        let y = y.filter(|_| target != TargetKind::None);
        let record = match &payload {
            Payload::Dense(columns) => Record::Dense {
                features: u32::try_from(columns.iter().map(|(_, width)| width).sum::<usize>())
                    .map_err(|_| "its rows have more than 2^32 numbers")?,
                target,
            },
            Payload::Images(_) => Record::Images { target },
            Payload::Tokens(_, TokenType::U16) => Record::Tokens {
                id: TokenType::U16,
                vocabulary: 1 << 16,
            },
            Payload::Tokens(_, id) => Record::Tokens {
                id: *id,
                vocabulary: u32::MAX,
            },
        };
        let wanted = Self {
            payload,
            y,
            target,
            key,
            warnings: Arc::clone(warnings),
        };
        Ok((wanted, record))
    }

    fn fields(&self) -> impl Iterator<Item = &Field> {
        let payload: Vec<&Field> = match &self.payload {
            Payload::Dense(columns) => columns.iter().map(|(field, _)| field).collect(),
            Payload::Images(field) | Payload::Tokens(field, _) => vec![field],
        };
        payload.into_iter().chain(&self.y).chain(&self.key)
    }

    /// Checks that a file has the same columns.
    pub(super) fn compare(&self, schema: &Schema) -> Result<(), String> {
        for field in self.fields() {
            let name = field.name();
            let found = schema
                .field_with_name(name)
                .map_err(|_| format!("column `{name}` is missing, but exists"))?;
            if found.data_type() != field.data_type() {
                return Err(format!(
                    "column `{name}` is `{}` and is `{}`",
                    found.data_type(),
                    field.data_type()
                ));
            }
        }
        Ok(())
    }

    /// Returns true if the leaf column at `path` is read. Of an image's struct only the bytes are.
    pub(super) fn has_leaf(&self, path: &[String]) -> bool {
        let Some(root) = path.first() else {
            return false;
        };
        self.fields()
            .filter(|field| field.name() == root)
            .any(|field| match (&self.payload, field.data_type()) {
                (Payload::Images(image), DataType::Struct(_)) if image.name() == root => {
                    path.get(1).is_some_and(|leaf| leaf == "bytes")
                }
                _ => true,
            })
    }

    /// Checks that no wanted column has nulls.
    ///
    /// # Errors
    /// The column, and the row of its first null.
    pub(super) fn check_nulls(&self, batch: &RecordBatch) -> Result<(), String> {
        for field in self.fields() {
            if let Some(column) = batch.column_by_name(field.name()) {
                without_nulls(column, field.name())?;
            }
        }
        Ok(())
    }

    /// The rows of a row group, with keys if there is a key column; then the second value is true.
    pub(super) fn rows(&self, batch: &RecordBatch) -> Result<(BlockRows, bool), String> {
        let rows = batch.num_rows();
        let y = self.target_of(batch)?;
        let keys = self.keys(batch)?;
        let keyed = keys.is_some();
        let keys = keys.unwrap_or_default();
        let origins = ScalarBuffer::default();
        let bad = Vec::new();
        let rows = match &self.payload {
            Payload::Dense(columns) => BlockRows::Dense(DenseRows {
                x: self.dense(batch, columns, rows)?,
                y,
                keys,
                origins,
                bad,
            }),
            Payload::Images(field) => {
                let (bytes, spans) = image_bytes(&get(batch, field)?, field.name())?;
                BlockRows::Images(ImageRows {
                    bytes,
                    spans,
                    y,
                    keys,
                    origins,
                    bad,
                })
            }
            Payload::Tokens(field, id) => {
                let (ids, offsets) = tokens(&get(batch, field)?, field.name(), *id)?;
                BlockRows::Tokens(TokenRows {
                    ids,
                    offsets,
                    keys,
                    origins,
                    bad,
                })
            }
        };
        Ok((rows, keyed))
    }

    /// `[rows, elements]`, row-major. Says which columns were rounded.
    fn dense(
        &self,
        batch: &RecordBatch,
        columns: &[(Field, usize)],
        rows: usize,
    ) -> Result<ScalarBuffer<f32>, String> {
        let rounded = |name: &str, count| self.warnings.add_rounded(name, count);
        dense(batch, columns, rows, rounded)
    }

    fn target_of(&self, batch: &RecordBatch) -> Result<BlockTarget, String> {
        let Some(field) = &self.y else {
            return Ok(BlockTarget::None);
        };
        let column = get(batch, field)?;
        Ok(match self.target {
            TargetKind::None | TargetKind::Regressions { .. } => BlockTarget::None,
            TargetKind::Regression => {
                let y = cast(&column, &DataType::Float32, field.name())?;
                BlockTarget::Regression(y.as_primitive::<Float32Type>().values().clone())
            }
            TargetKind::Classification { .. } => {
                let y = cast(&column, &DataType::Int32, field.name())?;
                BlockTarget::Classification(y.as_primitive::<Int32Type>().values().clone())
            }
        })
    }

    fn keys(&self, batch: &RecordBatch) -> Result<Option<ScalarBuffer<u64>>, String> {
        let Some(field) = &self.key else {
            return Ok(None);
        };
        let column = get(batch, field)?;
        let name = field.name();
        let keys: ScalarBuffer<u64> = match column.data_type() {
            DataType::UInt64 => column.as_primitive::<UInt64Type>().values().clone(),
            t if t.is_integer() => {
                let column = cast(&column, &DataType::Int64, name)?;
                let values = column.as_primitive::<Int64Type>().values();
                values.iter().map(|v| v.cast_unsigned()).collect()
            }
            _ => {
                let column = cast(&column, &DataType::LargeBinary, name)?;
                let values = column.as_binary::<i64>();
                (0..values.len())
                    .map(|row| xxh3_64(values.value(row)))
                    .collect()
            }
        };
        Ok(Some(keys))
    }
}

/// Columns that a warning names.
const NAMED: usize = 5;

/// Warns of columns that are no numbers and so no part of `x`, where nothing says which columns are.
fn warn_of_left_out(
    schema: &Schema,
    payload: &Payload,
    map: &ColumnMap,
    taken: [&Option<Field>; 2],
    warnings: &Warnings,
) {
    let Payload::Dense(columns) = payload else {
        return;
    };
    if !map.x.is_empty() {
        return;
    }
    let is_read = |name: &str| {
        let taken = taken.into_iter().flatten();
        let mut read = columns.iter().map(|(field, _)| field).chain(taken);
        read.any(|field| field.name() == name)
    };
    let fields = schema.fields().iter();
    let left: Vec<String> = fields
        .filter(|field| !is_read(field.name()))
        .map(|field| format!("`{}` ({})", field.name(), field.data_type()))
        .collect();
    if left.is_empty() {
        return;
    }
    let more = match left.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let named = left[..left.len().min(NAMED)].join(", ");
    warnings.add(&format!(
        "columns are left out, since they are no numbers: {named}{more}; name those to read with `columns.x`, or a target \
         with `columns.y`"
    ));
}

fn column(schema: &Schema, name: &str) -> Result<Field, String> {
    schema.field_with_name(name).cloned().map_err(|_| {
        let names: Vec<_> = schema.fields().iter().map(|f| f.name().as_str()).collect();
        format!("it has no column `{name}`, it has `{}`", names.join("`, `"))
    })
}

fn payload(
    first: &ArrowReaderMetadata,
    map: &ColumnMap,
    y: Option<&Field>,
    key: Option<&Field>,
) -> Result<Payload, String> {
    let schema = first.schema();
    if let Some(name) = &map.image {
        let field = column(schema, name)?;
        return if is_image(field.data_type()) {
            Ok(Payload::Images(field))
        } else {
            Err(format!(
                "column `{name}` is `{}`, not bytes",
                field.data_type()
            ))
        };
    }
    if let Some(name) = &map.tokens {
        let field = column(schema, name)?;
        return match token_type(field.data_type()) {
            Some(id) => Ok(Payload::Tokens(field, id)),
            None => Err(format!(
                "column `{name}` is `{}`, not a list of integers",
                field.data_type()
            )),
        };
    }
    let is_taken = |field: &Field| {
        [y, key]
            .into_iter()
            .flatten()
            .any(|t| t.name() == field.name())
    };
    if !map.x.is_empty() {
        let columns = map.x.iter().map(|name| {
            let field = column(schema, name)?;
            let width = width(first, &field)?;
            Ok((field, width))
        });
        return columns.collect::<Result<_, String>>().map(Payload::Dense);
    }
    let named = |names: &[&str]| names.iter().find_map(|name| column(schema, name).ok());
    if let Some(field) = named(IMAGES).filter(|field| is_image(field.data_type())) {
        return Ok(Payload::Images(field));
    }
    if let Some(field) = named(TOKENS)
        && let Some(id) = token_type(field.data_type())
    {
        return Ok(Payload::Tokens(field, id));
    }
    let columns: Vec<_> = schema
        .fields()
        .iter()
        .filter(|field| !is_taken(field))
        .filter_map(|field| Some((field.as_ref().clone(), width(first, field).ok()?)))
        .collect();
    if columns.is_empty() {
        return Err("it has no numeric columns; name those to read in `columns`".into());
    }
    Ok(Payload::Dense(columns))
}

fn is_number(data_type: &DataType) -> bool {
    data_type.is_integer() || data_type.is_floating() || *data_type == DataType::Boolean
}

fn is_bytes(data_type: &DataType) -> bool {
    use DataType::{Binary, BinaryView, LargeBinary};
    matches!(data_type, Binary | LargeBinary | BinaryView)
}

fn is_image(data_type: &DataType) -> bool {
    match data_type {
        DataType::Struct(fields) => fields
            .iter()
            .any(|field| field.name() == "bytes" && is_bytes(field.data_type())),
        other => is_bytes(other),
    }
}

fn token_type(data_type: &DataType) -> Option<TokenType> {
    match data_type {
        DataType::List(e) | DataType::LargeList(e) => match e.data_type() {
            DataType::UInt8 | DataType::UInt16 => Some(TokenType::U16),
            t if t.is_integer() => Some(TokenType::U32),
            _ => None,
        },
        _ => None,
    }
}

/// Numbers that a column gives to a row. A list's length is found in its type or in the counts of the first row group.
fn width(first: &ArrowReaderMetadata, field: &Field) -> Result<usize, String> {
    let name = field.name();
    match field.data_type() {
        t if is_number(t) => Ok(1),
        DataType::FixedSizeList(element, length) if is_number(element.data_type()) => {
            usize::try_from(*length).map_err(|_| format!("column `{name}` has length `{length}`"))
        }
        DataType::List(element) | DataType::LargeList(element)
            if is_number(element.data_type()) =>
        {
            let groups = first.metadata().row_groups().iter();
            let Some(group) = groups.clone().find(|group| group.num_rows() > 0) else {
                return Err(format!("column `{name}` has no rows"));
            };
            let leaf = group
                .columns()
                .iter()
                .find(|leaf| leaf.column_path().parts().first() == Some(name));
            let values = leaf.map_or(0, |leaf| leaf.num_values());
            if values % group.num_rows() == 0 {
                usize::try_from(values / group.num_rows()).map_err(|e| e.to_string())
            } else {
                Err(format!(
                    "the lists of column `{name}` have different lengths"
                ))
            }
        }
        other => Err(format!(
            "column `{name}` is `{other}`, not a number or a list of them"
        )),
    }
}

fn target<'a>(
    y: &Field,
    all: impl Iterator<Item = &'a ArrowReaderMetadata>,
    asked: Option<TargetKind>,
) -> Result<TargetKind, String> {
    let (name, data_type) = (y.name(), y.data_type());
    if !is_number(data_type) {
        return Err(format!(
            "the target `{name}` is `{data_type}`, not a number"
        ));
    }
    match asked {
        Some(TargetKind::Classification { .. }) if data_type.is_floating() => Err(format!(
            "the target `{name}` is `{data_type}`, and classes are integers"
        )),
        Some(asked) => Ok(asked),
        None if data_type.is_floating() => Ok(TargetKind::Regression),
        None => Ok(TargetKind::Classification {
            classes: all
                .map(|metadata| most_class(metadata, name))
                .try_fold(0, |most, class| class.map(|class| most.max(class)))
                .unwrap_or(UNKNOWN_CLASSES),
        }),
    }
}

/// One more than the largest class in a file, if its statistics have it.
fn most_class(metadata: &ArrowReaderMetadata, name: &String) -> Option<u32> {
    let mut most = 0;
    for group in metadata.metadata().row_groups() {
        let mut leaves = group.columns().iter();
        let leaf = leaves.find(|leaf| leaf.column_path().parts().first() == Some(name))?;
        let largest = match leaf.statistics()? {
            Statistics::Int32(s) => i64::from(*s.max_opt()?),
            Statistics::Int64(s) => *s.max_opt()?,
            Statistics::Boolean(_) => 1,
            _ => return None,
        };
        most = most.max(u32::try_from(largest).ok()?.checked_add(1)?);
    }
    Some(most)
}

/// A column without nulls.
fn get(batch: &RecordBatch, field: &Field) -> Result<ArrayRef, String> {
    let name = field.name();
    let column = batch.column_by_name(name);
    let column = column.ok_or_else(|| format!("column `{name}` is missing"))?;
    without_nulls(column, name)?;
    Ok(ArrayRef::clone(column))
}

fn without_nulls(column: &dyn Array, name: &str) -> Result<(), String> {
    let Some(nulls) = column
        .logical_nulls()
        .filter(|nulls| nulls.null_count() > 0)
    else {
        return Ok(());
    };
    let row = (0..nulls.len())
        .find(|row| nulls.is_null(*row))
        .unwrap_or(0);
    Err(format!(
        "column `{name}` has `{}` nulls, the first in row `{row}`; fill them or drop those rows",
        nulls.null_count()
    ))
}

fn cast(column: &ArrayRef, to: &DataType, name: &str) -> Result<ArrayRef, String> {
    let options = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    cast_with_options(column, to, &options).map_err(|e| format!("column `{name}`: {e}"))
}

/// Integers that are another number as float32.
fn inexact(integers: &ArrayRef, floats: &[f32]) -> u64 {
    fn count<T: Copy + Into<i128>>(integers: &[T], floats: &[f32]) -> u64 {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the float is a rounded integer of 64 bits"
        )]
        let differs = |(integer, float): (&T, &f32)| (*integer).into() != *float as i128;
        integers
            .iter()
            .zip(floats)
            .filter(|pair| differs(*pair))
            .count() as u64
    }
    match integers.data_type() {
        DataType::Int32 => count(integers.as_primitive::<Int32Type>().values(), floats),
        DataType::UInt32 => count(integers.as_primitive::<UInt32Type>().values(), floats),
        DataType::Int64 => count(integers.as_primitive::<Int64Type>().values(), floats),
        DataType::UInt64 => count(integers.as_primitive::<UInt64Type>().values(), floats),
        _ => 0,
    }
}

/// `[rows, elements]`, row-major. `rounded` gets the number of integers of each column that float32 cannot hold.
fn dense(
    batch: &RecordBatch,
    columns: &[(Field, usize)],
    rows: usize,
    rounded: impl Fn(&str, u64),
) -> Result<ScalarBuffer<f32>, String> {
    let mut parts = Vec::with_capacity(columns.len());
    for (field, width) in columns {
        let column = get(batch, field)?;
        let (values, inexact) = numbers(&column, field.name(), *width, rows)?;
        rounded(field.name(), inexact);
        parts.push((values, *width));
    }
    if let [(only, _)] = parts.as_slice() {
        return Ok(only.clone());
    }
    let elements = columns.iter().map(|(_, width)| width).sum::<usize>();
    let mut x = vec![0.0; rows * elements];
    for (tile, to) in x.chunks_mut(TILE * elements.max(1)).enumerate() {
        let mut at = 0;
        for (values, width) in &parts {
            let values = &values[tile * TILE * width..];
            for (row, from) in to
                .chunks_exact_mut(elements)
                .zip(values.chunks_exact(*width))
            {
                row[at..at + width].copy_from_slice(from);
            }
            at += width;
        }
    }
    Ok(x.into())
}

fn numbers(
    column: &ArrayRef,
    name: &str,
    width: usize,
    rows: usize,
) -> Result<(ScalarBuffer<f32>, u64), String> {
    let values = match column.data_type() {
        DataType::FixedSizeList(..) => ArrayRef::clone(column.as_fixed_size_list().values()),
        DataType::List(_) => {
            let list = column.as_list::<i32>();
            equal_lengths(list.offsets().windows(2).map(|o| o[1] - o[0]), width, name)?;
            span(list.values(), list.offsets().first(), list.offsets().last())
        }
        DataType::LargeList(_) => {
            let list = column.as_list::<i64>();
            equal_lengths(list.offsets().windows(2).map(|o| o[1] - o[0]), width, name)?;
            span(list.values(), list.offsets().first(), list.offsets().last())
        }
        _ => ArrayRef::clone(column),
    };
    without_nulls(&values, name)?;
    let given = values;
    let values = cast(&given, &DataType::Float32, name)?;
    let values = values.as_primitive::<Float32Type>().values();
    if values.len() != rows * width {
        let found = values.len();
        return Err(format!(
            "column `{name}` has `{found}` numbers for `{rows}` rows of `{width}`"
        ));
    }
    Ok((values.clone(), inexact(&given, values)))
}

fn equal_lengths<T: TryInto<usize>>(
    lengths: impl Iterator<Item = T>,
    width: usize,
    name: &str,
) -> Result<(), String> {
    let differs = |length: T| length.try_into().ok() != Some(width);
    match lengths.map(differs).position(|differs| differs) {
        None => Ok(()),
        Some(row) => Err(format!(
            "the list in column `{name}` of row `{row}` does not have `{width}` numbers as in the first row group"
        )),
    }
}

/// The values of a list between its first and last offset.
fn span<T: Copy + TryInto<usize>>(values: &ArrayRef, from: Option<&T>, to: Option<&T>) -> ArrayRef {
    let number = |offset: Option<&T>| offset.and_then(|o| (*o).try_into().ok()).unwrap_or(0);
    let (from, to) = (number(from), number(to));
    values.slice(from, to - from)
}

fn image_bytes(column: &ArrayRef, name: &str) -> Result<(arrow::buffer::Buffer, Spans), String> {
    let column = match column.as_any().downcast_ref::<StructArray>() {
        Some(fields) => fields
            .column_by_name("bytes")
            .ok_or_else(|| format!("column `{name}` has no field `bytes`"))?,
        None => column,
    };
    without_nulls(column, name)?;
    let column = match column.data_type() {
        DataType::BinaryView => cast(column, &DataType::LargeBinary, name)?,
        _ => ArrayRef::clone(column),
    };
    Ok(match column.data_type() {
        DataType::LargeBinary => {
            let (offsets, bytes, _) = column.as_binary::<i64>().clone().into_parts();
            (bytes, Spans::AdjacentLarge(offsets.into_inner()))
        }
        _ => {
            let (offsets, bytes, _) = column.as_binary::<i32>().clone().into_parts();
            (bytes, Spans::Adjacent(offsets.into_inner()))
        }
    })
}

fn tokens(
    column: &ArrayRef,
    name: &str,
    id: TokenType,
) -> Result<(TokenIds, ScalarBuffer<i32>), String> {
    let (values, offsets) = match column.data_type() {
        DataType::LargeList(_) => {
            let list = column.as_list::<i64>();
            (list.values(), from_zero(list.offsets()))
        }
        _ => {
            let list = column.as_list::<i32>();
            (list.values(), from_zero(list.offsets()))
        }
    };
    let (first, offsets) = offsets.ok_or("a row group has 2^31 tokens or more")?;
    let held = offsets
        .last()
        .map_or(0, |last| usize::try_from(*last).unwrap_or(0));
    let values = values.slice(first, held);
    without_nulls(&values, name)?;
    let ids = match id {
        TokenType::U16 => {
            let values = cast(&values, &DataType::UInt16, name)?;
            TokenIds::U16(values.as_primitive::<UInt16Type>().values().clone())
        }
        TokenType::U32 => {
            let values = cast(&values, &DataType::UInt32, name)?;
            TokenIds::U32(values.as_primitive::<UInt32Type>().values().clone())
        }
    };
    Ok((ids, offsets))
}

/// Start of the first list, and offsets relative to it.
fn from_zero<T: Copy + Into<i64>>(offsets: &[T]) -> Option<(usize, ScalarBuffer<i32>)> {
    let first: i64 = offsets.first().map_or(0, |first| (*first).into());
    let moved = offsets.iter().map(|o| i32::try_from((*o).into() - first));
    let moved: Vec<i32> = moved.collect::<Result<_, _>>().ok()?;
    Some((usize::try_from(first).ok()?, moved.into()))
}
