//! `feedline predict` for rows that have an image, a text or both beside their numbers.
//!
//! Numbers and categories are read and transformed like those of tables. Texts are encoded with the
//! vocabulary of the run. A column names image files, which are prepared and decoded like the
//! dataset's. A row with a missing part keeps its place, with the reason.

use std::{
    collections::HashMap,
    fs,
    path::{Component, Path, PathBuf},
    sync::{Arc, mpsc::sync_channel},
    thread,
};

use anyhow::Context as _;
use feedline_loader::{
    image::{ImageConfig, ImageDecoder, SampleRandom},
    raise_limits,
};
use feedline_preprocess::{
    ExpectedInputs, Fault, Features, ImagePreparer, PassthroughType, RowsIn, RowsReading,
    TextEncoder, Transform,
};
use feedline_schemas::{
    config::{DatasetConfig, FileFormat, ImageBackground, PipelineConfig},
    count::counted,
    ids::Name,
    report::{PredictReport, Warning},
    transform::TransformArtefact,
};
use feedline_trainer::{ChosenRun, Predictor, RowParts};

use super::{Answers, Given, Output, WAITING, add_found, joined, open_model, texts};
use crate::{cli, stop::Stop};

/// Reason of a row without an image.
const NO_IMAGE: &str = "no_image";

/// Reason of an image file that cannot be read.
const UNREADABLE: &str = "file_unreadable";

/// Reason of an image that cannot be decoded.
const ROW_REJECTED: &str = "row_rejected";

/// Maximum bytes of an image file, whatever `dataset.image.max_bytes` is.
const FILE_BYTES: u64 = 1 << 30;

/// Bytes of the pixels that are computed together.
const PIXEL_BYTES: usize = 64 << 20;

/// Column with the paths of image files: if images are joined to a table by their paths, the
/// table's column.
pub(crate) fn image_column(options: &cli::Predict, dataset: &DatasetConfig) -> Option<String> {
    let column = dataset.image_column.as_ref()?;
    let by_path = |left: &Option<String>| left.as_deref() == Some(super::images::PATH);
    let mut joins = dataset.join.iter();
    let join = joins.find(|join| by_path(&join.left));
    let joined = join.and_then(|join| join.right.clone().or(join.left.clone()));
    let given = options.image_column.clone();
    given.or(joined).or_else(|| Some(column.clone()))
}

/// Returns true if the source `name` is a table with the format of new rows.
pub(crate) fn is_table(config: &PipelineConfig, name: &Name) -> bool {
    let mut sources = config.source.iter();
    let source = sources.find(|source| source.name == *name);
    source.is_some_and(|source| source.format != FileFormat::Image)
}

/// Image files that rows name by their paths.
#[derive(Debug)]
pub(crate) struct ImageFiles {
    folder: PathBuf,
    /// Files below the folder by their names, once needed; `None` for a name of several files.
    by_name: Option<HashMap<String, Option<PathBuf>>>,
    preparer: ImagePreparer,
}

impl ImageFiles {
    /// Files in `folder`, prepared as the dataset prepares its own, on the `background` that the model was trained with.
    ///
    /// # Errors
    /// A folder that is none, and settings out of range.
    pub(crate) fn new(
        folder: PathBuf,
        dataset: &DatasetConfig,
        background: ImageBackground,
    ) -> anyhow::Result<Self> {
        anyhow::ensure!(
            folder.is_dir(),
            "`{}` is no folder of images; name the folder that the rows' paths are in with `--images`",
            folder.display()
        );
        Ok(Self {
            folder,
            by_name: None,
            preparer: ImagePreparer::new(dataset, background)?,
        })
    }

    /// The file that `path` names: below the folder, or the only one below it of that name.
    fn find(&mut self, path: &str) -> Option<PathBuf> {
        // A path of a row leads nowhere but below the folder.
        let mut parts = Path::new(path).components();
        let is_below = parts.all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        let file = self.folder.join(path);
        if is_below && file.is_file() {
            return Some(file);
        }
        let name = Path::new(path).file_name()?.to_str()?;
        let by_name = self.by_name.get_or_insert_with(|| {
            let mut files = Vec::new();
            if let Err(error) = texts::list_files(&self.folder, "", &mut files) {
                tracing::warn!(folder = %self.folder.display(), %error, "not all of its files can be listed");
            }
            let mut by_name = HashMap::new();
            for (file, path) in files {
                let name = path.rsplit('/').next().unwrap_or_default().to_owned();
                let place = by_name.entry(name).or_insert_with(|| Some(file.clone()));
                if place.as_ref() != Some(&file) {
                    *place = None;
                }
            }
            by_name
        });
        by_name.get(name).cloned().flatten()
    }

    /// Decodes the image that `path` names into `pixels`.
    fn decode(
        &mut self,
        path: Option<&str>,
        decoder: &mut ImageDecoder,
        pixels: &mut [u8],
    ) -> Result<(), Fault> {
        let fault = Fault::new;
        let path = path.filter(|path| !path.is_empty());
        let no_path = || fault(NO_IMAGE, "it has no path of an image file".to_owned());
        let path = path.ok_or_else(no_path)?;
        let folder = self.folder.display().to_string();
        let file = self.find(path).ok_or_else(|| {
            fault(
                UNREADABLE,
                format!("folder `{folder}` has no file `{path}`, or several of that name; `--images` names another folder"),
            )
        })?;
        let unreadable = |error: std::io::Error| fault(UNREADABLE, format!("`{path}`: {error}"));
        let bytes = fs::metadata(&file).map_err(unreadable)?.len();
        if bytes > FILE_BYTES {
            return Err(fault(
                UNREADABLE,
                format!("`{path}` has {bytes} bytes, at most {FILE_BYTES} are read"),
            ));
        }
        let file = fs::read(&file).map_err(unreadable)?;
        let named = |found: Fault| fault(found.reason, format!("`{path}`: {}", found.detail));
        let stored = self.preparer.prepare(file).map_err(named)?;
        // Nothing is drawn for a split that is measured.
        let mut random = SampleRandom::new(0, 0, 0);
        let decoded = decoder.decode(&stored, &mut random, pixels);
        decoded.map_err(|error| fault(ROW_REJECTED, format!("`{path}`: {error}")))
    }
}

/// Rows of several parts to predict, and the model that does.
pub(crate) struct PredictParts {
    /// Path of the new rows; `-` is standard input.
    pub(crate) rows: String,
    pub(crate) reading: RowsReading,
    /// Expectations of the dataset for the rows.
    pub(crate) expected: Option<ExpectedInputs>,
    pub(crate) transform: Transform,
    /// Encoder of texts, if the rows have some.
    pub(crate) encoder: Option<TextEncoder>,
    /// Image files and the column that names them, if the rows have some.
    pub(crate) images: Option<(String, ImageFiles)>,
    pub(crate) chosen: ChosenRun,
    pub(crate) context: feedline_trainer::Context,
    pub(crate) output: Output,
    /// Adds a column of each row's anomalies.
    pub(crate) flags: bool,
    pub(crate) stop: Stop,
}

impl PredictParts {
    /// Reads all rows and writes as many. Blocks.
    pub(crate) fn run(self) -> anyhow::Result<PredictReport> {
        let source = super::row_source(&self.rows)?;
        let artefact = self.transform.artefact();
        let mut report = PredictReport {
            transform: artefact.hash.to_string(),
            to: self.output.name(),
            ..PredictReport::default()
        };
        let features = self.transform.features();
        let predictor = open_model(&self.chosen, &self.context, features, &mut report)?;
        let images = predictor.images();
        let decoder = images.map(|config| ImageDecoder::new(decoding_of(artefact, config)));
        let decoder = decoder.transpose()?;
        let reads_texts = predictor.text_length().is_some();
        let run = predictor.run();
        check_part(run, "images", decoder.is_some(), self.images.is_some())?;
        check_part(run, "texts", reads_texts, self.encoder.is_some())?;
        let mut reading = self.reading;
        let kept = std::mem::take(&mut reading.keep);
        let columns = PartColumns {
            text: self.encoder.filter(|_| reads_texts),
            image: self.images.zip(decoder),
            truncated: TruncatedTexts::default(),
        };
        reading.keep = columns.names().into_iter().chain(kept.clone()).collect();
        if let Some((_, decoder)) = &columns.image {
            let fits = (PIXEL_BYTES / decoder.config().bytes().max(1)).max(1);
            reading.batch_rows = reading.batch_rows.min(fits);
        }
        let rows = RowsIn::open_parts(source, &reading, artefact)?.expecting(self.expected);
        let kept_types = columns.kept_types(rows.passthrough_types(), &self.rows)?;
        report.ignored = rows.ignored();
        report.warnings.extend(rows.warnings());
        let transform = Arc::new(self.transform);
        let answers = Answers {
            predictor: None,
            transform: Arc::clone(&transform),
            names: Vec::new(),
            kept,
            kept_types: self.output.types_of(&kept_types),
            flags: self.flags,
            numbers: Vec::new(),
            predicted: Some(predictor.predict_parts(0, &RowParts::default())),
        };
        let (sender, batches) = sync_channel(WAITING);
        let work = move || -> anyhow::Result<(RowsIn, TruncatedTexts)> {
            let (mut rows, mut columns) = (rows, columns);
            while let Some(batch) = rows.next_rows()? {
                let features = batch.features(&transform)?;
                if sender.send(columns.predict(features, &predictor)).is_err() {
                    break;
                }
            }
            Ok((rows, columns.truncated))
        };
        let reader = thread::spawn(work);
        let stop = self.stop;
        let mut ended = None;
        let closed = self.output.write(&answers.names(), |out| {
            answers.write(&batches, out, &stop, &mut report)?;
            ended = Some(joined(reader)?);
            Ok(())
        })?;
        report.warnings.extend(closed);
        if let Some((rows, truncated)) = ended {
            report.warnings.extend(truncated.warning());
            report.ignored = rows.ignored();
            add_found(&rows, &mut report);
            if report.rows > 0 {
                report.absent = rows.absent();
            }
            super::add_training_caps(&answers.transform, &mut report);
        }
        Ok(report)
    }
}

/// The settings `config` with the background and the limits that the loader has for a dataset of this transform.
fn decoding_of(artefact: &TransformArtefact, config: &ImageConfig) -> ImageConfig {
    let built = artefact.images.as_ref().map(|images| &images.prepared);
    ImageConfig {
        background: Some(artefact.image_background()),
        limits: built.map_or(config.limits, |built| raise_limits(config.limits, built)),
        ..config.clone()
    }
}

/// Checks that the dataset has the part `part` of rows if the run `run` reads it.
fn check_part(run: &str, part: &str, reads: bool, has: bool) -> anyhow::Result<()> {
    anyhow::ensure!(
        has || !reads,
        "run `{run}` reads {part}, and the dataset has none now; choose another run with `--run`"
    );
    Ok(())
}

/// Columns of the parts beside the numbers, texts first.
struct PartColumns {
    text: Option<TextEncoder>,
    image: Option<((String, ImageFiles), ImageDecoder)>,
    /// Texts so far that are longer than the model reads.
    truncated: TruncatedTexts,
}

/// Texts that are longer than the model reads.
#[derive(Clone, Copy, Debug, Default)]
struct TruncatedTexts {
    rows: u64,
    /// Tokens at their ends, which the model does not read.
    tokens: u64,
    /// Tokens that it reads of a text.
    length: usize,
}

impl TruncatedTexts {
    /// Returns the number of tokens that the model reads of a text of `tokens`, and counts the others.
    fn truncate(&mut self, tokens: usize, length: usize) -> usize {
        let unread = tokens.saturating_sub(length);
        self.rows += u64::from(unread > 0);
        self.tokens += unread as u64;
        self.length = length;
        tokens - unread
    }

    fn warning(self) -> Option<Warning> {
        if self.rows == 0 {
            return None;
        }
        let message = format!(
            "{} longer than the {} that the model reads: the last {} in all are not read, as in the dataset; `--flags` marks the \
             rows that have a prediction",
            counted(self.rows, "text"),
            counted(self.length as u64, "token"),
            self.tokens
        );
        tracing::warn!("{message}");
        Some(Warning::new("truncated_texts", message).with_key("dataset.tokens.window"))
    }
}

impl PartColumns {
    fn names(&self) -> Vec<String> {
        let text = self.text.iter().map(|text| text.column().to_owned());
        let image = self.image.iter().map(|((column, _), _)| column.clone());
        text.chain(image).collect()
    }

    /// Types of the passthrough columns of the file `rows`, of the `types` of all columns beside the
    /// numbers: those of the parts come first.
    ///
    /// # Errors
    /// A column of images that has no paths.
    fn kept_types(
        &self,
        types: &[PassthroughType],
        rows: &str,
    ) -> anyhow::Result<Vec<PassthroughType>> {
        let parts = self.names().len();
        if let Some(((column, _), _)) = &self.image {
            let own = types.get(parts - 1).copied().unwrap_or_default();
            check_has_paths(column, own, rows)?;
        }
        Ok(types.iter().skip(parts).copied().collect())
    }

    /// The rows with their predictions.
    fn predict(&mut self, features: Features, predictor: &Predictor) -> Given {
        let Features {
            first,
            rows,
            x,
            mut bad,
            mut kept,
            mut unusual,
        } = features;
        let mut parts = RowParts {
            x,
            ..RowParts::default()
        };
        let mut reject = |row: usize, fault: Fault| {
            let detail = format!("row {}: {}", first + row as u64, fault.detail);
            bad.entry(row).or_insert(Fault { detail, ..fault });
        };
        let mut truncated = Vec::new();
        if let (Some(encoder), Some(length)) = (&self.text, predictor.text_length()) {
            parts.tokens = vec![0; rows * length];
            let each = kept.remove(0).into_iter().enumerate();
            for ((row, text), ids) in each.zip(parts.tokens.chunks_exact_mut(length)) {
                let encoded = encoder.encode(text.as_deref()).unwrap_or_else(|fault| {
                    reject(row, fault);
                    feedline_preprocess::EncodedText::default()
                });
                // As in the dataset, longer texts are truncated.
                let used = self.truncated.truncate(encoded.ids.len(), length);
                if used < encoded.ids.len() {
                    truncated.push(row);
                }
                ids[..used].copy_from_slice(&encoded.ids[..used]);
                let used = u32::try_from(used).expect("a row has at most 65,536 ids");
                parts.lengths.push(used);
            }
        }
        if let Some(((_, files), decoder)) = &mut self.image {
            let bytes = decoder.config().bytes();
            parts.pixels = vec![0; rows * bytes];
            let each = kept.remove(0).into_iter().enumerate();
            for ((row, path), pixels) in each.zip(parts.pixels.chunks_exact_mut(bytes)) {
                if let Err(fault) = files.decode(path.as_deref(), decoder, pixels) {
                    reject(row, fault);
                }
            }
        }
        truncated.retain(|row| !bad.contains_key(row));
        if let Some(text) = self.text.as_ref().filter(|_| !truncated.is_empty()) {
            unusual
                .truncated
                .insert(text.column().to_owned(), truncated);
        }
        let predicted = predictor.predict_parts(rows, &parts);
        Given {
            first,
            row_numbers: Vec::new(),
            rows,
            x: Vec::new(),
            bad,
            kept,
            numbers: Vec::new(),
            predicted: Some(predicted),
            unusual,
        }
    }
}

/// Checks that the column of images of the file `rows` may have paths.
///
/// # Errors
/// A column with the images themselves.
fn check_has_paths(column: &str, own: PassthroughType, rows: &str) -> anyhow::Result<()> {
    anyhow::ensure!(
        !own.is_nested(),
        "column `{column}` of `{rows}` has bytes or objects, and `predict` reads the images of rows from files by their paths; \
         write each image to a file in a folder (`--images`), and give a column with the paths there (`--image-column`)"
    );
    Ok(())
}

/// Folder of the images: the given one, else that of the file of rows.
pub(crate) fn image_folder(options: &cli::Predict) -> anyhow::Result<PathBuf> {
    if let Some(folder) = &options.images {
        return Ok(folder.clone());
    }
    let rows = options.rows.as_deref().filter(|rows| *rows != "-");
    let rows = rows.context(
        "the rows name image files by their paths; say which folder the paths are in with `--images`",
    )?;
    let above = Path::new(rows).parent();
    let above = above.filter(|above| !above.as_os_str().is_empty());
    Ok(above.unwrap_or(Path::new(".")).to_owned())
}

#[cfg(test)]
mod tests {
    use feedline_loader::image::{Crop, ImageLimits};
    use feedline_schemas::{
        config::StoredImageConfig, ids::Hash128, record::ColumnType, transform::FittedImages,
        units::ByteSize,
    };

    use super::*;

    fn artefact(images: Option<FittedImages>) -> TransformArtefact {
        TransformArtefact {
            format: String::new(),
            version: 0,
            hash: Hash128::new(0),
            fitted_rows: 1,
            null_values: Vec::new(),
            missing_values: Vec::new(),
            inputs: Vec::new(),
            steps: Vec::new(),
            features: Vec::new(),
            target: None,
            other_targets: Vec::new(),
            characters: None,
            images,
            tokens: None,
            signs: None,
        }
    }

    #[test]
    fn new_images_are_decoded_within_the_limits_of_the_dataset() {
        let config = ImageConfig::new(8, 8, Crop::Whole);
        let plain = decoding_of(&artefact(None), &config);
        assert_eq!(plain.limits, ImageLimits::DEFAULT);
        let images = FittedImages {
            column: "photo".into(),
            prepared: StoredImageConfig {
                background: Some(ImageBackground::WHITE),
                max_bytes: ByteSize::mib(100),
                max_pixels: 200_000_000,
                ..StoredImageConfig::default()
            },
            pixels: 0,
            mean: [0.0; 3],
            deviation: [0.0; 3],
        };
        let raised = decoding_of(&artefact(Some(images)), &config);
        let limits = ImageLimits {
            encoded_bytes: 100 << 20,
            pixels: 200_000_000,
            ..ImageLimits::DEFAULT
        };
        let expected = ImageConfig {
            background: Some(ImageBackground::WHITE),
            limits,
            ..config
        };
        assert_eq!(raised, expected);
    }

    #[test]
    fn texts_longer_than_the_model_reads_are_counted() {
        let mut texts = TruncatedTexts::default();
        assert_eq!([3, 8].map(|tokens| texts.truncate(tokens, 8)), [3, 8]);
        assert_eq!(texts.warning(), None);
        assert_eq!([9, 20].map(|tokens| texts.truncate(tokens, 8)), [8, 8]);
        let warning = texts.warning().unwrap();
        let expected = "2 texts longer than the 8 tokens that the model reads: the last 13 in all are not read, as in the dataset; \
                        `--flags` marks the rows that have a prediction";
        assert!(warning.message.starts_with(expected), "{warning:?}");
        assert_eq!(warning.key.as_deref(), Some("dataset.tokens.window"));
    }

    #[test]
    fn a_column_with_the_images_themselves_is_refused_with_what_to_do() {
        let check = |declared| {
            let own = PassthroughType::of(declared);
            check_has_paths("photo", own, "new.parquet").map_err(|error| error.to_string())
        };
        assert_eq!(check(ColumnType::Utf8), Ok(()));
        for declared in [ColumnType::Binary, ColumnType::Json] {
            let error = check(declared).unwrap_err();
            for part in ["column `photo` of `new.parquet`", "`--images`"] {
                assert!(error.contains(part), "{error}");
            }
        }
    }
}
