//! Commands about the program itself: `feedline explain`, `schema`, `completions` and `man`.

use std::{fs, path::Path};

use clap::CommandFactory as _;
use feedline_schemas::config::PIPELINE_SCHEMA;

use super::tools::Tools;
use crate::{cli::Cli, exit::Outcome, explain, output};

/// Explains a key of the pipeline file, or lists the sections.
pub(super) fn explain_key(key: Option<&str>, json: bool, tools: &Tools) -> anyhow::Result<Outcome> {
    tools.print(&explain::explain(key)?, json)?;
    Ok(Outcome::Done)
}

pub(super) fn print_schema() -> anyhow::Result<Outcome> {
    output::print_text(PIPELINE_SCHEMA)?;
    Ok(Outcome::Done)
}

pub(super) fn print_completions(shell: clap_complete::Shell) -> anyhow::Result<Outcome> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "feedline", &mut script);
    output::print_text(&String::from_utf8_lossy(&script))?;
    Ok(Outcome::Done)
}

/// Writes the manual pages of all commands to a folder.
pub(super) fn write_manual(folder: &Path) -> anyhow::Result<Outcome> {
    fs::create_dir_all(folder)?;
    clap_mangen::generate_to(Cli::command(), folder)?;
    Ok(Outcome::Done)
}
