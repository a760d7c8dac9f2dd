//! Texts edited by models that were trained.

use feedline_schemas::{
    Classified as _, ErrorKind,
    config::{ModelConfig, ModelKind, TrainConfig},
    edit::{Documents, EditRule},
    ids::Seed,
};
use feedline_trainer::{Context, Error, Prior, Resume, train};

use crate::{
    dataset::{Kind, VOCABULARY},
    runs::{block_on, contents, context},
};

const RULE: EditRule = EditRule {
    threshold: 0.9,
    temperature: 1.0,
    top_k: None,
    top_p: None,
    seed: Seed::new(2),
};

fn config() -> TrainConfig {
    TrainConfig {
        model: ModelConfig {
            r#type: ModelKind::Transformer,
            context: Some(16),
            layers: Some(1),
            width: Some(32),
            heads: Some(2),
            ..ModelConfig::default()
        },
        batch_size: 16,
        epochs: 40,
        learning_rate: 0.01,
        ..TrainConfig::default()
    }
}

fn trained() -> Context {
    let context = context(Kind::Tokens);
    train(&config(), Resume::Fresh, &context).unwrap();
    context
}

/// Documents that count, but for one id in nine.
fn documents() -> Documents {
    let vocabulary = u32::from(VOCABULARY);
    let document = |row: u32| {
        (0..10).map(move |at| match (row + at) % 9 {
            8 => (3 * row + 5 * at) % vocabulary,
            _ => (row + at) % vocabulary,
        })
    };
    Documents {
        keys: (0..200).collect(),
        lengths: vec![10; 200],
        ids: (0..200).flat_map(document).collect(),
    }
}

#[test]
fn a_model_that_learnt_to_count_edits_what_counts_on_and_nothing_else() {
    let context = trained();
    let mut prior = Prior::open(&config(), RULE, &[], &context).unwrap();
    assert_eq!(prior.reference().context, 16);
    let documents = documents();
    let edited = prior.edit(&documents).unwrap();
    let measures = prior.measures();
    let counts = measures.counts;
    assert_eq!(counts.predicted, 200 * 9);
    assert!(counts.over > 900, "{counts:?}");
    assert!(
        counts.changed > 0 && counts.changed < counts.over / 5,
        "{counts:?}"
    );
    let vocabulary = u32::from(VOCABULARY);
    for (_, place) in documents.places() {
        let (before, after) = (&documents.ids[place.clone()], &edited[place]);
        assert_eq!(before[0], after[0]);
        for at in 1..before.len() {
            let counts_on = before[at] == (before[at - 1] + 1) % vocabulary;
            assert!(counts_on || before[at] == after[at], "{before:?} {after:?}");
        }
    }
    // The same weights in another process edit alike.
    let mut again = Prior::open(&config(), RULE, &[], &context).unwrap();
    assert_eq!(again.reference(), prior.reference());
    assert_eq!(again.edit(&documents).unwrap(), edited);
    assert_eq!(again.measures(), measures);
}

#[test]
fn weights_of_before_the_end_of_the_run_are_warned_of() {
    let context = context(Kind::Tokens);
    let mut config = config();
    (config.epochs, config.checkpoint.keep) = (3, 9);
    train(&config, Resume::Fresh, &context).unwrap();
    let codes = || {
        let prior = Prior::open(&config, RULE, &[], &context).unwrap();
        let codes = prior.warnings().iter().map(|warning| warning.code.clone());
        codes.collect::<Vec<_>>()
    };
    assert!(codes().is_empty());
    let paths = contents(&context.runs).into_keys();
    let (best, others): (Vec<String>, Vec<String>) =
        paths.partition(|path| path.ends_with("best.safetensors"));
    let checkpoints = others.iter().filter(|path| path.contains("/checkpoints/"));
    // The first checkpoint is kept.
    for path in best.iter().chain(checkpoints.skip(1)) {
        block_on(context.runs.delete(path)).unwrap();
    }
    assert_eq!(codes(), ["earlier_weights"]);
}

#[test]
fn a_prior_needs_a_transformer_that_was_trained() {
    let tokens = context(Kind::Tokens);
    let refused = Prior::open(&config(), RULE, &[], &tokens).unwrap_err();
    assert!(matches!(refused, Error::NoCheckpoint { .. }), "{refused}");

    let lstm = TrainConfig {
        model: ModelConfig {
            r#type: ModelKind::Lstm,
            context: Some(16),
            ..ModelConfig::default()
        },
        ..config()
    };
    let refused = Prior::open(&lstm, RULE, &[], &tokens).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Config);
    assert!(refused.to_string().contains("`transformer`"), "{refused}");

    let rows = context(Kind::Regression);
    let refused = Prior::open(&config(), RULE, &[], &rows).unwrap_err();
    assert!(!matches!(refused, Error::NoCheckpoint { .. }), "{refused}");
    let rule = EditRule {
        threshold: 0.0,
        ..RULE
    };
    let refused = Prior::open(&config(), rule, &[], &tokens).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Config);
}
