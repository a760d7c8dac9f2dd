//! Waiting for Rust from Python: other Python threads run meanwhile, and Ctrl-C is noticed.

use std::time::Duration;

use pyo3::prelude::*;

/// How long a wait lasts before Python's signals are looked at, and so how late Ctrl-C may be.
pub(crate) const GLANCE: Duration = Duration::from_millis(50);

/// Runs `future` to its end on a runtime of its own.
///
/// # Errors
/// What a signal handler raised, `KeyboardInterrupt` above all, or that the runtime cannot be had.
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
