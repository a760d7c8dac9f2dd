//! A run of the program on a machine with its own wall clock.
//!
//! libfaketime reads the clock from a file at each call. Timers, the uptime and the times of files
//! stay those of the machine under the test.

use std::{
    env,
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    process::Child,
    time::Duration,
};

use feedline_storage::clock::{Clock as _, SystemClock};

use super::world::{DAY, HOUR};
use crate::{
    ranks::signal,
    support::{Finished, Random, feedline, wait},
};

/// Number of looks at a writer, each after [`LOOK`], within which it must end.
const LOOKS: u32 = 30_000;
const LOOK: Duration = Duration::from_millis(10);

/// Path of the library that fakes the clock, for programs with threads.
pub(super) fn libfaketime() -> PathBuf {
    let machine = env::consts::ARCH;
    format!("/usr/lib/{machine}-linux-gnu/faketime/libfaketimeMT.so.1").into()
}

/// Draws the error of a wall clock in seconds, of either sign. Half of all clocks are right.
pub(super) fn draw_error(random: &mut Random) -> i64 {
    let size = match random.below(10) {
        0..=4 => 0,
        5 | 6 => 60 + random.below(HOUR),
        7 => HOUR + random.below(DAY),
        8 => DAY + random.below(9 * DAY),
        _ => 365 * DAY,
    };
    let size = i64::try_from(size).unwrap();
    if random.below(2) == 0 { size } else { -size }
}

/// An `ingest` of the pipeline in a folder.
pub(super) struct Writer {
    child: Child,
    /// File that libfaketime reads the clock from.
    clock: PathBuf,
    /// Difference of the wall clock from the true time, in seconds.
    pub(super) error_s: i64,
    output: PathBuf,
}

impl Writer {
    /// Starts it at the true time `now`; its `number` is that of no other.
    pub(super) fn start(folder: &Path, number: u64, now: u64, error_s: i64) -> Self {
        let clock = folder.join(format!("clock-{number}"));
        let output = folder.join(format!("output-{number}"));
        set_clock(&clock, now, error_s);
        let mut command = feedline(folder);
        command
            .args(["ingest", "pipeline.toml", "--json"])
            .env("LD_PRELOAD", libfaketime())
            .env("FAKETIME_TIMESTAMP_FILE", &clock)
            .env("FAKETIME_NO_CACHE", "1")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
            .env("NO_FAKE_STAT", "1")
            .env_remove("FAKETIME")
            .stdout(File::create(&output).unwrap())
            .stderr(File::create(output.with_extension("err")).unwrap());
        Self {
            child: command.spawn().unwrap(),
            clock,
            error_s,
            output,
        }
    }

    /// Sets its wall clock by the true time `now` and its error.
    pub(super) fn set_clock(&self, now: u64) {
        set_clock(&self.clock, now, self.error_s);
    }

    /// Makes its wall clock jump.
    pub(super) fn jump(&mut self, now: u64, error_s: i64) {
        self.error_s = error_s;
        self.set_clock(now);
    }

    pub(super) fn stop(&self) {
        signal("STOP", self.child.id());
    }

    pub(super) fn resume(&self) {
        signal("CONT", self.child.id());
    }

    pub(super) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits for its end, which must come: no jump of a clock makes a run wait.
    pub(super) fn finish(mut self) -> Finished {
        for _ in 0..LOOKS {
            if let Some(status) = self.child.try_wait().unwrap() {
                return self.finished(status.code());
            }
            wait(LOOK);
        }
        panic!("it does not end: {:#?}", self.finished(None));
    }

    fn finished(&self, code: Option<i32>) -> Finished {
        Finished {
            code: code.unwrap_or(-1),
            stdout: fs::read_to_string(&self.output).unwrap(),
            stderr: fs::read_to_string(self.output.with_extension("err")).unwrap(),
        }
    }
}

impl Drop for Writer {
    /// Kills it, and removes what libfaketime leaves of a killed process: it refuses to start in
    /// another process with the same id.
    fn drop(&mut self) {
        let _killed = self.child.kill();
        let _ended = self.child.wait();
        for name in ["faketime_shm_", "sem.faketime_sem_"] {
            let _removed = fs::remove_file(format!("/dev/shm/{name}{}", self.child.id()));
        }
    }
}

/// Writes a clock file: the difference of the wall clock from that of this machine.
fn set_clock(path: &Path, now: u64, error_s: i64) {
    let real = i64::try_from(SystemClock.unix().as_secs()).unwrap();
    let offset = i64::try_from(now).unwrap() + error_s - real;
    let mut beside = tempfile::NamedTempFile::new_in(path.parent().unwrap()).unwrap();
    writeln!(beside, "{offset:+}").unwrap();
    beside.persist(path).unwrap();
}
