//! Limits and background of the images of a dataset: those that it was built with, unless the settings name others.

use std::sync::Arc;

use feedline_schemas::config::{ImageBackground, ImageStore, StoredImageConfig};
use feedline_storage::Store;

use crate::{
    Error, LoaderConfig,
    image::{ImageConfig, ImageLimits},
    input::{OpenedSplit, RowContent, read_transform},
};

/// Largest number of bytes that a lossless file takes for a pixel, its container included.
const LOSSLESS_BYTES: u64 = 4;

/// Settings of images, completed by those of the build of each dataset.
#[derive(Default)]
pub(crate) struct ImageSettings {
    /// Settings for all datasets; `None` where none are given.
    pub(crate) config: Option<ImageConfig>,
    /// Colour that transparent pixels of each dataset are blended onto; `None` where their alpha is dropped.
    pub(crate) backgrounds: Vec<Option<[u8; 3]>>,
}

/// The settings of images. If their limits are the defaults, they are raised to those that datasets of shards were built
/// within, so that an image which a build accepts is also read. If they name no background, it is that of each build, so
/// that an image has the pixels that the build has seen; an export of a dataset names it, too.
///
/// # Errors
/// Failures to read a transform.
pub(crate) async fn settings(
    datasets: &[Store],
    inputs: &[Arc<OpenedSplit>],
    config: &LoaderConfig,
) -> Result<ImageSettings, Error> {
    let Some(mut settings) = config.images.clone() else {
        return Ok(ImageSettings::default());
    };
    let may_raise = settings.limits == ImageLimits::DEFAULT;
    let mut backgrounds = Vec::with_capacity(inputs.len());
    for (dataset, input) in datasets.iter().zip(inputs) {
        let built = match may_raise || settings.background.is_none() {
            true => read_built(dataset, input).await?,
            false => None,
        };
        let own = built.as_ref().and_then(|built| built.background);
        let own = own.or_else(|| input.exported_background());
        let background = settings.background.or(own);
        backgrounds.push(background.and_then(ImageBackground::colour));
        if let Some(built) = built.filter(|_| may_raise) {
            settings.limits = raise_limits(settings.limits, &built);
        }
    }
    Ok(ImageSettings {
        config: Some(settings),
        backgrounds,
    })
}

/// Reads how the build of a dataset of shards decoded its images; `None` if it decoded none.
async fn read_built(
    dataset: &Store,
    input: &OpenedSplit,
) -> Result<Option<StoredImageConfig>, Error> {
    let has_images = matches!(
        input.record(),
        RowContent::Images { .. } | RowContent::Multi { images: true, .. }
    );
    let Some(manifest) = input.manifest().filter(|_| has_images) else {
        return Ok(None);
    };
    let transform = read_transform(dataset, manifest).await?;
    let images = transform.and_then(|transform| transform.images);
    Ok(images.map(|images| images.prepared))
}

/// The larger of each limit and the one of the build: limits that accept the images which a build within `built` has stored.
#[must_use]
pub fn raise_limits(limits: ImageLimits, built: &StoredImageConfig) -> ImageLimits {
    // A lossless file may be larger than the one that it was made from.
    let stored_bytes = match built.store {
        ImageStore::Original | ImageStore::Jpeg => 0,
        ImageStore::Png | ImageStore::Raw => built.max_pixels.saturating_mul(LOSSLESS_BYTES),
    };
    let encoded_bytes = stored_bytes.max(built.max_bytes.bytes());
    let encoded_bytes = u32::try_from(encoded_bytes).unwrap_or(u32::MAX);
    ImageLimits {
        encoded_bytes: limits.encoded_bytes.max(encoded_bytes),
        side: limits.side.max(built.max_side),
        pixels: limits.pixels.max(built.max_pixels),
        decoder_bytes: limits.decoder_bytes.max(built.max_decoder_bytes.bytes()),
    }
}

#[cfg(test)]
mod tests {
    use feedline_schemas::units::ByteSize;

    use super::*;

    #[test]
    fn limits_of_a_build_raise_those_of_the_loader_and_lower_none() {
        let built = StoredImageConfig {
            max_bytes: ByteSize::mib(100),
            max_pixels: 200_000_000,
            max_side: 100,
            ..StoredImageConfig::default()
        };
        let expected = ImageLimits {
            encoded_bytes: 100 << 20,
            pixels: 200_000_000,
            ..ImageLimits::DEFAULT
        };
        assert_eq!(raise_limits(ImageLimits::DEFAULT, &built), expected);
        let usual = StoredImageConfig::default();
        assert_eq!(
            raise_limits(ImageLimits::DEFAULT, &usual),
            ImageLimits::DEFAULT
        );
        // Pixels without compression are larger than the files that they came from.
        let raw = StoredImageConfig {
            store: ImageStore::Raw,
            ..usual
        };
        assert_eq!(
            raise_limits(ImageLimits::DEFAULT, &raw).encoded_bytes,
            256_000_000
        );
    }
}
