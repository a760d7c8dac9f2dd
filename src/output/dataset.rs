//! Default decisions of a build as text: columns that are no features, classes.

use std::{collections::BTreeMap, fmt};

use feedline_schemas::transform::{FittedTarget, TransformArtefact};

use super::line;

/// Most classes that the list shows.
const CLASSES: usize = 20;

/// Writes a line for each landed column that is no feature by default.
pub(super) fn write_dropped(dropped: &BTreeMap<String, String>, out: &mut String) -> fmt::Result {
    for (column, reason) in dropped {
        line(out, "no feature", format!("{column}: it {reason}"))?;
    }
    Ok(())
}

/// Writes the classes of a target by falling count, each with its training rows. Quotes make blanks
/// at the ends of labels visible.
pub(super) fn write_classes(transform: &TransformArtefact, out: &mut String) -> fmt::Result {
    let Some(FittedTarget::Classification {
        column,
        classes,
        counts,
    }) = &transform.target
    else {
        return Ok(());
    };
    let first = classes.iter().zip(counts).take(CLASSES);
    let first = first.map(|(class, rows)| format!("{class:?} ({rows})"));
    let first: Vec<String> = first.collect();
    let more = match classes.len().saturating_sub(CLASSES) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let text = format!(
        "{column}: {}{more}, with their training rows",
        first.join(", ")
    );
    line(out, "classes", text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_of_a_label_are_seen_among_the_classes() {
        let transform = serde_json::json!({
            "format": "feedline.transform",
            "version": 1,
            "hash": "0".repeat(32),
            "fitted_rows": 7,
            "null_values": [],
            "missing_values": [],
            "inputs": [],
            "steps": [],
            "features": [],
            "target": {
                "task": "classification",
                "column": "status",
                "classes": ["good", "good "],
                "counts": [5, 2],
            },
        });
        let transform: TransformArtefact = serde_json::from_value(transform).unwrap();
        let mut out = String::new();
        write_classes(&transform, &mut out).unwrap();
        assert!(
            out.contains("status: \"good\" (5), \"good \" (2), with their training rows"),
            "{out}"
        );
    }
}
