//! Mixup and CutMix in whole passes.

use feedline_loader::{
    Batch, Loader, LoaderConfig, Target,
    image::{Crop, ImageConfig, Mix, MixConfig, apply_mix},
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
