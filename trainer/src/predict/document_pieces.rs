//! Pieces of documents, each a row of its own, and the scores that a model of the next token gives them.
//!
//! A piece is a row in a part of a fixed number of rows of a fixed length that follows from the piece's. So neither threads
//! nor the order of documents nor the number of them decide a bit of its scores.

use std::{collections::BTreeMap, ops::Range};

use feedline_schemas::edit::Documents;

use crate::{
    data::samples::{ModelInputs, Samples, Targets},
    model::engine::ModelEngine,
};

/// Places of a part of a batch, unless a row has more.
const PART_TOKENS: usize = 1024;

/// Scores of a part, 64 MiB of them, unless a row has more.
const PART_SCORES: usize = 16 << 20;

/// Fewest places of a row.
const LEAST: usize = 16;

/// A part of a document, at most one token longer than the model reads: all but its first token are predicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DocumentPiece {
    /// Key of the document.
    pub(crate) key: u64,
    /// Place in the document of its first token.
    pub(crate) first: u64,
    /// Its range among the ids of all documents.
    pub(crate) ids: Range<usize>,
}

impl DocumentPiece {
    /// Tokens that are predicted, at least one.
    pub(crate) fn predicted(&self) -> usize {
        self.ids.len() - 1
    }
}

/// The pieces of documents, in order. Each token but the first of a document is predicted in one.
pub(crate) fn pieces(documents: &Documents, context: usize) -> Vec<DocumentPiece> {
    let mut pieces = Vec::new();
    for (key, place) in documents.places() {
        let mut start = place.start;
        while start + 1 < place.end {
            let end = place.end.min(start + context + 1);
            pieces.push(DocumentPiece {
                key,
                first: (start - place.start) as u64,
                ids: start..end,
            });
            start = end - 1;
        }
    }
    pieces
}

/// Pieces that make rows of one length, with padding behind them: a causal model does not see it.
#[derive(Clone, Debug)]
pub(crate) struct PieceRows {
    /// Places of a row.
    pub(crate) length: usize,
    /// Rows of a part. It follows from the length alone, as the bits of a product may depend on its shape.
    pub(crate) of_part: usize,
    /// The pieces.
    pub(crate) numbers: Vec<usize>,
}

impl PieceRows {
    /// Pieces by the length of their rows, the next power of two up to the context.
    pub(crate) fn of(pieces: &[DocumentPiece], [context, vocabulary]: [usize; 2]) -> Vec<Self> {
        let mut by_length: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (number, piece) in pieces.iter().enumerate() {
            let length = piece.predicted().next_power_of_two().max(LEAST);
            let numbers = by_length.entry(length.min(context)).or_default();
            numbers.push(number);
        }
        let tokens = (PART_SCORES / vocabulary).min(PART_TOKENS);
        let rows = by_length.into_iter().map(|(length, numbers)| Self {
            length,
            of_part: (tokens / length).max(1),
            numbers,
        });
        rows.collect()
    }

    /// Their ids, `[rows, length + 1]`; rows without a piece fill the last part.
    pub(crate) fn tokens(&self, ids: &[u32], pieces: &[DocumentPiece]) -> Vec<u32> {
        let width = self.length + 1;
        let rows = self.numbers.len().next_multiple_of(self.of_part);
        let mut tokens = vec![0; rows * width];
        for (row, number) in tokens.chunks_exact_mut(width).zip(&self.numbers) {
            let piece = &ids[pieces[*number].ids.clone()];
            row[..piece.len()].copy_from_slice(piece);
        }
        tokens
    }

    /// The parts, all of one size.
    pub(crate) fn parts(&self) -> Vec<Range<usize>> {
        let parts = 0..self.numbers.len().div_ceil(self.of_part);
        parts
            .map(|part| part * self.of_part..(part + 1) * self.of_part)
            .collect()
    }
}

/// A model of the next token with its weights.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LanguageModel<'a> {
    pub(crate) engine: &'a ModelEngine,
    pub(crate) bucket: &'a [f32],
    /// Most tokens that a score is conditioned on.
    pub(crate) context: usize,
    /// Number of ids.
    pub(crate) vocabulary: usize,
}

impl LanguageModel<'_> {
    /// Calls `visit` with each piece of `ids` and the scores after each of its tokens but the last,
    /// `[predicted, vocabulary]`; returns the results in the order of the pieces.
    pub(crate) fn each_piece<T: Send>(
        self,
        ids: &[u32],
        pieces: &[DocumentPiece],
        visit: impl Fn(&DocumentPiece, &[f32]) -> T + Sync,
    ) -> Vec<T> {
        let mut results: Vec<(usize, T)> = Vec::with_capacity(pieces.len());
        for rows in PieceRows::of(pieces, [self.context, self.vocabulary]) {
            let tokens = rows.tokens(ids, pieces);
            let inputs = ModelInputs {
                tokens: &tokens,
                length: rows.length + 1,
                ..ModelInputs::default()
            };
            let count = tokens.len() / inputs.length;
            let samples = Samples::new(count, inputs, Targets::None);
            let visit = |part: usize, scores: Vec<f32>| -> Vec<(usize, T)> {
                let scores = scores.chunks_exact(rows.length * self.vocabulary);
                let numbers = rows.numbers.chunks(rows.of_part).nth(part);
                let each = numbers.unwrap_or_default().iter().zip(scores);
                let each = each.map(|(number, scores)| {
                    let piece = &pieces[*number];
                    let scores = &scores[..piece.predicted() * self.vocabulary];
                    (*number, visit(piece, scores))
                });
                each.collect()
            };
            let take = |part: Vec<(usize, T)>| results.extend(part);
            self.engine
                .outputs(self.bucket, samples, &rows.parts(), visit, take);
        }
        results.sort_unstable_by_key(|(number, _)| *number);
        results.into_iter().map(|(_, result)| result).collect()
    }

    /// The scores and `-ln p` of each token that a piece of `ids` predicts, by `scores`, `[predicted, vocabulary]`.
    pub(crate) fn losses<'a>(
        self,
        ids: &'a [u32],
        piece: &'a DocumentPiece,
        scores: &'a [f32],
    ) -> impl Iterator<Item = (&'a [f32], f64)> {
        let next = &ids[piece.ids.start + 1..piece.ids.end];
        let each = scores.chunks_exact(self.vocabulary).zip(next);
        each.map(|(scores, id)| (scores, log_sum(scores) - f64::from(scores[*id as usize])))
    }
}

/// Logarithm of the sum of the exponentials of scores.
pub(crate) fn log_sum(scores: &[f32]) -> f64 {
    let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = scores.iter().map(|s| f64::from((s - largest).exp())).sum();
    f64::from(largest) + sum.ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn documents(lengths: &[u32]) -> Documents {
        Documents {
            keys: (0..lengths.len() as u64).collect(),
            lengths: lengths.to_vec(),
            ids: (0..lengths.iter().sum()).collect(),
        }
    }

    #[test]
    fn each_token_but_the_first_of_a_document_is_predicted_once() {
        for context in [1, 2, 5, 16, 100] {
            let documents = documents(&[0, 1, 2, 3, 50, 0, 17, 16, 33]);
            let mut predicted: Vec<usize> = Vec::new();
            for piece in pieces(&documents, context) {
                assert!((1..=context).contains(&piece.predicted()));
                let (_, place) = documents
                    .places()
                    .find(|(key, _)| *key == piece.key)
                    .unwrap();
                assert_eq!(piece.first, (piece.ids.start - place.start) as u64);
                assert!(piece.ids.end <= place.end);
                predicted.extend(piece.ids.start + 1..piece.ids.end);
            }
            let all = documents
                .places()
                .flat_map(|(_, place)| place.start + 1..place.end);
            assert_eq!(predicted, all.collect::<Vec<_>>(), "context {context}");
        }
    }

    #[test]
    fn rows_are_as_long_as_the_next_power_of_two_and_parts_are_full() {
        let documents = documents(&[18, 3, 34, 200, 17, 90]);
        let pieces = pieces(&documents, 100);
        let rows = PieceRows::of(&pieces, [100, 500]);
        let found: Vec<_> = rows
            .iter()
            .map(|rows| (rows.length, rows.of_part, rows.numbers.len()))
            .collect();
        // 17, 2, 33, 100, 99, 16 and 89 tokens to predict.
        assert_eq!(found, [(16, 64, 2), (32, 32, 1), (64, 16, 1), (100, 10, 3)]);
        let tokens = rows[1].tokens(&documents.ids, &pieces);
        assert_eq!(tokens.len(), 32 * 33);
        assert_eq!(tokens[..18], documents.ids[..18]);
        assert!(tokens[18..].iter().all(|id| *id == 0));
        assert_eq!((rows[1].parts().len(), &rows[1].parts()[0]), (1, &(0..32)));
    }

    #[test]
    fn a_large_vocabulary_makes_small_parts() {
        let documents = documents(&[2000]);
        let pieces = pieces(&documents, 256);
        let rows = PieceRows::of(&pieces, [256, 50_000]);
        assert_eq!(rows.last().unwrap().of_part, 1);
        assert_eq!(rows.last().unwrap().parts().len(), 8);
    }

    #[test]
    fn log_sum_is_that_of_the_probabilities_times_a_number() {
        let scores = [0.25_f32, 0.75].map(|p| p.ln() + 5.0);
        assert!((log_sum(&scores) - 5.0).abs() < 1e-6);
        assert!((log_sum(&[1000.0, 1000.0]) - (1000.0 + 2.0_f64.ln())).abs() < 1e-6);
        assert!(!log_sum(&[f32::NAN, 1.0]).is_finite() || log_sum(&[f32::NAN]).is_nan());
    }
}
