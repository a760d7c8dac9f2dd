//! The last stage: the files beside the shards, and the manifest that makes the dataset visible.

use std::time::Duration;

use feedline_schemas::{
    format::MANIFEST,
    ids::Hash128,
    manifest::{Manifest, TokensReference},
    profile::{DatasetProfile, ProfileReference},
    report::DatasetReport,
    transform::TransformReference,
};

use super::{FullBuild, fit::FittedDataset};
use crate::{
    Error,
    pipeline::{
        report_page::Page,
        sources::columns_hash,
        write_pass::{Fitted, Written},
    },
    shards::{
        manifest::{publish, put_profile, put_transform, settle},
        shard_layout::ShardLayout,
    },
};

/// Files beside the shards.
struct FilesBeside {
    transform: TransformReference,
    rejects: Vec<String>,
    tokens: Option<TokensReference>,
    profile: Option<ProfileReference>,
}

impl FullBuild<'_> {
    /// Writes transform, rejects, tokenizer and profile beside the shards, and returns the manifest that names them.
    pub(super) async fn put_files(
        &mut self,
        fitted: &FittedDataset,
        written: Written,
        layout: &ShardLayout,
        profile: Option<&DatasetProfile>,
    ) -> Result<Manifest, Error> {
        let (build, session, artefact) = (self.build, &self.session, fitted.artefact());
        let (store, names) = (&build.store, &build.input.names);
        let beside = FilesBeside {
            transform: put_transform(store, artefact, build.name).await?,
            rejects: self.rejects.publish(session, store, names).await?,
            tokens: self.put_tokenizer(&fitted.fitted).await?,
            profile: put_profile(store, profile).await?,
        };
        let mut manifest = self.manifest(beside, fitted, written, layout);
        settle(store, &mut manifest).await?;
        Ok(manifest)
    }

    /// Manifest of the dataset, its fingerprint left to the caller.
    fn manifest(
        &mut self,
        beside: FilesBeside,
        fitted: &FittedDataset,
        written: Written,
        layout: &ShardLayout,
    ) -> Manifest {
        let (build, artefact) = (self.build, fitted.artefact());
        let config = &build.spec.config;
        let mut targets = written.target_summaries(artefact).into_iter();
        let (target, other_targets) = (targets.next(), targets.collect());
        let sources = build.input.all_sources();
        Manifest {
            format: MANIFEST.format.to_owned(),
            version: MANIFEST.version,
            fingerprint: Hash128::new(0),
            dataset: build.name.clone(),
            input_hash: build.input.hash,
            columns_hash: Some(columns_hash(build.dataset)),
            layout: layout.layout.clone(),
            transform: beside.transform,
            shuffle_seed: config.shards.shuffle.then_some(config.shards.seed),
            sources: sources.map(|s| s.reference.clone()).collect(),
            text: config.text.clone(),
            near_dup: config.near_dup.clone(),
            counts: self.counts.clone(),
            splits: written.splits,
            rejects: beside.rejects,
            tokens: beside.tokens,
            edit: None,
            kept: build.spec.kept.clone(),
            profile: beside.profile,
            additions: Vec::new(),
            dropped_columns: fitted.describe_dropped(),
            warnings: std::mem::take(&mut self.warnings),
            naive: written.naive,
            target,
            other_targets,
        }
    }

    /// Writes the tokenizer beside the transform.
    async fn put_tokenizer(&self, fitted: &Fitted) -> Result<Option<TokensReference>, Error> {
        let build = self.build;
        let artefact = fitted.transform.artefact();
        match (
            &fitted.tokenizer,
            &build.tokenizer.settings,
            &artefact.tokens,
        ) {
            (Some(file), Some(config), Some(tokens)) => {
                Ok(Some(file.put(&build.store, config, tokens).await?))
            }
            _ => Ok(None),
        }
    }

    /// Writes the dataset report, if there is one, makes `manifest` the current one, and reports the build.
    pub(super) async fn publish(
        self,
        manifest: Manifest,
        fitted: &FittedDataset,
        page: Option<(Page, &DatasetProfile)>,
        started: Duration,
    ) -> Result<DatasetReport, Error> {
        let build = self.build;
        if let Some((page, profile)) = page {
            let rejects = self.rejects.firsts(&build.input.names);
            build
                .put_page(page, &manifest, fitted.artefact(), profile, rejects)
                .await?;
        }
        publish(&build.store, build.previous.pointer.as_ref(), &manifest).await?;
        let ended = build.context.clock.monotonic();
        let seconds = ended.saturating_sub(started).as_secs_f64();
        tracing::info!(dataset = %build.name, fingerprint = %manifest.fingerprint, seconds, "dataset was built");
        Ok(build.report(&manifest, false, self.rejects.sample(&build.input.names)))
    }
}
