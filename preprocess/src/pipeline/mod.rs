//! One build, from landing zone to published dataset.

mod append;
mod checks;
mod count_sums;
mod duplicate_warnings;
mod entity_history;
mod full;
mod image_files;
mod input;
mod moved_rows;
mod prepare;
mod report;
mod report_page;
mod rows;
pub(crate) mod sources;
mod tokenizer;
mod warnings;
mod window_pass;
mod write_pass;

use feedline_schemas::{config::PipelineConfig, manifest::Manifest, report::DatasetReport};

use crate::{
    Context, Error,
    engine::scratch::Scratch,
    shards::{
        manifest::{current, is_whole},
        writer::sweep,
    },
    staging::rejects,
};
use append::eligibility::NotAppendable;
pub use checks::columns::{CheckedDataset, check, check_columns};
pub use entity_history::{
    LandedRows, SeriesBatch, SeriesRequest, SeriesRows, series_columns, series_rows,
};
use full::FullBuild;
use prepare::Build;
pub(crate) use sources::check_table;

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
    let build = Box::pin(Build::prepare(config, context)).await?;
    build.is_built_as(manifest).await
}

/// Checks that a build of `config` keeps the dataset of `manifest` or appends rows to it, rather than
/// rebuilding it. Files of the dataset are not read.
///
/// # Errors
/// As [`build`], as far as no row is read.
pub async fn is_kept_by(
    config: &PipelineConfig,
    manifest: &Manifest,
    context: &Context,
) -> Result<bool, Error> {
    let build = Box::pin(Build::prepare(config, context)).await?;
    build.is_kept(manifest).await
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
    let mut build = Box::pin(Build::prepare(config, context)).await?;
    build.previous.rebuild_reason =
        (mode == Mode::Anew).then(|| "`--refit` asks for it".to_owned());
    sweep(&build.store).await;
    let there = match mode {
        Mode::Add => current(&build.store).await?,
        Mode::Anew => None,
    };
    if let Some(manifest) = there {
        if manifest.input_hash == build.input.hash {
            if is_whole(&build.store, &manifest).await? {
                tracing::info!(dataset = %build.name, fingerprint = %manifest.fingerprint, "dataset is up to date");
                let sample = rejects::sample(&build.store, &manifest.rejects).await?;
                return Ok(build.report(&manifest, true, sample));
            }
            build.previous.rebuild_reason = Some("it was damaged".to_owned());
        } else {
            match Box::pin(build.check_appendable(manifest)).await? {
                Ok(grown) => return Box::pin(build.add(grown)).await,
                Err(NotAppendable {
                    reason,
                    earlier,
                    movable,
                }) => {
                    build.previous.earlier = earlier;
                    build.previous.movable = movable;
                    tracing::info!(dataset = %build.name, reason, "rebuilding and refitting the dataset from all rows");
                    build.previous.rebuild_reason = Some(reason);
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
        if let Some(query) = &mut self.input.query {
            let made = query
                .run(&self.input.sources, self.context, &scratch)
                .await?;
            self.input.rows = made.rows();
            self.input.made = vec![made];
        }
        let report = match FullBuild::open(&self, &scratch) {
            Ok(full) => Box::pin(full.run(started)).await,
            Err(error) => Err(error),
        };
        let context = self.context;
        context
            .engine
            .sweep(&context.root, context.clock.unix())
            .await;
        report
    }
}

#[cfg(test)]
mod tests;
