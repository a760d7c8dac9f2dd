//! Warnings of rows that a split leaves out to keep its parts apart.

use std::collections::BTreeMap;

use feedline_schemas::report::Warning;

use super::message::{percent, share, warned_columns, warning};
use crate::schema::{
    landed_columns::listed,
    reject_reason::{EMBARGO, GROUP_STRADDLES},
};

/// Fraction of the rows that a split may leave out without a warning.
const MANY: f64 = 0.1;

/// Warns of many rows that are left out for one reason of the split: with the rows left out by reason, all rows before that, and the
/// columns of the split's key.
pub(crate) fn rows_left_out(
    left_out: &BTreeMap<String, u64>,
    rows: u64,
    key: &[String],
) -> Vec<Warning> {
    let many = |reason: &str| {
        let found = left_out.get(reason).copied().unwrap_or(0);
        (share(found, rows) > MANY).then(|| {
            let share = percent(found, rows);
            format!("{found} of {rows} rows ({share}) are in no split (`{reason}`)")
        })
    };
    let names: Vec<&str> = key.iter().map(String::as_str).collect();
    let straddling = many(GROUP_STRADDLES).map(|found| {
        let message = format!(
            "{found}: a group of {}, the key of the split, belongs to the split of its last row, and its rows before that split are left \
             out; leave `key` out where the groups of training rows may be in the other splits too, name a key whose groups end sooner, \
             or split by the key alone with `by = \"key\"`",
            listed(&names, "`")
        );
        warning("split_drops_rows", "dataset.split.key", message)
            .with_columns(warned_columns(names))
    });
    let embargoed = many(EMBARGO).map(|found| {
        let message = format!(
            "{found}: `embargo` leaves out the rows next to a boundary; shorten it as far as features and target look, or land more rows"
        );
        warning("split_drops_rows", "dataset.split.embargo", message)
    });
    straddling.into_iter().chain(embargoed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_rows_that_a_split_leaves_out_are_a_warning_with_their_share() {
        let find = |straddling: u64, embargo: u64| {
            let left_out = [(GROUP_STRADDLES, straddling), (EMBARGO, embargo)];
            let left_out = left_out.map(|(reason, rows)| (reason.to_owned(), rows));
            rows_left_out(&BTreeMap::from(left_out), 952, &["cust".to_owned()])
        };
        assert_eq!(find(95, 95), []);
        let found = find(627, 0);
        let [straddling] = &found[..] else {
            panic!("{found:?}")
        };
        assert_eq!(straddling.code, "split_drops_rows");
        assert_eq!(straddling.key.as_deref(), Some("dataset.split.key"));
        assert!(
            straddling.message.starts_with(
                "627 of 952 rows (65.9 %) are in no split (`group_straddles`): a group of `cust`"
            ),
            "{straddling:?}"
        );
        let found = find(0, 200);
        assert_eq!(found[0].key.as_deref(), Some("dataset.split.embargo"));
    }
}
