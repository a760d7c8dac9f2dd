//! The types of the columns that a dataset's sources had landed when it was built.

use std::collections::BTreeMap;

use feedline_schemas::{
    commit::CommitEntry,
    decode,
    ids::Hash128,
    manifest::Manifest,
    record::{ColumnType, RecordSchema},
};
use feedline_storage::Store;

use crate::{Error, schema::landed_columns::merge};

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
    let mut schemas: Vec<RecordSchema> = Vec::new();
    for source in &manifest.sources {
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
    let merged = merge(&schemas).into_iter();
    Ok(merged.map(|column| (column.name, column.r#type)).collect())
}
