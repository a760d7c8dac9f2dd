//! MDS.

use feedline_schemas::manifest::{TargetKind, TokenType};
use feedline_storage::Store;

use super::{classes, documents, failure, image_files, keys, numbers, open, read_all, refused};
use crate::{
    dataset::image,
    foreign::{Mds, MdsColumn},
    input::{
        RowContent,
        config::{ColumnMap, InputConfig},
    },
};

const IMAGES: &[MdsColumn<'_>] = &[("image", "jpeg", None), ("label", "int", Some(8))];

fn large_image(sample: u64) -> Vec<u8> {
    let mut bytes = image(sample);
    bytes.resize(bytes.len() + 50_000, 7);
    bytes
}

fn image_samples(samples: std::ops::Range<u64>) -> Vec<Vec<Vec<u8>>> {
    let label = |s: u64| (s % 5).to_le_bytes().to_vec();
    samples.map(|s| vec![large_image(s), label(s)]).collect()
}

async fn published(is_packed: bool) -> Store {
    let store = Store::memory();
    let mut mds = Mds::new(IMAGES, is_packed);
    mds.shard(&image_samples(0..50));
    mds.shard(&image_samples(50..60));
    mds.put(&store.child("train")).await;
    store
}

#[tokio::test]
async fn images_are_read_from_plain_and_packed_shards() {
    for is_packed in [false, true] {
        let store = published(is_packed).await;
        let input = open(&store, &InputConfig::default()).await;
        assert!(matches!(
            input.record(),
            RowContent::Images {
                target: TargetKind::Classification { .. }
            }
        ));
        let blocks = read_all(&input, &store).await.unwrap();
        assert_eq!(blocks.len(), if is_packed { 2 } else { 4 });
        assert_eq!(
            image_files(&blocks),
            (0..60).map(large_image).collect::<Vec<_>>()
        );
        assert_eq!(classes(&blocks), (0..60).map(|s| s % 5).collect::<Vec<_>>());
        let mut unique = keys(&blocks);
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), 60);
    }
}

#[tokio::test]
async fn rows_of_numbers_and_documents_are_read() {
    let columns: &[MdsColumn<'_>] = &[
        ("a", "float32", Some(4)),
        ("id", "uint64", Some(8)),
        ("text", "str", None),
        ("tokens", "ndarray:uint16", None),
        ("v", "ndarray:int16:2", Some(4)),
        ("y", "float64", Some(8)),
    ];
    let sample = |i: u16| {
        let ids: Vec<u8> = (0..i % 4 + 1).flat_map(|k| (i + k).to_le_bytes()).collect();
        let mut tokens = vec![1 << 2, u8::try_from(i % 4 + 1).unwrap()];
        tokens.extend(ids);
        vec![
            f32::from(i).to_le_bytes().to_vec(),
            u64::from(i + 100).to_le_bytes().to_vec(),
            vec![b'x'; usize::from(i)],
            tokens,
            [i.to_le_bytes(), (!i).to_le_bytes()].concat(),
            (f64::from(i) / 2.0).to_le_bytes().to_vec(),
        ]
    };
    let store = Store::memory();
    let mut mds = Mds::new(columns, false);
    mds.shard(&(0..9).map(sample).collect::<Vec<_>>());
    mds.put(&store).await;
    let config = InputConfig {
        columns: ColumnMap {
            x: vec!["v".into(), "a".into()],
            key: Some("id".into()),
            ..ColumnMap::default()
        },
        ..InputConfig::default()
    };
    let input = open(&store, &config).await;
    let target = TargetKind::Regression;
    assert_eq!(
        *input.record(),
        RowContent::Dense {
            features: 3,
            target
        }
    );
    let blocks = read_all(&input, &store).await.unwrap();
    assert_eq!(numbers(&blocks)[3..9], [1.0, -2.0, 1.0, 2.0, -3.0, 2.0]);
    assert_eq!(keys(&blocks), (100..109).collect::<Vec<_>>());

    let input = open(&store, &InputConfig::default()).await;
    assert!(matches!(
        input.record(),
        RowContent::Tokens {
            id: TokenType::U16,
            ..
        }
    ));
    let blocks = read_all(&input, &store).await.unwrap();
    let expected: Vec<Vec<u32>> = (0..9).map(|i| (i..i + i % 4 + 1).collect()).collect();
    assert_eq!(documents(&blocks), expected);
}

#[tokio::test]
async fn every_damaged_byte_of_a_shard_with_a_hash_is_noticed() {
    for is_packed in [false, true] {
        let store = Store::memory();
        let columns: &[MdsColumn<'_>] = &[("x", "float32", Some(4))];
        let mut mds = Mds::new(columns, is_packed);
        let sample = |i: u8| vec![f32::from(i).to_le_bytes().to_vec()];
        mds.shard(&(0..5).map(sample).collect::<Vec<_>>());
        mds.put(&store).await;
        let (name, good) = &mds.files[0];
        for byte in 0..good.len() {
            let mut flipped = good.to_vec();
            flipped[byte] ^= 1 << (byte % 8);
            store.put(name, flipped.into()).await.unwrap();
            let error = failure(&open(&store, &InputConfig::default()).await, &store).await;
            assert!(error.contains("its hash is"), "{error}");
        }
    }
}

#[tokio::test]
async fn damage_without_a_hash_is_an_error_or_other_numbers_and_never_a_panic() {
    let store = Store::memory();
    let mut mds = Mds::new(IMAGES, false);
    let samples: Vec<_> = (0..4)
        .map(|s| vec![image(s), vec![1, 0, 0, 0, 0, 0, 0, 0]])
        .collect();
    mds.shard(&samples);
    mds.shards[0]["raw_data"]["hashes"] = serde_json::json!({});
    mds.put(&store).await;
    let (name, good) = &mds.files[0];
    for byte in 0..good.len() {
        let mut flipped = good.to_vec();
        flipped[byte] ^= 1 << (byte % 8);
        store.put(name, flipped.into()).await.unwrap();
        let input = open(&store, &InputConfig::default()).await;
        if let Ok(blocks) = read_all(&input, &store).await {
            assert_eq!(image_files(&blocks).len(), 4);
        }
    }
}

#[tokio::test]
async fn fault_25_shards_with_other_columns_are_refused_naming_both() {
    let store = Store::memory();
    let mut mds = Mds::new(IMAGES, false);
    mds.shard(&image_samples(0..2));
    mds.shard(&image_samples(2..4));
    mds.shards[1]["column_encodings"][1] = "int32".into();
    mds.put(&store).await;
    let error = refused(&store, &InputConfig::default()).await;
    assert!(
        error.contains("shard `shard.00001.mds` has the columns")
            && error.contains("`shard.00000.mds` has"),
        "{error}"
    );
}

#[tokio::test]
async fn fault_27_an_index_without_samples_is_named() {
    let store = Store::memory();
    let mut mds = Mds::new(IMAGES, false);
    mds.put(&store).await;
    assert!(
        refused(&store, &InputConfig::default())
            .await
            .contains("it names no shards")
    );
    mds.shard(&[]);
    mds.put(&store).await;
    assert!(
        refused(&store, &InputConfig::default())
            .await
            .contains("none of its files has a sample")
    );
    mds.shard(&image_samples(0..3));
    mds.put(&store).await;
    let input = open(&store, &InputConfig::default()).await;
    assert_eq!(read_all(&input, &store).await.unwrap().len(), 1);
}

#[tokio::test]
async fn columns_that_are_not_read_are_named_and_two_parts_are_refused() {
    let columns: &[MdsColumn<'_>] = &[
        ("image", "jpeg", None),
        ("other", "png", None),
        ("caption", "str", None),
        ("tokens", "ndarray:uint16", None),
        ("y", "int64", Some(8)),
    ];
    let sample = |i: u64| {
        vec![
            large_image(i),
            large_image(i + 1),
            b"a caption".to_vec(),
            vec![1 << 2, 1, 7, 0],
            i.to_le_bytes().to_vec(),
        ]
    };
    let store = Store::memory();
    let mut mds = Mds::new(columns, false);
    mds.shard(&(0..3).map(sample).collect::<Vec<_>>());
    mds.put(&store).await;
    let input = open(&store, &InputConfig::default()).await;
    let warnings = input.warnings().join("\n");
    assert!(
        warnings.contains(
            "columns `image`, `y` are read, and `other`, `caption`, `tokens` are not; name those to read in `columns`"
        ),
        "{warnings}"
    );
    let both = InputConfig {
        columns: ColumnMap {
            image: Some("image".into()),
            tokens: Some("tokens".into()),
            ..ColumnMap::default()
        },
        ..InputConfig::default()
    };
    let error = refused(&store, &both).await;
    assert!(
        error.contains("`columns.image` and `columns.tokens` are both named"),
        "{error}"
    );
    let named = InputConfig {
        columns: ColumnMap {
            image: Some("other".into()),
            ..ColumnMap::default()
        },
        ..InputConfig::default()
    };
    assert_eq!(open(&store, &named).await.warnings(), Vec::<String>::new());
}

#[tokio::test]
async fn integers_that_float32_cannot_hold_are_counted() {
    let columns: &[MdsColumn<'_>] = &[("id", "int64", Some(8)), ("a", "int64", Some(8))];
    let sample = |i: i64| {
        vec![
            ((1 << 24) + i).to_le_bytes().to_vec(),
            i.to_le_bytes().to_vec(),
        ]
    };
    let store = Store::memory();
    let mut mds = Mds::new(columns, false);
    mds.shard(&(0..9).map(sample).collect::<Vec<_>>());
    mds.put(&store).await;
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
            && warnings[0].contains("`4` in"),
        "{warnings:?}"
    );
}

#[tokio::test]
async fn columns_have_the_roles_that_the_index_of_an_export_names() {
    let columns: &[MdsColumn<'_>] = &[
        ("_feedline_key", "uint64", Some(8)),
        ("area", "float32", Some(4)),
        ("price", "float32", Some(4)),
        ("price__landed", "int64", Some(8)),
    ];
    let sample = |i: u8| {
        vec![
            u64::from(i + 50).to_le_bytes().to_vec(),
            f32::from(i).to_le_bytes().to_vec(),
            f32::from(i + 9).to_le_bytes().to_vec(),
            i64::from(i).to_le_bytes().to_vec(),
        ]
    };
    let store = Store::memory();
    let mut mds = Mds::new(columns, false);
    mds.shard(&(0..3).map(sample).collect::<Vec<_>>());
    mds.put(&store).await;
    let input = open(&store, &InputConfig::default()).await;
    let (features, target) = (2, TargetKind::None);
    assert_eq!(*input.record(), RowContent::Dense { features, target });
    let warnings = input.warnings().join("\n");
    assert!(warnings.contains("there is no target"), "{warnings}");
    let index = store.get("index.json").await.unwrap();
    let mut index: serde_json::Value = serde_json::from_slice(&index).unwrap();
    index["feedline.columns"] = serde_json::json!({
        "features": ["area"], "targets": ["price"], "key": "_feedline_key"
    });
    let text = index.to_string().into_bytes();
    store.put("index.json", text.into()).await.unwrap();
    let input = open(&store, &InputConfig::default()).await;
    let (features, target) = (1, TargetKind::Regression);
    assert_eq!(*input.record(), RowContent::Dense { features, target });
    assert_eq!(input.warnings(), Vec::<String>::new());
    let blocks = read_all(&input, &store).await.unwrap();
    assert_eq!(numbers(&blocks), [0.0, 1.0, 2.0]);
    assert_eq!(keys(&blocks), [50, 51, 52]);
}

#[tokio::test]
async fn a_target_of_documents_is_refused_where_it_is_named() {
    let columns: &[MdsColumn<'_>] = &[("tokens", "ndarray:uint16", None), ("y", "int64", Some(8))];
    let store = Store::memory();
    let mut mds = Mds::new(columns, false);
    mds.shard(&[vec![vec![1 << 2, 1, 7, 0], 3_u64.to_le_bytes().to_vec()]]);
    mds.put(&store).await;
    let input = open(&store, &InputConfig::default()).await;
    let warnings = input.warnings();
    assert!(
        warnings.len() == 1 && warnings[0].contains("`tokens` are read, and `y` are not"),
        "{warnings:?}"
    );
    let named = InputConfig {
        columns: ColumnMap {
            y: Some("y".into()),
            ..ColumnMap::default()
        },
        ..InputConfig::default()
    };
    let error = refused(&store, &named).await;
    assert!(
        error.contains("`columns.y` asks for a target")
            && error.contains("token ids in column `tokens`"),
        "{error}"
    );
}

#[tokio::test]
async fn rounded_targets_and_hashes_that_are_not_compared_are_warned_of() {
    let columns: &[MdsColumn<'_>] = &[("a", "float32", Some(4)), ("y", "int64", Some(8))];
    let sample = |i: i64| {
        vec![
            1_f32.to_le_bytes().to_vec(),
            ((1 << 24) + i).to_le_bytes().to_vec(),
        ]
    };
    let store = Store::memory();
    let mut mds = Mds::new(columns, false);
    mds.shard(&(0..4).map(sample).collect::<Vec<_>>());
    mds.shards[0]["raw_data"]["hashes"] = serde_json::json!({"sha1": "00"});
    mds.put(&store).await;
    let config = InputConfig {
        target: Some(TargetKind::Regression),
        ..InputConfig::default()
    };
    let input = open(&store, &config).await;
    read_all(&input, &store).await.unwrap();
    let warnings = input.warnings();
    assert!(
        warnings.len() == 2
            && warnings[0].contains("hashes of shard `shard.00000.mds`")
            && warnings[1].contains("integers of the target `y` are rounded")
            && warnings[1].contains("`2` in"),
        "{warnings:?}"
    );
}

#[tokio::test]
async fn arrays_of_ids_of_one_length_are_documents() {
    let columns: &[MdsColumn<'_>] = &[("tokens", "ndarray:uint16:2", Some(4))];
    let store = Store::memory();
    let mut mds = Mds::new(columns, false);
    mds.shard(&[vec![vec![1, 0, 2, 1]], vec![vec![3, 0, 4, 0]]]);
    mds.put(&store).await;
    let input = open(&store, &InputConfig::default()).await;
    let blocks = read_all(&input, &store).await.unwrap();
    assert_eq!(documents(&blocks), [vec![1, 258], vec![3, 4]]);
}
