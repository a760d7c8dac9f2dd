//! Checks that a row means the same in all datasets of a mixture, as far as their files say it.
//!
//! A model sees the rows of all of them as one. Other kinds of rows and targets, names of features, classes and targets, and
//! token ids are an error. Other fitted numbers are a warning, since a mixture for fine-tuning may have them on purpose.

use std::sync::Arc;

use feedline_schemas::{
    count::{counted, first_of},
    manifest::TargetKind,
    transform::{FittedStep, FittedTarget, TransformArtefact},
};
use feedline_storage::Store;

use crate::{
    BatchKind, Error,
    error::REBUILD,
    input::{OpenedSplit, RowContent, read_transform},
};

/// Names that a message lists.
const NAMED: usize = 10;

/// Refuses a dataset whose rows or target are of another kind than those of the first one.
///
/// # Errors
/// [`Error::Config`] with both datasets and the difference.
pub(crate) fn compare_kinds(
    (first, ours): (&Store, (BatchKind, TargetKind)),
    (second, theirs): (&Store, (BatchKind, TargetKind)),
) -> Result<(), Error> {
    let (difference, advice) = if ours.0 != theirs.0 {
        (
            format!(
                "they hold different records, {} and {}",
                records(ours.0),
                records(theirs.0)
            ),
            "build both with the same features, or read each by a loader of its own",
        )
    } else if ours.1 != theirs.1 {
        (
            format!(
                "the first has {} and the second has {}",
                target(ours.1),
                target(theirs.1)
            ),
            "build both with the same `dataset.target` and `dataset.classes`; of other formats than shards set `target`, of \
             classes to their number",
        )
    } else {
        return Ok(());
    };
    Err(refusal(&first.url(), &second.url(), &difference, advice))
}

/// Refuses datasets whose names differ, and warns of fitted numbers that do. Reads the transforms of datasets of shards; of
/// files that do not give a name, nothing is compared with it.
///
/// # Errors
/// [`Error::Config`] with two datasets and the first difference; failures to read a transform.
pub(crate) async fn check(datasets: &[Store], inputs: &[Arc<OpenedSplit>]) -> Result<(), Error> {
    let mixed = datasets.iter().zip(inputs);
    let mixed: Vec<(String, &OpenedSplit)> = mixed
        .map(|(dataset, input)| (dataset.url(), &**input))
        .collect();
    let [first, others @ ..] = &mixed[..] else {
        return Ok(());
    };
    if others.is_empty() {
        return Ok(());
    }
    for other in others {
        compare_classes(first, other)?;
    }
    // Of the first dataset that has them.
    let mut features: Option<(&str, Vec<Option<String>>)> = None;
    let mut meaning: Option<(&str, TransformArtefact)> = None;
    for (dataset, (url, input)) in datasets.iter().zip(&mixed) {
        let transform = transform_of(dataset, input).await?;
        if let Some(names) = feature_names(input, transform.as_ref()) {
            match &features {
                Some((first, ours)) => compare_features(first, ours, url, &names)?,
                None => features = Some((url.as_str(), names)),
            }
        }
        if let Some(transform) = transform {
            match &meaning {
                Some((first, ours)) => {
                    compare_transforms(first, ours, (url.as_str(), *input), &transform)?
                }
                None => meaning = Some((url.as_str(), transform)),
            }
        }
    }
    Ok(())
}

/// Kind of the rows, in words.
fn records(kind: BatchKind) -> String {
    match kind {
        BatchKind::Rows { features } => format!("rows of {}", counted(features as u64, "feature")),
        BatchKind::Images { .. } => "images".to_owned(),
        BatchKind::Tokens { .. } => "documents of token ids".to_owned(),
        BatchKind::Multi {
            features,
            height,
            length,
            ..
        } => {
            let parts = [
                (features > 0).then(|| counted(features as u64, "feature")),
                (height > 0).then(|| "an image".to_owned()),
                (length > 0).then(|| format!("a text of up to {}", counted(length as u64, "id"))),
            ];
            let parts: Vec<String> = parts.into_iter().flatten().collect();
            format!("rows of {}", parts.join(" and "))
        }
    }
}

/// Kind of the target, in words.
fn target(kind: TargetKind) -> String {
    match kind {
        TargetKind::None => "no target".to_owned(),
        TargetKind::Regression => "a number as target".to_owned(),
        TargetKind::Regressions { targets } => format!("{targets} numbers as targets"),
        TargetKind::Classification { classes } if classes >= i32::MAX.unsigned_abs() => {
            "a class as target, without the number of classes".to_owned()
        }
        TargetKind::Classification { classes: 1 } => "1 class as target".to_owned(),
        TargetKind::Classification { classes } => format!("one of {classes} classes as target"),
    }
}

fn compare_classes(
    (first, ours): &(String, &OpenedSplit),
    (second, theirs): &(String, &OpenedSplit),
) -> Result<(), Error> {
    let (names, other_names) = (ours.known_class_names(), theirs.known_class_names());
    if names == other_names {
        return Ok(());
    }
    let list = |names: Option<Vec<&str>>| match names {
        Some(names) => listed(&names),
        None => "classes without names".to_owned(),
    };
    let difference = format!(
        "one id is not the same class in both: the first has {} and the second has {}",
        list(names),
        list(other_names)
    );
    let advice = "build both with the same `dataset.classes`";
    Err(refusal(first, second, &difference, advice))
}

/// The transform of a dataset of shards, without what does not change the meaning of a row; `None` for other formats.
async fn transform_of(
    dataset: &Store,
    input: &OpenedSplit,
) -> Result<Option<TransformArtefact>, Error> {
    let Some(manifest) = input.manifest() else {
        return Ok(None);
    };
    let Some(transform) = read_transform(dataset, manifest).await? else {
        input.warn(&format!(
            "its transform `{}` is missing, so its features and fitted numbers are not compared with those of the other \
             datasets of the mixture; restore the file or {REBUILD}",
            manifest.transform.path
        ));
        return Ok(None);
    };
    let mut meaning = transform.applied();
    // Of several targets the names decide which number is which.
    if meaning.other_targets.is_empty()
        && let Some(
            FittedTarget::Regression { column, .. } | FittedTarget::Classification { column, .. },
        ) = &mut meaning.target
    {
        column.clear();
    }
    if let Some(tokens) = &mut meaning.tokens {
        tokens.column.clear();
    }
    if let Some(characters) = &mut meaning.characters {
        characters.column.clear();
    }
    Ok(Some(meaning))
}

/// Names of the elements of `x`, as far as they are known.
fn feature_names(
    input: &OpenedSplit,
    transform: Option<&TransformArtefact>,
) -> Option<Vec<Option<String>>> {
    let Some(transform) = transform else {
        return input.column_names();
    };
    let elements = match *input.record() {
        RowContent::Dense { features, .. } | RowContent::Multi { features, .. } => {
            features as usize
        }
        RowContent::Images { .. } | RowContent::Tokens { .. } => return None,
    };
    let features = &transform.features;
    // A window has the features of each of its rows.
    let is_known = !features.is_empty() && elements.is_multiple_of(features.len());
    let names = features.iter().map(|feature| Some(feature.name.clone()));
    is_known.then(|| names.cycle().take(elements).collect())
}

fn compare_features(
    first: &str,
    ours: &[Option<String>],
    second: &str,
    theirs: &[Option<String>],
) -> Result<(), Error> {
    for (element, names) in ours.iter().zip(theirs).enumerate() {
        if let (Some(our), Some(their)) = names
            && our != their
        {
            let difference = format!(
                "element `{element}` of `x` is `{our}` in the first and `{their}` in the second"
            );
            let advice = "build both with the same features and categories; of other formats than shards name the columns in one \
                          order in `columns.x`";
            return Err(refusal(first, second, &difference, advice));
        }
    }
    Ok(())
}

/// Refuses a transform that gives a number or an id another meaning by its names, and warns of other fitted numbers.
fn compare_transforms(
    first: &str,
    ours: &TransformArtefact,
    (second, input): (&str, &OpenedSplit),
    theirs: &TransformArtefact,
) -> Result<(), Error> {
    let (names, other_names) = (ours.target_names(), theirs.target_names());
    if names != other_names {
        let list = |names: &[String]| listed(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let difference = format!(
            "the targets of the first are {} and those of the second are {}",
            list(&names),
            list(&other_names)
        );
        let advice = "list them in the same order in `dataset.target`";
        return Err(refusal(first, second, &difference, advice));
    }
    if ours.tokens != theirs.tokens || ours.characters != theirs.characters {
        let difference = "one id is not the same token in both, since their tokenizers differ";
        let advice = "build both with the same `dataset.tokens.tokenizer`";
        return Err(refusal(first, second, difference, advice));
    }
    if let Some(difference) = other_numbers(ours, theirs) {
        input.warn(&format!(
            "{difference} than dataset `{first}` of the mixture, so the same number may mean another value; build both with the \
             same transform, or land both as sources of one `[dataset]`"
        ));
    }
    Ok(())
}

/// First difference of the fitted numbers, as the beginning of a sentence that compares.
fn other_numbers(ours: &TransformArtefact, theirs: &TransformArtefact) -> Option<String> {
    let mut steps = ours.steps.iter().zip(&theirs.steps);
    if let Some((our, their)) = steps.find(|(our, their)| our != their) {
        let (our, their) = (step_name(our), step_name(their));
        return Some(match our == their {
            true => format!("its step `{their}` has other fitted numbers"),
            false => format!("it has other steps (`{their}` in the place of `{our}`)"),
        });
    }
    if ours.steps.len() != theirs.steps.len() {
        return Some("it has other steps".to_owned());
    }
    let is_same = ours.target == theirs.target && ours.other_targets == theirs.other_targets;
    (!is_same).then(|| "its target is scaled by other numbers".to_owned())
}

fn step_name(step: &FittedStep) -> String {
    let step = serde_json::to_value(step).unwrap_or_default();
    let name = step.get("type").and_then(|name| name.as_str());
    name.unwrap_or_default().to_owned()
}

/// Some names as text, in their order.
fn listed(names: &[&str]) -> String {
    let names = names.iter().map(|name| format!("`{name}`"));
    first_of(&names.collect::<Vec<_>>(), NAMED)
}

fn refusal(first: &str, second: &str, difference: &str, advice: &str) -> Error {
    Error::Config {
        key: "mixture",
        reason: format!(
            "datasets `{first}` and `{second}` cannot be mixed: {difference}; {advice}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_and_targets_are_said_in_words() {
        let multi = |features, height, length| BatchKind::Multi {
            features,
            height,
            width: height,
            length,
        };
        for (kind, words) in [
            (BatchKind::Rows { features: 1 }, "rows of 1 feature"),
            (multi(2, 8, 0), "rows of 2 features and an image"),
            (multi(0, 8, 1), "rows of an image and a text of up to 1 id"),
        ] {
            assert_eq!(records(kind), words);
        }
        let classes = |classes| target(TargetKind::Classification { classes });
        assert_eq!(classes(3), "one of 3 classes as target");
        assert_eq!(classes(1), "1 class as target");
        let unknown = "a class as target, without the number of classes";
        assert_eq!(classes(1 << 31), unknown);
        assert_eq!(target(TargetKind::None), "no target");
    }

    #[test]
    fn elements_without_a_name_are_not_compared() {
        let names = |names: &[&str]| -> Vec<Option<String>> {
            let name = |name: &&str| (!name.is_empty()).then(|| (*name).to_owned());
            names.iter().map(name).collect()
        };
        let compare = |ours: &[&str], theirs: &[&str]| {
            compare_features("a", &names(ours), "b", &names(theirs))
        };
        compare(&["p", "", "r"], &["p", "q", ""]).unwrap();
        let error = compare(&["p", "", "r"], &["p", "q", "s"]).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("element `2` of `x` is `r` in the first and `s` in the second"),
            "{error}"
        );
    }
}
