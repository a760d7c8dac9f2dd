//! Records of NDJSON, and of a list in a document of JSON.

use std::{
    io::{BufRead, BufReader, Read},
    sync::Arc,
};

use feedline_schemas::{
    config::JsonConfig,
    record::{join_path, split_path},
};

use super::{Layout, PlaceUnit, RecordPlace, Rows, read_whole};
use crate::{
    csv_dialect::Text,
    file_bytes::Begin,
    json::{JsonRecord, NodeKind, Reader, Tape, encoding::is_utf16},
    notices::Notices,
    record::Record,
    remedy::Remedy,
    value::{Value, shorten},
};

/// Longest line of an NDJSON file, in bytes.
const LINE: u64 = 64 << 20;

/// NDJSON: one document per line; blank lines are no records.
pub(crate) struct Lines {
    reader: BufReader<Text>,
    bounds: JsonConfig,
    json: Reader,
    /// The document before. Its memory is used again if the caller has dropped its record.
    last: Option<Arc<Tape>>,
    /// Number of the line just read, from 1.
    number: u64,
    /// Offset of the next one in the decompressed file.
    at: u64,
}

impl Rows for Lines {
    fn next(&mut self) -> Result<Option<Record>, String> {
        let last = self.last.take().and_then(Arc::into_inner);
        let mut line = last.map_or_else(Vec::new, |tape| self.json.recycle(tape));
        loop {
            line.clear();
            self.number += 1;
            let number = self.number;
            (&mut self.reader)
                .take(LINE)
                .read_until(b'\n', &mut line)
                .map_err(|e| format!("line {number}: {e}"))?;
            let begin = self.at;
            self.at += line.len() as u64;
            match line.trim_ascii() {
                _ if line.is_empty() => return Ok(None),
                _ if line.len() as u64 == LINE => {
                    return Err(format!("line {number} is longer than 64 MiB; split it"));
                }
                b"" => {}
                // Its lines end inside of a character.
                _ if begin == 0 && is_utf16(&line) => {
                    return Err(
                        "it is UTF-16, and lines of JSON are read as UTF-8: convert it, such as by `iconv -f UTF-16 -t UTF-8`"
                            .to_owned(),
                    );
                }
                _ => return Ok(Some(self.record(line, begin))),
            }
        }
    }

    fn numbered_place(&self) -> Option<RecordPlace> {
        Some(RecordPlace::new(PlaceUnit::Line, self.number))
    }
}

impl Lines {
    /// Reads the lines of `reader`, which begins at `from`.
    pub(crate) fn new(reader: Text, layout: &Layout, from: Begin) -> Self {
        Self {
            reader: BufReader::new(reader),
            bounds: layout.json.clone(),
            json: Reader::default(),
            last: None,
            number: from.lines.feeds(),
            at: from.byte,
        }
    }

    /// Parses a line that begins at byte `begin` of the file.
    fn record(&mut self, line: Vec<u8>, begin: u64) -> Record {
        let line = match self.json.read(line, &self.bounds) {
            Ok(tape) if tape.node(0).kind == NodeKind::Object => {
                let tape = Arc::new(tape);
                self.last = Some(Arc::clone(&tape));
                return Record::Json(JsonRecord { tape, place: 0 });
            }
            Ok(tape) => tape.into_bytes(),
            Err(line) => line,
        };
        let line = line.trim_ascii();
        let place = || format!("line {} (byte {begin} of the file)", self.number);
        Value::parse_within(line, &self.bounds, self.number).map_or_else(
            |e| Record::Bad {
                raw: String::from_utf8_lossy(line).into_owned(),
                reason: "malformed_line",
                detail: format!("{}: {e}", place()),
            },
            |value| Record::of(value, place),
        )
    }
}

/// JSON: the elements of one list.
pub(crate) struct Elements {
    list: ElementList,
    number: u64,
}

/// The elements that have not been read.
enum ElementList {
    /// Of a document without faults: nodes from `next` on, before `end`.
    Tape {
        document: Arc<Tape>,
        next: u32,
        end: u32,
    },
    /// Of any other document.
    Tree(std::vec::IntoIter<Value>),
}

impl Elements {
    pub(crate) fn new(reader: impl Read, layout: &Layout) -> Result<Self, String> {
        let parsed = Reader::default().read(read_whole(reader)?, &layout.json);
        let list = match parsed {
            Ok(tape) => match list_of_tape(tape, &layout.records) {
                Ok(list) => list,
                // The tree describes the value in its place.
                Err(bytes) => list_of_tree(&bytes, layout)?,
            },
            Err(bytes) => list_of_tree(&bytes, layout)?,
        };
        Ok(Self { list, number: 0 })
    }
}

impl Rows for Elements {
    fn next(&mut self) -> Result<Option<Record>, String> {
        self.number += 1;
        let number = self.number;
        let record = |value| Record::of(value, || format!("element {number}"));
        Ok(match &mut self.list {
            ElementList::Tree(elements) => elements.next().map(record),
            ElementList::Tape { next, end, .. } if next == end => None,
            ElementList::Tape { document, next, .. } => {
                let place = *next;
                let node = document.node(place);
                *next = node.end;
                Some(match node.kind {
                    NodeKind::Object => Record::Json(JsonRecord {
                        tape: Arc::clone(document),
                        place,
                    }),
                    _ => record(document.value(place)),
                })
            }
        })
    }

    fn numbered_place(&self) -> Option<RecordPlace> {
        Some(RecordPlace::new(PlaceUnit::Element, self.number))
    }
}

/// The list at `path` of a document without faults; the bytes where there is none.
fn list_of_tape(tape: Tape, path: &str) -> Result<ElementList, Vec<u8>> {
    let list = tape.at_path(path);
    let list = list.map(|place| (place, *tape.node(place)));
    match list {
        Some((place, node)) if node.kind == NodeKind::List => Ok(ElementList::Tape {
            document: Arc::new(tape),
            next: place + 1,
            end: node.end,
        }),
        _ => Err(tape.into_bytes()),
    }
}

/// The list that `layout` names in a document of any kind.
fn list_of_tree(bytes: &[u8], layout: &Layout) -> Result<ElementList, String> {
    let document = Value::parse_within(bytes, &layout.json, 0);
    let document = document.map_err(|e| format!("it is not JSON: {e}"))?;
    let elements = list_at(document, &layout.records, &layout.notices)?;
    Ok(ElementList::Tree(elements.into_iter()))
}

/// The list at `path`. Other lists go to `notices`, as the remedy of the error.
fn list_at(document: Value, path: &str, notices: &Notices) -> Result<Vec<Value>, String> {
    let mut at = document;
    let keys = if path.is_empty() {
        Vec::new()
    } else {
        split_path(path)
    };
    for key in keys {
        let Value::Object(entries) = at else {
            return Err(format!(
                "`{key}` of `records` = `{path}` is looked for in {}",
                at.kind()
            ));
        };
        let names: Vec<&str> = entries.iter().map(|(name, _)| name.as_str()).collect();
        let names = names.join("`, `");
        let found = entries
            .into_iter()
            .find(|(name, _)| *name == key)
            .map(|(_, value)| value);
        at = found.ok_or_else(|| {
            format!(
                "no `{key}` exists at `records` = `{path}`, only `{}`",
                shorten(&names, 200)
            )
        })?;
    }
    match at {
        Value::List(elements) => Ok(elements),
        Value::Object(entries) => {
            let mut lists = Vec::new();
            lists_below(&entries, "", LIST_LEVELS, &mut lists);
            if lists.is_empty() {
                return Err(
                    "an object without a list is in the place of the list of records; put it into `[` and `]`, or write one object a line as NDJSON"
                        .to_owned(),
                );
            }
            let reason = format!(
                "an object is in the place of the list of records; set `records` to the path of the list (lists in it: `{}`)",
                shorten(&lists.join("`, `"), 200)
            );
            notices.push_remedy(Remedy::Records(lists));
            Err(reason)
        }
        other => {
            notices.push_remedy(Remedy::Records(Vec::new()));
            Err(format!(
                "{} is in the place of the list of records; set `records`",
                other.kind()
            ))
        }
    }
}

/// Levels of objects that lists are looked for in.
const LIST_LEVELS: u32 = 4;

/// Collects the paths of the lists in an object at `path`, `levels` deep.
fn lists_below(entries: &[(String, Value)], path: &str, levels: u32, found: &mut Vec<String>) {
    for (key, value) in entries {
        let dot = if path.is_empty() { "" } else { "." };
        let below = format!("{path}{dot}{}", join_path([key.as_str()]));
        match value {
            Value::List(_) => found.push(below),
            Value::Object(entries) if levels > 1 => {
                lists_below(entries, &below, levels - 1, found);
            }
            _ => {}
        }
    }
}
