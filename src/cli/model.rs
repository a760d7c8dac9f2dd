//! Commands that use a trained model: `feedline eval`, `predict`, `weights`, `generate` and `edit`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use feedline_schemas::{
    config::{FileFormat, Precision, WeightLayout},
    edit::EditRule,
    ids::Seed,
};
use feedline_trainer::Choice;

use super::{
    dataset::SplitName,
    pipeline::{Pipeline, RejectRule},
};

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

#[derive(Debug, Args)]
pub(crate) struct EvalOptions {
    #[command(flatten)]
    pub(crate) pipeline: Pipeline,
    #[command(flatten)]
    pub(crate) run: RunOption,
    /// URL or path of another dataset to evaluate on, with the same columns and an equal
    /// transform; like `--set train.dataset=URL`
    #[arg(long, value_name = "URL")]
    pub(crate) dataset: Option<String>,
    /// Split to evaluate on
    #[arg(long, value_enum, default_value_t = SplitName::Test)]
    pub(crate) split: SplitName,
    /// Also write the prediction of every row of the split to this file: CSV, NDJSON or Parquet
    /// by its extension, in the order of the rows in the dataset
    #[arg(long, value_name = "FILE")]
    pub(crate) predictions: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Predict {
    #[command(flatten)]
    pub(crate) pipeline: Pipeline,
    #[command(flatten)]
    pub(crate) run: RunOption,
    /// File of new rows: CSV, NDJSON, JSON, Parquet or Arrow, also with `.gz` or `.zst`; `-` is
    /// standard input. Default: standard input; where the model reads windows of rows
    /// (`dataset.sequence`), a forecast of the next horizon of each entity, from the landed rows.
    /// Forecasts are sorted by entity and time. For a model of images: a folder, an
    /// image file or an archive of images. For a model of texts: a file of rows with the dataset's
    /// text column, a text file, or a folder of them. Each text gets its `loss`, the mean of
    /// `-ln p` over its tokens except the first, and `perplexity`. `row` counts the rows of the file
    /// from 0; it counts those of a landed batch (`sequence`) in rejects and in
    /// `eval --predictions`
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
    /// Carry this column of the new rows along; in Parquet it keeps the type of the input, otherwise
    /// it is text; may be repeated
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
    /// in training, numbers far outside of the training rows, truncated texts. The report counts
    /// them either way
    #[arg(long)]
    pub(crate) flags: bool,
    /// Write the features that a model would get, without running a model. Features called `row`,
    /// `error` or `detail`, like columns of the predictions, are written as `feature=row`
    #[arg(long)]
    pub(crate) transform_only: bool,
    /// Rows that are read, computed and written together; no number depends on it. From standard
    /// input to standard output a row waits at most 200 ms for others; with 1 it does not wait
    #[arg(long, value_name = "ROWS", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) batch_rows: u32,
    #[command(flatten)]
    pub(crate) rejects: RejectRule,
}

/// Format of new rows.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum RowsName {
    Csv,
    Ndjson,
    Json,
    Parquet,
    Arrow,
}

impl From<RowsName> for FileFormat {
    fn from(name: RowsName) -> Self {
        match name {
            RowsName::Csv => Self::Csv,
            RowsName::Ndjson => Self::Ndjson,
            RowsName::Json => Self::Json,
            RowsName::Parquet => Self::Parquet,
            RowsName::Arrow => Self::Arrow,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum WeightsCommand {
    /// Write the best weights as a plain safetensors file
    Export(ExportWeights),
}

#[derive(Debug, Args)]
pub(crate) struct ExportWeights {
    #[command(flatten)]
    pub(crate) pipeline: Pipeline,
    #[command(flatten)]
    pub(crate) run: RunOption,
    /// URL or path of the file
    #[arg(long, value_name = "FILE")]
    pub(crate) to: String,
    /// Add the products of the adapters of `[train.lora]` to the weights
    #[arg(long)]
    pub(crate) merge_lora: bool,
    /// Type of the numbers
    #[arg(long, value_enum, default_value_t = WeightType::F32)]
    pub(crate) dtype: WeightType,
    /// Layout and names of the tensors. `feedline`: matrices are [in, out]; `torch`: matrices
    /// are [out, in], and norms and LSTM layers have PyTorch's names, so that `load_state_dict`
    /// takes them
    #[arg(long, value_enum, default_value_t = LayoutName::Feedline)]
    pub(crate) layout: LayoutName,
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
