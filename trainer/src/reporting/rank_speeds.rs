//! Speed of ranks beside each other.

use serde::Serialize;

/// A rank that takes more than this many times as long as the others is a straggler.
const SLOW: f64 = 2.0;

/// Time of ranks for a step, without the time that they wait for each other.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct RankPace {
    /// Seconds of a step, by rank: waiting for data, computing, updating.
    pub(crate) rank_step_s: Vec<f64>,
    /// The rank whose time is the largest multiple of that of the others.
    slowest_rank: usize,
    /// Ratio of its time to that of the others.
    slowest_ratio: f64,
}

impl RankPace {
    /// Compares the seconds of at least two ranks.
    ///
    /// A rank is compared with the median of the others, the lower of the two in the middle of an even number: of two
    /// ranks each is compared with the other one, of three with the faster one.
    pub(crate) fn new(seconds: Vec<f64>) -> Self {
        let ratios = (0..seconds.len()).map(|rank| (rank, ratio(&seconds, rank)));
        let slowest = ratios.max_by(|(_, a), (_, b)| a.total_cmp(b));
        let (slowest_rank, slowest_ratio) = slowest.unwrap_or((0, 1.0));
        Self {
            rank_step_s: seconds,
            slowest_rank,
            slowest_ratio,
        }
    }

    /// Ranks that are too slow, each with its seconds and the multiple.
    pub(crate) fn stragglers(&self) -> impl Iterator<Item = (usize, f64, f64)> {
        let seconds = self.rank_step_s.iter().copied().enumerate();
        let ratios = seconds.map(|(rank, own)| (rank, own, ratio(&self.rank_step_s, rank)));
        ratios.filter(|(_, _, ratio)| *ratio > SLOW)
    }
}

/// A rank's seconds as a multiple of the lower median of the others'.
fn ratio(seconds: &[f64], rank: usize) -> f64 {
    let mut others = seconds.to_vec();
    let own = others.swap_remove(rank);
    others.sort_by(f64::total_cmp);
    let median = others.get(others.len().saturating_sub(1) / 2);
    match median {
        Some(median) if *median > 0.0 => own / median,
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slow(seconds: &[f64]) -> Vec<usize> {
        let pace = RankPace::new(seconds.to_vec());
        pace.stragglers().map(|(rank, _, _)| rank).collect()
    }

    #[test]
    fn a_rank_is_compared_with_the_others() {
        assert_eq!(slow(&[1.0, 1.9]), [0; 0]);
        assert_eq!(slow(&[1.0, 2.1]), [1]);
        assert_eq!(slow(&[2.1, 1.0]), [0]);
        assert_eq!(slow(&[1.0, 2.1, 2.2]), [1, 2]);
        assert_eq!(slow(&[5.0, 1.0, 1.0, 1.0]), [0]);
        assert_eq!(slow(&[5.0, 5.0, 1.0, 1.0]), [0, 1]);
        assert_eq!(slow(&[5.0, 5.0, 5.0, 1.0]), [0; 0]);
        assert_eq!(slow(&[0.0, 0.0]), [0; 0]);
    }

    #[test]
    fn the_slowest_is_named() {
        let pace = RankPace::new(vec![1.0, 3.0, 2.0]);
        assert_eq!(pace.slowest_rank, 1);
        assert_eq!(pace.slowest_ratio.to_bits(), 3.0_f64.to_bits());
    }
}
