//! Layout of the feature vector and operations per column, from fitted steps.

use std::collections::{HashMap, HashSet};

use feedline_schemas::transform::{
    Feature, FittedCategories, FittedStep, InputColumn, InputKind, NULL_ID, UNKNOWN_ID,
};

use crate::{schema::landed_columns::shown, steps::operation};

use super::{
    category::{CategoryPlan, category_features},
    cell::CellOp,
    numbers::{Numbers, NumericPlan, has_indicator},
};

/// Operations of the fitted `steps` on the numeric column `column`, in order. No step looks at
/// several columns.
pub(crate) fn op_chain(steps: &[FittedStep], column: &str) -> Vec<CellOp> {
    steps
        .iter()
        .filter_map(|step| operation(step, column))
        .collect()
}

/// Name and origin of each element of `x`. The value of a category may give another element's name:
/// [`new_layout`] refuses that at fit time, while existing artefacts that have it stay usable.
/// Elements of whole columns must never share a name.
///
/// # Errors
/// A message about the fault: a category without categories, or two elements of columns that would
/// share a name.
pub(crate) fn layout(inputs: &[InputColumn], steps: &[FittedStep]) -> Result<Vec<Feature>, String> {
    let features = elements(inputs, steps)?;
    let mut seen = HashSet::new();
    let mut of_columns = features.iter().filter(|feature| feature.category.is_none());
    match of_columns.find(|feature| !seen.insert(&feature.name)) {
        Some(twice) => Err(format!("two features would be named `{}`", twice.name)),
        None => Ok(features),
    }
}

/// As [`layout`], of steps that were fitted just now.
///
/// # Errors
/// A message about the fault: a category without categories, or two elements that would share a
/// name.
pub(crate) fn new_layout(
    inputs: &[InputColumn],
    steps: &[FittedStep],
) -> Result<Vec<Feature>, String> {
    let features = elements(inputs, steps)?;
    let mut seen: HashMap<&str, &Feature> = HashMap::new();
    for feature in &features {
        if let Some(other) = seen.insert(&feature.name, feature) {
            let advice = match other.category.or(feature.category) {
                Some(_) => {
                    "leave one of the columns out with `dataset.drop` or rename it, or encode the category as `ordinal`; list spellings \
                     of a missing value in `dataset.null_values`"
                }
                None => {
                    "leave one of the columns out with `dataset.drop`, rename it, or remove `indicator = true` from the `impute` step \
                     or `encoding` from the `categories` step that adds the feature"
                }
            };
            return Err(format!(
                "two features would be named `{}`: {} and {}; {advice}",
                shown(&feature.name),
                origin(other, inputs),
                origin(feature, inputs)
            ));
        }
    }
    Ok(features)
}

fn elements(inputs: &[InputColumn], steps: &[FittedStep]) -> Result<Vec<Feature>, String> {
    let mut features = Vec::new();
    for input in inputs {
        let name = &input.name;
        match input.kind {
            InputKind::Numeric => {
                features.push(Feature {
                    name: name.clone(),
                    column: name.clone(),
                    category: None,
                });
                let indicators = steps
                    .iter()
                    .filter(|step| has_indicator(step, name))
                    .count();
                let indicator = Feature {
                    name: format!("{name}__missing"),
                    column: name.clone(),
                    category: None,
                };
                features.extend(std::iter::repeat_n(indicator, indicators));
            }
            InputKind::Categorical => features.extend(category_features(categories(steps, name)?)),
        }
    }
    Ok(features)
}

/// Describes the origin of an element for messages.
fn origin(feature: &Feature, inputs: &[InputColumn]) -> String {
    let is_number =
        |input: &InputColumn| input.name == feature.column && input.kind == InputKind::Numeric;
    let column = shown(&feature.column);
    match feature.category {
        Some(UNKNOWN_ID) => format!("unknown values of column `{column}`"),
        Some(NULL_ID) => format!("missing values of column `{column}`"),
        Some(_) => {
            let value = feature.name.get(feature.column.len() + 1..);
            let value = shown(value.unwrap_or_default());
            format!("the value `{value}` of column `{column}`")
        }
        None if feature.name == feature.column => format!("column `{column}`"),
        None if inputs.iter().any(is_number) => {
            format!("the indicator of missing cells of column `{column}`")
        }
        None => format!("the target encoding of column `{column}`"),
    }
}

/// The work per column, numbers and categories; elements are placed as [`layout`] lays them out.
///
/// # Errors
/// As [`layout`], what [`CategoryPlan::new`] refuses, and neighbours that fit no columns.
pub(super) fn plan(
    inputs: &[InputColumn],
    steps: &[FittedStep],
) -> Result<(Numbers, Vec<CategoryPlan>), String> {
    let mut next = 0;
    let (mut numbers, mut texts) = (Vec::new(), Vec::new());
    for input in inputs {
        let (name, place) = (&input.name, next);
        match input.kind {
            InputKind::Numeric => {
                let plan = NumericPlan::new(steps, name, place);
                next += plan.width();
                numbers.push(plan);
            }
            InputKind::Categorical => {
                let fitted = categories(steps, name)?;
                next += category_features(fitted).len();
                texts.push(CategoryPlan::new(fitted, place)?);
            }
        }
    }
    Ok((Numbers::new(numbers, steps)?, texts))
}

fn categories<'a>(steps: &'a [FittedStep], column: &str) -> Result<&'a FittedCategories, String> {
    let of_step = |step: &'a FittedStep| match step {
        FittedStep::Categories { columns } => columns.iter().find(|c| c.name == column),
        _ => None,
    };
    steps
        .iter()
        .find_map(of_step)
        .ok_or_else(|| format!("no step turns the text of column `{column}` into numbers"))
}
