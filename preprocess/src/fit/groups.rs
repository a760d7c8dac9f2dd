//! Caps and scales of the groups of a column, such as the readings of each station.
//!
//! A group with few finite values has numbers that depend on chance, so it uses those of all rows,
//! as do groups that only appear later and rows without a group. A pass counts the values of each
//! group. Caps then take a sort of each column, outside memory where it is large, so that the order
//! statistics are at known positions, and a pass that counts what they clip; scales take a pass for
//! as many columns as memory holds exact sums of.

use std::collections::{BTreeMap, HashMap};

use datafusion::{
    arrow::{
        array::{AsArray, Float64Array, RecordBatch, StringArray},
        datatypes::Float64Type,
    },
    logical_expr::{ident, lit},
};
use feedline_schemas::{
    config::Groups as GroupsConfig,
    transform::{
        FittedCapGroups, FittedCaps, FittedMoments, FittedScaleGroups, FittedStandardize,
        FittedWinsorize,
    },
};
use futures::TryStreamExt;

use super::progress::{Fit, STEP, is_constant};
use crate::{
    Error,
    statistics::{
        exact_sum::{ExactMoments, Summary},
        quantile::Wanted,
    },
};

/// Most groups of a column.
const MOST_GROUPS: usize = 10_000;
/// Memory that the sums of one column and group take at most, about.
const SUM_BYTES: usize = 10 << 10;

const GROUP: &str = "group";
const VALUE: &str = "value";

/// The groups of the training rows.
struct Groups {
    names: HashMap<String, usize>,
    /// Finite values: per group, per column of the step.
    counts: Vec<Vec<u64>>,
    fewest: u64,
}

impl Groups {
    /// Returns true if a group has numbers of its own for the `column`-th column.
    fn is_own(&self, group: usize, column: usize) -> bool {
        self.counts[group][column] >= self.fewest
    }

    /// Groups with numbers of their own for the `column`-th column.
    fn own(&self, column: usize) -> impl Iterator<Item = (&String, usize)> {
        let names = self.names.iter().map(|(name, group)| (name, *group));
        names.filter(move |(_, group)| self.is_own(*group, column))
    }
}

impl Fit {
    /// Gives the caps of `fitted` to the groups of `by` that have enough values.
    pub(crate) async fn cap_groups(
        &self,
        names: &[String],
        config: &GroupsConfig,
        fitted: &mut [FittedWinsorize],
    ) -> Result<(), Error> {
        let by = config.by.as_str();
        let groups = self.groups(names, config).await?;
        for (i, column) in fitted.iter_mut().enumerate() {
            let mut found = self.sorted_caps(by, i, column, &groups).await?;
            let caps = groups.own(i).map(|(name, group)| {
                let [low, high] = found.remove(&group).unwrap_or([column.low, column.high]);
                let rows = groups.counts[group][i];
                let caps = FittedCaps {
                    rows,
                    low,
                    high,
                    clipped_low: 0,
                    clipped_high: 0,
                };
                (name.clone(), caps)
            });
            column.groups = Some(FittedCapGroups {
                by: by.to_owned(),
                min_count: groups.fewest,
                caps: caps.collect(),
            });
            (column.clipped_low, column.clipped_high) = (0, 0);
        }
        self.count_clipped(names, by, fitted).await
    }

    /// Counts the cells that caps change, by the group that the caps are of.
    async fn count_clipped(
        &self,
        names: &[String],
        by: &str,
        fitted: &mut [FittedWinsorize],
    ) -> Result<(), Error> {
        self.each(by, names, |i, group, x| {
            let column = &mut fitted[i];
            let groups = column.groups.as_mut();
            let own = group
                .zip(groups)
                .and_then(|(group, of)| of.caps.get_mut(group));
            let (low, high, below, above) = match own {
                Some(own) => (
                    own.low,
                    own.high,
                    &mut own.clipped_low,
                    &mut own.clipped_high,
                ),
                None => (
                    column.low,
                    column.high,
                    &mut column.clipped_low,
                    &mut column.clipped_high,
                ),
            };
            *below += u64::from(x < low);
            *above += u64::from(x > high);
            Ok(())
        })
        .await
    }

    /// Caps of each group with enough values in one column, from its values in their order.
    async fn sorted_caps(
        &self,
        by: &str,
        i: usize,
        column: &FittedWinsorize,
        groups: &Groups,
    ) -> Result<HashMap<usize, [f64; 2]>, Error> {
        let mut caps = HashMap::new();
        if groups.own(i).next().is_none() {
            return Ok(caps);
        }
        let wanted = [column.lower, column.upper].map(Wanted::Percentile);
        let cells = vec![ident(by).alias(GROUP), self.cell(&column.name).alias(VALUE)];
        // NaN is null by now; only finite values have an order to be counted in.
        let finite = ident(VALUE)
            .gt(lit(f64::NEG_INFINITY))
            .and(ident(VALUE).lt(lit(f64::INFINITY)));
        let sorted = (self.rows.frame())
            .select(cells)?
            .filter(finite.and(ident(GROUP).is_not_null()))?
            .sort(vec![
                ident(GROUP).sort(true, false),
                ident(VALUE).sort(true, false),
            ])?;
        let mut stream = Box::pin(sorted.execute_stream()).await?;
        let (mut now, mut rank) = (None, 0);
        let (mut ranks, mut found) = (Vec::new(), BTreeMap::new());
        while let Some(batch) = stream.try_next().await? {
            let (names, values) = (group_names(&batch), floats(&batch, 1));
            for (name, value) in names.iter().zip(values.values().iter()) {
                let group = groups.names.get(name.unwrap_or_default()).copied();
                let own = group.filter(|group| groups.is_own(*group, i));
                let count = own.map_or(0, |group| groups.counts[group][i]);
                if group != now {
                    (now, rank) = (group, 0);
                    ranks = wanted.iter().flat_map(|w| w.ranks(count)).collect();
                    found.clear();
                }
                if ranks.contains(&rank) {
                    found.insert(rank, *value);
                }
                rank += 1;
                if let Some(group) = own.filter(|_| rank == count) {
                    let value = |wanted: Wanted| wanted.of_found(count, &found);
                    if let [Some(low), Some(high)] = wanted.map(value) {
                        caps.insert(group, [low, high]);
                    }
                }
            }
        }
        Ok(caps)
    }

    /// Gives means and deviations to the groups of `by` that have enough values.
    pub(crate) async fn scale_groups(
        &self,
        names: &[String],
        config: &GroupsConfig,
        fitted: &mut [FittedStandardize],
    ) -> Result<(), Error> {
        let by = config.by.as_str();
        let groups = self.groups(names, config).await?;
        let at_once = self.rows.per_query(SUM_BYTES) / groups.names.len().max(1);
        let at_once = at_once.max(1);
        for (chunk, columns) in names.chunks(at_once).enumerate() {
            let mut sums: Vec<Vec<ExactMoments>> = Vec::new();
            sums.resize_with(groups.names.len(), || {
                vec![ExactMoments::default(); columns.len()]
            });
            self.each(by, columns, |i, group, x| {
                let group = group.and_then(|group| groups.names.get(group));
                if let Some(group) = group.filter(|_| x.is_finite()) {
                    sums[*group][i].add(x);
                }
                Ok(())
            })
            .await?;
            let first = chunk * at_once;
            for (i, scale) in fitted[first..].iter_mut().take(columns.len()).enumerate() {
                let own = groups.own(first + i).filter_map(|(name, group)| {
                    let rows = groups.counts[group][first + i];
                    let summary = sums[group][i].summary()?;
                    Some((name.clone(), moments(rows, summary)))
                });
                scale.groups = Some(FittedScaleGroups {
                    by: by.to_owned(),
                    min_count: groups.fewest,
                    moments: own.collect(),
                });
            }
        }
        Ok(())
    }

    /// Finds the groups and counts their values.
    async fn groups(&self, names: &[String], config: &GroupsConfig) -> Result<Groups, Error> {
        let by = config.by.as_str();
        let mut groups = Groups {
            names: HashMap::new(),
            counts: Vec::new(),
            fewest: config.min_count.get(),
        };
        let width = names.len();
        self.each(by, names, |i, group, x| {
            let Some(group) = group else { return Ok(()) };
            let place = match groups.names.get(group) {
                Some(place) => *place,
                None if groups.counts.len() == MOST_GROUPS => return Err(too_many(by)),
                None => {
                    let place = groups.counts.len();
                    groups.names.insert(group.to_owned(), place);
                    groups.counts.push(vec![0; width]);
                    place
                }
            };
            groups.counts[place][i] += u64::from(x.is_finite());
            Ok(())
        })
        .await?;
        let small = |counts: &&Vec<u64>| counts.iter().any(|count| *count < groups.fewest);
        let small = groups.counts.iter().filter(small).count();
        tracing::info!(
            column = %by, groups = groups.counts.len(), small, min_count = groups.fewest,
            "groups have numbers of their own, small ones those of all rows"
        );
        Ok(groups)
    }

    /// Calls `see` with each cell of `columns` as the steps so far leave it: the column's position, the row's group, and the
    /// number, NaN where it is missing.
    async fn each(
        &self,
        by: &str,
        columns: &[String],
        mut see: impl FnMut(usize, Option<&str>, f64) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut wanted = vec![ident(by).alias(GROUP)];
        let cells = columns.iter().enumerate();
        wanted.extend(cells.map(|(i, name)| self.cell(name).alias(format!("c{i}"))));
        let frame = self.rows.frame().select(wanted)?;
        let mut stream = Box::pin(frame.execute_stream()).await?;
        while let Some(batch) = stream.try_next().await? {
            let names = group_names(&batch);
            for i in 0..columns.len() {
                let cells = floats(&batch, i + 1);
                for (name, cell) in names.iter().zip(cells) {
                    see(i, name, cell.unwrap_or(f64::NAN))?;
                }
            }
        }
        Ok(())
    }
}

fn group_names(batch: &RecordBatch) -> &StringArray {
    batch.column(0).as_string()
}

fn floats(batch: &RecordBatch, column: usize) -> &Float64Array {
    batch.column(column).as_primitive::<Float64Type>()
}

fn moments(rows: u64, summary: Summary) -> FittedMoments {
    let constant = is_constant(summary, rows);
    FittedMoments {
        rows,
        mean: summary.mean,
        deviation: summary.deviation,
        scale: if constant { 1.0 } else { summary.deviation },
        constant,
    }
}

fn too_many(by: &str) -> Error {
    Error::config(
        STEP,
        format!(
            "column `{by}` has more than {MOST_GROUPS} groups in the training split, each with numbers of its own in the \
             artefact; group `by` a coarser column, or leave `by` out"
        ),
    )
}
