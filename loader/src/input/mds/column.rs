//! Choice of the columns of an MDS dataset, and conversion of its samples to rows.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use feedline_schemas::manifest::{TargetKind, TokenType};
use xxhash_rust::xxh3::xxh3_64;

use super::{
    super::{
        config::{ColumnMap, InputConfig, check_target},
        names::{IMAGES, TARGETS, TOKENS, UNKNOWN_CLASSES},
        record::Record,
        splits::list,
        warnings::Warnings,
    },
    index::Index,
};
use crate::input::block_rows::{
    BlockRows, BlockTarget, DenseRows, ImageRows, Spans, TokenIds, TokenRows,
};

/// Encoding of a column's values.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Encoding {
    /// Bytes as they are: `bytes`, `str`, `jpeg`, `png`.
    Bytes { is_image: bool },
    /// One number.
    Scalar(Number),
    /// Numbers; type and shape come before the values unless they are fixed.
    Array {
        number: Option<Number>,
        elements: Option<usize>,
    },
    /// Anything else: a sample may hold it, and it cannot be read.
    Opaque,
}

/// Type of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    U64,
    I64,
    F16,
    F32,
    F64,
}

/// The columns that are read, by number.
#[derive(Debug)]
pub(super) struct Wanted {
    sizes: Vec<Option<u32>>,
    names: Vec<String>,
    payload: Payload,
    y: Option<(usize, Number)>,
    target: TargetKind,
    key: Option<(usize, Encoding)>,
    warnings: Arc<Warnings>,
}

#[derive(Debug)]
enum Payload {
    /// Columns, their number type and the elements of a row that each gives; and the sum of those.
    Dense(Vec<(usize, Number, usize)>, usize),
    Images(usize),
    Tokens(usize, Option<Number>, bool),
}

impl Encoding {
    fn parse(text: &str) -> Self {
        let (name, arguments) = text.split_once(':').unwrap_or((text, ""));
        match name {
            "bytes" | "str" => Self::Bytes { is_image: false },
            "jpeg" | "png" => Self::Bytes { is_image: true },
            "int" => Self::Scalar(Number::I64),
            "ndarray" => {
                let (number, shape) = arguments.split_once(':').unwrap_or((arguments, ""));
                let elements = shape.split(',').map(|side| side.parse::<usize>().ok());
                let elements = elements.reduce(|a, b| a?.checked_mul(b?)).flatten();
                Self::Array {
                    number: Number::parse(number),
                    elements,
                }
            }
            other => Number::parse(other).map_or(Self::Opaque, Self::Scalar),
        }
    }

    fn number(&self) -> Option<Number> {
        match self {
            Self::Scalar(number) => Some(*number),
            Self::Array { number, .. } => *number,
            _ => None,
        }
    }

    /// Numbers that a value has, if that is always the same.
    fn width(&self) -> Option<(Number, usize)> {
        match self {
            Self::Scalar(number) => Some((*number, 1)),
            Self::Array {
                number: Some(number),
                elements: Some(elements),
            } => Some((*number, *elements)),
            _ => None,
        }
    }
}

impl Number {
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "uint8" => Self::U8,
            "int8" => Self::I8,
            "uint16" => Self::U16,
            "int16" => Self::I16,
            "uint32" => Self::U32,
            "int32" => Self::I32,
            "uint64" => Self::U64,
            "int64" => Self::I64,
            "float16" => Self::F16,
            "float32" => Self::F32,
            "float64" => Self::F64,
            _ => return None,
        })
    }

    /// The type by its code in an array without a fixed type.
    fn of_code(code: u8) -> Option<Self> {
        Some(match code {
            8 => Self::U8,
            9 => Self::I8,
            16 => Self::U16,
            17 => Self::I16,
            18 => Self::F16,
            32 => Self::U32,
            33 => Self::I32,
            34 => Self::F32,
            64 => Self::U64,
            65 => Self::I64,
            66 => Self::F64,
            _ => return None,
        })
    }

    fn bytes(self) -> usize {
        match self {
            Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 | Self::F16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }

    fn is_float(self) -> bool {
        matches!(self, Self::F16 | Self::F32 | Self::F64)
    }

    fn float(self, value: &[u8]) -> Option<f32> {
        #[expect(clippy::cast_possible_truncation, reason = "numbers are kept as f32")]
        Some(match self {
            Self::F32 => f32::from_le_bytes(value.try_into().ok()?),
            Self::F64 => f64::from_le_bytes(value.try_into().ok()?) as f32,
            Self::F16 => half(u16::from_le_bytes(value.try_into().ok()?)),
            #[expect(clippy::cast_precision_loss, reason = "numbers are kept as f32")]
            _ => self.integer(value)? as f32,
        })
    }

    fn integer(self, value: &[u8]) -> Option<i128> {
        Some(match self {
            Self::U8 => (*value.first()?).into(),
            Self::I8 => (*value.first()?).cast_signed().into(),
            Self::U16 => u16::from_le_bytes(value.try_into().ok()?).into(),
            Self::I16 => i16::from_le_bytes(value.try_into().ok()?).into(),
            Self::U32 => u32::from_le_bytes(value.try_into().ok()?).into(),
            Self::I32 => i32::from_le_bytes(value.try_into().ok()?).into(),
            Self::U64 => u64::from_le_bytes(value.try_into().ok()?).into(),
            Self::I64 => i64::from_le_bytes(value.try_into().ok()?).into(),
            _ => return None,
        })
    }
}

/// IEEE 754 binary16.
fn half(bits: u16) -> f32 {
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f32::from(bits & 0x3ff));
    sign * match exponent {
        0 => fraction * 2f32.powi(-24),
        31 if fraction > 0.0 => f32::NAN,
        31 => f32::INFINITY,
        _ => (1.0 + fraction / 1024.0) * 2f32.powi(exponent - 15),
    }
}

impl Wanted {
    /// Finds the columns.
    pub(super) fn find(
        index: &Index,
        config: &InputConfig,
        warnings: &Arc<Warnings>,
    ) -> Result<(Self, Record), String> {
        let Some(first) = index.shards.first() else {
            return Err("it names no shards".into());
        };
        let encodings: Vec<_> = first
            .column_encodings
            .iter()
            .map(|e| Encoding::parse(e))
            .collect();
        let columns = Columns {
            names: &first.column_names,
            encodings: &encodings,
        };
        let map = &config.columns;
        map.check()?;
        check_target(config.target)?;
        let y = columns.target(map, config.target)?;
        let key = map
            .key
            .as_deref()
            .map(|name| columns.key(name))
            .transpose()?;
        let payload = columns.payload(map, y.map(|y| y.0), key.as_ref().map(|key| key.0))?;
        let target = match (&payload, y) {
            (Payload::Tokens(..), _) | (_, None) => TargetKind::None,
            (_, Some((_, number))) => target(number, config.target)?,
        };
        let record = match &payload {
            Payload::Dense(_, features) => Record::Dense {
                features: u32::try_from(*features)
                    .map_err(|_| "its rows have more than 2^32 numbers")?,
                target,
            },
            Payload::Images(_) => Record::Images { target },
            Payload::Tokens(_, _, true) => Record::Tokens {
                id: TokenType::U16,
                vocabulary: 1 << 16,
            },
            Payload::Tokens(..) => Record::Tokens {
                id: TokenType::U32,
                vocabulary: u32::MAX,
            },
        };
        let wanted = Self {
            sizes: first.column_sizes.clone(),
            names: first.column_names.clone(),
            y: y.filter(|_| target != TargetKind::None),
            target,
            payload,
            key,
            warnings: Arc::clone(warnings),
        };
        if map.x.is_empty() && map.image.is_none() && map.tokens.is_none() {
            wanted.name_unread();
        }
        Ok((wanted, record))
    }

    /// Says which columns are not read, where the settings do not say which are.
    fn name_unread(&self) {
        let taken: Vec<usize> = match &self.payload {
            Payload::Dense(columns, _) => columns.iter().map(|(column, ..)| *column).collect(),
            Payload::Images(column) | Payload::Tokens(column, ..) => vec![*column],
        };
        let others = [self.y.map(|y| y.0), self.key.as_ref().map(|key| key.0)];
        let is_read = |column: &usize| taken.contains(column) || others.contains(&Some(*column));
        let (read, unread): (Vec<_>, Vec<_>) =
            (0..self.names.len()).partition(|column| is_read(column));
        if unread.is_empty() {
            return;
        }
        let names = |columns: &[usize]| list(columns.iter().map(|c| self.names[*c].as_str()));
        self.warnings.add(&format!(
            "columns {} are read, and {} are not; name those to read in `columns`",
            names(&read),
            names(&unread)
        ));
    }

    /// The `rows` samples that fill the beginning of `bytes`, with keys if there is a key column; then the second value
    /// is true.
    pub(super) fn rows(&self, bytes: &Bytes, rows: usize) -> Result<(BlockRows, bool), String> {
        let mut taken = Taken::new(&self.payload, rows);
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
    fn take(&self, bytes: &[u8], spans: &[(usize, usize)], taken: &mut Taken) -> Result<(), usize> {
        let value = |column: usize| &bytes[spans[column].0..spans[column].1];
        match &self.payload {
            Payload::Dense(columns, _) => {
                for (column, number, width) in columns {
                    let rounded =
                        numbers(value(*column), *number, *width, &mut taken.x).ok_or(*column)?;
                    if rounded > 0 {
                        *taken.rounded.entry(*column).or_default() += rounded;
                    }
                }
            }
            Payload::Images(column) => taken.spans.push(spans[*column]),
            Payload::Tokens(column, number, _) => {
                taken.tokens(value(*column), *number).ok_or(*column)?;
            }
        }
        if let Some((column, number)) = self.y {
            let value = value(column);
            if self.target == TargetKind::Regression {
                taken.numbers.push(number.float(value).ok_or(column)?);
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
struct Taken {
    x: Vec<f32>,
    /// Integers of each column that float32 cannot hold.
    rounded: BTreeMap<usize, u64>,
    spans: Vec<(usize, usize)>,
    ids16: Vec<u16>,
    ids32: Vec<u32>,
    is_short: bool,
    offsets: Vec<i32>,
    numbers: Vec<f32>,
    classes: Vec<i32>,
    keys: Vec<u64>,
}

impl Taken {
    fn new(payload: &Payload, rows: usize) -> Self {
        let features = match payload {
            Payload::Dense(_, features) => *features,
            _ => 0,
        };
        Self {
            x: Vec::with_capacity(rows * features),
            rounded: BTreeMap::new(),
            spans: Vec::new(),
            ids16: Vec::new(),
            ids32: Vec::new(),
            is_short: matches!(payload, Payload::Tokens(_, _, true)),
            offsets: vec![0],
            numbers: Vec::new(),
            classes: Vec::new(),
            keys: Vec::new(),
        }
    }

    fn tokens(&mut self, value: &[u8], number: Option<Number>) -> Option<()> {
        let (number, values) = array(value, number)?;
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

    fn finish(self, bytes: &Bytes, wanted: &Wanted) -> (BlockRows, bool) {
        let keyed = wanted.key.is_some();
        let y = match (wanted.y, wanted.target) {
            (None, _) | (_, TargetKind::None) => BlockTarget::None,
            (_, TargetKind::Regression) => BlockTarget::Regression(self.numbers.into()),
            _ => BlockTarget::Classification(self.classes.into()),
        };
        let (keys, origins, bad) = (self.keys.into(), Vec::new().into(), Vec::new());
        let rows = match wanted.payload {
            Payload::Dense(..) => BlockRows::Dense(DenseRows {
                x: self.x.into(),
                y,
                keys,
                origins,
                bad,
            }),
            Payload::Images(_) => BlockRows::Images(ImageRows {
                bytes: bytes.clone().into(),
                spans: Spans::Apart(self.spans),
                y,
                keys,
                origins,
                bad,
            }),
            Payload::Tokens(_, _, is_short) => BlockRows::Tokens(TokenRows {
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
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the float is a rounded integer of 64 bits"
        )]
        let differs = number
            .integer(value)
            .is_some_and(|integer| integer != float as i128);
        rounded += u64::from(differs);
        to.push(float);
    }
    Some(rounded)
}

/// Type and values of an array of any shape.
fn array(value: &[u8], number: Option<Number>) -> Option<(Number, &[u8])> {
    let (number, value) = match number {
        Some(number) => (number, value),
        None => (Number::of_code(*value.first()?)?, &value[1..]),
    };
    let (shape, rest) = value.split_first()?;
    let (axes, side_bytes) = (usize::from(shape >> 2), 1 << (shape & 3));
    let sides = rest.get(..axes * side_bytes)?;
    let values = &rest[axes * side_bytes..];
    let elements = sides
        .chunks_exact(side_bytes)
        .try_fold(1usize, |elements, side| {
            let mut wide = [0; 8];
            wide[..side.len()].copy_from_slice(side);
            elements.checked_mul(usize::try_from(u64::from_le_bytes(wide)).ok()?)
        })?;
    (elements.checked_mul(number.bytes())? == values.len()).then_some((number, values))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a key is the number's bits, and no number has more than 64"
)]
fn integer_key(number: Number, value: &[u8]) -> Option<u64> {
    number.integer(value).map(|key| key as u64)
}

/// Columns by name.
struct Columns<'a> {
    names: &'a [String],
    encodings: &'a [Encoding],
}

impl Columns<'_> {
    fn find(&self, name: &str) -> Result<usize, String> {
        self.names.iter().position(|n| n == name).ok_or_else(|| {
            format!(
                "it has no column `{name}`, it has `{}`",
                self.names.join("`, `")
            )
        })
    }

    fn target(
        &self,
        map: &ColumnMap,
        asked: Option<TargetKind>,
    ) -> Result<Option<(usize, Number)>, String> {
        let scalar = |column: usize| match self.encodings[column] {
            Encoding::Scalar(number) => Some((column, number)),
            _ => None,
        };
        if asked == Some(TargetKind::None) {
            return Ok(None);
        }
        if let Some(name) = &map.y {
            let found = scalar(self.find(name)?);
            return found
                .map(Some)
                .ok_or_else(|| format!("the target `{name}` is not a number"));
        }
        let found = TARGETS
            .iter()
            .find_map(|name| scalar(self.find(name).ok()?));
        match (found, asked) {
            (None, Some(_)) => Err("it has no target column; name it in `columns.y`".into()),
            _ => Ok(found),
        }
    }

    fn key(&self, name: &str) -> Result<(usize, Encoding), String> {
        let column = self.find(name)?;
        match &self.encodings[column] {
            Encoding::Scalar(number) if number.is_float() => {
                Err(format!("the key `{name}` is not an integer, text or bytes"))
            }
            encoding => Ok((column, encoding.clone())),
        }
    }

    fn payload(
        &self,
        map: &ColumnMap,
        y: Option<usize>,
        key: Option<usize>,
    ) -> Result<Payload, String> {
        if let Some(name) = &map.image {
            let column = self.find(name)?;
            return match self.encodings[column] {
                Encoding::Bytes { .. } => Ok(Payload::Images(column)),
                _ => Err(format!("column `{name}` is not an encoded image or bytes")),
            };
        }
        if let Some(name) = &map.tokens {
            let column = self.find(name)?;
            return self
                .tokens(column)
                .ok_or_else(|| format!("column `{name}` is not an array of integers"));
        }
        if !map.x.is_empty() {
            let columns = map.x.iter().map(|name| self.numbers(self.find(name)?));
            return Ok(dense(columns.collect::<Result<_, _>>()?));
        }
        let is_image = |e: &Encoding| matches!(e, Encoding::Bytes { is_image: true });
        let named = |names: &[&str]| names.iter().find_map(|name| self.find(name).ok());
        let is_bytes = |column: &usize| matches!(self.encodings[*column], Encoding::Bytes { .. });
        let image = named(IMAGES).filter(is_bytes);
        if let Some(column) = image.or_else(|| self.encodings.iter().position(is_image)) {
            return Ok(Payload::Images(column));
        }
        if let Some(tokens) = named(TOKENS).and_then(|column| self.tokens(column)) {
            return Ok(tokens);
        }
        let free = (0..self.names.len()).filter(|c| Some(*c) != y && Some(*c) != key);
        let columns: Vec<_> = free
            .filter_map(|column| self.numbers(column).ok())
            .collect();
        if columns.is_empty() {
            return Err("it has no numeric columns; name those to read in `columns`".into());
        }
        Ok(dense(columns))
    }

    fn tokens(&self, column: usize) -> Option<Payload> {
        let encoding = &self.encodings[column];
        let Encoding::Array { elements: None, .. } = encoding else {
            return None;
        };
        let number = encoding.number();
        if number.is_some_and(Number::is_float) {
            return None;
        }
        let is_short = matches!(number, Some(Number::U8 | Number::U16));
        Some(Payload::Tokens(column, number, is_short))
    }

    fn numbers(&self, column: usize) -> Result<(usize, Number, usize), String> {
        let (number, width) = self.encodings[column].width().ok_or_else(|| {
            format!(
                "column `{}` is not a number or an array with a fixed type and shape",
                self.names[column]
            )
        })?;
        Ok((column, number, width))
    }
}

fn dense(columns: Vec<(usize, Number, usize)>) -> Payload {
    let features = columns.iter().map(|(_, _, width)| width).sum();
    Payload::Dense(columns, features)
}

fn target(number: Number, asked: Option<TargetKind>) -> Result<TargetKind, String> {
    match asked {
        Some(TargetKind::Classification { .. }) if number.is_float() => {
            Err("its target is not an integer, so it is not a class".into())
        }
        Some(asked) => Ok(asked),
        None if number.is_float() => Ok(TargetKind::Regression),
        None => Ok(TargetKind::Classification {
            classes: UNKNOWN_CLASSES,
        }),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn half_numbers_are_read() {
        let cases = [
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x7bff, 65504.0),
            (0x0001, 5.960_464_5e-8),
            (0x7c00, f32::INFINITY),
            (0x8000, -0.0),
        ];
        for (bits, value) in cases {
            assert_eq!(half(bits).to_bits(), f32::to_bits(value), "{bits:x}");
        }
        assert!(half(0x7e00).is_nan());
    }

    #[test]
    fn encodings_are_parsed() {
        let array = |number, elements| Encoding::Array { number, elements };
        for (text, encoding) in [
            ("jpeg:90", Encoding::Bytes { is_image: true }),
            ("int", Encoding::Scalar(Number::I64)),
            ("float16", Encoding::Scalar(Number::F16)),
            ("ndarray", array(None, None)),
            ("ndarray:uint16", array(Some(Number::U16), None)),
            ("ndarray:float32:4,8", array(Some(Number::F32), Some(32))),
            ("pkl", Encoding::Opaque),
        ] {
            assert_eq!(Encoding::parse(text), encoding, "{text}");
        }
    }

    #[test]
    fn an_array_carries_its_type_and_shape() {
        let two = [16, 1 << 2, 2, 1, 0, 2, 0];
        assert_eq!(array(&two, None), Some((Number::U16, &two[3..])));
        assert_eq!(
            array(&two[1..], Some(Number::U16)),
            Some((Number::U16, &two[3..]))
        );
        assert_eq!(array(&two[..6], None), None);
        assert_eq!(array(&[16, 0xff], None), None);
    }

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
            let index = Index::read(index.to_string().as_bytes()).unwrap();
            for columns in [
                ColumnMap { image: Some("image".into()), ..ColumnMap::default() },
                ColumnMap { tokens: Some("tokens".into()), key: Some("image".into()), ..ColumnMap::default() },
                ColumnMap { tokens: Some("x".into()), ..ColumnMap::default() },
                ColumnMap { x: vec!["label".into()], ..ColumnMap::default() },
            ] {
                let config = InputConfig { columns, ..InputConfig::default() };
                let warnings = Arc::new(Warnings::new("memory".into()));
                let (wanted, _) = Wanted::find(&index, &config, &warnings).unwrap();
                wanted.rows(&Bytes::from(bytes.clone()), rows).ok();
            }
        }
    }
}
