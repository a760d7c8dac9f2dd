//! Settings of `csv` that read text columns as numbers.

use std::collections::BTreeSet;

use feedline_schemas::config::{CsvConfig, SourceConfig, SourceKind};

use super::{column_counts::ColumnCounts, kind::Kind, source_separators::SourceSeparators};

/// Returns true if a source has the table `csv`.
pub(super) const fn has_csv_table(config: &SourceConfig) -> bool {
    matches!(config.r#type, SourceKind::Files | SourceKind::Rest)
}

/// Notation of the numbers in text columns.
#[derive(Clone, Debug, Default)]
pub(super) struct NumberNotation {
    /// Currency signs of amounts, each with the kind of the number.
    pub(super) amounts: BTreeSet<(char, Kind)>,
    /// Other kinds of the numbers.
    pub(super) kinds: BTreeSet<Kind>,
    /// True if any number with a decimal comma has groups of thousands.
    pub(super) has_grouped_commas: bool,
    /// True if any number has points before groups of three digits.
    pub(super) has_point_groups: bool,
    /// True if any number has a decimal point.
    pub(super) has_points: bool,
    /// Separators of the numbers of all columns.
    pub(super) separators: SourceSeparators,
}

impl NumberNotation {
    /// Currency signs, each once.
    pub(super) fn currencies(&self) -> Vec<char> {
        let signs: BTreeSet<char> = self.amounts.iter().map(|(sign, _)| *sign).collect();
        signs.into_iter().collect()
    }

    fn has(&self, kind: Kind) -> bool {
        let mut amounts = self.amounts.iter();
        self.kinds.contains(&kind) || amounts.any(|(_, number)| *number == kind)
    }

    /// Decimal and thousands separator, where they are not the default ones; `None` if another column has the
    /// thousands separator as its decimal separator.
    fn separators(&self) -> Option<(Option<char>, Option<char>)> {
        let SourceSeparators {
            has_commas,
            has_points,
            ..
        } = self.separators;
        if self.has(Kind::Spaced) || self.has(Kind::SpacedComma) {
            let commas = [Kind::SpacedComma, Kind::DecimalComma, Kind::SomeComma];
            let has_comma = commas.iter().any(|kind| self.has(*kind));
            return Some((has_comma.then_some(','), Some(' ')));
        }
        let has_groups = self.has_point_groups && !self.has_points && !self.has(Kind::Thousands);
        if has_groups && has_commas && !has_points {
            return Some((Some(','), Some('.')));
        }
        let has_thousands = self.has(Kind::Thousands) || self.has(Kind::SomeComma);
        let may_be_decimal = has_thousands && !self.has(Kind::Thousands) && !self.has_points;
        if self.has(Kind::DecimalComma) || (may_be_decimal && has_commas) {
            let has_unread_groups = self.has_grouped_commas && has_points;
            let thousands = self.has_grouped_commas.then_some('.');
            return (!has_unread_groups).then_some((Some(','), thousands));
        }
        (!has_thousands || !has_commas).then_some((None, has_thousands.then_some(',')))
    }

    /// Lines of `csv`, such as `currency = "$"`, that are not in `csv` and read the numbers; none
    /// for amounts in several currencies, and where `csv` or another column has other separators.
    pub(super) fn settings(&self, csv: &CsvConfig) -> Vec<String> {
        let currency = match self.currencies()[..] {
            [] => None,
            [one] => Some(one),
            _ => return Vec::new(),
        };
        let Some((decimal, thousands)) = self.separators() else {
            return Vec::new();
        };
        let characters = [
            ("decimal_separator", decimal, csv.decimal_separator),
            ("thousands_separator", thousands, csv.thousands_separator),
            ("currency", currency, csv.currency),
        ];
        let is_other = |(_, own, set): &(_, Option<char>, Option<char>)| {
            own.is_some() && set.is_some() && own != set
        };
        let decimal_now = decimal.or(csv.decimal_separator).unwrap_or('.');
        let thousands_now = thousands.or(csv.thousands_separator);
        let has_other_points = self.has_points && decimal_now != '.';
        let is_in_use = thousands_now == Some(decimal_now) || has_other_points;
        if characters.iter().any(is_other) || is_in_use {
            return Vec::new();
        }
        let new = characters.into_iter().filter(|(_, own, set)| own != set);
        let new = new.filter_map(|(key, own, _)| Some(format!("{key} = \"{}\"", own?)));
        let percent = self.has(Kind::Percent) && !csv.percent;
        new.chain(percent.then(|| "percent = true".to_owned()))
            .collect()
    }
}

impl ColumnCounts {
    /// Lines of `csv` that read nine tenths of the values of this text column as numbers; none if
    /// there are no such settings.
    pub(super) fn number_settings(
        &self,
        csv: &CsvConfig,
        separators: SourceSeparators,
    ) -> Vec<String> {
        let kinds = [
            Kind::DecimalComma,
            Kind::SomeComma,
            Kind::Thousands,
            Kind::Spaced,
            Kind::SpacedComma,
            Kind::Percent,
            Kind::Amount,
        ];
        let found: BTreeSet<Kind> = kinds.into_iter().filter(|k| self.count(*k) > 0).collect();
        let numbers = self.sum(|kind| kind.is_number() || found.contains(&kind));
        let is_mixed = self.decimal_signs.are_mixed();
        let is_unclear = is_mixed || separators.is_split;
        let is_default = csv.decimal_separator.is_none() && csv.thousands_separator.is_none();
        if let Some(sign) = self.marked_numbers.separator()
            && is_default
            && !is_unclear
            && self.has_marked_numbers(self.sum(Kind::is_number))
        {
            return vec![format!("thousands_separator = \"{sign}\"")];
        }
        if found.is_empty() || is_unclear || numbers * 10 < self.values() * 9 {
            return Vec::new();
        }
        let notation = NumberNotation {
            amounts: self.amounts.clone(),
            kinds: found,
            has_grouped_commas: self.has_grouped_commas || self.decimal_signs.point_groups > 0,
            has_point_groups: self.decimal_signs.point_groups > 0,
            has_points: self.decimal_signs.points > 0,
            separators,
        };
        notation.settings(csv)
    }
}
