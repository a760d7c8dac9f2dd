//! `feedline runs`: tables of runs for a terminal, at most [`WIDTH`] columns wide.

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
};

use feedline_schemas::run::RunState;
use feedline_trainer::runs::{Comparison, ListedRun, RunList};
use serde::Serialize;

use crate::output::{Text, counted, number};

/// Maximum terminal columns of tables.
const WIDTH: usize = 100;

/// Columns of a key in a comparison.
const KEY: usize = 32;

/// Runs side by side in a comparison.
const BESIDE: usize = 4;

/// A list of runs as it is shown.
#[derive(Debug, Serialize)]
pub(crate) struct ShownRuns {
    #[serde(flatten)]
    list: RunList,
    /// Pruned trials that are not listed.
    pruned: usize,
}

impl ShownRuns {
    /// Lists runs, pruned trials only if `all` is set.
    pub(crate) fn new(mut list: RunList, all: bool) -> Self {
        let before = list.runs.len();
        if !all {
            list.runs.retain(|run| run.state != RunState::Pruned);
        }
        Self {
            pruned: before - list.runs.len(),
            list,
        }
    }
}

impl Text for ShownRuns {
    fn write(&self, out: &mut String) -> fmt::Result {
        self.list.write(out)?;
        match self.pruned {
            0 => Ok(()),
            1 => writeln!(out, "1 pruned trial is not listed; `--all` shows it"),
            more => writeln!(
                out,
                "{more} pruned trials are not listed; `--all` shows them"
            ),
        }
    }
}

impl Text for RunList {
    fn write(&self, out: &mut String) -> fmt::Result {
        if self.runs.is_empty() {
            return writeln!(out, "no runs in {}", self.url);
        }
        let head = [
            "run",
            "state",
            "started (UTC)",
            "epochs",
            "steps",
            "val. loss",
            "test",
            "seed",
        ];
        write_row(out, &head.map(str::to_owned))?;
        let first = &self.runs[0];
        let is_one = self
            .runs
            .iter()
            .all(|run| run.fingerprint == first.fingerprint);
        for run in &self.runs {
            write_row(out, &cells(run))?;
            if !run.differs.is_empty() {
                write_differences(out, &run.differs)?;
            }
            if let Some(reached) = reached(run) {
                writeln!(out, "    {reached}")?;
            }
            if let Some(from) = &run.continued_from {
                writeln!(out, "    continues {} after epoch {}", from.run, from.epoch)?;
            }
            if !is_one {
                writeln!(out, "    {}", cut(&trained_on(run), WIDTH - 4))?;
            }
        }
        if is_one {
            writeln!(out, "all on {}", cut(&trained_on(first), WIDTH - 7))?;
        }
        Ok(())
    }
}

/// Sentence about a run that stopped early: the reason, and where `--resume` continues it.
fn reached(run: &ListedRun) -> Option<String> {
    let why = match run.state {
        RunState::Stopped => "ended without a word: killed, or its machine is gone",
        RunState::Interrupted => "was asked to stop",
        RunState::Failed => "ended with an error",
        RunState::Running | RunState::Finished | RunState::Pruned => return None,
    };
    Some(match run.last_checkpoint {
        Some(step) => format!("{why}; its last checkpoint, for `--resume`, is of step {step}"),
        None => format!("{why}; it has no checkpoint"),
    })
}

/// The dataset of a run.
fn trained_on(run: &ListedRun) -> String {
    let rows = run.rows.map_or_else(String::new, |rows| {
        format!(", {}", counted(rows, "training row"))
    });
    format!("dataset {}{rows}, {}", run.fingerprint, run.dataset)
}

/// Widths of the columns of [`RunList`]; the last needs none.
const COLUMNS: [usize; 7] = [16, 11, 16, 6, 8, 9, 18];

fn write_row(out: &mut String, cells: &[String; 8]) -> fmt::Result {
    let mut line = String::new();
    for (cell, width) in cells.iter().zip(COLUMNS) {
        write!(line, "{:<width$} ", cut(cell, width))?;
    }
    line += &cells[7];
    writeln!(out, "{}", cut(line.trim_end(), WIDTH))
}

fn cells(run: &ListedRun) -> [String; 8] {
    let started = i64::try_from(run.started_ms).ok();
    let started = started.and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    let test = match (&run.metric, run.test) {
        (Some(name), Some(value)) => format!("{} {name}", figure(value)),
        _ => "-".to_owned(),
    };
    [
        run.name.clone(),
        run.state.as_str().to_owned(),
        started.map_or_else(
            || "-".to_owned(),
            |t| t.strftime("%Y-%m-%d %H:%M").to_string(),
        ),
        run.epochs.to_string(),
        run.steps.to_string(),
        run.validation_loss.map_or_else(|| "-".to_owned(), figure),
        test,
        run.seed.to_string(),
    ]
}

/// Writes the settings that only this run has, on lines below it.
fn write_differences(out: &mut String, differs: &BTreeMap<String, String>) -> fmt::Result {
    let mut line = String::new();
    for (key, value) in differs {
        let word = cut(&format!("{key} = {value}"), WIDTH - 4);
        if !line.is_empty() && line.chars().count() + word.chars().count() + 6 > WIDTH {
            writeln!(out, "    {line}")?;
            line.clear();
        }
        line += if line.is_empty() { "" } else { ", " };
        line += &word;
    }
    writeln!(out, "    {line}")
}

impl Text for Comparison {
    fn write(&self, out: &mut String) -> fmt::Result {
        for warning in &self.warnings {
            writeln!(out, "warning: {}", warning.message)?;
        }
        for first in (0..self.runs.len()).step_by(BESIDE) {
            let runs = first..(first + BESIDE).min(self.runs.len());
            let beside = &self.runs[runs.clone()];
            if first > 0 {
                writeln!(out)?;
            }
            write_compared(out, "", beside.iter().map(|r| r.name.clone()))?;
            write_compared(
                out,
                "state",
                beside.iter().map(|r| r.state.as_str().to_owned()),
            )?;
            if self.has_several_datasets() {
                write_compared(out, "dataset", beside.iter().map(|r| r.fingerprint.clone()))?;
            }
            for (key, values) in &self.config {
                let values = values[runs.clone()].iter().cloned();
                write_compared(
                    out,
                    key,
                    values.map(|v| v.unwrap_or_else(|| "-".to_owned())),
                )?;
            }
            for (name, values) in self.ordered_metrics() {
                let text = |v: &Option<f64>| v.map_or_else(|| "-".to_owned(), figure);
                write_compared(out, &name, values[runs.clone()].iter().map(text))?;
            }
        }
        Ok(())
    }
}

fn write_compared(out: &mut String, key: &str, cells: impl Iterator<Item = String>) -> fmt::Result {
    let width = (WIDTH - KEY) / BESIDE - 1;
    let mut line = format!("{:<KEY$}", cut(key, KEY - 1));
    for cell in cells {
        write!(line, "{:<width$} ", cut(&cell, width))?;
    }
    writeln!(out, "{}", line.trim_end())
}

/// A number as in reports; a whole one without fraction.
fn figure(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e9 {
        format!("{value:.0}")
    } else {
        number(value)
    }
}

/// Truncates to at most `width` columns, with a mark at the end.
fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut kept: String = text.chars().take(width.saturating_sub(1)).collect();
    kept.push('…');
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(name: &str, differs: &[(&str, &str)]) -> ListedRun {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        ListedRun {
            name: name.to_owned(),
            state: RunState::Interrupted,
            started_ms: 1_700_000_000_000,
            epochs: 12,
            steps: 1_234_567,
            last_checkpoint: Some(1_234_000),
            best_epoch: Some(9),
            validation_loss: Some(0.123_456_789),
            metric: Some("perplexity".to_owned()),
            test: Some(54_321.987),
            seed: u64::MAX,
            dataset: "out/dataset".to_owned(),
            fingerprint: "f".repeat(32),
            rows: Some(1200),
            continued_from: None,
            differs: differs.iter().map(owned).collect(),
        }
    }

    #[test]
    fn pruned_trials_are_counted_and_listed_only_if_asked_for() {
        let text = |all: bool| {
            let mut pruned = run("bb", &[]);
            pruned.state = RunState::Pruned;
            let list = RunList {
                url: "out/train".to_owned(),
                runs: vec![run("aa", &[]), pruned],
            };
            let mut text = String::new();
            ShownRuns::new(list, all).write(&mut text).unwrap();
            text
        };
        let (some, all) = (text(false), text(true));
        assert!(!some.contains("bb "), "{some}");
        assert!(
            some.ends_with("1 pruned trial is not listed; `--all` shows it\n"),
            "{some}"
        );
        assert!(all.contains("bb               pruned"), "{all}");
        assert!(!all.contains("not listed"), "{all}");
    }

    #[test]
    fn a_list_is_a_table_that_fits_a_terminal() {
        let long = "x".repeat(300);
        let list = RunList {
            url: "out/train".to_owned(),
            runs: vec![
                run(
                    "0123456789abcdef",
                    &[("learning_rate", "0.003"), ("model.hidden", "[64,64]")],
                ),
                run("fedcba9876543210", &[("dataset", &long), ("seed", "1")]),
            ],
        };
        let mut text = String::new();
        list.write(&mut text).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.iter().all(|l| l.chars().count() <= WIDTH), "{text}");
        assert_eq!(
            lines[..3],
            [
                "run              state       started (UTC)    epochs steps    val. loss test               seed",
                "0123456789abcdef interrupted 2023-11-14 22:13 12     1234567  0.12346   54322.0 perplexity 18446744…",
                "    learning_rate = 0.003, model.hidden = [64,64]",
            ]
        );
        assert_eq!(
            lines[3],
            "    was asked to stop; its last checkpoint, for `--resume`, is of step 1234000"
        );
        assert_eq!(lines.len(), 9, "{text}");
        let all = format!(
            "all on dataset {}, 1200 training rows, out/dataset",
            "f".repeat(32)
        );
        assert_eq!(lines[8], all);
        let mut grown = list;
        grown.runs[0].fingerprint = "e".repeat(32);
        let mut text = String::new();
        grown.write(&mut text).unwrap();
        let own = format!(
            "    dataset {}, 1200 training rows, out/dataset",
            "e".repeat(32)
        );
        assert!(text.contains(&own) && !text.contains("all on"), "{text}");
    }
}
