//! Rejected records of a landing zone, for programs that report on each record.

use arrow::{array::AsArray, datatypes::UInt32Type};
use feedline_schemas::{ids::Name, record::system};
use feedline_storage::Store;

use crate::{
    batch::rejects, commit_log::Landed, error::Error, landed_file, landing_folder::landing,
};

/// A rejected record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LandedReject {
    /// Log sequence of its batch.
    pub sequence: u64,
    /// Its place in the batch, from 0.
    pub row: u64,
    /// A fixed word, such as `type_conflict`.
    pub reason: String,
    /// Column that it is about; empty where it is about the record as a whole.
    pub column: String,
    /// Place and details.
    pub detail: String,
    /// The record as text.
    pub raw: String,
}

impl LandedReject {
    /// The record as an example in a report: its reason, the details and the record.
    #[must_use]
    pub fn describe(&self) -> String {
        rejects::describe(&self.reason, &self.detail, &self.raw)
    }
}

/// Reads the rejected records of `source` that `landed` names, in the order of its batches.
///
/// # Errors
/// [`Error::Landed`] for files that are missing or damaged, [`Error::Storage`].
pub async fn landed_rejects(
    root: &Store,
    source: &Name,
    landed: &Landed,
) -> Result<Vec<LandedReject>, Error> {
    let landing = landing(root, source);
    let columns = [
        system::ROW,
        rejects::REASON,
        rejects::PATH,
        rejects::DETAIL,
        rejects::RAW,
    ];
    let mut found = Vec::new();
    for entry in &landed.entries {
        for file in &entry.rejects {
            for batch in landed_file::read(&landing, file, &columns, None).await? {
                let text = |name: &str| {
                    let column = batch.column_by_name(name);
                    column.and_then(|column| column.as_string_opt::<i32>())
                };
                let rows = batch.column_by_name(system::ROW);
                let rows = rows.and_then(|column| column.as_primitive_opt::<UInt32Type>());
                let (Some(rows), Some(reasons), Some(paths), Some(details), Some(raws)) = (
                    rows,
                    text(rejects::REASON),
                    text(rejects::PATH),
                    text(rejects::DETAIL),
                    text(rejects::RAW),
                ) else {
                    return Err(Error::Landed {
                        url: landing.url_of(&file.path),
                        reason: "its columns are not those of rejected records".into(),
                    });
                };
                found.extend((0..rows.len()).map(|row| LandedReject {
                    sequence: entry.sequence.get(),
                    row: rows.value(row).into(),
                    reason: reasons.value(row).to_owned(),
                    column: paths.value(row).to_owned(),
                    detail: details.value(row).to_owned(),
                    raw: raws.value(row).to_owned(),
                }));
            }
        }
    }
    Ok(found)
}
