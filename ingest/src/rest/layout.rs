//! Paths of records and fields in a body.

use std::{
    borrow::Cow,
    sync::{Arc, atomic::AtomicBool},
};

use feedline_readers::{
    json::{JsonRecord, NodeKind, Reader, Tape},
    notices::Notices,
    record::Record,
    value::Value,
};
use feedline_schemas::{
    config::{JsonConfig, PartialData, ResponseFormat, SourceConfig},
    ids::Hash128,
    record::{join_path, split_path},
};

use super::{
    beside_records::{beside_lists, beside_lists_of},
    graphql::{self, NODE, QueryErrors, into_node},
    json_charset::name_charset,
    markup::{self, FoundElements},
    only_page::OnlyPage,
    page_fields::{boolean, pagination_key, token, total},
    reported_errors::{
        ERRORS, error_alone, error_beside, error_text, failure_beside, is_something, repeated_keys,
        reports_error, shows_no_error,
    },
    response::{Form, Response},
};
use crate::{error::Error, pagination::Paginator};

/// Paths of records and fields in a body.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub(super) response: Response,
    /// Path of the list of records; empty for the body itself.
    records: String,
    /// Key of the configuration and path of the next cursor or URL.
    token: Option<(&'static str, String)>,
    /// Path of the number of all records.
    total: Option<String>,
    /// Path of a boolean that is true if further pages exist.
    more: Option<String>,
    /// Path of an error; empty to look for none.
    error: Option<String>,
    /// Keys of results whose values may repeat a parameter of the request.
    repeated: Vec<&'static str>,
    /// The page of a source that requests one page, so that signs of further ones are looked for.
    only_page: Option<OnlyPage>,
    /// True if a document may hold one record, which is an object.
    is_single: bool,
    /// True if the records are hashed.
    is_hashed: bool,
    /// GraphQL: action for errors beside data.
    partial_data: Option<PartialData>,
    /// GraphQL: path of a list whose items have a record at `node`, if there is none at `records`.
    edges: Option<String>,
}

/// Contents of a body.
#[derive(Debug, PartialEq)]
pub(super) struct Body {
    pub(super) records: Vec<Record>,
    pub(super) token: Option<String>,
    /// True if a value, even null, exists at the path of the next cursor or URL.
    pub(super) names_next: bool,
    /// True if null is in place of the list, and no field at `error_path`: it may be an error.
    pub(super) is_null: bool,
    pub(super) has_more: Option<bool>,
    pub(super) total: Option<u64>,
    pub(super) hash: Option<Hash128>,
    pub(super) form: Form,
    /// JSON: the document without its lists, if signs of further pages are looked for.
    pub(super) beside: Option<Value>,
    /// GraphQL: errors beside the data, which may contain secrets.
    pub(super) errors: Option<QueryErrors>,
}

/// Reason for an unusable body.
#[derive(Debug, PartialEq)]
pub(super) enum Unusable {
    /// It does not match the configuration. Nothing of it is quoted: it may echo a secret.
    Wrong(String),
    /// It is no document of JSON. Nothing of it is quoted.
    NotJson(String),
    /// It does not match the configuration, and a retry would not change it.
    Unfit(String),
    /// It is an error with this text, which may contain secrets.
    Error(String),
    /// It is no table, for this reason, and begins with this text, which may contain secrets.
    NoTable(String, String),
    /// It has no records, and at this key a value that APIs report errors with.
    Suspect(String, String),
    /// It has an empty list, and at this key a flag or word of a failed request.
    Failed(String, String),
    /// GraphQL: it has errors.
    Query(QueryErrors),
}

impl Layout {
    /// Flag that a page of XML had records, for all clones.
    pub(super) fn known_xml(&self) -> Arc<AtomicBool> {
        self.response.known_xml()
    }

    /// # Errors
    /// [`Error::Config`] for settings of CSV that cannot be used.
    pub(super) fn new(
        config: &SourceConfig,
        pages: &Paginator,
        notices: &Notices,
    ) -> Result<Self, Error> {
        Ok(Self {
            response: Response::new(config, notices)?,
            records: config.records.clone(),
            token: pages.token_path().map(|(key, path)| (key, path.to_owned())),
            total: config.pagination.common.total_path.clone(),
            more: pages.has_more_path().map(ToOwned::to_owned),
            error: match config.graphql {
                Some(_) => Some(String::new()),
                None => config.error_path.clone(),
            },
            repeated: repeated_keys(config),
            only_page: OnlyPage::of(config),
            is_single: config.response.single_record,
            is_hashed: pages.compares_records(config.dedup_window() == 0),
            partial_data: config.graphql.as_ref().map(|graphql| graphql.partial_data),
            edges: graphql::edges_path(config),
        })
    }

    /// The page that signs of further ones are looked for in.
    pub(super) const fn only_page(&self) -> Option<&OnlyPage> {
        self.only_page.as_ref()
    }

    /// Contents of a response with status 204, which has no body and so no format.
    pub(super) fn no_content(&self) -> Body {
        self.body(Vec::new(), Form::of(ResponseFormat::Auto))
    }

    /// Reads the contents of `body`, which came with this `Content-Type`.
    pub(super) fn read(
        &self,
        body: Vec<u8>,
        content_type: &str,
        reader: &mut Reader,
    ) -> Result<Body, Unusable> {
        let has_paths = self.first_path().is_some();
        match self.response.format_of(&body, content_type, has_paths) {
            ResponseFormat::Auto | ResponseFormat::Json => self.json(body, content_type, reader),
            ResponseFormat::Xml => {
                let document = self.response.xml(&body, content_type);
                self.document(document.map_err(Unusable::Wrong)?, ResponseFormat::Xml)
            }
            format @ (ResponseFormat::Csv | ResponseFormat::Ndjson) => {
                self.table(body, content_type, format)
            }
        }
    }

    /// Key and value of the first path in a document that is configured.
    fn first_path(&self) -> Option<(&'static str, &str)> {
        let records = Some(&self.records).filter(|path| !path.is_empty());
        let error = self.error.as_ref().filter(|path| !path.is_empty());
        let token = self.token.as_ref();
        records
            .map(|path| ("records", path.as_str()))
            .or_else(|| error.map(|path| ("error_path", path.as_str())))
            .or_else(|| token.map(|(key, path)| (pagination_key(key), path.as_str())))
            .or_else(|| {
                let more = self.more.as_ref()?;
                Some(("pagination.has_more_path", more.as_str()))
            })
            .or_else(|| {
                let total = self.total.as_ref()?;
                Some(("pagination.total_path", total.as_str()))
            })
    }

    /// Reads a body of CSV or NDJSON.
    fn table(
        &self,
        body: Vec<u8>,
        content_type: &str,
        format: ResponseFormat,
    ) -> Result<Body, Unusable> {
        if let Some((key, path)) = self.first_path() {
            let name = format.as_str().to_uppercase();
            return Err(Unusable::Unfit(format!(
                "it is {name}, in which `{key}` = `{path}` names nothing; remove that key, or set `response.format` to what the pages are"
            )));
        }
        let table = self.response.table(body, content_type, format)?;
        if format == ResponseFormat::Ndjson
            && self.error.is_none()
            && let Some((key, text)) = error_alone(&table.records)
        {
            return Err(Unusable::Suspect(key, text));
        }
        let is_hashed = self.is_hashed && !table.records.is_empty();
        Ok(Body {
            hash: is_hashed.then(|| hash_rows(&table.records)),
            records: table.records,
            token: None,
            names_next: false,
            is_null: false,
            has_more: None,
            total: None,
            form: table.form,
            beside: None,
            errors: None,
        })
    }

    /// Reads a document of JSON. It builds a value tree only if the fast path does not apply.
    fn json(
        &self,
        body: Vec<u8>,
        content_type: &str,
        reader: &mut Reader,
    ) -> Result<Body, Unusable> {
        match reader.read(body, self.response.bounds()) {
            Ok(tape) => {
                let tape = Arc::new(tape);
                match self.plain(&tape) {
                    Some(body) => Ok(body),
                    None => self.tree(tape.document().as_bytes(), content_type),
                }
            }
            Err(body) => self.tree(&body, content_type),
        }
    }

    /// Reads a document that has a list of records and no error.
    fn plain(&self, tape: &Arc<Tape>) -> Option<Body> {
        let at = |path: &str| tape.at_path(path);
        let value = |path: &str| at(path).map(|place| tape.value(place));
        if let Some(path) = self.error.as_ref().filter(|path| !path.is_empty())
            && value(path).as_ref().is_some_and(is_something)
        {
            return None;
        }
        if self.partial_data.is_some() && value("errors").as_ref().is_some_and(is_something) {
            return None;
        }
        let (token, names_next) = match &self.token {
            Some((key, path)) => {
                let found = value(path);
                (token(found.as_ref(), key, path).ok()?, found.is_some())
            }
            None => (None, false),
        };
        let has_more = match &self.more {
            Some(path) => boolean(value(path).as_ref(), path).ok()?,
            None => None,
        };
        let total = match &self.total {
            Some(path) => total(value(path).as_ref(), path).ok()?,
            None => None,
        };
        let list = |path: &str| at(path).filter(|place| tape.node(*place).kind == NodeKind::List);
        let edges = self.edges.as_deref();
        let (list, is_of_edges) = match list(&self.records) {
            Some(list) => (list, false),
            None => (list(edges?)?, true),
        };
        let errors = match self.error {
            None => error_beside(&self.records, value),
            Some(_) => None,
        };
        let is_failed = || self.error.is_none() && self.failure(value).is_some();
        if tape.below(list).next().is_none() && (errors.is_some() || is_failed()) {
            // It may be an error; the tree shows this.
            return None;
        }
        let record = |(i, place): (usize, u32)| {
            let node = is_of_edges.then(|| tape.field(place, NODE)).flatten();
            let place = node.unwrap_or(place);
            match tape.node(place).kind {
                NodeKind::Object => Record::Json(JsonRecord {
                    tape: Arc::clone(tape),
                    place,
                }),
                _ => Record::of(tape.value(place), || format!("record {i} of the page")),
            }
        };
        let records: Vec<Record> = tape.below(list).enumerate().map(record).collect();
        let is_hashed = self.is_hashed && !records.is_empty();
        Some(Body {
            hash: is_hashed.then(|| Hash128::of(tape.text(tape.node(list)).as_bytes())),
            records,
            token,
            names_next,
            is_null: false,
            has_more,
            total,
            form: Form::of(ResponseFormat::Json),
            beside: self.only_page.as_ref().map(|_| beside_lists_of(tape)),
            errors,
        })
    }

    fn tree(&self, body: &[u8], content_type: &str) -> Result<Body, Unusable> {
        let document = document(body, self.response.bounds());
        let mut document = document.map_err(Unusable::NotJson)?;
        name_charset(&mut document, content_type);
        self.document(document, ResponseFormat::Json)
    }

    /// Reads a document of JSON or XML.
    fn document(&self, document: Value, format: ResponseFormat) -> Result<Body, Unusable> {
        let is_xml = format == ResponseFormat::Xml;
        let at = |path: &str| match is_xml {
            true => markup::at(&document, path),
            false => document.at(path).map(Cow::Borrowed),
        };
        let errors = self.query_errors(&document)?;
        self.refuse_error(&document, is_xml)?;
        let (token, names_next) = match &self.token {
            Some((key, path)) => {
                let found = at(path);
                let token = token(found.as_deref(), key, path).map_err(Unusable::Wrong)?;
                let is_bare = is_xml && markup::has_attributes_alone(&document, path);
                (token, found.is_some() && !is_bare)
            }
            None => (None, false),
        };
        let has_more = match &self.more {
            Some(path) => {
                let found = match is_xml {
                    true => at(path).map(markup::as_boolean),
                    false => at(path),
                };
                boolean(found.as_deref(), path).map_err(Unusable::Wrong)?
            }
            None => None,
        };
        let total = match &self.total {
            Some(path) => total(at(path).as_deref(), path).map_err(Unusable::Wrong)?,
            None => None,
        };
        if is_xml {
            let FoundElements {
                mut records,
                beside,
            } = self.elements(document)?;
            let finish = |record: &mut Value| self.response.finish(record);
            records.iter_mut().for_each(finish);
            let form = self.response.xml_form(&records, beside);
            return Ok(Body {
                token,
                names_next,
                has_more,
                total,
                ..self.body(records, form)
            });
        }
        let beside = self.only_page.as_ref().map(|_| beside_lists(&document));
        let is_null = matches!(document.at(&self.records), Some(Value::Null))
            && !shows_no_error(&document, self.error.as_deref());
        let records = match document.at(&self.records) {
            Some(Value::List(_)) => take_list(document, &self.records),
            _ if self.has_edges(&document) => {
                let edges = take_list(document, self.edges.as_deref().unwrap_or_default());
                edges.into_iter().map(into_node).collect()
            }
            // Some servers write an empty list as null.
            Some(Value::Null) if !self.records.is_empty() && errors.is_none() => Vec::new(),
            Some(Value::Object(_)) if self.is_single => {
                take(document, &self.records).into_iter().collect()
            }
            other => {
                let wrong = || Unusable::Wrong(self.no_list(&document, other));
                return Err(errors.map_or_else(wrong, Unusable::Query));
            }
        };
        Ok(Body {
            token,
            names_next,
            is_null,
            has_more,
            total,
            beside,
            errors,
            ..self.body(records, Form::of(format))
        })
    }

    /// Refuses a document that is an error, or may be one.
    fn refuse_error(&self, document: &Value, is_xml: bool) -> Result<(), Unusable> {
        let path = self.error.as_ref().filter(|path| !path.is_empty());
        let error = path.and_then(|path| match is_xml {
            true => markup::error_at(document, path),
            false => document.at(path).map(Cow::Borrowed),
        });
        if let Some(error) = error
            && is_something(&error)
            && !(is_xml && markup::is_no_error(&error))
        {
            return Err(Unusable::Error(error_text(&error)));
        }
        match &self.error {
            Some(_) => Ok(()),
            None => self.suspect(document, is_xml).map_or(Ok(()), Err),
        }
    }

    /// Key and text of a failed request beside an empty list. `value` looks up a key of the page.
    fn failure(&self, value: impl Fn(&str) -> Option<Value>) -> Option<(String, String)> {
        let is_compared = |key: &str| !self.repeated.contains(&key);
        failure_beside(&self.records, |key| value(key).filter(|_| is_compared(key)))
    }

    /// A body that has only records.
    fn body(&self, records: Vec<Value>, form: Form) -> Body {
        let hash = (self.is_hashed && !records.is_empty()).then(|| hash(&records));
        let record = |(i, value)| Record::of(value, || format!("record {i} of the page"));
        Body {
            records: records.into_iter().enumerate().map(record).collect(),
            token: None,
            names_next: false,
            is_null: false,
            has_more: None,
            total: None,
            hash,
            form,
            beside: None,
            errors: None,
        }
    }

    /// The elements at `records` of a document of XML, and the names beside them.
    fn elements(&self, document: Value) -> Result<FoundElements, Unusable> {
        if self.records.is_empty() {
            let elements = markup::repeated(&document);
            let found = match elements.is_empty() {
                true => format!("it has `{}`", markup::names(&document)),
                false => format!("elements are repeated at `{}`", elements.join("`, `")),
            };
            return Err(Unusable::Unfit(format!(
                "it is XML, in which `records` must name the elements that are the records; {found}"
            )));
        }
        match markup::elements(document, &self.records) {
            Ok(found) if found.is_replaced() && self.response.may_be_other() => {
                Err(Unusable::Wrong(format!(
                    "it is XML without an element at `records` = `{}`, in whose place it has {}; set `response.format = \"xml\"` if such a page is empty",
                    self.records,
                    markup::shown_names(&found.beside)
                )))
            }
            Ok(found) => Ok(found),
            Err(document) => {
                let found = document.at(&self.records);
                Err(Unusable::Wrong(self.no_list(&document, found)))
            }
        }
    }

    /// GraphQL: errors beside data that are accepted; `None` without one.
    fn query_errors(&self, document: &Value) -> Result<Option<QueryErrors>, Unusable> {
        let Some(partial) = self.partial_data else {
            return Ok(None);
        };
        match QueryErrors::of(document) {
            Some(errors) if errors.has_data && partial == PartialData::Warn => Ok(Some(errors)),
            Some(errors) => Err(Unusable::Query(errors)),
            None => Ok(None),
        }
    }

    fn has_edges(&self, document: &Value) -> bool {
        let edges = self.edges.as_ref().and_then(|path| document.at(path));
        matches!(edges, Some(Value::List(_)))
    }

    /// Something that APIs report errors with, in a document without records.
    fn suspect(&self, document: &Value, is_xml: bool) -> Option<Unusable> {
        let shown = |(key, error): (String, &Value)| Unusable::Suspect(key, error_text(error));
        let list = document.at(&self.records);
        if is_xml {
            let has_records = !self.records.is_empty() && list.is_some();
            return markup::error(document).filter(|_| !has_records).map(shown);
        }
        let is_empty = match list {
            Some(Value::List(items)) if !items.is_empty() => return None,
            Some(Value::List(_) | Value::Null) => true,
            _ => false,
        };
        let errors = ERRORS.iter().filter(|key| **key != self.records);
        let mut found = errors.filter_map(|key| Some(((*key).to_owned(), document.at(key)?)));
        let error = found.find(|(_, error)| reports_error(error)).map(shown);
        let failure = || self.failure(|key| document.at(key).cloned());
        let failed = |(key, text)| Unusable::Failed(key, text);
        error.or_else(|| failure().filter(|_| is_empty).map(failed))
    }

    fn no_list(&self, document: &Value, found: Option<&Value>) -> String {
        let single = match found {
            Some(Value::Object(_)) => {
                "; if this object is one record, set `response.single_record = true`"
            }
            _ => "",
        };
        let found = found.map_or("nothing", Value::kind);
        let place = if self.records.is_empty() {
            "as its body".into()
        } else {
            format!("at `{}`", self.records)
        };
        let mut lists = Vec::new();
        find_lists(document, &mut Vec::new(), &mut lists);
        let hint = match (lists.is_empty(), document) {
            (false, _) => format!(
                "it has lists at `{}`, set `records` to the right one",
                lists.join("`, `")
            ),
            (true, Value::Object(entries)) => {
                let keys: Vec<&str> = entries
                    .iter()
                    .take(10)
                    .map(|(key, _)| key.as_str())
                    .collect();
                format!(
                    "its keys are `{}`; it may be an error document, or `records` names the wrong place",
                    keys.join("`, `")
                )
            }
            (true, _) => "it may be an error document, or `records` names the wrong place".into(),
        };
        format!("it has {found} {place} where the list of records should be; {hint}{single}")
    }
}

/// Parses `body` as a document.
///
/// # Errors
/// The reason why it is invalid. Nothing of the body is quoted.
pub(super) fn document(body: &[u8], bounds: &JsonConfig) -> Result<Value, String> {
    Value::parse_within(body, bounds, 0)
        .map_err(|reason| format!("it is not valid JSON: {reason}{}", markup::kind_of(body)))
}

/// Hash of the rows of a table; that of a bad one is of its text.
fn hash_rows(records: &[Record]) -> Hash128 {
    let text = |record: &Record| match record {
        Record::Bad { raw, .. } => raw.clone(),
        record => record.canonical(),
    };
    let texts: Vec<String> = records.iter().map(text).collect();
    Hash128::of(texts.join("\n").as_bytes())
}

fn hash(records: &[Value]) -> Hash128 {
    let texts: Vec<String> = records.iter().map(Value::canonical).collect();
    Hash128::of(texts.join("\n").as_bytes())
}

/// Moves the existing list at `path` out of `document` without copying it.
fn take_list(document: Value, path: &str) -> Vec<Value> {
    match take(document, path) {
        Some(Value::List(items)) => items,
        _ => Vec::new(),
    }
}

/// Moves the value at `path` out of `document` without copying it.
fn take(document: Value, path: &str) -> Option<Value> {
    let keys = if path.is_empty() {
        Vec::new()
    } else {
        split_path(path)
    };
    keys.iter().try_fold(document, |at, key| match at {
        Value::Object(entries) => entries
            .into_iter()
            .find(|(k, _)| k == key)
            .map(|(_, value)| value),
        _ => None,
    })
}

/// Paths of the first lists in `value`, at most five, down to four levels: for messages.
fn find_lists<'a>(value: &'a Value, path: &mut Vec<&'a str>, found: &mut Vec<String>) {
    match value {
        Value::List(_) if found.len() < 5 => found.push(join_path(path.iter().copied())),
        Value::Object(entries) if path.len() < 4 => {
            for (key, value) in entries {
                path.push(key);
                find_lists(value, path, found);
                path.pop();
            }
        }
        _ => {}
    }
}
