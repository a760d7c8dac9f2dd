//! Rows of both sources in order become the rows of the dataset, each with the columns of its partner.

use std::sync::Arc;

use arrow::{
    array::{
        Array, ArrayRef, AsArray, Float64Array, RecordBatch, StringArray, UInt64Array,
        new_null_array,
    },
    compute::{FilterBuilder, interleave, not, take},
    datatypes::{DataType, Field, Int64Type, Schema, SchemaRef},
};

use super::walk::{Found, KEY, Place, Rule, THEIRS, TIME, Walk};
use crate::{Error, operators::time_series::shown, schema::system_columns::column};

/// Columns and rule of the joined rows.
#[derive(Clone, Debug)]
pub(super) struct Making {
    pub(super) rule: Rule,
    /// Columns of the rows of the dataset.
    pub(super) own: Vec<Field>,
    /// Columns that partners bring.
    pub(super) taken: Vec<Field>,
    /// The column of the partner's age, where it is asked for.
    pub(super) age: Option<String>,
    /// The column of what a row without a partner was looked up by.
    pub(super) missed: String,
}

impl Making {
    /// The columns that come of it.
    pub(super) fn schema(&self) -> Schema {
        let cells = self.own.iter().chain(&self.taken);
        let cells = cells.map(|field| field.clone().with_nullable(true));
        let age = self.age.iter();
        let age = age.map(|name| Field::new(name, DataType::Float64, true));
        let missed = Field::new(&self.missed, DataType::Utf8, true);
        Schema::new(cells.chain(age).chain([missed]).collect::<Vec<_>>())
    }
}

/// Puts columns beside rows, batch by batch.
#[derive(Debug)]
pub(super) struct Operator {
    making: Arc<Making>,
    schema: SchemaRef,
    walk: Walk,
    /// The cells that are taken of the newest row of the joined source, one each.
    carried: Option<Vec<ArrayRef>>,
}

impl Operator {
    pub(super) fn new(making: Arc<Making>, schema: SchemaRef) -> Self {
        Self {
            walk: Walk::new(making.rule.clone()),
            making,
            schema,
            carried: None,
        }
    }

    /// The rows of the dataset in the next batch, if there are any.
    pub(super) fn take(&mut self, batch: &RecordBatch) -> Result<Option<RecordBatch>, Error> {
        let found = self.walk.over(batch)?;
        let made = match found.is_empty() {
            true => None,
            false => Some(self.beside(batch, &found)?),
        };
        if let Some(row) = self.walk.carry() {
            let row = UInt64Array::from(vec![row as u64]);
            let taken = self.making.taken.iter();
            let cells = taken.map(|field| take(column(batch, field.name()), &row, None));
            self.carried = Some(cells.collect::<Result<_, _>>()?);
        }
        Ok(made)
    }

    /// Memory that is held between two batches.
    pub(super) fn bytes(&self) -> usize {
        let cells = self.carried.iter().flatten();
        cells.map(|cells| cells.get_array_memory_size()).sum()
    }

    fn beside(&self, batch: &RecordBatch, found: &[Found]) -> Result<RecordBatch, Error> {
        let own = not(column(batch, THEIRS).as_boolean())?;
        let own = FilterBuilder::new(&own).optimize().build();
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.schema.fields().len());
        for field in &self.making.own {
            columns.push(own.filter(column(batch, field.name()))?);
        }
        let places: Vec<(usize, usize)> = found
            .iter()
            .map(|found| match found.partner {
                None => (0, 0),
                Some((Place::Before, _)) => (1, 0),
                Some((Place::Here(row), _)) => (2, row),
            })
            .collect();
        for (i, field) in self.making.taken.iter().enumerate() {
            let here = column(batch, field.name());
            let none = new_null_array(here.data_type(), 1);
            let before = self.carried.as_ref().map_or(&none, |carried| &carried[i]);
            let cells: [&dyn Array; 3] = [&none, before, here];
            columns.push(interleave(&cells, &places)?);
        }
        if self.making.age.is_some() {
            let ages = found.iter();
            let ages = ages.map(|found| found.partner.map(|(_, age)| seconds(age)));
            columns.push(Arc::new(ages.collect::<Float64Array>()));
        }
        columns.push(Arc::new(missed(batch, found)));
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), columns)?)
    }
}

/// Keys that rows without a partner were looked up by.
fn missed(batch: &RecordBatch, found: &[Found]) -> StringArray {
    let keys = column(batch, KEY).as_string::<i32>();
    let times = column(batch, TIME).as_primitive::<Int64Type>();
    let looked_up = |row: usize| {
        let key = keys.is_valid(row).then(|| keys.value(row));
        let time = times.is_valid(row).then(|| shown(times.value(row)));
        match (key, time) {
            (Some("") | None, time) => time.unwrap_or_default(),
            (Some(key), Some(time)) => format!("{key} at {time}"),
            (Some(key), None) => key.to_owned(),
        }
    };
    let missed = found.iter();
    let missed = missed.map(|found| found.partner.is_none().then(|| looked_up(found.row)));
    missed.collect()
}

#[expect(clippy::cast_precision_loss, reason = "ages below 285 years are exact")]
fn seconds(micros: i64) -> f64 {
    micros as f64 / 1e6
}

#[cfg(test)]
mod tests;
