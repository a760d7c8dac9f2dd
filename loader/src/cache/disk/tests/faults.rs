//! Disk faults, by number of the fault.

use std::io::ErrorKind;

use super::*;

#[tokio::test]
async fn fault_03_a_damaged_file_is_dropped_and_fetched_again() {
    let dir = tempfile::tempdir().unwrap();
    let (cache, _) = open(dir.path(), 100).await;
    read(&cache, 0..1).await;
    drop(cache);
    let path = file(dir.path(), 0);
    let good = fs::read(&path).unwrap();
    let bits = (good.len() * 8) as u64;
    let mut damages: Vec<Vec<u8>> = (0..bits)
        .step_by(397)
        .chain((bits - 256..bits).step_by(7))
        .map(|bit| {
            let mut bytes = good.clone();
            bytes[usize::try_from(bit / 8).unwrap()] ^= 1 << (bit % 8);
            bytes
        })
        .collect();
    damages.extend([0, 1, 31, 32, 4096, good.len() - 1].map(|n| good[..n].to_vec()));
    damages.push([&good[..], &[0]].concat());
    for damage in damages {
        fs::remove_file(&path).unwrap();
        fs::write(&path, &damage).unwrap();
        read_only(&path);
        let (cache, origin) = open(dir.path(), 100).await;
        read(&cache, [0, 0]).await;
        assert_eq!(origin.reads(), 1);
        assert_eq!(cache.counters.damaged.get(), 1);
        assert_eq!(fs::read(&path).unwrap(), good);
        assert_eq!(usage(dir.path()), (DISK_BYTES, DISK_BYTES));
    }
}

#[tokio::test]
async fn fault_03_a_file_in_the_place_of_another_is_not_taken_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let (cache, origin) = open(dir.path(), 100).await;
    read(&cache, 0..2).await;
    // Extent 0 was not read from its file yet in this run; extent 1 was.
    read(&cache, [1]).await;
    for (from, to) in [(1, 0), (0, 1)] {
        let bytes = fs::read(file(dir.path(), from)).unwrap();
        fs::remove_file(file(dir.path(), to)).unwrap();
        fs::write(file(dir.path(), to), bytes).unwrap();
        read_only(&file(dir.path(), to));
        read(&cache, [to]).await;
    }
    assert_eq!(cache.counters.damaged.get(), 2);
    assert_eq!(origin.reads(), 4);
}

#[tokio::test]
async fn fault_03_a_whole_file_with_other_bytes_than_the_manifest_says_is_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let (cache, origin) = open(dir.path(), 100).await;
    read(&cache, [0]).await;
    let wrong = content(1);
    let trailer = name(0).trailer(BYTES, crc32c::crc32c(&wrong));
    let path = file(dir.path(), 0);
    fs::remove_file(&path).unwrap();
    fs::write(&path, [&wrong[..], &trailer].concat()).unwrap();
    read_only(&path);
    read(&cache, [0, 0]).await;
    assert_eq!(origin.reads(), 2);
    assert_eq!(cache.counters.damaged.get(), 1);
}

fn read_only(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(path, fs::Permissions::from_mode(0o444)).unwrap();
}

#[tokio::test]
async fn fault_16_nothing_is_written_for_a_while_after_the_disk_was_full() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(HandClock::default());
    let (cache, origin) = open_on(Arc::clone(&clock) as _, dir.path(), 100).await;
    read(&cache, [0]).await;
    let warnings = Warnings::default();
    let guard = warnings.listen();
    for kind in [
        ErrorKind::StorageFull,
        ErrorKind::QuotaExceeded,
        ErrorKind::FileTooLarge,
    ] {
        cache.tier.as_ref().unwrap().fail(&kind.into());
    }
    assert_eq!(warnings.count(), 1);
    drop(guard);
    read(&cache, [0, 1, 1]).await;
    assert_eq!(*origin.reads.lock().unwrap(), [0, 1, 1]);
    clock.advance(Duration::from_secs(60));
    read(&cache, [1, 1]).await;
    assert_eq!(*origin.reads.lock().unwrap(), [0, 1, 1, 1]);
    // It may fill up again.
    let full = ErrorKind::StorageFull.into();
    cache.tier.as_ref().unwrap().fail(&full);
    read(&cache, [2, 2, 1]).await;
    assert_eq!(*origin.reads.lock().unwrap(), [0, 1, 1, 1, 2, 2]);
}

#[tokio::test]
async fn fault_17_a_budget_below_two_windows_is_refused_with_the_needed_number() {
    let dir = tempfile::tempdir().unwrap();
    let open = |bytes, window_bytes| {
        let config = CacheConfig {
            dir: dir.path().to_owned(),
            bytes,
        };
        let inner = Arc::new(Origin::default());
        async move {
            let clock = Arc::new(SystemClock);
            CachedExtents::open(&config, place(), window_bytes, inner, clock).await
        }
    };
    let error = open((2 << 20) - 1, 1 << 20).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot use loader setting `cache.bytes`: it is `2097151` and two shuffle windows need `2097152`; raise it, or \
         lower `window_blocks` or `domains`"
    );
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    open(2 << 20, 1 << 20).await.unwrap();
}

#[tokio::test]
async fn fault_18_a_folder_that_cannot_be_made_is_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    fs::write(&path, "not a folder").unwrap();
    let warnings = Warnings::default();
    let guard = warnings.listen();
    let (cache, origin) = open(&path, 100).await;
    read(&cache, [0, 0]).await;
    assert_eq!(origin.reads(), 2);
    assert_eq!(warnings.count(), 1);
    drop(guard);
}

#[tokio::test]
async fn fault_18_a_folder_that_is_removed_while_in_use_is_not_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let (cache, origin) = open(dir.path(), 100).await;
    read(&cache, 0..5).await;
    let warnings = Warnings::default();
    let guard = warnings.listen();
    fs::remove_dir_all(dir.path().join(OWN)).unwrap();
    read(&cache, (0..5).chain(0..5)).await;
    assert_eq!(origin.reads(), 15);
    assert_eq!(warnings.count(), 1);
    drop(cache);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    drop(guard);
}

#[tokio::test]
async fn fault_18_a_folder_that_was_replaced_is_left_to_those_who_made_it() {
    let dir = tempfile::tempdir().unwrap();
    let (old, _) = open(dir.path(), 100).await;
    read(&old, 0..5).await;
    fs::remove_dir_all(dir.path().join(OWN)).unwrap();
    let (new, _) = open(dir.path(), 100).await;
    read(&new, 5..10).await;
    let before = snapshot(dir.path());
    read(&old, 0..4).await;
    drop(old);
    assert_eq!(snapshot(dir.path()), before);
}

#[tokio::test]
async fn fault_21_a_cache_in_the_datasets_folder_touches_nothing_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let hex = "0123456789abcdef0123456789abcdef";
    let dataset = [
        "CURRENT",
        "lock",
        "ledger",
        hex,
        "shards/train/00000.arrow",
        &format!("extents/01/{hex}"),
        &format!("tmp/{hex}-{hex}"),
    ];
    for path in dataset {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "precious").unwrap();
    }
    let before = snapshot(dir.path());
    let (cache, _) = open(dir.path(), 3).await;
    // Also in its own folder, what has a name that it does not give stays.
    let strange = [
        "notes.txt",
        "leases/notes.txt",
        "tmp/notes-1.txt",
        "sessions/notes",
        "extents/notes",
        &format!("extents/ff/{hex}"),
    ];
    for path in strange {
        let path = dir.path().join(OWN).join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "precious").unwrap();
    }
    read(&cache, 0..10).await;
    drop(cache);
    let (cache, _) = open(dir.path(), 2).await;
    read(&cache, 0..10).await;
    assert!(cache.counters.evictions.get() > 8);
    drop(cache);
    let mut after = snapshot(dir.path());
    after.retain(|(path, ..)| !path.starts_with(dir.path().join(OWN)));
    assert_eq!(after, before);
    for path in strange {
        let path = dir.path().join(OWN).join(path);
        assert_eq!(fs::read(&path).unwrap(), b"precious", "{path:?}");
    }
}

#[tokio::test]
async fn fault_21_a_folder_of_the_caches_name_made_by_others_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join(OWN)).unwrap();
    fs::write(dir.path().join(OWN).join("data"), "precious").unwrap();
    let config = CacheConfig {
        dir: dir.path().to_owned(),
        bytes: 1 << 20,
    };
    let inner = Arc::new(Origin::default());
    let opened = CachedExtents::open(&config, place(), 0, inner, Arc::new(SystemClock)).await;
    let path = dir.path().join(OWN);
    assert_eq!(
        opened.unwrap_err().to_string(),
        format!(
            "cannot use loader setting `cache.dir`: `{}` holds files that are not of a cache; name another folder, or \
             move them away",
            path.display()
        )
    );
}

#[tokio::test]
async fn fault_22_mapped_bytes_outlive_eviction_and_the_whole_folder() {
    let dir = tempfile::tempdir().unwrap();
    let (cache, _) = open(dir.path(), 1).await;
    read(&cache, [0]).await;
    let mapped = cache.get(&extent(0)).await.unwrap();
    assert_eq!(tally(&cache), (1, 1));
    read(&cache, [1]).await;
    assert!(!file(dir.path(), 0).exists());
    drop(cache);
    drop(dir);
    assert_eq!(mapped, content(0));
}

#[tokio::test]
async fn fault_22_a_file_that_was_cut_short_is_an_error_of_the_cache_only() {
    let dir = tempfile::tempdir().unwrap();
    let (cache, origin) = open(dir.path(), 10).await;
    read(&cache, [0, 0]).await;
    // Only root or the owner can do that, and has to mean it: the mode forbids it.
    let path = file(dir.path(), 0);
    let cut = content(0).slice(..100);
    fs::remove_file(&path).unwrap();
    fs::write(&path, cut).unwrap();
    read(&cache, [0, 0]).await;
    assert_eq!(origin.reads(), 2);
    assert_eq!(cache.counters.damaged.get(), 1);
}

/// All files below a folder: path, content, time of the last change.
fn snapshot(folder: &Path) -> Vec<(PathBuf, Vec<u8>, std::time::SystemTime)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let changed = fs::metadata(&path).unwrap().modified().unwrap();
                found.push((path.clone(), fs::read(&path).unwrap(), changed));
            }
        }
    }
    found.sort();
    found
}
