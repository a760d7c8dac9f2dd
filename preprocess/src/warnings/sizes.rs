//! Warnings of splits and classes of few rows, and of classes of very unequal size.

use feedline_schemas::{count::counted, manifest::ClassCounts, report::Warning};

use super::{
    classes::{TRAINED, are_too_many},
    message::{COLUMNS, first_of, percent, quoted, share, warned_columns, warning},
};
use crate::schema::landed_columns::shown;

/// Rows of a validation or test split below which its metrics are mostly chance: of 30 rows, an accuracy of 0.8 has a
/// standard error of 0.07.
const JUDGED: u64 = 30;

/// Fraction of the training rows in one class above which accuracy is no measure of a model.
const UNBALANCED: f64 = 0.95;

const FEW_SPLIT_ROWS: &str = "few_split_rows";
const RARE_CLASSES: &str = "rare_classes";
const CLASSES_UNBALANCED: &str = "classes_unbalanced";

/// Codes of these warnings: appended rows may end them.
pub(super) const OF_SIZES: [&str; 3] = [FEW_SPLIT_ROWS, RARE_CLASSES, CLASSES_UNBALANCED];

/// Key that moves rows to a split, and the advice that names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SplitKey {
    /// Fractions of the rows.
    Fractions,
    /// Boundaries in time.
    Until,
    /// Rows that name their split, or a source that is one.
    Named,
}

impl SplitKey {
    const fn advice(self) -> &'static str {
        match self {
            Self::Fractions => {
                "land more rows, or raise `dataset.split.validation` and `dataset.split.test`"
            }
            Self::Until => "land more rows, or set earlier times in `dataset.split.until`",
            Self::Named => "land more rows of these splits",
        }
    }
}

/// Warns of a validation or test split with few of the `rows` (training, validation, test).
pub(crate) fn few_split_rows(rows: [u64; 3], key: SplitKey) -> Option<Warning> {
    let [_, validation, test] = rows;
    let splits = [("validation", validation), ("test", test)];
    let few = splits
        .into_iter()
        .filter(|(_, rows)| (1..JUDGED).contains(rows));
    let few: Vec<String> = few
        .map(|(split, rows)| counted(rows, &format!("{split} row")))
        .collect();
    (!few.is_empty()).then(|| {
        let message = format!(
            "the dataset has {}: a metric of fewer than {JUDGED} rows is mostly chance; {}",
            few.join(" and "),
            key.advice()
        );
        warning(FEW_SPLIT_ROWS, "dataset.split", message)
    })
}

/// Warnings of the sizes of the classes of `column`.
pub(crate) fn class_sizes(column: &str, classes: &[ClassCounts]) -> Vec<Warning> {
    let found = [
        rare_classes(column, classes),
        unbalanced_classes(column, classes),
    ];
    found.into_iter().flatten().collect()
}

/// Warns of classes with few training rows, unless all classes have few.
fn rare_classes(column: &str, classes: &[ClassCounts]) -> Option<Warning> {
    let rows = classes.iter().map(|class| class.train).sum();
    let is_rare = |class: &&ClassCounts| (1..TRAINED).contains(&class.train);
    let rare: Vec<String> = classes
        .iter()
        .filter(is_rare)
        .map(|class| format!("{} ({})", quoted(&class.name), class.train))
        .collect();
    let has_other = classes.iter().any(|class| class.train >= TRAINED);
    (!rare.is_empty() && has_other && !are_too_many(classes.len(), rows)).then(|| {
        let message = format!(
            "classes of `{}` have fewer than {TRAINED} training rows, too few to learn or to judge: {}; land more rows of them, \
             give them to another class with `dataset.sql`, or reject their rows: list the other classes in `dataset.classes`",
            shown(column),
            first_of(&rare, COLUMNS)
        );
        warning(RARE_CLASSES, "dataset.classes", message).with_columns(warned_columns([column]))
    })
}

/// Warns of a class that has nearly all training rows.
fn unbalanced_classes(column: &str, classes: &[ClassCounts]) -> Option<Warning> {
    let rows: u64 = classes.iter().map(|class| class.train).sum();
    let most = classes.iter().max_by_key(|class| class.train)?;
    if most.train == rows || share(most.train, rows) < UNBALANCED {
        return None;
    }
    let metrics = match classes.len() {
        2 => "`f1` or `auc`",
        _ => "`f1_macro`",
    };
    let of_f1 = match classes {
        [first, second] if second.name == most.name => format!(
            "; `f1` is that of {}, the second class: `dataset.classes` sets their order, as in `[{:?}, {:?}]`",
            quoted(&most.name),
            second.name,
            first.name
        ),
        _ => String::new(),
    };
    let message = format!(
        "{} of the training rows have the class {} of `{}`, so a model that predicts nothing else has an accuracy near {:.2}: judge \
         it by {metrics}; `train.loader.balance` shows rare classes more often, and `train.loss.class_weights` raises the \
         weight of their rows{of_f1}",
        percent(most.train, rows),
        quoted(&most.name),
        shown(column),
        share(most.train, rows)
    );
    Some(
        warning(CLASSES_UNBALANCED, "train.loader.balance", message)
            .with_columns(warned_columns([column])),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classes(train: &[(&str, u64)]) -> Vec<ClassCounts> {
        let class = |(name, train): &(&str, u64)| ClassCounts {
            name: (*name).to_owned(),
            train: *train,
            validation: 0,
            test: 0,
        };
        train.iter().map(class).collect()
    }

    fn codes(train: &[(&str, u64)]) -> Vec<String> {
        let found = class_sizes("y", &classes(train));
        found.into_iter().map(|warning| warning.code).collect()
    }

    #[test]
    fn splits_of_few_rows_are_a_warning_and_those_without_rows_are_none() {
        let find = |rows| few_split_rows(rows, SplitKey::Fractions);
        for fine in [[240, 30, 30], [10, 0, 0], [3, 30, 0], [0, 0, 0]] {
            assert_eq!(find(fine), None, "{fine:?}");
        }
        let message = |rows| find(rows).unwrap().message;
        let both = message([7, 1, 29]);
        assert!(
            both.starts_with("the dataset has 1 validation row and 29 test rows: "),
            "{both}"
        );
        assert!(both.contains("`dataset.split.test`"), "{both}");
        assert!(message([100, 40, 5]).starts_with("the dataset has 5 test rows: "));
        let named = few_split_rows([9, 1, 1], SplitKey::Named).unwrap();
        assert!(!named.message.contains("raise"), "{}", named.message);
    }

    #[test]
    fn classes_of_few_rows_are_a_warning_beside_larger_ones() {
        assert_eq!(codes(&[("a", 9), ("b", 2)]), [""; 0]);
        assert_eq!(codes(&[("a", 10), ("b", 10), ("c", 0)]), [""; 0]);
        let found = class_sizes("y", &classes(&[("a", 60), ("b", 9), ("c", 1)]));
        let [rare] = &found[..] else {
            panic!("{found:?}")
        };
        assert_eq!(rare.code, "rare_classes");
        assert!(rare.message.contains(": `b` (9), `c` (1); "), "{rare:?}");
        // A target of too many classes has a warning of its own.
        let names: Vec<String> = (0..40).map(|i| format!("c{i}")).collect();
        let many: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), 9)).collect();
        let with_large = [&many[..], &[("large", 100)]].concat();
        assert_eq!(codes(&with_large), [""; 0]);
    }

    #[test]
    fn a_class_of_nearly_all_rows_is_a_warning() {
        for fine in [
            &[("a", 949), ("b", 51)][..],
            &[("a", 100)],
            &[("a", 100), ("b", 0)],
            &[],
        ] {
            assert_eq!(codes(fine), [""; 0], "{fine:?}");
        }
        let message = |train: &[(&str, u64)]| {
            let found = class_sizes("y", &classes(train));
            assert_eq!(found.len(), 1, "{found:?}");
            found[0].message.clone()
        };
        let second = message(&[("bad", 14), ("ok", 1986)]);
        for part in [
            "99.3 % of the training rows have the class `ok` of `y`",
            "accuracy near 0.99",
            "`train.loader.balance`",
            r#"`f1` is that of `ok`, the second class: `dataset.classes` sets their order, as in `["ok", "bad"]`"#,
        ] {
            assert!(second.contains(part), "{part}: {second}");
        }
        assert!(!message(&[("a", 1986), ("b", 14)]).contains("dataset.classes"));
    }
}
