//! Cookies (RFC 6265): configured ones, and those of a login.

use std::time::{Duration, UNIX_EPOCH};

use url::{Host, Url};

/// Maximum number of cookies of a login, as in browsers.
const MOST: usize = 50;

/// Returns true if `name` is a valid cookie name: a token of RFC 9110.
pub(super) fn is_name(name: &str) -> bool {
    let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    !name.is_empty() && name.bytes().all(is_token)
}

/// Returns true if `value` is a valid cookie value: no spaces, quotes, commas, semicolons or
/// backslashes.
pub(super) fn is_value(value: &str) -> bool {
    let is_octet = |b: u8| b.is_ascii_graphic() && !b"\",;\\".contains(&b);
    value.bytes().all(is_octet)
}

/// The text of a `Cookie` header.
pub(super) fn header<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let pairs: Vec<String> = pairs
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    pairs.join("; ")
}

/// A time on both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    pub(super) monotonic: Duration,
    /// Time since 1970.
    pub(super) unix: Duration,
}

/// A cookie that a server has set.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Cookie {
    name: String,
    value: String,
    path: String,
    is_secure: bool,
    /// Expiry on the monotonic clock.
    until: Option<Duration>,
}

/// The cookies of one origin.
#[derive(Clone, Debug, Default)]
pub(super) struct Jar(Vec<Cookie>);

impl Jar {
    /// Applies a `Set-Cookie` header of a response of `from`. Headers for another host and invalid
    /// ones are ignored. An expired cookie removes its name and path from the jar.
    pub(super) fn set(&mut self, text: &str, from: &Url, now: Now) {
        let Some(cookie) = parse(text, from, now) else {
            return;
        };
        let is_same = |other: &Cookie| other.name == cookie.name && other.path == cookie.path;
        self.0.retain(|other| !is_same(other));
        let is_over = cookie.until.is_some_and(|until| until <= now.monotonic);
        if !is_over && self.0.len() < MOST {
            self.0.push(cookie);
        }
    }

    /// Values of the cookies.
    pub(super) fn values(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|cookie| cookie.value.as_str())
    }

    /// Text of the `Cookie` header of a request for `url`, which has the jar's origin; the longest
    /// paths first. `None` if no cookie may be sent there now.
    pub(super) fn header(&self, url: &Url, now: Duration) -> Option<String> {
        let may_go = |cookie: &&Cookie| {
            (!cookie.is_secure || url.scheme() == "https")
                && cookie.until.is_none_or(|until| now < until)
                && is_below(url.path(), &cookie.path)
        };
        let mut sent: Vec<&Cookie> = self.0.iter().filter(may_go).collect();
        sent.sort_by_key(|cookie| std::cmp::Reverse(cookie.path.len()));
        let pairs = sent.iter().map(|c| (c.name.as_str(), c.value.as_str()));
        (!sent.is_empty()).then(|| header(pairs))
    }
}

/// RFC 6265, section 5.2.
fn parse(text: &str, from: &Url, now: Now) -> Option<Cookie> {
    let mut parts = text.split(';');
    let (name, value) = parts.next()?.split_once('=')?;
    let (name, value) = (name.trim(), value.trim());
    let is_sendable = is_name(name) && value.bytes().all(|b| (b' '..=b'~').contains(&b));
    if !is_sendable {
        return None;
    }
    let mut cookie = Cookie {
        name: name.to_owned(),
        value: value.to_owned(),
        path: default_path(from),
        is_secure: false,
        until: None,
    };
    let mut max_age = None;
    for part in parts {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        let value = value.trim();
        match key.trim().to_ascii_lowercase().as_str() {
            "path" if value.starts_with('/') => cookie.path = value.to_owned(),
            "domain" if !is_within(from, value) => return None,
            "secure" => cookie.is_secure = true,
            "max-age" => max_age = seconds(value).or(max_age),
            "expires" => cookie.until = expires(value, now),
            _ => {}
        }
    }
    let age = max_age.map(|age| now.monotonic.saturating_add(age));
    cookie.until = age.or(cookie.until);
    Some(cookie)
}

/// Parses a `Max-Age`; values up to zero expire at once.
fn seconds(text: &str) -> Option<Duration> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let whole = digits.parse().unwrap_or(u64::MAX);
    Some(Duration::from_secs(if digits == text { whole } else { 0 }))
}

/// Parses an `Expires` as a time on the monotonic clock; `None` for an invalid date.
fn expires(text: &str, now: Now) -> Option<Duration> {
    let date = httpdate::parse_http_date(text);
    // Many servers write `Wed, 09-Jun-2021 10:18:14 GMT`.
    let date = date.or_else(|_| httpdate::parse_http_date(&text.replace('-', " ")));
    let unix = date.ok()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    Some(now.monotonic + unix.saturating_sub(now.unix))
}

/// Returns true if a cookie for `domain` is for the host of `url` (RFC 6265, section 5.1.3).
fn is_within(url: &Url, domain: &str) -> bool {
    let domain = domain.trim_start_matches('.').to_ascii_lowercase();
    match url.host() {
        _ if domain.is_empty() => true,
        Some(Host::Domain(host)) => {
            let above = host.strip_suffix(&domain);
            above.is_some_and(|above| above.is_empty() || above.ends_with('.'))
        }
        Some(address) => address.to_string() == domain,
        None => false,
    }
}

/// The folder that a URL is in (RFC 6265, section 5.1.4).
fn default_path(url: &Url) -> String {
    match url.path().rsplit_once('/') {
        None | Some(("", _)) => "/".into(),
        Some((folder, _)) => folder.to_owned(),
    }
}

fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder)
        .is_some_and(|rest| rest.is_empty() || folder.ends_with('/') || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sun, 06 Nov 1994 08:49:37 GMT.
    const NOW: Now = Now {
        monotonic: Duration::from_secs(100),
        unix: Duration::from_secs(784_111_777),
    };

    /// Checks the header for `url` so many seconds after responses of `https://a.example/v1/login`
    /// set `cookies`.
    fn check(cookies: &[&str], url: &str, after: u64, sent: Option<&str>) {
        let from = Url::parse("https://a.example/v1/login").unwrap();
        let mut jar = Jar::default();
        cookies.iter().for_each(|text| jar.set(text, &from, NOW));
        let url = Url::parse(url).unwrap();
        let at = NOW.monotonic + Duration::from_secs(after);
        assert_eq!(jar.header(&url, at).as_deref(), sent, "{cookies:?}");
    }

    #[test]
    fn cookies_go_where_their_path_and_scheme_let_them() {
        let page = "https://a.example/v1/items?page=2";
        check(&["s=1"], page, 0, Some("s=1"));
        check(&["s=1; HttpOnly", "t=2; Path=/"], page, 0, Some("s=1; t=2"));
        // The folder of the login is /v1.
        check(&["s=1"], "https://a.example/v2/items", 0, None);
        check(&["s=1"], "https://a.example/v11", 0, None);
        check(&["s=1; path=/v1/items"], page, 0, Some("s=1"));
        check(&["s=1; Path=/v1/it"], page, 0, None);
        check(&["s=1; Path=relative"], page, 0, Some("s=1"));
        check(&["s=1; Secure"], page, 0, Some("s=1"));
        check(&["s=1; secure"], "http://a.example/v1/items", 0, None);
        check(&["a=1; Path=/", "b=2"], page, 0, Some("b=2; a=1"));
        check(&["s=1", "s=2"], page, 0, Some("s=2"));
    }

    #[test]
    fn cookies_of_other_hosts_and_broken_ones_are_not_taken() {
        let page = "https://a.example/v1/items";
        check(&["s=1; Domain=.A.example"], page, 0, Some("s=1"));
        check(&["s=1; Domain=example"], page, 0, Some("s=1"));
        check(&["s=1; Domain=b.example"], page, 0, None);
        check(&["s=1; Domain=x.a.example"], page, 0, None);
        check(&["s=1; Domain=le"], page, 0, None);
        for broken in ["s", "=1", "a b=1", "s=\u{e9}", "s=a\u{1}"] {
            check(&[broken], page, 0, None);
        }
    }

    #[test]
    fn cookies_end_when_they_say() {
        let page = "https://a.example/v1/items";
        check(&["s=1; Max-Age=60"], page, 59, Some("s=1"));
        check(&["s=1; Max-Age=60"], page, 60, None);
        check(&["s=1", "s=; Max-Age=0"], page, 0, None);
        check(&["s=1", "s=; Max-Age=-1"], page, 0, None);
        let dated = "s=1; Expires=Sun, 06 Nov 1994 08:50:37 GMT";
        check(&[dated], page, 59, Some("s=1"));
        check(&[dated], page, 60, None);
        check(
            &["s=1; Expires=Sun, 06-Nov-1994 08:50:37 GMT"],
            page,
            60,
            None,
        );
        check(&["s=1; Expires=soon"], page, 9_999, Some("s=1"));
        check(
            &["s=1; Max-Age=60; Expires=Thu, 01 Jan 1970 00:00:00 GMT"],
            page,
            59,
            Some("s=1"),
        );
    }

    #[test]
    fn names_and_values_that_a_header_cannot_carry_are_told() {
        assert!(is_name("CloudFront-Key-Pair-Id") && is_value("a~b_-="));
        assert!(!is_name("a=b") && !is_name("") && !is_name("a;b"));
        assert!(!is_value("a;b") && !is_value("a b") && !is_value("a\"") && !is_value("\n"));
    }
}
