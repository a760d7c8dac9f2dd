//! Timestamps in milliseconds since 1970.

use feedline_storage::clock::Clock;

/// Milliseconds since 1970.
pub(crate) fn now_ms(clock: &dyn Clock) -> u64 {
    u64::try_from(clock.unix().as_millis()).unwrap_or(u64::MAX)
}

/// Milliseconds since 1970 as a date and time in UTC.
pub(crate) fn moment(unix_ms: u64) -> String {
    let time = i64::try_from(unix_ms)
        .ok()
        .and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    time.map_or_else(
        || "-".to_owned(),
        |t| t.strftime("%Y-%m-%d %H:%M UTC").to_string(),
    )
}
