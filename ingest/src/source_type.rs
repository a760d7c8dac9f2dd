//! Types of sources: everything that differs between them, besides reading.
//!
//! Code outside of the folder of a type knows only this trait and the [`ReadUnit`] of a type. The
//! table of all types is in [`crate::source_table`].

use std::{fmt::Debug, time::Duration};

use async_trait::async_trait;
use feedline_schemas::{
    commit::{PageRun, Position},
    config::SourceConfig,
    report::Warning,
};

use crate::{context::Context, error::Error, source::Source};

/// Unit that a source is read by, and that its position counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadUnit {
    /// A page of a list: page runs, cursors, slices and lists of values apply.
    Page,
    /// A URL of a frontier. Records are not all that a run finds: the frontier stays.
    Url,
    /// A file, which is read once. It is decoded without waiting for a server, and its responses
    /// are not archived.
    File,
}

/// Earlier readings of a source that has been read to its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EarlierReadings<'a> {
    /// Number of files that the position lists.
    pub files: usize,
    /// The last page run.
    pub run: &'a PageRun,
    /// Highest cursors of the log.
    pub highs: &'a [String],
    /// Time of the next run, since 1970-01-01 UTC.
    pub now: Duration,
}

/// A type of sources: `type` in `[[source]]`.
#[async_trait]
pub(crate) trait SourceType: Debug + Send + Sync {
    /// Opens a source. Resolves its settings and credentials; sends no request.
    ///
    /// # Errors
    /// [`Error::Config`], and the errors of other sources whose log it reads.
    async fn open(
        &self,
        config: &SourceConfig,
        context: &Context,
    ) -> Result<Box<dyn Source>, Error>;

    /// Refuses settings that contradict each other or have no effect, before any source is opened.
    ///
    /// # Errors
    /// [`Error::Config`].
    fn check(&self, config: &SourceConfig) -> Result<(), Error>;

    /// Unit that the sources are read by.
    fn unit(&self) -> ReadUnit;

    /// Keys of `[[source]]` whose changes the log records for this type; keys that no type lists
    /// are recorded for all.
    fn own_keys(&self) -> &'static [&'static str];

    /// Returns true if the key of a table has no effect with the other settings, so that the log
    /// does not record its default.
    fn is_idle(&self, config: &SourceConfig, key: &str) -> bool;

    /// Returns true if `params`, `headers`, `auth`, `limits` or `tls` have an effect with the other
    /// settings.
    fn uses_key(&self, config: &SourceConfig, key: &str) -> bool;

    /// Encodes the settings that decide which data is fetched and how it is parsed. The bytes of
    /// existing settings must never change: logs contain their hash.
    ///
    /// # Errors
    /// None for settings that were read from a configuration.
    fn encode_settings(&self, config: &SourceConfig) -> serde_json::Result<Vec<u8>>;

    /// Returns true if a source may have more to read after it was read to its end.
    fn looks_for_more(&self, config: &SourceConfig) -> bool;

    /// Returns the keys that have a run look for more after the source was read to its end; none for
    /// a type that always does.
    fn recheck_keys(&self, _: &SourceConfig) -> &'static [&'static str] {
        &[]
    }

    /// Describes the next run of a source that was read to its end and looks for more, without
    /// `slices` and `for_each`.
    fn describe_next_run(&self, config: &SourceConfig, earlier: &EarlierReadings<'_>) -> String;

    /// Returns true if text in rejected records comes from cells, whose column decides their type.
    /// `warnings` and `position` are those of the log.
    ///
    /// # Errors
    /// [`Error::Config`] for a source whose rejected records are not stored unchanged.
    fn rejects_have_cells(
        &self,
        config: &SourceConfig,
        warnings: &[Warning],
        position: &Position,
    ) -> Result<bool, Error>;

    /// Returns true if some records may come from CSV, which `csv.encoding` decodes. `warnings` and
    /// `position` are those of the log.
    fn decodes_csv(&self, _: &SourceConfig, _: &[Warning], _: &Position) -> bool {
        false
    }
}

/// Adds a part to encoded settings, after those of the first version: a JSON document never
/// continues after its end.
pub(crate) fn append_settings(all: &mut Vec<u8>, name: &str, part: &[u8]) {
    all.push(0);
    all.extend_from_slice(name.as_bytes());
    all.push(b' ');
    all.extend_from_slice(part);
}
