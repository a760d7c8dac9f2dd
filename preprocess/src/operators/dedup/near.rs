//! Near-duplicates in a build. Rows go to scratch once, with the texts they are compared by; the
//! texts go to an index; then the rows are read back, only the first of each cluster, or all of
//! them in its split.
//!
//! The first of a cluster is the row that landed first, as for exact duplicates, so that later rows
//! replace nothing.

mod compare;
mod compared_column;
mod frozen_texts;
mod judge;
mod label_conflicts;

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::{
    execution::object_store::ObjectStoreUrl,
    logical_expr::{Expr, ident},
    prelude::{DataFrame, SessionContext},
};
use feedline_schemas::{
    config::NearDupKeep,
    ids::TableName,
    manifest::{NearDupCounts, Split},
};

use crate::{
    Error,
    engine::{scalar_function::RowFunction, scratch::Scratch},
    operators::{
        dedup::conflicts::LabelConflicts,
        text::near::{Clusters, Member, Signer},
    },
    pass_progress::PassProgress,
    schema::system_columns,
    source::{landing_zone::Landed, parquet_scan::ParquetFiles},
    staging::Staged,
};
pub(crate) use compared_column::{NearDup, check_against, check_frozen, resolve};

use compare::{Comparison, Keep, Kind};
use frozen_texts::texts;
use judge::{Found, GroupOf, Judgement, LeftOut, SplitOf, named};

/// Leaks that are named.
const SAMPLES: usize = 5;

/// Inputs of a pass over the rows.
pub(crate) struct Pass<'a> {
    pub(crate) near: &'a NearDup,
    /// The dataset's sources by the index in an origin.
    pub(crate) names: &'a [TableName],
    /// Sources whose documents are frozen.
    pub(crate) frozen: &'a [Landed],
    pub(crate) scratch: &'a Scratch,
    pub(crate) meter: Arc<PassProgress>,
}

impl Pass<'_> {
    /// The rows without near-duplicates, or with clusters in one split, their counts, and clusters with several values in column
    /// `target`, if one of them is kept.
    pub(crate) async fn run(
        &self,
        session: &SessionContext,
        rows: DataFrame,
        target: Option<&str>,
    ) -> Result<(DataFrame, NearDupCounts, LabelConflicts), Error> {
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
        let judgement = Arc::new(self.judgement(clusters));
        let target = target.filter(|_| self.near.config.keep != NearDupKeep::All);
        let conflicts = match target {
            Some(target) => {
                let found = label_conflicts::count(rows.clone(), target, &judgement);
                Box::pin(found).await?
            }
            None => LabelConflicts::default(),
        };
        Ok((self.judged(rows, judgement)?, counts, conflicts))
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
            let texts = texts(session, landed, source as u64, names, prepared)?;
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
            let columns = vec![ident(system_columns::ORIGIN), ident(self.near.column())];
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

    /// The meaning of `clusters` for the rows.
    fn judgement(&self, clusters: Clusters) -> Judgement {
        let frozen = self.frozen.iter().map(|f| f.reference.name.clone());
        Judgement::new(
            clusters,
            self.near.config.keep,
            self.near.landed.clone(),
            [self.names.to_vec(), frozen.collect()],
        )
    }

    /// `rows` with what the clusters say about them.
    fn judged(&self, rows: DataFrame, judgement: Arc<Judgement>) -> Result<DataFrame, Error> {
        let found = Found(judgement);
        let columns = rows.schema().fields().iter().map(|field| {
            let name = field.name();
            let cell = vec![ident(name), ident(system_columns::ORIGIN)];
            match name.as_str() {
                system_columns::REJECT => LeftOut(found.clone()).over(cell).alias(name),
                system_columns::SPLIT => SplitOf(found.clone()).over(cell).alias(name),
                _ => ident(name),
            }
        });
        let mut columns: Vec<Expr> = columns.collect();
        if self.near.config.keep == NearDupKeep::All {
            // Rows of a cluster share a split, so they are one group; a split key does not go with that.
            let cells = vec![ident(system_columns::HASH), ident(system_columns::ORIGIN)];
            columns.push(GroupOf(found).over(cells).alias(system_columns::GROUP));
        }
        Ok(rows.select(columns)?)
    }
}

#[cfg(test)]
mod tests;
