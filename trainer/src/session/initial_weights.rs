//! The file of weights that a training begins with, and a check of it before the training.

use feedline_schemas::{config::TrainConfig, report::Warning};
use feedline_storage::Store;

use crate::{
    config::settings::{self, TrainSettings},
    data::{images, loaders::settled, task::Task, transform_artefact::read_transform},
    error::{Error, config as wrong},
    model::{
        init::{InitTarget, Weights},
        interface, models,
    },
    plan::{self, InputNames, feature_names},
};

/// Checks the file that `train.init.from` names: that it can be read from its folder `weights`, and that the model of `config`
/// for `dataset` takes its weights; without a dataset only the former. Returns the warnings that a training would have about
/// the file. Reads no shard and writes nothing.
///
/// # Errors
/// [`Error::Config`] for a file that is missing, cannot be read or does not fit the model, and for settings that do not fit the
/// dataset; errors of a dataset that cannot be read.
pub async fn check_init(
    config: &TrainConfig,
    weights: &Store,
    dataset: Option<&Store>,
) -> Result<Vec<Warning>, Error> {
    let Some(init) = &config.init else {
        return Ok(Vec::new());
    };
    settings::check(config)?;
    let weights = Weights::read_from(init, weights).await;
    let weights = weights.map_err(unreadable_weights)?;
    weights.check_format()?;
    let Some(dataset) = dataset else {
        return Ok(Vec::new());
    };
    let config = settled(config, dataset).await?;
    let manifest = feedline_loader::read_manifest(dataset).await?;
    let artefact = read_transform(dataset, &manifest).await?;
    let layout = &manifest.layout;
    images::check_layout(&config.images, layout)?;
    let config = images::of_layout(&config, layout);
    let task = Task::of(config.model.r#type, layout, &artefact);
    let task = task.map_err(|reason| Error::Dataset {
        url: dataset.url(),
        reason,
    })?;
    let task = task.of_manifest(&manifest);
    let settings = TrainSettings::resolve(&config, &task)?;
    let config = settings.config();
    let outputs = settings.loss().outputs(task.outputs());
    let model = models::build(&config.model, plan::shape(layout, config), outputs)?;
    let model = interface::adapted(model, config.lora.as_ref())?;
    let (features, targets) = (feature_names(layout, &artefact), task.targets());
    let target = init_target(&task, outputs, &features, &targets);
    let mut bucket = vec![0.0; model.layout().len()];
    weights.put(init, model.layout(), &target, &mut bucket)
}

/// Model for a task with so many outputs, as weights are loaded into it. `targets` are those of the task.
pub(super) fn init_target<'a>(
    task: &'a Task,
    outputs: usize,
    features: &'a InputNames,
    targets: &'a [String],
) -> InitTarget<'a> {
    InitTarget {
        outputs,
        classes: task.classes(),
        features,
        reconstructs: matches!(task, Task::Reconstruction { .. }),
        targets,
    }
}

/// The error of a store that did not give the file of weights, as one about the key that names it.
fn unreadable_weights(error: Error) -> Error {
    let Error::Storage(error) = error else {
        return error;
    };
    let first: &(dyn std::error::Error + 'static) = &error;
    let causes = std::iter::successors(Some(first), |error| error.source());
    let causes: Vec<String> = causes.map(ToString::to_string).collect();
    let reason = format!("the file cannot be read: {}", causes.join(": "));
    wrong("init.from", reason)
}

#[cfg(test)]
mod tests {
    use feedline_schemas::config::InitConfig;
    use safetensors::tensor::{Dtype, TensorView};

    use super::*;
    use crate::checkpoint::run_folder::runtime;

    #[test]
    fn a_missing_file_and_one_of_another_format_are_refused_without_a_dataset() {
        let (weights, runtime) = (Store::memory(), runtime().unwrap());
        let view = TensorView::new(Dtype::F32, vec![1], &[0; 4]).unwrap();
        let tensors = safetensors::serialize([("a", view)], None).unwrap();
        for (name, bytes) in [("note", b"a note".to_vec()), ("weights", tensors)] {
            runtime.block_on(weights.put(name, bytes.into())).unwrap();
        }
        let check = |name: &str| {
            let init = InitConfig {
                from: format!("memory:///{name}"),
                rename: vec![],
                layout: None,
                strict: true,
                replace: vec![],
                classes: vec![],
                allow_other_transform: false,
            };
            let config = TrainConfig {
                init: Some(init),
                ..TrainConfig::default()
            };
            match runtime.block_on(check_init(&config, &weights, None)) {
                Ok(_) => String::new(),
                Err(error) => error.to_string(),
            }
        };
        let missing = check("none");
        assert!(missing.contains("`train.init.from`"), "{missing}");
        assert!(missing.contains("none` does not exist"), "{missing}");
        let note = check("note");
        assert!(note.contains("`train.init.from`"), "{note}");
        assert!(note.contains("not a safetensors file"), "{note}");
        assert_eq!(check("weights"), "");
    }
}
