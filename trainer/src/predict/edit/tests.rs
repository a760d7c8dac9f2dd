//! Edits beside a plain reference, on a model whose scores are steep.

use feedline_schemas::{
    config::{LossKind, ModelConfig, ModelKind, TrainConfig},
    ids::Seed,
};

use super::*;
use crate::{
    data::samples::{ModelInputs, Samples, Targets},
    float_casts::exact_len,
    model::models,
    random::Stream,
};

const CONTEXT: usize = 20;
const VOCABULARY: usize = 30;

const RULE: EditRule = EditRule {
    threshold: 0.5,
    temperature: 1.0,
    top_k: None,
    top_p: None,
    seed: Seed::new(11),
};

/// A transformer whose scores are far apart: it is certain of some tokens.
fn prior(threads: usize, rule: EditRule, special: &[u32]) -> Prior {
    let model = ModelConfig {
        r#type: ModelKind::Transformer,
        context: Some(20),
        layers: Some(2),
        width: Some(16),
        heads: Some(2),
        tied: Some(false),
        ..ModelConfig::default()
    };
    let config = TrainConfig {
        model,
        ..TrainConfig::default()
    };
    let shape = Shape::Tokens {
        length: CONTEXT,
        vocabulary: VOCABULARY,
    };
    let model = models::build(&models::filled(&config), shape, VOCABULARY).unwrap();
    let mut bucket = model.initial(Seed::new(5));
    for entry in model.layout().entries() {
        let gain = match entry.name.starts_with("scores") {
            true => 40.0,
            false => 8.0,
        };
        if !entry.name.contains("norm") {
            bucket[entry.range.clone()]
                .iter_mut()
                .for_each(|w| *w *= gain);
        }
    }
    let engine = ModelEngine::with_threads(model, LossKind::CrossEntropy.into(), threads);
    let draw = Draw::new(rule, special).unwrap();
    let sizes = [CONTEXT, VOCABULARY];
    Prior::new(
        engine,
        bucket,
        sizes,
        draw,
        ("run".into(), "run/best".into()),
    )
}

/// Probabilities of the token after `ids`, at most as many as the model reads.
fn after(prior: &Prior, ids: &[u32]) -> Vec<f64> {
    let tokens = [ids, &[0]].concat();
    let inputs = ModelInputs {
        tokens: &tokens,
        length: tokens.len(),
        ..ModelInputs::default()
    };
    let samples = Samples::new(1, inputs, Targets::None);
    let mut scores = Vec::new();
    prior.engine.outputs(
        &prior.bucket,
        samples,
        std::slice::from_ref(&(0..1)),
        |_, all| all,
        |all| scores = all,
    );
    let last = &scores[scores.len() - VOCABULARY..];
    let largest = last.iter().copied().fold(f32::MIN, f32::max);
    let weights: Vec<f64> = last.iter().map(|s| f64::from(s - largest).exp()).collect();
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|w| w / sum).collect()
}

/// Documents that mostly continue as the model expects.
fn documents(prior: &Prior) -> Documents {
    let mut documents = Documents::default();
    for (key, length) in (100_u64..).zip([0_u32, 1, 2, 7, 64, 21, 20, 33, 16, 5, 41]) {
        let chance = Stream::initialization(Seed::new(key));
        let mut ids: Vec<u32> = Vec::new();
        for at in 0..u64::from(length) {
            let start = ids.len().saturating_sub(1) / CONTEXT * CONTEXT;
            let expected = match ids.is_empty() || chance.uniform(at) < 0.3 {
                true => chance.bits(1000 + at) % VOCABULARY as u64,
                false => {
                    let found = after(prior, &ids[start..]);
                    let best = (0..).zip(&found).max_by(|a, b| a.1.total_cmp(b.1));
                    best.unwrap().0
                }
            };
            ids.push(u32::try_from(expected).unwrap());
        }
        documents.keys.push(key);
        documents.lengths.push(length);
        documents.ids.extend(ids);
    }
    documents
}

/// The edit, token by token, as the paper has it.
fn reference(prior: &Prior, documents: &Documents, special: &[u32]) -> (Vec<u32>, EditCounts) {
    let mut edited = documents.ids.clone();
    let mut counts = EditCounts::default();
    for (key, place) in documents.places() {
        let ids = &documents.ids[place.clone()];
        for at in 1..ids.len() {
            let start = (at - 1) / CONTEXT * CONTEXT;
            let found = after(prior, &ids[start..at]);
            counts.predicted += 1;
            if found[ids[at] as usize] < RULE.threshold {
                continue;
            }
            counts.over += 1;
            if special.contains(&ids[at]) {
                continue;
            }
            counts.redrawn += 1;
            let allowed = |id: &usize| !special.contains(&u32::try_from(*id).unwrap());
            let of_allowed: f64 = (0..VOCABULARY).filter(allowed).map(|id| found[id]).sum();
            let uniform = Stream::editing(RULE.seed, key).uniform(at as u64);
            let mut sum = 0.0;
            let drawn = (0..VOCABULARY).filter(allowed).find(|id| {
                sum += found[*id] / of_allowed;
                sum > uniform
            });
            edited[place.start + at] = u32::try_from(drawn.unwrap()).unwrap();
            counts.changed += u64::from(edited[place.start + at] != ids[at]);
        }
    }
    (edited, counts)
}

#[test]
fn an_edit_is_that_of_the_plain_reference() {
    for special in [&[][..], &[3, 8, 20]] {
        let mut prior = prior(2, RULE, special);
        let documents = documents(&prior);
        let (expected, counts) = reference(&prior, &documents, special);
        let found = prior.edit(&documents).unwrap();
        assert_eq!(found, expected);
        assert_eq!(prior.measures().counts, counts);
        // The reference was given something to do.
        assert_eq!(counts.predicted, 200);
        assert!(counts.over > 60 && counts.changed > 2, "{counts:?}");
        assert_eq!(special.is_empty(), counts.over == counts.redrawn);
        for id in special {
            let places = |ids: &[u32]| ids.iter().filter(|other| *other == id).count();
            assert_eq!(places(&found), places(&documents.ids));
        }
    }
}

#[test]
fn perplexities_are_those_of_the_plain_reference() {
    let mut prior = prior(1, RULE, &[]);
    let documents = documents(&prior);
    let edited = prior.edit(&documents).unwrap();
    let measures = prior.measures();
    for (ids, found) in [(&documents.ids, measures.before), (&edited, measures.after)] {
        let (mut loss, mut tokens) = (0.0, 0);
        for (_, place) in documents.places() {
            let ids = &ids[place];
            for at in 1..ids.len() {
                let start = (at - 1) / CONTEXT * CONTEXT;
                loss -= after(&prior, &ids[start..at])[ids[at] as usize].ln();
                tokens += 1;
            }
        }
        let expected = (loss / exact_len(tokens)).exp();
        assert!((found.all / expected - 1.0).abs() < 1e-4, "{found:?}");
        // 63 tokens to predict are four pieces, 32 and 40 are two.
        assert_eq!(found.windows, 14);
    }
    assert_ne!(measures.before, measures.after);
}

#[test]
fn neither_threads_nor_order_nor_company_change_an_edit() {
    let mut alone = prior(1, RULE, &[]);
    let documents = documents(&alone);
    let expected = alone.edit(&documents).unwrap();
    for threads in [2, 4] {
        let mut prior = prior(threads, RULE, &[]);
        assert_eq!(prior.edit(&documents).unwrap(), expected);
        assert_eq!(prior.measures(), alone.measures());
    }
    let mut each = prior(2, RULE, &[]);
    let places: Vec<_> = documents.places().collect();
    let mut counts = EditCounts::default();
    for (key, place) in places.iter().rev() {
        let one = Documents {
            keys: vec![*key],
            lengths: vec![u32::try_from(place.len()).unwrap()],
            ids: documents.ids[place.clone()].to_vec(),
        };
        assert_eq!(each.edit(&one).unwrap(), expected[place.clone()]);
        counts = each.measures().counts;
    }
    assert_eq!(counts, alone.measures().counts);
    let [a, b] = [each.measures().after, alone.measures().after];
    assert_eq!((a.windows, a.p50.to_bits()), (b.windows, b.p50.to_bits()));
}

#[test]
fn above_one_nothing_is_edited_and_another_seed_edits_otherwise() {
    let measure = EditRule {
        threshold: 1.01,
        ..RULE
    };
    let mut none = prior(2, measure, &[]);
    let documents = documents(&none);
    assert_eq!(none.edit(&documents).unwrap(), documents.ids);
    let found = none.measures();
    assert_eq!((found.counts.over, found.counts.redrawn), (0, 0));
    assert_eq!(found.before, found.after);
    let edited = |seed| {
        let seed = Seed::new(seed);
        let mut prior = prior(2, EditRule { seed, ..RULE }, &[]);
        prior.edit(&documents).unwrap()
    };
    assert_eq!(edited(1), edited(1));
    assert_ne!(edited(1), edited(2));
}

#[test]
fn a_prior_that_always_says_the_most_probable_narrows_the_text() {
    let collapsing = EditRule {
        threshold: 1e-9,
        temperature: 1e-6,
        ..RULE
    };
    let mut prior = prior(2, collapsing, &[]);
    let documents = documents(&prior);
    let edited = prior.edit(&documents).unwrap();
    let measures = prior.measures();
    assert!(measures.counts.changed > 20, "{measures:?}");
    let different = |ids: &[u32]| {
        let pairs = ids.windows(2).map(<[u32]>::to_vec);
        pairs.collect::<std::collections::BTreeSet<_>>().len()
    };
    assert!(different(&edited) < different(&documents.ids));
}

#[test]
fn weights_that_are_not_finite_are_refused() {
    let mut prior = prior(1, RULE, &[]);
    let documents = documents(&prior);
    prior.bucket.iter_mut().for_each(|w| *w = f32::NAN);
    let message = prior.edit(&documents).unwrap_err().to_string();
    assert!(message.contains("run/best") && message.contains("not finite"));
}
