//! Checks of sources before any request.

use feedline_schemas::config::{PipelineConfig, SourceConfig};

use crate::{context::Context, error::Error, run::open, settings::choose};

/// Resolves the settings of every source, credentials included. Sends no request, and reads and
/// writes no data. A pipeline without a source passes.
///
/// # Errors
/// [`Error::Config`] for the first setting or secret that is wrong or missing.
pub async fn check(config: &PipelineConfig, context: &Context) -> Result<(), Error> {
    check_sources(config, context, |_| true).await
}

/// Resolves the settings of every source with a schedule, like [`check`].
///
/// # Errors
/// As [`check`].
pub async fn check_scheduled(config: &PipelineConfig, context: &Context) -> Result<(), Error> {
    check_sources(config, context, |source| source.schedule.is_some()).await
}

async fn check_sources(
    config: &PipelineConfig,
    context: &Context,
    is_chosen: fn(&SourceConfig) -> bool,
) -> Result<(), Error> {
    if config.source.is_empty() {
        return Ok(());
    }
    for (index, source) in choose(config, None)? {
        if !is_chosen(source) {
            continue;
        }
        // Boxed: the future of a source is large.
        Box::pin(open(source, context))
            .await
            .map_err(|error| error.under(&format!("source.{index}")))?;
    }
    Ok(())
}
