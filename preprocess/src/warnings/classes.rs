//! Warnings of the classes of a target and of their rows in each split.

use std::collections::BTreeMap;

use feedline_schemas::{
    config::Task,
    count::counted,
    manifest::ClassCounts,
    report::Warning,
    transform::{FittedTarget, TransformArtefact},
};

use super::{
    message::{COLUMNS, GROUPS, first_of, percent, quoted, warned_columns, warning},
    spelling::{alike, difference, is_number, remedy},
};
use crate::{
    schema::{landed_columns::shown, reject_reason},
    transform::reason,
};

/// Key that lists the classes of a target.
const KEY_CLASSES: &str = "dataset.classes";

/// Minimum class count for the check of a classification.
const MANY_CLASSES: usize = 32;

/// Mean rows per class below which a target has too many classes.
const FEW_ROWS: u64 = 20;

/// Fewest training rows of a class whose absence from a split with several others is worth a warning: of a tenth of all rows, one
/// is expected there.
pub(super) const TRAINED: u64 = 10;

/// Warns of a target that has the same class in all training rows.
pub(crate) fn one_class(artefact: &TransformArtefact) -> Option<Warning> {
    let Some(FittedTarget::Classification {
        column,
        classes,
        counts,
    }) = &artefact.target
    else {
        return None;
    };
    let mut present = classes.iter().zip(counts).filter(|(_, rows)| **rows > 0);
    let (class, rows) = present.next()?;
    if present.next().is_some() {
        return None;
    }
    let message = format!(
        "target `{}` has the class {} in all {rows} training rows, so a model learns nothing and its metrics say nothing; choose another target, \
         or add rows of other classes",
        shown(column),
        quoted(class)
    );
    Some(
        warning("one_class", "dataset.target", message)
            .with_columns(warned_columns([column.as_str()])),
    )
}

/// Warns of classes that were trained on and have no row in validation or test, which have `rows` (training, validation, test).
/// Rare classes are named where all rows of the split have the same class: its metrics are of that one alone.
pub(crate) fn without_rows(
    artefact: &TransformArtefact,
    counts: &[ClassCounts],
    rows: [u64; 3],
) -> Option<Warning> {
    let Some(FittedTarget::Classification { column, .. }) = &artefact.target else {
        return None;
    };
    let fewest = |rows: fn(&ClassCounts) -> u64| {
        let present = counts.iter().filter(|class| rows(class) > 0);
        if present.count() > 1 { TRAINED } else { 1 }
    };
    let fewest = [fewest(|class| class.validation), fewest(|class| class.test)];
    let absent = |class: &ClassCounts| {
        let splits = [
            ("validation", class.validation, rows[1], fewest[0]),
            ("test", class.test, rows[2], fewest[1]),
        ];
        let is_absent = |own: u64, all: u64, fewest| own == 0 && all > 0 && class.train >= fewest;
        let absent = splits
            .iter()
            .filter(|(_, own, all, fewest)| is_absent(*own, *all, *fewest));
        let names: Vec<&str> = absent.map(|(name, ..)| *name).collect();
        (!names.is_empty()).then(|| {
            format!(
                "{} ({}, none of {})",
                quoted(&class.name),
                counted(class.train, "training row"),
                names.join(" and ")
            )
        })
    };
    let found: Vec<String> = counts.iter().filter_map(absent).collect();
    (!found.is_empty()).then(|| {
        let message = format!(
            "classes of `{}` are absent from a split, whose metrics say nothing of them: {}; larger splits or another \
             `dataset.split.salt` may have them",
            shown(column),
            first_of(&found, COLUMNS)
        );
        warning("classes_absent_from_split", "dataset.split", message)
            .with_columns(warned_columns([column.as_str()]))
    })
}

/// Warns of labels that are alike, of listed classes without rows, and of very many classes.
pub(super) fn class_warnings(artefact: &TransformArtefact) -> Vec<Warning> {
    let Some(FittedTarget::Classification {
        column,
        classes,
        counts,
    }) = &artefact.target
    else {
        return Vec::new();
    };
    let found = [
        labels_alike(column, classes, counts),
        classes_without_rows(column, classes, counts),
        many_classes(column, classes, artefact.fitted_rows),
    ];
    found.into_iter().flatten().collect()
}

/// Warns of labels that differ in their spelling only.
fn labels_alike(column: &str, classes: &[String], counts: &[u64]) -> Option<Warning> {
    let alike = alike(classes.iter().zip(counts.iter().copied()));
    (!alike.is_empty()).then(|| {
        let message = format!(
            "labels of `{}` differ in {} only and are classes of their own: {}; {}",
            shown(column),
            difference(&alike),
            first_of(&alike, GROUPS),
            remedy(&alike)
        );
        warning("labels_alike", "dataset.sql", message).with_columns(warned_columns([column]))
    })
}

/// Warns of classes that the configuration lists and no training row has.
fn classes_without_rows(column: &str, classes: &[String], counts: &[u64]) -> Option<Warning> {
    let empty = classes.iter().zip(counts).filter(|(_, rows)| **rows == 0);
    let empty: Vec<String> = empty.map(|(class, _)| quoted(class)).collect();
    (!empty.is_empty()).then(|| {
        let message = format!(
            "no training row has a class of `{}` that `dataset.classes` lists, so no model can learn it: {}",
            shown(column),
            first_of(&empty, COLUMNS)
        );
        warning("classes_without_rows", KEY_CLASSES, message).with_columns(warned_columns([column]))
    })
}

/// Warns of very many classes that are numbers or have few rows each.
fn many_classes(column: &str, classes: &[String], rows: u64) -> Option<Warning> {
    let are_numbers = classes.iter().all(|class| is_number(class));
    let are_many = classes.len() >= MANY_CLASSES && are_numbers;
    (are_many || are_too_many(classes.len(), rows)).then(|| {
        let mean = mean_rows(classes.len(), rows);
        let numbers = match are_numbers {
            true => {
                ", all of them numbers; to predict a number set `dataset.task = \"regression\"`"
            }
            false => "; is this the column to predict?",
        };
        let message = format!(
            "target `{}` has {} classes in {rows} training rows, {} a class{numbers}",
            shown(column),
            classes.len(),
            counted(mean, "row")
        );
        warning("many_classes", "dataset.task", message).with_columns(warned_columns([column]))
    })
}

/// Returns true if `classes` of `rows` training rows are so many that few rows are left for each.
pub(super) fn are_too_many(classes: usize, rows: u64) -> bool {
    classes >= MANY_CLASSES && mean_rows(classes, rows) < FEW_ROWS
}

const fn mean_rows(classes: usize, rows: u64) -> u64 {
    match classes as u64 {
        0 => rows,
        classes => rows / classes,
    }
}

/// Returns the column and the classes of a target that is a class.
fn target_classes(artefact: &TransformArtefact) -> Option<(&str, &[String])> {
    match &artefact.target {
        Some(FittedTarget::Classification {
            column, classes, ..
        }) => Some((column, classes)),
        Some(FittedTarget::Regression { .. }) | None => None,
    }
}

/// Warns of classes of a target whose ids were others `before`.
pub(crate) fn moved_classes(
    before: &TransformArtefact,
    now: &TransformArtefact,
) -> Option<Warning> {
    let ((other, before), (column, now)) = target_classes(before).zip(target_classes(now))?;
    if column != other {
        return None;
    }
    let ids: BTreeMap<&String, usize> = before.iter().zip(0..).collect();
    let moved = now.iter().enumerate().filter_map(|(id, class)| {
        let old = ids.get(class).filter(|old| **old != id)?;
        Some(format!("{} from {old} to {id}", quoted(class)))
    });
    let moved: Vec<String> = moved.collect();
    (!moved.is_empty()).then(|| {
        let message = format!(
            "{} of `{}` {} than in the dataset before: {}; `train.init` matches classes by name, other readers must take the \
             names of the new dataset; list the classes to fix their ids",
            counted(moved.len() as u64, "class"),
            shown(column),
            if moved.len() == 1 { "has another id" } else { "have other ids" },
            first_of(&moved, COLUMNS)
        );
        warning("class_ids_moved", KEY_CLASSES, message).with_columns(warned_columns([column]))
    })
}

/// Warns of rows of classes that no training row has. `rows` were kept.
pub(crate) fn unknown_classes(
    rejected: &BTreeMap<String, u64>,
    column: &str,
    task: Task,
    rows: u64,
) -> Option<Warning> {
    let unknown = rejected.get(reason::UNKNOWN_CLASS).copied();
    let unknown = unknown.filter(|_| task == Task::Classification)?;
    let [have, were] = verbs(unknown);
    let message = format!(
        "{}, beside the {rows} that were kept ({}), {have} a class of `{}` that no training row has, and {were} \
         rejected as `{}`: the figures on validation and test rows are without them; a class that is listed here has an id \
         without training rows",
        counted(unknown, "row"),
        percent(unknown, rows + unknown),
        shown(column),
        reason::UNKNOWN_CLASS
    );
    Some(warning("unknown_classes", KEY_CLASSES, message).with_columns(warned_columns([column])))
}

/// Verbs of a sentence about so many rows.
const fn verbs(rows: u64) -> [&'static str; 2] {
    match rows {
        1 => ["has", "was"],
        _ => ["have", "were"],
    }
}

/// Warns of rows with labels that `dataset.classes` does not list. `rows` were kept.
pub(crate) fn unlisted_classes(
    rejected: &BTreeMap<String, u64>,
    column: &str,
    classes: &[String],
    rows: u64,
) -> Option<Warning> {
    let unlisted = rejected.get(reject_reason::UNLISTED_CLASS).copied()?;
    let classes: Vec<String> = classes.iter().map(|class| quoted(class)).collect();
    let [have, were] = verbs(unlisted);
    let message = format!(
        "{}, beside the {rows} that were kept ({}), {have} a label of `{}` that is none of the listed classes {}, and {were} \
         rejected as `{}`; the files of rejects have each label",
        counted(unlisted, "row"),
        percent(unlisted, rows + unlisted),
        shown(column),
        first_of(&classes, COLUMNS),
        reject_reason::UNLISTED_CLASS
    );
    Some(warning("unlisted_classes", KEY_CLASSES, message).with_columns(warned_columns([column])))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn artefact(counts: &[u64]) -> TransformArtefact {
        let classes: Vec<String> = (0..counts.len()).map(|i| format!("c{i}")).collect();
        let artefact = serde_json::json!({
            "format": "feedline.transform",
            "version": 1,
            "hash": "0".repeat(32),
            "fitted_rows": counts.iter().sum::<u64>(),
            "null_values": [],
            "missing_values": [],
            "inputs": [],
            "steps": [],
            "features": [],
            "target": {"task": "classification", "column": "y", "classes": classes, "counts": counts},
        });
        serde_json::from_value(artefact).unwrap()
    }

    #[test]
    fn a_target_of_one_class_is_a_warning() {
        for several in [&[3, 1][..], &[0, 1, 1]] {
            assert_eq!(one_class(&artefact(several)), None);
        }
        let found = one_class(&artefact(&[0, 70])).unwrap();
        assert_eq!(found.code, "one_class");
        let text = "target `y` has the class `c1` in all 70 training rows, so a model learns nothing and its metrics say nothing;";
        assert!(found.message.starts_with(text), "{}", found.message);
    }

    #[test]
    fn classes_without_rows_in_a_split_are_a_warning() {
        let class = |name: &str, train, validation, test| ClassCounts {
            name: name.to_owned(),
            train,
            validation,
            test,
        };
        let find = |counts: &[ClassCounts], rows| without_rows(&artefact(&[1, 1]), counts, rows);
        let common = class("a", 400, 50, 50);
        let second = class("c", 36, 1, 1);
        assert_eq!(find(&[common.clone(), second.clone()], [436, 51, 51]), None);
        let rare = class("b", 9, 0, 0);
        assert_eq!(find(&[common.clone(), second, rare], [445, 51, 51]), None);
        // All test rows have the same class.
        let fraud = [class("fraud", 6, 1, 0), class("ok", 394, 49, 50)];
        let found = find(&fraud, [400, 50, 50]).unwrap();
        let part = "of them: `fraud` (6 training rows, none of test);";
        assert!(found.message.contains(part), "{}", found.message);
        let rare = [common, class("b", 36, 0, 0), class("c", 20, 3, 0)];
        let found = find(&rare, [456, 53, 50]).unwrap();
        assert!(
            found.message.contains(
                "`b` (36 training rows, none of validation and test), `c` (20 training rows, none of test)"
            ),
            "{}",
            found.message
        );
        // A dataset without a test split.
        let found = find(&rare, [456, 53, 0]).unwrap();
        assert!(!found.message.contains("test)"), "{}", found.message);
    }
}
