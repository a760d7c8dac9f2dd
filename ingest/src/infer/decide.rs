//! The type of a column, decided from the counts of its values.

use feedline_schemas::{
    count::{counted, noun_of},
    record::ColumnType,
    report::WarnedColumn,
};

use super::{
    column_counts::ColumnCounts, kind::Kind, source_separators::SourceSeparators,
    type_warnings::ColumnFindings,
};
use crate::record_places::RecordPlaces;

/// Settings of a decision.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules<'a> {
    pub(super) max_odd_fraction: f64,
    pub(super) is_widen: bool,
    /// True if `contract.dates` has formats.
    pub(super) has_date_formats: bool,
    /// True if keys of `csv` read numbers of another notation.
    pub(super) has_csv: bool,
    /// Decimal separator of `csv`.
    pub(super) decimal_separator: char,
    /// Separators of the numbers of all columns.
    pub(super) separators: SourceSeparators,
    /// Places of the records.
    pub(super) places: &'a RecordPlaces,
}

impl ColumnCounts {
    /// Returns the type, if the values suggest one, and collects details for the warnings.
    pub(super) fn decide(
        &self,
        rules: Rules<'_>,
        findings: &mut ColumnFindings,
    ) -> Option<ColumnType> {
        let values = self.values();
        if values == 0 || self.count(Kind::Whole) > 0 {
            return None;
        }
        if self.is_of_split_source(rules) {
            self.note_mixed_decimals(findings);
        }
        let is_column_of = |count: u64| {
            count == values
                || (count > 0 && share(values - count, values) <= rules.max_odd_fraction)
        };
        if self.count(Kind::Image) > 0 && self.count(Kind::Image) * 10 >= values * 9 {
            return Some(ColumnType::Binary);
        }
        if self.count(Kind::Bool) == values {
            return Some(self.note_values(ColumnType::Bool, |_| true, rules, findings));
        }
        // A numeric column converts numbers as text.
        let has_numbers = self.sum(Kind::is_number) > 0;
        let is_number = |kind: Kind| {
            kind.is_number() || (has_numbers && !self.has_cells && kind == Kind::NumberText)
        };
        if self.count(Kind::ZeroDigits) == 0
            && !self.has_codes()
            && is_column_of(self.sum(is_number))
            && let Some(r#type) = self.number_type()
        {
            let long = [Kind::LongFloat, Kind::LongWideFloat];
            let has_long = long.iter().any(|kind| self.count(*kind) > 0);
            if has_long && r#type == ColumnType::Float64 {
                findings.rounded.push(self.named(&long));
                findings.is_rounded_beyond_decimal |= self.count(Kind::LongWideFloat) > 0;
            }
            self.note_point_groups(rules, findings);
            self.note_lists(rules, findings);
            return Some(self.note_values(r#type, is_number, rules, findings));
        }
        if is_column_of(self.sum(Kind::is_date)) {
            self.note_readings_of_dates(findings);
            return Some(self.note_values(ColumnType::Timestamp, Kind::is_date, rules, findings));
        }
        self.note_text(rules, is_number, findings);
        self.note_missing_words(findings);
        Some(ColumnType::Utf8)
    }

    fn note_readings_of_dates(&self, findings: &mut ColumnFindings) {
        if self.count(Kind::AmbiguousDate) > 0 {
            findings.ambiguous.push(self.named(&[Kind::AmbiguousDate]));
        }
        if self.count(Kind::LocalTime) > 0 {
            findings.local_times.push(self.named(&[Kind::LocalTime]));
        }
    }

    /// Returns true if digits around an `e` are codes: all other numbers of the column are
    /// integers.
    fn has_codes(&self) -> bool {
        let is_integer = |kind| matches!(kind, Kind::Integer | Kind::BigInteger | Kind::DigitsAndE);
        let is_float = |kind: Kind| kind.is_number() && !is_integer(kind);
        self.count(Kind::DigitsAndE) > 0 && self.sum(is_float) == 0
    }

    /// Returns the narrowest numeric type that holds all numbers without loss.
    fn number_type(&self) -> Option<ColumnType> {
        let has = |kind: Kind| self.count(kind) + self.in_texts[kind as usize] > 0;
        let floats = [
            Kind::Float,
            Kind::WideFloat,
            Kind::LongFloat,
            Kind::LongWideFloat,
            Kind::DigitsAndE,
        ];
        let is_float = floats.into_iter().any(has);
        if has(Kind::Digits) || (has(Kind::BigInteger) && is_float) {
            let is_wide = has(Kind::WideFloat) || has(Kind::LongWideFloat);
            return (!is_wide).then_some(ColumnType::Decimal);
        }
        Some(match is_float {
            true => ColumnType::Float64,
            false => ColumnType::Int64,
        })
    }

    /// Collects missing-value spellings and values of other types for the warnings; returns the
    /// type.
    fn note_values(
        &self,
        r#type: ColumnType,
        is_of: impl Fn(Kind) -> bool,
        rules: Rules<'_>,
        findings: &mut ColumnFindings,
    ) -> ColumnType {
        self.note_spellings(findings);
        self.note_odd_values(r#type, is_of, rules, findings);
        r#type
    }

    fn note_spellings(&self, findings: &mut ColumnFindings) {
        if self.spellings.is_empty() {
            return;
        }
        let column = WarnedColumn::with_found(&self.name, self.list_spellings());
        findings.spellings.push(self.with_spellings(column));
    }

    /// Collects a text column with spellings of a missing value, which stay text.
    fn note_missing_words(&self, findings: &mut ColumnFindings) {
        if self.spellings.is_empty() {
            return;
        }
        let values = counted(self.sum(|_| true), "value");
        let described = format!("{} of {values}", self.list_spellings());
        let column = WarnedColumn::with_found(&self.name, described);
        findings.missing_words.push(self.with_spellings(column));
    }

    /// `column` with the spellings of a missing value that it has.
    fn with_spellings(&self, column: WarnedColumn) -> WarnedColumn {
        WarnedColumn {
            values: self.spellings.keys().cloned().collect(),
            ..column
        }
    }

    /// Spellings of a missing value, each with its number of values.
    fn list_spellings(&self) -> String {
        let all = self.spellings.iter();
        let all: Vec<String> = all
            .map(|(text, count)| format!("{count} `{text}`"))
            .collect();
        all.join(", ")
    }

    fn note_odd_values(
        &self,
        r#type: ColumnType,
        is_of: impl Fn(Kind) -> bool,
        rules: Rules<'_>,
        findings: &mut ColumnFindings,
    ) {
        let odd = |kind: Kind| !is_of(kind) && kind != Kind::Missing;
        let count = self.sum(odd);
        if count == 0 {
            return;
        }
        let is_met = |kind: &Kind| odd(*kind) && self.count(*kind) > 0;
        let kinds: Vec<Kind> = Kind::ALL.iter().copied().filter(is_met).collect();
        let are = if count == 1 { "is" } else { "are" };
        findings.has_cells |= self.has_cells;
        let described = format!(
            "{count} of {} {are} no {}, such as {}{}{}",
            self.values(),
            noun_of(count, noun(r#type)),
            self.some_of(&kinds),
            self.first_place(&kinds, rules.places),
            kinds
                .iter()
                .find_map(|kind| hint(*kind))
                .filter(|_| rules.has_csv)
                .unwrap_or_default()
        );
        let column = WarnedColumn::with_found(&self.name, described);
        findings.odd.push(column);
    }
}

/// Key that makes odd cells of a kind numbers, for a message.
const fn hint(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Thousands | Kind::SomeComma | Kind::Spaced | Kind::SpacedComma => {
            Some(", which `csv.thousands_separator` may read")
        }
        Kind::DecimalComma => Some(", which `csv.decimal_separator` may read"),
        Kind::Percent => Some(", which `csv.percent` reads"),
        Kind::Amount => Some(", which `csv.currency` may read"),
        _ => None,
    }
}

const fn noun(r#type: ColumnType) -> &'static str {
    match r#type {
        ColumnType::Bool => "boolean",
        ColumnType::Timestamp => "date",
        _ => "number",
    }
}

/// Fraction of `whole` values.
#[expect(
    clippy::cast_precision_loss,
    reason = "a share of counts far below 2^53"
)]
pub(super) fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}
