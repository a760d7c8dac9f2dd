//! Supersedes files that have changed since they were read: their landed rows no longer count.

use std::collections::BTreeMap;

use feedline_schemas::{
    commit::{CommitEntry, Replaced},
    config::SourceConfig,
    count::counted,
    ids::Name,
    report::Warning,
};

use super::source_run::Run;
use crate::{
    dedup::{Window, repeat_loader::key_columns},
    error::Error,
    supersede::{Without, spans, without},
};

/// Data that a batch supersedes.
#[derive(Default)]
pub(super) struct Superseded {
    pub(super) replaced: Vec<Replaced>,
    /// Rows of child tables that no longer count.
    pub(super) child_rows: BTreeMap<Name, u64>,
    /// Rejected records that no longer count, by reason.
    pub(super) rejected_by_reason: BTreeMap<String, u64>,
    pub(super) warnings: Vec<Warning>,
}

impl Run<'_> {
    /// Writes the replacements of all landed files with rows from `urls`. They have no effect until
    /// an entry names them.
    ///
    /// # Errors
    /// [`Error::File`] if an earlier version has not recorded the needed facts, [`Error::Landed`],
    /// [`Error::Storage`].
    pub(super) async fn supersede(&mut self, urls: &[String]) -> Result<Superseded, Error> {
        let mut superseded = Superseded::default();
        if urls.is_empty() {
            return Ok(superseded);
        }
        self.log.load_all().await?;
        for (place, rows) in spans(self.log.entries(), urls)? {
            let entry = &self.log.entries()[place];
            let Some(Without {
                replaced,
                child_rows,
                rejected_by_reason,
                encoded,
            }) = without(self.log.landing(), entry, &rows, self.log.next_sequence()).await?
            else {
                continue;
            };
            for encoded in encoded {
                self.put(Some(encoded)).await?;
            }
            superseded.replaced.push(replaced);
            for (name, rows) in child_rows {
                *superseded.child_rows.entry(name).or_default() += rows;
            }
            for (reason, count) in rejected_by_reason {
                *superseded.rejected_by_reason.entry(reason).or_default() += count;
            }
        }
        let window = self.config.dedup_window();
        if window > 0 && !superseded.replaced.is_empty() {
            // Superseded rows must not make rows of the new content duplicates.
            let mut entries = self.log.entries().to_vec();
            for replaced in &superseded.replaced {
                let place = usize::try_from(replaced.sequence.get()).unwrap_or(usize::MAX);
                if let Some(entry) = entries.get_mut(place) {
                    replaced.put_into(entry);
                }
            }
            self.window = Window::rebuild(
                self.log.landing(),
                &entries,
                window,
                key_columns(self.config),
            )
            .await?;
        }
        let rows: u64 = superseded
            .replaced
            .iter()
            .map(|replaced| replaced.rows)
            .sum();
        let (which, have) = match urls {
            [url] => (format!("`{url}`"), "has"),
            [first, others @ ..] => (
                format!(
                    "`{first}` and {}",
                    counted(others.len() as u64, "other file")
                ),
                "have",
            ),
            [] => return Ok(superseded),
        };
        if rows > 0 {
            let are = if rows == 1 { "is" } else { "are" };
            let rows = counted(rows, "landed row");
            let message = format!(
                "{which} {have} changed since being read: {rows} {are} superseded by the new content, and kept in `superseded/` of the source's landing folder{}",
                warn_of_older_rows(self.config, self.log.entries(), urls)
            );
            let warning = Warning::new("file_replaced", message).with_key("files.changed");
            superseded.warnings.push(warning);
        }
        Ok(superseded)
    }
}

/// End of a message about replaced files, if their rows may take the place of rows with the same key
/// that come from files read after them.
fn warn_of_older_rows(
    config: &SourceConfig,
    entries: &[CommitEntry],
    urls: &[String],
) -> &'static str {
    let has_order = config.key.is_empty() || config.version.is_some();
    if has_order || !has_later_file(entries, urls) {
        return "";
    }
    "; of the rows with one key a dataset reads the one that landed last, so the rows of this content take the place of those of files that were read later: set `version` to a column with their order if that matters"
}

/// Returns true if rows of another file have landed after some of the files at `urls`.
fn has_later_file(entries: &[CommitEntry], urls: &[String]) -> bool {
    let parts = entries.iter().flat_map(|entry| &entry.parts);
    let parts = parts.filter(|part| part.records > 0);
    let mut later = parts.skip_while(|part| !urls.contains(&part.url));
    later.any(|part| !urls.contains(&part.url))
}
