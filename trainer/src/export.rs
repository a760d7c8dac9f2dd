//! The best weights of a run as a plain safetensors file.

use std::collections::HashMap;

use burn::tensor::{bf16, f16};
use feedline_schemas::config::{Precision, TrainConfig};
use safetensors::tensor::{Dtype, TensorView};

use crate::{
    Context,
    error::{Error, config as wrong},
    init::CLASSES_KEY,
    kept::{self, Choice, ChosenRun, Kept, Use},
    layers::Parameter,
    model::Build,
    run_folder::runtime,
};

/// How weights are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExportOptions {
    /// Whether the products of adapters are added to the weights, which then stand alone.
    pub merge_lora: bool,
    /// Type of the numbers; those of shorter types are rounded to the nearest, ties to even.
    pub precision: Precision,
}

/// The best weights of the run that `config` and the dataset name, or where nothing was trained by it, of the newest finished
/// one that fits the dataset; see [`export_run`]. Blocks.
///
/// # Errors
/// [`Error::NoCheckpoint`] when nothing was trained yet, [`Error::NoFittingRun`], and as [`export_run`].
pub fn export(
    config: &TrainConfig,
    build: Option<&Build<'_>>,
    options: ExportOptions,
    context: &Context,
) -> Result<Vec<u8>, Error> {
    let chosen = kept::choose(config, &Choice::Fitting, Use::Weights, context)?;
    export_run(&chosen, build, options, context)
}

/// The best weights of a run as the bytes of a safetensors file: a tensor for each parameter and running statistic of the
/// model, by its name, and for a classifier the metadata entry `classes`, the JSON list of their names by output.
/// `train.init` reads such files. Blocks.
///
/// # Errors
/// [`Error::NoCheckpoint`] for a run without weights; [`Error::Config`] for adapters that are not there, or a number that the
/// type cannot hold; what storage says.
pub fn export_run(
    chosen: &ChosenRun,
    build: Option<&Build<'_>>,
    options: ExportOptions,
    context: &Context,
) -> Result<Vec<u8>, Error> {
    if options.merge_lora && chosen.config().lora.is_none() {
        let reason = "there is no such section, so there is nothing to merge";
        return Err(wrong("lora", reason));
    }
    let runtime = runtime()?;
    let _runtime = runtime.enter();
    let kept = Kept::open(chosen, None, build, context, &runtime)?;
    let layout = kept.engine.model().layout().clone();
    let (layout, bucket) = if options.merge_lora {
        layout.merged(&kept.bucket)
    } else {
        (layout, kept.bucket)
    };
    let classes = kept.plan.task.classes();
    write(layout.entries(), &bucket, options.precision, classes)
}

/// The file of a bucket of a model whose outputs are for these classes, if for any.
fn write(
    entries: &[Parameter],
    bucket: &[f32],
    precision: Precision,
    classes: &[String],
) -> Result<Vec<u8>, Error> {
    let mut tensors = Vec::new();
    for entry in entries {
        let bytes = to_bytes(&bucket[entry.range.clone()], precision);
        let bytes = bytes.ok_or_else(|| {
            let name = &entry.name;
            wrong(
                "precision",
                format!(
                    "`{name}` holds a number beyond the range of f16; export it as bf16 or f32"
                ),
            )
        })?;
        tensors.push((entry.name.clone(), entry.shape.clone(), bytes));
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
    let metadata = (!classes.is_empty()).then(|| {
        let names = serde_json::to_string(classes).expect("texts are JSON");
        HashMap::from([(CLASSES_KEY.to_owned(), names)])
    });
    Ok(safetensors::serialize(views, metadata)
        .expect("a model has fewer tensors than fill a safetensors header"))
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
