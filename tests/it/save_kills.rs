//! A training killed while it saves: the newest existing checkpoint loads, and it is not old.
//! `FEEDLINE_SAVE_KILLS` says how many kills must hit one; 5 without it.

use std::{
    fs::{self, File},
    io::{Read as _, Write as _},
    net::TcpStream,
    panic::{self, AssertUnwindSafe},
    path::{Path, PathBuf},
    process::{Child, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use feedline_testkit::free_port::free_port;

use crate::support::{self, Random, feedline, wait};

/// Steps between checkpoints.
const EVERY: u64 = 3;

/// Saves take about as long as the steps between them: seven megabytes.
const TRAINING: &str = r#"
[train]
model = { type = "mlp", hidden = [768, 768] }
batch_size = 16
epochs = 100000
patience = 0
log_every = 1
checkpoint = { every_steps = 3 }
"#;

fn prepared() -> (tempfile::TempDir, &'static str) {
    support::prepared(2_000, |a, b| 2.0 * a - b, TRAINING)
}

/// Content of the folder of checkpoints.
#[derive(Debug, Default)]
struct Saved {
    newest: u64,
    /// Files whose writing has not ended.
    begun: Vec<PathBuf>,
}

fn saved(folder: &Path) -> Saved {
    let mut saved = Saved::default();
    let runs = fs::read_dir(folder.join("out/train")).into_iter().flatten();
    let files = runs.filter_map(|run| fs::read_dir(run.unwrap().path().join("checkpoints")).ok());
    for file in files.flatten() {
        let path = file.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        match name.strip_prefix("step-") {
            Some(step) => {
                let step = step.trim_end_matches(".safetensors").parse().unwrap();
                saved.newest = saved.newest.max(step);
            }
            None => saved.begun.push(path),
        }
    }
    saved
}

/// Steps that the process says it has taken.
fn steps_taken(port: u16) -> Option<u64> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    let request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let line = answer
        .lines()
        .find_map(|l| l.strip_prefix("feedline_train_step "));
    line?.parse().ok()
}

/// Does `until` while the process is asked again and again for the steps that it has taken; returns
/// the last number.
fn counting_steps(port: u16, until: impl FnOnce()) -> u64 {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let counter = scope.spawn(|| {
            let mut taken = 0;
            while !over.load(Ordering::Relaxed) {
                taken = steps_taken(port).unwrap_or(taken);
                wait(Duration::from_millis(2));
            }
            taken
        });
        let ended = panic::catch_unwind(AssertUnwindSafe(until));
        over.store(true, Ordering::Relaxed);
        let taken = counter.join().unwrap();
        ended.unwrap_or_else(|failure| panic::resume_unwind(failure));
        taken
    })
}

/// A training, its log file, and the port that it listens on.
fn training(folder: &Path, file: &str) -> (Child, PathBuf, u16) {
    let port = free_port();
    let story = folder.join("story.txt");
    let listen = format!("train.metrics_listen=127.0.0.1:{port}");
    let child = feedline(folder)
        .args(["train", file, "--resume", "--set", &listen])
        .env("FEEDLINE_LOG", "info")
        .stdout(Stdio::null())
        .stderr(File::create(&story).unwrap())
        .spawn()
        .unwrap();
    (child, story, port)
}

fn assert_runs(child: &mut Child, story: &Path) {
    let ended = child.try_wait().unwrap();
    let told = || fs::read_to_string(story).unwrap();
    assert!(ended.is_none(), "it ended by itself, {ended:?}: {}", told());
}

/// The step that a process has gone on from.
fn resumed(story: &Path) -> Option<u64> {
    let text = fs::read_to_string(story).unwrap();
    let line = text.lines().find(|line| line.contains("resumed"))?;
    let step = line.split("step=").nth(1)?;
    step.split_whitespace().next()?.parse().ok()
}

#[test]
fn the_newest_checkpoint_loads_after_a_kill_during_a_save_and_is_at_most_two_intervals_old() {
    let asked = std::env::var_os("FEEDLINE_SAVE_KILLS");
    let kills: u64 = asked.map_or(5, |text| text.to_str().unwrap().parse().unwrap());
    let (folder, file) = prepared();
    let mut random = Random(kills);
    let (mut all, mut in_saves, mut oldest, mut expected) = (0, 0, 0, 0);
    // Kills are spread over the time that a write takes, found out from those that came too late.
    let mut longest_us = 10_000;
    while in_saves < kills {
        let before = saved(folder.path()).newest;
        let (mut child, story, port) = training(folder.path(), file);
        assert_eq!(before, expected, "a kill took a checkpoint away");
        while saved(folder.path()).newest <= before {
            assert_runs(&mut child, &story);
            wait(Duration::from_millis(1));
        }
        if all > 0 {
            assert_eq!(resumed(&story), Some(before), "after kill {all}");
        }
        let taken = counting_steps(port, || {
            while saved(folder.path()).begun.is_empty() {
                assert_runs(&mut child, &story);
            }
            wait(Duration::from_micros(random.below(longest_us)));
            child.kill().unwrap();
        });
        assert!(!child.wait().unwrap().success());
        let left = saved(folder.path());
        if left.begun.is_empty() {
            longest_us = (longest_us * 9 / 10).max(100);
        } else {
            longest_us += 500;
            in_saves += 1;
        }
        left.begun
            .iter()
            .for_each(|path| fs::remove_file(path).unwrap());
        oldest = oldest.max(taken.saturating_sub(left.newest));
        expected = left.newest;
        all += 1;
        if all % 50 == 0 {
            eprintln!("{all} kills, {in_saves} of them in a save");
        }
    }
    let (mut child, story, _) = training(folder.path(), file);
    while resumed(&story).is_none() {
        assert_runs(&mut child, &story);
        wait(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(resumed(&story), Some(expected));
    eprintln!(
        "{all} kills, {in_saves} of them while a checkpoint was being written; the newest was at most {oldest} steps \
         old, checkpoints are {EVERY} apart"
    );
    assert!(oldest <= 2 * EVERY, "{oldest} steps");
}
