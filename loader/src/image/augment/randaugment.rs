//! RandAugment: Cubuk, Zoph, Shlens and Le (2019), with the 14 operations and the magnitudes of torchvision.

use feedline_image::rounding::narrow;

use super::{
    affine::{Affine, transform},
    colour,
    level::level_count,
};
use crate::image::random::SampleRandom;

const OPERATIONS: u32 = 14;

/// Applies one operation, drawn evenly, with magnitude `magnitude` of `bins`.
pub(super) fn one(
    (pixels, other): (&mut [u8], &mut Vec<u8>),
    width: usize,
    [magnitude, bins]: [u32; 2],
    fill: [u8; 3],
    random: &mut SampleRandom,
) {
    let operation = random.below(OPERATIONS);
    let sign = if random.happens(0.5) { -1.0 } else { 1.0 };
    // The magnitudes are even steps from nothing to the most.
    let share = f64::from(magnitude) / f64::from(bins - 1);
    let factor = narrow(1.0 + 0.9 * share * sign);
    let height = pixels.len() / (width * 3);
    let (w, h) = (width as f64, height as f64);
    let shift = |side: f64| (150.0 / 331.0 * side * share).trunc() * sign;
    let mut affine = |map| {
        other.clear();
        other.extend_from_slice(pixels);
        transform(other, pixels, width, map, fill);
    };
    match operation {
        0 => {}
        1 => affine(Affine::shear(0.3 * share * sign, true)),
        2 => affine(Affine::shear(0.3 * share * sign, false)),
        3 => affine(Affine::translation(shift(w), 0.0)),
        4 => affine(Affine::translation(0.0, shift(h))),
        5 => affine(Affine::rotation(30.0 * share * sign, w, h)),
        6 => colour::brightness(pixels, factor),
        7 => colour::saturation(pixels, factor),
        8 => colour::contrast(pixels, factor),
        9 => colour::sharpness(pixels, other, width, factor),
        10 => colour::posterize(pixels, 8 - level_count(4.0 * share)),
        11 => colour::solarize(pixels, narrow(255.0 * (1.0 - share))),
        12 => colour::autocontrast(pixels),
        _ => colour::equalize(pixels),
    }
}
