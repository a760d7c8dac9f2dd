//! Format of responses: JSON, NDJSON, XML or CSV.

use std::{
    collections::BTreeSet,
    io::Cursor,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use feedline_readers::{
    charset, csv_dialect,
    file_format::{self, Kind, Packing},
    notices::Notices,
    record::Record,
    rows::{self, Rows},
    value::Value,
    xml::{self, XmlRules},
};
use feedline_schemas::{
    config::{FileFormat, JsonConfig, ResponseFormat, SourceConfig},
    count::counted,
    record::split_path,
};

use super::{
    layout::Unusable,
    markup::{self, MOST_NAMES, shown_names},
    xml_paths::{XmlPaths, insert, shown_paths},
};
use crate::{error::Error, warnings::WarningChanges};

/// Code of the warning about elements that are lists in some records only.
const LISTS: &str = "xml_lists";

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
    /// True once a page of XML had records.
    is_known_xml: Arc<AtomicBool>,
}

/// Form of a page, which its position does not depend on.
#[derive(Debug, PartialEq)]
pub(super) struct Form {
    pub(super) format: ResponseFormat,
    /// CSV: names of the columns.
    header: Vec<String>,
    /// XML: names beside the records, or in their place.
    beside: Vec<String>,
    /// XML: elements by their form in some records.
    elements: XmlPaths,
    /// XML: those of them that have another form in others.
    mixed: XmlPaths,
    /// XML: true if the configuration names lists.
    has_lists: bool,
}

impl Form {
    pub(super) fn of(format: ResponseFormat) -> Self {
        Self {
            format,
            header: Vec::new(),
            beside: Vec::new(),
            elements: XmlPaths::default(),
            mixed: XmlPaths::default(),
            has_lists: false,
        }
    }

    /// Adds paths that have another form in some of its records.
    pub(super) fn mix(&mut self, paths: XmlPaths) {
        self.mixed.add(&paths);
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
                known_columns: Vec::new(),
                sample_bytes: None,
                records: String::new(),
                json: config.contract.json.clone(),
                text: config.text.clone(),
                archive: config.archive.clone(),
            }),
            is_known_xml: Arc::default(),
        })
    }

    /// Decisions about the bodies.
    pub(super) fn notices(&self) -> &Notices {
        &self.table.notices
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

    /// Returns true if neither the configuration nor a page with records says that pages are XML.
    pub(super) fn may_be_other(&self) -> bool {
        self.format.is_auto() && !self.is_known_xml.load(Ordering::Relaxed)
    }

    /// Flag that a page of XML had records, for all clones.
    pub(super) fn known_xml(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_known_xml)
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
        match file_format::of_media_type(content_type) {
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
            notices: &self.table.notices,
        };
        xml::parse(body, content_type, rules)
    }

    /// Makes nulls of the null values of a record of XML, and lists of the elements that are always
    /// lists.
    pub(super) fn finish(&self, record: &mut Value) {
        nullify(record, &self.null_values);
        for keys in self.lists.iter() {
            make_list(record, keys);
        }
    }

    /// The form of a page of XML with these records and names beside them.
    pub(super) fn xml_form(&self, records: &[Value], beside: Vec<String>) -> Form {
        let mut elements = XmlPaths::default();
        for record in records {
            elements.find(record, "");
        }
        Form {
            mixed: elements.mixed_in(records.iter()),
            elements,
            beside,
            has_lists: !self.lists.is_empty(),
            ..Form::of(ResponseFormat::Xml)
        }
    }

    /// Reads a body of CSV or NDJSON.
    ///
    /// # Errors
    /// [`Unusable::NoTable`] for markup, [`Unusable::Wrong`] for another unreadable body.
    pub(super) fn table(
        &self,
        body: Vec<u8>,
        content_type: &str,
        format: ResponseFormat,
    ) -> Result<TablePage, Unusable> {
        let refused = markup::refuse(&body, format, shown(format));
        refused.map_err(|reason| Unusable::NoTable(reason, markup::start_of(&body)))?;
        let table = self.rows_of(body, content_type, format);
        table.map_err(Unusable::Wrong)
    }

    fn rows_of(
        &self,
        body: Vec<u8>,
        content_type: &str,
        format: ResponseFormat,
    ) -> Result<TablePage, String> {
        let is_ended = body.is_empty() || body.ends_with(b"\n") || body.ends_with(b"\r");
        let mut layout = (*self.table).clone();
        layout.kind = match format {
            ResponseFormat::Ndjson => Kind::Ndjson,
            _ => Kind::Csv {
                delimiter: usual_delimiter(content_type),
            },
        };
        if format != ResponseFormat::Ndjson && layout.csv.encoding.is_none() {
            layout.csv.encoding =
                charset::table_encoding(&body, content_type, &layout.name, &layout.notices);
        }
        let body = Box::new(Cursor::new(body));
        let (header, mut rows): (Vec<String>, Box<dyn Rows>) = match format {
            ResponseFormat::Ndjson => (Vec::new(), rows::one_pass::of_reader(body, &layout)?),
            _ => rows::one_pass::table(body, &layout)?,
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
                markup::refuse(body, format, shown(format))?;
                let table = self.rows_of(body.to_vec(), content_type, format)?;
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
    /// XML: elements by their form in some records.
    elements: XmlPaths,
    /// XML: those of them that have another form in others.
    mixed: XmlPaths,
    /// XML: names beside the records of pages; `None` before a page with records.
    beside: Option<BTreeSet<String>>,
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
        let is_first = self.format.is_none();
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
        if form.format == ResponseFormat::Xml {
            if is_first && form.has_lists {
                // A page that is still mixed raises it again.
                warnings.lift(LISTS);
            }
            self.note_names(&form, page, records_path, warnings);
            self.note_elements(&form, warnings);
        }
        if page.records > 0 {
            self.has_records = true;
            warnings.lift("no_xml_records");
        }
        Ok(())
    }

    /// Notes the names beside the records of a page of XML. Warns of a page without records if no
    /// page had one, or if it has names that no page with records had.
    fn note_names(
        &mut self,
        form: &Form,
        page: NotedPage,
        records_path: &str,
        warnings: &mut WarningChanges,
    ) {
        if page.records > 0 {
            let known = self.beside.get_or_insert_with(BTreeSet::new);
            form.beside.iter().for_each(|name| insert(known, name));
            return;
        }
        if !self.has_records {
            let found = shown_names(&form.beside);
            let message = format!(
                "no page has an element at `records` = `{records_path}` yet; in its place: {found}; check `records`"
            );
            warnings.raise("no_xml_records", "records", message);
        }
        // Beyond the bound some names may be unknown.
        let known = self.beside.as_ref();
        let Some(known) = known.filter(|known| known.len() < MOST_NAMES) else {
            return;
        };
        let names = form.beside.iter().filter(|name| !known.contains(*name));
        let names: Vec<String> = names.cloned().collect();
        if !names.is_empty() {
            let names = shown_names(&names);
            let message = format!(
                "a page without records has {names} in their place, which no page with records had: it may be a message and not the end; check `records` and `error_path`"
            );
            warnings.raise("xml_end", "records", message);
        }
    }

    /// Notes the elements of a page of XML. Warns of those that have two forms.
    fn note_elements(&mut self, form: &Form, warnings: &mut WarningChanges) {
        self.elements.add(&form.elements);
        self.mixed.add(&form.mixed);
        if !form.mixed.lists.is_empty() {
            let names = shown_paths(&self.mixed.lists);
            let message = format!(
                "{names} is a list in some records only, because the element is repeated there; name it in `response.lists` to make it one in all of them"
            );
            warnings.raise(LISTS, "response.lists", message);
        }
        if !form.mixed.texts.is_empty() {
            let names = shown_paths(&self.mixed.texts);
            let message = format!(
                "{names} is text in some records and has its text at `#text` in others, because the element has attributes or elements there: the values land in two columns"
            );
            warnings.raise("xml_texts", "records", message);
        }
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
        if let Some(reason) = self.unlike_table(&form.header, page) {
            return Err(reason);
        }
        if self.header.is_empty() {
            self.header.clone_from(&form.header);
        }
        Ok(())
    }

    /// The reason why a table with this header is unlike those before, or a message.
    fn unlike_table(&self, header: &[String], page: NotedPage) -> Option<String> {
        const ADVICE: &str = "it may be a message; run again, or correct `csv` if it is a table";
        let is_message = |name: &String| name.contains([' ', ':', '<', '{']);
        let is_unlike = match self.header.is_empty() {
            true => {
                let is_message =
                    |name: &String| name.starts_with('<') || page.records == 0 && is_message(name);
                header.len() == 1 && header.iter().any(is_message)
            }
            false => !header.iter().any(|name| self.header.contains(name)),
        };
        if is_unlike {
            let header = shown_names(header);
            return Some(format!(
                "its header has no column of this table, {header}: {ADVICE}"
            ));
        }
        let has_names =
            self.header.is_empty() || !is_numbered(header) || !is_numbered(&self.header);
        (!has_names && header.len() != self.header.len()).then(|| {
            format!(
                "it has {} a row, and the pages before have {}: {ADVICE}",
                counted(header.len() as u64, "field"),
                self.header.len()
            )
        })
    }

    /// Paths that have one form in a record of an earlier page, and another in one of `records`.
    pub(super) fn newly_single(&self, records: &[Record]) -> XmlPaths {
        let values = records.iter().filter_map(|record| match record {
            Record::Value(value) => Some(value),
            _ => None,
        });
        self.elements.mixed_in(values)
    }
}

/// Returns true for the names of columns without a header.
fn is_numbered(header: &[String]) -> bool {
    let mut names = header.iter().zip(1..);
    names.all(|(name, number)| *name == format!("column_{number}"))
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

/// Makes nulls of the texts that are among `null_values`.
fn nullify(value: &mut Value, null_values: &[String]) {
    match value {
        Value::Cell(text) if null_values.iter().any(|null| null == text.trim()) => {
            *value = Value::Null;
        }
        Value::List(items) => items.iter_mut().for_each(|item| nullify(item, null_values)),
        Value::Object(entries) => entries
            .iter_mut()
            .for_each(|(_, value)| nullify(value, null_values)),
        _ => {}
    }
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
