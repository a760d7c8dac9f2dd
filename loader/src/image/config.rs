//! Settings of the way from an encoded image to pixels.

use feedline_image::ImageLimits;
use feedline_schemas::config::ImageBackground;
use serde::{Deserialize, Serialize};

use super::{
    Augment, MixConfig,
    ranges::{range, within},
};
use crate::Error;

/// Transforms of each image. The pixels of a sample depend on these settings, so they belong to a
/// run: changed on resuming, later batches differ from those of a run that was never stopped.
///
/// ```
/// use feedline_loader::image::{Crop, ImageConfig};
///
/// let config = ImageConfig::evaluation(224, 224);
/// assert_eq!(config.crop, Crop::Center { shorter_side: 256 });
/// assert_eq!(config.bytes(), 224 * 224 * 3);
/// let wrong = ImageConfig { width: 0, ..config };
/// assert!(wrong.check().is_err());
/// # assert!(ImageConfig::training(224, 224).check().is_ok());
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageConfig {
    /// Height of the images handed out, in pixels, 1 to 8,192.
    pub height: u32,
    /// Width of the images handed out, in pixels, 1 to 8,192.
    pub width: u32,
    /// Part of the image that is used.
    pub crop: Crop,
    /// Random changes after the crop, in the order written. Default none.
    #[serde(default)]
    pub augment: Vec<Augment>,
    /// Allows a decoder that can to shrink a JPEG by 2, 4 or 8 while decoding, as long as the crop
    /// keeps at least the size handed out. Faster for large images, and the pixels differ by a few
    /// levels from those of a full decode. Only libjpeg-turbo can (feature `turbojpeg`). Default
    /// true.
    #[serde(default = "yes")]
    pub scaled_decoding: bool,
    /// Mixing of the images of a batch in pairs, in passes over
    /// [`Loader::batches`](crate::Loader::batches) and [`Loader::epoch`](crate::Loader::epoch); a
    /// sequential pass and a [`ImageDecoder`](super::ImageDecoder) mix nothing. Default no mixing.
    #[serde(default)]
    pub mix: Option<MixConfig>,
    /// Limits on what is decoded; an image over one is replaced by another, see
    /// [`LoaderConfig::max_bad_fraction`](crate::LoaderConfig::max_bad_fraction). Default: those of
    /// [`ImageLimits::DEFAULT`], for shards raised to the ones that `[dataset.image]` set for their build.
    #[serde(default)]
    pub limits: ImageLimits,
    /// Colour that transparent pixels are blended onto: `"white"`, `"black"` or `"#rrggbb"`; `"none"` drops their alpha.
    /// Default: for shards the colour that `dataset.image.background` set for their build, otherwise `"none"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background: Option<ImageBackground>,
}

const fn yes() -> bool {
    true
}

/// The part of an image that is used. Sides are those of the upright image, after EXIF orientation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Crop {
    /// A random box, resized to the size handed out: `RandomResizedCrop` of torchvision. Ten tries draw an area and an
    /// aspect ratio; if none fits, the largest central box with an allowed ratio is taken.
    RandomResized {
        /// Least and most share of the image's area, `0 < least <= most <= 1`. Default `[0.08, 1.0]`.
        #[serde(default = "usual_scale")]
        scale: [f32; 2],
        /// Least and most width / height, drawn evenly in its logarithm, `0.01` to `100`. Default `[0.75, 1.3333334]`.
        #[serde(default = "usual_ratio")]
        ratio: [f32; 2],
    },
    /// The image is resized, keeping its aspect ratio, and its centre used: `Resize` and `CenterCrop` of torchvision.
    Center {
        /// Shorter side after resizing, in pixels, at least `height` and `width`, at most 16,384.
        shorter_side: u32,
    },
    /// The whole image is resized to the size handed out; its aspect ratio changes.
    Whole,
}

const fn usual_scale() -> [f32; 2] {
    [0.08, 1.0]
}

const fn usual_ratio() -> [f32; 2] {
    [3.0 / 4.0, 4.0 / 3.0]
}

impl ImageConfig {
    /// The usual settings for training: a random resized crop, mirrored half of the time.
    #[must_use]
    pub fn training(height: u32, width: u32) -> Self {
        let crop = Crop::RandomResized {
            scale: usual_scale(),
            ratio: usual_ratio(),
        };
        let flip = Augment::HorizontalFlip { probability: 0.5 };
        Self {
            augment: vec![flip],
            ..Self::new(height, width, crop)
        }
    }

    /// The usual settings for evaluation: the centre, with a shorter side of 8/7 of the larger of `height` and `width`
    /// (256 for 224), nothing random.
    #[must_use]
    pub const fn evaluation(height: u32, width: u32) -> Self {
        let larger = if height > width { height } else { width };
        let crop = Crop::Center {
            shorter_side: larger.saturating_mul(8).div_ceil(7),
        };
        Self::new(height, width, crop)
    }

    /// Settings without augmentations, with the default limits.
    #[must_use]
    pub const fn new(height: u32, width: u32, crop: Crop) -> Self {
        Self {
            height,
            width,
            crop,
            augment: Vec::new(),
            scaled_decoding: true,
            mix: None,
            limits: ImageLimits::DEFAULT,
            background: None,
        }
    }

    /// Bytes of an image handed out, `height * width * 3`.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.height as usize * self.width as usize * 3
    }

    /// Checks that every setting is in its range.
    ///
    /// # Errors
    /// [`Error::Config`] names the first that is not, and what is allowed.
    pub fn check(&self) -> Result<(), Error> {
        within("image.height", self.height.into(), 1, 8192)?;
        within("image.width", self.width.into(), 1, 8192)?;
        self.check_crop()?;
        self.augment.iter().try_for_each(Augment::check)?;
        self.mix.as_ref().map_or(Ok(()), MixConfig::check)?;
        let limits = &self.limits;
        let encoded = limits.encoded_bytes.into();
        within("images.limits.encoded_bytes", encoded, 1, 1 << 30)?;
        within("images.limits.side", limits.side.into(), 1, 1 << 14)?;
        within("images.limits.pixels", limits.pixels, 1, 1 << 28)?;
        within(
            "images.limits.decoder_bytes",
            limits.decoder_bytes,
            1,
            1 << 36,
        )
    }

    fn check_crop(&self) -> Result<(), Error> {
        match self.crop {
            Crop::RandomResized { scale, ratio } => {
                // The least area is that of a box which is not smaller than a pixel for any image that fits.
                range("image.crop.scale", scale, 1e-6, 1.0)?;
                range("image.crop.ratio", ratio, 0.01, 100.0)
            }
            Crop::Center { shorter_side } => {
                let least = self.height.max(self.width).into();
                within(
                    "image.crop.shorter_side",
                    shorter_side.into(),
                    least,
                    1 << 14,
                )
            }
            Crop::Whole => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_out_of_range_are_named() {
        let check = |change: fn(&mut ImageConfig), message: &str| {
            let mut config = ImageConfig::training(224, 224);
            assert!(config.check().is_ok());
            change(&mut config);
            assert_eq!(
                config.check().unwrap_err().to_string(),
                format!("cannot use loader setting {message}")
            );
        };
        check(
            |c| c.width = 0,
            "`image.width`: it is `0`, use `1` to `8192`",
        );
        check(
            |c| c.crop = Crop::Center { shorter_side: 223 },
            "`image.crop.shorter_side`: it is `223`, use `224` to `16384`",
        );
        check(
            |c| {
                c.crop = Crop::RandomResized {
                    scale: [0.5, f32::NAN],
                    ratio: [1.0, 1.0],
                }
            },
            "`image.crop.scale`: it is `[0.5, NaN]`, use two numbers in order, from `0.000001` to `1`",
        );
        check(
            |c| c.limits.side = 16_385,
            "`images.limits.side`: it is `16385`, use `1` to `16384`",
        );
        check(
            |c| c.mix = Some(MixConfig::new(0.75, 0.5)),
            "`image.mix.cutmix_probability`: it is `[0.5, 0.5]`, use two numbers in order, from `0` to `0.25`",
        );
    }

    #[test]
    fn settings_are_read_with_defaults_and_unknown_ones_are_refused() {
        let read = |text| serde_json::from_str::<ImageConfig>(text);
        let config = read(
            r#"{"height":224,"width":224,"crop":{"kind":"random_resized"},
            "augment":[{"kind":"horizontal_flip","probability":0.5}]}"#,
        );
        assert_eq!(config.unwrap(), ImageConfig::training(224, 224));
        let on_grey =
            read(r##"{"height":1,"width":1,"crop":{"kind":"whole"},"background":"#808080"}"##);
        let grey = on_grey
            .unwrap()
            .background
            .and_then(ImageBackground::colour);
        assert_eq!(grey, Some([128; 3]));
        let error = read(r#"{"height":1,"width":1,"crop":{"kind":"whole"},"background":"grey"}"#);
        assert!(error.unwrap_err().to_string().contains("not a background"));
        let error = read(r#"{"height":1,"width":1,"crop":{"kind":"whole"},"flop":1}"#);
        assert!(error.unwrap_err().to_string().contains("flop"));
        let evaluation = ImageConfig::evaluation(224, 192);
        assert_eq!(evaluation.crop, Crop::Center { shorter_side: 256 });
    }
}
