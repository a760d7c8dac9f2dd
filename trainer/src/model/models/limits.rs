//! Limits of the sizes that the configuration of a model gives.

use crate::error::{Error, config as wrong};

/// Largest width of anything.
pub(super) const WIDTH_MAX: u32 = 65_536;

/// Most layers of anything.
const LAYERS_MAX: usize = 256;

/// At most so many layers, each of a width in range.
pub(super) fn widths(key: &str, widths: Option<&[u32]>) -> Result<(), Error> {
    let widths = widths.unwrap_or_default();
    if widths.len() > LAYERS_MAX {
        let reason = format!(
            "it has {} layers, at most {LAYERS_MAX} are allowed",
            widths.len()
        );
        return Err(wrong(&format!("model.{key}"), reason));
    }
    for &width in widths {
        within(key, Some(width), 1, WIDTH_MAX)?;
    }
    Ok(())
}

/// Between these, both included, where it is given.
pub(super) fn within(key: &str, value: Option<u32>, min: u32, max: u32) -> Result<(), Error> {
    let Some(value) = value.filter(|value| !(min..=max).contains(value)) else {
        return Ok(());
    };
    let allowed = if value < min {
        format!("at least {min}")
    } else {
        format!("at most {max}")
    };
    Err(wrong(
        &format!("model.{key}"),
        format!("it is {value} and must be {allowed}"),
    ))
}
