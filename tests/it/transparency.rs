//! Images with transparent pixels, from a build to a prediction.

use std::{collections::BTreeSet, fs, path::Path, sync::Arc};

use feedline_loader::{
    Loader, LoaderConfig, Seed, Split,
    image::{Crop, ImageConfig},
};
use feedline_storage::{Store, StoreOptions, clock::SystemClock};
use feedline_testkit::png;
use serde_json::Value;

use crate::support::{pipeline, run};

const SIDE: u32 = 8;

const IMAGES: u32 = 90;

/// Alpha of the pixels of glyph `i`, with more of it for odd ones.
fn alpha(i: u32) -> Vec<u8> {
    let pixels = 0..SIDE * SIDE;
    let levels = pixels.map(|at| (at * 37 + i * 11 + at * i % 13) % 128 + i % 2 * 127);
    levels.map(|level| u8::try_from(level).unwrap()).collect()
}

/// A PNG of black pixels with this alpha.
fn glyph(alpha: &[u8]) -> Vec<u8> {
    png::encode_black(alpha, SIDE as usize)
}

/// Pixels of all images that the loader gives of a dataset, without further settings.
fn loaded(dataset: &Path) -> BTreeSet<Vec<u8>> {
    let store = Store::open(dataset.to_str().unwrap(), &StoreOptions::default()).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let mut found = BTreeSet::new();
    for split in Split::ALL {
        let config = LoaderConfig {
            images: Some(ImageConfig::new(SIDE, SIDE, Crop::Whole)),
            ..LoaderConfig::new(split, Seed::new(1), 1)
        };
        let opening = Loader::open(&store, &config, Arc::new(SystemClock));
        let loader = runtime.block_on(opening).unwrap();
        for batch in loader.sequential().unwrap() {
            let batch = batch.unwrap();
            let images = batch.pixels().chunks((SIDE * SIDE * 3) as usize);
            found.extend(images.map(<[u8]>::to_vec));
        }
    }
    found
}

#[test]
fn a_model_is_trained_on_the_pixels_that_the_build_saw_and_predict_gives_it_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for class in ["even", "odd"] {
        fs::create_dir_all(folder.join("icons").join(class)).unwrap();
    }
    for i in 0..IMAGES {
        let class = ["even", "odd"][usize::from(i % 2 == 1)];
        let path = folder.join(format!("icons/{class}/{i}.png"));
        fs::write(path, glyph(&alpha(i))).unwrap();
    }
    // The file keeps its alpha, or is stored as it was blended.
    for store in ["original", "png"] {
        let text = format!(
            "[pipeline]\nname = \"icons\"\nroot = \"out-{store}\"\n\
             [[source]]\nname = \"icons\"\ntype = \"files\"\nformat = \"image\"\nurl = \"icons\"\n\
             [dataset]\nkind = \"images\"\ntarget = \"folder\"\ntask = \"classification\"\n\
             image = {{ store = \"{store}\" }}\n\
             split = {{ train = 0.6, validation = 0.2, test = 0.2 }}\n\
             [train]\nmodel = {{ type = \"cnn\", channels = [4], hidden = [8] }}\nbatch_size = 16\n\
             epochs = 2\nimages = {{ height = {SIDE}, width = {SIDE} }}\n"
        );
        let file = pipeline(folder, &text);
        let report = run(folder, &["run", file, "--json"]).expect(0).json();
        let warnings = report["dataset"]["warnings"].as_array().unwrap();
        let found = warnings
            .iter()
            .find(|warning| warning["code"] == "transparent_images");
        assert_eq!(found.unwrap()["key"], "dataset.image.background");
        // Black on white: the level is 255 less the alpha.
        let expected = (0..IMAGES).map(|i| -> Vec<u8> {
            let alpha = alpha(i);
            alpha.iter().flat_map(|alpha| [255 - alpha; 3]).collect()
        });
        let expected: BTreeSet<Vec<u8>> = expected.collect();
        let dataset = folder.join(format!("out-{store}/dataset"));
        assert!(loaded(&dataset) == expected, "{store}");
        check_predictions(folder, file, store);
    }
}

/// Compares the predictions of the files with those that `eval` makes of the test split.
fn check_predictions(folder: &Path, file: &str, store: &str) {
    let [test, all] = ["test", "all"].map(|name| format!("{name}-{store}.ndjson"));
    run(folder, &["eval", file, "--predictions", &test]).expect(0);
    run(folder, &["predict", file, "icons", "--to", &all]).expect(0);
    let lines = |name: &str| -> Vec<Value> {
        let text = fs::read_to_string(folder.join(name)).unwrap();
        let lines = text.lines();
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    };
    let (measured, predicted) = (lines(&test), lines(&all));
    assert_eq!(predicted.len(), IMAGES as usize);
    assert!(!measured.is_empty());
    for line in &measured {
        // The folder is read in the same order both times.
        let own = &predicted[usize::try_from(line["row"].as_u64().unwrap()).unwrap()];
        for column in ["prediction", "probability=even", "probability=odd"] {
            assert_eq!(own[column], line[column], "{line} {own}");
        }
    }
}
