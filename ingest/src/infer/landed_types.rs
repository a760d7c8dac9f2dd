//! Types of columns that have landed already, with the values of a sample.

use feedline_schemas::{config::TypeContract, record::ColumnType};

use super::{
    column_counts::ColumnCounts, decide::Rules, kind::Kind, type_warnings::ColumnFindings,
};
use crate::contract::noun;

impl ColumnCounts {
    /// Returns the type of a column that has landed as `landed`, after the values counted here, and
    /// collects details for the warnings. `types` decides about values of other types.
    pub(super) fn decide_landed(
        &self,
        landed: ColumnType,
        types: TypeContract,
        rules: Rules<'_>,
        findings: &mut ColumnFindings,
    ) -> ColumnType {
        let found = self.decide(rules, &mut ColumnFindings::default());
        let Some(found) = found.filter(|found| *found != landed) else {
            return self.decide(rules, findings).unwrap_or(landed);
        };
        if let Some(next) = next_type(landed, found, types) {
            return next;
        }
        let is_other = |kind: &Kind| self.count(*kind) > 0 && !fits(*kind, landed);
        let mut others: Vec<Kind> = Kind::ALL.into_iter().filter(is_other).collect();
        if others.is_empty() {
            // Numbers that need a wider type of numbers.
            others.extend(Kind::ALL);
        }
        findings.other_landed.push(format!(
            "`{}` (landed as {}, but the rows looked at read as {}, such as {}{})",
            self.name,
            noun(landed),
            noun(found),
            self.some_of(&others),
            self.first_place(&others, rules.places)
        ));
        landed
    }
}

/// Returns true for a kind of values that a column of the type `landed` may hold.
fn fits(kind: Kind, landed: ColumnType) -> bool {
    let is_of_type = match landed {
        ColumnType::Bool => kind == Kind::Bool,
        ColumnType::Timestamp => kind.is_date(),
        // The contract takes such codes for no integers.
        ColumnType::Int64 if kind == Kind::DigitsAndE => false,
        number => number.is_number() && (kind.is_number() || kind == Kind::NumberText),
    };
    is_of_type || kind == Kind::Missing
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

    use super::*;

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
}
