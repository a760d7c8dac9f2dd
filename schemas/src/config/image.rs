//! `[dataset.image]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ImageBackground;
use crate::units::ByteSize;

/// Decoding and storage of images when the dataset is built. With this table every image is
/// decoded, and one that cannot be decoded is rejected with the reason. Without it files are stored
/// as they landed, and only their first bytes are checked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StoredImageConfig {
    /// Format of stored images: `original` (default), `jpeg`, `png` or `raw`.
    pub store: ImageStore,
    /// Resizing of images: `none` (default), `shorter_side`, `exact`, `crop` or `pad`. Requires a
    /// `store` other than `original`.
    pub resize: ImageResize,
    /// Size in pixels, 1 to 16,384: one number, or `[height, width]` for `exact`, `crop` and `pad`.
    /// Required by `resize`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<ImageSize>,
    /// `crop`: pixels of the shorter side before the crop, at least the larger of `size`. Default
    /// the larger of `size`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shorter_side: Option<u32>,
    /// Filter of `resize`: `bilinear` (default), `bicubic` or `lanczos`, all antialiased. It is
    /// recorded in the transform artefact.
    pub filter: ImageFilter,
    /// `jpeg`: quality, 1 to 100. Default 90.
    pub quality: u8,
    /// If true, an image that already has the format of `store`, is upright, is small enough and has
    /// no transparent pixels is stored as it landed. Default true. If false, every image is encoded again, which also
    /// removes all metadata from the files.
    pub keep_original: bool,
    /// Colour that transparent pixels are blended onto: `"white"` (default), `"black"`, or red, green
    /// and blue as `"#rrggbb"`. Alpha is straight, and levels are rounded to nearest. `"none"` drops
    /// alpha, so pixels have the colours that the file stores under it. Opaque images have the same
    /// pixels with any background. With `store = "original"` files keep their alpha, and the loader
    /// blends them onto this colour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub background: Option<ImageBackground>,
    /// Rule for duplicate images: `pixels` (default), `bytes`, `perceptual` or `embeddings`.
    pub duplicates: ImageDuplicates,
    /// `perceptual`: number of the 64 bits of a perceptual hash that may differ, 0 to 8. Default 4.
    pub perceptual_bits: u32,
    /// `embeddings`: column with the embedding of each image by a model of yours: 1 to 65,536
    /// numbers, as a JSON list or in a list column. A row is rejected if its embedding has another
    /// length than most, or numbers that are not finite. An image without an embedding, or with
    /// only zeros, is similar to no other. Required by `duplicates = "embeddings"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub embeddings: Option<String>,
    /// `embeddings`: smallest cosine similarity of two similar images, 0.5 to 1. Default 0.95.
    /// Lower it to keep images of one scene in one split, too; raise it where images with little in
    /// common share a split.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub embedding_cosine: Option<f64>,
    /// Column of boxes in each image: a JSON list, or a list column, of `[x, y, width, height]` or
    /// of objects with that list as `bbox`. Numbers are in pixels from the upper left corner.
    /// Objects may have a `label` (or `category_id`, or `category`), text or an integer; all other
    /// fields are dropped. Boxes are scaled and cropped with the image and stored beside it as
    /// `boxes`. Boxes with no area left are dropped and counted. A row whose cell is not such a
    /// list is rejected; a row without a cell has no boxes. Of duplicate images, the boxes of the
    /// first are kept. Default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boxes: Option<String>,
    /// `boxes`: image that the boxes were drawn on, `upright` (default) or `file`. The two differ
    /// where the metadata of a file (EXIF) asks for a rotation. Set `file` for boxes from a program
    /// that does not rotate images.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boxes_on: Option<BoxesOn>,
    /// If true, files are decoded in separate processes with bounded memory. A process is started
    /// again if a decoder crashes it or takes a minute for an image; that image is rejected.
    /// Default: true if the `url` of a source begins with `http://` or `https://`, or if a source
    /// has `fetch`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub isolate: Option<bool>,
    /// Largest size of a file, 1 B to 1 GiB. Default 64 MiB.
    pub max_bytes: ByteSize,
    /// Largest side of an image in pixels, 1 to 16,384. Default 16,384.
    pub max_side: u32,
    /// Largest number of pixels of an image, 1 to 268,435,456. Default 64,000,000.
    pub max_pixels: u64,
    /// Largest memory for decoding one image, by an upper bound from its header. Each thread may
    /// use as much. Default 512 MiB.
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
            background: None,
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

/// Format of stored images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ImageStore {
    /// The file as it landed: JPEG, PNG, WebP, PGM or PPM.
    #[default]
    Original,
    /// JPEG of `quality`.
    Jpeg,
    /// PNG.
    Png,
    /// Uncompressed pixels after a header (PPM, or PGM if all are grey).
    Raw,
}

/// Resizing of images; sides are those of the upright image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ImageResize {
    /// Images keep their size.
    #[default]
    None,
    /// Larger images are shrunk until their shorter side has `size` pixels.
    ShorterSide,
    /// All images get these sides; the aspect ratio changes.
    Exact,
    /// Images are resized until their shorter side has `shorter_side` pixels, and then cropped to
    /// their centre.
    Crop,
    /// Images are resized to the largest size that fits, and centred on a black image.
    Pad,
}

/// A size in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "expected a whole number, or a list of height and width, such as [224, 224]"
)]
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
    /// The image as displayed, rotated as its file asks. Browsers and labelling tools show it so.
    #[default]
    Upright,
    /// The image as stored in the file, before rotation.
    File,
}

/// Rule for duplicate images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ImageDuplicates {
    /// Equal files. Two files of one image, such as a PNG and the same image as a BMP, may then be
    /// in two splits.
    Bytes,
    /// Equal pixels, before they are stored: the first landed is kept. With
    /// `dataset.dedup = "none"` all are kept, and they share a split.
    #[default]
    Pixels,
    /// As `pixels`, and images that look alike share a split: their pHash differs in at most
    /// `perceptual_bits` bits, and their dHash in at most twice as many. Images that a chain of
    /// such pairs connects share a split, too.
    Perceptual,
    /// As `pixels`, and images with similar `embeddings` share a split, as do images that a chain
    /// of such pairs connects. Random projections find the candidates: 99 of 100 pairs at the
    /// threshold are found, more above it. Each pair is verified with all of its numbers. Where
    /// more than 64 images share a projection, not all of their pairs are compared, so a few more
    /// pairs may be missed. The manifest counts such bands as `hubs`.
    Embeddings,
}
