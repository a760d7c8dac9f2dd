//! A survey of many records: counts of the kinds of values in each column.

use std::{
    collections::{HashMap, HashSet},
    mem,
};

use feedline_readers::{
    record::Record,
    value::{Value, one_line, shorten},
};
use feedline_schemas::{
    config::{CsvConfig, DeclaredType, SourceConfig, SourceKind, TypeContract},
    csv_cell::CellFormat,
    ids::Hash128,
    record::{ColumnType, join_path, push_key},
    report::Warning,
};

use super::{
    column_counts::ColumnCounts,
    decide::Rules,
    distinct_values::DistinctValues,
    inferred::{Inferred, LandedTypes},
    kind::Kind,
    number_evidence::EvidenceContext,
    number_settings::has_csv_table,
    source_separators::{DecidingCells, SourceSeparators},
    type_warnings::{CSV_NOT_USED, ColumnFindings},
    version_numbers::{VersionNumbers, version_of, warn_of_version},
};
use crate::{contract::Dates, record_places::RecordPlaces};

/// Maximum number of examined columns.
const MOST_COLUMNS: usize = 10_000;
/// Distinct records after which no further record is compared.
const MAX_DISTINCT_RECORDS: usize = 10_000;
/// Maximum characters of the description of a bad record.
const SHOWN_BAD: usize = 300;

/// Counts and samples of the values of many records, by column.
#[derive(Clone, Debug)]
pub(crate) struct Survey {
    format: CellFormat,
    dates: Option<Dates>,
    max_depth: u32,
    whole: HashSet<String>,
    /// Columns whose declared type is another one than bytes.
    declared: HashSet<String>,
    /// Column that decides which row of a key is the latest.
    version: Option<String>,
    rows: u64,
    /// Number of records and items that are none, and their places.
    seen: u64,
    places: RecordPlaces,
    /// Count of items that are not records; `bad_sample` is the first of them in byte order.
    bad: u64,
    bad_sample: Option<String>,
    /// True if the survey covers all records.
    is_all: bool,
    /// True if it counts the distinct values of each column.
    counts_distinct: bool,
    /// Hashes of the distinct records in such a survey, and the number of records equal to one before.
    distinct_records: HashSet<Hash128>,
    repeated: u64,
    columns: Vec<ColumnCounts>,
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
        let columns = contract.column.iter();
        let declared = columns.filter(|(_, column)| {
            let declared = column.r#type;
            declared.is_some_and(|declared| declared != DeclaredType::Bytes)
        });
        Self {
            format: CellFormat::new(&config.csv),
            dates: (!contract.dates.is_empty()).then(|| Dates::new(&contract.dates)),
            max_depth: contract.max_depth.get(),
            whole: whole.map(|(name, _)| name.clone()).collect(),
            declared: declared.map(|(name, _)| name.clone()).collect(),
            version: version_of(config).cloned(),
            rows: 0,
            seen: 0,
            places: RecordPlaces::default(),
            bad: 0,
            bad_sample: None,
            is_all: true,
            counts_distinct: false,
            distinct_records: HashSet::new(),
            repeated: 0,
            columns: Vec::new(),
            by_key: HashMap::new(),
            name: String::new(),
        }
    }

    /// Counts the distinct values of each column too.
    pub(crate) fn counting_distinct(mut self) -> Self {
        self.counts_distinct = true;
        self
    }

    /// Distinct values of a column, in a survey that counts them.
    pub(crate) fn distinct(&self, name: &str) -> Option<&DistinctValues> {
        let at = self.by_key.get(name)?;
        self.counts_distinct.then(|| &self.columns[*at].distinct)
    }

    /// Number of records that are equal to one before, in such a survey, up to the 10,000th distinct one.
    pub(crate) fn repeated(&self) -> u64 {
        self.repeated
    }

    /// Returns true if the integers of a column number the rows of each group, in a survey that counts
    /// the distinct values.
    pub(crate) fn numbers_rows(&self, name: &str) -> bool {
        let at = self.by_key.get(name);
        at.is_some_and(|at| self.columns[*at].counter.is_row_number(self.rows))
    }

    /// Returns true if the integers of a column count up by one and begin again, as the index of each file does,
    /// in such a survey.
    pub(crate) fn restarts_index(&self, name: &str) -> bool {
        let at = self.by_key.get(name);
        at.is_some_and(|at| self.columns[*at].index.is_restarting(self.rows))
    }

    /// Returns true if the integers of a column rise from row to row and seldom begin again, in such a survey.
    pub(crate) fn has_rising_index(&self, name: &str) -> bool {
        let at = self.by_key.get(name);
        at.is_some_and(|at| self.columns[*at].index.is_rising(self.rows))
    }

    /// Sets the places of the records to be added, for messages.
    pub(crate) fn set_places(&mut self, places: RecordPlaces) {
        self.places = places;
    }

    /// Places of the records added so far and of those to be added.
    pub(crate) fn places_mut(&mut self) -> &mut RecordPlaces {
        &mut self.places
    }

    /// Number of records so far, items that are none included.
    pub(crate) fn seen(&self) -> u64 {
        self.seen
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
        if self.places.ends_file(self.seen) {
            let columns = self.columns.iter_mut();
            columns.for_each(|column| column.decimal_signs.end_file());
        }
        self.seen += 1;
        if let Record::Bad { reason, detail, .. } = record {
            return self.add_bad(reason, detail);
        }
        let Some(value) = record.value() else {
            return;
        };
        let Value::Object(entries) = &*value else {
            return;
        };
        self.rows += 1;
        if self.counts_distinct && self.distinct_records.len() < MAX_DISTINCT_RECORDS {
            let hash = Hash128::of(value.canonical().as_bytes());
            self.repeated += u64::from(!self.distinct_records.insert(hash));
        }
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

    fn add_bad(&mut self, reason: &str, detail: &str) {
        self.bad += 1;
        let sample = format!("`{reason}`: {}", one_line(&shorten(detail, SHOWN_BAD)));
        if self.bad_sample.as_ref().is_none_or(|kept| sample < *kept) {
            self.bad_sample = Some(sample);
        }
    }

    /// Limits the survey to the columns whose name is in `names`.
    pub(super) fn keep_columns(&mut self, names: &HashSet<String>) {
        self.columns.retain(|column| names.contains(&column.name));
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
                let mut column = ColumnCounts::of(name);
                let version = self.version.as_deref();
                column.version_numbers = VersionNumbers::of_column(name, version);
                column.reads_bytes = self.declared.contains(name);
                self.columns.push(column);
                self.columns.len() - 1
            }
        };
        self.see_at(at, value);
    }

    fn see_at(&mut self, at: usize, value: &Value) {
        let kind = Kind::of(value, self.format, self.dates.as_ref());
        let column = &mut self.columns[at];
        column.add(kind, value, self.format, self.seen);
        if self.counts_distinct {
            column.distinct.add(value);
            if kind != Some(Kind::Missing) {
                column.distinct.count_value(value);
            }
            let number = integer(value, self.format);
            column.counter.add(number);
            column.index.add(number);
        }
    }

    /// Infers the planned types of the columns, and their warnings.
    pub(crate) fn infer(&self, config: &SourceConfig) -> Inferred {
        self.infer_after(config, &LandedTypes::default())
    }

    /// Like [`Self::infer`], after columns have `landed`. These continue as the contract continues
    /// them.
    pub(crate) fn infer_after(&self, config: &SourceConfig, landed: &LandedTypes) -> Inferred {
        let mut inferred = Inferred::default();
        let separators = SourceSeparators::of(&self.columns, config);
        let mut findings = ColumnFindings {
            separators,
            deciding: DecidingCells::of(&self.columns, config),
            ..ColumnFindings::default()
        };
        for column in &self.columns {
            let own = config.contract.column.get(&column.name);
            let declared = own.and_then(|own| own.r#type);
            let own_types = own.and_then(|own| own.types);
            let is_widen =
                [Some(config.contract.types), own_types].contains(&Some(TypeContract::Widen));
            let rules = Rules {
                max_odd_fraction: match is_widen {
                    true => 0.0,
                    false => config.infer.max_odd_fraction.get(),
                },
                is_widen,
                has_date_formats: self.dates.is_some(),
                has_csv: has_csv_table(config),
                decimal_separator: config.csv.decimal_separator.unwrap_or('.'),
                separators,
                places: &self.places,
            };
            let mixed = findings.mixed_decimals.len();
            let r#type = match (declared, landed.types.get(&column.name)) {
                (Some(declared), _) => Some(declared.column_type()),
                (None, Some(before)) => {
                    let is_large = landed.large_integers.contains(&column.name);
                    let types = own_types.unwrap_or(config.contract.types);
                    Some(column.decide_landed((*before, is_large), types, rules, &mut findings))
                }
                (None, None) => column.decide(rules, &mut findings),
            };
            let mut shown = column.shown(r#type, self.rows);
            shown.separators = column.separator_samples(self.format);
            shown.has_mixed_decimals = findings.mixed_decimals.len() > mixed;
            shown.numbers = column.number_evidence(
                r#type,
                declared.is_some(),
                EvidenceContext {
                    csv: &config.csv,
                    deciding: &findings.deciding,
                    places: &self.places,
                },
            );
            if r#type == Some(ColumnType::Utf8) {
                if !column.has_many_amount_marks(rules) {
                    shown.number_settings = column.number_settings(&config.csv, separators);
                }
                shown.are_times = column.are_times(rules.max_odd_fraction);
            }
            inferred.columns.push(shown);
            if let (Some(r#type), None) = (r#type, declared) {
                inferred.types.insert(column.name.clone(), r#type);
            }
        }
        inferred.rows = self.rows;
        inferred.has_grouped_commas = has_csv_table(config) && findings.has_comma_groups();
        inferred.warnings = findings.warnings(config);
        let of_version = warn_of_version(&self.columns, &inferred.types, config);
        inferred.warnings.extend(of_version);
        inferred.warnings.extend(self.warn_of_unused_csv(config));
        inferred
    }

    /// Warns of settings of CSV if none of the values is that of a cell.
    fn warn_of_unused_csv(&self, config: &SourceConfig) -> Option<Warning> {
        let has = |is: fn(&ColumnCounts) -> bool| self.columns.iter().any(is);
        let is_other = has(|column| column.values() > 0) && !has(|column| column.has_cells);
        if config.csv == CsvConfig::default() || !is_other {
            return None;
        }
        let or_correct = match config.r#type {
            SourceKind::Files => ", or correct `format`",
            SourceKind::Rest => ", or correct `response.format`",
            SourceKind::Html => "",
        };
        let message = format!(
            "`csv` is set, but the records do not come from CSV, so it has no effect on what lands: only `predict` reads \
             CSV of new rows with it; remove it if new rows are not CSV{or_correct}"
        );
        Some(Warning::new(CSV_NOT_USED, message).with_key("csv"))
    }
}

/// The integer of a value that is one.
fn integer(value: &Value, format: CellFormat) -> Option<i64> {
    match value {
        Value::Int(number) => Some(*number),
        Value::Cell(text) => format.number(text)?.parse().ok(),
        _ => None,
    }
}

/// Returns true for an object that becomes several columns.
pub(super) fn is_nested(value: &Value) -> bool {
    matches!(value, Value::Object(inner) if !inner.is_empty())
}
