//! URLs: their canonical form, and the ones that a crawl may fetch.

use feedline_schemas::config::CrawlConfig;
use url::Url;

use super::pattern::{Pattern, octets};
use feedline_readers::glob::wild;

/// A longer URL is not followed: no page needs one, and traps make them.
const MAX_BYTES: usize = 2_048;

/// Canonical form of `url`: without fragment, user, password, empty query, and the parameters that
/// match one of `drop_params`. Returns `None` if it is no URL of a page, or too long.
pub(super) fn normalized(mut url: Url, drop_params: &[String]) -> Option<Url> {
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
        return None;
    }
    url.set_fragment(None);
    url.set_username("").ok()?;
    url.set_password(None).ok()?;
    let is_dropped = |pair: &&str| {
        let name = pair.split('=').next().unwrap_or_default().as_bytes();
        let drops = |p: &String| wild(p.as_bytes(), name, |p| *p == b'*', |_| true, |p, c| p == c);
        drop_params.iter().any(drops)
    };
    let query = url.query().map(|query| {
        let kept: Vec<&str> = query.split('&').filter(|pair| !is_dropped(pair)).collect();
        kept.join("&")
    });
    url.set_query(query.as_deref().filter(|query| !query.is_empty()));
    (url.as_str().len() <= MAX_BYTES).then_some(url)
}

/// Patterns of URLs.
#[derive(Clone, Debug, Default)]
pub(super) struct Patterns(Vec<(bool, Pattern)>);

impl Patterns {
    pub(super) fn new(texts: &[String]) -> Self {
        Self(
            texts
                .iter()
                .map(|text| {
                    (
                        text.starts_with('/') || text.starts_with('*'),
                        Pattern::new(text),
                    )
                })
                .collect(),
        )
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn matches(&self, url: &Url) -> bool {
        let path = octets(path(url).as_bytes());
        let whole = octets(url.as_str().as_bytes());
        self.0
            .iter()
            .any(|(is_path, pattern)| pattern.matches(if *is_path { &path } else { &whole }))
    }
}

/// Path and query of a URL.
pub(super) fn path(url: &Url) -> &str {
    &url[url::Position::BeforePath..url::Position::AfterQuery]
}

/// Patterns of links to follow.
#[derive(Clone, Debug)]
pub(super) struct Scope {
    allow: Patterns,
    deny: Patterns,
}

impl Scope {
    pub(super) fn new(config: &CrawlConfig) -> Self {
        Self {
            allow: Patterns::new(&config.allow),
            deny: Patterns::new(&config.deny),
        }
    }

    pub(super) fn admits(&self, url: &Url) -> bool {
        (self.allow.is_empty() || self.allow.matches(url)) && !self.deny.matches(url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(url: &str, expected: Option<&str>) {
        let drop = ["utm_*".to_owned(), "sid".to_owned()];
        let url = normalized(Url::parse(url).unwrap(), &drop);
        assert_eq!(url.as_ref().map(Url::as_str), expected);
    }

    #[test]
    fn a_page_has_one_url() {
        check(
            "HTTP://Host.Example:80/a/../b/./c#part",
            Some("http://host.example/b/c"),
        );
        check(
            "https://u:p@host.example:443?",
            Some("https://host.example/"),
        );
        check(
            "http://h/?utm_source=x&id=3&sid=9&utm_medium=y",
            Some("http://h/?id=3"),
        );
        check("http://h/?sid=1", Some("http://h/"));
        check("http://h/?b=1&a=2&sidx=1", Some("http://h/?b=1&a=2&sidx=1"));
        check("mailto:a@b.example", None);
        check("ftp://h/x", None);
        check(&format!("http://h/{}", "a".repeat(3_000)), None);
    }

    #[test]
    fn patterns_are_of_paths_or_of_whole_urls() {
        let scope = |allow: &[&str], deny: &[&str]| {
            let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
            Scope::new(&CrawlConfig {
                allow: texts(allow),
                deny: texts(deny),
                ..CrawlConfig::default()
            })
        };
        let admits = |scope: &Scope, url: &str| scope.admits(&Url::parse(url).unwrap());
        assert!(admits(&scope(&[], &[]), "http://h/"));
        let blog = scope(
            &["/blog/", "http://h/news"],
            &["*?replytocom=", "/blog/*.pdf$"],
        );
        for yes in [
            "http://x/blog/1",
            "http://h/news/1",
            "http://h/blog/a.pdf?x",
        ] {
            assert!(admits(&blog, yes), "{yes}");
        }
        for no in [
            "http://h/",
            "http://x/news",
            "http://h/blog/1?replytocom=2",
            "http://h/blog/a.pdf",
        ] {
            assert!(!admits(&blog, no), "{no}");
        }
    }
}
