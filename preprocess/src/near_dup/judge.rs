//! What clusters mean for rows, as functions of a plan.

use std::{
    fmt,
    hash::{Hash, Hasher},
    sync::Arc,
};

use arrow::{
    array::{ArrayRef, AsArray, StringArray, UInt8Array},
    datatypes::{DataType, UInt8Type, UInt64Type},
};
use datafusion::error::Result;
use feedline_schemas::{config::NearDupKeep, ids::TableName};

use super::{named, reason};
use crate::{scalar::RowFunction, text::near::Clusters, typing::Reason};

/// Clusters and what they mean for rows.
pub(super) struct Judgement {
    pub(super) clusters: Clusters,
    pub(super) keep: NearDupKeep,
    pub(super) column: String,
    pub(super) names: Vec<TableName>,
    pub(super) frozen: Vec<TableName>,
}

impl Judgement {
    /// Why the row is left out.
    fn left_out(&self, origin: u64) -> Option<String> {
        let first = self.clusters.member(origin)?.first;
        if !first.is_frozen && self.keep == NearDupKeep::All {
            return None;
        }
        let (reason, names) = match first.is_frozen {
            true => (reason::FROZEN, &self.frozen),
            false => (reason::COPY, &self.names),
        };
        let reason = Reason {
            reason: reason.to_owned(),
            column: self.column.clone(),
            value: format!("nearly {}", named(names, first.id)),
        };
        Some(reason.to_json())
    }
}

/// A judgement as a function holds it; two are equal when they are one.
#[derive(Clone)]
pub(super) struct Found(pub(super) Arc<Judgement>);

impl fmt::Debug for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} near-duplicates", self.0.clusters.members.len())
    }
}

impl PartialEq for Found {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Found {}

impl Hash for Found {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.clusters.members.len().hash(state);
    }
}

/// Why a row is left out: for what was found before, or as a near-duplicate.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct LeftOut(pub(super) Found);

impl RowFunction for LeftOut {
    const NAME: &'static str = "feedline_near_duplicate";
    const RETURNS: DataType = DataType::Utf8;

    fn call(&self, columns: &[ArrayRef], _: usize) -> Result<ArrayRef> {
        let before = columns[0].as_string::<i32>();
        let origins = columns[1].as_primitive::<UInt64Type>();
        let reasons = before
            .iter()
            .zip(origins.values())
            .map(|(before, origin)| match before {
                Some(before) => Some(before.to_owned()),
                None => self.0.0.left_out(*origin),
            });
        Ok(Arc::new(reasons.collect::<StringArray>()))
    }
}

/// The split of a row, or of the first of its cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct SplitOf(pub(super) Found);

impl RowFunction for SplitOf {
    const NAME: &'static str = "feedline_cluster_split";
    const RETURNS: DataType = DataType::UInt8;

    fn call(&self, columns: &[ArrayRef], _: usize) -> Result<ArrayRef> {
        let own = columns[0].as_primitive::<UInt8Type>();
        let origins = columns[1].as_primitive::<UInt64Type>();
        let rows = own.values().iter().zip(origins.values());
        let splits = rows.map(|(own, origin)| {
            let member = self.0.0.clusters.member(*origin);
            member.map_or(*own, |member| {
                if member.first.is_frozen {
                    *own
                } else {
                    member.first.group
                }
            })
        });
        Ok(Arc::new(UInt8Array::from_iter_values(splits)))
    }
}
