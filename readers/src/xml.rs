//! XML documents as values.
//!
//! | XML | value |
//! |---|---|
//! | element with attributes or elements in it | object |
//! | attribute | its value at `@name` |
//! | element repeated in its parent | list |
//! | text beside attributes or elements | `#text` |
//! | element with text alone | that text, as a cell |
//! | empty element, or one with `xsi:nil="true"` or `i:nil="true"` | null |
//!
//! The document is an object with the root element. Prefixes of names stay as they are written, and
//! declarations of namespaces are left out. White space around text is removed. Comments and
//! processing instructions are skipped.
//!
//! Nothing outside of the document is read. A DTD of its own, which may define entities, is refused.
//! The bounds are those of JSON, with the same reasons for rejects ([`crate::json`]).

mod encoding;

use std::collections::HashMap;

use feedline_schemas::config::JsonConfig;
use quick_xml::{
    Reader,
    escape::resolve_xml_entity,
    events::{BytesRef, BytesStart, Event},
};

use crate::{
    notices::Notices,
    value::{Fault, Value},
};

/// Key of the text of an element that has attributes or elements too.
pub const TEXT: &str = "#text";
/// First character of the key of an attribute.
pub const ATTRIBUTE: char = '@';

/// Objects with more keys than this find them by hash.
const LINEAR_KEYS: usize = 16;
/// Bytes that are kept of a value that is too deep or too long.
const KEPT: usize = 1 << 20;

/// Rules for reading a document.
#[derive(Clone, Copy, Debug)]
pub struct XmlRules<'a> {
    /// Bounds of its values.
    pub bounds: &'a JsonConfig,
    /// Collects the decisions about it.
    pub notices: &'a Notices,
}

/// Reads a document that came with this `Content-Type`.
///
/// # Errors
/// The reason why it is unreadable. A flaw in one value only becomes a [`Value::Fault`] in its
/// place.
pub fn parse(bytes: &[u8], content_type: &str, rules: XmlRules<'_>) -> Result<Value, String> {
    if bytes.trim_ascii().is_empty() {
        return Err("it is empty, where an XML document should be".into());
    }
    let text = encoding::decode(bytes, content_type, rules.notices)?;
    let text = text.trim_start_matches('\u{feff}').trim_start();
    if is_html(text) {
        return Err("it is an HTML page, where an XML document should be".into());
    }
    let mut scan = XmlScan {
        reader: Reader::from_str(text),
        text,
        open: Vec::new(),
        root: None,
        rules,
    };
    while scan.step()? {}
    let (name, value) = scan
        .root
        .ok_or("it has no element, where an XML document should be")?;
    if name.eq_ignore_ascii_case("html") {
        return Err("it is an HTML page, where an XML document should be".into());
    }
    Ok(Value::Object(vec![(name, value)]))
}

/// Checks that `text`, which is sent in UTF-8, is a document.
///
/// # Errors
/// The reason why it is none.
pub fn check(text: &str) -> Result<(), String> {
    if let Some(label) = encoding::declared(text.trim_start().as_bytes())
        && !label.eq_ignore_ascii_case("utf-8")
    {
        return Err(format!(
            "its declaration names the encoding `{}`, and it is sent in UTF-8; write `encoding=\"UTF-8\"`",
            crate::value::shorten(&label.escape_debug().to_string(), 60)
        ));
    }
    let rules = XmlRules {
        bounds: &JsonConfig::default(),
        notices: &Notices::default(),
    };
    parse(text.as_bytes(), "", rules).map(|_| ())
}

/// Returns true if a document has `marker` elsewhere than in texts and in values of attributes. No
/// value can be escaped there.
pub fn is_outside_of_values(text: &str, marker: &str) -> bool {
    let marker = marker.as_bytes();
    let has = |bytes: &[u8]| bytes.windows(marker.len()).any(|part| part == marker);
    let mut reader = Reader::from_str(text);
    loop {
        let is_found = match reader.read_event() {
            Err(_) | Ok(Event::Eof) => return false,
            Ok(Event::Text(_)) => false,
            Ok(Event::Start(tag) | Event::Empty(tag)) => {
                let mut attributes = tag.attributes();
                attributes.with_checks(false);
                let mut keys = attributes.flatten().map(|attribute| attribute.key);
                has(tag.name().as_ref()) || keys.any(|key| has(key.as_ref()))
            }
            Ok(other) => has(&other),
        };
        if is_found {
            return true;
        }
    }
}

/// Returns true if a document begins like a page of HTML.
pub fn is_html(text: &str) -> bool {
    let begins = |start: &str| {
        let begin = text.get(..start.len());
        begin.is_some_and(|begin| begin.eq_ignore_ascii_case(start))
    };
    let ends_name = |c: char| c.is_whitespace() || matches!(c, '>' | '/');
    let is_name = || {
        let rest = text.get("<html".len()..).unwrap_or_default();
        rest.is_empty() || rest.starts_with(ends_name)
    };
    begins("<!doctype html") || begins("<html") && is_name()
}

/// Keys and values of an element.
#[derive(Debug, Default)]
struct ElementFields {
    all: Vec<(String, Value)>,
    /// Places by key, if there are many.
    places: HashMap<String, usize>,
    /// True if keys were dropped.
    is_too_wide: bool,
}

impl ElementFields {
    fn place(&mut self, name: &str) -> Option<usize> {
        if self.all.len() <= LINEAR_KEYS {
            return self.all.iter().position(|(known, _)| known == name);
        }
        if self.places.is_empty() {
            let names = self.all.iter().map(|(name, _)| name.clone());
            self.places = names.zip(0..).collect();
        }
        self.places.get(name).copied()
    }

    /// Adds a key that is not among them.
    fn push(&mut self, name: String, value: Value, bounds: &JsonConfig) {
        if self.all.len() as u64 == bounds.max_keys.get() {
            self.is_too_wide = true;
            return;
        }
        if !self.places.is_empty() {
            self.places.insert(name.clone(), self.all.len());
        }
        self.all.push((name, value));
    }

    /// Adds an element. Elements with one name become a list.
    ///
    /// # Errors
    /// A message about a list that is too long.
    fn add(&mut self, name: String, value: Value, bounds: &JsonConfig) -> Result<(), String> {
        let Some(place) = self.place(&name) else {
            self.push(name, value, bounds);
            return Ok(());
        };
        let held = &mut self.all[place].1;
        match held {
            Value::List(items) => {
                let most = bounds.max_items;
                if items.len() as u64 >= most.get() {
                    return Err(format!(
                        "it has more than `contract.json.max_items` = {most} elements `{name}` in one element"
                    ));
                }
                items.push(value);
            }
            other => {
                let first = std::mem::replace(other, Value::Null);
                *other = Value::List(vec![first, value]);
            }
        }
        Ok(())
    }
}

/// An element whose end has not come yet.
#[derive(Debug)]
struct OpenElement {
    name: String,
    fields: ElementFields,
    text: String,
    /// Offset of its beginning.
    at: u64,
}

/// A document that is being read.
struct XmlScan<'a> {
    reader: Reader<&'a [u8]>,
    text: &'a str,
    open: Vec<OpenElement>,
    root: Option<(String, Value)>,
    rules: XmlRules<'a>,
}

impl XmlScan<'_> {
    /// Reads the next part; false at the end.
    fn step(&mut self) -> Result<bool, String> {
        let at = self.reader.buffer_position();
        let event = match self.reader.read_event() {
            Ok(event) => event,
            Err(error @ quick_xml::Error::Syntax(_)) => {
                return Err(format!("it ends early or is not well-formed: {error}"));
            }
            Err(error) => return Err(not_xml(&error, self.reader.buffer_position())),
        };
        match event {
            Event::Start(start) => self.begin(&start, at)?,
            Event::Empty(start) => self.add_empty(&start, at)?,
            Event::End(_) => {
                if let Some(open) = self.open.pop() {
                    self.close(open)?;
                }
            }
            Event::Text(text) => {
                let text = text.xml10_content().map_err(|e| not_xml(&e, at))?;
                self.push_text(&text, at)?;
            }
            Event::CData(text) => {
                let text = text.xml10_content().map_err(|e| not_xml(&e, at))?;
                self.push_text(&text, at)?;
            }
            Event::GeneralRef(entity) => self.entity(&entity, at)?,
            Event::DocType(definition) => {
                let definition = definition.decode().map_err(|e| not_xml(&e, at))?;
                self.refuse_dtd(&definition)?;
            }
            Event::Comment(_) | Event::PI(_) | Event::Decl(_) => {}
            Event::Eof => {
                return match self.open.last() {
                    None => Ok(false),
                    Some(open) => Err(format!(
                        "it ends early: the element `{}` at byte {} is not closed",
                        open.name.escape_debug(),
                        open.at
                    )),
                };
            }
        }
        Ok(true)
    }

    /// An element that begins at byte `at`; one that is too deep is skipped.
    fn begin(&mut self, start: &BytesStart<'_>, at: u64) -> Result<(), String> {
        let open = self.opened(start, at)?;
        if !self.is_at_limit() {
            self.open.push(open);
            return Ok(());
        }
        let read = self.reader.read_to_end(start.name());
        read.map_err(|error| format!("it ends early or is not well-formed: {error}"))?;
        self.put_too_deep(open.name, at)
    }

    /// An empty element that begins at byte `at`.
    fn add_empty(&mut self, start: &BytesStart<'_>, at: u64) -> Result<(), String> {
        let open = self.opened(start, at)?;
        match self.is_at_limit() {
            true => self.put_too_deep(open.name, at),
            false => self.close(open),
        }
    }

    /// Returns true if no element may be in the open one.
    fn is_at_limit(&self) -> bool {
        self.open.len() >= self.rules.bounds.max_depth.get() as usize
    }

    /// Puts a fault in the place of the element `name` from byte `at` to the end of what was read.
    fn put_too_deep(&mut self, name: String, at: u64) -> Result<(), String> {
        let most = self.rules.bounds.max_depth;
        let bytes = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
        let whole = self
            .text
            .get(bytes(at)..bytes(self.reader.buffer_position()));
        let kept = beginning(whole.unwrap_or_default());
        let detail = format!("more than {most} levels of nesting at byte {at}");
        let value = fault("too_deep", detail, Value::Text(kept.to_owned()));
        self.put(name, value)
    }

    fn opened(&self, start: &BytesStart<'_>, at: u64) -> Result<OpenElement, String> {
        let name = name(start.name().as_ref(), at)?;
        if self.open.is_empty() && self.root.is_some() {
            return Err(format!(
                "it has a second root element, `{}` at byte {at}",
                name.escape_debug()
            ));
        }
        let mut fields = ElementFields::default();
        let mut attributes = start.attributes();
        // The check of the library takes quadratic time (RUSTSEC-2026-0194).
        attributes.with_checks(false);
        for attribute in attributes {
            let attribute = attribute.map_err(|e| not_xml(&e, at))?;
            let key = self::name(attribute.key.as_ref(), at)?;
            if key == "xmlns" || key.starts_with("xmlns:") {
                continue;
            }
            let decoder = self.reader.decoder();
            let value = attribute.decode_and_unescape_value(decoder);
            let value = value.map_err(|e| not_xml(&e, at))?;
            let is_nil = matches!(key.as_str(), "xsi:nil" | "i:nil");
            if is_nil && matches!(value.as_ref(), "true" | "1") {
                continue;
            }
            let key = format!("{ATTRIBUTE}{key}");
            if fields.place(&key).is_some() {
                return Err(format!(
                    "it is not well-formed XML: the element at byte {at} has the attribute `{}` twice",
                    key[1..].escape_debug()
                ));
            }
            let value = self.cell(value.into_owned(), at);
            fields.push(key, value, self.rules.bounds);
        }
        Ok(OpenElement {
            name,
            fields,
            text: String::new(),
            at,
        })
    }

    /// The value of an element whose end has come.
    fn close(&mut self, open: OpenElement) -> Result<(), String> {
        let OpenElement {
            name,
            mut fields,
            text,
            at,
        } = open;
        let text = text.trim_matches([' ', '\t', '\n', '\r']);
        if fields.all.is_empty() {
            let value = self.cell(text.to_owned(), at);
            return self.put(name, value);
        }
        let bounds = self.rules.bounds;
        if !text.is_empty() {
            let value = self.cell(text.to_owned(), at);
            fields.push(TEXT.to_owned(), value, bounds);
        }
        let mut value = Value::Object(fields.all);
        if fields.is_too_wide {
            let most = bounds.max_keys;
            let detail = format!("an element with more than {most} keys at byte {at}");
            value = fault("too_wide", detail, value);
        }
        self.put(name, value)
    }

    /// Puts a value into the open element, or makes it the root.
    fn put(&mut self, name: String, value: Value) -> Result<(), String> {
        match self.open.last_mut() {
            Some(above) => above.fields.add(name, value, self.rules.bounds),
            None => {
                self.root = Some((name, value));
                Ok(())
            }
        }
    }

    /// The value of a text in an element at byte `at`.
    fn cell(&self, mut text: String, at: u64) -> Value {
        if text.trim().is_empty() {
            return Value::Null;
        }
        let most = self.rules.bounds.max_text_bytes;
        if text.len() as u64 <= most.bytes() {
            return Value::Cell(text);
        }
        let detail = format!(
            "a text of {} bytes, more than {most}, at byte {at}",
            text.len()
        );
        text.truncate(beginning(&text).len());
        fault("text_too_long", detail, Value::Cell(text))
    }

    fn push_text(&mut self, text: &str, at: u64) -> Result<(), String> {
        match self.open.last_mut() {
            Some(open) => open.text.push_str(text),
            None if text.trim().is_empty() => {}
            None => {
                return Err(format!(
                    "it is not well-formed XML: text at byte {at} is outside of the root element"
                ));
            }
        }
        Ok(())
    }

    /// Adds the character of a reference such as `&amp;` or `&#233;`.
    fn entity(&mut self, entity: &BytesRef<'_>, at: u64) -> Result<(), String> {
        let name = entity.decode().map_err(|e| not_xml(&e, at))?;
        if let Some(known) = resolve_xml_entity(&name) {
            return self.push_text(known, at);
        }
        let found = entity.resolve_char_ref().map_err(|e| not_xml(&e, at))?;
        let Some(found) = found else {
            return Err(format!(
                "it has the entity `&{};` at byte {at}, which XML does not know without a DTD",
                crate::value::shorten(&name.escape_debug().to_string(), 60)
            ));
        };
        self.push_text(found.encode_utf8(&mut [0; 4]), at)
    }

    /// Refuses a DTD in the document. One elsewhere is not read, which is reported.
    fn refuse_dtd(&self, definition: &str) -> Result<(), String> {
        if self.root.is_some() || !self.open.is_empty() {
            return Err("it is not well-formed XML: a DTD comes after its first element".into());
        }
        if definition.contains('[') {
            return Err(
                "it has a DTD of its own (`<!DOCTYPE ... [`), which may define entities and is refused; request a form of it without one"
                    .into(),
            );
        }
        let message = "pages name a DTD, which is not read: values of attributes that are only in it are missing";
        self.rules.notices.push("xml_dtd", "", message.to_owned());
        Ok(())
    }
}

/// The name of an element or attribute.
fn name(bytes: &[u8], at: u64) -> Result<String, String> {
    match std::str::from_utf8(bytes) {
        Ok(name) if !name.is_empty() => Ok(name.to_owned()),
        _ => Err(format!(
            "it is not well-formed XML: a tag at byte {at} has no name"
        )),
    }
}

fn not_xml(error: &impl std::fmt::Display, at: u64) -> String {
    format!("it is not well-formed XML at byte {at}: {error}")
}

fn fault(reason: &'static str, detail: String, kept: Value) -> Value {
    Value::Fault(Box::new(Fault {
        reason,
        detail,
        kept,
        lost: Vec::new(),
    }))
}

/// The first bytes of `text`, up to the end of a character.
fn beginning(text: &str) -> &str {
    &text[..text.floor_char_boundary(KEPT)]
}

#[cfg(test)]
mod tests;
