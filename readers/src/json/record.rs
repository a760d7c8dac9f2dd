//! A record of a document that is a tape.

use std::sync::Arc;

use super::tape::Tape;
use crate::value::Value;

/// An object of a document.
#[derive(Clone, Debug)]
pub struct JsonRecord {
    /// The document.
    pub tape: Arc<Tape>,
    /// Index of its node.
    pub place: u32,
}

impl JsonRecord {
    /// Its path in the document.
    pub fn key(&self) -> u32 {
        self.tape.node(self.place).key
    }

    /// Value of the record as a tree.
    pub fn value(&self) -> Value {
        self.tape.value(self.place)
    }

    /// [`Value::size`] of it.
    pub fn size(&self) -> u64 {
        self.tape.size(self.place)
    }
}

impl PartialEq for JsonRecord {
    fn eq(&self, other: &Self) -> bool {
        self.value() == other.value()
    }
}
