//! `[dataset.image]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::ByteSize;

/// What is done to images when the dataset is built. With this table every image is decoded, and one that cannot be
/// is set aside with the reason; without it files are stored as they came and only their first bytes are looked at.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StoredImageConfig {
    /// What images are stored as: `original` (default), `jpeg`, `png` or `raw`.
    pub store: ImageStore,
    /// How they get their size: `none` (default), `shorter_side`, `exact`, `crop` or `pad`. Wants `store` to be other than
    /// `original`.
    pub resize: ImageResize,
    /// Pixels, 1 to 16,384: one number, or `[height, width]` for `exact`, `crop` and `pad`. Required by `resize`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<ImageSize>,
    /// `crop`: pixels of the shorter side before the crop, at least the larger of `size`. Default the larger of `size`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shorter_side: Option<u32>,
    /// Filter of `resize`: `bilinear` (default), `bicubic` or `lanczos`, all antialiased. It is recorded in the transform.
    pub filter: ImageFilter,
    /// `jpeg`: quality, 1 to 100. Default 90.
    pub quality: u8,
    /// Whether an image that is of the format of `store`, upright and small enough already is stored as it came. Default
    /// true; false encodes every image anew, which also takes out what files hold besides pixels.
    pub keep_original: bool,
    /// What makes two images the same: `pixels` (default), `bytes`, `perceptual` or `embeddings`.
    pub duplicates: ImageDuplicates,
    /// `perceptual`: bits of the 64 of a perceptual hash that may differ, 0 to 8. Default 4.
    pub perceptual_bits: u32,
    /// `embeddings`: column of the numbers that a model of yours made of each image, 1 to 65,536, a JSON list or a list
    /// column. A row with another number of them than most have, or with what are no finite numbers, is set aside; a
    /// image without any, or with zeros only, is near to nothing. Required by `duplicates = "embeddings"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub embeddings: Option<String>,
    /// `embeddings`: least cosine of two that are near, 0.5 to 1. Default 0.95. Lower it to keep images of one scene
    /// together too; raise it where images that have little in common share a split.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub embedding_cosine: Option<f64>,
    /// Column of boxes in each image: a JSON list, or a list column, of `[x, y, width, height]` or of objects with that
    /// list as `bbox` and perhaps a `label` (or `category_id`, or `category`: text or an integer), in pixels from the left
    /// upper corner; what else they have is left out. They are scaled and
    /// cut with the image and stored beside it as `boxes`; those of which nothing is left are left out and counted. A row
    /// whose cell is no such list is set aside; one without a cell has no boxes. Of rows that are copies of one image
    /// the first one's boxes are kept. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boxes: Option<String>,
    /// `boxes`: what they were drawn on, `upright` (default) or `file`. The two differ where a file says that it is to be
    /// turned (EXIF): set `file` for boxes that were made by a program that does not turn images.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boxes_on: Option<BoxesOn>,
    /// Whether files are decoded in processes of their own, whose memory is bounded and which are started again where a
    /// decoder brings one down or takes a minute for an image: that image is set aside. Default: where the `url` of a
    /// source begins with `http`, or it has `fetch`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub isolate: Option<bool>,
    /// Most bytes of a file, 1 B to 1 GiB. Default 64 MiB.
    pub max_bytes: ByteSize,
    /// Most pixels of a side, 1 to 16,384. Default 16,384.
    pub max_side: u32,
    /// Most pixels, 1 to 268,435,456. Default 64,000,000.
    pub max_pixels: u64,
    /// Most bytes that decoding one image may take, by a bound from its header. Each thread may take as much. Default
    /// 512 MiB.
    pub max_decoder_bytes: ByteSize,
}

impl Default for StoredImageConfig {
    fn default() -> Self {
        Self {
            store: ImageStore::Original,
            resize: ImageResize::None,
            size: None,
            shorter_side: None,
            filter: ImageFilter::Bilinear,
            quality: 90,
            keep_original: true,
            duplicates: ImageDuplicates::Pixels,
            perceptual_bits: 4,
            embeddings: None,
            embedding_cosine: None,
            boxes: None,
            boxes_on: None,
            isolate: None,
            max_bytes: ByteSize::mib(64),
            max_side: 1 << 14,
            max_pixels: 64_000_000,
            max_decoder_bytes: ByteSize::mib(512),
        }
    }
}

/// What images are stored as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ImageStore {
    /// The file as it came: JPEG, PNG, WebP, PGM or PPM.
    #[default]
    Original,
    /// JPEG of `quality`.
    Jpeg,
    /// PNG.
    Png,
    /// Its pixels behind a header (PPM, or PGM where all are grey).
    Raw,
}

/// How images get their size; sides are those of the upright image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ImageResize {
    /// They keep it.
    #[default]
    None,
    /// Larger images are shrunk until their shorter side has `size` pixels.
    ShorterSide,
    /// All get these sides; the aspect ratio changes.
    Exact,
    /// They are resized until their shorter side has `shorter_side` pixels, and the centre is kept.
    Crop,
    /// They are resized as large as fits, in the middle of a black image.
    Pad,
}

/// A size in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ImageSize {
    /// Both sides, or the shorter one.
    Side(u32),
    /// Height and width.
    Sides([u32; 2]),
}

/// An antialiased filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ImageFilter {
    /// A triangle.
    #[default]
    Bilinear,
    /// Catmull-Rom (a = -0.5).
    Bicubic,
    /// Three lobes.
    Lanczos,
}

/// The image that boxes were drawn on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BoxesOn {
    /// As it is looked at, after it was turned as its file says: browsers and labelling tools show it so.
    #[default]
    Upright,
    /// As the file has it, before it is turned.
    File,
}

/// What makes two images the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ImageDuplicates {
    /// Equal files. Two files of one image, as a PNG and the same as a BMP, may then stand in two splits.
    Bytes,
    /// Equal pixels, as they are before they are stored: the first landed is kept (all with `dataset.dedup = "none"`,
    /// and they share a split).
    #[default]
    Pixels,
    /// Besides, images that look alike share a split: their pHash differs in at most `perceptual_bits` bits and their
    /// dHash in at most twice as many, or a chain of such images joins them.
    Perceptual,
    /// As `pixels`, and images whose `embeddings` are near share a split, or a chain of such images joins them. Random
    /// projections look for them: 99 of 100 pairs at the threshold are met, more above it, and each is verified from all
    /// of its numbers. Where more than 64 images share a projection not all of their pairs are looked at, so a few more
    /// pairs may be missed; the manifest counts such bands as `hubs`.
    Embeddings,
}
