//! Columns of a batch to transform, by name and type, and their cells.

use datafusion::arrow::{
    array::{Array, ArrayRef, AsArray, Float64Array, RecordBatch, StringArray},
    buffer::{BooleanBuffer, NullBuffer},
    compute::cast,
    datatypes::{DataType, Float64Type},
};

use crate::Error;

/// The cells of a numeric column, NaN where missing.
pub(crate) fn cells(column: &Float64Array) -> Vec<f64> {
    match column.nulls().filter(|nulls| nulls.null_count() > 0) {
        None => column.values().to_vec(),
        Some(nulls) => {
            let values = column.values().iter().zip(nulls.iter());
            values
                .map(|(x, is_valid)| if is_valid { *x } else { f64::NAN })
                .collect()
        }
    }
}

/// The column of these cells, null where NaN.
pub(crate) fn column_of(cells: Vec<f64>) -> Float64Array {
    let mut missing = 0;
    for cell in &cells {
        missing += u64::from(cell.is_nan());
    }
    let nulls = (missing > 0).then(|| {
        let is_valid = |row: usize| !cells[row].is_nan();
        NullBuffer::new(BooleanBuffer::collect_bool(cells.len(), is_valid))
    });
    Float64Array::new(cells.into(), nulls)
}

/// The column `name` of a batch.
///
/// # Errors
/// [`Error::Input`] when it is absent.
pub(super) fn column<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a ArrayRef, Error> {
    batch.column_by_name(name).ok_or_else(|| {
        Error::input(
            "the rows to transform",
            format!("they lack column `{name}`, which the transform was fitted on"),
            "give all columns of the training data, with null where a value is missing",
        )
    })
}

/// The column `name` of a batch as 64-bit floats.
///
/// # Errors
/// [`Error::Input`] when it is absent or of another type.
pub(super) fn numeric(batch: &RecordBatch, name: &str) -> Result<Float64Array, Error> {
    let array = column(batch, name)?;
    array
        .as_primitive_opt::<Float64Type>()
        .cloned()
        .ok_or_else(|| wrong_type(name, array, "a column of 64-bit floats"))
}

/// The column `name` of a batch as text.
///
/// # Errors
/// [`Error::Input`] when it is absent or of another type.
pub(super) fn text(batch: &RecordBatch, name: &str) -> Result<StringArray, Error> {
    let array = column(batch, name)?;
    match array.data_type() {
        DataType::Utf8 => Ok(array.as_string::<i32>().clone()),
        DataType::LargeUtf8 | DataType::Utf8View | DataType::Dictionary(..) => {
            let cast = cast(array, &DataType::Utf8)?;
            cast.as_string_opt::<i32>()
                .cloned()
                .ok_or_else(|| wrong_type(name, array, "text"))
        }
        _ => Err(wrong_type(name, array, "text")),
    }
}

/// Error of a column of another type than the transform was fitted on.
pub(super) fn wrong_type(name: &str, array: &ArrayRef, expected: &str) -> Error {
    Error::input(
        "the rows to transform",
        format!(
            "column `{name}` is {}, the transform was fitted on {expected}",
            array.data_type()
        ),
        "read the column as it was read for the fit",
    )
}
