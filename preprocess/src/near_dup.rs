//! Near-duplicates in a build. Rows go to scratch once, with the texts they are compared by; the
//! texts go to an index; then the rows are read back, only the first of each cluster, or all of
//! them in its split.
//!
//! The first of a cluster is the row that landed first, as for exact duplicates, so that later rows
//! replace nothing.

mod compare;
mod judge;

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::{
    execution::object_store::ObjectStoreUrl,
    logical_expr::{Expr, ident},
    prelude::{DataFrame, SessionContext},
};
use feedline_schemas::{
    config::{DatasetConfig, DatasetKind, DocumentConfig, NearDupConfig, NearDupKeep},
    ids::{Name, Origin, TableName},
    manifest::{NearDupCounts, Split},
    record::{Column, ColumnType},
    units::ByteSize,
};

use crate::{
    Error,
    columns::{MergedColumn, find, system},
    landing::Landed,
    meter::Meter,
    payload::{Payload, PayloadKind},
    plan,
    scalar::RowFunction,
    scan::ParquetFiles,
    scratch::Scratch,
    stage::Staged,
    text::near::{Clusters, Member, Signer},
};
use compare::{Comparison, Keep, Kind};
use judge::{Found, GroupOf, Judgement, LeftOut, SplitOf};

/// Reasons why a row is left out.
pub(crate) mod reason {
    /// It is nearly a row that is kept.
    pub(crate) const COPY: &str = "near_duplicate";
    /// It is nearly a frozen document.
    pub(crate) const FROZEN: &str = "near_duplicate_of_frozen";
}

/// Leaks that are named.
const SAMPLES: usize = 5;

/// Column to compare, checked against the landed columns.
#[derive(Clone, Debug)]
pub(crate) struct NearDup {
    /// Column as it landed.
    landed: String,
    /// True if it is the column of documents, which rows hold anyway.
    is_payload: bool,
    /// Preparation of documents, so that frozen ones are compared in their prepared form.
    prepared: Option<DocumentConfig>,
    pub(crate) config: NearDupConfig,
}

impl NearDup {
    /// The column of the plan that holds the texts.
    pub(crate) fn column(&self) -> &str {
        if self.is_payload {
            &self.landed
        } else {
            system::TEXT
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
    payload: Option<&Payload>,
) -> Result<Option<NearDup>, Error> {
    const COLUMN: &str = "dataset.near_dup.column";
    let Some(near) = &config.near_dup else {
        return Ok(None);
    };
    check_numbers(near)?;
    check_keep(near, config)?;
    let documents = payload.filter(|payload| payload.kind == PayloadKind::Text);
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

/// Inputs of a pass over the rows.
pub(crate) struct Pass<'a> {
    pub(crate) near: &'a NearDup,
    /// The dataset's sources by the index in an origin.
    pub(crate) names: &'a [TableName],
    /// Sources whose documents are frozen.
    pub(crate) frozen: &'a [Landed],
    pub(crate) scratch: &'a Scratch,
    pub(crate) meter: Arc<Meter>,
}

impl Pass<'_> {
    /// The rows without near-duplicates, or with clusters in one split, and what was found.
    pub(crate) async fn run(
        &self,
        session: &SessionContext,
        rows: DataFrame,
    ) -> Result<(DataFrame, NearDupCounts), Error> {
        let comparison = Comparison::new(self.near, self.scratch, "near")?;
        let frozen = self.take_frozen(session, &comparison).await?;
        let schema: SchemaRef = Arc::new(rows.schema().as_arrow().clone());
        let keep = Keep {
            scratch: self.scratch,
            schema: Arc::clone(&schema),
        };
        let meter = Some(&self.meter);
        let (_, files) = comparison.take(rows, Kind::Row, Some(&keep), meter).await?;
        let rows = session.read_table(Arc::new(ParquetFiles {
            store: ObjectStoreUrl::local_filesystem(),
            schema,
            files,
        }))?;
        let clusters = comparison.clusters().await?;
        self.check_chains(&clusters)?;
        let counts = self.counts(&clusters, frozen);
        Ok((self.judged(rows, clusters)?, counts))
    }

    /// Adds the frozen documents; returns how many there are.
    async fn take_frozen(
        &self,
        session: &SessionContext,
        comparison: &Comparison,
    ) -> Result<u64, Error> {
        let near = self.near;
        let mut frozen = 0;
        for (source, landed) in self.frozen.iter().enumerate() {
            let names = (near.landed.as_str(), near.column());
            let prepared = near.prepared.as_ref();
            let texts = plan::texts(session, landed, source as u64, names, prepared)?;
            frozen += comparison.take(texts, Kind::Frozen, None, None).await?.0;
        }
        Ok(frozen)
    }

    /// Looks for near-duplicates in two splits among the rows that will be written, and for
    /// near-duplicates of frozen rows. The rows that the build compared with are included, so that
    /// large buckets have the same centres.
    ///
    /// # Errors
    /// [`Error::Leak`].
    pub(crate) async fn audit(
        &self,
        session: &SessionContext,
        staged: &Staged,
    ) -> Result<(), Error> {
        let comparison = Comparison::new(self.near, self.scratch, "near-audit")?;
        self.take_frozen(session, &comparison).await?;
        for split in Split::ALL {
            let columns = vec![ident(system::ORIGIN), ident(self.near.column())];
            let texts = staged.frame(split)?.select(columns)?;
            comparison.take(texts, Kind::Of(split), None, None).await?;
        }
        let clusters = comparison.clusters().await?;
        let is_leak = |m: &&Member| m.first.is_frozen || m.group != m.first.group;
        let leaks = clusters.members.iter().filter(is_leak);
        let keys = leaks.clone().count() as u64;
        if keys == 0 {
            return Ok(());
        }
        Err(Error::Leak {
            keys,
            samples: leaks.take(SAMPLES).map(|m| self.leak(m)).collect(),
        })
    }

    fn leak(&self, member: &Member) -> String {
        let split = |group: u8| Split::ALL[usize::from(group)];
        let row = named(self.names, member.id);
        let Member { group, first, .. } = *member;
        if first.is_frozen {
            let frozen = self.frozen.iter().map(|landed| &landed.reference.name);
            let frozen: Vec<TableName> = frozen.cloned().collect();
            let first = named(&frozen, first.id);
            return format!("{row} in {} is nearly the frozen {first}", split(group));
        }
        format!(
            "{row} in {} is nearly {} in {}",
            split(group),
            named(self.names, first.id),
            split(first.group)
        )
    }

    fn check_chains(&self, clusters: &Clusters) -> Result<(), Error> {
        let share = self.near.config.max_cluster_fraction;
        if !clusters.is_chained(share) {
            return Ok(());
        }
        let reason = format!(
            "{} of {} documents are one cluster, more than `dataset.near_dup.max_cluster_fraction` = {share} allows",
            clusters.largest, clusters.documents
        );
        let advice = "boilerplate chains them together: strip it, raise `dataset.near_dup.threshold`, or raise the share \
                      when they are copies indeed";
        let what = format!("column `{}` for near-duplicates", self.near.landed);
        Err(Error::input(what, reason, advice))
    }

    fn counts(&self, clusters: &Clusters, frozen: u64) -> NearDupCounts {
        let scheme = Signer::new(&self.near.config).scheme();
        let of_frozen = clusters
            .members
            .iter()
            .filter(|m| m.first.is_frozen)
            .count() as u64;
        NearDupCounts {
            bands: u32::try_from(scheme.bands).expect("at most 112 bands"),
            rows: u32::try_from(scheme.rows).expect("at most 8 rows"),
            documents: clusters.documents - frozen,
            empty: clusters.empty,
            clusters: clusters.clusters,
            largest: clusters.largest,
            copies: clusters.members.len() as u64 - of_frozen,
            frozen,
            of_frozen,
            hubs: clusters.hubs,
        }
    }

    /// `rows` with what the clusters say about them.
    fn judged(&self, rows: DataFrame, clusters: Clusters) -> Result<DataFrame, Error> {
        let frozen = self.frozen.iter().map(|f| f.reference.name.clone());
        let found = Found(Arc::new(Judgement::new(
            clusters,
            self.near.config.keep,
            self.near.landed.clone(),
            [self.names.to_vec(), frozen.collect()],
        )));
        let columns = rows.schema().fields().iter().map(|field| {
            let name = field.name();
            let cell = vec![ident(name), ident(system::ORIGIN)];
            match name.as_str() {
                system::REJECT => LeftOut(found.clone()).over(cell).alias(name),
                system::SPLIT => SplitOf(found.clone()).over(cell).alias(name),
                _ => ident(name),
            }
        });
        let mut columns: Vec<Expr> = columns.collect();
        if self.near.config.keep == NearDupKeep::All {
            // Rows of a cluster share a split, so they are one group; a split key does not go with that.
            let cells = vec![ident(system::HASH), ident(system::ORIGIN)];
            columns.push(GroupOf(found).over(cells).alias(system::GROUP));
        }
        Ok(rows.select(columns)?)
    }
}

/// A row as people find it.
fn named(names: &[TableName], origin: u64) -> String {
    let at = Origin::from_packed(origin);
    let source = usize::try_from(at.source()).ok().and_then(|i| names.get(i));
    format!(
        "row {} of batch {} of source `{}`",
        at.row(),
        at.sequence(),
        source.map_or_else(String::new, TableName::to_string)
    )
}

#[cfg(test)]
mod tests;
