//! Checking the settings of requests: `method`, `body`, `params_in`, `idempotent` and `graphql`.

use feedline_schemas::config::{
    BodyConfig, CsvConfig, Method, Pagination, ParamsIn, ResponseFormat, SourceConfig, TextOrSecret,
};
use serde_json::Value;

use crate::{error::Error, rest};

/// Refuses settings that contradict each other or have no effect.
///
/// # Errors
/// [`Error::Config`].
pub(crate) fn check(source: &SourceConfig) -> Result<(), Error> {
    let wrong = |key: &str, reason: String| Err(Error::config(key, reason));
    if let Some(graphql) = &source.graphql {
        if source.body.is_some() {
            let reason = "cannot be combined with `graphql`, which has a body of its own; remove one of them";
            return wrong("body", reason.into());
        }
        if source.method == Method::Put {
            return wrong("method", "must be `POST` for `graphql`; remove it".into());
        }
        if source.params_in == Some(ParamsIn::Query) {
            let reason = "must be `body` for `graphql`, whose parameters are variables; remove it";
            return wrong("params_in", reason.into());
        }
        rest::graphql::check(source, graphql)?;
    }
    check_response(source)?;
    if let Some(body) = &source.body {
        if source.method.is_get() {
            let reason = "is not sent with `method = \"GET\"`, the default; set `method = \"POST\"` or `\"PUT\"`, or remove it";
            return wrong("body", reason.into());
        }
        check_body(source, body)?;
    }
    if source.params_in == Some(ParamsIn::Body) && source.graphql.is_none() {
        let body = source.body.as_ref();
        let takes = body.is_some_and(|body| {
            body.form.is_some() || body.json.as_ref().is_some_and(Value::is_object)
        });
        if !takes {
            let reason = "is `body`, but there is no `body.form` and no table in `body.json`; add one (`body = { json = {} }`), or use placeholders such as `{since}` in `body`";
            return wrong("params_in", reason.into());
        }
    }
    if source.idempotent && (source.method != Method::Post || source.graphql.is_some()) {
        let reason = "is for `method = \"POST\"`; other requests are always repeated; remove it";
        return wrong("idempotent", reason.into());
    }
    let is_plain = source.method.is_get() && source.graphql.is_none();
    if is_plain {
        return Ok(());
    }
    let method = if source.graphql.is_some() {
        "POST"
    } else {
        source.method.as_str()
    };
    if !source.refresh.is_never() {
        let reason = format!(
            "needs `method = \"GET\"`: conditional requests exist for GET only (RFC 9110), and the source sends {method}; use `incremental` or `slices`"
        );
        return wrong("refresh", reason);
    }
    if !source.pagination.way.next_origins().is_empty() {
        let reason = format!(
            "needs `method = \"GET\"`: the body of a {method} is not sent to another origin; remove it"
        );
        return wrong("pagination.next_origins", reason);
    }
    Ok(())
}

/// Settings of responses that contradict the format, or have no effect in it.
fn check_response(source: &SourceConfig) -> Result<(), Error> {
    use ResponseFormat::{Auto, Csv, Json, Ndjson, Xml};
    let wrong = |key: &str, reason: String| Err(Error::config(key, reason));
    let format = source.response.format;
    let name = format.as_str();
    if source.graphql.is_some() && !matches!(format, Auto | Json) {
        let reason = "must be `json` for `graphql`, whose responses are JSON; remove it";
        return wrong("response.format", reason.into());
    }
    let is_json = matches!(format, Json | Ndjson) || source.graphql.is_some();
    if is_json && source.csv != CsvConfig::default() {
        let reason = "is for responses in CSV or XML, and does nothing in JSON; remove it, or set `response.format`";
        return wrong("csv", reason.into());
    }
    if format == Xml && !is_of_cells(&source.csv) {
        let reason = "has keys for tables, which do nothing in XML; keep only `null_values`, `null_spellings`, `decimal_separator`, `thousands_separator`, `percent` and `currency`";
        return wrong("csv", reason.into());
    }
    if !source.response.lists.is_empty() && !matches!(format, Auto | Xml) {
        let reason = format!("is for XML, and does nothing in `{name}`; remove it");
        return wrong("response.lists", reason);
    }
    if let Some(path) = source.response.lists.iter().find(|path| path.is_empty()) {
        let reason = format!("has the empty path `{path}`; name an element below a record");
        return wrong("response.lists", reason);
    }
    if source.response.single_record && !matches!(format, Auto | Json) {
        let reason = format!("is for JSON, and does nothing in `{name}`; remove it");
        return wrong("response.single_record", reason);
    }
    if format == Xml && source.records.is_empty() {
        let reason = "is missing: in XML it is the path of the elements that are the records, from the root element on, such as `feed.entry`";
        return wrong("records", reason.into());
    }
    if matches!(format, Csv | Ndjson)
        && let Some(key) = path_key(source)
    {
        let reason = format!(
            "is a path in a document, and a page in `{name}` has none; remove it, or use headers (`pagination.total_header`, `pagination.cursor_header`)"
        );
        return wrong(key, reason);
    }
    Ok(())
}

/// Returns true if only keys differ from the defaults that apply to single cells.
fn is_of_cells(csv: &CsvConfig) -> bool {
    let plain = CsvConfig {
        null_values: csv.null_values.clone(),
        null_spellings: csv.null_spellings,
        decimal_separator: csv.decimal_separator,
        thousands_separator: csv.thousands_separator,
        percent: csv.percent,
        currency: csv.currency,
        ..CsvConfig::default()
    };
    *csv == plain
}

/// The first key with a path in a document.
fn path_key(source: &SourceConfig) -> Option<&'static str> {
    let pages = &source.pagination;
    let has = |path: Option<&str>| path.is_some_and(|path| !path.is_empty());
    let of_way = match &pages.way {
        Pagination::Cursor(_) => Some("pagination.cursor_path"),
        Pagination::NextUrl(_) => Some("pagination.next_path"),
        _ => None,
    };
    let keys = [
        ("records", has(Some(source.records.as_str()))),
        ("error_path", has(source.error_path.as_deref())),
        ("pagination.has_more_path", has(pages.way.has_more_path())),
        (
            "pagination.total_path",
            has(pages.common.total_path.as_deref()),
        ),
    ];
    let found = keys.into_iter().find(|(_, has)| *has);
    found.map(|(key, _)| key).or(of_way)
}

/// Settings of the format of responses that decide how pages are read; empty for the defaults.
pub(crate) fn hashed_response(source: &SourceConfig) -> Vec<u8> {
    let csv = (source.csv != CsvConfig::default()).then_some(&source.csv);
    if source.response.is_default() && csv.is_none() {
        return Vec::new();
    }
    let all = (&source.response, csv);
    serde_json::to_vec(&all).expect("settings have string keys and finite numbers")
}

fn check_body(source: &SourceConfig, body: &BodyConfig) -> Result<(), Error> {
    let wrong = |key: &str, reason: String| Err(Error::config(key, reason));
    let given = [
        ("json", body.json.is_some()),
        ("form", body.form.is_some()),
        ("xml", body.xml.is_some()),
        ("text", body.text.is_some()),
    ];
    let given: Vec<&str> = given
        .iter()
        .filter(|(_, is)| *is)
        .map(|(key, _)| *key)
        .collect();
    match given.as_slice() {
        [] => {
            return wrong(
                "body",
                "is empty; give `json`, `form`, `xml` or `text`".into(),
            );
        }
        [_] => {}
        several => {
            let reason = format!(
                "has `{}`, but a request can have only one of them; remove the others",
                several.join("` and `")
            );
            return wrong("body", reason);
        }
    }
    if let Some(xml) = &body.xml
        && let Err(reason) = feedline_readers::xml::check(xml)
    {
        return wrong("body.xml", format!("is no XML document: {reason}"));
    }
    let header = source
        .headers
        .keys()
        .find(|name| name.eq_ignore_ascii_case("content-type"));
    match (&body.content_type, header) {
        (Some(_), Some(name)) => {
            let reason = format!("is given in `headers.{name}` too; remove one of them");
            wrong("body.content_type", reason)
        }
        (None, None) if body.text.is_some() => wrong(
            "body.content_type",
            "is missing; say what `body.text` is, such as `application/xml`".into(),
        ),
        _ => Ok(()),
    }
}

/// Settings that decide which data is requested; empty for plain GET requests.
pub(crate) fn hashed(source: &SourceConfig) -> Vec<u8> {
    let body = source.body.as_ref().map(|body| {
        let form = body.form.iter().flatten();
        let form: Vec<_> = form
            .filter(|(_, value)| matches!(value, TextOrSecret::Text(_)))
            .collect();
        let json = body.json.as_ref().map(without_references);
        // A new kind of body must not change the hash of the others.
        let text = body.xml.as_ref().map(|xml| format!("xml {xml}"));
        let text = text.or_else(|| body.text.clone());
        (json, form, text, &body.content_type)
    });
    let graphql = source.graphql.as_ref().map(|graphql| {
        let variables = Value::Object(graphql.variables.clone());
        (
            graphql.query.text(),
            &graphql.operation,
            without_references(&variables),
            &graphql.connection,
            &graphql.cursor,
        )
    });
    let all = (source.method, body, source.params_in, graphql);
    if matches!(all, (Method::Get, None, None, None)) {
        return Vec::new();
    }
    serde_json::to_vec(&all).expect("settings have string keys and finite numbers")
}

/// The value with null in place of each reference to a secret, which may change at any time.
pub(crate) fn without_references(value: &Value) -> Value {
    if rest::reference(value).is_some() {
        return Value::Null;
    }
    match value {
        Value::Object(fields) => {
            let fields = fields.iter();
            Value::Object(
                fields
                    .map(|(key, value)| (key.clone(), without_references(value)))
                    .collect(),
            )
        }
        Value::Array(items) => items.iter().map(without_references).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use feedline_schemas::config::load;

    use super::*;

    fn source(lines: &str) -> SourceConfig {
        let text = format!(
            "[pipeline]\nname = 'p'\n[[source]]\nname = 's'\ntype = 'rest'\nurl = 'http://h/'\n{lines}"
        );
        load("p.toml", &text, &[]).unwrap().config.source.remove(0)
    }

    /// Checks that a source with these `lines` is refused at `key`, with a message that has `part`.
    fn refused(lines: &str, key: &str, part: &str) {
        let error = check(&source(lines)).unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("`{key}`: ")) && error.contains(part),
            "{lines}: {error}"
        );
    }

    #[test]
    fn a_request_that_contradicts_or_does_nothing_names_its_key() {
        let post = |rest: &str| format!("method = 'POST'\n{rest}");
        refused("body.json = {}", "body", "set `method = \"POST\"`");
        refused(
            &post("body.json = {}\nbody.form = {}"),
            "body",
            "has `json` and `form`",
        );
        refused(
            &post("body = {}"),
            "body",
            "give `json`, `form`, `xml` or `text`",
        );
        refused(
            &post("body.text = '<a/>'"),
            "body.content_type",
            "say what `body.text` is",
        );
        refused(
            &post("headers.Content-Type = 'a/b'\nbody = { json = {}, content_type = 'a/c' }"),
            "body.content_type",
            "`headers.Content-Type` too",
        );
        refused(
            &post("params_in = 'body'"),
            "params_in",
            "no table in `body.json`",
        );
        refused(
            &post("params_in = 'body'\nbody.json = []"),
            "params_in",
            "no table in `body.json`",
        );
        refused("idempotent = true", "idempotent", "always repeated");
        refused(
            &post("refresh = 'if_changed'"),
            "refresh",
            "the source sends POST",
        );
        refused(
            "method = 'PUT'\nrefresh = 'if_changed'",
            "refresh",
            "the source sends PUT",
        );
        refused(
            &post("pagination = { type = 'link', next_origins = ['http://i'] }"),
            "pagination.next_origins",
            "not sent to another origin",
        );
    }

    #[test]
    fn a_query_that_contradicts_or_does_nothing_names_its_key() {
        let query = |rest: &str| {
            format!(
                "graphql.query = 'query($after: String) {{ a(after: $after) {{ nodes {{ b }} pageInfo {{ endCursor hasNextPage }} }} }}'\n{rest}"
            )
        };
        refused(
            "graphql.query = 'mutation { a }'",
            "graphql.query",
            "has a `mutation`",
        );
        refused("graphql.query = '{ a'", "graphql.query", "not closed");
        refused(
            &query("body.json = {}\nmethod = 'POST'"),
            "body",
            "a body of its own",
        );
        refused(&query("method = 'PUT'"), "method", "must be `POST`");
        refused(&query("params_in = 'query'"), "params_in", "are variables");
        refused(&query("idempotent = true"), "idempotent", "always repeated");
        refused(
            &query("error_path = 'e'"),
            "error_path",
            "always read at `errors`",
        );
        refused(
            &query("refresh = 'if_changed'"),
            "refresh",
            "the source sends POST",
        );
        refused(
            &query("graphql.variables.x = 1"),
            "graphql.variables.x",
            "does not use `$x`",
        );
        refused(
            &query("graphql.connection = 'a'\nrecords = 'r'"),
            "records",
            "is set by `graphql.connection`",
        );
        refused(
            &query("graphql.connection = 'a'\npagination.type = 'link'"),
            "pagination.type",
            "is set by `graphql.connection`",
        );
        refused(
            &query("graphql.cursor = 'c'"),
            "graphql.cursor",
            "is for `graphql.connection`",
        );
        refused(
            "graphql = { query = '{ a { nodes } }', connection = 'a' }",
            "graphql.query",
            "does not request `pageInfo`",
        );
    }

    #[test]
    fn settings_of_another_format_of_responses_name_their_key() {
        let refused = |lines: &str, key: &str, part: &str| {
            let error = check(&source(lines)).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("`{key}`: ")) && error.contains(part),
                "{lines}: {error}"
            );
        };
        let of = |format: &str, more: &str| format!("response.format = '{format}'\n{more}");
        refused(&of("xml", ""), "records", "such as `feed.entry`");
        refused(
            &of("xml", "records = 'a.b'\ncsv.delimiter = ';'"),
            "csv",
            "which do nothing in XML",
        );
        refused(&of("csv", "records = 'a'"), "records", "has none");
        refused(&of("csv", "error_path = 'a'"), "error_path", "has none");
        refused(
            &of("ndjson", "pagination.total_path = 'a'"),
            "pagination.total_path",
            "`pagination.total_header`",
        );
        refused(
            &of("csv", "pagination.type = 'cursor'"),
            "pagination.cursor_path",
            "has none",
        );
        refused(
            &of("json", "csv.delimiter = ';'"),
            "csv",
            "does nothing in JSON",
        );
        refused(
            &of("csv", "response.lists = ['a']"),
            "response.lists",
            "is for XML",
        );
        refused("response.lists = ['']", "response.lists", "the empty path");
        refused(
            &of("csv", "response.single_record = true"),
            "response.single_record",
            "is for JSON",
        );
        refused(
            &of("xml", "records = 'a'\ngraphql.query = '{ a }'"),
            "response.format",
            "whose responses are JSON",
        );
        refused(
            "method = 'POST'\nbody.xml = '<a>{b}'",
            "body.xml",
            "ends early",
        );
        refused(
            "method = 'POST'\nbody.xml = \"<?xml version='1.0' encoding='latin1'?><a/>\"",
            "body.xml",
            "sent in UTF-8",
        );
    }

    #[test]
    fn the_hash_of_responses_covers_their_format_and_nothing_else() {
        let hash = |lines: &str| hashed_response(&source(lines));
        assert!(hash("").is_empty());
        assert!(hash("response.format = 'auto'\nmethod = 'POST'").is_empty());
        assert_ne!(hash("response.format = 'csv'"), hash("csv.delimiter = ';'"));
        assert_ne!(
            hash("response.lists = ['a']"),
            hash("response.lists = ['b']")
        );
    }

    #[test]
    fn what_fits_is_accepted() {
        for lines in [
            "",
            "response.format = 'xml'\nrecords = 'a.b'\ncsv.decimal_separator = ','",
            "response.format = 'csv'\ncsv.delimiter = ';'\npagination.type = 'link'",
            "method = 'POST'\nbody.xml = '<a b=\"{c}\">{d}</a>'",
            "method = 'POST'",
            "method = 'POST'\nbody = { json = {} }\nparams_in = 'body'\nidempotent = true",
            "method = 'PUT'\nbody = { form = { a = 'b' } }\nparams_in = 'query'",
            "method = 'POST'\nheaders.content-type = 'text/xml'\nbody.text = '<a/>'",
            "method = 'POST'\ngraphql.query = '{ a }'",
        ] {
            check(&source(lines)).unwrap();
        }
    }

    #[test]
    fn the_hash_covers_the_request_but_no_reference_to_a_secret() {
        let hash = |lines: &str| hashed(&source(lines));
        assert!(hash("").is_empty());
        assert!(hash("idempotent = true").is_empty());
        let one = "method = 'POST'\nbody.json = { a = 1, key = { env = 'A' } }";
        assert_ne!(
            hash(one),
            hash("method = 'POST'\nbody.json = { a = 2, key = { env = 'A' } }")
        );
        assert_eq!(
            hash(one),
            hash("method = 'POST'\nbody.json = { a = 1, key = { file = 'B' } }")
        );
        assert_ne!(
            hash("graphql.query = '{ a }'"),
            hash("graphql.query = '{ b }'")
        );
    }
}
