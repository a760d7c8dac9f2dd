//! Files that were read and are no longer at `url`: an amendment drops their rows, and no run reads
//! them again.

use std::collections::BTreeSet;

use feedline_schemas::{
    amendment::AmendReport,
    commit::{Position, SourceState},
    config::SourceConfig,
    count::{counted, first_of},
};
use feedline_storage::Store;

use super::pages_to_read;
use crate::{
    context::Context, error::Error, file_list::Found, file_marks::expand, files::list_existing,
    source_table::unit_of, source_type::ReadUnit,
};

/// Most files that a message names.
const NAMED: usize = 5;

/// URLs of the files of a position.
pub(super) fn urls(position: &Position) -> BTreeSet<String> {
    let (done, current) = match position {
        Position::File { done, current } => (done, current.as_ref()),
        Position::Done { files, .. } => (files, None),
        Position::Start | Position::Page { .. } => return BTreeSet::new(),
    };
    let current = current.map(|file| file.url.clone());
    done.iter()
        .map(|mark| mark.url.clone())
        .chain(current)
        .collect()
}

/// Moves files that are not among the `existing` ones from those that `report` lists to its notes.
/// Without `is_allowed` they are refused.
///
/// # Errors
/// [`Error::Config`] for such a file that is not allowed.
pub(super) fn check_ranges(
    existing: &BTreeSet<String>,
    is_allowed: bool,
    report: &mut AmendReport,
) -> Result<(), Error> {
    let all = std::mem::take(&mut report.ranges);
    let count = all.len() as u64;
    let (found, missing): (Vec<String>, Vec<String>) =
        all.into_iter().partition(|url| existing.contains(url));
    report.ranges = found;
    if missing.is_empty() {
        return Ok(());
    }
    let missing = format!(
        "{} of {} to be read again are not at `url`: {}",
        missing.len(),
        counted(count, "file"),
        shown(&missing)
    );
    if !is_allowed {
        let reason = format!(
            "{missing}; their rows would no longer count, and remain only in the folder that saves them; restore the files or `url`, or add `--missing-too` to drop these rows"
        );
        return Err(Error::config("url", reason));
    }
    let note = format!("{missing}; their rows remain only in the folder that saves them");
    report.notes.push(note);
    if report.ranges.is_empty() {
        let note = "none of these files is left to read, so nothing is read now";
        report.notes.push(note.to_owned());
    }
    Ok(())
}

/// The files or pages that the next run reads after a reset of a source with `state`.
pub(super) async fn describe_reset(
    config: &SourceConfig,
    context: &Context,
    landing: &Store,
    state: &SourceState,
) -> String {
    let pages = pages_to_read(state.totals.pages);
    match missing_after_reset(config, context, landing, state).await {
        Ok(Some(note)) => note,
        // Files of a web server are not compared.
        Ok(None) if config.is_web() && unit_of(config) == ReadUnit::File => {
            format!(
                "at most {pages} again: those that can still be read at `url`, which a reset does not request"
            )
        }
        Ok(None) => format!("{pages} again"),
        Err(error) => {
            format!("{pages} again if they still exist, which cannot be checked now: {error}")
        }
    }
}

/// A note about files of `state` that are not at `url`, if there are any. Those of a web server are not
/// compared: a reset sends no request.
async fn missing_after_reset(
    config: &SourceConfig,
    context: &Context,
    landing: &Store,
    state: &SourceState,
) -> Result<Option<String>, Error> {
    if config.is_web() {
        return Ok(None);
    }
    let Some(found) = list_files(config, context).await? else {
        return Ok(None);
    };
    let existing = urls_of(&found);
    let read = urls(&expand(landing, state).await?);
    let missing: Vec<String> = read.difference(&existing).cloned().collect();
    Ok((!missing.is_empty()).then(|| {
        format!(
            "the next run reads {}; {} of {} that were read are not at `url`: {}; their rows remain only in the folder that saves them",
            counted(existing.len() as u64, "file"),
            missing.len(),
            counted(read.len() as u64, "file"),
            shown(&missing)
        )
    }))
}

/// The files that a source has now. `None` for a source of pages.
///
/// # Errors
/// Those of listing the files.
pub(super) async fn list_files(
    config: &SourceConfig,
    context: &Context,
) -> Result<Option<Vec<Found>>, Error> {
    if unit_of(config) != ReadUnit::File {
        return Ok(None);
    }
    let found = Box::pin(list_existing(config, context)).await?;
    Ok(Some(found))
}

/// URLs of `files`.
pub(super) fn urls_of(files: &[Found]) -> BTreeSet<String> {
    files.iter().map(|file| file.url.clone()).collect()
}

/// The first of `urls`, with the number of the others.
fn shown(urls: &[String]) -> String {
    let named: Vec<String> = urls.iter().map(|url| format!("`{url}`")).collect();
    first_of(&named, NAMED)
}
