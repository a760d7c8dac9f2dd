//! Commands that train and compare models: `feedline run`, `train`, `rank` and `runs`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{
    dataset::Building,
    pipeline::{Detail, Options, Pipeline, RejectRule},
};

#[derive(Debug, Args)]
pub(crate) struct RunOptions {
    #[command(flatten)]
    pub(crate) pipeline: Pipeline,
    #[command(flatten)]
    pub(crate) building: Building,
    #[command(flatten)]
    pub(crate) ranks: Ranks,
    #[command(flatten)]
    pub(crate) rejects: RejectRule,
    #[command(flatten)]
    pub(crate) detail: Detail,
}

#[derive(Debug, Args)]
pub(crate) struct TrainOptions {
    #[command(flatten)]
    pub(crate) pipeline: Pipeline,
    /// Continue from the newest checkpoint of this configuration and dataset. If there is none,
    /// continue from that of the newest run that differs only in `epochs`, `learning_rate`,
    /// `schedule` or `patience` of `[train]`
    #[arg(long)]
    pub(crate) resume: bool,
    /// Show the model's layers and the memory of the training, without training
    #[arg(long, conflicts_with_all = ["resume", "ranks"])]
    pub(crate) summary: bool,
    #[command(flatten)]
    pub(crate) ranks: Ranks,
    #[command(flatten)]
    pub(crate) detail: Detail,
}

#[derive(Debug, Args)]
pub(crate) struct RankOptions {
    #[command(flatten)]
    pub(crate) pipeline: Pipeline,
    /// Resume from the newest checkpoint, if there is one
    #[arg(long)]
    pub(crate) resume: bool,
    /// Continue from the checkpoint of another run, if there is none
    #[arg(long, requires = "resume")]
    pub(crate) prolong: bool,
}

/// Processes that train together.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Ranks {
    /// Train with so many processes on this machine, restarted from the newest checkpoint if one
    /// fails
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) ranks: Option<u16>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RunsCommand {
    /// Show the trainings, newest first, without the trials that a search pruned
    List {
        #[command(flatten)]
        pipeline: Pipeline,
        /// Show pruned trials too
        #[arg(long)]
        all: bool,
    },
    /// Show the differences between trainings, and their metrics side by side
    Compare(CompareRuns),
}

#[derive(Debug, Args)]
pub(crate) struct CompareRuns {
    /// Pipeline file (TOML)
    #[arg(value_name = "PIPELINE.toml")]
    pub(crate) file: PathBuf,
    /// Runs, each by a unique prefix of its name, or as `newest` or `best`: the finished run
    /// that was started last, or the one with the lowest validation loss
    #[arg(value_name = "RUN", num_args = 2.., required = true)]
    pub(crate) runs: Vec<String>,
    /// Also write an HTML page with the curves of all runs
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) options: Options,
}
