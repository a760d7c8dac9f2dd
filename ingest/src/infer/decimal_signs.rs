//! Separators of the numbers in the cells of a column, in any notation.
//!
//! A comma or a point before three digits, as in `1.298`, may be either separator. Other numbers show
//! their decimal separator: `58,05` and `1.298,50` have a decimal comma.

use std::{borrow::Cow, mem};

use feedline_schemas::csv_cell::{are_indian_groups, is_group_space};

use super::kind::{Kind, is_currency_sign};

/// Separators of one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Separators {
    /// A decimal comma.
    Comma,
    /// A decimal point.
    Point,
    /// Commas before groups of three digits; a single one may be a decimal separator.
    CommaGroups,
    /// The same with points.
    PointGroups,
}

impl Separators {
    /// Separators of `number` in any notation; `None` for other text and for digits alone.
    fn of(number: &str) -> Option<Self> {
        let number = number.strip_prefix(['-', '+']).unwrap_or(number);
        let (mantissa, exponent) = match number.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, Some(exponent)),
            None => (number, None),
        };
        let exponent = exponent.map(|text| text.strip_prefix(['-', '+']).unwrap_or(text));
        let is_comma = mantissa.chars().rfind(|c| matches!(c, ',' | '.'))? == ',';
        let (sign, other) = if is_comma { (',', '.') } else { ('.', ',') };
        let (whole, part) = mantissa.rsplit_once(sign)?;
        let is_part = !part.is_empty() && are_digits(part) && exponent.is_none_or(are_digits);
        let groups = exponent.is_none() && is_grouped(mantissa, sign);
        let decimal = are_digits(whole) || (whole.contains(other) && is_grouped(whole, other));
        match (is_part && groups, is_part && decimal) {
            (true, _) if is_comma => Some(Self::CommaGroups),
            (true, _) => Some(Self::PointGroups),
            (false, true) if is_comma => Some(Self::Comma),
            (false, true) => Some(Self::Point),
            (false, false) => None,
        }
    }
}

/// Returns true if all characters are digits, also for an empty text.
fn are_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns true for digits, with or without `sign` before groups of three, and for Indian groups.
fn is_grouped(text: &str, sign: char) -> bool {
    if sign == ',' && are_indian_groups(text) {
        return true;
    }
    let mut groups = text.split(sign);
    let first = groups.next().unwrap_or_default();
    let is_first = (1..=3).contains(&first.len()) && are_digits(first) && !first.starts_with('0');
    is_first && groups.all(|group| group.len() == 3 && are_digits(group))
}

/// Numbers of some cells, such as those of a file, by their separators.
#[derive(Clone, Copy, Debug, Default)]
struct FoundSeparators {
    comma: u64,
    point: u64,
    /// The same before groups of three digits, where they may separate thousands.
    comma_groups: u64,
    point_groups: u64,
}

/// Returns true if both are many enough to be the notation of some files: one number in twenty is no typing error.
const fn are_both(one: u64, other: u64) -> bool {
    let (few, many) = if one < other {
        (one, other)
    } else {
        (other, one)
    };
    few > 0 && few.saturating_mul(19) >= many
}

/// Counts those of one kind, if there is none of the opposite kind.
const fn alone(count: u64, opposite: u64) -> u64 {
    if opposite == 0 { count } else { 0 }
}

impl FoundSeparators {
    /// Adds those that a file has without the opposite ones.
    const fn add_file(&mut self, file: Self) {
        self.comma += alone(file.comma, file.point);
        self.point += alone(file.point, file.comma);
        self.comma_groups += alone(file.comma_groups, file.point_groups);
        self.point_groups += alone(file.point_groups, file.comma_groups);
    }
}

/// Numbers of cells by their separators.
#[derive(Clone, Debug, Default)]
pub(super) struct DecimalSigns {
    /// Cells with a decimal comma.
    pub(super) commas: u64,
    /// Cells with a decimal point.
    pub(super) points: u64,
    /// Cells with commas before groups of three digits.
    pub(super) comma_groups: u64,
    /// Cells with points before groups of three digits.
    pub(super) point_groups: u64,
    /// First cell in byte order with several groups behind commas, and with several behind points: these
    /// separate thousands.
    pub(super) several_groups: [Option<String>; 2],
    /// Cells with several groups behind points.
    pub(super) several_points: u64,
    /// Cells with several groups behind commas.
    pub(super) several_commas: u64,
    /// First cell in byte order that is read as a number and has Indian groups, such as `4,05,638`, and the first one
    /// with other groups, such as `405,638`. Groups such as those of `5,638` are both and count for none.
    pub(super) system_samples: [Option<String>; 2],
    /// Cells with points before groups that are no numbers with the separators of `csv`.
    pub(super) unread_groups: u64,
    /// Numbers without a sign of currency or percent that are none with the separators of `csv`, other than `1,234`.
    pub(super) unread: u64,
    /// First cell in byte order with a decimal comma, with a decimal point, and with groups behind points
    /// and behind commas.
    pub(super) samples: [Option<String>; 4],
    /// Numbers of the records of these cells, from 1.
    pub(super) sample_records: [u64; 4],
    /// Separators of the current file.
    file: FoundSeparators,
    /// Separators that earlier files have without the opposite ones.
    files: FoundSeparators,
}

impl DecimalSigns {
    /// Counts a cell without spaces around it, in the record with the number `record`, from 1.
    pub(super) fn add(&mut self, kind: Kind, text: &str, record: u64) {
        if !text.contains([',', '.']) {
            return;
        }
        let plain = [
            Kind::DecimalComma,
            Kind::SomeComma,
            Kind::Thousands,
            Kind::Text,
        ];
        let found = match kind {
            kind if plain.contains(&kind) => Separators::of(text),
            kind if kind.is_number() || MARKED.contains(&kind) => Separators::of(&unmarked(text)),
            _ => None,
        };
        let Some(found) = found else { return };
        let is_unread = plain.contains(&kind) && kind != Kind::SomeComma;
        self.unread += u64::from(is_unread);
        let has_several = text.matches([',', '.']).count() > 1;
        let (count, is_in_file, at) = match found {
            Separators::Comma => (&mut self.commas, &mut self.file.comma, 0),
            Separators::Point => (&mut self.points, &mut self.file.point, 1),
            Separators::PointGroups => {
                self.unread_groups += u64::from(kind == Kind::Text);
                let [_, several] = &mut self.several_groups;
                keep_first(several, text, has_several);
                self.several_points += u64::from(has_several);
                (&mut self.point_groups, &mut self.file.point_groups, 2)
            }
            Separators::CommaGroups => {
                let [several, _] = &mut self.several_groups;
                keep_first(several, text, has_several);
                self.several_commas += u64::from(has_several);
                if kind.is_number()
                    && let Some(system) = group_system(text)
                {
                    keep_first(&mut self.system_samples[system], text, true);
                }
                (&mut self.comma_groups, &mut self.file.comma_groups, 3)
            }
        };
        *count += 1;
        *is_in_file += 1;
        if keep_first(&mut self.samples[at], text, true) {
            self.sample_records[at] = record;
        }
    }

    /// Begins the next file.
    pub(super) fn end_file(&mut self) {
        self.files.add_file(mem::take(&mut self.file));
    }

    /// Returns true if some cells have a decimal comma and others a decimal point, or if neither setting
    /// can be right for both `720,525` and `35.021`.
    pub(super) fn are_mixed(&self) -> bool {
        self.are_surely_mixed() || self.are_groups_mixed()
    }

    /// Returns true if some cells have a decimal comma and others a decimal point.
    pub(super) const fn are_surely_mixed(&self) -> bool {
        self.commas > 0 && self.points > 0
    }

    /// Returns true if some cells have a comma and others a point before three digits, and no cell shows a
    /// decimal separator.
    pub(super) fn are_groups_mixed(&self) -> bool {
        self.comma_groups > 0 && self.point_groups > 0 && !self.has_certain()
    }

    /// Returns true if any cell shows its decimal separator.
    pub(super) fn has_certain(&self) -> bool {
        self.commas + self.points > 0 || self.several_groups.iter().any(Option::is_some)
    }

    /// Returns true if any number has a comma or a point.
    pub(super) const fn has_any(&self) -> bool {
        self.commas + self.points + self.comma_groups + self.point_groups > 0
    }

    /// Returns true if a file has decimal commas alone, and another one decimal points.
    pub(super) const fn are_split(&self) -> bool {
        let files = self.all_files();
        are_both(files.comma, files.point)
    }

    /// Returns true if the numbers may have either separator, those of a file are like `720,525`, and those
    /// of another one like `35.021`.
    pub(super) fn are_groups_split(&self) -> bool {
        let files = self.all_files();
        are_both(files.comma_groups, files.point_groups) && self.are_groups_mixed()
    }

    const fn all_files(&self) -> FoundSeparators {
        let mut files = self.files;
        files.add_file(self.file);
        files
    }
}

/// Keeps `text` if it comes before the kept one in byte order and `is_one`; returns true if it is kept.
fn keep_first(kept: &mut Option<String>, text: &str, is_one: bool) -> bool {
    let is_kept = is_one && kept.as_deref().is_none_or(|first| text < first);
    if is_kept {
        *kept = Some(text.to_owned());
    }
    is_kept
}

/// Index of the system of groups behind commas: 0 for Indian groups, 1 for groups of three; `None` for numbers that
/// both write alike.
fn group_system(text: &str) -> Option<usize> {
    let number = unmarked(text);
    let number = number.strip_prefix(['-', '+']).unwrap_or(&number);
    let (first, others) = number.split_once(',')?;
    if are_indian_groups(number) {
        return Some(0);
    }
    (first.len() == 3 || others.contains(',')).then_some(1)
}

/// Kinds of numbers with spaces or other signs.
pub(super) const MARKED: [Kind; 4] = [Kind::Percent, Kind::Amount, Kind::Spaced, Kind::SpacedComma];

/// A number without spaces and signs of currency and percent.
fn unmarked(text: &str) -> Cow<'_, str> {
    let is_mark = |c: char| is_group_space(c) || is_currency_sign(c) || c == '%';
    match text.contains(is_mark) {
        true => Cow::Owned(text.replace(is_mark, "")),
        false => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use feedline_readers::{record::Record, value::Value};
    use feedline_schemas::config::PaginationKind;

    use super::Separators;
    use crate::infer::Survey;

    /// Codes and messages of the warnings about a column of these cells.
    fn warn(cells: &[&str], decimal_separator: Option<char>) -> Vec<(String, String)> {
        let mut config = crate::testing::config("http://h/", PaginationKind::Page);
        config.csv.decimal_separator = decimal_separator;
        let mut survey = Survey::new(&config);
        for cell in cells {
            let entries = vec![("x".to_owned(), Value::Cell((*cell).to_owned()))];
            survey.add(&Record::Value(Value::Object(entries)));
        }
        let warnings = survey.infer(&config).warnings.into_iter();
        warnings
            .map(|warning| (warning.code, warning.message))
            .collect()
    }

    #[test]
    fn a_separator_before_three_digits_may_be_either_one() {
        use Separators::{Comma, CommaGroups, Point, PointGroups};
        for (number, expected) in [
            ("58,05", Some(Comma)),
            ("-1.298,50", Some(Comma)),
            ("1.298,505", Some(Comma)),
            ("0,123", Some(Comma)),
            ("1234,567", Some(Comma)),
            ("1,234e5", Some(Comma)),
            ("58.05", Some(Point)),
            ("+1,298.50", Some(Point)),
            (".5", Some(Point)),
            ("0.123", Some(Point)),
            ("1.234e-5", Some(Point)),
            ("1,298", Some(CommaGroups)),
            ("12,345,678", Some(CommaGroups)),
            ("66,62,530", Some(CommaGroups)),
            ("4,05,638.55", Some(Point)),
            ("1.298", Some(PointGroups)),
            ("-12.345.678", Some(PointGroups)),
            ("1298", None),
            ("1,2,3", None),
            ("1.2.3", None),
            ("12.34,5", None),
            ("1.", None),
            ("v1.5", None),
            ("31.12.2020", None),
        ] {
            assert_eq!(Separators::of(number), expected, "{number}");
        }
    }

    #[test]
    fn one_number_of_many_is_no_notation_of_files() {
        assert!(super::are_both(1, 19) && super::are_both(160, 160));
        assert!(!super::are_both(1, 162) && !super::are_both(5, 0));
    }

    #[test]
    fn files_with_a_point_and_files_with_a_comma_are_reported_with_and_without_the_setting() {
        let cells = ["102.515", "97.358", "6.29", "102,99", "99,498", "5"];
        for separator in [None, Some(',')] {
            let warnings = warn(&cells, separator);
            let [(code, message)] = &warnings[..] else {
                panic!("{warnings:?}")
            };
            assert_eq!(code, "mixed_decimal_separators");
            let begin = "`x` (`102,99`, `6.29`): numbers with a decimal comma in some rows";
            assert!(message.starts_with(begin), "{message}");
            let query = "try_cast(replace(\"COLUMN\", ',', '.') as double) as \"COLUMN\" from";
            assert!(message.contains(query), "{message}");
            assert!(message.contains("a `[[source]]` of their own"), "{message}");
        }
    }

    #[test]
    fn one_decimal_separator_and_groups_of_thousands_are_not_mixed() {
        let codes = |cells: &[&str], separator| {
            let warnings = warn(cells, separator).into_iter();
            warnings.map(|(code, _)| code).collect::<Vec<_>>()
        };
        let commas = ["102,99", "99,498", "5"];
        assert_eq!(codes(&commas, None), ["looks_like_decimal_comma"]);
        assert_eq!(codes(&commas, Some(',')), [""; 0]);
        for grouped in [["1.298", "58,05", "792"], ["1.298", "1.298,50", "792"]] {
            for separator in [None, Some(',')] {
                assert_eq!(codes(&grouped, separator), ["looks_like_decimal_comma"]);
            }
        }
        for grouped in [
            ["1,234,567", "12.5", "1,234"],
            ["1,298", "58.05", "792"],
            ["1,298", "1,298.50", "792"],
        ] {
            assert_eq!(codes(&grouped, None), ["looks_like_thousands"]);
        }
    }
}
