//! Classes that come as often as the settings say, whatever their share of the rows.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use arrow::array::{ArrayRef, Float32Array, Int32Array};
use feedline_loader::{
    Batch, ClassBalance, Error, InputConfig, Loader, LoaderConfig, MixtureConfig, SourceWeight,
    Target,
    image::{Crop, ImageConfig},
};
use feedline_schemas::{
    encode,
    manifest::{Layout, Split, TargetKind},
};
use feedline_storage::{Effect, Faults, Operation, Rule, Store, clock::SystemClock};

use crate::{
    SAMPLES, SHARDS, config,
    dataset::{FEATURES, describe, publish_layout, publish_manifest, record_batch_of, write_file},
    elastic::run_mixture,
    failure,
    foreign::{archive, column, parquet},
    open, refused,
};

const LAYOUT: Layout = Layout::Dense {
    features: FEATURES,
    target: TargetKind::Classification { classes: 4 },
};

/// Most rows are of class 0, one in 23 of class 1, and five of class 3; class 2 has none.
fn class_of(sample: u64) -> i32 {
    match sample {
        400 | 401 | 640 | 1000 | 1220 => 3,
        _ if sample.is_multiple_of(23) => 1,
        _ => 0,
    }
}

/// Writes a dataset with these classes.
async fn dataset() -> Store {
    let store = Store::memory();
    let mut manifest = publish_layout(&store, LAYOUT, &[(Split::Train, SHARDS)]).await;
    let mut first = 0;
    for (shard, rows) in manifest.splits[0].shards.iter_mut().zip(SHARDS) {
        let batches = rows.iter().map(|rows| {
            let samples: Vec<u64> = (first..first + u64::from(*rows)).collect();
            first += u64::from(*rows);
            let batch = record_batch_of(&LAYOUT, &samples);
            let classes = Int32Array::from_iter_values(samples.iter().map(|s| class_of(*s)));
            let mut columns = batch.columns().to_vec();
            columns[1] = Arc::new(classes) as ArrayRef;
            arrow::array::RecordBatch::try_new(batch.schema(), columns).unwrap()
        });
        let batches: Vec<_> = batches.collect();
        let file = write_file(&batches[0].schema(), &batches);
        *shard = describe(&shard.path, &file);
        store.put(&shard.path, file).await.unwrap();
    }
    publish_manifest(&store, manifest).await;
    store
}

fn balanced(balance: ClassBalance, global_batch: u32) -> LoaderConfig {
    LoaderConfig {
        class_balance: Some(balance),
        ..config(global_batch)
    }
}

/// The samples of a batch, after checking that its classes are theirs.
fn samples(batch: &Batch) -> Vec<u64> {
    let Target::Classification(classes) = batch.y() else {
        unreachable!("there are no classes")
    };
    let origins = batch.origins();
    assert!(batch.keys().iter().zip(origins).all(|(k, o)| *k == !o));
    for ((class, sample), x) in classes.iter().zip(origins).zip(batch.x().chunks(3)) {
        assert_eq!(*class, class_of(*sample), "sample {sample}");
        assert!(x[0].to_bits() == (*sample as f32).to_bits());
    }
    origins.to_vec()
}

/// Counts, by class, its samples, and the fewest and most samples of one of its rows.
fn times(given: &[u64]) -> BTreeMap<i32, [u64; 3]> {
    let mut times: BTreeMap<u64, u64> = (0..SAMPLES).map(|sample| (sample, 0)).collect();
    for sample in given {
        *times.get_mut(sample).unwrap() += 1;
    }
    let mut of_classes = BTreeMap::new();
    for (sample, times) in times {
        let [all, least, most] = of_classes
            .entry(class_of(sample))
            .or_insert([0, u64::MAX, 0]);
        *all += times;
        (*least, *most) = ((*least).min(times), (*most).max(times));
    }
    of_classes
}

#[tokio::test]
async fn classes_come_equally_often_on_any_ranks_and_through_any_kills() {
    let stores = [dataset().await];
    for global_batch in [96, 256, 1000] {
        let config = balanced(ClassBalance::Equal, global_batch);
        let loader = open(&stores[0], &config).await;
        // A third of 1,221 rows for each of the classes that there are.
        assert_eq!(loader.samples(), SAMPLES);
        let (mut state, mut random) = (loader.start_state(), u64::from(global_batch));
        let mut draw = |below: u64| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 33) % below
        };
        let mut all = Vec::new();
        for epoch in 1..=3 {
            let (alone, end) = run_mixture(&stores, &config, 1, &state, usize::MAX, samples).await;
            all.extend(alone.concat());
            let counts: Vec<_> = times(&alone.concat()).into_iter().collect();
            assert_eq!(counts[2], (3, [407, 81, 82]));
            assert_eq!((counts[0].1[0], counts[1].1[0]), (407, 407));
            let mut joined = Vec::new();
            while joined.len() < alone.len() {
                let worlds = [1, 3, 7, 24, 48];
                let world = worlds[usize::try_from(draw(5)).unwrap()];
                let most = 1 + usize::try_from(draw(alone.len() as u64)).unwrap();
                let (some, after) =
                    run_mixture(&stores, &config, world, &state, most, samples).await;
                joined.extend(some);
                state = after;
            }
            assert_eq!(joined, alone, "batch {global_batch}");
            assert_eq!(state, end);
            state = loader.next_epoch(&state);
            for (class, [given, least, most]) in times(&all) {
                assert_eq!(given, 407 * epoch);
                assert!(
                    most - least <= 1,
                    "rows of class {class} come equally often"
                );
            }
        }
        assert!(encode(&state).len() < 4096);
    }
}

#[tokio::test]
async fn classes_come_by_weight_in_every_dataset_of_a_mixture() {
    let weights = ClassBalance::Weighted(vec![1.0, 3.0, 5.0, 0.0]);
    let config = LoaderConfig {
        mixture: Some(MixtureConfig {
            sources: vec![SourceWeight::default(); 2],
            ..MixtureConfig::default()
        }),
        ..balanced(weights, 100)
    };
    let stores = [dataset().await, dataset().await];
    let loader = Loader::open_mixture(&stores, &config, Arc::new(SystemClock));
    let start = loader.await.unwrap().start_state();
    let (alone, _) = run_mixture(&stores, &config, 1, &start, usize::MAX, samples).await;
    let counts: Vec<u64> = times(&alone.concat()).values().map(|c| c[0]).collect();
    // A quarter and three quarters of 1,221, rounded up, of both datasets.
    assert_eq!(counts, [2 * 306, 2 * 916, 0]);
    let (joined, _) = run_mixture(&stores, &config, 7, &start, usize::MAX, samples).await;
    assert_eq!(joined, alone);
    assert!(encode(&start).len() < 4096);
}

#[tokio::test]
async fn a_sequential_pass_has_every_row_once_all_the_same() {
    let loader = open(&dataset().await, &balanced(ClassBalance::Equal, 50)).await;
    let batches = loader.sequential().unwrap();
    let all: Vec<_> = batches.flat_map(|batch| samples(&batch.unwrap())).collect();
    assert!(all.into_iter().eq(0..SAMPLES));
}

#[tokio::test]
async fn a_state_of_other_classes_is_refused_with_its_fields() {
    let store = dataset().await;
    let loader = open(&store, &balanced(ClassBalance::Equal, 50)).await;
    let fields = async |config: &LoaderConfig| -> Vec<&'static str> {
        let state = open(&store, config).await.start_state();
        match loader.resume(state) {
            Ok(()) => Vec::new(),
            Err(Error::StateMismatch { differences }) => {
                differences.iter().map(|d| d.field).collect()
            }
            Err(other) => panic!("{other}"),
        }
    };
    let weighted = |weights: [f64; 4]| balanced(ClassBalance::Weighted(weights.into()), 50);
    assert_eq!(fields(&weighted([7.0; 4])).await, [""; 0]);
    assert_eq!(
        fields(&weighted([7.0, 7.0, 7.0, 8.0])).await,
        ["class_balance"]
    );
    let plain = fields(&config(50)).await;
    assert_eq!(plain, ["unit", "class_balance"]);
}

#[tokio::test]
async fn what_has_no_classes_or_another_number_of_weights_is_refused() {
    let numbers = Store::memory();
    crate::dataset::publish_train(&numbers, SHARDS).await;
    let error = refused(&numbers, &balanced(ClassBalance::Equal, 50)).await;
    assert_eq!(
        error.to_string(),
        "cannot use loader setting `class_balance`: the dataset has no classes as targets, leave it out"
    );
    let weights = ClassBalance::Weighted(vec![1.0; 3]);
    let error = refused(&dataset().await, &balanced(weights, 50)).await;
    assert_eq!(
        error.to_string(),
        "cannot use loader setting `class_balance`: it has `3` weights and there are rows of class `3`, give each class \
         one"
    );
    let weights = ClassBalance::Weighted(vec![1.0; 5]);
    let error = refused(&dataset().await, &balanced(weights, 50)).await;
    assert_eq!(
        error.to_string(),
        "cannot use loader setting `class_balance`: it has `5` weights and the dataset has `4` classes, give each class one"
    );
}

#[tokio::test]
async fn a_class_without_a_row_in_files_that_do_not_count_their_classes_may_have_a_weight() {
    let store = Store::memory();
    let numbers = Float32Array::from_iter_values((0..40_i16).map(f32::from));
    let labels = Int32Array::from_iter_values((0..40).map(|row| row % 4));
    let columns = vec![("a", column(numbers)), ("label", column(labels))];
    store
        .put("train/0.parquet", parquet(columns, 10))
        .await
        .unwrap();
    let weighted = balanced(ClassBalance::Weighted(vec![1.0; 5]), 10);
    let loader = open(&store, &weighted).await;
    assert_eq!(loader.batches().unwrap().count(), 4);
    let declared = LoaderConfig {
        input: InputConfig {
            target: Some(TargetKind::Classification { classes: 4 }),
            ..InputConfig::new()
        },
        ..weighted
    };
    let error = refused(&store, &declared).await.to_string();
    assert!(
        error.contains("`5` weights and the dataset has `4` classes"),
        "{error}"
    );
}

/// The first reads of a shard are where the targets of a block are, and the targets; its head is that of another.
async fn damaged(read: u64, bit: usize) -> Loader {
    let store = dataset().await;
    let rule = Rule {
        operation: Operation::Read,
        path_contains: "00002".into(),
        skip: read,
        times: 1,
        effect: Effect::FlipBit(bit),
    };
    let config = LoaderConfig {
        reads: 1,
        ..balanced(ClassBalance::Equal, 50)
    };
    open(&store.with_faults(Faults::new(vec![rule])), &config).await
}

#[tokio::test]
async fn targets_damaged_on_the_way_are_found_before_any_is_used() {
    let expected = open(&dataset().await, &balanced(ClassBalance::Equal, 50)).await;
    // The offsets of the targets are read again, with the block and its checksum.
    let loader = damaged(0, 8 * 9).await;
    assert_eq!(loader.start_state(), expected.start_state());
    let loader = damaged(1, 0).await;
    assert_ne!(loader.start_state(), expected.start_state());
    let error = failure(loader.batches().unwrap()).to_string();
    assert!(error.contains("open the loader again"), "{error}");
}

#[tokio::test]
async fn fault_02_a_damaged_block_has_a_stand_in_whose_classes_are_its_own() {
    let store = dataset().await;
    let path = "shards/train/00001.arrow";
    let mut bytes = store.get(path).await.unwrap().to_vec();
    let loader = open(&store, &config(50)).await;
    let block = &loader.manifest().unwrap().splits[0].shards[1].blocks[4];
    // In `x`, which comes before the targets. The block holds samples 800 to 839.
    let byte = block.offset + u64::from(block.metadata_bytes) + 200;
    bytes[usize::try_from(byte).unwrap()] ^= 1;
    store.put(path, bytes.into()).await.unwrap();
    let config = LoaderConfig {
        max_bad_fraction: 0.1,
        ..balanced(ClassBalance::Equal, 50)
    };
    let start = open(&store, &config).await.start_state();
    let stores = [store];
    let (alone, _) = run_mixture(&stores, &config, 1, &start, usize::MAX, samples).await;
    let all = alone.concat();
    assert_eq!(all.len() as u64, SAMPLES);
    assert!(all.iter().all(|sample| !(800..840).contains(sample)));
    let (joined, _) = run_mixture(&stores, &config, 3, &start, usize::MAX, samples).await;
    assert_eq!(joined, alone);
}

#[tokio::test]
async fn a_image_that_comes_again_in_an_epoch_is_cropped_anew() {
    let store = Store::memory();
    let members: Vec<_> = (0..20)
        .flat_map(|sample| {
            let class = u8::from(sample == 7);
            let image = image::RgbImage::from_fn(40, 40, |x, y| {
                image::Rgb([
                    u8::try_from(x * 6).unwrap(),
                    u8::try_from(y * 6).unwrap(),
                    class,
                ])
            });
            let mut png = std::io::Cursor::new(Vec::new());
            image.write_to(&mut png, image::ImageFormat::Png).unwrap();
            [
                (format!("{sample:04}.cls"), class.to_string().into()),
                (format!("{sample:04}.png"), png.into_inner()),
            ]
        })
        .collect();
    store.put("0.tar", archive(&members)).await.unwrap();
    let crop = Crop::RandomResized {
        scale: [0.1, 0.5],
        ratio: [0.75, 1.25],
    };
    let config = LoaderConfig {
        images: Some(ImageConfig::new(4, 4, crop)),
        ..balanced(ClassBalance::Equal, 16)
    };
    let loader = open(&store, &config).await;
    let mut crops = BTreeSet::new();
    for _ in 0..2 {
        for batch in loader.batches().unwrap() {
            let batch = batch.unwrap();
            let Target::Classification(classes) = batch.y() else {
                panic!("there are no classes")
            };
            let rare = batch
                .pixels()
                .chunks(48)
                .zip(classes)
                .filter(|(_, c)| **c == 1);
            crops.extend(rare.map(|(pixels, _)| pixels.to_vec()));
        }
    }
    // Ten in each epoch; two of them may be the same by chance.
    assert!(crops.len() >= 18, "{} different crops of 20", crops.len());
}
