//! NaN cells of numeric features. A build reads them as missing, like nulls, but a NaN is often a
//! fault of the source.
//!
//! A typed row has lost the difference, so the landed cells are counted. Builds without a NaN skip
//! this pass: the cast to numbers detects any.

use std::collections::BTreeMap;

use arrow::{
    array::{Array, ArrayRef, AsArray},
    datatypes::{DataType, Float64Type},
};
use datafusion::prelude::SessionContext;
use feedline_schemas::{
    config::Step,
    record::{ColumnType, RecordSchema},
    report::Warning,
    transform::NumberSigns,
};

use super::landed_numbers::{CellCounts, count_cells};
use crate::{
    Error, operators::number_format, schema::dataset_spec::DatasetSpec,
    source::landing_zone::Landed, warnings,
};

/// NaN cells of each column, and all of its cells.
#[derive(Default)]
struct NanCounts(BTreeMap<String, (u64, u64)>);

impl CellCounts<'_> for NanCounts {
    fn has_cells(&self, _: &Landed, schema: &RecordSchema, name: &str) -> bool {
        let mut all = schema.columns.iter();
        all.any(|c| c.name == *name && matches!(c.r#type, ColumnType::Float64 | ColumnType::Utf8))
    }

    fn add(&mut self, feature: &str, cells: &ArrayRef, signs: Option<NumberSigns>) {
        let (nan, all) = self.0.entry(feature.to_owned()).or_default();
        *nan += nans(cells, signs);
        *all += cells.len() as u64;
    }
}

/// Warns of NaN cells in the numeric features of `spec`, in `sources` and in those that are joined to them.
///
/// # Errors
/// Failures of the engine.
pub(crate) async fn check_nans(
    session: &SessionContext,
    sources: &[Landed],
    spec: &DatasetSpec,
) -> Result<Option<Warning>, Error> {
    let mut counts = NanCounts::default();
    count_cells(session, sources, spec, &mut counts).await?;
    let NanCounts(mut found) = counts;
    found.retain(|_, (nan, _)| *nan > 0);
    let fills = spec.steps.iter().any(|step| {
        matches!(step.step, Step::Impute(_))
            && step.columns.iter().any(|name| found.contains_key(name))
    });
    Ok(warnings::nan_missing(&found, fills))
}

fn nans(array: &ArrayRef, signs: Option<NumberSigns>) -> u64 {
    let count = match array.data_type() {
        DataType::Float64 => {
            let cells = array.as_primitive::<Float64Type>().iter().flatten();
            cells.filter(|cell| cell.is_nan()).count()
        }
        DataType::Utf8 => {
            let cells = array.as_string::<i32>().iter().flatten();
            let numbers = cells.filter_map(|text| number_format::number(text, signs));
            numbers.filter(|number| number.is_nan()).count()
        }
        _ => 0,
    };
    count as u64
}
