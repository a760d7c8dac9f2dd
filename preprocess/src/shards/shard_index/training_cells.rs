//! Features and numeric targets of a batch of a shard of the training split.

use arrow::{
    array::{AsArray, RecordBatch},
    datatypes::Float32Type,
    error::ArrowError,
};

use super::of;

/// Cells of training rows, row by row.
pub(super) struct TrainingCells<'b> {
    /// Features.
    pub(super) x: &'b [f32],
    /// Number of features.
    pub(super) width: usize,
    /// Targets that are numbers.
    pub(super) y: &'b [f32],
}

impl<'b> TrainingCells<'b> {
    pub(super) fn of(batch: &'b RecordBatch) -> Result<Self, ArrowError> {
        let x = of(batch.column_by_name("x"))?.as_fixed_size_list();
        let width = usize::try_from(x.value_length()).unwrap_or_default();
        let y = batch.column_by_name("y");
        let y = y.map(|y| y.as_fixed_size_list_opt().map_or(y, |list| list.values()));
        let y = y.and_then(|y| y.as_primitive_opt::<Float32Type>());
        Ok(Self {
            x: x.values().as_primitive::<Float32Type>().values(),
            width,
            y: y.map(|y| &y.values()[..]).unwrap_or_default(),
        })
    }
}
