//! `feedline predict`: the transform, and a trained model, applied to new rows.
//!
//! Every row gets a line in the output, in the order of the file. An unusable row has a reason in
//! place of a prediction. One thread reads and transforms while another runs the model and writes;
//! few batches wait between them.

mod dialect;
mod finite;
pub(crate) mod images;
pub(crate) mod multi;
mod ordered;
mod output;
mod passthrough;
mod rejected;
mod report;
pub(crate) mod series;
pub(crate) mod split;
pub(crate) mod texts;
mod unusual;

use std::{
    collections::BTreeMap,
    io::Write,
    path::PathBuf,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, sync_channel},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use feedline_preprocess::{
    Column, ExpectedInputs, Fault, Features, PassthroughType, PauseRule, RowSource, RowsIn,
    RowsOut, RowsReading, Transform, UnusualCells,
};
use feedline_schemas::{
    config::{DatasetConfig, Fraction, PipelineConfig},
    count::counted,
    ids::Name,
    record::ColumnType,
    report::{PredictReport, Warning},
    transform::FittedTarget,
};
use feedline_storage::clock::SystemClock;
use feedline_trainer::{ChosenRun, Predicted, Predictor};

pub(crate) use self::{
    dialect::dates_of_rows, output::Output, rejected::check_any_predicted, unusual::mostly_capped,
};
use self::{
    finite::usable,
    passthrough::{names_with_own, note_misfits, typed_columns, warn_of_misfits},
    unusual::{add_training_caps, count_unusual, warn_of_unusual_rows},
};
use crate::{cli, stop::Stop};

/// Batches between reading and computing.
const WAITING: usize = 2;

/// Names of the predictions' own columns.
const OWN: [&str; 3] = ["row", "error", "detail"];

/// Column of a row's anomalies.
const FLAGS: &str = "flags";

/// Longest delay until a signal is noticed while no rows arrive.
const LOOK: Duration = Duration::from_millis(200);

/// Longest time that complete rows of a pipe wait for further ones.
const PAUSE: Duration = Duration::from_millis(200);

/// Input, model and output of a prediction.
pub(crate) struct Predict {
    /// Path of the new rows; `-` is standard input.
    pub(crate) rows: String,
    pub(crate) reading: RowsReading,
    /// Expectations of the dataset for the rows.
    pub(crate) expected: Option<ExpectedInputs>,
    /// Path of the output; standard output if absent.
    pub(crate) to: Option<PathBuf>,
    /// Escapes strings that a spreadsheet would evaluate.
    pub(crate) escapes_formulas: bool,
    pub(crate) transform: Transform,
    /// Adds a column of each row's anomalies.
    pub(crate) flags: bool,
    /// The run whose model is used; without it only the transform is applied.
    pub(crate) model: Option<(ChosenRun, feedline_trainer::Context)>,
    pub(crate) stop: Stop,
}

/// Rules for reading new rows of this pipeline: with the CSV dialect of its sources.
///
/// # Errors
/// As [`reading_as`].
pub(crate) fn reading(
    options: &cli::Predict,
    config: &PipelineConfig,
    landed: BTreeMap<String, ColumnType>,
) -> anyhow::Result<RowsReading> {
    let dataset = config.dataset.as_ref();
    reading_as(options, config, landed, |name| {
        dataset.is_none_or(|dataset| is_own(dataset, name))
    })
}

/// Settings for reading new rows: those of the sources that `is_like` selects.
///
/// # Errors
/// New rows of CSV, and sources with different dialects.
pub(crate) fn reading_as(
    options: &cli::Predict,
    config: &PipelineConfig,
    landed: BTreeMap<String, ColumnType>,
    is_like: impl Fn(&Name) -> bool,
) -> anyhow::Result<RowsReading> {
    let dataset = config.dataset.as_ref();
    let is_files = dataset.is_some_and(|dataset| dataset.files.is_some());
    let has_query = dataset.is_some_and(|dataset| dataset.sql.is_some());
    let is_landed = !is_files && !has_query;
    let own = config.source.iter();
    let is_like = &is_like;
    let own = own.filter(|source| is_like(&source.name));
    let format = options.format.map(Into::into).unwrap_or_default();
    let is_csv = dialect::is_csv(format, options.rows.as_deref());
    let csv = dialect::csv_dialect(own.clone(), is_csv);
    let csv = csv.map_err(|error| dialect::advise_sources(&error, has_query))?;
    Ok(RowsReading {
        format,
        csv: match is_files {
            true => dialect::with_plain_numbers(csv),
            false => csv,
        },
        records: dialect::records(own.clone()),
        archive: dialect::archive(own.clone()),
        landed,
        contracts: match is_landed {
            true => own.map(|source| source.contract.clone()).collect(),
            false if is_files => Vec::new(),
            false => own.map(dialect::query_contract).collect(),
        },
        names_as_written: !is_landed,
        keep: options.keep.clone(),
        max_missing_fraction: config
            .dataset
            .as_ref()
            .and_then(|dataset| dataset.max_missing_fraction)
            .map(Fraction::get),
        batch_rows: usize::try_from(options.batch_rows).unwrap_or(usize::MAX),
        joins: None,
        pause: pause_rule(options),
    })
}

/// Rule for a pipe into a pipe: complete rows are predicted while the input pauses. A file appears
/// complete or not at all, so its rows can wait.
fn pause_rule(options: &cli::Predict) -> Option<PauseRule> {
    let is_piped = options.rows.as_deref().is_none_or(|rows| rows == "-");
    (is_piped && options.to.is_none()).then(|| PauseRule {
        delay: PAUSE,
        clock: Arc::new(SystemClock),
    })
}

/// Returns true if the dataset's rows come from the source `name`, and are not only joined or
/// compared with it.
fn is_own(dataset: &DatasetConfig, name: &Name) -> bool {
    let against = dataset.near_dup.iter().flat_map(|near| &near.against);
    let joined = dataset.join.iter().map(|join| &join.source);
    let is_beside = joined.chain(against).any(|other| other == name);
    let mut sources = dataset.sources.iter();
    !is_beside && (dataset.sources.is_empty() || sources.any(|own| own.source == *name))
}

impl Predict {
    /// Reads all rows and writes as many. Blocks.
    pub(crate) fn run(self) -> anyhow::Result<PredictReport> {
        let output = Output::of(self.to.as_deref(), self.escapes_formulas)?;
        let source = row_source(&self.rows)?;
        let rows = RowsIn::open(source, &self.reading, self.transform.artefact())?;
        let rows = rows.expecting(self.expected);
        let mut report = PredictReport {
            transform: self.transform.artefact().hash.to_string(),
            to: output.name(),
            ignored: rows.ignored(),
            warnings: rows.warnings(),
            ..PredictReport::default()
        };
        let predictor = match &self.model {
            Some((chosen, context)) => {
                let features = self.transform.features();
                Some(open_model(chosen, context, features, &mut report)?)
            }
            None => None,
        };
        let transform = Arc::new(self.transform);
        let features = transform.artefact().features.iter();
        let answers = Answers {
            predictor,
            names: features
                .map(|feature| named_feature(&feature.name))
                .collect(),
            transform: Arc::clone(&transform),
            kept: self.reading.keep,
            kept_types: output.types_of(rows.passthrough_types()),
            numbers: Vec::new(),
            predicted: None,
            flags: self.flags,
        };
        let (batches, reader) = read(rows, transform);
        let mut ended = None;
        let closed = output.write(&answers.names(), |out| {
            answers.write(&batches, out, &self.stop, &mut report)?;
            ended = Some(joined(reader)?);
            Ok(())
        })?;
        report.warnings.extend(closed);
        // The reader of the output has closed it.
        let Some(rows) = ended else {
            return Ok(report);
        };
        report.ignored = rows.ignored();
        add_found(&rows, &mut report);
        if report.rows > report.rejected {
            report.absent = rows.absent();
        }
        if report.rows == 0 {
            let message = format!("`{}` has no rows, so nothing was predicted", self.rows);
            report.warnings.push(Warning::new("no_rows", message));
        }
        add_training_caps(&answers.transform, &mut report);
        warn_of_unusual_rows(&report);
        Ok(report)
    }
}

/// Adds the joins of the rows, and warnings about their cells, to the report.
fn add_found(rows: &RowsIn, report: &mut PredictReport) {
    let joined = rows.joined();
    report.joins = joined.joins;
    report.joined_before = joined.joined_before;
    warn_of_misfits(report);
    for found in rows.found() {
        warn(found, report);
    }
}

/// Logs a warning and adds it to the report.
fn warn(warning: Warning, report: &mut PredictReport) {
    tracing::warn!("{}", warning.message);
    report.warnings.push(warning);
}

/// Opens the model of a run for rows of so many numbers, and adds it to the report.
///
/// # Errors
/// Errors of the trainer, and a model that reads rows of another length.
pub(crate) fn open_model(
    chosen: &ChosenRun,
    context: &feedline_trainer::Context,
    features: usize,
    report: &mut PredictReport,
) -> anyhow::Result<Predictor> {
    let predictor = Predictor::of_run(chosen, None, context)?;
    anyhow::ensure!(
        predictor.features() == features,
        "run `{}` reads rows of {}, and the transform makes {features}; choose another run with `--run`",
        predictor.run(),
        counted(predictor.features() as u64, "number")
    );
    report.run = Some(predictor.run().to_owned());
    report.checkpoint = Some(predictor.checkpoint().to_owned());
    report.used = Some(chosen.used().clone());
    report.warnings.extend_from_slice(predictor.warnings());
    Ok(predictor)
}

/// Computes predictions from features.
pub(crate) struct Answers {
    /// The model; without it the features themselves are written.
    pub(crate) predictor: Option<Predictor>,
    pub(crate) transform: Arc<Transform>,
    /// Names of a row's numbers.
    pub(crate) names: Vec<String>,
    /// Names of the passthrough columns.
    pub(crate) kept: Vec<String>,
    /// Types of the first of them; the others are text.
    pub(crate) kept_types: Vec<PassthroughType>,
    /// Names of further columns of numbers.
    pub(crate) numbers: Vec<String>,
    /// Kind of the predictions, without rows, if they are computed elsewhere.
    pub(crate) predicted: Option<Predicted>,
    /// Adds a column of each row's anomalies.
    pub(crate) flags: bool,
}

/// Some rows to be answered.
struct Given {
    /// Number of the first row, from 0.
    first: u64,
    /// Numbers of the rows where they do not follow `first`; otherwise empty.
    row_numbers: Vec<u64>,
    rows: usize,
    /// `[rows, numbers]`, row-major; undefined for bad rows.
    x: Vec<f32>,
    bad: BTreeMap<usize, Fault>,
    kept: Vec<Vec<Option<String>>>,
    numbers: Vec<Vec<Option<f64>>>,
    /// Predictions computed elsewhere; undefined for bad rows.
    predicted: Option<Predicted>,
    unusual: UnusualCells,
}

impl From<Features> for Given {
    fn from(features: Features) -> Self {
        let Features {
            first,
            rows,
            x,
            bad,
            kept,
            unusual,
        } = features;
        Self {
            first,
            row_numbers: Vec::new(),
            rows,
            x,
            bad,
            kept,
            numbers: Vec::new(),
            predicted: None,
            unusual,
        }
    }
}

impl Answers {
    /// Classes of the target, if it has some.
    fn classes(&self) -> &[String] {
        match &self.transform.artefact().target {
            Some(FittedTarget::Classification { classes, .. }) => classes,
            _ => &[],
        }
    }

    /// Names of the columns. The output of a model that reconstructs rows is no prediction of a
    /// target.
    fn names(&self) -> Vec<String> {
        let mut names = vec![OWN[0].to_owned()];
        names.extend(self.numbers.iter().cloned());
        match self.predicted.clone().or_else(|| self.predict(&[])) {
            None => names.extend(self.names.iter().cloned()),
            Some(Predicted::Differences(_)) => names.push("difference".into()),
            Some(Predicted::Numbers(_)) => names.push("prediction".into()),
            Some(Predicted::Vectors { targets, .. }) => {
                names.extend(
                    targets
                        .iter()
                        .map(|target| named_target("prediction", target)),
                );
            }
            Some(Predicted::Classes { .. }) => {
                names.push("prediction".into());
                names.extend(
                    self.classes()
                        .iter()
                        .map(|class| format!("probability={class}")),
                );
            }
        }
        names.extend(OWN[1..].iter().map(|name| (*name).to_owned()));
        names.extend(self.flags.then(|| FLAGS.to_owned()));
        names_with_own(&self.kept, names)
    }

    /// Predicts the features `x`; `None` if only the transform is applied.
    fn predict(&self, x: &[f32]) -> Option<Predicted> {
        let predictor = self.predictor.as_ref();
        predictor.map(|predictor| predictor.predict(x))
    }

    /// Number of inputs of a row; of a window, those of all its rows.
    fn inputs(&self) -> usize {
        let rows = self.names.len() / self.transform.features().max(1);
        self.transform.artefact().inputs.len() * rows.max(1)
    }

    /// A batch without rows: the header, and the types, of a file.
    fn no_rows(&self) -> Given {
        Given {
            first: 0,
            row_numbers: Vec::new(),
            rows: 0,
            x: Vec::new(),
            bad: BTreeMap::new(),
            kept: vec![Vec::new(); self.kept.len()],
            numbers: vec![Vec::new(); self.numbers.len()],
            predicted: self.predicted.clone(),
            unusual: UnusualCells::default(),
        }
    }

    /// Writes predictions for all of `batches`, and counts them.
    fn write(
        &self,
        batches: &Receiver<Given>,
        out: &mut RowsOut<Box<dyn Write + Send>>,
        stop: &Stop,
        report: &mut PredictReport,
    ) -> anyhow::Result<()> {
        out.write(self.columns(self.no_rows(), report))?;
        for_each(batches, stop, |given| {
            Ok(out.write(self.columns(given, report))?)
        })
    }

    fn columns(&self, given: Given, report: &mut PredictReport) -> Vec<Column> {
        let Given {
            first,
            row_numbers,
            rows,
            x,
            mut bad,
            kept,
            numbers,
            predicted,
            unusual,
        } = given;
        let number_of = |row: usize| (row_numbers.get(row).copied()).unwrap_or(first + row as u64);
        // Rows in the order of columns come from no file.
        let is_of_file = report.ordered_by.is_empty();
        let number_in_file = |row: usize| is_of_file.then(|| number_of(row));
        let (mut columns, misfits) = typed_columns(kept, &self.kept_types);
        columns.push(Column::Counts((0..rows).map(number_of).collect()));
        columns.extend(numbers.into_iter().map(Column::Long));
        match predicted.or_else(|| self.predict(&x)) {
            None => {
                let width = self.names.len();
                let good = |row: usize| !bad.contains_key(&row);
                columns.extend((0..width).map(|feature| {
                    let cell = |row: usize| good(row).then(|| x[row * width + feature]);
                    Column::Short((0..rows).map(cell).collect())
                }));
            }
            Some(Predicted::Numbers(numbers) | Predicted::Differences(numbers)) => {
                let numbers = numbers.into_iter().enumerate();
                let numbers = numbers.map(|(row, number)| {
                    let number = Some(number).filter(|n| n.is_finite());
                    usable(row, number_in_file(row), number, &mut bad)
                });
                columns.push(Column::Long(numbers.collect()));
            }
            Some(Predicted::Vectors { numbers, targets }) => {
                let width = targets.len();
                // A row is used completely or not at all.
                for (row, numbers) in numbers.chunks_exact(width.max(1)).enumerate() {
                    let is_finite = numbers.iter().all(|number| number.is_finite());
                    usable(row, number_in_file(row), is_finite.then_some(()), &mut bad);
                }
                let good = |row: usize| !bad.contains_key(&row);
                columns.extend((0..width).map(|target| {
                    let cell = |row: usize| good(row).then(|| numbers[row * width + target]);
                    Column::Long((0..rows).map(cell).collect())
                }));
            }
            Some(Predicted::Classes { ids, probabilities }) => {
                let names = self.classes();
                let classes = ids.into_iter().enumerate().map(|(row, id)| {
                    let id = id.filter(|_| probabilities[row * names.len()].is_finite());
                    usable(row, number_in_file(row), id, &mut bad).map(|id| names[id].clone())
                });
                columns.push(Column::Text(classes.collect()));
                columns.extend((0..names.len()).map(|class| {
                    let cell = |row: usize| {
                        (!bad.contains_key(&row)).then(|| probabilities[row * names.len() + class])
                    };
                    Column::Long((0..rows).map(cell).collect())
                }));
            }
        }
        count(&bad, rows, report);
        let (mut errors, mut details) = (vec![None; rows], vec![None; rows]);
        for (row, fault) in bad {
            errors[row] = Some(fault.reason.to_owned());
            details[row] = Some(fault.detail);
        }
        note_misfits(misfits, &self.kept, &mut details, report);
        columns.extend([Column::Text(errors), Column::Text(details)]);
        count_unusual(&unusual, report);
        if self.flags {
            let caps = |column: &str| self.transform.has_caps_as_bounds(column);
            columns.push(Column::Text(unusual.describe(rows, self.inputs(), caps)));
        }
        columns
    }
}

/// Rows of a file, or of standard input for `-`.
fn row_source(rows: &str) -> anyhow::Result<RowSource> {
    Ok(match rows {
        "-" => RowSource::Stream(Box::new(std::io::stdin())),
        url if url.contains("://") => {
            anyhow::bail!("`{url}` is a URL; give a local file, or pipe the rows in")
        }
        path => RowSource::File(path.into()),
    })
}

/// Name of the column of one of several targets.
pub(crate) fn named_target(what: &str, target: &str) -> String {
    format!("{what}={target}")
}

/// Name of a feature's column in the output: its own, unless a column of the predictions has it.
fn named_feature(name: &str) -> String {
    match OWN.contains(&name) {
        true => format!("feature={name}"),
        false => name.to_owned(),
    }
}

fn count(bad: &BTreeMap<usize, Fault>, rows: usize, report: &mut PredictReport) {
    report.rows += rows as u64;
    report.rejected += bad.len() as u64;
    for fault in bad.values() {
        *report
            .rejected_by_reason
            .entry(fault.reason.to_owned())
            .or_default() += 1;
        if report.reject_sample.is_none() {
            report.reject_sample = Some(format!("`{}`: {}", fault.reason, fault.detail));
            report.is_unread_time = fault.is_unread_time;
        }
    }
}

/// Calls `take` with each of `batches`, until all are read.
fn for_each(
    batches: &Receiver<Given>,
    stop: &Stop,
    mut take: impl FnMut(Given) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    loop {
        stop.check()?;
        match batches.recv_timeout(LOOK) {
            Ok(given) => take(given)?,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
    }
}

/// Joins a reading thread.
fn joined<T>(reader: JoinHandle<anyhow::Result<T>>) -> anyhow::Result<T> {
    let ended = reader.join();
    ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Reads and transforms on a thread of its own, which ends when its receiver is dropped.
fn read(
    mut rows: RowsIn,
    transform: Arc<Transform>,
) -> (Receiver<Given>, JoinHandle<anyhow::Result<RowsIn>>) {
    let (sender, batches) = sync_channel(WAITING);
    let work = move || -> anyhow::Result<RowsIn> {
        while let Some(batch) = rows.next_rows()? {
            if sender.send(batch.features(&transform)?.into()).is_err() {
                break;
            }
        }
        Ok(rows)
    };
    (batches, thread::spawn(work))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feature_called_as_a_column_of_the_answers_has_another_name() {
        let names = ["row", "error", "detail", "prediction", "size"].map(named_feature);
        let expected = [
            "feature=row",
            "feature=error",
            "feature=detail",
            "prediction",
            "size",
        ];
        assert_eq!(names, expected);
    }
}
