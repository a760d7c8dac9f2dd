//! Check that no row is made of rows of another split, based on the rows themselves, however they
//! were split.

use arrow::{
    array::{Array, AsArray},
    datatypes::{Int64Type, UInt8Type},
};
use datafusion::logical_expr::ident;
use feedline_schemas::{count::counted, manifest::Split};
use futures::TryStreamExt;

use crate::{
    Error,
    operators::{
        split::code,
        time_series::{ENTITY, REACH, Series, TIME, instant},
    },
    schema::system_columns::{self, column},
    staging::Staged,
};

/// Looks for rows that look back at rows of another split. Rejected rows are in none.
///
/// # Errors
/// [`Error::Config`] with how many there are and what to do.
pub(crate) async fn check(series: Option<&Series>, staged: &Staged) -> Result<(), Error> {
    if !series.is_some_and(Series::looks_back_within_split) {
        return Ok(());
    }
    let columns = || {
        [
            ENTITY,
            TIME,
            system_columns::ORIGIN,
            REACH,
            system_columns::SPLIT,
        ]
        .map(ident)
        .to_vec()
    };
    let mut rows = staged.frame(Split::Train)?.select(columns())?;
    for split in [Split::Validation, Split::Test] {
        rows = rows.union(staged.frame(split)?.select(columns())?)?;
    }
    let sorted = rows.sort(vec![
        ident(ENTITY).sort(true, false),
        ident(TIME).sort(true, false),
        ident(system_columns::ORIGIN).sort(true, false),
    ])?;
    let mut stream = sorted.execute_stream().await?;
    let mut looking = Looking::default();
    while let Some(batch) = stream.try_next().await? {
        let entities = column(&batch, ENTITY).as_fixed_size_binary();
        let times = column(&batch, TIME).as_primitive::<Int64Type>();
        let reaches = column(&batch, REACH).as_primitive::<Int64Type>();
        let splits = column(&batch, system_columns::SPLIT).as_primitive::<UInt8Type>();
        for row in 0..batch.num_rows() {
            let reach = reaches.is_valid(row).then(|| reaches.value(row));
            looking.take(
                entities.value(row),
                times.value(row),
                reach,
                splits.value(row),
            );
        }
    }
    looking.found()
}

#[derive(Default)]
struct Looking {
    entity: Vec<u8>,
    /// Time of the newest row of each split.
    newest: [Option<i64>; 3],
    rows: u64,
    /// Time of the first, what it reaches back to, and the two splits.
    first: Option<(i64, i64, [Split; 2])>,
}

impl Looking {
    fn take(&mut self, entity: &[u8], time: i64, reach: Option<i64>, split: u8) {
        if self.entity != entity {
            self.entity = entity.to_vec();
            self.newest = [None; 3];
        }
        let seen = reach.and_then(|reach| {
            let mut others = Split::ALL.into_iter().filter(|other| code(*other) != split);
            let newest = |other: &Split| self.newest[usize::from(code(*other))];
            let other = others.find(|other| newest(other).is_some_and(|newest| newest >= reach));
            other.map(|other| (other, reach))
        });
        if let Some((other, reach)) = seen {
            self.rows += 1;
            let own = Split::ALL[usize::from(split)];
            self.first.get_or_insert((time, reach, [own, other]));
        }
        self.newest[usize::from(split)] = Some(time);
    }

    fn found(self) -> Result<(), Error> {
        let Some((time, reach, [own, other])) = self.first else {
            return Ok(());
        };
        Err(Error::config(
            "dataset.split.embargo",
            format!(
                "features of {} are made of rows of another split, such as those of a row of the {own} split at {}, which \
                 look back to {} over rows of the {other} split; let an embargo reject as long a span \
                 (`by = \"time\"`) or as many rows (`by = \"range\"`) behind each boundary as features look back over, or set `dataset.series.warm_start = true` where a model will have that past at hand when \
                 it predicts",
                counted(self.rows, "row"),
                instant::shown(time),
                instant::shown(reach),
            ),
        ))
    }
}
