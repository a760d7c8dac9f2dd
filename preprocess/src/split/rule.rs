//! `dataset.split`, checked against the landed columns.

use feedline_schemas::config::{DatasetConfig, DatasetKind, SplitBy, SplitConfig};

use super::{named::Named, time::TimeRule};
use crate::{Error, columns::MergedColumn, payload::Payload};

/// Rule that decides the split of a row.
#[derive(Clone, Debug)]
pub(crate) enum Rule {
    /// A hash of its key or content.
    Hash,
    /// Its place.
    Range,
    /// Its time.
    Time(TimeRule),
    /// By a name in the data.
    Named(Named),
}

/// Checks the keys of the section beside the shares.
///
/// # Errors
/// [`Error::Config`] for keys that do not go together, columns that are missing, and expressions
/// that cannot be read.
pub(crate) fn resolve(config: &DatasetConfig, columns: &[MergedColumn]) -> Result<Rule, Error> {
    let split = &config.split;
    check_keys(split)?;
    check_frozen(config)?;
    Ok(
        match (split.by, &split.expression, &split.column, &split.time) {
            (SplitBy::Key, ..) => Rule::Hash,
            (SplitBy::Range, ..) => Rule::Range,
            (SplitBy::Expression, Some(sql), ..) => {
                Rule::Named(Named::by_expression(sql, columns)?)
            }
            (SplitBy::Column, _, Some(name), _) => Rule::Named(Named::by_column(name, columns)?),
            (SplitBy::Time, .., Some(name)) => Rule::Time(TimeRule::resolve(name, split, columns)?),
            (by, ..) => {
                let (key, example) = match by {
                    SplitBy::Expression => (
                        "expression",
                        "case when id % 10 < 8 then 'train' else 'test' end",
                    ),
                    SplitBy::Column => ("column", "fold"),
                    _ => ("time", "timestamp"),
                };
                let reason = format!("this way to split needs it, such as `{key} = \"{example}\"`");
                return Err(Error::config(format!("dataset.split.{key}"), reason));
            }
        },
    )
}

/// Rows that share an image share a split, which only a hash can see to.
///
/// # Errors
/// [`Error::Config`] for another way to split beside images that are compared.
pub(crate) fn check_images<'a>(
    split: &SplitConfig,
    mut held: impl Iterator<Item = &'a Payload>,
) -> Result<(), Error> {
    let grouped = |part: &Payload| part.images.as_ref().is_some_and(|p| p.how.hashes);
    if split.by.is_key() || !held.any(grouped) {
        return Ok(());
    }
    let reason = "rows that share an image share a split (`image.duplicates`), which no order, time or name can follow; use `key`";
    Err(Error::config("dataset.split.by", reason))
}

/// A key that another way to split has no use for is a mistake.
fn check_keys(split: &SplitConfig) -> Result<(), Error> {
    let by = split.by;
    let own_shares = {
        let default = SplitConfig::default();
        let shares = |s: &SplitConfig| [s.train, s.validation, s.test].map(f64::to_bits);
        shares(split) != shares(&default)
    };
    let given = [
        (
            "expression",
            split.expression.is_some(),
            by == SplitBy::Expression,
            "`by = \"expression\"`",
        ),
        (
            "column",
            split.column.is_some(),
            by == SplitBy::Column,
            "`by = \"column\"`",
        ),
        (
            "time",
            split.time.is_some(),
            by == SplitBy::Time,
            "`by = \"time\"`",
        ),
        (
            "until",
            !split.until.is_empty(),
            by == SplitBy::Time,
            "`by = \"time\"`",
        ),
        (
            "frozen",
            split.frozen.is_some(),
            by == SplitBy::Key,
            "`by = \"key\"`",
        ),
    ];
    if let Some((key, .., goes_with)) = given
        .into_iter()
        .find(|(_, given, fits, _)| *given && !*fits)
    {
        let reason = format!("it goes with {goes_with}, and only with it; change one of the two");
        return Err(Error::config(format!("dataset.split.{key}"), reason));
    }
    let has_shares = !by.is_named() && split.until.is_empty();
    let tolerance = match split.tolerance {
        Some(most) if !(0.0..=1.0).contains(&most) => {
            Some("it is a difference of shares, from 0 to 1")
        }
        Some(_) if !has_shares => {
            Some("no share says how large the splits are, so none can be missed; remove it")
        }
        _ => None,
    };
    if let Some(reason) = tolerance {
        return Err(Error::config("dataset.split.tolerance", reason));
    }
    if own_shares && (by.is_named() || !split.until.is_empty()) {
        let decides = match by {
            SplitBy::Time => "the borders of `until` decide",
            SplitBy::Column => "the column decides",
            _ => "the expression decides",
        };
        let reason =
            format!("{decides} how large the splits are; remove `train`, `validation` and `test`");
        return Err(Error::config("dataset.split", reason));
    }
    Ok(())
}

/// A frozen test split is made of rows of a table or of images, and the others are split in two.
fn check_frozen(config: &DatasetConfig) -> Result<(), Error> {
    let split = &config.split;
    if split.frozen.is_none() {
        return Ok(());
    }
    let reason = if split.test > 0.0 {
        "the frozen source is the whole test split; set `dataset.split.test = 0`, and `train` and `validation` to shares of \
         the others that add up to 1"
    } else if !matches!(config.kind, DatasetKind::Rows | DatasetKind::Images) {
        "it belongs to a dataset of rows or images; for texts name the source in `dataset.near_dup.against`"
    } else if config.sql.is_some() {
        "rows that a query makes have no source; name their split with `by = \"expression\"`"
    } else if config.near_dup.is_some() {
        "copies of a frozen source are told by their content, near ones by `dataset.near_dup.against`; use one of the two"
    } else {
        return Ok(());
    };
    Err(Error::config("dataset.split.frozen", reason))
}
