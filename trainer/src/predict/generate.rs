//! Texts continued by a trained model of the next token.
//!
//! A model reads at most so many tokens as it was trained with. A text that grows longer is continued from its last tokens:
//! half as many, whose keys and values are computed again. What is drawn for a token depends on the seed, the number of the
//! text and the token's place in it.

use burn::tensor::Tensor;
use feedline_schemas::{
    ids::Seed,
    report::{GeneratedEnd, GeneratingRule, Warning},
};

use crate::{
    Context,
    error::Error,
    model::{engine::ModelEngine, layers::KeyValueCache},
    predict::{
        choose_model::ChosenRun, text_scores::open_language_model, token_sampling::Sampling,
    },
    random::Stream,
};

/// A trained model of the next token that continues texts.
#[derive(Debug)]
pub struct TextGenerator {
    engine: ModelEngine,
    weights: Vec<Tensor<1>>,
    context: usize,
    vocabulary: usize,
    checkpoint: String,
    /// Warnings of the files that the weights are from.
    warnings: Vec<Warning>,
}

/// Ids with a meaning of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpecialIds {
    /// Id that ends a text.
    pub end: Option<u32>,
    /// Other ids that are never drawn, such as that of an unknown character.
    pub never: Vec<u32>,
}

/// Continuation of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Continuation {
    /// Ids after those of the prompt, without the one that ends a text.
    pub ids: Vec<u32>,
    /// Reason why it ends.
    pub end: GeneratedEnd,
    /// Tokens of the prompt that the model did not read, because it reads no more.
    pub unread: usize,
    /// Number of times that the text was too long, and was continued from its last tokens.
    pub shifts: u64,
}

impl TextGenerator {
    /// Opens the best weights of a run. Blocks.
    ///
    /// # Errors
    /// [`Error::NoCheckpoint`] for a run without weights; [`Error::Config`] for a model that does not predict the next token;
    /// what storage says.
    pub fn of_run(chosen: &ChosenRun, context: &Context) -> Result<Self, Error> {
        let (kept, sizes) = open_language_model(chosen, context, "continued")?;
        Ok(Self {
            warnings: kept.warnings,
            ..Self::new(kept.engine, &kept.bucket, sizes, kept.checkpoint)
        })
    }

    fn new(
        engine: ModelEngine,
        bucket: &[f32],
        [context, vocabulary]: [usize; 2],
        checkpoint: String,
    ) -> Self {
        Self {
            weights: engine.weights(bucket),
            engine,
            context,
            vocabulary,
            checkpoint,
            warnings: Vec::new(),
        }
    }

    /// URL of the weights.
    #[must_use]
    pub fn checkpoint(&self) -> &str {
        &self.checkpoint
    }

    /// Warnings of damaged or missing files of the weights.
    #[must_use]
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// Most tokens that the model reads.
    #[must_use]
    pub const fn context(&self) -> usize {
        self.context
    }

    /// Number of ids that the model knows.
    #[must_use]
    pub const fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// Continues the ids of a prompt, which is the text with number `text`, by up to `rule.tokens` tokens. `each` gets every
    /// token as soon as it is drawn, and ends the text by returning `false`. Blocks.
    ///
    /// # Errors
    /// [`Error::Config`] for a rule with a value out of range and for a prompt without a token; [`Error::Damaged`] for weights
    /// whose scores are not finite.
    ///
    /// # Panics
    /// For ids beyond the vocabulary.
    pub fn generate(
        &self,
        prompt: &[u32],
        text: u64,
        rule: &GeneratingRule,
        special: &SpecialIds,
        each: &mut dyn FnMut(u32) -> bool,
    ) -> Result<Continuation, Error> {
        let sampling = sampling(rule)?;
        if prompt.is_empty() {
            return Err(Error::Config {
                key: "--prompt".to_owned(),
                reason: "it has no token to continue; give at least one character".to_owned(),
            });
        }
        let stream = Stream::generating(Seed::new(rule.seed), text);
        let mut never = special.never.clone();
        never.sort_unstable();
        let allowed = |id: u32| special.end == Some(id) || never.binary_search(&id).is_err();
        let mut ids = prompt.to_vec();
        let mut begin = ids.len().saturating_sub(self.context);
        let mut found = Continuation {
            ids: Vec::new(),
            end: GeneratedEnd::Length,
            unread: begin,
            shifts: 0,
        };
        let mut cache = KeyValueCache::default();
        for place in 0..rule.tokens {
            if ids.len() - begin > self.context {
                begin = ids.len() - self.context.div_ceil(2);
                cache = KeyValueCache::default();
                found.shifts += 1;
            }
            let scores = self
                .engine
                .next_scores(&self.weights, &ids[begin..], &mut cache);
            if scores.iter().any(|score| !score.is_finite()) {
                return Err(Error::Damaged {
                    url: self.checkpoint.clone(),
                    reason: "the scores that it gives tokens are not finite".into(),
                });
            }
            let drawn = sampling.draw(&scores, allowed, stream.uniform(u64::from(place)));
            let Some(id) = drawn else {
                return Err(Error::Config {
                    key: "dataset.tokens".to_owned(),
                    reason: "all of its tokens are special ones, so there is none to draw"
                        .to_owned(),
                });
            };
            if special.end == Some(id) {
                found.end = GeneratedEnd::EndOfText;
                break;
            }
            ids.push(id);
            found.ids.push(id);
            if !each(id) {
                found.end = GeneratedEnd::Stopped;
                break;
            }
        }
        Ok(found)
    }
}

fn sampling(rule: &GeneratingRule) -> Result<Sampling, Error> {
    Sampling::new(rule.temperature, rule.top_k, rule.top_p)
}

/// Checks a rule that texts are generated by.
///
/// # Errors
/// [`Error::Config`] for a value out of range.
pub fn check_rule(rule: &GeneratingRule) -> Result<(), Error> {
    sampling(rule).map(|_| ())
}

#[cfg(test)]
mod tests {
    use feedline_schemas::config::{
        ActivationKind, LossKind, ModelConfig, ModelKind, NormKind, PositionKind, TrainConfig,
    };

    use super::*;
    use crate::model::{interface::Shape, models};

    const CONTEXT: usize = 12;
    const VOCABULARY: usize = 30;

    fn plain(kind: ModelKind) -> ModelConfig {
        ModelConfig {
            r#type: kind,
            context: Some(12),
            layers: Some(2),
            width: Some(16),
            heads: (kind == ModelKind::Transformer).then_some(4),
            ..ModelConfig::default()
        }
    }

    fn rotary() -> ModelConfig {
        ModelConfig {
            kv_heads: Some(2),
            positions: Some(PositionKind::Rotary),
            norm: Some(NormKind::Rms),
            activation: Some(ActivationKind::Swiglu),
            bias: Some(false),
            ..plain(ModelKind::Transformer)
        }
    }

    fn generator(model: ModelConfig) -> TextGenerator {
        let config = TrainConfig {
            model,
            ..TrainConfig::default()
        };
        let shape = Shape::Tokens {
            length: CONTEXT,
            vocabulary: VOCABULARY,
        };
        let model = models::build(&models::filled(&config), shape, VOCABULARY).unwrap();
        // Far from the initial weights, with which all tokens are about equally probable.
        let mut bucket = model.initial(Seed::new(5));
        let noise = crate::testing::uniform(bucket.len(), 7);
        for (weight, noise) in bucket.iter_mut().zip(noise) {
            *weight += 0.3 * noise;
        }
        let engine = ModelEngine::with_threads(model, LossKind::CrossEntropy.into(), 1);
        let sizes = [CONTEXT, VOCABULARY];
        TextGenerator::new(engine, &bucket, sizes, "checkpoint".into())
    }

    const GREEDY: GeneratingRule = GeneratingRule {
        tokens: 30,
        temperature: 0.0,
        top_k: None,
        top_p: None,
        seed: 1,
    };

    fn continued(
        generator: &TextGenerator,
        prompt: &[u32],
        rule: &GeneratingRule,
        special: &SpecialIds,
    ) -> Continuation {
        let mut seen = Vec::new();
        let found = generator.generate(prompt, 0, rule, special, &mut |id| {
            seen.push(id);
            true
        });
        let found = found.unwrap();
        assert_eq!(found.ids, seen);
        found
    }

    /// Scores after `ids` by a whole pass.
    fn whole(generator: &TextGenerator, ids: &[u32]) -> Vec<f32> {
        let tokens = [ids, &[0]].concat();
        let inputs = crate::data::samples::ModelInputs {
            tokens: &tokens,
            length: tokens.len(),
            ..crate::data::samples::ModelInputs::default()
        };
        let samples =
            crate::data::samples::Samples::new(1, inputs, crate::data::samples::Targets::None);
        let device = generator.engine.device();
        let input = crate::model::input::tensors(
            samples,
            &crate::model::input::Normalisation::default(),
            device,
        );
        let model = generator.engine.model();
        let mut pass = crate::model::layers::Pass::new(model.layout(), &generator.weights, None);
        let scores = crate::device::numbers(model.forward(&mut pass, &input));
        scores[(ids.len() - 1) * VOCABULARY..].to_vec()
    }

    #[test]
    fn scores_with_kept_keys_and_values_are_those_of_a_whole_pass() {
        let models = [
            plain(ModelKind::Transformer),
            rotary(),
            plain(ModelKind::Lstm),
        ];
        for model in models {
            let has_cache = model.r#type == ModelKind::Transformer;
            let generator = generator(model);
            let ids: Vec<u32> = (0..12).map(|i| i * 7919 % 29).collect();
            let mut cache = KeyValueCache::default();
            // A prompt of several ids, several more, then one at a time.
            for end in [4, 7, 8, 9, 10, 11, 12] {
                let found =
                    generator
                        .engine
                        .next_scores(&generator.weights, &ids[..end], &mut cache);
                assert_eq!(cache.length(), if has_cache { end } else { 0 });
                let expected = whole(&generator, &ids[..end]);
                assert_eq!(found.len(), VOCABULARY);
                for (found, expected) in found.iter().zip(&expected) {
                    assert!((found - expected).abs() < 1e-4, "{found} {expected}");
                }
            }
        }
    }

    #[test]
    fn without_temperature_each_token_is_the_most_probable_one() {
        for model in [plain(ModelKind::Transformer), rotary()] {
            let generator = generator(model);
            let rule = GeneratingRule {
                tokens: 9,
                ..GREEDY
            };
            let prompt = [3, 1, 4];
            let found = continued(&generator, &prompt, &rule, &SpecialIds::default());
            assert_eq!(found.end, GeneratedEnd::Length);
            assert_eq!((found.ids.len(), found.shifts, found.unread), (9, 0, 0));
            let mut ids = prompt.to_vec();
            for id in found.ids {
                let scores = whole(&generator, &ids);
                let best = crate::evaluation::metrics::largest(&scores);
                assert_eq!(Some(id as usize), best);
                ids.push(id);
            }
        }
    }

    #[test]
    fn a_text_beyond_the_context_is_continued_from_half_of_it() {
        let generator = generator(rotary());
        let found = continued(&generator, &[3, 1, 4], &GREEDY, &SpecialIds::default());
        // 33 tokens: after 13, 20 and 27 only the last 6 are read on.
        assert_eq!((found.ids.len(), found.shifts), (30, 3));
        let ids = [&[3, 1, 4], &found.ids[..]].concat();
        let scores = whole(&generator, &ids[13 - 6..13]);
        let best = crate::evaluation::metrics::largest(&scores);
        assert_eq!(Some(ids[13] as usize), best);
        let long: Vec<u32> = (0..20).map(|i| i * 7919 % 29).collect();
        let cut = continued(&generator, &long, &GREEDY, &SpecialIds::default());
        let last = continued(&generator, &long[8..], &GREEDY, &SpecialIds::default());
        assert_eq!((cut.unread, last.unread), (8, 0));
        assert_eq!(cut.ids, last.ids);
    }

    #[test]
    fn a_text_ends_where_its_end_is_drawn_and_special_tokens_are_not() {
        let generator = generator(plain(ModelKind::Transformer));
        let free = continued(&generator, &[3, 1, 4], &GREEDY, &SpecialIds::default());
        let (at, end) = (free.ids.len() / 2, free.ids[free.ids.len() / 2]);
        let at = free.ids.iter().position(|id| *id == end).unwrap_or(at);
        let special = SpecialIds {
            end: Some(end),
            never: vec![end],
        };
        let ended = continued(&generator, &[3, 1, 4], &GREEDY, &special);
        assert_eq!(ended.end, GeneratedEnd::EndOfText);
        assert_eq!(ended.ids, free.ids[..at]);
        let never = SpecialIds {
            end: None,
            never: vec![free.ids[0]],
        };
        let without = continued(&generator, &[3, 1, 4], &GREEDY, &never);
        assert_eq!(without.ids.len(), 30);
        assert!(!without.ids.contains(&free.ids[0]));
    }

    #[test]
    fn texts_follow_from_the_seed_and_their_number() {
        let generator = generator(rotary());
        let of = |seed, text| {
            let rule = GeneratingRule {
                temperature: 1.0,
                seed,
                ..GREEDY
            };
            let special = SpecialIds::default();
            let found = generator.generate(&[3, 1, 4], text, &rule, &special, &mut |_| true);
            found.unwrap().ids
        };
        assert_eq!(of(1, 0), of(1, 0));
        assert_ne!(of(1, 0), of(1, 1));
        assert_ne!(of(1, 0), of(2, 0));
        let stopped = generator.generate(&[3], 0, &GREEDY, &SpecialIds::default(), &mut |_| false);
        let stopped = stopped.unwrap();
        assert_eq!((stopped.ids.len(), stopped.end), (1, GeneratedEnd::Stopped));
    }

    #[test]
    fn a_prompt_without_a_token_is_refused() {
        let generator = generator(rotary());
        let special = SpecialIds::default();
        let refused = generator.generate(&[], 0, &GREEDY, &special, &mut |_| true);
        let message = refused.unwrap_err().to_string();
        assert!(message.contains("`--prompt`"), "{message}");
    }
}
