//! One token drawn from scores.

use feedline_schemas::edit::EditRule;

use crate::{error::Error, random::Stream};

/// Way of drawing tokens.
#[derive(Clone, Debug)]
pub(super) struct Draw {
    rule: EditRule,
    /// Ids that are neither edited nor drawn, in order.
    special: Vec<u32>,
}

impl Draw {
    /// # Errors
    /// [`Error::Config`] for a value out of range.
    pub(super) fn new(rule: EditRule, special: &[u32]) -> Result<Self, Error> {
        let refuse = |key: &str, reason: String| {
            Err(Error::Config {
                key: format!("--{key}"),
                reason,
            })
        };
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
            return refuse("threshold", reason);
        }
        if !(1e-6..=1e6).contains(&temperature) {
            let reason = format!("it is `{temperature}`, use `0.000001` to `1000000`");
            return refuse("temperature", reason);
        }
        if top_k == Some(0) {
            return refuse(
                "top-k",
                "there is nothing to draw from, use `1` or more".into(),
            );
        }
        if let Some(top_p) = top_p.filter(|p| !(*p > 0.0 && *p <= 1.0)) {
            let reason = format!("it is `{top_p}`, use a share above 0, up to 1");
            return refuse("top-p", reason);
        }
        let mut special = special.to_vec();
        special.sort_unstable();
        Ok(Self { rule, special })
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
        let mut weights = self.weights(scores);
        if self.rule.top_k.is_some() || self.rule.top_p.is_some() {
            self.cut(&mut weights);
        }
        let total: f64 = weights.iter().map(|(_, weight)| weight).sum();
        let wanted = uniform * total;
        let mut sum = 0.0;
        let drawn = weights.iter().find(|(_, weight)| {
            sum += weight;
            sum > wanted
        });
        // The last sum is the total, added in the same order, so one is found.
        drawn.map(|(id, _)| *id)
    }

    /// Ids that may be drawn and their probabilities, times a number.
    fn weights(&self, scores: &[f32]) -> Vec<(u32, f64)> {
        let allowed = (0..).zip(scores).filter(|(id, _)| !self.is_special(*id));
        let scores: Vec<(u32, f64)> = allowed.map(|(id, s)| (id, f64::from(*s))).collect();
        let largest = scores.iter().map(|(_, s)| *s).fold(f64::MIN, f64::max);
        let weight = |score: f64| ((score - largest) / self.rule.temperature).exp();
        scores.into_iter().map(|(id, s)| (id, weight(s))).collect()
    }

    /// Leaves the most probable ones, those with lower ids first among equals: at most `top_k` of them, and of these the
    /// fewest that have `top_p` of their probability.
    fn cut(&self, weights: &mut Vec<(u32, f64)>) {
        weights.sort_by(|(a, x), (b, y)| y.total_cmp(x).then(a.cmp(b)));
        if let Some(most) = self.rule.top_k {
            weights.truncate(most as usize);
        }
        if let Some(share) = self.rule.top_p {
            let wanted = share * weights.iter().map(|(_, weight)| weight).sum::<f64>();
            let mut sum = 0.0;
            let enough = weights.iter().position(|(_, weight)| {
                sum += weight;
                sum >= wanted
            });
            weights.truncate(enough.map_or(weights.len(), |at| at + 1));
        }
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
        for temperature in [0.0, -1.0, f64::NAN] {
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
    }
}
