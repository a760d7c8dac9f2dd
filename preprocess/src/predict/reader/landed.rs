//! The types of the columns that a dataset's sources had landed when it was built.

use std::collections::BTreeMap;

use feedline_schemas::{
    commit::CommitEntry,
    decode,
    ids::{Hash128, TableName},
    manifest::Manifest,
    record::{ColumnType, RecordSchema},
};
use feedline_storage::Store;

use crate::{
    Error,
    schema::landed_columns::{MergedColumn, merge},
};

/// Types of the landed columns by name, at the log positions that `manifest` names, in the landing zone below `root`. One
/// object is read for each source. A source whose landing zone is missing or different gives no
/// types.
///
/// # Errors
/// [`Error::Storage`] for a store that cannot be read, [`Error::Contract`] for an entry of another version.
pub async fn landed_types(
    root: &Store,
    manifest: &Manifest,
) -> Result<BTreeMap<String, ColumnType>, Error> {
    let columns = landed_columns_of(root, manifest, |_| true).await?;
    let types = columns.into_iter();
    Ok(types.map(|column| (column.name, column.r#type)).collect())
}

/// Landed columns of the sources that `is_read` selects, as [`landed_types`] reads them.
///
/// # Errors
/// As [`landed_types`].
pub(in crate::predict) async fn landed_columns_of(
    root: &Store,
    manifest: &Manifest,
    is_read: impl Fn(&TableName) -> bool,
) -> Result<Vec<MergedColumn>, Error> {
    let mut schemas: Vec<RecordSchema> = Vec::new();
    let sources = manifest.sources.iter();
    for source in sources.filter(|source| is_read(&source.name)) {
        let store = root.child(&format!("landing/{}", source.name.source));
        let path = format!("log/{:020}.json", source.sequence.get());
        let entry = store.get_opt(&path).await?;
        let Some(bytes) = entry.filter(|bytes| Hash128::of(bytes) == source.entry_hash) else {
            tracing::warn!(
                source = %source.name,
                "the landing zone is not the one that the dataset was built from, or is missing: column types are \
                 inferred from the known categories"
            );
            continue;
        };
        let mut entry: CommitEntry = decode(&store.url_of(&path), &bytes)?;
        schemas.extend(match &source.name.table {
            None => Some(entry.schema),
            Some(table) => entry.children.remove(table).map(|child| child.schema),
        });
    }
    Ok(merge(&schemas))
}
