//! Commands for datasets: `feedline shards`, `export` and `bench`.

use clap::{Args, Subcommand, ValueEnum};
use feedline_preprocess::Engine;
use feedline_schemas::{export::ExportFormat, manifest::Split, units::ByteSize};

use super::pipeline::{Detail, Pipeline, RejectRule};

#[derive(Debug, Subcommand)]
pub(crate) enum ShardsCommand {
    /// Build the dataset of a pipeline from its landing zone, or append newly landed rows
    Build(BuildShards),
    /// Check every shard of a dataset: sizes, hashes, blocks, rows, and that no key is in two
    /// splits
    Verify(Dataset),
    /// Show the contents of a dataset
    Inspect(Dataset),
    /// Remove the files of earlier builds that the current manifest does not name
    Prune(PruneDataset),
    /// Infer an expectations file from the training split
    Expect {
        #[command(flatten)]
        pipeline: Pipeline,
        /// File to write; default: `dataset.expect.file`, else `expect.toml` in the working folder
        #[arg(long, value_name = "FILE")]
        to: Option<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct BuildShards {
    #[command(flatten)]
    pub(crate) pipeline: Pipeline,
    #[command(flatten)]
    pub(crate) building: Building,
    #[command(flatten)]
    pub(crate) rejects: RejectRule,
    #[command(flatten)]
    pub(crate) detail: Detail,
}

/// Options of a build. Only `refit` changes the result.
#[derive(Clone, Debug, Args)]
pub(crate) struct Building {
    /// Refit the transform and rebuild all shards from all rows, including damaged ones. Without
    /// it, rows landed since the dataset was built are appended in new shards, with the dataset's
    /// fitted transform; datasets of texts or images are rebuilt
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

#[derive(Debug, Args)]
pub(crate) struct PruneDataset {
    #[command(flatten)]
    pub(crate) dataset: Dataset,
    /// Number of the newest manifests that stay with their files, the current one included
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) keep: u32,
    /// Seconds for which any file stays after it was written: a build in progress may need it
    #[arg(long, value_name = "SECONDS", default_value_t = 86_400)]
    pub(crate) grace_s: u64,
    /// Report the files and remove nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
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

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
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
