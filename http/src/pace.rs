//! The least speed of a body.

use std::time::Duration;

use tokio::time::Instant;

/// Time window of the measured speed.
const WINDOW: Duration = Duration::from_secs(10);

/// Measures the speed of a body.
///
/// It is checked only when more of the body arrives: silence has a limit of its own
/// (`retry.read_timeout_ms`), and the last bytes of a body may be late.
#[derive(Debug)]
pub(crate) struct Pace {
    least_bytes_per_s: u64,
    /// Beginning of the window, and the bytes in it; none before the first bytes.
    window: Option<(Instant, u64)>,
}

impl Pace {
    /// Creates a check for a minimum speed; 0 means none.
    pub(crate) fn new(least_bytes_per_s: u64) -> Self {
        Self {
            least_bytes_per_s,
            window: None,
        }
    }

    /// Records `bytes` that arrived.
    ///
    /// # Errors
    /// The bytes that arrived in a window, if they are too few.
    pub(crate) fn came(&mut self, bytes: u64) -> Result<(), u64> {
        let now = Instant::now();
        let Some((since, so_far)) = &mut self.window else {
            self.window = Some((now, 0));
            return Ok(());
        };
        *so_far += bytes;
        let passed = now - *since;
        if passed < WINDOW {
            return Ok(());
        }
        let least = u128::from(self.least_bytes_per_s) * passed.as_millis() / 1_000;
        if u128::from(*so_far) < least {
            return Err(*so_far);
        }
        self.window = Some((now, 0));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of pieces of `bytes`, one per `pause_s`, after which a body is given up.
    async fn given_up(least: u64, bytes: u64, pause_s: u64) -> Option<u32> {
        let mut pace = Pace::new(least);
        for piece in 1..=60 {
            if pace.came(bytes).is_err() {
                return Some(piece);
            }
            tokio::time::sleep(Duration::from_secs(pause_s)).await;
        }
        None
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_is_given_up_after_a_window_that_brings_too_little() {
        assert_eq!(given_up(100, 1, 1).await, Some(11));
        assert_eq!(given_up(100, 99, 1).await, Some(11));
        assert_eq!(given_up(100, 101, 1).await, None);
        // Pieces of some size with long silences between them.
        assert_eq!(given_up(100, 4_096, 29).await, None);
        assert_eq!(given_up(100, 1, 29).await, Some(2));
        assert_eq!(given_up(0, 1, 29).await, None);
    }
}
