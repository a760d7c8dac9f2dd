//! A run that lasts: the loader over a server with all faults at once, through a disk cache that is too small and rots,
//! killed again and again and resumed on another number of ranks. It never gives a wrong row, covers every epoch once,
//! and needs no more memory, descriptors or threads as time goes by.
//!
//! It lasts for the seconds in `FEEDLINE_SOAK_SECONDS`, 4 without it:
//!
//! ```text
//! FEEDLINE_SOAK_SECONDS=600 cargo test -p feedline-loader --test it soak -- --nocapture
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use feedline_loader::{CacheConfig, FetchConfig, LoaderConfig, LoaderState};
use feedline_schemas::manifest::{Manifest, Split, TargetKind};
use feedline_storage::{
    Store, StoreOptions,
    clock::{Clock as _, SystemClock},
};

use crate::{
    collect, config,
    dataset::publish,
    of_rank, open,
    server::{Asked, Fault, Server},
};

const SECONDS: &str = "FEEDLINE_SOAK_SECONDS";
const IS_CHILD: &str = "FEEDLINE_SOAK_CHILD";

/// 69 blocks of about 13 KB.
const SHAPE: &[&[u32]] = &[&[48; 24], &[48; 24], &[48; 20], &[17]];
const ROWS: u64 = 48 * 68 + 17;
/// Shorter runs are over before what they use has settled.
const SETTLES: Duration = Duration::from_secs(60);

const WORLDS: [u32; 5] = [1, 2, 3, 5, 7];

/// Memory is that of a process, which other tests would use too: this binary runs itself with the test below.
#[test]
fn soak() {
    let child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "soak::child", "--nocapture", "--test-threads=1"])
        .env(IS_CHILD, "yes")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    let figures = said
        .lines()
        .filter_map(|line| line.find("soak: ").map(|at| &line[at..]));
    let figures: Vec<_> = figures.collect();
    println!("{}", figures.join("\n"));
    assert!(
        child.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&child.stderr)
    );
    assert!(!figures.is_empty(), "the child ran no test");
}

/// The test that the child process runs.
#[test]
fn child() {
    if env::var_os(IS_CHILD).is_none() {
        return;
    }
    let seconds = env::var_os(SECONDS).map_or(4, |s| s.to_str().unwrap().parse().unwrap());
    let mut soak = Soak::start();
    let begin = SystemClock.monotonic();
    while SystemClock.monotonic() - begin < Duration::from_secs(seconds) {
        soak.epoch();
    }
    soak.report(Duration::from_secs(seconds));
}

/// Counters and state of the test so far.
struct Soak {
    plain: Store,
    manifest: Manifest,
    server: Server,
    cache: tempfile::TempDir,
    config: LoaderConfig,
    state: LoaderState,
    random: u64,
    lives: u64,
    epochs: u64,
    batches: u64,
    rotten: u64,
    faults: Arc<Mutex<BTreeMap<&'static str, u64>>>,
    used: Vec<Used>,
}

/// Resources that the process uses.
#[derive(Clone, Copy, Debug)]
struct Used {
    rss_kib: u64,
    threads: u64,
    descriptors: u64,
}

impl Soak {
    fn start() -> Self {
        let plain = Store::memory();
        let cache = tempfile::tempdir().unwrap();
        let config = LoaderConfig {
            // Less than the split, so that nothing is kept from epoch to epoch but by the cache, and that has room for
            // half of it.
            prefetch_bytes: 256 << 10,
            cache: Some(CacheConfig {
                dir: cache.path().to_owned(),
                bytes: 600 << 10,
            }),
            threads: 2,
            fetch: FetchConfig {
                attempt_least: Duration::from_secs(1),
                attempt_most: Duration::from_secs(4),
                progress_window: Duration::from_secs(1),
                backoff: Duration::from_millis(5),
                backoff_most: Duration::from_millis(200),
                ..FetchConfig::new()
            },
            ..config(96)
        };
        let (manifest, server, state) = block_on(async {
            let split = [(Split::Train, SHAPE)];
            let manifest = publish(&plain, 64, TargetKind::Regression, &split).await;
            let server = Server::with_objects_of(&plain).await;
            let state = open(&plain, &undisturbed(&config)).await.start_state();
            (manifest, server, state)
        });
        Self {
            plain,
            manifest,
            server,
            cache,
            config,
            state,
            random: 1,
            lives: 0,
            epochs: 0,
            batches: 0,
            rotten: 0,
            faults: Arc::default(),
            used: Vec::new(),
        }
    }

    /// An epoch in several lives, which gives what it gives without faults.
    fn epoch(&mut self) {
        let (expected, next) = block_on(async {
            let loader = open(&self.plain, &undisturbed(&self.config)).await;
            let batches = collect(loader.epoch(self.state.clone()).unwrap());
            (batches, loader.next_epoch(&self.state))
        });
        let mut all = expected.concat();
        all.sort_unstable();
        assert!(
            all.into_iter().eq(0..ROWS),
            "the epoch is not every row once"
        );
        let mut done = 0;
        while done < expected.len() {
            let world = WORLDS[usize::try_from(self.draw(5)).unwrap()];
            let most = 1 + usize::try_from(self.draw(20)).unwrap();
            let (given, state) = self.life(world, most);
            assert!(!given.is_empty(), "a life without a batch");
            assert_eq!(given[..], expected[done..][..given.len()], "{world} ranks");
            done += given.len();
            self.state = state;
            self.used.push(Used::now());
        }
        self.batches += expected.len() as u64;
        self.epochs += 1;
        self.state = next;
    }

    /// Up to `most` batches on `world` ranks, each as in a process of its own; then all are killed.
    fn life(&mut self, world: u32, most: usize) -> (Vec<Vec<u64>>, LoaderState) {
        self.lives += 1;
        if self.lives.is_multiple_of(3) {
            self.rot();
        }
        self.server.forget();
        self.server.set(self.faults());
        let url = self.server.url();
        let ranks: Vec<_> = thread::scope(|scope| {
            let (config, state, url) = (&self.config, &self.state, url.as_str());
            let ranks: Vec<_> = (0..world)
                .map(|rank| {
                    scope.spawn(move || live(url, &of_rank(config, rank, world), state, most))
                })
                .collect();
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
        });
        let after = ranks[0].1.clone();
        let mut joined = vec![Vec::new(); ranks[0].0.len()];
        for (batches, state) in ranks {
            assert_eq!(state, after, "ranks carry different states");
            assert_eq!(batches.len(), joined.len());
            for (joined, batch) in joined.iter_mut().zip(batches) {
                joined.extend(batch);
            }
        }
        (joined, after)
    }

    /// Faults of the requests of a life: about one in eight requests fails.
    fn faults(&self) -> impl Fn(&Asked) -> Fault + Send + Sync + 'static {
        let (life, counts) = (self.lives, Arc::clone(&self.faults));
        let shards = &self.manifest.splits[0].shards;
        let starts = shards
            .iter()
            .flat_map(|s| s.blocks.iter().map(|b| b.offset));
        let starts: BTreeSet<u64> = starts.chain([0]).collect();
        move |asked| {
            let draw = mix(life << 32 | asked.number);
            let start = asked.range.as_ref().map_or(0, |range| range.start);
            // Damage twice on the way is damage in the store, which ends a run: that has tests of its own.
            let may_flip = asked.earlier == 0 && starts.contains(&start);
            let size = usize::try_from((draw >> 32) % 14_000).unwrap();
            let (name, fault) = match draw % 1000 {
                _ if !asked.path.contains("/shards/") => ("none", Fault::None),
                0..25 => ("503", Fault::Status(503, None)),
                25..30 => ("429", Fault::Status(429, None)),
                30..35 => ("500", Fault::Status(500, None)),
                35..50 => ("broken body", Fault::Cut(size)),
                50..65 if may_flip => ("flipped bit", Fault::Flip(size)),
                65..69 => ("drip", Fault::Drip(Duration::from_millis(2))),
                69..72 => ("hung", Fault::Hang),
                72..120 => (
                    "late",
                    Fault::Late(Duration::from_millis(size as u64 / 100)),
                ),
                _ => ("none", Fault::None),
            };
            *counts.lock().unwrap().entry(name).or_default() += 1;
            fault
        }
    }

    /// Changes a byte of a file in the cache.
    fn rot(&mut self) {
        let mut files = Vec::new();
        files_below(
            &self.cache.path().join("feedline-cache-v1/extents"),
            &mut files,
        );
        if files.is_empty() {
            return;
        }
        files.sort_unstable();
        let file = &files[usize::try_from(self.draw(files.len() as u64)).unwrap()];
        let byte = self.draw(13_000);
        // In a file of its own: the cache's files are never changed, only replaced, and may be mapped somewhere.
        let mut bytes = fs::read(file).unwrap();
        let index = usize::try_from(byte).unwrap() % bytes.len();
        bytes[index] ^= 1;
        fs::remove_file(file).unwrap();
        fs::write(file, bytes).unwrap();
        fs::set_permissions(file, fs::Permissions::from_mode(0o444)).unwrap();
        self.rotten += 1;
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.random = mix(self.random);
        self.random % below
    }

    /// Prints the figures and compares what is used late with what is used early.
    #[expect(clippy::print_stdout, reason = "figures of long runs are to be read")]
    fn report(&self, time: Duration) {
        let Self {
            epochs,
            lives,
            batches,
            rotten,
            ..
        } = self;
        println!(
            "soak: {epochs} epochs in {lives} lives, {batches} batches, {} rows right; {rotten} cache files damaged",
            epochs * ROWS
        );
        println!("soak: requests by fault {:?}", self.faults.lock().unwrap());
        // What a process needs at first is no leak: memory that its threads share out among themselves, above all.
        let settled = &self.used[self.used.len() / 4..];
        let of = |part: &[Used], what: fn(&Used) -> u64| {
            let mut values: Vec<_> = part.iter().map(what).collect();
            values.sort_unstable();
            values[values.len() / 2]
        };
        let third = settled.len().div_ceil(3);
        let (early, late) = (&settled[..third], &settled[settled.len() - third..]);
        let check = |name: &str, what: fn(&Used) -> u64, more: fn(u64) -> u64| {
            let (early, late) = (of(early, what), of(late, what));
            println!("soak: median {name} {early} early, {late} late");
            let is_long = time >= SETTLES;
            assert!(!is_long || late <= early + more(early), "{name} grows");
        };
        // Threads come and go with each life, and which of the allocator's arenas they get is left to chance: that
        // moves a few MiB, more than 5 % of so small a process.
        check(
            "RSS in KiB",
            |u| u.rss_kib,
            |early| (early / 20).max(8 << 10),
        );
        check("threads", |u| u.threads, |_| 2);
        check("descriptors", |u| u.descriptors, |_| 8);
    }
}

/// The same order, without what is slow on one machine.
fn undisturbed(config: &LoaderConfig) -> LoaderConfig {
    LoaderConfig {
        cache: None,
        ..config.clone()
    }
}

/// Samples that one rank reads in up to `most` batches, and the state after them.
fn live(
    url: &str,
    config: &LoaderConfig,
    state: &LoaderState,
    most: usize,
) -> (Vec<Vec<u64>>, LoaderState) {
    let store = Store::open(url, &StoreOptions::default()).unwrap();
    let loader = block_on(open(&store, config));
    let mut after = state.clone();
    let mut batches = loader.epoch(state.clone()).unwrap();
    let given = batches
        .by_ref()
        .take(most)
        .map(|batch| {
            let batch = batch.unwrap();
            after = batch.state().clone();
            crate::samples(&batch)
        })
        .collect();
    // What was read and filled ahead is thrown away here.
    drop(batches);
    (given, after)
}

impl Used {
    fn now() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let number = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key));
            line.unwrap().split_whitespace().next().unwrap().parse()
        };
        Self {
            rss_kib: number("VmRSS:").unwrap(),
            threads: number("Threads:").unwrap(),
            descriptors: fs::read_dir("/proc/self/fd").unwrap().count() as u64,
        }
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(future)
}

fn files_below(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files_below(&path, files);
        } else {
            files.push(path);
        }
    }
}

/// SplitMix64.
fn mix(number: u64) -> u64 {
    let z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
