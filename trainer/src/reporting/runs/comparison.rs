//! Some runs side by side: their configurations, metrics and curves.

use std::collections::{BTreeMap, BTreeSet};

use feedline_report::{
    AxisX, Chart, ChartSeries, Points, TableRow, document, escape, table, table_of,
};
use feedline_schemas::{
    config::TrainConfig,
    count::counted,
    manifest::{Split, SplitContent},
    report::Warning,
    run::{RunRecord, RunState},
};
use feedline_storage::Store;
use serde::Serialize;

use super::{MAIN, differing, find, reached};
use crate::{
    error::Error,
    evaluation::{
        baseline::{is_higher_better, of_any_target},
        metrics::{Metrics, metric},
    },
    reporting::{
        metrics_log,
        report::curves::{Curves, EpochPoint, StepPoint},
    },
};

/// Metrics that are better the lower they are, and the loss.
const LOWER: [&str; 6] = [
    "cross_entropy",
    "loss",
    "mae",
    "perplexity",
    "pinball",
    "rmse",
];

/// A run in a comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ComparedRun {
    /// Name.
    pub name: String,
    /// Its state.
    pub state: RunState,
    /// Dataset folder that it was trained on.
    pub dataset: String,
    /// Dataset fingerprint, which shows if the runs learned from the same data.
    pub fingerprint: String,
    /// Rows and content of that dataset's splits; none where the run's record does not say it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub splits: BTreeMap<Split, SplitContent>,
    /// Names of the classes by id; none where the run predicts no class. Of two, `f1` is about the second.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<String>,
    #[serde(skip)]
    pub(super) curves: Curves,
}

/// Some runs side by side; values are in the order of the runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The runs.
    pub runs: Vec<ComparedRun>,
    /// The configuration keys that are not the same in all of them.
    pub config: BTreeMap<String, Vec<Option<String>>>,
    /// Metrics: `validation_loss`, `validation_<metric>` of the kept weights, `test_<metric>`, and how far they came.
    pub metrics: BTreeMap<String, Vec<Option<f64>>>,
    /// Reasons why metrics do not compare: they are of different rows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
}

/// Compares runs, each named by as much of the beginning of its name as is needed, or as `newest` or `best`: the finished run
/// that was started last, or that with the lowest validation loss.
///
/// # Errors
/// [`Error::NoRun`] when a name begins none or several of the runs, [`Error::Storage`].
pub async fn compare(runs: &Store, names: &[String], now_ms: u64) -> Result<Comparison, Error> {
    let all = reached(runs, now_ms).await?;
    let mut chosen = Vec::new();
    for name in names {
        chosen.push(find(&all, name, runs)?);
    }
    let mut compared = Vec::new();
    for record in &chosen {
        let path = format!("{}/{}", record.name, metrics_log::PATH);
        let lines = runs.get_opt(&path).await?.unwrap_or_default();
        compared.push(ComparedRun {
            name: record.name.clone(),
            state: record.state,
            dataset: record.dataset.clone(),
            fingerprint: record.fingerprint.to_string(),
            splits: record.splits.clone(),
            classes: record.classes.clone(),
            curves: Curves::read(&String::from_utf8_lossy(&lines)),
        });
    }
    let configs: Vec<&TrainConfig> = chosen.iter().map(|r| &r.config).collect();
    let splits = [(Split::Test, "test"), (Split::Validation, "validation")];
    let unlike = splits.map(|(split, metrics)| unlike_sets(&chosen, split, metrics));
    Ok(Comparison {
        runs: compared,
        config: differing(&chosen, &configs),
        metrics: side_by_side(&chosen),
        warnings: unlike.into_iter().flatten().collect(),
    })
}

/// A warning where the runs were measured on different rows of a split, or may have been.
fn unlike_sets(records: &[&RunRecord], split: Split, metrics: &str) -> Option<Warning> {
    let (first, others) = records.split_first()?;
    let is_same = |record: &&RunRecord| {
        let contents = first.splits.get(&split).zip(record.splits.get(&split));
        first.fingerprint == record.fingerprint || contents.is_some_and(|(a, b)| a == b)
    };
    if others.iter().all(is_same) {
        return None;
    }
    let of_run = |record: &&RunRecord| match record.splits.get(&split) {
        Some(content) => format!("`{}`: {}", record.name, counted(content.rows, "row")),
        None => format!("`{}`: unknown", record.name),
    };
    let sets: Vec<String> = records.iter().map(of_run).collect();
    let counts = records.iter().map(|record| record.splits.get(&split));
    let counts: Vec<Option<u64>> = counts.map(|known| known.map(|split| split.rows)).collect();
    let is_known = counts.iter().all(Option::is_some);
    let is_of_one_size = is_known && counts.windows(2).all(|pair| pair[0] == pair[1]);
    let (code, are) = match is_known && !is_of_one_size {
        true => ("different", "are of different"),
        false => ("maybe_different", "may be of different"),
    };
    let then = if code == "different" {
        ""
    } else {
        " if they are"
    };
    // Shards have the origin of each row, which is another one after the same data landed again.
    let why = match is_of_one_size {
        true => " in other shards: the same rows that landed again, or other rows",
        false => "",
    };
    let message = format!(
        "{metrics} metrics {are} {metrics} sets and do not compare{then}: {}{why}; `feedline eval --run RUN` measures each run on \
         one dataset",
        sets.join(", ")
    );
    Some(Warning::new(&format!("{code}_{metrics}_sets"), message))
}

fn side_by_side(records: &[&RunRecord]) -> BTreeMap<String, Vec<Option<f64>>> {
    let of_run = |record: &RunRecord| {
        let mut metrics = Metrics::from([
            (
                "epochs".to_owned(),
                crate::float_casts::exact(record.epochs),
            ),
            ("steps".to_owned(), crate::float_casts::exact(record.step)),
        ]);
        metrics.extend(
            record
                .test
                .iter()
                .map(|(name, v)| (format!("test_{name}"), *v)),
        );
        if let Some(best) = &record.best {
            metrics.insert("validation_loss".to_owned(), best.loss);
            let named = best.metrics.iter();
            metrics.extend(named.map(|(name, v)| (format!("validation_{name}"), *v)));
        }
        metrics
    };
    let metrics: Vec<Metrics> = records.iter().map(|record| of_run(record)).collect();
    let names: BTreeSet<&String> = metrics.iter().flat_map(BTreeMap::keys).collect();
    let values = |name: &str| metrics.iter().map(|m| m.get(name).copied()).collect();
    names
        .into_iter()
        .map(|name| (name.clone(), values(name)))
        .collect()
}

impl Comparison {
    /// Returns whether the runs were trained on different datasets.
    #[must_use]
    pub fn has_several_datasets(&self) -> bool {
        let mut pairs = self.runs.windows(2);
        pairs.any(|pair| pair[0].fingerprint != pair[1].fingerprint)
    }

    /// The metrics in the order to read them: those of the validation split, which choose a run, then how far the runs
    /// came, and last those of the test split. A metric of one class names it.
    #[must_use]
    pub fn ordered_metrics(&self) -> Vec<(String, &[Option<f64>])> {
        let named = self.in_order().into_iter();
        named
            .map(|(name, values)| (self.named(name), values.as_slice()))
            .collect()
    }

    fn in_order(&self) -> Vec<(&String, &Vec<Option<f64>>)> {
        let place = |name: &str| match name {
            "validation_loss" => 0,
            _ if name.starts_with("validation_") => 1,
            _ if name.starts_with("test_") => 3,
            _ => 2,
        };
        let mut metrics: Vec<_> = self.metrics.iter().collect();
        metrics.sort_by_key(|(name, _)| place(name));
        metrics
    }

    /// A metric with the class that it is about.
    fn named(&self, metric: &str) -> String {
        let mut positives = self.runs.iter().filter_map(|run| match &run.classes[..] {
            [_, positive] => Some(positive),
            _ => None,
        });
        match positives.next() {
            Some(first) if metric.ends_with("_f1") && positives.all(|other| other == first) => {
                format!("{metric} of {first:?}")
            }
            _ => metric.to_owned(),
        }
    }

    /// The comparison as a page that needs nothing but itself, with the curves of the runs in the same charts.
    #[must_use]
    pub fn html(&self) -> String {
        let names: Vec<&str> = self.runs.iter().map(|run| run.name.as_str()).collect();
        let head: Vec<&str> = std::iter::once("").chain(names.iter().copied()).collect();
        let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".into());
        let mut body = "<h1>Runs compared</h1>\n<h2>Metrics</h2>\n".to_owned();
        for warning in &self.warnings {
            body += &format!("<p><strong>{}</strong></p>\n", escape(&warning.message));
        }
        let states = std::iter::once("state".to_owned());
        let states = states.chain(self.runs.iter().map(|r| r.state.as_str().to_owned()));
        let states: Vec<String> = states.collect();
        let mut rows = vec![TableRow::of_text(&states)];
        rows.extend(self.in_order().into_iter().map(|(name, values)| {
            let best = self.best(name);
            let cell = |(i, value): (usize, &Option<f64>)| {
                let number = value.map_or_else(|| "-".into(), metric);
                if best.contains(&i) {
                    format!("<strong>{number} ★</strong>")
                } else {
                    number
                }
            };
            TableRow::new(row(
                &escape(&self.named(name)),
                values.iter().enumerate().map(cell),
            ))
        }));
        let caption = if self.has_several_datasets() {
            "Of the kept weights. The datasets differ: the metrics are of different rows, and none is marked as the best."
        } else {
            "Of the kept weights. ★ marks the best."
        };
        body += &table_of(caption, &head, 1.., &rows);
        body += "<div class=\"charts\">\n";
        for name in self.charted() {
            body += &self.final_metric(name);
        }
        body += "</div>\n<h2>Curves</h2>\n<div class=\"charts\">\n";
        body += &self.chart("Validation loss", "mean loss", |c| {
            c.of_epochs(|p: &EpochPoint| p.validation_loss)
        });
        body += &self.chart("Training loss", "mean loss", |c| {
            c.of_epochs(|p: &EpochPoint| p.train_loss)
        });
        body += &self.chart("Learning rate", "learning rate", |c| {
            c.of_steps(|p: &StepPoint| p.learning_rate)
        });
        body += &self.chart("Norm of the gradient", "norm before clipping", |c| {
            c.of_steps(|p: &StepPoint| p.gradient_norm)
        });
        body += "</div>\n<h2>Configuration</h2>\n";
        let mut rows: Vec<Vec<String>> = Vec::new();
        if self.has_several_datasets() {
            let fingerprints = self.runs.iter().map(|r| r.fingerprint.clone());
            rows.push(row("dataset", fingerprints));
        }
        rows.extend(
            self.config
                .iter()
                .map(|(key, values)| row(key, values.iter().map(text))),
        );
        body += &if rows.is_empty() {
            "<p>All keys are the same in all runs.</p>\n".to_owned()
        } else {
            table("Keys that are not the same in all runs", &head, 1.., &rows)
        };
        document("Runs compared", &body)
    }

    /// The runs with the best value of a metric, by index: none where the runs have different data, one value only, or all the
    /// same.
    fn best(&self, name: &str) -> Vec<usize> {
        let short = name.split_once('_').map_or(name, |(_, short)| short);
        let sign = match short {
            _ if self.has_several_datasets() => return Vec::new(),
            short if is_higher_better(short) => -1.0,
            short if LOWER.contains(&of_any_target(short)) => 1.0,
            _ => return Vec::new(),
        };
        let values = self.metrics[name].iter().enumerate();
        let costs: Vec<(usize, f64)> = values
            .filter_map(|(i, value)| Some((i, sign * value.filter(|v| v.is_finite())?)))
            .collect();
        let lowest = costs
            .iter()
            .fold(f64::INFINITY, |low, (_, cost)| low.min(*cost));
        let best: Vec<usize> = costs
            .iter()
            .filter(|(_, cost)| *cost <= lowest)
            .map(|(i, _)| *i)
            .collect();
        if best.len() < costs.len() {
            best
        } else {
            Vec::new()
        }
    }

    /// The metrics that have a chart of their own: the validation loss and the main metric.
    fn charted(&self) -> Vec<&str> {
        let main = MAIN.into_iter().find_map(|name| {
            let key = format!("test_{name}");
            self.metrics
                .get_key_value(&key)
                .map(|(key, _)| key.as_str())
        });
        let loss = self.metrics.get_key_value("validation_loss");
        main.into_iter()
            .chain(loss.map(|(key, _)| key.as_str()))
            .collect()
    }

    /// The value of a metric in each run.
    fn final_metric(&self, name: &str) -> String {
        let values = self.metrics[name].iter().enumerate();
        let points =
            values.filter_map(|(i, value)| Some((crate::float_casts::exact_len(i), (*value)?)));
        let chart = Chart {
            title: name,
            x: "run",
            y: name,
            axis: AxisX::Named(self.runs.iter().map(|run| run.name.clone()).collect()),
            lines: vec![ChartSeries::dots(name, points.collect())],
            mark: None,
        };
        chart.figure()
    }

    fn chart(&self, title: &str, y: &str, points: fn(&Curves) -> Points) -> String {
        let line = |run: &ComparedRun| ChartSeries::new(run.name.clone(), points(&run.curves));
        Chart::of_steps(title, y, self.runs.iter().map(line).collect()).figure()
    }
}

fn row(name: &str, cells: impl Iterator<Item = String>) -> Vec<String> {
    std::iter::once(name.to_owned()).chain(cells).collect()
}
