//! Scores of new texts by a trained model of the next token.
//!
//! Each text is scored alone: its first token has nothing before it and so no probability. A text longer than the model reads
//! is divided into pieces that overlap by a token, as in training, so every further token is predicted once. A text has the
//! same bits alone, among a million, and on any number of threads.

use feedline_schemas::{edit::Documents, ids::Hash128, report::Warning};

use crate::{
    Context, Group,
    checkpoint::run_folder::runtime,
    error::Error,
    float_casts::exact_len,
    model::{engine::ModelEngine, interface::Shape},
    predict::{
        choose_model::{ChosenRun, KeptModel},
        document_pieces::{LanguageModel, pieces},
    },
    reporting::paths::TOKENIZER_PATH,
};

/// A trained model of the next token, used on new texts.
#[derive(Debug)]
pub struct TextScorer {
    engine: ModelEngine,
    bucket: Vec<f32>,
    context: usize,
    vocabulary: usize,
    run: String,
    checkpoint: String,
    /// Warnings of the files that the weights are from.
    warnings: Vec<Warning>,
}

/// Opens the best weights of a run on texts, with the number of tokens that its model reads and of ids that it knows.
/// `done` is the use of texts, for the error.
///
/// # Errors
/// [`Error::NoCheckpoint`] for a run without weights; [`Error::Config`] for a model that does not predict the next token;
/// errors of storage.
pub(crate) fn open_language_model(
    chosen: &ChosenRun,
    context: &Context,
    done: &str,
) -> Result<(KeptModel, [usize; 2]), Error> {
    let context = &Context {
        group: Group::alone(),
        ..context.clone()
    };
    let runtime = runtime()?;
    let _runtime = runtime.enter();
    let kept = KeptModel::open(chosen, None, None, context, &runtime)?;
    let Shape::Tokens { length, vocabulary } = kept.plan.shape() else {
        let reason = format!(
            "it does not predict the next token of a text; texts are {done} by models on `dataset.kind = \"tokens\"` or \
             `\"characters\"`"
        );
        return Err(crate::error::config("model.type", reason));
    };
    Ok((kept, [length, vocabulary]))
}

impl TextScorer {
    /// Opens the best weights of a run. Blocks.
    ///
    /// # Errors
    /// [`Error::NoCheckpoint`] for a run without weights; [`Error::Config`] for a model that does not predict the next token;
    /// what storage says.
    pub fn of_run(chosen: &ChosenRun, context: &Context) -> Result<Self, Error> {
        let (kept, [context, vocabulary]) = open_language_model(chosen, context, "scored")?;
        Ok(Self {
            engine: kept.engine,
            bucket: kept.bucket,
            context,
            vocabulary,
            run: chosen.used().name.clone(),
            checkpoint: kept.checkpoint,
            warnings: kept.warnings,
        })
    }

    /// Name of the run.
    #[must_use]
    pub fn run(&self) -> &str {
        &self.run
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

    /// Number of ids that the model knows.
    #[must_use]
    pub const fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// The mean of `-ln p` over all tokens of each text but its first; `None` for one of fewer than two tokens, not finite
    /// where the model overflows. Blocks; takes memory for the scores of about a thousand tokens on each thread.
    ///
    /// # Panics
    /// For ids beyond the vocabulary.
    #[must_use]
    pub fn score(&self, texts: &Documents) -> Vec<Option<f64>> {
        let model = LanguageModel {
            engine: &self.engine,
            bucket: &self.bucket,
            context: self.context,
            vocabulary: self.vocabulary,
        };
        // Keys are places, so that a piece finds its text.
        let texts = &Documents {
            keys: (0..texts.lengths.len() as u64).collect(),
            ..texts.clone()
        };
        let pieces = pieces(texts, self.context);
        let losses = model.each_piece(&texts.ids, &pieces, |piece, scores| -> f64 {
            let losses = model.losses(&texts.ids, piece, scores);
            losses.map(|(_, loss)| loss).sum()
        });
        let mut sums = vec![(0.0, 0); texts.lengths.len()];
        for (piece, loss) in pieces.iter().zip(losses) {
            let place = usize::try_from(piece.key).expect("keys are places of texts");
            sums[place].0 += loss;
            sums[place].1 += piece.predicted();
        }
        let mean = |(sum, count): (f64, usize)| (count > 0).then(|| sum / exact_len(count));
        sums.into_iter().map(mean).collect()
    }
}

impl ChosenRun {
    /// The `tokenizer.json` that made the ids which its model was trained on; `None` where the run has no copy of it. Blocks.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn tokenizer(&self, context: &Context) -> Result<Option<Vec<u8>>, Error> {
        let Some(tokens) = &self.transform().tokens else {
            return Ok(None);
        };
        let folder = context.runs.child(&self.used().name);
        let found = runtime()?.block_on(folder.get_opt(TOKENIZER_PATH))?;
        let found = found.filter(|file| Hash128::of(file) == tokens.tokenizer);
        Ok(found.map(|file| file.to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use feedline_schemas::{
        config::{LossKind, ModelConfig, ModelKind, TrainConfig},
        ids::Seed,
    };

    use super::*;
    use crate::{data::samples::Targets, model::models, predict::document_pieces::log_sum};

    const CONTEXT: usize = 20;
    const VOCABULARY: usize = 30;

    fn scorer(kind: ModelKind, threads: usize) -> TextScorer {
        let model = ModelConfig {
            r#type: kind,
            context: Some(20),
            layers: Some(1),
            width: Some(16),
            heads: (kind == ModelKind::Transformer).then_some(2),
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
        let bucket = model.initial(Seed::new(5));
        TextScorer {
            engine: ModelEngine::with_threads(model, LossKind::CrossEntropy.into(), threads),
            bucket,
            context: CONTEXT,
            vocabulary: VOCABULARY,
            run: "run".into(),
            checkpoint: "checkpoint".into(),
            warnings: Vec::new(),
        }
    }

    fn texts(lengths: &[u32]) -> Documents {
        let all: u32 = lengths.iter().sum();
        Documents {
            keys: vec![7; lengths.len()],
            lengths: lengths.to_vec(),
            ids: (0..all).map(|i| i * 7919 % 29).collect(),
        }
    }

    fn bits(scores: &[Option<f64>]) -> Vec<Option<u64>> {
        scores.iter().map(|score| score.map(f64::to_bits)).collect()
    }

    #[test]
    fn a_text_has_the_same_bits_alone_and_among_others_on_any_threads() {
        for kind in [ModelKind::Transformer, ModelKind::Lstm] {
            let texts = texts(&[0, 1, 2, 9, 21, 22, 130, 3, 17, 64]);
            let together = scorer(kind, 1).score(&texts);
            assert_eq!(together[..2], [None, None]);
            assert!(together[2..].iter().flatten().all(|loss| *loss > 0.5));
            assert_eq!(together.iter().flatten().count(), 8);
            let other = scorer(kind, 3);
            let mut alone = Vec::new();
            for (_, place) in texts.places() {
                let ids = texts.ids[place].to_vec();
                let one = Documents {
                    keys: vec![0],
                    lengths: vec![u32::try_from(ids.len()).unwrap()],
                    ids,
                };
                alone.extend(other.score(&one));
            }
            assert_eq!(bits(&alone), bits(&together));
        }
    }

    #[test]
    fn the_loss_of_a_text_that_fits_is_that_of_one_pass() {
        let scorer = scorer(ModelKind::Transformer, 1);
        // One more than the model reads: all of it is one row.
        let texts = texts(&[21]);
        let inputs = crate::data::samples::ModelInputs {
            tokens: &texts.ids,
            length: 21,
            ..crate::data::samples::ModelInputs::default()
        };
        let samples = crate::data::samples::Samples::new(1, inputs, Targets::None);
        let scores = scorer.engine.all_outputs(&scorer.bucket, samples);
        let each = scores.chunks_exact(VOCABULARY).zip(&texts.ids[1..]);
        let losses = each.map(|(row, id)| log_sum(row) - f64::from(row[*id as usize]));
        let expected = losses.sum::<f64>() / 20.0;
        let found = scorer.score(&texts)[0].unwrap();
        assert!((found - expected).abs() < 1e-5, "{found} {expected}");
    }
}
