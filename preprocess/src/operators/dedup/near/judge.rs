//! Consequences of clusters for rows, as functions of a plan.

use std::{
    fmt,
    hash::{Hash, Hasher},
    sync::Arc,
};

use arrow::{
    array::{ArrayRef, AsArray, FixedSizeBinaryArray, StringArray, UInt8Array},
    datatypes::{DataType, UInt8Type, UInt64Type},
};
use datafusion::error::Result;
use feedline_schemas::{
    config::NearDupKeep,
    ids::{Hash128, Origin, TableName},
};

use crate::{
    engine::scalar_function::RowFunction,
    operators::{dedup::content_hash::HASH_BYTES, text::near::Clusters},
    schema::reject_reason::{self, Reason},
};

/// Clusters and what they mean for rows.
pub(super) struct Judgement {
    pub(super) clusters: Clusters,
    keep: NearDupKeep,
    column: String,
    names: Vec<TableName>,
    frozen: Vec<TableName>,
    /// The first rows of clusters, in order.
    firsts: Vec<u64>,
}

impl Judgement {
    /// Takes the meaning of `clusters` of a column for the rows of sources `names`, beside those of `frozen` ones.
    pub(super) fn new(
        clusters: Clusters,
        keep: NearDupKeep,
        column: String,
        [names, frozen]: [Vec<TableName>; 2],
    ) -> Self {
        let members = clusters.members.iter();
        let firsts = members.filter(|member| !member.first.is_frozen);
        let mut firsts: Vec<u64> = firsts.map(|member| member.first.id).collect();
        firsts.sort_unstable();
        firsts.dedup();
        Self {
            clusters,
            keep,
            column,
            names,
            frozen,
            firsts,
        }
    }

    /// The first row of the cluster that the row of `origin` is in; nothing for one that is near to no other.
    pub(super) fn first_of(&self, origin: u64) -> Option<u64> {
        let first = self.clusters.member(origin).map(|member| member.first);
        match first {
            Some(first) => (!first.is_frozen).then_some(first.id),
            None => self.firsts.binary_search(&origin).ok().map(|_| origin),
        }
    }

    /// Reason for dropping the row.
    fn left_out(&self, origin: u64) -> Option<String> {
        let first = self.clusters.member(origin)?.first;
        if !first.is_frozen && self.keep == NearDupKeep::All {
            return None;
        }
        let (reason, names) = match first.is_frozen {
            true => (reject_reason::NEAR_DUPLICATE_OF_FROZEN, &self.frozen),
            false => (reject_reason::NEAR_DUPLICATE, &self.names),
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

/// Reason for dropping a row: its earlier reason, or a near-duplicate.
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

/// The group of a row: the hash of its content, of one in a cluster that of the cluster's first row.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct GroupOf(pub(super) Found);

impl RowFunction for GroupOf {
    const NAME: &'static str = "feedline_cluster_group";
    const RETURNS: DataType = DataType::FixedSizeBinary(HASH_BYTES);

    fn call(&self, columns: &[ArrayRef], _: usize) -> Result<ArrayRef> {
        let own = columns[0].as_fixed_size_binary();
        let origins = columns[1].as_primitive::<UInt64Type>();
        let rows = own.iter().flatten().zip(origins.values());
        let groups = rows.map(|(own, origin)| match self.0.0.first_of(*origin) {
            Some(first) => Hash128::of(&first.to_be_bytes()).get().to_be_bytes(),
            None => own.try_into().expect("a content hash has 16 bytes"),
        });
        Ok(Arc::new(FixedSizeBinaryArray::try_from_iter(groups)?))
    }
}

/// A row as people find it.
pub(super) fn named(names: &[TableName], origin: u64) -> String {
    let at = Origin::from_packed(origin);
    let source = usize::try_from(at.source()).ok().and_then(|i| names.get(i));
    format!(
        "row {} of batch {} of source `{}`",
        at.row(),
        at.sequence(),
        source.map_or_else(String::new, TableName::to_string)
    )
}
