//! Parquet.

use arrow::{
    array::{
        ArrayRef, BinaryArray, FixedSizeListArray, Float32Array, Float64Array, Int32Array,
        Int64Array, ListArray, StringArray, StructArray, UInt64Array,
    },
    buffer::OffsetBuffer,
    datatypes::{DataType, Field, Int64Type},
};
use feedline_schemas::manifest::{TargetKind, TokenType};
use feedline_storage::Store;
use parquet::{
    arrow::ArrowWriter,
    file::{metadata::KeyValue, properties::WriterProperties},
};

use super::{classes, documents, failure, image_files, keys, numbers, open, read_all, refused};
use crate::{
    BadShards,
    foreign::{column, parquet},
    input::{
        RowContent,
        block_rows::{BlockRows, BlockTarget},
        config::{ColumnMap, InputConfig},
        splits::SplitChoice,
    },
};

/// Rows `first..first + rows` of a table with a text column, two numbers, a class.
fn table(first: i32, rows: i32) -> bytes::Bytes {
    let all = first..first + rows;
    let names: Vec<_> = all.clone().map(|i| format!("row {i}")).collect();
    parquet(
        vec![
            ("name", column(StringArray::from(names))),
            (
                "a",
                column(Float64Array::from_iter_values(all.clone().map(f64::from))),
            ),
            (
                "label",
                column(Int64Array::from_iter_values(
                    all.clone().map(|i| i64::from(i % 7)),
                )),
            ),
            ("b", column(Int32Array::from_iter_values(all.map(|i| -i)))),
        ],
        600,
    )
}

async fn tables() -> Store {
    let store = Store::memory();
    store.put("part-0.parquet", table(0, 1_000)).await.unwrap();
    store
        .put("part-1.parquet", table(1_000, 700))
        .await
        .unwrap();
    store
        .put("_metadata/x.parquet", "not data".into())
        .await
        .unwrap();
    store
}

fn with(columns: ColumnMap) -> InputConfig {
    InputConfig {
        columns,
        ..InputConfig::default()
    }
}

#[tokio::test]
async fn a_folder_of_tables_gives_rows_in_the_order_of_names_and_rows() {
    let store = tables().await;
    let input = open(&store, &InputConfig::default()).await;
    assert_eq!(
        *input.record(),
        RowContent::Dense {
            features: 2,
            target: TargetKind::Classification { classes: 7 }
        }
    );
    let blocks = read_all(&input, &store).await.unwrap();
    let rows: Vec<_> = blocks.iter().map(BlockRows::rows).collect();
    assert_eq!(rows, [600, 400, 600, 100]);
    let expected: Vec<_> = (0..1_700u16)
        .flat_map(|i| [f32::from(i), -f32::from(i)])
        .collect();
    assert_eq!(numbers(&blocks), expected);
    assert_eq!(
        classes(&blocks),
        (0..1_700).map(|i| i % 7).collect::<Vec<_>>()
    );
    let origins: Vec<_> = blocks
        .iter()
        .flat_map(|rows| rows.origins().to_vec())
        .collect();
    assert_eq!(
        (origins[999], origins[1_000], origins[1_699]),
        (999, 1 << 40, 1 << 40 | 699)
    );
    let mut unique = keys(&blocks);
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), 1_700);
}

#[tokio::test]
async fn a_moved_dataset_keeps_its_keys_and_a_changed_one_loses_its_fingerprint() {
    let store = tables().await;
    let moved = Store::memory();
    for name in ["part-0.parquet", "part-1.parquet"] {
        let bytes = store.get(name).await.unwrap();
        moved.put(&format!("train/{name}"), bytes).await.unwrap();
    }
    let input = open(&store, &InputConfig::default()).await;
    let there = open(&moved, &InputConfig::default()).await;
    let blocks = read_all(&input, &store).await.unwrap();
    assert_eq!(
        keys(&blocks),
        keys(&read_all(&there, &moved).await.unwrap())
    );

    let again = open(&store, &InputConfig::default()).await;
    assert_eq!(input.fingerprint(), again.fingerprint());
    store
        .put("part-1.parquet", table(1_001, 700))
        .await
        .unwrap();
    let changed = open(&store, &InputConfig::default()).await;
    assert_ne!(input.fingerprint(), changed.fingerprint());
    let other = with(ColumnMap {
        x: vec!["b".into()],
        ..ColumnMap::default()
    });
    assert_ne!(
        changed.fingerprint(),
        open(&store, &other).await.fingerprint()
    );
}

#[tokio::test]
async fn only_the_columns_that_are_named_are_read_and_in_that_order() {
    let store = tables().await;
    let config = with(ColumnMap {
        x: vec!["b".into()],
        y: Some("a".into()),
        key: Some("name".into()),
        ..ColumnMap::default()
    });
    let input = open(&store, &config).await;
    let blocks = read_all(&input, &store).await.unwrap();
    assert_eq!(numbers(&blocks)[..3], [0.0, -1.0, -2.0]);
    assert!(matches!(
        &blocks[0].as_dense().unwrap().y,
        BlockTarget::Regression(y) if y[..3] == [0.0, 1.0, 2.0]
    ));
    assert_eq!(
        keys(&blocks)[1_234],
        xxhash_rust::xxh3::xxh3_64(b"row 1234")
    );
    let missing = with(ColumnMap {
        x: vec!["c".into()],
        ..ColumnMap::default()
    });
    assert!(
        refused(&store, &missing)
            .await
            .ends_with("it has no column `c`, it has `name`, `a`, `label`, `b`")
    );
    let text = with(ColumnMap {
        x: vec!["name".into()],
        ..ColumnMap::default()
    });
    assert!(
        refused(&store, &text)
            .await
            .contains("column `name` is `Utf8`, not a number")
    );
}

#[tokio::test]
async fn vectors_images_and_documents_are_read() {
    let store = Store::memory();
    let vectors = FixedSizeListArray::new(
        Field::new("item", DataType::Float32, true).into(),
        3,
        column(Float32Array::from_iter_values((0..12u8).map(f32::from))),
        None,
    );
    let lists = |lengths: [usize; 4]| {
        let values = Int64Array::from_iter_values(0..lengths.iter().sum::<usize>() as i64);
        let field = Field::new("item", DataType::Int64, true);
        ListArray::new(
            field.into(),
            OffsetBuffer::from_lengths(lengths),
            column(values),
            None,
        )
    };
    let images = StructArray::from(vec![
        (
            Field::new("bytes", DataType::Binary, true).into(),
            column(BinaryArray::from_vec(vec![b"one", b"", b"three", b"4"])),
        ),
        (
            Field::new("path", DataType::Utf8, true).into(),
            column(StringArray::from(vec!["a", "b", "c", "d"])),
        ),
    ]);
    let file = parquet(
        vec![
            ("v", column(vectors)),
            ("even", column(lists([2; 4]))),
            ("input_ids", column(lists([3, 0, 1, 2]))),
            ("image", column(images)),
            ("id", column(UInt64Array::from(vec![5, 6, 7, 8]))),
        ],
        3,
    );
    store.put("train/x.parquet", file).await.unwrap();
    let dense = with(ColumnMap {
        x: vec!["v".into(), "even".into()],
        key: Some("id".into()),
        ..ColumnMap::default()
    });
    let input = open(&store, &dense).await;
    let blocks = read_all(&input, &store).await.unwrap();
    assert_eq!(
        numbers(&blocks)[5..15],
        [3.0, 4.0, 5.0, 2.0, 3.0, 6.0, 7.0, 8.0, 4.0, 5.0]
    );
    assert_eq!(keys(&blocks), [5, 6, 7, 8]);

    let input = open(&store, &InputConfig::default()).await;
    let blocks = read_all(&input, &store).await.unwrap();
    assert_eq!(image_files(&blocks), [&b"one"[..], b"", b"three", b"4"]);

    let tokens = with(ColumnMap {
        tokens: Some("input_ids".into()),
        ..ColumnMap::default()
    });
    let input = open(&store, &tokens).await;
    assert!(matches!(
        input.record(),
        RowContent::Tokens {
            id: TokenType::U32,
            ..
        }
    ));
    let blocks = read_all(&input, &store).await.unwrap();
    assert_eq!(
        documents(&blocks),
        [vec![0, 1, 2], vec![], vec![3], vec![4, 5]]
    );

    let uneven = with(ColumnMap {
        x: vec!["input_ids".into()],
        ..ColumnMap::default()
    });
    assert!(refused(&store, &uneven).await.contains("different lengths"));
}

#[tokio::test]
async fn a_null_is_refused_with_its_place() {
    let store = Store::memory();
    let values = Float32Array::from(vec![Some(1.0), None, Some(3.0), None]);
    let file = parquet(vec![("a", column(values))], 4);
    store.put("x.parquet", file).await.unwrap();
    let error = failure(&open(&store, &InputConfig::default()).await, &store).await;
    assert!(
        error.contains(
            "column `a` has `2` nulls, the first in row `1`; fill them or drop those rows: `bad_values`"
        ),
        "{error}"
    );
}

#[tokio::test]
async fn fault_25_a_file_with_other_columns_is_refused_naming_both() {
    let other = |array: ArrayRef| parquet(vec![("a", array)], 10);
    let store = Store::memory();
    let good = other(column(Float32Array::from(vec![1.0])));
    store.put("0.parquet", good).await.unwrap();
    store
        .put("1.parquet", other(column(Int32Array::from(vec![1]))))
        .await
        .unwrap();
    let error = refused(&store, &InputConfig::default()).await;
    let (first, second) = (store.url_of("0.parquet"), store.url_of("1.parquet"));
    assert_eq!(
        error,
        format!("cannot read `{second}`: column `a` is `Int32` and is `Float32` in `{first}`")
    );
    let renamed = parquet(vec![("b", column(Float32Array::from(vec![1.0])))], 10);
    store.put("1.parquet", renamed).await.unwrap();
    let error = refused(&store, &InputConfig::default()).await;
    assert!(
        error.contains("column `a` is missing, but exists in"),
        "{error}"
    );
}

#[tokio::test]
async fn fault_27_tables_without_rows_are_named() {
    let store = Store::memory();
    let empty = parquet(
        vec![("a", column(Float32Array::from(Vec::<f32>::new())))],
        10,
    );
    store.put("0.parquet", empty).await.unwrap();
    assert!(
        refused(&store, &InputConfig::default())
            .await
            .contains("none of its files has a row")
    );
    let one = parquet(vec![("a", column(Float32Array::from(vec![1.0])))], 10);
    store.put("1.parquet", one).await.unwrap();
    let input = open(&store, &InputConfig::default()).await;
    assert_eq!(numbers(&read_all(&input, &store).await.unwrap()), [1.0]);
    let nothing = Store::memory();
    assert!(
        refused(&nothing, &InputConfig::default())
            .await
            .contains("there is no dataset in")
    );
}

#[tokio::test]
async fn a_row_group_that_changes_during_the_run_is_refused() {
    let store = tables().await;
    let input = open(&store, &InputConfig::default()).await;
    read_all(&input, &store).await.unwrap();
    let bytes = store.get("part-1.parquet").await.unwrap();
    let mut changed = bytes.to_vec();
    let at = changed.len() / 3;
    changed[at] ^= 1;
    store.put("part-1.parquet", changed.into()).await.unwrap();
    let error = failure(&input, &store).await;
    assert!(error.contains("when it was first read"), "{error}");
    store.put("part-1.parquet", bytes).await.unwrap();
    read_all(&input, &store).await.unwrap();
}

#[tokio::test]
async fn no_cut_and_no_flipped_bit_is_a_panic() {
    let store = Store::memory();
    let lists = ListArray::from_iter_primitive::<Int64Type, _, _>(vec![
        Some(vec![Some(1), Some(2)]),
        Some(vec![Some(3), Some(4)]),
    ]);
    let good = parquet(
        vec![
            ("a", column(lists)),
            ("y", column(Int32Array::from(vec![1, 0]))),
        ],
        1,
    );
    let attempt = async |bytes: Vec<u8>| {
        store.put("x.parquet", bytes.into()).await.unwrap();
        let config = InputConfig::default();
        let input =
            crate::input::OpenedSplit::open(&store, SplitChoice::Unnamed, &config, BadShards::Fail);
        match input.await {
            Ok(input) => read_all(&input, &store).await.is_ok(),
            Err(_) => false,
        }
    };
    assert!(attempt(good.to_vec()).await);
    for length in 0..good.len() {
        assert!(!attempt(good[..length].to_vec()).await, "cut to {length}");
    }
    for byte in 0..good.len() {
        let mut flipped = good.to_vec();
        flipped[byte] ^= 1 << (byte % 8);
        attempt(flipped).await;
    }
}

#[tokio::test]
async fn integers_that_float32_cannot_hold_are_counted_and_the_column_is_named() {
    let store = Store::memory();
    let ids = Int64Array::from(vec![1 << 24, (1 << 24) + 1, 1_000_000_000_000, 4]);
    let small = Int64Array::from(vec![1, 2, 3, -(1 << 24)]);
    let file = parquet(vec![("id", column(ids)), ("a", column(small))], 4);
    store.put("x.parquet", file).await.unwrap();
    let config = InputConfig {
        target: Some(TargetKind::None),
        ..InputConfig::default()
    };
    let input = open(&store, &config).await;
    for _ in 0..2 {
        read_all(&input, &store).await.unwrap();
    }
    let warnings = input.warnings();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(
        warnings[0].contains("integers of column `id` are rounded")
            && warnings[0].contains("`2` in"),
        "{warnings:?}"
    );
}

#[tokio::test]
async fn parts_that_are_missing_by_their_names_are_warned_of_by_name() {
    let store = Store::memory();
    for (number, first) in [(0, 0), (2, 20)] {
        let path = format!("data/train-0000{number}-of-00003.parquet");
        store.put(&path, table(first, 10)).await.unwrap();
    }
    let input = open(&store, &InputConfig::default()).await;
    let warnings = input.warnings().join("\n");
    assert!(
        warnings.contains("lacks 1 of its parts")
            && warnings.contains("`data/train-00001-of-00003.parquet`"),
        "{warnings}"
    );
    let path = "data/train-00001-of-00003.parquet";
    store.put(path, table(10, 10)).await.unwrap();
    let warnings = open(&store, &InputConfig::default()).await.warnings();
    assert!(!warnings.join("\n").contains("lacks"), "{warnings:?}");
}

#[tokio::test]
async fn a_null_is_no_damage_and_two_parts_are_refused() {
    let store = Store::memory();
    let values = Float32Array::from(vec![Some(1.0), None]);
    let file = parquet(vec![("a", column(values))], 4);
    store.put("x.parquet", file).await.unwrap();
    let error = failure(&open(&store, &InputConfig::default()).await, &store).await;
    assert!(
        !error.contains("damaged") && !error.contains("restore") && error.contains("x.parquet"),
        "{error}"
    );
    let both = with(ColumnMap {
        x: vec!["a".into()],
        image: Some("a".into()),
        ..ColumnMap::default()
    });
    let error = refused(&store, &both).await;
    assert!(
        error.contains("`columns.x` and `columns.image` are both named"),
        "{error}"
    );
}

/// Rows of the numbers 0 to 3 in `price` and 10 to 13 in `area`, with columns that feedline adds.
fn without_roles() -> Vec<(&'static str, ArrayRef)> {
    let numbers = |first: u8| (0..4).map(move |i| f32::from(first + i));
    vec![
        ("area", column(Float32Array::from_iter_values(numbers(10)))),
        ("price", column(Float32Array::from_iter_values(numbers(0)))),
        ("price__landed", column(Int64Array::from(vec![7; 4]))),
        ("_feedline_key", column(Int64Array::from(vec![1, 2, 3, 4]))),
    ]
}

#[tokio::test]
async fn keys_and_landed_values_are_no_features_and_a_missing_target_is_warned_of() {
    let store = Store::memory();
    store
        .put("x.parquet", parquet(without_roles(), 4))
        .await
        .unwrap();
    let input = open(&store, &InputConfig::default()).await;
    let target = TargetKind::None;
    let features = 2;
    assert_eq!(*input.record(), RowContent::Dense { features, target });
    let warnings = input.warnings().join("\n");
    assert!(
        warnings.contains("columns `price__landed`, `_feedline_key` are no features")
            && warnings.contains("there is no target, and all columns of numbers are features")
            && warnings.contains("`columns.y`"),
        "{warnings}"
    );
    let named = with(ColumnMap {
        x: vec!["price__landed".into()],
        y: Some("price".into()),
        ..ColumnMap::default()
    });
    let input = open(&store, &named).await;
    let target = TargetKind::Regression;
    let features = 1;
    assert_eq!(*input.record(), RowContent::Dense { features, target });
    assert_eq!(input.warnings(), Vec::<String>::new());
}

/// The same rows in a file with these roles.
fn with_roles(roles: &str) -> bytes::Bytes {
    let rows = arrow::array::RecordBatch::try_from_iter(without_roles()).unwrap();
    let pair = KeyValue::new("feedline.columns".to_owned(), roles.to_owned());
    let properties = WriterProperties::builder()
        .set_key_value_metadata(Some(vec![pair]))
        .build();
    let mut writer = ArrowWriter::try_new(Vec::new(), rows.schema(), Some(properties)).unwrap();
    writer.write(&rows).unwrap();
    writer.into_inner().unwrap().into()
}

#[tokio::test]
async fn files_of_two_exports_are_refused_unless_the_columns_are_named() {
    let roles = r#"{"features": ["area"], "targets": ["price"], "key": "_feedline_key"}"#;
    let store = Store::memory();
    store.put("0.parquet", with_roles(roles)).await.unwrap();
    let input = open(&store, &InputConfig::default()).await;
    let blocks = read_all(&input, &store).await.unwrap();
    assert_eq!(numbers(&blocks), [10.0, 11.0, 12.0, 13.0]);
    assert_eq!(keys(&blocks), [1, 2, 3, 4]);
    assert_eq!(input.warnings(), Vec::<String>::new());
    for other in [
        with_roles(r#"{"features": ["price"]}"#),
        parquet(without_roles(), 4),
    ] {
        store.put("1.parquet", other).await.unwrap();
        let error = refused(&store, &InputConfig::default()).await;
        assert!(
            error.contains("1.parquet") && error.contains("it is of another export"),
            "{error}"
        );
    }
    let named = with(ColumnMap {
        x: vec!["area".into()],
        ..ColumnMap::default()
    });
    let input = open(&store, &named).await;
    assert_eq!(read_all(&input, &store).await.unwrap().len(), 2);
}

#[tokio::test]
async fn images_without_a_target_are_warned_of_where_there_are_other_columns() {
    let store = Store::memory();
    let images = column(BinaryArray::from_iter_values([b"a", b"b"]));
    let folders = column(Int64Array::from(vec![0, 1]));
    let file = parquet(
        vec![("image", ArrayRef::clone(&images)), ("folder", folders)],
        4,
    );
    store.put("x.parquet", file).await.unwrap();
    let warnings = open(&store, &InputConfig::default()).await.warnings();
    assert!(
        warnings.len() == 2
            && warnings[0].contains("columns `image` are read, and `folder` are not")
            && warnings[1].contains("no target is read"),
        "{warnings:?}"
    );
    let alone = parquet(vec![("image", images)], 4);
    store.put("x.parquet", alone).await.unwrap();
    let warnings = open(&store, &InputConfig::default()).await.warnings();
    assert_eq!(warnings, Vec::<String>::new());
}

#[tokio::test]
async fn a_target_of_documents_is_refused_where_it_is_set_and_else_named_as_not_read() {
    let store = Store::memory();
    let ids = ListArray::from_iter_primitive::<Int64Type, _, _>(vec![
        Some(vec![Some(1), Some(2)]),
        Some(vec![Some(3)]),
    ]);
    let labels = column(Int64Array::from(vec![0, 1]));
    let file = parquet(vec![("input_ids", column(ids)), ("label", labels)], 2);
    store.put("x.parquet", file).await.unwrap();
    let input = open(&store, &InputConfig::default()).await;
    let blocks = read_all(&input, &store).await.unwrap();
    assert_eq!(documents(&blocks), [vec![1, 2], vec![3]]);
    let warnings = input.warnings();
    assert!(
        warnings.len() == 1
            && warnings[0].contains("columns `input_ids` are read, and `label` are not"),
        "{warnings:?}"
    );
    let named = with(ColumnMap {
        y: Some("label".into()),
        ..ColumnMap::default()
    });
    let set = InputConfig {
        target: Some(TargetKind::Classification { classes: 2 }),
        ..InputConfig::default()
    };
    for (config, key) in [(named, "`columns.y` asks"), (set, "`target` asks")] {
        let error = refused(&store, &config).await;
        assert!(
            error.contains(key) && error.contains("token ids in column `input_ids`"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn integers_of_a_target_that_float32_cannot_hold_are_counted() {
    let store = Store::memory();
    let targets = Int64Array::from(vec![1 << 24, (1 << 24) + 1, 4]);
    let a = Float32Array::from(vec![1.0, 2.0, 3.0]);
    let file = parquet(vec![("a", column(a)), ("y", column(targets))], 3);
    store.put("x.parquet", file).await.unwrap();
    let config = InputConfig {
        target: Some(TargetKind::Regression),
        ..InputConfig::default()
    };
    let input = open(&store, &config).await;
    for _ in 0..2 {
        read_all(&input, &store).await.unwrap();
    }
    let warnings = input.warnings();
    assert!(
        warnings.len() == 1
            && warnings[0].contains("integers of the target `y` are rounded")
            && warnings[0].contains("`1` in"),
        "{warnings:?}"
    );
}

#[tokio::test]
async fn the_index_of_pandas_is_no_feature() {
    let store = Store::memory();
    let values = || column(Float32Array::from(vec![1.0, 2.0]));
    let index = column(Int64Array::from(vec![70, 71]));
    let file = parquet(
        vec![
            ("a", values()),
            ("y", values()),
            ("__index_level_0__", index),
        ],
        2,
    );
    store.put("x.parquet", file).await.unwrap();
    let input = open(&store, &InputConfig::default()).await;
    let blocks = read_all(&input, &store).await.unwrap();
    assert_eq!(numbers(&blocks), [1.0, 2.0]);
    let warnings = input.warnings();
    assert!(
        warnings.len() == 1 && warnings[0].contains("columns `__index_level_0__` are no features"),
        "{warnings:?}"
    );
}

#[tokio::test]
async fn a_file_is_compared_with_the_first_one_that_has_rows() {
    let store = Store::memory();
    let files: [(&str, ArrayRef); 3] = [
        ("0.parquet", column(Float32Array::from(Vec::<f32>::new()))),
        ("1.parquet", column(Float32Array::from(vec![1.0]))),
        ("2.parquet", column(Int32Array::from(vec![1]))),
    ];
    for (path, values) in files {
        let file = parquet(vec![("a", values)], 10);
        store.put(path, file).await.unwrap();
    }
    let error = refused(&store, &InputConfig::default()).await;
    let expected = format!("and is `Float32` in `{}`", store.url_of("1.parquet"));
    assert!(error.ends_with(&expected), "{error}");
}

#[tokio::test]
async fn lists_of_ids_of_one_length_are_documents() {
    let store = Store::memory();
    let ids = FixedSizeListArray::new(
        Field::new("item", DataType::Int32, true).into(),
        2,
        column(Int32Array::from(vec![1, 2, 3, 4, 5, 6])),
        None,
    );
    let file = parquet(vec![("input_ids", column(ids))], 2);
    store.put("x.parquet", file).await.unwrap();
    let input = open(&store, &InputConfig::default()).await;
    let blocks = read_all(&input, &store).await.unwrap();
    assert_eq!(documents(&blocks), [vec![1, 2], vec![3, 4], vec![5, 6]]);
}
