//! From fitted steps to the layout of the feature vector and the work per column.

use std::collections::HashSet;

use feedline_schemas::transform::{Feature, FittedCategories, FittedStep, InputColumn, InputKind};

use super::{
    CellOp,
    category::{CategoryPlan, category_features},
    numbers::{Numbers, NumericPlan, has_indicator},
};

/// What the fitted `steps`, none of which looks at several columns, do with the numeric column `column`, in order.
pub(crate) fn op_chain(steps: &[FittedStep], column: &str) -> Vec<CellOp> {
    steps
        .iter()
        .filter_map(|step| CellOp::of(step, column))
        .collect()
}

/// Name and origin of each element of `x`.
///
/// # Errors
/// What is wrong, for people: a category without categories, or two elements that would share a name.
pub(crate) fn layout(inputs: &[InputColumn], steps: &[FittedStep]) -> Result<Vec<Feature>, String> {
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
    // Values of one category may spell anything; elements that stand for a column must not be confused.
    let mut seen = HashSet::new();
    match features
        .iter()
        .find(|feature| feature.category.is_none() && !seen.insert(&feature.name))
    {
        Some(twice) => Err(format!("two features would be named `{}`", twice.name)),
        None => Ok(features),
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
