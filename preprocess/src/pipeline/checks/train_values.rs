//! Columns of numbers without a value in any training row.

use std::collections::BTreeMap;

use arrow::{
    array::{AsArray, RecordBatch},
    datatypes::Float64Type,
};
use datafusion::logical_expr::{Expr, ident};
use feedline_schemas::{
    config::{ImputeStrategy, Step},
    manifest::Split,
    transform::InputKind,
};

use crate::{
    Error, fit::aggregate::Rows, pipeline::prepare::Build, schema::no_feature::NoFeatureReason,
    staging::Staged,
};

/// Training rows of the first pass, before the count over all rows.
const FIRST_ROWS: usize = 1000;

impl Build<'_> {
    /// Finds the numeric features by default without a finite value in any training row, where no constant fills them. Each
    /// comes with the rows of validation and test that have a value. None is found where no other feature is left.
    pub(in crate::pipeline) async fn find_columns_without_values(
        &self,
        staged: &Staged,
        left_out: &BTreeMap<String, NoFeatureReason>,
    ) -> Result<BTreeMap<String, [u64; 2]>, Error> {
        let mut names = self.numbers_by_default();
        retain_empty(staged, &mut names).await?;
        let features = self.spec.inputs.len() - left_out.len();
        if names.is_empty() || (names.len() == features && self.spec.parts.is_empty()) {
            return Ok(BTreeMap::new());
        }
        let [validation, test] = [
            count_values(staged, Split::Validation, &names).await?,
            count_values(staged, Split::Test, &names).await?,
        ];
        let counts = validation.into_iter().zip(test);
        let found = names.into_iter().zip(counts);
        Ok(found
            .map(|(name, (validation, test))| (name.to_owned(), [validation, test]))
            .collect())
    }

    /// Landed numeric features by default that no step fills with a constant.
    fn numbers_by_default(&self) -> Vec<&str> {
        let fills = |step: &Step| match step {
            Step::Impute(impute) => matches!(impute.strategy, ImputeStrategy::Constant(_)),
            _ => false,
        };
        let is_filled = |name: &String| {
            let mut steps = self.spec.steps.iter();
            steps.any(|step| fills(&step.step) && step.columns.contains(name))
        };
        let is_made = |name: &str| {
            let series = self.spec.series.as_ref();
            series.is_some_and(|series| series.makes(name))
        };
        let inputs = self.spec.inputs.iter().filter(|input| {
            let name = &input.column.name;
            let is_number = input.column.kind == InputKind::Numeric;
            input.by_default && is_number && !is_filled(name) && !is_made(name)
        });
        inputs.map(|input| input.column.name.as_str()).collect()
    }
}

/// Retains the columns without a finite value in any training row. Nearly all others have one in the first rows.
async fn retain_empty(staged: &Staged, names: &mut Vec<&str>) -> Result<(), Error> {
    if names.is_empty() {
        return Ok(());
    }
    let cells: Vec<Expr> = names.iter().map(|name| ident(*name)).collect();
    let first = staged.frame(Split::Train)?.select(cells)?;
    let first = Box::pin(first.limit(0, Some(FIRST_ROWS))?.collect()).await?;
    let mut place = 0..;
    names.retain(|_| place.next().is_some_and(|at| !has_finite(&first, at)));
    if names.is_empty() {
        return Ok(());
    }
    let rows = Rows::new(staged.frame(Split::Train)?, staged.rows(Split::Train));
    let cells = names.iter().map(|name| ident(*name)).collect();
    let profiles = rows.profiles(cells).await?;
    let mut finite = profiles.iter().map(|profile| profile.tally().finite);
    names.retain(|_| finite.next() == Some(0));
    Ok(())
}

/// Returns true if the column at this place has a finite value.
fn has_finite(batches: &[RecordBatch], at: usize) -> bool {
    batches.iter().any(|batch| {
        let mut cells = batch.column(at).as_primitive::<Float64Type>().iter();
        cells.any(|cell| cell.is_some_and(f64::is_finite))
    })
}

/// Counts the rows of `split` with a value in each of the columns `names`.
async fn count_values(staged: &Staged, split: Split, names: &[&str]) -> Result<Vec<u64>, Error> {
    let rows = Rows::new(staged.frame(split)?, staged.rows(split));
    let cells = names.iter().map(|name| ident(*name)).collect();
    let profiles = rows.profiles(cells).await?;
    let counts = profiles
        .iter()
        .map(|profile| rows.count() - profile.tally().missing);
    Ok(counts.collect())
}
