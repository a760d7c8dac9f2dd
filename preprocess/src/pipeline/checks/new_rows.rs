//! Comparison of the training rows that landed since the last build with the earlier ones, when the dataset is refitted.

use datafusion::logical_expr::{Expr, ident, lit};
use feedline_schemas::{
    manifest::{SourceReference, Split},
    report::{FeatureShift, Warning},
    transform::{FittedCategories, FittedStep, FittedTarget, InputKind, TransformArtefact},
};

use crate::{
    Error,
    fit::aggregate::Rows,
    pipeline::prepare::Build,
    schema::system_columns,
    shards::shard_index::{Measured, shift_of, strongest},
    staging::Staged,
    statistics::{
        aggregates::{self, Profile},
        profile::categories,
    },
    transform::{self, op_chain},
    warnings,
};

/// Values of a category that old and new rows are compared on.
const VALUES: usize = 100;

impl Build<'_> {
    /// After a full refit, compares training rows that landed since the last build with the earlier
    /// ones. The comparison uses the transform that was fitted on the earlier rows.
    pub(in crate::pipeline) async fn shifted(
        &self,
        staged: &Staged,
    ) -> Result<Option<Warning>, Error> {
        let Some(before) = &self.previous.earlier else {
            return Ok(None);
        };
        let Some(parts) = training_parts(staged, &before.sources).await? else {
            return Ok(None);
        };
        let artefact = &before.artefact;
        let mut shifts = self.number_shifts(&parts, artefact).await?;
        for category in self.compared_categories(artefact) {
            shifts.extend(category_shifts(&parts, category).await?);
        }
        let shifts: Vec<FeatureShift> = strongest(shifts);
        let rows = [parts[0].count(), parts[1].count()];
        Ok(warnings::new_rows_differ(&shifts, rows))
    }

    /// Shifts of the numeric columns, in the units of the earlier transform.
    async fn number_shifts(
        &self,
        parts: &[Rows],
        artefact: &TransformArtefact,
    ) -> Result<Vec<FeatureShift>, Error> {
        let names = self.compared_numbers(artefact);
        let cells = |name: &String| aggregates::cell(ident(name), &op_chain(&artefact.steps, name));
        let mut moments = Vec::with_capacity(2);
        for rows in parts {
            moments.push(rows.profiles(names.iter().map(cells).collect()).await?);
        }
        let mut shifts = Vec::new();
        for (i, name) in names.iter().enumerate() {
            let both = (measured(&moments[0][i]), measured(&moments[1][i]));
            let (Some(old), Some(mut new)) = both else {
                continue;
            };
            if let Some(constant) = old.constant_to_count(&new) {
                new.unlike = Some(count_unlike(&parts[1], cells(name), constant).await?);
            }
            shifts.extend(shift_of(name, old, new));
        }
        Ok(shifts)
    }

    /// Returns the numeric columns of an earlier transform that the rows still have, and its target
    /// if that is numeric.
    fn compared_numbers(&self, before: &TransformArtefact) -> Vec<String> {
        let has = |name: &str, kind: InputKind| {
            let mut inputs = self.spec.inputs.iter();
            inputs.any(|input| input.column.name == name && input.column.kind == kind)
        };
        let inputs = before.inputs.iter().filter(|input| {
            input.kind == InputKind::Numeric
                && has(&input.name, InputKind::Numeric)
                && !transform::is_shared(&before.steps, &input.name)
        });
        let targets = before.targets().filter_map(|target| match target {
            FittedTarget::Regression { column, .. } => {
                let mut targets = self.spec.apart_targets();
                targets.any(|t| t.column == *column).then_some(column)
            }
            FittedTarget::Classification { .. } => None,
        });
        inputs
            .map(|input| &input.name)
            .chain(targets)
            .cloned()
            .collect()
    }

    /// Returns the categories of an earlier transform that the rows still have.
    fn compared_categories<'a>(&self, before: &'a TransformArtefact) -> Vec<&'a FittedCategories> {
        let has = |name: &str| {
            let mut inputs = self.spec.inputs.iter();
            inputs.any(|i| i.column.name == name && i.column.kind == InputKind::Categorical)
        };
        let steps = before.steps.iter();
        let columns = steps.filter_map(|step| match step {
            FittedStep::Categories { columns } => Some(columns),
            _ => None,
        });
        columns
            .flatten()
            .filter(|column| has(&column.name))
            .collect()
    }
}

/// Moments of the finite cells of a column; `None` without one.
fn measured(profile: &Profile) -> Option<Measured> {
    let (summary, finite) = (profile.summary()?, profile.tally().finite);
    let (least, greatest) = profile.range()?;
    Some(Measured {
        rows: exact(finite),
        mean: summary.mean,
        variance: summary.deviation * summary.deviation,
        range: [least, greatest],
        unlike: None,
    })
}

/// Number of rows with a number in `cell` other than `constant`.
async fn count_unlike(rows: &Rows, cell: Expr, constant: f64) -> Result<u64, Error> {
    let unlike = rows.frame().filter(cell.not_eq(lit(constant)))?;
    Ok(Box::pin(unlike.count()).await? as u64)
}

/// The training rows that landed up to the positions in `before`, and those after; `None` where one has no row.
async fn training_parts(
    staged: &Staged,
    before: &[SourceReference],
) -> Result<Option<Vec<Rows>>, Error> {
    let is_new = is_behind(before);
    let frame = staged.frame(Split::Train)?;
    let mut parts = Vec::with_capacity(2);
    for filter in [is_new.clone().is_not_true(), is_new.is_true()] {
        let rows = frame.clone().filter(filter)?;
        let count = Box::pin(rows.clone().count()).await? as u64;
        if count == 0 {
            return Ok(None);
        }
        parts.push(Rows::new(rows, count));
    }
    Ok(Some(parts))
}

/// Shifts of the fractions of the known values of `category`.
async fn category_shifts(
    parts: &[Rows],
    category: &FittedCategories,
) -> Result<Vec<FeatureShift>, Error> {
    let mut counts = Vec::with_capacity(2);
    for rows in parts {
        let values = &category.values[..category.values.len().min(VALUES)];
        let cells = categories::cells(Split::Train, rows, &category.name, values).await?;
        counts.push((cells.counts, rows.count()));
    }
    let [(old, of_old), (new, of_new)] = &counts[..] else {
        unreachable!("there are two parts");
    };
    let values = category.values.iter().zip(old).zip(new);
    let shifts = values.filter_map(|((value, old), new)| {
        let name = format!("{}={value}", category.name);
        let [old, new] = [(old, of_old), (new, of_new)].map(|(part, rows)| {
            let share = exact(*part) / exact(*rows);
            Measured {
                rows: exact(*rows),
                mean: share,
                variance: share * (1.0 - share),
                range: [0.0, 1.0],
                unlike: None,
            }
        });
        shift_of(&name, old, new)
    });
    Ok(shifts.collect())
}

#[expect(clippy::cast_precision_loss, reason = "a mean needs no 53 bits")]
fn exact(count: u64) -> f64 {
    count as f64
}

/// Returns an expression that selects rows landed after these positions.
fn is_behind(sources: &[SourceReference]) -> Expr {
    let each = (0u64..).zip(sources).map(|(source, reference)| {
        let first = (source << 56) + (reference.sequence.get() + 1).saturating_mul(1 << 24);
        let origin = || ident(system_columns::ORIGIN);
        let next = (source + 1).checked_shl(56).filter(|next| *next > first);
        let from = origin().gt_eq(lit(first));
        match next {
            Some(next) => from.and(origin().lt(lit(next))),
            None => from,
        }
    });
    each.reduce(Expr::or).unwrap_or_else(|| lit(false))
}
