//! One build, from landing zone to published dataset.

mod addition;
mod check;
mod equal_rows;
mod extremes;
mod grown;
mod keys;
mod leakage;
mod page;
mod past;
mod rows;
mod sources;
mod splits;
mod tokenizer;
mod torn;
mod warnings;
mod windows;
mod write;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::Bytes;
use datafusion::{error::DataFusionError, prelude::SessionContext};
use feedline_schemas::{
    config::{DatasetConfig, DedupMode, OnViolation, PipelineConfig, TokensConfig},
    format::MANIFEST,
    ids::{Hash128, Name, TableName},
    manifest::{
        DatasetCounts, Layout, Manifest, RowTokens, SourceReference, Split, SplitShards,
        TargetKind, TokensReference,
    },
    report::{DatasetReport, Warning},
    transform::{FittedTarget, TransformArtefact},
};
use feedline_storage::Store;

use crate::{
    Context, Error, TrainSplit, Transform,
    audit::audit,
    card,
    columns::{self, DatasetSpec, MergedColumn},
    document,
    expect::{self, Expect, Violation},
    fit::{check_texts, fit, fit_parts, fit_payload},
    join,
    landing::Landed,
    manifest::{current, is_whole, pointer, publish, put_profile, put_transform, settle},
    meter::Meter,
    near_dup::{self, NearDup},
    plan, profile,
    rejects::{self, Rejects},
    scratch::Scratch,
    series,
    shard::{ShardLayout, sweep},
    split::{self, Rule},
    sql::{self, Query},
    stage::{Direct, Staged, stage},
    tokens::Encoder,
    transform::Characters,
    typing::reason,
};
pub use check::{CheckedDataset, check, check_columns};
use grown::NotGrown;
pub use past::{LandedRows, SeriesBatch, SeriesRequest, SeriesRows, series_rows};
pub(crate) use sources::check_table;
use sources::{chosen, columns_hash, frozen, input_hash, joined, landed};
use tokenizer::TokenizerFile;
use warnings::Earlier;
use write::Fitted;

/// Builds the dataset of `config` from the rows its sources have landed, or appends the rows that
/// have landed since the last build. Does nothing if the dataset is up to date.
///
/// Rows are appended if nothing but the number of landed rows has changed. They are transformed by
/// the transform of the dataset, split by the same rule and written to shards of their own. Rows
/// that the dataset already has are dropped. Where rows cannot be appended (another configuration,
/// other columns, joins, near-duplicates, series, a profile, images, texts), the dataset is rebuilt
/// from all rows, as [`refit`] does, and the log gives the reason.
///
/// The result depends only on the landed data, the configuration and the positions at which rows
/// were appended. Any number of partitions, any memory limit and a build that was killed and rerun
/// give the same bytes. Readers see no change until the build ends. Dropping the future stops the
/// build; the next build overwrites the files it left.
///
/// # Errors
/// [`Error::Config`] when the configuration does not fit the data, or when new rows could move rows
/// of the dataset to another split; [`Error::Input`] for absent or damaged input,
/// [`Error::TooManyRejects`], [`Error::EmptySplit`], [`Error::Leak`], and failures of the store,
/// the scratch folder or the engine.
pub async fn build(config: &PipelineConfig, context: &Context) -> Result<DatasetReport, Error> {
    Box::pin(build_by(config, context, Mode::Add)).await
}

/// Rebuilds and refits the dataset from all rows, even if it is up to date. The same rows give the
/// same bytes, so this also repairs damaged files.
///
/// # Errors
/// As [`build`].
pub async fn refit(config: &PipelineConfig, context: &Context) -> Result<DatasetReport, Error> {
    Box::pin(build_by(config, context, Mode::Anew)).await
}

/// Checks that the dataset of `manifest` was built with `config`.
///
/// # Errors
/// As [`build`], as far as no row is read.
pub async fn is_built_by(
    config: &PipelineConfig,
    manifest: &Manifest,
    context: &Context,
) -> Result<bool, Error> {
    let build = Box::pin(Build::prepared(config, context)).await?;
    build.is_built_as(manifest).await
}

/// Choice between appending to a dataset and rebuilding it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Appends rows that have landed since, if possible.
    Add,
    /// Rebuilds it from all rows.
    Anew,
}

async fn build_by(
    config: &PipelineConfig,
    context: &Context,
    mode: Mode,
) -> Result<DatasetReport, Error> {
    let context = &Context {
        engine: context.engine.of_build(),
        ..context.clone()
    };
    let mut build = Box::pin(Build::prepared(config, context)).await?;
    build.anew = (mode == Mode::Anew).then(|| "`--refit` asks for it".to_owned());
    sweep(&build.store).await;
    let there = match mode {
        Mode::Add => current(&build.store).await?,
        Mode::Anew => None,
    };
    if let Some(manifest) = there {
        if manifest.input_hash == build.input_hash {
            if is_whole(&build.store, &manifest).await? {
                tracing::info!(dataset = %build.name, fingerprint = %manifest.fingerprint, "dataset is up to date");
                let sample = rejects::sample(&build.store, &manifest.rejects).await?;
                return Ok(build.report(&manifest, true, sample));
            }
            build.anew = Some("it was damaged".to_owned());
        } else {
            match Box::pin(build.grown(manifest)).await? {
                Ok(grown) => return Box::pin(build.add(grown)).await,
                Err(NotGrown { reason, earlier }) => {
                    build.earlier = earlier;
                    tracing::info!(dataset = %build.name, reason, "rebuilding and refitting the dataset from all rows");
                    build.anew = Some(reason);
                }
            }
        }
    }
    Box::pin(build.run()).await
}

/// Checks the number of rows `found` against the `rows` that landed: equal, or fewer where some may
/// be dropped.
fn counted(rows: u64, found: u64, all_stay: bool) -> Result<(), Error> {
    let is_right = found == rows || (found < rows && !all_stay);
    if is_right {
        Ok(())
    } else {
        Err(Error::Miscounted { rows, found })
    }
}

/// Bytes of a group in the memory of a join, about.
const GROUP_BYTES: u64 = 48;

struct Build<'a> {
    context: &'a Context,
    name: &'a Name,
    /// The section as it was written.
    dataset: &'a DatasetConfig,
    input_hash: Hash128,
    /// The dataset's folder.
    store: Store,
    /// Pointer to the current manifest, as read before anything else.
    pointer: Option<Bytes>,
    /// Sources by the index in an origin.
    names: Vec<TableName>,
    sources: Vec<Landed>,
    /// Query that makes the rows of the sources, if there is one.
    query: Option<Query>,
    /// Tables that the query made.
    made: Vec<Landed>,
    /// Sources that are joined on.
    joined: Vec<Landed>,
    /// Sources that nothing may be nearly a copy of.
    frozen: Vec<Landed>,
    /// Rows landed.
    rows: u64,
    spec: DatasetSpec,
    /// Columns that make up the rows.
    columns: Vec<MergedColumn>,
    /// State before the latest landing, for a full rebuild.
    earlier: Option<Earlier>,
    /// Settings of the tokenizer, for documents that become tokens.
    tokens: Option<TokensConfig>,
    /// The tokenizer, where one is given.
    given: Option<TokenizerFile>,
    /// Counts of the dataset being appended to.
    there: There,
    /// Reason for a rebuild of an existing dataset.
    anew: Option<String>,
}

/// Counts of a dataset before rows are appended; all zero for a full build.
#[derive(Default)]
struct There {
    /// Shards of each split.
    shards: [usize; 3],
    /// Rows, rejected ones included, duplicates not.
    rows: u64,
    /// Rejected rows by reason.
    rejected: BTreeMap<String, u64>,
}

impl<'a> Build<'a> {
    /// Reads what has landed, and resolves the configuration against it. Nothing is written.
    ///
    /// # Errors
    /// As [`build`], as far as no row is looked at.
    async fn prepared(config: &'a PipelineConfig, context: &'a Context) -> Result<Self, Error> {
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
            Some(query) => columns::merge([&query.schema]),
            None => columns::merge(landed_columns.map(|g| &g.schema)),
        };
        let joins = join::resolve(dataset, &mut merged, &joined)?;
        let mut spec = DatasetSpec {
            joins,
            ..columns::resolve(dataset, &merged)?
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
    fn inputs_of(&self, config: &DatasetConfig, at: Option<[&[SourceReference]; 3]>) -> Hash128 {
        input_hash(
            self.name,
            config,
            self.given.as_ref().map(|given| given.tokenizer.hash()),
            self.spec.expect.as_ref().map(|expect| expect.hash),
            [&self.sources, &self.joined, &self.frozen],
            at,
        )
    }

    async fn run(mut self) -> Result<DatasetReport, Error> {
        let started = self.context.clock.monotonic();
        self.verify_sources().await?;
        let scratch = Scratch::claim(&self.context.scratch)?;
        if let Some(query) = &self.query {
            let made = query.run(&self.sources, self.context, &scratch).await?;
            self.rows = made.rows();
            self.made = vec![made];
        }
        let built = Box::pin(self.built(&scratch, started)).await;
        let context = self.context;
        context
            .engine
            .sweep(&context.root, context.clock.unix())
            .await;
        built
    }

    /// The sources that rows are read from.
    fn tables(&self) -> &[Landed] {
        match &self.made[..] {
            [] => &self.sources,
            made => made,
        }
    }

    async fn built(&self, scratch: &Scratch, started: Duration) -> Result<DatasetReport, Error> {
        let session = plan::session(
            self.context,
            &scratch.path("spill"),
            self.spec.inputs.len() + 1,
            self.payload_bytes(),
            self.joined_bytes(),
        )?;
        let texts = check_texts(&session, self.tables(), &self.spec, false).await?;
        let joins = join::counted(&session, self.tables(), &self.spec.joins, self.rows).await?;
        let near_dup = self.near_dup(scratch);
        let direct = Direct::of(&self.spec, self.tables(), self.context);
        let (near, with_copies) = (near_dup.as_ref(), direct.is_some());
        let frame = plan::frame(&session, self.tables(), &self.spec, near, with_copies).await?;
        let kind = self.spec.config.kind;
        let documents = match frame.documents {
            Some(documents) => Some(rows::units_of(documents, kind).await?),
            None => None,
        };
        let meter = Arc::new(Meter::new(
            &self.context.progress,
            "shards: clean and split",
            self.rows,
        ));
        let (rows, spec) = (frame.rows, &self.spec);
        let (staged, mut rejects) = match direct {
            Some(direct) => direct.stage(&session, rows, spec, scratch, meter).await?,
            None => stage(&session, rows, spec, scratch, meter).await?,
        };
        let documents = match self.spec.document() {
            // Rows may have been rejected for another part.
            Some(text) if self.spec.payload.is_none() => {
                Some(rows::units_staged(&staged, &text.column, kind).await?)
            }
            _ => documents,
        };
        let distinct = self.kept(&staged) + rejects.all();
        self.check_count(distinct)?;
        self.check_target(&staged, &rejects)?;
        self.check_rejects(&session, &rejects, distinct).await?;
        let unexpected = Box::pin(self.unexpected(&session, &staged, &rejects)).await?;
        let fell = Split::ALL.map(|split| staged.rows(split));
        self.check_splits(fell, None, &rejects)?;
        let (groups, missed) = Box::pin(self.check_groups(&session, &staged)).await?;
        series::check(self.spec.series.as_deref(), &staged).await?;
        if let Some(near_dup) = near_dup.filter(|_| !self.cuts_documents()) {
            near_dup.audit(&session, &staged).await?;
        }
        let redacted = match &self.spec.config.text {
            Some(text) if !text.redact.is_empty() => Some(document::redactions(&staged).await?),
            _ => None,
        };
        let left_out = staged.identifiers();
        let fitted = Arc::new(self.fit(&staged, &left_out).await?);
        let artefact = fitted.transform.artefact();
        let dropped_columns = self.dropped_columns(&left_out);
        let duplicates = self.rows.saturating_sub(distinct);
        let copied = frame.copied.clone();
        let many = Box::pin(self.many_duplicates(&staged, duplicates, copied)).await?;
        let labelled = frame.labelled.filter(|_| duplicates > 0);
        let labels = Box::pin(self.labels_differ(labelled, &staged)).await?;
        let (conflicts, labels) = match labels {
            Some((counts, warning)) => (Some(counts), Some(warning)),
            None => (frame.conflicts, None),
        };
        let found = Box::pin(self.find_warnings(&staged, artefact, &dropped_columns)).await?;
        let alike = Box::pin(self.keys_alike(&session)).await?;
        let nan = Box::pin(self.nan_cells(&session, self.tables(), &frame.nan)).await?;
        let counted = many.into_iter().chain(self.left_at_landing());
        let counted = counted.chain(labels).chain(missed).chain(alike).chain(nan);
        let mut warnings: Vec<Warning> = counted.chain(texts).chain(found).collect();
        self.check_sequence(&fitted.transform)?;
        let sizes = &self.spec.config.shards;
        let layout = ShardLayout {
            boxes: rows::has_boxes(&self.spec),
            kept: self.spec.kept.clone(),
            ..ShardLayout::new(self.name, artefact.hash, self.layout(&fitted), sizes)
        };
        let written = match self.sequence() {
            Some(sequence) => {
                let windows = self.write_windows(&staged, &fitted, &layout, scratch, sequence);
                Box::pin(windows).await?
            }
            None => self.write(&staged, &fitted, &layout, scratch).await?,
        };
        let classes = written.class_counts(artefact);
        let mut targets = written.target_summaries(artefact).into_iter();
        let (target, other_targets) = (targets.next(), targets.collect());
        warnings.extend(written.extreme_warnings(artefact));
        rejects.merge(written.rejects);
        self.check_rejects(&session, &rejects, distinct).await?;
        let rows = [0, 1, 2].map(|i: usize| written.splits[i].rows);
        self.check_splits(rows, Some(fell), &rejects)?;
        let tokens = documents
            .map(|documents| rows::conserved(kind, documents, &written.splits, written.texts))
            .transpose()?;
        let cut = rows::cut(&layout.layout, written.texts);
        self.audit(&written.splits, &layout).await?;
        let profile = match self.spec.config.profile {
            true => {
                let missing = profile::missing(&session, self.tables(), artefact);
                let missing = Box::pin(missing).await?;
                Some(Box::pin(profile::measure(&staged, artefact, missing)).await?)
            }
            false => None,
        };
        let far = profile.iter().flat_map(profile::outside::far);
        warnings.extend(crate::warnings::far_outside(&far.collect::<Vec<_>>()));
        let rejected = rejects.rejected();
        let all = rows.iter().sum();
        warnings.extend(self.written_warnings(&rejected, all, &written.infinite));
        // Unknown categories are counted in rows, also where the dataset has windows of them.
        let read = self.sequence().map_or(rows, |_| fell);
        warnings.extend(self.unknown_categories(written.unknown, read, &warnings));
        warnings.extend(written.equal);
        let page = match &profile {
            Some(profile) => Some(Box::pin(self.page(&staged, profile, frame.copied)).await?),
            None => None,
        };
        self.check_unchanged().await?;
        let mut manifest = Manifest {
            format: MANIFEST.format.to_owned(),
            version: MANIFEST.version,
            fingerprint: Hash128::new(0),
            dataset: self.name.clone(),
            input_hash: self.input_hash,
            columns_hash: Some(columns_hash(self.dataset)),
            layout: layout.layout.clone(),
            transform: put_transform(&self.store, artefact, self.name).await?,
            shuffle_seed: sizes.shuffle.then_some(sizes.seed),
            sources: self
                .sources
                .iter()
                .chain(&self.joined)
                .chain(&self.frozen)
                .map(|s| s.reference.clone())
                .collect(),
            text: self.spec.config.text.clone(),
            near_dup: self.spec.config.near_dup.clone(),
            counts: DatasetCounts {
                rows_in: self.rows,
                duplicates,
                rejected: rejects.rejected(),
                filtered: rejects.filtered(),
                near_dup: frame.near_dup,
                redacted,
                joins,
                cut,
                near_images: staged.near_images,
                boxes: written.boxes,
                unexpected,
                rejected_targets: self.rejected_targets(&rejects),
                conflicts,
                groups,
                sequence: written.sequence,
                train: rows[0],
                validation: rows[1],
                test: rows[2],
                tokens,
                classes,
            },
            splits: written.splits,
            rejects: rejects.publish(&session, &self.store, &self.names).await?,
            tokens: self.put_tokenizer(&fitted).await?,
            edit: None,
            kept: self.spec.kept.clone(),
            profile: put_profile(&self.store, profile.as_ref()).await?,
            additions: Vec::new(),
            dropped_columns,
            warnings,
            naive: written.naive,
            target,
            other_targets,
        };
        settle(&self.store, &mut manifest).await?;
        if let (Some(page), Some(profile)) = (page, &profile) {
            let rejects = rejects.firsts(&self.names);
            self.put_page(page, &manifest, artefact, profile, rejects)
                .await?;
        }
        publish(&self.store, self.pointer.as_ref(), &manifest).await?;
        let seconds = self
            .context
            .clock
            .monotonic()
            .saturating_sub(started)
            .as_secs_f64();
        tracing::info!(dataset = %self.name, fingerprint = %manifest.fingerprint, seconds, "dataset was built");
        Ok(self.report(&manifest, false, rejects.sample(&self.names)))
    }

    async fn verify_sources(&self) -> Result<(), Error> {
        let meter = Meter::new(
            &self.context.progress,
            "shards: verify landed files",
            self.rows,
        );
        for source in self.sources.iter().chain(&self.joined).chain(&self.frozen) {
            source.verify_files(|rows| meter.add(rows)).await?;
        }
        Ok(())
    }

    /// Checks that files read in place have not changed since they were hashed.
    async fn check_unchanged(&self) -> Result<(), Error> {
        for files in self.sources.iter().filter_map(|s| s.in_place.clone()) {
            let check = tokio::task::spawn_blocking(move || files.check_unchanged()).await;
            check.map_err(|e| Error::Engine(DataFusionError::ExecutionJoin(Box::new(e))))??;
        }
        Ok(())
    }

    async fn fit(
        &self,
        staged: &Staged,
        left_out: &BTreeMap<String, &'static str>,
    ) -> Result<Fitted, Error> {
        let train = TrainSplit::of(staged)?;
        let meter = Meter::new(&self.context.progress, "shards: fit", train.rows());
        let left_out = left_out.keys().cloned().collect();
        let spec = self.spec.fit_spec(&left_out);
        let (mut tokenizer, mut tokens) = (None, None);
        if let (Some(document), Some(config)) = (self.spec.document(), &self.tokens) {
            let column = &document.column;
            let file = match &self.given {
                Some(given) => given.clone(),
                None => TokenizerFile::learn(&train, config, column, self.context).await?,
            };
            tokens = Some(file.fitted(column, config, self.cuts_documents())?);
            tokenizer = Some(file);
        }
        let artefact = match &self.spec.payload {
            Some(payload) => fit_payload(&train, &spec, payload, tokens).await?,
            None if self.spec.parts.is_empty() => fit(&train, &spec).await?,
            None => fit_parts(&train, &spec, self.spec.images(), tokens).await?,
        };
        meter.add(train.rows());
        let encoder = match (&tokenizer, &artefact.tokens) {
            (Some(file), Some(fitted)) => Some(file.encoder(fitted)),
            _ => Characters::of(&artefact)?.map(Encoder::Characters),
        };
        Ok(Fitted {
            transform: Transform::new(artefact)?,
            tokenizer,
            encoder,
        })
    }

    /// Writes the tokenizer beside the transform.
    async fn put_tokenizer(&self, fitted: &Fitted) -> Result<Option<TokensReference>, Error> {
        let artefact = fitted.transform.artefact();
        match (&fitted.tokenizer, &self.tokens, &artefact.tokens) {
            (Some(file), Some(config), Some(tokens)) => {
                Ok(Some(file.put(&self.store, config, tokens).await?))
            }
            _ => Ok(None),
        }
    }

    /// About how many bytes a row's image or text has; landed files are packed.
    fn payload_bytes(&self) -> Option<u64> {
        let bytes = unpacked(self.tables()).saturating_add(self.joined_bytes());
        let each = bytes / self.rows.max(1);
        let carried = self.spec.near_dup.as_ref().and_then(NearDup::carried);
        let holds = self.spec.payloads().next().is_some() || carried.is_some();
        holds.then_some(each)
    }

    /// About how many bytes the sources have that are joined on.
    fn joined_bytes(&self) -> u64 {
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
    fn kept(&self, staged: &Staged) -> u64 {
        if self.cuts_documents() {
            staged.rows(Split::Train)
        } else {
            staged.total()
        }
    }

    /// Checks the row count of other machines' results: no row twice and, where all landed rows
    /// stay, none missing. Sends no request to those machines.
    fn check_count(&self, found: u64) -> Result<(), Error> {
        let (config, rows) = (&self.spec.config, self.rows);
        let is_all = |table: &Landed| table.newest().0.is_empty();
        let all_stay = config.dedup == DedupMode::None
            && config.conflicts.is_none()
            && self.spec.series.is_none()
            && self.tables().iter().all(is_all);
        if self.context.engine.is_local() {
            return Ok(());
        }
        counted(rows, found, all_stay)
    }

    /// Returns true if each document is divided into one part per split.
    fn cuts_documents(&self) -> bool {
        self.spec.config.split.by.is_range() && self.spec.payload.is_some()
    }

    /// The pass that looks for near-duplicates.
    fn near_dup<'a>(&'a self, scratch: &'a Scratch) -> Option<near_dup::Pass<'a>> {
        let progress = &self.context.progress;
        self.spec.near_dup.as_ref().map(|near| near_dup::Pass {
            near,
            names: &self.names,
            frozen: &self.frozen,
            scratch,
            meter: Arc::new(Meter::new(progress, "shards: near-duplicates", self.rows)),
        })
    }

    /// Layout of the shards.
    fn layout(&self, fitted: &Fitted) -> Layout {
        let transform = &fitted.transform;
        let target = target_kind(transform.artefact());
        let rows = self.sequence().map_or(1, |windows| windows.length as usize);
        let features = transform.features().saturating_mul(rows);
        let features = u32::try_from(features).expect("fewer than 2^32 features");
        match (&fitted.encoder, &self.spec.payload) {
            (encoder, _) if !self.spec.parts.is_empty() => Layout::Multi {
                features,
                images: self.spec.image().is_some(),
                tokens: encoder.as_ref().map(|encoder| RowTokens {
                    id: encoder.id_type(),
                    vocabulary: encoder.vocabulary(),
                    length: tokenizer::row_length(self.tokens.as_ref()),
                }),
                target,
            },
            (Some(encoder), _) => Layout::Tokens {
                id: encoder.id_type(),
                vocabulary: encoder.vocabulary(),
            },
            (None, Some(_)) => Layout::Images { target },
            (None, None) => Layout::Dense { features, target },
        }
    }

    /// Reports a target without a single number as a mistake in the configuration, not in every
    /// row.
    fn check_target(&self, staged: &Staged, rejects: &Rejects) -> Result<(), Error> {
        let Some(sample) = rejects
            .first_of(reason::TARGET_NOT_NUMERIC)
            .filter(|_| staged.total() == 0)
        else {
            return Ok(());
        };
        let instead = match self.spec.other_targets.is_empty() {
            true => {
                "name a column of numbers, or set `dataset.task = \"classification\"` to predict it as a class"
            }
            false => "several targets are columns of numbers, name others",
        };
        Err(Error::config(
            "dataset.target",
            format!(
                "column `{}` is not numeric, its first value is `{}`; {instead}",
                sample.column, sample.value
            ),
        ))
    }

    /// Rows that were rejected for each of several targets.
    fn rejected_targets(&self, rejects: &Rejects) -> BTreeMap<String, u64> {
        match self.spec.other_targets.is_empty() {
            true => BTreeMap::new(),
            false => rejects.by_target().clone(),
        }
    }

    async fn check_rejects(
        &self,
        session: &SessionContext,
        rejects: &Rejects,
        rows: u64,
    ) -> Result<(), Error> {
        let limit = self.spec.max_reject_fraction;
        let by_reason = addition::sums(&self.there.rejected, &rejects.rejected());
        let rejected: u64 = by_reason.values().sum();
        let rows = self.there.rows + rows;
        #[expect(clippy::cast_precision_loss, reason = "a share needs no 53 bits")]
        let share = rejected as f64 / rows.max(1) as f64;
        if share <= limit {
            return Ok(());
        }
        // A build that stops for them does so at any share, so the limit would be raised for nothing.
        self.check_expected(session, &[], rejects).await?;
        let files = rejects.publish(session, &self.store, &self.names).await?;
        let has_no_time = by_reason.contains_key(split::NO_SPLIT);
        let advice = match &self.spec.rule {
            Rule::Time(time) if has_no_time => time.advice(),
            _ => None,
        };
        let has_no_key = by_reason.contains_key(split::missing::MISSING_KEY);
        let advice = advice.unwrap_or_else(|| match has_no_key {
            true => "correct the source, make each row without a key a group of its own with `dataset.split.missing_key = \"own\"`, or \
                     raise the limit"
                .to_owned(),
            false => "correct the source or raise the limit".to_owned(),
        });
        Err(Error::TooManyRejects {
            advice,
            rejected,
            rows,
            limit,
            by_reason,
            sample: rejects.sample(&self.names).unwrap_or_default(),
            file: files
                .first()
                .map_or_else(String::new, |path| self.store.url_of(path)),
        })
    }

    /// Rows that violate expectations and are kept with a warning, by column and expectation.
    async fn unexpected(
        &self,
        session: &SessionContext,
        staged: &Staged,
        rejects: &Rejects,
    ) -> Result<BTreeMap<String, u64>, Error> {
        let Some(expect) = &self.spec.expect else {
            return Ok(BTreeMap::new());
        };
        let found = expect::violations(staged, expect).await?;
        if expect.on_violation == OnViolation::Warn {
            for Violation { path, rows, sample } in &found {
                tracing::warn!(path, rows, sample, file = %expect.url, "data are not as expected");
            }
            return Ok(found.into_iter().map(|v| (v.path, v.rows)).collect());
        }
        self.check_expected(session, &found, rejects).await?;
        Ok(BTreeMap::new())
    }

    /// Fails on a violated column in `found`, or a rejected row, where expectations stop the build.
    async fn check_expected(
        &self,
        session: &SessionContext,
        found: &[Violation],
        rejects: &Rejects,
    ) -> Result<(), Error> {
        let Some(expect) = &self.spec.expect else {
            return Ok(());
        };
        let reasons = rejects.firsts(&self.names).into_iter();
        let rows = reasons.filter(|(reason, ..)| reason.starts_with(expect::REASON));
        let rows: Vec<_> = rows.collect();
        if found.is_empty() && (rows.is_empty() || expect.on_violation.is_reject()) {
            return Ok(());
        }
        let columns = found
            .iter()
            .map(|Violation { path, sample, .. }| format!("`{path}`: {sample}"));
        let all = rows.iter().map(|row| row.1).sum::<u64>();
        let files = rejects.publish(session, &self.store, &self.names).await?;
        let rows = rows
            .iter()
            .map(|(reason, rows, first)| format!("{reason}: {rows}, first: {first}"));
        let file = files.first().map(|path| self.store.url_of(path));
        Err(Error::Unexpected {
            rows: all,
            what: columns.chain(rows).collect(),
            expectations: expect.url.clone(),
            file,
        })
    }

    /// Reads back what was written, before anything names it.
    async fn audit(&self, splits: &[SplitShards], layout: &ShardLayout) -> Result<(), Error> {
        let total = splits.iter().map(|s| s.rows).sum();
        let meter = Meter::new(&self.context.progress, "shards: audit", total);
        let findings = audit(
            &self.store,
            splits,
            |split| layout.schema(split),
            |rows| meter.add(rows),
        )
        .await?;
        if let Some(problem) = findings.problems.first() {
            return Err(Error::input(
                format!("the shards just written to `{}`", self.store.url()),
                problem.clone(),
                "the store does not return what was stored: check it, then build again",
            ));
        }
        if findings.leaked > 0 {
            return Err(Error::Leak {
                keys: findings.leaked,
                samples: findings.leaks,
            });
        }
        Ok(())
    }

    fn report(
        &self,
        manifest: &Manifest,
        up_to_date: bool,
        reject_sample: Option<String>,
    ) -> DatasetReport {
        let counts = &manifest.counts;
        let shards = || manifest.splits.iter().flat_map(|s| &s.shards);
        DatasetReport {
            rows_in: counts.rows_in,
            duplicates: counts.duplicates,
            rejected: counts.rejected.values().sum(),
            rejected_by_reason: counts.rejected.clone(),
            rejected_targets: counts.rejected_targets.clone(),
            reject_sample,
            filtered: counts.filtered.clone(),
            unexpected: counts.unexpected.clone(),
            conflicts: counts.conflicts,
            groups: counts.groups,
            near_dup: counts.near_dup,
            redacted: counts.redacted,
            joins: counts.joins.clone(),
            near_images: counts.near_images,
            boxes: counts.boxes,
            classes: counts.classes.clone(),
            train: counts.train,
            validation: counts.validation,
            test: counts.test,
            tokens: counts.tokens,
            cut: counts.cut,
            sequence: counts.sequence,
            shards: shards().count() as u64,
            bytes: shards().map(|s| s.bytes).sum(),
            up_to_date,
            fingerprint: manifest.fingerprint.to_string(),
            url: self.store.url(),
            report: manifest
                .profile
                .as_ref()
                .map(|_| self.store.url_of(&card::path_of(manifest.fingerprint))),
            dropped_columns: manifest.dropped_columns.clone(),
            warnings: manifest.warnings.clone(),
            naive: manifest.naive.clone(),
            added: None,
            anew: self.anew.clone().filter(|_| !up_to_date),
        }
    }
}

/// About how many bytes sources take in memory; landed files are packed.
pub(crate) fn unpacked(sources: &[Landed]) -> u64 {
    const PACKED: u64 = 3;
    let files = sources.iter().flat_map(Landed::files);
    let bytes: u64 = files.map(|file| file.bytes).sum();
    bytes.saturating_mul(PACKED)
}

fn target_kind(artefact: &TransformArtefact) -> TargetKind {
    let others = u32::try_from(artefact.other_targets.len()).expect("fewer than 2^32 targets");
    match &artefact.target {
        None => TargetKind::None,
        Some(_) if others > 0 => TargetKind::Regressions {
            targets: 1 + others,
        },
        Some(FittedTarget::Regression { .. }) => TargetKind::Regression,
        Some(FittedTarget::Classification { classes, .. }) => TargetKind::Classification {
            classes: u32::try_from(classes.len()).expect("fewer than 2^32 classes"),
        },
    }
}

#[cfg(test)]
mod addition_tests;
#[cfg(test)]
mod box_tests;
#[cfg(test)]
mod child_tests;
#[cfg(test)]
mod class_tests;
#[cfg(test)]
#[cfg(feature = "cluster")]
mod cluster_tests;
#[cfg(test)]
mod counts_tests;
#[cfg(test)]
mod direct_tests;
#[cfg(test)]
mod document_tests;
#[cfg(test)]
mod embedding_tests;
#[cfg(test)]
mod image_tests;
#[cfg(test)]
mod leak_tests;
#[cfg(test)]
mod multi_tests;
#[cfg(test)]
mod near_tests;
#[cfg(test)]
mod newest_tests;
#[cfg(test)]
mod past_tests;
#[cfg(test)]
mod payload_tests;
#[cfg(test)]
mod series_tests;
#[cfg(test)]
mod split_tests;
#[cfg(test)]
mod sql_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod token_tests;
#[cfg(test)]
mod trap_tests;
#[cfg(test)]
mod warning_tests;
#[cfg(test)]
mod window_tests;
