//! Request URL of a source, with its placeholders filled in.

use std::{collections::BTreeMap, fmt::Write as _};

use feedline_schemas::config::SourceConfig;
use url::Url;

use crate::{error::Error, pagination::with_query};

/// The URL of a source's first pages.
#[derive(Debug)]
pub(super) struct Place {
    /// URL with the parameters of all requests.
    base: Url,
    /// The configured URL with placeholders, and its parameters; `None` without placeholders.
    template: Option<(String, BTreeMap<String, String>)>,
}

impl Place {
    /// Resolves the URL of the source; for embedded APIs, `url` differs from the configured one.
    /// `params` are the parameters that [`Place::url`] gets later.
    pub(super) fn new<'a>(
        config: &SourceConfig,
        url: Url,
        mut params: impl Iterator<Item = &'a str>,
    ) -> Self {
        let is_http = matches!(url.scheme(), "http" | "https");
        let has_place = |param: &str| config.url.contains(&hole(param));
        let is_template = is_http && params.any(has_place);
        Self {
            base: with_params(&url, &config.params),
            template: is_template.then(|| (config.url.clone(), config.params.clone())),
        }
    }

    /// The URL without parameters that differ from run to run.
    pub(super) fn base(&self) -> &Url {
        &self.base
    }

    /// Returns the URL with `query`, each value in its placeholder or in the query.
    ///
    /// # Errors
    /// [`Error::Config`] if the result is no URL.
    pub(super) fn url(&self, mut query: Vec<(&str, String)>) -> Result<Url, Error> {
        let Some((template, params)) = &self.template else {
            return Ok(with_query(&self.base, query));
        };
        let mut text = template.clone();
        query.retain(|(param, value)| {
            let hole = hole(param);
            let is_here = text.contains(&hole);
            text = text.replace(&hole, &encoded(value));
            !is_here
        });
        let url = Url::parse(&text).map_err(|e| {
            Error::config(
                "url",
                format!("is not a URL with values in its places ({e})"),
            )
        })?;
        Ok(with_query(&with_params(&url, params), query))
    }
}

fn hole(param: &str) -> String {
    format!("{{{param}}}")
}

fn with_params(url: &Url, params: &BTreeMap<String, String>) -> Url {
    with_query(url, params.iter().map(|(k, v)| (k.as_str(), v.clone())))
}

/// Percent-encodes everything but letters, digits and `-._~` (RFC 3986, 2.3), so that a value is
/// one path segment.
fn encoded(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            write!(out, "%{byte:02X}").expect("writing to a string does not fail");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use feedline_schemas::config::PaginationKind;

    use super::*;
    use crate::http::testing;

    fn check(url: &str, query: &[(&str, &str)], expected: &str) {
        let mut config = testing::config(url, PaginationKind::None);
        config.params.insert("q".into(), "1".into());
        let params = query.iter().map(|(param, _)| *param);
        let place = Place::new(&config, Url::parse(url).unwrap(), params);
        let query = query
            .iter()
            .map(|(param, value)| (*param, (*value).to_owned()));
        assert_eq!(place.url(query.collect()).unwrap().as_str(), expected);
    }

    #[test]
    fn values_stand_in_their_place_or_in_the_query() {
        check("http://h/x", &[("id", "a b")], "http://h/x?q=1&id=a+b");
        check("http://h/{id}/x", &[("id", "a b")], "http://h/a%20b/x?q=1");
        check(
            "http://h/x/{id}.json?from={from}",
            &[
                ("id", "../é?/#"),
                ("from", "2026-01-01"),
                ("to", "2026-01-02"),
            ],
            "http://h/x/..%2F%C3%A9%3F%2F%23.json?from=2026-01-01&q=1&to=2026-01-02",
        );
    }
}
