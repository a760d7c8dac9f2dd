//! Version of each object at the start of a run.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use xxhash_rust::xxh3::xxh3_128;

/// The ETag and size first seen of every object. Objects are kept by a hash of their path: a run may meet a million.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    seen: Mutex<HashMap<u128, Version>>,
}

#[derive(Debug)]
struct Version {
    etag: Option<Box<str>>,
    bytes: u64,
}

impl Pins {
    /// ETag that a request for `path` must match. Weak ETags cannot be used for that (RFC 9110,
    /// section 13.1.1); they are compared when the response arrives.
    pub(crate) fn if_match(&self, path: &str) -> Option<String> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let version = seen.get(&xxh3_128(path.as_bytes()))?;
        let strong = version
            .etag
            .as_deref()
            .filter(|etag| !etag.starts_with("W/"))?;
        Some(strong.to_owned())
    }

    /// Identity of the object among all versions under its name: size and ETag; `None` inside when
    /// it has no strong ETag, and outside when it was not seen yet.
    pub(crate) fn version(&self, path: &str) -> Option<Option<String>> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let version = seen.get(&xxh3_128(path.as_bytes()))?;
        let strong = version.etag.as_deref().filter(|e| !e.starts_with("W/"));
        Some(strong.map(|etag| format!("{} {etag}", version.bytes)))
    }

    /// Compares a response with the first one, which it may be.
    ///
    /// # Errors
    /// Description of the difference.
    pub(crate) fn check(&self, path: &str, etag: Option<&str>, bytes: u64) -> Result<(), String> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let first = seen
            .entry(xxh3_128(path.as_bytes()))
            .or_insert_with(|| Version {
                etag: etag.map(Into::into),
                bytes,
            });
        match (first.etag.as_deref(), etag) {
            (Some(first), Some(now)) if first != now => {
                Err(format!("its ETag was `{first}` and is `{now}`"))
            }
            (Some(first), None) => Err(format!("its ETag was `{first}` and it has none now")),
            _ if first.bytes != bytes => {
                Err(format!("it had `{}` bytes and has `{bytes}`", first.bytes))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_etag_or_size_is_another_object() {
        let pins = Pins::default();
        assert_eq!(pins.if_match("a"), None);
        pins.check("a", Some("\"1\""), 10).unwrap();
        pins.check("b", Some("W/\"1\""), 10).unwrap();
        pins.check("c", None, 10).unwrap();
        assert_eq!(pins.if_match("a").as_deref(), Some("\"1\""));
        assert_eq!(pins.if_match("b"), None, "it is weak");
        pins.check("a", Some("\"1\""), 10).unwrap();
        assert_eq!(
            pins.check("a", Some("\"2\""), 10).unwrap_err(),
            "its ETag was `\"1\"` and is `\"2\"`"
        );
        assert!(pins.check("b", Some("W/\"2\""), 10).is_err());
        assert!(pins.check("a", None, 10).is_err());
        assert_eq!(pins.version("d"), None);
        let version = |path| pins.version(path).unwrap();
        assert_eq!(version("a").as_deref(), Some("10 \"1\""));
        assert_eq!((version("b"), version("c")), (None, None));
        assert_eq!(
            pins.check("c", None, 11).unwrap_err(),
            "it had `10` bytes and has `11`"
        );
    }
}
