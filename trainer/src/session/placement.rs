//! Placement of weights and optimizer: on the device, or in host memory.

use std::collections::BTreeSet;

use feedline_schemas::report::Warning;

use crate::{
    error::{Error, config as wrong},
    model::engine::ModelEngine,
    parallel::Ranks,
};

/// Returns true where weights and optimizer stay on the device: on a GPU, and with several ranks where all have the same one.
/// Another kind of device rounds in another way, and the ranks' weights would drift apart; then a warning says so.
///
/// # Errors
/// [`Error::Rank`]; [`Error::Config`] where ranks are to sum on devices that differ.
pub(super) fn stays_on_device(
    engine: &ModelEngine,
    ranks: &Ranks,
) -> Result<(bool, Option<Warning>), Error> {
    let is_gpu = engine.kind().is_gpu();
    if !ranks.are_many() {
        return Ok((is_gpu, None));
    }
    let names = ranks.gather(engine.device_model().as_bytes().to_vec())?;
    let are_equal = names.iter().all(|name| *name == names[0]);
    if are_equal {
        return Ok((is_gpu, None));
    }
    let names: BTreeSet<_> = names
        .iter()
        .map(|name| String::from_utf8_lossy(name))
        .collect();
    let names = names.into_iter().collect::<Vec<_>>().join(", ");
    if ranks.sum_on_devices() {
        let reason = format!(
            "`nccl` needs the same kind of GPU on all ranks, which have {names}: those round differently, and the weights \
             would drift apart. Give all ranks the same kind, or set it to `tcp`"
        );
        return Err(wrong("parallel.collective", reason));
    }
    let message = format!(
        "the ranks compute on different devices ({names}), which round differently; so each rank moves its weights on the \
         processor, and they cross the bus in every step. Give all ranks the same kind of device"
    );
    tracing::warn!(code = "different_devices", "{message}");
    let warning = Warning::new("different_devices", message).with_key("train.device");
    Ok((false, Some(warning)))
}
