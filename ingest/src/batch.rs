//! A batch: pages gathered until they are worth a commit, decided by contract and written as
//! Parquet.
//!
//! Data file: `_feedline_seq` u64, `_feedline_row` u32, `_feedline_hash` fixed-size binary (16),
//! then the source's columns, all nullable and with their field ids. `Null`, `Utf8` and `Json` are
//! stored as text, `Decimal` as decimal128(38, 18), `Timestamp` in microseconds UTC, lists as
//! lists, the others as their own types. Rows are in the order of the source. Rejects file:
//! `_feedline_seq`, `_feedline_row`, `reason`, `path` (column, or empty), `detail`, `raw` (the
//! record as canonical JSON, or the unchanged line). `_feedline_row` counts all records of the
//! batch from 0, so landed rows, rejects and the gaps of duplicates add up.
//!
//! Frontier file of a `html` source: `_feedline_seq`, `_feedline_row`, then the columns of
//! [`crate::frontier`].
//!
//! Child tables have files of their own, see [`feedline_schemas::commit::ChildTable`].
//!
//! Validators file of a `html` source: `_feedline_seq`, `_feedline_row`, then the columns of
//! [`crate::validators`].
//!
//! Files are a pure function of the batch, the schema and the dedup window before it: same batch,
//! same bytes, same name.

mod cells;
mod children;
mod columns;
mod decide_records;
mod file;
pub(crate) mod rejects;
mod tape_records;

use std::{collections::BTreeMap, mem::take, sync::Arc};

use arrow::array::{ArrayRef, StringArray};
use feedline_readers::{record::Record, value::Value};
use feedline_schemas::{
    commit::{BatchCounts, ChildTable, Decisions, FilePart, Position, Presence, note},
    config::{BatchConfig, ContractConfig},
    csv_cell::CellFormat,
    ids::{Hash128, Name, Sequence},
    record::{RecordSchema, system},
    report::{Warning, replace_warning},
};

pub(crate) use self::file::{Encoded, MergedFile, encode_again};
use self::{
    cells::Cells,
    children::{Children, DecidedChildren, Setup},
    columns::Coerced,
    decide_records::Deciding,
    file::{MAX_RECORDS, Named, encode, encode_error},
    rejects::{Reject, frozen, name_places},
    tape_records::Plain,
};
use crate::{
    column_warnings::RecordColumns,
    contract::{self, Before, Contract, Reading},
    dedup::Window,
    error::Error,
    frontier::{self, discovery::Discovery},
    infer::Types,
    record_places::RecordPlaces,
    source::{Page, PagePart},
    validators::{self, Validator},
};

/// Pages since the last commit.
#[derive(Clone, Debug, Default)]
pub(crate) struct Batch {
    records: Vec<Record>,
    pages: u64,
    bytes: u64,
    skipped: BTreeMap<String, u64>,
    frontier: Vec<Discovery>,
    validators: Vec<(Hash128, Validator)>,
    warnings: Vec<Warning>,
    /// Schemas and presence of child tables that landed before.
    children: BTreeMap<Name, ChildTable>,
    /// Files of the records, in their order.
    parts: Vec<FilePart>,
    /// URLs of the files whose earlier landed records are all superseded.
    superseded: Vec<String>,
    /// Planned types of new columns.
    planned: Types,
    format: CellFormat,
    /// Files and places of the records.
    places: RecordPlaces,
}

impl Batch {
    /// Sets the planned types of new columns and the notation of CSV cells.
    pub(crate) fn plan(&mut self, planned: Types, format: CellFormat) {
        self.planned = planned;
        self.format = format;
    }

    /// Takes the files that the records come from, and the URLs of those whose earlier landed
    /// records are all superseded.
    pub(crate) fn take_parts(&mut self) -> (Vec<FilePart>, Vec<String>) {
        (take(&mut self.parts), take(&mut self.superseded))
    }

    /// Sets the files that the rejects of a source at `url` name. Those of a source of one file need
    /// no name.
    pub(crate) fn set_files(&mut self, url: &str, parts: &[FilePart]) {
        self.places.set_files(url, parts);
    }

    /// Files and places of the records.
    pub(crate) fn places(&self) -> &RecordPlaces {
        &self.places
    }

    /// Adds warnings from reading it. Each warning replaces an earlier one with the same code.
    pub(crate) fn warn(&mut self, warnings: Vec<Warning>) {
        for warning in warnings {
            replace_warning(&mut self.warnings, warning);
        }
    }

    /// Adds the part of a file, whose first record has the number `begin`.
    fn push_part(&mut self, begin: u64, part: PagePart) {
        let PagePart {
            part,
            supersedes,
            place,
        } = part;
        if let Some(place) = place {
            self.places.push_part(begin, part.records, place);
        }
        if supersedes {
            self.superseded.push(part.url.clone());
        }
        match self.parts.last_mut().filter(|last| last.url == part.url) {
            Some(last) => last.records += part.records,
            None if part.records > 0 => self.parts.push(part),
            None => {}
        }
    }

    /// The records, in order.
    pub(crate) fn records(&self) -> &[Record] {
        &self.records
    }

    /// Continues the child tables that landed before.
    pub(crate) fn follow(&mut self, children: BTreeMap<Name, ChildTable>) {
        self.children = children;
    }

    /// Adds a page's records.
    pub(crate) fn push(&mut self, page: Page) -> Result<Position, Error> {
        self.bytes += page.records.iter().map(Record::size).sum::<u64>();
        let mut begin = self.len();
        self.records.extend(page.records);
        for part in page.parts {
            let records = part.part.records;
            self.push_part(begin, part);
            begin += records;
        }
        if let Some(crawled) = page.crawled {
            self.pages += crawled.urls;
            for (reason, count) in crawled.skipped {
                *self.skipped.entry(reason.to_owned()).or_default() += count;
            }
            self.bytes += crawled
                .found
                .iter()
                .map(|d| d.url.len() as u64)
                .sum::<u64>();
            self.frontier.extend(crawled.found);
            self.validators.extend(crawled.validators);
            self.warn(crawled.warnings);
        } else {
            self.pages += 1;
        }
        if self.records.len() > MAX_RECORDS {
            return Err(Error::config(
                "batch.rows",
                format!(
                    "a page brought the batch to {} records, more than {MAX_RECORDS}; ask for smaller pages",
                    self.records.len()
                ),
            ));
        }
        Ok(page.next)
    }

    /// Returns true if the batch has reached one of its limits.
    pub(crate) fn is_full(&self, config: &BatchConfig) -> bool {
        self.len() >= config.rows.get()
            || self.pages >= config.pages.get()
            || self.bytes >= config.bytes.bytes()
    }

    /// Returns true if a page was skipped for a reason. That is worth an entry in the log.
    pub(crate) fn has_skipped(&self) -> bool {
        !self.skipped.is_empty()
    }

    /// Number of records.
    pub(crate) fn len(&self) -> u64 {
        self.records.len() as u64
    }

    /// Decides about every record in order, and adds the landed ones to `window`.
    ///
    /// # Errors
    /// [`Error::Frozen`] if the contract stops the run, [`Error::Config`] if the contract does not
    /// fit the landed data.
    pub(crate) fn decide(
        self,
        source: &str,
        config: &ContractConfig,
        before: Option<&Before>,
        window: &mut Window,
    ) -> Result<Decided, Error> {
        let setup = Setup::new(config, self.children)?;
        let mut deciding = Deciding {
            source,
            children: Children::new(&setup)?,
            config,
            contract: Contract::new(config, before)?.with(self.planned, self.format),
            window,
            cells: Cells::default(),
            plain: Plain::default(),
            rejects: Vec::new(),
            duplicates: 0,
            nulled: BTreeMap::new(),
            repaired: Decisions::new(),
        };
        let places = &self.places;
        for (row, record) in (0_u32..).zip(self.records) {
            let located = |error: Error| error.at(places.describe(row.into()));
            match record {
                Record::Json(record) => deciding.json(row, &record).map_err(located)?,
                Record::Value(record @ Value::Object(_)) => {
                    deciding.record(row, record).map_err(located)?;
                }
                Record::Value(other) => {
                    let record = Record::of(other, || format!("record {row} of the batch"));
                    deciding.rejects.push(Reject::new(row, record));
                }
                bad @ Record::Bad { .. } => deciding.rejects.push(Reject::new(row, bad)),
            }
        }
        deciding.drop_known_rejects();
        name_places(&mut deciding.rejects, places);
        let children = deciding.children.close(source)?;
        let reading = deciding.contract.reading().clone();
        let closed = deciding
            .contract
            .close()
            .map_err(|(key, r)| frozen(source, key, r, "none alone, but the whole batch"))?;
        let name = |column: usize| closed.schema.columns[column].name.clone();
        let nulled = deciding.nulled.into_iter();
        let mut decisions = closed.decisions;
        decisions.extend(deciding.repaired);
        let mut warnings = self.warnings;
        let names = closed.schema.columns.iter().map(|c| c.name.as_str());
        let others = [
            contract::cut_warning(&decisions),
            contract::hex_warning(&decisions),
            contract::alike_warning(names, &closed.presence),
        ];
        let all = contract::image_warnings(&decisions).into_iter();
        for warning in all.chain(others.into_iter().flatten()) {
            replace_warning(&mut warnings, warning);
        }
        Ok(Decided {
            nulled: nulled
                .map(|(column, count)| (name(column), count))
                .collect(),
            schema: closed.schema,
            presence: closed.presence,
            decisions,
            reading,
            cells: deciding.cells,
            rejects: deciding.rejects,
            children,
            duplicates: deciding.duplicates,
            pages: self.pages,
            skipped: self.skipped,
            frontier: self.frontier,
            validators: self.validators,
            warnings,
        })
    }
}

/// A batch after all decisions.
#[derive(Clone, Debug)]
pub(crate) struct Decided {
    pub(crate) schema: RecordSchema,
    pub(crate) presence: Presence,
    decisions: Decisions,
    reading: Reading,
    cells: Cells,
    rejects: Vec<Reject>,
    children: DecidedChildren,
    duplicates: u64,
    nulled: BTreeMap<String, u64>,
    pages: u64,
    skipped: BTreeMap<String, u64>,
    frontier: Vec<Discovery>,
    validators: Vec<(Hash128, Validator)>,
    pub(crate) warnings: Vec<Warning>,
}

impl Decided {
    /// Rejected records.
    pub(crate) fn rejects(&self) -> &[Reject] {
        &self.rejects
    }

    /// Counts of landed, duplicate, rejected and changed records.
    pub(crate) fn counts(&self) -> BatchCounts {
        let mut counts = BatchCounts {
            rows: self.cells.rows.len() as u64,
            duplicates: self.duplicates,
            rejected: self.rejects.len() as u64,
            nulled: self.nulled.clone(),
            pages: self.pages,
            skipped: self.skipped.clone(),
            decisions: self.decisions.clone(),
            ..BatchCounts::default()
        };
        for reject in &self.rejects {
            *counts
                .rejected_by_reason
                .entry(reject.reason.to_owned())
                .or_default() += 1;
        }
        self.count_coerced(&mut counts);
        self.children.count(&mut counts);
        counts
    }

    /// Columns of all records that have landed with the batch.
    pub(crate) fn record_columns(&self) -> RecordColumns<'_> {
        RecordColumns {
            schema: &self.schema,
            presence: &self.presence,
            tables: self.children.columns().collect(),
            others: Vec::new(),
        }
    }

    fn count_coerced(&self, counts: &mut BatchCounts) {
        for Coerced {
            column,
            count,
            sample,
        } in columns::coerced(&self.schema, &self.cells)
        {
            counts.coerced.insert(column.to_owned(), count);
            note(&mut counts.decisions, "coerced", column, count, || sample);
        }
    }

    /// The data file, if any record landed.
    ///
    /// # Errors
    /// [`Error::Encode`].
    pub(crate) fn data_file(&self, sequence: Sequence) -> Result<Option<Encoded>, Error> {
        let hashes = self.cells.hashes();
        let hashes = hashes.map_err(|e| encode_error("data", e.into()))?;
        let mut columns = vec![Named::new(system::HASH, hashes)];
        let arrays = columns::arrays(&self.schema, &self.cells, &self.reading);
        let arrays = arrays.map_err(|e| encode_error("data", e.into()))?;
        let named = self.schema.columns.iter().zip(arrays);
        columns.extend(named.map(|(c, array)| Named::of_source(&c.name, c.field_id, array)));
        let rows = self.cells.rows.iter().copied();
        encode("data", sequence, rows, columns)
    }

    /// Log entry of each child table, and its file if any item landed in it.
    ///
    /// # Errors
    /// [`Error::Encode`].
    pub(crate) fn child_files(
        &self,
        sequence: Sequence,
    ) -> Result<BTreeMap<Name, (ChildTable, Option<Encoded>)>, Error> {
        self.children.files(sequence)
    }

    /// The rejects file, if any record was rejected.
    ///
    /// # Errors
    /// [`Error::Encode`].
    pub(crate) fn rejects_file(&self, sequence: Sequence) -> Result<Option<Encoded>, Error> {
        let rows = self.rejects.iter().map(|reject| reject.row);
        let text = |get: fn(&Reject) -> &str| -> ArrayRef {
            Arc::new(StringArray::from_iter_values(self.rejects.iter().map(get)))
        };
        let columns = vec![
            Named::new(rejects::REASON, text(|r| r.reason)),
            Named::new(rejects::PATH, text(|r| &r.path)),
            Named::new(rejects::DETAIL, text(|r| &r.detail)),
            Named::new(rejects::RAW, text(|r| &r.raw)),
        ];
        encode("rejects", sequence, rows, columns)
    }

    /// The frontier file, if the batch found any URL.
    ///
    /// # Errors
    /// [`Error::Encode`].
    pub(crate) fn frontier_file(&self, sequence: Sequence) -> Result<Option<Encoded>, Error> {
        let rows = (0..).take(self.frontier.len()).collect::<Vec<u32>>();
        let columns = frontier::columns(&self.frontier).into_iter();
        let columns = columns.map(|(name, array)| Named::new(name, array));
        encode("frontier", sequence, rows.into_iter(), columns.collect())
    }

    /// Encodes the validators file, if any page has validators.
    ///
    /// # Errors
    /// [`Error::Encode`].
    pub(crate) fn validators_file(&self, sequence: Sequence) -> Result<Option<Encoded>, Error> {
        encode_validators(&self.validators, sequence)
    }
}

/// Encodes a file of validators; `None` without any.
///
/// # Errors
/// [`Error::Encode`].
pub(crate) fn encode_validators(
    all: &[(Hash128, Validator)],
    sequence: Sequence,
) -> Result<Option<Encoded>, Error> {
    let rows = (0..).take(all.len()).collect::<Vec<u32>>();
    let columns = validators::columns(all).into_iter();
    let columns = columns.map(|(name, array)| Named::new(name, array));
    encode("validators", sequence, rows.into_iter(), columns.collect())
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod type_tests;
