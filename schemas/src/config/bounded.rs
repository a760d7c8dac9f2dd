//! Numbers whose range and unit are part of their type, so that a value out of range does not
//! parse.

use std::{
    fmt,
    marker::PhantomData,
    ops::{self, Bound},
    time::Duration,
};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::units::ByteSize;

/// An integer from `MIN` to `MAX` with the unit `U`; a `MAX` of `u64::MAX` means no upper bound.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bounded<T, const MIN: u64, const MAX: u64, U = NoUnit> {
    value: T,
    unit: PhantomData<U>,
}

/// A count from `MIN` to `MAX`.
pub type BoundedCount<const MIN: u64, const MAX: u64 = { u64::MAX }> = Bounded<u64, MIN, MAX>;
/// A size from `MIN` to `MAX` bytes, such as `"64 MiB"`.
pub type Bytes<const MIN: u64, const MAX: u64 = { u64::MAX }> = Bounded<ByteSize, MIN, MAX>;
/// A time from `MIN` to `MAX` seconds.
pub type Seconds<const MIN: u64, const MAX: u64 = { u64::MAX }> = Bounded<u64, MIN, MAX, Second>;
/// A time from `MIN` to `MAX` milliseconds.
pub type Milliseconds<const MIN: u64, const MAX: u64 = { u64::MAX }> =
    Bounded<u64, MIN, MAX, Millisecond>;

/// Unit of a number, shown after a range.
pub trait Unit {
    /// Text after the range, with a space in front.
    const SUFFIX: &'static str;
}

/// No unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NoUnit {}
/// Seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Second {}
/// Milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Millisecond {}

impl Unit for NoUnit {
    const SUFFIX: &'static str = "";
}
impl Unit for Second {
    const SUFFIX: &'static str = " s";
}
impl Unit for Millisecond {
    const SUFFIX: &'static str = " ms";
}

/// A type of integers that [`Bounded`] can hold.
pub trait Whole: Copy + fmt::Display {
    /// Largest value.
    const LARGEST: u64;
    /// The value as a number.
    fn number(self) -> u64;
    /// The number as a value; `None` if it is larger than [`Whole::LARGEST`].
    fn from_number(number: u64) -> Option<Self>;
    /// A number as messages show it.
    fn shown(number: u64) -> String;
    /// Reads the number.
    ///
    /// # Errors
    /// Those of the deserializer, for a value of another type.
    fn read<'de, D: Deserializer<'de>>(
        deserializer: D,
        range: &str,
    ) -> Result<ReadNumber, D::Error>;
    /// JSON Schema without the range.
    fn schema() -> Schema;
}

/// A number as written in a configuration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ReadNumber {
    /// An integer.
    Whole(i128),
    /// Any other number.
    Real(f64),
}

struct NumberVisitor<'a>(&'a str);

impl de::Visitor<'_> for NumberVisitor<'_> {
    type Value = ReadNumber;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
    fn visit_u64<E: de::Error>(self, value: u64) -> Result<ReadNumber, E> {
        Ok(ReadNumber::Whole(value.into()))
    }
    fn visit_i64<E: de::Error>(self, value: i64) -> Result<ReadNumber, E> {
        Ok(ReadNumber::Whole(value.into()))
    }
    fn visit_f64<E: de::Error>(self, value: f64) -> Result<ReadNumber, E> {
        Ok(ReadNumber::Real(value))
    }
}

macro_rules! whole {
    ($($type:ty, $format:literal, $largest:expr;)*) => {$(
        impl Whole for $type {
            const LARGEST: u64 = $largest;
            fn number(self) -> u64 {
                u64::try_from(self).unwrap_or(u64::MAX)
            }
            fn from_number(number: u64) -> Option<Self> {
                Self::try_from(number).ok()
            }
            fn shown(number: u64) -> String {
                with_separators(&number.to_string())
            }
            fn read<'de, D: Deserializer<'de>>(
                deserializer: D,
                range: &str,
            ) -> Result<ReadNumber, D::Error> {
                deserializer.deserialize_any(NumberVisitor(&format!("a whole number, {range}")))
            }
            fn schema() -> Schema {
                json_schema!({ "type": "integer", "format": $format })
            }
        }
    )*};
}

whole! {
    u64, "uint64", u64::MAX;
    u32, "uint32", 0xffff_ffff;
    u16, "uint16", 0xffff;
    usize, "uint", usize::MAX as u64;
}

impl Whole for ByteSize {
    const LARGEST: u64 = u64::MAX;
    fn number(self) -> u64 {
        self.bytes()
    }
    fn from_number(number: u64) -> Option<Self> {
        Some(Self::new(number))
    }
    fn shown(number: u64) -> String {
        Self::new(number).to_string().replace(".0 ", " ")
    }
    fn read<'de, D: Deserializer<'de>>(deserializer: D, _: &str) -> Result<ReadNumber, D::Error> {
        Self::deserialize(deserializer).map(|size| ReadNumber::Whole(size.bytes().into()))
    }
    fn schema() -> Schema {
        json_schema!({
            "description": "Bytes as an integer, or text such as \"64 MiB\".",
            "type": ["integer", "string"]
        })
    }
}

/// Digits in groups of three.
fn with_separators(digits: &str) -> String {
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.char_indices() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number that is out of the range of its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutOfRange {
    range: String,
    got: String,
}

impl fmt::Display for OutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "must be {}, got {}", self.range, self.got)
    }
}

impl std::error::Error for OutOfRange {}

impl<T: Whole, const MIN: u64, const MAX: u64, U: Unit> Bounded<T, MIN, MAX, U> {
    /// The value `V`, which is checked when the program is compiled.
    ///
    /// ```compile_fail
    /// use feedline_schemas::config::BoundedCount;
    /// let _ = BoundedCount::<1, 10>::literal::<11>();
    /// ```
    ///
    /// # Panics
    /// Never: `V` is not larger than the largest value of the type.
    #[must_use]
    pub fn literal<const V: u64>() -> Self {
        const {
            assert!(
                MIN <= V && V <= MAX && V <= T::LARGEST,
                "the value is out of range"
            );
        }
        let value = T::from_number(V).expect("the value is not larger than the largest one");
        Self::of(value)
    }

    const fn of(value: T) -> Self {
        Self {
            value,
            unit: PhantomData,
        }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> T {
        self.value
    }

    /// Checks `value`.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use feedline_schemas::{config::{BoundedCount, Bytes, Seconds}, units::ByteSize};
    ///
    /// let rows = BoundedCount::<1, 4096>::new(256)?;
    /// assert_eq!(*rows * 2, 512);
    /// let error = BoundedCount::<1, 4096>::new(5000).unwrap_err();
    /// assert_eq!(error.to_string(), "must be 1 to 4,096, got 5,000");
    /// let error = Bytes::<1, { 128 << 20 }>::new(ByteSize::mib(129)).unwrap_err();
    /// assert_eq!(error.to_string(), "must be 1 B to 128 MiB, got 129 MiB");
    /// assert_eq!(Seconds::<1, 60>::new(30)?.duration(), Duration::from_secs(30));
    /// # Ok::<(), feedline_schemas::config::OutOfRange>(())
    /// ```
    ///
    /// # Errors
    /// A message with the range and the value, if the value is out of the range.
    pub fn new(value: T) -> Result<Self, OutOfRange> {
        if (MIN..=MAX).contains(&value.number()) {
            return Ok(Self::of(value));
        }
        Err(Self::refused(T::shown(value.number())))
    }

    fn refused(got: String) -> OutOfRange {
        let range = Self::range();
        OutOfRange { range, got }
    }

    /// The range as messages show it.
    fn range() -> String {
        let (low, high) = (T::shown(MIN), T::shown(MAX));
        match MAX {
            u64::MAX => format!("at least {low}{}", U::SUFFIX),
            _ => format!("{low} to {high}{}", U::SUFFIX),
        }
    }
}

impl<T: Whole, const MAX: u64, U: Unit> Default for Bounded<T, 0, MAX, U> {
    fn default() -> Self {
        Self::literal::<0>()
    }
}

impl<const MIN: u64, const MAX: u64> Seconds<MIN, MAX> {
    /// The time.
    #[must_use]
    pub const fn duration(self) -> Duration {
        Duration::from_secs(self.value)
    }
}

impl<const MIN: u64, const MAX: u64> Milliseconds<MIN, MAX> {
    /// The time.
    #[must_use]
    pub const fn duration(self) -> Duration {
        Duration::from_millis(self.value)
    }
}

impl<T, const MIN: u64, const MAX: u64, U> ops::Deref for Bounded<T, MIN, MAX, U> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: fmt::Display, const MIN: u64, const MAX: u64, U> fmt::Display for Bounded<T, MIN, MAX, U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

impl<T: fmt::Debug, const MIN: u64, const MAX: u64, U> fmt::Debug for Bounded<T, MIN, MAX, U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

impl<T: Serialize, const MIN: u64, const MAX: u64, U> Serialize for Bounded<T, MIN, MAX, U> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(serializer)
    }
}

impl<'de, T: Whole, const MIN: u64, const MAX: u64, U: Unit> Deserialize<'de>
    for Bounded<T, MIN, MAX, U>
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let read = T::read(deserializer, &Self::range())?;
        let got = match read {
            ReadNumber::Whole(number) => match u64::try_from(number) {
                Ok(number) if (MIN..=MAX).contains(&number) => match T::from_number(number) {
                    Some(value) => return Ok(Self::of(value)),
                    None => T::shown(number),
                },
                Ok(number) => T::shown(number),
                Err(_) => number.to_string(),
            },
            ReadNumber::Real(number) => {
                let range = Self::range();
                return Err(de::Error::custom(format!(
                    "must be a whole number, {range}, got {number:?}"
                )));
            }
        };
        Err(de::Error::custom(Self::refused(got)))
    }
}

impl<T: Whole, const MIN: u64, const MAX: u64, U: Unit> JsonSchema for Bounded<T, MIN, MAX, U> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        format!("from {}", Self::range()).into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let mut schema = T::schema();
        schema.insert("minimum".into(), MIN.into());
        if MAX != u64::MAX {
            schema.insert("maximum".into(), MAX.into());
        }
        schema
    }
}

/// An interval of real numbers.
pub trait Interval {
    /// Lower bound.
    const LOW: Bound<f64>;
    /// Upper bound.
    const HIGH: Bound<f64>;
}

/// Defines an interval: its name, its lower and its upper bound.
macro_rules! intervals {
    ($($(#[$doc:meta])* $name:ident: $low:expr, $high:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {}
        impl Interval for $name {
            const LOW: Bound<f64> = $low;
            const HIGH: Bound<f64> = $high;
        }
    )*};
}
intervals! {
    /// From 0 to 1.
    ZeroToOne: Bound::Included(0.0), Bound::Included(1.0);
    /// From 0 to less than 1.
    BelowOne: Bound::Included(0.0), Bound::Excluded(1.0);
    /// More than 0 and less than 1.
    InsideOne: Bound::Excluded(0.0), Bound::Excluded(1.0);
    /// From 0 to one half.
    ZeroToHalf: Bound::Included(0.0), Bound::Included(0.5);
    /// More than 0.
    AboveZero: Bound::Excluded(0.0), Bound::Unbounded;
    /// More than 0 and at most 1,000.
    ToThousand: Bound::Excluded(0.0), Bound::Included(1_000.0);
    /// At least 0.
    FromZero: Bound::Included(0.0), Bound::Unbounded;
}

/// A finite number in the interval `R`; `F` is `f64` or `f32`.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
pub struct Real<R, F = f64> {
    value: F,
    interval: PhantomData<R>,
}

/// A fraction, from 0 to 1.
pub type Fraction<F = f64> = Real<ZeroToOne, F>;
/// A number that is more than 0.
pub type Positive<F = f64> = Real<AboveZero, F>;
/// A number that is at least 0.
pub type NotNegative<F = f64> = Real<FromZero, F>;

/// A type of floating-point numbers.
pub trait Float: Copy + fmt::Debug + Into<f64> {
    /// The nearest value.
    fn nearest(number: f64) -> Self;
    /// `format` of the JSON Schema.
    const FORMAT: &'static str;
}

impl Float for f64 {
    fn nearest(number: f64) -> Self {
        number
    }
    const FORMAT: &'static str = "double";
}

impl Float for f32 {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the nearest value is what is wanted"
    )]
    fn nearest(number: f64) -> Self {
        number as Self
    }
    const FORMAT: &'static str = "float";
}

impl<R: Interval, F: Float> Real<R, F> {
    /// Checks `value`.
    ///
    /// # Errors
    /// A message with the range and the value, if the value is not in the interval, or not finite.
    pub fn new(value: F) -> Result<Self, OutOfRange> {
        let number: f64 = value.into();
        if number.is_finite() && ops::RangeBounds::contains(&(R::LOW, R::HIGH), &number) {
            let interval = PhantomData;
            return Ok(Self { value, interval });
        }
        Err(Self::refused(short(&format!("{value:?}"))))
    }

    /// A value that is known when the program is written.
    ///
    /// # Panics
    /// If the value is not in the interval.
    #[must_use]
    pub fn literal(value: F) -> Self {
        Self::new(value).expect("a literal is in the range of its type")
    }

    fn refused(got: String) -> OutOfRange {
        let range = Self::range();
        OutOfRange { range, got }
    }

    /// The range as messages show it.
    fn range() -> String {
        use Bound::{Excluded, Included, Unbounded};
        match (R::LOW, R::HIGH) {
            (Included(low), Included(high)) => format!("{low} to {high}"),
            (Included(low), Excluded(high)) => format!("at least {low} and less than {high}"),
            (Included(low), Unbounded) => format!("at least {low}"),
            (Excluded(low), Included(high)) => format!("more than {low} and at most {high}"),
            (Excluded(low), Excluded(high)) => format!("more than {low} and less than {high}"),
            (Excluded(low), Unbounded) => format!("more than {low}"),
            (Unbounded, Included(high)) => format!("at most {high}"),
            (Unbounded, Excluded(high)) => format!("less than {high}"),
            (Unbounded, Unbounded) => "a finite number".to_owned(),
        }
    }
}

impl<R, F: Copy> Real<R, F> {
    /// The number.
    #[must_use]
    pub const fn get(self) -> F {
        self.value
    }
}

/// `1.0` as `1`.
fn short(number: &str) -> String {
    number.strip_suffix(".0").unwrap_or(number).to_owned()
}

impl<R, F> ops::Deref for Real<R, F> {
    type Target = F;
    fn deref(&self) -> &F {
        &self.value
    }
}

impl<R, F: fmt::Display> fmt::Display for Real<R, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

impl<R, F: fmt::Debug> fmt::Debug for Real<R, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

impl<R, F: Serialize> Serialize for Real<R, F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(serializer)
    }
}

impl<'de, R: Interval, F: Float> Deserialize<'de> for Real<R, F> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = format!("a number, {}", Self::range());
        #[expect(
            clippy::cast_precision_loss,
            reason = "a whole number is read as the nearest float, as serde does"
        )]
        let number = match deserializer.deserialize_any(NumberVisitor(&expected))? {
            ReadNumber::Whole(number) => number as f64,
            ReadNumber::Real(number) => number,
        };
        Self::new(F::nearest(number))
            .map_err(|_| de::Error::custom(Self::refused(short(&format!("{number:?}")))))
    }
}

impl<R: Interval, F: Float> JsonSchema for Real<R, F> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        format!("number, {}", Self::range()).into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        use Bound::{Excluded, Included, Unbounded};
        let mut schema = json_schema!({ "type": "number", "format": F::FORMAT });
        let bounds = [
            (R::LOW, "minimum", "exclusiveMinimum"),
            (R::HIGH, "maximum", "exclusiveMaximum"),
        ];
        for (bound, included, excluded) in bounds {
            match bound {
                Included(number) => schema.insert(included.into(), number.into()),
                Excluded(number) => schema.insert(excluded.into(), number.into()),
                Unbounded => None,
            };
        }
        schema
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Serialize, Deserialize, JsonSchema)]
    struct Numbers {
        fraction: Option<Fraction>,
        small: Option<Real<BelowOne, f32>>,
        rate: Option<Positive>,
        count: Option<Bounded<u32, 1, 64>>,
        many: Option<BoundedCount<1, 10_000_000>>,
        open: Option<BoundedCount<1>>,
        wait: Option<Seconds<1, 3_600>>,
        size: Option<Bytes<1, { 128 << 20 }>>,
    }

    fn read(text: &str) -> Result<Numbers, String> {
        toml::from_str(text).map_err(|e| e.message().to_owned())
    }

    #[test]
    fn a_number_out_of_range_is_refused_with_range_and_value() {
        let check = |text: &str, expected: &str| {
            assert_eq!(read(text).unwrap_err(), expected, "{text}");
        };
        check("fraction = 1.5", "must be 0 to 1, got 1.5");
        check("fraction = -1", "must be 0 to 1, got -1");
        check("fraction = nan", "must be 0 to 1, got NaN");
        check("small = 1", "must be at least 0 and less than 1, got 1");
        check("rate = 0.0", "must be more than 0, got 0");
        check("rate = inf", "must be more than 0, got inf");
        check("count = 0", "must be 1 to 64, got 0");
        check("count = -3", "must be 1 to 64, got -3");
        check("count = 1.5", "must be a whole number, 1 to 64, got 1.5");
        check(
            "count = \"many\"",
            "invalid type: string \"many\", expected a whole number, 1 to 64",
        );
        check("many = 10000001", "must be 1 to 10,000,000, got 10,000,001");
        check("open = 0", "must be at least 1, got 0");
        check("wait = 3601", "must be 1 to 3,600 s, got 3,601");
        check("size = \"129 MiB\"", "must be 1 B to 128 MiB, got 129 MiB");
    }

    #[test]
    fn a_number_in_range_is_written_as_it_was() {
        let text = "fraction = 1.0\nsmall = 0.5\ncount = 64\nopen = 9\nwait = 1\nsize = 3\n";
        let numbers = read(text).unwrap();
        assert_eq!(toml::to_string(&numbers).unwrap(), text);
        assert_eq!(numbers.wait.unwrap().duration(), Duration::from_secs(1));
        assert_eq!(*numbers.count.unwrap(), 64);
        assert_eq!(BoundedCount::<1, 9>::literal::<9>().get(), 9);
    }

    #[test]
    fn the_schema_has_the_range() {
        let schema = serde_json::to_value(schemars::schema_for!(Numbers)).unwrap();
        let key = |name: &str| schema["properties"][name].clone();
        assert_eq!(
            (&key("count")["minimum"], &key("count")["maximum"]),
            (&1.into(), &64.into())
        );
        assert_eq!(key("open")["maximum"], serde_json::Value::Null);
        assert_eq!(key("fraction")["maximum"], 1.0);
        assert_eq!(key("rate")["exclusiveMinimum"], 0.0);
        assert_eq!(key("size")["maximum"], 128 << 20);
    }
}
