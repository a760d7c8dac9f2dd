//! Values of a document beside its records, for signs of further pages.

use feedline_readers::{
    json::{NodeKind, Tape},
    value::Value,
};

/// The document of `tape` without the items of its lists.
pub(super) fn beside_lists_of(tape: &Tape) -> Value {
    without_items(tape, 0)
}

fn without_items(tape: &Tape, place: u32) -> Value {
    match tape.node(place).kind {
        NodeKind::List => Value::List(Vec::new()),
        NodeKind::Object => {
            let entry = |below: u32| {
                let name = tape.keys.name(tape.node(below).key);
                (name.to_owned(), without_items(tape, below))
            };
            Value::Object(tape.below(place).map(entry).collect())
        }
        _ => tape.value(place),
    }
}

/// The `document` without the items of its lists.
pub(super) fn beside_lists(document: &Value) -> Value {
    match document {
        Value::List(_) => Value::List(Vec::new()),
        Value::Object(entries) => {
            let entry = |(key, value): &(String, Value)| (key.clone(), beside_lists(value));
            Value::Object(entries.iter().map(entry).collect())
        }
        other => other.clone(),
    }
}
