//! Rows and columns that a dataset is made of, as they have landed.

use std::collections::BTreeMap;

use feedline_schemas::{
    config::{DatasetConfig, DeclaredType, SourceConfig},
    ids::{Hash128, TableName},
    manifest::SourceReference,
};
use feedline_storage::Store;

use super::sources::{Chosen, joined, landed};
use crate::{
    Error,
    schema::landed_columns::{self, MergedColumn},
    source::{
        landing_zone::Landed,
        sql::{self, Query},
    },
};

/// Input of a build: sources at their log positions, the query over them and the columns of the rows.
pub(super) struct BuildInput {
    /// Hash of all inputs of the dataset, its configuration included.
    pub(super) hash: Hash128,
    /// Sources by the index in an origin.
    pub(super) names: Vec<TableName>,
    pub(super) sources: Vec<Landed>,
    /// Query that makes the rows of the sources, if there is one.
    pub(super) query: Option<Query>,
    /// Tables that the query made.
    pub(super) made: Vec<Landed>,
    /// Sources that are joined on.
    pub(super) joined: Vec<Landed>,
    /// Sources that nothing may be nearly a copy of.
    pub(super) frozen: Vec<Landed>,
    /// Rows landed.
    pub(super) rows: u64,
    /// Columns that make up the rows.
    pub(super) columns: Vec<MergedColumn>,
    /// True if the contracts of all sources declare the time of the series as a timestamp.
    pub(super) declares_instants: bool,
}

/// Returns true if the contracts of all sources of `rows` declare the time of the series as a timestamp.
fn declares_instants(dataset: &DatasetConfig, rows: &[Chosen<'_>]) -> bool {
    let Some(series) = &dataset.series else {
        return false;
    };
    let is_declared = |(source, _): &Chosen<'_>| {
        let column = source.contract.column.get(&series.time);
        column.and_then(|column| column.r#type) == Some(DeclaredType::Timestamp)
    };
    !rows.is_empty() && rows.iter().all(is_declared)
}

impl BuildInput {
    /// Reads the logs of the sources `rows`, of those that they are compared `against`, and of joined ones among `all`.
    pub(super) async fn read(
        dataset: &DatasetConfig,
        all: &[SourceConfig],
        (rows, against): (Vec<Chosen<'_>>, Vec<Chosen<'_>>),
        root: &Store,
    ) -> Result<Self, Error> {
        let declares_instants = declares_instants(dataset, &rows);
        let sources = match &dataset.files {
            Some(pattern) => vec![Landed::in_place(root, pattern).await?],
            None => landed(root, rows).await?,
        };
        let frozen = landed(root, against).await?;
        let joined = landed(root, joined(dataset, all)?).await?;
        let query = match &dataset.sql {
            Some(sql) => Some(Query::resolve(sql, &sources).await?),
            None => None,
        };
        let versions = sources.iter().flat_map(|source| &source.generations);
        let columns = match &query {
            Some(query) => landed_columns::merge([&query.schema]),
            None => landed_columns::merge(versions.map(|generation| &generation.schema)),
        };
        Ok(Self {
            hash: Hash128::new(0),
            names: match &query {
                Some(_) => vec![sql::table_name()],
                None => sources.iter().map(|s| s.reference.name.clone()).collect(),
            },
            query,
            made: Vec::new(),
            rows: sources.iter().map(Landed::rows).sum(),
            sources,
            joined,
            frozen,
            columns,
            declares_instants,
        })
    }

    /// The tables that rows are read from: those of the query, or the sources.
    pub(super) fn tables(&self) -> &[Landed] {
        match &self.made[..] {
            [] => &self.sources,
            made => made,
        }
    }

    /// Landed rows of each table of the query; empty without one.
    pub(super) fn query_tables(&self) -> BTreeMap<String, u64> {
        match self.query {
            Some(_) => sql::landed_rows(&self.sources),
            None => BTreeMap::new(),
        }
    }

    /// All sources: those of rows, then joined and frozen ones.
    pub(super) fn all_sources(&self) -> impl Iterator<Item = &Landed> {
        let rows = self.sources.iter();
        rows.chain(&self.joined).chain(&self.frozen)
    }

    /// Returns true if these are the positions of the same sources in the same order.
    pub(super) fn is_of(&self, references: &[SourceReference]) -> bool {
        let names = self.all_sources().map(|source| &source.reference.name);
        names.eq(references.iter().map(|source| &source.name))
    }

    /// Positions of the sources of rows, of joined and of frozen ones, among those of [`Self::all_sources`].
    pub(super) fn references_by_role<'r>(
        &self,
        references: &'r [SourceReference],
    ) -> [&'r [SourceReference]; 3] {
        let (rows, beside) = references.split_at(self.sources.len());
        let (joined, frozen) = beside.split_at(self.joined.len());
        [rows, joined, frozen]
    }
}
