//! Locations without their credentials.

use url::Url;

/// `url` without user, password and query.
pub(crate) fn redacted(url: &str) -> String {
    match Url::parse(url) {
        Ok(parsed) if parsed.has_host() => {
            format!(
                "{}://{}{}",
                parsed.scheme(),
                parsed.host_str().unwrap_or_default(),
                parsed.path()
            )
        }
        _ => url.split('?').next().unwrap_or_default().to_owned(),
    }
}
