//! The dataset as one frame of typed rows with content hash, origin and split, duplicates dropped.
//!
//! The plan grows step by step, in the order of [`frame`]. Most steps only add to it. Four also run a query, since what
//! follows depends on its result: those that `frame` awaits.

mod duplicates;
mod made_features;
mod ordered_split;
mod source_rows;
mod version_columns;

use datafusion::prelude::{DataFrame, SessionContext};
use feedline_schemas::manifest::{ConflictCounts, NearDupCounts};

use self::{
    duplicates::{all_copies, drop_duplicates, hold_out_frozen, labelled_images},
    made_features::add_series_features,
    ordered_split::{count_for_range, split_by_range, split_by_time, whole_documents},
    source_rows::SourceRows,
};
use crate::{
    Error,
    operators::{
        coerce::NanSeen,
        dedup::{
            conflicts::{self, LabelConflicts},
            near,
        },
    },
    schema::dataset_spec::DatasetSpec,
    source::landing_zone::Landed,
};

/// The rows of a dataset.
pub(crate) struct Frame {
    /// As [`frame`] says.
    pub(crate) rows: DataFrame,
    /// The documents that are kept, each whole, in the column of the payload.
    pub(crate) documents: Option<DataFrame>,
    pub(crate) notes: FrameNotes,
}

/// Counts of a plan, and rows that warnings and reports look at once the dataset is staged.
pub(crate) struct FrameNotes {
    /// Counts of the search for near-duplicates.
    pub(crate) near_dup: Option<NearDupCounts>,
    /// Hash and origin of all rows, duplicates included, if duplicates are dropped.
    pub(crate) copied: Option<DataFrame>,
    /// Rows that are equal but for their target, where one of them is chosen.
    pub(crate) conflicts: Option<ConflictCounts>,
    /// Note of a NaN that was read as a number, once the rows are read on this machine.
    pub(crate) nan: NanSeen,
    /// All images with their content hashes and targets, where copies are dropped whatever their targets are.
    pub(crate) labelled: Option<DataFrame>,
    /// Clusters of near-duplicates with several targets, where one row of each is kept.
    pub(crate) near_conflicts: LabelConflicts,
}

/// All rows: `_origin`, `_hash`, `_split`, `_reject`, `_group` where the split has a key, then payload, inputs and target.
/// `with_copies` leaves duplicates among them, for a pass that finds them itself.
pub(crate) async fn frame(
    session: &SessionContext,
    sources: &[Landed],
    spec: &DatasetSpec,
    near_dup: Option<&near::Pass<'_>>,
    with_copies: bool,
) -> Result<Frame, Error> {
    let SourceRows { rows, frozen, nan } = source_rows::read(session, sources, spec)?;
    let copied = all_copies(&rows, spec)?;
    let conflicts = count_conflicts(&rows, spec).await?;
    let labelled = labelled_images(&rows, spec)?;
    let rows = drop_duplicates(session, rows, spec, with_copies)?;
    let rows = hold_out_frozen(rows, frozen, spec)?;
    let (rows, found) = drop_near_duplicates(session, rows, spec, near_dup).await?;
    let (near_dup, near_conflicts) = found.unzip();
    let count = count_for_range(&rows, spec).await?;
    let rows = add_series_features(session, rows, spec)?;
    let rows = split_by_time(rows, spec).await?;
    let documents = whole_documents(&rows, spec)?;
    let rows = split_by_range(rows, spec, count)?;
    let notes = FrameNotes {
        near_dup,
        copied,
        conflicts,
        nan,
        labelled,
        near_conflicts: near_conflicts.unwrap_or_default(),
    };
    Ok(Frame {
        rows,
        documents,
        notes,
    })
}

/// Counts rows that are equal but for their target, where one of them is chosen.
async fn count_conflicts(
    rows: &DataFrame,
    spec: &DatasetSpec,
) -> Result<Option<ConflictCounts>, Error> {
    let Some((target, _)) = spec.conflicts() else {
        return Ok(None);
    };
    let found = Box::pin(conflicts::count(rows.clone(), target, |_| false)).await?;
    Ok(Some(found.counts))
}

/// Drops near-duplicates or puts them in one split, and counts them and those with several targets.
async fn drop_near_duplicates(
    session: &SessionContext,
    rows: DataFrame,
    spec: &DatasetSpec,
    near_dup: Option<&near::Pass<'_>>,
) -> Result<(DataFrame, Option<(NearDupCounts, LabelConflicts)>), Error> {
    let Some(pass) = near_dup else {
        return Ok((rows, None));
    };
    let target = spec.target.as_ref().map(|target| target.column.as_str());
    let (rows, counts, conflicts) = pass.run(session, rows, target).await?;
    Ok((rows, Some((counts, conflicts))))
}
