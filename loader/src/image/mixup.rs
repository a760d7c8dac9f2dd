//! Mixup and CutMix: images of a batch are mixed in pairs, and so are their labels.
//!
//! Slots `2i` and `2i + 1` of the **global** batch are partners; the batch's order is random, so partners are too. They
//! are mostly of one locality domain, so of the same some blocks: a dataset sorted by class wants many blocks in a
//! window. What is drawn depends on (seed, epoch, batch, slot) alone, so that any world size mixes alike.

use std::ops::Range;

use feedline_image::rounding::{narrow, whole};
use serde::{Deserialize, Serialize};

use super::{SampleRandom, ranges};
use crate::Error;

/// Mixing of the images of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MixConfig {
    /// Probability of mixup for a slot, 0 to 1: Zhang, Cisse, Dauphin and Lopez-Paz (2017). Default
    /// 0.
    #[serde(default, alias = "mixup")]
    pub mixup_probability: f32,
    /// Both parameters of mixup's Beta distribution, 0.01 to 100. Usual: 0.2.
    #[serde(default = "usual_mixup")]
    pub mixup_alpha: f32,
    /// Probability of CutMix for a slot, 0 to `1 - mixup_probability`: Yun et al. (2019). Default
    /// 0.
    #[serde(default, alias = "cutmix")]
    pub cutmix_probability: f32,
    /// Both parameters of CutMix's Beta distribution, 0.01 to 100. Usual: 1.
    #[serde(default = "usual_cutmix")]
    pub cutmix_alpha: f32,
}

const fn usual_mixup() -> f32 {
    0.2
}

const fn usual_cutmix() -> f32 {
    1.0
}

impl MixConfig {
    /// Mixup and CutMix with these probabilities and the usual distributions.
    #[must_use]
    pub const fn new(mixup_probability: f32, cutmix_probability: f32) -> Self {
        Self {
            mixup_probability,
            mixup_alpha: usual_mixup(),
            cutmix_probability,
            cutmix_alpha: usual_cutmix(),
        }
    }

    /// Checks that every number is in its range.
    ///
    /// # Errors
    /// [`Error::Config`] names the first that is not, and what is allowed.
    pub fn check(&self) -> Result<(), Error> {
        let (mixup, cutmix) = (self.mixup_probability, self.cutmix_probability);
        ranges::range("image.mix.mixup_probability", [mixup; 2], 0.0, 1.0)?;
        let rest = 1.0 - mixup;
        ranges::range("image.mix.cutmix_probability", [cutmix; 2], 0.0, rest)?;
        let (mixup, cutmix) = (self.mixup_alpha, self.cutmix_alpha);
        ranges::range("image.mix.mixup_alpha", [mixup; 2], 0.01, 100.0)?;
        ranges::range("image.mix.cutmix_alpha", [cutmix; 2], 0.01, 100.0)
    }
}

/// Mix of an image with its partner.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mix {
    /// Place of the image that it is mixed with; its own where there is none.
    pub partner: usize,
    /// Share of the image's own label, 0 to 1.
    pub lambda: f32,
    /// Part of the image that is the partner's; with mixup, `None`: every pixel is `lambda` of the slot's own.
    pub cut: Option<CutBox>,
}

/// A box of pixels, `left..right` and `top..bottom`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CutBox {
    /// First column.
    pub left: u32,
    /// First row.
    pub top: u32,
    /// One past the last column.
    pub right: u32,
    /// One past the last row.
    pub bottom: u32,
}

/// Draws the mixes of `slots` of a global batch of `batch_slots`, whose images have
/// `[height, width]`.
pub(crate) fn mix_batch(
    config: &MixConfig,
    (seed, epoch, batch): (u64, u64, u64),
    slots: Range<usize>,
    batch_slots: usize,
    sides: [u32; 2],
) -> Vec<Mix> {
    slots
        .map(|slot| {
            let partner = slot ^ 1;
            if partner >= batch_slots {
                return Mix::nothing(slot);
            }
            let mut random = SampleRandom::new(seed, epoch, batch);
            // Operations below this are a sample's, whose key may be the batch's number.
            random.begin((1 << 31) | u32::try_from(slot).unwrap_or(0));
            let mix = Mix::draw(config, slot, partner, sides, &mut random);
            // A share that rounds to 1 is no mix.
            Some(mix)
                .filter(Mix::is_mixed)
                .unwrap_or(Mix::nothing(slot))
        })
        .collect()
}

impl Mix {
    /// Returns true if the image changes at all.
    pub(crate) fn is_mixed(&self) -> bool {
        self.lambda < 1.0
    }

    const fn nothing(slot: usize) -> Self {
        Self {
            partner: slot,
            lambda: 1.0,
            cut: None,
        }
    }

    fn draw(
        config: &MixConfig,
        slot: usize,
        partner: usize,
        [height, width]: [u32; 2],
        random: &mut SampleRandom,
    ) -> Self {
        let kind = random.unit();
        let mixup = f64::from(config.mixup_probability);
        if kind < mixup {
            let lambda = narrow(beta(config.mixup_alpha.into(), random));
            return Self {
                partner,
                lambda,
                cut: None,
            };
        }
        if kind >= mixup + f64::from(config.cutmix_probability) {
            return Self::nothing(slot);
        }
        // As in section 3.1 of the paper: the box is clipped at the edges, and lambda is the rest.
        let share = (1.0 - beta(config.cutmix_alpha.into(), random)).sqrt();
        let mut span = |side: u32| {
            let half = f64::from(side) * share / 2.0;
            let centre = f64::from(side) * random.unit();
            let first = whole((centre - half).round().max(0.0)).min(side);
            (first, whole((centre + half).round()).clamp(first, side))
        };
        let ((left, right), (top, bottom)) = (span(width), span(height));
        let area = f64::from(right - left) * f64::from(bottom - top);
        let lambda = narrow(1.0 - area / (f64::from(width) * f64::from(height)));
        let cut = CutBox {
            left,
            top,
            right,
            bottom,
        };
        Self {
            partner,
            lambda,
            cut: Some(cut),
        }
    }
}

/// A number of the distribution Beta(alpha, alpha).
fn beta(alpha: f64, random: &mut SampleRandom) -> f64 {
    if alpha > 1.0 {
        let (a, b) = (gamma(alpha, random), gamma(alpha, random));
        return a / (a + b);
    }
    // Jöhnk's method (Devroye, "Non-Uniform Random Variate Generation", 1986, IX.3.5), in logarithms: for a small alpha
    // both powers are 0 in floating point.
    loop {
        let mut power = || (1.0 - random.unit()).ln() / alpha;
        let (a, b) = (power(), power());
        let most = a.max(b);
        let sum = most + ((a - most).exp() + (b - most).exp()).ln();
        if sum <= 0.0 {
            return (a - sum).exp();
        }
    }
}

/// A number of the distribution Gamma(shape, 1), shape at least 1: Marsaglia and Tsang (2000).
fn gamma(shape: f64, random: &mut SampleRandom) -> f64 {
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let radius = (-2.0 * (1.0 - random.unit()).ln()).sqrt();
        let normal = radius * (std::f64::consts::TAU * random.unit()).cos();
        let v = (1.0 + c * normal).powi(3);
        let unit = 1.0 - random.unit();
        if v > 0.0 && unit.ln() < 0.5 * normal * normal + d - d * v + d * v.ln() {
            return d * v;
        }
    }
}

/// Mixes an image u8 or f32 `[height, width, 3]` with its partner's, as that was before mixing. For u8
/// `lambda` is rounded to a multiple of 2^-15, and the result to the nearest level, a half up.
///
/// # Panics
/// If the images have different lengths, or are no whole rows of `width` pixels.
pub fn apply_mix<T: Level>(mix: &Mix, pixels: &mut [T], partner: &[T], width: u32) {
    assert_eq!(pixels.len(), partner.len());
    let row = width as usize * 3;
    assert!(row > 0 && pixels.len().is_multiple_of(row));
    match mix.cut {
        None if mix.is_mixed() => {
            for (to, other) in pixels.iter_mut().zip(partner) {
                *to = T::mixed(*to, *other, mix.lambda);
            }
        }
        None => {}
        Some(cut) => {
            let columns = cut.left as usize * 3..cut.right as usize * 3;
            for y in cut.top as usize..cut.bottom as usize {
                let at = y * row + columns.start..y * row + columns.end;
                pixels[at.clone()].copy_from_slice(&partner[at]);
            }
        }
    }
}

/// A colour level: `u8` or `f32`.
pub trait Level: Copy {
    /// `lambda * own + (1 - lambda) * partner`.
    #[must_use]
    fn mixed(own: Self, partner: Self, lambda: f32) -> Self;
}

impl Level for f32 {
    fn mixed(own: Self, partner: Self, lambda: f32) -> Self {
        own * lambda + partner * (1.0 - lambda)
    }
}

impl Level for u8 {
    fn mixed(own: Self, partner: Self, lambda: f32) -> Self {
        // Whole numbers: the same on every machine, and three times as fast as floats.
        let own_weight = whole(f64::from(lambda) * 32_768.0 + 0.5).min(32_768);
        let sum = u32::from(own) * own_weight + u32::from(partner) * (32_768 - own_weight);
        ((sum + 16_384) >> 15).to_le_bytes()[0]
    }
}

/// Writes an image's shares of the classes to `out`, f32 `[classes]`: `lambda` of its own, the rest of its partner's.
///
/// # Panics
/// If a label is not below the number of classes.
pub fn soft_label(lambda: f32, own: usize, partner: usize, out: &mut [f32]) {
    out.fill(0.0);
    out[own] += lambda;
    out[partner] += 1.0 - lambda;
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: MixConfig = MixConfig {
        mixup_probability: 0.5,
        mixup_alpha: 0.4,
        cutmix_probability: 0.4,
        cutmix_alpha: 1.0,
    };

    #[test]
    fn any_share_of_a_batch_is_mixed_as_in_the_whole() {
        let draw = |slots| mix_batch(&BOTH, (7, 1, 5), slots, 97, [20, 30]);
        let whole = draw(0..97);
        assert_eq!(whole[96], Mix::nothing(96), "the last has no partner");
        for ranks in 1..=9 {
            let shares = (0..ranks).flat_map(|r| draw(r * 97 / ranks..(r + 1) * 97 / ranks));
            assert_eq!(shares.collect::<Vec<_>>(), whole, "{ranks} ranks");
        }
        let small = MixConfig {
            mixup_alpha: 0.01,
            ..MixConfig::new(1.0, 0.0)
        };
        let mixes = mix_batch(&small, (7, 1, 5), 0..400, 400, [20, 30]);
        let alone = |(slot, mix): (usize, &Mix)| mix.is_mixed() == (mix.partner != slot);
        assert!(mixes.iter().enumerate().all(alone));
        assert!(mixes.iter().filter(|mix| !mix.is_mixed()).count() > 40);
        assert_ne!(mix_batch(&BOTH, (7, 1, 6), 0..97, 97, [20, 30]), whole);
        assert_ne!(mix_batch(&BOTH, (7, 2, 5), 0..97, 97, [20, 30]), whole);
    }

    #[test]
    fn lambda_is_what_is_left_of_the_own_image() {
        let (mut cuts, mut mixups, mut none) = (0, 0, 0);
        for mix in mix_batch(&BOTH, (1, 2, 3), 0..4000, 4000, [20, 30]) {
            assert!((0.0..=1.0).contains(&mix.lambda));
            match mix.cut {
                Some(cut) => {
                    cuts += 1;
                    let mut out = [0_u8; 20 * 30 * 3];
                    apply_mix(&mix, &mut out, &[1; 1800], 30);
                    let partner: u32 = out.iter().map(|v| u32::from(*v)).sum();
                    assert!((1.0 - partner as f32 / 1800.0 - mix.lambda).abs() < 1e-6);
                    assert!(cut.right <= 30 && cut.bottom <= 20);
                }
                None if mix.lambda < 1.0 => mixups += 1,
                None => none += 1,
            }
        }
        assert!((1450..1750).contains(&cuts), "{cuts}");
        assert!((1850..2150).contains(&mixups), "{mixups}");
        assert!((300..500).contains(&none), "{none}");
    }

    #[test]
    fn a_box_has_the_sides_of_the_paper() {
        let config = MixConfig {
            cutmix_alpha: 100.0,
            ..MixConfig::new(0.0, 1.0)
        };
        // The share is almost a half, so that each side of an unclipped box is 0.71 of the image's.
        let mixes = mix_batch(&config, (1, 2, 3), 0..500, 500, [100, 200]);
        let cuts = mixes.iter().filter_map(|mix| mix.cut);
        let (widths, heights): (Vec<_>, Vec<_>) =
            cuts.map(|c| (c.right - c.left, c.bottom - c.top)).unzip();
        let (width, height) = (widths.iter().max(), heights.iter().max());
        assert!((Some(&141)..Some(&165)).contains(&width), "{width:?}");
        assert!((Some(&70)..Some(&83)).contains(&height), "{height:?}");
    }

    #[test]
    fn beta_has_its_mean_and_variance() {
        for alpha in [0.01, 0.2, 1.0, 1.5, 8.0] {
            let mut random = SampleRandom::new(3, 0, 0);
            let n = 20_000;
            let values: Vec<f64> = (0..n).map(|_| beta(alpha, &mut random)).collect();
            let mean = values.iter().sum::<f64>() / f64::from(n);
            let variance =
                values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / f64::from(n - 1);
            assert!((mean - 0.5).abs() < 0.015, "{alpha}: mean {mean}");
            let expected = 1.0 / (4.0 * (2.0 * alpha + 1.0));
            assert!(
                (variance / expected - 1.0).abs() < 0.05,
                "{alpha}: variance {variance}"
            );
        }
    }

    #[test]
    fn levels_and_labels_are_mixed_by_the_same_share() {
        let mix = Mix {
            partner: 1,
            lambda: 0.75,
            cut: None,
        };
        let mut out = [0_u8, 100, 255];
        apply_mix(&mix, &mut out, &[2, 200, 255], 1);
        assert_eq!(out, [1, 125, 255], "0.5 is rounded up");
        // These numbers and shares are exact in binary.
        let same = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits());
        let mut out = [0.0, 100.0, -1.0];
        apply_mix(&mix, &mut out, &[2.0, 200.0, -1.0], 1);
        assert!(same(&out, &[0.5, 125.0, -1.0]));
        let mut label = [9.0; 4];
        soft_label(mix.lambda, 2, 0, &mut label);
        assert!(same(&label, &[0.25, 0.0, 0.75, 0.0]));
        soft_label(mix.lambda, 2, 2, &mut label);
        assert!(same(&label, &[0.0, 0.0, 1.0, 0.0]));
    }
}
