//! Evidence for the separators of the numbers of a column, for previews.

use feedline_readers::{
    json,
    value::{Value, shorten},
};
use feedline_schemas::{
    config::CsvConfig, count::counted, csv_cell::CellFormat, record::ColumnType,
};

use super::{
    column_counts::{ColumnCounts, SHOWN},
    inferred::NumberEvidence,
    kind::Kind,
    source_separators::DecidingCells,
};
use crate::{contract::is_long_number, record_places::RecordPlaces};

/// Context of the columns of a source.
#[derive(Clone, Copy, Debug)]
pub(super) struct EvidenceContext<'a> {
    pub(super) csv: &'a CsvConfig,
    pub(super) deciding: &'a DecidingCells,
    pub(super) places: &'a RecordPlaces,
}

impl ColumnCounts {
    /// Returns the evidence for the separators of a column of CSV cells of this type. There is none for a column
    /// whose type depends on no separator, and for numbers whose decimal point is certain and a default.
    pub(super) fn number_evidence(
        &self,
        r#type: Option<ColumnType>,
        is_type_declared: bool,
        context: EvidenceContext<'_>,
    ) -> Option<NumberEvidence> {
        let is_read = match r#type? {
            found if found.is_number() => true,
            ColumnType::Utf8 if !is_type_declared => false,
            _ => return None,
        };
        let is_listed = match is_read {
            true => self.depends_on_separators(context.csv),
            false => self.has_unread_numbers(),
        };
        if !self.has_cells || !is_listed {
            return None;
        }
        let format = CellFormat::new(context.csv);
        let (cell, record, number) = self.choose_example(is_read, format)?;
        let is_float = r#type == Some(ColumnType::Float64);
        let csv = context.csv;
        let is_set = csv.decimal_separator.is_some() || csv.thousands_separator.is_some();
        let origin = match (is_read, is_set) {
            (true, true) => "declared; ",
            (true, false) => "default; ",
            (false, _) => "",
        };
        let place = record.checked_sub(1);
        Some(NumberEvidence {
            is_type_declared,
            decimal_separator: is_read.then(|| csv.decimal_separator.unwrap_or('.')),
            thousands_separator: csv.thousands_separator.filter(|_| is_read),
            reason: format!("{origin}{}", self.list_evidence(context.deciding)),
            cell: shorten(cell, SHOWN).into_owned(),
            place: place.and_then(|record| context.places.describe(record)),
            number: number.map(|text| if is_float { round_digits(text) } else { text }),
        })
    }

    /// Returns true for a column of numbers that other separators would read otherwise, or that `csv` reads with
    /// other separators or signs than by default.
    fn depends_on_separators(&self, csv: &CsvConfig) -> bool {
        let signs = &self.decimal_signs;
        let is_default =
            matches!(csv.decimal_separator, None | Some('.')) && csv.thousands_separator.is_none();
        match is_default {
            true => {
                let is_open = signs.point_groups > 0 && !signs.has_certain();
                is_open || signs.commas + signs.comma_groups + self.signed_cells.count > 0
            }
            false => signs.has_any() || self.signed_cells.count > 0,
        }
    }

    /// Returns true for a text column whose cells are nearly all numbers, some of them in another notation.
    fn has_unread_numbers(&self) -> bool {
        let signs = &self.decimal_signs;
        let is_other = signs.unread + self.count(Kind::SomeComma) + self.signed_cells.count > 0;
        is_other && (self.has_number_cells() || self.has_number_marks())
    }

    /// A cell with a separator, the number of its record, and the number that it is read as. In a column of numbers
    /// it is one that other separators would read as another number, if there is any.
    fn choose_example(
        &self,
        is_read: bool,
        format: CellFormat,
    ) -> Option<(&str, u64, Option<String>)> {
        let signs = &self.decimal_signs;
        let of_signs = |at: usize| Some((signs.samples[at].as_deref()?, signs.sample_records[at]));
        let signed = self.signed_cells.sample.as_ref();
        let signed = signed.map(|(cell, record)| (cell.as_str(), *record));
        let [comma, point, point_groups, comma_groups] = [0, 1, 2, 3].map(of_signs);
        let cells = match is_read {
            true => [comma_groups, point_groups, comma, signed, point],
            false => [comma, signed, comma_groups, point_groups, point],
        };
        let mut cells = cells.into_iter().flatten();
        let first = cells.clone().next()?;
        let read = cells.find_map(|(cell, record)| {
            let number = format.number(cell).filter(|_| is_read)?;
            Some((cell, record, Some(number.into_owned())))
        });
        Some(read.unwrap_or((first.0, first.1, None)))
    }

    /// Cells that show separators, with their number, and otherwise ambiguous ones.
    fn list_evidence(&self, deciding: &DecidingCells) -> String {
        let signs = &self.decimal_signs;
        let [comma, point, point_groups, comma_groups] = &signs.samples;
        let [several_commas, several_points] = &signs.several_groups;
        let certain = [
            (signs.commas, comma, "a decimal comma"),
            (signs.points, point, "a decimal point"),
            (
                signs.several_commas,
                several_commas,
                "commas between groups",
            ),
            (
                signs.several_points,
                several_points,
                "points between groups",
            ),
        ];
        let open = [
            (signs.comma_groups, comma_groups, "an ambiguous comma"),
            (signs.point_groups, point_groups, "an ambiguous point"),
        ];
        let describe = |(count, cell, words): (u64, &Option<String>, &str)| {
            let cell = shorten(cell.as_deref()?, SHOWN);
            let values = counted(count, "value");
            Some(format!("{values} with {words} such as `{cell}`"))
        };
        let mut notes: Vec<String> = certain.into_iter().filter_map(describe).collect();
        let is_open = notes.is_empty();
        if is_open {
            notes.extend(open.into_iter().filter_map(describe));
        }
        let has_open = is_open && !notes.is_empty();
        if let (true, Some((cell, _))) = (notes.is_empty(), &self.signed_cells.sample) {
            let values = counted(self.signed_cells.count, "value");
            let cell = shorten(cell, SHOWN);
            notes.push(format!("{values} with other marks such as `{cell}`"));
        }
        let mut text = notes.join(", ");
        let others = [
            (&deciding.comma, "a decimal comma"),
            (&deciding.point, "a decimal point"),
        ];
        for (cell, words) in others {
            if let Some(cell) = cell.as_ref().filter(|_| has_open) {
                text.push_str(&format!("; {cell} shows {words}"));
            }
        }
        text
    }
}

/// The number that a column of floats holds: one with more digits than a float is rounded.
fn round_digits(text: String) -> String {
    match json::number(&text) {
        Some(Value::Float(float)) if is_long_number(&text, float) => {
            Value::Float(float).canonical()
        }
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use feedline_readers::record::Record;
    use feedline_schemas::{
        commit::FilePart,
        config::{ColumnContract, DeclaredType, PaginationKind},
    };

    use super::*;
    use crate::infer::Survey;

    /// Evidence of the columns of these rows, whose cells are separated by spaces, read with these separators. The
    /// type of the columns is `declared`.
    fn evidence(
        rows: &[&str],
        separators: [Option<char>; 2],
        declared: Option<DeclaredType>,
    ) -> Vec<Option<NumberEvidence>> {
        let mut config = crate::testing::config("http://h/", PaginationKind::Page);
        [config.csv.decimal_separator, config.csv.thousands_separator] = separators;
        config.csv.currency = Some('$');
        for name in ["c0", "c1", "c2"] {
            let column = ColumnContract {
                r#type: declared,
                ..ColumnContract::default()
            };
            config.contract.column.insert(name.to_owned(), column);
        }
        let mut survey = Survey::new(&config);
        let part = FilePart {
            url: "in/a.csv".to_owned(),
            records: rows.len() as u64,
        };
        survey.places_mut().push_file("in/*", &part);
        for row in rows {
            let cells = row.split(' ').enumerate();
            let entries = cells.map(|(at, cell)| (format!("c{at}"), Value::Cell(cell.to_owned())));
            survey.add(&Record::Value(Value::Object(entries.collect())));
        }
        let columns = survey.infer(&config).columns.into_iter();
        columns.map(|column| column.numbers).collect()
    }

    /// Separators, reason, cell and number of the evidence of the first column, in words.
    fn check(rows: &[&str], separators: [Option<char>; 2], expected: Option<&str>) {
        let found = evidence(rows, separators, None).remove(0);
        let shown = found.map(|found| {
            let of = |sign: Option<char>| sign.map_or_else(|| "-".to_owned(), String::from);
            let number = found.number.unwrap_or_else(|| "text".to_owned());
            format!(
                "{}{} {} -> {number}: {}",
                of(found.decimal_separator),
                of(found.thousands_separator),
                found.cell,
                found.reason
            )
        });
        assert_eq!(shown.as_deref(), expected, "{rows:?}");
    }

    const DEFAULT: [Option<char>; 2] = [None, None];
    const GERMAN: [Option<char>; 2] = [Some(','), Some('.')];
    const ENGLISH: [Option<char>; 2] = [None, Some(',')];

    #[test]
    fn numbers_without_a_doubtful_separator_have_no_evidence() {
        for rows in [
            &["1", "22"][..],
            &["1.5", "22"],
            &["1.234", "0.5"],
            &["-12.5", "1e5"],
            &["a", "b"],
            &["1.5", "x", "y"],
            &["007", "1.234"],
            &["2024-01-31", "2024-02-01"],
            &["true", "false"],
        ] {
            check(rows, DEFAULT, None);
        }
        for rows in [&["1", "22"][..], &["a", "b,c"]] {
            check(rows, GERMAN, None);
        }
    }

    #[test]
    fn numbers_with_declared_separators_show_those_that_agree_and_one_of_either_meaning() {
        check(
            &["1.234,56", "3.287", "7"],
            GERMAN,
            Some(",. 3.287 -> 3287: declared; 1 value with a decimal comma such as `1.234,56`"),
        );
        check(
            &["18.194.000", "3.287", "7,5"],
            GERMAN,
            Some(
                ",. 18.194.000 -> 18194000: declared; 1 value with a decimal comma such as `7,5`, \
                 1 value with points between groups such as `18.194.000`",
            ),
        );
        // A list of codes is one number.
        check(
            &["76,98,419", "12,34,567"],
            ENGLISH,
            Some(
                "., 12,34,567 -> 1234567: declared; 2 values with commas between groups such as `12,34,567`",
            ),
        );
        check(
            &["$1,008", "$5"],
            ENGLISH,
            Some("., $1,008 -> 1008: declared; 1 value with an ambiguous comma such as `$1,008`"),
        );
        check(
            &["18'194", "5"],
            [None, Some('\'')],
            Some(".' 18'194 -> 18194: declared; 1 value with other marks such as `18'194`"),
        );
    }

    #[test]
    fn a_number_with_more_digits_than_a_float_is_shown_as_it_lands() {
        check(
            &["0,10530044673653571870", "7"],
            GERMAN,
            Some(
                ",. 0,10530044673653571870 -> 0.10530044673653571: declared; 1 value with a decimal comma such as \
                 `0,10530044673653571870`",
            ),
        );
    }

    #[test]
    fn numbers_of_either_meaning_are_listed_with_the_cell_of_another_column_that_decides() {
        check(
            &["1.234 5", "5.678 6"],
            DEFAULT,
            Some(".- 1.234 -> 1.234: default; 2 values with an ambiguous point such as `1.234`"),
        );
        check(
            &["2,645 88,54", "4,640 31,38"],
            DEFAULT,
            Some(
                "-- 2,645 -> text: 2 values with an ambiguous comma such as `2,645`; \
                 `31,38` in `c1` shows a decimal comma",
            ),
        );
        check(
            &["3.287 88,54", "8.855 31,38"],
            GERMAN,
            Some(
                ",. 3.287 -> 3287: declared; 2 values with an ambiguous point such as `3.287`; \
                 `31,38` in `c1` shows a decimal comma",
            ),
        );
    }

    #[test]
    fn texts_that_are_numbers_in_another_notation_are_listed_as_text() {
        for (rows, expected) in [
            (
                &["58,05", "58.05"][..],
                "-- 58,05 -> text: 1 value with a decimal comma such as `58,05`, 1 value with a decimal point such as `58.05`",
            ),
            (
                &["17%", "5%"],
                "-- 17% -> text: 2 values with other marks such as `17%`",
            ),
            (
                &["€1.234,56"],
                "-- €1.234,56 -> text: 1 value with a decimal comma such as `€1.234,56`",
            ),
            (
                &["(500)", "1200"],
                "-- (500) -> text: 1 value with other marks such as `(500)`",
            ),
            (
                &["1,234,567"],
                "-- 1,234,567 -> text: 1 value with commas between groups such as `1,234,567`",
            ),
        ] {
            check(rows, DEFAULT, Some(expected));
        }
        for rows in [&["(1)", "(2)"][..], &["1,2,3", "4,5"]] {
            check(rows, DEFAULT, None);
        }
    }

    #[test]
    fn a_declared_type_is_reported_and_declared_text_has_no_separators() {
        let rows = ["1.234 5", "2.345 6"];
        let found = evidence(&rows, DEFAULT, Some(DeclaredType::Float)).remove(0);
        let found = found.unwrap();
        assert!(found.is_type_declared);
        assert_eq!(found.number.as_deref(), Some("1.234"));
        assert_eq!(found.place.as_deref(), Some("`a.csv`"));
        let found = evidence(&rows, GERMAN, Some(DeclaredType::Text));
        assert_eq!(found, [None, None]);
    }
}
