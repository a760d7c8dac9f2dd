//! Boxes of an image.
//!
//! A cell is null or a JSON list, of `[x, y, width, height]` or of objects with that list as `bbox`
//! (as COCO has it) and an optional `label` (or `category_id`, or `category`), text or an integer:
//! in pixels of the image, upright or as stored in its file. The stored value is the text of a list
//! of such objects, in pixels of the stored image, upright.

use feedline_image::Mapping;
use feedline_schemas::config::BoxesOn;
use serde::Serialize;
use serde_json::Value;

/// Most boxes of an image.
const MOST: usize = 100_000;

/// The boxes of an image as they are stored.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Boxes {
    /// JSON.
    pub(super) text: String,
    /// Number of stored boxes.
    pub(super) kept: u32,
    /// Number of boxes that lost all of their area.
    pub(super) lost: u32,
}

#[derive(Serialize)]
struct Stored<'a> {
    bbox: [f64; 4],
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<&'a Value>,
}

/// The boxes of a cell, moved with the image.
///
/// # Errors
/// Description of the fault.
pub(super) fn moved(
    cell: Option<&str>,
    drawn_on: BoxesOn,
    mapping: &Mapping,
) -> Result<Boxes, String> {
    let list = match cell.filter(|cell| !cell.trim().is_empty()) {
        None => Vec::new(),
        Some(cell) => match serde_json::from_str(cell) {
            Ok(Value::Array(list)) => list,
            Ok(Value::Null) => Vec::new(),
            Ok(_) => return Err("it is no list".into()),
            Err(error) => return Err(format!("it is not JSON: {error}")),
        },
    };
    if list.len() > MOST {
        return Err(format!("it has {} boxes, more than {MOST}", list.len()));
    }
    let mut stored = Vec::with_capacity(list.len());
    let mut lost = 0;
    for (number, element) in list.iter().enumerate() {
        let (bbox, label) = read(element).map_err(|fault| format!("box {number}: {fault}"))?;
        let moved = match drawn_on {
            BoxesOn::Upright => mapping.of_upright(bbox),
            BoxesOn::File => mapping.of_file(bbox),
        };
        match moved {
            Some(bbox) => stored.push(Stored { bbox, label }),
            None => lost += 1,
        }
    }
    let text = serde_json::to_string(&stored).map_err(|error| error.to_string())?;
    let kept = u32::try_from(stored.len()).unwrap_or(u32::MAX);
    Ok(Boxes { text, kept, lost })
}

/// Keys of a label; the first that exists counts.
const LABELS: [&str; 3] = ["label", "category_id", "category"];

/// Most characters of a cell that are shown.
const SHOWN: usize = 100;

/// A box and its label.
fn read(element: &Value) -> Result<([f64; 4], Option<&Value>), String> {
    let (bbox, label) = match element {
        Value::Array(_) => (element, None),
        Value::Object(entries) => {
            let bbox = entries.get("bbox").ok_or("it has no `bbox`")?;
            let label = LABELS.iter().find_map(|key| entries.get(*key));
            (bbox, label.filter(|label| !label.is_null()))
        }
        _ => return Err("it is neither a list nor an object".into()),
    };
    let is_label = |label: &Value| label.is_string() || label.is_i64() || label.is_u64();
    if let Some(label) = label.filter(|label| !is_label(label)) {
        let label = shown(label);
        return Err(format!(
            "its label `{label}` is neither text nor an integer"
        ));
    }
    let numbers = bbox.as_array().map(Vec::as_slice).unwrap_or_default();
    let numbers: Option<Vec<f64>> = numbers.iter().map(Value::as_f64).collect();
    let Some(&[x, y, width, height]) = numbers.as_deref() else {
        let bbox = shown(bbox);
        return Err(format!(
            "`{bbox}` is not four numbers: x, y, width and height"
        ));
    };
    if width < 0.0 || height < 0.0 {
        return Err(format!("`{bbox}` has a side below 0"));
    }
    Ok(([x, y, width, height], label))
}

fn shown(value: &Value) -> String {
    value.to_string().chars().take(SHOWN).collect()
}

#[cfg(test)]
mod tests {
    use feedline_image::{Encoding, Filter, ImageLimits, Preparation, Preparer, Sizing};

    use super::*;

    /// Of an image of 40 x 20 pixels to one of half the sides.
    fn mapping() -> Mapping {
        let file = Encoding::Png.encode(&[9; 2400], 40, 20).unwrap();
        let how = Preparation {
            sizing: Sizing::ShorterSide(10),
            filter: Filter::Bilinear,
            encoding: Some(Encoding::Png),
            keep_original: false,
            limits: ImageLimits::DEFAULT,
            scaled_decoding: false,
            background: None,
            hashes: false,
        };
        Preparer::new(how).prepare(&file).unwrap().mapping
    }

    #[test]
    fn boxes_of_both_kinds_move_with_their_labels_and_empty_ones_are_counted() {
        let cell = r#"[[2, 4, 6.5, 8], {"bbox": [30, 10, 99, 99], "label": "cat", "id": 7}, {"bbox": [0, 0, 2, 2], "label": 3},
            [41, 0, 5, 5], {"bbox": [0, 0, 4, 0], "label": null}, {"bbox": [0, 0, 4, 4], "category_id": 1}]"#;
        let found = moved(Some(cell), BoxesOn::Upright, &mapping()).unwrap();
        let expected = r#"[{"bbox":[1.0,2.0,3.25,4.0]},{"bbox":[15.0,5.0,5.0,5.0],"label":"cat"},{"bbox":[0.0,0.0,1.0,1.0],"label":3},{"bbox":[0.0,0.0,2.0,2.0],"label":1}]"#;
        assert_eq!(found.text, expected);
        assert_eq!((found.kept, found.lost), (4, 2));
        for empty in [None, Some(""), Some("null"), Some("[]")] {
            let found = moved(empty, BoxesOn::File, &mapping()).unwrap();
            assert_eq!(found.text, "[]");
        }
    }

    #[test]
    fn only_boxes_that_were_drawn_on_the_file_are_turned() {
        // Its first column becomes the lowest row.
        let turned = r#"{"orientation": {"transpose": true, "flip_x": true, "flip_y": false}, "file_sides": [40, 20],
            "sizing": "Original"}"#;
        let turned: Mapping = serde_json::from_str(turned).unwrap();
        let check = |on, expected: &str| {
            let found = moved(Some("[[0, 1, 3, 2]]"), on, &turned).unwrap();
            assert_eq!(found.text, expected);
        };
        check(BoxesOn::Upright, r#"[{"bbox":[0.0,1.0,3.0,2.0]}]"#);
        check(BoxesOn::File, r#"[{"bbox":[1.0,37.0,2.0,3.0]}]"#);
    }

    #[test]
    fn what_is_no_list_of_boxes_is_refused() {
        let check = |cell: &str, part: &str| {
            let fault = moved(Some(cell), BoxesOn::Upright, &mapping()).unwrap_err();
            assert!(fault.contains(part), "{fault}");
        };
        check("[", "it is not JSON");
        check("{}", "it is no list");
        check("[7]", "box 0: it is neither");
        check("[[1, 2, 3, 4], {}]", "box 1: it has no `bbox`");
        check("[[1, 2, 3]]", "is not four numbers");
        check(r#"[[1, 2, 3, "4"]]"#, "is not four numbers");
        check(r#"[["NaN", 2, 3, 4]]"#, "is not four numbers");
        check("[[1, null, 3, 4]]", "is not four numbers");
        check("[[1, 2, NaN, 4]]", "it is not JSON");
        check("[[1, 2, 1e400, 4]]", "it is not JSON");
        check("7.5", "it is no list");
        check("[[1, 2, -3, 4]]", "a side below 0");
        check(
            r#"[{"bbox": [1, 2, 3, 4], "label": [1]}]"#,
            "neither text nor an integer",
        );
    }
}
