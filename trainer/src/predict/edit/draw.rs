//! Redrawn tokens of a document.

use feedline_schemas::edit::EditRule;

use crate::{error::Error, predict::token_sampling::Sampling, random::Stream};

/// Way of drawing tokens.
#[derive(Clone, Debug)]
pub(super) struct Draw {
    rule: EditRule,
    sampling: Sampling,
    /// Ids that are neither edited nor drawn, in order.
    special: Vec<u32>,
}

impl Draw {
    /// # Errors
    /// [`Error::Config`] for a value out of range.
    pub(super) fn new(rule: EditRule, special: &[u32]) -> Result<Self, Error> {
        let EditRule {
            threshold,
            temperature,
            top_k,
            top_p,
            ..
        } = rule;
        if !(threshold.is_finite() && threshold > 0.0) {
            let reason =
                format!("it is `{threshold}`, use a number above 0; above 1 nothing is edited");
            return Err(Error::Config {
                key: "--threshold".to_owned(),
                reason,
            });
        }
        let mut special = special.to_vec();
        special.sort_unstable();
        Ok(Self {
            rule,
            sampling: Sampling::new(temperature, top_k, top_p)?,
            special,
        })
    }

    /// Least probability of a token that is redrawn.
    pub(super) const fn threshold(&self) -> f64 {
        self.rule.threshold
    }

    fn is_special(&self, id: u32) -> bool {
        self.special.binary_search(&id).is_ok()
    }

    /// A token in place of `id` at a place of a document, which may be the same one; none for a special one.
    pub(super) fn other(&self, scores: &[f32], id: u32, key: u64, at: u64) -> Option<u32> {
        if self.is_special(id) {
            return None;
        }
        let uniform = Stream::editing(self.rule.seed, key).uniform(at);
        let allowed = |id| !self.is_special(id);
        self.sampling.draw(scores, allowed, uniform)
    }
}

#[cfg(test)]
mod tests {
    use feedline_schemas::ids::Seed;

    use super::*;

    const PLAIN: EditRule = EditRule {
        threshold: 0.99,
        temperature: 1.0,
        top_k: None,
        top_p: None,
        seed: Seed::new(3),
    };

    /// Probabilities 0.4, 0.3, 0.2 and 0.1 of ids 2, 0, 3 and 1.
    fn scores() -> Vec<f32> {
        [0.3_f32, 0.1, 0.4, 0.2].map(|p| p.ln() + 5.0).to_vec()
    }

    /// Counts each id drawn in place of id 0, of 40,000 places.
    fn drawn(rule: EditRule, special: &[u32]) -> [f64; 4] {
        let draw = Draw::new(rule, special).unwrap();
        let mut counts = [0.0; 4];
        for at in 0..40_000 {
            let id = draw.other(&scores(), 0, 77, at).unwrap();
            counts[id as usize] += 1.0 / 40_000.0;
        }
        counts
    }

    fn check(rule: EditRule, special: &[u32], expected: [f64; 4]) {
        let found = drawn(rule, special);
        for (found, expected) in found.into_iter().zip(expected) {
            // Four deviations of a count are 0.01.
            assert!((found - expected).abs() < 0.01, "{found} {expected}");
            assert!(expected > 0.0 || found == 0.0);
        }
    }

    #[test]
    fn tokens_are_drawn_as_often_as_the_rule_says() {
        check(PLAIN, &[], [0.3, 0.1, 0.4, 0.2]);
        let squares = EditRule {
            temperature: 0.5,
            ..PLAIN
        };
        check(squares, &[], [0.3, 0.1 / 3.0, 1.6 / 3.0, 0.4 / 3.0]);
        let coldest = EditRule {
            temperature: 1e-6,
            ..PLAIN
        };
        check(coldest, &[], [0.0, 0.0, 1.0, 0.0]);
        let greedy = EditRule {
            temperature: 0.0,
            ..PLAIN
        };
        check(greedy, &[2], [1.0, 0.0, 0.0, 0.0]);
        let two = EditRule {
            top_k: Some(2),
            ..PLAIN
        };
        check(two, &[], [3.0 / 7.0, 0.0, 4.0 / 7.0, 0.0]);
        let most = EditRule {
            top_p: Some(0.75),
            ..PLAIN
        };
        check(most, &[], [3.0 / 9.0, 0.0, 4.0 / 9.0, 2.0 / 9.0]);
        let both = EditRule {
            top_k: Some(3),
            top_p: Some(0.4),
            ..PLAIN
        };
        check(both, &[], [0.0, 0.0, 1.0, 0.0]);
        check(PLAIN, &[2, 1], [0.6, 0.0, 0.0, 0.4]);
    }

    #[test]
    fn special_tokens_stay_and_a_place_always_draws_the_same() {
        let draw = Draw::new(PLAIN, &[3, 1]).unwrap();
        assert_eq!(draw.other(&scores(), 3, 5, 9), None);
        let at = |key, at| draw.other(&scores(), 0, key, at);
        let row = |key| (0..64).map(|place| at(key, place)).collect::<Vec<_>>();
        assert_eq!(row(5), row(5));
        assert_ne!(row(5), row(6));
    }

    #[test]
    fn rules_that_cannot_be_followed_are_refused() {
        let refused = |rule, key: &str| {
            let message = Draw::new(rule, &[]).unwrap_err().to_string();
            assert!(message.contains(&format!("`--{key}`")), "{message}");
        };
        for threshold in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            refused(EditRule { threshold, ..PLAIN }, "threshold");
        }
        for temperature in [1e-7, -1.0, f64::NAN] {
            refused(
                EditRule {
                    temperature,
                    ..PLAIN
                },
                "temperature",
            );
        }
        for top_p in [0.0, 1.5, f64::NAN] {
            let top_p = Some(top_p);
            refused(EditRule { top_p, ..PLAIN }, "top-p");
        }
        let top_k = Some(0);
        refused(EditRule { top_k, ..PLAIN }, "top-k");
        let greedy = EditRule {
            temperature: 0.0,
            ..PLAIN
        };
        let top_k = Some(3);
        refused(EditRule { top_k, ..greedy }, "top-k");
        let top_p = Some(0.5);
        refused(EditRule { top_p, ..greedy }, "top-p");
    }
}
