//! Sizes with a unit.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A number of bytes. Written in configuration as an integer or as text such as `"64 MiB"` or `"10 MB"`.
///
/// ```
/// use feedline_schemas::units::ByteSize;
///
/// let size = ByteSize::parse("64 MiB")?;
/// assert_eq!(size, ByteSize::mib(64));
/// assert_eq!(size.bytes(), 67_108_864);
/// assert_eq!(ByteSize::parse("10 MB")?.to_string(), "9.5 MiB");
/// assert!(ByteSize::parse("10 megabytes").is_err());
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(u64);

impl ByteSize {
    /// Wraps a number of bytes.
    #[must_use]
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }
    /// From mebibytes.
    #[must_use]
    pub const fn mib(count: u64) -> Self {
        Self(count << 20)
    }
    /// Number of bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// Parses text such as `64 MiB`, `1GB`, `512`.
    ///
    /// # Errors
    /// A message that lists the units.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let unit = match text[digits..].trim() {
            "" | "B" => 1,
            "kB" | "KB" => 1_000,
            "MB" => 1_000_000,
            "GB" => 1_000_000_000,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            _ => 0,
        };
        text[..digits]
            .parse::<u64>()
            .ok()
            .and_then(|count| count.checked_mul(unit))
            .filter(|_| unit > 0)
            .map(Self)
            .ok_or_else(|| format!("`{text}` is not a size: write a whole number and a unit of B, kB, MB, GB, KiB, MiB, GiB"))
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, name) in [(1u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")] {
            if self.0 >= unit {
                // One decimal, rounded down, from integers: no float is needed to print a size.
                let tenths = u128::from(self.0) * 10 / u128::from(unit);
                return write!(f, "{}.{} {name}", tenths / 10, tenths % 10);
            }
        }
        write!(f, "{} B", self.0)
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct UnitVisitor;
        impl de::Visitor<'_> for UnitVisitor {
            type Value = ByteSize;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of bytes, or text such as \"64 MiB\"")
            }
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<ByteSize, E> {
                Ok(ByteSize(value))
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<ByteSize, E> {
                u64::try_from(value)
                    .map(ByteSize)
                    .map_err(|_| E::custom("a size cannot be negative"))
            }
            fn visit_str<E: de::Error>(self, value: &str) -> Result<ByteSize, E> {
                ByteSize::parse(value).map_err(E::custom)
            }
        }
        deserializer.deserialize_any(UnitVisitor)
    }
}

impl JsonSchema for ByteSize {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ByteSize".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "bytes as an integer, or text such as \"64 MiB\"",
            "type": ["integer", "string"],
            "minimum": 0
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed_with_their_unit_and_nothing_else() {
        assert_eq!(ByteSize::parse("64 MiB"), Ok(ByteSize::mib(64)));
        assert_eq!(ByteSize::parse("10MB"), Ok(ByteSize::new(10_000_000)));
        assert_eq!(ByteSize::parse("7"), Ok(ByteSize::new(7)));
        for bad in ["", "MiB", "-1", "1.5 MiB", "64 mib", "99999999999 GiB"] {
            assert!(ByteSize::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_print_in_binary_units() {
        assert_eq!(ByteSize::new(1536).to_string(), "1.5 KiB");
        assert_eq!(ByteSize::mib(64).to_string(), "64.0 MiB");
        assert_eq!(ByteSize::new(12).to_string(), "12 B");
    }
}
