//! Transform artefact of a dataset: its file, and the warning of columns that it encodes by the target.

use feedline_schemas::{
    count::first_counted,
    manifest::Manifest,
    report::{NAMED_COLUMNS, WarnedColumn, Warning},
    transform::{FittedStep, TransformArtefact},
};
use feedline_storage::Store;

use crate::error::Error;

/// Reads the transform artefact that the manifest names.
///
/// # Errors
/// [`Error::Dataset`] when it is another, or what storage says.
pub(crate) async fn read_transform(
    dataset: &Store,
    manifest: &Manifest,
) -> Result<TransformArtefact, Error> {
    let path = &manifest.transform.path;
    let bytes = dataset.get(path).await?;
    let artefact: TransformArtefact = feedline_schemas::decode(&dataset.url_of(path), &bytes)?;
    if artefact.compute_hash() != manifest.transform.hash {
        let reason = format!(
            "its transform `{path}` has hash `{}`, its manifest says `{}`; build it again",
            artefact.compute_hash(),
            manifest.transform.hash
        );
        return Err(Error::Dataset {
            url: dataset.url(),
            reason,
        });
    }
    Ok(artefact)
}

/// The warning of training rows that are measured: what the target says of their categories is taken from other rows than for
/// the rows of other splits.
pub(crate) fn encoded_by_target(artefact: &TransformArtefact) -> Option<Warning> {
    let columns = artefact.steps.iter().flat_map(|step| match step {
        FittedStep::Categories { columns } => columns.as_slice(),
        _ => &[],
    });
    let encoded = columns.filter(|column| column.outcomes.is_some());
    let columns: Vec<WarnedColumn> = encoded
        .map(|column| WarnedColumn::new(&column.name))
        .collect();
    if columns.is_empty() {
        return None;
    }
    let names = columns.iter().map(|column| format!("`{}`", column.name));
    let message = format!(
        "categories of {} are encoded by the target: training rows have out-of-fold numbers, rows of other splits those of \
         all training rows, so metrics of the training split are not the ones that the model would have there with the \
         numbers it predicts from",
        first_counted(&names.collect::<Vec<_>>(), NAMED_COLUMNS, "column")
    );
    let warning = Warning::new("target_encoded_training_rows", message);
    Some(warning.with_columns(columns).with_key("dataset.step"))
}
