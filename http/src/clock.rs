//! Time as a component, so that tests need not wait.

use std::{
    fmt::Debug,
    sync::LazyLock,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// A source of time.
///
/// ```
/// use std::time::Duration;
///
/// use feedline_http::clock::Clock;
///
/// /// A clock for tests: it shows the start of 2026.
/// #[derive(Debug)]
/// struct Stopped;
///
/// impl Clock for Stopped {
///     fn monotonic(&self) -> Duration {
///         Duration::ZERO
///     }
///     fn unix(&self) -> Duration {
///         Duration::from_secs(1_767_225_600)
///     }
/// }
/// assert_eq!(Stopped.boot(), Stopped.monotonic());
/// ```
pub trait Clock: Debug + Send + Sync {
    /// Time since an arbitrary start; never goes back. For measuring and waiting.
    fn monotonic(&self) -> Duration;
    /// Time since an arbitrary start, including the time that the machine was suspended; never
    /// moves backwards. It measures waits on others, such as for a lease to end.
    fn boot(&self) -> Duration {
        self.monotonic()
    }
    /// Time since 1970-01-01 UTC; may jump. Only for display and for dates from servers.
    fn unix(&self) -> Duration;
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one place that reads the clock"
    )]
    fn monotonic(&self) -> Duration {
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        START.elapsed()
    }

    fn boot(&self) -> Duration {
        // The first number is the uptime including suspends; only Linux has this file.
        let uptime = std::fs::read_to_string("/proc/uptime").ok();
        let seconds = uptime.and_then(|text| text.split(' ').next()?.parse().ok());
        let uptime = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        uptime.unwrap_or_else(|| self.monotonic())
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one place that reads the clock"
    )]
    fn unix(&self) -> Duration {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
    }
}
