//! The `Retry-After` header, in both of its forms (RFC 9110, section 10.2.3).

use std::time::Duration;

use crate::clock::{Clock as _, SystemClock};

/// Parses the wait: the header's seconds, or those until its date.
pub(crate) fn parse_retry_after(value: &str) -> Option<Duration> {
    let value = value.trim();
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = Duration::from_secs(seconds_of_date(value)?);
    Some(date.saturating_sub(SystemClock.unix()))
}

/// Seconds since 1970 of a date such as `Sun, 06 Nov 1994 08:49:37 GMT`.
fn seconds_of_date(date: &str) -> Option<u64> {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let parts: Vec<_> = date.split_ascii_whitespace().collect();
    let [_, day, month, year, time, "GMT"] = parts[..] else {
        return None;
    };
    let day: u64 = day.parse().ok().filter(|day| (1..=31).contains(day))?;
    let year: u64 = year
        .parse()
        .ok()
        .filter(|year| (1970..=9999).contains(year))?;
    let month = MONTHS.iter().position(|name| *name == month)? as u64;
    let time: Vec<u64> = time.split(':').filter_map(|n| n.parse().ok()).collect();
    let [hour @ ..24, minute @ ..60, second @ ..61] = time[..] else {
        return None;
    };
    // Years that begin in March put the leap day at their end, so that months have fixed starts.
    let (years, month) = if month < 2 {
        (year - 1, month + 10)
    } else {
        (year, month - 2)
    };
    let leap_days = years / 4 - years / 100 + years / 400;
    let days = years * 365 + leap_days + (month * 153 + 2) / 5 + day - 1;
    /// Days from March of year 0 to 1970-01-01.
    const EPOCH: u64 = 719_468;
    Some(((days - EPOCH) * 24 + hour) * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_read() {
        assert_eq!(parse_retry_after(" 7 "), Some(Duration::from_secs(7)));
        assert_eq!(
            parse_retry_after("Thu, 01 Jan 1970 00:00:00 GMT"),
            Some(Duration::ZERO)
        );
        assert_eq!(parse_retry_after("soon"), None);
        assert_eq!(
            seconds_of_date("Sun, 06 Nov 1994 08:49:37 GMT"),
            Some(784_111_777)
        );
        assert_eq!(seconds_of_date("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(
            seconds_of_date("Thu, 29 Feb 2024 12:00:00 GMT"),
            Some(1_709_208_000)
        );
        assert_eq!(seconds_of_date("Thu, 29 Feb 2024 25:00:00 GMT"), None);
    }
}
