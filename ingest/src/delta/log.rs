//! The log of a Delta table: `_delta_log/<version, 20 digits>.json`, an action a line.
//!
//! A version is created only if it is absent, like an entry of the commit log. Each carries the
//! transaction identifier of the source (`txn`, with the sequence of our entry), and in its
//! `commitInfo` the hash of that entry. So a reader of the newest version alone knows how far the
//! table follows our log, and whether feedline wrote it.

use std::collections::BTreeMap;

use bytes::Bytes;
use feedline_schemas::ids::{Hash128, Sequence};
use feedline_storage::{NameRange, PutNew, Store};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde::Deserialize;
use serde_json::{Value, json};

use super::checkpoint;
use crate::error::Error;

/// Folder of the log, below that of the table.
pub(super) const LOG: &str = "_delta_log";
/// Pointer to the newest checkpoint.
pub(super) const LAST_CHECKPOINT: &str = "_delta_log/_last_checkpoint";
/// Versions that are read at the same time.
const READS: usize = 16;
/// Least age of unnamed files that `VACUUM` deletes, unless another is given. Landed rows
/// may have no other copy than these files: files with a narrower type, and files that landed after the
/// newest version.
const RETENTION: &str = "interval 5200 weeks";

/// Position of the commit log that a version follows.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LogMark {
    /// Our entry.
    pub(super) sequence: Sequence,
    /// Hash of its bytes.
    pub(super) entry_hash: Hash128,
    /// Hash of the table's columns.
    pub(super) columns: String,
}

/// A checkpoint, as `_last_checkpoint` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct LastCheckpoint {
    pub(super) version: u64,
    /// Number of its actions.
    #[serde(default)]
    pub(super) size: u64,
}

/// Newest version of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TableHead {
    pub(super) version: u64,
    pub(super) mark: LogMark,
    pub(super) checkpoint: Option<LastCheckpoint>,
}

/// A file that a table has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AddedFile {
    pub(super) bytes: u64,
    pub(super) rows: u64,
    /// Unix time in milliseconds.
    pub(super) modified_ms: u64,
}

/// Contents of a table at a version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TableState {
    /// Id of the table; none before its first version.
    pub(super) id: Option<String>,
    pub(super) schema: String,
    pub(super) files: BTreeMap<String, AddedFile>,
}

/// Actions of a new version.
#[derive(Clone, Debug)]
pub(super) struct NewVersion<'a> {
    pub(super) mark: &'a LogMark,
    /// Transaction identifier of the source's table.
    pub(super) app_id: &'a str,
    pub(super) run_id: &'a str,
    pub(super) now_ms: u64,
    /// Metadata, if the version begins a table or changes its columns.
    pub(super) metadata: Option<Metadata>,
    /// True if the version creates the table.
    pub(super) creates: bool,
    /// True if rows appear or vanish, and false if they only move to other files.
    pub(super) changes_data: bool,
    pub(super) removed: Vec<String>,
    pub(super) added: Vec<(String, AddedFile)>,
}

/// Metadata of a table.
#[derive(Clone, Debug)]
pub(super) struct Metadata {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) schema: String,
}

impl Metadata {
    pub(super) fn action(&self, now_ms: u64) -> Value {
        json!({
            "id": self.id,
            "name": self.name,
            "format": { "provider": "parquet", "options": {} },
            "schemaString": self.schema,
            "partitionColumns": [],
            "configuration": { "delta.deletedFileRetentionDuration": RETENTION },
            "createdTime": now_ms,
        })
    }
}

/// Reader and writer versions: every Delta reader knows these.
pub(super) fn protocol() -> Value {
    json!({ "minReaderVersion": 1, "minWriterVersion": 2 })
}

/// The action `add` of a file.
pub(super) fn add_action(path: &str, file: &AddedFile, changes_data: bool) -> Value {
    json!({
        "path": path,
        "partitionValues": {},
        "size": file.bytes,
        "modificationTime": file.modified_ms,
        "dataChange": changes_data,
        "stats": json!({ "numRecords": file.rows }).to_string(),
    })
}

impl NewVersion<'_> {
    fn encode(&self) -> Bytes {
        let Self { mark, now_ms, .. } = self;
        let operation = match self.creates {
            true => "CREATE TABLE",
            false => "WRITE",
        };
        let mut actions = vec![json!({ "commitInfo": {
            "timestamp": now_ms,
            "operation": operation,
            "operationParameters": {},
            "engineInfo": concat!("feedline/", env!("CARGO_PKG_VERSION")),
            "feedline": {
                "sequence": mark.sequence,
                "entryHash": mark.entry_hash,
                "columns": mark.columns,
                "runId": self.run_id,
            },
        } })];
        if self.creates {
            actions.push(json!({ "protocol": protocol() }));
        }
        if let Some(metadata) = &self.metadata {
            actions.push(json!({ "metaData": metadata.action(*now_ms) }));
        }
        actions.push(json!({ "txn": {
            "appId": self.app_id,
            "version": mark.sequence,
            "lastUpdated": now_ms,
        } }));
        for path in &self.removed {
            actions.push(json!({ "remove": {
                "path": path,
                "deletionTimestamp": now_ms,
                "dataChange": self.changes_data,
            } }));
        }
        let added = self.added.iter();
        actions.extend(
            added.map(|(path, file)| json!({ "add": add_action(path, file, self.changes_data) })),
        );
        let lines: String = actions.iter().map(|action| format!("{action}\n")).collect();
        lines.into()
    }
}

/// Outcome of [`create`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CreateOutcome {
    /// The version follows our entry: written by this call, or by another program of feedline.
    Follows,
    /// Another program of feedline has changed the log meanwhile: look at it again.
    Changed,
}

/// Creates a version of the table in the folder `root`.
///
/// # Errors
/// [`Error::Delta`] if a foreign program has written the version, [`Error::Storage`].
pub(super) async fn create(
    root: &Store,
    version: u64,
    new: &NewVersion<'_>,
) -> Result<CreateOutcome, Error> {
    let path = version_path(version);
    if let PutNew::Taken(body) = root.put_new(&path, new.encode()).await? {
        let found = mark_of(root, version, &body)?;
        let is_same = found == *new.mark;
        return Ok(match is_same {
            true => CreateOutcome::Follows,
            false => CreateOutcome::Changed,
        });
    }
    // A rebuild may have removed the version before meanwhile. Then this one would follow a gap.
    if let Some(before) = version.checked_sub(1)
        && root.get_opt(&version_path(before)).await?.is_none()
    {
        root.delete(&path).await?;
        return Ok(CreateOutcome::Changed);
    }
    Ok(CreateOutcome::Follows)
}

/// Path of a version.
pub(super) fn version_path(version: u64) -> String {
    format!("{LOG}/{version:020}.json")
}

/// Number of the version at `path`.
fn parse_version_path(path: &str) -> Option<u64> {
    let stem = path.strip_prefix(LOG)?.strip_prefix('/')?;
    let number = stem.strip_suffix(".json")?;
    let is_version = number.len() == 20 && number.bytes().all(|byte| byte.is_ascii_digit());
    is_version.then(|| number.parse().ok()).flatten()
}

/// Finds the newest version of the table in the folder `root`; `None` if there is no table.
///
/// # Errors
/// [`Error::Delta`] if feedline did not write it, or if it is damaged, [`Error::Storage`].
pub(super) async fn head(root: &Store) -> Result<Option<TableHead>, Error> {
    let checkpoint = match root.get_opt(LAST_CHECKPOINT).await? {
        None => None,
        Some(body) => {
            let damaged = |e: serde_json::Error| {
                unusable(root, format!("`{LAST_CHECKPOINT}` is damaged: {e}"))
            };
            Some(serde_json::from_slice::<LastCheckpoint>(&body).map_err(damaged)?)
        }
    };
    let since = checkpoint.map_or_else(
        || "0".to_owned(),
        |checkpoint| format!("{:020}", checkpoint.version),
    );
    let listed = root.list_ranges(LOG, &[NameRange::after(since)]).await?;
    let versions = listed
        .iter()
        .filter_map(|file| parse_version_path(&file.path));
    let Some(version) = versions.max() else {
        return match checkpoint {
            None => Ok(None),
            Some(_) => Err(unusable(root, "its newest versions are missing".to_owned())),
        };
    };
    let body = root.get(&version_path(version)).await?;
    Ok(Some(TableHead {
        version,
        mark: mark_of(root, version, &body)?,
        checkpoint,
    }))
}

/// Position of the commit log in the bytes of a version.
fn mark_of(root: &Store, version: u64, body: &[u8]) -> Result<LogMark, Error> {
    let mut writer = "another program".to_owned();
    for action in actions(root, version, body)? {
        let Some(info) = action.get("commitInfo") else {
            continue;
        };
        let mark = info.get("feedline").cloned().unwrap_or_default();
        if let Ok(mark) = serde_json::from_value(mark) {
            return Ok(mark);
        }
        let engine = info.get("engineInfo").and_then(Value::as_str);
        let operation = info.get("operation").and_then(Value::as_str);
        if let Some(engine) = engine.or(operation) {
            writer = format!("`{engine}`");
        }
    }
    Err(unusable(
        root,
        format!("its version {version} was written by {writer}, and only feedline may change it"),
    ))
}

fn actions(root: &Store, version: u64, body: &[u8]) -> Result<Vec<Value>, Error> {
    let lines = body.split(|byte| *byte == b'\n');
    let lines = lines.filter(|line| !line.is_empty());
    let actions = lines.map(serde_json::from_slice);
    let actions: Result<Vec<Value>, _> = actions.collect();
    actions.map_err(|e| unusable(root, format!("its version {version} is damaged: {e}")))
}

/// Reads the contents of the table in the folder `root` at its newest version.
///
/// # Errors
/// [`Error::Delta`] if a version is missing or damaged, [`Error::Storage`].
pub(super) async fn replay(root: &Store, head: &TableHead) -> Result<TableState, Error> {
    let mut state = TableState::default();
    let mut next = 0;
    if let Some(last) = head.checkpoint {
        checkpoint::read(root, last.version, &mut state).await?;
        next = last.version + 1;
    }
    let reads: Vec<_> = (next..=head.version)
        .map(|version| async move {
            let body = root.get_opt(&version_path(version)).await?;
            let missing = || unusable(root, format!("its version {version} is missing"));
            Ok::<_, Error>((version, body.ok_or_else(missing)?))
        })
        .collect();
    let mut bodies = stream::iter(reads).buffered(READS);
    while let Some((version, body)) = bodies.try_next().await? {
        for action in actions(root, version, &body)? {
            state.apply(&action);
        }
    }
    Ok(state)
}

impl TableState {
    fn apply(&mut self, action: &Value) {
        let text = |value: &Value, key: &str| {
            let text = value.get(key).and_then(Value::as_str);
            text.unwrap_or_default().to_owned()
        };
        if let Some(metadata) = action.get("metaData") {
            self.id = Some(text(metadata, "id"));
            self.schema = text(metadata, "schemaString");
        } else if let Some(add) = action.get("add") {
            let number = |key: &str| add.get(key).and_then(Value::as_u64).unwrap_or_default();
            let file = AddedFile {
                bytes: number("size"),
                rows: rows_of(&text(add, "stats")),
                modified_ms: number("modificationTime"),
            };
            self.files.insert(text(add, "path"), file);
        } else if let Some(remove) = action.get("remove") {
            self.files.remove(&text(remove, "path"));
        }
    }
}

/// Rows of a file by its statistics.
pub(super) fn rows_of(stats: &str) -> u64 {
    let stats: Value = serde_json::from_str(stats).unwrap_or_default();
    stats
        .get("numRecords")
        .and_then(Value::as_u64)
        .unwrap_or_default()
}

/// Removes the log of the table in the folder `root`, oldest version first: meanwhile a reader fails. It
/// never sees fewer rows.
///
/// # Errors
/// [`Error::Delta`] if another program keeps writing to it, [`Error::Storage`].
pub(super) async fn remove(root: &Store) -> Result<(), Error> {
    const TRIES: u32 = 4;
    for _ in 0..TRIES {
        root.delete(LAST_CHECKPOINT).await?;
        let listed = root.list(LOG).await?;
        if listed.is_empty() {
            return Ok(());
        }
        for file in &listed {
            root.delete(&file.path).await?;
        }
    }
    Err(busy(root))
}

/// Error about the table in the folder `root`, which must be written again.
pub(super) fn unusable(root: &Store, reason: String) -> Error {
    Error::Delta {
        url: root.url(),
        reason: format!(
            "{reason}; `feedline ingest delta PIPELINE.toml --rebuild` writes it again from the commit log"
        ),
    }
}

/// Error about the table in the folder `root`, which other programs of feedline write.
pub(super) fn busy(root: &Store) -> Error {
    Error::Delta {
        url: root.url(),
        reason: "other programs write to it at this moment; run `feedline ingest delta PIPELINE.toml` after them"
            .to_owned(),
    }
}
