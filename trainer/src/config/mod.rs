//! Configuration of a run: `[train]`, resolved, and single values of it.

pub(crate) mod loader_keys;
pub(crate) mod name_pattern;
pub(crate) mod no_effect;
pub(crate) mod settings;
pub(crate) mod values;
