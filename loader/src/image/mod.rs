//! From an encoded image to the pixels of one slot: decode, crop, resize, turn upright, augment.
//!
//! ```text
//! bytes -> header (format, sides, orientation; limits) -> crop box -> decode what the box needs -> resize -> upright
//!       -> augmentations, in the order written -> u8 RGB [height, width, 3] in the caller's slot
//! ```
//!
//! Decoding and resizing are [`feedline_image`]'s. Random choices come from [`SampleRandom`], a function of (seed,
//! epoch, sample key, operation), so that thread, rank and world size have no influence. The module does no I/O; each
//! thread brings its own scratch memory.

mod augment;
mod config;
mod crop;
mod mixup;
mod normalise;
mod random;
mod ranges;

pub use augment::Augment;
pub use config::{Crop, ImageConfig};
pub use feedline_image::{ImageError, ImageLimits};
pub(crate) use mixup::mix_batch;
pub use mixup::{CutBox, Level, Mix, MixConfig, apply_mix, soft_label};
pub use normalise::Normalise;
pub use random::SampleRandom;

use feedline_image::{Decoder, Filter, Format, Header, Target};
use feedline_schemas::config::ImageBackground;

/// Memory of one thread that images are decoded in.
#[derive(Debug, Default)]
pub(crate) struct DecodeScratch {
    decoder: Decoder,
    /// An image of the output's size.
    turned: Vec<u8>,
}

/// Decodes `encoded` into `out`, u8 RGB `[height, width, 3]`, as `config` says, on `background` where pixels are transparent;
/// without one their alpha is dropped. `out` is undefined after an error.
///
/// # Errors
/// Those of [`ImageError`].
///
/// # Panics
/// If `out` does not have `height * width * 3` bytes.
pub(crate) fn decode_into(
    config: &ImageConfig,
    background: Option<[u8; 3]>,
    encoded: &[u8],
    random: &mut SampleRandom,
    scratch: &mut DecodeScratch,
    out: &mut [u8],
) -> Result<(), ImageError> {
    let header = Header::read(encoded, Format::TRAINED_ON, &config.limits)?;
    let crop = crop::choose(config, header.upright_sides(), random);
    let target = Target {
        width: config.width,
        height: config.height,
        filter: Filter::Bilinear,
        scaled_decoding: config.scaled_decoding,
    };
    let region = crop.stored(&header, target);
    scratch.decoder.set_background(background);
    scratch.decoder.decode(encoded, &header, &region, out)?;
    let (augments, width) = (&config.augment, config.width as usize);
    augment::apply(augments, out, &mut scratch.turned, width, random);
    Ok(())
}

/// Decodes images one after another, in memory that it keeps. One for each thread.
///
/// ```
/// use feedline_loader::image::{ImageConfig, ImageDecoder, ImageError, SampleRandom};
///
/// let config = ImageConfig::training(224, 224);
/// let mut decoder = ImageDecoder::new(config)?;
/// let mut pixels = vec![0; decoder.config().bytes()];
/// let (seed, epoch, key) = (7, 0, 42);
/// let error = decoder.decode(&[], &mut SampleRandom::new(seed, epoch, key), &mut pixels);
/// assert!(matches!(error, Err(ImageError::Empty)));
/// # Ok::<(), feedline_loader::Error>(())
/// ```
#[derive(Debug)]
pub struct ImageDecoder {
    config: ImageConfig,
    scratch: DecodeScratch,
}

impl ImageDecoder {
    /// A decoder with these settings.
    ///
    /// # Errors
    /// [`Error::Config`](crate::Error::Config) for a setting out of its range.
    pub fn new(config: ImageConfig) -> Result<Self, crate::Error> {
        config.check()?;
        Ok(Self {
            config,
            scratch: DecodeScratch::default(),
        })
    }

    /// The settings.
    #[must_use]
    pub const fn config(&self) -> &ImageConfig {
        &self.config
    }

    /// Decodes one JPEG, PNG, WebP, PGM or PPM into `out`, u8 RGB `[height, width, 3]`. The pixels are a function of the
    /// settings, the bytes and `random`'s key alone. After an error `out` is undefined.
    ///
    /// # Errors
    /// [`ImageError`], for bytes that are no image, damaged, truncated, of an unsupported kind, or
    /// over the limits.
    ///
    /// # Panics
    /// If `out` does not have [`ImageConfig::bytes`] bytes.
    pub fn decode(
        &mut self,
        encoded: &[u8],
        random: &mut SampleRandom,
        out: &mut [u8],
    ) -> Result<(), ImageError> {
        let config = &self.config;
        let background = config.background.and_then(ImageBackground::colour);
        decode_into(config, background, encoded, random, &mut self.scratch, out)
    }
}
