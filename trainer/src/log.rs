//! `metrics.jsonl`: one JSON object per line, `step` lines every `train.log_every` steps and one `epoch` line after each
//! epoch.
//!
//! Every line carries the time it was written at, in seconds since 1970. Apart from times, rates, shares of time and memory, the file of a run that was killed and resumed equals that of one that
//! never was: on resume, lines written after the checkpoint are cut off, and before a checkpoint is written all its
//! lines are.

use std::time::Duration;

use feedline_schemas::ids::{Epoch, Step};
use feedline_storage::clock::Clock;
use serde::{Deserialize, Serialize};

use crate::{
    error::Error, metrics::Metrics, run_folder::RunFolder, session::Watch,
    track::tensorboard::EventFiles,
};

const PATH: &str = "metrics.jsonl";

/// Time between two writes of the file while no checkpoint asks for one: it is written whole.
const FLUSH_EVERY: Duration = Duration::from_secs(5);

/// One line.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Line {
    /// One step.
    Step {
        /// Steps taken, this one included.
        step: Step,
        /// Epoch in progress.
        epoch: Epoch,
        /// Mean loss of the batch, in units of the stored target.
        loss: f64,
        /// Global norm of its gradient before clipping.
        gradient_norm: f64,
        /// Learning rate of the step.
        learning_rate: f64,
        /// Samples per second since the last line.
        samples_per_s: f64,
        /// Share of that time spent waiting for batches.
        data_wait_share: f64,
        /// Seconds of that time spent on exchanging gradients; absent with one rank.
        #[serde(skip_serializing_if = "Option::is_none")]
        communication_s: Option<f64>,
        /// Bytes the process holds in memory; absent where the system does not tell.
        #[serde(skip_serializing_if = "Option::is_none")]
        memory_bytes: Option<u64>,
    },
    /// One epoch.
    Epoch {
        /// The epoch.
        epoch: Epoch,
        /// Steps taken.
        step: Step,
        /// Mean of the training losses while the weights moved.
        train_loss: f64,
        /// Mean validation loss of the weights after the epoch.
        validation_loss: f64,
        /// Whether it is the lowest so far.
        best: bool,
        /// `validation_<metric>`, in the target's units.
        #[serde(flatten)]
        validation: Metrics,
    },
}

/// A line as it is written.
#[derive(Serialize)]
struct Timed<'a> {
    #[serde(flatten)]
    line: &'a Line,
    unix_s: f64,
}

/// The file, and the event files that follow from it.
#[derive(Debug)]
pub(crate) struct MetricsLog<'a> {
    folder: &'a RunFolder,
    clock: &'a dyn Clock,
    events: EventFiles,
    text: String,
    written: usize,
    written_at: Duration,
}

/// What cutting looks at.
#[derive(Deserialize)]
struct Head {
    kind: String,
    step: Step,
    epoch: Epoch,
}

impl<'a> MetricsLog<'a> {
    /// An empty file; one that is there is replaced at the first write.
    pub(crate) fn new(folder: &'a RunFolder, watch: Watch<'a>) -> Self {
        Self::with(folder, watch, String::new())
    }

    fn with(folder: &'a RunFolder, watch: Watch<'a>, text: String) -> Self {
        Self {
            folder,
            clock: watch.clock,
            events: EventFiles::new(&text),
            text,
            written: 0,
            written_at: watch.clock.monotonic(),
        }
    }

    /// The file as it was after `step` steps with `epoch` in progress.
    ///
    /// # Errors
    /// [`Error::Storage`].
    pub(crate) fn resume(
        folder: &'a RunFolder,
        watch: Watch<'a>,
        step: Step,
        epoch: Epoch,
    ) -> Result<Self, Error> {
        let bytes = folder.get_opt(PATH)?.unwrap_or_default();
        let text = cut(&String::from_utf8_lossy(&bytes), step, epoch);
        Ok(Self::with(folder, watch, text))
    }

    /// Where the file is.
    pub(crate) fn url(&self) -> String {
        self.folder.url_of(PATH)
    }

    /// Adds a line; the file is written now and then.
    ///
    /// # Errors
    /// [`Error::Storage`].
    pub(crate) fn add(&mut self, line: &Line, now: Duration) -> Result<(), Error> {
        let unix_s = self.clock.unix().as_secs_f64();
        let line = serde_json::to_string(&Timed { line, unix_s }).expect("a line has string keys");
        self.text.push_str(&line);
        self.text.push('\n');
        self.events.add(&line);
        if now.saturating_sub(self.written_at) >= FLUSH_EVERY {
            self.flush(now)
        } else {
            Ok(())
        }
    }

    /// Writes all lines, and their events when there are enough of them.
    ///
    /// # Errors
    /// [`Error::Storage`].
    pub(crate) fn flush(&mut self, now: Duration) -> Result<(), Error> {
        if self.written != self.text.len() {
            self.folder.put(PATH, self.text.clone().into_bytes())?;
            self.written = self.text.len();
        }
        self.written_at = now;
        self.events.flush(self.folder)
    }

    /// Writes all lines, and all events of them.
    ///
    /// # Errors
    /// [`Error::Storage`].
    pub(crate) fn finish(&mut self, now: Duration) -> Result<(), Error> {
        self.flush(now)?;
        self.events.finish(self.folder)
    }
}

/// The lines that were there after `step` steps with `epoch` in progress. A line that cannot be read is dropped.
fn cut(text: &str, step: Step, epoch: Epoch) -> String {
    let belongs = |line: &&str| match serde_json::from_str::<Head>(line) {
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
    use super::*;

    fn step_line(step: u64, epoch: u64) -> String {
        let line = Line::Step {
            step: Step::new(step),
            epoch: Epoch::new(epoch),
            loss: 0.5,
            gradient_norm: 1.0,
            learning_rate: 0.1,
            samples_per_s: 10.0,
            data_wait_share: 0.0,
            communication_s: None,
            memory_bytes: Some(7),
        };
        serde_json::to_string(&line).unwrap() + "\n"
    }

    fn epoch(step: u64, epoch: u64) -> Line {
        Line::Epoch {
            epoch: Epoch::new(epoch),
            step: Step::new(step),
            train_loss: 0.5,
            validation_loss: 0.25,
            best: true,
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
}
