//! A record of a tape as its canonical form and its leaves, in one walk.

use std::mem;

use super::{
    number::{is_canonical, write_canonical},
    tape::{Node, NodeKind, Tape},
    write_text,
};
use crate::{
    cell::{Cell, Held},
    value::Value,
};

/// A number that no cell holds, or a string that is too long for one: the record needs a value
/// tree.
#[derive(Clone, Copy, Debug)]
pub struct NoCell;

/// A value that becomes a cell: its kind and path.
#[derive(Clone, Copy, Debug)]
pub struct Leaf {
    /// Number of its path.
    pub key: u32,
    /// The value.
    pub cell: Cell,
}

/// Order of the keys of an object as it was last met.
#[derive(Debug, Default)]
struct Order {
    /// Keys in document order.
    keys: Vec<u32>,
    /// Their indices in byte order.
    sorted: Vec<u32>,
}

/// Walks records.
#[derive(Debug, Default)]
pub struct Walk {
    orders: Vec<Order>,
    /// Nodes of the objects being written.
    open: Vec<u32>,
    /// Leaves of the record, in the order of its canonical form.
    pub leaves: Vec<Leaf>,
    /// Strings with escapes in the canonical form: number of the leaf, unescaped string.
    pub unescaped: Vec<(usize, String)>,
    /// Leaves with numbers whose text is another one than in the canonical form: number of the
    /// leaf, its node.
    pub rewritten: Vec<(usize, u32)>,
    /// True if the value that is being written has such a number.
    is_rewritten: bool,
    /// True if numbers are written as they are in the document.
    keeps_numbers: bool,
}

impl Walk {
    /// Appends the canonical form of the record at `place` to `out`, and finds its leaves, whose
    /// texts are in `out`. Objects at `levels` below the record, and those that are `whole`, are
    /// leaves.
    ///
    /// # Errors
    /// [`NoCell`] if the record needs a value tree.
    pub fn record(
        &mut self,
        tape: &Tape,
        place: u32,
        levels: u32,
        whole: &mut impl FnMut(u32) -> bool,
        out: &mut String,
    ) -> Result<(), NoCell> {
        self.open.clear();
        self.leaves.clear();
        self.unescaped.clear();
        self.rewritten.clear();
        self.object(tape, place, levels, whole, out)
    }

    /// Appends the value at `place` to `out` as [`Value::written`] does.
    ///
    /// # Errors
    /// [`NoCell`] only for a value that [`Self::record`] has not walked.
    pub fn write(&mut self, tape: &Tape, place: u32, out: &mut String) -> Result<(), NoCell> {
        self.keeps_numbers = true;
        let written = self.inside(tape, place, out);
        self.keeps_numbers = false;
        written
    }

    fn object(
        &mut self,
        tape: &Tape,
        place: u32,
        levels: u32,
        whole: &mut impl FnMut(u32) -> bool,
        out: &mut String,
    ) -> Result<(), NoCell> {
        let key = tape.node(place).key as usize;
        let first = self.open.len();
        self.open.extend(tape.below(place));
        let count = self.open.len() - first;
        self.sort(tape, key, first);
        out.push('{');
        for i in 0..count {
            if i > 0 {
                out.push(',');
            }
            let below = self.open[first + self.orders[key].sorted[i] as usize];
            let node = tape.node(below);
            out.push_str(tape.keys.written(node.key));
            self.entry(tape, below, levels, whole, out)?;
        }
        out.push('}');
        self.open.truncate(first);
        Ok(())
    }

    /// Adds the value of a key; `levels` levels of its object become columns.
    fn entry(
        &mut self,
        tape: &Tape,
        place: u32,
        levels: u32,
        whole: &mut impl FnMut(u32) -> bool,
        out: &mut String,
    ) -> Result<(), NoCell> {
        let node = tape.node(place);
        if levels == 0 {
            return self.inside(tape, place, out);
        }
        self.is_rewritten = false;
        let cell = match node.kind {
            NodeKind::Object if levels > 1 && node.end > place + 1 && !whole(node.key) => {
                return self.object(tape, place, levels - 1, whole, out);
            }
            NodeKind::Object | NodeKind::List => {
                let start = out.len();
                self.inside(tape, place, out)?;
                Cell::text(Held::Json, start, out.len()).ok_or(NoCell)?
            }
            NodeKind::Escaped => {
                let text = tape.unescaped(node);
                write_text(&text, out);
                self.unescaped.push((self.leaves.len(), text));
                Cell::NULL
            }
            _ => self.scalar(tape, node, out)?,
        };
        if mem::take(&mut self.is_rewritten) {
            self.rewritten.push((self.leaves.len(), place));
        }
        self.leaves.push(Leaf {
            key: node.key,
            cell,
        });
        Ok(())
    }

    /// A value inside a leaf.
    fn inside(&mut self, tape: &Tape, place: u32, out: &mut String) -> Result<(), NoCell> {
        let node = tape.node(place);
        match node.kind {
            NodeKind::Object => self.object(tape, place, 0, &mut |_| false, out)?,
            NodeKind::List => {
                out.push('[');
                for (i, item) in tape.below(place).enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    self.inside(tape, item, out)?;
                }
                out.push(']');
            }
            NodeKind::Escaped => write_text(&tape.unescaped(node), out),
            _ => {
                self.scalar(tape, node, out)?;
            }
        }
        Ok(())
    }

    /// Writes a value that has nothing below it and no escapes.
    fn scalar(&mut self, tape: &Tape, node: &Node, out: &mut String) -> Result<Cell, NoCell> {
        let text = tape.text(node);
        Ok(match node.kind {
            NodeKind::Int | NodeKind::Float if self.keeps_numbers => {
                out.push_str(text);
                Cell::NULL
            }
            NodeKind::Int => {
                out.push_str(text);
                Cell::int(text.parse().map_err(|_| NoCell)?)
            }
            NodeKind::Float => {
                let Some(Value::Float(value)) = super::number(text) else {
                    return Err(NoCell);
                };
                if is_canonical(text, value) {
                    out.push_str(text);
                } else {
                    self.is_rewritten = true;
                    write_canonical(text, value, out);
                }
                Cell::float(value)
            }
            NodeKind::Text => {
                out.push('"');
                let start = out.len();
                out.push_str(text);
                let cell = Cell::text(Held::Text, start, out.len());
                out.push('"');
                cell.ok_or(NoCell)?
            }
            kind => {
                out.push_str(text);
                match kind {
                    NodeKind::True => Cell::bool(true),
                    NodeKind::False => Cell::bool(false),
                    _ => Cell::NULL,
                }
            }
        })
    }

    /// Sorts the nodes from `first` on, which are those of an object with the path `key`, by their
    /// keys.
    fn sort(&mut self, tape: &Tape, key: usize, first: usize) {
        if self.orders.len() <= key {
            self.orders.resize_with(key + 1, Order::default);
        }
        let order = &mut self.orders[key];
        let open = &self.open[first..];
        let keys = || open.iter().map(|place| tape.node(*place).key);
        if keys().eq(order.keys.iter().copied()) {
            return;
        }
        order.keys.clear();
        order.keys.extend(keys());
        order.sorted.clear();
        order.sorted.extend((0..).take(open.len()));
        let Order { keys, sorted } = order;
        sorted.sort_unstable_by_key(|i| tape.keys.name(keys[*i as usize]).as_bytes());
    }
}
