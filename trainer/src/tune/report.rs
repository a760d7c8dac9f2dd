//! `report.html` of a search.

use feedline_schemas::report::TrainReport;

use super::{
    Trial, TrialState, cost,
    space::{Parameter, Values},
};
use crate::{
    baseline::HIGHER,
    number::exact,
    track::report::{
        chart::{Chart, Series, escape},
        curves::Points,
        document, metric, table,
    },
};

/// Path in the search's folder.
pub(super) const PATH: &str = "report.html";

pub(super) fn page(
    compared: &str,
    parameters: &[Parameter],
    trials: &[Trial],
    best: &Trial,
    train: &TrainReport,
    toml: &str,
) -> String {
    let direction = if HIGHER.contains(&compared) {
        "higher"
    } else {
        "lower"
    };
    let named = match (compared, &train.classes[..]) {
        ("f1", [_, positive]) => format!("f1 of {positive:?}"),
        _ => compared.to_owned(),
    };
    let found = best.metric.map(metric).unwrap_or_default();
    let mut body = format!(
        "<h1>Search</h1>\n<p class=\"word\"><strong>Best: {found} in trial {} of {}.</strong> The {} of the validation split \
         was compared; {direction} is better. Run <code>{}</code>.</p>\n<h2>Best values</h2>\n<pre><code>{}</code></pre>\n",
        best.number,
        trials.len(),
        escape(&named),
        escape(&best.run),
        escape(toml)
    );
    let rows: Vec<_> = train
        .test
        .iter()
        .map(|(name, value)| {
            let baseline = train
                .baseline
                .get(name)
                .map_or_else(|| "-".into(), |v| metric(*v));
            vec![name.clone(), metric(*value), baseline]
        })
        .collect();
    let caption = "Of the best trial. The test split was read once, when the search had ended.";
    body += &table(caption, &["metric", "test", "baseline"], &rows);
    body += "<h2>Course</h2>\n<div class=\"charts\">\n";
    body += &course(compared, trials);
    for (i, parameter) in parameters.iter().enumerate() {
        body += &by_value(compared, trials, i, parameter);
    }
    body += "</div>\n<h2>Trials</h2>\n";
    body += &all(parameters, trials);
    document("Search", &body)
}

/// The trials that finished, and the best so far.
fn course(compared: &str, trials: &[Trial]) -> String {
    let mut lowest = f64::INFINITY;
    let mut best = Points::new();
    for trial in trials.iter().filter(|t| t.state == TrialState::Finished) {
        if let Some(value) = trial.metric {
            lowest = lowest.min(cost(compared, value));
            best.push((exact(trial.number), cost(compared, lowest)));
        }
    }
    let chart = Chart {
        title: "Best so far",
        x: "trial",
        y: compared,
        lines: vec![Series::new("best so far", best)],
        scatter: false,
        mark: None,
    };
    chart.figure()
}

fn by_value(compared: &str, trials: &[Trial], i: usize, parameter: &Parameter) -> String {
    let log = matches!(parameter.values, Values::Between { log: true, .. });
    let of = |state: TrialState| -> Points {
        let of_state = trials.iter().filter(|t| t.state == state);
        let drawn = |trial: &Trial| {
            let x = parameter.values.drawn(*trial.places.get(i)?);
            Some((if log { x.log10() } else { x }, trial.metric?))
        };
        of_state.filter_map(drawn).collect()
    };
    let x = match &parameter.values {
        Values::Listed(values) if !values.iter().all(serde_json::Value::is_number) => {
            "place in the list of values"
        }
        _ if log => "log10 of the value",
        _ => "value",
    };
    let chart = Chart {
        title: &parameter.key,
        x,
        y: compared,
        lines: vec![
            Series::new("finished", of(TrialState::Finished)),
            Series::new("stopped early", of(TrialState::Stopped)),
        ],
        scatter: true,
        mark: None,
    };
    chart.figure()
}

fn all(parameters: &[Parameter], trials: &[Trial]) -> String {
    let keys = parameters
        .iter()
        .map(|p| p.key.strip_prefix("train.").unwrap_or(&p.key));
    let head: Vec<&str> = ["trial", "metric", "epochs", "ended"]
        .into_iter()
        .chain(keys)
        .collect();
    let row = |trial: &Trial| {
        let values = parameters
            .iter()
            .map(|p| trial.values.get(&p.key).map(short).unwrap_or_default());
        let first = [
            trial.number.to_string(),
            trial.metric.map_or_else(|| "-".into(), metric),
            trial.epochs.to_string(),
            trial.state.as_str().to_owned(),
        ];
        first.into_iter().chain(values).collect()
    };
    let rows: Vec<Vec<String>> = trials.iter().map(row).collect();
    table("All trials in order", &head, &rows)
}

/// A value with four significant digits.
fn short(value: &serde_json::Value) -> String {
    match value.as_f64() {
        Some(number) if value.is_f64() => metric_like(number),
        _ => value.to_string(),
    }
}

fn metric_like(number: f64) -> String {
    if number != 0.0 && number.abs() < 0.01 {
        format!("{number:.3e}")
    } else {
        format!("{number:.4}")
    }
}
