//! The command line. Names of commands and options are a contract.

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};
use feedline_preprocess::{Engine, RowFormat};
use feedline_schemas::{
    config::{FileFormat, Override, Precision, WeightLayout},
    edit::EditRule,
    export::ExportFormat,
    ids::Seed,
    manifest::Split,
    units::ByteSize,
};
use feedline_trainer::Choice;

use crate::exit::Outcome;

#[cfg(test)]
mod reference;

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
    Run {
        #[command(flatten)]
        pipeline: Pipeline,
        #[command(flatten)]
        building: Building,
        #[command(flatten)]
        ranks: Ranks,
        #[command(flatten)]
        rejects: RejectRule,
        #[command(flatten)]
        detail: Detail,
    },
    /// Land the sources' records in the landing zone
    Ingest(Ingest),
    /// Run the sources of pipelines by their schedules, until a signal ends it
    Serve(Serve),
    /// Build, verify and inspect shards
    #[command(subcommand)]
    Shards(Shards),
    /// Export landed rows, or the dataset, as files that other tools read
    Export(Export),
    /// Train the pipeline's model on its shards
    Train {
        #[command(flatten)]
        pipeline: Pipeline,
        /// Continue from the newest checkpoint of this configuration and dataset. If there is none,
        /// continue from that of the newest run that differs only in `epochs`, `learning_rate`,
        /// `schedule` or `patience` of `[train]`
        #[arg(long)]
        resume: bool,
        /// Show the model's layers and the memory of the training, without training
        #[arg(long, conflicts_with_all = ["resume", "ranks"])]
        summary: bool,
        #[command(flatten)]
        ranks: Ranks,
        #[command(flatten)]
        detail: Detail,
    },
    /// One of the processes that `--ranks` starts
    #[command(hide = true)]
    Rank {
        #[command(flatten)]
        pipeline: Pipeline,
        /// Resume from the newest checkpoint, if there is one
        #[arg(long)]
        resume: bool,
        /// Continue from the checkpoint of another run, if there is none
        #[arg(long, requires = "resume")]
        prolong: bool,
    },
    /// Evaluate a trained model on a split
    Eval {
        #[command(flatten)]
        pipeline: Pipeline,
        #[command(flatten)]
        run: RunOption,
        /// URL or path of another dataset to evaluate on, with the same columns and an equal
        /// transform; like `--set train.dataset=URL`
        #[arg(long, value_name = "URL")]
        dataset: Option<String>,
        /// Split to evaluate on
        #[arg(long, value_enum, default_value_t = SplitName::Test)]
        split: SplitName,
        /// Also write the prediction of every row of the split to this file: CSV, NDJSON or Parquet
        /// by its extension, in the order of the rows in the dataset
        #[arg(long, value_name = "FILE")]
        predictions: Option<PathBuf>,
    },
    /// Predict for new rows, from a file or standard input, using the dataset's fitted transform
    Predict(Predict),
    /// Search for the best values of keys of `[train]`, as configured in `[tune]`; resumes a
    /// stopped search
    Tune(Pipeline),
    /// List and compare the pipeline's trainings
    #[command(subcommand)]
    Runs(Runs),
    /// Export trained weights of a run
    #[command(subcommand)]
    Weights(Weights),
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
        /// Also send one request to each `rest` source that has no pagination and has landed
        /// nothing, and suggest a pagination by its first response; nothing is landed or changed
        #[arg(long)]
        ask: bool,
    },
    /// Show the columns of the sources as they would land: types, missing values, samples and open
    /// decisions; nothing is landed or written. A path that does not end in `.toml` is a data file
    /// to inspect, such as `table.csv`
    Preview {
        #[command(flatten)]
        pipeline: Pipeline,
        /// Only this source
        #[arg(long, value_name = "NAME")]
        source: Option<String>,
        /// Also show this many rows as records of JSON, at most 1,000
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
        rows: Option<u16>,
    },
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
    Bench(Bench),
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
    /// Environment variable of a bearer token for the API; the file names the variable, not the
    /// token
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

#[derive(Debug, Subcommand)]
pub(crate) enum Runs {
    /// Show the trainings, newest first, without the trials that a search pruned
    List {
        #[command(flatten)]
        pipeline: Pipeline,
        /// Show pruned trials too
        #[arg(long)]
        all: bool,
    },
    /// Show the differences between trainings, and their metrics side by side
    Compare {
        /// Pipeline file (TOML)
        #[arg(value_name = "PIPELINE.toml")]
        file: PathBuf,
        /// Runs, each by a unique prefix of its name, or as `newest` or `best`: the finished run
        /// that was started last, or the one with the lowest validation loss
        #[arg(value_name = "RUN", num_args = 2.., required = true)]
        runs: Vec<String>,
        /// Also write an HTML page with the curves of all runs
        #[arg(long, value_name = "FILE")]
        html: Option<PathBuf>,
        #[command(flatten)]
        options: Options,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Weights {
    /// Write the best weights as a plain safetensors file
    Export {
        #[command(flatten)]
        pipeline: Pipeline,
        #[command(flatten)]
        run: RunOption,
        /// URL or path of the file
        #[arg(long, value_name = "FILE")]
        to: String,
        /// Add the products of the adapters of `[train.lora]` to the weights
        #[arg(long)]
        merge_lora: bool,
        /// Type of the numbers
        #[arg(long, value_enum, default_value_t = WeightType::F32)]
        dtype: WeightType,
        /// Layout and names of the tensors. `feedline`: matrices are [in, out]; `torch`: matrices
        /// are [out, in], and norms and LSTM layers have PyTorch's names, so that `load_state_dict`
        /// takes them
        #[arg(long, value_enum, default_value_t = LayoutName::Feedline)]
        layout: LayoutName,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Generate {
    #[command(flatten)]
    pub(crate) pipeline: Pipeline,
    #[command(flatten)]
    pub(crate) run: RunOption,
    /// Text to continue; `-` reads it from standard input, without a line break at its end. It is
    /// normalized and redacted as the texts of the dataset (`dataset.text`)
    #[arg(long, value_name = "TEXT")]
    pub(crate) prompt: String,
    /// Tokens of a text, at most; it ends earlier where the model ends it
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) tokens: u32,
    /// Number of texts, each a continuation of the same prompt
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) texts: u32,
    #[command(flatten)]
    pub(crate) sampling: SamplingOptions,
}

/// Sampling of tokens.
#[derive(Debug, Args)]
pub(crate) struct SamplingOptions {
    /// Divisor of the scores before a token is sampled; 0 takes the most probable token, without
    /// `--top-k` and `--top-p`
    #[arg(long, default_value_t = 1.0, allow_negative_numbers = true)]
    pub(crate) temperature: f64,
    /// Sample from only so many of the most probable tokens; by default from all
    #[arg(long, value_name = "TOKENS")]
    pub(crate) top_k: Option<u32>,
    /// Sample from the fewest tokens that have this share of the probability; by default from all
    #[arg(long, value_name = "SHARE")]
    pub(crate) top_p: Option<f64>,
    /// Seed of the sampling: the same seed gives the same texts
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
}

#[derive(Debug, Args)]
pub(crate) struct Edit {
    #[command(flatten)]
    pub(crate) pipeline: Pipeline,
    /// URL or path of the folder of the edited dataset
    #[arg(long, value_name = "FOLDER")]
    pub(crate) to: String,
    /// URL or path of another dataset to edit, of the same tokenizer
    #[arg(long, value_name = "URL")]
    pub(crate) dataset: Option<String>,
    /// Least probability of a token to be resampled; above 1 none is, and the texts are only
    /// measured
    #[arg(long, default_value_t = 0.99)]
    pub(crate) threshold: f64,
    #[command(flatten)]
    pub(crate) sampling: SamplingOptions,
}

impl Edit {
    /// Rule for resampling tokens.
    pub(crate) const fn rule(&self) -> EditRule {
        EditRule {
            threshold: self.threshold,
            temperature: self.sampling.temperature,
            top_k: self.sampling.top_k,
            top_p: self.sampling.top_p,
            seed: Seed::new(self.sampling.seed),
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Export {
    #[command(flatten)]
    pub(crate) pipeline: Pipeline,
    /// URL or path of the folder to write; it must be empty, or hold an earlier export of this
    /// pipeline
    #[arg(long, value_name = "FOLDER")]
    pub(crate) to: String,
    /// Format of the files
    #[arg(long, value_enum)]
    pub(crate) format: ExportName,
    /// Export the rows that this source has landed, or `SOURCE.TABLE` for a child table. Default:
    /// the dataset if the pipeline has a `[dataset]`, else its only source
    #[arg(long, value_name = "NAME", conflicts_with = "dataset")]
    pub(crate) source: Option<String>,
    /// Export the built dataset, split by split, with the values of its shards
    #[arg(long)]
    pub(crate) dataset: bool,
    /// Export all landed rows of a source with a `key`; by default only the latest version of each
    /// key, as datasets read them. The source is then exported even if there is a dataset
    #[arg(long, conflicts_with = "dataset")]
    pub(crate) all_versions: bool,
    /// Rows of a file, at most
    #[arg(long, value_name = "ROWS", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) rows_per_file: Option<u64>,
    /// Size of a file, about, such as `64 MiB`. Default: 256 MiB; of MDS 64 MiB
    #[arg(long, value_name = "SIZE", value_parser = file_size)]
    pub(crate) max_bytes: Option<u64>,
    /// Compression of the files. Default: `zstd` for Parquet, `none` for MDS
    #[arg(long, value_enum)]
    pub(crate) compression: Option<CompressionName>,
    /// Replace a finished export; its files are removed before new ones are written
    #[arg(long)]
    pub(crate) overwrite: bool,
}

/// Format of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportName {
    /// Parquet files
    Parquet,
    /// Parquet files with a card, for `datasets.load_dataset`
    Huggingface,
    /// Tar files of samples
    Webdataset,
    /// Shards of MosaicML Streaming
    Mds,
}

impl From<ExportName> for ExportFormat {
    fn from(name: ExportName) -> Self {
        match name {
            ExportName::Parquet => Self::Parquet,
            ExportName::Huggingface => Self::HuggingFace,
            ExportName::Webdataset => Self::WebDataset,
            ExportName::Mds => Self::Mds,
        }
    }
}

/// Compression of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CompressionName {
    Zstd,
    None,
}

fn file_size(text: &str) -> Result<u64, String> {
    match ByteSize::parse(text)?.bytes() {
        0 => Err("use a size of at least one byte".into()),
        bytes => Ok(bytes),
    }
}

#[derive(Debug, Args)]
pub(crate) struct Predict {
    #[command(flatten)]
    pub(crate) pipeline: Pipeline,
    #[command(flatten)]
    pub(crate) run: RunOption,
    /// File of new rows, CSV, NDJSON (both also as `.gz` or `.zst`) or Parquet; `-` is standard
    /// input. Default: standard input; where the model reads windows of rows (`dataset.sequence`),
    /// a forecast of the next horizon of each entity, from the landed rows. Predictions of series
    /// are sorted by entity and time. For a model of images: a folder, an image file or an archive
    /// of images. For a model of texts: a file of rows with the dataset's text column, a text file,
    /// or a folder of them. Each text gets its `loss`, the mean of `-ln p` over its tokens except
    /// the first, and `perplexity`. `row` counts the rows of the file from 0; that of `eval
    /// --predictions` and of rejects counts the rows of a landed batch (`sequence`)
    #[arg(value_name = "FILE")]
    pub(crate) rows: Option<String>,
    /// File of rows before the new ones, in place of the landed rows, for features computed from
    /// earlier rows and for models that read windows of rows
    #[arg(long, value_name = "FILE")]
    pub(crate) history: Option<String>,
    /// File of the predictions: CSV, NDJSON or Parquet by its extension; by default NDJSON on
    /// standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) to: Option<PathBuf>,
    /// Format of the new rows; by default by the file's ending, and NDJSON on standard input
    #[arg(long, value_enum)]
    pub(crate) format: Option<RowsName>,
    /// Carry this column of the new rows along, as text; may be repeated
    #[arg(long = "passthrough", value_name = "COLUMN")]
    pub(crate) keep: Vec<String>,
    /// Folder of the image files that new rows name by their paths; by default the folder of FILE
    #[arg(long, value_name = "FOLDER")]
    pub(crate) images: Option<PathBuf>,
    /// Column with the paths of the images; by default the column that joins images to a table in
    /// the dataset, else `dataset.image_column`
    #[arg(long, value_name = "COLUMN")]
    pub(crate) image_column: Option<String>,
    /// Prefix texts that a spreadsheet would evaluate as formulas with `'`: texts that begin with
    /// `=`, `+`, `-` or `@` and are no number. For CSV files opened in a spreadsheet; without it
    /// texts stay unchanged
    #[arg(long)]
    pub(crate) escape_formulas: bool,
    /// Add a column `flags` with the anomalies of a row: inputs without a value, categories unseen
    /// in training, numbers far outside of the training rows. The report counts them by column
    /// either way
    #[arg(long)]
    pub(crate) flags: bool,
    /// Write the features that a model would get, without running a model. Features called `row`,
    /// `error` or `detail`, like columns of the predictions, are written as `feature=row`
    #[arg(long)]
    pub(crate) transform_only: bool,
    /// Rows that are read, computed and written together; no number depends on it, and 1 responds
    /// to each line at once
    #[arg(long, value_name = "ROWS", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) batch_rows: u32,
    #[command(flatten)]
    pub(crate) rejects: RejectRule,
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
    /// End with exit code 3 if rows were rejected; by default rejected rows within the configured
    /// bounds are no failure
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

/// Format of new rows.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum RowsName {
    Csv,
    Ndjson,
    Parquet,
}

impl From<RowsName> for FileFormat {
    fn from(name: RowsName) -> Self {
        match name {
            RowsName::Csv => Self::Csv,
            RowsName::Ndjson => Self::Ndjson,
            RowsName::Parquet => Self::Parquet,
        }
    }
}

impl From<RowsName> for RowFormat {
    fn from(name: RowsName) -> Self {
        match name {
            RowsName::Csv => Self::Csv,
            RowsName::Ndjson => Self::Ndjson,
            RowsName::Parquet => Self::Parquet,
        }
    }
}

/// Layout of exported weights.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum LayoutName {
    Feedline,
    Torch,
}

impl From<LayoutName> for WeightLayout {
    fn from(name: LayoutName) -> Self {
        match name {
            LayoutName::Feedline => Self::Feedline,
            LayoutName::Torch => Self::Torch,
        }
    }
}

/// Type of exported numbers.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum WeightType {
    F32,
    Bf16,
    F16,
}

impl From<WeightType> for Precision {
    fn from(name: WeightType) -> Self {
        match name {
            WeightType::F32 => Self::F32,
            WeightType::Bf16 => Self::Bf16,
            WeightType::F16 => Self::F16,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Read a dataset like a training would, and show the speed and its cost
    Loader(LoaderBench),
}

#[derive(Clone, Debug, Args)]
pub(crate) struct LoaderBench {
    /// URL or path of the dataset: a folder with `CURRENT`, Parquet files, WebDataset tars, or MDS
    #[arg(value_name = "URL")]
    pub(crate) url: String,
    /// Split to read; by default `train`. For other formats than feedline's, by default the only
    /// split that file names mention, or all files if they mention none
    #[arg(long, value_enum)]
    pub(crate) split: Option<SplitName>,
    /// Samples in a batch
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) batch_size: u32,
    /// Passes over the split
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) epochs: u64,
    /// Seed of the order
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
    /// Most threads that fill batches; 0 is one for each processor
    #[arg(long, default_value_t = 0)]
    pub(crate) threads: u32,
    /// Images: random resized crops of this many pixels a side, flipped half of the time
    #[arg(long, value_name = "PIXELS")]
    pub(crate) image_size: Option<u32>,
    /// Tokens: documents packed into rows of this many ids
    #[arg(long, value_name = "IDS")]
    pub(crate) token_length: Option<u32>,
    /// Milliseconds that each batch takes its consumer besides reading it, like a training step
    #[arg(long, default_value_t = 0.0, value_parser = milliseconds)]
    pub(crate) step_ms: f64,
    /// Also measure the upper bound: the same batch repeated, no data loading
    #[arg(long)]
    pub(crate) headspace: bool,
    /// Print the report as one JSON object, on the last line of standard output
    #[arg(long)]
    pub(crate) json: bool,
}

fn milliseconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (0.0..=3.6e6).contains(&value) => Ok(value),
        _ => Err("use a number of milliseconds, 0 to 3600000".into()),
    }
}

/// A pipeline file and its overrides.
#[derive(Clone, Debug, Args)]
pub(crate) struct Pipeline {
    /// Pipeline file (TOML)
    #[arg(value_name = "PIPELINE.toml")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) options: Options,
}

/// Processes that train together.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Ranks {
    /// Train with so many processes on this machine, restarted from the newest checkpoint if one
    /// fails
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) ranks: Option<u16>,
}

/// Choice of the run whose model is used.
#[derive(Clone, Debug, Args)]
pub(crate) struct RunOption {
    /// Run whose model is used: the beginning of its name (`feedline runs list`), `newest` (the
    /// finished run that fits the dataset and was started last) or `best` (the one with the lowest
    /// validation loss). Default: the run of this configuration and dataset, and if there is none,
    /// `newest`
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<String>,
}

impl RunOption {
    /// The choice that it makes.
    pub(crate) fn choice(&self) -> Choice {
        let named = self.run.clone().map(Choice::Named);
        named.unwrap_or_default()
    }
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
    #[command(flatten)]
    pub(crate) rejects: RejectRule,
    #[command(flatten)]
    pub(crate) detail: Detail,
}

#[derive(Debug, Subcommand)]
pub(crate) enum IngestCommand {
    /// Show the status of the sources, from their commit logs
    Status(Pipeline),
    /// Read the commit logs and every file that they name, and show all damage; changes nothing.
    /// The exit code is 1 if anything is damaged
    Verify {
        #[command(flatten)]
        pipeline: Pipeline,
        /// Only this source
        #[arg(long, value_name = "NAME")]
        source: Option<String>,
    },
    /// Check the commit logs and all files that they name, restore lost files from copies, and
    /// truncate a damaged log after its last valid entry
    Repair {
        #[command(flatten)]
        pipeline: Pipeline,
        /// Only this source
        #[arg(long, value_name = "NAME")]
        source: Option<String>,
        /// Report the damage and change nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// End the wait that a server has asked for: the next run of a deferred source sends requests
    /// at once
    Resume {
        #[command(flatten)]
        pipeline: Pipeline,
        /// Only this source; by default all deferred ones
        #[arg(long, value_name = "NAME")]
        source: Option<String>,
    },
    /// Restart a source from its beginning: landed data is saved under another name and no longer
    /// counts
    Reset {
        #[command(flatten)]
        pipeline: Pipeline,
        /// The source
        #[arg(value_name = "SOURCE")]
        source: String,
        /// Report what would be saved and re-read, and change nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Re-read slices, a part of an incremental source, or files, in place of their landed data
    Reread {
        #[command(flatten)]
        pipeline: Pipeline,
        /// The source
        #[arg(value_name = "SOURCE")]
        source: String,
        /// Lower end of the range of slices, in the format of `slices.start`; or the cursor to
        /// start an incremental source from
        #[arg(long, value_name = "FROM")]
        from: Option<String>,
        /// Upper end of the range of slices, exclusive
        #[arg(long, value_name = "TO", requires = "from")]
        to: Option<String>,
        /// Files by their addresses or the ends of these, such as `2026-03-*.csv`
        #[arg(long = "file", value_name = "PATTERN", conflicts_with_all = ["from", "to"], required_unless_present = "from")]
        files: Option<String>,
        /// Report what would be re-read, and change nothing
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        rejects: RejectRule,
    },
    /// Take a source back to an entry of its log: later rows no longer count, and the next run
    /// reads from there
    Rewind {
        #[command(flatten)]
        pipeline: Pipeline,
        /// The source
        #[arg(value_name = "SOURCE")]
        source: String,
        /// Last entry that counts, as in the column `_feedline_seq`
        #[arg(long, value_name = "SEQUENCE")]
        to: u64,
        /// Report what would no longer count and what would be read again, and change nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Merge the small data files of a source into large ones, and delete superseded files as
    /// `ingest.retention` says
    Compact {
        #[command(flatten)]
        pipeline: Pipeline,
        /// The source
        #[arg(value_name = "SOURCE")]
        source: String,
        /// Size of the merged files, such as `64 MiB`
        #[arg(long, value_name = "BYTES", default_value = "128 MiB", value_parser = ByteSize::parse)]
        target_bytes: ByteSize,
        /// Report what would be merged and deleted, and change nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Write Delta tables over landed files, for DuckDB, polars, Spark and others, or bring them up to
    /// the commit logs
    Delta {
        #[command(flatten)]
        pipeline: Pipeline,
        /// Only this source
        #[arg(long, value_name = "NAME")]
        source: Option<String>,
        /// Remove the logs of the tables and write them again, such as after another program has
        /// changed them; landed files stay
        #[arg(long)]
        rebuild: bool,
    },
    /// Retry the rejected records of a source under its current contract; matching ones land
    RetryRejects {
        #[command(flatten)]
        pipeline: Pipeline,
        /// The source
        #[arg(value_name = "SOURCE")]
        source: String,
        /// Count what would land, and change nothing
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        rejects: RejectRule,
    },
    /// Delete batches of a source: their rows, rejected records and archived responses
    Delete {
        #[command(flatten)]
        pipeline: Pipeline,
        /// The source
        #[arg(value_name = "SOURCE")]
        source: String,
        /// Sequence number of the batch, as in the column `_feedline_seq`; may be repeated
        #[arg(long, value_name = "SEQUENCE", required = true)]
        batch: Vec<u64>,
        /// Report what would be deleted, and change nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Re-parse archived responses (`archive_raw`) with the current settings, without sending
    /// requests
    Replay {
        #[command(flatten)]
        pipeline: Pipeline,
        /// URL or path of the root folder with the archive; the pipeline's own root must be another
        /// one, such as by `--set pipeline.root=FOLDER`
        #[arg(long, value_name = "ROOT")]
        from: String,
        /// Only this source; by default all with an archive
        #[arg(long, value_name = "NAME")]
        source: Option<String>,
        #[command(flatten)]
        rejects: RejectRule,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Shards {
    /// Build the dataset of a pipeline from its landing zone, or append newly landed rows
    Build {
        #[command(flatten)]
        pipeline: Pipeline,
        #[command(flatten)]
        building: Building,
        #[command(flatten)]
        rejects: RejectRule,
        #[command(flatten)]
        detail: Detail,
    },
    /// Check every shard of a dataset: sizes, hashes, blocks, rows, and that no key is in two
    /// splits
    Verify(Dataset),
    /// Show the contents of a dataset
    Inspect(Dataset),
    /// Infer an expectations file from the training split
    Expect {
        #[command(flatten)]
        pipeline: Pipeline,
        /// File to write; default: `dataset.expect.file`, else `expect.toml` in the working folder
        #[arg(long, value_name = "FILE")]
        to: Option<String>,
    },
}

/// Options of a build. Only `refit` changes the result.
#[derive(Clone, Debug, Args)]
pub(crate) struct Building {
    /// Refit the transform and rebuild all shards from all rows, including damaged ones. Without
    /// it, rows landed since the dataset was built are appended in new shards, with the dataset's
    /// fitted transform
    #[arg(long)]
    pub(crate) refit: bool,
    /// Engine of the queries of a build: `local`, or `df://HOST:PORT` of a cluster's scheduler; the
    /// result is the same
    #[arg(long, value_name = "ENGINE", default_value_t = Engine::Local)]
    pub(crate) engine: Engine,
    /// Memory for rows before a build spills to disk, in MiB, 64 or more; the program itself and
    /// the batches in work come on top. By default half of the free memory
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(64..=1 << 30))]
    pub(crate) memory: Option<u64>,
    /// Partitions of rows that are processed concurrently; fewer take less memory. By default one
    /// for each processor, or 32 on a cluster
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) partitions: Option<u16>,
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
