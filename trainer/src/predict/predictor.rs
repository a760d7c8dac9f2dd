//! Predictions of a trained model for new rows.
//!
//! Rows are computed in parts of [`PART_ROWS`], the last one filled up with zeros, whatever their number: the library chooses
//! how it multiplies by the shapes, so one shape for all gives a row the same bits alone, among a million, and on any
//! number of threads. Images, and rows with parts besides numbers, are computed in parts of [`PART_IMAGES`] on the processor.

use std::{ops::Range, sync::atomic::Ordering};

use feedline_loader::image::ImageConfig;
use feedline_schemas::{
    config::TrainConfig,
    ids::{Hash128, Origin},
    manifest::Split,
    report::Warning,
};
use feedline_storage::Store;

use crate::{
    Context, Group,
    checkpoint::run_folder::runtime,
    data::{
        images,
        loaders::{Loaders, Purpose},
        samples::{Data, ModelInputs, RankBatch, Samples, Targets},
        task::Task,
    },
    error::Error,
    evaluation::metrics::largest,
    model::{
        engine::ModelEngine,
        interface::{Build, Shape},
    },
    plan::RunPlan,
    predict::choose_model::{self, Choice, ChosenRun, KeptModel, Use},
    session::{MeasuredBatch, OwnRows},
};

/// Rows that are computed at a time.
const PART_ROWS: usize = 128;

/// Images that are computed at a time on the processor. An image alone costs as much as these.
const PART_IMAGES: usize = 8;

/// A trained model that predicts rows.
///
/// ```no_run
/// use feedline_schemas::config::TrainConfig;
/// use feedline_trainer::{Context, Error, Predicted, Predictor};
///
/// # fn example(config: &TrainConfig, context: &Context, x: &[f32]) -> Result<(), Error> {
/// let predictor = Predictor::open(config, None, context)?;
/// // `x` has the features of some rows, as the dataset's transform makes them.
/// assert_eq!(x.len() % predictor.features(), 0);
/// match predictor.predict(x) {
///     Predicted::Numbers(numbers) => println!("{numbers:?}"),
///     Predicted::Classes { ids, .. } => println!("classes {ids:?}"),
///     other => println!("{other:?}"),
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Predictor {
    engine: ModelEngine,
    bucket: Vec<f32>,
    task: Task,
    shape: Shape,
    /// Treatment of images; of no meaning where there are none.
    images: ImageConfig,
    run: String,
    checkpoint: String,
    fingerprint: Hash128,
    /// Warnings of the files that the weights are from.
    warnings: Vec<Warning>,
}

/// Parts of some rows; one that the model does not read is empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RowParts {
    /// Numbers, `[rows, features]`, row-major.
    pub x: Vec<f32>,
    /// RGB pixels, `[rows, height, width, 3]`.
    pub pixels: Vec<u8>,
    /// Token ids, `[rows, length]`, padded with 0.
    pub tokens: Vec<u32>,
    /// Ids of each row that are its text's, `[rows]`.
    pub lengths: Vec<u32>,
}

/// Predictions of a model for some rows, in their order.
#[derive(Clone, Debug, PartialEq)]
pub enum Predicted {
    /// A number for each, in the target's units. NaN or infinite where the model overflows.
    Numbers(Vec<f64>),
    /// Several numbers for each.
    Vectors {
        /// `[rows, targets]`, each in the units of its target. NaN or infinite where the model overflows.
        numbers: Vec<f64>,
        /// Names of the targets.
        targets: Vec<String>,
    },
    /// Classes.
    Classes {
        /// The most probable class of each, the first of several, by id; `None` where the model gives no number.
        ids: Vec<Option<usize>>,
        /// Probabilities, `[rows, classes]`; each row adds up to 1 but for rounding.
        probabilities: Vec<f64>,
    },
    /// Of a model that gives rows back, the mean squared difference of the features, as stored, in each: how unlike the rows it
    /// was trained on.
    Differences(Vec<f64>),
}

/// Model that has predicted images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageModel {
    /// Name of the run.
    pub run: String,
    /// URL of the weights.
    pub checkpoint: String,
    /// Warnings of damaged or missing files of the weights.
    pub warnings: Vec<Warning>,
}

/// Predictions of some images.
#[derive(Clone, Debug, PartialEq)]
pub struct PredictedImages {
    /// Origins of the images. One that cannot be decoded is not among them.
    pub origins: Vec<Origin>,
    /// Predictions of the model.
    pub predicted: Predicted,
}

/// Predicts all images of the training split of the dataset `images` by the best weights of a run, and gives `each` the
/// predictions in the order in which `images` stores them. The images are read as those of a split that is measured: without
/// augmentation, with the normalisation of the training. Blocks.
///
/// # Errors
/// [`Error::NoCheckpoint`] for a run without weights; [`Error::Config`] for a model that does not read images;
/// [`Error::Interrupted`] when the stop flag was set or `each` returned `false`; what datasets and storage say.
pub fn predict_images(
    chosen: &ChosenRun,
    images: &Store,
    context: &Context,
    each: &mut dyn FnMut(PredictedImages) -> bool,
) -> Result<ImageModel, Error> {
    let context = &Context {
        group: Group::alone(),
        ..context.clone()
    };
    // It outlives the loaders.
    let runtime = runtime()?;
    let _runtime = runtime.enter();
    let KeptModel {
        engine,
        bucket,
        plan,
        checkpoint,
        warnings,
        ..
    } = KeptModel::open(chosen, None, None, context, &runtime)?;
    let Shape::Images { .. } = plan.shape() else {
        let reason = "it does not read images alone, which the dataset to predict consists of";
        return Err(crate::error::config("model.type", reason));
    };
    let mut config = plan.settings.config().clone();
    // One that cannot be decoded has no prediction, however many there are.
    config.loader.max_bad_fraction = 1.0;
    let loaders = runtime.block_on(Loaders::open(
        images,
        &config,
        (Purpose::Measuring, &[Split::Train]),
        &context.group,
        &context.clock,
    ))?;
    for batch in loaders.sequential(Split::Train)? {
        let batch = batch?;
        let samples = batch.samples();
        let own = OwnRows::of(&batch);
        let outputs = outputs_of_images(&engine, &bucket, samples);
        let outputs = own.select(&outputs);
        let origins = own.select(RankBatch::origins(&batch));
        let rows = origins.len();
        let origins = origins.iter();
        let goes_on = each(PredictedImages {
            origins: origins.map(|origin| Origin::from_packed(*origin)).collect(),
            predicted: Predicted::of(&plan.task, &outputs, rows, &[]),
        });
        if !goes_on || context.stop.load(Ordering::Relaxed) {
            return Err(Error::Interrupted { checkpoint });
        }
    }
    Ok(ImageModel {
        run: chosen.used().name.clone(),
        checkpoint,
        warnings,
    })
}

/// Outputs for images, or for rows with parts besides numbers: on the processor in parts of [`PART_IMAGES`], the last one
/// filled up with rows that it has. A device takes as many at a time as are measured together.
fn outputs_of_images(engine: &ModelEngine, bucket: &[f32], samples: Samples<'_>) -> Vec<f32> {
    if engine.kind().is_gpu() {
        return engine.all_outputs(bucket, samples);
    }
    let rows = samples.rows();
    let full = rows - rows % PART_IMAGES;
    let mut outputs = Vec::new();
    let parts: Vec<_> = (0..full)
        .step_by(PART_IMAGES)
        .map(|first| first..first + PART_IMAGES)
        .collect();
    let mut compute = |samples: Samples<'_>, parts: &[Range<usize>]| {
        engine.outputs(
            bucket,
            samples,
            parts,
            |_, part| part,
            |part: Vec<f32>| outputs.extend(part),
        );
    };
    compute(samples, &parts);
    if full < rows {
        let last = samples.slice(full..rows).inputs;
        let filled = RowParts::repeat(&last, rows - full);
        let last = Samples::new(PART_IMAGES, filled.as_inputs(last), Targets::None);
        compute(last, std::slice::from_ref(&(0..PART_IMAGES)));
    }
    let width = outputs.len() / rows.next_multiple_of(PART_IMAGES).max(1);
    outputs.truncate(width * rows);
    outputs
}

impl RowParts {
    /// [`PART_IMAGES`] rows: `rows` of them, repeated.
    fn repeat(inputs: &ModelInputs<'_>, rows: usize) -> Self {
        Self {
            x: repeat_rows(inputs.x, rows),
            pixels: repeat_rows(inputs.pixels, rows),
            tokens: repeat_rows(inputs.tokens, rows),
            lengths: repeat_rows(inputs.lengths.unwrap_or_default(), rows),
        }
    }

    /// These rows as inputs of the form of others.
    fn as_inputs<'a>(&'a self, form: ModelInputs<'a>) -> ModelInputs<'a> {
        ModelInputs {
            x: &self.x,
            pixels: &self.pixels,
            tokens: &self.tokens,
            lengths: form.lengths.map(|_| &self.lengths[..]),
            ..form
        }
    }
}

/// The values of [`PART_IMAGES`] rows, which are `rows` of them repeated.
fn repeat_rows<T: Copy>(values: &[T], rows: usize) -> Vec<T> {
    let width = values.len() / rows;
    let of_row = |row: usize| &values[row % rows * width..][..width];
    (0..PART_IMAGES).flat_map(of_row).copied().collect()
}

impl Predictor {
    /// Opens the best weights of the run that `config` and the dataset name, or where nothing was trained by it, of the newest
    /// finished one that fits the dataset. Blocks.
    ///
    /// # Errors
    /// [`Error::NoCheckpoint`] when nothing was trained yet, [`Error::NoFittingRun`], and as [`of_run`](Self::of_run).
    pub fn open(
        config: &TrainConfig,
        build: Option<&Build<'_>>,
        context: &Context,
    ) -> Result<Self, Error> {
        let chosen = choose_model::choose(config, &Choice::Fitting, Use::NewRows, context)?;
        Self::of_run(&chosen, build, context)
    }

    /// Opens the best weights of a run, to be used on features that its own transform made. Blocks.
    ///
    /// # Errors
    /// [`Error::NoCheckpoint`] for a run without weights; [`Error::Config`] for a model that does not read rows of numbers;
    /// what storage says.
    pub fn of_run(
        chosen: &ChosenRun,
        build: Option<&Build<'_>>,
        context: &Context,
    ) -> Result<Self, Error> {
        let context = &Context {
            group: Group::alone(),
            ..context.clone()
        };
        let runtime = runtime()?;
        let _runtime = runtime.enter();
        let kept = KeptModel::open(chosen, None, build, context, &runtime)?;
        if !matches!(kept.plan.shape(), Shape::Rows { .. } | Shape::Multi { .. }) {
            let reason = "it reads images or texts alone; new rows are predicted by models on rows of numbers, or of several parts";
            return Err(crate::error::config("model.type", reason));
        }
        let named = (chosen.used().name.clone(), kept.checkpoint);
        Ok(Self {
            warnings: kept.warnings,
            ..Self::new(kept.engine, kept.bucket, &kept.plan, named)
        })
    }

    fn new(
        engine: ModelEngine,
        bucket: Vec<f32>,
        plan: &RunPlan,
        (run, checkpoint): (String, String),
    ) -> Self {
        Self {
            engine,
            bucket,
            task: plan.task.clone(),
            shape: plan.shape(),
            images: images::for_loader(&plan.settings.config().images, false),
            run,
            checkpoint,
            fingerprint: plan.fingerprint,
            warnings: Vec::new(),
        }
    }

    /// Name of the run.
    #[must_use]
    pub fn run(&self) -> &str {
        &self.run
    }

    /// URL of the weights.
    #[must_use]
    pub fn checkpoint(&self) -> &str {
        &self.checkpoint
    }

    /// Warnings of damaged or missing files of the weights.
    #[must_use]
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// Fingerprint of the manifest of the dataset that the model was trained on.
    #[must_use]
    pub const fn fingerprint(&self) -> Hash128 {
        self.fingerprint
    }

    /// Length of a row.
    #[must_use]
    pub const fn features(&self) -> usize {
        match self.shape {
            Shape::Rows { features } | Shape::Multi { features, .. } => features,
            _ => 0,
        }
    }

    /// Treatment of images, as those of a split that is measured; `None` where it reads none.
    #[must_use]
    pub fn images(&self) -> Option<&ImageConfig> {
        match self.shape {
            Shape::Multi {
                images: Some(_), ..
            } => Some(&self.images),
            _ => None,
        }
    }

    /// Ids of a row's text, padding included; `None` where it reads none.
    #[must_use]
    pub const fn text_length(&self) -> Option<usize> {
        match self.shape {
            Shape::Multi {
                tokens: Some([length, _]),
                ..
            } => Some(length),
            _ => None,
        }
    }

    /// Predicts the rows `x`, `[rows, features]`. Blocks; takes memory for the rows and for a part
    /// on each thread.
    ///
    /// # Panics
    /// When `x` is not a whole number of rows.
    #[must_use]
    pub fn predict(&self, x: &[f32]) -> Predicted {
        let rows = x.len() / self.features().max(1);
        assert_eq!(rows * self.features(), x.len(), "rows are complete");
        Predicted::of(&self.task, &self.outputs(x, rows), rows, x)
    }

    /// Predictions for `rows` rows of several parts. Blocks.
    ///
    /// # Panics
    /// When a part that the model reads has not as many rows.
    #[must_use]
    pub fn predict_parts(&self, rows: usize, parts: &RowParts) -> Predicted {
        if rows == 0 {
            return Predicted::of(&self.task, &[], 0, &[]);
        }
        let features = self.features();
        let (sides, pixels) = match self.images() {
            Some(config) => ([config.height, config.width], config.bytes()),
            None => ([0, 0], 0),
        };
        let length = self.text_length().unwrap_or(0);
        assert_eq!(parts.x.len(), rows * features, "rows are complete");
        assert_eq!(parts.pixels.len(), rows * pixels, "each row has an image");
        assert_eq!(parts.tokens.len(), rows * length, "texts are padded");
        let inputs = ModelInputs {
            x: &parts.x,
            features,
            pixels: &parts.pixels,
            sides: sides.map(|side| side as usize),
            tokens: &parts.tokens,
            lengths: self.text_length().map(|_| &parts.lengths[..]),
            length,
            ..ModelInputs::default()
        };
        let samples = Samples::new(rows, inputs, Targets::None);
        let outputs = outputs_of_images(&self.engine, &self.bucket, samples);
        Predicted::of(&self.task, &outputs, rows, &[])
    }

    /// `[rows, outputs]`.
    fn outputs(&self, x: &[f32], rows: usize) -> Vec<f32> {
        let whole = rows.next_multiple_of(PART_ROWS);
        let mut filled = Vec::with_capacity(whole * self.features());
        filled.extend_from_slice(x);
        filled.resize(whole * self.features(), 0.0);
        let inputs = ModelInputs {
            x: &filled,
            features: self.features(),
            ..ModelInputs::default()
        };
        let samples = Samples::new(whole, inputs, Targets::None);
        let parts: Vec<_> = (0..whole)
            .step_by(PART_ROWS)
            .map(|first| first..first + PART_ROWS)
            .collect();
        let mut outputs = Vec::new();
        self.engine.outputs(
            &self.bucket,
            samples,
            &parts,
            |_, part| part,
            |part: Vec<f32>| outputs.extend(part),
        );
        outputs.truncate(outputs.len() / whole.max(1) * rows);
        outputs
    }
}

impl Predicted {
    /// Predictions by `outputs`, `[rows, outputs]`, for rows whose numbers are `x`.
    fn of(task: &Task, outputs: &[f32], rows: usize, x: &[f32]) -> Self {
        let width = (outputs.len() / rows.max(1)).max(1);
        match task {
            Task::Regression { offset, scale, .. } => {
                let numbers = outputs.iter().map(|y| f64::from(*y) * scale + offset);
                Self::Numbers(numbers.collect())
            }
            Task::Regressions(targets) => {
                let rows = outputs.chunks_exact(targets.len().max(1));
                let numbers = rows.flat_map(|row| targets.iter().zip(row));
                Self::Vectors {
                    numbers: numbers.map(|(target, y)| target.unscale(*y)).collect(),
                    targets: task.targets(),
                }
            }
            Task::Classification { counts, .. } => {
                let mut found = Classes {
                    ids: Vec::with_capacity(rows),
                    probabilities: Vec::with_capacity(rows * counts.len()),
                };
                for row in outputs.chunks_exact(width) {
                    // One output for two classes is the second's logit above the first's.
                    match row {
                        [second] if counts.len() == 2 => found.add(&[0.0, *second]),
                        row => found.add(row),
                    }
                }
                Self::Classes {
                    ids: found.ids,
                    probabilities: found.probabilities,
                }
            }
            Task::Reconstruction { .. } | Task::NextToken { .. } => {
                let features = (x.len() / rows.max(1)).max(1);
                let given = outputs.chunks_exact(width);
                let pairs = x.chunks_exact(features).zip(given);
                Self::Differences(pairs.map(|(x, y)| difference(x, y)).collect())
            }
        }
    }
}

/// Targets of rows, in the target's units.
#[derive(Clone, Debug, PartialEq)]
pub enum Truths {
    /// The rows have none.
    None,
    /// Numbers, as the dataset stores them in f32.
    Numbers(Vec<f64>),
    /// Several such numbers of each row, `[rows, targets]`.
    Vectors(Vec<f64>),
    /// Classes by id.
    Classes(Vec<usize>),
}

/// Rows of a split that a model was measured on.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredRows {
    /// Keys of the samples.
    pub keys: Vec<u64>,
    /// Origins of the samples.
    pub origins: Vec<Origin>,
    /// Their targets.
    pub truths: Truths,
    /// Predictions of the model.
    pub predicted: Predicted,
}

impl MeasuredRows {
    /// The rows of a batch.
    pub(crate) fn of(task: &Task, batch: MeasuredBatch<'_>) -> Self {
        let rows = batch.samples.rows();
        let truths = match (batch.samples.targets, task) {
            (Targets::Numbers(y), Task::Regression { offset, scale, .. }) => {
                let numbers = y.iter().map(|y| f64::from(*y) * scale + offset);
                Truths::Numbers(numbers.collect())
            }
            (Targets::Vectors { y, width }, Task::Regressions(targets)) => {
                let numbers = y
                    .chunks_exact(width)
                    .flat_map(|row| targets.iter().zip(row));
                Truths::Vectors(numbers.map(|(target, y)| target.unscale(*y)).collect())
            }
            (Targets::Classes(y), Task::Classification { .. }) => {
                let ids = y
                    .iter()
                    .map(|id| usize::try_from(*id).unwrap_or(usize::MAX));
                Truths::Classes(ids.collect())
            }
            _ => Truths::None,
        };
        let origins = batch.origins.iter();
        Self {
            keys: batch.keys.to_vec(),
            origins: origins.map(|origin| Origin::from_packed(*origin)).collect(),
            truths,
            predicted: match task {
                Task::Reconstruction { .. } => Predicted::Differences(
                    batch.losses.iter().map(|loss| f64::from(*loss)).collect(),
                ),
                _ => Predicted::of(task, batch.outputs, rows, batch.samples.inputs.x),
            },
        }
    }
}

struct Classes {
    ids: Vec<Option<usize>>,
    probabilities: Vec<f64>,
}

impl Classes {
    /// Adds a row of logits: their softmax, in f64.
    fn add(&mut self, row: &[f32]) {
        let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let above = row.iter().map(|y| (f64::from(*y) - f64::from(most)).exp());
        let sum: f64 = above.clone().sum();
        self.probabilities.extend(above.map(|y| y / sum));
        self.ids.push(largest(row));
    }
}

/// Mean of the squared differences.
fn difference(x: &[f32], y: &[f32]) -> f64 {
    let squares = x.iter().zip(y).map(|(x, y)| {
        let difference = f64::from(*x) - f64::from(*y);
        difference * difference
    });
    squares.sum::<f64>() / crate::float_casts::exact_len(x.len().max(1))
}

#[cfg(test)]
mod tests {
    use feedline_schemas::config::{ModelConfig, ModelKind, NormKind, TrainConfig};
    use proptest::prelude::*;

    use super::*;
    use crate::{
        config::settings,
        model::models,
        testing::{Column, Toy, classification, config, plan, regression, uniform},
    };

    /// A model as it begins, or any other numbers: what it says is of no matter.
    fn predictor(config: &TrainConfig, toy: &Toy, threads: usize) -> Predictor {
        let plan = plan(config, toy);
        let model =
            models::build(&plan.settings.config().model, plan.shape(), plan.outputs()).unwrap();
        let passes = settings::passes(config, model.layout()).unwrap();
        let bucket = model.initial(config.seed);
        let engine = ModelEngine::with_threads(model, plan.settings.loss().clone(), threads)
            .with_passes(passes);
        Predictor::new(engine, bucket, &plan, ("run".into(), "checkpoint".into()))
    }

    fn models() -> Vec<ModelConfig> {
        let mlp = |norm| ModelConfig {
            hidden: Some(vec![33, 17]),
            norm,
            ..ModelConfig::default()
        };
        vec![
            mlp(None),
            mlp(Some(NormKind::Batch)),
            mlp(Some(NormKind::Layer)),
            ModelConfig {
                r#type: ModelKind::Lstm,
                ..ModelConfig::default()
            },
        ]
    }

    fn bits(predicted: Predicted) -> Vec<u64> {
        let numbers = match predicted {
            Predicted::Numbers(numbers)
            | Predicted::Differences(numbers)
            | Predicted::Vectors { numbers, .. } => numbers,
            Predicted::Classes { probabilities, .. } => probabilities,
        };
        numbers.into_iter().map(f64::to_bits).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn a_row_has_the_same_bits_alone_and_among_any_others_on_any_threads(
            model in 0_usize..4,
            rows in 1_usize..700,
            cut in 1_usize..300,
            threads in 0_usize..4,
            classes in any::<bool>(),
        ) {
            let toy = if classes { classification(16) } else { regression(16) };
            let config = TrainConfig { model: models()[model].clone(), ..config() };
            let whole = predictor(&config, &toy, 1);
            let x = uniform(rows * whole.features(), 40);
            let expected = bits(whole.predict(&x));
            let other = predictor(&config, &toy, threads);
            let found: Vec<u64> = x
                .chunks(cut * whole.features())
                .flat_map(|x| bits(other.predict(x)))
                .collect();
            prop_assert_eq!(&found, &expected);
            let last = &x[(rows - 1) * whole.features()..];
            let alone = bits(other.predict(last));
            prop_assert_eq!(&alone[..], &expected[expected.len() - alone.len()..]);
        }
    }

    #[test]
    fn an_image_has_the_same_bits_alone_and_among_any_others() {
        let model = ModelConfig {
            r#type: ModelKind::Cnn,
            channels: Some(vec![8, 16]),
            hidden: Some(vec![16]),
            ..ModelConfig::default()
        };
        let sides = [20_usize, 28];
        let [height, width] = sides;
        let shape = Shape::Images {
            channels: 3,
            height,
            width,
        };
        let config = TrainConfig { model, ..config() };
        let model = models::build(&models::filled(&config), shape, 2).unwrap();
        let bucket = model.initial(config.seed);
        let plan = plan(&crate::testing::config(), &classification(16));
        let engine = ModelEngine::with_threads(model, plan.settings.loss().clone(), 2);
        let image = 3 * height * width;
        let numbers = uniform(19 * image, 7);
        let pixels: Vec<u8> = numbers
            .iter()
            .map(|x| x.to_bits().to_le_bytes()[1])
            .collect();
        let bits_of = |pixels: &[u8]| -> Vec<u32> {
            let inputs = ModelInputs {
                pixels,
                sides,
                ..ModelInputs::default()
            };
            let samples = Samples::new(pixels.len() / image, inputs, Targets::None);
            let outputs = outputs_of_images(&engine, &bucket, samples);
            outputs.into_iter().map(f32::to_bits).collect()
        };
        let expected = bits_of(&pixels);
        assert_eq!(expected.len(), 19 * 2);
        for images in [1, 2, 5, 16] {
            let found: Vec<u32> = pixels.chunks(images * image).flat_map(bits_of).collect();
            assert_eq!(found, expected, "{images}");
        }
    }

    /// The rows of a split as the loop measures them: in batches, cut by their shape.
    fn check_against_measuring(toy: &Toy, config: &TrainConfig, batch: usize) {
        let predictor = predictor(config, toy, 2);
        let rows = &toy.splits[1];
        let (task, features) = (plan(config, toy).task, rows.features);
        let mut evaluation = crate::evaluation::metrics::Evaluation::new(&task);
        let mut outputs = Vec::new();
        for (i, x) in rows.x.chunks(batch * features).enumerate() {
            let range = i * batch..i * batch + x.len() / features;
            let targets = match &rows.y {
                Column::Numbers(y) => Targets::Numbers(&y[range]),
                Column::Classes(y) => Targets::Classes(&y[range]),
            };
            let samples = Samples::of_rows(x, features, targets);
            let prediction = predictor
                .engine
                .predict(&predictor.engine.weights(&predictor.bucket), samples);
            evaluation.add(&prediction, targets);
            outputs.extend(prediction.outputs);
        }
        let found = predictor.outputs(&rows.x, rows.x.len() / features);
        let found: Vec<u32> = found.into_iter().map(f32::to_bits).collect();
        let outputs: Vec<u32> = outputs.into_iter().map(f32::to_bits).collect();
        assert_eq!(found, outputs);
        let metrics = evaluation.metrics();
        match (predictor.predict(&rows.x), &rows.y) {
            (Predicted::Numbers(found), Column::Numbers(y)) => {
                let error =
                    |(found, y): (&f64, &f32)| (found - (f64::from(*y) * 2.0 + 10.0)).powi(2);
                let squares: f64 = found.iter().zip(y).map(error).sum();
                let rmse = (squares / crate::float_casts::exact_len(y.len())).sqrt();
                assert!((rmse / metrics["rmse"] - 1.0).abs() < 1e-12, "{rmse}");
            }
            (Predicted::Classes { ids, probabilities }, Column::Classes(y)) => {
                let n = crate::float_casts::exact_len(y.len());
                let is_hit = |(id, y): (&Option<usize>, &i32)| *id == usize::try_from(*y).ok();
                let hits = ids.iter().zip(y).filter(|at| is_hit(*at)).count();
                assert!(
                    (crate::float_casts::exact_len(hits) / n - metrics["accuracy"]).abs() < 1e-12
                );
                let rows = probabilities
                    .chunks_exact(probabilities.len() / y.len())
                    .zip(y);
                let surprise: f64 = rows
                    .map(|(row, y)| {
                        assert!((row.iter().sum::<f64>() - 1.0).abs() < 1e-12);
                        -row[usize::try_from(*y).unwrap()].ln()
                    })
                    .sum();
                assert!((surprise / n / metrics["cross_entropy"] - 1.0).abs() < 1e-9);
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn predictions_of_a_split_are_those_that_measuring_it_makes() {
        for model in models() {
            let config = TrainConfig { model, ..config() };
            for batch in [7, 16, 60] {
                check_against_measuring(&regression(16), &config, batch);
                check_against_measuring(&classification(16), &config, batch);
            }
        }
    }

    #[test]
    fn two_classes_of_one_output_have_two_probabilities() {
        let mut classes = Classes {
            ids: vec![],
            probabilities: vec![],
        };
        classes.add(&[0.0, 3.0_f32.ln()]);
        assert_eq!(classes.ids, [Some(1)]);
        assert!((classes.probabilities[1] - 0.75).abs() < 1e-7);
        classes.add(&[f32::NAN, f32::NAN]);
        assert_eq!(classes.ids[1], None);
    }
}
