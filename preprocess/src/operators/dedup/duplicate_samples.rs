//! Contents of several rows, for the dataset report.

use std::cmp::Reverse;

use arrow::{
    array::AsArray,
    datatypes::{Int64Type, UInt64Type},
};
use datafusion::{
    functions_aggregate::{
        count::count_all,
        expr_fn::{max, min},
    },
    logical_expr::{ident, lit},
    prelude::DataFrame,
};
use feedline_schemas::ids::Origin;
use futures::TryStreamExt;

use crate::{Error, operators::dedup::content_hash::key_of, schema::system_columns};

/// Contents that are shown.
const SAMPLES: usize = 5;

/// Contents of several rows.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DuplicateContents {
    /// Number of contents.
    pub(crate) contents: u64,
    /// Those of the most rows.
    pub(crate) samples: Vec<Sample>,
}

/// A content of several rows.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    /// First half of its hash, the key of its row in the shards.
    pub(crate) hash: String,
    pub(crate) rows: u64,
    /// Positions where the first and the last landed.
    pub(crate) first: Origin,
    pub(crate) last: Origin,
}

/// Looks for them in `rows`, which have hash and origin; contents whose hash `is_skipped` are none.
pub(crate) async fn samples(
    rows: DataFrame,
    is_skipped: impl Fn(&[u8]) -> bool,
) -> Result<DuplicateContents, Error> {
    const ROWS: &str = "rows";
    const FIRST: &str = "first";
    const LAST: &str = "last";
    let origin = || ident(system_columns::ORIGIN);
    let several = rows
        .aggregate(
            vec![ident(system_columns::HASH)],
            vec![
                count_all().alias(ROWS),
                min(origin()).alias(FIRST),
                max(origin()).alias(LAST),
            ],
        )?
        .filter(ident(ROWS).gt(lit(1i64)))?;
    let mut found = DuplicateContents {
        contents: 0,
        samples: Vec::new(),
    };
    let mut batches = Box::pin(several.execute_stream()).await?;
    while let Some(batch) = batches.try_next().await? {
        let hashes = batch.column(0).as_fixed_size_binary();
        let rows = batch.column(1).as_primitive::<Int64Type>();
        let first = batch.column(2).as_primitive::<UInt64Type>();
        let last = batch.column(3).as_primitive::<UInt64Type>();
        let wanted = (0..batch.num_rows()).filter(|row| !is_skipped(hashes.value(*row)));
        for row in wanted {
            found.contents += 1;
            found.samples.push(Sample {
                hash: format!("{:016x}", key_of(hashes.value(row))),
                rows: rows.value(row).unsigned_abs(),
                first: Origin::from_packed(first.value(row)),
                last: Origin::from_packed(last.value(row)),
            });
        }
        let most_first = |sample: &Sample| (Reverse(sample.rows), sample.first);
        found.samples.sort_unstable_by_key(most_first);
        found.samples.truncate(SAMPLES);
    }
    Ok(found)
}
