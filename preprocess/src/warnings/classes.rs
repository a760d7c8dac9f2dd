//! Warnings of the classes of a target and of their rows in each split.

use feedline_schemas::{
    manifest::ClassCounts,
    report::Warning,
    transform::{FittedTarget, TransformArtefact},
};

use super::{COLUMNS, first_of, quoted, warning};
use crate::landed_columns::shown;

/// Fewest training rows of a class whose absence from a split is worth a warning: of a tenth of all rows, one is expected there.
const TRAINED: u64 = 10;

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
    Some(warning("one_class", "dataset.target", message))
}

/// Warns of classes that were trained on and have no row in validation or test, which have `rows` (training, validation, test).
pub(crate) fn without_rows(
    artefact: &TransformArtefact,
    counts: &[ClassCounts],
    rows: [u64; 3],
) -> Option<Warning> {
    let Some(FittedTarget::Classification { column, .. }) = &artefact.target else {
        return None;
    };
    let absent = |class: &ClassCounts| {
        let splits = [
            ("validation", class.validation, rows[1]),
            ("test", class.test, rows[2]),
        ];
        let absent = splits.iter().filter(|(_, own, all)| *own == 0 && *all > 0);
        let names: Vec<&str> = absent.map(|(name, ..)| *name).collect();
        (class.train >= TRAINED && !names.is_empty()).then(|| {
            format!(
                "{} ({} training rows, none of {})",
                quoted(&class.name),
                class.train,
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
    })
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
        for fine in [class("b", 36, 1, 1), class("b", 9, 0, 0)] {
            assert_eq!(find(&[common.clone(), fine], [436, 51, 51]), None);
        }
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
