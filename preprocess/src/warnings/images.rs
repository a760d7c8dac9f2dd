//! A warning of images with transparent pixels.

use feedline_schemas::{config::ImageBackground, count::counted, report::Warning};

use super::message::warning;
use crate::operators::images::{self, Images, TransparentImages};

/// Code of a warning about images with transparent pixels.
const TRANSPARENT_IMAGES: &str = "transparent_images";

/// Warns of images with pixels that are not opaque, and names the colour that they were blended onto.
pub(crate) fn transparent_images(
    counts: TransparentImages,
    images: Option<&Images>,
) -> Option<Warning> {
    let background = images::background(&images?.config);
    (counts.transparent > 0).then(|| {
        let message = describe(counts, background);
        warning(TRANSPARENT_IMAGES, "dataset.image.background", message)
    })
}

fn describe(counts: TransparentImages, background: ImageBackground) -> String {
    let TransparentImages {
        transparent,
        decoded,
    } = counts;
    let have = if transparent == 1 { "has" } else { "have" };
    let begin = format!(
        "{transparent} of {} {have} transparent pixels",
        counted(decoded, "image")
    );
    if background == ImageBackground::NONE {
        return format!(
            "{begin}, whose alpha was dropped, so they have the colours that their file stores under it; name the colour to blend \
             them onto with `dataset.image.background`, such as `\"white\"`"
        );
    }
    let other = match background {
        ImageBackground::WHITE => "black",
        _ => "white",
    };
    format!(
        "{begin}, which were blended onto `{background}`; choose another colour with `dataset.image.background`, such as \
         `\"{other}\"`, where images were made to be seen on it"
    )
}
