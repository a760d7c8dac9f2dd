//! Rows that are newer than others, and columns that were widened.

use std::collections::BTreeMap;

use arrow::{array::AsArray, datatypes::UInt64Type};
use feedline_schemas::{
    config::DeclaredType,
    export::{DataExportReport, ExportFormat},
    record::{
        ColumnType::{self, Bool, Decimal, Float64, Int64, Json, Timestamp, Utf8},
        system,
    },
    report::Warning,
};
use feedline_storage::Store;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::{Value, json};

use crate::pipeline::*;
use crate::testing::{Cells, LandingZone, contents, context, pipeline, written};
use crate::{ExportRequest, ExportSelection, export};

const DATASET: &str = "sources = [\"a\"]\nfeatures = [\"x\"]\ndedup = \"none\"";

async fn build_newest(
    root: &Store,
    key: &[&str],
    version: Option<&str>,
    partitions: usize,
) -> Result<DatasetReport, Error> {
    let mut config = pipeline(DATASET);
    config.source[0].key = key.iter().map(|key| (*key).to_owned()).collect();
    config.source[0].version = version.map(str::to_owned);
    let (context, _scratch) = context(root, partitions);
    build(&config, &context).await
}

/// Row `x` of thing `id` at version `v`.
fn row(id: Value, v: Value, x: i64) -> Cells {
    vec![id, v, json!(x)]
}

/// 300 things at version 1; newer ones of 0 to 99, older ones of 50 to 149, equal ones of 200 to 249, five of nothing.
async fn things(root: &Store) {
    let columns = |v: ColumnType| [("id", Int64), ("v", v), ("x", Int64)];
    let mut zone = LandingZone::new(root, "a", &columns(Int64));
    let first: Vec<Cells> = (0..300).map(|id| row(json!(id), json!(1), id)).collect();
    zone.batch(&first).await;
    zone.evolve(&columns(Float64));
    let newer: Vec<Cells> = (0..100)
        .map(|id| row(json!(id), json!(2.5), 1000 + id))
        .collect();
    zone.batch(&newer).await;
    let older: Vec<Cells> = (50..150)
        .map(|id| row(json!(id), json!(0.5), 2000 + id))
        .collect();
    zone.batch(&older).await;
    // The id became text: it is still the same id.
    zone.evolve(&[("id", Utf8), ("v", Float64), ("x", Int64)]);
    let equal = (200..250).map(|id| row(json!(id.to_string()), json!(1.0), 3000 + id));
    let nothing = (0..5).map(|i| row(Value::Null, json!(9.0), 4000 + i));
    zone.batch(&equal.chain(nothing).collect::<Vec<_>>()).await;
}

/// Number of rows from each batch.
async fn batches(root: &Store) -> BTreeMap<u64, usize> {
    let mut found = BTreeMap::new();
    for row in written(&root.child("dataset")).await {
        *found.entry(row.origin.sequence().get()).or_default() += 1;
    }
    found
}

#[tokio::test]
async fn fault_43_of_each_key_the_newest_row_is_read_whatever_landed_last() {
    let root = Store::memory();
    things(&root).await;
    let report = build_newest(&root, &["id"], Some("v"), 3).await.unwrap();
    assert_eq!(
        (report.rows_in, report.duplicates, report.rejected),
        (555, 250, 0)
    );
    assert_eq!(batches(&root).await, [(0, 150), (1, 100), (3, 55)].into());
    let before = contents(&root.child("dataset")).await;
    // One that is read otherwise is another dataset.
    let report = build_newest(&root, &["id"], None, 3).await.unwrap();
    assert!(!report.up_to_date);
    assert_eq!(
        batches(&root).await,
        [(0, 100), (1, 50), (2, 100), (3, 55)].into()
    );
    let report = build_newest(&root, &[], None, 3).await.unwrap();
    assert_eq!((report.duplicates, report.up_to_date), (0, false));
    let again = Store::memory();
    things(&again).await;
    build_newest(&again, &["id"], Some("v"), 1).await.unwrap();
    assert_eq!(contents(&again.child("dataset")).await, before);
}

#[tokio::test]
async fn a_key_or_version_that_cannot_be_names_its_setting() {
    let root = Store::memory();
    let mut zone = LandingZone::new(&root, "a", &[("id", Int64), ("l", Json), ("x", Int64)]);
    zone.batch(&[vec![json!(1), json!("[1]"), json!(2)]]).await;
    let check = async |key: &[&str], version: Option<&str>, expected: &str| {
        let error = build_newest(&root, key, version, 1)
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains(expected), "{error}");
    };
    check(&["no"], None, "`source.key`: source `a` has no column `no`").await;
    check(
        &["id"],
        Some("no"),
        "`source.version`: source `a` has no column `no`",
    )
    .await;
    check(&["id"], Some("l"), "column `l` of source `a` has no order").await;
    check(&[], Some("x"), "source `a` has no `key`").await;
}

#[tokio::test]
async fn fault_33_files_of_every_version_are_read_as_the_newest_one_is() {
    let root = Store::memory();
    let one = 10_i128.pow(18);
    type Step = (ColumnType, fn(i64) -> Value);
    let steps: [Step; 4] = [
        (Int64, |i| json!(i)),
        (Float64, |i| json!(i as f64 + 0.5)),
        (Decimal, |i| {
            json!((i128::from(i) * 10_i128.pow(18) + 10_i128.pow(17)).to_string())
        }),
        (Utf8, |i| json!(format!("{i}.25"))),
    ];
    assert_eq!(one / 10, 10_i128.pow(17));
    let mut zone = LandingZone::new(&root, "a", &[("x", Int64), ("at", Utf8), ("flag", Bool)]);
    for (step, (x, value)) in steps.iter().enumerate() {
        let at = if step < 2 { Utf8 } else { Timestamp };
        zone.evolve(&[("x", *x), ("at", at), ("flag", Bool)]);
        let at = |i: i64| {
            if step < 2 {
                json!(format!("day {i}"))
            } else {
                json!(i)
            }
        };
        let rows: Vec<Cells> = (0..100)
            .map(|i| vec![value(i), at(i), json!(i % 2 == 0)])
            .collect();
        zone.batch(&rows).await;
    }
    let dataset = "sources = [\"a\"]\nfeatures = [\"x\", \"flag\"]\nstep = [{ type = \"impute\", columns = [\"x\"] }]\n";
    let mut config = pipeline(dataset);
    config.source[0].version = None;
    let (context, _scratch) = context(&root, 2);
    let report = build(&config, &context).await.unwrap();
    assert_eq!(
        (report.rows_in, report.duplicates, report.rejected),
        (400, 0, 0)
    );
    let expected = [0.0, 0.5, 0.1, 0.25];
    for row in written(&root.child("dataset")).await {
        let place = usize::try_from(row.origin.sequence().get()).unwrap();
        let x = row.origin.row() as f64 + expected[place];
        assert!((f64::from(row.x[0]) - x).abs() < 1e-4, "{row:?} {x}");
    }
}

/// Columns of rows whose version is a text.
const TEXTS: [(&str, ColumnType); 3] = [("id", Int64), ("v", Utf8), ("x", Int64)];

/// Lands the earlier and the later text of each pair as versions of 20 things: of one half the later
/// version lands last, and of the other half first. All later ones are in batch 1.
async fn text_versions(root: &Store, pairs: &[(&str, &str)]) {
    let rows = |is_later: bool, first: i64| {
        let texts = pairs.iter().map(move |(earlier, later)| match is_later {
            true => *later,
            false => *earlier,
        });
        let things = (0_i64..).step_by(20).zip(texts);
        things.flat_map(move |(base, text)| {
            (base + first..base + first + 10).map(move |id| row(json!(id), json!(text), id))
        })
    };
    let mut zone = LandingZone::new(root, "a", &TEXTS);
    zone.batch(&rows(false, 0).collect::<Vec<_>>()).await;
    zone.batch(&rows(true, 0).chain(rows(true, 10)).collect::<Vec<_>>())
        .await;
    zone.batch(&rows(false, 10).collect::<Vec<_>>()).await;
}

fn by_text_version() -> PipelineConfig {
    let split = "split = { train = 1.0, validation = 0.0, test = 0.0 }";
    let mut config = pipeline(&format!("{DATASET}\n{split}"));
    config.source[0].key = vec!["id".to_owned()];
    config.source[0].version = Some("v".to_owned());
    config
}

/// Exports the latest versions of source `a`: the report, and the number of rows from each batch.
async fn exported(
    root: &Store,
    config: &PipelineConfig,
) -> (DataExportReport, BTreeMap<u64, usize>) {
    let (context, _scratch) = context(root, 2);
    let request = ExportRequest {
        pipeline: &config.pipeline.name,
        selection: ExportSelection::Landed {
            source: &config.source[0],
            table: None,
            all_versions: false,
        },
        format: ExportFormat::Parquet,
        rows_per_file: None,
        max_bytes: None,
        compress: None,
        text_column: None,
        overwrite: false,
        run: "run".to_owned(),
    };
    let target = Store::memory();
    let report = export(request, &target, &context).await.unwrap();
    let mut found = BTreeMap::new();
    for (path, bytes) in contents(&target).await {
        if !path.ends_with(".parquet") {
            continue;
        }
        let reader = ParquetRecordBatchReaderBuilder::try_new(bytes).unwrap();
        for batch in reader.build().unwrap() {
            let batch = batch.unwrap();
            for sequence in batch[system::SEQUENCE]
                .as_primitive::<UInt64Type>()
                .values()
            {
                *found.entry(*sequence).or_default() += 1;
            }
        }
    }
    (report, found)
}

fn text_warnings(warnings: &[Warning]) -> Vec<&str> {
    let warnings = warnings.iter().filter(|w| w.code == "version_is_text");
    warnings.map(|w| w.message.as_str()).collect()
}

#[tokio::test]
async fn texts_of_times_or_numbers_decide_by_their_values_in_whatever_order_they_land() {
    let times = [
        ("2026-02-01T00:00:00Z", "2026-02-01T00:00:00.5Z"),
        ("2026-02-01T00:00:00.12Z", "2026-02-01T00:00:00.123Z"),
        ("2026-02-01T01:00:00+02:00", "2026-02-01T00:30:00Z"),
        ("2026-02-01T10:00:00", "2026-02-01 11:00:00+00:30"),
        ("2026-02-01", "2026-02-01T00:00:00.000000001Z"),
    ];
    let numbers = [("9", "10"), ("9.5", "010"), ("-2", "-1.5"), ("9e2", "1000")];
    let months = [("2023-12", "2024-01"), ("2024-09", "2024-10")];
    for pairs in [&times[..], &numbers[..], &months[..]] {
        let config = by_text_version();
        let mut datasets = Vec::new();
        for partitions in [1, 3] {
            let root = Store::memory();
            text_versions(&root, pairs).await;
            let (context, _scratch) = context(&root, partitions);
            let report = build(&config, &context).await.unwrap();
            assert_eq!(text_warnings(&report.warnings), Vec::<&str>::new());
            assert_eq!(batches(&root).await, [(1, 20 * pairs.len())].into());
            datasets.push(contents(&root.child("dataset")).await);
            let (report, found) = exported(&root, &config).await;
            assert_eq!(text_warnings(&report.warnings), Vec::<&str>::new());
            assert_eq!(found, [(1, 20 * pairs.len())].into());
        }
        assert_eq!(datasets[0], datasets[1]);
    }
}

#[tokio::test]
async fn texts_that_only_bytes_order_are_warned_of_by_build_and_export() {
    for (pair, examples) in [
        (("v9", "v10"), "`v10` and `v9`, in 40 rows"),
        (
            ("31.01.2024", "01.02.2024"),
            "`01.02.2024` and `31.01.2024`, in 40 rows",
        ),
        (
            ("7", "2024-02-01"),
            "numbers (such as `7`, in 20 rows) and times",
        ),
    ] {
        let root = Store::memory();
        text_versions(&root, &[pair]).await;
        let config = by_text_version();
        let (context, _scratch) = context(&root, 2);
        let built = build(&config, &context).await.unwrap();
        let (exported, _) = exported(&root, &config).await;
        for warnings in [&built.warnings, &exported.warnings] {
            let [message] = text_warnings(warnings)[..] else {
                panic!("{warnings:?}")
            };
            for part in ["column `v` of source `a`", examples, "`contract.dates`"] {
                assert!(message.contains(part), "{part}: {message}");
            }
        }
    }
}

#[tokio::test]
async fn a_version_that_is_declared_text_is_ordered_by_its_bytes_without_a_warning() {
    let root = Store::memory();
    text_versions(&root, &[("r0009", "r0010")]).await;
    let mut config = by_text_version();
    let columns = &mut config.source[0].contract.column;
    columns.entry("v".to_owned()).or_default().r#type = Some(DeclaredType::Text);
    let (context, _scratch) = context(&root, 2);
    let built = build(&config, &context).await.unwrap();
    let (exported, found) = exported(&root, &config).await;
    for warnings in [&built.warnings, &exported.warnings] {
        assert_eq!(text_warnings(warnings), Vec::<&str>::new());
    }
    assert_eq!(found, [(1, 20)].into());
}

#[tokio::test]
async fn a_version_that_is_declared_text_after_the_build_is_no_longer_warned_of() {
    let root = Store::memory();
    text_versions(&root, &[("r0009", "r0010")]).await;
    let mut config = by_text_version();
    let (context, _scratch) = context(&root, 2);
    for _ in 0..2 {
        let built = build(&config, &context).await.unwrap();
        assert_eq!(text_warnings(&built.warnings).len(), 1);
    }
    let columns = &mut config.source[0].contract.column;
    columns.entry("v".to_owned()).or_default().r#type = Some(DeclaredType::Text);
    let kept = build(&config, &context).await.unwrap();
    assert!(kept.up_to_date);
    assert_eq!(text_warnings(&kept.warnings), Vec::<&str>::new());
}

#[tokio::test]
async fn numbers_that_may_be_version_numbers_are_warned_of_by_build_and_export() {
    let root = Store::memory();
    text_versions(&root, &[("1.10", "1.9")]).await;
    let config = by_text_version();
    let (context, _scratch) = context(&root, 2);
    let built = build(&config, &context).await.unwrap();
    let (exported, _) = exported(&root, &config).await;
    for warnings in [&built.warnings, &exported.warnings] {
        let mut warnings = warnings.iter();
        let found = warnings.find(|w| w.code == "version_is_number").unwrap();
        let part = "texts such as `1.9` and `1.10` that are ordered as numbers";
        assert!(found.message.contains(part), "{found:?}");
    }
}

#[tokio::test]
async fn of_texts_that_mean_one_instant_the_row_that_landed_last_is_the_latest() {
    let root = Store::memory();
    let mut zone = LandingZone::new(&root, "a", &TEXTS);
    for text in [
        "2026-02-01T00:00:00Z",
        "2026-02-01",
        "2026-02-01T02:00:00+02:00",
    ] {
        let rows = (0..20).map(|id| row(json!(id), json!(text), id));
        zone.batch(&rows.collect::<Vec<_>>()).await;
    }
    let config = by_text_version();
    let (context, _scratch) = context(&root, 2);
    build(&config, &context).await.unwrap();
    assert_eq!(batches(&root).await, [(2, 20)].into());
    // Rows that land later decide as in one build.
    let rows = (0..5).map(|id| row(json!(id), json!("2026-02-01T00:00:00.1Z"), 100 + id));
    zone.batch(&rows.collect::<Vec<_>>()).await;
    build(&config, &context).await.unwrap();
    assert_eq!(batches(&root).await, [(2, 15), (3, 5)].into());
}
