//! Check of split sizes against their fractions: a group is never split, so few or uneven groups
//! miss them.

use feedline_schemas::{
    config::SplitConfig,
    count::counted,
    manifest::{GroupCounts, Split},
    report::Warning,
};

use crate::Error;

/// Code of the warning of a split that misses its share.
pub(crate) const SPLIT_MISSES_SHARE: &str = "split_misses_share";

/// Difference of shares that is worth a warning where no tolerance is given.
const WORTH_TELLING: f64 = 0.1;

/// Rows below which chance alone makes such a difference, where a hash assigns the splits.
const FEW_ROWS: u64 = 100;

/// A split that leaves out fewer than one row for each so many does not miss its share for that.
const FEW_LEFT_OUT: u64 = 20;

/// Rows of the splits, and causes for a split to miss its share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SplitSizes {
    /// Rows of each split, in the order of [`Split::ALL`].
    pub(crate) rows: [u64; 3],
    /// Groups of the key, where the split has one and they were counted.
    pub(crate) groups: Option<GroupCounts>,
    /// True if equal rows are among them.
    pub(crate) keeps_copies: bool,
    /// Rows that the split left out since their groups reach over a boundary.
    pub(crate) straddling: u64,
    /// Rows that the embargo left out, next to a boundary.
    pub(crate) embargoed: u64,
}

/// Compares the rows of each split with its share, if shares decide. Warns of a split that misses
/// it without a tolerance.
///
/// # Errors
/// [`Error::Config`] for a split that misses its share by more than the tolerance.
pub(crate) fn check_shares(
    config: &SplitConfig,
    sizes: SplitSizes,
) -> Result<Option<Warning>, Error> {
    if config.by.is_named() || !config.until().is_empty() {
        return Ok(None);
    }
    let SplitSizes { rows, groups, .. } = sizes;
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
        None if difference > WORTH_TELLING && (total >= FEW_ROWS || !config.by.is_key()) => {
            let message = format!(
                "the {split} split has {} of {total} rows, a share of {found:.4} and not {wanted}{}",
                rows[worst],
                because(config, sizes)
            );
            Ok(Some(
                Warning::new(SPLIT_MISSES_SHARE, message).with_key("dataset.split"),
            ))
        }
        _ => Ok(None),
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share needs no 53 bits")]
fn share(rows: u64, total: u64) -> f64 {
    rows as f64 / total.max(1) as f64
}

/// Cause of a missed share, as a part of a sentence.
fn because(config: &SplitConfig, sizes: SplitSizes) -> String {
    let left_out = sizes.straddling.saturating_add(sizes.embargoed);
    if left_out.saturating_mul(FEW_LEFT_OUT) >= sizes.rows.iter().sum() {
        return format!(", since the split left out {}", left_out_rows(sizes));
    }
    match config.key.is_empty() {
        _ if config.by.is_time() => ", since rows of one time share a split".to_owned(),
        true if sizes.keeps_copies => {
            ", since all copies of a row are in one split (`dataset.dedup = \"none\"`)".to_owned()
        }
        _ => told(config, sizes.groups),
    }
}

/// Rows that the split left out, with their places.
fn left_out_rows(sizes: SplitSizes) -> String {
    let places = [
        (sizes.straddling, "in groups that reach over a boundary"),
        (
            sizes.embargoed,
            "next to a boundary (`dataset.split.embargo`)",
        ),
    ];
    let found = places.into_iter().filter(|(rows, _)| *rows > 0);
    let found = found.map(|(rows, place)| format!("{} {place}", counted(rows, "row")));
    found.collect::<Vec<_>>().join(" and ")
}

/// Distribution of the groups, as a part of a sentence.
fn told(config: &SplitConfig, groups: Option<GroupCounts>) -> String {
    if config.key.is_empty() {
        return String::new();
    }
    let counts = groups.map(|groups| {
        format!(
            ": {} in train, {} in validation, {} in test, the largest of {}",
            groups.train,
            groups.validation,
            groups.test,
            counted(groups.largest, "row")
        )
    });
    format!(
        ", since groups of `{}` are not divided{}",
        config.key.join("`, `"),
        counts.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use feedline_schemas::{
        config::{Embargo, SplitBy},
        ids::TableName,
    };

    use super::*;

    fn sizes(rows: [u64; 3]) -> SplitSizes {
        SplitSizes {
            rows,
            groups: None,
            keeps_copies: false,
            straddling: 0,
            embargoed: 0,
        }
    }

    fn check(config: SplitConfig, rows: [u64; 3]) -> Option<String> {
        let groups = Some(GroupCounts {
            train: 7,
            validation: 2,
            test: 1,
            largest: 90,
        });
        let sizes = SplitSizes {
            groups,
            ..sizes(rows)
        };
        let found = check_shares(&config, sizes);
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
            let sizes = SplitSizes {
                keeps_copies,
                ..sizes([600, 200, 200])
            };
            check_shares(&config, sizes).unwrap().unwrap()
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
        let few = check_shares(&SplitConfig::default(), sizes([59, 20, 20]));
        assert_eq!(few.unwrap(), None);
    }

    #[test]
    fn a_split_by_time_that_leaves_rows_out_is_warned_of_whatever_its_size() {
        let config = SplitConfig {
            by: SplitBy::Time {
                column: "t".into(),
                until: Vec::new(),
                embargo: Embargo::default(),
            },
            key: vec!["cust".into()],
            ..SplitConfig::default()
        };
        let warning = |straddling, embargoed, rows| {
            let sizes = SplitSizes {
                straddling,
                embargoed,
                ..sizes(rows)
            };
            check_shares(&config, sizes).unwrap()
        };
        let begin = "the train split has 19 of 29 rows, a share of 0.6552 and not 0.8, since the split left out ";
        let groups = "62 rows in groups that reach over a boundary";
        let embargo = "1 row next to a boundary (`dataset.split.embargo`)";
        for (straddling, embargoed, expected) in [
            (62, 0, groups.to_owned()),
            (62, 1, format!("{groups} and {embargo}")),
        ] {
            let found = warning(straddling, embargoed, [19, 3, 7]).unwrap();
            assert_eq!(found.message, format!("{begin}{expected}"));
        }
        // Without a key there is no group.
        let found = warning(0, 30, [19, 3, 7]).unwrap();
        assert!(!found.message.contains("group"), "{found:?}");
        let tied = warning(0, 0, [19, 3, 7]).unwrap();
        assert!(tied.message.ends_with("share a split"), "{tied:?}");
        assert_eq!(warning(62, 0, [80, 10, 10]), None);
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
