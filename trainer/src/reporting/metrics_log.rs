//! `metrics.jsonl`: one JSON object per line, `step` lines every `train.log_every` steps and one `epoch` line after each
//! epoch.
//!
//! Every line carries the time it was written at, in seconds since 1970. Apart from times, rates,
//! shares of time, memory and figures of the device, the file of a run that was killed and resumed equals that of one that
//! never was: on resume, lines written after the checkpoint are removed, and before a checkpoint is
//! written all its lines are.

mod line;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use feedline_schemas::ids::{Epoch, Step};
use serde::{Deserialize, Serialize};

pub(crate) use self::line::{MetricsLine, NamedSample};
use crate::{
    checkpoint::run_folder::{Background, RunFolder},
    error::Error,
    reporting::tensorboard::EventFiles,
    session::run_context::Watch,
};

/// Path of the file in a run's folder.
pub(crate) const PATH: &str = "metrics.jsonl";

/// Time between two writes of the file while no checkpoint asks for one. Only a local file can be added to; others are
/// written whole.
const WRITE_EVERY_LOCAL: Duration = Duration::from_secs(5);
const WRITE_EVERY: Duration = Duration::from_secs(60);

/// A line as it is written.
#[derive(Serialize)]
struct Timed<'a> {
    #[serde(flatten)]
    line: &'a MetricsLine,
    unix_s: f64,
}

/// The file as training sees it: lines are added to memory, and written in the background.
#[derive(Debug)]
pub(crate) struct MetricsLog<'a> {
    watch: Watch<'a>,
    file: Arc<LogFile>,
    /// A write under way, and when it was begun.
    writing: Option<Background<Result<(), Error>>>,
    written_at: Duration,
}

/// The file, its lines, and the event files that follow from it.
#[derive(Debug)]
pub(crate) struct LogFile {
    folder: RunFolder,
    text: Mutex<String>,
    /// Held while it is written.
    written: Mutex<WrittenLines>,
}

/// Lines that this process has written.
#[derive(Debug)]
struct WrittenLines {
    /// Bytes of the text.
    bytes: usize,
    events: EventFiles,
}

/// Fields of a line that decide its removal.
#[derive(Deserialize)]
struct LineHead {
    kind: String,
    step: Step,
    epoch: Epoch,
}

impl<'a> MetricsLog<'a> {
    /// An empty file; an existing one is replaced at the first write.
    pub(crate) fn new(folder: RunFolder, watch: Watch<'a>) -> Self {
        Self::with_text(folder, watch, String::new())
    }

    /// The file as that in the folder `from` was after so many steps with this epoch in progress.
    ///
    /// # Errors
    /// [`Error::Storage`].
    pub(crate) fn resume(
        folder: RunFolder,
        watch: Watch<'a>,
        from: &RunFolder,
        (step, epoch): (Step, Epoch),
    ) -> Result<Self, Error> {
        let bytes = from.get_opt(PATH)?.unwrap_or_default();
        let text = cut(&String::from_utf8_lossy(&bytes), step, epoch);
        Ok(Self::with_text(folder, watch, text))
    }

    fn with_text(folder: RunFolder, watch: Watch<'a>, text: String) -> Self {
        let file = LogFile {
            folder,
            text: Mutex::new(text),
            written: Mutex::new(WrittenLines {
                bytes: 0,
                events: EventFiles::new(""),
            }),
        };
        Self {
            watch,
            file: Arc::new(file),
            writing: None,
            written_at: watch.clock.monotonic(),
        }
    }

    /// URL of the file.
    pub(crate) fn url(&self) -> String {
        self.file.folder.url_of(PATH)
    }

    /// The file, for a checkpoint to write before itself.
    pub(crate) fn file(&self) -> Arc<LogFile> {
        Arc::clone(&self.file)
    }

    /// Adds a line. Now and then a write of the file is begun; one that fails is logged, and its lines are written with
    /// the next.
    pub(crate) fn add(&mut self, line: &MetricsLine, now: Duration) {
        self.watch.tracker.line(line);
        let unix_s = self.watch.clock.unix().as_secs_f64();
        let json = serde_json::to_string(&Timed { line, unix_s }).expect("a line has string keys");
        lock(&self.file.text).extend([json.as_str(), "\n"]);
        if self.writing.as_ref().is_some_and(Background::is_done) {
            self.settle();
        }
        let every = if self.file.folder.is_local() {
            WRITE_EVERY_LOCAL
        } else {
            WRITE_EVERY
        };
        if self.writing.is_none() && now.saturating_sub(self.written_at) >= every {
            let file = self.file();
            self.writing = Some(self.file.folder.background(move || file.flush()));
            self.written_at = now;
        }
    }

    /// Writes all lines, and all events of them.
    ///
    /// # Errors
    /// [`Error::Storage`].
    pub(crate) fn finish(&mut self) -> Result<(), Error> {
        self.settle();
        let file = self.file();
        let work = self.file.folder.background(move || {
            file.flush()?;
            lock(&file.written).events.finish(&file.folder)
        });
        work.wait(self.watch.stop)
    }

    /// Waits for the write that is under way.
    fn settle(&mut self) {
        if let Some(Err(error)) = self.writing.take().map(|work| work.wait(self.watch.stop)) {
            tracing::warn!(%error, "metrics could not be written; trying again");
        }
    }
}

impl LogFile {
    /// Writes the lines that are not yet written: at the end of a local file, where this process has written it, or else
    /// with all the others. Then their events, when there are enough of them.
    ///
    /// # Errors
    /// [`Error::Storage`].
    pub(crate) fn flush(&self) -> Result<(), Error> {
        let mut written = lock(&self.written);
        let begin = written.bytes;
        let tail = lock(&self.text)[begin..].to_owned();
        if !tail.is_empty() {
            let at_the_end = || self.folder.put_tail(PATH, begin, tail.clone().into_bytes());
            // A file that was removed or truncated is rewritten.
            if begin == 0 || !at_the_end().unwrap_or(false) {
                let whole = lock(&self.text)[..begin + tail.len()].to_owned();
                self.folder.put(PATH, whole.into_bytes())?;
            }
            written.bytes += tail.len();
            written.events.add(&tail);
        }
        written.events.flush(&self.folder)
    }
}

/// Lines and counts are complete at every instant, also when another thread has panicked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The lines that existed after `step` steps with `epoch` in progress. A line that cannot be read
/// is dropped.
fn cut(text: &str, step: Step, epoch: Epoch) -> String {
    let belongs = |line: &&str| match serde_json::from_str::<LineHead>(line) {
        Ok(head) => head.step <= step && (head.kind != "epoch" || head.epoch < epoch),
        Err(error) => {
            tracing::warn!(%error, file = PATH, "a line cannot be read and is dropped");
            false
        }
    };
    text.lines()
        .filter(belongs)
        .flat_map(|line| [line, "\n"])
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use feedline_schemas::progress::Silent;
    use feedline_storage::{Store, StoreOptions, clock::SystemClock};

    use super::*;
    use crate::{
        checkpoint::run_folder::runtime,
        evaluation::metrics::Metrics,
        reporting::{performance::DeviceFields, status::Tracker},
    };

    fn step_line(step: u64, epoch: u64) -> String {
        let line = MetricsLine::Step {
            step: Step::new(step),
            epoch: Epoch::new(epoch),
            loss: 0.5,
            gradient_norm: 1.0,
            learning_rate: 0.1,
            samples_per_s: 10.0,
            data_wait_share: 0.0,
            save_stall_s: 0.0,
            communication_s: None,
            hidden_communication_s: None,
            memory_bytes: Some(7),
            bytes_to_device: None,
            bytes_from_device: None,
            device: DeviceFields::default(),
            pace: None,
        };
        serde_json::to_string(&line).unwrap() + "\n"
    }

    fn epoch(step: u64, epoch: u64) -> MetricsLine {
        MetricsLine::Epoch {
            epoch: Epoch::new(epoch),
            step: Step::new(step),
            train_loss: Some(0.5),
            unsmoothed_train_loss: None,
            validation_loss: 0.25,
            best: true,
            quarantined: None,
            validation: Metrics::from([("validation_rmse".to_owned(), 2.0)]),
        }
    }

    fn epoch_line(step: u64, of: u64) -> String {
        serde_json::to_string(&epoch(step, of)).unwrap() + "\n"
    }

    #[test]
    fn lines_say_their_kind_and_validation_metrics_are_flat() {
        let line = r#"{"kind":"epoch","epoch":0,"step":4,"train_loss":0.5,"validation_loss":0.25,"best":true,"validation_rmse":2.0}"#;
        assert_eq!(epoch_line(4, 0), format!("{line}\n"));
        let timed = Timed {
            line: &epoch(4, 0),
            unix_s: 2.5,
        };
        let text = serde_json::to_string(&timed).unwrap();
        assert_eq!(text, line.replace('}', ",\"unix_s\":2.5}"));
        assert!(step_line(4, 0).starts_with(r#"{"kind":"step","step":4,"epoch":0,"loss":0.5,"#));
    }

    #[test]
    fn cut_keeps_what_was_there_at_the_checkpoint() {
        let text = step_line(2, 0) + &step_line(4, 0) + &epoch_line(4, 0) + &step_line(6, 1);
        let at = |step, epoch| cut(&text, Step::new(step), Epoch::new(epoch));
        assert_eq!(at(3, 0), step_line(2, 0));
        assert_eq!(
            at(4, 0),
            step_line(2, 0) + &step_line(4, 0),
            "epoch 0 was not yet measured"
        );
        assert_eq!(
            at(4, 1),
            step_line(2, 0) + &step_line(4, 0) + &epoch_line(4, 0)
        );
        assert_eq!(at(6, 1), text);
    }

    #[test]
    fn a_torn_line_is_dropped() {
        assert_eq!(
            cut(
                &(step_line(2, 0) + "{\"kind\":\"st"),
                Step::new(9),
                Epoch::new(9)
            ),
            step_line(2, 0)
        );
    }

    /// Lines are appended to a local file and other files are rewritten; both hold all lines, also
    /// after the file was removed or half a line was left.
    #[test]
    fn lines_are_whole_wherever_the_file_is() {
        let dir = tempfile::tempdir().unwrap();
        let local = dir.path().to_str().unwrap();
        let runtime = runtime().unwrap();
        for store in [
            Store::open(local, &StoreOptions::default()).unwrap(),
            Store::memory(),
        ] {
            let folder = RunFolder::new(runtime.handle().clone(), store);
            let put = |bytes: &str| folder.put(PATH, bytes.into()).unwrap();
            let found = || folder.get_opt(PATH).unwrap().unwrap();
            put("of another run");
            let ranks = crate::parallel::Ranks::alone();
            let watch = Watch {
                progress: &Silent,
                clock: &SystemClock,
                stop: &AtomicBool::new(false),
                tracker: &Tracker::default(),
                ranks: &ranks,
            };
            let mut log = MetricsLog::new(folder.clone(), watch);
            for step in 1..5 {
                log.add(&epoch(step, 0), Duration::ZERO);
                if step == 3 {
                    folder.delete(PATH).unwrap();
                }
                log.file().flush().unwrap();
                let text = String::from_utf8(found().to_vec()).unwrap();
                assert_eq!(text, *lock(&log.file.text), "after step {step}");
            }
            put(&(String::from_utf8(found().to_vec()).unwrap() + "{\"kind\":\"st"));
            let resumed = MetricsLog::resume(
                folder.clone(),
                watch,
                &folder,
                (Step::new(9), Epoch::new(9)),
            );
            let mut resumed = resumed.unwrap();
            resumed.add(&epoch(5, 1), Duration::ZERO);
            resumed.finish().unwrap();
            let text = String::from_utf8(found().to_vec()).unwrap();
            assert_eq!(text.lines().count(), 5);
            assert!(text.starts_with(lock(&log.file.text).as_str()), "{text}");
        }
    }
}
