//! Cells of one schema version in the type that their column has over all versions, and the numbers that this rounds.

use std::{collections::BTreeMap, fmt::Display, sync::Arc};

use arrow::{
    array::{Array as _, ArrayRef, AsArray as _, Decimal128Array, new_null_array},
    datatypes::{DataType, Float64Type, Int64Type},
};
use feedline_schemas::record::{ColumnType, DECIMAL_PRECISION, DECIMAL_SCALE};

use super::cells::cast_all;
use crate::{
    Error,
    engine::scalar_function::RowFunction as _,
    operators::canonical_text::{self, CanonicalText},
    schema::landed_columns::landed_type,
};

/// Digits of a decimal after its point.
const DIGITS: usize = DECIMAL_SCALE.unsigned_abs() as usize;

/// Numbers that their columns do not hold exactly, by column.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RoundedNumbers(BTreeMap<String, RoundedColumn>);

/// Rounded numbers of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RoundedColumn {
    count: u64,
    first: String,
    /// The type that rounds them.
    r#type: ColumnType,
}

impl RoundedNumbers {
    fn add(&mut self, column: &WidenedColumn<'_>, number: impl Display) {
        if let Some(earlier) = self.0.get_mut(column.name) {
            earlier.count += 1;
            return;
        }
        let first = RoundedColumn {
            count: 1,
            first: number.to_string(),
            r#type: column.to,
        };
        self.0.insert(column.name.to_owned(), first);
    }

    /// Adds the numbers of later rows.
    pub(super) fn append(&mut self, later: Self) {
        for (name, column) in later.0 {
            match self.0.get_mut(&name) {
                Some(earlier) => earlier.count += column.count,
                None => {
                    self.0.insert(name, column);
                }
            }
        }
    }

    /// Each column with its numbers and the remedy, for people.
    pub(super) fn notes(&self) -> Vec<(String, String)> {
        let notes = self.0.iter();
        let notes = notes.map(|(name, column)| (name.clone(), column.note(name)));
        notes.collect()
    }
}

impl RoundedColumn {
    fn note(&self, name: &str) -> String {
        let (numbers, types) = match self.r#type {
            ColumnType::Decimal => (
                format!("floats with more than {DIGITS} digits after the decimal point"),
                "`float` or `text`",
            ),
            ColumnType::ListFloat64 => ("integers beyond 2^53".to_owned(), "`json`"),
            _ => ("integers beyond 2^53".to_owned(), "`decimal` or `text`"),
        };
        let Self { count, first, .. } = self;
        format!(
            "rounded {numbers}: {count}, the first is `{first}`; to export all of their digits, declare \
             `contract.column.{name}.type` as {types}, and ingest again into another root"
        )
    }
}

/// A column whose type in one schema version may be narrower than over all of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct WidenedColumn<'a> {
    pub(super) name: &'a str,
    /// Its type in the version.
    pub(super) from: ColumnType,
    /// Its type over all versions.
    pub(super) to: ColumnType,
}

impl WidenedColumn<'_> {
    /// Casts cells of the version, and adds those that are rounded to `rounded`.
    ///
    /// # Errors
    /// [`Error::Input`] for a float that no decimal holds; [`Error::Arrow`] for another value that the type does not
    /// hold.
    pub(super) fn widen(
        &self,
        cells: &ArrayRef,
        rounded: &mut RoundedNumbers,
    ) -> Result<ArrayRef, Error> {
        let (wanted, rows) = (landed_type(self.to), cells.len());
        if self.from == ColumnType::Null {
            // They are stored as strings, and the engine casts a null string to a list with one null.
            return Ok(new_null_array(&wanted, rows));
        }
        let cells = cast_all(cells, &landed_type(self.from))?;
        if wanted == DataType::Utf8 && canonical_text::is_needed(self.from) {
            return Ok(CanonicalText.call(&[cells], rows)?);
        }
        match (self.from, self.to) {
            (ColumnType::Float64, ColumnType::Decimal) => self.decimals_of(&cells, rounded),
            (ColumnType::Int64, ColumnType::Float64)
            | (ColumnType::ListInt64, ColumnType::ListFloat64) => {
                self.count_rounded(&cells, rounded);
                cast_all(&cells, &wanted)
            }
            _ => cast_all(&cells, &wanted),
        }
    }

    /// Counts the integers, or those in lists, that a float does not hold: the cast of the engine rounds them.
    fn count_rounded(&self, cells: &ArrayRef, rounded: &mut RoundedNumbers) {
        if let DataType::List(_) = cells.data_type() {
            for items in cells.as_list::<i32>().iter().flatten() {
                self.count_rounded(&items, rounded);
            }
            return;
        }
        let integers = cells.as_primitive::<Int64Type>().iter().flatten();
        for integer in integers.filter(|integer| !is_float(*integer)) {
            rounded.add(self, integer);
        }
    }

    /// Floats as decimals with the digits that name them. The cast of the engine multiplies floats, which adds digits.
    fn decimals_of(
        &self,
        cells: &ArrayRef,
        rounded: &mut RoundedNumbers,
    ) -> Result<ArrayRef, Error> {
        let mut units = Vec::with_capacity(cells.len());
        for float in cells.as_primitive::<Float64Type>() {
            let Some(value) = float else {
                units.push(None);
                continue;
            };
            let (number, is_rounded) = units_of(value).ok_or_else(|| self.refuse(value))?;
            if is_rounded {
                rounded.add(self, format_args!("{value:?}"));
            }
            units.push(Some(number));
        }
        let decimals = Decimal128Array::from(units);
        let decimals = decimals.with_precision_and_scale(DECIMAL_PRECISION, DECIMAL_SCALE)?;
        Ok(Arc::new(decimals))
    }

    fn refuse(&self, value: f64) -> Error {
        let name = self.name;
        Error::input(
            format!("column `{name}`"),
            format!(
                "it has {value} in an earlier schema version, which no decimal of its type today holds"
            ),
            format!(
                "declare `contract.column.{name}.type` as `float` or `text`, and ingest again into another root"
            ),
        )
    }
}

/// Returns true if a float holds the integer exactly: its digits in base 2, without zeros at the end, are 53 at most.
const fn is_float(integer: i64) -> bool {
    let size = integer.unsigned_abs();
    size.leading_zeros() + size.trailing_zeros() >= u64::BITS - f64::MANTISSA_DIGITS
}

/// A float in units of a decimal's last digit, from its shortest digits, rounded to nearest, and true if that drops
/// digits; `None` if no decimal holds it.
fn units_of(value: f64) -> Option<(i128, bool)> {
    let text = format!("{value}");
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.as_str()),
    };
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let first = part.get(..DIGITS).unwrap_or(part);
    let is_up = part
        .as_bytes()
        .get(DIGITS)
        .is_some_and(|next| *next >= b'5');
    let units: i128 = format!("{whole}{first:0<DIGITS$}").parse().ok()?;
    let units = units + i128::from(is_up);
    let is_held = units < 10_i128.pow(DECIMAL_PRECISION.into());
    is_held.then_some((sign * units, part.len() > DIGITS))
}

#[cfg(test)]
mod tests {
    use arrow::array::{Float64Array, Int64Array, Int64Builder, ListBuilder, StringArray};

    use super::*;

    /// Widens `cells`, and returns them with the notes.
    fn widen(
        cells: ArrayRef,
        [from, to]: [ColumnType; 2],
    ) -> Result<(ArrayRef, Vec<String>), Error> {
        let mut rounded = RoundedNumbers::default();
        let name = "a";
        let widened = WidenedColumn { name, from, to }.widen(&cells, &mut rounded)?;
        assert_eq!(widened.data_type(), &landed_type(to));
        let notes = rounded.notes().into_iter().map(|(name, note)| {
            assert_eq!(name, "a");
            note
        });
        Ok((widened, notes.collect()))
    }

    #[test]
    fn nulls_of_a_column_without_values_stay_nulls_in_every_type() {
        use ColumnType::{
            Binary, Bool, Decimal, Float64, Int64, Json, List, ListBool, ListFloat64, ListInt64,
            ListUtf8, Null, Timestamp, Utf8,
        };
        for to in [
            Null,
            Bool,
            Int64,
            Float64,
            Decimal,
            Timestamp,
            Utf8,
            List,
            ListBool,
            ListInt64,
            ListFloat64,
            ListUtf8,
            Json,
            Binary,
        ] {
            let cells: ArrayRef = Arc::new(StringArray::from(vec![None::<&str>; 2]));
            let (widened, notes) = widen(cells, [Null, to]).unwrap();
            assert_eq!((widened.len(), widened.null_count()), (2, 2), "{to:?}");
            assert!(notes.is_empty(), "{notes:?}");
        }
    }

    #[test]
    fn integers_that_floats_round_are_counted_with_the_remedy() {
        const BIG: i64 = (1 << 53) + 1;
        let types = [ColumnType::Int64, ColumnType::Float64];
        let exact = vec![
            Some(1_i64 << 53),
            None,
            Some(1_i64 << 60),
            Some(i64::MIN),
            Some(0),
        ];
        let (widened, notes) = widen(Arc::new(Int64Array::from(exact)), types).unwrap();
        assert_eq!((widened.null_count(), notes.len()), (1, 0), "{notes:?}");
        let some = vec![Some(BIG), None, Some(7), Some(-BIG), Some(i64::MAX)];
        let (_, notes) = widen(Arc::new(Int64Array::from(some)), types).unwrap();
        let expected = "rounded integers beyond 2^53: 3, the first is `9007199254740993`; \
                        to export all of their digits, declare `contract.column.a.type` as `decimal` or `text`, \
                        and ingest again into another root";
        assert_eq!(notes, [expected]);
        let mut lists = ListBuilder::new(Int64Builder::new());
        lists.append_value([Some(BIG), None, Some(1)]);
        lists.append_null();
        lists.append_value([Some(-BIG)]);
        let types = [ColumnType::ListInt64, ColumnType::ListFloat64];
        let (widened, notes) = widen(Arc::new(lists.finish()), types).unwrap();
        assert_eq!(widened.null_count(), 1);
        assert!(notes[0].contains(": 2, the first is `9007199254740993`;"));
        assert!(notes[0].contains("as `json`,"), "{notes:?}");
    }

    #[test]
    fn rounded_numbers_of_several_files_are_added() {
        let rounded = |number: i64| {
            let mut rounded = RoundedNumbers::default();
            let column = WidenedColumn {
                name: "a",
                from: ColumnType::Int64,
                to: ColumnType::Float64,
            };
            rounded.add(&column, number);
            rounded.add(&column, 0);
            rounded
        };
        let mut all = RoundedNumbers::default();
        all.append(rounded(5));
        all.append(rounded(6));
        let notes = all.notes();
        assert!(
            notes[0].1.contains(": 4, the first is `5`;") && notes.len() == 1,
            "{notes:?}"
        );
    }

    #[test]
    fn floats_become_decimals_with_the_digits_that_name_them() {
        const ONE: i128 = 10_i128.pow(18);
        for (value, expected) in [
            (0.0, Some((0, false))),
            (-2.5, Some((-5 * ONE / 2, false))),
            (1_234_567.891, Some((1_234_567_891 * ONE / 1000, false))),
            (0.1, Some((ONE / 10, false))),
            (1e-18, Some((1, false))),
            (5e-19, Some((1, true))),
            (4e-19, Some((0, true))),
            (
                9_007_199_254_740_992.0,
                Some((9_007_199_254_740_992 * ONE, false)),
            ),
            (1e19, Some((10 * ONE * ONE, false))),
            (1e20, None),
            (1e300, None),
            (f64::NAN, None),
            (f64::NEG_INFINITY, None),
        ] {
            assert_eq!(units_of(value), expected, "{value}");
        }
    }

    #[test]
    fn floats_that_decimals_round_are_counted_and_others_are_errors_that_name_them() {
        let types = [ColumnType::Float64, ColumnType::Decimal];
        let cells: ArrayRef = Arc::new(Float64Array::from(vec![Some(1.5), None]));
        let (decimals, notes) = widen(cells, types).unwrap();
        assert_eq!((decimals.null_count(), notes.len()), (1, 0), "{notes:?}");
        let cells: ArrayRef = Arc::new(Float64Array::from(vec![0.5, 1e-19]));
        let (_, notes) = widen(cells, types).unwrap();
        let expected = "rounded floats with more than 18 digits after the decimal point: 1, the first is `1e-19`; ";
        assert!(notes[0].starts_with(expected), "{notes:?}");
        let cells: ArrayRef = Arc::new(Float64Array::from(vec![f64::NAN]));
        let error = widen(cells, types).unwrap_err().to_string();
        assert!(
            error.contains("column `a`") && error.contains("NaN"),
            "{error}"
        );
    }
}
