//! A strict JSON parser for foreign bytes.
//!
//! It takes RFC 8259 JSON in UTF-8, with an optional byte order mark, or in UTF-16, detected by its
//! mark or its first bytes. It never rounds a number that has no 64-bit value, and keeps the text of
//! a float that has more digits, or is written in another way. A flaw in one value
//! of a document becomes a [`Value::Fault`] in its place, so a page still yields all its other
//! records:
//!
//! | reason | flaw | value kept |
//! |---|---|---|
//! | `duplicate_key` | a key twice in one object | all values |
//! | `lone_surrogate` | half of a pair of escapes, `\ud800` alone | the string with U+FFFD in its place |
//! | `invalid_utf8` | bytes in a string that are not UTF-8 | the string with U+FFFD in their place |
//! | `text_too_long` | a string beyond `contract.json.max_text_bytes` | its beginning |
//! | `too_deep` | nesting beyond `contract.json.max_depth` | its beginning as a string |
//! | `too_wide` | an object beyond `contract.json.max_keys` | its first keys |
//!
//! Any other syntax error rejects the document.

pub(crate) mod encoding;
mod keys;
mod leaves;
mod number;
mod paths;
mod record;
mod tape;
mod text;
mod write;

use std::collections::HashMap;

use feedline_schemas::{config::JsonConfig, number::is_number};

pub use self::{
    keys::Keys,
    leaves::{Leaf, NoCell, Walk},
    number::{WrittenFloat, number, written_number},
    paths::WantedPaths,
    record::JsonRecord,
    tape::{NodeKind, Reader, Tape},
    write::write_text,
};
use crate::value::{Fault, Value};

/// Objects with more keys than this have them compared through a hash set.
const LINEAR_KEYS: usize = 16;

/// Parses one document. `line` is its line number in a file of lines, otherwise 0.
///
/// # Errors
/// The problem and its byte offset. If the text was repaired or decoded from UTF-16, the offset is
/// that in the resulting text.
pub fn parse(bytes: &[u8], bounds: &JsonConfig, line: u64) -> Result<Value, String> {
    let mended: &[usize] = &[];
    match std::str::from_utf8(bytes) {
        Ok(text) if !encoding::is_utf16(bytes) => document(text, mended, bounds, line),
        _ => {
            let (text, mended) = encoding::decode(bytes)?;
            document(&text, &mended, bounds, line)
        }
    }
}

fn document(text: &str, mended: &[usize], bounds: &JsonConfig, line: u64) -> Result<Value, String> {
    let mut parser = Parser {
        line,
        text,
        at: if text.starts_with('\u{feff}') { 3 } else { 0 },
        depth: 0,
        mended,
        flaw: None,
        bounds,
    };
    let value = parser.value()?;
    parser.skip_space();
    match parser.peek() {
        None => Ok(value),
        Some(_) => Err(parser.wrong("something after the end of the document")),
    }
}

/// Bytes that are kept of a value that is too deep or too long.
const KEPT: usize = 1 << 20;

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: u32,
    /// Offsets where U+FFFD replaces bytes that are not UTF-8, in order.
    mended: &'a [usize],
    /// Flaw of the string just read: reason and detail.
    flaw: Option<(&'static str, String)>,
    bounds: &'a JsonConfig,
    /// Line in a file of lines, for messages; 0 if there is none.
    line: u64,
}

fn fault(reason: &'static str, detail: String, kept: Value) -> Value {
    let lost = Vec::new();
    Value::Fault(Box::new(Fault {
        reason,
        detail,
        kept,
        lost,
    }))
}

impl Parser<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn wrong(&self, what: &str) -> String {
        format!("{what} at byte {}", self.at)
    }

    /// Describes the place of a fault. A fault of one value has to name its line itself.
    fn place(&self, byte: usize) -> String {
        match self.line {
            0 => format!("at byte {byte}"),
            line => format!("at byte {byte} of line {line}"),
        }
    }

    /// An "unexpected" end of the bytes means a truncated body.
    fn unexpected(&self, wanted: &str) -> String {
        match self.text[self.at..].chars().next() {
            None => format!(
                "the document ends at byte {}, where {wanted} should be",
                self.at
            ),
            Some(c) => format!(
                "`{}` at byte {}, where {wanted} should be",
                c.escape_debug(),
                self.at
            ),
        }
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
    }

    fn expect(&mut self, byte: u8, wanted: &str) -> Result<(), String> {
        if self.peek() != Some(byte) {
            return Err(self.unexpected(wanted));
        }
        self.at += 1;
        Ok(())
    }

    fn value(&mut self) -> Result<Value, String> {
        self.skip_space();
        match self.peek() {
            Some(b'{') => self.nested(Self::object),
            Some(b'[') => self.nested(Self::list),
            Some(b'"') => {
                let text = Value::Text(self.string()?);
                Ok(self.flawed(text))
            }
            Some(b't') => self.word("true", Value::Bool(true)),
            Some(b'f') => self.word("false", Value::Bool(false)),
            Some(b'n') => self.word("null", Value::Null),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => Err(self.unexpected("a value")),
        }
    }

    /// `value`, or the fault of the string that was just read for it.
    fn flawed(&mut self, value: Value) -> Value {
        match self.flaw.take() {
            None => value,
            Some((reason, detail)) => fault(reason, detail, value),
        }
    }

    fn nested(
        &mut self,
        inner: impl FnOnce(&mut Self) -> Result<Value, String>,
    ) -> Result<Value, String> {
        let most = self.bounds.max_depth.get();
        if self.depth == most {
            let start = self.at;
            self.skip_nested()?;
            let detail = format!("more than {most} levels of nesting {}", self.place(start));
            let kept = beginning(&self.text[start..self.at]);
            return Ok(fault("too_deep", detail, Value::Text(kept.to_owned())));
        }
        self.depth += 1;
        self.at += 1;
        let value = inner(self)?;
        self.depth -= 1;
        Ok(value)
    }

    /// Skips the list or object that begins here, without recursion, by its brackets and strings
    /// only.
    fn skip_nested(&mut self) -> Result<(), String> {
        let mut open = 0_u64;
        let (mut in_string, mut escaped) = (false, false);
        while let Some(byte) = self.peek() {
            self.at += 1;
            match byte {
                _ if escaped => escaped = false,
                b'\\' if in_string => escaped = true,
                b'"' => in_string = !in_string,
                b'{' | b'[' if !in_string => open += 1,
                b'}' | b']' if !in_string => open -= 1,
                _ => {}
            }
            if open == 0 {
                return Ok(());
            }
        }
        Err(self.unexpected("the end of a list or object"))
    }

    /// Returns true if the list or object closed with `end` continues; `first` before its first
    /// item.
    fn goes_on(&mut self, end: u8, first: bool) -> Result<bool, String> {
        self.skip_space();
        if self.peek() == Some(end) {
            self.at += 1;
            return Ok(false);
        }
        if !first {
            self.expect(
                b',',
                if end == b'}' {
                    "`,` or `}`"
                } else {
                    "`,` or `]`"
                },
            )?;
        }
        Ok(true)
    }

    fn list(&mut self) -> Result<Value, String> {
        let mut items = Vec::new();
        while self.goes_on(b']', items.is_empty())? {
            if items.len() as u64 == self.bounds.max_items.get() {
                return Err(self.wrong(&format!(
                    "a list of more than `contract.json.max_items` = {} items",
                    self.bounds.max_items
                )));
            }
            items.push(self.value()?);
        }
        Ok(Value::List(items))
    }

    fn object(&mut self) -> Result<Value, String> {
        let begin = self.at - 1;
        let mut entries: Vec<(String, Value)> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        let (mut is_first, mut is_too_wide) = (true, false);
        while self.goes_on(b'}', is_first)? {
            is_first = false;
            self.skip_space();
            if self.peek() != Some(b'"') {
                return Err(self.unexpected("a key in quotes"));
            }
            let start = self.at;
            let key = self.string()?;
            let flaw = self.flaw.take();
            let before = if entries.len() < LINEAR_KEYS {
                entries.iter().position(|(known, _)| *known == key)
            } else {
                if places.is_empty() {
                    places.extend(entries.iter().map(|(key, _)| key.clone()).zip(0..));
                }
                places.get(&key).copied()
            };
            self.skip_space();
            self.expect(b':', "`:`")?;
            let mut value = self.value()?;
            if let Some((reason, detail)) = flaw {
                value = fault(reason, detail, value);
            }
            match before {
                Some(place) => again(&mut entries[place], value, &self.place(start)),
                None if entries.len() as u64 == self.bounds.max_keys.get() => is_too_wide = true,
                None => {
                    if !places.is_empty() {
                        places.insert(key.clone(), entries.len());
                    }
                    entries.push((key, value));
                }
            }
        }
        if is_too_wide {
            let most = self.bounds.max_keys.get();
            let detail = format!("an object of more than {most} keys {}", self.place(begin));
            return Ok(fault("too_wide", detail, Value::Object(entries)));
        }
        Ok(Value::Object(entries))
    }

    fn word(&mut self, word: &str, value: Value) -> Result<Value, String> {
        if !self.text[self.at..].starts_with(word) {
            return Err(self.unexpected("a value"));
        }
        self.at += word.len();
        Ok(value)
    }

    fn number(&mut self) -> Result<Value, String> {
        let start = self.at;
        while matches!(
            self.peek(),
            Some(b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E')
        ) {
            self.at += 1;
        }
        let text = &self.text[start..self.at];
        match written_number(text) {
            Some(value) => Ok(value),
            None if is_number(text) => Ok(Value::Digits(text.to_owned())),
            None => {
                self.at = start;
                Err(self.unexpected("a number"))
            }
        }
    }
}

/// Records a key that occurs again in its object, at `place`.
fn again((key, held): &mut (String, Value), value: Value, place: &str) {
    let before = std::mem::replace(held, Value::Null);
    let (mut lost, before) = match before {
        Value::Fault(fault) if !fault.lost.is_empty() => (fault.lost, fault.kept),
        before => (Vec::new(), before),
    };
    lost.push(before);
    let key = key.escape_debug();
    *held = Value::Fault(Box::new(Fault {
        reason: "duplicate_key",
        detail: format!("key `{key}` twice in one object {place}"),
        kept: value,
        lost,
    }));
}

/// The first bytes of `text`, up to the end of a character.
fn beginning(text: &str) -> &str {
    &text[..text.floor_char_boundary(KEPT)]
}

#[cfg(test)]
mod tests;
