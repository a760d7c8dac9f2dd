//! A loaded pipeline, with the contexts of its stages and their errors.

use std::{fs, num::NonZero, path::Path, sync::Arc, thread};

use feedline_preprocess::{Engine, message_with_causes};
use feedline_schemas::{
    Classified as _,
    config::{ConfigError, Loaded, TrainConfig, load},
    ids::Name,
    report::Warning,
};
use feedline_storage::Store;
use serde::Serialize;

use super::{tools::Tools, unset_variables::UnsetVariables};
use crate::{
    cli::{Detail, Options, Pipeline},
    environment::Environment,
    exit::MaskedError,
    init,
    output::{self, Text},
    user_info,
};

/// Minimum number of partitions of queries on a cluster: tasks that its workers share. The result
/// does not depend on it.
const PARTITIONS: usize = 32;

/// A loaded pipeline and the tools to work on it.
#[derive(Debug)]
pub(super) struct PipelineWork<'a> {
    pub(super) loaded: Loaded,
    pub(super) root: Store,
    pub(super) json: bool,
    pub(super) tools: &'a Tools,
    /// Warning of new predictions that the dataset was built with other settings.
    pub(super) changed: Option<Warning>,
}

impl<'a> PipelineWork<'a> {
    pub(super) fn load(pipeline: &Pipeline, tools: &'a Tools) -> anyhow::Result<Self> {
        check_is_pipeline(&pipeline.file)?;
        Self::of_text(&read(&pipeline.file)?, pipeline, tools)
    }

    /// Loads a pipeline whose only source is the data file given instead of a pipeline file.
    pub(super) fn of_table(pipeline: &Pipeline, tools: &'a Tools) -> anyhow::Result<Self> {
        let url = pipeline.file.display().to_string();
        let remedy = "preview a pipeline with the URL without them, and `auth` for its source";
        if let Some(refusal) = user_info::refusal(&url, remedy) {
            anyhow::bail!(refusal);
        }
        // A JSON string is a TOML string too.
        let url = serde_json::to_string(&url)?;
        let text = format!(
            "[pipeline]\nname = \"preview\"\n[[source]]\nname = \"file\"\ntype = \"files\"\nurl = {url}\n"
        );
        Self::of_text(&text, pipeline, tools)
    }

    pub(super) fn of_text(
        text: &str,
        pipeline: &Pipeline,
        tools: &'a Tools,
    ) -> anyhow::Result<Self> {
        let Options { set, json } = &pipeline.options;
        let loaded = load(&pipeline.file.display().to_string(), text, set)?;
        let url = loaded.config.pipeline.root();
        if let Some(fault) = user_info::store_fault(&url) {
            return Err(loaded.error("pipeline.root", fault).into());
        }
        let root = Store::open(&url, &tools.environment.store_options())
            .map_err(|e| loaded.error("pipeline.root", e.to_string()))?;
        let mut work = Self {
            loaded,
            root,
            json: *json,
            tools,
            changed: None,
        };
        let folder = pipeline.file.parent().unwrap_or(Path::new(""));
        let read = feedline_ingest::read_queries(&mut work.loaded.config, folder);
        read.map_err(|error| work.ingest_error(error))?;
        Ok(work)
    }

    /// Prints the report of a run; `next` names the commands that come next.
    pub(super) fn print<R: Serialize + Text>(
        &self,
        report: &R,
        detail: Detail,
        next: Option<String>,
    ) -> anyhow::Result<()> {
        let brief = output::Brief {
            report,
            verbose: detail.verbose,
            next,
        };
        self.tools.print(&brief, self.json)
    }

    /// As [`ingesting`](Self::ingesting), apart from what has landed.
    pub(super) fn inspecting(&self) -> feedline_ingest::Context {
        feedline_ingest::Context {
            root: Store::memory(),
            ..self.ingesting()
        }
    }

    pub(super) fn ingesting(&self) -> feedline_ingest::Context {
        let config = &self.loaded.config;
        feedline_ingest::Context {
            root: self.root.clone(),
            progress: Arc::clone(&self.tools.progress),
            clock: Arc::clone(&self.tools.clock),
            secrets: Arc::clone(&self.tools.environment) as Arc<dyn feedline_ingest::Secrets>,
            hosts: Arc::clone(&self.tools.hosts),
            metrics: Arc::default(),
            formatted_dates: Arc::new(feedline_ingest::FormattedDates::new(config)),
            is_trial: false,
            run_id: self.run_id(),
            delta: config.ingest.as_ref().is_some_and(|ingest| ingest.delta),
            cancel: self.tools.stop.watch.clone(),
            store_options: self.tools.environment.store_options(),
        }
    }

    pub(super) fn preprocessing(&self, engine: Engine) -> feedline_preprocess::Context {
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        feedline_preprocess::Context {
            root: self.root.clone(),
            progress: Arc::clone(&self.tools.progress),
            clock: Arc::clone(&self.tools.clock),
            partitions: if engine.is_local() {
                cores
            } else {
                cores.max(PARTITIONS)
            },
            memory_bytes: Environment::memory_bytes(),
            store_options: self.tools.environment.store_options(),
            decoder: std::env::current_exe().ok(),
            engine,
            scratch: Environment::scratch(),
        }
    }

    pub(super) fn training(&self) -> anyhow::Result<(TrainConfig, feedline_trainer::Context)> {
        let Some(config) = self.loaded.config.train.clone() else {
            let reason = "the pipeline has no `[train]`; add one to train a model";
            return Err(self.loaded.error("train", reason).into());
        };
        let context = feedline_trainer::Context {
            dataset: self.dataset()?,
            runs: self.root.child("train"),
            weights: match &config.init {
                Some(init) => {
                    let (folder, _) = feedline_trainer::weights_file(&init.from);
                    Some(self.tools.open(folder)?)
                }
                None => None,
            },
            progress: Arc::clone(&self.tools.progress),
            clock: Arc::clone(&self.tools.clock),
            stop: Arc::clone(&self.tools.stop.flag),
            group: self.tools.environment.group()?,
        };
        Ok((config, context))
    }

    /// Dataset to train on: the configured one, or the built one.
    pub(super) fn dataset(&self) -> anyhow::Result<Store> {
        let train = self.loaded.config.train.as_ref();
        match train.and_then(|train| train.dataset.as_ref()) {
            Some(url) => self.tools.open(url),
            None => Ok(self.root.child("dataset")),
        }
    }

    pub(super) fn has_sources(&self) -> Result<(), ConfigError> {
        if self.loaded.config.source.is_empty() {
            let reason = "the pipeline has no source; add a `[[source]]`";
            return Err(self.loaded.error("source", reason));
        }
        Ok(())
    }

    /// The source called `text`.
    pub(super) fn source(&self, text: &str) -> Result<Name, ConfigError> {
        let names = self.loaded.config.source.iter().map(|s| &s.name);
        names
            .clone()
            .find(|name| name.as_str() == text)
            .cloned()
            .ok_or_else(|| {
                let known: Vec<&str> = names.map(Name::as_str).collect();
                let reason = format!(
                    "source `{text}` does not exist; the pipeline has: {}",
                    known.join(", ")
                );
                self.loaded.error("source", reason)
            })
    }

    /// The source that an option names; `None` without the option, for all sources.
    pub(super) fn only_source(&self, option: Option<String>) -> Result<Option<Name>, ConfigError> {
        option.map(|text| self.source(&text)).transpose()
    }

    /// Unique among runs on all machines that matter: time in nanoseconds and process.
    pub(super) fn run_id(&self) -> String {
        format!(
            "{:032x}-{:08x}",
            self.tools.clock.unix().as_nanos(),
            std::process::id()
        )
    }

    /// An error of a stage, with the line of the key it is about.
    pub(super) fn ingest_error(&self, error: feedline_ingest::Error) -> anyhow::Error {
        match error {
            feedline_ingest::Error::Config { key, reason } => {
                let is_set = |name: &str| self.tools.environment.is_set(name);
                let unset = UnsetVariables::of(&self.loaded.config, is_set);
                let reason = self.mask(&unset.name_others(&key, reason));
                self.loaded.error(&key, reason).into()
            }
            error => self.mask_error(error),
        }
    }

    /// Masks the secrets of the sources in a message.
    fn mask(&self, message: &str) -> String {
        let secrets = &*self.tools.environment;
        feedline_ingest::mask_message(&self.loaded.config, secrets, message)
    }

    /// Masks the secrets of the sources in an error. Without them it keeps its type.
    fn mask_error(&self, error: feedline_ingest::Error) -> anyhow::Error {
        let message = message_with_causes(&error);
        let masked = self.mask(&message);
        match masked == message {
            true => error.into(),
            false => MaskedError {
                message: masked,
                kind: error.kind(),
            }
            .into(),
        }
    }

    pub(super) fn preprocess_error(&self, error: feedline_preprocess::Error) -> anyhow::Error {
        match error {
            feedline_preprocess::Error::Config { key, reason } => {
                self.loaded.error(&key, reason).into()
            }
            error => error.into(),
        }
    }

    pub(super) fn trainer_error(&self, error: feedline_trainer::Error) -> anyhow::Error {
        match error {
            feedline_trainer::Error::Config { key, reason } => {
                self.loaded.error(&key, reason).into()
            }
            error => error.into(),
        }
    }

    /// Converts an error of several stages.
    pub(super) fn stage_error(&self, error: anyhow::Error) -> anyhow::Error {
        let error = match error.downcast() {
            // The command that uses the model was interrupted, no training.
            Ok(feedline_trainer::Error::Interrupted { .. }) => {
                return anyhow::anyhow!("interrupted; rerun the same command");
            }
            Ok(error) => return self.trainer_error(error),
            Err(error) => error,
        };
        match error.downcast() {
            Ok(error) => self.preprocess_error(error),
            Err(error) => error,
        }
    }
}

/// Refuses a folder and a file of data where a pipeline file is expected.
fn check_is_pipeline(file: &Path) -> Result<(), ConfigError> {
    let shown = file.display();
    let reason = match (file.is_dir(), init::is_data_file(&shown.to_string())) {
        (true, _) => "it is a folder",
        (false, true) if file.is_file() => "it is a file of data",
        _ => return Ok(()),
    };
    Err(ConfigError {
        file: shown.to_string(),
        line: None,
        key: String::new(),
        reason: format!(
            "{reason}, and this command reads a pipeline file (TOML); `feedline init {}` writes one for it",
            output::shell_word(&shown.to_string())
        ),
    })
}

fn read(file: &Path) -> Result<String, ConfigError> {
    fs::read_to_string(file).map_err(|e| ConfigError {
        file: file.display().to_string(),
        line: None,
        key: String::new(),
        reason: format!("cannot read the pipeline file: {e}; check the path"),
    })
}
