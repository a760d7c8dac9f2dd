//! Pixels to the numbers that a model takes, on the CPU. A GPU does this itself, from u8.

use std::thread;

use feedline_image::rounding::narrow;

use crate::Error;

/// Turns u8 RGB `[images, height, width, 3]` into f32 `[images, 3, height, width]`: `(v / 255 - mean) / std` of
/// each channel, computed in f64 and rounded once. So results are the same on every machine and number of threads.
#[derive(Clone, Debug, PartialEq)]
pub struct Normalise {
    /// Result for each value of each channel.
    table: [[f32; 256]; 3],
}

impl Normalise {
    /// With these means and standard deviations of red, green and blue, in units of the full range.
    ///
    /// # Errors
    /// [`Error::Config`] for a number that is not finite, or a deviation that is not positive.
    pub fn new(mean: [f32; 3], std: [f32; 3]) -> Result<Self, Error> {
        let refuse = |key, value: [f32; 3], allowed| {
            let reason = format!("it is `{value:?}`, use three {allowed} numbers");
            Err(Error::Config { key, reason })
        };
        if !mean.iter().all(|m| m.is_finite()) {
            return refuse("image.mean", mean, "finite");
        }
        if !std.iter().all(|s| s.is_finite() && *s > 0.0) {
            return refuse("image.std", std, "positive");
        }
        let table = std::array::from_fn(|channel| {
            let (mean, std) = (f64::from(mean[channel]), f64::from(std[channel]));
            std::array::from_fn(|value| narrow((value as f64 / 255.0 - mean) / std))
        });
        Ok(Self { table })
    }

    /// Writes the normalised `pixels`, images of `[height, width]`, to `out`, with up to `threads` threads.
    ///
    /// # Panics
    /// If `pixels` is no whole number of images, or `out` has another length.
    pub fn apply(&self, pixels: &[u8], [height, width]: [u32; 2], out: &mut [f32], threads: usize) {
        let image = height as usize * width as usize * 3;
        assert_eq!(pixels.len(), out.len(), "a number for each value");
        assert!(
            image > 0 && pixels.len().is_multiple_of(image),
            "`{}` bytes are no images of `{image}` bytes",
            pixels.len()
        );
        let each = (pixels.len() / image).div_ceil(threads.max(1)).max(1) * image;
        let work = |pixels: &[u8], out: &mut [f32]| {
            let each = pixels.chunks_exact(image).zip(out.chunks_exact_mut(image));
            each.for_each(|(pixels, out)| self.image(pixels, out));
        };
        let mut parts = pixels.chunks(each).zip(out.chunks_mut(each));
        let Some(own) = parts.next() else { return };
        thread::scope(|scope| {
            for (pixels, out) in parts {
                scope.spawn(move || work(pixels, out));
            }
            work(own.0, own.1);
        });
    }

    fn image(&self, pixels: &[u8], out: &mut [f32]) {
        let [red, green, blue] = &self.table;
        let (first, rest) = out.split_at_mut(out.len() / 3);
        let (second, third) = rest.split_at_mut(first.len());
        let to = first.iter_mut().zip(second).zip(third);
        for ([r, g, b], ((to_r, to_g), to_b)) in pixels.as_chunks::<3>().0.iter().zip(to) {
            *to_r = red[usize::from(*r)];
            *to_g = green[usize::from(*g)];
            *to_b = blue[usize::from(*b)];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_moved_to_planes_and_have_the_same_bits_on_any_number_of_threads() {
        let (mean, std) = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]);
        let normalise = Normalise::new(mean, std).unwrap();
        let (images, sides) = (5, [3, 7]);
        let plane = 21;
        let pixels: Vec<u8> = (0..images * plane * 3)
            .map(|i| u8::try_from(i * 37 % 251).unwrap())
            .collect();
        let mut expected = vec![0.0; pixels.len()];
        normalise.apply(&pixels, sides, &mut expected, 1);
        for (i, value) in expected.iter().enumerate() {
            let (image, channel, place) = (i / (plane * 3), i / plane % 3, i % plane);
            let pixel = f32::from(pixels[(image * plane + place) * 3 + channel]);
            let plain = (pixel / 255.0 - mean[channel]) / std[channel];
            assert!((value - plain).abs() < 1e-6, "{i}: {value} and {plain}");
        }
        for threads in [0, 2, 3, 8] {
            let mut out = vec![0.0; pixels.len()];
            normalise.apply(&pixels, sides, &mut out, threads);
            let same = out
                .iter()
                .zip(&expected)
                .all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(same, "{threads} threads");
        }
        normalise.apply(&[], sides, &mut [], 2);
        assert!(Normalise::new(mean, [1.0, 0.0, 1.0]).is_err());
        assert!(Normalise::new([f32::NAN; 3], std).is_err());
    }
}
