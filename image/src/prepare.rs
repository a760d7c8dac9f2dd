//! Preparation of a foreign image file for storage.

use feedline_schemas::guard::catching;
use serde::{Deserialize, Serialize};

use crate::{
    Decoder, Encoding, Filter, Format, Header, ImageError, ImageHashes, ImageLimits, Mapping,
    Sizing, Target, sizing::Placement,
};

/// Settings for preparing each image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preparation {
    /// The size it gets.
    pub sizing: Sizing,
    /// Resampling filter.
    pub filter: Filter,
    /// Stored format; `None` keeps the file unchanged.
    pub encoding: Option<Encoding>,
    /// True if a file stays unchanged when it has the format of `encoding`, is upright, is no larger
    /// than `sizing` asks for, and has no transparent pixels that are blended.
    pub keep_original: bool,
    /// Limits.
    pub limits: ImageLimits,
    /// True if a decoder may shrink while decoding, see [`Target::scaled_decoding`].
    pub scaled_decoding: bool,
    /// Colour that transparent pixels are blended onto, see [`Decoder::set_background`].
    pub background: Option<[u8; 3]>,
    /// True to compute [`Prepared::hashes`].
    pub hashes: bool,
}

impl Preparation {
    /// Accepted formats: a file that stays unchanged must be one that loaders read.
    const fn formats(&self) -> &'static [Format] {
        match self.encoding {
            None => Format::TRAINED_ON,
            Some(_) => Format::ALL,
        }
    }
}

/// An image that was prepared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// File to store; `None` if it is unchanged.
    pub file: Option<Vec<u8>>,
    /// Width and height of its upright image.
    pub sides: [u32; 2],
    /// Sums over its pixels, before they were encoded.
    pub sums: ChannelSums,
    /// Mapping of its boxes.
    pub mapping: Mapping,
    /// Hashes that duplicates are found by, if requested.
    pub hashes: Option<ImageHashes>,
    /// True if the file has pixels that are not opaque.
    pub is_transparent: bool,
}

/// Sums over pixels, of red, green and blue: exact, so that they can be added in any order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelSums {
    /// Number of pixels.
    pub pixels: u64,
    /// Sum of the levels, 0 to 255.
    pub levels: [u64; 3],
    /// Sum of their squares.
    pub squares: [u64; 3],
}

/// Bytes that are summed side by side: whole pixels, and whole registers.
const LANES: usize = 24;

impl ChannelSums {
    /// Computes the sums over `pixels`, u8 RGB.
    #[must_use]
    pub fn of(pixels: &[u8]) -> Self {
        let mut sums = Self::default();
        let (groups, rest) = pixels.as_chunks::<LANES>();
        // 2^16 squares of 255 fit into 32 bits, which are summed faster, each byte of a group in a lane of its own.
        for groups in groups.chunks(1 << 16) {
            let (mut levels, mut squares) = ([0_u32; LANES], [0_u32; LANES]);
            for group in groups {
                for lane in 0..LANES {
                    let level = u16::from(group[lane]);
                    levels[lane] += u32::from(level);
                    squares[lane] += u32::from(level * level);
                }
            }
            for lane in 0..LANES {
                sums.levels[lane % 3] += u64::from(levels[lane]);
                sums.squares[lane % 3] += u64::from(squares[lane]);
            }
        }
        for (at, level) in rest.iter().enumerate() {
            let level = u64::from(*level);
            sums.levels[at % 3] += level;
            sums.squares[at % 3] += level * level;
        }
        sums.pixels = pixels.len() as u64 / 3;
        sums
    }

    /// Adds those of other pixels.
    pub fn add(&mut self, other: &Self) {
        self.pixels += other.pixels;
        for channel in 0..3 {
            self.levels[channel] += other.levels[channel];
            self.squares[channel] += other.squares[channel];
        }
    }

    /// Mean and standard deviation (of all pixels, not of a sample) of each channel, in units of the full range, as
    /// torchvision's `Normalize` takes them. `None` without pixels.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "the nearest number is meant")]
    pub fn moments(&self) -> Option<([f64; 3], [f64; 3])> {
        if self.pixels == 0 {
            return None;
        }
        let count = u128::from(self.pixels);
        let mean = self
            .levels
            .map(|sum| sum as f64 / self.pixels as f64 / 255.0);
        let deviation = [0, 1, 2].map(|channel: usize| {
            // n * sum of squares - (sum)^2, exact.
            let (sum, squares) = (
                u128::from(self.levels[channel]),
                u128::from(self.squares[channel]),
            );
            let spread = (count * squares).saturating_sub(sum * sum);
            (spread as f64).sqrt() / self.pixels as f64 / 255.0
        });
        Some((mean, deviation))
    }
}

/// Prepares images one after another, in memory that it reuses. Use one per thread.
///
/// ```
/// use feedline_image::{Encoding, Filter, Format, ImageLimits, Preparation, Preparer, Sizing};
///
/// let how = Preparation {
///     sizing: Sizing::ShorterSide(4),
///     filter: Filter::Lanczos,
///     encoding: Some(Encoding::Jpeg { quality: 90 }),
///     keep_original: false,
///     limits: ImageLimits::DEFAULT,
///     scaled_decoding: true,
///     background: Some([255; 3]),
///     hashes: true,
/// };
/// let prepared = Preparer::new(how).prepare(&Encoding::Png.encode(&[128; 288], 12, 8)?)?;
/// assert_eq!(prepared.sides, [6, 4]);
/// assert_eq!(Format::of(&prepared.file.unwrap_or_default())?, Format::Jpeg);
/// // A box of the original image, in pixels of the stored one.
/// assert_eq!(prepared.mapping.of_upright([2.0, 2.0, 4.0, 6.0]), Some([1.0, 1.0, 2.0, 3.0]));
/// # Ok::<(), feedline_image::ImageError>(())
/// ```
#[derive(Debug)]
pub struct Preparer {
    how: Preparation,
    decoder: Decoder,
    /// Pixels of the size that is stored.
    pixels: Vec<u8>,
    /// The same before it is put in the middle of a larger one.
    fitted: Vec<u8>,
}

impl Preparer {
    /// Creates a preparer with these settings.
    #[must_use]
    pub fn new(how: Preparation) -> Self {
        let mut decoder = Decoder::default();
        decoder.set_background(how.background);
        Self {
            how,
            decoder,
            pixels: Vec::new(),
            fitted: Vec::new(),
        }
    }

    /// Prepares one image: a function of the settings and the bytes alone. Panics of decoders become errors.
    ///
    /// # Errors
    /// Those of [`ImageError`].
    pub fn prepare(&mut self, encoded: &[u8]) -> Result<Prepared, ImageError> {
        catching(|| self.try_prepare(encoded)).unwrap_or_else(|panic| {
            *self = Self::new(self.how);
            Err(ImageError::corrupt(format!(
                "the decoder panicked: {panic}"
            )))
        })
    }

    fn try_prepare(&mut self, encoded: &[u8]) -> Result<Prepared, ImageError> {
        let how = self.how;
        let header = Header::read(encoded, how.formats(), &how.limits)?;
        let upright = <[u32; 2]>::from(header.upright_sides());
        let place = how.sizing.place(upright);
        self.decode(encoded, &header, &place)?;
        let is_transparent = self.decoder.is_transparent();
        // Readers of a stored file need not know the background.
        let is_blended = is_transparent && how.background.is_some();
        let may_keep = how.keep_original && place.is_whole(upright) && !is_blended;
        let file = match how.encoding {
            Some(encoding) if !(may_keep && header.is_as(encoding)) => {
                let [width, height] = place.sides;
                Some(encoding.encode(&self.pixels, width, height)?)
            }
            _ => None,
        };
        Ok(Prepared {
            file,
            sides: place.sides,
            sums: ChannelSums::of(&self.pixels),
            mapping: Mapping {
                orientation: header.orientation,
                file_sides: [header.width, header.height],
                sizing: how.sizing,
            },
            hashes: how
                .hashes
                .then(|| ImageHashes::of(&self.pixels, place.sides)),
            is_transparent,
        })
    }

    /// Decodes into `pixels` what is stored.
    fn decode(
        &mut self,
        encoded: &[u8],
        header: &Header,
        place: &Placement,
    ) -> Result<(), ImageError> {
        let [width, height] = place.resized;
        let target = Target {
            width,
            height,
            filter: self.how.filter,
            scaled_decoding: self.how.scaled_decoding,
        };
        let region = place.from.stored(header, target);
        let is_padded = place.sides != place.resized;
        let out = if is_padded {
            &mut self.fitted
        } else {
            &mut self.pixels
        };
        out.resize(target.bytes(), 0);
        self.decoder.decode(encoded, header, &region, out)?;
        if is_padded {
            self.pixels.clear();
            self.pixels
                .resize(place.sides[0] as usize * place.sides[1] as usize * 3, 0);
            let [left, top] = place.corner().map(|at| at as usize);
            let row_bytes = place.sides[0] as usize * 3;
            let rows = self.pixels.chunks_exact_mut(row_bytes).skip(top);
            for (to, from) in rows.zip(self.fitted.chunks_exact(width as usize * 3)) {
                to[left * 3..][..from.len()].copy_from_slice(from);
            }
        }
        Ok(())
    }
}
