//! The command line. Names of commands and options are a contract.

mod dataset;
mod ingest;
mod model;
mod pipeline;
#[cfg(test)]
mod reference;
mod training;

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, Parser, Subcommand};
use feedline_schemas::config::Override;

pub(crate) use self::{
    dataset::{
        BenchCommand, BuildShards, Building, CompressionName, Dataset, Export, ExportName,
        LoaderBench, PruneDataset, ShardsCommand,
    },
    ingest::{
        CompactSource, DeleteBatches, Ingest, IngestCommand, RepairLogs, ReplayArchive,
        RereadSource, ResetSource, ResumeSources, RetryRejects, RewindSource, VerifyLanding,
        WriteDelta,
    },
    model::{Edit, EvalOptions, ExportWeights, Generate, Predict, RunOption, WeightsCommand},
    pipeline::{Detail, Options, Pipeline, RejectRule},
    training::{CompareRuns, RankOptions, Ranks, RunOptions, RunsCommand, TrainOptions},
};

/// Takes data from the web to the GPU: ingest, preprocess, shards, training.
#[derive(Debug, Parser)]
#[command(name = "feedline", version, max_term_width = 120, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXIT_CODES: &str = "Exit codes: 0 done, with rejected rows within the configured bounds too, 2 wrong usage or \
configuration, 3 done with rejected rows under `--fail-on-rejects`, 4 deferred (a server asked to wait), 1 anything else.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Write a pipeline for a URL, a file or a folder, after an inspection of its data
    Init(Init),
    /// Check a pipeline: settings, secrets, and one page or sample of each source; nothing is
    /// landed or written
    Check {
        #[command(flatten)]
        pipeline: Pipeline,
        /// Send no requests and read no data
        #[arg(long)]
        offline: bool,
    },
    /// Ingest, build shards and train: whatever sections the pipeline has
    Run(RunOptions),
    /// Land the sources' records in the landing zone
    Ingest(Ingest),
    /// Run the sources of pipelines by their schedules, until a signal ends it
    Serve(Serve),
    /// Build, verify and inspect shards
    #[command(subcommand)]
    Shards(ShardsCommand),
    /// Export landed rows, or the dataset, as files that other tools read
    Export(Export),
    /// Train the pipeline's model on its shards
    Train(TrainOptions),
    /// One of the processes that `--ranks` starts
    #[command(hide = true)]
    Rank(RankOptions),
    /// Evaluate a trained model on a split
    Eval(EvalOptions),
    /// Predict for new rows, from a file or standard input, using the dataset's fitted transform
    Predict(Predict),
    /// Search for the best values of keys of `[train]`, as configured in `[tune]`; resumes a
    /// stopped search
    Tune(Pipeline),
    /// List and compare the pipeline's trainings
    #[command(subcommand)]
    Runs(RunsCommand),
    /// Export trained weights of a run
    #[command(subcommand)]
    Weights(WeightsCommand),
    /// Continue a text with the pipeline's language model
    Generate(Generate),
    /// Edit the texts that the pipeline's model was trained on: high-confidence tokens are
    /// resampled
    Edit(Edit),
    /// Show the plan of a run: status of the sources, data and memory of training, quality of the
    /// shuffle
    Plan {
        #[command(flatten)]
        pipeline: Pipeline,
        /// Also send one request to each `rest` source without pagination, and suggest one by its
        /// first response; up to four pages are requested too if it does not show whether there are
        /// more, or the number of the first; nothing is landed or changed
        #[arg(long)]
        ask: bool,
    },
    /// Show the columns of the sources as they would land: types, missing values, samples and open
    /// decisions; nothing is landed or written. A path that does not end in `.toml` is a data file
    /// to inspect, such as `table.csv`
    Preview(PreviewOptions),
    /// Explain a key of the pipeline file; without one, list the sections
    Explain {
        /// Path such as `dataset.split.key`, or the last part of one
        #[arg(value_name = "KEY")]
        key: Option<String>,
        /// Print it as one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Print the JSON Schema of pipeline files, for editors and validators
    Schema,
    /// Print a script that completes commands in a shell
    Completions {
        /// Shell
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Write the manual pages of all commands to a folder
    Man {
        /// Folder
        #[arg(value_name = "FOLDER")]
        to: PathBuf,
    },
    /// Measure a part of the program
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Run a process of a cluster, for builds with `--engine df://HOST:PORT`
    #[cfg(feature = "cluster")]
    #[command(subcommand)]
    Cluster(crate::cluster::Cluster),
    /// One of the processes that decode foreign images for a build
    #[command(hide = true)]
    DecodeImages,
}

#[derive(Debug, Args)]
pub(crate) struct Init {
    /// URL of an API or a file, a file (CSV, JSON, NDJSON, Parquet, text, image, archive), or a
    /// folder of such files
    #[arg(value_name = "URL|FILE|FOLDER")]
    pub(crate) location: String,
    /// Pipeline file to write, and the name of the pipeline; by default NAME.toml, after the URL or
    /// file
    #[arg(long, value_name = "FILE")]
    pub(crate) to: Option<PathBuf>,
    /// Environment variable of a bearer token for a URL; the file names the variable, not the token
    #[arg(long, value_name = "VARIABLE")]
    pub(crate) bearer: Option<String>,
    /// Column that a model predicts; by default one with a usual name such as `label`, else the
    /// last suitable one
    #[arg(long, value_name = "COLUMN")]
    pub(crate) target: Option<String>,
    /// Replace the file if it exists
    #[arg(long)]
    pub(crate) force: bool,
    /// Print the report as one JSON object, on the last line of standard output
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PreviewOptions {
    #[command(flatten)]
    pub(crate) pipeline: Pipeline,
    /// Only this source
    #[arg(long, value_name = "NAME")]
    pub(crate) source: Option<String>,
    /// Also show this many rows as records of JSON, at most 1,000
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) rows: Option<u16>,
}

#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Pipeline files (TOML); sources without a `[source.schedule]` do not run
    #[arg(value_name = "PIPELINE.toml", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Address of `/healthz` and `/metrics`; port 0 takes any free one
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8701")]
    pub(crate) listen: SocketAddr,
    /// Sources that are run at a time, 1 to 1024
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) at_once: u16,
    /// Consecutive failed runs of a source before `/healthz` responds with 503, 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub(crate) unhealthy_after: u64,
    /// Override a key in every pipeline, such as `source.0.schedule.every_s=60`; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<Override>,
}
