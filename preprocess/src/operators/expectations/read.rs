//! File of expectations, read and checked against the columns of a dataset.

use feedline_schemas::{
    config::{ExpectConfig, PipelineConfig, Task},
    expect::{Expectations, ExpectedColumn},
    ids::Hash128,
    transform::InputKind,
};
use feedline_storage::Store;

use super::Expect;
use crate::{Context, Error, schema::dataset_spec::DatasetSpec};

const KEY: &str = "dataset.expect.file";

impl Expect {
    /// Reads the file that `config` names and checks it against the columns of `spec`.
    pub(crate) async fn read(
        config: &ExpectConfig,
        spec: &DatasetSpec,
        context: &Context,
    ) -> Result<Self, Error> {
        let found = read_file(config, context).await?;
        for column in &found.columns {
            check(column, spec).map_err(|reason| unusable(&found.url, &reason))?;
        }
        Ok(found)
    }
}

/// Reads the file that `dataset.expect` names and checks what needs no columns. Where `is_offline`, a
/// file of an object store is not read. A pipeline without the key passes.
///
/// # Errors
/// [`Error::Config`] for a file that is absent or no file of expectations; failures of the store.
pub async fn check_expectations(
    config: &PipelineConfig,
    context: &Context,
    is_offline: bool,
) -> Result<(), Error> {
    let dataset = config.dataset.as_ref();
    let Some(expect) = dataset.and_then(|dataset| dataset.expect.as_ref()) else {
        return Ok(());
    };
    let (folder, _) = split(&expect.file);
    let store = Store::open(folder, &context.store_options)?;
    if is_offline && store.local_path().is_none() {
        return Ok(());
    }
    read_file(expect, context).await.map(drop)
}

/// Reads the file that `config` names, whatever columns a dataset has.
///
/// # Errors
/// [`Error::Config`] for a file that is absent or no file of expectations; failures of the store.
pub(super) async fn read_file(config: &ExpectConfig, context: &Context) -> Result<Expect, Error> {
    let (folder, name) = split(&config.file);
    let store = Store::open(folder, &context.store_options)?;
    let url = store.url_of(name);
    let Some(bytes) = store.get_opt(name).await? else {
        let advice = "build once without `[dataset.expect]` and with `dataset.profile = true`, then write it with `feedline shards expect`; \
                      or correct the path";
        return Err(Error::config(
            KEY,
            format!("`{url}` does not exist; {advice}"),
        ));
    };
    let text = std::str::from_utf8(&bytes);
    let text = text.map_err(|error| unusable(&url, &error.to_string()))?;
    let found = Expectations::parse(text).map_err(|reason| unusable(&url, &reason))?;
    Ok(Expect {
        columns: found.column,
        on_violation: config.on_violation,
        url,
        hash: Hash128::of(&bytes),
    })
}

fn unusable(url: &str, reason: &str) -> Error {
    let advice = "correct the file, or rewrite it with `feedline shards expect`";
    Error::config(KEY, format!("cannot use `{url}`: {reason}; {advice}"))
}

/// Folder and name of a location.
fn split(location: &str) -> (&str, &str) {
    match location.rsplit_once('/') {
        None => (".", location),
        Some(("", name)) => ("/", name),
        Some(parts) => parts,
    }
}

fn check(column: &ExpectedColumn, spec: &DatasetSpec) -> Result<(), String> {
    let name = &column.name;
    let inputs = spec
        .inputs
        .iter()
        .map(|input| (&input.column.name, input.column.kind));
    let target = spec.targets().map(|target| match target.task {
        Task::Regression => (&target.column, InputKind::Numeric),
        Task::Classification => (&target.column, InputKind::Categorical),
    });
    let word = |kind: InputKind| match kind {
        InputKind::Numeric => "numeric",
        InputKind::Categorical => "categorical",
    };
    match inputs.chain(target).find(|(found, _)| *found == name) {
        None => Err(format!(
            "column `{name}` is neither a feature nor the target"
        )),
        Some((_, kind)) if kind != column.kind => Err(format!(
            "column `{name}` should be {} and is {}",
            word(column.kind),
            word(kind)
        )),
        Some(_) => Ok(()),
    }
}
