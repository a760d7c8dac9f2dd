//! Format of responses: JSON, NDJSON, XML or CSV.

use std::{collections::BTreeSet, io::Cursor, sync::Arc};

use feedline_schemas::{
    config::{FileFormat, JsonConfig, ResponseFormat, SourceConfig},
    record::{join_path, split_path},
};

use crate::{
    csv_dialect, download,
    error::Error,
    file_format::{self, Kind, Packing},
    notices::Notices,
    rows::{self, Rows},
    source::Record,
    value::{Value, shorten},
    warnings::WarningChanges,
    xml::{self, XmlRules},
};

/// Most elements that are followed as lists of some records only.
const MOST_LISTS: usize = 64;
/// Most characters of names in a message.
const SHOWN: usize = 200;

/// Reads bodies in the formats of a source.
#[derive(Clone, Debug)]
pub(super) struct Response {
    format: ResponseFormat,
    /// Keys of the elements that are lists, below a record.
    lists: Arc<[Vec<String>]>,
    /// Texts that are read as missing.
    null_values: Arc<[String]>,
    /// Layout of a table.
    table: Arc<rows::Layout>,
}

/// Form of a page, which its position does not depend on.
#[derive(Debug, PartialEq)]
pub(super) struct Form {
    pub(super) format: ResponseFormat,
    /// CSV: names of the columns.
    header: Vec<String>,
    /// XML: names in the place of the records, if it has none of them.
    absent: Option<String>,
    /// XML: paths of elements that are lists in some records.
    lists: Vec<String>,
    /// XML: paths of those that are no lists in others.
    mixed: Vec<String>,
}

impl Form {
    pub(super) fn of(format: ResponseFormat) -> Self {
        Self {
            format,
            header: Vec::new(),
            absent: None,
            lists: Vec::new(),
            mixed: Vec::new(),
        }
    }

    /// The form of a page of XML with these records.
    pub(super) fn of_xml(records: &[Value], absent: Option<String>) -> Self {
        let mut lists = BTreeSet::new();
        for record in records {
            find_lists(record, "", &mut lists);
        }
        let lists: Vec<String> = lists.into_iter().collect();
        let is_mixed = |path: &&String| records.iter().any(|record| is_single(record, path));
        Self {
            mixed: lists.iter().filter(is_mixed).cloned().collect(),
            lists,
            absent,
            ..Self::of(ResponseFormat::Xml)
        }
    }
}

/// Records of a table or of lines.
pub(super) struct TablePage {
    pub(super) records: Vec<Record>,
    pub(super) form: Form,
}

impl Response {
    /// # Errors
    /// [`Error::Config`] for settings of CSV that cannot be used.
    pub(super) fn new(config: &SourceConfig, notices: &Notices) -> Result<Self, Error> {
        csv_dialect::check(&config.csv)?;
        let null_values = config.csv.null_values.iter();
        let lists = config.response.lists.iter();
        Ok(Self {
            format: match config.graphql {
                Some(_) => ResponseFormat::Json,
                None => config.response.format,
            },
            lists: lists.map(|path| split_path(path)).collect(),
            null_values: null_values.map(|value| value.trim().to_owned()).collect(),
            table: Arc::new(rows::Layout {
                kind: Kind::Csv { delimiter: b',' },
                packing: Packing::Plain,
                name: config.name.to_string(),
                notices: notices.clone(),
                format: FileFormat::Csv,
                csv: config.csv.clone(),
                delimiter: file_format::delimiter(config)?,
                records: String::new(),
                json: config.contract.json.clone(),
                text: config.text.clone(),
                archive: config.archive.clone(),
            }),
        })
    }

    /// The value of `Accept` that suits the format.
    pub(super) fn accept(config: &SourceConfig) -> &'static str {
        match config.response.format {
            ResponseFormat::Auto | ResponseFormat::Json => "application/json",
            ResponseFormat::Ndjson => "application/x-ndjson, application/json;q=0.9, */*;q=0.1",
            ResponseFormat::Xml => "application/xml, text/xml;q=0.9, */*;q=0.1",
            ResponseFormat::Csv => "text/csv, */*;q=0.1",
        }
    }

    /// Bounds of a body.
    pub(super) fn bounds(&self) -> &JsonConfig {
        &self.table.json
    }

    /// Format of a body with this `Content-Type`. `has_paths` is true if the source names paths in
    /// a document.
    pub(super) fn format_of(
        &self,
        body: &[u8],
        content_type: &str,
        has_paths: bool,
    ) -> ResponseFormat {
        if !self.format.is_auto() {
            return self.format;
        }
        let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
        let first = body.trim_ascii_start().first();
        let is_document = matches!(first, Some(b'{' | b'['));
        match download::format_of(content_type) {
            Some(FileFormat::Csv) if !is_document => ResponseFormat::Csv,
            Some(FileFormat::Ndjson) if first != Some(&b'[') && !has_paths => {
                ResponseFormat::Ndjson
            }
            None if !is_document && is_xml(content_type) => ResponseFormat::Xml,
            _ => ResponseFormat::Json,
        }
    }

    /// Reads a document of XML.
    ///
    /// # Errors
    /// The reason why it is unreadable.
    pub(super) fn xml(&self, body: &[u8], content_type: &str) -> Result<Value, String> {
        let rules = XmlRules {
            bounds: self.bounds(),
            null_values: &self.null_values,
            notices: &self.table.notices,
        };
        xml::parse(body, content_type, rules)
    }

    /// Makes lists of the elements of a record that are always lists.
    pub(super) fn make_lists(&self, record: &mut Value) {
        for keys in self.lists.iter() {
            make_list(record, keys);
        }
    }

    /// Reads a body of CSV or NDJSON.
    ///
    /// # Errors
    /// The reason why it is unreadable.
    pub(super) fn table(
        &self,
        body: Vec<u8>,
        content_type: &str,
        format: ResponseFormat,
    ) -> Result<TablePage, String> {
        refuse_markup(&body, format)?;
        let is_ended = body.is_empty() || body.ends_with(b"\n") || body.ends_with(b"\r");
        let mut layout = (*self.table).clone();
        layout.kind = match format {
            ResponseFormat::Ndjson => Kind::Ndjson,
            _ => Kind::Csv {
                delimiter: usual_delimiter(content_type),
            },
        };
        let body = Box::new(Cursor::new(body));
        let (header, mut rows): (Vec<String>, Box<dyn Rows>) = match format {
            ResponseFormat::Ndjson => (Vec::new(), rows::of_reader(body, &layout)?),
            _ => rows::table(body, &layout)?,
        };
        let mut records = Vec::new();
        let most = self.bounds().max_items;
        while let Some(record) = rows.next()? {
            if records.len() as u64 == most.get() {
                return Err(format!(
                    "it has more than `contract.json.max_items` = {most} records"
                ));
            }
            records.push(record);
        }
        if let (Some(Record::Bad { detail, .. }), false) = (records.last(), is_ended) {
            return Err(format!("it ends in the middle of a record: {detail}"));
        }
        let is_bad = |record: &Record| matches!(record, Record::Bad { .. });
        if format == ResponseFormat::Ndjson
            && let Some(Record::Bad { detail, .. }) = records.first()
            && records.iter().all(is_bad)
        {
            return Err(format!("no line of it is a JSON object: {detail}"));
        }
        Ok(TablePage {
            records,
            form: Form {
                header,
                ..Form::of(format)
            },
        })
    }

    /// Reads a first body as a document for a suggestion, in which cells are texts.
    ///
    /// # Errors
    /// The reason why it is unreadable.
    pub(super) fn document(&self, body: &[u8], content_type: &str) -> Result<Value, String> {
        match self.format_of(body, content_type, false) {
            ResponseFormat::Xml => self.xml(body, content_type).map(as_texts),
            format @ (ResponseFormat::Csv | ResponseFormat::Ndjson) => {
                let table = self.table(body.to_vec(), content_type, format)?;
                let records = table.records.into_iter().filter_map(Record::into_value);
                Ok(Value::List(records.map(as_texts).collect()))
            }
            ResponseFormat::Auto | ResponseFormat::Json => {
                super::layout::document(body, self.bounds())
            }
        }
    }
}

/// Forms of the pages that this process has read.
#[derive(Debug, Default)]
pub(super) struct Forms {
    format: Option<ResponseFormat>,
    header: Vec<String>,
    /// XML: paths that are lists in some records.
    lists: BTreeSet<String>,
    /// True if records have landed, or came before.
    has_records: bool,
}

/// Page whose form is noted.
#[derive(Clone, Copy, Debug)]
pub(super) struct NotedPage {
    /// Number of its records.
    pub(super) records: usize,
    /// True if the configuration leaves the format open.
    pub(super) is_auto: bool,
}

impl Forms {
    /// Notes that records of the source have landed.
    pub(super) fn note_landed(&mut self) {
        self.has_records = true;
    }

    /// Notes the form of the next page, with its warnings.
    ///
    /// # Errors
    /// A message about a page that is unlike those before.
    pub(super) fn note(
        &mut self,
        form: Form,
        page: NotedPage,
        records_path: &str,
        warnings: &mut WarningChanges,
    ) -> Result<(), String> {
        self.check(&form, page)?;
        if page.is_auto
            && let Some(code) = code_of(form.format)
            && !warnings.has(code)
        {
            let name = form.format.as_str();
            let message = format!(
                "pages are read as {}, which their `Content-Type` names; set `response.format` to `{name}` to keep it, or to another format",
                shown(form.format)
            );
            warnings.raise(code, "response.format", message);
        }
        if let (Some(found), false) = (&form.absent, self.has_records) {
            let message = format!(
                "no page has an element at `records` = `{records_path}` yet; in its place are {found}; check `records`"
            );
            warnings.raise("no_xml_records", "records", message);
        }
        if page.records > 0 {
            self.has_records = true;
            warnings.lift("no_xml_records");
        }
        let is_new = |path: &&String| self.lists.len() < MOST_LISTS || self.lists.contains(*path);
        let lists: Vec<String> = form.lists.iter().filter(is_new).cloned().collect();
        self.lists.extend(lists);
        if !form.mixed.is_empty() {
            let names = form.mixed.join("`, `");
            let message = format!(
                "`{}` is a list in some records only, because the element is repeated there; name it in `response.lists` to make it one in all of them",
                shorten(&names, SHOWN)
            );
            warnings.raise("xml_lists", "response.lists", message);
        }
        Ok(())
    }

    fn check(&mut self, form: &Form, page: NotedPage) -> Result<(), String> {
        match self.format {
            Some(before) if before != form.format => {
                return Err(format!(
                    "it is {}, and the pages before were {}; set `response.format`, and if it is an error page, run again",
                    shown(form.format),
                    shown(before)
                ));
            }
            _ => self.format = Some(form.format),
        }
        if form.format != ResponseFormat::Csv || form.header.is_empty() {
            return Ok(());
        }
        let is_message = |name: &String| name.contains([' ', ':', '<', '{']);
        let is_unlike = match self.header.is_empty() {
            true => {
                page.records == 0 && form.header.len() == 1 && form.header.iter().any(is_message)
            }
            false => !form.header.iter().any(|name| self.header.contains(name)),
        };
        if is_unlike {
            return Err(format!(
                "its header has no column of this table, `{}`: it may be a message; run again, or correct `csv` if it is a table",
                shorten(&form.header.join("`, `"), SHOWN)
            ));
        }
        if self.header.is_empty() {
            self.header.clone_from(&form.header);
        }
        Ok(())
    }

    /// Paths that are lists in a record of an earlier page, and none in one of `records`.
    pub(super) fn newly_single(&self, records: &[Record]) -> Vec<String> {
        let single = |path: &&String| {
            records.iter().any(|record| match record {
                Record::Value(value) => is_single(value, path),
                _ => false,
            })
        };
        self.lists.iter().filter(single).cloned().collect()
    }
}

impl Form {
    /// Adds paths that are no lists in some of its records.
    pub(super) fn mix(&mut self, paths: Vec<String>) {
        for path in paths {
            if !self.mixed.contains(&path) {
                self.mixed.push(path);
            }
        }
    }
}

/// Code of the warning about a format that was decided; none for JSON.
fn code_of(format: ResponseFormat) -> Option<&'static str> {
    match format {
        ResponseFormat::Auto | ResponseFormat::Json => None,
        ResponseFormat::Ndjson => Some("response_is_ndjson"),
        ResponseFormat::Xml => Some("response_is_xml"),
        ResponseFormat::Csv => Some("response_is_csv"),
    }
}

/// Returns true if the records of a source have cells, by its settings and the warnings in its log.
pub(crate) fn has_cells(config: &SourceConfig, has_warning: impl Fn(&str) -> bool) -> bool {
    match config.response.format {
        ResponseFormat::Xml | ResponseFormat::Csv => true,
        ResponseFormat::Json | ResponseFormat::Ndjson => false,
        ResponseFormat::Auto => has_warning("response_is_xml") || has_warning("response_is_csv"),
    }
}

fn shown(format: ResponseFormat) -> &'static str {
    match format {
        ResponseFormat::Auto | ResponseFormat::Json => "JSON",
        ResponseFormat::Ndjson => "NDJSON",
        ResponseFormat::Xml => "XML",
        ResponseFormat::Csv => "CSV",
    }
}

/// Returns true if a `Content-Type` is that of XML data. XHTML and SVG are pages and images.
fn is_xml(content_type: &str) -> bool {
    let kind = content_type.split(';').next().unwrap_or_default().trim();
    let kind = kind.to_ascii_lowercase();
    match kind.as_str() {
        "application/xml" | "text/xml" => true,
        "application/xhtml+xml" | "image/svg+xml" => false,
        other => other.ends_with("+xml"),
    }
}

fn usual_delimiter(content_type: &str) -> u8 {
    let kind = content_type.split(';').next().unwrap_or_default().trim();
    match kind.eq_ignore_ascii_case("text/tab-separated-values") {
        true => b'\t',
        false => b',',
    }
}

/// Refuses a body that is a page of HTML, or a document of XML or JSON, and no table.
fn refuse_markup(body: &[u8], format: ResponseFormat) -> Result<(), String> {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    let begin = body.trim_ascii_start();
    let begin = String::from_utf8_lossy(&begin[..begin.len().min(64)]).into_owned();
    let found = if xml::is_html(&begin) {
        "HTML"
    } else if begin.starts_with("<?xml") {
        "XML"
    } else if format == ResponseFormat::Csv && begin.starts_with('{') {
        "JSON"
    } else {
        return Ok(());
    };
    let wanted = shown(format);
    Err(format!("it is {found}, where {wanted} should be"))
}

/// Adds the paths of the lists in a value, below `above`.
fn find_lists(value: &Value, above: &str, found: &mut BTreeSet<String>) {
    let Value::Object(entries) = value else {
        return;
    };
    for (key, value) in entries {
        if !matches!(value, Value::List(_) | Value::Object(_)) {
            continue;
        }
        let dot = if above.is_empty() { "" } else { "." };
        let path = format!("{above}{dot}{}", join_path([key.as_str()]));
        match value {
            Value::List(_) if found.len() < MOST_LISTS => {
                found.insert(path);
            }
            _ => find_lists(value, &path, found),
        }
    }
}

/// Returns true if the value at `path` of a record exists and is no list.
fn is_single(record: &Value, path: &str) -> bool {
    let found = record.at(path);
    found.is_some_and(|value| !matches!(value, Value::List(_)))
}

/// Makes a list of the value at `keys`, in each item of a list on the way.
fn make_list(value: &mut Value, keys: &[String]) {
    let Some((key, below)) = keys.split_first() else {
        return;
    };
    match value {
        Value::List(items) => items.iter_mut().for_each(|item| make_list(item, keys)),
        Value::Object(entries) => {
            let Some((_, found)) = entries.iter_mut().find(|(name, _)| name == key) else {
                return;
            };
            if !below.is_empty() {
                make_list(found, below);
            } else if !matches!(found, Value::List(_)) {
                let one = std::mem::replace(found, Value::Null);
                *found = Value::List(vec![one]);
            }
        }
        _ => {}
    }
}

/// The value with each cell as a text.
fn as_texts(value: Value) -> Value {
    match value {
        Value::Cell(text) => Value::Text(text),
        Value::List(items) => Value::List(items.into_iter().map(as_texts).collect()),
        Value::Object(entries) => {
            let entries = entries.into_iter();
            Value::Object(entries.map(|(key, value)| (key, as_texts(value))).collect())
        }
        other => other,
    }
}
