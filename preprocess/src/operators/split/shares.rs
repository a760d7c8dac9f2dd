//! Check of split sizes against their fractions: a group is never split, so few or uneven groups
//! miss them.

use feedline_schemas::{
    config::SplitConfig,
    manifest::{GroupCounts, Split},
    report::Warning,
};

use crate::Error;

/// Difference of shares that is worth a warning where no tolerance is given.
const WORTH_TELLING: f64 = 0.1;

/// Rows below which chance alone makes such a difference.
const FEW_ROWS: u64 = 1000;

/// Compares the rows of each split with its share, if shares decide. Warns of a split that misses
/// it without a tolerance. `keeps_copies` says that equal rows are among them.
///
/// # Errors
/// [`Error::Config`] for a split that misses its share by more than the tolerance.
pub(crate) fn check_shares(
    config: &SplitConfig,
    rows: [u64; 3],
    groups: Option<GroupCounts>,
    keeps_copies: bool,
) -> Result<Option<Warning>, Error> {
    if config.by.is_named() || !config.until().is_empty() {
        return Ok(None);
    }
    // A frozen source is the test split, however large it is.
    let dealt = if config.frozen().is_some() { 2 } else { 3 };
    let total: u64 = rows[..dealt].iter().sum();
    let shares = [config.train, config.validation, config.test];
    let found = rows.map(|rows| share(rows, total));
    let missed = |i: &usize| (found[*i] - shares[*i]).abs();
    let worst = (0..dealt).max_by(|a, b| missed(a).total_cmp(&missed(b)));
    let Some(worst) = worst.filter(|_| total > 0) else {
        return Ok(None);
    };
    let (split, wanted) = (Split::ALL[worst], shares[worst]);
    let (difference, found) = (missed(&worst), found[worst]);
    match config.tolerance {
        Some(most) if difference > most => {
            let rows = rows[worst];
            let reason = format!(
                "the {split} split got {rows} of {total} rows, a share of {found:.4} and not {wanted}{}; split by a finer \
                 key, try another `salt`, or allow a difference of {}",
                told(config, groups),
                (difference * 1e4).ceil() / 1e4
            );
            Err(Error::config("dataset.split.tolerance", reason))
        }
        None if difference > WORTH_TELLING && total >= FEW_ROWS => {
            let because = match (config.key.is_empty(), keeps_copies) {
                (true, true) => {
                    ", since all copies of a row are in one split (`dataset.dedup = \"none\"`)"
                        .to_owned()
                }
                _ => told(config, groups),
            };
            let message = format!(
                "the {split} split has {} of {total} rows, a share of {found:.4} and not {wanted}{because}",
                rows[worst]
            );
            Ok(Some(
                Warning::new("split_misses_share", message).with_key("dataset.split"),
            ))
        }
        _ => Ok(None),
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share needs no 53 bits")]
fn share(rows: u64, total: u64) -> f64 {
    rows as f64 / total.max(1) as f64
}

/// Distribution of the groups, as a part of a sentence.
fn told(config: &SplitConfig, groups: Option<GroupCounts>) -> String {
    let Some(groups) = groups else {
        return String::new();
    };
    format!(
        ", since groups of `{}` stand whole in one: {} in train, {} in validation, {} in test, the largest of {} rows",
        config.key.join("`, `"),
        groups.train,
        groups.validation,
        groups.test,
        groups.largest
    )
}

#[cfg(test)]
mod tests {
    use feedline_schemas::{config::SplitBy, ids::TableName};

    use super::*;

    fn check(config: SplitConfig, rows: [u64; 3]) -> Option<String> {
        let groups = Some(GroupCounts {
            train: 7,
            validation: 2,
            test: 1,
            largest: 90,
        });
        let found = check_shares(&config, rows, groups, false);
        found.err().map(|error| error.to_string())
    }

    fn within(tolerance: f64) -> SplitConfig {
        SplitConfig {
            key: vec!["who".into()],
            tolerance: Some(tolerance),
            ..SplitConfig::default()
        }
    }

    #[test]
    fn a_share_that_is_missed_by_more_than_the_tolerance_is_told_with_its_groups() {
        assert_eq!(check(within(0.05), [83, 9, 8]), None);
        let message = check(within(0.02), [83, 9, 8]).unwrap();
        for part in [
            "`dataset.split.tolerance`",
            "the train split got 83 of 100 rows, a share of 0.8300 and not 0.8",
            "groups of `who`",
            "7 in train, 2 in validation, 1 in test, the largest of 90 rows",
        ] {
            assert!(message.contains(part), "{message}");
        }
    }

    #[test]
    fn without_a_tolerance_and_without_rows_nothing_is_refused() {
        let free = SplitConfig::default();
        assert_eq!(check(free, [99_000, 500, 500]), None);
        assert_eq!(check(within(0.0), [0, 0, 0]), None);
    }

    #[test]
    fn a_share_that_is_missed_without_a_tolerance_is_warned_of_with_the_reason() {
        let warning = |config: SplitConfig, keeps_copies| {
            let found = check_shares(&config, [600, 200, 200], None, keeps_copies);
            found.unwrap().unwrap()
        };
        let found = warning(SplitConfig::default(), true);
        assert_eq!(found.code, "split_misses_share");
        assert_eq!(
            found.message,
            "the train split has 600 of 1000 rows, a share of 0.6000 and not 0.8, since all copies of a row are in one split \
             (`dataset.dedup = \"none\"`)"
        );
        let found = warning(SplitConfig::default(), false);
        assert!(found.message.ends_with("and not 0.8"), "{found:?}");
        let few = check_shares(&SplitConfig::default(), [60, 20, 20], None, true);
        assert_eq!(few.unwrap(), None);
    }

    #[test]
    fn a_frozen_test_split_has_the_size_it_has() {
        let frozen = SplitConfig {
            train: 0.9,
            validation: 0.1,
            test: 0.0,
            by: SplitBy::Key {
                frozen: Some(TableName::new("b").unwrap()),
            },
            ..within(0.01)
        };
        assert_eq!(check(frozen.clone(), [90, 10, 5000]), None);
        assert!(check(frozen, [50, 50, 0]).is_some());
    }
}
