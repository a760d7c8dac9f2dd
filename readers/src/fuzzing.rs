//! Fuzz targets: each reads the bytes of one foreign format, and checks what must hold for any bytes.
//!
//! They are built for tests, which replay `fuzz/corpus/`, and for `cargo fuzz`, which sets
//! `cfg(fuzzing)`.

#![expect(
    clippy::missing_panics_doc,
    reason = "a panic is the finding of a target"
)]

mod files;

use feedline_schemas::config::{Bounded, JsonConfig};

pub use self::files::{arrow, csv, idx, json_file, ndjson, parquet, tar, zip};
use crate::{
    json::{self, Reader},
    notices::Notices,
    value::Value,
    xml::{self, XmlRules},
};

/// Bounds that small inputs exceed.
fn tight() -> JsonConfig {
    JsonConfig {
        max_depth: Bounded::literal::<3>(),
        max_keys: Bounded::literal::<3>(),
        max_items: Bounded::literal::<5>(),
        max_text_bytes: Bounded::literal::<9>(),
    }
}

/// A page of JSON: the parser of trees and the reader of tapes agree, and a value that is printed
/// parses to itself.
pub fn json(data: &[u8]) {
    for bounds in [JsonConfig::default(), tight()] {
        let mut reader = Reader::default();
        let tree = json::parse(data, &bounds, 0);
        match &tree {
            Ok(value) => check_printed(value),
            // The flaws of UTF-16 have no place.
            Err(reason) => assert!(
                reason.contains("byte") || reason.contains("UTF-16"),
                "no place in `{reason}`"
            ),
        }
        // The second time all paths are known.
        for _ in 0..2 {
            match reader.read(data.to_vec(), &bounds) {
                Ok(tape) => {
                    let tree = tree.as_ref().expect("a tape has a tree");
                    let value = tape.value(0);
                    assert_eq!(value.canonical_and_faults(), (tree.canonical(), false));
                    assert_eq!(&value, tree);
                    assert_eq!(tape.size(0), tree.size());
                }
                Err(bytes) => assert_eq!(bytes, data),
            }
        }
    }
}

/// Checks that the canonical form of a value without faults is a document, and its own canonical
/// form.
fn check_printed(value: &Value) {
    let (text, has_faults) = value.canonical_and_faults();
    if has_faults {
        assert!(value.fault().is_some());
        return;
    }
    let again = json::parse(text.as_bytes(), &JsonConfig::default(), 0);
    let again = again.expect("the canonical form is a document");
    assert_eq!(again.canonical_and_faults(), (text, false));
}

/// An XML document, with and without bounds that it exceeds.
pub fn xml(data: &[u8]) {
    for (bounds, content_type) in [
        (JsonConfig::default(), ""),
        (JsonConfig::default(), "text/xml; charset=iso-8859-1"),
        (tight(), "application/xml"),
    ] {
        let notices = Notices::default();
        let rules = XmlRules {
            bounds: &bounds,
            notices: &notices,
        };
        match xml::parse(data, content_type, rules) {
            Ok(value) => {
                let is_root = matches!(&value, Value::Object(root) if root.len() == 1);
                assert!(is_root, "{value:?}");
                check_printed(&value);
            }
            Err(reason) => assert!(!reason.is_empty()),
        }
    }
    if let Ok(text) = std::str::from_utf8(data) {
        // A request with `{}` in its body: the marker is found in any document or in none.
        xml::is_outside_of_values(text, "{}");
    }
}

#[cfg(test)]
mod tests {
    feedline_testkit::fuzz_replay::replays! {
        arrow csv idx json json_file ndjson parquet tar xml zip
    }
}
