//! One build, from landing zone to published dataset.

mod addition;
mod check;
mod count_sums;
mod equal_rows;
mod extremes;
mod grown;
mod keys;
mod leakage;
mod page;
mod past;
mod prepared;
mod report;
mod rows;
mod sources;
mod splits;
mod tokenizer;
mod torn;
mod verification;
mod warnings;
mod windows;
mod write;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use feedline_schemas::{
    config::PipelineConfig,
    format::MANIFEST,
    ids::Hash128,
    manifest::{DatasetCounts, Layout, Manifest, RowTokens, Split, TargetKind, TokensReference},
    report::{DatasetReport, Warning},
    transform::{FittedTarget, TransformArtefact},
};

use crate::{
    Context, Error, TrainSplit, Transform, document,
    fit::{check_texts, fit, fit_parts, fit_payload},
    join,
    manifest::{current, is_whole, publish, put_profile, put_transform, settle},
    meter::Meter,
    plan, profile, rejects,
    scratch::Scratch,
    series, session,
    shard::{ShardLayout, sweep},
    stage::{Direct, Staged, stage},
    tokens::Encoder,
    transform::Characters,
};
pub use check::{CheckedDataset, check, check_columns};
use grown::NotGrown;
pub use past::{LandedRows, SeriesBatch, SeriesRequest, SeriesRows, series_rows};
use prepared::Build;
pub(crate) use sources::check_table;
use sources::columns_hash;
use tokenizer::TokenizerFile;
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

impl Build<'_> {
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

    async fn built(&self, scratch: &Scratch, started: Duration) -> Result<DatasetReport, Error> {
        let session = session::session(
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
        let absent = crate::warnings::classes::without_rows(artefact, &classes, rows);
        warnings.extend(absent);
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
