//! Problems of a configuration, as a check finds them.

use feedline_schemas::config::Loaded;

/// Completes the reason of a problem at a key; `None` if one of the problems found before, at the keys
/// of the list, has named it already.
pub(crate) type CompleteReason<'a> = &'a (dyn Fn(&str, String, &[String]) -> Option<String> + Sync);

/// Problems found so far, each once.
pub(super) struct FoundProblems<'a> {
    loaded: &'a Loaded,
    complete: CompleteReason<'a>,
    /// Their keys.
    keys: Vec<String>,
    /// Each with file, line and key.
    pub(super) texts: Vec<String>,
    /// The same with the line of text.
    pub(super) excerpts: Vec<String>,
}

impl<'a> FoundProblems<'a> {
    pub(super) fn new(loaded: &'a Loaded, complete: CompleteReason<'a>) -> Self {
        Self {
            loaded,
            complete,
            keys: Vec::new(),
            texts: Vec::new(),
            excerpts: Vec::new(),
        }
    }

    /// Adds the problem of a key.
    pub(super) fn add(&mut self, key: &str, reason: String) {
        let Some(reason) = (self.complete)(key, reason, &self.keys) else {
            return;
        };
        let error = self.loaded.error(key, reason);
        let text = error.to_string();
        if !self.texts.contains(&text) {
            self.keys.push(key.to_owned());
            self.texts.push(text);
            self.excerpts.push(error.with_excerpt());
        }
    }
}
