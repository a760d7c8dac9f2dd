//! The landing folder of a source.

use feedline_schemas::ids::Name;
use feedline_storage::Store;

/// Landing folder of a source.
pub(crate) fn landing(root: &Store, source: &Name) -> Store {
    root.child(&format!("landing/{source}"))
}
