//! `[dataset.image]`, checked.

use feedline_image::{Encoding, Filter, ImageLimits, MOST_BITS, Preparation, Sizing};
use feedline_schemas::{
    config::{
        DatasetConfig, ImageBackground, ImageDuplicates, ImageFilter, ImageResize, ImageSize,
        ImageStore, StoredImageConfig,
    },
    record::ColumnType,
};

use super::image_steps::{COSINE, Images, KEY};
use crate::{
    Error,
    schema::landed_columns::{MergedColumn, find},
};

/// Largest side of an image.
const SIDE: u32 = 1 << 14;

/// Steps for the images of a dataset; `None` where they are stored unchanged.
///
/// # Errors
/// [`Error::Config`] for a setting out of its range, and for settings that do not go together.
pub(crate) fn resolve(
    config: &DatasetConfig,
    column: &str,
    columns: &[MergedColumn],
) -> Result<Option<Images>, Error> {
    let Some(image) = &config.image else {
        return Ok(None);
    };
    let within = |key: &str, value: u64, least: u64, most: u64| {
        if (least..=most).contains(&value) {
            return Ok(());
        }
        let reason = format!("it is `{value}`, use `{least}` to `{most}`");
        Err(Error::config(format!("{KEY}.{key}"), reason))
    };
    within("quality", image.quality.into(), 1, 100)?;
    within(
        "perceptual_bits",
        image.perceptual_bits.into(),
        0,
        MOST_BITS.into(),
    )?;
    within("max_bytes", image.max_bytes.bytes(), 1, 1 << 30)?;
    within("max_side", image.max_side.into(), 1, SIDE.into())?;
    within("max_pixels", image.max_pixels, 1, 1 << 28)?;
    within(
        "max_decoder_bytes",
        image.max_decoder_bytes.bytes(),
        1,
        1 << 36,
    )?;
    check_beside(image, columns)?;
    let how = Preparation {
        sizing: sizing(image)?,
        filter: match image.filter {
            ImageFilter::Bilinear => Filter::Bilinear,
            ImageFilter::Bicubic => Filter::Bicubic,
            ImageFilter::Lanczos => Filter::Lanczos,
        },
        encoding: match image.store {
            ImageStore::Original => None,
            ImageStore::Jpeg => Some(Encoding::Jpeg {
                quality: image.quality,
            }),
            ImageStore::Png => Some(Encoding::Png),
            ImageStore::Raw => Some(Encoding::Raw),
        },
        keep_original: image.keep_original,
        limits: limits(image),
        // What comes out of a reduced decode depends on the library that the program was built with.
        scaled_decoding: false,
        background: background(image).colour(),
        hashes: image.duplicates != ImageDuplicates::Bytes,
    };
    Ok(Some(Images {
        column: column.to_owned(),
        config: image.clone(),
        how,
        program: None,
    }))
}

/// The columns beside an image, and the keys that belong to them.
fn check_beside(image: &StoredImageConfig, columns: &[MergedColumn]) -> Result<(), Error> {
    let refuse = |key: &str, reason: &str| Err(Error::config(format!("{KEY}.{key}"), reason));
    if image.boxes.is_none() && image.boxes_on.is_some() {
        return refuse("boxes_on", "it belongs to `boxes`; set that, or remove it");
    }
    let by_embeddings = image.duplicates == ImageDuplicates::Embeddings;
    if by_embeddings && image.embeddings.is_none() {
        let reason = "`duplicates = \"embeddings\"` needs it: name the column of embeddings";
        return refuse("embeddings", reason);
    }
    let given = [
        ("embeddings", image.embeddings.is_some()),
        ("embedding_cosine", image.embedding_cosine.is_some()),
    ];
    if let Some((key, _)) = given.iter().find(|(_, given)| *given && !by_embeddings) {
        let reason = "it belongs to `duplicates = \"embeddings\"`; set that, or remove it";
        return refuse(key, reason);
    }
    let cosine = image.embedding_cosine.unwrap_or(COSINE);
    if !(0.5..=1.0).contains(&cosine) {
        let reason = format!("it is `{cosine}`, use `0.5` to `1`");
        return refuse("embedding_cosine", &reason);
    }
    let named = [("boxes", &image.boxes), ("embeddings", &image.embeddings)];
    for (key, name) in named {
        let Some(name) = name else { continue };
        let found = find(&format!("{KEY}.{key}"), name, columns)?.r#type;
        if !matches!(found, ColumnType::Json | ColumnType::Utf8) {
            let reason = format!("column `{name}` holds no lists; name the one that does");
            return refuse(key, &reason);
        }
    }
    Ok(())
}

/// Colour that transparent pixels of images are blended onto.
pub(crate) fn background(image: &StoredImageConfig) -> ImageBackground {
    image.background.unwrap_or(ImageBackground::WHITE)
}

fn limits(image: &StoredImageConfig) -> ImageLimits {
    ImageLimits {
        encoded_bytes: u32::try_from(image.max_bytes.bytes()).unwrap_or(u32::MAX),
        side: image.max_side,
        pixels: image.max_pixels,
        decoder_bytes: image.max_decoder_bytes.bytes(),
    }
}

fn sizing(image: &StoredImageConfig) -> Result<Sizing, Error> {
    let refuse = |key: &str, reason: &str| Err(Error::config(format!("{KEY}.{key}"), reason));
    if image.resize != ImageResize::Crop && image.shorter_side.is_some() {
        return refuse(
            "shorter_side",
            "it belongs to `resize = \"crop\"`; remove it",
        );
    }
    if image.resize == ImageResize::None {
        return match image.size {
            None => Ok(Sizing::Original),
            Some(_) => refuse(
                "size",
                "it has no meaning without `resize`; set that, or remove it",
            ),
        };
    }
    if image.store == ImageStore::Original {
        return refuse(
            "resize",
            "a file that is stored as it came keeps its size; set `store` to `jpeg`, `png` or `raw`",
        );
    }
    let Some(size) = image.size else {
        return refuse("size", "`resize` needs it: pixels, such as `size = 256`");
    };
    let [height, width] = match size {
        ImageSize::Side(side) => [side; 2],
        ImageSize::Sides(_) if image.resize == ImageResize::ShorterSide => {
            return refuse("size", "`resize = \"shorter_side\"` takes one number");
        }
        ImageSize::Sides(sides) => sides,
    };
    let most = SIDE.min(image.max_side);
    if ![height, width].iter().all(|side| (1..=most).contains(side)) {
        let told = match size {
            ImageSize::Side(side) => format!("`{side}`"),
            ImageSize::Sides([height, width]) => format!("`[{height}, {width}]`"),
        };
        let reason = format!("it is {told}, use `1` to `{most}` (`max_side`) for each side");
        return refuse("size", &reason);
    }
    Ok(match image.resize {
        ImageResize::None | ImageResize::ShorterSide => Sizing::ShorterSide(height),
        ImageResize::Exact => Sizing::Exact { width, height },
        ImageResize::Pad => Sizing::Pad { width, height },
        ImageResize::Crop => {
            let least = width.max(height);
            let shorter_side = image.shorter_side.unwrap_or(least);
            if !(least..=SIDE).contains(&shorter_side) {
                let reason = format!(
                    "it is `{shorter_side}`, use `{least}` (the larger of `size`) to `{SIDE}`"
                );
                return refuse("shorter_side", &reason);
            }
            Sizing::Crop {
                width,
                height,
                shorter_side,
            }
        }
    })
}
