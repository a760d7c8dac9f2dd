//! Types of passthrough columns in an output that has types.
//!
//! Passthrough cells are read as text, which loses nothing. A type comes from the schema of a file or
//! from contracts, never from cells: a later row could have a value that does not fit.

use feedline_schemas::{
    config::ContractConfig,
    csv_cell::CellFormat,
    number::{self, Number},
    record::ColumnType,
};

use super::writer::Column;

/// Type of a passthrough column, and the format of its cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PassthroughType {
    kind: Kind,
    /// Format of cells of CSV; absent for cells of formats with types.
    format: Option<CellFormat>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    Text,
    Integer,
    Float,
    Bool,
    /// Bytes or objects, which are not carried along.
    Nested,
}

impl PassthroughType {
    /// The type for values of a column of type `declared`: integers, floats and booleans keep it,
    /// other values are text.
    #[must_use]
    pub const fn of(declared: ColumnType) -> Self {
        let kind = match declared {
            ColumnType::Int64 => Kind::Integer,
            ColumnType::Float64 => Kind::Float,
            ColumnType::Bool => Kind::Bool,
            ColumnType::Binary | ColumnType::Json => Kind::Nested,
            _ => Kind::Text,
        };
        Self { kind, format: None }
    }

    /// The type that all `contracts` declare for the column `name`, for cells in `format`; text if
    /// they declare none or differ.
    pub(crate) fn by_contracts(
        contracts: &[ContractConfig],
        name: &str,
        format: Option<CellFormat>,
    ) -> Self {
        let mut types = contracts.iter().map(|contract| {
            let own = contract.column.get(name);
            own.and_then(|own| own.r#type)
        });
        let first = types.next().flatten();
        let declared = first.filter(|first| types.all(|other| other == Some(*first)));
        let declared = declared.map_or(ColumnType::Utf8, |declared| declared.column_type());
        match Self::of(declared).kind {
            Kind::Text | Kind::Nested => Self::default(),
            kind => Self { kind, format },
        }
    }

    /// Returns true for a column of bytes or objects, whose cells are not carried along.
    #[must_use]
    pub const fn is_nested(self) -> bool {
        matches!(self.kind, Kind::Nested)
    }

    /// Makes a column of this type. Returns the cells too that are no value of it, by row: they are
    /// null in the column.
    #[must_use]
    pub fn column(self, cells: Vec<Option<String>>) -> (Column, Vec<(usize, String)>) {
        let mut misfits = Vec::new();
        let is_csv = self.format.is_some();
        let column = match self.kind {
            Kind::Text | Kind::Nested => Column::Text(cells),
            Kind::Integer => Column::Integers(self.read(cells, integer, &mut misfits)),
            Kind::Float => {
                let float = |text: &str| float(text, is_csv);
                Column::Long(self.read(cells, float, &mut misfits))
            }
            Kind::Bool => Column::Bools(self.read(cells, boolean, &mut misfits)),
        };
        (column, misfits)
    }

    fn read<T>(
        self,
        cells: Vec<Option<String>>,
        value: impl Fn(&str) -> Option<T>,
        misfits: &mut Vec<(usize, String)>,
    ) -> Vec<Option<T>> {
        let read = |(row, cell): (usize, Option<String>)| {
            let cell = cell.filter(|cell| !self.is_missing(cell))?;
            let found = match self.format.filter(|_| self.kind != Kind::Bool) {
                Some(format) => format.number(&cell).and_then(|number| value(&number)),
                None => value(&cell),
            };
            if found.is_none() {
                misfits.push((row, cell));
            }
            found
        };
        cells.into_iter().enumerate().map(read).collect()
    }

    /// Returns true for a cell of CSV that spells a missing value.
    fn is_missing(self, cell: &str) -> bool {
        let cell = cell.trim();
        let format = self.format;
        format.is_some_and(|format| cell.is_empty() || format.is_missing(cell))
    }
}

fn integer(text: &str) -> Option<i64> {
    match number::number(text)? {
        Number::Int(value) => Some(value),
        Number::Float(value) => number::whole(value),
    }
}

/// The float of a text. Only in CSV may it have more digits than the float, as when it lands.
fn float(text: &str, is_csv: bool) -> Option<f64> {
    match number::number(text) {
        Some(Number::Int(value)) => number::exact(value),
        Some(Number::Float(value)) => {
            (is_csv || number::says_the_same(text, value)).then_some(value)
        }
        // Beyond the range of floats or of 64-bit integers.
        None if number::is_number(text) => None,
        // NaN and the infinities of a file with floats.
        None => text.parse().ok(),
    }
}

fn boolean(text: &str) -> Option<bool> {
    match text.trim() {
        "true" | "True" | "TRUE" => Some(true),
        "false" | "False" | "FALSE" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use feedline_schemas::config::{ColumnContract, CsvConfig, DeclaredType};

    use super::*;

    fn cells(texts: &[&str]) -> Vec<Option<String>> {
        texts.iter().map(|text| Some((*text).to_owned())).collect()
    }

    fn contract(declared: DeclaredType) -> ContractConfig {
        let column = ColumnContract {
            r#type: Some(declared),
            ..ColumnContract::default()
        };
        ContractConfig {
            column: [("id".to_owned(), column)].into(),
            ..ContractConfig::default()
        }
    }

    fn misfits(found: &[(usize, &str)]) -> Vec<(usize, String)> {
        let found = found.iter();
        found
            .map(|(row, cell)| (*row, (*cell).to_owned()))
            .collect()
    }

    #[test]
    fn values_of_a_file_with_types_keep_their_types() {
        let of = |declared, texts: &[&str]| PassthroughType::of(declared).column(cells(texts));
        let integers = vec![Some(7), Some(i64::MIN)];
        let found = of(ColumnType::Int64, &["7", "-9223372036854775808"]);
        assert_eq!(found, (Column::Integers(integers), Vec::new()));
        let floats = vec![Some(5.0), Some(0.1), Some(f64::INFINITY), Some(1e300)];
        let found = of(ColumnType::Float64, &["5.0", "0.1", "inf", "1e300"]);
        assert_eq!(found, (Column::Long(floats), Vec::new()));
        let found = of(ColumnType::Bool, &["true", "false"]);
        let bools = vec![Some(true), Some(false)];
        assert_eq!(found, (Column::Bools(bools), Vec::new()));
        let found = of(ColumnType::Timestamp, &["2024-01-31T00:00:00Z"]);
        let texts = cells(&["2024-01-31T00:00:00Z"]);
        assert_eq!(found, (Column::Text(texts), Vec::new()));
        assert!(PassthroughType::of(ColumnType::Binary).is_nested());
    }

    #[test]
    fn cells_of_csv_have_the_declared_type_and_those_that_do_not_fit_are_returned() {
        let csv = CsvConfig {
            decimal_separator: Some(','),
            thousands_separator: Some('.'),
            ..CsvConfig::default()
        };
        let column = |declared, texts: &[&str]| {
            let format = Some(CellFormat::new(&csv));
            let own = PassthroughType::by_contracts(&[contract(declared)], "id", format);
            own.column(cells(texts))
        };
        let found = column(DeclaredType::Int, &["1.234", " 5 ", "NA", "", "007", "a"]);
        let integers = vec![Some(1234), Some(5), None, None, None, None];
        let expected = misfits(&[(4, "007"), (5, "a")]);
        assert_eq!(found, (Column::Integers(integers), expected));
        let found = column(DeclaredType::Float, &["1,5", "1.5", "inf"]);
        let floats = vec![Some(1.5), None, None];
        let expected = misfits(&[(1, "1.5"), (2, "inf")]);
        assert_eq!(found, (Column::Long(floats), expected));
        let found = column(DeclaredType::Bool, &["TRUE", "0"]);
        let expected = misfits(&[(1, "0")]);
        assert_eq!(found, (Column::Bools(vec![Some(true), None]), expected));
        let found = column(DeclaredType::Text, &["007"]);
        assert_eq!(found, (Column::Text(cells(&["007"])), Vec::new()));
    }

    #[test]
    fn a_column_without_one_declared_type_is_text() {
        let of = |contracts: &[ContractConfig], name| {
            PassthroughType::by_contracts(contracts, name, None)
        };
        let (int, float) = (contract(DeclaredType::Int), contract(DeclaredType::Float));
        assert_ne!(
            of(&[int.clone(), int.clone()], "id"),
            PassthroughType::default()
        );
        for (contracts, name) in [
            (&[int.clone(), float][..], "id"),
            (&[int.clone(), ContractConfig::default()][..], "id"),
            (&[int][..], "other"),
            (&[contract(DeclaredType::Bytes)][..], "id"),
            (&[][..], "id"),
        ] {
            assert_eq!(of(contracts, name), PassthroughType::default(), "{name}");
        }
    }
}
