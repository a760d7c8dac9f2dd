//! Failed runs of sources, stored beside their logs for `status`: a run that fails before its first
//! batch leaves no entry.

use bytes::Bytes;
use feedline_http::SecretMasks;
use feedline_schemas::{
    config::SourceConfig,
    decode, encode,
    failures::{FAILED_RUNS, FailedRuns},
    format::FAILURES,
};
use feedline_storage::Store;

use crate::{context::Context, error::Error, landing_folder::landing};

/// Reads the failed runs of the source at `landing` since its last successful one.
///
/// # Errors
/// [`Error::Contract`] for a file that cannot be read, [`Error::Storage`].
pub(crate) async fn read(landing: &Store) -> Result<Option<FailedRuns>, Error> {
    let Some(bytes) = landing.get_opt(FAILED_RUNS).await? else {
        return Ok(None);
    };
    Ok(Some(decode(&landing.url_of(FAILED_RUNS), &bytes)?))
}

/// Records a run of the source of `config` that ended well, or by `error`. A deferred or stopped run is not
/// recorded. A failure to write the record does not affect the run.
pub(crate) async fn note(context: &Context, config: &SourceConfig, error: Option<&Error>) {
    let source = &config.name;
    let written = match error {
        Some(Error::Deferred { .. } | Error::Cancelled) => return,
        Some(error) => add(context, config, error).await,
        None => forget(&landing(&context.root, source)).await,
    };
    if let Err(error) = written {
        tracing::warn!(%source, %error, "the failures of its runs cannot be recorded");
    }
}

async fn add(context: &Context, config: &SourceConfig, error: &Error) -> Result<(), Error> {
    let source = &config.name;
    let landing = landing(&context.root, source);
    let masks = SecretMasks::configured(config, &*context.secrets);
    // An unreadable file is replaced.
    let before = read(&landing).await.ok().flatten();
    let now_s = context.clock.unix().as_secs();
    let failed = FailedRuns {
        format: FAILURES.format.to_owned(),
        version: FAILURES.version,
        source: source.clone(),
        failures: before.as_ref().map_or(0, |before| before.failures) + 1,
        since_unix_s: before.map_or(now_s, |before| before.since_unix_s),
        last_unix_s: now_s,
        error: masks.mask_message(&error.to_string()),
    };
    let bytes = Bytes::from(encode(&failed));
    landing.put(FAILED_RUNS, bytes).await?;
    Ok(())
}

/// Removes the failed runs of the source at `landing`.
///
/// # Errors
/// [`Error::Storage`].
pub(crate) async fn forget(landing: &Store) -> Result<(), Error> {
    if landing.get_opt(FAILED_RUNS).await?.is_some() {
        landing.delete(FAILED_RUNS).await?;
    }
    Ok(())
}
