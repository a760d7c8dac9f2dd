//! Decisions of an input that its user should know of.

use std::sync::{Mutex, PoisonError};

/// Warnings about a dataset, in the order they came up. Each is logged once, when it is added.
#[derive(Debug)]
pub(crate) struct Warnings {
    url: String,
    texts: Mutex<Vec<String>>,
}

impl Warnings {
    /// None yet, about the dataset at `url`.
    pub(super) fn new(url: String) -> Self {
        Self {
            url,
            texts: Mutex::default(),
        }
    }

    /// Adds a sentence about the dataset, which says what was decided and which setting changes it.
    pub(super) fn add(&self, text: &str) {
        tracing::warn!(dataset = self.url, "{text}");
        self.lock().push(format!("dataset `{}`: {text}", self.url));
    }

    /// Adds a sentence, unless there is one of that beginning.
    pub(super) fn add_once(&self, beginning: &str, rest: &str) {
        let start = format!("dataset `{}`: {beginning}", self.url);
        if !self.lock().iter().any(|text| text.starts_with(&start)) {
            self.add(&format!("{beginning}{rest}"));
        }
    }

    /// Adds that integers of a column were rounded, once for each column.
    pub(super) fn add_rounded(&self, column: &str, count: u64) {
        if count > 0 {
            self.add_once(
                &format!("integers of column `{column}` are rounded"),
                &format!(
                    ": `x` is float32, which holds every integer only up to 2^24; `{count}` in the first block that has such; \
                     leave the column out with `columns.x`, or use it as the key with `columns.key`"
                ),
            );
        }
    }

    /// Adds that documents are truncated to rows of `length` ids, once.
    pub(super) fn add_truncated(&self, length: u32, count: u64) {
        if count > 0 {
            self.add_once(
                "documents are truncated to `tokens.length`",
                &format!(
                    ", which is `{length}`: `{count}` in the first block that has such; raise it, or use the layout `packed`, \
                     which leaves no ids out; `truncated_documents` of the metrics counts those handed out"
                ),
            );
        }
    }

    /// All of them so far.
    pub(crate) fn list(&self) -> Vec<String> {
        self.lock().clone()
    }

    /// Number of warnings.
    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<String>> {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
