//! Column types, inferred from many values before any of them lands.
//!
//! A [`Survey`] counts the kinds of values in each column; the order of values does not matter. The
//! initial column types follow from the counts. CSV cells have no types. A CSV column is boolean,
//! numeric or timestamp when all its cells are. Missing cells and common spellings of a missing
//! value do not count. A small fraction of odd values (up to `infer.max_odd_fraction`) leaves a
//! column numeric or timestamp. The contract then decides about the odd values. A larger fraction
//! makes the column text. A column of typed values gets the narrowest type that holds all of them
//! without loss, by the same rule. A [`Warning`] reports a decision against some of the values, or
//! values with another plausible meaning.

mod kind;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    mem,
};

use feedline_readers::{
    record::Record,
    value::{Value, hex, shorten},
};
use feedline_schemas::{
    config::{DeclaredType, SourceConfig, TypeContract},
    csv_cell::CellFormat,
    record::{ColumnType, join_path, push_key},
    report::Warning,
};

use self::kind::KINDS;
pub(crate) use self::kind::Kind;
use crate::contract::{Dates, FittingFormats};

/// Maximum number of examined columns.
const MOST_COLUMNS: usize = 10_000;
/// Sample values per kind for messages.
const SAMPLES: usize = 3;
/// Maximum characters of a sample value.
const SHOWN: usize = 40;
/// Maximum characters of the description of a bad record.
const SHOWN_BAD: usize = 300;
/// Most columns that a warning names.
const NAMED: usize = 5;

/// Planned types of columns, by name.
pub(crate) type Types = BTreeMap<String, ColumnType>;

/// Counts and samples of the values of a column.
#[derive(Clone, Debug, Default)]
struct Seen {
    name: String,
    nulls: u64,
    /// True if any value is a CSV cell.
    has_cells: bool,
    counts: [u64; KINDS],
    /// Kinds of numbers inside strings, other than cells.
    in_texts: [u64; KINDS],
    /// First few values of each kind in byte order, so that the order of records does not matter.
    samples: BTreeMap<Kind, BTreeSet<String>>,
    /// Spellings of missing values.
    spellings: BTreeMap<String, u64>,
    /// Formats that all dates of its cells have.
    formats: FittingFormats,
    /// True if any number with a decimal comma has groups of thousands, such as `1.234,56`.
    has_grouped_commas: bool,
}

/// Counts and samples of the values of many records, by column.
#[derive(Clone, Debug)]
pub(crate) struct Survey {
    format: CellFormat,
    dates: Option<Dates>,
    max_depth: u32,
    whole: HashSet<String>,
    rows: u64,
    /// Count of items that are not records; `bad_sample` is the first of them in byte order.
    bad: u64,
    bad_sample: Option<String>,
    /// True if the survey covers all records.
    is_all: bool,
    columns: Vec<Seen>,
    by_key: HashMap<String, usize>,
    /// Buffer of a name.
    name: String,
}

impl Survey {
    /// Begins a survey of records that are read as configured in `config`.
    pub(crate) fn new(config: &SourceConfig) -> Self {
        let contract = &config.contract;
        let columns = contract.column.iter();
        let whole = columns.filter(|(_, column)| column.r#type == Some(DeclaredType::Json));
        Self {
            format: CellFormat::new(&config.csv),
            dates: (!contract.dates.is_empty()).then(|| Dates::new(&contract.dates)),
            max_depth: contract.max_depth.get(),
            whole: whole.map(|(name, _)| name.clone()).collect(),
            rows: 0,
            bad: 0,
            bad_sample: None,
            is_all: true,
            columns: Vec::new(),
            by_key: HashMap::new(),
            name: String::new(),
        }
    }

    /// Records so far.
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// Returns the count of items that are not records, and one of them.
    pub(crate) fn bad(&self) -> (u64, Option<&str>) {
        (self.bad, self.bad_sample.as_deref())
    }

    /// Returns true if the survey covers all records.
    pub(crate) fn is_all(&self) -> bool {
        self.is_all
    }

    /// Records that the survey did not see all records.
    pub(crate) fn leave_out(&mut self) {
        self.is_all = false;
    }

    /// Adds a record. A bad one has no effect on columns.
    pub(crate) fn add(&mut self, record: &Record) {
        if let Record::Bad { reason, detail, .. } = record {
            self.bad += 1;
            let sample = format!("`{reason}`: {}", shorten(detail, SHOWN_BAD));
            if self.bad_sample.as_ref().is_none_or(|kept| sample < *kept) {
                self.bad_sample = Some(sample);
            }
            return;
        }
        let Some(value) = record.value() else {
            return;
        };
        let Value::Object(entries) = &*value else {
            return;
        };
        self.rows += 1;
        if entries.iter().any(|(_, value)| is_nested(value)) {
            let mut name = mem::take(&mut self.name);
            self.descend(entries, &mut name, &mut 0, self.max_depth);
            name.clear();
            self.name = name;
            return;
        }
        for (at, (key, value)) in entries.iter().enumerate() {
            // Most records have the keys of the one before, in its order.
            match self.columns.get(at) {
                Some(column) if column.name == *key && !key.contains(['.', '\\']) => {
                    self.see_at(at, value);
                }
                _ => self.see(at, &join_path([key.as_str()]), value),
            }
        }
    }

    /// Counts the leaves of nested objects: the same leaves and names as [`flatten`](crate::flatten::flatten) gives,
    /// without copies of the values. `name` is the path of `entries`, and `at` the number of leaves so far.
    fn descend(
        &mut self,
        entries: &[(String, Value)],
        name: &mut String,
        at: &mut usize,
        levels: u32,
    ) {
        let prefix = name.len();
        for (key, value) in entries {
            push_key(name, key);
            match value {
                Value::Object(inner)
                    if levels > 1 && is_nested(value) && !self.whole.contains(name.as_str()) =>
                {
                    name.push('.');
                    self.descend(inner, name, at, levels - 1);
                }
                value => {
                    self.see(*at, name, value);
                    *at += 1;
                }
            }
            name.truncate(prefix);
        }
    }

    /// Counts a value of the column `name`, which is most often the column `at`.
    fn see(&mut self, at: usize, name: &str, value: &Value) {
        if self
            .columns
            .get(at)
            .is_some_and(|column| column.name == name)
        {
            return self.see_at(at, value);
        }
        let at = match self.by_key.get(name) {
            Some(at) => *at,
            None if self.columns.len() >= MOST_COLUMNS => return,
            None => {
                self.by_key.insert(name.to_owned(), self.columns.len());
                self.columns.push(Seen {
                    name: name.to_owned(),
                    ..Seen::default()
                });
                self.columns.len() - 1
            }
        };
        self.see_at(at, value);
    }

    fn see_at(&mut self, at: usize, value: &Value) {
        let kind = Kind::of(value, self.format, self.dates.as_ref());
        self.columns[at].add(kind, value);
    }

    /// Infers the planned types of the columns, and their warnings.
    pub(crate) fn infer(&self, config: &SourceConfig) -> Inferred {
        let rules = Rules {
            max_odd_fraction: match config.contract.types {
                TypeContract::Widen => 0.0,
                _ => config.infer.max_odd_fraction.get(),
            },
            is_widen: config.contract.types == TypeContract::Widen,
        };
        let mut inferred = Inferred::default();
        let mut told = Told::default();
        for column in &self.columns {
            let own = config.contract.column.get(&column.name);
            let declared = own.and_then(|own| own.r#type);
            let own_widens = own.and_then(|own| own.types) == Some(TypeContract::Widen);
            let rules = match own_widens {
                true => Rules {
                    max_odd_fraction: 0.0,
                    is_widen: true,
                },
                false => rules,
            };
            let r#type = match declared {
                Some(declared) => Some(declared.column_type()),
                None => column.decide(rules, &mut told),
            };
            inferred.columns.push(column.shown(r#type, self.rows));
            if let (Some(r#type), None) = (r#type, declared) {
                inferred.types.insert(column.name.clone(), r#type);
            }
        }
        inferred.rows = self.rows;
        inferred.warnings = told.warnings(config);
        inferred
    }
}

/// Returns true for an object that becomes several columns.
fn is_nested(value: &Value) -> bool {
    matches!(value, Value::Object(inner) if !inner.is_empty())
}

/// Infers the columns of a first batch. A `sample`, if any, overrides the types of the columns that
/// it has, and the warnings.
pub(crate) fn of_first(
    records: &[Record],
    config: &SourceConfig,
    sample: Option<&Inferred>,
) -> Inferred {
    let mut survey = Survey::new(config);
    records.iter().for_each(|record| survey.add(record));
    let mut found = survey.infer(config);
    if let Some(sample) = sample {
        found.types.extend(sample.types.clone());
        found.warnings.clone_from(&sample.warnings);
    }
    found
}

/// Infers the columns that are not `known` in a later batch of records with cells.
pub(crate) fn of_new_columns(
    records: &[Record],
    config: &SourceConfig,
    known: &HashSet<&str>,
) -> Inferred {
    let mut new = HashSet::new();
    let mut last: &[(String, Value)] = &[];
    for record in records {
        let Record::Value(Value::Object(entries)) = record else {
            continue;
        };
        // The records of a file have the same columns in the same order.
        let before = mem::replace(&mut last, entries);
        let is_flat = !entries.iter().any(|(_, value)| is_nested(value));
        let names = entries.iter().map(|(key, _)| key);
        if is_flat && names.eq(before.iter().map(|(key, _)| key)) {
            continue;
        }
        let mut note = |name: &str| {
            if !known.contains(name) && !new.contains(name) {
                new.insert(name.to_owned());
            }
        };
        let levels = config.contract.max_depth.get();
        note_cells(entries, &mut String::new(), levels, &mut note);
    }
    if new.is_empty() {
        return Inferred::default();
    }
    let mut survey = Survey::new(config);
    records.iter().for_each(|record| survey.add(record));
    survey.columns.retain(|column| new.contains(&column.name));
    survey.infer(config)
}

/// Passes the path of each cell and null of a record to `note`. `name` is the path of `entries`.
fn note_cells(
    entries: &[(String, Value)],
    name: &mut String,
    levels: u32,
    note: &mut impl FnMut(&str),
) {
    let prefix = name.len();
    for (key, value) in entries {
        push_key(name, key);
        match value {
            Value::Cell(_) | Value::Time(_) | Value::ByteCell(_) => note(name),
            Value::Null if prefix == 0 => note(name),
            Value::Object(inner) if levels > 1 => {
                name.push('.');
                note_cells(inner, name, levels - 1, note);
            }
            _ => {}
        }
        name.truncate(prefix);
    }
}

/// Settings of a decision.
#[derive(Clone, Copy, Debug)]
struct Rules {
    max_odd_fraction: f64,
    is_widen: bool,
}

/// Result of inference.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inferred {
    /// Types of the columns that have any.
    pub(crate) types: Types,
    /// All columns, in the order of their first appearance.
    pub(crate) columns: Vec<FoundColumn>,
    /// Number of examined records.
    pub(crate) rows: u64,
    pub(crate) warnings: Vec<Warning>,
}

/// An inferred column, for previews.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundColumn {
    pub(crate) name: String,
    /// Inferred type; `None` if no value determines one.
    pub(crate) r#type: Option<ColumnType>,
    /// Records in which it is missing, null or absent.
    pub(crate) missing: u64,
    /// A few of its values.
    pub(crate) samples: Vec<String>,
}

impl Seen {
    fn add(&mut self, kind: Option<Kind>, value: &Value) {
        let Some(kind) = kind else {
            self.nulls += 1;
            return;
        };
        self.counts[kind as usize] += 1;
        let text = match value {
            Value::Cell(text) => {
                self.has_cells = true;
                self.has_grouped_commas |= kind == Kind::DecimalComma && text.contains('.');
                if kind == Kind::Missing {
                    *self.spellings.entry(text.trim().to_owned()).or_default() += 1;
                    return;
                }
                if matches!(
                    kind,
                    Kind::UnclearDate | Kind::DeclaredDate | Kind::AmbiguousDate
                ) {
                    self.formats.add(text.trim());
                }
                text.as_str()
            }
            Value::Time(text) => text.as_str(),
            Value::Text(text) => {
                if let (Kind::NumberText, Some(number)) = (kind, Kind::of_number_text(text)) {
                    self.in_texts[number as usize] += 1;
                }
                text.as_str()
            }
            // Other values are many and similar: one of each kind is enough.
            _ if self.samples.contains_key(&kind) && self.counts[kind as usize] > 1_000 => return,
            Value::Bytes(_) => return,
            Value::ByteCell(_) if kind == Kind::Image => return,
            Value::ByteCell(bytes) => {
                let shown = bytes.len().min(SHOWN);
                return self.keep(kind, &hex(&bytes[..shown]));
            }
            other => return self.keep(kind, &other.canonical()),
        };
        self.keep(kind, text);
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

    fn count(&self, kind: Kind) -> u64 {
        self.counts[kind as usize]
    }

    fn sum(&self, is_of: impl Fn(Kind) -> bool) -> u64 {
        ALL.iter()
            .filter(|kind| is_of(**kind))
            .map(|kind| self.count(*kind))
            .sum()
    }

    /// Values that are not missing.
    fn values(&self) -> u64 {
        self.sum(|kind| kind != Kind::Missing)
    }

    /// Returns the type, if the values suggest one, and collects details for the warnings.
    fn decide(&self, rules: Rules, told: &mut Told) -> Option<ColumnType> {
        let values = self.values();
        if values == 0 || self.count(Kind::Whole) > 0 {
            return None;
        }
        let is_column_of = |count: u64| {
            count == values
                || (count > 0 && share(values - count, values) <= rules.max_odd_fraction)
        };
        if self.count(Kind::Image) > 0 && self.count(Kind::Image) * 10 >= values * 9 {
            return Some(ColumnType::Binary);
        }
        if self.count(Kind::Bool) == values {
            return Some(self.told(ColumnType::Bool, |_| true, told));
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
            if self.count(Kind::LongFloat) > 0 && r#type == ColumnType::Float64 {
                told.rounded.push(self.named(&[Kind::LongFloat]));
            }
            return Some(self.told(r#type, is_number, told));
        }
        if is_column_of(self.sum(is_date)) {
            if self.count(Kind::AmbiguousDate) > 0 {
                told.ambiguous.push(self.named(&[Kind::AmbiguousDate]));
            }
            if self.count(Kind::LocalTime) > 0 {
                told.local_times.push(self.named(&[Kind::LocalTime]));
            }
            return Some(self.told(ColumnType::Timestamp, is_date, told));
        }
        self.tell_of_text(rules, is_number, told);
        Some(ColumnType::Utf8)
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
            Kind::DigitsAndE,
        ];
        let is_float = floats.into_iter().any(has);
        if has(Kind::Digits) || (has(Kind::BigInteger) && is_float) {
            return (!has(Kind::WideFloat)).then_some(ColumnType::Decimal);
        }
        Some(match is_float {
            true => ColumnType::Float64,
            false => ColumnType::Int64,
        })
    }

    /// Collects missing-value spellings and values of other types for the warnings; returns the
    /// type.
    fn told(
        &self,
        r#type: ColumnType,
        is_of: impl Fn(Kind) -> bool,
        told: &mut Told,
    ) -> ColumnType {
        if !self.spellings.is_empty() {
            let all = self.spellings.iter();
            let all: Vec<String> = all
                .map(|(text, count)| format!("{count} `{text}`"))
                .collect();
            told.spellings
                .push(format!("`{}` ({})", self.name, all.join(", ")));
        }
        let odd = |kind: Kind| !is_of(kind) && kind != Kind::Missing;
        let count = self.sum(odd);
        if count > 0 {
            let is_met = |kind: &Kind| odd(*kind) && self.count(*kind) > 0;
            let kinds: Vec<Kind> = ALL.iter().copied().filter(is_met).collect();
            told.has_cells |= self.has_cells;
            told.odd.push(format!(
                "`{}` ({count} of {} are no {}, such as {}{})",
                self.name,
                self.values(),
                noun(r#type),
                self.some_of(&kinds),
                kinds
                    .iter()
                    .find_map(|kind| hint(*kind))
                    .unwrap_or_default()
            ));
        }
        r#type
    }

    /// Collects a text column that may have another meaning, for the warnings.
    fn tell_of_text(&self, rules: Rules, is_number: impl Fn(Kind) -> bool, told: &mut Told) {
        let values = self.values();
        let is_most = |count: u64| count * 10 >= values * 9;
        let numbers = self.sum(&is_number);
        let commas = [Kind::DecimalComma, Kind::SomeComma];
        let thousands = [Kind::Thousands, Kind::SomeComma];
        let of = |kinds: &[Kind]| kinds.iter().map(|kind| self.count(*kind)).sum::<u64>();
        let unclear = [
            Kind::UnclearDate,
            Kind::DeclaredDate,
            Kind::AmbiguousDate,
            Kind::Day,
            Kind::LocalTime,
            Kind::Instant,
        ];
        if self.count(Kind::DecimalComma) > 0 && is_most(of(&commas) + numbers) {
            told.decimal_commas.push(self.named(&commas));
            told.has_grouped_commas |= self.has_grouped_commas;
        } else if of(&thousands) > 0 && is_most(of(&thousands) + numbers) {
            told.thousands.push(self.named(&thousands));
        } else if self.count(Kind::Percent) > 0 && is_most(self.count(Kind::Percent) + numbers) {
            told.percents.push(self.named(&[Kind::Percent]));
        } else if self.count(Kind::UnclearDate) > 0 && is_most(of(&unclear)) {
            let declared = of(&[Kind::DeclaredDate, Kind::AmbiguousDate]);
            let declared = match declared {
                0 => String::new(),
                fit => format!("; the formats of `contract.dates` fit {fit} of {values}"),
            };
            let fitting = self.formats.get();
            let note = match fitting {
                [] => "no usual format fits all".to_owned(),
                [one] => format!("`{one}` fits all"),
                several => format!(
                    "`{}` fit all, so the order of day and month is not certain",
                    several.join("` and `")
                ),
            };
            told.dates.push(format!(
                "`{}` ({}; {note}{declared})",
                self.name,
                self.some_of(&unclear)
            ));
            told.format = told.format.take().or_else(|| fitting.first().cloned());
        } else if !rules.is_widen && self.is_mixed(numbers) {
            let kinds = ALL.iter().filter(|kind| **kind != Kind::Missing);
            let kinds = kinds.filter(|kind| self.count(**kind) > 0).map(|kind| {
                let of = self.some_of(&[*kind]);
                format!("{} {} such as {of}", self.count(*kind), kind.noun())
            });
            let kinds: Vec<String> = kinds.collect();
            told.mixed
                .push(format!("`{}` ({})", self.name, kinds.join(", ")));
        }
    }

    /// Returns true if the column probably has another type than text. For CSV cells, more than
    /// half must look like that type. Digits after a leading zero belong to a code.
    fn is_mixed(&self, numbers: u64) -> bool {
        let dates = self.sum(is_date);
        let bools = self.count(Kind::Bool);
        if !self.has_cells {
            let others = self.values() - numbers - bools;
            return [numbers, bools, others].iter().filter(|n| **n > 0).count() > 1
                || (0 < dates && dates < others);
        }
        let zeros = self.count(Kind::ZeroDigits);
        let is_code = zeros > 0 && zeros + numbers == self.values();
        let is_most = |count: u64| count * 2 > self.values();
        !is_code && [numbers, dates, bools].into_iter().any(is_most)
    }

    fn named(&self, kinds: &[Kind]) -> String {
        format!("`{}` ({})", self.name, self.some_of(kinds))
    }

    /// A few values of these kinds.
    fn some_of(&self, kinds: &[Kind]) -> String {
        let kept = kinds.iter().filter_map(|kind| self.samples.get(kind));
        let kept: Vec<String> = kept
            .flatten()
            .take(SAMPLES)
            .map(|text| format!("`{}`", shorten(text, SHOWN)))
            .collect();
        kept.join(", ")
    }

    fn shown(&self, r#type: Option<ColumnType>, rows: u64) -> FoundColumn {
        let is_text = matches!(r#type, None | Some(ColumnType::Utf8));
        let spelled = match is_text {
            true => 0,
            false => self.count(Kind::Missing),
        };
        let spellings = self.spellings.keys().filter(|_| is_text);
        let samples = self.samples.values().flatten().chain(spellings);
        FoundColumn {
            name: self.name.clone(),
            r#type,
            missing: rows.saturating_sub(self.sum(|_| true)) + spelled,
            samples: samples
                .take(SAMPLES)
                .map(|text| shorten(text, SHOWN).into_owned())
                .collect(),
        }
    }
}

/// Key that makes odd cells of a kind numbers, for a message.
const fn hint(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Thousands | Kind::SomeComma => Some(", which `csv.thousands_separator` may read"),
        Kind::DecimalComma => Some(", which `csv.decimal_separator` may read"),
        Kind::Percent => Some(", which `csv.percent` reads"),
        _ => None,
    }
}

const fn is_date(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::DeclaredDate | Kind::AmbiguousDate | Kind::Instant | Kind::LocalTime | Kind::Day
    )
}

/// All kinds, in their order.
const ALL: [Kind; KINDS] = [
    Kind::Bool,
    Kind::Integer,
    Kind::BigInteger,
    Kind::Digits,
    Kind::Float,
    Kind::WideFloat,
    Kind::LongFloat,
    Kind::DigitsAndE,
    Kind::ZeroDigits,
    Kind::DeclaredDate,
    Kind::AmbiguousDate,
    Kind::Instant,
    Kind::LocalTime,
    Kind::Day,
    Kind::DecimalComma,
    Kind::SomeComma,
    Kind::Thousands,
    Kind::Percent,
    Kind::UnclearDate,
    Kind::Missing,
    Kind::NumberText,
    Kind::Text,
    Kind::Image,
    Kind::Whole,
];

const fn noun(r#type: ColumnType) -> &'static str {
    match r#type {
        ColumnType::Bool => "booleans",
        ColumnType::Timestamp => "dates",
        _ => "numbers",
    }
}

/// Codes of warnings about types of columns. A column keeps its type, so they hold until a reset.
pub(crate) const TYPE_WARNINGS: [&str; 10] = [
    "missing_spellings",
    "odd_values",
    "mixed_types",
    "looks_like_decimal_comma",
    "looks_like_thousands",
    "looks_like_percent",
    "looks_like_dates",
    "local_times",
    "digits_rounded",
    "ambiguous_dates",
];

/// Returns true if a warning about odd values matches the contract's current handling of them.
pub(crate) fn is_about_odd_values(message: &str, types: TypeContract) -> bool {
    message.contains(odd_fate(types))
}

/// Handling of odd values, for a message.
const fn odd_fate(types: TypeContract) -> &'static str {
    match types {
        TypeContract::NullValue => "land as null",
        TypeContract::Freeze => "stop the run",
        TypeContract::QuarantineRow | TypeContract::Widen => "have their rows rejected",
    }
}

/// Details for the warnings, by subject; each item names a column and some of its values.
#[derive(Clone, Debug, Default)]
struct Told {
    spellings: Vec<String>,
    odd: Vec<String>,
    mixed: Vec<String>,
    decimal_commas: Vec<String>,
    /// True if any of them has groups of thousands.
    has_grouped_commas: bool,
    thousands: Vec<String>,
    percents: Vec<String>,
    dates: Vec<String>,
    /// A format of the first of `dates` that any fits.
    format: Option<String>,
    local_times: Vec<String>,
    rounded: Vec<String>,
    ambiguous: Vec<String>,
    /// True if a column with odd values has CSV cells.
    has_cells: bool,
}

impl Told {
    fn warnings(self, config: &SourceConfig) -> Vec<Warning> {
        let [
            missing_spellings,
            odd_values,
            mixed_types,
            looks_like_decimal_comma,
            looks_like_thousands,
            looks_like_percent,
            looks_like_dates,
            local_times,
            digits_rounded,
            ambiguous_dates,
        ] = TYPE_WARNINGS;
        let is_nulling = config.contract.types == TypeContract::NullValue;
        let fate = odd_fate(config.contract.types);
        let nulls = match self.has_cells {
            true => "list those that mean nothing in `csv.null_values`, ",
            false => "",
        };
        let or_null = match is_nulling {
            true => "",
            false => "set `contract.types = \"null_value\"`, ",
        };
        let odd = format!(
            "values that are no numbers or no dates {fate}; {nulls}{or_null}declare the column text, or lower `infer.max_odd_fraction`"
        );
        let format = self.format.map_or_else(String::new, |format| {
            format!(", such as `contract.dates = [\"{format}\"]`")
        });
        let (separator, separators) = separators_to_set(self.has_grouped_commas, config);
        let all = [
            (
                missing_spellings,
                "csv.null_spellings",
                "usual spellings of a missing value are read as missing, since the other cells of their column are no text".to_owned(),
                self.spellings,
            ),
            (odd_values, "infer.max_odd_fraction", odd, self.odd),
            (
                mixed_types,
                "contract.column.<name>.type",
                "columns of several types land as text, and nothing is lost; declare a type to reject what does not fit it".to_owned(),
                self.mixed,
            ),
            (
                looks_like_decimal_comma,
                separator,
                format!("numbers with a decimal comma land as text; set {separators} to read them as numbers"),
                self.decimal_commas,
            ),
            (
                looks_like_thousands,
                "csv.thousands_separator",
                "numbers with commas between their digits land as text; set `csv.thousands_separator = \",\"` where they separate thousands, or `csv.decimal_separator = \",\"`".to_owned(),
                self.thousands,
            ),
            (
                looks_like_percent,
                "csv.percent",
                "numbers with a percent sign land as text; set `csv.percent = true` to read `17%` as 17".to_owned(),
                self.percents,
            ),
            (
                looks_like_dates,
                "contract.dates",
                format!("dates that are not written as in ISO 8601 land as text; to have dates name the format that they are written in{format}"),
                self.dates,
            ),
            (
                local_times,
                "contract.column.<name>.type",
                "timestamps without an offset are read as UTC; declare the column `text` to keep them unchanged".to_owned(),
                self.local_times,
            ),
            (
                digits_rounded,
                "contract.column.<name>.type",
                "numbers of more than 17 digits are rounded to 64-bit floats; declare the column `decimal`, or `text`, to keep all digits".to_owned(),
                self.rounded,
            ),
            (
                ambiguous_dates,
                "contract.dates",
                "two formats of `contract.dates` read these differently, and the first one that fits a cell is used, so a column may mix them; configure one format".to_owned(),
                self.ambiguous,
            ),
        ];
        let all = all.into_iter().filter(|(.., columns)| !columns.is_empty());
        all.map(|(code, key, what, columns)| {
            let more = match columns.len().saturating_sub(NAMED) {
                0 => String::new(),
                more => format!(" and {more} more columns"),
            };
            let columns = columns[..columns.len().min(NAMED)].join(", ");
            Warning {
                code: code.to_owned(),
                message: format!("{columns}{more}: {what}"),
                key: Some(key.to_owned()),
            }
        })
        .collect()
    }
}

/// Key of a warning about decimal commas, and the settings that read such numbers.
fn separators_to_set(is_grouped: bool, config: &SourceConfig) -> (&'static str, &'static str) {
    let has_comma = config.csv.decimal_separator == Some(',');
    match (is_grouped, has_comma) {
        (true, true) => (
            "csv.thousands_separator",
            "`csv.thousands_separator = \".\"`",
        ),
        (true, false) => (
            "csv.decimal_separator",
            "`csv.decimal_separator = \",\"` and `csv.thousands_separator = \".\"`",
        ),
        (false, _) => ("csv.decimal_separator", "`csv.decimal_separator = \",\"`"),
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a share of counts far below 2^53"
)]
fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

#[cfg(test)]
mod tests;
