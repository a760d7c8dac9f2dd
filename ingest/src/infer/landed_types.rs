//! Types of columns that have landed already, with the values of a sample.

use feedline_schemas::{config::TypeContract, record::ColumnType, report::WarnedColumn};

use super::{
    column_counts::ColumnCounts, decide::Rules, kind::Kind, type_warnings::ColumnFindings,
};
use crate::contract::noun;

impl ColumnCounts {
    /// Returns the type of a column that has landed as `landed`, after the values counted here, and
    /// collects details for the warnings. `types` decides about values of other types. `is_large` is true
    /// if an integer beyond 2^53 has landed in it.
    pub(super) fn decide_landed(
        &self,
        (landed, is_large): (ColumnType, bool),
        types: TypeContract,
        rules: Rules<'_>,
        findings: &mut ColumnFindings,
    ) -> ColumnType {
        let found = self.decide(rules, &mut ColumnFindings::default());
        let Some(found) = found.filter(|found| *found != landed) else {
            return self.decide(rules, findings).unwrap_or(landed);
        };
        let others = self.kinds_beyond((landed, is_large), types);
        if others.is_empty() {
            // Numbers in strings, or digits around an `e` in a column of floats.
            return landed;
        }
        let needed = match (landed, found) {
            // Integers beyond 2^53 are no floats, and some floats are no decimals.
            (ColumnType::Int64, ColumnType::Float64) if is_large => ColumnType::Decimal,
            (ColumnType::Float64, ColumnType::Int64) if others.iter().any(is_of_numbers) => {
                ColumnType::Decimal
            }
            (ColumnType::Decimal, ColumnType::Float64) if others.iter().any(is_of_numbers) => {
                ColumnType::Utf8
            }
            _ => found,
        };
        if let Some(next) = next_type(landed, needed, types) {
            return next;
        }
        let described = format!(
            "landed as {}, but the rows looked at read as {}, such as {}{}",
            noun(landed),
            noun(found),
            self.some_of(&others),
            self.first_place(&others, rules.places)
        );
        let column = WarnedColumn::with_found(&self.name, described);
        findings.other_landed.push(column);
        landed
    }

    /// Returns the kinds of its values that a column of the type `landed` does not hold.
    fn kinds_beyond(
        &self,
        (landed, is_large): (ColumnType, bool),
        types: TypeContract,
    ) -> Vec<Kind> {
        let fits_text = || {
            let numbers = Kind::ALL.into_iter();
            let mut numbers = numbers.filter(|number| self.in_texts[*number as usize] > 0);
            landed.is_number() && numbers.all(|number| fits(number, landed))
        };
        let is_other = |kind: &Kind| {
            let fits = match kind {
                Kind::NumberText => fits_text(),
                kind => fits(*kind, landed),
            };
            self.count(*kind) > 0 && !fits
        };
        let mut others: Vec<Kind> = Kind::ALL.into_iter().filter(is_other).collect();
        // A column of integers becomes one of floats, unless it has integers that are no floats.
        let widens = landed == ColumnType::Int64
            && types != TypeContract::Freeze
            && !is_large
            && self.count(Kind::BigInteger) == 0;
        if widens && !others.iter().all(is_float) {
            others.retain(|kind| !is_float(kind));
        }
        others
    }
}

/// Returns true for a kind of values that a column of the type `landed` holds.
fn fits(kind: Kind, landed: ColumnType) -> bool {
    let is_of_type = match landed {
        ColumnType::Bool => kind == Kind::Bool,
        ColumnType::Timestamp => kind.is_date(),
        ColumnType::Int64 => matches!(kind, Kind::Integer | Kind::BigInteger),
        ColumnType::Float64 => kind.is_number() && !matches!(kind, Kind::BigInteger | Kind::Digits),
        ColumnType::Decimal => {
            kind.is_number() && !matches!(kind, Kind::WideFloat | Kind::LongWideFloat)
        }
        _ => false,
    };
    is_of_type || kind == Kind::Missing
}

/// Returns true for numbers, those in strings included.
fn is_of_numbers(kind: &Kind) -> bool {
    kind.is_number() || *kind == Kind::NumberText
}

fn is_float(kind: &Kind) -> bool {
    matches!(
        kind,
        Kind::Float | Kind::WideFloat | Kind::LongFloat | Kind::LongWideFloat
    )
}

/// Returns the type of a column that has landed as `landed` after values of the type `found`; `None`
/// if such values do not fit the column.
fn next_type(landed: ColumnType, found: ColumnType, types: TypeContract) -> Option<ColumnType> {
    use ColumnType::{Decimal, Float64, Int64, Null, Utf8};
    match (landed, found) {
        (_, Null) => Some(landed),
        (Null, _) => Some(found),
        (Utf8, _) if is_scalar(found) => Some(Utf8),
        (Float64, Int64) => Some(Float64),
        (Decimal, Int64 | Float64) => Some(Decimal),
        (Int64, Float64) if types != TypeContract::Freeze => Some(Float64),
        _ if types == TypeContract::Widen && is_scalar(landed) && is_scalar(found) => {
            Some(landed.widest(found))
        }
        _ => (landed == found).then_some(landed),
    }
}

/// Returns true for a type of single values that text can hold.
const fn is_scalar(r#type: ColumnType) -> bool {
    let is_other = matches!(
        r#type,
        ColumnType::Bool | ColumnType::Timestamp | ColumnType::Utf8
    );
    is_other || r#type.is_number()
}

#[cfg(test)]
mod tests {
    use ColumnType::{Binary, Bool, Decimal, Float64, Int64, Json, Null, Timestamp, Utf8};
    use TypeContract::{Freeze, QuarantineRow, Widen};
    use feedline_readers::{record::Record, value::Value};
    use feedline_schemas::config::PaginationKind;

    use super::*;
    use crate::infer::{LandedTypes, Survey, Types};

    #[test]
    fn a_landed_type_changes_only_where_the_contract_changes_it() {
        let cases = [
            (Int64, Int64, QuarantineRow, Some(Int64)),
            (Int64, Float64, QuarantineRow, Some(Float64)),
            (Int64, Float64, Freeze, None),
            (Int64, Utf8, QuarantineRow, None),
            (Int64, Utf8, Widen, Some(Utf8)),
            (Int64, Decimal, QuarantineRow, None),
            (Int64, Decimal, Widen, Some(Decimal)),
            (Float64, Int64, Freeze, Some(Float64)),
            (Decimal, Float64, QuarantineRow, Some(Decimal)),
            (Timestamp, Utf8, QuarantineRow, None),
            (Utf8, Timestamp, QuarantineRow, Some(Utf8)),
            (Utf8, Binary, Widen, None),
            (Json, Bool, Widen, None),
            (Null, Bool, QuarantineRow, Some(Bool)),
            (Bool, Null, QuarantineRow, Some(Bool)),
        ];
        for (landed, found, types, expected) in cases {
            let next = next_type(landed, found, types);
            assert_eq!(next, expected, "{landed:?} {found:?} {types:?}");
        }
    }

    /// The type of a column that has landed as `landed`, after these values, and the values that a warning
    /// about its type names. With `is_large`, it has an integer beyond 2^53.
    fn decide_after(
        (landed, is_large): (ColumnType, bool),
        types: TypeContract,
        values: Vec<Value>,
    ) -> (ColumnType, Option<String>) {
        let mut config = crate::testing::config("http://h/", PaginationKind::Page);
        config.contract.types = types;
        let mut survey = Survey::new(&config);
        for value in values {
            survey.add(&Record::Value(Value::Object(vec![("c".to_owned(), value)])));
        }
        let before = LandedTypes {
            types: Types::from([("c".to_owned(), landed)]),
            large_integers: is_large.then(|| "c".to_owned()).into_iter().collect(),
        };
        let found = survey.infer_after(&config, &before);
        let mut warnings = found.warnings.iter();
        let warning = warnings.find(|warning| warning.code == "other_types_landed");
        let named = warning.map(|warning| {
            let (_, named) = warning.message.split_once(", such as ").unwrap();
            named.split_once(')').unwrap().0.to_owned()
        });
        (found.types["c"], named)
    }

    fn check_cells(
        landed: ColumnType,
        types: TypeContract,
        cells: &[&str],
        expected: (ColumnType, Option<&str>),
    ) {
        check_cells_after((landed, false), types, cells, expected);
    }

    fn check_cells_after(
        landed: (ColumnType, bool),
        types: TypeContract,
        cells: &[&str],
        expected: (ColumnType, Option<&str>),
    ) {
        let values = cells.iter().map(|cell| Value::Cell((*cell).to_owned()));
        let (next, named) = decide_after(landed, types, values.collect());
        assert_eq!((next, named.as_deref()), expected, "{landed:?} {cells:?}");
    }

    #[test]
    fn the_values_that_do_not_fit_the_landed_type_are_named() {
        for (landed, cells) in [
            (Int64, ["7", "NA", "1E3"]),
            (Int64, ["5", "7", "99999999999999999999"]),
            (Int64, ["7", "2.5", "99999999999999999999"]),
            (Float64, ["5", "7", "99999999999999999999"]),
            (Float64, ["5", "7", "9007199254740993"]),
            (Decimal, ["5", "2.5", "1.5e300"]),
            (Timestamp, ["2024-01-31", "-", "soon"]),
            (Bool, ["true", "?", "soon"]),
        ] {
            let named = format!("`{}`", cells[2]);
            let expected = (landed, Some(named.as_str()));
            check_cells(landed, QuarantineRow, &cells, expected);
        }
        let frozen = (Int64, Some("`2.5`"));
        check_cells(Int64, Freeze, &["7", "2.5"], frozen);
    }

    #[test]
    fn values_that_fit_the_landed_type_are_no_reason_for_a_warning() {
        let text = |text: &str| Value::Text(text.to_owned());
        for types in [QuarantineRow, Widen] {
            check_cells(Float64, types, &["12E4", "5", "6"], (Float64, None));
            check_cells(Int64, types, &["7", "2.5"], (Float64, None));
            check_cells(Float64, types, &["5", "6"], (Float64, None));
            let strings = vec![text("7"), text("8")];
            let found = decide_after((Int64, false), types, strings);
            assert_eq!(found, (Int64, None), "{types:?}");
        }
        let named = |values| decide_after((Int64, false), QuarantineRow, values).1;
        let strings = vec![text("7"), text("7.5")];
        assert_eq!(named(strings).as_deref(), Some("`7`, `7.5`"));
    }

    #[test]
    fn a_column_that_has_landed_integers_beyond_floats_takes_no_fractions() {
        let (large, cells) = ((Int64, true), ["7", "2.5"]);
        check_cells_after(large, QuarantineRow, &cells, (Int64, Some("`2.5`")));
        check_cells_after(large, Widen, &cells, (Decimal, None));
        check_cells_after(large, QuarantineRow, &["7", "8"], (Int64, None));
    }

    #[test]
    fn a_column_of_floats_widens_for_integers_that_no_float_holds() {
        let big = "9007199254740993";
        check_cells(Float64, Widen, &["5", big], (Decimal, None));
        check_cells(Decimal, Widen, &["2.5", "1.5e300"], (Utf8, None));
    }
}
