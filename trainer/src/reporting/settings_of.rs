//! Configurations as flat lists of keys, for tables and comparisons.

use std::collections::BTreeMap;

use feedline_schemas::{
    config::{
        InitConfig, LossConfig, LossKind, ModelConfig, OptimizerConfig, Precision, ScheduleConfig,
        TrainConfig,
    },
    manifest::Layout,
    report::NormalizedBy,
    run::RunRecord,
};
use serde_json::Value;

use crate::{
    model::models,
    optim::{loss, optimizer, schedule},
};

/// Keys that choose what other keys there are: they are compared with the plain defaults.
const TYPES: [&str; 3] = ["model.type", "optimizer.type", "schedule.type"];

/// Keys whose values in the name of a run leave out the places of files and datasets.
const PLACES: [&str; 2] = ["init.from", "mixture.sources"];

/// The configuration by key, such as `model.hidden`; values as JSON, those that are absent left out.
pub(crate) fn flat(config: &TrainConfig) -> BTreeMap<String, String> {
    let mut flat = BTreeMap::new();
    let value = serde_json::to_value(config).expect("a configuration has string keys");
    add("", &value, &mut flat);
    flat
}

/// The keys of a run that have other values than they would have had unwritten. The record has everything filled in, so each section is
/// compared with the defaults of the type that was chosen for it.
pub(crate) fn not_default(record: &RunRecord) -> BTreeMap<String, String> {
    let config = &record.config;
    let (plain, filled) = (flat(&TrainConfig::default()), flat(&defaults(config)));
    let mut found = flat(config);
    found.retain(|key, value| {
        let default = match TYPES.contains(&key.as_str()) {
            true => plain.get(key),
            false => filled.get(key),
        };
        default != Some(value)
    });
    let predicts_ids =
        !record.classes.is_empty() || matches!(record.layout, Some(Layout::Tokens { .. }));
    let loss = match predicts_ids {
        true => LossKind::CrossEntropy,
        false => LossKind::Mse,
    };
    if config.loss.r#type == Some(loss) {
        found.remove("loss.type");
    }
    let normalized_by = record.images.as_ref().map(|p| p.normalized_by);
    if normalized_by != Some(NormalizedBy::Given) {
        found.remove("images.mean");
        found.remove("images.deviation");
    }
    found
}

/// The defaults with the types of `config`, filled in as a run fills them in.
fn defaults(config: &TrainConfig) -> TrainConfig {
    let plain = TrainConfig::default();
    let optimizer = OptimizerConfig {
        r#type: config.optimizer.r#type,
        ..plain.optimizer.clone()
    };
    // Some types need a key that has no default.
    let schedule = schedule::resolve(&ScheduleConfig {
        r#type: config.schedule.r#type,
        period: config.schedule.period,
        every: config.schedule.every,
        milestones: config.schedule.milestones.clone(),
        ..plain.schedule.clone()
    });
    let schedule = schedule.map(|filled| ScheduleConfig {
        period: None,
        every: None,
        milestones: None,
        ..filled
    });
    let loss = config.loss.r#type.map(|kind| LossConfig {
        r#type: None,
        ..loss::fill(&plain.loss, kind).unwrap_or_default()
    });
    TrainConfig {
        model: models::filled(&TrainConfig {
            model: ModelConfig {
                r#type: config.model.r#type,
                ..plain.model.clone()
            },
            images: config.images.clone(),
            ..plain.clone()
        }),
        optimizer: optimizer::resolve(&optimizer).unwrap_or_default(),
        schedule: schedule.unwrap_or_default(),
        loss: loss.unwrap_or_default(),
        loss_scale: (config.precision == Precision::F16).then(Default::default),
        init: config.init.as_ref().map(|_| InitConfig {
            from: String::new(),
            rename: Vec::new(),
            layout: None,
            strict: true,
            replace: Vec::new(),
            classes: Vec::new(),
            allow_other_transform: false,
        }),
        ..plain
    }
}

fn add(key: &str, value: &Value, flat: &mut BTreeMap<String, String>) {
    match value {
        Value::Null => {}
        Value::Object(fields) => {
            for (name, value) in fields {
                let key = if key.is_empty() {
                    name.clone()
                } else {
                    format!("{key}.{name}")
                };
                add(&key, value, flat);
            }
        }
        Value::String(text) => drop(flat.insert(key.to_owned(), text.clone())),
        other => drop(flat.insert(key.to_owned(), other.to_string())),
    }
}

/// The keys whose values are not the same in all of `configs`, each with its values in their order.
pub(crate) fn differences(configs: &[&TrainConfig]) -> BTreeMap<String, Vec<Option<String>>> {
    let flats: Vec<_> = configs.iter().map(|config| flat(config)).collect();
    let mut differing = BTreeMap::new();
    for key in flats.iter().flat_map(BTreeMap::keys) {
        let values: Vec<_> = flats.iter().map(|flat| flat.get(key).cloned()).collect();
        if values.windows(2).any(|pair| pair[0] != pair[1]) {
            differing.insert(key.clone(), values);
        }
    }
    differing
}

/// The keys that differ between two configurations as they name runs, with the values of the run `its`, whose record has the
/// configuration `recorded`; an absent value is `-`.
pub(crate) fn differing_values(
    own: &TrainConfig,
    its: &TrainConfig,
    recorded: &TrainConfig,
) -> BTreeMap<String, String> {
    let recorded = flat(recorded);
    let value = |key: &str, of_name: Option<&String>| {
        let place = PLACES.contains(&key).then(|| recorded.get(key)).flatten();
        place
            .or(of_name)
            .map_or_else(|| "-".to_owned(), String::clone)
    };
    let differing = differences(&[own, its]).into_iter();
    differing
        .map(|(key, values)| {
            let value = value(&key, values[1].as_ref());
            (key, value)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use feedline_schemas::config::{ImagesConfig, OptimizerKind, ScheduleKind};

    use super::*;
    use crate::{config::settings::TrainSettings, data::task::Task, testing::record};

    /// A run of `config` as its record has it.
    fn recorded(config: &TrainConfig, classes: &[&str]) -> Vec<(String, String)> {
        let names: Vec<String> = classes.iter().map(|class| (*class).to_owned()).collect();
        let task = match names.is_empty() {
            true => Task::Regression {
                mean: 0.0,
                offset: 0.0,
                scale: 1.0,
            },
            false => Task::Classification {
                counts: vec![1; names.len()],
                names: names.clone(),
            },
        };
        let imagenet = ImagesConfig::IMAGENET;
        let settings = TrainSettings::resolve(config, &task).unwrap();
        let record = RunRecord {
            config: settings.normalising(imagenet).config().clone(),
            classes: names,
            ..record("run")
        };
        not_default(&record).into_iter().collect()
    }

    #[test]
    fn a_run_without_keys_has_none_that_differ_and_each_written_key_is_listed() {
        assert_eq!(recorded(&TrainConfig::default(), &[]), []);
        assert_eq!(recorded(&TrainConfig::default(), &["a", "b"]), []);
        let mut config = TrainConfig {
            learning_rate: 0.02,
            precision: Precision::F16,
            ..TrainConfig::default()
        };
        config.model.hidden = Some(vec![8]);
        config.optimizer.r#type = OptimizerKind::Sgd;
        config.schedule.r#type = ScheduleKind::Step;
        config.schedule.every = Some(7);
        config.loss.r#type = Some(LossKind::Huber);
        let keys: Vec<String> = recorded(&config, &[])
            .into_iter()
            .map(|(key, _)| key)
            .collect();
        let expected = [
            "learning_rate",
            "loss.type",
            "model.hidden",
            "optimizer.type",
            "precision",
            "schedule.every",
            "schedule.type",
        ];
        assert_eq!(keys, expected);
    }

    #[test]
    fn only_keys_that_differ_are_named() {
        let plain = TrainConfig::default();
        let mut other = plain.clone();
        (other.learning_rate, other.model.hidden) = (0.5, Some(vec![8, 8]));
        let found = differences(&[&plain, &other]);
        let expected = BTreeMap::from([
            (
                "learning_rate".to_owned(),
                vec![Some("0.001".to_owned()), Some("0.5".to_owned())],
            ),
            (
                "model.hidden".to_owned(),
                vec![None, Some("[8,8]".to_owned())],
            ),
        ]);
        assert_eq!(found, expected);
        assert!(differences(&[&plain]).is_empty());
    }

    #[test]
    fn a_file_of_weights_that_differs_is_named_by_its_place() {
        let (own, mut recorded) = (TrainConfig::default(), TrainConfig::default());
        let init = InitConfig {
            from: "base.safetensors".into(),
            rename: Vec::new(),
            layout: None,
            strict: true,
            replace: Vec::new(),
            classes: Vec::new(),
            allow_other_transform: false,
        };
        recorded.init = Some(init.clone());
        recorded.learning_rate = 0.5;
        let mut its = recorded.clone();
        its.init = Some(InitConfig {
            from: String::new(),
            ..init
        });
        let found = differing_values(&own, &its, &recorded);
        assert_eq!(found["init.from"], "base.safetensors");
        assert_eq!(found["learning_rate"], "0.5");
        let found = differing_values(&its, &own, &own);
        assert_eq!(found["init.from"], "-");
    }
}
