//! Time between the rows of an entity, which dates the row that a window predicts.

use crate::operators::time_series::{self, Sequence};

/// Time between the rows of an entity.
#[derive(Debug, Default)]
pub(super) struct Pace {
    pub(super) entity: Vec<u8>,
    time: i64,
    step: i64,
    /// Rows, the last one included, that are equally far apart.
    rows: u64,
}

impl Pace {
    pub(super) fn enter(&mut self, entity: &[u8]) {
        if self.entity != entity {
            self.entity.clear();
            self.entity.extend_from_slice(entity);
            self.rows = 0;
        }
    }

    pub(super) fn step(&mut self, entity: &[u8], time: i64) {
        self.enter(entity);
        let step = time.saturating_sub(self.time);
        self.rows = match self.rows {
            0 => 1,
            1 => 2,
            rows if step == self.step => rows + 1,
            _ => 2,
        };
        (self.step, self.time) = (step, time);
    }

    /// The time of the row that a window which ends with the last one predicts.
    pub(super) fn ahead(&self, sequence: Sequence) -> Option<String> {
        if sequence.horizon == 0 {
            return Some(time_series::shown(self.time));
        }
        let is_even = self.rows >= u64::from(sequence.length.max(2));
        let ahead = self.step.checked_mul(i64::from(sequence.horizon));
        let at = ahead.and_then(|ahead| self.time.checked_add(ahead));
        at.filter(|_| is_even).map(time_series::shown)
    }
}
