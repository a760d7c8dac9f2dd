//! Rows that are newer than others, and columns that were widened.

use std::collections::BTreeMap;

use feedline_schemas::record::ColumnType::{
    self, Bool, Decimal, Float64, Int64, Json, Timestamp, Utf8,
};
use feedline_storage::Store;
use serde_json::{Value, json};

use crate::pipeline::*;
use crate::testing::{Cells, LandingZone, contents, context, pipeline, written};

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
