//! Validators of pages for conditional requests: `ETag` and `Last-Modified` (RFC 9110, section
//! 8.8).
//!
//! A batch of a crawl or a `rest` source with `refresh = "if_changed"` lands the validators of its
//! pages as a Parquet file of its own, named by the same log entry as its rows. Later validators
//! replace earlier ones:
//!
//! | column | type | |
//! |---|---|---|
//! | `page` | text | xxh3-128 of the page's URL with its query, as hexadecimal digits: a URL may hold a secret; of a `rest` source without its own origin |
//! | `etag` | text | `ETag`, or null |
//! | `modified` | text | `Last-Modified`, or null |
//!
//! `ingest delete` lands rows in which both are null: the next request of such a page has no condition,
//! so that deleted records of an unchanged page come back.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringArray};
use feedline_schemas::{commit::DataFile, ids::Hash128};
use feedline_storage::Store;
use reqwest::header::{
    ETAG, HeaderMap, HeaderName, HeaderValue, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED,
};

use crate::{error::Error, landed_file};

const COLUMNS: [&str; 3] = ["page", "etag", "modified"];
/// Maximum length of a stored validator.
const LONGEST: usize = 1_024;

/// Validator of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Validator {
    /// `ETag`, unchanged.
    etag: Option<Box<str>>,
    /// `Last-Modified`, unchanged.
    modified: Option<Box<str>>,
}

impl Validator {
    /// Reads the validator from the head of a response.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        let text = |name: HeaderName| {
            let text = headers.get(name)?.to_str().ok()?;
            (!text.is_empty() && text.len() <= LONGEST).then(|| text.into())
        };
        let validator = Self {
            etag: text(ETAG),
            modified: text(LAST_MODIFIED),
        };
        validator.is_some().then_some(validator)
    }

    /// Returns true if it has a header for a conditional request.
    const fn is_some(&self) -> bool {
        self.etag.is_some() || self.modified.is_some()
    }

    /// Headers of a conditional request for the page.
    pub(crate) fn conditions(&self) -> HeaderMap {
        let pairs = [
            (IF_NONE_MATCH, &self.etag),
            (IF_MODIFIED_SINCE, &self.modified),
        ];
        let headers = pairs.into_iter().filter_map(|(name, text)| {
            let value = HeaderValue::try_from(text.as_deref()?).ok()?;
            Some((name, value))
        });
        headers.collect()
    }
}

/// Validators by page.
#[derive(Debug, Default)]
pub(crate) struct Validators(HashMap<u128, Validator>);

impl Validators {
    /// Restores the validators that `files` have, from the oldest to the newest.
    ///
    /// # Errors
    /// [`Error::Landed`] for a damaged or absent file, [`Error::Storage`].
    pub(crate) async fn restore(landing: &Store, files: &[DataFile]) -> Result<Self, Error> {
        let mut all = HashMap::new();
        for file in files {
            let read = read(landing, file).await?;
            all.extend(read.into_iter().map(|(page, v)| (page.get(), v)));
        }
        Ok(Self(all))
    }

    /// Returns the validator of the page at `url`.
    pub(crate) fn of(&self, url: &str) -> Option<&Validator> {
        let known = self.0.get(&page(url).get());
        known.filter(|known| known.is_some())
    }
}

/// Name of the page at `url`.
pub(crate) fn page(url: &str) -> Hash128 {
    Hash128::of(url.as_bytes())
}

/// The validators of `files`, of each page the latest, as columns of one file sorted by page.
///
/// # Errors
/// [`Error::Landed`] for a damaged or absent file, [`Error::Storage`].
pub(crate) async fn merged(
    landing: &Store,
    files: &[DataFile],
) -> Result<Vec<(&'static str, ArrayRef)>, Error> {
    let all = read_latest(landing, files).await?;
    let all = all.into_iter().map(|(page, v)| (Hash128::new(page), v));
    Ok(columns(&all.collect::<Vec<_>>()))
}

/// The pages of `files` that have a validator, each without it: once these rows are the latest, requests
/// of the pages have no condition.
///
/// # Errors
/// [`Error::Landed`] for a damaged or absent file, [`Error::Storage`].
pub(crate) async fn without_conditions(
    landing: &Store,
    files: &[DataFile],
) -> Result<Vec<(Hash128, Validator)>, Error> {
    let all = read_latest(landing, files).await?;
    let known = all.into_iter().filter(|(_, validator)| validator.is_some());
    let none = |page: u128| {
        let validator = Validator {
            etag: None,
            modified: None,
        };
        (Hash128::new(page), validator)
    };
    Ok(known.map(|(page, _)| none(page)).collect())
}

/// The validators of `files`, of each page the latest.
async fn read_latest(
    landing: &Store,
    files: &[DataFile],
) -> Result<BTreeMap<u128, Validator>, Error> {
    let mut all = BTreeMap::new();
    for file in files {
        let read = read(landing, file).await?;
        all.extend(read.into_iter().map(|(page, v)| (page.get(), v)));
    }
    Ok(all)
}

/// The columns of a file.
pub(crate) fn columns(all: &[(Hash128, Validator)]) -> Vec<(&'static str, ArrayRef)> {
    let [page, etag, modified] = COLUMNS;
    let pages = StringArray::from_iter_values(all.iter().map(|(page, _)| page.to_string()));
    let etags: StringArray = all.iter().map(|(_, v)| v.etag.as_deref()).collect();
    let times: StringArray = all.iter().map(|(_, v)| v.modified.as_deref()).collect();
    vec![
        (page, Arc::new(pages) as ArrayRef),
        (etag, Arc::new(etags)),
        (modified, Arc::new(times)),
    ]
}

async fn read(landing: &Store, file: &DataFile) -> Result<Vec<(Hash128, Validator)>, Error> {
    let batches = landed_file::read(landing, file, &COLUMNS, None).await?;
    let mut all = Vec::new();
    for batch in &batches {
        all.extend(rows(batch).ok_or_else(|| Error::Landed {
            url: landing.url_of(&file.path),
            reason: "its columns are not those of validators".into(),
        })?);
    }
    Ok(all)
}

fn rows(batch: &RecordBatch) -> Option<Vec<(Hash128, Validator)>> {
    let columns = COLUMNS.map(|name| batch.column_by_name(name)?.as_string_opt::<i32>());
    let [Some(page), Some(etag), Some(modified)] = columns else {
        return None;
    };
    let text = |column: &StringArray, i| column.is_valid(i).then(|| column.value(i).into());
    let row = |i| {
        let validator = Validator {
            etag: text(etag, i),
            modified: text(modified, i),
        };
        let page = u128::from_str_radix(page.value(i), 16).ok()?;
        Some((Hash128::new(page), validator))
    };
    (0..batch.num_rows()).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(HeaderName, &str)]) -> HeaderMap {
        let lines = lines.iter().cloned();
        lines
            .map(|(name, text)| (name, HeaderValue::try_from(text).unwrap()))
            .collect()
    }

    #[test]
    fn validators_come_back_as_conditions() {
        let date = "Sun, 06 Nov 1994 08:49:37 GMT";
        let both = Validator::of(&headers(&[(ETAG, "W/\"a\""), (LAST_MODIFIED, date)])).unwrap();
        let asked = headers(&[(IF_NONE_MATCH, "W/\"a\""), (IF_MODIFIED_SINCE, date)]);
        assert_eq!(both.conditions(), asked);
        let one = Validator::of(&headers(&[(LAST_MODIFIED, date)])).unwrap();
        assert_eq!(one.conditions(), headers(&[(IF_MODIFIED_SINCE, date)]));
        assert_eq!(Validator::of(&headers(&[(ETAG, "")])), None);
        assert_eq!(Validator::of(&headers(&[(ETAG, &"x".repeat(1_025))])), None);
    }

    #[test]
    fn a_file_gives_back_what_was_written() {
        let validator = |name, text: &str| Validator::of(&headers(&[(name, text)])).unwrap();
        let all = [
            (page("http://h/?a=1"), validator(ETAG, "\"x\"")),
            (page("http://h/?a=2"), validator(LAST_MODIFIED, "now")),
        ];
        let batch = RecordBatch::try_from_iter(columns(&all)).unwrap();
        assert_eq!(rows(&batch), Some(all.to_vec()));
        assert_eq!(rows(&batch.project(&[0, 1]).unwrap()), None);
    }
}
