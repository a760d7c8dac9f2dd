//! `feedline predict` for features computed from earlier rows, and for models that read windows of
//! rows.
//!
//! New rows, and a history in a file, land in a folder of their own first, with the settings of the
//! dataset's source. So a cell has the same meaning as in the landing zone.

use std::{
    collections::BTreeMap,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    sync::mpsc::sync_channel,
    thread,
};

use anyhow::Context as _;
use feedline_preprocess::{LandedRows, SeriesBatch, SeriesRows, Transform, UnusualCells};
use feedline_schemas::{
    config::{
        ContractConfig, CsvConfig, DeclaredType, FileFormat, Fraction, InferConfig, PipelineConfig,
        SourceConfig,
    },
    record::ColumnType,
    report::{PredictReport, SourceReport},
};
use feedline_storage::{Store, StoreOptions, private};
use tokio::runtime::Handle;

use super::{Answers, Given, Output, WAITING, is_own};
use crate::stop::Stop;

/// A private folder, removed when its last user drops it.
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// Makes one below `scratch`.
    pub(crate) fn create(scratch: &Path) -> anyhow::Result<Self> {
        let path = scratch.join(format!("predict-{}", std::process::id()));
        let create = || {
            private::claim_folder(scratch)?;
            match fs::remove_dir_all(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            private::create_folder(&path)
        };
        create().with_context(|| format!("cannot make the folder `{}`", path.display()))?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            tracing::warn!(path = %self.0.display(), %error, "a temporary folder stays");
        }
    }
}

/// A file of rows, and the pipeline that lands it in a folder of its own.
pub(crate) struct Landing {
    pub(crate) config: PipelineConfig,
    pub(crate) root: Store,
    /// The file as the user named it.
    pub(crate) file: String,
}

impl Landing {
    /// Copies `file` (`-` is standard input) into `folder`, to land as source `name` of the
    /// pipeline of `config`.
    pub(crate) fn of(
        file: &str,
        name: &str,
        format: Option<FileFormat>,
        config: &PipelineConfig,
        landed: &BTreeMap<String, ColumnType>,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        let copy = folder.join(copied_name(file, name, format)?);
        let target = private::private_file()
            .create_new(true)
            .write(true)
            .open(&copy);
        let mut target = target.with_context(|| format!("cannot write `{}`", copy.display()))?;
        let copied = match file {
            "-" => std::io::copy(&mut std::io::stdin().lock(), &mut target),
            path => fs::File::open(path).and_then(|mut file| std::io::copy(&mut file, &mut target)),
        };
        copied
            .and_then(|_| target.flush())
            .with_context(|| format!("cannot read `{file}`"))?;
        let url = copy
            .to_str()
            .context("the scratch folder is no UTF-8 path")?;
        let dataset = config.dataset.as_ref();
        let mut own = config.source.iter();
        let own = own.find(|source| dataset.is_none_or(|dataset| is_own(dataset, &source.name)));
        let source = source(name, url, own, format, landed)?;
        let root = folder.join(format!("landed-{name}"));
        let root_url = root
            .to_str()
            .context("the scratch folder is no UTF-8 path")?;
        let mut pipeline = config.pipeline.clone();
        pipeline.root = Some(root_url.to_owned());
        Ok(Self {
            config: PipelineConfig {
                pipeline,
                source: vec![source],
                dataset: None,
                train: None,
                tune: None,
                ingest: None,
            },
            root: Store::open(root_url, &StoreOptions::default())?,
            file: file.to_owned(),
        })
    }

    /// The rows, once they have landed.
    pub(crate) fn landed(self) -> LandedRows {
        let mut sources = self.config.source.into_iter();
        LandedRows {
            root: self.root,
            source: sources.next().expect("the pipeline has one source"),
        }
    }
}

/// Returns a name with the extension of the file's format.
fn copied_name(file: &str, name: &str, format: Option<FileFormat>) -> anyhow::Result<String> {
    if file.contains("://") {
        anyhow::bail!("`{file}` is a URL; give a local file, or pipe the rows in");
    }
    if file == "-" {
        let ending = match format {
            Some(FileFormat::Csv) => "csv",
            Some(FileFormat::Parquet) => "parquet",
            _ => "ndjson",
        };
        return Ok(format!("{name}.{ending}"));
    }
    let file = Path::new(file).file_name().unwrap_or_default();
    let file = file.to_string_lossy().into_owned();
    // A pattern would match other files.
    let file: String = file
        .chars()
        .map(|c| if "*?[]{}".contains(c) { '_' } else { c })
        .collect();
    Ok(format!("{name}-{file}"))
}

/// The source that reads `url` as `own` reads its files, with the types that `landed`.
fn source(
    name: &str,
    url: &str,
    own: Option<&SourceConfig>,
    format: Option<FileFormat>,
    landed: &BTreeMap<String, ColumnType>,
) -> anyhow::Result<SourceConfig> {
    let plain = serde_json::json!({ "name": name, "type": "files", "url": url });
    let plain: SourceConfig = serde_json::from_value(plain).context("a plain source is one")?;
    let own_contract = own.map_or_else(ContractConfig::default, |own| own.contract.clone());
    let mut column = own_contract.column.clone();
    for (name, landed) in landed {
        let declared = match landed {
            ColumnType::Utf8 => DeclaredType::Text,
            ColumnType::Float64 => DeclaredType::Float,
            ColumnType::Decimal => DeclaredType::Decimal,
            _ => continue,
        };
        let rules = column.entry(name.clone()).or_default();
        rules.r#type.get_or_insert(declared);
    }
    // A row to predict lacks its target, and perhaps more; the model's transform decides what it
    // requires.
    let contract = ContractConfig {
        column,
        required: Vec::new(),
        children: BTreeMap::new(),
        max_reject_fraction: Fraction::literal(1.0),
        ..own_contract
    };
    Ok(SourceConfig {
        format: format.unwrap_or_default(),
        csv: own.map_or_else(CsvConfig::default, |own| own.csv.clone()),
        infer: own.map_or_else(InferConfig::default, |own| own.infer.clone()),
        contract,
        ..plain
    })
}

/// Counts rows of the file that did not land.
pub(crate) fn add_rejects(report: &mut PredictReport, landed: &SourceReport) {
    report.rows += landed.rejected;
    report.rejected += landed.rejected;
    for (reason, rows) in &landed.rejected_by_reason {
        *report.rejected_by_reason.entry(reason.clone()).or_default() += rows;
    }
    if let Some(sample) = &landed.reject_sample {
        report.reject_sample.get_or_insert_with(|| sample.clone());
    }
}

/// Predicts `rows` and writes the predictions to `output`. Blocks; `runtime` reads the rows.
pub(crate) fn answer(
    rows: SeriesRows,
    answers: &Answers,
    output: Output,
    (stop, runtime): (&Stop, &Handle),
    report: &mut PredictReport,
) -> anyhow::Result<()> {
    let naive = rows.naive();
    let is_window = rows.window().is_some();
    let (sender, batches) = sync_channel(WAITING);
    let runtime = runtime.clone();
    let work = move || -> anyhow::Result<SeriesRows> {
        let mut rows = rows;
        let mut first = 0;
        while let Some(batch) = runtime.block_on(rows.next())? {
            let given = given(batch, first, is_window, naive);
            first += given.rows as u64;
            if sender.send(given).is_err() {
                break;
            }
        }
        Ok(rows)
    };
    let reader = thread::spawn(work);
    let mut ended = None;
    let closed = output.write(&answers.names(), |out| {
        answers.write(&batches, out, stop, report)?;
        ended = Some(super::joined(reader)?);
        Ok(())
    })?;
    report.warnings.extend(closed);
    let Some(rows) = ended else { return Ok(()) };
    super::warn_of_misfits(report);
    if let Some(found) = rows.repeated_times() {
        super::warn(found, report);
    }
    report.copies = rows.copies();
    report.rejected_before += rows.rejected_before();
    if report.copies > 0 {
        tracing::warn!(
            rows = report.copies,
            "rows have no prediction of their own: they are duplicates of landed rows, or of one another"
        );
    }
    if report.rejected_before > 0 {
        tracing::warn!(
            rows = report.rejected_before,
            "rows of the past cannot be used, as in a build: features and windows do without them"
        );
    }
    Ok(())
}

/// Further columns of the output, besides the passthrough columns.
pub(crate) fn further_names(rows: &SeriesRows) -> (Vec<String>, Vec<String>) {
    let window = rows.window().map(|_| "target_time".to_owned());
    let names = ["last_value", "seasonal_value"].into_iter();
    let naive = names.zip(rows.naive()).filter(|(_, is_there)| *is_there);
    let naive = naive.map(|(name, _)| name.to_owned());
    (window.into_iter().collect(), naive.collect())
}

fn given(batch: SeriesBatch, first: u64, is_window: bool, naive: [bool; 2]) -> Given {
    let SeriesBatch {
        rows,
        x,
        bad,
        mut kept,
        target_times,
        last,
        season,
    } = batch;
    kept.extend(is_window.then_some(target_times));
    let numbers = [last, season].into_iter().zip(naive);
    let numbers = numbers.filter(|(_, is_there)| *is_there);
    Given {
        first,
        rows,
        x,
        bad,
        kept,
        numbers: numbers.map(|(cells, _)| cells).collect(),
        predicted: None,
        unusual: UnusualCells::default(),
    }
}

/// Names of the numbers of a window: each feature with its distance from the last row.
pub(crate) fn window_names(transform: &Transform, rows: &SeriesRows) -> Vec<String> {
    let features = transform.artefact().features.iter();
    let features = features.map(|feature| super::named_feature(&feature.name));
    match rows.window() {
        None => features.collect(),
        Some((length, _)) => {
            let features: Vec<String> = features.collect();
            let before = (0..length).rev();
            before
                .flat_map(|back| features.iter().map(move |name| format!("{name}@-{back}")))
                .collect()
        }
    }
}
