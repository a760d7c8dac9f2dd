//! Rejected rows: counted, kept in scratch, published as JSON lines in landing order.
//!
//! A line is `{"source", "sequence", "row", "reason", "column", "value"}`. The first three give the
//! landing position: source, batch and row in that batch, both from 0. Rows of a query are numbered
//! in the order of their hashes. Rows of images also have `file` behind `row`, where they landed with
//! a path.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use arrow::{
    array::{ArrayRef, AsArray, RecordBatch, StringArray, UInt64Array},
    datatypes::{DataType, Field, Schema, SchemaRef, UInt64Type},
};
use bytes::Bytes;
use datafusion::{
    execution::object_store::ObjectStoreUrl, logical_expr::ident, prelude::SessionContext,
};
use feedline_schemas::ids::{Hash128, Origin, TableName};
use feedline_storage::Store;
use futures::TryStreamExt;
use serde::Serialize;

use crate::{
    Error,
    engine::scratch::ScratchFile,
    schema::reject_reason::{self, Reason},
    source::parquet_scan::{ParquetFiles, ScanFile},
};

/// A published file ends with the line that reaches this many bytes.
const FILE_BYTES: usize = 16 << 20;

const ORIGIN: &str = "origin";
const REASON: &str = "reason";

/// Columns of rejected rows in scratch: where they landed, and why.
pub(crate) fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new(ORIGIN, DataType::UInt64, false),
        Field::new(REASON, DataType::Utf8, false),
    ]))
}

/// Rejected rows of one writer, or of several put together.
#[derive(Debug, Default)]
pub(crate) struct Rejects {
    by_reason: BTreeMap<String, u64>,
    /// Rows without a usable target, by the first target that they lack.
    by_target: BTreeMap<String, u64>,
    /// The first in landing order of each reason.
    first: BTreeMap<String, (u64, Reason)>,
    files: Vec<ScanFile>,
    /// Files that the rows landed from, by origin, as far as they are known.
    landed_files: BTreeMap<u64, String>,
}

impl Rejects {
    /// Rows that cannot be used and rows that are left out by choice.
    pub(crate) fn all(&self) -> u64 {
        self.by_reason.values().sum()
    }

    /// Rows that cannot be used, by reason.
    pub(crate) fn rejected(&self) -> BTreeMap<String, u64> {
        self.by(false)
    }

    /// Rows that could be used but that the configuration leaves out, by reason.
    pub(crate) fn filtered(&self) -> BTreeMap<String, u64> {
        self.by(true)
    }

    /// Rows without a usable target, by its column; where a row lacks several, by the first.
    pub(crate) const fn by_target(&self) -> &BTreeMap<String, u64> {
        &self.by_target
    }

    fn by(&self, choice: bool) -> BTreeMap<String, u64> {
        let reasons = self.by_reason.iter();
        let chosen = reasons.filter(|(reason, _)| reject_reason::is_choice(reason) == choice);
        chosen
            .map(|(reason, rows)| (reason.clone(), *rows))
            .collect()
    }

    pub(crate) fn merge(&mut self, other: Self) {
        for (reason, rows) in other.by_reason {
            *self.by_reason.entry(reason).or_default() += rows;
        }
        for (target, rows) in other.by_target {
            *self.by_target.entry(target).or_default() += rows;
        }
        for (_, (origin, reason)) in other.first {
            self.see(origin, reason);
        }
        self.files.extend(other.files);
        self.landed_files.extend(other.landed_files);
    }

    /// The first row that cannot be used, as its line; without one, the first that is left out by choice.
    pub(crate) fn sample(&self, sources: &[TableName]) -> Option<String> {
        let first = self.first.values();
        let first = first
            .min_by_key(|(origin, reason)| (reject_reason::is_choice(&reason.reason), *origin));
        first.map(|(origin, reason)| self.line(*origin, reason.clone(), sources))
    }

    /// Every reason, its rows, and the line of the first of them.
    pub(crate) fn firsts(&self, sources: &[TableName]) -> Vec<(String, u64, String)> {
        let reasons = self.by_reason.iter();
        let with_first = reasons.map(|(reason, rows)| {
            let first = self.first.get(reason);
            let first = first.map(|(origin, first)| self.line(*origin, first.clone(), sources));
            (reason.clone(), *rows, first.unwrap_or_default())
        });
        with_first.collect()
    }

    /// The first row rejected for this reason.
    pub(crate) fn first_of(&self, reason: &str) -> Option<&Reason> {
        self.first.get(reason).map(|(_, reason)| reason)
    }

    /// Counts rows that were rejected for `reason`.
    #[cfg(test)]
    pub(crate) fn count(&mut self, reason: &str, rows: u64) {
        *self.by_reason.entry(reason.to_owned()).or_default() += rows;
    }

    fn see(&mut self, origin: u64, reason: Reason) {
        match self.first.get_mut(&reason.reason) {
            Some(first) if first.0 <= origin => {}
            Some(first) => *first = (origin, reason),
            None => {
                self.first.insert(reason.reason.clone(), (origin, reason));
            }
        }
    }

    /// Sets the files that rows landed from, by origin.
    pub(crate) fn set_landed_files(&mut self, files: BTreeMap<u64, String>) {
        self.landed_files = files;
    }

    /// Origins of the rows, the first `most` of them that are found.
    pub(crate) async fn origins(
        &self,
        session: &SessionContext,
        most: usize,
    ) -> Result<BTreeSet<u64>, Error> {
        let mut origins = BTreeSet::new();
        if self.files.is_empty() {
            return Ok(origins);
        }
        let rows = session.read_table(Arc::new(self.table()))?;
        let mut batches = rows.select(vec![ident(ORIGIN)])?.execute_stream().await?;
        while let Some(batch) = batches.try_next().await? {
            let found = batch.column(0).as_primitive::<UInt64Type>().values().iter();
            let room = most.saturating_sub(origins.len());
            origins.extend(found.take(room));
        }
        Ok(origins)
    }

    /// The rows in scratch.
    fn table(&self) -> ParquetFiles {
        ParquetFiles {
            store: ObjectStoreUrl::local_filesystem(),
            schema: schema(),
            files: self.files.clone(),
        }
    }

    fn line(&self, origin: u64, reason: Reason, sources: &[TableName]) -> String {
        let file = self.landed_files.get(&origin).map(String::as_str);
        line(origin, file, reason, sources)
    }

    /// Writes them to `dataset` and returns the paths, each named by its content.
    pub(crate) async fn publish(
        &self,
        session: &SessionContext,
        dataset: &Store,
        sources: &[TableName],
    ) -> Result<Vec<String>, Error> {
        if self.files.is_empty() {
            return Ok(Vec::new());
        }
        let order = vec![
            ident(ORIGIN).sort(true, false),
            ident(REASON).sort(true, false),
        ];
        let mut stream = session
            .read_table(Arc::new(self.table()))?
            .sort(order)?
            .execute_stream()
            .await?;
        let mut paths = Vec::new();
        let mut text = String::new();
        while let Some(batch) = stream.try_next().await? {
            let origins = batch.column(0).as_primitive::<UInt64Type>();
            let reasons = batch.column(1).as_string::<i32>();
            for (origin, reason) in origins.values().iter().zip(reasons.iter().flatten()) {
                text += &self.line(*origin, Reason::from_json(reason), sources);
                text.push('\n');
                if text.len() >= FILE_BYTES {
                    paths.push(put(dataset, std::mem::take(&mut text)).await?);
                }
            }
        }
        if !text.is_empty() {
            paths.push(put(dataset, text).await?);
        }
        Ok(paths)
    }
}

/// Path of a file of rejects whose content has this hash.
pub(crate) fn path_of(hash: Hash128) -> String {
    format!("rejects/{}.jsonl", hash.short())
}

/// The first row of the first file of published rejects that cannot be used; without one, the first that is left out by choice.
pub(crate) async fn sample(dataset: &Store, paths: &[String]) -> Result<Option<String>, Error> {
    let Some(path) = paths.first() else {
        return Ok(None);
    };
    let text = dataset.get_opt(path).await?.unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let is_fault = |line: &&str| {
        let reason = serde_json::from_str::<Reason>(line);
        reason.is_ok_and(|reason| !reject_reason::is_choice(&reason.reason))
    };
    let first = text.lines().find(is_fault);
    Ok(first.or_else(|| text.lines().next()).map(str::to_owned))
}

async fn put(dataset: &Store, text: String) -> Result<String, Error> {
    let path = path_of(Hash128::of(text.as_bytes()));
    dataset.put(&path, Bytes::from(text)).await?;
    Ok(path)
}

fn line(origin: u64, file: Option<&str>, reason: Reason, sources: &[TableName]) -> String {
    #[derive(Serialize)]
    struct Line<'a> {
        source: String,
        sequence: u64,
        row: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        file: Option<&'a str>,
        #[serde(flatten)]
        reason: Reason,
    }
    let at = Origin::from_packed(origin);
    let source = usize::try_from(at.source())
        .ok()
        .and_then(|i| sources.get(i))
        .map_or_else(String::new, TableName::to_string);
    let line = Line {
        source,
        sequence: at.sequence().get(),
        row: at.row(),
        file,
        reason,
    };
    serde_json::to_string(&line).expect("texts and integers are JSON")
}

/// Takes rejected rows, batch by batch.
#[derive(Debug)]
pub(crate) struct RejectWriter {
    rejects: Rejects,
    file: ScratchFile,
}

impl RejectWriter {
    pub(crate) fn new(path: std::path::PathBuf) -> Self {
        Self {
            rejects: Rejects::default(),
            file: ScratchFile::new(path, schema()),
        }
    }

    /// Takes rows by origin; each reason is JSON of [`Reason`].
    pub(crate) fn push(&mut self, rows: Vec<(u64, String)>) -> Result<(), Error> {
        for (origin, json) in &rows {
            let reason = Reason::from_json(json);
            *self
                .rejects
                .by_reason
                .entry(reason.reason.clone())
                .or_default() += 1;
            if reject_reason::TARGETS.contains(&reason.reason.as_str()) && !reason.column.is_empty()
            {
                let rows = self.rejects.by_target.entry(reason.column.clone());
                *rows.or_default() += 1;
            }
            self.rejects.see(*origin, reason);
        }
        let (origins, reasons): (Vec<u64>, Vec<String>) = rows.into_iter().unzip();
        let columns: Vec<ArrayRef> = vec![
            Arc::new(UInt64Array::from(origins)),
            Arc::new(StringArray::from(reasons)),
        ];
        self.file.write(&RecordBatch::try_new(schema(), columns)?)
    }

    pub(crate) fn finish(mut self) -> Result<Rejects, Error> {
        self.rejects.files.extend(self.file.finish()?);
        Ok(self.rejects)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_is_of_a_row_that_cannot_be_used_before_one_that_is_left_out() {
        let reason = |reason: &str| Reason {
            reason: reason.to_owned(),
            column: String::new(),
            value: String::new(),
        };
        let mut rejects = Rejects::default();
        rejects.see(3, reason(reject_reason::TOO_MANY_MISSING));
        let sample = |rejects: &Rejects| rejects.sample(&[]).unwrap();
        assert!(sample(&rejects).contains("too_many_missing"));
        rejects.see(9, reason("target_missing"));
        rejects.see(7, reason("no_split"));
        assert!(sample(&rejects).contains("\"row\":7,\"reason\":\"no_split\""));
    }
}
