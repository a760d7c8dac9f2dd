//! `feedline tune`: the configuration of a trial, and the table of trials.

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
};

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

/// Section `[train]` of the best `values`, whose lines go in place of those of the pipeline file, which has
/// this `text`. A table of the file with a searched key is repeated as a whole: TOML extends no inline
/// table.
pub(crate) fn best_section(text: &str, values: &BTreeMap<String, Value>) -> String {
    let file: toml::Table = toml::from_str(text).unwrap_or_default();
    let train = file.get("train").and_then(toml::Value::as_table);
    let mut tables: BTreeMap<&str, toml::Table> = BTreeMap::new();
    let mut section = "[train]\n".to_owned();
    for (key, value) in values {
        let key = key.strip_prefix("train.").unwrap_or(key);
        let is_in_table = key.split_once('.').is_some_and(|(name, path)| {
            let written = train.and_then(|train| train.get(name)?.as_table());
            let (Some(written), Ok(value)) = (written, toml::Value::try_from(value)) else {
                return false;
            };
            let table = tables.entry(name).or_insert_with(|| written.clone());
            set_value(table, path, value)
        });
        if !is_in_table {
            // JSON's numbers, texts and lists are TOML's too.
            section += &format!("{key} = {value}\n");
        }
    }
    for (name, table) in tables {
        section += &format!("{name} = {}\n", toml::Value::Table(table));
    }
    section
}

/// Sets the value at a path of keys. Returns false if it leads through something that is no table.
fn set_value(table: &mut toml::Table, path: &str, value: toml::Value) -> bool {
    let Some((name, rest)) = path.split_once('.') else {
        table.insert(path.to_owned(), value);
        return true;
    };
    let empty = || toml::Value::Table(toml::Table::new());
    let below = table.entry(name).or_insert_with(empty).as_table_mut();
    below.is_some_and(|below| set_value(below, rest, value))
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn section(text: &str, values: &[(&str, Value)]) -> String {
        let values = values.iter().cloned();
        let values = values.map(|(key, value)| (key.to_owned(), value));
        let section = best_section(text, &values.collect());
        let parsed: Result<toml::Table, _> = toml::from_str(&section);
        assert!(parsed.is_ok(), "{section}");
        section
    }

    #[test]
    fn a_table_of_the_file_is_repeated_with_the_best_values_and_its_other_keys() {
        let values = [
            ("train.learning_rate", json!(0.01)),
            ("train.model.hidden", json!([32])),
            ("train.model.image.width", json!(8)),
        ];
        let begin = "[train]\nlearning_rate = 0.01\n";
        for file in [
            "[train]\nmodel = { type = \"mlp\", hidden = [16] }\n",
            "[train.model]\ntype = \"mlp\"\nhidden = [16]\n",
        ] {
            let found = section(file, &values);
            let rest = found.strip_prefix(begin).unwrap();
            let table: toml::Table = toml::from_str(rest).unwrap();
            let expected = "model = { type = \"mlp\", hidden = [32], image = { width = 8 } }";
            let expected: toml::Table = toml::from_str(expected).unwrap();
            assert_eq!(table, expected, "{found}");
            assert_eq!(rest.lines().count(), 1, "{found}");
        }
        let dotted = "model.hidden = [32]\nmodel.image.width = 8\n";
        let found = section("[train]\nepochs = 2\n", &values);
        assert_eq!(found, format!("{begin}{dotted}"));
    }
}
