//! `--ranks N`: N processes of this program on this machine that train together.
//!
//! Each gets its rank by the variables that torchrun sets, and runs the hidden command `rank`. It
//! sends the launcher heartbeats with its position several times a second, and its outcome at the
//! end. The first rank inherits the launcher's standard error. If one fails, all are ended and
//! restarted from the newest checkpoint. Their standard input closes with the launcher, and they
//! end with it.

mod protocol;
mod reporter;
mod restarts;
mod supervisor;

#[cfg(test)]
mod tests;

use std::{
    ffi::OsString,
    num::NonZero,
    path::PathBuf,
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use anyhow::Context as _;
use feedline_schemas::{config::ParallelConfig, report::TrainReport};
use feedline_storage::clock::Clock;
use feedline_trainer::Resume;

pub(crate) use self::{protocol::RankError, reporter::RankReporter};
use self::{
    restarts::Restarts,
    supervisor::{LaunchFailure, RankProcesses},
};
use crate::{cli::Pipeline, exit};

/// Interval at which a wait checks for its end.
const TICK: Duration = Duration::from_millis(50);

/// Training command and number of ranks.
#[derive(Clone, Debug)]
pub(crate) struct RankLaunch {
    program: PathBuf,
    pub(crate) ranks: usize,
    arguments: Vec<OsString>,
    parallel: ParallelConfig,
    /// `true` if a run without checkpoints continues another one.
    prolongs: bool,
    /// Way to resume after a failure, at the end of a message.
    advice: &'static str,
}

impl RankLaunch {
    /// Prepares `ranks` processes of this program that train `pipeline`.
    ///
    /// # Errors
    /// The path of the program is unknown, or there are far more ranks than processors.
    pub(crate) fn new(
        ranks: usize,
        pipeline: &Pipeline,
        parallel: ParallelConfig,
    ) -> anyhow::Result<Self> {
        check_ranks(ranks, processors())?;
        let program = std::env::current_exe().context("cannot find the program's own file")?;
        let mut arguments = vec!["rank".into(), pipeline.file.clone().into_os_string()];
        for set in &pipeline.options.set {
            arguments.extend(["--set".into(), format!("{}={}", set.key, set.value).into()]);
        }
        Ok(Self {
            program,
            ranks,
            arguments,
            parallel,
            prolongs: false,
            advice: exit::resume_advice(Resume::Fresh),
        })
    }

    /// Sets how the first start of the ranks resumes.
    pub(crate) fn resuming(self, resume: Resume) -> Self {
        Self {
            prolongs: resume == Resume::Prolong,
            advice: exit::resume_advice(resume),
            ..self
        }
    }

    /// Trains to the end. Restarts failed ranks from the newest checkpoint, as long as that may
    /// help. `resume` makes the first start resume too; `seed` determines the waits in between.
    ///
    /// # Errors
    /// [`RankError`]: the error of a rank, or the failed rank and the reason for no further
    /// restart.
    pub(crate) fn carry_out(
        &self,
        mut resume: bool,
        seed: u64,
        stop: &AtomicBool,
        clock: &dyn Clock,
    ) -> anyhow::Result<TrainReport> {
        let silence = Duration::from_secs(self.parallel.heartbeat_timeout_s.max(1));
        let mut restarts = Restarts::new(self.parallel.restarts, seed);
        loop {
            let processes = RankProcesses::start(self, resume).context("cannot start the ranks")?;
            let failure = match processes.wait(stop, silence, clock) {
                Ok(report) => return Ok(report),
                Err(failure) => failure,
            };
            // Before training has begun, a fresh start may still be refused because of existing
            // checkpoints.
            resume |= failure.begun;
            let wait = self.next(&failure, &mut restarts, stop)?;
            tracing::warn!(
                rank = failure.rank,
                reason = failure.reason,
                ranks = failure.ranks,
                restart = restarts.used(),
                of = self.parallel.restarts,
                wait_ms = u64::try_from(wait.as_millis())?,
                "a rank failed; all are started again from the newest checkpoint"
            );
            pause(wait, stop, clock);
        }
    }

    /// The command of one rank.
    fn command(&self, rank: usize, port: u16, resume: bool) -> Command {
        let threads = (processors() / self.ranks).max(1);
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .args(resume.then_some("--resume"))
            .args((resume && self.prolongs).then_some("--prolong"))
            .env("RANK", rank.to_string())
            .env("LOCAL_RANK", rank.to_string())
            .env("WORLD_SIZE", self.ranks.to_string())
            .env("LOCAL_WORLD_SIZE", self.ranks.to_string())
            .env("MASTER_ADDR", "127.0.0.1")
            .env("MASTER_PORT", port.to_string())
            .env("RAYON_NUM_THREADS", threads.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if rank > 0 {
            command.stderr(Stdio::piped());
        }
        command
    }

    /// Returns the wait before the next start.
    ///
    /// # Errors
    /// [`RankError`] if there is none.
    fn next(
        &self,
        failure: &LaunchFailure,
        restarts: &mut Restarts,
        stop: &AtomicBool,
    ) -> Result<Duration, RankError> {
        let said = failure.said.as_ref();
        if let Some(said) = said.filter(|said| !said.may_pass) {
            let advice = if said.names_checkpoint {
                self.advice
            } else {
                ""
            };
            return Err(RankError {
                message: format!("{}{advice}", said.message),
                code: said.code,
            });
        }
        let wait = if stop.load(Ordering::SeqCst) {
            Err("it was asked to stop".to_owned())
        } else {
            restarts.next(failure.step, &failure.reason, failure.saved)
        };
        wait.map_err(|why| RankError {
            message: format!(
                "{failure}; not started again: {why}; resume from the newest checkpoint{}",
                self.advice
            ),
            code: said.map_or(1, |said| said.code),
        })
    }
}

/// Least number of ranks for each processor that is refused: the machine would hardly respond.
const RANKS_OF_A_PROCESSOR: usize = 8;

fn processors() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// Refuses far more ranks than processors, and warns of more.
fn check_ranks(ranks: usize, processors: usize) -> anyhow::Result<()> {
    let most = RANKS_OF_A_PROCESSOR * processors;
    anyhow::ensure!(
        ranks <= most,
        "`--ranks {ranks}` would start {ranks} processes on {processors} processors, on which they take turns; start at most \
         {processors}, or other ranks on other machines with `torchrun` or Slurm"
    );
    if ranks > processors {
        tracing::warn!(
            ranks,
            processors,
            "more ranks than processors: they take turns, and training is no faster than with as many ranks as processors"
        );
    }
    Ok(())
}

/// Waits, unless a stop is requested.
fn pause(wait: Duration, stop: &AtomicBool, clock: &dyn Clock) {
    let begun = clock.monotonic();
    while clock.monotonic().saturating_sub(begun) < wait && !stop.load(Ordering::SeqCst) {
        thread::park_timeout(TICK);
    }
}
