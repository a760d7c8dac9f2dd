//! Edited texts: a dataset with some tokens of its training documents redrawn by a trained model.
//!
//! Token-level editing of Zhu et al. 2024, "How to Synthesize Text Data without Model Collapse?" (arXiv 2412.14689): a token
//! that the model gives a probability at or over a threshold is drawn from the model's distribution, all others stay.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::{Hash128, Seed};

/// Origin of an edited dataset, and its comparison with the original.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EditReference {
    /// Fingerprint of the dataset that was edited. All but the documents of its training split is as it was.
    pub source: Hash128,
    /// Rule that selects and redraws tokens.
    pub rule: EditRule,
    /// The model.
    pub prior: PriorReference,
    /// Counts of the tokens of the training split.
    pub counts: EditCounts,
    /// The training split before.
    pub before: TextFigures,
    /// The training split after.
    pub after: TextFigures,
}

/// Rule that selects and redraws tokens.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EditRule {
    /// Least probability of a token that is redrawn; above 1 nothing is, and the text is only
    /// measured.
    pub threshold: f64,
    /// Divisor of the scores before a token is drawn: 1 is the model's own distribution, 0 takes its
    /// most probable token. The threshold is for the model's own distribution.
    pub temperature: f64,
    /// Most tokens to draw from, the most probable ones; all of them when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_k: Option<u32>,
    /// Share of the probability to draw from, 0 to 1: the fewest tokens, most probable first, that have it; all of them
    /// when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// Seed of what is drawn.
    pub seed: Seed,
}

/// The model that gives the probabilities.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PriorReference {
    /// Name of its run.
    pub run: String,
    /// xxh3-128 of its weights, f32 in the order of the model's parameters.
    pub weights: Hash128,
    /// Most tokens that a probability is conditioned on.
    pub context: u32,
}

/// Counts of tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EditCounts {
    /// Documents.
    pub documents: u64,
    /// Tokens, as many as before.
    pub tokens: u64,
    /// Tokens that have one before them in their document, and so a probability.
    pub predicted: u64,
    /// Of them, those at or over the threshold.
    pub over: u64,
    /// Redrawn tokens among them: all but special tokens, such as the end of a text.
    pub redrawn: u64,
    /// Of them, those that are another token now.
    pub changed: u64,
}

/// Measures of texts by a model, before and after an edit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EditMeasures {
    /// Tokens; a token without one before it is none of them.
    pub counts: EditCounts,
    /// Perplexities before.
    pub before: Perplexities,
    /// Perplexities after.
    pub after: Perplexities,
}

/// Figures that show whether texts became narrower.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TextFigures {
    /// Perplexity by the model.
    pub perplexity: Perplexities,
    /// Pairs of neighbours.
    pub bigrams: Bigrams,
}

/// Perplexity of windows: e to the mean of `-ln p` over the tokens that a window predicts. A window is a document, or a
/// piece of one as long as the model reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Perplexities {
    /// Windows with a token to predict.
    pub windows: u64,
    /// Of all tokens together; 0 without any, as the others.
    pub all: f64,
    /// Perplexity that 1 % of the windows do not exceed, within 0.05 %; so for the others.
    pub p1: f64,
    /// 10 %.
    pub p10: f64,
    /// 50 %.
    pub p50: f64,
    /// 90 %.
    pub p90: f64,
    /// 99 %.
    pub p99: f64,
}

/// Pairs of neighbours in documents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bigrams {
    /// Pairs.
    pub total: u64,
    /// Different ones.
    pub distinct: u64,
    /// Share of all pairs that the most frequent hundredth of the different ones has (rounded up), 0 to 1.
    pub top_share: f64,
    /// Entropy of their distribution, in bits.
    pub entropy_bits: f64,
}

/// Documents as token ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Documents {
    /// Key of each document.
    pub keys: Vec<u64>,
    /// Ids of each document.
    pub lengths: Vec<u32>,
    /// The ids of all of them, one after the other.
    pub ids: Vec<u32>,
}

impl Documents {
    /// The key and the place in [`ids`](Self::ids) of each document.
    pub fn places(&self) -> impl Iterator<Item = (u64, std::ops::Range<usize>)> + '_ {
        let ends = self.lengths.iter().scan(0_usize, |end, length| {
            let start = *end;
            *end += *length as usize;
            Some(start..*end)
        });
        self.keys.iter().copied().zip(ends)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_lie_one_after_the_other() {
        let documents = Documents {
            keys: vec![7, 8, 9],
            lengths: vec![2, 0, 3],
            ids: vec![1, 2, 3, 4, 5],
        };
        let places: Vec<_> = documents.places().collect();
        assert_eq!(places, [(7, 0..2), (8, 2..2), (9, 2..5)]);
    }
}
