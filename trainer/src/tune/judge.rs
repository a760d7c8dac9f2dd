//! Decision that a trial is hopeless.

use std::collections::BTreeMap;

use feedline_schemas::config::TuneStop;

/// Earlier trials below which none is called hopeless by the median.
const TRIALS_MIN: usize = 5;

/// One of so many continues at each rung of successive halving; rungs are this factor apart.
const FACTOR: u64 = 3;

/// Costs after each epoch of a trial, by epoch from 0.
pub(crate) type History = BTreeMap<u64, f64>;

/// The lowest cost up to and with an epoch; `None` when the trial did not get there.
fn best_until(history: &History, epoch: u64) -> Option<f64> {
    history.get(&epoch)?;
    let costs = history.range(..=epoch).map(|(_, cost)| *cost);
    Some(costs.fold(f64::INFINITY, f64::min))
}

/// Returns true if a trial that has reached `epoch` should be ended, by the history of earlier
/// trials.
pub(crate) fn hopeless(rule: TuneStop, earlier: &[History], own: &History, epoch: u64) -> bool {
    let Some(own) = best_until(own, epoch) else {
        return false;
    };
    let mut others: Vec<f64> = earlier
        .iter()
        .filter_map(|h| best_until(h, epoch))
        .collect();
    others.sort_by(f64::total_cmp);
    match rule {
        TuneStop::None => false,
        TuneStop::Median => others.len() >= TRIALS_MIN && own > median(&others),
        TuneStop::Halving => {
            let better = others.iter().filter(|cost| **cost < own).count() as u64;
            is_rung(epoch + 1) && better >= (others.len() as u64 + 1).div_ceil(FACTOR)
        }
    }
}

/// The first epoch after which a trial should have been ended.
pub(crate) fn first_hopeless(rule: TuneStop, earlier: &[History], own: &History) -> Option<u64> {
    own.keys()
        .copied()
        .find(|epoch| hopeless(rule, earlier, own, *epoch))
}

fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    }
}

/// 1, 3, 9, ...
fn is_rung(epochs: u64) -> bool {
    let mut left = epochs;
    while left > 1 && left.is_multiple_of(FACTOR) {
        left /= FACTOR;
    }
    left == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(costs: &[f64]) -> History {
        (0..).zip(costs.iter().copied()).collect()
    }

    #[test]
    fn a_trial_worse_than_the_median_of_five_is_hopeless() {
        let earlier: Vec<_> = [1.0, 2.0, 3.0, 4.0, 5.0]
            .map(|c| history(&[9.0, c]))
            .to_vec();
        let at = |earlier: &[History], costs: &[f64]| {
            first_hopeless(TuneStop::Median, earlier, &history(costs))
        };
        assert_eq!(at(&earlier, &[9.0, 3.5]), Some(1));
        assert_eq!(at(&earlier, &[9.0, 3.0]), None);
        assert_eq!(at(&earlier, &[2.5, 8.0]), None, "its best epoch counts");
        assert_eq!(at(&earlier[..4], &[9.5, 8.0]), None, "four are too few");
        assert_eq!(
            at(&earlier, &[9.0, 3.0, 99.0]),
            None,
            "none of the others got there"
        );
    }

    #[test]
    fn halving_ends_all_but_the_best_third_at_its_rungs() {
        let earlier: Vec<_> = [1.0, 2.0, 3.0, 4.0, 5.0].map(|c| history(&[c; 9])).to_vec();
        let at = |costs: &[f64]| first_hopeless(TuneStop::Halving, &earlier, &history(costs));
        assert_eq!(at(&[1.5; 9]), None);
        assert_eq!(at(&[2.5; 9]), Some(0));
        assert_eq!(at(&[1.5, 1.5, 1.5, 1.5]), None);
        assert_eq!(
            (1..30).filter(|e| is_rung(*e)).collect::<Vec<_>>(),
            [1, 3, 9, 27]
        );
        assert_eq!(
            first_hopeless(TuneStop::Halving, &[], &history(&[7.0])),
            None
        );
        assert_eq!(
            first_hopeless(TuneStop::None, &earlier, &history(&[7.0])),
            None
        );
    }
}
