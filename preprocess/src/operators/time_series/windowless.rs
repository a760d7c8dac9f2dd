//! Entities with enough rows for a window, where gaps and rejected rows leave none.

use std::sync::{Mutex, PoisonError};

use super::features::Series;

/// Entities that are named.
const NAMED: usize = 5;

/// Characters of a name.
const SHOWN: usize = 80;

/// Counts of all entities of a series whose samples are windows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WindowlessCounts {
    /// Rows from the first of a window to that of its target.
    pub(crate) span: u64,
    /// Entities with a usable row.
    pub(crate) entities: u64,
    /// Those with enough usable rows for a window, but nowhere enough of them in sequence.
    pub(crate) without: u64,
    /// Usable rows of these.
    pub(crate) rows: u64,
    /// The first of these, as far as the rows have the columns of the entity.
    pub(crate) names: Vec<String>,
    /// Entities with fewer usable rows than a window needs.
    pub(crate) short: u64,
}

/// Counts of the rows that have passed, for the warnings of a build.
#[derive(Debug, Default)]
pub(crate) struct WindowlessEntities(Mutex<WindowlessCounts>);

impl WindowlessEntities {
    /// Returns the counts of the last complete pass.
    pub(crate) fn read(&self) -> WindowlessCounts {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(super) fn set(&self, counts: WindowlessCounts) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = counts;
    }
}

/// Counts rows, entity by entity.
#[derive(Debug)]
pub(super) struct WindowlessCounter {
    entity: Vec<u8>,
    /// Its usable rows.
    rows: u64,
    /// Those up to the last one that follow one another, and its place.
    run: u64,
    place: i64,
    has_window: bool,
    name: Option<String>,
    all: WindowlessCounts,
}

impl WindowlessCounter {
    /// Counter for `series`; `None` if its samples are no windows.
    pub(super) fn of(series: &Series) -> Option<Self> {
        series.sequence.map(|sequence| Self::new(sequence.span()))
    }

    pub(super) fn new(span: u64) -> Self {
        Self {
            entity: Vec::new(),
            rows: 0,
            run: 0,
            place: 0,
            has_window: false,
            name: None,
            all: WindowlessCounts {
                span,
                ..WindowlessCounts::default()
            },
        }
    }

    /// Counts the next row, at `place` of its entity, which `name` names.
    pub(super) fn add(
        &mut self,
        entity: &[u8],
        place: i64,
        is_usable: bool,
        name: impl FnOnce() -> String,
    ) {
        if self.entity != entity {
            self.end_entity();
            self.entity.clear();
            self.entity.extend_from_slice(entity);
        }
        if !is_usable {
            self.run = 0;
            return;
        }
        let follows = self.run > 0 && self.place.checked_add(1) == Some(place);
        self.run = if follows { self.run + 1 } else { 1 };
        self.place = place;
        self.rows += 1;
        self.has_window |= self.run >= self.all.span;
        let is_without = self.rows >= self.all.span && !self.has_window;
        // Names take time, and most entities have a window.
        if is_without && self.name.is_none() && self.all.names.len() < NAMED {
            self.name = Some(name().chars().take(SHOWN).collect());
        }
    }

    fn end_entity(&mut self) {
        let name = self.name.take().filter(|name| !name.is_empty());
        if self.rows > 0 {
            self.all.entities += 1;
            if self.rows < self.all.span {
                self.all.short += 1;
            } else if !self.has_window {
                self.all.without += 1;
                self.all.rows += self.rows;
                self.all.names.extend(name);
            }
        }
        (self.rows, self.run, self.has_window) = (0, 0, false);
    }

    /// Ends the last entity, and returns the counts.
    pub(super) fn finish(&mut self) -> WindowlessCounts {
        self.end_entity();
        std::mem::take(&mut self.all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entities_with_enough_rows_and_no_run_of_them_are_counted_and_named() {
        let mut counter = WindowlessCounter::new(3);
        let mut add = |entity: u8, rows: &[(i64, bool)]| {
            for (place, is_usable) in rows {
                let name = || format!("e{entity}");
                counter.add(&[entity; 16], *place, *is_usable, name);
            }
        };
        add(1, &[(0, true), (1, true), (2, true), (9, true)]);
        // Gaps, and a rejected row.
        add(2, &[(0, true), (9, true), (10, true), (20, true)]);
        add(3, &[(0, true), (1, true), (2, false), (3, true), (4, true)]);
        // Too few rows for any window, and no usable one.
        add(4, &[(0, true), (1, true)]);
        add(5, &[(0, false), (1, false), (2, false)]);
        // Its first row follows the place of the entity before.
        add(6, &[(3, true), (4, true), (6, true)]);
        let expected = WindowlessCounts {
            span: 3,
            entities: 5,
            without: 3,
            rows: 11,
            names: ["e2", "e3", "e6"].map(str::to_owned).to_vec(),
            short: 1,
        };
        assert_eq!(counter.finish(), expected);
    }
}
