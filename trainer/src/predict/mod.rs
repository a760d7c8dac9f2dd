//! Use of trained models: predictions, generated and edited texts, scores of texts.

pub(crate) mod choose_model;
pub(crate) mod document_pieces;
pub(crate) mod edit;
pub(crate) mod generate;
pub(crate) mod predictor;
pub(crate) mod text_scores;
pub(crate) mod token_sampling;
