//! Training rows that are later than rows of validation or test of their entity, and those earlier
//! rows, in a series that is split by another order than that of time.

use arrow::{
    array::AsArray,
    datatypes::{Int64Type, UInt8Type},
};
use datafusion::logical_expr::ident;
use feedline_schemas::manifest::Split;
use futures::TryStreamExt;

use crate::{
    Error,
    operators::{
        split::code,
        time_series::{ENTITY, TIME},
    },
    schema::system_columns::{self, column},
    staging::Staged,
    warnings::LaterTrainingRows,
};

/// Counts such rows in a pass over all rows by entity and time. Rejected rows are in no split.
///
/// # Errors
/// Failures of the engine.
pub(crate) async fn count_later_rows(staged: &Staged) -> Result<LaterTrainingRows, Error> {
    let columns = || [ENTITY, TIME, system_columns::SPLIT].map(ident).to_vec();
    let mut rows = staged.frame(Split::Train)?.select(columns())?;
    for split in [Split::Validation, Split::Test] {
        rows = rows.union(staged.frame(split)?.select(columns())?)?;
    }
    let by_time = [ENTITY, TIME, system_columns::SPLIT];
    let by_time = by_time.map(|name| ident(name).sort(true, false));
    let mut stream = rows.sort(Vec::from(by_time))?.execute_stream().await?;
    let mut counter = LaterRowCounter::default();
    while let Some(batch) = stream.try_next().await? {
        let entities = column(&batch, ENTITY).as_fixed_size_binary();
        let times = column(&batch, TIME).as_primitive::<Int64Type>();
        let splits = column(&batch, system_columns::SPLIT).as_primitive::<UInt8Type>();
        for row in 0..batch.num_rows() {
            counter.add(entities.value(row), times.value(row), splits.value(row));
        }
    }
    Ok(counter.counts)
}

#[derive(Default)]
struct LaterRowCounter {
    entity: Vec<u8>,
    /// Time and split of the oldest row of the entity that is not in training.
    oldest: Option<(i64, Split)>,
    /// Time of the newest such row, with their numbers before and at it, as far as no training row is
    /// later.
    newest: Option<(i64, [u64; 2])>,
    /// True once the entity was counted.
    is_counted: bool,
    counts: LaterTrainingRows,
}

impl LaterRowCounter {
    /// Adds the next row by entity and time.
    fn add(&mut self, entity: &[u8], time: i64, split: u8) {
        if self.entity != entity {
            self.entity = entity.to_vec();
            self.oldest = None;
            self.newest = None;
            self.is_counted = false;
        }
        let mut others = [Split::Validation, Split::Test].into_iter();
        if let Some(other) = others.find(|other| code(*other) == split) {
            self.oldest.get_or_insert((time, other));
            self.newest = Some(match self.newest {
                Some((newest, [before, at])) if newest == time => (time, [before, at + 1]),
                Some((_, [before, at])) => (time, [before + at, 1]),
                None => (time, [0, 1]),
            });
            return;
        }
        let Some((oldest, other)) = self.oldest.filter(|(oldest, _)| *oldest < time) else {
            return;
        };
        self.counts.rows += 1;
        if let Some((newest, [before, at])) = self.newest.take() {
            self.counts.earlier_rows += before;
            match newest < time {
                true => self.counts.earlier_rows += at,
                false => self.newest = Some((newest, [0, at])),
            }
        }
        self.counts.entities += u64::from(!self.is_counted);
        self.is_counted = true;
        self.counts.first.get_or_insert((time, oldest, other));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_training_behind_the_oldest_other_row_of_their_entity_are_counted() {
        let mut counter = LaterRowCounter::default();
        for (entity, time, split) in [
            (b"a", 1, Split::Train),
            (b"a", 2, Split::Test),
            (b"a", 2, Split::Train),
            (b"a", 3, Split::Validation),
            (b"a", 4, Split::Train),
            (b"a", 5, Split::Train),
            (b"b", 6, Split::Train),
            (b"b", 7, Split::Validation),
            (b"c", 1, Split::Validation),
            (b"c", 9, Split::Train),
            (b"c", 10, Split::Train),
            (b"c", 10, Split::Test),
        ] {
            counter.add(entity, time, code(split));
        }
        let expected = LaterTrainingRows {
            rows: 4,
            earlier_rows: 3,
            entities: 2,
            first: Some((4, 2, Split::Test)),
        };
        assert_eq!(counter.counts, expected);
    }
}
