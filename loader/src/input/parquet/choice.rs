//! Choice of the columns of a Parquet dataset that are read.

use arrow::datatypes::{DataType, Field, Schema};
use feedline_schemas::{
    count::first_of,
    manifest::{TargetKind, TokenType},
};
use parquet::{arrow::arrow_reader::ArrowReaderMetadata, file::statistics::Statistics};

use super::super::{
    config::ColumnMap,
    names::{IMAGES, TARGETS, TOKENS, UNKNOWN_CLASSES},
    roles::{
        check_other_targets, is_never_feature, warn_of_own_names, warn_of_unread,
        warn_that_all_are_features, warn_without_target,
    },
    warnings::Warnings,
};

/// Columns that a warning names.
const NAMED: usize = 5;

#[derive(Debug)]
pub(super) enum ParquetPayload {
    /// Columns and the elements of a row that each gives.
    Dense(Vec<(Field, usize)>),
    Images(Field),
    Tokens(Field, TokenType),
}

pub(super) fn column(schema: &Schema, name: &str) -> Result<Field, String> {
    schema.field_with_name(name).cloned().map_err(|_| {
        let names: Vec<_> = schema.fields().iter().map(|f| f.name().as_str()).collect();
        format!("it has no column `{name}`, it has `{}`", names.join("`, `"))
    })
}

pub(super) fn payload(
    first: &ArrowReaderMetadata,
    map: &ColumnMap,
    y: Option<&Field>,
    key: Option<&Field>,
) -> Result<ParquetPayload, String> {
    let schema = first.schema();
    if let Some(name) = &map.image {
        let field = column(schema, name)?;
        return if is_image(field.data_type()) {
            Ok(ParquetPayload::Images(field))
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
            Some(id) => Ok(ParquetPayload::Tokens(field, id)),
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
        return columns
            .collect::<Result<_, String>>()
            .map(ParquetPayload::Dense);
    }
    let named = |names: &[&str]| names.iter().find_map(|name| column(schema, name).ok());
    if let Some(field) = named(IMAGES).filter(|field| is_image(field.data_type())) {
        return Ok(ParquetPayload::Images(field));
    }
    if let Some(field) = named(TOKENS)
        && let Some(id) = token_type(field.data_type())
    {
        return Ok(ParquetPayload::Tokens(field, id));
    }
    let columns: Vec<_> = schema
        .fields()
        .iter()
        .filter(|field| !is_taken(field) && !is_never_feature(field.name()))
        .filter_map(|field| Some((field.as_ref().clone(), width(first, field).ok()?)))
        .collect();
    if columns.is_empty() {
        return Err("it has no numeric columns; name those to read in `columns`".into());
    }
    Ok(ParquetPayload::Dense(columns))
}

/// Warns of columns that are not read, where nothing says which are; of rows of numbers with the reason.
pub(super) fn warn_of_left_out(
    schema: &Schema,
    payload: &ParquetPayload,
    map: &ColumnMap,
    taken: [&Option<Field>; 2],
    warnings: &Warnings,
) {
    if !map.names_no_part() {
        return;
    }
    let of_payload: Vec<&Field> = match payload {
        ParquetPayload::Dense(columns) => columns.iter().map(|(field, _)| field).collect(),
        ParquetPayload::Images(field) | ParquetPayload::Tokens(field, _) => vec![field],
    };
    let is_read = |name: &str| {
        let taken = taken.into_iter().flatten();
        let mut read = of_payload.iter().copied().chain(taken);
        read.any(|field| field.name() == name)
    };
    let fields = schema.fields().iter();
    if !matches!(payload, ParquetPayload::Dense(_)) {
        let names = fields.map(|field| field.name().as_str());
        let (read, unread): (Vec<_>, Vec<_>) = names.partition(|name| is_read(name));
        warn_of_unread(&read, &unread, warnings);
        return;
    }
    let is_own = |field: &Field| is_never_feature(field.name()) && is_number(field.data_type());
    let own = fields
        .clone()
        .filter(|field| is_own(field) && !is_read(field.name()));
    warn_of_own_names(own.map(|field| field.name().as_str()), warnings);
    let left: Vec<String> = fields
        .filter(|field| !is_read(field.name()) && !is_own(field))
        .map(|field| format!("`{}` ({})", field.name(), field.data_type()))
        .collect();
    if left.is_empty() {
        return;
    }
    warnings.add(&format!(
        "columns are left out, since they are neither numbers nor lists of numbers of one length: {}; name those to read with \
         `columns.x`, or a target with `columns.y`",
        first_of(&left, NAMED)
    ));
}

/// Checks columns of numbers that are called like a target and are not the one that is read.
///
/// # Errors
/// A message if it is not clear which one is the target, and the others would be features.
pub(super) fn check_targets(
    schema: &Schema,
    payload: &ParquetPayload,
    map: &ColumnMap,
    [y, key]: [&Option<Field>; 2],
    warnings: &Warnings,
) -> Result<(), String> {
    let (Some(y), ParquetPayload::Dense(_) | ParquetPayload::Images(_)) = (y, payload) else {
        return Ok(());
    };
    let is_key = |name: &str| key.as_ref().is_some_and(|key| key.name() == name);
    let fields = schema.fields().iter();
    let others = fields
        .filter(|field| is_number(field.data_type()))
        .map(|field| field.name().as_str())
        .filter(|name| TARGETS.contains(name) && name != y.name() && !is_key(name));
    let others: Vec<&str> = others.collect();
    let are_features = matches!(payload, ParquetPayload::Dense(_)) && map.x.is_empty();
    let y = (y.name().as_str(), map.y.is_some());
    check_other_targets(y, &others, are_features, warnings)
}

/// Warns that there is no target, where the settings say neither which column it is nor that there is none.
pub(super) fn warn_of_missing_target(
    schema: &Schema,
    payload: &ParquetPayload,
    map: &ColumnMap,
    key: Option<&Field>,
    warnings: &Warnings,
) {
    match payload {
        ParquetPayload::Dense(_) if map.x.is_empty() => warn_that_all_are_features(warnings),
        ParquetPayload::Images(image) => {
            let is_other =
                |name: &str| name != image.name() && key.is_none_or(|k| name != k.name());
            if schema.fields().iter().any(|field| is_other(field.name())) {
                warn_without_target(warnings);
            }
        }
        ParquetPayload::Dense(_) | ParquetPayload::Tokens(..) => {}
    }
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
        DataType::List(e) | DataType::LargeList(e) | DataType::FixedSizeList(e, 1..) => {
            match e.data_type() {
                DataType::UInt8 | DataType::UInt16 => Some(TokenType::U16),
                t if t.is_integer() => Some(TokenType::U32),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Numbers that a column gives to a row. A list's length is found in its type or in the counts of the first row group.
fn width(first: &ArrowReaderMetadata, field: &Field) -> Result<usize, String> {
    let name = field.name();
    match field.data_type() {
        t if is_number(t) => Ok(1),
        DataType::FixedSizeList(element, length) if is_number(element.data_type()) => {
            let width = usize::try_from(*length).ok().filter(|width| *width > 0);
            width.ok_or_else(|| format!("the lists of column `{name}` have the length `{length}`"))
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
            if values > 0 && values % group.num_rows() == 0 {
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

pub(super) fn target<'a>(
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

#[cfg(test)]
mod tests {
    use arrow::array::Float32Array;
    use parquet::arrow::arrow_reader::ArrowReaderOptions;

    use super::*;
    use crate::foreign::{column, parquet};

    #[test]
    fn lists_without_numbers_are_no_part_of_a_row() {
        let file = parquet(vec![("a", column(Float32Array::from(vec![1.0])))], 1);
        let first = ArrowReaderMetadata::load(&file, ArrowReaderOptions::new()).unwrap();
        let lists = |length| {
            let item = Field::new("item", DataType::Float32, true);
            Field::new("v", DataType::FixedSizeList(item.into(), length), false)
        };
        assert_eq!(width(&first, &lists(3)), Ok(3));
        let error = width(&first, &lists(0)).unwrap_err();
        assert_eq!(error, "the lists of column `v` have the length `0`");
    }
}
