//! `feedline check`: a pipeline's settings, secrets and sources, before anything runs.

mod checked_source;
mod dataset_columns;
mod empty_features;
mod few_rows;
mod indicator_names;
mod initial_weights;
mod named_values;
mod problems;
mod rejects;
mod rows_looked_at;
mod series_times;
mod stored_images;
mod unique_texts;
mod version_samples;

use std::fmt;

use feedline_preprocess::CheckedDataset;
use feedline_schemas::{
    config::{DatasetConfig, Loaded, PipelineConfig, SourceConfig, SplitBy, TrainConfig},
    report::Warning,
};
use feedline_storage::Store;
use serde::Serialize;
use serde_json::Value;

pub(crate) use self::empty_features::warn_of_empty_features;
use self::{
    checked_source::CheckedSource,
    dataset_columns::{check_dataset, is_root_reached, seen_columns},
    initial_weights::CheckedWeights,
    problems::{CompleteReason, FoundProblems},
    rows_looked_at::RowsLookedAt,
    series_times::rows_with_times,
};
use crate::{
    exit::Outcome,
    formatted_times,
    output::{Text, counted, line, lines, shell_word, shortened, write_other_uses, write_warnings},
    tune,
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
    /// Warnings of the settings of the dataset.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) warnings: Vec<Warning>,
    /// Problems of the configuration, each with file, line and key.
    pub(crate) problems: Vec<String>,
    /// The same with the line of text, for a person.
    #[serde(skip)]
    pub(crate) excerpts: Vec<String>,
}

/// Settings of a training that need no dataset.
#[derive(Debug, Serialize)]
pub(crate) struct CheckedTraining {
    pub(crate) batch_size: u32,
    /// Most epochs.
    pub(crate) epochs: u64,
    /// File of weights that it begins with; none without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) init: Option<CheckedWeights>,
}

impl CheckReport {
    /// Counts of rejected rows and warnings, for the result.
    fn doubts(&self) -> String {
        let weights = self.train.iter().filter_map(|train| train.init.as_ref());
        let warnings = self.sources.iter().map(|source| source.warnings.len());
        let warnings = warnings.chain(weights.map(|weights| weights.warnings.len()));
        let warnings = warnings.chain([self.warnings.len()]);
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
    feedline_trainer::check_loader(train)?;
    feedline_trainer::check_device(train)?;
    if let Some(dataset) = &config.dataset {
        feedline_trainer::check_kind(train, dataset.kind)?;
        check_validation(dataset, train)?;
    }
    Ok(())
}

/// Refuses a dataset without a validation split for a training on it, which measures each epoch there.
fn check_validation(
    dataset: &DatasetConfig,
    train: &TrainConfig,
) -> Result<(), Box<feedline_trainer::Error>> {
    let by_fractions = matches!(
        dataset.split.by,
        SplitBy::Key { .. } | SplitBy::Range { .. }
    );
    if train.dataset.is_some() || !by_fractions || dataset.split.validation > 0.0 {
        return Ok(());
    }
    Err(Box::new(feedline_trainer::Error::Config {
        key: "dataset.split.validation".to_owned(),
        reason: "it is 0, and `[train]` measures each epoch on the validation split; give it a fraction, such as 0.1"
            .to_owned(),
    }))
}

/// Checks `[train]`, if there is one, and the values that `[tune]` would try in it.
fn checked_training(
    loaded: &Loaded,
) -> Result<Option<CheckedTraining>, Box<feedline_trainer::Error>> {
    let config = &loaded.config;
    let Some(train) = &config.train else {
        return Ok(None);
    };
    training(config, train)?;
    if let Some(search) = &config.tune {
        let make = |values: &[(String, Value)]| tune::made(loaded, values);
        feedline_trainer::tune::check(search, &make)?;
    }
    Ok(Some(CheckedTraining {
        batch_size: train.batch_size,
        epochs: train.epochs,
        init: None,
    }))
}

/// The same, and checks the file of weights that the training begins with.
async fn checked_training_and_weights(
    loaded: &Loaded,
    context: &feedline_preprocess::Context,
    is_offline: bool,
) -> Result<Option<CheckedTraining>, Box<feedline_trainer::Error>> {
    let Some(checked) = checked_training(loaded)? else {
        return Ok(None);
    };
    let init = initial_weights::check_initial_weights(&loaded.config, context, is_offline).await?;
    Ok(Some(CheckedTraining { init, ..checked }))
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

/// Warning of secrets in plain text of a source, for its report. A log line announces the requests
/// that send them, unless `is_offline`.
pub(crate) fn warn_of_plain_secrets(source: &SourceConfig, is_offline: bool) -> Option<Warning> {
    let warning = feedline_ingest::warn_of_plain_secrets(source)?;
    if !is_offline {
        let key = warning.key.as_deref().unwrap_or_default();
        let source = source.name.as_str();
        tracing::warn!(source, key, "requests send a probable secret in plain text");
    }
    Some(warning)
}

/// Checks a pipeline. Reads the first page or a sample of each source, unless `is_offline`. The
/// reasons of the problems are those that `complete` returns.
///
/// # Errors
/// Errors of the store, and a stop. The report has what is wrong with the pipeline.
pub(crate) async fn check(
    loaded: &Loaded,
    file: String,
    ingest: &feedline_ingest::Context,
    preprocess: &feedline_preprocess::Context,
    is_offline: bool,
    complete: CompleteReason<'_>,
) -> anyhow::Result<CheckReport> {
    let config = &loaded.config;
    let mut problems = FoundProblems::new(loaded, complete);
    match feedline_ingest::check(config, ingest).await {
        Ok(()) => {}
        Err(feedline_ingest::Error::Config { key, reason }) => problems.add(&key, reason),
        Err(error) => return Err(error.into()),
    }
    let (mut sources, mut previews) = (Vec::new(), Vec::new());
    for source in &config.source {
        let mut found = CheckedSource::not_asked(&source.name);
        let plain = warn_of_plain_secrets(source, is_offline);
        if !is_offline {
            let only = Some(&source.name);
            let rows = rows_with_times(config);
            match Box::pin(feedline_ingest::preview(config, only, rows, ingest)).await {
                Ok(seen) => {
                    seen.iter().for_each(|preview| found.take(preview, source));
                    previews.extend(seen);
                }
                Err(feedline_ingest::Error::Config { key, reason }) => problems.add(&key, reason),
                Err(error) => return Err(error.into()),
            }
        }
        formatted_times::remove_warnings(config, &found.name, &mut found.warnings);
        let past = feedline_ingest::warn_of_past_schedule(source, ingest);
        found.warnings.extend(past.into_iter().chain(plain));
        sources.push(found);
    }
    for (key, reason) in feedline_ingest::refused_columns(config, &previews) {
        problems.add(&key, reason);
    }
    let columns = seen_columns(config, &previews);
    let found = check_dataset(config, preprocess, &columns, &sources, is_offline).await?;
    let (dataset, problems_of_dataset) = (found.dataset, found.problems.into_iter());
    problems_of_dataset.for_each(|(key, reason)| problems.add(&key, reason));
    if let (Some(dataset), Some(settings)) = (&dataset, &config.dataset) {
        let rows = RowsLookedAt {
            config,
            dataset,
            settings,
            previews: &previews,
        };
        rows.judge(&mut sources, &ingest.root).await;
    }
    if is_root_reached(preprocess, is_offline)
        && let Some(reason) = missing_dataset(config, &preprocess.root).await
    {
        problems.add("train", reason);
    }
    let train = checked_training_and_weights(loaded, preprocess, is_offline).await;
    let train = match train.map_err(|error| *error) {
        Ok(train) => train,
        Err(feedline_trainer::Error::Config { key, reason }) => {
            problems.add(&key, reason);
            None
        }
        Err(error) => return Err(error.into()),
    };
    Ok(CheckReport {
        file,
        sources,
        dataset,
        train,
        warnings: warn_of_empty_features(loaded).into_iter().collect(),
        problems: problems.texts,
        excerpts: problems.excerpts,
    })
}

impl Text for CheckReport {
    fn write(&self, out: &mut String) -> fmt::Result {
        use fmt::Write as _;

        writeln!(out, "check: nothing is landed or written")?;
        for source in &self.sources {
            let text = match source {
                CheckedSource {
                    error: Some(error),
                    rows: 0,
                    rejected: 0,
                    ..
                } => error.clone(),
                CheckedSource {
                    error: Some(error), ..
                } => format!("can be read, but a run fails: {error}"),
                CheckedSource { asked: false, .. } => "not asked".to_owned(),
                CheckedSource { rows, columns, .. } => {
                    let columns = counted(*columns as u64, "column");
                    let rows = counted(*rows, "row");
                    format!("can be read: {columns} in {rows} looked at")
                }
            };
            line(out, &source.name, text)?;
            if source.rejected > 0 && source.error.is_none() {
                let sample = source.rejected_sample.as_deref().unwrap_or_default();
                let text = format!("{}, such as {}", source.rejected, shortened(sample));
                line(out, "  rejected", text)?;
            }
            write_warnings(&source.warnings, out)?;
        }
        if let Some(dataset) = &self.dataset {
            line(out, "dataset", dataset_text(dataset))?;
            write_other_uses(&dataset.no_features, out)?;
        }
        write_warnings(&self.warnings, out)?;
        if let Some(train) = &self.train {
            let (batch_size, epochs) = (train.batch_size, counted(train.epochs, "epoch"));
            let text = format!("settings are valid: batches of {batch_size}, at most {epochs}");
            line(out, "train", text)?;
            train.init.iter().try_for_each(|init| init.write(out))?;
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
            many => counted(many as u64, "problem"),
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
            let categorical = counted(categorical as u64, "categorical feature");
            format!("{numeric} numeric and {categorical}")
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
    use feedline_ingest::SourcePreview;
    use feedline_schemas::config::load;

    use super::*;

    const SOURCE: &str =
        "[pipeline]\nname = \"p\"\n[[source]]\nname = \"a\"\ntype = \"files\"\nurl = \"a/*\"\n";

    #[test]
    fn columns_are_missed_only_in_a_source_that_has_shown_some() {
        let preview = |columns: usize, bad: u64| SourcePreview {
            columns: vec![Default::default(); columns],
            bad,
            ..SourcePreview::default()
        };
        let is_without = |preview: SourcePreview| {
            let config = load("p.toml", SOURCE, &[]).unwrap().config.source.remove(0);
            let mut source = CheckedSource::not_asked(&config.name);
            source.take(&preview, &config);
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

    #[test]
    fn a_source_that_cannot_be_read_is_shown_with_its_error_alone() {
        let config = load("p.toml", SOURCE, &[]).unwrap().config;
        let error = "cannot fetch `http://h/a`: status 404; correct the URL";
        let source = CheckedSource {
            asked: true,
            error: Some(error.to_owned()),
            ..CheckedSource::not_asked(&config.source[0].name)
        };
        let report = CheckReport {
            sources: vec![source],
            ..CheckReport::default()
        };
        let mut out = String::new();
        report.write(&mut out).unwrap();
        assert!(out.contains(&format!("  {:<16} {error}\n", "a")), "{out}");
    }

    #[test]
    fn settings_that_train_or_tune_refuse_are_problems() {
        let check = |rest: &str| {
            let dataset = "[dataset]\ntarget = \"y\"\n";
            let text = match rest.contains("[dataset]") {
                true => format!("{SOURCE}{rest}"),
                false => format!("{SOURCE}{dataset}{rest}"),
            };
            let loaded = load("p.toml", &text, &[]).unwrap();
            match checked_training(&loaded).map_err(|error| *error) {
                Ok(_) => String::new(),
                Err(feedline_trainer::Error::Config { key, .. }) => key,
                Err(other) => panic!("{other}"),
            }
        };
        assert_eq!(check("[train]\n"), "");
        assert_eq!(
            check("[train]\nloader = { slabs = 1 }\n"),
            "train.loader.slabs"
        );
        assert_eq!(
            check("[train]\nloader = { max_bad_fraction = 3.0 }\n"),
            "train.loader.max_bad_fraction"
        );
        assert_eq!(
            check("[train]\nimages = { mix = { mixup = 0.5 } }\n"),
            "train.images.mix"
        );
        if cfg!(not(feature = "cuda")) {
            assert_eq!(check("[train]\ndevice = \"cuda\"\n"), "train.device");
        }
        assert_eq!(check("[train]\n[tune]\n"), "tune.parameter");
        let split = "split = { train = 0.8, validation = 0.0, test = 0.2 }";
        assert_eq!(
            check(&format!("[dataset]\ntarget = \"y\"\n{split}\n[train]\n")),
            "dataset.split.validation"
        );
    }

    #[test]
    fn a_searched_value_that_no_trial_could_have_is_a_problem_that_names_key_and_value() {
        let check = |parameter: &str| {
            let text = format!(
                "{SOURCE}[dataset]\ntarget = \"y\"\n[train]\nmodel.type = \"mlp\"\n[tune]\n[[tune.parameter]]\n{parameter}\n"
            );
            let loaded = load("p.toml", &text, &[]).unwrap();
            match checked_training(&loaded).map_err(|error| *error) {
                Ok(_) => String::new(),
                Err(error) => error.to_string(),
            }
        };
        let cases: [(&str, &[&str]); 5] = [
            (
                "key = \"train.learning_rate\"\nlow = 0.0\nhigh = 0.1",
                &["`train.learning_rate` cannot be `0.0`"],
            ),
            (
                "key = \"train.epochs\"\nvalues = [3, 0]",
                &["`train.epochs` cannot be `0`"],
            ),
            (
                "key = \"train.model.hidden\"\nvalues = [[8], [\"wide\"]]",
                &["`train.model.hidden` cannot be `[\"wide\"]`"],
            ),
            (
                "key = \"train.lerning_rate\"\nvalues = [0.1]",
                &[
                    "`train.lerning_rate` cannot be `0.1`",
                    "did you mean `learning_rate`",
                ],
            ),
            (
                "key = \"train.loader.slabs\"\nvalues = [1]",
                &["`train.loader.slabs` cannot be `1`"],
            ),
        ];
        for (parameter, parts) in cases {
            let found = check(parameter);
            assert!(found.contains("`tune.parameter.0.key`"), "{found}");
            for part in parts {
                assert!(found.contains(part), "{parameter}: {part}: {found}");
            }
        }
        for parameter in [
            "key = \"train.learning_rate\"\nlow = 1e-4\nhigh = 0.1\nscale = \"log\"",
            "key = \"train.model.hidden\"\nvalues = [[8], [16, 16]]",
            "key = \"train.epochs\"\nlow = 1\nhigh = 5\ninteger = true",
        ] {
            assert_eq!(check(parameter), "", "{parameter}");
        }
    }
}
