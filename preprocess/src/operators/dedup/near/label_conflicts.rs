//! Clusters of near-duplicates with several values of the target.

use std::{collections::BTreeMap, mem};

use arrow::{array::AsArray, datatypes::UInt64Type, util::display::array_value_to_string};
use datafusion::{logical_expr::ident, prelude::DataFrame};
use futures::TryStreamExt;

use super::judge::Judgement;
use crate::{Error, operators::dedup::conflicts::LabelConflicts, schema::system_columns};

/// Rows of a cluster, and the first and the last of their targets in alphabetical order.
struct Targets {
    rows: u64,
    least: String,
    /// Absent if all rows have the same target.
    most: Option<String>,
}

impl Targets {
    fn new(target: String) -> Self {
        Self {
            rows: 1,
            least: target,
            most: None,
        }
    }

    fn add(&mut self, target: String) {
        self.rows += 1;
        if target < self.least {
            let before = mem::replace(&mut self.least, target);
            self.most.get_or_insert(before);
        } else if target > *self.most.as_ref().unwrap_or(&self.least) {
            self.most = Some(target);
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
        if let Some(most) = targets.most {
            found.add(targets.rows, first, [targets.least, most]);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(targets: &[&str]) -> (u64, String, Option<String>) {
        let mut targets = targets.iter().map(|target| (*target).to_owned());
        let mut found = Targets::new(targets.next().unwrap());
        targets.for_each(|target| found.add(target));
        (found.rows, found.least, found.most)
    }

    #[test]
    fn the_last_target_of_a_cluster_is_kept_only_where_it_differs_from_the_first() {
        assert_eq!(ends(&["a", "a", "a"]), (3, "a".to_owned(), None));
        for targets in [
            ["a", "b", "c"],
            ["c", "b", "a"],
            ["b", "a", "c"],
            ["c", "a", "b"],
        ] {
            let expected = (3, "a".to_owned(), Some("c".to_owned()));
            assert_eq!(ends(&targets), expected, "{targets:?}");
        }
        let expected = (3, "a".to_owned(), Some("b".to_owned()));
        assert_eq!(ends(&["b", "a", "b"]), expected);
    }
}
