//! Encodings of the values of an MDS column, and the numbers in them.

/// Encoding of a column's values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
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
pub(super) enum Number {
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

impl Encoding {
    pub(super) fn parse(text: &str) -> Self {
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

    pub(super) fn number(&self) -> Option<Number> {
        match self {
            Self::Scalar(number) => Some(*number),
            Self::Array { number, .. } => *number,
            _ => None,
        }
    }

    /// Numbers that a value has, if that is always the same and not 0.
    pub(super) fn width(&self) -> Option<(Number, usize)> {
        match self {
            Self::Scalar(number) => Some((*number, 1)),
            Self::Array {
                number: Some(number),
                elements: Some(elements @ 1..),
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
    pub(super) fn of_code(code: u8) -> Option<Self> {
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

    pub(super) fn bytes(self) -> usize {
        match self {
            Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 | Self::F16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }

    pub(super) fn is_float(self) -> bool {
        matches!(self, Self::F16 | Self::F32 | Self::F64)
    }

    pub(super) fn float(self, value: &[u8]) -> Option<f32> {
        #[expect(clippy::cast_possible_truncation, reason = "numbers are kept as f32")]
        Some(match self {
            Self::F32 => f32::from_le_bytes(value.try_into().ok()?),
            Self::F64 => f64::from_le_bytes(value.try_into().ok()?) as f32,
            Self::F16 => half(u16::from_le_bytes(value.try_into().ok()?)),
            #[expect(clippy::cast_precision_loss, reason = "numbers are kept as f32")]
            _ => self.integer(value)? as f32,
        })
    }

    pub(super) fn integer(self, value: &[u8]) -> Option<i128> {
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

/// Type and values of an array of any shape.
pub(super) fn array(value: &[u8], number: Option<Number>) -> Option<(Number, &[u8])> {
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

#[cfg(test)]
mod tests {
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
        let width = |text| Encoding::parse(text).width();
        assert_eq!(width("ndarray:float32:4,8"), Some((Number::F32, 32)));
        assert_eq!(width("ndarray:float32:4,0"), None);
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
}
