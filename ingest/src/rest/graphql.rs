//! GraphQL: checks of a query, the pages of a connection, and errors in a response.

use std::borrow::Cow;

use feedline_readers::value::Value;
use feedline_schemas::{
    config::{
        BodyCursor, GraphqlConfig, Pagination, PaginationKind, QueryFile, QueryText, SourceConfig,
    },
    record::join_path,
};

use crate::error::Error;

/// Returns the source with the paths and pagination of its connection.
pub(crate) fn effective(config: &SourceConfig) -> Cow<'_, SourceConfig> {
    let Some((graphql, connection)) = connection(config) else {
        return Cow::Borrowed(config);
    };
    let mut config = config.clone();
    config.records = format!("{connection}.nodes");
    config.pagination.way = Pagination::Cursor(BodyCursor {
        cursor_param: graphql.cursor.clone(),
        cursor_path: format!("{connection}.pageInfo.endCursor"),
        has_more_path: Some(format!("{connection}.pageInfo.hasNextPage")),
        end_status: Vec::new(),
    });
    Cow::Owned(config)
}

/// The query of a source with a connection, and the path of that.
fn connection(config: &SourceConfig) -> Option<(&GraphqlConfig, String)> {
    let graphql = config.graphql.as_ref()?;
    let connection = graphql.connection.as_ref()?;
    Some((graphql, format!("data.{connection}")))
}

/// Path of the edges of a connection, whose `node`s are its records if it has no `nodes`.
pub(super) fn edges_path(config: &SourceConfig) -> Option<String> {
    connection(config).map(|(_, connection)| format!("{connection}.edges"))
}

/// Key of the record in an edge of a connection.
pub(super) const NODE: &str = "node";

/// The record of an edge; the edge itself if it has none.
pub(super) fn into_node(edge: Value) -> Value {
    match edge {
        Value::Object(mut fields) => match fields.iter().position(|(key, _)| key == NODE) {
            Some(at) => fields.swap_remove(at).1,
            None => Value::Object(fields),
        },
        other => other,
    }
}

/// Checks a query, and settings beside it.
///
/// # Errors
/// [`Error::Config`].
pub(crate) fn check(config: &SourceConfig, graphql: &GraphqlConfig) -> Result<(), Error> {
    let wrong = |key: &str, reason: String| Err(Error::config(key, reason));
    if let QueryText::File(QueryFile { file }) = &graphql.query {
        let reason = format!(
            "names the file `{file}`, which was not read with the configuration; read it by `read_queries`"
        );
        return wrong("graphql.query", reason);
    }
    let query = Query::read(graphql.query.text());
    let query = query.map_err(|reason| Error::config("graphql.query", reason))?;
    query
        .check(graphql.operation.as_deref())
        .map_err(|(key, reason)| Error::config(format!("graphql.{key}"), reason))?;
    if let Some(name) = graphql.variables.keys().find(|name| !query.uses(name)) {
        let reason = format!("the query does not use `${name}`; correct the name, or remove it");
        return wrong(&format!("graphql.variables.{name}"), reason);
    }
    if config.error_path.is_some() {
        let reason =
            "does nothing beside `graphql`, whose errors are always read at `errors`; remove it";
        return wrong("error_path", reason.into());
    }
    let Some(connection) = &graphql.connection else {
        if graphql.cursor != "after" {
            let reason = "is for `graphql.connection`; set `pagination.cursor_param`, or `graphql.connection`";
            return wrong("graphql.cursor", reason.into());
        }
        return Ok(());
    };
    if connection.is_empty() || graphql.cursor.is_empty() {
        let key = if connection.is_empty() {
            "connection"
        } else {
            "cursor"
        };
        return wrong(
            &format!("graphql.{key}"),
            "is empty; set it, or remove it".into(),
        );
    }
    if !config.records.is_empty() {
        let reason = "is set by `graphql.connection`; remove one of them";
        return wrong("records", reason.into());
    }
    if config.pagination.way.kind() != PaginationKind::None {
        let reason = "is set by `graphql.connection`; remove one of them (`graphql.cursor` names the variable of the cursor)";
        return wrong("pagination.type", reason.into());
    }
    for field in ["pageInfo", "endCursor", "hasNextPage"] {
        if !query.names.contains(&field) {
            let reason = format!(
                "does not request `{field}`, which `graphql.connection` needs to page; add `pageInfo {{ endCursor hasNextPage }}` to the connection"
            );
            return wrong("graphql.query", reason);
        }
    }
    Ok(())
}

/// Refuses a query that does not use the variable of a parameter.
///
/// # Errors
/// [`Error::Config`].
pub(super) fn check_params(graphql: &GraphqlConfig, params: &[&str]) -> Result<(), Error> {
    let query = Query::read(graphql.query.text());
    let query = query.map_err(|reason| Error::config("graphql.query", reason))?;
    for param in params {
        let keys = feedline_schemas::record::split_path(param);
        let Some(name) = keys.first().filter(|name| !query.uses(name)) else {
            continue;
        };
        let reason = format!(
            "does not use the variable `${name}`, which the parameter `{param}` is sent in; add it to the query, or correct the name of the parameter"
        );
        return Err(Error::config("graphql.query", reason));
    }
    Ok(())
}

/// Names in the text of a query.
#[derive(Debug, Default, PartialEq)]
struct Query<'a> {
    /// Keyword and name of each operation.
    operations: Vec<(&'a str, Option<&'a str>)>,
    /// Names of variables, without `$`.
    variables: Vec<&'a str>,
    /// Other names, such as those of fields.
    names: Vec<&'a str>,
}

impl<'a> Query<'a> {
    /// Reads the tokens of a document (GraphQL, October 2021, section 2.1).
    ///
    /// # Errors
    /// A message about unbalanced braces.
    fn read(text: &'a str) -> Result<Self, String> {
        let mut query = Self::default();
        let (mut depth, mut rest, mut is_definition) = (0_usize, text, false);
        while let Some(c) = rest.chars().next() {
            let mut end = c.len_utf8();
            match c {
                '#' => end = rest.find(['\n', '\r']).unwrap_or(rest.len()),
                '"' => end = string_end(rest),
                '{' | '(' | '[' => {
                    if depth == 0 && c == '{' && !is_definition {
                        // The short form of a query.
                        query.operations.push(("query", None));
                        is_definition = true;
                    }
                    depth += 1;
                }
                '}' | ')' | ']' => {
                    let above = depth.checked_sub(1);
                    depth = above.ok_or_else(|| format!("has a `{c}` too many"))?;
                    if depth == 0 && c == '}' {
                        is_definition = false;
                    }
                }
                '$' => {
                    let name = name_at(&rest[1..]);
                    query.variables.push(name);
                    end += name.len();
                }
                c if c.is_ascii_alphabetic() || c == '_' => {
                    let name = name_at(rest);
                    end = name.len();
                    if depth == 0 && !is_definition {
                        is_definition = true;
                        let after = rest[end..].trim_start();
                        let own = Some(name_at(after)).filter(|own| !own.is_empty());
                        query.operations.push((name, own));
                    } else {
                        query.names.push(name);
                    }
                }
                _ => {}
            }
            rest = &rest[end..];
        }
        query
            .operations
            .retain(|(keyword, _)| *keyword != "fragment");
        match depth {
            0 => Ok(query),
            _ => Err("has a bracket that is not closed".into()),
        }
    }

    /// Refuses everything but one query.
    fn check(&self, operation: Option<&str>) -> Result<(), (&'static str, String)> {
        let wrong = |key, reason: &str| Err((key, reason.to_owned()));
        for (keyword, _) in &self.operations {
            match *keyword {
                "query" => {}
                "mutation" | "subscription" => {
                    let reason =
                        format!("has a `{keyword}`; a source only reads, so write a `query`");
                    return Err(("query", reason));
                }
                other => {
                    let reason = format!("has `{other}` where a `query` should be");
                    return Err(("query", reason));
                }
            }
        }
        match (self.operations.as_slice(), operation) {
            ([], _) => wrong(
                "query",
                "has no `query`; write one, such as `query { ... }`",
            ),
            ([_], None) => Ok(()),
            (_, None) => wrong(
                "operation",
                "is missing, and `graphql.query` has several; name one",
            ),
            (all, Some(name)) if all.iter().any(|(_, own)| *own == Some(name)) => Ok(()),
            (_, Some(name)) => {
                let reason = format!("`graphql.query` has no operation called `{name}`");
                Err(("operation", reason))
            }
        }
    }

    fn uses(&self, variable: &str) -> bool {
        self.variables.contains(&variable)
    }
}

/// The name that `text` begins with; empty if it begins with none.
fn name_at(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    &text[..end.unwrap_or(text.len())]
}

/// Number of bytes of the string that `text` begins with; all of them if it is not closed.
fn string_end(text: &str) -> usize {
    let (quote, is_block) = match text.starts_with("\"\"\"") {
        true => ("\"\"\"", true),
        false => ("\"", false),
    };
    let mut at = quote.len();
    while at < text.len() {
        let rest = &text[at..];
        if is_block && rest.starts_with("\\\"\"\"") {
            at += 4;
        } else if !is_block && rest.starts_with('\\') {
            at += 1 + rest[1..].chars().next().map_or(0, char::len_utf8);
        } else if rest.starts_with(quote) {
            return at + quote.len();
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// Errors in a response.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct QueryErrors {
    /// The first one, for messages; it may contain secrets.
    pub(super) text: String,
    /// True if the request may succeed later.
    pub(super) is_transient: bool,
    /// True if there are data beside them.
    pub(super) has_data: bool,
}

impl QueryErrors {
    /// Reads the errors of a response; `None` without one.
    pub(super) fn of(document: &Value) -> Option<Self> {
        let errors = document.at("errors")?;
        let first = match errors {
            Value::Null => return None,
            Value::List(items) => items.first()?,
            other => other,
        };
        let count = match errors {
            Value::List(items) => items.len(),
            _ => 1,
        };
        let mut text = match first.at("message") {
            Some(Value::Text(message)) => message.clone(),
            _ => first.canonical(),
        };
        if let Some(Value::List(path)) = first.at("path") {
            let keys: Vec<String> = path.iter().map(key).collect();
            text += &format!(" at {}", join_path(keys.iter().map(String::as_str)));
        }
        let code = code(first);
        if let Some(code) = code {
            text += &format!(", code {code}");
        }
        if count > 1 {
            text += &format!(", and {} more", count - 1);
        }
        Some(Self {
            text,
            is_transient: code.is_some_and(is_transient),
            has_data: !matches!(document.at("data"), None | Some(Value::Null)),
        })
    }
}

fn key(value: &Value) -> String {
    match value {
        Value::Text(text) => text.clone(),
        other => other.canonical(),
    }
}

/// Code of an error, where the usual servers have it.
fn code(error: &Value) -> Option<&str> {
    let mut places = ["extensions.code", "type", "code"].into_iter();
    places.find_map(|place| match error.at(place) {
        Some(Value::Text(code)) => Some(code.as_str()),
        _ => None,
    })
}

/// Returns true for the codes of rate limits and timeouts.
fn is_transient(code: &str) -> bool {
    let code: String = code
        .chars()
        .filter(char::is_ascii_alphabetic)
        .map(|c| c.to_ascii_uppercase())
        .collect();
    let parts = [
        "RATELIMIT",
        "THROTTL",
        "TOOMANYREQUESTS",
        "TIMEOUT",
        "TIMEDOUT",
        "SERVICEUNAVAILABLE",
    ];
    parts.iter().any(|part| code.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operations(text: &str) -> Result<Vec<(&str, Option<&str>)>, String> {
        Query::read(text).map(|query| query.operations)
    }

    #[test]
    fn operations_are_found_by_their_place() {
        let check = |text: &str, expected: &[(&str, Option<&str>)]| {
            assert_eq!(operations(text).unwrap(), expected, "{text}");
        };
        check("{ mutation }", &[("query", None)]);
        check("query mutation { a }", &[("query", Some("mutation"))]);
        check(
            "# mutation {\nquery A($x: [Int!] = [1], $y: I = {a: 1}) @d(s: \"} mutation {\") { a }",
            &[("query", Some("A"))],
        );
        check(
            "query A { a } fragment F on mutation { b } mutation B { c }",
            &[("query", Some("A")), ("mutation", Some("B"))],
        );
        check(
            "\"\"\"mutation \\\"\"\" { \"\"\" subscription { a }",
            &[("subscription", None)],
        );
        assert!(operations("query { a").unwrap_err().contains("not closed"));
        assert!(operations("query { a }}").unwrap_err().contains("too many"));
        let query =
            Query::read("query($after: String, $n: Int = 1) { a(b: $after) { nodes } }").unwrap();
        assert!(query.uses("after") && query.uses("n") && !query.uses("nodes"));
    }

    #[test]
    fn only_a_query_is_sent() {
        let check = |text: &str, operation: Option<&str>, expected: Option<&str>| {
            let checked = Query::read(text).unwrap().check(operation);
            match (checked, expected) {
                (Ok(()), None) => {}
                (Err((_, reason)), Some(part)) => assert!(reason.contains(part), "{reason}"),
                (checked, _) => panic!("{text}: {checked:?}"),
            }
        };
        check("{ a }", None, None);
        check("query A { a } query B { b }", Some("B"), None);
        check("query A { a } query B { b }", None, Some("name one"));
        check("query A { a }", Some("B"), Some("no operation called `B`"));
        check(
            "query A { a } mutation B { b }",
            Some("A"),
            Some("has a `mutation`"),
        );
        check("subscription { a }", None, Some("has a `subscription`"));
        check("type A { a: B }", None, Some("has `type`"));
        check("# nothing", None, Some("has no `query`"));
    }

    #[test]
    fn errors_are_told_with_path_and_code_and_those_that_pass_are_known() {
        let check = |body: &str, expected: Option<(&str, bool, bool)>| {
            let errors = QueryErrors::of(&Value::parse(body.as_bytes()).unwrap());
            let found = errors.as_ref();
            let found = found.map(|e| (e.text.as_str(), e.is_transient, e.has_data));
            assert_eq!(found, expected, "{body}");
        };
        check(r#"{"data": {"a": 1}}"#, None);
        check(r#"{"data": {"a": 1}, "errors": []}"#, None);
        check(r#"{"data": {"a": 1}, "errors": null}"#, None);
        check(
            r#"{"errors": [{"message": "no field `b`"}]}"#,
            Some(("no field `b`", false, false)),
        );
        check(
            r#"{"data": {"a": null}, "errors": [{"message": "m", "path": ["a", 0, "b.c"], "extensions": {"code": "X"}}, {}]}"#,
            Some(("m at a.0.b\\.c, code X, and 1 more", false, true)),
        );
        for code in [
            "RATE_LIMITED",
            "RATE_LIMIT_EXCEEDED",
            "throttled",
            "TOO_MANY_REQUESTS",
        ] {
            let body =
                format!(r#"{{"data": null, "errors": [{{"message": "m", "type": "{code}"}}]}}"#);
            check(
                &body,
                Some((format!("m, code {code}").as_str(), true, false)),
            );
        }
    }
}
