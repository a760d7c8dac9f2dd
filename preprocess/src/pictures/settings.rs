//! `[dataset.picture]`, checked.

use feedline_picture::{Encoding, Filter, MOST_BITS, PictureLimits, Preparation, Sizing};
use feedline_schemas::{
    config::{
        DatasetConfig, PictureDuplicates, PictureFilter, PictureResize, PictureSize, PictureStore,
        StoredPictureConfig,
    },
    record::ColumnType,
};

use super::{KEY, Pictures};
use crate::{
    Error,
    columns::{MergedColumn, find},
};

/// Largest side of a picture.
const SIDE: u32 = 1 << 14;
/// Least cosine of two embeddings that are near, where nothing is said.
pub(super) const COSINE: f64 = 0.95;

/// What is done to the pictures of a dataset; `None` where they are stored as they came.
///
/// # Errors
/// [`Error::Config`] for a setting out of its range, and for settings that do not go together.
pub(crate) fn resolve(
    config: &DatasetConfig,
    column: &str,
    columns: &[MergedColumn],
) -> Result<Option<Pictures>, Error> {
    let Some(picture) = &config.picture else {
        return Ok(None);
    };
    let within = |key: &str, value: u64, least: u64, most: u64| {
        if (least..=most).contains(&value) {
            return Ok(());
        }
        let reason = format!("it is `{value}`, use `{least}` to `{most}`");
        Err(Error::config(format!("{KEY}.{key}"), reason))
    };
    within("quality", picture.quality.into(), 1, 100)?;
    within(
        "look_alike_bits",
        picture.look_alike_bits.into(),
        0,
        MOST_BITS.into(),
    )?;
    within("max_bytes", picture.max_bytes.bytes(), 1, 1 << 30)?;
    within("max_side", picture.max_side.into(), 1, SIDE.into())?;
    within("max_pixels", picture.max_pixels, 1, 1 << 28)?;
    within(
        "max_decoder_bytes",
        picture.max_decoder_bytes.bytes(),
        1,
        1 << 36,
    )?;
    check_beside(picture, columns)?;
    let how = Preparation {
        sizing: sizing(picture)?,
        filter: match picture.filter {
            PictureFilter::Bilinear => Filter::Bilinear,
            PictureFilter::Bicubic => Filter::Bicubic,
            PictureFilter::Lanczos => Filter::Lanczos,
        },
        encoding: match picture.store {
            PictureStore::Original => None,
            PictureStore::Jpeg => Some(Encoding::Jpeg {
                quality: picture.quality,
            }),
            PictureStore::Png => Some(Encoding::Png),
            PictureStore::Raw => Some(Encoding::Raw),
        },
        keep_original: picture.keep_original,
        limits: limits(picture),
        // What comes out of a reduced decode depends on the library that the program was built with.
        scaled_decoding: false,
        hashes: picture.duplicates != PictureDuplicates::Bytes,
    };
    Ok(Some(Pictures {
        column: column.to_owned(),
        config: picture.clone(),
        how,
        program: None,
    }))
}

/// The columns beside a picture, and the keys that belong to them.
fn check_beside(picture: &StoredPictureConfig, columns: &[MergedColumn]) -> Result<(), Error> {
    let refuse = |key: &str, reason: &str| Err(Error::config(format!("{KEY}.{key}"), reason));
    if picture.boxes.is_none() && picture.boxes_on.is_some() {
        return refuse("boxes_on", "it belongs to `boxes`; set that, or remove it");
    }
    let by_embeddings = picture.duplicates == PictureDuplicates::Embeddings;
    if by_embeddings && picture.embeddings.is_none() {
        let reason = "`duplicates = \"embeddings\"` needs it: name the column of embeddings";
        return refuse("embeddings", reason);
    }
    let given = [
        ("embeddings", picture.embeddings.is_some()),
        ("embedding_cosine", picture.embedding_cosine.is_some()),
    ];
    if let Some((key, _)) = given.iter().find(|(_, given)| *given && !by_embeddings) {
        let reason = "it belongs to `duplicates = \"embeddings\"`; set that, or remove it";
        return refuse(key, reason);
    }
    let cosine = picture.embedding_cosine.unwrap_or(COSINE);
    if !(0.5..=1.0).contains(&cosine) {
        let reason = format!("it is `{cosine}`, use `0.5` to `1`");
        return refuse("embedding_cosine", &reason);
    }
    let named = [
        ("boxes", &picture.boxes),
        ("embeddings", &picture.embeddings),
    ];
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

fn limits(picture: &StoredPictureConfig) -> PictureLimits {
    PictureLimits {
        encoded_bytes: u32::try_from(picture.max_bytes.bytes()).unwrap_or(u32::MAX),
        side: picture.max_side,
        pixels: picture.max_pixels,
        decoder_bytes: picture.max_decoder_bytes.bytes(),
    }
}

fn sizing(picture: &StoredPictureConfig) -> Result<Sizing, Error> {
    let refuse = |key: &str, reason: &str| Err(Error::config(format!("{KEY}.{key}"), reason));
    if picture.resize != PictureResize::Crop && picture.shorter_side.is_some() {
        return refuse(
            "shorter_side",
            "it belongs to `resize = \"crop\"`; remove it",
        );
    }
    if picture.resize == PictureResize::None {
        return match picture.size {
            None => Ok(Sizing::Original),
            Some(_) => refuse(
                "size",
                "it has no meaning without `resize`; set that, or remove it",
            ),
        };
    }
    if picture.store == PictureStore::Original {
        return refuse(
            "resize",
            "a file that is stored as it came keeps its size; set `store` to `jpeg`, `png` or `raw`",
        );
    }
    let Some(size) = picture.size else {
        return refuse("size", "`resize` needs it: pixels, such as `size = 256`");
    };
    let [height, width] = match size {
        PictureSize::Side(side) => [side; 2],
        PictureSize::Sides(_) if picture.resize == PictureResize::ShorterSide => {
            return refuse("size", "`resize = \"shorter_side\"` takes one number");
        }
        PictureSize::Sides(sides) => sides,
    };
    let most = SIDE.min(picture.max_side);
    if ![height, width].iter().all(|side| (1..=most).contains(side)) {
        let told = match size {
            PictureSize::Side(side) => format!("`{side}`"),
            PictureSize::Sides([height, width]) => format!("`[{height}, {width}]`"),
        };
        let reason = format!("it is {told}, use `1` to `{most}` (`max_side`) for each side");
        return refuse("size", &reason);
    }
    Ok(match picture.resize {
        PictureResize::None | PictureResize::ShorterSide => Sizing::ShorterSide(height),
        PictureResize::Exact => Sizing::Exact { width, height },
        PictureResize::Pad => Sizing::Pad { width, height },
        PictureResize::Crop => {
            let least = width.max(height);
            let shorter_side = picture.shorter_side.unwrap_or(least);
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
