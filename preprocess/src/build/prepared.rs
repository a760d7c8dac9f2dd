//! A build, prepared: what has landed was read, and the configuration resolved against it.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use feedline_schemas::{
    config::{DatasetConfig, PipelineConfig, TokensConfig},
    ids::{Hash128, Name, TableName},
    manifest::{SourceReference, Split},
    transform::TransformArtefact,
};
use feedline_storage::Store;

use super::{
    sources::{chosen, frozen, input_hash, joined, landed},
    tokenizer::{self, TokenizerFile},
};
use crate::{
    Context, Error, column_roles,
    dataset_spec::DatasetSpec,
    expect::Expect,
    join,
    landed_columns::{self, MergedColumn},
    landing::{Landed, unpacked},
    manifest::pointer,
    meter::Meter,
    near_dup::{self, NearDup},
    scratch::Scratch,
    series::Sequence,
    sql::{self, Query},
    stage::Staged,
};

/// Bytes of a group in the memory of a join, about.
const GROUP_BYTES: u64 = 48;

/// A build of a dataset.
pub(super) struct Build<'a> {
    pub(super) context: &'a Context,
    pub(super) name: &'a Name,
    /// The section as it was written.
    pub(super) dataset: &'a DatasetConfig,
    pub(super) input_hash: Hash128,
    /// The dataset's folder.
    pub(super) store: Store,
    /// Pointer to the current manifest, as read before anything else.
    pub(super) pointer: Option<Bytes>,
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
    pub(super) spec: DatasetSpec,
    /// Columns that make up the rows.
    pub(super) columns: Vec<MergedColumn>,
    /// State before the latest landing, for a full rebuild.
    pub(super) earlier: Option<Earlier>,
    /// Settings of the tokenizer, for documents that become tokens.
    pub(super) tokens: Option<TokensConfig>,
    /// The tokenizer, where one is given.
    pub(super) given: Option<TokenizerFile>,
    /// Counts of the dataset being appended to.
    pub(super) there: There,
    /// Reason for a rebuild of an existing dataset.
    pub(super) anew: Option<String>,
}

/// Counts of a dataset before rows are appended; all zero for a full build.
#[derive(Default)]
pub(super) struct There {
    /// Shards of each split.
    pub(super) shards: [usize; 3],
    /// Rows, rejected ones included, duplicates not.
    pub(super) rows: u64,
    /// Rejected rows by reason.
    pub(super) rejected: BTreeMap<String, u64>,
}

/// Sources and transform of a dataset before more rows landed.
pub(super) struct Earlier {
    pub(super) sources: Vec<SourceReference>,
    pub(super) artefact: TransformArtefact,
}

impl<'a> Build<'a> {
    /// Reads what has landed, and resolves the configuration against it. Nothing is written.
    ///
    /// # Errors
    /// As [`build`](super::build), as far as no row is looked at.
    pub(super) async fn prepared(
        config: &'a PipelineConfig,
        context: &'a Context,
    ) -> Result<Self, Error> {
        let dataset = config.dataset.as_ref().ok_or_else(|| {
            Error::config(
                "dataset",
                "the pipeline has no `[dataset]` section, add one",
            )
        })?;
        let (chosen, against) = (
            chosen(dataset, &config.source)?,
            frozen(dataset, &config.source)?,
        );
        let foreign = chosen.iter().any(|(source, _)| source.is_foreign());
        let store = context.root.child("dataset");
        // Before anything is read: who publishes from now on may have read more.
        let pointer = pointer(&store).await?;
        let sources = match &dataset.files {
            Some(pattern) => vec![Landed::in_place(&context.root, pattern).await?],
            None => landed(&context.root, chosen).await?,
        };
        let frozen = landed(&context.root, against).await?;
        let joined = landed(&context.root, joined(dataset, &config.source)?).await?;
        let query = match &dataset.sql {
            Some(sql) => Some(Query::resolve(sql, &sources).await?),
            None => None,
        };
        let landed_columns = sources.iter().flat_map(|s| &s.generations);
        let mut merged = match &query {
            Some(query) => landed_columns::merge([&query.schema]),
            None => landed_columns::merge(landed_columns.map(|g| &g.schema)),
        };
        let joins = join::resolve(dataset, &mut merged, &joined)?;
        let mut spec = DatasetSpec {
            joins,
            ..column_roles::resolve(dataset, &merged)?
        };
        if let Some(expect) = &dataset.expect {
            spec.expect = Some(Expect::read(expect, &spec, context).await?);
        }
        near_dup::check_frozen(spec.near_dup.as_ref(), &frozen)?;
        let tokens = tokenizer::resolve(dataset)?;
        let given = match tokens
            .as_ref()
            .and_then(|tokens| tokens.tokenizer.as_deref())
        {
            Some(location) => Some(TokenizerFile::read(location, context).await?),
            None => None,
        };
        let held = spec.payload.iter_mut().chain(&mut spec.parts);
        for images in held.filter_map(|held| held.images.as_mut()) {
            images.isolated(foreign, context.decoder.as_deref())?;
        }
        let mut build = Self {
            name: &config.pipeline.name,
            dataset,
            input_hash: Hash128::new(0),
            store,
            pointer,
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
            spec,
            columns: merged,
            earlier: None,
            tokens,
            given,
            there: There::default(),
            anew: None,
            context,
        };
        if let Some(series) = &mut build.spec.series {
            let names = build.names.iter().map(ToString::to_string);
            Arc::make_mut(series).sources = names.collect();
        }
        build.input_hash = build.inputs_of(&build.spec.config, None);
        Ok(build)
    }
}

impl Build<'_> {
    /// Hash of all inputs of the dataset: the resolved `config` and the positions of its sources,
    /// or the positions in `at`.
    pub(super) fn inputs_of(
        &self,
        config: &DatasetConfig,
        at: Option<[&[SourceReference]; 3]>,
    ) -> Hash128 {
        input_hash(
            self.name,
            config,
            self.given.as_ref().map(|given| given.tokenizer.hash()),
            self.spec.expect.as_ref().map(|expect| expect.hash),
            [&self.sources, &self.joined, &self.frozen],
            at,
        )
    }

    /// The sources that rows are read from.
    pub(super) fn tables(&self) -> &[Landed] {
        match &self.made[..] {
            [] => &self.sources,
            made => made,
        }
    }

    /// About how many bytes a row's image or text has; landed files are packed.
    pub(super) fn payload_bytes(&self) -> Option<u64> {
        let bytes = unpacked(self.tables()).saturating_add(self.joined_bytes());
        let each = bytes / self.rows.max(1);
        let carried = self.spec.near_dup.as_ref().and_then(NearDup::carried);
        let holds = self.spec.payloads().next().is_some() || carried.is_some();
        holds.then_some(each)
    }

    /// About how many bytes the sources have that are joined on.
    pub(super) fn joined_bytes(&self) -> u64 {
        // Each row may be a group of its own, which its last time is found by.
        let split = &self.spec.config.split;
        let is_grouped = split.by.is_time() && !split.key.is_empty();
        let groups = if is_grouped {
            self.rows.saturating_mul(GROUP_BYTES)
        } else {
            0
        };
        let is_frozen = |source: &&Landed| Some(&source.reference.name) == split.frozen();
        let frozen: u64 = self
            .sources
            .iter()
            .filter(is_frozen)
            .map(|s| s.rows() * GROUP_BYTES)
            .sum();
        unpacked(&self.joined) + groups + frozen
    }

    /// Rows that were neither dropped nor rejected. A document split by range has one training
    /// part.
    pub(super) fn kept(&self, staged: &Staged) -> u64 {
        if self.cuts_documents() {
            staged.rows(Split::Train)
        } else {
            staged.total()
        }
    }

    /// Returns true if each document is divided into one part per split.
    pub(super) fn cuts_documents(&self) -> bool {
        self.spec.config.split.by.is_range() && self.spec.payload.is_some()
    }

    /// The pass that looks for near-duplicates.
    pub(super) fn near_dup<'a>(&'a self, scratch: &'a Scratch) -> Option<near_dup::Pass<'a>> {
        let progress = &self.context.progress;
        self.spec.near_dup.as_ref().map(|near| near_dup::Pass {
            near,
            names: &self.names,
            frozen: &self.frozen,
            scratch,
            meter: Arc::new(Meter::new(progress, "shards: near-duplicates", self.rows)),
        })
    }

    /// The windows that are the samples, where rows are not.
    pub(super) fn sequence(&self) -> Option<Sequence> {
        self.spec.series.as_ref().and_then(|series| series.sequence)
    }
}
