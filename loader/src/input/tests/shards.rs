//! Our own shards.

use bytes::Bytes;
use feedline_schemas::manifest::{Layout, Split, TargetKind, TokenType};
use feedline_storage::Store;

use super::{
    classes, documents, extents, failure, image_files, keys, numbers, open, read_all, refused,
};
use crate::{
    dataset::{
        describe, document, document_length, image, publish_layout, publish_manifest,
        record_batch_of, write_file,
    },
    input::{
        block_rows::BlockRows,
        config::{BadValues, InputConfig},
    },
};

const SHAPE: &[&[u32]] = &[&[5, 3], &[], &[4, 0, 1]];
const SAMPLES: u64 = 13;

const IMAGES: Layout = Layout::Images {
    target: TargetKind::Classification { classes: 5 },
};

fn tokens(id: TokenType) -> Layout {
    Layout::Tokens {
        id,
        vocabulary: 100,
    }
}

async fn published(layout: Layout) -> Store {
    let store = Store::memory();
    publish_layout(&store, layout, &[(Split::Train, SHAPE)]).await;
    store
}

#[tokio::test]
async fn images_come_as_they_were_written() {
    let store = published(IMAGES).await;
    let input = open(&store, &InputConfig::default()).await;
    let blocks = read_all(&input, &store).await.unwrap();
    assert_eq!(
        image_files(&blocks),
        (0..SAMPLES).map(image).collect::<Vec<_>>()
    );
    assert_eq!(keys(&blocks), (0..SAMPLES).map(|s| !s).collect::<Vec<_>>());
    let expected: Vec<_> = (0..13).map(|s| s % 5).collect();
    assert_eq!(classes(&blocks), expected);
}

#[tokio::test]
async fn documents_and_their_lengths_come_as_they_were_written() {
    for id in [TokenType::U16, TokenType::U32] {
        let store = published(tokens(id)).await;
        let input = open(&store, &InputConfig::default()).await;
        let blocks = read_all(&input, &store).await.unwrap();
        let expected: Vec<_> = (0..SAMPLES).map(|s| document(s, 100)).collect();
        assert_eq!(documents(&blocks), expected);
        let lengths = input.lengths(&extents(&store)).await.unwrap();
        let mut first = 0;
        for block in 0..input.block_table().block_count() {
            let rows = u64::from(input.block_table().rows(block));
            let expected: Vec<_> = (first..first + rows).map(document_length).collect();
            assert_eq!(lengths.of(block), expected);
            let sum = expected.iter().map(|n| u64::from(*n)).sum();
            assert_eq!(input.tokens(block), Some(sum));
            first += rows;
        }
    }
}

#[tokio::test]
async fn rows_share_the_memory_that_was_read() {
    for layout in [IMAGES, tokens(TokenType::U16)] {
        let store = published(layout).await;
        let input = open(&store, &InputConfig::default()).await;
        let extents = extents(&store);
        let rows = input.read(0, 0, &extents).await.unwrap();
        let (payload, keys) = match &rows {
            BlockRows::Images(rows) => (rows.bytes.as_ptr() as usize, rows.keys.as_ptr() as usize),
            BlockRows::Tokens(rows) => match &rows.ids {
                crate::input::block_rows::TokenIds::U16(ids) => {
                    (ids.as_ptr() as usize, rows.keys.as_ptr() as usize)
                }
                crate::input::block_rows::TokenIds::U32(_) => panic!(),
            },
            BlockRows::Dense(_) | BlockRows::Multi(_) => panic!(),
        };
        // Two columns of one read have the same distance as in the file.
        let bytes = input.block_bytes(0);
        assert!(
            (keys.abs_diff(payload) as u64) < bytes,
            "{keys:x} {payload:x}"
        );
    }
}

#[tokio::test]
async fn lengths_that_were_changed_are_refused() {
    let store = published(tokens(TokenType::U16)).await;
    let path = "shards/train/00002.arrow.lengths";
    let mut bytes = store.get(path).await.unwrap().to_vec();
    bytes[4] ^= 1;
    store.put(path, bytes.into()).await.unwrap();
    let input = open(&store, &InputConfig::default()).await;
    assert!(input.lengths(&extents(&store)).await.is_err());
}

#[tokio::test]
async fn fault_25_other_columns_in_one_shard_are_refused_by_name() {
    let other = |layout: &Layout| describe("shards/train/00000.arrow", &file(layout));
    fn file(layout: &Layout) -> Bytes {
        let batch = record_batch_of(layout, &[0, 1, 2]);
        write_file(&batch.schema(), &[batch])
    }
    let check = async |layout: Layout, found: Layout, message: &str| {
        let store = Store::memory();
        let mut manifest = publish_layout(&store, layout, &[(Split::Train, &[&[3]])]).await;
        manifest.splits[0].shards[0] = other(&found);
        store
            .put("shards/train/00000.arrow", file(&found))
            .await
            .unwrap();
        publish_manifest(&store, manifest).await;
        let error = failure(&open(&store, &InputConfig::default()).await, &store).await;
        assert!(
            error.contains("00000.arrow") && error.contains(message),
            "{error}"
        );
    };
    let target = TargetKind::None;
    check(IMAGES, tokens(TokenType::U16), "column `image` is missing").await;
    check(IMAGES, Layout::Images { target }, "column `y` is missing").await;
    check(
        tokens(TokenType::U16),
        tokens(TokenType::U32),
        "column `tokens` is `List(non-null UInt32",
    )
    .await;
    check(tokens(TokenType::U32), IMAGES, "column `tokens` is missing").await;
}

#[tokio::test]
async fn a_token_past_the_vocabulary_is_refused() {
    let store = Store::memory();
    let layout = tokens(TokenType::U16);
    let mut manifest = publish_layout(&store, layout, &[(Split::Train, SHAPE)]).await;
    manifest.layout = Layout::Tokens {
        id: TokenType::U16,
        vocabulary: 20,
    };
    publish_manifest(&store, manifest).await;
    let error = failure(&open(&store, &InputConfig::default()).await, &store).await;
    assert!(error.contains("the manifest says `20` ids"), "{error}");
}

/// A dataset in which sample 6, row 1 of block 1, has a NaN.
async fn with_a_nan() -> Store {
    let store = Store::memory();
    let layout = Layout::Dense {
        features: 3,
        target: TargetKind::Regression,
    };
    let mut manifest = publish_layout(&store, layout.clone(), &[(Split::Train, &[&[5, 3]])]).await;
    let good = record_batch_of(&layout, &[5, 6, 7]);
    let x = arrow::array::FixedSizeListArray::new(
        arrow::datatypes::Field::new("item", arrow::datatypes::DataType::Float32, false).into(),
        3,
        std::sync::Arc::new(arrow::array::Float32Array::from(vec![
            5.0,
            1.0,
            2.0,
            6.0,
            1.0,
            f32::NAN,
            7.0,
            1.0,
            2.0,
        ])),
        None,
    );
    let mut columns = good.columns().to_vec();
    columns[0] = std::sync::Arc::new(x);
    let bad = arrow::array::RecordBatch::try_new(good.schema(), columns).unwrap();
    let first = record_batch_of(&layout, &[0, 1, 2, 3, 4]);
    let file = write_file(&good.schema(), &[first, bad]);
    let path = "shards/train/00000.arrow";
    manifest.splits[0].shards[0] = describe(path, &file);
    store.put(path, file).await.unwrap();
    publish_manifest(&store, manifest).await;
    store
}

#[tokio::test]
async fn fault_26_a_number_that_is_none_fails_or_is_set_aside() {
    let store = with_a_nan().await;
    let config = |bad_values| InputConfig {
        bad_values,
        ..InputConfig::default()
    };
    let error = failure(&open(&store, &config(BadValues::Fail)).await, &store).await;
    let url = store.url_of("shards/train/00000.arrow");
    assert_eq!(
        error,
        format!(
            "row `1` of block `1` of shard `{url}` has `NaN` in element `2` of `x`; correct the data, or set \
             `bad_values` to `skip` to skip such rows"
        )
    );
    let input = open(&store, &config(BadValues::Skip)).await;
    let blocks = read_all(&input, &store).await.unwrap();
    assert_eq!(blocks[0].bad(), []);
    let bad: Vec<_> = blocks[1].bad().iter().map(|bad| bad.row).collect();
    assert_eq!(bad, [1]);
    let kept = open(&store, &config(BadValues::Keep)).await;
    assert!(numbers(&read_all(&kept, &store).await.unwrap())[20].is_nan());
}

#[tokio::test]
async fn fault_27_a_split_without_samples_is_named_and_empty_shards_are_passed_over() {
    for shape in [&[][..], &[&[][..]], &[&[0, 0][..]]] {
        let store = Store::memory();
        publish_layout(&store, IMAGES, &[(Split::Train, shape)]).await;
        let error = refused(&store, &InputConfig::default()).await;
        assert!(error.starts_with("split `train` of dataset"), "{error}");
    }
    // `SHAPE` has an empty shard and an empty block.
    let store = published(IMAGES).await;
    let input = open(&store, &InputConfig::default()).await;
    assert_eq!(input.block_table().block_count(), 4);
    assert_eq!(read_all(&input, &store).await.unwrap().len(), 4);
}
