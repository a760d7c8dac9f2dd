//! Signs of further pages in the response to a source without pagination.

use feedline_readers::value::Value;
use feedline_schemas::config::SourceConfig;
use reqwest::header::HeaderMap;
use url::Url;

use crate::pagination::suggest::{FurtherPages, OnePage, further_pages};

/// The one page of a source without pagination.
#[derive(Clone, Debug)]
pub(super) struct OnlyPage {
    /// Path of its records.
    records: String,
    is_incremental: bool,
}

impl OnlyPage {
    /// `None` for a source with pagination, or one whose settings allow one page only.
    pub(super) fn of(config: &SourceConfig) -> Option<Self> {
        let is_only = config.pagination.way.is_absent()
            && config.graphql.is_none()
            && !config.response.single_record;
        is_only.then(|| Self {
            records: config.records.clone(),
            is_incremental: config.incremental.is_some(),
        })
    }

    /// Looks for a sign of further pages in a response to a request for `url`: in its headers, and in
    /// its document without the lists. `count` is the number of its records.
    pub(super) fn further(
        &self,
        headers: &HeaderMap,
        (beside, count): (Option<&Value>, usize),
        url: &Url,
    ) -> Option<FurtherPages> {
        let page = OnePage {
            beside: beside.unwrap_or(&Value::Null),
            records: &self.records,
            count: count as u64,
            is_incremental: self.is_incremental,
        };
        further_pages(headers, &page, url)
    }
}
