//! Perplexities of many windows, in a fixed number of counters.

use feedline_schemas::edit::Perplexities;

use crate::float_casts::{exact, exact_len};

/// Counters for each unit of the mean of `-ln p`: a quantile is within 0.025 % of the true
/// perplexity.
const OF_UNIT: f64 = 2048.0;

/// Counters, for means up to 32; what is beyond is counted with the last.
const COUNTERS: usize = 1 << 16;

/// Perplexities of windows.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PerplexityHistogram {
    counters: Vec<u64>,
    windows: u64,
    tokens: u64,
    loss: f64,
}

impl Default for PerplexityHistogram {
    fn default() -> Self {
        Self {
            counters: vec![0; COUNTERS],
            windows: 0,
            tokens: 0,
            loss: 0.0,
        }
    }
}

impl PerplexityHistogram {
    /// Adds a window of so many tokens, at least one, with this sum of `-ln p`.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is clamped to the counters before"
    )]
    pub(super) fn add(&mut self, loss: f64, tokens: usize) {
        let mean = loss / exact_len(tokens);
        let counter = (mean * OF_UNIT).clamp(0.0, exact_len(COUNTERS - 1));
        self.counters[counter as usize] += 1;
        self.windows += 1;
        self.tokens += tokens as u64;
        self.loss += loss;
    }

    /// Their distribution.
    pub(super) fn perplexities(&self) -> Perplexities {
        if self.windows == 0 {
            return Perplexities::default();
        }
        Perplexities {
            windows: self.windows,
            all: (self.loss / exact(self.tokens)).exp(),
            p1: self.quantile(1),
            p10: self.quantile(10),
            p50: self.quantile(50),
            p90: self.quantile(90),
            p99: self.quantile(99),
        }
    }

    /// The least perplexity that so many hundredths of the windows do not exceed.
    fn quantile(&self, percent: u64) -> f64 {
        let wanted = (self.windows * percent).div_ceil(100).max(1);
        let mut sums = self.counters.iter().scan(0, |sum, counter| {
            *sum += counter;
            Some(*sum)
        });
        let counter = sums.position(|sum| sum >= wanted).unwrap_or(COUNTERS - 1);
        ((exact_len(counter) + 0.5) / OF_UNIT).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_sorted_windows() {
        let means: Vec<f64> = (0..1234_u32)
            .map(|i| f64::from(i * 7919 % 1234) * 0.01)
            .collect();
        let mut histogram = PerplexityHistogram::default();
        for (i, mean) in means.iter().enumerate() {
            let tokens = i % 9 + 1;
            histogram.add(mean * exact_len(tokens), tokens);
        }
        let mut sorted = means;
        sorted.sort_by(f64::total_cmp);
        let found = histogram.perplexities();
        assert_eq!(found.windows, 1234);
        let quantiles = [
            (1, found.p1),
            (10, found.p10),
            (50, found.p50),
            (90, found.p90),
            (99, found.p99),
        ];
        for (percent, found) in quantiles {
            let expected = sorted[(1234_usize * percent).div_ceil(100) - 1].exp();
            assert!((found / expected - 1.0).abs() < 5e-4, "{percent}: {found}");
        }
    }

    #[test]
    fn all_tokens_together_count_alike() {
        let mut histogram = PerplexityHistogram::default();
        histogram.add(9.0, 9);
        histogram.add(3.0, 1);
        let found = histogram.perplexities();
        assert!((found.all - (1.2_f64).exp()).abs() < 1e-12);
    }

    #[test]
    fn nothing_has_no_perplexity_and_the_incredible_counts_as_the_last() {
        assert_eq!(
            PerplexityHistogram::default().perplexities(),
            Perplexities::default()
        );
        let mut histogram = PerplexityHistogram::default();
        histogram.add(1e9, 1);
        assert!(histogram.perplexities().p50 > 7e13);
    }
}
