//! Landing zones made by hand, and what a build left in a dataset, for tests.

use std::{
    collections::BTreeMap,
    fs::File,
    io::Read,
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow::{
    array::{
        ArrayRef, AsArray, BinaryArray, BooleanArray, Decimal128Array, FixedSizeBinaryArray,
        Float64Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray, UInt32Array,
        UInt64Array,
    },
    datatypes::{DataType, Field, Schema, UInt64Type},
    ipc::reader::FileReader,
};
use bytes::Bytes;
use datafusion::parquet::arrow::{
    ArrowWriter, PARQUET_FIELD_ID_META_KEY, arrow_reader::ParquetRecordBatchReaderBuilder,
};
use feedline_image::Encoding;
use feedline_schemas::{
    amendment::{Withdrawn, WithdrawnReason},
    commit::{
        BatchCounts, ChildTable, CommitEntry, Compacted, DataFile, ItemKind, Presence, SourceState,
    },
    config::{PipelineConfig, load},
    decode, encode,
    format::{COMMIT, COMMIT_MIN_READER},
    ids::{Hash128, Name, Origin, SchemaVersion, Sequence, WriterEpoch},
    manifest::Split,
    progress::Silent,
    record::{Column, ColumnType, RecordSchema, system},
    report::DatasetReport,
};
use feedline_storage::{Store, StoreOptions, clock::SystemClock};
use flate2::read::GzDecoder;
use serde_json::Value;
use tempfile::TempDir;

use crate::{Context, Engine, Error, build, read_manifest, source::superseded_files};

/// Key that a configuration error is about.
pub(crate) fn config_key(error: &Error) -> Option<&str> {
    match error {
        Error::Config { key, .. } => Some(key),
        _ => None,
    }
}

/// One landed row: a JSON value per column.
pub(crate) type Cells = Vec<Value>;

/// Writes batches as ingest would.
#[derive(Debug)]
pub(crate) struct LandingZone {
    store: Store,
    source: Name,
    schema: RecordSchema,
    sequence: Sequence,
    prev_hash: Option<Hash128>,
}

impl LandingZone {
    pub(crate) fn new(root: &Store, source: &str, columns: &[(&str, ColumnType)]) -> Self {
        let mut zone = Self {
            store: root.child(&format!("landing/{source}")),
            source: Name::new(source).unwrap(),
            schema: RecordSchema {
                version: SchemaVersion::new(0),
                columns: Vec::new(),
            },
            sequence: Sequence::new(0),
            prev_hash: None,
        };
        zone.evolve(columns);
        zone
    }

    /// Continues with other columns, as the next schema version.
    pub(crate) fn evolve(&mut self, columns: &[(&str, ColumnType)]) {
        let column = |(i, (name, r#type)): (usize, &(&str, ColumnType))| Column {
            field_id: u32::try_from(i).unwrap() + 1,
            name: (*name).to_owned(),
            r#type: *r#type,
            whole: false,
        };
        self.schema = RecordSchema {
            version: self.schema.version.next(),
            columns: columns.iter().enumerate().map(column).collect(),
        };
    }

    /// Continues with other columns, as the first schema version.
    pub(crate) fn with_first_schema(mut self, columns: &[(&str, ColumnType)]) -> Self {
        self.schema.version = SchemaVersion::new(0);
        self.evolve(columns);
        self
    }

    /// Lands and commits one batch.
    pub(crate) async fn batch(&mut self, rows: &[Cells]) {
        self.batch_with(rows, BTreeMap::new()).await;
    }

    /// Lands and commits a batch of records, and with them `items` in the child table `table`: the row of the record that
    /// each is in, and its cells.
    pub(crate) async fn family(
        &mut self,
        rows: &[Cells],
        table: (&str, &Self),
        items: &[(u32, Cells)],
    ) {
        let (name, child) = table;
        let (parents, cells): (Vec<u32>, Vec<Cells>) = items.iter().cloned().unzip();
        let parquet = self.parquet(&child.schema, &cells, Some(&parents));
        let file = self
            .file(&format!("children/{name}"), items.len(), parquet)
            .await;
        let table = ChildTable {
            lists: vec![name.to_owned()],
            items: Some(ItemKind::Objects),
            schema: child.schema.clone(),
            files: vec![file],
            presence: Presence::default(),
        };
        let children = BTreeMap::from([(Name::new(name).unwrap(), table)]);
        self.batch_with(rows, children).await;
    }

    async fn file(&self, folder: &str, rows: usize, bytes: Bytes) -> DataFile {
        let hash = Hash128::of(&bytes);
        let file = DataFile {
            path: format!(
                "{folder}/{:020}-{}.parquet",
                self.sequence.get(),
                hash.short()
            ),
            rows: rows as u64,
            bytes: bytes.len() as u64,
            hash,
        };
        self.store.put(&file.path, bytes).await.unwrap();
        file
    }

    async fn batch_with(&mut self, rows: &[Cells], children: BTreeMap<Name, ChildTable>) {
        let mut files = Vec::new();
        if !rows.is_empty() {
            let parquet = self.parquet(&self.schema, rows, None);
            files.push(self.file("data", rows.len(), parquet).await);
        }
        let entry = CommitEntry {
            format: COMMIT.format.to_owned(),
            version: COMMIT.version,
            min_reader: Some(COMMIT_MIN_READER),
            source: self.source.clone(),
            sequence: self.sequence,
            prev_hash: self.prev_hash,
            epoch: WriterEpoch::new(1),
            run_id: "run".into(),
            batch_id: format!("batch-{}", self.sequence),
            config_hash: Hash128::new(0),
            schema: self.schema.clone(),
            files,
            rejects: Vec::new(),
            frontier: Vec::new(),
            validators: Vec::new(),
            raw: Vec::new(),
            children,
            parts: Vec::new(),
            replaced: Vec::new(),
            compacted: Vec::new(),
            marks: Vec::new(),
            counts: BatchCounts {
                rows: rows.len() as u64,
                ..BatchCounts::default()
            },
            settings: None,
            withdrawn: Vec::new(),
            reset_to: None,
            rewound_to: None,
            expired: Vec::new(),
            merged_into: None,
            state: SourceState::default(),
        };
        self.append(&entry).await;
    }

    /// Commits an amendment: withdraws the batches with these sequence numbers, or resets all
    /// before.
    pub(crate) async fn amend(&mut self, withdrawn: &[u64], reset_to: Option<&str>) {
        let mut entries = Vec::new();
        for sequence in 0..self.sequence.get() {
            let path = format!("log/{sequence:020}.json");
            let bytes = self.store.get(&path).await.unwrap();
            entries.push(decode::<CommitEntry>(&path, &bytes).unwrap());
        }
        let paths = |files: &[DataFile]| files.iter().map(|file| file.path.clone()).collect();
        let withdraw = |sequence: &u64| {
            let entry = &entries[usize::try_from(*sequence).unwrap()];
            Withdrawn {
                sequence: entry.sequence,
                reason: WithdrawnReason::Deleted,
                files: paths(&entry.files),
            }
        };
        let amendment = CommitEntry {
            sequence: self.sequence,
            prev_hash: self.prev_hash,
            batch_id: format!("batch-{}", self.sequence),
            files: Vec::new(),
            children: BTreeMap::new(),
            counts: BatchCounts::default(),
            withdrawn: withdrawn.iter().map(withdraw).collect(),
            reset_to: reset_to.map(ToOwned::to_owned),
            ..entries.last().unwrap().clone()
        };
        for withdrawn in &amendment.withdrawn {
            for path in &withdrawn.files {
                self.store.delete(path).await.unwrap();
            }
        }
        self.append(&amendment).await;
    }

    /// Merges the data files of the batches from `first` to `last`, as a compaction does.
    pub(crate) async fn merge(&mut self, first: u64, last: u64) {
        let mut merged = Vec::new();
        let mut entry = None;
        for sequence in first..=last {
            let path = format!("log/{sequence:020}.json");
            let bytes = self.store.get(&path).await.unwrap();
            let of = entry.insert(decode::<CommitEntry>(&path, &bytes).unwrap());
            for file in &of.files {
                // An earlier merge has moved it.
                let bytes = superseded_files::get(&self.store, &file.path)
                    .await
                    .unwrap();
                let moved = superseded_files::path(&file.path);
                self.store.put(&moved, bytes.clone()).await.unwrap();
                self.store.delete(&file.path).await.unwrap();
                let reader = ParquetRecordBatchReaderBuilder::try_new(bytes).unwrap();
                merged.extend(reader.build().unwrap().map(Result::unwrap));
            }
        }
        let schema = merged[0].schema();
        let rows = merged.iter().map(RecordBatch::num_rows).sum();
        let mut writer = ArrowWriter::try_new(Vec::new(), schema, None).unwrap();
        for batch in &merged {
            writer.write(batch).unwrap();
        }
        let file = self
            .file("data", rows, writer.into_inner().unwrap().into())
            .await;
        let compacted = Compacted {
            first: Sequence::new(first),
            last: Sequence::new(last),
            files: vec![file],
            children: BTreeMap::new(),
        };
        let mut amendment = self.amendment(entry.unwrap());
        amendment.compacted = vec![compacted];
        self.append(&amendment).await;
    }

    /// Takes the log back to the entry `to`.
    pub(crate) async fn rewind(&mut self, to: u64) {
        let path = format!("log/{to:020}.json");
        let bytes = self.store.get(&path).await.unwrap();
        let mut amendment = self.amendment(decode(&path, &bytes).unwrap());
        amendment.rewound_to = Some(Sequence::new(to));
        self.append(&amendment).await;
    }

    /// The next entry, which lands nothing and has the schema of `entry`.
    fn amendment(&self, entry: CommitEntry) -> CommitEntry {
        CommitEntry {
            min_reader: Some(COMMIT.version),
            sequence: self.sequence,
            prev_hash: self.prev_hash,
            batch_id: format!("batch-{}", self.sequence),
            files: Vec::new(),
            children: BTreeMap::new(),
            counts: BatchCounts::default(),
            withdrawn: Vec::new(),
            ..entry
        }
    }

    async fn append(&mut self, entry: &CommitEntry) {
        let bytes = Bytes::from(encode(entry));
        self.prev_hash = Some(Hash128::of(&bytes));
        self.store
            .put(&format!("log/{:020}.json", self.sequence.get()), bytes)
            .await
            .unwrap();
        self.sequence = self.sequence.next();
    }

    fn parquet(&self, schema: &RecordSchema, rows: &[Cells], parents: Option<&[u32]>) -> Bytes {
        let count = u32::try_from(rows.len()).unwrap();
        let hashes = FixedSizeBinaryArray::try_from_iter(
            (0..count).map(|row| u128::from(row).to_be_bytes()),
        )
        .unwrap();
        let mut columns: Vec<(Field, ArrayRef)> = vec![
            (
                Field::new(system::SEQUENCE, DataType::UInt64, false),
                Arc::new(UInt64Array::from(vec![self.sequence.get(); rows.len()])),
            ),
            (
                Field::new(system::ROW, DataType::UInt32, false),
                Arc::new((0..count).collect::<UInt32Array>()),
            ),
            (
                Field::new(system::HASH, DataType::FixedSizeBinary(16), false),
                Arc::new(hashes),
            ),
        ];
        if let Some(parents) = parents {
            let parents = UInt32Array::from(parents.to_vec());
            let field = Field::new(system::PARENT, DataType::UInt32, false);
            columns.push((field, Arc::new(parents)));
        }
        for (i, column) in schema.columns.iter().enumerate() {
            let cells = rows.iter().map(|row| &row[i]);
            let array: ArrayRef = match column.r#type {
                ColumnType::Bool => Arc::new(cells.map(Value::as_bool).collect::<BooleanArray>()),
                ColumnType::Int64 => Arc::new(cells.map(Value::as_i64).collect::<Int64Array>()),
                ColumnType::Float64 => {
                    // JSON has no NaN.
                    let number = |cell: &Value| match cell.as_str() {
                        Some("NaN") => Some(f64::NAN),
                        _ => cell.as_f64(),
                    };
                    Arc::new(cells.map(number).collect::<Float64Array>())
                }
                ColumnType::Decimal => {
                    let units = cells.map(|cell| cell.as_str().map(|units| units.parse().unwrap()));
                    let units = units.collect::<Decimal128Array>();
                    Arc::new(units.with_precision_and_scale(38, 18).unwrap())
                }
                ColumnType::Timestamp => {
                    let micros = cells
                        .map(Value::as_i64)
                        .collect::<TimestampMicrosecondArray>();
                    Arc::new(micros.with_timezone("UTC"))
                }
                ColumnType::Binary => Arc::new(cells.map(bytes_of).collect::<BinaryArray>()),
                _ => Arc::new(cells.map(Value::as_str).collect::<StringArray>()),
            };
            let id = (
                PARQUET_FIELD_ID_META_KEY.to_owned(),
                column.field_id.to_string(),
            );
            let field = Field::new(&column.name, array.data_type().clone(), true);
            columns.push((field.with_metadata([id].into()), array));
        }
        let (fields, arrays): (Vec<Field>, Vec<ArrayRef>) = columns.into_iter().unzip();
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap();
        let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        Bytes::from(writer.into_inner().unwrap())
    }
}

/// Bytes, written as a list of numbers.
fn bytes_of(cell: &Value) -> Option<Vec<u8>> {
    let numbers = cell.as_array()?.iter();
    numbers
        .map(|byte| u8::try_from(byte.as_u64()?).ok())
        .collect()
}

/// A pipeline with sources `a` and `b` and this `[dataset]` section.
pub(crate) fn pipeline(dataset: &str) -> PipelineConfig {
    let source =
        |name: &str| format!("[[source]]\nname = \"{name}\"\ntype = \"files\"\nurl = \"x.csv\"\n");
    let text = format!(
        "[pipeline]\nname = \"p\"\n{}{}[dataset]\n{dataset}\n",
        source("a"),
        source("b")
    );
    load("p.toml", &text, &[]).unwrap().config
}

/// A file of the shared data, whose folder `FEEDLINE_DATA` names elsewhere; `None`, with a message, where it is absent.
pub(crate) fn shared(path: &str) -> Option<PathBuf> {
    let data = std::env::var_os("FEEDLINE_DATA").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data"),
        PathBuf::from,
    );
    let file = data.join(path);
    if !file.exists() {
        eprintln!("skipped: `{}` is absent", file.display());
        return None;
    }
    Some(file)
}

/// The text of a gzip file.
pub(crate) fn unpacked(path: &Path) -> String {
    let mut text = String::new();
    GzDecoder::new(File::open(path).unwrap())
        .read_to_string(&mut text)
        .unwrap();
    text
}

/// Builds `dataset`, the text of `[dataset]`.
pub(crate) async fn build_with(
    root: &Store,
    dataset: &str,
    partitions: usize,
) -> Result<DatasetReport, Error> {
    let (context, _scratch) = context(root, partitions);
    build(&pipeline(dataset), &context).await
}

/// Image `i` in one colour, which no other has.
pub(crate) fn coloured(i: u32, [width, height]: [u32; 2]) -> Vec<u8> {
    let [_, _, green, blue] = i.to_be_bytes();
    let pixels = [7, green, blue].repeat((width * height) as usize);
    Encoding::Png.encode(&pixels, width, height).unwrap()
}

/// `[dataset]` of the images of source `a`, with a class each.
pub(crate) const IMAGES: &str =
    "sources = [\"a\"]\nkind = \"images\"\ntarget = \"label\"\ntask = \"classification\"\n";

/// Builds [`IMAGES`] with these keys of `[dataset.image]`.
pub(crate) async fn build_images(
    root: &Store,
    image: &str,
    partitions: usize,
) -> Result<DatasetReport, Error> {
    let dataset = format!("{IMAGES}image = {{ {image} }}\n");
    build_with(root, &dataset, partitions).await
}

/// A context over `root` with a scratch folder of its own.
pub(crate) fn context(root: &Store, partitions: usize) -> (Context, TempDir) {
    let scratch = tempfile::tempdir().unwrap();
    let context = Context {
        root: root.clone(),
        progress: Arc::new(Silent),
        clock: Arc::new(SystemClock),
        partitions,
        memory_bytes: None,
        store_options: StoreOptions::default(),
        decoder: None,
        engine: Engine::Local,
        scratch: scratch.path().to_owned(),
    };
    (context, scratch)
}

/// Every object of a store.
pub(crate) async fn contents(store: &Store) -> BTreeMap<String, Bytes> {
    let mut found = BTreeMap::new();
    for listed in store.list("").await.unwrap() {
        let bytes = store.get(&listed.path).await.unwrap();
        found.insert(listed.path, bytes);
    }
    found
}

/// Flips the lowest bit of one byte of an object.
pub(crate) async fn flip_bit(store: &Store, path: &str, byte: usize) {
    let mut bytes = store.get(path).await.unwrap().to_vec();
    bytes[byte] ^= 1;
    store.put(path, Bytes::from(bytes)).await.unwrap();
}

/// A row as the shards hold it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Written {
    pub(crate) split: Split,
    pub(crate) key: u64,
    pub(crate) origin: Origin,
    pub(crate) x: Vec<f32>,
}

/// All blocks of the current dataset in shard order.
pub(crate) async fn blocks(dataset: &Store) -> Vec<(Split, RecordBatch)> {
    let manifest = read_manifest(dataset).await.unwrap();
    let mut blocks = Vec::new();
    for split in &manifest.splits {
        for shard in &split.shards {
            let bytes = dataset.get(&shard.path).await.unwrap();
            let reader = FileReader::try_new(std::io::Cursor::new(bytes), None).unwrap();
            blocks.extend(reader.map(|batch| (split.split, batch.unwrap())));
        }
    }
    blocks
}

/// All rows of the current dataset in shard order.
pub(crate) async fn written(dataset: &Store) -> Vec<Written> {
    let mut rows = Vec::new();
    for (split, batch) in blocks(dataset).await {
        let x = batch["x"].as_fixed_size_list().clone();
        let number = |name: &str| batch[name].as_primitive::<UInt64Type>().clone();
        let (keys, origins) = (number("key"), number("origin"));
        rows.extend((0..batch.num_rows()).map(|row| {
            Written {
                split,
                key: keys.value(row),
                origin: Origin::from_packed(origins.value(row)),
                x: x.value(row)
                    .as_primitive::<arrow::datatypes::Float32Type>()
                    .values()
                    .to_vec(),
            }
        }));
    }
    rows
}
