//! `[dataset.near_dup]` and the column that it compares, checked against the landed columns.

use feedline_schemas::{
    config::{DatasetConfig, DatasetKind, DocumentConfig, NearDupConfig, NearDupKeep},
    ids::{Name, TableName},
    record::{Column, ColumnType},
    units::ByteSize,
};

use crate::{
    Error,
    operators::content_column::{ContentColumn, ContentKind},
    schema::{
        landed_columns::{MergedColumn, find},
        system_columns,
    },
    source::landing_zone::Landed,
};

/// Column to compare, checked against the landed columns.
#[derive(Clone, Debug)]
pub(crate) struct NearDup {
    /// Column as it landed.
    pub(super) landed: String,
    /// True if it is the column of documents, which rows hold anyway.
    is_payload: bool,
    /// Preparation of documents, so that frozen ones are compared in their prepared form.
    pub(super) prepared: Option<DocumentConfig>,
    pub(crate) config: NearDupConfig,
}

impl NearDup {
    /// The column of the plan that holds the texts.
    pub(crate) fn column(&self) -> &str {
        if self.is_payload {
            &self.landed
        } else {
            system_columns::TEXT
        }
    }

    /// The landed column, where the plan must carry it along for the comparison only.
    pub(crate) fn carried(&self) -> Option<&str> {
        (!self.is_payload).then_some(self.landed.as_str())
    }
}

/// The comparison a dataset asks for.
///
/// # Errors
/// [`Error::Config`] for values out of range, columns that are missing or hold no text, and keys
/// that contradict.
pub(crate) fn resolve(
    config: &DatasetConfig,
    columns: &[MergedColumn],
    payload: Option<&ContentColumn>,
) -> Result<Option<NearDup>, Error> {
    const COLUMN: &str = "dataset.near_dup.column";
    let Some(near) = &config.near_dup else {
        return Ok(None);
    };
    check_numbers(near)?;
    check_keep(near, config)?;
    let documents = payload.filter(|payload| payload.kind == ContentKind::Text);
    let landed = match (&near.column, documents) {
        (Some(column), _) => column.clone(),
        (None, Some(documents)) => documents.column.clone(),
        (None, None) => {
            let reason = "rows are compared by a column of texts: name it";
            return Err(Error::config(COLUMN, reason));
        }
    };
    if find(COLUMN, &landed, columns)?.r#type != ColumnType::Utf8 {
        let reason = format!("column `{landed}` does not hold text; name the one that does");
        return Err(Error::config(COLUMN, reason));
    }
    let is_payload = documents.is_some_and(|documents| documents.column == landed);
    Ok(Some(NearDup {
        is_payload,
        prepared: config.text.clone().filter(|_| is_payload),
        landed,
        config: near.clone(),
    }))
}

fn check_numbers(near: &NearDupConfig) -> Result<(), Error> {
    let lengths = 1..=100_usize;
    let least = ByteSize::mib(1);
    let (threshold, share) = (near.threshold, near.max_cluster_fraction);
    let wrong = [
        (
            !(0.2..=1.0).contains(&threshold),
            "threshold",
            format!("`{threshold}` is out of range, use 0.2 to 1"),
        ),
        (
            !(16..=1_024).contains(&near.hashes),
            "hashes",
            format!("{} is out of range, use 16 to 1,024", near.hashes),
        ),
        (
            !lengths.contains(&near.ngram),
            "ngram",
            format!("`{}` is out of range, use 1 to 100 words", near.ngram),
        ),
        (
            !lengths.contains(&near.ngram_characters),
            "ngram_characters",
            format!(
                "`{}` is out of range, use 1 to 100 characters",
                near.ngram_characters
            ),
        ),
        (
            near.memory < least,
            "memory",
            format!("{} is too little, use {least} or more", near.memory),
        ),
        (
            !(share > 0.0 && share <= 1.0),
            "max_cluster_fraction",
            format!("`{share}` is no share above 0 and up to 1"),
        ),
    ];
    match wrong.into_iter().find(|(is_wrong, ..)| *is_wrong) {
        None => Ok(()),
        Some((_, key, reason)) => Err(Error::config(format!("dataset.near_dup.{key}"), reason)),
    }
}

/// Clusters that are kept whole decide the split, which nothing else may then do.
fn check_keep(near: &NearDupConfig, config: &DatasetConfig) -> Result<(), Error> {
    let reason = match near.keep {
        NearDupKeep::All if !config.split.by.is_key() => {
            "rows are split by their order, time or name, which no cluster can follow; use `first`"
        }
        NearDupKeep::All if config.kind == DatasetKind::Images || config.image_column.is_some() => {
            "how images look decides their split, which no cluster of texts can follow; use `first`"
        }
        NearDupKeep::All if !config.split.key.is_empty() => {
            "a cluster may hold rows of several `dataset.split.key`, so one of the two would be in several splits; use \
             `first`, or \
             remove the key"
        }
        _ => return Ok(()),
    };
    Err(Error::config("dataset.near_dup.keep", reason))
}

/// Checks that no frozen source is part of the dataset.
///
/// # Errors
/// [`Error::Config`] for one that the dataset reads.
pub(crate) fn check_against(near: &NearDupConfig, sources: &[TableName]) -> Result<(), Error> {
    let is_row = |name: &&Name| sources.iter().any(|table| table.is_records_of(name));
    match near.against.iter().find(is_row) {
        None => Ok(()),
        Some(name) => Err(Error::config(
            "dataset.near_dup.against",
            format!(
                "the dataset is made of `{name}` too, so all of it would be left out; remove one of the two"
            ),
        )),
    }
}

/// Every frozen source has the column that is compared.
///
/// # Errors
/// [`Error::Config`] naming one that has not.
pub(crate) fn check_frozen(near: Option<&NearDup>, frozen: &[Landed]) -> Result<(), Error> {
    let Some(near) = near else {
        return Ok(());
    };
    let holds = |column: &Column| column.name == near.landed && column.r#type == ColumnType::Utf8;
    let lacks = |source: &&Landed| {
        !source
            .generations
            .iter()
            .any(|generation| generation.schema.columns.iter().any(holds))
    };
    match frozen.iter().find(lacks) {
        None => Ok(()),
        Some(source) => Err(Error::config(
            "dataset.near_dup.against",
            format!(
                "source `{}` has no column `{}` of text, so nothing could be compared with it; name the column alike in \
                 both, or remove the source",
                source.reference.name, near.landed
            ),
        )),
    }
}
