//! Mixup and CutMix in whole passes.

use std::sync::Arc;

use feedline_loader::{
    Batch, Loader, LoaderConfig, Target,
    device::{self, ChannelOrder, HostDriver, Normalize, Uploader},
    image::{Crop, ImageConfig, Mix, MixConfig, MixedBy, apply_mix},
};
use feedline_storage::Store;

use crate::{config, foreign::archive, formats::png, of_rank, open};

const CLASSES: usize = 5;
const SIDE: usize = 4;
const PIXELS: usize = SIDE * SIDE * 3;
const BATCHES: usize = 7;

/// 96 images of one colour each in eight archives; the one of sample 7 is broken.
async fn archives() -> Store {
    let store = Store::memory();
    for number in 0..8u64 {
        let members: Vec<_> = (number * 12..(number + 1) * 12)
            .flat_map(|sample| {
                let mut image = png(sample);
                if sample == 7 {
                    image.truncate(image.len() / 2);
                }
                [
                    (format!("{sample:04}.cls"), (sample % 5).to_string().into()),
                    (format!("{sample:04}.png"), image),
                ]
            })
            .collect();
        store
            .put(&format!("{number}.tar"), archive(&members))
            .await
            .unwrap();
    }
    store
}

/// Batches of 15, an odd number, so that shares cut pairs.
fn mixed(mix: Option<MixConfig>) -> LoaderConfig {
    let side = u32::try_from(SIDE).unwrap();
    LoaderConfig {
        images: Some(ImageConfig {
            mix,
            ..ImageConfig::new(side, side, Crop::Whole)
        }),
        max_bad_fraction: 0.05,
        ..config(15)
    }
}

/// A mixed image and its labels.
#[derive(Clone, Debug, PartialEq)]
struct Row {
    key: u64,
    stands_in: bool,
    pixels: Vec<u8>,
    y: i32,
    y_partner: i32,
    lambda: f32,
    soft: Vec<f32>,
}

fn classes(target: Target<'_>) -> Vec<i32> {
    match target {
        Target::Classification(y) => y.to_vec(),
        Target::None | Target::Regression(_) | Target::Regressions { .. } => Vec::new(),
    }
}

fn rows(batch: &Batch) -> Vec<Row> {
    let mut soft = vec![9.0; batch.rows() * CLASSES];
    batch.soft_labels(CLASSES, &mut soft);
    let (y, y_partner) = (classes(batch.y()), classes(batch.y_partner()));
    assert_eq!((y.len(), y_partner.len()), (batch.rows(), batch.rows()));
    assert_eq!(batch.keys().len(), batch.rows());
    let stand_ins: Vec<_> = batch.substituted().collect();
    assert!(stand_ins.iter().all(|row| *row < batch.rows()));
    (0..batch.rows())
        .map(|row| Row {
            key: batch.keys()[row],
            stands_in: stand_ins.contains(&row),
            pixels: batch.pixels()[row * PIXELS..(row + 1) * PIXELS].to_vec(),
            y: y[row],
            y_partner: y_partner[row],
            lambda: batch.lambda()[row],
            soft: soft[row * CLASSES..(row + 1) * CLASSES].to_vec(),
        })
        .collect()
}

/// Results of `look` on each global batch, from the batches of all ranks.
async fn joined<T>(
    store: &Store,
    config: &LoaderConfig,
    world: u32,
    look: impl Fn(&Batch) -> Vec<T>,
) -> Vec<Vec<T>> {
    let mut joined: Vec<Vec<T>> = (0..BATCHES).map(|_| Vec::new()).collect();
    for rank in 0..world {
        let loader = open(store, &of_rank(config, rank, world)).await;
        let mut batches = 0;
        for (joined, batch) in joined.iter_mut().zip(loader.batches().unwrap()) {
            joined.extend(look(&batch.unwrap()));
            batches += 1;
        }
        assert_eq!(batches, BATCHES);
    }
    joined
}

#[tokio::test]
async fn mixed_images_and_labels_are_those_of_the_pairs_on_any_ranks() {
    let store = archives().await;
    let plain = joined(&store, &mixed(None), 1, |batch| {
        assert!(batch.mixes().is_empty() && batch.lambda().is_empty());
        assert_eq!(batch.y_partner(), Target::None);
        assert_eq!(batch.held_pixels(), batch.pixels());
        let pixels = batch.pixels().chunks(PIXELS).map(<[u8]>::to_vec);
        pixels.zip(classes(batch.y())).collect()
    })
    .await;
    let config = mixed(Some(MixConfig::new(0.4, 0.4)));
    let expected = joined(&store, &config, 1, rows).await;
    let mixes = joined(&store, &config, 1, |batch| batch.mixes().to_vec()).await;
    let (mut blended, mut cut, mut unmixed) = (0, 0, 0);
    for ((plain, expected), mixes) in plain.iter().zip(&expected).zip(&mixes) {
        for (slot, (row, mix)) in expected.iter().zip(mixes).enumerate() {
            let (mut pixels, y) = plain[slot].clone();
            let (other, y_partner) = &plain[mix.partner];
            apply_mix(mix, &mut pixels, other, 4);
            assert_eq!(row.pixels, pixels);
            assert_eq!((row.y, row.y_partner), (y, *y_partner));
            assert!(row.lambda.to_bits() == mix.lambda.to_bits());
            assert!((row.soft.iter().sum::<f32>() - 1.0).abs() < 1e-6);
            assert!(row.soft[usize::try_from(y).unwrap()] >= mix.lambda);
            if mix.partner == slot {
                unmixed += 1;
                assert!((mix.lambda - 1.0).abs() < f32::EPSILON && mix.cut.is_none());
            } else {
                assert_eq!(mix.partner, slot ^ 1);
                blended += u32::from(mix.cut.is_none());
                cut += u32::from(mix.cut.is_some());
            }
        }
    }
    assert!(blended > 20 && cut > 20 && unmixed > 8);
    let stand_ins = expected.concat().iter().filter(|row| row.stands_in).count();
    assert_eq!(stand_ins, 1);
    for world in [2, 3, 7, 15] {
        assert!(
            joined(&store, &config, world, rows).await == expected,
            "{world} ranks"
        );
    }
}

#[tokio::test]
async fn a_run_that_resumes_on_other_ranks_mixes_as_if_it_had_not_stopped() {
    let store = archives().await;
    let config = mixed(Some(MixConfig::new(0.5, 0.5)));
    let whole = joined(&store, &config, 1, rows).await;
    let loader = open(&store, &config).await;
    let state = loader
        .batches()
        .unwrap()
        .nth(2)
        .unwrap()
        .unwrap()
        .state()
        .clone();
    let mut rest = vec![Vec::new(); BATCHES - 3];
    for rank in 0..4 {
        let loader = open(&store, &of_rank(&config, rank, 4)).await;
        for (rest, batch) in rest.iter_mut().zip(loader.epoch(state.clone()).unwrap()) {
            rest.extend(rows(&batch.unwrap()));
        }
    }
    assert!(rest == whole[3..]);
}

/// The rank's own normalised images, mixed by the caller as a device would.
fn on_the_caller(batch: &Batch) -> Vec<Vec<u32>> {
    let own = batch.own_places();
    assert_eq!(own.len(), batch.rows());
    let held = batch.held_pixels();
    assert_eq!(batch.pixels(), &held[own.start * PIXELS..own.end * PIXELS]);
    let mut table = vec![device::Mix::NONE; held.len() / PIXELS];
    for (to, mix) in table[own.clone()].iter_mut().zip(batch.mixes()) {
        *to = mix.into();
    }
    let mut out = vec![0.0; held.len()];
    normalize().apply(held, &table, &mut out);
    let images = out.chunks(PIXELS).skip(own.start).take(own.len());
    images
        .map(|image| image.iter().map(|v| v.to_bits()).collect())
        .collect()
}

fn normalize() -> Normalize {
    let side = u32::try_from(SIDE).unwrap();
    Normalize::new(side, side, ChannelOrder::Last, [0.0; 3], [1.0 / 255.0; 3])
}

#[tokio::test]
async fn what_the_caller_mixes_is_the_same_on_any_ranks_and_what_the_loader_mixes() {
    let store = archives().await;
    let mix = MixConfig::new(0.4, 0.4);
    let by_loader = joined(&store, &mixed(Some(mix)), 1, rows).await;
    let config = mixed(Some(MixConfig {
        mixed_by: MixedBy::Caller,
        ..mix
    }));
    let expected = joined(&store, &config, 1, on_the_caller).await;
    for (floats, rows) in expected.concat().iter().zip(by_loader.concat()) {
        for (float, level) in floats.iter().zip(rows.pixels) {
            // A level is rounded, and so is what the loader mixes by.
            let float = f32::from_bits(*float);
            assert!(
                (float - f32::from(level)).abs() < 0.51,
                "{float} and {level}"
            );
        }
    }
    for world in [2, 3, 7, 15] {
        let found = joined(&store, &config, world, on_the_caller).await;
        assert!(found == expected, "{world} ranks");
        let labels = |batch: &Batch| {
            let rows = rows(batch).into_iter();
            rows.map(|row| (row.y, row.y_partner, row.lambda)).collect()
        };
        let one = joined(&store, &config, 1, labels).await;
        assert!(joined(&store, &config, world, labels).await == one);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_device_gets_the_partners_of_other_ranks_and_the_table() {
    let store = archives().await;
    let config = mixed(Some(MixConfig {
        mixed_by: MixedBy::Caller,
        ..MixConfig::new(0.4, 0.4)
    }));
    let mut guests = 0;
    for rank in 0..3 {
        let loader = open(&store, &of_rank(&config, rank, 3)).await;
        let look = |batch: Batch| {
            let mixes = batch.mixes().iter();
            let table: Vec<u8> = mixes
                .flat_map(|m| device::Mix::from(m).to_bytes())
                .collect();
            (batch.held_pixels().to_vec(), batch.own_places(), table)
        };
        let batches = loader.epoch(loader.start_state()).unwrap();
        let on_host: Vec<_> = batches.map(|batch| look(batch.unwrap())).collect();
        let pass = loader.epoch(loader.start_state()).unwrap();
        let uploader = Uploader::of_pass(Arc::new(HostDriver), (), pass, 2).unwrap();
        for (batch, (held_pixels, own, expected)) in uploader.zip(on_host) {
            let batch = batch.unwrap();
            let [pixels, y, table] = batch.parts() else {
                panic!("pixels, targets and mixes");
            };
            let read = |part: &std::ops::Range<usize>| batch.memory().to_vec(part.clone());
            assert_eq!(read(pixels), held_pixels);
            let held = held_pixels.len() / PIXELS;
            assert_eq!((y.len(), table.len()), (4 * held, 24 * held));
            assert_eq!(
                (batch.info().first, batch.info().rows),
                (own.start, own.len())
            );
            assert_eq!(read(table)[own.start * 24..own.end * 24], expected);
            guests += held - own.len();
        }
    }
    assert!(guests > 0);
}

#[tokio::test]
async fn a_sequential_pass_mixes_nothing() {
    let store = archives().await;
    let loader = open(&store, &mixed(Some(MixConfig::new(1.0, 0.0)))).await;
    let expected = open(&store, &mixed(None)).await;
    let pixels = |loader: &Loader| -> Vec<u8> {
        let batches = loader.sequential().unwrap().map(Result::unwrap);
        let look = |batch: Batch| {
            assert!(batch.lambda().is_empty());
            batch.pixels().to_vec()
        };
        batches.flat_map(look).collect()
    };
    assert!(pixels(&loader) == pixels(&expected));
}

#[tokio::test]
async fn shares_have_the_distribution_that_was_asked_for() {
    let store = archives().await;
    let mix = MixConfig {
        mixup_alpha: 1.0,
        ..MixConfig::new(0.5, 0.0)
    };
    let loader = open(&store, &mixed(Some(mix))).await;
    let (mut all, mut epochs) = (Vec::new(), Vec::new());
    for _ in 0..10 {
        let mixes = loader
            .batches()
            .unwrap()
            .flat_map(|batch| batch.unwrap().mixes().to_vec());
        let mixes: Vec<Mix> = mixes.collect();
        epochs.push(mixes[0].lambda.to_bits());
        all.extend(mixes);
    }
    epochs.sort_unstable();
    epochs.dedup();
    assert!(epochs.len() > 3, "epochs are mixed in their own ways");
    assert_eq!(all.len(), 960);
    let shares: Vec<f32> = all
        .iter()
        .map(|mix| mix.lambda)
        .filter(|l| *l < 1.0)
        .collect();
    // A share is even between 0 and 1. Bounds are about four standard errors.
    let mean = shares.iter().sum::<f32>() / shares.len() as f32;
    assert!((415..545).contains(&shares.len()), "{}", shares.len());
    assert!((mean - 0.5).abs() < 0.055, "{mean}");
    let low = shares.iter().filter(|l| **l < 0.25).count();
    assert!((80..160).contains(&low), "{low}");
}
