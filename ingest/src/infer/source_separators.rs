//! Decimal separators of the columns of a source together: the settings of `csv` hold for all of them.

use feedline_readers::value::shorten;
use feedline_schemas::config::SourceConfig;

use super::{
    column_counts::{ColumnCounts, SHOWN},
    decimal_signs::{DecimalSigns, MARKED},
    kind::Kind,
};

/// Decimal separators of the columns of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SourceSeparators {
    /// True if the comma is a decimal separator, so that it separates no thousands.
    pub(super) has_commas: bool,
    /// True if a column without decimal commas has decimal points, so that the point separates no thousands.
    pub(super) has_points: bool,
    /// True if numbers have points before groups of three digits.
    pub(super) has_point_groups: bool,
    /// True if some files have the comma and others the point, so that no setting reads all of them.
    pub(super) is_split: bool,
    /// True if `csv` or a number such as `18,194,000` shows the meaning of a point before three digits.
    pub(super) is_point_known: bool,
}

impl SourceSeparators {
    /// Separators of the columns whose cells are nearly all numbers, and that have no declared type. A
    /// column with both decimal separators decides only where no other one does. Several groups, as in
    /// `18.194.000`, decide too, in a column that also has numbers with fewer: those of addresses and
    /// codes, such as `192.168.178.101`, are always as many.
    pub(super) fn of(columns: &[ColumnCounts], config: &SourceConfig) -> Self {
        let csv = &config.csv;
        let columns = find_deciding_columns(columns, config);
        let signs: Vec<&DecimalSigns> =
            columns.iter().map(|column| &column.decimal_signs).collect();
        let has = |is: fn(&DecimalSigns) -> bool| signs.iter().any(|signs| is(signs));
        let has_points = has(|signs| signs.points > 0 && signs.commas == 0);
        let has_groups = columns.iter().any(|column| column.has_point_thousands());
        let has_commas = has(|signs| signs.commas > 0 && signs.points == 0)
            || (!has_points && has(DecimalSigns::are_surely_mixed))
            || (!has_points && has_groups && csv.decimal_separator != Some('.'));
        let is_set = csv.decimal_separator.is_some() || csv.thousands_separator.is_some();
        let is_open = !is_set && !has(DecimalSigns::has_certain);
        Self {
            has_commas: has_commas || csv.decimal_separator == Some(','),
            has_points,
            has_point_groups: has(|signs| signs.point_groups > 0),
            is_split: has(DecimalSigns::are_split)
                || (is_open && has(DecimalSigns::are_groups_split)),
            is_point_known: is_set || has(|signs| signs.several_groups[0].is_some()),
        }
    }
}

/// Cells that certainly show a decimal separator of a source, each with its column, for messages: `58,05` in `price`.
#[derive(Clone, Debug, Default)]
pub(super) struct DecidingCells {
    /// Cell with a decimal comma, or with several groups behind points.
    pub(super) comma: Option<String>,
    /// Cell with a decimal point.
    pub(super) point: Option<String>,
}

impl DecidingCells {
    /// Cells of the first columns that decide, by the rules of [`SourceSeparators::of`].
    pub(super) fn of(columns: &[ColumnCounts], config: &SourceConfig) -> Self {
        let columns = find_deciding_columns(columns, config);
        let describe = |column: &ColumnCounts, cell: &Option<String>| {
            let cell = cell.as_deref()?;
            Some(format!("`{}` in `{}`", shorten(cell, SHOWN), column.name))
        };
        let find = |is: fn(&DecimalSigns) -> bool, at: usize| {
            columns.iter().find_map(|column| {
                let signs = &column.decimal_signs;
                describe(column, &signs.samples[at]).filter(|_| is(signs))
            })
        };
        let groups = || {
            let mut columns = columns.iter().filter(|column| column.has_point_thousands());
            let column = columns.next()?;
            describe(column, &column.decimal_signs.several_groups[1])
        };
        let comma = find(|signs| signs.commas > 0 && signs.points == 0, 0);
        Self {
            comma: comma
                .or_else(|| groups().filter(|_| config.csv.decimal_separator != Some('.')))
                .or_else(|| find(DecimalSigns::are_surely_mixed, 0)),
            point: find(|signs| signs.points > 0 && signs.commas == 0, 1),
        }
    }
}

/// Columns whose cells are nearly all numbers, and that have no declared type.
fn find_deciding_columns<'a>(
    columns: &'a [ColumnCounts],
    config: &SourceConfig,
) -> Vec<&'a ColumnCounts> {
    let is_declared = |column: &ColumnCounts| {
        let own = config.contract.column.get(&column.name);
        own.is_some_and(|own| own.r#type.is_some())
    };
    let columns = columns.iter();
    columns
        .filter(|column| column.has_number_cells() && !is_declared(column))
        .collect()
}

impl ColumnCounts {
    /// Returns true for points that separate thousands in some cells, beside cells with fewer groups.
    fn has_point_thousands(&self) -> bool {
        let signs = &self.decimal_signs;
        let has_fewer = signs.point_groups > signs.several_points || self.count(Kind::Integer) > 0;
        signs.points == 0 && signs.several_points > 0 && has_fewer
    }

    /// Returns true if nearly all cells are numbers in some notation.
    pub(super) fn has_number_cells(&self) -> bool {
        let numbers = self.count_numbers();
        numbers > 0 && numbers * 10 >= self.values() * 9
    }

    /// Number of cells that are numbers in some notation, with or without a sign of currency or percent.
    pub(super) fn count_numbers(&self) -> u64 {
        let others = self.decimal_signs.unread + self.count(Kind::SomeComma);
        let marked: u64 = MARKED.iter().map(|kind| self.count(*kind)).sum();
        self.sum(Kind::is_number) + others + marked
    }
}

#[cfg(test)]
mod tests {
    use feedline_readers::{record::Record, value::Value};
    use feedline_schemas::{config::PaginationKind, record::ColumnType, report::Warning};

    use crate::infer::{Inferred, Survey};

    /// The columns of these rows, whose cells are separated by spaces, with lines of `csv`.
    fn infer(rows: &[&str], csv: &[(&str, char)]) -> Inferred {
        let mut config = crate::testing::config("http://h/", PaginationKind::Page);
        for (key, sign) in csv {
            match *key {
                "decimal_separator" => config.csv.decimal_separator = Some(*sign),
                _ => config.csv.thousands_separator = Some(*sign),
            }
        }
        let mut survey = Survey::new(&config);
        for row in rows {
            let cells = row.split(' ').enumerate();
            let entries = cells.map(|(at, cell)| (format!("c{at}"), Value::Cell(cell.to_owned())));
            survey.add(&Record::Value(Value::Object(entries.collect())));
        }
        survey.infer(&config)
    }

    /// The message of a warning that names this column.
    fn message<'a>(found: &'a Inferred, code: &str, column: &str) -> Option<&'a str> {
        let names = format!("`{column}` (");
        let is_it = |warning: &&Warning| warning.code == code && warning.message.contains(&names);
        let warning = found.warnings.iter().find(is_it)?;
        Some(&warning.message)
    }

    const COMMA: &str = "looks_like_decimal_comma";
    const THOUSANDS: &str = "looks_like_thousands";
    const MIXED: &str = "mixed_decimal_separators";
    const BOTH: &str = "`csv.decimal_separator = \",\"` and `csv.thousands_separator = \".\"`";
    /// Settings that read `1.298,50`.
    const GERMAN: [(&str, char); 2] = [("decimal_separator", ','), ("thousands_separator", '.')];

    #[test]
    fn a_comma_of_either_meaning_is_a_decimal_one_beside_certain_decimal_commas() {
        for rows in [
            ["2.739,99 8,453", "1.298 2,645", "792 4,640"],
            ["58,05 8,453", "5.690,30 2,645", "1.298 4,640"],
            ["58,05 8,453", "485,04 2,645", "3.647 4,640"],
            ["17,5% 8,453", "4,5% 2,645", "3% 4,640"],
        ] {
            let found = infer(&rows, &[]);
            assert_eq!(message(&found, THOUSANDS, "c1"), None, "{rows:?}");
            let advice = message(&found, COMMA, "c1").unwrap();
            assert!(
                advice.contains("`csv.decimal_separator = \",\"`"),
                "{advice}"
            );
            let settings = &found.columns[1].number_settings;
            assert!(!settings.concat().contains("thousands_separator = \",\""));
            if !rows[0].contains('%') {
                assert!(message(&found, COMMA, "c0").unwrap().contains(BOTH));
                let followed = infer(&rows, &GERMAN);
                assert_eq!(followed.types["c0"], ColumnType::Float64);
                assert_eq!(followed.types["c1"], ColumnType::Float64);
                assert_eq!(followed.warnings, []);
            }
        }
    }

    #[test]
    fn addresses_and_codes_of_as_many_groups_each_decide_no_separator() {
        for code in ["192.168.178.101", "553.166.849"] {
            let other = code.replace('1', "2");
            let rows = [format!("{code} 3.922"), format!("{other} 73.147")];
            let found = infer(&rows.each_ref().map(String::as_str), &[]);
            let float = ColumnType::Float64;
            let types = ["c0", "c1"].map(|column| found.types[column]);
            assert_eq!(types, [ColumnType::Utf8, float]);
            assert_eq!(found.warnings, []);
            assert_eq!(found.columns[0].number_settings, [""; 0]);
        }
    }

    #[test]
    fn points_between_thousands_are_reported_once_the_decimal_comma_is_set() {
        let rows = ["58,05 8.532", "485,04 12.345.678", "3.647 190"];
        let found = infer(&rows, &GERMAN[..1]);
        for column in ["c0", "c1"] {
            let advice = message(&found, COMMA, column).unwrap();
            assert!(
                advice.contains("set `csv.thousands_separator = \".\"`"),
                "{advice}"
            );
        }
        let followed = infer(&rows, &GERMAN);
        assert_eq!(followed.types["c1"], ColumnType::Int64);
        assert_eq!(followed.warnings, []);
    }

    #[test]
    fn a_comma_of_either_meaning_separates_thousands_beside_decimal_points() {
        for rows in [
            ["2,739.99 8,453", "1,298 2,645", "792 4,640"],
            ["58.05 8,453", "5,690.30 2,645", "1,298 4,640"],
            ["58.05 8,453", "485.04 2,645", "3,647 4,640"],
            ["58.05 8,453", "485.04 2,645", "36.47 4,640"],
        ] {
            let found = infer(&rows, &[]);
            assert_eq!(message(&found, COMMA, "c1"), None, "{rows:?}");
            assert!(message(&found, THOUSANDS, "c1").is_some(), "{rows:?}");
            let settings = &found.columns[1].number_settings;
            assert_eq!(settings, &["thousands_separator = \",\""]);
            let followed = infer(&rows, &[("thousands_separator", ',')]);
            assert_eq!(followed.types["c1"], ColumnType::Int64);
            assert_eq!(followed.warnings, []);
        }
    }

    #[test]
    fn amounts_with_points_between_thousands_get_all_settings_that_read_them() {
        let rows = ["€3.287 779,99", "€8.855 2138,93"];
        let settings = |csv: &[(&str, char)]| infer(&rows, csv).columns[0].number_settings.clone();
        let all = [
            "decimal_separator = \",\"",
            "thousands_separator = \".\"",
            "currency = \"€\"",
        ];
        assert_eq!(settings(&[]), all);
        assert_eq!(settings(&GERMAN[..1]), all[1..]);
        let found = infer(&rows, &GERMAN[..1]);
        let advice = message(&found, "looks_like_currency", "c0").unwrap();
        let keys = "set `csv.thousands_separator = \".\"` and `csv.currency = \"€\"`";
        assert!(advice.contains(keys), "{advice}");
        assert_eq!(settings(&GERMAN), all[2..]);
        // No setting reads a point beside a declared comma.
        let found = infer(&["€12.50 779,99", "€3.75 2138,93"], &GERMAN[..1]);
        assert_eq!(found.columns[0].number_settings, [""; 0]);
        let advice = message(&found, "looks_like_currency", "c0").unwrap();
        assert!(
            advice.ends_with("another currency or other separators"),
            "{advice}"
        );
    }

    #[test]
    fn commas_of_either_meaning_alone_are_asked_about() {
        let found = infer(&["1,298", "2,645"], &[]);
        let question = message(&found, THOUSANDS, "c0").unwrap();
        assert!(
            question.ends_with("or `csv.decimal_separator = \",\"`"),
            "{question}"
        );
    }

    #[test]
    fn a_column_with_both_decimal_separators_leaves_the_others_their_settings() {
        let rows = ["58,05 17,5 2,645", "58.05 1.298,50 4,640", "7 1.298 8,453"];
        let found = infer(&rows, &[]);
        assert!(message(&found, MIXED, "c0").is_some());
        assert!(message(&found, COMMA, "c1").unwrap().contains(BOTH));
        assert!(message(&found, COMMA, "c2").unwrap().contains(BOTH));
        let followed = infer(&rows, &GERMAN);
        assert!(message(&followed, MIXED, "c0").is_some());
        let types = ["c0", "c1", "c2"].map(|column| followed.types[column]);
        let float = ColumnType::Float64;
        assert_eq!(types, [ColumnType::Utf8, float, float]);
        // Points decide as commas do.
        let rows = ["58,05 17.5 2,645", "58.05 1,298.50 4,640", "7 1,298 8,453"];
        let found = infer(&rows, &[]);
        assert!(message(&found, MIXED, "c0").is_some());
        assert!(message(&found, THOUSANDS, "c1").is_some());
        assert!(message(&found, THOUSANDS, "c2").is_some());
    }

    #[test]
    fn no_thousands_separator_is_the_decimal_separator_of_another_column() {
        let rows = ["58,05 1,298.50", "7,5 1,234,567", "17,25 999"];
        let found = infer(&rows, &[]);
        let advice = message(&found, THOUSANDS, "c1").unwrap();
        assert!(advice.contains("`dataset.sql`"), "{advice}");
        assert!(!advice.contains("set `csv.thousands_separator"), "{advice}");
        assert_eq!(found.columns[1].number_settings, [""; 0]);
        let rows = ["58.05 1.298,50", "7.5 1.298", "17.25 58,05"];
        let found = infer(&rows, &[]);
        let advice = message(&found, COMMA, "c1").unwrap();
        assert!(!advice.contains("thousands_separator"), "{advice}");
        assert!(advice.contains("others have a decimal point"), "{advice}");
        assert!(advice.contains("such as `17.25` in `c0`"), "{advice}");
        assert!(advice.contains("`try_cast(replace(replace("), "{advice}");
        // No setting reads its groups.
        assert_eq!(found.columns[1].number_settings, [""; 0]);
        let found = infer(&["58.05 1298,50", "7.5 1298"], &[]);
        let settings = &found.columns[1].number_settings;
        assert_eq!(settings, &["decimal_separator = \",\""]);
    }
}
