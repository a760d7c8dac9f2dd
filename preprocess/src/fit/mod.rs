//! Learns every number of a transform from the training split, and from nothing else.
//!
//! Steps run in the order written. Each is fitted on the output of the ones before: their operations are applied to the
//! column inside the query, by the same code that transforms rows later ([`aggregates::cell`]). All columns of a step share
//! its queries: imputing, winsorizing and robust scaling take one to four passes over the rows (see [`crate::statistics::quantile`]),
//! standardizing, min-max and logarithms one, powers about ten, the most frequent value and categories one per column.
//! Filling from neighbours takes two, numbers by group two or three, and where a later step is
//! fitted, they rewrite the rows.
//!
//! Results depend neither on the order of the rows nor on how they are partitioned: counts are integers, means and
//! deviations are rounded once from exact sums, percentiles are exact. Infinities take no part in statistics; `winsorize`
//! caps them. A missing value takes no part either; NaN is missing.

pub(crate) mod aggregate;
mod categories;
pub(crate) mod class_order;
mod fit_spec;
mod groups;
mod landed_numbers;
mod nans;
mod neighbours;
mod outcomes;
mod payload;
mod power;
mod progress;
mod texts;
mod tokens;
pub(crate) mod train_split;

use std::collections::{BTreeMap, HashMap};

use datafusion::{arrow::datatypes::DataType, logical_expr::ident};
use feedline_schemas::{
    config::{StepConfig, Task},
    format::TRANSFORM,
    ids::Hash128,
    transform::{FittedCharacters, FittedTarget, FittedTokens, InputKind, TransformArtefact},
};

pub(crate) use self::{
    fit_spec::{FitSpec, MOST_VALUES, TargetSpec, kind_of},
    nans::check_nans,
    payload::{fit_parts, fit_payload},
    progress::{Fit, STEP, is_constant},
    texts::check_texts,
    tokens::{LearnSpec, learn_tokenizer},
};

use self::aggregate::{Rows, unzip};
use crate::{
    Error, TrainSplit,
    statistics::{aggregates, exact_sum::Summary},
    transform::new_layout,
};

/// Fits the steps and the target of `spec`.
///
/// # Errors
/// [`Error::Config`] when a step cannot be fitted to its columns or the target is of the wrong kind, [`Error::Input`]
/// for an empty split, and failures of the engine.
pub(crate) async fn fit(train: &TrainSplit, spec: &FitSpec) -> Result<TransformArtefact, Error> {
    if spec.inputs.is_empty() {
        return Err(spec.no_feature());
    }
    fit_rows(train, spec).await
}

/// As [`fit`], also for rows without numbers.
async fn fit_rows(train: &TrainSplit, spec: &FitSpec) -> Result<TransformArtefact, Error> {
    let rows = rows_of(train)?;
    check_spec(spec)?;
    let mut fit = Fit {
        rows,
        steps: Vec::with_capacity(spec.steps.len()),
        settled: 0,
        target: spec.target.clone(),
        joined: spec.joined.clone(),
        medians: BTreeMap::new(),
    };
    // A step may rewrite the rows, and with them the past of a target that is a feature.
    let mut targets = Vec::with_capacity(1 + spec.other_targets.len());
    for target in spec.target.iter().chain(&spec.other_targets) {
        targets.push(fit.target(target).await?);
    }
    for (i, step) in spec.steps.iter().enumerate() {
        if !step.is_categories() {
            fit.settle(train).await?;
        }
        let fitted = fit.step(step, &spec.steps[i + 1..], train).await?;
        fit.steps.push(fitted);
    }
    artefact(fit, spec, targets, Texts::default())
}

/// The rows of the training split.
fn rows_of(train: &TrainSplit) -> Result<Rows, Error> {
    let rows = Rows::new(train.frame(), train.rows()).looked_at(train.pieces());
    if rows.count() == 0 {
        return Err(Error::input(
            "the training split",
            "it has no rows",
            "land more rows or give it a larger share with `dataset.split.train`",
        ));
    }
    Ok(rows)
}

/// Fitted encoders of documents; empty for rows without documents.
#[derive(Debug, Default)]
struct Texts {
    characters: Option<FittedCharacters>,
    tokens: Option<FittedTokens>,
}

/// Everything that was fitted, under its hash.
fn artefact(
    fit: Fit,
    spec: &FitSpec,
    targets: Vec<FittedTarget>,
    texts: Texts,
) -> Result<TransformArtefact, Error> {
    let features = new_layout(&spec.inputs, &fit.steps);
    let features = features.map_err(|reason| Error::config(STEP, reason))?;
    let mut targets = targets.into_iter();
    let mut artefact = TransformArtefact {
        format: TRANSFORM.format.to_owned(),
        version: TRANSFORM.version,
        hash: Hash128::new(0),
        fitted_rows: fit.rows.count(),
        null_values: spec.null_values.clone(),
        missing_values: spec.missing_values.clone(),
        inputs: spec.inputs.clone(),
        features,
        steps: fit.steps,
        target: targets.next(),
        other_targets: targets.collect(),
        characters: texts.characters,
        images: None,
        tokens: texts.tokens,
        signs: spec.signs,
    };
    artefact.hash = artefact.compute_hash();
    Ok(artefact)
}

/// Refuses columns that a step cannot work on; the numbers of the steps were checked where they were resolved.
fn check_spec(spec: &FitSpec) -> Result<(), Error> {
    if let Some(odd) = spec.missing_values.iter().find(|value| !value.is_finite()) {
        let reason = format!(
            "`{odd}` is not a finite number; NaN is always missing, and `winsorize` caps infinities"
        );
        return Err(Error::config("dataset.missing_values", reason));
    }
    spec.steps
        .iter()
        .try_for_each(|step| check_step(spec, step).map_err(|reason| Error::config(STEP, reason)))
}

fn check_step(spec: &FitSpec, step: &StepConfig) -> Result<(), String> {
    let kind = kind_of(step);
    for (i, name) in step.columns.iter().enumerate() {
        match spec.inputs.iter().find(|input| input.name == *name) {
            None => {
                return Err(format!(
                    "column `{name}` is not a feature, so no step can change it"
                ));
            }
            Some(input) if input.kind != kind && kind == InputKind::Numeric => {
                return Err(format!(
                    "column `{name}` is text; only a `categories` step applies to it"
                ));
            }
            Some(input) if input.kind != kind => {
                return Err(format!(
                    "column `{name}` is numeric; add it to `dataset.categorical` to read it as a category"
                ));
            }
            Some(_) if step.columns[..i].contains(name) => {
                return Err(format!("column `{name}` is listed twice"));
            }
            Some(_) => {}
        }
    }
    let is_odd = |by: &&String| {
        let named = spec.inputs.iter().find(|input| input.name == **by);
        named.is_none_or(|input| input.kind != InputKind::Categorical)
    };
    match step.by().filter(is_odd) {
        Some(by) => Err(format!(
            "column `{by}` is no category among the features, so rows have no groups by it"
        )),
        None => Ok(()),
    }
}

const TARGET: &str = "dataset.target";

impl Fit {
    async fn target(&self, target: &TargetSpec) -> Result<FittedTarget, Error> {
        let column = target.column.clone();
        let is_number = self.rows.data_type(&column)? == DataType::Float64;
        match target.task {
            Task::Regression if is_number => {
                let profiles = self
                    .rows
                    .profiles(vec![aggregates::cell(ident(&column), &[])])
                    .await?;
                let summary = profiles
                    .first()
                    .and_then(|profile| Some((profile.summary()?, profile.tally().finite)));
                let (summary, finite) = summary.ok_or_else(|| {
                    Error::config(
                        TARGET,
                        format!("column `{column}` has no finite number in the training split"),
                    )
                })?;
                Ok(regression(column, summary, finite, target.scale))
            }
            Task::Regression => {
                let sample = self.rows.sample(&column).await?.unwrap_or_default();
                Err(Error::config(
                    TARGET,
                    format!(
                        "column `{column}` is not numeric, one of its values is `{sample}`; name a column of numbers, \
                         or set `dataset.task = \"classification\"` to predict it as a class"
                    ),
                ))
            }
            Task::Classification if is_number => Err(Error::config(
                TARGET,
                format!("column `{column}` was read as numbers, classes are read as text"),
            )),
            Task::Classification => self.classes(target).await,
        }
    }

    async fn classes(&self, target: &TargetSpec) -> Result<FittedTarget, Error> {
        let column = target.column.clone();
        let mut found = self
            .rows
            .frequent_texts(&column, MOST_VALUES as usize + 1)
            .await?;
        if !target.classes.is_empty() {
            let found = found.into_iter();
            let rows: HashMap<_, _> = found.map(|class| (class.value, class.rows)).collect();
            let rows = |class| rows.get(class).copied().unwrap_or(0);
            return Ok(FittedTarget::Classification {
                column,
                counts: target.classes.iter().map(rows).collect(),
                classes: target.classes.clone(),
            });
        }
        if found.len() > MOST_VALUES as usize {
            return Err(Error::config(
                TARGET,
                format!(
                    "column `{column}` has more than {MOST_VALUES} classes in the training split; name a column of few \
                     values, or set `dataset.task = \"regression\"` to predict it as a number"
                ),
            ));
        }
        found.sort_by(|a, b| class_order::order(&a.value, &b.value));
        let (classes, counts) = unzip(found);
        Ok(FittedTarget::Classification {
            column,
            classes,
            counts,
        })
    }
}

fn regression(column: String, summary: Summary, finite: u64, scale: bool) -> FittedTarget {
    let Summary { mean, deviation } = summary;
    if !scale {
        return FittedTarget::Regression {
            column,
            mean,
            scale: 1.0,
            offset: 0.0,
        };
    }
    let scale = if is_constant(summary, finite) {
        1.0
    } else {
        deviation
    };
    FittedTarget::Regression {
        column,
        mean,
        scale,
        offset: mean,
    }
}

#[cfg(test)]
mod tests;
