//! Rows that are equal but for their target: a rule decides which of them is kept.
//!
//! Targets are compared in the form that is learnt from, numbers as numbers and classes as text,
//! and only those of usable rows count. The engine sorts by content, then by the rule, spilling
//! where it must, so the choice depends neither on memory nor on partitions.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, StringArray},
    datatypes::{DataType, Int64Type, UInt64Type},
    util::display::array_value_to_string,
};
use datafusion::{
    error::Result as EngineResult,
    functions_aggregate::{
        count::count_all,
        expr_fn::{max, min},
    },
    functions_window::expr_fn::{dense_rank, row_number},
    logical_expr::{Expr, ExprFunctionExt, ident, lit},
    prelude::DataFrame,
};
use feedline_schemas::{
    config::{Conflicts, DatasetConfig, DatasetKind, DedupMode},
    manifest::ConflictCounts,
};
use futures::TryStreamExt;
use serde::{Deserialize, Serialize};

use crate::{
    Error,
    engine::scalar_function::RowFunction,
    schema::{
        landed_columns::MergedColumn,
        reject_reason::{self, Reason},
        system_columns,
    },
};

/// Checks the keys that say what makes rows equal, as far as that needs no columns.
///
/// # Errors
/// [`Error::Config`] for keys that do not go together.
pub(crate) fn check_keys(config: &DatasetConfig) -> Result<(), Error> {
    let ignored = &config.dedup_ignore;
    let given = [
        ("dataset.dedup_ignore", !ignored.is_empty()),
        ("dataset.conflicts", config.conflicts.is_some()),
    ];
    for (key, _) in given.into_iter().filter(|(_, given)| *given) {
        let reason = if !compares_columns(config) {
            "it is for `dataset.kind = \"rows\"` and `\"multi\"`: images and documents are compared by their content, not by \
             other columns; remove this key"
        } else if config.dedup == DedupMode::None {
            "duplicates are kept, as `dataset.dedup` is `none`; remove one of the two"
        } else {
            continue;
        };
        return Err(Error::config(key, reason));
    }
    if config.conflicts.is_some() && config.target.is_none() {
        let reason =
            "rows have no target to differ in; name it in `dataset.target`, or remove this key";
        return Err(Error::config("dataset.conflicts", reason));
    }
    let target = ignored.iter().find(|name| config.is_target(name));
    if let Some(name) = target {
        let reason = format!(
            "`{name}` is the target; set `dataset.conflicts` to handle rows that differ only in it"
        );
        return Err(Error::config("dataset.dedup_ignore", reason));
    }
    Ok(())
}

/// Checks that rows have a column to differ in.
///
/// # Errors
/// [`Error::Config`] where all are ignored, and as [`check_keys`].
pub(crate) fn check(config: &DatasetConfig, columns: &[MergedColumn]) -> Result<(), Error> {
    check_keys(config)?;
    let ignored = &config.dedup_ignore;
    let is_left = |column: &MergedColumn| is_content(config, &column.name);
    if !ignored.is_empty() && !columns.iter().any(is_left) {
        let reason =
            "no column is left that rows could differ in, so all of them would be one; list fewer";
        return Err(Error::config("dataset.dedup_ignore", reason));
    }
    Ok(())
}

/// Returns true if rows are duplicates for all of their columns, not for one image or document alone.
pub(crate) fn compares_columns(config: &DatasetConfig) -> bool {
    matches!(config.kind, DatasetKind::Rows | DatasetKind::Multi)
}

/// Returns true if column `name` is part of the content that makes rows duplicates.
pub(crate) fn is_content(config: &DatasetConfig, name: &str) -> bool {
    let is_target = config.is_target(name);
    let is_settled = is_target && config.conflicts.is_some();
    !is_settled && !config.dedup_ignore.iter().any(|ignored| ignored == name)
}

/// Contents with several targets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LabelConflicts {
    /// Number of them.
    pub(crate) counts: ConflictCounts,
    /// The first of them to land.
    pub(crate) sample: Option<ConflictSample>,
}

/// A content with several targets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConflictSample {
    /// Origin of the first row that has it.
    pub(crate) first: u64,
    /// Two of its targets.
    pub(crate) targets: [String; 2],
}

impl LabelConflicts {
    /// Adds a content of `rows` rows; `first` is the origin of the first.
    pub(crate) fn add(&mut self, rows: u64, first: u64, targets: [String; 2]) {
        self.counts.contents += 1;
        self.counts.rows += rows;
        self.merge_sample(ConflictSample { first, targets });
    }

    /// Adds other contents.
    pub(crate) fn merge(&mut self, other: Self) {
        self.counts.contents += other.counts.contents;
        self.counts.rows += other.counts.rows;
        other
            .sample
            .into_iter()
            .for_each(|sample| self.merge_sample(sample));
    }

    fn merge_sample(&mut self, other: ConflictSample) {
        match &self.sample {
            Some(sample) if sample.first <= other.first => {}
            _ => self.sample = Some(other),
        }
    }
}

/// Counts the contents in `rows` with several values in column `target`, and describes the first of them. Contents whose hash
/// `is_skipped` do not count.
///
/// # Errors
/// Failures of the engine.
pub(crate) async fn count(
    rows: DataFrame,
    target: &str,
    is_skipped: impl Fn(&[u8]) -> bool,
) -> Result<LabelConflicts, Error> {
    const ROWS: &str = "rows";
    const LEAST: &str = "least";
    const MOST: &str = "most";
    const FIRST: &str = "first";
    let several = rows
        .filter(ident(system_columns::REJECT).is_null())?
        .aggregate(
            vec![ident(system_columns::HASH)],
            vec![
                count_all().alias(ROWS),
                min(ident(target)).alias(LEAST),
                max(ident(target)).alias(MOST),
                min(ident(system_columns::ORIGIN)).alias(FIRST),
            ],
        )?
        .filter(ident(LEAST).not_eq(ident(MOST)))?
        .select(vec![
            ident(ROWS),
            ident(FIRST),
            ident(LEAST),
            ident(MOST),
            ident(system_columns::HASH),
        ])?;
    let mut found = LabelConflicts::default();
    let mut batches = Box::pin(several.execute_stream()).await?;
    while let Some(batch) = batches.try_next().await? {
        let rows = batch.column(0).as_primitive::<Int64Type>().values();
        let origins = batch.column(1).as_primitive::<UInt64Type>().values();
        let hashes = batch.column(4).as_fixed_size_binary();
        for (row, (rows, first)) in rows.iter().zip(origins).enumerate() {
            if is_skipped(hashes.value(row)) {
                continue;
            }
            let [least, most] =
                [2, 3].map(|at: usize| array_value_to_string(batch.column(at), row));
            found.add(rows.unsigned_abs(), *first, [least?, most?]);
        }
    }
    Ok(found)
}

/// Of the rows with one content the one that `how` chooses by column `target`, and those for which `has_no_content` is true.
///
/// # Errors
/// Failures of the engine.
pub(crate) fn settled(
    rows: DataFrame,
    (target, how): (&str, Conflicts),
    has_no_content: Option<Expr>,
) -> Result<DataFrame, Error> {
    const COPY: &str = "_copy";
    const WEIGHT: &str = "_weight";
    let names: Vec<String> = rows
        .schema()
        .fields()
        .iter()
        .map(|field| field.name().clone())
        .collect();
    let bad_last = || {
        ident(system_columns::REJECT)
            .is_not_null()
            .sort(true, false)
    };
    let landed = |first: bool| ident(system_columns::ORIGIN).sort(first, false);
    let content = || vec![ident(system_columns::HASH)];
    let weight = match how {
        Conflicts::First => None,
        // Of the rows of one target, counted from the last, the first has the number of all.
        Conflicts::Majority => Some(
            row_number()
                .partition_by(vec![ident(system_columns::HASH), ident(target)])
                .order_by(vec![bad_last(), landed(false)])
                .build()?,
        ),
        // The last of the targets has the number of all.
        Conflicts::Drop => Some(
            dense_rank()
                .partition_by(content())
                .order_by(vec![bad_last(), ident(target).sort(true, false)])
                .build()?,
        ),
    };
    let mut order = vec![bad_last()];
    let weighed = match weight {
        Some(weight) => {
            order.push(ident(WEIGHT).sort(false, false));
            rows.window(vec![weight.alias(WEIGHT)])?
        }
        None => rows,
    };
    order.push(landed(true));
    let place = row_number()
        .partition_by(content())
        .order_by(order)
        .build()?
        .alias(COPY);
    let columns: Vec<Expr> = names
        .iter()
        .map(|name| match (name.as_str(), how) {
            (system_columns::REJECT, Conflicts::Drop) => {
                let column = target.to_owned();
                let cells = vec![ident(system_columns::REJECT), ident(WEIGHT)];
                Conflicting { column }
                    .over(cells)
                    .alias(system_columns::REJECT)
            }
            (name, _) => ident(name),
        })
        .collect();
    let is_chosen = ident(COPY).eq(lit(1u64));
    let is_kept = match has_no_content {
        Some(has_none) => is_chosen.or(has_none),
        None => is_chosen,
    };
    Ok(weighed
        .window(vec![place])?
        .filter(is_kept)?
        .select(columns)?)
}

/// Reason to reject a row, from its earlier reason, if any, and the number of targets of its
/// content.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Conflicting {
    /// The target.
    column: String,
}

impl RowFunction for Conflicting {
    const NAME: &'static str = "feedline_conflicting";
    const RETURNS: DataType = DataType::Utf8;

    fn call(&self, columns: &[ArrayRef], rows: usize) -> EngineResult<ArrayRef> {
        let reasons = columns[0].as_string::<i32>();
        let targets = columns[1].as_primitive::<UInt64Type>();
        let reason = |row: usize| {
            if reasons.is_valid(row) {
                return Some(reasons.value(row).to_owned());
            }
            let count = targets.value(row);
            let reason = Reason {
                reason: reject_reason::CONFLICTING_TARGET.to_owned(),
                column: self.column.clone(),
                value: format!("{count} different values in rows that are equal beside it"),
            };
            (count > 1).then(|| reason.to_json())
        };
        Ok(Arc::new((0..rows).map(reason).collect::<StringArray>()))
    }
}
