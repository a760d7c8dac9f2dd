//! Checkpoints of a Delta table: all of its files as Parquet, so that readers of a long log read the
//! versions after the newest one alone.
//!
//! A checkpoint is written after every 100 versions, of a table of more than 100,000 files after one
//! version for each 1,000 of them: it costs about 25 bytes a file. It is never needed: one that
//! cannot be written is a warning in the log of the program, and the next one is tried later.
//!
//! Then versions before an older checkpoint are deleted, at least [`KEPT`] versions back. Otherwise each
//! start on an object store would list all of them: their folder sorts after the names of data files.

use std::sync::Arc;

use arrow::{
    array::{Array, AsArray, RecordBatch, StructArray},
    datatypes::{DataType, Field, Fields, Int64Type, Schema, SchemaRef},
    error::ArrowError,
    json::ReaderBuilder,
};
use bytes::Bytes;
use feedline_storage::Store;
use parquet::{
    arrow::ArrowWriter,
    basic::{Compression, ZstdLevel},
    errors::ParquetError,
    file::properties::WriterProperties,
};
use serde_json::{Value, json};

use super::log::{
    AddedFile, LAST_CHECKPOINT, LOG, LastCheckpoint, Metadata, TableHead, TableState, add_action,
    protocol, replay, rows_of, unusable,
};
use crate::{blocking::computing, error::Error, landed_file};

/// Versions after which a checkpoint is written.
pub(super) const EVERY: u64 = 100;
/// Least number of newest versions that are kept.
const KEPT: u64 = 1_000;
/// Actions of a checkpoint for each further version between two of them.
const ACTIONS: u64 = 1_000;

/// End of the name of a checkpoint.
const ENDING: &str = ".checkpoint.parquet";

/// Returns true if a checkpoint is due at the version of `head`.
pub(super) fn is_due(head: &TableHead, every: u64) -> bool {
    let (last, size) = head
        .checkpoint
        .map_or((0, 0), |last| (last.version, last.size));
    head.version - last.min(head.version) >= every.max(size / ACTIONS)
}

fn path(version: u64) -> String {
    format!("{LOG}/{version:020}{ENDING}")
}

/// Writes a checkpoint of the table in the folder `root`, and then the pointer to it.
///
/// # Errors
/// [`Error::Delta`], [`Error::Encode`], [`Error::Storage`].
pub(super) async fn write(
    root: &Store,
    head: &TableHead,
    (app_id, name): (&str, &str),
    now_ms: u64,
) -> Result<LastCheckpoint, Error> {
    let state = replay(root, head).await?;
    let metadata = Metadata {
        id: state.id.unwrap_or_default(),
        name: name.to_owned(),
        schema: state.schema,
    };
    let txn = json!({
        "appId": app_id,
        "version": head.mark.sequence,
        "lastUpdated": now_ms,
    });
    let mut actions = vec![
        json!({ "protocol": protocol() }),
        json!({ "metaData": metadata.action(now_ms) }),
        json!({ "txn": txn }),
    ];
    let files = state.files.iter();
    actions.extend(files.map(|(path, file)| json!({ "add": add_action(path, file, false) })));
    let last = LastCheckpoint {
        version: head.version,
        size: actions.len() as u64,
    };
    let bytes = computing(move || {
        encode(&actions).map_err(|cause| Error::Encode {
            what: "a checkpoint of a Delta table".to_owned(),
            cause,
        })
    })
    .await?;
    root.put(&path(last.version), bytes).await?;
    let pointer = json!({ "version": last.version, "size": last.size });
    root.put(LAST_CHECKPOINT, pointer.to_string().into())
        .await?;
    Ok(last)
}

fn encode(actions: &[Value]) -> Result<Bytes, ParquetError> {
    let rows = rows(actions)?;
    let properties = WriterProperties::builder()
        .set_created_by("feedline".to_owned())
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
        .build();
    let mut writer = ArrowWriter::try_new(Vec::new(), rows.schema(), Some(properties))?;
    writer.write(&rows)?;
    Ok(writer.into_inner()?.into())
}

fn rows(actions: &[Value]) -> Result<RecordBatch, ArrowError> {
    let reader = ReaderBuilder::new(schema()).with_batch_size(actions.len());
    let mut decoder = reader.build_decoder()?;
    decoder.serialize(actions)?;
    let rows = decoder.flush()?;
    rows.ok_or_else(|| ArrowError::JsonError("a checkpoint has no actions".to_owned()))
}

/// Deletes the versions before the newest checkpoint that has at least [`KEPT`] versions after it, up to
/// `newest`. Oldest first: a killed program leaves no gap.
///
/// # Errors
/// [`Error::Storage`].
pub(super) async fn prune(root: &Store, newest: u64) -> Result<(), Error> {
    let Some(end) = newest.checked_sub(KEPT) else {
        return Ok(());
    };
    let listed = root.list(LOG).await?;
    let checkpoints = listed.iter().filter(|file| file.path.ends_with(ENDING));
    let checkpoints = checkpoints.filter_map(|file| version_of(&file.path));
    let Some(first) = checkpoints.filter(|version| *version <= end).max() else {
        return Ok(());
    };
    for file in &listed {
        if version_of(&file.path).is_some_and(|version| version < first) {
            root.delete(&file.path).await?;
        }
    }
    Ok(())
}

/// Version of a file in the log.
fn version_of(path: &str) -> Option<u64> {
    let name = path.strip_prefix(LOG)?.strip_prefix('/')?;
    name.split('.').next()?.parse().ok()
}

/// Columns of a checkpoint: one for each kind of action. Of a removed file the bytes are gone, so no
/// reader needs to know of it.
fn schema() -> SchemaRef {
    let text = |name: &str| Field::new(name, DataType::Utf8, true);
    let long = |name: &str| Field::new(name, DataType::Int64, true);
    let int = |name: &str| Field::new(name, DataType::Int32, true);
    let structure = |name: &str, fields: Vec<Field>| {
        Field::new(name, DataType::Struct(Fields::from(fields)), true)
    };
    Arc::new(Schema::new(vec![
        structure(
            "txn",
            vec![text("appId"), long("version"), long("lastUpdated")],
        ),
        structure(
            "add",
            vec![
                text("path"),
                map("partitionValues"),
                long("size"),
                long("modificationTime"),
                Field::new("dataChange", DataType::Boolean, true),
                text("stats"),
            ],
        ),
        structure(
            "metaData",
            vec![
                text("id"),
                text("name"),
                structure("format", vec![text("provider"), map("options")]),
                text("schemaString"),
                Field::new_list(
                    "partitionColumns",
                    Field::new_list_field(DataType::Utf8, true),
                    true,
                ),
                map("configuration"),
                long("createdTime"),
            ],
        ),
        structure(
            "protocol",
            vec![int("minReaderVersion"), int("minWriterVersion")],
        ),
    ]))
}

fn map(name: &str) -> Field {
    let entries = Fields::from(vec![
        Field::new("key", DataType::Utf8, false),
        Field::new("value", DataType::Utf8, true),
    ]);
    let entries = Field::new("key_value", DataType::Struct(entries), false);
    Field::new(name, DataType::Map(Arc::new(entries), false), true)
}

/// Reads the checkpoint of a version into an empty `state`.
///
/// # Errors
/// [`Error::Delta`] if it is missing or damaged, [`Error::Storage`].
pub(super) async fn read(root: &Store, version: u64, state: &mut TableState) -> Result<(), Error> {
    let damaged = |reason: &str| {
        unusable(
            root,
            format!("its checkpoint of version {version} {reason}"),
        )
    };
    let bytes = root.get_opt(&path(version)).await?;
    let bytes = bytes.ok_or_else(|| damaged("is missing"))?;
    let decoded = landed_file::decode(bytes, None, None);
    let batches = decoded.map_err(|e| damaged(&format!("is damaged: {e}")))?;
    for batch in &batches {
        take(batch, state).ok_or_else(|| damaged("has other columns than feedline writes"))?;
    }
    Ok(())
}

/// Adds the files and the metadata of a checkpoint's rows to `state`.
fn take(batch: &RecordBatch, state: &mut TableState) -> Option<()> {
    let adds = batch.column_by_name("add")?.as_struct_opt()?;
    let metadata = batch.column_by_name("metaData")?.as_struct_opt()?;
    let number = |column: &StructArray, name: &str, row: usize| {
        let column = column.column_by_name(name)?;
        let value = column.as_primitive_opt::<Int64Type>()?.value(row);
        u64::try_from(value).ok()
    };
    for row in 0..batch.num_rows() {
        if adds.is_valid(row) {
            let file = AddedFile {
                bytes: number(adds, "size", row)?,
                rows: rows_of(&text(adds, "stats", row)?),
                modified_ms: number(adds, "modificationTime", row)?,
            };
            state.files.insert(text(adds, "path", row)?, file);
        }
        if metadata.is_valid(row) {
            state.id = Some(text(metadata, "id", row)?);
            state.schema = text(metadata, "schemaString", row)?;
        }
    }
    Some(())
}

fn text(column: &StructArray, name: &str, row: usize) -> Option<String> {
    let column = column.column_by_name(name)?;
    Some(column.as_string_opt::<i32>()?.value(row).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_reads_back_as_the_state_that_it_was_written_of() {
        let file = AddedFile {
            bytes: 10,
            rows: 3,
            modified_ms: 1_000,
        };
        let metadata = Metadata {
            id: "id".into(),
            name: "s".into(),
            schema: "{}".into(),
        };
        let actions = [
            json!({ "protocol": protocol() }),
            json!({ "metaData": metadata.action(0) }),
            json!({ "txn": { "appId": "feedline:s", "version": 7, "lastUpdated": 1 } }),
            json!({ "add": add_action("a.parquet", &file, false) }),
        ];
        let bytes = encode(&actions).unwrap();
        let mut state = TableState::default();
        for batch in landed_file::decode(bytes, None, None).unwrap() {
            take(&batch, &mut state).unwrap();
        }
        assert_eq!(
            (state.id.as_deref(), state.schema.as_str()),
            (Some("id"), "{}")
        );
        assert_eq!(state.files.get("a.parquet"), Some(&file));
        assert_eq!(state.files.len(), 1);
    }

    #[tokio::test]
    async fn versions_before_an_old_checkpoint_are_deleted() {
        let root = Store::memory();
        for version in [0, 99, 100, 101, 200, 1_150] {
            let path = super::super::log::version_path(version);
            root.put(&path, "{}".into()).await.unwrap();
        }
        for version in [100, 200] {
            root.put(&path(version), "PAR1".into()).await.unwrap();
        }
        prune(&root, 999).await.unwrap();
        assert_eq!(root.list(LOG).await.unwrap().len(), 8);
        prune(&root, 1_150).await.unwrap();
        let left = root.list(LOG).await.unwrap();
        let left: Vec<u64> = left
            .iter()
            .filter_map(|file| version_of(&file.path))
            .collect();
        assert_eq!(left, [100, 100, 101, 200, 200, 1_150]);
    }

    #[test]
    fn checkpoints_of_large_tables_are_further_apart() {
        let due = |version, checkpoint: Option<(u64, u64)>| {
            let checkpoint = checkpoint.map(|(version, size)| LastCheckpoint { version, size });
            let mark = super::super::log::LogMark {
                sequence: feedline_schemas::ids::Sequence::new(version),
                entry_hash: feedline_schemas::ids::Hash128::of(b""),
                columns: String::new(),
            };
            let head = TableHead {
                version,
                mark,
                checkpoint,
            };
            is_due(&head, EVERY)
        };
        assert!(!due(99, None) && due(100, None));
        assert!(!due(150, Some((100, 50))) && due(200, Some((100, 50))));
        assert!(!due(900, Some((100, 1_000_000))) && due(1_100, Some((100, 1_000_000))));
    }
}
