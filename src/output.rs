//! Output for people and scripts: reports on standard output, logs on standard error.

mod bench;
mod brief;
mod build;
mod cursors;
mod dataset;
mod delta;
mod export;
mod ingest;
mod inspection;
mod performance;
mod plan;
mod preview;
mod severity;
mod shell;
mod source_warnings;
mod text;
mod train;
pub(crate) mod used_run;

use std::{
    fmt,
    io::{IsTerminal as _, Write as _},
};

use feedline_schemas::report::RunReport;
use serde::Serialize;
use tracing_subscriber::{EnvFilter, filter::LevelFilter};

pub(crate) use self::{
    brief::Brief,
    dataset::write_other_uses,
    inspection::Inspection,
    preview::PreviewReport,
    shell::shell_word,
    text::{
        Text, counted, line, lines, number, shortened, shown_columns, write_rejects, write_warnings,
    },
};
use crate::{environment::Environment, exit::shown};

/// Sends `tracing` events to standard error. On a terminal only warnings, since bars show the
/// progress there; of ranks that train together only errors, but for the first.
///
/// # Errors
/// Text about a filter of the environment that is no filter.
pub(crate) fn start_logs(environment: &Environment) -> Result<(), String> {
    let default = if std::io::stderr().is_terminal() {
        "warn"
    } else {
        "warn,feedline=info"
    };
    let asked = environment.log_filter().map(log_filter).transpose()?;
    let filter = match asked {
        _ if !environment.leads() => EnvFilter::new("error"),
        Some(filter) => filter,
        None => EnvFilter::new(default),
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // A failed write would be reported on standard error, whose failure is a panic.
        .log_internal_errors(false)
        .with_ansi(false)
        .with_target(false)
        .compact()
        .init();
    Ok(())
}

/// The filter that `text` is. Each part must end with a level, since a misspelled one alone would be
/// the name of a target that logs nothing.
fn log_filter(text: &str) -> Result<EnvFilter, String> {
    let error = || {
        format!(
            "`FEEDLINE_LOG` is `{}`, which is no filter of log lines; set it to `off`, `error`, `warn`, `info`, `debug` or `trace`, or to levels of modules, such as `warn,feedline_ingest=debug`",
            shown(text)
        )
    };
    let is_misspelled = |part: &str| {
        let level = part.rsplit('=').next().unwrap_or(part);
        level.parse::<LevelFilter>().is_err()
    };
    let text: String = text.split_whitespace().collect();
    // The fields of a span may have commas.
    let has_span = text.contains('[');
    if !has_span && text.split(',').any(is_misspelled) {
        return Err(error());
    }
    EnvFilter::try_new(text).map_err(|_| error())
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
