//! `report.html` of a search.

use feedline_report::{
    AxisX, Chart, ChartSeries, Points, TableRow, document, escape, link, number, table, table_of,
};
use feedline_schemas::report::TrainReport;

use super::{
    Trial, TrialState,
    measured::cost,
    space::{Parameter, ValueRange},
};
use crate::{
    evaluation::{baseline::is_higher_better, metrics::metric},
    float_casts::{exact, exact_len},
    reporting::{index, paths::REPORT_PATH},
};

/// Path in the search's folder.
pub(super) const PATH: &str = "report.html";

/// Content of the page of a search.
pub(super) struct SearchPage<'a> {
    /// Metric that the trials are compared by.
    pub(super) metric: &'a str,
    pub(super) parameters: &'a [Parameter],
    pub(super) trials: &'a [Trial],
    pub(super) best: &'a Trial,
    /// The best trial, measured on the test split.
    pub(super) train: &'a TrainReport,
    /// Section `[train]` for it.
    pub(super) toml: &'a str,
    /// Link to a path in the folder of runs, where there can be one.
    pub(super) link: &'a dyn Fn(&str) -> Option<String>,
}

impl SearchPage<'_> {
    /// The page.
    pub(super) fn html(&self) -> String {
        let best = self.best;
        let direction = if is_higher_better(self.metric) {
            "higher"
        } else {
            "lower"
        };
        let found = best.metric.map(metric).unwrap_or_default();
        // An escaped text is one line.
        let section: Vec<String> = self.toml.lines().map(escape).collect();
        let index = (self.link)(index::PATH);
        let mut body = index.map_or_else(String::new, |to| {
            format!("<p class=\"links\">{}</p>\n", link(&to, "All runs"))
        });
        body += &format!(
            "<h1>Search</h1>\n<p class=\"word\"><strong>Best: {found} in trial {} of {}.</strong> The {} of the validation \
             split was compared; {direction} is better. Run {}.</p>\n<h2>Best values</h2>\n<pre><code>{}</code></pre>\n",
            best.number,
            self.trials.len(),
            escape(&self.named_metric()),
            self.run(best, &best.run),
            section.join("\n")
        );
        body += &self.metrics();
        body += "<h2>Course</h2>\n<div class=\"charts\">\n";
        body += &self.course();
        for (i, parameter) in self.parameters.iter().enumerate() {
            body += &self.by_value(i, parameter);
        }
        body += "</div>\n<h2>Trials</h2>\n";
        body += &self.all();
        document("Search", &body)
    }

    /// The metric, of one class with the name of that class.
    fn named_metric(&self) -> String {
        match (self.metric, &self.train.classes[..]) {
            ("f1", [_, positive]) => format!("f1 of {positive:?}"),
            (metric, _) => metric.to_owned(),
        }
    }

    /// The name of a trial's run or its number, with a link to its report.
    fn run(&self, trial: &Trial, text: &str) -> String {
        let to = (self.link)(&format!("{}/{REPORT_PATH}", trial.run));
        to.map_or_else(|| escape(text), |to| link(&to, text))
    }

    fn metrics(&self) -> String {
        let cell = |value: Option<&f64>| value.map_or_else(|| "-".into(), |v| metric(*v));
        let row = |(name, value): (&String, &f64)| {
            let baseline = self.train.baseline.get(name);
            vec![name.clone(), metric(*value), cell(baseline)]
        };
        let rows: Vec<_> = self.train.test.iter().map(row).collect();
        let caption = "Of the best trial. The test split was read once, when the search had ended.";
        table(caption, &["metric", "test", "baseline"], 1.., &rows)
    }

    /// The trials that finished, and the best so far.
    fn course(&self) -> String {
        let name = self.metric;
        let mut lowest = f64::INFINITY;
        let mut best = Points::new();
        for trial in self.of(TrialState::Finished) {
            if let Some(value) = trial.metric {
                lowest = lowest.min(cost(name, value));
                best.push((exact(trial.number), cost(name, lowest)));
            }
        }
        let points = |state| -> Points {
            let found = self.of(state);
            found
                .filter_map(|trial| Some((exact(trial.number), trial.metric?)))
                .collect()
        };
        let chart = Chart {
            title: "Best so far",
            x: "trial",
            y: name,
            axis: AxisX::FromZero,
            lines: vec![
                ChartSeries::new("best so far", best),
                ChartSeries::dots("finished", points(TrialState::Finished)),
                ChartSeries::dots("stopped early", points(TrialState::Stopped)).clipped(),
            ],
            mark: None,
        };
        chart.figure()
    }

    fn of(&self, state: TrialState) -> impl Iterator<Item = &Trial> {
        self.trials.iter().filter(move |trial| trial.state == state)
    }

    fn by_value(&self, i: usize, parameter: &Parameter) -> String {
        let values = &parameter.values;
        let points = |state| -> Points {
            let drawn = |trial: &Trial| {
                let place = *trial.places.get(i)?;
                let x = match values {
                    ValueRange::Listed(_) => exact_len(values.index(place)),
                    ValueRange::Between { .. } => values.drawn(place),
                };
                Some((x, trial.metric?))
            };
            self.of(state).filter_map(drawn).collect()
        };
        let axis = match values {
            ValueRange::Listed(values) => AxisX::Named(values.iter().map(on_axis).collect()),
            ValueRange::Between { log: true, .. } => AxisX::Log,
            ValueRange::Between { log: false, .. } => AxisX::Linear,
        };
        let chart = Chart {
            title: &parameter.key,
            x: "value",
            y: self.metric,
            axis,
            lines: vec![
                ChartSeries::dots("finished", points(TrialState::Finished)),
                ChartSeries::dots("stopped early", points(TrialState::Stopped)).clipped(),
            ],
            mark: None,
        };
        chart.figure()
    }

    fn all(&self) -> String {
        let keys = self.parameters.iter();
        let keys = keys.map(|p| p.key.strip_prefix("train.").unwrap_or(&p.key));
        let head: Vec<&str> = ["trial", "run", self.metric, "epochs", "ended"]
            .into_iter()
            .chain(keys)
            .collect();
        let row = |trial: &Trial| {
            let values = self.parameters.iter().map(|p| {
                let value = trial.values.get(&p.key);
                escape(&value.map(short).unwrap_or_default())
            });
            let is_best = trial.number == self.best.number;
            let mark = if is_best { " (best)" } else { "" };
            let first = [
                format!("{}{mark}", trial.number),
                self.run(trial, &trial.run),
                trial.metric.map_or_else(|| "-".into(), metric),
                trial.epochs.to_string(),
                trial.state.as_str().to_owned(),
            ];
            TableRow {
                cells: first.into_iter().chain(values).collect(),
                class: if is_best { "best" } else { "" },
            }
        };
        let rows: Vec<TableRow> = self.trials.iter().map(row).collect();
        table_of("All trials in order.", &head, 1.., &rows)
    }
}

/// A value as an axis names it.
fn on_axis(value: &serde_json::Value) -> String {
    match value.as_f64() {
        Some(value) => number(value),
        None => short(value),
    }
}

/// A value with four significant digits.
fn short(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::String(text) => text.clone(),
        _ => match value.as_f64() {
            Some(number) if value.is_f64() => metric_like(number),
            _ => value.to_string(),
        },
    }
}

fn metric_like(number: f64) -> String {
    if number != 0.0 && number.abs() < 0.01 {
        format!("{number:.3e}")
    } else {
        format!("{number:.4}")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::{Value, json};

    use super::*;

    fn trial(number: u64, hidden: Value, rate: f64, state: TrialState, rmse: f64) -> Trial {
        let place = if hidden == json!([64]) { 0.5 } else { 1.5 };
        Trial {
            number,
            run: format!("run{number}"),
            values: BTreeMap::from([
                ("train.model.hidden".to_owned(), hidden),
                ("train.learning_rate".to_owned(), json!(rate)),
            ]),
            state,
            epochs: 3,
            metric: Some(rmse),
            places: vec![place, rate.ln()],
            costs: Default::default(),
        }
    }

    #[test]
    fn the_page_names_values_marks_the_best_and_stopped_trials_do_not_squash_it() {
        let parameters = [
            Parameter {
                key: "train.model.hidden".into(),
                values: ValueRange::Listed(vec![json!([64]), json!([64, 64])]),
            },
            Parameter {
                key: "train.learning_rate".into(),
                values: ValueRange::Between {
                    low: 1e-5,
                    high: 0.1,
                    log: true,
                    integer: false,
                    points: 5,
                },
            },
        ];
        let (finished, stopped) = (TrialState::Finished, TrialState::Stopped);
        let trials = [
            trial(0, json!([64]), 1e-5, finished, 20_512.0),
            trial(1, json!([64, 64]), 0.001, finished, 20_498.0),
            trial(2, json!([64, 64]), 0.1, stopped, 78_000.0),
        ];
        let link = |path: &str| Some(format!("../../train/{path}"));
        let page = SearchPage {
            metric: "rmse",
            parameters: &parameters,
            trials: &trials,
            best: &trials[1],
            train: &TrainReport::default(),
            toml: "[train]\nloss = \"l1\"\n",
            link: &link,
        };
        let html = page.html();
        for part in [
            "<pre><code>[train]\nloss = &quot;l1&quot;</code></pre>",
            ">[64]</text>",
            ">[64,64]</text>",
            ">10⁻⁴</text>",
            "1 of 1 stopped early: above what is drawn, as far as 78k.",
            "<tr class=\"best\"><th scope=\"row\">1 (best)</th>",
            "<a href=\"../../train/run2/report.html\">run2</a>",
            "<a href=\"../../train/index.html\">All runs</a>",
        ] {
            assert!(html.contains(part), "{part}: {html}");
        }
        assert_eq!(html.matches("1 of 1 stopped early").count(), 3);
        // Ticks of y differ.
        let ticks = html.split("text-anchor=\"end\">").skip(1);
        let ticks: Vec<&str> = ticks.filter_map(|t| t.split('<').next()).collect();
        let of_first: Vec<&&str> = ticks.iter().take(4).collect();
        for pair in of_first.windows(2) {
            assert!(
                pair[0] != pair[1] && pair[0].starts_with("20."),
                "{ticks:?}"
            );
        }
    }
}
