//! The order in which files are read, and those that need not be read.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use feedline_readers::{file_format::Kind, notices::Notices};
use feedline_schemas::commit::{FileMark, FileProgress};

use super::open_file::unix_ms;
use crate::{
    error::Error,
    file_copies::ReadContents,
    file_list::{Found, UNSETTLED_FILE},
    file_marks::Marks,
};

/// Check for files that are too young to be read.
pub(super) struct Young<'f> {
    pub(super) now: Duration,
    pub(super) settle: Duration,
    pub(super) notices: &'f Notices,
}

impl Young<'_> {
    fn is(&self, file: &Found) -> bool {
        let age = file.modified.map(|at| self.now.saturating_sub(at));
        let is_young = !self.settle.is_zero() && age.is_some_and(|age| age < self.settle);
        if let (true, Some(age)) = (is_young, age) {
            let ahead = file.modified.map(|at| at.saturating_sub(self.now));
            let ahead = ahead.map(|ahead| ahead.as_secs());
            let (when, advice) = match ahead.filter(|ahead| *ahead > 0) {
                Some(ahead) => (
                    format!("was written {ahead} s ahead of the clock of this machine"),
                    "; correct the clock of one of them, or the time of the file",
                ),
                None => (format!("was written {} s ago", age.as_secs()), ""),
            };
            let message = format!(
                "`{}` {when} and is left for a later run (`files.settle_s` = {}){advice}",
                file.url,
                self.settle.as_secs()
            );
            self.notices.push(UNSETTLED_FILE, "files.settle_s", message);
        }
        is_young
    }
}

/// The files that have not been read, one after another.
pub(super) struct Unread<'f> {
    found: &'f [Found],
    /// Number of `found` files that were passed. Another page need not look at them: with many files
    /// that would take most of the time.
    pub(super) passed: usize,
    pub(super) young: Young<'f>,
    /// Indices in `done`, by URL.
    places: HashMap<String, usize>,
    pub(super) done: Vec<FileMark>,
    /// Marks that `done` does not have, or has newer ones of.
    older: &'f Marks,
    /// Files that this process has opened.
    seen: &'f mut HashSet<String>,
}

impl<'f> Unread<'f> {
    pub(super) fn new(
        (found, passed): (&'f [Found], usize),
        (done, older): (Vec<FileMark>, &'f Marks),
        young: Young<'f>,
        seen: &'f mut HashSet<String>,
    ) -> Self {
        let places = done.iter().enumerate();
        Self {
            found,
            passed,
            older,
            young,
            places: places.map(|(i, mark)| (mark.url.clone(), i)).collect(),
            done,
            seen,
        }
    }

    /// Returns the file to resume with: the one in progress, or the first unread one.
    pub(super) fn first(
        &mut self,
        begun: Option<&FileProgress>,
    ) -> Result<Option<&'f Found>, Error> {
        let Some(begun) = begun else {
            return Ok(self.next());
        };
        let file = self.found.iter().find(|file| file.url == begun.url);
        file.map(Some).ok_or_else(|| Error::File {
            url: begun.url.clone(),
            reason: format!(
                "{} of its records have landed, and now it is missing; restore it",
                begun.records
            ),
        })
    }

    /// The next file that has not been read, or may have changed since.
    pub(super) fn next(&mut self) -> Option<&'f Found> {
        loop {
            let file = self.found.get(self.passed)?;
            self.passed += 1;
            let is_seen = self.seen.contains(&file.url);
            let mark = self.mark(&file.url);
            let is_known = mark.is_some_and(|mark| is_seen || is_same(&mark, file));
            if !is_known && !self.young.is(file) {
                return Some(file);
            }
        }
    }

    /// Returns the recorded mark of a file that was read.
    pub(super) fn mark(&self, url: &str) -> Option<FileMark> {
        match self.places.get(url) {
            Some(place) => Some(self.done[*place].clone()),
            None => self.older.of(url),
        }
    }

    /// Records a checked file that has not changed.
    pub(super) fn refresh(&mut self, mark: FileMark) {
        self.seen.insert(mark.url.clone());
        if let Some(place) = self.places.get(&mark.url) {
            self.done[*place] = mark;
        } else if self.older.of(&mark.url).is_some_and(|older| older != mark) {
            self.push(mark);
        }
    }

    /// Passes over a file. Its mark stays that of what has landed, so the next run compares it again.
    pub(super) fn keep_mark(&mut self, url: &str) {
        self.seen.insert(url.to_owned());
    }

    /// Begins to read a file, for the first time or again, and drops older notes about it.
    pub(super) fn begin(&mut self, file: &Found, mark: &FileMark) {
        let url = &file.url;
        let is_new = !self.seen.contains(url) && self.mark(url).is_none();
        // Copies among images are a matter of the dataset.
        if is_new && file.layout.kind != Kind::Image {
            let exists = |url: &str| self.found.iter().any(|file| file.url == url);
            let read = ReadContents {
                done: &self.done,
                older: self.older,
            };
            read.note(mark, exists, self.young.notices);
        }
        if let Some(place) = self.places.remove(url) {
            self.done.remove(place);
            self.places
                .values_mut()
                .filter(|other| **other > place)
                .for_each(|other| *other -= 1);
        }
        self.seen.insert(url.clone());
    }

    /// A file has been read.
    pub(super) fn push(&mut self, mark: FileMark) {
        self.places.insert(mark.url.clone(), self.done.len());
        self.done.push(mark);
    }
}

/// Returns true if the store reports no change of a file since it was read. The file itself is not
/// read. Where the store reports no version, as a web server without `ETag` and `Last-Modified` does,
/// equal sizes show nothing: the file is read, and its hash decides.
fn is_same(mark: &FileMark, file: &Found) -> bool {
    let modified = file.modified.map(unix_ms);
    mark.bytes == file.bytes
        && match (&mark.etag, &file.etag, mark.modified_unix_ms, modified) {
            (Some(before), Some(now), ..) => before == now,
            (.., Some(before), Some(now)) => before == now,
            _ => false,
        }
}
