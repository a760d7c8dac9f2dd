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

use super::word::{ReportedFailure, Word};

/// Time between two heartbeats.
const SIGN_OF_LIFE_EVERY: Duration = Duration::from_millis(250);

/// Sends heartbeats with this rank's position to the launcher, until the outcome is set.
#[derive(Debug)]
pub(crate) struct Voice {
    group: Group,
    /// Dropping it ends the heartbeats.
    alive: mpsc::Sender<()>,
    thread: thread::JoinHandle<()>,
}

impl Voice {
    /// Starts to send heartbeats, and to obey through `stop`.
    ///
    /// # Errors
    /// The system cannot create a thread.
    pub(crate) fn begin(group: Group, stop: Arc<AtomicBool>) -> io::Result<Self> {
        thread::Builder::new()
            .name("launcher".into())
            .spawn(move || obey(&stop))?;
        let (alive, ended) = mpsc::channel();
        let speaking = group.clone();
        let thread = thread::Builder::new()
            .name("signs-of-life".into())
            .spawn(move || {
                say(&Word::At(speaking.whereabouts()));
                while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(SIGN_OF_LIFE_EVERY) {
                    say(&Word::At(speaking.whereabouts()));
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
    pub(crate) fn at_the_first_news(&self, progress: Arc<dyn Progress>) -> Arc<dyn Progress> {
        Arc::new(FirstNews {
            group: self.group.clone(),
            said: Once::new(),
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
        say(&Word::At(group.whereabouts()));
        say(&match result {
            Ok(report) => Word::Done(Box::new(report)),
            Err(error) => Word::Failed(ReportedFailure::new(&error)),
        });
    }
}

#[derive(Debug)]
struct FirstNews {
    group: Group,
    said: Once,
    progress: Arc<dyn Progress>,
}

impl Progress for FirstNews {
    fn report(&self, event: Event<'_>) {
        self.said
            .call_once(|| say(&Word::At(self.group.whereabouts())));
        self.progress.report(event);
    }
}

/// A failed write means that the launcher is gone, which `obey` notices.
fn say(word: &Word) {
    if let Ok(mut line) = serde_json::to_vec(word) {
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
