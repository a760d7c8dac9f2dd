//! Target statistics over the rows of each value of a category, out of fold.
//!
//! One pass adds the targets up by value and fold, exactly, so that neither order nor partitions matter; all but one fold are
//! then put together, so that nothing is subtracted and no row's own target is in what it gets.

use std::collections::HashMap;

use datafusion::{
    arrow::{
        array::{Array, AsArray, RecordBatch},
        datatypes::Float64Type,
    },
    logical_expr::ident,
};
use feedline_schemas::{
    config::{TargetEncoding, Task},
    transform::{
        FIRST_KNOWN_ID, FittedCategories, FittedOutcome, FittedOutcomes, FoldBy, NULL_ID,
        UNKNOWN_ID,
    },
};
use futures::TryStreamExt;

use super::{
    fit_spec::TargetSpec,
    progress::{Fit, STEP, is_constant},
};
use crate::{
    Error,
    operators::split::Folds,
    schema::system_columns,
    statistics::exact_sum::{ExactMoments, ExactTotal},
};

/// Most classes that a category becomes the shares of.
const MOST_CLASSES: usize = 100;
/// Most numbers of one column: the artefact holds them.
const MOST_NUMBERS: usize = 5_000_000;

/// Targets by id and fold.
struct Sums {
    folds: usize,
    by: By,
}

enum By {
    /// Sums by place, and of each fold all of them.
    Number {
        totals: Vec<ExactTotal>,
        moments: Vec<ExactMoments>,
        scale: bool,
    },
    /// Rows of each class by place.
    Class {
        ids: HashMap<String, usize>,
        counts: Vec<Vec<u64>>,
    },
}

/// Some folds put together.
struct Together {
    /// Mean target, or share, per element.
    means: Vec<f64>,
    /// Offset and scale that are applied then.
    offset: f64,
    scale: f64,
}

impl Fit {
    /// Target statistics over the rows of each value of `known`.
    pub(super) async fn outcomes(
        &self,
        step: &TargetEncoding,
        known: &FittedCategories,
    ) -> Result<FittedOutcomes, Error> {
        let target = self.target.as_ref().ok_or_else(|| {
            Error::config(STEP, "`encoding = \"target\"` needs a `dataset.target`")
        })?;
        let (folds, smoothing) = (step.folds.get(), step.smoothing.get());
        let classes = match target.task {
            Task::Regression => Vec::new(),
            Task::Classification => self.sorted_classes(&target.column).await?,
        };
        let elements = elements(&classes);
        let numbers = (folds as usize + 1) * elements.len() * (known.values.len() + 2);
        if numbers > MOST_NUMBERS {
            let reason = format!(
                "column `{}` would become {numbers} numbers in the artefact, more than {MOST_NUMBERS}: lower `max_values` or \
                 `folds`, or raise `min_count`",
                known.name
            );
            return Err(Error::config(STEP, reason));
        }
        let (fold_by, hash) = self.fold_by();
        let sums = self.summed(target, known, classes, (folds, hash)).await?;
        let mut found: Vec<FittedOutcome> = elements
            .into_iter()
            .map(|class| FittedOutcome {
                class,
                all: Vec::new(),
                others: Vec::new(),
            })
            .collect();
        for left_out in (0..sums.folds).map(Some).chain([None]) {
            let numbers = sums.numbers(left_out, known.values.len(), smoothing, found.len());
            let numbers = numbers.ok_or_else(|| too_few(&known.name, folds, fold_by))?;
            for (element, numbers) in found.iter_mut().zip(numbers) {
                match left_out {
                    Some(_) => element.others.push(numbers),
                    None => element.all = numbers,
                }
            }
        }
        Ok(FittedOutcomes {
            folds,
            fold_by,
            smoothing,
            elements: found,
        })
    }

    /// The hash that rows of one fold share, and its column. Rows of a group that the split holds together are in one fold:
    /// a row would get the target of its siblings otherwise, which no row of another split gets.
    fn fold_by(&self) -> (FoldBy, &'static str) {
        match self.rows.data_type(system_columns::GROUP) {
            Ok(_) => (FoldBy::Group, system_columns::GROUP),
            Err(_) => (FoldBy::Content, system_columns::HASH),
        }
    }

    /// Classes of the training split by bytes: an order that no count changes.
    async fn sorted_classes(&self, column: &str) -> Result<Vec<String>, Error> {
        let found = self.rows.frequent_texts(column, MOST_CLASSES + 1).await?;
        if found.len() > MOST_CLASSES {
            let reason = format!(
                "the target has more than {MOST_CLASSES} classes, and `encoding = \"target\"` makes an element of each; use \
                 another encoding"
            );
            return Err(Error::config(STEP, reason));
        }
        let mut classes: Vec<String> = found.into_iter().map(|class| class.value).collect();
        classes.sort_unstable();
        Ok(classes)
    }

    /// The targets by id and fold.
    async fn summed(
        &self,
        target: &TargetSpec,
        known: &FittedCategories,
        classes: Vec<String>,
        (folds, hash): (u32, &str),
    ) -> Result<Sums, Error> {
        let ids = (FIRST_KNOWN_ID..).zip(&known.values);
        let ids: HashMap<&str, u32> = ids.map(|(id, value)| (value.as_str(), id)).collect();
        let of_row = Folds::new(folds);
        let mut sums = Sums::new(target, known.values.len(), classes, folds as usize);
        let wanted = vec![
            ident(&known.name).alias("value"),
            ident(&target.column).alias("outcome"),
            ident(hash),
        ];
        let frame = self.rows.frame().select(wanted)?;
        let mut stream = Box::pin(frame.execute_stream()).await?;
        while let Some(batch) = stream.try_next().await? {
            let values = batch.column(0).as_string::<i32>();
            let hashes = batch.column(2).as_fixed_size_binary();
            for row in 0..batch.num_rows() {
                let id = match values.is_valid(row).then(|| values.value(row)) {
                    None => NULL_ID,
                    Some(value) => ids.get(value).copied().unwrap_or(UNKNOWN_ID),
                };
                sums.add(&batch, row, id as usize, of_row.of(hashes.value(row)));
            }
        }
        Ok(sums)
    }
}

/// Classes that become an element; `None` for a number. Of two fractions one follows from the
/// other.
fn elements(classes: &[String]) -> Vec<Option<String>> {
    match classes {
        [] => vec![None],
        [_, second] => vec![Some(second.clone())],
        all => all.iter().cloned().map(Some).collect(),
    }
}

impl Sums {
    fn new(target: &TargetSpec, values: usize, classes: Vec<String>, folds: usize) -> Self {
        let places = (values + FIRST_KNOWN_ID as usize) * folds;
        let by = match target.task {
            Task::Regression => By::Number {
                totals: vec![ExactTotal::default(); places],
                moments: vec![ExactMoments::default(); folds],
                scale: target.scale,
            },
            Task::Classification => By::Class {
                counts: vec![vec![0; classes.len()]; places],
                ids: classes.into_iter().zip(0..).collect(),
            },
        };
        Self { folds, by }
    }

    /// Adds the target of a row of a batch; rows without a usable one are not part of the split.
    fn add(&mut self, batch: &RecordBatch, row: usize, id: usize, fold: usize) {
        let place = id * self.folds + fold;
        match &mut self.by {
            By::Number {
                totals, moments, ..
            } => {
                let outcomes = batch.column(1).as_primitive::<Float64Type>();
                let outcome = outcomes.is_valid(row).then(|| outcomes.value(row));
                if let Some(outcome) = outcome.filter(|outcome| outcome.is_finite()) {
                    totals[place].add(outcome);
                    moments[fold].add(outcome);
                }
            }
            By::Class { ids, counts } => {
                let outcomes = batch.column(1).as_string::<i32>();
                let outcome = outcomes.is_valid(row).then(|| outcomes.value(row));
                if let Some(class) = outcome.and_then(|class| ids.get(class)) {
                    counts[place][*class] += 1;
                }
            }
        }
    }

    /// Numbers by element and id from all folds but `left_out`; `None` where these have no row.
    fn numbers(
        &self,
        left_out: Option<usize>,
        values: usize,
        smoothing: f64,
        elements: usize,
    ) -> Option<Vec<Vec<f64>>> {
        let folds: Vec<usize> = (0..self.folds)
            .filter(|fold| Some(*fold) != left_out)
            .collect();
        let ids = values + FIRST_KNOWN_ID as usize;
        let together = self.together(&folds, ids, elements)?;
        let mut numbers = vec![Vec::new(); elements];
        for id in 0..ids {
            let (count, sums) = match id == UNKNOWN_ID as usize {
                // Values that are unknown here are not those that will be.
                true => (0, vec![0.0; elements]),
                false => self.of_id(id, &folds, elements),
            };
            #[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
            let weight = count as f64 + smoothing;
            for ((numbers, sum), mean) in numbers.iter_mut().zip(sums).zip(&together.means) {
                let drawn = if weight > 0.0 {
                    (sum + smoothing * mean) / weight
                } else {
                    *mean
                };
                numbers.push((drawn - together.offset) / together.scale + 0.0);
            }
        }
        Some(numbers)
    }

    /// Rows of an id in `folds`, and the sum of their targets per element.
    fn of_id(&self, id: usize, folds: &[usize], elements: usize) -> (u64, Vec<f64>) {
        let places = folds.iter().map(|fold| id * self.folds + fold);
        match &self.by {
            By::Number { totals, .. } => {
                let mut total = ExactTotal::default();
                places.for_each(|place| total.merge(&totals[place]));
                (total.count(), vec![total.sum()])
            }
            By::Class { counts, .. } => of_classes(places.map(|place| &counts[place]), elements),
        }
    }

    fn together(&self, folds: &[usize], ids: usize, elements: usize) -> Option<Together> {
        match &self.by {
            By::Number { moments, scale, .. } => {
                let mut all = ExactMoments::default();
                folds.iter().for_each(|fold| all.merge(&moments[*fold]));
                let summary = all.summary()?;
                let constant = is_constant(summary, all.count());
                let (offset, divisor) = match (scale, constant) {
                    (false, _) => (0.0, 1.0),
                    (true, true) => (summary.mean, 1.0),
                    (true, false) => (summary.mean, summary.deviation),
                };
                Some(Together {
                    means: vec![summary.mean],
                    offset,
                    scale: divisor,
                })
            }
            By::Class { counts, .. } => {
                let places =
                    (0..ids).flat_map(|id| folds.iter().map(move |fold| id * self.folds + fold));
                let (count, sums) = of_classes(places.map(|place| &counts[place]), elements);
                #[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
                let count = (count > 0).then_some(count as f64)?;
                Some(Together {
                    means: sums.into_iter().map(|sum| sum / count).collect(),
                    offset: 0.0,
                    scale: 1.0,
                })
            }
        }
    }
}

/// Rows of all classes, and of the last `elements` of them.
fn of_classes<'a>(counts: impl Iterator<Item = &'a Vec<u64>>, elements: usize) -> (u64, Vec<f64>) {
    let (mut all, mut own) = (0, vec![0; elements]);
    for counts in counts {
        all += counts.iter().sum::<u64>();
        let last = &counts[counts.len().saturating_sub(elements)..];
        own.iter_mut()
            .zip(last)
            .for_each(|(own, count)| *own += count);
    }
    #[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
    let own = own.into_iter().map(|count: u64| count as f64);
    (all, own.collect())
}

fn too_few(column: &str, folds: u32, by: FoldBy) -> Error {
    let (why, more) = match by {
        FoldBy::Content => ("", "rows"),
        FoldBy::Group => (", as all rows of a group of the split are", "groups"),
    };
    Error::config(
        STEP,
        format!(
            "cannot encode column `{column}` by the target: all training rows are in one of {folds} folds{why}, so none of them \
             has others to learn from; land more {more}, or use another encoding"
        ),
    )
}
