//! The ranks of one start: their processes, messages and ends.

use std::{
    fmt,
    hash::{BuildHasher as _, RandomState},
    io::{self, BufRead as _, BufReader, Read, Write as _},
    net::TcpListener,
    ops::Range,
    os::unix::process::ExitStatusExt as _,
    process::{self, Child, ChildStdin, ExitStatus},
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use feedline_http::backoff::Jitter;
use feedline_schemas::report::TrainReport;
use feedline_storage::clock::Clock;
use feedline_trainer::{Phase, Whereabouts};

use super::{
    RankLaunch,
    protocol::{RankMessage, ReportedFailure},
};

/// Interval of the launcher's checks.
const TICK: Duration = Duration::from_millis(50);

/// Most time that counts between two checks: after a suspended launcher, no rank counts as silent.
const LOOK_MOST: Duration = Duration::from_millis(200);

/// Time for ranks to end by themselves after one has failed, or after the end of work.
const GRACE: Duration = Duration::from_secs(10);

/// The same for ranks that have not begun, and so have nothing to save.
const GRACE_BEFORE: Duration = Duration::from_secs(1);

/// Ports where the ranks meet, below those that systems choose for other listeners and for outgoing
/// connections: such a port stays free until the first rank listens.
const PORTS: Range<u16> = 20_000..32_000;

/// Ports that are tried before one that the system chooses.
const PORT_TRIES: u32 = 16;

/// A message of a rank; `None` is the last one.
type RankEvent = (usize, Option<RankMessage>);

/// Processes that train together. None of them outlives this.
#[derive(Debug)]
pub(super) struct RankProcesses {
    all: Vec<RankProcess>,
    events: mpsc::Receiver<RankEvent>,
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
    /// Its outcome, once it has reported one.
    outcome: Option<RankMessage>,
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
        let port = free_port(RandomState::new().hash_one(process::id()))?;
        let (sender, events) = mpsc::channel();
        let mut processes = Self {
            all: Vec::new(),
            events,
            fell: Vec::new(),
        };
        for rank in 0..launch.ranks {
            let mut child = launch.command(rank, port, resume).spawn()?;
            if let Some(out) = child.stdout.take() {
                let sender = sender.clone();
                named(format!("from-rank-{rank}"), move || {
                    listen(out, rank, &sender)
                })?;
            }
            if let Some(errors) = child.stderr.take() {
                named(format!("errors-of-rank-{rank}"), move || {
                    pass_on(errors, rank)
                })?;
            }
            processes.all.push(RankProcess {
                stdin: child.stdin.take(),
                child,
                at: Whereabouts::default(),
                quiet: Duration::ZERO,
                outcome: None,
                ended: None,
            });
        }
        Ok(processes)
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
            match self.events.recv_timeout(TICK) {
                Ok(event) => self.take(event),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => leaving = GRACE,
            }
            let now = clock.monotonic();
            let spent = now.saturating_sub(looked).min(LOOK_MOST);
            looked = now;
            self.all
                .iter_mut()
                .for_each(|process| process.quiet += spent);
            let done = matches!(self.all[0].outcome, Some(RankMessage::Done(_)));
            if !done && !self.in_trouble(silence) {
                continue;
            }
            leaving += spent;
            let wait_for = |process: &RankProcess| process.may_still_report(done, leaving, silence);
            if self.all.iter().any(wait_for) {
                continue;
            }
            return match self.all[0].outcome.take() {
                Some(RankMessage::Done(report)) => Ok(*report),
                message => {
                    self.all[0].outcome = message;
                    Err(Box::new(self.failure(silence)))
                }
            };
        }
    }

    /// Returns true if a rank has failed. A rank that stopped on request has not, while the first
    /// may still save.
    fn in_trouble(&self, silence: Duration) -> bool {
        let failed = |process: &RankProcess| match &process.outcome {
            Some(RankMessage::Done(_)) => false,
            Some(RankMessage::Failed(failed)) => !failed.interrupted,
            _ => process.ended.is_some() || process.quiet >= silence,
        };
        self.all.iter().any(failed) || self.all.iter().all(|process| process.ended.is_some())
    }

    fn take(&mut self, (rank, message): RankEvent) {
        let process = &mut self.all[rank];
        process.quiet = Duration::ZERO;
        match message {
            Some(RankMessage::Heartbeat(at)) => process.at = at,
            Some(message) => {
                if matches!(message, RankMessage::Failed(_)) {
                    self.fell.push(rank);
                }
                process.outcome = Some(message);
            }
            None => {
                process.stdin = None;
                // Its output has ended, so it is about to, if it has not.
                process.ended = process.child.wait().ok();
                if process.outcome.is_none() {
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
            fell().find_map(|(rank, process)| match &process.outcome {
                Some(RankMessage::Failed(failed)) if which(failed) => Some((rank, failed.clone())),
                _ => None,
            })
        };
        let own =
            |(rank, failed): (usize, ReportedFailure)| (rank, failed.message.clone(), Some(failed));
        let gone = || {
            let mut gone = fell().filter(|(_, process)| process.outcome.is_none());
            gone.next()
                .map(|(rank, process)| (rank, how(process.ended), None))
        };
        let silent = || {
            let mut all = self.all.iter().enumerate();
            let silent = all.find(|(_, process)| {
                process.ended.is_none() && process.outcome.is_none() && process.quiet >= silence
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
        let at = self.all.iter().map(|process| process.at);
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
    fn may_still_report(&self, done: bool, leaving: Duration, silence: Duration) -> bool {
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
        for process in &mut self.all {
            // It may have ended just now.
            process.child.kill().ok();
        }
        for process in &mut self.all {
            process.child.wait().ok();
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

/// Finds a free port of this machine, drawn by `seed`. If another process takes it first, the ranks
/// are restarted.
fn free_port(seed: u64) -> io::Result<u16> {
    let mut draws = Jitter::new(seed);
    let width = PORTS.end - PORTS.start;
    for _ in 0..PORT_TRIES {
        let offset = u16::try_from(draws.up_to(u64::from(width - 1))).unwrap_or_default();
        let port = PORTS.start + offset;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn named(name: String, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name).spawn(work).map(drop)
}

/// Forwards the messages of a rank until its output ends.
fn listen(out: impl Read, rank: usize, sender: &mpsc::Sender<RankEvent>) {
    for line in BufReader::new(out).split(b'\n').map_while(Result::ok) {
        // Other output on standard output is ignored.
        if let Ok(message) = serde_json::from_slice(&line) {
            sender.send((rank, Some(message))).ok();
        }
    }
    sender.send((rank, None)).ok();
}

/// Shows the standard error of a rank other than the first: errors, or panics.
fn pass_on(errors: impl Read, rank: usize) {
    for line in BufReader::new(errors).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        // Standard error may be closed.
        writeln!(io::stderr(), "rank {rank}: {line}").ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_where_another_program_listens_is_not_drawn() {
        let first = free_port(7).unwrap();
        let _taken = TcpListener::bind(("127.0.0.1", first)).unwrap();
        let second = free_port(7).unwrap();
        assert_ne!(first, second);
        assert!([first, second].iter().all(|port| PORTS.contains(port)));
    }
}
