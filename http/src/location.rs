//! Locations: without their credentials, on this machine, and after a redirect.

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
    use super::redacted_location;

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
}
