//! Rows staged without the engine's sorts, and files read in place.

use std::{
    collections::BTreeMap,
    fs::File,
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow::{
    array::{
        ArrayRef, Float32Array, Int32Array, Int64Array, RecordBatch, StringArray,
        TimestampMillisecondArray, UInt64Array,
    },
    compute::cast,
    datatypes::DataType,
};
use bytes::Bytes;
use datafusion::parquet::{arrow::ArrowWriter, file::properties::WriterProperties};
use feedline_schemas::{
    config::{PipelineConfig, load},
    manifest::Manifest,
    progress::{Event, Progress},
    record::ColumnType::{self, Float64, Int64, Timestamp, Utf8},
};
use feedline_storage::Store;
use serde_json::{Value, json};

use crate::{
    Error, build, read_manifest,
    schema::{column_roles, landed_columns},
    source::landing_zone::Landed,
    staging::HashPartitioning,
    testing::{Cells, LandingZone, contents, context, pipeline, written},
    verify,
};

const COLUMNS: [(&str, ColumnType); 5] = [
    ("id", Int64),
    ("size", Float64),
    ("kind", Utf8),
    ("at", Timestamp),
    ("price", Float64),
];

/// Row `i`: every eleventh size is missing, there are three kinds, and some prices are absent, so
/// that the row is rejected.
fn row(i: i64) -> Cells {
    let size = (i % 11 != 0).then_some(i as f64 / 4.0);
    let price = (i % 500 != 77).then_some(i as f64 * 2.0 + 1.0);
    vec![
        json!(i),
        json!(size),
        json!(["x", "y", "z"][usize::try_from(i % 3).unwrap()]),
        json!(1_700_000_000_000_000 + i * 1_000_000),
        json!(price),
    ]
}

/// Batches with duplicates within and across them, also of rejected rows.
fn batches() -> Vec<Vec<i64>> {
    let again = (0..3_000).map(|i| i * 7);
    vec![
        (0..20_000).chain([77, 78, 77]).collect(),
        (20_000..40_000).chain(again).collect(),
        (30_000..50_000).collect(),
    ]
}

/// Dataset that a build of these batches leaves.
async fn landed(
    dataset: &str,
    partitions: usize,
    memory_bytes: Option<u64>,
) -> BTreeMap<String, Bytes> {
    let root = Store::memory();
    let mut zone = LandingZone::new(&root, "a", &COLUMNS);
    for batch in batches() {
        zone.batch(&batch.into_iter().map(row).collect::<Vec<_>>())
            .await;
    }
    let (mut context, _scratch) = context(&root, partitions);
    context.memory_bytes = memory_bytes;
    let dataset =
        format!("sources = [\"a\"]\ntarget = \"price\"\ndrop = [\"id\", \"at\"]\n{dataset}");
    build(&pipeline(&dataset), &context).await.unwrap();
    contents(&root.child("dataset")).await
}

/// Little memory leaves all to the engine; with more, rows are staged directly, in several buckets, and by one worker in
/// several goes.
const TIGHT: u64 = 16 << 20;
const SOME: u64 = 50 << 20;
const ALONE: u64 = 26 << 20;

#[tokio::test(flavor = "multi_thread")]
async fn rows_staged_directly_give_the_bytes_that_the_engine_gives() {
    for dataset in [
        "",
        "dedup = \"none\"\n",
        "features = [\"size\", \"kind\"]\npassthrough = [\"id\", \"size\", \"kind\", \"at\"]\n",
        "features = [\"size\", \"kind\"]\nsplit = { key = [\"kind\", \"size\"] }\nshards = { seed = 3, block_bytes = 4096, shard_bytes = 65536 }\n",
    ] {
        let engine = landed(dataset, 2, Some(TIGHT)).await;
        assert!(engine.keys().any(|path| path.starts_with("rejects/")));
        for (partitions, memory) in [(1, None), (1, Some(ALONE)), (2, Some(SOME)), (5, None)] {
            let direct = landed(dataset, partitions, memory).await;
            assert_eq!(
                direct.keys().collect::<Vec<_>>(),
                engine.keys().collect::<Vec<_>>()
            );
            assert!(direct == engine, "{dataset} {partitions} {memory:?}");
        }
    }
}

/// Writes rows `range` as a Parquet file of narrower types, in row groups of 1,000 rows.
fn write(path: &Path, rows: &[i64]) {
    let ids: Vec<i32> = rows.iter().map(|i| i32::try_from(*i).unwrap()).collect();
    let text = |cells: &[Value], at: usize| cells[at].as_str().map(str::to_owned);
    let cells: Vec<Cells> = rows.iter().map(|i| row(*i)).collect();
    #[expect(
        clippy::cast_possible_truncation,
        reason = "columns of 32 bits are what is written"
    )]
    let number = |at: usize| {
        let cells = cells.iter().map(|cells| cells[at].as_f64());
        cells
            .map(|cell| cell.map(|x| x as f32))
            .collect::<Float32Array>()
    };
    let millis = cells
        .iter()
        .map(|cells| cells[3].as_i64().map(|at| at / 1000));
    let kinds: StringArray = cells.iter().map(|cells| text(cells, 2)).collect();
    let packed = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(Int32Array::from(ids))),
        ("size", Arc::new(number(1))),
        ("kind", cast(&kinds, &packed).unwrap()),
        (
            "at",
            Arc::new(
                millis
                    .collect::<TimestampMillisecondArray>()
                    .with_timezone("UTC"),
            ),
        ),
        ("price", Arc::new(number(4))),
    ];
    save(path, columns);
}

fn save(path: &Path, columns: Vec<(&str, ArrayRef)>) {
    let columns = columns
        .into_iter()
        .map(|(name, column)| (name, column, true));
    let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(1000));
    let file = File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties.build())).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

const DATASET: &str = "target = \"price\"\ndrop = [\"id\", \"at\"]\n";

/// Builds the files in `folder`.
async fn of_files(
    root: &Store,
    folder: &Path,
    (partitions, memory_bytes): (usize, Option<u64>),
    more: &str,
) -> Result<bool, Error> {
    let dataset = format!("{DATASET}{more}");
    of_dataset(root, folder, (partitions, memory_bytes), &dataset).await
}

async fn of_dataset(
    root: &Store,
    folder: &Path,
    (partitions, memory_bytes): (usize, Option<u64>),
    dataset: &str,
) -> Result<bool, Error> {
    let (mut context, _scratch) = context(root, partitions);
    context.memory_bytes = memory_bytes;
    let config = config_of(folder, dataset);
    Ok(build(&config, &context).await?.up_to_date)
}

fn config_of(folder: &Path, dataset: &str) -> PipelineConfig {
    let files = folder.join("*.parquet");
    let text = format!(
        "[pipeline]\nname = \"p\"\n[dataset]\nfiles = '{}'\n{dataset}",
        files.display()
    );
    load("p.toml", &text, &[]).unwrap().config
}

async fn manifest(root: &Store) -> Manifest {
    read_manifest(&root.child("dataset")).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn files_give_the_rows_that_they_give_when_they_land() {
    let folder = tempfile::tempdir().unwrap();
    for (i, rows) in batches().iter().enumerate() {
        write(&folder.path().join(format!("{i}.parquet")), rows);
    }
    let landed = landed("", 2, None).await;
    let mut found = Vec::new();
    for how in [
        (1, Some(ALONE)),
        (2, Some(TIGHT)),
        (2, Some(SOME)),
        (3, None),
    ] {
        let root = Store::memory();
        assert!(!of_files(&root, folder.path(), how, "").await.unwrap());
        assert_eq!(
            verify(&root.child("dataset")).await.unwrap().problems,
            [""; 0]
        );
        found.push(contents(&root.child("dataset")).await);
    }
    assert!(found.iter().all(|f| *f == found[0]));
    // The manifests name other sources, and so do the lines of the rejects; the numbers are the same bytes.
    let numbers = |all: &BTreeMap<String, Bytes>| {
        let numbers = all
            .iter()
            .filter(|(path, _)| path.starts_with("shards/") || path.starts_with("transform-"));
        numbers
            .map(|(path, bytes)| (path.clone(), bytes.clone()))
            .collect::<BTreeMap<_, _>>()
    };
    assert!(numbers(&landed).len() > 3);
    assert!(numbers(&landed) == numbers(&found[0]));
}

/// Writes rows of three columns of 32-bit floats, whose cells may be missing, infinite, or a zero of either sign.
fn write_short(path: &Path, rows: &[i64]) {
    let cell = |i: i64, column: i64| match (i * 7 + column * 3) % 41 {
        0 => None,
        1 => Some(f32::NAN),
        2 => Some(f32::INFINITY),
        3 => Some(f32::NEG_INFINITY),
        4 => Some(-0.0),
        5 => Some(0.0),
        n => Some((i % 1013) as f32 / 8.0 - n as f32),
    };
    let of = |column: i64| -> ArrayRef {
        let cells = rows.iter().map(|i| cell(*i, column));
        Arc::new(cells.collect::<Float32Array>())
    };
    let labels = rows.iter().map(|i| i32::try_from(i % 13).unwrap());
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("b", of(1)),
        ("id", Arc::new(Int64Array::from(rows.to_vec()))),
        ("a", of(0)),
        ("label", Arc::new(labels.collect::<Int32Array>())),
        ("c", of(2)),
    ];
    save(path, columns);
}

#[tokio::test(flavor = "multi_thread")]
async fn short_columns_that_lie_row_by_row_give_the_bytes_that_the_engine_gives() {
    let folder = tempfile::tempdir().unwrap();
    for (i, rows) in batches().iter().enumerate() {
        write_short(&folder.path().join(format!("{i}.parquet")), rows);
    }
    let expression =
        "case when id % 10 < 8 then 'train' when id % 10 = 8 then 'validation' else 'test' end";
    // Some cells stay missing or infinite, so that rows are rejected when they are written.
    let common = format!(
        "target = \"label\"\ntask = \"classification\"\nmax_reject_fraction = 0.5\n\
         split = {{ by = \"expression\", expression = \"{expression}\" }}\n"
    );
    for own in [
        "passthrough = [\"id\", \"label\"]\n\
         step = [{ type = \"winsorize\", columns = [\"a\", \"b\"] },\
         { type = \"impute\", columns = [\"a\", \"b\"], indicator = true }, { type = \"standardize\" }]\n",
        "drop = [\"id\"]\n\
         step = [{ type = \"robust\" }, { type = \"impute\", strategy = \"most_frequent\" }, { type = \"min_max\" }]\n",
        "drop = [\"id\"]\n\
         step = [{ type = \"bin\", columns = [\"a\", \"b\"], bins = 32 },\
         { type = \"impute\", strategy = \"knn\", columns = [\"a\", \"b\"], reference_rows = 200 }, { type = \"min_max\" }]\n",
        "step = [{ type = \"impute\", strategy = \"knn\", reference_rows = 200 }, { type = \"standardize\" }]\n",
    ] {
        let dataset = format!("{common}{own}");
        let mut engine = None;
        for how in [
            (2, Some(TIGHT)),
            (1, Some(ALONE)),
            (2, Some(SOME)),
            (3, None),
        ] {
            let root = Store::memory();
            let built = of_dataset(&root, folder.path(), how, &dataset).await;
            assert!(!built.unwrap());
            let found = contents(&root.child("dataset")).await;
            let engine = engine.get_or_insert_with(|| found.clone());
            assert_eq!(
                found.keys().collect::<Vec<_>>(),
                engine.keys().collect::<Vec<_>>()
            );
            assert!(found == *engine, "{own} {how:?}");
        }
        let engine = engine.unwrap();
        assert!(engine.keys().any(|path| path.starts_with("rejects/")));
    }
}

#[tokio::test]
async fn little_memory_and_rows_in_order_are_left_to_the_engine() {
    let folder = tempfile::tempdir().unwrap();
    for (i, rows) in batches().iter().enumerate() {
        write(&folder.path().join(format!("{i}.parquet")), rows);
    }
    let root = Store::memory();
    let files = folder.path().join("*.parquet").display().to_string();
    let landed = Landed::in_place(&root, &files).await.unwrap();
    let columns = landed_columns::merge([&landed.generations[0].schema]);
    let is_direct = |more: &str, partitions, memory_bytes| {
        let config = pipeline(&format!("{DATASET}{more}")).dataset.unwrap();
        let spec = column_roles::resolve(&config, &columns).unwrap();
        let (mut context, _scratch) = context(&root, partitions);
        context.memory_bytes = memory_bytes;
        HashPartitioning::of(&spec, std::slice::from_ref(&landed), &context).is_some()
    };
    for (partitions, memory) in [(1, Some(ALONE)), (2, Some(SOME)), (5, None)] {
        assert!(is_direct("", partitions, memory), "{partitions}");
    }
    assert!(!is_direct("", 2, Some(TIGHT)));
    assert!(!is_direct("shards = { shuffle = false }\n", 2, None));
    assert!(!is_direct("split = { by = \"range\" }\n", 2, None));
}

#[tokio::test]
async fn the_same_files_are_not_built_again_and_changed_ones_are() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.parquet");
    let rows: Vec<i64> = (0..2_500).collect();
    write(&file, &rows);
    let root = Store::memory();
    let how = (2, None);
    assert!(!of_files(&root, folder.path(), how, "").await.unwrap());
    let first = manifest(&root).await;
    assert_eq!(first.sources[0].name.to_string(), "files");
    assert!(of_files(&root, folder.path(), how, "").await.unwrap());
    write(&file, &rows[1..]);
    assert!(!of_files(&root, folder.path(), how, "").await.unwrap());
    assert_ne!(manifest(&root).await.fingerprint, first.fingerprint);
    // The file's place and the row's in it.
    write(&folder.path().join("b.parquet"), &[9_000, 9_001]);
    assert!(!of_files(&root, folder.path(), how, "").await.unwrap());
    let origins = written(&root.child("dataset")).await;
    let of_second = origins
        .iter()
        .filter(|row| row.origin.sequence().get() == 1);
    let mut of_second: Vec<u64> = of_second.map(|row| row.origin.row()).collect();
    of_second.sort_unstable();
    assert_eq!(of_second, [0, 1]);
    // It was read alone, since it follows the existing one; a file before them moves both.
    let added = manifest(&root).await;
    assert_eq!((added.additions.len(), added.additions[0].rows_in), (1, 2));
    write(&folder.path().join("0.parquet"), &[9_500]);
    assert!(!of_files(&root, folder.path(), how, "").await.unwrap());
    assert_eq!(manifest(&root).await.additions.len(), 0);
    assert_eq!(
        verify(&root.child("dataset")).await.unwrap().problems,
        [""; 0]
    );
}

#[tokio::test]
async fn files_of_other_columns_are_refused_and_named() {
    let folder = tempfile::tempdir().unwrap();
    write(
        &folder.path().join("a.parquet"),
        &(0..500).collect::<Vec<_>>(),
    );
    let second = folder.path().join("b.parquet");
    let whole = |name| -> (&str, ArrayRef) { (name, Arc::new(Int64Array::from(vec![1]))) };
    for (columns, expected) in [
        (vec![whole("id")], "it lacks column `size`"),
        (
            vec![whole("id"), whole("size")],
            "its column `size` is Int64, in the first file it is Float64",
        ),
        (
            vec![("big", Arc::new(UInt64Array::from(vec![1])) as ArrayRef)],
            "column `big` is UInt64, which is not supported",
        ),
    ] {
        save(&second, columns);
        let error = of_files(&Store::memory(), folder.path(), (1, None), "").await;
        let error = error.unwrap_err().to_string();
        assert!(
            error.contains(expected) && error.contains("b.parquet"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn files_stand_alone() {
    let folder = tempfile::tempdir().unwrap();
    for (more, key) in [
        ("sources = [\"a\"]\n", "dataset.sources"),
        (
            "join = [{ source = \"a\", left = \"id\" }]\n",
            "dataset.join",
        ),
        ("kind = \"characters\"\n", "dataset.files"),
    ] {
        let error = of_files(&Store::memory(), folder.path(), (1, None), more).await;
        let error = error.unwrap_err().to_string();
        assert!(error.contains(key), "{error}");
    }
}

/// Writes other rows to a file as soon as a fit begins.
#[derive(Debug)]
struct Writer(PathBuf);

impl Progress for Writer {
    fn report(&self, event: Event<'_>) {
        if event.stage == "shards: fit" {
            write(&self.0, &batches()[1]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_written_while_a_dataset_is_built_of_it_ends_the_build() {
    let (root, folder) = (Store::memory(), tempfile::tempdir().unwrap());
    let path = folder.path().join("a.parquet");
    write(&path, &batches()[0]);
    let (mut context, _scratch) = context(&root, 2);
    let silent = std::mem::replace(&mut context.progress, Arc::new(Writer(path)));
    let config = config_of(folder.path(), DATASET);
    let error = build(&config, &context).await.unwrap_err();
    assert!(matches!(error, Error::Input { .. }), "{error}");
    let expected = "a.parquet`: it changed while the dataset was built from it";
    assert!(error.to_string().contains(expected), "{error}");
    let current = root.child("dataset").get_opt("CURRENT").await;
    assert_eq!(current.unwrap(), None);
    context.progress = silent;
    build(&config, &context).await.unwrap();
}
