//! Models of every kind of sample, on shards read by the real loader.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64},
};

use feedline_schemas::{
    Classified as _, ErrorKind,
    config::{
        Augmentation, ImagesConfig, ModelConfig, ModelKind, NormKind, ScheduleConfig, TrainConfig,
    },
    decode, encode,
    manifest::{Manifest, SequenceCounts},
};
use feedline_storage::Store;
use feedline_trainer::{Context, Resume, settled, summarize, train};

use crate::{
    dataset::{Kind, VOCABULARY},
    runs::{StopAt, contents, context},
};

fn config(model: ModelConfig) -> TrainConfig {
    TrainConfig {
        model,
        images: ImagesConfig {
            height: 8,
            width: 8,
            ..ImagesConfig::default()
        },
        batch_size: 60,
        epochs: 4,
        learning_rate: 0.01,
        schedule: ScheduleConfig {
            warmup_steps: Some(5),
            ..ScheduleConfig::default()
        },
        patience: 0,
        ..TrainConfig::default()
    }
}

fn small(kind: ModelKind) -> ModelConfig {
    let attention = matches!(kind, ModelKind::Vit | ModelKind::Transformer);
    let sequence = attention || kind == ModelKind::Lstm;
    ModelConfig {
        r#type: kind,
        layers: sequence.then_some(1),
        width: sequence.then_some(16),
        heads: attention.then_some(2),
        ..ModelConfig::default()
    }
}

#[test]
fn models_of_images_tell_the_bright_half() {
    let cnn = ModelConfig {
        channels: Some(vec![4]),
        norm: Some(NormKind::Batch),
        ..small(ModelKind::Cnn)
    };
    for model in [cnn, small(ModelKind::Vit), small(ModelKind::Multi)] {
        let kind = model.r#type;
        let report = train(&config(model), Resume::Fresh, &context(Kind::Images)).unwrap();
        assert!(report.test["accuracy"] > 0.95, "{kind:?}: {report:?}");
    }
}

#[test]
fn models_of_tokens_learn_to_count() {
    for kind in [ModelKind::Transformer, ModelKind::Lstm] {
        let mut config = config(ModelConfig {
            context: Some(24),
            ..small(kind)
        });
        (config.epochs, config.batch_size, config.learning_rate) = (15, 8, 0.02);
        let report = train(&config, Resume::Fresh, &context(Kind::Tokens)).unwrap();
        let ids = f64::from(VOCABULARY);
        // All ids are about equally frequent.
        let baseline = report.baseline["perplexity"];
        assert!(baseline > 0.8 * ids && baseline < ids + 1e-6, "{baseline}");
        assert!(report.test["perplexity"] < 1.3, "{kind:?}: {report:?}");
    }
}

/// Trains with a stop after each of some steps, resuming after each, and compares the best weights with those of a run
/// that is never stopped.
fn check_resumed(config: &TrainConfig, kind: Kind) {
    check_resumed_in(config, &context(kind));
}

/// The same on a dataset.
pub(crate) fn check_resumed_in(config: &TrainConfig, context: &Context) {
    let undisturbed = Context {
        runs: Store::memory(),
        ..context.clone()
    };
    let expected = train(config, Resume::Fresh, &undisturbed).unwrap();
    let runs = Store::memory();
    let again = |steps: &[u64]| {
        let stop = Arc::new(AtomicBool::new(false));
        let progress = StopAt {
            steps: steps.to_vec(),
            stop: Arc::clone(&stop),
            seen: AtomicU64::new(0),
        };
        let context = Context {
            runs: runs.clone(),
            weights: None,
            progress: Arc::new(progress),
            stop,
            ..undisturbed.clone()
        };
        train(config, Resume::Continue, &context).map_err(Box::new)
    };
    let stops = [1, 4, 6];
    for _ in stops {
        let error = again(&stops).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
    }
    let report = again(&[]).unwrap();
    assert_eq!(report.test, expected.test);
    assert_eq!(report.mixture, expected.mixture);
    let best = |store: &Store| {
        let mut files = contents(store).into_iter();
        files.find(|(path, _)| path.ends_with("best.safetensors"))
    };
    assert!(best(&runs).unwrap() == best(&undisturbed.runs).unwrap());
}

#[test]
fn stopped_runs_on_images_and_tokens_end_with_the_same_bits() {
    let images = ModelConfig {
        channels: Some(vec![4]),
        dropout: 0.2,
        ..small(ModelKind::Cnn)
    };
    let mut config = config(images);
    config.epochs = 2;
    config.images.augment = Augmentation::Usual(true);
    check_resumed(&config, Kind::Images);
    config.images.augment = Augmentation::Usual(false);
    config.batch_size = 8;
    config.model = ModelConfig {
        context: Some(24),
        dropout: 0.2,
        ..small(ModelKind::Transformer)
    };
    check_resumed(&config, Kind::Tokens);
}

#[test]
fn rows_are_read_as_time_series_or_given_back() {
    let config = |model| TrainConfig {
        epochs: 25,
        ..config(model)
    };
    let lstm = config(small(ModelKind::Lstm));
    let report = train(&lstm, Resume::Fresh, &context(Kind::Regression)).unwrap();
    assert!(report.test["r2"] > 0.9, "{report:?}");

    let autoencoder = config(ModelConfig {
        width: Some(3),
        ..small(ModelKind::Autoencoder)
    });
    let report = train(&autoencoder, Resume::Fresh, &context(Kind::None)).unwrap();
    assert!(report.test["rmse"] < 0.1, "{report:?}");
    assert!(report.baseline.is_empty());
}

#[test]
fn windows_are_read_row_by_row_unless_the_steps_are_given() {
    let context = context(Kind::Regression);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let steps = |config: &TrainConfig| {
        let settled = runtime.block_on(settled(config, &context.dataset));
        settled.unwrap().model.steps
    };
    let lstm = config(small(ModelKind::Lstm));
    assert_eq!(steps(&lstm), None);
    let path = "manifest-000001.json";
    let text = runtime.block_on(context.dataset.get(path)).unwrap();
    let mut manifest: Manifest = decode(path, &text).unwrap();
    manifest.counts.sequence = Some(SequenceCounts {
        length: 4,
        ..SequenceCounts::default()
    });
    manifest.fingerprint = manifest.compute_fingerprint();
    let put = context.dataset.put(path, encode(&manifest).into());
    runtime.block_on(put).unwrap();
    assert_eq!(steps(&lstm), Some(4));
    let given = config(ModelConfig {
        steps: Some(2),
        ..small(ModelKind::Lstm)
    });
    assert_eq!(steps(&given), Some(2));
    assert_eq!(steps(&config(small(ModelKind::Mlp))), None);
}

#[test]
fn a_summary_reads_the_dataset_and_trains_nothing() {
    let context = context(Kind::Tokens);
    let summary = summarize(&config(small(ModelKind::Transformer)), &context).unwrap();
    let (ids, length, width) = (u64::from(VOCABULARY), 128, 16);
    let block = 12 * width * width + 13 * width;
    assert_eq!(
        summary.parameters,
        (ids + length) * width + block + 2 * width
    );
    assert!(summary.to_string().starts_with("model transformer\n"));
}

#[test]
fn a_model_of_other_samples_is_refused_before_anything_is_trained() {
    let error = train(
        &config(small(ModelKind::Resnet)),
        Resume::Fresh,
        &context(Kind::Tokens),
    );
    let message = error.unwrap_err().to_string();
    assert_eq!(
        message,
        "cannot use `train.model.type`: the dataset holds tokens; use `transformer`, or `lstm` with \
         `train.model.context`"
    );
    let error = train(
        &config(small(ModelKind::Transformer)),
        Resume::Fresh,
        &context(Kind::Regression),
    );
    let message = error.unwrap_err().to_string();
    assert!(
        message.contains("`transformer` does not read rows of numbers"),
        "{message}"
    );
}
