//! Header fields that pages are read by.

use feedline_schemas::config::{Pagination, PaginationConfig, PaginationKind};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue, LINK};

use super::link;
use crate::error::Error;

/// Header fields of the next cursor and of the total.
#[derive(Clone, Debug)]
pub(crate) struct Fields {
    kind: PaginationKind,
    cursor: Option<HeaderName>,
    total: Option<HeaderName>,
}

impl Fields {
    /// # Errors
    /// [`Error::Config`] for what cannot be the name of a header.
    pub(super) fn new(config: &PaginationConfig) -> Result<Self, Error> {
        let header = |key: &str, name: Option<&String>| {
            let name = name.map(HeaderName::try_from).transpose();
            name.map_err(|_| Error::config(format!("pagination.{key}"), "is not a header's name"))
        };
        let cursor = match &config.way {
            Pagination::HeaderCursor(keys) => Some(&keys.cursor_header),
            _ => None,
        };
        Ok(Self {
            kind: config.way.kind(),
            cursor: header("cursor_header", cursor)?,
            total: header("total_header", config.common.total_header.as_ref())?,
        })
    }

    /// Names of the fields.
    pub(super) fn names(&self) -> Vec<HeaderName> {
        let headers = [&self.cursor, &self.total];
        headers.into_iter().flatten().cloned().collect()
    }

    /// Returns the next cursor or URL in the headers of a response, and true if they have a place
    /// for it.
    ///
    /// # Errors
    /// A message if it is invalid.
    pub(crate) fn token_in(&self, headers: &HeaderMap) -> Result<(Option<String>, bool), String> {
        match (self.kind, &self.cursor) {
            (PaginationKind::Link, _) => {
                let values = headers.get_all(LINK).into_iter();
                let links = link::read(values.map(HeaderValue::as_bytes)).map_err(|reason| {
                    format!(
                        "its `Link` header cannot be read ({reason}), so the next page is not known; report it to the server's owner, or choose another `pagination.type`"
                    )
                })?;
                Ok((links.next, links.are_of_pages))
            }
            (PaginationKind::HeaderCursor, Some(name)) => {
                let Some(value) = headers.get(name) else {
                    return Ok((None, false));
                };
                let text = std::str::from_utf8(value.as_bytes()).map_err(|_| {
                    format!(
                        "its header `{name}` (`pagination.cursor_header`) is no UTF-8 text, so the next page is not known; report it to the server's owner, or choose another `pagination.type`"
                    )
                })?;
                let text = text.trim();
                Ok(((!text.is_empty()).then(|| text.to_owned()), true))
            }
            _ => Ok((None, false)),
        }
    }

    /// Reads the total number of records from the headers of a response.
    ///
    /// # Errors
    /// A message if it is no number.
    pub(crate) fn total_in(&self, headers: &HeaderMap) -> Result<Option<u64>, String> {
        let Some(value) = self.total.as_ref().and_then(|name| headers.get(name)) else {
            return Ok(None);
        };
        let number = value
            .to_str()
            .ok()
            .and_then(|text| text.trim().parse().ok());
        number
            .map(Some)
            .ok_or_else(|| "the header of `pagination.total_header` is no whole number".to_owned())
    }
}
