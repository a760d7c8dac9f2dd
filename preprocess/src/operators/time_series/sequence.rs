//! `[dataset.sequence]`: rows of a series that follow one another become windows.

use std::collections::VecDeque;

use feedline_schemas::{
    config::{Bounded, DatasetConfig, StepConfig},
    manifest::SequenceCounts,
};

use crate::Error;

const KEY: &str = "dataset.sequence";

/// Windows over a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sequence {
    /// Rows of one.
    pub(crate) length: u32,
    /// Rows from the last one to that of the target.
    pub(crate) horizon: u32,
    stride: u32,
    /// Rows of a season, where one is given.
    pub(crate) season: Option<u32>,
}

/// The windows that a dataset asks for.
///
/// # Errors
/// [`Error::Config`] for numbers out of range, and for inputs that would leak another row's target
/// into a window.
pub(super) fn resolve(
    config: &DatasetConfig,
    entity: &[String],
) -> Result<Option<Sequence>, Error> {
    let Some(sequence) = &config.sequence else {
        return Ok(None);
    };
    let refused = |field: &str, reason: &str| Err(Error::config(format!("{KEY}.{field}"), reason));
    if sequence.season.is_some() && config.target.is_none() {
        return refused("season", "there is no `dataset.target`, remove this key");
    }
    let horizon = match config.target {
        Some(_) => sequence.horizon.map_or(1, Bounded::get),
        None if sequence.horizon.is_some() => {
            return refused("horizon", "there is no `dataset.target`, remove this key");
        }
        None => 0,
    };
    let stride = sequence.stride.map_or(1, Bounded::get);
    if config.step.iter().flatten().any(StepConfig::is_of_target) {
        let reason = "a category that is encoded by the target would tell a window the target of the rows behind it; use \
                      another `encoding`, or remove this section";
        return Err(Error::config(KEY, reason));
    }
    let split = &config.split;
    let of_entities = !split.key.is_empty() && split.key.iter().all(|key| entity.contains(key));
    if split.by.is_key() && !of_entities && split.train < 1.0 {
        let reason = "rows that follow one another would be in different splits, and hardly a window be complete; split by time \
                      (`by = \"time\"`), by `\"range\"` where rows land in the order of time, or let `dataset.split.key` name columns \
                      of `dataset.series.entity`";
        return Err(Error::config("dataset.split.by", reason));
    }
    Ok(Some(Sequence {
        length: sequence.length.get(),
        horizon,
        stride,
        season: sequence.season.map(Bounded::get),
    }))
}

impl Sequence {
    #[cfg(test)]
    pub(crate) const fn testing(length: u32, horizon: u32, season: Option<u32>) -> Self {
        Self {
            length,
            horizon,
            stride: 1,
            season,
        }
    }

    /// The same windows over all rows, each with the row that it ends with, whether or not that of its target is there.
    pub(crate) const fn of_ends(self) -> Self {
        Self {
            horizon: 0,
            stride: 1,
            ..self
        }
    }

    /// Rows from the first of a window to that of its target.
    pub(super) fn span(self) -> u64 {
        u64::from(self.length) + u64::from(self.horizon)
    }
}

/// Makes windows of the rows of one split, which come by entity and in the order of time.
#[derive(Debug)]
pub(crate) struct Windows {
    sequence: Sequence,
    /// Numbers of a row.
    features: usize,
    entity: Vec<u8>,
    /// Place of the last row among those of its entity.
    place: i64,
    /// Rows up to it that follow one another.
    run: u64,
    /// Numbers of the newest of them, as far back as a window and its target reach.
    held: VecDeque<f32>,
    incomplete: u64,
    skipped: u64,
}

impl Windows {
    pub(crate) fn new(sequence: Sequence, features: usize) -> Self {
        Self {
            sequence,
            features,
            entity: Vec::new(),
            place: 0,
            run: 0,
            held: VecDeque::new(),
            incomplete: 0,
            skipped: 0,
        }
    }

    /// Takes the next row, without numbers if it cannot be used. If it is the target of a window,
    /// adds the numbers of that window to `windows`, oldest row first, and returns true.
    pub(crate) fn step(
        &mut self,
        entity: &[u8],
        place: i64,
        row: Option<&[f32]>,
        windows: &mut Vec<f32>,
    ) -> bool {
        if self.run == 0 || self.entity != entity || self.place.checked_add(1) != Some(place) {
            self.begin();
            self.entity.clear();
            self.entity.extend_from_slice(entity);
        }
        self.place = place;
        let Some(row) = row else {
            self.begin();
            return false;
        };
        self.held.extend(row);
        self.run += 1;
        let span = self.sequence.span();
        if self.run < span {
            self.incomplete += 1;
            return false;
        }
        if self.run > span {
            self.held.drain(..self.features);
        }
        if !(self.run - span).is_multiple_of(u64::from(self.sequence.stride)) {
            self.skipped += 1;
            return false;
        }
        let numbers = self.features * self.sequence.length as usize;
        windows.extend(self.held.range(..numbers));
        true
    }

    /// Adds the counts of the rows to `counts`; `windows` were made of them.
    pub(crate) fn count(&self, windows: u64, counts: &mut SequenceCounts) {
        counts.windows += windows;
        counts.incomplete += self.incomplete;
        counts.skipped += self.skipped;
    }

    fn begin(&mut self) {
        self.run = 0;
        self.held.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sequence(length: u32, horizon: u32, stride: u32) -> Sequence {
        Sequence {
            stride,
            ..Sequence::testing(length, horizon, None)
        }
    }

    /// A row: its entity, its place, and whether it can be used. Its two numbers are entity and place.
    type Row = (u8, i64, bool);

    /// The windows, each with the row that it ends at.
    fn run(sequence: Sequence, rows: &[Row]) -> (Vec<(Row, Vec<f32>)>, SequenceCounts) {
        let mut windows = Windows::new(sequence, 2);
        let mut found = Vec::new();
        for row in rows {
            let (entity, place, is_good) = *row;
            let numbers = numbers(*row);
            let mut window = Vec::new();
            if windows.step(
                &[entity],
                place,
                is_good.then_some(&numbers[..]),
                &mut window,
            ) {
                found.push((*row, window));
            } else {
                assert!(window.is_empty());
            }
        }
        let mut counts = SequenceCounts::default();
        windows.count(found.len() as u64, &mut counts);
        (found, counts)
    }

    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    fn numbers((entity, place, _): Row) -> [f32; 2] {
        [f32::from(entity), place as f32]
    }

    fn check(sequence: Sequence, rows: &[Row], expected: &[(i64, &[i64])]) {
        let (found, _) = run(sequence, rows);
        let places = |window: &[f32]| -> Vec<f32> { window.chunks(2).map(|row| row[1]).collect() };
        let found: Vec<(i64, Vec<f32>)> = found.iter().map(|(row, w)| (row.1, places(w))).collect();
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let expected: Vec<(i64, Vec<f32>)> = expected
            .iter()
            .map(|(end, places)| (*end, places.iter().map(|place| *place as f32).collect()))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn windows_hold_rows_that_follow_one_another_and_end_before_their_target() {
        let rows: Vec<Row> = (0..6).map(|place| (1, place, true)).collect();
        check(
            sequence(3, 1, 1),
            &rows,
            &[(3, &[0, 1, 2]), (4, &[1, 2, 3]), (5, &[2, 3, 4])],
        );
        check(
            sequence(3, 0, 2),
            &rows,
            &[(2, &[0, 1, 2]), (4, &[2, 3, 4])],
        );
        check(sequence(2, 3, 1), &rows, &[(4, &[0, 1]), (5, &[1, 2])]);
        check(sequence(6, 1, 1), &rows, &[]);
        check(sequence(1, 0, 4), &rows, &[(0, &[0]), (4, &[4])]);
    }

    #[test]
    fn nothing_reaches_over_a_row_that_is_missing_or_cannot_be_used() {
        // The missing position is in another split, rejected, or a gap.
        let rows = [0, 1, 3, 4, 5].map(|place| (1, place, true));
        check(sequence(2, 1, 1), &rows, &[(5, &[3, 4])]);
        let rows = [0, 1, 2, 3, 4, 5].map(|place| (1, place, place != 2));
        check(sequence(2, 1, 1), &rows, &[(5, &[3, 4])]);
        // Another entity continues where this one ends.
        let rows = [(1, 0, true), (1, 1, true), (2, 2, true), (2, 3, true)];
        check(sequence(2, 1, 1), &rows, &[]);
    }

    proptest! {
        #[test]
        fn windows_are_those_that_a_look_at_all_rows_finds(
            steps in prop::collection::vec((0..12_u8, any::<bool>()), 1..80),
            length in 1..5_u32, horizon in 0..4_u32, stride in 1..4_u32,
        ) {
            let (mut entity, mut place) = (0, -1);
            let rows: Vec<Row> = steps.into_iter().map(|(step, is_good)| {
                match step {
                    0 => (entity, place) = (entity + 1, 0),
                    1 => place += 2,
                    _ => place += 1,
                }
                (entity, place, is_good || step > 4)
            }).collect();
            let (found, counts) = run(sequence(length, horizon, stride), &rows);
            let span = (length + horizon) as usize;
            let mut expected = Vec::new();
            let (mut run_of, mut all) = (0, 0);
            for end in 0..rows.len() {
                let follows = end > 0 && rows[end - 1].2 && rows[end - 1].0 == rows[end].0
                    && rows[end - 1].1 + 1 == rows[end].1;
                run_of = match (rows[end].2, follows) {
                    (false, _) => 0,
                    (true, false) => 1,
                    (true, true) => run_of + 1,
                };
                if run_of >= span {
                    all += 1;
                    if (run_of - span).is_multiple_of(stride as usize) {
                        let first = end + 1 - span;
                        let window = &rows[first..first + length as usize];
                        expected.push((rows[end], window.iter().flat_map(|row| numbers(*row)).collect::<Vec<f32>>()));
                    }
                }
            }
            prop_assert_eq!(&found, &expected);
            let good = rows.iter().filter(|row| row.2).count();
            let [all, good] = [all, good].map(|count: usize| count as u64);
            prop_assert_eq!(counts.windows + counts.skipped, all);
            prop_assert_eq!(counts.windows + counts.skipped + counts.incomplete, good);
        }
    }
}
