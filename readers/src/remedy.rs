//! Settings that the errors about unreadable files name.

/// A setting with which an unreadable file may be readable. Decisions follow from it, never from the text of an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// `csv.encoding`, with the likely encoding where the bytes show one.
    Encoding(Option<String>),
    /// `csv.delimiter`.
    Delimiter,
    /// `csv.header`.
    Header,
    /// `records`, with the paths of the lists in the document.
    Records(Vec<String>),
    /// `format`, with the names of the first members of an archive that has no table.
    Members(Vec<String>),
}
