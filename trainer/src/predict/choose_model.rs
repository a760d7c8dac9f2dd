//! Models that runs have kept: the choice of one, and the datasets that it fits.
//!
//! A model reads the features that one transform makes. It is used on shards only where they were
//! made by an equal transform, from columns of the same meaning, whatever rows it was fitted on.
//! New rows are transformed by the run's own transform, which each run keeps. Classes are matched
//! by name.

mod dataset;
mod fitting;
mod model;
mod weights;

use std::{collections::BTreeMap, sync::Arc};

use feedline_schemas::{
    config::{LoaderSettings, ModelKind, TrainConfig},
    ids::Hash128,
    manifest::{Layout, Manifest, Split},
    report::{ChosenBy, DatasetRelation, UsedRun, Warning},
    run::{RunRecord, RunState},
    transform::TransformArtefact,
};
use feedline_storage::Store;

pub(crate) use self::{
    dataset::Dataset,
    model::KeptModel,
    weights::{earlier_weights, read_kept_weights},
};
use crate::{
    Context,
    checkpoint::{BEST_PATH, run_folder::runtime},
    config::settings::{self, TrainSettings},
    data::{images, loaders::settled, task::Task},
    error::Error,
    model::{init::Weights, models},
    reporting::{runs, settings_of::differing_values},
};

/// Runs that an error names.
const NAMED: usize = 5;

/// The run whose model is used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// The run of the configuration and dataset; where there is none, the newest finished run that fits the dataset.
    #[default]
    Fitting,
    /// By the beginning of its name, or as `newest` or `best`: of the finished runs that fit the dataset the one that was
    /// started last, or the one with the lowest validation loss.
    Named(String),
}

/// Data that a model is used on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Rows of the dataset, as its shards hold them.
    Shards,
    /// New rows, to which the run's own transform is applied.
    NewRows,
    /// New rows that are prepared by the settings of the dataset, as images and rows of a series are.
    PreparedRows,
    /// None: only its weights are of interest.
    Weights,
}

impl Use {
    /// Advice for a run whose model does not fit the dataset; `None` where it need not fit.
    const fn advice(self) -> Option<&'static str> {
        match self {
            Self::Shards => Some(
                "`feedline predict --run` applies the run's own transform to raw rows of a table",
            ),
            Self::PreparedRows => Some(
                "rows of a series, and images, are prepared by the settings of the dataset: build the dataset with those that \
                 the run was trained with (`feedline shards build`), or choose a run that fits; models that are used side by \
                 side, such as one for each horizon, need a pipeline of their own each, with another `pipeline.name`",
            ),
            Self::NewRows | Self::Weights => None,
        }
    }
}

/// A run that was chosen.
#[derive(Clone, Debug)]
pub struct ChosenRun {
    used: UsedRun,
    /// Its configuration.
    config: TrainConfig,
    /// Fingerprint of the dataset that it was trained on.
    fingerprint: Hash128,
    /// Layout of that dataset's shards.
    layout: Layout,
    /// Transform of that dataset.
    transform: Arc<TransformArtefact>,
    /// Fingerprint of the dataset that it was chosen for.
    chosen_for: Option<Hash128>,
    /// Hash of the settings that decide the meaning of that dataset's columns, where it is known.
    columns_hash: Option<Hash128>,
}

impl ChosenRun {
    /// Its name, how it was chosen, and what it was trained on.
    #[must_use]
    pub const fn used(&self) -> &UsedRun {
        &self.used
    }

    /// The transform that its model's features are made by.
    #[must_use]
    pub fn transform(&self) -> &TransformArtefact {
        &self.transform
    }

    /// Returns whether its model gives the features back rather than predicting a target.
    #[must_use]
    pub fn reconstructs(&self) -> bool {
        self.config.model.r#type == ModelKind::Autoencoder
    }

    /// Returns whether the columns of the dataset of `manifest` were made by the settings that those of its dataset were made by,
    /// as far as is known.
    #[must_use]
    pub fn has_columns_of(&self, manifest: &Manifest) -> bool {
        let hashes = self.columns_hash.zip(manifest.columns_hash);
        hashes.is_none_or(|(own, other)| own == other)
    }

    /// Its configuration.
    pub(crate) const fn config(&self) -> &TrainConfig {
        &self.config
    }
}

/// Chooses the run whose model is used. `config` is that of the pipeline. Blocks.
///
/// # Errors
/// [`Error::NoCheckpoint`] when nothing was trained yet; [`Error::NoFittingRun`] when no run fits the dataset;
/// [`Error::NoRun`] for a name that is none; [`Error::UnfitRun`] for a named run that does not fit;
/// [`Error::Config`], and what dataset and storage say.
pub fn choose(
    config: &TrainConfig,
    choice: &Choice,
    used_on: Use,
    context: &Context,
) -> Result<ChosenRun, Error> {
    settings::check(config)?;
    runtime()?.block_on(chosen(config, choice, used_on, context))
}

async fn chosen(
    config: &TrainConfig,
    choice: &Choice,
    used_on: Use,
    context: &Context,
) -> Result<ChosenRun, Error> {
    let dataset = match (Dataset::read(context).await, choice, used_on) {
        (Ok(dataset), _, _) => Some(dataset),
        // The weights of a named run need no dataset.
        (Err(error), Choice::Named(_), Use::Weights) => {
            tracing::debug!(%error, "the dataset cannot be read");
            None
        }
        (Err(error), _, _) => return Err(error),
    };
    let own = match &dataset {
        Some(dataset) => match (Own::of(config, dataset, context).await, choice) {
            (Ok(own), _) => Some(own),
            (Err(_), Choice::Named(_)) => None,
            (Err(error), Choice::Fitting) => return Err(error),
        },
        None => None,
    };
    let chooser = Chooser {
        config,
        context,
        used_on,
        dataset,
        own,
        records: runs::records(&context.runs).await?,
        now_ms: crate::reporting::timestamp::now_ms(&*context.clock),
    };
    match choice {
        Choice::Fitting => chooser.fitting().await,
        Choice::Named(name) => chooser.named(name).await,
    }
}

/// The run that the configuration and the dataset name.
struct Own {
    name: String,
    settings: TrainSettings,
}

impl Own {
    async fn of(config: &TrainConfig, dataset: &Dataset, context: &Context) -> Result<Self, Error> {
        let config = &settled(config, &context.dataset).await?;
        let (layout, kind) = (&dataset.manifest.layout, config.model.r#type);
        let task = Task::of(kind, layout, &dataset.artefact);
        let task = task.map_err(|reason| Error::Dataset {
            url: dataset.url.clone(),
            reason,
        })?;
        let config = &images::of_layout(config, layout);
        let settings = TrainSettings::resolve(config, &task)?;
        let weights = match &config.init {
            Some(init) => Some(Weights::read(init, context).await?),
            None => None,
        };
        let (statistics, _) = images::statistics(config, &dataset.artefact, weights.as_ref())?;
        let settings = settings.normalising(statistics);
        let init = weights.map(|weights| weights.hash);
        Ok(Self {
            name: settings.run_name(dataset.manifest.fingerprint, init),
            settings,
        })
    }
}

struct Chooser<'a> {
    config: &'a TrainConfig,
    context: &'a Context,
    used_on: Use,
    dataset: Option<Dataset>,
    own: Option<Own>,
    /// All runs, newest first.
    records: Vec<RunRecord>,
    now_ms: u64,
}

impl Chooser<'_> {
    async fn fitting(&self) -> Result<ChosenRun, Error> {
        let (Some(own), Some(dataset)) = (&self.own, &self.dataset) else {
            return Err(self.no_run("newest", "the dataset cannot be read".to_owned()));
        };
        if has_weights(&self.context.runs, &own.name).await? {
            return Ok(self.own_run(own, dataset));
        }
        let mut reasons = Vec::new();
        for record in &self.records {
            match self.candidate(record).await? {
                Ok(()) => return self.of_record(record, ChosenBy::Default).await,
                Err(reason) => reasons.push(format!("`{}`: {reason}", record.name)),
            }
        }
        if reasons.is_empty() {
            let url = self.context.runs.child(&own.name).url();
            return Err(Error::NoCheckpoint { url });
        }
        Err(self.none_fits(dataset, &reasons))
    }

    async fn named(&self, name: &str) -> Result<ChosenRun, Error> {
        let by = match name {
            runs::NEWEST => ChosenBy::Newest,
            runs::BEST => ChosenBy::Best,
            _ => {
                let record = runs::find(&self.records, name, &self.context.runs)?;
                return self.of_record(record, ChosenBy::Name).await;
            }
        };
        let (mut fit, mut reasons) = (Vec::new(), Vec::new());
        for record in &self.records {
            match self.candidate(record).await? {
                Ok(()) => fit.push(record),
                Err(reason) => reasons.push(format!("`{}`: {reason}", record.name)),
            }
        }
        if fit.is_empty() {
            return Err(match &self.dataset {
                Some(dataset) if !reasons.is_empty() => self.none_fits(dataset, &reasons),
                _ => self.no_run(name, "no run has finished".to_owned()),
            });
        }
        let found = match by {
            ChosenBy::Best => runs::best(&fit).map_err(|reason| self.no_run(name, reason))?,
            _ => fit[0],
        };
        let mut chosen = self.of_record(found, by).await?;
        let validation = |record: &RunRecord| record.splits.get(&Split::Validation).copied();
        if by == ChosenBy::Best && fit.iter().any(|r| validation(r) != validation(found)) {
            chosen.used.warnings.push(Warning::new(
                "unlike_validation_sets",
                "the validation losses that `best` compares are of different validation sets; name a run with `--run` to choose \
                 by other figures",
            ));
        }
        Ok(chosen)
    }

    fn no_run(&self, name: &str, reason: String) -> Error {
        Error::NoRun {
            name: name.to_owned(),
            url: self.context.runs.url(),
            reason,
        }
    }

    fn none_fits(&self, dataset: &Dataset, reasons: &[String]) -> Error {
        let more = match reasons.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!("; and {more} older ones"),
        };
        let first: Vec<&str> = reasons.iter().take(NAMED).map(String::as_str).collect();
        Error::NoFittingRun {
            url: self.context.runs.url(),
            dataset: dataset.url.clone(),
            reasons: first.join("; ") + &more,
            otherwise: match self.used_on.advice() {
                // A run that is named must fit, too.
                Some(advice) => format!("; {advice}"),
                None => ", or name a run with `--run`".to_owned(),
            },
        }
    }

    /// The state of a run, as `runs list` shows it.
    fn state_of(&self, record: &RunRecord) -> RunState {
        runs::state_of(record, &self.context.runs.child(&record.name), self.now_ms)
    }

    /// Checks that a run has finished and fits the dataset, if there is one; gives the reason if not.
    async fn candidate(&self, record: &RunRecord) -> Result<Result<(), String>, Error> {
        let state = self.state_of(record);
        if state != RunState::Finished {
            return Ok(Err(format!("it is {}", state.as_str())));
        }
        match &self.dataset {
            Some(dataset) => fitting::fits(record, dataset, &self.context.runs).await,
            None => Ok(Ok(())),
        }
    }

    /// The run of the configuration and dataset.
    fn own_run(&self, own: &Own, dataset: &Dataset) -> ChosenRun {
        let record = self.records.iter().find(|record| record.name == own.name);
        let train = dataset.manifest.split(Split::Train);
        let state = record.map(|record| self.state_of(record));
        let url = record.map_or(&dataset.url, |record| &record.dataset);
        ChosenRun {
            used: UsedRun {
                name: own.name.clone(),
                chosen: ChosenBy::Configuration,
                dataset: url.clone(),
                fingerprint: dataset.manifest.fingerprint.to_string(),
                rows: train.map(|split| split.rows),
                relation: Some(DatasetRelation::Same),
                differs: BTreeMap::new(),
                unfinished: state.filter(|state| *state != RunState::Finished),
                warnings: Vec::new(),
            },
            config: own.settings.config().clone(),
            fingerprint: dataset.manifest.fingerprint,
            layout: dataset.manifest.layout.clone(),
            transform: Arc::new(dataset.artefact.clone()),
            chosen_for: Some(dataset.manifest.fingerprint),
            columns_hash: dataset.manifest.columns_hash,
        }
    }

    /// The run of a record, checked for what it is used on.
    async fn of_record(&self, record: &RunRecord, chosen: ChosenBy) -> Result<ChosenRun, Error> {
        let runs = &self.context.runs;
        let unfit = |reason| Error::UnfitRun {
            run: record.name.clone(),
            dataset: self.context.dataset.url(),
            reason,
        };
        if let (Some(advice), Some(dataset)) = (self.used_on.advice(), &self.dataset) {
            let fits = fitting::fits(record, dataset, runs).await?;
            fits.map_err(|reason| unfit(format!("{reason}; {advice}")))?;
        }
        let its_own = self.dataset.as_ref();
        let its_own = its_own.filter(|d| d.manifest.fingerprint == record.fingerprint);
        let same_transform = |d: &&Dataset| record.transform == Some(d.artefact.hash);
        let transform = match fitting::kept_transform(record, runs).await? {
            Some(transform) => transform,
            None => match its_own.or(self.dataset.as_ref().filter(same_transform)) {
                Some(dataset) => dataset.artefact.clone(),
                None => return Err(unfit(fitting::OLD.to_owned())),
            },
        };
        let layout = record.layout.clone();
        let layout = layout.or_else(|| its_own.map(|d| d.manifest.layout.clone()));
        let layout = layout.ok_or_else(|| unfit(fitting::OLD.to_owned()))?;
        let state = self.state_of(record);
        let mut used = UsedRun {
            name: record.name.clone(),
            chosen,
            dataset: record.dataset.clone(),
            fingerprint: record.fingerprint.to_string(),
            rows: record.splits.get(&Split::Train).map(|split| split.rows),
            relation: self.dataset.as_ref().map(|d| relation(record, &d.manifest)),
            differs: self.differences(record, &layout, &transform),
            unfinished: Some(state).filter(|state| *state != RunState::Finished),
            warnings: Vec::new(),
        };
        if self.used_on == Use::Shards && used.relation == Some(DatasetRelation::Other) {
            used.warnings.push(Warning::new(
                "rows_may_have_been_trained_on",
                "the run was trained on another dataset: rows that are measured may be among those that it was trained on; \
                 `--run` chooses another run",
            ));
        }
        Ok(ChosenRun {
            used,
            config: self.config_of(record),
            fingerprint: record.fingerprint,
            layout,
            transform: Arc::new(transform),
            chosen_for: self.dataset.as_ref().map(|d| d.manifest.fingerprint),
            columns_hash: record.columns_hash,
        })
    }

    /// The configuration of a run, on this machine.
    fn config_of(&self, record: &RunRecord) -> TrainConfig {
        TrainConfig {
            dataset: self.config.dataset.clone(),
            device: self.config.device,
            loader: LoaderSettings {
                // Of a model that reads no tokens it had no meaning.
                pack: record
                    .config
                    .loader
                    .pack
                    .filter(|_| models::reads_tokens(&record.config.model)),
                ..self.config.loader.clone()
            },
            // The run's weights have passed them by.
            init: None,
            ..record.config.clone()
        }
    }

    /// Keys that have a part in the name of a run and whose values there are others, with these.
    fn differences(
        &self,
        record: &RunRecord,
        layout: &Layout,
        transform: &TransformArtefact,
    ) -> BTreeMap<String, String> {
        let Some(own) = &self.own else {
            return BTreeMap::new();
        };
        let task = Task::of(record.config.model.r#type, layout, transform);
        let resolved = task
            .ok()
            .map(|task| TrainSettings::resolve(&record.config, &task));
        let Some(Ok(settings)) = resolved else {
            return BTreeMap::new();
        };
        let (own, its) = (own.settings.named_config(), settings.named_config());
        differing_values(&own, &its, &record.config)
    }
}

/// Returns whether a run has written weights.
async fn has_weights(runs: &Store, name: &str) -> Result<bool, Error> {
    let listed = runs.child(name).list("").await?;
    let is_weights = |path: &str| path == BEST_PATH || path.starts_with("checkpoints/");
    Ok(listed.iter().any(|file| is_weights(&file.path)))
}

/// The dataset of a run beside another.
fn relation(record: &RunRecord, manifest: &Manifest) -> DatasetRelation {
    let continues = |split| {
        let content = record.splits.get(&split);
        content.is_some_and(|content| manifest.split_continues(split, *content))
    };
    match record.fingerprint == manifest.fingerprint {
        true => DatasetRelation::Same,
        false if Split::ALL.into_iter().all(continues) => DatasetRelation::Grown,
        false => DatasetRelation::Other,
    }
}

/// Checks that the dataset is still the one that a run was chosen for.
///
/// # Errors
/// [`Error::Dataset`].
pub(crate) fn check_unchanged(chosen: &ChosenRun, dataset: &Dataset) -> Result<(), Error> {
    match chosen.chosen_for == Some(dataset.manifest.fingerprint) {
        true => Ok(()),
        false => Err(Error::Dataset {
            url: dataset.url.clone(),
            reason: "it was built again while a run was chosen for it; start again".to_owned(),
        }),
    }
}
