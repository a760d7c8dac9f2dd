//! The disk cache through whole passes: requests to the server, and damage to the folder.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use feedline_loader::{CacheConfig, Loader, LoaderConfig};

use super::network::{Remote, is_block, quick};
use crate::{
    collect, open,
    server::{Asked, Fault},
};

/// Samples and blocks of the dataset in these tests.
const SHAPE: &[&[u32]] = &[&[40; 16], &[40; 16], &[40; 16]];
const BLOCKS: u64 = 48;
/// Disk bytes of a block.
const DISK_BYTES: u64 = 4096;

/// Settings with a cache of `bytes` in `dir`, and little enough memory that each pass reads.
fn cached(dir: &Path, bytes: u64) -> LoaderConfig {
    LoaderConfig {
        prefetch_bytes: 20_000,
        cache: Some(CacheConfig {
            dir: dir.to_owned(),
            bytes,
        }),
        ..quick()
    }
}

async fn remote() -> Remote {
    let remote = Remote::of(SHAPE).await;
    let block = &remote.manifest.splits[0].shards[0].blocks[0];
    assert!(u64::from(block.metadata_bytes) + block.body_bytes < DISK_BYTES - 32);
    remote
}

/// All epochs up to `count`, and the requests for blocks of each.
fn epochs(remote: &Remote, loader: &Loader, count: usize) -> (Vec<Vec<Vec<u64>>>, Vec<Vec<Asked>>) {
    let mut state = loader.start_state();
    let (mut batches, mut requests) = (Vec::new(), Vec::new());
    for _ in 0..count {
        remote.server.forget();
        batches.push(collect(loader.epoch(state.clone()).unwrap()));
        let mut log = remote.server.log();
        log.retain(is_block);
        requests.push(log);
        state = loader.next_epoch(&state);
    }
    (batches, requests)
}

/// The same without a cache; its reads go to the store in the order of the plan.
async fn plain(remote: &Remote, count: usize) -> (Vec<Vec<Vec<u64>>>, Vec<Vec<Asked>>) {
    let config = LoaderConfig {
        cache: None,
        reads: 1,
        ..cached(Path::new(""), 0)
    };
    epochs(remote, &open(&remote.http(), &config).await, count)
}

/// With a cache that has room for everything.
fn with_extents(dir: &Path, extent_bytes: u64) -> LoaderConfig {
    LoaderConfig {
        extent_bytes,
        ..cached(dir, 1 << 24)
    }
}

/// The cache's files of extents.
fn files(dir: &Path) -> Vec<PathBuf> {
    let folders = fs::read_dir(dir.join("feedline-cache-v1/extents")).unwrap();
    let files = folders.flat_map(|folder| fs::read_dir(folder.unwrap().path()).unwrap());
    files.map(|file| file.unwrap().path()).collect()
}

#[tokio::test]
async fn a_second_epoch_and_a_second_job_ask_for_nothing() {
    let remote = remote().await;
    let (expected, _) = plain(&remote, 3).await;
    for extent_bytes in [0, 1 << 20] {
        let dir = tempfile::tempdir().unwrap();
        let config = with_extents(dir.path(), extent_bytes);
        let first = open(&remote.http(), &config).await;
        let (batches, requests) = epochs(&remote, &first, 3);
        if extent_bytes == 0 {
            assert_eq!(batches, expected);
            assert_eq!(requests[0].len() as u64, BLOCKS);
        } else {
            let extents = first.plan().requests;
            let found = requests[0].len() as u64;
            assert!((extents..extents + 4).contains(&found), "{found}");
        }
        assert!(requests[1].is_empty() && requests[2].is_empty());
        let cache = first.metrics().cache;
        assert_eq!((cache.misses, cache.hits), (BLOCKS + 1, 2 * BLOCKS));
        drop(first);
        let second = open(&remote.http(), &config).await;
        remote.server.forget();
        assert_eq!(
            collect(second.epoch(second.start_state()).unwrap()),
            batches[0]
        );
        assert!(
            remote.server.log().is_empty(),
            "heads come from the cache too"
        );
    }
}

#[tokio::test]
async fn jobs_at_the_same_time_ask_for_each_block_once() {
    let remote = remote().await;
    let (expected, _) = plain(&remote, 1).await;
    for extent_bytes in [0, 1 << 20] {
        let dir = tempfile::tempdir().unwrap();
        let config = with_extents(dir.path(), extent_bytes);
        let (first, second) = (
            open(&remote.http(), &config).await,
            open(&remote.http(), &config).await,
        );
        remote.server.forget();
        let pass = |loader: &Loader| collect(loader.epoch(loader.start_state()).unwrap());
        let (one, two) = std::thread::scope(|scope| {
            let one = scope.spawn(|| pass(&first));
            (pass(&second), one.join().unwrap())
        });
        assert_eq!(one, two);
        if extent_bytes == 0 {
            assert_eq!([one], expected[..]);
        }
        // Several heads and blocks may be in one request, and none of them is in two.
        let mut bytes = BTreeSet::new();
        for asked in remote.server.log().into_iter().filter(is_block) {
            let range = asked.range.unwrap();
            for at in range.step_by(64) {
                assert!(
                    bytes.insert((asked.path.clone(), at)),
                    "{} {at}",
                    asked.path
                );
            }
        }
    }
}

#[tokio::test]
async fn a_run_that_resumes_asks_only_for_what_the_one_before_did_not() {
    let remote = remote().await;
    let (expected, _) = plain(&remote, 1).await;
    let dir = tempfile::tempdir().unwrap();
    let config = LoaderConfig {
        prefetch_bytes: 0,
        ..cached(dir.path(), 1 << 24)
    };
    remote.server.forget();
    let first = open(&remote.http(), &config).await;
    let mut batches = first.epoch(first.start_state()).unwrap();
    let mut seen = Vec::new();
    let mut state = first.start_state();
    for batch in batches.by_ref().take(expected[0].len() / 3) {
        let batch = batch.unwrap();
        seen.push(crate::samples(&batch));
        state = batch.state().clone();
    }
    // Blocks are stored behind the reader, and each with a write to the disk: a busy machine does so much later, but as long as
    // somebody reads it does.
    for _ in 0..30_000 {
        if files(dir.path()).len() >= 4 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drop(batches);
    let stored = files(dir.path()).len() as u64;
    assert!(
        (4..BLOCKS).contains(&stored),
        "{stored}, {:?}",
        first.metrics().cache
    );
    drop(first);
    let second = open(&remote.http(), &config).await;
    remote.server.forget();
    seen.extend(collect(second.epoch(state).unwrap()));
    assert_eq!(seen, expected[0]);
    let cache = second.metrics().cache;
    assert!(cache.hits > 0, "{cache:?}");
    let log: Vec<_> = remote.server.log().into_iter().filter(is_block).collect();
    // Of what is missing, some may be heads.
    let asked = log.len() as u64;
    assert!((asked..=asked + 3).contains(&cache.misses), "{cache:?}");
    assert!(
        cache.misses <= BLOCKS + 1 - stored,
        "{cache:?} after {stored}"
    );
}

/// Hits of a cache of `room` blocks that drops the one unused for longest.
fn least_recently_used(reads: &[Asked], room: usize) -> u64 {
    let mut held: Vec<(&str, u64)> = Vec::new();
    let mut hits = 0;
    for asked in reads {
        let block = (asked.path.as_str(), asked.range.as_ref().unwrap().start);
        if let Some(at) = held.iter().position(|other| *other == block) {
            held.remove(at);
            hits += 1;
        }
        held.push(block);
        if held.len() > room {
            held.remove(0);
        }
    }
    hits
}

#[tokio::test]
async fn with_room_for_half_of_the_dataset_more_is_hit_than_by_the_order_of_access() {
    let remote = remote().await;
    let (expected, reads) = plain(&remote, 4).await;
    let dir = tempfile::tempdir().unwrap();
    let room = 27;
    let config = LoaderConfig {
        reads: 1,
        ..cached(dir.path(), room * DISK_BYTES)
    };
    let loader = open(&remote.http(), &config).await;
    let (batches, requests) = epochs(&remote, &loader, 4);
    assert_eq!(batches, expected);
    let asked: usize = requests.iter().map(Vec::len).sum();
    let hits = 4 * BLOCKS - asked as u64;
    // Heads take three of the places.
    let usual = least_recently_used(&reads.concat(), 24);
    assert!(hits > usual && hits >= BLOCKS, "{hits} beside {usual}");
    let there: u64 = files(dir.path()).len() as u64;
    assert!(there <= room, "{there}");
}

#[tokio::test]
async fn fault_03_rot_in_the_folder_is_fetched_again_and_never_handed_out() {
    let remote = remote().await;
    let (expected, _) = plain(&remote, 1).await;
    for extent_bytes in [0, 1 << 20] {
        let dir = tempfile::tempdir().unwrap();
        let config = with_extents(dir.path(), extent_bytes);
        let loader = open(&remote.http(), &config).await;
        let all = collect(loader.epoch(loader.start_state()).unwrap());
        drop(loader);
        let files = files(dir.path());
        assert_eq!(files.len() as u64, BLOCKS + 1);
        for file in &files {
            let mut bytes = fs::read(file).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            fs::remove_file(file).unwrap();
            fs::write(file, bytes).unwrap();
            fs::set_permissions(file, fs::Permissions::from_mode(0o444)).unwrap();
        }
        let loader = open(&remote.http(), &config).await;
        assert_eq!(collect(loader.epoch(loader.start_state()).unwrap()), all);
        assert_eq!(loader.metrics().cache.damaged, BLOCKS + 1);
        if extent_bytes == 0 {
            assert_eq!([all], expected[..]);
        }
    }
}

#[tokio::test]
async fn fault_10_a_shard_that_is_gone_is_served_from_the_cache() {
    let remote = remote().await;
    let dir = tempfile::tempdir().unwrap();
    let loader = open(&remote.http(), &cached(dir.path(), 1 << 24)).await;
    let (expected, _) = epochs(&remote, &loader, 2);
    for shard in &remote.manifest.splits[0].shards {
        remote.server.remove(&shard.path);
    }
    assert_eq!(epochs(&remote, &loader, 2).0, expected);
}

#[tokio::test]
async fn fault_18_a_folder_removed_under_the_run_costs_requests_only() {
    let remote = remote().await;
    let (expected, _) = plain(&remote, 2).await;
    let dir = tempfile::tempdir().unwrap();
    let loader = open(&remote.http(), &cached(dir.path(), 1 << 24)).await;
    let mut batches = loader.epoch(loader.start_state()).unwrap();
    let mut seen = collect(batches.by_ref().take(20));
    // In one step: writers are at work.
    let own = dir.path().join("feedline-cache-v1");
    let elsewhere = tempfile::tempdir().unwrap();
    fs::rename(&own, elsewhere.path().join("gone")).unwrap();
    seen.extend(collect(batches));
    assert_eq!(seen, expected[0]);
    let second = loader.next_epoch(&loader.start_state());
    assert_eq!(collect(loader.epoch(second).unwrap()), expected[1]);
    assert!(!own.exists(), "it is not made again behind the user's back");
}

const DIR: &str = "FEEDLINE_SMALL_DISK";

/// Runs itself in a file system of its own of 128 KiB, less than the cache's budget and the dataset.
#[tokio::test]
async fn fault_16_a_full_disk_costs_requests_only() {
    if let Some(dir) = std::env::var_os(DIR) {
        return full(Path::new(&dir)).await;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let mount = |then: &str| {
        let script = format!("mount -t tmpfs -o size=128k none '{path}' && {then}");
        let mut command = Command::new("unshare");
        command.args(["-rm", "sh", "-c", &script, "sh"]);
        command
            .env(DIR, path)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    };
    if !mount("true").status().is_ok_and(|status| status.success()) {
        println!("skipped: this machine does not allow mounts in a namespace");
        return;
    }
    let name = "faults::cached::fault_16_a_full_disk_costs_requests_only";
    let mut job = mount("exec \"$@\"");
    job.arg(std::env::current_exe().unwrap());
    assert!(job.args(["--exact", name]).status().unwrap().success());
}

async fn full(dir: &Path) {
    let remote = remote().await;
    let (expected, _) = plain(&remote, 2).await;
    let loader = open(&remote.http(), &cached(dir, 1 << 24)).await;
    let (batches, requests) = epochs(&remote, &loader, 2);
    assert_eq!(batches, expected);
    let stored = files(dir).len() as u64;
    assert!((4..BLOCKS).contains(&stored), "{stored}");
    let second = requests[1].len() as u64;
    assert!(
        (1..BLOCKS).contains(&second),
        "cached blocks are served: {second}"
    );
}

#[tokio::test]
async fn a_dataset_on_a_local_disk_is_read_from_there() {
    use feedline_storage::{Store, StoreOptions};
    let (folder, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = Store::open(folder.path().to_str().unwrap(), &StoreOptions::default()).unwrap();
    crate::dataset::publish_train(&store, SHAPE).await;
    let loader = open(&store, &cached(dir.path(), 1 << 24)).await;
    collect(loader.epoch(loader.start_state()).unwrap());
    assert_eq!(loader.metrics().cache.misses, 0);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn fault_05_a_storm_does_not_keep_blocks_out_of_the_cache() {
    let remote = remote().await;
    let (expected, _) = plain(&remote, 2).await;
    let dir = tempfile::tempdir().unwrap();
    let loader = open(&remote.http(), &cached(dir.path(), 1 << 24)).await;
    let state = loader.start_state();
    remote.server.forget();
    remote.server.set(|asked| match asked.number % 3 {
        0 => Fault::Status(503, None),
        1 => Fault::Cut(700),
        _ => Fault::None,
    });
    let first = collect(loader.epoch(state.clone()).unwrap());
    remote.server.set(|_| Fault::Status(500, None));
    let second = collect(loader.epoch(loader.next_epoch(&state)).unwrap());
    assert_eq!([first, second], expected[..]);
}
