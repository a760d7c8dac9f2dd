//! The command line. Names of commands and options are a contract.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use feedline_schemas::{config::Override, manifest::Split};

/// Takes data from the web to the GPU: ingest, preprocess, shards, training.
#[derive(Debug, Parser)]
#[command(name = "feedline", version, max_term_width = 120, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXIT_CODES: &str = "Exit codes: 0 done, 2 wrong usage or configuration, 3 done with quarantined data, \
4 deferred (a server asked to wait), 1 anything else.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Ingest, build shards and train: whatever sections the pipeline has
    Run(Pipeline),
    /// Bring the sources' records into the landing zone
    Ingest(Ingest),
    /// Build, verify and look into shards
    #[command(subcommand)]
    Shards(Shards),
    /// Train the pipeline's model on its shards
    Train {
        #[command(flatten)]
        pipeline: Pipeline,
        /// Go on from the newest checkpoint, if there is one
        #[arg(long)]
        resume: bool,
    },
    /// Evaluate the trained model on a split
    Eval {
        #[command(flatten)]
        pipeline: Pipeline,
        /// Split to evaluate on
        #[arg(long, value_enum, default_value_t = SplitName::Test)]
        split: SplitName,
    },
}

/// A pipeline file and what is changed in it.
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
    /// Override a key of the pipeline, such as `train.epochs=5` or `source.0.url=data.csv`; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<Override>,
    /// Print the report as one JSON object, on the last line of standard output
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Ingest {
    #[command(subcommand)]
    pub(crate) command: Option<IngestCommand>,
    /// Pipeline file (TOML)
    #[arg(value_name = "PIPELINE.toml", required = true)]
    pub(crate) file: Option<PathBuf>,
    /// Only this source
    #[arg(long, value_name = "NAME")]
    pub(crate) source: Option<String>,
    #[command(flatten)]
    pub(crate) options: Options,
}

#[derive(Debug, Subcommand)]
pub(crate) enum IngestCommand {
    /// Show where the sources stand, from their commit logs
    Status(Pipeline),
}

#[derive(Debug, Subcommand)]
pub(crate) enum Shards {
    /// Build the dataset of a pipeline from its landing zone
    Build {
        #[command(flatten)]
        pipeline: Pipeline,
        /// Where the plan runs
        #[arg(long, value_enum, default_value_t = Engine::Local)]
        engine: Engine,
    },
    /// Check every shard of a dataset: sizes, hashes, blocks, rows, and that no key is in two splits
    Verify(Dataset),
    /// Show what a dataset holds
    Inspect(Dataset),
}

#[derive(Debug, Args)]
pub(crate) struct Dataset {
    /// URL or path of the dataset folder (the one with `CURRENT`)
    #[arg(value_name = "URL")]
    pub(crate) url: String,
    /// Print the report as one JSON object, on the last line of standard output
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Engine {
    /// In this process
    Local,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum SplitName {
    /// The training split
    Train,
    /// The validation split
    Validation,
    /// The test split
    Test,
}

impl From<SplitName> for Split {
    fn from(name: SplitName) -> Self {
        match name {
            SplitName::Train => Self::Train,
            SplitName::Validation => Self::Validation,
            SplitName::Test => Self::Test,
        }
    }
}
