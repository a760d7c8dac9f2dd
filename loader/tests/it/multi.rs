//! Rows of several parts.

use std::collections::BTreeSet;

use feedline_loader::{
    Batch, BatchKind, LoaderConfig, Target,
    image::{Crop, ImageConfig, MixConfig},
};
use feedline_schemas::manifest::{Layout, RowTokens, Split, TargetKind, TokenType};
use feedline_storage::Store;

use crate::{
    config,
    dataset::{BROKEN, FEATURES, SIDE, document, document_length, publish_layout, small_pixels},
    elastic::run_mixture,
    failure, open, refused,
};

const ROWS: u64 = 340;
const LENGTH: u32 = 24;
const TOKENS: RowTokens = RowTokens {
    id: TokenType::U16,
    vocabulary: 500,
    length: LENGTH,
};

fn layout(features: u32, images: bool, tokens: Option<RowTokens>) -> Layout {
    Layout::Multi {
        features,
        images,
        tokens,
        target: TargetKind::Regression,
    }
}

async fn published(layout: Layout) -> Store {
    let store = Store::memory();
    let shards: &[&[u32]] = &[&[40; 5], &[40, 40, 40, 20]];
    publish_layout(&store, layout, &[(Split::Train, shards)]).await;
    store
}

fn settings() -> LoaderConfig {
    let side = u32::try_from(SIDE).unwrap();
    LoaderConfig {
        images: Some(ImageConfig::new(side, side, Crop::Whole)),
        max_bad_fraction: 0.01,
        ..config(16)
    }
}

/// Content of a row, with the number of its sample.
type Row = (u64, Vec<u32>, Vec<u8>, Vec<u32>, Option<u32>, u32);

fn rows(batch: &Batch) -> Vec<Row> {
    let BatchKind::Multi {
        features,
        height,
        width,
        length,
    } = batch.kind()
    else {
        unreachable!("{:?}", batch.kind());
    };
    let Target::Regression(y) = batch.y() else {
        unreachable!("{:?}", batch.y());
    };
    let part = |row: usize, size: usize| row * size..(row + 1) * size;
    let row = |row: usize| {
        let x = batch.x()[part(row, features)].iter().map(|x| x.to_bits());
        (
            batch.origins()[row],
            x.collect(),
            batch.pixels()[part(row, 3 * height * width)].to_vec(),
            batch.tokens()[part(row, length)].to_vec(),
            batch.lengths().get(row).copied(),
            y[row].to_bits(),
        )
    };
    (0..batch.rows()).map(row).collect()
}

/// The row that a sample is, with the parts that are asked for.
fn expected(sample: u64, features: u32, images: bool, tokens: bool) -> Row {
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let number = |value: u64| (value as f32).to_bits();
    let x = [number(sample), number(1), number(2)];
    let mut ids = document(sample, TOKENS.vocabulary);
    ids.resize(LENGTH as usize, 0);
    (
        sample,
        x[..features as usize].to_vec(),
        if images { small_pixels(sample) } else { vec![] },
        if tokens { ids } else { vec![] },
        tokens.then(|| document_length(sample)),
        number(sample),
    )
}

#[tokio::test]
async fn all_parts_of_a_row_are_of_one_sample() {
    for (features, images, tokens) in [
        (FEATURES, true, true),
        (FEATURES, true, false),
        (FEATURES, false, true),
        (0, true, true),
        (0, false, true),
    ] {
        let store = published(layout(features, images, tokens.then_some(TOKENS))).await;
        let loader = open(&store, &settings()).await;
        let mut seen = BTreeSet::new();
        for batch in loader.batches().unwrap() {
            let batch = batch.unwrap();
            let substituted: Vec<usize> = batch.substituted().collect();
            for (number, row) in rows(&batch).into_iter().enumerate() {
                let sample = row.0;
                assert_eq!(row, expected(sample, features, images, tokens));
                if !substituted.contains(&number) {
                    assert!(seen.insert(sample));
                }
            }
        }
        // The next good row of its block replaces one whose image is broken.
        let missing: Vec<u64> = (0..ROWS).filter(|sample| !seen.contains(sample)).collect();
        let broken: &[u64] = if images { &[BROKEN] } else { &[] };
        assert_eq!(missing, broken);
    }
}

#[tokio::test]
async fn a_run_interrupted_anywhere_goes_on_with_other_ranks_as_if_it_had_not() {
    let side = u32::try_from(SIDE).unwrap();
    let store = published(layout(FEATURES, true, Some(TOKENS))).await;
    let config = LoaderConfig {
        images: Some(ImageConfig::training(side, side)),
        ..settings()
    };
    let stores = std::slice::from_ref(&store);
    let start = open(&store, &config).await.start_state();
    let (alone, end) = run_mixture(stores, &config, 1, &start, usize::MAX, rows).await;
    let plain = open(&store, &settings()).await;
    let plain: Vec<Row> = plain
        .batches()
        .unwrap()
        .flat_map(|b| rows(&b.unwrap()))
        .collect();
    let changed = plain.iter().zip(alone.iter().flatten());
    let changed = changed.filter(|(a, b)| a.0 == b.0 && a.2 != b.2).count();
    assert!(changed > 100, "{changed} images were cut or mirrored");
    let mut random = 12_345_u32;
    let mut draw = |below: u32| {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (random >> 8) % below
    };
    for _ in 0..12 {
        let mut joined = Vec::new();
        let mut state = start.clone();
        while joined.len() < alone.len() {
            let (world, most) = (1 + draw(7), 1 + draw(12) as usize);
            let (some, after) = run_mixture(stores, &config, world, &state, most, rows).await;
            assert!(!some.is_empty());
            joined.extend(some);
            state = after;
        }
        assert!(joined == alone);
        assert_eq!(state, end);
    }
}

#[tokio::test]
async fn mixing_and_missing_settings_are_refused() {
    let store = published(layout(FEATURES, true, None)).await;
    let plain = settings();
    let mixed = LoaderConfig {
        images: plain.images.clone().map(|images| ImageConfig {
            mix: Some(MixConfig::new(0.5, 0.0)),
            ..images
        }),
        ..plain.clone()
    };
    let error = refused(&store, &mixed).await.to_string();
    assert!(error.contains("`images.mix`"), "{error}");
    let without = LoaderConfig {
        images: None,
        ..plain
    };
    let error = refused(&store, &without).await.to_string();
    assert!(
        error.contains("say how they are to be handed out"),
        "{error}"
    );
}

#[tokio::test]
async fn rows_that_contradict_the_manifest_are_refused() {
    let short = RowTokens {
        length: 10,
        ..TOKENS
    };
    let few = RowTokens {
        vocabulary: 100,
        ..TOKENS
    };
    let store = published(layout(FEATURES, true, Some(TOKENS))).await;
    let manifest = feedline_loader::read_manifest(&store).await.unwrap();
    for (tokens, reason) in [
        (
            short,
            "it has a row of more token ids than the `10` that the manifest says",
        ),
        (few, "the manifest says `100` ids"),
    ] {
        let mut manifest = manifest.clone();
        manifest.layout = layout(FEATURES, true, Some(tokens));
        crate::dataset::publish_manifest(&store, manifest).await;
        let loader = open(&store, &settings()).await;
        let error = failure(loader.batches().unwrap());
        assert!(error.to_string().contains(reason), "{error}");
    }
}
