//! Requests of a `rest` source: `method`, `body` and `[source.graphql]`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::TextOrSecret;

/// Key that a TOML date or time has when it is read as a JSON value.
const DATETIME: &str = "$__toml_private_datetime";

/// Method of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Method {
    /// Without a body. It is repeated after any failure.
    #[default]
    #[serde(rename = "GET")]
    Get,
    /// With a body. It is repeated only where that is safe; see `idempotent`.
    #[serde(rename = "POST")]
    Post,
    /// With a body. It is repeated after any failure (RFC 9110, section 9.2.2).
    #[serde(rename = "PUT")]
    Put,
}

impl Method {
    /// Returns true for GET.
    #[must_use]
    pub fn is_get(&self) -> bool {
        *self == Self::Get
    }

    /// Its name, in capitals.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
        }
    }
}

/// Place of the parameters that differ from request to request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ParamsIn {
    /// In the query of the URL.
    Query,
    /// In the body: fields of `body.form`, or paths in `body.json`.
    Body,
}

/// `[source.body]`: body of each request of a `rest` source with `method = "POST"` or `"PUT"`. One
/// of `json`, `form`, `xml` and `text` is given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BodyConfig {
    /// A JSON value, mostly a table. A table `{ env = "NAME" }` or `{ file = "PATH" }` in it is read
    /// as a secret. A text may hold placeholders such as `{since}` for parameters of `pagination`,
    /// `incremental`, `slices` and `for_each`; a field whose text is one placeholder alone is left
    /// out of requests that do not have this parameter. `{{since}}` is sent as `{since}`. A date of
    /// TOML is sent as text.
    #[serde(
        default,
        deserialize_with = "read_json",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(extend("type" = ["object", "array", "string", "number", "boolean"]))]
    pub json: Option<Value>,
    /// Fields of a form (`application/x-www-form-urlencoded`), with placeholders as in `json`. A
    /// secret is given as `{ env = "NAME" }` or `{ file = "PATH" }`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub form: Option<BTreeMap<String, TextOrSecret>>,
    /// An XML document in UTF-8, with placeholders as in `json` in its texts and in the values of its
    /// attributes. Values are escaped for XML; of a parameter that a request does not have, nothing
    /// is inserted. Secrets are given by `auth` or `headers`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xml: Option<String>,
    /// Text of any kind, with placeholders as in `json`. Values are inserted as they are; of a
    /// parameter that a request does not have, nothing is inserted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// `Content-Type` of the body. Default: `application/json` of `json`,
    /// `application/x-www-form-urlencoded` of `form`, `application/xml` of `xml`; required with
    /// `text`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
}

/// `[source.graphql]`: query of a GraphQL API, sent with POST as the JSON body
/// `{"query": ..., "variables": ...}`. A query changes nothing, so it is repeated after any
/// failure.
///
/// `errors` without `data` are an error of the server; they are repeated only if their code means a
/// rate limit or a timeout. The parameters of `pagination`, `incremental`, `slices` and `for_each`
/// are variables of the query.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GraphqlConfig {
    /// Text of the query, or its file as `{ file = "PATH" }`, a path that begins at the folder of the
    /// pipeline file. A `mutation` or `subscription` is refused. Required.
    pub query: QueryText,
    /// Name of the operation, if the text has several. Default: none is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// Variables that are the same in each request, with placeholders and secrets as in
    /// `body.json`. Default: none.
    #[serde(
        default,
        deserialize_with = "read_variables",
        skip_serializing_if = "Map::is_empty"
    )]
    pub variables: Map<String, Value>,
    /// Path of a connection below `data`, such as `repository.issues`. It sets `records` to its
    /// `nodes`, or to each `node` of its `edges`, and `pagination` to the cursor in its `pageInfo`
    /// (`endCursor` and `hasNextPage`). Default: `records` and `pagination` are given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<String>,
    /// With `connection`: variable of the query for the cursor. Default `after`.
    #[serde(default = "after", skip_serializing_if = "is_after")]
    pub cursor: String,
    /// Action for a page with both `data` and `errors`, in which records or fields may be missing:
    /// `refuse` (default, the run ends with an error) or `warn` (the page lands, and the run warns
    /// with `graphql_partial_data`).
    #[serde(default, skip_serializing_if = "is_refuse")]
    pub partial_data: PartialData,
}

/// Text of a query, or its file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "expected the text of a query, or its file, `{ file = \"PATH\" }`"
)]
pub enum QueryText {
    /// The text.
    Text(String),
    /// A file with the text, which is read when the pipeline file is.
    File(QueryFile),
}

/// A file with the text of a query.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QueryFile {
    /// Path of the file, such as `queries/issues.graphql`. A relative one begins at the folder of
    /// the pipeline file. Required.
    pub file: String,
}

impl QueryText {
    /// The text; empty for a file that has not been read.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::Text(text) => text,
            Self::File(_) => "",
        }
    }
}

/// Action for a page with both `data` and `errors`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PartialData {
    /// End the run with an error.
    #[default]
    Refuse,
    /// Land the page, and warn.
    Warn,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
fn is_refuse(action: &PartialData) -> bool {
    *action == PartialData::Refuse
}

fn after() -> String {
    "after".into()
}

fn is_after(text: &str) -> bool {
    text == "after"
}

fn read_json<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    let value = Option::<Value>::deserialize(deserializer)?;
    Ok(value.map(with_dates_as_text))
}

fn read_variables<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Map<String, Value>, D::Error> {
    let map = Map::deserialize(deserializer)?;
    let fields = map.into_iter();
    Ok(fields
        .map(|(key, value)| (key, with_dates_as_text(value)))
        .collect())
}

/// The value with each date or time of TOML as its text.
fn with_dates_as_text(value: Value) -> Value {
    match value {
        Value::Object(mut map) if map.len() == 1 && map.contains_key(DATETIME) => {
            map.remove(DATETIME).unwrap_or_default()
        }
        Value::Object(map) => {
            let fields = map.into_iter();
            let fields = fields.map(|(key, value)| (key, with_dates_as_text(value)));
            Value::Object(fields.collect())
        }
        Value::Array(items) => items.into_iter().map(with_dates_as_text).collect(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::load;

    fn source(lines: &str) -> crate::config::SourceConfig {
        let text = format!(
            "[pipeline]\nname = 'p'\n[[source]]\nname = 's'\ntype = 'rest'\nurl = 'http://h/'\n{lines}"
        );
        load("p.toml", &text, &[]).unwrap().config.source.remove(0)
    }

    #[test]
    fn bodies_are_read_as_written_with_dates_as_text() {
        let read = source(
            "method = 'POST'\nbody.json = { day = 2026-01-02, at = [2026-01-02T03:04:05Z], n = 1.5, deep = { is = true } }",
        );
        let expected = json!({
            "day": "2026-01-02", "at": ["2026-01-02T03:04:05Z"], "n": 1.5, "deep": {"is": true}
        });
        assert_eq!(read.method, Method::Post);
        assert_eq!(read.body.as_ref().unwrap().json, Some(expected));
        let text = serde_json::to_string(&read.body).unwrap();
        let again: Option<BodyConfig> = serde_json::from_str(&text).unwrap();
        assert_eq!(again, read.body);
        let plain = source("");
        let text = serde_json::to_string(&plain).unwrap();
        assert!(
            !text.contains("method") && !text.contains("idempotent"),
            "{text}"
        );
    }

    #[test]
    fn a_query_has_defaults_and_needs_its_text() {
        let read = source("graphql.query = '{ a }'\ngraphql.variables.since = 2026-01-02");
        let graphql = read.graphql.unwrap();
        assert_eq!(graphql.query.text(), "{ a }");
        assert_eq!(graphql.cursor, "after");
        assert_eq!(graphql.variables["since"], "2026-01-02");
        let error = serde_json::from_value::<GraphqlConfig>(json!({})).unwrap_err();
        assert!(
            error.to_string().contains("missing field `query`"),
            "{error}"
        );
        let read = source("graphql.query = { file = 'q/a.graphql' }");
        let expected = QueryFile {
            file: "q/a.graphql".into(),
        };
        assert_eq!(read.graphql.unwrap().query, QueryText::File(expected));
    }
}
