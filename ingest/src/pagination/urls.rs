//! URLs of pages.

use url::Url;

use feedline_http::{redacted, without_param};

/// Allowed URLs of next pages.
#[derive(Debug)]
pub(super) struct NextUrls {
    pub(super) base: Url,
    /// Allowed origins besides that of `base`.
    pub(super) origins: Vec<String>,
    /// Query parameter to remove: a key that is sent anyway.
    pub(super) hidden: Option<String>,
}

impl NextUrls {
    /// The URL of the source for messages, with its placeholders as they are written, such as `{+repo}`.
    pub(super) fn shown_base(&self) -> String {
        let shown = redacted(&self.base);
        shown.replace("%7B", "{").replace("%7D", "}")
    }

    /// Cursor of the page at `target`, as written in a page at `page`. It has no origin where that
    /// is the source's own.
    pub(super) fn followed(&self, page: &Url, target: &str) -> Result<String, String> {
        let wrong = |what: &str| {
            Err(format!(
                "its next URL {what}; check `pagination.type` and `pagination.next_path`"
            ))
        };
        let Ok(mut url) = page.join(target) else {
            return wrong("is none");
        };
        url.set_fragment(None);
        if !matches!(url.scheme(), "http" | "https") {
            return wrong(&format!("is of the scheme `{}`", url.scheme()));
        }
        if url.origin() != self.base.origin() {
            self.check_origin(&url)?;
            return Ok(url.into());
        }
        if let Some(hidden) = &self.hidden {
            url = without_param(url, hidden);
        }
        let query = url.query().map(|query| format!("?{query}"));
        Ok(url.path().to_owned() + &query.unwrap_or_default())
    }

    /// Returns the URL of a cursor from [`NextUrls::followed`].
    pub(super) fn kept_url(&self, cursor: &str) -> Result<Url, String> {
        if cursor.starts_with('/') {
            // Not joined: a path of `//host` would lead to that host.
            let (path, query) = cursor
                .split_once('?')
                .map_or((cursor, None), |(path, query)| (path, Some(query)));
            let mut url = self.base.clone();
            url.set_path(path);
            url.set_query(query);
            return Ok(url);
        }
        let url =
            Url::parse(cursor).map_err(|_| "the landed cursor is no URL of a page".to_owned())?;
        self.check_origin(&url)?;
        Ok(url)
    }

    fn check_origin(&self, url: &Url) -> Result<(), String> {
        let origin = url.origin().ascii_serialization();
        let is_allowed = |allowed: &String| {
            Url::parse(allowed).is_ok_and(|allowed| allowed.origin() == url.origin())
        };
        let has_user = !url.username().is_empty() || url.password().is_some();
        if self.origins.iter().any(is_allowed) && !has_user {
            return Ok(());
        }
        Err(format!(
            "its next URL leads to `{origin}`, which is not the source's own origin; add it to `pagination.next_origins` if it belongs to the API"
        ))
    }
}

/// Adds query parameters to `base`, replacing existing ones of the same names. The rest stays as it
/// is written.
pub(crate) fn with_query<'a>(
    base: &Url,
    query: impl IntoIterator<Item = (&'a str, String)>,
) -> Url {
    let query: Vec<_> = query.into_iter().collect();
    let mut url = base.clone();
    if base
        .query_pairs()
        .any(|(key, _)| query.iter().any(|(k, _)| *k == key))
    {
        let kept = base
            .query_pairs()
            .filter(|(key, _)| query.iter().all(|(k, _)| k != key));
        url.query_pairs_mut().clear().extend_pairs(kept);
    }
    if !query.is_empty() {
        url.query_pairs_mut().extend_pairs(query);
    }
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_of_the_url_are_shown_as_they_are_written() {
        let urls = NextUrls {
            base: Url::parse("http://u:pw@h/{+repo}/a%20b/{day}?key=geheim").unwrap(),
            origins: Vec::new(),
            hidden: None,
        };
        assert_eq!(urls.shown_base(), "http://h/{+repo}/a%20b/{day}?key=***");
    }
}
