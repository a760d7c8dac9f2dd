//! Data for tests, of this crate and of those that read through it.

#![expect(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "data of tests; a panic is a failed test"
)]

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use parquet::arrow::ArrowWriter;
use proptest::prelude::*;

use crate::value::Value;

/// A Parquet file with these columns.
pub fn parquet_file(columns: Vec<(&str, ArrayRef)>) -> Vec<u8> {
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.into_inner().unwrap()
}

/// A Parquet file with rows `{"n":0}`, `{"n":1}` and so on.
pub fn numbers(rows: i64) -> Vec<u8> {
    parquet_file(vec![("n", Arc::new(Int64Array::from_iter_values(0..rows)))])
}

/// Any JSON value whose canonical form parses back to it.
pub fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::Int),
        any::<f64>()
            .prop_filter("finite", |v| v.is_finite())
            .prop_map(Value::Float),
        any::<String>().prop_map(Value::Text),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::List),
            object_of(inner)
        ]
    })
}

/// Any record: an object of [`any_json`] with keys that like to collide.
pub fn any_record() -> impl Strategy<Value = Value> {
    object_of(any_json())
}

fn object_of(inner: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    let key = prop_oneof![r"[ab.\\]{0,3}", any::<String>()];
    proptest::collection::btree_map(key, inner, 0..5)
        .prop_map(|map| Value::Object(map.into_iter().collect()))
}
