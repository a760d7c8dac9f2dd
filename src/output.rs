//! Output for people and scripts: reports on standard output, logs on standard error.

mod bench;
mod brief;
mod build;
mod dataset;
mod delta;
mod export;
mod ingest;
mod inspection;
mod performance;
mod plan;
mod preview;
mod shell;
mod text;
mod train;
pub(crate) mod used_run;

use std::{
    fmt,
    io::{IsTerminal as _, Write as _},
};

use feedline_schemas::report::RunReport;
use serde::Serialize;
use tracing_subscriber::EnvFilter;

pub(crate) use self::{
    brief::Brief,
    dataset::write_other_uses,
    inspection::Inspection,
    preview::PreviewReport,
    shell::shell_word,
    text::{
        Text, counted, line, lines, number, read_failure, shortened, write_rejects, write_warnings,
    },
};
use crate::{environment::Environment, exit::shown};

/// Sends `tracing` events to standard error. On a terminal only warnings, since bars show the
/// progress there; of ranks that train together only errors, but for the first.
pub(crate) fn start_logs(environment: &Environment) {
    let default = if std::io::stderr().is_terminal() {
        "warn"
    } else {
        "warn,feedline=info"
    };
    let filter = if environment.leads() {
        environment.log_filter().unwrap_or(default)
    } else {
        "error"
    };
    let filter = EnvFilter::try_new(filter).unwrap_or_else(|_| EnvFilter::new(default));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_target(false)
        .compact()
        .init();
}

/// Prints a report: as one line of JSON, or as text.
pub(crate) fn print<R: Serialize + Text>(report: &R, json: bool) -> anyhow::Result<()> {
    print_text(&text_of(report, json)?)
}

/// Prints text as it is.
pub(crate) fn print_text(text: &str) -> anyhow::Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        // The reader of the output has closed it.
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

/// The same on standard error, if standard output has the requested data.
pub(crate) fn print_aside<R: Serialize + Text>(report: &R, json: bool) -> anyhow::Result<()> {
    std::io::stderr().write_all(text_of(report, json)?.as_bytes())?;
    Ok(())
}

fn text_of<R: Serialize + Text>(report: &R, json: bool) -> anyhow::Result<String> {
    let mut text = String::new();
    if json {
        text = serde_json::to_string(report)?;
        text.push('\n');
    } else {
        report.write(&mut text)?;
        text = shown(&text);
    }
    Ok(text)
}

impl Text for RunReport {
    fn write(&self, out: &mut String) -> fmt::Result {
        if let Some(ingest) = &self.ingest {
            ingest.write(out)?;
        }
        if let Some(dataset) = &self.dataset {
            dataset.write(out)?;
        }
        if let Some(train) = &self.train {
            train.write(out)?;
        }
        Ok(())
    }
}
