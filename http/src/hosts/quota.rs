//! Quota headers of a server: `RateLimit` with `RateLimit-Policy`
//! (draft-ietf-httpapi-ratelimit-headers-10), the older `RateLimit-Remaining` and `RateLimit-Reset`
//! (its draft 7 and before), and the same with the prefix `X-`.

use std::time::{Duration, UNIX_EPOCH};

use feedline_schemas::config::ResetUnit;
use reqwest::header::{DATE, HeaderMap};

/// Header names of the number of requests left, and of the time of the reset.
const PAIRS: [(&str, &str); 3] = [
    ("ratelimit-remaining", "ratelimit-reset"),
    ("x-ratelimit-remaining", "x-ratelimit-reset"),
    ("x-rate-limit-remaining", "x-rate-limit-reset"),
];

/// Remaining quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quota {
    /// Requests.
    pub(crate) left: u64,
    /// Time until the reset.
    pub(crate) reset: Duration,
}

/// Reads the quota from the headers of a response. Server times are compared with its own `Date`
/// where it sends one, so clock skew does no harm. Otherwise they are compared with `now` (since
/// 1970).
pub(crate) fn quota(headers: &HeaderMap, unit: ResetUnit, now: Duration) -> Option<Quota> {
    let now = text(headers, DATE.as_str()).and_then(date).unwrap_or(now);
    if let Some(fields) = text(headers, "ratelimit") {
        let policies = text(headers, "ratelimit-policy").unwrap_or_default();
        let items = fields.split(',').filter_map(|item| current(item, policies));
        let draft_7 = || previous(fields);
        // Of several windows, the one with the fewest requests left, and of those the longest.
        let tightest = items.min_by_key(|quota| (quota.left, std::cmp::Reverse(quota.reset)));
        return tightest.or_else(draft_7);
    }
    PAIRS.iter().find_map(|(left, reset)| {
        let left = text(headers, left)?.trim().parse().ok()?;
        let reset = reset_of(text(headers, reset)?, unit, now)?;
        Some(Quota { left, reset })
    })
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

fn date(text: &str) -> Option<Duration> {
    let time = httpdate::parse_http_date(text).ok()?;
    time.duration_since(UNIX_EPOCH).ok()
}

/// `"name";r=50;t=30`; without `t`, the window `w` of the policy of the same name.
fn current(item: &str, policies: &str) -> Option<Quota> {
    let left = parameter(item, "r")?;
    let named = |policy: &&str| name(policy) == name(item);
    let window = || parameter(policies.split(',').find(named)?, "w");
    let reset = parameter(item, "t").or_else(window)?;
    Some(Quota {
        left,
        reset: Duration::from_secs(reset),
    })
}

/// `limit=100, remaining=50, reset=5`, of draft 7.
fn previous(fields: &str) -> Option<Quota> {
    let value = |key: &str| {
        let mut pairs = fields.split(',').filter_map(|pair| pair.split_once('='));
        let (_, value) = pairs.find(|(name, _)| name.trim() == key)?;
        value.trim().parse().ok()
    };
    Some(Quota {
        left: value("remaining")?,
        reset: Duration::from_secs(value("reset")?),
    })
}

fn name(item: &str) -> &str {
    item.split(';').next().unwrap_or_default().trim()
}

fn parameter(item: &str, key: &str) -> Option<u64> {
    let mut pairs = item.split(';').filter_map(|pair| pair.split_once('='));
    let (_, value) = pairs.find(|(name, _)| name.trim() == key)?;
    value.trim().parse().ok()
}

/// Parses the wait until a reset. Returns `None` for a past reset and for an invalid number.
fn reset_of(text: &str, unit: ResetUnit, now: Duration) -> Option<Duration> {
    let (whole, fraction) = text.trim().split_once('.').unwrap_or((text.trim(), ""));
    let is_digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let number: u64 = whole.parse().ok().filter(|_| is_digits(fraction))?;
    let number = number.saturating_add(u64::from(fraction.bytes().any(|b| b != b'0')));
    let unit = match (unit, number) {
        (ResetUnit::Auto, ..100_000_000) => ResetUnit::DeltaS,
        (ResetUnit::Auto, ..100_000_000_000) => ResetUnit::EpochS,
        (ResetUnit::Auto, ..100_000_000_000_000) => ResetUnit::EpochMs,
        (ResetUnit::Auto, _) => return None,
        (unit, _) => unit,
    };
    let wait = match unit {
        ResetUnit::Auto | ResetUnit::DeltaS => Duration::from_secs(number),
        ResetUnit::DeltaMs => Duration::from_millis(number),
        ResetUnit::EpochS => Duration::from_secs(number).checked_sub(now)?,
        ResetUnit::EpochMs => Duration::from_millis(number).checked_sub(now)?,
    };
    (!wait.is_zero()).then_some(wait)
}

#[cfg(test)]
mod tests {
    use reqwest::header::{HeaderName, HeaderValue};

    use super::*;

    /// Sun, 06 Nov 1994 08:49:37 GMT.
    const NOW: Duration = Duration::from_secs(784_111_777);

    fn of(lines: &[(&str, &str)], unit: ResetUnit) -> Option<(u64, u64)> {
        let headers = lines.iter().map(|(name, value)| {
            let name = HeaderName::try_from(*name).unwrap();
            (name, HeaderValue::try_from(*value).unwrap())
        });
        let quota = quota(&headers.collect(), unit, NOW)?;
        Some((quota.left, u64::try_from(quota.reset.as_millis()).unwrap()))
    }

    #[test]
    fn fault_16_a_reset_is_understood_as_epoch_delta_and_milliseconds() {
        let check = |reset: &str, unit, expected: Option<u64>| {
            let lines = [("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", reset)];
            let found = of(&lines, unit).map(|(_, reset)| reset);
            assert_eq!(found, expected, "{reset} {unit:?}");
        };
        check("784111807", ResetUnit::Auto, Some(30_000));
        check("784111807500", ResetUnit::Auto, Some(30_500));
        check("30", ResetUnit::Auto, Some(30_000));
        check("29.1", ResetUnit::Auto, Some(30_000));
        check("3000", ResetUnit::DeltaMs, Some(3_000));
        check("3000", ResetUnit::DeltaS, Some(3_000_000));
        check("784111807", ResetUnit::EpochS, Some(30_000));
        check("784111778000", ResetUnit::EpochMs, Some(1_000));
        // Over already, or no time at all.
        for none in [
            "784111777",
            "784111000",
            "0",
            "-3",
            "soon",
            "",
            "1e3",
            "99999999999999999",
        ] {
            check(none, ResetUnit::Auto, None);
        }
    }

    #[test]
    fn fault_16_a_wrong_clock_is_corrected_by_the_date_of_the_answer() {
        // The server's clock is five minutes ahead of ours, its quota is back in 30 s.
        let lines = [
            ("x-ratelimit-remaining", "3"),
            ("x-ratelimit-reset", "784112107"),
            ("date", "Sun, 06 Nov 1994 08:54:37 GMT"),
        ];
        assert_eq!(of(&lines, ResetUnit::Auto), Some((3, 30_000)));
        assert_eq!(of(&lines[..2], ResetUnit::Auto), Some((3, 330_000)));
    }

    #[test]
    fn the_headers_of_the_standard_are_read_in_their_forms() {
        let check = |lines: &[(&str, &str)], expected| {
            assert_eq!(of(lines, ResetUnit::EpochS), expected, "{lines:?}");
        };
        check(
            &[("ratelimit", "\"default\";r=50;t=30")],
            Some((50, 30_000)),
        );
        check(
            &[("ratelimit", "\"day\";r=7;t=900, \"burst\"; r=0; t=2")],
            Some((0, 2_000)),
        );
        check(
            &[("ratelimit", "\"a\";r=0;t=2, \"b\";r=0;t=9")],
            Some((0, 9_000)),
        );
        check(
            &[
                ("ratelimit", "\"b\";r=0"),
                ("ratelimit-policy", "\"a\";q=9;w=1, \"b\";q=100;w=60"),
            ],
            Some((0, 60_000)),
        );
        check(&[("ratelimit", "\"b\";r=0")], None);
        check(
            &[("ratelimit", "limit=9, remaining=4, reset=6")],
            Some((4, 6_000)),
        );
        check(&[("ratelimit", "nonsense")], None);
        let lines = [
            ("ratelimit-remaining", "1"),
            ("ratelimit-reset", "784111782"),
        ];
        check(&lines, Some((1, 5_000)));
        check(&[("x-ratelimit-remaining", "1")], None);
    }
}
