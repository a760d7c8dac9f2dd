//! Datasets whose images are decoded.

use std::collections::BTreeMap;

use arrow::array::AsArray;
use feedline_image::Encoding;
use feedline_schemas::{
    manifest::Split,
    pnm::Pnm,
    record::ColumnType::{Binary, Int64, Utf8},
};
use feedline_storage::Store;
use serde_json::{Value, json};

use crate::pipeline::*;
use crate::{
    read_manifest, read_transform,
    testing::{Cells, LandingZone, blocks, build_with, contents},
    verify,
};

const IMAGES: &str =
    "sources = [\"a\"]\nkind = \"images\"\ntarget = \"label\"\ntask = \"classification\"\n";

async fn build_images(
    root: &Store,
    image: &str,
    partitions: usize,
) -> Result<DatasetReport, Error> {
    let dataset = format!("{IMAGES}image = {{ {image} }}\n");
    build_with(root, &dataset, partitions).await
}

const WIDTH: u32 = 48;
const HEIGHT: u32 = 32;

/// Levels of image `i`, u8 RGB of 48 x 32 pixels, unlike those of the others.
fn pixels(i: u32) -> Vec<u8> {
    let mut state = u64::from(i) + 1;
    let mut level = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        u8::try_from(state >> 60).unwrap() * 17
    };
    // Blocks of 4 x 4 pixels, so that a worse copy still looks the same.
    let blocks: Vec<[u8; 3]> = (0..96).map(|_| [level(), level(), level()]).collect();
    let places = (0..32_usize).flat_map(|y| (0..48_usize).map(move |x| y / 4 * 12 + x / 4));
    places.flat_map(|block| blocks[block]).collect()
}

fn file(i: u32, encoding: Encoding) -> Vec<u8> {
    encoding.encode(&pixels(i), WIDTH, HEIGHT).unwrap()
}

fn row(file: &[u8], label: u32) -> Cells {
    vec![json!(file), json!(label % 3)]
}

async fn land(root: &Store, rows: &[Cells]) {
    let mut zone = LandingZone::new(root, "a", &[("image", Binary), ("label", Int64)]);
    zone.batch(rows).await;
}

/// 200 PNGs, and behind them three files that are none.
async fn album(root: &Store) {
    let mut rows: Vec<Cells> = (0..200).map(|i| row(&file(i, Encoding::Png), i)).collect();
    let png = file(900, Encoding::Png);
    rows.push(row(&png[..png.len() - 20], 0));
    rows.push(row(b"GIF89a", 1));
    rows.push(vec![Value::Null, json!(1)]);
    land(root, &rows).await;
}

/// The files in the shards, by split.
async fn files(root: &Store) -> Vec<(Split, Vec<u8>)> {
    let mut found = Vec::new();
    for (split, batch) in blocks(&root.child("dataset")).await {
        let images = batch["image"].as_binary::<i64>().iter().flatten();
        found.extend(images.map(|file| (split, file.to_vec())));
    }
    found
}

#[tokio::test]
async fn rejects_of_images_name_the_files_that_landed_with_a_path() {
    let root = Store::memory();
    let columns = [("image", Binary), ("path", Utf8), ("label", Int64)];
    let mut zone = LandingZone::new(&root, "a", &columns);
    let named = |file: &[u8], i: u32, path: Value| vec![json!(file), path, json!(i % 3)];
    let mut rows: Vec<Cells> = (0..100)
        .map(|i| named(&file(i, Encoding::Png), i, json!(format!("{i}.png"))))
        .collect();
    let png = file(900, Encoding::Png);
    rows.push(named(&png[..png.len() - 20], 0, json!("a/short.png")));
    rows.push(named(b"GIF89a", 1, Value::Null));
    zone.batch(&rows).await;
    let report = build_images(&root, "store = \"png\"", 2).await.unwrap();
    let sample = report.reject_sample.unwrap();
    assert!(
        sample.contains(r#""row":100,"file":"a/short.png","reason""#),
        "{sample}"
    );
    let dataset = root.child("dataset");
    let manifest = read_manifest(&dataset).await.unwrap();
    let lines = dataset.get(&manifest.rejects[0]).await.unwrap();
    let lines = String::from_utf8(lines.to_vec()).unwrap();
    let files = lines.lines().map(|line| {
        let line: Value = serde_json::from_str(line).unwrap();
        (
            line["row"].as_u64(),
            line["file"].as_str().map(str::to_owned),
        )
    });
    let expected = [
        (Some(100), Some("a/short.png".to_owned())),
        (Some(101), None),
    ];
    assert_eq!(files.collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn images_are_stored_as_asked_and_what_is_none_is_set_aside_with_the_reason() {
    let root = Store::memory();
    album(&root).await;
    let image = "store = \"raw\", resize = \"crop\", size = [8, 10], shorter_side = 12";
    let report = build_images(&root, image, 2).await.unwrap();
    let reasons: Vec<_> = report.rejected_by_reason.clone().into_iter().collect();
    let expected = [("image_truncated", 2), ("not_an_image", 1)];
    assert_eq!(
        reasons,
        expected.map(|(reason, rows)| (reason.to_owned(), rows))
    );
    assert_eq!(report.train + report.validation + report.test, 200);
    let sample = report.reject_sample.unwrap();
    assert!(
        sample.contains(r#""reason":"image_truncated","column":"image""#),
        "{sample}"
    );
    assert!(sample.contains("it has no end chunk"), "{sample}");

    let (mut count, mut levels, mut squares) = (0.0, [0.0; 3], [0.0; 3]);
    for (split, file) in files(&root).await {
        let image = Pnm::parse(&file).unwrap();
        assert_eq!((image.height, image.width, image.channels), (8, 10, 3));
        if split == Split::Train {
            for pixel in image.pixels.as_chunks::<3>().0 {
                count += 1.0;
                for channel in 0..3 {
                    let level = f64::from(pixel[channel]) / 255.0;
                    levels[channel] += level;
                    squares[channel] += level * level;
                }
            }
        }
    }
    let dataset = root.child("dataset");
    let manifest = read_manifest(&dataset).await.unwrap();
    let fitted = read_transform(&dataset, &manifest)
        .await
        .unwrap()
        .images
        .unwrap();
    assert_eq!(fitted.column, "image");
    assert_eq!(fitted.pixels, report.train * 80);
    for channel in 0..3 {
        let mean = levels[channel] / count;
        let deviation = (squares[channel] / count - mean * mean).sqrt();
        assert!((fitted.mean[channel] - mean).abs() < 1e-12);
        assert!((fitted.deviation[channel] - deviation).abs() < 1e-9);
    }
    assert!(verify(&dataset).await.unwrap().problems.is_empty());
}

#[tokio::test]
async fn files_stay_as_they_came_where_nothing_else_is_asked_for() {
    let root = Store::memory();
    album(&root).await;
    build_images(&root, "", 2).await.unwrap();
    let expected: BTreeMap<Vec<u8>, u32> = (0..200).map(|i| (file(i, Encoding::Png), i)).collect();
    let found = files(&root).await;
    assert_eq!(found.len(), 200);
    assert!(found.iter().all(|(_, file)| expected.contains_key(file)));
}

#[tokio::test]
async fn shards_are_the_same_for_any_number_of_partitions() {
    let stored = "store = \"jpeg\", resize = \"exact\", size = 16, filter = \"lanczos\"";
    for image in [stored, "store = \"png\", duplicates = \"perceptual\""] {
        let mut found = Vec::new();
        for partitions in [1, 3] {
            let root = Store::memory();
            album(&root).await;
            build_images(&root, image, partitions).await.unwrap();
            found.push(contents(&root.child("dataset")).await);
        }
        assert!(found[0] == found[1], "{image}");
    }
}

/// 60 images, each as PNG, as its pixels, and as a JPEG.
async fn copies(root: &Store) {
    let jpeg = Encoding::Jpeg { quality: 95 };
    let rows: Vec<Cells> = [Encoding::Png, Encoding::Raw, jpeg]
        .into_iter()
        .flat_map(|encoding| (0..60).map(move |i| row(&file(i, encoding), i)))
        .collect();
    land(root, &rows).await;
}

#[tokio::test]
async fn images_of_equal_pixels_are_one_and_perceptual_share_a_split() {
    let built = async |image: &str| {
        let root = Store::memory();
        copies(&root).await;
        let report = build_images(&root, image, 2).await.unwrap();
        assert!(
            verify(&root.child("dataset"))
                .await
                .unwrap()
                .problems
                .is_empty()
        );
        (report, files(&root).await)
    };
    let (report, _) = built("duplicates = \"bytes\"").await;
    assert_eq!((report.rows_in, report.duplicates), (180, 0));
    // Pixels unless something else is asked for.
    let (report, found) = built("").await;
    assert_eq!((report.rows_in, report.duplicates), (180, 60));
    let is_png = |file: &Vec<u8>| file.starts_with(b"\x89PNG");
    assert_eq!(
        found.iter().filter(|(_, file)| is_png(file)).count(),
        60,
        "the first landed stays"
    );
    let split_by = |found: &[(Split, Vec<u8>)]| {
        let of: BTreeMap<&[u8], Split> = found
            .iter()
            .map(|(split, f)| (f.as_slice(), *split))
            .collect();
        let split = |i, encoding| of[file(i, encoding).as_slice()];
        let same = |i: &u32| split(*i, Encoding::Png) == split(*i, Encoding::Jpeg { quality: 95 });
        (0..60).filter(same).count()
    };
    let apart = split_by(&found);
    assert!(apart < 55, "{apart}");
    let (report, found) = built("duplicates = \"perceptual\", perceptual_bits = 8").await;
    assert_eq!(report.duplicates, 60);
    assert_eq!(split_by(&found), 60);
    assert!(report.validation > 0 && report.test > 0);
}

#[tokio::test]
async fn images_of_equal_pixels_that_land_later_can_move_earlier_ones_with_a_warning() {
    let root = Store::memory();
    let mut zone = LandingZone::new(&root, "a", &[("image", Binary), ("label", Int64)]);
    let encoded = |encoding: Encoding| -> Vec<Cells> {
        let rows = (0..120).map(|i| row(&file(i, encoding), i));
        rows.collect()
    };
    zone.batch(&encoded(Encoding::Png)).await;
    let first = build_images(&root, "", 2).await.unwrap();
    zone.batch(&encoded(Encoding::Raw)).await;
    let second = build_images(&root, "", 2).await.unwrap();
    assert_eq!(second.duplicates, 120);
    let found = |report: &DatasetReport| {
        let mut warnings = report.warnings.iter();
        let found = warnings.find(|warning| warning.code == "rows_changed_split");
        found.cloned()
    };
    assert_eq!(found(&first), None);
    let warning = found(&second).unwrap();
    assert_eq!(warning.key.as_deref(), Some("dataset.image.duplicates"));
    let part = "rows of the earlier dataset changed the split (";
    assert!(warning.message.contains(part), "{warning:?}");
}

#[tokio::test]
async fn of_equal_images_the_first_with_a_label_is_kept() {
    for partitions in [1, 3] {
        let root = Store::memory();
        let mut rows: Vec<Cells> = (0..120).map(|i| row(&file(i, Encoding::Png), i)).collect();
        let unlabelled = |i: u32| vec![json!(file(i, Encoding::Png)), Value::Null];
        // The duplicates of 0 to 9 come before them; two duplicates of 200 have no label, so one of
        // them is rejected.
        rows.splice(0..0, (0..10).map(unlabelled));
        rows.extend([unlabelled(200), unlabelled(200)]);
        land(&root, &rows).await;
        let report = build_images(&root, "store = \"png\"", partitions).await;
        let report = report.unwrap();
        assert_eq!((report.rows_in, report.duplicates), (132, 11));
        assert_eq!(report.rejected_by_reason["target_missing"], 1);
        assert_eq!(report.train + report.validation + report.test, 120);
    }
}

/// 200 images; behind them three empty files, two copies of a damaged file and two rows without a file, each with another label
/// than the one before; then a copy of the first image with another label.
async fn album_with_unusable_files(root: &Store) {
    let mut rows: Vec<Cells> = (0..200).map(|i| row(&file(i, Encoding::Png), i)).collect();
    let png = file(900, Encoding::Png);
    let (empty, damaged) = (&png[..0], &png[..png.len() - 20]);
    for (label, file) in (0..).zip([empty, empty, empty, damaged, damaged]) {
        rows.push(row(file, label));
    }
    rows.push(vec![Value::Null, json!(0)]);
    rows.push(vec![Value::Null, json!(1)]);
    rows.push(row(&file(0, Encoding::Png), 1));
    land(root, &rows).await;
}

/// Rows of the rejects, with their reasons.
async fn reject_rows(root: &Store) -> Vec<(u64, String)> {
    let dataset = root.child("dataset");
    let manifest = read_manifest(&dataset).await.unwrap();
    let lines = dataset.get(&manifest.rejects[0]).await.unwrap();
    let lines = String::from_utf8(lines.to_vec()).unwrap();
    let row = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        let reason = line["reason"].as_str().unwrap().to_owned();
        (line["row"].as_u64().unwrap(), reason)
    };
    lines.lines().map(row).collect()
}

#[tokio::test]
async fn each_image_that_cannot_be_used_is_rejected_and_is_no_duplicate() {
    let decoded = ["image_empty", "image_truncated", "not_an_image"];
    let counts = [3, 2, 2];
    for (image, partitions) in [("store = \"png\"", 1), ("duplicates = \"bytes\"", 3)] {
        let root = Store::memory();
        album_with_unusable_files(&root).await;
        let report = build_images(&root, image, partitions).await.unwrap();
        let reasons: Vec<_> = report.rejected_by_reason.clone().into_iter().collect();
        let expected: Vec<_> = decoded.map(str::to_owned).into_iter().zip(counts).collect();
        assert_eq!(reasons, expected);
        assert_eq!((report.rows_in, report.duplicates), (208, 1));
        let conflicts = report.conflicts.unwrap();
        assert_eq!((conflicts.contents, conflicts.rows), (1, 2));
        let rows = reject_rows(&root).await;
        let expected = (200..).zip([0, 0, 0, 1, 1, 2, 2].map(|reason: usize| decoded[reason]));
        let expected = expected.map(|(row, reason)| (row, reason.to_owned()));
        assert_eq!(rows, expected.collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn files_that_are_no_images_are_no_duplicates_where_none_is_decoded() {
    let root = Store::memory();
    album_with_unusable_files(&root).await;
    let report = build_with(&root, IMAGES, 2).await.unwrap();
    // A damaged file begins as an image does.
    assert_eq!(report.rejected_by_reason["not_an_image"], 5);
    assert_eq!((report.rows_in, report.duplicates), (208, 2));
    let rows = reject_rows(&root).await;
    let rows: Vec<u64> = rows.into_iter().map(|(row, _)| row).collect();
    assert_eq!(rows, [200, 201, 202, 205, 206]);
}

#[tokio::test]
async fn dropped_images_are_described_by_what_is_equal() {
    let message = async |dataset: &str| {
        let root = Store::memory();
        copies(&root).await;
        let report = build_with(&root, dataset, 2).await.unwrap();
        let mut warnings = report.warnings.into_iter();
        let found = warnings.find(|warning| warning.code == "duplicates_dropped");
        found.map(|warning| warning.message)
    };
    let pixels = message(&format!("{IMAGES}image = {{ }}\n")).await.unwrap();
    for part in [
        "60 of 180 rows (33.3 %) were dropped since their image has the same pixels as that of another row",
        "keep them with `dataset.dedup = \"none\"`: all copies of an image are then in one split",
        "`dataset.image.duplicates = \"bytes\"`",
    ] {
        assert!(pixels.contains(part), "{pixels}");
    }
    assert_eq!(message(IMAGES).await, None);
}

#[tokio::test]
async fn limits_set_images_aside_before_they_are_decoded() {
    let root = Store::memory();
    let mut rows: Vec<Cells> = (0..100).map(|i| row(&file(i, Encoding::Png), i)).collect();
    let large = Encoding::Png.encode(&[9; 64 * 64 * 3], 64, 64).unwrap();
    rows.push(row(&large, 0));
    land(&root, &rows).await;
    let report = build_images(&root, "max_pixels = 4000", 2).await.unwrap();
    assert_eq!(report.rejected_by_reason["image_too_large"], 1);
    let sample = report.reject_sample.unwrap();
    assert!(
        sample.contains("4096 pixels and the limit is 4000 (`dataset.image.max_pixels`)"),
        "{sample}"
    );
}

#[tokio::test]
async fn settings_that_do_not_go_together_are_refused() {
    let root = Store::memory();
    land(&root, &[row(&file(1, Encoding::Png), 1)]).await;
    for (image, expected) in [
        (
            "quality = 0",
            "`dataset.image.quality`: it is `0`, use `1` to `100`",
        ),
        (
            "resize = \"exact\", size = 8",
            "`dataset.image.resize`: a file that is stored as it came",
        ),
        (
            "store = \"png\", resize = \"pad\"",
            "`dataset.image.size`: `resize` needs it",
        ),
        (
            "store = \"png\", size = 8",
            "`dataset.image.size`: it has no meaning without",
        ),
        (
            "store = \"png\", resize = \"shorter_side\", size = [8, 8]",
            "`dataset.image.size`: `resize = \"shorter_side\"` takes one number",
        ),
        (
            "store = \"png\", resize = \"exact\", size = [8, 0]",
            "`dataset.image.size`: it is `[8, 0]`, use `1` to `16384`",
        ),
        (
            "store = \"png\", resize = \"exact\", size = 0",
            "`dataset.image.size`: it is `0`, use `1`",
        ),
        (
            "store = \"png\", resize = \"crop\", size = 8, shorter_side = 7",
            "`dataset.image.shorter_side`: it is `7`, use `8`",
        ),
        (
            "store = \"png\", resize = \"exact\", size = 8, shorter_side = 9",
            "`dataset.image.shorter_side`: it belongs to",
        ),
        (
            "perceptual_bits = 9",
            "`dataset.image.perceptual_bits`: it is `9`",
        ),
    ] {
        let error = build_images(&root, image, 1).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{image}: {error}");
    }
}
