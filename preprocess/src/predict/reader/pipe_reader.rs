//! Input of a pipe whose producer may pause.
//!
//! A thread reads the pipe ahead of the parser. Where the parser has to wait for input for longer
//! than [`PauseRule::delay`], it calls a hook before it waits on, to hand out the rows
//! that are complete. Memory is a few chunks of 64 KiB.

use std::{
    fmt,
    io::{self, Cursor, ErrorKind, Read},
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, TryRecvError, sync_channel},
    },
    thread,
    time::Duration,
};

use feedline_storage::clock::Clock;

/// Bytes of one read of the pipe.
const CHUNK: usize = 64 << 10;

/// Chunks that wait for the parser.
const WAITING: usize = 2;

/// Longest time that complete rows of a pipe wait for further input.
#[derive(Clone, Debug)]
pub struct PauseRule {
    /// The time.
    pub delay: Duration,
    /// Measures it.
    pub clock: Arc<dyn Clock>,
}

/// Hands out the rows that are complete.
pub(super) type PauseHook = Box<dyn FnMut() + Send>;

/// First bytes of a pipe.
pub(super) struct PipeHead {
    pub(super) bytes: usize,
    /// True if a pause ended it: more bytes may follow.
    pub(super) is_paused: bool,
}

/// Reads a pipe. The thread that reads it ahead ends with the pipe, or with the first chunk after
/// the reader was dropped.
pub(super) struct PipeReader {
    chunks: Receiver<io::Result<Vec<u8>>>,
    current: Cursor<Vec<u8>>,
    rule: PauseRule,
    hook: PauseHook,
    /// Time at which the hook is called if the parser waits then.
    due: Option<Duration>,
}

impl fmt::Debug for PipeReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PipeReader")
            .field("rule", &self.rule)
            .finish_non_exhaustive()
    }
}

impl PipeReader {
    /// Starts to read `pipe`.
    pub(super) fn spawn(pipe: Box<dyn Read + Send>, rule: PauseRule, hook: PauseHook) -> Self {
        let (sender, chunks) = sync_channel(WAITING);
        thread::spawn(move || {
            let mut pipe = pipe;
            loop {
                let chunk = read_chunk(&mut *pipe);
                let is_last = chunk.as_ref().map_or(true, Vec::is_empty);
                if sender.send(chunk).is_err() || is_last {
                    return;
                }
            }
        });
        Self {
            chunks,
            current: Cursor::new(Vec::new()),
            rule,
            hook,
            due: None,
        }
    }

    /// Holds the first bytes: at least `most` of them, all that the pipe has, or those before the
    /// first pause after `lines` complete lines that are neither blank nor begin with `comment`.
    ///
    /// # Errors
    /// The error of the pipe.
    pub(super) fn read_head(
        &mut self,
        most: usize,
        lines: u64,
        comment: Option<u8>,
    ) -> io::Result<PipeHead> {
        let mut bytes = Vec::new();
        let mut is_paused = false;
        while bytes.len() < most {
            let chunk = match self.chunks.recv_timeout(self.rule.delay) {
                Ok(chunk) => chunk?,
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) if count_lines(&bytes, comment) >= lines => {
                    is_paused = true;
                    break;
                }
                Err(RecvTimeoutError::Timeout) => match self.chunks.recv() {
                    Ok(chunk) => chunk?,
                    Err(_) => break,
                },
            };
            if chunk.is_empty() {
                break;
            }
            bytes.extend(chunk);
        }
        let head = PipeHead {
            bytes: bytes.len(),
            is_paused,
        };
        self.current = Cursor::new(bytes);
        Ok(head)
    }

    /// The next chunk; empty at the end. Calls the hook once if it does not come in time.
    fn next_chunk(&mut self) -> io::Result<Vec<u8>> {
        match self.chunks.try_recv() {
            Ok(chunk) => return chunk,
            Err(TryRecvError::Disconnected) => return Ok(Vec::new()),
            Err(TryRecvError::Empty) => {}
        }
        let now = self.rule.clock.monotonic();
        let due = *self.due.get_or_insert(now + self.rule.delay);
        match self.chunks.recv_timeout(due.saturating_sub(now)) {
            Ok(chunk) => return chunk,
            Err(RecvTimeoutError::Disconnected) => return Ok(Vec::new()),
            Err(RecvTimeoutError::Timeout) => {}
        }
        (self.hook)();
        self.due = None;
        self.chunks.recv().unwrap_or_else(|_| Ok(Vec::new()))
    }
}

impl Read for PipeReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.current.read(out)?;
        if count > 0 || out.is_empty() {
            return Ok(count);
        }
        self.current = Cursor::new(self.next_chunk()?);
        self.current.read(out)
    }
}

/// The next bytes of `pipe`; none at its end.
fn read_chunk(pipe: &mut dyn Read) -> io::Result<Vec<u8>> {
    let mut chunk = vec![0; CHUNK];
    loop {
        match pipe.read(&mut chunk) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            read => {
                chunk.truncate(read?);
                return Ok(chunk);
            }
        }
    }
}

/// Complete lines in `bytes` that are neither blank nor begin with `comment`.
fn count_lines(bytes: &[u8], comment: Option<u8>) -> u64 {
    let end = bytes.iter().rposition(|byte| *byte == b'\n').unwrap_or(0);
    let lines = bytes[..end].split(|byte| *byte == b'\n');
    let lines = lines.map(<[u8]>::trim_ascii);
    let counted = lines.filter(|line| !line.is_empty() && line.first().copied() != comment);
    counted.count() as u64
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use feedline_storage::clock::SystemClock;

    use super::*;

    /// A pipe whose writer is the sender of its chunks.
    struct FedPipe(Receiver<Vec<u8>>);

    impl Read for FedPipe {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let Ok(chunk) = self.0.recv() else {
                return Ok(0);
            };
            out[..chunk.len()].copy_from_slice(&chunk);
            Ok(chunk.len())
        }
    }

    fn piped(hook: PauseHook) -> (Sender<Vec<u8>>, PipeReader) {
        let (sender, chunks) = channel();
        let rule = PauseRule {
            delay: Duration::from_millis(1),
            clock: Arc::new(SystemClock),
        };
        let reader = PipeReader::spawn(Box::new(FedPipe(chunks)), rule, hook);
        (sender, reader)
    }

    #[test]
    fn a_reader_that_waits_calls_the_hook_once_and_loses_no_byte() {
        let (called, calls) = channel();
        let (sender, mut reader) = piped(Box::new(move || called.send(()).unwrap()));
        sender.send(b"ab".to_vec()).unwrap();
        // The pause is one after these bytes, however late they come.
        assert_eq!(reader.read_head(2, 1, None).unwrap().bytes, 2);
        let (done, text) = channel();
        thread::spawn(move || {
            let mut text = String::new();
            reader.read_to_string(&mut text).unwrap();
            done.send(text).unwrap();
        });
        calls.recv().unwrap();
        sender.send(b"cd".to_vec()).unwrap();
        calls.recv().unwrap();
        drop(sender);
        assert_eq!(text.recv().unwrap(), "abcd");
        assert!(calls.try_recv().is_err());
    }

    #[test]
    fn the_head_ends_with_a_pause_after_the_lines_that_are_needed() {
        let (sender, mut reader) = piped(Box::new(|| {}));
        sender.send(b"# c\n\na,b".to_vec()).unwrap();
        let head = thread::spawn(move || {
            let head = reader.read_head(100, 1, Some(b'#')).unwrap();
            ((head.bytes, head.is_paused), reader)
        });
        sender.send(b"\n1".to_vec()).unwrap();
        let (head, mut reader) = head.join().unwrap();
        assert_eq!(head, ("# c\n\na,b\n1".len(), true));
        sender.send(b",2\n".to_vec()).unwrap();
        drop(sender);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "# c\n\na,b\n1,2\n");
    }
}
