//! Reads the first response of a source to suggest its pagination to a person.

use feedline_http::{Got, Request, redacted};
use feedline_readers::{notices::Notices, value::Value};
use feedline_schemas::{
    commit::Position,
    config::{Bounded, PaginationKind, PipelineConfig, SourceConfig},
};
use reqwest::header::{CONTENT_TYPE, HeaderMap};
use serde::Serialize;
use url::Url;

use super::{
    Rest, fetcher::once, graphql::QueryErrors, layout::Unusable, opened,
    reported_errors::is_something, response::Response,
};
use crate::{
    blocking::blocking,
    context::Context,
    error::Error,
    pagination::{
        At,
        suggest::{Found, have_different_records, have_equal_records, suggest as speaks_for},
    },
    param::Param,
    settings::choose,
    source_table::unit_of,
    source_type::ReadUnit,
};

/// Suggestion from the first response of a source. Only a person acts on it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Suggestion {
    /// Source name.
    pub source: String,
    /// `[source.pagination]` as a line of TOML; absent without a sign of further pages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pagination: Option<String>,
    /// `records` as a line of TOML, if the records are not at the configured path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub records: Option<String>,
    /// Reason for the suggestion.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Reason for a missing response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// True if the error is that of a server that refuses the credentials, or their absence.
    #[serde(skip)]
    pub is_denied: bool,
}

/// Fetches the first response of each `rest` source without pagination, and suggests its
/// pagination. It uses the source's own client and rate limits, sends one request to each, and lands
/// nothing. A list that seems to have numbered pages, and does not show the number of the first one,
/// gets up to two more, for pages 0 and 1. One that may have pages, and shows at most that its
/// records ascend, gets two before these, for pages 1 and 2 by the parameter `page`, and in the second
/// case, if both are equal, one for the records behind the last one.
///
/// ```
/// use feedline_ingest::suggest;
/// use feedline_schemas::config::load;
///
/// # #[derive(Debug)]
/// # struct NoSecrets;
/// # impl feedline_ingest::Secrets for NoSecrets {
/// #     fn resolve(&self, _: &feedline_schemas::config::SecretRef) -> Result<String, String> {
/// #         Err("there are no secrets".to_owned())
/// #     }
/// # }
/// # let context = feedline_ingest::Context {
/// #     root: feedline_storage::Store::memory(),
/// #     store_options: feedline_storage::StoreOptions::default(),
/// #     progress: std::sync::Arc::new(feedline_schemas::progress::Silent),
/// #     clock: std::sync::Arc::new(feedline_storage::clock::SystemClock),
/// #     secrets: std::sync::Arc::new(NoSecrets),
/// #     hosts: std::sync::Arc::default(),
/// #     metrics: std::sync::Arc::default(),
/// #     formatted_dates: std::sync::Arc::default(),
/// #     is_trial: false,
/// #     run_id: "run".to_owned(),
/// #     delta: false,
/// #     cancel: tokio::sync::watch::channel(false).1,
/// # };
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let text = "[pipeline]\nname = 'p'\n[[source]]\nname = 'market'\ntype = 'rest'\n\
///             url = 'demo://market?rows=500&rude=false'\nrecords = 'data.items'\n";
/// let config = load("p.toml", text, &[])?.config;
/// let suggestions = suggest(&config, &context).await?;
/// let pagination = suggestions[0].pagination.as_deref().ok_or("no further page")?;
/// assert!(pagination.contains("type = \"cursor\""));
/// assert!(pagination.contains("cursor_path = \"paging.next_cursor\""));
/// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`Error::Config`] for a source that cannot be requested as configured, [`Error::Log`] and
/// [`Error::Storage`] for its log, [`Error::Cancelled`]. A failed request is reported in its
/// [`Suggestion`].
pub async fn suggest(config: &PipelineConfig, context: &Context) -> Result<Vec<Suggestion>, Error> {
    let mut all = Vec::new();
    for (index, source) in choose(config, None)? {
        let is_bare = unit_of(source) == ReadUnit::Page
            && source.graphql.is_none()
            && source.pagination.way.kind() == PaginationKind::None;
        if !is_bare {
            continue;
        }
        let name = source.name.to_string();
        // Boxed: the future of a source is large.
        match Box::pin(first_answer(source, context)).await {
            Ok(suggestion) => all.push(suggestion),
            Err(error @ Error::Config { .. }) => {
                return Err(error.under(&format!("source.{index}")));
            }
            Err(error @ (Error::Cancelled | Error::Log { .. } | Error::Storage(_))) => {
                return Err(error);
            }
            Err(error) => all.push(Suggestion {
                source: name,
                is_denied: matches!(&error, Error::Http { cause, .. } if cause.is_denied()),
                error: Some(error.to_string()),
                ..Suggestion::default()
            }),
        }
    }
    Ok(all)
}

async fn first_answer(config: &SourceConfig, context: &Context) -> Result<Suggestion, Error> {
    let mut once = config.clone();
    once.retry.max_tries = Bounded::literal::<1>();
    let mut rest = Box::pin(opened(&once, context)).await?;
    let source = config.name.to_string();
    let Some((at, url, got)) = rest.first().await? else {
        return Ok(Suggestion {
            source,
            reason: Some("no request was sent: no slice or value is due yet".into()),
            ..Suggestion::default()
        });
    };
    let Got { headers, body, .. } = got;
    let response = Response::new(config, &Notices::default())?;
    let kind = content_type(&headers);
    let (records, from) = (config.records.clone(), url.clone());
    let error_path = config.error_path.clone().filter(|path| !path.is_empty());
    let read = move || {
        let document = match response.document(&body, &kind) {
            Ok(document) => document,
            Err(reason) => return Ok(Err(Unusable::Wrong(reason))),
        };
        let error = error_path.and_then(|path| document.at(&path).cloned());
        if let Some(error) = error.filter(is_something) {
            return Ok(Err(Unusable::Error(match error {
                Value::Text(text) => text,
                other => other.canonical(),
            })));
        }
        let found = speaks_for(&headers, &document, &from, &records);
        Ok(Ok((found, document)))
    };
    match blocking(read).await? {
        Ok((found, first)) => {
            let found = Box::pin(rest.with_first_page(config, &at, found, &first)).await?;
            Ok(rest.told(source, found))
        }
        Err(unusable) => Err(Error::Body {
            url: redacted(&url),
            reason: match unusable {
                Unusable::Wrong(reason)
                | Unusable::NotJson(reason)
                | Unusable::Unfit(reason)
                | Unusable::NoTable(reason, _) => reason,
                Unusable::Error(text)
                | Unusable::Suspect(_, text)
                | Unusable::Failed(_, text)
                | Unusable::Query(QueryErrors { text, .. }) => format!(
                    "it has status 200 and an error at `error_path`{}",
                    rest.ahead.http().excerpt(&text)
                ),
            },
        }),
    }
}

fn content_type(headers: &HeaderMap) -> String {
    let kind = headers.get(CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok());
    kind.unwrap_or_default().to_owned()
}

impl Rest {
    /// Fetches the first response. Returns its page and URL too; `None` if there is no request to
    /// send.
    async fn first(&mut self) -> Result<Option<(At, Url, Got)>, Error> {
        let Some(at) = self.place(&Position::Start)? else {
            return Ok(None);
        };
        let request = self.request(&at)?;
        let got = self.exchanged(&request).await?;
        Ok(Some((at, request.url, got)))
    }

    async fn exchanged(&self, request: &Request) -> Result<Got, Error> {
        let (http, mut retry) = (self.ahead.http(), self.ahead.retry());
        let got = retry.run(|| async {
            let got = http.exchange(request).await;
            got.map_err(|failure| once(request, failure.into_error_of()))
        });
        got.await
    }

    /// Compares pages where the first response leaves a doubt: pages 1 and 2 show whether a list has
    /// pages, and pages 0 and 1 the number of the first one. `first` is the document of the first response.
    async fn with_first_page(
        &self,
        config: &SourceConfig,
        at: &At,
        found: Found,
        first: &Value,
    ) -> Result<Found, Error> {
        let Some(param) = found.unnumbered.clone() else {
            return Ok(found);
        };
        let differ = async |number: u64| {
            let page = Param::number(&param, number);
            let Some(page) = Box::pin(self.page_with(config, at, page)).await? else {
                return Ok(false);
            };
            let next = Param::number(&param, number + 1);
            let next = Box::pin(self.page_with(config, at, next)).await?;
            let records = &config.records;
            Ok::<_, Error>(next.is_some_and(|next| have_different_records(&page, &next, records)))
        };
        let found = match found.pagination {
            Some(_) if found.after_last.is_none() => found,
            _ if differ(1).await? => found.numbered_by(&param),
            _ => return Box::pin(self.with_tried_keyset(config, at, found, first)).await,
        };
        Ok(match differ(0).await? {
            true => found.counting_from_zero(),
            false => found,
        })
    }

    /// Removes a suggested keyset if the server returns the records of `first` for those behind the last.
    async fn with_tried_keyset(
        &self,
        config: &SourceConfig,
        at: &At,
        found: Found,
        first: &Value,
    ) -> Result<Found, Error> {
        let Some((name, last)) = found.after_last.clone() else {
            return Ok(found);
        };
        let next = Param::text(&name, last);
        let next = Box::pin(self.page_with(config, at, next)).await?;
        let is_ignored = next.is_some_and(|next| have_equal_records(first, &next, &config.records));
        Ok(match is_ignored {
            true => found.without_keyset(&name),
            false => found,
        })
    }

    /// Fetches the page of the list at `at` for `param`; `None` if it cannot be read, or if requests
    /// must not be repeated.
    async fn page_with(
        &self,
        config: &SourceConfig,
        at: &At,
        param: Param<'_>,
    ) -> Result<Option<Value>, Error> {
        let mut params = self.run_params(&at.run)?;
        params.retain(|other| other.name != param.name);
        params.push(param);
        let request = self.place.request(&params)?;
        if !request.is_repeatable {
            return Ok(None);
        }
        // Boxed: the future of an exchange is large.
        let got = match Box::pin(self.exchanged(&request)).await {
            Ok(got) => got,
            Err(Error::Cancelled) => return Err(Error::Cancelled),
            // A page 0 that is refused is no fault of the source.
            Err(_) => return Ok(None),
        };
        let response = Response::new(config, &Notices::default())?;
        let kind = content_type(&got.headers);
        blocking(move || Ok(response.document(&got.body, &kind).ok())).await
    }

    /// Returns the suggestion, unless a name in it holds a secret.
    fn told(&self, source: String, found: Found) -> Suggestion {
        let Found {
            pagination,
            records,
            reason,
            ..
        } = found;
        let lines = [pagination.as_deref(), records.as_deref(), Some(&reason)];
        let all = lines.into_iter().flatten().collect::<Vec<_>>().join("\n");
        let is_secret =
            self.ahead.http().is_revealed_by(&all) || self.ahead.http().masked(&all.into()).1 > 0;
        if is_secret {
            return Suggestion {
                source,
                reason: Some(
                    "names in the response hold a secret of this source, and are not shown".into(),
                ),
                ..Suggestion::default()
            };
        }
        Suggestion {
            source,
            pagination,
            records,
            reason: Some(reason),
            ..Suggestion::default()
        }
    }
}

#[cfg(test)]
mod tests;
