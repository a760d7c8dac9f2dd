//! Text files that `text.separator` does not split.

use feedline_readers::{file_format::Kind, notices::Notices, value::shorten};
use feedline_schemas::{config::TextConfig, count::counted};

use crate::file_list::Found;

/// Code of the warning about a separator that no file has.
const SEPARATOR_NOT_FOUND: &str = "separator_not_found";

/// Most characters of a separator that a message shows.
const SHOWN: usize = 40;

/// Text files that were read to their ends; members of archives are not counted.
#[derive(Debug, Default)]
pub(super) struct SplitTexts {
    read: u64,
    /// True if one of them has several documents, or if others have landed before.
    is_any: bool,
}

impl SplitTexts {
    /// Notes that files have landed before: the separator may split some of them.
    pub(super) const fn note_landed(&mut self) {
        self.is_any = true;
    }

    /// Adds a `file` of so many documents.
    pub(super) fn add(&mut self, file: &Found, documents: u64) {
        if file.layout.kind == Kind::Text {
            self.read += 1;
            self.is_any |= documents > 1;
        }
    }

    /// Warns at the end of all files if their separator splits none.
    pub(super) fn warn(&self, text: &TextConfig, notices: &Notices) {
        let is_unsplit = self.read > 0 && !self.is_any;
        let Some(separator) = text.separator.as_ref().filter(|_| is_unsplit) else {
            return;
        };
        let message = format!(
            "`text.separator` = `{:?}` splits no file ({} read), so each is one document; correct it, or remove it if that is meant",
            shorten(separator, SHOWN),
            counted(self.read, "file")
        );
        notices.push(SEPARATOR_NOT_FOUND, "text.separator", message);
    }
}
