//! Rows that a rebuild would put into another split.

use std::collections::BTreeMap;

use feedline_schemas::{
    ids::Origin,
    manifest::Split,
    record::ColumnType::{Int64, Utf8},
    report::Warning,
};
use feedline_storage::{Effect, Faults, Operation, Rule, Store};
use serde_json::json;

use crate::pipeline::*;
use crate::read_manifest;
use crate::testing::{Cells, LandingZone, config_key, context, flip_bit, pipeline, written};

const DATASET: &str = "sources = [\"a\"]\ntarget = \"y\"\ndrop = [\"id\"]\n";

/// Split of each row, by its landing position.
async fn splits(root: &Store) -> BTreeMap<Origin, Split> {
    let rows = written(&root.child("dataset")).await;
    rows.iter().map(|row| (row.origin, row.split)).collect()
}

fn order(id: i64) -> Cells {
    vec![json!(id), json!(id % 4), json!(id * 7 % 101)]
}

/// Orders 0 to 299, each of one of four products, in source `a`.
async fn orders(root: &Store) -> LandingZone {
    let mut zone = LandingZone::new(root, "a", &[("id", Int64), ("sku", Int64), ("y", Int64)]);
    let orders: Vec<Cells> = (0..300).map(order).collect();
    zone.batch(&orders).await;
    zone
}

/// The four products, each with its weight, in source `b`.
async fn products(root: &Store) -> LandingZone {
    let mut zone = LandingZone::new(root, "b", &[("sku", Int64), ("weight", Int64)]);
    let products: Vec<Cells> = (0..4).map(|sku| vec![json!(sku), json!(sku)]).collect();
    zone.batch(&products).await;
    zone
}

/// Orders with the weights of their products.
fn weighed(split: &str) -> PipelineConfig {
    let join = "join = [{ source = \"b\", left = \"sku\", right = \"sku\" }]\n";
    let mut config = pipeline(&format!("{DATASET}{join}{split}"));
    config.source[1].key = vec!["sku".to_owned()];
    config
}

/// New weights of two products.
fn other_weights() -> [Cells; 2] {
    [(1, 70), (2, 71)].map(|(sku, weight)| vec![json!(sku), json!(weight)])
}

/// Orders; only the latest version of each id is read.
fn keyed(dataset: &str) -> PipelineConfig {
    let mut config = pipeline(dataset);
    config.source[0].key = vec!["id".to_owned()];
    config
}

/// Another version of the order `id`.
fn newer(id: i64) -> Cells {
    vec![json!(id), json!(7), json!(id + 1)]
}

/// Path of the first training shard.
async fn first_shard(root: &Store) -> String {
    let manifest = read_manifest(&root.child("dataset")).await.unwrap();
    manifest.splits[0].shards[0].path.clone()
}

fn warning_of(report: &DatasetReport, code: &str) -> Option<Warning> {
    let mut warnings = report.warnings.iter();
    warnings.find(|warning| warning.code == code).cloned()
}

/// Checks that a build counts rows of the dataset before that it lacks.
fn check_not_found(report: &DatasetReport, rows: u64) {
    let warning = warning_of(report, "rows_changed_split").unwrap();
    let part = format!("{rows} rows of the earlier dataset are no longer found");
    assert!(warning.message.starts_with(&part), "{warning:?}");
    assert_eq!(warning.key.as_deref(), Some("dataset.split.key"));
}

fn check_refused(refused: Result<DatasetReport, Error>, parts: &[&str]) {
    let error = refused.unwrap_err();
    assert_eq!(config_key(&error), Some("dataset.split.key"), "{error}");
    let error = error.to_string();
    for part in [parts, &["pass `--refit` to"]].concat() {
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[tokio::test]
async fn a_joined_source_that_changes_rows_of_the_dataset_needs_a_refit() {
    let root = Store::memory();
    orders(&root).await;
    let mut products = products(&root).await;
    let (context, _scratch) = context(&root, 2);
    let config = weighed("");
    build(&config, &context).await.unwrap();
    let before = splits(&root).await;
    // A product that no order has changes no row.
    products.batch(&[vec![json!(9), json!(5)]]).await;
    let report = build(&config, &context).await.unwrap();
    assert!(report.anew.is_some());
    assert_eq!(splits(&root).await, before);
    products.batch(&other_weights()).await;
    let parts = ["from test to train", "since joined columns have changed"];
    check_refused(build(&config, &context).await, &parts);
    assert_eq!(splits(&root).await, before);
    refit(&config, &context).await.unwrap();
    assert_ne!(splits(&root).await, before);
    assert!(build(&config, &context).await.unwrap().up_to_date);
}

#[tokio::test]
async fn rows_with_a_key_of_the_split_stay_where_joined_columns_change() {
    let root = Store::memory();
    orders(&root).await;
    let mut products = products(&root).await;
    let (context, _scratch) = context(&root, 2);
    let config = weighed("split = { key = [\"id\"] }\n");
    build(&config, &context).await.unwrap();
    let before = splits(&root).await;
    products.batch(&other_weights()).await;
    let report = build(&config, &context).await.unwrap();
    assert!(report.anew.is_some());
    assert_eq!(splits(&root).await, before);
    assert_eq!(warning_of(&report, "rows_changed_split"), None);
}

#[tokio::test]
async fn a_new_column_of_a_joined_source_needs_a_refit_unless_the_split_has_a_key() {
    for (split, is_refused) in [("", true), ("split = { key = [\"id\"] }\n", false)] {
        let root = Store::memory();
        orders(&root).await;
        let mut products = products(&root).await;
        let (context, _scratch) = context(&root, 2);
        let config = weighed(split);
        build(&config, &context).await.unwrap();
        let before = splits(&root).await;
        products.evolve(&[("sku", Int64), ("weight", Int64), ("color", Int64)]);
        let colored = (0..4).map(|sku| vec![json!(sku), json!(sku), json!(sku % 2)]);
        products.batch(&colored.collect::<Vec<Cells>>()).await;
        let built = build(&config, &context).await;
        match is_refused {
            true => check_refused(built, &["since joined columns have changed"]),
            false => assert_eq!(warning_of(&built.unwrap(), "rows_changed_split"), None),
        }
        assert_eq!(splits(&root).await, before);
    }
}

#[tokio::test]
async fn newer_versions_of_rows_are_a_warning_unless_the_split_has_a_key() {
    for (split, is_warned) in [("", true), ("split = { key = [\"id\"] }\n", false)] {
        let root = Store::memory();
        let mut zone = orders(&root).await;
        let (context, _scratch) = context(&root, 2);
        let config = keyed(&format!("{DATASET}{split}"));
        build(&config, &context).await.unwrap();
        // Rows that land again as they were, and new ones.
        zone.batch(&(290..320).map(order).collect::<Vec<Cells>>())
            .await;
        let report = build(&config, &context).await.unwrap();
        assert!(report.anew.is_some());
        assert_eq!(warning_of(&report, "rows_changed_split"), None);
        zone.batch(&(0..40).map(newer).collect::<Vec<Cells>>())
            .await;
        let report = build(&config, &context).await.unwrap();
        match is_warned {
            true => check_not_found(&report, 40),
            false => assert_eq!(warning_of(&report, "rows_changed_split"), None),
        }
    }
}

#[tokio::test]
async fn newer_versions_are_counted_beside_a_join_and_a_new_column() {
    let root = Store::memory();
    let mut zone = orders(&root).await;
    products(&root).await;
    let (context, _scratch) = context(&root, 2);
    let mut config = weighed("");
    config.source[0].key = vec!["id".to_owned()];
    build(&config, &context).await.unwrap();
    zone.evolve(&[("id", Int64), ("sku", Int64), ("y", Int64), ("late", Int64)]);
    let late = |id: i64| vec![json!(id), json!(id % 4), json!(id + 1), json!(id % 2)];
    zone.batch(&(0..40).map(late).collect::<Vec<Cells>>()).await;
    let report = build(&config, &context).await.unwrap();
    let reason = report.anew.clone().unwrap();
    assert!(reason.contains("`late` (new)"), "{reason}");
    check_not_found(&report, 40);
}

#[tokio::test]
async fn rows_that_a_join_rejects_now_are_counted_and_need_no_refit() {
    let root = Store::memory();
    orders(&root).await;
    let mut products = LandingZone::new(&root, "b", &[("sku", Int64), ("weight", Int64)]);
    for skus in [0..3, 3..4] {
        let rows: Vec<Cells> = skus.map(|sku| vec![json!(sku), json!(sku)]).collect();
        products.batch(&rows).await;
    }
    let (context, _scratch) = context(&root, 2);
    let join =
        "join = [{ source = \"b\", left = \"sku\", right = \"sku\", unmatched = \"reject\" }]\n";
    let config = keyed(&format!("{DATASET}max_reject_fraction = 0.5\n{join}"));
    build(&config, &context).await.unwrap();
    products.amend(&[1], None).await;
    let report = build(&config, &context).await.unwrap();
    assert_eq!(report.rejected, 75);
    check_not_found(&report, 75);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_compared_where_a_source_no_longer_has_all_of_them() {
    let config = keyed(DATASET);
    let root = Store::memory();
    let mut zone = orders(&root).await;
    zone.batch(&(300..340).map(order).collect::<Vec<Cells>>())
        .await;
    let (withdrawn, _scratch) = context(&root, 2);
    build(&config, &withdrawn).await.unwrap();
    zone.amend(&[1], None).await;
    check_not_found(&build(&config, &withdrawn).await.unwrap(), 40);

    let root = Store::memory();
    let mut zone = orders(&root).await;
    let (merged, _scratch) = context(&root, 2);
    build(&config, &merged).await.unwrap();
    zone.batch(&(0..40).map(newer).collect::<Vec<Cells>>())
        .await;
    zone.merge(0, 1).await;
    // Retention removes the files that the merged one has superseded.
    let landing = root.child("landing/a");
    for file in landing.list("superseded").await.unwrap() {
        landing.delete(&file.path).await.unwrap();
    }
    let report = build(&config, &merged).await.unwrap();
    let reason = report.anew.clone().unwrap();
    assert!(reason.contains("removed by retention"), "{reason}");
    check_not_found(&report, 40);
}

/// Replaces the batch of [`orders`] by these rows, as a file does that is overwritten.
async fn overwrite(zone: &mut LandingZone, rows: impl Iterator<Item = Cells>) {
    zone.amend(&[0], None).await;
    zone.batch(&rows.collect::<Vec<Cells>>()).await;
}

#[tokio::test]
async fn rows_of_a_file_that_is_overwritten_are_found_by_their_content() {
    let root = Store::memory();
    let mut zone = orders(&root).await;
    let (keyed_rows, _scratch) = context(&root, 2);
    build(&keyed(DATASET), &keyed_rows).await.unwrap();
    overwrite(&mut zone, (0..40).map(newer).chain((40..300).map(order))).await;
    let report = build(&keyed(DATASET), &keyed_rows).await.unwrap();
    let reason = report.anew.clone().unwrap();
    assert!(reason.contains("withdrawn"), "{reason}");
    check_not_found(&report, 40);

    let root = Store::memory();
    let mut zone = orders(&root).await;
    let (ordered, _scratch) = context(&root, 2);
    let config = pipeline(&format!("{DATASET}split = {{ by = \"range\" }}\n"));
    build(&config, &ordered).await.unwrap();
    overwrite(&mut zone, (0..300).rev().map(order)).await;
    let report = build(&config, &ordered).await.unwrap();
    let warning = warning_of(&report, "rows_changed_split").unwrap();
    let part = "from test to train";
    assert!(warning.message.contains(part), "{warning:?}");
}

#[tokio::test]
async fn rows_of_an_overwritten_file_cannot_be_compared_where_joined_columns_change_too() {
    for (split, is_warned) in [("", true), ("split = { key = [\"id\"] }\n", false)] {
        let root = Store::memory();
        let mut zone = orders(&root).await;
        let mut products = products(&root).await;
        let (context, _scratch) = context(&root, 2);
        let config = weighed(split);
        build(&config, &context).await.unwrap();
        overwrite(&mut zone, [300].into_iter().chain(0..300).map(order)).await;
        products.batch(&other_weights()).await;
        let report = build(&config, &context).await.unwrap();
        let warning = warning_of(&report, "splits_not_compared");
        assert_eq!(warning.is_some(), is_warned, "{warning:?}");
        if let Some(warning) = warning {
            // Those of the two products.
            let part = "150 rows of the earlier dataset could not be compared";
            assert!(warning.message.starts_with(part), "{warning:?}");
            assert_eq!(warning.key.as_deref(), Some("dataset.split.key"));
        }
    }
}

#[tokio::test]
async fn rows_are_compared_beside_other_settings_unless_these_are_of_the_split() {
    let root = Store::memory();
    let mut zone = orders(&root).await;
    let (context, _scratch) = context(&root, 2);
    build(&keyed(DATASET), &context).await.unwrap();
    zone.batch(&(0..40).map(newer).collect::<Vec<Cells>>())
        .await;
    let plain = format!("{DATASET}scale_target = false\n");
    check_not_found(&build(&keyed(&plain), &context).await.unwrap(), 40);
    // Neither changes the content of a row.
    for keys in ["", "split = { salt = \"other\" }\n"] {
        let config = keyed(&format!("{DATASET}{keys}"));
        let report = build(&config, &context).await.unwrap();
        assert!(report.anew.is_some());
        assert_eq!(warning_of(&report, "rows_changed_split"), None, "{keys}");
    }
    let config = keyed(&format!("{DATASET}dedup_ignore = [\"id\"]\n"));
    let report = build(&config, &context).await.unwrap();
    let warning = warning_of(&report, "rows_changed_split").unwrap();
    assert_eq!(warning.key.as_deref(), Some("dataset.split.key"));
    let part = "settings of the dataset have changed";
    assert!(warning.message.contains(part), "{warning:?}");
}

#[tokio::test]
async fn near_duplicates_beside_a_join_need_a_refit_unless_rows_have_landed() {
    let root = Store::memory();
    let columns = [("id", Int64), ("sku", Int64), ("note", Utf8), ("y", Int64)];
    let mut zone = LandingZone::new(&root, "a", &columns);
    let order = |id: i64| {
        let words = (0..12).map(|word| format!("w{}", id * 12 + word));
        let note = words.collect::<Vec<String>>().join(" ");
        vec![json!(id), json!(id % 4), json!(note), json!(id % 5)]
    };
    zone.batch(&(0..300).map(order).collect::<Vec<Cells>>())
        .await;
    let mut products = products(&root).await;
    let (context, _scratch) = context(&root, 2);
    let mut config = pipeline(
        "sources = [\"a\"]\ntarget = \"y\"\ndrop = [\"id\", \"note\"]\nnear_dup = { column = \"note\" }\n\
         join = [{ source = \"b\", left = \"sku\", right = \"sku\" }]\n",
    );
    config.source[1].key = vec!["sku".to_owned()];
    build(&config, &context).await.unwrap();
    products.batch(&other_weights()).await;
    let parts = ["since joined columns have changed"];
    check_refused(build(&config, &context).await, &parts);
    zone.batch(&[order(300)]).await;
    let report = build(&config, &context).await.unwrap();
    let warning = warning_of(&report, "rows_changed_split").unwrap();
    assert_eq!(warning.key.as_deref(), Some("dataset.split.key"));
    let part = "groups have changed, or joined columns";
    assert!(warning.message.contains(part), "{warning:?}");
}

#[tokio::test]
async fn a_damaged_shard_stops_a_rebuild_only_where_a_join_can_have_moved_rows() {
    let root = Store::memory();
    let mut zone = orders(&root).await;
    let (context_of_versions, _scratch) = context(&root, 2);
    let config = keyed(DATASET);
    build(&config, &context_of_versions).await.unwrap();
    flip_bit(&root.child("dataset"), &first_shard(&root).await, 200).await;
    zone.batch(&[newer(0)]).await;
    let report = build(&config, &context_of_versions).await.unwrap();
    let warning = warning_of(&report, "splits_not_compared").unwrap();
    assert!(warning.message.contains("has hash"), "{warning:?}");

    for (split, is_refused) in [("", true), ("split = { key = [\"id\"] }\n", false)] {
        let root = Store::memory();
        orders(&root).await;
        let mut products = products(&root).await;
        let (context, _scratch) = context(&root, 2);
        let config = weighed(split);
        build(&config, &context).await.unwrap();
        flip_bit(&root.child("dataset"), &first_shard(&root).await, 200).await;
        products.batch(&other_weights()).await;
        let built = build(&config, &context).await;
        match is_refused {
            true => assert!(matches!(built, Err(Error::Input { .. })), "{built:?}"),
            // The key keeps the rows in their splits, so no shard is read.
            false => assert_eq!(warning_of(&built.unwrap(), "splits_not_compared"), None),
        }
    }
}

#[tokio::test]
async fn each_shard_of_the_earlier_dataset_is_read_once() {
    let root = Store::memory();
    let mut zone = orders(&root).await;
    let config = keyed(DATASET);
    let (plain, _scratch) = context(&root, 2);
    build(&config, &plain).await.unwrap();
    zone.batch(&(0..40).map(newer).collect::<Vec<Cells>>())
        .await;
    // All reads of the shard but the first fail.
    let rule = Rule {
        operation: Operation::Read,
        path_contains: first_shard(&root).await,
        skip: 1,
        times: u64::MAX,
        effect: Effect::FailBefore,
    };
    let faulty = root.with_faults(Faults::new(vec![rule]));
    let (context, _scratch) = context(&faulty, 2);
    check_not_found(&build(&config, &context).await.unwrap(), 40);
}
