//! The disk cache in front of formats that have no checksums: files are known by their version in the store.

use std::{path::Path, sync::Arc};

use arrow::array::{Float32Array, Int32Array};
use bytes::Bytes;
use feedline_loader::{
    CacheConfig, InputConfig, Loader, LoaderConfig,
    image::{Crop, ImageConfig},
};
use feedline_storage::{Store, clock::SystemClock};

use super::network::{quick, s3};
use crate::{
    foreign::{Mds, MdsColumn, archive, column, parquet},
    formats::png,
    server::{Asked, Server},
};

const WEAK: &str = "W/\"1\"";

fn cached(dir: &Path) -> LoaderConfig {
    LoaderConfig {
        prefetch_bytes: 0,
        images: Some(ImageConfig::new(4, 4, Crop::Whole)),
        cache: Some(CacheConfig {
            dir: dir.to_owned(),
            bytes: 1 << 26,
        }),
        input: InputConfig::default(),
        ..quick()
    }
}

/// Rows `[i, -i]` of class `i % 7` in files of 400, for `i` below 1,200.
fn tables(server: &Server) {
    for number in 0..3i16 {
        let rows = number * 400..(number + 1) * 400;
        let numbers = |sign: f32| {
            let numbers = rows.clone().map(|i| f32::from(i) * sign);
            column(Float32Array::from_iter_values(numbers))
        };
        let label = rows.clone().map(|i| i32::from(i) % 7);
        let columns = vec![
            ("a", numbers(1.0)),
            ("b", numbers(-1.0)),
            ("label", column(Int32Array::from_iter_values(label))),
        ];
        server.put(&format!("train/{number}.parquet"), parquet(columns, 100));
    }
}

/// An archive of 60 images; sample `i` has the shade `shade(i)`.
fn images(shade: impl Fn(u64) -> u64) -> Bytes {
    let members: Vec<_> = (0..60)
        .flat_map(|s| {
            let class = (s % 5).to_string().into_bytes();
            [
                (format!("{s:04}.cls"), class),
                (format!("{s:04}.png"), png(shade(s))),
            ]
        })
        .collect();
    archive(&members)
}

async fn rows_of_mds(server: &Server, has_hashes: bool) {
    let columns: &[MdsColumn<'_>] = &[
        ("label", "int", Some(8)),
        ("x", "ndarray:float32:2", Some(8)),
    ];
    let sample = |i: u16| {
        let x = [f32::from(i).to_le_bytes(), (-f32::from(i)).to_le_bytes()];
        vec![u64::from(i % 7).to_le_bytes().to_vec(), x.concat()]
    };
    let mut mds = Mds::new(columns, false);
    mds.shard(&(0..200).map(sample).collect::<Vec<_>>());
    mds.shard(&(200..333).map(sample).collect::<Vec<_>>());
    if !has_hashes {
        for shard in &mut mds.shards {
            shard["raw_data"]["hashes"] = serde_json::json!({});
        }
    }
    let store = Store::memory();
    mds.put(&store).await;
    for listed in store.list("").await.unwrap() {
        server.put(&listed.path, store.get(&listed.path).await.unwrap());
    }
}

async fn open(server: &Server, config: &LoaderConfig) -> Loader {
    let clock = Arc::new(SystemClock);
    Loader::open(&s3(server), config, clock).await.unwrap()
}

/// Keys and the first number or pixel of every sample of the first epoch, and the requests that it took.
fn epoch(server: &Server, loader: &Loader) -> (Vec<(u64, u32)>, Vec<Asked>) {
    server.forget();
    let mut samples = Vec::new();
    for batch in loader.epoch(loader.start_state()).unwrap() {
        let batch = batch.unwrap();
        let firsts: Vec<u32> = match loader.kind() {
            feedline_loader::BatchKind::Rows { features } => {
                let rows = batch.x().chunks(features);
                rows.map(|row| row[0].to_bits()).collect()
            }
            _ => {
                let images = batch.pixels().chunks(4 * 4 * 3);
                images.map(|pixels| pixels[0].into()).collect()
            }
        };
        samples.extend(batch.origins().iter().copied().zip(firsts));
    }
    (samples, server.log())
}

/// A first epoch asks for everything, a second one for nothing, and another job for versions at most.
async fn check(server: &Server, files: usize) {
    for extent_bytes in [0, 1 << 20] {
        let dir = tempfile::tempdir().unwrap();
        let config = LoaderConfig {
            extent_bytes,
            ..cached(dir.path())
        };
        let plain = open(
            server,
            &LoaderConfig {
                cache: None,
                ..config.clone()
            },
        )
        .await;
        let (expected, _) = epoch(server, &plain);
        let loader = open(server, &config).await;
        let (first, asked) = epoch(server, &loader);
        assert_eq!(first, expected);
        assert!(asked.len() >= files);
        let (again, asked) = epoch(server, &loader);
        assert_eq!(again, expected);
        assert_eq!(asked.len(), 0, "{asked:?}");
        let cache = loader.metrics().cache;
        assert!(
            cache.hits > 0 && cache.damaged == 0 && cache.passed == 0,
            "{cache:?}"
        );
        drop(loader);
        let loader = open(server, &config).await;
        let (again, asked) = epoch(server, &loader);
        assert_eq!(again, expected);
        assert!(asked.len() <= files, "{asked:?}");
        assert!(
            asked
                .iter()
                .all(|asked| asked.range.as_ref().is_some_and(|r| r.end - r.start == 1))
        );
        assert_eq!(loader.metrics().cache.misses, 0);
    }
}

#[tokio::test]
async fn tables_are_read_from_the_store_once() {
    let server = Server::start();
    tables(&server);
    check(&server, 3).await;
}

#[tokio::test]
async fn archives_are_read_from_the_store_once() {
    let server = Server::start();
    for (number, bytes) in [images(|s| s), images(|s| s + 60)].into_iter().enumerate() {
        server.put(&format!("{number}.tar"), bytes);
    }
    check(&server, 2).await;
}

#[tokio::test]
async fn shards_of_mds_are_read_from_the_store_once_also_for_their_hashes() {
    for has_hashes in [true, false] {
        let server = Server::start();
        rows_of_mds(&server, has_hashes).await;
        check(&server, 2).await;
    }
}

/// Headers and sizes are the same, so that the dataset looks the same: only the version differs.
#[tokio::test]
async fn bytes_of_another_version_are_never_served() {
    let server = Server::start();
    // Images whose files are as long change places.
    let twin = |sample| {
        let same = (0..60).filter(|other| png(*other).len() == png(sample).len());
        let same: Vec<u64> = same.collect();
        let at = same.iter().position(|other| *other == sample).unwrap();
        same[same.len() - 1 - at]
    };
    let (old, new) = (images(|s| s), images(twin));
    assert_ne!(old, new);
    let changed: Vec<_> = (0..60).map(|s| u32::try_from(twin(s)).unwrap()).collect();
    let dir = tempfile::tempdir().unwrap();
    let shades = |samples: Vec<(u64, u32)>| {
        let mut samples = samples;
        samples.sort_unstable();
        samples
            .into_iter()
            .map(|(_, shade)| shade)
            .collect::<Vec<_>>()
    };
    let mut fingerprints = Vec::new();
    for (bytes, expected) in [
        (&old, (0..60).collect::<Vec<_>>()),
        (&new, changed),
        (&old, (0..60).collect()),
    ] {
        server.put("0.tar", bytes.clone());
        let loader = open(&server, &cached(dir.path())).await;
        fingerprints.push(loader.fingerprint());
        assert_eq!(shades(epoch(&server, &loader).0), expected);
    }
    assert_eq!(fingerprints[0], fingerprints[1]);
}

#[tokio::test]
async fn fault_11_a_file_that_is_replaced_during_the_run_ends_it_or_is_served_as_it_was() {
    let server = Server::start();
    server.put("0.tar", images(|s| s));
    let dir = tempfile::tempdir().unwrap();
    let loader = open(&server, &cached(dir.path())).await;
    let (expected, _) = epoch(&server, &loader);
    server.put("0.tar", images(|s| 59 - s));
    assert_eq!(epoch(&server, &loader).0, expected, "all of it is there");
    let own = dir.path().join("feedline-cache-v1");
    std::fs::rename(own, dir.path().join("gone")).unwrap();
    let error = crate::failure(loader.epoch(loader.start_state()).unwrap());
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.starts_with("dataset changed: "), "{source}");
}

#[tokio::test]
async fn without_versions_nothing_is_kept() {
    let server = Server::start();
    server.put_as("0.tar", images(|s| s), WEAK.into());
    let dir = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        let loader = open(&server, &cached(dir.path())).await;
        for _ in 0..2 {
            let (samples, asked) = epoch(&server, &loader);
            assert_eq!(samples.len(), 60);
            assert!(
                asked
                    .iter()
                    .any(|asked| asked.range.as_ref().is_some_and(|r| r.end > 1000))
            );
        }
        let cache = loader.metrics().cache;
        assert_eq!((cache.hits, cache.stored_bytes), (0, 0));
    }
}

#[tokio::test]
async fn rot_of_a_file_that_only_its_own_checksum_tells_is_fetched_again() {
    use std::os::unix::fs::PermissionsExt as _;
    let server = Server::start();
    tables(&server);
    let dir = tempfile::tempdir().unwrap();
    let loader = open(&server, &cached(dir.path())).await;
    let (expected, _) = epoch(&server, &loader);
    drop(loader);
    let folders = std::fs::read_dir(dir.path().join("feedline-cache-v1/extents")).unwrap();
    let mut count = 0;
    for file in folders.flat_map(|folder| std::fs::read_dir(folder.unwrap().path()).unwrap()) {
        let file = file.unwrap().path();
        let mut bytes = std::fs::read(&file).unwrap();
        let last = bytes.len() - 40;
        bytes[last] ^= 64;
        std::fs::remove_file(&file).unwrap();
        std::fs::write(&file, bytes).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o444)).unwrap();
        count += 1;
    }
    let loader = open(&server, &cached(dir.path())).await;
    assert_eq!(epoch(&server, &loader).0, expected);
    assert_eq!(loader.metrics().cache.damaged, count);
}
