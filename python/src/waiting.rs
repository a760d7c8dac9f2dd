//! Waiting for Rust from Python: other Python threads run meanwhile, and Ctrl-C is noticed.

use std::time::Duration;

use pyo3::prelude::*;

/// Interval of checking Python's signals during a wait, and so the largest delay of Ctrl-C.
pub(crate) const GLANCE: Duration = Duration::from_millis(50);

/// Runs `future` to its end on a runtime of its own.
///
/// # Errors
/// Exception of a signal handler, `KeyboardInterrupt` above all, or the failure to make the
/// runtime.
pub(crate) fn run<T: Send>(py: Python<'_>, future: impl Future<Output = T> + Send) -> PyResult<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut future = Box::pin(future);
    loop {
        let waited = py
            .detach(|| runtime.block_on(async { tokio::time::timeout(GLANCE, &mut future).await }));
        match waited {
            Ok(value) => return Ok(value),
            Err(_) => py.check_signals()?,
        }
    }
}
