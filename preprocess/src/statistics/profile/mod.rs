//! Profile of the columns of each split, counted after the split and before the first step.
//!
//! Edges of bins and the range of histograms come from the training split; the other splits are only counted in them.
//! Counts are integers and the rest comes from the exact aggregates of the fit, so any partitioning gives the same bytes.

pub(crate) mod categories;
pub(crate) mod drift;
mod landed;
pub(crate) mod outside;

use feedline_schemas::{
    format::PROFILE,
    ids::Hash128,
    manifest::Split,
    profile::{
        BARS, BINS, CategoricalProfile, DatasetProfile, Histogram, MissingCells, NumericCells,
        NumericProfile,
    },
    transform::{FittedStep, FittedTarget, InputKind, TransformArtefact},
};

use datafusion::logical_expr::{Expr, ident};

use self::drift::ColumnDrift;
pub(crate) use self::landed::missing;
use crate::{
    Error, TrainSplit,
    fit::aggregate::{Rows, changed},
    staging::Staged,
    statistics::{
        aggregates::{self, Bins, Profile},
        quantile::{Quantile, Wanted},
    },
    steps::column,
    transform::{CellOp, is_shared, op_chain},
};

/// Columns of numbers that one query counts.
const AT_ONCE: usize = 64;

/// Profiles the features and the target of `artefact`, which was fitted on the training split of `staged`. `missing` is what
/// their missing cells were.
pub(crate) async fn measure(
    staged: &Staged,
    artefact: &TransformArtefact,
    missing: Vec<MissingCells>,
) -> Result<DatasetProfile, Error> {
    let splits = Splits::of(staged)?;
    let mut numeric = Vec::new();
    for columns in columns(artefact, InputKind::Numeric).chunks(AT_ONCE) {
        numeric.extend(splits.numeric(columns, artefact).await?);
    }
    let mut categorical = Vec::new();
    for column in columns(artefact, InputKind::Categorical) {
        categorical.push(splits.categorical(&column).await?);
    }
    let mut profile = DatasetProfile {
        format: PROFILE.format.to_owned(),
        version: PROFILE.version,
        hash: Hash128::new(0),
        numeric,
        categorical,
        missing,
    };
    profile.hash = profile.compute_hash();
    Ok(profile)
}

/// A column that is profiled.
#[derive(Clone, Debug)]
struct Column {
    name: String,
    target: bool,
}

fn columns(artefact: &TransformArtefact, kind: InputKind) -> Vec<Column> {
    let inputs = artefact.inputs.iter().filter(|input| input.kind == kind);
    let targets = artefact
        .targets()
        .filter_map(|target| match (target, kind) {
            (FittedTarget::Regression { column, .. }, InputKind::Numeric)
            | (FittedTarget::Classification { column, .. }, InputKind::Categorical) => Some(column),
            _ => None,
        });
    // The past of a target may be a feature; its cells are the same.
    let is_input = |name: &str| artefact.inputs.iter().any(|input| input.name == name);
    let targets = targets.filter(|name| !is_input(name));
    let column = |name: &String, target: bool| Column {
        name: name.clone(),
        target,
    };
    inputs
        .map(|input| column(&input.name, artefact.is_target(&input.name)))
        .chain(targets.map(|name| column(name, true)))
        .collect()
}

/// The rows of each split.
struct Splits {
    /// Rows of the training split, which the edges come from.
    train: Rows,
    all: [Rows; 3],
}

impl Splits {
    fn of(staged: &Staged) -> Result<Self, Error> {
        let train = TrainSplit::of(staged)?;
        let [a, b, c] = Split::ALL.map(|split| -> Result<Rows, Error> {
            Ok(Rows::new(staged.frame(split)?, staged.rows(split)))
        });
        Ok(Self {
            train: Rows::new(train.frame(), train.rows()),
            all: [a?, b?, c?],
        })
    }

    async fn numeric(
        &self,
        columns: &[Column],
        artefact: &TransformArtefact,
    ) -> Result<Vec<NumericProfile>, Error> {
        let raw: Vec<Expr> = columns
            .iter()
            .map(|c| aggregates::cell(ident(&c.name), &[]))
            .collect();
        let wanted = raw.iter().map(|column| (column.clone(), quantiles()));
        let found = self.train.quantiles(wanted.collect()).await?;
        let mut profiles: Vec<NumericProfile> = columns
            .iter()
            .zip(found)
            .map(|(column, found)| NumericProfile {
                name: column.name.clone(),
                target: column.target,
                edges: edges(found.quantiles.as_deref().unwrap_or_default()),
                range: None,
                splits: Vec::with_capacity(3),
                after: None,
            })
            .collect();
        // Ends that cells of all splits are outside of, where there are some.
        let mut ends: Vec<Option<(f64, f64)>> = Vec::new();
        for (split, rows) in Split::ALL.into_iter().zip(&self.all) {
            let found = rows.profiles(raw.clone()).await?;
            if split == Split::Train {
                for (profile, found) in profiles.iter_mut().zip(&found) {
                    let caps = caps(artefact, &profile.name);
                    let caps = caps.map(|[(_, low), (_, high)]| (low, high));
                    profile.range = found
                        .range()
                        .map(|range| shown(&profile.edges, range, caps));
                    ends.push(caps.or(found.range()));
                }
            }
            let edges = profiles.iter().map(|p| p.edges.clone());
            let bins = counted(rows, raw.iter().cloned().zip(edges).collect()).await?;
            let bars = profiles.iter().map(|p| bars(p.range));
            let bars = raw.iter().cloned().zip(bars);
            let beyond = raw.iter().zip(&ends);
            let beyond = beyond
                .filter_map(|(column, ends)| Some((column.clone(), outside::edges((*ends)?))));
            let mut bars = counted(rows, bars.chain(beyond).collect()).await?;
            let mut beyond = bars.split_off(raw.len()).into_iter();
            let beyond = ends.iter().map(|ends| ends.and_then(|_| beyond.next()));
            for ((((profile, found), bins), bars), beyond) in profiles
                .iter_mut()
                .zip(found)
                .zip(bins)
                .zip(bars)
                .zip(beyond)
            {
                profile.splits.push(NumericCells {
                    outside: beyond.as_ref().and_then(outside::cells),
                    ..cells(split, &found, &bins, &bars)
                });
            }
        }
        self.after(&mut profiles, artefact).await?;
        Ok(profiles)
    }

    /// Histograms of the training cells behind all steps, where each step looks at one column.
    async fn after(
        &self,
        profiles: &mut [NumericProfile],
        artefact: &TransformArtefact,
    ) -> Result<(), Error> {
        let alone = |p: &&mut NumericProfile| !p.target && !is_shared(&artefact.steps, &p.name);
        let profiles: Vec<&mut NumericProfile> = profiles.iter_mut().filter(alone).collect();
        let after: Vec<Expr> = profiles
            .iter()
            .map(|p| aggregates::cell(ident(&p.name), &op_chain(&artefact.steps, &p.name)))
            .collect();
        let found = self.train.profiles(after.clone()).await?;
        let ranges: Vec<Option<[f64; 2]>> = found.iter().map(range_after).collect();
        let bars = ranges.iter().map(|range| bars(*range));
        let counted = counted(&self.train, after.into_iter().zip(bars).collect()).await?;
        for ((profile, range), bins) in profiles.into_iter().zip(ranges).zip(counted) {
            profile.after = range.map(|range| Histogram {
                range,
                counts: bins.counts().to_vec(),
                missing: bins.missing(),
            });
        }
        Ok(())
    }
}

/// Drift of the training split of `staged` from that of an earlier dataset with the profile
/// `before`, in the bins and values of that profile. Skips columns that either lacks, and columns
/// of another kind.
pub(crate) async fn against(
    staged: &Staged,
    own: &DatasetProfile,
    before: &DatasetProfile,
) -> Result<Vec<ColumnDrift>, Error> {
    let train = TrainSplit::of(staged)?;
    let train = Rows::new(train.frame(), train.rows());
    let mut found = Vec::new();
    let mut add = |column: &str, old: &[u64], new: &[u64]| {
        found.extend(drift::Drift::of(old, new).map(|drift| ColumnDrift {
            column: column.to_owned(),
            with: "the dataset before".to_owned(),
            drift,
        }));
    };
    let is_own = |old: &&NumericProfile| own.numeric.iter().any(|new| new.name == old.name);
    let numeric: Vec<&NumericProfile> = before.numeric.iter().filter(is_own).collect();
    for columns in numeric.chunks(AT_ONCE) {
        let cell = |old: &&NumericProfile| {
            let cell = aggregates::cell(ident(&old.name), &[]);
            (cell, old.edges.clone())
        };
        let counted = counted(&train, columns.iter().map(cell).collect()).await?;
        for (old, new) in columns.iter().zip(counted) {
            let new: Vec<u64> = new
                .counts()
                .iter()
                .copied()
                .chain([new.missing()])
                .collect();
            if let Some(cells) = old.splits.first() {
                add(&old.name, &drift::of_numbers(cells), &new);
            }
        }
    }
    for old in &before.categorical {
        if own.categorical.iter().all(|new| new.name != old.name) {
            continue;
        }
        let new = categories::cells(Split::Train, &train, &old.name, &old.values).await?;
        if let Some(cells) = old.splits.first() {
            add(&old.name, &drift::of_values(cells), &drift::of_values(&new));
        }
    }
    Ok(found)
}

/// The columns of `one` that `other` lacks, or has as another kind.
pub(crate) fn lacking(one: &DatasetProfile, other: &DatasetProfile) -> Vec<String> {
    let numeric = one.numeric.iter().map(|column| &column.name);
    let numeric = numeric.filter(|name| other.numeric.iter().all(|column| column.name != **name));
    let texts = one.categorical.iter().map(|column| &column.name);
    let texts = texts.filter(|name| other.categorical.iter().all(|column| column.name != **name));
    numeric.chain(texts).cloned().collect()
}

/// Both caps of a column in its own units, each behind its percentile from 0 to 1: those of a `winsorize` step, unless another
/// step has changed the numbers before.
pub(crate) fn caps(artefact: &TransformArtefact, name: &str) -> Option<[(f64, f64); 2]> {
    for step in &artefact.steps {
        if let FittedStep::Winsorize { columns } = step
            && let Some(c) = columns.iter().find(|c| c.name == name)
        {
            // Caps by group are stored in each group.
            let caps = [(c.lower, c.low), (c.upper, c.high)];
            return c.groups.is_none().then_some(caps);
        }
        let operation = column(step, name).and_then(|column| column.operation());
        if operation.is_some_and(|op| !matches!(op, CellOp::Fill(_))) {
            return None;
        }
    }
    None
}

/// Quantiles at the edges of the bins.
fn quantiles() -> Vec<Wanted> {
    (1..BINS)
        .map(|i| Wanted::Percentile(share(i, BINS)))
        .collect()
}

#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn share(part: usize, whole: usize) -> f64 {
    part as f64 / whole as f64
}

/// Each value once; interpolation in floats may leave two neighbours out of order by a rounding.
fn edges(quantiles: &[Quantile]) -> Vec<f64> {
    let mut edges: Vec<f64> = quantiles.iter().map(|q| q.value + 0.0).collect();
    edges.sort_by(f64::total_cmp);
    edges.dedup_by(|a, b| *a <= *b);
    edges
}

/// Range that a histogram shows of cells between `min` and `max`: half of the distance between the
/// outer edges beyond both, and the caps.
fn shown(edges: &[f64], (min, max): (f64, f64), caps: Option<(f64, f64)>) -> [f64; 2] {
    let (Some(first), Some(last)) = (edges.first(), edges.last()) else {
        return [min, max];
    };
    let beyond = last / 2.0 - first / 2.0;
    if beyond <= 0.0 {
        return [min, max];
    }
    let (low, high) = caps.unwrap_or((max, min));
    [
        min.max(low.min(first - beyond)),
        max.min(high.max(last + beyond)),
    ]
}

/// Range that a histogram shows of cells after all steps: six deviations around the mean.
fn range_after(found: &Profile) -> Option<[f64; 2]> {
    let (min, max) = found.range()?;
    let summary = found.summary().filter(|s| s.deviation.is_finite());
    Some(summary.map_or([min, max], |s| {
        let beyond = 6.0 * s.deviation;
        [min.max(s.mean - beyond), max.min(s.mean + beyond)]
    }))
}

/// Edges of the bars of a histogram; fewer where floats between the ends are fewer, none without a range.
fn bars(range: Option<[f64; 2]>) -> Vec<f64> {
    let Some([low, high]) = range else {
        return Vec::new();
    };
    // The lowest value belongs to the first bar, not below it.
    let first = low.next_down();
    if low >= high {
        return vec![first, high];
    }
    let at = |i: usize| match i {
        0 => first,
        BARS => high,
        _ => low * (1.0 - share(i, BARS)) + high * share(i, BARS),
    };
    let mut edges: Vec<f64> = (0..=BARS).map(at).collect();
    edges.dedup_by(|a, b| *a <= *b);
    edges
}

/// Counts of each expression between its edges.
pub(crate) async fn counted(
    rows: &Rows,
    columns: Vec<(Expr, Vec<f64>)>,
) -> Result<Vec<Bins>, Error> {
    if columns.is_empty() {
        return Ok(Vec::new());
    }
    let asked = columns
        .iter()
        .map(|(column, edges)| aggregates::bins(column.clone(), edges));
    let states = rows.aggregate(asked.collect()).await?;
    let mut counted = Vec::with_capacity(columns.len());
    for ((_, edges), state) in columns.into_iter().zip(states) {
        let mut bins = Bins::new(edges);
        bins.merge_bytes(&state)
            .filter(|()| bins.cells() == rows.count())
            .ok_or_else(|| changed("bins do not hold all of them"))?;
        counted.push(bins);
    }
    Ok(counted)
}

fn cells(split: Split, found: &Profile, bins: &Bins, bars: &Bins) -> NumericCells {
    let (tally, range, summary) = (found.tally(), found.range(), found.summary());
    NumericCells {
        split,
        finite: tally.finite,
        missing: tally.missing,
        low_infinite: tally.low_infinite,
        high_infinite: tally.high_infinite,
        min: range.map(|range| range.0),
        max: range.map(|range| range.1),
        mean: summary.map(|s| s.mean).filter(|mean| mean.is_finite()),
        deviation: summary.map(|s| s.deviation).filter(|d| d.is_finite()),
        bins: bins.counts().to_vec(),
        histogram: bars.counts().to_vec(),
        outside: None,
    }
}

impl Splits {
    async fn categorical(&self, column: &Column) -> Result<CategoricalProfile, Error> {
        let values = categories::values(&self.train, &column.name).await?;
        let mut splits = Vec::with_capacity(3);
        for (split, rows) in Split::ALL.into_iter().zip(&self.all) {
            splits.push(categories::cells(split, rows, &column.name, &values).await?);
        }
        Ok(CategoricalProfile {
            name: column.name.clone(),
            target: column.target,
            values,
            splits,
        })
    }
}

#[cfg(test)]
mod tests;
