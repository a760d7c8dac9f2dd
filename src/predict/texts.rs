//! `feedline predict` for texts: the loss and perplexity of each text under a language model.
//!
//! Rows of a table or of objects have their text in the dataset's column. A text file is one
//! text, or several with the separator of the pipeline's source. One thread reads and encodes while
//! another runs the model and writes; few batches wait between them.

use std::{
    collections::{BTreeMap, VecDeque},
    fs,
    io::Write,
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, RecvTimeoutError, sync_channel},
    thread::{self, JoinHandle},
};

use anyhow::Context as _;
use feedline_preprocess::{
    Column, EncodedText, Fault, NewTexts, PassthroughType, RowSource, RowsIn, RowsOut, RowsReading,
    TextEncoder,
};
use feedline_readers::{file_format::named, text_rows::text_documents};
use feedline_schemas::{
    config::{FileFormat, PipelineConfig, SourceConfig},
    edit::Documents,
    report::{PredictReport, Warning},
};
use feedline_trainer::{ChosenRun, TextScorer};

use super::{
    LOOK, OWN, Output, WAITING, count, images, is_own, joined, names_with_own, note_misfits,
    typed_columns, usable, warn_of_misfits,
};
use crate::stop::Stop;

/// Columns of the scores.
const SCORES: [&str; 4] = ["tokens", "unknown", "loss", "perplexity"];

/// Extensions of text files, without those of compression.
const TEXT_ENDINGS: [&str; 4] = ["txt", "text", "md", "markdown"];

/// Extensions of archives, which are not read.
const ARCHIVE_ENDINGS: [&str; 4] = ["zip", "tar", "tgz", "7z"];

/// Most bytes of a text file.
const FILE_BYTES: u64 = 1 << 30;

/// Bytes after which a batch ends, even with few texts.
const BATCH_BYTES: usize = 32 << 20;

/// Reason of a file that cannot be read.
const UNREADABLE: &str = "file_unreadable";

/// Reason of a text without a token to predict.
const TOO_SHORT: &str = "text_too_short";

/// Source of texts.
pub(crate) enum TextSource {
    /// A column of rows.
    Rows(Box<RowsIn>),
    /// Text files.
    Files(TextFiles),
}

/// Text files in the order of their paths.
pub(crate) struct TextFiles {
    /// Files that are still to be read, with their paths below the folder.
    files: VecDeque<(PathBuf, String)>,
    /// Texts of files that were read already.
    waiting: VecDeque<(String, Result<Option<String>, Fault>)>,
    separator: Option<String>,
    batch_rows: usize,
    read: u64,
}

impl TextSource {
    /// Opens the texts in `place`: `-` is standard input. Rows have them in the column `column`.
    ///
    /// # Errors
    /// Places without texts, and files that cannot be read.
    pub(crate) fn open(
        place: &str,
        reading: &RowsReading,
        column: &str,
        config: &PipelineConfig,
    ) -> anyhow::Result<Self> {
        anyhow::ensure!(
            !place.contains("://"),
            "`{place}` is a URL; give a file or a folder on this machine, or pipe the rows in"
        );
        let rows = |source| -> anyhow::Result<Self> {
            let rows = RowsIn::open_texts(source, reading, column)?;
            Ok(Self::Rows(Box::new(rows)))
        };
        if place == "-" {
            return rows(RowSource::Stream(Box::new(std::io::stdin())));
        }
        let path = Path::new(place);
        let dataset = config.dataset.as_ref();
        let mut own = config.source.iter();
        let own = own.find(|source| dataset.is_none_or(|dataset| is_own(dataset, &source.name)));
        let reads_texts = own.is_some_and(|own| own.format == FileFormat::Text);
        let is_rows = named(place, reading.format, None).is_some_and(|(kind, _)| kind.is_table());
        let metadata = fs::metadata(path).with_context(|| format!("cannot read `{place}`"))?;
        if metadata.is_file() && (is_rows || !(reads_texts || is_text_name(place))) {
            return rows(RowSource::File(path.to_owned()));
        }
        anyhow::ensure!(
            reading.keep.is_empty(),
            "`--passthrough` is for columns of rows, and `{place}` is read as text files, whose predictions have their paths; remove it"
        );
        let mut files = Vec::new();
        if metadata.is_dir() {
            list_files(path, "", &mut files).with_context(|| format!("cannot read `{place}`"))?;
            files.sort_by(|a, b| a.1.cmp(&b.1));
            let all = files.len();
            files.retain(|(_, name)| match reads_texts {
                true => !is_archive(name),
                false => is_text_name(name),
            });
            if files.len() < all {
                tracing::warn!(
                    files = all - files.len(),
                    folder = place,
                    "files are skipped: they have no extension of a text file"
                );
            }
            anyhow::ensure!(
                !files.is_empty(),
                "folder `{place}` has no text file (`.txt`, `.md`); give one that has, or a file of rows"
            );
        } else {
            anyhow::ensure!(
                !is_archive(place),
                "`{place}` is an archive, and texts are read from files and folders only; unpack it"
            );
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            files.push((path.to_owned(), name.into_owned()));
        }
        Ok(Self::Files(TextFiles {
            files: files.into(),
            waiting: VecDeque::new(),
            separator: own.and_then(separator),
            batch_rows: reading.batch_rows.max(1),
            read: 0,
        }))
    }

    /// Types of the passthrough columns; without any they are text.
    fn kept_types(&self) -> Vec<PassthroughType> {
        match self {
            Self::Rows(rows) => rows.passthrough_types().to_vec(),
            Self::Files(_) => Vec::new(),
        }
    }

    /// Names of the passthrough columns.
    pub(crate) fn kept(&self, reading: &RowsReading) -> Vec<String> {
        match self {
            Self::Rows(_) => reading.keep.clone(),
            Self::Files(_) => vec![images::PATH.to_owned()],
        }
    }

    fn ignored(&self) -> Vec<String> {
        match self {
            Self::Rows(rows) => rows.ignored(),
            Self::Files(_) => Vec::new(),
        }
    }

    fn warnings(&self) -> Vec<Warning> {
        match self {
            Self::Rows(rows) => rows.warnings(),
            Self::Files(_) => Vec::new(),
        }
    }

    fn next(&mut self) -> anyhow::Result<Option<NewTexts>> {
        match self {
            Self::Rows(rows) => Ok(rows.next_rows()?.map(|rows| rows.into_texts())),
            Self::Files(files) => Ok(files.next()),
        }
    }
}

fn separator(own: &SourceConfig) -> Option<String> {
    own.text.separator.clone()
}

/// Extension of a file's name, without that of its compression.
fn ending(name: &str) -> String {
    let name = name.to_lowercase();
    let plain = name.strip_suffix(".gz").or(name.strip_suffix(".zst"));
    let plain = plain.unwrap_or(&name);
    plain
        .rsplit_once('.')
        .map_or_else(String::new, |(_, ending)| ending.to_owned())
}

fn is_text_name(name: &str) -> bool {
    TEXT_ENDINGS.contains(&ending(name).as_str())
}

fn is_archive(name: &str) -> bool {
    ARCHIVE_ENDINGS.contains(&ending(name).as_str())
}

/// Adds the files below `folder` with their paths below the first one, except hidden ones.
pub(crate) fn list_files(
    folder: &Path,
    above: &str,
    files: &mut Vec<(PathBuf, String)>,
) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with('.') {
            continue;
        }
        let named = format!("{above}{name}");
        // A link to a folder could lead back here.
        match entry.file_type()?.is_dir() {
            true => list_files(&entry.path(), &format!("{named}/"), files)?,
            false if entry.path().is_file() => files.push((entry.path(), named)),
            false => {}
        }
    }
    Ok(())
}

impl TextFiles {
    /// The next texts; `None` at the end.
    fn next(&mut self) -> Option<NewTexts> {
        let mut batch = NewTexts {
            first: self.read,
            texts: Vec::new(),
            bad: BTreeMap::new(),
            kept: vec![Vec::new()],
        };
        let mut bytes = 0;
        while batch.texts.len() < self.batch_rows && bytes < BATCH_BYTES {
            let Some((path, text)) = self.next_text() else {
                break;
            };
            let text = text.unwrap_or_else(|fault| {
                batch.bad.insert(batch.texts.len(), fault);
                None
            });
            bytes += text.as_ref().map_or(0, String::len);
            batch.texts.push(text);
            batch.kept[0].push(Some(path));
        }
        self.read += batch.texts.len() as u64;
        (!batch.texts.is_empty()).then_some(batch)
    }

    fn next_text(&mut self) -> Option<(String, Result<Option<String>, Fault>)> {
        if let Some(text) = self.waiting.pop_front() {
            return Some(text);
        }
        let (file, path) = self.files.pop_front()?;
        match feedline_preprocess::read_unpacked(&file, FILE_BYTES) {
            Ok(bytes) => {
                let texts = text_documents(bytes, self.separator.as_deref());
                let texts = texts.map(|text| match text {
                    Ok(text) => Ok(Some(text)),
                    Err(bad) => Err(Fault::new(bad.reason, bad.detail)),
                });
                self.waiting.extend(texts.map(|text| (path.clone(), text)));
            }
            Err(error) => {
                let fault = Fault::new(UNREADABLE, error.to_string());
                self.waiting.push_back((path.clone(), Err(fault)));
            }
        }
        // A file without a text keeps its place.
        self.waiting.pop_front().or(Some((path, Ok(None))))
    }
}

/// A batch of encoded texts.
struct EncodedTexts {
    /// Number of the first row, from 0.
    first: u64,
    /// Token ids of the texts; bad rows have none.
    documents: Documents,
    /// Ids of each that the vocabulary does not have.
    unknown: Vec<u64>,
    bad: BTreeMap<usize, Fault>,
    kept: Vec<Vec<Option<String>>>,
}

impl EncodedTexts {
    fn of(texts: NewTexts, encoder: &TextEncoder) -> Self {
        let NewTexts {
            first,
            texts,
            mut bad,
            kept,
        } = texts;
        let mut documents = Documents {
            keys: vec![0; texts.len()],
            ..Documents::default()
        };
        let mut unknown = Vec::with_capacity(texts.len());
        for (row, text) in texts.iter().enumerate() {
            let encoded = match bad.contains_key(&row) {
                true => EncodedText::default(),
                false => encode(encoder, text.as_deref()).unwrap_or_else(|fault| {
                    let detail = format!("row {}: {}", first + row as u64, fault.detail);
                    bad.insert(row, Fault { detail, ..fault });
                    EncodedText::default()
                }),
            };
            let length = u32::try_from(encoded.ids.len());
            documents
                .lengths
                .push(length.expect("a document has at most 2^28 characters"));
            documents.ids.extend(encoded.ids);
            unknown.push(encoded.unknown);
        }
        Self {
            first,
            documents,
            unknown,
            bad,
            kept,
        }
    }
}

/// The ids of a text that has a token to predict.
fn encode(encoder: &TextEncoder, text: Option<&str>) -> Result<EncodedText, Fault> {
    let encoded = encoder.encode(text)?;
    match encoded.ids.len() {
        0 | 1 => {
            let detail = "it is a single token, which has none before it to be predicted from";
            Err(Fault::new(TOO_SHORT, detail.to_owned()))
        }
        _ => Ok(encoded),
    }
}

/// Texts to score, and their model.
pub(crate) struct PredictTexts {
    pub(crate) source: TextSource,
    /// Names of the passthrough columns.
    pub(crate) kept: Vec<String>,
    pub(crate) encoder: TextEncoder,
    pub(crate) chosen: ChosenRun,
    pub(crate) context: feedline_trainer::Context,
    pub(crate) output: Output,
    pub(crate) stop: Stop,
}

impl PredictTexts {
    /// Reads all texts and writes a row for each. Blocks.
    pub(crate) fn run(self) -> anyhow::Result<PredictReport> {
        let scorer = TextScorer::of_run(&self.chosen, &self.context)?;
        let mut report = PredictReport {
            transform: self.chosen.transform().hash.to_string(),
            to: self.output.name(),
            ignored: self.source.ignored(),
            warnings: self.source.warnings(),
            run: Some(scorer.run().to_owned()),
            checkpoint: Some(scorer.checkpoint().to_owned()),
            used: Some(self.chosen.used().clone()),
            ..PredictReport::default()
        };
        report.warnings.extend_from_slice(scorer.warnings());
        let mut names = vec![OWN[0].to_owned()];
        names.extend(SCORES.map(str::to_owned));
        names.extend(OWN[1..].iter().map(|name| (*name).to_owned()));
        let names = names_with_own(&self.kept, names);
        let kept = PassthroughColumns {
            types: self.output.types_of(&self.source.kept_types()),
            names: self.kept,
        };
        let (batches, reader) = read(self.source, self.encoder);
        let stop = self.stop;
        let closed = self.output.write(&names, |out| {
            let none = EncodedTexts {
                first: 0,
                documents: Documents::default(),
                unknown: Vec::new(),
                bad: BTreeMap::new(),
                kept: vec![Vec::new(); kept.names.len()],
            };
            out.write(columns(none, &scorer, &kept, &mut report))?;
            write(&batches, out, &stop, |texts| {
                columns(texts, &scorer, &kept, &mut report)
            })?;
            report.ignored = joined(reader)?.ignored();
            Ok(())
        })?;
        report.warnings.extend(closed);
        warn_of_misfits(&mut report);
        Ok(report)
    }
}

/// Writes the scores of all batches.
fn write(
    batches: &Receiver<EncodedTexts>,
    out: &mut RowsOut<Box<dyn Write + Send>>,
    stop: &Stop,
    mut columns: impl FnMut(EncodedTexts) -> Vec<Column>,
) -> anyhow::Result<()> {
    loop {
        stop.check()?;
        match batches.recv_timeout(LOOK) {
            Ok(texts) => out.write(columns(texts))?,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
    }
}

/// Passthrough columns of the output.
struct PassthroughColumns {
    names: Vec<String>,
    types: Vec<PassthroughType>,
}

/// Builds the output columns of some texts.
fn columns(
    texts: EncodedTexts,
    scorer: &TextScorer,
    passthrough: &PassthroughColumns,
    report: &mut PredictReport,
) -> Vec<Column> {
    let EncodedTexts {
        first,
        documents,
        unknown,
        mut bad,
        kept,
    } = texts;
    let rows = documents.lengths.len();
    let scores = scorer.score(&documents).into_iter().enumerate();
    let losses = scores.map(|(row, loss)| {
        let loss = loss.filter(|loss| loss.is_finite());
        usable(row, Some(first + row as u64), loss, &mut bad)
    });
    let losses: Vec<Option<f64>> = losses.collect();
    let known = |cells: Vec<u64>| {
        let cells = cells.into_iter().zip(&losses);
        Column::Whole(cells.map(|(cell, loss)| loss.map(|_| cell)).collect())
    };
    let perplexities = losses.iter().map(|loss| loss.map(f64::exp));
    let perplexities = perplexities.map(|found| found.filter(|found| found.is_finite()));
    let lengths = documents.lengths.iter().map(|length| u64::from(*length));
    let (mut columns, misfits) = typed_columns(kept, &passthrough.types);
    columns.push(Column::Counts((first..).take(rows).collect()));
    columns.extend([known(lengths.collect()), known(unknown)]);
    columns.push(Column::Long(losses.clone()));
    columns.push(Column::Long(perplexities.collect()));
    count(&bad, rows, report);
    let (mut errors, mut details) = (vec![None; rows], vec![None; rows]);
    for (row, fault) in bad {
        errors[row] = Some(fault.reason.to_owned());
        details[row] = Some(fault.detail);
    }
    note_misfits(misfits, &passthrough.names, &mut details, report);
    columns.extend([Column::Text(errors), Column::Text(details)]);
    columns
}

/// Reads and encodes on a thread of its own, which ends when its batches are no longer wanted.
fn read(
    mut source: TextSource,
    encoder: TextEncoder,
) -> (
    Receiver<EncodedTexts>,
    JoinHandle<anyhow::Result<TextSource>>,
) {
    let (sender, batches) = sync_channel(WAITING);
    let work = move || -> anyhow::Result<TextSource> {
        while let Some(texts) = source.next()? {
            if sender.send(EncodedTexts::of(texts, &encoder)).is_err() {
                break;
            }
        }
        Ok(source)
    };
    (batches, thread::spawn(work))
}
