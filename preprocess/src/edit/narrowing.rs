//! Signs of lost diversity in a text: Zhu et al. 2024 (arXiv 2412.14689, section 3) found in
//! generated text fewer windows of high perplexity, and a few pairs of tokens with most of the
//! occurrences.

use feedline_schemas::edit::TextFigures;

/// Least share of the range of perplexities, the 90th percentile over the 10th, that is to be left.
const RANGE_LEFT: f64 = 0.9;

/// Least share of the different pairs that is to be left.
const DISTINCT_LEFT: f64 = 0.95;

/// Most that the share of the most frequent hundredth of the pairs may grow by.
const TOP_GROWTH: f64 = 1.05;

/// Least share of the entropy of pairs that is to be left.
const ENTROPY_LEFT: f64 = 0.98;

/// Warnings about lost diversity of the text; empty if there is none.
pub(super) fn warnings(before: &TextFigures, after: &TextFigures) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut fell = |what: &str, before: f64, after: f64, left: f64| {
        if after < before * left {
            warnings.push(format!(
                "the text became narrower: {what} fell from {before:.4} to {after:.4}, to under {left} of what it was"
            ));
        }
    };
    let range = |figures: &TextFigures| {
        let low = figures.perplexity.p10;
        if low > 0.0 {
            figures.perplexity.p90 / low
        } else {
            0.0
        }
    };
    fell(
        "the range of perplexities (90th over 10th percentile)",
        range(before),
        range(after),
        RANGE_LEFT,
    );
    #[expect(clippy::cast_precision_loss, reason = "a share needs no 53 bits")]
    fell(
        "the number of different pairs of tokens",
        before.bigrams.distinct as f64,
        after.bigrams.distinct as f64,
        DISTINCT_LEFT,
    );
    fell(
        "the entropy of pairs of tokens",
        before.bigrams.entropy_bits,
        after.bigrams.entropy_bits,
        ENTROPY_LEFT,
    );
    let (was, is) = (before.bigrams.top_share, after.bigrams.top_share);
    // A hundredth of more different pairs is more pairs: their share says nothing then.
    if is > was * TOP_GROWTH && after.bigrams.distinct <= before.bigrams.distinct {
        warnings.push(format!(
            "the text became narrower: the most frequent hundredth of the pairs of tokens has {is:.4} of all pairs, it had \
             {was:.4}"
        ));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use feedline_schemas::edit::{Bigrams, Perplexities};

    use super::*;

    fn text(p10: f64, p90: f64, distinct: u64, entropy_bits: f64, top_share: f64) -> TextFigures {
        TextFigures {
            perplexity: Perplexities {
                windows: 100,
                all: 10.0,
                p1: 1.0,
                p10,
                p50: 10.0,
                p90,
                p99: 100.0,
            },
            bigrams: Bigrams {
                total: 10_000,
                distinct,
                top_share,
                entropy_bits,
            },
        }
    }

    fn check(after: TextFigures, expected: &[&str]) {
        let before = text(5.0, 50.0, 1000, 10.0, 0.2);
        let found = warnings(&before, &after);
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.contains(expected), "{found}");
        }
    }

    #[test]
    fn each_rule_warns_beyond_its_bound_and_not_at_it() {
        check(text(5.0, 50.0, 1000, 10.0, 0.2), &[]);
        // A text that moved as a whole is not narrower.
        check(text(10.0, 100.0, 1000, 10.0, 0.2), &[]);
        check(text(5.0, 45.1, 1000, 10.0, 0.2), &[]);
        check(text(5.0, 44.9, 1000, 10.0, 0.2), &["range of perplexities"]);
        check(text(5.0, 50.0, 950, 10.0, 0.2), &[]);
        check(text(5.0, 50.0, 949, 10.0, 0.2), &["different pairs"]);
        check(text(5.0, 50.0, 1000, 9.81, 0.2), &[]);
        check(text(5.0, 50.0, 1000, 9.79, 0.2), &["entropy"]);
        check(text(5.0, 50.0, 1000, 10.0, 0.209), &[]);
        check(text(5.0, 50.0, 1000, 10.0, 0.211), &["most frequent"]);
        check(text(5.0, 50.0, 1001, 10.0, 0.211), &[]);
        let all = ["range", "different", "entropy", "most frequent"];
        check(text(5.0, 20.0, 500, 8.0, 0.5), &all);
    }

    #[test]
    fn a_wider_text_and_an_empty_one_are_not_narrower() {
        check(text(1.0, 500.0, 5000, 12.0, 0.1), &[]);
        let nothing = TextFigures::default();
        assert!(warnings(&nothing, &nothing).is_empty());
    }
}
