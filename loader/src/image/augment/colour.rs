//! Changes of colour, as Pillow's `ImageEnhance` and `ImageOps` and torchvision define them.

use super::level::level;

/// Luma in 16 fractional bits, ITU-R BT.601: Pillow's conversion to `L`.
fn luma([r, g, b]: [u8; 3]) -> u8 {
    let sum = u32::from(r) * 19_595 + u32::from(g) * 38_470 + u32::from(b) * 7_471 + 0x8000;
    u8::try_from(sum >> 16).unwrap_or(u8::MAX)
}

/// `other + factor * (value - other)`, truncated to integers: Pillow's `Image.blend`.
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

/// 0 gives black, 1 the image.
pub(super) fn brightness(pixels: &mut [u8], factor: f32) {
    let table: [u8; 256] = table(|value| blend(0, value, factor));
    look_up(pixels, &table);
}

/// 0 gives the image's mean luma, 1 the image.
pub(super) fn contrast(pixels: &mut [u8], factor: f32) {
    let triples = pixels.as_chunks::<3>().0;
    let sum: u64 = triples.iter().map(|p| u64::from(luma(*p))).sum();
    let mean = level(sum as f64 / triples.len() as f64 + 0.5);
    let table = table(|value| blend(mean, value, factor));
    look_up(pixels, &table);
}

/// 0 gives grey, 1 the image.
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

/// 0 gives a smoothed image, 1 the image, 2 a sharpened one. The outermost pixels stay.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn image(bytes: u32) -> Vec<u8> {
        (0..bytes)
            .map(|i| u8::try_from((i * i * 11 + 7 * i + 20) % 200).unwrap())
            .collect()
    }

    /// Compares with what Pillow 13.0.0 makes of the 4 x 4 image.
    fn check(change: impl Fn(&mut [u8]), expected: [u8; 48]) {
        let mut pixels = image(48);
        change(&mut pixels);
        assert_eq!(pixels, expected);
    }

    #[test]
    fn changes_are_those_of_pillow() {
        check(autocontrast, AUTOCONTRAST);
        check(|pixels| posterize(pixels, 5), POSTERIZE);
        check(|pixels| solarize(pixels, 99.5), SOLARIZE);
        check(|pixels| sharpness(pixels, &mut Vec::new(), 4, 1.9), SHARPER);
        check(
            |pixels| sharpness(pixels, &mut Vec::new(), 4, 0.1),
            SMOOTHER,
        );
        let mut pixels = image(2304);
        equalize(&mut pixels);
        assert_eq!(pixels[..48], EQUALIZED);
        assert_eq!(pixels.iter().map(|v| u32::from(*v)).sum::<u32>(), 384926);
    }

    #[test]
    fn what_cannot_be_changed_stays() {
        let flat = [50; 48];
        let changes: [fn(&mut [u8]); 4] = [
            autocontrast,
            equalize,
            |p| hue(p, 0.3),
            |p| brightness(p, 1.0),
        ];
        for change in changes {
            let mut pixels = flat;
            change(&mut pixels);
            assert_eq!(pixels, flat);
        }
        let mut pixels = [10, 20, 30, 250, 0, 7];
        hue(&mut pixels, 1.0);
        assert_eq!(pixels, [10, 20, 30, 250, 0, 7], "a whole turn");
        posterize(&mut pixels, 0);
        assert_eq!(pixels, [0; 6]);
    }

    const AUTOCONTRAST: [u8; 48] = [
        29, 42, 100, 205, 22, 167, 85, 0, 231, 255, 254, 36, 128, 226, 95, 0, 196, 151, 161, 162,
        206, 26, 126, 0, 181, 86, 48, 41, 44, 95, 190, 0, 139, 43, 232, 180, 187, 182, 218, 35,
        128, 255, 172, 72, 30, 14, 14, 61,
    ];
    const POSTERIZE: [u8; 48] = [
        16, 32, 72, 136, 24, 128, 56, 8, 176, 168, 184, 24, 88, 168, 72, 0, 144, 112, 104, 120,
        160, 16, 96, 0, 120, 64, 32, 24, 40, 72, 128, 8, 104, 24, 168, 136, 128, 136, 168, 24, 96,
        192, 112, 56, 24, 8, 16, 48,
    ];
    const SOLARIZE: [u8; 48] = [
        20, 38, 78, 115, 24, 125, 58, 8, 75, 81, 65, 28, 88, 85, 74, 0, 107, 137, 145, 131, 95, 18,
        98, 0, 131, 70, 38, 28, 40, 74, 125, 8, 147, 30, 81, 115, 127, 117, 85, 24, 155, 57, 137,
        60, 24, 10, 18, 48,
    ];
    const SHARPER: [u8; 48] = [
        20, 38, 78, 140, 24, 130, 58, 8, 180, 174, 190, 28, 88, 170, 74, 0, 196, 125, 130, 144,
        195, 18, 98, 0, 124, 70, 38, 0, 5, 53, 178, 0, 115, 30, 174, 140, 128, 138, 170, 24, 100,
        198, 118, 60, 24, 10, 18, 48,
    ];
    const SMOOTHER: [u8; 48] = [
        20, 38, 78, 140, 24, 130, 58, 8, 180, 174, 190, 28, 88, 170, 74, 48, 99, 110, 89, 103, 124,
        18, 98, 0, 124, 70, 38, 62, 74, 94, 81, 56, 100, 30, 174, 140, 128, 138, 170, 24, 100, 198,
        118, 60, 24, 10, 18, 48,
    ];
    const EQUALIZED: [u8; 48] = [
        32, 74, 154, 255, 39, 255, 104, 8, 255, 255, 255, 57, 170, 255, 134, 0, 255, 215, 208, 228,
        255, 24, 181, 0, 230, 125, 72, 59, 81, 134, 255, 8, 200, 66, 255, 255, 249, 255, 255, 40,
        189, 255, 215, 112, 38, 16, 23, 88,
    ];
}
