//! A process that decodes foreign images for a build: a fault of a decoder ends only this process.
//! The build bounds its memory before it starts.

use std::{
    fs, io, process,
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::Duration,
};

use anyhow::Context as _;

use crate::exit::Outcome;

/// Maximum processor time of this process for one image.
const LONGEST: Duration = Duration::from_mins(1);

/// Interval of the checks.
const LOOK: Duration = Duration::from_secs(1);

/// Exit code after this time.
const TOO_LONG: i32 = 124;

/// Decodes the images on standard input until it ends.
pub(crate) fn run() -> anyhow::Result<Outcome> {
    let (busy, told) = channel();
    thread::spawn(move || watch(&told));
    feedline_image::serve(io::stdin().lock(), io::stdout().lock(), |is_busy| {
        // The watch ends with this process only.
        busy.send(is_busy).unwrap_or_default();
    })
    .context("the build that wanted images is gone")?;
    Ok(Outcome::Done)
}

/// Ends the process if an image takes too long.
fn watch(busy: &Receiver<bool>) {
    while let Ok(is_busy) = busy.recv() {
        if !is_busy {
            continue;
        }
        let begun = processor_time();
        let mut waited = Duration::ZERO;
        while busy.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
            waited += LOOK;
            // Wall-clock time if the system does not report processor time.
            let taken = processor_time().zip(begun).map(|(now, begun)| now - begun);
            if taken.unwrap_or(waited) > LONGEST {
                process::exit(TOO_LONG);
            }
        }
    }
}

/// Processor time of this process, which Linux reports in hundredths of a second.
fn processor_time() -> Option<Duration> {
    let told = fs::read_to_string("/proc/self/stat").ok()?;
    // After the name in parentheses: state is field 3, user time field 14, system time field 15.
    let fields = told.rsplit_once(')')?.1.split_whitespace();
    let times: Option<Vec<u64>> = fields.skip(11).take(2).map(|f| f.parse().ok()).collect();
    Some(Duration::from_millis(10 * times?.iter().sum::<u64>()))
}
