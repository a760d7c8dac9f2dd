//! Lands recorded responses of real APIs and compares each landed value with the recording.

use std::{collections::BTreeMap, io::Read, path::Path};

use arrow::{
    array::{Array, ArrayRef, AsArray, RecordBatch},
    datatypes::{Float64Type, Int64Type, UInt32Type},
};
use feedline_readers::value::Value;
use feedline_schemas::{
    commit::CommitEntry,
    config::{PipelineConfig, load},
    ids::Name,
    record::{Column, ColumnType, RecordSchema, system},
    report::IngestReport,
};
use feedline_storage::Store;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::Value as Json;

use crate::{commit_log::landed, flatten::flatten, run::ingest, testing::context};

/// The decompressed file of the shared data folder, or `None` (with a message) if the folder is
/// absent.
fn shared(path: &str) -> Option<String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../shared/data/json")
        .join(path);
    if !file.exists() {
        eprintln!("skipped: the data file `json/{path}` is not here");
        return None;
    }
    let mut text = String::new();
    flate2::read::MultiGzDecoder::new(std::fs::File::open(file).unwrap())
        .read_to_string(&mut text)
        .unwrap();
    Some(text)
}

/// The lists in the responses of a recording, unchanged.
fn bodies(recording: &str) -> Option<Vec<String>> {
    let text = shared(&format!("recordings/{recording}.jsonl.gz"))?;
    let exchanges = text
        .lines()
        .map(|line| serde_json::from_str::<Json>(line).unwrap());
    let bodies = exchanges.map(|e| {
        e["response"]["body"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    });
    Some(bodies.filter(|body| body.starts_with('[')).collect())
}

/// Documents as files of one source.
struct Landing {
    folder: tempfile::TempDir,
    root: Store,
    config: PipelineConfig,
}

impl Landing {
    fn of(documents: &[String], records: &str, more: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (i, document) in documents.iter().enumerate() {
            std::fs::write(folder.path().join(format!("{i:03}.json")), document).unwrap();
        }
        let text = format!(
            "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"files\"\nurl = '{}/*.json'\nrecords = \"{records}\"\nbatch.rows = 100\n{more}",
            folder.path().display()
        );
        let config = load("p", &text, &[]).unwrap().config;
        let root = Store::memory();
        Self {
            folder,
            root,
            config,
        }
    }

    async fn run(&self) -> IngestReport {
        let context = crate::context::Context {
            root: self.root.clone(),
            ..context()
        };
        ingest(&self.config, None, &context).await.unwrap()
    }

    async fn entries(&self) -> Vec<CommitEntry> {
        let name = Name::new("s").unwrap();
        landed(&self.root, &name).await.unwrap().unwrap().entries
    }

    /// Every landed row by the number of its record: its cells that are not null.
    async fn rows(&self) -> BTreeMap<usize, Vec<Cell>> {
        let store = self.root.child("landing/s");
        let mut rows = BTreeMap::new();
        let mut first = 0;
        for entry in self.entries().await {
            for file in &entry.files {
                let bytes = store.get(&file.path).await.unwrap();
                let reader = ParquetRecordBatchReaderBuilder::try_new(bytes).unwrap();
                for batch in reader.build().unwrap() {
                    take(&batch.unwrap(), first, &entry.schema, &mut rows);
                }
            }
            let counts = entry.counts;
            first += counts.rows + counts.duplicates + counts.rejected;
        }
        rows
    }
}

/// A cell: its column, and its value as text.
struct Cell {
    name: String,
    r#type: ColumnType,
    text: String,
}

impl Cell {
    fn of(column: &Column, array: &ArrayRef, row: usize) -> Self {
        let text = match column.r#type {
            ColumnType::Bool => array.as_boolean().value(row).to_string(),
            ColumnType::Int64 => array.as_primitive::<Int64Type>().value(row).to_string(),
            ColumnType::Float64 => {
                Value::Float(array.as_primitive::<Float64Type>().value(row)).canonical()
            }
            ColumnType::Json | ColumnType::Utf8 => array.as_string::<i32>().value(row).to_owned(),
            other => panic!("no recorded value is {other:?}"),
        };
        Self {
            name: column.name.clone(),
            r#type: column.r#type,
            text,
        }
    }

    /// Returns true if it equals the recorded value.
    fn says(&self, recorded: &Value) -> bool {
        match (self.r#type, recorded) {
            (ColumnType::Utf8, Value::Text(text)) => self.text == *text,
            (ColumnType::Float64, Value::Int(value)) => self.text == format!("{value}.0"),
            (ColumnType::Float64, Value::Written(number)) => {
                self.text == Value::Float(number.value()).canonical()
            }
            (_, value) => self.text == value.written(),
        }
    }
}

fn take(
    batch: &RecordBatch,
    first: u64,
    schema: &RecordSchema,
    rows: &mut BTreeMap<usize, Vec<Cell>>,
) {
    let places = batch.column_by_name(system::ROW).unwrap();
    let places = places.as_primitive::<UInt32Type>().values();
    for (row, place) in places.iter().enumerate() {
        let cells = schema.columns.iter().filter_map(|column| {
            let array = batch.column_by_name(&column.name).unwrap();
            array.is_valid(row).then(|| Cell::of(column, array, row))
        });
        let record = usize::try_from(first).unwrap() + usize::try_from(*place).unwrap();
        assert!(rows.insert(record, cells.collect()).is_none());
    }
}

/// Compares a landed row with its record: both have the same non-null values. Returns their number.
fn compare(number: usize, cells: &[Cell], record: &Value) -> usize {
    let Value::Object(entries) = record.clone() else {
        panic!("{record:?} is no record")
    };
    let leaves = flatten(entries, 8, &std::collections::HashSet::new());
    let mut recorded: BTreeMap<String, Value> = leaves
        .into_iter()
        .filter(|leaf| leaf.value != Value::Null)
        .map(|leaf| (leaf.name, leaf.value))
        .collect();
    for cell in cells {
        let value = recorded.remove(&cell.name);
        let is_right = value.as_ref().is_some_and(|value| cell.says(value));
        assert!(
            is_right,
            "record {number}, `{}`: {value:?} landed as {}",
            cell.name, cell.text
        );
    }
    assert!(recorded.is_empty(), "record {number} has lost {recorded:?}");
    cells.len()
}

fn records(documents: &[String], path: &str) -> Vec<Value> {
    let lists = documents.iter().map(|document| {
        let document = Value::parse(document.as_bytes()).unwrap();
        match document.at(path) {
            Some(Value::List(records)) => records.clone(),
            other => panic!("{other:?}"),
        }
    });
    lists.collect::<Vec<_>>().concat()
}

#[tokio::test]
async fn fault_33_repositories_of_2013_2017_and_2018_land_in_one_table_and_no_value_is_lost() {
    let recordings = [
        "octokitrb_all_repositories_returns_all_repositories_on_github",
        "github3py_github_iter_all_repos",
        "github3py_repository_forks",
    ];
    let Some(lists) = recordings
        .map(bodies)
        .into_iter()
        .collect::<Option<Vec<_>>>()
    else {
        return;
    };
    let documents = lists.concat();
    let landing = Landing::of(&documents, "", "");
    let report = landing.run().await;
    let records = records(&documents, "");
    assert_eq!(records.len(), 476);
    assert_eq!(
        (report.rows, report.duplicates, report.rejected),
        (476, 0, 0)
    );
    let entries = landing.entries().await;
    let columns: Vec<_> = entries
        .iter()
        .map(|e| (e.schema.version.get(), e.schema.columns.len()))
        .collect();
    eprintln!("schema versions and columns of each batch: {columns:?}");
    let versions: std::collections::BTreeSet<u32> =
        columns.iter().map(|(version, _)| *version).collect();
    assert!(versions.len() >= 2, "{columns:?}");
    // A column keeps its id in every version.
    for pair in entries.windows(2) {
        let (before, after) = (&pair[0].schema.columns, &pair[1].schema.columns);
        for (old, new) in before.iter().zip(after) {
            assert_eq!((old.field_id, &old.name), (new.field_id, &new.name));
        }
    }
    let rows = landing.rows().await;
    assert_eq!(rows.len(), records.len());
    let values: usize = rows
        .iter()
        .map(|(i, cells)| compare(*i, cells, &records[*i]))
        .sum();
    eprintln!("{values} values compared");
    assert!(values > 20_000, "{values}");
    let told = &report.sources[0].decisions["new_column"];
    assert!(told.contains_key("deployments_url"), "{told:?}");
}

/// Lands documents that mix records of many kinds. Each record lands completely or is rejected with
/// a reason.
async fn check_mixed(documents: Vec<String>, path: &str, more: &str) {
    let landing = Landing::of(&documents, path, more);
    let report = landing.run().await;
    let records = records(&documents, path);
    let source = &report.sources[0];
    eprintln!(
        "{} rows, {} duplicates, {:?}",
        report.rows, report.duplicates, source.rejected_by_reason
    );
    assert_eq!(
        report.rows + report.duplicates + report.rejected,
        records.len() as u64
    );
    assert_eq!(
        source.rejected_by_reason.values().sum::<u64>(),
        report.rejected
    );
    assert!(report.rows * 2 > records.len() as u64, "{source:?}");
    for (number, cells) in landing.rows().await {
        compare(number, &cells, &records[number]);
    }
    drop(landing.folder);
}

const LENIENT: &str = "contract.max_reject_fraction = 1.0\ncontract.max_columns = 4000\n";

#[tokio::test]
async fn fault_36_health_records_land_or_are_set_aside_with_a_reason() {
    let names = [
        "Alberto_Atencio_fc712d1f-5a2e-4407-9c55-a2a2bad623c2",
        "Clemente_Kreiger_1484a42d-0eaf-4654-9cbf-6b050a5cd73b",
        "Luigi_Wiegand_e27d88b0-c5e5-4042-ad49-184f6a900ee3",
        "Ned_Hintz_e4b9259d-0f54-48d1-a35d-b526729a4dfe",
        "hospitalInformation1559319163815",
    ];
    let texts = names.map(|name| shared(&format!("fhir_r4/{name}.json.gz")));
    let Some(documents) = texts.into_iter().collect::<Option<Vec<_>>>() else {
        return;
    };
    check_mixed(documents, "entry", LENIENT).await;
}

#[tokio::test]
async fn fault_36_recorded_exchanges_and_events_land_or_are_set_aside_with_a_reason() {
    let names = [
        "errors",
        "get-repository",
        "paginate-issues",
        "release-assets",
        "rename-repository",
        "search-issues",
    ];
    let texts = names.map(|name| shared(&format!("octokit_fixtures/{name}.json.gz")));
    let Some(documents) = texts.into_iter().collect::<Option<Vec<_>>>() else {
        return;
    };
    check_mixed(documents, "", LENIENT).await;
    let Some(events) = shared("github_events_page_100.json.gz") else {
        return;
    };
    check_mixed(vec![events], "", LENIENT).await;
}
