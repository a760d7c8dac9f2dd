//! Tensors of a file by the names that the model has for them.

use std::collections::BTreeMap;

use feedline_schemas::config::nearest;
use safetensors::tensor::TensorView;

use crate::{
    config::name_pattern,
    error::{Error, config as wrong},
};

/// Before the names of weights in the files of runs.
const PREFIX: &str = "parameter.";

/// The tensors by the model's names.
pub(super) fn renamed<'a>(
    tensors: BTreeMap<&'a str, TensorView<'a>>,
    rename: &[[String; 2]],
) -> Result<BTreeMap<String, TensorView<'a>>, Error> {
    // A checkpoint holds more than the weights.
    let of_run = tensors.keys().any(|name| name.starts_with(PREFIX));
    let own_name = |name: &&'a str| match name.strip_prefix(PREFIX) {
        Some(own) => Some(own),
        None if of_run => None,
        None => Some(*name),
    };
    check_renamings(
        rename,
        &tensors.keys().filter_map(own_name).collect::<Vec<_>>(),
    )?;
    let mut found = BTreeMap::new();
    for (name, view) in tensors {
        let Some(name) = own_name(&name) else {
            continue;
        };
        let mut renamings = rename.iter();
        let new = renamings.find_map(|[pattern, to]| name_pattern::rename(pattern, to, name));
        let new = new.unwrap_or_else(|| name.to_owned());
        if found.insert(new.clone(), view).is_some() {
            let reason = format!("two tensors of the file become `{new}`");
            return Err(wrong("init.rename", reason));
        }
    }
    Ok(found)
}

/// Refuses a pattern of `train.init.rename` that describes none of the `names` of the file.
///
/// # Errors
/// [`Error::Config`], with the nearest name.
fn check_renamings(rename: &[[String; 2]], names: &[&str]) -> Result<(), Error> {
    let describes_none = |pattern: &&String| {
        !names
            .iter()
            .any(|name| name_pattern::matches(pattern, name))
    };
    let mut patterns = rename.iter().map(|[pattern, _]| pattern);
    let Some(pattern) = patterns.find(describes_none) else {
        return Ok(());
    };
    let near = match nearest(&pattern.replace('*', ""), names.iter().copied()) {
        Some(near) => format!("the nearest name there is `{near}`"),
        None => "it has none".to_owned(),
    };
    let reason =
        format!("`{pattern}` describes no tensor of the file; {near}; correct or remove this pair");
    Err(wrong("init.rename", reason))
}
