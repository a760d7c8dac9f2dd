//! Datasets of images whose embeddings are near.

use std::collections::BTreeMap;

use arrow::{array::AsArray, datatypes::UInt64Type};
use feedline_schemas::{
    manifest::Split,
    record::ColumnType::{Binary, Int64, Json},
};
use feedline_storage::Store;
use serde_json::{Value, json};

use crate::pipeline::*;
use crate::testing::{self, Cells, LandingZone, blocks, build_images, coloured, contents};

fn file(i: u32) -> Vec<u8> {
    coloured(i, [8, 8])
}

async fn land(root: &Store, rows: &[Cells]) {
    let columns = [("image", Binary), ("label", Int64), ("vector", Json)];
    LandingZone::new(root, "a", &columns).batch(rows).await;
}

/// 300 images: every fourth points in one of 75 directions, as do the three after it but for a little.
fn rows() -> Vec<Cells> {
    let each = (0..300_u32).map(|i| {
        let angle = f64::from(i / 4 + 1) * 0.04;
        let numbers = (0..16).map(|at| {
            let own = f64::from((i * 16 + at) % 7) * 0.0005;
            (angle * f64::from(at + 1)).sin() + own
        });
        let vector = serde_json::to_string(&numbers.collect::<Vec<f64>>()).unwrap();
        vec![json!(file(i)), json!(i % 3), json!(vector)]
    });
    each.collect()
}

const NEAR: &str = "duplicates = \"embeddings\", embeddings = \"vector\", embedding_cosine = 0.999";

/// Returns true if the images that point in direction `group` are in two splits.
fn is_torn(splits: &BTreeMap<u64, Split>, group: u64) -> bool {
    (1..4).any(|i| splits[&(group * 4 + i)] != splits[&(group * 4)])
}

/// The split of each row.
async fn splits(root: &Store) -> BTreeMap<u64, Split> {
    let mut found = BTreeMap::new();
    for (split, batch) in blocks(&root.child("dataset")).await {
        let origins = batch["origin"].as_primitive::<UInt64Type>();
        let rows = origins.values().iter().map(|origin| origin & 0xff_ffff);
        found.extend(rows.map(|row| (row, split)));
    }
    found
}

#[tokio::test]
async fn images_of_near_embeddings_share_a_split_whatever_the_partitions() {
    let mut found = Vec::new();
    for partitions in [1, 3] {
        let root = Store::memory();
        let mut all = rows();
        all.push(vec![json!(file(900)), json!(1), Value::Null]);
        all.push(vec![json!(file(901)), json!(1), json!("[1, \"2\"]")]);
        all.push(vec![json!(file(902)), json!(1), json!("[1, 2]")]);
        all.push(vec![
            json!(file(903)),
            json!(1),
            json!(format!("{:?}", [0; 16])),
        ]);
        land(&root, &all).await;
        let report = build_images(&root, NEAR, partitions).await.unwrap();
        assert_eq!(report.rejected_by_reason["bad_embedding"], 2);
        let near = report.near_images.unwrap();
        assert_eq!((near.images, near.clusters, near.largest), (300, 75, 4));
        assert_eq!((near.bits, near.hubs), (24, 0));
        let splits = splits(&root).await;
        assert_eq!(splits.len(), 302);
        assert!((0..75).all(|group| !is_torn(&splits, group)));
        let (_, block) = blocks(&root.child("dataset")).await.remove(0);
        assert!(block.column_by_name("_embedding").is_none());
        found.push(contents(&root.child("dataset")).await);
    }
    assert_eq!(found[0], found[1]);
    // By themselves they do not.
    let root = Store::memory();
    land(&root, &rows()).await;
    build_images(&root, "duplicates = \"pixels\"", 1)
        .await
        .unwrap();
    let splits = splits(&root).await;
    assert!((0..75).filter(|group| is_torn(&splits, *group)).count() > 15);
}

#[tokio::test]
async fn settings_and_embeddings_that_do_not_go_together_are_refused() {
    let root = Store::memory();
    land(&root, &rows()).await;
    for (image, expected) in [
        (
            "duplicates = \"embeddings\"",
            "`dataset.image.embeddings`: `duplicates = \"embeddings\"` needs it",
        ),
        (
            "embeddings = \"vector\"",
            "`dataset.image.embeddings`: it belongs to",
        ),
        (
            "embedding_cosine = 0.9",
            "`dataset.image.embedding_cosine`: it belongs to",
        ),
        (
            "duplicates = \"embeddings\", embeddings = \"vector\", embedding_cosine = 0.4",
            "`dataset.image.embedding_cosine`: it is `0.4`",
        ),
        (
            "duplicates = \"embeddings\", embeddings = \"label\"",
            "`dataset.image.embeddings`: column `label` holds no lists",
        ),
    ] {
        let error = build_images(&root, image, 1).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{image}: {error}");
    }
}

#[tokio::test]
async fn embeddings_of_two_models_stop_the_build_and_say_of_which_lengths_they_are() {
    let root = Store::memory();
    let mut all = rows();
    for row in all.iter_mut().skip(3).step_by(4) {
        row[2] = json!("[1, 2]");
    }
    land(&root, &all).await;
    let refused = build_images(&root, NEAR, 2).await.unwrap_err();
    assert!(matches!(
        refused,
        Error::TooManyRejects { rejected: 75, .. }
    ));
    let refused = refused.to_string();
    assert!(
        refused.contains("it has 2 numbers, most have 16"),
        "{refused}"
    );
}

#[tokio::test]
async fn rows_of_several_parts_are_split_by_the_embeddings_of_their_images() {
    let root = Store::memory();
    land(&root, &rows()).await;
    let multi = |embeddings: &str| {
        format!(
            "sources = [\"a\"]\nkind = \"multi\"\nimage_column = \"image\"\ntarget = \"label\"\n\
             task = \"classification\"\nimage = {{ {embeddings} }}\n"
        )
    };
    let report = testing::build_with(&root, &multi(NEAR), 2).await.unwrap();
    assert_eq!(report.near_images.unwrap().clusters, 75);
    let found = splits(&root).await;
    assert!((0..75).all(|group| !is_torn(&found, group)));
}
