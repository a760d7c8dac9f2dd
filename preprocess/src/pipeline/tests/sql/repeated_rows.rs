//! Rows of a table that a query repeats.

use feedline_schemas::{
    record::ColumnType::Int64,
    report::{DatasetReport, Warning},
};
use feedline_storage::Store;
use serde_json::json;

use super::{ORDERS, SHOPS, order};
use crate::testing::{Cells, LandingZone, build_with};

/// The warning that a query repeats rows.
fn repeated_rows(report: &DatasetReport) -> Option<&Warning> {
    let mut found = report.warnings.iter();
    found.find(|warning| warning.code == "sql_repeats_rows")
}

#[tokio::test]
async fn a_join_that_repeats_the_target_is_warned_of_unless_the_key_is_of_its_table() {
    let root = Store::memory();
    let orders: Vec<Cells> = (0..120).map(order).collect();
    LandingZone::new(&root, "a", &ORDERS).batch(&orders).await;
    let items = (0..600).map(|n| vec![json!(n % 120), json!(n)]);
    let items: Vec<Cells> = items.collect();
    LandingZone::new(&root, "b", &[("owner", Int64), ("n", Int64)])
        .batch(&items)
        .await;
    let inner = "from a join b on b.owner = a.id";
    let of_order = format!("select a.id, a.shop, b.n, a.Price as y {inner}");
    let of_owner = format!("select b.owner, a.shop, b.n, a.Price as y {inner}");
    let of_cast =
        format!("select cast(b.owner as text) as owner, a.shop, b.n, a.Price as y {inner}");
    let on_cast =
        "select b.owner, a.shop, b.n, a.Price as y from a join b on b.owner = cast(a.id as bigint)";
    let of_digit = "select a.id, b.owner, a.shop, b.n, a.Price as y from a join b on cast(b.owner as int) = a.id";
    let of_item = format!("select a.id, a.shop, b.n as y {inner}");
    let of_both = format!("select a.id, a.shop, b.n, a.Price * b.n as y {inner}");
    let left =
        "select a.id, b.owner, a.shop, b.n, a.Price as y from a left join b on b.owner = a.id";
    let by_time =
        "split = { by = \"time\", time = \"n\", train = 0.8, validation = 0.1, test = 0.1 }";
    let alone = Some("`y` comes from `a` alone, and it reads 120 rows of that: a join");
    let begins = Some("returns 600 rows, and it reads 120 from `a`");
    for (sql, split, expected) in [
        (of_order.as_str(), "", alone),
        // The items of an order have different numbers.
        (&of_order, "split = { key = [\"n\"] }", alone),
        (&of_order, "split = { key = [\"id\", \"n\"] }", alone),
        (&of_order, by_time, alone),
        (&of_order, "split = { key = [\"id\"] }", None),
        (&of_order, "split = { key = [\"shop\", \"id\"] }", None),
        // The join makes it equal to the id of the order.
        (&of_owner, "split = { key = [\"owner\"] }", None),
        (&of_cast, "split = { key = [\"owner\"] }", None),
        (on_cast, "split = { key = [\"owner\"] }", None),
        // Several owners may have one cast.
        (of_digit, "split = { key = [\"owner\"] }", alone),
        (of_digit, "split = { key = [\"id\"] }", None),
        // Each row has the target of one item.
        (&of_item, "", None),
        (&of_both, "", None),
        (left, "split = { key = [\"n\"] }", begins),
        (left, "split = { key = [\"id\"] }", None),
        (left, "split = { key = [\"owner\"] }", None),
    ] {
        let dataset = format!("sql = \"\"\"{sql}\"\"\"\ntarget = \"y\"\n{split}\n");
        let report = build_with(&root, &dataset, 2).await.unwrap();
        assert_eq!(report.rows_in, 600, "{sql}");
        let found = repeated_rows(&report);
        let case = format!("{sql}, {split}: {found:?}");
        assert_eq!(found.is_some(), expected.is_some(), "{case}");
        let message = found.map_or("", |warning| warning.message.as_str());
        assert!(message.contains(expected.unwrap_or_default()), "{case}");
    }
}

#[tokio::test]
async fn a_key_of_a_cross_join_is_of_the_table_of_the_target_or_of_the_combination() {
    let root = Store::memory();
    let orders: Vec<Cells> = (0..120).map(order).collect();
    LandingZone::new(&root, "a", &ORDERS).batch(&orders).await;
    let shops = (0..30).map(|shop| vec![json!(format!("s{shop}")), json!(format!("c{shop}"))]);
    let shops: Vec<Cells> = shops.collect();
    LandingZone::new(&root, "b", &SHOPS).batch(&shops).await;
    for (key, is_warned) in [
        ("\"id\"", false),
        ("\"id\", \"city\"", false),
        ("\"city\"", true),
    ] {
        let sql = "select a.id, b.city, a.Price as y, a.shop from a cross join b";
        let dataset = format!(
            "sql = \"{sql}\"\ntarget = \"y\"\nsplit = {{ key = [{key}], train = 0.7, validation = 0.3, test = 0.0 }}\n"
        );
        let report = build_with(&root, &dataset, 2).await.unwrap();
        assert_eq!(repeated_rows(&report).is_some(), is_warned, "{key}");
    }
}

#[tokio::test]
async fn of_a_source_with_a_key_the_latest_versions_are_the_rows_that_a_query_repeats() {
    for (shops, is_warned) in [(["x", "y", "z"], false), (["x", "y", "x"], true)] {
        let root = Store::memory();
        let orders: Vec<Cells> = (0..120).map(order).collect();
        let mut zone = LandingZone::new(&root, "a", &ORDERS);
        for _ in 0..3 {
            zone.batch(&orders).await;
        }
        let shops = shops.map(|shop| vec![json!(shop), json!(shop)]);
        LandingZone::new(&root, "b", &SHOPS).batch(&shops).await;
        let mut config = crate::testing::pipeline(
            "sources = [\"a\", \"b\"]\npassthrough = [\"id\"]\n\
             sql = \"select a.id, a.Price, b.city from a left join b on a.shop = b.name\"\n",
        );
        config.source[0].key = vec!["id".into()];
        let (context, _scratch) = crate::testing::context(&root, 2);
        let report = crate::build(&config, &context).await.unwrap();
        let found = repeated_rows(&report);
        assert_eq!(found.is_some(), is_warned, "{found:?}");
        let message = found.map_or("", |warning| warning.message.as_str());
        let read = "returns 160 rows, and it reads 120 from `a`";
        assert_eq!(message.contains(read), is_warned, "{message}");
    }
}
