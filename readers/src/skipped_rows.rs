//! Files of a source whose first lines `csv.skip_rows` passes over.

/// First files of a source by the kind of lines that `csv.skip_rows` passes over in them.
///
/// A line such as `sep=;` is skipped without the key. Where the key counts it, it is wrong for a file without such a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SkippedRows {
    /// Number of lines that are passed over.
    pub count: u64,
    /// File whose first line names its delimiter.
    pub with_delimiter_line: Option<String>,
    /// File without such a line, whose last line among them has as many fields as the line behind it, and text in each: it
    /// may be the header, or a row.
    pub with_row: Option<String>,
}

impl SkippedRows {
    /// Returns the reason why no number of lines is right for both files, and the remedy; `None` unless there are both.
    #[must_use]
    pub fn refusal(&self) -> Option<String> {
        let (with_line, with_row) = (self.with_delimiter_line.as_ref()?, self.with_row.as_ref()?);
        let remedy = match self.count {
            1 => "remove the key: such a line is skipped without it",
            _ => "read files with and without such a line as sources of their own",
        };
        Some(format!(
            "{} counts the first line of `{with_line}`, which names the delimiter, and skips the header or a row of `{with_row}`, which has no such line; {remedy}; if rows have landed, run `feedline ingest reset PIPELINE.toml SOURCE`, which re-reads everything",
            self.count
        ))
    }
}
