//! The ranks of one start: their processes, messages and ends.

use std::{
    fmt,
    io::{self, BufRead as _, BufReader, Read, Write as _},
    os::unix::process::ExitStatusExt as _,
    process::{Child, ChildStdin, ExitStatus},
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use feedline_schemas::report::TrainReport;
use feedline_storage::clock::Clock;
use feedline_trainer::{Phase, Whereabouts};

use super::{
    RankLaunch,
    word::{ReportedFailure, Word},
};

/// Interval of the launcher's checks.
const TICK: Duration = Duration::from_millis(50);

/// Most time that counts between two checks: after a suspended launcher, no rank counts as silent.
const LOOK_MOST: Duration = Duration::from_millis(200);

/// Time for ranks to end by themselves after one has failed, or after the end of work.
const GRACE: Duration = Duration::from_secs(10);

/// The same for ranks that have not begun, and so have nothing to save.
const GRACE_BEFORE: Duration = Duration::from_secs(1);

/// A message of a rank; `None` is the last one.
type Heard = (usize, Option<Word>);

/// Processes that train together. None of them outlives this.
#[derive(Debug)]
pub(super) struct RankProcesses {
    all: Vec<RankProcess>,
    heard: mpsc::Receiver<Heard>,
    /// Ranks in the order of their failures or ends.
    fell: Vec<usize>,
}

#[derive(Debug)]
struct RankProcess {
    child: Child,
    stdin: Option<ChildStdin>,
    at: Whereabouts,
    /// Time since its last message.
    quiet: Duration,
    /// Its last message.
    word: Option<Word>,
    ended: Option<ExitStatus>,
}

/// Reason why the ranks did not finish.
#[derive(Clone, Debug)]
pub(super) struct LaunchFailure {
    /// The rank at fault.
    pub(super) rank: usize,
    pub(super) reason: String,
    /// Position of each rank.
    pub(super) ranks: String,
    /// Error reported by the rank at fault.
    pub(super) said: Option<ReportedFailure>,
    /// The furthest step of any rank.
    pub(super) step: u64,
    /// Steps of the newest checkpoint that any rank knew of.
    pub(super) saved: u64,
    /// True if training had begun.
    pub(super) begun: bool,
}

impl fmt::Display for LaunchFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            rank,
            reason,
            ranks,
            ..
        } = self;
        write!(f, "rank `{rank}` failed: {reason}; last known: {ranks}")
    }
}

impl RankProcesses {
    /// Starts all ranks.
    ///
    /// # Errors
    /// The error of the system.
    pub(super) fn start(launch: &RankLaunch, resume: bool) -> io::Result<Self> {
        let port = free_port()?;
        let (say, heard) = mpsc::channel();
        let mut members = Self {
            all: Vec::new(),
            heard,
            fell: Vec::new(),
        };
        for rank in 0..launch.ranks {
            let mut child = launch.command(rank, port, resume).spawn()?;
            if let Some(out) = child.stdout.take() {
                let say = say.clone();
                named(format!("from-rank-{rank}"), move || listen(out, rank, &say))?;
            }
            if let Some(errors) = child.stderr.take() {
                named(format!("errors-of-rank-{rank}"), move || {
                    pass_on(errors, rank)
                })?;
            }
            members.all.push(RankProcess {
                stdin: child.stdin.take(),
                child,
                at: Whereabouts::default(),
                quiet: Duration::ZERO,
                word: None,
                ended: None,
            });
        }
        Ok(members)
    }

    /// Waits until the first rank has reported and all have ended, or one has failed. A rank
    /// without a heartbeat for `silence` has failed. Passes `stop` on to all.
    ///
    /// # Errors
    /// The rank that failed, and the reason.
    pub(super) fn wait(
        mut self,
        stop: &AtomicBool,
        silence: Duration,
        clock: &dyn Clock,
    ) -> Result<TrainReport, Box<LaunchFailure>> {
        let (mut looked, mut leaving) = (clock.monotonic(), Duration::ZERO);
        let mut asked = false;
        loop {
            if stop.load(Ordering::SeqCst) && !asked {
                asked = true;
                self.ask_to_stop();
            }
            match self.heard.recv_timeout(TICK) {
                Ok(heard) => self.take(heard),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => leaving = GRACE,
            }
            let now = clock.monotonic();
            let spent = now.saturating_sub(looked).min(LOOK_MOST);
            looked = now;
            self.all.iter_mut().for_each(|member| member.quiet += spent);
            let done = matches!(self.all[0].word, Some(Word::Done(_)));
            if !done && !self.in_trouble(silence) {
                continue;
            }
            leaving += spent;
            let wait_for = |member: &RankProcess| member.may_still_speak(done, leaving, silence);
            if self.all.iter().any(wait_for) {
                continue;
            }
            return match self.all[0].word.take() {
                Some(Word::Done(report)) => Ok(*report),
                word => {
                    self.all[0].word = word;
                    Err(Box::new(self.failure(silence)))
                }
            };
        }
    }

    /// Returns true if a rank has failed. A rank that stopped on request has not, while the first
    /// may still save.
    fn in_trouble(&self, silence: Duration) -> bool {
        let failed = |member: &RankProcess| match &member.word {
            Some(Word::Done(_)) => false,
            Some(Word::Failed(failed)) => !failed.interrupted,
            _ => member.ended.is_some() || member.quiet >= silence,
        };
        self.all.iter().any(failed) || self.all.iter().all(|member| member.ended.is_some())
    }

    fn take(&mut self, (rank, heard): Heard) {
        let member = &mut self.all[rank];
        member.quiet = Duration::ZERO;
        match heard {
            Some(Word::At(at)) => member.at = at,
            Some(word) => {
                if matches!(word, Word::Failed(_)) {
                    self.fell.push(rank);
                }
                member.word = Some(word);
            }
            None => {
                member.stdin = None;
                // Its output has ended, so it is about to, if it has not.
                member.ended = member.child.wait().ok();
                if member.word.is_none() {
                    self.fell.push(rank);
                }
            }
        }
    }

    fn ask_to_stop(&mut self) {
        for stdin in self.all.iter_mut().filter_map(|m| m.stdin.as_mut()) {
            // A rank that has ended needs no message.
            stdin.write_all(b"s").and_then(|()| stdin.flush()).ok();
        }
    }

    /// Finds the rank at fault: one that reports a fault of its own; or else one that is gone or
    /// silent, or reports a transient error, or is named by others; the first of several. If all
    /// stopped on request, none is at fault, so that case comes last.
    fn failure(&self, silence: Duration) -> LaunchFailure {
        let fell = || self.fell.iter().map(|rank| (*rank, &self.all[*rank]));
        let said = |which: fn(&ReportedFailure) -> bool| {
            fell().find_map(|(rank, member)| match &member.word {
                Some(Word::Failed(failed)) if which(failed) => Some((rank, failed.clone())),
                _ => None,
            })
        };
        let own =
            |(rank, failed): (usize, ReportedFailure)| (rank, failed.message.clone(), Some(failed));
        let gone = || {
            let mut gone = fell().filter(|(_, member)| member.word.is_none());
            gone.next()
                .map(|(rank, member)| (rank, how(member.ended), None))
        };
        let silent = || {
            let mut all = self.all.iter().enumerate();
            let silent = all.find(|(_, member)| {
                member.ended.is_none() && member.word.is_none() && member.quiet >= silence
            });
            silent.map(|(rank, _)| {
                let seconds = silence.as_secs_f64();
                let reason = format!("it has given no sign of life for {seconds} s");
                (rank, reason, None)
            })
        };
        let named = || {
            let (_, failed) = said(|failed| failed.other.is_some())?;
            failed.other.map(|(rank, reason)| (rank, reason, None))
        };
        let found = said(|failed| !failed.may_pass && !failed.interrupted)
            .map(own)
            .or_else(gone)
            .or_else(silent)
            .or_else(|| said(|failed| failed.may_pass && failed.other.is_none()).map(own))
            .or_else(named)
            .or_else(|| said(|failed| failed.interrupted).map(own));
        let (rank, reason, said) = found.unwrap_or_else(|| (0, how(None), None));
        let at = self.all.iter().map(|member| member.at);
        let ranks = at.clone().enumerate();
        let ranks = ranks.map(|(rank, at)| format!("rank {rank} at {at}"));
        LaunchFailure {
            rank,
            reason,
            said,
            ranks: ranks.collect::<Vec<_>>().join("; "),
            step: at.clone().map(|at| at.step).max().unwrap_or_default(),
            saved: at.clone().map(|at| at.saved).max().unwrap_or_default(),
            begun: self.all.iter().any(RankProcess::has_begun),
        }
    }
}

impl RankProcess {
    fn has_begun(&self) -> bool {
        self.at.phase != Phase::Starting || self.at.step > 0
    }

    /// Returns true if its end is worth waiting for, `leaving` after the first failure or the end
    /// of work.
    fn may_still_speak(&self, done: bool, leaving: Duration, silence: Duration) -> bool {
        let grace = if done || self.has_begun() {
            GRACE
        } else {
            GRACE_BEFORE
        };
        self.ended.is_none() && self.quiet < silence && leaving < grace
    }
}

impl Drop for RankProcesses {
    fn drop(&mut self) {
        for member in &mut self.all {
            // It may have ended just now.
            member.child.kill().ok();
        }
        for member in &mut self.all {
            member.child.wait().ok();
        }
    }
}

/// Describes the end of a process that gave no reason.
fn how(ended: Option<ExitStatus>) -> String {
    match ended.map(|status| (status.signal(), status.code())) {
        Some((Some(signal), _)) => format!("it was killed by signal {signal}"),
        Some((None, Some(code))) => format!("it ended with exit code {code} and gave no reason"),
        _ => "it ended and gave no reason".to_owned(),
    }
}

/// Finds a free port of this machine. If another process takes it first, the ranks are restarted.
fn free_port() -> io::Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?
        .local_addr()?
        .port())
}

fn named(name: String, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name).spawn(work).map(drop)
}

/// Forwards the messages of a rank until its output ends.
fn listen(out: impl Read, rank: usize, say: &mpsc::Sender<Heard>) {
    for line in BufReader::new(out).split(b'\n').map_while(Result::ok) {
        // Other output on standard output is ignored.
        if let Ok(word) = serde_json::from_slice(&line) {
            say.send((rank, Some(word))).ok();
        }
    }
    say.send((rank, None)).ok();
}

/// Shows the standard error of a rank other than the first: errors, or panics.
fn pass_on(errors: impl Read, rank: usize) {
    for line in BufReader::new(errors).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        // Standard error may be closed.
        writeln!(io::stderr(), "rank {rank}: {line}").ok();
    }
}
