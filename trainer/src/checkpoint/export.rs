//! The best weights of a run as a plain safetensors file.

use std::collections::{BTreeMap, HashMap};

use burn::tensor::{bf16, f16};
use feedline_schemas::{
    config::{Precision, TrainConfig, WeightLayout},
    report::{ImagesReport, Warning},
};
use safetensors::tensor::{Dtype, TensorView};
use serde::Serialize;

use crate::{
    Context,
    checkpoint::run_folder::runtime,
    error::{Error, config as wrong},
    model::{
        init::{
            CLASSES_KEY, FEATURES_KEY, LAYOUT_KEY, STATISTICS_KEY, TARGETS_KEY, TEXT_IDS_KEY,
            TRANSFORM_KEY,
        },
        input::Statistics,
        interface::Build,
        pytorch_layout::{self, NamedTensor},
    },
    plan::InputNames,
    predict::choose_model::{self, Choice, ChosenRun, KeptModel, Use},
};

/// Options of the written weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExportOptions {
    /// Adds the products of adapters to the weights, which then need no adapters.
    pub merge_lora: bool,
    /// Type of the numbers; those of shorter types are rounded to the nearest, ties to even.
    pub precision: Precision,
    /// Layout and names of the tensors.
    pub layout: WeightLayout,
}

/// Weights of a run, to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportedWeights {
    /// Bytes of a safetensors file.
    pub file: Vec<u8>,
    /// Warnings of damaged or missing files of the weights.
    pub warnings: Vec<Warning>,
}

/// The best weights of the run that `config` and the dataset name, or where nothing was trained by it, of the newest finished
/// one that fits the dataset; see [`export_run`]. Blocks.
///
/// ```no_run
/// use feedline_schemas::config::{TrainConfig, WeightLayout};
/// use feedline_trainer::{Context, ExportOptions, export};
///
/// # fn example(
/// #     config: &TrainConfig, context: &Context,
/// # ) -> Result<(), Box<dyn std::error::Error>> {
/// let options = ExportOptions { layout: WeightLayout::Torch, ..ExportOptions::default() };
/// let exported = export(config, None, options, context)?;
/// std::fs::write("model.safetensors", exported.file)?;
/// # Ok(()) }
/// ```
///
/// # Errors
/// [`Error::NoCheckpoint`] when nothing was trained yet, [`Error::NoFittingRun`], and as [`export_run`].
pub fn export(
    config: &TrainConfig,
    build: Option<&Build<'_>>,
    options: ExportOptions,
    context: &Context,
) -> Result<ExportedWeights, Error> {
    let chosen = choose_model::choose(config, &Choice::Fitting, Use::Weights, context)?;
    export_run(&chosen, build, options, context)
}

/// The best weights of a run as the bytes of a safetensors file: a tensor for each parameter and running statistic of the
/// model, by its name or PyTorch's. The metadata entry `feedline.layout` names the layout; that of a classifier's entry
/// `classes`, or that of a model of several targets `targets`, is the JSON list of their names by output, and `features` that of
/// the features of a row in order, `transform` the hashes of the transform that makes them and scales targets, and `text_ids` the
/// meaning of the token ids of a text. `train.init` reads such files. Blocks.
///
/// # Errors
/// [`Error::NoCheckpoint`] for a run without weights; [`Error::Config`] for adapters that do not exist or that PyTorch has no
/// place for, or a number that the type cannot hold; what storage says.
pub fn export_run(
    chosen: &ChosenRun,
    build: Option<&Build<'_>>,
    options: ExportOptions,
    context: &Context,
) -> Result<ExportedWeights, Error> {
    if options.merge_lora && chosen.config().lora.is_none() {
        let reason = "there is no such section, so there is nothing to merge";
        return Err(wrong("lora", reason));
    }
    let runtime = runtime()?;
    let _runtime = runtime.enter();
    let kept = KeptModel::open(chosen, None, build, context, &runtime)?;
    let layout = kept.engine.model().layout().clone();
    let (layout, bucket) = if options.merge_lora {
        layout.merged(&kept.bucket)
    } else {
        (layout, kept.bucket)
    };
    let tensors = match options.layout {
        WeightLayout::Feedline => pytorch_layout::own_tensors(&layout, &bucket),
        WeightLayout::Torch if layout.has_adapters() => {
            let reason = "layers of PyTorch have no place for adapters; add them to the weights with `--merge-lora`";
            return Err(wrong("lora", reason));
        }
        WeightLayout::Torch => pytorch_layout::torch_tensors(&layout, &bucket),
    };
    let metadata = metadata(
        options.layout,
        [kept.plan.task.classes(), &kept.plan.task.targets()],
        &kept.plan.features,
        kept.plan.images.as_ref(),
    );
    Ok(ExportedWeights {
        file: write(tensors, options, metadata)?,
        warnings: kept.warnings,
    })
}

/// The metadata of a file in this layout, of a model whose outputs are for these classes or targets, if for any, and that reads
/// rows of these features, made by this transform, and texts of these ids, if any, and images normalised like this.
fn metadata(
    layout: WeightLayout,
    [classes, targets]: [&[String]; 2],
    InputNames {
        features,
        text_ids,
        transform,
    }: &InputNames,
    images: Option<&ImagesReport>,
) -> HashMap<String, String> {
    let mut entries = HashMap::from([(LAYOUT_KEY.to_owned(), layout.name().to_owned())]);
    for (key, names) in [(CLASSES_KEY, classes), (TARGETS_KEY, targets)] {
        if !names.is_empty() {
            let names = serde_json::to_string(names).expect("texts are JSON");
            entries.insert(key.to_owned(), names);
        }
    }
    if !features.is_empty() {
        let names = serde_json::to_string(features).expect("texts are JSON");
        entries.insert(FEATURES_KEY.to_owned(), names);
    }
    if let Some(text_ids) = text_ids {
        let text = serde_json::to_string(text_ids).expect("texts are JSON");
        entries.insert(TEXT_IDS_KEY.to_owned(), text);
    }
    if let Some(transform) = transform {
        let text = serde_json::to_string(transform).expect("texts are JSON");
        entries.insert(TRANSFORM_KEY.to_owned(), text);
    }
    if let Some(images) = images {
        let statistics: Statistics = [images.mean, images.deviation];
        let text = serde_json::to_string(&statistics).expect("numbers are JSON");
        entries.insert(STATISTICS_KEY.to_owned(), text);
    }
    if layout == WeightLayout::Torch {
        // Libraries of Hugging Face ask for it.
        entries.insert("format".to_owned(), "pt".to_owned());
    }
    entries
}

fn json(entries: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(entries).expect("texts are JSON")
}

/// The file of the tensors of a model.
fn write(
    named: Vec<NamedTensor>,
    options: ExportOptions,
    metadata: HashMap<String, String>,
) -> Result<Vec<u8>, Error> {
    let precision = options.precision;
    let mut tensors = Vec::new();
    for tensor in named {
        let bytes = to_bytes(&tensor.values, precision);
        let bytes = bytes.ok_or_else(|| {
            let name = &tensor.name;
            wrong(
                "precision",
                format!(
                    "`{name}` holds a number beyond the range of f16; export it as bf16 or f32"
                ),
            )
        })?;
        tensors.push((tensor.name, tensor.shape, bytes));
    }
    let dtype = match precision {
        Precision::F32 => Dtype::F32,
        Precision::Bf16 => Dtype::BF16,
        Precision::F16 => Dtype::F16,
    };
    let views = tensors.iter().map(|(name, shape, bytes)| {
        let view = TensorView::new(dtype, shape.clone(), bytes);
        (name, view.expect("the bytes are those of the shape"))
    });
    let found = json(&metadata);
    let sorted = json(&BTreeMap::from_iter(metadata.clone()));
    let mut file = safetensors::serialize(views, Some(metadata))
        .expect("a model has fewer tensors than fill a safetensors header");
    // A hash map has another order in each process, and equal weights make equal files.
    if let Some(at) = file.windows(found.len()).position(|part| part == found) {
        file[at..at + found.len()].copy_from_slice(&sorted);
    }
    Ok(file)
}

/// `None` when a number is beyond the type's range.
fn to_bytes(values: &[f32], precision: Precision) -> Option<Vec<u8>> {
    let values = values.iter();
    match precision {
        Precision::F32 => Some(values.flat_map(|value| value.to_le_bytes()).collect()),
        Precision::Bf16 => {
            let halves = values.map(|value| bf16::from_f32(*value));
            Some(halves.flat_map(bf16::to_le_bytes).collect())
        }
        Precision::F16 => {
            let halves: Vec<f16> = values.map(|value| f16::from_f32(*value)).collect();
            let fits = halves.iter().all(|half| half.is_finite());
            fits.then(|| halves.into_iter().flat_map(f16::to_le_bytes).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded_to_the_nearest_and_refused_beyond_the_range() {
        // 1 + 2^-9 is halfway between two bf16 numbers, and exact in f16.
        let value = [1.0 + 2.0_f32.powi(-9), -2.0];
        assert_eq!(
            to_bytes(&value, Precision::Bf16).unwrap(),
            [0x80, 0x3f, 0x00, 0xc0]
        );
        assert_eq!(
            to_bytes(&value, Precision::F16).unwrap(),
            [0x02, 0x3c, 0x00, 0xc0]
        );
        assert_eq!(to_bytes(&value, Precision::F32).unwrap().len(), 8);
        assert_eq!(to_bytes(&[65_520.0], Precision::F16), None);
        assert!(to_bytes(&[65_520.0], Precision::Bf16).is_some());
    }
}
