//! Ranges of settings.

use crate::Error;

/// Refuses a number outside `least..=most`.
pub(super) fn within(key: &'static str, value: u64, least: u64, most: u64) -> Result<(), Error> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    let reason = format!("it is `{value}`, use `{least}` to `{most}`");
    Err(Error::Config { key, reason })
}

/// Refuses a pair that is not in order or leaves `least..=most`; also NaN.
pub(super) fn range(key: &'static str, pair: [f32; 2], least: f32, most: f32) -> Result<(), Error> {
    let [low, high] = pair;
    if least <= low && low <= high && high <= most {
        return Ok(());
    }
    let reason = format!("it is `{pair:?}`, use two numbers in order, from `{least}` to `{most}`");
    Err(Error::Config { key, reason })
}
