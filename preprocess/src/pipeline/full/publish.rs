//! The last stage: the files beside the shards, and the manifest that makes the dataset visible.

use std::time::Duration;

use feedline_schemas::{
    format::MANIFEST,
    ids::Hash128,
    manifest::{Manifest, TokensReference},
    profile::DatasetProfile,
    report::DatasetReport,
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
        let config = &build.spec.config;
        let mut targets = written.target_summaries(artefact).into_iter();
        let (target, other_targets) = (targets.next(), targets.collect());
        let mut manifest = Manifest {
            format: MANIFEST.format.to_owned(),
            version: MANIFEST.version,
            fingerprint: Hash128::new(0),
            dataset: build.name.clone(),
            input_hash: build.input.hash,
            columns_hash: Some(columns_hash(build.dataset)),
            layout: layout.layout.clone(),
            transform: put_transform(&build.store, artefact, build.name).await?,
            shuffle_seed: config.shards.shuffle.then_some(config.shards.seed),
            sources: build
                .input
                .all_sources()
                .map(|s| s.reference.clone())
                .collect(),
            text: config.text.clone(),
            near_dup: config.near_dup.clone(),
            counts: self.counts.clone(),
            splits: written.splits,
            rejects: self
                .rejects
                .publish(session, &build.store, &build.input.names)
                .await?,
            tokens: self.put_tokenizer(&fitted.fitted).await?,
            edit: None,
            kept: build.spec.kept.clone(),
            profile: put_profile(&build.store, profile).await?,
            additions: Vec::new(),
            dropped_columns: fitted.dropped_columns.clone(),
            warnings: std::mem::take(&mut self.warnings),
            naive: written.naive,
            target,
            other_targets,
        };
        settle(&build.store, &mut manifest).await?;
        Ok(manifest)
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
