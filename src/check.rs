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
    output::{Text, counted, line, lines, shell_word, shortened, write_warnings},
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

/// Checks `[train]`, if there is one.
fn checked_training(
    config: &PipelineConfig,
) -> Result<Option<CheckedTraining>, Box<feedline_trainer::Error>> {
    let Some(train) = &config.train else {
        return Ok(None);
    };
    training(config, train)?;
    Ok(Some(CheckedTraining {
        batch_size: train.batch_size,
        epochs: train.epochs,
    }))
}

/// Reason that `dataset.drop` is wrong: a target is no feature, and cannot be left out.
pub(crate) fn dropped_target(dataset: &DatasetConfig) -> Option<String> {
    let mut targets = dataset.targets().iter();
    let target = targets.find(|target| dataset.drop.contains(target))?;
    Some(format!(
        "`{target}` is the target (`dataset.target`), which is no feature anyway; remove it here, or choose another target"
    ))
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
    let (mut problems, mut excerpts): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    let mut add = |key: &str, reason: String| {
        let error = loaded.error(key, reason);
        let problem = error.to_string();
        if !problems.contains(&problem) {
            problems.push(problem);
            excerpts.push(error.with_excerpt());
        }
    };
    let (mut columns, mut missing) = (BTreeMap::new(), BTreeMap::new());
    match feedline_ingest::check(config, ingest).await {
        Ok(()) => {}
        Err(feedline_ingest::Error::Config { key, reason }) => add(&key, reason),
        Err(error) => return Err(error.into()),
    }
    let mut sources = Vec::new();
    for source in &config.source {
        let mut found = CheckedSource::not_asked(&source.name);
        if !is_offline {
            let only = Some(&source.name);
            let previews = Box::pin(feedline_ingest::preview(config, only, 0, ingest)).await;
            match previews {
                Ok(previews) => {
                    found.asked = true;
                    for preview in previews {
                        found.count_missing(&preview, &mut missing);
                        found.take(preview, &source.name, &mut columns);
                    }
                }
                Err(feedline_ingest::Error::Config { key, reason }) => add(&key, reason),
                Err(error) => return Err(error.into()),
            }
        }
        sources.push(found);
    }
    // The log of a landed source is a file of the root.
    let is_reached = !is_offline || preprocess.root.local_path().is_some();
    if let Some(reason) = config.dataset.as_ref().and_then(dropped_target) {
        add("dataset.drop", reason);
    }
    let dataset = match resolved(config, preprocess, &columns, &sources, is_reached).await {
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
    let train = match checked_training(config).map_err(|error| *error) {
        Ok(train) => train,
        Err(feedline_trainer::Error::Config { key, reason }) => {
            add(&key, reason);
            None
        }
        Err(error) => return Err(error.into()),
    };
    Ok(CheckReport {
        file,
        sources,
        dataset,
        train,
        problems,
        excerpts,
    })
}

/// Resolves the columns of the dataset among those that landed or were seen.
async fn resolved(
    config: &PipelineConfig,
    preprocess: &feedline_preprocess::Context,
    columns: &BTreeMap<Name, Vec<Column>>,
    sources: &[CheckedSource],
    is_reached: bool,
) -> Result<Option<CheckedDataset>, feedline_preprocess::Error> {
    if !is_reached {
        feedline_preprocess::check(config)?;
        return Ok(not_reached(config));
    }
    let resolved = feedline_preprocess::check_columns(config, preprocess, columns).await;
    let mut sources = sources.iter();
    match (resolved, sources.find(|source| source.is_without_columns())) {
        // A column is missed where no row has shown any.
        (Err(feedline_preprocess::Error::Config { .. }), Some(source)) => {
            feedline_preprocess::check(config).map(|()| not_seen(config, &source.name))
        }
        (resolved, _) => resolved,
    }
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

/// Result for a dataset with a source that has shown no columns.
fn not_seen(config: &PipelineConfig, source: &str) -> Option<CheckedDataset> {
    config.dataset.as_ref()?;
    Some(CheckedDataset {
        unchecked: Some(format!(
            "columns are not checked: no usable row of `{source}` was seen, and a run may find some"
        )),
        ..CheckedDataset::default()
    })
}

impl CheckedSource {
    fn not_asked(name: &Name) -> Self {
        Self {
            name: name.to_string(),
            asked: false,
            rows: 0,
            rejected: 0,
            rejected_sample: None,
            columns: 0,
            warnings: Vec::new(),
            error: None,
        }
    }

    /// Returns true if the source was read, and no usable row came.
    fn is_without_columns(&self) -> bool {
        self.error.is_none() && self.asked && self.columns == 0
    }

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
            lines(out, "problem", problem)?;
        }
        let unread = self.sources.iter().filter(|source| source.error.is_some());
        let problems = self.problems.len() + unread.count();
        let result = match problems {
            0 => format!(
                "no problem found{}; next: feedline run {}",
                self.doubts(),
                shell_word(&self.file)
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

#[cfg(test)]
mod tests {
    use feedline_schemas::config::load;

    use super::*;

    const SOURCE: &str =
        "[pipeline]\nname = \"p\"\n[[source]]\nname = \"a\"\ntype = \"files\"\nurl = \"a/*\"\n";

    fn dataset(text: &str) -> DatasetConfig {
        let text = format!("{SOURCE}[dataset]\n{text}");
        load("p.toml", &text, &[]).unwrap().config.dataset.unwrap()
    }

    #[test]
    fn a_target_cannot_be_left_out_of_the_features() {
        let one = dataset("target = \"y\"\ndrop = [\"x\", \"y\"]\n");
        let reason = dropped_target(&one).unwrap();
        assert!(reason.starts_with("`y` is the target"), "{reason}");
        let two = dataset("target = [\"z\", \"y\"]\ndrop = [\"y\"]\n");
        assert!(dropped_target(&two).is_some());
        assert_eq!(dropped_target(&dataset("drop = [\"y\"]\n")), None);
    }

    #[test]
    fn columns_are_missed_only_in_a_source_that_has_shown_some() {
        let preview = |columns: usize, bad: u64| SourcePreview {
            columns: vec![Default::default(); columns],
            bad,
            ..SourcePreview::default()
        };
        let is_without = |preview: SourcePreview| {
            let name = Name::new("a").unwrap();
            let mut source = CheckedSource::not_asked(&name);
            source.asked = true;
            source.take(preview, &name, &mut BTreeMap::new());
            source.is_without_columns()
        };
        assert!(is_without(preview(0, 1)));
        assert!(is_without(preview(0, 0)));
        assert!(!is_without(preview(2, 1)));
        let unread = SourcePreview {
            error: Some("gone".to_owned()),
            ..preview(0, 0)
        };
        assert!(!is_without(unread));
    }
}
