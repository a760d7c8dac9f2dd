//! Images with transparent pixels.

use arrow::array::AsArray;
use feedline_image::Encoding;
use feedline_schemas::{
    config::ImageBackground,
    record::ColumnType::{Binary, Int64},
    report::DatasetReport,
};
use feedline_storage::Store;
use feedline_testkit::png;
use serde_json::json;

use crate::{
    ImagePreparer, read_manifest, read_transform,
    testing::{Cells, IMAGES, LandingZone, blocks, build_images, coloured, pipeline},
};

const SIDE: u32 = 16;

/// Alpha of the pixels of glyph `i`, unlike that of the others.
fn alpha(i: u8) -> Vec<u8> {
    let pixels = 0..SIDE * SIDE;
    let levels = pixels.map(|at| (at * 7 + u32::from(i) * 31) % 256);
    levels.map(|level| u8::try_from(level).unwrap()).collect()
}

/// A PNG of black pixels with this alpha.
fn glyph(alpha: &[u8]) -> Vec<u8> {
    png::encode_black(alpha, SIDE as usize)
}

/// 100 opaque images and two glyphs that differ in alpha alone.
async fn land(root: &Store) {
    let opaque = (0..100).map(|i| coloured(i, [SIDE, SIDE]));
    let glyphs = [0, 1].map(|i| glyph(&alpha(i)));
    let files = opaque.chain(glyphs).enumerate();
    let rows: Vec<Cells> = files
        .map(|(i, file)| vec![json!(file), json!(i % 3)])
        .collect();
    let mut zone = LandingZone::new(root, "a", &[("image", Binary), ("label", Int64)]);
    zone.batch(&rows).await;
}

/// The files in the shards.
async fn files(root: &Store) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    for (_, batch) in blocks(&root.child("dataset")).await {
        let images = batch["image"].as_binary::<i64>().iter().flatten();
        found.extend(images.map(<[u8]>::to_vec));
    }
    found
}

/// Message and key of the warning of transparent images.
fn transparent(report: &DatasetReport) -> (String, Option<String>) {
    let mut warnings = report.warnings.iter();
    let found = warnings.find(|warning| warning.code == "transparent_images");
    let found = found.unwrap().clone();
    (found.message, found.key)
}

#[tokio::test]
async fn images_that_differ_in_alpha_alone_are_all_kept_and_a_warning_names_the_background() {
    for partitions in [1, 3] {
        let root = Store::memory();
        land(&root).await;
        let report = build_images(&root, "store = \"png\"", partitions).await;
        let report = report.unwrap();
        assert_eq!((report.rows_in, report.duplicates), (102, 0));
        let (message, key) = transparent(&report);
        let expected = "2 of 102 images have transparent pixels, which were blended onto `white`; choose another colour";
        assert!(message.starts_with(expected), "{message}");
        assert_eq!(key.as_deref(), Some("dataset.image.background"));
        let found = files(&root).await;
        for i in [0, 1] {
            // Black on white: the level is 255 less the alpha.
            let levels: Vec<u8> = alpha(i).iter().flat_map(|a| [255 - a; 3]).collect();
            let stored = Encoding::Png.encode(&levels, SIDE, SIDE).unwrap();
            assert!(found.contains(&stored), "glyph {i}");
        }
    }
}

#[tokio::test]
async fn images_on_a_background_of_their_colour_are_equal() {
    for (background, expected) in [
        ("black", "which were blended onto `black`"),
        ("none", "whose alpha was dropped"),
    ] {
        let root = Store::memory();
        land(&root).await;
        let image = format!("store = \"png\", background = \"{background}\"");
        let report = build_images(&root, &image, 2).await.unwrap();
        assert_eq!((report.rows_in, report.duplicates), (102, 1));
        let (message, _) = transparent(&report);
        assert!(message.contains(expected), "{message}");
    }
}

#[tokio::test]
async fn opaque_images_give_no_warning() {
    let root = Store::memory();
    let rows: Vec<Cells> = (0..100)
        .map(|i| vec![json!(coloured(i, [SIDE, SIDE])), json!(i % 3)])
        .collect();
    let mut zone = LandingZone::new(&root, "a", &[("image", Binary), ("label", Int64)]);
    zone.batch(&rows).await;
    let report = build_images(&root, "store = \"png\"", 2).await.unwrap();
    let mut codes = report.warnings.iter().map(|warning| warning.code.as_str());
    assert!(codes.all(|code| code != "transparent_images"));
}

#[tokio::test]
async fn a_new_image_gets_the_background_that_the_artefact_of_the_build_records() {
    for (keys, expected) in [
        ("", "white"),
        (", background = \"#102030\"", "#102030"),
        (", background = \"none\"", "none"),
    ] {
        let root = Store::memory();
        land(&root).await;
        let image = format!("store = \"png\"{keys}");
        build_images(&root, &image, 2).await.unwrap();
        let dataset = root.child("dataset");
        let manifest = read_manifest(&dataset).await.unwrap();
        let mut artefact = read_transform(&dataset, &manifest).await.unwrap();
        assert_eq!(artefact.image_background().to_string(), expected);
        let config = pipeline(&format!("{IMAGES}image = {{ {image} }}\n"));
        let config = config.dataset.unwrap();
        let mut preparer = ImagePreparer::new(&config, artefact.image_background()).unwrap();
        let stored = preparer.prepare(glyph(&alpha(0))).unwrap();
        assert!(files(&root).await.contains(&stored), "{expected}");
        // Artefacts without the key are of builds that dropped alpha.
        artefact.images.as_mut().unwrap().prepared.background = None;
        assert_eq!(artefact.image_background(), ImageBackground::NONE);
    }
}
