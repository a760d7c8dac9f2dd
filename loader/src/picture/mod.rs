//! From an encoded picture to the pixels of one slot: decode, crop, resize, turn upright, augment.
//!
//! ```text
//! bytes -> header (format, sides, orientation; limits) -> crop box -> decode what the box needs -> resize -> upright
//!       -> augmentations, in the order written -> u8 RGB [height, width, 3] in the caller's slot
//! ```
//!
//! Nothing is half done: a picture that is cut short or damaged within the crop is an error and never a grey
//! rectangle. What the header promises is checked against the limits before memory is taken. Random choices come from
//! [`SampleRandom`], a function of (seed, epoch, sample key, operation), so that thread, rank and world size have no
//! influence. The module does no I/O; each thread brings its own scratch memory.

mod augment;
mod config;
mod crop;
mod error;
mod header;
mod jpeg;
mod mix;
mod normalise;
mod orientation;
mod other;
mod random;
mod raw;
mod resize;
mod rounding;

pub use augment::Augment;
pub use config::{Crop, PictureConfig, PictureLimits};
pub use error::PictureError;
pub(crate) use mix::mix_batch;
pub use mix::{CutBox, Level, Mix, MixConfig, MixedBy, apply_mix, soft_label};
pub use normalise::Normalise;
pub use random::SampleRandom;

use fast_image_resize::Resizer;

/// Memory of one thread that pictures are decoded in; grows to what the pictures need and is then used again.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// Encoded bytes that had to be changed before decoding.
    encoded: Vec<u8>,
    /// Decoded pixels, before they are cropped and resized.
    pixels: Vec<u8>,
    /// What a decoder of another layout than RGB wrote.
    raw: Vec<u8>,
    /// A picture of the output's size.
    turned: Vec<u8>,
    resizer: Resizer,
    #[cfg(feature = "turbojpeg")]
    turbo: Option<jpeg::Turbo>,
}

/// Most bytes that each buffer of a scratch keeps from one picture to the next.
const KEPT_BYTES: usize = 32 << 20;

impl Scratch {
    /// Gives back what one huge picture took.
    fn shrink(&mut self) {
        for buffer in [&mut self.encoded, &mut self.pixels, &mut self.raw] {
            if buffer.capacity() > KEPT_BYTES {
                *buffer = Vec::new();
            }
        }
        if self.resizer.size_of_internal_buffers() > KEPT_BYTES {
            self.resizer.reset_internal_buffers();
        }
    }
}

/// The first `bytes` of a buffer, which grows to hold them and never shrinks: to clear it for each picture would cost
/// more than a hundredth of the time. They hold what earlier pictures left.
fn room(buffer: &mut Vec<u8>, bytes: usize) -> &mut [u8] {
    if buffer.len() < bytes {
        buffer.resize(bytes, 0);
    }
    &mut buffer[..bytes]
}

/// Decoded pixels of a part of a stored picture, u8 RGB, row-major from the start of [`Scratch::pixels`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Decoded {
    /// Position of the first pixel in the (scaled) stored picture.
    left: u32,
    top: u32,
    width: u32,
    height: u32,
    /// The decoder shrank the picture to this many eighths.
    eighths: u32,
}

impl Decoded {
    const fn bytes(&self) -> usize {
        self.width as usize * self.height as usize * 3
    }
}

/// Decodes `encoded` into `out`, u8 RGB `[height, width, 3]`, as `config` says. `out` is undefined after an error.
///
/// # Errors
/// Those of [`PictureError`].
///
/// # Panics
/// If `out` does not have `height * width * 3` bytes.
pub(crate) fn decode_into(
    config: &PictureConfig,
    encoded: &[u8],
    random: &mut SampleRandom,
    scratch: &mut Scratch,
    out: &mut [u8],
) -> Result<(), PictureError> {
    assert_eq!(
        out.len(),
        config.bytes(),
        "the slot has the size of the picture"
    );
    let header = header::read(encoded, &config.limits)?;
    let crop = crop::choose(config, header.upright_sides(), random);
    let wanted = crop.stored(config, &header);
    let decoded = match header.format {
        header::Format::Jpeg => jpeg::decode(encoded, &header, &wanted, config, scratch),
        header::Format::Png | header::Format::WebP => {
            other::decode(encoded, &header, config, scratch)
        }
        header::Format::Raw => raw::decode(encoded, scratch),
    };
    let result = decoded.and_then(|decoded| {
        resize::resize(&decoded, &wanted, header.orientation, config, scratch, out)
    });
    scratch.shrink();
    result?;
    let (augments, width) = (&config.augment, config.width as usize);
    augment::apply(augments, out, &mut scratch.turned, width, random);
    Ok(())
}

/// Decodes pictures one after another, in memory that it keeps. One for each thread.
///
/// ```
/// use feedline_loader::picture::{PictureConfig, PictureDecoder, PictureError, SampleRandom};
///
/// let config = PictureConfig::training(224, 224);
/// let mut decoder = PictureDecoder::new(config)?;
/// let mut pixels = vec![0; decoder.config().bytes()];
/// let (seed, epoch, key) = (7, 0, 42);
/// let error = decoder.decode(&[], &mut SampleRandom::new(seed, epoch, key), &mut pixels);
/// assert!(matches!(error, Err(PictureError::Empty)));
/// # Ok::<(), feedline_loader::Error>(())
/// ```
#[derive(Debug)]
pub struct PictureDecoder {
    config: PictureConfig,
    scratch: Scratch,
}

impl PictureDecoder {
    /// A decoder with these settings.
    ///
    /// # Errors
    /// [`Error::Config`](crate::Error::Config) for a setting out of its range.
    pub fn new(config: PictureConfig) -> Result<Self, crate::Error> {
        config.check()?;
        Ok(Self {
            config,
            scratch: Scratch::default(),
        })
    }

    /// The settings.
    #[must_use]
    pub const fn config(&self) -> &PictureConfig {
        &self.config
    }

    /// Decodes one JPEG, PNG, WebP, PGM or PPM into `out`, u8 RGB `[height, width, 3]`. The pixels are a function of the
    /// settings, the bytes and `random`'s key alone. After an error `out` is undefined.
    ///
    /// # Errors
    /// [`PictureError`], for what is no picture, is damaged, cut short, of a kind not read, or over the limits.
    ///
    /// # Panics
    /// If `out` does not have [`PictureConfig::bytes`] bytes.
    pub fn decode(
        &mut self,
        encoded: &[u8],
        random: &mut SampleRandom,
        out: &mut [u8],
    ) -> Result<(), PictureError> {
        decode_into(&self.config, encoded, random, &mut self.scratch, out)
    }
}
