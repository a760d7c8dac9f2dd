//! Records can be rebuilt from their rows and those of their child tables.

use std::collections::BTreeMap;

use arrow::array::{Array, AsArray, RecordBatch};
use feedline_schemas::ids::{Name, Sequence};
use proptest::prelude::*;

use super::tests::{decided, integers, places, rows};
use crate::batch::tests::texts;

/// A part: its name, if it has one.
type Part = Option<String>;

#[derive(Clone, Debug)]
struct Item {
    n: Option<i64>,
    parts: Vec<Part>,
}

/// A record with a list of objects that each hold a list of strings, and a list of integers inside
/// an object.
#[derive(Clone, Debug, Default)]
struct Order {
    items: Vec<Item>,
    tags: Vec<i64>,
}

fn order() -> impl Strategy<Value = Order> {
    let part = proptest::option::of("[a-z]{0,2}");
    let item = (any::<Option<i64>>(), proptest::collection::vec(part, 0..3));
    let item = item.prop_map(|(n, parts)| Item { n, parts });
    let items = proptest::collection::vec(item, 0..4);
    let tags = proptest::collection::vec(any::<i64>(), 0..3);
    (items, tags).prop_map(|(items, tags)| Order { items, tags })
}

fn written(id: usize, order: &Order) -> String {
    let items = order
        .items
        .iter()
        .map(|item| serde_json::json!({ "n": item.n, "parts": item.parts }));
    let items: Vec<_> = items.collect();
    serde_json::json!({ "id": id, "items": items, "owner": { "tags": order.tags } }).to_string()
}

/// The orders that the rows of the tables make, by the row of their record.
fn read(
    items: Option<RecordBatch>,
    parts: Option<RecordBatch>,
    tags: Option<RecordBatch>,
) -> BTreeMap<u32, Order> {
    let mut orders: BTreeMap<u32, Order> = BTreeMap::new();
    let at = |batch: &RecordBatch, column: &str, row: usize| places(batch, column)[row];
    if let Some(batch) = items {
        for row in 0..batch.num_rows() {
            let order = orders
                .entry(at(&batch, "_feedline_parent", row))
                .or_default();
            assert_eq!(
                at(&batch, "_feedline_index", row) as usize,
                order.items.len()
            );
            let n = batch
                .column_by_name("n")
                .filter(|n| n.data_type().is_integer());
            let n = n.and_then(|_| integers(&batch, "n")[row]);
            order.items.push(Item {
                n,
                parts: Vec::new(),
            });
        }
    }
    if let Some(batch) = parts {
        for row in 0..batch.num_rows() {
            let order = orders
                .get_mut(&at(&batch, "_feedline_parent", row))
                .unwrap();
            let item = &mut order.items[at(&batch, "_feedline_index", row) as usize];
            assert_eq!(
                at(&batch, "_feedline_index_2", row) as usize,
                item.parts.len()
            );
            let part = batch
                .column_by_name("value")
                .and_then(|_| texts(&batch, "value")[row]);
            item.parts.push(part.map(str::to_owned));
        }
    }
    if let Some(batch) = tags {
        for row in 0..batch.num_rows() {
            let order = orders
                .entry(at(&batch, "_feedline_parent", row))
                .or_default();
            assert_eq!(
                at(&batch, "_feedline_index", row) as usize,
                order.tags.len()
            );
            order.tags.push(
                batch["value"]
                    .as_primitive::<arrow::datatypes::Int64Type>()
                    .value(row),
            );
        }
    }
    orders
}

proptest! {
    #[test]
    fn records_and_their_child_rows_make_what_came(orders in proptest::collection::vec(order(), 1..6)) {
        let records: Vec<String> = orders.iter().enumerate().map(|(id, order)| written(id, order)).collect();
        let records: Vec<&str> = records.iter().map(String::as_str).collect();
        let decided = decided(
            &records,
            "[source.contract.children]\nitems = {}\nparts = { of = \"items\" }\ntags = { path = \"owner.tags\" }\n",
        );
        prop_assert!(decided.rejects().is_empty());
        let files = decided.child_files(Sequence::new(7)).unwrap();
        let [items, parts, tags] = ["items", "parts", "tags"].map(|name| {
            let (table, _) = &files[&Name::new(name).unwrap()];
            (!table.files.is_empty()).then(|| rows(&decided, name))
        });
        let mut found = read(items, parts, tags);
        for (row, order) in (0..).zip(&orders) {
            let found = found.remove(&row).unwrap_or_default();
            prop_assert_eq!(written(0, &found), written(0, order));
        }
        prop_assert!(found.is_empty());
    }
}
