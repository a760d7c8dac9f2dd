//! One token drawn from scores.

use crate::error::Error;

/// Way of drawing a token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sampling {
    temperature: f64,
    top_k: Option<u32>,
    top_p: Option<f64>,
}

impl Sampling {
    /// Divides scores by `temperature` (0 takes the most probable token), and draws from the `top_k` most probable tokens
    /// and of these from the fewest that have the share `top_p` of their probability.
    ///
    /// # Errors
    /// [`Error::Config`] for a value out of range.
    pub(crate) fn new(
        temperature: f64,
        top_k: Option<u32>,
        top_p: Option<f64>,
    ) -> Result<Self, Error> {
        let refuse = |key: &str, reason: String| {
            Err(Error::Config {
                key: format!("--{key}"),
                reason,
            })
        };
        if !((1e-6..=1e6).contains(&temperature) || temperature == 0.0) {
            let reason = format!("it is `{temperature}`, use `0`, or `0.000001` to `1000000`");
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
        let of_several = [("top-k", top_k.is_some()), ("top-p", top_p.is_some())];
        if let Some((key, _)) = of_several.iter().find(|(_, is_given)| *is_given)
            && temperature == 0.0
        {
            let reason = "it has no effect at temperature 0, which takes the most probable token; leave it out, or use a \
                          `--temperature` above 0";
            return refuse(key, reason.into());
        }
        Ok(Self {
            temperature,
            top_k,
            top_p,
        })
    }

    /// Draws an allowed token by a number from 0 to below 1; `None` where none is allowed.
    pub(crate) fn draw(
        &self,
        scores: &[f32],
        allowed: impl Fn(u32) -> bool,
        uniform: f64,
    ) -> Option<u32> {
        let mut weights = self.weights(scores, allowed);
        if self.top_k.is_some() || self.top_p.is_some() {
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
    fn weights(&self, scores: &[f32], is_allowed: impl Fn(u32) -> bool) -> Vec<(u32, f64)> {
        let allowed = (0..).zip(scores).filter(|(id, _)| is_allowed(*id));
        let scores: Vec<(u32, f64)> = allowed.map(|(id, s)| (id, f64::from(*s))).collect();
        let largest = scores.iter().map(|(_, s)| *s).fold(f64::MIN, f64::max);
        if self.temperature == 0.0 {
            let mut scores = scores.into_iter();
            let best = scores.find(|(_, score)| *score >= largest);
            return best.into_iter().map(|(id, _)| (id, 1.0)).collect();
        }
        let weight = |score: f64| ((score - largest) / self.temperature).exp();
        scores.into_iter().map(|(id, s)| (id, weight(s))).collect()
    }

    /// Leaves the most probable ones, those with lower ids first among equals: at most `top_k` of them, and of these the
    /// fewest that have `top_p` of their probability.
    fn cut(&self, weights: &mut Vec<(u32, f64)>) {
        let before = |(a, x): &(u32, f64), (b, y): &(u32, f64)| y.total_cmp(x).then(a.cmp(b));
        if let Some(most) = self.top_k.map(|most| most as usize)
            && most < weights.len()
        {
            weights.select_nth_unstable_by(most, before);
            weights.truncate(most);
        }
        weights.sort_by(before);
        if let Some(share) = self.top_p {
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
