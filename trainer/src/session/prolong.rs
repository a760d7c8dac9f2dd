//! Training that continues another run, which differs only in its length or learning rate.
//!
//! The newest such run gives its newest checkpoint: weights, optimizer, position in the data and counters, the best weights
//! and the state of early stopping. The result has the bits of one run of the whole length where the steps that were taken
//! had the learning rates that this configuration gives them.

use feedline_schemas::{
    config::{ScheduleConfig, TrainConfig},
    count::counted,
    run::{ContinuedFrom, RunRecord, RunState},
};
use serde::{Deserialize, Serialize};

use crate::{
    Context,
    checkpoint::{Checkpoints, Snapshot},
    config::settings::TrainSettings,
    data::samples::Data as _,
    error::Error,
    model::engine::ModelEngine,
    parallel::Ranks,
    plan::RunPlan,
    reporting::{runs, settings_of::differences, timestamp::now_ms},
    session::opened_dataset::OpenedDataset,
};

/// Runs that a message names.
const NAMED: usize = 3;

/// Start of a run that may continue another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum RunStart {
    /// At its own newest checkpoint, or its beginning.
    Own,
    /// At that of another run.
    Other(ContinuedFrom),
    /// At its beginning, since there is no checkpoint to continue from.
    Nothing(String),
}

impl RunStart {
    /// Reason why there is no checkpoint to continue from, if there is none.
    pub(crate) fn nothing(&self) -> Option<String> {
        match self {
            Self::Nothing(reason) => Some(reason.clone()),
            Self::Own | Self::Other(_) => None,
        }
    }
}

/// Start of the run, as the first rank finds it, on all ranks.
///
/// # Errors
/// [`Error::Storage`], and errors of the ranks.
pub(crate) fn start(
    opened: &OpenedDataset,
    engine: &ModelEngine,
    context: &Context,
    ranks: &Ranks,
) -> Result<RunStart, Error> {
    if !ranks.leads() {
        let bytes = ranks.broadcast(None)?;
        return serde_json::from_slice(&bytes).map_err(|error| Error::Rank {
            rank: 0,
            reason: format!("it sent a start of the run that this rank cannot read: {error}"),
            ranks: "rank 0 at its start".to_owned(),
        });
    }
    let start = find(opened, engine, context)?;
    let bytes = serde_json::to_vec(&start).expect("texts and numbers are JSON");
    ranks.broadcast(Some(bytes))?;
    match &start {
        RunStart::Own => {}
        RunStart::Nothing(reason) => tracing::warn!(
            run = opened.name(),
            reason,
            "`--resume` found no checkpoint to continue from: the training starts at its beginning"
        ),
        RunStart::Other(from) if from.equals_one_run => tracing::info!(
            from = from.run,
            step = from.step,
            "continuing another run, with the result of one run of this length"
        ),
        RunStart::Other(from) => tracing::warn!(
            from = from.run,
            step = from.step,
            before = ?from.before,
            reason = from.reason,
            "continuing another run: the result is not that of one run with this configuration"
        ),
    }
    Ok(start)
}

fn find(
    opened: &OpenedDataset,
    engine: &ModelEngine,
    context: &Context,
) -> Result<RunStart, Error> {
    let of_folder = |name: &str| {
        let parameters = engine.model().layout().entries();
        let state = opened.plan.settings.optimizer_state(&engine.trained());
        let folder = opened.folder_of(name, context);
        Checkpoints::new(folder, parameters, state, opened.plan.settings.config())
    };
    let own = opened.name();
    if of_folder(&own).any()? {
        return Ok(RunStart::Own);
    }
    let now_ms = now_ms(&*context.clock);
    let records = opened
        .runtime
        .handle()
        .block_on(runs::reached(&context.runs, now_ms))?;
    let mut reasons = Vec::new();
    for record in records.iter().filter(|record| record.name != own) {
        let found = match differs(&opened.plan, record, now_ms) {
            Ok(before) => go_on(opened, record, before, &of_folder(&record.name))?,
            Err(reason) => Err(reason),
        };
        match found {
            Ok(from) => return Ok(RunStart::Other(from)),
            Err(reason) => reasons.push(format!("`{}`: {reason}", record.name)),
        }
    }
    let others = match reasons.len() {
        0 => "there is no other run".to_owned(),
        _ => {
            reasons.truncate(NAMED);
            format!("of the newest runs, {}", reasons.join("; "))
        }
    };
    Ok(RunStart::Nothing(format!(
        "no checkpoint is of this configuration and dataset, and none of a run that differs only in `epochs`, `learning_rate`, \
         `schedule` or `patience`: {others}"
    )))
}

/// The settings of a run that differ from those of the plan, if only its length and learning rate do.
///
/// # Errors
/// Text that says what else differs, or why its checkpoints are of no use yet.
fn differs(
    plan: &RunPlan,
    record: &RunRecord,
    now_ms: u64,
) -> Result<(TrainSettings, Vec<(String, String)>), String> {
    if record.fingerprint != plan.fingerprint {
        return Err("it was trained on another dataset".to_owned());
    }
    let settings = TrainSettings::resolve(&record.config, &plan.task);
    let settings =
        settings.map_err(|error| format!("its configuration is no longer one: {error}"))?;
    let (own, its) = (plan.settings.named_config(), settings.named_config());
    let others = differences(&[&without_length(&own), &without_length(&its)]);
    if !others.is_empty() {
        let keys: Vec<String> = others.keys().map(|key| format!("`{key}`")).collect();
        return Err(format!("it differs in {} too", keys.join(", ")));
    }
    if record.state_at(now_ms) == RunState::Running {
        return Err("it is still running".to_owned());
    }
    let before = differences(&[&own, &its]).into_iter();
    let before = before
        .map(|(key, values)| (key, values[1].clone().unwrap_or_else(|| "-".to_owned())))
        .collect();
    Ok((settings, before))
}

/// A configuration without the keys that may differ.
fn without_length(config: &TrainConfig) -> TrainConfig {
    TrainConfig {
        epochs: 1,
        learning_rate: 1.0,
        schedule: ScheduleConfig::default(),
        patience: 0,
        ..config.clone()
    }
}

/// The newest checkpoint of a run as one to continue from, or the reason why it is not usable.
///
/// # Errors
/// [`Error::Storage`].
fn go_on(
    opened: &OpenedDataset,
    record: &RunRecord,
    (settings, before): (TrainSettings, Vec<(String, String)>),
    checkpoints: &Checkpoints,
) -> Result<Result<ContinuedFrom, String>, Error> {
    let plan = &opened.plan;
    let snapshot: Snapshot = match checkpoints.newest(|snapshot| plan.accepts(snapshot)) {
        Ok(Some(snapshot)) => snapshot,
        Ok(None) => return Ok(Err("it has no checkpoint".to_owned())),
        Err(Error::AllDamaged { source, .. }) => return Ok(Err(source.to_string())),
        Err(error) => return Err(error),
    };
    let header = &snapshot.header;
    let (epoch, epochs) = (header.epoch.get(), plan.settings.config().epochs);
    if epoch >= epochs {
        return Ok(Err(format!(
            "it has taken {} already, and `train.epochs` is {epochs}",
            counted(epoch, "epoch")
        )));
    }
    let per_epoch = opened.loaders.batches_per_epoch();
    let schedules = [&plan.settings, &settings].map(|settings| settings.schedule(per_epoch));
    let patience = [&plan.settings, &settings].map(|settings| settings.config().patience);
    let reason = unequal(
        schedules[0].agrees_with(&schedules[1], header.step.get()),
        patience,
        record,
    );
    Ok(Ok(ContinuedFrom {
        run: record.name.clone(),
        step: header.step.get(),
        epoch,
        before: before.into_iter().collect(),
        equals_one_run: reason.is_none(),
        reason,
    }))
}

/// Reason why the result is not that of one run of the whole length; `None` where it is. `is_same_rate` says whether the steps
/// that were taken had the learning rates of this configuration; `patience` is its own, then that of the run.
fn unequal(is_same_rate: bool, [own, its]: [u32; 2], record: &RunRecord) -> Option<String> {
    let mut reasons = Vec::new();
    if !is_same_rate {
        reasons.push(
            "the learning rates of the steps that were taken depend on a key that has changed"
                .to_owned(),
        );
    }
    // With more patience nothing would have ended before, with less it may have; 0 is endless.
    if own != 0 && (its == 0 || own < its) {
        reasons.push(format!(
            "with `train.patience = {own}` the training may have ended earlier than with `{its}`"
        ));
    }
    let its_own = record.continued_from.as_ref();
    if let Some(from) = its_own.filter(|from| !from.equals_one_run) {
        reasons.push(format!(
            "`{}` is itself no run of one configuration: it continued `{}`",
            record.name, from.run
        ));
    }
    (!reasons.is_empty()).then(|| reasons.join("; "))
}

#[cfg(test)]
mod tests {
    use feedline_schemas::{
        config::ScheduleKind,
        ids::{Hash128, Seed},
    };

    use super::*;
    use crate::testing::{config, plan, record, regression};

    fn reason(change: impl FnOnce(&mut RunRecord)) -> String {
        let toy = regression(16);
        let plan = plan(&config(), &toy);
        let mut record = RunRecord {
            fingerprint: plan.fingerprint,
            config: config(),
            ..record("aa")
        };
        change(&mut record);
        match differs(&plan, &record, 0) {
            Ok((_, before)) => format!("{before:?}"),
            Err(reason) => reason,
        }
    }

    #[test]
    fn the_reason_why_a_result_is_another_is_the_key_that_has_changed() {
        let mut record = record("aa");
        let reason =
            |is_same_rate, patience, record: &RunRecord| unequal(is_same_rate, patience, record);
        assert_eq!(reason(true, [0, 3], &record), None);
        assert_eq!(reason(true, [5, 3], &record), None);
        for patience in [[3, 0], [3, 5]] {
            let text = reason(true, patience, &record).unwrap();
            assert!(text.starts_with("with `train.patience = 3`"), "{text}");
            assert!(!text.contains("learning rate"), "{text}");
        }
        let text = reason(false, [0, 0], &record).unwrap();
        assert!(
            text.contains("learning rates") && !text.contains("patience"),
            "{text}"
        );
        record.continued_from = Some(ContinuedFrom {
            run: "bb".into(),
            ..ContinuedFrom::default()
        });
        let text = reason(true, [0, 0], &record).unwrap();
        assert!(text.contains("it continued `bb`"), "{text}");
    }

    #[test]
    fn only_length_and_learning_rate_may_differ() {
        let all = reason(|r| {
            (r.config.epochs, r.config.learning_rate) = (77, 0.5);
            (r.config.patience, r.config.schedule.r#type) = (9, ScheduleKind::Constant);
        });
        for key in ["epochs", "learning_rate", "patience", "schedule.type"] {
            assert!(all.contains(key), "{all}");
        }
        for (reason, expected) in [
            (
                reason(|r| r.config.seed = Seed::new(99)),
                "differs in `seed` too",
            ),
            (
                reason(|r| r.fingerprint = Hash128::new(1)),
                "another dataset",
            ),
            (reason(|r| r.state = RunState::Running), "still running"),
        ] {
            assert!(reason.contains(expected), "{reason}");
        }
    }
}
