//! What goes wrong on the disk, by number of the fault.

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

fn read_only(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(path, fs::Permissions::from_mode(0o444)).unwrap();
}
