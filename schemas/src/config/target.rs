//! `dataset.target`.

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{SeqAccess, Visitor, value::SeqAccessDeserializer},
};

use super::DatasetConfig;

/// The columns to predict, in the order of a model's outputs. One column is written as a string and
/// several as a list, so a list of one is the same configuration as its name alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetColumns(Vec<String>);

impl TargetColumns {
    /// The names, as the configuration lists them.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.0
    }
}

impl DatasetConfig {
    /// Names of the targets, in the order of a model's outputs; none without a target.
    #[must_use]
    pub fn targets(&self) -> &[String] {
        self.target.as_ref().map_or(&[], TargetColumns::names)
    }

    /// Returns true if column `name` is a target.
    #[must_use]
    pub fn is_target(&self, name: &str) -> bool {
        self.targets().iter().any(|target| target == name)
    }
}

impl From<&str> for TargetColumns {
    fn from(name: &str) -> Self {
        Self(vec![name.to_owned()])
    }
}

impl Serialize for TargetColumns {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0[..] {
            [one] => one.serialize(serializer),
            names => names.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for TargetColumns {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameOrList;
        impl<'de> Visitor<'de> for NameOrList {
            type Value = TargetColumns;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a column, or a list of names such as [\"a\", \"b\"]")
            }

            fn visit_str<E>(self, name: &str) -> Result<TargetColumns, E> {
                Ok(name.into())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, names: A) -> Result<TargetColumns, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(names)).map(TargetColumns)
            }
        }
        deserializer.deserialize_any(NameOrList)
    }
}

impl JsonSchema for TargetColumns {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "TargetColumns".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "The name of a column, or a list of names.",
            "anyOf": [
                { "type": "string" },
                { "type": "array", "items": { "type": "string" }, "minItems": 1 }
            ]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_one_is_written_as_its_name() {
        let read = |text: &str| serde_json::from_str::<TargetColumns>(text);
        let (one, list) = (read(r#""a""#).unwrap(), read(r#"["a"]"#).unwrap());
        assert_eq!(one, list);
        assert_eq!(serde_json::to_string(&list).unwrap(), r#""a""#);
        let both = read(r#"["b","a"]"#).unwrap();
        assert_eq!(both.names(), ["b", "a"]);
        assert_eq!(serde_json::to_string(&both).unwrap(), r#"["b","a"]"#);
        let refused = read("3").unwrap_err().to_string();
        assert!(refused.contains("a list of names"), "{refused}");
    }
}
