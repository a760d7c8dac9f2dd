//! Decisions that a source made by itself while it read, for the report.

use std::sync::{Arc, Mutex, PoisonError};

use feedline_schemas::report::Warning;

/// Notices of a source; clones share them. The report has the first notice of each kind and the
/// count of the others.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notices(Arc<Mutex<Vec<Notice>>>);

#[derive(Debug)]
struct Notice {
    code: &'static str,
    key: &'static str,
    message: String,
    /// Messages of this kind besides the first.
    others: u64,
}

impl Notices {
    /// Takes note of a decision of the kind `code`, which `key` changes.
    pub(crate) fn push(&self, code: &'static str, key: &'static str, message: String) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(notice) = all.iter_mut().find(|notice| notice.code == code) else {
            all.push(Notice {
                code,
                key,
                message,
                others: 0,
            });
            return;
        };
        if notice.message != message {
            notice.others += 1;
        }
    }

    /// All of them; none is left.
    pub(crate) fn take(&self) -> Vec<Warning> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let warning = |notice: Notice| {
            let message = match notice.others {
                0 => notice.message,
                1 => format!("{} (and of another file the like)", notice.message),
                others => format!("{} (and of {others} other files the like)", notice.message),
            };
            let warning = Warning::new(notice.code, message);
            match notice.key {
                "" => warning,
                key => warning.with_key(key),
            }
        };
        all.drain(..).map(warning).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_one_kind_the_first_is_told_and_the_others_are_counted() {
        let notices = Notices::default();
        for name in ["a", "a", "b", "c"] {
            notices.push("empty_file", "", format!("`{name}` is empty"));
        }
        notices.push("csv_delimiter", "csv.delimiter", "`a` has `;`".into());
        let told = notices.clone().take();
        assert_eq!(
            told[0].message,
            "`a` is empty (and of 2 other files the like)"
        );
        assert_eq!(
            (told.len(), told[1].key.as_deref()),
            (2, Some("csv.delimiter"))
        );
        assert!(notices.take().is_empty());
    }
}
