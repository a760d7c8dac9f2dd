//! Expectations of whole columns, and of rows that are kept despite a violation.

use std::{collections::BTreeMap, sync::Arc};

use arrow::{
    array::{ArrayRef, AsArray},
    datatypes::UInt64Type,
};
use datafusion::{execution::SendableRecordBatchStream, logical_expr::ident, prelude::DataFrame};
use feedline_schemas::{config::OnViolation, manifest::Split};
use futures::TryStreamExt;
use tokio::task::JoinSet;

use super::{Expect, Rows, Rule, shown};
use crate::{Error, engine::union::append_rows, schema::system_columns, staging::Staged};

/// An expectation that data do not meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    /// As `price.max`: the column and the key.
    pub(crate) path: String,
    /// Rows that violate it.
    pub(crate) rows: u64,
    /// One of the values, or what was found.
    pub(crate) sample: String,
}

/// Violations of what is expected of columns; where rows are kept that are not as expected, theirs too.
pub(crate) async fn violations(staged: &Staged, expect: &Expect) -> Result<Vec<Violation>, Error> {
    let mut all: Option<DataFrame> = None;
    for split in Split::ALL
        .into_iter()
        .filter(|split| staged.rows(*split) > 0)
    {
        let rows = staged.frame(split)?;
        all = Some(append_rows(all, rows)?);
    }
    let Some(all) = all else {
        return Ok(Vec::new());
    };
    let mut found = Vec::new();
    for column in &expect.columns {
        if column.max_missing_fraction.is_none() && !column.unique {
            continue;
        }
        let cells = all.clone().select(vec![ident(&column.name)])?;
        let there = cells.filter(ident(&column.name).is_not_null())?;
        let filled = Box::pin(there.clone().count()).await? as u64;
        if let Some(share) = column.max_missing_fraction {
            found.extend(too_many_missing(
                &column.name,
                staged.total(),
                filled,
                share,
            ));
        }
        if column.unique {
            let distinct = Box::pin(there.distinct()?.count()).await? as u64;
            if distinct < filled {
                found.push(Violation {
                    path: format!("{}.unique", column.name),
                    rows: filled - distinct,
                    sample: format!("{filled} cells hold {distinct} different values"),
                });
            }
        }
    }
    if expect.on_violation == OnViolation::Warn {
        found.extend(rows(all, expect).await?);
    }
    Ok(found)
}

#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
fn too_many_missing(column: &str, rows: u64, filled: u64, share: f64) -> Option<Violation> {
    let missing = rows.saturating_sub(filled);
    (missing as f64 > share * rows as f64).then(|| Violation {
        path: format!("{column}.max_missing_fraction"),
        rows: missing,
        sample: format!("{missing} of {rows} cells are missing, more than a fraction of {share}"),
    })
}

/// Rows that are not as expected, by expectation: a row counts for each that it violates.
async fn rows(all: DataFrame, expect: &Expect) -> Result<Vec<Violation>, Error> {
    let names = expect.columns.iter().map(|column| column.name.as_str());
    let columns = std::iter::once(system_columns::ORIGIN)
        .chain(names)
        .map(ident);
    let rules = Arc::new(Rows::new(&expect.columns));
    let partitions = all.select(columns.collect::<Vec<_>>())?;
    let mut tasks = JoinSet::new();
    for stream in Box::pin(partitions.execute_stream_partitioned()).await? {
        tasks.spawn(faults(Arc::clone(&rules), stream));
    }
    let mut found = Faults::default();
    while let Some(done) = tasks.join_next().await {
        let done = done.map_err(Error::from);
        found.merge(done??);
    }
    Ok(found.named(&rules))
}

/// The faults of one partition.
async fn faults(rules: Arc<Rows>, mut rows: SendableRecordBatchStream) -> Result<Faults, Error> {
    let mut found = Faults::default();
    while let Some(batch) = rows.try_next().await? {
        let columns = batch.columns().split_first();
        let (origins, cells) = columns.expect("the origin comes before the cells");
        found.count(&rules, origins.as_primitive::<UInt64Type>().values(), cells);
    }
    Ok(found)
}

/// Faults by the place of their rule and the key that is violated.
#[derive(Clone, Debug, Default)]
pub(super) struct Faults(BTreeMap<(usize, &'static str), Fault>);

#[derive(Clone, Debug)]
struct Fault {
    rows: u64,
    /// Origin of the first of them in landing order, and its cell.
    first: u64,
    sample: String,
}

impl Faults {
    /// Counts those of a batch.
    pub(super) fn count(&mut self, rules: &Rows, origins: &[u64], cells: &[ArrayRef]) {
        self.count_rows(rules, origins.iter().copied().enumerate(), cells);
    }

    /// Counts those of `rows` of a batch, each with its origin, column by column.
    pub(super) fn count_rows(
        &mut self,
        rules: &Rows,
        rows: impl Iterator<Item = (usize, u64)> + Clone,
        cells: &[ArrayRef],
    ) {
        for (place, (rule, cells)) in rules.0.iter().zip(cells).enumerate() {
            for (row, origin) in rows.clone() {
                if let Some(key) = rule.fault(cells, row) {
                    self.add((place, key), 1, origin, || shown(cells, row));
                }
            }
        }
    }

    fn add(
        &mut self,
        at: (usize, &'static str),
        rows: u64,
        origin: u64,
        sample: impl FnOnce() -> String,
    ) {
        let fault = self.0.entry(at).or_insert(Fault {
            rows: 0,
            first: u64::MAX,
            sample: String::new(),
        });
        fault.rows += rows;
        if origin < fault.first {
            (fault.first, fault.sample) = (origin, sample());
        }
    }

    pub(super) fn merge(&mut self, other: Self) {
        for (at, fault) in other.0 {
            self.add(at, fault.rows, fault.first, || fault.sample);
        }
    }

    pub(super) fn named(self, rules: &Rows) -> Vec<Violation> {
        let violation = |((place, key), fault): (_, Fault)| {
            let rule: &Rule = rules.0.get(place)?;
            Some(Violation {
                path: format!("{}.{key}", rule.column),
                rows: fault.rows,
                sample: fault.sample,
            })
        };
        self.0.into_iter().filter_map(violation).collect()
    }
}
