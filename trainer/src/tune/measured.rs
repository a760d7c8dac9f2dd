//! Measurements of a trial, by this process or an earlier one.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use feedline_schemas::config::TuneStop;
use serde::Deserialize;
use serde_json::Value;

use super::judge::{self, History};
use crate::{
    checkpoint::run_folder::RunFolder,
    error::Error,
    evaluation::{baseline::is_higher_better, metrics::Metrics},
    reporting::{metrics_log, status::Judge},
};

/// Cost to minimize.
pub(super) fn cost(metric: &str, value: f64) -> f64 {
    if is_higher_better(metric) {
        -value
    } else {
        value
    }
}

/// Measurements of a trial.
#[derive(Clone, Debug, Default)]
pub(super) struct TrialMeasurements {
    /// Costs to minimize, by epoch.
    pub(super) costs: History,
    losses: History,
    /// Names of the metrics there are.
    pub(super) names: Vec<String>,
}

impl TrialMeasurements {
    fn add(&mut self, metric: &str, epoch: u64, loss: f64, validation: &Metrics) {
        let named = |name: &String| name.strip_prefix("validation_").unwrap_or(name).to_owned();
        self.names = validation.keys().map(named).collect();
        let value = match metric {
            "loss" => Some(loss),
            metric => validation.get(&format!("validation_{metric}")).copied(),
        };
        if let Some(value) = value {
            self.losses.insert(epoch, loss);
            self.costs.insert(epoch, cost(metric, value));
        }
    }

    /// The metric of the weights that are kept: those with the lowest loss, the first of equal ones.
    pub(super) fn kept(&self, metric: &str) -> Option<f64> {
        let (epoch, _) = self.losses.iter().min_by(|a, b| a.1.total_cmp(b.1))?;
        self.costs.get(epoch).map(|value| cost(metric, *value))
    }
}

/// Measurements of the same trial by an earlier process.
fn measured(folder: &RunFolder, metric: &str) -> Result<TrialMeasurements, Error> {
    #[derive(Deserialize)]
    struct MeasuredLine {
        kind: String,
        epoch: u64,
        validation_loss: f64,
        #[serde(flatten)]
        rest: BTreeMap<String, Value>,
    }
    let lines = folder.get_opt(metrics_log::PATH)?.unwrap_or_default();
    let mut seen = TrialMeasurements::default();
    for line in String::from_utf8_lossy(&lines).lines() {
        let Ok(line) = serde_json::from_str::<MeasuredLine>(line) else {
            continue;
        };
        if line.kind == "epoch" {
            let number = |(name, value): (String, Value)| Some((name, value.as_f64()?));
            let validation = line.rest.into_iter().filter_map(number);
            let validation = validation.filter(|(name, _)| name.starts_with("validation_"));
            seen.add(
                metric,
                line.epoch,
                line.validation_loss,
                &validation.collect(),
            );
        }
    }
    Ok(seen)
}

/// Judges a trial by the metric of the search.
#[derive(Debug)]
pub(super) struct MetricJudge {
    metric: String,
    rule: TuneStop,
    earlier: Vec<History>,
    seen: Mutex<TrialMeasurements>,
}

impl MetricJudge {
    /// One of the trial whose run has this folder, after earlier trials that went like this.
    ///
    /// # Errors
    /// [`Error::Storage`].
    pub(super) fn new(
        (metric, rule): (&str, TuneStop),
        earlier: Vec<History>,
        folder: &RunFolder,
    ) -> Result<Self, Error> {
        Ok(Self {
            metric: metric.to_owned(),
            rule,
            earlier,
            seen: Mutex::new(measured(folder, metric)?),
        })
    }

    pub(super) fn seen(&self) -> TrialMeasurements {
        self.seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Forgets what was measured after the trial should have ended. Returns whether it should have.
    pub(super) fn cut_where_hopeless(&self) -> bool {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(last) = judge::first_hopeless(self.rule, &self.earlier, &seen.costs) else {
            return false;
        };
        seen.costs.retain(|epoch, _| *epoch <= last);
        seen.losses.retain(|epoch, _| *epoch <= last);
        true
    }
}

impl Judge for MetricJudge {
    fn goes_on(&self, epoch: u64, loss: f64, validation: &Metrics) -> bool {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.add(&self.metric, epoch, loss, validation);
        let known = seen.costs.contains_key(&epoch);
        known && !judge::hopeless(self.rule, &self.earlier, &seen.costs, epoch)
    }
}
