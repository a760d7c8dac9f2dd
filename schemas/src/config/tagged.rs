//! Tables whose keys depend on one of them, the tag: `type` of a step, `by` of a split.
//!
//! serde's own internally tagged enums lose the path of a key and accept keys of other variants. Here the tag is read first,
//! then the variant, so that a key of another variant is refused by name and the path stays exact. An error carries the
//! path below the table in its text (``at `lower`: ...``); [`located`] takes it apart again.

use std::{collections::BTreeSet, fmt};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error as _, MapAccess, SeqAccess, Visitor},
    forward_to_deserialize_any,
};
use serde_json::{Map, Number, Value};

/// An enum of the tables that a tag chooses.
pub(crate) trait Tagged: Sized + 'static {
    /// Key that chooses.
    const TAG: &'static str;
    /// Description of that key.
    const DOC: &'static str;
    /// Value of an absent tag; `None` where the tag is required.
    const DEFAULT: Option<&'static str>;
    /// The variants, in the order that messages list them.
    fn variants() -> Vec<Variant<Self>>;
}

type ReadTable<T> = Box<dyn Fn(Map<String, Value>) -> Result<T, KeyError>>;

/// One table that a tag chooses.
pub(crate) struct Variant<T> {
    name: &'static str,
    keys: Vec<&'static str>,
    read: ReadTable<T>,
    schemas: fn(&mut SchemaGenerator) -> Vec<Map<String, Value>>,
}

/// A variant whose keys are the fields of a struct.
pub(crate) fn plain<T: 'static, S>(name: &'static str, make: fn(S) -> T) -> Variant<T>
where
    S: DeserializeOwned + JsonSchema + 'static,
{
    Variant {
        name,
        keys: keys_of::<S>(),
        read: Box::new(move |map| read_keys(map).map(make)),
        schemas: |generator| vec![object(S::json_schema(generator))],
    }
}

/// A variant without keys of its own.
pub(crate) fn bare<T: Clone + 'static>(name: &'static str, value: T) -> Variant<T> {
    Variant {
        name,
        keys: Vec::new(),
        read: Box::new(move |_| Ok(value.clone())),
        schemas: |_| vec![Map::new()],
    }
}

/// A variant that is itself a tagged table with keys `C` beside its tag.
pub(crate) fn nested<T: 'static, C, S>(name: &'static str, make: fn(C, S) -> T) -> Variant<T>
where
    C: DeserializeOwned + JsonSchema + 'static,
    S: Tagged,
{
    let variants = S::variants().into_iter().flat_map(|variant| variant.keys);
    let all: BTreeSet<&str> = variants.collect();
    let common = keys_of::<C>();
    Variant {
        name,
        keys: std::iter::once(S::TAG).chain(common).chain(all).collect(),
        read: Box::new(move |map| read_map::<C, S>(map).map(|(common, own)| make(common, own))),
        schemas: alternatives::<C, S>,
    }
}

/// No keys beside the tag and those of the variants.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoKeys {}

/// An error at a key below a table.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct KeyError {
    /// Path from the table, empty for the table itself.
    path: String,
    reason: String,
}

impl KeyError {
    pub(crate) fn new(path: impl Into<String>, reason: impl Into<String>) -> Self {
        let (path, reason) = (path.into(), reason.into());
        Self { path, reason }
    }

    /// The error below `table`, with the path in its own text joined.
    fn below(table: &str, message: &str) -> Self {
        let (path, reason) = located(message);
        let joined = match (table, path) {
            ("" | "?", path) => path.to_owned(),
            (table, "") => table.to_owned(),
            (table, path) => format!("{table}.{path}"),
        };
        Self::new(joined, reason)
    }
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.as_str() {
            "" => f.write_str(&self.reason),
            path => write!(f, "at `{path}`: {}", self.reason),
        }
    }
}

/// The path below a table and the reason, from the text of a [`KeyError`]; the path of any other text is empty.
pub(crate) fn located(message: &str) -> (&str, &str) {
    let found = message
        .strip_prefix("at `")
        .and_then(|rest| rest.split_once("`: "));
    found.unwrap_or(("", message))
}

/// Reads a table with the keys `C` and a tagged rest.
pub(crate) fn read<'de, D, C, T>(deserializer: D) -> Result<(C, T), D::Error>
where
    D: Deserializer<'de>,
    C: DeserializeOwned + 'static,
    T: Tagged,
{
    struct Table;
    impl<'de> Visitor<'de> for Table {
        type Value = Map<String, Value>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a table")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut keys = Map::new();
            while let Some(key) = map.next_key::<String>()? {
                keys.insert(key, map.next_value::<Buffered>()?.0);
            }
            Ok(keys)
        }
    }
    let map = deserializer.deserialize_map(Table)?;
    read_map(map).map_err(D::Error::custom)
}

fn read_map<C, T>(mut map: Map<String, Value>) -> Result<(C, T), KeyError>
where
    C: DeserializeOwned + 'static,
    T: Tagged,
{
    // An older program wrote keys of other variants as null.
    map.retain(|_, value| !value.is_null());
    let mut variants = T::variants();
    let name = match (map.remove(T::TAG), T::DEFAULT) {
        (Some(Value::String(name)), _) => name,
        (Some(other), _) => {
            let reason = format!("invalid type: {}, expected a text", kind_of(&other));
            return Err(KeyError::new(T::TAG, reason));
        }
        (None, Some(name)) => name.to_owned(),
        (None, None) => return Err(KeyError::new("", format!("missing field `{}`", T::TAG))),
    };
    let all = variants.iter();
    let all: Vec<(&str, &[&str])> = all.map(|v| (v.name, v.keys.as_slice())).collect();
    let common = keys_of::<C>();
    let place = chosen(T::TAG, &name, &map, &common, &all)?;
    let (of_common, own) = map
        .into_iter()
        .partition(|(key, _)| common.contains(&key.as_str()));
    let variant = variants.swap_remove(place);
    let needs = |error: KeyError| match missing_of(&error) {
        Some(field) => {
            let reason = format!("{} needs this key, add it", named(T::TAG, variant.name));
            KeyError::new(field, reason)
        }
        None => error,
    };
    let common = read_keys(of_common)?;
    let own = (variant.read)(own).map_err(needs)?;
    Ok((common, own))
}

fn missing_of(error: &KeyError) -> Option<String> {
    let rest = error.reason.strip_prefix("missing field `")?;
    let field = rest.split('`').next()?;
    error.path.is_empty().then(|| field.to_owned())
}

/// Finds the variant `name`, and checks that every key of `map` is one of its keys or of the `common` ones.
fn chosen(
    tag: &str,
    name: &str,
    map: &Map<String, Value>,
    common: &[&'static str],
    variants: &[(&'static str, &[&'static str])],
) -> Result<usize, KeyError> {
    let place = variants.iter().position(|(known, _)| *known == name);
    let Some((place, (_, own))) = place.map(|place| (place, variants[place])) else {
        let names = variants.iter().map(|(name, _)| *name);
        let names = list(names.filter(|name| !name.is_empty()));
        let reason = format!("unknown variant `{name}`, expected one of {names}");
        return Err(KeyError::new(tag, reason));
    };
    let unfit = |key: &&String| !common.contains(&key.as_str()) && !own.contains(&key.as_str());
    let Some(key) = map.keys().find(unfit) else {
        return Ok(place);
    };
    let known = list([tag].iter().chain(common).chain(own).copied());
    let owners = variants
        .iter()
        .filter(|(_, keys)| keys.contains(&key.as_str()));
    let mut owners: Vec<String> = owners.map(|(name, _)| named(tag, name)).collect();
    let Some(last) = owners.pop() else {
        let reason = format!("unknown field `{key}`, expected one of {known}");
        return Err(KeyError::new("", reason));
    };
    let owners = match owners.is_empty() {
        true => last,
        false => format!("{} and {last}", owners.join(", ")),
    };
    let this = named(tag, name);
    let reason = format!("this key belongs to {owners}; {this} has the keys {known}");
    Err(KeyError::new(key, reason))
}

/// A variant as a file writes it.
fn named(tag: &str, name: &str) -> String {
    match name {
        "" => format!("a table without `{tag}`"),
        name => format!("`{tag} = \"{name}\"`"),
    }
}

/// The keys of each variant of a table that one struct holds.
pub(crate) struct KeyTable {
    /// Key that chooses.
    pub(crate) tag: &'static str,
    /// Value of an absent tag; empty where its keys are those of the variant without a name.
    pub(crate) default: &'static str,
    /// Keys of all variants.
    pub(crate) common: &'static [&'static str],
    /// The variants and their own keys.
    pub(crate) variants: &'static [(&'static str, &'static [&'static str])],
}

impl KeyTable {
    /// Reads a table, and refuses a key of another variant.
    pub(crate) fn read<'de, D, S>(&self, deserializer: D) -> Result<S, D::Error>
    where
        D: Deserializer<'de>,
        S: DeserializeOwned,
    {
        let Buffered(value) = Buffered::deserialize(deserializer)?;
        self.of(value).map_err(D::Error::custom)
    }

    /// As [`KeyTable::read`], for each table of a list.
    pub(crate) fn read_list<'de, D, S>(&self, deserializer: D) -> Result<Option<Vec<S>>, D::Error>
    where
        D: Deserializer<'de>,
        S: DeserializeOwned,
    {
        let tables = Option::<Vec<Buffered>>::deserialize(deserializer)?;
        let Some(tables) = tables else {
            return Ok(None);
        };
        let read = |(i, Buffered(value)): (usize, Buffered)| {
            let below = |error: KeyError| KeyError::below(&i.to_string(), &error.to_string());
            self.of(value).map_err(below)
        };
        let tables = tables.into_iter().enumerate().map(read);
        let tables: Result<Vec<S>, KeyError> = tables.collect();
        tables.map(Some).map_err(D::Error::custom)
    }

    fn of<S: DeserializeOwned>(&self, value: Value) -> Result<S, KeyError> {
        let Value::Object(mut map) = value else {
            let reason = format!("invalid type: {}, expected a table", kind_of(&value));
            return Err(KeyError::new("", reason));
        };
        // Records hold keys of other variants as null.
        map.retain(|_, value| !value.is_null());
        let tag = map.remove(self.tag);
        let name = match &tag {
            Some(Value::String(name)) => name,
            Some(other) => {
                let reason = format!("invalid type: {}, expected a text", kind_of(other));
                return Err(KeyError::new(self.tag, reason));
            }
            // The struct itself reports that the tag is missing.
            None if self.is_required() => return read_keys(map),
            None => self.default,
        };
        chosen(self.tag, name, &map, self.common, self.variants)?;
        map.extend(tag.map(|tag| (self.tag.to_owned(), tag)));
        read_keys(map)
    }

    /// Returns true if an absent tag chooses no variant.
    fn is_required(&self) -> bool {
        self.variants.iter().all(|(name, _)| *name != self.default)
    }

    /// The schema of the struct, as one object for each variant.
    pub(crate) fn schema<S: JsonSchema>(&self, generator: &mut SchemaGenerator) -> Schema {
        let whole = object(S::json_schema(generator));
        let properties = whole.get("properties").and_then(Value::as_object);
        let needed = whole.get("required").and_then(Value::as_array);
        let alternative = |(name, own): &(&str, &[&str])| {
            let mut listed = Map::new();
            let keys = [self.tag].into_iter().chain(self.common.iter().copied());
            for key in keys.chain(own.iter().copied()) {
                let of_key = properties.and_then(|all| all.get(key)).cloned();
                listed.extend(of_key.map(|schema| (key.to_owned(), schema)));
            }
            let is_own = |key: &&Value| key.as_str().is_some_and(|key| listed.contains_key(key));
            let mut required: Vec<Value> = needed
                .into_iter()
                .flatten()
                .filter(is_own)
                .cloned()
                .collect();
            required.retain(|key| key != self.tag);
            match *name {
                "" => drop(listed.remove(self.tag)),
                name => {
                    let described = listed.get(self.tag).map(|tag| tag["description"].clone());
                    let tag = serde_json::json!({
                        "description": described, "type": "string", "const": name
                    });
                    listed.insert(self.tag.to_owned(), tag);
                    if name != self.default {
                        required.push(Value::from(self.tag));
                    }
                }
            }
            serde_json::json!({
                "type": "object",
                "properties": listed,
                "required": required,
                "additionalProperties": false,
            })
        };
        let alternatives: Vec<Value> = self.variants.iter().map(alternative).collect();
        let description = whole.get("description").cloned();
        schemars::json_schema!({ "description": description, "oneOf": alternatives })
    }
}

fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "list",
        Value::Object(_) => "table",
    }
}

fn read_keys<S: DeserializeOwned>(map: Map<String, Value>) -> Result<S, KeyError> {
    serde_path_to_error::deserialize(Value::Object(map)).map_err(|error| {
        let path = error.path().to_string();
        let path = path.trim_matches('.').replace('[', ".").replace(']', "");
        KeyError::below(&path, &error.inner().to_string())
    })
}

/// The schema of a table with the keys `C` and a tagged rest: one object for each variant.
pub(crate) fn schema<C: JsonSchema, T: Tagged>(
    generator: &mut SchemaGenerator,
    description: &str,
) -> Schema {
    let alternatives = alternatives::<C, T>(generator);
    schemars::json_schema!({ "description": description, "oneOf": alternatives })
}

fn alternatives<C: JsonSchema, T: Tagged>(
    generator: &mut SchemaGenerator,
) -> Vec<Map<String, Value>> {
    let common = object(C::json_schema(generator));
    let mut all = Vec::new();
    for variant in T::variants() {
        for own in (variant.schemas)(generator) {
            let tag = serde_json::json!({
                "description": T::DOC, "type": "string", "const": variant.name
            });
            let mut properties = Map::new();
            properties.insert(T::TAG.to_owned(), tag);
            let mut required = Vec::new();
            if T::DEFAULT != Some(variant.name) {
                required.push(Value::from(T::TAG));
            }
            for part in [&common, &own] {
                let listed = part.get("properties").and_then(Value::as_object);
                properties.extend(listed.cloned().unwrap_or_default());
                let listed = part.get("required").and_then(Value::as_array);
                required.extend(listed.cloned().unwrap_or_default());
            }
            let mut alternative = Map::new();
            let described = own.get("description").cloned();
            alternative.extend(described.map(|text| ("description".to_owned(), text)));
            alternative.insert("type".to_owned(), "object".into());
            alternative.insert("properties".to_owned(), properties.into());
            alternative.insert("required".to_owned(), required.into());
            alternative.insert("additionalProperties".to_owned(), false.into());
            all.push(alternative);
        }
    }
    all
}

fn object(schema: Schema) -> Map<String, Value> {
    match Value::from(schema) {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}

/// The names of the fields of a struct, as serde knows them.
fn keys_of<S: DeserializeOwned>() -> Vec<&'static str> {
    struct Fields<'a>(&'a mut Vec<&'static str>);
    impl<'de> Deserializer<'de> for Fields<'_> {
        type Error = serde::de::value::Error;

        fn deserialize_struct<V: Visitor<'de>>(
            self,
            _: &'static str,
            fields: &'static [&'static str],
            _: V,
        ) -> Result<V::Value, Self::Error> {
            self.0.extend(fields);
            Err(Self::Error::custom("only the fields are wanted"))
        }

        fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Self::Error> {
            Err(Self::Error::custom("it is no struct"))
        }

        forward_to_deserialize_any! {
            bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
            newtype_struct seq tuple tuple_struct map enum identifier ignored_any
        }
    }
    let mut fields = Vec::new();
    // The fields are found on the way to the error.
    drop(S::deserialize(Fields(&mut fields)));
    fields
}

/// A value of any format, with finite numbers only.
struct Buffered(Value);

impl<'de> Deserialize<'de> for Buffered {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyValue;
        impl<'de> Visitor<'de> for AnyValue {
            type Value = Value;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }

            fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
                Ok(value.into())
            }

            fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
                Ok(value.into())
            }

            fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
                Ok(value.into())
            }

            fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
                let number = Number::from_f64(value);
                number.map(Value::Number).ok_or_else(|| {
                    E::custom(format!("`{value}` is not a finite number, write one"))
                })
            }

            fn visit_str<E>(self, value: &str) -> Result<Value, E> {
                Ok(value.into())
            }

            fn visit_unit<E>(self) -> Result<Value, E> {
                Ok(Value::Null)
            }

            fn visit_none<E>(self) -> Result<Value, E> {
                Ok(Value::Null)
            }

            fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<Value, D::Error> {
                Buffered::deserialize(inner).map(|buffered| buffered.0)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
                let mut values = Vec::new();
                while let Some(Buffered(value)) = list.next_element()? {
                    values.push(value);
                }
                Ok(values.into())
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
                let mut values = Map::new();
                while let Some((key, Buffered(value))) = map.next_entry::<String, _>()? {
                    values.insert(key, value);
                }
                Ok(values.into())
            }
        }
        deserializer.deserialize_any(AnyValue).map(Self)
    }
}
