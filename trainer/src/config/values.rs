//! Single values of the configuration: their bounds, and the defaults of keys that only some types have.

use serde::Serialize;

use crate::error::{Error, config as wrong};

/// Between these, both included.
pub(crate) fn whole(key: &str, value: u64, min: u64, max: u64) -> Result<(), Error> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    let allowed = if value < min {
        format!("at least {min}")
    } else {
        format!("at most {max}")
    };
    Err(wrong(key, format!("it is {value} and must be {allowed}")))
}

/// At least 0 and below 1.
pub(crate) fn share(key: &str, value: f64) -> Result<(), Error> {
    within(key, value, value < 1.0, "at least 0 and below 1")
}

/// At least 0.
pub(crate) fn at_least_zero(key: &str, value: f64) -> Result<(), Error> {
    within(key, value, true, "at least 0")
}

/// Above 0.
pub(crate) fn above_zero(key: &str, value: f64) -> Result<(), Error> {
    within(key, value, value > 0.0, "above 0")
}

/// Finite, at least 0, and what the caller asks for.
pub(crate) fn within(key: &str, value: f64, ok: bool, allowed: &str) -> Result<(), Error> {
    if ok && value.is_finite() && value >= 0.0 {
        return Ok(());
    }
    Err(wrong(key, format!("it is {value} and must be {allowed}")))
}

/// The value of a key that only some types have: what was given, or the default of type `of`; without a default the type
/// has no use for it.
///
/// # Errors
/// [`Error::Config`] when a value was given that the type has no use for.
pub(crate) fn filled<T>(
    key: &str,
    of: &impl Serialize,
    given: Option<T>,
    default: Option<T>,
) -> Result<Option<T>, Error> {
    if given.is_some() && default.is_none() {
        let reason = format!("`{}` has no such key; leave it out", name_of(of));
        return Err(wrong(key, reason));
    }
    Ok(given.or(default))
}

/// A kind as the configuration writes it.
pub(crate) fn name_of(kind: &impl Serialize) -> String {
    let json = serde_json::to_string(kind).expect("a kind is text");
    json.trim_matches('"').to_owned()
}
