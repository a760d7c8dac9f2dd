//! Passes that end no later than a trusted clock allows.
//!
//! A future range must not be marked as done: an API returns nothing for it, and no later pass
//! would request it. A pass begins by this machine's clock. The first response reports the server's
//! clock; if that is earlier, the pass ends there. Earlier runs without the server's time may have
//! marked ranges beyond now as done. These ranges are re-read from the end of the last pass that
//! can be right.

use std::time::Duration;

use feedline_schemas::commit::Ledger;

use super::{Plan, intervals::below};
use feedline_http::server_time::TOLERANCE;

impl Plan {
    /// Takes the ends of earlier passes.
    pub(crate) fn learn(&mut self, ends: &[i64]) {
        self.ends = ends.to_vec();
        self.ends.sort_unstable();
        self.ends.dedup();
    }

    /// Returns true if the server's clock counts.
    pub(crate) fn asks_server(&self) -> bool {
        self.slices
            .as_ref()
            .is_some_and(|slices| slices.asks_server())
    }

    /// Returns the end of the last pass that may be right, if done ranges reach beyond `now`. In
    /// that case a clock was ahead.
    pub(crate) fn doubt(&self, ledger: &Ledger, now: Duration) -> Option<i64> {
        let reached = ledger
            .done
            .iter()
            .chain(&ledger.part)
            .map(|[_, to]| *to)
            .max()?;
        self.last_right(reached, now)
    }

    /// Returns the end of the last pass that may be right, if `reached` is beyond `now`.
    fn last_right(&self, reached: i64, now: Duration) -> Option<i64> {
        let slices = self.slices.as_ref()?;
        if reached <= slices.over_at(now.saturating_add(TOLERANCE))? {
            return None;
        }
        let over = slices.over_at(now)?;
        let right = self.ends.iter().rev().find(|end| **end <= over);
        Some(right.copied().unwrap_or_else(|| slices.start()))
    }

    /// Returns the ledger of a pass shortened to `now`; `None` if its end is not later. `is_ours`
    /// is true if this process began the pass. A pass of another process that began beyond now was
    /// begun by a clock that was ahead, so its progress is not trusted.
    pub(crate) fn end_at(&self, ledger: &Ledger, now: Duration, is_ours: bool) -> Option<Ledger> {
        let slices = self.slices.as_ref()?;
        slices.over_at(now)?;
        let mut cut = ledger.clone();
        let end = if is_ours {
            slices.range_at(now)[1]
        } else {
            let right = self.last_right(ledger.target[1], now)?;
            cut.done = below(cut.done, Some(right));
            cut.part = below(cut.part, Some(right));
            cut.reread = Some(cut.reread.map_or(right, |reread| reread.min(right)));
            right
        };
        if ledger.target[1] <= end {
            return None;
        }
        cut.target[1] = end.max(cut.target[0]);
        let slice = cut.slice.map(|[from, to]| [from, to.min(end)]);
        cut.slice = slice.filter(|[from, to]| from < to);
        cut.ends = match cut.slice {
            Some([_, to]) => {
                let ends = ledger.ends.iter().map(|upper| end.min(*upper));
                ends.filter(|upper| *upper > to).collect()
            }
            None => Vec::new(),
        };
        cut.ends.dedup();
        if cut.slice.is_none() {
            self.seek(&mut cut);
        }
        Some(self.close(cut))
    }
}
