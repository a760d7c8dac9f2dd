//! Texts edited by a trained model: token-level editing of Zhu et al. 2024, "How to Synthesize Text
//! Data without Model Collapse?" (arXiv 2412.14689, algorithm 1). A token whose probability is at
//! or over a threshold is redrawn from the model's distribution; all others stay.
//!
//! As in the paper there is one pass, and every probability is conditioned on the original tokens
//! before it. Documents are independent. One longer than the model reads is split into pieces that
//! overlap by a token, as in training, so that each token but a document's first is predicted once;
//! that one has no probability and stays. Special tokens are neither edited nor drawn.
//!
//! A piece is a row of its own, in a part of a fixed number of rows of a fixed length that follows from the piece's. What
//! is drawn for a token depends on the seed, the document's key and the token's place in it. So neither threads nor the
//! order of documents nor how they come together decide anything.

mod draw;
mod perplexity;
#[cfg(test)]
mod tests;

use feedline_schemas::{
    config::{ModelKind, TrainConfig},
    edit::{Documents, EditCounts, EditMeasures, EditRule, PriorReference},
    ids::Hash128,
    manifest::Split,
    report::Warning,
};

use self::{draw::Draw, perplexity::PerplexityHistogram};
use crate::{
    Context, Group,
    error::Error,
    evaluation::evaluate,
    model::{engine::ModelEngine, interface::Shape},
    predict::document_pieces::{DocumentPiece, LanguageModel, pieces},
    session::opened_dataset::OpenedDataset,
};

/// A trained model that edits texts, and what it found in those it was given.
#[derive(Debug)]
pub struct Prior {
    engine: ModelEngine,
    bucket: Vec<f32>,
    context: usize,
    vocabulary: usize,
    draw: Draw,
    reference: PriorReference,
    /// URL of the weights, for messages.
    checkpoint: String,
    /// Warnings of damaged checkpoints, and of weights of before the end of the run.
    warnings: Vec<Warning>,
    counts: EditCounts,
    before: PerplexityHistogram,
    after: PerplexityHistogram,
}

/// Result of the model for a piece.
#[derive(Clone, Debug, Default)]
struct PieceResult {
    /// Sum of `-ln p`.
    loss: f64,
    over: u64,
    /// Place in all ids and what was drawn for it.
    redrawn: Vec<(usize, u32)>,
}

impl Prior {
    /// Opens the best weights of the run that `config` and the dataset it was trained on name. Ids in `special` are neither
    /// edited nor drawn. Blocks.
    ///
    /// # Errors
    /// [`Error::Config`] for a rule that cannot be followed, and for a model that is no `transformer`;
    /// [`Error::NoCheckpoint`] when nothing was trained yet; what dataset and storage say.
    pub fn open(
        config: &TrainConfig,
        rule: EditRule,
        special: &[u32],
        context: &Context,
    ) -> Result<Self, Error> {
        let draw = Draw::new(rule, special)?;
        if config.model.r#type != ModelKind::Transformer {
            let reason = "only a `transformer` gives the probability of each token of a text; train one to edit texts";
            return Err(crate::error::config("model.type", reason));
        }
        let context = &Context {
            group: Group::alone(),
            ..context.clone()
        };
        let opened = OpenedDataset::open(config, context, &[Split::Train])?;
        let _runtime = opened.runtime.enter();
        let engine = opened.engine(None)?;
        let (checkpoint, snapshot, warnings) = evaluate::best(&opened, &engine)?;
        let Shape::Tokens { length, vocabulary } = opened.plan.shape() else {
            return Err(crate::error::config(
                "model.type",
                crate::model::models::ON_TOKENS,
            ));
        };
        let bucket = snapshot.best.unwrap_or(snapshot.parameters);
        let named = (opened.name(), checkpoint);
        Ok(Self {
            warnings,
            ..Self::new(engine, bucket, [length, vocabulary], draw, named)
        })
    }

    fn new(
        engine: ModelEngine,
        bucket: Vec<f32>,
        [context, vocabulary]: [usize; 2],
        draw: Draw,
        (run, checkpoint): (String, String),
    ) -> Self {
        let bytes: Vec<u8> = bucket.iter().flat_map(|w| w.to_le_bytes()).collect();
        let reference = PriorReference {
            run,
            weights: Hash128::of(&bytes),
            context: u32::try_from(context).unwrap_or(u32::MAX),
        };
        Self {
            engine,
            bucket,
            context,
            vocabulary,
            draw,
            reference,
            checkpoint,
            warnings: Vec::new(),
            counts: EditCounts::default(),
            before: PerplexityHistogram::default(),
            after: PerplexityHistogram::default(),
        }
    }

    /// Reference to the model.
    #[must_use]
    pub const fn reference(&self) -> &PriorReference {
        &self.reference
    }

    /// Warnings of damaged or missing files of the weights.
    #[must_use]
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// The ids of `documents` after the edit, as many, in their order. Blocks; takes memory for the scores of about a
    /// thousand tokens on each thread, whatever there is to edit.
    ///
    /// # Errors
    /// [`Error::Damaged`] for weights whose scores are not finite.
    ///
    /// # Panics
    /// For ids beyond the vocabulary.
    pub fn edit(&mut self, documents: &Documents) -> Result<Vec<u32>, Error> {
        let pieces = pieces(documents, self.context);
        let found = self
            .model()
            .each_piece(&documents.ids, &pieces, |piece, scores| {
                self.look(&documents.ids, piece, scores)
            });
        let mut ids = documents.ids.clone();
        for (place, id) in found.iter().flat_map(|found| &found.redrawn) {
            ids[*place] = *id;
        }
        let is_other =
            |piece: &&DocumentPiece| ids[piece.ids.clone()] != documents.ids[piece.ids.clone()];
        let other: Vec<DocumentPiece> = pieces.iter().filter(is_other).cloned().collect();
        let losses = self.model().each_piece(&ids, &other, |piece, scores| {
            self.model()
                .losses(&ids, piece, scores)
                .map(|(_, loss)| loss)
                .sum()
        });
        let mut losses = losses.into_iter();
        for (piece, found) in pieces.iter().zip(&found) {
            let after: f64 = match is_other(&piece) {
                true => losses.next().unwrap_or(f64::NAN),
                false => found.loss,
            };
            let places = piece.predicted();
            self.before.add(found.loss, places);
            self.after.add(after, places);
            if !(found.loss + after).is_finite() {
                return Err(Error::Damaged {
                    url: self.checkpoint.clone(),
                    reason: "the scores that it gives tokens are not finite".into(),
                });
            }
            self.count(found, places, &documents.ids);
        }
        Ok(ids)
    }

    fn count(&mut self, found: &PieceResult, predicted: usize, before: &[u32]) {
        let changed = found.redrawn.iter().filter(|(at, id)| before[*at] != *id);
        self.counts.predicted += predicted as u64;
        self.counts.over += found.over;
        self.counts.redrawn += found.redrawn.len() as u64;
        self.counts.changed += changed.count() as u64;
    }

    /// Measures of all documents so far.
    #[must_use]
    pub fn measures(&self) -> EditMeasures {
        EditMeasures {
            counts: self.counts,
            before: self.before.perplexities(),
            after: self.after.perplexities(),
        }
    }

    /// The model.
    fn model(&self) -> LanguageModel<'_> {
        LanguageModel {
            engine: &self.engine,
            bucket: &self.bucket,
            context: self.context,
            vocabulary: self.vocabulary,
        }
    }

    /// Measures a piece, and draws its tokens.
    fn look(&self, ids: &[u32], piece: &DocumentPiece, scores: &[f32]) -> PieceResult {
        let mut found = PieceResult::default();
        for (i, (scores, loss)) in self.model().losses(ids, piece, scores).enumerate() {
            found.loss += loss;
            if (-loss).exp() < self.draw.threshold() || !loss.is_finite() {
                continue;
            }
            found.over += 1;
            let place = piece.ids.start + 1 + i;
            let at = piece.first + 1 + i as u64;
            let drawn = self.draw.other(scores, ids[place], piece.key, at);
            found.redrawn.extend(drawn.map(|id| (place, id)));
        }
        found
    }
}
