//! Landed keys of the split and of series: spellings of one key, and keys without a part.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use arrow::array::{AsArray, RecordBatch};
use datafusion::{logical_expr::ident, prelude::SessionContext};
use feedline_schemas::{record::ColumnType, report::Warning};
use futures::TryStreamExt;
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    Error,
    operators::{coerce::Missing, split::missing::have_key},
    pipeline::prepare::Build,
    source::landed_scan,
    warnings::{self, folded, list_alike},
};

/// Values of a column that are held at a time, at most.
const HELD: usize = 1 << 16;

/// The values of a column by what they are without differences of spelling. Where there are many, a part of all, which follows
/// from the values alone.
#[derive(Default)]
struct Spellings {
    /// Values by the hash of their folded text.
    values: HashMap<u64, BTreeSet<Box<str>>>,
    /// Hashes with any of so many upper bits are left out.
    bits: u32,
}

impl Spellings {
    fn add(&mut self, value: &str) {
        let hash = xxh3_64(folded(value).as_bytes());
        if !self.holds(hash) {
            return;
        }
        let spellings = self.values.entry(hash).or_default();
        if !spellings.contains(value) {
            spellings.insert(value.into());
        }
        while self.values.len() > HELD {
            self.bits += 1;
            let bits = self.bits;
            self.values.retain(|hash, _| hash >> (64 - bits) == 0);
        }
    }

    fn holds(&self, hash: u64) -> bool {
        self.bits == 0 || hash >> (64 - self.bits) == 0
    }

    /// Spellings of one value, as text, in the order of the first of them.
    fn alike(self) -> Vec<String> {
        let several = self.values.into_values().filter(|values| values.len() > 1);
        let mut several: Vec<BTreeSet<Box<str>>> = several.collect();
        several.sort_unstable();
        let text = |values: BTreeSet<Box<str>>| {
            let values = values.iter().map(|value| (&**value, String::new()));
            list_alike(&values.collect::<Vec<_>>())
        };
        several.into_iter().map(text).collect()
    }
}

impl Build<'_> {
    /// Warns of keys of the split and of entities that differ in their spelling only, and of those that lack a part.
    pub(in crate::pipeline) async fn keys_alike(
        &self,
        session: &SessionContext,
    ) -> Result<Vec<Warning>, Error> {
        const ENTITY: &str = "dataset.series.entity";
        let mut found = Vec::new();
        let key = &self.spec.config.split.key;
        let entity = self.spec.series.as_ref().map(|series| &series.entity);
        let entity = entity.filter(|entity| *entity != key);
        for (at, names) in [("dataset.split.key", Some(key)), (ENTITY, entity)] {
            if let Some(names) = names.filter(|names| !names.is_empty()) {
                found.extend(Box::pin(self.keys_of(session, at, names)).await?);
            }
        }
        Ok(found)
    }

    async fn keys_of(
        &self,
        session: &SessionContext,
        at: &str,
        names: &[String],
    ) -> Result<Vec<Warning>, Error> {
        let config = &self.spec.config;
        let missing = Missing::new(&config.null_values, &config.missing_values);
        let is_text = |name: &String| {
            let mut columns = self.input.columns.iter();
            columns.any(|column| column.name == *name && column.r#type == ColumnType::Utf8)
        };
        if names.len() == 1 && !names.iter().any(is_text) {
            return Ok(Vec::new());
        }
        let mut seen = SeenKeys::new(names, missing);
        for table in self.tables() {
            for generation in &table.generations {
                let columns = &generation.schema.columns;
                let known: Vec<&String> = names
                    .iter()
                    .filter(|name| columns.iter().any(|column| column.name == **name))
                    .collect();
                if known.is_empty() {
                    continue;
                }
                let cells = known.iter().map(|name| ident(name.as_str()));
                let read = landed_scan::read(session, table, generation)?;
                let read = read.select(cells.collect::<Vec<_>>())?;
                let mut stream = Box::pin(read.execute_stream()).await?;
                while let Some(batch) = stream.try_next().await? {
                    seen.add(&known, &batch);
                }
            }
        }
        Ok(seen.warnings(at, names))
    }
}

/// Cells of a key that were read so far.
struct SeenKeys<'a> {
    names: &'a [String],
    missing: Missing,
    /// Values of text columns.
    spellings: BTreeMap<&'a str, Spellings>,
    rows: u64,
    /// Rows with a value in some columns of the key and not in all.
    partly: u64,
}

impl<'a> SeenKeys<'a> {
    fn new(names: &'a [String], missing: Missing) -> Self {
        Self {
            names,
            missing,
            spellings: BTreeMap::new(),
            rows: 0,
            partly: 0,
        }
    }

    /// Warnings of keys without a part, and of spellings of one key. `at` is the configured key.
    fn warnings(self, at: &str, names: &[String]) -> Vec<Warning> {
        let mut found = Vec::new();
        found.extend(warnings::keys_incomplete(at, names, self.partly, self.rows));
        for (name, of_column) in self.spellings {
            let is_part = of_column.bits > 0;
            found.extend(warnings::keys_alike(at, name, &of_column.alike(), is_part));
        }
        found
    }

    /// Adds the cells of the columns `known` of some rows.
    fn add(&mut self, known: &[&'a String], batch: &RecordBatch) {
        self.rows += batch.num_rows() as u64;
        if self.names.len() > 1 {
            self.count_partly(batch);
        }
        for (name, cell) in known.iter().zip(batch.columns()) {
            let Some(texts) = cell.as_string_opt::<i32>() else {
                continue;
            };
            let of_column = self.spellings.entry(name.as_str()).or_default();
            let mut last: Option<&str> = None;
            for text in texts.iter().flatten() {
                // Rows of one key often follow one another.
                if last != Some(text) && !self.missing.text(text) {
                    of_column.add(text);
                }
                last = Some(text);
            }
        }
    }

    fn count_partly(&mut self, batch: &RecordBatch) {
        let count = batch.num_rows();
        let cells = batch.columns().iter();
        let cells = cells.map(|cell| have_key(&self.missing, std::slice::from_ref(cell), count));
        let cells: Vec<Vec<bool>> = cells.collect();
        let is_partly = |row: &usize| {
            let has = cells.iter().filter(|cell| cell[*row]).count();
            has > 0 && has < self.names.len()
        };
        self.partly += (0..count).filter(is_partly).count() as u64;
    }
}
