//! A rank that was started by the launcher: it sends heartbeats, obeys, and reports its outcome.
//!
//! The launcher writes to its standard input: a byte requests a stop at the next safe point. The
//! end of standard input means that the launcher is gone, for whatever reason. The rank ends then
//! too.

use std::{
    io::{self, Read as _, Write as _},
    process,
    sync::{
        Arc, Once,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use feedline_schemas::{
    progress::{Event, Progress},
    report::TrainReport,
};
use feedline_trainer::Group;

use super::protocol::{RankMessage, ReportedFailure};

/// Time between two heartbeats.
const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(250);

/// Sends heartbeats with this rank's position to the launcher, until the outcome is set.
#[derive(Debug)]
pub(crate) struct RankReporter {
    group: Group,
    /// Dropping it ends the heartbeats.
    alive: mpsc::Sender<()>,
    thread: thread::JoinHandle<()>,
}

impl RankReporter {
    /// Starts to send heartbeats, and to obey through `stop`.
    ///
    /// # Errors
    /// The system cannot create a thread.
    pub(crate) fn begin(group: Group, stop: Arc<AtomicBool>) -> io::Result<Self> {
        thread::Builder::new()
            .name("launcher".into())
            .spawn(move || obey(&stop))?;
        let (alive, ended) = mpsc::channel();
        let sender = group.clone();
        let thread = thread::Builder::new()
            .name("heartbeats".into())
            .spawn(move || {
                send(&RankMessage::Heartbeat(sender.whereabouts()));
                while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(HEARTBEAT_INTERVAL) {
                    send(&RankMessage::Heartbeat(sender.whereabouts()));
                }
            })?;
        Ok(Self {
            group,
            alive,
            thread,
        })
    }

    /// Passes progress on to `progress`. The first one signals to the launcher that the run has
    /// begun. It has no checkpoint before that, and the launcher must know whether existing ones
    /// are its own.
    pub(crate) fn report_first_progress(&self, progress: Arc<dyn Progress>) -> Arc<dyn Progress> {
        Arc::new(FirstProgress {
            group: self.group.clone(),
            reported: Once::new(),
            progress,
        })
    }

    /// Reports the rank's last position and its outcome.
    pub(crate) fn end(self, result: anyhow::Result<TrainReport>) {
        let Self {
            group,
            alive,
            thread,
        } = self;
        drop(alive);
        // It has nothing to fail of.
        thread.join().ok();
        send(&RankMessage::Heartbeat(group.whereabouts()));
        send(&match result {
            Ok(report) => RankMessage::Done(Box::new(report)),
            Err(error) => RankMessage::Failed(ReportedFailure::new(&error)),
        });
    }
}

#[derive(Debug)]
struct FirstProgress {
    group: Group,
    reported: Once,
    progress: Arc<dyn Progress>,
}

impl Progress for FirstProgress {
    fn report(&self, event: Event<'_>) {
        self.reported
            .call_once(|| send(&RankMessage::Heartbeat(self.group.whereabouts())));
        self.progress.report(event);
    }
}

/// A failed write means that the launcher is gone, which `obey` notices.
fn send(message: &RankMessage) {
    if let Ok(mut line) = serde_json::to_vec(message) {
        line.push(b'\n');
        let mut out = io::stdout().lock();
        out.write_all(&line).and_then(|()| out.flush()).ok();
    }
}

fn obey(stop: &AtomicBool) {
    let mut byte = [0];
    loop {
        match io::stdin().read(&mut byte) {
            Ok(1..) => stop.store(true, Ordering::SeqCst),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => process::exit(130),
        }
    }
}
