//! Check that the shards of a dataset fit the model of a run.

use feedline_schemas::{
    count::counted,
    manifest::{Layout, TargetKind},
    run::RunRecord,
    transform::TransformArtefact,
};
use feedline_storage::Store;
use serde_json::Value;

use super::dataset::Dataset;
use crate::{
    data::task::Task, error::Error, model::class_outputs::match_classes_of,
    reporting::paths::TRANSFORM_PATH,
};

/// Reason of runs whose record does not say enough.
pub(super) const OLD: &str = "an older version trained it, which did not keep its transform: it can only be used on the dataset \
     that it was trained on";

/// Names in a message.
const NAMED: usize = 5;

/// Checks that the model of a run fits the shards of a dataset; gives the reason if not.
///
/// # Errors
/// [`Error::Storage`], or a damaged copy of the run's transform.
pub(super) async fn fits(
    record: &RunRecord,
    dataset: &Dataset,
    runs: &Store,
) -> Result<Result<(), String>, Error> {
    if record.fingerprint == dataset.manifest.fingerprint {
        return Ok(Ok(()));
    }
    if let Err(reason) = fits_shape(record, dataset) {
        return Ok(Err(reason));
    }
    if record.transform == Some(dataset.artefact.hash) {
        return Ok(Ok(()));
    }
    Ok(match kept_transform(record, runs).await? {
        Some(kept) => difference(&kept, &dataset.artefact).map_or(Ok(()), Err),
        None => Err("its transform is another, and the run has no copy of it".to_owned()),
    })
}

/// The transform that a run keeps; `None` where it keeps none, or it is not the one of its record.
///
/// # Errors
/// [`Error::Storage`], or a damaged copy.
pub(super) async fn kept_transform(
    record: &RunRecord,
    runs: &Store,
) -> Result<Option<TransformArtefact>, Error> {
    let kept = read_kept(runs, &record.name).await?;
    Ok(kept.filter(|kept| record.transform == Some(kept.hash) && kept.compute_hash() == kept.hash))
}

/// Reads the transform that a run keeps; `None` where it keeps none.
async fn read_kept(runs: &Store, name: &str) -> Result<Option<TransformArtefact>, Error> {
    let path = format!("{name}/{TRANSFORM_PATH}");
    let Some(bytes) = runs.get_opt(&path).await? else {
        return Ok(None);
    };
    Ok(Some(feedline_schemas::decode(&runs.url_of(&path), &bytes)?))
}

/// Checks that layout, classes and the meaning of columns are the same.
fn fits_shape(record: &RunRecord, dataset: &Dataset) -> Result<(), String> {
    let (Some(layout), Some(_)) = (&record.layout, record.transform) else {
        return Err(OLD.to_owned());
    };
    let hashes = record.columns_hash.zip(dataset.manifest.columns_hash);
    if hashes.is_some_and(|(own, other)| own != other) {
        return Err(
            "the columns of its dataset were made by other settings: `dataset.sql`, `join`, `series`, `feature`, `sequence`, \
             `text` or `target`"
                .to_owned(),
        );
    }
    let kind = record.config.model.r#type;
    let task = Task::of(kind, &dataset.manifest.layout, &dataset.artefact);
    let task =
        task.map_err(|reason| format!("the dataset cannot be used by its model: {reason}"))?;
    match_classes_of("the run", &record.classes, task.classes())?;
    if *layout != dataset.manifest.layout {
        return Err(format!(
            "it was trained on {}, the dataset has {}",
            described(layout),
            described(&dataset.manifest.layout)
        ));
    }
    Ok(())
}

fn described(layout: &Layout) -> String {
    let target = match layout.target() {
        TargetKind::None => "without a target".to_owned(),
        TargetKind::Regression => "with a number to predict".to_owned(),
        TargetKind::Regressions { targets } => format!("with {targets} numbers to predict"),
        TargetKind::Classification { classes } => format!("of {classes} classes"),
    };
    match layout {
        Layout::Dense { features, .. } => {
            let features = counted((*features).into(), "feature");
            format!("rows of {features} {target}")
        }
        Layout::Images { .. } => format!("images {target}"),
        Layout::Tokens { vocabulary, .. } => format!("texts of {vocabulary} token ids"),
        Layout::Multi {
            features,
            images,
            tokens,
            ..
        } => {
            let images = if *images { ", an image" } else { "" };
            let texts = tokens.map_or_else(String::new, |tokens| {
                format!(", {} of {} token ids", tokens.length, tokens.vocabulary)
            });
            let features = counted((*features).into(), "feature");
            format!("samples of {features}{images}{texts} {target}")
        }
    }
}

/// First difference between two transforms; `None` where they make the same features of every row.
fn difference(of_run: &TransformArtefact, of_dataset: &TransformArtefact) -> Option<String> {
    let (run, dataset) = (of_run.applied(), of_dataset.applied());
    if run == dataset {
        return None;
    }
    let names = |of: &TransformArtefact| -> Vec<String> {
        of.inputs.iter().map(|input| input.name.clone()).collect()
    };
    let (own, other) = (names(&run), names(&dataset));
    let only = |of: &[String], beside: &[String]| -> Vec<String> {
        let alone = of.iter().filter(|name| !beside.contains(name));
        alone.take(NAMED).map(|name| format!("`{name}`")).collect()
    };
    let (missing, further) = (only(&own, &other), only(&other, &own));
    if !missing.is_empty() || !further.is_empty() {
        let mut parts = Vec::new();
        if !missing.is_empty() {
            parts.push(format!(
                "the dataset lacks the column {}",
                missing.join(", ")
            ));
        }
        if !further.is_empty() {
            parts.push(format!("the run knows no column {}", further.join(", ")));
        }
        return Some(parts.join(", and "));
    }
    let json = |of: &TransformArtefact| serde_json::to_value(of).unwrap_or_default();
    let (at, own, other) = first_difference(&json(&run), &json(&dataset), "")?;
    Some(format!(
        "its features were made by another transform: `{at}` is {own} there and {other} in the dataset"
    ))
}

/// The path of the first values that differ, and both of them. Steps are named by their type, columns by their name.
fn first_difference(a: &Value, b: &Value, path: &str) -> Option<(String, String, String)> {
    let below = |name: &str| match path {
        "" => name.to_owned(),
        path => format!("{path}.{name}"),
    };
    match (a, b) {
        (Value::Object(one), Value::Object(other)) => {
            let keys = one
                .keys()
                .chain(other.keys().filter(|k| !one.contains_key(*k)));
            let at = |key: &String| {
                let value = |of: &serde_json::Map<String, Value>| of.get(key).cloned();
                let values = (
                    value(one).unwrap_or_default(),
                    value(other).unwrap_or_default(),
                );
                first_difference(&values.0, &values.1, &below(key))
            };
            keys.into_iter().find_map(at)
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            let at = |(i, (a, b)): (usize, (&Value, &Value))| {
                let named = ["name", "type"].into_iter();
                let name = named.filter_map(|key| a.get(key)?.as_str()).next();
                let name = name.map_or_else(|| i.to_string(), str::to_owned);
                first_difference(a, b, &below(&name))
            };
            one.iter().zip(other).enumerate().find_map(at)
        }
        (a, b) if a == b => None,
        (a, b) => Some((path.to_owned(), short(a), short(b))),
    }
}

fn short(value: &Value) -> String {
    match value {
        Value::Array(values) => format!("a list of {}", values.len()),
        Value::Object(_) => "a section".to_owned(),
        Value::Null => "absent".to_owned(),
        other => format!("`{other}`"),
    }
}

#[cfg(test)]
mod tests {
    use feedline_schemas::transform::{FittedStandardize, FittedStep, InputColumn, InputKind};

    use super::*;
    use crate::data::task::tests::artefact;

    fn transform(column: &str, mean: f64, deviation: f64) -> TransformArtefact {
        let standardized = FittedStandardize {
            name: column.into(),
            mean,
            deviation,
            scale: 2.0,
            constant: false,
            groups: None,
        };
        TransformArtefact {
            inputs: vec![InputColumn {
                name: column.into(),
                kind: InputKind::Numeric,
            }],
            steps: vec![FittedStep::Standardize {
                columns: vec![standardized],
            }],
            ..artefact(None)
        }
    }

    #[test]
    fn the_first_number_that_differs_is_named_and_figures_of_the_fit_do_not_count() {
        let run = transform("age", 3.5, 1.0);
        assert_eq!(difference(&run, &transform("age", 3.5, 2.0)), None);
        assert_eq!(
            difference(&run, &transform("age", 4.0, 1.0)).unwrap(),
            "its features were made by another transform: `steps.standardize.columns.age.mean` is `3.5` there and `4.0` in the \
             dataset"
        );
        assert_eq!(
            difference(&run, &transform("size", 3.5, 1.0)).unwrap(),
            "the dataset lacks the column `age`, and the run knows no column `size`"
        );
    }
}
