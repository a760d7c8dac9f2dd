//! Panics caught as values.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `work` and turns a panic into its message. State that `work` was changing must not be used
/// after a panic.
///
/// # Errors
/// The message of the panic.
pub fn catching<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        text.or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("it gave no reason")
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_its_message() {
        assert_eq!(catching(|| 1), Ok(1));
        assert_eq!(catching(|| panic!("no {}", 7)), Err::<(), _>("no 7".into()));
        assert_eq!(catching(|| panic!("plain")), Err::<(), _>("plain".into()));
    }
}
