//! `feedline check`: a pipeline's settings, secrets and sources, before anything runs.

use std::{collections::BTreeMap, fmt};

use feedline_ingest::SourcePreview;
use feedline_preprocess::{CheckedDataset, MAX_REJECT_FRACTION};
use feedline_schemas::{
    config::{DatasetConfig, Loaded, PipelineConfig, TrainConfig},
    ids::Name,
    record::{Column, ColumnType},
    report::Warning,
};
use feedline_storage::Store;
use serde::Serialize;

use crate::{
    exit::Outcome,
    output::{Text, counted, line, shortened, write_warnings},
};

/// Result of a check. Nothing has landed and nothing is written.
#[derive(Debug, Default, Serialize)]
pub(crate) struct CheckReport {
    /// Pipeline file.
    pub(crate) file: String,
    /// Sources in the order of the file.
    pub(crate) sources: Vec<CheckedSource>,
    /// Columns of the dataset and their use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dataset: Option<CheckedDataset>,
    /// Settings of the training.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) train: Option<CheckedTraining>,
    /// Problems of the configuration, each with file, line and key.
    pub(crate) problems: Vec<String>,
    /// The same with the line of text, for a person.
    #[serde(skip)]
    pub(crate) excerpts: Vec<String>,
}

/// A source as the check found it.
#[derive(Debug, Serialize)]
pub(crate) struct CheckedSource {
    pub(crate) name: String,
    /// False under `--offline`, and for a source with invalid settings.
    pub(crate) asked: bool,
    /// Rows that were read to see the columns.
    pub(crate) rows: u64,
    /// Rows among those read that a run would reject.
    pub(crate) rejected: u64,
    /// One of them, after its reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rejected_sample: Option<String>,
    /// Count of its columns.
    pub(crate) columns: usize,
    pub(crate) warnings: Vec<Warning>,
    /// Reason that it cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

/// Settings of a training that need no dataset.
#[derive(Debug, Serialize)]
pub(crate) struct CheckedTraining {
    pub(crate) batch_size: u32,
    /// Most epochs.
    pub(crate) epochs: u64,
}

impl CheckReport {
    /// Counts of rejected rows and warnings, for the result.
    fn doubts(&self) -> String {
        let warnings = self.sources.iter().map(|source| source.warnings.len());
        let rejected = self.sources.iter().map(|source| source.rejected);
        let counts = [
            (rejected.sum::<u64>(), "rejected row"),
            (warnings.sum::<usize>() as u64, "warning"),
        ];
        let counts = counts.iter().filter(|(count, _)| *count > 0);
        let counts: Vec<String> = counts.map(|(count, what)| counted(*count, what)).collect();
        match counts.is_empty() {
            true => String::new(),
            false => format!(", but {}", counts.join(" and ")),
        }
    }

    /// Exit code: 0 if the pipeline can run, 2 for wrong configuration, 1 for a source that cannot
    /// be read.
    pub(crate) fn outcome(&self) -> Outcome {
        match self {
            Self { problems, .. } if !problems.is_empty() => Outcome::Invalid,
            Self { sources, .. } if sources.iter().any(|source| source.error.is_some()) => {
                Outcome::Bad
            }
            _ => Outcome::Done,
        }
    }
}

/// Checks `[train]`, and that its model reads what the dataset holds.
///
/// # Errors
/// The first key that cannot be used.
pub(crate) fn training(
    config: &PipelineConfig,
    train: &TrainConfig,
) -> Result<(), Box<feedline_trainer::Error>> {
    feedline_trainer::check(train)?;
    if let Some(dataset) = &config.dataset {
        feedline_trainer::check_kind(train, dataset.kind)?;
    }
    Ok(())
}

/// Reason that a pipeline with `[train]` has no dataset to train on, if so.
pub(crate) async fn missing_dataset(config: &PipelineConfig, root: &Store) -> Option<String> {
    let train = config.train.as_ref()?;
    if config.dataset.is_some() || train.dataset.is_some() || train.mixture.is_some() {
        return None;
    }
    let dataset = root.child("dataset");
    // A store that cannot be read is an error of the training itself.
    let is_built = feedline_preprocess::has_build(&dataset)
        .await
        .unwrap_or(true);
    (!is_built).then(|| {
        format!(
            "the pipeline has no `[dataset]` to build shards from, and there is no dataset in `{}`; add a `[dataset]`, or name \
             one that exists in `train.dataset`",
            dataset.url()
        )
    })
}

/// Checks a pipeline. Reads the first page or a sample of each source, unless `is_offline`.
///
/// # Errors
/// Errors of the store, and a stop. The report has what is wrong with the pipeline.
pub(crate) async fn check(
    loaded: &Loaded,
    file: String,
    ingest: &feedline_ingest::Context,
    preprocess: &feedline_preprocess::Context,
    is_offline: bool,
) -> anyhow::Result<CheckReport> {
    let config = &loaded.config;
    let mut problems: Vec<String> = Vec::new();
    let mut excerpts = Vec::new();
    let mut add = |key: &str, reason: String| {
        let error = loaded.error(key, reason);
        let problem = error.to_string();
        if !problems.contains(&problem) {
            problems.push(problem);
            excerpts.push(error.with_excerpt());
        }
    };
    let mut columns = BTreeMap::new();
    let mut missing = BTreeMap::new();
    match feedline_ingest::check(config, ingest).await {
        Ok(()) => {}
        Err(feedline_ingest::Error::Config { key, reason }) => add(&key, reason),
        Err(error) => return Err(error.into()),
    }
    let mut sources = Vec::new();
    for source in &config.source {
        let mut found = CheckedSource {
            name: source.name.to_string(),
            asked: !is_offline,
            rows: 0,
            rejected: 0,
            rejected_sample: None,
            columns: 0,
            warnings: Vec::new(),
            error: None,
        };
        if !is_offline {
            match Box::pin(feedline_ingest::preview(
                config,
                Some(&source.name),
                0,
                ingest,
            ))
            .await
            {
                Ok(previews) => {
                    for preview in previews {
                        found.count_missing(&preview, &mut missing);
                        found.take(preview, &source.name, &mut columns);
                    }
                }
                Err(feedline_ingest::Error::Config { key, reason }) => {
                    found.asked = false;
                    add(&key, reason);
                }
                Err(error) => return Err(error.into()),
            }
        }
        sources.push(found);
    }
    // The log of a landed source is a file of the root.
    let is_reached = !is_offline || preprocess.root.local_path().is_some();
    let resolved = match is_reached {
        true => feedline_preprocess::check_columns(config, preprocess, &columns).await,
        false => feedline_preprocess::check(config).map(|()| not_reached(config)),
    };
    let dataset = match resolved {
        Ok(dataset) => dataset,
        Err(feedline_preprocess::Error::Config { key, reason }) => {
            add(&key, reason);
            None
        }
        Err(error) => return Err(error.into()),
    };
    if let (Some(dataset), Some(settings)) = (&dataset, &config.dataset) {
        warn_of_missing_targets(dataset, settings, &missing, &mut sources);
    }
    if is_reached && let Some(reason) = missing_dataset(config, &preprocess.root).await {
        add("train", reason);
    }
    let mut checked = None;
    if let Some(train) = &config.train {
        match training(config, train) {
            Ok(()) => {
                checked = Some(CheckedTraining {
                    batch_size: train.batch_size,
                    epochs: train.epochs,
                });
            }
            Err(error) => match *error {
                feedline_trainer::Error::Config { key, reason } => add(&key, reason),
                other => return Err(other.into()),
            },
        }
    }
    Ok(CheckReport {
        file,
        sources,
        dataset,
        train: checked,
        problems,
        excerpts,
    })
}

/// Rows without a value by source and column.
type Missing = BTreeMap<(String, String), (u64, u64)>;

/// Warns where more rows have no target than may be rejected, by the rows looked at.
fn warn_of_missing_targets(
    dataset: &CheckedDataset,
    settings: &DatasetConfig,
    missing: &Missing,
    sources: &mut [CheckedSource],
) {
    let limit = settings
        .max_reject_fraction
        .map_or(MAX_REJECT_FRACTION, |limit| limit.get());
    for source in sources {
        for target in &dataset.targets {
            let Some((without, rows)) = missing.get(&(source.name.clone(), target.clone())) else {
                continue;
            };
            if *without as f64 <= limit * *rows as f64 {
                continue;
            }
            let message = format!(
                "target `{target}` is missing in {without} of {rows} rows looked at; such rows are rejected, and more than {limit} \
                 of all stop the build"
            );
            let warning = Warning::new("target_missing", message);
            source
                .warnings
                .push(warning.with_key("dataset.max_reject_fraction"));
        }
    }
}

/// Result for a dataset whose root is not on this machine: only its settings are checked.
fn not_reached(config: &PipelineConfig) -> Option<CheckedDataset> {
    config.dataset.as_ref()?;
    Some(CheckedDataset {
        unchecked: Some(
            "columns are not checked: `pipeline.root` is in an object store, and `--offline` sends no request"
                .to_owned(),
        ),
        ..CheckedDataset::default()
    })
}

impl CheckedSource {
    fn count_missing(&self, preview: &SourcePreview, missing: &mut Missing) {
        for column in &preview.columns {
            let key = (self.name.clone(), column.name.clone());
            missing.insert(key, (column.missing, preview.rows));
        }
    }

    fn take(
        &mut self,
        preview: SourcePreview,
        name: &Name,
        columns: &mut BTreeMap<Name, Vec<Column>>,
    ) {
        self.rows += preview.rows;
        self.rejected += preview.bad;
        self.rejected_sample = preview.bad_sample;
        self.columns += preview.columns.len();
        self.error = preview.error;
        self.warnings = preview.warnings;
        if self.error.is_some() {
            return;
        }
        let found = (1..).zip(preview.columns).map(|(field_id, column)| Column {
            field_id,
            name: column.name,
            r#type: column.column_type.unwrap_or(ColumnType::Null),
            whole: false,
        });
        columns.insert(name.clone(), found.collect());
    }
}

impl Text for CheckReport {
    fn write(&self, out: &mut String) -> fmt::Result {
        use fmt::Write as _;

        writeln!(out, "check: nothing is landed or written")?;
        for source in &self.sources {
            let text = match source {
                CheckedSource {
                    error: Some(error), ..
                } => format!("cannot be read: {error}"),
                CheckedSource { asked: false, .. } => "not asked".to_owned(),
                CheckedSource { rows, columns, .. } => {
                    let columns = counted(*columns as u64, "column");
                    let rows = counted(*rows, "row");
                    format!("can be read: {columns} in {rows} looked at")
                }
            };
            line(out, &source.name, text)?;
            if source.rejected > 0 {
                let sample = source.rejected_sample.as_deref().unwrap_or_default();
                let text = format!("{}, such as {}", source.rejected, shortened(sample));
                line(out, "  rejected", text)?;
            }
            write_warnings(&source.warnings, out)?;
        }
        if let Some(dataset) = &self.dataset {
            line(out, "dataset", dataset_text(dataset))?;
        }
        if let Some(CheckedTraining { batch_size, epochs }) = &self.train {
            let epochs = counted(*epochs, "epoch");
            let text = format!("settings are valid: batches of {batch_size}, at most {epochs}");
            line(out, "train", text)?;
        }
        for problem in &self.excerpts {
            // The lines below begin where the message does.
            let indent = " ".repeat(19);
            line(
                out,
                "problem",
                problem.replace('\n', &format!("\n{indent}")),
            )?;
        }
        let unread = self.sources.iter().filter(|source| source.error.is_some());
        let problems = self.problems.len() + unread.count();
        let result = match problems {
            0 => format!(
                "no problem found{}; next: feedline run {}",
                self.doubts(),
                self.file
            ),
            1 => "1 problem".to_owned(),
            many => format!("{many} problems"),
        };
        line(out, "result", result)
    }
}

fn dataset_text(dataset: &CheckedDataset) -> String {
    if let Some(reason) = &dataset.unchecked {
        return reason.clone();
    }
    let features = match (dataset.numeric.len(), dataset.categorical.len()) {
        (0, 0) => "no features of numbers or categories".to_owned(),
        (numeric, categorical) => {
            format!("{numeric} numeric and {categorical} categorical features")
        }
    };
    let targets: Vec<String> = dataset
        .targets
        .iter()
        .map(|name| format!("`{name}`"))
        .collect();
    match targets.as_slice() {
        [] => format!("no target, {features}"),
        [target] => format!("target {target}, {features}"),
        several => format!("targets {}, {features}", several.join(", ")),
    }
}
