//! Hosts that asked to be left alone for a while: the requests that would follow wait too.

use std::{collections::HashMap, sync::Mutex, time::Duration};

use tokio::time::Instant;

/// Longest wait that is kept; a host that asks for more defers the run.
const MOST: Duration = Duration::from_secs(24 * 3600);

/// Until when each host is not to be asked.
#[derive(Debug, Default)]
pub(super) struct Hosts(Mutex<HashMap<String, Instant>>);

impl Hosts {
    /// Waits until `host` may be asked.
    pub(super) async fn wait(&self, host: &str) {
        while let Some(until) = self.until(host) {
            tokio::time::sleep_until(until).await;
        }
    }

    /// Notes that `host` is not to be asked for this time.
    pub(super) fn hold(&self, host: &str, asked: Duration) {
        let until = Instant::now() + asked.min(MOST);
        let mut hosts = self.0.lock().unwrap_or_else(|e| e.into_inner());
        let held = hosts.entry(host.to_owned()).or_insert(until);
        *held = until.max(*held);
    }

    fn until(&self, host: &str) -> Option<Instant> {
        let mut hosts = self.0.lock().unwrap_or_else(|e| e.into_inner());
        let until = *hosts.get(host)?;
        if until <= Instant::now() {
            hosts.remove(host);
            return None;
        }
        Some(until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_host_that_asked_for_time_is_left_alone_and_others_are_not() {
        let hosts = Hosts::default();
        hosts.hold("a", Duration::from_secs(7));
        hosts.hold("a", Duration::from_secs(3));
        let begin = Instant::now();
        hosts.wait("b").await;
        assert_eq!(begin.elapsed(), Duration::ZERO);
        hosts.wait("a").await;
        assert!(begin.elapsed() >= Duration::from_secs(7));
        hosts.wait("a").await;
        assert!(begin.elapsed() < Duration::from_secs(8));
    }
}
