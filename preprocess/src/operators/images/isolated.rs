//! Images decoded in a separate process with bounded memory. The process is killed when it does not
//! respond, and restarted when a decoder crashes it.

use std::{
    io::{self, ErrorKind, Read},
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use feedline_image::{ImageError, Preparation, Prepared, Remote};

use crate::Error;

/// Address space that the program takes before it decodes anything: threads' stacks and what it is linked with.
const PROGRAM_BYTES: u64 = 1 << 30;

/// Bounds the address space and becomes the program: no call of the standard library does the first, and the shell's is
/// inherited.
const BOUNDED: &str = "ulimit -v \"$1\" && exec \"$2\" decode-images";

/// Longest silence of a process that has an image. It ends itself sooner, after a minute of its own processor time.
const PATIENCE: Duration = Duration::from_mins(10);

/// Attempts for an image that ends the process.
const TRIES: u32 = 2;

/// Bytes kept of what a process says on its standard error.
const SAID: u64 = 4096;

const SIGKILL: i32 = 9;

/// A decoder in another process.
#[derive(Debug)]
pub(crate) struct Isolated {
    program: PathBuf,
    how: Preparation,
    patience: Duration,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    remote: Option<Remote<ChildStdout, ChildStdin>>,
    child: Arc<Mutex<Child>>,
    /// Channel to the watchdog: true when a response is awaited, false when it has come.
    waiting: Sender<bool>,
    /// True if the watchdog killed it.
    is_late: Arc<AtomicBool>,
    said: Option<JoinHandle<String>>,
}

/// Exit of a process.
struct End {
    status: io::Result<ExitStatus>,
    is_late: bool,
    said: String,
}

impl End {
    fn reason(&self) -> String {
        match &self.status {
            _ if self.is_late => "it did not respond".into(),
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        }
    }
}

impl Running {
    /// Runs `with` on the process, which is killed when that takes too long.
    fn watched<T>(
        &mut self,
        with: impl FnOnce(&mut Remote<ChildStdout, ChildStdin>) -> io::Result<T>,
    ) -> io::Result<T> {
        let remote = self.remote.as_mut().ok_or(ErrorKind::NotConnected)?;
        // The watch ends with this only.
        self.waiting.send(true).unwrap_or_default();
        let answer = with(remote);
        self.waiting.send(false).unwrap_or_default();
        answer
    }

    /// Ends the process, if it has not ended.
    fn end(&mut self) -> End {
        self.remote = None;
        let mut child = locked(&self.child);
        // Nothing that it could still say is wanted. Of one that has ended nothing changes.
        let status = child.kill().and_then(|()| child.wait());
        drop(child);
        let said = self.said.take().and_then(|said| said.join().ok());
        End {
            status,
            is_late: self.is_late.load(Ordering::Relaxed),
            said: said.unwrap_or_default(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Err(error) = self.end().status {
            tracing::warn!(%error, "a process that decodes images was left behind");
        }
    }
}

fn locked(child: &Mutex<Child>) -> MutexGuard<'_, Child> {
    child.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Kills `child` when a response takes longer than `patience`.
fn watch(waiting: &Receiver<bool>, patience: Duration, child: &Mutex<Child>, is_late: &AtomicBool) {
    while let Ok(is_waiting) = waiting.recv() {
        if is_waiting && waiting.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
            is_late.store(true, Ordering::Relaxed);
            if let Err(error) = locked(child).kill() {
                tracing::warn!(%error, "a process that decodes images cannot be killed");
            }
        }
    }
}

/// Beginning of a process's output; the rest is read and dropped, so that the process does not
/// block.
fn heard(mut from: ChildStderr) -> String {
    let mut said = Vec::new();
    let read = from.by_ref().take(SAID).read_to_end(&mut said);
    if read
        .and_then(|_| io::copy(&mut from, &mut io::sink()))
        .is_err()
    {
        said.extend(b"...");
    }
    String::from_utf8_lossy(&said).trim().replace('\n', ", ")
}

impl Isolated {
    /// `program` is this one, which decodes images by its command `decode-images`.
    pub(crate) fn new(program: PathBuf, how: Preparation) -> Self {
        Self {
            program,
            how,
            patience: PATIENCE,
            running: None,
        }
    }

    /// As [`feedline_image::Preparer::prepare`]. An image that ends two processes is damaged.
    ///
    /// # Errors
    /// [`Error::Decoder`] where no process can be started, and where it is killed from outside.
    pub(crate) fn prepare(&mut self, file: &[u8]) -> Result<Result<Prepared, ImageError>, Error> {
        // Such a file is refused by what it is, here as there, and does not travel.
        if let Err(error) = self.how.limits.check_encoded(file) {
            return Ok(Err(error));
        }
        let mut tries = 1;
        loop {
            let mut running = match self.running.take() {
                Some(running) => running,
                None => self.start()?,
            };
            let error = match running.watched(|remote| remote.prepare(file)) {
                Ok(prepared) => {
                    self.running = Some(running);
                    return Ok(prepared);
                }
                Err(error) => error,
            };
            let end = running.end();
            if tries < TRIES {
                tries += 1;
                continue;
            }
            let ended_itself = [ErrorKind::UnexpectedEof, ErrorKind::BrokenPipe];
            let signal = end.status.as_ref().map(ExitStatusExt::signal);
            if !end.is_late
                && ended_itself.contains(&error.kind())
                && matches!(signal, Ok(Some(SIGKILL)))
            {
                let what = "was killed from outside, twice in a row with one image, most likely since memory ran out";
                return Err(self.failed(what.into(), &end.said));
            }
            let reason = format!("its decoder was stopped ({})", end.reason());
            return Ok(Err(ImageError::Corrupt { reason }));
        }
    }

    fn failed(&self, what: String, said: &str) -> Error {
        let said = if said.is_empty() {
            String::new()
        } else {
            format!("; it said: {said}")
        };
        Error::Decoder {
            program: self.program.display().to_string(),
            reason: format!("{what}{said}"),
        }
    }

    fn start(&self) -> Result<Running, Error> {
        let Preparation { limits, sizing, .. } = &self.how;
        // The decoder, the file that came, a copy of it, and the file that is stored with its pixels on their way.
        let bytes = PROGRAM_BYTES
            + limits.decoder_bytes * 2
            + u64::from(limits.encoded_bytes) * 4
            + sizing.most_bytes(limits) * 4;
        let kibibytes = (bytes >> 10).to_string();
        let mut child = Command::new("/bin/sh")
            .args(["-c", BOUNDED, "sh", &kibibytes])
            .arg(&self.program)
            .env_clear()
            // Its address space is limited; an allocator with an arena per processor reserves too
            // much of it.
            .env("_RJEM_MALLOC_CONF", "percpu_arena:disabled,narenas:1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| self.failed(format!("cannot be started by `/bin/sh`: {error}"), ""))?;
        let pipes = child.stdout.take().zip(child.stdin.take());
        let (from, to) = pipes.expect("both were asked for");
        let said = child.stderr.take();
        let child = Arc::new(Mutex::new(child));
        let is_late = Arc::new(AtomicBool::new(false));
        let (waiting, told) = channel();
        let (watched, late, patience) = (Arc::clone(&child), Arc::clone(&is_late), self.patience);
        thread::spawn(move || watch(&told, patience, &watched, &late));
        let mut running = Running {
            remote: Some(Remote::new(from, to)),
            child,
            waiting,
            is_late,
            said: said.map(|said| thread::spawn(move || heard(said))),
        };
        match running.watched(|remote| remote.begin(&self.how)) {
            Ok(()) => Ok(running),
            Err(error) => {
                let end = running.end();
                let what = format!("cannot decode ({error}, {})", end.reason());
                Err(self.failed(what, &end.said))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use feedline_image::{Encoding, Filter, ImageLimits, Sizing};

    use super::*;

    fn how() -> Preparation {
        Preparation {
            sizing: Sizing::Original,
            filter: Filter::Bilinear,
            encoding: Some(Encoding::Raw),
            keep_original: true,
            limits: ImageLimits {
                encoded_bytes: 1 << 20,
                decoder_bytes: 64 << 20,
                pixels: 1024,
                ..ImageLimits::DEFAULT
            },
            scaled_decoding: false,
            background: None,
            hashes: false,
        }
    }

    /// A program that does what `script` says, once it has heard something.
    fn program(folder: &Path, script: &str) -> PathBuf {
        let path = folder.join("program");
        let heard = "dd bs=1 count=4 of=/dev/null 2>/dev/null";
        // Another process writes it: a program that another test starts meanwhile would inherit the open file, and a file that
        // is open for writing cannot be executed.
        let write = "printf %s \"$1\" > \"$0\" && chmod 755 \"$0\"";
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", write]).arg(&path);
        shell.arg(format!("#!/bin/sh\n{heard}\n{script}\n"));
        assert!(shell.status().unwrap().success());
        path
    }

    #[test]
    fn a_decoder_that_ends_sets_its_image_aside_and_is_started_again_within_its_memory() {
        let folder = tempfile::tempdir().unwrap();
        let limit = folder.path().join("limit");
        let script = format!(
            "ulimit -v >> {}; printf '\\000\\000\\000\\000'; exit 3",
            limit.display()
        );
        let mut isolated = Isolated::new(program(folder.path(), &script), how());
        for _ in 0..2 {
            let error = isolated.prepare(b"GIF89a").unwrap().unwrap_err();
            let expected = "the image is damaged: its decoder was stopped (exit status: 3)";
            assert!(error.to_string().starts_with(expected), "{error}");
        }
        // A gibibyte for the program, twice 64 MiB, four times 1 MiB, and four times 3 bytes for each of 1024 pixels; each
        // image is tried twice.
        let kibibytes = (1 << 20) + (128 << 10) + (4 << 10) + 12;
        assert_eq!(
            fs::read_to_string(limit).unwrap(),
            format!("{kibibytes}\n").repeat(4)
        );
    }

    #[test]
    fn a_program_that_decodes_nothing_stops_the_build() {
        let folder = tempfile::tempdir().unwrap();
        let program = program(folder.path(), "echo no library >&2; exit 3");
        let mut isolated = Isolated::new(program.clone(), how());
        let error = isolated.prepare(b"GIF89a").unwrap_err();
        let expected = format!(
            "`{}` cannot decode (unexpected end of file, exit status: 3); it said: no library",
            program.display()
        );
        assert!(error.to_string().contains(&expected), "{error}");
    }

    #[test]
    fn a_decoder_that_is_killed_from_outside_stops_the_build_and_loses_no_image() {
        let folder = tempfile::tempdir().unwrap();
        let kill = "printf '\\000\\000\\000\\000'; kill -9 $$";
        let mut isolated = Isolated::new(program(folder.path(), kill), how());
        let error = isolated.prepare(b"GIF89a").unwrap_err();
        assert!(
            error.to_string().contains("was killed from outside"),
            "{error}"
        );
    }

    #[test]
    fn a_decoder_that_does_not_answer_or_answers_nonsense_is_killed() {
        /// A shell starts and prints within this time, also on a busy machine.
        const SHORT: Duration = Duration::from_secs(2);
        let folder = tempfile::tempdir().unwrap();
        for (script, reason) in [
            ("exec sleep 1000", "it did not respond"),
            (
                "printf '\\002\\000\\000\\000no'; exec sleep 1000",
                "signal: 9",
            ),
        ] {
            let script = format!("printf '\\000\\000\\000\\000'; {script}");
            let mut isolated = Isolated::new(program(folder.path(), &script), how());
            isolated.patience = SHORT;
            let error = isolated.prepare(b"GIF89a").unwrap().unwrap_err();
            assert!(error.to_string().contains(reason), "{error}");
        }
        let mut isolated = Isolated::new(program(folder.path(), "exec sleep 1000"), how());
        isolated.patience = SHORT;
        let error = isolated.prepare(b"GIF89a").unwrap_err();
        assert!(error.to_string().contains("it did not respond"), "{error}");
    }

    #[test]
    fn a_file_over_the_limit_does_not_travel() {
        let folder = tempfile::tempdir().unwrap();
        let mut isolated = Isolated::new(program(folder.path(), "exit 3"), how());
        let error = isolated
            .prepare(&vec![0; (1 << 20) + 1])
            .unwrap()
            .unwrap_err();
        assert_eq!(error.code(), "too_large");
    }
}
