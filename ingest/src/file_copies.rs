//! Files whose content equals that of another file that was read: renamed ones, and copies.

use feedline_readers::notices::Notices;
use feedline_schemas::commit::FileMark;

use crate::file_marks::Marks;

/// Code of the warning about them.
const FILE_COPIED: &str = "file_copied";

/// Files that were read, by their content.
pub(crate) struct ReadContents<'f> {
    /// Marks with URLs.
    pub(crate) done: &'f [FileMark],
    /// Marks before them.
    pub(crate) older: &'f Marks,
}

impl ReadContents<'_> {
    /// Notes the file of `mark`, which is read for the first time, if another one had its content.
    /// `exists` returns true for the URL of a file that the source still has.
    pub(crate) fn note(&self, mark: &FileMark, exists: impl Fn(&str) -> bool, notices: &Notices) {
        if mark.bytes == 0 {
            return;
        }
        let is_equal = |other: &&FileMark| other.hash == mark.hash && other.bytes == mark.bytes;
        let what = match self.done.iter().find(is_equal) {
            Some(other) if exists(&other.url) => {
                format!("is equal to `{}`, which was read before", other.url)
            }
            Some(other) => format!(
                "is equal to `{}`, which was read before and is gone, so it seems to be renamed",
                other.url
            ),
            None if self.older.has_content(mark) => {
                "is equal to a file of another name that was read before".to_owned()
            }
            None => return,
        };
        let message = format!(
            "`{}` {what}; its rows land once more, and a dataset keeps one of equal rows unless `dataset.dedup` is `none`; where rows must not land twice keep the names of files, or set `batch.dedup_window`, which drops equal rows; `feedline ingest reset PIPELINE.toml SOURCE` saves landed data under another name and re-reads the files that exist",
            mark.url
        );
        notices.push(FILE_COPIED, "batch.dedup_window", message);
    }
}

#[cfg(test)]
mod tests {
    use feedline_schemas::ids::Hash128;

    use super::*;

    fn mark(url: &str, content: &str) -> FileMark {
        FileMark {
            url: url.to_owned(),
            bytes: content.len() as u64,
            hash: Hash128::of(content.as_bytes()),
            modified_unix_ms: None,
            etag: None,
        }
    }

    #[test]
    fn a_file_of_equal_content_is_noted_with_the_name_of_the_other() {
        let done = [mark("in/a.csv", "a"), mark("in/b.csv", "b")];
        let mut older = Marks::default();
        older.add(&[mark("in/c.csv", "c"), mark("in/d.csv", "old")]);
        older.add(&[mark("in/d.csv", "new")]);
        let read = ReadContents {
            done: &done,
            older: &older,
        };
        let check = |content: &str, expected: Option<&str>| {
            let notices = Notices::default();
            read.note(
                &mark("in/z.csv", content),
                |url| url == "in/b.csv",
                &notices,
            );
            let warning = notices.all().pop();
            let message = warning.as_ref().map(|warning| warning.message.as_str());
            match expected {
                None => assert_eq!(message, None),
                Some(begin) => {
                    let message = message.unwrap();
                    assert!(message.starts_with(begin), "{message}");
                }
            }
        };
        let gone = "`in/z.csv` is equal to `in/a.csv`, which was read before and is gone, so";
        check("a", Some(gone));
        let copied = "`in/z.csv` is equal to `in/b.csv`, which was read before; its rows";
        check("b", Some(copied));
        let other = "`in/z.csv` is equal to a file of another name that was read before;";
        check("c", Some(other));
        check("new", Some(other));
        // The content of a file that has changed since, another one, and none.
        check("old", None);
        check("z", None);
        check("", None);
    }
}
