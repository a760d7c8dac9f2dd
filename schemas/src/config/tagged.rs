//! Tables whose keys depend on their `type`: an enum with a struct of keys for each variant.
//!
//! The tag is read first, then the keys of its variant. Errors keep the path of the key inside the table, as
//! ``in `key`: reason``, which serde's own tagged enums lose.

use std::fmt;

use schemars::{Schema, SchemaGenerator};
use serde::{
    Deserialize, Deserializer,
    de::{
        self, IntoDeserializer, Visitor,
        value::{Error, MapAccessDeserializer, MapDeserializer, SeqDeserializer},
    },
    forward_to_deserialize_any,
};

/// Key that names the variant.
const TAG: &str = "type";

/// A variant of a table.
pub(super) struct Kind<T: 'static> {
    /// Its tag.
    pub(super) name: &'static str,
    /// Its description.
    pub(super) description: &'static str,
    /// Its keys.
    pub(super) keys: fn() -> &'static [&'static str],
    /// Reads it.
    pub(super) read: fn(Table) -> Result<T, String>,
    /// JSON Schema of its keys.
    pub(super) schema: fn(&mut SchemaGenerator) -> Schema,
}

/// A table whose keys depend on its `type`.
pub(super) trait Tagged: Sized + 'static {
    /// All variants.
    const KINDS: &'static [Kind<Self>];
    /// Variant of a table without a tag.
    const DEFAULT: Option<&'static str> = None;
}

/// Defines an enum of tables, each with its tag, its keys and a default for tables without a tag.
macro_rules! tagged {
    (
        $(#[$doc:meta])*
        pub enum $name:ident $(: $default:literal)? {
            $($(#[doc = $variant_doc:literal])* $tag:literal = $variant:ident($keys:ident),)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[doc = $variant_doc])* $variant($keys),)*
        }

        impl $crate::config::tagged::Tagged for $name {
            const KINDS: &'static [$crate::config::tagged::Kind<Self>] = &[$(
                $crate::config::tagged::Kind {
                    name: $tag,
                    description: concat!($($variant_doc),*),
                    keys: || $crate::config::tagged::keys_of(|keys| <$keys as ::serde::Deserialize>::deserialize(keys)),
                    read: |table| {
                        $crate::config::tagged::read(table, |table| <$keys as ::serde::Deserialize>::deserialize(table))
                            .map($name::$variant)
                    },
                    schema: |generator| <$keys as ::schemars::JsonSchema>::json_schema(generator),
                },
            )*];
            $(const DEFAULT: Option<&'static str> = Some($default);)?
        }

        impl $name {
            /// Value of `type`.
            #[must_use]
            pub const fn tag(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $tag,)*
                }
            }
        }
    };
}
pub(super) use tagged;

/// Reads a table: its variant, and the keys that all variants have.
pub(super) fn read_tagged<T: Tagged, C>(
    mut table: Table,
    common: &[&'static str],
    read_common: impl FnOnce(Table) -> Result<C, String>,
) -> Result<(T, C), String> {
    let tag = table.take(TAG);
    let name = match (&tag, T::DEFAULT) {
        (Some(Value::Text(name)), _) => name.as_str(),
        (Some(other), _) => {
            let unexpected = other.unexpected();
            return Err(format!(
                "in `{TAG}`: invalid type: {unexpected}, expected a string"
            ));
        }
        (None, Some(name)) => name,
        (None, None) => return Err(format!("missing field `{TAG}`")),
    };
    let Some(kind) = T::KINDS.iter().find(|kind| kind.name == name) else {
        let names = T::KINDS.iter().map(|kind| kind.name);
        return Err(format!(
            "in `{TAG}`: unknown variant `{name}`, expected one of {}",
            quoted(names)
        ));
    };
    let own = (kind.keys)();
    let here = || own.iter().chain(common).copied();
    for (key, _) in &table.0 {
        if here().any(|known| known == key) {
            continue;
        }
        let mut owners = T::KINDS
            .iter()
            .filter(|kind| (kind.keys)().contains(&key.as_str()))
            .map(|kind| format!("`{TAG} = \"{}\"`", kind.name))
            .peekable();
        if owners.peek().is_none() {
            let known = quoted(std::iter::once(TAG).chain(here()));
            return Err(format!("unknown field `{key}`, expected one of {known}"));
        }
        let owners: Vec<String> = owners.collect();
        let keys: Vec<&str> = here().collect();
        return Err(format!(
            "in `{key}`: `{key}` is a key of {}; with `{TAG} = \"{name}\"` there are: {}",
            owners.join(", "),
            keys.join(", ")
        ));
    }
    let shared = table.split_off(common);
    Ok(((kind.read)(table)?, read_common(shared)?))
}

fn quoted<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

/// Reads a value with the path of what is wrong in it.
pub(super) fn read<T>(
    table: Table,
    read: impl FnOnce(serde_path_to_error::Deserializer<'_, '_, Value>) -> Result<T, Error>,
) -> Result<T, String> {
    let mut track = serde_path_to_error::Track::new();
    let deserializer = serde_path_to_error::Deserializer::new(Value::Table(table), &mut track);
    read(deserializer).map_err(|error| {
        let path = track.path().to_string();
        match path.trim_matches('.') {
            "" | "?" => error.to_string(),
            path => format!("in `{path}`: {error}"),
        }
    })
}

/// Makes the schema of the keys that all variants have one of the table: an alternative for each variant, with all of its
/// keys.
pub(super) fn add_alternatives<T: Tagged>(table: &mut Schema, generator: &mut SchemaGenerator) {
    let shared = table.remove("properties");
    let shared = shared.as_ref().and_then(serde_json::Value::as_object);
    let kinds = T::KINDS.iter().map(|kind| {
        let schema = (kind.schema)(generator);
        let own = schema
            .get("properties")
            .and_then(serde_json::Value::as_object);
        let mut properties = serde_json::Map::new();
        properties.insert(TAG.into(), serde_json::json!({ "const": kind.name }));
        for (key, entry) in own.into_iter().chain(shared).flatten() {
            properties.insert(key.clone(), entry.clone());
        }
        let required = schema.get("required").and_then(serde_json::Value::as_array);
        let mut required = required.cloned().unwrap_or_default();
        if T::DEFAULT != Some(kind.name) {
            required.insert(0, TAG.into());
        }
        let mut alternative = serde_json::json!({
            "description": kind.description.trim(),
            "type": "object",
            "properties": properties,
            "additionalProperties": false,
        });
        if !required.is_empty() {
            alternative["required"] = required.into();
        }
        alternative
    });
    let kinds: Vec<serde_json::Value> = kinds.collect();
    table.remove("type");
    table.remove("additionalProperties");
    table.insert("oneOf".into(), kinds.into());
}

/// Keys of a struct whose `Deserialize` is derived.
pub(super) fn keys_of<T>(
    read: impl FnOnce(KeysOf<'_>) -> Result<T, Error>,
) -> &'static [&'static str] {
    let mut keys: &'static [&'static str] = &[];
    // The error is how the reading stops.
    drop(read(KeysOf(&mut keys)));
    keys
}

/// A deserializer that notes the names of a struct's fields and reads nothing.
pub(super) struct KeysOf<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for KeysOf<'_> {
    type Error = Error;
    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(de::Error::custom("no struct"))
    }
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Error> {
        *self.0 = fields;
        Err(de::Error::custom("only the names of fields are read"))
    }
    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// A table that has been read, in the order of the file.
#[derive(Clone, Debug, Default)]
pub(super) struct Table(Vec<(String, Value)>);

impl Table {
    /// Takes a key out.
    pub(super) fn take(&mut self, key: &str) -> Option<Value> {
        let at = self.0.iter().position(|(name, _)| name == key)?;
        Some(self.0.remove(at).1)
    }

    /// Moves the keys that are in `keys` into a table of their own.
    fn split_off(&mut self, keys: &[&str]) -> Self {
        let all = std::mem::take(&mut self.0);
        let (taken, kept) = all
            .into_iter()
            .partition(|(name, _)| keys.contains(&name.as_str()));
        self.0 = kept;
        Self(taken)
    }
}

impl<'de> Deserialize<'de> for Table {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ReadTable;
        impl<'de> Visitor<'de> for ReadTable {
            type Value = Table;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table")
            }
            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Table, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Table(pairs))
            }
        }
        deserializer.deserialize_map(ReadTable)
    }
}

/// A value that has been read.
#[derive(Clone, Debug)]
pub(super) enum Value {
    /// Null, of JSON.
    Null,
    /// True or false.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// An integer beyond `i64`.
    Unsigned(u64),
    /// A float.
    Float(f64),
    /// A string.
    Text(String),
    /// A list.
    List(Vec<Self>),
    /// A table.
    Table(Table),
}

impl Value {
    /// The value in messages.
    pub(super) fn unexpected(&self) -> de::Unexpected<'_> {
        match self {
            Self::Null => de::Unexpected::Unit,
            Self::Bool(value) => de::Unexpected::Bool(*value),
            Self::Int(value) => de::Unexpected::Signed(*value),
            Self::Unsigned(value) => de::Unexpected::Unsigned(*value),
            Self::Float(value) => de::Unexpected::Float(*value),
            Self::Text(value) => de::Unexpected::Str(value),
            Self::List(_) => de::Unexpected::Seq,
            Self::Table(_) => de::Unexpected::Map,
        }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ReadValue;
        impl<'de> Visitor<'de> for ReadValue {
            type Value = Value;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }
            fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
                Ok(Value::Bool(value))
            }
            fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
                Ok(Value::Int(value))
            }
            fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
                Ok(i64::try_from(value).map_or(Value::Unsigned(value), Value::Int))
            }
            fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
                Ok(Value::Float(value))
            }
            fn visit_str<E>(self, value: &str) -> Result<Value, E> {
                Ok(Value::Text(value.to_owned()))
            }
            fn visit_unit<E>(self) -> Result<Value, E> {
                Ok(Value::Null)
            }
            fn visit_seq<A: de::SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element()? {
                    items.push(item);
                }
                Ok(Value::List(items))
            }
            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Value, A::Error> {
                Table::deserialize(MapAccessDeserializer::new(map)).map(Value::Table)
            }
        }
        deserializer.deserialize_any(ReadValue)
    }
}

impl IntoDeserializer<'_, Error> for Value {
    type Deserializer = Self;
    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Value {
    type Error = Error;
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self {
            Self::Null => visitor.visit_unit(),
            Self::Bool(value) => visitor.visit_bool(value),
            Self::Int(value) => visitor.visit_i64(value),
            Self::Unsigned(value) => visitor.visit_u64(value),
            Self::Float(value) => visitor.visit_f64(value),
            Self::Text(value) => visitor.visit_string(value),
            Self::List(items) => visitor.visit_seq(SeqDeserializer::new(items.into_iter())),
            Self::Table(table) => visitor.visit_map(MapDeserializer::new(table.0.into_iter())),
        }
    }
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self {
            Self::Null => visitor.visit_none(),
            value => visitor.visit_some(value),
        }
    }
    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self {
            Self::Text(text) => {
                let text: de::value::StringDeserializer<Error> = text.into_deserializer();
                text.deserialize_enum(name, variants, visitor)
            }
            Self::Table(table) => {
                let map = MapDeserializer::new(table.0.into_iter());
                visitor.visit_enum(MapAccessDeserializer::new(map))
            }
            other => Err(de::Error::invalid_type(
                other.unexpected(),
                &"a string or a table",
            )),
        }
    }
    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
        unit unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}
