//! Ids as types of their own, so that one cannot be given for another.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

macro_rules! count_newtype {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(transparent)]
        pub struct $name($inner);

        impl $name {
            /// Wraps a number.
            #[must_use]
            pub const fn new(value: $inner) -> Self {
                Self(value)
            }
            /// The number.
            #[must_use]
            pub const fn get(self) -> $inner {
                self.0
            }
            /// The one after this.
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0 + 1)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

count_newtype!(
    /// Position in a source's commit log; the first entry has 0, and entries are contiguous.
    Sequence(u64)
);
count_newtype!(
    /// Writer epoch of a commit log: each process that takes over the log uses one above the last it saw.
    WriterEpoch(u64)
);
count_newtype!(
    /// Version of a source's record schema; the first is 1.
    SchemaVersion(u32)
);
count_newtype!(
    /// Optimizer step, counted from 0; a step consumes one global batch.
    Step(u64)
);
count_newtype!(
    /// Pass over the training split, counted from 0.
    Epoch(u64)
);
count_newtype!(
    /// Position of a process among `world_size` data-parallel processes, from 0.
    Rank(u32)
);
count_newtype!(
    /// Index of a sample inside a split, from 0, in shard order.
    SampleIndex(u64)
);
count_newtype!(
    /// Seed of every random choice of a run.
    Seed(u64)
);

/// A name that is safe as a path segment: 1 to 64 of `a-z`, `0-9`, `_`, `-`, beginning with a letter or digit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct Name(#[schemars(regex(pattern = r"^[a-z0-9][a-z0-9_-]{0,63}$"))] String);

impl Name {
    /// Checks and wraps `text`.
    ///
    /// ```
    /// use feedline_schemas::ids::{Name, TableName};
    ///
    /// assert_eq!(Name::new("daily-prices")?.as_str(), "daily-prices");
    /// assert!(Name::new("Daily Prices").is_err());
    /// let items = TableName::new("orders.items")?;
    /// assert_eq!(items.source, Name::new("orders")?);
    /// assert_eq!(items.to_string(), "orders.items");
    /// # Ok::<(), String>(())
    /// ```
    ///
    /// # Errors
    /// A message that says what is allowed.
    pub fn new(text: &str) -> Result<Self, String> {
        let allowed =
            |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-';
        let first_ok = text.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
        if first_ok && text.len() <= 64 && text.chars().all(allowed) {
            Ok(Self(text.to_owned()))
        } else {
            Err(format!(
                "`{text}` is not a name: use 1 to 64 of a-z, 0-9, `_` and `-`, beginning with a letter or digit"
            ))
        }
    }
    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

/// A table that sources have landed: the records of a source, `NAME`, or one of its child tables, `NAME.TABLE`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableName {
    /// The source.
    pub source: Name,
    /// The child table; absent for the records themselves.
    pub table: Option<Name>,
}

impl TableName {
    /// Checks and splits `text`.
    ///
    /// # Errors
    /// A message that says what is allowed.
    pub fn new(text: &str) -> Result<Self, String> {
        let (source, table) = match text.split_once('.') {
            None => (text, None),
            Some((source, table)) => (source, Some(Name::new(table)?)),
        };
        let source = Name::new(source)?;
        Ok(Self { source, table })
    }

    /// Returns true if it is the records of `source`.
    #[must_use]
    pub fn is_records_of(&self, source: &Name) -> bool {
        self.table.is_none() && self.source == *source
    }
}

impl From<Name> for TableName {
    fn from(source: Name) -> Self {
        Self {
            source,
            table: None,
        }
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.table {
            None => self.source.fmt(f),
            Some(table) => write!(f, "{}.{table}", self.source),
        }
    }
}

impl Serialize for TableName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TableName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

impl JsonSchema for TableName {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "TableName".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "a source, or a child table of one: NAME or NAME.TABLE",
            "type": "string",
            "pattern": r"^[a-z0-9][a-z0-9_-]{0,63}(\.[a-z0-9][a-z0-9_-]{0,63})?$"
        })
    }
}

/// A 128-bit content hash (xxh3-128), written as 32 lower-case hexadecimal digits, most significant first.
///
/// It detects damage and names content; it is not a signature.
///
/// ```
/// use feedline_schemas::ids::Hash128;
///
/// let hash = Hash128::of(b"id,price\n1,9.5\n");
/// assert_ne!(hash, Hash128::of(b"id,price\n1,9.6\n"));
/// assert_eq!(Hash128::new(0xfeed).to_string(), "0000000000000000000000000000feed");
/// assert_eq!(hash.short(), hash.to_string()[..16]);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash128(u128);

impl Hash128 {
    /// Wraps a hash value.
    #[must_use]
    pub const fn new(value: u128) -> Self {
        Self(value)
    }
    /// Hashes `bytes` with xxh3-128, seed 0.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(xxhash_rust::xxh3::xxh3_128(bytes))
    }
    /// The value.
    #[must_use]
    pub const fn get(self) -> u128 {
        self.0
    }
    /// The first 16 hexadecimal digits: enough to name a file.
    #[must_use]
    pub fn short(self) -> String {
        self.to_string()[..16].to_owned()
    }
}

impl fmt::Display for Hash128 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for Hash128 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hash128({self})")
    }
}

impl Serialize for Hash128 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Hash128 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.len() == 32
            && text
                .bytes()
                .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
            && let Ok(value) = u128::from_str_radix(&text, 16)
        {
            return Ok(Self(value));
        }
        Err(de::Error::custom(format!(
            "`{text}` is not a hash of 32 lower-case hexadecimal digits"
        )))
    }
}

impl JsonSchema for Hash128 {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Hash128".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "pattern": "^[0-9a-f]{32}$",
            "description": "xxh3-128 as 32 lower-case hexadecimal digits"
        })
    }
}

/// Origin of a record, in 64 bits: source index (8), log sequence (32), row in the batch (24).
///
/// Its numeric order is the landing order, so it breaks ties the same way on any number of partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin(u64);

impl Origin {
    /// Packs an origin; `None` when a part does not fit (256 sources, 2^32 batches, 2^24 rows a batch).
    #[must_use]
    pub fn pack(source: u64, sequence: u64, row: u64) -> Option<Self> {
        (source < 1 << 8 && sequence < 1 << 32 && row < 1 << 24)
            .then_some(Self(source << 56 | sequence << 24 | row))
    }
    /// Wraps a packed value read back from a shard.
    #[must_use]
    pub const fn from_packed(packed: u64) -> Self {
        Self(packed)
    }
    /// The packed value.
    #[must_use]
    pub const fn packed(self) -> u64 {
        self.0
    }
    /// Index of the source in the dataset's list.
    #[must_use]
    pub const fn source(self) -> u64 {
        self.0 >> 56
    }
    /// Log sequence of the batch.
    #[must_use]
    pub const fn sequence(self) -> Sequence {
        Sequence(self.0 >> 24 & 0xffff_ffff)
    }
    /// Row inside the batch.
    #[must_use]
    pub const fn row(self) -> u64 {
        self.0 & 0xff_ffff
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_safe_path_segments() {
        for good in ["a", "quotes", "0day", "a-b_c"] {
            assert!(Name::new(good).is_ok(), "{good}");
        }
        for bad in ["", "..", "A", "a/b", "-a", "ä", &"a".repeat(65)] {
            assert!(Name::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_table_is_a_source_or_a_child_of_one() {
        for good in ["orders", "orders.items"] {
            let table: TableName = serde_json::from_value(good.into()).unwrap();
            assert_eq!(table.to_string(), good);
            assert_eq!(serde_json::to_value(&table).unwrap(), good);
        }
        let orders = Name::new("orders").unwrap();
        assert!(TableName::from(orders.clone()).is_records_of(&orders));
        assert!(
            !TableName::new("orders.items")
                .unwrap()
                .is_records_of(&orders)
        );
        for bad in ["", ".", "a.", ".a", "a.b.c", "A.b"] {
            assert!(TableName::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn origin_keeps_its_parts_and_its_order() {
        let origin = Origin::pack(3, 70_000, 12_345).unwrap();
        assert_eq!(
            (origin.source(), origin.sequence().get(), origin.row()),
            (3, 70_000, 12_345)
        );
        assert!(Origin::pack(0, 1, 0) > Origin::pack(0, 0, (1 << 24) - 1));
        assert_eq!(Origin::pack(0, 0, 1 << 24), None);
    }

    #[test]
    fn a_hash_survives_json_and_a_short_one_is_refused() {
        let hash = Hash128::new(0xab);
        let json = serde_json::to_string(&hash).unwrap();
        assert_eq!(json, "\"000000000000000000000000000000ab\"");
        assert_eq!(serde_json::from_str::<Hash128>(&json).unwrap(), hash);
        assert!(serde_json::from_str::<Hash128>("\"ab\"").is_err());
    }
}
