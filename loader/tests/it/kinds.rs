//! Batches of tokens, mixtures of datasets, and images that cannot be used.

use std::collections::{BTreeMap, BTreeSet};

use feedline_loader::{
    Batch, Error, Loader, LoaderConfig, MixtureConfig, SourceWeight, TokenLayout, TokensConfig,
    image::{Crop, ImageConfig, ImageLimits},
};
use feedline_schemas::{
    config::ImageBackground,
    manifest::{Layout, Split, TokenType},
};
use feedline_storage::{Store, clock::SystemClock};

use crate::{
    collect, config,
    dataset::{document, document_length, publish_layout, publish_train},
    failure,
    faults::pipeline::damage,
    foreign::archive,
    of_rank, open,
};

const VOCABULARY: u32 = 60_000;
const DOCUMENTS: u64 = 340;

async fn tokens(id: TokenType) -> Store {
    let store = Store::memory();
    let layout = Layout::Tokens {
        id,
        vocabulary: VOCABULARY,
    };
    let shards: &[&[u32]] = &[&[40; 5], &[40, 40, 40, 20]];
    publish_layout(&store, layout, &[(Split::Train, shards)]).await;
    store
}

fn with_tokens(length: u32, layout: TokenLayout) -> LoaderConfig {
    LoaderConfig {
        tokens: Some(TokensConfig {
            padding_id: 77_777,
            ..TokensConfig::new(length).with_layout(layout)
        }),
        ..config(16)
    }
}

#[tokio::test]
async fn a_row_is_a_document_cut_at_the_length() {
    for id in [TokenType::U16, TokenType::U32] {
        let loader = open(&tokens(id).await, &with_tokens(12, TokenLayout::Documents)).await;
        let mut seen = BTreeSet::new();
        for batch in loader.batches().unwrap() {
            let batch = batch.unwrap();
            for (row, sample) in batch.tokens().chunks(12).zip(batch.origins()) {
                let mut expected = document(*sample, VOCABULARY);
                expected.resize(12, 77_777);
                assert_eq!(row, expected);
                assert!(seen.insert(*sample));
            }
        }
        assert_eq!(seen.len() as u64, DOCUMENTS);
        let is_longer = |sample: &u64| document(*sample, VOCABULARY).len() > 12;
        let longer = (0..DOCUMENTS).filter(is_longer).count() as u64;
        assert!((1..DOCUMENTS).contains(&longer), "{longer}");
        assert_eq!(loader.metrics().truncated_documents, longer);
        let warnings = loader.warnings();
        let [warning] = warnings.as_slice() else {
            panic!("{warnings:?}")
        };
        assert!(warning.contains("documents are truncated to `tokens.length`, which is `12`"));
    }
    let settings = with_tokens(1 << 10, TokenLayout::Documents);
    let fits = open(&tokens(TokenType::U16).await, &settings).await;
    assert_eq!(fits.batches().unwrap().map(Result::unwrap).count(), 22);
    assert_eq!(fits.metrics().truncated_documents, 0);
    assert_eq!(fits.warnings(), [""; 0]);
}

#[tokio::test]
async fn packed_rows_hold_every_token_once_with_its_document_and_position() {
    let store = tokens(TokenType::U16).await;
    let config = with_tokens(15, TokenLayout::Packed);
    let mut of_one = Vec::new();
    for world in [1, 3] {
        let mut found = BTreeMap::<u32, u32>::new();
        let (mut rows, mut free, mut joined) = (0, 0, Vec::new());
        for rank in 0..world {
            let loader = open(&store, &of_rank(&config, rank, world)).await;
            for batch in loader.batches().unwrap() {
                let batch = batch.unwrap();
                let rows_of =
                    |column: &[u32]| column.chunks(15).map(<[u32]>::to_vec).collect::<Vec<_>>();
                let columns = [batch.tokens(), batch.segments(), batch.positions()].map(rows_of);
                for row in 0..batch.rows() {
                    rows += 1;
                    let [ids, segments, positions] = columns.each_ref().map(|column| &column[row]);
                    assert!(segments.iter().filter(|s| **s > 0).is_sorted());
                    for ((id, segment), position) in ids.iter().zip(segments).zip(positions) {
                        if *segment == 0 {
                            assert_eq!((*id, *position), (77_777, 0));
                            free += 1;
                        } else {
                            // Document `i` counts up from `i`.
                            assert!(document_length(u64::from(id - position)) > *position);
                            *found.entry(id - position).or_default() += 1;
                        }
                    }
                    joined.push(ids.clone());
                }
            }
        }
        let expected: BTreeMap<_, _> = (0..DOCUMENTS)
            .map(|i| (u32::try_from(i).unwrap(), document_length(i)))
            .filter(|(_, length)| *length > 0)
            .collect();
        assert_eq!(found, expected, "world {world}");
        assert!(
            free * 20 < rows * 15,
            "{free} of {rows} rows of 15 are padding"
        );
        joined.sort();
        if world == 1 {
            of_one = joined;
        } else {
            assert_eq!(joined, of_one);
        }
    }
}

/// Documents of a block that replaces a damaged one have other lengths, and it has another number
/// of tokens.
#[tokio::test]
async fn fault_02_a_damaged_block_of_tokens_costs_its_own_rows_only() {
    let healthy = tokens(TokenType::U16).await;
    for block in 0..5 {
        let damaged = tokens(TokenType::U16).await;
        let loader = open(&damaged, &with_tokens(15, TokenLayout::Documents)).await;
        damage(&damaged, loader.manifest().unwrap(), 0, &[block]).await;
        // Ids of its documents, which count up from their number.
        let first = 40 * u32::try_from(block).unwrap();
        let own = first..first + 40 + 23;
        for layout in [
            TokenLayout::Documents,
            TokenLayout::Packed,
            TokenLayout::Stream,
        ] {
            let config = LoaderConfig {
                max_bad_fraction: 0.5,
                ..with_tokens(15, layout)
            };
            let expected = ids_and_segments(&open(&healthy, &config).await);
            let loader = open(&damaged, &config).await;
            if layout == TokenLayout::Stream && (0..8).all(|other| ids_in(other) <= ids_in(block)) {
                let error = failure(loader.batches().unwrap());
                assert!(matches!(error, Error::Corrupt { .. }), "{error}");
                continue;
            }
            let found = ids_and_segments(&loader);
            assert_eq!(loader.quarantine().len(), 1, "{layout:?}");
            assert!(loader.metrics().substituted > 0, "{layout:?}");
            assert_eq!(found.len(), expected.len(), "{layout:?}");
            let mut others = 0;
            for (found, expected) in found.iter().zip(&expected) {
                let ids = &expected.0;
                let has_ids = ids.iter().any(|id| *id != 77_777);
                if has_ids && !ids.iter().any(|id| own.contains(id)) {
                    assert_eq!(found, expected, "{layout:?}");
                    others += 1;
                }
                for (id, segment) in found.0.iter().zip(&found.1) {
                    assert_eq!(*segment == 0, *id == 77_777, "padding is marked");
                }
            }
            assert!(
                others > 0 && others < expected.len(),
                "{layout:?}: {others}"
            );
        }
    }
}

/// Ids in a block of 40 documents.
fn ids_in(block: usize) -> u32 {
    let first = 40 * block as u64;
    (first..first + 40).map(document_length).sum()
}

/// The rows of an epoch of rows of 15; without segments where there are none.
fn ids_and_segments(loader: &Loader) -> Vec<(Vec<u32>, Vec<u32>)> {
    let rows = |batch: Batch| {
        let ids = batch.tokens().chunks(15).map(<[u32]>::to_vec);
        let mut segments = batch.segments().chunks(15).map(<[u32]>::to_vec);
        let rows = ids.map(|ids| (ids, segments.next().unwrap_or_default()));
        rows.collect::<Vec<_>>()
    };
    let batches = loader.batches().unwrap().map(Result::unwrap);
    batches.flat_map(rows).collect()
}

#[tokio::test]
async fn a_stream_of_tokens_predicts_each_but_the_first_once() {
    let store = tokens(TokenType::U32).await;
    let all: Vec<u32> = (0..DOCUMENTS)
        .flat_map(|i| document(i, VOCABULARY))
        .collect();
    for length in [2, 9, 50, 700] {
        let config = with_tokens(length, TokenLayout::Stream);
        let loader = open(&store, &config).await;
        let step = length as usize - 1;
        let mut expected: Vec<Vec<u32>> = (0..all.len() - 1)
            .step_by(step)
            .map(|start| {
                let mut row = all[start..all.len().min(start + step + 1)].to_vec();
                row.resize(step + 1, 77_777);
                row
            })
            .collect();
        let mut seen = Vec::new();
        for batch in loader.batches().unwrap() {
            seen.extend(
                batch
                    .unwrap()
                    .tokens()
                    .chunks(step + 1)
                    .map(<[u32]>::to_vec),
            );
        }
        assert!(seen != expected, "it is shuffled");
        let mut ordered = Vec::new();
        for batch in loader.sequential().unwrap() {
            ordered.extend(
                batch
                    .unwrap()
                    .tokens()
                    .chunks(step + 1)
                    .map(<[u32]>::to_vec),
            );
        }
        assert_eq!(ordered, expected, "length {length}");
        seen.sort();
        expected.sort();
        assert_eq!(seen, expected, "length {length}");
    }
}

#[tokio::test]
async fn overlapping_pieces_predict_every_token_of_a_document_but_its_first_once() {
    let store = tokens(TokenType::U16).await;
    for length in [2, 9, 50, 700] {
        let predicted = async |layout| {
            let loader = open(&store, &with_tokens(length, layout)).await;
            let mut found = Vec::new();
            for batch in loader.sequential().unwrap() {
                let batch = batch.unwrap();
                let columns = [batch.tokens(), batch.segments(), batch.positions()];
                let [ids, segments, positions] =
                    columns.map(|column| column.chunks_exact(length as usize));
                for ((ids, segments), positions) in ids.zip(segments).zip(positions) {
                    for at in 1..ids.len() {
                        if segments[at] != 0 && segments[at] == segments[at - 1] {
                            // Document `i` counts up from `i`.
                            assert_eq!(ids[at], ids[at - 1] + 1);
                            found.push((ids[at] - positions[at], positions[at]));
                        }
                    }
                }
            }
            found.sort_unstable();
            found
        };
        let found = predicted(TokenLayout::PackedOverlapping).await;
        let documents: BTreeSet<u32> = found.iter().map(|(document, _)| *document).collect();
        let of = |document| (1..document_length(u64::from(document))).map(move |at| (document, at));
        let expected: Vec<(u32, u32)> = documents.into_iter().flat_map(of).collect();
        assert_eq!(found, expected, "{length}");
        // Disjoint pieces leave one out for each piece behind the first.
        let disjoint = predicted(TokenLayout::Packed).await;
        assert_eq!(disjoint.len() < found.len(), length < 23, "{length}");
    }
}

#[tokio::test]
async fn filled_rows_are_a_stream_that_tells_documents_apart() {
    let store = tokens(TokenType::U16).await;
    for length in [2, 9, 50, 700] {
        let rows_of = async |layout| {
            let loader = open(&store, &with_tokens(length, layout)).await;
            let mut rows = Vec::new();
            for batch in loader.sequential().unwrap() {
                let batch = batch.unwrap();
                let columns = [batch.tokens(), batch.segments(), batch.positions()];
                let row = |row: usize| {
                    let range = row * length as usize..(row + 1) * length as usize;
                    columns.map(|column| column.get(range.clone()).map(<[u32]>::to_vec))
                };
                rows.extend((0..batch.rows()).map(row));
            }
            rows
        };
        let stream = rows_of(TokenLayout::Stream).await;
        let filled = rows_of(TokenLayout::Filled).await;
        assert_eq!(stream.len(), filled.len());
        for ([ids, none, _], [filled, segments, positions]) in stream.into_iter().zip(filled) {
            assert_eq!((&ids, none), (&filled, None));
            let [ids, segments, positions] = [ids, segments, positions].map(Option::unwrap);
            let mut before: Option<(u32, u32)> = None;
            for ((id, segment), position) in ids.iter().zip(segments).zip(positions) {
                if *id == 77_777 {
                    assert_eq!((segment, position), (0, 0));
                    continue;
                }
                // Document `i` counts up from `i`; the first of a row may have begun before it.
                let document = id - position;
                assert!(position < document_length(u64::from(document)));
                let expected = match before {
                    None => 1,
                    Some((same, number)) if same == document => number,
                    Some((_, number)) => {
                        assert_eq!(position, 0);
                        number + 1
                    }
                };
                assert_eq!(segment, expected);
                before = Some((document, segment));
            }
        }
    }
}

#[tokio::test]
async fn a_mixture_has_every_dataset_by_its_weight_on_any_ranks() {
    let (first, second) = (Store::memory(), Store::memory());
    publish_train(&first, &[&[40; 10]]).await;
    publish_train(&second, &[&[30; 10]]).await;
    let stores = [first, second];
    let weight = |weight| SourceWeight {
        weight: Some(weight),
        ..SourceWeight::default()
    };
    let config = LoaderConfig {
        mixture: Some(MixtureConfig {
            sources: vec![weight(3.0), weight(1.0)],
            stratified: true,
            samples_per_epoch: Some(800),
        }),
        ..config(80)
    };
    let mut expected = Vec::new();
    for world in [1, 7] {
        let mut joined = vec![Vec::new(); 10];
        for rank in 0..world {
            let config = of_rank(&config, rank, world);
            let loader = Loader::open_mixture(&stores, &config, std::sync::Arc::new(SystemClock))
                .await
                .unwrap();
            assert_eq!(loader.batches_per_epoch(), 10);
            for (joined, batch) in joined.iter_mut().zip(collect(loader.batches().unwrap())) {
                joined.extend(batch);
            }
            assert!(loader.sequential().is_err());
        }
        if world == 1 {
            expected = joined;
        } else {
            assert_eq!(joined, expected);
        }
    }
    // Of 600 samples of the first dataset each comes once or twice; of 200 of the second, each at most once.
    let mut counts = BTreeMap::<u64, u32>::new();
    for sample in expected.concat() {
        *counts.entry(sample).or_default() += 1;
    }
    assert_eq!(counts.len(), 400);
    assert_eq!(counts.values().sum::<u32>(), 800);
}

#[tokio::test]
async fn datasets_that_do_not_fit_together_are_named() {
    let (rows, documents) = (Store::memory(), tokens(TokenType::U16).await);
    publish_train(&rows, &[&[40; 10]]).await;
    let clock = || std::sync::Arc::new(SystemClock);
    let settings = with_tokens(9, TokenLayout::Documents);
    let mixed = [rows, documents];
    let error = Loader::open_mixture(&mixed, &settings, clock())
        .await
        .unwrap_err();
    assert!(error.to_string().contains("different records"), "{error}");
    let error =
        Loader::open_mixture(&[mixed[0].clone(), mixed[0].clone()], &settings, clock()).await;
    assert!(
        error
            .unwrap_err()
            .to_string()
            .contains("say how they are mixed")
    );
    let error = Loader::open(&mixed[1], &config(8), clock())
        .await
        .unwrap_err();
    assert!(
        matches!(error, Error::Config { key: "tokens", .. }),
        "{error}"
    );
}

/// An image of one colour.
fn png(sample: u64) -> Vec<u8> {
    crate::formats::png(sample)
}

#[tokio::test]
async fn fault_23_a_broken_image_is_replaced_by_the_next_of_its_block_on_any_ranks() {
    let store = Store::memory();
    let broken = [7u64, 8, 99];
    let members: Vec<_> = (0..100)
        .flat_map(|sample| {
            let mut image = png(sample);
            if broken.contains(&sample) {
                image.truncate(image.len() / 2);
            }
            [
                (format!("{sample:04}.cls"), (sample % 5).to_string().into()),
                (format!("{sample:04}.png"), image),
            ]
        })
        .collect();
    store.put("0.tar", archive(&members)).await.unwrap();
    let config = LoaderConfig {
        images: Some(ImageConfig::new(4, 4, Crop::Whole)),
        max_bad_fraction: 0.03,
        ..config(16)
    };
    let mut expected = Vec::new();
    for world in [1, 3] {
        let mut joined = vec![Vec::new(); 7];
        let mut substituted = 0;
        for rank in 0..world {
            let loader = open(&store, &of_rank(&config, rank, world)).await;
            for (joined, batch) in joined.iter_mut().zip(loader.batches().unwrap()) {
                let batch = batch.unwrap();
                substituted += batch.substituted().count();
                joined.extend(batch.pixels().chunks(48).map(|pixels| u64::from(pixels[0])));
            }
            if world == 1 {
                let rows: Vec<_> = loader.quarantine().iter().map(|bad| bad.row).collect();
                assert_eq!(rows.len(), 3);
                let first = loader.quarantine().swap_remove(0);
                assert!(first.reason.contains("truncated"));
                // It is named with its key, and the rows that others took are counted.
                assert!(
                    first.key.is_some() && first.to_string().contains("with key `"),
                    "{first}"
                );
                assert_eq!(loader.metrics().substituted, 3);
            }
        }
        assert_eq!(substituted, 3, "world {world}");
        let mut all = joined.concat();
        all.sort_unstable();
        assert!(broken.iter().all(|sample| !all.contains(sample)));
        assert_eq!(all.iter().filter(|sample| **sample == 9).count(), 3);
        if world == 1 {
            expected = joined;
        } else {
            assert_eq!(joined, expected);
        }
    }
    let strict = LoaderConfig {
        max_bad_fraction: 0.02,
        ..config
    };
    let loader = open(&store, &strict).await;
    let error = failure(loader.batches().unwrap());
    assert!(
        matches!(
            error,
            Error::TooManyBad {
                bad: 3,
                samples: 100,
                ..
            }
        ),
        "{error}"
    );
}

#[tokio::test]
async fn transparent_pixels_are_blended_onto_the_background_of_the_settings() {
    let shadow = image::RgbaImage::from_pixel(4, 4, image::Rgba([0, 0, 0, 128]));
    let mut file = std::io::Cursor::new(Vec::new());
    shadow.write_to(&mut file, image::ImageFormat::Png).unwrap();
    let members: Vec<_> = (0..20)
        .map(|sample| (format!("{sample:04}.png"), file.get_ref().clone()))
        .collect();
    let store = Store::memory();
    store.put("0.tar", archive(&members)).await.unwrap();
    for (background, expected) in [
        (None, [0; 3]),
        (Some("none"), [0; 3]),
        (Some("white"), [127; 3]),
        (Some("#ff0002"), [127, 0, 1]),
    ] {
        let background: Option<ImageBackground> =
            background.map(|background| background.parse().unwrap());
        let config = LoaderConfig {
            images: Some(ImageConfig {
                background,
                ..ImageConfig::new(4, 4, Crop::Whole)
            }),
            ..config(4)
        };
        let loader = open(&store, &config).await;
        for batch in loader.batches().unwrap() {
            let batch = batch.unwrap();
            let mut pixels = batch.pixels().chunks(3);
            assert!(pixels.all(|pixel| *pixel == expected), "{background:?}");
        }
    }
}

#[tokio::test]
async fn an_image_over_a_limit_is_replaced_and_named_with_the_limit_and_its_key() {
    let store = Store::memory();
    let image = |sample: u64| match sample {
        7 => [b"P6\n9 8\n255\n".to_vec(), vec![1; 9 * 8 * 3]].concat(),
        // Of 9 times 7 pixels.
        _ => png(sample),
    };
    let members = (0..20).map(|sample| (format!("{sample:04}.png"), image(sample)));
    let members: Vec<_> = members.collect();
    store.put("0.tar", archive(&members)).await.unwrap();
    let limits = ImageLimits {
        pixels: 9 * 7,
        ..ImageLimits::DEFAULT
    };
    let config = LoaderConfig {
        images: Some(ImageConfig {
            limits,
            ..ImageConfig::new(4, 4, Crop::Whole)
        }),
        max_bad_fraction: 0.05,
        ..config(16)
    };
    let loader = open(&store, &config).await;
    let rows: usize = loader
        .batches()
        .unwrap()
        .map(|batch| batch.unwrap().rows())
        .sum();
    let found = loader.quarantine();
    assert_eq!((rows, found.len()), (20, 1));
    assert_eq!(loader.metrics().substituted, 1);
    let expected = "the image has `72` pixels and the limit is `63`; make it smaller, or raise `images.limits.pixels`";
    assert!(
        found[0].shard == "0.tar" && found[0].reason.contains(expected),
        "{}",
        found[0]
    );
}
