//! `dataset.split`, checked against the landed columns.

use feedline_schemas::config::{DatasetConfig, DatasetKind, SplitBy, SplitConfig};

use super::{named::Named, time::TimeRule};
use crate::{
    Error, operators::content_column::ContentColumn, schema::landed_columns::MergedColumn,
};

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

/// Resolves the rule of the section.
///
/// # Errors
/// [`Error::Config`] for missing columns, invalid expressions, and a frozen source that does not fit
/// the dataset.
pub(crate) fn resolve(config: &DatasetConfig, columns: &[MergedColumn]) -> Result<Rule, Error> {
    let split = &config.split;
    check_frozen(config)?;
    Ok(match &split.by {
        SplitBy::Key { .. } => Rule::Hash,
        SplitBy::Range { .. } => Rule::Range,
        SplitBy::Expression(sql) => Rule::Named(Named::by_expression(sql, columns)?),
        SplitBy::Column(name) => Rule::Named(Named::by_column(name, columns)?),
        SplitBy::Time { column, .. } => Rule::Time(TimeRule::resolve(column, split, columns)?),
    })
}

/// Rows that share an image share a split, which only a hash can see to.
///
/// # Errors
/// [`Error::Config`] for another way to split beside images that are compared.
pub(crate) fn check_images<'a>(
    split: &SplitConfig,
    mut held: impl Iterator<Item = &'a ContentColumn>,
) -> Result<(), Error> {
    let grouped = |part: &ContentColumn| part.images.as_ref().is_some_and(|p| p.how.hashes);
    if split.by.is_key() || !held.any(grouped) {
        return Ok(());
    }
    let reason = "rows that share an image share a split (`image.duplicates`), which no order, time or name can follow; use `key`";
    Err(Error::config("dataset.split.by", reason))
}

/// Checks that a split of rows does not follow from the target alone: a model would be measured on values that it never learnt.
///
/// # Errors
/// [`Error::Config`] for a key of targets alone. A split that the data name may hold out values on purpose.
pub(crate) fn check_key(config: &DatasetConfig) -> Result<(), Error> {
    let split = &config.split;
    let is_of_key = config.kind.is_rows() && !split.by.is_named();
    let is_of_targets = split.key.iter().all(|name| config.is_target(name));
    match split.key.first().filter(|_| is_of_key && is_of_targets) {
        None => Ok(()),
        Some(name) => Err(Error::config(
            "dataset.split.key",
            format!(
                "`{name}` is a target (`dataset.target`), and rows with equal targets would all be in one split, so a model would be \
                 measured on values that training lacks; name a column that identifies what rows belong to, such as a customer, or \
                 remove this key"
            ),
        )),
    }
}

/// A frozen test split is made of rows of a table or of images, and the others are split in two.
fn check_frozen(config: &DatasetConfig) -> Result<(), Error> {
    let split = &config.split;
    if split.frozen().is_none() {
        return Ok(());
    }
    let reason = if !matches!(config.kind, DatasetKind::Rows | DatasetKind::Images) {
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
