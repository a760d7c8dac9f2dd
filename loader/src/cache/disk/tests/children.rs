//! Faults that need processes of their own: the test binary runs itself with one test and a task in the environment.

use std::{
    env,
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, Command, Stdio},
};

use super::{tier::Obtained, *};

const TASK: &str = "FEEDLINE_CACHE_TEST_TASK";
const DIR: &str = "FEEDLINE_CACHE_TEST_DIR";
const THIS: &str = "cache::disk::tests::children::child";

/// Extents that a job in these tests reads from, and room for those that the folder has.
const EXTENTS: u64 = 40;
const ROOM: u64 = 25;

/// Runs this binary for `task` in `dir`, under `wrapper`.
fn spawn(wrapper: &[&str], task: &str, dir: &Path) -> Child {
    let exe = env::current_exe().unwrap();
    let mut words: Vec<_> = wrapper.iter().map(Into::into).collect();
    words.push(exe.into_os_string());
    let mut command = Command::new(&words[0]);
    command
        .args(&words[1..])
        .args(["--exact", THIS, "--nocapture", "--test-threads=1"])
        .env(TASK, task)
        .env(DIR, dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    command.spawn().unwrap()
}

/// Reads what a child prints until it says `word`, and returns what follows it on the line.
fn await_word(child: &mut Child, word: &str) -> String {
    let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    let mut lines = lines.map(Result::unwrap);
    let found = lines.find_map(|line| Some(line.split_once(word)?.1.trim().to_owned()));
    found.unwrap_or_else(|| panic!("the child ends without saying `{word}`"))
}

/// The test that a child process runs.
#[test]
fn child() {
    let (Some(task), Some(dir)) = (env::var_os(TASK), env::var_os(DIR)) else {
        return;
    };
    let (task, dir) = (task.into_string().unwrap(), PathBuf::from(dir));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        match task.as_str() {
            "hang" => hang(&dir).await,
            "full" => full(&dir).await,
            "read-only" => read_only(&dir).await,
            "read all" => {
                let (cache, origin) = open(&dir, EXTENTS).await;
                read(&cache, 0..EXTENTS).await;
                println!("reads {}", origin.reads());
            }
            seed => replay(&dir, seed.parse().unwrap()).await,
        }
    });
}

/// A job that reads a few epochs in an order of its own. Every second one has a plan.
async fn replay(dir: &Path, seed: u64) {
    let (cache, _) = open(dir, ROOM).await;
    let step = [7, 11, 13, 17][usize::try_from(seed % 4).unwrap()];
    let order: Vec<u64> = (0..4 * EXTENTS)
        .map(|i| (seed + i * step) % EXTENTS)
        .collect();
    if seed.is_multiple_of(2) {
        cache.foresee(&plan(order.clone()));
    }
    for chunk in order.chunks(5) {
        let gets = chunk.iter().map(|n| async {
            let wanted = extent(*n);
            assert_eq!(cache.get(&wanted).await.unwrap(), content(*n));
        });
        join_all(gets).await;
        println!("step");
    }
    cache.flush().await;
}

/// A job that is killed while it fetches one extent and writes another.
async fn hang(dir: &Path) {
    let (cache, origin) = open(dir, ROOM).await;
    let tier = cache.tier.as_ref().unwrap();
    let Obtained::Lease(held) = tier.obtain(name(0), &extent(0)).await else {
        panic!("extent 0 has no holder");
    };
    let _temporary = held.disk.write(&held.lease, &content(0)).unwrap();
    origin.is_held.store(true, SeqCst);
    let wanted = extent(1);
    let mut get = std::pin::pin!(cache.get(&wanted));
    while origin.reads() == 0 {
        assert!(futures::poll!(&mut get).is_pending());
        tokio::task::yield_now().await;
    }
    println!("ready");
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

#[test]
fn fault_19_jobs_that_share_a_folder_get_right_bytes_and_keep_its_budget() {
    let dir = tempfile::tempdir().unwrap();
    let mut jobs: Vec<_> = (0..4)
        .map(|seed| spawn(&[], &seed.to_string(), dir.path()))
        .collect();
    // The last one is killed in the middle.
    let mut killed = jobs.pop().unwrap();
    for line in BufReader::new(jobs[0].stdout.as_mut().unwrap()).lines() {
        if line.unwrap().contains("step") {
            let bytes = bytes_now(dir.path());
            assert!(bytes <= ROOM * DISK_BYTES, "{bytes}");
            if bytes == ROOM * DISK_BYTES {
                killed.kill().unwrap();
            }
        }
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
    for mut job in jobs {
        std::io::copy(job.stdout.as_mut().unwrap(), &mut std::io::sink()).unwrap();
        assert!(job.wait().unwrap().success());
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    drop(runtime.block_on(open(dir.path(), ROOM)));
    let (bytes, ledger) = usage(dir.path());
    assert_eq!(bytes, ledger);
    assert!(bytes <= ROOM * DISK_BYTES && bytes > 0);
    for folder in ["leases", "tmp", "sessions"] {
        assert_eq!(count(dir.path(), folder), 0, "{folder}");
    }
}

/// Disk bytes of all extents at one moment: while the folder is locked, none comes or goes.
fn bytes_now(dir: &Path) -> u64 {
    let lock = fs::File::open(dir.join(OWN).join("lock")).unwrap();
    lock.lock().unwrap();
    let (bytes, ledger) = usage(dir);
    assert!(
        bytes <= ledger,
        "{bytes} bytes and `{ledger}` in the ledger"
    );
    bytes
}

#[test]
fn fault_19_each_extent_is_fetched_by_one_of_the_jobs_that_want_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut jobs: Vec<_> = (0..3).map(|_| spawn(&[], "read all", dir.path())).collect();
    let reads = jobs
        .iter_mut()
        .map(|job| await_word(job, "reads").parse::<u64>().unwrap());
    assert_eq!(reads.sum::<u64>(), EXTENTS);
    for mut job in jobs {
        assert!(job.wait().unwrap().success());
    }
}

#[test]
fn fault_20_what_a_killed_job_left_is_swept_at_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let mut job = spawn(&[], "hang", dir.path());
    await_word(&mut job, "ready");
    job.kill().unwrap();
    job.wait().unwrap();
    let left = |folder| count(dir.path(), folder);
    assert_eq!((left("leases"), left("tmp"), left("sessions")), (2, 1, 1));
    assert_eq!(usage(dir.path()), (0, 2 * DISK_BYTES));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let (cache, _) = runtime.block_on(open(dir.path(), ROOM));
    assert_eq!((left("leases"), left("tmp"), left("sessions")), (0, 0, 1));
    assert_eq!(usage(dir.path()), (0, 0));
    runtime.block_on(read(&cache, [0, 1]));
    assert_eq!(tally(&cache), (0, 2));
}

/// Runs `task` in a file system of its own, of 256 KiB. Where mounts are not allowed it says so and does nothing.
fn on_small_disk(task: &str) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let script =
        format!("mount -t tmpfs -o size=256k none '{path}' && echo mounted && exec \"$@\"");
    let wrapper = ["unshare", "-rm", "sh", "-c", script.as_str(), "sh"];
    let probe = Command::new("unshare")
        .args(["-rm", "mount", "-t", "tmpfs", "none", path])
        .output();
    if !probe.is_ok_and(|probe| probe.status.success()) {
        println!("skipped: this machine does not allow mounts in a namespace");
        return;
    }
    let mut job = spawn(&wrapper, task, dir.path());
    await_word(&mut job, "mounted");
    await_word(&mut job, "done");
    assert!(job.wait().unwrap().success());
}

#[test]
fn fault_16_a_full_disk_costs_speed_and_one_warning() {
    on_small_disk("full");
}

async fn full(dir: &Path) {
    // Another process has most of the disk: half of it is left, which is less than the budget.
    fs::File::create(dir.join("filler"))
        .unwrap()
        .write_all(&[1; 128 << 10])
        .unwrap();
    let warnings = Warnings::default();
    let clock = Arc::new(HandClock::default());
    let (cache, origin) = open_on(Arc::clone(&clock) as _, dir, 1000).await;
    let guard = warnings.listen();
    read(&cache, 0..30).await;
    let stored = cache.counters.stored.get();
    assert!((1..30).contains(&stored), "{stored}");
    assert_eq!(warnings.count(), 1);
    // Cached extents are still served, and nothing is tried for the rest.
    read(&cache, 0..30).await;
    assert_eq!(cache.counters.hits.get(), stored);
    assert_eq!(origin.reads(), 60 - stored);
    assert_eq!(warnings.count(), 1);
    assert_eq!(count(dir, "tmp"), 0);
    // With room again, and after the pause, it continues.
    fs::remove_file(dir.join("filler")).unwrap();
    clock.advance(Duration::from_secs(61));
    read(&cache, (0..30).chain(0..30)).await;
    assert_eq!(cache.counters.stored.get(), 30);
    assert_eq!(warnings.count(), 1);
    assert_eq!(usage(dir), (30 * DISK_BYTES, 30 * DISK_BYTES));
    assert_eq!(count(dir, "leases"), 0);
    drop(guard);
    println!("done");
}

#[test]
fn fault_18_a_disk_that_becomes_read_only_costs_speed_and_one_warning() {
    on_small_disk("read-only");
}

async fn read_only(dir: &Path) {
    let warnings = Warnings::default();
    let (cache, origin) = open(dir, 1000).await;
    let guard = warnings.listen();
    read(&cache, 0..5).await;
    // The same files, behind a read-only mount; files that are open stay writable.
    let mount = |words: &[&std::ffi::OsStr]| Command::new("mount").args(words).status().unwrap();
    assert!(mount(&["--bind".as_ref(), dir.as_ref(), dir.as_ref()]).success());
    assert!(mount(&["-o".as_ref(), "remount,bind,ro".as_ref(), dir.as_ref()]).success());
    read(&cache, (0..10).chain(0..10)).await;
    assert_eq!(origin.reads(), 15);
    assert_eq!(tally(&cache), (10, 15));
    assert_eq!(warnings.count(), 1);
    drop(cache);
    // From the start: no cache, and no error.
    let (cache, origin) = open(dir, 1000).await;
    assert_eq!(warnings.count(), 2);
    read(&cache, [0, 0]).await;
    assert_eq!(origin.reads(), 2);
    assert_eq!(warnings.count(), 2);
    drop(guard);
    println!("done");
}
