//! A fit in progress: the rows, and the steps fitted so far.

use std::collections::BTreeMap;

use datafusion::logical_expr::{Expr, ident};
use feedline_schemas::{manifest::JoinCounts, transform::FittedStep};

use super::{aggregate::Rows, fit_spec::TargetSpec};
use crate::{
    Error,
    statistics::{
        aggregates::{self, Profile},
        exact_sum::Summary,
    },
    transform::op_chain,
};

/// Key of the steps in the configuration.
pub(crate) const STEP: &str = "dataset.step";

/// A fit in progress.
#[derive(Debug)]
pub(crate) struct Fit {
    pub(crate) rows: Rows,
    /// Steps fitted so far.
    pub(super) steps: Vec<FittedStep>,
    /// Number of steps that the rows have already passed.
    pub(super) settled: usize,
    /// Target of the dataset.
    pub(super) target: Option<TargetSpec>,
    /// Columns that joins bring, each with the counts of its join.
    pub(super) joined: BTreeMap<String, JoinCounts>,
    /// Medians that were found on the way to something else, and how many cells are missing; each is that of its column
    /// until another step changes it.
    pub(crate) medians: BTreeMap<String, (f64, u64)>,
}

impl Fit {
    pub(crate) async fn profiles(&self, columns: &[String]) -> Result<Vec<Profile>, Error> {
        self.rows
            .profiles(columns.iter().map(|name| self.cell(name)).collect())
            .await
    }

    /// The column as the steps so far leave it.
    pub(crate) fn cell(&self, column: &str) -> Expr {
        aggregates::cell(ident(column), &op_chain(self.open_steps(), column))
    }

    /// The steps that the rows have not behind them.
    pub(crate) fn open_steps(&self) -> &[FittedStep] {
        &self.steps[self.settled..]
    }

    /// Error of a step that cannot be fitted to a column. For a joined column it has the rows that find a row there.
    pub(crate) fn nothing_to_fit(&self, step: &str, column: &str) -> Error {
        let rows = self.rows.count();
        let joined = self.joined.get(column).map(|join| {
            format!(
                "; it is joined from source `{}`, in which {} of {} landed rows find a row",
                join.source,
                join.matched,
                join.matched + join.unmatched
            )
        });
        Error::config(
            STEP,
            format!(
                "cannot fit `{step}` to column `{column}`: none of its {rows} training rows has a finite value; fill it with \
                 an `impute` step of `strategy = \"constant\"` and a `value`, or leave it out with `dataset.drop`{}",
                joined.unwrap_or_default()
            ),
        )
    }
}

/// scikit-learn's rule (`_is_constant_feature` in `sklearn/preprocessing/_data.py`): the variance is at most
/// `n·ε·variance + (n·mean·ε)²`. Written with the root of both sides, which cannot overflow.
pub(crate) fn is_constant(summary: Summary, count: u64) -> bool {
    #[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
    let error = count as f64 * f64::EPSILON;
    error >= 1.0 || summary.deviation * (1.0 - error).sqrt() <= error * summary.mean.abs()
}
