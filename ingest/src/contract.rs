//! The contract of a source: its columns, and the decision about values that do not fit them.
//!
//! A column has its declared type, else the planned one ([`crate::infer`]), else the type of its
//! first non-null value. Later values fit, are converted without loss (counted), make a new version
//! of the schema, or are in conflict:
//!
//! | column | fits | converted | new version | conflict |
//! |---|---|---|---|---|
//! | `Null` | null | | any other value decides the type | |
//! | `Bool` | boolean | | | everything else |
//! | `Int64` | integer | `3.0`, text `"12"` | other floats: `Float64` | everything else |
//! | `Float64` | float | integer up to 2^53, text `"1.50"` | | everything else |
//! | `Decimal` | number that no 64-bit type holds | other numbers and numeric text, if exact as written | | everything else |
//! | `Timestamp` | text of `contract.dates`, time of a Parquet file | | | everything else |
//! | `Utf8` | text | number as it is written, boolean to its JSON text | | list, object |
//! | `List` and the lists of a type | list of that type | | longer types of items, then `Json` | scalars |
//! | `Json` | list, object | | | everything else |
//! | `Binary` | bytes | | | everything else |
//!
//! Null fits every column. A CSV cell that spells a missing value is null in a numeric, boolean or
//! timestamp column (counted). Text converts to a number only without loss: not `"012"`, `"12k"` or
//! one with more digits than a float holds. A cell (text without a type) gets the type that its
//! text suggests, and stays as written in a text column. An integer column becomes a float column
//! unless this batch or an earlier one has landed an integer beyond 2^53 in it (then it is a
//! conflict): readers of all files would round that integer. -0 is no integer. Beside integers, a
//! cell of digits around an `e` (`12E4`) is a code, as one of digits after a leading zero is, and a
//! conflict; any other cell with an exponent is a float. A number of JSON, or of a cell, with more
//! digits than a float holds is rounded in columns of floats and of lists of floats (counted), and
//! only there.
//!
//! `widen` turns a conflict between a scalar and a scalar column into a new version with a wider
//! column. That is `Float64` if it holds the value and the batch's values of the column, else
//! `Decimal` if that does, else `Utf8`. No type holds a scalar beside a list, an object or bytes,
//! so such a record is rejected. A column of a declared type never gets another type. An object in
//! place of a list gets its own columns beside the list column. Neither is converted to the other.
//!
//! The contract decides about a batch in record order, before any of it is written. A rejected
//! record leaves no trace in the schema. The last schema of the batch applies to its entire file.

mod alike_columns;
mod cut_digits;
mod dates;
mod decide;
mod decimals;
mod fast_path;
mod finish;
mod fit;
mod map_columns;
mod missing_values;
mod new_columns;
mod number_notation;
mod snapshot;
mod text_bytes;

use std::{
    collections::{HashMap, HashSet},
    mem,
};

use feedline_readers::value::{Value, shorten};
use feedline_schemas::{
    commit::{Decisions, Presence},
    config::{ContractConfig, DeclaredType, NullContract, TypeContract},
    csv_cell::CellFormat,
    record::{Column, ColumnType, RecordSchema},
};

pub(crate) use self::{
    alike_columns::{alike_warning, folded},
    cut_digits::{DIGITS_CUT, cut_warning},
    dates::{Dates, FittingFormats, NotationFormats, is_format, iso_format, iso_micros},
    fit::{Reading, boolean, bytes, decimal, float, integer, is_coerced, is_long_number, text},
    missing_values::{ALARMS, REQUIRED_ABSENT, TURNED_NULL, VANISHED},
    new_columns::TOO_MANY_COLUMNS,
    number_notation::{IMAGE_WARNINGS, image_warnings},
    text_bytes::{TEXT_AS_HEX, hex_warning, read_declared_bytes},
};
use self::{map_columns::MapColumns, missing_values::Met};
use crate::{
    error::Error,
    flatten::{Leaf, flatten},
    infer::Types,
};

/// Placeholder for a column that does not exist yet.
const NEW: usize = usize::MAX;

/// Kind of decision: digits of a number that no float holds are rounded.
const DIGITS_ROUNDED: &str = "digits_rounded";

/// Mark of a cell with a percent sign, which is counted if its record lands.
const PERCENT_READ: &str = "percent_read";

/// Kind of decision: an object of too many keys.
const KEPT_WHOLE: &str = "kept_whole";

/// Characters of a value in a sample.
const SHOWN: usize = 100;

/// Reason and details of a rejected record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rejection {
    /// A fixed word, counted in the log.
    pub reason: &'static str,
    /// Column; empty if the reason concerns the complete record.
    pub path: String,
    /// Details of the reason.
    pub detail: String,
}

/// Decision about a record.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Verdict {
    /// It lands, with these cells: index of the column, value. A nulled value is absent.
    Land {
        /// Cells that are not null.
        cells: Vec<(usize, Value)>,
        /// Columns in which a value was replaced by null.
        nulled: Vec<usize>,
    },
    /// The record is rejected.
    Reject(Rejection),
    /// The key, below `contract`, is `freeze` and the run stops.
    Stop(String, Rejection),
}

/// Schema and presence of a source before a batch.
#[derive(Clone, Debug)]
pub(crate) struct Before {
    /// Schema of the batch before.
    pub(crate) schema: RecordSchema,
    /// Columns that had values.
    pub(crate) presence: Presence,
}

/// A contract at the end of a batch.
#[derive(Clone, Debug)]
pub(crate) struct Closed {
    /// The schema before the batch, or its next version if anything changed.
    pub(crate) schema: RecordSchema,
    /// Columns that have values, this batch included.
    pub(crate) presence: Presence,
    /// Decisions that are not counted elsewhere.
    pub(crate) decisions: Decisions,
}

/// The schema of a source while a batch is decided.
#[derive(Clone, Debug)]
pub(crate) struct Contract<'a> {
    config: &'a ContractConfig,
    before: Option<&'a Before>,
    columns: Vec<Column>,
    by_name: HashMap<String, usize>,
    /// Rule of each column.
    rules: Vec<Rule>,
    /// Number of columns where a null rejects the record or stops the run.
    strict: usize,
    /// Values that this batch has landed in each column.
    met: Vec<Met>,
    /// Names in `contract.required` that are no columns yet.
    unmade: Vec<&'a str>,
    reading: Reading,
    /// Planned types of columns without a declared one.
    planned: Types,
    /// Format of CSV cells.
    format: CellFormat,
    /// Paths of objects that are stored as one column.
    whole: HashSet<String>,
    width: MapColumns,
    rows: u64,
    decisions: Decisions,
    /// Decisions about the current record, noted when it lands.
    pending: Vec<(&'static str, String, String)>,
    /// Column of each leaf of the current record.
    places: Vec<usize>,
}

/// Contract rules of one column.
#[derive(Clone, Copy, Debug)]
struct Rule {
    types: TypeContract,
    /// True if the configuration declares its type.
    is_declared: bool,
    /// True if it must not be null.
    is_never_null: bool,
    nulls: NullContract,
}

impl Rule {
    /// Returns true if a null rejects the record or stops the run.
    fn is_strict(self) -> bool {
        self.is_never_null && self.nulls != NullContract::Warn
    }
}

impl<'a> Contract<'a> {
    /// Begins a batch after `before`; `None` for a source without columns.
    ///
    /// # Errors
    /// [`Error::Config`] for a declared type that is narrower than the landed column.
    pub(crate) fn new(
        config: &'a ContractConfig,
        before: Option<&'a Before>,
    ) -> Result<Self, Error> {
        let columns = before.map(|before| before.schema.columns.clone());
        let columns = columns.unwrap_or_default();
        let names = || columns.iter().map(|column| column.name.as_str());
        let width = MapColumns::new(
            config.max_keys.get() as usize,
            names().filter(|n| n.contains('.')),
        );
        let by_name: HashMap<String, usize> = names().map(ToOwned::to_owned).zip(0..).collect();
        let declared = config
            .column
            .iter()
            .filter(|(_, column)| column.r#type == Some(DeclaredType::Json));
        let whole = columns.iter().filter(|column| column.whole);
        let whole = whole.map(|column| column.name.clone());
        let required = config.required.iter().map(String::as_str);
        let mut contract = Self {
            config,
            before,
            rules: Vec::new(),
            strict: 0,
            met: names().map(|name| met_before(before, name)).collect(),
            unmade: required
                .filter(|name| !by_name.contains_key(*name))
                .collect(),
            reading: reading(config),
            planned: Types::new(),
            format: CellFormat::default(),
            whole: whole
                .chain(declared.map(|(name, _)| name.clone()))
                .collect(),
            width,
            rows: 0,
            decisions: Decisions::new(),
            pending: Vec::new(),
            places: Vec::new(),
            by_name,
            columns,
        };
        contract.declare()?;
        contract.rules = contract
            .columns
            .iter()
            .map(|c| contract.rule(&c.name))
            .collect();
        let strict = contract.rules.iter().filter(|rule| rule.is_strict());
        contract.strict = strict.count();
        Ok(contract)
    }

    /// Sets the planned types of new columns and the notation of cells.
    pub(crate) fn with(mut self, planned: Types, format: CellFormat) -> Self {
        self.planned = planned;
        self.format = format;
        self
    }

    /// Gives the existing columns their declared types.
    fn declare(&mut self) -> Result<(), Error> {
        for column in &mut self.columns {
            let Some(declared) = declared(self.config, &column.name) else {
                continue;
            };
            let have = column.r#type;
            let is_wider = have.widest(declared) == declared;
            // A landed text column cannot become a column of bytes.
            let is_bytes = declared == ColumnType::Binary;
            let follows = have == declared || (is_wider && !is_bytes);
            if have != ColumnType::Null && !follows {
                return Err(Error::config(
                    format!("contract.column.{:?}.type", column.name),
                    format!(
                        "the column has landed as {} already, and only a wider type can follow; remove the key, or run `feedline ingest reset PIPELINE.toml SOURCE`, which saves landed data under another name and re-reads everything",
                        noun(have)
                    ),
                ));
            }
            column.r#type = declared;
        }
        Ok(())
    }

    fn rule(&self, name: &str) -> Rule {
        let own = self.config.column.get(name);
        let is_known = self
            .before
            .is_some_and(|b| missing_values::is_never_null(&b.presence, name));
        Rule {
            types: own.and_then(|own| own.types).unwrap_or(self.config.types),
            is_declared: own.is_some_and(|own| own.r#type.is_some()),
            is_never_null: self.config.required.iter().any(|n| n == name)
                || (is_known && self.by_name.contains_key(name)),
            nulls: self.nulls(name),
        }
    }

    /// Action for a null in the column `name` that must not be null.
    fn nulls(&self, name: &str) -> NullContract {
        let own = self.config.column.get(name).and_then(|own| own.nulls);
        own.unwrap_or(self.config.nulls)
    }

    /// Names that are no columns yet and cost a record that lacks them.
    fn strict_unmade(&self) -> impl Iterator<Item = &'a str> {
        let unmade = self.unmade.iter().copied();
        unmade.filter(|name| self.nulls(name) != NullContract::Warn)
    }

    /// Rules for reading values.
    pub(crate) fn reading(&self) -> &Reading {
        &self.reading
    }

    /// Decides about a record, and applies its changes to the schema if it lands.
    pub(crate) fn admit(&mut self, record: Vec<(String, Value)>) -> Verdict {
        let mut leaves = flatten(record, self.config.max_depth.get(), &self.whole);
        let mut places = mem::take(&mut self.places);
        self.pending.clear();
        self.place(&leaves, &mut places);
        let verdict = if places.contains(&NEW) {
            match self.welcome(leaves, &mut places) {
                Ok(welcome) => {
                    leaves = welcome;
                    self.decide(leaves, &places)
                }
                Err(verdict) => verdict,
            }
        } else {
            self.decide(leaves, &places)
        };
        self.places = places;
        verdict
    }

    /// Looks up the column of each leaf.
    fn place(&self, leaves: &[Leaf], places: &mut Vec<usize>) {
        let place = |leaf: &Leaf| self.by_name.get(&leaf.name).copied().unwrap_or(NEW);
        places.clear();
        places.extend(leaves.iter().map(place));
    }
}

/// Findings about the column `name` at the begin of a batch.
fn met_before(before: Option<&Before>, name: &str) -> Met {
    Met {
        is_big: before.is_some_and(|before| before.presence.large_integers.contains(name)),
        ..Met::default()
    }
}

fn reading(config: &ContractConfig) -> Reading {
    Reading {
        lists: config.lists,
        infer_dates: !config.dates.is_empty(),
        dates: Dates::new(&config.dates),
    }
}

/// The type that the configuration declares for a column.
fn declared(config: &ContractConfig, name: &str) -> Option<ColumnType> {
    config
        .column
        .get(name)?
        .r#type
        .map(DeclaredType::column_type)
}

fn shown(value: &Value) -> String {
    shorten(&value.canonical(), SHOWN).into_owned()
}

/// Noun of a type, for messages.
pub(crate) fn noun(r#type: ColumnType) -> &'static str {
    match r#type {
        ColumnType::Null => "undecided",
        ColumnType::Bool => "boolean",
        ColumnType::Int64 => "integer",
        ColumnType::Float64 => "float",
        ColumnType::Decimal => "decimal",
        ColumnType::Timestamp => "timestamp",
        ColumnType::Utf8 => "text",
        ColumnType::List => "a list",
        ColumnType::ListBool => "a list of booleans",
        ColumnType::ListInt64 => "a list of integers",
        ColumnType::ListFloat64 => "a list of floats",
        ColumnType::ListUtf8 => "a list of strings",
        ColumnType::Json => "JSON (lists or objects)",
        ColumnType::Binary => "bytes",
    }
}

#[cfg(test)]
mod rule_tests;
#[cfg(test)]
mod tests;
