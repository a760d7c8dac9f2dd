//! A pipeline file, and options of many commands.

use std::path::PathBuf;

use clap::Args;
use feedline_schemas::config::Override;

use crate::exit::Outcome;

/// A pipeline file and its overrides.
#[derive(Clone, Debug, Args)]
pub(crate) struct Pipeline {
    /// Pipeline file (TOML)
    #[arg(value_name = "PIPELINE.toml")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) options: Options,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// Override a key of the pipeline, such as `train.epochs=5` or `source.0.url=data.csv`; may be
    /// repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<Override>,
    /// Print the report as one JSON object, on the last line of standard output
    #[arg(long)]
    pub(crate) json: bool,
}

/// Length of the report.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct Detail {
    /// Print the report with all details; by default it has at most 25 lines
    #[arg(long, short)]
    pub(crate) verbose: bool,
}

/// Exit code of a command that has rejected rows.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct RejectRule {
    /// End with exit code 3 if this command rejected rows; by default rejected rows within the
    /// configured bounds are no failure
    #[arg(long)]
    pub(crate) fail_on_rejects: bool,
}

impl RejectRule {
    /// Returns the outcome of a command that did its work, with so many rejected rows.
    pub(crate) const fn outcome(self, rejected: u64) -> Outcome {
        if self.fail_on_rejects && rejected > 0 {
            Outcome::Rejected
        } else {
            Outcome::Done
        }
    }
}
