//! The chosen columns of a Parquet dataset, and their conversion to rows.

use std::sync::Arc;

use arrow::{
    array::{Array as _, AsArray, RecordBatch},
    buffer::ScalarBuffer,
    datatypes::{DataType, Field, Float32Type, Int32Type, Int64Type, Schema, UInt64Type},
};
use feedline_schemas::manifest::{TargetKind, TokenType};
use parquet::arrow::arrow_reader::ArrowReaderMetadata;
use xxhash_rust::xxh3::xxh3_64;

use super::{
    super::{
        config::{InputConfig, check_target},
        foreign::RefusedBytes,
        names::{TARGETS, element_names},
        record::RowContent,
        roles::warn_of_target_in_features,
        warnings::Warnings,
    },
    choice::{
        ParquetPayload, check_targets, column, payload, target, warn_of_left_out,
        warn_of_missing_target,
    },
    convert::{cast, dense, get, image_bytes, inexact, tokens, without_nulls},
};
use crate::input::block_rows::{BlockRows, BlockTarget, DenseRows, ImageRows, TokenRows};

/// The columns that are read.
#[derive(Debug)]
pub(super) struct ChosenParquetColumns {
    payload: ParquetPayload,
    y: Option<Field>,
    target: TargetKind,
    key: Option<Field>,
    warnings: Arc<Warnings>,
}

impl ChosenParquetColumns {
    /// Finds the columns in the first file with rows; `all` are the footers of every file.
    pub(super) fn find<'a>(
        first: &ArrowReaderMetadata,
        all: impl Iterator<Item = &'a ArrowReaderMetadata>,
        config: &InputConfig,
        warnings: &Arc<Warnings>,
    ) -> Result<(Self, RowContent), String> {
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
        if let ParquetPayload::Tokens(tokens, _) = &payload {
            config.check_documents(tokens.name())?;
        }
        let y = y.filter(|_| !matches!(payload, ParquetPayload::Tokens(..)));
        check_targets(schema, &payload, map, [&y, &key], warnings)?;
        warn_of_left_out(schema, &payload, map, [&y, &key], warnings);
        if y.is_none() && config.target.is_none() {
            warn_of_missing_target(schema, &payload, map, key.as_ref(), warnings);
        }
        let target = match &y {
            None => TargetKind::None,
            Some(y) => target(y, all, config.target)?,
        };
        if target == TargetKind::None && config.target.is_some_and(|t| t != TargetKind::None) {
            return Err("it has no target column; name it in `columns.y`".into());
        }
        let y = y.filter(|_| target != TargetKind::None);
        if let Some(y) = &y {
            warn_of_target_in_features(y.name(), &map.x, warnings);
        }
        let record = match &payload {
            ParquetPayload::Dense(columns) => RowContent::Dense {
                features: u32::try_from(columns.iter().map(|(_, width)| width).sum::<usize>())
                    .map_err(|_| "its rows have more than 2^32 numbers")?,
                target,
            },
            ParquetPayload::Images(_) => RowContent::Images { target },
            ParquetPayload::Tokens(_, TokenType::U16) => RowContent::Tokens {
                id: TokenType::U16,
                vocabulary: 1 << 16,
            },
            ParquetPayload::Tokens(_, id) => RowContent::Tokens {
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
            ParquetPayload::Dense(columns) => columns.iter().map(|(field, _)| field).collect(),
            ParquetPayload::Images(field) | ParquetPayload::Tokens(field, _) => vec![field],
        };
        payload.into_iter().chain(&self.y).chain(&self.key)
    }

    /// Names of the elements of `x`; `None` where rows are no numbers.
    pub(super) fn column_names(&self) -> Option<Vec<Option<String>>> {
        let ParquetPayload::Dense(columns) = &self.payload else {
            return None;
        };
        let names = columns
            .iter()
            .flat_map(|(field, width)| element_names(field.name(), *width));
        Some(names.collect())
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
                (ParquetPayload::Images(image), DataType::Struct(_)) if image.name() == root => {
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
    pub(super) fn rows(&self, batch: &RecordBatch) -> Result<(BlockRows, bool), RefusedBytes> {
        let rows = batch.num_rows();
        let y = self.target_of(batch).map_err(RefusedBytes::Content)?;
        let keys = self.keys(batch)?;
        let keyed = keys.is_some();
        let keys = keys.unwrap_or_default();
        let origins = ScalarBuffer::default();
        let bad = Vec::new();
        let rows = match &self.payload {
            ParquetPayload::Dense(columns) => BlockRows::Dense(DenseRows {
                x: self.dense(batch, columns, rows)?,
                y,
                keys,
                origins,
                bad,
            }),
            ParquetPayload::Images(field) => {
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
            ParquetPayload::Tokens(field, id) => {
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
                let y = y.as_primitive::<Float32Type>().values();
                let rounded = inexact(&column, y);
                self.warnings.add_rounded_target(field.name(), rounded);
                BlockTarget::Regression(y.clone())
            }
            TargetKind::Classification { .. } => {
                let y = cast(&column, &DataType::Int32, field.name()).map_err(|reason| {
                    format!(
                        "a value of the target is no class, which are integers of 32 bits: {reason}; to read it as a number, set \
                         `target` to regression"
                    )
                })?;
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
