//! Names of the files that describe those with rows.

/// Name of the transform artefact of an exported dataset.
pub(super) const TRANSFORM: &str = "_feedline_transform.json";
/// Name of the tokenizer of an exported dataset.
pub(super) const TOKENIZER: &str = "_feedline_tokenizer.json";
/// Name of the card.
pub(super) const CARD: &str = "README.md";
/// Name of the index in the folder of a part.
pub(super) const INDEX: &str = "index.json";
