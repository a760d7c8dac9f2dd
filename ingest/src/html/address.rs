//! URLs: their canonical form, and the ones that a crawl may fetch.

use std::net::Ipv6Addr;

use feedline_schemas::config::CrawlConfig;
use url::{Host, Url};

use super::pattern::{Pattern, octets};
use crate::error::Error;
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

/// Canonical form of the host `text`, as in URLs. Returns `None` if no URL has such a host.
pub(super) fn normalized_host(text: &str) -> Option<String> {
    if text.contains('*') {
        return None;
    }
    match text.parse::<Ipv6Addr>() {
        Ok(address) => Some(format!("[{address}]")),
        Err(_) => Host::parse(text).ok().map(|host| host.to_string()),
    }
}

/// Refuses an entry of `crawl.hosts` that no URL has as its host.
///
/// # Errors
/// [`Error::Config`] with the host to write instead.
pub(super) fn check_hosts(hosts: &[String]) -> Result<(), Error> {
    let mut texts = hosts.iter().enumerate();
    let Some((i, text)) = texts.find(|(_, text)| normalized_host(text).is_none()) else {
        return Ok(());
    };
    let url = match text.contains("://") {
        true => Url::parse(text),
        false => Url::parse(&format!("http://{text}")),
    };
    let host = url
        .ok()
        .and_then(|url| url.host_str().and_then(normalized_host));
    let advice = match host {
        Some(host) => format!("write the host alone, without scheme, port and path: `{host}`"),
        None if text.contains('*') => {
            "patterns are not supported: name each host, such as `www.example.org`".to_owned()
        }
        None => {
            "write a name or an address alone, such as `www.example.org` or `10.0.0.7`".to_owned()
        }
    };
    // Without a user and a password.
    let shown = text.rsplit('@').next().unwrap_or_default();
    let reason = format!(
        "`{shown}` is no host; {advice} (after rows have landed, this needs `feedline ingest reset`)"
    );
    Err(Error::config(format!("crawl.hosts.{i}"), reason))
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
        (self.allow.is_empty() || self.allow.matches(url)) && !self.denies(url)
    }

    /// Returns true if a pattern of `deny` matches `url`.
    pub(super) fn denies(&self, url: &Url) -> bool {
        self.deny.matches(url)
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
    fn an_entry_of_hosts_is_a_host_alone() {
        let check = |text: &str| {
            let hosts = ["a.example".to_owned(), text.to_owned()];
            check_hosts(&hosts).map_err(|error| error.to_string())
        };
        for (text, expected) in [
            ("localhost", "localhost"),
            ("WWW.Example.org", "www.example.org"),
            ("b\u{fc}cher.example", "xn--bcher-kva.example"),
            ("10.0.0.7", "10.0.0.7"),
            ("::1", "[::1]"),
            ("[::1]", "[::1]"),
        ] {
            assert_eq!(check(text), Ok(()), "{text}");
            assert_eq!(normalized_host(text).as_deref(), Some(expected), "{text}");
        }
        for (text, part) in [
            ("localhost:18493", "port and path: `localhost`"),
            ("http://localhost/", "port and path: `localhost`"),
            ("www.example.org/path", "port and path: `www.example.org`"),
            ("https://[::1]:8080/", "port and path: `[::1]`"),
            ("*.example.org", "patterns are not supported"),
            ("https://*.example.org/", "patterns are not supported"),
            ("", "`` is no host; write a name or an address alone"),
            ("http://user:canary@h.example/", "`h.example/` is no host"),
        ] {
            let error = check(text).unwrap_err();
            assert!(error.starts_with("`crawl.hosts.1`: "), "{error}");
            assert!(error.contains(part), "{error}");
            assert!(!error.contains("canary"), "{error}");
        }
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
