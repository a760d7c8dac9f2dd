//! Requests of a source, with their parameters and placeholders filled in.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use feedline_http::{Request, RequestBody, Speculation};
use feedline_schemas::{
    config::{self, ParamsIn, SourceConfig, TextOrSecret},
    ids::Hash128,
};
use reqwest::{
    Method,
    header::{HeaderName, HeaderValue},
};
use url::Url;

use super::{body::Body, graphql, template::Text};
use crate::{context::Context, error::Error, pagination::with_query, param::Param};

/// The requests of a source, but for what differs from one to the next.
#[derive(Debug)]
pub(super) struct RequestBuilder {
    /// URL with the parameters of all requests.
    base: Url,
    /// The configured URL with placeholders, and its parameters; `None` without placeholders.
    template: Option<(String, BTreeMap<String, String>)>,
    /// Parameters that may have a placeholder in the URL.
    in_url: Vec<String>,
    method: Method,
    is_repeatable: bool,
    /// Headers with placeholders.
    headers: Vec<(HeaderName, Text)>,
    body: Option<Body>,
    /// Parameters with a placeholder in headers or body.
    holes: BTreeSet<String>,
    /// True if other parameters are in the body.
    is_in_body: bool,
}

impl RequestBuilder {
    /// Resolves the requests of the source; for embedded APIs, `url` differs from the configured
    /// one. `params` are the parameters that they get later; those in `in_url` may have a
    /// placeholder in the URL. Returns the secrets in the body too.
    ///
    /// # Errors
    /// [`Error::Config`] for an unknown placeholder, or a secret that cannot be found or sent.
    pub(super) fn new(
        config: &SourceConfig,
        url: &Url,
        (params, in_url): (&[&str], &[&str]),
        context: &Context,
    ) -> Result<(Self, Vec<String>), Error> {
        let is_http = matches!(url.scheme(), "http" | "https");
        let has_place = |param: &&str| has_hole(&config.url, param);
        let is_template = is_http && in_url.iter().any(has_place);
        if let Some(name) =
            unknown_hole(&config.url, in_url).filter(|_| is_http && !in_url.is_empty())
        {
            let known = in_url.join("`, `");
            let reason = format!(
                "has the placeholder `{{{name}}}`, which names no parameter of `for_each` or `slices`: the parameters are `{known}`; correct it, or write `%7B{name}%7D` to send it as it is"
            );
            return Err(Error::config("url", reason));
        }
        let mut secrets = Vec::new();
        let body = Body::new(config, params, (context, &mut secrets))?;
        let headers = headers(config, params)?;
        let mut holes = BTreeSet::new();
        for (_, text) in &headers {
            holes.extend(text.holes().map(ToOwned::to_owned));
        }
        if let Some(body) = &body {
            body.note_holes(&mut holes);
        }
        let is_table = body.as_ref().is_some_and(Body::takes_params);
        let method = match config.graphql {
            Some(_) => Method::POST,
            None => method(config.method),
        };
        let place = Self {
            base: with_params(url, &config.params),
            template: is_template.then(|| (config.url.clone(), config.params.clone())),
            in_url: in_url.iter().map(|name| (*name).to_owned()).collect(),
            is_repeatable: method != Method::POST || config.idempotent || config.graphql.is_some(),
            method,
            headers,
            holes,
            is_in_body: is_table && config.params_in != Some(ParamsIn::Query),
            body,
        };
        if let Some(graphql) = &config.graphql {
            let others: Vec<&str> = params
                .iter()
                .filter(|name| !place.has_place(name))
                .copied()
                .collect();
            graphql::check_params(graphql, &others)?;
        }
        place.check(params)?;
        Ok((place, secrets))
    }

    /// Refuses a body that has something else at the path of a parameter.
    fn check(&self, params: &[&str]) -> Result<(), Error> {
        let Some(body) = self.body.as_ref().filter(|_| self.is_in_body) else {
            return Ok(());
        };
        let params = params.iter().filter(|name| !self.has_place(name));
        // A number fits everywhere but in the place of a table or list.
        let params: Vec<Param<'_>> = params.map(|name| Param::number(name, 0)).collect();
        body.filled(&params, &params).map(|_| ())
    }

    /// The URL without parameters that differ from run to run.
    pub(super) fn base(&self) -> &Url {
        &self.base
    }

    /// Header names that have placeholders; each request has them itself.
    pub(super) fn own_headers(&self) -> impl Iterator<Item = &HeaderName> {
        self.headers.iter().map(|(name, _)| name)
    }

    /// Returns true if a parameter is not in the query.
    fn is_beside_query(&self, param: &str) -> bool {
        self.is_in_body || self.has_place(param)
    }

    /// Returns true if a parameter has a placeholder.
    fn has_place(&self, param: &str) -> bool {
        let is_in_url = self
            .template
            .as_ref()
            .is_some_and(|(text, _)| has_hole(text, param));
        self.holes.contains(param) || is_in_url && self.in_url.iter().any(|name| name == param)
    }

    /// Returns the request with `params`, each value in its placeholders, or in the query or body.
    ///
    /// # Errors
    /// [`Error::Config`] if the result cannot be sent.
    pub(super) fn request(&self, params: &[Param<'_>]) -> Result<Request, Error> {
        let url = self.url(params)?;
        self.request_at(url, params)
    }

    /// The same for a URL that a page has named, with its query.
    ///
    /// # Errors
    /// [`Error::Config`] if the result cannot be sent.
    pub(super) fn request_at(&self, url: Url, params: &[Param<'_>]) -> Result<Request, Error> {
        let mut headers = Vec::new();
        for (name, text) in &self.headers {
            let Some(value) = text.filled_or_left_out(params) else {
                continue;
            };
            let value = HeaderValue::try_from(value).map_err(|_| {
                let reason =
                    "has a value in its placeholder that a header cannot carry, such as a line end";
                Error::config(format!("headers.{name}"), reason)
            })?;
            headers.push((name.clone(), value));
        }
        let body = match &self.body {
            Some(body) => {
                let others: Vec<Param<'_>> = match self.is_in_body {
                    true => params
                        .iter()
                        .filter(|param| !self.has_place(param.name))
                        .cloned()
                        .collect(),
                    false => Vec::new(),
                };
                let (bytes, named) = body.filled(params, &others)?;
                Some(RequestBody {
                    content_type: body.content_type().clone(),
                    name: Hash128::of(&named),
                    bytes,
                })
            }
            None => None,
        };
        Ok(Request {
            url,
            method: self.method.clone(),
            headers,
            body,
            is_repeatable: self.is_repeatable,
            speculation: Speculation::default(),
        })
    }

    fn url(&self, params: &[Param<'_>]) -> Result<Url, Error> {
        let query = params
            .iter()
            .filter(|param| !self.is_beside_query(param.name));
        let query = query.map(|param| (param.name, param.value.clone()));
        let Some((template, fixed)) = &self.template else {
            return Ok(with_query(&self.base, query));
        };
        let mut text = template.clone();
        for param in params
            .iter()
            .filter(|param| self.in_url.iter().any(|name| name == param.name))
        {
            let segments = param.value.split('/').map(encoded).collect::<Vec<_>>();
            text = text
                .replace(&hole(param.name), &encoded(&param.value))
                .replace(&path_hole(param.name), &segments.join("/"));
        }
        let url = Url::parse(&text).map_err(|e| {
            Error::config(
                "url",
                format!("is not a URL with values in its places ({e})"),
            )
        })?;
        Ok(with_query(&with_params(&url, fixed), query))
    }
}

fn method(method: config::Method) -> Method {
    match method {
        config::Method::Get => Method::GET,
        config::Method::Post => Method::POST,
        config::Method::Put => Method::PUT,
    }
}

/// The configured headers with placeholders.
fn headers(config: &SourceConfig, params: &[&str]) -> Result<Vec<(HeaderName, Text)>, Error> {
    let mut all = Vec::new();
    for (name, value) in &config.headers {
        let TextOrSecret::Text(value) = value else {
            continue;
        };
        let key = || format!("headers.{name}");
        let text = Text::parse(value, params).map_err(|reason| Error::config(key(), reason))?;
        // Others are checked and sent by the client.
        if text.holes().next().is_some() {
            let name = HeaderName::try_from(name)
                .map_err(|_| Error::config(key(), "is not a header's name"))?;
            all.push((name, text));
        }
    }
    Ok(all)
}

fn hole(param: &str) -> String {
    format!("{{{param}}}")
}

/// Placeholder in which a value keeps its slashes, like RFC 6570, 3.2.3.
fn path_hole(param: &str) -> String {
    format!("{{+{param}}}")
}

/// Returns true if a URL has a placeholder of a parameter.
fn has_hole(url: &str, param: &str) -> bool {
    url.contains(&hole(param)) || url.contains(&path_hole(param))
}

/// The first part of a URL in braces that looks like a placeholder, and is of no parameter.
fn unknown_hole<'a>(url: &'a str, params: &[&str]) -> Option<&'a str> {
    let parts = url.split('{').skip(1).filter_map(|rest| {
        rest.split('}')
            .next()
            .filter(|part| part.len() < rest.len())
    });
    let is_name = |part: &&str| {
        let name = part.strip_prefix('+').unwrap_or(part).trim();
        let is_part = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && name.chars().all(is_part)
    };
    let is_known = |part: &&str| params.contains(&part.strip_prefix('+').unwrap_or(part));
    parts.filter(is_name).find(|part| !is_known(part))
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
    use crate::testing::{self, context};

    fn check(url: &str, query: &[(&str, &str)], expected: &str) {
        let mut config = testing::config(url, PaginationKind::None);
        config.params.insert("q".into(), "1".into());
        let names: Vec<&str> = query.iter().map(|(param, _)| *param).collect();
        let url = Url::parse(url).unwrap();
        let (place, _) = RequestBuilder::new(&config, &url, (&names, &names), &context()).unwrap();
        let query = query.iter();
        let params: Vec<Param<'_>> = query
            .map(|(param, value)| Param::text(param, *value))
            .collect();
        let request = place.request(&params).unwrap();
        assert_eq!(request.url.as_str(), expected);
        assert_eq!(request, Request::get(request.url.clone()));
    }

    #[test]
    fn a_placeholder_of_no_parameter_is_found() {
        for (url, expected) in [
            ("http://h/{repo}/{+repo}?q={\"a\":1}&r={}&s={", None),
            ("http://h/{repos}", Some("repos")),
            ("http://h/{repo}/{+Repo}", Some("+Repo")),
            ("http://h/{+ repo}", Some("+ repo")),
        ] {
            assert_eq!(unknown_hole(url, &["repo"]), expected, "{url}");
        }
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
        // Slashes stay, and nothing else.
        check(
            "http://h/repos/{+repo}/issues?name={repo}",
            &[("repo", "a b/c?#")],
            "http://h/repos/a%20b/c%3F%23/issues?name=a%20b%2Fc%3F%23&q=1",
        );
    }
}
