//! The `Retry-After` header, in both of its forms (RFC 9110, section 10.2.3).

use std::time::{Duration, UNIX_EPOCH};

/// Parses the wait of a `Retry-After` header. Returns `None` for zero, a past time and anything
/// that is neither seconds nor an HTTP date: then our own backoff applies.
///
/// A date is compared with the response's `Date` (`date`) if it has one, so clock skew does no
/// harm, otherwise with `now` (since 1970). Seconds beyond 64 bits count as the longest possible
/// time.
#[must_use]
pub fn retry_after(value: &str, date: Option<&str>, now: Duration) -> Option<Duration> {
    let unix = |text: &str| {
        httpdate::parse_http_date(text)
            .ok()?
            .duration_since(UNIX_EPOCH)
            .ok()
    };
    let wait = if let Some(seconds) = whole_seconds(value.trim()) {
        Duration::from_secs(seconds)
    } else {
        unix(value.trim())?.checked_sub(date.and_then(unix).unwrap_or(now))?
    };
    (!wait.is_zero()).then_some(wait)
}

/// Parses seconds, rounded up: some servers send `0.7`, which the standard does not allow.
fn whole_seconds(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) {
        return None;
    }
    let up = u64::from(fraction.bytes().any(|b| b != b'0'));
    Some(whole.parse::<u64>().unwrap_or(u64::MAX).saturating_add(up))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_understood_in_both_forms() {
        let now = Duration::from_secs(784_111_777); // Sun, 06 Nov 1994 08:49:37 GMT
        let check = |value: &str, date: Option<&str>, seconds: Option<u64>| {
            assert_eq!(
                retry_after(value, date, now),
                seconds.map(Duration::from_secs),
                "{value} {date:?}"
            );
        };
        check("7", None, Some(7));
        check(" 120 ", None, Some(120));
        check("1.5", None, Some(2));
        check("1000000000000", None, Some(1_000_000_000_000));
        check("99999999999999999999999", None, Some(u64::MAX));
        check("Sun, 06 Nov 1994 08:50:07 GMT", None, Some(30));
        check("Sunday, 06-Nov-94 08:50:07 GMT", None, Some(30));
        // The server's clock is an hour behind ours.
        check(
            "Sun, 06 Nov 1994 07:50:07 GMT",
            Some("Sun, 06 Nov 1994 07:49:37 GMT"),
            Some(30),
        );
        check("Sun, 06 Nov 1994 08:50:07 GMT", Some("yesterday"), Some(30));
        check("Sun, 06 Nov 1994 08:49:07 GMT", None, None);
        check(
            "Sun, 06 Nov 1994 09:50:07 GMT",
            Some("Sun, 06 Nov 1994 10:49:37 GMT"),
            None,
        );
        for garbage in ["0", "0.0", "-5", "soon", "", ".", ".5", "1e3", "+3", "inf"] {
            check(garbage, None, None);
        }
    }
}
