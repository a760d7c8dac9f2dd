//! Searches the keys of `[train]` for the best validation metric.
//!
//! A trial is an ordinary run in the folder of runs. The values of a trial follow from the search's
//! seed and from the trials before it, and the journal holds those that have ended; so a search
//! that was killed resumes there and ends with the same journal as one that never was. Trials open
//! the training and the validation split only: the test split is read once, when the search has
//! ended, for the best of them.

mod journal;
mod judge;
mod measured;
mod report;
mod space;
mod suggest;

use std::{collections::BTreeMap, sync::Arc};

use feedline_schemas::{
    config::{TrainConfig, TuneConfig, TuneStrategy},
    manifest::Split,
    progress::Event,
    report::TrainReport,
};
use feedline_storage::Store;
use serde::Serialize;
use serde_json::Value;

pub use self::journal::{Trial, TrialState};
use self::{
    journal::{Head, Journal},
    measured::{MetricJudge, cost},
    space::{Parameter, ValueRange},
    suggest::Tried,
};
use crate::{
    Context, Resume,
    checkpoint::run_folder::RunFolder,
    config::settings,
    error::Error,
    evaluation::baseline::of_any_target,
    reporting::{
        links::relative,
        status::{Judge, Tracker},
    },
    session::{
        opened_dataset::OpenedDataset,
        train::{train, train_opened},
    },
};

/// Makes the configuration of a trial from the searched keys and their values; an error is a key
/// and a reason.
pub type Make<'a> = dyn Fn(&[(String, Value)]) -> Result<TrainConfig, (String, String)> + 'a;

/// Writes the section `[train]` for the searched keys and their values, as it goes into the pipeline.
pub type WriteSection<'a> = dyn Fn(&BTreeMap<String, Value>) -> String + 'a;

/// Result of a search.
#[derive(Clone, Debug, Serialize)]
pub struct TuneReport {
    /// The metric of the validation split that was compared.
    pub metric: String,
    /// All trials in order.
    pub trials: Vec<Trial>,
    /// Number of the best one.
    pub best: u64,
    /// Section `[train]` for it, as it goes into the pipeline.
    pub toml: String,
    /// Its training, measured on the test split.
    pub train: TrainReport,
    /// The search's page.
    pub report: String,
}

/// Runs a search, or resumes it. `make` makes the configuration of a trial, with nothing to change
/// that of the base; `section` writes the values of the best one; `folder` holds one folder per search.
///
/// ```no_run
/// use std::collections::BTreeMap;
///
/// use feedline_schemas::config::{Override, TrainConfig, load};
/// use feedline_storage::Store;
/// use feedline_trainer::{Context, tune::tune};
///
/// # fn example(
/// #     text: &str, searches: &Store, context: &Context,
/// # ) -> Result<(), Box<dyn std::error::Error>> {
/// // `text` is a pipeline with `[tune]`; a trial overrides keys of `[train]`.
/// let pipeline = load("houses.toml", text, &[])?;
/// let make = |values: &[(String, serde_json::Value)]| -> Result<TrainConfig, (String, String)> {
///     let set = |(key, value): &(String, serde_json::Value)| {
///         Override { key: key.clone(), value: value.to_string() }
///     };
///     let overrides: Vec<Override> = values.iter().map(set).collect();
///     let trial = pipeline.again(&overrides).map_err(|error| (error.key, error.reason))?;
///     Ok(trial.config.train.unwrap_or_default())
/// };
/// # let config = pipeline.config.tune.clone().unwrap_or_default();
/// let section = |values: &BTreeMap<String, serde_json::Value>| {
///     let lines = values.iter().map(|(key, value)| format!("{key} = {value}\n"));
///     lines.collect::<String>()
/// };
/// let report = tune(&config, &make, &section, searches, context)?;
/// println!("trial {} of {} is the best", report.best, report.trials.len());
/// # Ok(()) }
/// ```
///
/// # Errors
/// [`Error::Config`] when the search or one of its values cannot be used; [`Error::Interrupted`] when the stop flag was
/// set, with everything saved; [`Error::NoTrial`] when no trial finished; errors of dataset and
/// storage.
pub fn tune(
    config: &TuneConfig,
    make: &Make<'_>,
    section: &WriteSection<'_>,
    folder: &Store,
    context: &Context,
) -> Result<TuneReport, Error> {
    if context.group.place().world > 1 {
        return Err(Error::Config {
            key: "tune".to_owned(),
            reason:
                "a search trains in one process; start it without `torchrun` or several Slurm tasks"
                    .to_owned(),
        });
    }
    let parameters = space::space(config)?;
    check_values(&parameters, make)?;
    let base = made(&parameters, make, &[])?;
    let metric = metric(config, &parameters)?;
    let opened = OpenedDataset::open(&base, context, &SPLITS)?;
    let metric = metric.unwrap_or_else(|| opened.plan.task.main_metric().to_owned());
    let config = &TuneConfig {
        metric: Some(metric.clone()),
        ..config.clone()
    };
    let head = Head::new(config, opened.name());
    let folder = folder.child(&head.name());
    let folder = RunFolder::new(opened.runtime.handle().clone(), folder);
    let mut search = TuneSearch {
        config,
        metric,
        parameters,
        make,
        context,
        journal: Journal::open(folder, head)?,
    };
    let trials = match config.strategy {
        TuneStrategy::Grid => space::combinations(&search.parameters),
        TuneStrategy::Random | TuneStrategy::Tpe => u64::from(config.trials.get()),
    };
    for number in search.journal.trials.len() as u64..trials {
        search.tell(number, trials);
        let trial = search.trial(number)?;
        search.journal.add(trial)?;
    }
    search.tell(trials, trials);
    search.finish(section)
}

/// Checks `[tune]` without a dataset: every listed value, and both ends of each range, must make a configuration that can be
/// used. `make` is that of [`tune`].
///
/// # Errors
/// [`Error::Config`] that names the key.
pub fn check(config: &TuneConfig, make: &Make<'_>) -> Result<(), Error> {
    let parameters = space::space(config)?;
    metric(config, &parameters)?;
    check_values(&parameters, make)
}

/// Sections whose keys change what the loss is.
const LOSS: &str = "train.loss";

/// The metric that is compared; `None` for the main one of the dataset's task, where losses of trials do not compare.
///
/// # Errors
/// [`Error::Config`] where losses of different kinds are to be compared.
fn metric(config: &TuneConfig, parameters: &[Parameter]) -> Result<Option<String>, Error> {
    let is_of_loss = |key: &str| {
        key.strip_prefix(LOSS)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let of_loss = parameters
        .iter()
        .find(|parameter| is_of_loss(&parameter.key));
    match (config.metric.as_deref(), of_loss) {
        (Some("loss"), Some(parameter)) => {
            let reason = format!(
                "losses do not compare where `{}` is searched: trials would be ranked by the scale of their loss; compare `rmse`, \
                 `mae` or `r2` of numbers, `cross_entropy`, `accuracy`, `f1_macro` or `auc` of classes, or leave it out",
                parameter.key
            );
            Err(Error::Config {
                key: "tune.metric".to_owned(),
                reason,
            })
        }
        (Some(metric), _) if of_any_target(metric) == "coverage" => Err(Error::Config {
            key: "tune.metric".to_owned(),
            reason: "the lowest or highest `coverage` is not the best: it should be close to the quantile; compare `pinball`"
                .to_owned(),
        }),
        (Some(metric), _) => Ok(Some(metric.to_owned())),
        (None, None) => Ok(Some("loss".to_owned())),
        (None, Some(_)) => Ok(None),
    }
}

/// The splits that trials may read.
const SPLITS: [Split; 2] = [Split::Train, Split::Validation];

/// Every value at the ends and in the lists must make a configuration that can be used, before hours are spent on others.
fn check_values(parameters: &[Parameter], make: &Make<'_>) -> Result<(), Error> {
    // What is wrong without a searched value is no fault of one.
    settings::check(&made(parameters, make, &[])?)?;
    for (index, parameter) in parameters.iter().enumerate() {
        let places = match &parameter.values {
            ValueRange::Listed(_) => parameter.values.grid(),
            ValueRange::Between { .. } => Vec::from(<[f64; 2]>::from(parameter.values.span())),
        };
        for place in places {
            let value = parameter.values.value(place);
            let tried = [(parameter.key.clone(), value.clone())];
            let config = make(&tried[..]).map_err(|(key, reason)| Error::Config { key, reason });
            let checked = config.and_then(|config| settings::check(&config));
            checked.map_err(|error| refused_value(error, index, &parameter.key, &value))?;
        }
    }
    Ok(())
}

/// The error of a configuration with `value` for `searched`, as one of the parameter at `index`.
fn refused_value(error: Error, index: usize, searched: &str, value: &Value) -> Error {
    let (key, reason) = match error {
        Error::Config { key, reason } => (key, reason),
        error => return error,
    };
    let at = match key == searched {
        true => String::new(),
        false => format!("`{key}`: "),
    };
    Error::Config {
        key: format!("tune.parameter.{index}.key"),
        reason: format!("`{searched}` cannot be `{value}`: {at}{reason}"),
    }
}

/// A configuration, or an error that names the parameter of the key.
fn made(
    parameters: &[Parameter],
    make: &Make<'_>,
    values: &[(String, Value)],
) -> Result<TrainConfig, Error> {
    make(values).map_err(|(key, reason)| {
        let of = parameters.iter().position(|p| p.key == key);
        let of = of.or_else(|| parameters.iter().position(|p| p.key.starts_with(&key)));
        match of {
            Some(i) => Error::Config {
                key: format!("tune.parameter.{i}.key"),
                reason: format!("`{}`: {reason}", parameters[i].key),
            },
            None => Error::Config { key, reason },
        }
    })
}

struct TuneSearch<'a> {
    config: &'a TuneConfig,
    /// The metric of the validation split that is compared.
    metric: String,
    parameters: Vec<Parameter>,
    make: &'a Make<'a>,
    context: &'a Context,
    journal: Journal,
}

impl TuneSearch<'_> {
    fn trial(&self, number: u64) -> Result<Trial, Error> {
        let earlier = self.journal.trials.iter().map(|trial| Tried {
            places: &trial.places,
            cost: trial
                .metric
                .map_or(f64::INFINITY, |m| cost(&self.metric, m)),
        });
        let earlier: Vec<Tried<'_>> = earlier.collect();
        let places = suggest::suggest(self.config, &self.parameters, number, &earlier);
        let values = self.values(&places);
        let config = made(&self.parameters, self.make, &values)?;
        let opened = OpenedDataset::open(&config, self.context, &SPLITS)?;
        let others = self.journal.trials.iter().map(|t| t.costs.clone());
        let judge = Arc::new(MetricJudge::new(
            (&self.metric, self.config.early_stop),
            others.collect(),
            &opened.folder,
        )?);
        let state = self.run(&opened, &judge)?;
        let seen = judge.seen();
        if seen.costs.is_empty() && !seen.names.is_empty() {
            let reason = format!(
                "the validation split has no `{}`; it has: loss, {}",
                self.metric,
                seen.names.join(", ")
            );
            return Err(Error::Config {
                key: "tune.metric".to_owned(),
                reason,
            });
        }
        Ok(Trial {
            number,
            run: opened.name(),
            values: values.into_iter().collect(),
            state,
            epochs: seen.costs.len() as u64,
            metric: seen.kept(&self.metric),
            places,
            costs: seen.costs,
        })
    }

    /// Trains, unless the epochs of an earlier process already say that the trial is hopeless.
    fn run(&self, opened: &OpenedDataset, judge: &Arc<MetricJudge>) -> Result<TrialState, Error> {
        if judge.cut_where_hopeless() {
            return Ok(TrialState::Stopped);
        }
        let tracker = Arc::new(Tracker::judged(Arc::clone(judge) as Arc<dyn Judge>));
        match train_opened(opened, None, Resume::Continue, self.context, &tracker) {
            Ok(_) | Err(Error::Interrupted { .. }) if tracker.hopeless() => Ok(TrialState::Stopped),
            Ok(_) => Ok(TrialState::Finished),
            Err(
                Error::NotFinite { .. }
                | Error::LossNotFinite { .. }
                | Error::TooManySkipped { .. }
                | Error::NoUpdate { .. }
                | Error::OnlySkipped { .. }
                | Error::Diverged { .. },
            ) => Ok(TrialState::Failed),
            Err(error) => Err(error),
        }
    }

    fn values(&self, places: &[f64]) -> Vec<(String, Value)> {
        let of = |(parameter, place): (&Parameter, &f64)| {
            (parameter.key.clone(), parameter.values.value(*place))
        };
        self.parameters.iter().zip(places).map(of).collect()
    }

    /// The best trial that finished; the first of equal ones.
    fn best(&self) -> Option<&Trial> {
        let finished = self
            .journal
            .trials
            .iter()
            .filter(|t| t.state == TrialState::Finished);
        finished
            .filter_map(|trial| Some((cost(&self.metric, trial.metric?), trial)))
            .min_by(|a, b| a.0.total_cmp(&b.0))
            .map(|(_, trial)| trial)
    }

    fn tell(&self, done: u64, total: u64) {
        let best = self
            .best()
            .and_then(|trial| Some((trial.number, trial.metric?)));
        let note = best.map_or_else(String::new, |(number, metric)| {
            format!("best {metric:.5} in trial {number}")
        });
        self.context.progress.report(Event {
            stage: "tune",
            done,
            total: Some(total),
            unit: "trials",
            note: &note,
        });
    }

    /// Measures the best trial on the test split, and writes the page.
    fn finish(self, section: &WriteSection<'_>) -> Result<TuneReport, Error> {
        let folder = self.journal.folder();
        let best = self.best().ok_or_else(|| Error::NoTrial {
            url: folder.url(),
            trials: self.journal.trials.len(),
        })?;
        let values: Vec<_> = best.values.clone().into_iter().collect();
        let config = made(&self.parameters, self.make, &values)?;
        let train = train(&config, Resume::Continue, self.context)?;
        let toml = section(&best.values);
        let path = report::PATH;
        let runs = &self.context.runs;
        let link = |path: &str| relative(&folder.url(), &runs.url_of(path));
        let page = report::SearchPage {
            metric: &self.metric,
            parameters: &self.parameters,
            trials: &self.journal.trials,
            best,
            train: &train,
            toml: &toml,
            link: &link,
        };
        let page = page.html();
        folder.put(path, page.into_bytes())?;
        Ok(TuneReport {
            metric: self.metric.clone(),
            best: best.number,
            toml,
            train,
            report: folder.url_of(path),
            trials: self.journal.trials,
        })
    }
}
