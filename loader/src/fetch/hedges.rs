//! A budget for additional requests.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

/// Credit that a request earns, or a hedge costs, is counted in thousandths.
const HEDGE: i64 = 1000;
/// Hedges that can be saved up, so that a burst of late responses finds some.
const MOST: i64 = 16 * HEDGE;

/// So many hedges in a thousand requests, and no more.
#[derive(Debug)]
pub(crate) struct HedgeBudget {
    permille: i64,
    saved: AtomicI64,
}

impl HedgeBudget {
    pub(crate) const fn new(permille: u32) -> Self {
        Self {
            permille: permille as i64,
            saved: AtomicI64::new(0),
        }
    }

    /// Counts a request that is not a hedge.
    pub(crate) fn earn(&self) {
        let earn = |saved: i64| Some((saved + self.permille).min(MOST));
        // The update never says no.
        self.saved.fetch_update(Relaxed, Relaxed, earn).ok();
    }

    /// Returns true if a hedge may be made now; it is then paid for.
    pub(crate) fn spend(&self) -> bool {
        let spend = |saved: i64| (saved >= HEDGE).then_some(saved - HEDGE);
        self.saved.fetch_update(Relaxed, Relaxed, spend).is_ok()
    }

    pub(crate) const fn is_off(&self) -> bool {
        self.permille == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hedges_are_a_share_of_the_requests() {
        let budget = HedgeBudget::new(50);
        assert!(!budget.spend(), "nothing is saved at the start");
        let mut hedges = 0;
        for _ in 0..10_000 {
            budget.earn();
            hedges += u32::from(budget.spend());
        }
        assert_eq!(hedges, 500);
        for _ in 0..10_000 {
            budget.earn();
        }
        assert_eq!((0..100).filter(|_| budget.spend()).count(), 16);
    }
}
