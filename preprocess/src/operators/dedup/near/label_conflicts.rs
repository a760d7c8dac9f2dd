//! Clusters of near-duplicates with several values of the target.

use std::collections::BTreeMap;

use arrow::{array::AsArray, datatypes::UInt64Type, util::display::array_value_to_string};
use datafusion::{logical_expr::ident, prelude::DataFrame};
use futures::TryStreamExt;

use super::judge::Judgement;
use crate::{Error, operators::dedup::conflicts::LabelConflicts, schema::system_columns};

/// Rows of a cluster, and the first and the last of their targets in alphabetical order.
struct Targets {
    rows: u64,
    least: String,
    most: String,
}

impl Targets {
    fn new(target: String) -> Self {
        Self {
            rows: 1,
            least: target.clone(),
            most: target,
        }
    }

    fn add(&mut self, target: String) {
        self.rows += 1;
        if target < self.least {
            self.least = target;
        } else if target > self.most {
            self.most = target;
        }
    }
}

/// Counts the clusters whose usable `rows` have several values in column `target`.
///
/// # Errors
/// Failures of the engine.
pub(super) async fn count(
    rows: DataFrame,
    target: &str,
    judgement: &Judgement,
) -> Result<LabelConflicts, Error> {
    let rows = rows
        .filter(ident(system_columns::REJECT).is_null())?
        .select([system_columns::ORIGIN, target].map(ident))?;
    let mut clusters: BTreeMap<u64, Targets> = BTreeMap::new();
    let mut batches = Box::pin(rows.execute_stream()).await?;
    while let Some(batch) = batches.try_next().await? {
        let origins = batch.column(0).as_primitive::<UInt64Type>().values();
        for (row, origin) in origins.iter().enumerate() {
            let Some(first) = judgement.first_of(*origin) else {
                continue;
            };
            let target = array_value_to_string(batch.column(1), row)?;
            match clusters.get_mut(&first) {
                Some(targets) => targets.add(target),
                None => {
                    clusters.insert(first, Targets::new(target));
                }
            }
        }
    }
    let mut found = LabelConflicts::default();
    for (first, targets) in clusters {
        if targets.least != targets.most {
            found.add(targets.rows, first, [targets.least, targets.most]);
        }
    }
    Ok(found)
}
