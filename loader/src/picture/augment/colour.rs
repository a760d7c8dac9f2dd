//! Changes of colour, as Pillow's `ImageEnhance` and `ImageOps` and torchvision define them.

use super::level;

/// Luma in 16 fractional bits, ITU-R BT.601: Pillow's conversion to `L`.
fn luma([r, g, b]: [u8; 3]) -> u8 {
    let sum = u32::from(r) * 19_595 + u32::from(g) * 38_470 + u32::from(b) * 7_471 + 0x8000;
    u8::try_from(sum >> 16).unwrap_or(u8::MAX)
}

/// `other + factor * (value - other)`, cut off to whole levels: Pillow's `Image.blend`.
fn blend(other: u8, value: u8, factor: f32) -> u8 {
    let (other, value) = (f32::from(other), f32::from(value));
    level((other + factor * (value - other)).into())
}

fn blend_all(pixels: &mut [u8], factor: f32, other: impl Fn([u8; 3]) -> u8) {
    for pixel in pixels.as_chunks_mut::<3>().0 {
        let other = other(*pixel);
        *pixel = pixel.map(|value| blend(other, value, factor));
    }
}

/// 0 gives black, 1 the picture.
pub(super) fn brightness(pixels: &mut [u8], factor: f32) {
    let table: [u8; 256] = table(|value| blend(0, value, factor));
    look_up(pixels, &table);
}

/// 0 gives the picture's mean luma, 1 the picture.
pub(super) fn contrast(pixels: &mut [u8], factor: f32) {
    let triples = pixels.as_chunks::<3>().0;
    let sum: u64 = triples.iter().map(|p| u64::from(luma(*p))).sum();
    let mean = level(sum as f64 / triples.len() as f64 + 0.5);
    let table = table(|value| blend(mean, value, factor));
    look_up(pixels, &table);
}

/// 0 gives grey, 1 the picture.
pub(super) fn saturation(pixels: &mut [u8], factor: f32) {
    blend_all(pixels, factor, luma);
}

/// Turns the hue by `turn`, where 1 is the whole circle: torchvision's `adjust_hue`, computed without rounding between.
pub(super) fn hue(pixels: &mut [u8], turn: f32) {
    for pixel in pixels.as_chunks_mut::<3>().0 {
        let [r, g, b] = pixel.map(|v| f32::from(v) / 255.0);
        let (most, least) = (r.max(g).max(b), r.min(g).min(b));
        let range = most - least;
        if range <= 0.0 {
            continue;
        }
        let sixths = if most <= r {
            (g - b) / range
        } else if most <= g {
            2.0 + (b - r) / range
        } else {
            4.0 + (r - g) / range
        };
        let sixths = (sixths / 6.0 + turn).rem_euclid(1.0) * 6.0;
        // The distance of each channel from its hue, after Smith, "Color Gamut Transform Pairs" (1978).
        *pixel = [5.0, 3.0, 1.0].map(|offset| {
            let k = (offset + sixths) % 6.0;
            let share = k.min(4.0 - k).clamp(0.0, 1.0);
            level(f64::from((most - range * share) * 255.0 + 0.5))
        });
    }
}

/// Keeps the highest `bits` bits.
pub(super) fn posterize(pixels: &mut [u8], bits: u32) {
    let mask = u8::MAX.checked_shl(8 - bits.min(8)).unwrap_or(0);
    pixels.iter_mut().for_each(|value| *value &= mask);
}

/// Inverts levels that are not below `threshold`.
pub(super) fn solarize(pixels: &mut [u8], threshold: f32) {
    let invert = |value: u8| {
        if f32::from(value) < threshold {
            value
        } else {
            255 - value
        }
    };
    look_up(pixels, &table(invert));
}

/// Stretches each channel to the full range.
pub(super) fn autocontrast(pixels: &mut [u8]) {
    for channel in 0..3 {
        let counts = histogram(pixels, channel);
        let low = counts.iter().position(|c| *c > 0).unwrap_or(0);
        let high = counts.iter().rposition(|c| *c > 0).unwrap_or(0);
        if high <= low {
            continue;
        }
        let scale = 255.0 / (high - low) as f64;
        let table = table(|value| level((f64::from(value) - low as f64) * scale));
        look_up_channel(pixels, channel, &table);
    }
}

/// Makes each channel's levels about equally frequent.
pub(super) fn equalize(pixels: &mut [u8]) {
    for channel in 0..3 {
        let counts = histogram(pixels, channel);
        let last = counts.iter().rfind(|c| **c > 0).copied().unwrap_or(0);
        let total: u32 = counts.iter().sum();
        let step = (total - last) / 255;
        if step == 0 {
            continue;
        }
        let mut below = step / 2;
        let mut levels = [0; 256];
        for (to, count) in levels.iter_mut().zip(&counts) {
            *to = u8::try_from(below / step).unwrap_or(u8::MAX);
            below += count;
        }
        look_up_channel(pixels, channel, &levels);
    }
}

/// 0 gives a smoothed picture, 1 the picture, 2 a sharpened one. The outermost pixels stay.
pub(super) fn sharpness(pixels: &mut [u8], smooth: &mut Vec<u8>, width: usize, factor: f32) {
    let row = width * 3;
    let height = pixels.len() / row;
    smooth.clear();
    smooth.extend_from_slice(pixels);
    if width < 3 || height < 3 {
        return;
    }
    for y in 1..height - 1 {
        for at in y * row + 3..(y + 1) * row - 3 {
            let sum: u32 = [at - row, at, at + row]
                .iter()
                .flat_map(|at| [at - 3, *at, at + 3])
                .map(|at| u32::from(pixels[at]))
                .sum();
            let sum = sum + 4 * u32::from(pixels[at]);
            smooth[at] = u8::try_from((2 * sum + 13) / 26).unwrap_or(u8::MAX);
        }
    }
    for (value, other) in pixels.iter_mut().zip(smooth) {
        *value = blend(*other, *value, factor);
    }
}

fn table(of: impl Fn(u8) -> u8) -> [u8; 256] {
    let mut table = [0; 256];
    for (value, to) in (0..=u8::MAX).zip(&mut table) {
        *to = of(value);
    }
    table
}

fn look_up(pixels: &mut [u8], table: &[u8; 256]) {
    for value in pixels {
        *value = table[usize::from(*value)];
    }
}

fn look_up_channel(pixels: &mut [u8], channel: usize, table: &[u8; 256]) {
    for value in pixels.iter_mut().skip(channel).step_by(3) {
        *value = table[usize::from(*value)];
    }
}

fn histogram(pixels: &[u8], channel: usize) -> [u32; 256] {
    let mut counts = [0; 256];
    for value in pixels.iter().skip(channel).step_by(3) {
        counts[usize::from(*value)] += 1;
    }
    counts
}
