//! A cell of a new row as the landed column would hold it, then as the build reads that column.
//!
//! What a file says and what a column holds differ: the CSV cell `5.0` is the number 5 in a column of numbers and stays
//! `5.0` in one of text, and so do the categories. So a cell is read as the column landed that the transform was fitted on.

use std::{borrow::Cow, sync::Arc};

use arrow::array::{ArrayRef, Float64Builder, StringBuilder};
use feedline_schemas::{
    record::ColumnType,
    transform::{FittedStep, InputColumn, InputKind, NumberSigns, TransformArtefact},
};

use super::Fault;
use crate::{
    signs,
    typing::{EXACT, Missing, SHOWN, float_text, is_large_integer, reason},
};

/// A cell as a file has it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Raw<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    /// Text that the file says is text; a number beyond 64 bits is one too.
    Text(Cow<'a, str>),
    /// Text whose type the file does not tell.
    Cell(&'a str),
    /// Something that no such column holds.
    Nested(&'static str),
}

impl Raw<'_> {
    /// The cell as text, to be carried along; none where there is no value.
    pub(super) fn carried(&self) -> Option<String> {
        match self {
            Self::Null | Self::Nested(_) => None,
            Self::Bool(value) => Some(value.to_string()),
            Self::Int(value) => Some(value.to_string()),
            Self::Float(value) => Some(format!("{value:?}")),
            Self::Text(text) => Some(text.clone().into_owned()),
            Self::Cell(text) => Some((*text).to_owned()),
        }
    }
}

/// What the column holds that the cell would land in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LandedAs {
    /// 64-bit numbers.
    Number,
    /// Numbers of any size.
    Decimal,
    Bool,
    Text,
    /// It is not known: numbers or booleans, whatever the cell looks like.
    Scalar,
    /// It is not known, and texts have signs of their own: what stands there as text is read by them.
    Written,
}

impl LandedAs {
    /// Of the column of this type, or as the artefact lets guess it.
    pub(super) fn of(
        column: Option<ColumnType>,
        input: &InputColumn,
        artefact: &TransformArtefact,
    ) -> Self {
        match column {
            Some(ColumnType::Int64 | ColumnType::Float64) => Self::Number,
            Some(ColumnType::Decimal) => Self::Decimal,
            Some(ColumnType::Bool) => Self::Bool,
            Some(ColumnType::Null) | None if input.kind == InputKind::Numeric => {
                match artefact.signs {
                    Some(_) => Self::Written,
                    None => Self::Scalar,
                }
            }
            Some(ColumnType::Null) | None => Self::of_values(&known(artefact, &input.name)),
            Some(_) => Self::Text,
        }
    }

    /// By known categories, which are written as their column's type writes them.
    fn of_values(known: &[String]) -> Self {
        let all = |is: &dyn Fn(&String) -> bool| !known.is_empty() && known.iter().all(is);
        if all(&|value| value == "true" || value == "false") {
            Self::Bool
        } else if all(&|value| {
            value
                .parse::<f64>()
                .is_ok_and(|number| float_text(number) == *value)
        }) {
            Self::Number
        } else {
            Self::Text
        }
    }

    /// The cell as such a column holds it, or as one that became text because of it.
    fn hold<'a>(self, raw: &'a Raw<'_>) -> Held<'a> {
        let text = |text: &'a str| Held::Text(Cow::Borrowed(text));
        match (self, raw) {
            (_, Raw::Null | Raw::Nested(_)) => Held::Missing,
            (Self::Bool | Self::Scalar | Self::Written, Raw::Bool(value)) => Held::Bool(*value),
            (_, Raw::Bool(value)) => Held::Text(value.to_string().into()),
            (Self::Text | Self::Bool, Raw::Int(value)) => Held::Text(value.to_string().into()),
            (Self::Text | Self::Bool, Raw::Float(value)) => Held::Text(format!("{value:?}").into()),
            (_, Raw::Int(value)) => Held::Int(*value),
            (_, Raw::Float(value)) => Held::Float(*value),
            (Self::Text | Self::Bool | Self::Written, Raw::Text(value)) => text(value),
            (_, Raw::Text(value)) => number(value).unwrap_or_else(|| text(value)),
            (Self::Text, Raw::Cell(value)) => text(value),
            (Self::Bool | Self::Written, Raw::Cell(value)) => {
                boolean(value).unwrap_or_else(|| text(value))
            }
            (Self::Scalar, Raw::Cell(value)) => {
                let held = number(value.trim()).or_else(|| boolean(value));
                held.unwrap_or_else(|| text(value))
            }
            (_, Raw::Cell(value)) => number(value.trim()).unwrap_or_else(|| text(value)),
        }
    }
}

fn known(artefact: &TransformArtefact, name: &str) -> Vec<String> {
    let columns = artefact.steps.iter().filter_map(|step| match step {
        FittedStep::Categories { columns } => columns.iter().find(|column| column.name == name),
        _ => None,
    });
    columns.flat_map(|column| column.values.clone()).collect()
}

/// What the landed column holds.
#[derive(Clone, Debug, PartialEq)]
enum Held<'a> {
    Missing,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(Cow<'a, str>),
}

/// Text that JSON would read as a 64-bit number.
fn number(text: &str) -> Option<Held<'static>> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let whole = digits.bytes().take_while(u8::is_ascii_digit).count();
    if whole == 0 || (whole > 1 && digits.starts_with('0')) {
        return None;
    }
    let rest = &digits[whole..];
    if rest.is_empty() {
        // -0 is no integer.
        return match text.parse() {
            Ok(0) if text.starts_with('-') => Some(Held::Float(-0.0)),
            value => value.ok().map(Held::Int),
        };
    }
    let (part, power) = match rest.find(['e', 'E']) {
        Some(at) => (&rest[..at], Some(&rest[at + 1..])),
        None => (rest, None),
    };
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let part_is_fine = part.is_empty() || part.strip_prefix('.').is_some_and(is_digits);
    let power_is_fine =
        power.is_none_or(|power| is_digits(power.strip_prefix(['+', '-']).unwrap_or(power)));
    let value: f64 = (part_is_fine && power_is_fine)
        .then(|| text.parse().ok())
        .flatten()?;
    value.is_finite().then_some(Held::Float(value))
}

fn boolean(text: &str) -> Option<Held<'static>> {
    match text.trim() {
        "true" | "True" | "TRUE" => Some(Held::Bool(true)),
        "false" | "False" | "FALSE" => Some(Held::Bool(false)),
        _ => None,
    }
}

/// An input column that grows row by row.
#[derive(Debug)]
pub(super) struct Input {
    pub(super) name: String,
    landed: LandedAs,
    missing: Missing,
    signs: Option<NumberSigns>,
    cells: Cells,
    /// Whether the last cell was missing.
    pub(super) lacks: bool,
}

#[derive(Debug)]
enum Cells {
    Numbers(Float64Builder),
    Texts(StringBuilder),
}

impl Input {
    pub(super) fn new(
        input: &InputColumn,
        landed: LandedAs,
        missing: Missing,
        signs: Option<NumberSigns>,
    ) -> Self {
        Self {
            name: input.name.clone(),
            landed,
            missing,
            signs,
            cells: match input.kind {
                InputKind::Numeric => Cells::Numbers(Float64Builder::new()),
                InputKind::Categorical => Cells::Texts(StringBuilder::new()),
            },
            lacks: false,
        }
    }

    /// Adds a cell; says what is wrong with it where its row cannot be used.
    pub(super) fn push(&mut self, raw: &Raw<'_>) -> Option<Fault> {
        let held = self.landed.hold(raw);
        let (missing, landed) = (&self.missing, self.landed);
        let mut fault = match raw {
            Raw::Nested(what) => Some(Fault::new(
                "type_conflict",
                format!(
                    "column `{}` is {what}, a number or text should be there",
                    self.name
                ),
            )),
            _ => None,
        };
        match &mut self.cells {
            Cells::Numbers(cells) => {
                let large = match &held {
                    _ if landed == LandedAs::Decimal => None,
                    Held::Int(value) => {
                        let large =
                            value.unsigned_abs() > EXACT && !missing.number(to_float(*value));
                        large.then(|| value.to_string())
                    }
                    Held::Text(text) => is_large_integer(text, missing)
                        .then(|| text.trim().chars().take(SHOWN).collect()),
                    Held::Missing | Held::Bool(_) | Held::Float(_) => None,
                };
                if let Some(value) = large {
                    fault = Some(Fault::new(
                        reason::INTEGER_TOO_LARGE,
                        format!("column `{}`: `{value}` is beyond 2^53", self.name),
                    ));
                }
                let cell = numeric(&held, missing, self.signs);
                self.lacks = cell.is_none();
                cells.append_option(cell);
            }
            Cells::Texts(cells) => {
                let cell = category(held, missing);
                self.lacks = cell.is_none();
                cells.append_option(cell);
            }
        }
        fault
    }

    /// The cells, of which there are none then.
    pub(super) fn take(&mut self) -> ArrayRef {
        match &mut self.cells {
            Cells::Numbers(cells) => Arc::new(cells.finish()),
            Cells::Texts(cells) => Arc::new(cells.finish()),
        }
    }
}

/// As [`crate::typing::Numeric`] reads the landed column.
fn numeric(held: &Held<'_>, missing: &Missing, signs: Option<NumberSigns>) -> Option<f64> {
    let number = match held {
        Held::Missing => None,
        Held::Bool(value) => Some(f64::from(u8::from(*value))),
        Held::Int(value) => Some(to_float(*value)),
        Held::Float(value) => Some(*value),
        Held::Text(text) if missing.text(text) => None,
        Held::Text(text) => signs::number(text, signs),
    };
    number.filter(|number| !missing.number(*number))
}

/// As [`crate::typing::Category`] reads it.
fn category<'a>(held: Held<'a>, missing: &Missing) -> Option<Cow<'a, str>> {
    match held {
        Held::Missing => None,
        Held::Bool(value) => Some(value.to_string().into()),
        Held::Int(value) => (!missing.number(to_float(value))).then(|| value.to_string().into()),
        Held::Float(value) => (!missing.number(value)).then(|| float_text(value).into()),
        Held::Text(text) => (!missing.text(&text)).then_some(text),
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "rows with integers past 2^53 in a numeric column are set aside"
)]
fn to_float(value: i64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array, AsArray, Float64Array, Int64Array, StringArray};
    use arrow::datatypes::Float64Type;
    use proptest::prelude::*;

    use super::*;
    use crate::{
        scalar::RowFunction,
        typing::{Category, Numeric},
    };

    fn missing() -> Missing {
        Missing::new(&["N/A".into()], &[-200.0])
    }

    fn input(kind: InputKind, landed: LandedAs) -> Input {
        let column = InputColumn {
            name: "c".into(),
            kind,
        };
        Input::new(&column, landed, missing(), None)
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
            texts(LandedAs::Number, &cells),
            owned([a, b, c, d, e, None, None])
        );
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
        let faults = numbers(LandedAs::Number, &[large.clone(), Raw::Int(1 << 53)]).1;
        assert_eq!(faults, [Some("integer_too_large"), None]);
        assert_eq!(numbers(LandedAs::Decimal, &[large]).1, [None]);
        for text in ["9007199254740993", "90071992547409930000000"] {
            for landed in [LandedAs::Text, LandedAs::Scalar] {
                let faults = numbers(landed, &[Raw::Text(text.into()), Raw::Cell(text)]).1;
                assert_eq!(faults, [Some("integer_too_large"); 2], "{landed:?} {text}");
            }
        }
        let nested = numbers(LandedAs::Number, &[Raw::Nested("a list")]);
        assert_eq!(nested, (vec![None], vec![Some("type_conflict")]));
    }

    #[test]
    fn unknown_types_follow_the_known_categories() {
        let of = |values: &[&str]| {
            let values: Vec<String> = values.iter().map(|v| (*v).to_owned()).collect();
            LandedAs::of_values(&values)
        };
        assert_eq!(of(&["true"]), LandedAs::Bool);
        assert_eq!(of(&["5", "2.5"]), LandedAs::Number);
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
            check(LandedAs::Number, Arc::new(Int64Array::from(ints.clone())), &raws)?;
            let raws: Vec<Raw<'_>> = floats.iter().map(|x| x.map_or(Raw::Null, Raw::Float)).collect();
            check(LandedAs::Number, Arc::new(Float64Array::from(floats.clone())), &raws)?;
            let raws: Vec<Raw<'_>> = words.iter().map(|x| x.as_deref().map_or(Raw::Null, Raw::Cell)).collect();
            check(LandedAs::Text, Arc::new(StringArray::from(words.clone())), &raws)?;
        }
    }
}
