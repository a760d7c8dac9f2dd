//! Waiting for Rust from Python: other Python threads run meanwhile, and Ctrl-C is noticed.

use std::time::Duration;

use pyo3::prelude::*;

/// Interval of checking Python's signals during a wait, and so the largest delay of Ctrl-C.
pub(crate) const GLANCE: Duration = Duration::from_millis(50);

/// Runs `future` to its end on a runtime of its own; `None` where that takes longer than `limit`.
///
/// # Errors
/// Exception of a signal handler, `KeyboardInterrupt` above all, or the failure to make the
/// runtime.
pub(crate) fn run<T: Send>(
    py: Python<'_>,
    limit: Option<Duration>,
    future: impl Future<Output = T> + Send,
) -> PyResult<Option<T>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut future = Box::pin(future);
    let mut waited = Duration::ZERO;
    let ended = loop {
        let next = py
            .detach(|| runtime.block_on(async { tokio::time::timeout(GLANCE, &mut future).await }));
        if let Ok(value) = next {
            return Ok(Some(value));
        }
        if let Err(raised) = py.check_signals() {
            break Err(raised);
        }
        waited += GLANCE;
        if limit.is_some_and(|limit| waited >= limit) {
            break Ok(None);
        }
    };
    drop(future);
    // A look-up of a name, or a file, that hangs is not waited for.
    runtime.shutdown_background();
    ended
}
