//! URLs of stores in the engine, which every machine of a cluster can resolve.
//!
//! An engine's URL is a scheme and a name. The name is the store's base URL in hexadecimal digits,
//! so that a worker with a plan finds the store with its own settings and credentials; none of them
//! are sent.

use std::fmt::Write as _;

use datafusion::{error::Result, execution::object_store::ObjectStoreUrl};
use feedline_storage::Store;

/// Scheme of such URLs.
pub(crate) const SCHEME: &str = "shared";

/// URL of the store with `folder`.
pub(crate) fn url_of(folder: &Store) -> Result<ObjectStoreUrl> {
    let (base, _, _) = folder.object_store();
    let mut url = format!("{SCHEME}://");
    for byte in base.as_str().bytes() {
        write!(url, "{byte:02x}").expect("writing to a string does not fail");
    }
    ObjectStoreUrl::parse(url)
}

/// Base URL of the store `name`; `None` where it is no name of a store.
#[cfg(any(feature = "cluster", test))]
pub(crate) fn base_of(name: &str) -> Option<String> {
    let digits = name.as_bytes();
    if digits.is_empty() || !digits.len().is_multiple_of(2) {
        return None;
    }
    let bytes = digits.chunks(2).map(|pair| {
        let pair = std::str::from_utf8(pair).ok()?;
        u8::from_str_radix(pair, 16).ok()
    });
    String::from_utf8(bytes.collect::<Option<Vec<u8>>>()?).ok()
}

#[cfg(test)]
mod tests {
    use feedline_storage::StoreOptions;

    use super::*;

    #[test]
    fn a_store_is_found_by_the_name_that_it_has() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(
            &folder.path().display().to_string(),
            &StoreOptions::default(),
        );
        let store = store.unwrap();
        let url = url_of(&store).unwrap();
        assert_eq!(url, url_of(&store.child("landing")).unwrap());
        let name = url.as_str().strip_prefix("shared://").unwrap();
        assert_eq!(
            base_of(name.trim_end_matches('/')).as_deref(),
            Some("file:///")
        );
        for wrong in ["", "6", "zz", "root", "ff"] {
            assert_eq!(base_of(wrong), None, "{wrong}");
        }
    }
}
