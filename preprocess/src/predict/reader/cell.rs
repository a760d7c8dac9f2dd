//! A cell of a new row as the landed column would hold it, then as the build reads that column.
//!
//! A cell of a file and the value of a column differ: the CSV cell `5.0` is the number 5 in a
//! column of numbers and stays `5.0` in one of text, and so do the categories. So a cell is read
//! with the landed type of the column that the transform was fitted on. A cell that could not land
//! there rejects its row, as it does in ingest.

use std::{borrow::Cow, sync::Arc};

use arrow::array::{ArrayRef, Float64Builder, StringBuilder};
use feedline_schemas::{
    number::MAX_EXACT,
    transform::{InputColumn, InputKind, NumberSigns},
};

use super::{
    fault::Fault,
    held::{Conflict, Held, LandedAs},
    raw_cell::Raw,
    written::{Read, Written},
};
use crate::{
    operators::{
        coerce::{Missing, float_text, is_large_integer, to_float},
        number_format,
    },
    schema::reject_reason::{self, SHOWN},
};

/// Reason for rejecting a row with a cell that its column cannot hold; ingest uses the same name.
const TYPE_CONFLICT: &str = "type_conflict";

/// Cells of a column that have a value and were read as missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unread {
    pub(super) cells: u64,
    /// The first of them.
    pub(super) example: String,
}

/// An input column that grows row by row.
#[derive(Debug)]
pub(super) struct Input {
    pub(super) name: String,
    landed: LandedAs,
    written: Written,
    conflict: Conflict,
    missing: Missing,
    signs: Option<NumberSigns>,
    cells: Cells,
    /// True if the last cell was missing.
    pub(super) lacks: bool,
    /// Cells lost so far, in all rows.
    pub(super) unread: Option<Unread>,
}

#[derive(Debug)]
enum Cells {
    Numbers(Float64Builder),
    Texts(StringBuilder),
}

impl Input {
    pub(super) fn new(
        input: &InputColumn,
        (landed, conflict): (LandedAs, Conflict),
        missing: Missing,
        signs: Option<NumberSigns>,
    ) -> Self {
        Self {
            name: input.name.clone(),
            landed,
            written: Written::default(),
            conflict,
            missing,
            signs,
            cells: match input.kind {
                InputKind::Numeric => Cells::Numbers(Float64Builder::new()),
                InputKind::Categorical => Cells::Texts(StringBuilder::new()),
            },
            lacks: false,
            unread: None,
        }
    }

    /// Sets the format of the cells.
    pub(super) fn written(mut self, written: Written) -> Self {
        self.written = written;
        self
    }

    /// Adds a cell; says what is wrong with it where its row cannot be used.
    pub(super) fn push(&mut self, raw: &Raw<'_>) -> Option<Fault> {
        let read = self.written.read(self.landed, raw);
        let number;
        let read = match &read {
            Read::AsItIs => Some(raw),
            Read::By(other) => Some(other),
            Read::Number(text) => {
                number = Raw::Cell(text);
                Some(&number)
            }
            Read::Conflict => None,
        };
        let held = read.and_then(|raw| self.landed.hold(raw));
        let is_conflict = held.is_none();
        let held = held.unwrap_or(Held::Missing);
        let mut fault =
            (is_conflict && self.conflict == Conflict::Reject).then(|| self.type_conflict(raw));
        let mut is_unread = is_conflict && fault.is_none();
        let missing = &self.missing;
        match &mut self.cells {
            Cells::Numbers(cells) => {
                let large = large_integer(&held, missing);
                fault = fault.or_else(|| large.map(|value| too_large(&self.name, &value)));
                let cell = numeric(&held, missing, self.signs);
                is_unread |= is_no_number(&held, missing, self.signs);
                self.lacks = cell.is_none();
                cells.append_option(cell);
            }
            Cells::Texts(cells) => {
                let cell = category(held, missing);
                self.lacks = cell.is_none();
                cells.append_option(cell);
            }
        }
        if is_unread {
            self.note_unread(raw);
        }
        fault
    }

    fn type_conflict(&self, raw: &Raw<'_>) -> Fault {
        let name = &self.name;
        let detail = match raw {
            Raw::Nested(what) => {
                format!("column `{name}` is {what}, a number or text should be there")
            }
            _ => {
                let is_float = self.landed == LandedAs::Float && self.written.noun().is_none();
                let (limits, kind) = match is_float && raw.is_long_integer() {
                    true => (
                        ", which holds no integer beyond 2^53 exactly (`decimal` or `text` does)",
                        "an integer",
                    ),
                    false => ("", raw.kind()),
                };
                format!(
                    "column `{name}` is {}{limits}, the value is {kind} `{}`",
                    self.written.noun().unwrap_or(self.landed.noun()),
                    raw.shown()
                )
            }
        };
        Fault {
            is_unread_time: self.written.is_time() && matches!(raw, Raw::Text(_) | Raw::Cell(_)),
            ..Fault::new(TYPE_CONFLICT, detail)
        }
    }

    fn note_unread(&mut self, raw: &Raw<'_>) {
        let unread = self.unread.get_or_insert_with(|| Unread {
            cells: 0,
            example: match raw {
                Raw::Nested(what) => (*what).to_owned(),
                _ => raw.shown(),
            },
        });
        unread.cells += 1;
    }

    /// Takes the cells, which leaves none.
    pub(super) fn take(&mut self) -> ArrayRef {
        match &mut self.cells {
            Cells::Numbers(cells) => Arc::new(cells.finish()),
            Cells::Texts(cells) => Arc::new(cells.finish()),
        }
    }
}

/// The integer that is beyond all that are floats. A decimal with a fraction is rounded, whatever its size.
fn large_integer(held: &Held<'_>, missing: &Missing) -> Option<String> {
    let is_large = match held {
        Held::Int(value) => value.unsigned_abs() > MAX_EXACT && !missing.number(to_float(*value)),
        Held::Text(text) => is_large_integer(text, missing),
        Held::Decimal(digits) => is_large_integer(digits, missing),
        Held::Missing | Held::Bool(_) | Held::Float(_) => false,
    };
    let shown = || match held {
        Held::Text(text) => text.trim().chars().take(SHOWN).collect(),
        Held::Int(value) => value.to_string(),
        Held::Decimal(digits) => digits.clone(),
        _ => String::new(),
    };
    is_large.then(shown)
}

fn too_large(name: &str, value: &str) -> Fault {
    let detail = format!("column `{name}`: `{value}` is beyond 2^53");
    Fault::new(reject_reason::INTEGER_TOO_LARGE, detail)
}

/// Returns true for text that the build makes missing although it is not declared as a null value.
fn is_no_number(held: &Held<'_>, missing: &Missing, signs: Option<NumberSigns>) -> bool {
    match held {
        Held::Text(text) => !missing.text(text) && number_format::number(text, signs).is_none(),
        _ => false,
    }
}

/// As [`crate::operators::coerce::Numeric`] reads the landed column.
fn numeric(held: &Held<'_>, missing: &Missing, signs: Option<NumberSigns>) -> Option<f64> {
    let number = match held {
        Held::Missing => None,
        Held::Bool(value) => Some(f64::from(u8::from(*value))),
        Held::Int(value) => Some(to_float(*value)),
        Held::Float(value) => Some(*value),
        Held::Text(text) if missing.text(text) => None,
        Held::Decimal(digits) if missing.text(digits) => None,
        Held::Text(text) => number_format::number(text, signs),
        // Signs are those of texts.
        Held::Decimal(digits) => number_format::number(digits, None),
    };
    number.filter(|number| !missing.number(*number))
}

/// As [`crate::operators::coerce::Category`] reads it.
fn category<'a>(held: Held<'a>, missing: &Missing) -> Option<Cow<'a, str>> {
    match held {
        Held::Missing => None,
        Held::Bool(value) => Some(value.to_string().into()),
        Held::Int(value) => (!missing.number(to_float(value))).then(|| value.to_string().into()),
        Held::Float(value) => (!missing.number(value)).then(|| float_text(value).into()),
        Held::Text(text) => (!missing.text(&text)).then_some(text),
        Held::Decimal(digits) => (!missing.text(&digits)).then(|| digits.into()),
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array, AsArray, Float64Array, Int64Array, StringArray};
    use arrow::datatypes::Float64Type;
    use proptest::prelude::*;

    use super::{super::raw_cell::quoted, *};
    use crate::{
        engine::scalar_function::RowFunction,
        operators::coerce::{Category, Numeric},
    };

    const INTEGER: LandedAs = LandedAs::Integer { is_final: false };

    fn missing() -> Missing {
        Missing::new(&["N/A".into()], &[-200.0])
    }

    fn input(kind: InputKind, landed: LandedAs) -> Input {
        let column = InputColumn {
            name: "c".into(),
            kind,
        };
        Input::new(&column, (landed, Conflict::Reject), missing(), None)
    }

    fn numbers(
        landed: LandedAs,
        cells: &[Raw<'_>],
    ) -> (Vec<Option<f64>>, Vec<Option<&'static str>>) {
        let mut input = input(InputKind::Numeric, landed);
        let faults = cells
            .iter()
            .map(|cell| input.push(cell).map(|fault| fault.reason));
        let faults = faults.collect();
        let found = input.take();
        (found.as_primitive::<Float64Type>().iter().collect(), faults)
    }

    fn texts(landed: LandedAs, cells: &[Raw<'_>]) -> Vec<Option<String>> {
        let mut input = input(InputKind::Categorical, landed);
        for cell in cells {
            input.push(cell);
        }
        let found = input.take();
        let found = found.as_string::<i32>().iter();
        found.map(|cell| cell.map(str::to_owned)).collect()
    }

    #[test]
    fn a_cell_is_the_category_that_its_landed_column_makes_of_it() {
        let cells = ["5", "5.0", " 5 ", "05", "true", "N/A", "-200"].map(Raw::Cell);
        let owned = |cells: [Option<&str>; 7]| cells.map(|cell| cell.map(str::to_owned)).to_vec();
        let some = |cells: [&'static str; 5]| cells.map(Some);
        let [a, b, c, d, e] = some(["5", "5", "5", "05", "true"]);
        assert_eq!(
            texts(LandedAs::LikelyNumber, &cells),
            owned([a, b, c, d, e, None, None])
        );
        for landed in [INTEGER, LandedAs::Float] {
            let expected = owned([a, b, c, None, None, None, None]);
            assert_eq!(texts(landed, &cells), expected, "{landed:?}");
        }
        let [a, b, c, d, e] = some(["5", "5.0", " 5 ", "05", "true"]);
        let expected = owned([a, b, c, d, e, None, Some("-200")]);
        assert_eq!(texts(LandedAs::Text, &cells), expected);
        assert_eq!(
            texts(LandedAs::Bool, &[Raw::Cell("TRUE")]),
            [Some("true".to_owned())]
        );
    }

    #[test]
    fn numbers_that_no_float_holds_set_their_row_aside() {
        let large = Raw::Int((1 << 53) + 1);
        let faults = numbers(INTEGER, &[large.clone(), Raw::Int(1 << 53)]).1;
        assert_eq!(faults, [Some("integer_too_large"), None]);
        let faults = numbers(LandedAs::Float, &[large.clone(), Raw::Int(1 << 53)]).1;
        assert_eq!(faults, [Some("type_conflict"), None]);
        let fraction = Raw::Cell("9007199254740993.5");
        let faults = numbers(LandedAs::Decimal, &[large, fraction]).1;
        assert_eq!(faults, [Some("integer_too_large"), None]);
        for text in ["9007199254740993", "90071992547409930000000"] {
            for landed in [LandedAs::Text, LandedAs::Scalar] {
                let faults = numbers(landed, &[Raw::Text(text.into()), Raw::Cell(text)]).1;
                assert_eq!(faults, [Some("integer_too_large"); 2], "{landed:?} {text}");
            }
        }
        let nested = numbers(INTEGER, &[Raw::Nested("a list")]);
        assert_eq!(nested, (vec![None], vec![Some("type_conflict")]));
    }

    /// Cells that do not fit a column of each type, as in the table of ingest's contract.
    #[test]
    fn a_cell_has_a_place_where_ingest_would_land_it_and_nowhere_else() {
        let conflicts = |landed: LandedAs, cells: &[Raw<'static>]| -> Vec<String> {
            let cells = cells.iter().filter(|cell| landed.hold(cell).is_none());
            cells.map(Raw::shown).collect()
        };
        let typed = [
            Raw::Null,
            Raw::Bool(false),
            Raw::Int(2),
            Raw::Float(2.0),
            Raw::Float(2.5),
            Raw::Float(-0.0),
            Raw::Float(f64::NAN),
            Raw::Int((1 << 53) + 1),
            Raw::Text("12".into()),
            Raw::Text("1.5".into()),
            Raw::Text(" 12".into()),
            Raw::Text("false".into()),
            Raw::Text("12,5".into()),
            Raw::Text("".into()),
        ];
        let texts = ["\" 12\"", "\"false\"", "\"12,5\"", "\"\""];
        let all = |more: &[&'static str]| [more, &texts].concat();
        let fixed = LandedAs::Integer { is_final: true };
        for (landed, expected) in [
            (INTEGER, all(&["false", "\"1.5\""])),
            (fixed, all(&["false", "2.5", "-0.0", "NaN", "\"1.5\""])),
            (LandedAs::Float, all(&["false", "9007199254740993"])),
            (LandedAs::Decimal, all(&["false", "-0.0", "NaN"])),
            (LandedAs::Text, vec![]),
            (LandedAs::Scalar, vec![]),
            (LandedAs::LikelyBool, vec![]),
        ] {
            assert_eq!(conflicts(landed, &typed), expected, "{landed:?}");
        }
        assert_eq!(conflicts(LandedAs::Bool, &typed).len(), typed.len() - 2);

        let cells = [
            "false", "FALSE", "no", "f", "0", " 2.5 ", "1e3", "x", "012", "+1",
        ];
        let cells = cells.map(Raw::Cell);
        let quoted = |texts: &[&str]| texts.iter().map(|text| quoted(text)).collect::<Vec<_>>();
        let odd = ["no", "f", "0", " 2.5 ", "1e3", "x", "012", "+1"];
        assert_eq!(conflicts(LandedAs::Bool, &cells), quoted(&odd));
        let odd = ["false", "FALSE", "no", "f", "x", "012", "+1"];
        for landed in [LandedAs::Float, LandedAs::Decimal] {
            assert_eq!(conflicts(landed, &cells), quoted(&odd), "{landed:?}");
        }
        let odd = ["false", "FALSE", "no", "f", "1e3", "x", "012", "+1"];
        assert_eq!(conflicts(INTEGER, &cells), quoted(&odd));
        let odd = [
            "false", "FALSE", "no", "f", " 2.5 ", "1e3", "x", "012", "+1",
        ];
        assert_eq!(conflicts(fixed, &cells), quoted(&odd));
        assert!(conflicts(LandedAs::Text, &cells).is_empty());
    }

    #[test]
    fn a_decimal_is_its_digits_as_the_build_reads_them() {
        let cells = [
            Raw::Cell("18446744073709551615.50"),
            Raw::Float(0.1),
            Raw::Int(-200),
            Raw::Text("N/A".into()),
        ];
        let owned = |text: &str| Some(text.to_owned());
        let expected = [
            owned("18446744073709551615.5"),
            owned("0.1"),
            owned("-200"),
            None,
        ];
        assert_eq!(texts(LandedAs::Decimal, &cells), expected);
        let found = numbers(LandedAs::Decimal, &cells);
        assert_eq!(
            found.0,
            [Some(18_446_744_073_709_551_616.0), Some(0.1), None, None]
        );
        assert_eq!(found.1, [None, None, None, Some("type_conflict")]);
    }

    #[test]
    fn what_stands_in_a_text_column_and_is_no_number_is_missing_and_counted() {
        let mut input = input(InputKind::Numeric, LandedAs::Text);
        for cell in ["1", "x", "N/A", "", "y"] {
            assert_eq!(input.push(&Raw::Cell(cell)), None);
        }
        let example = "\"x\"".to_owned();
        assert_eq!(input.unread, Some(Unread { cells: 2, example }));
    }

    #[test]
    fn a_contract_that_nulls_conflicts_makes_cells_missing_and_one_that_does_not_rejects() {
        let contract = |text: &str| -> feedline_schemas::config::ContractConfig {
            serde_json::from_str(text).unwrap()
        };
        let nulls = contract(r#"{"types":"null_value"}"#);
        let own = contract(r#"{"column":{"c":{"types":"null_value"}}}"#);
        let plain = contract("{}");
        assert_eq!(Conflict::of(&[], "c"), Conflict::Reject);
        assert_eq!(
            Conflict::of(&[nulls.clone(), own.clone()], "c"),
            Conflict::Null
        );
        assert_eq!(Conflict::of(&[nulls.clone(), plain], "c"), Conflict::Reject);
        assert_eq!(Conflict::of(&[own], "d"), Conflict::Reject);
        let column = InputColumn {
            name: "c".into(),
            kind: InputKind::Numeric,
        };
        let mut input = Input::new(&column, (LandedAs::Bool, Conflict::Null), missing(), None);
        assert_eq!(input.push(&Raw::Int(2)), None);
        assert!(input.lacks);
        let example = "2".to_owned();
        assert_eq!(input.unread, Some(Unread { cells: 1, example }));
    }

    #[test]
    fn unknown_types_follow_the_known_categories() {
        let of = |values: &[&str]| {
            let values: Vec<String> = values.iter().map(|v| (*v).to_owned()).collect();
            LandedAs::of_values(&values)
        };
        assert_eq!(of(&["true"]), LandedAs::LikelyBool);
        assert_eq!(of(&["5", "2.5"]), LandedAs::LikelyNumber);
        assert_eq!(of(&["5", "05"]), LandedAs::Text);
        assert_eq!(of(&[]), LandedAs::Text);
    }

    proptest! {
        /// The landed column read by the build and the cell read here are the same.
        #[test]
        fn numbers_are_read_as_the_build_reads_them(
            ints in prop::collection::vec(prop::option::of(prop_oneof![-300_i64..300, any::<i32>().prop_map(i64::from)]), 1..20),
            floats in prop::collection::vec(prop::option::of(prop_oneof![any::<f64>(), (-300_i32..300).prop_map(f64::from)]), 1..20),
            words in prop::collection::vec(prop::option::of("[ ]?(N/A|-?[0-9]{1,3}(\\.[0-9])?|[a-z]{0,2}|inf|1e5)[ ]?"), 1..20),
        ) {
            fn check(landed: LandedAs, column: ArrayRef, raws: &[Raw<'_>]) -> Result<(), TestCaseError> {
                let expected = Numeric(missing(), None).call(&[Arc::clone(&column)], column.len()).unwrap();
                let expected: Vec<Option<u64>> = expected.as_primitive::<Float64Type>().iter().map(|x| x.map(f64::to_bits)).collect();
                let found: Vec<Option<u64>> = numbers(landed, raws).0.into_iter().map(|x| x.map(f64::to_bits)).collect();
                prop_assert_eq!(found, expected);
                let expected = Category(missing()).call(&[Arc::clone(&column)], column.len()).unwrap();
                let expected: Vec<Option<String>> = expected.as_string::<i32>().iter().map(|x| x.map(str::to_owned)).collect();
                prop_assert_eq!(texts(landed, raws), expected);
                Ok(())
            }
            let raws: Vec<Raw<'_>> = ints.iter().map(|x| x.map_or(Raw::Null, Raw::Int)).collect();
            check(INTEGER, Arc::new(Int64Array::from(ints.clone())), &raws)?;
            let raws: Vec<Raw<'_>> = floats.iter().map(|x| x.map_or(Raw::Null, Raw::Float)).collect();
            check(LandedAs::Float, Arc::new(Float64Array::from(floats.clone())), &raws)?;
            let raws: Vec<Raw<'_>> = words.iter().map(|x| x.as_deref().map_or(Raw::Null, Raw::Cell)).collect();
            check(LandedAs::Text, Arc::new(StringArray::from(words.clone())), &raws)?;
        }
    }
}
