//! Datasets of child tables.

use feedline_schemas::{
    config::ChildConfig,
    ids::Name,
    record::ColumnType::{Float64, Int64, Utf8},
};
use feedline_storage::Store;
use serde_json::json;

use crate::pipeline::*;
use crate::testing::{Cells, LandingZone, contents, context, pipeline, written};

const ITEMS: &str = "sources = [\"a.items\"]\nfeatures = [\"x\"]\ndedup = \"none\"\nstep = []\n";

/// 100 orders in two batches; the second changes 20 of the first. Each has as many items as the
/// last digit of its number, worth 10 times their place, and a half more in the second batch, where
/// the column is wider.
async fn orders(root: &Store) {
    let mut zone = LandingZone::new(root, "a", &[("id", Int64)]);
    let mut items = LandingZone::new(root, "unused", &[("order", Int64), ("x", Int64)]);
    let first: Vec<Cells> = (0..80).map(|id| vec![json!(id)]).collect();
    let of = |row: u32, id: u32| (0..id % 10).map(move |place| (row, id, place * 10));
    let rows: Vec<(u32, Cells)> = (0..80)
        .flat_map(|id| of(id, id))
        .map(|(row, id, x)| (row, vec![json!(id), json!(x)]))
        .collect();
    zone.family(&first, ("items", &items), &rows).await;
    items.evolve(&[("order", Int64), ("x", Float64)]);
    let second: Vec<Cells> = (60..100).map(|id| vec![json!(id)]).collect();
    let rows: Vec<(u32, Cells)> = (60..100)
        .flat_map(|id| of(id - 60, id))
        .map(|(row, id, x)| (row, vec![json!(id), json!(f64::from(x) + 0.5)]))
        .collect();
    zone.family(&second, ("items", &items), &rows).await;
}

fn config(dataset: &str, key: &[&str]) -> PipelineConfig {
    let mut config = pipeline(dataset);
    config.source[0].key = key.iter().map(|key| (*key).to_owned()).collect();
    let items = Name::new("items").unwrap();
    config.source[0].contract.children = [(items, ChildConfig::default())].into();
    config
}

async fn build_items(
    root: &Store,
    dataset: &str,
    key: &[&str],
    partitions: usize,
) -> Result<DatasetReport, Error> {
    let (context, _scratch) = context(root, partitions);
    build(&config(dataset, key), &context).await
}

/// Origins and worth of the rows.
async fn worth(root: &Store) -> Vec<(u64, u64, f32)> {
    let rows = written(&root.child("dataset")).await;
    let mut worth: Vec<_> = rows
        .into_iter()
        .map(|row| (row.origin.sequence().get(), row.origin.row(), row.x[0]))
        .collect();
    worth.sort_by_key(|row| (row.0, row.1));
    worth
}

#[tokio::test]
async fn a_dataset_is_made_of_the_rows_of_a_child_table() {
    let root = Store::memory();
    orders(&root).await;
    let report = build_items(&root, ITEMS, &[], 3).await.unwrap();
    // 8 tens of orders with 0 to 9 items each, and 4.
    assert_eq!((report.rows_in, report.rejected), (12 * 45, 0));
    let rows = worth(&root).await;
    assert_eq!(rows.len(), 12 * 45);
    let expected =
        (0..8).flat_map(|_| (0..10_u8).flat_map(|n| (0..n).map(|place| f32::from(place * 10))));
    let first = rows
        .iter()
        .filter(|(sequence, ..)| *sequence == 0)
        .map(|(.., x)| *x);
    assert!(first.eq(expected));
    let manifest = read_manifest_of(&root).await;
    let names: Vec<String> = manifest
        .sources
        .iter()
        .map(|source| source.name.to_string())
        .collect();
    assert_eq!(names, ["a.items"]);
}

async fn read_manifest_of(root: &Store) -> Manifest {
    crate::read_manifest(&root.child("dataset")).await.unwrap()
}

#[tokio::test]
async fn of_records_with_a_key_only_the_items_of_the_newest_are_read() {
    let root = Store::memory();
    orders(&root).await;
    let report = build_items(&root, ITEMS, &["id"], 3).await.unwrap();
    // 20 orders of the first batch are older than those of the second.
    assert_eq!((report.rows_in, report.duplicates), (12 * 45, 2 * 45));
    let rows = worth(&root).await;
    let of = |batch: u64| rows.iter().filter(move |(sequence, ..)| *sequence == batch);
    assert_eq!((of(0).count(), of(1).count()), (6 * 45, 4 * 45));
    assert!(
        of(0).all(|(_, row, _)| *row < 6 * 45),
        "those of orders 0 to 59 come first"
    );
    let dataset = contents(&root.child("dataset")).await;
    let again = Store::memory();
    orders(&again).await;
    build_items(&again, ITEMS, &["id"], 1).await.unwrap();
    assert_eq!(contents(&again.child("dataset")).await, dataset);
    // One that is read otherwise is another dataset.
    let report = build_items(&root, ITEMS, &[], 3).await.unwrap();
    assert_eq!((report.up_to_date, report.duplicates), (false, 0));
}

#[tokio::test]
async fn items_that_land_later_are_added_and_records_without_any_move_the_position_alone() {
    let root = Store::memory();
    let mut zone = LandingZone::new(&root, "a", &[("id", Int64)]);
    let items = LandingZone::new(&root, "unused", &[("order", Int64), ("x", Int64)]);
    let orders =
        |ids: std::ops::Range<u32>| -> Vec<Cells> { ids.map(|id| vec![json!(id)]).collect() };
    let each = |ids: std::ops::Range<u32>| -> Vec<(u32, Cells)> {
        (0..)
            .zip(ids)
            .map(|(row, id)| (row, vec![json!(id), json!(id * 3)]))
            .collect()
    };
    zone.family(&orders(0..200), ("items", &items), &each(0..200))
        .await;
    build_items(&root, ITEMS, &[], 2).await.unwrap();
    let before = worth(&root).await;
    zone.batch(&orders(500..510)).await;
    let report = build_items(&root, ITEMS, &[], 2).await.unwrap();
    let added = report.added.unwrap();
    assert_eq!((added.rows_in, added.shards), (0, 0));
    assert_eq!(worth(&root).await, before);
    assert_eq!(read_manifest_of(&root).await.sources[0].sequence.get(), 1);
    zone.family(&orders(200..250), ("items", &items), &each(200..250))
        .await;
    let report = build_items(&root, ITEMS, &[], 2).await.unwrap();
    assert_eq!((report.rows_in, report.added.unwrap().rows_in), (250, 50));
    let now = worth(&root).await;
    assert_eq!(now.len(), 250);
    assert!(before.iter().all(|row| now.contains(row)));
    // An entry without items is behind the dataset, and no addition.
    assert_eq!(read_manifest_of(&root).await.additions.len(), 1);
}

#[tokio::test]
async fn records_stand_beside_and_under_their_items() {
    let root = Store::memory();
    orders(&root).await;
    let mut zone = LandingZone::new(&root, "b", &[("id", Int64), ("who", Utf8)]);
    let rows: Vec<Cells> = (0..100)
        .map(|id| vec![json!(id), json!(format!("w{}", id % 3))])
        .collect();
    zone.batch(&rows).await;
    let dataset = "sources = [\"a.items\"]\nfeatures = [\"x\", \"who\"]\nsplit = { key = [\"order\"] }\n\
                   join = [{ source = \"b\", left = \"order\", right = \"id\" }]\n";
    let report = build_items(&root, dataset, &[], 2).await.unwrap();
    assert_eq!((report.rejected, report.joins[0].unmatched), (0, 0));
    let both = "sources = [\"a\", \"a.items\"]\nfeatures = [\"x\"]\ndedup = \"none\"\n";
    let report = build_items(&root, both, &[], 2).await.unwrap();
    assert_eq!(report.rows_in, 120 + 12 * 45);
}

#[tokio::test]
async fn a_damaged_child_file_or_record_file_stops_the_build() {
    for folder in ["children/items", "data"] {
        let root = Store::memory();
        orders(&root).await;
        let file = &root.list(&format!("landing/a/{folder}")).await.unwrap()[0].path;
        crate::testing::flip_bit(&root, file, 20).await;
        let error = build_items(&root, ITEMS, &["id"], 2)
            .await
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(folder) && error.contains("has hash"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_table_that_is_not_there_names_those_that_are() {
    let root = Store::memory();
    orders(&root).await;
    let check = async |name: &str, expected: &str| {
        let dataset = format!("sources = [\"{name}\"]\n");
        let error = build_items(&root, &dataset, &[], 1)
            .await
            .unwrap_err()
            .to_string();
        assert_eq!(error, format!("`dataset.sources`: {expected}"));
    };
    check(
        "a.item",
        "source `a` has no child table `item` among items; did you mean `items`?",
    )
    .await;
    check("c.items", "there is no source `c` among a, b").await;
    check(
        "b.items",
        "source `b` has no child tables; make one of a list with `[source.contract.children.items]`",
    )
    .await;
    check("a.items\", \"a.items", "`a.items` is listed twice").await;
    let mut zone = LandingZone::new(&root, "b", &[("id", Int64)]);
    zone.batch(&[vec![json!(1)]]).await;
    let mut config = config("sources = [\"b.items\"]\n", &[]);
    let items = Name::new("items").unwrap();
    config.source[1].contract.children = [(items, ChildConfig::default())].into();
    let (context, _scratch) = context(&root, 1);
    let error = build(&config, &context).await.unwrap_err().to_string();
    assert!(
        error.contains("source `b.items`") && error.contains("no rows have landed"),
        "{error}"
    );
}
