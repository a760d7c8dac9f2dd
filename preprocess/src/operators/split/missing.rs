//! Rows without a key: each is a group of its own, since nothing shows that two of them are of one
//! entity.
//!
//! A key is missing where all of its columns are. Of several columns the known ones still hold rows
//! together: to put those into several splits would leak.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, BooleanArray, FixedSizeBinaryArray},
    datatypes::{DataType, Float64Type, Int64Type},
};
use datafusion::{
    error::Result,
    logical_expr::{Expr, ident, lit, when},
};
use serde::{Deserialize, Serialize};

use crate::{
    engine::scalar_function::RowFunction,
    operators::{
        coerce::{Missing, to_float},
        dedup::content_hash::HASH_BYTES,
    },
    schema::reject_reason::Reason,
};

/// Test of a row for a value in any of the columns of a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct HasKey(pub(crate) Missing);

impl RowFunction for HasKey {
    const NAME: &'static str = "feedline_has_key";
    const RETURNS: DataType = DataType::Boolean;

    fn call(&self, columns: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        Ok(Arc::new(BooleanArray::from(have_key(
            &self.0, columns, rows,
        ))))
    }
}

impl HasKey {
    /// Tests a row for a value in one of the `names`, which its schema version has.
    pub(crate) fn of(self, names: &[&str]) -> Expr {
        match names {
            [] => lit(false),
            names => self.over(names.iter().copied().map(ident).collect()),
        }
    }
}

/// Group of a row: the hash of its key, or that of its content where it has none.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct KeyGroup(pub(crate) Missing);

impl RowFunction for KeyGroup {
    const NAME: &'static str = "feedline_key_group";
    const RETURNS: DataType = DataType::FixedSizeBinary(HASH_BYTES);

    fn call(&self, columns: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        let have = have_key(&self.0, &columns[2..], rows);
        if have.iter().all(|has| *has) {
            return Ok(Arc::clone(&columns[0]));
        }
        let [keys, contents] = [&columns[0], &columns[1]].map(|c| c.as_fixed_size_binary());
        let groups = have.iter().enumerate().map(|(row, has)| match has {
            true => keys.value(row),
            false => contents.value(row),
        });
        Ok(Arc::new(FixedSizeBinaryArray::try_from_iter(groups)?))
    }
}

/// `rejected`, and rows that have none of the columns `names` of a key, for `reason`; `known` are those that the schema
/// version of the row has.
pub(crate) fn reject(
    rejected: Expr,
    (names, known): (&[String], &[&str]),
    missing: Missing,
    reason: &str,
) -> Result<Expr> {
    let reason = Reason {
        reason: reason.to_owned(),
        column: names.join(", "),
        value: "no value".to_owned(),
    };
    let has_none = HasKey(missing).of(known).is_false();
    when(
        has_none.and(rejected.clone().is_null()),
        lit(reason.to_json()),
    )
    .otherwise(rejected)
}

/// Returns which rows have a value in any of `cells`.
pub(crate) fn have_key(missing: &Missing, cells: &[ArrayRef], rows: usize) -> Vec<bool> {
    let mut have = vec![false; rows];
    for cell in cells {
        let is_value: Box<dyn Fn(usize) -> bool> = match cell.data_type() {
            DataType::Utf8 => {
                let texts = cell.as_string::<i32>();
                Box::new(|row| !missing.text(texts.value(row)))
            }
            DataType::Float64 => {
                let numbers = cell.as_primitive::<Float64Type>();
                Box::new(|row| !missing.number(numbers.value(row)))
            }
            DataType::Int64 => {
                let numbers = cell.as_primitive::<Int64Type>();
                Box::new(|row| !missing.number(to_float(numbers.value(row))))
            }
            _ => Box::new(|_| true),
        };
        for (row, has) in have.iter_mut().enumerate() {
            *has = *has || (cell.is_valid(row) && is_value(row));
        }
    }
    have
}

#[cfg(test)]
mod tests {
    use arrow::array::{Float64Array, Int64Array, StringArray};

    use super::*;

    #[test]
    fn a_row_has_a_key_where_any_of_its_columns_has_a_value() {
        let missing = Missing::new(&["N/A".to_owned()], &[-1.0]);
        let texts: ArrayRef = Arc::new(StringArray::from(vec![
            None,
            Some(" "),
            Some("N/A"),
            Some("p1"),
            None,
            None,
        ]));
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![
            None,
            Some(-1),
            None,
            None,
            Some(7),
            None,
        ]));
        let floats: ArrayRef = Arc::new(Float64Array::from(vec![f64::NAN; 6]));
        let have = have_key(&missing, &[texts, numbers, floats], 6);
        assert_eq!(have, [false, false, false, true, true, false]);
        assert_eq!(have_key(&missing, &[], 2), [false, false]);
    }
}
