//! Landing zone of a source at its latest log position. The log is verified entry by entry, and its
//! files before anything reads them.

use std::{collections::BTreeMap, sync::Arc};

use feedline_schemas::{
    commit::{CommitEntry, DataFile, Position},
    config::{DeclaredType, SourceConfig},
    failures::FAILED_RUNS,
    ids::{Hash128, Name, SchemaVersion, Sequence, TableName},
    manifest::SourceReference,
    record::RecordSchema,
};
use feedline_storage::{Store, log};
use futures::{StreamExt, TryStreamExt, stream};

use crate::{
    Error,
    source::{
        landed_log::{
            changes_rows, check_entry, damaged, fold_log, hash_of, read_log, split_merged,
            taken_back,
        },
        parquet_in_place::{self, Files},
        parquet_scan::ScanFile,
        superseded_files,
    },
};

/// Objects read at the same time.
const READS: usize = 16;

/// Landed data of a source up to a log position.
#[derive(Clone, Debug)]
pub(crate) struct Landed {
    /// Its landing folder.
    pub(crate) store: Store,
    /// Position of the last log entry that changed its rows.
    pub(crate) reference: SourceReference,
    /// End of its log; absent where no log was read.
    pub(crate) log_end: Option<LogEnd>,
    /// Data files by schema version.
    pub(crate) generations: Vec<Generation>,
    /// Key columns; only the latest version of each key is read.
    pub(crate) key: Vec<String>,
    /// Column that decides which version is the latest.
    pub(crate) version: Option<String>,
    /// True if `contract.column` declares that column `text`.
    pub(crate) has_declared_version: bool,
    /// For a child table whose source has a key: the records, whose latest versions alone have rows
    /// that are read.
    pub(crate) records: Option<Box<Self>>,
    /// File of rows that a query made from other sources, in place of the landing zone.
    pub(crate) local: Option<ScanFile>,
    /// Files read in place, without a landing zone.
    pub(crate) in_place: Option<Arc<Files>>,
    /// Records that did not land, since equal ones had.
    pub(crate) left_out: u64,
}

/// Last entry of a log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogEnd {
    pub(crate) sequence: Sequence,
    /// xxh3-128 of its bytes.
    pub(crate) hash: Hash128,
}

/// The data files of one schema version, in log order.
#[derive(Clone, Debug)]
pub(crate) struct Generation {
    pub(crate) schema: RecordSchema,
    pub(crate) files: Vec<DataFile>,
}

/// Data that landed after a position.
#[derive(Clone, Debug)]
pub(crate) struct Behind {
    pub(crate) landed: Landed,
    /// The schemas of what had landed up to it.
    pub(crate) schemas: Vec<RecordSchema>,
}

/// Returns true if `source` declares the column of its `version` as text.
fn declares_text_version(source: &SourceConfig) -> bool {
    let version = source.version.as_ref();
    let column = version.and_then(|version| source.contract.column.get(version));
    column.is_some_and(|column| column.r#type == Some(DeclaredType::Text))
}

impl Landed {
    /// Reads and verifies the commit log of `source`, contiguous from 0, chained by hash, all of this source, and takes its
    /// records, or one of its child tables.
    pub(crate) async fn read(
        root: &Store,
        source: &SourceConfig,
        table: Option<&Name>,
    ) -> Result<Self, Error> {
        let store = root.child(&format!("landing/{}", source.name));
        let add_entry = |found: &mut LogFiles, entry: CommitEntry| found.add(&store, entry, table);
        let (found, last_hash) =
            fold_log(&store, &source.name, LogFiles::default, add_entry).await?;
        let LogFiles {
            last,
            rows_changed,
            empty,
            generations,
            children,
            left_out,
            rejected,
            is_deferred,
            fault,
        } = found;
        if let Some(fault) = fault {
            return Err(fault);
        }
        let end = last.zip(last_hash);
        let mut name = TableName::from(source.name.clone());
        let Some(end) = end.map(|(sequence, hash)| LogEnd { sequence, hash }) else {
            let why = why_no_entry(&store).await?;
            return Err(nothing(&name, &store, why));
        };
        let (sequence, entry_hash) = rows_changed
            .map(|(sequence, hash)| (sequence, hash.unwrap_or(end.hash)))
            .unwrap_or((end.sequence, end.hash));
        let records: u64 = generations
            .values()
            .flat_map(|generation: &Generation| &generation.files)
            .map(|file| file.rows)
            .sum();
        let mut landed = Self {
            reference: SourceReference {
                name: name.clone(),
                sequence,
                entry_hash,
                licence: source.licence.clone(),
            },
            log_end: Some(end),
            generations: generations.into_values().collect(),
            key: source.key.clone(),
            version: source.version.clone(),
            has_declared_version: declares_text_version(source),
            records: None,
            local: None,
            in_place: None,
            left_out,
            store,
        };
        if let Some(table) = table {
            name.table = Some(table.clone());
            landed = landed.child(name, children.into_values().collect());
        }
        if landed.rows() == 0 && !empty.is_empty() {
            return Err(all_empty(&landed.reference.name, &landed.store, &empty));
        }
        if landed.rows() == 0 {
            let why = landed.why_no_rows(records, rejected, is_deferred).await?;
            return Err(nothing(&landed.reference.name, &landed.store, why));
        }
        Ok(landed)
    }

    /// Reads and hashes the Parquet files that match `pattern`, to be read in place.
    pub(crate) async fn in_place(root: &Store, pattern: &str) -> Result<Self, Error> {
        let pattern = pattern.to_owned();
        let opened = tokio::task::spawn_blocking(move || Files::open(&pattern)).await;
        let opened = opened.map_err(Error::from);
        let files = Arc::new(opened??);
        let name = Name::new(parquet_in_place::SOURCE).expect("it is a name");
        Ok(Self {
            store: root.clone(),
            reference: SourceReference {
                name: TableName::from(name),
                sequence: Sequence::new(files.last()),
                entry_hash: files.hash(),
                licence: None,
            },
            log_end: None,
            generations: vec![Generation {
                schema: files.schema.clone(),
                files: files.listed.clone(),
            }],
            key: Vec::new(),
            version: None,
            has_declared_version: false,
            records: None,
            local: None,
            in_place: Some(files),
            left_out: 0,
        })
    }

    /// Returns what has landed after position `before`, and the columns of what had landed by then.
    ///
    /// Returns a reason instead if the log, or the list of files, does not continue from `before`,
    /// or if it withdraws rows up to there. Reads the log again.
    pub(crate) async fn behind(
        &self,
        before: &SourceReference,
    ) -> Result<Result<Behind, String>, Error> {
        let with = |generations, in_place| Self {
            generations,
            in_place,
            ..self.clone()
        };
        if let Some(files) = &self.in_place {
            let behind = files.behind(before.entry_hash);
            return Ok(behind
                .ok_or_else(|| self.goes_elsewhere())
                .map(|files| Behind {
                    schemas: vec![files.schema.clone()],
                    landed: with(
                        vec![Generation {
                            schema: files.schema.clone(),
                            files: files.listed.clone(),
                        }],
                        Some(Arc::new(files)),
                    ),
                }));
        }
        let TableName { source, table } = &self.reference.name;
        let (first, end) = (before.sequence, self.log_end());
        if !self.continues_from(before).await? {
            return Ok(Err(self.goes_elsewhere()));
        }
        let (mut entries, last_hash) = read_log(&self.store, source, Some(end.sequence)).await?;
        // The entries are chained by their hashes, so those of the two ends say that all between them are the same.
        if last_hash != Some(end.hash) {
            return Ok(Err(self.goes_elsewhere()));
        }
        let taken_back = match taken_back(&entries, first) {
            None => split_merged(&self.store, &mut entries, first).await?.err(),
            reason => reason,
        };
        if let Some(reason) = taken_back {
            let name = &self.reference.name;
            return Ok(Err(format!("source `{name}` {reason}")));
        }
        let (mut old, mut new) = (BTreeMap::new(), BTreeMap::new());
        for entry in entries {
            let generations = match entry.sequence <= first {
                true => &mut old,
                false => &mut new,
            };
            let named = Named::of(entry, table.as_ref());
            let (schema, files) = match table {
                None => (named.schema, named.files),
                Some(_) => match named.child {
                    Some(child) => child,
                    None => continue,
                },
            };
            add(generations, schema, files)
                .map_err(|reason| damaged(self.store.url_of(&named.path), reason))?;
        }
        Ok(Ok(Behind {
            landed: with(new.into_values().collect(), None),
            schemas: old
                .into_values()
                .map(|generation| generation.schema)
                .collect(),
        }))
    }

    /// Returns true if its log has the entry at position `before`, so that a landing position up to there is still that of the
    /// same row. Files read in place have no log.
    pub(crate) async fn continues_from(&self, before: &SourceReference) -> Result<bool, Error> {
        let first = before.sequence;
        Ok(self.in_place.is_none()
            && first <= self.log_end().sequence
            && hash_of(&self.store, first).await? == Some(before.entry_hash))
    }

    /// Returns the reason why it has no rows.
    async fn why_no_rows(
        &self,
        records: u64,
        rejected: u64,
        is_deferred: bool,
    ) -> Result<NoRows, Error> {
        let has_failed = is_deferred || self.store.get_opt(FAILED_RUNS).await?.is_some();
        Ok(match (records, rejected) {
            (0, 0) if has_failed => NoRows::Failed,
            (0, 0) => NoRows::NoRecord,
            (0, rejected) => NoRows::AllRejected(rejected),
            (records, _) => NoRows::NoItem(records),
        })
    }

    /// The end of its log, or its position where it has none.
    pub(crate) fn log_end(&self) -> LogEnd {
        self.log_end.unwrap_or(LogEnd {
            sequence: self.reference.sequence,
            hash: self.reference.entry_hash,
        })
    }

    fn goes_elsewhere(&self) -> String {
        format!(
            "what source `{}` has landed does not continue the log that the dataset was built from",
            self.reference.name
        )
    }

    /// The child table with these files.
    fn child(self, name: TableName, generations: Vec<Generation>) -> Self {
        Self {
            store: self.store.clone(),
            reference: SourceReference {
                name,
                ..self.reference.clone()
            },
            log_end: self.log_end,
            generations,
            key: Vec::new(),
            version: None,
            has_declared_version: false,
            local: None,
            in_place: None,
            left_out: self.left_out,
            records: (!self.key.is_empty()).then(|| Box::new(self)),
        }
    }

    /// Key and version of the records, if only the newest are read.
    pub(crate) fn newest(&self) -> (&[String], Option<&str>) {
        let records = self.records.as_deref().unwrap_or(self);
        (&records.key, records.version.as_deref())
    }

    /// Rows in all files.
    pub(crate) fn rows(&self) -> u64 {
        self.files().map(|file| file.rows).sum()
    }

    /// Checks size and hash of every data file, those of the records included where latest versions
    /// are read, reading each once; `seen` gets the rows of each.
    pub(crate) async fn verify_files(&self, mut seen: impl FnMut(u64)) -> Result<(), Error> {
        if self.in_place.is_some() {
            // They were hashed when they were opened, and nothing says what their hashes should be.
            seen(self.rows());
            return Ok(());
        }
        let records = self.records.iter().flat_map(|records| records.files());
        let records = records.map(|file| (file, 0));
        let own = self.files().map(|file| (file, file.rows));
        let mut checked = stream::iter(records.chain(own))
            .map(|(file, rows)| verify_file(&self.store, file, rows))
            .buffer_unordered(READS);
        while let Some(rows) = checked.try_next().await? {
            seen(rows);
        }
        Ok(())
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = &DataFile> {
        self.generations.iter().flat_map(|g| &g.files)
    }
}

/// Data that the entries of a log name.
#[derive(Debug, Default)]
struct LogFiles {
    last: Option<Sequence>,
    /// The last entry that changed rows, and its hash, which the entry after it has.
    rows_changed: Option<(Sequence, Option<Hash128>)>,
    /// Files that were read without a row.
    empty: Vec<String>,
    generations: BTreeMap<SchemaVersion, Generation>,
    /// Those of the child table that is read.
    children: BTreeMap<SchemaVersion, Generation>,
    left_out: u64,
    rejected: u64,
    /// True if the last entry says that the server asked for a wait before it is read on.
    is_deferred: bool,
    /// Fault of the first entry that cannot be used.
    fault: Option<Error>,
}

impl LogFiles {
    /// Adds the next entry of the log in `store`, and its child table `table`.
    fn add(&mut self, store: &Store, entry: CommitEntry, table: Option<&Name>) {
        if self.fault.is_some() {
            return;
        }
        self.fault = check_entry(store, &entry).err();
        if let Some((_, hash @ None)) = &mut self.rows_changed {
            *hash = entry.prev_hash;
        }
        if changes_rows(&entry) {
            self.rows_changed = Some((entry.sequence, None));
        }
        self.last = Some(entry.sequence);
        self.empty = files_without_rows(&entry);
        self.left_out += entry.counts.duplicates;
        self.rejected += entry.counts.rejected;
        self.is_deferred = entry.state.not_before_unix_s.is_some();
        let Named {
            path,
            schema,
            files,
            child,
        } = Named::of(entry, table);
        let child = child.map_or(Ok(()), |(schema, files)| {
            add(&mut self.children, schema, files)
        });
        let added = child.and_then(|()| add(&mut self.generations, schema, files));
        if let Err(reason) = added {
            self.fault = Some(damaged(store.url_of(&path), reason));
        }
    }
}

/// Files of a log entry that are read.
struct Named {
    /// Path of the entry.
    path: String,
    schema: RecordSchema,
    files: Vec<DataFile>,
    /// Schema and files of the child table that is read.
    child: Option<(RecordSchema, Vec<DataFile>)>,
}

impl Named {
    fn of(mut entry: CommitEntry, table: Option<&Name>) -> Self {
        let child = table.and_then(|table| entry.children.remove(table));
        Self {
            path: log::entry_path(entry.sequence.get()),
            schema: entry.schema,
            files: entry.files,
            child: child.map(|child| (child.schema, child.files)),
        }
    }
}

/// Returns true if `source` has a commit log.
pub(crate) async fn has_landed(root: &Store, source: &Name) -> Result<bool, Error> {
    let store = root.child(&format!("landing/{source}"));
    Ok(log::newest_sequence(&store).await?.is_some())
}

fn add(
    generations: &mut BTreeMap<SchemaVersion, Generation>,
    schema: RecordSchema,
    files: Vec<DataFile>,
) -> Result<(), String> {
    if files.is_empty() {
        return Ok(());
    }
    let version = schema.version;
    let generation = generations.entry(version).or_insert_with(|| Generation {
        schema: schema.clone(),
        files: Vec::new(),
    });
    if generation.schema != schema {
        return Err(format!(
            "its columns differ from those of an earlier entry with the same schema version {version}"
        ));
    }
    generation.files.extend(files);
    Ok(())
}

/// Checks a file, and hands on `rows`. One that a writer has superseded since the log was read is found in another folder.
async fn verify_file(store: &Store, file: &DataFile, rows: u64) -> Result<u64, Error> {
    let bytes = superseded_files::get(store, &file.path).await?;
    if bytes.len() as u64 != file.bytes {
        let reason = format!(
            "it has {} bytes, the commit log says {}",
            bytes.len(),
            file.bytes
        );
        return Err(damaged(store.url_of(&file.path), reason));
    }
    let hash = Hash128::of(&bytes);
    if hash != file.hash {
        let reason = format!(
            "its content has hash {hash}, the commit log says {}",
            file.hash
        );
        return Err(damaged(store.url_of(&file.path), reason));
    }
    Ok(rows)
}

/// Returns the files read up to this entry, if no row has landed or was rejected by then.
fn files_without_rows(entry: &CommitEntry) -> Vec<String> {
    let totals = &entry.state.totals;
    match &entry.state.position {
        Position::Done { files, .. } if totals.rows + totals.rejected == 0 => {
            files.iter().map(|file| file.url.clone()).collect()
        }
        _ => Vec::new(),
    }
}

fn all_empty(name: &TableName, store: &Store, files: &[String]) -> Error {
    let (first, others) = (&files[0], files.len() - 1);
    let others = match others {
        0 => String::new(),
        1 => " and 1 other".to_owned(),
        others => format!(" and {others} others"),
    };
    Error::input(
        format!("source `{name}`"),
        format!(
            "no rows have landed in `{}`: `{first}`{others} was read and has none",
            store.url()
        ),
        "put rows into the file, or name another one in the source's `url`, and run `feedline ingest` again",
    )
}

/// Reason for a source without rows.
#[derive(Clone, Copy, Debug)]
enum NoRows {
    NeverRan,
    /// Its folder has content, but no committed batch.
    NoBatch,
    /// Its last run failed or was deferred, before it landed any.
    Failed,
    /// The read data had no record.
    NoRecord,
    AllRejected(u64),
    /// This many records landed, all with an empty list for the child table.
    NoItem(u64),
}

/// Returns the reason why the log in `store` has no entry.
async fn why_no_entry(store: &Store) -> Result<NoRows, Error> {
    if store.get_opt(FAILED_RUNS).await?.is_some() {
        return Ok(NoRows::Failed);
    }
    Ok(match store.list("").await?.is_empty() {
        true => NoRows::NeverRan,
        false => NoRows::NoBatch,
    })
}

fn nothing(name: &TableName, store: &Store, why: NoRows) -> Error {
    let url = store.url();
    let (reason, advice) = match why {
        NoRows::NeverRan => (
            format!("no rows have landed in `{url}`"),
            "run `feedline ingest` first, or look at what it reported if it has run",
        ),
        NoRows::NoBatch => (
            format!(
                "no rows have landed in `{url}`, where `feedline ingest` has run and committed nothing"
            ),
            "look at what its last run said",
        ),
        NoRows::Failed => (
            format!(
                "no rows have landed in `{url}`: the last run of `feedline ingest` failed or was deferred before it landed any"
            ),
            "look at what `feedline ingest status` reports, and run `feedline ingest` again",
        ),
        NoRows::NoRecord => (
            format!(
                "no rows have landed in `{url}`: `feedline ingest` has read the source and found no record in it"
            ),
            "check its location: the file is empty or has a header line alone, or the pages have no records",
        ),
        NoRows::AllRejected(records) => (
            format!(
                "no rows have landed in `{url}`: `feedline ingest` rejected {} that it read",
                all_records(records)
            ),
            "look at its rejects (`feedline ingest status` counts them by reason) and correct the source or its contract",
        ),
        NoRows::NoItem(records) => (
            format!(
                "no rows have landed in `{url}`: the list is empty in {} that landed",
                all_records(records)
            ),
            "check the path of the list in `contract.children`",
        ),
    };
    Error::input(format!("source `{name}`"), reason, advice)
}

/// All of so many records, for a sentence.
fn all_records(records: u64) -> String {
    match records {
        1 => "the one record".to_owned(),
        _ => format!("all {records} records"),
    }
}

/// About how many bytes sources take in memory; landed files are packed.
pub(crate) fn unpacked(sources: &[Landed]) -> u64 {
    const PACKED: u64 = 3;
    let files = sources.iter().flat_map(Landed::files);
    let bytes: u64 = files.map(|file| file.bytes).sum();
    bytes.saturating_mul(PACKED)
}
