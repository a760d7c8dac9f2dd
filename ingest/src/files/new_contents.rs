//! Contents of files that are to be read again.

use std::collections::BTreeMap;

use feedline_http::UncertainEnds;
use feedline_readers::notices::Notices;
use feedline_schemas::{config::SourceConfig, ids::Hash128};

use super::{
    file_requests,
    known_columns::KnownColumns,
    new_file_list,
    open_file::{OpenFile, Opened},
    page_builder::Gathered,
};
use crate::{
    blocking::blocking, context::Context, error::Error, file_change::Policy, file_list::Found,
    log_entries::Resumed,
};

/// Reason for refusing to read a file again that has lost its rows.
const EMPTIED: &str = "rows of it have landed, and now it has none and no header, so it is not read again, and its landed rows stay; restore it, or, to drop its rows, remove it and add `--missing-too`";

/// The files of a source that exist now; none where a web server has no file at `url` (status 404 or 410).
///
/// # Errors
/// Those of listing the files, and of the download of a file whose URL has a query.
pub(crate) async fn list_existing(
    config: &SourceConfig,
    context: &Context,
) -> Result<Vec<Found>, Error> {
    let requests = file_requests(config, context)?;
    let list = new_file_list(config, requests.as_ref(), context)?;
    Box::pin(list.list_existing()).await
}

/// Checks that the files at `urls`, which the listing of a web server lacks, are missing. Other stores list all files.
///
/// # Errors
/// [`Error::File`] for a file that is not known to be missing.
pub(crate) async fn check_missing_files(
    config: &SourceConfig,
    context: &Context,
    urls: &[String],
) -> Result<(), Error> {
    if urls.is_empty() || !config.is_web() {
        return Ok(());
    }
    let requests = file_requests(config, context)?;
    let list = new_file_list(config, requests.as_ref(), context)?;
    Box::pin(list.check_missing(urls)).await
}

/// Checks that the `existing` files at `urls` can be read again: that each has a landed column of the
/// source, as a changed file must, and can be read to its end. Those in `with_rows` have landed rows and
/// may not be empty, nor, if they have another hash now than then, without a record.
///
/// # Errors
/// [`Error::File`] for a file that a run would refuse, and those of reading the files.
pub(crate) async fn check_new_contents(
    config: &SourceConfig,
    context: &Context,
    resumed: &Resumed,
    (existing, urls): (&[Found], &[String]),
    with_rows: &BTreeMap<&str, Option<Hash128>>,
) -> Result<(), Error> {
    let mut columns = KnownColumns::landed(resumed);
    let policy = Policy::of(config).comparing(columns.compares_keys());
    for file in existing.iter().filter(|file| urls.contains(&file.url)) {
        let ends = UncertainEnds::default();
        let opened = OpenFile::open(file, None, policy, context.clock.unix(), &ends).await?;
        let Opened::Open(open) = opened else { continue };
        let landed = with_rows.get(file.url.as_str());
        if open.is_over() && open.names().are_missing() && landed.is_some() {
            return Err(Error::File {
                url: file.url.clone(),
                reason: EMPTIED.to_owned(),
            });
        }
        let supersedes = landed.is_some_and(|hash| *hash != Some(open.mark().hash));
        columns.check_names(&open, supersedes, &config.contract, &Notices::default())?;
        read_to_end(*open).await?;
    }
    Ok(())
}

/// Reads the records of a file, and drops them: one that is damaged in the middle fails here.
///
/// # Errors
/// [`Error::File`] for a file that cannot be read to its end.
async fn read_to_end(mut open: OpenFile) -> Result<(), Error> {
    while !open.is_over() {
        (open, _) = blocking(move || open.page(Gathered::new(u64::MAX))).await?;
    }
    Ok(())
}
