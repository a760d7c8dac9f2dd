//! Counts and samples of the values of one column.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use feedline_readers::value::{Value, hex, one_line, shorten};
use feedline_schemas::{
    csv_cell::CellFormat,
    record::ColumnType,
    report::WarnedColumn,
    row_counter::{IndexCounter, RestartingCounter},
};

use super::{
    decimal_signs::DecimalSigns,
    distinct_values::DistinctValues,
    inferred::{FoundColumn, LargeIntegers, SeparatorSamples},
    kind::{KINDS, Kind},
    marked_numbers::{MarkedNumbers, SignedCells},
    text_times::TextTimes,
    version_numbers::VersionNumbers,
};
use crate::{
    contract::{FittingFormats, NotationFormats},
    record_places::RecordPlaces,
};

/// Sample values per kind for messages.
const SAMPLES: usize = 3;
/// Maximum characters of a sample value.
pub(super) const SHOWN: usize = 40;
/// Largest width; greater ones are counted as it.
const WIDEST: usize = 63;

/// Counts and samples of the values of a column.
#[derive(Clone, Debug, Default)]
pub(super) struct ColumnCounts {
    pub(super) name: String,
    /// True if the configuration declares another type than bytes, so that bytes are read as text.
    pub(super) reads_bytes: bool,
    nulls: u64,
    /// True if any value is a CSV cell.
    pub(super) has_cells: bool,
    counts: [u64; KINDS],
    /// Number of the record with the first value of each kind, from 1; 0 without a value.
    firsts: [u64; KINDS],
    /// Kinds of numbers inside strings, other than cells.
    pub(super) in_texts: [u64; KINDS],
    /// First few values of each kind in byte order, so that the order of records does not matter.
    samples: BTreeMap<Kind, BTreeSet<String>>,
    /// Spellings of missing values.
    pub(super) spellings: BTreeMap<String, u64>,
    /// Formats that all dates of its cells have.
    pub(super) formats: FittingFormats,
    /// Formats of its dates, by their notation.
    pub(super) notations: NotationFormats,
    /// Number of its cells that are dates with the month in words.
    pub(super) worded_dates: u64,
    /// True if any number with a decimal comma has groups of thousands, such as `1.234,56`.
    pub(super) has_grouped_commas: bool,
    /// Currency signs of its amounts, each with the kind of the number.
    pub(super) amounts: BTreeSet<(char, Kind)>,
    /// Widths of the cells that are numbers, one bit each.
    number_widths: u64,
    /// Widths of the cells that are digits after a leading zero.
    zero_widths: u64,
    /// Number of cells of digits with hyphens between them, such as `02139-4307`.
    pub(super) hyphenated: u64,
    /// Number of integers beyond 64 bits, and the last of them in byte order.
    longer_integers: (u64, String),
    /// Number of cells with a percent sign whose numbers have other separators than `csv`.
    pub(super) other_percents: u64,
    /// Number of cells with a percent sign that are numbers with `csv.percent`.
    pub(super) read_percents: u64,
    /// Separators of the numbers in its cells.
    pub(super) decimal_signs: DecimalSigns,
    /// Its numbers with marks that no default of `csv` reads.
    pub(super) marked_numbers: MarkedNumbers,
    /// Its numbers with other signs than separators.
    pub(super) signed_cells: SignedCells,
    /// Its strings, other than cells, that are times.
    pub(super) text_times: TextTimes,
    /// Its numbers, if it decides which row of a key is the latest.
    pub(super) version_numbers: Option<VersionNumbers>,
    /// Distinct values, in a survey that counts them.
    pub(super) distinct: DistinctValues,
    /// Its integers, in such a survey.
    pub(super) counter: RestartingCounter,
    pub(super) index: IndexCounter,
}

impl ColumnCounts {
    /// Begins the counts of the column `name`.
    pub(super) fn of(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ..Self::default()
        }
    }

    /// Counts a value of this kind, or a null, in the record with the number `record`, from 1. A cell
    /// is in `format`.
    pub(super) fn add(
        &mut self,
        kind: Option<Kind>,
        value: &Value,
        format: CellFormat,
        record: u64,
    ) {
        let Some(kind) = kind else {
            self.nulls += 1;
            return;
        };
        if self.counts[kind as usize] == 0 {
            self.firsts[kind as usize] = record;
        }
        self.counts[kind as usize] += 1;
        if kind == Kind::Digits {
            self.add_digits(value, format);
        }
        match value {
            Value::Cell(text) => {
                let number = text.trim().strip_suffix('%');
                self.read_percents += u64::from(number.is_some() && kind.is_number());
                let is_read = number.is_none_or(|number| format.number(number).is_some());
                self.other_percents += u64::from(kind == Kind::Percent && !is_read);
                self.decimal_signs.add(kind, text.trim(), record);
                let is_marked = kind == Kind::Text && self.marked_numbers.add(text.trim());
                self.signed_cells.add(kind, is_marked, text.trim(), record);
                self.add_cell(kind, text);
            }
            Value::Time(text) => self.keep(kind, text),
            Value::Text(text) => {
                if let (Kind::NumberText, Some(number)) = (kind, Kind::of_number_text(text)) {
                    self.in_texts[number as usize] += 1;
                }
                if matches!(kind, Kind::Text | Kind::NumberText) {
                    self.text_times.add(text);
                }
                self.keep(kind, text);
            }
            // Other values are many and similar: one of each kind is enough.
            _ if self.samples.contains_key(&kind) && self.counts[kind as usize] > 1_000 => {}
            Value::Written(number) => self.keep(kind, number.text()),
            Value::Bytes(_) => {}
            Value::ByteCell(_) if kind == Kind::Image => {}
            Value::ByteCell(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) if self.reads_bytes => self.keep(kind, &shorten(text, SHOWN)),
                _ => {
                    let shown = bytes.len().min(SHOWN);
                    self.keep(kind, &hex(&bytes[..shown]));
                }
            },
            other => self.keep(kind, &other.canonical()),
        }
    }

    /// Counts a number without a 64-bit value if it is an integer.
    fn add_digits(&mut self, value: &Value, format: CellFormat) {
        let number = match value {
            Value::Cell(text) => format.number(text),
            Value::Digits(text) => Some(Cow::Borrowed(text.as_str())),
            _ => None,
        };
        let Some(text) = number.as_deref() else {
            return;
        };
        let digits = text.strip_prefix('-').unwrap_or(text);
        if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return;
        }
        let (count, last) = &mut self.longer_integers;
        *count += 1;
        if text > last.as_str() {
            text.clone_into(last);
        }
    }

    /// Notes the spelling of a missing value, and the formats that fit a date.
    fn add_cell(&mut self, kind: Kind, text: &str) {
        self.has_cells = true;
        let amount = Kind::of_amount(text.trim()).filter(|_| kind == Kind::Amount);
        let number = amount.map_or(kind, |(_, number)| number);
        self.has_grouped_commas |= number == Kind::DecimalComma && text.contains('.');
        self.add_width(kind, text.trim());
        if kind.is_number()
            && let Some(numbers) = &mut self.version_numbers
        {
            numbers.add(text.trim());
        }
        self.amounts.extend(amount);
        if kind == Kind::Missing {
            *self.spellings.entry(text.trim().to_owned()).or_default() += 1;
            return;
        }
        if matches!(
            kind,
            Kind::UnclearDate | Kind::DeclaredDate | Kind::AmbiguousDate
        ) {
            self.formats.add(text.trim());
            self.notations.add(text.trim());
        }
        if kind == Kind::Text && self.notations.add_worded(text.trim()) {
            self.worded_dates += 1;
        }
        self.keep(kind, text);
    }

    /// Notes the width of a cell of digits, and counts one with hyphens.
    fn add_width(&mut self, kind: Kind, text: &str) {
        let width = 1_u64 << text.len().min(WIDEST);
        if kind == Kind::ZeroDigits {
            self.zero_widths |= width;
        } else if kind.is_number() {
            self.number_widths |= width;
        } else if kind == Kind::Text && is_hyphenated(text) {
            self.hyphenated += 1;
        }
    }

    /// Keeps a value as a sample if it is among the first of its kind.
    fn keep(&mut self, kind: Kind, text: &str) {
        let kept = self.samples.entry(kind).or_default();
        let text = text.trim();
        if kept.len() == SAMPLES && kept.last().is_some_and(|last| text >= last.as_str()) {
            return;
        }
        if kept.contains(text) {
            return;
        }
        kept.insert(text.to_owned());
        if kept.len() > SAMPLES {
            kept.pop_last();
        }
    }

    /// Number of values of a kind.
    pub(super) fn count(&self, kind: Kind) -> u64 {
        self.counts[kind as usize]
    }

    /// Number of values of some kinds.
    pub(super) fn sum(&self, is_of: impl Fn(Kind) -> bool) -> u64 {
        Kind::ALL
            .iter()
            .filter(|kind| is_of(**kind))
            .map(|kind| self.count(*kind))
            .sum()
    }

    /// Values that are not missing.
    pub(super) fn values(&self) -> u64 {
        self.sum(|kind| kind != Kind::Missing)
    }

    /// Returns true if each width of the numbers is a width of digits after a leading zero too, as in
    /// codes that are padded with zeros, such as postcodes of 5 or 9 digits.
    pub(super) const fn has_padded_widths(&self) -> bool {
        self.number_widths & !self.zero_widths == 0
    }

    /// The name of the column, with a few values of these kinds.
    pub(super) fn named(&self, kinds: &[Kind]) -> WarnedColumn {
        WarnedColumn::with_found(&self.name, self.some_of(kinds))
    }

    /// The name of the column, with those of two values that it has.
    pub(super) fn named_with(&self, values: [Option<&String>; 2]) -> WarnedColumn {
        let shown = values.into_iter().flatten();
        let shown: Vec<String> = shown
            .map(|text| format!("`{}`", shorten(text, SHOWN)))
            .collect();
        WarnedColumn::with_found(&self.name, shown.join(", "))
    }

    /// A few values of these kinds.
    pub(super) fn some_of(&self, kinds: &[Kind]) -> String {
        let kept = kinds.iter().filter_map(|kind| self.samples.get(kind));
        let kept: Vec<String> = kept
            .flatten()
            .take(SAMPLES)
            .map(|text| format!("`{}`", one_line(&shorten(text, SHOWN))))
            .collect();
        kept.join(", ")
    }

    /// Place of the first value of these kinds, to be added to a message; empty if it is not known.
    pub(super) fn first_place(&self, kinds: &[Kind], places: &RecordPlaces) -> String {
        let firsts = kinds.iter().map(|kind| self.firsts[*kind as usize]);
        let first = firsts.filter(|record| *record > 0).min();
        let place = first.and_then(|record| places.describe(record - 1));
        place.map_or_else(String::new, |place| format!(", the first in {place}"))
    }

    /// Integers beyond 2^53, those in strings included.
    fn large_integers(&self) -> Option<LargeIntegers> {
        let (longer, last) = &self.longer_integers;
        let count =
            self.count(Kind::BigInteger) + self.in_texts[Kind::BigInteger as usize] + longer;
        let samples = [Kind::BigInteger, Kind::NumberText].into_iter();
        let mut samples = samples.filter_map(|kind| self.samples.get(&kind));
        let sample = match longer {
            0 => samples.next().and_then(BTreeSet::last)?,
            _ => last,
        };
        (count > 0).then(|| LargeIntegers {
            count,
            sample: sample.clone(),
        })
    }

    /// Describes the column for a preview of `rows` records.
    pub(super) fn shown(&self, r#type: Option<ColumnType>, rows: u64) -> FoundColumn {
        let is_text = matches!(r#type, None | Some(ColumnType::Utf8));
        let spelled = match is_text {
            true => 0,
            false => self.count(Kind::Missing),
        };
        let spellings = self.spellings.keys().filter(|_| is_text);
        let samples = self.samples.values().flatten().chain(spellings);
        let values = self.sum(|_| true);
        FoundColumn {
            name: self.name.clone(),
            r#type,
            number_settings: Vec::new(),
            separators: SeparatorSamples::default(),
            numbers: None,
            has_mixed_decimals: false,
            are_times: false,
            missing: rows.saturating_sub(values) + spelled,
            absent: rows.saturating_sub(values + self.nulls),
            large_integers: match r#type {
                Some(ColumnType::Int64 | ColumnType::Decimal) => self.large_integers(),
                _ => None,
            },
            samples: samples
                .take(SAMPLES)
                .map(|text| shorten(text, SHOWN).into_owned())
                .collect(),
        }
    }
}

/// Returns true for digits with single hyphens between them.
fn is_hyphenated(text: &str) -> bool {
    let is_digits =
        |group: &str| !group.is_empty() && group.bytes().all(|byte| byte.is_ascii_digit());
    let is_code = text.starts_with(|c: char| c.is_ascii_digit()) && text.contains('-');
    is_code && text.split('-').all(is_digits)
}
