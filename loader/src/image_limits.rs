//! Limits on the images of a dataset: those that it was built within, unless the settings name others.

use std::sync::Arc;

use feedline_schemas::config::{ImageStore, StoredImageConfig};
use feedline_storage::Store;

use crate::{
    Error, LoaderConfig,
    image::{ImageConfig, ImageLimits},
    input::{OpenedSplit, RowContent, read_transform},
};

/// Largest number of bytes that a lossless file takes for a pixel, its container included.
const LOSSLESS_BYTES: u64 = 4;

/// The settings of images. If their limits are the defaults, they are raised to those that datasets of shards were built
/// within, so that an image which a build accepts is also read.
///
/// # Errors
/// Failures to read a transform.
pub(crate) async fn settings(
    datasets: &[Store],
    inputs: &[Arc<OpenedSplit>],
    config: &LoaderConfig,
) -> Result<Option<ImageConfig>, Error> {
    let Some(mut settings) = config.images.clone() else {
        return Ok(None);
    };
    if settings.limits != ImageLimits::DEFAULT {
        return Ok(Some(settings));
    }
    for (dataset, input) in datasets.iter().zip(inputs) {
        let has_images = matches!(
            input.record(),
            RowContent::Images { .. } | RowContent::Multi { images: true, .. }
        );
        let Some(manifest) = input.manifest().filter(|_| has_images) else {
            continue;
        };
        let transform = read_transform(dataset, manifest).await?;
        if let Some(built) = transform.and_then(|transform| transform.images) {
            settings.limits = raised(settings.limits, &built.prepared);
        }
    }
    Ok(Some(settings))
}

/// The larger of each limit and the one of the build.
fn raised(limits: ImageLimits, built: &StoredImageConfig) -> ImageLimits {
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
        assert_eq!(raised(ImageLimits::DEFAULT, &built), expected);
        let usual = StoredImageConfig::default();
        assert_eq!(raised(ImageLimits::DEFAULT, &usual), ImageLimits::DEFAULT);
        // Pixels without compression are larger than the files that they came from.
        let raw = StoredImageConfig {
            store: ImageStore::Raw,
            ..usual
        };
        assert_eq!(
            raised(ImageLimits::DEFAULT, &raw).encoded_bytes,
            256_000_000
        );
    }
}
