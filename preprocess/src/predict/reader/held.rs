//! Conversion of a cell to the value its landed column would hold.
//!
//! If the type of the column is known, a cell becomes what ingest would land: the table of its
//! contract applies. A cell that the contract rejects has no value in the column, so that a number
//! is never made up. If the type is not known, it is inferred from the cell.

use std::borrow::Cow;

use arrow::array::Decimal128Array;
use feedline_schemas::{
    config::{ContractConfig, DeclaredType, TypeContract},
    number::{self, Number, exact, is_digits_and_e, number, says_the_same, whole},
    record::ColumnType,
    transform::{FittedStep, InputColumn, InputKind, TransformArtefact},
};

use super::raw_cell::Raw;
use crate::operators::{canonical_text, coerce::float_text, time_series::Instant};

/// Type of the landed column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LandedAs {
    /// Integers of 64 bits. A fraction makes them floats, unless `is_final`.
    Integer {
        /// True if the contract keeps the type.
        is_final: bool,
    },
    /// 64-bit floats.
    Float,
    /// Numbers of any size.
    Decimal,
    /// True or false.
    Bool,
    /// Text, or what is read as text.
    Text,
    /// It is not known: numbers or booleans, whatever the cell looks like.
    Scalar,
    /// Unknown, with a number format for text cells.
    Written,
    /// It is not known: most likely numbers, as those of its categories are that are known.
    LikelyNumber,
    /// It is not known: most likely booleans, as its known categories are.
    LikelyBool,
}

/// Value of the landed column.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Held<'a> {
    Missing,
    Bool(bool),
    Int(i64),
    Float(f64),
    /// Its digits.
    Decimal(String),
    Text(Cow<'a, str>),
}

/// Handling of a cell that does not fit its column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Conflict {
    /// Its row is rejected.
    Reject,
    /// It is missing.
    Null,
}

impl Conflict {
    /// Setting of all `contracts` for the column called `name`; where they differ, the row is
    /// rejected.
    pub(super) fn of(contracts: &[ContractConfig], name: &str) -> Self {
        let nulls = |contract: &ContractConfig| mode(contract, name) == TypeContract::NullValue;
        match !contracts.is_empty() && contracts.iter().all(nulls) {
            true => Self::Null,
            false => Self::Reject,
        }
    }
}

fn mode(contract: &ContractConfig, name: &str) -> TypeContract {
    let own = contract.column.get(name).and_then(|own| own.types);
    own.unwrap_or(contract.types)
}

/// Returns true if all `contracts` keep the type of the column called `name`.
fn is_final(contracts: &[ContractConfig], name: &str) -> bool {
    let keeps = |contract: &ContractConfig| {
        let own = contract.column.get(name);
        let is_declared = own.is_some_and(|own| own.r#type.is_some());
        is_declared || mode(contract, name) == TypeContract::Freeze
    };
    !contracts.is_empty() && contracts.iter().all(keeps)
}

/// Returns true if all `contracts` that declare a type of the column called `name` declare text.
fn is_declared_text(contracts: &[ContractConfig], name: &str) -> bool {
    let columns = contracts
        .iter()
        .filter_map(|contract| contract.column.get(name));
    let mut types = columns.filter_map(|own| own.r#type).peekable();
    types.peek().is_some() && types.all(|own| own == DeclaredType::Text)
}

impl LandedAs {
    /// Of the column of this type under these contracts, or as the artefact lets guess it.
    pub(super) fn of(
        column: Option<ColumnType>,
        contracts: &[ContractConfig],
        input: &InputColumn,
        artefact: &TransformArtefact,
    ) -> Self {
        match column {
            Some(ColumnType::Int64) => Self::Integer {
                is_final: is_final(contracts, &input.name),
            },
            Some(ColumnType::Float64) => Self::Float,
            Some(ColumnType::Decimal) => Self::Decimal,
            Some(ColumnType::Bool) => Self::Bool,
            Some(ColumnType::Null) | None if is_declared_text(contracts, &input.name) => Self::Text,
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
    pub(super) fn of_values(known: &[String]) -> Self {
        let all = |is: &dyn Fn(&String) -> bool| !known.is_empty() && known.iter().all(is);
        if all(&|value| value == "true" || value == "false") {
            Self::LikelyBool
        } else if all(&|value| {
            value
                .parse::<f64>()
                .is_ok_and(|number| float_text(number) == *value)
        }) {
            Self::LikelyNumber
        } else {
            Self::Text
        }
    }

    /// Name of the value's type, as ingest has it.
    pub(super) fn noun(self) -> &'static str {
        match self {
            Self::Integer { .. } => "integer",
            Self::Float => "float",
            Self::Decimal => "decimal",
            Self::Bool => "boolean",
            Self::Text => "text",
            Self::Scalar | Self::Written | Self::LikelyNumber | Self::LikelyBool => "undecided",
        }
    }

    /// The cell as such a column holds it; none where it does not.
    pub(super) fn hold<'a>(self, raw: &'a Raw<'_>) -> Option<Held<'a>> {
        match (self, raw) {
            (_, Raw::Null) => Some(Held::Missing),
            (_, Raw::Nested(_)) => None,
            (Self::Integer { is_final }, raw) => integer(raw, is_final),
            (Self::Float, raw) => float(raw),
            (Self::Decimal, raw) => decimal(raw),
            (Self::Bool, Raw::Bool(value)) => Some(Held::Bool(*value)),
            (Self::Bool, Raw::Cell(text)) => boolean(text),
            (Self::Bool, _) => None,
            (unknown, raw) => Some(unknown.guess(raw)),
        }
    }

    /// Value of the cell in a text column, or in one of unknown type.
    fn guess<'a>(self, raw: &'a Raw<'_>) -> Held<'a> {
        let text = |text: &'a str| Held::Text(Cow::Borrowed(text));
        let is_text = matches!(self, Self::Text | Self::LikelyBool);
        match (self, raw) {
            (_, Raw::Null | Raw::Nested(_)) => Held::Missing,
            (_, Raw::Time(value)) => text(value),
            (Self::LikelyBool | Self::Scalar | Self::Written, Raw::Bool(value)) => {
                Held::Bool(*value)
            }
            (_, Raw::Bool(value)) => Held::Text(value.to_string().into()),
            (_, Raw::Int(value)) if is_text => Held::Text(value.to_string().into()),
            (_, Raw::Float(value)) if is_text => Held::Text(format!("{value:?}").into()),
            (_, Raw::Written(_, value)) if is_text => text(value),
            (_, Raw::Int(value)) => Held::Int(*value),
            (_, Raw::Float(value) | Raw::Written(value, _)) => Held::Float(*value),
            (Self::Text | Self::LikelyBool | Self::Written, Raw::Text(value)) => text(value),
            (Self::Text | Self::LikelyBool | Self::Written, Raw::Digits(value)) => text(value),
            (_, Raw::Text(value)) => numeral(value).unwrap_or_else(|| text(value)),
            (_, Raw::Digits(value)) => numeral(value).unwrap_or_else(|| text(value)),
            (Self::Text, Raw::Cell(value)) => text(value),
            (Self::LikelyBool | Self::Written, Raw::Cell(value)) => {
                boolean(value).unwrap_or_else(|| text(value))
            }
            (Self::Scalar, Raw::Cell(value)) => {
                let held = numeral(value.trim()).or_else(|| boolean(value));
                held.unwrap_or_else(|| text(value))
            }
            (_, Raw::Cell(value)) => numeral(value.trim()).unwrap_or_else(|| text(value)),
        }
    }
}

/// Type of the column: timestamps, if it is unknown and all known categories are timestamps as their
/// column writes them; otherwise `column`.
pub(super) fn inferred_type(
    column: Option<ColumnType>,
    input: &InputColumn,
    artefact: &TransformArtefact,
) -> Option<ColumnType> {
    let is_unknown = matches!(column, Some(ColumnType::Null) | None);
    if !is_unknown || input.kind == InputKind::Numeric {
        return column;
    }
    let known = known(artefact, &input.name);
    let is_time = !known.is_empty() && known.iter().all(|value| is_landed_timestamp(value));
    is_time.then_some(ColumnType::Timestamp).or(column)
}

/// Returns true for a timestamp in the spelling of landed ones.
fn is_landed_timestamp(value: &str) -> bool {
    let mut text = Vec::new();
    Instant::iso().of_text(value).is_some_and(|micros| {
        canonical_text::write_instant(micros, &mut text);
        text == value.as_bytes()
    })
}

/// Categories of the column called `name` that the transform was fitted on.
pub(super) fn known(artefact: &TransformArtefact, name: &str) -> Vec<String> {
    let columns = artefact.steps.iter().filter_map(|step| match step {
        FittedStep::Categories { columns } => columns.iter().find(|column| column.name == name),
        _ => None,
    });
    columns.flat_map(|column| column.values.clone()).collect()
}

/// As a column of integers holds the cell, or one that becomes floats because of it.
fn integer(raw: &Raw<'_>, is_final: bool) -> Option<Held<'static>> {
    let of_float = |value: f64| (!is_final || whole(value).is_some()).then_some(Held::Float(value));
    match raw {
        Raw::Int(value) => Some(Held::Int(*value)),
        Raw::Float(value) => of_float(*value),
        // Rounded, it is no integer.
        Raw::Written(value, text) if is_final && !number::is_text_of(text, *value) => None,
        Raw::Written(value, _) => of_float(*value),
        Raw::Text(text) => exact_integer(text),
        Raw::Digits(text) => exact_integer(text),
        Raw::Cell(text) => match number(text.trim())? {
            Number::Int(value) => Some(Held::Int(value)),
            // With an exponent it may be a code, or a number that a spreadsheet has rounded.
            Number::Float(_) if is_final && text.contains(['e', 'E']) => None,
            Number::Float(_) if is_digits_and_e(text.trim()) => None,
            Number::Float(value) => of_float(value),
        },
        Raw::Null | Raw::Bool(_) | Raw::Time(_) | Raw::Nested(_) => None,
    }
}

/// The integer of a text or of digits.
fn exact_integer(text: &str) -> Option<Held<'static>> {
    match number(text)? {
        Number::Int(value) => Some(Held::Int(value)),
        Number::Float(_) => None,
    }
}

/// The float of a text or of digits.
fn exact_float(text: &str) -> Option<f64> {
    match number(text)? {
        Number::Int(value) => exact(value),
        Number::Float(value) => says_the_same(text, value).then_some(value),
    }
}

/// As a column of floats holds the cell.
fn float(raw: &Raw<'_>) -> Option<Held<'static>> {
    let value = match raw {
        Raw::Int(value) => exact(*value),
        Raw::Float(value) | Raw::Written(value, _) => Some(*value),
        Raw::Text(text) => exact_float(text),
        Raw::Digits(text) => exact_float(text),
        Raw::Cell(text) => match number(text.trim())? {
            Number::Int(value) => exact(value),
            Number::Float(value) => Some(value),
        },
        Raw::Null | Raw::Bool(_) | Raw::Time(_) | Raw::Nested(_) => None,
    };
    value.map(Held::Float)
}

/// As a column of decimals holds the cell.
fn decimal(raw: &Raw<'_>) -> Option<Held<'static>> {
    let digits = match raw {
        Raw::Int(value) => digits(&value.to_string()),
        Raw::Float(value) => digits(&format!("{value:e}")),
        Raw::Written(_, text) => digits(text),
        Raw::Text(text) => digits(text),
        Raw::Digits(text) => digits(text),
        Raw::Cell(text) => digits(text.trim()),
        Raw::Null | Raw::Bool(_) | Raw::Time(_) | Raw::Nested(_) => None,
    };
    digits.map(Held::Decimal)
}

/// The number as a column of decimals has it, as the text that the build reads there; none where it is not exact.
fn digits(text: &str) -> Option<String> {
    let units = number::is_number(text)
        .then(|| number::decimal(text))
        .flatten()?;
    let column = Decimal128Array::from(vec![units]);
    Some(canonical_text::decimal(&column, 0))
}

/// A text that is a number.
fn numeral(text: &str) -> Option<Held<'static>> {
    number(text).map(|number| match number {
        Number::Int(value) => Held::Int(value),
        Number::Float(value) => Held::Float(value),
    })
}

/// A text that is a boolean.
fn boolean(text: &str) -> Option<Held<'static>> {
    match text.trim() {
        "true" | "True" | "TRUE" => Some(Held::Bool(true)),
        "false" | "False" | "FALSE" => Some(Held::Bool(false)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_json_has_its_own_digits_in_text_and_decimal_columns() {
        let padded = Raw::Written(1.1, "1.10");
        let long = Raw::Written(1_234_567.123_456_789, "1234567.123456789012345678");
        let text = |raw| LandedAs::Text.hold(raw);
        assert_eq!(text(&padded), Some(Held::Text("1.10".into())));
        assert_eq!(
            text(&long),
            Some(Held::Text("1234567.123456789012345678".into()))
        );
        let decimal = |raw| LandedAs::Decimal.hold(raw);
        assert_eq!(decimal(&padded), Some(Held::Decimal("1.1".into())));
        assert_eq!(
            decimal(&long),
            Some(Held::Decimal("1234567.123456789012345678".into()))
        );
        assert_eq!(
            LandedAs::Float.hold(&long),
            Some(Held::Float(1_234_567.123_456_789))
        );
        let five = Raw::Written(5.0, "5.00000000000000000001");
        let is_final = true;
        assert_eq!(LandedAs::Integer { is_final }.hold(&five), None);
    }

    #[test]
    fn a_column_of_unknown_type_that_contracts_declare_as_text_is_text() {
        let contract = |text: &str| -> ContractConfig { serde_json::from_str(text).unwrap() };
        let text = contract(r#"{"column":{"c":{"type":"text"}}}"#);
        let float = contract(r#"{"column":{"c":{"type":"float"}}}"#);
        let plain = ContractConfig::default();
        assert!(is_declared_text(&[text.clone(), plain.clone()], "c"));
        assert!(!is_declared_text(&[text.clone(), float], "c"));
        assert!(!is_declared_text(std::slice::from_ref(&text), "d"));
        assert!(!is_declared_text(&[plain], "c"));
        let artefact = TransformArtefact {
            format: String::new(),
            version: 0,
            hash: feedline_schemas::ids::Hash128::new(0),
            fitted_rows: 0,
            null_values: Vec::new(),
            missing_values: Vec::new(),
            inputs: Vec::new(),
            steps: Vec::new(),
            features: Vec::new(),
            target: None,
            other_targets: Vec::new(),
            characters: None,
            images: None,
            tokens: None,
            signs: None,
        };
        for kind in [InputKind::Numeric, InputKind::Categorical] {
            let name = "c".to_owned();
            let column = InputColumn { name, kind };
            let landed = LandedAs::of(None, std::slice::from_ref(&text), &column, &artefact);
            assert_eq!(landed, LandedAs::Text);
        }
    }

    #[test]
    fn digits_around_an_e_are_no_integer_as_for_ingest() {
        for (text, widened, frozen) in [
            ("1E3", None, None),
            (" 12e4 ", None, None),
            ("1.5E3", Some(1500.0), None),
            ("2.0", Some(2.0), Some(2.0)),
        ] {
            let raw = Raw::Cell(text);
            let held = |is_final| LandedAs::Integer { is_final }.hold(&raw);
            assert_eq!(held(false), widened.map(Held::Float), "{text}");
            assert_eq!(held(true), frozen.map(Held::Float), "{text}");
        }
    }

    #[test]
    fn decimals_are_exact_or_none() {
        for (text, expected) in [
            ("0.10", Some("0.1")),
            ("-2.50", Some("-2.5")),
            ("1e3", Some("1000")),
            ("18446744073709551615", Some("18446744073709551615")),
            ("99999999999999999999", Some("99999999999999999999")),
            ("100000000000000000000", None),
            ("1e-18", Some("0.000000000000000001")),
            ("1e-19", None),
            ("1e9223372036854775807", None),
            ("1.23e-9223372036854775808", None),
            ("-0", None),
            ("12,5", None),
        ] {
            assert_eq!(digits(text).as_deref(), expected, "{text}");
        }
    }
}
