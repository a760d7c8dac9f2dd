//! Locations: without their credentials, on this machine, and after a redirect.

use std::{borrow::Cow, ops::Range};

use url::{Host, Position, Url};

/// Maximum number of redirects of one request.
pub(crate) const MAX_REDIRECTS: usize = 5;

/// `url` without user, password and query.
#[must_use]
pub fn redacted_location(url: &str) -> String {
    match Url::parse(url) {
        Ok(parsed) if parsed.has_host() => {
            let shown = &parsed[Position::BeforeHost..Position::AfterPath];
            format!("{}://{shown}", parsed.scheme())
        }
        _ => url.split('?').next().unwrap_or_default().to_owned(),
    }
}

/// Returns true if `url` has a user or a password before its host. The container of an Azure URL
/// (`abfss://container@account/`) is none.
#[must_use]
pub fn has_user_info(url: &str) -> bool {
    user_info(url).is_some()
}

/// `url` without user and password, and the rest as it is written.
#[must_use]
pub fn without_user_info(url: &str) -> Cow<'_, str> {
    let Some(range) = user_info(url) else {
        return Cow::Borrowed(url);
    };
    let mut rest = url.to_owned();
    rest.replace_range(range, "");
    Cow::Owned(rest)
}

/// A message without the users and the passwords of the URLs in it, and the rest as it is written.
#[must_use]
pub fn without_users_of_urls(message: &str) -> Cow<'_, str> {
    let mut shown = Cow::Borrowed(message);
    let mut from = 0;
    while let Some(at) = shown.get(from..).and_then(|rest| rest.find("://")) {
        let mark = from + at;
        from = mark + "://".len();
        let letters = shown[..mark].bytes().rev();
        let letters = letters.take_while(|b| b.is_ascii_alphanumeric() || b"+-.".contains(b));
        let begin = mark - letters.count();
        let ends = |c: char| c.is_whitespace() || matches!(c, '`' | '"' | '<' | '>');
        let end = shown[from..].find(ends).map_or(shown.len(), |at| from + at);
        if let Some(user) = user_info(&shown[begin..end]) {
            let user = begin + user.start..begin + user.end;
            shown.to_mut().replace_range(user, "");
        }
    }
    shown
}

/// Range of the user and the password in `url`, with the `@` behind them.
fn user_info(url: &str) -> Option<Range<usize>> {
    let (scheme, rest) = url.split_once("://")?;
    let is = |names: &[&str]| names.iter().any(|name| scheme.eq_ignore_ascii_case(name));
    if is(&["file"]) {
        return None;
    }
    let begin = scheme.len() + "://".len();
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if let Some(at) = authority.rfind('@') {
        let has_password = authority.get(..at).is_some_and(|user| user.contains(':'));
        let is_container = is(&["az", "abfs", "abfss"]) && !has_password;
        return (!is_container).then_some(begin..begin + at + 1);
    }
    // A password with a `/`, as keys of S3 may have, ends the authority early: its port is no number.
    let (_, port) = authority.split_once(':')?;
    let is_port = port.bytes().all(|b| b.is_ascii_digit());
    if is_port || authority.starts_with('[') {
        return None;
    }
    let at = rest.find('@')?;
    Some(begin..begin + at + 1)
}

/// Returns the target of a redirect response of `from`; `None` for other responses.
///
/// # Errors
/// The reason why it is not followed. A redirect from https to http is refused: a request sent in
/// secret is not repeated in public.
pub(crate) fn redirected(
    from: &Url,
    status: u16,
    location: Option<&str>,
) -> Result<Option<Url>, String> {
    if !matches!(status, 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let Some(next) = location.and_then(|location| from.join(location).ok()) else {
        return Err("it redirects to no readable place".into());
    };
    match (from.scheme(), next.scheme()) {
        (_, "https") | ("http", "http") => Ok(Some(next)),
        (from, to) => Err(format!(
            "it redirects from `{from}` to `{to}`, which is not followed"
        )),
    }
}

/// Returns true if `url` stays on this machine: a proxy from the environment would be wrong for it.
pub(crate) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{has_user_info, redacted_location, without_user_info, without_users_of_urls};

    #[test]
    fn a_message_is_shown_without_the_users_of_its_urls() {
        for (message, expected) in [
            (
                "`http://u:pw@h:81/a.csv` is equal to `http://u:pw@h:81/b.csv`, which was read before",
                "`http://h:81/a.csv` is equal to `http://h:81/b.csv`, which was read before",
            ),
            ("`http://u:pa'ss@h/a` is gone", "`http://h/a` is gone"),
            (
                "(s3://KEY:se/cr+t@bucket/x) and a@b",
                "(s3://bucket/x) and a@b",
            ),
            (
                "`http://h/?next=http://ü:pw@i/`",
                "`http://h/?next=http://i/`",
            ),
            ("ü://u@h", "ü://h"),
        ] {
            assert_eq!(without_users_of_urls(message), expected);
        }
        for message in [
            "write `https://host/path` or mail@host",
            "`http://h:81/a@b`; file:///home/a:b@c",
            "`abfss://lake@acc.dfs.core.windows.net/a`",
            "between `://` and the host",
            "",
        ] {
            assert_eq!(without_users_of_urls(message), message);
        }
    }

    #[test]
    fn a_location_is_shown_with_its_port_and_without_credentials() {
        for (url, expected) in [
            (
                "https://u:pw@h.example:81/a?sig=x#y",
                "https://h.example:81/a",
            ),
            ("ftp://host:2121/x/y", "ftp://host:2121/x/y"),
            ("s3://bucket/x?v=1", "s3://bucket/x"),
            ("in/a.csv?x", "in/a.csv"),
        ] {
            assert_eq!(redacted_location(url), expected);
        }
    }

    #[test]
    fn a_user_and_a_password_are_found_in_a_url_and_nowhere_else() {
        for (url, expected) in [
            (
                "http://u:pw@h:81/d/*.csv?a=b@c",
                "http://h:81/d/*.csv?a=b@c",
            ),
            ("HTTPS://u@h/x", "HTTPS://h/x"),
            ("s3://KEY:se/cr+t@bucket/x", "s3://bucket/x"),
            ("s3://KEY:secret@bucket/x@y", "s3://bucket/x@y"),
            (
                "abfss://lake:pw@acc.dfs.core.windows.net/a",
                "abfss://acc.dfs.core.windows.net/a",
            ),
        ] {
            assert!(has_user_info(url), "{url}");
            assert_eq!(without_user_info(url), expected);
        }
        for url in [
            "http://h:81/a@b",
            "http://h/?mail=u:pw@h",
            "http://[::1]:81/a@b",
            "s3://bucket/a:b@c",
            "abfss://lake@acc.dfs.core.windows.net/a",
            "file:///home/a:b@c/x.csv",
            "in/a:b@c/*.csv",
            "demo://market",
        ] {
            assert!(!has_user_info(url), "{url}");
            assert_eq!(without_user_info(url), url);
        }
    }
}
