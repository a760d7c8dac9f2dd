//! `journal.jsonl` of a search: one line for the search, then one for each trial that has ended, in order.
//!
//! The file is written as a whole and durable after each trial, so a search that was killed resumes
//! after the last line; the trial that was in progress follows from the lines before it and resumes
//! from its own checkpoints.

use std::collections::BTreeMap;

use feedline_schemas::{config::TuneConfig, ids::Hash128};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::judge::History;
use crate::{checkpoint::run_folder::RunFolder, error::Error};

const PATH: &str = "journal.jsonl";
const FORMAT: &str = "feedline.tune";
const VERSION: u32 = 1;

/// Content of the first line.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Head {
    format: String,
    version: u32,
    /// The search, without its number of trials.
    search: TuneConfig,
    /// Name of the run that the configuration without any searched key would make.
    base: String,
}

/// End of a trial.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TrialState {
    /// It took all its epochs, or ran out of patience.
    Finished,
    /// It was hopeless, and ended early.
    Stopped,
    /// Its loss or its gradient was not finite.
    Failed,
}

impl TrialState {
    /// As tables write it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Stopped => "stopped early",
            Self::Failed => "failed",
        }
    }
}

/// A trial that has ended.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Trial {
    /// Its number, from 0.
    pub number: u64,
    /// Name of its run.
    pub run: String,
    /// The searched keys and their values.
    pub values: BTreeMap<String, Value>,
    /// Its end.
    pub state: TrialState,
    /// Epochs measured.
    pub epochs: u64,
    /// The metric of its kept weights on the validation split; absent when it failed before its first epoch.
    pub metric: Option<f64>,
    /// Positions of the values in the space of the search.
    pub(crate) places: Vec<f64>,
    /// The cost after each epoch.
    pub(crate) costs: History,
}

/// The journal.
#[derive(Debug)]
pub(crate) struct Journal {
    folder: RunFolder,
    head: Head,
    pub(crate) trials: Vec<Trial>,
}

impl Head {
    /// The head of the search `config` over a base run.
    pub(crate) fn new(config: &TuneConfig, base: String) -> Self {
        let search = TuneConfig {
            trials: TuneConfig::default().trials,
            ..config.clone()
        };
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            search,
            base,
        }
    }

    /// Name of the search, and of its folder.
    pub(crate) fn name(&self) -> String {
        Hash128::of(&serde_json::to_vec(self).expect("a search has string keys")).short()
    }
}

impl Journal {
    /// Reads the journal in `folder`, or begins one.
    ///
    /// # Errors
    /// [`Error::Damaged`] when its lines are not those of this search in order, [`Error::Storage`].
    pub(crate) fn open(folder: RunFolder, head: Head) -> Result<Self, Error> {
        let bytes = folder.get_opt(PATH)?.unwrap_or_default();
        let damaged = |reason: String| Error::Damaged {
            url: folder.url_of(PATH),
            reason,
        };
        let text = String::from_utf8_lossy(&bytes);
        let mut lines = text.lines();
        if let Some(line) = lines.next() {
            let found: Head = serde_json::from_str(line).map_err(|e| damaged(e.to_string()))?;
            if found != head {
                return Err(damaged("it is of another search or version".to_owned()));
            }
        }
        let mut trials = Vec::new();
        for (number, line) in (0..).zip(lines) {
            let trial: Trial = serde_json::from_str(line).map_err(|e| damaged(e.to_string()))?;
            if trial.number != number {
                return Err(damaged(format!("trial {number} is missing")));
            }
            trials.push(trial);
        }
        Ok(Self {
            folder,
            head,
            trials,
        })
    }

    /// Its folder.
    pub(crate) const fn folder(&self) -> &RunFolder {
        &self.folder
    }

    /// Adds a trial that has ended; it is on disk when this returns.
    ///
    /// # Errors
    /// [`Error::Storage`].
    pub(crate) fn add(&mut self, trial: Trial) -> Result<(), Error> {
        self.trials.push(trial);
        let mut text = serde_json::to_string(&self.head).expect("a search has string keys");
        text.push('\n');
        for trial in &self.trials {
            text += &serde_json::to_string(trial).expect("a trial has string keys");
            text.push('\n');
        }
        self.folder.put(PATH, text.into_bytes())
    }
}

#[cfg(test)]
mod tests {
    use feedline_schemas::config::Bounded;
    use feedline_storage::Store;

    use super::*;
    use crate::checkpoint::run_folder::runtime;

    pub(crate) fn trial(number: u64) -> Trial {
        Trial {
            number,
            run: "aa".into(),
            values: BTreeMap::from([("train.learning_rate".to_owned(), Value::from(0.1))]),
            state: TrialState::Finished,
            epochs: 2,
            metric: Some(0.1 + 0.2),
            places: vec![0.1_f64.ln()],
            costs: History::from([(0, 0.5), (1, 0.1 + 0.2)]),
        }
    }

    #[test]
    fn a_journal_comes_back_bit_for_bit_and_that_of_another_search_is_refused() {
        let runtime = runtime().unwrap();
        let folder = RunFolder::new(runtime.handle().clone(), Store::memory());
        let mut config = TuneConfig::default();
        let open =
            |config: &TuneConfig| Journal::open(folder.clone(), Head::new(config, "b".into()));
        let mut journal = open(&config).unwrap();
        journal.add(trial(0)).unwrap();
        journal.add(trial(1)).unwrap();
        assert_eq!(open(&config).unwrap().trials, journal.trials);
        config.trials = Bounded::literal::<99>();
        assert_eq!(
            open(&config).unwrap().trials.len(),
            2,
            "more trials continue the search"
        );
        config.metric = Some("rmse".into());
        assert!(matches!(open(&config), Err(Error::Damaged { .. })));
    }
}
