//! Ranks that keep the others waiting.

use super::TrainSession;
use crate::{data::samples::Data, error::Error, reporting::rank_speeds::RankPace};

/// Fewest steps that ranks are compared over.
const STEPS_LEAST: u64 = 20;

impl<D: Data> TrainSession<'_, D> {
    /// Compares the speed of the ranks since the last call, once that is enough steps; all call it
    /// at the same step. Reports ranks that are too slow.
    ///
    /// # Errors
    /// [`Error::Rank`].
    pub(super) fn compare_pace(&mut self) -> Result<Option<RankPace>, Error> {
        let ranks = self.watch.ranks;
        if !ranks.are_many() {
            return Ok(None);
        }
        let Some(own) = self.meter.take_own_step(STEPS_LEAST) else {
            return Ok(None);
        };
        let gathered = ranks.gather(own.to_le_bytes().to_vec())?;
        // Who is fast has just waited here for the others.
        self.meter.begin(self.watch.clock.monotonic());
        let seconds = gathered.iter().map(|bytes| {
            let (words, _) = bytes.as_chunks::<8>();
            words.first().map_or(0.0, |word| f64::from_le_bytes(*word))
        });
        let pace = RankPace::new(seconds.collect());
        for (rank, step_s, times) in pace.stragglers().filter(|_| ranks.leads()) {
            let step = self.position.step.get();
            tracing::warn!(
                step,
                rank,
                step_s,
                times,
                all = ?pace.rank_step_s,
                "a rank is slower than the others, which wait for it: look at its machine"
            );
        }
        Ok(Some(pace))
    }
}
