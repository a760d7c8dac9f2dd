//! Identity of a run, and its record in a checkpoint.

use std::collections::BTreeMap;

use feedline_schemas::{
    Versioned,
    checkpoint::{
        CheckpointHeader, EarlyStopping, GuardState, LossScale, Plateau, RunningLoss, TextIds,
        TransformHashes,
    },
    config::TrainConfig,
    ids::{Epoch, Hash128, Step},
    loader_state::LoaderState,
    manifest::Layout,
    report::ImagesReport,
    transform::{FittedTarget, TransformArtefact},
};
use serde_json::Value;

use crate::{
    checkpoint::Snapshot,
    config::settings::TrainSettings,
    data::{
        samples::{Samples, Targets},
        task::Task,
    },
    error::Error,
    model::{interface::Shape, models},
};

/// Identity of a run.
#[derive(Clone, Debug)]
pub(crate) struct RunPlan {
    /// Checked configuration.
    pub(crate) settings: TrainSettings,
    /// Predicted target.
    pub(crate) task: Task,
    /// Layout of the shards.
    pub(crate) layout: Layout,
    /// Names of the features of a row, and the meaning of the token ids of a text.
    pub(crate) features: InputNames,
    /// Fingerprint of the manifest.
    pub(crate) fingerprint: Hash128,
    /// Hash of the weights that the run begins with, where they come from a file.
    pub(crate) init: Option<Hash128>,
    /// Dataset folder, for messages.
    pub(crate) dataset_url: String,
    /// Treatment of images, where there are some.
    pub(crate) images: Option<ImagesReport>,
    /// True if `dataset.sql` made the rows: their origins name no landed rows.
    pub(crate) is_of_query: bool,
}

/// Names of what a model reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct InputNames {
    /// Features of a row, in order; none where samples have none.
    pub(crate) features: Vec<String>,
    /// Meaning of the token ids of a text; none where samples have no text.
    pub(crate) text_ids: Option<TextIds>,
    /// Hashes of the transform that makes the features; none where samples have none.
    pub(crate) transform: Option<TransformHashes>,
}

/// Names of the features and of the token ids of samples of this layout, as far as it has them.
pub(crate) fn feature_names(layout: &Layout, transform: &TransformArtefact) -> InputNames {
    let features = match layout {
        Layout::Dense { .. } | Layout::Multi { .. } => {
            let features = transform.features.iter();
            features.map(|feature| feature.name.clone()).collect()
        }
        Layout::Images { .. } | Layout::Tokens { .. } => Vec::new(),
    };
    let has_text = match layout {
        Layout::Tokens { .. } => true,
        Layout::Multi { tokens, .. } => tokens.is_some(),
        Layout::Dense { .. } | Layout::Images { .. } => false,
    };
    let has_features = !features.is_empty();
    InputNames {
        features,
        text_ids: text_ids(transform).filter(|_| has_text),
        transform: has_features.then(|| transform_hashes(transform)),
    }
}

/// Hashes of what a transform fitted for features and for targets that are numbers, whatever the order of columns.
fn transform_hashes(transform: &TransformArtefact) -> TransformHashes {
    let applied = transform.applied();
    let hash = |value: Value| Hash128::of(sorted_by_name(value).to_string().as_bytes());
    let features = serde_json::to_value((
        &applied.null_values,
        &applied.missing_values,
        &applied.inputs,
        &applied.steps,
        &applied.signs,
    ));
    // One target has no name in a model, several are matched by theirs.
    let are_many = !applied.other_targets.is_empty();
    let scale = |target: &FittedTarget| match target {
        FittedTarget::Regression {
            column,
            scale,
            offset,
            ..
        } => {
            let name = if are_many {
                column.clone()
            } else {
                String::new()
            };
            Some((name, *scale, *offset))
        }
        FittedTarget::Classification { .. } => None,
    };
    let mut scales: Vec<(String, f64, f64)> = applied.targets().filter_map(scale).collect();
    scales.sort_by(|a, b| a.0.cmp(&b.0));
    TransformHashes {
        features: hash(features.unwrap_or_default()),
        targets: (!scales.is_empty())
            .then(|| hash(serde_json::to_value(&scales).unwrap_or_default())),
    }
}

/// JSON whose keys are in order, and whose lists of named objects are in that of their names.
fn sorted_by_name(value: Value) -> Value {
    match value {
        Value::Array(values) => {
            let mut values: Vec<Value> = values.into_iter().map(sorted_by_name).collect();
            let name = |value: &Value| value.get("name")?.as_str().map(str::to_owned);
            if values.iter().all(|value| name(value).is_some()) {
                values.sort_by_key(name);
            }
            Value::Array(values)
        }
        Value::Object(entries) => {
            let entries = entries.into_iter();
            let sorted: BTreeMap<String, Value> = entries
                .map(|(key, value)| (key, sorted_by_name(value)))
                .collect();
            Value::Object(sorted.into_iter().collect())
        }
        value => value,
    }
}

/// Meaning of the token ids that a transform makes of a text.
fn text_ids(transform: &TransformArtefact) -> Option<TextIds> {
    match (&transform.tokens, &transform.characters) {
        (Some(tokens), _) => Some(TextIds::Tokenizer(tokens.tokenizer)),
        (None, Some(fitted)) => Some(TextIds::Characters(fitted.characters.iter().collect())),
        (None, None) => None,
    }
}

/// Shape of samples of this layout for a model.
pub(crate) fn shape(layout: &Layout, config: &TrainConfig) -> Shape {
    match layout {
        Layout::Dense { features, .. } => Shape::Rows {
            features: *features as usize,
        },
        Layout::Images { .. } => Shape::Images {
            channels: config.images.channels as usize,
            height: config.images.height as usize,
            width: config.images.width as usize,
        },
        Layout::Tokens { vocabulary, .. } => Shape::Tokens {
            length: context(config),
            vocabulary: *vocabulary as usize,
        },
        Layout::Multi {
            features,
            images,
            tokens,
            ..
        } => Shape::Multi {
            features: *features as usize,
            images: images.then(|| {
                let images = &config.images;
                [images.channels, images.height, images.width].map(|size| size as usize)
            }),
            tokens: tokens.map(|tokens| [tokens.length, tokens.vocabulary].map(|n| n as usize)),
        },
    }
}

/// Token ids that a model reads of a row.
pub(crate) fn context(config: &TrainConfig) -> usize {
    let usual = 128;
    models::filled(config).context.unwrap_or(usual) as usize
}

/// Position of a run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Position {
    /// Steps, one per batch, with those that were left out.
    pub(crate) step: Step,
    /// Epoch in progress.
    pub(crate) epoch: Epoch,
    /// Position to resume the loader from.
    pub(crate) loader: LoaderState,
    /// State of early stopping.
    pub(crate) early_stopping: EarlyStopping,
    /// State of the schedule.
    pub(crate) plateau: Plateau,
    /// Scale of the loss, with f16.
    pub(crate) loss_scale: Option<LossScale>,
    /// Sums of the epoch in progress.
    pub(crate) running: RunningLoss,
    /// State of the guard.
    pub(crate) guard: GuardState,
}

impl Position {
    /// Updates that made the weights: the steps without those whose batches were left out or stepped past.
    pub(crate) const fn updates(&self) -> u64 {
        self.step.get() - self.guard.dropped
    }

    /// Steps that were left out, as their gradient overflowed f16.
    pub(crate) fn dropped_steps(&self) -> u64 {
        self.loss_scale.as_ref().map_or(0, |scale| scale.dropped)
    }

    /// Returns true if a step of the epoch in progress has moved the weights.
    pub(crate) fn has_moved_in_epoch(&self) -> bool {
        self.updates() != self.running.updates_before.unwrap_or(0)
    }

    /// Returns true if steps were left out, as their gradient overflowed f16, and none has moved the weights.
    pub(crate) fn has_only_dropped(&self) -> bool {
        self.dropped_steps() > 0 && self.updates() == 0
    }

    /// Returns true if batches were skipped, as they gave something that is not finite, and no step has moved the weights.
    pub(crate) const fn has_only_skipped(&self) -> bool {
        self.guard.skipped_in_all > 0 && self.updates() == 0
    }
}

impl RunPlan {
    /// An error about the dataset.
    pub(crate) fn dataset_error(&self, reason: String) -> Error {
        Error::Dataset {
            url: self.dataset_url.clone(),
            reason,
        }
    }

    /// Class ids must be below the number of classes: the engine looks outputs up by them.
    pub(crate) fn check_targets(&self, samples: Samples<'_>, keys: &[u64]) -> Result<(), Error> {
        if let Task::NextToken { vocabulary } = self.task {
            return self.check_tokens(samples, vocabulary, keys);
        }
        if let Layout::Multi {
            tokens: Some(tokens),
            ..
        } = &self.layout
        {
            self.check_tokens(samples, tokens.vocabulary as usize, keys)?;
        }
        let Task::Classification { counts, .. } = &self.task else {
            return Ok(());
        };
        let bad = |id: i32| usize::try_from(id).map_or(true, |id| id >= counts.len());
        let found = |targets: Targets<'_>| match targets {
            Targets::Classes(ids) => ids
                .iter()
                .position(|&id| bad(id))
                .map(|row| (ids[row], row)),
            Targets::None | Targets::Numbers(_) | Targets::Vectors { .. } => None,
        };
        // A partner may be a sample of another rank.
        let partners = samples.mixed.and_then(|mixed| found(mixed.partners));
        let Some((id, row)) = found(samples.targets).or(partners) else {
            return Ok(());
        };
        let (key, classes) = (keys[row], counts.len());
        Err(self.dataset_error(format!("the sample with key `{key:016x}` has class id {id}, ids are below {classes}; build it again")))
    }

    /// Token ids must be below their number: embeddings are looked up by them.
    fn check_tokens(
        &self,
        samples: Samples<'_>,
        vocabulary: usize,
        keys: &[u64],
    ) -> Result<(), Error> {
        let tokens = samples.inputs.tokens;
        let Some(at) = tokens.iter().position(|&id| id as usize >= vocabulary) else {
            return Ok(());
        };
        let (id, row) = (tokens[at], at / samples.inputs.length);
        let key = keys.get(row).copied().unwrap_or_default();
        Err(self.dataset_error(format!("the row of the sample with key `{key:016x}` has token id {id}, ids are below {vocabulary}; build it again")))
    }

    /// Lines that must be the same on all ranks: settings, dataset, initial weights, version.
    pub(crate) fn identity(&self) -> String {
        let settings = self.settings.run_name(Hash128::new(0), None);
        let TrainConfig {
            parallel,
            checkpoint,
            log_every,
            ..
        } = self.settings.config();
        // They change no number of a run, but the exchanges of its ranks, and when these happen.
        let (bytes, shares) = (parallel.bucket_bytes.bytes(), parallel.shard_optimizer);
        let (every, keep) = (checkpoint.every_steps, checkpoint.keep_every_steps);
        let when = format!("{} {log_every} {every} {keep}", parallel.check_every);
        let init = self.init.map_or_else(String::new, |hash| hash.to_string());
        format!(
            "{settings} {bytes} {shares} {when}\n{}\n{init}\n{}",
            self.fingerprint,
            env!("CARGO_PKG_VERSION")
        )
    }

    /// Numbers the model puts out per row.
    pub(crate) fn outputs(&self) -> usize {
        self.settings.loss().outputs(self.task.outputs())
    }

    /// Numbers the model puts out for a batch.
    pub(crate) fn outputs_of_a_batch(&self) -> usize {
        let positions = match self.shape() {
            Shape::Tokens { length, .. } => length,
            _ => 1,
        };
        let rows = self.settings.config().batch_size as usize;
        let of_row = positions.saturating_mul(self.outputs());
        rows.saturating_mul(of_row)
    }

    /// Shape of the samples for the model.
    pub(crate) fn shape(&self) -> Shape {
        shape(&self.layout, self.settings.config())
    }

    /// The header of a checkpoint at `position`; its hashes are filled in when it is written.
    pub(crate) fn header(&self, position: &Position) -> CheckpointHeader {
        CheckpointHeader {
            format: CheckpointHeader::TAG.format.to_owned(),
            version: CheckpointHeader::TAG.version,
            step: position.step,
            epoch: position.epoch,
            seed: self.settings.config().seed,
            loader: position.loader.clone(),
            fingerprint: self.fingerprint,
            init: self.init,
            layout: self.layout.clone(),
            classes: self.task.classes().to_vec(),
            features: self.features.features.clone(),
            targets: self.task.targets(),
            text_ids: self.features.text_ids.clone(),
            transform: self.features.transform.clone(),
            config: self.settings.config().clone(),
            early_stopping: position.early_stopping.clone(),
            plateau: position.plateau.clone(),
            loss_scale: position.loss_scale.clone(),
            state_shards: Vec::new(),
            running: position.running.clone(),
            guard: position.guard.clone(),
            tensor_hash: Hash128::new(0),
            header_hash: Hash128::new(0),
        }
    }

    /// Checks that a snapshot is of this run; the folder's name says so, this makes sure.
    pub(crate) fn accepts(&self, snapshot: &Snapshot) -> Result<(), String> {
        let header = &snapshot.header;
        if header.fingerprint != self.fingerprint {
            return Err(format!(
                "it belongs to the dataset with fingerprint `{}`",
                header.fingerprint
            ));
        }
        if header.init != self.init {
            return Err("it began with other weights".to_owned());
        }
        if header.layout != self.layout || header.seed != self.settings.config().seed {
            return Err("it belongs to another layout or seed".to_owned());
        }
        if header.classes != self.task.classes() {
            return Err(
                "its outputs are for other classes, or for the same in another order".to_owned(),
            );
        }
        if header.targets != self.task.targets() {
            return Err(
                "its outputs are for other targets, or for the same in another order".to_owned(),
            );
        }
        if snapshot.average.is_some() != self.settings.config().average.is_some() {
            return Err("the average of the weights is missing, or one too many".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use feedline_schemas::{
        config::TrainConfig,
        manifest::TokenType,
        transform::{
            FittedCharacters, FittedStandardize, FittedStep, FittedTokens, InputColumn, InputKind,
        },
        units::ByteSize,
    };

    use super::*;
    use crate::data::task::tests::artefact;

    #[test]
    fn ranks_that_would_exchange_otherwise_have_other_identities() {
        let of = |change: &dyn Fn(&mut TrainConfig)| {
            let mut config = TrainConfig::default();
            change(&mut config);
            crate::testing::plan(&config, &crate::testing::regression(64)).identity()
        };
        let plain = of(&|_| {});
        assert_eq!(plain, of(&|_| {}));
        assert_ne!(plain, of(&|config| config.parallel.shard_optimizer = true));
        assert_ne!(plain, of(&|config| config.parallel.check_every += 1));
        assert_ne!(plain, of(&|config| config.log_every += 1));
        assert_ne!(plain, of(&|config| config.checkpoint.every_steps += 1));
        let short = ByteSize::new(4);
        assert_ne!(plain, of(&|config| config.parallel.bucket_bytes = short));
    }

    /// A transform that standardizes columns by these means, with a target of this scale.
    fn standardizing(means: &[(&str, f64)], scale: f64) -> TransformArtefact {
        let column = |(name, mean): &(&str, f64)| FittedStandardize {
            name: (*name).to_owned(),
            mean: *mean,
            deviation: 2.0,
            scale: 2.0,
            constant: false,
            groups: None,
        };
        let input = |(name, _): &(&str, f64)| InputColumn {
            name: (*name).to_owned(),
            kind: InputKind::Numeric,
        };
        TransformArtefact {
            fitted_rows: 7,
            inputs: means.iter().map(input).collect(),
            steps: vec![FittedStep::Standardize {
                columns: means.iter().map(column).collect(),
            }],
            ..artefact(Some(FittedTarget::Regression {
                column: "y".into(),
                mean: 1.0,
                scale,
                offset: 1.0,
            }))
        }
    }

    #[test]
    fn hashes_of_a_transform_follow_its_numbers_and_not_the_order_of_its_columns() {
        let of = |means: &[(&str, f64)], scale| transform_hashes(&standardizing(means, scale));
        let plain = of(&[("age", 3.5), ("size", 9.0)], 2.0);
        assert_eq!(of(&[("size", 9.0), ("age", 3.5)], 2.0), plain);
        let other_mean = of(&[("age", 3.5), ("size", 9.5)], 2.0);
        assert_ne!(other_mean.features, plain.features);
        assert_eq!(other_mean.targets, plain.targets);
        let other_scale = of(&[("age", 3.5), ("size", 9.0)], 2.5);
        assert_eq!(other_scale.features, plain.features);
        assert_ne!(other_scale.targets, plain.targets);
        assert_eq!(transform_hashes(&artefact(None)).targets, None);
    }

    #[test]
    fn token_ids_are_those_of_the_tokenizer_or_of_the_known_characters() {
        let texts = Layout::Tokens {
            id: TokenType::U16,
            vocabulary: 3,
        };
        let tokens = FittedTokens {
            column: "text".into(),
            tokenizer: Hash128::new(7),
            vocabulary: 3,
            end_of_text: None,
            learnt_bytes: None,
        };
        let characters = FittedCharacters {
            column: "text".into(),
            characters: vec!['b', 'a'],
            counts: vec![2, 1],
        };
        let by_tokenizer = TransformArtefact {
            tokens: Some(tokens),
            ..artefact(None)
        };
        let by_character = TransformArtefact {
            characters: Some(characters),
            ..artefact(None)
        };
        let ids_of = |transform| feature_names(&texts, transform).text_ids;
        let tokenizer = TextIds::Tokenizer(Hash128::new(7));
        assert_eq!(ids_of(&by_tokenizer), Some(tokenizer));
        let characters = TextIds::Characters("ba".to_owned());
        assert_eq!(ids_of(&by_character), Some(characters));
    }
}
