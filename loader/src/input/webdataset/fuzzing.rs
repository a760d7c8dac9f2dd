//! Fuzz target of the labels of a WebDataset.

#![expect(
    clippy::missing_panics_doc,
    reason = "a panic is the finding of a target"
)]

use super::{
    label::{Label, label_in_json, label_in_text},
    members::split_name,
};

/// A label in a member of text, and in one of JSON; and the name of a member. An integer is read as
/// itself in both.
pub fn webdataset_labels(data: &[u8]) {
    for label in [label_in_text(data), label_in_json(data, "label")] {
        match label {
            Ok(Some(Label::Integer(number))) => {
                let text = number.to_string();
                let json = format!("{{\"label\":{text}}}");
                for again in [
                    label_in_text(text.as_bytes()),
                    label_in_json(json.as_bytes(), "label"),
                ] {
                    assert!(matches!(again, Ok(Some(Label::Integer(again))) if again == number));
                }
            }
            Ok(_) => {}
            Err(reason) => assert!(!reason.is_empty()),
        }
    }
    if let Ok(name) = std::str::from_utf8(data)
        && let Some((key, extension)) = split_name(name)
    {
        assert_eq!(format!("{key}.{extension}"), name);
    }
}
