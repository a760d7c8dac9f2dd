//! Numbers of some training rows: distinct ones that 32 bits make equal, and one far from all others that many rows have.

use std::sync::Arc;

use feedline_schemas::{
    expect::ExpectedColumn,
    report::{WarnedColumn, Warning},
    transform::{FittedStep, FittedTarget, InputKind, TransformArtefact},
};

use super::{
    extremes::{REPEATED, ROWS, advise_bound, allows},
    leakage::cells_of,
};
use crate::{
    Error,
    pipeline::prepare::Build,
    staging::{Ordered, Staged},
    statistics::target_leakage::{Cells, SAMPLE_ROWS},
    steps,
    transform::CellOp,
    warnings::{
        self,
        precision::{MergedNumbers, scaled_rounded, scaled_target_rounded},
    },
};

/// Fewest distinct numbers beside a repeated one: of fewer, such as codes and grades, one may be far from the others.
const DISTINCT: usize = 16;

/// Least multiple of the mean number of rows of the other distinct numbers that a repeated one has.
const FREQUENT: usize = 2;

/// Percentiles of the other numbers whose distance a repeated one must be away from all of them.
const MIDDLE: [usize; 2] = [5, 95];

/// Some rows, in the order of their shuffled keys.
type SampledRows = Arc<Vec<Ordered>>;

/// A numeric column, and the operations of its steps.
type ScaledColumn = (String, Vec<CellOp>);

impl Build<'_> {
    /// Some training rows with the inputs and the targets; none without inputs.
    pub(in crate::pipeline) async fn sample_train(
        &self,
        staged: &Staged,
        artefact: &TransformArtefact,
    ) -> Result<SampledRows, Error> {
        if artefact.inputs.is_empty() {
            return Ok(SampledRows::default());
        }
        let inputs = artefact.inputs.iter().map(|input| input.name.as_str());
        let mut names: Vec<&str> = inputs.collect();
        for target in self.spec.targets() {
            // The past of a target may be a feature.
            if !names.contains(&target.column.as_str()) {
                names.push(&target.column);
            }
        }
        Ok(Arc::new(staged.some_train(&names, SAMPLE_ROWS).await?))
    }

    /// Warns of distinct numbers that become equal, and of a repeated number of a feature, in `sample`, some training rows.
    pub(in crate::pipeline) async fn sampled_numbers(
        &self,
        sample: &SampledRows,
        artefact: &TransformArtefact,
    ) -> Result<Vec<Warning>, Error> {
        let mut found = self.merged_numbers(sample, artefact).await?;
        let repeated = self.repeated_features(sample, artefact, "training row");
        found.extend(repeated.await?);
        Ok(found)
    }

    /// Warns of features and targets many of whose distinct numbers become equal by their scale.
    async fn merged_numbers(
        &self,
        sample: &SampledRows,
        artefact: &TransformArtefact,
    ) -> Result<Vec<Warning>, Error> {
        let inputs = numeric_inputs(artefact);
        let features = inputs.filter_map(|name| Some((name.clone(), scaling(artefact, name)?)));
        let features: Vec<ScaledColumn> = features.collect();
        let targets: Vec<ScaledColumn> = artefact.targets().filter_map(scaled_target).collect();
        let sample = Arc::clone(sample);
        // It keeps a processor busy for a moment.
        let work = move || -> Result<_, Error> {
            let features = merged_columns(&features, &sample)?;
            Ok((features, merged_columns(&targets, &sample)?))
        };
        let joined = tokio::task::spawn_blocking(work).await;
        let (features, targets) = joined??;
        let targets = targets
            .iter()
            .map(|target| scaled_target_rounded(&target.name, &target.found));
        Ok(scaled_rounded(features)
            .into_iter()
            .chain(targets)
            .collect())
    }

    /// Warns of features with a number that many rows of `sample` have, far from all others, unless it is expected. `noun` names
    /// such a row.
    pub(in crate::pipeline) async fn repeated_features(
        &self,
        sample: &SampledRows,
        artefact: &TransformArtefact,
        noun: &'static str,
    ) -> Result<Option<Warning>, Error> {
        let names: Vec<String> = numeric_inputs(artefact).cloned().collect();
        let expected = self.spec.expect.as_ref();
        let expected = expected.map_or_else(Vec::new, |expect| expect.columns.clone());
        let sample = Arc::clone(sample);
        let work = move || repeated_columns(&names, &expected, &sample, noun);
        let joined = tokio::task::spawn_blocking(work).await;
        joined?
    }
}

/// Names of the numeric inputs.
fn numeric_inputs(artefact: &TransformArtefact) -> impl Iterator<Item = &String> {
    let inputs = artefact.inputs.iter();
    let numeric = inputs.filter(|input| input.kind == InputKind::Numeric);
    numeric.map(|input| &input.name)
}

/// Operations on the cells of an input, if its steps scale it. None of bins, which make numbers equal on purpose, and of steps by
/// group, whose operations differ from row to row.
fn scaling(artefact: &TransformArtefact, name: &str) -> Option<Vec<CellOp>> {
    let steps = artefact.steps.iter();
    let (mut ops, mut is_scaled) = (Vec::new(), false);
    for step in steps.filter(|step| steps::column(step, name).is_some()) {
        match step {
            FittedStep::Bin { .. } => return None,
            grouped if steps::is_grouped(grouped) => return None,
            FittedStep::Impute { .. } | FittedStep::Winsorize { .. } => {}
            _ => is_scaled = true,
        }
        ops.extend(steps::operation(step, name));
    }
    is_scaled.then_some(ops)
}

/// A numeric target that is not stored as it is. Another check is for one that is.
fn scaled_target(target: &FittedTarget) -> Option<ScaledColumn> {
    let FittedTarget::Regression {
        column,
        scale,
        offset,
        ..
    } = target
    else {
        return None;
    };
    let (mean, scale) = (*offset, *scale);
    let is_as_it_is = [scale, mean].map(f64::to_bits) == [1.0_f64, 0.0].map(f64::to_bits);
    (!is_as_it_is).then(|| (column.clone(), vec![CellOp::Standardize { mean, scale }]))
}

/// The columns many of whose distinct numbers become equal, each with its figures.
fn merged_columns(columns: &[ScaledColumn], rows: &[Ordered]) -> Result<Vec<WarnedColumn>, Error> {
    let mut found = Vec::new();
    for (name, ops) in columns {
        let Cells::Numbers(cells) = cells_of(name, rows)? else {
            continue;
        };
        let all = cells.len();
        let figures = merged(cells, ops).figures(all);
        found.extend(figures.map(|figures| WarnedColumn::with_found(name, figures)));
    }
    Ok(found)
}

/// Distinct numbers of `cells` before and after these operations. Those that a cap makes equal are equal before.
fn merged(mut cells: Vec<f64>, ops: &[CellOp]) -> MergedNumbers {
    cells.retain(|cell| cell.is_finite());
    let mut after = cells.clone();
    for op in ops {
        let uncapped = matches!(op, CellOp::Clip { .. }).then(|| after.clone());
        op.apply(&mut after);
        for (row, uncapped) in uncapped.iter().flatten().enumerate() {
            if uncapped.to_bits() != after[row].to_bits() {
                cells[row] = after[row];
            }
        }
    }
    let mut merged = MergedNumbers::default();
    let both = cells.into_iter().zip(after);
    both.filter(|(_, after)| after.is_finite())
        .for_each(|(before, after)| merged.add(before, after));
    merged
}

/// The warning of the columns `names` with a repeated number.
fn repeated_columns(
    names: &[String],
    expected: &[ExpectedColumn],
    rows: &[Ordered],
    noun: &str,
) -> Result<Option<Warning>, Error> {
    let (mut found, mut advice) = (Vec::new(), None);
    for name in names {
        let Cells::Numbers(cells) = cells_of(name, rows)? else {
            continue;
        };
        let all = cells.len();
        let Some(repeated) = RepeatedNumber::of(cells) else {
            continue;
        };
        let mut of_column = expected.iter().filter(|other| other.name == *name);
        if of_column.any(|expected| allows(expected, repeated.number, 0.0, repeated.is_lowest)) {
            continue;
        }
        let bound = (repeated.number + 0.0).to_string();
        advice.get_or_insert_with(|| advise_bound(name, repeated.is_lowest, &bound));
        found.push(WarnedColumn::with_found(name, repeated.figures(all, noun)));
    }
    let advice = advice.unwrap_or_default();
    Ok(warnings::feature_repeats_extreme(found, &advice))
}

/// The lowest or the highest number of a column, which many rows have.
#[derive(Clone, Copy, Debug, PartialEq)]
struct RepeatedNumber {
    number: f64,
    is_lowest: bool,
    rows: usize,
    /// The range of all other numbers.
    others: [f64; 2],
}

impl RepeatedNumber {
    /// The repeated number at an end of `cells`, if it is far from all others.
    fn of(mut cells: Vec<f64>) -> Option<Self> {
        cells.retain(|cell| cell.is_finite());
        // Not -0.
        cells.iter_mut().for_each(|cell| *cell += 0.0);
        cells.sort_unstable_by(f64::total_cmp);
        let lowest = Self::lowest(&cells).map(|(number, rows, others)| Self {
            number,
            is_lowest: true,
            rows,
            others,
        });
        lowest.or_else(|| {
            let negated: Vec<f64> = cells.iter().rev().map(|cell| 0.0 - cell).collect();
            let (number, rows, [from, to]) = Self::lowest(&negated)?;
            Some(Self {
                number: -number,
                is_lowest: false,
                rows,
                others: [0.0 - to, 0.0 - from],
            })
        })
    }

    /// The lowest number of the ascending `cells`, its rows and the range of all others, if enough rows have it and it is as far
    /// from all others as nearly all of these are wide. A 0 is a count or an amount of nothing, few distinct numbers are codes,
    /// and a number that is hardly more frequent than the others is one of them.
    fn lowest(cells: &[f64]) -> Option<(f64, usize, [f64; 2])> {
        let lowest = *cells.first()?;
        let rows = cells.partition_point(|cell| *cell <= lowest);
        let others = &cells[rows..];
        let (from, to) = (*others.first()?, *others.last()?);
        #[expect(clippy::cast_precision_loss, reason = "the rows are few")]
        let (repeated, all) = (rows as f64, cells.len() as f64);
        let [low, high] = MIDDLE.map(|percent| others[(others.len() - 1) * percent / 100]);
        let is_repeated = all >= ROWS && (REPEATED..0.5).contains(&(repeated / all));
        // Where nearly all others are equal, each other number is far from them.
        let is_far = lowest.abs() > 0.0 && high > low && from - lowest > high - low;
        let distinct = others.chunk_by(|a, b| a.total_cmp(b).is_eq()).count();
        // A number in place of a missing value is more frequent than the others are.
        let is_frequent = rows * distinct >= FREQUENT * others.len();
        (is_repeated && is_far && is_frequent && distinct >= DISTINCT).then_some((
            lowest,
            rows,
            [from, to],
        ))
    }

    fn figures(&self, all: usize, noun: &str) -> String {
        let Self {
            number,
            rows,
            others: [from, to],
            ..
        } = self;
        format!("{number} in {rows} of {all} {noun}s, all others from {from} to {to}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 500 numbers between -1 and 1, with `number` in place of one of `every`.
    fn with(number: f64, every: u32) -> Vec<f64> {
        let cell = |row: u32| match row.is_multiple_of(every) {
            true => number,
            false => f64::from(row * 37 % 499) / 249.5 - 1.0,
        };
        (0..500).map(cell).collect()
    }

    #[test]
    fn a_few_huge_numbers_make_the_others_equal_by_the_scale() {
        let huge = |row: u32| 1e9 * f64::from(1 + row % 10);
        let cells: Vec<f64> = (0..500)
            .map(|row| match row % 50 {
                0 => huge(row / 50),
                _ => f64::from(row) / 500.0,
            })
            .collect();
        let deviation = [CellOp::Standardize {
            mean: 1.1e8,
            scale: 9e8,
        }];
        let found = merged(cells.clone(), &deviation).figures(500).unwrap();
        assert!(
            found.starts_with("500 distinct numbers in 500 training rows become "),
            "{found}"
        );
        // Caps make numbers equal on purpose, and a scale of the others keeps them apart.
        let capped = [
            CellOp::Clip {
                low: 0.0,
                high: 1.0,
            },
            CellOp::Standardize {
                mean: 0.5,
                scale: 0.3,
            },
        ];
        assert_eq!(merged(cells.clone(), &capped).figures(500), None);
        let robust = [CellOp::Standardize {
            mean: 0.5,
            scale: 0.5,
        }];
        assert_eq!(merged(cells, &robust).figures(500), None);
    }

    #[test]
    fn a_repeated_number_far_from_all_others_is_found_at_both_ends() {
        let low = RepeatedNumber::of(with(-999.0, 10)).unwrap();
        assert_eq!((low.number, low.is_lowest, low.rows), (-999.0, true, 50));
        let high = RepeatedNumber::of(with(9999.0, 7)).unwrap();
        assert_eq!(
            (high.number, high.is_lowest, high.rows),
            (9999.0, false, 72)
        );
        assert!(
            high.figures(500, "training row")
                .starts_with("9999 in 72 of 500 training rows, ")
        );
        // Sensors of air quality have -200, and measure up to 2,000.
        let sensor = |row: u32| match row % 20 {
            0 => -200.0,
            _ => 647.0 + f64::from(row * 31 % 1400) / 2.0,
        };
        assert!(RepeatedNumber::of((0..1600).map(sensor).collect()).is_some());
    }

    #[test]
    fn amounts_of_nothing_clipped_sensors_codes_and_flags_are_no_repeated_numbers() {
        let none = |cells: Vec<f64>| assert_eq!(RepeatedNumber::of(cells), None);
        let all = 0..500_u32;
        // Most rows have nothing; others have an amount.
        let amount = |row: u32| match row % 3 {
            0 => 0.0,
            _ => 1000.0 + f64::from(row * 7 % 90),
        };
        none(all.clone().map(amount).collect());
        // Everything above 1 is measured as 1.
        let clipped = |row: u32| (f64::from(row * 37 % 499) / 400.0).min(1.0);
        none(all.clone().map(clipped).collect());
        none(
            all.clone()
                .map(|row| f64::from(row % 5 * row % 5 * 25))
                .collect(),
        );
        none(
            all.clone()
                .map(|row| f64::from(u32::from(row % 9 == 0)))
                .collect(),
        );
        // Grades, and 99 of those without one.
        let grade = |row: u32| {
            if row.is_multiple_of(9) {
                99.0
            } else {
                f64::from(row % 6)
            }
        };
        none(all.map(grade).collect());
        // Nearly all have one or two guests, a few have many.
        let guests = |row: u32| match row % 100 {
            0..30 => 1.0,
            30..97 => 2.0,
            _ => f64::from(3 + row / 100 % 22),
        };
        none((0..3000).map(guests).collect());
        // Most count nothing, and the few large counts are capped at 20.
        let capped = |row: u32| match row % 100 {
            0..2 => 20.0,
            2..5 => f64::from(1 + row / 100 % 18),
            _ => 0.0,
        };
        none((0..3000).map(capped).collect());
        // Attributes of 25 countries, 30 stores and 17 products, one of them the largest by far, repeat in as many rows each.
        for (count, largest) in [(25, 2.5e7), (30, -5e6), (17, 999.0)] {
            let of_row = |row: u32| match row % count {
                0 => largest,
                entity => f64::from(entity * entity),
            };
            none((0..count * 20).map(of_row).collect());
        }
        // Too few rows have it, or most of them.
        none(with(-999.0, 400));
        none(with(-999.0, 1));
    }
}
