//! A value of a record in 16 bytes, on its way into a column.

/// Kind of value in a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Held {
    /// No value.
    #[default]
    Null,
    /// True or false, in the bits.
    Bool,
    /// An `i64`, in the bits.
    Int,
    /// An `f64`, in the bits.
    Float,
    /// [`Value::Written`](crate::value::Value::Written), in the strings of the batch.
    Written,
    /// [`Value::Text`](crate::value::Value::Text), there too.
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
pub struct Cell {
    /// The number, or where its string or value is.
    pub bits: u64,
    len: u32,
    /// Kind of the value.
    pub held: Held,
}

impl Cell {
    /// The null cell.
    pub const NULL: Self = Self {
        bits: 0,
        len: 0,
        held: Held::Null,
    };

    /// A boolean.
    pub fn bool(value: bool) -> Self {
        Self::of(Held::Bool, u64::from(value))
    }

    /// An integer.
    pub fn int(value: i64) -> Self {
        Self::of(Held::Int, value.cast_unsigned())
    }

    /// A float.
    pub fn float(value: f64) -> Self {
        Self::of(Held::Float, value.to_bits())
    }

    /// A cell of the kind `held` without a string.
    pub fn of(held: Held, bits: u64) -> Self {
        Self { bits, len: 0, held }
    }

    /// A string of the batch, from `start` to `end`; `None` if it is longer than 4 GiB.
    pub fn text(held: Held, start: usize, end: usize) -> Option<Self> {
        Some(Self {
            bits: start as u64,
            len: u32::try_from(end - start).ok()?,
            held,
        })
    }

    /// The integer of an [`Held::Int`].
    pub fn as_int(&self) -> i64 {
        self.bits.cast_signed()
    }

    /// The number of an [`Held::Float`].
    pub fn as_float(&self) -> f64 {
        f64::from_bits(self.bits)
    }

    /// Bytes of its text; 0 for a number.
    pub fn text_len(&self) -> usize {
        self.len as usize
    }

    /// Its string in `texts`, those of its batch.
    ///
    /// # Panics
    /// If `texts` are those of another batch, and too short.
    pub fn as_text<'t>(&self, texts: &'t str) -> &'t str {
        let start = usize::try_from(self.bits).unwrap_or(usize::MAX);
        &texts[start..start + self.len as usize]
    }
}
