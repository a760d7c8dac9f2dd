//! A value of a record in 16 bytes, on its way into a column.

/// Kind of value in a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Held {
    #[default]
    Null,
    Bool,
    Int,
    Float,
    /// [`Value::Text`](crate::value::Value::Text), in the strings of the batch.
    Text,
    /// [`Value::Cell`](crate::value::Value::Cell), there too.
    Cell,
    /// The canonical form of a list or object, there too.
    Json,
    /// Any other value, in a list of its own.
    Odd,
}

/// A cell: a number, or the position of its string or value.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cell {
    pub(crate) bits: u64,
    len: u32,
    pub(crate) held: Held,
}

impl Cell {
    /// The null cell.
    pub(crate) const NULL: Self = Self {
        bits: 0,
        len: 0,
        held: Held::Null,
    };

    pub(crate) fn bool(value: bool) -> Self {
        Self::of(Held::Bool, u64::from(value))
    }

    pub(crate) fn int(value: i64) -> Self {
        Self::of(Held::Int, value.cast_unsigned())
    }

    pub(crate) fn float(value: f64) -> Self {
        Self::of(Held::Float, value.to_bits())
    }

    pub(crate) fn of(held: Held, bits: u64) -> Self {
        Self { bits, len: 0, held }
    }

    /// A string of the batch, from `start` to `end`; `None` if it is longer than 4 GiB.
    pub(crate) fn text(held: Held, start: usize, end: usize) -> Option<Self> {
        Some(Self {
            bits: start as u64,
            len: u32::try_from(end - start).ok()?,
            held,
        })
    }

    pub(crate) fn as_int(&self) -> i64 {
        self.bits.cast_signed()
    }

    pub(crate) fn as_float(&self) -> f64 {
        f64::from_bits(self.bits)
    }

    /// Bytes of its text; 0 for a number.
    pub(crate) fn text_len(&self) -> usize {
        self.len as usize
    }

    pub(crate) fn as_text<'t>(&self, texts: &'t str) -> &'t str {
        let start = usize::try_from(self.bits).unwrap_or(usize::MAX);
        &texts[start..start + self.len as usize]
    }
}
