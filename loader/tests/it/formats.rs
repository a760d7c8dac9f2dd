//! Datasets in other formats, through whole passes: the same rows as from shards of ours, in an order that resumes.

use std::sync::Arc;

use arrow::array::{Float32Array, Int32Array};
use feedline_loader::{
    Batch, BatchKind, InputConfig, InputFormat, Loader, LoaderConfig, LoaderState, Split,
    SplitChoice, Target,
    image::{Crop, ImageConfig},
};
use feedline_storage::{Store, clock::SystemClock};

use crate::{
    config, dataset,
    foreign::{Mds, MdsColumn, archive, column, parquet},
    refused,
};

/// Rows `[i, -i]` of class `i % 7`, for `i` below 1,500.
async fn tables() -> Store {
    let store = Store::memory();
    for (number, first) in [0i16, 700, 1_100].into_iter().enumerate() {
        let end = [700, 1_100, 1_500][number];
        let rows = first..end;
        let file = parquet(
            vec![
                (
                    "a",
                    column(Float32Array::from_iter_values(rows.clone().map(f32::from))),
                ),
                (
                    "b",
                    column(Float32Array::from_iter_values(
                        rows.clone().map(|i| -f32::from(i)),
                    )),
                ),
                (
                    "label",
                    column(Int32Array::from_iter_values(rows.map(|i| i32::from(i) % 7))),
                ),
            ],
            100,
        );
        store
            .put(&format!("train/{number}.parquet"), file)
            .await
            .unwrap();
    }
    store
}

async fn open(store: &Store, config: &LoaderConfig) -> Loader {
    Loader::open(store, config, Arc::new(SystemClock))
        .await
        .unwrap()
}

/// The samples of an epoch, batch by batch, when file `f` of the dataset begins with sample `bases[f]`; after checking
/// that every column agrees.
fn epoch(loader: &Loader, from: LoaderState, bases: &[u64]) -> Vec<Vec<u64>> {
    let mut batches = Vec::new();
    for batch in loader.epoch(from).unwrap() {
        let batch = batch.unwrap();
        let sample =
            |origin: &u64| bases[usize::try_from(origin >> 40).unwrap()] + (origin & 0xff_ffff);
        let samples: Vec<u64> = batch.origins().iter().map(sample).collect();
        let x = samples.iter().flat_map(|s| [*s as f32, -(*s as f32)]);
        assert_eq!(batch.x(), x.collect::<Vec<_>>());
        check_classes(&batch, &samples, 7);
        batches.push(samples);
    }
    batches
}

fn check_classes(batch: &Batch, samples: &[u64], classes: u64) {
    let expected = samples.iter().map(|s| i32::try_from(s % classes).unwrap());
    let expected: Vec<_> = expected.collect();
    assert!(matches!(batch.y(), Target::Classification(y) if *y == expected));
}

fn assert_each_once(batches: &[Vec<u64>], samples: u64) {
    let mut all = batches.concat();
    all.sort_unstable();
    assert_eq!(all, (0..samples).collect::<Vec<_>>());
}

#[tokio::test]
async fn an_epoch_over_tables_covers_every_row_once_and_resumes() {
    let store = tables().await;
    let loader = open(&store, &config(64)).await;
    assert_eq!(loader.kind(), BatchKind::Rows { features: 2 });
    assert!(loader.manifest().is_none());
    let bases = [0, 700, 1_100];
    let batches = epoch(&loader, loader.start_state(), &bases);
    assert_each_once(&batches, 1_500);
    let third = loader
        .epoch(loader.start_state())
        .unwrap()
        .nth(2)
        .unwrap()
        .unwrap();
    let again = open(&store, &config(64)).await;
    assert_eq!(epoch(&again, third.state().clone(), &bases), batches[3..]);
}

#[tokio::test]
async fn a_state_of_a_changed_dataset_is_refused() {
    let store = tables().await;
    let loader = open(&store, &config(64)).await;
    let state = loader.start_state();
    let other = parquet(
        vec![
            ("a", column(Float32Array::from(vec![1.0]))),
            ("b", column(Float32Array::from(vec![-1.0]))),
            ("label", column(Int32Array::from(vec![1]))),
        ],
        100,
    );
    store.put("train/3.parquet", other).await.unwrap();
    let changed = open(&store, &config(64)).await;
    let error = changed.epoch(state).unwrap_err().to_string();
    assert!(error.contains("fingerprint"), "{error}");
}

#[tokio::test]
async fn the_format_that_is_asked_for_must_be_there() {
    let store = tables().await;
    for format in [
        InputFormat::Shards,
        InputFormat::WebDataset,
        InputFormat::Mds,
    ] {
        let config = LoaderConfig {
            input: InputConfig {
                format,
                ..InputConfig::default()
            },
            ..config(64)
        };
        let error = refused(&store, &config).await.to_string();
        assert!(
            error.starts_with("there is no dataset in"),
            "{format:?}: {error}"
        );
    }
}

#[tokio::test]
async fn rows_of_mds_are_those_that_were_written() {
    let columns: &[MdsColumn<'_>] = &[
        ("label", "int", Some(8)),
        ("x", "ndarray:float32:2", Some(8)),
    ];
    let sample = |i: u16| {
        let x = [f32::from(i).to_le_bytes(), (-f32::from(i)).to_le_bytes()];
        vec![u64::from(i % 7).to_le_bytes().to_vec(), x.concat()]
    };
    for is_packed in [false, true] {
        let store = Store::memory();
        let mut mds = Mds::new(columns, is_packed);
        mds.shard(&(0..200).map(sample).collect::<Vec<_>>());
        mds.shard(&(200..333).map(sample).collect::<Vec<_>>());
        mds.put(&store).await;
        let loader = open(&store, &config(32)).await;
        let batches = epoch(&loader, loader.start_state(), &[0, 200]);
        assert_each_once(&batches, 333);
    }
}

/// The value of every row, in order; all rows are `[value]`.
async fn values_of(store: &Store, split: SplitChoice) -> Result<Vec<f32>, String> {
    let config = LoaderConfig {
        split,
        ..config(32)
    };
    let loader = Loader::open(store, &config, Arc::new(SystemClock)).await;
    let loader = loader.map_err(|error| error.to_string())?;
    let batches = loader.sequential().unwrap();
    Ok(batches
        .flat_map(|batch| batch.unwrap().x().to_vec())
        .collect())
}

/// Rows of the value 0 in `train`, 1 in `validation` and 2 in `test`, by formats and habits of naming.
async fn datasets_with_splits() -> Vec<Store> {
    let mut stores = Vec::new();
    for names in [
        [
            "train-00000-of-00001",
            "validation-00000-of-00001",
            "test-00000-of-00001",
        ],
        ["data/train-0", "data/dev-0", "data/test-0"],
        ["train/part", "valid/part", "test/part"],
    ] {
        let store = Store::memory();
        for (value, name) in [0.0, 1.0, 2.0].into_iter().zip(names) {
            let a = column(Float32Array::from(vec![value; 10]));
            let path = format!("{name}.parquet");
            store.put(&path, parquet(vec![("a", a)], 5)).await.unwrap();
        }
        stores.push(store);
    }
    let store = Store::memory();
    for (value, folder) in [0.0_f32, 1.0, 2.0]
        .into_iter()
        .zip(["train", "val", "test"])
    {
        let mut mds = Mds::new(&[("a", "float32", Some(4))], false);
        mds.shard(&vec![vec![value.to_le_bytes().to_vec()]; 10]);
        mds.put(&store.child(folder)).await;
    }
    stores.push(store);
    stores
}

#[tokio::test]
async fn a_split_of_another_format_has_its_own_rows_only() {
    for store in datasets_with_splits().await {
        for (value, split) in [0.0, 1.0, 2.0].into_iter().zip(Split::ALL) {
            let read = values_of(&store, split.into()).await;
            assert_eq!(read, Ok(vec![value; 10]), "{split}");
        }
        assert_eq!(
            values_of(&store, SplitChoice::Unnamed).await,
            Ok(vec![0.0; 10])
        );
    }
}

#[tokio::test]
async fn a_split_is_refused_where_no_name_tells_its_rows() {
    let mds = Store::memory();
    let mut shards = Mds::new(&[("a", "float32", Some(4))], false);
    shards.shard(&vec![vec![7.0_f32.to_le_bytes().to_vec()]; 10]);
    shards.put(&mds).await;
    let tables = Store::memory();
    let a = column(Float32Array::from(vec![7.0; 10]));
    tables
        .put("part.parquet", parquet(vec![("a", a)], 5))
        .await
        .unwrap();
    for store in [mds, tables] {
        for split in Split::ALL {
            let error = values_of(&store, split.into()).await.unwrap_err();
            assert!(
                error.contains("says which split a file belongs to"),
                "{error}"
            );
        }
        assert_eq!(
            values_of(&store, SplitChoice::Unnamed).await,
            Ok(vec![7.0; 10])
        );
    }
    let mds = datasets_with_splits().await.pop().unwrap();
    mds.delete("val/index.json").await.unwrap();
    let error = values_of(&mds, Split::Validation.into()).await.unwrap_err();
    assert!(
        error.contains("mention `train` (1 file), `test` (1 file)"),
        "{error}"
    );
}

#[tokio::test]
async fn a_folder_without_a_dataset_says_which_files_it_lacks() {
    let store = Store::memory();
    store.put("README.md", "none".into()).await.unwrap();
    for (format, lacks) in [
        (
            InputFormat::Parquet,
            "it has no `*.parquet`; check the path and `format`",
        ),
        (
            InputFormat::Mds,
            "it has no `index.json`, also not in a folder of a split;",
        ),
        (
            InputFormat::Detect,
            "no `index.json` (MDS), no `*.parquet` and no `*.tar`;",
        ),
    ] {
        let input = InputConfig {
            format,
            ..InputConfig::default()
        };
        let error = refused(&store, &LoaderConfig { input, ..config(8) }).await;
        assert!(error.to_string().contains(lacks), "{error}");
        assert_eq!(
            error.to_string().contains("CURRENT"),
            format == InputFormat::Detect
        );
    }
}

#[tokio::test]
async fn shards_of_ours_are_found_without_being_told() {
    let store = Store::memory();
    dataset::publish_train(&store, &[&[5, 5]]).await;
    let loader = open(&store, &config(4)).await;
    assert_eq!(loader.manifest().unwrap().fingerprint, loader.fingerprint());
}

/// An image of one colour, which follows from its sample.
pub(crate) fn png(sample: u64) -> Vec<u8> {
    let shade = u8::try_from(sample).unwrap();
    let image = image::RgbImage::from_pixel(9, 7, image::Rgb([shade, !shade, 3]));
    let mut bytes = std::io::Cursor::new(Vec::new());
    image.write_to(&mut bytes, image::ImageFormat::Png).unwrap();
    bytes.into_inner()
}

#[tokio::test]
async fn images_of_archives_and_mds_are_those_that_were_written() {
    let archives = Store::memory();
    for (number, samples) in [0..60u64, 60..100].into_iter().enumerate() {
        let members: Vec<_> = samples
            .flat_map(|s| {
                let class = (s % 5).to_string().into_bytes();
                [
                    (format!("{s:04}.cls"), class),
                    (format!("{s:04}.png"), png(s)),
                ]
            })
            .collect();
        archives
            .put(&format!("{number}.tar"), archive(&members))
            .await
            .unwrap();
    }
    let columns: &[MdsColumn<'_>] = &[("image", "png", None), ("label", "int", Some(8))];
    let mut mds = Mds::new(columns, true);
    for samples in [0..60u64, 60..100] {
        let sample = |s: u64| vec![png(s), (s % 5).to_le_bytes().to_vec()];
        mds.shard(&samples.map(sample).collect::<Vec<_>>());
    }
    let shards = Store::memory();
    mds.put(&shards).await;
    for store in [archives, shards] {
        let config = LoaderConfig {
            images: Some(ImageConfig::new(4, 4, Crop::Whole)),
            ..config(16)
        };
        let loader = open(&store, &config).await;
        let mut batches = Vec::new();
        for batch in loader.epoch(loader.start_state()).unwrap() {
            let batch = batch.unwrap();
            let pixels = batch.pixels().chunks(4 * 4 * 3);
            let samples: Vec<_> = pixels.map(|pixels| u64::from(pixels[0])).collect();
            check_classes(&batch, &samples, 5);
            batches.push(samples);
        }
        assert_each_once(&batches, 100);
    }
}
