//! The run whose model a command used, and the start of a training.

use std::fmt;

use feedline_schemas::{
    report::{ChosenBy, DatasetRelation, ExportReport, UsedRun},
    run::ContinuedFrom,
};

use super::text::{Text, counted, line, write_warnings};

/// Writes the run, how it was chosen and its training data.
pub(crate) fn write(used: &UsedRun, out: &mut String) -> fmt::Result {
    let by = match used.chosen {
        ChosenBy::Configuration if used.relation.is_some() => "of this configuration and dataset",
        ChosenBy::Configuration => {
            "of this configuration of `[train]` and the existing dataset, which was built with other settings"
        }
        ChosenBy::Default => {
            "the newest finished one that fits: this configuration has trained none on this dataset; `--run` chooses another"
        }
        ChosenBy::Newest => "the newest finished one that fits",
        ChosenBy::Best => "of those that fit the one with the lowest validation loss",
        ChosenBy::Name => "by its name",
    };
    let state = used.unfinished.map_or_else(String::new, |state| {
        format!("; it has not finished, it is {}", state.as_str())
    });
    line(out, "run", format!("{} ({by}{state})", used.name))?;
    if !used.differs.is_empty() {
        let pairs = used.differs.iter();
        let pairs: Vec<String> = pairs
            .map(|(key, value)| format!("train.{key} = {value}"))
            .collect();
        line(out, "its settings", pairs.join(", "))?;
    }
    let rows = used.rows.map_or_else(String::new, |rows| {
        format!(", {}", counted(rows, "training row"))
    });
    let relation = match used.relation {
        None => "",
        Some(DatasetRelation::Same) => " (this dataset)",
        Some(DatasetRelation::Grown) => " (this dataset before rows were added)",
        Some(DatasetRelation::Other) => " (another dataset)",
    };
    let (dataset, fingerprint) = (&used.dataset, &used.fingerprint);
    line(
        out,
        "trained on",
        format!("{dataset}{rows}, fingerprint {fingerprint}{relation}"),
    )?;
    write_warnings(&used.warnings, out)
}

/// Writes the run that a training continues.
pub(super) fn write_continued(from: &ContinuedFrom, out: &mut String) -> fmt::Result {
    let before = from.before.iter();
    let before: Vec<String> = before
        .map(|(key, value)| format!("train.{key} = {value}"))
        .collect();
    let result = match from.equals_one_run {
        true => "the result has the bits of one run of this length".to_owned(),
        false => not_one_run(from),
    };
    let (run, step, epoch) = (&from.run, from.step, from.epoch);
    let before = before.join(", ");
    line(
        out,
        "continues",
        format!("run {run} after step {step}, epoch {epoch}, which had {before}; {result}"),
    )
}

fn not_one_run(from: &ContinuedFrom) -> String {
    let why = from.reason.iter();
    let why: String = why.map(|reason| format!(": {reason}")).collect();
    format!("the result is not that of one run with this configuration{why}")
}

impl Text for ExportReport {
    fn write(&self, out: &mut String) -> fmt::Result {
        use fmt::Write as _;
        writeln!(out, "export")?;
        write(&self.run, out)?;
        line(out, "weights", format!("{}, {} bytes", self.to, self.bytes))
    }
}
