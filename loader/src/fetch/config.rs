//! Settings of reading.

use std::time::Duration;

use crate::Error;

/// Settings of the requests for the bytes of a dataset. None of it changes which samples a batch
/// holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchConfig {
    /// Threads that read local files and check what they read, up to 64. Default 0, which is one for each two
    /// processors, but at least 2 and at most 8.
    pub local_threads: u32,
    /// An extent that cannot be read for this long ends the pass, 1 ms to 1 day. Longer rides out
    /// longer outages of the store, shorter reports them sooner. Default 5 min.
    pub deadline: Duration,
    /// A single request is given up after between this and the next setting, by how long others of its size took; at
    /// least 1 ms. Default 2 s.
    pub attempt_least: Duration,
    /// See above; time for the bytes at `least_bytes_per_second` is added. Default 30 s.
    pub attempt_most: Duration,
    /// A request whose bytes come slower than this for the length of `progress_window` is given up, at least 1.
    /// Default 64 KiB/s.
    pub least_bytes_per_second: u64,
    /// See above; at least 1 ms. Default 5 s.
    pub progress_window: Duration,
    /// Most additional requests that ask again for what is late, in thousandths of all, at most 1,000; 0 asks none.
    /// Default 45.
    pub hedge_permille: u32,
    /// Nothing is late before this time. Default 5 ms.
    pub hedge_least: Duration,
    /// Before the n-th retry, a random time up to `2^n` times this passes. Default 50 ms.
    pub backoff: Duration,
    /// Most of that time. Default 10 s.
    pub backoff_most: Duration,
    /// Seed of these random times. Ranks that have the same one still differ, by what happens to them. Default 0.
    pub seed: u64,
}

impl FetchConfig {
    /// The defaults.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            local_threads: 0,
            deadline: Duration::from_secs(300),
            attempt_least: Duration::from_secs(2),
            attempt_most: Duration::from_secs(30),
            least_bytes_per_second: 64 << 10,
            progress_window: Duration::from_secs(5),
            hedge_permille: 45,
            hedge_least: Duration::from_millis(5),
            backoff: Duration::from_millis(50),
            backoff_most: Duration::from_secs(10),
            seed: 0,
        }
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let refuse = |key, reason: String| Err(Error::Config { key, reason });
        let counts = [
            ("fetch.local_threads", self.local_threads, 0, 64),
            ("fetch.hedge_permille", self.hedge_permille, 0, 1000),
        ];
        for (key, value, least, most) in counts {
            if !(least..=most).contains(&value) {
                return refuse(key, format!("it is `{value}`, use `{least}` to `{most}`"));
            }
        }
        let day = Duration::from_secs(24 * 3600);
        let times = [
            ("fetch.deadline", self.deadline),
            ("fetch.attempt_least", self.attempt_least),
            ("fetch.attempt_most", self.attempt_most),
            ("fetch.progress_window", self.progress_window),
        ];
        for (key, value) in times {
            if value < Duration::from_millis(1) || value > day {
                return refuse(key, format!("it is `{value:?}`, use `1ms` to one day"));
            }
        }
        if self.attempt_most < self.attempt_least {
            let reason = "it is shorter than `fetch.attempt_least`".into();
            return refuse("fetch.attempt_most", reason);
        }
        if self.least_bytes_per_second == 0 {
            return refuse("fetch.least_bytes_per_second", "use at least `1`".into());
        }
        Ok(())
    }
}

impl Default for FetchConfig {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_out_of_range_are_named() {
        let check = |change: fn(&mut FetchConfig), message: &str| {
            let mut config = FetchConfig::new();
            assert!(config.check().is_ok());
            change(&mut config);
            assert_eq!(
                config.check().unwrap_err().to_string(),
                format!("cannot use loader setting {message}")
            );
        };
        check(
            |c| c.local_threads = 65,
            "`fetch.local_threads`: it is `65`, use `0` to `64`",
        );
        check(
            |c| c.deadline = Duration::ZERO,
            "`fetch.deadline`: it is `0ns`, use `1ms` to one day",
        );
        check(
            |c| c.attempt_most = Duration::from_secs(1),
            "`fetch.attempt_most`: it is shorter than `fetch.attempt_least`",
        );
        check(
            |c| c.least_bytes_per_second = 0,
            "`fetch.least_bytes_per_second`: use at least `1`",
        );
    }
}
