//! Groups of the split's key among staged rows.

use arrow::{
    array::AsArray,
    datatypes::{Int64Type, UInt8Type},
};
use datafusion::{
    functions_aggregate::{
        count::count_all,
        expr_fn::{max, min},
    },
    logical_expr::ident,
    prelude::DataFrame,
};

use crate::{
    Error,
    operators::dedup::content_hash::key_of,
    schema::system_columns::{self, column},
};

/// Columns of a group: its lowest and highest split, and its rows.
const FIRST: &str = "first";
const LAST: &str = "last";
const ROWS: &str = "rows";

/// Groups of the split's key among staged rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Groups {
    /// Groups of each split, by the first one that they have rows in.
    pub(crate) splits: [u64; 3],
    /// Rows of the largest group.
    pub(crate) largest: u64,
    /// Groups with rows in more than one split.
    pub(crate) leaked: u64,
    /// Hashes of the keys of some of these.
    pub(crate) samples: Vec<u64>,
}

impl Groups {
    /// Counts the groups of `rows`, with `samples` of those in more than one split.
    pub(super) async fn count(rows: DataFrame, samples: usize) -> Result<Self, Error> {
        let split = ident(system_columns::SPLIT);
        let each = rows.aggregate(
            vec![ident(system_columns::GROUP)],
            vec![
                min(split.clone()).alias(FIRST),
                max(split).alias(LAST),
                count_all().alias(ROWS),
            ],
        )?;
        let by_splits = each.clone().aggregate(
            vec![ident(FIRST), ident(LAST)],
            vec![
                count_all().alias("groups"),
                max(ident(ROWS)).alias("largest"),
            ],
        )?;
        let mut groups = Self::default();
        for batch in Box::pin(by_splits.collect()).await? {
            let code = |i: usize| batch.column(i).as_primitive::<UInt8Type>();
            let number = |i: usize| batch.column(i).as_primitive::<Int64Type>();
            for row in 0..batch.num_rows() {
                let [first, last] = [0, 1].map(|i| code(i).value(row));
                let [count, rows] = [2, 3].map(|i| number(i).value(row).unsigned_abs());
                groups.add([first, last], count, rows);
            }
        }
        if groups.leaked > 0 {
            groups.samples = sample_leaked(each, samples).await?;
        }
        Ok(groups)
    }

    /// Counts `count` groups with rows in the splits of these two codes; the largest has `rows`.
    pub(super) fn add(&mut self, [first, last]: [u8; 2], count: u64, rows: u64) {
        self.splits[usize::from(first)] += count;
        self.largest = self.largest.max(rows);
        self.leaked += if first == last { 0 } else { count };
    }

    /// Name of a group in messages.
    pub(crate) fn named(key: u64) -> String {
        format!("rows of the split key with hash `{key:016x}`")
    }
}

/// Hashes of the keys of some groups of more than one split.
async fn sample_leaked(each: DataFrame, samples: usize) -> Result<Vec<u64>, Error> {
    let leaks = each.filter(ident(FIRST).lt(ident(LAST)))?;
    let mut found = Vec::new();
    for batch in Box::pin(leaks.limit(0, Some(samples))?.collect()).await? {
        let keys = column(&batch, system_columns::GROUP).as_fixed_size_binary();
        found.extend((0..batch.num_rows()).map(|row| key_of(keys.value(row))));
    }
    Ok(found)
}
