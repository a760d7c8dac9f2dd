//! The chosen columns of an MDS dataset, and conversion of its samples to rows.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use feedline_schemas::manifest::{TargetKind, TokenType};
use xxhash_rust::xxh3::xxh3_64;

use super::{
    super::{
        config::{ColumnMap, InputConfig, check_target},
        names::{TARGETS, element_names},
        record::RowContent,
        roles::{
            check_other_targets, warn_of_target_in_features, warn_of_unread,
            warn_that_all_are_features, warn_without_target,
        },
        warnings::Warnings,
    },
    choice::{MdsPayload, NamedColumns, target},
    encoding::{Encoding, Number, array},
    index::MdsIndex,
};
use crate::input::block_rows::{
    BlockRows, BlockTarget, DenseRows, ImageRows, Spans, TokenIds, TokenRows,
};

/// The columns that are read, by number.
#[derive(Debug)]
pub(super) struct ChosenMdsColumns {
    sizes: Vec<Option<u32>>,
    names: Vec<String>,
    payload: MdsPayload,
    y: Option<(usize, Number)>,
    target: TargetKind,
    key: Option<(usize, Encoding)>,
    warnings: Arc<Warnings>,
}

impl ChosenMdsColumns {
    /// Finds the columns.
    pub(super) fn find(
        index: &MdsIndex,
        config: &InputConfig,
        warnings: &Arc<Warnings>,
    ) -> Result<(Self, RowContent), String> {
        let Some(first) = index.shards.first() else {
            return Err("it names no shards".into());
        };
        let encodings: Vec<_> = first
            .column_encodings
            .iter()
            .map(|e| Encoding::parse(e))
            .collect();
        let columns = NamedColumns {
            names: &first.column_names,
            encodings: &encodings,
        };
        let map = &config.columns;
        map.check()?;
        check_target(config.target)?;
        let y = columns.target(map, config.target);
        let key = map
            .key
            .as_deref()
            .map(|name| columns.key(name))
            .transpose()?;
        let at = y.as_ref().ok().copied().flatten().map(|y| y.0);
        let payload = columns.payload(map, at, key.as_ref().map(|key| key.0))?;
        if let MdsPayload::Tokens(tokens, ..) = &payload {
            config.check_documents(&first.column_names[*tokens])?;
        }
        let y = y?.filter(|_| !matches!(payload, MdsPayload::Tokens(..)));
        let target = match y {
            None => TargetKind::None,
            Some((_, number)) => target(number, config.target)?,
        };
        let record = match &payload {
            MdsPayload::Dense(_, features) => RowContent::Dense {
                features: u32::try_from(*features)
                    .map_err(|_| "its rows have more than 2^32 numbers")?,
                target,
            },
            MdsPayload::Images(_) => RowContent::Images { target },
            MdsPayload::Tokens(_, _, true) => RowContent::Tokens {
                id: TokenType::U16,
                vocabulary: 1 << 16,
            },
            MdsPayload::Tokens(..) => RowContent::Tokens {
                id: TokenType::U32,
                vocabulary: u32::MAX,
            },
        };
        let wanted = Self {
            sizes: first.column_sizes.clone(),
            names: first.column_names.clone(),
            y,
            target,
            payload,
            key,
            warnings: Arc::clone(warnings),
        };
        wanted.check_targets(map)?;
        if let Some((y, _)) = y {
            warn_of_target_in_features(&first.column_names[y], &map.x, warnings);
        }
        if map.names_no_part() {
            wanted.name_unread();
        }
        if y.is_none() && config.target.is_none() {
            wanted.warn_of_missing_target(map.x.is_empty());
        }
        Ok((wanted, record))
    }

    /// Checks columns that are called like a target and are not the one that is read.
    ///
    /// # Errors
    /// A message if it is not clear which one is the target, and the others would be features.
    fn check_targets(&self, map: &ColumnMap) -> Result<(), String> {
        let Some((y, _)) = self.y else {
            return Ok(());
        };
        let features = match &self.payload {
            MdsPayload::Dense(columns, _) if map.x.is_empty() => Some(columns),
            MdsPayload::Dense(..) | MdsPayload::Images(_) => None,
            MdsPayload::Tokens(..) => return Ok(()),
        };
        let key = self.key.as_ref().map(|key| key.0);
        let is_feature = |column: usize| {
            features.is_none_or(|features| features.iter().any(|(feature, ..)| *feature == column))
        };
        let names = self.names.iter().enumerate();
        let others = names
            .filter(|(column, _)| *column != y && Some(*column) != key && is_feature(*column))
            .map(|(_, name)| name.as_str())
            .filter(|name| TARGETS.contains(name));
        let others: Vec<&str> = others.collect();
        let y = (self.names[y].as_str(), map.y.is_some());
        check_other_targets(y, &others, features.is_some(), &self.warnings)
    }

    /// Warns that there is no target, where the settings say neither which column it is nor that there is none.
    fn warn_of_missing_target(&self, all_are_features: bool) {
        match self.payload {
            MdsPayload::Dense(..) if all_are_features => warn_that_all_are_features(&self.warnings),
            MdsPayload::Images(_) if self.names.len() > 1 => warn_without_target(&self.warnings),
            _ => {}
        }
    }

    /// Names of the elements of `x`; `None` where rows are no numbers.
    pub(super) fn column_names(&self) -> Option<Vec<Option<String>>> {
        let MdsPayload::Dense(columns, _) = &self.payload else {
            return None;
        };
        let names = columns
            .iter()
            .flat_map(|(column, _, width)| element_names(&self.names[*column], *width));
        Some(names.collect())
    }

    /// Says which columns are not read, where the settings do not say which are.
    fn name_unread(&self) {
        let taken: Vec<usize> = match &self.payload {
            MdsPayload::Dense(columns, _) => columns.iter().map(|(column, ..)| *column).collect(),
            MdsPayload::Images(column) | MdsPayload::Tokens(column, ..) => vec![*column],
        };
        let others = [self.y.map(|y| y.0), self.key.as_ref().map(|key| key.0)];
        let is_read = |column: &usize| taken.contains(column) || others.contains(&Some(*column));
        let (read, unread): (Vec<_>, Vec<_>) =
            (0..self.names.len()).partition(|column| is_read(column));
        let names = |columns: Vec<usize>| {
            let names = columns.into_iter().map(|c| self.names[c].as_str());
            names.collect::<Vec<_>>()
        };
        warn_of_unread(&names(read), &names(unread), &self.warnings);
    }

    /// The `rows` samples that fill the beginning of `bytes`, with keys if there is a key column; then the second value
    /// is true.
    pub(super) fn rows(&self, bytes: &Bytes, rows: usize) -> Result<(BlockRows, bool), String> {
        let mut taken = TakenValues::new(&self.payload, rows);
        let mut spans = vec![(0, 0); self.sizes.len()];
        let mut at = 0;
        for row in 0..rows {
            at = self
                .spans(bytes, at, &mut spans)
                .ok_or_else(|| format!("sample `{row}` ends after its block"))?;
            self.take(bytes, &spans, &mut taken).map_err(|column| {
                format!(
                    "column `{}` of sample `{row}` has another size or value than its type",
                    self.names[column]
                )
            })?;
        }
        if at != bytes.len() {
            return Err("its samples do not fill it".into());
        }
        for (column, count) in &taken.rounded {
            self.warnings.add_rounded(&self.names[*column], *count);
        }
        if let Some((column, _)) = self.y {
            let rounded = taken.rounded_targets;
            self.warnings
                .add_rounded_target(&self.names[column], rounded);
        }
        Ok(taken.finish(bytes, self))
    }

    /// Finds the byte ranges of the columns of the sample at `at`; returns its end.
    fn spans(&self, bytes: &[u8], at: usize, spans: &mut [(usize, usize)]) -> Option<usize> {
        let mut lengths = at;
        let variable = self
            .sizes
            .iter()
            .filter(|size| size.unwrap_or(0) == 0)
            .count();
        let mut start = at.checked_add(4 * variable)?;
        for (span, size) in spans.iter_mut().zip(&self.sizes) {
            let size = match size {
                Some(size) if *size > 0 => *size,
                _ => {
                    let length = bytes.get(lengths..lengths + 4)?.try_into().ok()?;
                    lengths += 4;
                    u32::from_le_bytes(length)
                }
            };
            let end = start
                .checked_add(size as usize)
                .filter(|end| *end <= bytes.len())?;
            *span = (start, end);
            start = end;
        }
        Some(start)
    }

    /// Takes the wanted columns of a sample; the error is the number of the column that cannot be taken.
    fn take(
        &self,
        bytes: &[u8],
        spans: &[(usize, usize)],
        taken: &mut TakenValues,
    ) -> Result<(), usize> {
        let value = |column: usize| &bytes[spans[column].0..spans[column].1];
        match &self.payload {
            MdsPayload::Dense(columns, _) => {
                for (column, number, width) in columns {
                    let rounded =
                        numbers(value(*column), *number, *width, &mut taken.x).ok_or(*column)?;
                    if rounded > 0 {
                        *taken.rounded.entry(*column).or_default() += rounded;
                    }
                }
            }
            MdsPayload::Images(column) => taken.spans.push(spans[*column]),
            MdsPayload::Tokens(column, encoding, _) => {
                taken.tokens(value(*column), encoding).ok_or(*column)?;
            }
        }
        if let Some((column, number)) = self.y {
            let value = value(column);
            if self.target == TargetKind::Regression {
                let float = number.float(value).ok_or(column)?;
                taken.rounded_targets += u64::from(is_rounded(number, value, float));
                taken.numbers.push(float);
            } else {
                let class = number.integer(value).ok_or(column)?;
                // What does not fit is out of range, and -1 is so too.
                taken.classes.push(i32::try_from(class).unwrap_or(-1));
            }
        }
        if let Some((column, encoding)) = &self.key {
            let value = value(*column);
            taken.keys.push(match encoding {
                Encoding::Scalar(number) => integer_key(*number, value).ok_or(*column)?,
                _ => xxh3_64(value),
            });
        }
        Ok(())
    }
}

/// Values taken from the samples of a block.
struct TakenValues {
    x: Vec<f32>,
    /// Integers of each column that float32 cannot hold.
    rounded: BTreeMap<usize, u64>,
    /// Targets that are such integers.
    rounded_targets: u64,
    spans: Vec<(usize, usize)>,
    ids16: Vec<u16>,
    ids32: Vec<u32>,
    is_short: bool,
    offsets: Vec<i32>,
    numbers: Vec<f32>,
    classes: Vec<i32>,
    keys: Vec<u64>,
}

impl TakenValues {
    fn new(payload: &MdsPayload, rows: usize) -> Self {
        let features = match payload {
            MdsPayload::Dense(_, features) => *features,
            _ => 0,
        };
        Self {
            x: Vec::with_capacity(rows * features),
            rounded: BTreeMap::new(),
            rounded_targets: 0,
            spans: Vec::new(),
            ids16: Vec::new(),
            ids32: Vec::new(),
            is_short: matches!(payload, MdsPayload::Tokens(_, _, true)),
            offsets: vec![0],
            numbers: Vec::new(),
            classes: Vec::new(),
            keys: Vec::new(),
        }
    }

    fn tokens(&mut self, value: &[u8], encoding: &Encoding) -> Option<()> {
        let (number, values) = match encoding.width() {
            Some((number, width)) if value.len() == width.checked_mul(number.bytes())? => {
                (number, value)
            }
            Some(_) => return None,
            None => array(value, encoding.number())?,
        };
        for id in values.chunks_exact(number.bytes()) {
            let id = number.integer(id)?;
            if self.is_short {
                self.ids16.push(u16::try_from(id).ok()?);
            } else {
                self.ids32.push(u32::try_from(id).ok()?);
            }
        }
        let held = self.ids16.len() + self.ids32.len();
        self.offsets.push(i32::try_from(held).ok()?);
        Some(())
    }

    fn finish(self, bytes: &Bytes, wanted: &ChosenMdsColumns) -> (BlockRows, bool) {
        let keyed = wanted.key.is_some();
        let y = match (wanted.y, wanted.target) {
            (None, _) | (_, TargetKind::None) => BlockTarget::None,
            (_, TargetKind::Regression) => BlockTarget::Regression(self.numbers.into()),
            _ => BlockTarget::Classification(self.classes.into()),
        };
        let (keys, origins, bad) = (self.keys.into(), Vec::new().into(), Vec::new());
        let rows = match wanted.payload {
            MdsPayload::Dense(..) => BlockRows::Dense(DenseRows {
                x: self.x.into(),
                y,
                keys,
                origins,
                bad,
            }),
            MdsPayload::Images(_) => BlockRows::Images(ImageRows {
                bytes: bytes.clone().into(),
                spans: Spans::Apart(self.spans),
                y,
                keys,
                origins,
                bad,
            }),
            MdsPayload::Tokens(_, _, is_short) => BlockRows::Tokens(TokenRows {
                ids: if is_short {
                    TokenIds::U16(self.ids16.into())
                } else {
                    TokenIds::U32(self.ids32.into())
                },
                offsets: self.offsets.into(),
                keys,
                origins,
                bad,
            }),
        };
        (rows, keyed)
    }
}

/// Appends the numbers of a value; returns how many of them float32 cannot hold.
fn numbers(value: &[u8], number: Number, width: usize, to: &mut Vec<f32>) -> Option<u64> {
    if value.len() != width * number.bytes() {
        return None;
    }
    if number == Number::F32 {
        let values = value.chunks_exact(4);
        to.extend(values.map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])));
        return Some(0);
    }
    let mut rounded = 0;
    for value in value.chunks_exact(number.bytes()) {
        let float = number.float(value)?;
        rounded += u64::from(is_rounded(number, value, float));
        to.push(float);
    }
    Some(rounded)
}

/// Returns true if `value` is an integer, and another number as the float that was made of it.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the float is a rounded integer of 64 bits"
)]
fn is_rounded(number: Number, value: &[u8], float: f32) -> bool {
    let integer = number.integer(value);
    integer.is_some_and(|integer| integer != float as i128)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a key is the number's bits, and no number has more than 64"
)]
fn integer_key(number: Number, value: &[u8]) -> Option<u64> {
    number.integer(value).map(|key| key as u64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::input::config::ColumnMap;

    proptest! {
        #[test]
        fn no_sample_is_a_panic(
            bytes in prop::collection::vec(prop::sample::select(vec![0u8, 1, 2, 4, 8, 16, 255]), 0..120),
            rows in 0usize..4,
        ) {
            let index = serde_json::json!({"version": 2, "shards": [{
                "column_encodings": ["bytes", "ndarray", "int", "ndarray:uint16"],
                "column_names": ["image", "x", "label", "tokens"], "column_sizes": [null, null, 8, null],
                "compression": null, "format": "mds", "raw_data": {"basename": "a", "bytes": 100},
                "samples": 1, "version": 2, "zip_data": null}]});
            let index = MdsIndex::read(index.to_string().as_bytes()).unwrap();
            for columns in [
                ColumnMap { image: Some("image".into()), ..ColumnMap::default() },
                ColumnMap { tokens: Some("tokens".into()), key: Some("image".into()), ..ColumnMap::default() },
                ColumnMap { tokens: Some("x".into()), ..ColumnMap::default() },
                ColumnMap { x: vec!["label".into()], ..ColumnMap::default() },
            ] {
                let config = InputConfig { columns, ..InputConfig::default() };
                let warnings = Arc::new(Warnings::new("memory".into()));
                let (wanted, _) = ChosenMdsColumns::find(&index, &config, &warnings).unwrap();
                wanted.rows(&Bytes::from(bytes.clone()), rows).ok();
            }
        }
    }
}
