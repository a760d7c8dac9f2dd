//! A rank that was started by the launcher: it shows life, obeys, and says how it ended.
//!
//! Standard input is the launcher's: a byte asks to stop at the next safe point, and its end means that the launcher is
//! gone, whatever ended it. The rank ends then too.

use std::{
    io::{self, Read as _, Write as _},
    process,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use feedline_schemas::report::TrainReport;
use feedline_trainer::Group;

use super::word::{Failed, Word};

/// Time between two signs of life.
const SIGN_OF_LIFE_EVERY: Duration = Duration::from_millis(250);

/// Tells the launcher where this rank is, until it is told how it ended.
#[derive(Debug)]
pub(crate) struct Voice {
    group: Group,
    /// Dropped, it ends the signs of life.
    alive: mpsc::Sender<()>,
    thread: thread::JoinHandle<()>,
}

impl Voice {
    /// Begins to show life, and to obey through `stop`.
    ///
    /// # Errors
    /// When the system gives no thread.
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

    /// Says where the rank was last and how it ended.
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
            Err(error) => Word::Failed(Failed::new(&error)),
        });
    }
}

/// A launcher that is gone hears nothing, and `obey` knows.
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
