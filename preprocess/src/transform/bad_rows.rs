//! Rows that cannot become features, each with its first reason.

use std::collections::BTreeMap;

/// The first reason of each bad row.
#[derive(Debug, Default)]
pub(super) struct Bad(pub(super) BTreeMap<usize, (&'static str, String)>);

impl Bad {
    pub(super) fn add(
        &mut self,
        row: usize,
        reason: &'static str,
        detail: impl FnOnce() -> String,
    ) {
        self.0.entry(row).or_insert_with(|| (reason, detail()));
    }
}
