//! Delta tables behind runs, amendments and kills, over real files.

use std::{collections::BTreeMap, fs};

use arrow::{
    array::{Array, ArrayRef, AsArray},
    datatypes::{DataType, Float64Type, Int64Type},
};
use feedline_schemas::{
    config::load,
    ids::Sequence,
    report::{SourceReport, Warning},
};
use feedline_storage::{Effect, Faults, Operation, Rule};
use tempfile::TempDir;

use super::{log::TableState, table::copied_from, *};
use crate::{
    amend::{TARGET_BYTES, compact, reset, rewind},
    landed_file,
    run::ingest,
    status::status_with_lag,
    testing,
};

fn context(root: &Store) -> Context {
    Context {
        root: root.clone(),
        delta: true,
        ..testing::context()
    }
}

fn name() -> Name {
    Name::new("s").unwrap()
}

/// A source of the files of `folder`, one batch each.
fn pipeline(folder: &TempDir) -> PipelineConfig {
    let path = folder.path().display();
    let text = format!(
        "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"files\"\nurl = \"{path}/*.ndjson\"\nbatch = {{ pages = 1 }}\ncontract = {{ types = \"widen\" }}\n"
    );
    load("p.toml", &text, &[]).unwrap().config
}

fn put(folder: &TempDir, day: u32, rows: &str) {
    fs::write(folder.path().join(format!("{day:03}.ndjson")), rows).unwrap();
}

async fn bring(config: &PipelineConfig, root: &Store) -> SourceReport {
    let report = ingest(config, None, &context(root)).await.unwrap();
    report.sources.into_iter().next().unwrap()
}

/// The table of the records, at its newest version.
async fn state(root: &Store) -> (TableHead, TableState) {
    let root = root.child("landing/s/data");
    let head = log::head(&root).await.unwrap().unwrap();
    let state = log::replay(&root, &head).await.unwrap();
    (head, state)
}

fn shown(cells: &ArrayRef, row: usize) -> String {
    if cells.is_null(row) {
        return "-".into();
    }
    match cells.data_type() {
        DataType::Int64 => cells.as_primitive::<Int64Type>().value(row).to_string(),
        DataType::Float64 => cells.as_primitive::<Float64Type>().value(row).to_string(),
        DataType::Utf8 => cells.as_string::<i32>().value(row).to_owned(),
        other => panic!("{other}"),
    }
}

/// Rows of the table, as a Delta reader sees them: by the names of its schema, with one type for each.
async fn rows(root: &Store) -> Vec<String> {
    let (_, state) = state(root).await;
    let schema: serde_json::Value = serde_json::from_str(&state.schema).unwrap();
    let fields = schema["fields"].as_array().unwrap();
    let names: Vec<&str> = fields.iter().map(|f| f["name"].as_str().unwrap()).collect();
    let mut types: BTreeMap<String, DataType> = BTreeMap::new();
    let mut rows = Vec::new();
    for (path, file) in &state.files {
        let bytes = root.get(&format!("landing/s/data/{path}")).await.unwrap();
        assert_eq!(bytes.len() as u64, file.bytes);
        let mut count = 0;
        for batch in landed_file::decode(bytes, None, None).unwrap() {
            count += batch.num_rows() as u64;
            for row in 0..batch.num_rows() {
                let own = names.iter().filter(|name| !name.starts_with('_'));
                let cells = own.map(|name| match batch.column_by_name(name) {
                    None => "-".to_owned(),
                    Some(cells) => {
                        let r#type = cells.data_type().clone();
                        let known = types.entry((*name).to_owned()).or_insert(r#type);
                        assert_eq!(known, cells.data_type(), "{name} in {path}");
                        shown(cells, row)
                    }
                });
                rows.push(cells.collect::<Vec<_>>().join("|"));
            }
        }
        assert_eq!(count, file.rows);
    }
    rows.sort();
    rows
}

/// Checks that the table is at the end of the log, and that nothing is wrong with it.
async fn check(config: &PipelineConfig, root: &Store) {
    let verified = crate::verify(config, None, root).await.unwrap();
    assert!(verified.sources[0].damage.is_empty(), "{verified:?}");
    let now = std::time::Duration::ZERO;
    let report = status_with_lag(config, root, now).await.unwrap();
    let [table] = &report.sources[0].delta[..] else {
        panic!("{report:?}");
    };
    assert_eq!((table.behind, &table.problem), (0, &None), "{table:?}");
}

fn warning<'r>(report: &'r SourceReport, code: &str) -> Option<&'r Warning> {
    report.warnings.iter().find(|warning| warning.code == code)
}

const DAYS: [&str; 4] = [
    "{\"id\": 1, \"amount\": 10, \"note\": null}\n{\"id\": 2, \"amount\": 20, \"note\": null}\n",
    "{\"id\": 3, \"amount\": 2.5, \"note\": null}\n",
    "{\"id\": 4, \"amount\": 7, \"note\": 5}\n",
    "{\"id\": 5, \"amount\": \"much\", \"extra\": 1}\n",
];

#[tokio::test]
async fn each_commit_is_a_version_with_all_rows_in_the_types_of_the_newest_schema() {
    let folder = tempfile::tempdir().unwrap();
    let (config, root) = (pipeline(&folder), Store::memory());
    let expected: [&[&str]; 4] = [
        &["1|10", "2|20"],
        &["1|10", "2|20", "3|2.5"],
        &["1|10|-", "2|20|-", "3|2.5|-", "4|7|5"],
        &[
            "1|10.0|-|-",
            "2|20.0|-|-",
            "3|2.5|-|-",
            "4|7.0|5|-",
            "5|much|-|1",
        ],
    ];
    for ((day, rows_of_day), expected) in (0..).zip(DAYS).zip(expected) {
        put(&folder, day, rows_of_day);
        let report = bring(&config, &root).await;
        assert!(warning(&report, "delta_behind").is_none(), "{report:?}");
        let found = rows(&root).await;
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, expected) in found.iter().zip(expected) {
            // Texts of numbers depend on the version that they landed with.
            assert_eq!(found.replace(".0", ""), expected.replace(".0", ""), "{day}");
        }
        let (head, _) = state(&root).await;
        assert_eq!(head.mark.sequence, Sequence::new(u64::from(day)));
        check(&config, &root).await;
    }
    // A run without anything new writes no version.
    let (before, _) = state(&root).await;
    bring(&config, &root).await;
    assert_eq!(state(&root).await.0, before);
}

#[tokio::test]
async fn amendments_are_carried_over() {
    let folder = tempfile::tempdir().unwrap();
    let (config, root) = (pipeline(&folder), Store::memory());
    for (day, rows_of_day) in (0..).zip(DAYS) {
        put(&folder, day, rows_of_day);
        bring(&config, &root).await;
    }
    for day in 4..8 {
        let row = format!("{{\"id\": {day}0, \"amount\": \"few\", \"extra\": 2}}\n");
        put(&folder, day, &row);
        bring(&config, &root).await;
    }
    let all = rows(&root).await;
    assert_eq!(all.len(), 9);
    let context = context(&root);
    let before = state(&root).await.1.files.len();
    compact(&config, &name(), TARGET_BYTES, &context, false)
        .await
        .unwrap();
    assert!(state(&root).await.1.files.len() < before);
    assert_eq!(rows(&root).await, all);
    check(&config, &root).await;

    crate::delete(&config, &name(), &[0], &context, false)
        .await
        .unwrap();
    assert_eq!(rows(&root).await.len(), 7);
    check(&config, &root).await;

    reset(&config, &name(), &context, false).await.unwrap();
    assert!(rows(&root).await.is_empty());
    check(&config, &root).await;
    // No copy of deleted rows stays.
    let copies = root.list("landing/s/data/widened").await.unwrap();
    assert!(copies.is_empty(), "{copies:?}");
    bring(&config, &root).await;
    assert_eq!(rows(&root).await.len(), all.len());
    check(&config, &root).await;
}

#[tokio::test]
async fn a_rewind_takes_the_types_back() {
    let folder = tempfile::tempdir().unwrap();
    let (config, root) = (pipeline(&folder), Store::memory());
    put(&folder, 0, DAYS[0]);
    bring(&config, &root).await;
    let before = state(&root).await.1;
    put(&folder, 1, DAYS[1]);
    let report = bring(&config, &root).await;
    assert!(
        warning(&report, "delta_files_copied").is_some(),
        "{report:?}"
    );
    let copied = state(&root).await.1;
    assert!(copied.files.keys().any(|path| path.starts_with(WIDENED)));
    rewind(&config, &name(), 0, &context(&root), false)
        .await
        .unwrap();
    let after = state(&root).await.1;
    assert_eq!(after.schema, before.schema);
    assert!(after.files.keys().eq(before.files.keys()));
    check(&config, &root).await;
}

/// Fails the creation of Delta versions from the `skip`th on.
fn broken(skip: u64) -> std::sync::Arc<Faults> {
    Faults::new(vec![Rule {
        operation: Operation::Create,
        path_contains: "_delta_log".into(),
        skip,
        times: 99,
        effect: Effect::Full,
    }])
}

#[tokio::test(start_paused = true)]
async fn a_table_that_was_not_written_is_brought_up_by_the_next_run() {
    let folder = tempfile::tempdir().unwrap();
    for (day, rows_of_day) in (0..).zip(DAYS) {
        put(&folder, day, rows_of_day);
    }
    let config = pipeline(&folder);
    for skip in 0..4 {
        let root = Store::memory();
        let report = bring(&config, &root.with_faults(broken(skip))).await;
        let behind = warning(&report, "delta_behind").unwrap();
        assert_eq!(behind.key.as_deref(), Some("ingest.delta"));
        assert_eq!(report.rows, 5);
        bring(&config, &root).await;
        assert_eq!(rows(&root).await.len(), 5);
        check(&config, &root).await;
    }
}

#[tokio::test]
async fn a_foreign_version_is_one_error_and_a_rebuild_removes_it() {
    let folder = tempfile::tempdir().unwrap();
    let (config, root) = (pipeline(&folder), Store::memory());
    put(&folder, 0, DAYS[0]);
    bring(&config, &root).await;
    let foreign = r#"{"commitInfo":{"operation":"OPTIMIZE","engineInfo":"Apache-Spark/4.0.0 Delta-Lake/4.0.0"}}"#;
    let path = format!("landing/s/data/{}", log::version_path(1));
    root.put(&path, foreign.into()).await.unwrap();
    put(&folder, 1, DAYS[1]);
    let report = bring(&config, &root).await;
    assert_eq!(report.rows, 3);
    let behind = warning(&report, "delta_behind").unwrap();
    assert!(behind.message.contains("Apache-Spark/4.0.0"), "{behind:?}");
    let error = delta(&config, None, &context(&root), false)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("version 1 was written by `Apache-Spark"),
        "{error}"
    );
    assert!(error.contains("--rebuild"), "{error}");
    let verified = crate::verify(&config, None, &root).await.unwrap();
    assert_eq!(verified.sources[0].damage.len(), 1, "{verified:?}");

    let report = delta(&config, None, &context(&root), true).await.unwrap();
    assert_eq!(report.tables[0].version, Some(0));
    assert_eq!(rows(&root).await.len(), 3);
    check(&config, &root).await;
}

#[tokio::test]
async fn the_command_makes_the_tables_of_a_source_that_was_landed_without_them() {
    let folder = tempfile::tempdir().unwrap();
    let (config, root) = (pipeline(&folder), Store::memory());
    let without = Context {
        delta: false,
        ..context(&root)
    };
    for (day, rows_of_day) in (0..).zip(DAYS) {
        put(&folder, day, rows_of_day);
        ingest(&config, None, &without).await.unwrap();
    }
    assert!(
        root.list("landing/s/data/_delta_log")
            .await
            .unwrap()
            .is_empty()
    );
    let first = delta(&config, None, &without, false).await.unwrap();
    assert_eq!(first.tables[0].files, 4);
    assert!(first.tables[0].copies > 0);
    let again = delta(&config, None, &without, false).await.unwrap();
    assert_eq!(
        (again.tables[0].version, again.tables[0].copies),
        (Some(0), 0)
    );
    assert_eq!(rows(&root).await.len(), 5);
    check(&config, &root).await;
}

#[tokio::test]
async fn a_table_that_is_not_followed_stays_behind_until_its_files_are_moved() {
    let folder = tempfile::tempdir().unwrap();
    let (config, root) = (pipeline(&folder), Store::memory());
    let without = Context {
        delta: false,
        ..context(&root)
    };
    for day in 0..3 {
        put(&folder, day, &format!("{{\"id\": {day}}}\n"));
        ingest(&config, None, &without).await.unwrap();
        if day == 0 {
            delta(&config, None, &without, false).await.unwrap();
        }
    }
    assert_eq!(rows(&root).await, ["0"]);
    let report = status_with_lag(&config, &root, std::time::Duration::ZERO)
        .await
        .unwrap();
    assert_eq!(report.sources[0].delta[0].behind, 2);
    compact(&config, &name(), TARGET_BYTES, &without, false)
        .await
        .unwrap();
    assert_eq!(rows(&root).await, ["0", "1", "2"]);
    check(&config, &root).await;
}

#[tokio::test]
async fn a_checkpoint_spares_the_versions_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let (config, root) = (pipeline(&folder), Store::memory());
    for day in 0..7 {
        put(&folder, day, &format!("{{\"id\": {day}}}\n"));
        bring(&config, &root).await;
    }
    let (mut head, before) = state(&root).await;
    let landing = root.child("landing/s");
    let of = TableRef {
        landing: &landing,
        source: &name(),
        table: &None,
    };
    let mut stamp = Stamp::of(&context(&root));
    stamp.checkpoint_every(5);
    sync::take_checkpoint(&of, &mut head, &stamp).await;
    assert_eq!(head.checkpoint.map(|last| last.version), Some(6));
    for version in 0..6 {
        of.root().delete(&log::version_path(version)).await.unwrap();
    }
    let (read, after) = state(&root).await;
    assert_eq!((read.version, after), (6, before));
    put(&folder, 7, "{\"id\": 7}\n");
    bring(&config, &root).await;
    assert_eq!(rows(&root).await.len(), 8);
}

#[test]
fn a_copy_names_the_file_that_it_is_of() {
    let copy = "data/widened/00000000000000000003-0123456789abcdef-fedcba9876543210.parquet";
    let own = "data/00000000000000000003-0123456789abcdef.parquet";
    assert_eq!(copied_from(copy).as_deref(), Some(own));
    assert_eq!(copied_from(own), None);
    let copy = copy.replace("data/", "children/items/");
    let own = own.replace("data/", "children/items/");
    assert_eq!(copied_from(&copy), Some(own));
}
