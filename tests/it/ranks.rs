//! `--ranks`: several processes that train together end with the bytes of one, whatever happens to them.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use feedline_testkit::free_port::free_port;

use crate::support::{self, Finished, feedline, files, finish, run, wait};

const TRAINING: &str = r#"
[train]
model = { type = "mlp", hidden = [32], dropout = 0.1 }
batch_size = 64
epochs = 40
patience = 0
learning_rate = 0.01
log_every = 3
parallel = { parts = 4, heartbeat_timeout_s = 3 }
checkpoint = { every_steps = 7 }
"#;

/// A folder with a dataset of 2,000 rows, and the name of the pipeline file in it.
pub(crate) fn prepared() -> (tempfile::TempDir, &'static str) {
    support::prepared(2_000, |a, b| 2.0 * a - b, TRAINING)
}

/// Outputs of a training that are the same each time: weights and checkpoints, byte by byte.
pub(crate) fn weights(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = files(&folder.join("out/train"));
    found.retain(|(path, _)| path.ends_with(".safetensors"));
    assert!(!found.is_empty());
    found
}

/// Takes away what trainings have left.
pub(crate) fn forget(folder: &Path) {
    fs::remove_dir_all(folder.join("out/train")).unwrap();
}

pub(crate) fn assert_same(folder: &Path, expected: &[(String, Vec<u8>)], what: &str) {
    let found = weights(folder);
    let names = |files: &[(String, Vec<u8>)]| -> Vec<String> {
        files.iter().map(|(path, _)| path.clone()).collect()
    };
    assert_eq!(names(&found), names(expected), "{what}");
    assert!(found == expected, "the bytes differ: {what}");
}

/// A launcher whose output is written to files, so that it never waits for a reader.
pub(crate) struct Launcher {
    child: Child,
    folder: PathBuf,
}

impl Launcher {
    pub(crate) fn start(folder: &Path, arguments: &[&str]) -> Self {
        let file = |name| fs::File::create(folder.join(name)).unwrap();
        let child = feedline(folder)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(file("stdout"))
            .stderr(file("stderr"))
            .spawn()
            .unwrap();
        let folder = folder.to_owned();
        Self { child, folder }
    }

    pub(crate) fn stderr(&self) -> String {
        fs::read_to_string(self.folder.join("stderr")).unwrap()
    }

    pub(crate) fn ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits until `ready` holds; false when the launcher ended first.
    pub(crate) fn until(&mut self, mut ready: impl FnMut(&Self) -> bool) -> bool {
        while !ready(self) {
            if self.ended() {
                return false;
            }
            wait(Duration::from_millis(1));
        }
        true
    }

    /// The processes of the ranks, by rank, as far as they are there.
    pub(crate) fn ranks(&self) -> Vec<(usize, u32)> {
        let tasks = format!("/proc/{0}/task", self.child.id());
        let mut found = Vec::new();
        for task in fs::read_dir(tasks).into_iter().flatten().flatten() {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            for pid in children.split_whitespace() {
                let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
                let mut vars = environment.split(|byte| *byte == 0);
                let rank = vars.find_map(|var| var.strip_prefix(b"RANK="));
                if let Some(rank) = rank {
                    let rank = String::from_utf8_lossy(rank).parse().unwrap();
                    found.push((rank, pid.parse().unwrap()));
                }
            }
        }
        found.sort_unstable();
        found
    }

    /// Returns true if the run has written a checkpoint.
    fn has_saved(&self) -> bool {
        let found = files(&self.folder.join("out/train"));
        found.iter().any(|(path, _)| path.contains("checkpoint"))
    }

    pub(crate) fn finish(mut self) -> Finished {
        let code = self.child.wait().unwrap().code().unwrap_or(-1);
        Finished {
            code,
            stdout: fs::read_to_string(self.folder.join("stdout")).unwrap(),
            stderr: self.stderr(),
        }
    }
}

/// Sends a signal; false where there is no such process any more.
pub(crate) fn signal(name: &str, pid: u32) -> bool {
    let mut kill = Command::new("kill");
    kill.args([format!("-{name}"), pid.to_string()])
        .stderr(Stdio::null());
    kill.status().unwrap().success()
}

fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().unwrap_or_default().trim_start();
    !matches!(state.chars().next(), None | Some('Z' | 'X'))
}

#[test]
fn two_and_four_ranks_end_with_the_bytes_of_one_and_one_report() {
    let (folder, file) = prepared();
    let folder = folder.path();
    let alone = run(folder, &["train", file, "--json"]).expect(0);
    let expected = weights(folder);
    for ranks in ["1", "2", "4"] {
        forget(folder);
        let mut train = feedline(folder);
        train
            .args(["train", file, "--json", "--ranks", ranks])
            .env("FEEDLINE_LOG", "warn,feedline=info");
        let together = finish(train.output().unwrap()).expect(0);
        assert_same(folder, &expected, &format!("{ranks} ranks"));
        assert_eq!(together.stdout.lines().count(), 1, "{together:#?}");
        for key in ["steps", "test", "validation", "best_epoch", "worst"] {
            assert_eq!(together.json()[key], alone.json()[key], "{key}");
        }
        let shown = together.stderr.matches("done=1000 total=1000").count();
        assert_eq!(shown, 1, "{}", together.stderr);
        assert!(!together.stderr.contains("rank 1:"), "{}", together.stderr);
    }
    let text = run(folder, &["train", file, "--resume", "--ranks", "2"]).expect(0);
    let alone = run(folder, &["train", file, "--resume"]).expect(0);
    assert_eq!(text.stdout, alone.stdout);
}

#[test]
fn of_ranks_that_another_starts_only_the_first_reports() {
    let (folder, file) = prepared();
    let port = free_port().to_string();
    let [second, first] = ["1", "0"].map(|rank| {
        let mut train = feedline(folder.path());
        train
            .args(["train", file, "--json"])
            .env("FEEDLINE_LOG", "warn,feedline=info")
            .envs([("WORLD_SIZE", "2"), ("RANK", rank), ("MASTER_PORT", &port)])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        train.spawn().unwrap()
    });
    let first = finish(first.wait_with_output().unwrap()).expect(0);
    assert_eq!(first.json()["epochs"], 40);
    assert!(first.stderr.contains("total=1000"), "{first:#?}");
    let second = finish(second.wait_with_output().unwrap()).expect(0);
    let shown = (second.stdout.as_str(), second.stderr.as_str());
    assert_eq!(shown, ("", ""));
}

#[test]
fn run_trains_by_ranks_too() {
    let (folder, file) = prepared();
    let report = run(folder.path(), &["run", file, "--json", "--ranks", "2"]).expect(0);
    assert_eq!(report.stdout.lines().count(), 1, "{report:#?}");
    assert_eq!(report.json()["dataset"]["up_to_date"], true);
    assert_eq!(report.json()["train"]["epochs"], 40);
}

#[test]
fn what_another_start_would_not_help_is_said_once() {
    let (folder, file) = prepared();
    let folder = folder.path();
    let train = |more: &[&str], code: i32| {
        let mut arguments = vec!["train", file, "--ranks", "2"];
        arguments.extend(more);
        let finished = run(folder, &arguments).expect(code);
        assert_eq!(
            finished.stderr.matches("error: ").count(),
            1,
            "{finished:#?}"
        );
        assert!(!finished.stderr.contains("started again"), "{finished:#?}");
        assert_eq!(finished.stdout, "");
        finished.stderr
    };
    let wrong = train(&["--set", "train.batch_size=0"], 2);
    assert!(wrong.contains("train.batch_size"), "{wrong}");
    let wrong = train(&["--set", "train.parallel.restarts=1001"], 2);
    assert!(wrong.contains("train.parallel.restarts"), "{wrong}");
    let diverged = [
        "--set",
        "train.learning_rate=1e30",
        "--set",
        "train.clip_norm=0",
    ];
    let diverged = train(&diverged, 1);
    assert!(diverged.contains("the loss on the"), "{diverged}");

    run(folder, &["train", file, "--ranks", "2"]).expect(0);
    let exists = train(&[], 2);
    assert!(exists.contains("already has checkpoints"), "{exists}");

    let outside = feedline(folder)
        .args(["train", file, "--ranks", "2"])
        .envs([("WORLD_SIZE", "2"), ("RANK", "0")])
        .output();
    let outside = finish(outside.unwrap()).expect(1).stderr;
    assert!(outside.contains("leave it out where torchrun"), "{outside}");
}

#[test]
fn ranks_end_with_their_launcher() {
    let (folder, file) = prepared();
    let endless = [
        "train",
        file,
        "--ranks",
        "2",
        "--set",
        "train.epochs=100000",
    ];
    let mut launcher = Launcher::start(folder.path(), &endless);
    assert!(launcher.until(Launcher::has_saved), "{}", launcher.stderr());
    let ranks = launcher.ranks();
    assert_eq!(ranks.len(), 2);
    launcher.child.kill().unwrap();
    launcher.child.wait().unwrap();
    let mut looks = 0;
    while ranks.iter().any(|(_, pid)| is_alive(*pid)) {
        assert!(looks < 6_000, "{ranks:?}");
        looks += 1;
        wait(Duration::from_millis(10));
    }
}

#[test]
fn a_signal_stops_all_ranks_and_any_number_of_them_goes_on() {
    let (folder, file) = prepared();
    let folder = folder.path();
    run(folder, &["train", file]).expect(0);
    let expected = weights(folder);
    forget(folder);
    let mut stops = 0;
    for (ranks, name) in [("4", "TERM"), ("2", "INT")] {
        let saved = files(&folder.join("out/train"));
        let train = ["train", file, "--resume", "--ranks", ranks];
        let mut launcher = Launcher::start(folder, &train);
        let went_on =
            launcher.until(|l| l.has_saved() && files(&l.folder.join("out/train")) != saved);
        assert!(went_on, "{}", launcher.stderr());
        assert!(signal(name, launcher.child.id()));
        let stopped = launcher.finish();
        if stopped.code == 0 {
            // On a busy machine the training is over before the signal comes.
            break;
        }
        let stopped = stopped.expect(1);
        stops += 1;
        let said = "error: training was interrupted; resume from `";
        assert!(stopped.stderr.contains(said), "{stopped:#?}");
        assert_eq!(stopped.stderr.matches("error: ").count(), 1, "{stopped:#?}");
    }
    assert!(stops > 0, "each training ended before its signal");
    run(folder, &["train", file, "--resume"]).expect(0);
    assert_same(folder, &expected, "on 4, 2 and 1 ranks");
}

#[test]
fn a_rank_that_is_lost_is_named_and_not_missed_where_no_restart_is_wanted() {
    let (folder, file) = prepared();
    let none = [
        "--set",
        "train.parallel.restarts=0",
        "--set",
        "train.epochs=100000",
    ];
    let train = [
        "train", file, "--ranks", "3", none[0], none[1], none[2], none[3],
    ];
    let mut launcher = Launcher::start(folder.path(), &train);
    assert!(launcher.until(Launcher::has_saved), "{}", launcher.stderr());
    assert!(signal("KILL", launcher.ranks()[2].1));
    let lost = launcher.finish().expect(1).stderr;
    for said in [
        "error: rank `2` failed: it was killed by signal 9; last known: rank 0 at step ",
        "; rank 1 at step ",
        "; rank 2 at step ",
        ", exchange ",
        "; not started again: `train.parallel.restarts` is 0; resume from the newest checkpoint with `--resume`",
    ] {
        assert!(lost.contains(said), "`{said}` is not in {lost}");
    }
}
