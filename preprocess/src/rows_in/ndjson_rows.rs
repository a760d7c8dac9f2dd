//! NDJSON: an object on each line; blank lines are no rows. An absent key is a missing value, as it
//! lands. A key with a dot and a nested key are different columns: the name of the column decides
//! between them.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    fmt,
    io::{BufRead, Read as _},
};

use feedline_schemas::record::{join_path, split_path};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::{assembly::Assembly, fault::Fault, names::Named, raw_cell::Raw, row_reader::RowReader};

/// Longest line, in bytes.
const LINE: u64 = 64 << 20;

/// Rows of a file of lines.
pub(super) struct NdjsonRows {
    reader: Box<dyn BufRead + Send>,
    keys: Keys,
    /// Slot of each wanted column, and of its substitute where that is absent.
    places: Vec<(usize, Option<usize>)>,
    cells: Vec<Option<Raw<'static>>>,
    inputs_met: bool,
    line: Vec<u8>,
    /// Number of the line just read, from 1.
    number: u64,
}

/// Wanted keys.
struct Keys {
    /// Slot by path name.
    slots: HashMap<String, usize>,
    /// Slot of keys of the row's own that are columns as they are written, though they would land under other names.
    written: HashMap<String, usize>,
    /// Objects that have wanted keys, by path name.
    above: HashSet<String>,
}

/// Kind of a key.
enum Key {
    Slot(usize, String),
    Above(String),
    Other,
}

impl Keys {
    fn look(&self, prefix: &str, key: &str) -> Key {
        let written = self.written.get(key).filter(|_| prefix.is_empty());
        if let Some(slot) = written {
            return Key::Slot(*slot, key.to_owned());
        }
        let escaped;
        let path = if prefix.is_empty() && !key.contains(['.', '\\']) {
            key
        } else {
            escaped = format!("{prefix}{}", join_path([key]));
            &escaped
        };
        match self.slots.get(path) {
            Some(slot) => Key::Slot(*slot, path.to_owned()),
            None if self.above.contains(path) => Key::Above(format!("{path}.")),
            None => Key::Other,
        }
    }
}

impl NdjsonRows {
    /// With `as_written`, a name with a dot is first a key of the row itself, and a path only where
    /// that is absent.
    pub(super) fn new(
        reader: Box<dyn BufRead + Send>,
        wanted: &[String],
        as_written: bool,
    ) -> Self {
        let mut keys = Keys {
            slots: HashMap::new(),
            written: HashMap::new(),
            above: HashSet::new(),
        };
        let mut places = Vec::with_capacity(wanted.len());
        for name in wanted {
            let next = keys.slots.len() + keys.written.len();
            let path_slot = *keys.slots.entry(name.clone()).or_insert(next);
            let landed = join_path([name.as_str()]);
            places.push(
                if as_written && landed != *name && !wanted.contains(&landed) {
                    let next = keys.slots.len() + keys.written.len();
                    let slot = *keys.written.entry(name.clone()).or_insert(next);
                    (slot, Some(path_slot))
                } else {
                    (path_slot, None)
                },
            );
            let path = split_path(name);
            let prefixes =
                (1..path.len()).map(|len| join_path(path[..len].iter().map(String::as_str)));
            keys.above.extend(prefixes);
        }
        Self {
            reader,
            cells: vec![None; keys.slots.len() + keys.written.len()],
            keys,
            places,
            inputs_met: false,
            line: Vec::new(),
            number: 0,
        }
    }

    /// Reads the object of the line at hand into the cells.
    fn read(&mut self) -> Result<(), Fault> {
        self.cells.fill(None);
        let line = self.line.trim_ascii();
        let mut duplicate = None;
        let object = Object {
            keys: &self.keys,
            prefix: "",
            cells: &mut self.cells,
            duplicate: &mut duplicate,
        };
        let mut parser = serde_json::Deserializer::from_slice(line);
        let parsed = parser.deserialize_any(object).and_then(|()| parser.end());
        match (parsed, duplicate) {
            (Ok(()), None) => Ok(()),
            (Ok(()), Some(key)) => Err(Fault::new(
                "duplicate_key",
                format!("key `{key}` appears twice"),
            )),
            (Err(_), _)
                if serde_json::from_slice::<IgnoredAny>(line).is_ok()
                    && line.first() != Some(&b'{') =>
            {
                Err(Fault::new(
                    "not_an_object",
                    "an object should be there".into(),
                ))
            }
            (Err(error), _) => Err(Fault::new("malformed_line", error.to_string())),
        }
    }
}

impl RowReader for NdjsonRows {
    fn columns(&self) -> Option<&Named> {
        None
    }

    fn fill(&mut self, rows: &mut Assembly) -> Result<bool, String> {
        loop {
            self.line.clear();
            self.number += 1;
            let number = self.number;
            (&mut self.reader)
                .take(LINE)
                .read_until(b'\n', &mut self.line)
                .map_err(|e| format!("line {number}: {e}"))?;
            if self.line.is_empty() {
                return Ok(false);
            }
            if self.line.len() as u64 == LINE {
                return Err(format!("line {number} is longer than 64 MiB"));
            }
            if !self.line.trim_ascii().is_empty() {
                break;
            }
        }
        rows.bytes += self.line.len();
        let place = format!("line {}", self.number);
        if let Err(fault) = self.read() {
            rows.add_bad(fault.at(&place));
            return Ok(true);
        }
        let cells = &self.cells;
        let found = |(slot, other): (usize, Option<usize>)| {
            let other = other.and_then(|other| cells[other].as_ref());
            cells[slot].as_ref().or(other)
        };
        let met = self.places.iter().map(|place| found(*place).is_some());
        for (met, is_there) in rows.met.iter_mut().zip(met) {
            *met |= is_there;
        }
        if !self.inputs_met {
            self.inputs_met = rows.met.is_empty() || rows.met.contains(&true);
            rows.is_foreign = !self.inputs_met;
        }
        let cell = |column: usize| match found(self.places[column]) {
            None => Raw::Null,
            Some(Raw::Text(text)) => Raw::Text(Cow::Borrowed(text)),
            Some(other) => other.clone(),
        };
        rows.add(cell, || place);
        Ok(true)
    }
}

/// Reads an object's wanted keys.
struct Object<'a> {
    keys: &'a Keys,
    /// Path name of the object with a dot behind it; empty for the row's own.
    prefix: &'a str,
    cells: &'a mut [Option<Raw<'static>>],
    duplicate: &'a mut Option<String>,
}

impl<'de> Visitor<'de> for Object<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key_seed(Look(self.keys, self.prefix))? {
            match key {
                Key::Slot(slot, name) => {
                    let cell = map.next_value_seed(Cell)?;
                    if self.cells[slot].replace(cell).is_some() {
                        self.duplicate.get_or_insert(name);
                    }
                }
                Key::Above(prefix) => map.next_value_seed(Object {
                    keys: self.keys,
                    prefix: &prefix,
                    cells: &mut *self.cells,
                    duplicate: &mut *self.duplicate,
                })?,
                Key::Other => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        self.no_object()
    }

    fn visit_bool<E: serde::de::Error>(self, _: bool) -> Result<(), E> {
        self.no_object()
    }

    fn visit_i64<E: serde::de::Error>(self, _: i64) -> Result<(), E> {
        self.no_object()
    }

    fn visit_u64<E: serde::de::Error>(self, _: u64) -> Result<(), E> {
        self.no_object()
    }

    fn visit_f64<E: serde::de::Error>(self, _: f64) -> Result<(), E> {
        self.no_object()
    }

    fn visit_str<E: serde::de::Error>(self, _: &str) -> Result<(), E> {
        self.no_object()
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        self.no_object()
    }
}

impl Object<'_> {
    /// Handles a value that is no object: within a row its columns are missing, but a row must be
    /// an object.
    fn no_object<E: serde::de::Error>(&self) -> Result<(), E> {
        match self.prefix {
            "" => Err(E::custom("an object should be there")),
            _ => Ok(()),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Object<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

/// Looks a key up.
struct Look<'a>(&'a Keys, &'a str);

impl<'de> DeserializeSeed<'de> for Look<'_> {
    type Value = Key;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Key, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Look<'_> {
    type Value = Key;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: serde::de::Error>(self, key: &str) -> Result<Key, E> {
        Ok(self.0.look(self.1, key))
    }
}

/// Reads a value.
struct Cell;

impl<'de> DeserializeSeed<'de> for Cell {
    type Value = Raw<'static>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Raw<'static>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Cell {
    type Value = Raw<'static>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Raw::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
        Ok(Raw::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
        Ok(Raw::Int(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
        let int = i64::try_from(value).map(Raw::Int);
        Ok(int.unwrap_or_else(|_| Raw::Text(value.to_string().into())))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Self::Value, E> {
        Ok(Raw::Float(value))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Raw::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Raw::Nested("a list"))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        while entries.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Raw::Nested("an object"))
    }
}
