//! Text columns whose values may have another meaning.

use feedline_schemas::{
    count::{counted, noun_of},
    report::WarnedColumn,
};

use super::{
    column_counts::ColumnCounts,
    decide::{Rules, share},
    kind::Kind,
    source_separators::SourceSeparators,
    type_warnings::ColumnFindings,
};

/// Kinds of cells that may be dates.
const UNCLEAR_DATES: [Kind; 6] = [
    Kind::UnclearDate,
    Kind::DeclaredDate,
    Kind::AmbiguousDate,
    Kind::Day,
    Kind::LocalTime,
    Kind::Instant,
];

impl ColumnCounts {
    /// Collects a text column that may have another meaning, for the warnings.
    pub(super) fn note_text(
        &self,
        rules: Rules<'_>,
        is_number: impl Fn(Kind) -> bool,
        findings: &mut ColumnFindings,
    ) {
        if self.is_of_split_source(rules) {
            // Another warning names it.
            return;
        }
        let values = self.values();
        let is_most = |count: u64| count * 10 >= values * 9;
        let numbers = self.sum(&is_number);
        let commas = [Kind::DecimalComma, Kind::SomeComma];
        let thousands = [Kind::Thousands, Kind::SomeComma];
        let spaces = [Kind::Spaced, Kind::SpacedComma];
        let of = |kinds: &[Kind]| self.count_all(kinds);
        let groups = self.unread_groups(rules.separators);
        if self.has_many_amount_marks(rules) {
            self.note_marked_numbers(rules, findings);
        } else if of(&spaces) > 0 && is_most(of(&spaces) + of(&commas) + numbers) {
            findings.spaces.push(self.named(&spaces));
            let kinds = spaces.into_iter().chain(commas);
            let found = kinds.filter(|kind| self.count(*kind) > 0);
            findings.space_notation.kinds.extend(found);
        } else if rules.has_csv && self.has_mixed_decimals(numbers) {
            self.note_mixed_decimals(findings);
        } else if self.count(Kind::DecimalComma) + groups > 0
            && is_most(of(&commas) + groups + numbers)
        {
            self.note_decimal_commas(&commas, findings);
        } else if of(&thousands) > 0 && is_most(of(&thousands) + numbers) {
            let is_decimal = self.may_be_decimal_comma() && rules.separators.has_commas;
            findings.are_commas_decided |= is_decimal;
            let columns = match is_decimal {
                true => &mut findings.decimal_commas,
                false => &mut findings.thousands,
            };
            columns.push(self.named(&thousands));
        } else if self.count(Kind::Amount) > 0 && is_most(self.count(Kind::Amount) + numbers) {
            self.note_amounts(rules, findings);
        } else if self.count(Kind::Percent) > 0 && is_most(self.count(Kind::Percent) + numbers) {
            let is_read = is_most(self.count(Kind::Percent) - self.other_percents + numbers);
            let percents = match is_read {
                true => &mut findings.percents,
                false => &mut findings.other_percents,
            };
            percents.push(self.named_percents());
        } else if self.has_other_points(rules) {
            let [_, point, ..] = &self.decimal_signs.samples;
            let named = self.named_with([point.as_ref(), None]);
            findings.decimal_points.push(named);
        } else if rules.has_csv && self.has_number_marks() {
            self.note_marked_numbers(rules, findings);
        } else if self.count(Kind::UnclearDate) > 0
            && is_most(of(&UNCLEAR_DATES) + self.worded_dates)
        {
            self.note_dates(rules, findings);
        } else if !rules.is_widen && self.is_mixed(numbers) {
            self.note_mixed(rules, findings);
        } else if self.has_few_leading_zeros(numbers) {
            self.note_leading_zeros(rules, findings);
        } else if self.has_times_of_several_forms(rules) {
            self.note_text_times(rules, findings);
        }
    }

    /// Returns true if some cells have a decimal comma and others a decimal point, and nearly all are
    /// numbers; `numbers` of them are numbers with the separators of `csv`.
    fn has_mixed_decimals(&self, numbers: u64) -> bool {
        let signs = &self.decimal_signs;
        let all = numbers + signs.unread + self.count(Kind::SomeComma);
        signs.are_mixed() && all * 10 >= self.values() * 9
    }

    /// Returns true if nearly all cells are numbers, some with marks such as apostrophes; `others` are without.
    pub(super) fn has_marked_numbers(&self, others: u64) -> bool {
        let marked = self.marked_numbers.count(others);
        marked > 0 && (marked + others) * 10 >= self.values() * 9
    }

    /// Returns true if nearly all cells are numbers, some with marks that a setting or a query reads.
    pub(super) fn has_number_marks(&self) -> bool {
        let others = match self.marked_numbers.separator() {
            Some(_) => {
                let thousands = [Kind::Thousands, Kind::SomeComma];
                self.sum(Kind::is_number) + self.count_all(&thousands)
            }
            None => self.count_numbers(),
        };
        self.has_marked_numbers(others)
    }

    /// Returns true for such a column with more marks of amounts than a column of numbers has odd values, so that no
    /// setting for its other cells reads it.
    pub(super) fn has_many_amount_marks(&self, rules: Rules<'_>) -> bool {
        let marked = self.marked_numbers.count(self.count_numbers());
        rules.has_csv
            && self.marked_numbers.separator().is_none()
            && share(marked, self.values()) > rules.max_odd_fraction
            && self.has_number_marks()
    }

    /// Collects a column of numbers with such marks.
    fn note_marked_numbers(&self, rules: Rules<'_>, findings: &mut ColumnFindings) {
        let (marked, signs) = (&self.marked_numbers, &self.decimal_signs);
        let named = self.named_with([marked.sample.as_ref(), None]);
        if let Some(sign) = marked.separator() {
            findings.apostrophes.push(named);
            findings.apostrophe = findings.apostrophe.or(Some(sign));
            return;
        }
        let [commas, points] = marked.decimals;
        let [is_comma, is_point] = match (commas + signs.commas, points + signs.points) {
            (0, 0) => {
                let is_comma = rules.separators.has_commas && !rules.separators.has_points;
                [is_comma, !is_comma]
            }
            (commas, points) => [commas > 0, points > 0],
        };
        findings.coded_amounts.push(named);
        findings.has_comma_amounts |= is_comma;
        findings.has_point_amounts |= is_point;
    }

    /// Returns true if nearly all cells are numbers, some with a decimal point that is none with the decimal separator
    /// of `csv`, and none with a decimal comma.
    fn has_other_points(&self, rules: Rules<'_>) -> bool {
        let signs = &self.decimal_signs;
        let numbers = self.sum(Kind::is_number) + self.count(Kind::SomeComma) + signs.unread;
        let is_other = rules.has_csv && rules.decimal_separator != '.';
        is_other && signs.points > 0 && signs.commas == 0 && numbers * 10 >= self.values() * 9
    }

    /// Number of cells with points before groups of three digits that only `csv.thousands_separator` reads:
    /// the comma is the decimal separator, and the point is none of another column.
    fn unread_groups(&self, separators: SourceSeparators) -> u64 {
        match separators.has_commas && !separators.has_points {
            true => self.decimal_signs.unread_groups,
            false => 0,
        }
    }

    /// Returns true if each comma of its numbers may be a decimal separator, and no point is one.
    fn may_be_decimal_comma(&self) -> bool {
        self.count(Kind::Thousands) == 0 && self.decimal_signs.points == 0
    }

    /// Collects a column of numbers in a notation with a decimal comma, with some cells of the kinds
    /// `commas`.
    fn note_decimal_commas(&self, commas: &[Kind], findings: &mut ColumnFindings) {
        let [comma, _, groups, _] = &self.decimal_signs.samples;
        let item = match self.count_all(commas) {
            0 => self.named_with([comma.as_ref(), groups.as_ref()]),
            _ => self.named(commas),
        };
        findings.decimal_commas.push(item);
        findings.are_commas_decided |= !self.decimal_signs.has_certain();
        findings.has_grouped_commas |= self.has_grouped_commas;
    }

    /// Returns true if most cells are plain numbers, the others are digits after a leading zero,
    /// and numbers have other widths, so that the column may be one of numbers.
    fn has_few_leading_zeros(&self, numbers: u64) -> bool {
        let zeros = self.count(Kind::ZeroDigits);
        let is_few = zeros > 0 && zeros + numbers == self.values() && zeros < numbers;
        is_few && !self.has_padded_widths()
    }

    /// Collects a column of numbers and a few digits after a leading zero.
    fn note_leading_zeros(&self, rules: Rules<'_>, findings: &mut ColumnFindings) {
        let zeros = self.count(Kind::ZeroDigits);
        let verb = if zeros == 1 { "begins" } else { "begin" };
        let described = format!(
            "{zeros} of {} {verb} with a 0, such as {}{}",
            counted(self.values(), "value"),
            self.some_of(&[Kind::ZeroDigits]),
            self.first_place(&[Kind::ZeroDigits], rules.places)
        );
        let column = WarnedColumn::with_found(&self.name, described);
        findings.leading_zeros.push(column);
    }

    /// Returns true if the strings are times of several forms, but for a small fraction. Blank strings
    /// do not count.
    fn has_times_of_several_forms(&self, rules: Rules<'_>) -> bool {
        self.text_times.has_several_forms() && self.are_times(rules.max_odd_fraction)
    }

    /// Returns true if the strings are times, but for a fraction of at most `max_odd_fraction`. Blank
    /// strings do not count.
    pub(super) fn are_times(&self, max_odd_fraction: f64) -> bool {
        let strings = self.values() - self.text_times.blanks;
        let others = strings - self.text_times.count;
        self.text_times.count > 0 && share(others, strings) <= max_odd_fraction
    }

    /// Collects a column of times in strings of several forms, with the strings that are no times.
    fn note_text_times(&self, rules: Rules<'_>, findings: &mut ColumnFindings) {
        let (times, values) = (&self.text_times, self.values());
        let samples = times.samples();
        let others = values - times.count;
        let odd = match others {
            0 => String::new(),
            _ => format!(
                "; {others} of {values} {} no {}, such as {}",
                if others == 1 { "is" } else { "are" },
                noun_of(others, "time"),
                times.other()
            ),
        };
        let column = WarnedColumn::with_found(&self.name, format!("{samples}{odd}"));
        findings.text_times.push(column);
        findings.time_formats.extend(times.formats());
        findings.has_odd_times |= others > 0;
        findings.has_many_odd_times |= share(others, values) > rules.max_odd_fraction;
    }

    fn count_all(&self, kinds: &[Kind]) -> u64 {
        kinds.iter().map(|kind| self.count(*kind)).sum()
    }

    /// The name of a column of percentages, with a few values, and those without a percent sign.
    fn named_percents(&self) -> WarnedColumn {
        let kinds = Kind::ALL.iter().copied().filter(|kind| kind.is_number());
        let kinds: Vec<Kind> = kinds.collect();
        let plain = match self.count_all(&kinds) {
            // Numbers with a sign that the key reads would be counted too.
            0 => return self.named(&[Kind::Percent]),
            _ if self.read_percents > 0 => return self.named(&[Kind::Percent]),
            plain => plain,
        };
        let has = match plain {
            1 => "has no percent sign and keeps its value",
            _ => "have no percent sign and keep their value",
        };
        let described = format!(
            "{}; {plain} of {}, such as {}, {has}",
            self.some_of(&[Kind::Percent]),
            counted(self.values(), "value"),
            self.some_of(&kinds)
        );
        WarnedColumn::with_found(&self.name, described)
    }

    /// Collects a column of amounts with a currency sign.
    fn note_amounts(&self, rules: Rules<'_>, findings: &mut ColumnFindings) {
        findings.amounts.push(self.named(&[Kind::Amount]));
        let notation = &mut findings.amount_notation;
        notation.separators = rules.separators;
        notation.has_point_groups |= self.decimal_signs.point_groups > 0;
        notation.has_points |= self.decimal_signs.points > 0;
        notation.amounts.extend(self.amounts.iter().copied());
        notation.has_grouped_commas |= self.has_grouped_commas;
    }

    /// Collects a column of dates in no declared format.
    fn note_dates(&self, rules: Rules<'_>, findings: &mut ColumnFindings) {
        let fit = self.count_all(&[Kind::DeclaredDate, Kind::AmbiguousDate]);
        let declared = match rules.has_date_formats {
            false => String::new(),
            true => format!(
                "; the formats of `contract.dates` fit {fit} of {}",
                self.values()
            ),
        };
        let fitting = match self.worded_dates {
            0 => self.formats.get(),
            _ => &[],
        };
        let note = match fitting {
            [] => self.list_notations(),
            [one] => format!("`{one}` fits all"),
            several => format!(
                "`{}` fit all, so the order of day and month is not certain",
                several.join("` and `")
            ),
        };
        let described = format!("{}; {note}{declared}", self.some_of(&UNCLEAR_DATES));
        findings.dates.push(WarnedColumn {
            values: fitting.to_vec(),
            ..WarnedColumn::with_found(&self.name, described)
        });
        let first = || fitting.first().cloned();
        findings.format = findings.format.take().or_else(first);
    }

    /// Formats of dates in several notations, one for each notation that has any.
    fn list_notations(&self) -> String {
        let none = "no usual format fits all".to_owned();
        let Some(notations) = self.notations.get() else {
            return none;
        };
        let notations = notations.iter();
        let named = notations.map(|formats| format!("`{}`", formats.join("` or `")));
        let named: Vec<String> = named.collect();
        format!("{none}, but these together do: {}", named.join(", "))
    }

    /// Collects a column of values of several types.
    fn note_mixed(&self, rules: Rules<'_>, findings: &mut ColumnFindings) {
        let kinds = Kind::ALL.iter().filter(|kind| **kind != Kind::Missing);
        let kinds = kinds.filter(|kind| self.count(**kind) > 0).map(|kind| {
            let of = self.some_of(&[*kind]);
            let place = self.first_place(&[*kind], rules.places);
            let hint = match rules.has_csv && *kind == Kind::Percent && self.other_percents == 0 {
                true => ", which `csv.percent` reads",
                false => "",
            };
            let (count, noun) = (self.count(*kind), kind.noun());
            format!("{count} {noun} such as {of}{place}{hint}")
        });
        let kinds: Vec<String> = kinds.collect();
        let column = WarnedColumn::with_found(&self.name, kinds.join(", "));
        findings.mixed.push(column);
    }

    /// Returns true if the column probably has another type than text. For CSV cells, more than
    /// half must look like that type, percentages like numbers. Digits after a leading zero belong to a
    /// code, and so do digits with hyphens beside them.
    fn is_mixed(&self, numbers: u64) -> bool {
        let dates = self.sum(Kind::is_date);
        let bools = self.count(Kind::Bool);
        if !self.has_cells {
            let others = self.values() - numbers - bools;
            return [numbers, bools, others].iter().filter(|n| **n > 0).count() > 1
                || (0 < dates && dates < others);
        }
        let zeros = self.count(Kind::ZeroDigits);
        let is_code = zeros > 0 && zeros + numbers + self.hyphenated == self.values();
        let is_most = |count: u64| count * 2 > self.values();
        let numbers = numbers + self.count(Kind::Percent);
        !is_code && [numbers, dates, bools].into_iter().any(is_most)
    }
}

#[cfg(test)]
mod tests {
    use feedline_readers::{record::Record, value::Value};
    use feedline_schemas::{config::PaginationKind, record::ColumnType};

    use crate::infer::{Inferred, Survey};

    fn infer(cells: &[&str], dates: &[&str]) -> Inferred {
        let mut config = crate::testing::config("http://h/", PaginationKind::Page);
        config.contract.dates = dates.iter().map(|format| (*format).to_owned()).collect();
        let mut survey = Survey::new(&config);
        for cell in cells {
            let entries = vec![("at".to_owned(), Value::Cell((*cell).to_owned()))];
            survey.add(&Record::Value(Value::Object(entries)));
        }
        survey.infer(&config)
    }

    #[test]
    fn dates_in_several_notations_are_named_with_the_formats_that_read_them_together() {
        let cells = ["2024-11-17", "25.07.2023", "03 Jan 2024", "08/25/2024"];
        let found = infer(&cells, &[]);
        let [warning] = &found.warnings[..] else {
            panic!("{:?}", found.warnings)
        };
        assert_eq!(warning.code, "looks_like_dates");
        let together =
            "no usual format fits all, but these together do: `%d %b %Y`, `%d.%m.%Y`, `%m/%d/%Y`)";
        assert!(warning.message.contains(together), "{warning:?}");
        let followed = infer(&cells, &["%d %b %Y", "%d.%m.%Y", "%m/%d/%Y"]);
        assert_eq!(followed.types["at"], ColumnType::Timestamp);
        // Texts beside dates are no dates.
        let found = infer(
            &["25.07.2023", "03 Jan 2024", "version 12a", "7 apples"],
            &[],
        );
        assert_eq!(found.warnings, []);
    }
}
