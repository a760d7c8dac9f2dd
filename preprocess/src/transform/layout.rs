//! From fitted steps to the layout of the feature vector and the work per column.

use std::collections::{BTreeMap, HashMap, HashSet};

use feedline_schemas::transform::{
    CategoryEncoding, FIRST_KNOWN_ID, Feature, FittedCategories, FittedStep, InputColumn,
    InputKind, NULL_ID, UNKNOWN_ID,
};

use super::CellOp;

/// What is done with one input column.
#[derive(Debug)]
pub(super) enum ColumnPlan {
    /// A number.
    Numeric {
        name: String,
        ops: Vec<CellOp>,
        /// Element that says whether the cell was missing before the operation of this index.
        indicators: BTreeMap<usize, usize>,
        /// Element of the value.
        place: usize,
    },
    /// A category.
    Category {
        name: String,
        ids: HashMap<String, u32>,
        encoding: CategoryEncoding,
        /// First element.
        place: usize,
    },
}

/// What the fitted `steps` do with the numeric column `column`, in order.
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
                let indicators = indicators(steps, name).len();
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

/// The work per column; elements are placed as [`layout`] lays them out.
///
/// # Errors
/// As [`layout`], and a category value that is listed twice.
pub(super) fn plan(
    inputs: &[InputColumn],
    steps: &[FittedStep],
) -> Result<Vec<ColumnPlan>, String> {
    let mut next = 0;
    let mut columns = Vec::with_capacity(inputs.len());
    for input in inputs {
        let (name, place) = (input.name.clone(), next);
        match input.kind {
            InputKind::Numeric => {
                let indicators = indicators(steps, &name);
                next += 1 + indicators.len();
                let indicators = indicators.into_iter().zip(place + 1..).collect();
                columns.push(ColumnPlan::Numeric {
                    ops: op_chain(steps, &name),
                    indicators,
                    place,
                    name,
                });
            }
            InputKind::Categorical => {
                let fitted = categories(steps, &name)?;
                next += category_features(fitted).len();
                let ids: HashMap<String, u32> = fitted
                    .values
                    .iter()
                    .cloned()
                    .zip(FIRST_KNOWN_ID..)
                    .collect();
                if ids.len() != fitted.values.len() {
                    return Err(format!("a category of `{name}` is listed twice"));
                }
                columns.push(ColumnPlan::Category {
                    ids,
                    encoding: fitted.encoding,
                    place,
                    name,
                });
            }
        }
    }
    Ok(columns)
}

/// Which operations of the column's chain are preceded by an indicator.
fn indicators(steps: &[FittedStep], column: &str) -> Vec<usize> {
    let of_column = steps
        .iter()
        .filter(|step| CellOp::of(step, column).is_some());
    let marks = of_column.enumerate().filter(|(_, step)| match step {
        FittedStep::Impute { columns } => columns.iter().any(|c| c.name == column && c.indicator),
        _ => false,
    });
    marks.map(|(i, _)| i).collect()
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

fn category_features(fitted: &FittedCategories) -> Vec<Feature> {
    let column = &fitted.name;
    if fitted.encoding == CategoryEncoding::Ordinal {
        return vec![Feature {
            name: column.clone(),
            column: column.clone(),
            category: None,
        }];
    }
    let reserved = [(UNKNOWN_ID, "__unknown__"), (NULL_ID, "__null__")];
    let known = (FIRST_KNOWN_ID..).zip(fitted.values.iter().map(String::as_str));
    reserved
        .into_iter()
        .chain(known)
        .map(|(id, value)| Feature {
            name: format!("{column}={value}"),
            column: column.clone(),
            category: Some(id),
        })
        .collect()
}
