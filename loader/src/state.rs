//! Whether a loader state belongs to a loader.

use feedline_schemas::loader_state::LoaderState;

use crate::{Error, error::Difference};

/// Compares everything but the position, which must lie within `batches` batches.
///
/// # Errors
/// [`Error::StateMismatch`] with every field that differs.
pub(crate) fn check(state: &LoaderState, ours: &LoaderState, batches: u64) -> Result<(), Error> {
    let mut differences = Vec::new();
    let mut compare = |field, state: String, loader: String| {
        if state != loader {
            differences.push(Difference {
                field,
                state,
                loader,
            });
        }
    };
    compare(
        "fingerprint",
        state.fingerprint.to_string(),
        ours.fingerprint.to_string(),
    );
    compare(
        "order_version",
        state.order_version.to_string(),
        ours.order_version.to_string(),
    );
    compare("seed", state.seed.to_string(), ours.seed.to_string());
    compare(
        "domains",
        state.domains.to_string(),
        ours.domains.to_string(),
    );
    compare(
        "window_blocks",
        state.window_blocks.to_string(),
        ours.window_blocks.to_string(),
    );
    compare(
        "global_batch",
        state.global_batch.to_string(),
        ours.global_batch.to_string(),
    );
    if state.batch.get() > batches {
        compare(
            "batch",
            state.batch.to_string(),
            format!("at most {batches}"),
        );
    }
    if differences.is_empty() {
        Ok(())
    } else {
        Err(Error::StateMismatch { differences })
    }
}
