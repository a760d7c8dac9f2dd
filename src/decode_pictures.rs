//! A process that decodes foreign pictures for a build: what a decoder does wrong ends this process and no other. The
//! build bounds its memory before it starts.

use std::{
    io, process,
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::Duration,
};

use anyhow::Context as _;

use crate::exit::Outcome;

/// Longest that one picture may take, on a busy machine.
const LONGEST: Duration = Duration::from_mins(1);

/// Exit code where one takes longer.
const TOO_LONG: i32 = 124;

/// Prepares what comes in on standard input until it ends.
pub(crate) fn run() -> anyhow::Result<Outcome> {
    let (busy, told) = channel();
    thread::spawn(move || watch(&told));
    feedline_picture::serve(io::stdin().lock(), io::stdout().lock(), |is_busy| {
        // The watch ends with this process only.
        busy.send(is_busy).unwrap_or_default();
    })
    .context("the build that wanted pictures is gone")?;
    Ok(Outcome::Done)
}

/// Ends the process when a picture takes too long.
fn watch(busy: &Receiver<bool>) {
    while let Ok(is_busy) = busy.recv() {
        if is_busy && busy.recv_timeout(LONGEST) == Err(RecvTimeoutError::Timeout) {
            process::exit(TOO_LONG);
        }
    }
}
