//! Learns every number of a transform from the training split, and from nothing else.
//!
//! Steps run in the order written. Each is fitted on the output of the ones before: their operations are applied to the
//! column inside the query, by the same code that transforms rows later ([`functions::cell`]). All columns of a step share
//! its queries: imputing, winsorizing and robust scaling take one to four passes over the rows (see [`crate::quantile`]),
//! standardizing, min-max and logarithms one, powers about ten, the most frequent value and categories one per column.
//! Filling from neighbours takes two, numbers by group two or three, and where a later step is
//! fitted, they rewrite the rows.
//!
//! Results depend neither on the order of the rows nor on how they are partitioned: counts are integers, means and
//! deviations are rounded once from exact sums, percentiles are exact. Infinities take no part in statistics; `winsorize`
//! caps them. A missing value takes no part either; NaN is missing.

pub(crate) mod aggregate;
mod categories;
mod groups;
mod nans;
mod neighbours;
mod outcomes;
mod payload;
mod power;
mod robust;
mod texts;
mod tokens;

use std::collections::{BTreeMap, HashMap};

use datafusion::{
    arrow::datatypes::DataType,
    logical_expr::{Expr, ident},
};
use feedline_schemas::{
    config::{Impute, ImputeStrategy, MinMax, Standardize, Step, StepConfig, Task, Winsorize},
    format::TRANSFORM,
    ids::Hash128,
    transform::{
        FittedCharacters, FittedImpute, FittedMinMax, FittedStandardize, FittedStep, FittedTarget,
        FittedTokens, FittedWinsorize, ImputeStatistic, InputColumn, InputKind, NumberSigns,
        TransformArtefact,
    },
};

pub(crate) use self::{
    nans::check_nans,
    payload::{fit_parts, fit_payload},
    texts::check_texts,
    tokens::{LearnSpec, learn_tokenizer},
};

use self::aggregate::{Counted, Rows};
use crate::{
    Error, TrainSplit, classes,
    columns::kind_of,
    exact_sum::Summary,
    functions::{self, Profile},
    quantile::{Quantile, Tally, Wanted},
    transform::{new_layout, op_chain},
};

/// Most classes of a target, and most known values of a category.
pub(crate) const MOST_VALUES: u32 = 100_000;

/// Transform to fit.
#[derive(Clone, Debug)]
pub(crate) struct FitSpec {
    /// Input columns, in the order of the feature vector.
    pub(crate) inputs: Vec<InputColumn>,
    /// Steps with their columns listed; a step without columns does nothing.
    pub(crate) steps: Vec<StepConfig>,
    /// Target, if there is one.
    pub(crate) target: Option<TargetSpec>,
    /// The further targets, where there are several.
    pub(crate) other_targets: Vec<TargetSpec>,
    /// Recorded in the artefact; the frame has made such texts null.
    pub(crate) null_values: Vec<String>,
    /// Recorded in the artefact; the frame has made such numbers null.
    pub(crate) missing_values: Vec<f64>,
    /// Recorded in the artefact; the frame has read texts by them.
    pub(crate) signs: Option<NumberSigns>,
}

/// The column to predict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TargetSpec {
    /// Column.
    pub(crate) column: String,
    /// Task of the target.
    pub(crate) task: Task,
    /// True if a regression target is standardized.
    pub(crate) scale: bool,
    /// All classes by id, where the configuration lists them.
    pub(crate) classes: Vec<String>,
}

/// Fits the steps and the target of `spec`.
///
/// # Errors
/// [`Error::Config`] when a step cannot be fitted to its columns or the target is of the wrong kind, [`Error::Input`]
/// for an empty split, and failures of the engine.
pub(crate) async fn fit(train: &TrainSplit, spec: &FitSpec) -> Result<TransformArtefact, Error> {
    if spec.inputs.is_empty() {
        return Err(Error::config(
            "dataset.features",
            "no column is left to be a feature",
        ));
    }
    fit_rows(train, spec).await
}

/// As [`fit`], also for rows without numbers.
async fn fit_rows(train: &TrainSplit, spec: &FitSpec) -> Result<TransformArtefact, Error> {
    let rows = rows_of(train)?;
    check_spec(spec)?;
    let mut fit = Fit {
        rows,
        steps: Vec::with_capacity(spec.steps.len()),
        settled: 0,
        target: spec.target.clone(),
        medians: BTreeMap::new(),
    };
    // A step may rewrite the rows, and with them the past of a target that is a feature.
    let mut targets = Vec::with_capacity(1 + spec.other_targets.len());
    for target in spec.target.iter().chain(&spec.other_targets) {
        targets.push(fit.target(target).await?);
    }
    for (i, step) in spec.steps.iter().enumerate() {
        if !step.is_categories() {
            fit.settle(train).await?;
        }
        let fitted = fit.step(step, &spec.steps[i + 1..], train).await?;
        fit.steps.push(fitted);
    }
    artefact(fit, spec, targets, Texts::default())
}

/// The rows of the training split.
fn rows_of(train: &TrainSplit) -> Result<Rows, Error> {
    let rows = Rows::new(train.frame(), train.rows()).looked_at(train.pieces());
    if rows.count() == 0 {
        return Err(Error::input(
            "the training split",
            "it has no rows",
            "land more rows or give it a larger share with `dataset.split.train`",
        ));
    }
    Ok(rows)
}

/// Fitted encoders of documents; empty for rows without documents.
#[derive(Debug, Default)]
struct Texts {
    characters: Option<FittedCharacters>,
    tokens: Option<FittedTokens>,
}

/// Everything that was fitted, under its hash.
fn artefact(
    fit: Fit,
    spec: &FitSpec,
    targets: Vec<FittedTarget>,
    texts: Texts,
) -> Result<TransformArtefact, Error> {
    let features = new_layout(&spec.inputs, &fit.steps);
    let features = features.map_err(|reason| Error::config(STEP, reason))?;
    let mut targets = targets.into_iter();
    let mut artefact = TransformArtefact {
        format: TRANSFORM.format.to_owned(),
        version: TRANSFORM.version,
        hash: Hash128::new(0),
        fitted_rows: fit.rows.count(),
        null_values: spec.null_values.clone(),
        missing_values: spec.missing_values.clone(),
        inputs: spec.inputs.clone(),
        features,
        steps: fit.steps,
        target: targets.next(),
        other_targets: targets.collect(),
        characters: texts.characters,
        images: None,
        tokens: texts.tokens,
        signs: spec.signs,
    };
    artefact.hash = artefact.compute_hash();
    Ok(artefact)
}

const STEP: &str = "dataset.step";

/// A fit in progress.
#[derive(Debug)]
struct Fit {
    rows: Rows,
    /// Steps fitted so far.
    steps: Vec<FittedStep>,
    /// Number of steps that the rows have already passed.
    settled: usize,
    /// Target of the dataset.
    target: Option<TargetSpec>,
    /// Medians that were found on the way to something else, and how many cells are missing; each is that of its column
    /// until another step changes it.
    medians: BTreeMap<String, (f64, u64)>,
}

impl Fit {
    async fn step(
        &mut self,
        step: &StepConfig,
        rest: &[StepConfig],
        train: &TrainSplit,
    ) -> Result<FittedStep, Error> {
        let StepConfig { columns, step } = step;
        Ok(match step {
            Step::Impute(impute) => match &impute.strategy {
                ImputeStrategy::Knn(knn) => {
                    self.neighbours(columns, knn, impute.indicator, train)
                        .await?
                }
                _ => FittedStep::Impute {
                    columns: self.impute(columns, impute).await?,
                },
            },
            Step::Winsorize(caps) => FittedStep::Winsorize {
                columns: self.winsorize(columns, caps, rest).await?,
            },
            Step::Standardize(step) => FittedStep::Standardize {
                columns: self.standardize(columns, step).await?,
            },
            Step::MinMax(step) => FittedStep::MinMax {
                columns: self.min_max(columns, *step).await?,
            },
            Step::Robust(step) => FittedStep::Robust {
                columns: self.robust(columns, *step).await?,
            },
            Step::Log1p => FittedStep::Log1p {
                columns: self.log1p(columns).await?,
            },
            Step::Power(step) => FittedStep::Power {
                columns: self.power(columns, step.method, rest).await?,
            },
            Step::Categories(step) => FittedStep::Categories {
                columns: self.categories(columns, step).await?,
            },
        })
    }

    async fn impute(
        &mut self,
        columns: &[String],
        step: &Impute,
    ) -> Result<Vec<FittedImpute>, Error> {
        let strategy = step.strategy;
        let mut fitted = Vec::with_capacity(columns.len());
        if strategy == ImputeStrategy::Median {
            let mut medians = std::mem::take(&mut self.medians);
            let unknown = columns.iter().filter(|c| !medians.contains_key(*c));
            let unknown: Vec<&String> = unknown.collect();
            let wanted = unknown
                .iter()
                .map(|name| (self.cell(name), vec![Wanted::Median]))
                .collect();
            for (name, found) in unknown.iter().zip(self.rows.quantiles(wanted).await?) {
                let median = found.quantiles.and_then(|q| q.first().copied());
                let value = median
                    .ok_or_else(|| self.nothing_to_fit("impute", name))?
                    .value;
                medians.insert((*name).clone(), (value, found.tally.missing));
            }
            for name in columns {
                let (value, missing) = medians.remove(name).expect("each was known or asked for");
                fitted.push(imputed(step, name, value, missing));
            }
            self.medians = medians;
            return Ok(fitted);
        }
        for (name, profile) in columns.iter().zip(self.profiles(columns).await?) {
            let value = match strategy {
                ImputeStrategy::Constant(constant) => Some(constant.value + 0.0),
                ImputeStrategy::Mean => profile.summary().map(|summary| summary.mean),
                _ => self
                    .rows
                    .most_frequent(self.cell(name))
                    .await?
                    .map(|most| most.value),
            };
            let value = value.ok_or_else(|| self.nothing_to_fit("impute", name))?;
            fitted.push(imputed(step, name, value, profile.tally().missing));
        }
        Ok(fitted)
    }

    async fn winsorize(
        &mut self,
        columns: &[String],
        step: &Winsorize,
        rest: &[StepConfig],
    ) -> Result<Vec<FittedWinsorize>, Error> {
        let Winsorize {
            lower,
            upper,
            ref groups,
        } = *step;
        let wanted = |name: &String| {
            let mut wanted = vec![Wanted::Percentile(lower), Wanted::Percentile(upper)];
            // The passes that find the caps find the median, too.
            if groups.is_none() && is_next_median(rest, name) {
                wanted.push(Wanted::Median);
            }
            wanted
        };
        let cells = columns.iter().map(|name| (self.cell(name), wanted(name)));
        let found = self.rows.quantiles(cells.collect()).await?;
        let mut fitted = Vec::with_capacity(columns.len());
        for (name, found) in columns.iter().zip(found) {
            let quantiles = found.quantiles.as_deref();
            let Some([low, high, median @ ..]) = quantiles else {
                return Err(self.nothing_to_fit("winsorize", name));
            };
            if let [median] = median
                && stays_median(found.tally, low, high)
            {
                let known = (median.value, found.tally.missing);
                self.medians.insert(name.clone(), known);
            }
            fitted.push(FittedWinsorize {
                name: name.clone(),
                lower,
                upper,
                low: low.value,
                high: high.value,
                clipped_low: low.below + found.tally.low_infinite,
                clipped_high: high.above + found.tally.high_infinite,
                groups: None,
            });
        }
        if let Some(groups) = groups {
            self.cap_groups(columns, groups, &mut fitted).await?;
        }
        Ok(fitted)
    }

    async fn standardize(
        &self,
        columns: &[String],
        step: &Standardize,
    ) -> Result<Vec<FittedStandardize>, Error> {
        let mut fitted = Vec::with_capacity(columns.len());
        for (name, profile) in columns.iter().zip(self.profiles(columns).await?) {
            let summary = profile
                .summary()
                .ok_or_else(|| self.nothing_to_fit("standardize", name))?;
            let constant = is_constant(summary, profile.tally().finite);
            let scale = if constant { 1.0 } else { summary.deviation };
            let Summary { mean, deviation } = summary;
            fitted.push(FittedStandardize {
                name: name.clone(),
                mean,
                deviation,
                scale,
                constant,
                groups: None,
            });
        }
        if let Some(groups) = &step.groups {
            self.scale_groups(columns, groups, &mut fitted).await?;
        }
        Ok(fitted)
    }

    async fn min_max(&self, columns: &[String], step: MinMax) -> Result<Vec<FittedMinMax>, Error> {
        let mut fitted = Vec::with_capacity(columns.len());
        for (name, profile) in columns.iter().zip(self.profiles(columns).await?) {
            let (min, max) = profile
                .range()
                .ok_or_else(|| self.nothing_to_fit("min_max", name))?;
            fitted.push(FittedMinMax {
                name: name.clone(),
                min,
                max,
                clip: step.clip.unwrap_or(false),
            });
        }
        Ok(fitted)
    }

    async fn target(&self, target: &TargetSpec) -> Result<FittedTarget, Error> {
        let column = target.column.clone();
        let is_number = self.rows.data_type(&column)? == DataType::Float64;
        match target.task {
            Task::Regression if is_number => {
                let profiles = self
                    .rows
                    .profiles(vec![functions::cell(ident(&column), &[])])
                    .await?;
                let summary = profiles
                    .first()
                    .and_then(|profile| Some((profile.summary()?, profile.tally().finite)));
                let (summary, finite) = summary.ok_or_else(|| {
                    Error::config(
                        TARGET,
                        format!("column `{column}` has no finite number in the training split"),
                    )
                })?;
                Ok(regression(column, summary, finite, target.scale))
            }
            Task::Regression => {
                let sample = self.rows.sample(&column).await?.unwrap_or_default();
                Err(Error::config(
                    TARGET,
                    format!(
                        "column `{column}` is not numeric, one of its values is `{sample}`; name a column of numbers, \
                         or set `dataset.task = \"classification\"` to predict it as a class"
                    ),
                ))
            }
            Task::Classification if is_number => Err(Error::config(
                TARGET,
                format!("column `{column}` was read as numbers, classes are read as text"),
            )),
            Task::Classification => self.classes(target).await,
        }
    }

    async fn classes(&self, target: &TargetSpec) -> Result<FittedTarget, Error> {
        let column = target.column.clone();
        let mut found = self
            .rows
            .frequent_texts(&column, MOST_VALUES as usize + 1)
            .await?;
        if !target.classes.is_empty() {
            let found = found.into_iter();
            let rows: HashMap<_, _> = found.map(|class| (class.value, class.rows)).collect();
            let rows = |class| rows.get(class).copied().unwrap_or(0);
            return Ok(FittedTarget::Classification {
                column,
                counts: target.classes.iter().map(rows).collect(),
                classes: target.classes.clone(),
            });
        }
        if found.len() > MOST_VALUES as usize {
            return Err(Error::config(
                TARGET,
                format!(
                    "column `{column}` has more than {MOST_VALUES} classes in the training split; name a column of few \
                     values, or set `dataset.task = \"regression\"` to predict it as a number"
                ),
            ));
        }
        found.sort_by(|a, b| classes::order(&a.value, &b.value));
        let (classes, counts) = unzip(found);
        Ok(FittedTarget::Classification {
            column,
            classes,
            counts,
        })
    }

    async fn profiles(&self, columns: &[String]) -> Result<Vec<Profile>, Error> {
        self.rows
            .profiles(columns.iter().map(|name| self.cell(name)).collect())
            .await
    }

    /// The column as the steps so far leave it.
    fn cell(&self, column: &str) -> Expr {
        functions::cell(ident(column), &op_chain(self.open_steps(), column))
    }

    /// The steps that the rows have not behind them.
    fn open_steps(&self) -> &[FittedStep] {
        &self.steps[self.settled..]
    }

    fn nothing_to_fit(&self, step: &str, column: &str) -> Error {
        let rows = self.rows.count();
        Error::config(
            STEP,
            format!(
                "cannot fit `{step}` to column `{column}`: none of its {rows} training rows has a finite value; fill it with \
                 an `impute` step of `strategy = \"constant\"` and a `value`, or leave it out with `dataset.drop`"
            ),
        )
    }
}

const TARGET: &str = "dataset.target";

fn imputed(step: &Impute, name: &str, value: f64, missing: u64) -> FittedImpute {
    let statistic = match step.strategy {
        ImputeStrategy::Median => ImputeStatistic::Median,
        ImputeStrategy::Mean => ImputeStatistic::Mean,
        ImputeStrategy::MostFrequent => ImputeStatistic::MostFrequent,
        ImputeStrategy::Constant(_) => ImputeStatistic::Constant,
        ImputeStrategy::Knn(_) => unreachable!("neighbours have a step of their own"),
    };
    FittedImpute {
        name: name.to_owned(),
        value,
        statistic,
        missing,
        indicator: step.indicator,
    }
}

fn regression(column: String, summary: Summary, finite: u64, scale: bool) -> FittedTarget {
    let Summary { mean, deviation } = summary;
    if !scale {
        return FittedTarget::Regression {
            column,
            mean,
            scale: 1.0,
            offset: 0.0,
        };
    }
    let scale = if is_constant(summary, finite) {
        1.0
    } else {
        deviation
    };
    FittedTarget::Regression {
        column,
        mean,
        scale,
        offset: mean,
    }
}

/// scikit-learn's rule (`_is_constant_feature` in `sklearn/preprocessing/_data.py`): the variance is at most
/// `n·ε·variance + (n·mean·ε)²`. Written with the root of both sides, which cannot overflow.
fn is_constant(summary: Summary, count: u64) -> bool {
    #[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
    let error = count as f64 * f64::EPSILON;
    error >= 1.0 || summary.deviation * (1.0 - error).sqrt() <= error * summary.mean.abs()
}

/// Returns true if the next step that changes the column `name` fills it with its median.
fn is_next_median(rest: &[StepConfig], name: &str) -> bool {
    let mut rest = rest.iter();
    let next = rest.find(|step| step.columns.iter().any(|column| column == name));
    next.is_some_and(|step| {
        matches!(&step.step, Step::Impute(impute) if impute.strategy == ImputeStrategy::Median)
    })
}

/// Returns true if the median of a column stays the same after capping: both middle values are
/// between the caps, and no infinity becomes a number.
fn stays_median(tally: Tally, low: &Quantile, high: &Quantile) -> bool {
    let (count, infinite) = (tally.finite, tally.low_infinite + tally.high_infinite);
    let half = count.saturating_sub(1) / 2;
    infinite == 0 && low.below <= half && high.above <= half
}

fn unzip<T>(counted: Vec<Counted<T>>) -> (Vec<T>, Vec<u64>) {
    counted.into_iter().map(|c| (c.value, c.rows)).unzip()
}

/// Refuses columns that a step cannot work on; the numbers of the steps were checked where they were resolved.
fn check_spec(spec: &FitSpec) -> Result<(), Error> {
    if let Some(odd) = spec.missing_values.iter().find(|value| !value.is_finite()) {
        let reason = format!(
            "`{odd}` is not a finite number; NaN is always missing, and `winsorize` caps infinities"
        );
        return Err(Error::config("dataset.missing_values", reason));
    }
    spec.steps
        .iter()
        .try_for_each(|step| check_step(spec, step).map_err(|reason| Error::config(STEP, reason)))
}

fn check_step(spec: &FitSpec, step: &StepConfig) -> Result<(), String> {
    let kind = kind_of(step);
    for (i, name) in step.columns.iter().enumerate() {
        match spec.inputs.iter().find(|input| input.name == *name) {
            None => {
                return Err(format!(
                    "column `{name}` is not a feature, so no step can change it"
                ));
            }
            Some(input) if input.kind != kind && kind == InputKind::Numeric => {
                return Err(format!(
                    "column `{name}` is text; only a `categories` step applies to it"
                ));
            }
            Some(input) if input.kind != kind => {
                return Err(format!(
                    "column `{name}` is numeric; add it to `dataset.categorical` to read it as a category"
                ));
            }
            Some(_) if step.columns[..i].contains(name) => {
                return Err(format!("column `{name}` is listed twice"));
            }
            Some(_) => {}
        }
    }
    let is_odd = |by: &&String| {
        let named = spec.inputs.iter().find(|input| input.name == **by);
        named.is_none_or(|input| input.kind != InputKind::Categorical)
    };
    match step.by().filter(is_odd) {
        Some(by) => Err(format!(
            "column `{by}` is no category among the features, so rows have no groups by it"
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
