//! Checks of keys that would have no effect: they name columns that are no features.

use feedline_schemas::config::DatasetConfig;

use crate::{Error, schema::dataset_spec::Input};

/// Checks that no target is dropped: it is no feature, and cannot be left out.
pub(super) fn check_dropped(config: &DatasetConfig) -> Result<(), Error> {
    let mut targets = config.targets().iter();
    let Some(target) = targets.find(|target| config.drop.contains(target)) else {
        return Ok(());
    };
    Err(Error::config(
        "dataset.drop",
        format!(
            "`{target}` is the target (`dataset.target`), which is no feature anyway; remove it here, or choose another target"
        ),
    ))
}

/// Checks that no dropped column is listed as a feature, as a category or in a step.
pub(super) fn check_listed_twice(config: &DatasetConfig) -> Result<(), Error> {
    let lists = [
        ("dataset.features".to_owned(), &config.features),
        ("dataset.categorical".to_owned(), &config.categorical),
    ];
    let steps = config.step.iter().flatten().enumerate();
    let steps = steps.map(|(i, step)| (format!("dataset.step.{i}.columns"), &step.columns));
    for (key, names) in lists.into_iter().chain(steps) {
        if let Some(name) = config.drop.iter().find(|name| names.contains(name)) {
            let reason = format!("`{name}` is also listed in `{key}`, remove it from one");
            return Err(Error::config("dataset.drop", reason));
        }
    }
    Ok(())
}

/// Checks that columns listed as categories are features, which others are not read as.
pub(super) fn check_categories(config: &DatasetConfig, inputs: &[Input]) -> Result<(), Error> {
    let is_input = |name: &String| inputs.iter().any(|input| input.column.name == *name);
    let mut names = config.categorical.iter();
    let Some(name) = names.find(|name| !is_input(name)) else {
        return Ok(());
    };
    let reason = match config.is_target(name) {
        true => format!(
            "`{name}` is the target; remove it here, and set `dataset.task = \"classification\"` where its values are classes"
        ),
        false => format!(
            "`{name}` is not a feature of this dataset; remove it here, or list it in `dataset.features`"
        ),
    };
    Err(Error::config("dataset.categorical", reason))
}
