//! Decisions that a source made by itself while it read, for the report.

use std::{
    collections::BTreeSet,
    iter,
    sync::{Arc, Mutex, PoisonError},
};

use feedline_schemas::{
    count::counted,
    report::{WarnedColumn, Warning},
};

use crate::{remedy::Remedy, skipped_rows::SkippedRows, value::shorten};

/// Notices of a source; clones share them. The report has the first notice of each kind and the
/// count of the others.
#[derive(Clone, Debug, Default)]
pub struct Notices {
    all: Arc<Mutex<Vec<Notice>>>,
    /// Those of the files that could not be read.
    remedies: Arc<Mutex<Vec<Remedy>>>,
    skipped_rows: Arc<Mutex<SkippedRows>>,
}

#[derive(Debug)]
struct Notice {
    code: &'static str,
    key: &'static str,
    message: String,
    /// Columns that the message is about.
    columns: Vec<WarnedColumn>,
    /// Other messages of this kind, up to [`MOST`].
    others: BTreeSet<String>,
    /// True if each message states something of its own file.
    is_listed: bool,
}

/// Maximum number of distinct messages of a kind that are tracked.
const MOST: usize = 10_000;

/// Maximum number of messages of a kind that are listed.
const LISTED: usize = 5;

impl Notices {
    /// Empty notices of the same source, for a file that is read again later. Lines that `csv.skip_rows` passes over are
    /// noted here too.
    #[must_use]
    pub fn of_sample(&self) -> Self {
        Self {
            skipped_rows: Arc::clone(&self.skipped_rows),
            ..Self::default()
        }
    }

    /// Lines that `csv.skip_rows` has passed over in the files so far.
    #[must_use]
    pub fn skipped_rows(&self) -> SkippedRows {
        let skipped = self.skipped_rows.lock();
        skipped.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes the file `name` as one of a `kind`, unless there is one. `count` lines of it were passed over.
    pub(crate) fn note_skipped(
        &self,
        count: u64,
        kind: impl Fn(&mut SkippedRows) -> &mut Option<String>,
        name: &str,
    ) {
        let skipped = self.skipped_rows.lock();
        let mut skipped = skipped.unwrap_or_else(PoisonError::into_inner);
        let rows: &mut SkippedRows = &mut skipped;
        rows.count = count;
        kind(rows).get_or_insert_with(|| name.to_owned());
    }

    /// Records a decision of the kind `code`, which `key` changes.
    pub fn push(&self, code: &'static str, key: &'static str, message: String) {
        self.add(code, key, message, &[], false);
    }

    /// As [`Self::push`], about the columns that the message names.
    pub fn push_about(
        &self,
        code: &'static str,
        key: &'static str,
        message: String,
        columns: &[String],
    ) {
        self.add(code, key, message, columns, false);
    }

    /// As [`Self::push`], but the report lists the first messages of this kind: each is about one file.
    pub fn push_listed(&self, code: &'static str, key: &'static str, message: String) {
        self.add(code, key, message, &[], true);
    }

    /// Records the remedy of an error that ends the reading of a file.
    pub fn push_remedy(&self, remedy: Remedy) {
        let mut remedies = self.remedies.lock().unwrap_or_else(PoisonError::into_inner);
        if !remedies.contains(&remedy) {
            remedies.push(remedy);
        }
    }

    /// The remedies for the files that could not be read, in the order of their errors.
    #[must_use]
    pub fn remedies(&self) -> Vec<Remedy> {
        let remedies = self.remedies.lock().unwrap_or_else(PoisonError::into_inner);
        remedies.clone()
    }

    fn add(
        &self,
        code: &'static str,
        key: &'static str,
        message: String,
        columns: &[String],
        is_listed: bool,
    ) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(notice) = all.iter_mut().find(|notice| notice.code == code) else {
            all.push(Notice {
                code,
                key,
                message,
                columns: columns.iter().map(|name| WarnedColumn::new(name)).collect(),
                others: BTreeSet::new(),
                is_listed,
            });
            return;
        };
        if notice.message != message && notice.others.len() < MOST {
            notice.others.insert(message);
        }
    }

    /// All of them, as warnings.
    pub fn all(&self) -> Vec<Warning> {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let warning = |notice: &Notice| {
            let first = &notice.message;
            let message = match notice.others.len() {
                0 => first.clone(),
                _ if notice.is_listed => list_messages(first, &notice.others),
                1 => format!("{first} (and the same of another file)"),
                others => format!("{first} (and the same of {others} other files)"),
            };
            let warning = match notice.columns.as_slice() {
                [] => Warning::new(notice.code, message),
                columns => Warning::new(notice.code, message).with_columns(columns.to_vec()),
            };
            match notice.key {
                "" => warning,
                key => warning.with_key(key),
            }
        };
        all.iter().map(warning).collect()
    }
}

/// The first messages, and the count of the others.
fn list_messages(first: &str, others: &BTreeSet<String>) -> String {
    let messages = iter::once(first).chain(others.iter().map(String::as_str));
    let listed: Vec<&str> = messages.take(LISTED).collect();
    let listed = listed.join("; ");
    match (others.len() + 1).saturating_sub(LISTED) {
        0 => listed,
        more => format!("{listed} (and {})", counted(more as u64, "other file")),
    }
}

/// Files or members of an archive that are not read, because of the ending of their names.
#[derive(Clone, Debug, Default)]
pub struct LeftOut {
    count: u64,
    /// The first names.
    names: Vec<String>,
}

impl LeftOut {
    /// Maximum number of listed names.
    const NAMED: usize = 5;

    /// Counts one.
    pub fn add(&mut self, name: &str) {
        self.count += 1;
        if self.names.len() < Self::NAMED {
            self.names.push(shorten(name, 100).into_owned());
        }
    }

    /// Pushes a notice of the files that are skipped in `place`, with the `key` and the advice to
    /// include them.
    pub fn push(&self, notices: &Notices, place: &str, key: &'static str, advice: &str) {
        if self.count == 0 {
            return;
        }
        let names = self.names.join("`, `");
        let more = match self.count - self.names.len() as u64 {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let skipped = match self.count {
            1 => format!("1 file of `{place}` is skipped by its extension"),
            many => format!("{many} files of `{place}` are skipped by their extensions"),
        };
        let message = format!("{skipped}: `{names}`{more}; {advice}");
        notices.push("files_left_out", key, message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_one_kind_the_first_is_told_and_the_others_are_counted() {
        let notices = Notices::default();
        for name in ["a", "b", "a", "b", "c"] {
            notices.push("empty_file", "", format!("`{name}` is empty"));
        }
        notices.push("csv_delimiter", "csv.delimiter", "`a` has `;`".into());
        let told = notices.clone().all();
        assert_eq!(
            told[0].message,
            "`a` is empty (and the same of 2 other files)"
        );
        assert_eq!(
            (told.len(), told[1].key.as_deref()),
            (2, Some("csv.delimiter"))
        );
    }

    #[test]
    fn files_of_one_kind_with_messages_of_their_own_are_listed() {
        let notices = Notices::default();
        let push = |name: &str, bytes: u64| {
            let message = format!("`{name}` has no text in its {bytes} bytes");
            notices.push_listed("empty_file", "", message);
        };
        let message = || notices.all().remove(0).message;
        push("b", 2);
        assert_eq!(message(), "`b` has no text in its 2 bytes");
        push("a", 4);
        push("b", 2);
        let both = "`b` has no text in its 2 bytes; `a` has no text in its 4 bytes";
        assert_eq!(message(), both);
        for name in ["c", "d", "e"] {
            push(name, 3);
        }
        assert!(message().ends_with("`e` has no text in its 3 bytes"));
        push("f", 3);
        push("g", 3);
        let end = "`e` has no text in its 3 bytes (and 2 other files)";
        assert!(message().ends_with(end), "{}", message());
    }
}
