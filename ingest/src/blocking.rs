//! Work that computes or waits, off the threads that drive async tasks.

use std::{num::NonZero, sync::LazyLock, thread::available_parallelism};

use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::error::Error;

/// Thread pool for pure computation, one thread for each core. More would be no faster, and each
/// thread that allocates keeps memory of its own.
static CORES: LazyLock<Option<ThreadPool>> = LazyLock::new(|| {
    let builder = ThreadPoolBuilder::new()
        .num_threads(available_parallelism().map_or(1, NonZero::get))
        .thread_name(|number| format!("ingest-{number}"));
    builder.build().ok()
});

/// Runs `work` that never blocks. All sources together run at most one such task per core.
pub(crate) async fn computing<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    blocking(move || match &*CORES {
        Some(cores) => cores.install(work),
        None => work(),
    })
    .await
}

/// Runs `work` on the blocking pool.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(e) if e.is_panic() => std::panic::resume_unwind(e.into_panic()),
        Err(_) => Err(Error::Cancelled),
    }
}
