//! Exports of a dataset, read by feedline's own loader: its rows are those of the dataset.

use std::{fs, path::Path, sync::Arc};

use feedline_loader::{
    Batch, Loader, LoaderConfig, Seed, Split, Target,
    image::{Crop, ImageConfig},
};
use feedline_storage::{Store, StoreOptions, clock::SystemClock};
use feedline_testkit::png::encode_rgba;

use crate::support::{pipeline, run};

/// All formats; those of Parquet and MDS are tables.
const FORMATS: [&str; 4] = ["parquet", "huggingface", "mds", "webdataset"];

/// The target and its landed values are passthrough columns, and so is an id.
const HOUSES: &str = r#"
[pipeline]
name = "houses"
root = "out"

[[source]]
name = "houses"
type = "files"
url = "houses.csv"

[dataset]
target = "TARGET"
task = "TASK"
passthrough = ["id", "price", "label"]
drop = ["id", "label"]
split = { train = 0.7, validation = 0.15, test = 0.15 }
shards = { block_bytes = "4 KiB" }
"#;

/// A folder with a dataset of numbers and categories whose target is `target`, and the name of the pipeline file in it.
fn houses(target: &str, task: &str) -> (tempfile::TempDir, &'static str) {
    let folder = tempfile::tempdir().unwrap();
    let mut csv = "id,area,city,label,kind,price\n".to_owned();
    for i in 0..600_u32 {
        let (area, city) = (
            20 + i * 37 % 101,
            ["Rome", "Oslo", "Bern"][(i % 3) as usize],
        );
        let kind = ["flat", "house"][usize::from(area > 60)];
        csv += &format!(
            "{i},{area}.25,{city},{},{kind},{}\n",
            i % 7,
            1000 * area + i
        );
    }
    fs::write(folder.path().join("houses.csv"), csv).unwrap();
    let file = pipeline(
        folder.path(),
        &HOUSES.replace("TARGET", target).replace("TASK", task),
    );
    run(folder.path(), &["ingest", file]).expect(0);
    run(folder.path(), &["shards", "build", file]).expect(0);
    (folder, file)
}

/// Rows of a split in the order of the files.
#[derive(Debug, PartialEq, Eq)]
struct ReadRows {
    /// Features by their bits, or pixels.
    inputs: Vec<u64>,
    targets: Vec<String>,
    keys: Vec<u64>,
}

/// Rows of `split`, and the warnings about them.
fn read(folder: &Path, split: Split) -> (ReadRows, Vec<String>) {
    let store = Store::open(folder.to_str().unwrap(), &StoreOptions::default()).unwrap();
    let config = LoaderConfig {
        images: Some(ImageConfig::new(8, 8, Crop::Whole)),
        ..LoaderConfig::new(split, Seed::new(1), 64)
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let opening = Loader::open(&store, &config, Arc::new(SystemClock));
    let loader = runtime.block_on(opening).unwrap();
    let mut rows = ReadRows {
        inputs: Vec::new(),
        targets: Vec::new(),
        keys: Vec::new(),
    };
    for batch in loader.sequential().unwrap() {
        let batch = batch.unwrap();
        rows.inputs
            .extend(batch.x().iter().map(|x| u64::from(x.to_bits())));
        rows.inputs
            .extend(batch.pixels().iter().copied().map(u64::from));
        rows.targets.extend(targets(&batch));
        rows.keys.extend(batch.keys());
    }
    (rows, loader.warnings())
}

/// Targets as text, with all of their digits.
fn targets(batch: &Batch) -> Vec<String> {
    match batch.y() {
        Target::None => Vec::new(),
        Target::Regression(y) => y.iter().map(|y| format!("{y:?}")).collect(),
        Target::Classification(y) => y.iter().map(|y| format!("class {y}")).collect(),
        other @ Target::Regressions { .. } => panic!("{other:?}"),
    }
}

fn export(folder: &Path, file: &str, format: &str) {
    let arguments = ["export", file, "--to", format, "--format", format];
    run(folder, &arguments).expect(0);
}

#[test]
fn exported_rows_have_the_features_targets_and_keys_of_the_dataset() {
    for (target, task) in [("price", "regression"), ("kind", "classification")] {
        let (folder, file) = houses(target, task);
        let folder = folder.path();
        for format in FORMATS {
            export(folder, file, format);
            for split in Split::ALL {
                let (expected, _) = read(&folder.join("out/dataset"), split);
                assert!(expected.targets.len() > 50, "{}", expected.targets.len());
                let (found, warnings) = read(&folder.join(format), split);
                assert!(found == expected, "{target}, {format}, {split}");
                assert_eq!(warnings, Vec::<String>::new(), "{target}, {format}");
            }
        }
    }
}

const ALBUM: &str = r#"
[pipeline]
name = "album"
root = "out"

[[source]]
name = "album"
type = "files"
format = "image"
url = "album"

[dataset]
kind = "images"
target = "folder"
task = "classification"
image = { store = "png" }
split = { train = 0.6, validation = 0.2, test = 0.2 }
"#;

/// Writes 60 images of two classes.
fn write_album(folder: &Path, extension: &str, image: impl Fn(u8) -> Vec<u8>) {
    for i in 0..60_u8 {
        let class = folder
            .join("album")
            .join(["dark", "light"][usize::from(i % 2)]);
        fs::create_dir_all(&class).unwrap();
        fs::write(class.join(format!("{i}.{extension}")), image(i)).unwrap();
    }
}

#[test]
fn exported_images_have_the_classes_of_the_dataset() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_album(folder, "ppm", |i| {
        let mut image = b"P6\n8 8\n255\n".to_vec();
        let pixel = |place: u8| [i, place, i.wrapping_mul(place)];
        image.extend((0..64).flat_map(pixel));
        image
    });
    let file = pipeline(folder, ALBUM);
    run(folder, &["ingest", file]).expect(0);
    run(folder, &["shards", "build", file]).expect(0);
    let (expected, _) = read(&folder.join("out/dataset"), Split::Train);
    assert!(expected.targets.len() > 20, "{}", expected.targets.len());
    assert!(expected.targets.contains(&"class 1".to_owned()));
    for format in FORMATS {
        export(folder, file, format);
        let (found, warnings) = read(&folder.join(format), Split::Train);
        assert_eq!(found.targets, expected.targets, "{format}");
        assert!(found.inputs == expected.inputs, "{format}");
        assert_eq!(found.keys, expected.keys, "{format}");
        assert_eq!(warnings, Vec::<String>::new(), "{format}");
    }
}

#[test]
fn exported_images_with_transparent_pixels_have_the_background_of_the_dataset() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_album(folder, "png", |i| {
        let pixel = |place: u8| [i, place, i.wrapping_mul(place), 4 * place];
        encode_rgba(&(0..64).flat_map(pixel).collect::<Vec<u8>>(), 8)
    });
    let background = r##"image = { store = "original", background = "#20ff80" }"##;
    let file = pipeline(
        folder,
        &ALBUM.replace(r#"image = { store = "png" }"#, background),
    );
    run(folder, &["ingest", file]).expect(0);
    run(folder, &["shards", "build", file]).expect(0);
    let (expected, _) = read(&folder.join("out/dataset"), Split::Train);
    for format in FORMATS {
        export(folder, file, format);
        let (found, _) = read(&folder.join(format), Split::Train);
        assert!(found.inputs == expected.inputs, "{format}");
        assert_eq!(found.keys, expected.keys, "{format}");
    }
}
