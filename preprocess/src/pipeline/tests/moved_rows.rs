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
use tempfile::TempDir;

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

/// A dataset that was built from [`orders`] and [`products`].
struct BuiltOrders {
    root: Store,
    config: PipelineConfig,
    context: Context,
    orders: LandingZone,
    products: LandingZone,
    _scratch: TempDir,
}

impl BuiltOrders {
    async fn new(config: PipelineConfig) -> Self {
        let root = Store::memory();
        let (orders, products) = (orders(&root).await, products(&root).await);
        let (context, scratch) = context(&root, 2);
        build(&config, &context).await.unwrap();
        Self {
            root,
            config,
            context,
            orders,
            products,
            _scratch: scratch,
        }
    }

    /// Builds the dataset once more.
    async fn build(&self) -> Result<DatasetReport, Error> {
        build(&self.config, &self.context).await
    }

    /// Lands the next versions of orders 0 to 39.
    async fn land_newer(&mut self) {
        let rows: Vec<Cells> = (0..40).map(newer).collect();
        self.orders.batch(&rows).await;
    }

    /// Damages the first training shard.
    async fn damage(&self) {
        let shard = first_shard(&self.root).await;
        flip_bit(&self.root.child("dataset"), &shard, 200).await;
    }
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
    let mut built = BuiltOrders::new(weighed("")).await;
    let before = splits(&built.root).await;
    // A product that no order has changes no row.
    built.products.batch(&[vec![json!(9), json!(5)]]).await;
    let report = built.build().await.unwrap();
    assert!(report.anew.is_some());
    assert_eq!(splits(&built.root).await, before);
    built.products.batch(&other_weights()).await;
    let parts = ["from test to train", "since joined columns have changed"];
    check_refused(built.build().await, &parts);
    assert_eq!(splits(&built.root).await, before);
    refit(&built.config, &built.context).await.unwrap();
    assert_ne!(splits(&built.root).await, before);
    assert!(built.build().await.unwrap().up_to_date);
}

#[tokio::test]
async fn rows_with_a_key_of_the_split_stay_where_joined_columns_change() {
    let mut built = BuiltOrders::new(weighed("split = { key = [\"id\"] }\n")).await;
    let before = splits(&built.root).await;
    built.products.batch(&other_weights()).await;
    let report = built.build().await.unwrap();
    assert!(report.anew.is_some());
    assert_eq!(splits(&built.root).await, before);
    assert_eq!(warning_of(&report, "rows_changed_split"), None);
}

#[tokio::test]
async fn splits_that_all_rows_decide_stay_where_only_a_joined_source_has_changed() {
    for split in ["by = \"range\"", "by = \"time\", time = \"id\""] {
        let mut built = BuiltOrders::new(weighed(&format!("split = {{ {split} }}\n"))).await;
        let before = splits(&built.root).await;
        built.products.batch(&other_weights()).await;
        let report = built.build().await.unwrap();
        let reason = report.anew.clone().unwrap();
        assert!(reason.contains("has landed more rows"), "{reason}");
        assert_eq!(splits(&built.root).await, before, "{split}");
        assert_eq!(warning_of(&report, "rows_changed_split"), None);
        // Rows that have landed as well can move them.
        built.products.batch(&[vec![json!(3), json!(72)]]).await;
        let rows: Vec<Cells> = (300..320).map(order).collect();
        built.orders.batch(&rows).await;
        let error = built.build().await.unwrap_err().to_string();
        assert!(error.contains("rows have landed since"), "{error}");
    }
}

#[tokio::test]
async fn a_joined_source_that_moves_rows_among_all_of_them_needs_a_refit() {
    let split = "split = { by = \"time\", time = \"weight\", train = 0.5, validation = 0.25, test = 0.25 }\n";
    let mut built = BuiltOrders::new(weighed(split)).await;
    let before = splits(&built.root).await;
    // A product that no order has.
    built.products.batch(&[vec![json!(9), json!(5)]]).await;
    built.build().await.unwrap();
    assert_eq!(splits(&built.root).await, before);
    built.products.batch(&other_weights()).await;
    let error = built.build().await.unwrap_err();
    assert_eq!(config_key(&error), Some("dataset.split.until"), "{error}");
    let error = error.to_string();
    for part in [
        "a joined source has changed since",
        "from test to train",
        "pass `--refit` to",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert_eq!(splits(&built.root).await, before);
    refit(&built.config, &built.context).await.unwrap();
    assert_ne!(splits(&built.root).await, before);
}

/// The parts of orders by a joined column, in source `b`.
async fn parts(root: &Store) -> LandingZone {
    let mut zone = LandingZone::new(root, "b", &[("sku", Int64), ("part", Utf8)]);
    let parts = ["train", "train", "validation", "test"];
    let rows = (0_i64..).zip(parts);
    let rows: Vec<Cells> = rows
        .map(|(sku, part)| vec![json!(sku), json!(part)])
        .collect();
    zone.batch(&rows).await;
    zone
}

/// Checks that the orders of product 1 cannot go from training to test by `key` without a refit.
async fn check_moved_by_values(
    root: &Store,
    config: &PipelineConfig,
    context: &Context,
    key: &str,
) {
    let before = splits(root).await;
    let error = build(config, context).await.unwrap_err();
    assert_eq!(config_key(&error), Some(key), "{error}");
    let error = error.to_string();
    for part in [
        "a joined source has changed since",
        "75 rows would be in another split (75 from train to test)",
        "pass `--refit` to",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert_eq!(splits(root).await, before);
    refit(config, context).await.unwrap();
    assert_ne!(splits(root).await, before);
}

#[tokio::test]
async fn a_joined_column_that_names_another_split_needs_a_refit() {
    let root = Store::memory();
    let mut orders = orders(&root).await;
    let mut parts = parts(&root).await;
    let (context, _scratch) = context(&root, 2);
    let config = weighed("split = { by = \"column\", column = \"part\" }\n");
    build(&config, &context).await.unwrap();
    let before = splits(&root).await;
    // A product that no order has moves none.
    parts.batch(&[vec![json!(9), json!("test")]]).await;
    let report = build(&config, &context).await.unwrap();
    assert!(report.anew.is_some());
    assert_eq!(splits(&root).await, before);
    // No new row can move another, so the join alone has.
    parts.batch(&[vec![json!(1), json!("test")]]).await;
    orders.batch(&[order(300)]).await;
    check_moved_by_values(&root, &config, &context, "dataset.split.column").await;
}

#[tokio::test]
async fn joined_values_that_an_expression_or_a_boundary_reads_need_a_refit_where_they_move_rows() {
    let expression =
        "case when weight < 2 then 'train' when weight = 2 then 'validation' else 'test' end";
    let by_expression = format!("by = \"expression\", expression = \"{expression}\"");
    let until = "by = \"time\", time = \"weight\", until = [\"2\", \"3\"]";
    for (split, key) in [
        (by_expression.as_str(), "dataset.split.expression"),
        (until, "dataset.split.time"),
    ] {
        let mut built = BuiltOrders::new(weighed(&format!("split = {{ {split} }}\n"))).await;
        built.products.batch(&[vec![json!(1), json!(70)]]).await;
        check_moved_by_values(&built.root, &built.config, &built.context, key).await;
    }
}

#[tokio::test]
async fn a_new_column_of_a_joined_source_needs_a_refit_unless_the_split_has_a_key() {
    for (split, is_refused) in [("", true), ("split = { key = [\"id\"] }\n", false)] {
        let mut built = BuiltOrders::new(weighed(split)).await;
        let before = splits(&built.root).await;
        let products = &mut built.products;
        products.evolve(&[("sku", Int64), ("weight", Int64), ("color", Int64)]);
        let colored = (0..4).map(|sku| vec![json!(sku), json!(sku), json!(sku % 2)]);
        products.batch(&colored.collect::<Vec<Cells>>()).await;
        let rebuilt = built.build().await;
        match is_refused {
            true => check_refused(rebuilt, &["since joined columns have changed"]),
            false => assert_eq!(warning_of(&rebuilt.unwrap(), "rows_changed_split"), None),
        }
        assert_eq!(splits(&built.root).await, before);
    }
}

#[tokio::test]
async fn newer_versions_of_rows_are_a_warning_unless_the_split_has_a_key() {
    for (split, is_warned) in [("", true), ("split = { key = [\"id\"] }\n", false)] {
        let mut built = BuiltOrders::new(keyed(&format!("{DATASET}{split}"))).await;
        // Rows that land again as they were, and new ones.
        let rows: Vec<Cells> = (290..320).map(order).collect();
        built.orders.batch(&rows).await;
        let report = built.build().await.unwrap();
        assert!(report.anew.is_some());
        assert_eq!(warning_of(&report, "rows_changed_split"), None);
        built.land_newer().await;
        let report = built.build().await.unwrap();
        match is_warned {
            true => check_not_found(&report, 40),
            false => assert_eq!(warning_of(&report, "rows_changed_split"), None),
        }
    }
}

#[tokio::test]
async fn newer_versions_are_counted_beside_a_join_and_a_new_column() {
    let mut config = weighed("");
    config.source[0].key = vec!["id".to_owned()];
    let mut built = BuiltOrders::new(config).await;
    let columns = [("id", Int64), ("sku", Int64), ("y", Int64), ("late", Int64)];
    built.orders.evolve(&columns);
    let late = |id: i64| vec![json!(id), json!(id % 4), json!(id + 1), json!(id % 2)];
    let rows: Vec<Cells> = (0..40).map(late).collect();
    built.orders.batch(&rows).await;
    let report = built.build().await.unwrap();
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

    let mut built = BuiltOrders::new(config).await;
    built.land_newer().await;
    built.orders.merge(0, 1).await;
    // Retention removes the files that the merged one has superseded.
    let landing = built.root.child("landing/a");
    for file in landing.list("superseded").await.unwrap() {
        landing.delete(&file.path).await.unwrap();
    }
    let report = built.build().await.unwrap();
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
    let mut built = BuiltOrders::new(keyed(DATASET)).await;
    let rows = (0..40).map(newer).chain((40..300).map(order));
    overwrite(&mut built.orders, rows).await;
    let report = built.build().await.unwrap();
    let reason = report.anew.clone().unwrap();
    assert!(reason.contains("withdrawn"), "{reason}");
    check_not_found(&report, 40);

    let config = pipeline(&format!("{DATASET}split = {{ by = \"range\" }}\n"));
    let mut built = BuiltOrders::new(config).await;
    overwrite(&mut built.orders, (0..300).rev().map(order)).await;
    let report = built.build().await.unwrap();
    let warning = warning_of(&report, "rows_changed_split").unwrap();
    let part = "from test to train";
    assert!(warning.message.contains(part), "{warning:?}");
}

#[tokio::test]
async fn rows_of_an_overwritten_file_cannot_be_compared_where_joined_columns_change_too() {
    for (split, is_warned) in [("", true), ("split = { key = [\"id\"] }\n", false)] {
        let mut built = BuiltOrders::new(weighed(split)).await;
        let rows = [300].into_iter().chain(0..300).map(order);
        overwrite(&mut built.orders, rows).await;
        built.products.batch(&other_weights()).await;
        let report = built.build().await.unwrap();
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
    let mut built = BuiltOrders::new(keyed(DATASET)).await;
    built.land_newer().await;
    built.config = keyed(&format!("{DATASET}scale_target = false\n"));
    check_not_found(&built.build().await.unwrap(), 40);
    // Neither changes the content of a row.
    for keys in ["", "split = { salt = \"other\" }\n"] {
        built.config = keyed(&format!("{DATASET}{keys}"));
        let report = built.build().await.unwrap();
        assert!(report.anew.is_some());
        assert_eq!(warning_of(&report, "rows_changed_split"), None, "{keys}");
    }
    built.config = keyed(&format!("{DATASET}dedup_ignore = [\"id\"]\n"));
    let report = built.build().await.unwrap();
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
    let mut built = BuiltOrders::new(keyed(DATASET)).await;
    built.damage().await;
    built.orders.batch(&[newer(0)]).await;
    let report = built.build().await.unwrap();
    let warning = warning_of(&report, "splits_not_compared").unwrap();
    assert!(warning.message.contains("has hash"), "{warning:?}");

    for (split, is_refused) in [("", true), ("split = { key = [\"id\"] }\n", false)] {
        let mut built = BuiltOrders::new(weighed(split)).await;
        built.damage().await;
        built.products.batch(&other_weights()).await;
        let rebuilt = built.build().await;
        match is_refused {
            true => assert!(matches!(rebuilt, Err(Error::Input { .. })), "{rebuilt:?}"),
            // The key keeps the rows in their splits, so no shard is read.
            false => assert_eq!(warning_of(&rebuilt.unwrap(), "splits_not_compared"), None),
        }
    }
}

#[tokio::test]
async fn each_shard_of_the_earlier_dataset_is_read_once() {
    let mut built = BuiltOrders::new(keyed(DATASET)).await;
    built.land_newer().await;
    // All reads of the shard but the first fail.
    let rule = Rule {
        operation: Operation::Read,
        path_contains: first_shard(&built.root).await,
        skip: 1,
        times: u64::MAX,
        effect: Effect::FailBefore,
    };
    let faulty = built.root.with_faults(Faults::new(vec![rule]));
    let (context, _scratch) = context(&faulty, 2);
    check_not_found(&build(&built.config, &context).await.unwrap(), 40);
}
