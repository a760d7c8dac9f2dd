//! Warning about further pages that a source without pagination does not request.

use feedline_readers::value::Value;
use feedline_schemas::{config::SourceConfig, count::counted};
use reqwest::header::HeaderMap;
use url::Url;

use super::{Rest, layout::Body};
use crate::{
    pagination::suggest::{FurtherPages, OnePage, further_pages},
    warnings::NEXT_PAGE_NOT_REQUESTED,
};

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

    /// Looks for a sign of further pages in a response to a request for `url`.
    pub(super) fn further(
        &self,
        headers: &HeaderMap,
        body: &Body,
        url: &Url,
    ) -> Option<FurtherPages> {
        let page = OnePage {
            beside: body.beside.as_ref().unwrap_or(&Value::Null),
            records: &self.records,
            count: body.records.len() as u64,
            is_incremental: self.is_incremental,
        };
        further_pages(headers, &page, url)
    }
}

impl Rest {
    /// Warns that a page of `count` records has a sign of further pages, which are not requested.
    pub(super) fn warn_of_further_pages(&mut self, further: &FurtherPages, count: usize) {
        let http = self.ahead.http();
        let FurtherPages { pagination, reason } = further;
        let line = pagination.as_deref().unwrap_or_default();
        let shown = format!("{reason}\n{line}");
        let is_secret = http.is_revealed_by(&shown) || http.masked(&shown.into()).1 > 0;
        let (reason, setting) = match pagination {
            _ if is_secret => (
                "names in the response hold a secret of this source, and are not shown",
                "set `source.pagination`".to_owned(),
            ),
            Some(line) => (
                reason.as_str(),
                format!("set `source.pagination`, such as by `{line}`"),
            ),
            None => (reason.as_str(), "set `source.pagination`".to_owned()),
        };
        let message = format!(
            "a page of {} seems not to be the last, and no further page is requested, because the source has no pagination: {reason}; {setting} (`feedline plan --ask` looks closer), or to `{{ type = \"none\" }}` if one page is all that is wanted",
            counted(count as u64, "row")
        );
        self.warnings
            .raise(NEXT_PAGE_NOT_REQUESTED, "pagination", message);
    }
}
