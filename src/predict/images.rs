//! `feedline predict` for images.
//!
//! The files land in a folder of their own, and a dataset is built from them there like the
//! pipeline's: with the same decoder, limits, resizing and format, without targets, deduplication
//! and splits. The model then reads it like an evaluation split, so pixels are processed as in the
//! pipeline's own dataset.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::Context as _;
use feedline_preprocess::{Fault, LandedPlace, LandedRows, RejectedRow, UnusualCells};
use feedline_schemas::{
    config::{
        ContractConfig, DatasetConfig, DedupMode, FileFormat, Fraction, ImageBackground,
        ImageDuplicates, PipelineConfig, ShardConfig, SourceConfig, SplitConfig, StoredImageConfig,
    },
    ids::Origin,
    report::PredictReport,
};
use feedline_storage::{Store, StoreOptions};
use feedline_trainer::{ChosenRun, Predicted, PredictedImages};

use super::{Answers, Given, Output, is_own, series::Landing};

/// Column of the landed files' paths.
pub(crate) const PATH: &str = "path";

/// Column of the landed files.
const IMAGE: &str = "image";

/// Extensions of files with one image or an archive of images, whatever the pipeline's source
/// reads.
const IMAGE_ENDINGS: [&str; 13] = [
    "jpg", "jpeg", "png", "webp", "gif", "bmp", "tif", "tiff", "pgm", "ppm", "zip", "tar", "tgz",
];

/// Accepted fraction of rejected files: any of fewer than a billion, unless all of them are.
const ALL_BUT_ONE: f64 = 1.0 - 1e-9;

/// Reason of a file that the build rejects.
const ROW_REJECTED: &str = "row_rejected";

/// Reason of a file that the build accepted and the loader cannot decode.
const UNREADABLE: &str = "image_unreadable";

/// Pipeline that lands `place`, a folder or a file, and builds a dataset from it, both below
/// `folder`. Transparent pixels are blended onto `background`.
pub(crate) fn landing(
    place: &str,
    format: Option<FileFormat>,
    config: &PipelineConfig,
    background: ImageBackground,
    folder: &Path,
) -> anyhow::Result<Landing> {
    anyhow::ensure!(
        place != "-" && !place.contains("://"),
        "images are read from a folder, an image file or an archive on this machine, not from `{place}`"
    );
    let path = fs::canonicalize(place).with_context(|| format!("cannot read `{place}`"))?;
    let url = path
        .to_str()
        .with_context(|| format!("`{place}` is no UTF-8 path"))?;
    anyhow::ensure!(
        !url.contains(['*', '?', '[', ']', '{', '}']),
        "`{url}` has a character of patterns (`*?[]{{}}`); rename it, or give a folder above it"
    );
    let dataset = config.dataset.as_ref();
    let mut own = config.source.iter();
    let own = own.find(|source| dataset.is_none_or(|dataset| is_own(dataset, &source.name)));
    let ending = path.extension().unwrap_or_default().to_string_lossy();
    let ending = ending.to_lowercase();
    let is_image = path.is_dir() || IMAGE_ENDINGS.contains(&ending.as_str());
    let format = format.or(match (is_image, own) {
        (true, _) | (_, None) => Some(FileFormat::Image),
        (false, Some(own)) => Some(own.format),
    });
    let plain = serde_json::json!({ "name": "images", "type": "files", "url": url });
    let plain: SourceConfig = serde_json::from_value(plain).context("a plain source is one")?;
    let source = SourceConfig {
        format: format.unwrap_or_default(),
        archive: own.map_or_else(|| plain.archive.clone(), |own| own.archive.clone()),
        contract: ContractConfig {
            max_reject_fraction: Fraction::literal(1.0),
            ..ContractConfig::default()
        },
        ..plain
    };
    let root = folder.join("landed-images");
    let root = root
        .to_str()
        .context("the scratch folder is no UTF-8 path")?;
    let mut pipeline = config.pipeline.clone();
    pipeline.root = Some(root.to_owned());
    Ok(Landing {
        config: PipelineConfig {
            pipeline,
            source: vec![source],
            dataset: dataset.map(|dataset| without_target(dataset, format, background)),
            train: None,
            tune: None,
            ingest: None,
        },
        root: Store::open(root, &StoreOptions::default())?,
        file: place.to_owned(),
    })
}

/// Paths of the landed images by their places. Those of a table are in its column `path`, or in the
/// struct of `bytes` and `path` that has the images.
///
/// # Errors
/// As [`feedline_preprocess::landed_texts`].
pub(crate) async fn landed_paths(
    landing: Landing,
) -> Result<BTreeMap<LandedPlace, Option<String>>, feedline_preprocess::Error> {
    let dataset = landing.config.dataset.as_ref();
    let content = dataset.and_then(|dataset| dataset.content.clone());
    let landed = landing.landed();
    let LandedRows { root, source, .. } = &landed;
    let mut paths = feedline_preprocess::landed_texts(root, source, PATH).await?;
    let is_table = source.format != FileFormat::Image;
    if is_table && paths.values().all(Option::is_none) {
        let column = path_beside(content.as_deref().unwrap_or(IMAGE));
        paths = feedline_preprocess::landed_texts(root, source, &column).await?;
    }
    Ok(paths)
}

/// Column of the paths beside the images in the column `content`, which may be of objects.
fn path_beside(content: &str) -> String {
    let object = content.strip_suffix(".bytes").unwrap_or(content);
    format!("{object}.{PATH}")
}

/// The dataset as it treats images, of all of them in their order, without targets, on the `background` that the model was
/// trained with.
fn without_target(
    dataset: &DatasetConfig,
    format: Option<FileFormat>,
    background: ImageBackground,
) -> DatasetConfig {
    // Image files land in a column with a fixed name, whatever the column of the pipeline's source
    // is.
    let column = |own: &Option<String>| match format {
        Some(FileFormat::Image) => own.as_ref().map(|_| IMAGE.to_owned()),
        _ => own.clone(),
    };
    // Without `[dataset.image]` files are stored undecoded, and the loader gives a neighbour in the place of one that it
    // cannot decode.
    let image = StoredImageConfig {
        background: Some(background),
        duplicates: ImageDuplicates::Bytes,
        embeddings: None,
        embedding_cosine: None,
        boxes: None,
        boxes_on: None,
        ..dataset.image.clone().unwrap_or_default()
    };
    DatasetConfig {
        kind: dataset.kind,
        content: column(&dataset.content),
        image_column: column(&dataset.image_column),
        image: Some(image),
        dedup: DedupMode::None,
        split: SplitConfig {
            train: 1.0,
            validation: 0.0,
            test: 0.0,
            ..SplitConfig::default()
        },
        shards: ShardConfig {
            shuffle: false,
            ..dataset.shards.clone()
        },
        max_reject_fraction: Some(Fraction::literal(ALL_BUT_ONE)),
        ..DatasetConfig::default()
    }
}

/// Landed files, and those that the build rejected.
pub(crate) struct LandedImages {
    /// Paths of the files, by landed place.
    pub(crate) paths: BTreeMap<LandedPlace, Option<String>>,
    pub(crate) rejected: BTreeMap<LandedPlace, RejectedRow>,
    /// The dataset of the others; `None` if all were rejected.
    pub(crate) dataset: Option<Store>,
}

impl LandedImages {
    /// Predicts all of them, and writes the predictions in landing order. Blocks.
    pub(crate) fn answer(
        mut self,
        answers: &Answers,
        (chosen, context): &(ChosenRun, feedline_trainer::Context),
        output: Output,
        report: &mut PredictReport,
    ) -> anyhow::Result<()> {
        let dataset = self.dataset.clone();
        let closed = output.write(&answers.names(), |out| {
            out.write(answers.columns(answers.no_rows(), report))?;
            let mut written = Ok(());
            let mut each = |images: PredictedImages| {
                let given = self.given(&images, report.rows);
                written = out.write(answers.columns(given, report));
                written.is_ok()
            };
            let model = match dataset {
                Some(dataset) => {
                    let model =
                        feedline_trainer::predict_images(chosen, &dataset, context, &mut each);
                    written?;
                    Some(model?)
                }
                None => None,
            };
            let rest = self.rest(answers, report.rows);
            out.write(answers.columns(rest, report))?;
            report.run = Some(chosen.used().name.clone());
            report.used = Some(chosen.used().clone());
            if let Some(model) = model {
                report.checkpoint = Some(model.checkpoint);
                report.warnings.extend(model.warnings);
            }
            Ok(())
        })?;
        report.warnings.extend(closed);
        Ok(())
    }

    /// The rows up to the last of `images`, rejected ones among them.
    fn given(&mut self, images: &PredictedImages, first: u64) -> Given {
        let mut rows = Rows::new(first, &images.predicted);
        for (i, origin) in images.origins.iter().enumerate() {
            let place = place_of(*origin);
            for (path, row) in self.take_bad_before(Some(place)) {
                rows.add_rejected(path, row);
            }
            let path = self.paths.remove(&place).flatten();
            rows.add(path, &images.predicted, i);
        }
        rows.given
    }

    /// Returns the rows without a prediction after all others.
    fn rest(&mut self, answers: &Answers, first: u64) -> Given {
        let none = answers.predicted.clone();
        let mut rows = Rows::new(first, &none.unwrap_or(Predicted::Numbers(Vec::new())));
        for (path, row) in self.take_bad_before(None) {
            rows.add_rejected(path, row);
        }
        rows.given
    }

    /// Takes the rows before a place, or all, which have no prediction: those that the build rejected, and those that the
    /// model was not given.
    fn take_bad_before(
        &mut self,
        place: Option<LandedPlace>,
    ) -> Vec<(Option<String>, RejectedRow)> {
        let mut rejected = take_before(&mut self.rejected, place);
        let mut paths = take_before(&mut self.paths, place);
        let places: BTreeSet<_> = rejected.keys().chain(paths.keys()).copied().collect();
        let places = places.into_iter();
        let found = places.map(|place| {
            let row = rejected.remove(&place);
            let row = row.unwrap_or_else(|| unreadable(place));
            (paths.remove(&place).flatten(), row)
        });
        found.collect()
    }
}

/// Takes the entries before a place, or all.
fn take_before<V>(
    from: &mut BTreeMap<LandedPlace, V>,
    place: Option<LandedPlace>,
) -> BTreeMap<LandedPlace, V> {
    let later = place.map(|place| from.split_off(&place));
    std::mem::replace(from, later.unwrap_or_default())
}

fn unreadable((sequence, row): LandedPlace) -> RejectedRow {
    RejectedRow {
        sequence,
        row,
        reason: UNREADABLE.to_owned(),
        column: String::new(),
        value: "the loader cannot decode it; the log says why".to_owned(),
    }
}

const fn place_of(origin: Origin) -> LandedPlace {
    (origin.sequence().get(), origin.row())
}

/// Rows that are put together for writing.
struct Rows {
    given: Given,
    /// Probabilities of a row.
    classes: usize,
}

impl Rows {
    fn new(first: u64, like: &Predicted) -> Self {
        let (empty, classes) = match like {
            Predicted::Numbers(_) => (Predicted::Numbers(Vec::new()), 0),
            Predicted::Differences(_) => (Predicted::Differences(Vec::new()), 0),
            Predicted::Vectors { targets, .. } => {
                let none = Predicted::Vectors {
                    numbers: Vec::new(),
                    targets: targets.clone(),
                };
                (none, 0)
            }
            Predicted::Classes { ids, probabilities } => {
                let none = Predicted::Classes {
                    ids: Vec::new(),
                    probabilities: Vec::new(),
                };
                (none, probabilities.len() / ids.len().max(1))
            }
        };
        Self {
            given: Given {
                first,
                row_numbers: Vec::new(),
                rows: 0,
                x: Vec::new(),
                bad: BTreeMap::new(),
                kept: vec![Vec::new()],
                numbers: Vec::new(),
                predicted: Some(empty),
                unusual: UnusualCells::default(),
            },
            classes,
        }
    }

    fn add(&mut self, path: Option<String>, predicted: &Predicted, row: usize) {
        let classes = self.classes;
        match (&mut self.given.predicted, predicted) {
            (Some(Predicted::Numbers(all)), Predicted::Numbers(own))
            | (Some(Predicted::Differences(all)), Predicted::Differences(own)) => {
                all.push(own.get(row).copied().unwrap_or(f64::NAN));
            }
            (
                Some(Predicted::Vectors { numbers, targets }),
                Predicted::Vectors { numbers: own, .. },
            ) => {
                let width = targets.len();
                numbers.extend_from_slice(&own[row * width..(row + 1) * width]);
            }
            (
                Some(Predicted::Classes { ids, probabilities }),
                Predicted::Classes {
                    ids: own_ids,
                    probabilities: own,
                },
            ) => {
                ids.push(own_ids.get(row).copied().flatten());
                probabilities.extend_from_slice(&own[row * classes..(row + 1) * classes]);
            }
            _ => {}
        }
        self.given.kept[0].push(path);
        self.given.rows += 1;
    }

    fn add_rejected(&mut self, path: Option<String>, row: RejectedRow) {
        match &mut self.given.predicted {
            Some(Predicted::Numbers(all) | Predicted::Differences(all)) => all.push(f64::NAN),
            Some(Predicted::Vectors { numbers, targets }) => {
                numbers.extend(std::iter::repeat_n(f64::NAN, targets.len()));
            }
            Some(Predicted::Classes { ids, probabilities }) => {
                ids.push(None);
                probabilities.extend(std::iter::repeat_n(f64::NAN, self.classes));
            }
            None => {}
        }
        let of = match row.column.is_empty() {
            true => String::new(),
            false => format!("column `{}`: ", row.column),
        };
        let file = match &path {
            Some(path) => format!("`{path}`"),
            None => format!("row {}", self.given.first + self.given.rows as u64),
        };
        let detail = format!("{file}: `{}`: {of}{}", row.reason, row.value);
        let fault = Fault::new(ROW_REJECTED, detail);
        self.given.bad.insert(self.given.rows, fault);
        self.given.kept[0].push(path);
        self.given.rows += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_that_the_model_was_not_given_keeps_its_place_and_is_named() {
        let path = |row: u64| ((0, row), Some(format!("{row}.jpg")));
        let mut landed = LandedImages {
            paths: (0..4).map(path).collect(),
            rejected: BTreeMap::from([((0, 3), unreadable((0, 3)))]),
            dataset: None,
        };
        let origin = |row| Origin::from_packed(row);
        let images = PredictedImages {
            origins: vec![origin(0), origin(2)],
            predicted: Predicted::Numbers(vec![0.25, 0.5]),
        };
        let given = landed.given(&images, 7);
        let paths: Vec<_> = given.kept[0].iter().flatten().collect();
        assert_eq!(paths, ["0.jpg", "1.jpg", "2.jpg"]);
        let Some(Predicted::Numbers(numbers)) = &given.predicted else {
            panic!("{:?}", given.predicted)
        };
        assert!(numbers[1].is_nan());
        assert_eq!((numbers[0], numbers[2]), (0.25, 0.5));
        let faults: Vec<_> = given
            .bad
            .iter()
            .map(|(at, f)| (*at, f.detail.as_str()))
            .collect();
        assert!(
            matches!(faults[..], [(1, detail)] if detail.starts_with("`1.jpg`: `image_unreadable`")),
            "{faults:?}"
        );
        let rest = landed.take_bad_before(None);
        assert!(
            matches!(&rest[..], [(Some(path), _)] if path == "3.jpg"),
            "{rest:?}"
        );
    }

    #[test]
    fn images_are_decoded_on_the_background_that_the_model_was_trained_with() {
        let of = |image: Option<StoredImageConfig>, background: ImageBackground| {
            let dataset = DatasetConfig {
                image,
                ..DatasetConfig::default()
            };
            let built = without_target(&dataset, None, background);
            built.image.and_then(|image| image.background)
        };
        let decoded = || Some(StoredImageConfig::default());
        let black = ImageBackground::BLACK;
        assert_eq!(of(decoded(), black), Some(black));
        // Neither a program that dropped alpha nor a dataset of undecoded files has a colour.
        let none = ImageBackground::NONE;
        assert_eq!(of(decoded(), none), Some(none));
        assert_eq!(of(None, none), Some(none));
    }

    #[test]
    fn the_path_of_an_image_in_an_object_is_beside_its_bytes() {
        for content in ["photo", "photo.bytes"] {
            assert_eq!(path_beside(content), "photo.path");
        }
        assert_eq!(path_beside("a.b"), "a.b.path");
    }
}
