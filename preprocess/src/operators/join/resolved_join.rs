//! A join, checked against the landed columns: its key, and the columns that it brings.

use datafusion::logical_expr::{Expr, ident, lit};
use feedline_schemas::{
    config::{KeyMatch, Unmatched},
    ids::Name,
    record::{Column, ColumnType, RecordSchema},
};

use super::{asof_times::Asof, key::Key};
use crate::{
    Error,
    engine::scalar_function::RowFunction,
    operators::{row_check::Judged, time_series::LocalTimes},
    schema::{
        landed_cells::{landed, typed},
        landed_columns::MergedColumn,
    },
    source::landing_zone::Landed,
};

/// Names of the columns that joins work with begin with this.
pub(super) const RESERVED: &str = "_join_";

/// A join, checked against the landed columns.
#[derive(Clone, Debug)]
pub(crate) struct Join {
    pub(crate) source: Landed,
    /// Index of the join in the configuration.
    pub(super) index: usize,
    /// Columns of the key; without them all rows have one.
    pub(super) left: Option<String>,
    pub(super) right: Option<String>,
    /// Types of the two as they landed.
    pub(super) key_types: Option<[ColumnType; 2]>,
    pub(super) matching: KeyMatch,
    pub(super) asof: Option<Asof>,
    pub(super) unmatched: Unmatched,
    /// Columns of the source, and what they are called beside the rows.
    pub(super) taken: Vec<(String, MergedColumn)>,
}

impl Join {
    /// Columns that it takes of its source, and what they are called beside the rows.
    pub(crate) fn taken(&self) -> impl Iterator<Item = (&str, &str)> {
        let taken = self.taken.iter();
        taken.map(|(name, column)| (name.as_str(), column.name.as_str()))
    }

    /// Columns that the join adds to the rows.
    pub(crate) fn brought(&self) -> impl Iterator<Item = &MergedColumn> {
        let age = self.asof.as_ref().and_then(|asof| asof.age.as_ref());
        self.taken.iter().map(|(_, column)| column).chain(age)
    }

    /// Columns of the times of the rows, and of the source, as far as they are local.
    pub(crate) fn local_times(&self) -> [Option<LocalTimes<'_>>; 2] {
        let asof = self.asof.as_ref();
        [
            asof.and_then(|asof| asof.time.local()),
            asof.and_then(|asof| asof.right_time.local()),
        ]
    }

    /// Reason and condition that make a row without a partner unusable, if they do.
    pub(crate) fn judged(&self) -> Option<(String, Judged, Expr)> {
        let judged = match self.unmatched {
            Unmatched::Null => return None,
            Unmatched::Reject => Judged::Unmatched,
            Unmatched::Drop => Judged::Dropped,
        };
        let time = self.asof.as_ref().map(|asof| &asof.time.column);
        let column = self.left.as_ref().or(time).cloned();
        Some((column.unwrap_or_default(), judged, ident(self.missed())))
    }

    /// The column that has the key of a row without a partner.
    pub(crate) fn missed(&self) -> String {
        format!("{RESERVED}missed_{}", self.index)
    }

    pub(super) fn left_key(&self, schema: &RecordSchema) -> Expr {
        self.key(schema, self.left.as_ref())
    }

    pub(super) fn right_key(&self, schema: &RecordSchema) -> Expr {
        self.key(schema, self.right.as_ref())
    }

    fn key(&self, schema: &RecordSchema, column: Option<&String>) -> Expr {
        match column {
            Some(column) => Key(self.matching).over(vec![landed(schema, column)]),
            None => lit(""),
        }
    }

    pub(crate) fn name(&self) -> &Name {
        &self.source.reference.name.source
    }
}

/// The schema of rows that `joins` brought their columns to.
pub(crate) fn extended(schema: &RecordSchema, joins: &[Join]) -> RecordSchema {
    let mut schema = schema.clone();
    let brought = joins.iter().flat_map(Join::brought);
    schema.columns.extend(brought.map(|column| Column {
        field_id: 0,
        name: column.name.clone(),
        r#type: column.r#type,
        whole: false,
    }));
    schema
}

/// Cells of the columns that are taken of the source, in one of its schema versions.
pub(super) fn taken_cells(
    taken: &[(String, MergedColumn)],
    schema: &RecordSchema,
) -> Result<Vec<Expr>, Error> {
    let cells = taken.iter();
    cells
        .map(|(name, column)| Ok(typed(schema, name, column.r#type)?.alias(&column.name)))
        .collect()
}
