//! Default decisions of a build as text: columns that are no features, classes.

use std::{collections::BTreeMap, fmt};

use feedline_preprocess::COLUMNS_DROPPED;
use feedline_schemas::{
    count::first_of,
    manifest::ClassCounts,
    report::Warning,
    transform::{FittedTarget, TransformArtefact},
};

use super::text::{line, number};

/// Most columns that a line shows.
const COLUMNS: usize = 10;

/// Most classes that the list shows.
const CLASSES: usize = 20;

/// Writes a line for each landed column that is no feature by default.
pub(super) fn write_dropped(dropped: &BTreeMap<String, String>, out: &mut String) -> fmt::Result {
    for (column, reason) in dropped {
        line(out, "no feature", format!("{column}: it {reason}"))?;
    }
    Ok(())
}

/// Writes a line for each key that names some of these columns for another use, so that they are no features.
pub(crate) fn write_other_uses(
    columns: &BTreeMap<String, String>,
    out: &mut String,
) -> fmt::Result {
    let mut by_reason: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (column, reason) in columns {
        let named = format!("`{column}`");
        by_reason.entry(reason).or_default().push(named);
    }
    for (reason, columns) in by_reason {
        let named = first_of(&columns, COLUMNS);
        let each = if columns.len() == 1 { "it" } else { "each" };
        line(out, "  no feature", format!("{named}: {each} {reason}"))?;
    }
    Ok(())
}

/// Writes the same for the columns of `dropped` that no warning is about: a key names them for another use.
pub(super) fn write_unwarned(
    dropped: &BTreeMap<String, String>,
    warnings: &[Warning],
    out: &mut String,
) -> fmt::Result {
    let is_warned = |column: &str| {
        let mut dropped = warnings.iter().filter(|w| w.code == COLUMNS_DROPPED);
        dropped.any(|warning| warning.is_about(column))
    };
    let others = dropped.iter().filter(|(column, _)| !is_warned(column));
    let others = others.map(|(column, reason)| (column.clone(), reason.clone()));
    write_other_uses(&others.collect(), out)
}

/// Writes the classes of a target by id, each with its rows. Quotes make blanks at the ends of
/// labels visible.
pub(super) fn write_classes(
    transform: &TransformArtefact,
    classes: &[ClassCounts],
    out: &mut String,
) -> fmt::Result {
    let Some(FittedTarget::Classification { column, .. }) = &transform.target else {
        return Ok(());
    };
    line(
        out,
        "classes",
        format!("{column}: {}, by id", classes.len()),
    )?;
    for (id, class) in classes.iter().take(CLASSES).enumerate() {
        let ClassCounts {
            name,
            train,
            validation,
            test,
        } = class;
        let text = format!("{name:?}: {train} train, {validation} validation, {test} test");
        line(out, &format!("  class {id}"), text)?;
    }
    match classes.len().saturating_sub(CLASSES) {
        0 => Ok(()),
        more => line(out, "", format!("and {more} more; `--json` lists all")),
    }
}

/// Writes the class that `f1` refers to.
pub(super) fn write_positive(classes: &[String], out: &mut String) -> fmt::Result {
    match classes {
        [_, positive] => line(out, "f1 of", format!("class 1, {positive:?}")),
        _ => Ok(()),
    }
}

/// Writes the fitted numbers of several targets, each by its name.
pub(super) fn write_numbers(transform: &TransformArtefact, out: &mut String) -> fmt::Result {
    if transform.other_targets.is_empty() {
        return Ok(());
    }
    transform.targets().try_for_each(|target| match target {
        FittedTarget::Regression {
            column,
            mean,
            scale,
            offset,
        } => {
            let (mean, offset, scale) = (number(*mean), number(*offset), number(*scale));
            let text = format!("{column}: mean {mean}, stored less {offset}, divided by {scale}");
            line(out, "target", text)
        }
        FittedTarget::Classification { .. } => Ok(()),
    })
}

/// Writes the number of rejected rows of each of several targets.
pub(super) fn write_rejected_targets(
    targets: &BTreeMap<String, u64>,
    out: &mut String,
) -> fmt::Result {
    targets.iter().try_for_each(|(target, rows)| {
        line(out, "  for target", format!("{rows} without `{target}`"))
    })
}

/// Writes the meaning of metrics over several targets.
pub(super) fn write_targets(targets: &[String], out: &mut String) -> fmt::Result {
    match targets {
        [] => Ok(()),
        _ => line(
            out,
            "of all",
            "rmse and mae without a target are over the targets as stored (standardized, unless `dataset.scale_target` is false); r2 is \
             their mean",
        ),
    }
}

#[cfg(test)]
mod tests {
    use feedline_schemas::report::WarnedColumn;

    use super::*;

    #[test]
    fn columns_that_keys_name_for_another_use_are_on_one_line_for_each_key() {
        let named =
            |key: &str| format!("is named in `{key}`, and `dataset.features` does not list it");
        let dropped = [
            ("lat", named("dataset.passthrough")),
            ("lon", named("dataset.passthrough")),
            ("owner", named("dataset.split.key")),
            ("nothing", "holds no value in any row".to_owned()),
        ];
        let dropped = dropped.map(|(name, reason)| (name.to_owned(), reason));
        let warned = |code: &str, column: &str| {
            Warning::new(code, "it is no feature").with_columns(vec![WarnedColumn::new(column)])
        };
        let warnings = [
            warned(COLUMNS_DROPPED, "nothing"),
            warned("unknown_categories", "owner"),
        ];
        let mut out = String::new();
        write_unwarned(&dropped.into(), &warnings, &mut out).unwrap();
        let expected = "    no feature     `lat`, `lon`: each is named in `dataset.passthrough`, and `dataset.features` does not \
                        list it\n    no feature     `owner`: it is named in `dataset.split.key`, and `dataset.features` does not \
                        list it\n";
        assert_eq!(out, expected);
    }

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
        let class = |name: &str, train| ClassCounts {
            name: name.to_owned(),
            train,
            validation: 1,
            test: 0,
        };
        let mut out = String::new();
        write_classes(&transform, &[class("good", 5), class("good ", 2)], &mut out).unwrap();
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines: Vec<String> = out.lines().map(words).collect();
        assert_eq!(
            lines,
            [
                "classes status: 2, by id",
                "class 0 \"good\": 5 train, 1 validation, 0 test",
                "class 1 \"good \": 2 train, 1 validation, 0 test",
            ]
        );
    }
}
