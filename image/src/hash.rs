//! Hashes that find duplicate images: one of the pixels, and two of the appearance.

use std::f64::consts::PI;

use fast_image_resize::{
    FilterType, ResizeAlg, ResizeOptions, Resizer,
    images::{TypedImage, TypedImageRef},
    pixels::U8,
};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

/// Side of the grey image that the cosine transform is taken of.
const SIDE: usize = 32;
/// Frequencies kept along each axis, from the first after the constant one.
const KEPT: usize = 8;
/// Scale of the table of cosines, whose rounding makes the hash the same on every machine.
const SCALE: f64 = 16_384.0;
/// Variance of grey levels below which an image has no structure to hash.
const LEAST_VARIANCE: u64 = 16;

/// Hashes of one image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageHashes {
    /// xxh3-128 of `width u32 | height u32 | pixels u8 RGB`, little endian.
    pub pixels: u128,
    /// Perceptual hashes; `None` for an image of (nearly) one colour, since all such images hash
    /// alike.
    pub looks: Option<Looks>,
}

/// Perceptual hashes in 128 bits; few of them change when an image is resized or encoded again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Looks {
    /// Bits of the 64 lowest frequencies in both directions (1 to 8 of a 32 x 32 grey image's
    /// cosine transform) that are above the lower median: Zauner, "Implementation and Benchmarking
    /// of Perceptual Image Hash Functions" (2010).
    pub phash: u64,
    /// Bits of the pixels of a 9 x 8 grey image that are darker than their right neighbours.
    pub dhash: u64,
}

impl ImageHashes {
    /// Hashes `pixels`, u8 RGB `[height, width, 3]`; `sides` are width and height.
    #[must_use]
    pub fn of(pixels: &[u8], sides: [u32; 2]) -> Self {
        let mut hash = Xxh3::new();
        sides
            .iter()
            .for_each(|side| hash.update(&side.to_le_bytes()));
        hash.update(pixels);
        Self {
            pixels: hash.digest128(),
            looks: Looks::of(pixels, sides),
        }
    }
}

impl Looks {
    /// Hashes `pixels`, u8 RGB `[height, width, 3]`; `sides` are width and height.
    #[must_use]
    pub fn of(pixels: &[u8], sides: [u32; 2]) -> Option<Self> {
        let grey: Vec<u8> = pixels.as_chunks::<3>().0.iter().map(|p| luma(*p)).collect();
        let [large, small] = [(32, 32), (9, 8)].map(|to| shrunk(&grey, sides, to));
        let (large, small) = (large?, small?);
        if variance(&large) < LEAST_VARIANCE {
            return None;
        }
        Some(Self {
            phash: phash(&large),
            dhash: dhash(&small),
        })
    }

    /// Number of differing bits in each hash.
    #[must_use]
    pub const fn distance(&self, other: &Self) -> [u32; 2] {
        [
            (self.phash ^ other.phash).count_ones(),
            (self.dhash ^ other.dhash).count_ones(),
        ]
    }
}

/// ITU-R BT.601 in fixed point, as Pillow converts to `L`.
fn luma([red, green, blue]: [u8; 3]) -> u8 {
    let [red, green, blue] = [red, green, blue].map(u32::from);
    u8::try_from((red * 19_595 + green * 38_470 + blue * 7_471 + 0x8000) >> 16).unwrap_or(u8::MAX)
}

/// Resized with antialiasing. `None` where there are no pixels.
fn shrunk(grey: &[u8], [width, height]: [u32; 2], to: (u32, u32)) -> Option<Vec<u8>> {
    let mut pixels = vec![0; to.0 as usize * to.1 as usize];
    let from = TypedImageRef::<U8>::from_buffer(width, height, grey).ok()?;
    let mut target = TypedImage::<U8>::from_buffer(to.0, to.1, &mut pixels).ok()?;
    let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::Bilinear));
    Resizer::new()
        .resize_typed(&from, &mut target, &options)
        .ok()?;
    drop(target);
    Some(pixels)
}

fn variance(levels: &[u8]) -> u64 {
    let count = levels.len() as u64;
    let sum: u64 = levels.iter().map(|level| u64::from(*level)).sum();
    let squares: u64 = levels.iter().map(|level| u64::from(*level).pow(2)).sum();
    (count * squares - sum * sum) / (count * count)
}

fn phash(levels: &[u8]) -> u64 {
    let table = cosines();
    // Rows first: [row, frequency].
    let mut rows = [[0_i64; KEPT]; SIDE];
    for (row, of_row) in levels.chunks_exact(SIDE).zip(&mut rows) {
        for (sum, cosines) in of_row.iter_mut().zip(&table) {
            *sum = row
                .iter()
                .zip(cosines)
                .map(|(level, c)| i64::from(*level) * c)
                .sum();
        }
    }
    let frequencies: Vec<i64> = (0..KEPT * KEPT)
        .map(|i| {
            let cosines = &table[i / KEPT];
            rows.iter()
                .zip(cosines)
                .map(|(row, c)| row[i % KEPT] * c)
                .sum()
        })
        .collect();
    let mut sorted = frequencies.clone();
    sorted.sort_unstable();
    let median = sorted[sorted.len() / 2 - 1];
    bits(frequencies.iter().map(|frequency| *frequency > median))
}

/// `cos((2 x + 1) u pi / 64)` for the frequencies u from 1 to 8, as integers.
fn cosines() -> [[i64; SIDE]; KEPT] {
    std::array::from_fn(|u| {
        std::array::from_fn(|x| {
            let turns = ((2 * x + 1) * (u + 1)) as f64 / (2 * SIDE) as f64;
            rounded((turns * PI).cos() * SCALE)
        })
    })
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a conversion that rounds is what is meant"
)]
fn rounded(value: f64) -> i64 {
    value.round() as i64
}

fn dhash(levels: &[u8]) -> u64 {
    let darker =
        |row: &[u8]| -> Vec<bool> { row.windows(2).map(|pair| pair[0] < pair[1]).collect() };
    bits(levels.chunks_exact(9).flat_map(darker))
}

/// The first is the highest of 64.
fn bits(all: impl Iterator<Item = bool>) -> u64 {
    all.fold(0, |bits, bit| bits << 1 | u64::from(bit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Encoding, testing::decode_whole};

    fn looks(pixels: &[u8], sides: [u32; 2]) -> Looks {
        Looks::of(pixels, sides).unwrap()
    }

    #[test]
    fn frequencies_are_those_of_the_cosine_transform() {
        let levels: Vec<u8> = (0..SIDE * SIDE)
            .map(|i| u8::try_from((i * i * 7 + i * 3) % 251).unwrap())
            .collect();
        let direct = |u: usize, v: usize| -> f64 {
            let cosine = |x: usize, u: usize| ((2 * x + 1) as f64 * u as f64 * PI / 64.0).cos();
            let pixel = |(i, level): (usize, &u8)| {
                f64::from(*level) * cosine(i % SIDE, u) * cosine(i / SIDE, v)
            };
            levels.iter().enumerate().map(pixel).sum()
        };
        let all: Vec<f64> = (0..64)
            .map(|i| direct(i % KEPT + 1, i / KEPT + 1))
            .collect();
        let mut sorted = all.clone();
        sorted.sort_by(f64::total_cmp);
        assert_eq!(phash(&levels), bits(all.iter().map(|f| *f > sorted[31])));
        assert_eq!(phash(&levels).count_ones(), 32);
    }

    #[test]
    fn a_gradient_shows_in_every_bit() {
        let row: Vec<u8> = (0..90).flat_map(|x| [x * 2; 3]).collect();
        assert_eq!(looks(&row.repeat(80), [90, 80]).dhash, u64::MAX);
        let mirrored: Vec<u8> = (0..90).rev().flat_map(|x| [x * 2; 3]).collect();
        assert_eq!(looks(&mirrored.repeat(80), [90, 80]).dhash, 0);
    }

    /// Blocks of 20 x 20 pixels of many levels, in 300 x 200 pixels.
    fn blocks() -> Vec<u8> {
        let level = |x: u32, y: u32| {
            let mixed = (y / 20 * 15 + x / 20).wrapping_mul(0x9e37_79b9) >> 24;
            u8::try_from(mixed).unwrap()
        };
        let places = (0..200).flat_map(|y| (0..300).map(move |x| (x, y)));
        places
            .flat_map(|(x, y)| [level(x, y), level(y, x), 99])
            .collect()
    }

    #[test]
    fn smaller_and_worse_copies_look_alike_and_other_images_do_not() {
        let pixels = blocks();
        let original = looks(&pixels, [300, 200]);
        let png = Encoding::Png.encode(&pixels, 300, 200).unwrap();
        let small = decode_whole(&png, 100, 150).unwrap();
        let jpeg = Encoding::Jpeg { quality: 60 }.encode(&pixels, 300, 200);
        let worse = decode_whole(&jpeg.unwrap(), 200, 300).unwrap();
        for (copy, sides) in [(small, [150, 100]), (worse, [300, 200])] {
            let [phash, dhash] = original.distance(&looks(&copy, sides));
            assert!(phash <= 4 && dhash <= 8, "{phash} and {dhash} bits");
        }
        let turned = pixels.as_chunks::<3>().0.iter().rev().copied();
        let turned: Vec<u8> = turned.flatten().collect();
        let [phash, dhash] = original.distance(&looks(&turned, [300, 200]));
        assert!(phash > 16 && dhash > 16, "{phash} and {dhash} bits");
    }

    #[test]
    fn images_of_one_colour_have_no_looks_and_differ_by_their_pixels() {
        let [black, grey] = [0, 9].map(|level| ImageHashes::of(&[level; 3 * 64], [8, 8]));
        assert_eq!((black.looks, grey.looks), (None, None));
        assert_ne!(black.pixels, grey.pixels);
        let wide = ImageHashes::of(&[0; 3 * 64], [16, 4]);
        assert_ne!(black.pixels, wide.pixels, "the sides count");
    }
}
