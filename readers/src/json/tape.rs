//! JSON documents without faults, without a tree: the text, and the positions of its values.
//!
//! [`Reader`] accepts only documents that [`super::parse`] reads without a fault. It returns all
//! others to be read by that, so only one place describes faults. Keys are numbers here: a reader
//! knows the paths of earlier documents, and expects the keys of an object in the order of the
//! object before.

use std::sync::Arc;

use feedline_schemas::{config::JsonConfig, record::split_path};

use super::{encoding, keys::Keys, number, number::is_canonical, written_number};
use crate::{value::Value, value_view::ValueView};

/// Bytes of memory that a reader uses again, at most.
const MAX_SPARE: usize = 1 << 20;

/// Number of a path that is none.
const NO_KEY: u32 = 0;

/// Kind of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// Null.
    Null,
    /// True.
    True,
    /// False.
    False,
    /// A number without fraction and exponent, but for -0. It may be too large for 64 bits.
    Int,
    /// Any other number. It may be too large or too small for 64 bits.
    Float,
    /// String without escapes.
    Text,
    /// Text with escapes.
    Escaped,
    /// A list.
    List,
    /// An object.
    Object,
}

/// A value of a document.
#[derive(Clone, Copy, Debug)]
pub struct Node {
    /// Offset of its text; for a string, after the quote.
    at: u32,
    /// Length of its text in bytes, for a string without quotes.
    len: u32,
    /// The first node that is not below it.
    pub end: u32,
    /// Its path.
    pub key: u32,
    /// Its kind.
    pub kind: NodeKind,
}

/// A document; its first node is the root.
#[derive(Debug)]
pub struct Tape {
    text: String,
    nodes: Vec<Node>,
    /// Paths of its nodes.
    pub keys: Arc<Keys>,
}

/// Expectation of a reader for a path.
#[derive(Clone, Copy, Debug, Default)]
struct Hint {
    /// The first key below it, when it was last met.
    first: u32,
    /// Key that followed it at its last occurrence.
    next: u32,
    /// Object of its last occurrence.
    met: u64,
}

/// Reads documents of one kind, one after another.
#[derive(Debug, Default)]
pub struct Reader {
    keys: Arc<Keys>,
    hints: Vec<Hint>,
    objects: u64,
    /// Memory for the nodes of the next document.
    spare: Vec<Node>,
}

impl Reader {
    /// Reads a document.
    ///
    /// # Errors
    /// The unchanged bytes if they are not a document without faults within `bounds`.
    /// [`super::parse`] reports the reason.
    pub fn read(&mut self, bytes: Vec<u8>, bounds: &JsonConfig) -> Result<Tape, Vec<u8>> {
        if encoding::is_utf16(&bytes) || u32::try_from(bytes.len()).is_err() {
            return Err(bytes);
        }
        let text = String::from_utf8(bytes).map_err(std::string::FromUtf8Error::into_bytes)?;
        let mut nodes = std::mem::take(&mut self.spare);
        nodes.reserve(text.len() / 8);
        let mut scan = Scan {
            at: if text.starts_with('\u{feff}') { 3 } else { 0 },
            text: &text,
            bytes: text.as_bytes(),
            depth: 0,
            nodes,
            bounds,
            reader: self,
        };
        match scan.document() {
            Some(nodes) => Ok(Tape {
                nodes,
                text,
                keys: Arc::clone(&self.keys),
            }),
            None => Err(text.into_bytes()),
        }
    }

    /// Takes the memory of a document that is not read any more. Returns that of its text, empty.
    pub fn recycle(&mut self, tape: Tape) -> Vec<u8> {
        self.spare = tape.nodes;
        self.spare.clear();
        self.spare.shrink_to(MAX_SPARE / size_of::<Node>());
        let mut text = tape.text.into_bytes();
        text.clear();
        text.shrink_to(MAX_SPARE);
        text
    }

    fn hint(&mut self, key: u32) -> &mut Hint {
        let key = key as usize;
        if self.hints.len() <= key {
            self.hints.resize(self.keys.len(), Hint::default());
        }
        &mut self.hints[key]
    }
}

/// State of a scan; any deviation from the fast path ends it.
struct Scan<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    depth: u32,
    nodes: Vec<Node>,
    bounds: &'a JsonConfig,
    reader: &'a mut Reader,
}

impl Scan<'_> {
    fn document(&mut self) -> Option<Vec<Node>> {
        self.value(NO_KEY)?;
        self.skip_space();
        (self.at == self.bytes.len()).then(|| std::mem::take(&mut self.nodes))
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.peek() == Some(byte)).then(|| self.at += 1)
    }

    /// Adds a node for a value of `len` bytes at `at`.
    fn push(&mut self, key: u32, kind: NodeKind, at: usize, len: usize) -> Option<()> {
        let end = u32::try_from(self.nodes.len() + 1).ok()?;
        let (at, len) = (u32::try_from(at).ok()?, u32::try_from(len).ok()?);
        self.nodes.push(Node {
            at,
            len,
            end,
            key,
            kind,
        });
        Some(())
    }

    fn value(&mut self, key: u32) -> Option<()> {
        self.skip_space();
        let start = self.at;
        match self.peek()? {
            b'"' => {
                let (kind, len) = self.string()?;
                self.push(key, kind, start + 1, len)
            }
            b'{' => self.nested(key, NodeKind::Object),
            b'[' => self.nested(key, NodeKind::List),
            b't' => self.word(key, "true", NodeKind::True),
            b'f' => self.word(key, "false", NodeKind::False),
            b'n' => self.word(key, "null", NodeKind::Null),
            _ => {
                let kind = self.number()?;
                self.push(key, kind, start, self.at - start)
            }
        }
    }

    fn word(&mut self, key: u32, word: &str, kind: NodeKind) -> Option<()> {
        let start = self.at;
        if !self.bytes[start..].starts_with(word.as_bytes()) {
            return None;
        }
        self.at += word.len();
        self.push(key, kind, start, word.len())
    }

    fn nested(&mut self, key: u32, kind: NodeKind) -> Option<()> {
        if self.depth == self.bounds.max_depth.get() {
            return None;
        }
        self.depth += 1;
        let (start, place) = (self.at, self.nodes.len());
        self.push(key, kind, start, 0)?;
        self.at += 1;
        if kind == NodeKind::Object {
            self.object(key)?;
        } else {
            self.list(key)?;
        }
        self.depth -= 1;
        let end = u32::try_from(self.nodes.len()).ok()?;
        let node = &mut self.nodes[place];
        node.end = end;
        node.len = u32::try_from(self.at - start).ok()?;
        Some(())
    }

    /// Returns true if the list or object closed with `end` continues; `is_first` before its first
    /// item.
    fn goes_on(&mut self, end: u8, is_first: bool) -> Option<bool> {
        self.skip_space();
        if self.peek() == Some(end) {
            self.at += 1;
            return Some(false);
        }
        if !is_first {
            self.expect(b',')?;
        }
        Some(true)
    }

    fn list(&mut self, key: u32) -> Option<()> {
        let mut item = self.reader.keys.item(key);
        let mut count = 0;
        while self.goes_on(b']', count == 0)? {
            if item == NO_KEY {
                item = Arc::make_mut(&mut self.reader.keys).add_item(key)?;
            }
            if count == self.bounds.max_items.get() {
                return None;
            }
            count += 1;
            self.value(item)?;
        }
        Some(())
    }

    fn object(&mut self, key: u32) -> Option<()> {
        self.reader.objects += 1;
        let object = self.reader.objects;
        let mut expected = self.reader.hint(key).first;
        let (mut last, mut count) = (NO_KEY, 0);
        while self.goes_on(b'}', count == 0)? {
            self.skip_space();
            let below = self.key(key, expected)?;
            let hint = self.reader.hint(below);
            // A key twice, or too many, is a fault.
            if hint.met == object || count == self.bounds.max_keys.get() {
                return None;
            }
            hint.met = object;
            expected = hint.next;
            match last {
                NO_KEY => self.reader.hint(key).first = below,
                last => self.reader.hint(last).next = below,
            }
            last = below;
            count += 1;
            self.skip_space();
            self.expect(b':')?;
            self.value(below)?;
        }
        Some(())
    }

    /// Reads a key of the object at `above`, which usually is `expected`.
    fn key(&mut self, above: u32, expected: u32) -> Option<u32> {
        self.expect(b'"')?;
        let rest = &self.bytes[self.at..];
        if expected != NO_KEY {
            let name = self.reader.keys.name(expected).as_bytes();
            if rest.starts_with(name) && rest.get(name.len()) == Some(&b'"') {
                self.at += name.len() + 1;
                return Some(expected);
            }
        }
        let len = plain(rest);
        if rest.get(len) != Some(&b'"') || len as u64 > self.bounds.max_text_bytes.bytes() {
            return None;
        }
        let name = &self.text[self.at..self.at + len];
        self.at += len + 1;
        match self.reader.keys.below(above, name) {
            Some(key) => Some(key),
            None => Arc::make_mut(&mut self.reader.keys).add(above, name),
        }
    }

    /// Reads a quoted string: its kind, and its length without quotes.
    fn string(&mut self) -> Option<(NodeKind, usize)> {
        self.at += 1;
        let start = self.at;
        let mut kind = NodeKind::Text;
        loop {
            self.at += plain(&self.bytes[self.at..]);
            match self.peek()? {
                b'"' => break,
                b'\\' => {
                    kind = NodeKind::Escaped;
                    self.at += escape(&self.bytes[self.at..])?;
                }
                _ => return None,
            }
        }
        let len = self.at - start;
        self.at += 1;
        (len as u64 <= self.bounds.max_text_bytes.bytes()).then_some((kind, len))
    }

    fn number(&mut self) -> Option<NodeKind> {
        let start = self.at;
        let is_negative = self.expect(b'-').is_some();
        let first = self.at;
        self.digits()?;
        let is_zero = self.bytes[first] == b'0';
        if is_zero && self.at > first + 1 {
            return None;
        }
        let mut kind = NodeKind::Int;
        if self.expect(b'.').is_some() {
            kind = NodeKind::Float;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            kind = NodeKind::Float;
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        if is_negative && is_zero && self.at == start + 2 {
            kind = NodeKind::Float;
        }
        let is_over = !matches!(self.peek(), Some(b'+' | b'-' | b'.'));
        is_over.then_some(kind)
    }

    fn digits(&mut self) -> Option<()> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        (self.at > start).then_some(())
    }
}

/// Number of bytes before a quote, a backslash or a control character.
fn plain(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const HIGHS: u64 = ONES << 7;
    // The high bit of each byte that is zero; above the first such byte there may be more.
    let zeros = |word: u64| word.wrapping_sub(ONES) & !word & HIGHS;
    let (words, rest) = bytes.as_chunks::<8>();
    for (i, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let control = word.wrapping_sub(ONES * 0x20) & !word & HIGHS;
        let found = control
            | zeros(word ^ (ONES * u64::from(b'"')))
            | zeros(word ^ (ONES * u64::from(b'\\')));
        if found != 0 {
            return i * 8 + found.trailing_zeros() as usize / 8;
        }
    }
    let is_plain = |byte: &u8| *byte >= 0x20 && *byte != b'"' && *byte != b'\\';
    words.len() * 8 + rest.iter().take_while(|byte| is_plain(byte)).count()
}

/// Length of the escape at the start of `bytes`; `None` for half of a pair, or an invalid one.
fn escape(bytes: &[u8]) -> Option<usize> {
    match bytes.get(1)? {
        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(2),
        b'u' => match hex4(bytes.get(2..6)?)? {
            0xd800..0xdc00 => {
                let second = bytes.get(6..12)?.strip_prefix(b"\\u")?;
                (0xdc00..0xe000).contains(&hex4(second)?).then_some(12)
            }
            0xdc00..0xe000 => None,
            _ => Some(6),
        },
        _ => None,
    }
}

/// Returns true for a number with an exponent.
fn has_exponent(number: &str) -> bool {
    number.bytes().any(|byte| matches!(byte, b'e' | b'E'))
}

fn hex4(digits: &[u8]) -> Option<u32> {
    let digit = |value: u32, byte: &u8| Some(value * 16 + char::from(*byte).to_digit(16)?);
    digits.iter().try_fold(0, digit)
}

impl Tape {
    /// The node at `place`.
    ///
    /// # Panics
    /// If there is none.
    pub fn node(&self, place: u32) -> &Node {
        &self.nodes[place as usize]
    }

    /// Source text of a node; a string without its quotes.
    pub fn text(&self, node: &Node) -> &str {
        let start = node.at as usize;
        &self.text[start..start + node.len as usize]
    }

    /// The text of a string with escapes.
    pub fn unescaped(&self, node: &Node) -> String {
        let start = node.at as usize;
        let quoted = &self.text.as_bytes()[start - 1..=start + node.len as usize];
        match super::parse(quoted, &JsonConfig::default(), 0) {
            Ok(Value::Text(text)) => text,
            // The reader accepts no other kind.
            _ => String::new(),
        }
    }

    /// The bytes it was read from.
    pub fn into_bytes(self) -> Vec<u8> {
        self.text.into_bytes()
    }

    /// All of it.
    pub fn document(&self) -> &str {
        &self.text
    }

    /// Child nodes of the one at `place`.
    pub fn below(&self, place: u32) -> impl Iterator<Item = u32> {
        let end = self.node(place).end;
        let first = (place + 1 < end).then_some(place + 1);
        std::iter::successors(first, move |at| {
            let next = self.node(*at).end;
            (next < end).then_some(next)
        })
    }

    /// The node at `path`, keys joined as in a column name; the empty path is the root.
    pub fn at_path(&self, path: &str) -> Option<u32> {
        let keys = match path {
            "" => Vec::new(),
            path => split_path(path),
        };
        keys.iter().try_fold(0, |at, key| self.field(at, key))
    }

    /// The field `key` of the object at `place`.
    pub fn field(&self, place: u32, key: &str) -> Option<u32> {
        let found = || {
            self.below(place)
                .find(|below| self.keys.name(self.node(*below).key) == key)
        };
        (self.node(place).kind == NodeKind::Object)
            .then(found)
            .flatten()
    }

    /// Builds the value at `place` as a tree.
    pub fn value(&self, place: u32) -> Value {
        let node = self.node(place);
        let text = self.text(node);
        match node.kind {
            NodeKind::Null => Value::Null,
            NodeKind::True => Value::Bool(true),
            NodeKind::False => Value::Bool(false),
            NodeKind::Int | NodeKind::Float => {
                written_number(text).unwrap_or_else(|| Value::Digits(text.to_owned()))
            }
            NodeKind::Text => Value::Text(text.to_owned()),
            NodeKind::Escaped => Value::Text(self.unescaped(node)),
            NodeKind::List => Value::List(self.below(place).map(|item| self.value(item)).collect()),
            NodeKind::Object => {
                let entry = |below: u32| {
                    let name = self.keys.name(self.node(below).key);
                    (name.to_owned(), self.value(below))
                };
                Value::Object(self.below(place).map(entry).collect())
            }
        }
    }

    /// The value at `place` without a tree.
    pub fn view(&self, place: u32) -> ValueView<'_> {
        let node = self.node(place);
        let text = self.text(node);
        match node.kind {
            NodeKind::Null => ValueView::Null,
            NodeKind::True => ValueView::Bool(true),
            NodeKind::False => ValueView::Bool(false),
            NodeKind::Int => text.parse().map_or(ValueView::Digits(text), ValueView::Int),
            NodeKind::Float => match number(text) {
                Some(Value::Float(value)) if is_canonical(text, value) => ValueView::Float(value),
                Some(Value::Float(value)) => ValueView::Written(value, text),
                _ => ValueView::Digits(text),
            },
            NodeKind::Text => ValueView::Text(text.into()),
            NodeKind::Escaped => ValueView::Text(self.unescaped(node).into()),
            NodeKind::List => ValueView::List,
            NodeKind::Object => ValueView::Object,
        }
    }

    /// [`Value::size`] of the value at `place`.
    pub fn size(&self, place: u32) -> u64 {
        const SCALAR: u64 = 8;
        let nodes = &self.nodes[place as usize..self.node(place).end as usize];
        let size = |node: &Node| match node.kind {
            NodeKind::List | NodeKind::Object => 0,
            NodeKind::Null | NodeKind::True | NodeKind::False => SCALAR,
            NodeKind::Text => SCALAR + u64::from(node.len),
            NodeKind::Escaped => SCALAR + self.unescaped(node).len() as u64,
            NodeKind::Int if node.len < 19 => SCALAR,
            NodeKind::Float if node.len < 300 && !has_exponent(self.text(node)) => SCALAR,
            NodeKind::Int | NodeKind::Float => match number(self.text(node)) {
                Some(_) => SCALAR,
                None => SCALAR + u64::from(node.len),
            },
        };
        nodes.iter().map(size).sum()
    }
}
