//! `feedline tune`: the configuration of a trial, and the table of trials.

use std::fmt::{self, Write as _};

use feedline_schemas::config::{Loaded, TrainConfig};
use feedline_trainer::tune::{Trial, TuneReport};
use serde_json::Value;

use crate::{
    check,
    output::{Text, number},
};

/// Maximum terminal columns of the table.
const WIDTH: usize = 100;

/// Applies key changes to the pipeline's `[train]`, and checks it with them. Fails with the key and
/// the reason of an invalid one.
pub(crate) fn made(
    loaded: &Loaded,
    values: &[(String, Value)],
) -> Result<TrainConfig, (String, String)> {
    let mut overrides = loaded.overrides().to_vec();
    for (key, value) in values {
        let text = format!("{key}={value}");
        overrides.push(text.parse().map_err(|reason| (key.clone(), reason))?);
    }
    let changed = loaded.again(&overrides).map_err(|e| (e.key, e.reason))?;
    let missing = || {
        (
            "train".to_owned(),
            "the pipeline has no `[train]`".to_owned(),
        )
    };
    let train = changed.config.train.as_ref().ok_or_else(missing)?;
    check::training(&changed.config, train).map_err(|error| match *error {
        feedline_trainer::Error::Config { key, reason } => (key, reason),
        error => ("train".to_owned(), error.to_string()),
    })?;
    Ok(train.clone())
}

impl Text for TuneReport {
    fn write(&self, out: &mut String) -> fmt::Result {
        writeln!(
            out,
            "{:<6}{:<12}{:<8}{:<15}values",
            "trial", self.metric, "epochs", "ended"
        )?;
        for trial in &self.trials {
            let mark = if trial.number == self.best {
                "* best"
            } else {
                ""
            };
            writeln!(out, "{}", row(trial, mark))?;
        }
        writeln!(out, "\n{}", self.toml)?;
        self.train.write(out)?;
        writeln!(out, "  {:<16} {}", "search", self.report)
    }
}

fn row(trial: &Trial, mark: &str) -> String {
    let metric = trial.metric.map_or_else(|| "-".to_owned(), number);
    let ended = if mark.is_empty() {
        trial.state.as_str()
    } else {
        mark
    };
    let values = trial.values.iter().map(|(key, value)| {
        let key = key.strip_prefix("train.").unwrap_or(key);
        match value.as_f64() {
            Some(exact) if value.is_f64() => format!("{key} = {}", number(exact)),
            _ => format!("{key} = {value}"),
        }
    });
    let values: Vec<String> = values.collect();
    let row = format!(
        "{:<6}{metric:<12}{:<8}{ended:<15}{}",
        trial.number,
        trial.epochs,
        values.join(", ")
    );
    if row.chars().count() <= WIDTH {
        return row;
    }
    row.chars().take(WIDTH - 1).chain(['…']).collect()
}
